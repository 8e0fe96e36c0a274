# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cell against what real start-ups printed, against worked trials, and over all geometries that are known."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv, _model

DATA = Path(__file__).resolve().parents[3] / "data" / "geometry"
PRINTED = yaml.safe_load((DATA / "printed.yaml").read_text())
TRIALS = yaml.safe_load((DATA / "trials.yaml").read_text())
ALL = yaml.safe_load((DATA.parent / "geometry.yaml").read_text())
ROWS = [row for row in PRINTED["rows"] if "left_out" not in row]
FITS = [row for row in ROWS if "misses" not in row]
GIB = 2**30
HALF = 0.00501  # half of the last printed digit, GiB


def by_id(row):
    return row["id"]


def cell_of(row):
    geometry = _model.read_geometry(PRINTED["models"][row["model"]]["config"])
    return _kv.cell_bytes(geometry, row["arguments"], row["version"])


def printed_gib(row):
    """Return (GiB, how far the printed digits may be off). The total of a window pool is the sum of four of them."""
    if "total_gib" in row:
        return row["total_gib"], HALF * (4 if "window_tokens" in row else 1)
    if "values_gib" in row:
        return row["keys_gib"] + row["values_gib"], 2 * HALF
    return 2 * row["keys_gib"], 2 * HALF


# --- start-ups --------------------------------------------------------------


@pytest.mark.parametrize("row", FITS, ids=by_id)
def test_the_cell_gives_the_printed_pool(row):
    wanted, off = printed_gib(row)
    assert cell_of(row).stored_bytes * row["tokens"] / GIB == pytest.approx(wanted, abs=off)


@pytest.mark.parametrize("row", [row for row in FITS if "window_tokens" in row], ids=by_id)
def test_the_window_pool_is_the_printed_one(row):
    cell = cell_of(row)
    pool = _kv.pool_of(cell, _kv.rest_for(cell, row["tokens"]))
    assert (pool.tokens, pool.window_tokens) == (row["tokens"], row["window_tokens"])
    if "swa_k_gb" in row:
        assert cell.window_bytes * row["window_tokens"] / 2 / GIB == pytest.approx(row["swa_k_gb"], abs=HALF)
        assert cell.full_bytes * row["tokens"] / 2 / GIB == pytest.approx(row["full_k_gb"], abs=HALF)


@pytest.mark.parametrize("row", [row for row in FITS if "slots" in row], ids=by_id)
def test_the_states_are_the_printed_ones(row):
    """The pool has one slot more than it hands out."""
    stored = cell_of(row).state.slot_bytes * (row["slots"] + 1)
    assert stored / GIB == pytest.approx(row["convolution_gib"] + row["states_gib"], abs=2 * HALF)


def test_the_overshoot_of_sparse_fp8_is_known():
    """GLM-5 with fp8 before 0.5.17: charged 78 x (576 + 132), stored 78 x (656 + 132): 11.3% more than the budget."""
    row = next(row for row in ROWS if row["id"] == "glm5-fp8-rocm-tp8-2026-02")
    cell = cell_of(row)
    assert (cell.bytes, cell.stored_bytes) == (55224, 61464)
    # Printed beside it: 193.90 GiB free after load, 283.48 before, fraction 0.908.
    pool = _kv.pool_of(_kv.plain_cell(cell.bytes), (193.90 - 283.48 * 0.092) * GIB)
    assert pool.tokens == pytest.approx(row["tokens"], rel=0.0002)


def test_rows_that_take_no_part_say_why():
    assert all(len(row["left_out"]) > 20 for row in PRINTED["rows"] if "left_out" in row)
    assert all(len(row["misses"]) > 20 for row in ROWS if "misses" in row)
    assert len(FITS) >= 45


@pytest.mark.parametrize("row", [row for row in ROWS if "misses" in row], ids=by_id)
def test_rows_that_miss_still_miss(row):
    """A reason that no longer holds must go."""
    wanted, off = printed_gib(row)
    assert cell_of(row).stored_bytes * row["tokens"] / GIB != pytest.approx(wanted, abs=off)


