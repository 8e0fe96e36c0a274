from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak import Limits, Outcome, Samples

LIMITS = Limits(seconds=20.0, requests=64, answer_tokens=16, concurrency=4)


def plan(context=2048, pool=80000, profile="short", limits=LIMITS):
    return {phase.name: phase for phase in _soak.plan_phases(profile, context, pool, limits)}


def test_the_near_context_prompt_comes_second_and_may_use_all_of_the_time():
    phases = _soak.plan_phases("short", 2048, 80000, LIMITS)
    assert [phase.name for phase in phases] == ["probe", "context", "fill", "ladder", "wave"]
    assert phases[1].sizes[0] >= _soak.near_context_tokens(2048)
    assert (phases[1].must, phases[1].until) == (True, 1.0)


@pytest.mark.parametrize(
    ("context", "pool"), [(2048, 80000), (200000, 200000), (32768, 200000), (8192, 4096), (64, 1000)]
)
@pytest.mark.parametrize("profile", ["short", "full"])
def test_no_request_exceeds_what_the_server_takes(context, pool, profile):
    for phase in _soak.plan_phases(profile, context, pool, LIMITS):
        for size in phase.sizes:
            # srt/managers/tp_worker.py of 0.5.23: prompt < min(context, pool) - 6, prompt + answer <= min - 1
            assert 1 <= size < min(context, pool) - 6
            assert size + phase.answer_tokens <= min(context, pool) - 1


def test_the_fill_leaves_the_pool_nearly_full():
    phases = plan(context=8192, pool=80000)
    filled = sum(phases["context"].sizes) + sum(phases["fill"].sizes)
    assert 0.8 * 80000 < filled <= 0.95 * 80000


def test_a_pool_of_one_request_needs_no_fill():
    assert "fill" not in plan(context=200000, pool=200000)


def test_full_is_more_than_short():
    short, full = plan(), plan(profile="full")
    assert len(full["ladder"].sizes) > len(short["ladder"].sizes)
    assert len(full["wave"].sizes) > len(short["wave"].sizes)


@pytest.mark.parametrize(
    ("longest", "rungs", "sizes"),
    [(2000, 4, (250, 500, 1000, 2000)), (3, 4, (1, 3)), (1, 3, (1,)), (100, 1, (100,))],
)
def test_ladder(longest, rungs, sizes):
    assert _soak.ladder(longest, rungs) == sizes


def test_the_wave_has_long_and_short_prompts():
    sizes = _soak.wave_sizes(2000, 8)
    assert len(sizes) == 8
    assert max(sizes) == 1000
    assert min(sizes) < 100


@pytest.mark.parametrize(
    ("elapsed", "requests", "tokens", "bound"),
    [
        (1, 1, 1, None),
        (20, 1, 1, "seconds"),
        (1, 64, 1, "requests"),
        (1, 1, 500, "prompt_tokens"),
        (19.9, 63, 499, None),
    ],
)
def test_the_first_bound(elapsed, requests, tokens, bound):
    assert _soak.first_bound(Limits(20.0, 64, 500), elapsed, requests, tokens) == bound


@pytest.mark.parametrize(
    ("tokens", "speed", "left", "too_short"),
    [
        (2000, 1000, 1.0, False),
        (200001, 1000, 20.0, True),
        (200000, None, 1.0, False),
        (10001, 1000, 1.0, True),
        (9999, 1000, 1.0, False),
    ],
)
def test_a_bound_that_is_surely_too_short_is_not_waited_for(tokens, speed, left, too_short):
    assert (_soak.too_short_for(tokens, speed, left) is not None) is too_short


def test_prompts_are_unique_from_the_first_token_on_and_avoid_special_tokens():
    prompts = [_soak.prompt_ids("seed", number, 50, 49152) for number in range(20)]
    assert len({tuple(prompt[:4]) for prompt in prompts}) == 20
    assert all(4915 <= token < 44237 for prompt in prompts for token in prompt)
    assert _soak.prompt_ids("seed", 3, 50, 49152) == prompts[3]
    assert _soak.prompt_ids("other", 3, 50, 49152) != prompts[3]


@pytest.mark.parametrize("vocab", [1, 2, 11])
def test_a_tiny_vocabulary_still_gives_ids_of_it(vocab):
    assert all(0 <= token < vocab for token in _soak.prompt_ids("s", 1, 20, vocab))


def test_word_prompts_are_unique():
    assert _soak.prompt_text("s", 1, 5) != _soak.prompt_text("s", 2, 5)
    assert len(_soak.prompt_text("s", 1, 5).split()) == 5
    assert _soak.words_for(1000, 2.5) < 400


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
    summary = _soak.summarize(OUTCOMES, 1844)
    assert (summary["requests"], summary["answered"], summary["cut"], summary["failures"]) == (6, 5, 1, 0)
    assert (summary["longest_prompt_tokens"], summary["near_answered"], summary["ttft_seconds"]) == (2000, True, 2.0)
    assert summary["prefill_tokens_per_second"] == 1000.0
    assert summary["decode_tokens_per_second"] == round(31 / 3.5, 1)
    assert [phase["name"] for phase in summary["phases"]] == ["probe", "context", "ladder", "wave"]
    assert summary["phases"][-1]["requests"] == 3


def test_summary_of_nothing():
    summary = _soak.summarize([], 100)
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
    summary = _soak.summarize(OUTCOMES if outcomes is None else outcomes, near)
    return _soak.judge_soak(summary, found or samples(b0=5.0), failure, bound, LIMITS, near, floor, error, pool)


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
    found = _soak.suspect(outcomes, in_flight)
    assert (found or {}).get("number") == number


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("[2026-11-29 17:08:42] KV cache pool is full. Retract requests. #retracted_reqs: 1", True),
        ("Decode out of memory happened. #retracted_reqs: 1", True),
        ("[2026-11-29 17:08:42] Decode batch, #running-req: 1", False),
    ],
)
def test_retractions(line, is_one):
    assert bool(_soak.RETRACTION.search(line)) is is_one
