# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the ranks share the weights: sizes out of the server arguments. Private to the collection."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._kv import model_dtype
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    argument_number,
    is_on,
    ranks,
    stage_ranges,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_dtype import capability_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_table import is_tower

# All-to-all backends with which every rank holds the shared experts whole
# (srt/models/deepseek_v2.py _shared_expert_use_tp1).
WHOLE_SHARED_BACKENDS = (
    "deepep",
    "deepep_v2",
    "pplx",
    "mooncake",
    "nixl",
    "mori",
    "ascend_fuseep",
    "flashinfer",
    "megamoe",
    "flashinfer_megamoe",
)
# Their embeddings are no VocabParallelEmbedding: every rank holds them whole
# (srt/models/gemma3_causal.py Gemma3TextScaledWordEmbedding, also of gemma3n_causal.py and gemma4_causal.py).
_GEMMA_4 = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration")
WHOLE_EMBEDDINGS = (
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "Gemma3nForCausalLM",
    "Gemma3nForConditionalGeneration",
    *_GEMMA_4,
)
# Layers that have no values are given their keys (srt/models/gemma4_causal.py load_weights).
KEYS_COPIED = _GEMMA_4


class SplitError(ValueError):
    """The weights of one rank cannot be told. The text is one sentence with the way out."""


@dataclass(frozen=True)
class Layout:
    """How the ranks share the weights."""

    tp: int
    attention_tp: int
    stages: int
    bounds: tuple  # first layer of every stage, and the number of layers
    kv_heads: int | None
    window_rows: tuple | None  # (rows of a key projection in windowed layers, their KV heads) where these differ
    heads: int | None
    head_tp: int
    dense_tp: int
    expert_ways: float
    expert_tp: int  # ranks that share one expert
    shared_whole: bool
    tower_whole: bool
    embeddings_whole: bool
    keys_copied: bool  # where a layer has no values
    element_bytes: int
    capability: float | None
    expandable: bool
    device: str


def layout_of(table, geometry, arguments, environment, engine_version, capability, device):
    """Return the Layout. Raises SplitError, or LayoutError of _kv_base for sizes that cannot be."""
    geometry = geometry or {}
    shared = ranks(arguments, engine_version)
    tp = argument_number(arguments, "tp-size", 1)
    ep = argument_number(arguments, "ep-size", 1)
    moe_dp = argument_number(arguments, "moe-dp-size", 1)
    backend = str(arguments.get("moe-a2a-backend") or "").lower()
    layers = _layers(table)
    return Layout(
        tp=tp,
        attention_tp=shared.attention_tp,
        stages=shared.stages,
        bounds=_bounds(layers, shared.stages, environment, engine_version),
        kv_heads=geometry.get("kv_heads"),
        window_rows=_window_rows(geometry),
        heads=geometry.get("attention_heads"),
        head_tp=shared.attention_tp if is_on(arguments.get("enable-dp-lm-head", False)) else tp,
        dense_tp=argument_number(arguments, "moe-dense-tp-size", tp),
        expert_ways=_expert_ways(arguments, tp / moe_dp, geometry.get("experts")),
        expert_tp=max(1, tp // (ep * moe_dp)),
        shared_whole=backend in WHOLE_SHARED_BACKENDS or is_on(arguments.get("enable-deepep-moe", False)),
        tower_whole=is_on(arguments.get("mm-enable-dp-encoder", False)),
        embeddings_whole=geometry.get("architecture") in WHOLE_EMBEDDINGS,
        keys_copied=geometry.get("architecture") in KEYS_COPIED,
        element_bytes=model_dtype(geometry, arguments)[1],
        capability=capability_of(capability),
        expandable=any(
            "expandable_segments:true" in str(environment.get(name) or "").lower()
            for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        ),
        device=device,
    )


def _window_rows(geometry):
    heads = geometry.get("window_kv_heads")
    width = geometry.get("window_head_dim") or geometry.get("head_dim")
    return (heads * width, heads) if heads and width else None


def _expert_ways(arguments, ranks_of_experts, experts):
    """Return by what the experts' bytes are divided: copies of experts make it less, experts in host memory more."""
    if not experts:
        return ranks_of_experts
    spare = argument_number(arguments, "ep-num-redundant-experts", 0, 0)
    # KTransformers: the experts that are not on the GPU are computed by the CPU.
    here = argument_number(arguments, "kt-num-gpu-experts", experts, 0)
    return ranks_of_experts * experts / max(here + spare, 1)


def _layers(table):
    """Return the number of layers, from the table: a geometry may be missing."""
    lasts = [
        run[1]
        for row in table
        if not row.get("draft") and not is_tower(row["name"])
        for run in (row.get("layers") or [])[-1:]
    ]
    return max(lasts, default=-1) + 1


def _bounds(layers, stages, environment, engine_version):
    """Return the first layer of each stage, and the end. A table without layers has none on any stage."""
    if not layers:
        return (0,) * (stages + 1)
    try:
        ranges = stage_ranges(layers, stages, engine_version, environment.get("SGLANG_PP_LAYER_PARTITION"))
    except LayoutError as error:
        raise SplitError(str(error)) from None
    return (0, *(end for _first, end in ranges))
