# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, the cause. Each entry is read once, and the choice is made when it can change.

Private to the gpufleet.sglang collection; may change at any time.

The catalogue of failures is tried on every line as it comes; the choice among what it found, which goes through all
that is kept of the journal, is made when a line matched, and seldom in between.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _failures
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_walk import Walk

# What follows a line completes its figures: as long as something is named, it is asked again so often.
AGAIN_SECONDS = 1.0
AGAIN_FATAL_SECONDS = 0.2

# Rows of the catalogue that end nothing and say that a setting does nothing, by their names.
SAID_AT_READY = ("segments_ignored",)


class CauseReader:
    """Keeps the start-up record and the failure of one invocation while its journal grows.

    ``startup``: the record (``_startup.Startup``) of what was fed; ``failure``: a dictionary, or None.

    :arg follower: a ``_follow.Follower``. :arg clock: seconds. :arg secrets: what no text may show.
    :arg served: a ``_startup.Startup`` of a server whose start is not read.
    """

    def __init__(self, follower, clock, secrets=(), served=None):
        self._follower = follower
        self._clock = clock
        self._secrets = secrets
        self._served = served
        self._beginnings = follower.beginnings
        self._asked_at = None
        self._pending = False
        self._seen = None
        self._begin()
        self.failure = None

    def _begin(self):
        self._walk = Walk()
        self._fed = 0

    @property
    def startup(self):
        """The start-up record so far."""
        return self._served or self._walk.startup.result()

    def feed(self):
        """Take what the follower has just read. Returns the entries."""
        if self._follower.beginnings != self._beginnings:
            # Read again from the beginning (the journal was rotated).
            self._beginnings = self._follower.beginnings
            self._begin()
        for entry in self._follower.fresh:
            self._walk.feed(self._fed, entry)
            self._fed += 1
        self._pending = self._pending or bool(self._follower.fresh)
        return self._follower.fresh

    def _news(self):
        walk = self._walk
        return len(walk.hits), len(walk.exceptions), walk.ready_index, walk.stopping_index

    def look(self, unit, is_over):
        """The failure as it is now. :arg unit: ``_unit.UnitState``. :arg is_over: systemd says that it ended."""
        news = (*self._news(), is_over)
        again = AGAIN_FATAL_SECONDS if self.failure and self.failure.get("fatal") else AGAIN_SECONDS
        is_time = self._asked_at is None or self._clock() - self._asked_at >= again
        if news != self._seen or (self._pending and is_time and (self.failure or is_over)):
            self._seen, self._pending, self._asked_at = news, False, self._clock()
            self.failure = self.ask(unit)
        return self.failure

    def notices(self):
        """Sentences about lines of the start by which a setting does nothing."""
        return list(dict.fromkeys(hit.row.advice for hit in self._walk.hits if hit.row.name in SAID_AT_READY))

    def ask(self, unit, **silence):
        """Name the cause by all that is kept: ``_failures.classify`` as a dictionary, or None."""
        failure = _failures.classify(
            self._follower.entries, startup=self.startup, unit=unit, secrets=self._secrets, **silence
        )
        return failure.as_dict() if failure else None
