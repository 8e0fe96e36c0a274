# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, in motion. Looks at unit, journal, port and server until ``_ready`` decides.

Private to the gpufleet.sglang collection; may change at any time.

A wait can be cut into slices that share nothing but a small dictionary (:meth:`Waiter.slice_state`), so it goes on
after a lost connection. Clock, processes and network live here; what they mean is decided in ``_ready``.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _http,
    _mask,
    _ready,
    _startup,
    _unit,
    _verdict,
)

# The unit is looked at when its main process is gone, when systemd says something, and this often in any case.
UNIT_SECONDS = 5.0
HEALTH_SECONDS = 2.0

# A unit without any entry after this time has no journal that can be read: systemd's own "Started" is missing.
EMPTY_JOURNAL_SECONDS = 3.0

# A server that is up for longer: its start-up is read in windows, so that weeks of later lines cost nothing.
START_WINDOWS_SECONDS = (600.0, 3600.0, 4 * 3600.0)

# The first completion may compile kernels.
COMPLETION_SECONDS = 600.0


@dataclass(frozen=True)
class Settings:
    """What a wait is told. ``slice_seconds`` None: the whole wait. ``known_*`` and ``wait*``: from the last slice."""

    address: _http.Address
    target_tokens: int | None = None
    min_headroom_gib: float | None = None
    expected_pool_tokens: int | None = None
    prompt: str = "The capital of France is"
    answer_tokens: int = 8
    timeout_seconds: float = 1800.0
    poll_seconds: float = 0.5
    slice_seconds: float | None = None
    known_phase: str | None = None
    known_restarts: int | None = None
    waited_seconds: float = 0.0
    waiting_since: float | None = None


