# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal_text: plain logs (private to the collection).

journalctl -o short (and its relatives) and cat, docker and Kubernetes logs, SGLang's own output: text in, one Entry per
visible line out.
"""

from __future__ import annotations

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
)

_SHORT = re.compile(
    r"^(?:(?P<month>[A-Z][a-z]{2}) {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|(?:[A-Z][a-z]{2} )?(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    r"(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d))?"
    r"|(?P<unix>\d{9,11}\.\d{6}))"
    r" (?P<host>[^\s:\[]{1,255}) (?P<ident>[^\s\[:]{1,255})"
    r"(?:\[(?P<pid>\d{1,10})\])?: (?P<rest>.*)$"
)
_BARE_SOURCE = re.compile(r"^(?P<ident>systemd|kernel|systemd-journald)(?:\[(?P<pid>\d{1,10})\])?: (?P<rest>.*)$")
_COLLECTOR = re.compile(
    r"^(?:[A-Za-z0-9._-]{1,80} {1,20}\| "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] )"
)
_SOURCES = {"systemd": SYSTEMD, "kernel": KERNEL, "systemd-journald": JOURNALD}


def decode_text(text):
    """Decode a plain log (str or bytes) into a list of Entry. A line without a time has that of the last one."""
    entries = []
    realtime = monotonic = None
    for line in visible_lines(as_text(text)):
        source, pid, prefix_time, rest = _strip_prefix(line)
        stamp = split_head(rest)[0]
        own_realtime, own_monotonic = stamp_times(stamp)
        if prefix_time is not None:
            own_realtime = prefix_time
        if own_realtime is not None or own_monotonic is not None:
            realtime, monotonic = own_realtime, own_monotonic
        entries.append(
            Entry(
                message=rest,
                realtime_seconds=realtime,
                monotonic_seconds=monotonic,
                pid=pid,
                unit_message=source == SYSTEMD,
                source=source,
            )
        )
    return entries


def _strip_prefix(line):
    """Return (source, pid, realtime, rest) of one text line; the prefix of a log reader is taken off."""
    if line[:1] == "[" or line[:1] == " ":
        return SERVICE, None, None, line
    match = _BARE_SOURCE.match(line) or _SHORT.match(line)
    if match is None:
        collector = _COLLECTOR.match(line)
        return SERVICE, None, None, line[collector.end() :] if collector else line
    found = match.groupdict()
    pid = int(found["pid"]) if found.get("pid") else None
    source = _SOURCES.get(match.group("ident"), SERVICE)
    return source, pid, _prefix_time(found), match.group("rest")


def _prefix_time(found):
    if found.get("unix"):
        return float(found["unix"])
    if not found.get("iso"):
        return None
    seconds = stamp_times(found["iso"])[0]
    zone = found.get("zone")
    if seconds is not None and zone and zone[0] in "+-":
        offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= offset if zone[0] == "+" else -offset
    return seconds
