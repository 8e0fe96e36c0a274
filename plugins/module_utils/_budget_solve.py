# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the solver: the engine's rule, the band, the interval, the levers that a plan may move. Private.

The engine's own rule, the same since 0.3.6: with PRE GiB free before load and POST GiB free after load on the worst
rank, the fraction f leaves REST = POST - PRE x (1 - f) for the pool. The pool holds int(REST x 2^30) // cell tokens,
then the cap, then whole pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_allocator as allocator
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_learned as learned
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_reserve as reserve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_situation as situations
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_situation import GIVEN, LOAD, MEASURED
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least

GIB = 2**30
STEPS = 1000  # fractions have three decimals
NEEDED_FOR_STATES = ("free_before_load_gib", "free_after_load_gib", "fraction")


@dataclass(frozen=True)
class Candidate:
    """One setting of the levers that the plan itself may move, with what it needs and the fractions that are left.

    C(low_steps), C(high_steps): fractions in thousandths whose lower band holds the target, whose reserve is enough.
    C(table_gib): what its rows say before a start-up is counted, None where none told; C(is_open): see C(is_open).
    """

    chunk_tokens: int
    decode_batch: int
    chunk_moved: bool
    batch_moved: bool
    rows: tuple = ()
    needed_gib: float = 0.0
    expected_gib: float = 0.0
    certain_gib: float = 0.0
    learned_floor_gib: float = 0.0  # a death: not less than this
    learned_extra_gib: float = 0.0  # a death under another candidate: this much more than the rows say
    keys: dict = field(default_factory=dict)
    low_steps: int | None = None
    high_steps: int | None = None
    table_gib: float | None = None
    is_open: bool = False

    @property
    def works(self):
        return self.low_steps is not None and self.high_steps is not None and self.low_steps <= self.high_steps


# ---------------------------------------------------------------------------
# The engine's arithmetic
# ---------------------------------------------------------------------------


def rest_gib(base, fraction):
    """Return the GiB that the fraction leaves for the pool: POST - PRE x (1 - f)."""
    return base.after_gib - base.before.gib * (1 - fraction)


def pool(base, fraction, cap_tokens=None, shift_gib=0.0):
    """Return the Pool of the room kv that the fraction gives; C(shift_gib): a deviation of what is left for it."""
    return _kv.pool_of(base.cell, max(0, int((rest_gib(base, fraction) + shift_gib) * GIB)), cap_tokens)


# ---------------------------------------------------------------------------
# The band
# ---------------------------------------------------------------------------


def band_gib(base, fraction):
    """Return the half band of REST at C(fraction): noise of the start, and what is not known of the two figures."""
    return base.noise.error_gib + base.used.total.error_gib + fraction * base.before.error_gib


def predict(base, fraction):
    """Return (tokens, tokens at the low end, tokens at the high end) of the pool before the cap, in whole pages."""
    band = band_gib(base, fraction)
    return tuple(pool(base, fraction, shift_gib=shift).tokens for shift in (0.0, -band, band))


def lowest_steps(base, tokens):
    """Return the smallest fraction in thousandths whose lower band holds C(tokens); above STEPS when none does."""
    need = _kv.rest_for(base.cell, tokens) / GIB
    exact = (base.used.total.gib + base.used.total.error_gib + base.noise.error_gib + need) / max(
        base.before.gib - base.before.error_gib, 1e-6
    )
    if exact > 2.0:
        return 2 * STEPS

    def holds(steps):
        fraction = steps / STEPS
        found = pool(base, fraction, shift_gib=-band_gib(base, fraction))
        return found.tokens >= tokens and found.problem is None

    steps = max(1, int(math.ceil(exact * STEPS - 1e-9)))
    while steps > 1 and holds(steps - 1):
        steps -= 1
    while steps < 2 * STEPS and not holds(steps):
        steps += 1
    return steps