class Waiter:
    """Waits for one invocation.

    :arg follower: a ``_follow.Follower``. :arg settings: :class:`Settings`.
    :arg http: the module ``_http`` or a double of it. ``clock``, ``wall`` and ``sleep`` are replaced by tests.
    """

    def __init__(
        self, follower, settings, http=_http, proc_root="/proc", clock=time.monotonic, wall=time.time, sleep=time.sleep
    ):
        self._follower = follower
        self._settings = settings
        self._http = http
        self._proc_root = proc_root
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._began = clock()
        self._waiting_since = settings.waiting_since if settings.waiting_since is not None else wall()
        self._expected = follower.invocation_id
        self._since: dict[str, float] = {}
        self._state = None
        self._restarts = settings.known_restarts
        self._unit_at = None
        self._health_at = None
        self._health = None
        self._startup: dict[str, Any] = {"state": "loading", "phase": "process"}
        self._failure: dict[str, Any] | None = None
        self._reader = _startup.StartupReader()
        self._read_entries = 0
        self._phase = settings.known_phase
        self._phase_at = self._began
        self._witness = None
        self._witness_error = None
        self._request = None
        self._request_began = None
        self._answer_error = None

    # -- the loop

    def run(self):
        """Look and act until there is a verdict, or the slice is over.

        :returns: the result of the module; ``verdict`` is None and ``finished`` False at the end of a mere slice.
        """
        first = self._look_at_unit()
        if first is None:
            return self._failed(
                _ready.failure_record(
                    "unit_failed",
                    "process",
                    self._follower.unit_error,
                    "Run this on a host with systemd, as root (become: true).",
                )
            )
        hopeless = _ready.not_waitable(first.as_dict())
        if hopeless is None and self._expected and first.invocation_id and first.invocation_id != self._expected:
            hopeless = self._judge_other_invocation(first)
        if hopeless is not None:
            return self._failed(hopeless)
        self._read_old_start(first)
        while True:
            sight = self._look()
            move = _ready.next_move(sight)
            if move.action == "judge":
                return self._judged(sight)
            if move.action == "fail":
                return self._failed(move.failure, sight)
            if move.action != "wait":
                getattr(self, "_" + move.action)()
            if self._slice_is_over():
                return self._unfinished()
            self._sleep(0.05 if self._request else self._settings.poll_seconds)

    def _judge_other_invocation(self, state):
        """The unit was restarted since: what killed the expected invocation is still in the journal."""
        self._state = state
        self._read()
        return self._failure or _ready.changed_invocation(self._expected, state.as_dict())

    # -- looking

    def _read_old_start(self, state):
        """Read the start-up of a server that is up for long, and leave out what it said since."""
        if not state.active_enter_seconds:
            return
        age = self._monotonic_since_boot() - state.active_enter_seconds
        for window in START_WINDOWS_SECONDS:
            if age <= window + EMPTY_JOURNAL_SECONDS:
                return
            self._take_entries(self._follower.read(until_seconds=self._wall() - age + window))
            if self._startup.get("state") == "ready":
                self._follower.skip_to(self._wall() - EMPTY_JOURNAL_SECONDS)
                return

    @staticmethod
    def _monotonic_since_boot():
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def _elapsed(self):
        return self._clock() - self._began

    def _waited(self):
        return self._settings.waited_seconds + self._elapsed()

    def _lasting(self, name, holds):
        """For how many seconds a condition has held without a break; 0 when it does not hold."""
        if not holds:
            self._since.pop(name, None)
            return 0.0
        return self._clock() - self._since.setdefault(name, self._clock())

    def _look_at_unit(self):
        state = self._follower.look_at_unit()
        self._unit_at = self._clock()
        if state is not None:
            self._state = state
            if self._restarts is None:
                self._restarts = state.n_restarts or 0
        return state

    def _unit_is_due(self, told):
        pid = self._state.main_pid
        if told or not pid or self._clock() - self._unit_at >= UNIT_SECONDS:
            return True
        return not self._http.process_exists(pid, self._proc_root)

    def _read(self):
        """Read on in the journal; True when systemd itself said something."""
        return self._take_entries(self._follower.read())

    def _take_entries(self, count):
        if not count:
            return False
        entries = self._follower.entries
        if self._read_entries + count != len(entries):
            # Read again from the beginning (the journal was rotated, or lines in the middle were dropped).
            self._reader = _startup.StartupReader()
            self._read_entries, count = 0, len(entries)
        for entry in entries[-count:]:
            self._reader.feed(entry)
        self._read_entries = len(entries)
        self._startup = self._reader.result().as_dict()
        self._classify()
        return any(entry.unit_message for entry in entries[-count:])

    def _classify(self):
        failure = _failures.classify(
            self._follower.entries, startup=self._reader.result(), unit=self._state, secrets=self._secrets()
        )
        self._failure = failure.as_dict() if failure else None

    def _look(self):
        told = self._read()
        if self._unit_is_due(told):
            was_ended = self._is_ended()
            self._look_at_unit()
            if self._is_ended() and not was_ended:
                # The last lines may have come between the two looks; and an end may turn a hint into a cause.
                self._read()
                self._classify()
        self._note_phase()
        sight = self._sight()
        if _ready.wants_port(sight):
            sight = replace(sight, **self._look_at_port())
        return self._with_answer(sight)

    def _is_ended(self):
        return _unit.ended(self._state)

    def _is_restarted(self):
        other = self._state.invocation_id and self._state.invocation_id != self._follower.invocation_id
        return bool(other) or (self._state.n_restarts or 0) > (self._restarts or 0)

    def _note_phase(self):
        phase = self._startup.get("phase") or "process"
        if phase != self._phase:
            if self._phase is None:
                self._settings = replace(self._settings, known_phase=phase)
            self._phase, self._phase_at = phase, self._clock()

    def _phase_seconds(self):
        """How long the phase lasts: by the journal, which also knows of the slices before this one."""
        began = [phase.get("began_at") for phase in self._startup.get("phases") or [] if phase.get("began_at")]
        return max(self._clock() - self._phase_at, self._wall() - began[-1] if began else 0.0)

    def _journal_is_there(self):
        if self._follower.journal_error:
            return False
        return bool(self._follower.entries) or self._elapsed() < EMPTY_JOURNAL_SECONDS

    def _sight(self):
        ended, restarted = self._is_ended(), self._is_restarted()
        fatal = bool(self._failure and self._failure.get("fatal"))
        return _ready.Sight(
            unit=self._state.as_dict(),
            ended=ended,
            restarted=restarted,
            ended_seconds=self._lasting("ended", ended or restarted),
            startup=self._startup,
            failure=self._failure,
            failure_seconds=self._lasting("failure", fatal),
            journal=self._journal_is_there(),
            phase_seconds=self._phase_seconds(),
            ready_seconds=self._lasting("ready", self._startup.get("state") == "ready"),
            healthy_seconds=self._clock() - self._since["healthy"] if "healthy" in self._since else None,
            witness=self._witness,
            witness_error=self._witness_error,
            answering=self._request is not None,
            answer_error=self._answer_error,
            last_line=_mask.mask_text(self._follower.last_line)[:300],
            waited_seconds=self._waited(),
            timeout_seconds=self._settings.timeout_seconds,
        )

    def _look_at_port(self):
        address = self._settings.address
        owners = self._http.port_owners(address.port, self._proc_root, address.host)
        ours = [pid for pid in owners if self._http.descends_from(pid, self._state.main_pid, self._proc_root)]
        if ours:
            return {"port": "ours", "port_owner": ours[0]}
        if owners:
            return {"port": "other", "port_owner": owners[0]}
        return {"port": "hidden" if self._http.port_is_open(address.port, self._proc_root, address.host) else "closed"}

    def _with_answer(self, sight):
        """The sight with the completion, when it has come back."""
        if self._request is None or self._request.is_alive():
            return sight
        failed = _http.Answer(0, error=f"the completion failed: {self._request.error!r}")
        answer, text = self._request.result or (failed, None)
        self._request = None
        self._answer_error = answer.error
        return replace(sight, answering=False, answer_status=answer.status, answer_text=text, answer_error=answer.error)

    # -- acting

    def _ask_health(self):
        """Ask beside the looking: an answer costs the server a generation, and may take its time."""
        if self._health is not None and not self._health.is_alive():
            self._lasting("healthy", self._health.result is not None and self._health.result.good)
            self._health = None
        if self._health is None and (self._health_at is None or self._clock() - self._health_at >= HEALTH_SECONDS):
            self._health_at = self._clock()
            self._health = _Call(self._http.health, self._settings.address)
            self._health.start()

    def _ask_info(self):
        answer = self._http.server_info(self._settings.address)
        if answer.good and isinstance(answer.data, dict):
            self._witness = self._http.startup_of_server_info(answer.data)
        elif answer.status and answer.status < 500:
            self._witness_error = answer.error

    def _ask_completion(self):
        if self._request is not None:
            return
        left = max(self._settings.timeout_seconds - self._waited(), 1.0)
        self._request_began = self._wall()
        self._request = _Call(
            self._http.completion,
            self._settings.address,
            self._settings.prompt,
            self._settings.answer_tokens,
            min(left, COMPLETION_SECONDS),
        )
        self._request.start()
        self._request.join(self._settings.poll_seconds)

    # -- the end

    def _slice_is_over(self):
        if self._settings.slice_seconds is None:
            return False
        phase = "completion" if self._request or "healthy" in self._since else self._phase
        return _ready.slice_is_over(
            phase,
            self._settings.known_phase,
            self._clock() - self._phase_at,
            self._elapsed(),
            self._settings.slice_seconds,
        )

    def slice_state(self):
        """What the next slice has to be told. ``waited_seconds`` is the caller's own to count."""
        return {
            "invocation_id": self._follower.invocation_id,
            "phase": self._phase,
            "restarts": self._restarts,
            "waiting_since": self._waiting_since,
        }

    def _base(self, startup):
        return {
            "finished": True,
            "verdict": None,
            "reason": None,
            "unit": self._follower.unit_name,
            "invocation_id": self._follower.invocation_id,
            "startup": startup,
            "failure": None,
            "evidence": None,
            "answer": None,
            "answered_by_pid": None,
            "pool_as_expected": None,
            "seconds_after_ready_line": None,
            "seconds_after_fatal_line": None,
            "timeline": _ready.timeline(startup),
            "phase": self._phase or "process",
            "elapsed_seconds": self._startup_seconds(startup),
            "waited_seconds": round(self._waited(), 2),
            "slice": self.slice_state(),
        }

    def _startup_seconds(self, startup):
        """Seconds since the invocation began, by the host's clock."""
        phases = [phase.get("began_at") for phase in startup.get("phases") or [] if phase.get("began_at")]
        began = min(phases) if phases else self._waiting_since
        return round(max(self._wall() - began, 0.0), 1)

    def _after(self, at):
        """Seconds since a line, or None when it is older than the wait: then they tell nothing about the wait."""
        if at is None or at < self._waiting_since:
            return None
        return round(self._wall() - at, 3)

    def _unfinished(self):
        startup, evidence = _ready.merged_startup(self._startup, self._witness)
        return dict(self._base(startup), finished=False, evidence=evidence)

    def _failed(self, failure, sight=None):
        startup, evidence = _ready.merged_startup(self._startup, self._witness)
        judged = _verdict.judge_ready(startup, failure, self._settings.target_tokens, self._settings.min_headroom_gib)
        result = dict(self._base(startup), failure=failure, evidence=evidence, **judged)
        result["seconds_after_fatal_line"] = self._after(failure.get("at"))
        if sight is not None:
            result["last_line"] = sight.last_line
        return result

    def _judged(self, sight):
        answered_at = self._wall()
        startup, evidence = _ready.merged_startup(self._startup, self._witness)
        judged = _verdict.judge_ready(startup, None, self._settings.target_tokens, self._settings.min_headroom_gib)
        expected, pool = self._settings.expected_pool_tokens, startup.get("pool_tokens")
        result = dict(self._base(startup), evidence=evidence, **judged)
        result.update(
            phase="ready",
            answer=_mask.mask_text(sight.answer_text, self._secrets()),
            answered_by_pid=sight.port_owner,
            pool_as_expected=None if expected is None or pool is None else pool >= expected,
            seconds_after_ready_line=self._after(startup.get("ready_at")),
            timeline=_ready.timeline(startup, (self._request_began, round(answered_at - self._request_began, 3))),
        )
        return result

    def _secrets(self):
        key = self._settings.address.api_key
        return (key,) if key else ()


class _Call(threading.Thread):
    """A call beside the looking: a server can die of its first request. ``result`` is None until it is back."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self._function = function
        self._arguments = arguments
        self.result = None
        self.error = None

    def run(self):
        try:
            self.result = self._function(*self._arguments)
        except Exception as error:  # pylint: disable=broad-except
            # A thread has nobody to raise to; the wait goes on and names it.
            self.error = error


def failing_sentence(result):
    """The one sentence of a task that fails for its verdict: expected, found, and what repairs it."""
    failure = result.get("failure") or {}
    advice = (
        {
            "short": "Plan again with this start-up as measurement, or lower target_tokens.",
            "unsafe": "Lower the fraction or the cap, or lower min_headroom_gib.",
        }.get(result["verdict"])
        or failure.get("advice")
        or "Look into journalctl -u {}.".format(result["unit"])
    )
    return "{} was expected to hold its promise, but its verdict is {}: {} {}".format(
        result["unit"], result["verdict"], result["reason"], advice
    )
