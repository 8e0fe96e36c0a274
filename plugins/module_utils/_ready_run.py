# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, in motion. Looks, asks the server and goes on until ``_ready`` decides.

Private to the gpufleet.sglang collection; may change at any time.

A wait can be cut into slices that share nothing but a small dictionary (:meth:`Waiter.slice_state`), so it goes on
after a lost connection. ``_ready_look`` sees unit, journal and port; what a sight means is decided in ``_ready``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _follow_unit,
    _http,
    _mask,
    _ready,
    _ready_before,
    _ready_boot,
    _ready_end,
    _ready_load,
    _ready_look,
    _verdict,
    _witness,
    _witness_look,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._ready_call import Call

HEALTH_SECONDS = 2.0

# While a completion is under way: a server can die of it, and the answer is not to wait for the next poll.
ANSWERING_POLL_SECONDS = 0.05

# The ready line is seconds away: what is waited for now is waited for by a person.
WARMUP_POLL_SECONDS = 0.1

# Something has died or is dying: only the last lines are waited for.
DYING_POLL_SECONDS = 0.05

# So long such a slice goes on at least, although its time is over.
DYING_HOLD_SECONDS = 3.0

# In the pause between two looks the main process is looked at so often: its end is not to wait for the next one.
NAP_SECONDS = 0.05

# The first completion may compile kernels.
COMPLETION_SECONDS = 600.0


@dataclass(frozen=True)
class Settings:
    """What a wait is told.

    ``slice_seconds`` None: the whole wait. ``known_*``, ``wait*``, ``boot_id`` and ``load``: from the last slice.
    ``timeout_seconds`` None: computed. ``patience_factor`` multiplies the patience of each phase, 0 ends it.
    """

    address: _http.Address
    target_tokens: int | None = None
    min_headroom_gib: float | None = None
    expected_pool_tokens: int | None = None
    prompt: str = "The capital of France is"
    answer_tokens: int = 8
    nvidia_smi: str = "nvidia-smi"
    timeout_seconds: float | None = None
    model_path: str | None = None
    expected_weight_gib: float | None = None
    last_load_seconds: float | None = None
    patience_factor: float = 1.0
    poll_seconds: float = 0.5
    slice_seconds: float | None = None
    known_phase: str | None = None
    known_restarts: int | None = None
    waited_seconds: float = 0.0
    waiting_since: float | None = None
    boot_id: str | None = None
    load: dict | None = None


