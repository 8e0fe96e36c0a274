# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the reserve. What the memory outside the static part has to hold, row by row, with sources. Private.

C(ready) is taken by the time the server is ready (graphs, tables, workspaces), C(load) comes with requests
(activations), C(floor) must still be free then. What grows with the chunk, with the context and with both are rows of
their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least

GIB = float(2**30)
READY, LOAD, FLOOR = "ready", "load", "floor"
MEASURED, TABLE, ASSUMED, GIVEN = "measured", "table", "assumed", "given"


@dataclass(frozen=True)
class Situation:
    """One configuration, as far as the reserve depends on it. C(before_gib) is 0 when free before load is not known."""

    device: str
    arguments: dict
    geometry: dict
    engine_version: str | None
    ranks: int
    attention_tp: int
    chunk_tokens: int
    decode_batch: int
    context_tokens: int
    pool_tokens: int
    max_running_requests: int | None
    before_gib: float
    min_headroom_gib: float | None
    min_least_free_gib: float | None
    draft_gib: float


@dataclass(frozen=True)
class Row:
    """One part of the reserve. C(certain_gib): what of it is not the allowance for what is not known."""

    name: str
    gib: float
    source: str
    note: str
    phase: str
    certain_gib: float

    def as_dict(self):
        return {
            "name": self.name,
            "gib": round(self.gib, 4),
            "source": self.source,
            "note": self.note,
            "part": self.phase,
        }


def _row(name, gib, source, note, phase, certain_gib=None):
    return Row(name, gib, source, note, phase, gib if certain_gib is None else certain_gib)


# ---------------------------------------------------------------------------
# Arguments that the rows look at
# ---------------------------------------------------------------------------


def declared_decode_batch(arguments):
    """Return the largest batch of the decode graphs that the user declared, or None."""
    for name in ("cuda-graph-max-bs-decode", "cuda-graph-max-bs"):
        if arguments.get(name) is not None:
            return _kv.whole_number(arguments[name], "the server argument " + name)
    for name in ("cuda-graph-bs-decode", "cuda-graph-bs"):
        sizes = arguments.get(name)
        if isinstance(sizes, (list, tuple)) and sizes:
            return max(_kv.whole_number(one, "the server argument " + name) for one in sizes)
    return None


def _on(situation, name):
    return _kv.is_on(situation.arguments.get(name, False)) if situation.arguments.get(name) is not None else False


def _disabled(situation, phase):
    names = {
        "decode": ("disable-decode-cuda-graph",),
        "prefill": ("disable-prefill-cuda-graph", "disable-piecewise-cuda-graph"),
    }
    backend = situation.arguments.get("cuda-graph-backend-" + phase)
    switched_off = any(_on(situation, name) for name in ("disable-cuda-graph",) + names[phase])
    return situation.device == "cpu" or switched_off or str(backend).lower() == "disabled"


def _algorithm(situation):
    value = situation.arguments.get("speculative-algorithm")
    return "" if value is None or str(value).lower() == "none" else str(value).upper()


def activation_tokens(situation):
    """Return the tokens of one prefill step: the chunk, or --max-prefill-tokens when chunking is off (-1)."""
    if situation.chunk_tokens and situation.chunk_tokens > 0:
        return situation.chunk_tokens
    declared = situation.arguments.get("max-prefill-tokens")
    limit = 16384 if declared is None else _kv.whole_number(declared, "the server argument max-prefill-tokens")
    return max(limit, situation.context_tokens)  # one prompt is never split then


def running_requests(situation):
    """Return the requests that the engine admits per data-parallel rank: as declared, or its own default."""
    if situation.max_running_requests:
        return situation.max_running_requests
    if _algorithm(situation) and version_at_least(situation.engine_version, "0.4.9"):
        return tables.SPECULATIVE_MAX_RUNNING_REQUESTS
    return _kv.default_max_running_requests(situation.pool_tokens, situation.context_tokens, situation.engine_version)


# ---------------------------------------------------------------------------
# Taken by the time the server is ready
# ---------------------------------------------------------------------------


def _runtime(situation):
    if situation.device == "cpu":
        return []
    return [_row("runtime", tables.RUNTIME_GIB, TABLE, tables.RUNTIME_SOURCE, READY)]


def _decode_graphs(situation):
    if _disabled(situation, "decode"):
        return []
    batch = situation.decode_batch
    gib = batch * tables.DECODE_GRAPH_MIB_PER_REQUEST / tables.MIB_PER_GIB
    index = batch * situation.context_tokens * 4 / GIB
    return [
        _row("decode graphs", gib, TABLE, f"batch {batch}: {tables.DECODE_GRAPH_SOURCE}", READY),
        _row("decode graph index", index, TABLE, tables.INDEX_SOURCE, READY),
    ]


