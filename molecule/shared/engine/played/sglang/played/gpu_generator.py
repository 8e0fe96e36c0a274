# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of a GPU server: which group gets a request, and the words that come of its tokens.

It has the same face as generator.Generator, so that the HTTP server does not know which it asks.
"""

from __future__ import annotations

import itertools
import queue
import time
import zlib
from array import array
from dataclasses import dataclass

from sglang.played import generator
from sglang.played.group import Group, Job


@dataclass(frozen=True)
class Asked:
    """A request that was accepted. Immutable; the job holds what changes."""

    rid: str
    text: str
    job: Job
    group: Group
    ends: bool  # by a stop token, before the wanted number
    prompt_tokens: int
    new_tokens: int


class GpuGenerator(generator.Generator):
    """Hands requests to the groups in turn."""

    def __init__(self, groups: list[Group], context_tokens: int):
        self.groups = groups
        self.pool_tokens = groups[0].pool_tokens
        self.most_requests = groups[0].most_requests
        self.context_tokens = context_tokens
        self._turn = itertools.count()
        self._open: dict[str, Asked] = {}
        self.prompt_tokens = self.generation_tokens = self.requests = 0

    @property
    def open(self) -> dict[str, int]:
        """Request id -> tokens it holds; 0 while it waits."""
        return {rid: asked.job.tokens for rid, asked in list(self._open.items())}

    def usage(self) -> float:
        return sum(group.usage for group in self.groups) / len(self.groups)

    def request(self, ids, text, max_new_tokens, ignore_eos, dp_rank: int | None = None) -> Asked:
        ids = generator.tokens_of(text) if ids is None else ids
        self._check(len(ids), max_new_tokens)
        group = self.groups[(next(self._turn) if dp_rank is None else dp_rank) % len(self.groups)]
        known = self.known(text)
        ends = known is not None and not ignore_eos and len(known) < max_new_tokens
        new = len(known) if ends else max(max_new_tokens, 1)
        return Asked(f"{next(generator._number):032x}", text, Job(array("l", ids), new), group, ends, len(ids), new)

    @staticmethod
    def known(text: str):
        return next((words for key, words in generator.KNOWN if key in text), None)

    def answer(self, request: Asked):
        asked = request
        job = asked.group.submit(asked.job)
        self._open[asked.rid] = asked
        began, text, ids, told = time.time(), "", [], 0
        known = self.known(asked.text)
        try:
            while told < asked.new_tokens:
                made = job.events.get()
                if made is None and job.aborted:
                    reason = {"type": "abort", "message": job.aborted, "status_code": 500}
                    yield text, ids, self._meta(asked, len(ids), began, reason)
                    return
                made = asked.new_tokens if made is None else made + asked.new_tokens - job.new_tokens
                while told < min(made, asked.new_tokens):
                    word = self._word(known, told, asked.prompt_tokens)
                    text, ids = text + word, [*ids, zlib.crc32(word.encode()) % 30000]
                    told += 1
                ended = told >= asked.new_tokens
                stop = {"type": "stop", "matched": 2} if asked.ends else {"type": "length", "length": told}
                yield text, ids, self._meta(asked, told, began, stop if ended else None)
        finally:
            asked.group.cancel(job)
            self._open.pop(asked.rid, None)
        self.requests += 1
        self.prompt_tokens += asked.prompt_tokens
        self.generation_tokens += told

    @staticmethod
    def _word(known, place: int, prompt_tokens: int) -> str:
        if known and place < len(known):
            return known[place]
        return generator.WORDS[(prompt_tokens + place) % len(generator.WORDS)]

    @staticmethod
    def _meta(asked: Asked, count: int, began: float, reason) -> dict:
        return {
            "id": asked.rid, "prompt_tokens": asked.prompt_tokens, "cached_tokens": asked.job.cached,
            "completion_tokens": count, "finish_reason": reason, "e2e_latency": time.time() - began,
        }

    def is_healthy(self, seconds: float) -> bool:
        """Whether a request of one token is answered in time; any answer of the group counts."""
        began = time.time()
        jobs = [group.submit(Job(array("l", [0]), 1, silent=True)) for group in self.groups[:1]]
        while time.time() - began < seconds:
            try:
                jobs[0].events.get(timeout=min(0.2, seconds))
                return True
            except queue.Empty:
                if self.groups[0].heard > began:
                    return True
        jobs[0].cancelled = True
        return False
