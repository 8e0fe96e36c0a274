# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what is gone when the pool is sized: weights, draft weights, multimodal reservation. Private.

The engine prints free memory at the end of the load. What is free when it sizes the pool is a little less before
0.5.20; a pool below its cap tells it exactly: free after load = pool bytes + free before load x (1 - fraction).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_split as split
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import (
    GIB,
    BadInput,
    Figure,
    compute_capability,
    draft_by_path,
    is_multimodal,
    is_newer,
    is_unified,
    model_ranks,
    page_tokens,
    teaches,
    whole_pages,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_notes import is_gguf, lora_row
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import argument_number
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_draft import algorithm_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import MODEL_DTYPES

FROM_POOL = "from the pool of an earlier start-up"
DRAFT_BY_BYTES = "checkpoint bytes of the draft model"
PRINTED_ERROR_GIB = 0.02  # figures of the log have two decimals, and a rank more or less
# A start-up without keys is of this configuration while its figures are like those of now: weights that are not below
# by this factor (packing moves them by less, other ranks by 2), bytes of the pool within this share and print rounding.
LIKE_WEIGHTS, LIKE_POOL = 1.5, 0.01


@dataclass(frozen=True)
class Used:
    """What is gone when the pool is sized. C(total) is the sum of C(rows); C(draft_gib): draft weights that lie outside
    the fraction (before 0.5.14); C(peak_gib): the most during the load, None when it is not known; C(notes): what the
    reader has to know of the weights."""

    total: Figure
    rows: tuple
    draft_gib: float = 0.0
    peak_gib: float | None = None
    notes: tuple = ()


def _sum(rows, **more):
    gib, error = sum(row.gib for row in rows), sum(row.error_gib for row in rows)
    first = rows[0]
    return Used(Figure(gib, error, first.source, first.note, first.name), tuple(rows), **more)


# ---------------------------------------------------------------------------
# Taken between the end of the load and the sizing of the pool
# ---------------------------------------------------------------------------


def excess_row(inp, engine_version):
    """Return what is taken between the load-end line and the sizing of the pool, for one version of the engine."""
    if inp.device == "cpu":
        return tables.CPU_AFTER_LOAD_EXCESS
    if engine_version is None or is_newer(engine_version):
        return tables.GPU_AFTER_LOAD_EXCESS_UNKNOWN
    return [row for row in tables.GPU_AFTER_LOAD_EXCESS if version_at_least(engine_version, row.since)][-1]


def load_extra(inp):
    """Return what the load takes beyond the bytes of the files."""
    if inp.device == "cpu":
        return tables.Amount(0.0, 0.0, "in the row after the load")
    return tables.UNIFIED_LOAD_EXTRA if is_unified(inp) else tables.GPU_LOAD_EXTRA


def multimodal_row(inp):
    """Return the Figure of what 0.5.18 and later take off for images and sound before the pool is sized, or None."""
    if inp.device == "cpu" or not is_multimodal(inp):
        return None
    if not version_at_least(inp.engine_version, tables.MULTIMODAL_SINCE):
        return None
    named = inp.environment.get(tables.MULTIMODAL_CACHE_NAME)
    gib = _env_mib(tables.MULTIMODAL_CACHE_NAME, named, tables.MULTIMODAL_CACHE_MIB) / tables.MIB_PER_GIB
    if str(inp.arguments.get("mm-feature-transport")) in tables.MULTIMODAL_GPU_TRANSPORTS:
        named = inp.environment.get(tables.MULTIMODAL_FEATURE_NAME)
        gib += _env_mib(tables.MULTIMODAL_FEATURE_NAME, named, tables.MULTIMODAL_FEATURE_MIB) / tables.MIB_PER_GIB
    return Figure(gib, 0.0, "table", tables.MULTIMODAL_SOURCE, "multimodal reservation")


def _env_mib(name, value, default):
    return float(default) if value in (None, "") else float(_kv.whole_number(value, "the variable " + name, minimum=0))


# ---------------------------------------------------------------------------
# The figure
# ---------------------------------------------------------------------------


def used_after_load(inp, before, cell, keys):
    """Return the Used of this configuration, or None when nothing tells it. C(cell): the Cell, or None."""
    given = _given(inp, before)
    if given is not None:
        return _with_taken(inp, _sum((given,), draft_gib=_draft_outside_gib(inp, None)))
    computed = _computed(inp)
    told, notes = [], []
    for one in inp.measurements:
        if teaches(one, "weights", keys) and not _draft_was_elsewhere(inp, one):
            figure = _measured(inp, one, cell, keys)
            other = None if figure is None else _of_other_ranks(one, figure, computed)
            notes += [other] if other else []
            told += [(one, figure)] if figure is not None and not other else []
    if not told:
        return computed and replace(computed, notes=computed.notes + tuple(notes))
    measured, figure = told[-1]
    notes += [_other_pool(measured, cell)] if figure.note == FROM_POOL and teaches(measured, "cell", keys) else []
    peak = computed.peak_gib if computed else None
    used = _sum(
        (figure,),
        draft_gib=_draft_outside_gib(inp, computed),
        peak_gib=peak,
        notes=tuple(dict.fromkeys(one for one in notes if one)),
    )
    # What the pool left over has the reservation and the buffers in it already.
    return used if figure.note == FROM_POOL else _with_taken(inp, used)


def _has_key(measured, quantity):
    return (measured.get("keys") or {}).get(quantity) is not None


def _of_other_ranks(measured, figure, computed):
    """Return the sentence for a start-up without keys whose weights cannot be those of these files and ranks, or None.

    A start-up with keys was of the same files and the same ranks. One that took more counts: buffers that no rule here
    knows are in it.
    """
    if _has_key(measured, "weights") or computed is None or computed.total.gib < figure.gib * LIKE_WEIGHTS:
        return None
    here = computed.total.gib
    return (
        f"an earlier start-up without keys took {figure.gib:.2f} GiB for its weights, where the files make {here:.2f}"
        " GiB a rank: it was of another configuration and does not count"
    )


def _other_pool(measured, cell):
    """Return the sentence for a start-up without keys whose pool is not what the layout of now makes of it, or None."""
    own = _own_pool_gib(measured)
    if cell is None or own is None or _has_key(measured, "cell") or _like_pool(measured, cell, own):
        return None
    here = _kv.rest_for(cell, int(measured["pool_tokens"])) / GIB
    return (
        f"an earlier start-up without keys held {int(measured['pool_tokens']):,} tokens in {own:.2f} GiB, where this"
        f" configuration takes {here:.2f}: its own bytes count"
    )


def _draft_was_elsewhere(inp, measured):
    """Return whether a start-up had its draft weights on the other side of the fraction: 0.5.14 moved them inside.

    The keys tell it by the version in them; an older record without keys tells it by its own version.
    """
    version = measured.get("engine_version")
    if version is None or algorithm_of(inp.arguments) in (None, "NGRAM"):
        return False
    return version_at_least(version, tables.DRAFT_INSIDE_SINCE) != version_at_least(
        inp.engine_version, tables.DRAFT_INSIDE_SINCE
    )


def _given(inp, before):
    if inp.free_after_load_gib is not None and before is not None:
        if inp.free_after_load_gib >= before.gib:
            raise BadInput(
                f"Expected free_after_load_gib below the {before.gib:.2f} GiB that are free before the load, found"
                f" {inp.free_after_load_gib:g}: state what the line Load weight end prints, or leave the option out."
            )
        note = "free before load less free_after_load_gib"
        return Figure(before.gib - inp.free_after_load_gib, 0.0, "given", note, "weights")
    if inp.weights_gib is not None:
        return Figure(inp.weights_gib, 0.0, "given", "weights_gib", "weights")
    return None


def _draft_outside_gib(inp, computed):
    """Draft weights that lie outside the fraction: known from a table, else the checkpoint's share of a rank."""
    if computed is not None:
        return computed.draft_gib
    if version_at_least(inp.engine_version, tables.DRAFT_INSIDE_SINCE) or inp.draft_weight_bytes is None:
        return 0.0
    return _draft_by_bytes_gib(inp)


def _draft_by_bytes_gib(inp):
    """The checkpoint of the draft model, split over the ranks."""
    return (inp.draft_weight_bytes or 0) / model_ranks(inp) / GIB


def _measured(inp, measured, cell, keys):
    """What one start-up says about it. A pool below its cap tells it exactly, one at its cap only an upper bound."""
    names = ("free_before_load_gib", "fraction", "pool_tokens")
    before, fraction, tokens = (measured.get(name) for name in names)
    static = _pool_gib(measured, cell, keys) if tokens else None
    bound = None
    if None not in (before, fraction, static):
        bound = before * fraction - static[0]
        if bound <= 0:
            return None  # the pool would not have fitted: its figures are not of one start-up
        if not _at_cap(inp, measured, cell):
            error = PRINTED_ERROR_GIB + static[1]
            return Figure(bound, error, "measured", FROM_POOL, "weights")
    row = excess_row(inp, measured.get("engine_version") or inp.engine_version)
    after, weights = measured.get("free_after_load_gib"), measured.get("weights_gib")
    if before is not None and after is not None:
        printed = before - after + row.gib
    elif weights is not None:
        printed = weights + row.gib
    else:
        return None
    if bound is not None:
        printed = min(printed, bound)
    note = f"from the load lines of an earlier start-up, and {row.gib:.2f} GiB that follow them"
    return Figure(printed, row.error_gib + PRINTED_ERROR_GIB, "measured", note, "weights")


def _at_cap(inp, measured, cell):
    cap = measured.get("cap_tokens")
    page = page_tokens(inp) if cell is None else cell.page_tokens
    return bool(cap) and measured["pool_tokens"] >= whole_pages(int(cap), page)


def _pool_gib(measured, cell, keys):
    """Return (GiB that the pool of a start-up took of the static part, half band), or None.

    With the present layout that is what the layout says for so many tokens; otherwise the bytes that the start-up
    itself had. One without keys had the present layout when its bytes are the same.
    """
    tokens, own = int(measured["pool_tokens"]), _own_pool_gib(measured)
    if cell is None or not teaches(measured, "cell", keys):
        return None if own is None else (own, 0.0)
    if own is None or _has_key(measured, "cell") or _like_pool(measured, cell, own):
        slot = cell.state.slot_bytes / GIB if cell.state else 0.0
        return _kv.rest_for(cell, tokens) / GIB, slot
    return own, 0.0


def _own_pool_gib(measured):
    """Return the GiB of the pool by the figures of the start-up alone: its cell, else the printed bytes; or None."""
    if measured.get("cell_bytes"):
        return int(measured["pool_tokens"]) * measured["cell_bytes"] / GIB
    return measured.get("kv_gib") or None


def _like_pool(measured, cell, own_gib):
    """Return whether C(own_gib) can be the pool of this layout: as it is charged, or as the engine prints it.

    The engine prints what the rows take, the pool of a draft apart, and states of requests apart.
    """
    tokens = int(measured["pool_tokens"])
    drafts = sum(part["bytes"] for part in cell.parts if part["name"] == "draft")
    sizes = (cell.bytes, cell.stored_bytes, cell.bytes - drafts, cell.stored_bytes - drafts, cell.full_bytes)
    found = [size * tokens + extra for size in sizes for extra in (0, _kv.fixed_bytes(cell))]
    return any(abs(own_gib - one / GIB) <= PRINTED_ERROR_GIB + LIKE_POOL * own_gib for one in found)


# ---------------------------------------------------------------------------
# Before the first start
# ---------------------------------------------------------------------------


def _computed(inp):
    """The Used from the files of the model: by the table of its tensors, else from its bytes alone; None without."""
    if inp.weight_table:
        return None if is_gguf(inp.arguments) else _by_table(inp)
    if inp.weight_bytes is None or (draft_by_path(inp) and inp.draft_weight_bytes is None):
        return None
    return _by_bytes(inp)


def _by_table(inp):
    found = split.weights_of(
        list(inp.weight_table),
        inp.geometry,
        inp.arguments,
        environment=inp.environment,
        engine_version=inp.engine_version,
        created=list(inp.weights_created),
        draft_table=list(inp.draft_weight_table) or None,
        draft_geometry=inp.draft_geometry,
        draft_created=list(inp.draft_weights_created),
        gpu_capability=compute_capability(inp),
        device=inp.device,
    )
    draft, how = found["draft_gib"], "draft model by the table of its tensors"
    if draft is None:
        if draft_by_path(inp) and inp.draft_weight_bytes is None:
            return None
        draft, how = (_draft_by_bytes_gib(inp) if draft_by_path(inp) else 0.0), DRAFT_BY_BYTES
    row = excess_row(inp, inp.engine_version)
    note = f"{found['note']}, and {row.gib:.2f} GiB after the load"
    weights = Figure(
        found["weights_gib"] + row.gib, found["error_gib"] + row.error_gib, found["source"], note, "weights"
    )
    return _with_draft(inp, [weights], draft, how, found["peak_gib"], tuple(found["notes"]))


def _with_draft(inp, rows, draft_gib, note, peak_gib=None, notes=()):
    """Draft weights count inside the fraction from 0.5.14 on, and are taken from the headroom before."""
    outside = draft_gib
    if draft_gib and version_at_least(inp.engine_version, tables.DRAFT_INSIDE_SINCE):
        error = draft_gib * tables.WEIGHTS_ERROR_SHARE
        rows = rows + [Figure(draft_gib, error, "table", note, "draft weights")]
        outside = 0.0
    return _with_taken(inp, _sum(rows, draft_gib=outside, peak_gib=peak_gib, notes=notes))


def _with_taken(inp, used):
    """Add what is taken after the load and before the pool is sized."""
    rows = tuple(row for row in (lora_row(inp), multimodal_row(inp)) if row is not None)
    return replace(used, total=_sum(used.rows + rows).total, rows=used.rows + rows)


def _cast_factor(inp):
    """Return the bytes in memory of one byte of the checkpoint: weights that are not quantised are cast to --dtype."""
    geometry = inp.geometry or {}
    stored = MODEL_DTYPES.get(str(geometry.get("dtype") or "").lower())
    if stored is None or geometry.get("quantized") is not False:
        return 1.0
    return _kv.model_dtype(geometry, inp.arguments)[1] / stored[1]


def _by_bytes(inp):
    """Weights from the bytes of the checkpoint, split over the ranks, as if nothing were replicated."""
    ranks = model_ranks(inp)
    weights = inp.weight_bytes * _cast_factor(inp) / ranks / GIB
    # srt/utils/offloader.py: so much of every rank's parameters stays in host memory.
    moved = min(weights, argument_number(inp.arguments, "cpu-offload-gb", 0, minimum=0))
    weights -= moved
    row = excess_row(inp, inp.engine_version)
    extra = load_extra(inp)
    error = max(weights * tables.WEIGHTS_ERROR_SHARE, tables.WEIGHTS_ERROR_LEAST_GIB) + row.error_gib + extra.error_gib
    share = "checkpoint bytes" if ranks == 1 else f"checkpoint bytes / {ranks} ranks, replicated layers not counted"
    share += f", less {moved:.2f} GiB by cpu-offload-gb" if moved else ""
    note = f"{share}, and {extra.gib + row.gib:.2f} GiB with and after the load"
    figure = Figure(weights + extra.gib + row.gib, error, "assumed", note, "weights")
    draft = _draft_by_bytes_gib(inp) if draft_by_path(inp) else 0.0
    return _with_draft(inp, [figure], draft, DRAFT_BY_BYTES)


# ---------------------------------------------------------------------------
# Noise
# ---------------------------------------------------------------------------


def noise_row(inp, used):
    """Return the start-to-start noise of this version, as an Amount.

    What differs between two starts are temporaries of the loader: they grow with the weights of a rank, up to a most.
    """
    if inp.device == "cpu":
        gib = tables.NOISE_CPU_GIB
        return tables.Amount(gib, gib, "three starts of sglang 0.5.23 on a CPU")
    if is_unified(inp):
        return tables.NOISE_UNIFIED
    row = tables.NOISE_VERSION_UNKNOWN
    if inp.engine_version is not None and not is_newer(inp.engine_version):
        row = [one for one in tables.NOISE if version_at_least(inp.engine_version, one.since)][-1]
    if used is None or used.total.source == "given":
        return row  # a figure that somebody states says nothing about how it was loaded
    least = min(row.error_gib, tables.NOISE_LEAST_GIB + tables.NOISE_SHARE * used.total.gib)
    return replace(row, gib=least, error_gib=least)
