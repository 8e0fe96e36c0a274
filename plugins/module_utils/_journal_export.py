# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_journal_export: the other machine forms of a journal (private to the collection).

``journalctl -o export`` (https://systemd.io/JOURNAL_EXPORT_FORMATS/), ``json-pretty``, ``json-sse`` and ``json-seq``:
text in, records as ``-o json`` has them out.
"""

from __future__ import annotations

import json
import re

_FIELD_NAME = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}")
# Length of a binary field: 64 bits, little endian, between its name and its bytes.
_LENGTH_BYTES = 8


def looks_like_export(text):
    """Tell whether *text* (str or bytes) is ``journalctl -o export`` output: it begins with a cursor."""
    head = text[:200]
    head = head.encode("utf-8", "replace") if isinstance(head, str) else bytes(head)
    return head.lstrip().startswith(b"__CURSOR=")


def records_of_export(text):
    """Yield the records (dictionaries); what is cut off or no field ends its record."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    record, at = {}, 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line, at = data[at:end], end + 1
        name, equals, value = line.partition(b"=")
        if not line.strip():
            if record:
                yield record
            record = {}
        elif not _FIELD_NAME.fullmatch(name.rstrip(b"\r")):
            continue
        elif equals:
            record[name.decode("ascii")] = value.decode("utf-8", "backslashreplace")
        else:
            length = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
            begin = at + _LENGTH_BYTES
            if begin + length > len(data):
                # A name without a value: a line of something else, or the end was cut off.
                continue
            record[line.decode("ascii", "replace")] = list(data[begin : begin + length])
            at = begin + length + 1
    if record:
        yield record


def looks_like_wrapped_json(text):
    """Tell whether *text* (str) holds JSON records of a journal that are not one a line."""
    head = text[:65536].lstrip("\x1e\r\n\t ")
    return head.startswith(("data: {", "{")) and '"__CURSOR"' in head and '"__REALTIME_TIMESTAMP"' in head


def records_of_wrapped_json(text):
    """Yield the records (dictionaries); what is no JSON between them is left out.

    A record stands in one line, behind the mark of its format, or between a line with its first and one with its last
    brace.
    """
    parts = None
    for line in text.split("\n"):
        line = line.lstrip("\x1e").rstrip("\r")
        if line.startswith("data: "):
            line = line[len("data: ") :]
        if line == "{":
            parts = [line]
            continue
        if parts is not None:
            parts.append(line)
            if line != "}":
                continue
            line, parts = "\n".join(parts), None
        elif not line.startswith("{"):
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record
