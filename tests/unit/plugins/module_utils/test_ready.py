from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _ready, _ready_before
from ansible_collections.gpufleet.sglang.plugins.module_utils._ready import Sight, next_move

UNIT = {"name": "sglang-main.service", "result": "signal", "exec_main_code": 2, "exec_main_status": 9, "n_restarts": 1}
READY = {"state": "ready", "phase": "ready", "pool_tokens": 1000}
WARM = {"port": "ours", "startup": {"state": "loading", "phase": "warmup"}}
BEHIND = {"port": "ours", "startup": {"state": "loading", "phase": "weights"}}
NO_POOL = {"state": "ready", "phase": "ready", "pool_tokens": None}
LOADING = {"state": "loading", "phase": "weights", "pool_tokens": None}
FATAL = {"kind": "oom_prefill", "fatal": True, "evidence": "CUDA out of memory"}
WEAK = {"kind": "scheduler_died", "fatal": True, "evidence": "SIGQUIT received"}
STALL = {"kind": "watchdog_hang", "fatal": True, "evidence": "nothing was logged for 300 s"}
OUTLIVED = {"failure": FATAL, "failure_seconds": 1.0, "startup": READY}
STOPPED = dict(UNIT, active_state="inactive", result="success", exec_main_status=15, n_restarts=0)
AGAIN = dict(UNIT, invocation_id="b" * 32, n_restarts=0)
NO_JOURNAL = "This host keeps no journal, so causes cannot be named; set Storage=persistent in journald.conf."
WITNESS = {"pool_tokens": 900}


