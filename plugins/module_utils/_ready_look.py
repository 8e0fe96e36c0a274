# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, the looking. One look at unit, journal and port is one ``_ready.Sight``.

Private to the gpufleet.sglang collection; may change at any time.

What the server itself is asked, and what a sight means, stands in ``_ready_run`` and ``_ready``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _follow_unit,
    _mask,
    _ready,
    _startup,
    _unit,
)

# A unit without any entry after this time has no journal that can be read: systemd's own "Started" is missing.
EMPTY_JOURNAL_SECONDS = 3.0

# A server that is up for longer: its start-up is read in windows, so that weeks of later lines cost nothing.
START_WINDOWS_SECONDS = (600.0, 3600.0, 4 * 3600.0)


class StartLook:
    """Looks at one invocation again and again, and keeps what its journal told so far.

    ``startup`` and ``failure``: records as dictionaries. ``phase``: the last one seen, since ``phase_at`` (by the
    clock). ``known_phase``: the one that the wait began with. ``restarts``: of the unit when the wait began.

    :arg follower: a ``_follow.Follower``. :arg settings: ``_ready_run.Settings``.
    """

    def __init__(self, follower, settings, http, proc_root, clock, wall):
        self._follower = follower
        self._address = settings.address
        self._http = http
        self._proc_root = proc_root
        self._clock = clock
        self._wall = wall
        self._began = clock()
        self._unit = _follow_unit.UnitLook(follower, http, proc_root, clock)
        self._lasting = _follow_unit.Lasting(clock)
        self._reader = _startup.StartupReader()
        self._read_entries = 0
        self.startup: dict[str, Any] = {"state": "loading", "phase": "process"}
        self.failure: dict[str, Any] | None = None
        self.phase = self.known_phase = settings.known_phase
        self.phase_at = self._began
        self.restarts = settings.known_restarts

    def see(self):
        """Look at everything once; the fields of the sight that the server itself must tell stay empty."""
        told = self.read()
        if self._unit.is_due(told):
            was_ended = self._is_ended()
            self.look_at_unit()
            if self._is_ended() and not was_ended:
                # The last lines may have come between the two looks; and an end may turn a hint into a cause.
                self.read()
                self._classify()
        self._note_phase()
        sight = self._sight()
        if _ready.wants_port(sight):
            sight = replace(sight, **self._look_at_port())
        return sight

    # -- the unit

    def look_at_unit(self):
        """The state of the unit, or None when systemd could not be asked."""
        state = self._unit.look()
        if state is not None and self.restarts is None:
            self.restarts = state.n_restarts or 0
        return state

    def _is_ended(self):
        return _unit.ended(self._unit.state)

    def _is_restarted(self):
        state = self._unit.state
        other = state.invocation_id and state.invocation_id != self._follower.invocation_id
        return bool(other) or (state.n_restarts or 0) > (self.restarts or 0)

    # -- the journal

    def read_old_start(self):
        """Read the start-up of a server that is up for long, and leave out what it said since."""
        entered = self._unit.state.active_enter_seconds
        if not entered:
            return
        age = time.clock_gettime(time.CLOCK_MONOTONIC) - entered
        for window in START_WINDOWS_SECONDS:
            if age <= window + EMPTY_JOURNAL_SECONDS:
                return
            self._take_entries(self._follower.read(until_seconds=self._wall() - age + window))
            if self.startup.get("state") == "ready":
                self._follower.skip_to(self._wall() - EMPTY_JOURNAL_SECONDS)
                return

    def read(self):
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
        self.startup = self._reader.result().as_dict()
        self._classify()
        return any(entry.unit_message for entry in entries[-count:])

    def _classify(self):
        failure = _failures.classify(
            self._follower.entries,
            startup=self._reader.result(),
            unit=self._unit.state,
            secrets=self._address.secrets,
        )
        self.failure = failure.as_dict() if failure else None

    def _journal_is_there(self):
        if self._follower.journal_error:
            return False
        return bool(self._follower.entries) or self._clock() - self._began < EMPTY_JOURNAL_SECONDS

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

    # -- the sight

    def _sight(self):
        ended, restarted = self._is_ended(), self._is_restarted()
        fatal = bool(self.failure and self.failure.get("fatal"))
        return _ready.Sight(
            unit=self._unit.state.as_dict(),
            ended=ended,
            restarted=restarted,
            ended_seconds=self._lasting.note("ended", ended or restarted),
            startup=self.startup,
            failure=self.failure,
            failure_seconds=self._lasting.note("failure", fatal),
            journal=self._journal_is_there(),
            phase_seconds=self._phase_seconds(),
            ready_seconds=self._lasting.note("ready", self.startup.get("state") == "ready"),
            last_line=_mask.mask_text(self._follower.last_line)[:300],
        )

    def _look_at_port(self):
        address = self._address
        owners = self._http.port_owners(address.port, self._proc_root, address.host)
        main_pid = self._unit.state.main_pid
        ours = [pid for pid in owners if self._http.descends_from(pid, main_pid, self._proc_root)]
        if ours:
            return {"port": "ours", "port_owner": ours[0]}
        if owners:
            return {"port": "other", "port_owner": owners[0]}
        return {"port": "hidden" if self._http.port_is_open(address.port, self._proc_root, address.host) else "closed"}
