# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, in motion. Sends what ``_soak`` plans, samples memory and watches the unit while it does.

Private to the gpufleet.sglang collection; may change at any time.

Clock, threads and network live here. What is sent and what it means is decided in ``_soak``.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
import uuid

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _follow,
    _http,
    _ready,
    _soak,
    _startup,
    _unit,
)

# How often the free memory is sampled, and how often the unit is looked at.
SAMPLE_SECONDS = 0.2
WATCH_SECONDS = 0.5

# The unit is asked this often when nothing else tells of a change.
UNIT_SECONDS = 5.0

# How long a death may take to show in the journal after a connection broke.
DEATH_SETTLE_SECONDS = 8.0


class Client:
    """Streams requests to ``/generate``.

    :arg session: a ``requests.Session``. :arg errors: the exceptions of that library (``requests.RequestException``).
    :arg vocab_size: of the model, or None: prompts are then random words, measured by the first answer.
    """

    def __init__(self, session, errors, address, seed, vocab_size=None):
        self._session = session
        self._errors = errors
        self._url = address.base_url + "/generate"
        self._headers = {"Authorization": "Bearer " + address.api_key} if address.api_key else {}
        self._seed = seed
        self._vocab_size = vocab_size
        self._tokens_per_word = None
        # The environment's proxies and netrc: the load is for this host's server.
        session.trust_env = False

    def payload(self, number, tokens, answer_tokens):
        body = {
            "sampling_params": {"max_new_tokens": answer_tokens, "temperature": 0, "ignore_eos": True},
            "stream": True,
        }
        if self._vocab_size:
            body["input_ids"] = _soak.prompt_ids(self._seed, number, tokens, self._vocab_size)
        else:
            # Before the first answer: surely short enough, four tokens a word.
            words = _soak.words_for(tokens, self._tokens_per_word or 4.0)
            body["text"] = _soak.prompt_text(self._seed, number, words)
        return body

    def send(self, number, phase, tokens, answer_tokens, clock, deadline):
        """One request; returns its :class:`_soak.Outcome`. ``clock()`` gives seconds since the soak began."""
        body = self.payload(number, tokens, answer_tokens)
        seen = {"number": number, "phase": phase, "wanted_tokens": tokens, "began": clock()}
        try:
            self._stream(body, seen, clock, deadline)
        except self._errors as error:
            # A read that times out because the soak is over is not the server's fault.
            seen["status"] = "cut" if clock() >= deadline - 0.05 else "failed"
            seen["error"] = str(error)[:300]
        except ValueError as error:
            seen["status"], seen["error"] = "failed", f"no JSON in the stream: {error}"
        seen["ended"] = clock()
        if seen["status"] == "answered" and not self._vocab_size:
            self._tokens_per_word = max(seen["prompt_tokens"], 1) / float(len(body["text"].split()))
        return _soak.Outcome(**seen)

    def _stream(self, body, seen, clock, deadline):
        timeout = (5.0, max(deadline - clock(), 0.1))
        with self._session.post(self._url, json=body, headers=self._headers, stream=True, timeout=timeout) as response:
            if response.status_code != 200:
                seen["status"] = "refused" if 400 <= response.status_code < 500 else "failed"
                seen["error"] = f"status {response.status_code}: {response.text.strip()[:300]}"
                return
            seen["status"], seen["error"] = "failed", "the stream ended before its end"
            for line in response.iter_lines(chunk_size=None):
                if clock() >= deadline:
                    seen["status"], seen["error"] = "cut", None
                    return
                if line.startswith(b"data:") and self._event(line[5:].strip(), seen, clock):
                    return

    @staticmethod
    def _event(data, seen, clock):
        """One server-sent event. True when it is the last one."""
        if data == b"[DONE]":
            return True
        event = json.loads(data.decode("utf-8", "replace"))
        if event.get("error"):
            error = event["error"] if isinstance(event["error"], dict) else {"message": event["error"]}
            code = error.get("code")
            seen["status"] = "refused" if isinstance(code, int) and 400 <= code < 500 else "failed"
            seen["error"] = str(error.get("message", error))[:300]
            return True
        meta = event.get("meta_info") or {}
        seen.setdefault("first_token_at", clock())
        seen["prompt_tokens"] = int(meta.get("prompt_tokens") or seen.get("prompt_tokens", 0))
        seen["cached_tokens"] = int(meta.get("cached_tokens") or 0)
        seen["answer_tokens"] = int(meta.get("completion_tokens") or seen.get("answer_tokens", 0))
        reason = meta.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            bad_request = str(reason.get("err_type", "")).startswith("BadRequest")
            seen["status"], seen["error"] = "refused" if bad_request else "failed", str(reason.get("message"))[:300]
            return True
        if reason:
            seen["status"], seen["error"] = "answered", None
        return False