class Waiter:
    """Waits for one invocation.

    :arg follower: a ``_follow.Follower``. :arg settings: :class:`Settings`.
    :arg http: the module ``_http`` or a double of it. :arg call: the class :class:`Call` or a double of it.
    :arg load: a ``_ready_load.StartLoad`` or a double of it. ``clock``, ``wall`` and ``sleep`` are replaced by tests.
    """

    def __init__(
        self,
        follower,
        settings,
        http=_http,
        proc_root="/proc",
        clock=time.monotonic,
        wall=time.time,
        sleep=time.sleep,
        call=Call,
        look_at_boards=_witness_look.look,
        load=None,
    ):
        self._follower = follower
        self._settings = settings
        self._http = http
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._call = call
        self._proc_root = proc_root
        self._look_at_boards = look_at_boards
        self._asking = None
        self._began = clock()
        self._waiting_since = settings.waiting_since if settings.waiting_since is not None else wall()
        self._expected = follower.invocation_id
        self._load = load or _ready_load.StartLoad(settings, clock, proc_root)
        self._look = _ready_look.StartLook(follower, settings, http, proc_root, clock, wall, self._load)
        self._lasting = _follow_unit.Lasting(clock)
        self._asks = {
            "ask_health": self._ask_health,
            "ask_info": self._ask_info,
            "ask_completion": self._ask_completion,
        }
        self._health_at = None
        self._health = None
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
        first = self._look.look_at_unit()
        if first is None:
            return self._failed(
                _ready_end.failure_record(
                    "unit_failed",
                    "process",
                    self._follower.unit_error,
                    "Run this on a host with systemd, as root (become: true).",
                )
            )
        if _ready_boot.is_rebooted(self._settings.boot_id, self._settings.waited_seconds, self._proc_root):
            return self._failed(_ready_end.rebooted(self._follower.unit_name))
        hopeless = _ready_before.not_waitable(first.as_dict())
        if hopeless is None and self._expected and first.invocation_id and first.invocation_id != self._expected:
            hopeless = self._judge_other_invocation(first)
        if hopeless is not None:
            return self._failed(hopeless)
        self._look.read()
        while True:
            sight = self._with_answer(self._see())
            move = _ready.next_move(sight)
            if move.action == "judge":
                return self._judged(sight)
            if move.action == "fail":
                return self._failed(move.failure, sight)
            if move.action in self._asks:
                self._asks[move.action]()
            if self._slice_is_over():
                return self._unfinished()
            self._nap(self._pause_seconds())

    def _nap(self, seconds):
        """Pause, but not beyond the end of the main process."""
        until = self._clock() + seconds
        was_there = self._look.main_process_is_there()
        while self._clock() < until:
            self._sleep(min(NAP_SECONDS, max(until - self._clock(), 0.001)))
            if was_there and not self._look.main_process_is_there():
                return

    def _pause_seconds(self):
        if self._request:
            return ANSWERING_POLL_SECONDS
        if self._look.is_dying():
            return DYING_POLL_SECONDS
        if self._look.phase == "warmup":
            return min(WARMUP_POLL_SECONDS, self._settings.poll_seconds)
        return self._settings.poll_seconds

    def _judge_other_invocation(self, state):
        """The unit was restarted since: what killed the expected invocation is still in the journal."""
        self._look.read()
        self._look.name_cause()
        return self._look.failure or _ready_end.changed_invocation(self._expected, state.as_dict())

    def _elapsed(self):
        return self._clock() - self._began

    def _waited(self):
        return self._settings.waited_seconds + self._elapsed()

    def _see(self):
        """One sight, with what the server itself was asked before."""
        return replace(
            self._look.see(),
            healthy_seconds=self._lasting.seconds("healthy"),
            witness=self._witness,
            witness_error=self._witness_error,
            answering=self._request is not None,
            answer_error=self._answer_error,
            waited_seconds=self._waited(),
            timeout_seconds=self._load.deadline().seconds,
        )

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
            self._lasting.note("healthy", self._health.result is not None and self._health.result.good)
            self._health = None
        if self._health is None and (self._health_at is None or self._clock() - self._health_at >= HEALTH_SECONDS):
            self._health_at = self._clock()
            self._health = self._call(self._http.health, self._settings.address)
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
        self._ask_witnesses()
        left = max(self._load.deadline().seconds - self._waited(), 1.0)
        self._request_began = self._wall()
        self._request = self._call(
            self._http.completion,
            self._settings.address,
            self._settings.prompt,
            self._settings.answer_tokens,
            min(left, COMPLETION_SECONDS),
        )
        self._request.start()
        self._request.join(self._settings.poll_seconds)

    def _ask_witnesses(self):
        """Ask nvidia-smi and ``/server_info`` beside the completion, once: they cost no time of their own."""
        if self._asking is None:
            self._asking = _witness_look.Asking(
                self._call,
                self._look.main_pid,
                self._http,
                self._settings.address,
                self._proc_root,
                self._settings.nvidia_smi,
                self._look_at_boards,
                self._load.nvidia_smi_hangs,
            )

    # -- the end

    def _slice_is_over(self):
        if self._settings.slice_seconds is None:
            return False
        if self._look.is_dying() and self._elapsed() < DYING_HOLD_SECONDS:
            # The cause is about to be known.
            return False
        at_the_end = self._request or self._lasting.seconds("healthy") is not None
        return _ready.slice_is_over(
            "completion" if at_the_end else self._look.phase,
            self._look.known_phase,
            self._clock() - self._look.phase_at,
            self._elapsed(),
            self._settings.slice_seconds,
        )

    def slice_state(self):
        """What the next slice has to be told. ``waited_seconds`` is the caller's own to count."""
        return {
            "invocation_id": self._follower.invocation_id,
            "phase": self._look.phase,
            "restarts": self._look.restarts,
            "waiting_since": self._waiting_since,
            "boot_id": _ready_boot.boot_id(self._proc_root),
            "load": self._load.state(),
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
            "headroom": None,
            "pools": None,
            "notices": [],
            "answer": None,
            "answered_by_pid": None,
            "pool_as_expected": None,
            "seconds_after_ready_line": None,
            "seconds_after_fatal_line": None,
            "timeline": _ready.timeline(startup),
            "phase": self._look.phase or "process",
            "elapsed_seconds": self._startup_seconds(startup),
            "waited_seconds": round(self._waited(), 2),
            "deadline": self._load.deadline().as_dict(),
            "progress": self._look.progress(),
            "slice": self.slice_state(),
        }

    def _startup_seconds(self, startup):
        """Seconds since the invocation began, by the host's clock."""
        began = min(_ready.phase_beginnings(startup), default=self._waiting_since)
        return round(max(self._wall() - began, 0.0), 1)

    def _after(self, at):
        """Seconds since a line, or None when it is older than the wait: then they tell nothing about the wait."""
        if at is None or at < self._waiting_since:
            return None
        return round(self._wall() - at, 3)

    def _unfinished(self):
        startup, evidence = _ready.merged_startup(self._look.startup, self._witness)
        return dict(self._base(startup), finished=False, evidence=evidence)

    def _failed(self, failure, sight=None):
        startup, evidence = _ready.merged_startup(self._look.startup, self._witness)
        judged = _verdict.judge_ready(startup, failure, self._settings.target_tokens, self._settings.min_headroom_gib)
        result = dict(self._base(startup), failure=failure, evidence=evidence, **judged)
        result["seconds_after_fatal_line"] = self._after(failure.get("at"))
        if sight is not None:
            result["last_line"] = sight.last_line
            result["processes"] = self._look.processes()
        return result

    def _judged(self, sight):
        answered_at = self._wall()
        boards, info, why = self._asking.heard()
        startup, evidence = _ready.merged_startup(self._look.startup, info or self._witness)
        headroom = _witness.headroom(startup, boards, info, why)
        pools = _witness.pools(startup, info)
        startup = _witness.with_least_pool(startup, pools)
        judged = _verdict.judge_ready(
            startup, None, self._settings.target_tokens, self._settings.min_headroom_gib, headroom, pools
        )
        expected, pool = self._settings.expected_pool_tokens, startup.get("pool_tokens")
        result = dict(self._base(startup), evidence=evidence, **judged)
        result.update(
            phase="ready",
            failure=_ready.not_told(judged) if judged["verdict"] == "failed" else None,
            headroom=headroom,
            pools=pools,
            notices=[*_witness_look.missing(boards), *_witness.notices(boards), *self._look.notices()],
            answer=_mask.mask_text(sight.answer_text, self._settings.address.secrets),
            answered_by_pid=sight.port_owner,
            pool_as_expected=None if expected is None or pool is None else pool >= expected,
            seconds_after_ready_line=self._after(startup.get("ready_at")),
            timeline=_ready.timeline(startup, (self._request_began, round(answered_at - self._request_began, 3))),
        )
        return result


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
