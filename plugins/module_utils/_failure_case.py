# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_case: one invocation that may have died (private to the collection).

What its log and its unit say, read once: which lines may name the cause and which of them counts most, who died, and in
which phase a line was printed.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import (
    CONSEQUENCE,
    FRAME_PHASES,
    PREFERENCE,
    ROWS,
    WRAPPER,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_walk import walk
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import KERNEL, SERVICE
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._unit import (
    clean_exit,
    ended,
)

# The rows that say that a process of the server died, not only that something ended.
DEATH_ROWS = (
    "exception",
    "sigquit",
    "rank_died",
    "rank_dead",
    "child_failed",
    "subprocess_crashed",
    "terminated_with",
    "init_failed",
    "exit_code",
    "native_crash",
)

# Which row counts when several match one line.
_ROW_ORDER = {row.name: number for number, row in enumerate(ROWS)}

# A weak row counts for a reported death when it was read at most so many lines before it.
_NEAR_LINES = 80

# Of a death that nothing names so many last lines are kept, of so many looked at, and so much of each.
_LINES_KEPT, _LINES_SEEN, _LINE_KEPT = 5, 40, 300


class Case:
    """The entries of one invocation and what is known of its end.

    ``over``: systemd says that it ended; ``markers``: the hits that say that somebody died.
    """

    def __init__(self, entries, startup=None, unit=None, secrets=()):
        """Read the entries. startup: their record (read here when not given); unit: _unit.UnitState or None."""
        self.entries = list(entries)
        self.walk = walk(self.entries)
        self.startup = self.walk.startup.result() if startup is None else startup
        self.unit = unit
        self.secrets = secrets
        self.over = unit is not None and ended(unit)
        self.markers = self._markers()
        self.wrapper_phases = {hit.index: hit.row.phase for hit in self.walk.hits if hit.row.role == WRAPPER}

    def before_ready(self, index):
        """Tell whether the server became ready after this line: then the line ended nothing."""
        return self.walk.ready_index is not None and index < self.walk.ready_index

    def after_stopping(self, index):
        """Tell whether the line was printed after somebody asked for a stop."""
        return self.walk.stopping_index is not None and index > self.walk.stopping_index

    def _markers(self):
        """Return the hits that say that somebody died: after the ready line, before a stop that was asked for."""
        return [
            hit
            for hit in self.walk.hits
            if hit.row.role == CONSEQUENCE and not self.before_ready(hit.index) and not self.after_stopping(hit.index)
        ]

    def cause(self):
        """Return the hit that names the cause, or None: the best role first, then what is sure, then the first."""
        # The first exception of a reported death: words that are often harmless must stand near it.
        death = next((item.index for item in self.walk.exceptions if is_fatal(item)), None)
        hits = [hit for hit in self.walk.hits if self._counts(hit, death) and self._is_ours(hit)]
        return min(hits, key=_preference) if hits else None

    def _counts(self, hit, death):
        """Tell whether a hit can be the cause: not when the server became ready after it.

        After the ready line only what ends a server counts.
        """
        if hit.row.role not in PREFERENCE:
            return False
        died = death is not None or self.over or bool(self.markers)
        if death is not None and not is_sure(hit) and hit.index < death - _NEAR_LINES:
            return False
        if (hit.warned and not died) or self.before_ready(hit.index):
            return False
        if hit.row.only_in and phase_of(hit, self.wrapper_phases) not in hit.row.only_in:
            return False
        if not hit.after_ready or is_fatal(hit):
            return True
        if hit.row.anytime:
            return died or hit.row.decisive
        # Words that end a server, right before a death that no traceback of a scheduler explains.
        return death is None and is_sure(hit) and self._is_near_a_death(hit)

    def _is_near_a_death(self, hit):
        return bool(self.markers) and 0 <= self.markers[0].index - hit.index <= _NEAR_LINES

    def _is_ours(self, hit):
        """Tell whether a kernel's out-of-memory line is about this unit; other services of the host are killed too."""
        if hit.row.name not in ("kernel_oom_kill", "kernel_out_of_memory") or hit.entry.source != KERNEL:
            return True
        found = hit.match.groupdict()
        if found.get("pid") and int(found["pid"]) in self.walk.pids:
            return True
        memcg, unit = found.get("memcg") or "", self.unit
        if unit is not None and (unit.name or unit.control_group) and memcg:
            return bool(unit.name and "/" + unit.name in memcg) or bool(
                unit.control_group and memcg.startswith(unit.control_group)
            )
        return re.match(r"sglang|python|pt_|ray", found.get("task") or "") is not None or "sglang" in memcg

    def deaths(self):
        """Return the markers that say that a process of the server died."""
        return [hit for hit in self.markers if hit.row.name in DEATH_ROWS]

    def exit_code(self):
        """Return the first exit code that a line gives (negative: a signal), or None."""
        for hit in self.walk.hits:
            if hit.row.role == CONSEQUENCE:
                code = hit.match.groupdict().get("exit_code")
                if code is not None:
                    return int(code)
        return None

    def dead_rank(self):
        """Return the number of the rank that a line reports as dead, or None."""
        for hit in self.markers:
            rank = hit.match.groupdict().get("rank")
            if rank is not None:
                return int(rank)
        return None

    def asked_to_stop(self):
        """Tell whether an end was wanted: systemd stopped the unit, or a ready server ended well."""
        return self.walk.stopping_index is not None or (
            self.unit.result == "success" and clean_exit(self.unit) and self.walk.ready_index is not None
        )

    def following(self, hit, lines=6):
        """Return the line of a hit with those behind it: some texts continue on the next ones."""
        texts = [hit.text]
        for entry in self.entries[hit.index + 1 : hit.index + 1 + lines]:
            if entry.pid == hit.entry.pid and entry.source == SERVICE and not entry.message.startswith("["):
                texts.append(entry.message)
        return "\n".join(texts)

    def ranks(self, hit):
        """Return the ranks that printed this row, in their order."""
        found = {other.rank for other in self.walk.hits if other.row.name == hit.row.name and other.rank}
        return tuple(sorted(found, key=lambda rank: [int(number) for number in re.findall(r"\d+", rank)]))

    def last_lines(self, until=None):
        """Return the last lines of the service before it died: up to and with the line of the number *until*."""
        if until is None:
            until = self.markers[0].index if self.markers else len(self.entries) - 1
        lines = [
            entry.message.strip()[:_LINE_KEPT]
            for entry in self.entries[max(0, until + 1 - _LINES_SEEN) : until + 1]
            if entry.source == SERVICE and entry.message.strip(" ^~")
        ]
        return tuple(mask_text(line, self.secrets) for line in lines[-_LINES_KEPT:])

    def last_text(self):
        """Return the last line of the service, or an empty text."""
        return self.walk.last_service[2].strip() if self.walk.last_service else ""


def is_sure(hit):
    """Tell whether the line of a hit ends a server whoever reads it: its row says so, and it is no warning."""
    return hit.row.decisive and not hit.warned


def is_fatal(item):
    """Tell whether a hit or an exception stands in the traceback of a reported death."""
    return item.block is not None and item.block.fatal


def _preference(hit):
    return (
        PREFERENCE[hit.row.role],
        0 if is_sure(hit) or is_fatal(hit) else 1,
        hit.index,
        _ROW_ORDER[hit.row.name],
    )


def _phase_of_frames(frames):
    """Return the phase in which a traceback was raised, or None. A serving loop among the frames decides first."""
    joined = "\n".join(frames)
    patterns = dict(FRAME_PHASES)
    order = (
        ("prefill", "decode", "serving")
        if patterns["serving"].search(joined)
        else ("graphs", "pool", "weights", "init", "prefill", "decode")
    )
    for name in order:
        if patterns[name].search(joined):
            return name
    return None


def phase_of(hit, wrapper_phases):
    """Return the phase of a hit: its row's, the chain's, the traceback's, and last what the start-up had reached."""
    row_phase = getattr(hit, "row", None) and hit.row.phase
    if row_phase:
        return row_phase
    block = hit.block
    if block is not None and block.wrapper_phase:
        return block.wrapper_phase
    if hit.index in wrapper_phases:
        return wrapper_phases[hit.index]
    from_frames = _phase_of_frames(block.frames) if block is not None and block.frames else None
    if from_frames and from_frames != "serving":
        return from_frames
    if hit.batch is not None or hit.after_ready or from_frames == "serving":
        return hit.batch or "serving"
    return hit.phase
