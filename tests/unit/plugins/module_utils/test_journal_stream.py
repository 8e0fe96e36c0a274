# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import sys

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _journal_stream


def python(code):
    return [sys.executable, "-c", code]


def test_lines_come_with_status_and_errors_behind_them():
    stream = _journal_stream.Stream(python("import sys; print('a\\n\\nb'); sys.stderr.write('why'); sys.exit(3)"))
    with stream as lines:
        assert list(lines) == [b"a\n", b"\n", b"b\n"]
    assert (stream.rc, stream.err) == (3, "why")


def test_the_program_speaks_plainly():
    told = "import os; print(os.environ['LC_ALL'], os.environ['SYSTEMD_COLORS'])"
    with _journal_stream.Stream(python(told)) as lines:
        assert list(lines) == [b"C.UTF-8 0\n"]


def test_a_program_that_would_go_on_for_ever_is_ended_when_nobody_reads_on():
    endless = "import itertools, sys\nfor n in itertools.count(): sys.stderr.write('e' * 100); print(n, flush=True)"
    with _journal_stream.Stream(python(endless)) as stream:
        pid = stream._process.pid
        for line in stream:
            if line == b"1000\n":
                break
    assert stream.rc == 0
    assert len(stream.err) == 4096
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_error_while_reading_ends_the_program_too():
    stream = _journal_stream.Stream(python("import time; print(1, flush=True); time.sleep(600)"))

    def read():
        with stream as lines:
            for line in lines:
                int(line + b"x")

    with pytest.raises(ValueError, match="invalid literal"):
        read()
    assert stream._process.poll() is not None


def test_a_record_without_an_end_is_left_out_and_those_behind_it_are_not(monkeypatch):
    monkeypatch.setattr(_journal_stream, "MAX_LINE_BYTES", 1000)
    with _journal_stream.Stream(python("print('a'); print('x' * 3500); print('y' * 998); print('z' * 1000)")) as lines:
        assert list(lines) == [b"a\n", b"y" * 998 + b"\n"]


def test_a_program_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        _journal_stream.Stream(["/nonexistent/journalctl"])


@pytest.mark.parametrize("out", ["a\nb", b"a\nb"])
def test_what_only_runs_whole_gives_lines_too(out):
    with _journal_stream.lines_of(lambda argv: (1, out, "why " + argv[0]), ["x"]) as stream:
        assert list(stream) == out.split("\n" if isinstance(out, str) else b"\n")
    assert (stream.rc, stream.err) == (1, "why x")


def test_a_runner_does_both():
    runner = _journal_stream.Runner(lambda argv: (0, "whole", ""))
    assert runner(["x"]) == (0, "whole", "")
    with _journal_stream.lines_of(runner, python("print(1)")) as lines:
        assert list(lines) == [b"1\n"]
