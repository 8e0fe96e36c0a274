# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Forms of config.json: which layers there are (_model_layers), states (_model_state), families (_model_family)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _families,
    _model,
    _model_family,
    _model_layers,
    _model_state,
)

DATA = Path(__file__).resolve().parents[3] / "data" / "facts"

BASE = {
    "num_hidden_layers": 8,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
}


def read(architecture, model_type, **changes):
    config = dict(BASE, architectures=[architecture], model_type=model_type, **changes)
    return _model.read_geometry({key: value for key, value in config.items() if value is not Ellipsis})


def pattern(*args, **changes):
    return read(*args, **changes)["layer_pattern"]


# --- windows ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "model_type", "changes", "expected"),
    [
        ("GptOssForCausalLM", "gpt_oss", {"layer_types": ["sliding_attention", "full_attention"] * 4}, "wfwfwfwf"),
        # What the class does when the file does not list its layers.
        ("GptOssForCausalLM", "gpt_oss", {}, "wfwfwfwf"),
        ("GptOssForCausalLM", "gpt_oss", {"layer_types": None}, "wfwfwfwf"),
        ("Gemma4ForCausalLM", "gemma4_text", {}, "wwwwwfwf"),
        ("Llama4ForConditionalGeneration", "llama4_text", {}, "wwwfwwwf"),
        ("MiMoV2FlashForCausalLM", "mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 0]}, "fwwwfwwf"),
        # Entries beyond the layers belong to draft layers.
        ("Step3p5ForCausalLM", "step3p5", {"layer_types": ["full_attention"] + ["sliding_attention"] * 9}, "fwwwwwww"),
        ("GptOssForCausalLM", "gpt_oss", {"full_attention_layer_ids": [0, 7]}, "fwwwwwwf"),
    ],
)
def test_window_layers(architecture, model_type, changes, expected):
    geometry = read(architecture, model_type, sliding_window=128, **changes)
    assert geometry["layer_pattern"] == expected
    assert geometry["layers"] == 8
    assert geometry["window_tokens"] == (8192 if architecture.startswith("Llama4") else 128)


def test_window_heads_of_their_own():
    geometry = read(
        "MiMoV2FlashForCausalLM",
        "mimo_v2_flash",
        hybrid_layer_pattern=[0, 1] * 4,
        v_head_dim=64,
        swa_num_key_value_heads=8,
        swa_head_dim=192,
        swa_v_head_dim=96,
    )
    assert (geometry["kv_heads"], geometry["head_dim"], geometry["v_head_dim"]) == (4, 128, 64)
    names = ("window_kv_heads", "window_head_dim", "window_v_head_dim")
    assert tuple(geometry[name] for name in names) == (8, 192, 96)
    step = read(
        "Step3p5ForCausalLM",
        "step3p5",
        layer_types=["full_attention", "sliding_attention"] * 4,
        num_key_value_heads=...,
        num_attention_groups=8,
        attention_other_setting={"num_attention_groups": 2},
    )
    assert (step["kv_heads"], step["window_kv_heads"]) == (8, 2)


@pytest.mark.parametrize(
    ("changes", "full", "window"),
    [
        ({"num_global_key_value_heads": 1, "global_head_dim": 512, "attention_k_eq_v": True}, (1, 512), (4, 128)),
        ({"num_global_key_value_heads": 1, "global_head_dim": 512}, (1, 512), (4, 128)),
        ({"num_global_key_value_heads": 1, "attention_k_eq_v": False}, (4, 512), (4, 128)),
        ({"global_head_dim": 256}, (4, 256), (4, 128)),
    ],
)
def test_gemma_4_states_its_window_layers_first(changes, full, window):
    geometry = read("Gemma4ForCausalLM", "gemma4_text", **changes)
    assert (geometry["kv_heads"], geometry["head_dim"]) == full
    assert (geometry["window_kv_heads"], geometry["window_head_dim"]) == window


def test_a_window_alone_saves_nothing():
    geometry = read("MistralForCausalLM", "mistral", sliding_window=4096)
    assert "layer_pattern" not in geometry
    assert "keeps full rows for MistralForCausalLM" in geometry["notes"][0]
    laguna = read("LagunaForCausalLM", "laguna", layer_types=["full_attention"] * 8)
    assert "layer_pattern" not in laguna


