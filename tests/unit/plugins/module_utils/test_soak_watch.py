from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _follow, _soak_watch
from ansible_collections.gpufleet.sglang.tests.unit.plugins import played_host

UNIT = "sglang-main.service"
DEATH = (
    "[2026-11-29 18:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/sglang/srt/managers/scheduler.py", line 10, in event_loop_normal',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 94.97 GiB "
    "of which 893.38 MiB is free.",
    "[2026-11-29 18:00:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
)


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
    return host


def watching(host):
    follower = _follow.Follower(host.run_command, UNIT, since_seconds=host.now)
    return _soak_watch.UnitWatch(follower, http=host.http, clock=host.clock)


def until_told(host, watch, seconds):
    end = host.now + seconds
    while host.now < end:
        failure = watch()
        if failure:
            return failure
        host.sleep(0.5)
    return None


def test_quiet_is_no_death_and_the_start_up_is_not_read_again():
    host = serving([(1.0, "[2026-11-29 18:00:00] Decode batch, #running-req: 4")])
    watch = watching(host)
    assert watch.not_running() is None
    assert until_told(host, watch, 10.0) is None
    assert len(watch._follower.entries) == 1


def test_a_memory_death_under_load_is_named_and_the_unit_may_still_live():
    host = serving([(2.0, line) for line in DEATH])
    began = host.now
    failure = until_told(host, watching(host), 20.0)
    assert (failure["kind"], failure["direction"]) == ("oom_prefill", "lower")
    assert failure["figures"]["wanted_mib"] == 896.0
    assert host.now - began <= 5.0


REFUSED = "[2026-11-29 18:00:01] Error processing image: CUDA out of memory. Tried to allocate 2.00 GiB."
BATCH = "[2026-11-29 18:00:0{} TP0] Decode batch, #running-req: 4, #token: 4100, token usage: 0.02"


def test_a_request_that_is_refused_in_the_words_of_a_death_is_none(monkeypatch):
    # Believed to be fatal, whatever the catalogue makes of the line.
    host = serving([(2.0, REFUSED)] + [(second, BATCH.format(second)) for second in range(3, 9)])
    watch = watching(host)
    believed(monkeypatch, watch, host.now + 2.0)
    assert until_told(host, watch, 60.0) is None


def test_the_same_words_are_a_death_when_nothing_follows(monkeypatch):
    host = serving([(2.0, REFUSED)])
    watch = watching(host)
    believed(monkeypatch, watch, host.now + 2.0)
    began = host.now
    assert until_told(host, watch, 60.0)["kind"] == "oom_prefill"
    assert host.now - began <= 25.0


def believed(monkeypatch, watch, at):
    failure = {"kind": "oom_prefill", "fatal": True, "evidence": "x", "at": at, "consequence_at": None}
    monkeypatch.setattr(watch._cause, "look", lambda unit, is_over: failure if watch._follower.entries else None)


def test_an_end_without_a_word_is_told():
    host = serving([], units=[(1000.0, {}), (1003.0, played_host.FAILED)])
    failure = until_told(host, watching(host), 30.0)
    assert failure["fatal"] is True


def test_a_restart_is_a_death():
    host = serving([], units=[(1000.0, {}), (1003.0, {"InvocationID": "f" * 32, "NRestarts": 1})])
    assert until_told(host, watching(host), 30.0) is not None


def test_retractions_are_counted_and_are_no_death():
    line = "[2026-11-29 18:00:00] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9"
    host = serving([(1.0, line), (2.0, line)])
    watch = watching(host)
    assert until_told(host, watch, 6.0) is None
    assert watch.retractions_or_none == 2


def test_a_long_prefill_that_health_does_not_wait_for_is_no_death():
    line = "[2026-11-29 18:00:30] Health check failed. Server couldn't get a response from detokenizer in 20 seconds."
    host = serving([(1.0, line), (21.0, line)])
    assert until_told(host, watching(host), 60.0) is None


def test_the_dp_ranks_that_compute_prompts():
    head = "[2026-11-29 18:00:00 DP{} TP{}] {} batch, #new-seq: 1, #new-token: 8192"
    host = serving(
        [(1.0, head.format(1, 2, "Prefill")), (1.5, head.format(0, 0, "Prefill")), (2.0, head.format(3, 3, "Decode"))]
    )
    watch = watching(host)
    assert until_told(host, watch, 6.0) is None
    assert watch.dp_ranks_or_none == {0, 1}


@pytest.mark.parametrize("state", ["failed", "inactive"])
def test_what_does_not_run_gets_no_load(state):
    host = serving([], units=[(0.0, {"ActiveState": state})])
    assert state in watching(host).not_running()


def test_without_a_journal_retractions_are_not_known():
    host = serving([])
    host.journal = False
    watch = watching(host)
    watch()
    assert watch.retractions_or_none is None
    assert watch.dp_ranks_or_none is None


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("[2026-11-29 17:08:42] KV cache pool is full. Retract requests. #retracted_reqs: 1", True),
        ("Decode out of memory happened. #retracted_reqs: 1", True),
        ("[2026-11-29 17:08:42] Decode batch, #running-req: 1", False),
    ],
)
def test_retractions(line, is_one):
    assert bool(_soak_watch.RETRACTION.search(line)) is is_one
