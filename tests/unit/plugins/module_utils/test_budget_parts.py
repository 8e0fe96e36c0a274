# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of a plan: what others hold, what the load takes, drafts, images, windows, upgrades, levers."""

from __future__ import annotations

import json
import pathlib
from dataclasses import replace

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import BadInput, PlanInput, plan
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input
from ansible_collections.gpufleet.sglang.plugins.module_utils._model import read_geometry

DATA = pathlib.Path(__file__).resolve().parents[3] / "data"
GIB = 2**30
KIMI = json.loads((DATA / "budget" / "kimi_k2.json").read_text())
SHAPES = yaml.safe_load((DATA / "geometry.yaml").read_text())


def geometry(name):
    return read_geometry({key: value for key, value in SHAPES[name].items() if key != "how_known"})


def reference(**changes):
    """The reference case: eight boards of 96 GB, MLA, weights 75 GiB a rank, cache in bf16, no draft."""
    given = {
        "arguments": {"tp-size": 8},
        "geometry": KIMI,
        "engine_version": "0.5.23",
        "free_before_load_gib": 94.97,
        "weights_gib": 75.0,
        "target_tokens": 200000,
        "max_context_tokens": 262144,
    }
    given.update(changes)
    return PlanInput(**given)


def rows_of(answer, *parts):
    return {row["name"]: row for row in answer.rows if not parts or row["part"] in parts}


# ---------------------------------------------------------------------------
# Worked examples, to the token
# ---------------------------------------------------------------------------

LLAMA_70B = {
    "architecture": "LlamaForCausalLM",
    "attention": "mha",
    "layers": 80,
    "attention_heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
    "hidden_size": 8192,
    "dtype": "bfloat16",
}
QWEN_235B = {
    "architecture": "Qwen3MoeForCausalLM",
    "attention": "mha",
    "layers": 94,
    "attention_heads": 64,
    "kv_heads": 4,
    "head_dim": 128,
    "hidden_size": 4096,
    "dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("shape", "tp", "dtype", "before", "weights", "fraction", "tokens"),
    [
        (KIMI, 8, None, 94.97, 70.0, 0.93, 279957),
        (KIMI, 8, "fp8_e4m3", 94.97, 70.0, 0.93, 559915),
        (KIMI, 8, None, 94.97, 70.0, 0.94, 294469),
        (KIMI, 8, "fp8_e4m3", 94.97, 70.0, 0.94, 588938),
        (KIMI, 8, "fp8_e4m3", 94.97, 75.0, 0.93, 407117),
        (KIMI, 8, "fp8_e4m3", 94.97, 75.0, 0.94, 436140),
        (LLAMA_70B, 4, None, 78.5, 33.0, 0.85, 442040),
        (LLAMA_70B, 4, None, 78.5, 33.0, 0.824, 415288),
        (LLAMA_70B, 4, None, 78.5, 33.0, 0.90, 493486),
        (QWEN_235B, 8, None, 138.5, 54.75, 0.872, 1472959),
        (QWEN_235B, 8, None, 138.5, 54.75, 0.893, 1537848),
    ],
)
def test_worked_examples_to_the_token(shape, tp, dtype, before, weights, fraction, tokens):
    arguments = {"tp-size": tp}
    if dtype:
        arguments["kv-cache-dtype"] = dtype
    answer = plan(
        reference(
            geometry=shape,
            arguments=arguments,
            free_before_load_gib=before,
            weights_gib=weights,
            fraction=fraction,
            target_tokens=None,
        )
    )
    assert abs(answer.predicted_tokens - tokens) <= 1  # weights were rounded to two decimals in these examples


@pytest.mark.parametrize(("fraction", "tokens"), [(0.93, 181261), (0.94, 195334)])
def test_the_reference_case_with_a_draft_layer_and_less_free_memory(fraction, tokens):
    # (93.61 x fraction - 75) x 2^30 / int(70272 x (1 + 1/61)) = .../71424
    answer = plan(
        reference(
            geometry=dict(KIMI, nextn_layers=1),
            arguments={"tp-size": 8, "speculative-algorithm": "EAGLE"},
            free_before_load_gib=93.61,
            fraction=fraction,
            target_tokens=None,
        )
    )
    assert answer.cell_bytes == 71424
    assert answer.predicted_tokens == tokens


# ---------------------------------------------------------------------------
# Free before load
# ---------------------------------------------------------------------------

TWO_H100 = (
    {
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total_mib": 81559,
        "memory_free_mib": 5400,
        "processes": [
            {"pid": 4242, "name": "sglang::scheduler_TP0", "memory_mib": 75120},
            {"pid": 991, "name": "/usr/bin/python3", "memory_mib": 512},
        ],
    },
    {"name": "NVIDIA H100 80GB HBM3", "memory_total_mib": 81559, "memory_free_mib": 81050, "processes": []},
)


def test_other_processes_are_named_and_the_own_server_counts_as_free():
    inputs = PlanInput(gpus=TWO_H100, own_pids=(4242,), arguments={"tp-size": 1})
    answer = plan(inputs)
    assert answer.plan_free_gib == pytest.approx(80520 / 1024, abs=0.001)
    other = rows_of(answer)["other: /usr/bin/python3"]
    assert other["gib"] == pytest.approx(-0.5)
    assert "process 991" in other["note"]
    assert "other: sglang::scheduler_TP0" not in rows_of(answer)


def test_the_board_rows_add_up_to_free_before_load():
    answer = plan(PlanInput(gpus=TWO_H100, own_pids=(4242,), arguments={"tp-size": 2}, own_server_running=True))
    # The second board has no own process: which part of the first's memory comes back is not known for it.
    board = rows_of(answer, "board")
    total = sum(row["gib"] for row in board.values())
    assert total == pytest.approx(rows_of(answer)["free before load"]["gib"], abs=0.001)
    assert set(board) == {"board", "driver", "other: /usr/bin/python3", "context", "collectives"}
    assert board["board"]["gib"] == pytest.approx(81559 / 1024, abs=0.001)