# --- states -----------------------------------------------------------------

LINEAR = {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_conv_kernel_dim": 4}
KDA = {"num_heads": 16, "head_dim": 128, "short_conv_kernel_size": 4}


@pytest.mark.parametrize(
    ("architecture", "model_type", "changes", "expected"),
    [
        ("Qwen3NextForCausalLM", "qwen3_next", {"full_attention_interval": 4}, "sssfsssf"),
        ("Qwen3NextForCausalLM", "qwen3_next", {}, "sssfsssf"),
        ("Qwen3NextForCausalLM", "qwen3_next", {"layer_types": ["linear_attention", "full_attention"] * 4}, "sfsfsfsf"),
        ("NemotronHForCausalLM", "nemotron_h", {"hybrid_override_pattern": "M-M*MEM*"}, "s-sfs-sf"),
        (
            "NemotronHForCausalLM",
            "nemotron_h",
            {"layers_block_type": ["mamba", "moe", "attention", "mlp"], "num_hidden_layers": ...},
            "s-f-",
        ),
        (
            "FalconH1ForCausalLM",
            "falcon_h1",
            {"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 16, "mamba_n_groups": 1},
            "bbbbbbbb",
        ),
        (
            "GraniteMoeHybridForCausalLM",
            "granitemoehybrid",
            {
                "layer_types": ["mamba"] * 7 + ["attention"],
                "mamba_n_heads": 64,
                "mamba_d_head": "auto",
                "mamba_expand": 2,
                "mamba_d_state": 128,
            },
            "sssssssf",
        ),
        ("Lfm2ForCausalLM", "lfm2", {"full_attn_idxs": [2, 5], "conv_L_cache": 3}, "ssfssfss"),
        ("Lfm2ForCausalLM", "lfm2", {"layer_types": ["conv"] * 7 + ["full_attention"]}, "sssssssf"),
        (
            "JambaForCausalLM",
            "jamba",
            {"attn_layer_period": 4, "attn_layer_offset": 1, "mamba_d_state": 16},
            "sfsssfss",
        ),
    ],
)
def test_state_layers(architecture, model_type, changes, expected):
    more = LINEAR if architecture.startswith("Qwen3") else {}
    geometry = read(architecture, model_type, **{**more, **changes})
    assert geometry["layer_pattern"] == expected
    assert geometry["layers"] == len(expected)
    assert geometry["state"]["kind"] in ("mamba1", "mamba2")


def test_layers_that_count_from_one():
    """Kimi counts from 1, GLM 5 Next from 0; numbers beyond the layers belong to draft layers."""
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    node = dict(KDA, kda_layers=[1, 2, 3, 5, 6, 7], full_attn_layers=[4, 8, 9])
    geometry = read("KimiLinearForCausalLM", "kimi_linear", linear_attn_config=node, **latent)
    assert (geometry["attention"], geometry["layer_pattern"], geometry["state"]["kind"]) == ("mla", "sssfsssf", "kda")
    node = dict(KDA, kda_layers=[0, 1, 2, 4, 5, 6])
    geometry = read(
        "Glm5NextForConditionalGeneration", "glm5_next_text", linear_attn_config=node, index_head_dim=128, **latent
    )
    assert (geometry["layer_pattern"], geometry["index_head_dim"]) == ("sssfsssf", 128)
    wrong = dict(KDA, kda_layers=[1, 2], full_attn_layers=[4, 8])
    with pytest.raises(_model.ModelError, match="either in kda_layers or in full_attn_layers"):
        read("KimiLinearForCausalLM", "kimi_linear", linear_attn_config=wrong, **latent)
    wrong = dict(KDA, kda_layers=[0, 1])
    with pytest.raises(_model.ModelError, match="once each"):
        read("KimiLinearForCausalLM", "kimi_linear", linear_attn_config=wrong, **latent)


def test_bailing_groups():
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    lightning = read("BailingMoeV2_5ForCausalLM", "bailing_hybrid", layer_group_size=4, **latent)
    assert (lightning["layer_pattern"], lightning["state"]["conv_kernel"]) == ("sssfsssf", 1)
    third = read(
        "BailingMoeV3ForCausalLM",
        "bailing_moe_v3",
        layer_group_size=[1, 0] * 4,
        short_conv_kernel_size=4,
        use_mla_nope=True,
        **latent,
    )
    assert (third["layer_pattern"], third["state"]["kind"], third["qk_rope_head_dim"]) == ("sfsfsfsf", "kda", 0)


def test_a_family_by_the_type_of_the_language_model():
    """Vision models around Qwen 3.5 have names of their own."""
    inner = dict(BASE, model_type="qwen3_5_text", full_attention_interval=4, **LINEAR)
    config = {"architectures": ["MiniCPMV4_6ForConditionalGeneration"], "model_type": "minicpmv", "text_config": inner}
    assert _model.read_geometry(config)["layer_pattern"] == "sssfsssf"


def test_numbers_of_a_state():
    geometry = read("Qwen3NextForCausalLM", "qwen3_next", mamba_ssm_dtype="bfloat16", mtp_num_hidden_layers=1, **LINEAR)
    assert geometry["state"] == {
        "kind": "mamba2",
        "channels": 4096,
        "groups": 16,
        "heads": 32,
        "head_dim": 128,
        "state_size": 128,
        "conv_kernel": 4,
        "dtype": "bfloat16",
    }
    assert geometry["mtp_layers"] == 1
    jet = {"jet": {"num_heads": 8, "head_dim": 96, "expand_v": 2, "conv_size": 4}}
    geometry = read(
        "JetNemotronForCausalLM", "jet_nemotron", layer_types=["attn", "jet"] * 4, efficient_attention_config=jet
    )
    assert geometry["layer_pattern"] == "fsfsfsfs"
    assert (geometry["state"]["channels"], geometry["state"]["state_size"]) == (1536, 96)


# --- index rows, repeats, blocks --------------------------------------------

LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"index_topk": 2048}, None),
        ({"index_topk_freq": 4}, "ii---i--"),  # max(layer - 1, 0) % 4
        ({"index_topk_freq": 4, "index_skip_topk_offset": 1}, "i---i---"),
        ({"index_topk_pattern": "FSSFSSFS"}, "i--i--i-"),
        ({"indexer_types": ["full", "shared"] * 4}, "i-i-i-i-"),
    ],
)
def test_layers_that_reuse_an_index(changes, expected):
    geometry = read("DeepseekV32ForCausalLM", "deepseek_v32", index_head_dim=128, **LATENT, **changes)
    assert geometry["index_head_dim"] == 128
    assert geometry.get("index_pattern") == expected


