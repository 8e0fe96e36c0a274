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
from dataclasses import dataclass, replace

# SGLang 0.5.23 (srt/managers/tp_worker.py, managers/utils.py): a prompt must be shorter than
# min(context, pool) - 1 - 5, and prompt plus answer at most min(context, pool) - 1.
_RESERVED_TOKENS = 8

# A prompt counts as near the declared context from this share of it on.
NEAR_SHARE = 0.9

# Share of the pool up to which unique prompts fill the cache, and the share of the pool that one of them takes at most:
# the fill makes the cache dirty, the ladder comes with the long prompts.
FILL_SHARE = 0.95
FILL_PROMPT_SHARE = 0.125

# Declared and public deaths lie at 32k: a length that no ladder leaves out.
KNOWN_RUNG_TOKENS = 32768

# Requests at once that a wave has when nobody declared how many: of a GPU (SGLang captures graphs up to 160), of a CPU.
USUAL_BATCH = {"cuda": 32, "cpu": 4}

# Short prompts one after the other that show what a request takes for ever.
STEADY_REQUESTS = 48
SHORT_TOKENS = 64

# The bound in seconds when none is stated: so many times the estimate, at least and at most so many seconds.
AUTO_FACTOR, AUTO_LEAST_SECONDS, AUTO_MOST_SECONDS = 1.5, 60.0, 900.0

# A long prompt is slower per token than the probe: attention grows with its length.
RESERVE_FACTOR = 1.5

# A step of decode on a GPU that is no slower than most: for estimates only.
STEP_SECONDS = 0.05

# A GPU is busy with a prompt of 128 tokens for hardly less time than with one of 1,280.
PROBE_ALLOWANCE = 10.0

# Special tokens (begin, end, image, tools) stand at both ends of all known vocabularies; ids from between are plain.
_PLAIN_IDS = (0.1, 0.9)

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "za")


@dataclass(frozen=True)
class Limits:
    """The bounds of a soak; whichever is reached first ends it.

    ``seconds`` of the whole soak (None: as many as the plan needs at the speed that the probe measures), ``requests``
    sent, ``prompt_tokens`` sent in total. ``answer_tokens`` that each request of the wave decodes and ``concurrency``
    (None: nobody declared one) are the shape of the load. ``endurance_requests`` must be survived by what is left when
    each request keeps some memory.
    """

    seconds: float | None = None
    requests: int = 2048
    prompt_tokens: int | None = None
    answer_tokens: int = 32
    concurrency: int | None = None
    endurance_requests: int = 1000


@dataclass(frozen=True)
class Served:
    """What the server was found to be. ``chunk_tokens`` of chunked prefill and ``running`` (most requests that run at
    once) hold for one DP rank; None when they are not known."""

    context_tokens: int
    pool_tokens: int | None
    chunk_tokens: int | None = None
    running: int | None = None
    dp_ranks: int = 1
    device: str = "cuda"
    image: bool = False


@dataclass(frozen=True)
class Phase:
    """A part of the load: prompts of these lengths, so many at once, to be over at ``until`` (share of the seconds).

    Requests go to the DP ranks in turn, so ``sizes`` has each length once for every rank. ``kept``: nothing is proven
    when one of its requests is not answered, and the phases before leave time for it. ``must``, of a kept one: it goes
    on to the last second, and nothing is sent after it when it was not answered. ``late``: so many of the last requests
    are sent when all others have their first token, so that they meet a batch that decodes.
    """

    name: str
    sizes: tuple[int, ...]
    concurrency: int
    answer_tokens: int
    until: float = 1.0
    must: bool = False
    kept: bool = False
    late: int = 0


@dataclass(frozen=True)
class Ask:
    """One request to send. ``dp_rank``: None when the server takes its ranks in turn."""

    number: int
    phase: str
    tokens: int
    answer_tokens: int
    dp_rank: int | None = None


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


def rungs_of(longest_tokens, chunk_tokens, full):
    """The lengths of the ladder: the edges of a chunk, 32k, and in a full soak (or without a chunk) all doublings.

    >>> rungs_of(200000, 8192, False)
    (8191, 8192, 8193, 32768)
    """
    sizes = set()
    if chunk_tokens and chunk_tokens > 1:
        sizes |= {chunk_tokens - 1, chunk_tokens, chunk_tokens + 1}
    if full or not sizes or min(sizes) >= longest_tokens:
        sizes |= set(ladder(longest_tokens, 6 if full else 4))
    sizes.add(KNOWN_RUNG_TOKENS)
    # The longest of all is a phase of its own.
    return tuple(sorted(size for size in sizes if 0 < size < longest_tokens))