def test_the_smallest_of_mixed_boards_bounds_every_rank():
    gpus = (
        {"name": "RTX 5090", "memory_total_mib": 32607, "memory_free_mib": 32100},
        {"name": "RTX PRO 6000", "memory_total_mib": 97887, "memory_free_mib": 97200},
    )
    answer = plan(PlanInput(gpus=gpus, arguments={"tp-size": 2}))
    assert answer.plan_free_gib == pytest.approx(32100 / 1024, abs=0.001)


def test_a_board_without_memory_of_its_own_shares_that_of_the_machine():
    # DGX Spark: 111.3 to 113.9 of 121.7 GiB at the begin of the load.
    gpus = ({"name": "GB10", "memory_total_mib": 124610, "memory_free_mib": 118000, "unified_memory": True},)
    row = rows_of(plan(PlanInput(gpus=gpus)))["free before load"]
    assert abs(row["gib"] - 112.3) < row["error_gib"]


@pytest.mark.parametrize(
    ("ranks", "version", "free_mib", "printed"),
    # Idle boards of these kinds, and what public start-ups printed at the begin of the load.
    [
        (1, "0.5.8", 81050, 78.43),
        (1, "0.4.1", 81050, 78.81),
        (1, "0.5.22", 32100, 30.68),
        (2, "0.5.12", 24244, 22.91),
        (8, "0.5.2", 81050, 77.43),
        (8, "0.5.12", 97280, 93.61),
        (8, "0.5.14", 143158, 137.9),
    ],
)
def test_blind_free_before_load_holds_what_was_printed_in_its_band(ranks, version, free_mib, printed):
    entry = {"name": "board", "memory_total_mib": free_mib + 500, "memory_free_mib": free_mib}
    answer = plan(PlanInput(gpus=(entry,) * ranks, arguments={"tp-size": ranks}, engine_version=version))
    row = rows_of(answer)["free before load"]
    assert abs(row["gib"] - printed) <= row["error_gib"]


def test_figures_of_a_gpu_that_are_no_numbers_are_one_sentence():
    for value in ("many", float("nan"), -1, [1]):
        with pytest.raises(BadInput, match="memory_free_mib"):
            plan(PlanInput(gpus=({"memory_total_mib": 1000, "memory_free_mib": value},)))


# ---------------------------------------------------------------------------
# What is gone when the pool is sized
# ---------------------------------------------------------------------------

IMAGES = dict(LLAMA_70B, architecture="LlavaForConditionalGeneration", multimodal=True)


@pytest.mark.parametrize(
    ("version", "arguments", "environment", "gib"),
    [
        ("0.5.17", {}, {}, None),
        ("0.5.18", {}, {}, 100 / 1024),
        ("0.5.18", {"mm-feature-transport": "cuda_ipc"}, {}, 1124 / 1024),
        ("0.5.18", {"mm-feature-transport": "cpu"}, {}, 100 / 1024),
        ("0.5.18", {}, {"SGLANG_VLM_CACHE_SIZE_MB": "512"}, 0.5),
        ("0.5.18", {"language-only": True}, {}, None),
    ],
)
def test_the_multimodal_reservation_comes_off_the_pool(version, arguments, environment, gib):
    answer = plan(
        reference(
            geometry=IMAGES,
            engine_version=version,
            arguments=dict({"tp-size": 8}, **arguments),
            environment=environment,
            fraction=0.93,
            target_tokens=None,
        )
    )
    row = rows_of(answer).get("multimodal reservation")
    assert (row is None) if gib is None else row["gib"] == pytest.approx(gib, abs=0.001)
    taken = 0.0 if gib is None else gib
    assert answer.predicted_tokens == pytest.approx((94.97 * 0.93 - 75.0 - taken) * GIB / answer.cell_bytes, abs=2)


def test_a_model_that_takes_images_only_when_told_to():
    shape = dict(LLAMA_70B, architecture="Gemma3ForConditionalGeneration", multimodal=False)
    for flag, expected in ((None, False), (True, True), (False, False)):
        arguments = {"tp-size": 8, "enable-multimodal": flag}
        answer = plan(reference(geometry=shape, engine_version="0.5.23", arguments=arguments))
        assert ("multimodal reservation" in rows_of(answer)) is expected


def test_the_rows_of_a_draft_model_of_its_own_are_part_of_a_token():
    arguments = {"tp-size": 8, "speculative-algorithm": "STANDALONE", "speculative-draft-model-path": "/m/draft"}
    known = reference(geometry=LLAMA_70B, arguments=arguments, engine_version="0.5.23")
    assert plan(known).cell_bytes is None
    # 80 layers of the model and 16 of the draft, each charged as one of the model.
    answer = plan(replace(known, draft_geometry={"layers": 16, "kv_heads": 8, "head_dim": 64}))
    alone = plan(replace(known, arguments={"tp-size": 8}))
    assert answer.cell_bytes == alone.cell_bytes * 96 // 80
    unused = plan(replace(known, arguments={"tp-size": 8}, draft_geometry={"layers": 16}))
    assert unused.cell_bytes == alone.cell_bytes