def test_latent_widths_and_index_of_the_class():
    geometry = read("GlmMoeDsaForCausalLM", "glm_moe_dsa")
    assert (geometry["kv_lora_rank"], geometry["qk_rope_head_dim"], geometry["index_head_dim"]) == (512, 64, 128)
    assert sum("default of the class glm_moe_dsa" in note for note in geometry["notes"]) == 2
    plain = read("DeepseekV3ForCausalLM", "deepseek_v3", kv_lora_rank=None)
    assert (plain["kv_lora_rank"], plain.get("index_head_dim")) == (512, None)


def test_layers_with_more_rows_than_one():
    assert read("LongcatFlashForCausalLM", "longcat_flash", **LATENT)["rows_per_layer"] == 2
    assert read("IQuestLoopCoderForCausalLM", "llama", loop_num=3)["rows_per_layer"] == 3
    assert "rows_per_layer" not in read("NanbeigeForCausalLM", "llama", num_loops=1)


def test_blocks_of_nemotron_nas():
    blocks = [{"attention": {"n_heads_in_group": 8, "no_op": False}}, {"attention": {"no_op": True}}]
    geometry = read("DeciLMForCausalLM", "nemotron-nas", block_configs=blocks, num_key_value_heads=None)
    assert geometry["kv_heads"] == 2
    for wrong in (None, [], blocks + [{"attention": {"n_heads_in_group": 4}}]):
        with pytest.raises(_model.UnknownLayout, match="block_configs"):
            read("DeciLMForCausalLM", "nemotron-nas", block_configs=wrong)


def test_sparse_layers_of_minimax():
    node = {"sparse_attention_freq": [0] + [1] * 7, "sparse_disable_index_value": [0] * 4 + [1] * 4}
    geometry = read(
        "MiniMaxM3SparseForCausalLM", "minimax_m3", sparse_attention_config=dict(node, sparse_index_dim=128)
    )
    assert (geometry["sparse_pattern"], geometry["sparse_index_dim"]) == ("dvvvkkkk", 128)
    with pytest.raises(_model.ModelError, match="sparse_index_dim"):
        read("MiniMaxM3SparseForCausalLM", "minimax_m3", sparse_attention_config=node)


