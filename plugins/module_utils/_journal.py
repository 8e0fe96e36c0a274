# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal: reading the journal (private to the collection).

``journalctl -o json`` lines or the text of any SGLang log in, one Entry per visible line out. Byte arrays (which
is how the journal hands over progress bars), null fields and lines that journald cut are made plain here, what is in a
line in _journal_lines, and logs that are no journal in _journal_text, so that no other room has to think of them.
"""

from __future__ import annotations

import json
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _journal_export
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

# A line that a process never ends arrives in pieces for ever: of one line so much is kept.
_LINE_BYTES = 2**20


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
        return JOURNALD, _field(record, "OBJECT_SYSTEMD_INVOCATION_ID")
    unit = _field(record, "UNIT") or _field(record, "USER_UNIT")
    if unit and identifier in ("systemd", None):
        own = _field(record, "INVOCATION_ID") or _field(record, "USER_INVOCATION_ID")
        return SYSTEMD, own
    return SERVICE, _field(record, "_SYSTEMD_INVOCATION_ID") or _field(record, "INVOCATION_ID")


def record_of(line):
    """Return the record (a dictionary) of a line of ``journalctl -o json`` (str or bytes), or None when it is none."""
    try:
        record = json.loads(line if isinstance(line, str) else bytes(line).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


class Decoder:
    """Decodes the lines of ``journalctl -o json`` one after the other.

    Lines over journald's LineMax arrive in pieces marked ``_LINE_BREAK=line-max``: they are joined per stream again.
    ``cursor``: that of the last record, whether or not anything of it can be seen.
    """

    def __init__(self):
        self.cursor = None
        self._open_lines = {}

    def feed(self, line):
        """Return the entries that a line (str or bytes) completes; none for what is not a JSON object."""
        record = record_of(line)
        return () if record is None else self.take(record)

    def take(self, record):
        """Return the entries that a record (a dictionary) completes."""
        self.cursor = _field(record, "__CURSOR") or self.cursor
        continues = record.get("_LINE_BREAK") == "line-max"
        if not continues and not self._open_lines:
            return _entries_of(record, _text(record.get("MESSAGE")))
        stream = _field(record, "_STREAM_ID") or str(record.get("_PID"))
        waiting = self._open_lines.pop(stream, None)
        if waiting is None and not continues:
            return _entries_of(record, _text(record.get("MESSAGE")))
        first, parts = waiting or (record, bytearray())
        if len(parts) < _LINE_BYTES:
            parts.extend(_bytes(record.get("MESSAGE")))
        if continues:
            self._open_lines[stream] = (first, parts)
            return ()
        return _entries_of(first, as_text(parts))

    def rest(self):
        """Return the entries of lines whose end did not come."""
        entries = []
        for record, parts in self._open_lines.values():
            entries.extend(_entries_of(record, as_text(parts)))
        self._open_lines = {}
        return entries


def decode_json_lines(text):
    """Decode ``journalctl -o json`` output (str or bytes) into a list of Entry; what is no JSON object is skipped."""
    decoder, entries = Decoder(), []
    for line in as_text(text).split("\n"):
        if not line.startswith("{"):
            line = line.lstrip()
            if not line.startswith("{"):
                continue
        entries.extend(decoder.feed(line))
    entries.extend(decoder.rest())
    return entries


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
    """Decode a log of whatever kind (str or bytes); returns (entries, "json", "export" or "text")."""
    if _journal_export.looks_like_export(text):
        return _of_records(_journal_export.records_of_export(text)), "export"
    text = as_text(text)
    if looks_like_json(text):
        return decode_json_lines(text), "json"
    if _journal_export.looks_like_wrapped_json(text):
        return _of_records(_journal_export.records_of_wrapped_json(text)), "json"
    return decode_text(text), "text"


def _of_records(records):
    decoder, entries = Decoder(), []
    for record in records:
        entries.extend(decoder.take(record))
    entries.extend(decoder.rest())
    return entries


# ---------------------------------------------------------------------------------------------------------------------
# One invocation out of many


def invocations(entries):
    """Return the invocation ids in the order in which they first appear."""
    seen = {}
    for entry in entries:
        if entry.invocation_id and entry.source in (SERVICE, SYSTEMD):
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
        return starts(entries)[-1]
    wanted = invocation_id or known[-1]
    chosen, current, begun = [], None, False
    for entry in entries:
        if entry.source in (SERVICE, SYSTEMD):
            current = entry.invocation_id or current
            begun = begun or current == wanted
            mine = current == wanted
        else:
            mine = entry.invocation_id in (None, wanted)
        if mine and begun:
            chosen.append(entry)
    return chosen


_PAST_LINES = (
    "Load weight begin",
    "The server is fired up",
    "Received sigquit",
    "SIGQUIT received",
    "Main process exited",
    "Traceback (most recent",
    "error: ",
)


def starts(entries):
    """Cut a text log at the starts in it, one behind the other; returns a list of lists, at least one.

    A start begins with systemd's word about it or with the engine's arguments, once something of the one before has
    been read; where a process ended, with the first words of a new one.
    """
    cuts, past, over, speakers = [0], False, False, set()
    for index, entry in enumerate(entries):
        if _STEADY in entry.message:
            continue
        _stamp, rank, message = split_head(entry.message)
        first_words = message.startswith(_FIRST_WORDS)
        again = first_words and message in speakers or message.startswith(_RANK_BEGINS) and rank in speakers
        if (past and _begins_start(entry, message)) or (over and (again or _USAGE.match(message))):
            cuts.append(index)
            past, over, speakers = False, False, set()
        elif not past and any(words in message for words in _PAST_LINES):
            past = True
        if message.startswith(_ENDS):
            over = True
        elif message.startswith(_RANK_BEGINS):
            speakers.add(rank)
        elif first_words:
            speakers.add(message)
    return [entries[begin:end] for begin, end in zip(cuts, cuts[1:] + [len(entries)])]


# Most lines of a long log, and none of these: "Decode batch, #running-req: 3, ...".
_STEADY = " batch, #"
# The last words of a process (SGLang's), and the first ones of another: those that only repeat when a new one says
# them, and those of the argument parser, which ends what it speaks for.
_ENDS = (
    "Received sigquit",
    "SIGQUIT received",
    "SIGTERM received",
    "Gracefully exiting",
    "INFO:     Finished server process",
)
_RANK_BEGINS = ("Init torch distributed begin", "Init parallel begin")
_FIRST_WORDS = ("INFO:     Started server process",)
_USAGE = re.compile(
    r"usage: \S|\S{1,200}: error: (?:unrecognized arguments|ambiguous option|argument |the following arguments)"
)
_USAGE_OF_SERVER = re.compile(r"usage: (?:\S{0,200}launch_server|sglang\b|__main__\.py|python\S{0,20} -m sglang)")


def _begins_start(entry, message):
    if not entry.unit_message:
        return message.startswith("server_args=") or _USAGE_OF_SERVER.match(message) is not None
    return message.startswith("Started ") or (message.startswith("Starting ") and message.endswith("..."))
