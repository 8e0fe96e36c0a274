from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _verdict
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import request_hash

REQUEST = {"target_tokens": 200000}
PLAN = {
    "feasible": True,
    "fraction": 0.93,
    "cap_tokens": 200000,
    "arguments": {"mem-fraction-static": 0.93, "max-total-tokens": 200000},
    "environment": {},
    "engine_version": "0.5.23",
    "quantity_keys": {"weights": "w"},
}
SETTINGS = {"request": REQUEST, "max_attempts": 3, "engine_version": "0.5.23"}
OOM = {
    "kind": "oom_prefill",
    "phase": "run",
    "direction": "lower",
    "evidence": "CUDA out of memory. Tried to allocate 896.00 MiB.",
    "figures": {"wanted_mib": 896.0, "free_mib": 893.38},
    "at": 100.0,
}


def proof(**changed):
    values = _verdict.values_of_plan(PLAN, "0.5.23")
    return dict(values, request_hash=request_hash(REQUEST), invocation_id="first", **changed)


def running(invocation="first", config_hash=None):
    return {
        "active": True,
        "invocation_id": invocation,
        "running": {"config_hash": config_hash or proof()["config_hash"]},
        "proof": proof(),
    }


def attempt(verdict, **more):
    return dict({"verdict": verdict, "reason": "Because.", "config_hash": "other"}, **more)


def test_the_reference_start_is_short_by_4989():
    judged = _verdict.judge_ready({"pool_tokens": 195011, "headroom_gib": 5.0}, None, 200000, 1.0)
    assert judged["verdict"] == "short"
    assert "4989 short" in judged["reason"]


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
    judged = _verdict.judge_attempt({"verdict": "holds", "reason": ""}, {"verdict": "failed", "failure": OOM})
    assert judged["verdict"] == "unsafe"
    assert judged["failure"] == OOM


def test_without_a_soak_a_server_holds_and_is_not_proven():
    assert _verdict.judge_attempt({"verdict": "holds", "reason": "Holds."}, {})["verdict"] == "holds"


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
    ready = {"startup": {"pool_tokens": 195011, "free_before_load_gib": 94.97, "headroom_gib": 5.5}}
    soak = {"least_free_gib": {"0": 3.0, "1": 2.5}}
    taught = _verdict.measurement(ready, soak, PLAN, {"fraction": 0.93})
    assert (taught["pool_tokens"], taught["fraction"], taught["least_free_gib"]) == (195011, 0.93, 2.5)


def test_nothing_is_there_so_the_plan_is_tried():
    step = _verdict.next_step(PLAN, {}, [], SETTINGS)
    assert step["action"] == "try"
    assert step["values"]["arguments"]["mem-fraction-static"] == 0.93


def test_the_proven_invocation_is_kept():
    assert _verdict.next_step(PLAN, running(), [], SETTINGS)["action"] == "keep"


def test_the_fraction_of_a_valid_proof_is_kept_when_the_plan_would_choose_another():
    step = _verdict.next_step(dict(PLAN, fraction=0.94), running(), [], SETTINGS)
    assert step["action"] == "keep"
    assert step["values"]["fraction"] == 0.93


def test_a_new_invocation_of_the_proven_configuration_is_proven_without_a_restart():
    assert _verdict.next_step(PLAN, running(invocation="second"), [], SETTINGS)["action"] == "prove"


def test_another_configuration_in_the_process_is_replaced():
    assert _verdict.next_step(PLAN, running(config_hash="by hand"), [], SETTINGS)["action"] == "try"


def test_a_stopped_server_is_started_with_what_was_proven():
    step = _verdict.next_step(dict(PLAN, fraction=0.94), dict(running(), active=False), [], SETTINGS)
    assert (step["action"], step["values"]["fraction"]) == ("try", 0.93)


def test_a_changed_request_is_planned_anew():
    settings = dict(SETTINGS, request={"target_tokens": 210000})
    assert _verdict.next_step(PLAN, running(), [], settings)["action"] == "try"


def test_a_refusal_comes_before_any_restart():
    step = _verdict.next_step(dict(PLAN, refusal="It cannot fit."), {}, [], SETTINGS)
    assert (step["action"], step["reason"]) == ("refuse", "It cannot fit.")


def test_an_argument_that_the_engine_does_not_accept_is_refused_even_beside_a_proof():
    settings = dict(SETTINGS, problems=["Unknown argument --x."])
    assert _verdict.next_step(PLAN, running(), [], settings)["action"] == "refuse"


def test_a_plan_that_lacks_something_names_it():
    step = _verdict.next_step(dict(PLAN, feasible=None, missing=["weight_bytes"]), {}, [], SETTINGS)
    assert step["action"] == "refuse"
    assert "weight_bytes" in step["reason"]


def test_a_plan_that_is_only_shown_does_not_refuse_what_is_not_there_yet():
    settings = dict(SETTINGS, look_only=True)
    step = _verdict.next_step(dict(PLAN, feasible=None, missing=["weight_bytes"]), {}, [], settings)
    assert step["action"] == "try"
    assert "weight_bytes" in step["reason"]


@pytest.mark.parametrize(
    ("attempts", "action"),
    [
        ([attempt("proven")], "done"),
        ([attempt("holds")], "done"),
        ([attempt("short")], "try"),
        ([attempt("unsafe")], "try"),
        ([attempt("failed", failure={"kind": "bad_args"})], "back"),
        ([attempt("failed", failure={"kind": "port_in_use", "transient": True}, values={"fraction": 0.9})], "try"),
        ([attempt("failed", failure={"kind": "x", "transient": True})] * 2, "back"),
        ([attempt("failed", failure={"kind": "no_evidence"})], "done"),
        ([attempt("failed", failure={"kind": "no_evidence"}, soak={"requests": 3})], "back"),
        ([attempt("short"), attempt("short"), attempt("short")], "back"),
    ],
)
def test_the_step_after_an_attempt(attempts, action):
    assert _verdict.next_step(PLAN, {}, attempts, SETTINGS)["action"] == action


def test_the_same_values_are_not_tried_twice():
    tried = attempt("short", config_hash=_verdict.values_of_plan(PLAN, "0.5.23")["config_hash"])
    assert _verdict.next_step(PLAN, {}, [tried], SETTINGS)["action"] == "back"


def test_short_with_an_empty_interval_goes_back():
    plan = dict(PLAN, feasible=False, refusal="No fraction holds it.")
    step = _verdict.next_step(plan, {}, [attempt("short")], SETTINGS)
    assert step["action"] == "back"
    assert "No fraction holds it." in step["reason"]


def test_a_server_that_was_never_put_under_load_is_proven_when_a_soak_is_wanted():
    server = dict(running(), proof=proof(soaked=False))
    assert _verdict.next_step(PLAN, server, [], SETTINGS)["action"] == "keep"
    assert _verdict.next_step(PLAN, server, [], dict(SETTINGS, soak_wanted=True))["action"] == "prove"


@pytest.mark.parametrize(
    ("wanted", "verdict", "action", "stop"),
    [
        ("restore", "short", "back", False),
        ("keep", "short", "done", None),
        ("keep", "unsafe", "back", False),
        ("stop", "short", "back", True),
    ],
)
def test_what_happens_when_nothing_could_be_proven(wanted, verdict, action, stop):
    settings = dict(SETTINGS, max_attempts=1, when_not_proven=wanted)
    step = _verdict.next_step(PLAN, {}, [attempt(verdict)], settings)
    assert (step["action"], step["values"].get("stop")) == (action, stop)
