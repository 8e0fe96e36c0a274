from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _step
from ansible_collections.gpufleet.sglang.plugins.module_utils._classes import request_digests

REQUEST = {
    "target_tokens": 200000,
    "arguments": {"tp-size": 8, "served-model-name": "kimi"},
    "environment": {"NCCL_DEBUG": "WARN"},
}
PLAN = {
    "feasible": True,
    "fraction": 0.93,
    "cap_tokens": 200000,
    "arguments": {
        "tp-size": 8,
        "served-model-name": "kimi",
        "mem-fraction-static": 0.93,
        "max-total-tokens": 200000,
    },
    "environment": {"NCCL_DEBUG": "WARN", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "engine_version": "0.5.23",
    "quantity_keys": {"weights": "w"},
}
UNIT = "[Unit]\nDescription=x\n[Service]\nLimitNOFILE=1048576\nTimeoutStopSec=60\n"
SETTINGS = {"request": REQUEST, "max_attempts": 3, "engine_version": "0.5.23", "unit_text": UNIT}


def proof(**changed):
    values = _step.values_of_plan(PLAN, "0.5.23")
    return dict(values, request_digests=request_digests(REQUEST), invocation_id="first", soaked=True, **changed)


def running(invocation="first", config_hash=None, **more):
    return dict(
        {
            "active": True,
            "invocation_id": invocation,
            "running": {"config_hash": config_hash or proof()["config_hash"]},
            "proof": proof(),
            "unit_text": UNIT,
        },
        **more,
    )


def next_step(plan=None, server=None, attempts=(), request=None, **settings):
    wanted = dict(SETTINGS, request=dict(REQUEST, **(request or {})), **settings)
    return _step.next_step(plan or PLAN, running() if server is None else server, list(attempts), wanted)


def attempt(verdict, **more):
    return dict({"verdict": verdict, "reason": "Because.", "config_hash": "other"}, **more)


def test_nothing_is_there_so_the_plan_is_tried():
    step = _step.next_step(PLAN, {}, [], SETTINGS)
    assert step["action"] == "try"
    assert step["values"]["arguments"]["mem-fraction-static"] == 0.93


def test_the_proven_invocation_is_kept():
    assert _step.next_step(PLAN, running(), [], SETTINGS)["action"] == "keep"


def test_the_fraction_of_a_valid_proof_is_kept_when_the_plan_would_choose_another():
    step = _step.next_step(dict(PLAN, fraction=0.94), running(), [], SETTINGS)
    assert step["action"] == "keep"
    assert step["values"]["fraction"] == 0.93


def test_a_new_invocation_of_the_proven_configuration_is_proven_without_a_restart():
    assert _step.next_step(PLAN, running(invocation="second"), [], SETTINGS)["action"] == "prove"


def test_another_configuration_in_the_process_is_replaced():
    assert _step.next_step(PLAN, running(config_hash="by hand"), [], SETTINGS)["action"] == "try"


def test_a_stopped_server_is_started_with_what_was_proven():
    step = _step.next_step(dict(PLAN, fraction=0.94), dict(running(), active=False), [], SETTINGS)
    assert (step["action"], step["values"]["fraction"]) == ("try", 0.93)


def test_a_changed_request_is_planned_anew():
    settings = dict(SETTINGS, request=dict(REQUEST, target_tokens=210000))
    assert _step.next_step(PLAN, running(), [], settings)["action"] == "try"


def test_a_refusal_comes_before_any_restart():
    step = _step.next_step(dict(PLAN, refusal="It cannot fit."), {}, [], SETTINGS)
    assert (step["action"], step["reason"]) == ("refuse", "It cannot fit.")


def test_an_argument_that_the_engine_does_not_accept_is_refused_even_beside_a_proof():
    settings = dict(SETTINGS, problems=["Unknown argument --x."])
    assert _step.next_step(PLAN, running(), [], settings)["action"] == "refuse"


def test_a_plan_that_lacks_something_names_it():
    step = _step.next_step(dict(PLAN, feasible=None, missing=["weight_bytes"]), {}, [], SETTINGS)
    assert step["action"] == "refuse"
    assert "weight_bytes" in step["reason"]


def test_a_plan_that_is_only_shown_does_not_refuse_what_is_not_there_yet():
    settings = dict(SETTINGS, look_only=True)
    step = _step.next_step(dict(PLAN, feasible=None, missing=["weight_bytes"]), {}, [], settings)
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
    assert _step.next_step(PLAN, {}, attempts, SETTINGS)["action"] == action


def test_the_same_values_are_not_tried_twice():
    tried = attempt("short", config_hash=_step.values_of_plan(PLAN, "0.5.23")["config_hash"])
    assert _step.next_step(PLAN, {}, [tried], SETTINGS)["action"] == "back"


def test_short_with_an_empty_interval_goes_back():
    plan = dict(PLAN, feasible=False, refusal="No fraction holds it.")
    step = _step.next_step(plan, {}, [attempt("short")], SETTINGS)
    assert step["action"] == "back"
    assert "No fraction holds it." in step["reason"]


def test_a_server_that_was_never_put_under_load_is_proven_when_a_soak_is_wanted():
    server = dict(running(), proof=dict(proof(), soaked=False))
    assert _step.next_step(PLAN, server, [], SETTINGS)["action"] == "keep"
    assert _step.next_step(PLAN, server, [], dict(SETTINGS, soak_wanted=True))["action"] == "prove"


READY = {"state": "ready", "pool_tokens": 195011}
NO_POOL = {"kind": "kv_pool_too_small", "direction": "raise", "phase": "pool"}


@pytest.mark.parametrize(
    ("wanted", "last", "action", "stop"),
    [
        ("restore", attempt("short", startup=READY), "back", False),
        ("keep", attempt("short", startup=READY), "done", None),
        ("keep", attempt("unsafe", startup=READY), "back", False),
        ("stop", attempt("short", startup=READY), "back", True),
        # Nothing is there that could be kept: the pool was too small to come up, or it died after it was ready.
        ("keep", attempt("short", failure=NO_POOL, startup={"state": "loading"}), "back", False),
        ("keep", attempt("short", failure=NO_POOL, startup=READY), "back", False),
        ("keep", attempt("short", startup={"state": "loading"}), "back", False),
        ("keep", attempt("short"), "back", False),
    ],
)
def test_what_happens_when_nothing_could_be_proven(wanted, last, action, stop):
    settings = dict(SETTINGS, max_attempts=1, when_not_proven=wanted)
    step = _step.next_step(PLAN, {}, [last], settings)
    assert (step["action"], step["values"].get("stop")) == (action, stop)


# --- change classes


def test_a_rotated_key_is_restarted_without_a_soak():
    step = next_step(server=running(keys_differ=True), soak_wanted=True)
    assert (step["action"], step["class"], step["changes"]) == ("try", "restart_ready", ["keys"])
    assert "sglang_server_api_key" in step["reason"]
    assert step["values"]["fraction"] == 0.93
    assert step["values"]["config_hash"] == proof()["config_hash"]


def test_what_the_plan_had_added_is_kept_beside_another_name():
    arguments = {"tp-size": 8, "served-model-name": "k2", "log-level": "warning"}
    step = next_step(dict(PLAN, fraction=0.99), request={"arguments": arguments})
    assert (step["action"], step["class"]) == ("try", "restart_ready")
    assert step["values"]["arguments"] == dict(arguments, **{"mem-fraction-static": 0.93, "max-total-tokens": 200000})
    assert step["values"]["environment"] == PLAN["environment"]
    assert step["values"]["config_hash"] != proof()["config_hash"]


def test_an_argument_that_is_taken_away_goes():
    step = next_step(request={"arguments": {"tp-size": 8}})
    assert "served-model-name" not in step["values"]["arguments"]


def test_without_an_earlier_load_there_is_nothing_to_carry_over():
    server = running(proof=dict(proof(), soaked=False), keys_differ=True)
    step = next_step(server=server, soak_wanted=True)
    assert (step["action"], step["class"]) == ("try", "restart_soak")


def test_an_argument_that_matters_is_planned_anew():
    step = next_step(dict(PLAN, fraction=0.9), request={"arguments": {"tp-size": 4}})
    assert (step["action"], step["class"], step["values"]["fraction"]) == ("try", "restart_soak", 0.9)


def test_a_line_that_systemd_takes_over_is_applied_without_a_restart():
    step = next_step(unit_text=UNIT.replace("=60", "=120"))
    assert (step["action"], step["class"], step["pending"]) == ("apply", "daemon_reload", [])


def test_a_line_that_needs_a_start_waits_for_it():
    step = next_step(unit_text=UNIT.replace("1048576", "65536"))
    assert (step["action"], step["class"], step["pending"]) == ("apply", "pending", ["Service.LimitNOFILE"])


@pytest.mark.parametrize(
    ("server", "unit_text"),
    [(running(pending=["Service.LimitNOFILE"]), UNIT), (running(), UNIT.replace("1048576", "65536"))],
)
def test_a_restart_can_be_forced_for_what_is_pending(server, unit_text):
    step = next_step(server=server, unit_text=unit_text, restart_pending=True)
    assert (step["action"], step["class"]) == ("try", "restart_ready")


def test_with_nothing_pending_nothing_is_forced():
    assert next_step(restart_pending=True)["action"] == "keep"


def test_a_line_that_matters_is_proven_again():
    assert next_step(unit_text=UNIT + "MemoryMax=1G\n")["class"] == "restart_soak"


# --- changes by hand


def test_a_change_by_hand_is_named_and_not_overwritten():
    step = next_step(server=running(drift=["/etc/systemd/system/sglang-main.service"]))
    assert step["action"] == "refuse"
    assert "/etc/systemd/system/sglang-main.service" in step["reason"]
    assert "sglang_server_overwrite_drift: true" in step["reason"]


def test_a_change_by_hand_is_overwritten_when_that_is_wanted():
    server = running(drift=["/etc/sglang/main.env"])
    assert next_step(server=server, overwrite_drift=True)["action"] == "apply"


def test_a_start_after_a_change_by_hand_is_not_trusted():
    """The process carries the hash of the proof, and may have read the edited files."""
    server = running(invocation="second", drift=["/etc/systemd/system/sglang-main.service.d/a.conf"])
    step = next_step(server=server, overwrite_drift=True)
    assert (step["action"], step["values"]["fraction"]) == ("try", 0.93)


def test_a_retry_of_a_start_without_a_soak_is_one_too():
    last = attempt("failed", failure={"kind": "x", "transient": True}, values={"fraction": 0.9})
    step = next_step(attempts=[dict(last, **{"class": "restart_ready"})])
    assert (step["action"], step["class"]) == ("try", "restart_ready")


@pytest.mark.parametrize("state", ["masked", "masked-runtime"])
def test_a_masked_unit_is_refused_with_the_command(state):
    server = running(unit={"name": "sglang-main.service", "unit_file_state": state})
    step = next_step(server=server)
    assert step["action"] == "refuse"
    assert "systemctl unmask sglang-main.service" in step["reason"]
    assert next_step(server=running(unit={"unit_file_state": "enabled"}))["action"] == "keep"


# --- after an attempt: what is moved, and when nothing that is moved can help


def tried(verdict="unsafe", pool_tokens=200000, environment=None, **changed):
    """An attempt with the values of PLAN, some of its arguments and variables changed; None takes one away."""
    arguments = {name: value for name, value in dict(PLAN["arguments"], **changed).items() if value is not None}
    other = dict(PLAN, arguments=arguments, environment=environment or PLAN["environment"])
    values = _step.values_of_plan(dict(other, cap_tokens=arguments.get("max-total-tokens")), "0.5.23")
    return attempt(verdict, values=values, config_hash=values["config_hash"], startup={"pool_tokens": pool_tokens})


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({"mem-fraction-static": 0.94, "max-total-tokens": None}, "Next: fraction 0.93, cap 200000."),
        (
            {"mem-fraction-static": 0.94, "chunked-prefill-size": 8192},
            "Next: fraction 0.93, prefill chunk left to the engine.",
        ),
        ({"cuda-graph-max-bs": 256}, "Next: decode graph batch left to the engine."),
        ({"environment": {"NCCL_DEBUG": "WARN"}}, "Next: allocator expandable_segments:True."),
    ],
)
def test_the_reason_names_what_is_moved(last, told):
    step = next_step(server={}, attempts=[tried(**last)])
    assert (step["action"], step["reason"]) == ("try", "Because. " + told)


