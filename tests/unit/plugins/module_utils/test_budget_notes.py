# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments that move memory: counted, or named as a line of the plan. And what an older start-up does not tell."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import plan_of
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_notes as notes
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_table
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_fleet import lines, outage_seconds

GIB = 2**30
LLAMA = {
    "attention": "mha",
    "architecture": "LlamaForCausalLM",
    "layers": 32,
    "hidden_size": 4096,
    "attention_heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "v_head_dim": 128,
    "intermediate_size": 14336,
    "dtype": "bfloat16",
}


def planned(arguments=None, **more):
    """A plan of a model of 16 GiB on one GPU that has 78 GiB free before the load."""
    given = {
        "arguments": {"tp-size": 1, **(arguments or {})},
        "geometry": LLAMA,
        "weight_bytes": 16 * GIB,
        "free_before_load_gib": 78.0,
        "engine_version": "0.5.23",
        "target_tokens": 100000,
        "max_context_tokens": 32768,
        **more,
    }
    answer = plan_of(given)
    assert not answer.get("failed"), answer.get("msg")
    return answer


def gib_of(answer, name):
    return next((row["gib"] for row in answer["rows"] if row["name"] == name), None)


# --- adapters ---------------------------------------------------------------

LORA = {"enable-lora": True, "max-lora-rank": 16, "lora-target-modules": ["q_proj", "v_proj", "o_proj"]}


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        # qkv: A 3 x 4096, B 32 x 128 + 2 x 8 x 128; o: A and B 4096 each; 8 slots
        (LORA, 8 * (3 * 4096 + 6144 + 4096 + 4096)),
        (dict(LORA, **{"max-loras-per-batch": 2}), 2 * (3 * 4096 + 6144 + 4096 + 4096)),
        (dict(LORA, **{"lora-target-modules": "q_proj o_proj"}), 8 * (3 * 4096 + 6144 + 4096 + 4096)),
        (dict(LORA, **{"lora-target-modules": "gate_proj, down_proj"}), 8 * (2 * 4096 + 2 * 14336 + 14336 + 4096)),
        # Four ranks: what is read in whole is not divided.
        (dict(LORA, **{"tp-size": 4}), 8 * (3 * 4096 + 6144 // 4 + 4096 // 4 + 4096)),
    ],
)
def test_buffers_of_adapters_come_off_before_the_pool_is_sized(arguments, numbers):
    answer = planned(arguments)
    expected_gib = numbers * 16 * 32 * 2 / GIB
    assert gib_of(answer, "adapter buffers") == pytest.approx(expected_gib, abs=0.0001)
    plain = planned({"tp-size": arguments.get("tp-size", 1)})
    assert plain["free_after_load_gib"] - answer["free_after_load_gib"] == pytest.approx(expected_gib, abs=0.0002)
    assert not any("enable-lora" in one for one in answer["notes"])


@pytest.mark.parametrize(
    ("arguments", "geometry"),
    [
        ({"enable-lora": True}, LLAMA),
        ({"lora-paths": ["a=/srv/a"]}, LLAMA),
        (dict(LORA, **{"lora-target-modules": "all"}), LLAMA),
        (dict(LORA, **{"lora-target-modules": ["embed_tokens"]}), LLAMA),
        (LORA, dict(LLAMA, experts=8, experts_per_token=2, moe_intermediate_size=14336)),
    ],
)
def test_adapters_that_cannot_be_counted_are_a_line_of_the_plan(arguments, geometry):
    answer = planned(arguments, geometry=geometry)
    (line,) = [one for one in answer["notes"] if one.startswith("enable-lora")]
    assert "cannot be counted before a first start" in line
    assert line in " ".join(" ".join(answer["table"]).split())
    assert gib_of(answer, "adapter buffers") is None


def test_a_pool_that_was_there_has_the_buffers_in_it():
    start = {
        "origin": "host",
        "fraction": 0.85,
        "pool_tokens": 300000,
        "free_before_load_gib": 78.0,
        "cell_bytes": 131072,
    }
    answer = planned(LORA, measurements=[start])
    assert gib_of(answer, "adapter buffers") is None


# --- host memory, and forms of weights --------------------------------------


