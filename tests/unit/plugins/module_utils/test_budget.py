# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import pathlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import BadInput, PlanInput, plan
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "budget"
GIB = 2**30
KIMI = json.loads((DATA / "kimi_k2.json").read_text())
SMOLLM2 = json.loads((DATA / "smollm2.json").read_text())
PUBLIC = json.loads((DATA / "public_starts.json").read_text())["starts"]
CPU_STARTS = json.loads((DATA / "cpu_starts.json").read_text())["starts"]


def reference(**changes):
    """The reference case: eight boards of 96 GB, MLA, weights 75 GiB a rank, cache in bf16, no draft."""
    given_values = {
        "arguments": {"tp-size": 8},
        "geometry": KIMI,
        "engine_version": "0.5.23",
        "free_before_load_gib": 94.97,
        "weights_gib": 75.0,
        "target_tokens": 200000,
        "max_context_tokens": 262144,
    }
    given_values.update(changes)
    return PlanInput(**given_values)


def row_of(answer, name):
    """The row of a plan with that name."""
    return next(row for row in answer.rows if row["name"] == name)


def pasted(refusal):
    """The values that a refusal offers, as a user would paste them: {option: text}."""
    offer = refusal.split("what works is ")[-1].split("what fits is ")[-1].split("set ")[-1].rstrip(".")
    pairs = (pair.split(": ") for pair in offer.split(", "))
    return {name.replace("sglang_server_", "").strip(): value for name, value in pairs}


# ---------------------------------------------------------------------------
# The engine's rule
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fraction", "tokens"),
    # 189,047.7 tokens at 0.92: rounded down like the others.
    [(0.94, 218070), (0.93, 203558), (0.92, 189047)],
)
def test_the_reference_case_to_the_token(fraction, tokens):
    answer = plan(reference(fraction=fraction, target_tokens=None))
    assert answer.predicted_tokens == tokens
    assert answer.cell_bytes == 70272


@pytest.mark.parametrize("start", PUBLIC, ids=[start["id"] for start in PUBLIC])
def test_the_rule_gives_the_pool_of_public_starts(start):
    cell = start["kv_gib"] * GIB / start["pool_tokens"]
    answer = plan(
        PlanInput(
            free_before_load_gib=start["free_before_load_gib"],
            free_after_load_gib=start["free_after_load_gib"],
            fraction=start["fraction"],
            cell_bytes=cell,
        )
    )
    error_gib = (answer.predicted_tokens - start["pool_tokens"]) * cell / GIB
    assert abs(error_gib) < 0.1
    assert answer.predicted_tokens_low <= start["pool_tokens"] <= answer.predicted_tokens_high


def test_a_target_is_rounded_up_to_pages_and_the_pool_down():
    answer = plan(reference(arguments={"tp-size": 8, "page-size": 64}, target_tokens=200001))
    assert answer.cap_tokens == 200064
    assert answer.pool_tokens == 200064
    assert answer.predicted_tokens % 64 == 0


# ---------------------------------------------------------------------------
# The reference case
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"engine_version": None}, {"engine_version": None, "geometry": None, "cell_bytes": 70272}],
    ids=["known", "version unknown", "shape unknown"],
)
def test_the_promise_has_an_interval(changes):
    answer = plan(reference(**changes))
    assert answer.feasible is True
    assert answer.fraction_low <= answer.fraction <= answer.fraction_high
    assert answer.predicted_tokens_low >= 200000
    assert answer.reserve_gib >= answer.reserve_needed_gib
    assert answer.cap_tokens == answer.pool_tokens == 200000
    assert answer.arguments["max-total-tokens"] == 200000
    assert answer.arguments["mem-fraction-static"] == answer.fraction
    assert answer.refusal is None
    assert answer.missing == []


def test_the_ends_of_the_interval_are_where_they_must_be():
    answer = plan(reference())
    chunk = answer.arguments["chunked-prefill-size"]
    fixed = reference(
        chunk_tokens=chunk,
        arguments={"tp-size": 8, "cuda-graph-max-bs-decode": answer.decided["decode_graph_batch"]},
    )
    for fraction, works in (
        (answer.fraction_low, True),
        (round(answer.fraction_low - 0.001, 3), False),
        (answer.fraction_high, True),
        (round(answer.fraction_high + 0.001, 3), False),
    ):
        assert plan(PlanInput(**dict(vars(fixed), fraction=fraction))).feasible is works


@pytest.mark.parametrize(
    ("fraction", "chunk", "target", "feasible"),
    # The two starts of the incident, with the 48 requests of a speculative server: the first died in a prefill of 8,192
    # tokens, the second lived with a chunk of 4,096 and missed the promise for another reason.
    [(0.94, 8192, 200000, False), (0.93, 4096, 195000, True)],
)
def test_the_two_starts_of_the_incident_are_judged_as_they_ended(fraction, chunk, target, feasible):
    answer = plan(reference(fraction=fraction, chunk_tokens=chunk, target_tokens=target, max_running_requests=48))
    assert answer.feasible is feasible
    if not feasible:
        assert answer.reserve_gib < answer.reserve_needed_gib


def test_the_896_mib_of_the_incident_are_in_the_activations():
    # 8 experts a token x 7168 x 2 bytes x 8192 tokens
    chunk_row = next(row for row in plan(reference(chunk_tokens=8192)).rows if row["name"] == "activations of a chunk")
    assert chunk_row["gib"] / tables.ACTIVATION_WASTE > 896 / 1024


def test_the_default_of_the_engine_is_shown():
    answer = plan(reference(arguments={"tp-size": 8, "cuda-graph-max-bs-decode": 512}, chunk_tokens=8192))
    assert answer.engine_default["fraction"] == pytest.approx(0.833, abs=0.003)
    assert answer.engine_default["tokens"] < 200000


