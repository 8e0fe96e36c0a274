# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib
import struct
import time

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _journal,
    _journal_ask,
    _journal_lines,
    _journal_text,
    _startup,
)

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "journal"
GOOD = (DATA / "start_and_ready.jsonl").read_text()
LOOP = (DATA / "crash_loop.jsonl").read_text()


def record(message, **fields):
    """One line of journalctl -o json."""
    base = {
        "__REALTIME_TIMESTAMP": "1790000001000000",
        "__MONOTONIC_TIMESTAMP": "1000000",
        "__CURSOR": "s=aa;i=1",
        "_TRANSPORT": "stdout",
        "_PID": "42",
        "_SYSTEMD_INVOCATION_ID": "i1",
        "MESSAGE": message,
    }
    base.update(fields)
    return json.dumps(base)


def messages(text):
    return [entry.message for entry in _journal.decode_json_lines(text)]


def test_a_real_journal_is_read_whole():
    entries = _journal.decode_json_lines(GOOD)
    assert len(entries) == 55 - 1
    assert entries[0].unit_message
    assert entries[0].message == "Started sgl-cpu.service - SGLang CPU tiny."
    assert entries[-1].message.endswith("The server is fired up and ready to roll!")
    assert entries[-1].realtime_seconds == pytest.approx(1795972122.641815)
    assert entries[-1].monotonic_seconds is not None
    assert {entry.invocation_id for entry in entries} == {"d5d0fb51bfec4da5981535bb37e14781"}
    assert {entry.pid for entry in entries} == {1, 324, 335, 336}


def test_the_progress_bar_of_a_real_journal_is_two_lines():
    bars = [message for message in messages(GOOD) if message.startswith("Multi-thread loading shards")]
    assert bars == [
        "Multi-thread loading shards:   0% Completed | 0/1 [00:00<?, ?it/s]",
        "Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 486.01it/s]",
    ]


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        ("one", ["one"]),
        ("a\rb\rc", ["a", "b", "c"]),
        ("\ra\n\n", ["a"]),
        ("bar 50%\r", ["bar 50%"]),
        ("\x1b[31mred\x1b[0m text", ["red text"]),
        ("\x1b]0;title\x07text", ["text"]),
        ("a\x00\x00b", ["a", "b"]),
        ("tab\tstays", ["tab\tstays"]),
        ("bell\x07gone", ["bellgone"]),
        ("   ", []),
        (None, []),
        (7, []),
        ([195, 156, 110, 105], ["Üni"]),
        ([111, 107, 32, 255, 32, 98, 97, 100], ["ok \\xff bad"]),
        ([97, 13, 98], ["a", "b"]),
        ([300, -1], []),
        (["first", "second"], ["first", "second"]),
        ([[97, 98], "c", None], ["ab", "c"]),
        (
            "Loading shards:  50% Completed | 1/2 [00:01<00:01, 1.0it/s][2026-05-31 10:15:07 TP1] Load weight end. x",
            [
                "Loading shards:  50% Completed | 1/2 [00:01<00:01, 1.0it/s]",
                "[2026-05-31 10:15:07 TP1] Load weight end. x",
            ],
        ),
    ],
)
def test_one_message_becomes_its_visible_lines(message, lines):
    assert messages(record(message)) == lines


def test_a_line_that_journald_cut_is_joined_per_stream():
    text = "\n".join(
        (
            record("ValueError: one, ", _LINE_BREAK="line-max", _STREAM_ID="s1"),
            record("of another stream", _STREAM_ID="s2"),
            record("two, ", _LINE_BREAK="line-max", _STREAM_ID="s1"),
            record("three", _STREAM_ID="s1"),
            record("no newline at the end", _LINE_BREAK="eof", _STREAM_ID="s1"),
        )
    )
    assert messages(text) == ["of another stream", "ValueError: one, two, three", "no newline at the end"]


def test_a_cut_line_whose_rest_never_came_is_kept():
    assert messages(record("cut", _LINE_BREAK="line-max")) == ["cut"]