def test_on_a_cpu_no_allocator_rounds_the_weights_up():
    # 100 tensors of 1.5 MiB: one segment of 20 MiB holds 13 of them on a board, each is what it is on a CPU.
    table = [{"name": "model.layers.*.mlp.up_proj.weight", "dtype": "BF16", "shape": [1024, 768], "tensors": 100}]
    table[0].update(bytes=100 * 1024 * 768 * 2, layers=[[0, 99]], draft=False, tied=False)
    shape = dict(LLAMA_70B, layers=100)
    inputs = {"weight_table": tuple(table), "weight_bytes": table[0]["bytes"], "weights_gib": None, "geometry": shape}
    answer = plan(reference(arguments={}, device="cpu", engine_version="0.5.23", **inputs))
    after_load = tables.CPU_AFTER_LOAD_EXCESS.gib
    assert rows_of(answer)["weights"]["gib"] - after_load == pytest.approx(150 / 1024, abs=0.0002)


EAGLE = {"tp-size": 8, "speculative-algorithm": "EAGLE", "speculative-draft-model-path": "/m/draft"}


def test_a_draft_lies_outside_the_fraction_before_0_5_14():
    inputs = {
        "weights_gib": None,
        "weight_bytes": 600 * GIB,
        "draft_weight_bytes": 8 * GIB,
        "arguments": EAGLE,
        "geometry": dict(KIMI, draft_layers=1),
        "target_tokens": 100000,
        "max_running_requests": 48,
    }
    old, new = plan(reference(engine_version="0.5.13", **inputs)), plan(reference(engine_version="0.5.14", **inputs))
    assert rows_of(old)["draft weights"]["part"] == "ready"
    assert rows_of(old)["draft weights"]["gib"] == pytest.approx(1.0)
    # one layer of 1,152 bytes for each token of the pool
    assert rows_of(old)["draft pool"]["gib"] == pytest.approx(100000 * 1152 / GIB, abs=0.001)
    assert rows_of(new)["draft weights"]["part"] == "static"
    assert old.cell_bytes == 70272
    assert new.cell_bytes == 71424
    assert new.fraction_low > old.fraction_low
    assert new.reserve_needed_gib < old.reserve_needed_gib


def test_the_rows_that_a_sparse_cache_does_not_charge_come_out_of_the_reserve():
    # A real start of this model with an FP8 cache: 3,262,823 tokens by 55,224 bytes, and 61,464 in the buffers.
    def row(version):
        answer = plan(
            PlanInput(
                geometry=geometry("zai-org/GLM-5-FP8"),
                engine_version=version,
                arguments={"tp-size": 8, "kv-cache-dtype": "fp8_e4m3", "page-size": 1},
                free_before_load_gib=283.48,
                free_after_load_gib=193.90,
                fraction=0.908,
                target_tokens=3262823,
            )
        )
        return rows_of(answer).get("uncharged rows of the pool")

    assert row("0.5.9")["gib"] == pytest.approx(3262823 * 6240 / GIB, rel=0.001)
    assert row("0.5.17") is None


@pytest.mark.parametrize(
    ("version", "weights", "noise"),
    [("0.5.12", 75.0, 0.5), ("0.5.12", 5.0, 0.09), ("0.5.23", 75.0, 0.1), (None, 75.0, 0.5)],
)
def test_the_noise_of_a_start_grows_with_the_weights_to_a_most(version, weights, noise):
    answer = plan(
        reference(
            engine_version=version,
            weights_gib=None,
            fraction=0.9,
            target_tokens=None,
            measurements=({"origin": "play", "weights_gib": weights, "engine_version": version},),
        )
    )
    after = {"0.5.12": 0.045, "0.5.23": 0.03, None: 0.05}[version]
    assert answer.band_gib == pytest.approx(noise + after + 0.02, abs=0.002)


def test_a_window_pool_and_a_state_are_solved_for():
    for name in ("google/gemma-4-26B-A4B", "Qwen/Qwen3.5-35B-A3B"):
        shape = geometry(name)
        inputs = {
            "geometry": shape,
            "arguments": {"tp-size": 2, "chunked-prefill-size": 2048},
            "free_before_load_gib": 78.0,
            "weights_gib": 34.0,
            "max_running_requests": 64,
            "target_tokens": 150000,
        }
        answer = plan(reference(**inputs))
        assert answer.feasible is True, name
        assert answer.pool_tokens >= 150000
        assert answer.predicted_tokens_low >= 150000
        under = plan(reference(**dict(inputs, fraction=round(answer.fraction_low - 0.001, 3))))
        assert under.predicted_tokens_low < 150000


