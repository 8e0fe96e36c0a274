# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, from the options of ``server_soak`` to its result.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import asdict, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _clients,
    _follow,
    _http,
    _note,
    _proof,
    _soak,
    _soak_client,
    _soak_judge,
    _soak_memory,
    _soak_run,
    _soak_seen,
    _soak_watch,
)

# Longer than any limit that the server is started with: 20 s by default, and what a plan makes of it.
HEALTH_TIMEOUT_SECONDS = 600.0


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
        self._served = None
        self._version = None

    def run(self, session, errors):
        """:arg session: a ``requests.Session``. :arg errors: the exceptions of that library."""
        watch = self._watch()
        image, problem = self._image()
        problem = problem or (watch and watch.not_running()) or self._learn() or self._flush()
        if problem:
            return self._without_load(problem)
        served = self._served
        phases = _soak.plan_phases(self._options["profile"], served, self._limits)
        dp_field = _soak_client.dp_rank_field(self._version) if served.dp_ranks > 1 else None
        client = _soak_client.Client(
            session, errors, self._address, uuid.uuid4().hex, self._options["vocab_size"], dp_field, image
        )
        sample = _soak_memory.sampler_of(self._options, self._run_command)
        note = _note.Note(self._options.get("progress_file"))
        tell = note.say if note.path else None
        soak = _soak_run.Soak(
            phases,
            self._limits,
            client.send,
            sample,
            watch,
            dp_ranks=served.dp_ranks,
            tell=tell,
            ask_health=self._is_healthy,
            keep=lambda: _proof.renew_lease(self._options.get("lease")),
            look=watch and _clients.looker(watch.main_pid, self._options["port"]),
        )
        try:
            soak.run()
        finally:
            note.end()
            getattr(sample, "close", int)()
        return self._result(soak, watch, dp_field)

    def _is_healthy(self):
        """Whether ``/health`` answers 200, however long that takes: the server has a limit of its own."""
        return self._http.health(self._address, timeout_seconds=HEALTH_TIMEOUT_SECONDS).status == 200

    def _image(self):
        """``(URL or None, problem or None)`` of the picture that was given."""
        path = self._options.get("image_file")
        try:
            return (_soak_client.image_url(path) if path else None), None
        except OSError as error:
            return None, f"Expected a picture in image_file {path}, found: {error}."

    def _flush(self):
        """Empty the cache when that was asked for. One sentence when the server does not, else None."""
        if not self._options.get("flush"):
            return None
        key = self._options.get("admin_api_key") or self._address.api_key
        answer = self._http.call(replace(self._address, api_key=key), "/flush_cache", payload={})
        # It answers with a text: the status alone tells.
        return None if answer.status == 200 else f"Expected an empty cache after flush, found: {answer.error}."

    def _watch(self):
        if not self._options["unit"]:
            return None
        follower = _follow.Follower(
            self._run_command, self._options["unit"], self._options["invocation_id"], since_seconds=self._wall()
        )
        return _soak_watch.UnitWatch(follower, secrets=self._address.secrets)

    def _learn(self):
        """Ask the server for what it is and what was not declared. One sentence when it does not tell, else None."""
        answer = self._http.server_info(self._address)
        info = answer.data if answer.good and isinstance(answer.data, dict) else {}
        told = self._http.startup_of_server_info(info)
        if self._pool_tokens is None:
            self._pool_tokens = told["pool_tokens"]
            if self._pool_tokens is None:
                return f"Expected pool_tokens or a server that tells its pool, found: {answer.error or 'no pool'}."
        if self._context_tokens is None:
            self._context_tokens = self._http.context_tokens(self._address)
            if self._context_tokens is None:
                return "Expected context_tokens or a server that tells its context in /v1/models, found neither."
        self._version = told["engine_version"]
        self._served = served_of(info, told, self._context_tokens, self._pool_tokens, self._options)
        return None

    def _without_load(self, problem):
        judged = {
            "verdict": "failed",
            "reason": problem,
            "failure": _soak_judge.no_evidence(problem, "Start the server and wait for it with server_ready first."),
        }
        soak = _soak_run.Soak((), self._limits, None, dict)
        return dict(self._figures(soak, None), **judged)

    def _result(self, soak, watch, dp_field=None):
        figures = self._figures(soak, watch)
        reached = reached_ranks(soak.outcomes, self._served.dp_ranks, dp_field, watch and watch.dp_ranks_or_none)
        judged = judge(soak, self._served, self._options["min_least_free_gib"], reached)
        growth = growth_of(soak, self._served)
        figures.update(dp_ranks=reached, growth_mib_per_request=round(growth.mib_per_request, 3) if growth else None)
        if judged["verdict"] == "proven":
            judged["reason"] += soak.health.sentence()
        return dict(figures, **judged)

    def _figures(self, soak, watch):
        figures = _soak_judge.summarize(soak.outcomes, 0, soak.phases)
        for name in ("near_answered", "broken", "missing"):
            figures.pop(name)
        tightest = soak.samples.tightest()
        figures.update(
            least_free_gib={board: round(gib, 3) for board, gib in sorted(soak.samples.least_free_gib.items())},
            at={"board": tightest[0], "seconds": round(tightest[2], 1)} if tightest else None,
            retractions=watch.retractions_or_none if watch else None,
            bound=soak.bound,
            memory_samples=soak.samples.count,
            filled_share=_soak_judge.filled_share(
                soak.outcomes, self._pool_tokens, self._served.dp_ranks if self._served else 1
            ),
            clients=_clients.by_address(soak.clients) if watch else None,
            context_tokens=self._context_tokens,
            pool_tokens=self._pool_tokens,
            seconds=round(soak.clock(), 2) if soak.outcomes else 0.0,
            bound_seconds=round(soak.seconds, 1),
            longest_prefill_seconds=longest_prefill_seconds(soak.outcomes),
            health=asdict(soak.health),
        )
        return figures