def test_a_line_without_an_end_does_not_fill_the_memory():
    piece = "x" * 49152
    decoder = _journal.Decoder()
    for number in range(1000):
        assert not decoder.feed(record(piece, _LINE_BREAK="line-max", __CURSOR=f"c{number}"))
    assert decoder.cursor == "c999"
    (entry,) = decoder.rest()
    assert 2**20 <= len(entry.message) <= 2**20 + len(piece)


def test_the_rest_of_a_cut_line_may_come_with_the_next_look():
    decoder = _journal.Decoder()
    assert not decoder.feed(record("one, ", _LINE_BREAK="line-max"))
    assert [entry.message for entry in decoder.feed(record("two"))] == ["one, two"]
    assert not decoder.rest()


def test_a_character_that_was_cut_in_two_is_whole_again():
    text = "\n".join((record([195], _LINE_BREAK="line-max"), record([156])))
    assert messages(text) == ["Ü"]


def export(fields):
    """One record as journalctl -o export writes it: what holds control characters as bytes behind their number."""
    out = b""
    for name, value in fields.items():
        if isinstance(value, bytes):
            out += name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
        else:
            out += f"{name}={value}\n".encode()
    return out + b"\n"


def test_the_other_forms_of_a_journal_give_the_same():
    rows = [json.loads(line) for line in GOOD.splitlines()]
    wanted = _journal.decode_json_lines(GOOD)
    assert any(isinstance(row["MESSAGE"], list) for row in rows)
    plain = [{name: value for name, value in row.items() if value is not None} for row in rows]
    whole = b"".join(
        export({name: bytes(value) if isinstance(value, list) else value for name, value in row.items()})
        for row in [dict({"__CURSOR": row["__CURSOR"]}, **row) for row in plain]
    )
    assert _journal.decode(whole) == (wanted, "export")
    assert _journal.decode("\n".join(json.dumps(row, indent=4) for row in rows)) == (wanted, "json")
    assert _journal.decode("".join(f"data: {json.dumps(row)}\n\n" for row in rows)) == (wanted, "json")
    assert _journal.decode("".join(f"\x1e{json.dumps(row)}\n" for row in rows)) == (wanted, "json")


def test_an_export_that_was_cut_off_gives_what_is_whole():
    whole = export({"__CURSOR": "c1", "MESSAGE": b"a\rb"}) + export({"__CURSOR": "c2", "MESSAGE": b"cut off"})
    for length in range(len(whole)):
        messages_read = [entry.message for entry in _journal.decode(whole[:length])[0]]
        assert messages_read[:2] == ["a", "b"] or length < 60


def test_what_is_no_record_is_skipped():
    text = (
        "-- No entries --\n{broken\n[1, 2]\n\n" + record("kept") + "\nFailed to iterate through journal: Bad message\n"
    )
    assert messages(text) == ["kept"]


def test_null_fields_and_wrong_types_do_no_harm():
    entry = _journal.decode_json_lines(
        record(
            "x",
            _PID=None,
            __REALTIME_TIMESTAMP=None,
            __MONOTONIC_TIMESTAMP="x",
            __CURSOR=None,
            _SYSTEMD_INVOCATION_ID=None,
        )
    )[0]
    assert entry == _journal_lines.Entry("x")
    assert entry.as_dict()["pid"] is None


