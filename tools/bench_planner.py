# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How near the planner comes to real start-ups from public reports: figures by family, and every row left out.

    bench_planner.py [--rows] [--write]     --rows: each row with its error; --write: the table of docs/memory.md

(a) measured: the budget from the printed load figures against the printed pool
(b) cell:     bytes of a token from geometry, layout and version against printed bytes / tokens
(c) blind:    from board, geometry, weights and arguments alone against the printed pool
(d) dead:     every refused or dead start: does the plan refuse or warn, in the right direction?
(e) headroom: what is free when the server is ready, from printed load figures and from the board alone: is the printed
              figure inside the band? And what two starts of one configuration differ by: inside the noise?

Ends with status 1 when a bound of BOUNDS is missed. Data: tests/data/startups.yaml, geometry.yaml, bench.yaml.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from dataclasses import dataclass, replace

import tree
import yaml

DEVTREE = str(tree.link().parents[2])
if DEVTREE not in sys.path:
    sys.path.append(DEVTREE)

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_solve as solve  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._model import read_geometry  # noqa: E402

DATA = tree.ROOT / "tests" / "data"
GIB = 2**30
PRINTED_GIB = 0.005  # two decimals
# Must be kept by each group: (what, the most).
MEASURED_GIB, MEASURED_SHARE, MEASURED_ROWS = 0.1, 0.005, 0.9
BLIND_MEDIAN_SHARE, BLIND_BAND_SHARE = 0.01, 0.025
# Printed headroom inside the band, and the most of its median half band on boards with memory of their own.
HEADROOM_ROWS, HEADROOM_HALF_BAND_GIB = 0.9, 1.0


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


@dataclass(frozen=True)
class Start:
    """A start-up with what the bench adds to it."""

    row: dict
    more: dict
    geometry: dict | None
    geometry_problem: str

    @property
    def id(self):
        return self.row["id"]

    @property
    def version(self):
        printed = re.match(r"(\d+\.\d+\.\d+)", str(self.row.get("sglang_version") or ""))
        found = self.more.get("version") or (printed.group(1) if printed else None)
        return None if found is None or found.startswith("0.0.0") else found

    @property
    def before_gib(self):
        return self.row["load_begin_avail_gb"]

    @property
    def after_gib(self):
        return self.row["load_end_avail_gb"]

    @property
    def weights_gib(self):
        return self.row["weights_gb"]

    @property
    def fraction(self):
        return self.row["mem_fraction_static"]

    @property
    def tokens(self):
        return self.row["max_total_num_tokens"] or self.row["kv_tokens"]

    @property
    def kv_gib(self):
        """Printed bytes of the pools of keys and values, GiB."""
        row = self.row
        if row["kv_total_gb"] is not None:
            return row["kv_total_gb"]
        if row["kv_k_gb"] is None:
            return None
        return row["kv_k_gb"] + (row["kv_k_gb"] if row["kv_v_gb"] is None else row["kv_v_gb"])

    @property
    def kv_error_gib(self):
        """Half a print step for each figure that was added up."""
        figures = self.more.get("figures") or (1 if self.row["kv_total_gb"] is not None else 2)
        return PRINTED_GIB * figures

    @property
    def state_gib(self):
        found = self.row["mamba_cache"] or {}
        return sum(value for name, value in found.items() if name.endswith("_gb"))


# ---------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------


def load(name):
    return yaml.safe_load((DATA / f"{name}.yaml").read_text())


def geometry_of(config):
    """Return (geometry, problem) of a configuration as the planner itself reads it."""
    try:
        return read_geometry({key: value for key, value in config.items() if key != "how_known"}), ""
    except ValueError as error:
        return None, str(error)


def starts():
    """Return (the Starts, the boards, the checkpoints)."""
    bench, shapes = load("bench"), load("geometry")
    read = {}
    found = []
    for row in load("startups"):
        more = bench["rows"].get(row["id"], {})
        name = more.get("geometry")
        if name and name not in read:
            keys = dict(shapes[name], **bench["shapes"].get(name, {}).get("keys", {}))
            read[name] = geometry_of({key: value for key, value in keys.items() if value is not None})
        geometry, problem = read[name] if name else (None, "the model is not named, or its geometry is not public")
        if geometry and more.get("text_only"):
            geometry = dict(geometry, multimodal=False)
        found.append(Start(row, more, geometry, problem))
    return found, bench["boards"], bench["checkpoints"]