def look(**changes):
    return Sight(**dict({"unit": UNIT, "timeout_seconds": 100.0, "startup": LOADING}, **changes))


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({}, "wait"),
        # Deaths: as soon as settled, never before.
        ({"failure": FATAL, "failure_seconds": 0.2}, "wait"),
        ({"failure": FATAL, "failure_seconds": 1.0}, "fail"),
        ({"failure": FATAL, "ended": True}, "fail"),
        ({"failure": FATAL, "restarted": True}, "fail"),
        ({"failure": dict(FATAL, fatal=False), "failure_seconds": 50.0}, "wait"),
        # Nothing came after it for a moment: its traceback is complete.
        ({"failure": FATAL, "failure_seconds": 0.3, "still_seconds": 0.3}, "fail"),
        ({"failure": FATAL, "failure_seconds": 0.3, "still_seconds": 0.1}, "wait"),
        ({"failure": FATAL, "failure_seconds": 0.1, "still_seconds": 0.3}, "wait"),
        # That something died is no cause: the last lines may name one.
        ({"failure": WEAK, "ended": True}, "wait"),
        ({"failure": WEAK, "ended": True, "failure_seconds": 0.3, "still_seconds": 0.3}, "wait"),
        ({"failure": WEAK, "ended": True, "ended_seconds": 0.5, "still_seconds": 0.5}, "fail"),
        ({"failure": WEAK, "ended": True, "ended_seconds": 1.0, "still_seconds": 0.1}, "fail"),
        ({"failure": WEAK, "failure_seconds": 1.0}, "fail"),
        # An answered completion outranks a line that no death follows.
        ({**OUTLIVED, "port": "ours"}, "ask_completion"),
        ({**OUTLIVED, "port": "ours", "answering": True}, "wait"),
        ({**OUTLIVED, "answer_status": 200, "answer_text": "x"}, "judge"),
        ({**OUTLIVED, "answer_status": 0, "answer_error": "reset"}, "fail"),
        ({**OUTLIVED, "port": "closed", "ready_seconds": 6.0}, "fail"),
        ({**OUTLIVED, "failure_seconds": 30.0, "port": "ours", "answering": True}, "fail"),
        ({**OUTLIVED, "ended": True, "answer_status": 200, "answer_text": "x"}, "fail"),
        ({**OUTLIVED, "restarted": True, "answer_status": 200, "answer_text": "x"}, "fail"),
        ({**OUTLIVED, "failure": dict(FATAL, consequence_at=7.0), "answer_status": 200, "answer_text": "x"}, "fail"),
        ({**OUTLIVED, "startup": LOADING, "answer_status": 200, "answer_text": "x"}, "fail"),
        # An end that no line names is given a moment for its last lines.
        ({"ended": True, "ended_seconds": 0.4}, "wait"),
        ({"ended": True, "ended_seconds": 1.0}, "fail"),
        ({"ended": True, "ended_seconds": 0.4, "still_seconds": 0.4}, "fail"),
        ({"ended": True, "ended_seconds": 0.4, "still_seconds": 0.2}, "wait"),
        ({"restarted": True, "ended_seconds": 1.0}, "fail"),
        # A stall: not of a server that answers.
        ({"stall": STALL}, "fail"),
        ({"stall": STALL, "phase_seconds": 60.0, "port": "ours"}, "fail"),
        ({"stall": STALL, "phase_seconds": 60.0, "port": "ours", "healthy_seconds": 1.0}, "ask_health"),
        ({"stall": STALL, "startup": READY, "port": "ours", "answering": True}, "fail"),
        ({"stall": STALL, "startup": READY, "port": "ours", "answer_status": 200, "answer_text": "x"}, "judge"),
        ({"stall": STALL, "failure": FATAL, "ended": True}, "fail"),
        # Ready by the journal.
        ({"startup": READY, "port": "ours"}, "ask_completion"),
        ({"startup": READY, "port": "closed", "ready_seconds": 1.0}, "wait"),
        ({"startup": READY, "port": "closed", "ready_seconds": 6.0}, "fail"),
        ({"startup": READY, "port": "other", "ready_seconds": 6.0}, "fail"),
        ({"startup": READY, "port": "hidden", "ready_seconds": 6.0}, "fail"),
        ({"startup": READY, "port": "ours", "answering": True}, "wait"),
        ({"startup": READY, "port": "ours", "answer_status": 200, "answer_text": " Paris"}, "judge"),
        ({"startup": READY, "port": "ours", "answer_status": 200, "answer_text": None}, "ask_completion"),
        ({"startup": READY, "port": "ours", "answer_status": 0, "answer_error": "reset"}, "ask_completion"),
        ({"startup": READY, "port": "ours", "answer_status": 503, "answer_error": "503"}, "ask_completion"),
        ({"startup": READY, "port": "ours", "answer_status": 429, "answer_error": "429"}, "ask_completion"),
        ({"startup": READY, "port": "ours", "answer_status": 401, "answer_error": "401"}, "fail"),
        ({"startup": READY, "port": "ours", "answer_status": 400, "answer_error": "400"}, "fail"),
        # The pool line was lost.
        ({"startup": NO_POOL, "port": "ours"}, "ask_info"),
        ({"startup": NO_POOL, "port": "ours", "witness": WITNESS}, "ask_completion"),
        ({"startup": NO_POOL, "port": "ours", "witness": {"pool_tokens": None}}, "fail"),
        ({"startup": NO_POOL, "port": "ours", "witness_error": "401"}, "fail"),
        ({"startup": NO_POOL, "port": "other", "ready_seconds": 6.0}, "fail"),
        # No journal: the healthy process itself.
        ({"journal": False, "port": "closed"}, "wait"),
        ({"journal": False, "port": "other"}, "wait"),
        ({"journal": False, "port": "hidden"}, "fail"),
        ({"journal": True, "port": "hidden"}, "wait"),
        ({"journal": False, "port": "ours"}, "ask_health"),
        ({"journal": False, "port": "ours", "healthy_seconds": 0.0}, "ask_info"),
        ({"journal": False, "port": "ours", "healthy_seconds": 0.0, "witness": WITNESS}, "ask_completion"),
        ({"journal": False, "port": "ours", "healthy_seconds": 0.0, "witness": {}}, "fail"),
        # A journal whose ready line does not come although the server is healthy.
        ({**WARM, "phase_seconds": 5.0, "healthy_seconds": 30.0, "witness": WITNESS}, "wait"),
        ({**WARM, "phase_seconds": 35.0}, "ask_health"),
        ({**WARM, "phase_seconds": 35.0, "healthy_seconds": 3.0, "witness": WITNESS}, "ask_health"),
        ({**WARM, "phase_seconds": 45.0, "healthy_seconds": 12.0, "witness": WITNESS}, "ask_completion"),
        # A journal that is behind: whoever listens has passed all phases before the warm-up.
        ({**BEHIND, "phase_seconds": 2.0, "healthy_seconds": 30.0, "witness": WITNESS}, "wait"),
        ({**BEHIND, "phase_seconds": 4.0}, "ask_health"),
        ({**BEHIND, "phase_seconds": 4.0, "healthy_seconds": 1.0, "witness": WITNESS}, "ask_health"),
        ({**BEHIND, "phase_seconds": 4.0, "healthy_seconds": 2.5, "witness": WITNESS}, "ask_completion"),
        ({**BEHIND, "port": "closed", "phase_seconds": 40.0, "healthy_seconds": 9.0}, "wait"),
        # Time is up.
        ({"waited_seconds": 100.0}, "fail"),
        ({"waited_seconds": 100.0, "startup": READY, "port": "ours", "answering": True}, "fail"),
        (
            {"waited_seconds": 100.0, "startup": READY, "port": "ours", "answer_status": 200, "answer_text": "x"},
            "judge",
        ),
    ],
)
def test_next_move(changes, action):
    assert next_move(look(**changes)).action == action


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"failure": FATAL, "ended": True}, "oom_prefill", "CUDA out of memory"),
        ({"ended": True, "ended_seconds": 2.0, "last_line": "usage: x"}, "unit_failed", "usage: x"),
        ({"ended": True, "ended_seconds": 2.0}, "unit_failed", "ended (killed by SIGKILL)"),
        ({"restarted": True, "ended_seconds": 2.0}, "unit_failed", "restarts: 1"),
        ({"ended": True, "ended_seconds": 2.0, "unit": STOPPED}, "unit_failed", "somebody stopped sglang-main.service"),
        ({"ended": True, "ended_seconds": 2.0, "unit": STOPPED}, "unit_failed", "(killed by SIGTERM)"),
        # SGLang before 0.5.20 ends a clean stop by SIGKILL: the journal tells who asked for it.
        ({"ended": True, "ended_seconds": 2.0, "stopped": True}, "unit_failed", "somebody stopped"),
        (
            {"restarted": True, "ended_seconds": 2.0, "unit": AGAIN, "invocation_id": "a" * 32},
            "unit_failed",
            "that it was started again as invocation " + "b" * 32 + " (by somebody)",
        ),
        (
            {"restarted": True, "ended_seconds": 2.0, "unit": dict(AGAIN, n_restarts=2), "invocation_id": "a" * 32},
            "unit_failed",
            "(by systemd, 2 restarts)",
        ),
        (
            {"ended": True, "ended_seconds": 2.0, "journal": False, "journal_problem": NO_JOURNAL},
            "unit_failed",
            "there is no journal of this start",
        ),
        (
            {
                "startup": READY,
                "port": "closed",
                "ready_seconds": 9.0,
                "address": "127.0.0.1 port 30000",
                "stated": "--host ::1 and --port 30010",
            },
            "no_evidence",
            "to listen on 127.0.0.1 port 30000, found: nothing of this unit listens there; the command line of the "
            "unit says --host ::1 and --port 30010",
        ),
        ({"startup": READY, "port": "other", "port_owner": 77, "ready_seconds": 9.0}, "no_evidence", "process 77"),
        ({"startup": READY, "port": "hidden", "ready_seconds": 9.0}, "no_evidence", "become: true"),
        ({"startup": NO_POOL, "port": "ours", "witness_error": "status 401"}, "no_evidence", "status 401"),
        ({"startup": READY, "port": "ours", "answer_status": 401}, "no_evidence", "401"),
        ({"waited_seconds": 100.0, "last_line": "Load weight begin."}, "timeout", "Load weight begin."),
        ({"waited_seconds": 100.0, "answer_error": "connection reset"}, "timeout", "connection reset"),
        ({"waited_seconds": 100.0, "how_far": "31.5 of 75.0 GiB on the boards"}, "timeout", "31.5 of 75.0 GiB"),
        ({"stall": STALL}, "watchdog_hang", "300 s"),
        ({"stall": STALL, "answer_error": "timed out"}, "watchdog_hang", "the last completion: timed out"),
        ({"stall": STALL, "failure": FATAL, "ended": True}, "oom_prefill", "CUDA out of memory"),
    ],
)
def test_what_a_failure_says(changes, kind, words):
    failure = next_move(look(**changes)).failure
    assert failure["kind"] == kind
    assert words in failure["evidence"]
    assert set(FATAL) <= set(failure)