def test_the_sources_of_entries_are_told_apart():
    text = "\n".join(
        (
            record(
                "u.service: Main process exited",
                _TRANSPORT="journal",
                SYSLOG_IDENTIFIER="systemd",
                _PID="1",
                UNIT="u.service",
                INVOCATION_ID="i2",
                _SYSTEMD_INVOCATION_ID=None,
            ),
            record("NVRM: Xid", _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", _SYSTEMD_INVOCATION_ID=None),
            record("Suppressed 12 messages from u.service", _TRANSPORT="driver"),
            record("hello"),
        )
    )
    entries = _journal.decode_json_lines(text)
    assert [entry.source for entry in entries] == ["systemd", "kernel", "journald", "service"]
    assert [entry.unit_message for entry in entries] == [True, False, False, False]
    assert entries[0].invocation_id == "i2"


def test_only_the_last_of_three_invocations_is_selected():
    entries = _journal.decode_json_lines(LOOP)
    known = _journal.invocations(entries)
    assert len(known) == 3
    last = _journal.select_invocation(entries)
    assert {entry.invocation_id for entry in last} == {known[-1]}
    first = _journal.select_invocation(entries, known[0])
    assert {entry.invocation_id for entry in first} == {known[0]}
    assert first[0].message.startswith("Started ")
    assert not _journal.select_invocation(entries, "unknown")


def test_what_journald_dropped_belongs_to_the_invocation_that_it_names():
    """The fields are those of systemd 252 and 257: the line has the invocation of journald itself besides."""
    dropped = {"_TRANSPORT": "driver", "SYSLOG_IDENTIFIER": "systemd-journald", "_SYSTEMD_INVOCATION_ID": "journald"}
    text = "\n".join(
        (
            record("a"),
            record("Suppressed 25000 messages from u.service", OBJECT_SYSTEMD_INVOCATION_ID="i1", **dropped),
            record("Suppressed 9 messages from v.service", OBJECT_SYSTEMD_INVOCATION_ID="i9", **dropped),
        )
    )
    entries = _journal.decode_json_lines(text)
    assert _journal.invocations(entries) == ["i1"]
    assert _startup.read_startup(_journal.select_invocation(entries)).suppressed_lines == 25000


def test_last_words_without_an_invocation_belong_to_the_one_before():
    text = "\n".join((record("a"), record("b", _SYSTEMD_INVOCATION_ID="i2"), record("c", _SYSTEMD_INVOCATION_ID=None)))
    assert [entry.message for entry in _journal.select_invocation(_journal.decode_json_lines(text))] == ["b", "c"]


def test_a_text_log_of_several_starts_gives_the_last_one():
    start = (
        "[2026-05-31 10:15:07] server_args=ServerArgs()\n"
        "[2026-05-31 10:15:08 TP0] Load weight begin. avail mem=70.00 GB\n"
    )
    ready = "[2026-05-31 10:15:09] The server is fired up and ready to roll!\n"
    entries = _journal_text.decode_text(start + ready + start)
    chosen = _journal.select_invocation(entries)
    assert len(chosen) == 2
    assert _startup.read_startup(chosen).state == "loading"
    assert [len(part) for part in _journal.starts(entries)] == [3, 2]
    assert _journal.starts([]) == [[]]


@pytest.mark.parametrize(
    ("line", "message", "pid", "realtime", "source"),
    [
        ("[2026-05-31 10:15:07 TP0] x", "[2026-05-31 10:15:07 TP0] x", None, 1780222507.0, "service"),
        ("[2026-05-31 10:15:07.250 TP0] x", "[2026-05-31 10:15:07.250 TP0] x", None, 1780222507.25, "service"),
        (
            "May 31 10:15:07 gpu-a python[324]: [2026-05-31 10:15:07] x",
            "[2026-05-31 10:15:07] x",
            324,
            1780222507.0,
            "service",
        ),
        ("2026-05-31T12:15:07+0200 gpu-a python[324]: x", "x", 324, 1780222507.0, "service"),
        (
            "2026-05-31T12:15:07.5+02:00 gpu-a systemd[1]: u.service: Failed",
            "u.service: Failed",
            1,
            1780222507.5,
            "systemd",
        ),
        ("1780222507.250000 gpu-a kernel: NVRM: Xid", "NVRM: Xid", None, 1780222507.25, "kernel"),
        ("systemd[1]: sglang.service: Main process exited", "sglang.service: Main process exited", 1, None, "systemd"),
        ("kernel: oom-kill:constraint", "oom-kill:constraint", None, None, "kernel"),
        ("sglang-1  | [2026-05-31 10:15:07] x", "[2026-05-31 10:15:07] x", None, 1780222507.0, "service"),
        (
            "2026-05-31T10:15:07.1Z stderr F [2026-05-31 10:15:07] x",
            "[2026-05-31 10:15:07] x",
            None,
            1780222507.1,
            "service",
        ),
        (
            "Sun 2026-05-31 10:15:07 UTC gpu-a sglang[324]: [2026-05-31 10:15:07 TP0] x",
            "[2026-05-31 10:15:07 TP0] x",
            324,
            1780222507.0,
            "service",
        ),
        ("Sun 2026-05-31 12:15:07 CEST gpu-a systemd[1]: u: Failed", "u: Failed", 1, 1780229707.0, "systemd"),
        ("Sun 2026-05-31 10:15:07 UTC gpu-a init.scope[1]: Started u", "Started u", 1, 1780222507.0, "systemd"),
        ("[ 1842.352595] gpu-a python[324]: [2026-05-31 10:15:07] x", "[2026-05-31 10:15:07] x", 324, None, "service"),
        ("<30>May 31 10:15:07 gpu-a sglang[324]: [2026-05-31 10:15:07] x", "[2026-05-31 10:15:07] x", 324, 1780222507.0,
         "service"),
        ("<30>1 2026-05-31T10:15:07.5Z gpu-a sglang 324 - - x: y", "x: y", 324, 1780222507.5, "service"),
        ('<30>1 2026-05-31T10:15:07Z gpu-a kernel - - [a b="c"] NVRM: Xid', "NVRM: Xid", None, 1780222507.0, "kernel"),
        (
            "2026-05-31T10:15:07.123456789Z Exit code: -9",
            "Exit code: -9",
            None,
            1780222507.123456789,
            "service",
        ),
        (
            "2026-05-31T12:15:07.000000000+02:00 stderr F RuntimeError: x",
            "RuntimeError: x",
            None,
            1780222507.0,
            "service",
        ),
        (
            "(SGLangEngine pid=952, ip=10.0.0.4) [2026-05-31 10:15:07 TP0] x",
            "[2026-05-31 10:15:07 TP0] x",
            None,
            1780222507.0,
            "service",
        ),
        (
            "[pod/sglang-0/server] 2026-05-31T10:15:07.000000000Z [2026-05-31 10:15:07 TP1] x",
            "[2026-05-31 10:15:07 TP1] x",
            None,
            1780222507.0,
            "service",
        ),
        (
            '{"log":"[2026-05-31 10:15:07 TP0] x\\n","stream":"stderr","time":"2026-05-31T10:15:07.25Z"}',
            "[2026-05-31 10:15:07 TP0] x",
            None,
            1780222507.25,
            "service",
        ),
        (
            '{"asctime": "2026-05-31 10:15:07", "level": "INFO", "message": "Load weight begin. avail mem=9.00 GB"}',
            "Load weight begin. avail mem=9.00 GB",
            None,
            1780222507.0,
            "service",
        ),
        ('{"event": "request.received"}', '{"event": "request.received"}', None, None, "service"),
        ("{broken", "{broken", None, None, "service"),
        ("ValueError: a: b", "ValueError: a: b", None, None, "service"),
        ('  File "x.py", line 1, in f', '  File "x.py", line 1, in f', None, None, "service"),
    ],
)
def test_prefixes_of_log_readers_are_taken_off(line, message, pid, realtime, source):
    entry = _journal_text.decode_text(line)[0]
    assert (entry.message, entry.pid, entry.realtime_seconds, entry.source) == (message, pid, realtime, source)


def test_the_lines_that_a_container_runtime_cut_are_whole_again():
    docker = "".join(
        json.dumps({"log": text, "stream": stream, "time": "2026-05-31T10:15:07Z"}) + "\n"
        for text, stream in (("one, ", "stderr"), ("other\n", "stdout"), ("two\n", "stderr"), ("no end", "stderr"))
    )
    assert [entry.message for entry in _journal.decode(docker)[0]] == ["other", "one, two", "no end"]
    parts = ("P one, ", "P two, ", "F three", "F ", "F four")
    cri = "".join(f"2026-05-31T10:15:0{number}.5Z stderr {part}\n" for number, part in enumerate(parts))
    entries = _journal.decode(cri)[0]
    assert [entry.message for entry in entries] == ["one, two, three", "four"]
    assert [entry.realtime_seconds for entry in entries] == [1780222502.5, 1780222504.5]


def test_the_bar_and_the_colours_in_a_docker_log_are_plain():
    line = json.dumps({"log": "\r  0%| | 0/2\r 50%| | 1/2\u001b[31m red\u001b[0m\n", "stream": "stderr"})
    assert [entry.message for entry in _journal.decode(line)[0]] == ["  0%| | 0/2", " 50%| | 1/2 red"]


def test_a_terminal_title_that_is_never_closed_hides_no_line():
    assert [entry.message for entry in _journal.decode("\x1b]0;title\n[TP0] x\n")[0]] == ["[TP0] x"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_line_ends_of_windows_make_no_difference(ends):
    text = ends.join(("[2026-05-31 10:15:07 TP0] a", "b", ""))
    assert [entry.message for entry in _journal.decode(text)[0]] == ["[2026-05-31 10:15:07 TP0] a", "b"]


def test_lines_without_a_time_have_that_of_the_last_one():
    entries = _journal_text.decode_text("a\n[15:57:49 TP0] b\nc\n[2026-05-31 10:15:07] d\ne")
    assert [entry.monotonic_seconds for entry in entries] == [None, 57469.0, 57469.0, None, None]
    assert [entry.realtime_seconds for entry in entries] == [None, None, None, 1780222507.0, 1780222507.0]


@pytest.mark.parametrize(
    ("message", "rank", "text"),
    [
        ("[2026-05-31 10:15:07] x", None, "x"),
        ("[2026-05-31 10:15:07 TP0] x", "TP0", "x"),
        ("[2026-05-31 10:15:07 DP1 TP3] x", "DP1 TP3", "x"),
        ("[2026-05-31 10:15:07 TP3 PP1] x", "TP3 PP1", "x"),
        ("[2026-05-31 10:15:07 DP0 TP1 EP1 PP0] x", "DP0 TP1 EP1 PP0", "x"),
        ("[2026-05-31 10:15:07 DP0 PP1 ATTN_CP0 MOE_DP1 TP15 EP3] x", "DP0 PP1 ATTN_CP0 MOE_DP1 TP15 EP3", "x"),
        ("[15:58:39 TP0] x", "TP0", "x"),
        ("[TS TP7] x", "TP7", "x"),
        ("[TP0] x", "TP0", "x"),
        ("(worker pid=7) [2026-05-31 10:15:07 TP2] x", "TP2", "x"),
        ("x [TP0] y", None, "x [TP0] y"),
        ("[rank3]:[E1029] y", None, "[rank3]:[E1029] y"),
        ("[2026-05-31 10:15:07 XX1] y", None, "[2026-05-31 10:15:07 XX1] y"),
    ],
)
def test_heads_of_all_versions(message, rank, text):
    assert _journal_lines.split_head(message)[1:] == (rank, text)


def test_the_kind_of_log_is_detected():
    assert _journal.decode(GOOD)[1] == "json"
    assert _journal.decode(GOOD.encode())[1] == "json"
    assert _journal.decode('[2026-05-31 10:15:07] {"a": 1}\n')[1] == "text"
    assert _journal.decode("")[1] == "text"


def test_twenty_thousand_lines_are_read_and_judged_in_well_under_a_second(capsys):
    wanted = {*_journal_ask.FIELDS, "__CURSOR", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP"}
    steady = "[2026-11-29 17:08:42 TP{0}] Decode batch, #running-req: 1, #token: {1}, token usage: 0.00, #queue-req: 0"
    death = "[2026-11-29 17:09:12 TP1] Scheduler hit an exception: Traceback (most recent call last):"
    lines = [{name: value for name, value in json.loads(line).items() if name in wanted} for line in GOOD.splitlines()]
    lines += [dict(lines[-1], MESSAGE=steady.format(number % 8, number)) for number in range(20000 - len(lines) - 2)]
    lines += [dict(lines[-1], MESSAGE=death), dict(lines[-1], MESSAGE="torch.OutOfMemoryError: CUDA out of memory.")]
    text = "\n".join(json.dumps(line) for line in lines)
    begin = time.process_time()
    entries = _journal.decode_json_lines(text)
    decoded = time.process_time()
    failure = _failures.classify(entries)
    seconds = time.process_time() - begin
    with capsys.disabled():
        print(
            "\n{0} journal lines: decoded in {1:.2f} s, read and classified in {2:.2f} s".format(
                len(entries), decoded - begin, seconds - (decoded - begin)
            )
        )
    assert failure.kind == "oom_decode"
    assert seconds < 1.0
