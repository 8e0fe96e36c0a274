# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model folder: geometry of config.json, safetensors headers (weights.json), completeness, hostile input."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _families,
    _kv,
    _model,
    _model_quant,
    _model_read,
    _model_vision,
    _model_weights,
)

DATA = Path(__file__).resolve().parents[3] / "data" / "facts"
WEIGHTS = json.loads((DATA / "weights.json").read_text())
CONFIGS = json.loads((DATA / "configs.json").read_text())

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


def config_of(name):
    return next(case["config"] for case in CONFIGS if case["name"] == name)


def changed(**changes):
    config = dict(LLAMA, **changes)
    return {key: value for key, value in config.items() if value is not Ellipsis}


# --- geometry ---------------------------------------------------------------


def test_the_keys_of_geometry():
    assert _model.read_geometry(LLAMA) == {
        "architecture": "LlamaForCausalLM",
        "model_type": "llama",
        "attention": "mha",
        "layers": 30,
        "hidden_size": 576,
        "attention_heads": 9,
        "kv_heads": 3,
        "head_dim": 64,
        "v_head_dim": 64,
        "kv_lora_rank": None,
        "qk_rope_head_dim": None,
        "vocab_size": 49152,
        "intermediate_size": 1536,
        "experts": None,
        "experts_per_token": None,
        "moe_intermediate_size": None,
        "nextn_layers": None,
        "max_context_tokens": 8192,
        "dtype": "bfloat16",
        "kv_cache_quant_algo": None,
        "quantized": False,
        "multimodal": False,
        "notes": [],
    }


