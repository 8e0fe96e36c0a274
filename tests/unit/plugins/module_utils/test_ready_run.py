from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _follow,
    _http,
    _load_progress,
    _patience_deadline,
    _ready_boot,
    _ready_load,
    _ready_run,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._patience import Process
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


class NoBoards:
    mib = None
    count = 0
    hangs = False

    def look(self, pids):
        pass


def wait(host, invocation_id=None, use_journal=True, processes=None, **settings):
    """``processes(second)``: the processes of the unit; without it none can be seen."""
    follower = _follow.Follower(host.run_command, UNIT, invocation_id, use_journal)
    settings = dict({"address": _http.Address("127.0.0.1", 30001, "topsecret"), "timeout_seconds": 120.0}, **settings)
    settings = _ready_run.Settings(**settings)
    look = _load_progress.LoadLook(
        host.clock,
        marks=(settings.load or {}).get("marks"),
        boards=NoBoards(),
        read_tree=lambda pid, root: tuple(processes(host.seconds())) if processes else (),
    )
    waiter = _ready_run.Waiter(
        follower,
        settings,
        load=_ready_load.StartLoad(settings, host.clock, "/nowhere", look),
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


@pytest.mark.parametrize("lines", [10, 7000])
def test_what_an_old_server_said_since_its_start_does_not_hide_it(lines):
    host = good_start(late=5000.0)
    chatter = dict(host.rows[-1], MESSAGE="Decode batch", __REALTIME_TIMESTAMP=str(int((host.now - 100.0) * 1e6)))
    host.rows += [dict(chatter, __CURSOR=f"chatter{number}") for number in range(lines)]
    result = wait(host)
    assert (result["verdict"], result["startup"]["pool_tokens"]) == ("holds", 2125713)
    assert result["waited_seconds"] < 1.0


def test_a_torch_that_ignores_the_allocator_is_told_once():
    assert wait(good_start())["notices"] == []
    host = good_start()
    # A torch without them warns in every process, while the weights are loaded.
    warning = (
        "[W531 CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform (function ())"
    )
    place = next(number for number, row in enumerate(host.rows) if "Load weight begin" in str(row["MESSAGE"]))
    host.rows[place + 1 : place + 1] = [
        dict(host.rows[place], MESSAGE=warning, __CURSOR=f"warning{number}") for number in range(2)
    ]
    result = wait(host)
    assert result["verdict"] == "holds"
    (notice,) = result["notices"]
    assert "set sglang_server_allocator_conf to ''" in notice


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


def stopped_from_outside(**unit):
    state = {"ActiveState": "inactive", "SubState": "dead", "MainPID": 0, "ExecMainCode": 2, "ExecMainStatus": 15}
    host = good_start(units=[(0.0, {}), (15.0, dict(state, Result="success", **unit))])
    host.rows = [row for row in host.rows if played_host.realtime(row) < host.began + 14]
    return host


def test_a_stop_by_somebody_is_called_one():
    failure = wait(stopped_from_outside())["failure"]
    assert f"somebody stopped {UNIT} during the wait (killed by SIGTERM)" in failure["evidence"]
    assert failure["advice"] == f"Start it again: systemctl start {UNIT}."


def test_a_start_by_somebody_else_is_called_one():
    host = good_start(units=[(0.0, {}), (15.0, {"InvocationID": "f" * 32})])
    host.rows = [row for row in host.rows if played_host.realtime(row) < host.began + 14]
    failure = wait(host)["failure"]
    assert "started again as invocation " + "f" * 32 + " (by somebody)" in failure["evidence"]


def test_a_death_before_the_wait_without_a_journal_says_that_there_is_none():
    host = good_start(units=[(0.0, played_host.FAILED)])
    host.rows = []
    real = host.run_command
    host.run_command = lambda argv: (0, "", "") if argv[0] == "journalctl" else real(argv)
    failure = wait(host)["failure"]
    assert failure["kind"] == "unknown"
    assert "there is no journal of this start" in failure["evidence"]
    assert "Storage" in failure["advice"]


def test_a_reboot_between_two_slices_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(_ready_boot, "boot_id", lambda root: "second")
    result = wait(good_start(), boot_id="first", waited_seconds=5.0)
    assert result["verdict"] == "failed"
    assert "rebooted during the wait" in result["failure"]["evidence"]
    assert wait(good_start(), boot_id="second", waited_seconds=5.0)["verdict"] == "holds"


def test_a_reboot_before_the_boot_was_known_is_said_by_the_uptime(monkeypatch):
    monkeypatch.setattr(_ready_boot, "up_seconds", lambda root: 20.0)
    assert "rebooted" in wait(good_start(), waited_seconds=60.0)["failure"]["evidence"]
    assert wait(good_start(), waited_seconds=10.0)["verdict"] == "holds"


def test_the_first_slice_is_one_look_and_knows_what_is_waited_for():
    host = good_start()
    began = host.now
    result = wait(host, slice_seconds=0.0)
    assert (result["finished"], result["slice"]["invocation_id"]) == (False, host.invocation)
    assert result["slice"]["boot_id"]
    assert host.now - began < 0.2


def test_what_is_kept_is_not_gone_through_for_every_line(monkeypatch):
    host = good_start()
    asked = []
    real = _failures.classify
    monkeypatch.setattr(_failures, "classify", lambda entries, **given: asked.append(1) or real(entries, **given))
    assert wait(host)["verdict"] == "holds"
    # Lines come in some forty looks; the catalogue knows none of them.
    assert len(asked) <= 3


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
        assert len(results) < 200
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
                load=json.loads(json.dumps(state.get("load"))),
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


# -- patience


def stuck(after, **process):
    """A good start of which nothing is heard any more from some second on."""
    host = good_start(http_from=None)
    host.rows = [row for row in host.rows if played_host.realtime(row) < host.began + after]
    return host


def idle(seconds):
    return [
        Process(played_host.MAIN_PID, "python3", "S", 20.0),
        Process(400, "sglang::schedul", "D", 9.0, waits_in="x"),
    ]


def test_a_stall_is_named_before_the_deadline_with_what_was_seen_last():
    """The last line before second 22.7 is the end of the load: the phase is pool, its patience 180 s."""
    result = wait(stuck(22.7), processes=idle, timeout_seconds=3600.0)
    failure = result["failure"]
    assert (result["verdict"], failure["kind"], failure["phase"]) == ("failed", "watchdog_hang", "pool")
    assert 195.0 < result["waited_seconds"] < 215.0
    assert "Load weight end" in failure["evidence"]
    assert "last sign of life: a line 180 s ago" in failure["evidence"]
    assert "processes: 1 waiting for a disk or a driver (x), 1 sleeping" in failure["evidence"]
    assert failure["figures"]["last_sign"] == "a line"
    assert "sglang_server_patience_factor" in failure["advice"]
    assert [row["name"] for row in result["processes"]] == ["python3", "sglang::schedul"]


def test_a_stall_is_named_across_slices():
    results = slices(stuck(22.7), processes=idle, timeout_seconds=3600.0)
    assert results[-1]["failure"]["kind"] == "watchdog_hang"
    assert 195.0 < results[-1]["waited_seconds"] < 225.0
    assert "no sign of life for " in results[-2]["progress"]["words"]


@pytest.mark.parametrize(
    ("processes", "options"),
    [
        (lambda at: [Process(324, "python3", "D", 5.0, int(at * 500_000))], {}),
        (lambda at: [Process(324, "python3", "R", at * 0.9, resident_bytes=int(at * 4e6))], {}),
        (lambda at: [Process(324, "python3", "S", 5.0), Process(500, "ninja", "R", at * 2.0)], {}),
        (idle, {"patience_factor": 0.0}),
        (None, {}),
    ],
    ids=["slow disk", "page cache", "compiler", "no patience wanted", "processes not seen"],
)
def test_what_is_no_stall_ends_with_the_deadline(processes, options):
    result = wait(stuck(22.7), processes=processes, timeout_seconds=900.0, **options)
    assert result["failure"]["kind"] == "timeout"
    assert result["waited_seconds"] == pytest.approx(900.0, abs=1.0)


def test_a_slow_load_that_comes_to_its_end_holds():
    host = good_start(http_from=1026.7)
    for row in host.rows:
        if played_host.realtime(row) > host.began + 22.7:
            row["__REALTIME_TIMESTAMP"] = str(int(row["__REALTIME_TIMESTAMP"]) + 1_000_000_000)
    result = wait(host, processes=lambda at: [Process(324, "x", "D", 5.0, int(at * 500_000))], timeout_seconds=3600.0)
    assert result["verdict"] == "holds"


def test_a_stuck_warm_up_is_a_stall_although_somebody_knocks_at_the_port():
    host = good_start(without=["fired up"], http_from=None)
    last = host.rows[-1]
    for at in range(30, 2000, 10):
        text = (
            f'[2026-11-29 10:00:{at % 60:02d}] INFO:     10.0.0.{at % 250}:5 - "GET /health HTTP/1.1" 503 Unavailable'
        )
        stamp = str(int((host.began + at) * 1e6))
        host.rows.append(dict(last, MESSAGE=text, __CURSOR=f"knock{at}", __REALTIME_TIMESTAMP=stamp))
    result = wait(host, processes=idle, timeout_seconds=3600.0, patience_factor=0.2)
    assert (result["failure"]["kind"], result["failure"]["phase"]) == ("watchdog_hang", "warmup")
    assert 780.0 * 0.2 < result["waited_seconds"] < 780.0 * 0.2 + 35.0


def test_the_deadline_is_computed_once_for_all_slices(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    host = stuck(22.7)
    results = slices(
        host,
        timeout_seconds=None,
        model_path=str(tmp_path),
        last_load_seconds=28.8,
        processes=lambda at: [Process(324, "x", "D", 5.0, int(at * 500_000))],
    )
    deadline = results[0]["deadline"]
    # 300 s, 1,000 bytes, and 900 s for graphs: 1,200 s.
    assert (deadline["seconds"], deadline["auto"]) == (1200.0, True)
    assert deadline["why"].endswith("the last start took 29 s")
    assert all(result["deadline"] == deadline for result in results)
    assert (results[-1]["failure"]["kind"], round(results[-1]["waited_seconds"])) == ("timeout", 1200)
    assert "longer than the last start (29 s)" in results[-1]["failure"]["evidence"]


def test_without_a_process_the_size_of_the_model_is_learned_later():
    settings = _ready_run.Settings(address=_http.Address())
    look = _load_progress.LoadLook(lambda: 5.0, boards=NoBoards(), read_tree=lambda pid, root: ())
    load = _ready_load.StartLoad(settings, lambda: 5.0, "/nowhere", look)
    load.look(None, {}, None)
    assert (load.known, load.deadline().seconds, load.state()["deadline"]) == (
        False,
        _patience_deadline.UNKNOWN_SECONDS,
        None,
    )
    load.look(324, {}, None)
    assert load.known is True
    assert load.state()["deadline"]["why"] == "weights of unknown size"


def test_how_far_the_load_is(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x" * 4_000_000)
    settings = _ready_run.Settings(address=_http.Address(), model_path=str(tmp_path), last_load_seconds=100.0)
    now = [0.0]

    def read_tree(pid, root):
        return (Process(pid, read_bytes=int(now[0] * 100_000), io_bytes=int(now[0] * 100_000)),)

    look = _load_progress.LoadLook(lambda: now[0], boards=NoBoards(), read_tree=read_tree)
    load = _ready_load.StartLoad(settings, lambda: now[0], "/nowhere", look)
    load.look(324, {"phase": "init"}, None)
    now[0] = 10.0
    load.look(324, {"phase": "weights"}, None)
    now[0] = 20.0
    load.look(324, {"phase": "weights"}, None)
    # One of four megabytes in ten seconds.
    found = load.progress({"phase": "weights"}, 20.0, 10.0)
    assert (found["part"], found["weights_left_seconds"], found["seconds_left"]) == (0.25, 30.0, 80.0)
    assert "0.0 of 0.0 GiB read, about 30 s left for the weights, about 80 s left as" in found["words"]


@pytest.mark.parametrize(("factor", "kind", "seconds"), [(0.1, "watchdog_hang", 120.0), (0.0, "timeout", 200.0)])
def test_a_ready_server_that_answers_nothing_is_a_stall(factor, kind, seconds):
    host = good_start()
    host.answer = (0, None)
    results = slices(host, timeout_seconds=200.0, patience_factor=factor, processes=idle)
    result = results[-1]
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", kind)
    assert result["waited_seconds"] == pytest.approx(seconds, abs=6.0)
    if factor:
        assert "the last completion: status 0" in result["failure"]["evidence"]


def test_a_server_that_is_up_for_long_is_given_its_time_to_answer():
    host = good_start(late=5000.0)
    answers = [(503, None), (200, " Paris.")]
    real = host.http.completion

    def completion(*arguments):
        host.answer = answers.pop(0)
        return real(*arguments)

    host.http.completion = completion
    assert wait(host, timeout_seconds=2000.0)["verdict"] == "holds"


# -- latency


def test_the_end_of_the_main_process_is_not_to_wait_for_the_next_look():
    """It dies at second 24.03; the look before was at 24.0, the next would be at 24.5."""
    host = crash_loop([(24.03, played_host.FAILED)])
    host.http.process_exists = lambda pid, proc: host.seconds() < 24.03
    host.rows = [row for row in host.rows if played_host.realtime(row) < host.began + 24.02]
    result = wait(host)
    assert result["verdict"] == "failed"
    assert host.seconds() < 24.03 + 0.2


def test_a_death_is_named_within_half_a_second_of_its_line():
    result = wait(crash_loop([(24.0, played_host.FAILED)]))
    assert result["seconds_after_fatal_line"] < 1.0


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