class Soak:
    """One soak: phases in order, a sampler and a watcher beside them.

    :arg send: ``send(number, phase, tokens, answer_tokens, clock, deadline) -> Outcome``
    :arg sample: ``() -> {board: GiB free}``; empty when nothing can be sampled.
    :arg watch: ``() -> failure dict | None``, called again and again; None for nothing wrong. ``watch=None``: no unit.
    """

    def __init__(self, phases, limits, send, sample, watch=None, clock=time.monotonic):
        self.phases = phases
        self.limits = limits
        self.samples = _soak.Samples()
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
        return _soak.too_short_for(tokens, speed, self.limits.seconds - self.clock()) is None

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
                self.failure = dict(self.failure, request=_soak.suspect(self.outcomes, list(self._in_flight.values())))

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


# ---------------------------------------------------------------------------------------------------------------
# Free memory


def meminfo_free_gib(text):
    """``{"cpu": GiB}``: the memory that is available, as SGLang on a CPU counts it, from ``/proc/meminfo``."""
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return {"cpu": int(line.split()[1]) / 1048576.0}
    return {}


def nvidia_smi_free_gib(text):
    """``{index: GiB}`` from ``nvidia-smi --query-gpu=index,memory.free --format=csv,noheader,nounits`` (MiB)."""
    free = {}
    for line in text.splitlines():
        index, dummy, mib = (part.strip() for part in line.partition(","))
        try:
            free[str(int(index))] = float(mib) / 1024.0
        except ValueError:
            continue
    return free


class NvmlSampler:
    """Free memory through NVIDIA's management library: microseconds a sample, nvidia-smi takes tens of milliseconds.

    :raises Exception: whatever the library raises when there is no driver.
    """

    def __init__(self, library, boards):
        self._library = library
        library.nvmlInit()
        numbers = boards or range(library.nvmlDeviceGetCount())
        self._handles = {str(number): library.nvmlDeviceGetHandleByIndex(number) for number in numbers}

    def __call__(self):
        memory = self._library.nvmlDeviceGetMemoryInfo
        return {board: memory(handle).free / 1073741824.0 for board, handle in self._handles.items()}


class SmiSampler:
    """Free memory through ``nvidia-smi``; an empty sample when it does not answer."""

    def __init__(self, run_command, nvidia_smi, boards):
        self._run_command = run_command
        self._argv = [nvidia_smi, "--query-gpu=index,memory.free", "--format=csv,noheader,nounits"]
        self._boards = {str(board) for board in boards}

    def __call__(self):
        try:
            status, out, dummy = self._run_command(self._argv)
        except OSError:
            return {}
        free = nvidia_smi_free_gib(out) if status == 0 else {}
        return {board: gib for board, gib in free.items() if not self._boards or board in self._boards}


def meminfo_sampler(path="/proc/meminfo"):
    """A sampler of the machine's available memory."""

    def sample():
        try:
            with open(path, encoding="ascii", errors="replace") as stream:
                return meminfo_free_gib(stream.read())
        except OSError:
            return {}

    return sample


def sampler_of(options, run_command):
    """The best sampler that works here: NVML of the engine's venv, else nvidia-smi; the available memory on a CPU."""
    if options["device"] == "cpu":
        return meminfo_sampler()
    if options["nvidia_smi"] == "nvidia-smi":
        try:
            return NvmlSampler(importlib.import_module("pynvml"), options["boards"])
        except Exception:  # pylint: disable=broad-except
            # Not installed, or no driver: nvidia-smi tells the rest.
            pass
    return SmiSampler(run_command, options["nvidia_smi"], options["boards"])