def test_no_argument_that_may_be_a_secret_is_told():
    """The values of an attempt are masked, those of a plan are not: they differ, and only levers are named."""
    plan = dict(PLAN, arguments=dict(PLAN["arguments"], **{"api-key": "hush"}))
    last = tried("short", 199000, **{"mem-fraction-static": 0.92, "api-key": "*"})
    step = next_step(plan, server={}, attempts=[last])
    assert step["reason"] == "Because. Next: fraction 0.93."


@pytest.mark.parametrize(
    ("last", "action"),
    [
        (tried(**{"mem-fraction-static": 0.94}), "back"),
        (tried(pool_tokens=199000, **{"mem-fraction-static": 0.94}), "try"),  # it grows with the fraction
        (tried("short", **{"mem-fraction-static": 0.94}), "try"),  # pools differ between two starts
        (tried(**{"mem-fraction-static": 0.94, "max-total-tokens": 210000}), "try"),  # another cap
        (tried(**{"mem-fraction-static": 0.94, "chunked-prefill-size": 8192}), "try"),  # not the fraction alone
    ],
)
def test_another_fraction_alone_cannot_help_where_the_cap_held_the_pool(last, action):
    step = next_step(server={}, attempts=[last])
    assert step["action"] == action
    assert ("The cap held the pool at 200,000 tokens already" in step["reason"]) == (action == "back")


