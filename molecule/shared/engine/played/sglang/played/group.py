# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One DP group's scheduler: admission, chunks of prefill, steps of decode, retraction; its ranks do the passes.

As SGLang's loop: one pass at a time, prefill before decode. A pass goes to every rank of the group, which takes or does
not get its memory; a rank that hangs or is gone stops the loop.
"""

from __future__ import annotations

import collections
import logging
import queue
import threading
import time
from array import array
from dataclasses import dataclass, field

from sglang.played import cuda_lines
from sglang.played.prefix_cache import PrefixCache

LEAST_SLEEP_SECONDS = 0.002
RATIO_AFTER_RETRACT = 0.95
ABORTED = (
    "Out of memory even after retracting all other requests in the decode batch. Aborting the last request."
)


@dataclass(eq=False)
class Job:
    """A request on its way. Events for its client: the number of tokens that were made, or None at the end."""

    ids: array
    new_tokens: int
    events: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    cached: int = 0
    done: int = 0  # tokens of the prompt that are computed or were cached
    made: int = 0
    cancelled: bool = False
    aborted: str = ""
    silent: bool = False  # a health check

    @property
    def tokens(self) -> int:
        return self.done - self.cached + self.made


class Group:
    """The requests of one DP rank. ``send(command, line, level)`` gives its ranks a command, and waits for a pass."""

    def __init__(self, pool: dict, settings, speed: float, chunk: int, radix: bool, log_interval: int, send):
        self.pool_tokens, self.most_requests = pool["tokens"], pool["running_requests"]
        self._hybrid = bool(pool.get("sliding_tokens")), bool(pool.get("slots"))
        self.settings, self.speed, self.chunk = settings, speed, chunk
        self.cache = PrefixCache(radix)
        self.waiting: collections.deque[Job] = collections.deque()
        self.running: list[Job] = []
        self.ratio = settings.admission_share
        self.retractions = 0
        self.gen_throughput = 0.0
        self.heard = time.time()
        self._send, self._log_interval = send, log_interval
        self._steps, self._tic = 0, time.monotonic()
        self._largest = 0
        self._change = threading.Condition()
        threading.Thread(target=self._loop, daemon=True).start()

    # --- asked from outside

    def submit(self, job: Job) -> Job:
        with self._change:
            self.waiting.append(job)
            self._change.notify_all()
        return job

    def cancel(self, job: Job) -> None:
        job.cancelled = True

    @property
    def used_tokens(self) -> int:
        return sum(job.tokens for job in self.running)

    @property
    def usage(self) -> float:
        return self.used_tokens / self.pool_tokens

    def _usage_text(self) -> str:
        return cuda_lines.usage_text(self.usage, *self._hybrid)

    @property
    def fill(self) -> float:
        """How much of the pool is written to, also what could be evicted."""
        return min((self.used_tokens + self.cache.tokens) / self.pool_tokens, 1.0)

    def flush(self) -> bool:
        """Empty the cache; refused while requests run."""
        with self._change:
            if self.running or self.waiting:
                return False
            self.cache.flush()
            return True

    # --- the loop

    def _loop(self) -> None:
        while True:
            with self._change:
                while not self.waiting and not self.running:
                    self._change.wait()
                self._drop_cancelled()
                self._admit()
                prefilling = [job for job in self.running if job.done < len(job.ids)]
            try:
                if prefilling:
                    self._prefill(prefilling)
                elif self.running:
                    self._decode()
                else:
                    time.sleep(LEAST_SLEEP_SECONDS)
            except OSError:
                return  # a rank is gone, and with it this group

    def _drop_cancelled(self) -> None:
        for job in [one for one in self.waiting if one.cancelled]:
            self.waiting.remove(job)
        for job in [one for one in self.running if one.cancelled]:
            self._end(job)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.most_requests:
            job = self.waiting[0]
            cached = self.cache.match(job.ids) if self.cache.enabled else 0
            needed = len(job.ids) - cached + max(int(job.new_tokens * self.ratio), 1)
            promised = sum(
                len(one.ids) - one.cached + one.made + int((one.new_tokens - one.made) * self.ratio)
                for one in self.running
            )
            if promised + needed > self.pool_tokens - cached and self.running:
                return
            self.waiting.popleft()
            job.cached = job.done = cached
            self.running.append(job)

    def _room(self, tokens: int) -> bool:
        """Make room for more tokens, by eviction; False when even an empty cache is not enough."""
        over = self.used_tokens + tokens + self.cache.tokens - self.pool_tokens
        if over > 0:
            self.cache.evict(over)
        return self.used_tokens + tokens <= self.pool_tokens

    def _prefill(self, jobs: list[Job]) -> None:
        """One pass: parts of prompts, together not more than a chunk (a chunk of -1: whole prompts)."""
        left = self.chunk if self.chunk > 0 else max(len(jobs[0].ids), 16384)
        parts = []
        for job in jobs:
            part = min(len(job.ids) - job.done, left)
            if part <= 0:
                break
            parts.append((job, part))
            left -= part
        tokens = sum(part for _job, part in parts)
        if not self._room(tokens):
            self._retract()
            return
        fresh = [job for job, _part in parts if job.done == job.cached]
        pending = sum(len(job.ids) - job.done for job in self.running) - tokens
        seconds = tokens / self.settings.prefill_tokens_per_second / self.speed
        decoding = len(self.running) - len(jobs)
        line = None
        if not all(job.silent for job, _part in parts):
            line = cuda_lines.prefill_batch(
                len(parts), tokens, sum(job.cached for job in fresh), self._usage_text(), decoding, len(self.waiting),
                pending, self.settings.prefill_tokens_per_second,
            )
        context = max(job.done + part for job, part in parts)
        self._pass({"chunk": tokens, "context": context, "requests": len(parts), "fill": self.fill}, line)
        time.sleep(seconds)
        for job, part in parts:
            job.done += part
            if job.done == len(job.ids):
                self._token(job, 1)

    def _decode(self) -> None:
        """Some steps at once, as many as go into the shortest sleep."""
        step = self.settings.decode_step_seconds / self.speed
        least = min(job.new_tokens - job.made for job in self.running)
        steps = max(1, min(int(LEAST_SLEEP_SECONDS / step) if step > 0 else 64, least))
        while not self._room(len(self.running) * steps):
            if steps > 1:
                steps = 1
            elif not self._retract():
                return
        self._steps += steps
        requests = len(self.running)
        if self._steps >= self._log_interval or requests > self._largest:
            self._log_decode(requests)
        time.sleep(step * steps)
        for job in list(self.running):
            self._token(job, steps)

    def _log_decode(self, requests: int) -> None:
        line = None
        if self._steps >= self._log_interval:
            now = time.monotonic()
            self.gen_throughput = requests * self._steps / max(now - self._tic, 1e-3)
            self._tic, self._steps = now, 0
            line = cuda_lines.decode_batch(
                requests, self.used_tokens, self._usage_text(), self.gen_throughput, len(self.waiting)
            )
        self._largest = max(self._largest, requests)
        context = max(len(job.ids) + job.made for job in self.running)
        self._pass({"chunk": 0, "context": context, "requests": requests, "fill": self.fill}, line)

    def _pass(self, load: dict, line: str | None) -> None:
        self._send({"forward": load}, line, None)

    def _token(self, job: Job, count: int) -> None:
        job.made = min(job.made + count, job.new_tokens)
        self.heard = time.time()
        job.events.put(job.made)
        if job.made >= job.new_tokens:
            self._end(job)

    def _end(self, job: Job) -> None:
        """Its tokens go to the cache."""
        if job in self.running:
            self.running.remove(job)
        own = job.tokens
        job.events.put(None)
        if not job.silent:
            self.cache.add(job.ids, own)
            over = self.used_tokens + self.cache.tokens - self.pool_tokens
            self.cache.evict(over)
            self._send({"finished": 1}, None, None)

    def _retract(self) -> bool:
        """Take the youngest request back into the queue; the last one is aborted. False when none is left."""
        if len(self.running) <= 1:
            for job in list(self.running):
                job.aborted = ABORTED
                logging.warning("retract_decode: aborted last request due to OOM")
                self._end(job)
            return False
        job = self.running.pop()
        gained, before = job.tokens, self.ratio
        job.done = job.cached = 0
        # What it had made is computed again as part of its prompt.
        job.ids = job.ids + array("l", [1] * job.made)
        job.new_tokens -= job.made
        job.made = 0
        self.ratio = RATIO_AFTER_RETRACT
        self.retractions += 1
        self._send({}, cuda_lines.retracted(1, gained, before, self.ratio), logging.WARNING)
        with self._change:
            self.waiting.appendleft(job)
        return True
