# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the folder of a big model that costs no disk: config.json, index, and safetensors files that are all header.

    python make_model.py FOLDER --kind kimi-k2|gqa-small|qwen3-next|gpt-oss|draft|dflash [--layers N] [--experts N]

The headers name every tensor with its true type and shape; behind the header a file is a hole of the right length.
Shapes are those of the models' public config.json (Kimi-K2, Llama-3.1-8B, Qwen3-Next-80B-A3B, gpt-oss-120b, and
z-lab/Kimi-K2.5-DFlash, which takes embeddings and head from its target). The folder appears when it is
complete; one that is there is left alone when it was made by the same words.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import sys
from pathlib import Path

BYTES = {"BF16": 2, "F32": 4, "I32": 4, "I64": 8, "U8": 1, "F8_E4M3": 1}
GROUP = 32  # weights that share a scale in the 4-bit experts

COMMON = {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "rms_norm_eps": 1e-06, "torch_dtype": "bfloat16"}
CONFIGS = {
    "kimi-k2": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "num_hidden_layers": 61,
        "hidden_size": 7168, "num_attention_heads": 64, "num_key_value_heads": 64, "v_head_dim": 128,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
        "n_routed_experts": 384, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "intermediate_size": 18432, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
        "vocab_size": 163840, "tie_word_embeddings": False, "max_position_embeddings": 262144,
        "num_nextn_predict_layers": 0, "rope_theta": 50000.0,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {
                "targets": ["Linear"], "input_activations": None, "output_activations": None,
                "weights": {"num_bits": 4, "group_size": GROUP, "strategy": "group", "symmetric": True, "type": "int"},
            }},
            "ignore": [
                "lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
            ],
        },
    },
    "gqa-small": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
        "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072, "rope_theta": 500000.0,
    },
    "qwen3-next": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 48,
        "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "intermediate_size": 5120,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True, "vocab_size": 151936,
        "tie_word_embeddings": False, "max_position_embeddings": 262144, "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
    },
    "gpt-oss": {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
        "num_local_experts": 128, "num_experts_per_tok": 4, "intermediate_size": 2880, "vocab_size": 201088,
        "tie_word_embeddings": False, "max_position_embeddings": 131072, "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * 18, "quantization_config": {"quant_method": "mxfp4"},
    },
    "draft": {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
        "vocab_size": 128256, "draft_vocab_size": 32000, "tie_word_embeddings": False,
        "max_position_embeddings": 131072,
    },
    "dflash": {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 6, "hidden_size": 7168,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 18432,
        "vocab_size": 163840, "tie_word_embeddings": False, "max_position_embeddings": 262144, "block_size": 8,
    },
}


def linear(name: str, rows: int, columns: int) -> dict:
    return {f"{name}.weight": ("BF16", [rows, columns])}


