# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, its watch. Tells the death of the unit under load, and counts retractions.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import re
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _follow_unit,
    _http,
    _mask,
    _ready,
    _startup,
    _unit,
)

# srt/managers/scheduler.py; the second form is of 0.4.0-0.4.6.
RETRACTION = re.compile(r"KV cache pool is full\. Retract requests\.|Decode out of memory happened\.")


# What a DP rank says when it computes a prompt: "[2026-11-29 18:00:01 DP1 TP3] Prefill batch, #new-seq: 1, ...".
PREFILL_OF_DP_RANK = re.compile(r"^\[[^\]]* DP(\d{1,4})\b[^\]]*\] Prefill batch")


class UnitWatch:
    """Called again and again: None, or the failure record of a death. Counts retractions.

    :arg follower: a ``_follow.Follower`` that begins to read now. :arg http: the module ``_http`` or a double of it.
    :arg secrets: texts that must not leave the host in a failure record.
    """

    def __init__(self, follower, http=_http, clock=time.monotonic, proc_root="/proc", secrets=()):
        self._follower = follower
        self._secrets = tuple(secrets)
        self._unit = _follow_unit.UnitLook(follower, http, proc_root, clock)
        state = self._unit.look()
        self._restarts = state.n_restarts if state else 0
        self._lasting = _follow_unit.Lasting(clock)
        self._failure = None
        self.retractions = 0
        self.dp_ranks = set()

    @property
    def retractions_or_none(self):
        return None if self._follower.journal_error else self.retractions

    @property
    def dp_ranks_or_none(self):
        """The DP ranks that computed a prompt by the journal; None when it cannot be read."""
        return None if self._follower.journal_error else self.dp_ranks

    def not_running(self):
        """One sentence when there is nothing to put a load on, else None."""
        state = self._unit.state
        if state is None:
            return self._follower.unit_error
        if state.active_state != "active":
            return f"Expected {self._follower.unit_name} to be active, found it {state.active_state or 'unknown'}."
        return None

    def __call__(self):
        count = self._follower.read()
        fresh = self._follower.fresh
        self.retractions += sum(1 for entry in fresh if RETRACTION.search(entry.message))
        for entry in fresh:
            told = PREFILL_OF_DP_RANK.match(entry.message)
            if told:
                self.dp_ranks.add(int(told.group(1)))
        if self._unit.is_due(any(entry.unit_message for entry in fresh)):
            self._unit.look()
        if count or _unit.ended(self._unit.state):
            served = _startup.Startup(state="ready", phase="ready")
            failure = _failures.classify(
                self._follower.entries, startup=served, unit=self._unit.state, secrets=self._secrets
            )
            self._failure = failure.as_dict() if failure else None
        move = _ready.death(self._sight())
        return move.failure if move is not None and move.action == "fail" else None

    def _sight(self):
        state = self._unit.state
        ended = _unit.ended(state)
        restarted = _unit.is_crash_loop(state, self._restarts, self._follower.invocation_id)
        fatal = bool(self._failure and self._failure.get("fatal"))
        return _ready.Sight(
            unit=state.as_dict(),
            ended=ended,
            restarted=restarted,
            ended_seconds=self._lasting.note("ended", ended or restarted),
            startup={"phase": "soak"},
            failure=self._failure,
            failure_seconds=self._lasting.note("failure", fatal),
            last_line=_mask.mask_text(self._follower.last_line, self._secrets)[:300],
        )
