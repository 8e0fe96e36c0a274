# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading weights: _model_headers, _model_table, _model_weights, _model_created, _model_read. More in test_model.py."""

from __future__ import annotations

import json
import random
import re
import struct
import time

import planner_headers
import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _model_created,
    _model_headers,
    _model_read,
    _model_table,
    _model_weights,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_choice import chosen_model

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}


def header_of(tensors, dtype="BF16"):
    """{name: shape} -> header, one tensor behind the other."""
    header, end = {}, 0
    for name, shape in tensors.items():
        size = 2
        for one in shape:
            size *= one
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    return header


def write(path, tensors):
    header = header_of(tensors)
    text = json.dumps(header).encode()
    with open(path, "wb") as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        handle.truncate(8 + len(text) + max((one["data_offsets"][1] for one in header.values()), default=0))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


# --- headers ------------------------------------------------------------------

OVERLAP = {
    "a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
    "b": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]},
    "c": {"dtype": "U8", "shape": [8], "data_offsets": [16, 24]},
}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (OVERLAP, "overlap or leave holes"),  # 24 bytes of tensors in 24: a sum alone does not see it
        ({"a": {"dtype": "U8", "shape": [-8], "data_offsets": [0, 8]}}, "shape holds -8"),
        ({"a": {"dtype": "U8", "shape": [-2, -4], "data_offsets": [0, 8]}}, "shape holds -2"),
        ({"a": {"dtype": "U8", "shape": [2**70], "data_offsets": [0, 8]}}, "shape holds 1180591620717411303424"),
        ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, "shape holds True"),
        ({"a": {"dtype": "U8", "shape": [1.5], "data_offsets": [0, 8]}}, "shape holds 1.5"),
        ({"a": {"dtype": "U8", "shape": "8", "data_offsets": [0, 8]}}, "no list of sizes"),
        ({"a": {"dtype": "U8", "shape": 8, "data_offsets": [0, 8]}}, "no list of sizes"),
        ({"a": {"dtype": "U8", "shape": [[8]], "data_offsets": [0, 8]}}, r"shape holds \[8\]"),
        ({"a": {"dtype": "U8", "shape": {"8": 8}, "data_offsets": [0, 8]}}, "no list of sizes"),
        ({"a": {"dtype": "U8", "shape": [1] * 100, "data_offsets": [0, 1]}}, "no list of sizes"),
        ({"a": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 8]}}, "8 bytes are not the shape"),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, -8]}}, "no usable data_offsets"),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [8, 0]}}, "no usable data_offsets"),
        ({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 2**63]}}, "no usable data_offsets"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(header, said):
    with pytest.raises(_model_headers.WeightsError, match=said) as caught:
        _model_headers.parse_header(json.dumps(header), "model-00001-of-00002.safetensors")
    assert "model-00001-of-00002.safetensors" in str(caught.value)
    assert "fetch" in str(caught.value)
    assert len(str(caught.value)) < 400


PLAIN = {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}
NO_OFFSETS = "no usable data_offsets for the tensor 'b'"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"dtype": "U8", "shape": [8], "data_offsets": [8, 16.0]}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": [8.0, 16]}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": [8, float("nan")]}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": [8, 16, 24]}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": [8]}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": "ab"}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": None}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [8]}, NO_OFFSETS),
        ({"dtype": "U8", "shape": [2**60], "data_offsets": [8, 8 + 2**60]}, NO_OFFSETS),
        ("x", NO_OFFSETS),
        (None, NO_OFFSETS),
        ([8, 16], NO_OFFSETS),
        ({"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "overlap or leave holes"),
        ({"dtype": "U8", "shape": [8], "data_offsets": [9, 17]}, "overlap or leave holes"),
        ({"dtype": "U8", "shape": [9], "data_offsets": [8, 16]}, "contradicts itself for the tensor 'b' .8 bytes are"),
    ],
)
def test_one_odd_tensor_among_others_is_found(second, said):
    """Tensors are checked all together where they are written as usual: none may hide among the others."""
    header = {"a": PLAIN, "b": second, "c": {"dtype": "U8", "shape": [8], "data_offsets": [16, 24]}}
    with pytest.raises(_model_headers.WeightsError, match=said):
        _model_headers.parse_header(json.dumps(header), "f")


def test_true_is_no_offset_although_it_is_equal_to_one():
    header = {"a": dict(PLAIN, shape=[1], data_offsets=[0, True])}
    with pytest.raises(_model_headers.WeightsError, match="no usable data_offsets for the tensor 'a'"):
        _model_headers.parse_header(json.dumps(header), "f")


