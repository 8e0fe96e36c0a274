# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_case: one invocation that may have died (private to the collection).

What its log and its unit say, read once: which lines may name the cause and which of them counts most, who died, and in
which phase a line was printed.
"""

from __future__ import annotations

import bisect
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import (
    CONSEQUENCE,
    FRAME_PHASES,
    OUTSIDE_A_PASS,
    PASS,
    PASS_KINDS,
    PREFERENCE,
    ROWS,
    WRAPPER,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_walk import walk
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import KERNEL, SERVICE
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._unit import (
    ASKING_SIGNALS,
    DUMPED,
    EXITED,
    KILLED,
    UnitState,
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
    "shell_killed",
)

# A process was killed: what others still do is no life of it.
_KILLS = ("kernel_oom_kill", "kernel_out_of_memory", "systemd_oom_kill")

# Names of processes that are this server's, as the kernel shortens them.
_OWN_NAMES = re.compile(r"sglang|python|pt_|ray")

# systemd's words about an end: "Main process exited, code=killed, status=9/KILL" and "Failed with result 'signal'."
_EXIT_CODES = {"exited": EXITED, "killed": KILLED, "dumped": DUMPED}
# An exit status that says that a signal asked for the end (a shell's way to tell it).
_ASKED_STATUSES = tuple(128 + number for number in ASKING_SIGNALS)

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
        self.secrets = secrets
        self.markers = self._markers()
        self._deaths_at = [hit.index for hit in self.markers]
        self.unit = unit if unit is not None else self._unit_of_log()
        self.over = self.unit is not None and ended(self.unit)
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
            if hit.row.role == CONSEQUENCE
            and not self.before_ready(hit.index)
            and not self.after_stopping(hit.index)
            and not (hit.row.name == "shell_killed" and self._was_asked(hit.index))
        ]

    def _was_asked(self, index):
        """Tell whether the server itself said before that it was asked to end; old engines then kill themselves."""
        return self.walk.sigterm_index is not None and index > self.walk.sigterm_index

    def _unit_of_log(self):
        """Return what systemd's own lines say about the end, as a UnitState; None when they tell of none.

        A log in a file has no unit that could be asked.
        """
        told = {}
        for hit in self.markers:
            if hit.row.name in ("main_exited", "failed_with") and hit.entry.unit_message:
                if self._was_asked(hit.index):
                    return None
                told.update(hit.match.groupdict())
        status = int(told["status"]) if told.get("status") else None
        code = _EXIT_CODES.get(told.get("code"))
        result = told.get("result") or ("success" if (code, status) == (EXITED, 0) else "")
        asked = (code == KILLED and status in ASKING_SIGNALS) or (code == EXITED and status in _ASKED_STATUSES)
        if not told or result == "success" or (asked and result in ("", "signal", "exit-code")):
            return None
        return UnitState(active_state="failed", result=result, exec_main_code=code, exec_main_status=status)

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
        if self.was_survived(hit, died):
            return False
        if hit.row.anytime:
            return died or hit.row.decisive
        # Words that end a server, right before a death that no traceback of a scheduler explains.
        return death is None and is_sure(hit) and self._is_near_a_death(hit)

    def was_survived(self, hit, died):
        """Tell whether a ready server went on after a line that names a cause outside the traceback of a death.

        What ends a request only (a picture or an adapter that found no memory) needs a death behind it; after other
        words a server that works shows that they ended nothing.
        """
        if died and (self._is_beside_a_death(hit) or self.over and not self._is_alive_after(hit)):
            return False
        if hit.row.survivable and not died:
            return True
        return hit.row.name not in _KILLS and self._is_alive_after(hit)

    def _is_alive_after(self, hit):
        return self.walk.alive_index is not None and self.walk.alive_index > hit.index

    def survived(self):
        """Return the hits whose words end servers, and did not end this one."""
        death = next((item.index for item in self.walk.exceptions if is_fatal(item)), None)
        died = death is not None or self.over or bool(self.markers)
        return [
            hit
            for hit in self.walk.hits
            if hit.row.survivable and hit.after_ready and not is_fatal(hit) and self.was_survived(hit, died)
        ]

    def _is_beside_a_death(self, hit):
        """Tell whether somebody died a few lines before or after a hit."""
        following = bisect.bisect_left(self._deaths_at, hit.index)
        beside = self._deaths_at[max(0, following - 1) : following + 1]
        return any(abs(index - hit.index) <= _NEAR_LINES for index in beside)

    def _is_near_a_death(self, hit):
        return bool(self.markers) and 0 <= self.markers[0].index - hit.index <= _NEAR_LINES

    def _is_ours(self, hit):
        """Tell whether a kernel's line is about this unit; other services of the host are killed and fail too."""
        if hit.row.name in ("xid_program", "xid_error"):
            return self._is_our_process(hit.match.groupdict())
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
        return _OWN_NAMES.match(found.get("task") or "") is not None or "sglang" in memcg

    def _is_our_process(self, found):
        """Tell whether a process that the kernel names by number and name may be one of this server."""
        pid, name = found.get("pid"), found.get("name")
        known = self.walk.pids - {None}
        if pid and known:
            return int(pid) in known or (name or "").startswith("sglang")
        return not name or _OWN_NAMES.match(name) is not None

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
                if hit.row.name == "shell_killed" and hit in self.markers:
                    return -9
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
        return hit.batch if hit.batch and _is_of_a_pass(hit) else "serving"
    return hit.phase


def _is_of_a_pass(hit):
    """Tell whether something happened while the model was run: then the last batch tells which pass it was."""
    frames = [*hit.block.frames, hit.block.source] if hit.block is not None else []
    if any(OUTSIDE_A_PASS.search(frame) for frame in frames):
        return False
    row = getattr(hit, "row", None)
    return any(PASS.search(frame) for frame in frames) or (row is not None and row.kind in PASS_KINDS)