def test_sizing_after_graph_capture_is_refused_by_name():
    environment = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}
    with pytest.raises(BadInput, match="SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"):
        plan(reference(environment=environment))
    assert plan(reference(environment=environment, engine_version="0.5.15")).feasible is not None
    assert plan(reference(environment={"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "0"})).feasible is True


# ---------------------------------------------------------------------------
# The reserve
# ---------------------------------------------------------------------------


def test_rows_say_what_makes_them_grow():
    shape = dict(KIMI, index_head_dim=128)

    def reserve(**changes):
        inputs = {"geometry": shape, "engine_version": "0.5.22", "cell_bytes": 70272, "max_running_requests": 48}
        inputs.update(changes)
        return rows_of(plan(reference(**inputs)), "ready", "load")

    small = reserve(chunk_tokens=2048, context_tokens=50000)
    chunk = reserve(chunk_tokens=4096, context_tokens=50000)
    context = reserve(chunk_tokens=2048, context_tokens=100000)
    for name, row in small.items():
        by_chunk = chunk[name]["gib"] > row["gib"] + 1e-6
        by_context = context[name]["gib"] > row["gib"] + 1e-6
        assert {"chunk": (True, False), "context": (False, True), "both": (True, True)}.get(
            row["grows"], (False, False)
        ) == (by_chunk, by_context), name
    # rows of the chunk x tokens of the context x 4 bytes
    assert small["sparse index"]["gib"] == pytest.approx(2048 * 50000 * 4 / GIB, abs=0.001)


def test_a_compressed_index_and_one_that_is_cut():
    # Public reports: 1.42 GiB at 4,096 rows and 372,000 tokens, compressed by 4.
    shape = dict(KIMI, index_head_dim=128, index_compress=4)
    inputs = {
        "geometry": shape,
        "cell_bytes": 70272,
        "chunk_tokens": 4096,
        "context_tokens": 372000,
        "max_context_tokens": 400000,
    }
    old = rows_of(plan(reference(engine_version="0.5.21", **inputs)))["sparse index"]
    assert old["gib"] == pytest.approx(1.42, abs=0.005)
    inputs.update(context_tokens=1000000, max_context_tokens=1048576)
    new = plan(reference(engine_version="0.5.23", **inputs))
    row = rows_of(new)["sparse index"]
    assert row["gib"] <= 0.2 * new.reserve_needed_gib + 0.001


def test_exchange_buffers_have_rows_of_their_own():
    arguments = {"tp-size": 8, "enable-symm-mem": True, "moe-a2a-backend": "deepep"}
    rows = rows_of(plan(reference(arguments=arguments)))
    assert rows["enable-symm-mem"]["gib"] == 4.0
    assert rows["moe-a2a-backend"]["gib"] == 2.0
    for row in rows.values():
        assert row["source"] in ("given", "measured", "table", "assumed")


def test_images_need_an_allowance_that_is_not_beyond_doubt():
    rows = rows_of(plan(reference(geometry=IMAGES)))
    assert rows["image encoder"]["source"] == "assumed"
    text = rows_of(plan(reference(geometry=IMAGES, arguments={"tp-size": 8, "language-only": True})))
    assert "image encoder" not in text


# ---------------------------------------------------------------------------
# Levers and upgrades
# ---------------------------------------------------------------------------


def test_a_smaller_window_share_is_a_lever():
    answer = plan(
        reference(
            geometry=geometry("google/gemma-4-26B-A4B"),
            arguments={"tp-size": 1},
            free_before_load_gib=30.68,
            weights_gib=25.12,
            target_tokens=200000,
        )
    )
    lever = next(one for one in answer.levers if one["lever"] == "arguments: swa-full-tokens-ratio")
    assert (lever["from"], lever["to"], lever["automatic"]) == (0.8, 0.4, False)
    assert lever["gib"] > 1


def test_levers_that_buy_nothing_are_not_named():
    answer = plan(reference(arguments={"tp-size": 8, "kv-cache-dtype": "fp8_e4m3"}, target_tokens=900000))
    assert "arguments: kv-cache-dtype" not in [one["lever"] for one in answer.levers]


def boards_with_free(*gib):
    return tuple({"name": "H100", "memory_total_mib": 81559, "memory_free_mib": one * 1024} for one in gib)


@pytest.mark.parametrize(
    ("free", "arguments", "expected"),
    [
        ((70, 60, 78, 78), {"tp-size": 2}, (0, 2, 18.0)),
        ((70, 60, 78, 78), {"tp-size": 1}, (0, 2, 8.0)),
        ((70, 60, 72, 78, 71, 65), {"tp-size": 2, "base-gpu-id": 4}, (4, 2, 7.0)),
        ((60, 78, 70, 79), {"tp-size": 2, "gpu-id-step": 2}, (0, 1, 18.0)),
        ((78, 78, 70, 60), {"tp-size": 2}, None),
        ((60, 70), {"tp-size": 2}, None),
        ((70, 60, 78, 78), {"tp-size": 2, "nnodes": 1, "base-gpu-id": 2}, None),
    ],
)
def test_emptier_gpus_of_the_host_are_a_lever(free, arguments, expected):
    options = {"geometry": geometry("meta-llama/Llama-3.1-8B-Instruct"), "weight_bytes": 16060522496}
    answer = plan(PlanInput(gpus=boards_with_free(*free), arguments=arguments, target_tokens=100000, **options))
    found = [one for one in answer.levers if one["lever"] == "arguments: base-gpu-id"]
    assert [(one["from"], one["to"], one["gib"]) for one in found] == ([expected] if expected else [])
    assert all("base-gpu-id" in one["paste"] and one["tokens"] > 0 and not one["automatic"] for one in found)


def test_emptier_gpus_are_no_lever_where_free_memory_is_stated():
    more = {"free_before_load_gib": 50.0, "geometry": geometry("meta-llama/Llama-3.1-8B-Instruct")}
    gpus = boards_with_free(70, 78)
    answer = plan(PlanInput(gpus=gpus, arguments={"tp-size": 1}, target_tokens=1000, weights_gib=15.0, **more))
    assert "arguments: base-gpu-id" not in [one["lever"] for one in answer.levers]


def measured(version):
    return {"origin": "host", "engine_version": version, "free_before_load_gib": 94.97, "weights_gib": 75.0}


@pytest.mark.parametrize(
    ("old", "new", "changes", "words"),
    [
        (
            "0.5.12",
            "0.5.16",
            {"arguments": dict(EAGLE), "geometry": dict(KIMI, draft_layers=1)},
            ["0.5.14 on draft weights"],
        ),
        ("0.5.12", "0.5.16", {}, []),
        ("0.5.12", "0.5.23", {}, ["0.5.20 on garbage is collected"]),
        ("0.5.23", "0.5.12", {}, ["goes back over 0.5.20, from which on garbage"]),
        (
            "0.5.16",
            "0.5.17",
            {"geometry": "zai-org/GLM-5-FP8", "arguments": {"tp-size": 8, "kv-cache-dtype": "fp8_e4m3"}},
            ["0.5.17 on rows of a sparse fp8 cache"],
        ),
        ("0.5.10", "0.5.11", {"geometry": "google/gemma-4-26B-A4B", "arguments": {"tp-size": 2}}, ["0.5.11 on window"]),
    ],
)
def test_an_upgrade_that_moves_the_fraction_is_a_line(old, new, changes, words):
    changes = dict(changes)
    if isinstance(changes.get("geometry"), str):
        changes["geometry"] = geometry(changes["geometry"])
    answer = plan(reference(engine_version=new, weights_gib=None, measurements=(measured(old),), **changes))
    assert len(answer.upgrade) == len(words)
    for line, word in zip(answer.upgrade, words):
        assert word in line
        assert line.startswith(f"SGLang {old} to {new}: ")
        assert line in " ".join(" ".join(answer.table).split())


def test_no_upgrade_no_line():
    assert plan(reference(measurements=(measured("0.5.23"),))).upgrade == []
    kin = dict(measured("0.5.12"), origin="play")
    assert plan(reference(measurements=(kin,))).upgrade == []


# ---------------------------------------------------------------------------
# Weights by their table
# ---------------------------------------------------------------------------

TABLE = [
    {
        "name": "model.embed_tokens.weight",
        "dtype": "BF16",
        "shape": [128256, 8192],
        "tensors": 1,
        "bytes": 128256 * 8192 * 2,
        "layers": [],
        "draft": False,
    },
    {
        "name": "lm_head.weight",
        "dtype": "BF16",
        "shape": [128256, 8192],
        "tensors": 1,
        "bytes": 128256 * 8192 * 2,
        "layers": [],
        "draft": False,
    },
    {
        "name": "model.layers.*.mlp.gate_proj.weight",
        "dtype": "BF16",
        "shape": [28672, 8192],
        "tensors": 80,
        "bytes": 80 * 28672 * 8192 * 2,
        "layers": [[0, 79]],
        "draft": False,
    },
]


def test_the_table_of_the_tensors_gives_the_weights_of_a_rank():
    answer = plan(
        reference(
            geometry=LLAMA_70B,
            arguments={"tp-size": 4},
            weights_gib=None,
            weight_table=tuple(TABLE),
            target_tokens=10000,
        )
    )
    row = rows_of(answer)["weights"]
    expected = sum(one["bytes"] for one in TABLE) / 4 / GIB
    assert row["source"] == "table"
    assert row["gib"] == pytest.approx(expected, rel=0.02)


def test_a_load_that_peaks_above_free_memory_is_refused():
    inputs = {
        "geometry": LLAMA_70B,
        "arguments": {"tp-size": 1, "quantization": "fp8"},
        "weights_gib": None,
        "weight_table": tuple(TABLE),
        "free_before_load_gib": 30.0,
        "target_tokens": 10000,
    }
    answer = plan(reference(**inputs))
    assert answer.refusal is not None
    assert answer.feasible is False
    # 80 x 28672 x 8192 x 2 bytes are 35 GiB before they are converted.
    assert "online quantisation" in answer.refusal
    inputs["free_before_load_gib"] = 78.0
    assert plan(reference(**inputs)).refusal is None


def test_options_reach_the_plan():
    found = plan_input(
        {
            "weight_table": TABLE,
            "weights_created": [{"name": "rope", "bytes": 1}],
            "own_pids": [4242],
            "torch_version": "2.9.1",
            "draft_geometry": {"layers": 1},
        }
    )
    assert found.weight_table == tuple(TABLE)
    assert found.own_pids == (4242,)
    assert found.torch_version == "2.9.1"
    assert found.draft_geometry == {"layers": 1}
    assert tables.MARGIN_LEAST_GIB > 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"geometry": {"attention": "mla", "hidden_size": "wide"}}, "hidden_size"),
        ({"geometry": {"attention": "mha", "index_head_dim": -1}}, "index_head_dim"),
        ({"gpus": [{"memory_total_mib": 1000, "memory_free_mib": 900, "processes": "none"}]}, "processes"),
        ({"gpus": [{"memory_total_mib": 1000, "memory_free_mib": 900, "processes": [7]}]}, "processes"),
        ({"gpus": [{"memory_total_mib": 1000, "memory_free_mib": 1001}]}, "memory_free_mib of entry 1 of gpus"),
        ({"measurements": [{"keys": "x"}]}, "keys of entry 1 of measurements"),
        ({"deaths": [{"keys": "x"}]}, "keys of entry 1 of deaths"),
        ({"deaths": [{}, {"figures": "x"}]}, "figures of entry 2 of deaths"),
        ({"deaths": [{"figures": {"wanted_mib": -1}}]}, "wanted_mib of entry 1 of deaths"),
        ({"deaths": [{"reserve_needed_gib": -5}]}, "reserve_needed_gib of entry 1 of deaths"),
        ({"measurements": [{"fraction": 0}]}, "fraction of entry 1 of measurements"),
        ({"measurements": [{"fraction": -1}]}, "fraction of entry 1 of measurements"),
        ({"measurements": [{"fraction": 1.2}]}, "fraction of entry 1 of measurements"),
        ({"measurements": [{"pool_tokens": 1e15}]}, "pool_tokens of entry 1 of measurements"),
        ({"measurements": [{"pool_tokens": -1}]}, "pool_tokens of entry 1 of measurements"),
        ({"measurements": [{"graph_gib": -3}]}, "graph_gib of entry 1 of measurements"),
    ],
)
def test_options_that_cannot_be_right_are_one_sentence(options, word):
    with pytest.raises(ValueError, match=word) as caught:
        plan_input(options)
    assert "\n" not in str(caught.value)