KV_DTYPES = {"float8_e4m3fn": "fp8_e4m3", "fp8": "fp8_e4m3", "float4_e2m1fn_x2": "fp4_e2m1"}
# What of a printed argument list can matter here; the rest are defaults.
TAKEN = (
    "swa-full-tokens-ratio",
    "disable-radix-cache",
    "disable-hybrid-swa-memory",
    "mamba-full-memory-ratio",
    "enable-dp-attention",
    "language-only",
    "disable-cuda-graph",
    "disable-prefill-cuda-graph",
    "disable-piecewise-cuda-graph",
    "mamba-radix-cache-strategy",
    "cuda-graph-backend-prefill",
)


def arguments_of(start):
    """Return the server arguments of a start-up, as far as its report tells them."""
    row = start.row
    found = dict(printed_arguments(str(row["other_args"] or "")))
    fields = {
        "tp-size": "tp",
        "dp-size": "dp",
        "ep-size": "ep",
        "pp-size": "pp",
        "page-size": "page_size",
        "max-running-requests": "max_running_requests",
        "chunked-prefill-size": "chunked_prefill_size",
        "max-total-tokens": "max_total_tokens_arg",
        "nnodes": "nnodes",
    }
    for argument, name in fields.items():
        if row[name] is not None:
            found[argument] = row[name]
    dtype = re.sub(r"^torch\.", "", str(row["kv_cache_dtype"] or "auto")).split(" ")[0]
    if KV_DTYPES.get(dtype, dtype).startswith(("fp8", "fp4")):
        found["kv-cache-dtype"] = KV_DTYPES.get(dtype, dtype)
    if row["cuda_graph_max_bs"]:
        found["cuda-graph-max-bs"] = row["cuda_graph_max_bs"]
    algorithm = re.match(r"(EAGLE3?|NEXTN|STANDALONE|DFLASH)\b", str((row["speculative"] or {}).get("algorithm")))
    if algorithm:
        found["speculative-algorithm"] = algorithm.group(1)
    found.update(start.more.get("arguments", {}))
    return found


def printed_arguments(text):
    """Yield (argument, value) from a command line or from a printed list of ServerArgs."""
    for name in TAKEN:
        line = re.search(rf"--{name}(?:[ =]([^\s-][^\s,]*))?(?=[\s,]|$)", text)
        listed = re.search(rf"\b{name.replace('-', '_')}=('?)([^,' ]+)\1", text)
        if line:
            yield name, True if line.group(1) is None else line.group(1)
        elif listed and listed.group(2) not in ("None", "False"):
            yield name, True if listed.group(2) == "True" else listed.group(2)


def family_of(start):
    """Return the family of KV layouts, as far as the geometry or the printed lines tell."""
    cell = cell_of(start)[0]
    return "not known" if cell is None else f"{cell.layout} {cell.kv_dtype}"


def input_of(start, **more):
    """Return the options of a plan for a start-up: geometry, arguments, version, fraction and C(more)."""
    options = {"arguments": arguments_of(start), "pool_policy": "fill", "mem_fraction_static": start.fraction}
    if start.geometry is not None:
        options["geometry"] = start.geometry
    if start.version is not None:
        options["engine_version"] = start.version
    options.update(more)
    for name in ("max-running-requests", "chunked-prefill-size"):
        options["arguments"].setdefault(name, None)
    options["arguments"] = {name: value for name, value in options["arguments"].items() if value is not None}
    return options


def cell_of(start):
    """Return (Cell, problem)."""
    if start.geometry is None:
        return None, start.geometry_problem
    try:
        page = start.row["page_size"]
        return _kv.cell_bytes(start.geometry, arguments_of(start), start.version, page_tokens=page), ""
    except ValueError as error:
        return None, str(error)


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
        before, after, how = _load_figures(start)
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
    if _load_figures(start) is None:
        return "no load figures printed"
    if start.row["mamba_cache"] is None and "Bailing" in " ".join(start.row["log_lines"] or []):
        return "linear-attention state of a model without public geometry, not printed"
    return ""


def _load_figures(start):
    """Return (free before, free after, how), the third figure by difference when one is not printed; None without."""
    before, after, weights = start.before_gib, start.after_gib, start.weights_gib
    if before is not None and after is not None:
        return before, after, ""
    if before is not None and weights is not None:
        return before, before - weights, "after by difference; "
    if after is not None and weights is not None:
        return after + weights, after, "before by difference; "
    return None


