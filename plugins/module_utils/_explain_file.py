# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_explain_file: a log in a file (private to the collection).

Plain or packed by gzip, bzip2 or xz; UTF-8, or UTF-16 as PowerShell writes it. Of a very large one both ends are read.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib

# More than any start-up needs; a log of weeks is read up to here from both ends.
MAX_FILE_BYTES = 16 * 2**20

# What a packed file may unpack to; what lies behind is not read.
MAX_UNPACKED_BYTES = 4 * 2**30

_CHUNK_BYTES = 2**20

# (first bytes, opener)
_PACKED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))

# (first bytes, what it is, the way out)
_REFUSED = (
    (b"\x28\xb5\x2f\xfd", "a file packed by zstd", "unpack it with zstd -d"),
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"LPKSHHRH", "a binary journal file", "print it with journalctl --output=json --file=... > log.json"),
    (b"\x7fELF", "a program", "name a log"),
)

_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))


class Unreadable(Exception):
    """There is no log to explain; the text is one sentence with the way out."""


def read_file(path):
    """Return the bytes of a log file, unpacked and in UTF-8; of a very large one its first and its last part.

    :raises Unreadable: when there is none, when it is empty, and when it is no text.
    """
    try:
        with open(path, "rb") as stream:
            head = stream.read(16)
        for first, what, way_out in _REFUSED:
            if head.startswith(first):
                raise Unreadable("Expected a log at {0}, found {1}; {2}.".format(path, what, way_out))
        opener = next((opener for first, opener in _PACKED if head.startswith(first)), open)
        with opener(path, "rb") as stream:
            data = _both_ends(stream)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise Unreadable(
            "Expected a readable log file at {0}, found: {1}; correct the option file.".format(
                path, getattr(error, "strerror", None) or error
            )
        ) from error
    data = _as_utf8(data)
    if not data.strip(b"\0 \t\r\n"):
        raise Unreadable("Expected a log at {0}, found an empty file; correct the option file.".format(path))
    return data


def _both_ends(stream):
    """Return the first and the last MAX_FILE_BYTES of a stream, cut at line ends."""
    head = _read(stream, MAX_FILE_BYTES)
    if len(head) < MAX_FILE_BYTES:
        return head
    if isinstance(stream, io.BufferedReader):
        size = stream.seek(0, 2)
        if size == MAX_FILE_BYTES:
            return head
        stream.seek(max(size - MAX_FILE_BYTES, MAX_FILE_BYTES))
        tail, skipped = _read(stream, MAX_FILE_BYTES), size > 2 * MAX_FILE_BYTES
    else:
        tail, skipped = _last_part(stream)
    if not skipped:
        return head + tail
    return head[: head.rfind(b"\n") + 1] + tail.partition(b"\n")[2]


def _read(stream, limit):
    """Read up to *limit* bytes. What can be unpacked of a damaged file is worth reading."""
    parts, size = [], 0
    while size < limit:
        try:
            part = stream.read(min(_CHUNK_BYTES, limit - size))
        except (EOFError, zlib.error, lzma.LZMAError):
            if not parts:
                raise
            break
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _last_part(stream):
    """Return (the last MAX_FILE_BYTES of what follows, whether something was left out) of a packed stream."""
    before, last, skipped, size = b"", b"", False, MAX_FILE_BYTES
    while size < MAX_UNPACKED_BYTES:
        part = _read(stream, MAX_FILE_BYTES)
        if not part:
            break
        skipped = skipped or bool(before)
        before, last, size = last, part, size + len(part)
    tail = before + last
    return tail[-MAX_FILE_BYTES:], skipped or len(tail) > MAX_FILE_BYTES


def _as_utf8(data):
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").encode("utf-8", "replace")
    return data
