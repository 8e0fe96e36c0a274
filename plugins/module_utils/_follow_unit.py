# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: reading the journal and the unit, the moments. When a unit is asked again, and how long something lasts.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

# The unit is looked at when its main process is gone, when systemd says something, and this often in any case.
UNIT_SECONDS = 5.0


class UnitLook:
    """The last known state of a unit, and whether it may have changed since.

    :arg follower: a ``_follow.Follower``. :arg http: the module ``_http`` or a double of it. :arg clock: seconds.
    """

    def __init__(self, follower, http, proc_root, clock):
        self._follower = follower
        self._http = http
        self._proc_root = proc_root
        self._clock = clock
        self._at = None
        self.state = None

    def look(self):
        """Ask systemd. Returns the state, or None when it did not answer; ``state`` then keeps the last one."""
        state = self._follower.look_at_unit()
        self._at = self._clock()
        if state is not None:
            self.state = state
        return state

    def is_due(self, told):
        """Whether to look again. ``told``: systemd itself has just said something in the journal."""
        if told or not self.state.main_pid or self._clock() - self._at >= UNIT_SECONDS:
            return True
        return not self._http.process_exists(self.state.main_pid, self._proc_root)


class Lasting:
    """For how long conditions have held without a break. :arg clock: seconds."""

    def __init__(self, clock):
        self._clock = clock
        self._since = {}

    def note(self, name, holds):
        """Note whether the condition holds now. Returns for how many seconds it has; 0 when it does not hold."""
        if not holds:
            self._since.pop(name, None)
            return 0.0
        return self._clock() - self._since.setdefault(name, self._clock())

    def seconds(self, name):
        """For how many seconds the condition has held by its last note, or None when it does not hold."""
        return self._clock() - self._since[name] if name in self._since else None
