# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal_text: plain logs (private to the collection).

SGLang's own output, and what stands around it: the output modes of journalctl, syslog, docker, Compose, Kubernetes
(CRI) and collectors that write one JSON object a line. Text in, one Entry per visible line out.
"""

from __future__ import annotations

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
    stamp_times,
    visible_lines,
    without_launcher,
)

# journalctl -o short, short-precise, short-iso, short-iso-precise, short-full, short-unix, with-unit; syslog.
_SHORT = re.compile(
    r"^(?:<\d{1,3}>)?"
    r"(?:(?P<month>[A-Z][a-z]{2}) {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|(?:[A-Z][a-z]{2} )?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    r"(?: ?(?P<zone>Z|[A-Z]{3,5}|[+-]\d\d:?\d\d))?"
    r"|(?P<unix>\d{9,11}\.\d{6})"
    r"|\[ {0,8}(?P<monotonic>\d{1,10}\.\d{6})\])"
    r" (?P<host>[^\s:\[]{1,255}) (?P<ident>[^\s\[:]{1,255})"
    r"(?:\[(?P<pid>\d{1,10})\])?: (?P<rest>.*)$"
)
# RFC 5424.
_SYSLOG = re.compile(
    r"^<\d{1,3}>1 (?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?P<zone>Z|[+-]\d\d:\d\d)"
    r" \S{1,255} (?P<ident>\S{1,48}) (?:(?P<pid>\d{1,10})|\S{1,128}) \S{1,32} (?:-|\[[^\]]{0,1000}\]) ?(?P<rest>.*)$"
)
_BARE_SOURCE = re.compile(r"^(?P<ident>systemd|kernel|systemd-journald)(?:\[(?P<pid>\d{1,10})\])?: (?P<rest>.*)$")
# docker compose logs; kubectl logs --prefix; workers of Ray.
_NAMED = re.compile(
    r"^(?:[A-Za-z0-9._-]{1,80} {1,20}\| ?|\[pod/[^\]\s]{1,300}\] "
    r"|\([A-Za-z_]\w{0,79} pid=\d{1,10}(?:, ip=[\d.]{7,15})?\) )"
)
# docker logs --timestamps and kubectl logs --timestamps have nine digits; before CRI's words there may be fewer.
_STAMPED = re.compile(
    r"^(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(?P<digits>\d{1,9}))?)(?P<zone>Z|[+-]\d\d:\d\d)"
    r" (?:(?P<stream>stdout|stderr) (?P<part>[FP])(?: |$))?"
)
# init.scope: systemd itself in journalctl -o with-unit.
_SOURCES = {"systemd": SYSTEMD, "init.scope": SYSTEMD, "kernel": KERNEL, "systemd-journald": JOURNALD}

# Names of the message and of its time in logs of one JSON object a line: docker's json-file driver, and collectors.
_MESSAGE_NAMES = ("log", "message", "msg", "MESSAGE")
_TIME_NAMES = ("time", "timestamp", "@timestamp", "asctime", "ts")

# Of one line that arrives in pieces so much is kept.
_LINE_LENGTH = 2**20


class _Reader:
    """Reads the lines of one log. A line without a time has that of the last one."""

    def __init__(self):
        self.entries = []
        self._times = (None, None)
        # Lines that a container runtime cut, by stream: docker at 16 KiB, CRI likewise.
        self._parts = {}

    def read(self, line):
        """Read one line of the file."""
        wrapped = self._unwrap_json(line) if line[:1] == "{" else self._unwrap_stamp(line)
        if wrapped is None:
            self._add_lines(line, None)
            return
        stream, complete, realtime, message = wrapped
        before = self._parts.pop(stream, "")
        if len(before) < _LINE_LENGTH:
            before += message
        if complete:
            self._add_lines(before, realtime)
        else:
            self._parts[stream] = before

    def finish(self):
        """Return all entries, with the lines whose end did not come."""
        for message in self._parts.values():
            self._add_lines(message, None)
        return self.entries

    def _unwrap_json(self, line):
        """Return (stream, complete, realtime, message) of a JSON object with a message, else None."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict):
            return None
        message = next((record[name] for name in _MESSAGE_NAMES if isinstance(record.get(name), str)), None)
        if message is None:
            return None
        stream = record.get("stream")
        # Only docker's own form tells that a line goes on: by the missing line end.
        complete = message.endswith("\n") or not (isinstance(record.get("log"), str) and isinstance(stream, str))
        realtime = next((_iso_time(record[name]) for name in _TIME_NAMES if isinstance(record.get(name), str)), None)
        return str(stream), complete, realtime, message

    def _unwrap_stamp(self, line):
        """Return the same of a line behind the time of a container runtime, else None."""
        line = _NAMED.sub("", line)
        match = _STAMPED.match(line)
        if match is None or (match.group("part") is None and len(match.group("digits") or "") != 9):
            return None
        realtime = _zoned(match.group("iso"), match.group("zone"))
        return match.group("stream"), match.group("part") != "P", realtime, line[match.end() :]

    def _add_lines(self, message, realtime):
        for line in visible_lines(message):
            self._add(line, realtime)

    def _add(self, line, realtime):
        source, pid, times, rest = _strip_prefix(line)
        own = stamp_times(split_head(rest)[0])
        if times != (None, None):
            own = times
        elif realtime is not None:
            own = (realtime, None)
        if own != (None, None):
            self._times = own
        self.entries.append(
            Entry(
                message=rest,
                realtime_seconds=self._times[0],
                monotonic_seconds=self._times[1],
                pid=pid,
                unit_message=source == SYSTEMD,
                source=source,
            )
        )


def decode_text(text):
    """Decode a plain log (str or bytes) into a list of Entry. A line without a time has that of the last one."""
    reader = _Reader()
    for line in as_text(text).split("\n"):
        reader.read(line)
    return reader.finish()


def _strip_prefix(line):
    """Return (source, pid, (realtime, monotonic), rest) of one text line; the prefix of a log reader is taken off."""
    line = _NAMED.sub("", line)
    if line[:1] == " " or line[:1] == "[" and line[1:2] not in " 0123456789":
        return SERVICE, None, (None, None), line
    match = _BARE_SOURCE.match(line) or _SHORT.match(line) or _SYSLOG.match(line)
    if match is None:
        return SERVICE, None, (None, None), line
    found = match.groupdict()
    pid = int(found["pid"]) if found.get("pid") else None
    source = _SOURCES.get(match.group("ident"), SERVICE)
    return source, pid, _prefix_times(found), without_launcher(match.group("rest"))


def _prefix_times(found):
    if found.get("unix"):
        return float(found["unix"]), None
    if found.get("monotonic"):
        return None, float(found["monotonic"])
    if not found.get("iso"):
        return None, None
    return _zoned(found["iso"], found.get("zone")), None


def _zoned(stamp, zone):
    """Return the seconds since the epoch of a stamp; the name of a zone tells nothing and is taken for UTC."""
    seconds = stamp_times(stamp)[0]
    if seconds is not None and zone and zone[0] in "+-":
        offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return seconds


_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) ?(Z|[+-]\d\d:?\d\d)?")


def _iso_time(text):
    match = _ISO.match(text)
    return _zoned(match.group(1), match.group(2)) if match else None
