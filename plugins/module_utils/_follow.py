# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: reading the journal and the unit, in motion. Follows one invocation of one unit by short looks.

Private to the gpufleet.sglang collection; may change at any time.

Every look is one short command, so nothing stays behind when the connection is lost. The first look reads the start-up
forward and stops soon behind the ready line; of what a server said in the weeks since, only the end is read. Entries
are taken in the order of the journal, by cursors: clock steps, rotation and restarts of journald change nothing of it.
"""

from __future__ import annotations

import collections

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _journal,
    _journal_ask,
    _journal_stream,
    _startup,
    _unit,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import SERVICE

# Entries kept of one invocation: the start-up of eight ranks stands at the beginning, a death at the end. What lies
# between is forgotten, so a server that talks for weeks costs no more than one that has just become ready.
FIRST_ENTRIES = 10000
LAST_ENTRIES = 10000

# Records taken in one look; what is more waits for the next one.
LOOK_RECORDS = 10000

# Records read behind the ready line in one go: a server that is just up has no more, and nothing is left out.
READ_ON_RECORDS = 500

# When more lines of steady state than these have come and the ready line has not, it is lost: rotated away or dropped.
STEADY_LINES = 1000
STEADY = ("Decode batch", "Prefill batch")

# No start-up has so many records (eight ranks that log every request of a slow load have some thousands).
START_RECORDS = 200000

# The newest records of a server that is up for long. Of one that has ended more are read: the tracebacks and stack
# dumps of eight ranks stand behind the line that names the cause.
END_RECORDS = 2000
END_RECORDS_OF_DEAD = LAST_ENTRIES


class Follower:
    """Looks at a unit and reads on in the journal of one of its invocations.

    ``fresh``: entries of the last read. ``behind``: whether there is more to be read at once. ``gap``: whether lines
    between start-up and end were left out. ``beginnings``: how often reading began at the first entry; after another
    one ``entries`` hold the same again.

    :arg run_command: ``run_command(argv) -> (rc, stdout, stderr)``; raises OSError when the command does not exist. A
        ``_journal_stream.Runner`` besides lets the journal be read without holding it whole.
    :arg unit: name of the unit. :arg invocation_id: the invocation to follow; None takes the first one seen.
    :arg use_journal: False never asks journalctl. :arg since_seconds: epoch; begin with what is said from then on.
    """

    def __init__(self, run_command, unit, invocation_id=None, use_journal=True, since_seconds=None):
        self._run_command = run_command
        self._since_seconds = since_seconds
        self._use_journal = use_journal
        self.unit_name = unit
        self.invocation_id = invocation_id
        self.journal_error = None if use_journal else "not asked"
        self.unit_error = None
        self.beginnings = 0
        self._over = False
        self._begin()

    def _begin(self):
        self._decoder = _journal.Decoder()
        self._first = []
        self._last = collections.deque(maxlen=LAST_ENTRIES)
        self._last_line = ""
        self.fresh = []
        self.behind = False
        self.gap = False
        self._end_at = 0

    # -- what was read

    @property
    def entries(self):
        """The entries so far, the first and the last ones."""
        return self._first + list(self._last)

    @property
    def end(self):
        """The entries behind the gap."""
        return self.entries[self._end_at :] if self.gap else []

    @property
    def last_line(self):
        """The last line that the service itself printed."""
        return self._last_line

    def look_at_unit(self):
        """The state of the unit, or None when systemctl could not be asked (see ``unit_error``)."""
        status, out, err = self._run(_unit.show_command(self.unit_name))
        problem = _journal_ask.reader_problem(status, "", err)
        if status != 0:
            self.unit_error = problem.sentence if problem else f"systemctl show {self.unit_name} failed."
            return None
        self.unit_error = None
        state = _unit.parse_show(out)
        if self.invocation_id is None and state.invocation_id:
            self.invocation_id = state.invocation_id
        self._over = _unit.ended(state) or state.invocation_id != self.invocation_id
        return state

    def _run(self, argv):
        try:
            return self._run_command(argv)
        except OSError as error:
            return 127, "", str(error)

    def read(self):
        """Read what is new. Returns the number of new entries; ``journal_error`` tells why nothing can be read."""
        self.fresh, self.behind = [], False
        if not self._use_journal or not self.invocation_id:
            return 0
        cursor = self._decoder.cursor
        problem = self._look(cursor=cursor) if cursor else self._read_first()
        if problem is not None and cursor and not self.fresh:
            # The file with that entry was rotated away: read again from the beginning.
            self._begin()
            problem = self._read_first()
        self.journal_error = problem.sentence if problem is not None and not self.fresh else None
        return len(self.fresh)

    @property
    def reads_journal(self):
        """False when the journal was not to be asked."""
        return self._use_journal

    def why_empty(self):
        """One sentence on why there is nothing of an invocation that there was."""
        return self.journal_error or _journal_ask.why_empty(self._run, self.unit_name).sentence

    def _read_first(self):
        """Read the start-up, and of what follows only the end. Returns the problem, or None."""
        self.beginnings += 1
        if self._since_seconds is not None:
            return self._look(lines=END_RECORDS, since_seconds=self._since_seconds)
        watch = _StartWatch()
        problem = self._look(is_over=watch.is_over)
        if watch.is_cut:
            self._keep(self._decoder.rest())
            self.gap, self._end_at = True, len(self.entries)
            self._look(lines=END_RECORDS_OF_DEAD if self._over else END_RECORDS)
        return problem

    def _look(self, cursor=None, lines=None, is_over=None, since_seconds=None):
        """Take the new records of one command. Returns why it failed, or None.

        :arg is_over: told the entries of each record; True ends the reading. :arg since_seconds: epoch; older entries
            are left out.
        """
        last, told = self._decoder.cursor, 0
        argv = _journal_ask.journal_command(self.unit_name, self.invocation_id, cursor=cursor, lines=lines)
        try:
            with _journal_stream.lines_of(self._run_command, argv) as stream:
                for line in stream:
                    record = _journal.record_of(line)
                    if record is None or not told and last and _was_read(record.get("__CURSOR"), last):
                        continue
                    told += 1
                    entries = self._decoder.take(record)
                    if since_seconds is not None:
                        entries = [entry for entry in entries if (entry.realtime_seconds or 0.0) >= since_seconds]
                    self._keep(entries)
                    if is_over is not None:
                        if is_over(entries):
                            break
                    elif told >= LOOK_RECORDS:
                        self.behind = True
                        break
        except OSError as error:
            return _journal_ask.reader_problem(127, "", str(error))
        if not told:
            # The end of a line that journald cut has had its time to come.
            self._keep(self._decoder.rest())
        return _journal_ask.reader_problem(stream.rc, "", stream.err)

    def _keep(self, entries):
        for entry in entries:
            self.fresh.append(entry)
            (self._first if len(self._first) < FIRST_ENTRIES else self._last).append(entry)
            if entry.source == SERVICE and entry.message.strip():
                self._last_line = entry.message.strip()


class _StartWatch:
    """Tells when the start-up has been read, and a little behind it."""

    def __init__(self):
        self._reader = _startup.StartupReader()
        self._records = 0
        self._steady_lines = 0
        self._left_records = None

    @property
    def is_cut(self):
        return self._left_records == 0

    def is_over(self, entries):
        """Note the entries of one more record. Returns whether enough was read."""
        if self._left_records is not None:
            self._left_records -= 1
            return self._left_records == 0
        self._records += 1
        for entry in entries:
            _rank, text = self._reader.feed(entry)
            self._steady_lines += text.startswith(STEADY)
        if self._reader.ready or self._steady_lines > STEADY_LINES or self._records > START_RECORDS:
            self._left_records = READ_ON_RECORDS
        return False


def _position(cursor):
    """Return (sequence, number) of a cursor, or None: the entries of one sequence are numbered in their order."""
    parts = dict(part.partition("=")[::2] for part in cursor.split(";"))
    try:
        return parts["s"], int(parts["i"], 16)
    except (KeyError, ValueError):
        return None


def _was_read(cursor, last):
    """Whether a record stands before the last one that was read, or is that one."""
    if cursor == last or not isinstance(cursor, str):
        return cursor == last
    ours, theirs = _position(cursor), _position(last)
    return ours is not None and theirs is not None and ours[0] == theirs[0] and ours[1] <= theirs[1]
