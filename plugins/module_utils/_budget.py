# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget. How memory is divided: fraction and cap, prediction with a band, what it needs and what to do. Private.

Everything here is pure: data in, data out, the same answer for the same input.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_allocator as allocator
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_before as before_load
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_boards as boards
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_conflicts as clashes
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_default as engine_default
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_explain as explain
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_levers as levers
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_notes as notes
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_reserve as reserve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_solve as solve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_table as lines
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_upgrade as upgrade
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import BadInput, PlanInput
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_solve import GIB, STEPS
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv import LayoutError
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_split import SplitError

__all__ = ["BadInput", "Plan", "PlanInput", "plan"]

# Of the room between what the pool needs and what the reserve allows, an offer gives the pool one of so many parts.
OFFER_PARTS = 4


@dataclass(frozen=True)
class Plan:
    """The answer. C(feasible) None: not enough is known, see C(missing). C(is_open): a start has to tell.

    C(works): variables of the role that would work in place of a declared fraction that does not, else None.
    """

    feasible: bool | None = None
    is_open: bool = False
    fraction: float | None = None
    fraction_low: float | None = None
    fraction_high: float | None = None
    cap_tokens: int | None = None
    pool_tokens: int | None = None
    pool_gib: float | None = None
    window_tokens: int | None = None
    state_slots: int | None = None
    state_gib: float | None = None
    state_requests: int | None = None
    predicted_tokens: int | None = None
    predicted_tokens_low: int | None = None
    predicted_tokens_high: int | None = None
    predicted_headroom_gib: float | None = None
    predicted_least_free_gib: float | None = None
    predicted_headroom_low_gib: float | None = None
    predicted_headroom_high_gib: float | None = None
    band_gib: float | None = None
    tokens_that_fit: int | None = None
    cell_bytes: float | None = None
    free_before_load_gib: float | None = None
    free_after_load_gib: float | None = None
    reserve_gib: float | None = None
    reserve_needed_gib: float | None = None
    min_headroom_gib: float | None = None
    min_least_free_gib: float | None = None
    engine_default: dict | None = None
    rows: list = field(default_factory=list)
    levers: list = field(default_factory=list)
    explanation: str = ""
    reason: str = ""
    refusal: str | None = None
    works: dict | None = None
    missing: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    boards: list = field(default_factory=list)
    table: list = field(default_factory=list)
    arguments: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    decided: dict = field(default_factory=dict)
    upgrade: list = field(default_factory=list)
    quantity_keys: dict = field(default_factory=dict)
    engine_version: str | None = None
    plan_free_gib: float | None = None

    def as_dict(self):
        return asdict(self)


# ---------------------------------------------------------------------------
# The plan
# ---------------------------------------------------------------------------


def plan(inp):
    """Return the Plan for a PlanInput. Raises BadInput (one sentence) for what cannot be right."""
    try:
        return _plan(inp)
    except (LayoutError, SplitError) as error:
        raise BadInput(str(error)) from None


def _plan(inp):
    base = bases.base_of(inp)
    page_size = base.cell.page_tokens if base.cell else known.page_tokens(inp)
    target = known.whole_pages(inp.target_tokens, page_size, up=True) if inp.target_tokens else 0
    target = max(target, solve.least_tokens(base.cell)) if target else 0
    options = solve.candidates(inp, base, target or None)
    if base.complete:
        options = [solve.bounded(base, one, target) for one in options]
        chosen = solve.choose_candidate(inp, options)
    else:
        chosen = options[0]
    return _assemble(inp, base, options, chosen, target)


def _assemble(inp, base, options, chosen, target):
    fraction = solve.choose_fraction(inp, base, chosen) if base.complete else inp.fraction
    cap = solve.cap_of(inp, target)
    arguments, environment = solve.decided(inp, chosen, fraction, cap, target or None)
    values = _values(inp, chosen, fraction, cap, target)
    facts = {
        "fraction": fraction,
        "cap_tokens": cap,
        "cell_bytes": base.cell.bytes if base.cell else None,
        "reserve_needed_gib": _rounded(chosen.needed_gib) if base.before else None,
        "arguments": arguments,
        "environment": environment,
        "decided": values,
        "min_headroom_gib": values["min_headroom_gib"],
        "min_least_free_gib": values["min_least_free_gib"],
        "quantity_keys": inp.keys or bases.keys_for(inp, arguments, environment),
        "engine_version": inp.engine_version,
        "plan_free_gib": _rounded(base.plan_free_gib),
        "missing": list(base.missing),
        "free_before_load_gib": _rounded(base.before.gib) if base.before else None,
        "free_after_load_gib": _rounded(base.after_gib) if base.before and base.used else None,
        "upgrade": upgrade.lines(inp, base),
    }
    if base.complete:
        facts.update(_solved(inp, base, options, chosen, fraction, cap, target))
    facts["is_open"] = bool(facts.get("is_open") and inp.fraction is None and fraction is not None)
    clash, clash_lines = clashes.told(inp, environment)
    facts["notes"] = notes.lines(inp, base, facts.get("pool_gib")) + clash_lines
    forbidden = _forbidden(inp, base) or clash
    if _refused_by_board(inp, base) or clash:
        facts.update(feasible=False, is_open=False)
    result = Plan(**facts)
    result = replace(result, rows=before_load.rows(inp, base.free, base.before) + explain.rows(base, chosen, result))
    if inp.fraction is not None and result.feasible is False and base.complete:
        result = replace(result, works=_offer(inp, options, result))
    result = replace(result, refusal=_refusal(inp, base, options, chosen, result, forbidden))
    return replace(
        result,
        explanation=explain.explanation(inp, base, chosen, result),
        reason=explain.reason(inp, result),
        table=lines.table(inp, result),
    )