def test_without_a_journal_nobody_is_sent_to_it():
    dead = look(ended=True, ended_seconds=2.0, journal=False, journal_problem=NO_JOURNAL)
    assert next_move(dead).failure["advice"] == NO_JOURNAL
    named = dict(WEAK, advice="Read the last lines in the journal of the unit.")
    assert next_move(replace(dead, failure=named)).failure["advice"] == NO_JOURNAL
    with_journal = next_move(look(ended=True, ended_seconds=2.0)).failure["advice"]
    assert with_journal == "Look into journalctl -u sglang-main.service."


@pytest.mark.parametrize("kind", ["no_evidence", "timeout"])
def test_a_server_that_may_be_well_is_not_called_dead(kind):
    changes = {
        "no_evidence": {"startup": NO_POOL, "port": "ours", "witness_error": "x"},
        "timeout": {"waited_seconds": 100.0},
    }[kind]
    assert next_move(look(**changes)).failure["fatal"] is False


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ({"load_state": "not-found"}, "a unit named u"),
        ({"load_state": "masked"}, "masked"),
        ({"load_state": "bad-setting"}, "can load"),
        ({"load_state": "loaded", "active_state": "inactive", "invocation_id": None}, "not started"),
    ],
)
def test_units_that_are_not_waited_for(unit, words):
    failure = _ready_before.not_waitable(dict(unit, name="u"))
    assert words in failure["evidence"]
    assert "u" in failure["advice"]


