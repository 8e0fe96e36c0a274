# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: reading the journal and the unit, in motion. Follows one invocation of one unit by short looks.

Private to the gpufleet.sglang collection; may change at any time.

Every look is one short command, so nothing stays behind when the connection is lost.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _journal, _unit

# Entries kept of one invocation: enough for the start-up of eight ranks, and constant for a server that talks a lot.
MAX_ENTRIES = 50000


class Follower:
    """Looks at a unit and reads on in the journal of one of its invocations.

    :arg run_command: ``run_command(argv) -> (rc, stdout, stderr)``; raises OSError when the command does not exist.
    :arg unit: name of the unit. :arg invocation_id: the invocation to follow; None takes the first one seen.
    :arg use_journal: False never asks journalctl. :arg since_seconds: epoch; only entries from then on.
    """

    def __init__(self, run_command, unit, invocation_id=None, use_journal=True, since_seconds=None):
        self._run_command = run_command
        self._since_seconds = since_seconds
        self._cursor = None
        self._use_journal = use_journal
        self.unit_name = unit
        self.invocation_id = invocation_id
        self.entries = []
        self.journal_error = None if use_journal else "not asked"
        self.unit_error = None

    @property
    def last_line(self):
        """The last line that the service itself printed."""
        for entry in reversed(self.entries):
            if entry.message.strip() and not entry.unit_message:
                return entry.message.strip()
        return ""

    def look_at_unit(self):
        """The state of the unit, or None when systemctl could not be asked (see ``unit_error``)."""
        status, out, err = self._run(_unit.show_command(self.unit_name))
        problem = _journal.reader_problem(status, "", err)
        if status != 0:
            self.unit_error = problem.sentence if problem else f"systemctl show {self.unit_name} failed."
            return None
        self.unit_error = None
        state = _unit.parse_show(out)
        if self.invocation_id is None and state.invocation_id:
            self.invocation_id = state.invocation_id
        return state

    def _run(self, argv):
        try:
            return self._run_command(argv)
        except OSError as error:
            return 127, "", str(error)

    def read(self, until_seconds=None):
        """Read what is new. Returns the number of new entries; ``journal_error`` tells why nothing can be read.

        :arg until_seconds: epoch; nothing after it.
        """
        if not self._use_journal or not self.invocation_id:
            return 0
        argv = list(_journal.journal_command(self.unit_name, self.invocation_id, after_cursor=self._cursor))
        if self._cursor is None and self._since_seconds is not None:
            argv.append(f"--since=@{self._since_seconds:.3f}")
        if until_seconds is not None:
            argv.append(f"--until=@{until_seconds:.3f}")
        status, out, err = self._run(argv)
        if status != 0 and not out:
            return self._lost(status, err)
        self.journal_error = None
        return self._take(_journal.decode_json_lines(out))

    def skip_to(self, seconds):
        """Leave out what lies between the entries read so far and this time (epoch)."""
        self._cursor = None
        self._since_seconds = seconds

    def _lost(self, status, err):
        if self._cursor is not None:
            # The file with that entry was rotated away: read again from the beginning.
            self._cursor = None
            self.entries = []
            return self.read()
        problem = _journal.reader_problem(status, "", err)
        self.journal_error = problem.sentence if problem else "journalctl said nothing."
        return 0

    def _take(self, entries):
        for entry in reversed(entries):
            if entry.cursor:
                self._cursor = entry.cursor
                break
        self.entries.extend(entries)
        if len(self.entries) > MAX_ENTRIES:
            # The start-up stands at the beginning, a death at the end.
            half = MAX_ENTRIES // 2
            self.entries = self.entries[:half] + self.entries[-half:]
        return len(entries)