def prefill_graph_gib(situation):
    """Return what the graphs of the prefill take, 0 where there are none."""
    if _disabled(situation, "prefill") or not version_at_least(situation.engine_version, tables.PREFILL_GRAPH_SINCE):
        return 0.0
    if situation.geometry.get("attention") == "mla":
        return tables.PREFILL_GRAPH_MLA_GIB
    tokens = activation_tokens(situation)
    sizes = next(
        (count for limit, count in tables.PREFILL_GRAPH_SIZES if tokens <= limit), tables.PREFILL_GRAPH_SIZES[-1][1]
    )
    return sizes * tables.PREFILL_GRAPH_MIB_PER_SIZE / tables.MIB_PER_GIB


def _prefill_graphs(situation):
    gib = prefill_graph_gib(situation)
    return [_row("prefill graphs", gib, TABLE, tables.PREFILL_GRAPH_SOURCE, READY)] if gib else []


def _request_table(situation):
    requests = running_requests(situation)
    draft = situation.arguments.get("speculative-num-draft-tokens")
    size_bytes = _kv.request_table_bytes(requests, situation.context_tokens, situation.engine_version, draft or 0)
    note = f"{requests:,} requests x {situation.context_tokens:,} tokens x 4 bytes"
    return [_row("request table", size_bytes / GIB, TABLE, note, READY)]


def _speculation(situation):
    algorithm = _algorithm(situation)
    if not algorithm or algorithm == "NGRAM" or situation.engine_version is None:
        return []
    for row in tables.SPECULATION:
        if version_at_least(situation.engine_version, row.since) and not version_at_least(
            situation.engine_version, row.until
        ):
            gib = row.standalone_gib if algorithm == "STANDALONE" else row.gib
            note = f"draft weights and pool lie outside the fraction before 0.5.14: {row.source}"
            return [_row("draft model", max(gib, situation.draft_gib), TABLE, note, READY)]
    return []


def _extras(situation):
    found = []
    for row in tables.EXTRAS:
        value = situation.arguments.get(row.argument)
        switched_on = _on(situation, row.argument) if row.value is None else str(value) == row.value
        if switched_on and version_at_least(situation.engine_version, row.since):
            found.append(_row(row.argument, row.gib, TABLE, row.source, READY))
    if _on(situation, "enable-dp-attention"):
        groups = int(situation.arguments.get("attn-dp-size") or situation.arguments.get("dp-size") or 1)
        mib = tables.DP_ATTENTION_MIB
        if situation.decode_batch > tables.DP_ATTENTION_LARGE_BATCH:
            mib += tables.DP_ATTENTION_LARGE_MIB
        gib = situation.decode_batch * groups * mib / tables.MIB_PER_GIB
        found.append(_row("data-parallel attention", gib, TABLE, tables.DP_ATTENTION_SOURCE, READY))
    return found


# ---------------------------------------------------------------------------
# Comes with requests
# ---------------------------------------------------------------------------


def activation_bytes_per_token(geometry, attention_tp, ranks):
    """Return the bytes that the largest layer holds for one token of the chunk, or None when the shape is not known.

    Four times the hidden size (residual, norm, input and output of the layer), and the larger of attention and
    feed-forward. Experts first write their outputs apart: experts per token x hidden size (intermediate_cache3 of the
    fused kernel; 8 x 7168 x 2 bytes x 8192 tokens are the 896 MiB of the reference case).
    """
    hidden = geometry.get("hidden_size")
    if not hidden:
        return None
    element = 2
    heads = (geometry.get("attention_heads") or 0) / attention_tp
    head_dim = geometry.get("head_dim") or tables.MLA_NOPE_HEAD_DIM
    value_dim = geometry.get("v_head_dim") or head_dim
    attention = heads * (2 * head_dim + 2 * value_dim)
    inner = (geometry.get("intermediate_size") or 0) / max(ranks, 1)
    forward = 3 * inner
    if geometry.get("experts"):
        chosen = geometry.get("experts_per_token") or tables.EXPERTS_PER_TOKEN_UNKNOWN
        expert = (geometry.get("moe_intermediate_size") or 0) / max(ranks, 1)
        forward = max(forward, chosen * (hidden + 3 * expert))
    return element * (4 * hidden + max(attention, forward))


def _chunk(situation):
    tokens = activation_tokens(situation)
    per_token = activation_bytes_per_token(situation.geometry, situation.attention_tp, situation.ranks)
    if per_token is None:
        gib = tokens * tables.ACTIVATION_UNKNOWN_MIB_PER_TOKEN / tables.MIB_PER_GIB
        note = f"{tokens:,} tokens: {tables.ACTIVATION_UNKNOWN_SOURCE}"
    else:
        gib = tokens * per_token * tables.ACTIVATION_WASTE / GIB
        note = f"{tokens:,} tokens x {per_token:,.0f} bytes, {tables.ACTIVATION_SOURCE}"
    return [_row("activations of a chunk", gib, ASSUMED, note, LOAD, gib / tables.ACTIVATION_WASTE)]


