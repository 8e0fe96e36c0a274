# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cell: worked examples, real configurations, and what must be refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv, _kv_base, _kv_tables, _model

CONFIGS = json.loads((Path(__file__).resolve().parents[3] / "data" / "facts" / "configs.json").read_text())
KNOWN = [case for case in CONFIGS if "cell_bytes" in case]
UNKNOWN = [case for case in CONFIGS if "unknown" in case]


def mha(**changes):
    base = {"attention": "mha", "layers": 32, "attention_heads": 32, "kv_heads": 8, "head_dim": 128, "v_head_dim": 128}
    return {**base, "dtype": "bfloat16", "model_type": "llama", **changes}


def mla(**changes):
    base = {"attention": "mla", "layers": 61, "attention_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    return dict(base, dtype="bfloat16", **changes)


def cell(geometry, arguments=None, version="0.5.23"):
    return _kv.cell_bytes(geometry, arguments, version)


def by_name(case):
    return case["name"]


# --- real configurations ----------------------------------------------------


@pytest.mark.parametrize("case", KNOWN, ids=by_name)
def test_real_configurations_give_the_cell_of_the_engine(case):
    geometry = _model.read_geometry(case["config"])
    assert cell(geometry, case["arguments"]).bytes == case["cell_bytes"]


@pytest.mark.parametrize("case", UNKNOWN, ids=by_name)
def test_families_that_are_not_understood_are_named(case):
    with pytest.raises(_kv.UnknownLayout, match="cell_bytes") as caught:
        _model.read_geometry(case["config"])
    named = caught.value.what.split(" in ")[0].replace("the architecture ", "")
    assert named in json.dumps(case["config"]) or case["config"]["architectures"][0] in str(caught.value)


# --- worked examples --------------------------------------------------------

GIB = 2**30
EXAMPLES = [
    # free after load, free before load, fraction, kv type, pool tokens: Kimi-K2 with tensor parallelism 8
    (24.97, 94.97, 0.93, "auto", 279957),
    (24.97, 94.97, 0.94, "fp8_e4m3", 588938),
    (19.97, 94.97, 0.93, "auto", 203558),
    (19.97, 94.97, 0.94, "fp8_e4m3", 436140),
]


@pytest.mark.parametrize(("after", "before", "fraction", "kv_type", "tokens"), EXAMPLES)
def test_pool_of_kimi_k2(after, before, fraction, kv_type, tokens):
    size = cell(mla(), {"tp": 8, "kv-cache-dtype": kv_type}).bytes
    assert int((after - before * (1 - fraction)) * GIB) // size == pytest.approx(tokens, abs=2)


def test_llama_70b_on_four_boards():
    geometry = mha(layers=80, attention_heads=64)
    assert cell(geometry, {"tp": 4}).bytes == 81920
    assert cell(geometry, {"tp": 4, "kv-cache-dtype": "fp8_e5m2"}).bytes == 40960
    assert int((78.5 - 33.0 - 78.5 * 0.15) * GIB) // 81920 == pytest.approx(442040, abs=5)


def test_a_public_log_agrees():
    """Printed: 367404 tokens, 8.23 GiB of keys and 8.23 of values, Qwen3-235B on four boards: 16 bits a number."""
    geometry = mha(layers=94, attention_heads=64, kv_heads=4)
    size = cell(geometry, {"tp": 4}).bytes
    assert size == 2 * 24064
    assert 367404 * size / GIB == pytest.approx(2 * 8.234, abs=0.001)
    assert cell(geometry, {"tp": 4, "kv-cache-dtype": "fp8_e4m3"}).bytes == 24064


# layers, KV heads, head size, KV type, tokens and GiB (keys and values together) as public start-ups print them.
PRINTED = [
    ("DeepSeek-R1-Distill-Qwen-7B", (28, 4, 128), "auto", 105531, 5.64),
    ("Llama-3.1-8B-Instruct", (32, 8, 128), "auto", 38141, 4.66),
    ("TinyLlama-1.1B", (22, 4, 64), "auto", 420200, 8.82),
    ("Qwen2.5-1.5B-Instruct", (28, 2, 128), "bf16", 1557709, 41.6),
    ("Qwen2.5-1.5B-Instruct fp8", (28, 2, 128), "fp8_e4m3", 3113713, 41.58),
    ("Qwen3-30B-A3B", (48, 4, 128), "auto", 549277, 50.28),
    ("Qwen3-30B-A3B-FP8", (48, 4, 128), "bf16", 2227073, 203.9),
]


@pytest.mark.parametrize(("name", "shape", "kv_type", "tokens", "gib"), PRINTED, ids=[row[0] for row in PRINTED])
def test_printed_pools_agree(name, shape, kv_type, tokens, gib):
    layers, kv_heads, head_dim = shape
    geometry = mha(layers=layers, kv_heads=kv_heads, attention_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim)
    assert cell(geometry, {"kv-cache-dtype": kv_type}).bytes * tokens / GIB == pytest.approx(gib, abs=0.021)


def test_a_printed_fp4_pool_agrees():
    """Free 111.92 GiB before and 108.66 after load at 0.4 gave 5519481 tokens (Qwen2.5-1.5B, SGLang 0.5.11)."""
    geometry = mha(layers=28, kv_heads=2, attention_heads=12)
    size = cell(geometry, {"kv-cache-dtype": "fp4_e2m1"}, "0.5.11+nv26.05").bytes
    assert (108.66 - 111.92 * 0.6) * GIB / size == pytest.approx(5519481, rel=0.002)


def test_the_small_model_of_the_demo():
    smol = {"attention": "mha", "layers": 30, "attention_heads": 9, "kv_heads": 3, "head_dim": 64, "dtype": "bfloat16"}
    result = cell(smol, {"device": "cpu"})
    assert result.bytes == 23040
    assert result.kv_dtype == "bf16"
    assert result.as_dict()["parts"] == [
        {"name": "keys and values", "bytes": 23040, "source": "3 KV heads x (64 + 64) x 30 layers x 2 bytes"}
    ]


# --- parallelism ------------------------------------------------------------


def test_kv_heads_are_replicated_not_split_below_one():
    sizes = [cell(mha(kv_heads=4, attention_heads=64), {"tp": tp}).bytes for tp in (1, 2, 4, 8, 16)]
    assert sizes == [4 * 16384, 2 * 16384, 16384, 16384, 16384]


def test_the_latent_row_is_whole_on_every_rank():
    assert {cell(mla(), {"tp": tp}).bytes for tp in (1, 2, 8, 16)} == {70272}


@pytest.mark.parametrize(
    ("arguments", "version", "attention_tp"),
    [
        ({"tp": 8}, "0.5.10", 8),
        ({"tp": 8, "dp": 4, "enable-dp-attention": True}, "0.5.10", 2),
        ({"tp": 8, "dp": 4}, "0.5.10", 8),
        ({"tp": 8, "dp": 4, "enable-dp-attention": True}, "0.4.0", 8),
        ({"tp": 8, "attn-dp-size": 8}, "0.5.23", 1),
        ({"tp": 8, "attn-dp-size": 2, "attn-cp-size": 2}, "0.5.23", 2),
        ({"tp": "8", "dp": 2.0, "enable-dp-attention": "true"}, "0.5.10", 4),
    ],
)
def test_data_parallel_attention_divides_the_ranks(arguments, version, attention_tp):
    result = cell(mha(), arguments, version)
    assert result.tp == attention_tp
    assert result.bytes == max(1, 8 // attention_tp) * 256 * 32 * 2


def test_the_largest_pipeline_stage_counts():
    assert cell(mla(), {"pp-size": 4}).bytes == 16 * 576 * 2
    assert "4 pipeline stages" in cell(mla(), {"pp-size": 4}).note
    with pytest.raises(_kv.LayoutError, match="pp-size to be at most the 61 layers"):
        cell(mla(), {"pp-size": 62})


@pytest.mark.parametrize(
    ("geometry", "arguments", "message"),
    [
        (mha(), {"tp": 3}, "32 attention heads to be a multiple"),
        (mha(attention_heads=48, kv_heads=8), {"tp": 3}, "8 KV heads and 3 attention ranks"),
        (mha(), {"tp": 8, "dp": 3, "enable-dp-attention": True}, "tp-size to be a multiple of the 3"),
        (mha(), {"tp": 0}, "at least 1 for the server argument tp-size, found 0"),
        (mha(), {"tp": -2}, "tp-size, found -2"),
        (mha(), {"tp": "many"}, "tp-size, found 'many'"),
        (mha(), {"tp": float("nan")}, "tp-size, found nan"),
        (mha(), {"tp": True}, "tp-size, found True"),
        (mha(), {"tp": 1.5}, "tp-size, found 1.5"),
        (mha(layers=None), {}, "Expected layers in the geometry"),
        (mha(layers=0), {}, "layers of the geometry, found 0"),
        (mha(kv_heads="8 "), {"tp": "x"}, "tp-size"),
        (mha(head_dim=-1), {}, "head_dim of the geometry"),
        ([], {}, "geometry as a dictionary, found list"),
        (mla(kv_lora_rank=None), {}, "Expected kv_lora_rank"),
    ],
)
def test_sizes_that_cannot_be_right_are_named(geometry, arguments, message):
    with pytest.raises(_kv.LayoutError, match=message) as caught:
        cell(geometry, arguments)
    assert str(caught.value).count(". ") == 0


# --- types and versions -----------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "arguments", "version", "name", "element_bytes"),
    [
        ({}, {}, "0.5.23", "bf16", 2),
        ({"dtype": "float16"}, {}, "0.5.23", "fp16", 2),
        ({"dtype": "float32"}, {}, "0.5.23", "fp16", 2),
        ({"dtype": None}, {}, "0.5.23", "fp16", 2),
        ({"dtype": "float32", "model_type": "gemma2"}, {}, "0.5.23", "bf16", 2),
        ({}, {"dtype": "float32"}, "0.5.23", "fp32", 4),
        ({}, {"kv_cache_dtype": "fp8_e4m3"}, "0.5.23", "fp8_e4m3", 1),
        ({}, {"kv_cache_dtype": "bfloat16"}, "0.5.23", "bfloat16", 2),
        ({"kv_cache_quant_algo": "FP8"}, {}, "0.5.23", "fp8_e4m3", 1),
        ({"kv_cache_quant_algo": "FP8"}, {}, "0.5.2", "bf16", 2),
        ({"kv_cache_quant_algo": "FP8"}, {"kv-cache-dtype": "bf16"}, "0.5.23", "bf16", 2),
        ({"kv_cache_quant_algo": "NVFP4"}, {}, "0.5.23", "bf16", 2),
    ],
)
def test_the_kv_type(changes, arguments, version, name, element_bytes):
    result = cell(dict(mha(), **changes), arguments, version)
    assert (result.kv_dtype, result.bytes) == (name, 8 * 256 * 32 * element_bytes)


@pytest.mark.parametrize(
    ("geometry", "arguments", "version", "what"),
    [
        (mha(), {"kv-cache-dtype": "int3"}, "0.5.23", "kv-cache-dtype int3"),
        (mha(), {"kv-cache-dtype": "nvfp4"}, "0.5.23", "kv-cache-dtype nvfp4"),
        (mha(), {"kv-cache-dtype": "fp4_e2m1"}, None, "kv-cache-dtype fp4_e2m1"),
        (mla(), {"kv-cache-dtype": "mxfp8"}, "0.5.23", "kv-cache-dtype mxfp8"),
        (mha(kv_cache_quant_algo="FP8"), {}, "0.5.3", "kv_cache_quant_algo FP8"),
        (mha(), {"dtype": "float8"}, "0.5.23", "dtype float8"),
        (mha(attention="swa"), {}, "0.5.23", "attention swa"),
        (mha(), {"enable-hisparse": True}, "0.5.23", "enable-hisparse"),
        (mha(), {"dcp-size": 2}, "0.5.23", "dcp-size 2"),
        (mha(), {"speculative-algorithm": "DFLASH"}, "0.5.23", "speculative-algorithm DFLASH"),
        (mha(), {"speculative-algorithm": "EAGLE3"}, "0.5.23", "speculative-algorithm EAGLE3"),
        (mha(), {"json-model-override-args": '{"num_hidden_layers": 4}'}, "0.5.23", "num_hidden_layers"),
    ],
)
def test_layouts_that_are_not_known_are_named_with_the_way_out(geometry, arguments, version, what):
    with pytest.raises(_kv.UnknownLayout, match="state the cell as sglang_server_cell_bytes") as caught:
        cell(geometry, arguments, version)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"enable-hisparse": False, "dcp-size": 1},
        {"enable-hisparse": "false", "dcp-size": "1"},
        {"json-model-override-args": '{"rope_scaling": {"factor": 4}}'},
        {"speculative-algorithm": None},
        {"speculative-algorithm": "NGRAM"},
        {"tool-call-parser": "kimi_k2"},
    ],
)
def test_arguments_that_change_nothing_change_nothing(arguments):
    assert cell(mha(), arguments).bytes == 131072


