# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: speculation. Which draft layers are charged, which come out of the headroom. Private."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    UnknownLayout,
    argument_number,
    geometry_number,
    is_on,
    kv_heads_per_rank,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import (
    BUILT_IN_DRAFTS,
    DRAFT_PATH_IS_MODEL,
    DRAFT_RULES,
    SPECULATION_DEFAULTS,
)

CHARGED_SINCE = "0.5.14"
PATHLESS_SINCE = "0.5.20"  # from here on a draft inside the target is charged by the target's own configuration
ENLARGED_BEFORE = "0.5.7"  # up to 0.5.6 the pool grows after it was sized
DEFAULT_REQUESTS = 48  # max-running-requests that speculation sets when nothing is given (since 0.4.9)


@dataclass(frozen=True)
class Draft:
    """Speculation as far as the pool is concerned. C(effect): none, layers, scaled, own."""

    algorithm: str
    effect: str
    charged_layers: int
    outside_layers: int
    source: str


def algorithm_of(arguments):
    """Return the algorithm in capitals, or None without speculation."""
    value = arguments.get("speculative-algorithm")
    if value is None or str(value).strip().lower() in ("", "none"):
        return None
    return str(value).strip().upper()


def draft_of(geometry, arguments, engine_version):
    """Return the Draft of these arguments, or None without speculation. Raises UnknownLayout."""
    algorithm = algorithm_of(arguments)
    if algorithm is None:
        return None
    rows = [row for row in DRAFT_RULES if row.algorithm == algorithm and version_at_least(engine_version, row.since)]
    if not rows:
        raise UnknownLayout(f"speculative-algorithm {algorithm}")
    row = rows[-1]
    if row.effect == "none":
        return Draft(algorithm, "none", 0, 0, row.source)
    charged, real = _layers(geometry, arguments, algorithm, engine_version, row.effect)
    if row.effect == "outside":
        return Draft(algorithm, "outside", 0, real, row.source)
    return Draft(algorithm, row.effect, charged, max(real - charged, 0), row.source)


def _layers(geometry, arguments, algorithm, engine_version, effect):
    """Return (draft layers that the engine charges, draft layers that there are)."""
    stated = geometry.get("draft_layers")
    if stated is None and isinstance(geometry.get("draft_geometry"), dict):
        stated = geometry["draft_geometry"].get("layers")
    if stated is not None:
        number = geometry_number(stated, "draft_layers", minimum=0)
        return number, number
    path = arguments.get("speculative-draft-model-path")
    built_in = geometry.get("nextn_layers")
    architecture = geometry.get("architecture")
    if path and str(path) != str(arguments.get("model-path")):
        built_in = None
    elif built_in is None and architecture in BUILT_IN_DRAFTS:
        return _built_in(geometry, path, architecture, engine_version)
    if built_in is None:
        if effect == "outside":
            return 0, 0  # not charged, and how much it takes is said in the note
        raise UnknownLayout(
            f"speculative-algorithm {algorithm}", "the number of layers of the draft model is not given"
        )
    number = geometry_number(built_in, "nextn_layers", minimum=0)
    known = architecture is None or path or architecture in DRAFT_PATH_IS_MODEL
    if not known and not version_at_least(engine_version, PATHLESS_SINCE):
        return 0, max(number, 1)
    return number, number


def _built_in(geometry, path, architecture, engine_version):
    """A draft layer inside the checkpoint of which the configuration does not speak: charged only with a path."""
    real = geometry_number(geometry.get("mtp_layers") or 1, "mtp_layers")
    if path or (architecture in DRAFT_PATH_IS_MODEL and version_at_least(engine_version, CHARGED_SINCE)):
        return 1, real
    return 0, real


def draft_tokens(geometry, arguments, engine_version):
    """Return the draft tokens of one verification step, 0 without speculation. Raises UnknownLayout."""
    steps, topk, tokens = speculation_numbers(geometry, arguments, engine_version)
    return tokens


def speculation_numbers(geometry, arguments, engine_version):
    """Return (steps, width of the tree, draft tokens), zeros without speculation.

    What is not given is what the engine chooses itself (_auto_choose_speculative_params).
    """
    algorithm = algorithm_of(arguments)
    if algorithm is None:
        return 0, 0, 0
    names = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
    steps, topk, tokens = (argument_number(arguments, name, minimum=0) for name in names)
    if algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE"):
        if steps is None and topk is None and tokens is None:
            row = _default_row(geometry.get("architecture"), algorithm, engine_version)
            return row.steps, row.topk, row.draft_tokens
        if topk == 1 and steps is not None:
            tokens = steps + 1  # the engine corrects it so
    if tokens is None:
        raise UnknownLayout(f"speculative-algorithm {algorithm}", "speculative-num-draft-tokens is not given")
    return steps or 1, topk or 1, tokens


def _default_row(architecture, algorithm, engine_version):
    rows = [
        row
        for row in SPECULATION_DEFAULTS
        if (row.architecture is None or row.architecture == architecture)
        and (row.algorithm is None or row.algorithm == algorithm)
        and version_at_least(engine_version, row.since)
    ]
    return rows[-1]


def alloc_tokens(geometry, arguments, engine_version, page_tokens):
    """Return the tokens that one request may allocate in a decode step, both halves of the overlap schedule."""
    steps, topk, tokens = speculation_numbers(geometry, arguments, engine_version)
    if not tokens:
        return page_tokens
    if is_on(arguments.get("disable-overlap-schedule")):
        one_branch, verify = steps, tokens
        if page_tokens > 1:
            one_branch = _up(steps + page_tokens if topk > 1 else steps, page_tokens)
            verify = _up(tokens, page_tokens)
        return max(one_branch * topk, verify)
    if page_tokens == 1 or topk == 1:
        return 2 * max(steps * topk, tokens)
    pages = (page_tokens - 1 + steps + page_tokens - 1) // page_tokens
    return 2 * max(pages * page_tokens * topk, tokens)


def _up(tokens, page_tokens):
    return -(-tokens // page_tokens) * page_tokens


def enlarged_tokens(geometry, arguments, engine_version, replicas):
    """Return the tokens that versions up to 0.5.6 add to the sized pool, which then come out of the headroom."""
    algorithm = algorithm_of(arguments)
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") or version_at_least(engine_version, ENLARGED_BEFORE):
        return 0
    steps, topk, tokens = speculation_numbers(geometry, arguments, engine_version)
    requests = running_requests(arguments, replicas)
    return requests * steps * topk + requests * tokens + 100


def running_requests(arguments, replicas):
    """Return max-running-requests per data-parallel rank as speculation sees it."""
    return max(1, argument_number(arguments, "max-running-requests", DEFAULT_REQUESTS) // replicas)


def own_cell_bytes(geometry, attention_tp, element_bytes):
    """Return the KV bytes of one token in a draft model of its own geometry (DFLASH), or None when it is not given."""
    draft = geometry.get("draft_geometry")
    names = ("layers", "kv_heads", "head_dim")
    if not isinstance(draft, dict) or any(draft.get(name) is None for name in names):
        return None
    layers, kv_heads, head_dim = (geometry_number(draft[name], name, where="the draft geometry") for name in names)
    v_head_dim = geometry_number(draft.get("v_head_dim") or head_dim, "v_head_dim", where="the draft geometry")
    return kv_heads_per_rank(kv_heads, attention_tp) * (head_dim + v_head_dim) * layers * element_bytes
