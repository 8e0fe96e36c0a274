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
    _follow,
    _follow_unit,
    _http,
    _mask,
    _ready,
    _ready_cause,
    _startup,
    _unit,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import split_head

# srt/managers/scheduler.py; the second form is of 0.4.0-0.4.6.
RETRACTION = re.compile(r"KV cache pool is full\. Retract requests\.|Decode out of memory happened\.")

# A batch so long after the line that names a death is one that the server made in spite of it: ranks that are not yet
# ended write within some hundred milliseconds.
OUTLIVED_SECONDS = 2.0


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
        served = _startup.Startup(state="ready", phase="ready")
        self._cause = _ready_cause.CauseReader(follower, clock, self._secrets, served)
        self._failure = None
        self._outlived = None
        self.retractions = 0
        self.dp_ranks = set()

    @property
    def main_pid(self):
        """The unit's main process, or None."""
        return self._unit.state.main_pid if self._unit.state else None

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
        self._follower.read()
        fresh = self._cause.feed()
        self.retractions += sum(1 for entry in fresh if RETRACTION.search(entry.message))
        for entry in fresh:
            told = PREFILL_OF_DP_RANK.match(entry.message)
            if told:
                self.dp_ranks.add(int(told.group(1)))
        if self._unit.is_due(any(entry.unit_message for entry in fresh)):
            self._unit.look()
        ended = _unit.ended(self._unit.state)
        self._failure = self._believed(self._cause.look(self._unit.state, ended), fresh, ended)
        move = _ready.death(self._sight())
        return move.failure if move is not None and move.action == "fail" else None

    def _believed(self, failure, fresh, ended):
        """The failure, unless the server went on with its batches after a line that no death follows.

        An image or an adapter that does not fit is refused in the words of a death.
        """
        if ended or not failure or failure.get("consequence_at") is not None:
            return failure
        doubted = self._failure or failure
        if doubted.get("at") == failure.get("at") and failure.get("at") is not None:
            for entry in fresh:
                is_batch = split_head(entry.message)[2].startswith(_follow.STEADY)
                if is_batch and (entry.realtime_seconds or 0.0) >= failure["at"] + OUTLIVED_SECONDS:
                    self._outlived = failure["at"]
        return None if failure.get("at") is not None and failure["at"] == self._outlived else failure

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
            startup={"phase": "soak", "state": "ready"},
            failure=self._failure,
            failure_seconds=self._lasting.note("failure", fatal),
            last_line=_mask.mask_text(self._follower.last_line, self._secrets)[:300],
        )
