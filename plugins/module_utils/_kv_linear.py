# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: models with mamba, linear-attention or convolution layers. Private to the collection.

These layers keep a state per request slot and nothing per token. The engine takes the slots out of REST first, and the
pool of tokens gets what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    UnknownLayout,
    argument_number,
    geometry_number,
    is_on,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_draft import (
    algorithm_of,
    draft_tokens,
    running_requests,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import (
    EXTRA_BUFFER_ARCHITECTURES,
    EXTRA_BUFFER_SINCE,
    STATE_RATIO,
    STATE_RULES,
    StateRule,
)

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class State:
    """The states of requests on one rank. C(slots) None: as many as the share C(ratio) / (1 + ratio) of REST gives."""

    slot_bytes: int
    layers: int
    slots: int | None
    ratio: float
    draft_tokens: int
    scratch_requests: int  # requests that speculation keeps copies for, before the slots cap them
    slots_per_request: int
    rule: StateRule


def _dtype_bytes(name, what):
    size = _DTYPE_BYTES.get(str(name).replace("torch.", ""))
    if size is None:
        raise UnknownLayout(f"{what} {name}", "known are " + ", ".join(_DTYPE_BYTES))
    return size


def slot_layer_bytes(state, attention_tp, arguments, environment):
    """Return the bytes of one request's state in one layer on one rank (srt/configs/mamba_utils.py)."""

    def field(name):
        return geometry_number(state.get(name), name, minimum=0, where="the state in the geometry")

    conv_bytes = _dtype_bytes(environment.get("SGLANG_MAMBA_CONV_DTYPE") or "bfloat16", "the convolution type")
    chosen = arguments.get("mamba-ssm-dtype") or environment.get("SGLANG_MAMBA_SSM_DTYPE") or state.get("dtype")
    if state.get("kind") == "kda" and not arguments.get("mamba-ssm-dtype"):
        chosen = environment.get("SGLANG_MAMBA_SSM_DTYPE")  # the class does not read its configuration
    state_bytes = _dtype_bytes(chosen or "float32", "mamba-ssm-dtype")
    heads, head_dim, kernel = field("heads"), field("head_dim"), field("conv_kernel")
    channels = field("channels")
    window = max(kernel - 1, 0)
    if state.get("kind") == "kda":
        _divides(heads, attention_tp, "heads of the state")
        conv = window * 3 * (channels // attention_tp)
        numbers = heads // attention_tp * head_dim * head_dim
    elif state.get("kind") == "mamba1":
        _divides(channels, attention_tp, "channels of the convolution")
        conv = channels // attention_tp * window
        numbers = channels // attention_tp * field("state_size")
    elif state.get("kind") == "mamba2":
        size, groups = field("state_size"), field("groups")
        if groups % attention_tp:
            groups += attention_tp - groups  # groups are repeated so that every rank has those of its heads
        _divides(channels + 2 * groups * size, attention_tp, "channels of the convolution")
        _divides(heads, attention_tp, "heads of the state")
        conv = (channels + 2 * groups * size) // attention_tp * window
        numbers = heads // attention_tp * head_dim * size
    else:
        raise UnknownLayout(f"the state {state.get('kind')} of the geometry", "known are mamba1, mamba2 and kda")
    return conv * conv_bytes + numbers * state_bytes


def _divides(number, ranks, what):
    if number % ranks:
        raise LayoutError(
            f"Expected the {number} {what} to be a multiple of the {ranks} attention ranks: change tp-size in the"
            " server arguments."
        )


def state_of(geometry, arguments, engine_version, shared, ranges, environment, notes):
    """Return the State, or None for a model without states. C(ranges): the layers of the pipeline stages."""
    pattern = str(geometry.get("layer_pattern") or "")
    node = geometry.get("state")
    if not isinstance(node, dict) or not set(pattern) & {"s", "b"}:
        return None
    if not version_at_least(engine_version, "0.5.4"):
        notes.append(f"the states of SGLang {engine_version} are taken by the rule of 0.5.4")
    if is_on(arguments.get("enable-linear-replayssm-spec")):
        raise UnknownLayout("the server argument enable-linear-replayssm-spec")
    rule = [row for row in STATE_RULES if version_at_least(engine_version, row.since)][-1]
    counts = [sum(pattern[first:end].count(letter) for letter in "sb") for first, end in ranges]
    layers = max(counts) if rule.stage_share else sum(counts)
    slot = slot_layer_bytes(node, shared.attention_tp, arguments, environment) * layers
    drafts = 0
    if algorithm_of(arguments):
        drafts = draft_tokens(geometry, arguments, engine_version)
    return State(
        slot_bytes=slot,
        layers=layers,
        slots=_slots(arguments, engine_version, rule, shared.pools, slot),
        ratio=_ratio(arguments),
        draft_tokens=drafts,
        scratch_requests=running_requests(arguments, shared.pools) if drafts else 0,
        slots_per_request=_slots_per_request(geometry, arguments, engine_version, drafts),
        rule=rule,
    )


def _slots(arguments, engine_version, rule, pools, slot_bytes):
    """Return the number of slots when it is given, else None."""
    stated = argument_number(arguments, "max-mamba-cache-size")
    requests = argument_number(arguments, "max-running-requests")
    radix_off = is_on(arguments.get("disable-radix-cache"))
    if stated is not None and (radix_off or not rule.radix_only):
        return max(1, stated // pools)
    if radix_off or not slot_bytes:
        if requests is not None:
            return max(1, requests // pools)
        if not version_at_least(engine_version, "0.5.9"):
            return max(1, 512 // pools)
    return None


def _ratio(arguments):
    value = arguments.get("mamba-full-memory-ratio")
    if value is None:
        return STATE_RATIO
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 < number < 1e6:
        raise LayoutError(
            f"Expected a number above 0 for the server argument mamba-full-memory-ratio, found {value!r}."
        )
    return number


def _slots_per_request(geometry, arguments, engine_version, drafts):
    """Return how many slots one running request takes: 1 without the radix cache, else 3 and what tracks the prefix."""
    if is_on(arguments.get("disable-radix-cache")):
        return 1
    strategy = str(
        arguments.get("mamba-radix-cache-strategy") or arguments.get("mamba-scheduler-strategy") or "auto"
    ).lower()
    overlap = not is_on(arguments.get("disable-overlap-schedule"))
    if strategy == "auto":
        since = version_at_least(engine_version, EXTRA_BUFFER_SINCE)
        has_it = geometry.get("architecture") in EXTRA_BUFFER_ARCHITECTURES
        strategy = "extra_buffer" if since and has_it and overlap else "no_buffer"
    if strategy == "extra_buffer_lazy":
        return 4
    if strategy != "extra_buffer":
        return 3
    if not version_at_least(engine_version, "0.5.10"):
        return 4 if drafts else 5
    return 5 if overlap else 4


@dataclass(frozen=True)
class Charge:
    """What states take of REST. All in bytes, C(slots) and C(requests) are numbers; C(left_bytes) is for tokens."""

    slots: int
    state_bytes: int
    scratch_bytes: int
    left_bytes: int
    requests: int  # running requests that the slots allow


def charge(state, rest_bytes):
    """Return the Charge of C(state) for C(rest_bytes), by the rule of the engine."""
    size, drafts, rest = state.slot_bytes, state.draft_tokens, rest_bytes
    per_request = state.slots_per_request
    scratch = 0
    if drafts and state.rule.scratch_first:
        scratch = size * state.scratch_requests * drafts
        rest -= scratch
    share = rest * state.ratio / (1 + state.ratio)
    slots = state.slots
    if slots is None:
        if drafts and state.rule.share_with_drafts:
            slots = int(share // size // (1 + drafts))
        elif drafts and state.rule.joint:
            first = size * (1 + drafts) if state.rule.padding else 0
            slots = int((share - first) // (size * (1 + drafts / per_request)))
        else:
            slots = int((share - size * state.rule.padding) // size)
    slots = max(slots, 0)
    if drafts and state.rule.joint:
        requests = min(state.scratch_requests, slots // per_request)
        scratch = size * (requests + state.rule.padding) * drafts
        rest -= scratch
    taken = (slots + state.rule.padding) * size
    if drafts and state.rule.share_with_drafts:
        scratch = slots * size * drafts
        rest -= scratch
    return Charge(slots, taken, scratch, int(rest - taken), slots // per_request)


def rest_for_left(state, left_bytes):
    """Return the REST from which on at least C(left_bytes) are left for tokens, and slots for one request.

    With a share of REST it is the bad end of any number of slots.
    """
    size, drafts = state.slot_bytes, state.draft_tokens
    if state.slots is not None:
        known = charge(state, 0)
        return left_bytes + known.state_bytes + known.scratch_bytes
    scratch = size * state.scratch_requests * drafts if drafts and state.rule.scratch_first else 0
    each, first = size, size * state.rule.padding
    if drafts and state.rule.share_with_drafts:
        each = size * (1 + drafts)
    elif drafts and state.rule.joint:
        each, first = size * (1 + drafts / state.slots_per_request), first * (1 + drafts)
    one_request = (each * state.slots_per_request + first) * (1 + state.ratio) / state.ratio
    return max(math.ceil(left_bytes * (1 + state.ratio)), math.ceil(one_request)) + scratch + 1