# --- worked trials ----------------------------------------------------------

NAMES = {"mamba_ssm_dtype": "mamba-ssm-dtype", "mamba_full_memory_ratio": "mamba-full-memory-ratio"}


def trial(case, version="0.5.23", **more):
    geometry = _model.read_geometry(case["config"])
    params = case["params"]
    arguments = {"tp": params.get("tp", 1), "kv-cache-dtype": params.get("kv_cache_dtype", "auto")}
    arguments.update({name: params[key] for key, name in NAMES.items() if key in params})
    return _kv.cell_bytes(geometry, dict(arguments, **more), version)


@pytest.mark.parametrize("case", [case for case in TRIALS if case["id"] != "b25"], ids=by_id)
def test_trials_value_by_value(case):
    expected = case["expected"]
    cell, whole = trial(case), trial(case, tp=1)
    rows, model = cell.full_bytes + cell.window_bytes, whole.full_bytes + whole.window_bytes
    answers = {
        "kv_bytes_per_token_per_gpu": rows,
        "kv_bytes_per_token_model": model,
        "sglang_cell_bytes_hybrid": cell.bytes,
        "sglang_cell_bytes_ratio_0_8": cell.bytes,
        "state_bytes_per_slot_per_gpu": cell.state and cell.state.slot_bytes,
        "state_bytes_per_slot_tp1": whole.state and whole.state.slot_bytes,
    }
    asked = {key: value for key, value in expected.items() if key in answers}
    assert asked == {key: answers[key] for key in asked}
    assert asked or "mamba_slots" in expected
    never = expected.get("must_not")
    never = never if isinstance(never, list) else [never]
    assert not {rows, model, cell.bytes} & {one for one in never if isinstance(one, int)}


def test_trial_of_draft_layers():
    case = next(case for case in TRIALS if case["id"] == "b06")
    for version in ("0.5.14", "0.5.18", "0.5.20", "0.5.23"):
        cell = trial(case, version, **{"speculative-algorithm": "EAGLE"})
        assert cell.bytes == case["expected"]["sglang_cell_bytes_with_mtp"] == 101436
    assert trial(case, "0.5.13", **{"speculative-algorithm": "EAGLE"}).bytes == 100152


def test_trials_of_states():
    """20 GiB of REST for Qwen3-Next on four boards: before 0.5.17 without, from then on with a padding slot."""
    first, second = (next(case for case in TRIALS if case["id"] == name) for name in ("b12", "b13"))
    rest = 20 * GIB
    old = _kv.pool_of(trial(first, "0.5.11"), rest)
    new = _kv.pool_of(trial(second, "0.5.23"), rest)
    assert (old.state_slots, old.tokens) == (526, 920754)
    assert old.max_running_requests == 526 // 3
    assert (new.state_slots, new.state_bytes) == (525, 10160603136)
    drafts = trial(second, "0.5.23", **{"speculative-algorithm": "NEXTN", "speculative-num-draft-tokens": 4})
    pool = _kv.pool_of(drafts, rest)
    # (10172290964 - 5 x 19316736) // (19316736 x (1 + 4/5)), and 49 copies of 4 draft tokens for 48 requests
    assert (pool.state_slots, pool.scratch_bytes) == (289, 49 * 4 * 19316736)
    assert pool.tokens == (rest - 290 * 19316736 - 49 * 4 * 19316736) // 12288


def test_trial_of_a_printed_window_pool():
    """MiMo-V2-Flash with a ratio of 1: 55,680 bytes x 1,496,958 tokens, printed as 77.63 GiB."""
    case = next(case for case in TRIALS if case["id"] == "b07")
    cell = trial(case, "0.5.12", **{"swa-full-tokens-ratio": 1.0})
    assert cell.bytes == 55680
    assert cell.bytes * 1496958 / GIB == pytest.approx(77.63, abs=HALF)
    # The log prints 41.76 and 27.84 GiB for the window layers, 4.82 and 3.21 for the full ones.
    assert cell.window_bytes * 1496958 / GIB == pytest.approx(41.76 + 27.84, abs=2 * HALF)
    assert cell.full_bytes * 1496958 / GIB == pytest.approx(4.82 + 3.21, abs=2 * HALF)


