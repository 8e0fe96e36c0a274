# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: the second pool for window layers, its size and the three rules by version. Private."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._families import WINDOW_FAMILIES
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    UnknownLayout,
    argument_number,
    field_of,
    is_on,
    whole_number,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_draft import alloc_tokens, draft_tokens
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import WINDOW_OFF

REQUEST_CAP_SINCE = "0.5.14"  # SWAChunkCapPoolConfigurator in 0.5.14, SWARequestCapPoolConfigurator from 0.5.22 on
FLOOR_SINCE = "0.5.16"
EVICTION_INTERVAL_TOKENS = 128  # SGLANG_SWA_EVICTION_INTERVAL, srt/environ.py


@dataclass(frozen=True)
class WindowRule:
    """How versions from C(since) on share the pool. C(two_step): first as if all layers were full, then split again."""

    since: str
    two_step: bool
    unequal: bool  # the first step knows the size of window layers
    source: str


WINDOW_RULES = (
    WindowRule("0.0", True, False, "sglang 0.5.8 srt/model_executor/model_runner_kv_cache_mixin.py"),
    WindowRule("0.5.9", True, True, "sglang 0.5.9 and 0.5.10 srt/model_executor/model_runner_kv_cache_mixin.py"),
    WindowRule("0.5.11", False, True, "sglang 0.5.11 srt/model_executor/pool_configurator.py"),
)


@dataclass(frozen=True)
class TwoStep:
    """Versions up to 0.5.10: tokens = (REST // cell) x numerator / denominator, the cap acts before the split."""

    cell: int
    numerator: float
    denominator: float


def _family_of(geometry):
    """Return the row of WINDOW_FAMILIES of this architecture, or None."""
    architecture = geometry.get("architecture")
    return next((row for row in WINDOW_FAMILIES if architecture in row.architectures), None)


def pools_apart(geometry, arguments, engine_version, notes):
    """Return whether the window layers have a pool of their own in this version with these arguments."""
    if "w" not in str(geometry.get("layer_pattern") or ""):
        return False
    architecture, family = geometry.get("architecture"), _family_of(geometry)
    if is_on(arguments.get("disable-hybrid-swa-memory")):
        notes.append("disable-hybrid-swa-memory keeps full rows for the window layers")
        return False
    if family is not None and not version_at_least(engine_version, family.since):
        return _before(family, architecture, arguments, engine_version, notes)
    for row in WINDOW_OFF:
        if architecture in row.architectures and row.applies(arguments, engine_version):
            notes.append(f"{row.argument} keeps full rows for the window layers ({row.source})")
            return False
    return True


def _before(family, architecture, arguments, engine_version, notes):
    if family.before == "plain":
        if architecture.startswith("Llama4") and arguments.get("hybrid-kvcache-ratio") is not None:
            raise UnknownLayout("hybrid-kvcache-ratio", "the split depends on the context length there")
        notes.append(f"SGLang {engine_version} keeps full rows for the window layers of {architecture}")
        return False
    notes.append(f"{architecture} is known since SGLang {family.since}, the rule nearest to {engine_version} is taken")
    return True


def ratio_of(geometry, arguments):
    """Return the window tokens per pool token."""
    value = arguments.get("swa-full-tokens-ratio")
    if value is None:
        family = _family_of(geometry)
        return family.ratio if family else 0.8
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 < number <= 1:
        raise LayoutError(
            f"Expected a number above 0 and up to 1 for the server argument swa-full-tokens-ratio, found {value!r}."
        )
    return number


def rule_of(engine_version):
    return [row for row in WINDOW_RULES if version_at_least(engine_version, row.since)][-1]


def floor_tokens(geometry, engine_version, page_tokens):
    """Return the window tokens that the engine refuses (this many or fewer), or None."""
    window = geometry.get("window_tokens")
    if window is None or not version_at_least(engine_version, FLOOR_SINCE):
        return None
    return field_of(geometry, "window_tokens") + page_tokens


def fixed_tokens(geometry, arguments, engine_version, page_tokens, replicas, environment, notes):
    """Return the window tokens when the pool is sized from the running requests, else None.

    So it is with the radix cache off and max-running-requests given (0.5.14 and later): what every request may hold at
    once, and two chunks on their way.
    """
    requests = argument_number(arguments, "max-running-requests")
    if (
        requests is None
        or geometry.get("window_tokens") is None
        or not is_on(arguments.get("disable-radix-cache"))
        or not version_at_least(engine_version, REQUEST_CAP_SINCE)
    ):
        return None
    decode = str(arguments.get("disaggregation-mode") or "null") == "decode"
    chunk = arguments.get("chunked-prefill-size")
    if chunk is None:
        chunk = 8192
        notes.append("the window pool is sized for chunks of 8,192 tokens, chunked-prefill-size is not given")
    chunk = int(chunk) if str(chunk).strip().lstrip("-").isdigit() else whole_number(chunk, "chunked-prefill-size")
    if chunk <= 0 and not decode:
        return None
    window = field_of(geometry, "window_tokens")
    interval = whole_number(
        environment.get("SGLANG_SWA_EVICTION_INTERVAL", EVICTION_INTERVAL_TOKENS),
        "SGLANG_SWA_EVICTION_INTERVAL in the environment",
        0,
    )
    drafts = draft_tokens(geometry, arguments, engine_version) or 1
    trailing = window + max(1, interval) * drafts + page_tokens
    per_request = trailing + alloc_tokens(geometry, arguments, engine_version, page_tokens)
    number = max(1, requests // replicas)
    if decode:
        extra = argument_number(arguments, "disaggregation-decode-extra-slots", 0, minimum=0)
        cap = per_request * number + (window + page_tokens) * extra
    else:
        chunks = 1 if is_on(arguments.get("disable-overlap-schedule")) else 2
        cap = per_request * number + chunks * chunk + page_tokens
    return -(-cap // page_tokens) * page_tokens
