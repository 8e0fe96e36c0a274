# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers: tokens in, tokens out, counted right. What the words are does not matter; how many there are does."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass

from sglang.played import faults, lines

PREFILL_TOKENS_PER_SECOND = 50000.0
RESERVED_TOKENS = 1
PIECES = re.compile(r"\s?\w{1,4}|\s?[^\w\s]|\s")
KNOWN = (("capital of France", (" Paris", ".")),)
WORDS = (" a", " model", " that", " is", " not", " there", " says", " words", " which", " mean", " no", " thing", ".")
_number = itertools.count()


def tokens_of(text: str) -> list[int]:
    return [zlib.crc32(piece.encode()) % 30000 for piece in PIECES.findall(text)]


@dataclass(frozen=True)
class Request:
    """What was asked: tokens, how many may be answered, whether an end may come earlier."""

    rid: str
    ids: tuple[int, ...]
    text: str
    max_new_tokens: int
    ignore_eos: bool


class Generator:
    """Admits requests as the pool allows, and answers them. Raises ValueError for what is too long."""

    def __init__(self, pool: dict, context_tokens: int, radix_cache: bool, decode_log_interval: int):
        self.pool_tokens = pool["tokens"]
        self.most_requests = pool["running_requests"]
        self.context_tokens = context_tokens
        self._radix_cache = radix_cache
        self._log_interval = decode_log_interval
        self._seen: deque[tuple[int, ...]] = deque(maxlen=32)
        self._change = threading.Condition()
        self.open: dict[str, int] = {}  # request id -> tokens it holds; 0 while it waits
        self.prompt_tokens = self.generation_tokens = self.requests = 0

    def request(self, ids: list[int] | None, text: str, max_new_tokens: int, ignore_eos: bool) -> Request:
        ids = tokens_of(text) if ids is None else ids
        self._check(len(ids), max_new_tokens)
        return Request(f"{next(_number):032x}", tuple(ids), text, max_new_tokens, ignore_eos)

    def _check(self, count: int, max_new_tokens: int) -> None:
        total = count + RESERVED_TOKENS
        if total >= self.context_tokens:
            raise ValueError(
                f"The input ({total} tokens) is longer than the model's context length ({self.context_tokens} tokens)."
            )
        if total + max_new_tokens > self.context_tokens:
            raise ValueError(
                f"Requested token count exceeds the model's maximum context length of {self.context_tokens} tokens. "
                f"You requested a total of {total + max_new_tokens} tokens: {total} tokens from the input messages and "
                f"{max_new_tokens} tokens for the completion. Please reduce the number of tokens in the input messages "
                "or the completion to fit within the limit."
            )
        longest = min(self.context_tokens, self.pool_tokens) - 6
        if count >= longest:
            raise ValueError(
                f"Input length ({count} tokens) exceeds the maximum allowed length ({longest} tokens). Use a shorter "
                "input or enable --allow-auto-truncate."
            )

    def answer(self, request: Request):
        """Yields (text so far, ids so far, meta_info) for every token."""
        with self._change:
            self.open[request.rid] = 0
        try:
            cached = self._admit(request)
            time.sleep((len(request.ids) - cached) / PREFILL_TOKENS_PER_SECOND)
            yield from self._decode(request, cached)
        finally:
            with self._change:
                self.open.pop(request.rid, None)
                self._change.notify_all()

    def _admit(self, request: Request) -> int:
        needed = min(len(request.ids) + request.max_new_tokens, self.pool_tokens)
        with self._change:
            self._change.wait_for(
                lambda: sum(self.open.values()) + needed <= self.pool_tokens and self._running() < self.most_requests
            )
            self.open[request.rid] = needed
            cached = max((common(request.ids, seen) for seen in self._seen), default=0) if self._radix_cache else 0
            cached = min(cached, len(request.ids) - 1) if request.ids else 0
            self._seen.append(request.ids)
            running = self._running()
            logging.info(
                lines.prefill(len(request.ids) - cached, cached, self.usage(), running - 1, len(self.open) - running)
            )
            return cached

    def _running(self) -> int:
        return sum(1 for held in self.open.values() if held)

    def usage(self) -> float:
        return sum(self.open.values()) / self.pool_tokens

    def _decode(self, request: Request, cached: int):
        known = next((words for key, words in KNOWN if key in request.text), None)
        began, text, ids = time.time(), "", []
        meta = {"id": request.rid, "prompt_tokens": len(request.ids), "cached_tokens": cached}
        for place in range(max(request.max_new_tokens, 1)):
            word = known[place] if known and place < len(known) else WORDS[(len(request.ids) + place) % len(WORDS)]
            ends = known is not None and place == len(known) - 1 and not request.ignore_eos
            text, ids = text + word, [*ids, zlib.crc32(word.encode()) % 30000]
            time.sleep(faults.token_seconds())
            count = len(ids)
            reason = {"type": "stop", "matched": 2} if ends else None
            if reason is None and count >= request.max_new_tokens:
                reason = {"type": "length", "length": count}
            if count % self._log_interval == 0:
                speed = count / max(time.time() - began, 0.001)
                logging.info(lines.decode(self._running(), len(request.ids) + count, self.usage(), speed, 0))
            yield text, ids, {
                **meta, "finish_reason": reason, "completion_tokens": count, "e2e_latency": time.time() - began
            }
            if reason:
                break
        with self._change:
            self.requests += 1
            self.prompt_tokens += len(request.ids)
            self.generation_tokens += len(ids)


def common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """How many tokens at the beginning are the same."""
    count = 0
    for one, other in zip(left, right):
        if one != other:
            break
        count += 1
    return count