def test_trial_of_a_file_without_layers():
    case = next(case for case in TRIALS if case["id"] == "b25")
    with pytest.raises(_kv.UnknownLayout, match="hybrid_override_pattern in config.json"):
        trial(case)


def test_sharing_between_layers_is_said_and_not_credited():
    for name in ("b18", "b19"):
        case = next(case for case in TRIALS if case["id"] == name)
        notes = _model.read_geometry(case["config"])["notes"]
        assert any("share KV rows" in note and "upper bound" in note for note in notes)


# --- all geometries ---------------------------------------------------------

# Keys of the collected file that sum up others and that no configuration has.
SUMMARIES = (
    "how_known",
    "note",
    "layer_types_counts",
    "head_dim_note",
    "mamba_layers",
    "same_as",
    "conv_layers",
    "full_attention_layers",
    "sliding_layers",
    "sliding_window_pattern",
)
# What each of these must be refused for: the file lacks it, or the layout is not known.
REFUSED = {
    "MiniMaxAI/MiniMax-M3": "MiniMaxM3ForCausalLM",
    "XiaomiMiMo/MiMo-V2-Flash": "hybrid_layer_pattern",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "block_configs",
    "nvidia/MiniMax-M3-NVFP4": "sparse_attention_freq",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "hybrid_override_pattern",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": "hybrid_override_pattern",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": "hybrid_override_pattern",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "hybrid_override_pattern",
    "stepfun-ai/Step-3.7-Flash": "Step3p7FlashForCausalLM",
    "stepfun-ai/Step-3.7-Flash-FP8": "Step3p7FlashForCausalLM",
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": "num_attention_heads",
}


def config_of(name):
    row = ALL[name]
    row = dict(ALL[row["same_as"]], **row) if "same_as" in row else dict(row)
    return {key: value for key, value in row.items() if key not in SUMMARIES}


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_geometry_gives_a_cell_or_a_named_refusal(name):
    config = config_of(name)
    arguments = {"max-running-requests": 64}
    cell, refusal = None, ""
    try:
        cell = _kv.cell_bytes(_model.read_geometry(config), arguments, "0.5.23")
    except (_model.ModelError, _kv.UnknownLayout) as error:
        refusal = str(error)
    if cell is None:
        assert "cell_bytes" in refusal
        assert REFUSED.get(name, "") in refusal
        # The others are parts of configurations, without the architecture that decides.
        assert name in REFUSED or "architectures" not in config or config["architectures"] == ["DFlashDraftModel"]
        return
    assert name not in REFUSED
    assert cell.bytes > 0
    assert cell.bytes == pytest.approx(sum(part["bytes"] for part in cell.parts))
    assert cell.as_dict()["layout"] == cell.layout
    pool = _kv.pool_of(cell, 64 * GIB)
    assert pool.tokens > 0
    assert pool.tokens % cell.page_tokens == 0


# --- the engine itself ------------------------------------------------------

ENGINE = yaml.safe_load((DATA / "engine.yaml").read_text())


@pytest.mark.parametrize("row", ENGINE["rows"], ids=lambda row: row["model"])
def test_the_pool_is_the_one_that_the_engine_computes(row):
    geometry = _model.read_geometry(ENGINE["models"][row["model"]])
    if "draft_layers" in row:
        geometry["draft_layers"] = row["draft_layers"]
    cell = _kv.cell_bytes(geometry, row["arguments"], "0.5.23", page_tokens=row["page_tokens"])
    pool = _kv.pool_of(cell, row["rest_bytes"])
    asked = {key: row[key] for key in ("tokens", "window_tokens", "state_slots") if key in row}
    assert {key: getattr(pool, key) for key in asked} == asked
    assert len(ENGINE["rows"]) >= 25