# ---------------------------------------------------------------------------
# What is declared is never moved
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.5, 0.92, 0.9345, 0.94, 0.999])
@pytest.mark.parametrize("allow", [False, True])
def test_a_declared_fraction_is_never_moved(fraction, allow):
    answer = plan(reference(fraction=fraction, allow_unproven_plan=allow))
    assert answer.fraction == fraction
    assert answer.arguments["mem-fraction-static"] == fraction
    if allow:
        assert answer.refusal is None


@pytest.mark.parametrize("chunk", [-1, 1024, 8192, 16384])
def test_a_declared_chunk_is_never_moved(chunk):
    answer = plan(reference(chunk_tokens=chunk))
    assert answer.arguments["chunked-prefill-size"] == chunk


def test_a_declared_fraction_that_misses_by_more_than_the_band_is_refused_with_values_that_work():
    answer = plan(reference(fraction=0.92))
    assert answer.feasible is False
    assert "9,425 short of the target of 200,000" in answer.refusal
    values = pasted(answer.refusal)
    again = plan(
        reference(fraction=float(values["mem_fraction_static"]), chunk_tokens=int(values["chunked_prefill_size"]))
    )
    assert again.feasible is True
    assert again.refusal is None


DRAFT = {"attention": "mha", "layers": 6, "kv_heads": 8, "head_dim": 128, "attention_heads": 64, "hidden_size": 7168}
DFLASH = {
    "speculative-algorithm": "DFLASH",
    "speculative-draft-model-path": "/srv/models/draft",
    "speculative-num-draft-tokens": 8,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"chunk_tokens": 8192},
        {"chunk_tokens": 2048},
        {"max_running_requests": 48},
        {"max_running_requests": 48, "chunk_tokens": 8192},
        {"arguments": {"tp-size": 8, "speculative-algorithm": "EAGLE"}, "max_running_requests": 48},
        {"arguments": {"tp-size": 8, **DFLASH}, "draft_geometry": DRAFT, "draft_weight_bytes": 6 * 10**9},
    ],
    ids=["auto", "8192", "2048", "48", "48 and 8192", "eagle", "dflash"],
)
def test_the_declared_fraction_of_the_incident_is_refused_with_values_that_work(changes):
    """94.97 x 0.06 = 5.698 GiB are left. Levers are moved for the target, never further to rescue a fraction."""
    answer = plan(reference(fraction=0.94, **changes))
    assert answer.feasible is False
    assert answer.fraction == 0.94
    assert "The declared fraction 0.940 leaves 5.70 GiB" in answer.refusal
    assert answer.reserve_needed_gib > 5.698 + answer.band_gib
    values = pasted(answer.refusal)
    offered = values["mem_fraction_static"]
    again = {"fraction": None if offered == "auto" else float(offered)}
    if offered == "auto":  # where no fraction holds the target
        again["target_tokens"] = int(values["target_tokens"])
    if "chunked_prefill_size" in values:
        again["chunk_tokens"] = int(values["chunked_prefill_size"])
    tried = plan(dataclasses.replace(reference(**changes), **again))
    assert tried.feasible is True
    assert tried.refusal is None
    allowed = plan(dataclasses.replace(reference(fraction=0.94, **changes), allow_unproven_plan=True))
    assert allowed.refusal is None
    assert allowed.fraction == 0.94


def test_a_declared_fraction_whose_reserve_misses_within_the_band_is_tried():
    """6.161 GiB are needed; 94.97 x 0.0645 = 6.126 are left, 0.035 less, and two starts differ by 0.10."""
    answer = plan(reference(fraction=0.9355))
    assert answer.feasible is False
    assert answer.refusal is None
    assert plan(reference(fraction=0.936)).refusal is None  # 6.078: 0.083 less
    assert "leaves 5.98 GiB" in plan(reference(fraction=0.937)).refusal


@pytest.mark.parametrize("fraction", [0.94, 0.97, 0.99])
def test_the_refusal_of_a_declared_fraction_says_what_the_cap_hides(fraction):
    """Under its cap the pool leaves 94.97 - 75.00 - 13.09 = 6.88 GiB; one that grows to the fraction leaves less."""
    answer = plan(reference(fraction=fraction))
    assert f"leaves {94.97 * (1 - fraction):.2f} GiB outside weights and a pool that grows to it" in answer.refusal
    assert "only the cap of 200,000 tokens keeps 6.88 GiB free" in answer.refusal
    # The same figure as in the table, also where less is left than is beyond doubt.
    assert "6.16 GiB are needed" in answer.refusal
    assert any(line.startswith("reserve needed") and line.endswith("6.16 GiB") for line in answer.table)
    filled = plan(reference(fraction=fraction, pool_policy="fill", max_running_requests=48))
    assert "GiB outside weights and pool, and" in filled.refusal
    assert "cap" not in filled.refusal


def test_without_a_target_a_declared_fraction_is_what_is_wanted_and_the_levers_follow():
    answer = plan(reference(fraction=0.93, pool_policy="fill", target_tokens=None))
    assert answer.feasible is True
    assert answer.arguments["chunked-prefill-size"] == 2048


@pytest.mark.parametrize("fraction", [None, 0.9])
def test_where_no_target_fits_none_is_offered(fraction):
    answer = plan(reference(weights_gib=96.0, fraction=fraction))
    assert answer.tokens_that_fit == 0
    assert "no target fits" in answer.refusal
    assert "target_tokens" not in answer.refusal


