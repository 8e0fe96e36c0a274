# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a GPU rank divides its memory: the pool's tokens from free memory before and after the load. Figures in GiB.

The arithmetic by version is that of SGLang's profile (model_runner, model_runner_kv_cache_mixin, pool_configurator,
kv_cache_configurator of 0.4.6 to 0.5.23), read there; what is left out is said at each place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sglang.played import geometry as shape
from sglang.played import versions

GIB = shape.GIB
ELEMENT_BYTES = {"bfloat16": 2, "bf16": 2, "float16": 2, "float32": 4, "fp8_e4m3": 1, "fp8_e5m2": 1}
TORCH_NAMES = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "bf16": "bfloat16"}
MTP = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")


@dataclass(frozen=True)
class Split:
    """How ranks share: attn_tp is tp_size, or tp_size / dp_size under attention data parallelism."""

    attn_tp: int = 1
    stage: int = 0
    pp_size: int = 1
    dp_size: int = 1


@dataclass(frozen=True)
class Wishes:
    """What the arguments say about the pool."""

    fraction: float
    page: int = 1
    cap: int | None = None
    kv_dtype: str = "auto"
    requests: int | None = None
    swa_ratio: float = 0.8
    state_ratio: float = 0.9
    state_slots: int | None = None
    radix: bool = True
    algorithm: str = ""
    draft_tokens: int = 0


@dataclass(frozen=True)
class Pool:
    """What is allocated on a rank. ``sliding_tokens``, ``slots``: 0 where the model has none."""

    profiled_tokens: int
    tokens: int
    cell_bytes: int
    dtype: str
    halves: bool  # keys and values apart
    page: int = 1
    full_bytes: float = 0.0
    sliding_tokens: int = 0
    sliding_bytes: float = 0.0
    draft_bytes: float = 0.0
    slots: int = 0
    conv_gib: float = 0.0
    ssm_gib: float = 0.0
    running_requests: int = 0

    @property
    def kv_gib(self) -> float:
        return (self.full_bytes + self.sliding_bytes) / GIB


def kv_dtype(geometry: shape.Geometry, wishes: Wishes) -> str:
    return geometry.dtype if wishes.kv_dtype == "auto" else wishes.kv_dtype