def test_what_stays_in_host_memory_is_not_on_the_board():
    assert gib_of(planned(), "weights") - gib_of(planned({"cpu-offload-gb": 4}), "weights") == pytest.approx(
        4, abs=0.001
    )
    assert gib_of(planned({"cpu-offload-gb": 40}), "weights") == pytest.approx(0.1, abs=0.001)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # 100,000 tokens x 131,072 bytes are 12.207 GiB of pool; its twice
        ({"enable-hierarchical-cache": True}, "about 24.4 GiB of this host's RAM (hicache-ratio 2, 1 ranks here)"),
        ({"enable-hierarchical-cache": True, "hicache-ratio": 4}, "about 48.8 GiB"),
        # gigabytes of 10^9 bytes, for each of two ranks
        ({"enable-hierarchical-cache": True, "hicache-size": 100, "tp-size": 2}, "about 186.3 GiB"),
    ],
)
def test_the_cache_of_the_host_adds_nothing_to_the_pool_and_is_named(arguments, words):
    answer = planned(arguments)
    assert answer["pool_tokens"] == 100000
    assert any(words in one for one in answer["notes"])


TABLE = [
    {
        "name": "model.layers.*.mlp.down_proj.weight",
        "dtype": "BF16",
        "shape": [4096, 14336],
        "tensors": 32,
        "bytes": 32 * 4096 * 14336 * 2,
        "layers": [[0, 31]],
    }
]


@pytest.mark.parametrize("arguments", [{"load-format": "gguf"}, {"quantization": "gguf"}, {"model-path": "/m/a.gguf"}])
def test_a_gguf_file_beside_the_safetensors_that_were_read_is_refused(arguments):
    answer = planned(arguments, weight_table=TABLE)
    assert "GGUF" in answer["refusal"]
    assert planned(arguments, weight_table=TABLE, allow_unproven_plan=True)["refusal"] == answer["refusal"]
    assert planned({"load-format": "auto"}, weight_table=TABLE)["refusal"] is None


def test_the_remarks_on_the_weights_reach_the_reader():
    strange = [dict(TABLE[0], name="model.layers.*.strange.weight")]
    answer = planned({"tp-size": 2}, weight_table=TABLE + strange)
    (line,) = [one for one in answer["notes"] if "unknown names" in one]
    row = {"host": "a", "plan": answer}
    assert "  note: " + line in lines([row])


@pytest.mark.parametrize("row", notes.UNCOUNTED, ids=[row.argument for row in notes.UNCOUNTED])
def test_what_no_rule_counts_is_named(row):
    value = row.values[0] if row.values else True
    (line,) = [one for one in planned({row.argument: value})["notes"] if one.startswith(row.argument)]
    assert "cannot be counted before a first start" in line
    assert row.source in line
    off = "null" if row.values else False
    assert not [one for one in planned({row.argument: off})["notes"] if one.startswith(row.argument)]


# --- expert groups, symmetric memory, lists of graph sizes ------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tp-size": 4, "ep-size": 3}, "tp-size to be a multiple of ep-size x moe-dp-size, found 4 and 3 x 1"),
        ({"tp-size": 2, "ep-size": 4}, "found 2 and 4 x 1"),
        ({"tp-size": 8, "ep-size": 8}, "12 experts to be a multiple of ep-size, found 8"),
        ({"tp-size": 4, "ep-size": 4, "ep-num-redundant-experts": 2}, "12 experts and 2 redundant ones"),
    ],
)
def test_expert_groups_that_do_not_divide_are_one_sentence(arguments, words):
    geometry = dict(LLAMA, experts=12, experts_per_token=2, moe_intermediate_size=1024)
    answer = plan_of({"arguments": arguments, "geometry": geometry})
    assert answer["failed"]
    assert words in answer["msg"]
    assert answer["msg"].endswith("change ep-size in the server arguments.")
    assert not plan_of({"arguments": {"tp-size": 4, "ep-size": 4}, "geometry": geometry}).get("failed")


@pytest.mark.parametrize(("stated", "gib"), [(None, 4.0), ("1", 1.0), (8, 8.0), ("-1", None), (0, None)])
def test_symmetric_memory_takes_what_its_variable_says(stated, gib):
    environment = {} if stated is None else {"SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": stated}
    assert gib_of(planned({"enable-symm-mem": True}, environment=environment), "enable-symm-mem") == gib


@pytest.mark.parametrize("sizes", [[1, 2, 64], "1 2 64", "1,2,64", 64, ["1", "64"]])
@pytest.mark.parametrize("name", ["cuda-graph-bs-decode", "cuda-graph-bs"])
def test_the_largest_graph_of_a_list_counts(name, sizes):
    assert gib_of(planned({name: sizes}), "decode graphs") == 64 * 2 / 1024


# --- what an older start-up does not tell -----------------------------------

DRAFT = {"speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/m/draft"}


