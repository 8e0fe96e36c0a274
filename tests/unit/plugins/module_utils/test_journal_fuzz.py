# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing that a log may hold makes the reading raise, or take more than linear time."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _explain,
    _explain_file,
    _failures,
    _follow,
    _journal,
    _journal_ask,
    _journal_lines,
    _journal_stream,
    _startup,
)

# Pieces of what is read: random text alone would never get past the first test of a line.
PIECES = (
    "[2026-05-31 10:15:07 TP0] ",
    "[2026-05-31 10:15:07.123 DP0 TP1] ",
    "[TP3] ",
    "[",
    "]",
    "\r",
    "\n",
    "\0",
    "\x1b[31m",
    "\x1b]",
    "\u2028",
    "\ud800",
    "it/s[2026-05-31 10:15:07 TP1] ",
    "Load weight begin. avail mem=",
    "Load weight end. ",
    "mem usage=",
    "9.00 GB",
    "-",
    "1",
    "9" * 400,
    "KV Cache is allocated. #tokens: ",
    "max_total_num_tokens=",
    "context_len=",
    "The server is fired up and ready to roll!",
    "server_args=ServerArgs(mem_fraction_static=",
    "Traceback (most recent call last):",
    '\n  File "x.py", line 1, in f\n',
    "RuntimeError: ",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ",
    "GiB",
    "Received sigquit",
    "exit code: -9",
    "Suppressed 12 messages from u",
    "Stopping u",
    "Capture cuda graph begin. ",
    " 45%|##| 5/11 [00:02<00:03,",
    "{",
    "}",
    '{"log":"x","stream":"stderr"}\n',
    '{"MESSAGE":"x","__CURSOR":"c"}\n',
    "__CURSOR=c\n",
    "MESSAGE\n",
    "2026-05-31T10:15:07.123456789Z ",
    "2026-05-31T10:15:07Z stderr P ",
    "May 31 10:15:07 h u[1]: ",
    "<30>1 ",
    "a | ",
    "data: {",
    "systemd[1]: ",
    "kernel: ",
    "oom-kill:",
    "NVRM: Xid (PCI:0000:41:00): 79",
    "é",
    "=",
    ": ",
    "'",
    '"',
    "\\",
    " ",
    "\t",
)
TEXT = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
SCALAR = st.one_of(TEXT, st.none(), st.booleans(), st.integers(), st.floats(), st.binary().map(list))
ANYTHING = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)), max_leaves=6
)
NAMES = (*_journal_ask.FIELDS, "__CURSOR", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP")
RECORD = st.dictionaries(st.sampled_from(NAMES), ANYTHING)
TAME = {
    "_LINE_BREAK": st.sampled_from(["line-max", "eof", None]),
    "_TRANSPORT": st.sampled_from(["stdout", "journal", "kernel", "driver", None]),
    "SYSLOG_IDENTIFIER": st.sampled_from(["systemd", "systemd-journald", "python", None]),
    "_SYSTEMD_INVOCATION_ID": st.sampled_from(["i1", "i2", None]),
}
# A record that is nearly right gets further than one that is wrong everywhere.
RECORDS = st.lists(st.tuples(RECORD, st.fixed_dictionaries({}, optional=TAME), TEXT))


def lines_of(records):
    return [json.dumps({"MESSAGE": text, **tame, **wild}) for wild, tame, text in records]


@settings(max_examples=40)
@given(RECORDS)
def test_no_record_makes_the_reading_raise(records):
    text = "\n".join(lines_of(records))
    entries = _journal.decode_json_lines(text)
    for entry in entries:
        assert entry.message.strip()
        assert "\n" not in entry.message
        assert "\r" not in entry.message
        json.dumps(entry.as_dict())
    for invocation in [None, *_journal.invocations(entries)]:
        _failures.classify(_journal.select_invocation(entries, invocation))
    json.dumps(_explain.explain(entries))


@settings(max_examples=40)
@given(RECORDS, st.lists(st.integers(0, 5)))
def test_no_record_makes_the_follower_raise(records, portions):
    lines = [line.encode() for line in lines_of(records)]

    class Part:
        def __init__(self, argv):
            count = portions.pop() if portions else 1
            self.rc, self.err = (1, "Bad message") if count == 5 else (0, "")
            self._lines = lines[:count]
            del lines[:count]

        def __enter__(self):
            return iter(self._lines) if self.rc == 0 else self

        def __iter__(self):
            return iter(self._lines)

        def __exit__(self, *_exception):
            pass

    class Whole(Part):
        def __enter__(self):
            return self

    follower = _follow.Follower(_journal_stream.Runner(lambda argv: (0, "InvocationID=i1\n", ""), Whole), "u")
    follower.look_at_unit()
    reader = _startup.StartupReader()
    for _look in range(8):
        follower.read()
        for entry in follower.fresh:
            reader.feed(entry)
    json.dumps(reader.result().as_dict())
    assert isinstance(follower.last_line, str)


@given(st.one_of(TEXT, TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary()))
def test_no_text_makes_the_reading_raise(text):
    entries = _journal.decode(text)[0]
    for entry in entries:
        assert entry.message.strip()
        assert "\n" not in entry.message
    _journal.looks_like_json(text)
    with contextlib.suppress(_explain_file.Unreadable):
        json.dumps(_explain.explain(text))


@given(st.lists(st.tuples(TEXT, st.sampled_from([None, 0.0, 1.5, 1.79e9]), st.sampled_from([None, 1, 42]))))
def test_no_entry_makes_reader_or_catalogue_raise(rows):
    entries = [_journal_lines.Entry(text, realtime_seconds=at, monotonic_seconds=at, pid=pid) for text, at, pid in rows]
    json.dumps(_startup.read_startup(entries).as_dict())
    failure = _failures.classify(entries)
    json.dumps(failure.as_dict() if failure else _failures.notices(_failures.Case(entries)))


COSTLY = (
    "[",
    "[2026-05-31 10:15:07 TP0] ",
    "\x1b[",
    "\x1b]",
    "\x1b[0",
    "\r",
    "it/s[20",
    "{",
    '{"MESSAGE":',
    '{"a":[\n',
    "a: ",
    "A.",
    "-",
    " ",
    "'",
    "1",
    "Traceback (most recent call last):\n",
    '  File "x", line 1, in f\n',
    "__CURSOR=c\n",
    "__CURSOR=c\nMESSAGE\n\x03\0\0\0\0\0\0\0abc\n\n",
    'data: {"__CURSOR":"c","__REALTIME_TIMESTAMP":"1",\n',
    "[pod/",
    "a | ",
    "<30>1 ",
    "2026-05-31T10:15:07.123456789Z ",
    "2026-05-31T10:15:07Z stderr P x\n",
    '{"log":"x","stream":"s"}\n',
    "Load weight end. ",
    "KV Cache is allocated. #tokens: 1, ",
    "server_args=ServerArgs(",
    "max_total_num_tokens=1, ",
    "CUDA out of memory. Tried to allocate ",
    "Suppressed 1 messages\n",
    "[2026-05-31 10:15:07 TP0] Scheduler hit an exception: Traceback (most recent call last):\n",
    "[2026-05-31 10:15:07] server_args=ServerArgs()\nTraceback (most recent call last):\n",
)


def seconds(text):
    best = None
    for _try in range(2):
        begin = time.process_time()
        entries, _kind = _journal.decode(text)
        _failures.classify(_journal.select_invocation(entries))
        spent = time.process_time() - begin
        best = spent if best is None else min(best, spent)
    return best


@pytest.mark.parametrize("piece", COSTLY)
def test_twice_the_text_costs_at_most_three_times_as_much(piece):
    """Characters are counted, so that each piece costs about the same; a tenth of a second covers what is measured."""
    count = 150_000 // len(piece) if "\n" not in piece else 1500
    assert seconds(piece * (2 * count)) <= 3 * seconds(piece * count) + 0.1


@pytest.mark.parametrize("piece", ["\r", "x", "\x1b[", "[2026-05-31 10:15:07 TP0] ", "Tried to allocate 1"])
def test_twice_the_records_cost_at_most_three_times_as_much(piece):
    def text(count):
        records = (
            {"MESSAGE": piece * 50, "_LINE_BREAK": "line-max" if number % 3 else None, "_STREAM_ID": str(number % 100)}
            for number in range(count)
        )
        return "\n".join(map(json.dumps, records))

    assert seconds(text(1200)) <= 3 * seconds(text(600)) + 0.1