def _refused_by_board(inp, base):
    """Return the sentence for which the boards of this host forbid a start, or None."""
    if inp.board_refusal:
        return inp.board_refusal
    return base.free.refusal if base.free else None


def _rounded(gib):
    return None if gib is None else round(gib, 4)


def _values(inp, chosen, fraction, cap, target):
    """The decided values under the names of the role's variables."""
    return {
        "mem_fraction_static": fraction,
        "max_total_tokens": cap,
        "context_tokens": solve.context_of(inp, target or None),
        "chunked_prefill_size": chosen.chunk_tokens,
        "decode_graph_batch": chosen.decode_batch,
        "allocator_conf": allocator.allocator_of(inp),
        "max_running_requests": inp.max_running_requests,
        "min_headroom_gib": _rounded(reserve.headroom_floor_gib(chosen.rows, inp.min_headroom_gib)),
        "min_least_free_gib": _rounded(reserve.least_free_floor_gib(chosen.rows)),
    }


def _solved(inp, base, options, chosen, fraction, cap, target):
    """The part of the answer that needs all figures."""
    unpromised = "target_tokens" in base.missing
    # A declared fraction that does not work is shown beside the interval of what would.
    shown = chosen if chosen.works else next((one for one in options if one.works), chosen)
    fits = solve.most_tokens(inp, base, options[-1])
    solved = {
        "fraction_low": shown.low_steps / STEPS if shown.low_steps < STEPS and not unpromised else None,
        "fraction_high": shown.high_steps / STEPS if shown.high_steps > 0 else None,
        "tokens_that_fit": fits,
        "engine_default": _engine_default(inp, base),
        "levers": levers.levers(inp, base, options, chosen, target, fits),
    }
    if not unpromised:
        solved["feasible"] = bool(chosen.works if inp.fraction is None else _inside(inp.fraction, chosen))
        solved["is_open"] = chosen.is_open
    if _peaks_above(base):
        solved.update(feasible=False, is_open=False)
    if fraction is None:
        return solved
    tokens, least_tokens, most_tokens = solve.predict(base, fraction)
    pool = solve.pool(base, fraction, cap)
    states = pool.state_bytes + pool.scratch_bytes
    if pool.problem and pool.tokens:
        solved.update(feasible=False, is_open=False)
    band = solve.band_gib(base, fraction)
    safe, low, high = _headrooms_gib(base, chosen, fraction, cap)
    solved.update(
        predicted_tokens=tokens,
        predicted_tokens_low=least_tokens,
        predicted_tokens_high=most_tokens,
        pool_tokens=pool.tokens,
        pool_gib=_rounded((pool.stored_bytes - states - _uncharged_bytes(base, pool)) / GIB),
        window_tokens=pool.window_tokens,
        state_slots=pool.state_slots,
        state_gib=_rounded(states / GIB) if pool.state_slots is not None else None,
        state_requests=pool.max_running_requests,
        band_gib=_rounded(band),
        reserve_gib=_rounded(base.before.gib * (1 - fraction)),
        predicted_headroom_gib=_rounded(safe + _spared_gib(chosen) / 2),
        predicted_headroom_low_gib=_rounded(low),
        predicted_headroom_high_gib=_rounded(high),
        predicted_least_free_gib=_rounded(safe - reserve.load_gib(chosen.rows)),
        boards=_boards(inp, base, safe - reserve.load_gib(chosen.rows)),
    )
    return solved


def _boards(inp, base, least_free_gib):
    """Return what this server will take of each of its boards, for the plans of other servers of the host."""
    if base.free is None or not inp.gpus:
        return []
    held = [0.0 if one is None and not inp.own_server_running else one for one in base.free.own_mib]
    return boards.taken(inp, base.free.gib - least_free_gib, held)


def _headrooms_gib(base, chosen, fraction, cap):
    """Return what is free when the server is ready: with the rows of the reserve in full, and at both ends of the band.

    The low end is the one that the floors are kept at: less free before load, more taken by the load, all rows of the
    reserve in full. At the high end the rows take the least that they may. What differs between two starts lands in the
    pool while it is below its cap, and in the headroom beyond.
    """
    before = base.before.error_gib
    used = base.used.total.error_gib + base.noise.error_gib
    low = _headroom_gib(base, chosen, fraction, cap, -before, used)
    high = _headroom_gib(base, chosen, fraction, cap, before, -used)
    return _headroom_gib(base, chosen, fraction, cap, 0.0, 0.0), low, high + _spared_gib(chosen)


