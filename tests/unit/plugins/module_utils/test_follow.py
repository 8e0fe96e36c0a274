# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import json

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _follow, _journal_stream, _startup

UNIT = "sglang-main.service"
READY = "[2026-11-29 17:08:42] The server is fired up and ready to roll!"
START = (
    "[2026-11-29 17:08:30 TP0] Load weight begin. avail mem=90.00 GB",
    "[2026-11-29 17:08:40 TP0] max_total_num_tokens=195011, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=48, context_len=32768, available_gpu_mem=5.52 GB",
    READY,
)
DECODE = "[2026-11-29 17:09:00 TP0] Decode batch, #running-req: 1, #token: {0}, token usage: 0.00"


def row(number, message, sequence="aa", realtime=None, **fields):
    """A record; its number is its place in the journal and its monotonic time in seconds."""
    realtime = 1_790_000_000 + number if realtime is None else realtime
    base = {
        "__CURSOR": f"s={sequence};i={number:x};b={'b' * 32};m={number:x};t=0;x=0",
        "__REALTIME_TIMESTAMP": str(int(realtime * 1e6)),
        "__MONOTONIC_TIMESTAMP": str(number * 1_000_000),
        "_TRANSPORT": "stdout",
        "_PID": "42",
        "_SYSTEMD_INVOCATION_ID": "i1",
        "MESSAGE": message,
    }
    return dict(base, **fields)