def test_graphs_that_gave_memory_back_are_no_slip_beside_a_printed_headroom():
    # A public start prints "mem usage=-5.29 GB"; its headroom is what counts then.
    record = {"graph_gib": -5.29, "headroom_gib": 6.73}
    assert plan_input({"measurements": [record]}).measurements == (record,)


def test_figures_of_a_geometry_that_a_template_turned_to_text():
    text = {key: str(value) if isinstance(value, int) else value for key, value in KIMI.items()}
    options = {"arguments": {"tp-size": 8}, "free_before_load_gib": 94.97, "weights_gib": 75.0, "target_tokens": 200000}
    same = plan(plan_input(dict(options, geometry=KIMI)))
    assert plan(plan_input(dict(options, geometry=text))).reserve_needed_gib == same.reserve_needed_gib


def test_a_small_promise_still_starts_a_window_pool():
    # The engine refuses a window pool of window + page tokens or fewer: 1,024 + 1 here, at a ratio of 0.8.
    answer = plan(
        reference(
            geometry=geometry("google/gemma-4-26B-A4B"),
            arguments={"tp-size": 2},
            free_before_load_gib=78.0,
            weights_gib=34.0,
            target_tokens=500,
        )
    )
    assert answer.feasible is True
    assert answer.cap_tokens * 0.8 >= 1026
    assert answer.cap_tokens < 1400
    assert answer.window_tokens > 1025