def test_compressed_attention():
    more = {"qk_rope_head_dim": 64, "index_head_dim": 128, "sliding_window": 128}
    geometry = read("DeepseekV4ForCausalLM", "deepseek_v4", compress_ratios=[0, 0, 4, 128] * 2 + [0], **more)
    assert geometry["attention"] == "compressed"
    assert geometry["compress_ratios"] == [0, 0, 4, 128] * 2 + [0]
    assert (geometry["window_tokens"], geometry["index_compress"]) == (128, 4)
    without = read("DeepseekV4ForCausalLM", "deepseek_v4", compress_ratios=[0, 128] * 4, **more)
    assert "index_compress" not in without
    with pytest.raises(_model.UnknownLayout, match="kv_source_layer_ids"):
        read("DeepseekV4ForCausalLM", "deepseek_v4", compress_ratios=[0] * 8, kv_source_layer_ids=[3], **more)
    with pytest.raises(_model.UnknownLayout, match="compress_ratios"):
        read("DeepseekV4ForCausalLM", "deepseek_v4", compress_ratios=[0] * 3, **more)


# --- what is refused --------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "changes", "named"),
    [
        ("MiMoV2FlashForCausalLM", {}, "hybrid_layer_pattern"),
        ("MiMoV2FlashForCausalLM", {"hybrid_layer_pattern": [0, 2] * 4}, "hybrid_layer_pattern"),
        ("Step3p5ForCausalLM", {}, "layer_types in config.json"),
        ("GptOssForCausalLM", {"layer_types": ["full_attention"] * 3}, "8 entries in layer_types"),
        ("GptOssForCausalLM", {"layer_types": ["linear_attention"] * 8}, "the layer kind 'linear_attention'"),
        ("GptOssForCausalLM", {"layer_types": [None] * 8}, "the layer kind None"),
        ("NemotronHForCausalLM", {}, "hybrid_override_pattern"),
        ("NemotronHForCausalLM", {"hybrid_override_pattern": "MX*"}, "the letter 'X'"),
        ("Qwen3NextForCausalLM", {"full_attention_interval": 0}, "full_attention_interval"),
        ("Qwen3NextForCausalLM", {"linear_num_key_heads": -1}, "linear_num_key_heads"),
        ("FalconH1ForCausalLM", {}, "mamba_n_heads"),
        ("Lfm2ForCausalLM", {"full_attn_idxs": [2, 2]}, "full_attn_idxs"),
        ("JambaForCausalLM", {"attn_layer_offset": 9}, "attn_layer_offset"),
        ("InklingForConditionalGeneration", {}, "InklingForConditionalGeneration"),
        ("LlamaForCausalLM", {"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
        ("LlamaForCausalLM", {"full_attention_interval": 4}, "full_attention_interval"),
        ("LlamaForCausalLM", {"index_topk": 2048}, "index_topk"),
        ("LlamaForCausalLM", {"gated_delta_state": 3}, "gated_delta_state"),
    ],
)
def test_what_is_not_understood_is_named(architecture, changes, named):
    with pytest.raises((_model.ModelError, _model.UnknownLayout)) as caught:
        read(architecture, "llama", **changes)
    assert named in str(caught.value)
    assert str(caught.value).count(". ") == 0


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 40), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=9), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=9,
)
KEYS = (
    "layer_types",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "layers_block_type",
    "full_attention_interval",
    "full_attn_idxs",
    "linear_attn_config",
    "layer_group_size",
    "num_hidden_layers",
    "mamba_d_state",
    "conv_L_cache",
    "compress_ratios",
    "sparse_attention_config",
    "block_configs",
    "efficient_attention_config",
    "index_topk_pattern",
    "attention_other_setting",
)
ARCHITECTURES = (
    "GptOssForCausalLM",
    "MiMoV2FlashForCausalLM",
    "Gemma4ForCausalLM",
    "Llama4ForConditionalGeneration",
    "NemotronHForCausalLM",
    "Qwen3NextForCausalLM",
    "KimiLinearForCausalLM",
    "Lfm2ForCausalLM",
    "BailingMoeV2_5ForCausalLM",
    "JetNemotronForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "MiniMaxM3SparseForCausalLM",
    "DeciLMForCausalLM",
    "JambaForCausalLM",
    "GraniteMoeHybridForCausalLM",
)


