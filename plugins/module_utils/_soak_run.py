# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, in motion. Sends what ``_soak`` plans, samples memory and watches the unit while it does.

Private to the gpufleet.sglang collection; may change at any time.

Clock and threads live here. What is sent is decided in ``_soak``, what it means in ``_soak_judge``.
"""

from __future__ import annotations

import collections
import threading
import time
from dataclasses import replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak, _soak_judge, _soak_seen

# torch gives back what a pass took only when it must: a spike is seen long after it. Other allocations are shorter.
SAMPLE_SECONDS = 0.05
WATCH_SECONDS = 0.5
TELL_SECONDS = 1.0
# As often as a load balancer would ask.
HEALTH_SECONDS = 5.0
# A client of one request a connection is seen for a minute after it, see _clients.
LOOK_SECONDS = 2.0
# Far more often than a lease expires.
KEEP_SECONDS = 20.0

# Requests of the steady phase between two looks at what is left.
MARK_REQUESTS = 8

# How long a death may take to show in the journal after a connection broke.
DEATH_SETTLE_SECONDS = 8.0


class Soak:
    """One soak: phases in order, a sampler and a watcher beside them.

    :arg send: ``send(ask, clock, deadline, on_first) -> Outcome``, see ``_soak_client.Client``.
    :arg sample: ``() -> {board: GiB free}``; empty when nothing can be sampled.
    :arg watch: ``() -> failure dict | None``, called again and again; None for nothing wrong. ``watch=None``: no unit.
    :arg dp_ranks: the requests go to so many DP ranks in turn.
    :arg tell: ``tell(phase, words)``, called about once a second with how far the load is.
    :arg keep: called every twenty seconds; what must not expire while the load goes on.
    :arg look: ``() -> {(address, port)}``, the clients that are connected; called every two seconds.
    :arg ask_health: ``() -> bool``, whether ``/health`` answers 200; asked beside the load.
    """

    def __init__(
        self,
        phases,
        limits,
        send,
        sample,
        watch=None,
        clock=time.monotonic,
        dp_ranks=1,
        settle_seconds=None,
        tell=None,
        ask_health=None,
        keep=None,
        look=None,
    ):
        self.phases = phases
        self.limits = limits
        self.samples = _soak_seen.Samples()
        self.health = _soak_seen.Health()
        self.outcomes = []
        self.marks = []
        self.failure = None
        self.bound = None
        self._send = send
        self._sample = sample
        self._watch = watch
        self._tell = tell
        self._ask_health = ask_health
        self._keep = keep
        self._look = look
        self.clients = set()
        self.watch_error = None
        self._phase = None
        self._monotonic = clock
        self._ranks = max(dp_ranks, 1)
        self._settle_seconds = DEATH_SETTLE_SECONDS if settle_seconds is None else settle_seconds
        self._began = clock()
        self._lock = threading.Lock()
        self._in_flight = {}
        self._number = 0
        self._sent_tokens = 0
        self._decoding = 0
        self._over = threading.Event()
        self._dead = threading.Event()

    def clock(self):
        return self._monotonic() - self._began

    @property
    def seconds(self):
        """The bound in seconds; before the probe has told the speed the largest that there is."""
        return _soak.AUTO_MOST_SECONDS if self.limits.seconds is None else self.limits.seconds

    def run(self):
        """Send everything, then settle. The results are in the attributes."""
        self._began = self._monotonic()
        beside = {
            self._watcher: self._watch,
            self._teller: self._tell,
            self._prober: self._ask_health,
            self._keeper: self._keep,
            self._visitors: self._look,
        }
        wanted = [self._sampler] + [target for target, given in beside.items() if given]
        helpers = [threading.Thread(target=target, daemon=True) for target in wanted]
        for helper in helpers:
            helper.start()
        try:
            for place, phase in enumerate(self.phases):
                if not self._run_phase(phase, self.phases[place + 1 :]):
                    break
                if phase.name == "probe" and self.limits.seconds is None:
                    needed = _soak.seconds_needed(self.phases, self._speed(), self._ranks)
                    self.limits = replace(self.limits, seconds=needed)
            self._settle()
        finally:
            self._over.set()
            for helper in helpers:
                helper.join(5.0)

    # -- the load

    def _speed(self):
        """Prompt tokens per second of the long prompts that were answered so far, or None."""
        known = [one for one in self.outcomes if one.status == "answered" and one.ttft_seconds]
        longest = max((one.prompt_tokens for one in known), default=0)
        known = [one for one in known if one.prompt_tokens * 2 > longest]
        return max((one.prompt_tokens / one.ttft_seconds for one in known), default=None)

    def _run_phase(self, phase, later):
        """True when the next phase may begin."""
        self._phase = phase
        speed = self._speed()
        left = self.seconds - self.clock()
        if phase.must and _soak.is_surely_too_long(phase.sizes[0], speed, left):
            self.bound = "seconds"
            return False
        deadline = self.seconds * phase.until
        if not phase.kept:
            deadline = min(deadline, self.seconds - _soak.reserved_seconds(later, speed, self._ranks))
        spared = self.limits if phase.kept else _soak.sparing(self.limits, later)
        self._decoding = 0
        if phase.name == "steady":
            self.marks.append((0, self._sample()))
        asks = collections.deque(enumerate(phase.sizes))
        workers = [
            threading.Thread(target=self._worker, args=(phase, asks, deadline, spared), daemon=True)
            for dummy in range(min(phase.concurrency, len(asks)))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            # A death ends the waiting at once: its connections may hang until the process is gone.
            while worker.is_alive() and not self._dead.is_set():
                worker.join(0.1)
        if self._dead.is_set():
            return False
        broken = any(outcome.status == "failed" for outcome in self.outcomes)
        refused = phase.must and self.outcomes and self.outcomes[-1].status != "answered"
        return self.bound is None and not broken and not refused

    def _worker(self, phase, asks, phase_deadline, spared):
        while not self._dead.is_set():
            with self._lock:
                # A phase that has used its share of the bounds stops sending; what is under way may use all seconds.
                if not asks or not self._may_send() or self._bound_of(spared):
                    return
                if not self._fits(phase, asks[0][1], phase_deadline):
                    return
                place, tokens = asks.popleft()
                dp_rank = place % self._ranks if self._ranks > 1 else None
                ask = _soak.Ask(self._number, phase.name, tokens, phase.answer_tokens, dp_rank)
                self._number += 1
                self._sent_tokens += tokens
            if place >= len(phase.sizes) - phase.late:
                self._wait_for_batch(len(phase.sizes) - phase.late)
            with self._lock:
                self._in_flight[ask.number] = ask
            outcome = self._send(ask, self.clock, self.seconds, self._first_token)
            with self._lock:
                # A request that failed stays in flight in the eyes of _settle: it may be the one that killed.
                if outcome.status != "failed":
                    self._in_flight.pop(ask.number, None)
                if outcome.first_token_at is None:
                    self._decoding += 1
                self.outcomes.append(outcome)
                if phase.name == "steady" and (place + 1) % (MARK_REQUESTS * self._ranks) == 0:
                    self.marks.append((place + 1, self._sample()))
                if outcome.status == "cut":
                    self.bound = "seconds"
                if outcome.status == "failed":
                    return

    def _fits(self, phase, tokens, deadline):
        """Whether there is time for one more request. The last phases may begin one that will not end."""
        left = deadline - self.clock()
        return left > 0 and (phase.must or phase.kept or _soak.seconds_of(tokens, self._speed()) <= left)

    def _first_token(self):
        with self._lock:
            self._decoding += 1

    def _wait_for_batch(self, wanted):
        """Until so many requests of this phase have their first token, or have ended without one."""
        while self._decoding < wanted and not self._dead.is_set() and self.clock() < self.seconds:
            time.sleep(0.005)

    def _may_send(self):
        if self.bound is None:
            self.bound = self._bound_of(self.limits)
        return self.bound is None

    def _bound_of(self, limits):
        return _soak.first_bound(limits, self.clock(), self._number, self._sent_tokens)

    def _settle(self):
        """After a broken connection the journal is given a moment to tell the death."""
        broken = [outcome for outcome in self.outcomes if outcome.status == "failed"]
        if broken and self._watch and self.failure is None:
            self._dead.wait(self._settle_seconds)
        if self.failure is not None:
            with self._lock:
                request = _soak_judge.suspect(self.outcomes, list(self._in_flight.values()))
            self.failure = dict(self.failure, request=request)

    # -- beside the load

    def _sampler(self):
        while not self._over.is_set():
            self.samples.add(self.clock(), self._sample())
            self._over.wait(SAMPLE_SECONDS)

    def _watcher(self):
        while not self._over.is_set():
            try:
                failure, self.watch_error = self._watch(), None
            except (OSError, ValueError) as error:
                # The next look may work again; the verdict asks whether the last one did.
                failure, self.watch_error = None, str(error)
            if failure:
                self.failure = failure
                self._dead.set()
                return
            self._over.wait(WATCH_SECONDS)

    def _teller(self):
        while not self._over.wait(TELL_SECONDS):
            if self._phase is not None:
                with self._lock:
                    own = [outcome for outcome in self.outcomes if outcome.phase == self._phase.name]
                try:
                    self._tell(self._phase.name, _soak_judge.progress_words(self._phase, own, self.samples.tightest()))
                except OSError:
                    # A disk that is full is no reason to end a load, nor to go on telling.
                    return

    def _prober(self):
        while not self._over.wait(HEALTH_SECONDS):
            began = self.clock()
            good = self._ask_health()
            if not self._over.is_set() and not self._dead.is_set():
                self.health.add(good, self.clock() - began)

    def _visitors(self):
        while not self._over.is_set():
            self.clients |= self._look()
            self._over.wait(LOOK_SECONDS)

    def _keeper(self):
        while not self._over.wait(KEEP_SECONDS):
            try:
                self._keep()
            except OSError:
                # The next try may find room again; the lease of the last one is still good.
                continue