def test_states_and_window_pools_have_their_rows():
    answer = plan(
        reference(
            geometry=geometry("Qwen/Qwen3.5-27B"),
            arguments={"tp-size": 1, "disable-radix-cache": True},
            engine_version="0.5.20",
            free_before_load_gib=111.73,
            weights_gib=51.86,
            fraction=0.8,
            max_running_requests=32,
            target_tokens=None,
        )
    )
    rows = rows_of(answer, "static")
    # A real start: 535,124 tokens of 65,536 bytes; 32 slots of 144 MiB and their convolutions, and padding.
    assert answer.pool_tokens == pytest.approx(535124, rel=0.006)
    assert rows["pool"]["gib"] == pytest.approx(32.66, rel=0.006)
    assert rows["request states"]["gib"] == pytest.approx(33 * 0.1434, rel=0.01)
    assert answer.state_requests == 32
    assert rows["multimodal reservation"]["gib"] == pytest.approx(100 / 1024, abs=0.001)
    total = 51.86 + sum(rows[name]["gib"] for name in ("pool", "request states", "multimodal reservation"))
    assert total == pytest.approx(0.8 * 111.73, abs=0.02)


def test_a_measured_start_keeps_states_and_uncharged_rows_apart():
    glm = {
        "geometry": geometry("zai-org/GLM-5-FP8"),
        "engine_version": "0.5.9",
        "arguments": {"tp-size": 8, "kv-cache-dtype": "fp8_e4m3", "page-size": 1},
        "free_before_load_gib": 283.48,
        "weights_gib": None,
        "fraction": 0.9,
        "target_tokens": None,
    }
    # 193.90 free after load, 186.77 of it in the pool, 3.0 left: 4.13 GiB went elsewhere.
    seen = {"free_before_load_gib": 283.48, "free_after_load_gib": 193.9, "kv_gib": 186.77, "headroom_gib": 3.0}
    seen.update(fraction=0.908, pool_tokens=3262823, engine_version="0.5.9")
    answer = plan(reference(measurements=(seen,), **glm))
    rows = rows_of(answer, "ready")
    assert rows["taken until ready"]["gib"] == pytest.approx(4.13, abs=0.001)
    assert rows["uncharged rows of the pool"]["gib"] == pytest.approx(answer.pool_tokens * 6240 / GIB, rel=0.01)

    hybrid = {
        "geometry": geometry("Qwen/Qwen3.5-27B"),
        "engine_version": "0.5.20",
        "arguments": {"tp-size": 1, "disable-radix-cache": True},
        "free_before_load_gib": 111.73,
        "weights_gib": None,
        "fraction": 0.8,
        "max_running_requests": 32,
        "target_tokens": None,
    }
    # The figures of a real start. 59.87 - 32.66 - 19.66 are 7.55 GiB, of which 33 slots are 4.73.
    seen = {"free_before_load_gib": 111.73, "free_after_load_gib": 59.87, "kv_gib": 32.66, "headroom_gib": 19.66}
    seen.update(fraction=0.8, pool_tokens=535124, engine_version="0.5.20")
    answer = plan(reference(measurements=(seen,), **hybrid))
    assert rows_of(answer, "ready")["taken until ready"]["gib"] == pytest.approx(7.55 - 33 * 0.1434, abs=0.02)
    # The reservation for images was not taken yet when the start printed its headroom.
    assert answer.predicted_headroom_gib == pytest.approx(19.66 - 100 / 1024, abs=0.05)


# ---------------------------------------------------------------------------
# A start-up without keys
# ---------------------------------------------------------------------------

# The reference start: 0.93 x 93.61 - 195,011 x 70,272 bytes = 87.06 - 12.76 = 74.29 GiB of weights.
UNKEYED = {"fraction": 0.93, "pool_tokens": 195011, "free_before_load_gib": 93.61, "kv_gib": 12.76}
UNKEYED.update(free_after_load_gib=19.30, engine_version="0.5.23")
FP8 = {"tp-size": 8, "kv-cache-dtype": "fp8_e4m3"}


@pytest.mark.parametrize(
    "told", [{}, {"kv_gib": None, "cell_bytes": 70272}, {"free_after_load_gib": None}], ids=["kv_gib", "cell", "bare"]
)
@pytest.mark.parametrize("arguments", [{"tp-size": 8}, FP8], ids=["bf16", "fp8"])
def test_a_start_without_keys_tells_by_its_own_bytes(arguments, told):
    """Its cache was in bf16: half a cell today changes nothing of what was left over then."""
    start = dict(UNKEYED, **told)
    answer = plan(
        reference(arguments=arguments, free_before_load_gib=None, weights_gib=None, measurements=(start,), fraction=0.9)
    )
    assert answer.free_after_load_gib == pytest.approx(93.61 - (0.93 * 93.61 - 12.7626), abs=0.01)
    assert any("its own bytes count" in one for one in answer.notes) == (arguments is FP8)