@pytest.mark.parametrize(
    ("old", "new", "source"),
    [
        ("0.5.13", "0.5.23", "assumed"),
        ("0.5.23", "0.5.13", "assumed"),
        ("0.5.12", "0.5.13", "measured"),
        ("0.5.14", "0.5.23", "measured"),
        (None, "0.5.23", "measured"),
    ],
)
def test_a_start_without_keys_does_not_cross_the_version_that_moved_the_draft(old, new, source):
    """Before 0.5.14 the draft lies outside the fraction: what the pool left over had no draft weights in it."""
    start = {
        "origin": "host",
        "fraction": 0.85,
        "pool_tokens": 300000,
        "free_before_load_gib": 78.0,
        "cell_bytes": 131072,
    }
    arguments = dict(DRAFT, **{"speculative-num-steps": 3, "speculative-eagle-topk": 1})
    more = {"draft_weight_bytes": GIB, "draft_geometry": {"layers": 1}, "engine_version": new}
    answer = planned(arguments, measurements=[dict(start, engine_version=old)], **more)
    assert next(row["source"] for row in answer["rows"] if row["name"] == "weights") == source
    without = planned({}, measurements=[dict(start, engine_version=old)], engine_version=new)
    assert next(row["source"] for row in without["rows"] if row["name"] == "weights") == "measured"


def test_the_page_that_a_backend_forces_counts_where_the_cell_is_stated():
    answer = planned({"attention-backend": "trtllm_mha"}, cell_bytes=131072, target_tokens=100001)
    assert answer["cap_tokens"] == 100032  # 1,563 pages of 64


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            [{"load_seconds": 450, "keys": {"weights": "a"}}, {"load_seconds": 30, "keys": {"weights": "b"}}],
            (450, True),
        ),
        ([{"load_seconds": 30, "keys": {"weights": "b"}}], (165, False)),
        ([{"load_seconds": 41}], (41, True)),
        ([{"load_seconds": 450, "keys": {"weights": "a"}}, {"keys": {"weights": "a"}}], (450, True)),
    ],
)
def test_the_outage_is_that_of_the_same_weights(records, expected):
    plan = {"step": {"action": "try"}, "quantity_keys": {"weights": "a"}, "rows": [{"part": "static", "gib": 20.2}]}
    seconds, how = outage_seconds({"plan": plan, "serving": True, "measurements": records})
    assert (seconds, how == "as the last start") == expected


# --- sources ----------------------------------------------------------------


def test_the_graphs_of_latents_are_a_guess_and_say_so():
    mla = {"attention": "mla", "layers": 61, "hidden_size": 7168, "attention_heads": 64}
    mla.update(kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128, dtype="bfloat16")
    answer = planned({"tp-size": 8}, geometry=mla)
    row = next(one for one in answer["rows"] if one["name"] == "prefill graphs")
    assert row["source"] == "assumed"
    assert "0.75 to 1.5 GiB are assumed" in row["note"]
    width = answer["predicted_headroom_high_gib"] - answer["predicted_headroom_low_gib"]
    without = planned({"tp-size": 8, "disable-prefill-cuda-graph": True}, geometry=mla)
    rest = without["predicted_headroom_high_gib"] - without["predicted_headroom_low_gib"]
    assert width - rest == pytest.approx(tables.PREFILL_GRAPH_MLA_GIB - 0.75, abs=0.01)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tp-size": 8, "enable-symm-mem": True, "moe-a2a-backend": "deepep", "enable-dp-attention": True, "dp-size": 8},
        {"speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/d"},
        LORA,
    ],
)
@pytest.mark.parametrize("version", [None, "0.5.9", "0.5.13", "0.5.23"])
def test_every_row_names_its_source(arguments, version):
    more = {"draft_weight_bytes": GIB, "draft_geometry": dict(LLAMA, layers=1)}
    board = {"index": 0, "name": "H100", "memory_total_mib": 81559, "memory_free_mib": 78000}
    board["processes"] = [{"pid": 1, "name": "other", "memory_mib": 2000}]
    answer = planned(arguments, engine_version=version, free_before_load_gib=None, gpus=[board] * 8, **more)
    assert len(answer["rows"]) > 8
    for row in answer["rows"]:
        assert row["source"] in ("given", "measured", "table", "assumed"), row
        assert row["note"], row


def test_a_source_is_cut_between_clauses_and_not_within_a_product():
    note = "55,003 tokens x 46,080 bytes: 3 KV heads x (64 + 64) x 30 layers x 4 bytes (float32)"
    assert _budget_table.short(note, 60) == "55,003 tokens x 46,080 bytes"
    assert _budget_table.short(note, 80) == "55,003 tokens x 46,080 bytes: 3 KV heads x (64 + 64) x 30 layers x 4 bytes"
    assert _budget_table.short(note, 90) == note
