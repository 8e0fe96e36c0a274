# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, in motion. Sends what ``_soak`` plans, samples memory and watches the unit while it does.

Private to the gpufleet.sglang collection; may change at any time.

Clock and threads live here. What is sent is decided in ``_soak``, what it means in ``_soak_judge``.
"""

from __future__ import annotations

import threading
import time
import uuid

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _follow,
    _http,
    _soak,
    _soak_client,
    _soak_judge,
    _soak_memory,
    _soak_watch,
)

SAMPLE_SECONDS = 0.2
WATCH_SECONDS = 0.5

# How long a death may take to show in the journal after a connection broke.
DEATH_SETTLE_SECONDS = 8.0


class Soak:
    """One soak: phases in order, a sampler and a watcher beside them.

    :arg send: ``send(number, phase, tokens, answer_tokens, clock, deadline) -> Outcome``
    :arg sample: ``() -> {board: GiB free}``; empty when nothing can be sampled.
    :arg watch: ``() -> failure dict | None``, called again and again; None for nothing wrong. ``watch=None``: no unit.
    """

    def __init__(self, phases, limits, send, sample, watch=None, clock=time.monotonic):
        self.phases = phases
        self.limits = limits
        self.samples = _soak_judge.Samples()
        self.outcomes = []
        self.failure = None
        self.bound = None
        self._send = send
        self._sample = sample
        self._watch = watch
        self._monotonic = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._in_flight = {}
        self._number = 0
        self._sent_tokens = 0
        self._over = threading.Event()
        self._dead = threading.Event()

    def clock(self):
        return self._monotonic() - self._began

    def run(self):
        """Send everything, then settle. The results are in the attributes."""
        self._began = self._monotonic()
        helpers = [threading.Thread(target=self._sampler, daemon=True)]
        if self._watch:
            helpers.append(threading.Thread(target=self._watcher, daemon=True))
        for helper in helpers:
            helper.start()
        try:
            for phase in self.phases:
                if not self._run_phase(phase):
                    break
            self._settle()
        finally:
            self._over.set()
            for helper in helpers:
                helper.join(5.0)

    # -- the load

    def _run_phase(self, phase):
        """True when the next phase may begin."""
        if phase.must and phase.name == "context" and not self._enough_time_for(phase.sizes[0]):
            self.bound = "seconds"
            return False
        deadline = self.limits.seconds * phase.until
        sizes = list(phase.sizes)
        workers = [
            threading.Thread(target=self._worker, args=(phase, sizes, deadline), daemon=True)
            for dummy in range(min(phase.concurrency, len(sizes)))
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

    def _enough_time_for(self, tokens):
        probe = self.outcomes[-1] if self.outcomes else None
        if probe is None or not probe.ttft_seconds:
            return True
        speed = probe.prompt_tokens / probe.ttft_seconds
        return not _soak.is_surely_too_long(tokens, speed, self.limits.seconds - self.clock())

    def _worker(self, phase, sizes, phase_deadline):
        while not self._dead.is_set():
            with self._lock:
                # A phase that is over its share of the time stops sending; what is under way may use the whole bound.
                if not sizes or not self._may_send() or self.clock() >= phase_deadline:
                    return
                tokens = sizes.pop(0)
                number = self._number
                self._number += 1
                self._sent_tokens += tokens
                self._in_flight[number] = (number, phase.name, tokens)
            outcome = self._send(number, phase.name, tokens, phase.answer_tokens, self.clock, self.limits.seconds)
            with self._lock:
                # A request that failed stays in flight in the eyes of _settle: it may be the one that killed.
                if outcome.status != "failed":
                    self._in_flight.pop(number, None)
                self.outcomes.append(outcome)
                if outcome.status == "cut":
                    self.bound = "seconds"
                if outcome.status == "failed":
                    return

    def _may_send(self):
        if self.bound is None:
            self.bound = _soak.first_bound(self.limits, self.clock(), self._number, self._sent_tokens)
        return self.bound is None

    def _settle(self):
        """After a broken connection the journal is given a moment to tell the death."""
        broken = [outcome for outcome in self.outcomes if outcome.status == "failed"]
        if broken and self._watch and self.failure is None:
            self._dead.wait(DEATH_SETTLE_SECONDS)
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
            failure = self._watch()
            if failure:
                self.failure = failure
                self._dead.set()
                return
            self._over.wait(WATCH_SECONDS)


class Job:
    """From options to the module's result.

    :arg options: the module's parameters. :arg http: the module ``_http`` or a double of it.
    """

    def __init__(self, address, run_command, limits, options, http=_http, wall=time.time):
        self._address = address
        self._run_command = run_command
        self._limits = limits
        self._options = options
        self._http = http
        self._wall = wall
        self._context_tokens = options["context_tokens"]
        self._pool_tokens = options["pool_tokens"]

    def run(self, session, errors):
        """:arg session: a ``requests.Session``. :arg errors: the exceptions of that library."""
        watch = self._watch()
        problem = (watch and watch.not_running()) or self._learn()
        if problem:
            return self._without_load(problem)
        phases = _soak.plan_phases(self._options["profile"], self._context_tokens, self._pool_tokens, self._limits)
        client = _soak_client.Client(session, errors, self._address, uuid.uuid4().hex, self._options["vocab_size"])
        sample = _soak_memory.sampler_of(self._options, self._run_command)
        soak = Soak(phases, self._limits, client.send, sample, watch)
        soak.run()
        return self._result(soak, watch)

    def _watch(self):
        if not self._options["unit"]:
            return None
        follower = _follow.Follower(
            self._run_command, self._options["unit"], self._options["invocation_id"], since_seconds=self._wall()
        )
        return _soak_watch.UnitWatch(follower, secrets=self._address.secrets)

    def _learn(self):
        """Ask the server for what was not declared. One sentence when it does not tell, else None."""
        if self._pool_tokens is None:
            answer = self._http.server_info(self._address)
            info = answer.data if answer.good and isinstance(answer.data, dict) else {}
            self._pool_tokens = self._http.startup_of_server_info(info)["pool_tokens"]
            if self._pool_tokens is None:
                return f"Expected pool_tokens or a server that tells its pool, found: {answer.error or 'no pool'}."
        if self._context_tokens is None:
            self._context_tokens = self._http.context_tokens(self._address)
            if self._context_tokens is None:
                return "Expected context_tokens or a server that tells its context in /v1/models, found neither."
        return None

    def _without_load(self, problem):
        judged = {
            "verdict": "failed",
            "reason": problem,
            "failure": _soak_judge.no_evidence(problem, "Start the server and wait for it with server_ready first."),
        }
        soak = Soak((), self._limits, None, dict)
        return dict(self._figures(soak, None), **judged)

    def _result(self, soak, watch):
        near = _soak.near_context_tokens(self._context_tokens)
        figures = self._figures(soak, watch)
        errors = [
            outcome.error for outcome in soak.outcomes if outcome.error and outcome.status in ("failed", "refused")
        ]
        judged = _soak_judge.judge_soak(
            _soak_judge.summarize(soak.outcomes, near),
            soak.samples,
            soak.failure,
            soak.bound,
            self._limits,
            near,
            self._options["min_least_free_gib"],
            errors[0] if errors else None,
            self._pool_tokens,
        )
        return dict(figures, **judged)

    def _figures(self, soak, watch):
        figures = _soak_judge.summarize(soak.outcomes, 0, soak.phases)
        for name in ("near_answered", "broken"):
            figures.pop(name)
        tightest = soak.samples.tightest()
        figures.update(
            least_free_gib={board: round(gib, 3) for board, gib in sorted(soak.samples.least_free_gib.items())},
            at={"board": tightest[0], "seconds": round(tightest[2], 1)} if tightest else None,
            retractions=watch.retractions_or_none if watch else None,
            bound=soak.bound,
            memory_samples=soak.samples.count,
            context_tokens=self._context_tokens,
            pool_tokens=self._pool_tokens,
            seconds=round(soak.clock(), 2) if soak.outcomes else 0.0,
        )
        return figures


def failing_sentence(result, options):
    """The one sentence of a task that fails for its verdict: expected, found, and what repairs it."""
    failure = result.get("failure") or {}
    advice = (
        failure.get("advice") or "Lower the fraction, the cap or the chunked-prefill size, or lower min_least_free_gib."
    )
    return "{} was expected to survive the load, but its verdict is {}: {} {}".format(
        options["unit"] or f"The server on port {options['port']}", result["verdict"], result["reason"], advice
    )