def _context(situation):
    geometry = situation.geometry
    if geometry.get("attention") != "mla":
        return []
    tokens = min(situation.context_tokens, tables.MLA_PREFIX_TOKENS)
    heads = (geometry.get("attention_heads") or 0) / situation.attention_tp
    rope = geometry.get("qk_rope_head_dim") or 0
    latent = (geometry.get("kv_lora_rank") or 0) + rope
    value_dim = geometry.get("v_head_dim") or tables.MLA_NOPE_HEAD_DIM
    gib = tokens * (heads * (tables.MLA_NOPE_HEAD_DIM + rope + value_dim) + latent) * 2 / GIB
    return [_row("long context", gib, TABLE, tables.MLA_PREFIX_SOURCE, LOAD)]


def _both(situation):
    if not situation.geometry.get("index_head_dim"):
        return []
    gib = activation_tokens(situation) * situation.context_tokens * 4 / GIB
    return [_row("sparse index", gib, TABLE, tables.SPARSE_INDEX_SOURCE, LOAD)]


def _margin(situation):
    if situation.min_least_free_gib is not None:
        return [_row("least free", situation.min_least_free_gib, GIVEN, "min_least_free_gib", FLOOR)]
    cpu = situation.device == "cpu"
    share = tables.CPU_MARGIN_SHARE if cpu else tables.MARGIN_SHARE
    least = tables.CPU_MARGIN_LEAST_GIB if cpu else tables.MARGIN_LEAST_GIB
    note = tables.CPU_MARGIN_SOURCE if cpu else tables.MARGIN_SOURCE
    return [_row("least free", max(least, share * situation.before_gib), ASSUMED, note, FLOOR, 0.0)]


PARTS = (
    _runtime,
    _decode_graphs,
    _prefill_graphs,
    _request_table,
    _speculation,
    _extras,
    _chunk,
    _context,
    _both,
    _margin,
)


def rows(situation):
    """Return the rows of the reserve of one configuration, before anything was measured."""
    return [row for part in PARTS for row in part(situation)]


# ---------------------------------------------------------------------------
# What was measured
# ---------------------------------------------------------------------------


def with_measurement(found, situation, measured):
    """Return the rows with a start-up's own figures in place of the table's, where the start-up gives them."""
    result = list(found)
    ready = _measured_ready_gib(measured)
    if ready is not None:
        row = _row("taken until ready", ready, MEASURED, "free after load less pool less headroom of a start-up", READY)
        result = [row] + [one for one in result if one.phase != READY]
    elif measured.get("graph_gib") is not None:
        graphs = ("decode graphs", "prefill graphs")
        row = _row("graphs", float(measured["graph_gib"]), MEASURED, "graph capture of a start-up", READY)
        result = [row] + [one for one in result if one.name not in graphs]
    headroom, least = measured.get("headroom_gib"), measured.get("least_free_gib")
    if headroom is not None and least is not None:
        gib = max(0.0, float(headroom) - float(least))
        row = _row("taken by the load", gib, MEASURED, "headroom less least free of a soak", LOAD)
        result = [row] + [one for one in result if one.phase != LOAD]
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
    return sum(row.certain_gib if certain else row.gib for row in found if row.phase == phase)


def ready_gib(found):
    """Return what is taken between the sizing of the pool and ready."""
    return _sum(found, READY)


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
    """Return {needed_gib, certain_gib}: the reserve that keeps the floors, and how much of it is beyond doubt.

    A declared floor at ready takes the place of what the load is thought to need; with a declared floor under load,
    both are kept.
    """
    ready, load, floor = ready_gib(found), load_gib(found), least_free_floor_gib(found)
    certain = _sum(found, READY, certain=True) + _sum(found, LOAD, certain=True)
    needed = ready + load + floor
    if situation.min_headroom_gib is not None:
        at_ready = ready + situation.min_headroom_gib
        needed = at_ready if situation.min_least_free_gib is None else max(at_ready, needed)
        certain = max(at_ready, certain) if situation.min_least_free_gib is not None else at_ready
    elif situation.min_least_free_gib is not None:
        certain += floor
    return {"needed_gib": needed, "certain_gib": certain}


def engine_default_fraction(situation, board_mib):
    """Return the fraction that the engine itself would take (0.5.3 and later, no multimodal model), or None."""
    batch = situation.decode_batch
    reserved = tables.RUNTIME_GIB * tables.MIB_PER_GIB
    reserved += tables.DEFAULT_ACTIVATION_MIB_PER_TOKEN * max(activation_tokens(situation), 2048)
    reserved += situation.ranks / 8.0 * tables.MIB_PER_GIB
    if not _disabled(situation, "decode"):
        reserved += batch * tables.DECODE_GRAPH_MIB_PER_REQUEST
    reserved += prefill_graph_gib(situation) * tables.MIB_PER_GIB
    if board_mib > tables.DEFAULT_FLOOR_ABOVE_MIB:
        reserved = max(reserved, tables.DEFAULT_FLOOR_MIB)
    return round((board_mib - reserved) / board_mib, 3) if reserved < board_mib else None
