from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _follow, _soak_run
from ansible_collections.gpufleet.sglang.tests.unit.plugins import played_host

UNIT = "sglang-main.service"
DEATH = (
    "[2026-11-29 18:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/sglang/srt/managers/scheduler.py", line 10, in event_loop_normal',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 94.97 GiB "
    "of which 893.38 MiB is free.",
    "[2026-11-29 18:00:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
)
FAILED = {
    "ActiveState": "failed",
    "SubState": "failed",
    "MainPID": 0,
    "Result": "signal",
    "ExecMainCode": 2,
    "ExecMainStatus": 9,
}


def serving(lines, units=None):
    """A host that serves since long and says ``lines`` (second, text) from now on."""
    rows = played_host.records(played_host.START)
    host = played_host.PlayedHost(rows, late=1000.0, units=units)
    for number, (second, text) in enumerate(lines):
        rows.append(
            {
                "MESSAGE": text,
                "_PID": "335",
                "_SYSTEMD_INVOCATION_ID": host.invocation,
                "SYSLOG_IDENTIFIER": "python",
                "_TRANSPORT": "stdout",
                "__CURSOR": f"late{number}",
                "__REALTIME_TIMESTAMP": str(int((host.now + second) * 1e6)),
                "__MONOTONIC_TIMESTAMP": "1",
            }
        )
    real = host.run_command

    def run_command(argv):
        status, out, err = real(argv)
        since = next((float(word[len("--since=@") :]) for word in argv if word.startswith("--since=@")), None)
        if since is not None:
            out = "\n".join(line for line in out.splitlines() if played_host.realtime(json.loads(line)) >= since)
        return status, out, err

    host.run_command = run_command
    return host


def watching(host, monkeypatch):
    monkeypatch.setattr(_soak_run._http, "process_exists", lambda pid, proc_root="/proc": True)
    return _soak_run.UnitWatch(_follow.Follower(host.run_command, UNIT, since_seconds=host.now), clock=host.clock)


def until_told(host, watch, seconds):
    end = host.now + seconds
    while host.now < end:
        failure = watch()
        if failure:
            return failure
        host.sleep(0.5)
    return None


def test_quiet_is_no_death_and_the_start_up_is_not_read_again(monkeypatch):
    host = serving([(1.0, "[2026-11-29 18:00:00] Decode batch, #running-req: 4")])
    watch = watching(host, monkeypatch)
    assert watch.not_running() is None
    assert until_told(host, watch, 10.0) is None
    assert len(watch._follower.entries) == 1


def test_a_memory_death_under_load_is_named_and_the_unit_may_still_live(monkeypatch):
    host = serving([(2.0, line) for line in DEATH])
    began = host.now
    failure = until_told(host, watching(host, monkeypatch), 20.0)
    assert (failure["kind"], failure["direction"]) == ("oom_prefill", "lower")
    assert failure["figures"]["wanted_mib"] == 896.0
    assert host.now - began <= 5.0


def test_an_end_without_a_word_is_told(monkeypatch):
    host = serving([], units=[(1000.0, {}), (1003.0, FAILED)])
    failure = until_told(host, watching(host, monkeypatch), 30.0)
    assert failure["fatal"] is True


def test_a_restart_is_a_death(monkeypatch):
    host = serving([], units=[(1000.0, {}), (1003.0, {"InvocationID": "f" * 32, "NRestarts": 1})])
    assert until_told(host, watching(host, monkeypatch), 30.0) is not None


def test_retractions_are_counted_and_are_no_death(monkeypatch):
    line = "[2026-11-29 18:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9"
    host = serving([(1.0, line), (2.0, line)])
    watch = watching(host, monkeypatch)
    assert until_told(host, watch, 6.0) is None
    assert watch.retractions_or_none == 2


@pytest.mark.parametrize("state", ["failed", "inactive"])
def test_what_does_not_run_gets_no_load(monkeypatch, state):
    host = serving([], units=[(0.0, {"ActiveState": state})])
    assert state in watching(host, monkeypatch).not_running()


def test_without_a_journal_retractions_are_not_known(monkeypatch):
    host = serving([])
    host.journal = False
    watch = watching(host, monkeypatch)
    watch()
    assert watch.retractions_or_none is None