def test_value_heads_count_since_0_5_7():
    geometry = mha(head_dim=192)
    assert cell(geometry, {}, "0.5.7").bytes == 8 * (192 + 128) * 32 * 2
    assert cell(geometry, {}, "0.5.6").bytes == 8 * (192 + 192) * 32 * 2


def test_fp4_by_version():
    assert cell(mha(), {"kv-cache-dtype": "fp4_e2m1"}, "0.5.6").bytes == 65536 // 2 + 8 * 128 * 32 * 2 // 16
    assert cell(mha(), {"kv-cache-dtype": "fp4_e2m1"}, "0.5.17").bytes == 32768 + 4096 + 8 * 128 * 2
    assert cell(mla(), {"kv-cache-dtype": "fp4_e2m1"}, "0.5.14").bytes == 61 * 576 // 2 + 36 * 61
    assert cell(mha(), {"kv-cache-dtype": "mxfp8"}, "0.5.23").bytes == 65536 + 65536 // 32


def test_draft_layers_grow_the_cell_since_0_5_14():
    draft = {"speculative-algorithm": "EAGLE"}
    assert cell(mla(nextn_layers=1), draft, "0.5.14").bytes == 71424
    assert cell(mla(nextn_layers=1), draft, "0.5.13").bytes == 70272
    assert "outside the fraction" in cell(mla(nextn_layers=1), draft, "0.5.13").note
    by_path = dict(draft, **{"speculative-draft-model": "/srv/draft"})
    with pytest.raises(_kv.UnknownLayout, match="layers of the draft model"):
        cell(mla(nextn_layers=1), by_path)
    assert cell(mla(draft_layers=2), by_path).bytes == 70272 + 70272 * 2 // 61