@given(st.sampled_from(ARCHITECTURES), st.sampled_from(KEYS), VALUES)
def test_no_value_ends_in_a_traceback(architecture, key, value):
    config = dict(BASE, architectures=[architecture], model_type="llama", kv_lora_rank=512, qk_rope_head_dim=64)
    if not architecture.startswith(("Kimi", "Bailing", "Deepseek")):
        del config["kv_lora_rank"]
    try:
        geometry = _model.read_geometry(dict(config, **{key: value}))
    except (_model.ModelError, _model.UnknownLayout):
        return
    assert geometry["layers"] >= 1
    assert len(geometry.get("layer_pattern", "f" * geometry["layers"])) == geometry["layers"]


def test_every_reader_that_a_family_names_exists():
    families = _model_family.WINDOW_FAMILIES
    assert {row.layers for row in families} <= set(_model_layers.WINDOW_READERS)
    states = _model_family.STATE_FAMILIES
    assert {row.layers for row in states} <= set(_model_layers.STATE_READERS)
    assert {row.state for row in states} <= set(_model_state.READERS)


# --- files as they are published --------------------------------------------

# Keys of published files that look as if they changed the rows. What is not listed here is BASE.
LFM2 = {
    "block_auto_adjust_ff_dim": True,
    "block_dim": 2048,
    "block_ff_dim": 12288,
    "block_ffn_dim_multiplier": 1.0,
    "block_mlp_init_scale": 1.0,
    "block_multiple_of": 256,
    "block_norm_eps": 1e-05,
    "block_out_init_scale": 1.0,
    "block_use_swiglu": True,
    "block_use_xavier_init": True,
    "conv_L_cache": 3,
    "conv_bias": False,
    "conv_dim": 2048,
    "conv_dim_out": 2048,
    "conv_use_xavier_init": True,
    "full_attn_idxs": [2, 5],
}
NEMOTRON = {
    "hybrid_override_pattern": "MEM*EMEM",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "chunk_size": 128,
    "use_conv_bias": True,
    "use_mamba_kernels": True,
    "moe_shared_expert_intermediate_size": 3712,
    "moe_shared_expert_overlap": True,
    "time_step_floor": 0.0001,
}
MIMO = {
    "hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 0],
    "sliding_window": 128,
    "attention_chunk_size": 128,
    "add_swa_attention_sink_bias": True,
    "add_full_attention_sink_bias": False,
    "swa_rope_theta": 10000,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "hybrid_block_size": None,
}
INDEXED = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32}
PUBLISHED_KEYS = [
    ("Lfm2ForCausalLM", "lfm2", LFM2, "ssfssfss"),
    ("NemotronHForCausalLM", "nemotron_h", NEMOTRON, "s-sf-s-s"),
    ("MiMoV2FlashForCausalLM", "mimo_v2_flash", MIMO, "fwwwfwwf"),
    (
        "Gemma3nForCausalLM",
        "gemma3n_text",
        {"activation_sparsity_pattern": [0.95] * 8, "num_kv_shared_layers": 2},
        None,
    ),
    ("LongcatFlashForCausalLM", "longcat_flash", {"mla_scale_q_lora": True, "mla_scale_kv_lora": True}, None),
    ("MiniCPMO", "minicpmo", {"audio_chunk_length": 1.0, "audio_pool_step": 2, "chunk_input": True}, None),
    ("BailingMoeV2ForCausalLM", "bailing_moe", {"moe_router_enable_shared_expert": True}, None),
    ("Phi4MMForCausalLM", "phi4mm", {"speech_lora": {"r": 320}, "vision_lora": {"r": 256}}, None),
    ("DeepseekV32ForCausalLM", "deepseek_v32", {**INDEXED, "layer_types": ["indexed_attention"] * 8}, None),
    (
        "Gemma4ForCausalLM",
        "gemma4_text",
        {"enable_moe_block": True, "sliding_window": 1024, "global_head_dim": 512},
        "wwwwwfwf",
    ),
    (
        "LagunaForCausalLM",
        "laguna",
        {
            "num_attention_heads_per_layer": [16, 24] * 4,
            "layer_types": ["full_attention", "sliding_attention"] * 4,
            "sliding_window": 512,
        },
        "fwfwfwfw",
    ),
]


