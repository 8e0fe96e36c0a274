from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _follow, _http, _ready_look, _ready_run
from ansible_collections.gpufleet.sglang.tests.unit.plugins import played_host

UNIT = "sgl-cpu.service"
READY_AT = 28.8
RESTARTING = dict(played_host.FAILED, ActiveState="activating", SubState="auto-restart")


class CallAtOnce(_ready_run.Call):
    """The played clock does not wait for a thread of the real machine: the call is made at once instead."""

    start = _ready_run.Call.run

    def join(self, timeout=None):
        pass


def good_start(without=(), **changes):
    rows = [
        row
        for row in played_host.records(played_host.START)
        if not any(words in str(row["MESSAGE"]) for words in without)
    ]
    return played_host.PlayedHost(rows, **dict({"http_from": 26.7}, **changes))


def crash_loop(units, late=0.0):
    return played_host.PlayedHost(played_host.records(played_host.CRASH_LOOP), late=late, units=units)


def wait(host, invocation_id=None, use_journal=True, **settings):
    follower = _follow.Follower(host.run_command, UNIT, invocation_id, use_journal)
    settings = dict({"address": _http.Address("127.0.0.1", 30001, "topsecret"), "timeout_seconds": 120.0}, **settings)
    waiter = _ready_run.Waiter(
        follower,
        _ready_run.Settings(**settings),
        http=host.http,
        clock=host.clock,
        wall=host.clock,
        sleep=host.sleep,
        call=CallAtOnce,
    )
    result = waiter.run()
    json.dumps(result)
    return result


def test_a_good_start_holds():
    host = good_start()
    result = wait(host)
    assert (result["verdict"], result["failure"], result["evidence"]) == ("holds", None, "journal")
    assert result["startup"]["pool_tokens"] == 2125713
    assert (result["answer"], result["answered_by_pid"]) == (" Paris.", played_host.MAIN_PID)
    assert result["invocation_id"] == host.invocation
    assert 0 <= result["seconds_after_ready_line"] < 1.0
    assert [row["phase"] for row in result["timeline"]][-2:] == ["ready", "completion"]
    # A completion can be answered before the ready line; it is not sent before.
    assert host.completions[0] >= READY_AT


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({"target_tokens": 2125713}, "holds"),
        ({"target_tokens": 2125714}, "short"),
        ({"min_headroom_gib": 18.0}, "holds"),
        ({"min_headroom_gib": 19.0}, "unsafe"),
    ],
)
def test_promise_and_floor(settings, verdict):
    result = wait(good_start(), **settings)
    assert (result["verdict"], result["failure"]) == (verdict, None)
    assert result["answer"] == " Paris."


@pytest.mark.parametrize(("expected", "as_expected"), [(None, None), (2125713, True), (3000000, False)])
def test_the_pool_of_an_earlier_record(expected, as_expected):
    result = wait(good_start(), expected_pool_tokens=expected)
    assert (result["verdict"], result["pool_as_expected"]) == ("holds", as_expected)


def test_an_old_server_is_judged_at_once_and_cheaply():
    host = good_start(late=40.0)
    result = wait(host)
    assert result["verdict"] == "holds"
    assert result["waited_seconds"] < 1.0
    # Its ready line tells nothing about this wait.
    assert result["seconds_after_ready_line"] is None


@pytest.mark.parametrize("age", [300.0, 5000.0, 20000.0])
def test_what_an_old_server_said_since_its_start_is_not_read(monkeypatch, age):
    host = good_start(late=age, units=[(0.0, {"ActiveEnterTimestampMonotonic": 7_000_000})])
    chatter = dict(host.rows[-1], MESSAGE="Decode batch", __REALTIME_TIMESTAMP=str(int((host.now - 100.0) * 1e6)))
    host.rows.append(dict(chatter, __CURSOR="chatter"))
    monkeypatch.setattr(_ready_look.time, "clock_gettime", lambda clock: 7.0 + age)
    result = wait(host)
    assert (result["verdict"], result["startup"]["pool_tokens"]) == ("holds", 2125713)
    assert result["waited_seconds"] < 1.0
    assert ("chatter" in host.given) is (age == 300.0)


def test_a_foreign_process_on_the_port_is_not_ours():
    result = wait(good_start(owner=99))
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "no_evidence")
    assert "process 99" in result["failure"]["evidence"]


