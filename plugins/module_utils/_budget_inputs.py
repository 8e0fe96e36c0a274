# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what is known before a start: free before load, what is gone after it, the cell. Private."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import keys as keys_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import MODEL_DTYPES

GIB = 2**30


class BadInput(ValueError):
    """An input that cannot be right. The text is one sentence that names the option and the way out."""


@dataclass(frozen=True)
class PlanInput:
    """What a plan is made from. C(arguments) are canonical; None means "not known" or, for what is decided, "auto".

    Sizes in GiB (2^30 bytes) of one rank; C(target_tokens) per data-parallel rank.
    """

    arguments: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    gpus: tuple = ()
    geometry: dict | None = None
    weight_bytes: int | None = None
    draft_weight_bytes: int | None = None
    engine_version: str | None = None
    target_tokens: int | None = None
    measurements: tuple = ()
    deaths: tuple = ()
    free_before_load_gib: float | None = None
    free_after_load_gib: float | None = None
    weights_gib: float | None = None
    cell_bytes: float | None = None
    context_tokens: int | None = None
    max_context_tokens: int | None = None
    pool_policy: str = "promise"
    fraction: float | None = None
    chunk_tokens: int | None = None
    allocator_conf: str | None = None
    min_headroom_gib: float | None = None
    min_least_free_gib: float | None = None
    max_running_requests: int | None = None
    allow_unproven_plan: bool = False
    device: str = "cuda"
    keys: dict | None = None
    own_server_running: bool = False
    running_gib: float = 0.0


@dataclass(frozen=True)
class Figure:
    """A quantity in GiB with its half band and where it comes from: given, measured, table or assumed."""

    gib: float
    error_gib: float
    source: str
    note: str


@dataclass(frozen=True)
class Base:
    """What the solver stands on. Any of the figures may be None; C(missing) then names the input that would give it."""

    before: Figure | None
    used: Figure | None
    cell: float | None
    cell_source: str
    cell_note: str
    noise: tables.Amount
    board_mib: float | None
    plan_free_gib: float | None
    missing: tuple

    @property
    def complete(self):
        return self.before is not None and self.used is not None and self.cell is not None


