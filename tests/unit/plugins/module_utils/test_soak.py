from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak
from ansible_collections.gpufleet.sglang.plugins.module_utils._soak import Limits, Served

LIMITS = Limits(seconds=20.0, requests=64, answer_tokens=16, concurrency=4)


def plan(context=2048, pool=80000, profile="short", limits=LIMITS, **served):
    phases = _soak.plan_phases(profile, Served(context, pool, **served), limits)
    return {phase.name: phase for phase in phases}


def test_the_order_of_the_phases():
    phases = plan(chunk_tokens=512, image=True)
    assert list(phases) == ["probe", "fill", "ladder", "context", "steady", "decode", "wave", "crowd", "image"]
    assert phases["context"].sizes[0] >= _soak.near_context_tokens(2048)
    assert [name for name, phase in phases.items() if phase.must] == ["context", "image"]
    assert [name for name, phase in phases.items() if phase.kept] == ["context", "wave", "crowd", "image"]


@pytest.mark.parametrize(
    ("context", "pool"), [(2048, 80000), (200000, 200000), (32768, 200000), (8192, 4096), (64, 1000), (40, 100)]
)
@pytest.mark.parametrize("profile", ["short", "full"])
@pytest.mark.parametrize("served", [{}, {"chunk_tokens": 8192}, {"chunk_tokens": 32, "running": 2, "dp_ranks": 3}])
def test_no_request_exceeds_what_the_server_takes(context, pool, profile, served):
    for phase in plan(context, pool, profile, **served).values():
        for size in phase.sizes:
            # srt/managers/tp_worker.py of 0.5.23: prompt < min(context, pool) - 6, prompt + answer <= min - 1
            assert 1 <= size < min(context, pool) - 6
            assert size + phase.answer_tokens <= min(context, pool) - 1


@pytest.mark.parametrize(("context", "pool"), [(8192, 80000), (200000, 200000), (262144, 218141)])
def test_the_fill_leaves_the_pool_nearly_full(context, pool):
    filled = sum(plan(context, pool)["fill"].sizes)
    assert 0.949 * pool < filled <= 0.95 * pool


def test_the_fill_is_no_spike_of_its_own():
    assert max(plan(200000, 200000)["fill"].sizes) == 25000


def test_full_is_more_than_short():
    short, full = plan(chunk_tokens=512), plan(profile="full", chunk_tokens=512)
    assert len(full["ladder"].sizes) > len(short["ladder"].sizes)
    assert len(full["wave"].sizes) > len(short["wave"].sizes)


@pytest.mark.parametrize(
    ("longest", "chunk", "full", "sizes"),
    [
        (200000, 8192, False, (8191, 8192, 8193, 32768)),
        (20000, 8192, False, (8191, 8192, 8193)),
        # No chunks, or larger ones than any prompt: doublings.
        (2000, None, False, (250, 500, 1000)),
        (2000, -1, False, (250, 500, 1000)),
        (2000, 8192, False, (250, 500, 1000)),
        (64000, 8192, True, (2000, 4000, 8000, 8191, 8192, 8193, 16000, 32000, 32768)),
    ],
)
def test_the_rungs_of_the_ladder(longest, chunk, full, sizes):
    assert _soak.rungs_of(longest, chunk, full) == sizes


def test_every_dp_rank_gets_the_whole_load():
    one, four = plan(chunk_tokens=512), plan(chunk_tokens=512, dp_ranks=4)
    assert four["context"].sizes == one["context"].sizes * 4
    assert (four["context"].concurrency, four["wave"].late, four["fill"].concurrency) == (4, 4, 8)
    assert sum(four["fill"].sizes) == 4 * sum(one["fill"].sizes)
    assert four["probe"] == one["probe"]
    # In turn: neighbours go to different ranks.
    assert four["ladder"].sizes[:4] == (511,) * 4


def test_the_wave_ends_with_a_long_prompt_that_meets_a_full_batch():
    wave = plan(context=32768, pool=200000)["wave"]
    assert (len(wave.sizes), wave.concurrency, wave.late) == (32, 32, 1)
    assert wave.sizes[-1] == 32768 - 16 - 8
    assert set(wave.sizes[:-1]) == {64}


def test_the_long_prompt_of_the_wave_leaves_room_for_the_batch():
    wave = plan(context=200000, pool=200000)["wave"]
    # 31 requests of 64 + 16 tokens, and as much again for them to grow.
    assert wave.sizes[-1] == 200000 - 2 * 31 * 80 - 16


@pytest.mark.parametrize(
    ("served", "concurrency", "batch"),
    [
        ({}, None, 32),
        ({}, 48, 48),
        ({"running": 8}, 48, 8),
        ({"device": "cpu"}, None, 4),
        ({"device": "cpu"}, 2, 2),
        # A pool of 1,000 tokens: three requests of 80 tokens have four times their room.
        ({"pool_tokens": 1000}, None, 3),
    ],
)
def test_the_size_of_a_batch(served, concurrency, batch):
    limits = Limits(answer_tokens=16, concurrency=concurrency)
    assert _soak.batch_of(Served(**{"context_tokens": 2048, "pool_tokens": 80000, **served}), limits) == batch


@pytest.mark.parametrize(("concurrency", "sizes"), [(None, ()), (4, (19000,) * 4), (1, (30000,)), (2, (30000, 30000))])
def test_the_crowd_is_what_was_declared(concurrency, sizes):
    assert _soak.crowd_sizes(30000, 80000, concurrency) == sizes


def test_a_cpu_is_not_asked_for_slow_growth():
    assert "steady" in plan()
    assert "steady" not in plan(device="cpu")


@pytest.mark.parametrize(
    ("speed", "seconds"),
    [
        # 1.5 times: 100,000 tokens at 1,000 a second, and 10 rounds of 4 steps of decode of 0.05 s.
        (1000, 1.5 * 102),
        (1e6, 60.0),
        (10, 900.0),
        (None, 60.0),
    ],
)
def test_the_bound_comes_from_the_speed(speed, seconds):
    phases = (_soak.Phase("ladder", (10000,) * 10, 1, 4),)
    assert _soak.seconds_needed(phases, speed) == pytest.approx(seconds)


def test_time_is_kept_for_what_must_be_done():
    phases = (_soak.Phase("context", (10000,), 1, 4, kept=True), _soak.Phase("steady", (64,) * 50, 1, 1))
    assert _soak.reserved_seconds(phases, 1000) == pytest.approx(1.5 * 10.2)
    # Ranks compute at once.
    both = (_soak.Phase("context", (10000, 10000), 2, 4, kept=True),)
    assert _soak.reserved_seconds(both, 1000, ranks=2) == pytest.approx(1.5 * 10.2)


@pytest.mark.parametrize(
    ("longest", "rungs", "sizes"),
    [(2000, 4, (250, 500, 1000, 2000)), (3, 4, (1, 3)), (1, 3, (1,)), (100, 1, (100,))],
)
def test_ladder(longest, rungs, sizes):
    assert _soak.ladder(longest, rungs) == sizes


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
