from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak_judge
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak import Limits
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak_judge import Outcome, Samples

LIMITS = Limits(seconds=20.0, requests=64, answer_tokens=16, concurrency=4)


def answered(number, phase, tokens, began, first, ended, answer=4, cached=0):
    return Outcome(number, phase, tokens, "answered", tokens, cached, answer, began, first, ended)


OUTCOMES = [
    answered(0, "probe", 250, 0.0, 0.5, 0.6),
    answered(1, "context", 2000, 0.6, 2.6, 2.8),
    answered(2, "ladder", 1000, 3.0, 4.0, 4.1, cached=0),
    answered(3, "wave", 500, 5.0, 6.0, 9.0, answer=16),
    answered(4, "wave", 60, 5.0, 5.5, 8.0, answer=16),
    Outcome(5, "wave", 60, "cut", began=8.0, ended=9.0),
]


def test_summary():
    summary = _soak_judge.summarize(OUTCOMES, 1844)
    assert (summary["requests"], summary["answered"], summary["cut"], summary["failures"]) == (6, 5, 1, 0)
    assert (summary["longest_prompt_tokens"], summary["near_answered"], summary["ttft_seconds"]) == (2000, True, 2.0)
    assert summary["prefill_tokens_per_second"] == 1000.0
    assert summary["decode_tokens_per_second"] == round(31 / 3.5, 1)
    assert [phase["name"] for phase in summary["phases"]] == ["probe", "context", "ladder", "wave"]
    assert summary["phases"][-1]["requests"] == 3


def test_summary_of_nothing():
    summary = _soak_judge.summarize([], 100)
    assert (summary["requests"], summary["near_answered"], summary["prefill_tokens_per_second"]) == (0, False, None)


def samples(**least):
    found = Samples()
    for board, gib in least.items():
        found.add(1.0, {board.lstrip("b"): gib + 1})
        found.add(2.0, {board.lstrip("b"): gib})
        found.add(3.0, {board.lstrip("b"): gib + 0.5})
    return found


def test_the_least_of_each_board_and_when():
    found = samples(b0=5.0, b1=4.0)
    assert found.least_free_gib == {"0": 5.0, "1": 4.0}
    assert found.tightest() == ("1", 4.0, 2.0)
    assert Samples().tightest() is None


def judge(outcomes=None, found=None, failure=None, bound=None, floor=None, error=None, near=1844, pool=80000):
    summary = _soak_judge.summarize(OUTCOMES if outcomes is None else outcomes, near)
    return _soak_judge.judge_soak(summary, found or samples(b0=5.0), failure, bound, LIMITS, near, floor, error, pool)


@pytest.mark.parametrize(
    ("changes", "verdict", "kind", "words"),
    [
        ({}, "proven", None, "2000 tokens"),
        ({"floor": 4.0}, "proven", None, "5.00 GiB"),
        ({"floor": 6.0}, "unsafe", None, "6.00 GiB"),
        ({"floor": 4.0, "found": Samples()}, "failed", "no_evidence", "sampled"),
        ({"bound": "seconds"}, "proven", None, ""),
        ({"outcomes": OUTCOMES[:1], "bound": "seconds"}, "failed", "no_evidence", "bound of 20 seconds"),
        ({"outcomes": OUTCOMES[:1], "bound": "requests"}, "failed", "no_evidence", "bound of 64 requests"),
        ({"outcomes": OUTCOMES[:1], "error": "status 400: too long"}, "failed", "no_evidence", "too long"),
        ({"outcomes": OUTCOMES[:1], "pool": 1000}, "failed", "no_evidence", "the pool holds 1000"),
        ({"outcomes": [Outcome(0, "context", 2000, "failed")], "error": "reset"}, "failed", "unknown", "reset"),
        (
            {"outcomes": [*OUTCOMES, Outcome(9, "wave", 60, "failed")], "error": "status 500"},
            "failed",
            "unknown",
            "1 of 7 requests",
        ),
        (
            {"failure": {"kind": "oom_prefill", "direction": "lower", "evidence": "CUDA out of memory"}},
            "unsafe",
            "oom_prefill",
            "CUDA out of memory",
        ),
        (
            {"failure": {"kind": "kv_pool_too_small", "direction": "raise", "evidence": "x"}},
            "short",
            "kv_pool_too_small",
            "x",
        ),
        ({"failure": {"kind": "watchdog_hang", "direction": "keep", "evidence": "x"}}, "failed", "watchdog_hang", "x"),
        # A direction alone is no memory death.
        ({"failure": {"kind": "bad_args", "direction": "lower", "evidence": "x"}}, "failed", "bad_args", "x"),
    ],
)
def test_verdicts(changes, verdict, kind, words):
    judged = judge(**changes)
    assert judged["verdict"] == verdict
    assert (judged["failure"] or {}).get("kind") == kind
    assert words in judged["reason"]


def test_a_death_names_the_request_that_caused_it():
    request = {"number": 7, "phase": "context", "wanted_tokens": 32000}
    judged = judge(failure={"kind": "oom_prefill", "direction": "lower", "evidence": "x", "request": request})
    assert "32000 tokens (phase context)" in judged["reason"]


@pytest.mark.parametrize(
    ("outcomes", "in_flight", "number"),
    [
        ([], [(3, "wave", 60), (4, "wave", 9000)], 4),
        ([Outcome(2, "context", 2000, "failed")], [], 2),
        ([Outcome(2, "context", 2000, "answered")], [], None),
    ],
)
def test_the_suspect(outcomes, in_flight, number):
    found = _soak_judge.suspect(outcomes, in_flight)
    assert (found or {}).get("number") == number