# Figures as the published config.json states them, under the names of each family.
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}, (8, 768)),  # Qwen3-30B-A3B
        ({"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336}, (2, 14336)),  # Mixtral 8x7B
        ({"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}, (8, 2048)),  # DeepSeek-R1
        (  # Hunyuan-A13B: lists with a figure for every layer
            {"num_experts": 64, "moe_topk": [8, 8, 8], "moe_intermediate_size": [3072, 3072, 3072]},
            (8, 3072),
        ),
        ({"n_routed_experts": 512, "moe_topk": 12, "expert_ffn_hidden_size": 2048}, (12, 2048)),  # LongCat-Flash
        ({"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536}, (6, 1536)),  # Ernie 4.5
        ({"num_experts": 16, "num_experts_per_token": 4, "moe_intermediate_size": 640}, (4, 640)),
        ({"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}, (8, 704)),  # Gemma 4
        ({"moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120}, (3, 5120)),  # Step 3
        ({"num_experts": 4, "moe_intermediate_size": 10}, (None, 10)),
        ({"num_experts": 0, "num_experts_per_tok": 8, "moe_intermediate_size": 768}, (None, None)),  # a dense sister
    ],
)
def test_experts_that_a_token_takes_and_their_width(keys, expected):
    geometry = _model.read_geometry(changed(**keys))
    assert (geometry["experts_per_token"], geometry["moe_intermediate_size"]) == expected


@pytest.mark.parametrize("value", [0, -8, 2.5, True, "8", [8, "x"], [[8]]])
def test_experts_that_cannot_be(value):
    with pytest.raises(_model.ModelError, match="for num_experts_per_tok in config.json"):
        _model.read_geometry(changed(num_experts=8, num_experts_per_tok=value))


# What the published config.json of MiniMax-M2 states beside the keys that the engine reads.
LEFT_OVER = {
    "attn_type_list": [1] * 62,
    "layernorm_full_attention_beta": 1.0,
    "layernorm_linear_attention_beta": 1.0,
    "layernorm_mlp_beta": 1.0,
    "shared_intermediate_size": 0,
    "shared_moe_mode": "sigmoid",
    "mtp_transformer_layers": 1,
    "num_mtp_modules": 3,
    "use_mtp": True,
}


def test_keys_that_the_engine_never_reads_for_minimax_m2():
    config = config_of("MiniMax-M2.5")
    geometry = _model.read_geometry(dict(config, **LEFT_OVER))
    assert geometry == _model.read_geometry(config)
    assert _kv.cell_bytes(geometry, {"tp-size": 4}, "0.5.23").bytes == 63488  # 62 layers x 2 heads x 128 x 2 x 2 bytes


def test_the_same_keys_count_for_another_architecture():
    with pytest.raises(_model.UnknownLayout, match="attn_type_list"):
        _model.read_geometry(changed(attn_type_list=[1, 0] * 15))


def test_latent_attention():
    geometry = _model.read_geometry(config_of("DeepseekV3ForCausalLM-b04"))
    assert (geometry["attention"], geometry["kv_lora_rank"], geometry["qk_rope_head_dim"]) == ("mla", 512, 64)
    assert geometry["nextn_layers"] == 1


def test_head_dim_of_the_file_wins():
    assert _model.read_geometry(changed(head_dim=128))["head_dim"] == 128


@pytest.mark.parametrize("head_dim", [None, Ellipsis])
def test_head_dim_is_derived_where_the_class_derives_it(head_dim):
    assert _model.read_geometry(changed(head_dim=head_dim))["head_dim"] == 64


@pytest.mark.parametrize(("kv_heads", "expected"), [(None, 9), (Ellipsis, 9), (1, 1)])
def test_kv_heads_that_are_not_stated(kv_heads, expected):
    assert _model.read_geometry(changed(num_key_value_heads=kv_heads))["kv_heads"] == expected


def test_defaults_of_the_class_are_said():
    geometry = _model.read_geometry(config_of("Gemma3ForConditionalGeneration-b09"))
    assert (geometry["attention_heads"], geometry["kv_heads"], geometry["head_dim"], geometry["layers"]) == (
        8,
        4,
        256,
        34,
    )
    assert sum("default of the class gemma3_text" in note for note in geometry["notes"]) == 3
    mistral = changed(architectures=["MistralForCausalLM"], model_type="mistral", num_key_value_heads=Ellipsis)
    geometry = _model.read_geometry(dict(mistral, num_attention_heads=32, hidden_size=4096))
    assert geometry["kv_heads"] == 8
    assert "num_key_value_heads is not in config.json" in geometry["notes"][0]


def test_levels_are_never_mixed():
    inner = {
        key: LLAMA[key] for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    }
    outer = {"architectures": ["X"], "model_type": "x", "num_hidden_layers": 99, "torch_dtype": "bfloat16"}
    once = _model.read_geometry(dict(outer, text_config=dict(inner, model_type="llama")))
    twice = _model.read_geometry(
        dict(outer, thinker_config={"text_config": dict(inner, head_dim=64), "num_hidden_layers": 7})
    )
    assert (once["layers"], twice["layers"]) == (30, 30)
    assert once["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    "config",
    [
        {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "model_type": "gpt2"},
        {"n_layers": 12, "n_heads": 12, "d_model": 768, "max_seq_len": 1024, "model_type": "mpt"},
        {
            "num_layers": 12,
            "num_attention_heads": 12,
            "hidden_size": 768,
            "multi_query_group_num": 12,
            "seq_length": 1024,
        },
        {"n_layers": 12, "n_heads": 12, "d_model": 768, "max_seq_len": 1024, "attn_config": {"kv_n_heads": 12}},
    ],
)
def test_old_names(config):
    geometry = _model.read_geometry(dict(config, architectures=["AnyForCausalLM"]))
    assert (geometry["layers"], geometry["attention_heads"], geometry["kv_heads"]) == (12, 12, 12)
    assert (geometry["head_dim"], geometry["max_context_tokens"]) == (64, 1024)


@pytest.mark.parametrize(
    ("scaling", "tokens"),
    [
        (None, 8192),
        ({"type": "linear", "factor": 4.0}, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        ({"factor": "x"}, 8192),
    ],
)
def test_context(scaling, tokens):
    assert _model.read_geometry(changed(rope_scaling=scaling))["max_context_tokens"] == tokens


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "a JSON object in config.json, found list"),
        (changed(num_hidden_layers=Ellipsis), "num_hidden_layers in config.json, found nothing"),
        (changed(num_hidden_layers=0), "for num_hidden_layers in config.json, found 0"),
        (changed(num_hidden_layers="30"), "num_hidden_layers in config.json, found '30'"),
        (changed(num_hidden_layers=30.0), "found 30.0"),
        (changed(num_attention_heads=True), "num_attention_heads in config.json, found True"),
        (changed(num_key_value_heads=[3, 3]), r"num_key_value_heads in config.json, found \[3, 3\]"),
        (changed(num_key_value_heads=4), "multiple of the KV heads, found 9 and 4"),
        (changed(num_hidden_layers=10**9), "found 1000000000"),
        (changed(hidden_size=577), "hidden_size 577 is no multiple of 9"),
        (changed(model_type="brandnew", num_key_value_heads=Ellipsis), "num_key_value_heads in config.json.*brandnew"),
        (changed(architectures=["DeepseekV3ForCausalLM"]), "kv_lora_rank and qk_rope_head_dim in config.json"),
        ({"text_config": {"model_type": "x", "hidden_size": 8}}, "in text_config of config.json"),
    ],
)
def test_what_is_missing_or_impossible_is_named(config, message):
    with pytest.raises(_model.ModelError, match=message):
        _model.read_geometry(config)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"layer_types": ["full_attention"] * 29 + ["linear_attention"]}, "'linear_attention' in layer_types"),
        ({"index_topk": 2048}, "index_topk"),
        ({"num_kv_shared_layers": 5}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 1}, "num_kv_shared_layers"),
        ({"use_cla": True, "cla_share_factor": 2}, "use_cla"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"kv_lora_rank": 512}, "LlamaForCausalLM"),
        ({"architectures": ["BrandNewForCausalLM"], "sliding_window": 1024}, "sliding_window"),
        ({"yoco_first_layer": 8}, "yoco_first_layer"),
        ({"kv_compress_factor": 4}, "kv_compress_factor"),
        ({"hybrid_override_pattern": "M-*?"}, "hybrid_override_pattern"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"loop_num": 2}, "loop_num"),
    ],
)
def test_what_changes_the_layout_is_refused_by_name(changes, what):
    with pytest.raises(_model.UnknownLayout, match="cell_bytes") as caught:
        _model.read_geometry(changed(**changes))
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"index_topk": None, "num_kv_shared_layers": 0, "use_cla": False, "is_encoder_decoder": False, "loop_num": 1},
        {
            "architectures": ["Qwen2ForCausalLM"],
            "sliding_window": 32768,
            "use_sliding_window": False,
            "max_window_layers": 28,
        },
        {"architectures": ["BrandNewForCausalLM"], "sliding_window": None},
        {"layer_types": ["full_attention"] * 30},
        {
            "num_local_experts": 8,
            "shared_expert_intermediate_size": 20,
            "n_shared_experts": 2,
            "decoder_sparse_step": 1,
        },
        {"attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256, "local_rope_theta": 10000.0},
    ],
)
def test_what_changes_nothing_is_let_through(changes):
    geometry = _model.read_geometry(changed(**changes))
    assert (geometry["layers"], geometry["kv_heads"], geometry["head_dim"]) == (30, 3, 64)