def test_a_name_that_comes_twice_leaves_a_hole():
    first, second = json.dumps(PLAIN), json.dumps(dict(PLAIN, data_offsets=[8, 16]))
    twice = f'{{"a": {first}, "a": {second}}}'
    with pytest.raises(_model_headers.WeightsError, match="one begins at byte 8, the one before ends at 0"):
        _model_headers.parse_header(twice, "f")


def test_the_order_in_the_header_is_not_that_of_the_file():
    header = {"b": {"dtype": "U8", "shape": [2, 4], "data_offsets": [8, 16]}, "a": PLAIN}
    found = _model_headers.parse_header(json.dumps(header), "f")
    assert found.tensors == {"b": ("U8", 8, (2, 4)), "a": ("U8", 8, (8,))}
    assert found.tensor_bytes == 16


def safetensors(header, data_bytes):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"x" * data_bytes


ONE = {"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (struct.pack("<Q", 2**63) + b"xx", "states a header of 9223372036854775808 bytes"),
        (safetensors(ONE, 8)[:20], "is cut off"),
        (safetensors(ONE, 5), "has 73 bytes where its header implies 76"),
        (safetensors(OVERLAP, 24), "overlap or leave holes"),
        (struct.pack("<Q", 10) + b"{not json!", "cannot be read"),
        (b"", "has only 0 bytes"),
        (None, "is missing: download the model again"),
    ],
)
def test_a_damaged_file_is_one_sentence_in_the_result_and_in_the_plan(folder, content, said):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "a.safetensors"}}))
    if content is not None:
        (folder / "a.safetensors").write_bytes(content)
    result = _model_read.read_folder(str(folder))
    assert (result["complete"], result["missing_files"], result["weight_bytes"]) == (False, ["a.safetensors"], None)
    (sentence,) = result["problems"]
    assert sentence.startswith("a.safetensors ")
    assert said in sentence
    assert re.search(r"(fetch it|fetch the file|download the model) again\.$", sentence)
    shown = chosen_model(result, {}, {})
    if content is None or "bytes where its header" in said:  # it may still be brought there, or is on its way
        assert shown["refused"] == []
        assert shown["unchecked"][0].startswith(sentence[:-1] + "; without it a plan needs")
    else:
        assert (shown["refused"], shown["unchecked"]) == ([sentence], [])


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100 * 1000 * 1000 + 1])
def test_a_length_beyond_the_format_is_not_read(tmp_path, length):
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    begin = time.process_time()
    with pytest.raises(_model_headers.WeightsError, match="more than safetensors allows.*fetch it again"):
        _model_headers.read_header(str(path))
    assert time.process_time() - begin < 0.1


def test_types_that_nobody_knows_count_by_their_offsets():
    header = {"a": {"dtype": "F3_E9", "shape": [7], "data_offsets": [0, 5]}, "b": {"data_offsets": [5, 6]}}
    assert _model_headers.parse_header(json.dumps(header), "f").tensors == {
        "a": ("F3_E9", 5, (7,)),
        "b": ("unknown", 1, None),
    }


# --- as the writer of the format writes it: without spaces ---------------------

COMPACT = (
    '{"__metadata__":{"format":"pt"},"model.a":{"dtype":"BF16","shape":[2,4],"data_offsets":[0,16]},'
    '"b.weight":{"dtype":"F32","shape":[],"data_offsets":[16,20]},"c":{"dtype":"U8",'
    '"shape":[3],"data_offsets":[20,23]}}   '
)
READ = {"model.a": ("BF16", 16, (2, 4)), "b.weight": ("F32", 4, ()), "c": ("U8", 3, (3,))}


def outcome(text):
    try:
        header = _model_headers.parse_header(text, "f")
        return header.tensors, header.tensor_bytes, header.file_bytes
    except _model_headers.WeightsError as error:
        return str(error)


def by_json(text, monkeypatch):
    """What the same header says when it is read as JSON and looked at entry by entry."""

    def refused(*dummy):
        raise ValueError

    with monkeypatch.context() as patch:
        patch.setattr(_model_headers, "_scanned", refused)
        return outcome(text)


