# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What weights take on a rank: _model_parts, _model_load, _model_ranks, _model_split, against published logs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import planner_groups
import planner_starts
import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_load, _model_parts, _model_split
from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_ranks as _ranks
from ansible_collections.gpufleet.sglang.tests.unit.plugins import weight_tables as tables

GIB = 1024**3
MIB = 1024**2


def geometry(kv_heads, heads, experts=None, attention="mha", **more):
    base = {"kv_heads": kv_heads, "attention_heads": heads, "experts": experts, "attention": attention}
    return {**base, "dtype": "bfloat16", "model_type": "llama", "quantized": False, **more}


R1 = geometry(128, 128, 256, "mla")


def weights(table, shape, arguments=None, **more):
    return _model_split.weights_of(table, shape, arguments or {}, **more)


# --- the tables are those of the public checkpoints --------------------------

# (table, bytes published, what the figure is). Of a file, 8 bytes and the header are no tensors.
PUBLISHED = [
    (tables.LLAMA_8B, 16060522496, "total_size of the index of meta-llama/Llama-3.1-8B-Instruct"),
    (tables.QWEN2_7B, 15231233024, "total_size of the index of Qwen/Qwen2.5-7B-Instruct"),
    (tables.QWEN2_32B, 65527752704, "total_size of the index of Qwen/Qwen2.5-32B-Instruct"),
    (tables.QWEN3_30B, 61064245248, "total_size of the index of Qwen/Qwen3-30B-A3B-Instruct-2507"),
    (tables.QWEN3_VL_8B, 17534247392, "total_size of the index of Qwen/Qwen3-VL-8B-Instruct"),
    (tables.LFM2_700M, 742489344 * 2, "the parameters that the hub counts, of 2 bytes, of LiquidAI/LFM2-700M"),
    (tables.QWEN2_05B, 988097824 - 32288, "model.safetensors of Qwen/Qwen2.5-0.5B-Instruct less its header"),
    (tables.QWEN2_15B, 3087467144 - 38536, "model.safetensors of Qwen/Qwen2.5-1.5B-Instruct less its header"),
    (tables.QWEN3_06B, 1503300328 - 35560, "model.safetensors of Qwen/Qwen3-0.6B less its header"),
    (tables.DEEPSEEK_AWQ, 364589799936, "total_size of the index in github.com/kvcache-ai/sglang_awq"),
    (tables.GPT_OSS_20B, 13761264768, "total_size of the index of openai/gpt-oss-20b"),
    (tables.GPT_OSS_120B, 65248815744, "total_size of the index of openai/gpt-oss-120b"),
]


@pytest.mark.parametrize(("table", "published", "what"), PUBLISHED, ids=[row[2].split()[-1] for row in PUBLISHED])
def test_the_tables_of_the_tests_are_the_published_checkpoints(table, published, what):
    assert tables.total(table) == published, what


def test_the_table_of_deepseek_is_the_published_repository():
    """688,586,727,753 bytes is the whole repository: headers, tokenizer and code are some 12 MB of it."""
    assert 0 < 688586727753 - tables.total(tables.DEEPSEEK_R1) < 20e6


# --- against what servers printed --------------------------------------------


@dataclass(frozen=True)
class Printed:
    """C(gib): mem usage of "Load weight end", or begin less end where the version prints none."""

    id: str
    gib: float
    table: list
    shape: dict
    positions: int
    width: int
    arguments: dict = field(default_factory=dict)


LLAMA = (tables.LLAMA_8B, geometry(8, 32), 131072, 128)
PRINTED = [
    Printed("llama31-8b-24gb-2025-07", 15.02, *LLAMA),
    Printed("llama31-8b-eagle3-h100nvl, begin less end", 92.5 - 77.39, *LLAMA),
    Printed("docs-llama31-8b-2025-01-23, begin less end", 78.81 - 63.72, *LLAMA),
    Printed("llama31-8b-mi300x-onebatch-2024-10, begin less end", 191.33 - 176.33, *LLAMA),
    Printed("r1-distill-qwen7b-3090, begin less end", 22.76 - 8.37, tables.QWEN2_7B, geometry(4, 28), 131072, 128),
    Printed("qwen25-05b-docs-h100-capped", 0.98, tables.QWEN2_05B, geometry(2, 14), 32768, 64),
    Printed("qwen25-05b-36gbfree-2026-07", 0.98, tables.QWEN2_05B, geometry(2, 14), 32768, 64),
    Printed("qwen3-small-16gb-2025-08", 1.25, tables.QWEN3_06B, geometry(8, 16), 40960, 128),
    Printed("qwen3-reranker06b-h100-030", 1.18, tables.QWEN3_06B, geometry(8, 16), 40960, 128),
    Printed("pr18263-qwen3-30b-bf16-mi355-fixed", 56.98, tables.QWEN3_30B, geometry(4, 32, 128), 262144, 128),
    Printed(
        "kt-qwen3-30b-h100-085, 32 of 128 experts on the GPU",
        16.41,
        tables.QWEN3_30B,
        geometry(4, 32, 128),
        40960,
        128,
        {"kt-num-gpu-experts": 32},
    ),
    Printed("qwen3vl-8b-h200-profiler", 16.52, tables.QWEN3_VL_8B, geometry(8, 32), 262144, 128),
    Printed("lfm2-700m-16gb-onebatch", 1.52, tables.LFM2_700M, geometry(8, 24), 128000, 64),
    Printed("a public log of 2025-03-08, TP4", 15.54, tables.QWEN2_32B, geometry(8, 40), 131072, 128, {"tp-size": 4}),
]


