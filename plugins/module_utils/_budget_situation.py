# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, one configuration and one row of its reserve: types, and readers of the server arguments. Private."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import LayoutError, argument_number
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_draft import algorithm_of

GIB = float(2**30)
READY, LOAD, FLOOR = "ready", "load", "floor"
MEASURED, TABLE, ASSUMED, GIVEN = "measured", "table", "assumed", "given"


@dataclass(frozen=True)
class Situation:
    """One configuration, as far as the reserve depends on it. C(before_gib) is 0 when free before load is not known.

    C(draft_gib): draft weights that lie outside the fraction; C(cell): the Cell of the room kv, or None.
    """

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
    cell: object | None = None
    multimodal: bool = False
    unified: bool = False  # boards that use the memory of the machine
    data_parallel: int = 1
    state_requests: int | None = None  # requests that the state slots of a linear-attention model admit
    environment: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One part of the reserve. C(gib) is the most that is known to be taken, so that the floors are safe.

    C(certain_gib): what of it is not the allowance for what is not known; C(least_gib): the good end, the least that is
    taken; C(grows): what makes it larger: chunk, context, both, batch, pool or nothing.
    """

    name: str
    gib: float
    source: str
    note: str
    phase: str
    certain_gib: float
    grows: str
    least_gib: float

    def as_dict(self):
        return {
            "name": self.name,
            "gib": round(self.gib, 4),
            "source": self.source,
            "note": self.note,
            "part": self.phase,
            "grows": self.grows,
        }


def row(name, gib, source, note, phase, certain_gib=None, grows="", least_gib=None):
    """Return a Row; without C(certain_gib) all of it is certain, without C(least_gib) it is never less."""
    certain = gib if certain_gib is None else certain_gib
    return Row(name, gib, source, note, phase, certain, grows, gib if least_gib is None else least_gib)


# ---------------------------------------------------------------------------
# Arguments that the rows look at
# ---------------------------------------------------------------------------


def declared_decode_batch(arguments):
    """Return the largest batch of the decode graphs that the user declared, or None."""
    for name in ("cuda-graph-max-bs-decode", "cuda-graph-max-bs"):
        if arguments.get(name) is not None:
            return argument_number(arguments, name)
    for name in ("cuda-graph-bs-decode", "cuda-graph-bs"):
        sizes = arguments.get(name)
        if isinstance(sizes, str):
            sizes = sizes.replace(",", " ").split()  # as it is written on a command line
        elif sizes is not None and not isinstance(sizes, (list, tuple)):
            sizes = [sizes]
        if sizes is not None:
            if not sizes:
                raise LayoutError(f"Expected sizes of graphs for the server argument {name}, found none: take it out.")
            return max(_kv.whole_number(one, "the server argument " + name) for one in sizes)
    return None


def on(situation, name):
    return _kv.is_on(situation.arguments.get(name, False)) if situation.arguments.get(name) is not None else False


def disabled(situation, phase):
    names = {
        "decode": ("disable-decode-cuda-graph",),
        "prefill": ("disable-prefill-cuda-graph", "disable-piecewise-cuda-graph"),
    }
    backend = situation.arguments.get("cuda-graph-backend-" + phase)
    switched_off = any(on(situation, name) for name in ("disable-cuda-graph",) + names[phase])
    return situation.device == "cpu" or switched_off or str(backend).lower() == "disabled"


def algorithm(situation):
    return algorithm_of(situation.arguments) or ""


def draft_reserve(situation):
    """Return (GiB that the engine itself keeps for a draft outside the fraction, source), or None where it keeps none.

    So it is before 0.5.14; with a version that is not known the draft is inside.
    """
    name, version = algorithm(situation), situation.engine_version
    if not name or name == "NGRAM" or version is None:
        return None
    for one in tables.SPECULATION:
        if version_at_least(version, one.since) and not version_at_least(version, one.until):
            return (one.standalone_gib if name == "STANDALONE" else one.gib), one.source
    return None


def data_parallel_mib(situation):
    """Return the MiB that the engine's own default keeps for data-parallel attention, 0 without it."""
    if not on(situation, "enable-dp-attention"):
        return 0.0
    batch = situation.decode_batch
    large = tables.DP_ATTENTION_LARGE_MIB if batch > tables.DP_ATTENTION_LARGE_BATCH else 0.0
    return batch * attention_groups(situation) * (tables.DP_ATTENTION_MIB + large)


def attention_groups(situation):
    """Return the groups of data-parallel attention, each of which takes its share of a chunk; 1 without it.

    Source: chunked_prefill_size // dp_size, sglang 0.5.6 and 0.5.14 server_args.py, 0.5.23 parallel_hook.py.
    """
    arguments = situation.arguments
    if not on(situation, "enable-dp-attention"):
        return 1
    return argument_number(arguments, "attn-dp-size", argument_number(arguments, "dp-size", 1))


def activation_tokens(situation):
    """Return the tokens of one prefill step: the chunk, or --max-prefill-tokens when chunking is off (-1)."""
    if situation.chunk_tokens and situation.chunk_tokens > 0:
        return situation.chunk_tokens
    limit = argument_number(situation.arguments, "max-prefill-tokens", tables.MOST_PREFILL_TOKENS)
    return max(limit, situation.context_tokens)  # one prompt is never split then


def running_requests(situation):
    """Return the requests that the engine admits per data-parallel rank: as declared, or its own default."""
    if situation.max_running_requests:
        requests = max(1, situation.max_running_requests // situation.data_parallel)
    elif algorithm(situation) and version_at_least(situation.engine_version, "0.4.9"):
        requests = tables.SPECULATIVE_MAX_RUNNING_REQUESTS
    else:
        requests = _kv.default_max_running_requests(
            situation.pool_tokens, situation.context_tokens, situation.engine_version
        )
    return requests if situation.state_requests is None else max(1, min(requests, situation.state_requests))
