from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _verdict

PLAN = {
    "feasible": True,
    "fraction": 0.93,
    "cap_tokens": 200000,
    "arguments": {"mem-fraction-static": 0.93, "max-total-tokens": 200000},
    "environment": {},
    "engine_version": "0.5.23",
    "quantity_keys": {"weights": "w"},
}
OOM = {
    "kind": "oom_prefill",
    "phase": "run",
    "direction": "lower",
    "evidence": "CUDA out of memory. Tried to allocate 896.00 MiB.",
    "figures": {"wanted_mib": 896.0, "free_mib": 893.38},
    "at": 100.0,
}


def test_the_reference_start_is_short_by_4989():
    judged = _verdict.judge_ready({"pool_tokens": 195011, "headroom_gib": 5.0}, None, 200000, 1.0)
    assert judged["verdict"] == "short"
    assert "4,989 short" in judged["reason"]


@pytest.mark.parametrize(
    ("startup", "failure", "floor", "verdict"),
    [
        ({"pool_tokens": 200000, "headroom_gib": 5.0}, None, 1.0, "holds"),
        ({"pool_tokens": 200000, "headroom_gib": 0.9}, None, 1.0, "unsafe"),
        ({"pool_tokens": 200000, "headroom_gib": None}, None, None, "holds"),
        ({"pool_tokens": 200000, "headroom_gib": None}, None, 1.0, "failed"),
        ({"pool_tokens": None, "headroom_gib": 5.0}, None, 1.0, "failed"),
        ({"pool_tokens": 200000, "headroom_gib": 5.0}, {"kind": "bad_args", "evidence": "error: x"}, 1.0, "failed"),
    ],
)
def test_judge_ready(startup, failure, floor, verdict):
    assert _verdict.judge_ready(startup, failure, 200000, floor)["verdict"] == verdict


def test_a_death_is_one_sentence():
    judged = _verdict.judge_ready({}, {"kind": "bad_args", "evidence": "ValueError: no such thing.\n"})
    assert judged["reason"] == "The server did not come up: bad_args (ValueError: no such thing)."


def test_without_a_promise_every_pool_holds():
    assert _verdict.judge_ready({"pool_tokens": 5}, None)["verdict"] == "holds"


@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (OOM, "unsafe"),
        (dict(OOM, kind="kv_pool_too_small", direction="raise"), "short"),
        (dict(OOM, direction="infeasible"), "failed"),
        (dict(OOM, kind="bad_args", direction="keep"), "failed"),
    ],
)
def test_a_memory_death_is_unsafe_or_short_by_its_direction(failure, verdict):
    assert _verdict.judge_attempt({"verdict": "failed", "failure": failure}, {})["verdict"] == verdict


def test_a_death_in_the_soak_is_unsafe():
    died = "The server died under load on a prompt of 32768 tokens."
    judged = _verdict.judge_attempt({"verdict": "holds"}, {"verdict": "failed", "reason": died, "failure": OOM})
    # The load names the request.
    assert judged == {"verdict": "unsafe", "reason": died, "failure": OOM}


def test_without_a_soak_a_server_holds_and_is_not_proven():
    assert _verdict.judge_attempt({"verdict": "holds", "reason": "Holds."}, {})["verdict"] == "holds"


@pytest.mark.parametrize(("ready", "verdict"), [("holds", "proven"), ("short", "short"), ("unsafe", "unsafe")])
def test_an_earlier_load_counts_for_a_start_that_holds(ready, verdict):
    assert _verdict.judge_attempt({"verdict": ready, "reason": ""}, {}, carried=True)["verdict"] == verdict


def test_a_soak_that_passed_proves():
    judged = _verdict.judge_attempt({"verdict": "holds", "reason": ""}, {"verdict": "proven", "reason": "Survived."})
    assert judged == {"verdict": "proven", "reason": "Survived.", "failure": None}


def test_a_death_is_remembered_as_reserve_needed():
    startup = {"free_before_load_gib": 94.97, "weights_gib": 75.0, "kv_gib": 14.27}
    remembered = _verdict.death(OOM, PLAN, startup)
    assert remembered["reserve_needed_gib"] == pytest.approx(94.97 - 75.0 - 14.27 + (896.0 - 893.38) / 1024, abs=0.001)
    assert remembered["keys"] == {"weights": "w"}


@pytest.mark.parametrize("missing", ["free_before_load_gib", "weights_gib", "kv_gib"])
def test_a_death_without_its_figures_is_not_remembered_as_a_reserve(missing):
    startup = {"free_before_load_gib": 94.97, "weights_gib": 75.0, "kv_gib": 14.27}
    startup[missing] = None
    assert _verdict.death(OOM, PLAN, startup) is None