@pytest.mark.parametrize("case", PRINTED, ids=lambda case: case.id.split(",")[0])
def test_printed_weights_lie_in_the_band(case):
    result = weights(case.table, case.shape, case.arguments, created=tables.rotary(case.positions, case.width))
    assert abs(result["weights_gib"] - case.gib) <= min(result["error_gib"], 0.1)


def test_half_of_them_are_right_to_three_hundredths():
    misses = sorted(
        abs(
            weights(one.table, one.shape, one.arguments, created=tables.rotary(one.positions, one.width))["weights_gib"]
            - one.gib
        )
        for one in PRINTED
    )
    assert misses[len(misses) // 2] <= 0.03


# --- the split, worked by hand ----------------------------------------------


def part(result, name):
    return sum(row["gib"] for row in result["parts"] if row["part"] == name)


def test_keys_and_values_are_copied_below_one_head_a_rank():
    """Two KV heads of 128 on eight ranks: every rank holds one, half of all, not an eighth."""
    layer = [
        tables.row("model.layers.*.self_attn.q_proj.weight", "BF16", [2048, 1024], 1, [[0, 0]]),
        tables.row("model.layers.*.self_attn.k_proj.weight", "BF16", [256, 1024], 1, [[0, 0]]),
        tables.row("model.layers.*.self_attn.v_proj.weight", "BF16", [256, 1024], 1, [[0, 0]]),
    ]
    result = weights(layer, geometry(2, 16), {"tp-size": 8})
    by_ways = {row["ways"]: row["gib"] * GIB for row in result["parts"]}
    assert by_ways == {8: 2048 * 1024 * 2 / 8, 2: 2 * 256 * 1024 * 2 / 2}


def test_a_fused_projection_divides_queries_and_copies_keys():
    """16 query and 2 KV heads in one tensor of 20 x 64 rows: a rank of 8 holds 2 + 1 + 1 heads."""
    table = [tables.row("model.layers.*.self_attn.qkv_proj.weight", "BF16", [20 * 64, 1024], 1, [[0, 0]])]
    result = weights(table, geometry(2, 16), {"tp-size": 8})
    assert part(result, "attention") * GIB == 4 * 64 * 1024 * 2


@pytest.mark.parametrize(("tp", "rows"), [(1, 32064), (2, 16032), (8, 4008), (128, 256)])
def test_a_vocabulary_is_padded(tp, rows):
    """32,001 rows become 32,064, a multiple of 64 and of 8; for 128 ranks the next multiple of 64 x 128, 32,768."""
    table = [tables.row("model.embed_tokens.weight", "BF16", [32001, 1000])]
    result = weights(table, geometry(8, 32), {"tp-size": tp})
    assert part(result, "embeddings") * GIB == pytest.approx(rows * 1000 * 2)


def test_deepseek_on_eight_ranks():
    """By hand: experts 58 x 256 x 3 x 2048 x 7168 bytes / 8 and their scales; routers and down-projections whole."""
    result = weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8})
    experts = 58 * 256 * 3 * 2048 * 7168 * (1 + 4 / 128 / 128) / 8
    assert part(result, "experts") * GIB == pytest.approx(experts)
    latent = 61 * ((1536 + 576) * 7168 + 4 * (12 * 56 + 5 * 56))
    assert part(result, "latent projections") * GIB == pytest.approx(latent)
    assert part(result, "router") * GIB == pytest.approx(58 * (256 * 7168 * 2 + 256 * 4))
    # The copies that latent attention multiplies with: 512 x 128 heads x (128 + 128) numbers of 16 bits, over 8 ranks.
    assert part(result, "latent attention, absorbed") * GIB == 61 * 512 * 128 * 256 * 2 / 8
    assert result["draft_gib"] == 0.0
    assert 79.5 < result["weights_gib"] < 80.1


def test_data_parallel_attention_keeps_attention_whole():
    arguments = {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}
    result = weights(tables.DEEPSEEK_R1, R1, arguments)
    assert part(result, "embeddings") * GIB == 129280 * 7168 * 2
    assert part(result, "head") * GIB == 129280 * 7168 * 2 / 8
    whole = weights(tables.DEEPSEEK_R1, R1, {**arguments, "enable-dp-lm-head": True})
    assert part(whole, "head") * GIB == 129280 * 7168 * 2
    assert part(result, "experts") == part(weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8}), "experts")
    assert part(weights(tables.DEEPSEEK_R1, R1, {**arguments, "moe-dense-tp-size": 1}), "feed forward") > 1.0


def test_expert_parallelism_divides_the_same_bytes_and_copies_cost():
    by_tp = weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8})
    by_ep = weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8, "ep-size": 8})
    assert by_tp["weights_gib"] == by_ep["weights_gib"]
    deepep = weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8, "ep-size": 8, "moe-a2a-backend": "deepep"})
    assert part(deepep, "shared experts") == pytest.approx(8 * part(by_ep, "shared experts"))
    spare = weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8, "ep-size": 8, "ep-num-redundant-experts": 32})
    assert part(spare, "experts") == pytest.approx(part(by_ep, "experts") * 288 / 256)


