# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the levers. What could be moved and what it buys, in GiB and in tokens, smallest change first. Private.

The plan moves chunk, decode-graph batch and allocator itself when they are auto. All others change quality or contract
and are only advised.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_reserve as reserve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_solve as solve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv

GIB = float(2**30)
MODEST_RUNNING_REQUESTS = 256


def _lever(base, name, before, after, gib, automatic, note=""):
    return {
        "lever": name,
        "from": before,
        "to": after,
        "gib": round(gib, 3),
        "tokens": int(gib * GIB // base.cell),
        "automatic": automatic,
        "note": note,
    }


def levers(inp, base, options, chosen, target, page_size):
    """Return the levers that buy something, smallest change first, as plain dictionaries.

    C(gib) and C(tokens) are what each buys on its own, seen from the engine's own settings. C(automatic): the plan
    moves it by itself.
    """
    found = _chunk_and_batch(inp, base, options)
    found += _allocator(inp, base)
    found += _running_requests(inp, base, chosen, target)
    found += _context(inp, base, chosen, target)
    found += _kv_dtype(inp, base, target)
    found += _tensor_parallel(inp, base)
    return [one for one in found if one["gib"] > 0.005]


def _chunk_and_batch(inp, base, options):
    found = []
    for previous, one in zip(options, options[1:]):
        gib = previous.needed_gib - one.needed_gib
        if one.chunk_tokens != previous.chunk_tokens:
            found.append(_lever(base, "chunked_prefill_size", previous.chunk_tokens, one.chunk_tokens, gib, True))
        else:
            found.append(_lever(base, "decode_graph_batch", previous.decode_batch, one.decode_batch, gib, True))
    declared = inp.chunk_tokens
    if declared is not None and declared > tables.SMALLEST_CHUNK_TOKENS:
        freed = solve.candidates(replace(inp, chunk_tokens=declared // 2), base, inp.target_tokens)[0]
        gib = options[0].needed_gib - freed.needed_gib
        found.insert(
            0, _lever(base, "chunked_prefill_size", declared, declared // 2, gib, False, "declared, so not moved")
        )
    return found


def _allocator(inp, base):
    gib = solve.fragmented_gib(inp)
    if not gib or solve.allocator_of(inp):
        return []
    why = solve.allocator_conflict(inp) or "declared, so not moved"
    return [_lever(base, "allocator_conf", "", tables.EXPANDABLE_SEGMENTS, gib, False, why)]


def _rows_with(inp, base, chosen, target):
    situation = solve.situation_of(inp, base, target or None, chosen.chunk_tokens, chosen.decode_batch)
    return situation, reserve.need(reserve.rows(situation), situation)["needed_gib"]


def _running_requests(inp, base, chosen, target):
    situation, needed = _rows_with(inp, base, chosen, target)
    now = reserve.running_requests(situation)
    if now <= MODEST_RUNNING_REQUESTS:
        return []
    dummy, less = _rows_with(replace(inp, max_running_requests=MODEST_RUNNING_REQUESTS), base, chosen, target)
    note = "fewer requests at a time; the others wait"
    return [_lever(base, "max_running_requests", now, MODEST_RUNNING_REQUESTS, needed - less, False, note)]


def _context(inp, base, chosen, target):
    situation, needed = _rows_with(inp, base, chosen, target)
    half = situation.context_tokens // 2
    if half < 1024:
        return []
    dummy, less = _rows_with(replace(inp, context_tokens=half), base, chosen, target)
    note = "longer requests are then answered with an error"
    return [_lever(base, "context_tokens", situation.context_tokens, half, needed - less, False, note)]


def _kv_dtype(inp, base, target):
    if not inp.geometry or inp.cell_bytes is not None or not target or inp.device == "cpu":
        return []
    try:
        now = _kv.cell_bytes(inp.geometry, inp.arguments, inp.engine_version)
        arguments = dict(inp.arguments, **{"kv-cache-dtype": "fp8_e4m3"})
        small = _kv.cell_bytes(inp.geometry, arguments, inp.engine_version).bytes
    except ValueError:
        return []
    gib = target * (now.bytes - small) / GIB
    note = "changes the quality of answers; test it before"
    return [_lever(base, "arguments: kv-cache-dtype", now.kv_dtype, "fp8_e4m3", gib, False, note)]


def _tensor_parallel(inp, base):
    tp = known.size(inp, "tp-size")
    if inp.device == "cpu" or not inp.gpus or len(inp.gpus) < 2 * known.model_ranks(inp):
        return []
    note = "twice the GPUs; the weights are split further"
    return [_lever(base, "arguments: tp-size", tp, 2 * tp, base.used.gib / 2, False, note)]