def test_an_unknown_version_is_said():
    assert "version is unknown" in cell(mha(), {}, None).note
    with pytest.raises(ValueError, match="Expected an engine version"):
        cell(mha(), {}, "newest")


# --- properties -------------------------------------------------------------

GEOMETRIES = st.builds(
    lambda layers, kv_heads, groups, head_dim: mha(
        layers=layers, kv_heads=kv_heads, attention_heads=kv_heads * groups, head_dim=head_dim, v_head_dim=head_dim
    ),
    st.integers(1, 128),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([64, 96, 128, 256]),
)


@given(GEOMETRIES, st.sampled_from([1, 2, 4, 8]), st.sampled_from(["auto", "fp8_e4m3"]))
def test_all_ranks_together_hold_at_least_the_whole_token(geometry, tp, kv_type):
    if geometry["attention_heads"] % tp:
        return
    one = cell(geometry, {"kv-cache-dtype": kv_type}).bytes
    share = cell(geometry, {"kv-cache-dtype": kv_type, "tp": tp})
    assert one <= share.bytes * tp
    assert one == share.bytes * tp or tp > geometry["kv_heads"]
    assert sum(part["bytes"] for part in share.parts) == share.bytes


@given(GEOMETRIES, st.integers(1, 8))
def test_stages_together_hold_every_layer(geometry, stages):
    if stages > geometry["layers"]:
        return
    result = cell(geometry, {"pp-size": stages})
    assert result.layers * stages >= geometry["layers"] > (result.layers - 1) * stages


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.lists(st.integers()), st.integers(max_value=0)))
def test_no_odd_value_passes_as_a_size(value):
    try:
        number = _kv_base.whole_number(value, "x")
    except _kv.LayoutError:
        return
    assert isinstance(number, int)
    assert number >= 1