def test_the_largest_stage_counts():
    """Ten layers on four stages: 2, 2, 3, 3 (the last ones hold the rest), the head on the last one."""
    table = [
        tables.row("model.embed_tokens.weight", "BF16", [64, 1024]),
        tables.row("model.layers.*.mlp.down_proj.weight", "BF16", [10240, 1024], 10, [[0, 9]]),
        tables.row("lm_head.weight", "BF16", [64, 1024]),
    ]
    result = weights(table, geometry(8, 32), {"pp-size": 4})
    assert part(result, "feed forward") * GIB == 3 * 10240 * 1024 * 2
    assert part(result, "head") * GIB == 64 * 1024 * 2
    assert part(result, "embeddings") == 0
    by_hand = weights(table, geometry(8, 32), {"pp-size": 2}, environment={"SGLANG_PP_LAYER_PARTITION": "7,3"})
    assert part(by_hand, "feed forward") * GIB == 7 * 10240 * 1024 * 2
    with pytest.raises(_model_split.SplitError, match="add up to 10 layers"):
        weights(table, geometry(8, 32), {"pp-size": 2}, environment={"SGLANG_PP_LAYER_PARTITION": "7,4"})


def test_a_tied_head_is_a_tensor_of_its_own_on_the_last_stage():
    """Three layers on two stages: one on the first, two on the last, which holds the embeddings once more as head."""
    table = [
        tables.row("model.embed_tokens.weight", "BF16", [64, 1024]),
        tables.row("model.layers.*.mlp.down_proj.weight", "BF16", [10240, 1024], 3, [[0, 2]]),
        tables.row("lm_head.weight", "BF16", [64, 1024], tied=True),
    ]
    result = weights(table, geometry(8, 32), {"pp-size": 2})
    assert part(result, "feed forward") * GIB == 2 * 10240 * 1024 * 2
    assert part(result, "embeddings") * GIB == 64 * 1024 * 2
    assert part(weights(table, geometry(8, 32)), "head") == 0


def test_towers_are_divided_or_whole():
    split = weights(tables.QWEN3_VL_8B, geometry(8, 32), {"tp-size": 4})
    whole = weights(tables.QWEN3_VL_8B, geometry(8, 32), {"tp-size": 4, "mm-enable-dp-encoder": True})
    tower = sum(row["bytes"] for row in tables.vision_tower())
    assert part(whole, "tower") * GIB == pytest.approx(tower)
    assert tower / 4 < part(split, "tower") * GIB < tower / 3.8


# --- names -------------------------------------------------------------------