class Journal:
    """A journalctl for one invocation. ``given``: how many records were read of it; ``asked``: its arguments.

    ``skips``: --cursor leads to the record behind a deleted one, as systemd does.
    """

    def __init__(self, rows, show="ActiveState=active\nSubState=running\nInvocationID=i1\nMainPID=42\n"):
        self.rows = rows
        self.show = show
        self.asked = []
        self.given = 0
        self.fails = []

    def __call__(self, argv):
        assert argv[0] == "systemctl"
        return 0, self.show, ""

    def lines(self, argv):
        self.asked.append(argv)
        return Answer(self, argv)

    def chosen(self, argv):
        options = dict(word.split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        rows = self.rows
        if "--cursor" in options:
            at = _follow._position(options["--cursor"])[1]
            rows = [one for one in rows if _follow._position(one["__CURSOR"])[1] >= at]
        return rows[-int(options["--lines"]) :] if "--lines" in options else rows


class Answer:
    def __init__(self, journal, argv):
        self._journal = journal
        self._argv = argv
        self._fail = journal.fails.pop(0) if journal.fails else None
        self.rc, self.err = 0, ""

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        pass

    def __iter__(self):
        limit, self.err = self._fail or (None, "")
        for one in itertools.islice(self._journal.chosen(self._argv), limit):
            self._journal.given += 1
            yield json.dumps(one).encode() + b"\n"
        self.rc = 1 if self._fail else 0


def serving(lines, start=START):
    texts = itertools.chain(start, (DECODE.format(number) for number in range(lines)))
    return [row(number, text) for number, text in enumerate(texts, 1)]


def follow(journal, **options):
    follower = _follow.Follower(_journal_stream.Runner(journal, stream=journal.lines), UNIT, **options)
    follower.look_at_unit()
    return follower


def messages(follower):
    return [entry.message for entry in follower.entries]


def test_of_a_server_that_is_up_for_long_the_start_up_and_the_end_are_read():
    journal = Journal(serving(300000))
    follower = follow(journal)
    follower.read()
    assert journal.given < 3000
    assert follower.gap
    startup = _startup.read_startup(follower.entries)
    assert (startup.state, startup.pool_tokens, startup.headroom_gib) == ("ready", 195011, 5.52)
    assert follower.last_line == DECODE.format(299999)
    assert {entry.message for entry in follower.end} == {DECODE.format(number) for number in range(298000, 300000)}
    # The next look goes on where the end was.
    journal.rows.append(row(300100, "Traceback (most recent call last):"))
    assert follower.read() == 1
    assert follower.fresh[0].message.startswith("Traceback")
    assert journal.given < 3010


def test_of_a_dead_one_more_of_the_end_is_read():
    journal = Journal(serving(50000), show="ActiveState=failed\nSubState=failed\nInvocationID=i1\nMainPID=0\n")
    follower = follow(journal)
    follower.read()
    assert len(follower.end) == 10000


@pytest.mark.parametrize(("lines", "commands", "gap"), [(3, 1, False), (499, 1, False), (501, 2, True), (900, 2, True)])
def test_a_server_that_is_just_up_is_read_whole_and_nothing_twice(lines, commands, gap):
    journal = Journal(serving(lines))
    follower = follow(journal)
    assert follower.read() == lines + 3
    assert len(journal.asked) == commands
    assert follower.gap is gap
    assert messages(follower) == [one["MESSAGE"] for one in journal.rows]
    assert follower.read() == 0


def test_a_lost_ready_line_does_not_make_weeks_be_read():
    journal = Journal(serving(100000, start=START[:2]))
    follower = follow(journal)
    follower.read()
    assert journal.given < 5000
    startup = _startup.read_startup(follower.entries)
    assert (startup.state, startup.pool_tokens) == ("loading", 195011)


def test_the_beginning_was_deleted():
    journal = Journal(serving(100000)[20000:])
    follower = follow(journal)
    follower.read()
    assert journal.given < 5000
    assert follower.last_line == DECODE.format(99999)


def test_memory_does_not_grow_with_the_lines():
    rows = serving(10)
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    for look in range(5):
        rows[:] = [row(1000 + look * 10000 + number, f"line {look} {number}") for number in range(10000)]
        assert follower.read() == 10000
    assert len(follower.entries) == _follow.FIRST_ENTRIES + _follow.LAST_ENTRIES
    assert messages(follower)[:3] == list(START)
    assert messages(follower)[-1] == "line 4 9999"


def test_what_a_look_takes_is_bounded_and_nothing_is_lost():
    rows = serving(10)
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    rows += [row(100 + number, f"line {number}") for number in range(25000)]
    read = []
    while follower.read():
        assert len(follower.fresh) <= 10000
        assert follower.behind is (len(follower.fresh) == 10000)
        read += [entry.message for entry in follower.fresh]
    assert read == [f"line {number}" for number in range(25000)]


def test_the_order_is_that_of_the_journal_whatever_the_clock_does():
    """The clock goes back by an hour, then forward by a day; nothing is asked for by time."""
    rows = [row(1, START[0]), row(2, START[1], realtime=1_789_996_400), row(3, READY, realtime=1_790_086_400)]
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    rows.append(row(4, "Traceback", realtime=1_700_000_000))
    assert follower.read() == 1
    assert messages(follower) == [*START, "Traceback"]
    assert _startup.read_startup(follower.entries).load_seconds == 2.0
    assert not [word for argv in journal.asked for word in argv if word.startswith(("--since", "--until"))]


def test_an_entry_is_not_lost_when_that_of_the_cursor_was_deleted():
    """Before systemd 255 --after-cursor leaves out the first entry then; it is not used."""
    rows = [row(1, "a"), row(2, "b"), row(3, "c")]
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    rows[:] = [row(5, "d"), row(6, "e")]
    assert follower.read() == 2
    assert messages(follower) == ["a", "b", "c", "d", "e"]


def test_another_numbering_of_the_journal_is_read_on():
    """journald begins a new sequence when its own state was lost."""
    rows = [row(7, "a"), row(8, "b")]
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    rows[:] = [row(8, "b"), row(9, "c", sequence="bb"), row(10, "d", sequence="bb")]
    assert follower.read() == 2
    rows.append(row(11, "e", sequence="bb"))
    assert follower.read() == 1
    assert messages(follower) == ["a", "b", "c", "d", "e"]


def test_a_file_that_was_rotated_away_makes_it_begin_again():
    rows = serving(3)
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    journal.fails = [(0, "Failed to seek to cursor: Invalid argument")]
    assert follower.read() == 6
    assert (follower.beginnings, follower.journal_error) == (2, None)
    assert messages(follower) == [one["MESSAGE"] for one in rows]


def test_what_came_before_a_failure_is_kept_and_the_rest_comes_with_the_next_look():
    rows = serving(5)
    journal = Journal(rows)
    follower = follow(journal)
    journal.fails = [(4, "Failed to iterate through journal: Bad message")]
    assert follower.read() == 4
    assert follower.journal_error is None
    assert follower.read() == 4
    assert messages(follower) == [one["MESSAGE"] for one in rows]


@pytest.mark.parametrize(
    ("err", "words"),
    [
        ("No journal files were opened due to insufficient permissions.", "systemd-journal"),
        ("No journal files were found.", "Storage=persistent"),
    ],
)
def test_a_journal_that_cannot_be_read_is_said(err, words):
    journal = Journal([])
    follower = follow(journal)
    journal.fails = [(0, err)]
    assert follower.read() == 0
    assert words in follower.journal_error
    assert words in follower.why_empty()
    # And it is forgotten when it can be read again.
    journal.rows = serving(0)
    assert follower.read() == 3
    assert follower.journal_error is None


def test_a_host_without_journalctl():
    def run(argv):
        if argv[0] == "journalctl":
            raise FileNotFoundError(2, "No such file or directory", "journalctl")
        return 0, "InvocationID=i1\n", ""

    follower = _follow.Follower(run, UNIT)
    follower.look_at_unit()
    assert follower.read() == 0
    assert "missing" in follower.journal_error


def test_an_empty_journal_is_no_error_and_has_a_reason():
    def run(argv):
        if argv[0] == "systemctl":
            return 0, "InvocationID=i1\n", ""
        refused = (1, "", "No journal files were opened due to insufficient permissions.")
        return refused if "--system" in argv else (0, "", "")

    follower = _follow.Follower(run, UNIT)
    follower.look_at_unit()
    assert follower.read() == 0
    assert follower.journal_error is None
    assert "become" in follower.why_empty()


def test_a_line_that_journald_cut_is_whole_although_its_rest_comes_later():
    rows = [row(1, "one, ", _LINE_BREAK="line-max", _STREAM_ID="s")]
    journal = Journal(rows)
    follower = follow(journal)
    assert follower.read() == 0
    rows.append(row(2, "two", _STREAM_ID="s"))
    assert follower.read() == 1
    rows.append(row(3, "cut", _LINE_BREAK="line-max", _STREAM_ID="s"))
    assert follower.read() == 0
    # Its process was killed: nothing comes any more.
    assert follower.read() == 1
    assert follower.read() == 0
    assert messages(follower) == ["one, two", "cut"]


def test_lines_that_cannot_be_seen_are_read_once():
    rows = [row(1, "a"), row(2, ""), row(3, None)]
    journal = Journal(rows)
    follower = follow(journal)
    follower.read()
    given = journal.given
    follower.read()
    assert journal.given - given == 1
    assert messages(follower) == ["a"]


def test_reading_can_begin_now():
    rows = serving(4000)
    now = 1_790_000_000 + 4003.5
    journal = Journal(rows)
    follower = follow(journal, since_seconds=now)
    assert follower.read() == 0
    rows.append(row(4004, "new", realtime=now - 3600))
    assert follower.read() == 1
    assert messages(follower) == ["new"]
    journal.fails = [(0, "Bad message")]
    rows.append(row(4005, "newer", realtime=now + 1))
    assert follower.read() == 1
    assert messages(follower) == ["newer"]


def test_an_invocation_that_was_never_seen_is_not_asked_for():
    journal = Journal(serving(1), show="ActiveState=inactive\n")
    follower = follow(journal)
    assert follower.read() == 0
    assert journal.asked == []
    assert follow(Journal(serving(1)), use_journal=False).read() == 0


@pytest.mark.parametrize("cursor", [None, "", "nonsense", "s=aa", "s=aa;i=zz", ";;;", "s=aa;i=5;i=6"])
def test_no_cursor_makes_the_reader_raise(cursor):
    _follow._was_read(cursor, "s=aa;i=5")
    _follow._was_read("s=aa;i=5", cursor or "")
    rows = [row(1, "a"), dict(row(2, "b"), __CURSOR=cursor)]
    follower = follow(Journal(rows))
    assert follower.read() == 2