def plan_phases(profile, served, limits):
    """The phases of a soak, in order.

    Two short prompts measure the speed. Unique prompts fill the cache, which stays full and dirty from then on; the
    ladder climbs on it, up to the declared context. Short prompts one by one show slow growth; a full batch decodes,
    then decodes while one more prompt near the context is computed; the declared number of long requests ends it.

    :arg profile: ``short`` or ``full``; ``full`` has all rungs and two waves.
    :arg served: :class:`Served`. :arg limits: :class:`Limits`.
    :returns: tuple of :class:`Phase`.
    """
    answer, full, ranks = limits.answer_tokens, profile == "full", max(served.dp_ranks, 1)
    # What is computed alone decodes little: it measures the prefill.
    few = min(answer, 4)
    context, pool = served.context_tokens, served.pool_tokens
    longest = longest_prompt_tokens(context, pool, few)
    batch = batch_of(served, limits)
    short = max(min(SHORT_TOKENS, longest // 8), 1)
    fill = max(min(longest, int((pool or 0) * FILL_PROMPT_SHARE)), 1)
    fills = fill_sizes(pool, fill)
    shorts = (short,) * (batch - 1)
    beside = longest_beside(context, pool, answer, (batch - 1) * (short + answer))
    # A batch of one decodes under its own long prompt only.
    tail = (beside,) * (2 if full else 1)
    steady = STEADY_REQUESTS if served.device != "cpu" else 0
    crowd = crowd_sizes(longest_prompt_tokens(context, pool, answer), pool, limits.concurrency)
    phases = [
        Phase("probe", (max(min(128, longest // 8), 1), max(min(1024, longest // 4), 1)), 1, few, 0.3),
        Phase("fill", fills, 2, few, 0.7),
        Phase("ladder", rungs_of(longest, served.chunk_tokens, full), 1, few, 0.85),
        Phase("context", (longest,), 1, few, must=True, kept=True),
        Phase("steady", (short,) * steady, 1, 1),
        Phase("decode", (short,) * batch, batch, answer),
        Phase("wave", shorts + tail, batch, answer, kept=True, late=len(tail)),
        Phase("crowd", crowd, len(crowd), answer, kept=True),
        Phase("image", (short,) if served.image else (), 1, few, must=served.image, kept=True),
    ]
    return tuple(_for_ranks(phase, ranks) for phase in phases if phase.sizes)


def fill_sizes(pool_tokens, prompt_tokens):
    """Prompts that take the pool up to the share that makes it nearly full; none for a pool that is not known.

    >>> fill_sizes(1000, 300)
    (300, 300, 300, 50)
    """
    whole, rest = divmod(int((pool_tokens or 0) * FILL_SHARE), prompt_tokens)
    return (prompt_tokens,) * whole + ((rest,) if rest else ())


def _for_ranks(phase, ranks):
    """The phase on every DP rank at once. One image and one probe are enough."""
    if phase.name in ("image", "probe"):
        return phase
    return replace(
        phase,
        sizes=tuple(size for size in phase.sizes for dummy in range(ranks)),
        concurrency=phase.concurrency * ranks,
        late=phase.late * ranks,
    )


def batch_of(served, limits):
    """How many requests a full batch has, on one DP rank."""
    batch = max(limits.concurrency or 0, USUAL_BATCH.get(served.device, 4))
    if limits.concurrency and served.device == "cpu":
        batch = limits.concurrency
    # A pool that is small for the batch would only make a queue.
    by_pool = (served.pool_tokens or batch * 1024) // (4 * (SHORT_TOKENS + limits.answer_tokens))
    return max(min(batch, served.running or batch, by_pool), 1)


def longest_beside(context_tokens, pool_tokens, answer_tokens, taken_tokens):
    """The longest prompt that fits into the pool beside requests that take ``taken_tokens`` of it."""
    longest = longest_prompt_tokens(context_tokens, pool_tokens, answer_tokens)
    # The batch may also keep what it has promised: twice its tokens are left to it.
    return max(min(longest, pool_tokens - 2 * taken_tokens - answer_tokens if pool_tokens else longest), 1)


def crowd_sizes(longest_tokens, pool_tokens, concurrency):
    """The declared number of requests at once, as long as the pool holds all of them; none when none was declared."""
    if not concurrency:
        return ()
    share = int((pool_tokens or longest_tokens * concurrency) * FILL_SHARE) // concurrency
    return (max(min(longest_tokens, share), 1),) * concurrency


def seconds_of(tokens, tokens_per_second):
    """How long so many prompt tokens take on one DP rank; 0 when no speed is known."""
    return tokens / tokens_per_second if tokens_per_second else 0.0


def phase_seconds(phase, tokens_per_second, ranks=1):
    """About how long a phase takes: its prompts, and its steps of decode."""
    rounds = -(-len(phase.sizes) // max(phase.concurrency, 1))
    return seconds_of(sum(phase.sizes) / ranks, tokens_per_second) + rounds * phase.answer_tokens * STEP_SECONDS


def seconds_needed(phases, tokens_per_second, ranks=1):
    """The bound that lets the plan end, when none was stated: minutes at most."""
    needed = sum(phase_seconds(phase, tokens_per_second, ranks) for phase in phases)
    return min(max(AUTO_FACTOR * needed, AUTO_LEAST_SECONDS), AUTO_MOST_SECONDS)


def reserved_seconds(later_phases, tokens_per_second, ranks=1):
    """The seconds that the phases to come must find."""
    kept = sum(phase_seconds(phase, tokens_per_second, ranks) for phase in later_phases if phase.kept)
    return RESERVE_FACTOR * kept


def sparing(limits, later_phases):
    """The limits of a phase that leaves requests and prompt tokens to the phases to come that must find them."""
    kept = [size for phase in later_phases if phase.kept for size in phase.sizes]
    tokens = None if limits.prompt_tokens is None else limits.prompt_tokens - sum(kept)
    return replace(limits, requests=limits.requests - len(kept), prompt_tokens=tokens)


def first_bound(limits, elapsed_seconds, requests, prompt_tokens):
    """The name of the bound that is reached, or None."""
    if limits.seconds is not None and elapsed_seconds >= limits.seconds:
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