# Names as the releases of the families have them, with the division that the engine's model of it makes.
NAMES = [
    ("model.layers.*.mlp.gate_proj.weight", _model_parts.DENSE),
    ("model.layers.*.mlp.gate.weight", _model_parts.REPLICATED),
    ("model.layers.*.mlp.shared_expert_gate.weight", _model_parts.REPLICATED),
    ("model.layers.*.mlp.shared_expert.up_proj.weight", _model_parts.SHARED),
    ("model.layers.*.mlp.shared_experts.down_proj.weight_scale_inv", _model_parts.SHARED),
    ("model.layers.*.mlp.experts.gate_up_proj_blocks", _model_parts.EXPERTS),
    ("model.layers.*.mlp.router.weight", _model_parts.REPLICATED),
    ("model.layers.*.block_sparse_moe.experts.*.w1.weight", _model_parts.EXPERTS),
    ("model.layers.*.block_sparse_moe.gate.weight", _model_parts.REPLICATED),
    ("model.layers.*.self_attn.kv_a_proj_with_mqa.weight", _model_parts.REPLICATED),
    ("model.layers.*.self_attn.kv_b_proj.weight", _model_parts.ATTENTION),
    ("model.layers.*.self_attn.q_a_layernorm.weight", _model_parts.REPLICATED),
    ("model.layers.*.self_attn.indexer.wq_b.weight", _model_parts.REPLICATED),
    ("model.layers.*.self_attn.k_proj.qweight", _model_parts.KV_HEADS),
    ("model.layers.*.self_attn.o_proj.scales", _model_parts.ATTENTION),
    ("model.layers.*.self_attn.sinks", _model_parts.ATTENTION),
    ("model.layers.*.linear_attn.in_proj_qkvz.weight", _model_parts.ATTENTION),
    ("model.layers.*.linear_attn.A_log", _model_parts.ATTENTION),
    ("backbone.layers.*.mixer.in_proj.weight", _model_parts.ATTENTION),
    ("backbone.layers.*.mixer.experts.*.up_proj.weight", _model_parts.EXPERTS),
    ("backbone.layers.*.mixer.gate.weight", _model_parts.REPLICATED),
    ("backbone.embeddings.weight", _model_parts.VOCABULARY),
    ("transformer.wte.weight", _model_parts.VOCABULARY),
    ("transformer.h.*.attn.c_attn.weight", _model_parts.FUSED_QKV),
    ("transformer.h.*.mlp.c_fc.weight", _model_parts.DENSE),
    ("transformer.layers.*.attention.query_key_value.weight", _model_parts.FUSED_QKV),
    ("layers.*.attn.wq_a.weight", _model_parts.REPLICATED),
    ("layers.*.attn.wo_b.weight", _model_parts.ATTENTION),
    ("layers.*.ffn.experts.*.w2.weight", _model_parts.EXPERTS),
    ("layers.*.hc_attn_fn", _model_parts.REPLICATED),
    ("layers.*.attn.compressor.wkv.weight", _model_parts.REPLICATED),
    ("model.layers.*.eh_proj.weight", _model_parts.REPLICATED),
    ("model.layers.*.shared_head.head.weight", _model_parts.HEAD),
    ("output.weight", _model_parts.HEAD),
    ("tok_embeddings.weight", _model_parts.VOCABULARY),
    ("layers.*.attention.wk.weight", _model_parts.KV_HEADS),
    ("layers.*.attention.wo.weight", _model_parts.ATTENTION),
    ("layers.*.feed_forward.w1.weight", _model_parts.DENSE),
    ("embed.weight", _model_parts.VOCABULARY),
    ("head.weight", _model_parts.HEAD),
    ("model.layers.*.self_attn.rotary_emb.inv_freq", _model_parts.NOTHING),
    ("model.visual.blocks.*.attn.qkv.weight", _model_parts.TOWER),
    ("vision_tower.encoder.layers.*.mlp.fc1.weight", _model_parts.TOWER),
    ("model.visual.patch_embed.proj.weight", _model_parts.REPLICATED),
    ("model.layers.*.something.new.weight", _model_parts.UNKNOWN),
    # Quantised forms: GPTQ, compressed-tensors, ModelOpt, bitsandbytes.
    ("model.layers.*.self_attn.q_proj.g_idx", _model_parts.ATTENTION),
    ("language_model.model.layers.*.mlp.experts.*.gate_proj.weight_packed", _model_parts.EXPERTS),
    ("model.layers.*.mlp.down_proj.weight_shape", _model_parts.DENSE),
    ("model.layers.*.self_attn.k_proj.weight_global_scale", _model_parts.KV_HEADS),
    ("model.layers.*.mlp.experts.*.down_proj.weight_scale_2", _model_parts.EXPERTS),
    ("model.layers.*.self_attn.v_proj.v_scale", _model_parts.KV_HEADS),
    ("backbone.layers.*.mixer.in_proj.weight_scale", _model_parts.ATTENTION),
    ("model.layers.*.mlp.down_proj.weight.absmax", _model_parts.DENSE),
    # Built-in drafts.
    ("mtp.fc.weight", _model_parts.REPLICATED),
    ("mtp.pre_fc_norm_hidden.weight", _model_parts.REPLICATED),
    ("mtp.layers.*.mlp.experts.gate_up_proj", _model_parts.EXPERTS),
]


@pytest.mark.parametrize(("name", "division"), NAMES, ids=[row[0] for row in NAMES])
def test_names_of_the_families(name, division):
    assert _model_parts.part_of({"name": name, "shape": [8, 8]}).division == division


def test_unknown_names_widen_the_band():
    table = [tables.row("model.layers.*.something.new", "BF16", [1024, 1024], 1, [[0, 0]])]
    alone, shared = weights(table, geometry(8, 32)), weights(table, geometry(8, 32), {"tp-size": 4})
    assert alone["error_gib"] == pytest.approx(_model_split.ERROR_LEAST_GIB)
    assert (shared["error_gib"] - alone["error_gib"]) * GIB == pytest.approx(1024 * 1024 * 2 * 3 / 4 / 2)
    assert any("unknown names" in note for note in shared["notes"])


# --- types -------------------------------------------------------------------


def test_weights_are_cast_and_scales_are_not():
    table = [
        tables.row("model.layers.*.mlp.down_proj.weight", "F32", [1024, 1024], 1, [[0, 0]]),
        tables.row("model.layers.*.mlp.down_proj.weight_scale_inv", "F32", [1024, 1024], 1, [[0, 0]]),
        tables.row("model.layers.*.mlp.down_proj.weight.absmax", "F32", [1024], 1, [[0, 0]]),
    ]
    assert [_model_load.cast_factor(row, 2) for row in table] == [0.5, 1.0, 1.0]


def test_online_quantisation_peaks_at_the_unquantised_size():
    """FP8 halves linear layers and experts of a model in 16 bits, not embeddings, head and norms."""
    before = weights(tables.QWEN2_7B, geometry(4, 28))
    after = weights(tables.QWEN2_7B, geometry(4, 28), {"quantization": "fp8"})
    assert after["peak_gib"] == pytest.approx(before["weights_gib"])
    kept = 2 * 152064 * 3584 * 2
    small = 28 * (2 * 3584 + 3584 + 2 * 512) * 2 + 3584 * 2
    expected = (15231233024 - kept - small) / 2 + kept + small
    assert after["weights_gib"] * GIB == pytest.approx(expected, rel=0.02)
    assert after["error_gib"] > before["error_gib"]
    layered = weights(tables.QWEN2_7B, geometry(4, 28), {"quantization": "fp8", "load-format": "layered"})
    assert layered["peak_gib"] == after["weights_gib"]
    streamed = weights(tables.QWEN2_7B, geometry(4, 28), {"quantization": "bitsandbytes"})
    assert streamed["peak_gib"] == streamed["weights_gib"] < after["weights_gib"]


