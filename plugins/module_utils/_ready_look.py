# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, the looking. One look at unit, journal and port is one ``_ready.Sight``.

Private to the gpufleet.sglang collection; may change at any time.

What the server itself is asked, and what a sight means, stands in ``_ready_run`` and ``_ready``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _follow_unit,
    _mask,
    _patience,
    _ready,
    _ready_cause,
    _ready_load,
    _unit,
    _witness_tool,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import SERVICE, split_head
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup_lines import ECHO_PREFIXES

# A unit without any entry after this time has no journal that can be read: systemd's own "Started" is missing.
EMPTY_JOURNAL_SECONDS = 3.0

# A line that is news is looked for among so many of the newest.
NEWS_ENTRIES = 200


class StartLook:
    """Looks at one invocation again and again, and keeps what its journal told so far.

    ``startup`` and ``failure``: records as dictionaries. ``phase``: the last one seen, since ``phase_at`` (by the
    clock). ``known_phase``: the one that the wait began with. ``restarts``: of the unit when the wait began.

    :arg follower: a ``_follow.Follower``. :arg settings: ``_ready_run.Settings``. :arg load: ``_ready_load.StartLoad``.
    """

    def __init__(self, follower, settings, http, proc_root, clock, wall, load):
        self._follower = follower
        self._address = settings.address
        self._http = http
        self._proc_root = proc_root
        self._clock = clock
        self._wall = wall
        self._began = clock()
        self._unit = _follow_unit.UnitLook(follower, http, proc_root, clock)
        self._lasting = _follow_unit.Lasting(clock)
        self._load = load
        self._news = None
        self._no_journal = None
        self._still_since = self._began
        self._cause = _ready_cause.CauseReader(follower, clock, settings.address.secrets)
        self._is_stopped = False
        self.startup: dict[str, Any] = {"state": "loading", "phase": "process"}
        self.failure: dict[str, Any] | None = None
        self.phase = self.known_phase = settings.known_phase
        self.phase_at = self._began
        self.restarts = settings.known_restarts
        self._waited_before = settings.waited_seconds

    def see(self):
        """Look at everything once; the fields of the sight that the server itself must tell stay empty."""
        told = self.read()
        if self._unit.is_due(told):
            was_ended = self._is_ended()
            self.look_at_unit()
            if self._is_ended() and not was_ended:
                # The last lines may have come between the two looks; and an end may turn a hint into a cause.
                self.read()
        self.name_cause()
        self._note_phase()
        self._load.look(self.main_pid, self.startup, self._news)
        sight = self._sight()
        if _ready.wants_port(sight):
            sight = replace(sight, **self._look_at_port())
        return sight

    # -- the unit

    @property
    def main_pid(self):
        """The main process of the unit as it was seen last, 0 without one."""
        return self._unit.state.main_pid if self._unit.state else 0

    def look_at_unit(self):
        """The state of the unit, or None when systemd could not be asked."""
        state = self._unit.look()
        if state is not None and self.restarts is None:
            self.restarts = state.n_restarts or 0
        return state

    def _is_ended(self):
        return _unit.ended(self._unit.state)

    def main_process_is_there(self):
        """Whether the unit's main process, as it was last seen, lives."""
        return bool(self.main_pid) and self._http.process_exists(self.main_pid, self._proc_root)

    def is_dying(self):
        """Whether something has died and the rest is only waited for."""
        if self._is_ended() or (self.failure and self.failure.get("fatal")):
            return True
        return bool(self.main_pid) and not self.main_process_is_there()

    def _is_restarted(self):
        state = self._unit.state
        other = state.invocation_id and state.invocation_id != self._follower.invocation_id
        return bool(other) or (state.n_restarts or 0) > (self.restarts or 0)

    # -- the journal

    def read(self):
        """Read on in the journal; True when systemd itself said something."""
        self._follower.read()
        fresh = self._cause.feed()
        if fresh:
            self.startup = self._cause.startup.as_dict()
        self._hear(fresh)
        return any(entry.unit_message for entry in fresh)

    def name_cause(self):
        """Keep the cause of death as it is known now."""
        self.failure = self._cause.look(self._unit.state, self._is_ended())

    def notices(self):
        """Sentences of the journal about settings that do nothing."""
        return self._cause.notices()

    def _hear(self, fresh):
        """Keep when something came last, and the newest line that tells something: a knock at the port does not."""
        if fresh:
            self._still_since = self._clock()
        if any(entry.unit_message and entry.message.startswith("Stopping ") for entry in fresh):
            self._is_stopped = True
        for entry in reversed(fresh[-NEWS_ENTRIES:]):
            text = split_head(entry.message)[2].strip()
            if entry.source == SERVICE and text and not text.startswith(ECHO_PREFIXES):
                self._news = text
                return

    def _journal_is_there(self):
        if self._follower.journal_error:
            return False
        if self._follower.entries:
            return True
        # What has ended would have left its lines by now.
        return not self._is_ended() and self._clock() - self._began < EMPTY_JOURNAL_SECONDS

    def _why_no_journal(self):
        """One sentence, or None. Asked for once: the reason does not change."""
        if self._journal_is_there() or not self._follower.reads_journal:
            return None
        if self._no_journal is None:
            self._no_journal = self._follower.why_empty()
        return self._no_journal

    # -- the phase

    def _note_phase(self):
        phase = self.startup.get("phase") or "process"
        if phase != self.phase:
            if self.phase is None:
                self.known_phase = phase
            self.phase, self.phase_at = phase, self._clock()

    def _phase_seconds(self):
        """How long the phase lasts: by the journal, which also knows of the slices before this one."""
        began = _ready.phase_beginnings(self.startup)
        return max(self._clock() - self.phase_at, self._wall() - began[-1] if began else 0.0)

    # -- silence

    def _silence(self):
        """How silent it is; without a journal nobody knows the phase."""
        return self._load.silence((self.startup.get("phase") or "process") if self._journal_is_there() else None)

    def _stall(self):
        """The failure that silence names, or None."""
        if self.startup.get("state") == "ready":
            return self._unanswered()
        silent = self._silence()
        if not silent.stalled:
            return None
        failure = self._cause.ask(
            self._unit.state, silence_seconds=silent.seconds, deadline_seconds=silent.limit_seconds
        )
        return _ready_load.with_what_was_seen(failure, silent) if failure else None

    def _unanswered(self):
        """The failure of a ready server that answers no completion, or None."""
        limit, seconds = self._load.answer_seconds(), self._clock() - self._began + self._waited_before
        seconds = min(seconds, self._phase_seconds())
        if limit is None or seconds < limit:
            return None
        failure = _ready.failure_record(
            "watchdog_hang",
            "completion",
            f"Expected a completion within {limit:.0f} s of the ready line, found none after {seconds:.0f} s",
            f"Look at the processes of the unit and at the boards. {_ready_load.RAISE_PATIENCE}",
            transient=True,
        )
        return dict(failure, figures={"silence_seconds": round(seconds, 1), "deadline_seconds": limit})

    def progress(self):
        """How far the start is, for people."""
        began = _ready.phase_beginnings(self.startup)
        elapsed = self._wall() - began[0] if began else self._clock() - self._began
        return self._load.progress(self.startup, max(elapsed, 0.0), self._phase_seconds())

    def processes(self):
        """What the processes of the unit did when they were last looked at, the busiest first."""
        return _patience.process_rows(self._silence().processes)

    # -- the sight

    def _sight(self):
        ended, restarted = self._is_ended(), self._is_restarted()
        fatal = bool(self.failure and self.failure.get("fatal"))
        return _ready.Sight(
            unit=self._unit.state.as_dict(),
            invocation_id=self._follower.invocation_id,
            stopped=self._is_stopped,
            ended=ended,
            restarted=restarted,
            ended_seconds=self._lasting.note("ended", ended or restarted),
            startup=self.startup,
            failure=self.failure,
            failure_seconds=self._lasting.note("failure", fatal),
            still_seconds=self._clock() - self._still_since,
            stall=self._stall(),
            how_far=self.progress()["words"],
            journal=self._journal_is_there(),
            journal_problem=self._why_no_journal(),
            phase_seconds=self._phase_seconds(),
            ready_seconds=self._lasting.note("ready", self.startup.get("state") == "ready"),
            last_line=_mask.mask_text(self._follower.last_line)[:300],
        )

    def _look_at_port(self):
        address = self._address
        seen = {"address": f"{address.host} port {address.port}"}
        if not self._http.port_is_open(address.port, self._proc_root, address.host):
            # Whose a port is costs a walk through /proc.
            return dict(seen, port="closed", stated=self._stated())
        owners = self._http.port_owners(address.port, self._proc_root, address.host)
        ours = [pid for pid in owners if self._http.descends_from(pid, self.main_pid, self._proc_root)]
        if ours:
            return dict(seen, port="ours", port_owner=ours[0])
        if owners:
            return dict(seen, port="other", port_owner=owners[0], stated=self._stated())
        return dict(seen, port="hidden")

    def _stated(self):
        """Where the server listens by its command line; what is not said there is the engine's own."""
        words = _witness_tool.words_of(self.main_pid, "cmdline", self._proc_root) if self.main_pid else []
        if not words:
            return ""
        host = _witness_tool.argument_in(words, ("--host",))
        port = _witness_tool.argument_in(words, ("--port",))
        return "{} and {}".format(f"--host {host}" if host else "no --host", f"--port {port}" if port else "no --port")