def least_tokens(cell):
    """Return the smallest pool with which the engine starts: a window pool has to hold more than the window."""
    if cell is None or cell.window_floor_tokens is None or not cell.window_ratio:
        return 0
    page = cell.page_tokens
    window = (cell.window_floor_tokens // page + 1) * page
    return known.whole_pages(math.ceil(window / cell.window_ratio), page, up=True)


def highest_steps(base, needed_gib):
    """Return the largest fraction in thousandths whose reserve is at least C(needed_gib); may be 0 or less."""
    exact = 1.0 - needed_gib / max(base.before.gib - base.before.error_gib, 1e-6)
    return min(STEPS - 1, int(math.floor(exact * STEPS + 1e-9)))


# ---------------------------------------------------------------------------
# Candidates: the levers that the plan may move
# ---------------------------------------------------------------------------


def context_of(inp, target_tokens):
    """Return the longest request: as declared, else the target, but not more than the model can."""
    if inp.context_tokens is not None:
        return inp.context_tokens
    limits = [one for one in (target_tokens, inp.max_context_tokens) if one]
    return min(limits) if limits else None


def situation_of(inp, base, target_tokens, chunk_tokens, decode_batch, most=0.999):
    """Return the Situation of one configuration. C(most): the largest fraction that can come about without a cap."""
    cap, state_requests = cap_of(inp, target_tokens), None
    if base.complete and (cap is None or base.cell.state):
        largest = pool(base, inp.fraction or most, cap)
        cap, state_requests = max(largest.tokens, target_tokens or 0), largest.max_running_requests
    cap = cap or target_tokens
    context = context_of(inp, target_tokens) or cap or 4096
    shared = _kv.ranks(inp.arguments, inp.engine_version)
    return situations.Situation(
        device=inp.device,
        arguments=inp.arguments,
        geometry=inp.geometry or {},
        engine_version=inp.engine_version,
        ranks=known.model_ranks(inp),
        attention_tp=shared.attention_tp,
        chunk_tokens=chunk_tokens,
        decode_batch=decode_batch,
        context_tokens=context,
        pool_tokens=max(cap or 1, 1),
        max_running_requests=inp.max_running_requests,
        before_gib=base.before.gib if base.before else 0.0,
        min_headroom_gib=inp.min_headroom_gib,
        min_least_free_gib=inp.min_least_free_gib,
        draft_gib=base.used.draft_gib if base.used else 0.0,
        cell=base.cell,
        multimodal=known.is_multimodal(inp),
        unified=known.is_unified(inp),
        data_parallel=shared.data_parallel,
        state_requests=state_requests,
        environment=inp.environment,
    )


def lever_settings(inp, base):
    """Return [(chunk, decode batch, chunk moved, batch moved)], the engine's own first, smallest change first.

    The chunk is moved before the batch of the graphs, unless the graphs were what died.
    """
    row = tables.CPU_CLASS if inp.device == "cpu" else tables.board_class(base.board_mib, inp.engine_version)
    chunk, batch = inp.chunk_tokens, situations.declared_decode_batch(inp.arguments)
    chunks = [chunk] if chunk is not None else [row.chunk_tokens]
    if chunk is None:
        while chunks[-1] > tables.SMALLEST_CHUNK_TOKENS:
            chunks.append(chunks[-1] // 2)
    batches = [batch] if batch is not None else [_default_batch(inp, row)]
    if batch is None and inp.device != "cpu":
        while batches[-1] > tables.SMALLEST_DECODE_BATCH:
            batches.append(max(batches[-1] // 2, tables.SMALLEST_DECODE_BATCH))
    if learned.graphs_died(inp):
        settings = [(chunks[0], one, False, index > 0) for index, one in enumerate(batches)]
        return settings + [(one, batches[-1], True, len(batches) > 1) for one in chunks[1:]]
    settings = [(one, batches[0], index > 0, False) for index, one in enumerate(chunks)]
    return settings + [(chunks[-1], one, len(chunks) > 1, True) for one in batches[1:]]


def _default_batch(inp, row):
    batch = row.decode_batch_wide if known.size(inp, "tp-size") >= 4 else row.decode_batch
    if inp.max_running_requests and version_at_least(inp.engine_version, "0.5.22"):
        batch = min(batch, inp.max_running_requests)
    return batch


def _with_states(cell, measured):
    """Return the measurement with the states of requests in its pool: the engine prints keys and values only."""
    before, after, fraction = (measured.get(key) for key in NEEDED_FOR_STATES)
    if cell is None or not cell.state or None in (before, after, fraction) or measured.get("kv_gib") is None:
        return measured
    found = _kv.pool_of(cell, int((after - before * (1 - fraction)) * GIB), measured.get("cap_tokens"))
    states = (found.state_bytes + found.scratch_bytes) / GIB
    return dict(measured, kv_gib=measured["kv_gib"] + states)


def _rows_of(inp, keys, situation):
    """(The reserve's rows, with what an earlier start-up of the same activation keys measured in their place; what they
    need without it, None where nothing was measured)."""
    rows = reserve.rows(situation)
    measured = known.newest(
        inp.measurements,
        lambda one: (
            known.teaches(one, "activation", keys) and one.get("chunked_prefill_size") in (None, situation.chunk_tokens)
        ),
    )
    if measured is None:
        return rows, None
    found = reserve.with_measurement(rows, situation, _with_states(situation.cell, measured))
    return found, reserve.need(rows, situation)["needed_gib"] if found != rows else None


def candidates(inp, base, target_tokens):
    """Return the Candidates in the order in which they are preferred."""
    built = []
    for setting in lever_settings(inp, base):
        bare = Candidate(*setting)
        arguments, environment = decided(inp, bare, None, None, target_tokens)
        bare = replace(bare, keys=inp.keys or bases.keys_for(inp, arguments, environment))
        plain_keys = inp.keys or bases.keys_for(inp, arguments, inp.environment)
        built.append((_with_rows(inp, base, bare, target_tokens), plain_keys))
    return [_raised(one, *learned.lessons(inp, one, built)) for one, dummy in built]


def _with_rows(inp, base, candidate, target_tokens):
    """Return the candidate with its reserve for C(target_tokens), and what deaths taught on top of it."""
    situation = situation_of(inp, base, target_tokens, candidate.chunk_tokens, candidate.decode_batch)
    rows, table_gib = _rows_of(inp, candidate.keys, situation)
    need = reserve.need(rows, situation)
    if base.complete and inp.fraction is None and cap_of(inp, target_tokens) is None:
        # The pool fills what this reserve leaves: rows that grow with it are those of that pool.
        most = max(highest_steps(base, need["needed_gib"]), 1) / STEPS
        lever = candidate.chunk_tokens, candidate.decode_batch
        situation = situation_of(inp, base, target_tokens, *lever, most=most)
        rows, table_gib = _rows_of(inp, candidate.keys, situation)
        need = reserve.need(rows, situation)
    changed = replace(candidate, rows=tuple(rows), table_gib=table_gib, **need)
    return _raised(changed, candidate.learned_floor_gib, candidate.learned_extra_gib)


def _raised(candidate, floor_gib, extra_gib):
    return replace(
        candidate,
        needed_gib=max(candidate.needed_gib + extra_gib, floor_gib),
        expected_gib=max(candidate.expected_gib + extra_gib, floor_gib),
        certain_gib=max(candidate.certain_gib + extra_gib, floor_gib),
        learned_floor_gib=floor_gib,
        learned_extra_gib=extra_gib,
    )


def bounded(base, candidate, tokens):
    """Return the candidate with its interval of fractions for C(tokens)."""
    found = replace(
        candidate,
        low_steps=lowest_steps(base, max(tokens, 1)),
        high_steps=highest_steps(base, candidate.needed_gib),
    )
    return replace(found, is_open=not found.works and is_open(base, candidate, tokens))


def expected_steps(base, candidate):
    """Return the largest fraction in thousandths that leaves what is expected to be needed."""
    return min(STEPS - 1, int(math.floor((1.0 - candidate.expected_gib / base.before.gib) * STEPS + 1e-9)))


def is_open(base, candidate, tokens):
    """Return whether C(tokens) fit by what is expected, while something of that was never measured here.

    Only the bad end of the bands stands against them, and a start tells. Where all was measured, nothing is left to
    learn but the noise; who states both figures of the load wants to know, and not to try.
    """
    load = {base.before.source, base.used.total.source}
    if load == {GIVEN} or load | {one.source for one in candidate.rows if one.phase == LOAD} <= {MEASURED, GIVEN}:
        return False
    fraction = expected_steps(base, candidate) / STEPS
    if fraction <= 0:
        return False
    found = pool(base, fraction)
    return found.tokens >= tokens and found.problem is None


# ---------------------------------------------------------------------------
# Choice
# ---------------------------------------------------------------------------


def choose_candidate(inp, options):
    """Return the first candidate that works, else the leanest, which may be open.

    For an explicit fraction, the first whose reserve it keeps, but none beyond the first that works: with a target, the
    levers are moved as far as the target needs it and no further, only to rescue a fraction.
    """
    works = next((index for index, one in enumerate(options) if one.works), len(options) - 1)
    if inp.fraction is None:
        return options[works]
    reach = options[: works + 1] if inp.target_tokens else options
    steps = inp.fraction * STEPS
    return next((one for one in reach if steps <= one.high_steps + 1e-6), reach[-1])


def choose_fraction(inp, base, candidate):
    """Return the fraction: as declared, the middle of the interval (promise) or its upper end (fill), or None."""
    if inp.fraction is not None:
        return inp.fraction
    if "target_tokens" in base.missing:
        return None
    if candidate.works:
        if inp.pool_policy == "fill":
            return candidate.high_steps / STEPS
        return ((candidate.low_steps + candidate.high_steps) // 2) / STEPS
    if candidate.is_open:
        return min(candidate.low_steps, expected_steps(base, candidate)) / STEPS
    if not inp.allow_unproven_plan:
        return None
    certain = highest_steps(base, candidate.certain_gib)
    steps = min(candidate.low_steps, certain, STEPS - 1)
    return steps / STEPS if steps > 0 else None


def cap_of(inp, target_tokens):
    """Return the cap: as declared in the arguments, the target in whole pages for a promise, or None."""
    declared = inp.arguments.get("max-total-tokens")
    if declared is not None:
        return _kv.whole_number(declared, "the server argument max-total-tokens")
    if inp.pool_policy != "promise" or inp.target_tokens is None:
        return None
    return target_tokens


def batch_argument(inp):
    """Return the name of the server argument for the largest batch of the decode graphs."""
    return "cuda-graph-max-bs-decode" if version_at_least(inp.engine_version, "0.5.14") else "cuda-graph-max-bs"


def decided(inp, candidate, fraction, cap, target_tokens):
    """Return (arguments, environment) that the server is to be started with: the user's, and what was decided."""
    arguments = dict(inp.arguments)
    if fraction is not None:
        arguments["mem-fraction-static"] = fraction
    if cap is not None:
        arguments["max-total-tokens"] = cap
    context = context_of(inp, target_tokens)
    if inp.context_tokens is not None or (context is not None and inp.max_context_tokens is not None):
        arguments["context-length"] = context
    if inp.chunk_tokens is not None or candidate.chunk_moved:
        arguments["chunked-prefill-size"] = candidate.chunk_tokens
    if inp.max_running_requests is not None:
        arguments["max-running-requests"] = inp.max_running_requests
    if candidate.batch_moved:
        arguments[batch_argument(inp)] = candidate.decode_batch
    environment = conflicts.with_allocator(
        inp.environment, allocator.allocator_of(inp), inp.torch_version, inp.engine_version
    )
    return arguments, environment


def most_tokens(inp, base, leanest):
    """Return the largest target, in whole pages, for which some fraction would be feasible; 0 when there is none."""
    page = base.cell.page_tokens

    def fits(tokens):
        fraction = highest_steps(base, _with_rows(inp, base, leanest, tokens).needed_gib) / STEPS
        if fraction <= 0:
            return False
        return pool(base, fraction, shift_gib=-band_gib(base, fraction)).tokens >= tokens

    low, high = 0, predict(base, 0.999)[2] // page
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * page) else (low, middle - 1)
    # The engine does not start with less than this, so a smaller target is no target.
    return low * page if low * page >= least_tokens(base.cell) else 0