def test_a_checkpoint_that_is_quantised_is_not_quantised_again():
    plain, told = (weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8, **more}) for more in ({}, {"quantization": "fp8"}))
    assert plain["weights_gib"] == told["weights_gib"] == told["peak_gib"]


def packed(name, dtype, size):
    return {
        "name": "model.layers.*." + name,
        "dtype": dtype,
        "shape": [size, 1],
        "tensors": 1,
        "bytes": size,
        "layers": [[0, 0]],
    }


# Bytes as the forms have them for a projection of 1,048,576 weights; what a rank of four holds of it is a quarter.
FORMS = {
    "awq": [
        ("mlp.down_proj.qweight", "I32", 524288),
        ("mlp.down_proj.qzeros", "I32", 4096),
        ("mlp.down_proj.scales", "F16", 16384),
    ],
    "gptq": [
        ("mlp.down_proj.qweight", "I32", 524288),
        ("mlp.down_proj.scales", "F16", 16384),
        ("mlp.down_proj.g_idx", "I32", 4096),
    ],
    "compressed-tensors": [
        ("mlp.down_proj.weight_packed", "I32", 524288),
        ("mlp.down_proj.weight_scale", "BF16", 16384),
    ],
    "nvfp4": [("mlp.down_proj.weight", "U8", 524288), ("mlp.down_proj.weight_scale", "F8_E4M3", 65536)],
    "fp8": [("mlp.down_proj.weight", "F8_E4M3", 1048576), ("mlp.down_proj.weight_scale_inv", "F32", 256)],
    "mixed": [
        ("mlp.experts.*.down_proj.weight", "U8", 524288),
        ("mlp.experts.*.down_proj.weight_scale", "F8_E4M3", 65536),
        ("self_attn.o_proj.weight", "F8_E4M3", 1048576),
        ("mlp.shared_expert.down_proj.weight", "BF16", 2097152),
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_quantised_forms_count_by_their_bytes(form):
    table = [packed(*one) for one in FORMS[form]]
    assert _model_load.is_quantised(table)
    result = weights(table, geometry(8, 32), {"tp-size": 4, "quantization": "fp8"})
    assert sum(row["gib"] for row in result["parts"]) * GIB == pytest.approx(sum(one[2] for one in FORMS[form]) / 4)
    assert result["peak_gib"] == result["weights_gib"]


# Beside the tensors of a file, by hand. Gemma 4: 262,144 positions x (256 + 512) x 4 bytes of rotary tables.
GEMMA_4 = {"architecture": "Gemma4ForConditionalGeneration", "window_kv_heads": 8, "window_head_dim": 256}
EMBEDDINGS = tables.row("model.language_model.embed_tokens.weight", "BF16", [262144, 3840])  # 1.875 GiB


@pytest.mark.parametrize(
    ("architecture", "gib"),
    [
        ("Gemma3ForCausalLM", 1.875),
        ("Gemma3ForConditionalGeneration", 1.875),
        ("Gemma3nForConditionalGeneration", 1.875),
        ("Gemma4ForConditionalGeneration", 1.875),
        ("Gemma4UnifiedForConditionalGeneration", 1.875),
        ("Gemma2ForCausalLM", 0.46875),
        ("DiffusionGemmaForBlockDiffusion", 0.46875),
        ("LlamaForCausalLM", 0.46875),
    ],
)
def test_embeddings_of_gemma_from_3_on_are_whole_on_every_rank(architecture, gib):
    result = weights([EMBEDDINGS], geometry(8, 16, architecture=architecture), {"tp-size": 4})
    assert part(result, "embeddings") == pytest.approx(gib)


def keys_and_values(form, layers, values=True):
    """Keys, and values, of 8 heads of 256 of a hidden size of 4,096, as a form of files has them: (bytes, rows)."""
    shapes = {
        "plain": [("weight", "BF16", [2048, 4096], 2)],
        "awq": [
            ("qweight", "I32", [4096, 256], 4),
            ("qzeros", "I32", [32, 256], 4),
            ("scales", "F16", [32, 2048], 2),
        ],
        "gptq": [("qweight", "I32", [512, 2048], 4), ("scales", "F16", [32, 2048], 2)],
    }[form]
    rows = []
    for which in ("k_proj", "v_proj") if values else ("k_proj",):
        for suffix, dtype, shape, each in shapes:
            row = tables.row(f"model.layers.*.self_attn.{which}.{suffix}", dtype, shape)
            size = shape[0] * shape[1] * each * len(layers)
            rows.append(dict(row, bytes=size, tensors=len(layers), layers=[[one, one] for one in layers]))
    return sum(row["bytes"] for row in rows), rows


@pytest.mark.parametrize("form", ["plain", "awq", "gptq"])
def test_keys_of_windowed_layers_are_divided_by_their_own_heads_in_every_form(form):
    """One KV head in the full layers, eight in the windowed ones: on four ranks these are a quarter."""
    size, rows = keys_and_values(form, [0, 1, 2])
    result = weights(rows, geometry(1, 16, **GEMMA_4), {"tp-size": 4})
    assert part(result, "attention") * GIB == pytest.approx(size / 4)


def test_layers_without_values_hold_their_keys_twice():
    size, rows = keys_and_values("plain", [5, 11], values=False)
    both, others = keys_and_values("plain", [0, 1])
    shape = geometry(8, 16, **GEMMA_4)
    assert part(weights(rows + others, shape, {"tp-size": 2}), "attention") * GIB == pytest.approx(size + both / 2)
    llama = geometry(8, 16, architecture="LlamaForCausalLM")
    assert part(weights(rows + others, llama, {"tp-size": 2}), "attention") * GIB == pytest.approx((size + both) / 2)


ENCODER = {"multimodal": True, "vision_layers": 27, "vision_hidden_size": 1152, "vision_intermediate_size": 4304}


def test_an_image_encoder_is_made_where_the_files_have_none():
    """Divided: 27 layers of 4 x 1,152 x 1,152 and 3 x 1,152 x 4,304. Whole: 20,480 positions, a patch, the way out."""
    shape = geometry(8, 16, **GEMMA_4, **ENCODER, hidden_size=5376)
    divided, whole = 27 * (4 * 1152**2 + 3 * 1152 * 4304), 1152 * (20480 + 768 + 5376)
    assert part(weights([EMBEDDINGS], shape, {"tp-size": 2}), "image encoder") * GIB == divided + 2 * whole
    assert part(
        weights([EMBEDDINGS], shape, {"tp-size": 2, "mm-enable-dp-encoder": True}), "image encoder"
    ) * GIB == 2 * (divided + whole)
    tower = tables.row("model.vision_tower.encoder.layers.0.mlp.up_proj.weight", "BF16", [4304, 1152])
    for table, other in (
        ([EMBEDDINGS, tower], shape),
        ([EMBEDDINGS], dict(shape, multimodal=False)),
        ([EMBEDDINGS], dict(shape, vision_layers=None)),
        ([EMBEDDINGS], dict(shape, architecture="LlamaForCausalLM")),
    ):
        assert "image encoder" not in {row["part"] for row in weights(table, other, {"tp-size": 2})["parts"]}


TWICE = geometry(8, 32, layers_built_twice=True)


@pytest.mark.parametrize("form", FORMS)
def test_layers_that_are_built_twice_stay_until_garbage_is_collected(form):
    """A quarter of the layer is left on a rank before 0.5.20, whatever its form; the head is made once."""
    table = [packed(*one) for one in FORMS[form]] + [tables.row("lm_head.weight", "BF16", [131072, 4096])]
    layers = sum(one[2] for one in FORMS[form]) / 4
    old, new = (weights(table, TWICE, {"tp-size": 4}, engine_version=one) for one in ("0.5.19", "0.5.20"))
    once = weights(table, geometry(8, 32), {"tp-size": 4}, engine_version="0.5.19")
    assert (old["weights_gib"] - once["weights_gib"]) * GIB == pytest.approx(layers)
    assert (old["error_gib"] - once["error_gib"]) * GIB == pytest.approx(layers / 20)
    assert part(old, "layers built twice") * GIB == pytest.approx(layers)
    assert new["weights_gib"] == once["weights_gib"]
    on_cpu = [weights(table, one, {"tp-size": 4}, device="cpu")["weights_gib"] for one in (TWICE, geometry(8, 32))]
    assert on_cpu[0] == on_cpu[1]
    assert old["peak_gib"] == once["peak_gib"], "no reason to refuse a load"
    assert "before 0.5.20" in " ".join(old["notes"])
    assert "twice" in " ".join(new["notes"])
    assert not any("twice" in note for note in once["notes"])


def test_towers_are_made_once():
    tower = dict(packed("x", "BF16", 1024), name="vision_tower.transformer.layers.*.attention.o_proj.weight")
    assert weights([tower], TWICE, engine_version="0.5.12")["weights_gib"] == weights([tower], TWICE)["weights_gib"]


def test_nothing_is_left_behind_where_layers_are_made_once():
    for table in (tables.LLAMA_8B, tables.DEEPSEEK_R1, tables.DEEPSEEK_AWQ):
        old, new = (weights(table, R1, {"tp-size": 8}, engine_version=one) for one in ("0.5.12", "0.5.20"))
        assert (old["weights_gib"], old["error_gib"]) == (new["weights_gib"], new["error_gib"])


def test_expandable_segments_have_a_narrower_band():
    """Nothing is lost to the rounding of segments."""
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    plain, expandable = (weights([EMBEDDINGS], None, environment=one) for one in ({}, environment))
    assert (plain["error_gib"], expandable["error_gib"]) == (0.1, 0.06)


# What is printed for the weights on two ranks of 0.5.12 with expandable segments, GiB, and the most that it may differ.
OF_PACKED = {
    "mb3090-gemma4-12b-swa0.8": (5.42, 0.06),
    "mb3090-gemma4-26b-swa0.8": (9.34, 0.04),
    "mb3090-gemma4-31b-swa0.1": (11.07, 0.02),
    "mb3090-devstral24b-fp8kv-mem92": (12.91, 0.1),
}


@pytest.mark.parametrize("name", OF_PACKED)
def test_packed_checkpoints_are_printed_as_their_tables_say(name):
    """Until the embeddings, rotary tables and the layers built twice were known, they were 1.5 to 5.9 GiB apart."""
    start = next(one for one in planner_starts.starts()[0] if one.id == name)
    known = planner_starts.load("bench")["checkpoints"][start.more["checkpoint"]]
    table = planner_groups.packed_table(known, start.geometry["layers"])
    assert 15e6 < known["bytes"] - tables.total(table) < 60e6, "tokenizer and processor of the folder"
    result = weights(
        table,
        start.geometry,
        {"tp-size": 2},
        environment=dict(start.environment),
        engine_version="0.5.12",
        created=list(start.created),
    )
    printed, most = OF_PACKED[name]
    assert result["weights_gib"] == pytest.approx(printed, abs=most)
    assert abs(result["weights_gib"] - printed) <= result["error_gib"]


def test_deepseek_in_awq_on_eight_ranks():
    """Latent projections, router and norms are whole on every rank; the rest is an eighth. No name is unknown."""
    result = weights(tables.DEEPSEEK_AWQ, R1, {"tp-size": 8, "dtype": "float16"})
    names = {row["part"] for row in result["parts"]}
    assert not names & {"other", "other vectors"}
    packed_bytes = 7168 * (1536 + 576) * (0.5 + 2.5 / 64)  # q_a_proj, kv_a_proj_with_mqa: numbers, scales and zeros
    assert part(result, "latent projections") * GIB == pytest.approx(61 * packed_bytes, rel=1e-6)
    one_expert = 3 * 7168 * 2048 * (0.5 + 2.5 / 64)
    assert part(result, "experts") * GIB == pytest.approx(58 * 256 * one_expert / 8, rel=1e-6)
    assert part(result, "router") * GIB == pytest.approx(58 * (256 * 7168 + 256) * 2)
    unpacked = 61 * 32768 * 512 * 2 / 8  # the copies of kv_b_proj that latent attention multiplies with
    assert part(result, "latent attention, absorbed") * GIB == pytest.approx(unpacked)


def test_gpt_oss_on_one_and_on_eight_ranks():
    """Hopper: nothing is padded on one rank; on eight 2,880 / 8 = 360 is padded to 384."""
    shape = geometry(8, 64, 32)
    one = weights(tables.GPT_OSS_20B, shape, gpu_capability="9.0")
    assert sum(row["gib"] for row in one["parts"]) * GIB == pytest.approx(13761264768, rel=1e-4)
    assert not {row["part"] for row in one["parts"]} & {"other", "other vectors"}
    eight = weights(tables.GPT_OSS_20B, shape, {"tp-size": 8}, gpu_capability="9.0")
    blocks = 24 * 32 * (5760 + 2880) * 90 * 16
    scales_and_biases = 24 * 32 * ((5760 + 2880) * 90 + (5760 + 2880) * 2)
    expected = blocks / 8 * 384 / 360 + scales_and_biases / 8
    assert part(eight, "experts") * GIB == pytest.approx(expected, rel=1e-3)


def test_mxfp4_experts_are_padded():
    """gpt-oss: 2,880 on eight ranks is 360, padded to 384; with Blackwell's kernels also 2,880 to 3,072."""
    assert _model_load.mxfp4_factor(2880, 2880, 1) == 1.0
    assert _model_load.mxfp4_factor(2880, 2880, 8, 9.0) == pytest.approx(384 / 360)
    assert _model_load.mxfp4_factor(2880, 2880, 8, 10.0) == pytest.approx(384 / 360 * 3072 / 2880)
    table = [tables.row("model.layers.*.mlp.experts.gate_up_proj_blocks", "U8", [32, 5760, 90, 16], 1, [[0, 0]])]
    shared = weights(table, geometry(8, 64, 32), {"tp-size": 8})
    assert part(shared, "experts") * GIB == pytest.approx(32 * 5760 * 90 * 16 / 8 * 384 / 360)
    by_expert = weights(table, geometry(8, 64, 32), {"tp-size": 8, "ep-size": 8})
    assert part(by_expert, "experts") * GIB == pytest.approx(32 * 5760 * 90 * 16 / 8)


@pytest.mark.parametrize(
    ("dtype", "name", "factor"),
    [("BF16", "weight", 1), ("F8_E4M3", "weight", 2), ("I32", "qweight", 4), ("BF16", "bias", 0)],
)
def test_copies_of_latent_attention_have_sixteen_bits(dtype, name, factor):
    """An int32 of a packed projection holds eight numbers: 16 bytes for 4."""
    row = {"name": f"model.layers.*.self_attn.kv_b_proj.{name}", "dtype": dtype, "bytes": 1024}
    assert _model_load.absorbed_bytes(row) == 1024 * factor


# --- the allocator ------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([MIB, MIB], 2 * MIB),
        ([MIB, MIB, 1], 4 * MIB),
        ([MIB + 1], 20 * MIB),
        ([8 * MIB, 8 * MIB], 20 * MIB),  # 4 MiB are left
        ([8 * MIB, 8 * MIB, 8 * MIB], 40 * MIB),
        ([11 * MIB], 12 * MIB),
        ([8 * MIB, 11 * MIB], 20 * MIB),  # the rest of the segment, 12 MiB, holds it
        ([], 0),
    ],
)
def test_blocks_of_the_allocator(sizes, reserved):
    assert _model_load.reserved_bytes(sizes) == reserved


