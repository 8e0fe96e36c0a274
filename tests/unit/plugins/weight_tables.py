# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Weight tables of public models, put together from the shapes in their configurations.

The sum of each is compared with the published size of the checkpoint in test_model_split.py, so that a table that is
wrong cannot prove anything.
"""

from __future__ import annotations

import math

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "F8_E4M3": 1, "U8": 1}


def row(name, dtype, shape, tensors=1, layers=None, draft=False, tied=False):
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(shape),
        "tensors": tensors,
        "bytes": math.prod(shape) * BYTES[dtype] * tensors,
        "layers": layers or [],
        "draft": draft,
        "tied": tied,
    }


def total(table):
    return sum(one["bytes"] for one in table)


def dense(
    layers, hidden, inner, heads, kv_heads, width, vocabulary, tied=False, bias=False, qk_norm=False, prefix="model."
):
    """Llama, Qwen2 (bias), Qwen3 (qk_norm); inner None leaves the feed-forward layers out."""
    runs = [[0, layers - 1]]
    shapes = {
        "input_layernorm.weight": [hidden],
        "post_attention_layernorm.weight": [hidden],
        "self_attn.q_proj.weight": [heads * width, hidden],
        "self_attn.k_proj.weight": [kv_heads * width, hidden],
        "self_attn.v_proj.weight": [kv_heads * width, hidden],
        "self_attn.o_proj.weight": [hidden, heads * width],
    }
    if bias:
        shapes["self_attn.q_proj.bias"] = [heads * width]
        shapes["self_attn.k_proj.bias"] = shapes["self_attn.v_proj.bias"] = [kv_heads * width]
    if qk_norm:
        shapes["self_attn.q_norm.weight"] = shapes["self_attn.k_norm.weight"] = [width]
    if inner:
        shapes.update({f"mlp.{name}_proj.weight": [inner, hidden] for name in ("gate", "up")})
        shapes["mlp.down_proj.weight"] = [hidden, inner]
    table = [row(prefix + "embed_tokens.weight", "BF16", [vocabulary, hidden])]
    table += [row(prefix + "layers.*." + name, "BF16", shape, layers, runs) for name, shape in shapes.items()]
    table.append(row(prefix + "norm.weight", "BF16", [hidden]))
    return table if tied else [*table, row("lm_head.weight", "BF16", [vocabulary, hidden])]


def experts(first, last, hidden, inner, count):
    """The experts and the router of the layers first to last, in 16 bits."""
    runs, layers = [[first, last]], last - first + 1
    table = [row("model.layers.*.mlp.gate.weight", "BF16", [count, hidden], layers, runs)]
    for name, shape in (("gate", [inner, hidden]), ("up", [inner, hidden]), ("down", [hidden, inner])):
        table.append(row(f"model.layers.*.mlp.experts.*.{name}_proj.weight", "BF16", shape, layers * count, runs))
    return table


def _blocks(table, name, shape, tensors, runs, draft=False):
    """A weight in FP8 with a scale for each block of 128 x 128."""
    scales = [-(-size // 128) for size in shape]
    table.append(row(name, "F8_E4M3", shape, tensors, runs, draft))
    table.append(row(name + "_scale_inv", "F32", scales, tensors, runs, draft))


def deepseek_r1():
    """DeepSeek-R1: 61 layers, the first three dense, 256 experts and a shared one, and one draft layer."""
    hidden, vocabulary = 7168, 129280
    table = [row(name, "BF16", [vocabulary, hidden]) for name in ("model.embed_tokens.weight", "lm_head.weight")]
    table.append(row("model.norm.weight", "BF16", [hidden]))
    for first, last, draft in ((0, 60, False), (61, 61, True)):
        runs, layers = [[first, last]], last - first + 1
        for name in ("input_layernorm", "post_attention_layernorm"):
            table.append(row(f"model.layers.*.{name}.weight", "BF16", [hidden], layers, runs, draft))
        for name, width in (("q_a_layernorm", 1536), ("kv_a_layernorm", 512)):
            table.append(row(f"model.layers.*.self_attn.{name}.weight", "BF16", [width], layers, runs, draft))
        attention = {
            "q_a_proj": [1536, hidden],
            "q_b_proj": [24576, 1536],
            "kv_a_proj_with_mqa": [576, hidden],
            "kv_b_proj": [32768, 512],
            "o_proj": [hidden, 16384],
        }
        for name, shape in attention.items():
            _blocks(table, f"model.layers.*.self_attn.{name}.weight", shape, layers, runs, draft)
        if not draft:
            for name, shape in (("gate", [18432, hidden]), ("up", [18432, hidden]), ("down", [hidden, 18432])):
                _blocks(table, f"model.layers.*.mlp.{name}_proj.weight", shape, 3, [[0, 2]])
            runs, layers = [[3, 60]], 58
        for name, shape in (("gate", [2048, hidden]), ("up", [2048, hidden]), ("down", [hidden, 2048])):
            _blocks(table, f"model.layers.*.mlp.experts.*.{name}_proj.weight", shape, layers * 256, runs, draft)
            _blocks(table, f"model.layers.*.mlp.shared_experts.{name}_proj.weight", shape, layers, runs, draft)
        table.append(row("model.layers.*.mlp.gate.weight", "BF16", [256, hidden], layers, runs, draft))
        table.append(row("model.layers.*.mlp.gate.e_score_correction_bias", "F32", [256], layers, runs, draft))
    for name, shape in (
        ("eh_proj.weight", [hidden, 2 * hidden]),
        ("embed_tokens.weight", [vocabulary, hidden]),
        ("shared_head.head.weight", [vocabulary, hidden]),
    ):
        table.append(row("model.layers.*." + name, "BF16", shape, 1, [[61, 61]], True))
    return table


def _awq(table, name, shape, tensors, runs, group=64):
    """A projection of C(shape) (outputs, inputs) in AWQ: eight numbers of 4 bits in an int32, a scale for a group."""
    outputs, inputs = shape
    table.append(row(name + ".qweight", "I32", [inputs, outputs // 8], tensors, runs))
    table.append(row(name + ".qzeros", "I32", [inputs // group, outputs // 8], tensors, runs))
    table.append(row(name + ".scales", "F16", [inputs // group, outputs], tensors, runs))


def deepseek_awq():
    """DeepSeek-V3 in AWQ, groups of 64, without the draft layer; router, embeddings, head and norms stay in 16 bits."""
    hidden, vocabulary, every = 7168, 129280, [[0, 60]]
    table = [row(name, "F16", [vocabulary, hidden]) for name in ("model.embed_tokens.weight", "lm_head.weight")]
    table.append(row("model.norm.weight", "F16", [hidden]))
    for name, width in (
        ("input_layernorm", hidden),
        ("post_attention_layernorm", hidden),
        ("self_attn.q_a_layernorm", 1536),
        ("self_attn.kv_a_layernorm", 512),
    ):
        table.append(row(f"model.layers.*.{name}.weight", "F16", [width], 61, every))
    attention = {
        "q_a_proj": [1536, hidden],
        "q_b_proj": [24576, 1536],
        "kv_a_proj_with_mqa": [576, hidden],
        "kv_b_proj": [32768, 512],
        "o_proj": [hidden, 16384],
    }
    for name, shape in attention.items():
        _awq(table, "model.layers.*.self_attn." + name, shape, 61, every)
    for name, turned in (("gate_proj", False), ("up_proj", False), ("down_proj", True)):
        for place, inner, tensors, runs in (
            ("mlp.", 18432, 3, [[0, 2]]),
            ("mlp.experts.*.", 2048, 58 * 256, [[3, 60]]),
            ("mlp.shared_experts.", 2048, 58, [[3, 60]]),
        ):
            shape = [hidden, inner] if turned else [inner, hidden]
            _awq(table, f"model.layers.*.{place}{name}", shape, tensors, runs)
    table.append(row("model.layers.*.mlp.gate.weight", "F16", [256, hidden], 58, [[3, 60]]))
    table.append(row("model.layers.*.mlp.gate.e_score_correction_bias", "F16", [256], 58, [[3, 60]]))
    return table


def gpt_oss(layers, experts_of_layer):
    """gpt-oss: attention in 16 bits with biases and sinks, experts of all layers in MXFP4, blocks of 32 numbers."""
    hidden, width, heads, kv_heads, vocabulary = 2880, 64, 64, 8, 201088
    runs = [[0, layers - 1]]
    shapes = {
        "input_layernorm.weight": [hidden],
        "post_attention_layernorm.weight": [hidden],
        "self_attn.q_proj.weight": [heads * width, hidden],
        "self_attn.q_proj.bias": [heads * width],
        "self_attn.k_proj.weight": [kv_heads * width, hidden],
        "self_attn.k_proj.bias": [kv_heads * width],
        "self_attn.v_proj.weight": [kv_heads * width, hidden],
        "self_attn.v_proj.bias": [kv_heads * width],
        "self_attn.o_proj.weight": [hidden, heads * width],
        "self_attn.o_proj.bias": [hidden],
        "self_attn.sinks": [heads],
        "mlp.router.weight": [experts_of_layer, hidden],
        "mlp.router.bias": [experts_of_layer],
        "mlp.experts.gate_up_proj_bias": [experts_of_layer, 2 * hidden],
        "mlp.experts.down_proj_bias": [experts_of_layer, hidden],
    }
    table = [row("model.embed_tokens.weight", "BF16", [vocabulary, hidden]), row("model.norm.weight", "BF16", [hidden])]
    table += [row("model.layers.*." + name, "BF16", shape, layers, runs) for name, shape in shapes.items()]
    for name, rows in (("gate_up_proj", 2 * hidden), ("down_proj", hidden)):
        place = f"model.layers.*.mlp.experts.{name}"
        table.append(row(place + "_blocks", "U8", [experts_of_layer, rows, hidden // 32, 16], layers, runs))
        table.append(row(place + "_scales", "U8", [experts_of_layer, rows, hidden // 32], layers, runs))
    return [*table, row("lm_head.weight", "BF16", [vocabulary, hidden])]


def vision_tower():
    """The tower of Qwen3-VL-8B."""
    runs = [[0, 26]]
    shapes = {
        "attn.qkv.weight": [3456, 1152],
        "attn.qkv.bias": [3456],
        "attn.proj.weight": [1152, 1152],
        "attn.proj.bias": [1152],
        "mlp.linear_fc1.weight": [4304, 1152],
        "mlp.linear_fc1.bias": [4304],
        "mlp.linear_fc2.weight": [1152, 4304],
        "mlp.linear_fc2.bias": [1152],
        "norm1.weight": [1152],
        "norm1.bias": [1152],
        "norm2.weight": [1152],
        "norm2.bias": [1152],
    }
    table = [row("model.visual.blocks.*." + name, "BF16", shape, 27, runs) for name, shape in shapes.items()]
    table.append(row("model.visual.patch_embed.proj.weight", "BF16", [1152, 3, 2, 16, 16]))
    table.append(row("model.visual.pos_embed.weight", "BF16", [2304, 1152]))
    for name, count in (("merger", 1), ("deepstack_merger_list.*", 3)):
        for part, shape in (("linear_fc1", [4608, 4608]), ("linear_fc2", [4096, 4608])):
            table.append(row(f"model.visual.{name}.{part}.weight", "BF16", shape, count))
            table.append(row(f"model.visual.{name}.{part}.bias", "BF16", shape[:1], count))
        width = 1152 if count == 1 else 4608
        table.append(row(f"model.visual.{name}.norm.weight", "BF16", [width], count))
        table.append(row(f"model.visual.{name}.norm.bias", "BF16", [width], count))
    table.append(row("model.visual.patch_embed.proj.bias", "BF16", [1152]))
    return table


def lfm2():
    """LFM2-700M: short convolutions, attention in six of sixteen layers."""
    attention = [[layer, layer] for layer in (2, 5, 8, 10, 12, 14)]
    convolution = [[layer, layer] for layer in (0, 1, 3, 4, 6, 7, 9, 11, 13, 15)]
    every = {f"feed_forward.{name}.weight": [6912, 1536] for name in ("w1", "w3")}
    every.update({"feed_forward.w2.weight": [1536, 6912], "operator_norm.weight": [1536], "ffn_norm.weight": [1536]})
    attends = {f"self_attn.{name}.weight": [1536, 1536] for name in ("q_proj", "out_proj")}
    attends.update({f"self_attn.{name}.weight": [512, 1536] for name in ("k_proj", "v_proj")})
    attends.update({f"self_attn.{name}_layernorm.weight": [64] for name in ("q", "k")})
    convolves = {"in_proj": [4608, 1536], "out_proj": [1536, 1536], "conv": [1536, 1, 3]}
    table = [
        row("model.embed_tokens.weight", "BF16", [65536, 1536]),
        row("model.embedding_norm.weight", "BF16", [1536]),
    ]
    table += [row("model.layers.*." + name, "BF16", shape, 16, [[0, 15]]) for name, shape in every.items()]
    table += [row("model.layers.*." + name, "BF16", shape, 6, attention) for name, shape in attends.items()]
    table += [
        row(f"model.layers.*.conv.{name}.weight", "BF16", shape, 10, convolution) for name, shape in convolves.items()
    ]
    return table


def rotary(positions, width):
    return [{"name": "rotary tables", "bytes": positions * width * 4, "source": "test"}]


LLAMA_8B = dense(32, 4096, 14336, 32, 8, 128, 128256)
QWEN2_05B = dense(24, 896, 4864, 14, 2, 64, 151936, tied=True, bias=True)
QWEN2_15B = dense(28, 1536, 8960, 12, 2, 128, 151936, tied=True, bias=True)
QWEN2_7B = dense(28, 3584, 18944, 28, 4, 128, 152064, bias=True)
QWEN2_32B = dense(64, 5120, 27648, 40, 8, 128, 152064, bias=True)
QWEN3_06B = [  # its file holds the head, which is tied all the same
    *dense(28, 1024, 3072, 16, 8, 128, 151936, tied=True, qk_norm=True),
    row("lm_head.weight", "BF16", [151936, 1024], tied=True),
]
QWEN3_30B = [*dense(48, 2048, None, 32, 4, 128, 151936, qk_norm=True), *experts(0, 47, 2048, 768, 128)]
QWEN3_VL_8B = [
    *dense(36, 4096, 12288, 32, 8, 128, 151936, qk_norm=True, prefix="model.language_model."),
    *vision_tower(),
]
DEEPSEEK_R1 = deepseek_r1()
DEEPSEEK_AWQ = deepseek_awq()
GPT_OSS_20B, GPT_OSS_120B = gpt_oss(24, 32), gpt_oss(36, 128)
LFM2_700M = lfm2()