def growth_of(soak, served):
    """:class:`_soak_seen.Growth` of a soak that ran, or None."""
    return _soak_seen.growth_of(soak.marks, soak.samples, served.dp_ranks)


def judge(soak, served, min_least_free_gib, reached):
    """The verdict of a soak that ran, see :func:`_soak_judge.judge_soak`.

    :arg soak: :class:`_soak_run.Soak`. :arg served: :class:`_soak.Served`. :arg reached: the DP ranks that computed a
        prompt, None when that is not known.
    """
    near = _soak.near_context_tokens(served.context_tokens)
    errors = [one.error for one in soak.outcomes if one.error and one.status in ("failed", "refused")]
    return _soak_judge.judge_soak(
        _soak_judge.summarize(soak.outcomes, near, soak.phases),
        soak.samples,
        soak.failure,
        soak.bound,
        replace(soak.limits, seconds=soak.seconds),
        near,
        min_least_free_gib,
        errors[0] if errors else None,
        served.pool_tokens,
        growth_of(soak, served),
        [] if reached is None else sorted(set(range(served.dp_ranks)) - set(reached)),
        soak.watch_error,
        _soak_judge.filled_share(soak.outcomes, served.pool_tokens, served.dp_ranks),
    )


def longest_prefill_seconds(outcomes):
    """The longest time to a first token, or None."""
    waits = [outcome.ttft_seconds for outcome in outcomes if outcome.ttft_seconds is not None]
    return round(max(waits), 2) if waits else None


def served_of(info, told, context_tokens, pool_tokens, options):
    """:class:`_soak.Served` from ``/server_info`` and the module's options."""
    states = [state for state in info.get("internal_states") or [] if isinstance(state, dict)]
    ranks = info.get("dp_size") if isinstance(info.get("dp_size"), int) else len(states)
    ranks = max(ranks or 1, 1)
    running = [state.get("effective_max_running_requests_per_dp") for state in states]
    running = [count for count in running if isinstance(count, int) and count > 0]
    most = told.get("max_running_requests")
    return _soak.Served(
        context_tokens=context_tokens,
        pool_tokens=pool_tokens,
        chunk_tokens=told.get("chunked_prefill_size"),
        running=min(running) if running else max(most // ranks, 1) if most else None,
        dp_ranks=ranks,
        device=options["device"],
        image=bool(options.get("image_file")),
    )


def reached_ranks(outcomes, dp_ranks, dp_field, by_journal):
    """The DP ranks that computed a prompt: by the journal, else by the requests that named them. None: not known."""
    if dp_ranks <= 1:
        return [0] if any(outcome.status == "answered" for outcome in outcomes) else []
    if by_journal:
        return sorted(by_journal)
    if dp_field is None:
        return None
    return sorted({outcome.dp_rank for outcome in outcomes if outcome.status == "answered"} - {None})


def failing_sentence(result, options):
    """The one sentence of a task that fails for its verdict: expected, found, and what repairs it."""
    failure = result.get("failure") or {}
    advice = (
        failure.get("advice") or "Lower the fraction, the cap or the chunked-prefill size, or lower min_least_free_gib."
    )
    return "{} was expected to survive the load, but its verdict is {}: {} {}".format(
        options["unit"] or f"The server on port {options['port']}", result["verdict"], result["reason"], advice
    )