def test_windows_are_noted_where_full_rows_are_kept():
    geometry = _model.read_geometry(config_of("Gemma2ForCausalLM-b37"))
    assert geometry["head_dim"] == 256
    assert "keeps full rows for Gemma2ForCausalLM" in geometry["notes"][0]


def test_tables_do_not_contradict_each_other():
    refused = {name for row in _families.REFUSED_ARCHITECTURES for name in row.architectures}
    latent = {name for row in _families.MLA_FAMILIES for name in row.architectures}
    assert not refused & latent
    assert not (refused | latent) & _families.PLAIN_ARCHITECTURES
    assert all(row.source for row in _families.REFUSED_ARCHITECTURES + _families.MLA_FAMILIES + _families.REFUSED_KEYS)
    assert all(_families.SUSPICIOUS_KEY.search(key) for key in ("mamba_d_state", "swa_head_dim", "index_head_dim"))
    assert not any(_families.SUSPICIOUS_KEY.search(key) for key in LLAMA)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted([*LLAMA, "head_dim", "text_config", "attn_config", "layer_types", "quantization_config"])),
    VALUES,
)
def test_no_value_ends_in_a_traceback(key, value):
    try:
        geometry = _model.read_geometry(dict(LLAMA, **{key: value}))
    except (_model.ModelError, _model.UnknownLayout):
        return
    for name in ("layers", "attention_heads", "kv_heads", "head_dim"):
        assert isinstance(geometry[name], int)
        assert geometry[name] > 0