@pytest.mark.parametrize("keyed", [True, False])
def test_the_lever_of_the_cache_type_is_the_same_with_and_without_keys(keyed):
    changes = {"free_before_load_gib": None, "weights_gib": None, "target_tokens": 300000}
    start = dict(UNKEYED, keys=plan(reference(**changes)).quantity_keys) if keyed else UNKEYED
    answer = plan(reference(measurements=(start,), **changes))
    (lever,) = [one for one in answer.levers if one["lever"] == "arguments: kv-cache-dtype"]
    assert lever["gib"] == pytest.approx(300000 * 35136 / GIB, abs=0.001)
    assert lever["tokens"] > 150000


def test_a_start_without_keys_does_not_give_its_weights_to_fewer_ranks():
    """640 GB on 8 ranks are 74.5 GiB, on 4 ranks 149."""
    changes = {"free_before_load_gib": None, "weights_gib": None, "weight_bytes": 640 * 10**9}
    there = plan(reference(measurements=(UNKEYED,), **changes))
    assert rows_of(there, "static")["weights"]["source"] == "measured"
    fewer = plan(reference(measurements=(UNKEYED,), arguments={"tp-size": 4}, **changes))
    assert rows_of(fewer, "static")["weights"]["gib"] == pytest.approx(149.0 + 0.1, abs=0.1)
    assert fewer.feasible is False
    assert any("took 74.29 GiB for its weights" in one and "does not count" in one for one in fewer.notes)
    # Figures that cannot be of one start are no measurement: 900,000 tokens are 58.9 GiB of 0.5 x 93.61.
    odd = dict(UNKEYED, fraction=0.5, pool_tokens=900000, kv_gib=None, free_after_load_gib=None)
    assert rows_of(plan(reference(measurements=(odd,), **changes)), "static")["weights"]["source"] == "assumed"


# ---------------------------------------------------------------------------
# What is not stated is said
# ---------------------------------------------------------------------------

STATED = {"attention": "mha", "layers": 94, "hidden_size": 4096, "attention_heads": 64, "kv_heads": 4}
STATED.update(head_dim=128, v_head_dim=128)


@pytest.mark.parametrize(
    ("more", "per_token", "asked"),
    [
        # 2 x (4 x 4096 + 8 x (4096 + 3 x 1536 / 4))
        ({"experts": 128, "experts_per_token": 8, "moe_intermediate_size": 1536}, 116736, ""),
        # 2 x (4 x 4096 + 8 x (4096 + 3 x 4096 / 4))
        ({}, 147456, "intermediate_size and experts of the geometry"),
        ({"experts": 128, "experts_per_token": 8}, 147456, "moe_intermediate_size of the geometry"),
        # 2 x (4 x 4096 + 3 x 28672 / 4)
        ({"experts": 0, "intermediate_size": 28672}, 75776, ""),
        # 2 x (4 x 4096 + 3 x 8 x 4096 / 4): a configuration that names no experts
        ({"experts": None, "intermediate_size": None}, 81920, "intermediate_size of the geometry"),
    ],
    ids=["whole", "bare", "experts", "dense", "read"],
)
def test_a_stated_geometry_without_its_feed_forward_layers_is_reckoned_high_and_says_so(more, per_token, asked):
    answer = plan(reference(geometry=dict(STATED, **more), arguments={"tp-size": 4}, chunk_tokens=8192))
    activations = rows_of(answer, "load")["activations of a chunk"]
    assert activations["gib"] == pytest.approx(8192 * per_token * 2 / GIB, abs=0.001)
    said = [one for one in answer.notes if "reckoned high" in one]
    assert bool(said) == bool(asked)
    assert all(asked in one for one in said)


def test_a_context_that_is_guessed_is_said():
    guessed = plan(reference(max_context_tokens=None))
    assert "context-length" not in guessed.arguments
    assert any("sglang_server_context_tokens" in one for one in guessed.notes)
    for stated in ({"max_context_tokens": 262144}, {"max_context_tokens": None, "context_tokens": 32768}):
        answer = plan(reference(**stated))
        assert not any("sglang_server_context_tokens" in one for one in answer.notes)
        assert answer.arguments["context-length"] in (200000, 32768)


@pytest.mark.parametrize(
    ("version", "said", "band"),
    [
        ("0.2.0", "SGLang 0.2.0 is older than 0.5.4", 0.5),
        ("0.5.3", "SGLang 0.5.3 is older than 0.5.4", 0.5),
        ("0.5.4", "", 0.5),
        ("0.5.23", "", 0.1),
        ("0.5.23.post1", "", 0.1),
        ("0.5.24", "SGLang 0.5.24 is newer than 0.5.23", 0.5),
        ("0.9.9", "SGLang 0.9.9 is newer than 0.5.23", 0.5),
        ("0.0.0.dev1+g12ab34", "is a build from a source tree", 0.5),
    ],
)
def test_a_version_outside_of_what_was_read_is_said_and_newer_ones_have_the_wider_band(version, said, band):
    answer = plan(reference(engine_version=version))
    assert bool(answer.notes) == bool(said)
    assert all(said in one for one in answer.notes)
    assert answer.band_gib == pytest.approx(band)


# ---------------------------------------------------------------------------
# Data-parallel attention, drafts, prefill graphs
# ---------------------------------------------------------------------------


