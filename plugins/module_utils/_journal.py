# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal: reading the journal (private to the collection).

``journalctl -o json`` lines or the text of any SGLang log in, one Entry per visible line out. Byte arrays (which
is how the journal hands over progress bars), null fields and lines that journald cut are made plain here, what is in a
line in _journal_lines, and logs that are no journal in _journal_text, so that no other room has to think of them.
"""

from __future__ import annotations

import dataclasses
import json
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import (
    JOURNALD,
    KERNEL,
    SERVICE,
    SYSTEMD,
    Entry,
    as_text,
    split_head,
    visible_lines,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_text import decode_text

# The only fields that are read. journalctl adds the cursor and the timestamps by itself.
FIELDS = (
    "MESSAGE",
    "_PID",
    "_SYSTEMD_INVOCATION_ID",
    "INVOCATION_ID",
    "USER_INVOCATION_ID",
    "_LINE_BREAK",
    "_STREAM_ID",
    "_TRANSPORT",
    "SYSLOG_IDENTIFIER",
    "UNIT",
    "USER_UNIT",
)


def _text(value):
    """Return a journal field as text: str, byte array, several values of one field, or null."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return as_text(_bytes(value))
    return ""


def _bytes(value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, (list, tuple)):
        return b""
    try:
        return bytes(value)
    except (TypeError, ValueError):
        # A field that was given more than once: a list of texts and byte arrays.
        return b"\n".join(_plain_bytes(item) for item in value)