def test_a_compact_header_is_scanned(monkeypatch):
    monkeypatch.setattr(_model_headers, "loads_object", lambda *dummy: pytest.fail("read as JSON"))
    assert outcome(COMPACT) == (READ, 23, 8 + len(COMPACT) + 23)
    assert outcome(COMPACT.replace('"__metadata__":{"format":"pt"},', ""))[0] == READ
    backslash = COMPACT.replace('"pt"', '"a \\"quoted\\" text"')
    assert outcome(backslash)[0] == READ


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"c"', '"model.a"'),
        ('"c"', '"__metadata__"'),
        ('"c"', '"c\\u0041"'),
        ('"c"', '"c\n"'),
        ('"c"', '"c\x01"'),
        ("[0,16]", "[00,16]"),
        ("[0,16]", "[0,016]"),
        ("[20,23]", "[20,23,24]"),
        ("[20,23]", "[2_0,23]"),
        ("[20,23]", "[20,+23]"),
        ("[20,23]", "[20, 23]"),
        ("[20,23]", "[20]"),
        ("[20,23]", "[,]"),
        ("[16,20]", "[20,16]"),
        ("[2,4]", "[2,4,]"),
        ("[2,4]", "[2,5]"),
        ("[2,4]", "[[2,4]]"),
        ("[20,23]", "[20,%d]" % 2**63),
        ('],"data_offsets":[16', '}]"data_offsets":[16'),
        ('"dtype":"F32"', '"dtype":"F32","x":1'),
        ('"pt"},', '"pt"}'),
        ('"pt"},', '"pt"}},'),
        ('{"__metadata__":{', '{"__metadata__":{"a":{'),
        ('{"__metadata__":', '["__metadata__":'),
        ("}}   ", "}}  x"),
        ("}}   ", "},}"),
        ("}}   ", "}"),
        ('{"__metadata__"', '{"__metadata__":' + "[" * 100000 + '"'),
    ],
)
def test_what_is_written_in_another_way_is_read_as_json_reads_it(monkeypatch, old, new):
    text = COMPACT.replace(old, new, 1)
    assert text != COMPACT
    assert outcome(text) == by_json(text, monkeypatch)


def test_scanning_and_json_agree_on_anything(monkeypatch):
    """Characters of the header are exchanged, left out and doubled: nothing is read that JSON would not read so."""
    chance = random.Random(7)
    alphabet = '{}[],:"0123456789 \\\x01\x02\nax_'
    for _turn in range(3000):
        text = COMPACT
        for _change in range(chance.randint(1, 3)):
            place = chance.randrange(len(text))
            put = chance.choice(["", chance.choice(alphabet), text[place : place + chance.randint(1, 40)] * 2])
            text = text[:place] + put + text[place + 1 :]
        assert outcome(text) == by_json(text, monkeypatch), text


# --- which weights ------------------------------------------------------------