def test_data_parallel_attention_shares_the_chunk_and_gathers_for_the_experts():
    """8 groups: 1,024 tokens each in attention, 8,192 in the experts, 2 x (2 x 7168 + 8 x (7168 + 3 x 2048 / 8))."""
    groups = {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}
    answer = plan(reference(arguments=groups, free_before_load_gib=137.5, chunk_tokens=8192))
    gathered = 155648
    activations = rows_of(answer, "load")["activations of a chunk"]["gib"]
    assert activations == pytest.approx((8192 * gathered + 1024 * 8 * 7168) * 2 / GIB, abs=0.001)
    # One decode step of 8 x 512 requests: rows and logits of 163,840 words in 16 bits, twice; not the 18 GiB that the
    # engine's own default keeps.
    decode = rows_of(answer, "ready")["data-parallel attention"]
    assert decode["gib"] == pytest.approx(8 * 512 * (gathered + 2 * 163840) * 2 / GIB, abs=0.001)
    assert "keeps 18.0" in decode["note"]
    assert answer.engine_default["reserve_gib"] > 25
    small = dict(groups, **{"cuda-graph-max-bs-decode": 8})
    few = rows_of(plan(reference(arguments=small, free_before_load_gib=137.5)), "ready")["data-parallel attention"]
    assert few["gib"] == pytest.approx(8 * 8 * (gathered + 2 * 163840) * 2 / GIB, abs=0.001)


def test_a_wide_draft_takes_its_uncharged_rows_from_the_reserve():
    """70,272 + 4,096 bytes are stored and 71,424 charged: 2,944 bytes a token."""
    draft = {"layers": 1, "kv_heads": 64, "head_dim": 128, "v_head_dim": 128}
    arguments = {"tp-size": 8, "speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/srv/draft"}
    answer = plan(reference(arguments=arguments, draft_geometry=draft, engine_version="0.5.14", target_tokens=150000))
    row = rows_of(answer, "ready")["uncharged rows of the pool"]
    assert row["gib"] == pytest.approx(150000 * 2944 / GIB, abs=0.001)


def test_prefill_graphs_are_a_lever_from_the_version_on_that_has_them():
    """0.5.13 with a declared chunk of 8,192: 7.67 GiB are needed, 6.17 and a row of the margin less without graphs."""
    changes = {"engine_version": "0.5.13", "chunk_tokens": 8192}
    answer = plan(reference(**changes))
    assert answer.feasible is False
    assert "sglang_server_arguments: {disable-piecewise-cuda-graph: true}" in answer.refusal
    off = {"tp-size": 8, "disable-piecewise-cuda-graph": True}
    assert plan(reference(arguments=off, **changes)).feasible is True
    before = plan(reference(engine_version="0.5.9", chunk_tokens=8192, target_tokens=400000))
    assert not any("graph: true" in one["paste"] for one in before.levers)


# ---------------------------------------------------------------------------
# What cannot be right
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"arguments": {"tp-size": 8, "nnodes": 3}}, ("nnodes", "8 and 3")),
        ({"arguments": {"page-size": 64}, "chunked_prefill_size": 1000}, ("sglang_server_chunked_prefill_size: 960",)),
        ({"allocator_conf": "garbage"}, ("allocator_conf", "garbage")),
        ({"measurements": [{"origin": "mars"}]}, ("origin of entry 1 of measurements", "host, play, inventory")),
        ({"measurements": [{"engine_version": "abc"}]}, ("engine_version of entry 1 of measurements", "abc")),
        (
            {"measurements": [{"free_before_load_gib": 90, "free_after_load_gib": 95}]},
            ("free_after_load_gib of entry 1 of measurements", "95"),
        ),
        ({"geometry": dict(STATED, kv_head=3)}, ("kv_head", "kv_heads")),
        ({"pool_policy": "x"}, ("pool_policy", "promise or fill")),
        ({"free_after_load_gib": 120.0}, ("free_after_load_gib", "94.97", "120")),
    ],
)
def test_one_sentence_for_what_cannot_be_right(given, words):
    given = {"free_before_load_gib": 94.97, "geometry": KIMI, "target_tokens": 1000, **given}
    with pytest.raises(BadInput) as caught:
        plan(plan_input(given))
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert text.endswith(".")
    assert ". " not in text


@pytest.mark.parametrize(
    "conf", ["", "expandable_segments:True", "max_split_size_mb:128, roundup_power2_divisions:[256:1,512:2,>:4]"]
)
def test_an_allocator_of_torch_passes(conf):
    assert plan_input({"allocator_conf": conf}).allocator_conf == conf


def test_no_geometry_of_a_model_is_taken_for_a_slip():
    tried = 0
    for name in SHAPES:
        try:
            shape = geometry(name)
        except ValueError:
            continue  # not understood, which is another test
        assert plan_input({"geometry": shape}).geometry["layers"] > 0
        tried += 1
    assert tried > 20


def test_too_few_visible_gpus_are_refused_before_they_are_known():
    shown = {"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}
    assert "names 2 GPUs" in plan(plan_input({"arguments": {"tp-size": 8}, **shown})).refusal
    assert plan(plan_input({"arguments": {"tp-size": 2}, **shown})).refusal is None
    assert plan(plan_input({"arguments": {"tp-size": 8}})).refusal is None


# ---------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------


def test_the_table_fits_a_terminal_and_the_rows_keep_the_whole_source():
    board = {"name": "H100", "memory_total_mib": 81559, "memory_free_mib": 81050}
    answer = plan(
        plan_input(
            {
                "geometry": STATED,
                "arguments": {"tp-size": 4},
                "gpus": [board] * 4,
                "weight_bytes": 236 * 10**9,
                "engine_version": "0.5.24",
                "target_tokens": 900000,
            }
        )
    )
    assert max(len(line) for line in answer.table) <= 116
    (line,) = [one for one in answer.table if one.startswith("free before load")]
    assert line.endswith("table: less 0.60 GiB context, 0.50 GiB collectives")
    assert "public start-ups on one GPU" in rows_of(answer, "before")["free before load"]["note"]
    assert answer.refusal in " ".join(" ".join(answer.table).split())
