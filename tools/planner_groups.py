# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner against the pools of real start-ups: (a) measured, (b) cell, (c) blind.

What each group compares is told in bench_planner.py, which prints it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner_starts import (  # first: it puts the checkout on the path
    GIB,
    cell_of,
    family_of,
    input_of,
    load_figures,
)

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_solve as solve  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input  # isort: skip

# Must be kept by each group: (what, the most).
MEASURED_GIB, MEASURED_SHARE, MEASURED_ROWS = 0.1, 0.005, 0.9
BLIND_MEDIAN_SHARE, BLIND_BAND_SHARE = 0.01, 0.025


@dataclass(frozen=True)
class Result:
    """One row of a group. C(error_gib), C(error_tokens): planned less printed. C(good): within the bound of the row."""

    id: str
    family: str
    error_gib: float
    error_tokens: float
    good: bool
    note: str = ""
    board_gib: float = 0.0
    band_gib: float = 0.0
    how: str = ""  # where the weights of (c) come from
    explained: str = ""  # why a row that is not good misses: it counts as a miss, and not against the bound


# ---------------------------------------------------------------------------
# (a) measured
# ---------------------------------------------------------------------------


def measured(all_starts):
    """Return (results of complete rows, results of rows with one figure by difference, left out)."""
    complete, near, out = [], [], []
    for start in all_starts:
        why = _measured_missing(start)
        if why:
            out.append((start.id, why))
            continue
        before, after, how = load_figures(start)
        result = _measured_result(start, before, after)
        printed = start.before_gib is not None and (start.after_gib is not None or start.weights_gib is not None)
        (complete if printed and start.version else near).append(replace(result, note=how + result.note))
    return complete, near, out


def _measured_missing(start):
    if start.tokens is None or (start.kv_gib is None and cell_of(start)[0] is None):
        return "no pool printed"
    if start.row["max_total_tokens_arg"] or start.more.get("arguments", {}).get("max-total-tokens"):
        return "the pool is at its cap"
    if start.fraction is None:
        return "no fraction printed"
    if load_figures(start) is None:
        return "no load figures printed"
    if start.row["mamba_cache"] is None and "Bailing" in " ".join(start.row["log_lines"] or []):
        return "linear-attention state of a model without public geometry, not printed"
    return ""


def _measured_result(start, before, after):
    """The budget of the plan against the printed bytes of the pools; against cell x tokens only where none are printed.

    The bytes of the pools hold a page more than the budget was divided by: that page is taken off where it is known.
    """
    base = bases.base_of(plan_input(input_of(start, free_before_load_gib=before, free_after_load_gib=after)))
    rest = solve.rest_gib(base, start.fraction) - start.more.get("other_gib", 0.0)
    cell = cell_of(start)[0]
    if start.kv_gib is not None and not start.more.get("rounded"):
        page_gib = 0.0 if cell is None else _page_bytes(cell) / GIB
        taken = start.kv_gib * (1 + start.more.get("unprinted_share", 0.0)) + start.state_gib - page_gib
        note = "printed bytes"
        if cell is not None and cell.state is not None and not start.state_gib:
            taken += _kv.rest_for(cell, start.tokens) / GIB - start.tokens * cell.bytes / GIB
            note = "printed bytes, and states that are not printed"
    else:
        taken = _kv.rest_for(cell, start.tokens) / GIB
        note = "no bytes printed, cell x tokens"
    cell_bytes = start.kv_gib * GIB / start.tokens if cell is None else cell.bytes
    error = rest - taken
    good = abs(error) <= MEASURED_GIB or abs(error) <= MEASURED_SHARE * taken
    explained = start.more.get("measured_miss", "")
    return Result(start.id, family_of(start), error, error * GIB / cell_bytes, good, note, explained=explained)


def _page_bytes(cell):
    return cell.stored_bytes * cell.page_tokens


# ---------------------------------------------------------------------------
# (b) cell
# ---------------------------------------------------------------------------


def cells(all_starts):
    """Return (results, left out). The error is that of the pool's bytes for the printed tokens."""
    found, out = [], []
    for start in all_starts:
        if start.kv_gib is None or start.tokens is None:
            out.append((start.id, "no pool bytes or no tokens printed"))
            continue
        if start.more.get("rounded"):
            out.append((start.id, start.more["rounded"]))
            continue
        cell, problem = cell_of(start)
        if cell is None:
            out.append((start.id, problem))
            continue
        found.append(_cell_result(start, cell))
    return found, out


def _cell_result(start, cell):
    swa = start.row["swa"] or {}
    tokens = start.tokens
    if cell.window_bytes and swa.get("swa_tokens"):
        planned = cell.full_bytes * swa["full_tokens"] + cell.window_bytes * swa["swa_tokens"]
    else:
        planned = cell.stored_bytes * (tokens + cell.page_tokens)
    printed = start.kv_gib * (1 + start.more.get("unprinted_share", 0.0))
    error = planned / GIB - printed
    bound = start.kv_error_gib * (1 + start.more.get("unprinted_share", 0.0)) + 0.0005
    return Result(start.id, f"{cell.layout} {cell.kv_dtype}", error, error * GIB / cell.bytes, abs(error) <= bound)


# ---------------------------------------------------------------------------
# (c) blind
# ---------------------------------------------------------------------------