def layer_bytes(geometry: shape.Geometry, wishes: Wishes, split: Split, v_head_dim: bool = True) -> float:
    """Bytes of one token in one attention layer on one rank."""
    element = ELEMENT_BYTES.get(kv_dtype(geometry, wishes), 2)
    if geometry.latent:
        index = geometry.index_head_dim
        extra = index + index // 128 * 4 if index and versions.at_least("0.5.4") else 0
        return geometry.latent * element + extra
    heads = max(1, geometry.kv_heads // split.attn_tp)
    values = geometry.v_head_dim if v_head_dim else geometry.head_dim
    return heads * (geometry.head_dim + values) * element


def layers_here(geometry: shape.Geometry, split: Split) -> tuple[int, int, int]:
    """(full, sliding, linear) attention layers of this stage."""
    return tuple(
        shape.layers_of_stage(numbers, geometry, split.stage, split.pp_size)
        for numbers in (geometry.full_layers, geometry.sliding_layers, geometry.linear_layers)
    )


def rest_gib(pre: float, post: float, fraction: float) -> float:
    return post - pre * (1 - fraction)


def state_slots(
    geometry: shape.Geometry, wishes: Wishes, split: Split, rest: float
) -> tuple[int, float, float]:
    """(slots, conv GiB, recurrent GiB) of a hybrid linear model; (0, 0, 0) for others."""
    linear = layers_here(geometry, split)[2]
    conv = geometry.conv_bytes * linear / split.attn_tp / GIB
    ssm = geometry.ssm_bytes * linear / split.attn_tp / GIB
    if not conv + ssm:
        return 0, 0.0, 0.0
    steps = wishes.draft_tokens if wishes.algorithm else 0
    most = wishes.requests or 512
    if wishes.state_slots:
        slots = wishes.state_slots
    elif not wishes.radix:
        slots = most // split.dp_size if wishes.requests else 512
    elif versions.at_least("0.5.8"):
        slots = int(rest * wishes.state_ratio / (1 + wishes.state_ratio) / (conv + ssm))
    else:
        slots = int(rest * wishes.state_ratio / (1 + wishes.state_ratio) / (conv + ssm) / (1 + steps))
    rows = slots + 1 if versions.at_least("0.5.8") else slots
    return slots, rows * conv, rows * ssm


def draft_factor(geometry: shape.Geometry, wishes: Wishes, draft: shape.Geometry | None) -> float:
    """By how much the draft's cache makes a token dearer in the profile."""
    if not wishes.algorithm or draft is None:
        return 1.0
    layers = geometry.layers
    if wishes.algorithm.upper() in MTP and versions.at_least("0.5.14"):
        return 1 + draft.layers / layers
    if wishes.algorithm.upper() == "DFLASH" and versions.at_least("0.5.10"):
        return (layers + draft.layers) / layers
    return 1.0


def _window_tokens(geometry, wishes, split, rest_bytes: float) -> tuple[int, int]:
    """(full, sliding) tokens of a model with a window, by version."""
    full, sliding, _linear = layers_here(geometry, split)
    one, ratio, layers = layer_bytes(geometry, wishes, split), wishes.swa_ratio, full + sliding
    if versions.at_least("0.5.11"):
        tokens = int(rest_bytes // (one * full + ratio * one * sliding))
        return tokens, int(ratio * tokens) // wishes.page * wishes.page
    tokens = int(rest_bytes // (one * layers))
    tokens = int(tokens * layers / (ratio * sliding + full))
    return tokens, int(ratio * tokens)


def size(
    geometry: shape.Geometry, wishes: Wishes, split: Split, pre: float, post: float, draft: shape.Geometry | None = None
) -> Pool:
    """The pool. Raises ValueError or RuntimeError with the words of the version when nothing is left."""
    rest = rest_gib(pre, post, wishes.fraction)
    slots, conv, ssm = state_slots(geometry, wishes, split, rest)
    rest -= conv + ssm
    if rest <= 0 and versions.at_least("0.5.14"):
        bound = 1 - post / pre
        raise ValueError(
            f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={wishes.fraction}. Raise "
            f"--mem-fraction-static above {math.ceil(bound * 1000) / 1000:.3f} (minimum viable = 1 - available/pre = "
            f"{bound:.4f}). If using speculative decoding, draft weights are now counted."
        )
    full, sliding, _linear = layers_here(geometry, split)
    one = layer_bytes(geometry, wishes, split, versions.at_least("0.5.8"))
    factor = draft_factor(geometry, wishes, draft)
    cell = int(one * full * factor)
    rest_bytes = int(rest * GIB)
    sliding_tokens = 0
    if sliding and versions.at_least("0.4.10"):
        profiled, sliding_tokens = _window_tokens(geometry, wishes, split, rest_bytes)
    else:
        cell = int(one * (full + sliding) * factor)
        profiled = rest_bytes // max(cell, 1)
    tokens = min(profiled, wishes.cap or profiled) // wishes.page * wishes.page
    if sliding_tokens:
        sliding_tokens = min(sliding_tokens, int(tokens * wishes.swa_ratio)) // wishes.page * wishes.page
    check(tokens, sliding_tokens, geometry, wishes)
    rows = tokens + wishes.page
    real = one * (full + (0 if sliding_tokens else sliding))
    draft_cell = layer_bytes(draft, wishes, split) * draft.layers if draft and wishes.algorithm else 0
    pool = Pool(
        profiled_tokens=profiled, tokens=tokens, cell_bytes=cell, page=wishes.page,
        dtype=TORCH_NAMES.get(kv_dtype(geometry, wishes), kv_dtype(geometry, wishes)), halves=not geometry.latent,
        full_bytes=rows * real, sliding_tokens=sliding_tokens,
        sliding_bytes=(sliding_tokens + wishes.page) * one * sliding if sliding_tokens else 0.0,
        draft_bytes=rows * draft_cell, slots=slots, conv_gib=conv, ssm_gib=ssm,
    )
    return replace(pool, running_requests=running_requests(pool, geometry, wishes, split))


def check(tokens: int, sliding_tokens: int, geometry: shape.Geometry, wishes: Wishes) -> None:
    """The refusals of a pool that is too small."""
    if tokens <= 0:
        told = f" Current value: mem_fraction_static={wishes.fraction}" if versions.at_least("0.5.6") else ""
        text = "Not enough memory. Please try to increase --mem-fraction-static." + told
        raise RuntimeError(text)
    if sliding_tokens and versions.at_least("0.5.16") and geometry.window + wishes.page >= sliding_tokens:
        raise ValueError(
            f"SWA pool ({sliding_tokens} tokens) cannot hold even one request: the prefill admission floor is "
            f"sliding_window_size ({geometry.window}) + page_size ({wishes.page}). Increase --swa-full-tokens-ratio or "
            "the total KV budget."
        )


def running_requests(pool: Pool, geometry: shape.Geometry, wishes: Wishes, split: Split) -> int:
    """Requests that run at once in a DP rank."""
    if wishes.requests:
        most = max(wishes.requests // split.dp_size, 1)
    elif wishes.algorithm and versions.at_least("0.4.9"):
        most = 48
    else:
        most = min(max(int(pool.tokens / geometry.context_tokens * 512), 2048), 4096)
        most = min(most, max(pool.tokens // 2, 1)) if versions.at_least("0.5.23") else most
    if pool.slots:
        most = min(most, max(pool.slots // (3 if wishes.radix else 1), 1))
    return most


def table_gib(pool: Pool, geometry: shape.Geometry, draft_tokens: int = 0) -> float:
    """The request table: four bytes for each request and token of its context (ReqToTokenPool)."""
    return (pool.running_requests + 1) * (geometry.context_tokens + 4 + draft_tokens) * 4 / GIB
