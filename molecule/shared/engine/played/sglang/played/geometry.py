# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU start must know of a model: layers, bytes of a token, bytes of the weights on a rank.

From config.json and the headers of the safetensors files. The launcher reads it once; ranks get the figures.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass

GIB = 1024**3
# Tensors that every rank of a TP group holds whole (srt/models/deepseek_v2.py, qwen2_moe.py: ReplicatedLinear, norms).
REPLICATED = re.compile(
    r"norm|\.mlp\.gate\.|router|q_a_proj|kv_a_proj|e_score_correction|shared_expert_gate|indexer|\.sinks|A_log|dt_bias"
)
LAYER = re.compile(r"\.layers\.(\d+)\.")
# Architectures whose sliding layers get a pool of their own (srt/configs/model_config.py is_hybrid_swa_model).
SLIDING = ("GptOssForCausalLM", "Llama4ForConditionalGeneration", "Gemma3ForConditionalGeneration", "Gemma3ForCausalLM",
           "Gemma4ForConditionalGeneration", "MiMoV2FlashForCausalLM")


@dataclass(frozen=True)
class Geometry:
    """A model's shape. Layer lists hold absolute layer numbers, so that a pipeline stage can take its part."""

    architecture: str
    model_type: str
    dtype: str
    quantization: str
    context_tokens: int
    layers: int
    full_layers: tuple[int, ...]
    sliding_layers: tuple[int, ...]
    linear_layers: tuple[int, ...]
    kv_heads: int
    head_dim: int
    v_head_dim: int
    latent: int  # elements of a latent row; 0: keys and values by heads
    index_head_dim: int
    window: int
    hidden: int
    topk: int
    vocab: int
    conv_bytes: int  # of one slot and one linear layer, whole model
    ssm_bytes: int
    multimodal: bool
    shards: int


def _sliding(config: dict, architecture: str, layers: int) -> set[int]:
    kinds = config.get("layer_types")
    if architecture not in SLIDING or not config.get("sliding_window"):
        return set()
    if kinds:
        return {place for place, kind in enumerate(kinds) if kind == "sliding_attention"}
    if architecture == "GptOssForCausalLM":
        return {place for place in range(layers) if place % 2 == 0}
    return set()


def _linear(config: dict, layers: int) -> set[int]:
    interval = config.get("full_attention_interval")
    return {place for place in range(layers) if (place + 1) % interval} if interval else set()


def _state_bytes(config: dict) -> tuple[int, int]:
    """(convolution, recurrent state) bytes of a slot in one gated delta layer (srt/configs/mamba_utils.py)."""
    if not config.get("linear_num_value_heads"):
        return 0, 0
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    conv = (config["linear_conv_kernel_dim"] - 1) * (2 * keys + values) * 2
    return conv, config["linear_num_value_heads"] * config["linear_key_head_dim"] * config["linear_value_head_dim"] * 4


def read(folder: str, overrides: str | None = None, context_length: int | None = None, dtype: str = "auto") -> Geometry:
    """The shape from a model's folder."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        whole = json.load(stream)
    whole.update(json.loads(overrides or "{}"))
    config = whole.get("text_config") or whole
    architecture = (whole.get("architectures") or ["LlamaForCausalLM"])[0]
    layers = config["num_hidden_layers"]
    sliding, linear = _sliding(config, architecture, layers), _linear(config, layers)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    stored = config.get("dtype") or config.get("torch_dtype") or whole.get("torch_dtype") or "bfloat16"
    chosen = {"auto": stored, "half": "float16", "float": "float32"}.get(dtype, dtype)
    conv, ssm = _state_bytes(config)
    quantization = whole.get("quantization_config") or config.get("quantization_config") or {}
    return Geometry(
        architecture=architecture,
        model_type=whole.get("model_type", "llama"),
        dtype="float16" if chosen == "float32" and dtype == "auto" else chosen,
        quantization=quantization.get("quant_method", ""),
        context_tokens=context_length or config["max_position_embeddings"],
        layers=layers,
        full_layers=tuple(place for place in range(layers) if place not in sliding | linear),
        sliding_layers=tuple(sorted(sliding)),
        linear_layers=tuple(sorted(linear)),
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        v_head_dim=config.get("v_head_dim") or head_dim,
        latent=(config["kv_lora_rank"] + config["qk_rope_head_dim"]) if config.get("kv_lora_rank") else 0,
        index_head_dim=config.get("index_head_dim") or 0,
        window=config.get("sliding_window") or 0,
        hidden=config["hidden_size"],
        topk=config.get("num_experts_per_tok") or config.get("top_k_experts") or 0,
        vocab=config["vocab_size"],
        conv_bytes=conv,
        ssm_bytes=ssm,
        multimodal="vision_config" in whole,
        shards=max(len(weight_files(folder)), 1),
    )


# --- weights


def weight_files(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))


def tensors(folder: str) -> list[tuple[str, int]]:
    """(name, bytes) of every tensor, from the headers: eight bytes of length, then JSON."""
    found = []
    for name in weight_files(folder):
        with open(os.path.join(folder, name), "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        for tensor, told in header.items():
            if tensor != "__metadata__":
                begin, end = told["data_offsets"]
                found.append((tensor, end - begin))
    return found


def stage_of(layer: int, layers: int, pp_size: int) -> int:
    """Which pipeline stage holds a layer (srt/distributed/utils.py get_pp_indices, even parts)."""
    return min(layer * pp_size // layers, pp_size - 1)


def weights_gib(folder: str, geometry: Geometry, tp_size: int, pp_size: int) -> list[float]:
    """GiB of the weights on one rank of each pipeline stage; tensors of draft layers in the files are not loaded."""
    sums = [0.0] * pp_size
    for name, size in tensors(folder):
        match = LAYER.search(name)
        if match and int(match[1]) >= geometry.layers or name.startswith("mtp."):
            continue
        share = size if REPLICATED.search(name) else size / tp_size
        last = not match and ("lm_head" in name or name.endswith("model.norm.weight"))
        sums[stage_of(int(match[1]), geometry.layers, pp_size) if match else pp_size - 1 if last else 0] += share
    return [one / GIB for one in sums]


def layers_of_stage(numbers: tuple[int, ...], geometry: Geometry, stage: int, pp_size: int) -> int:
    return sum(1 for layer in numbers if stage_of(layer, geometry.layers, pp_size) == stage)
