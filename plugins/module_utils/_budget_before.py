# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, free before load: what the worst GPU has, what others hold, what the process takes first. Private.

SGLang multiplies its fraction with the memory that is free on the worst rank just before the weights are loaded. What
others hold, the CUDA context and the buffers of the collectives are gone by then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_boards as boards
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import (
    Figure,
    board_mib,
    is_unified,
    local_gpus,
    mib,
    model_ranks,
    newest,
    size,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_choice import balance_of

MIB_PER_GIB = tables.MIB_PER_GIB
WARNING = "warning"  # the name of rows that say something of the boards and hold no memory


@dataclass(frozen=True)
class Free:
    """What is free now on the worst GPU as if this instance did not run.

    C(others): processes that do not belong to this instance, as {pid, name, memory_mib}; C(reserved_gib): what neither
    is free nor belongs to a process (driver), None where that is not known; C(claims): (instance, GiB) of what other
    servers of this host will take and do not hold yet, which is off C(gib) already; C(own_mib): what this instance
    holds of each board; C(refusal), C(warnings): sentences about the boards.
    """

    gib: float
    board_gib: float | None = None
    others: tuple = ()
    reserved_gib: float | None = None
    claims: tuple = ()
    own_mib: tuple = ()
    refusal: str | None = None
    warnings: tuple = ()


def own_mib(inp, entry):
    """Return what the running server of this instance holds on a GPU, or None when that is not known."""
    held = mib(entry, "memory_own_mib")
    if held is not None or not inp.own_pids:
        return held
    pids = {str(pid) for pid in inp.own_pids}
    mine = [one for one in entry.get("processes") or () if str(one.get("pid")) in pids]
    return sum(mib(one, "memory_mib") or 0.0 for one in mine) if mine else None


def _others(inp, entry):
    pids = {str(pid) for pid in inp.own_pids}
    return tuple(one for one in entry.get("processes") or () if str(one.get("pid")) not in pids)


def free_now(inp):
    """Return the Free of the worst GPU, or None when it cannot be told.

    What the running server of this instance holds there is free after a stop: C(memory_own_mib) of an entry, or its
    processes among C(processes). On a CPU that is the RAM of its processes.
    """
    entries = local_gpus(inp)
    if inp.device == "cpu" and inp.running_gib:
        entries = [dict(entry, memory_own_mib=inp.running_gib * MIB_PER_GIB) for entry in entries]
    free = [mib(entry, "memory_free_mib") for entry in entries]
    own = [own_mib(inp, entry) for entry in entries]
    if not free or None in free or (inp.own_server_running and not any(own)):
        return None
    claimed = [boards.claims(inp, entry) for entry in entries]
    now = [there + (held or 0.0) for there, held in zip(free, own)]
    sums = [max(0.0, mib_now - sum(gib for _name, gib in more) * MIB_PER_GIB) for mib_now, more in zip(now, claimed)]
    worst = min(range(len(sums)), key=sums.__getitem__)
    known = not inp.own_server_running or all(own)
    refusal, warnings = _judged(inp, entries, sums) if known else (None, ())
    return replace(
        _free_of(inp, entries[worst], now[worst]),
        gib=sums[worst] / MIB_PER_GIB,
        claims=tuple(claimed[worst]),
        own_mib=tuple(own),
        refusal=refusal,
        warnings=warnings,
    )


def _judged(inp, entries, free_mib):
    """Return (sentence for which the engine would end the start, warnings) about the boards.

    The engine compares the ranks of one replica, only with tensor parallelism.
    """
    if inp.device == "cpu" or is_unified(inp):
        return None, ()
    refused, found = None, []
    ranks = max(1, model_ranks(inp) // size(inp, "nnodes"))
    taken_mib = sum(one.gib for one in shares(inp)) * MIB_PER_GIB
    for first in range(0, len(entries) if size(inp, "tp-size") > 1 else 0, ranks):
        group, free = entries[first : first + ranks], free_mib[first : first + ranks]
        refusal, warning = balance_of(group, free, taken_mib, inp.environment, inp.engine_version)
        if inp.allow_unproven_plan:
            found.append(refusal)
        else:
            refused = refused or refusal
        found.append(warning)
    return refused, tuple(one for one in found if one)


def _free_of(inp, entry, free_mib):
    total = mib(entry, "memory_total_mib")
    others = _others(inp, entry) if inp.device != "cpu" else ()
    reserved = None
    if total is not None and inp.device != "cpu":
        reserved = max(0.0, total - free_mib - sum(mib(one, "memory_mib") or 0.0 for one in others)) / MIB_PER_GIB
    return Free(free_mib / MIB_PER_GIB, None if total is None else total / MIB_PER_GIB, others, reserved)


# ---------------------------------------------------------------------------
# Free before load
# ---------------------------------------------------------------------------


def free_before_load(inp, free):
    """Return the Figure of free before load, or None. C(free): the Free of now, or None."""
    if inp.free_before_load_gib is not None:
        return Figure(inp.free_before_load_gib, 0.0, "given", "free_before_load_gib")
    if inp.free_after_load_gib is not None and inp.weights_gib is not None:
        return Figure(inp.free_after_load_gib + inp.weights_gib, 0.0, "given", "free_after_load_gib + weights_gib")
    measured = newest(
        inp.measurements,
        lambda one: one.get("origin", "host") == "host" and one.get("free_before_load_gib") is not None,
    )
    if measured is not None:
        figure = _from_measurement(inp, measured, free.gib if free else None)
        if figure is not None:
            return figure
    if free is not None:
        return _from_free(inp, free.gib)
    return _beside_own_server(inp) if inp.own_server_running and inp.gpus else None


def _beside_own_server(inp):
    """Nothing tells how much comes back when this instance stops: take the board, or what is free anyway."""
    if inp.device == "cpu" or is_unified(inp):
        free = free_now(replace(inp, own_server_running=False))
        if free is None:
            return None
        note = "the server of this instance is running: at least what is free beside it"
        return replace(_from_free(inp, free.gib), source="assumed", note=note)
    total = board_mib(inp)
    if total is None:
        return None
    idle = tables.IDLE_SHARE_OF_TOTAL
    figure = _from_free(inp, total / MIB_PER_GIB * idle.gib)
    return replace(figure, error_gib=figure.error_gib + idle.error_gib, source="assumed", note=idle.source)


def _from_measurement(inp, measured, free_gib):
    """Free before load of an earlier start-up of this host, moved by as much as the free memory moved since."""
    before = float(measured["free_before_load_gib"])
    planned_on = measured.get("plan_free_gib")
    moving = inp.device == "cpu" or is_unified(inp)
    if free_gib is None:
        return Figure(before, 0.1, "measured", "an earlier start-up of this host")
    if planned_on is not None:
        moved = free_gib - float(planned_on)
        if not moving and abs(moved) < 0.05:
            return Figure(before, 0.02, "measured", "an earlier start-up of this host, free memory unchanged")
        note = f"an earlier start-up of this host, moved by {moved:+.2f} GiB as the free memory since"
        return Figure(before + moved, 0.1, "measured", note)
    if not moving and free_gib < before:
        return None  # less is free now than the load began with: the host has changed, the blind way is better
    return Figure(before, 0.1, "measured", "an earlier start-up of this host")


def shares(inp):
    """Return what the process takes of the worst GPU before the weights are loaded, as Figures with names."""
    if inp.device == "cpu":
        row = tables.CPU_BEFORE_LOAD
        return (Figure(row.gib, row.error_gib, "table", row.source, "processes of the engine"),)
    if is_unified(inp):
        row = tables.UNIFIED_BEFORE_LOAD
        return (Figure(row.gib, row.error_gib, "table", row.source, "processes of the engine and context"),)
    context = [row for row in tables.GPU_CONTEXT if version_at_least(inp.engine_version, row.since)][-1]
    found = [Figure(context.gib, context.error_gib, "table", context.source, "context")]
    ranks = model_ranks(inp)
    rows = [row for row in tables.GPU_COLLECTIVES if ranks >= row.ranks]
    if rows:
        found.append(Figure(rows[-1].gib, rows[-1].error_gib, "table", rows[-1].source, "collectives"))
    return tuple(found)


def _from_free(inp, free_gib):
    taken = shares(inp)
    less = ", ".join(f"{one.gib:.2f} GiB {one.name}" for one in taken)
    note = "less {} ({})".format(less, "; ".join(f"{one.name}: {one.note}" for one in taken))
    source = "measured" if inp.device == "cpu" else "table"
    return Figure(max(free_gib - sum(one.gib for one in taken), 0.0), sum(one.error_gib for one in taken), source, note)


# ---------------------------------------------------------------------------
# Rows for people
# ---------------------------------------------------------------------------


def rows(inp, free, before):
    """Return how a board becomes free before load, as row dictionaries; empty where that is not known.

    Warnings about the boards come first, as rows of no size.
    """
    warnings = inp.board_warnings + (free.warnings if free else ())
    said = [_row(WARNING, 0.0, "table", one, "before") for one in warnings]
    return said + _board_rows(inp, free, before)


def _board_rows(inp, free, before):
    if free is None or before is None or before.source not in ("table", "measured"):
        return []
    if inp.device == "cpu":
        return _claim_rows(free)
    found = []
    if free.reserved_gib is not None and free.board_gib is not None:
        found.append(_row("board", free.board_gib, "measured", "memory of the worst GPU"))
        name = "other use of the machine" if is_unified(inp) else "driver"
        found.append(_row(name, -free.reserved_gib, "measured", "neither free nor in a process that is listed"))
    for one in free.others:
        held_gib = (mib(one, "memory_mib") or 0.0) / MIB_PER_GIB
        note = "process {}, not of this instance".format(one.get("pid", "?"))
        found.append(_row("other: {}".format(one.get("name") or "process"), -held_gib, "measured", note))
    found += _claim_rows(free)
    if before.source == "table":
        found += [_row(one.name, -one.gib, one.source, one.note) for one in shares(inp)]
    return found


def _claim_rows(free):
    note = "another server of this host that is planned: its part that it does not hold yet"
    return [_row(f"instance {instance}", -gib, "assumed", note) for instance, gib in free.claims]


def _row(name, gib, source, note, part="board"):
    return {"name": name, "gib": round(gib, 4), "source": source, "note": note, "part": part}