def test_the_headroom_has_a_band_that_carries_the_rows_and_free_before_load():
    fill = {"pool_policy": "fill", "fraction": 0.92, "max_running_requests": 48}
    answer = plan(reference(**fill))
    # runtime 0 to 0.5, MLA graphs 0.75 to 1.5; half of the decode graphs and all of their index may be spared.
    spared = 0.5 + 0.75 + row_of(answer, "decode graphs")["gib"] / 2 + row_of(answer, "decode graph index")["gib"]
    low, high = answer.predicted_headroom_low_gib, answer.predicted_headroom_high_gib
    assert high - low == pytest.approx(spared, abs=0.001)
    assert answer.predicted_headroom_gib == pytest.approx((low + high) / 2, abs=0.001)
    # The low end is the one that the floor of least free is kept at.
    load = sum(row["gib"] for row in answer.rows if row["part"] == "load")
    assert low - load == pytest.approx(answer.predicted_least_free_gib, abs=0.001)
    # Beyond a cap the noise of the start (0.1) lands in the headroom too.
    capped = plan(reference(fraction=0.92, target_tokens=100000, max_running_requests=48))
    width = capped.predicted_headroom_high_gib - capped.predicted_headroom_low_gib
    batch, index = row_of(capped, "decode graphs")["gib"], row_of(capped, "decode graph index")["gib"]
    assert width == pytest.approx(0.5 + 0.75 + batch / 2 + index + 0.2, abs=0.001)


def test_free_before_load_that_is_not_known_widens_the_headroom():
    gpu = {"name": "board", "memory_total_mib": 97887, "memory_free_mib": 97200}
    common = {"pool_policy": "fill", "fraction": 0.9, "target_tokens": None, "free_before_load_gib": None}
    blind = dataclasses.replace(reference(**common), gpus=(gpu,) * 8)
    answer = plan(blind)
    known = dataclasses.replace(reference(**common), free_before_load_gib=answer.free_before_load_gib)
    given_before = plan(known)
    wide = answer.predicted_headroom_high_gib - answer.predicted_headroom_low_gib
    narrow = given_before.predicted_headroom_high_gib - given_before.predicted_headroom_low_gib
    # context 0.25 and collectives 0.50, of which a pool without a cap leaves the tenth that the fraction leaves
    assert wide - narrow == pytest.approx(2 * 0.75 * 0.1, abs=0.005)


def test_a_lever_that_splits_the_weights_further_is_planned_again():
    llama = {"attention": "mha", "layers": 32, "hidden_size": 4096, "attention_heads": 32, "kv_heads": 8}
    llama.update(head_dim=128, v_head_dim=128, dtype="bfloat16")
    gpu = {"name": "board", "memory_total_mib": 81559, "memory_free_mib": 81050}

    def llama_on(ranks):
        return plan(
            PlanInput(
                arguments={"tp-size": ranks},
                gpus=(gpu,) * 4,
                geometry=llama,
                weight_bytes=16060522496,
                engine_version="0.5.23",
                target_tokens=100000,
            )
        )

    two, four = llama_on(2), llama_on(4)
    lever = next(one for one in two.levers if one["lever"] == "arguments: tp-size")
    assert (lever["from"], lever["to"]) == (2, 4)
    assert lever["tokens"] == four.tokens_that_fit - two.tokens_that_fit > 800000


def test_a_declared_fraction_that_misses_within_the_band_is_tried():
    # version unknown: half a band of 0.5 GiB
    answer = plan(reference(fraction=0.93, engine_version=None))
    assert answer.predicted_tokens_low < 200000 < answer.predicted_tokens_high
    assert answer.feasible is False
    assert answer.refusal is None


def test_a_declared_fraction_under_a_death_is_refused_with_values_that_work():
    death = {"reserve_needed_gib": 6.2, "direction": "lower"}
    assert plan(reference(fraction=0.935)).refusal is None
    answer = plan(reference(fraction=0.935, deaths=(death,)))
    assert answer.feasible is False
    assert "an earlier death for want of memory showed that 6.20 GiB are needed" in answer.refusal
    values = pasted(answer.refusal)
    again = plan(
        reference(
            deaths=(death,),
            fraction=float(values["mem_fraction_static"]),
            chunk_tokens=int(values["chunked_prefill_size"]),
        )
    )
    assert again.feasible is True


def test_a_declared_cap_under_the_target_is_refused():
    answer = plan(reference(arguments={"tp-size": 8, "max-total-tokens": 150000}))
    assert answer.cap_tokens == 150000
    assert "150,000 caps the pool under the target of 200,000" in answer.refusal


def test_a_declared_context_beyond_the_model_is_refused():
    answer = plan(reference(context_tokens=300000))
    assert pasted(answer.refusal) == {"context_tokens": "262144"}
    assert plan(reference(context_tokens=262144)).refusal is None


@pytest.mark.parametrize(
    ("target", "limit", "context"), [(200000, 262144, 200000), (200000, 8192, 8192), (200000, None, 200000)]
)
def test_the_context_is_the_target_but_not_more_than_the_model_can(target, limit, context):
    answer = plan(reference(target_tokens=target, max_context_tokens=limit))
    assert answer.decided["context_tokens"] == context
    # What the model can take is not known: the engine is left to its own limit.
    assert answer.arguments.get("context-length") == (context if limit else None)


# ---------------------------------------------------------------------------
# Infeasible
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", [230000, 400000, 5000000])
@pytest.mark.parametrize("page", [1, 64])
def test_a_target_that_cannot_fit_is_refused_with_one_that_does(target, page):
    arguments = {"tp-size": 8, "page-size": page}
    answer = plan(reference(target_tokens=target, arguments=arguments))
    assert answer.feasible is False
    assert answer.fraction is None
    assert answer.predicted_tokens is None
    offered = int(pasted(answer.refusal)["target_tokens"])
    assert offered == answer.tokens_that_fit
    assert plan(reference(target_tokens=offered, arguments=arguments)).feasible is True
    assert plan(reference(target_tokens=offered + page, arguments=arguments)).feasible is False