def whole_pages(tokens, page_size, up=False):
    """Return C(tokens) rounded to whole pages, down as the engine does, or up for a promise."""
    pages = -(-tokens // page_size) if up else tokens // page_size
    return int(pages * page_size)


def page_size_of(arguments):
    """Return --page-size; 1 when it is not given (some attention backends force a larger one, not known here)."""
    value = arguments.get("page-size")
    return 1 if value is None else _kv.whole_number(value, "the server argument page-size")


# ---------------------------------------------------------------------------
# What is known before a start
# ---------------------------------------------------------------------------


def model_ranks(inp):
    """Return the ranks among which the weights of one replica are split: TP x PP."""
    return size(inp, "tp-size") * size(inp, "pp-size")


def size(inp, name):
    value = inp.arguments.get(name)
    return 1 if value is None else _kv.whole_number(value, "the server argument " + name)


def local_gpus(inp):
    """Return the entries of C(gpus) that the server uses on this host, all of them when that cannot be told.

    Raises BadInput when the host has fewer GPUs than the arguments need.
    """
    if inp.device == "cpu" or not inp.gpus:
        return list(inp.gpus)
    replicas = 1
    if not (_kv.is_on(inp.arguments.get("enable-dp-attention", False)) or inp.arguments.get("attn-dp-size")):
        replicas = size(inp, "dp-size")
    wanted = max(1, model_ranks(inp) * replicas // size(inp, "nnodes"))
    first = _kv.whole_number(inp.arguments.get("base-gpu-id") or 0, "the server argument base-gpu-id", minimum=0)
    step = size(inp, "gpu-id-step")
    last = first + (wanted - 1) * step
    if last >= len(inp.gpus):
        raise BadInput(
            f"Expected at least {last + 1} GPUs for tp-size x pp-size x dp-size = {model_ranks(inp) * replicas} in the"
            f" server arguments, found {len(inp.gpus)} in gpus:"
            " lower tp-size, or give the entries of all GPUs."
        )
    return [inp.gpus[index] for index in range(first, last + 1, step)]


def _mib(entry, name):
    value = entry.get(name)
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise BadInput(
            f"Expected {name} of a GPU as MiB of at least 0, found {value!r}: give gpus as gpu_info returns it."
        )
    return number


def free_now_gib(inp):
    """Return the free memory of the worst GPU as if this instance did not run, or None when it cannot be told.

    C(memory_own_mib) of an entry is what the running server of this instance holds there; it is free after a stop. On a
    CPU that is the RAM of its processes.
    """
    entries = local_gpus(inp)
    if inp.device == "cpu" and inp.running_gib:
        entries = [dict(entry, memory_own_mib=inp.running_gib * tables.MIB_PER_GIB) for entry in entries]
    free = [_mib(entry, "memory_free_mib") for entry in entries]
    own = [_mib(entry, "memory_own_mib") for entry in entries]
    if not free or None in free or (inp.own_server_running and not any(own)):
        return None
    return min(there + (held or 0.0) for there, held in zip(free, own)) / tables.MIB_PER_GIB


def board_mib(inp):
    """Return the size of the smallest board in MiB, or None."""
    totals = [_mib(entry, "memory_total_mib") for entry in local_gpus(inp)]
    if not totals or None in totals:
        given = inp.free_before_load_gib
        return None if given is None or inp.device == "cpu" else given * tables.MIB_PER_GIB
    return min(totals)


def teaches(record, quantity, keys):
    """Return whether a measurement or death speaks about C(quantity) of the current keys. No keys: it always does."""
    theirs = (record.get("keys") or {}).get(quantity)
    ours = (keys or {}).get(quantity)
    return theirs is None or ours is None or theirs == ours


def _newest(measurements, wanted):
    """Return the newest measurement (the last of the list) for which C(wanted) holds."""
    return next((one for one in reversed(measurements) if wanted(one)), None)


def free_before_load(inp, free_gib):
    """Return the Figure of free before load, or None."""
    if inp.free_before_load_gib is not None:
        return Figure(inp.free_before_load_gib, 0.0, "given", "free_before_load_gib")
    if inp.free_after_load_gib is not None and inp.weights_gib is not None:
        return Figure(inp.free_after_load_gib + inp.weights_gib, 0.0, "given", "free_after_load_gib + weights_gib")
    measured = _newest(
        inp.measurements,
        lambda one: one.get("origin", "host") == "host" and one.get("free_before_load_gib") is not None,
    )
    if measured is not None:
        figure = _before_from_measurement(inp, measured, free_gib)
        if figure is not None:
            return figure
    if free_gib is not None:
        return _before_from_free(inp, free_gib)
    return _before_beside_own_server(inp) if inp.own_server_running and inp.gpus else None


def _before_beside_own_server(inp):
    """Nothing tells how much comes back when this instance stops: take the board, or what is free anyway."""
    if inp.device == "cpu":
        figure = _before_from_free(inp, free_now_gib(replace(inp, own_server_running=False)))
        return replace(
            figure, source="assumed", note="the server of this instance is running: at least what is free beside it"
        )
    total = board_mib(inp)
    if total is None:
        return None
    idle = tables.IDLE_SHARE_OF_TOTAL
    figure = _before_from_free(inp, total / tables.MIB_PER_GIB * idle.gib)
    return replace(figure, error_gib=figure.error_gib + idle.error_gib, source="assumed", note=idle.source)


def _before_from_measurement(inp, measured, free_gib):
    """Free before load of an earlier start-up of this host, moved by as much as the free memory moved since."""
    before = float(measured["free_before_load_gib"])
    planned_on = measured.get("plan_free_gib")
    if free_gib is None:
        return Figure(before, 0.1, "measured", "an earlier start-up of this host")
    if planned_on is not None:
        moved = free_gib - float(planned_on)
        if inp.device != "cpu" and abs(moved) < 0.05:
            return Figure(before, 0.02, "measured", "an earlier start-up of this host, free memory unchanged")
        note = f"an earlier start-up of this host, moved by {moved:+.2f} GiB as the free memory since"
        return Figure(before + moved, 0.1, "measured", note)
    if inp.device != "cpu" and free_gib < before:
        return None  # less is free now than the load began with: the host has changed, the blind way is better
    return Figure(before, 0.1, "measured", "an earlier start-up of this host")


def _before_from_free(inp, free_gib):
    if inp.device == "cpu":
        row = tables.CPU_BEFORE_LOAD
        return Figure(free_gib - row.gib, row.error_gib, "measured", row.source)
    ranks = model_ranks(inp)
    row = [one for one in tables.GPU_BEFORE_LOAD if ranks >= one.ranks][-1]
    return Figure(free_gib - row.gib, row.error_gib, "table", row.source)


def excess_row(inp):
    """Return what is taken between the load-end line and the sizing of the pool."""
    return tables.CPU_AFTER_LOAD_EXCESS if inp.device == "cpu" else tables.GPU_AFTER_LOAD_EXCESS


def used_after_load(inp, before, cell, keys):
    """Return the Figure of what is gone when the pool is sized: free before load less effective free after load."""
    if inp.free_after_load_gib is not None and before is not None:
        return Figure(before.gib - inp.free_after_load_gib, 0.0, "given", "free before load less free_after_load_gib")
    if inp.weights_gib is not None:
        return Figure(inp.weights_gib, 0.0, "given", "weights_gib")
    measured = _newest(
        inp.measurements, lambda one: teaches(one, "weights", keys) and _used_by(inp, one, cell, keys) is not None
    )
    if measured is not None:
        return _used_by(inp, measured, cell, keys)
    if inp.weight_bytes is None or (_draft_by_path(inp) and inp.draft_weight_bytes is None):
        return None
    return _used_by_checkpoint(inp)


def _used_by(inp, measured, cell, keys):
    """What one start-up says about it. A pool below its cap tells it exactly, one at its cap only an upper bound."""
    before, fraction, tokens = (measured.get(name) for name in ("free_before_load_gib", "fraction", "pool_tokens"))
    cell = measured.get("cell_bytes") or (cell if teaches(measured, "cell", keys) else None)
    bound = None
    if None not in (before, fraction, tokens, cell):
        bound = before - (tokens * cell / GIB + before * (1 - fraction))
        if not measured.get("cap_tokens") or tokens < whole_pages(
            int(measured["cap_tokens"]), page_size_of(inp.arguments)
        ):
            return Figure(bound, 0.02, "measured", "from the pool of an earlier start-up")
    excess = excess_row(inp)
    after, weights = measured.get("free_after_load_gib"), measured.get("weights_gib")
    if before is not None and after is not None:
        printed = before - after + excess.gib
    elif weights is not None:
        printed = weights + excess.gib
    else:
        return None
    if bound is not None:
        printed = min(printed, bound)
    note = f"from the load lines of an earlier start-up, and {excess.gib:.2f} GiB that follow them"
    return Figure(printed, excess.error_gib + 0.02, "measured", note)


def _draft_by_path(inp):
    return bool(inp.arguments.get("speculative-draft-model-path"))


def _cast_factor(inp):
    """Return the bytes in memory of one byte of the checkpoint: weights that are not quantised are cast to --dtype."""
    geometry = inp.geometry or {}
    stored = MODEL_DTYPES.get(str(geometry.get("dtype") or "").lower())
    if stored is None or geometry.get("quantized") is not False:
        return 1.0
    return _kv.model_dtype(geometry, inp.arguments)[1] / stored[1]


def _used_by_checkpoint(inp):
    """Weights from the bytes of the checkpoint, split over the ranks, as if nothing were replicated."""
    ranks = model_ranks(inp)
    weights = inp.weight_bytes * _cast_factor(inp) / ranks / GIB
    if _draft_by_path(inp) and version_at_least(inp.engine_version, "0.5.14"):
        weights += inp.draft_weight_bytes / ranks / GIB
    excess = excess_row(inp)
    error = max(weights * tables.WEIGHTS_ERROR_SHARE, tables.WEIGHTS_ERROR_LEAST_GIB) + excess.error_gib
    share = "checkpoint bytes" if ranks == 1 else f"checkpoint bytes / {ranks} ranks, replicated layers not counted"
    return Figure(weights + excess.gib, error, "assumed", f"{share}, and {excess.gib:.2f} GiB after the load")


def cell_of(inp, keys):
    """Return (cell or None, source, note)."""
    if inp.cell_bytes is not None:
        return inp.cell_bytes, "given", "cell_bytes"
    note = "geometry is not given"
    if inp.geometry:
        try:
            cell = _kv.cell_bytes(inp.geometry, inp.arguments, inp.engine_version)
            return cell.bytes, "table", "; ".join(part["source"] for part in cell.parts)
        except _kv.UnknownLayout as error:
            note = str(error)
    measured = _newest(inp.measurements, lambda one: one.get("cell_bytes") and teaches(one, "cell", keys))
    if measured is not None:
        return measured["cell_bytes"], "measured", "from the pool of an earlier start-up"
    return None, "", note


def _check_division(inp):
    """Raise what _kv raises when tensor parallelism does not divide the heads, also where the cell itself is given."""
    shared = _kv.ranks(inp.arguments, inp.engine_version)
    heads = (inp.geometry or {}).get("attention_heads")
    if heads is not None and _kv.whole_number(heads, "attention_heads of the geometry") % shared.attention_tp:
        raise BadInput(
            f"Expected the {heads} attention heads to be a multiple of the attention ranks, found"
            f" {shared.attention_tp} ranks: change tp-size in the server arguments."
        )
    return shared


def noise_row(inp):
    """Return the start-to-start noise of this version."""
    if inp.device == "cpu":
        gib = tables.NOISE_CPU_GIB
        return tables.Amount(gib, gib, "three starts of sglang 0.5.23 on a CPU")
    if inp.engine_version is None:
        return tables.NOISE_VERSION_UNKNOWN
    return [row for row in tables.NOISE if version_at_least(inp.engine_version, row.since)][-1]


def base_of(inp):
    """Gather what the solver needs, and name what is missing."""
    _check_division(inp)
    keys = inp.keys or keys_for(inp, inp.arguments, inp.environment)
    free_gib = free_now_gib(inp)
    before = free_before_load(inp, free_gib)
    cell, cell_source, cell_note = cell_of(inp, keys)
    used = used_after_load(inp, before, cell, keys)
    missing = []
    if before is None:
        missing.append("gpus" if not inp.gpus else "free_before_load_gib")
    if used is None:
        draft = inp.weight_bytes is not None and _draft_by_path(inp)
        missing.append("draft_weight_bytes" if draft else "weight_bytes")
    if cell is None:
        missing.append("cell_bytes" if inp.geometry else "geometry")
    if inp.target_tokens is None and inp.pool_policy == "promise":
        missing.append("target_tokens")
    return Base(before, used, cell, cell_source, cell_note, noise_row(inp), board_mib(inp), free_gib, tuple(missing))


def keys_for(inp, arguments, environment):
    return keys_of(arguments, environment, inp.geometry, inp.weight_bytes, inp.engine_version)