def _measured_result(start, before, after):
    """The planned pool's bytes against the printed ones, by what the engine charges for a token."""
    base = bases.base_of(plan_input(input_of(start, free_before_load_gib=before, free_after_load_gib=after)))
    rest = solve.rest_gib(base, start.fraction) - start.more.get("other_gib", 0.0)
    cell = cell_of(start)[0]
    if cell is not None:
        taken = _kv.rest_for(cell, start.tokens) / GIB
        cell_bytes = cell.bytes
    else:
        taken = start.kv_gib * (1 + start.more.get("unprinted_share", 0.0)) + start.state_gib
        cell_bytes = start.kv_gib * GIB / start.tokens
    error = rest - taken
    good = abs(error) <= MEASURED_GIB or abs(error) <= MEASURED_SHARE * taken
    note = "" if cell is not None else "printed bytes, geometry not known"
    return Result(start.id, family_of(start), error, error * GIB / cell_bytes, good, note)


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


def blind(all_starts, boards, checkpoints):
    """Return (results, results of rows whose free memory is as printed, left out)."""
    found, told, out = [], [], []
    for start in all_starts:
        why = _blind_missing(start, checkpoints)
        if why:
            out.append((start.id, why))
            continue
        board = boards.get(start.more.get("board"))
        (found if board else told).append(_blind_result(start, board, checkpoints))
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
    if not start.more.get("board") and start.before_gib is None and _load_figures(start) is None:
        return "neither board nor free memory known"
    if start.weights_gib is None and _load_figures(start) is None and _checkpoint(start, checkpoints) is None:
        return "neither checkpoint bytes nor printed weights"
    return ""


def _checkpoint(start, checkpoints):
    return None if start.more.get("partial_weights") else checkpoints.get(start.more.get("geometry"))


def blind_options(start, board, checkpoints):
    """Return (options of the plan, where the weights come from)."""
    ranks = (start.row["tp"] or 1) * (start.row["pp"] or 1) * (start.row["dp"] or 1)
    if board is None:
        options = input_of(start, free_before_load_gib=_load_figures(start)[0])
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
    known = _checkpoint(start, checkpoints)
    if known is not None:
        options["weight_bytes"] = known["bytes"]
        return options, "checkpoint bytes"
    weights = start.weights_gib
    if weights is None:
        before, after, dummy = _load_figures(start)
        weights = before - after
    options["measurements"] = [{"origin": "play", "weights_gib": weights, "engine_version": start.version}]
    return options, "weights printed by the same start"


def _blind_result(start, board, checkpoints):
    options, how = blind_options(start, board, checkpoints)
    inp = plan_input(options)
    answer = plan(inp)
    base = bases.base_of(inp)
    board_gib = board["total"] / 1024 if board else base.before.gib
    error_tokens = answer.predicted_tokens - start.tokens
    kept = answer.predicted_tokens_low <= start.tokens
    within = kept and start.tokens <= answer.predicted_tokens_high
    note = how + ("" if within else ", above the band" if kept else ", UNDER THE BAND")
    error_gib = solve.rest_gib(base, start.fraction) - _kv.rest_for(base.cell, start.tokens) / GIB
    return Result(
        start.id, family_of(start), error_gib, error_tokens, kept, note, board_gib=board_gib, band_gib=answer.band_gib
    )


# ---------------------------------------------------------------------------
# (d) dead
# ---------------------------------------------------------------------------

INCREASE = "not_enough_memory"


def dead(all_starts):
    """Return (results, left out). C(good): refused at that fraction; for "increase" also a higher one named, if any."""
    found, out = [], []
    for start in all_starts:
        outcome = start.row["outcome"]
        if outcome == "ready":
            continue
        options, why = dead_options(start)
        if why:
            out.append((start.id, f"{outcome}: {why}"))
            continue
        answer = plan(plan_input(options))
        fraction = options["mem_fraction_static"]
        low = answer.fraction_low
        refused = answer.feasible is False
        if outcome == INCREASE:
            good = refused and (low is None or low > fraction)
            note = f"at {fraction}: needs {low or 'more than any fraction'}"
            if start.more.get("dead", {}).get("works"):
                note += f", {start.more['dead']['works']} is reported to work"
        else:
            good = refused
            note = f"at {fraction}: reserve {answer.reserve_gib} of {answer.reserve_needed_gib} GiB needed"
        note += ". " + (answer.refusal or "not refused")
        found.append(Result(start.id, "raise" if outcome == INCREASE else "lower", 0.0, 0.0, good, note))
    return found, out