# --- the request table ------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "draft", "rows", "columns"),
    [
        ("0.4.6.post5", 4, 2049, 1004),
        ("0.4.9", 4, 2048, 1004),
        ("0.5.10", 4, 2048, 1008),
        ("0.5.23", 4, 2049, 1008),
        (None, 0, 2049, 1004),
    ],
)
def test_request_table(version, draft, rows, columns):
    assert _kv.request_table_bytes(2048, 1000, version, draft) == rows * columns * 4


def test_default_requests():
    assert _kv.default_max_running_requests(400000, 131072) == 2048
    assert _kv.default_max_running_requests(4000000, 8192) == 4096
    assert _kv.default_max_running_requests(1000, 8192, "0.5.23") == 500
    assert _kv.default_max_running_requests(1000, 8192, "0.5.22") == 2048


def test_every_row_of_the_tables_has_a_source():
    tables = (
        _kv_tables.KV_DTYPES,
        _kv_tables.LAYOUT_ARGUMENTS,
        _kv_tables.DRAFT_RULES,
        _kv_tables.TABLE_FORMS,
        _kv.LAYOUTS,
    )
    assert all(row.source for table in tables for row in table)


# --- sizes that no model has ------------------------------------------------


@pytest.mark.parametrize(
    ("geometry", "named"),
    [
        (mha(layers=10**9), "at most 10000 for layers of the geometry, found 1000000000"),
        (mha(layers=10**30), "for layers of the geometry"),
        (mha(layers=10001), "for layers of the geometry"),
        (mha(kv_heads=10**9), "for kv_heads of the geometry"),
        (mha(attention_heads=10**9), "for attention_heads of the geometry"),
        (mha(head_dim=65537), "for head_dim of the geometry"),
        (mha(v_head_dim=10**9), "for v_head_dim of the geometry"),
        (mha(rows_per_layer=10**9), "for rows_per_layer of the geometry"),
        (mla(layers=10**9), "for layers of the geometry"),
        (mla(kv_lora_rank=10**9), "for kv_lora_rank of the geometry"),
        (mla(qk_rope_head_dim=10**9), "for qk_rope_head_dim of the geometry"),
    ],
)
def test_a_wild_size_is_one_sentence_and_takes_no_time(geometry, named):
    begin = time.process_time()
    with pytest.raises(_kv.LayoutError, match=named):
        cell(geometry)
    assert time.process_time() - begin < 0.5
    assert cell(mha(layers=10000)).bytes == 10000 * 8 * 128 * 2 * 2


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("EAGLE3", {"draft_layers": 10**9}),
        ("EAGLE3", {"draft_geometry": {"layers": 10**9}}),
        ("DFLASH", {"draft_geometry": {"layers": 1, "kv_heads": 8, "head_dim": 10**9}}),
    ],
)
def test_a_wild_draft_is_one_sentence(algorithm, changes):
    arguments = {"speculative-algorithm": algorithm, "speculative-draft-model-path": "/draft"}
    with pytest.raises(_kv.LayoutError, match="Expected at most"):
        cell(mha(**changes), arguments)