def test_levers_come_smallest_first_and_say_what_they_buy():
    answer = plan(reference(target_tokens=400000))
    assert [one["lever"] for one in answer.levers[:3]] == [
        "chunked_prefill_size",
        "chunked_prefill_size",
        "decode_graph_batch",
    ]
    assert [one["to"] for one in answer.levers[:2]] == [4096, 2048]
    for one in answer.levers:
        assert one["gib"] > 0
        if one["lever"] != "arguments: kv-cache-dtype":
            assert one["tokens"] == pytest.approx(one["gib"] * GIB / 70272, rel=0.01)
    advised = {one["lever"]: one for one in answer.levers if not one["automatic"]}
    told = answer.refusal.split("levers, smallest change first: ")[1]
    assert [one.split(" ")[0] for one in told.split("; ")[:2]] == ["sglang_server_arguments:"] * 2
    assert told.index("enough by itself") > told.index("kv-cache-dtype")  # 204,933 tokens of the 174,000 that are short
    fewer = told.index("sglang_server_arguments: {max-running-requests: 256} (now 2048): +")
    assert fewer < told.index("sglang_server_context_tokens: 131072 (now 262144): +")
    assert "sglang_server_arguments: {disable-prefill-cuda-graph: true}: +1.50 GiB" in told
    assert answer.levers[2]["paste"] == "sglang_server_arguments: {cuda-graph-max-bs-decode: 256}"
    halved = plan(reference(target_tokens=400000, arguments={"tp-size": 8, "kv-cache-dtype": "fp8_e4m3"}))
    buys = halved.tokens_that_fit - answer.tokens_that_fit
    assert advised["arguments: kv-cache-dtype"]["tokens"] == buys == pytest.approx(204933, rel=0.01)
    assert set(advised) >= {"arguments: max-running-requests", "context_tokens"}


def test_a_lever_is_moved_only_when_it_is_needed():
    answer = plan(reference(target_tokens=100000, max_running_requests=48))
    assert answer.feasible is True
    assert "chunked-prefill-size" not in answer.arguments
    assert "cuda-graph-max-bs-decode" not in answer.arguments


@pytest.mark.parametrize(
    ("version", "target", "name"),
    [("0.5.23", 210000, "cuda-graph-max-bs-decode"), ("0.5.9", 229000, "cuda-graph-max-bs")],
)
def test_the_graph_batch_has_the_name_that_the_version_knows(version, target, name):
    assert name in plan(reference(engine_version=version, target_tokens=target)).arguments


def test_an_unproven_plan_is_given_when_it_is_allowed():
    answer = plan(reference(target_tokens=240000, allow_unproven_plan=True))
    assert answer.feasible is False
    assert answer.refusal is None
    assert 0.9 < answer.fraction < 1


# ---------------------------------------------------------------------------
# Policies
# ---------------------------------------------------------------------------


def test_fill_takes_all_that_the_reserve_leaves_and_sets_no_cap():
    answer = plan(reference(pool_policy="fill"))
    assert answer.fraction == answer.fraction_high
    assert answer.cap_tokens is None
    assert "max-total-tokens" not in answer.arguments
    assert answer.pool_tokens == answer.predicted_tokens > 200000


def test_fill_needs_no_target():
    answer = plan(reference(pool_policy="fill", target_tokens=None))
    assert answer.feasible is True
    assert answer.missing == []


def test_the_cap_leaves_its_surplus_as_headroom():
    capped, filled = plan(reference()), plan(reference(fraction=plan(reference()).fraction, pool_policy="fill"))
    surplus_gib = (filled.pool_tokens - capped.pool_tokens) * 70272 / GIB
    assert capped.predicted_headroom_gib == pytest.approx(filled.predicted_headroom_gib + surplus_gib, abs=0.001)


# ---------------------------------------------------------------------------
# What is missing
# ---------------------------------------------------------------------------


def test_the_cell_needs_the_shape_only():
    answer = plan(PlanInput(geometry=KIMI, arguments={"tp-size": 8}, engine_version="0.5.23"))
    assert answer.cell_bytes == 70272
    assert answer.feasible is None
    assert answer.fraction is None
    assert answer.missing == ["gpus", "weight_bytes", "target_tokens"]


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"free_before_load_gib": None}, ["gpus"]),
        ({"weights_gib": None}, ["weight_bytes"]),
        ({"geometry": None}, ["geometry"]),
        ({"geometry": dict(KIMI, attention="other")}, ["cell_bytes"]),
        ({"target_tokens": None}, ["target_tokens"]),
        (
            {
                "weights_gib": None,
                "weight_bytes": 600 * GIB,
                "arguments": {"tp-size": 8, "speculative-draft-model-path": "/m/draft"},
            },
            ["draft_weight_bytes"],
        ),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_promised(changes, missing):
    answer = plan(reference(**changes))
    assert answer.missing == missing
    assert answer.feasible is None
    assert answer.fraction is None
    assert ", ".join(missing) in answer.explanation or missing == ["target_tokens"]


def test_an_unknown_layout_is_named_and_the_cell_gets_around_it():
    strange = dict(KIMI, attention="other")
    assert "attention other" in plan(reference(geometry=strange)).explanation
    assert plan(reference(geometry=strange, cell_bytes=70272)).feasible is True


# ---------------------------------------------------------------------------
# GPUs
# ---------------------------------------------------------------------------


def board(free_mib=97200, total_mib=97887, **more):
    return dict({"name": "RTX PRO 6000", "memory_total_mib": total_mib, "memory_free_mib": free_mib}, **more)


def test_blind_free_before_load_lies_in_the_band_of_the_reference_boards():
    answer = plan(reference(free_before_load_gib=None, gpus=(board(),) * 8))
    row = row_of(answer, "free before load")
    assert row["source"] == "table"
    assert abs(row["gib"] - 93.61) < row["error_gib"]  # what a start of eight ranks on this class of board printed
    assert answer.plan_free_gib == pytest.approx(97200 / 1024, abs=0.001)


def test_the_worst_gpu_counts():
    gpus = (board(),) * 7 + (board(90000),)
    answer = plan(reference(free_before_load_gib=None, gpus=gpus))
    assert answer.plan_free_gib == pytest.approx(90000 / 1024, abs=0.001)