# --- quantisation -----------------------------------------------------------


def test_no_quantisation():
    assert _model_quant.quantization_of(LLAMA, LLAMA) is None


def test_awq():
    config = config_of("DeepseekV2ForCausalLM-b36")
    facts = _model_quant.quantization_of(config, config)
    assert facts["method"] == "awq"
    assert (facts["bits"], facts["group_size"], facts["version"], facts["zero_point"]) == (4, 128, "marlin", False)


def test_a_mixed_file_states_facts_only():
    config = config_of("NemotronHForCausalLM-b25")
    facts = _model_quant.quantization_of(config, config)
    assert (facts["method"], facts["algo"], facts["kv_cache_quant_algo"]) == ("modelopt", "MIXED_PRECISION", "FP8")
    beside = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": None},
    }
    facts = _model_quant.quantization_of(LLAMA, LLAMA, beside)
    assert (facts["method"], facts["algo"], facts["source"]) == ("modelopt", "MIXED_PRECISION", "hf_quant_config.json")


@pytest.mark.parametrize(
    ("method", "scheme", "algo"),
    [
        ("modelopt", {"type": "float", "num_bits": 8}, "FP8"),
        ("modelopt", {"type": "int", "num_bits": 8}, None),
        ("compressed-tensors", {"type": "float", "num_bits": 8}, None),
    ],
)
def test_kv_scheme_counts_for_modelopt_only(method, scheme, algo):
    config = dict(LLAMA, quantization_config={"quant_method": method, "kv_cache_scheme": scheme})
    assert _model.read_geometry(config)["kv_cache_quant_algo"] == algo


# --- safetensors headers ----------------------------------------------------


def write(path, header, data_bytes=None, length=None):
    """Write a safetensors file with this header (dict or text) and as many data bytes as it needs, sparse."""
    text = header if isinstance(header, str) else json.dumps(header)
    raw = text.encode()
    if data_bytes is None:
        ends = [row["data_offsets"][1] for name, row in json.loads(text).items() if name != "__metadata__"]
        data_bytes = max(ends, default=0)
    with open(path, "wb") as handle:
        handle.write(struct.pack("<Q", len(raw) if length is None else length) + raw)
        handle.truncate(8 + len(raw) + data_bytes)


