# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal_ask: what journalctl is asked, and why it may not answer (private to the collection)."""

from __future__ import annotations

import dataclasses

# The only fields that are read. journalctl adds the cursor and the timestamps by itself.
FIELDS = (
    "MESSAGE",
    "_PID",
    "_SYSTEMD_INVOCATION_ID",
    "INVOCATION_ID",
    "USER_INVOCATION_ID",
    "OBJECT_SYSTEMD_INVOCATION_ID",
    "_LINE_BREAK",
    "_STREAM_ID",
    "_TRANSPORT",
    "SYSLOG_IDENTIFIER",
    "UNIT",
    "USER_UNIT",
)

# Words of a death, in whatever middle of a long log it stands. A regular expression of journalctl --grep.
DEATH_WORDS = "Traceback \\(most recent|sigquit|SIGQUIT|hit an exception|exit code|Watchdog|out of memory|CUDA error"


def _base_command():
    return ["journalctl", "--no-pager", "--quiet", "--output=json", "--all", "--output-fields=" + ",".join(FIELDS)]


def _selection(unit, invocation_id):
    """Return the words that select one invocation: neither clock steps nor restarts can disturb them.

    What the service printed, what systemd said about it, and what journald said that it dropped of it.
    """
    if not invocation_id:
        return ["--unit=" + unit]
    return [
        "_SYSTEMD_INVOCATION_ID=" + invocation_id,
        "+",
        "INVOCATION_ID=" + invocation_id,
        "+",
        "OBJECT_SYSTEMD_INVOCATION_ID=" + invocation_id,
    ]


def journal_command(unit, invocation_id, cursor=None, lines=None, grep=None):
    """Return the journalctl argument list for one invocation of *unit* (for the whole unit when the id is None).

    cursor: from this entry on, itself included. --after-cursor would be shorter, but before systemd 255 it leaves out
    one entry when that of the cursor is no longer there (https://github.com/systemd/systemd/issues/30288).
    lines: only the newest ones. grep: only lines with this pattern.
    """
    command = _base_command()
    if cursor:
        command.append("--cursor=" + cursor)
    if lines:
        command.append("--lines={0}".format(lines))
    if grep:
        command.append("--grep=" + grep)
    return command + _selection(unit, invocation_id)


def last_entry_command(unit):
    """Return the command that prints the newest entry of *unit*: its invocation is the last one."""
    return journal_command(unit, None, lines=1)


def kernel_command(cursor, boot_id):
    """Return the command for the kernel's lines of one boot from *cursor* on: GPU errors and out-of-memory kills.

    Neither --dmesg, which shows the running boot only, nor --since, which a clock step leads astray.
    """
    return _base_command() + ["--cursor=" + cursor, "_TRANSPORT=kernel", "_BOOT_ID=" + boot_id]


def any_entry_command():
    """Return the command that prints one entry of this boot, of whatever unit: is there a journal that can be read?

    Without --system, whoever may read nothing but a journal of the own user gets an empty answer and no error.
    """
    return _base_command() + ["--system", "--boot", "--lines=1"]


@dataclasses.dataclass(frozen=True)
class ReaderProblem:
    """No answer of journalctl or systemctl: no_systemd, no_journal, no_permission, broken or missing_program."""

    kind: str
    sentence: str
    retry: bool

    def as_dict(self):
        """Return plain JSON types."""
        return dataclasses.asdict(self)


_NO_SYSTEMD = "This needs a host running systemd, and PID 1 here is something else; run it on one that boots systemd."
_NO_BUS = "This needs a host running systemd, and its bus does not answer; run it on one that boots systemd."
_REFUSED = "Reading the journal was refused; use become, or add the user to the group systemd-journal."
_NO_JOURNAL = (
    "This host keeps no journal, so causes cannot be named; set Storage=persistent in journald.conf, restart "
    "systemd-journald and start the unit again."
)
_NOTHING = (
    "The journal holds nothing of this start of {unit}, so causes cannot be named; look at SystemMaxUse and Storage in "
    "journald.conf, and whether the unit writes elsewhere (StandardOutput, LogNamespace)."
)
_ROTATED = "The journal was rotated while it was read; it is read again."

# (text in stderr or stdout, kind, retry, sentence). The words are those of systemd 252 and 257.
_READER_PROBLEMS = (
    ("not been booted with systemd", "no_systemd", False, _NO_SYSTEMD),
    ("Failed to connect to bus", "no_systemd", False, _NO_BUS),
    ("Failed to connect to system scope bus", "no_systemd", False, _NO_BUS),
    ("Permission denied", "no_permission", False, _REFUSED),
    ("insufficient permissions", "no_permission", False, _REFUSED),
    ("not seeing messages from other users", "no_permission", False, _REFUSED),
    ("No journal files were", "no_journal", False, _NO_JOURNAL),
    ("no persistent journal was found", "no_journal", False, _NO_JOURNAL),
    ("No journal boot entry found", "no_journal", False, _NO_JOURNAL),
    ("-- No entries --", "no_journal", False, _NO_JOURNAL),
    ("Failed to iterate through journal", "broken", True, _ROTATED),
    ("Bad message", "broken", True, _ROTATED),
    (
        "Failed to seek to cursor",
        "broken",
        True,
        "The cursor is of another journal; the invocation is read from its beginning.",
    ),
)


def reader_problem(rc, stdout, stderr):
    """Say why journalctl or systemctl gave no answer, or None when there is nothing to say.

    rc: exit status (127: the program is missing); stdout, stderr: its text.
    """
    text = (stderr or "") + "\n" + (stdout or "")[:2000]
    if rc == 127 or "command not found" in (stderr or ""):
        return ReaderProblem(
            "missing_program",
            "This needs a host running systemd, and its programs systemctl and journalctl are missing here.",
            False,
        )
    for words, kind, retry, sentence in _READER_PROBLEMS:
        if words in text:
            return ReaderProblem(kind, sentence, retry)
    if rc:
        first = (stderr or "").strip().splitlines()
        return ReaderProblem(
            "broken", "journalctl failed: {0}".format(first[0] if first else "exit status {0}".format(rc)), True
        )
    return None


def why_empty(run, unit):
    """Say why the journal gave nothing of a start that there was: refused, none kept, or nothing of this one.

    run: callable(argv) -> (rc, stdout, stderr).
    """
    rc, out, err = run(any_entry_command())
    problem = reader_problem(rc, "", err)
    if problem is not None:
        return problem
    if not out.strip():
        return ReaderProblem("no_journal", _NO_JOURNAL, False)
    return ReaderProblem("no_entries", _NOTHING.format(unit=unit), False)