def test_what_the_own_server_holds_counts_as_free():
    gpus = (board(5400, 81559, memory_own_mib=75120), board(81050, 81559))
    answer = plan(PlanInput(gpus=gpus, arguments={"tp-size": 2}, own_server_running=True))
    assert answer.plan_free_gib == pytest.approx(80520 / 1024, abs=0.001)


def test_beside_the_own_server_the_free_memory_tells_nothing():
    gpus = (board(5400, 81559),)
    answer = plan(PlanInput(gpus=gpus, own_server_running=True))
    assert answer.plan_free_gib is None
    assert 77 < answer.free_before_load_gib < 80
    measured = {"origin": "host", "free_before_load_gib": 78.4}
    answer = plan(PlanInput(gpus=gpus, own_server_running=True, measurements=(measured,)))
    assert answer.free_before_load_gib == 78.4


def test_weights_are_split_over_the_ranks():
    answer = plan(reference(weights_gib=None, weight_bytes=600 * GIB, target_tokens=None, fraction=0.94))
    row = row_of(answer, "weights")
    assert row["source"] == "assumed"
    assert row["gib"] == pytest.approx(75.1)  # and 0.1 GiB that a load takes beyond the files
    older = plan(reference(weights_gib=None, weight_bytes=600 * GIB, engine_version="0.5.12"))
    assert row_of(older, "weights")["gib"] == pytest.approx(75.145)  # 17 public start-ups: 0.01 to 0.08 after the load
    assert answer.predicted_tokens_low < 218070 < answer.predicted_tokens_high


# ---------------------------------------------------------------------------
# Measurements
# ---------------------------------------------------------------------------

START = {
    "origin": "host",
    "fraction": 0.93,
    "pool_tokens": 195011,
    "free_before_load_gib": 94.5,
    "free_after_load_gib": 19.4,
    "cell_bytes": 70272,
}


def test_a_pool_below_its_cap_tells_what_the_load_took():
    answer = plan(reference(free_before_load_gib=None, weights_gib=None, measurements=(START,)))
    taken = 94.5 - (195011 * 70272 / GIB + 94.5 * 0.07)
    assert answer.free_before_load_gib == 94.5
    assert answer.free_after_load_gib == pytest.approx(94.5 - taken, abs=0.001)
    again = plan(reference(free_before_load_gib=None, weights_gib=None, measurements=(START,), fraction=0.93))
    assert again.predicted_tokens == pytest.approx(195011, abs=2)


def test_a_short_start_moves_the_fraction_up_by_what_is_short():
    answer = plan(
        reference(free_before_load_gib=None, weights_gib=None, measurements=(START,), max_running_requests=48)
    )
    short_gib = 4989 * 70272 / GIB
    assert answer.feasible is True
    assert answer.fraction_low >= 0.93 + short_gib / 94.5
    assert answer.fraction_low <= 0.93 + short_gib / 94.5 + 0.006


def test_a_pool_at_its_cap_is_only_a_bound_so_the_load_lines_count():
    capped = dict(START, cap_tokens=190000, pool_tokens=190000)
    answer = plan(reference(free_before_load_gib=None, weights_gib=None, measurements=(capped,), fraction=0.93))
    assert answer.free_after_load_gib == pytest.approx(19.4, abs=0.001)
    older = dict(capped, engine_version="0.5.12")
    answer = plan(reference(free_before_load_gib=None, weights_gib=None, measurements=(older,), fraction=0.93))
    assert answer.free_after_load_gib == pytest.approx(19.4 - 0.045, abs=0.001)
    below = plan(reference(free_before_load_gib=None, weights_gib=None, measurements=(START,), fraction=0.93))
    assert answer.band_gib > below.band_gib
    # The pool was there, so at least that much was free: the bound wins over a load line that says less.
    less = dict(capped, free_after_load_gib=18.0)
    answer = plan(reference(free_before_load_gib=None, weights_gib=None, measurements=(less,), fraction=0.93))
    assert answer.predicted_tokens >= 190000


def test_kin_give_weights_but_never_free_before_load():
    kin = dict(START, origin="play", free_before_load_gib=92.0, pool_tokens=170000)
    answer = plan(reference(free_before_load_gib=None, weights_gib=None, gpus=(board(),) * 8, measurements=(kin,)))
    assert row_of(answer, "free before load")["source"] == "table"
    assert row_of(answer, "weights")["source"] == "measured"


@pytest.mark.parametrize("quantity", ["weights", "cell", "activation"])
def test_a_measurement_of_other_keys_does_not_count_for_that_quantity(quantity):
    full = dict(START, weights_gib=75.1, kv_gib=12.76, headroom_gib=5.0, least_free_gib=3.0)
    changes = {
        "weights": {"weights_gib": None, "weight_bytes": 600 * GIB},
        "cell": {"geometry": None},
        "activation": {},
    }[quantity]
    ours = {"weights": "w", "cell": "c", "activation": "a"}
    same = plan(reference(keys=ours, measurements=(dict(full, keys=ours),), **changes))
    other = plan(reference(keys=ours, measurements=(dict(full, keys=dict(ours, **{quantity: "x"})),), **changes))
    name = {"weights": "weights", "cell": "pool", "activation": "taken by the load"}[quantity]
    assert [row["source"] for row in same.rows if row["name"] == name] == ["measured"]
    assert [row["source"] for row in other.rows if row["name"] == name] != ["measured"]


def test_what_a_start_and_its_soak_took_replaces_the_table():
    full = dict(START, kv_gib=12.76, headroom_gib=5.0, least_free_gib=3.2, chunked_prefill_size=8192)
    answer = plan(reference(chunk_tokens=8192, measurements=(full,)))
    rows = {row["name"]: row for row in answer.rows}
    assert rows["taken until ready"]["gib"] == pytest.approx(19.4 - 12.76 - 5.0)
    assert rows["taken by the load"]["gib"] == pytest.approx(1.8)
    assert "request table" not in rows
    other_chunk = plan(reference(chunk_tokens=4096, measurements=(full,)))
    assert "request table" in {row["name"] for row in other_chunk.rows}