def tensor(begin, end, dtype="BF16"):
    return {"dtype": dtype, "shape": [(end - begin) // 2], "data_offsets": [begin, end]}


def test_bytes_come_from_offsets_whatever_the_type(tmp_path):
    write(tmp_path / "model.safetensors", WEIGHTS["b27"]["header_json"])
    header = _model_weights.read_header(str(tmp_path / "model.safetensors"))
    assert header.tensor_bytes == 544
    assert len(header.tensors) == 5
    weights = _model_weights.weights_in(_model_weights.Folder(str(tmp_path)))
    assert weights.bytes_by_dtype == {"BF16": 256, "U8": 128, "F8_E8M0": 32, "F8_E4M3": 64, "U32": 64}


@pytest.mark.parametrize("metadata", [{}, None, {"format": "pt"}])
def test_metadata_plays_no_part(metadata):
    text = json.dumps({"__metadata__": metadata, "w": tensor(0, 8)})
    assert _model_weights.parse_header(text, "f").tensor_bytes == 8


HOSTILE = [
    ("", "JSON in the header of f"),
    ("[]", "a JSON object in the header of f, found list"),
    ("{" * 100000, "JSON in the header of f"),
    ("[" * 100000, "JSON in the header of f"),
    ('{"w": 5}', "no usable data_offsets for the tensor 'w'"),
    ('{"w": {"data_offsets": [0]}}', "no usable data_offsets"),
    ('{"w": {"data_offsets": [8, 0]}}', "no usable data_offsets"),
    ('{"w": {"data_offsets": [-8, 0]}}', "no usable data_offsets"),
    ('{"w": {"data_offsets": [0, true]}}', "no usable data_offsets"),
    ('{"w": {"data_offsets": [0, 1e3]}}', "no usable data_offsets"),
    ('{"w": {"data_offsets": [0, 99999999999999999999]}}', "no usable data_offsets"),
    ('{"a": {"data_offsets": [0, 8]}, "b": {"data_offsets": [4, 12]}}', "overlap or leave holes"),
    ('{"a": {"data_offsets": [0, 8]}, "b": {"data_offsets": [100, 108]}}', "overlap or leave holes"),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_headers_end_in_one_sentence(text, message):
    with pytest.raises(_model_weights.WeightsError, match=message) as caught:
        _model_weights.parse_header(text, "f")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "only 0 bytes"),
        (b"short", "only 5 bytes"),
        (struct.pack("<Q", 2**63), "more than safetensors allows"),
        (struct.pack("<Q", 5000) + b"{}", "it is cut off"),
        (struct.pack("<Q", 0) + b"{}", "it is cut off"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "is not text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git LFS pointer"),
    ],
)
def test_hostile_files_end_in_one_sentence(tmp_path, content, message):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(_model_weights.WeightsError, match=message):
        _model_weights.read_header(str(tmp_path / "f"))


@given(st.binary(max_size=64))
def test_no_bytes_end_in_a_traceback(content):
    try:
        text = content.decode("utf-8", "replace")
        _model_weights.parse_header(text, "f")
    except _model_weights.WeightsError:
        return
    assert isinstance(json.loads(text), dict)


# --- which files ------------------------------------------------------------


def test_only_what_the_index_names_counts():
    files = WEIGHTS["b30"]["files"]
    names = [name for name in files if name.endswith(".safetensors") and name.startswith("model-")]
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    selection = _model_weights.select_files(list(files), index)
    assert sorted(selection.files) == sorted(names)
    assert sum(files[name] for name in selection.files) == 14496080928


def test_the_publishers_copy_does_not_count_without_an_index():
    names = [
        "consolidated.safetensors",
        "model.safetensors",
        "original/consolidated.safetensors",
        "adapter_model.safetensors",
    ]
    assert _model_weights.select_files(names).files == ("model.safetensors",)
    assert _model_weights.select_files(["consolidated.safetensors"]).files == ("consolidated.safetensors",)


def test_numbering_promises_shards_without_an_index():
    names = ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
    assert "model-00002-of-00003.safetensors" in _model_weights.select_files(names).files


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (list(WEIGHTS["b33"]["files"]), "pickled weights only"),
        (["model-q4.gguf"], "GGUF files only"),
        (["adapter_model.safetensors", "adapter_config.json"], "an adapter"),
        (["model.h5"], "another framework"),
        (["model.safetensors.incomplete"], "unfinished downloads only"),
        (["config.json"], "found none"),
    ],
)
def test_folders_without_safetensors_are_refused_with_the_reason(names, reason):
    with pytest.raises(_model_weights.WeightsError, match=reason):
        _model_weights.select_files(names)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "", "..", 5, None])
def test_an_index_cannot_lead_out_of_the_folder(name):
    with pytest.raises(_model_weights.WeightsError, match="no file of the model folder"):
        _model_weights.select_files([], {"weight_map": {"w": name}})


# --- images and sound -------------------------------------------------------