def incidents():
    """Return results of the ends that docs/memory.md tells: refused before the restart, with values that work."""
    shapes, found = load("geometry"), []
    for one in load("bench")["incidents"]:
        options = dict(one["options"], geometry=geometry_of(shapes[one["geometry"]])[0])
        answer = plan(plan_input(options))
        note = (
            f"at {answer.fraction}: least free {answer.predicted_least_free_gib} GiB. {answer.refusal or 'not refused'}"
        )
        good = answer.refusal is not None and "what works is" in answer.refusal
        found.append(Result(one["id"], "incident", 0.0, 0.0, good, note))
    return found


def dead_options(start):
    """Return (options of a plan for one token, why not)."""
    more = start.more.get("dead", {})
    if more.get("left_out"):
        return None, more["left_out"]
    fraction = start.fraction or more.get("fraction")
    if start.row["outcome"] == "other" and not more:
        return None, "not known to be for want of memory"
    figures = _load_figures(start)
    if figures is None and "before_gib" not in more:
        return None, "no load figures printed"
    before = more.get("before_gib") or figures[0]
    weights = more["weights_gib"] if "weights_gib" in more else before - (more.get("after_gib") or figures[1])
    options = input_of(
        start,
        free_before_load_gib=before,
        weights_gib=weights,
        target_tokens=1,
        pool_policy="promise",
        mem_fraction_static=fraction or "auto",
    )
    if cell_of(start)[0] is None:
        options.pop("geometry", None)
        options["cell_bytes"] = more.get("cell_bytes", 1024)
    options["arguments"].pop("max-total-tokens", None)
    # As the engine started: a plan would move chunk and graphs before it refuses.
    row = tables.board_class(before * 1024, start.version)
    options["arguments"].setdefault("chunked-prefill-size", row.chunk_tokens)
    wide = (start.row["tp"] or 1) >= 4
    options["arguments"].setdefault("cuda-graph-max-bs", row.decode_batch_wide if wide else row.decode_batch)
    return options, ""


# ---------------------------------------------------------------------------
# (e) headroom
# ---------------------------------------------------------------------------


def headroom(all_starts, boards=None, checkpoints=None):
    """Return (results, left out): is the printed headroom inside the band?

    From printed load figures; with C(boards) from the board, and weights as in (c), where the board is known.
    """
    found, out = [], []
    for start in all_starts:
        printed = start.row["available_gpu_mem_gb"] or start.row["graph_end_avail_gb"]
        figures = _load_figures(start)
        if printed is None or figures is None or start.fraction is None or start.tokens is None:
            out.append((start.id, "no free memory at ready, no load figures or no fraction printed"))
            continue
        if start.more.get("headroom_left_out"):
            out.append((start.id, start.more["headroom_left_out"]))
            continue
        board = (boards or {}).get(start.more.get("board"))
        if boards and not board:
            continue
        options = input_of(start, free_before_load_gib=figures[0], free_after_load_gib=figures[1])
        if board:
            options = blind_options(start, board, checkpoints)[0]
        if start.row["context_len"]:
            options["context_tokens"] = start.row["context_len"]
        if start.more.get("unified"):
            options["gpus"] = [{"name": "unified", "unified_memory": True}] * (start.row["tp"] or 1)
        if cell_of(start)[0] is None:
            if start.kv_gib is None:
                out.append((start.id, "neither geometry nor bytes of the pool known"))
                continue
            options.pop("geometry", None)
            options["cell_bytes"] = start.kv_gib * GIB / start.tokens
        found.append(_headroom_result(start, plan(plan_input(options)), printed, "blind " if board else ""))
    return found, out


def _headroom_result(start, answer, printed, how):
    """Inside: up to the rounding of the printed figures, two of which the plan itself is made from."""
    low, high = answer.predicted_headroom_low_gib, answer.predicted_headroom_high_gib
    inside = low - 2 * PRINTED_GIB <= printed <= high + 2 * PRINTED_GIB
    family = how + ("unified" if start.more.get("unified") else "own memory")
    note = f"printed {printed:.2f}, band {low:.2f} to {high:.2f}"
    error = answer.predicted_headroom_gib - printed
    return Result(start.id, family, error, 0.0, inside, note, band_gib=(high - low) / 2)