def test_free_before_load_moves_with_the_free_memory():
    told = dict(START, plan_free_gib=95.2)
    for free_gib, expected in ((95.2, 94.5), (93.2, 92.5)):
        gpus = (board(free_gib * 1024),) * 8
        answer = plan(reference(free_before_load_gib=None, gpus=gpus, measurements=(told,)))
        assert answer.free_before_load_gib == pytest.approx(expected, abs=0.001)


# ---------------------------------------------------------------------------
# The CPU
# ---------------------------------------------------------------------------


def cpu(start, fraction, **changes):
    free_gib = start["plan_free_gib"] or 22.9
    entry = {"name": "cpu", "memory_total_mib": 24105, "memory_free_mib": free_gib * 1024}
    given_values = {
        "gpus": [entry],
        "geometry": SMOLLM2,
        "weight_bytes": 269030016,
        "engine_version": "0.5.23",
        "pool_policy": "fill",
        "mem_fraction_static": fraction,
    }
    given_values.update(changes)
    return plan(plan_input(given_values))


def measurement_of(start, later):
    """What a start taught; how the free memory moved is only known when it was noted both times."""
    free_gib = start["plan_free_gib"] if later["plan_free_gib"] else None
    return dict(start, origin="host", cell_bytes=23040, plan_free_gib=free_gib)


NOTED = [start for start in CPU_STARTS if start["plan_free_gib"]]
QUIET = [start for start in CPU_STARTS if start["quiet"]]


@pytest.mark.parametrize("start", NOTED, ids=[start["id"] for start in NOTED])
def test_blind_on_the_cpu_within_8_percent_and_in_the_band(start):
    answer = cpu(start, start["fraction"])
    assert answer.pool_tokens == pytest.approx(start["pool_tokens"], rel=0.08)
    assert answer.predicted_tokens_low <= start["pool_tokens"] <= answer.predicted_tokens_high


@pytest.mark.parametrize("later", QUIET, ids=[start["id"] for start in QUIET])
@pytest.mark.parametrize("first", QUIET, ids=[start["id"] for start in QUIET])
def test_after_one_start_on_the_cpu_within_2_percent(first, later):
    answer = cpu(later, later["fraction"], measurements=[measurement_of(first, later)])
    assert answer.pool_tokens == pytest.approx(later["pool_tokens"], rel=0.02)
    assert answer.predicted_tokens_low <= later["pool_tokens"] <= answer.predicted_tokens_high


def test_the_cpu_keeps_memory_for_the_machine():
    answer = cpu(CPU_STARTS[0], "auto")
    assert answer.feasible is True
    assert answer.reserve_gib > 2.0
    assert "decode graphs" not in {row["name"] for row in answer.rows}


# ---------------------------------------------------------------------------
# Deaths and the allocator
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("needed_gib", [5.71, 6.0, 6.6])
def test_a_death_is_not_undercut_again(needed_gib):
    answer = plan(reference(deaths=({"reserve_needed_gib": needed_gib},)))
    assert answer.feasible is True
    assert answer.reserve_gib >= needed_gib
    assert answer.reserve_needed_gib >= needed_gib


def test_a_death_that_wants_more_than_there_is_makes_it_infeasible():
    answer = plan(reference(deaths=({"reserve_needed_gib": 7.0},)))
    assert answer.feasible is False
    assert int(pasted(answer.refusal)["target_tokens"]) < 200000


@pytest.mark.parametrize(
    "death",
    [
        {"reserve_needed_gib": 7.0, "direction": "raise"},
        {"reserve_needed_gib": 7.0, "direction": "lower", "keys": {"activation": "another"}},
        {"reserve_needed_gib": None, "direction": "lower"},
    ],
)
def test_other_deaths_do_not_count(death):
    assert plan(reference(deaths=(death,))).as_dict()["fraction"] == plan(reference()).fraction


def test_a_death_under_another_lever_counts_by_what_the_table_missed():
    # Everything auto, and the start with the engine's own chunk died.
    first = plan(reference(target_tokens=100000, max_running_requests=48))
    assert "chunked-prefill-size" not in first.arguments
    missed_gib = 8.0
    death = {"reserve_needed_gib": first.reserve_needed_gib + missed_gib, "keys": first.quantity_keys}
    second = plan(reference(target_tokens=100000, max_running_requests=48, deaths=(death,)))
    assert second.feasible is True
    assert second.arguments.get("chunked-prefill-size") in (4096, 2048)
    rows = sum(row["gib"] for row in second.rows if row["part"] in ("ready", "load", "floor"))
    assert rows == pytest.approx(second.reserve_needed_gib, abs=0.001)
    learned = next(row for row in second.rows if row["name"] == "learned from a death")
    assert learned["gib"] == pytest.approx(missed_gib, abs=0.001)


FRAGMENTED = {"reserve_needed_gib": 5.71, "wanted_gib": 0.875, "reserved_unallocated_gib": 1.4}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "expandable_segments:True"),
        ({"deaths": ({"reserve_needed_gib": 5.71, "wanted_gib": 0.875, "reserved_unallocated_gib": 0.3},)}, None),
        ({"deaths": ()}, None),
        ({"allocator_conf": ""}, None),
        ({"allocator_conf": "max_split_size_mb:128"}, "max_split_size_mb:128"),
        ({"arguments": {"tp-size": 8, "enable-memory-saver": True}}, None),
        ({"engine_version": "0.5.9"}, None),
        (
            {"engine_version": "0.5.9", "arguments": {"tp-size": 8, "disable-custom-all-reduce": True}},
            "expandable_segments:True",
        ),
    ],
)
def test_expandable_segments_after_fragmentation_where_nothing_forbids_them(changes, expected):
    answer = plan(reference(**dict({"deaths": (FRAGMENTED,)}, **changes)))
    name = "PYTORCH_CUDA_ALLOC_CONF" if changes.get("engine_version") == "0.5.9" else "PYTORCH_ALLOC_CONF"
    assert answer.environment == ({name: expected} if expected else {})


