from __future__ import annotations

import types

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpufleet.sglang.plugins.action import server_ready


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Play:
    """The action with a module executor that plays results: (seconds that the slice takes, result or exception)."""

    def __init__(self, monkeypatch, slices, async_val=0, check_mode=False, hosts=1):
        self.clock = Clock()
        self.slices = list(slices)
        self.calls = []
        self.lines = []
        monkeypatch.setattr(server_ready, "time", self.clock)
        monkeypatch.setattr(server_ready, "Display", lambda: types.SimpleNamespace(display=self.lines.append))
        self.task_vars = {"inventory_hostname": "gpu-a", "ansible_play_batch": ["h"] * hosts}
        task = types.SimpleNamespace(
            args={"unit": "u.service", "target_tokens": 5}, async_val=async_val, check_mode=check_mode, action="x"
        )
        connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp/x"), has_native_async=False)
        self.action = server_ready.ActionModule(
            task=task, connection=connection, play_context=None, loader=None, templar=None, shared_loader_obj=None
        )
        self.action._execute_module = self.execute
        self.action._remove_tmp_path = lambda path: None

    def execute(self, **arguments):
        self.calls.append(arguments)
        seconds, result = self.slices.pop(0)
        self.clock.now += seconds
        if isinstance(result, Exception):
            raise result
        return dict(result)

    def run(self):
        return self.action.run(None, self.task_vars)


def part(phase, **state):
    return {
        "finished": False,
        "verdict": None,
        "phase": phase,
        "elapsed_seconds": 1.0,
        "startup": {},
        "timeline": [],
        "slice": dict({"invocation_id": "a", "phase": phase, "restarts": 0, "waiting_since": 7.0}, **state),
        "slice_duration_seconds": 4.0,
        "changed": False,
    }


def end(verdict="holds", **changes):
    return dict(
        part("ready"),
        finished=True,
        verdict=verdict,
        reason="why",
        failure=None,
        seconds_after_ready_line=0.4,
        seconds_after_fatal_line=None,
        **changes,
    )


def test_slices_are_looped_until_the_verdict(monkeypatch):
    play = Play(monkeypatch, [(5.0, part("process")), (6.0, part("weights")), (4.7, end())])
    result = play.run()
    assert (result["verdict"], result["waited_seconds"]) == ("holds", 15.7)
    given = [call["module_args"]["slice"] for call in play.calls]
    assert given[0] == {"waited_seconds": 0.0}
    assert given[1] == {
        "invocation_id": "a",
        "phase": "process",
        "restarts": 0,
        "waiting_since": 7.0,
        "waited_seconds": 5.0,
    }
    assert given[2]["waited_seconds"] == 11.0
    assert [line.split(" | ")[1] for line in play.lines] == ["waiting", "process", "weights", "ready"]
    assert all(line.startswith("gpu-a | ") for line in play.lines)
    assert "slice" not in result
    assert "slice_duration_seconds" not in result


def test_the_connection_is_added_to_the_figures_of_the_host(monkeypatch):
    # The slice took 4.7 s from here and 4.0 s there: 0.7 s of connection, an upper bound without a common clock.
    result = Play(monkeypatch, [(4.7, end())]).run()
    assert result["seconds_after_ready_line"] == pytest.approx(1.1)
    assert result["seconds_after_fatal_line"] is None


def test_the_arguments_of_the_task_are_passed_on_and_not_changed(monkeypatch):
    play = Play(monkeypatch, [(1.0, end())])
    play.run()
    assert play.calls[0]["module_args"]["target_tokens"] == 5
    assert play.calls[0]["module_name"] == "gpufleet.sglang.server_ready"
    assert "slice" not in play.action._task.args


def test_a_lost_connection_is_not_the_end(monkeypatch):
    lost = AnsibleConnectionFailure("ssh: gone")
    play = Play(monkeypatch, [(5.0, part("weights")), (1.0, lost), (1.0, lost), (1.0, end())])
    assert play.run()["verdict"] == "holds"
    assert sum("ssh: gone" in line for line in play.lines) == 2
    # The time that the connection was lost counts.
    assert play.calls[3]["module_args"]["slice"]["waited_seconds"] == 13.0
    assert play.calls[3]["module_args"]["slice"]["invocation_id"] == "a"


def test_a_host_that_stays_away_is_unreachable(monkeypatch):
    lost = AnsibleConnectionFailure("ssh: gone")
    play = Play(monkeypatch, [(30.0, lost)] * 10)
    with pytest.raises(AnsibleConnectionFailure):
        play.run()
    assert play.clock.now < 1000.0 + server_ready.LOST_SECONDS + 60.0


def test_a_failed_verdict_passes_through_with_its_sentence(monkeypatch):
    failure = {"kind": "oom_prefill", "evidence": "CUDA out of memory"}
    result = Play(monkeypatch, [(1.0, dict(end("failed"), failed=True, msg="why", failure=failure))]).run()
    assert (result["failed"], result["msg"], result["failure"]) == (True, "why", failure)


def test_a_module_that_breaks_is_passed_through(monkeypatch):
    result = Play(monkeypatch, [(1.0, {"failed": True, "msg": "MODULE FAILURE"})]).run()
    assert result == {"failed": True, "msg": "MODULE FAILURE"}


def test_async_runs_the_plain_module_and_prints_nothing(monkeypatch):
    play = Play(monkeypatch, [(1.0, {"started": 1, "ansible_job_id": "j1"})], async_val=600)
    assert play.run()["ansible_job_id"] == "j1"
    assert play.calls[0]["wrap_async"] is True
    assert "slice" not in play.calls[0]["module_args"]
    assert play.lines == []


def test_what_a_slice_learned_goes_to_the_next(monkeypatch):
    load = {"marks": {"sign_at": 5.0}, "deadline": {"seconds": 900.0, "auto": True, "why": "x"}}
    play = Play(monkeypatch, [(5.0, part("process", load=load)), (1.0, end())])
    play.run()
    assert play.calls[1]["module_args"]["slice"]["load"] == load


def test_check_mode_asks_the_module_once(monkeypatch):
    play = Play(monkeypatch, [(1.0, {"finished": True, "verdict": None, "reason": "Would wait"})], check_mode=True)
    assert play.run()["reason"] == "Would wait"
    assert "slice" not in play.calls[0]["module_args"]
    assert play.lines == []


def test_large_batches_are_quiet(monkeypatch):
    play = Play(monkeypatch, [(5.0, part("weights")), (1.0, end())], hosts=21)
    play.run()
    assert len(play.lines) == 1