def test_a_start_without_a_pool_measures_nothing():
    assert _verdict.measurement({"startup": {}}, {}, PLAN, {}) is None


def test_a_measurement_carries_what_was_set_and_what_was_seen():
    startup = {"pool_tokens": 195011, "free_before_load_gib": 94.97, "headroom_gib": 5.5, "load_seconds": 447.2}
    ready = {"startup": startup}
    soak = {"least_free_gib": {"0": 3.0, "1": 2.5}}
    taught = _verdict.measurement(ready, soak, PLAN, {"fraction": 0.93})
    assert (taught["pool_tokens"], taught["fraction"], taught["least_free_gib"]) == (195011, 0.93, 2.5)
    assert taught["load_seconds"] == 447.2


# -- what is shown and stored

BOARDS = {
    "0": {"rank": "TP0", "free_mib": 5632, "witness": "nvidia-smi"},
    "3": {"rank": "TP3", "free_mib": 5120, "witness": "journal"},
}
HEADROOM = {"boards": BOARDS, "tightest": "3", "free_gib": 5.0, "fresh": True, "disagreements": ["They disagree."]}


def test_the_headroom_is_that_of_the_tightest_board_by_all_witnesses():
    ready = {"startup": {"headroom_gib": 5.5}, "headroom": HEADROOM}
    assert _verdict.headroom_of(ready) == {"gib": 5.0, "where": "GPU 3 (TP3)", "witness": "journal"}


def test_a_single_board_needs_no_name():
    cpu = {"boards": {"cpu": {"rank": "TP0", "free_mib": 18124, "witness": "journal"}}, "tightest": "cpu"}
    found = _verdict.headroom_of({"headroom": dict(cpu, free_gib=17.7)})
    assert found == {"gib": 17.7, "where": None, "witness": "journal"}


@pytest.mark.parametrize(
    "headroom", [None, {}, {"boards": {"0": {"free_mib": None}}, "tightest": None, "free_gib": None}]
)
def test_without_witnesses_the_record_of_the_start_tells_the_headroom(headroom):
    ready = {"startup": {"headroom_gib": 5.5}, "headroom": headroom}
    assert _verdict.headroom_of(ready) == {"gib": 5.5, "where": None, "witness": None}


def test_nobody_tells_a_headroom():
    assert _verdict.headroom_of({"startup": None, "headroom": None})["gib"] is None


def test_foreign_processes_and_disagreements_are_said_once_each():
    ready = {"notices": ["GPU 3: held."], "headroom": HEADROOM, "pools": {"disagreements": ["Two pools."]}}
    assert _verdict.notices_of(ready) == ["GPU 3: held.", "They disagree.", "Two pools."]
    assert _verdict.notices_of({"headroom": None, "pools": None}) == []


@pytest.mark.parametrize(
    ("pools", "tightest", "words"),
    [
        (None, False, ""),
        ({"dp_size": None, "total_tokens": None, "least": None}, False, ""),
        ({"dp_size": 1, "total_tokens": 200000, "least": "DP0"}, True, ""),
        ({"dp_size": 2, "total_tokens": 390022, "least": "DP1"}, False, " on each of 2 DP ranks (390,022 in all)"),
        ({"dp_size": 2, "total_tokens": 390022, "least": "DP1"}, True, " on DP1 (390,022 in all)"),
        ({"dp_size": 8, "total_tokens": None, "least": None}, True, " on each of 8 DP ranks"),
    ],
)
def test_several_dp_ranks_are_said_with_their_total(pools, tightest, words):
    assert _verdict.of_ranks(pools, tightest) == words


def test_what_was_free_before_a_death_teaches_nothing_of_the_load():
    ready = {"startup": {"pool_tokens": 1000, "headroom_gib": 3.0}}
    soak = {"least_free_gib": {"0": 2.5, "1": 2.0}}
    assert _verdict.measurement(ready, soak, {}, {})["least_free_gib"] == 2.0
    assert _verdict.measurement(ready, dict(soak, failure=OOM), {}, {})["least_free_gib"] is None


def test_a_death_keeps_the_chunk_that_the_engine_had():
    startup = {"free_before_load_gib": 93.0, "weights_gib": 72.0, "kv_gib": 15.5, "chunked_prefill_size": 16384}
    assert _verdict.death(OOM, PLAN, startup)["chunked_prefill_size"] == 16384