def noise():
    """Return results for starts of one configuration: do they differ by no more than the noise of both allows?"""
    found = []
    for one in load("bench")["pairs"]:
        options = {"free_before_load_gib": one["before_gib"], "cell_bytes": 1, "engine_version": one.get("version")}
        options["measurements"] = [{"origin": "play", "weights_gib": one["weights_gib"]}]
        if one.get("unified"):
            options["gpus"] = [{"name": "unified", "unified_memory": True}]
        most = 2 * bases.base_of(plan_input(options)).noise.error_gib
        note = f"differ by {one['differ_gib']} GiB, the noise allows {most:.2f}"
        found.append(Result(one["id"], "pairs", one["differ_gib"], 0.0, one["differ_gib"] <= most + PRINTED_GIB, note))
    return found


def headroom_missed(found, blind_found, pairs):
    """Return the bounds of (e) that are missed, as sentences."""
    missed = []
    for name, results in (("(e)", found), ("(e) blind", blind_found)):
        inside = sum(one.good for one in results)
        if inside < HEADROOM_ROWS * len(results):
            missed.append(f"{name} printed headroom inside the band in {inside} of {len(results)} rows")
    band = statistics.median(one.band_gib for one in found if one.family == "own memory")
    if band > HEADROOM_HALF_BAND_GIB:
        missed.append(f"(e) median half band {band:.2f} GiB")
    apart = [one.id for one in pairs if not one.good]
    return missed + (["(e) starts differ by more than the noise: " + ", ".join(apart)] if apart else [])


# ---------------------------------------------------------------------------
# Report
# ---------------------------------------------------------------------------


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def table(results, rows=False):
    """Print figures by family: rows, median, 90th percentile and worst of the error, in GiB and in tokens."""
    families = sorted({one.family for one in results})
    print(f"  {'family':<24} {'rows':>4} {'good':>4}  {'median':>17} {'90%':>19} {'worst':>19}")
    for family in families + (["all"] if len(families) > 1 else []):
        ours = [one for one in results if family in (one.family, "all")]
        gib = [abs(one.error_gib) for one in ours]
        tokens = [abs(one.error_tokens) for one in ours]
        figures = "  ".join(f"{pick(gib):6.3f} GiB {pick(tokens):8,.0f}" for pick in (statistics.median, _ninety, max))
        print(f"  {family:<24} {len(ours):>4} {sum(one.good for one in ours):>4}  {figures}")
    for one in results:
        if rows or not one.good:
            mark = "     " if one.good else "MISS "
            figure = f"{one.error_gib:+8.3f} GiB {one.error_tokens:+12,.0f}"
            print(f"    {mark}{one.id:<38} {figure}  {one.note}")


def _ninety(values):
    return percentile(values, 0.9)


def left_out(out):
    if out:
        print(f"  left out: {len(out)}")
    for name, why in out:
        print(f"    {name:<38} {why}")


def report(rows=False):
    """Print all groups; return the bounds that are missed, as sentences."""
    all_starts, boards, checkpoints = starts()
    missed = []

    complete, near, out = measured(all_starts)
    print("(a) measured: budget from printed load figures against the printed pool, complete rows")
    table(complete, rows)
    print("    rows with one load figure by difference, or without a version")
    table(near, rows)
    left_out(out)
    share = sum(one.good for one in complete) / len(complete)
    if share < MEASURED_ROWS:
        missed.append(f"(a) {share:.0%} of the complete rows within {MEASURED_GIB} GiB or {MEASURED_SHARE:.1%}")

    found, out = cells(all_starts)
    print("(b) cell: bytes of a token against printed bytes / tokens; good: within print rounding")
    table(found, rows)
    left_out(out)
    if not all(one.good for one in found):
        missed.append("(b) " + ", ".join(one.id for one in found if not one.good))

    found, told, out = blind(all_starts, boards, checkpoints)
    print("(c) blind: from board, geometry, weights and arguments; good: the bad end of the band is kept")
    table(found, rows)
    print("    rows whose board is not known: free before load as printed")
    table(told, rows)
    for how, ours in by_weights(found):
        print(f"    {how}: {len(ours)} rows")
        table(ours)
    error = statistics.median(abs(one.error_gib) / one.board_gib for one in found)
    band = statistics.median(one.band_gib / one.board_gib for one in found)
    print(f"  median error {error:.2%} of the board, median half band {band:.2%} of the board")
    left_out(out)
    if error >= BLIND_MEDIAN_SHARE or band > BLIND_BAND_SHARE or not all(one.good for one in found):
        kept = sum(one.good for one in found)
        missed.append(f"(c) error {error:.2%}, half band {band:.2%}, kept {kept} of {len(found)}")
    if not all(one.good for one in told):
        missed.append("(c) " + ", ".join(one.id for one in told if not one.good) + " under the band")

    found, out = dead(all_starts)
    found += incidents()
    print("(d) dead: refused or dead starts; good: infeasible at that fraction, with the direction")
    for one in found:
        print(f"    {'     ' if one.good else 'MISS '}{one.id:<38} {one.family:<6} {one.note}")
    left_out(out)
    wrong = [one.id for one in found if not one.good and one.family in ("raise", "incident")]
    if wrong:
        missed.append("(d) " + ", ".join(wrong))

    found, out = headroom(all_starts)
    print("(e) headroom when ready, from printed load figures; good: the printed figure is inside the band")
    table(found, rows)
    print("    from the board and weights as in (c)")
    from_board = headroom(all_starts, boards, checkpoints)[0]
    table(from_board, rows)
    pairs = noise()
    print("    two starts of one configuration; good: they differ by no more than the noise of both")
    for one in pairs:
        print(f"    {'     ' if one.good else 'MISS '}{one.id:<38} {one.note}")
    left_out(out)
    return missed + headroom_missed(found, from_board, pairs)