# -- lost lines and missing journals


def test_a_lost_pool_line_is_told_by_server_info():
    result = wait(good_start(without=["max_total_num_tokens", "KV Cache is allocated"]))
    assert (result["verdict"], result["evidence"]) == ("holds", "server_info")
    assert result["startup"]["pool_tokens"] == 2125713


def test_a_pool_without_any_witness_is_no_evidence():
    host = good_start(without=["max_total_num_tokens", "KV Cache is allocated"])
    host.pool = None
    result = wait(host)
    assert (result["verdict"], result["failure"]["kind"], result["failure"]["fatal"]) == (
        "failed",
        "no_evidence",
        False,
    )
    assert "401" in result["failure"]["evidence"]


def test_a_lost_ready_line_does_not_cost_the_whole_timeout():
    result = wait(good_start(without=["fired up"]), timeout_seconds=300.0)
    assert result["verdict"] == "holds"
    assert result["waited_seconds"] < 75.0
    assert result["seconds_after_ready_line"] is None


@pytest.mark.parametrize("way", ["none", "missing"])
def test_without_a_journal_the_process_itself_is_the_witness(way):
    host = good_start(journal=way != "missing")
    result = wait(host, use_journal=way != "none")
    assert (result["verdict"], result["evidence"]) == ("holds", "server_info")
    assert result["startup"]["pool_tokens"] == 2125713
    assert result["seconds_after_ready_line"] is None


# -- deaths


def test_a_death_is_named_within_seconds_of_its_line():
    host = crash_loop([(24.0, played_host.FAILED)])
    began = host.now
    result = wait(host)
    assert result["verdict"] == "failed"
    assert "vllm" in result["failure"]["evidence"]
    assert result["failure"]["fatal"] is True
    assert result["seconds_after_fatal_line"] < 3.0
    assert host.now - began < 30.0


def test_a_death_is_named_although_the_unit_lives_on():
    result = wait(crash_loop([(0.0, {})]))
    assert "vllm" in result["failure"]["evidence"]
    assert result["seconds_after_fatal_line"] < 3.0


def test_a_crash_loop_is_a_failure_with_its_cause():
    result = wait(crash_loop([(24.0, RESTARTING), (26.0, {"InvocationID": "f" * 32, "NRestarts": 1})]))
    assert result["verdict"] == "failed"
    assert "vllm" in result["failure"]["evidence"]


def test_another_invocation_than_the_expected_one_is_explained_by_its_own_journal():
    host = crash_loop([(0.0, {"InvocationID": "f" * 32, "NRestarts": 1})], late=60.0)
    result = wait(host, invocation_id=host.invocation)
    assert "vllm" in result["failure"]["evidence"]


def test_a_silent_end_says_how_the_unit_ended():
    host = good_start(units=[(0.0, {}), (15.0, played_host.FAILED)])
    host.rows = [row for row in host.rows if played_host.realtime(row) < host.began + 14]
    result = wait(host)
    assert result["verdict"] == "failed"
    assert result["waited_seconds"] < 25.0
    assert result["failure"]["evidence"]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive", "InvocationID": "", "MainPID": 0}, "not-found"),
        ({"LoadState": "masked", "ActiveState": "inactive", "InvocationID": "", "MainPID": 0}, "masked"),
        ({"ActiveState": "inactive", "SubState": "dead", "InvocationID": "", "MainPID": 0}, "not started"),
    ],
)
def test_nothing_to_wait_for_fails_at_once_with_the_way_out(unit, words):
    result = wait(good_start(units=[(0.0, unit)]))
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "unit_failed")
    assert words in result["failure"]["evidence"]
    assert result["waited_seconds"] == 0


def test_a_host_without_systemd_is_one_sentence():
    host = good_start()

    def run_command(argv):
        raise FileNotFoundError(argv[0])

    host.run_command = run_command
    result = wait(host)
    assert result["failure"]["kind"] == "unit_failed"
    assert "systemd" in result["failure"]["evidence"]