@pytest.mark.parametrize(("architecture", "model_type", "keys", "letters"), PUBLISHED_KEYS)
def test_keys_of_published_files_are_not_taken_for_unknown_layouts(architecture, model_type, keys, letters):
    geometry = read(architecture, model_type, **keys)
    assert geometry.get("layer_pattern") == letters


def test_kinds_of_layers_beside_the_lists_of_kimi():
    """transformers 5 writes layer_types too; without the lists it is not known what the engine makes of it."""
    kinds = ["linear_attention", "full_attention"] * 4
    lists = {"kda_layers": [1, 3, 5, 7], "full_attn_layers": [2, 4, 6, 8], "num_heads": 4, "head_dim": 64}
    keys = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "layer_types": kinds}
    geometry = read("KimiLinearForCausalLM", "kimi_linear", linear_attn_config=lists, **keys)
    assert geometry["layer_pattern"] == "sfsfsfsf"
    with pytest.raises(_model.UnknownLayout, match="the layer kind 'linear_attention' in layer_types"):
        read("KimiLinearForCausalLM", "kimi_linear", **keys)


# --- what a class fills in, and lists that do not fit -----------------------

# text_config of llava-hf/llava-1.5-7b-hf and of mistral-community/pixtral-12b, as far as they are of use here.
LLAVA = {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}
PIXTRAL = {
    "model_type": "mistral",
    "hidden_size": 5120,
    "head_dim": 128,
    "intermediate_size": 14336,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 1024000,
}


@pytest.mark.parametrize(
    ("model_type", "text", "expected", "notes"),
    [
        ("llava", LLAVA, (32, 4096, 32, 32, 128), 4),
        ("llava", {key: value for key, value in LLAVA.items() if key != "model_type"}, (32, 4096, 32, 32, 128), 4),
        ("llava", PIXTRAL, (40, 5120, 32, 8, 128), 1),
        ("mistral3", {key: value for key, value in PIXTRAL.items() if key != "model_type"}, (40, 5120, 32, 8, 128), 1),
        (
            "llava",
            dict(LLAVA, num_hidden_layers=40, hidden_size=5120, num_attention_heads=40),
            (40, 5120, 40, 40, 128),
            1,
        ),
    ],
)
def test_a_nested_model_has_the_defaults_of_its_class(model_type, text, expected, notes):
    architecture = "Mistral3ForConditionalGeneration" if model_type == "mistral3" else "LlavaForConditionalGeneration"
    geometry = _model.read_geometry({"architectures": [architecture], "model_type": model_type, "text_config": text})
    names = ("layers", "hidden_size", "attention_heads", "kv_heads", "head_dim")
    assert tuple(geometry[name] for name in names) == expected
    assert len([note for note in geometry["notes"] if "is the default of the class" in note]) == notes


def test_at_the_top_of_the_file_the_same_gap_is_refused():
    with pytest.raises(_model.ModelError, match="Expected num_hidden_layers and num_attention_heads in config.json"):
        _model.read_geometry({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64})


@pytest.mark.parametrize(
    ("architecture", "model_type", "changes", "named"),
    [
        ("NemotronHForCausalLM", "nemotron_h", {"hybrid_override_pattern": "M-M*M-M"}, "8 layers in hybrid_override"),
        ("NemotronHForCausalLM", "nemotron_h", {"hybrid_override_pattern": "M-M*M-M-M"}, "8 layers in hybrid_override"),
        ("NemotronHForCausalLM", "nemotron_h", {"layers_block_type": ["mamba"] * 7}, "8 layers in layers_block_type"),
        ("GptOssForCausalLM", "gpt_oss", {"layer_types": ["full_attention"] * 7}, "8 entries in layer_types"),
        ("Qwen3ForCausalLM", "qwen3", {"layer_types": ["full_attention"] * 7}, "8 entries in layer_types"),
    ],
)
def test_a_list_of_another_length_is_refused(architecture, model_type, changes, named):
    with pytest.raises(_model.ModelError, match=named):
        read(architecture, model_type, **changes)


# --- what a class fills in, and figures in lists and blocks -------------------