# ---------------------------------------------------------------------------------------------------------------
# The unit under load


class UnitWatch:
    """Called again and again: None, or the failure record of a death. Counts retractions.

    :arg follower: a ``_follow.Follower`` that begins to read now.
    """

    def __init__(self, follower, clock=time.monotonic, proc_root="/proc"):
        self._follower = follower
        self._clock = clock
        self._proc_root = proc_root
        self._state = follower.look_at_unit()
        self._looked_at = clock()
        self._restarts = self._state.n_restarts if self._state else 0
        self._failure = None
        self._since = {}
        self.retractions = 0

    @property
    def retractions_or_none(self):
        return None if self._follower.journal_error else self.retractions

    def not_running(self):
        """One sentence when there is nothing to put a load on, else None."""
        if self._state is None:
            return self._follower.unit_error
        if self._state.active_state != "active":
            return "Expected {} to be active, found it {}.".format(
                self._follower.unit_name, self._state.active_state or "unknown"
            )
        return None

    def __call__(self):
        count = self._follower.read()
        fresh = self._follower.entries[-count:] if count else []
        self.retractions += sum(1 for entry in fresh if _soak.RETRACTION.search(entry.message))
        if self._is_due(fresh):
            self._state = self._follower.look_at_unit() or self._state
            self._looked_at = self._clock()
        if count or _unit.ended(self._state):
            served = _startup.Startup(state="ready", phase="ready")
            failure = _failures.classify(self._follower.entries, startup=served, unit=self._state)
            self._failure = failure.as_dict() if failure else None
        move = _ready.death(self._sight())
        return move.failure if move is not None and move.action == "fail" else None

    def _is_due(self, fresh):
        if any(entry.unit_message for entry in fresh) or self._clock() - self._looked_at >= UNIT_SECONDS:
            return True
        return not self._state.main_pid or not _http.process_exists(self._state.main_pid, self._proc_root)

    def _sight(self):
        ended = _unit.ended(self._state)
        restarted = _unit.is_crash_loop(self._state, self._restarts, self._follower.invocation_id)
        fatal = bool(self._failure and self._failure.get("fatal"))
        return _ready.Sight(
            unit=self._state.as_dict(),
            ended=ended,
            restarted=restarted,
            ended_seconds=self._lasting("ended", ended or restarted),
            startup={"phase": "soak"},
            failure=self._failure,
            failure_seconds=self._lasting("failure", fatal),
            last_line=self._follower.last_line[:300],
        )

    def _lasting(self, name, holds):
        if not holds:
            self._since.pop(name, None)
            return 0.0
        return self._clock() - self._since.setdefault(name, self._clock())


# ---------------------------------------------------------------------------------------------------------------
# The whole job


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
        client = Client(session, errors, self._address, uuid.uuid4().hex, self._options["vocab_size"])
        soak = Soak(phases, self._limits, client.send, sampler_of(self._options, self._run_command), watch)
        soak.run()
        return self._result(soak, watch)

    def _watch(self):
        if not self._options["unit"]:
            return None
        follower = _follow.Follower(
            self._run_command, self._options["unit"], self._options["invocation_id"], since_seconds=self._wall()
        )
        return UnitWatch(follower)

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
            "failure": _soak.no_evidence(problem, "Start the server and wait for it with server_ready first."),
        }
        soak = Soak((), self._limits, None, dict)
        return dict(self._figures(soak, None), **judged)

    def _result(self, soak, watch):
        near = _soak.near_context_tokens(self._context_tokens)
        figures = self._figures(soak, watch)
        errors = [
            outcome.error for outcome in soak.outcomes if outcome.error and outcome.status in ("failed", "refused")
        ]
        judged = _soak.judge_soak(
            _soak.summarize(soak.outcomes, near),
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
        figures = _soak.summarize(soak.outcomes, 0, soak.phases)
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