def _headroom_gib(base, chosen, fraction, cap, more_before_gib, more_used_gib):
    """Return what the pools leave less the rows until ready, with free before load and the load's share moved."""
    pool = solve.pool(base, fraction, cap, fraction * more_before_gib - more_used_gib)
    ready = sum(one.gib for one in chosen.rows if one.phase == "ready" and one.name != reserve.UNCHARGED)
    return base.after_gib + more_before_gib - more_used_gib - pool.stored_bytes / GIB - ready


def _spared_gib(chosen):
    """Return how much less than their figures the rows until ready may take."""
    return reserve.ready_gib(chosen.rows) - reserve.least_ready_gib(chosen.rows)


def _uncharged_bytes(base, pool):
    """What the pools take beyond what the engine charges for them: a row of the reserve of its own."""
    return pool.tokens * max(0, base.cell.stored_bytes - base.cell.bytes)


def _peaks_above(base):
    """Return whether the load itself takes more for a while than is free before it."""
    if base.before is None or base.used is None or base.used.peak_gib is None:
        return False
    return base.used.peak_gib > base.before.gib + base.before.error_gib


def _inside(fraction, chosen):
    steps = fraction * STEPS
    return bool(chosen.works and chosen.low_steps - 1e-6 <= steps <= chosen.high_steps + 1e-6)


def _engine_default(inp, base):
    """What the engine itself would take for a fraction, and what that would give; None where its rule is not known."""
    if inp.device == "cpu" or base.board_mib is None:
        return None
    chunk, batch = solve.lever_settings(inp, base)[0][:2]
    situation = solve.situation_of(inp, base, inp.target_tokens, chunk, batch)
    fraction = engine_default.default_fraction(situation, base.board_mib)
    if fraction is None:
        return None
    return {
        "fraction": round(fraction, 3),
        "tokens": solve.predict(base, fraction)[0],
        "reserve_gib": _rounded(base.before.gib * (1 - fraction)),
    }


# ---------------------------------------------------------------------------
# Refusal
# ---------------------------------------------------------------------------


def _refusal(inp, base, options, chosen, result, forbidden):
    """Return the one sentence for which the restart must not happen, with values that would work, or None.

    C(forbidden): the sentence for what no fraction changes, or None.
    """
    if forbidden or inp.allow_unproven_plan:
        return forbidden
    if _peaks_above(base):
        return explain.refuse_peak(base.used.peak_gib, base.before.gib)
    limit = inp.max_context_tokens
    if inp.context_tokens is not None and limit is not None and inp.context_tokens > limit:
        return explain.refuse_context(inp.context_tokens, limit)
    if inp.target_tokens is not None and result.cap_tokens is not None and result.cap_tokens < inp.target_tokens:
        return explain.refuse_cap(result.cap_tokens, inp.target_tokens)
    if result.feasible is not False or result.is_open:
        return None
    if base.complete and result.fraction is not None:
        problem = solve.pool(base, result.fraction, result.cap_tokens).problem
        if problem and result.pool_tokens:
            return problem
    if result.works is None:
        return explain.refuse_target(inp, base, chosen, result)
    return _miss(inp, base, chosen, result, result.works)


def _forbidden(inp, base):
    """Return the sentence for what no fraction changes: boards of this host, or weights that are not read here."""
    board = _refused_by_board(inp, base)
    if board and (inp.board_refusal or not inp.allow_unproven_plan):
        return board
    return notes.GGUF if notes.is_gguf(inp.arguments) and inp.weight_table else None


def _miss(inp, base, chosen, result, offer):
    """Return the sentence for a declared fraction that misses by more than the band, or None within it."""
    if inp.target_tokens is not None and result.predicted_tokens_high < inp.target_tokens:
        return explain.refuse_fraction_short(inp, result, offer)
    if result.reserve_gib < max(chosen.certain_gib - 1e-4, chosen.needed_gib - result.band_gib):
        return explain.refuse_fraction_unsafe(base, chosen, result, offer)
    return None


def _offer(inp, options, result):
    """Return what would work instead of a declared fraction, as {variable: value}; a target when no fraction does.

    None: no target fits either.
    """
    working = next((one for one in options if one.works), None)
    if working is None:
        if not result.tokens_that_fit:
            return None
        return {"mem_fraction_static": "auto", "target_tokens": result.tokens_that_fit}
    # What is pasted is not moved afterwards. The pool is known better than the reserve: most of the room goes there.
    steps = working.low_steps + (working.high_steps - working.low_steps) // OFFER_PARTS
    values = {"mem_fraction_static": steps / STEPS}
    if inp.chunk_tokens is None and working.chunk_moved:
        values["chunked_prefill_size"] = working.chunk_tokens
    return values
