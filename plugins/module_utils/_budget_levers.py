# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the levers. What could be moved and what it buys, in GiB and in tokens, smallest change first. Private.

The plan moves chunk, decode-graph batch and allocator itself when they are auto. All others change quality or contract
and are only advised.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_allocator as allocator
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_before as before_load
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_reserve as reserve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_situation as situations
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_solve as solve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_explain import PREFIX
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least

GIB = float(2**30)
OF_ARGUMENTS = "arguments: "
MODEST_RUNNING_REQUESTS = 256
SMALLEST_WINDOW_RATIO = 0.05


def _paste(name, value):
    """Return a lever as a line of an inventory: an option of the role, or one of the server arguments."""
    text = str(value).lower() if isinstance(value, bool) else value
    if not name.startswith(OF_ARGUMENTS):
        return f"{PREFIX}{name}: {text}"
    return f"{PREFIX}arguments: {{{name[len(OF_ARGUMENTS) :]}: {text}}}"


def _lever(base, name, before, after, gib, automatic, note="", paste=None):
    return {
        "lever": name,
        "paste": paste or _paste(name, after),
        "from": before,
        "to": after,
        "gib": round(gib, 3),
        "tokens": int(gib * GIB // base.cell.bytes),
        "automatic": automatic,
        "note": note,
    }


def levers(inp, base, options, chosen, target, fits):
    """Return the levers that buy something, smallest change first, as plain dictionaries.

    C(gib) and C(tokens) are what each buys on its own, seen from the engine's own settings. C(automatic): the plan
    moves it by itself. C(target): the tokens wanted; C(fits): the most that would be feasible without any of them.
    """
    found = _chunk_and_batch(inp, base, options)
    found += _allocator(inp, base)
    found += _running_requests(inp, base, chosen, target)
    found += _prefill_graphs(inp, base, chosen, target)
    found += _window_ratio(inp, base, target, fits)
    found += _context(inp, base, chosen, target)
    found += _kv_dtype(inp, base, target, fits)
    found += _tensor_parallel(inp, base, target, fits)
    found += _emptier_gpus(inp, base, target, fits)
    return [one for one in found if one["gib"] > 0.005]


def _chunk_and_batch(inp, base, options):
    found = []
    for previous, one in zip(options, options[1:]):
        gib = previous.needed_gib - one.needed_gib
        if one.chunk_tokens != previous.chunk_tokens:
            found.append(_lever(base, "chunked_prefill_size", previous.chunk_tokens, one.chunk_tokens, gib, True))
        else:
            paste = _paste(OF_ARGUMENTS + solve.batch_argument(inp), one.decode_batch)
            sizes = previous.decode_batch, one.decode_batch
            found.append(_lever(base, "decode_graph_batch", *sizes, gib, True, paste=paste))
    declared = inp.chunk_tokens
    if declared is not None and declared > tables.SMALLEST_CHUNK_TOKENS:
        freed = solve.candidates(replace(inp, chunk_tokens=declared // 2), base, inp.target_tokens)[0]
        gib = options[0].needed_gib - freed.needed_gib
        found.insert(
            0, _lever(base, "chunked_prefill_size", declared, declared // 2, gib, False, "declared, so not moved")
        )
    return found


def _allocator(inp, base):
    gib = allocator.fragmented_gib(inp)
    if not gib or allocator.allocator_of(inp):
        return []
    why = allocator.allocator_conflict(inp) or "declared, so not moved"
    return [_lever(base, "allocator_conf", "", conflicts.EXPANDABLE_SEGMENTS, gib, False, why)]


def _rows_with(inp, base, chosen, target):
    situation = solve.situation_of(inp, base, target or None, chosen.chunk_tokens, chosen.decode_batch)
    return situation, reserve.need(reserve.rows(situation), situation)["needed_gib"]


def _running_requests(inp, base, chosen, target):
    situation, needed = _rows_with(inp, base, chosen, target)
    now = situations.running_requests(situation)
    if now <= MODEST_RUNNING_REQUESTS:
        return []
    dummy, less = _rows_with(replace(inp, max_running_requests=MODEST_RUNNING_REQUESTS), base, chosen, target)
    note = "fewer requests at a time; the others wait"
    return [_lever(base, "arguments: max-running-requests", now, MODEST_RUNNING_REQUESTS, needed - less, False, note)]


def _context(inp, base, chosen, target):
    situation, needed = _rows_with(inp, base, chosen, target)
    half = situation.context_tokens // 2
    if half < 1024:
        return []
    dummy, less = _rows_with(replace(inp, context_tokens=half), base, chosen, target)
    note = "longer requests are then answered with an error"
    return [_lever(base, "context_tokens", situation.context_tokens, half, needed - less, False, note)]


def _prefill_graphs(inp, base, chosen, target):
    name = "disable-piecewise-cuda-graph"  # on by default from 0.5.10 on, renamed at 0.5.14
    if version_at_least(inp.engine_version, "0.5.14"):
        name = "disable-prefill-cuda-graph"
    if name in inp.arguments or not version_at_least(inp.engine_version, tables.PREFILL_GRAPH_SINCE):
        return []
    arguments = dict(inp.arguments, **{name: True})
    dummy, needed = _rows_with(inp, base, chosen, target)
    dummy, less = _rows_with(replace(inp, arguments=arguments), base, chosen, target)
    note = "short prompts then run without graphs, a little slower"
    return [_lever(base, OF_ARGUMENTS + name, False, True, needed - less, False, note)]


def _replanned(inp, base, target, fits, name, value, note, same_weights=False, **changes):
    """Return [the lever of an argument that changes the cell or the split], by a plan with it; [] where that fails.

    C(gib): what weights and the pool of the target take less; C(tokens): what the largest target grows by.
    C(same_weights): what is gone after the load is what it is now, whatever start-up told it.
    """
    other = replace(inp, arguments=dict(inp.arguments, **{name: value}), keys=None, **changes)
    try:
        there = bases.base_of(other)
        if same_weights:
            there = replace(there, used=base.used, noise=base.noise)
        if not there.complete:
            return []
        leanest = solve.candidates(other, there, target or None)[-1]
        tokens = solve.most_tokens(other, there, leanest) - fits
    except ValueError:
        return []
    gib = base.used.total.gib - there.used.total.gib
    if target:
        gib += (_kv.rest_for(base.cell, target) - _kv.rest_for(there.cell, target)) / GIB
    return [dict(_lever(base, "arguments: " + name, inp.arguments.get(name), value, gib, False, note), tokens=tokens)]


def _window_ratio(inp, base, target, fits):
    ratio = base.cell.window_ratio
    if inp.cell_bytes is not None or not target or not ratio or ratio <= SMALLEST_WINDOW_RATIO:
        return []
    half = max(round(ratio / 2, 3), SMALLEST_WINDOW_RATIO)
    note = "fewer requests at a time fit into the pool of the window layers"
    found = _replanned(inp, base, target, fits, "swa-full-tokens-ratio", half, note, same_weights=True)
    return [dict(one, **{"from": ratio}) for one in found]


def _kv_dtype(inp, base, target, fits):
    if not inp.geometry or inp.cell_bytes is not None or not target or inp.device == "cpu":
        return []
    if not str(base.cell.kv_dtype).startswith(("bf16", "fp16", "fp32")):
        return []
    note = "changes the quality of answers; test it before"
    found = _replanned(inp, base, target, fits, "kv-cache-dtype", "fp8_e4m3", note, same_weights=True)
    return [dict(one, **{"from": base.cell.kv_dtype}) for one in found]


def _tensor_parallel(inp, base, target, fits):
    tp = known.size(inp, "tp-size")
    if inp.device == "cpu" or not inp.gpus or len(inp.gpus) < 2 * known.model_ranks(inp):
        return []
    note = "twice the GPUs; the weights are split further"
    changes = {}
    if base.used.total.source in ("given", "measured"):
        # What somebody stated, or a start-up showed, is of the ranks of now.
        changes = {"weights_gib": base.used.total.gib / 2, "free_after_load_gib": None}
        if inp.free_before_load_gib is None and inp.free_after_load_gib is not None:
            changes["free_before_load_gib"] = base.before.gib
    found = _replanned(inp, base, target, fits, "tp-size", 2 * tp, note, **changes)
    return [dict(one, **{"from": tp}) for one in found]


def _on_gpus_from(inp, place):
    return replace(inp, arguments=dict(inp.arguments, **{"base-gpu-id": place}))


def _emptier_gpus(inp, base, target, fits):
    """Other GPUs of this host on which more is free. C(gib): by how much more the worst of them has before the load."""
    if inp.device == "cpu" or known.size(inp, "nnodes") > 1 or base.before.source != "table" or not inp.gpus:
        return []
    first, last, dummy = known.gpu_range(inp)
    others = [place for place in range(len(inp.gpus) - (last - first)) if place != first]
    free = {place: before_load.free_now(_on_gpus_from(inp, place)) for place in others}
    usable = [place for place in others if free[place] is not None and not free[place].refusal]
    if not usable or base.free is None:
        return []
    best = max(usable, key=lambda place: (free[place].gib, -place))
    if free[best].gib <= base.free.gib:
        return []
    note = "other GPUs of this host, with more free memory now"
    found = _replanned(inp, base, target, fits, "base-gpu-id", best, note)
    return [dict(one, **{"from": first, "gib": round(free[best].gib - base.free.gib, 3)}) for one in found]