# As the published config.json states them.
DBRX = {
    "architectures": ["DbrxForCausalLM"],
    "model_type": "dbrx",
    "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "model_type": "", "rope_theta": 500000},
    "d_model": 6144,
    "ffn_config": {"ffn_hidden_size": 10752, "model_type": "", "moe_num_experts": 16, "moe_top_k": 4},
    "max_seq_len": 32768,
    "n_heads": 48,
    "n_layers": 40,
    "torch_dtype": "bfloat16",
    "vocab_size": 100352,
}
ERNIE_VL = {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
    "model_type": "ernie4_5_moe_vl",
    "hidden_size": 2560,
    "intermediate_size": 12288,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "moe_num_experts": [64, 64],
    "moe_intermediate_size": [1536, 512],
    "moe_k": 6,
    "moe_layer_start_index": [1, 1],
    "moe_layer_end_index": [29, 28],
    "moe_num_shared_experts": 2,
    "spatial_conv_size": 2,
    "temporal_conv_size": 2,
    "torch_dtype": "bfloat16",
    "vocab_size": 103424,
}


def test_dbrx_states_experts_and_kv_heads_in_blocks():
    """srt/models/dbrx.py: 16 experts of 10,752, four for a token, 8 KV heads of 6,144 / 48 numbers."""
    geometry = _model.read_geometry(DBRX)
    names = ("kv_heads", "head_dim", "experts", "experts_per_token", "intermediate_size", "moe_intermediate_size")
    assert [geometry[name] for name in names] == [8, 128, 16, 4, 10752, 10752]


def test_dbrx_without_its_block_has_the_kv_heads_of_the_class():
    """transformers 5 configuration_dbrx.py DbrxAttentionConfig: one."""
    geometry = _model.read_geometry({key: value for key, value in DBRX.items() if key != "attn_config"})
    assert geometry["kv_heads"] == 1
    assert "1 is the default of the class dbrx" in geometry["notes"][0]


def test_ernie_vl_states_experts_for_text_and_for_images():
    geometry = _model.read_geometry(ERNIE_VL)
    names = ("experts", "experts_per_token", "moe_intermediate_size", "kv_heads", "head_dim")
    assert [geometry[name] for name in names] == [64, 6, 1536, 4, 128]


@pytest.mark.parametrize("value", [[], ["64", 64], [64, None], [True, 64], [64, 2**80], [[64]]])
def test_a_list_that_holds_no_numbers_is_refused(value):
    with pytest.raises(_model.ModelError, match="whole number .* moe_num_experts in config.json"):
        _model.read_geometry(dict(ERNIE_VL, moe_num_experts=value))


@pytest.mark.parametrize(
    ("model_type", "kv_heads"),
    [
        ("dots1", 32),
        ("exaone4", 32),
        ("exaone_moe", 32),
        ("granite_swa", 4),
        ("granitemoe_swa", 64),  # as many as attention heads
        ("hy_v3", 8),
        ("qwen", 64),  # the first Qwen: no class of its own here, and no groups
        ("persimmon", 64),
    ],
)
def test_kv_heads_that_the_class_fills_in(model_type, kv_heads):
    """Read from the configuration classes of transformers 5.19, as the engine 0.5.23 installs it."""
    geometry = read("LlamaForCausalLM", model_type, num_attention_heads=64, num_key_value_heads=Ellipsis)
    assert geometry["kv_heads"] == kv_heads


def test_a_class_that_nobody_read_is_refused_by_name():
    with pytest.raises(_model.ModelError, match="num_key_value_heads in config.json, .* model type nobodys are not"):
        read("NobodysForCausalLM", "nobodys", num_key_value_heads=Ellipsis)


# Types whose configuration classes come with the model's own repository and not with transformers.
OWN_CLASSES = {"deepseek", "exaone", "internlm2", "solar"}


def test_every_row_of_the_defaults_is_the_class_that_the_engine_takes():
    recorded = json.loads((DATA / "class_defaults.json").read_text())["classes"]
    assert set(_families.CLASS_DEFAULTS) - set(recorded) == OWN_CLASSES
    for model_type, (heads, kv_heads, head_dim) in recorded.items():
        row = _families.CLASS_DEFAULTS[model_type]
        assert (row.kv_heads, row.head_dim) == (kv_heads, head_dim), model_type
        assert row.attention_heads in (None, heads), model_type
