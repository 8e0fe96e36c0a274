# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load. Which prompts are sent in which order, and when it is over.

Private to the gpufleet.sglang collection; may change at any time.

Pure: no clock, no network. ``_soak_run`` sends what is planned here, ``_soak_judge`` says what came of it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

# SGLang 0.5.23 (srt/managers/tp_worker.py, managers/utils.py): a prompt must be shorter than
# min(context, pool) - 1 - 5, and prompt plus answer at most min(context, pool) - 1.
_RESERVED_TOKENS = 8

# A prompt counts as near the declared context from this share of it on.
NEAR_SHARE = 0.9

# Share of the pool up to which unique prompts fill the cache.
FILL_SHARE = 0.95

# A GPU is busy with a prompt of 128 tokens for hardly less time than with one of 1,280.
PROBE_ALLOWANCE = 10.0

# Special tokens (begin, end, image, tools) stand at both ends of all known vocabularies; ids from between are plain.
_PLAIN_IDS = (0.1, 0.9)

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za")


@dataclass(frozen=True)
class Limits:
    """The bounds of a soak; whichever is reached first ends it.

    ``seconds`` of the whole soak, ``requests`` sent, ``prompt_tokens`` sent in total; ``answer_tokens`` that each
    request of the wave decodes and ``concurrency`` of the wave are the shape of the load.
    """

    seconds: float = 120.0
    requests: int = 64
    prompt_tokens: int | None = None
    answer_tokens: int = 32
    concurrency: int = 4


@dataclass(frozen=True)
class Phase:
    """A part of the load: prompts of these lengths, so many at once, to be over at ``until`` (share of the seconds).

    ``must``: the soak proves nothing without it, so it may use all of the time.
    """

    name: str
    sizes: tuple[int, ...]
    concurrency: int
    answer_tokens: int
    until: float
    must: bool = False


def longest_prompt_tokens(context_tokens, pool_tokens, answer_tokens):
    """The longest prompt that the server takes together with an answer of ``answer_tokens``."""
    room = min(context_tokens, pool_tokens) if pool_tokens else context_tokens
    return max(room - answer_tokens - _RESERVED_TOKENS, 1)


def near_context_tokens(context_tokens):
    """From how many prompt tokens on a prompt is near the declared context."""
    return int(math.ceil(context_tokens * NEAR_SHARE))


def ladder(longest_tokens, rungs):
    """Lengths that double up to the longest prompt, shortest first, without repeats.

    >>> ladder(2000, 4)
    (250, 500, 1000, 2000)
    """
    sizes = []
    for step in range(rungs - 1, -1, -1):
        size = max(longest_tokens >> step, 1)
        if size not in sizes:
            sizes.append(size)
    return tuple(sizes)


def plan_phases(profile, context_tokens, pool_tokens, limits):
    """The phases of a soak, in order.

    A short prompt measures the speed; the near-context prompt comes next, so that a short bound still proves the
    declared context; then the cache is filled, and the ladder climbs again on the full and
    dirty cache; the wave ends it.

    :arg profile: ``short`` or ``full``; ``full`` has more rungs and a longer wave, and its own, looser time shares.
    :returns: tuple of :class:`Phase`.
    """
    answer = limits.answer_tokens
    # The probes decode little: what they measure is the prefill. Their memory is that of the longest prompt.
    few = min(answer, 4)
    longest = longest_prompt_tokens(context_tokens, pool_tokens, few)
    full = profile == "full"
    fill = max(int(pool_tokens * FILL_SHARE) // longest - 1, 0) if pool_tokens else 0
    wave_longest = longest_prompt_tokens(context_tokens, pool_tokens, answer)
    phases = [
        Phase("probe", (max(min(128, longest // 8), 1),), 1, few, 1.0, must=True),
        Phase("context", (longest,), 1, few, 1.0, must=True),
        Phase("fill", (longest,) * fill, min(limits.concurrency, 2), few, 0.6 if full else 0.45),
        Phase("ladder", ladder(longest, 6 if full else 4), 1, few, 0.8 if full else 0.65),
        Phase(
            "wave", wave_sizes(wave_longest, limits.concurrency * (6 if full else 2)), limits.concurrency, answer, 1.0
        ),
    ]
    return tuple(phase for phase in phases if phase.sizes)


def wave_sizes(longest_tokens, count):
    """Long and short prompts in turn: a half of the longest, a short one, a quarter, a short one, ..."""
    short = max(min(64, longest_tokens // 8), 1)
    shares = (2, None, 4, None, 8, None)
    sizes = [shares[index % len(shares)] for index in range(count)]
    return tuple(
        short + index if share is None else max(longest_tokens // share, 1) for index, share in enumerate(sizes)
    )


def first_bound(limits, elapsed_seconds, requests, prompt_tokens):
    """The name of the bound that is reached, or None."""
    if elapsed_seconds >= limits.seconds:
        return "seconds"
    if requests >= limits.requests:
        return "requests"
    if limits.prompt_tokens is not None and prompt_tokens >= limits.prompt_tokens:
        return "prompt_tokens"
    return None


def is_surely_too_long(tokens, tokens_per_second, seconds_left):
    """Whether a prompt surely takes more seconds than are left. An unknown speed (None) makes nothing sure.

    A short prompt underestimates the speed of a long one, so many times its speed is allowed before giving up.
    """
    if not tokens_per_second:
        return False
    return tokens / (PROBE_ALLOWANCE * tokens_per_second) > seconds_left


def prompt_ids(seed, number, count, vocab_size):
    """``count`` random plain token ids; no two (seed, number) share a prefix, so the cache cannot answer."""
    low, high = int(vocab_size * _PLAIN_IDS[0]), max(int(vocab_size * _PLAIN_IDS[1]), 1)
    return random.Random(f"{seed}-{number}").choices(range(low, max(high, low + 1)), k=count)


def prompt_text(seed, number, words):
    """Random words, for a server whose vocabulary is not known. How many tokens they are, the probe measures."""
    source = random.Random(f"{seed}-{number}")
    return " ".join("".join(source.choices(_SYLLABLES, k=3)) for dummy in range(words))


def words_for(tokens, tokens_per_word):
    """How many words surely do not exceed ``tokens``: 2 % less than measured."""
    return max(int(tokens / tokens_per_word * 0.98), 1)
