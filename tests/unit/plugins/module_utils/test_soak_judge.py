from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak_judge, _soak_seen
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak import Ask, Limits, Phase
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak_judge import Outcome
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak_seen import Growth, Samples

LIMITS = Limits(seconds=20.0, requests=64, answer_tokens=16, concurrency=4)


def answered(number, phase, tokens, began, first, ended, answer=4, cached=0):
    return Outcome(number, phase, tokens, "answered", tokens, cached, answer, began, first, ended)


OUTCOMES = [
    answered(0, "probe", 250, 0.0, 0.5, 0.6),
    answered(1, "context", 2000, 0.6, 2.6, 2.8),
    answered(2, "ladder", 1000, 3.0, 4.0, 4.1, cached=0),
    answered(3, "decode", 60, 5.0, 6.0, 9.0, answer=16),
    answered(4, "decode", 60, 5.0, 5.5, 8.0, answer=16),
    Outcome(5, "wave", 60, "cut", began=8.0, ended=9.0),
]


def test_summary():
    summary = _soak_judge.summarize(OUTCOMES, 1844)
    assert (summary["requests"], summary["answered"], summary["cut"], summary["failures"]) == (6, 5, 1, 0)
    assert (summary["longest_prompt_tokens"], summary["near_answered"], summary["ttft_seconds"]) == (2000, True, 2.0)
    assert summary["prefill_tokens_per_second"] == 1000.0
    # From 6.0 on both decode: 15 tokens of the one, 15 x 2.0 / 2.5 of the other, in three seconds.
    assert summary["decode_tokens_per_second"] == 9.0
    assert [phase["name"] for phase in summary["phases"]] == ["probe", "context", "ladder", "decode", "wave"]
    assert [phase["requests"] for phase in summary["phases"]] == [1, 1, 1, 2, 1]


def test_the_speed_is_that_of_long_prompts():
    short = answered(7, "ladder", 100, 0.0, 1.0, 1.0)
    assert _soak_judge.summarize([*OUTCOMES, short], 1844)["prefill_tokens_per_second"] == 1000.0


def test_summary_of_nothing():
    summary = _soak_judge.summarize([], 100)
    assert (summary["requests"], summary["near_answered"], summary["prefill_tokens_per_second"]) == (0, False, None)


def test_how_full_the_cache_was_before_the_long_prompt():
    # Only the probe was sent before it.
    assert _soak_judge.filled_share(OUTCOMES, 1000) == 0.25
    assert _soak_judge.filled_share(OUTCOMES, 1000, 5) == 0.05
    assert _soak_judge.filled_share(OUTCOMES, None) is None
    assert _soak_judge.filled_share([answered(0, "fill", 900, 0.0, 1.0, 1.0)], 100, 4) == 1.0


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


def gappy(seconds):
    found = samples(b0=5.0)
    found.add(3.0 + seconds, {})
    return found


def judge(outcomes=None, found=None, failure=None, bound=None, floor=None, error=None, near=1844, pool=80000, **more):
    summary = _soak_judge.summarize(OUTCOMES if outcomes is None else outcomes, near, more.pop("phases", ()))
    found = found or samples(b0=5.0)
    return _soak_judge.judge_soak(summary, found, failure, bound, LIMITS, near, floor, error, pool, **more)