def by_weights(found):
    """Return [(where the weights come from, the results of (c))]."""
    sources = sorted({one.note.split(",")[0] for one in found})
    return [(how, [one for one in found if one.note.split(",")[0] == how]) for how in sources]


BEGIN, END = "<!-- begin bench -->", "<!-- end bench -->"
DOCS = tree.ROOT / "docs" / "memory.md"


def docs_table():
    """Return the table of docs/memory.md: each group by family."""
    all_starts, boards, checkpoints = starts()
    found, told, dummy = blind(all_starts, boards, checkpoints)
    groups = (
        ("a measured", measured(all_starts)[0]),
        ("a, one load figure by difference", measured(all_starts)[1]),
        ("b cell", cells(all_starts)[0]),
        ("c blind", found),
        *((f"c, {how}", ours) for how, ours in by_weights(found)),
        ("c, free before load as printed", told),
        ("e headroom when ready", headroom(all_starts)[0]),
        ("e, from the board", headroom(all_starts, boards, checkpoints)[0]),
    )
    lines = ["| group | family | rows | good | median GiB (tokens) | 90% | worst |", "|---|---|---|---|---|---|---|"]
    for name, results in groups:
        families = sorted({one.family for one in results})
        for family in families + (["all"] if len(families) > 1 else []):
            ours = [one for one in results if family in (one.family, "all")]
            gib = [abs(one.error_gib) for one in ours]
            tokens = [abs(one.error_tokens) for one in ours]
            figures = [f"{pick(gib):.3f} ({pick(tokens):,.0f})" for pick in (statistics.median, _ninety, max)]
            cells_of = [name, family, str(len(ours)), str(sum(one.good for one in ours)), *figures]
            lines.append("| " + " | ".join(cells_of) + " |")
    died = dead(all_starts)[0] + incidents()
    for family in ("raise", "lower", "incident"):
        ours = [one for one in died if one.family == family]
        good = sum(one.good for one in ours)
        lines.append(f"| d dead, direction {family} | | {len(ours)} | {good} | | | |")
    error = statistics.median(abs(one.error_gib) / one.board_gib for one in found)
    band = statistics.median(one.band_gib / one.board_gib for one in found)
    last = f"Blind: median error {error:.2%} of the board, median half band {band:.2%} of the board."
    half = statistics.median(one.band_gib for one in headroom(all_starts)[0] if one.family == "own memory")
    last += f" Headroom: median half band {half:.2f} GiB on boards with memory of their own."
    return "\n".join([*lines, "", last])


def written(text):
    """Return the text of docs/memory.md with a fresh table."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{docs_table()}\n{END}{rest.split(END)[1]}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", action="store_true", help="each row with its error")
    parser.add_argument("--write", action="store_true", help="write the table of docs/memory.md")
    options = parser.parse_args(arguments)
    if options.write:
        DOCS.write_text(written(DOCS.read_text()))
    missed = report(options.rows)
    for one in missed:
        print("MISSED " + one)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