@pytest.mark.parametrize(
    "unit",
    [
        {"load_state": "loaded", "active_state": "active", "invocation_id": "a"},
        {"load_state": "loaded", "active_state": "activating", "invocation_id": "a"},
        {"load_state": "loaded", "active_state": "failed", "invocation_id": "a"},
    ],
)
def test_units_that_are_looked_at(unit):
    assert _ready_before.not_waitable(unit) is None


@pytest.mark.parametrize(
    ("phase", "known", "phase_seconds", "elapsed", "over"),
    [
        ("weights", "weights", 30.0, 5.0, False),
        ("weights", "weights", 30.0, 10.0, True),
        ("pool", "weights", 0.1, 5.0, False),
        ("pool", "weights", 1.0, 5.0, False),
        ("pool", "weights", 3.0, 5.0, True),
        ("weights", None, 3.0, 5.0, False),
        ("warmup", "weights", 5.0, 20.0, False),
        ("completion", "weights", 5.0, 20.0, False),
        ("completion", "weights", 5.0, 149.0, False),
        ("completion", "weights", 5.0, 150.0, True),
        ("warmup", "warmup", 60.0, 60.0, True),
    ],
)
def test_when_a_slice_returns(phase, known, phase_seconds, elapsed, over):
    assert _ready.slice_is_over(phase, known, phase_seconds, elapsed, 10.0) is over


def test_the_witness_fills_in_only_what_the_journal_did_not_tell():
    startup, evidence = _ready.merged_startup(
        {"pool_tokens": None, "weights_gib": 4.0, "phase": "pool", "ranks": []},
        {"pool_tokens": 900, "weights_gib": 4.5},
    )
    assert (startup["pool_tokens"], startup["weights_gib"], evidence) == (900, 4.0, "server_info")
    assert startup["evidence"] == "server_info"
    startup, evidence = _ready.merged_startup({"pool_tokens": 5}, {"pool_tokens": 900})
    assert (startup["pool_tokens"], evidence) == (5, "journal")
    assert _ready.merged_startup({"pool_tokens": None}, None)[1] is None


def test_timeline_ends_with_the_completion():
    rows = _ready.timeline({"phases": [{"name": "weights", "began_at": 5.0, "seconds": 2.0}]}, (9.0, 0.25))
    assert rows == [
        {"phase": "weights", "at": 5.0, "seconds": 2.0},
        {"phase": "completion", "at": 9.0, "seconds": 0.25},
    ]
