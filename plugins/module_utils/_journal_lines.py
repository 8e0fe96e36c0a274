# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal_lines: one line of a log (private to the collection).

What a line is once it was made plain: progress bars (their steps joined by carriage returns), colours, NUL bytes and
invalid UTF-8 are gone, and the head that SGLang prints before its message can be split off.
"""

from __future__ import annotations

import calendar
import dataclasses
import re

SERVICE, SYSTEMD, KERNEL, JOURNALD = "service", "systemd", "kernel", "journald"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One visible line. Times are seconds: realtime since the epoch, monotonic since boot (of text logs: of the day).

    A text log carries no time zone: its stamps are read as UTC, so that differences are right and the date may be off
    by the zone. ``source`` is service, systemd (``unit_message``), kernel or journald.
    """

    message: str
    realtime_seconds: float | None = None
    monotonic_seconds: float | None = None
    pid: int | None = None
    unit_message: bool = False
    cursor: str | None = None
    invocation_id: str | None = None
    source: str = SERVICE

    def as_dict(self):
        """Return plain JSON types."""
        return dataclasses.asdict(self)


# ---------------------------------------------------------------------------------------------------------------------
# The head of an SGLang line: [2026-05-31 10:15:07 DP0 TP3] message
# Source: configure_logger in srt/utils (0.3.6 - 0.5.23); time-only stamps before; milliseconds with SGLANG_LOG_MS=1.
# TS and HH:MM:SS stand for the time in logs that people shortened by hand.

_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d\d:\d\d:\d\d|TS|HH:MM:SS"
_RANK = r"(?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d{1,5}"
_HEAD = re.compile(
    r"\[(?:(?P<stamp>"
    + _STAMP
    + r")(?P<ranks>(?: "
    + _RANK
    + r"){0,6})|(?P<only>"
    + _RANK
    + "(?: "
    + _RANK
    + r"){0,5}))\] ?"
)
_DATED_HEAD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: " + _RANK + r"){0,6}\] ")
_HEAD_SEARCH_LENGTH = 400


def split_head(message):
    """Split an SGLang line into (stamp, rank, text); stamp and rank are None where the line has none.

    The rank is the printed prefix, for example "TP3" or "DP0 TP3". Prefixes that a container or a collector put before
    the head are dropped.
    """
    if message[:1] == "[":
        match = _HEAD.match(message)
    elif "[" in message[:_HEAD_SEARCH_LENGTH]:
        match = _DATED_HEAD.search(message, 0, _HEAD_SEARCH_LENGTH)
        match = match and _HEAD.match(message, match.start())
    else:
        match = None
    if match is None:
        return None, None, message
    ranks = (match.group("ranks") or match.group("only") or "").strip()
    return match.group("stamp"), ranks or None, message[match.end() :]


def stamp_times(stamp):
    """Return (realtime, monotonic) seconds of a printed stamp; a time without a date gives the seconds of its day."""
    if not stamp or not stamp[0].isdigit():
        return None, None
    try:
        clock = stamp[11:] if len(stamp) > 8 else stamp
        whole, _sep, part = clock.replace(",", ".").partition(".")
        hours, minutes, seconds = (int(number) for number in whole.split(":"))
        of_day = hours * 3600 + minutes * 60 + seconds + (float("0." + part) if part else 0.0)
        if len(stamp) == 8:
            return None, of_day
        date = (int(stamp[0:4]), int(stamp[5:7]), int(stamp[8:10]), 0, 0, 0, 0, 0, 0)
        return calendar.timegm(date) + of_day, None
    except (ValueError, OverflowError):
        return None, None


# ---------------------------------------------------------------------------------------------------------------------
# Making lines plain

# The title that a terminal sequence sets ends with its line: one that is never closed must not hide the rest of a log.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]{0,300}(?:\x07|\x1b\\)?|[@-Z\\-_]?)")
_SPECIAL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BREAK = re.compile(r"[\r\n\x00\x85\u2028\u2029]+")


# What torchrun ("[default0]:") and mpirun ("[1,0]<stderr>:") put before each line.
_LAUNCHER = re.compile(r"\[default\d{1,5}\]: ?|\[\d{1,6},\d{1,6}\]<(?:stdout|stderr|stddiag)>: ?")


def without_launcher(line):
    """Return a line without what torchrun or mpirun put before it."""
    match = _LAUNCHER.match(line) if line[:1] == "[" else None
    return line[match.end() :] if match else line


def visible_lines(text):
    """Return the visible lines of one message: carriage returns and NULs split, colours and control characters dropped.

    A dated SGLang head in the middle of a line starts a new one: another process wrote behind a progress bar that had
    not yet ended its line.
    """
    if _SPECIAL.search(text) is None:
        text = without_launcher(text).rstrip()
        return _split_at_heads(text) if text else []
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    pieces = _BREAK.split(text)
    lines = []
    for piece in pieces:
        piece = without_launcher(_CONTROL.sub("", piece)).rstrip()
        if not piece.strip():
            continue
        lines.extend(_split_at_heads(piece))
    return lines


def _split_at_heads(piece):
    # Cheap test first: nearly every line holds no second head.
    if piece.find("[20", 1) < 0 or "it/s" not in piece and "s/it" not in piece:
        return [piece]
    starts = [match.start() for match in _DATED_HEAD.finditer(piece) if match.start() > 0]
    if not starts:
        return [piece]
    cuts = [0] + starts + [len(piece)]
    parts = [piece[left:right].rstrip() for left, right in zip(cuts, cuts[1:])]
    return [part for part in parts if part.strip()]


def as_text(data):
    """Return *data* (str or bytes) as text; bytes that are no UTF-8 are written as escapes."""
    return data if isinstance(data, str) else bytes(data).decode("utf-8", "backslashreplace")