def test_the_torch_that_is_installed_names_the_variable():
    answer = plan(reference(deaths=(FRAGMENTED,), torch_version="2.9.1+cu128"))
    assert answer.environment == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_an_allocator_of_the_user_is_left_alone():
    environment = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
    answer = plan(reference(deaths=(FRAGMENTED,), environment=environment))
    assert answer.environment == environment


def test_a_death_still_counts_when_it_brings_in_the_allocator():
    first = plan(reference(target_tokens=150000))
    death = dict(FRAGMENTED, reserve_needed_gib=first.reserve_needed_gib + 0.5, keys=first.quantity_keys)
    second = plan(reference(target_tokens=150000, deaths=(death,)))
    assert second.environment
    assert second.reserve_gib >= death["reserve_needed_gib"] - 1e-6


# ---------------------------------------------------------------------------
# Floors
# ---------------------------------------------------------------------------


def test_floors_that_are_declared_take_the_place_of_the_computed_ones():
    plain = plan(reference(target_tokens=100000, chunk_tokens=2048))
    low = plan(reference(target_tokens=100000, chunk_tokens=2048, min_headroom_gib=0.5))
    high = plan(reference(target_tokens=100000, chunk_tokens=2048, min_least_free_gib=3.0))
    assert low.decided["min_headroom_gib"] == 0.5
    assert low.reserve_needed_gib < plain.reserve_needed_gib < high.reserve_needed_gib
    assert high.decided["min_least_free_gib"] == 3.0
    both = plan(reference(target_tokens=100000, chunk_tokens=2048, min_headroom_gib=0.5, min_least_free_gib=3.0))
    assert both.reserve_needed_gib == high.reserve_needed_gib


def test_the_plan_expects_more_than_its_floors():
    answer = plan(reference())
    assert answer.predicted_headroom_gib >= answer.decided["min_headroom_gib"]
    assert answer.predicted_least_free_gib >= answer.decided["min_least_free_gib"]


# ---------------------------------------------------------------------------
# Words and shape of the answer
# ---------------------------------------------------------------------------


def test_the_rows_of_the_reserve_add_up_and_name_their_source():
    answer = plan(reference())
    reserve = [row for row in answer.rows if row["part"] in ("ready", "load", "floor")]
    assert sum(row["gib"] for row in reserve) == pytest.approx(answer.reserve_needed_gib, abs=0.001)
    for row in answer.rows:
        assert row["source"] in ("given", "measured", "table", "assumed")
        assert row["note"]


@pytest.mark.parametrize(
    "changes",
    [{}, {"target_tokens": 400000}, {"fraction": 0.92}, {"geometry": None}, {"target_tokens": None, "fraction": 0.9}],
)
def test_the_words_are_words(changes):
    answer = plan(reference(**changes))
    text = " ".join([answer.explanation, answer.reason, answer.refusal or ""] + answer.table)
    assert "None" not in text
    assert "  " not in answer.explanation
    assert answer.explanation.endswith(".")
    json.dumps(answer.as_dict())


def test_the_same_input_gives_the_same_answer_and_is_left_alone():
    inputs = reference(arguments={"tp-size": 8}, environment={"A": "b"})
    assert plan(inputs) == plan(inputs)
    assert inputs.arguments == {"tp-size": 8}
    assert inputs.environment == {"A": "b"}


# ---------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arguments": {"tp-size": 7}}, ("64 attention heads", "tp-size")),
        ({"arguments": {"tp-size": 7}, "cell_bytes": 70272}, ("64 attention heads", "tp-size")),
        ({"arguments": {"tp-size": 0}}, ("tp-size",)),
        ({"arguments": {"tp-size": "eight"}}, ("tp-size",)),
        ({"arguments": {"tp-size": 8, "page-size": -1}}, ("page-size",)),
        ({"gpus": (board(),) * 4, "free_before_load_gib": None}, ("8 GPUs", "found 4")),
        ({"gpus": (board(-5),) * 8, "free_before_load_gib": None}, ("memory_free_mib", "gpu_info")),
    ],
)
def test_input_that_cannot_be_right_is_one_sentence(changes, words):
    with pytest.raises(BadInput) as caught:
        plan(reference(**changes))
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------
# For any figures
# ---------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    before=st.floats(8, 280),
    share=st.floats(0.05, 0.97),
    cell=st.integers(512, 400000),
    target=st.integers(1, 3000000),
    page=st.sampled_from([1, 16, 64, 256]),
    policy=st.sampled_from(["promise", "fill"]),
    version=st.sampled_from([None, "0.4.9", "0.5.12", "0.5.23"]),
)
def test_a_feasible_plan_keeps_both_sides_and_an_infeasible_one_offers_what_fits(
    before, share, cell, target, page, policy, version
):
    inputs = {
        "free_before_load_gib": before,
        "weights_gib": before * share,
        "cell_bytes": cell,
        "target_tokens": target,
        "pool_policy": policy,
        "engine_version": version,
        "arguments": {"page-size": page},
    }
    answer = plan(PlanInput(**inputs))
    assert answer.feasible in (True, False)
    if answer.feasible:
        assert answer.predicted_tokens_low >= target
        assert answer.pool_tokens >= target
        assert answer.reserve_gib >= answer.reserve_needed_gib - 1e-3
        assert answer.fraction_low <= answer.fraction <= answer.fraction_high
        assert answer.fraction == round(answer.fraction, 3)
    else:
        assert answer.refusal
        assert answer.fraction is None
        assert answer.tokens_that_fit < target + page
        if answer.tokens_that_fit:
            assert plan(PlanInput(**{**inputs, "target_tokens": answer.tokens_that_fit})).feasible is True