def test_the_timeout_names_what_was_seen_last():
    host = good_start(http_from=None)
    host.rows = [row for row in host.rows if played_host.realtime(row) < host.began + 22.7]
    result = wait(host, timeout_seconds=40.0)
    assert (result["failure"]["kind"], result["failure"]["phase"]) == ("timeout", "pool")
    assert "Load weight end" in result["failure"]["evidence"]
    assert result["waited_seconds"] == pytest.approx(40.0, abs=1.0)


def test_an_unanswered_completion_is_tried_again():
    host = good_start()
    answers = [(503, None), (0, None), (200, " Paris.")]
    real = host.http.completion

    def completion(*arguments):
        host.answer = answers.pop(0)
        return real(*arguments)

    host.http.completion = completion
    assert wait(host)["verdict"] == "holds"
    assert not answers


def test_a_wrong_key_is_said_at_once():
    host = good_start()
    host.answer = (401, None)
    result = wait(host)
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "no_evidence")
    assert "api_key" in result["failure"]["advice"]
    assert result["waited_seconds"] < 32.0


def test_a_key_in_the_answer_is_masked():
    host = good_start()
    host.answer = (200, "my key is topsecret")
    assert "topsecret" not in json.dumps(wait(host))


# -- slices


def slices(host, **settings):
    """The whole wait as the action does it; returns all results."""
    state, results = {"waited_seconds": 0.0}, []
    began = host.now
    while not results or not results[-1]["finished"]:
        assert len(results) < 100
        follower_id = state.get("invocation_id")
        results.append(
            wait(
                host,
                follower_id,
                slice_seconds=10.0,
                known_phase=state.get("phase"),
                known_restarts=state.get("restarts"),
                waiting_since=state.get("waiting_since"),
                waited_seconds=state["waited_seconds"],
                **settings,
            )
        )
        host.sleep(0.8)
        state = dict(results[-1]["slice"], waited_seconds=host.now - began)
    return results


def test_slices_return_at_phase_changes_and_the_last_one_holds_the_end():
    results = slices(good_start())
    assert [result["finished"] for result in results[:-1]] == [False] * (len(results) - 1)
    assert results[-1]["verdict"] == "holds"
    assert results[-1]["seconds_after_ready_line"] < 1.0
    assert {"process", "pool"} <= {result["phase"] for result in results}
    # Warm-up, ready line, completion and verdict are one slice.
    assert "warmup" not in [result["phase"] for result in results[:-1]]
    assert all(result["verdict"] is None for result in results[:-1])


def test_slices_end_with_the_timeout_of_the_whole_wait():
    host = good_start(http_from=None)
    host.rows = host.rows[:20]
    results = slices(host, timeout_seconds=35.0)
    assert results[-1]["failure"]["kind"] == "timeout"
    assert 3 <= len(results) <= 5


def test_lost_lines_are_noticed_across_slices():
    host = good_start(
        without=["Memory pool end", "max_total_num_tokens", "KV Cache is allocated", "Uvicorn running", "fired up"]
    )
    results = slices(host, timeout_seconds=300.0)
    assert (results[-1]["verdict"], results[-1]["evidence"]) == ("holds", "server_info")
    assert results[-1]["waited_seconds"] < 90.0


def test_a_restart_between_two_slices_is_seen():
    host = crash_loop([(0.0, {}), (20.0, {"InvocationID": "0933e8de73324667b7bf655bcb33e711", "NRestarts": 1})])
    results = slices(host)
    assert results[-1]["verdict"] == "failed"
    assert results[-1]["invocation_id"] == host.invocation


def test_the_cost_of_a_look_is_one_command():
    host = good_start()
    result = wait(host)
    looks = result["waited_seconds"] / 0.5
    assert len(host.commands) < looks * 1.6


def test_a_call_runs_beside_and_brings_its_result():
    call = _ready_run.Call(max, 1, 2)
    call.start()
    call.join(10.0)
    assert (call.is_alive(), call.result, call.error) == (False, 2, None)


def test_a_call_that_breaks_keeps_its_error():
    call = CallAtOnce(int, "no number")
    call.start()
    assert call.result is None
    assert "no number" in str(call.error)


@pytest.mark.parametrize("verdict", ["short", "unsafe", "failed"])
def test_failing_sentence(verdict):
    text = _ready_run.failing_sentence({"unit": "u.service", "verdict": verdict, "reason": "Why.", "failure": None})
    assert text.startswith("u.service was expected")
    assert verdict in text