QWEN_VL = ["Qwen2_5_VLForConditionalGeneration"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # The first by its name, the second because its language model is nested.
        ({"architectures": QWEN_VL}, (True, None, None)),
        ({"architectures": ["NewForCausalLM"], "text_config": dict(LLAMA)}, (True, None, None)),
        ({"architectures": ["MiMoV2ForCausalLM"]}, (False, None, None)),
        (
            {"architectures": ["MiMoV2ForCausalLM"], "vision_config": {"a": 1}, "audio_config": {"a": 1}},
            (True,) + (None,) * 2,
        ),
        # Qwen2.5-VL calls its layers depth: the engine finds the width only, and takes 24 layers.
        ({"architectures": QWEN_VL, "vision_config": {"depth": 32, "hidden_size": 1280}}, (True, None, 1280)),
        ({"architectures": QWEN_VL, "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152}}, (True, 27, 1152)),
        ({"vision_config": {"num_hidden_layers": "many", "hidden_size": True}}, (False, None, None)),
        ({"vision_config": [1]}, (False, None, None)),
        ({"vision_n_layers": 12}, (True, None, None)),
        # Text only until --enable-multimodal is given.
        ({"architectures": ["Llama4ForConditionalGeneration"], "text_config": dict(LLAMA)}, (False, None, None)),
    ],
)
def test_images_and_sound(changes, expected):
    config = changed(**changes)
    found = _model_vision.vision_of(config, _model.text_node(config)[0], config["architectures"][0])
    assert (found["multimodal"], found.get("vision_layers"), found.get("vision_hidden_size")) == expected


def test_the_encoder_of_a_real_configuration():
    geometry = _model.read_geometry(config_of("Gemma3ForConditionalGeneration-b09"))
    assert (geometry["multimodal"], geometry["vision_layers"], geometry["vision_hidden_size"]) == (False, 27, 1152)
    assert _model.read_geometry(config_of("Kimi-K2.5"))["multimodal"]


@pytest.mark.parametrize("index", [{}, {"weight_map": {}}, {"weight_map": []}])
def test_an_index_without_a_map_is_refused(index):
    with pytest.raises(_model_weights.WeightsError, match="weight_map"):
        _model_weights.select_files([], index)


# --- the folder -------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    header = {"model.layers.0.w": tensor(0, 100), "model.embed_tokens.weight": tensor(100, 300)}
    write(tmp_path / "model.safetensors", header)
    return tmp_path


def test_a_complete_folder(folder):
    result = _model_read.read_folder(str(folder))
    assert (result["weight_bytes"], result["complete"], result["missing_files"]) == (300, True, [])
    assert (result["dtype"], result["quantization"], result["max_context_tokens"]) == ("bfloat16", None, 8192)
    assert result["files"] == ["model.safetensors"]
    assert result["geometry"]["layers"] == 30


def sharded(folder, shards):
    (folder / "model.safetensors").unlink()
    weight_map = {f"w{number}": f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    for number in shards:
        write(folder / f"model-{number:05d}-of-00002.safetensors", {f"w{number}": tensor(0, 50 * number)})
    return folder


def test_shards_add_up(folder):
    result = _model_read.read_folder(str(sharded(folder, (1, 2))))
    assert (result["weight_bytes"], result["complete"]) == (150, True)


def test_a_missing_shard_is_named_and_no_size_is_told(folder):
    result = _model_read.read_folder(str(sharded(folder, (1,))))
    assert (result["weight_bytes"], result["complete"]) == (None, False)
    assert result["missing_files"] == ["model-00002-of-00002.safetensors"]
    assert result["problems"] == [
        "model-00002-of-00002.safetensors named in model.safetensors.index.json is missing: download the model again."
    ]


def test_a_dangling_link_is_missing(folder):
    sharded(folder, (1,))
    (folder / "model-00002-of-00002.safetensors").symlink_to(folder / "blobs" / "gone")
    assert _model_read.read_folder(str(folder))["missing_files"] == ["model-00002-of-00002.safetensors"]


@pytest.mark.parametrize(
    ("size_bytes", "said"), [(10, "has .* bytes where its header implies"), (400, "header implies")]
)
def test_a_shard_of_the_wrong_size_is_damaged(folder, size_bytes, said):
    write(folder / "model.safetensors", {"w": tensor(0, 300)}, data_bytes=size_bytes)
    result = _model_read.read_folder(str(folder))
    assert result["missing_files"] == ["model.safetensors"]
    assert not result["complete"]
    assert re.search(said, result["problems"][0])


def test_a_shard_that_lacks_its_tensor_is_damaged(folder):
    sharded(folder, (1, 2))
    write(folder / "model-00002-of-00002.safetensors", {"other": tensor(0, 10)})
    assert "lacks 1 tensors" in _model_read.read_folder(str(folder))["problems"][0]


def test_a_tied_head_is_told_apart(folder):
    write(folder / "model.safetensors", WEIGHTS["b31"]["header_json"])
    result = _model_read.read_folder(str(folder))
    assert (result["weight_bytes"], result["tied_head_bytes"]) == (32832, 16384)


def test_built_in_draft_layers_are_told_apart(folder):
    write(folder / "model.safetensors", WEIGHTS["b34"]["header_json"])
    result = _model_read.read_folder(str(folder), {"num_hidden_layers": 46})
    assert (result["weight_bytes"], result["draft_layer_bytes"]) == (900, 700)


def test_a_copy_does_not_double_the_weights(folder):
    write(folder / "consolidated.safetensors", {"w": tensor(0, 300)})
    (folder / "original").mkdir()
    write(folder / "original" / "model.safetensors", {"w": tensor(0, 300)})
    assert _model_read.read_folder(str(folder))["weight_bytes"] == 300


def test_an_unknown_geometry_may_be_left_open(folder):
    (folder / "config.json").write_text(json.dumps(dict(LLAMA, architectures=["MiniCPMSALAForCausalLM"])))
    with pytest.raises(_model.UnknownLayout):
        _model_read.read_folder(str(folder))
    result = _model_read.read_folder(str(folder), {}, False)
    assert (result["geometry"], result["weight_bytes"]) == (None, 300)
    assert "MiniCPMSALAForCausalLM" in result["geometry_problem"]


def test_overrides_complete_a_configuration(folder):
    result = _model_read.read_folder(str(folder), {"head_dim": 128, "rope_scaling": {"factor": 2.0}})
    assert (result["geometry"]["head_dim"], result["max_context_tokens"]) == (128, 16384)
    assert _model.merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "found none: check the path"),
        (["adapter_config.json"], "an adapter"),
        (["x.gguf"], "GGUF files only"),
        (["params.json"], "another loader's layout"),
        (["snapshots"], "a hub cache"),
    ],
)
def test_a_folder_without_config_is_refused_with_the_reason(tmp_path, names, message):
    for name in names:
        (tmp_path / name).write_text("")
    with pytest.raises(_model.ModelError, match=message):
        _model_read.read_folder(str(tmp_path))


def test_what_is_no_folder_is_said(folder):
    with pytest.raises(_model.ModelError, match="found nothing"):
        _model_read.read_folder(str(folder / "absent"))
    with pytest.raises(_model.ModelError, match="found a file"):
        _model_read.read_folder(str(folder / "config.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "JSON in config.json"),
        ("[]", "a JSON object in config.json"),
        ("{" * 50000, "JSON in config.json"),
        ("version https://git-lfs.github.com/spec/v1", "config.json is a Git LFS pointer"),
    ],
)
def test_a_hostile_config_ends_in_one_sentence(folder, text, message):
    (folder / "config.json").write_text(text)
    with pytest.raises(_model_weights.WeightsError, match=message):
        _model_read.read_folder(str(folder))


def test_a_huge_config_is_not_read(folder):
    with open(folder / "config.json", "wb") as handle:
        handle.truncate(_model_weights.MAX_JSON_BYTES + 1)
    with pytest.raises(_model_weights.WeightsError, match="not the file of a model"):
        _model_read.read_folder(str(folder))