def test_a_plan_costs_less_than_50_ms(capsys):
    inputs = reference(gpus=(board(),) * 8, deaths=(FRAGMENTED,) * 3, measurements=(START,) * 5, target_tokens=400000)
    rounds_ms = []
    for dummy in range(10):
        began = time.process_time()
        plan(inputs)
        rounds_ms.append((time.process_time() - began) * 1000)
    cost_ms = min(rounds_ms)  # other work on the processor only adds
    with capsys.disabled():
        print(f"\na plan costs {cost_ms:.1f} ms of CPU")
    assert cost_ms < 50


def test_the_worked_example_of_the_documentation_is_what_the_plan_says():
    text = (pathlib.Path(__file__).resolve().parents[4] / "docs" / "memory.md").read_text()
    answer = plan(reference())
    own = plan(reference(chunk_tokens=8192, arguments={"tp-size": 8, "cuda-graph-max-bs-decode": 512}))
    for figure in (
        f"Fractions {answer.fraction_low:.3f} to {answer.fraction_high:.3f}; {answer.fraction:.3f} is taken",
        f"It would give {answer.predicted_tokens:,} tokens",
        f"about {answer.engine_default['fraction']:.3f} with {answer.engine_default['tokens']:,} tokens",
        f"**{own.reserve_needed_gib:.2f}** | **{answer.reserve_needed_gib:.2f}**",
        f"{own.reserve_needed_gib:.2f} GiB allow {own.fraction_high:.3f} at most",
    ):
        assert figure in text


def test_the_worked_example_from_the_boards_is_what_the_plan_says():
    """The figures of docs/memory.md, step 7, were reckoned by hand; here the plan has to say the same."""
    text = (pathlib.Path(__file__).resolve().parents[4] / "docs" / "memory.md").read_text()
    shape = {"attention": "mla", "layers": 61, "hidden_size": 7168, "attention_heads": 64, "kv_lora_rank": 512}
    shape.update(qk_rope_head_dim=64, v_head_dim=128, experts=384, experts_per_token=8, moe_intermediate_size=2048)
    shape.update(intermediate_size=18432, dtype="bfloat16")
    answer = plan(
        reference(
            geometry=shape,
            gpus=(board(97245),) * 8,
            weight_bytes=640000000000,
            target_tokens=150000,
            free_before_load_gib=None,
            weights_gib=None,
        )
    )
    assert (answer.fraction_low, answer.fraction, answer.fraction_high) == (0.927, 0.929, 0.931)
    assert answer.reserve_needed_gib == pytest.approx(6.37, abs=0.005)
    assert answer.predicted_headroom_gib == pytest.approx(5.43, abs=0.005)
    assert answer.predicted_least_free_gib == pytest.approx(2.94, abs=0.005)
    assert answer.free_before_load_gib == pytest.approx(93.27, abs=0.005)
    assert answer.free_after_load_gib == pytest.approx(18.66, abs=0.005)
    assert answer.band_gib == pytest.approx(2.02, abs=0.006)
    for figure in ("fractions 0.927 to 0.931", "takes 0.929", "= 6.37", "least free 2.94", "5.43 GiB of headroom"):
        assert figure in text


@pytest.mark.parametrize(
    ("changes", "bytes_a_token", "figure"),
    [
        ({}, 184320, "184,320 bytes"),
        (
            {
                "geometry": {
                    "attention": "mha",
                    "layers": 80,
                    "hidden_size": 8192,
                    "attention_heads": 64,
                    "kv_heads": 8,
                    "head_dim": 128,
                    "v_head_dim": 128,
                    "intermediate_size": 28672,
                },
                "arguments": {"tp-size": 4},
            },
            108544,
            "108,544 bytes",
        ),
    ],
)
def test_the_activations_of_the_documentation_are_those_of_the_plan(changes, bytes_a_token, figure):
    text = (pathlib.Path(__file__).resolve().parents[4] / "docs" / "memory.md").read_text()
    assert figure in text
    row = row_of(plan(reference(chunk_tokens=8192, **changes)), "activations of a chunk")
    assert row["gib"] == pytest.approx(8192 * bytes_a_token * 2 / GIB, abs=0.0001)


@pytest.mark.parametrize(("chunk", "sizes"), [(2048, 42), (4096, 50), (8192, 58), (16384, 74)])
def test_the_numbers_of_prefill_graphs_are_those_of_the_documentation(chunk, sizes):
    llama = {"attention": "mha", "layers": 4, "hidden_size": 64, "attention_heads": 8, "kv_heads": 8, "head_dim": 8}
    row = row_of(plan(reference(geometry=llama, chunk_tokens=chunk, weights_gib=1.0)), "prefill graphs")
    assert row["gib"] == pytest.approx(sizes * 22 / 1024, abs=0.0001)


@pytest.mark.parametrize(
    ("quantized", "dtype", "factor"),
    [
        (False, "float32", 2.0),
        (False, "bfloat16", 1.0),
        (False, None, 1.0),
        (True, "float32", 1.0),
        (None, "float32", 1.0),
    ],
)
def test_weights_that_are_not_quantised_are_cast_to_the_type_of_the_engine(quantized, dtype, factor):
    def after_load(**geometry):
        arguments = {"dtype": dtype} if dtype else {}
        answer = plan(
            plan_input(
                {
                    "free_before_load_gib": 20.0,
                    "geometry": dict(SMOLLM2, dtype="bfloat16", **geometry),
                    "weight_bytes": 10 * GIB,
                    "engine_version": "0.5.23",
                    "arguments": arguments,
                    "mem_fraction_static": 0.9,
                }
            )
        )
        return answer.free_after_load_gib

    uncast = after_load()
    assert uncast - after_load(quantized=quantized) == pytest.approx(10.0 * (factor - 1.0), abs=0.01)