@pytest.mark.parametrize(
    ("changes", "verdict", "kind", "words"),
    [
        ({}, "proven", None, "2000 tokens"),
        ({"floor": 4.0}, "proven", None, "5.00 GiB"),
        ({"floor": 6.0}, "unsafe", None, "6.00 GiB"),
        ({"floor": 4.0, "found": Samples()}, "failed", "no_evidence", "sampled"),
        ({"bound": "seconds"}, "proven", None, ""),
        (
            {"bound": "seconds", "phases": [Phase("wave", (60,) * 9, 9, 16)]},
            "proven",
            None,
            "the bound in seconds of the load left no room for all of: wave",
        ),
        (
            {"phases": [Phase("fill", (60,) * 9, 1, 4)]},
            "proven",
            None,
            "the bounds of the load left no room for all of: fill",
        ),
        (
            {"bound": "requests", "phases": [Phase("context", (2000,) * 2, 1, 4, must=True, kept=True)]},
            "failed",
            "no_evidence",
            "Not all requests of context were answered: the bound of 64 requests was reached first.",
        ),
        (
            {"phases": [Phase("fill", (60,) * 9, 1, 4)], "filled": 0.263},
            "proven",
            None,
            "left no room for all of: fill, so the cache was filled to 26% only.",
        ),
        ({"watch_error": "No space left"}, "failed", "no_evidence", "could not be watched under load"),
        ({"found": gappy(9.0), "floor": 1.0}, "proven", None, ""),
        ({"found": gappy(11.0), "floor": 1.0}, "failed", "no_evidence", "could not be sampled for 11 s"),
        ({"growth": Growth("3", 1.5, 400)}, "unsafe", None, "Board 3 loses 1.50 MiB with each request"),
        ({"growth": Growth("3", 1.5, 1000)}, "proven", None, ""),
        ({"unreached": [1, 2]}, "failed", "no_evidence", "DP rank 1, 2 got no request"),
        (
            {"error": "Out of memory even after retracting all other requests in the decode batch. Aborting."},
            "short",
            None,
            "too small for the load",
        ),
        ({"outcomes": OUTCOMES[:1], "bound": "seconds"}, "failed", "no_evidence", "bound of 20 seconds"),
        ({"outcomes": OUTCOMES[:1], "bound": "requests"}, "failed", "no_evidence", "bound of 64 requests"),
        ({"outcomes": OUTCOMES[:1], "error": "status 400: too long"}, "failed", "no_evidence", "too long"),
        ({"outcomes": OUTCOMES[:1], "pool": 1000}, "failed", "no_evidence", "the pool holds 1000"),
        ({"outcomes": [Outcome(0, "context", 2000, "failed")], "error": "reset"}, "failed", "unknown", "reset"),
        # A broken connection says more than a pool that is small for the context.
        (
            {"outcomes": [Outcome(0, "context", 2000, "failed")], "error": "reset", "pool": 9},
            "failed",
            "unknown",
            "reset",
        ),
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
    request = {"number": 7, "phase": "context", "prompt_tokens": 32000, "concurrency": 2}
    judged = judge(failure={"kind": "oom_prefill", "direction": "lower", "evidence": "x", "request": request})
    assert "32000 tokens (phase context, 2 at once)" in judged["reason"]


@pytest.mark.parametrize(
    ("outcomes", "in_flight", "request_"),
    [
        (
            [],
            [Ask(3, "wave", 60, 16), Ask(4, "wave", 9000, 16, 1)],
            {"number": 4, "phase": "wave", "prompt_tokens": 9000, "concurrency": 2, "dp_rank": 1},
        ),
        (
            [Outcome(2, "context", 2000, "failed")],
            [Ask(2, "context", 2000, 4)],
            {"number": 2, "phase": "context", "prompt_tokens": 2000, "concurrency": 1},
        ),
        # Of equal ones the first.
        (
            [Outcome(5, "wave", 60, "failed"), Outcome(4, "wave", 60, "failed")],
            [],
            {"number": 4, "phase": "wave", "prompt_tokens": 60, "concurrency": 2},
        ),
        ([Outcome(2, "context", 2000, "answered")], [], None),
    ],
)
def test_the_suspect(outcomes, in_flight, request_):
    assert _soak_judge.suspect(outcomes, in_flight) == request_


def marks(*free, step=8):
    return [(place * step, {"0": gib, "1": 9.0}) for place, gib in enumerate(free)]


def test_what_each_request_keeps_is_slow_growth():
    # A MiB for each of 48 requests; 512 MiB were the least.
    free = [4.0 - place * 8 / 1024 for place in range(7)]
    growth = _soak_seen.growth_of(marks(*free), samples(b0=0.5, b1=8.0))
    assert (growth.board, growth.mib_per_request, growth.lasts_requests) == ("0", 1.0, 512)


def test_dp_ranks_share_the_requests():
    free = [4.0 - place * 8 / 1024 for place in range(7)]
    assert _soak_seen.growth_of(marks(*free, step=16), samples(b0=0.5), ranks=2).mib_per_request == 1.0


@pytest.mark.parametrize(
    "free",
    [
        [4.0] * 7,
        # A block of the allocator, once.
        [4.0, 3.9, 3.9, 3.9, 3.9, 3.9, 3.9],
        [4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.9],
        # Noise of two MiB, and memory that comes back.
        [4.0, 4.0, 4.0, 3.999, 3.999, 3.999, 3.998],
        [4.0, 3.9, 3.8, 3.7, 3.8, 3.9, 4.0],
        [4.0, 3.9],
        [],
    ],
)
def test_what_is_no_growth(free):
    assert _soak_seen.growth_of(marks(*free), samples(b0=0.5)) is None