def _plain_bytes(value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return bytes(value) if isinstance(value, list) else b""
    except (TypeError, ValueError):
        return b""


def _number(value, scale=1.0):
    try:
        return int(value) / scale
    except (TypeError, ValueError, OverflowError):
        return None


def _field(record, name):
    value = record.get(name)
    if isinstance(value, list):
        value = _text(value)
    return value if isinstance(value, str) and value else None


def _origin(record):
    """Return (source, invocation id) of a journal record."""
    transport = record.get("_TRANSPORT")
    if transport == "stdout":
        return SERVICE, _field(record, "_SYSTEMD_INVOCATION_ID")
    if transport == "kernel":
        return KERNEL, None
    identifier = _field(record, "SYSLOG_IDENTIFIER")
    if transport == "driver" or identifier == "systemd-journald":
        return JOURNALD, None
    unit = _field(record, "UNIT") or _field(record, "USER_UNIT")
    if unit and identifier in ("systemd", None):
        own = _field(record, "INVOCATION_ID") or _field(record, "USER_INVOCATION_ID")
        return SYSTEMD, own
    return SERVICE, _field(record, "_SYSTEMD_INVOCATION_ID") or _field(record, "INVOCATION_ID")


def decode_json_lines(text):
    """Decode ``journalctl -o json`` output (str or bytes) into a list of Entry; what is not a JSON object is skipped.

    Lines over journald's LineMax arrive in pieces marked ``_LINE_BREAK=line-max``: they are joined per stream again.
    """
    entries, open_lines = [], {}
    for line in as_text(text).split("\n"):
        if not line.startswith("{"):
            line = line.lstrip()
            if not line.startswith("{"):
                continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            _take(record, entries, open_lines)
    for record, parts in open_lines.values():
        entries.extend(_entries_of(record, as_text(b"".join(parts))))
    return entries


def _take(record, entries, open_lines):
    """Add the entries of one record, or keep it until the rest of its line arrives."""
    continues = record.get("_LINE_BREAK") == "line-max"
    if not continues and not open_lines:
        entries.extend(_entries_of(record, _text(record.get("MESSAGE"))))
        return
    stream = _field(record, "_STREAM_ID") or record.get("_PID")
    stream = stream if isinstance(stream, str) else str(stream)
    waiting = open_lines.pop(stream, None)
    if waiting is None and not continues:
        entries.extend(_entries_of(record, _text(record.get("MESSAGE"))))
        return
    first, parts = waiting or (record, [])
    parts.append(_bytes(record.get("MESSAGE")))
    if continues:
        open_lines[stream] = (first, parts)
    else:
        entries.extend(_entries_of(first, as_text(b"".join(parts))))


def _entries_of(record, message):
    lines = visible_lines(message)
    if not lines:
        return ()
    source, invocation = _origin(record)
    pid = _number(record.get("_PID"))
    pid = int(pid) if pid is not None else None
    realtime = _number(record.get("__REALTIME_TIMESTAMP"), 1e6)
    monotonic = _number(record.get("__MONOTONIC_TIMESTAMP"), 1e6)
    cursor = _field(record, "__CURSOR")
    return [Entry(line, realtime, monotonic, pid, source == SYSTEMD, cursor, invocation, source) for line in lines]


def looks_like_json(text):
    """Tell whether *text* (str or bytes) is ``journalctl -o json`` output: its first JSON object decides."""
    head = text[:65536]
    if isinstance(head, (bytes, bytearray)):
        head = bytes(head).decode("utf-8", "replace")
    for line in head.splitlines():
        line = line.strip()
        if line.startswith("{"):
            return '"__REALTIME_TIMESTAMP"' in line or '"MESSAGE"' in line or '"__CURSOR"' in line
        if line.startswith("["):
            return False
    return False


def decode(text):
    """Decode a log of either kind; returns (entries, "json" or "text")."""
    if looks_like_json(text):
        return decode_json_lines(text), "json"
    return decode_text(text), "text"


# ---------------------------------------------------------------------------------------------------------------------
# One invocation out of many


def invocations(entries):
    """Return the invocation ids in the order in which they first appear."""
    seen = {}
    for entry in entries:
        if entry.invocation_id:
            seen.setdefault(entry.invocation_id, None)
    return list(seen)


def select_invocation(entries, invocation_id=None):
    """Return the entries of one invocation (the last one when none is named).

    Last words of a process that ended at once may lack the id: they belong to the invocation that was logged before
    them. Entries of the kernel and of journald are kept from the first entry of the invocation on.
    """
    entries = list(entries)
    known = invocations(entries)
    if not known:
        return last_start(entries)
    wanted = invocation_id or known[-1]
    chosen, current, begun = [], None, False
    for entry in entries:
        current = entry.invocation_id or current
        begun = begun or current == wanted
        mine = current == wanted if entry.source in (SERVICE, SYSTEMD) else begun
        if mine and begun:
            chosen.append(entry)
    return chosen


_START_LINES = re.compile(r"^(?:server_args=|Started .*|Starting .*\.\.\.$)")
_PAST_LINES = (
    "Load weight begin",
    "The server is fired up",
    "Received sigquit",
    "SIGQUIT received",
    "Main process exited",
    "Traceback (most recent",
    "error: ",
)


def last_start(entries):
    """Return the entries of the last start in a text log that holds several, one behind the other."""
    begin, past = 0, False
    for index, entry in enumerate(entries):
        message = split_head(entry.message)[2]
        if past and _START_LINES.match(message) and (entry.unit_message or message.startswith("server_args=")):
            begin, past = index, False
        elif not past and any(words in message for words in _PAST_LINES):
            past = True
    return entries[begin:]


# ---------------------------------------------------------------------------------------------------------------------
# Commands


def _base_command():
    return ["journalctl", "--no-pager", "--quiet", "--output=json", "--all", "--output-fields=" + ",".join(FIELDS)]


def journal_command(unit, invocation_id, after_cursor=None):
    """Return the journalctl argument list for one invocation of *unit* (for the whole unit when the id is None).

    The selection is by invocation id, which neither clock steps nor restarts can disturb; it covers what the service
    printed and what systemd said about it. after_cursor must be the cursor of an entry of this very selection: before
    systemd 255 any other one loses an entry.
    """
    command = _base_command()
    if after_cursor:
        command.append("--after-cursor=" + after_cursor)
    if invocation_id:
        return command + ["_SYSTEMD_INVOCATION_ID=" + invocation_id, "+", "INVOCATION_ID=" + invocation_id]
    return command + ["--unit=" + unit]


def last_entry_command(unit):
    """Return the command that prints the newest entry of *unit*: its invocation is the last one."""
    return _base_command() + ["--unit=" + unit, "--lines=1"]


def kernel_command(since_seconds):
    """Return the command for the kernel's lines since *since_seconds* (epoch): GPU errors and out-of-memory kills."""
    return _base_command() + ["--dmesg", "--since=@{0}".format(int(since_seconds))]


@dataclasses.dataclass(frozen=True)
class ReaderProblem:
    """No answer of journalctl or systemctl: no_systemd, no_journal, no_permission, broken or missing_program."""

    kind: str
    sentence: str
    retry: bool

    def as_dict(self):
        """Return plain JSON types."""
        return dataclasses.asdict(self)


# (text in stderr or stdout, kind, retry, sentence)
_READER_PROBLEMS = (
    (
        "not been booted with systemd",
        "no_systemd",
        False,
        "This needs a host running systemd, and PID 1 here is something else; run it on one that boots systemd.",
    ),
    (
        "Failed to connect to bus",
        "no_systemd",
        False,
        "This needs a host running systemd, and its bus does not answer; run it on one that boots systemd.",
    ),
    (
        "Permission denied",
        "no_permission",
        False,
        "Reading the journal was refused; use become, or add the user to the group systemd-journal.",
    ),
    (
        "insufficient permissions",
        "no_permission",
        False,
        "Reading the journal was refused; use become, or add the user to the group systemd-journal.",
    ),
    (
        "not seeing messages from other users",
        "no_permission",
        False,
        "Reading the journal was refused; use become, or add the user to the group systemd-journal.",
    ),
    (
        "No journal files were",
        "no_journal",
        False,
        "This host keeps no journal, so causes cannot be named; set Storage=persistent in journald.conf.",
    ),
    (
        "-- No entries --",
        "no_journal",
        False,
        "The journal holds nothing of this unit, so causes cannot be named; set Storage=persistent in journald.conf.",
    ),
    (
        "Failed to iterate through journal",
        "broken",
        True,
        "The journal was rotated while it was read; it is read again.",
    ),
    ("Bad message", "broken", True, "The journal was rotated while it was read; it is read again."),
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