PACKED = "tensors of a packed checkpoint"
CHECKPOINT, PRINTED = "checkpoint bytes", "weights printed by the same start"


def blind(all_starts, boards, checkpoints, weights=None):
    """Return (results, results of rows whose free memory is as printed, left out).

    Weights are the checkpoint's bytes wherever they are known, else those that the same start printed; with C(weights)
    PRINTED those that are printed, for all rows that print them.
    """
    found, told, out = [], [], []
    for start in all_starts:
        why = _blind_missing(start, checkpoints)
        if why:
            out.append((start.id, why))
            continue
        board = boards.get(start.more.get("board"))
        known = None if weights == PRINTED and load_figures(start) else checkpoint_of(start, checkpoints)
        (found if board else told).append(_blind_result(start, board, known))
    return found, told, out


def _blind_missing(start, checkpoints):
    if start.tokens is None:
        return "no pool printed"
    if start.fraction is None:
        return "no fraction printed"
    cell, problem = cell_of(start)
    if cell is None:
        return problem
    if start.more.get("other_gib"):
        return "a board that this collection does not plan (the workspace of the aiter backend on AMD)"
    if not start.more.get("board") and start.before_gib is None and load_figures(start) is None:
        return "neither board nor free memory known"
    if start.weights_gib is None and load_figures(start) is None and checkpoint_of(start, checkpoints) is None:
        return "neither checkpoint bytes nor printed weights"
    return ""


def checkpoint_of(start, checkpoints):
    """Return the checkpoint of a start, None when it is not known or not loaded whole."""
    if start.more.get("partial_weights"):
        return None
    return checkpoints.get(start.more.get("checkpoint") or start.more.get("geometry"))


def packed_table(known, layers):
    """Return the table of tensors of a checkpoint that is packed by AWQ, as model_info reads it from its files.

    C(known): the checkpoint of bench.yaml. A packed matrix has 4 bits a number, and for each group of inputs and each
    output a scale of 16 bits and a zero of 4. Every sixth layer is a full one.
    """
    full = [[layer, layer] for layer in range(5, layers, 6)]
    kinds = {"all": [[0, layers - 1]], "full": full, "window": [[first - 5, first - 1] for first, _last in full]}
    rows = []
    for name, outputs, inputs, kind, each in known["packed"]:
        groups = inputs // known["group"]
        for part, dtype, shape, bytes_each in (
            ("qweight", "I32", [inputs, outputs // 8], 4),
            ("qzeros", "I32", [groups, outputs // 8], 4),
            ("scales", "F16", [groups, outputs], 2),
        ):
            rows.append(_row(f"model.layers.*.{name}.{part}", dtype, shape, bytes_each, kinds[kind], each))
    for name, shape, *where in known["plain"]:
        kind = where[0] if where else None
        inside = [[0, kind - 1]] if isinstance(kind, int) else kinds.get(kind)
        prefix = "model.layers.*." if kind in kinds else ""
        rows.append(_row(prefix + name, "BF16", shape, 2, inside, 1))
    return rows


def _row(name, dtype, shape, bytes_each, layers, each):
    tensors = each * (sum(last - first + 1 for first, last in layers) if layers else 1)
    row = {"name": name, "dtype": dtype, "shape": shape, "tensors": tensors}
    row["bytes"] = math.prod(shape) * bytes_each * tensors
    return dict(row, layers=layers) if layers else row


def blind_options(start, board, known):
    """Return (options of the plan, where the weights come from). C(known): the checkpoint, None: as printed."""
    ranks = (start.row["tp"] or 1) * (start.row["pp"] or 1) * (start.row["dp"] or 1)
    if board is None:
        options = input_of(start, free_before_load_gib=load_figures(start)[0])
        if start.more.get("unified"):
            options["gpus"] = [{"name": "unified", "unified_memory": True}] * ranks
    else:
        entry = {
            "name": start.more["board"],
            "memory_total_mib": board["total"],
            "memory_free_mib": board["free"],
            "compute_capability": board["capability"],
        }
        options = input_of(start, gpus=[entry] * ranks)
    if known is not None:
        options["weight_bytes"] = known["bytes"]
        if "packed" not in known:
            return options, CHECKPOINT
        options["weight_table"] = packed_table(known, start.geometry["layers"])
        options["weights_created"] = list(start.created)
        return options, PACKED
    weights = start.weights_gib
    if weights is None:
        before, after, dummy = load_figures(start)
        weights = before - after
    options["measurements"] = [{"origin": "play", "weights_gib": weights, "engine_version": start.version}]
    return options, PRINTED


def _blind_result(start, board, known):
    options, how = blind_options(start, board, known)
    inp = plan_input(options)
    answer = plan(inp)
    base = bases.base_of(inp)
    board_gib = board["total"] / 1024 if board else base.before.gib
    error_tokens = answer.predicted_tokens - start.tokens
    kept = answer.predicted_tokens_low <= start.tokens
    within = kept and start.tokens <= answer.predicted_tokens_high
    place = "" if within else ", above the band" if kept else ", UNDER THE BAND"
    note = f"{how}, half band {answer.band_gib:.2f} GiB{place}"
    error_gib = solve.rest_gib(base, start.fraction) - _kv.rest_for(base.cell, start.tokens) / GIB
    return Result(
        start.id, family_of(start), error_gib, error_tokens, kept, note, board_gib, band_gib=answer.band_gib, how=how
    )
