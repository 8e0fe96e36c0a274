# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: compressed attention (DeepSeek-V4). Private to the collection.

Every layer keeps a window of whole rows; some keep one row for 4 tokens with an index row, some one row for 128.
Running requests keep compression states, which are taken off before tokens are counted.
Source: DSV4PoolConfigurator in srt/model_executor/pool_configurator.py of sglang 0.5.14 to 0.5.23.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_draft as draft
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_window as window
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    UnknownLayout,
    argument_number,
    field_of,
    is_on,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_pool import whole
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_rows import part

LAYOUT = "compressed"
PAGE_TOKENS = 256
RATIO = 0.1
ROW_ALIGN_BYTES = 576  # a page is padded to whole rows of this size (0.5.22 and later)
SCALE_BYTES = 8
STATE_BYTES = 4  # SGLANG_DSV4_COMPRESS_STATE_DTYPE float32
STATES_FIXED_SINCE = "0.5.16"
PADDED_SINCE = "0.5.22"
KNOWN_SINCE = "0.5.14"  # earlier versions count the draft layer at the end of compress_ratios too
_UNKNOWN_ENVIRONMENT = (
    "SGLANG_OPT_USE_ONLINE_COMPRESS",
    "SGLANG_DSV4_UNIFIED_KV_FP8",
    "SGLANG_DSV4_KV_LAYOUT",
    "SGLANG_DSV4_COMPRESSED_KV_LAYOUT",
    "SGLANG_DSV4_COMPRESS_STATE_DTYPE",
)
_SOURCE = "DSV4PoolConfigurator"


def stage_facts(plan, stage, notes):
    """Return the parts of the Cell that one pipeline stage decides. C(plan): the checked input of _kv."""
    geometry, arguments, version = plan.geometry, plan.arguments, plan.version
    _refuse(arguments, plan.environment)
    if version_at_least(version, KNOWN_SINCE):
        notes.append("the cell of compressed attention comes from the engine's source, no public start-up confirms it")
    else:  # confirmed by a public start-up: 15955.85 bytes a token for DeepSeek-V4-Flash
        stage = (0, max(len(geometry.get("compress_ratios") or ()), stage[1]))
    ratios = _ratios(geometry, stage)
    layers, fours, many = len(ratios), ratios.count(4), ratios.count(128)
    head_dim, index = field_of(geometry, "head_dim"), field_of(geometry, "index_head_dim")
    rope = field_of(geometry, "qk_rope_head_dim", minimum=0)
    trtllm = str(arguments.get("dsv4-attn-backend") or "") == "trtllm" and version_at_least(version, PADDED_SINCE)
    row = head_dim if trtllm else head_dim - rope + rope * 2 + SCALE_BYTES
    speculative = draft.algorithm_of(arguments) is not None
    ring_4, ring_128 = (16, 256) if speculative else (8, 128)
    state_4 = 4 * (head_dim + index) * STATE_BYTES

    def padded(ratio):
        if trtllm or not version_at_least(version, PADDED_SINCE):
            return row
        page = PAGE_TOKENS // ratio
        return -(-page * row // ROW_ALIGN_BYTES) * ROW_ALIGN_BYTES / page

    per_page = PAGE_TOKENS if version_at_least(version, PADDED_SINCE) else field_of(geometry, "window_tokens")
    window_bytes = padded(1) * layers + ring_4 / per_page * state_4 * fours
    if not version_at_least(version, STATES_FIXED_SINCE):
        window_bytes += ring_128 / per_page * 2 * head_dim * STATE_BYTES * many
    full_bytes = fours * (padded(4) / 4 + (index + index // 128 * 4) / 4) + many * padded(128) / 128
    grown = (layers + 1) / layers if speculative else 1
    requests = _requests(plan, speculative)
    fixed = 0
    if version_at_least(version, STATES_FIXED_SINCE) and many:
        if requests is None:
            raise UnknownLayout(
                "compressed attention without max-running-requests",
                "its states take memory for every running request: state max-running-requests in the server arguments",
            )
        rows = (requests + 1) * ring_128 + ring_128 + 1
        fixed = -(-rows // 128) * 128 * 2 * head_dim * STATE_BYTES * many
    ratio, cap = RATIO, None
    if arguments.get("swa-full-tokens-ratio") is not None:
        ratio = window.ratio_of(geometry, arguments)
    elif version_at_least(version, PADDED_SINCE) and requests is not None:
        cap = _window_cap(plan, requests, notes)
    parts = [part("compressed rows", whole(full_bytes * grown), f"{fours} layers 1:4, {many} layers 1:128, {_SOURCE}")]
    if cap is None:
        parts.append(
            part("window rows", whole(ratio * window_bytes * grown), f"{layers} layers, {ratio} window tokens a token")
        )
    charged = whole(sum(one["bytes"] for one in parts))
    return {
        "layers": layers,
        "bytes": charged,
        "parts": parts,
        "stored_bytes": charged,
        "full_bytes": whole(full_bytes * grown),
        "window_bytes": whole(window_bytes * grown),
        "window_ratio": ratio if cap is None else None,
        "window_fixed_tokens": cap,
        "window_floor_tokens": window.floor_tokens(geometry, version, PAGE_TOKENS) if cap is None else None,
        "fixed_bytes": fixed,
    }


def _refuse(arguments, environment):
    for name in _UNKNOWN_ENVIRONMENT:
        if str(environment.get(name) or "").lower() not in ("", "0", "false", "v4", "auto", "float32"):
            raise UnknownLayout(f"{name} in the environment of the server")
    if str(arguments.get("dsv4-attn-backend") or "") == "flashmla_mega":
        raise UnknownLayout("the server argument dsv4-attn-backend flashmla_mega")
    for name in ("enable-encoder-swa-bounded-replay", "enable-deepseek-v4-fp4-indexer"):
        if is_on(arguments.get(name)):
            raise UnknownLayout(f"the server argument {name}")


def _ratios(geometry, stage):
    values = geometry.get("compress_ratios")
    if not isinstance(values, list) or len(values) < stage[1]:
        raise LayoutError(
            "Expected compress_ratios of the geometry with a number for every layer: read it with model_info."
        )
    ratios = values[stage[0] : stage[1]]
    unknown = [one for one in ratios if one not in (0, 4, 128)]
    if unknown:
        raise UnknownLayout(f"the compression ratio {unknown[0]}", "known are 0, 4 and 128")
    return ratios


def _requests(plan, speculative):
    if plan.arguments.get("max-running-requests") is None and not speculative:
        return None
    return draft.running_requests(plan.arguments, plan.shared.pools)


def _window_cap(plan, requests, notes):
    """The window pool by what running requests hold, and four cached prefixes for each of them (0.5.22 and later)."""
    arguments = dict(plan.arguments, **{"disable-radix-cache": True})
    arguments.setdefault("max-running-requests", requests * plan.shared.pools)
    cap = window.fixed_tokens(
        plan.geometry, arguments, plan.version, PAGE_TOKENS, plan.shared.pools, plan.environment, notes
    )
    if cap is None:
        return None
    default = 0 if is_on(plan.arguments.get("disable-radix-cache")) else 4 * requests
    tails = argument_number(plan.arguments, "swa-prefix-tails", default, minimum=0)
    cap += tails * (field_of(plan.geometry, "window_tokens") + PAGE_TOKENS)
    return -(-cap // PAGE_TOKENS) * PAGE_TOKENS
