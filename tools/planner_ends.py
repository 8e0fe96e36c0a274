# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner against the ends of real start-ups and what they leave free: (d) dead, (e) headroom.

What each group compares is told in bench_planner.py, which prints it.
"""

from __future__ import annotations

import statistics

from planner_groups import Result, blind_options, checkpoint_of
from planner_starts import GIB, PRINTED_GIB, cell_of, geometry_of, input_of, load, load_figures

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input  # isort: skip

# Printed headroom inside the band, and the most of its median half band on boards with memory of their own.
HEADROOM_ROWS, HEADROOM_HALF_BAND_GIB = 0.9, 1.0


# ---------------------------------------------------------------------------
# (d) dead
# ---------------------------------------------------------------------------

# What a report asks for, by how the start ended; C(dead.direction) of a row in bench.yaml comes first.
DIRECTIONS = {
    "not_enough_memory": "raise",  # a larger fraction
    "oom_at_load": "weights",  # no fraction: the weights do not fit
}
DIRECTION = "lower"  # all others: a smaller fraction


def dead(all_starts):
    """Return (results, left out). C(good): called infeasible at that fraction, in the direction of the report."""
    found, out = [], []
    for start in all_starts:
        outcome = start.row["outcome"]
        if outcome == "ready":
            continue
        options, why = dead_options(start)
        if why:
            out.append((start.id, f"{outcome}: {why}"))
            continue
        more = start.more.get("dead", {})
        direction = more.get("direction") or DIRECTIONS.get(outcome, DIRECTION)
        found.append(_dead_result(start.id, direction, options, more))
    return found, out


def _dead_result(name, direction, options, more):
    answer, fraction = plan(plan_input(options)), options["mem_fraction_static"]
    wrong = CHECKS[direction](answer, fraction)
    if not wrong and more.get("works"):
        wrong = _works_missed(options, more["works"])
    note = _ask(answer, fraction) + ". " + (answer.refusal or "Called infeasible; within the band it is not refused.")
    if wrong:
        note = f"{wrong}; {note}"
    return Result(name, direction, 0.0, 0.0, not wrong, note, explained=more.get("miss", ""))


def _ask(answer, fraction):
    low, high = answer.fraction_low, answer.fraction_high
    return f"at {fraction}: from {low or 'no fraction'} on it holds, up to {high or 'no fraction'} it is safe"


def _not_raised(answer, fraction):
    """Return what is wrong with the plan of a start that asked for more, "" for nothing."""
    if answer.feasible is not False:
        return "called feasible"
    low = answer.fraction_low
    return "" if low is None or low > fraction else f"infeasible for another reason: {low} would hold it"


def _not_lowered(answer, fraction):
    if answer.feasible is not False:
        return "called feasible"
    high = answer.fraction_high
    if high is not None and high >= fraction:
        return f"infeasible for another reason: {high} is called safe"
    return "" if answer.reserve_gib < answer.reserve_needed_gib else "infeasible, although the reserve is enough"


def _not_without(answer, fraction):
    """The weights alone leave too little: no fraction may be offered."""
    if answer.feasible is not False:
        return "called feasible"
    return "" if answer.fraction_low is None else f"a fraction is offered, {answer.fraction_low} instead of {fraction}"


CHECKS = {"raise": _not_raised, "lower": _not_lowered, "weights": _not_without}


def _works_missed(options, works):
    """Return what is wrong with the plan where C(works) is reported to work: it must name one, and not refuse that."""
    if plan(plan_input(dict(options, mem_fraction_static="auto"))).feasible is not True:
        return f"no fraction is named, {works} is reported to work"
    refusal = plan(plan_input(dict(options, mem_fraction_static=works))).refusal
    return f"{works} is reported to work and refused" if refusal else ""


def alive(all_starts):
    """Return results of the starts that lived: a plan that refuses those too would foretell nothing.

    Good: not refused at its fraction, for one token and the arguments that are known.
    """
    found = []
    for start in all_starts:
        if start.row["outcome"] != "ready" or start.fraction is None or load_figures(start) is None:
            continue
        answer = plan(plan_input(dead_options(start)[0]))
        note = _ask(answer, start.fraction) + ". " + (answer.refusal or "Not refused.")
        good = answer.refusal is None
        explained = start.more.get("alive_miss", "")
        found.append(Result(start.id, "alive", 0.0, 0.0, good, note, explained=explained))
    return found


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
    figures = load_figures(start)
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
        figures = load_figures(start)
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
            options = blind_options(start, board, checkpoint_of(start, checkpoints))[0]
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