def test_expandable_segments_lose_the_last_page_only():
    assert _model_load.reserved_bytes([11 * MIB, 11 * MIB], expandable=True) == 40 * MIB
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    one = weights(tables.QWEN2_05B, geometry(2, 14), environment=environment)
    assert one["weights_gib"] < weights(tables.QWEN2_05B, geometry(2, 14))["weights_gib"]


def test_a_cpu_has_no_caching_allocator():
    result = weights(tables.QWEN2_05B, geometry(2, 14), device="cpu")
    assert result["weights_gib"] * GIB == 988065536
    wide = weights(tables.QWEN2_05B, geometry(2, 14), {"dtype": "float32"}, device="cpu")
    assert wide["weights_gib"] * GIB == 2 * 988065536


# --- drafts -------------------------------------------------------------------


def test_a_built_in_draft_counts_when_it_is_used():
    """Less embeddings and head, which are those of the model."""
    result = weights(tables.DEEPSEEK_R1, R1, {"tp-size": 1, "speculative-algorithm": "EAGLE"})
    rows = [row for row in tables.DEEPSEEK_R1 if row["draft"]]
    own = sum(row["bytes"] for row in rows) - 2 * 129280 * 7168 * 2 + 512 * 32768 * 2
    assert result["draft_gib"] * GIB == pytest.approx(own, rel=0.01)
    assert weights(tables.DEEPSEEK_R1, R1, {"speculative-algorithm": "NGRAM"})["draft_gib"] == 0.0