def test_what_only_a_start_can_tell_is_tried_again_from_what_was_measured():
    open_plan = dict(PLAN, feasible=False, is_open=True)
    assert next_step(open_plan, server={}, attempts=[attempt("short")])["action"] == "try"
    assert next_step(dict(open_plan, is_open=False), server={}, attempts=[attempt("short")])["action"] == "back"


def test_what_is_declared_is_not_moved_and_the_way_back_says_what_works():
    plan = dict(PLAN, feasible=False, works={"mem_fraction_static": 0.942, "chunked_prefill_size": 4096})
    step = next_step(plan, server={}, attempts=[attempt("short")])
    assert step["action"] == "back"
    assert step["reason"].endswith(
        "what works is sglang_server_mem_fraction_static: 0.942, sglang_server_chunked_prefill_size: 4096."
    )


def test_a_proof_without_a_restart_leaves_all_restarts_to_what_comes_behind_it():
    """PLAN has other values than each of these, so only the count ends it."""
    proven_as_it_ran = attempt("short", action="prove")
    first, second = attempt("short", action="try", config_hash="a"), attempt("short", action="try", config_hash="b")
    assert next_step(server={}, attempts=[proven_as_it_ran], max_attempts=1)["action"] == "try"
    assert next_step(server={}, attempts=[proven_as_it_ran, first], max_attempts=1)["action"] == "back"
    assert next_step(server={}, attempts=[proven_as_it_ran, first], max_attempts=2)["action"] == "try"
    assert next_step(server={}, attempts=[proven_as_it_ran, first, second], max_attempts=2)["action"] == "back"