def packed(name: str, rows: int, columns: int) -> dict:
    """Four bits a weight: eight in an integer, and a scale for each group."""
    return {
        f"{name}.weight_packed": ("I32", [rows, columns // 8]),
        f"{name}.weight_scale": ("BF16", [rows, columns // GROUP]),
        f"{name}.weight_shape": ("I64", [2]),
    }


def gated(name: str, hidden: int, inner: int, make=linear) -> dict:
    return {
        **make(f"{name}.gate_proj", inner, hidden), **make(f"{name}.up_proj", inner, hidden),
        **make(f"{name}.down_proj", hidden, inner),
    }


def norms(layer: str, hidden: int) -> dict:
    return {f"{layer}.{name}.weight": ("BF16", [hidden]) for name in ("input_layernorm", "post_attention_layernorm")}


def grouped_attention(at: str, config: dict, bias: bool = False, query: int = 1) -> dict:
    hidden, dim = config["hidden_size"], config["head_dim"]
    rows = {"q": config["num_attention_heads"] * dim * query, "k": config["num_key_value_heads"] * dim}
    found = {}
    for name in ("q", "k", "v"):
        size = rows.get(name, rows["k"])
        found.update(linear(f"{at}.{name}_proj", size, hidden))
        found.update({f"{at}.{name}_proj.bias": ("BF16", [size])} if bias else {})
    found.update(linear(f"{at}.o_proj", hidden, config["num_attention_heads"] * dim))
    found.update({f"{at}.o_proj.bias": ("BF16", [hidden])} if bias else {})
    return found


def kimi_layer(config: dict, number: int) -> dict:
    layer, hidden, heads = f"model.layers.{number}", config["hidden_size"], config["num_attention_heads"]
    latent, query, rope = config["kv_lora_rank"], config["q_lora_rank"], config["qk_rope_head_dim"]
    nope, value, at = config["qk_nope_head_dim"], config["v_head_dim"], f"{layer}.self_attn"
    found = {
        **norms(layer, hidden), **linear(f"{at}.q_a_proj", query, hidden),
        f"{at}.q_a_layernorm.weight": ("BF16", [query]), **linear(f"{at}.q_b_proj", heads * (nope + rope), query),
        **linear(f"{at}.kv_a_proj_with_mqa", latent + rope, hidden), f"{at}.kv_a_layernorm.weight": ("BF16", [latent]),
        **linear(f"{at}.kv_b_proj", heads * (nope + value), latent), **linear(f"{at}.o_proj", hidden, heads * value),
    }
    if number < config["first_k_dense_replace"]:
        return {**found, **gated(f"{layer}.mlp", hidden, config["intermediate_size"])}
    found.update(linear(f"{layer}.mlp.gate", config["n_routed_experts"], hidden))
    found[f"{layer}.mlp.gate.e_score_correction_bias"] = ("F32", [config["n_routed_experts"]])
    found.update(gated(f"{layer}.mlp.shared_experts", hidden, config["moe_intermediate_size"]))
    for expert in range(config["n_routed_experts"]):
        found.update(gated(f"{layer}.mlp.experts.{expert}", hidden, config["moe_intermediate_size"], packed))
    return found


def llama_layer(config: dict, number: int) -> dict:
    layer, hidden = f"model.layers.{number}", config["hidden_size"]
    return {
        **norms(layer, hidden), **grouped_attention(f"{layer}.self_attn", config),
        **gated(f"{layer}.mlp", hidden, config["intermediate_size"]),
    }


def next_layer(config: dict, number: int) -> dict:
    layer, hidden = f"model.layers.{number}", config["hidden_size"]
    found = norms(layer, hidden)
    if (number + 1) % config["full_attention_interval"]:
        at = f"{layer}.linear_attn"
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        heads = config["linear_num_value_heads"]
        values = heads * config["linear_value_head_dim"]
        found.update(linear(f"{at}.in_proj_qkvz", 2 * keys + 2 * values, hidden))
        found.update(linear(f"{at}.in_proj_ba", 2 * heads, hidden))
        found[f"{at}.conv1d.weight"] = ("BF16", [2 * keys + values, 1, config["linear_conv_kernel_dim"]])
        found.update({f"{at}.A_log": ("F32", [heads]), f"{at}.dt_bias": ("BF16", [heads])})
        found[f"{at}.norm.weight"] = ("BF16", [config["linear_value_head_dim"]])
        found.update(linear(f"{at}.out_proj", hidden, values))
    else:
        at = f"{layer}.self_attn"
        found.update(grouped_attention(at, config, query=2))
        found.update({f"{at}.{name}_norm.weight": ("BF16", [config["head_dim"]]) for name in ("q", "k")})
    found.update(linear(f"{layer}.mlp.gate", config["num_experts"], hidden))
    found.update(linear(f"{layer}.mlp.shared_expert_gate", 1, hidden))
    found.update(gated(f"{layer}.mlp.shared_expert", hidden, config["shared_expert_intermediate_size"]))
    for expert in range(config["num_experts"]):
        found.update(gated(f"{layer}.mlp.experts.{expert}", hidden, config["moe_intermediate_size"]))
    return found


def oss_layer(config: dict, number: int) -> dict:
    layer, hidden, inner = f"model.layers.{number}", config["hidden_size"], config["intermediate_size"]
    experts, at = config["num_local_experts"], f"{layer}.mlp.experts"
    found = {**norms(layer, hidden), **grouped_attention(f"{layer}.self_attn", config, bias=True)}
    found[f"{layer}.self_attn.sinks"] = ("BF16", [config["num_attention_heads"]])
    found.update(linear(f"{layer}.mlp.router", experts, hidden))
    found[f"{layer}.mlp.router.bias"] = ("BF16", [experts])
    for name, rows, columns in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
        found[f"{at}.{name}_blocks"] = ("U8", [experts, rows, columns // 32, 16])
        found[f"{at}.{name}_scales"] = ("U8", [experts, rows, columns // 32])
        found[f"{at}.{name}_bias"] = ("BF16", [experts, rows])
    return found


LAYERS = {"kimi-k2": kimi_layer, "gqa-small": llama_layer, "qwen3-next": next_layer, "gpt-oss": oss_layer,
          "draft": llama_layer, "dflash": llama_layer}


def tensors_of(kind: str, config: dict) -> dict[str, tuple[str, list[int]]]:
    """Every tensor: name -> (type, shape)."""
    hidden = config["hidden_size"]
    own = kind != "dflash"
    found = {"model.embed_tokens.weight": ("BF16", [config["vocab_size"], hidden])} if own else {}
    for number in range(config["num_hidden_layers"]):
        found.update(LAYERS[kind](config, number))
    found["model.norm.weight"] = ("BF16", [hidden])
    if own:
        found["lm_head.weight"] = ("BF16", [config.get("draft_vocab_size") or config["vocab_size"], hidden])
    return found


def size_of(kind: str, shape: list[int]) -> int:
    size = BYTES[kind]
    for one in shape:
        size *= one
    return size


def shards_of(tensors: dict, most_bytes: int) -> list[list[str]]:
    """The names in files of at most so many bytes."""
    shards, filled = [[]], 0
    for name, (kind, shape) in tensors.items():
        size = size_of(kind, shape)
        if shards[-1] and filled + size > most_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def write_shard(path: Path, names: list[str], tensors: dict) -> int:
    """A file of a header and a hole. Returns the bytes of its tensors."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        kind, shape = tensors[name]
        begin, end = end, end + size_of(kind, shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end)
    return end


def write(folder: Path, kind: str, config: dict, shard_gb: float) -> None:
    tensors = tensors_of(kind, config)
    shards = shards_of(tensors, int(shard_gb * 1e9))
    places, total = {}, 0
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        total += write_shard(folder / file, names, tensors)
        places.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}) + "\n")
    tokenizer = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the folder of a big model that costs no disk.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", required=True, choices=sorted(CONFIGS))
    parser.add_argument("--layers", type=int)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--shard-gb", type=float, default=10.0)
    given = parser.parse_args()
    config = {**COMMON, **CONFIGS[given.kind]}
    if given.layers:
        config["num_hidden_layers"] = given.layers
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][: given.layers]
    experts = next((name for name in ("n_routed_experts", "num_experts", "num_local_experts") if name in config), None)
    if given.experts and experts:
        config[experts] = given.experts
    mark = json.dumps([given.kind, config, given.shard_gb], sort_keys=True)
    target = given.folder.resolve()
    if target.exists():
        made_by = target / ".made-by"
        if made_by.is_file() and made_by.read_text() == mark:
            return
        sys.exit(f"make_model: {target} exists and was made by other words; remove it first")
    part = target.with_name(f"{target.name}.part{os.getpid()}")
    part.mkdir(parents=True)
    try:
        write(part, given.kind, config, given.shard_gb)
        (part / ".made-by").write_text(mark)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    main()