def test_a_draft_of_its_own_folder():
    draft = tables.dense(1, 4096, 14336, 32, 8, 128, 128256)
    more = {"draft_table": draft, "draft_geometry": geometry(8, 32)}
    head = embeddings = 128256 * 4096 * 2
    rest = tables.total(draft) - head - embeddings
    for algorithm, expected in (("EAGLE", rest), ("EAGLE3", rest + head), ("STANDALONE", rest + head + embeddings)):
        result = weights(tables.LLAMA_8B, geometry(8, 32), {"speculative-algorithm": algorithm}, **more)
        assert result["draft_gib"] * GIB == pytest.approx(expected, rel=0.02), algorithm
    unknown = weights(tables.LLAMA_8B, geometry(8, 32), {"speculative-algorithm": "EAGLE3"})
    assert unknown["draft_gib"] is None
    assert any("draft are not known" in note for note in unknown["notes"])


# --- the rest -----------------------------------------------------------------


def test_weights_that_stay_in_host_memory():
    result = weights(tables.LLAMA_8B, geometry(8, 32), {"cpu-offload-gb": 5})
    assert result["weights_gib"] == pytest.approx(weights(tables.LLAMA_8B, geometry(8, 32))["weights_gib"] - 5)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (None, "found NoneType"),
        ("x", "found str"),
        ([{"dtype": "BF16"}], "no name or dtype"),
        ([{"name": "w", "dtype": "BF16", "bytes": -1, "tensors": 1}], "no whole numbers"),
        ([{"name": "w", "dtype": "BF16", "bytes": float("nan"), "tensors": 1}], "no whole numbers"),
        ([{"name": "w", "dtype": "BF16", "bytes": 1, "tensors": 1, "shape": [-1]}], "no list of sizes"),
        ([{"name": "w", "dtype": "BF16", "bytes": 1, "tensors": 1, "layers": [[0, 2**40]]}], "no runs"),
        ([{"name": "w", "dtype": "BF16", "bytes": 1, "tensors": 1, "layers": [5]}], "no runs"),
    ],
)
def test_a_table_that_is_none_ends_in_one_sentence(table, said):
    with pytest.raises(_model_split.SplitError, match=said):
        weights(table, None)


