# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the reserve. What the memory outside the static part has to hold, row by row, with sources. Private.

C(ready) is taken by the time the server is ready (graphs, tables, workspaces), C(load) comes with requests
(activations), C(floor) must still be free then. What grows with the chunk, with the context and with both are rows of
their own.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_activation as activation
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_situation import (
    ASSUMED,
    FLOOR,
    GIB,
    GIVEN,
    LOAD,
    MEASURED,
    READY,
    TABLE,
    activation_tokens,
    attention_groups,
    data_parallel_mib,
    disabled,
    draft_reserve,
    on,
    row,
    running_requests,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import argument_number

UNCHARGED = "uncharged rows of the pool"

# ---------------------------------------------------------------------------
# Taken by the time the server is ready
# ---------------------------------------------------------------------------


def _runtime(situation):
    if situation.device == "cpu":
        return []
    gib, least = tables.RUNTIME_GIB, tables.RUNTIME_LEAST_GIB
    found = [row("runtime", gib, TABLE, tables.RUNTIME_SOURCE, READY, least_gib=least)]
    if situation.unified:
        gib, least = tables.UNIFIED_RUNTIME_GIB, tables.UNIFIED_RUNTIME_LEAST_GIB
        note = tables.UNIFIED_RUNTIME_SOURCE
        found.append(row("processes of the engine", gib, TABLE, note, READY, least_gib=least))
    return found


def _decode_graphs(situation):
    if disabled(situation, "decode"):
        return []
    batch = situation.decode_batch
    gib = batch * tables.DECODE_GRAPH_MIB_PER_REQUEST / tables.MIB_PER_GIB
    index = batch * situation.context_tokens * 4 / GIB
    least, note = gib * tables.DECODE_GRAPH_LEAST_SHARE, f"batch {batch}: {tables.DECODE_GRAPH_SOURCE}"
    return [
        row("decode graphs", gib, TABLE, note, READY, grows="batch", least_gib=least),
        row("decode graph index", index, TABLE, tables.INDEX_SOURCE, READY, grows="context", least_gib=0.0),
    ]


def prefill_graph_sizes(most_tokens):
    """Return how many prefill graphs the engine captures up to C(most_tokens) tokens."""
    counted = sum(1 for step in tables.PREFILL_GRAPH_STEPS for size in range(*step) if size <= most_tokens)
    return counted + len(range(4608, most_tokens + 1, 512))


def prefill_graph_gib(situation):
    """Return what the engine reckons with for the graphs of the prefill, 0 where there are none."""
    if disabled(situation, "prefill") or not version_at_least(situation.engine_version, tables.PREFILL_GRAPH_SINCE):
        return 0.0
    if situation.geometry.get("attention") == "mla":
        return tables.PREFILL_GRAPH_MLA_GIB
    return prefill_graph_sizes(activation_tokens(situation)) * tables.PREFILL_GRAPH_MIB_PER_SIZE / tables.MIB_PER_GIB


def _prefill_graphs(situation):
    gib = prefill_graph_gib(situation)
    if not gib:
        return []
    note = tables.PREFILL_GRAPH_SOURCE
    if situation.geometry.get("attention") == "mla":
        least = tables.PREFILL_GRAPH_MLA_LEAST_GIB
        note = f"{gib:g} GiB with latents by sglang 0.5.10-0.5.23 memory defaults; {least:g} to {gib:g} GiB are assumed"
        return [row("prefill graphs", gib, ASSUMED, note, READY, least_gib=least)]
    most = gib * tables.PREFILL_GRAPH_MOST_MIB_PER_SIZE / tables.PREFILL_GRAPH_MIB_PER_SIZE
    least = gib * tables.PREFILL_GRAPH_LEAST_SHARE
    return [row("prefill graphs", most, TABLE, note, READY, certain_gib=gib, grows="chunk", least_gib=least)]


def _request_table(situation):
    requests = running_requests(situation)
    draft = argument_number(situation.arguments, "speculative-num-draft-tokens", 0, minimum=0)
    size_bytes = _kv.request_table_bytes(requests, situation.context_tokens, situation.engine_version, draft)
    note = f"{requests:,} requests x {situation.context_tokens:,} tokens x 4 bytes"
    return [row("request table", size_bytes / GIB, TABLE, note, READY, grows="context")]


def _draft(situation):
    """Before 0.5.14 draft weights and the draft's pool lie outside the fraction."""
    kept = draft_reserve(situation)
    if kept is None:
        return []
    pool_gib = situation.pool_tokens * (situation.cell.outside_bytes if situation.cell else 0) / GIB
    if situation.draft_gib and pool_gib:
        why = "outside the fraction before 0.5.14"
        tokens = f"{situation.pool_tokens:,} tokens x {situation.cell.outside_bytes:,} bytes"
        return [
            row("draft weights", situation.draft_gib, TABLE, why, READY),
            row("draft pool", pool_gib, TABLE, f"{tokens}, {why}", READY, grows="pool"),
        ]
    note = f"draft weights and pool lie outside the fraction before 0.5.14: {kept[1]}"
    return [row("draft model", max(kept[0], situation.draft_gib + pool_gib), TABLE, note, READY, grows="pool")]


def _wider_rows(situation):
    """Pools that take more than the engine charges for them: the rest comes out of the reserve."""
    cell = situation.cell
    if cell is None or cell.stored_bytes <= cell.bytes:
        return []
    wider = cell.stored_bytes - cell.bytes
    note = f"{situation.pool_tokens:,} tokens x {wider:,} bytes that this version does not charge ({cell.layout})"
    return [row(UNCHARGED, situation.pool_tokens * wider / GIB, TABLE, note, READY, grows="pool")]


def _extras(situation):
    found = []
    for extra in tables.EXTRAS:
        value = situation.arguments.get(extra.argument)
        switched_on = on(situation, extra.argument) if extra.value is None else str(value) == extra.value
        if switched_on and version_at_least(situation.engine_version, extra.since):
            found.append(row(extra.argument, _extra_gib(situation, extra), TABLE, extra.source, READY))
    return [one for one in found if one.gib > 0] + _gathered(situation)


def _gathered(situation):
    """Return the row of what data-parallel attention gathers from all groups in one decode step, in a list."""
    groups = attention_groups(situation)
    per_token = activation.gathered_bytes_per_token(situation.geometry, situation.ranks)
    if groups == 1 or situation.device == "cpu":
        return []
    engine_gib = data_parallel_mib(situation) / tables.MIB_PER_GIB
    gib, how = engine_gib, "shape not known, as the engine's own default reckons"
    if per_token is not None:
        vocabulary = situation.geometry.get("vocab_size") or tables.VOCABULARY_UNKNOWN
        rows_gib = situation.decode_batch * groups * (per_token + vocabulary * activation.ELEMENT_BYTES) / GIB
        gib = min(engine_gib, rows_gib * tables.ACTIVATION_WASTE)
        how = f"{tables.DP_ATTENTION_SOURCE}; the engine's own default keeps {engine_gib:.1f}"
    note = f"{groups} groups x batch {situation.decode_batch}: {how}"
    return [row("data-parallel attention", gib, ASSUMED, note, READY, gib / 2, grows="batch", least_gib=0.0)]


def _extra_gib(situation, extra):
    """Return what an extra takes: as its variable of the environment says, else by default. -1 and less mean none."""
    stated = None if extra.variable is None else situation.environment.get(extra.variable)
    if stated in (None, ""):
        return extra.gib
    text = str(stated).strip()
    if text.startswith("-") and text[1:].isdigit():
        return 0.0
    return float(_kv.whole_number(stated, f"the variable {extra.variable} in the environment", minimum=0))


def _margin(situation):
    if situation.min_least_free_gib is not None:
        return [row("least free", situation.min_least_free_gib, GIVEN, "min_least_free_gib", FLOOR)]
    cpu = situation.device == "cpu"
    share = tables.CPU_MARGIN_SHARE if cpu else tables.MARGIN_SHARE
    least = tables.CPU_MARGIN_LEAST_GIB if cpu else tables.MARGIN_LEAST_GIB
    note = tables.CPU_MARGIN_SOURCE if cpu else tables.MARGIN_SOURCE
    return [row("least free", max(least, share * situation.before_gib), ASSUMED, note, FLOOR, 0.0)]


PARTS = (
    _runtime,
    _decode_graphs,
    _prefill_graphs,
    _request_table,
    _draft,
    _wider_rows,
    _extras,
    activation.chunk,
    activation.context,
    activation.vision,
    _margin,
)


def rows(situation):
    """Return the rows of the reserve of one configuration, before anything was measured."""
    found = [one for part in PARTS for one in part(situation)]
    index = activation.both(situation, sum(one.gib for one in found))
    return found[:-1] + index + found[-1:]


# ---------------------------------------------------------------------------
# What was measured
# ---------------------------------------------------------------------------


def with_measurement(found, situation, measured):
    """Return the rows with a start-up's own figures in place of the table's, where the start-up gives them."""
    result = list(found)
    ready = _measured_ready_gib(measured)
    if ready is not None:
        note = "free after load less pool less headroom of a start-up"
        # The printed pool holds its uncharged rows: they are not in what was taken beside it.
        kept = [one for one in result if one.phase != READY or one.name == UNCHARGED]
        result = [row("taken until ready", ready, MEASURED, note, READY)] + kept
    elif measured.get("graph_gib") is not None:
        graphs = ("decode graphs", "prefill graphs")
        graph = row("graphs", float(measured["graph_gib"]), MEASURED, "graph capture of a start-up", READY)
        result = [graph] + [one for one in result if one.name not in graphs]
    headroom, least = measured.get("headroom_gib"), measured.get("least_free_gib")
    if headroom is not None and least is not None:
        gib = max(0.0, float(headroom) - float(least))
        load = row("taken by the load", gib, MEASURED, "headroom less least free of a soak", LOAD)
        result = [load] + [one for one in result if one.phase != LOAD]
    return sorted(result, key=lambda one: (READY, LOAD, FLOOR).index(one.phase))


def _measured_ready_gib(measured):
    names = ("free_after_load_gib", "kv_gib", "headroom_gib")
    after, pool, headroom = (measured.get(name) for name in names)
    if None in (after, pool, headroom):
        return None
    return max(0.0, float(after) - float(pool) - float(headroom))


# ---------------------------------------------------------------------------
# Sums
# ---------------------------------------------------------------------------


def _sum(found, phase, certain=False):
    return sum(one.certain_gib if certain else one.gib for one in found if one.phase == phase)


def ready_gib(found):
    """Return what is taken between the sizing of the pool and ready."""
    return _sum(found, READY)


def least_ready_gib(found):
    """Return the least that is taken between the sizing of the pool and ready: the good end."""
    return sum(one.least_gib for one in found if one.phase == READY)


def load_gib(found):
    """Return what the load takes on top."""
    return _sum(found, LOAD)


def least_free_floor_gib(found):
    """Return the floor under load: the last row."""
    return _sum(found, FLOOR)


def headroom_floor_gib(found, min_headroom_gib):
    """Return the floor at ready: as declared, else what the load surely takes and the floor under load."""
    if min_headroom_gib is not None:
        return min_headroom_gib
    return _sum(found, LOAD, certain=True) + _sum(found, FLOOR)


def need(found, situation):
    """Return {needed_gib, expected_gib, certain_gib}: the reserve that surely keeps the floors, the one that will most
    probably do (the middle of what the rows may take), and how much of it is beyond doubt.

    A declared floor at ready takes the place of what the load is thought to need; with a declared floor under load,
    both are kept.
    """
    ready, load, floor = ready_gib(found), load_gib(found), least_free_floor_gib(found)
    certain = _sum(found, READY, certain=True) + _sum(found, LOAD, certain=True)
    needed = ready + load + floor
    likely_ready = (ready + least_ready_gib(found)) / 2
    expected = likely_ready + (load + _sum(found, LOAD, certain=True)) / 2 + floor
    if situation.min_headroom_gib is not None:
        at_ready = ready + situation.min_headroom_gib
        likely = likely_ready + situation.min_headroom_gib
        expected = likely if situation.min_least_free_gib is None else max(likely, expected)
        needed = at_ready if situation.min_least_free_gib is None else max(at_ready, needed)
        certain = max(at_ready, certain) if situation.min_least_free_gib is not None else at_ready
    elif situation.min_least_free_gib is not None:
        certain += floor
    return {"needed_gib": needed, "expected_gib": expected, "certain_gib": certain}