def test_a_wrong_total_of_the_index_is_a_note(folder):
    write(folder / "a.safetensors", {"model.embed_tokens.weight": [10, 64]})
    index = {"metadata": {"total_size": 999}, "weight_map": {"model.embed_tokens.weight": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    result = _model_read.read_folder(str(folder))
    assert (result["weight_bytes"], result["index_total_bytes"], result["complete"]) == (1280, 999, True)
    assert "states 999 bytes in all, the headers hold 1280" in result["notes"][0]


@pytest.mark.parametrize("metadata", [{}, None, [], {"total_size": "1280"}, {"total_size": True}, {"total_size": -5}])
def test_an_index_without_a_total_works(folder, metadata):
    write(folder / "a.safetensors", {"w": [10, 64]})
    index = {"metadata": metadata, "weight_map": {"w": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    result = _model_read.read_folder(str(folder))
    assert (result["weight_bytes"], result["index_total_bytes"], result["notes"]) == (1280, None, [])


def test_a_tensor_in_two_files_counts_once(folder):
    write(folder / "a.safetensors", {"w": [10, 64], "v": [1, 64]})
    write(folder / "b.safetensors", {"w": [10, 64]})
    result = _model_read.read_folder(str(folder))
    assert result["weight_bytes"] == 1280 + 128
    assert result["notes"] == ["1 tensors of b.safetensors are in another file too and count once"]


def test_a_draft_file_that_the_index_forgot_is_loaded_as_the_engine_does(folder):
    write(folder / "a.safetensors", {"model.layers.0.w": [10, 64]})
    write(folder / "mtp.safetensors", {"model.layers.2.w": [20, 64]})
    index = {"weight_map": {"model.layers.0.w": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    source = _model_weights.Folder(str(folder))
    forgotten = _model_weights.weights_in(source, 2, False, "Glm4MoeForCausalLM")
    assert (forgotten.weight_bytes, forgotten.draft_layer_bytes) == (1280 + 2560, 2560)
    assert _model_weights.weights_in(source, 2, False, "LlamaForCausalLM").weight_bytes == 1280


def test_a_numbering_of_many_shards_is_no_burden():
    names = [f"model-{number:05d}-of-02000.safetensors" for number in range(1, 2001)]
    begin = time.process_time()
    assert len(_model_weights.select_files(names).files) == 2000
    assert time.process_time() - begin < 0.5
    assert _model_weights.select_files(["model-00001-of-99999.safetensors"]).files == (
        "model-00001-of-99999.safetensors",
    )


# --- the table ----------------------------------------------------------------


def table_of(names, layers=2, **more):
    table = _model_table.Table(layers)
    for name in names:
        table.add(name, "BF16", 128, (8, 8), **more)
    return table.as_list()


def test_tensors_that_differ_in_numbers_are_one_row():
    names = [f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight" for layer in (0, 1) for expert in range(3)]
    assert table_of(names) == [
        {
            "name": "model.layers.*.mlp.experts.*.up_proj.weight",
            "dtype": "BF16",
            "shape": [8, 8],
            "tensors": 6,
            "bytes": 768,
            "layers": [[0, 1]],
            "draft": False,
            "tied": False,
        }
    ]


NAMES = [
    "model.layers.1.mlp.experts.0.up_proj.weight",
    "model.layers.0.mlp.experts.17.up_proj.weight",
    "model.layers.2.mlp.experts.17.up_proj.weight",  # a draft where there are two layers
    "model.layers.0.mlp.experts.x.up_proj.weight",
    "model.layers.0.mlp.experts.1234567.up_proj.weight",
    "experts.3.layers.1.w",
    "experts.3",
    "model.layers.0.mlp.shared_experts.0.w",
    "a\nmodel.experts.3.w",
    "lm_head.weight",
    "",
]


@pytest.mark.parametrize("names", [NAMES, NAMES[:8], NAMES[:2], []])
def test_tensors_that_are_alike_are_added_as_if_one_by_one(names):
    """Joined lines would shift where a name holds a line break."""
    tensors = dict.fromkeys(names, ("BF16", 128, (8, 8)))
    one_by_one, together = _model_table.Table(2), _model_table.Table(2)
    drafts = sum(form[1] for name, form in tensors.items() if one_by_one.add(name, *form))
    drafts_together = 0
    for (name, (dtype, size_bytes, shape)), count in _model_table.alike(tensors):
        if together.add(name, dtype, size_bytes * count, shape, tensors=count):
            drafts_together += size_bytes * count
    assert together.as_list() == one_by_one.as_list()
    assert drafts_together == drafts


def test_experts_are_alike_and_layers_are_not():
    tensors = dict.fromkeys(NAMES[:2] + ["model.layers.1.mlp.experts.9.up_proj.weight"], ("BF16", 128, (8, 8)))
    assert sorted(count for _row, count in _model_table.alike(tensors)) == [1, 2]


@pytest.mark.parametrize(
    ("name", "layers", "draft"),
    [
        ("model.layers.2.eh_proj.weight", [[2, 2]], True),
        ("mtp.layers.0.mlp.up_proj.weight", [[0, 0]], True),
        ("model.mtp.fc.weight", [], True),
        ("model.mtp_layers.0.w", [[0, 0]], True),
        ("model.visual.blocks.26.norm1.weight", [[26, 26]], False),
        ("model.embed_tokens.weight", [], False),
        ("model.layers.*.odd.weight", [], False),
        ("model.layers.99999999.w", [], False),
        ("layers.1", [[1, 1]], False),
    ],
)
def test_layers_and_drafts(name, layers, draft):
    (row,) = table_of([name])
    assert (row["layers"], row["draft"]) == (layers, draft)


def test_layers_are_told_as_runs():
    (row,) = table_of([f"model.layers.{layer}.w" for layer in (5, 0, 1, 7, 2)], layers=None)
    assert row["layers"] == [[0, 2], [5, 5], [7, 7]]
    assert _model_table.layers_of(row) == 5
    assert _model_table.layers_between(row, 1, 6) == [1, 2, 5]
    assert _model_table.table_problem([row]) is None


def test_a_table_has_an_end():
    table = _model_table.Table(2)
    for number in range(_model_table.MAX_ROWS + 500):
        table.add(f"w{number}", "U8", 1, (1,))
    rows = table.as_list()
    assert len(rows) == _model_table.MAX_ROWS + 1
    assert (rows[-1]["name"], rows[-1]["bytes"]) == (_model_table.OTHERS, 500)


def test_what_is_read_is_what_a_plan_takes(folder):
    write(folder / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": [8, 8], "lm_head.weight": [8, 8]})
    (folder / "config.json").write_text(json.dumps(dict(CONFIG, tie_word_embeddings=True)))
    result = _model_read.read_folder(str(folder))
    assert _model_table.table_problem(result["weight_table"]) is None
    assert [row["tied"] for row in result["weight_table"]] == [False, True]
    assert sum(row["bytes"] for row in result["weight_table"]) == result["weight_bytes"]
    assert (result["source"], result["commit"]) == ("model folder", None)


def test_an_incomplete_model_has_no_table(folder):
    write(folder / "model-00001-of-00002.safetensors", {"w": [8, 8]})
    result = _model_read.read_folder(str(folder))
    assert (result["weight_table"], result["weight_bytes"], result["complete"]) == ([], None, False)


def test_drafts_are_told_apart_where_the_geometry_is_not_understood(folder):
    write(folder / "model.safetensors", {"model.layers.1.w": [8, 8], "model.layers.2.w": [4, 8]})
    unknown = dict(CONFIG, architectures=["NobodysForCausalLM"], kv_lora_rank=512)
    (folder / "config.json").write_text(json.dumps(unknown))
    result = _model_read.read_folder(str(folder), {}, False)
    assert (result["geometry"], result["weight_bytes"], result["draft_layer_bytes"]) == (None, 192, 64)


# --- speed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts_of_shard", "tensors", "most_seconds"),
    [
        pytest.param(78, 93600, 1.0, id="DeepSeek-V3"),
        pytest.param(192, 230400, 1.6, id="Kimi-K2-in-four-bits", marks=pytest.mark.long),
    ],
)
def test_two_hundred_shards_take_less_than_a_second(tmp_path, experts_of_shard, tensors, most_seconds):
    """Header bytes only. Two busy cores of 2026 take 0.45 s for the first, 1.0 s for the second."""
    assert planner_headers.write(tmp_path, experts_of_shard) == tensors
    result, seconds = planner_headers.read(_model_read.read_folder, tmp_path)
    print(f"{tensors:,} tensors in 200 shards: {seconds:.2f} s of processor time")
    assert result["weight_bytes"] == 200 * experts_of_shard * 3 * (2048 * 7168 + 16 * 56 * 4)
    assert [row["tensors"] for row in result["weight_table"]] == [tensors // 6] * 6
    assert seconds < most_seconds


# --- what is made besides -------------------------------------------------------

GEMMA_4 = {"max_position_embeddings": 262144, "head_dim": 256, "global_head_dim": 512}
GEMMA_4_ROPE = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, 131072 * 128 * 4),  # 64 MiB, the difference between files and log of Llama 3.1 8B
        ({"head_dim": None}, 131072 * 128 * 4),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}},
            131072 * 128 * 4,
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 2 * 131072 * 128 * 4),
        ({"partial_rotary_factor": 0.5}, 131072 * 64 * 4),
        (
            {"rope_parameters": {"full": {"rope_type": "default"}, "window": {"rope_type": "default"}}},
            2 * 131072 * 128 * 4,
        ),
        ({"rope_local_base_freq": 10000.0}, 2 * 131072 * 128 * 4),
        (
            {
                "kv_lora_rank": 512,
                "qk_rope_head_dim": 64,
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840 * 64 * 4,  # DeepSeek-V3
        ),
        ({**GEMMA_4, "rope_parameters": GEMMA_4_ROPE}, 262144 * (256 + 512) * 4),
        # As some files have it: keys of the whole beside those of the kinds of layers.
        ({**GEMMA_4, "rope_parameters": {**GEMMA_4_ROPE, "rope_theta": None}}, 262144 * (256 + 512) * 4),
        (GEMMA_4, 262144 * (256 + 512) * 4),
        (
            {
                "model_type": "ministral3",
                "max_position_embeddings": 393216,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "factor": 48.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            2 * 393216 * 128 * 4,  # Devstral Small 2: both of its two sets of layers have a table
        ),
        ({"model_type": "ministral3"}, (131072 + 16384) * 128 * 4),
        ({"max_position_embeddings": None}, 0),
        ({"max_position_embeddings": 2**40}, 0),
        ({"max_position_embeddings": "131072"}, 0),
        ({"rope_scaling": {"type": "yarn", "factor": float("inf")}}, 131072 * 128 * 4),
    ],
)
def test_rotary_tables(changes, size):
    base = {"max_position_embeddings": 131072, "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128}
    made = _model_created.created_of({**base, **changes})
    assert sum(one["bytes"] for one in made) == size
    assert all(one["source"] for one in made)