@pytest.mark.parametrize("created", [[{}], ["x"], [{"name": "x", "bytes": -1}], [{"name": "x", "bytes": "1"}]])
def test_what_is_created_is_checked_too(created):
    with pytest.raises(_model_split.SplitError, match="Expected created as model_info returns it"):
        weights([], None, created=created)


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="multiple of the 3 attention groups"):
        weights(tables.LLAMA_8B, geometry(8, 32), {"tp-size": 8, "dp-size": 3, "enable-dp-attention": True})
    with pytest.raises(ValueError, match="whole number"):
        weights(tables.LLAMA_8B, geometry(8, 32), {"tp-size": -1})


def test_windowed_layers_have_heads_of_their_own():
    layout = _ranks.layout_of(
        [], geometry(4, 32, window_kv_heads=8, window_head_dim=64), {"tp-size": 8}, {}, None, None, "cuda"
    )
    assert _model_split._kv_ways({"name": "k_proj.weight", "shape": [512, 100]}, layout) == 8
    assert _model_split._kv_ways({"name": "k_proj.weight", "shape": [2048, 100]}, layout) == 4


def test_a_plan_is_not_held_up():
    begin = time.process_time()
    weights(tables.DEEPSEEK_R1, R1, {"tp-size": 8, "pp-size": 4, "speculative-algorithm": "EAGLE"})
    assert time.process_time() - begin < 0.05