WORKS = {"mem_fraction_static": 0.942, "chunked_prefill_size": 4096}
PASTED = "sglang_server_mem_fraction_static: 0.942, sglang_server_chunked_prefill_size: 4096."


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        # Declared, so it is not moved: ready to paste.
        (dict(PLAN, feasible=False, works=WORKS), "What is declared is not moved; what works is " + PASTED),
        # The refusal of the plan has what fits in it, here without its full stop.
        (dict(PLAN, feasible=False, refusal="What fits is x: 1"), "What fits is x: 1."),
        # It may be moved, and there is no restart left for it: the next run begins with it.
        (PLAN, "The next run begins with fraction 0.93."),
        (dict(PLAN, feasible=False), "No other fraction can hold it."),
    ],
)
@pytest.mark.parametrize(
    ("limit", "begins"),
    [(1, "The one attempt is used up: Because. "), (3, "All 3 attempts are used up; the last one: Because. ")],
)
def test_attempts_that_are_used_up_end_with_what_works_or_fits(plan, told, limit, begins):
    last = tried("short", 195011, **{"mem-fraction-static": 0.92})
    step = next_step(plan, server={}, attempts=[last] * limit, max_attempts=limit)
    assert (step["action"], step["reason"]) == ("back", begins + told)


def test_a_failure_that_memory_cannot_repair_ends_without_figures_of_memory():
    last = attempt("failed", failure={"kind": "bad_args"})
    step = next_step(dict(PLAN, works=WORKS), server={}, attempts=[last], max_attempts=1)
    assert (step["action"], step["reason"]) == ("back", "The one attempt is used up: Because.")


def test_what_is_kept_is_told_behind_a_full_stop():
    last = attempt("short", reason="200,000 tokens do not fit", startup=READY)
    plan = dict(PLAN, feasible=False)
    step = next_step(plan, server={}, attempts=[last], when_not_proven="keep")
    assert step["reason"] == (
        "200,000 tokens do not fit. No other fraction can hold it."
        " It serves on, as sglang_server_when_not_proven: keep asks."
    )
