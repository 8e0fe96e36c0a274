from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak import Limits

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
    ("tokens", "speed", "left", "too_long"),
    [
        (2000, 1000, 1.0, False),
        (200001, 1000, 20.0, True),
        (200000, None, 1.0, False),
        (10001, 1000, 1.0, True),
        (9999, 1000, 1.0, False),
    ],
)
def test_a_bound_that_is_surely_too_short_is_not_waited_for(tokens, speed, left, too_long):
    assert _soak.is_surely_too_long(tokens, speed, left) is too_long


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
