# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, its verdict. What became of the requests, what the samples say, and what that proves.

Private to the gpufleet.sglang collection; may change at any time.

Pure: no clock, no network.
"""

from __future__ import annotations

import collections
import math
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gpufleet.sglang.plugins.module_utils._failures import MEMORY_KINDS
from ansible_collections.gpufleet.sglang.plugins.module_utils._ready import failure_record
from ansible_collections.gpufleet.sglang.plugins.module_utils._verdict import VERDICT_BY_DIRECTION


@dataclass(frozen=True)
class Outcome:
    """What became of one request. Times are seconds since the soak began.

    ``status``: answered; refused (status 4xx: the server did not take it); failed (error, or the connection ended);
    cut (a bound of the soak ended it).
    """

    number: int
    phase: str
    wanted_tokens: int
    status: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    began: float = 0.0
    first_token_at: float | None = None
    ended: float = 0.0
    error: str | None = None
    dp_rank: int | None = None

    @property
    def ttft_seconds(self):
        return None if self.first_token_at is None else self.first_token_at - self.began

    def as_dict(self):
        return {key: value for key, value in asdict(self).items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------
# What the samples say


def summarize(outcomes, near_tokens, phases=()):
    """The figures of a soak.

    :arg outcomes: list of :class:`Outcome`. :arg near_tokens: from where on a prompt is near the declared context.
    :arg phases: the :class:`Phase` s that were planned.
    :returns: dictionary with speeds, counts, ``longest_prompt_tokens`` (answered), ``near_answered``, ``phases`` and
        ``missing``, the names of phases without which nothing is proven and that were not answered whole.
    """
    answered = [outcome for outcome in outcomes if outcome.status == "answered"]
    longest = max(answered, key=lambda outcome: outcome.prompt_tokens) if answered else None
    return {
        "requests": len(outcomes),
        "answered": len(answered),
        "failures": sum(1 for outcome in outcomes if outcome.status in ("failed", "refused")),
        "broken": sum(1 for outcome in outcomes if outcome.status == "failed"),
        "cut": sum(1 for outcome in outcomes if outcome.status == "cut"),
        "prompt_tokens": sum(outcome.prompt_tokens for outcome in answered),
        "longest_prompt_tokens": longest.prompt_tokens if longest else 0,
        "near_answered": bool(longest) and longest.prompt_tokens >= near_tokens,
        "ttft_seconds": _rounded(longest.ttft_seconds if longest else None, 3),
        "prefill_tokens_per_second": _rounded(_prefill_speed(answered), 1),
        "decode_tokens_per_second": _rounded(_decode_speed(answered), 1),
        "phases": _by_phase(outcomes, phases),
        "missing": _missing(answered, phases),
    }


def _missing(answered, phases):
    count = collections.Counter(outcome.phase for outcome in answered)
    return [phase.name for phase in phases if phase.kept and count[phase.name] < len(phase.sizes)]


def filled_share(outcomes, pool_tokens, ranks=1):
    """The share of the pool that unique prompts had filled before the one near the context was sent, at most 1.

    :arg outcomes: list of :class:`Outcome`. :arg pool_tokens: of one DP rank, or None: then None.
    """
    if not pool_tokens:
        return None
    near_at = min((outcome.began for outcome in outcomes if outcome.phase == "context"), default=math.inf)
    before = [outcome for outcome in outcomes if outcome.status == "answered" and outcome.began < near_at]
    tokens = sum(outcome.prompt_tokens - outcome.cached_tokens for outcome in before)
    return round(min(tokens / float(pool_tokens * ranks), 1.0), 2)


def _rounded(value, digits):
    return None if value is None else round(value, digits)


def _prefill_speed(answered):
    """Tokens per second until the first token, of the prompts that were sent alone."""
    alone = [outcome for outcome in answered if outcome.phase in ("context", "ladder") and outcome.ttft_seconds]
    # A chunk's edge is over before it is measured well: what is long tells the speed.
    longest = max((outcome.prompt_tokens for outcome in alone), default=0)
    alone = [outcome for outcome in alone if outcome.prompt_tokens >= longest // 4]
    seconds = sum(outcome.ttft_seconds for outcome in alone)
    tokens = sum(outcome.prompt_tokens - outcome.cached_tokens for outcome in alone)
    return tokens / seconds if seconds > 0 and tokens > 0 else None


def _decode_speed(answered):
    """Tokens per second of the whole server while a full batch decodes and nothing else runs."""
    batch = [outcome for outcome in answered if outcome.phase == "decode" and outcome.first_token_at is not None]
    if not batch:
        return None
    # From the moment on when all of them decode.
    began = max(outcome.first_token_at for outcome in batch)
    ended = max(outcome.ended for outcome in batch)
    tokens = sum(
        (outcome.answer_tokens - 1) * (outcome.ended - began) / (outcome.ended - outcome.first_token_at)
        for outcome in batch
        if outcome.ended > began
    )
    return tokens / (ended - began) if ended > began and tokens > 0 else None


def _by_phase(outcomes, phases):
    planned = {phase.name: len(phase.sizes) for phase in phases}
    for outcome in outcomes:
        planned.setdefault(outcome.phase, None)
    return [
        _phase_row(name, count, [each for each in outcomes if each.phase == name]) for name, count in planned.items()
    ]


def _phase_row(name, planned, own):
    good = [outcome for outcome in own if outcome.status == "answered"]
    waits = sorted(outcome.ttft_seconds for outcome in good if outcome.ttft_seconds is not None)
    began = min((outcome.began for outcome in own), default=None)
    return {
        "name": name,
        "at": _rounded(began, 2),
        "seconds": round(max(outcome.ended for outcome in own) - began, 2) if own else 0.0,
        "planned": planned,
        "requests": len(own),
        "answered": len(good),
        "prompt_tokens": sum(outcome.prompt_tokens for outcome in good),
        "longest_prompt_tokens": max((outcome.prompt_tokens for outcome in good), default=0),
        "ttft_seconds": _rounded(waits[len(waits) // 2] if waits else None, 3),
    }


def progress_words(phase, outcomes, tightest):
    """How far a phase is, for a person who waits: ``62 % of 190,000 tokens, least free 2.1 GiB on board 3``.

    :arg phase: :class:`_soak.Phase`. :arg outcomes: those of this phase.
    :arg tightest: of :meth:`_soak_seen.Samples.tightest`.
    """
    planned, done = sum(phase.sizes), sum(outcome.wanted_tokens for outcome in outcomes)
    if phase.name == "fill":
        words = f"{100.0 * done / planned:.0f} % of {planned:,} tokens"
    else:
        words = f"{len(outcomes)} of {len(phase.sizes)} requests up to {max(phase.sizes):,} tokens"
    if tightest is None:
        return words
    board = "" if tightest[0] == "cpu" else f" on board {tightest[0]}"
    return f"{words}, least free {tightest[1]:.1f} GiB{board}"


# SGLang 0.5.23: srt/managers/schedule_batch.py. The server lives on, the request is lost.
POOL_ABORT = "Out of memory even after retracting all other requests"

# A spike of one pass is over sooner; who did not look for longer has not seen the memory under load.
LONGEST_GAP_SECONDS = 10.0

# Below it a cache is not what an hour of traffic makes of it.
NEARLY_FULL_SHARE = 0.8

# ---------------------------------------------------------------------------------------------------------------
# The verdict


def no_evidence(reason, advice, kind="no_evidence"):
    """A failure record for a soak that could not prove anything. The server is not at fault."""
    return failure_record(kind, "soak", reason, advice, fatal=False)


def judge_soak(
    summary,
    samples,
    failure,
    bound,
    limits,
    near_tokens,
    min_least_free_gib=None,
    first_error=None,
    pool_tokens=None,
    growth=None,
    unreached=(),
    watch_error=None,
    filled=None,
):
    """The verdict of a soak.

    :arg summary: of :func:`summarize`. :arg samples: :class:`_soak_seen.Samples`. :arg failure: a death by the failure
        catalogue or None. :arg bound: the bound that ended the soak early, or None.
    :arg first_error: sentence of the first request that failed, or None.
    :arg growth: :class:`_soak_seen.Growth` or None.
    :arg unreached: the DP ranks that had no request. :arg watch_error: why unit and journal could not be watched until
        the end, or None. :arg filled: of :func:`filled_share`.
    :returns: ``{"verdict": proven | unsafe | short | failed, "reason": one sentence, "failure": dict | None}``.
    """
    if failure:
        return _dead(failure)
    if first_error and POOL_ABORT in first_error:
        return _end("short", "The pool is too small for the load, a request was given up: " + first_error)
    if not summary["near_answered"]:
        return _not_near(summary, bound, limits, near_tokens, first_error, pool_tokens)
    if summary["failures"]:
        return _end(
            "failed",
            "{failures} of {requests} requests failed under load, the first one so: ".format(**summary)
            + (first_error or "no answer"),
            "Look into the journal of the unit for these requests.",
            "unknown",
        )
    if summary["missing"]:
        return _not_whole(summary["missing"], bound, limits)
    if watch_error:
        return _end(
            "failed",
            f"The unit could not be watched under load, so nobody knows how it went: {watch_error}",
            "Look into the journal of the unit, and put the load on it again.",
        )
    tightest = samples.tightest()
    if min_least_free_gib is not None and tightest is not None and samples.longest_gap_seconds > LONGEST_GAP_SECONDS:
        return _end(
            "failed",
            f"The free device memory could not be sampled for {samples.longest_gap_seconds:.0f} s of the load, so the "
            f"floor of {min_least_free_gib:.2f} GiB is not proven.",
            "Look whether nvidia-smi answers on the host, and put the load on it again.",
        )
    if min_least_free_gib is not None and tightest is None:
        return _end(
            "failed",
            f"The free device memory could not be sampled, so the floor of {min_least_free_gib:.2f} GiB is not proven.",
            "Make nvidia-smi work on the host, or set nvidia_smi to its path.",
        )
    if min_least_free_gib is not None and tightest[1] < min_least_free_gib:
        return _end(
            "unsafe",
            f"Board {tightest[0]} had only {tightest[1]:.2f} GiB free under load, "
            f"under the floor of {min_least_free_gib:.2f} GiB.",
        )
    if growth and growth.lasts_requests < limits.endurance_requests:
        return _end("unsafe", growth.sentence(limits.endurance_requests))
    if unreached:
        return _end(
            "failed",
            "DP rank {} got no request, so it is not proven.".format(", ".join(str(rank) for rank in unreached)),
            "Raise max_requests, or send no other load meanwhile.",
        )
    least = "" if tightest is None else f"; the least free was {tightest[1]:.2f} GiB on board {tightest[0]}"
    reason = "{answered} requests were answered, the longest prompt had {longest_prompt_tokens} tokens"
    return _end("proven", reason.format(**summary) + least + _left_out(summary, bound, filled) + ".")


def _left_out(summary, bound, filled):
    """What a proof says of the phases that its bounds cut short."""
    left = [row["name"] for row in summary["phases"] if row["planned"] and row["requests"] < row["planned"]]
    if not left:
        return ""
    what = f"bound in {bound}" if bound else "bounds"
    said = f"; the {what} of the load left no room for all of: {', '.join(left)}"
    if filled is not None and filled < NEARLY_FULL_SHARE:
        said += f", so the cache was filled to {filled:.0%} only"
    return said


def _end(verdict, reason, advice=None, kind="no_evidence"):
    """A verdict; with an advice it carries a failure record."""
    failure = no_evidence(reason, advice, kind) if advice else None
    return {"verdict": verdict, "reason": reason, "failure": failure}


def _dead(failure):
    verdict = "failed"
    if failure.get("kind") in MEMORY_KINDS:
        verdict = VERDICT_BY_DIRECTION.get(failure.get("direction"), "failed")
    during = ""
    if failure.get("request"):
        during = " on a prompt of {prompt_tokens} tokens (phase {phase}, {concurrency} at once)"
        during = during.format(**failure["request"])
    evidence = (failure.get("evidence") or "").strip()
    reason = f"The server died under load{during}: {failure.get('kind')} ({evidence})."
    return {"verdict": verdict, "reason": reason, "failure": failure}


def _not_near(summary, bound, limits, near_tokens, first_error, pool_tokens):
    longest = summary["longest_prompt_tokens"]
    what = f"No prompt of at least {near_tokens} tokens was answered (the longest had {longest})"
    if summary["broken"]:
        reason = "{}: {}".format(what, first_error or "a connection broke.")
        return _end("failed", reason, "Look into the journal of the unit: the connection did not end well.", "unknown")
    if pool_tokens and pool_tokens < near_tokens:
        reason = f"{what}: the pool holds {pool_tokens} tokens only."
        advice = "Lower context_tokens, or raise the pool: a longest request does not fit into it."
    elif bound:
        reason = f"{what}: {_bound_reached(bound, limits)}"
        advice = f"Raise the bound of the soak ({bound}), or lower context_tokens."
    else:
        reason = "{}: {}".format(what, first_error or "the server refused it.")
        advice = "Compare context_tokens with the --context-length that the server runs with."
    return _end("failed", reason, advice)


def _bound_reached(bound, limits):
    values = {"seconds": f"{limits.seconds:g}", "requests": limits.requests, "prompt_tokens": limits.prompt_tokens}
    return f"the bound of {values[bound]} {bound} was reached first."


def _not_whole(missing, bound, limits):
    """What was promised and not sent, or not answered, is not proven."""
    why = _bound_reached(bound, limits) if bound else "the other bounds left no room for it."
    reason = f"Not all requests of {', '.join(missing)} were answered: {why}"
    return _end("failed", reason, f"Raise the bound of the soak ({bound or 'seconds'}), or promise less.")


def suspect(outcomes, in_flight) -> dict[str, Any] | None:
    """The request that most probably caused a death: the longest in flight, else the first that failed.

    :arg in_flight: the :class:`_soak.Ask` s at the time of the death.
    :returns: ``{"number", "phase", "prompt_tokens", "concurrency"}`` and, where one is known, ``dp_rank``.
    """
    candidates = {ask.number: (ask.phase, ask.tokens, ask.dp_rank) for ask in in_flight}
    for outcome in outcomes:
        if outcome.status == "failed":
            candidates.setdefault(outcome.number, (outcome.phase, outcome.wanted_tokens, outcome.dp_rank))
    if not candidates:
        return None
    number = max(candidates, key=lambda each: (candidates[each][1], -each))
    phase, tokens, dp_rank = candidates[number]
    found = {"number": number, "phase": phase, "prompt_tokens": tokens, "concurrency": len(candidates)}
    return found if dp_rank is None else dict(found, dp_rank=dp_rank)
