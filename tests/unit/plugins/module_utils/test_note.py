# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The notes of long work, and what pip's log says it is doing."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _note, _venv

GIB = 1024**3


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 10 * GIB, 5, "0.00 of 10.00 GiB"),
        (5 * GIB, 10 * GIB, 10, "5.00 of 10.00 GiB, 512 MiB/s, 10 s left"),
        (1 * GIB, 100 * GIB, 10, "1.00 of 100.00 GiB, 102 MiB/s, 16 min left"),
        (10 * GIB, 10 * GIB, 10, "10.00 of 10.00 GiB, 1024 MiB/s, 0 s left"),
    ],
)
def test_a_transfer_in_words(done, total, seconds, text):
    assert _note.transfer_text(done, total, seconds) == text


def test_a_note_is_written_at_most_once_a_second_and_removed_at_the_end(tmp_path):
    now = [0.0]
    note = _note.Note(str(tmp_path / "n"), clock=lambda: now[0])
    note.say("download", "a")
    now[0] = 0.5
    note.say("download", "b")
    assert _note.read_note((tmp_path / "n").read_text()) == ("download", "a")
    now[0] = 1.0
    note.say("install", "c")
    assert _note.read_note((tmp_path / "n").read_text()) == ("install", "c")
    note.end()
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_nothing_is_written(tmp_path):
    note = _note.Note(None)
    note.say("download", "a")
    note.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"phase": "x"}'])
def test_a_damaged_note_is_none(text):
    assert _note.read_note(text) is None


# Lines of a log that pip 23.0 wrote.
@pytest.mark.parametrize(
    ("log", "phase"),
    [
        ("2026-11-29T18:20:00,123 Collecting torch==2.14.1", ("download", "torch")),
        (
            "2026-11-29T18:20:00,123   Downloading torch-2.14.1-cp311-cp311-manylinux_2_28_x86_64.whl (899.8 MB)",
            ("download", "torch-2.14.1"),
        ),
        (
            "2026-11-29T18:20:00,123 Installing collected packages: a, b, c\n2026-11-29T18:21:00,1   creating /x",
            ("install", "3 packages"),
        ),
        ("2026-11-29T18:20:00,123 Building wheel for vllm (pyproject.toml): started", ("build", "vllm")),
        ("2026-11-29T18:20:00,123 Found link https://x/y", None),
    ],
)
def test_the_phase_is_read_from_pips_log(log, phase):
    assert _venv.pip_phase(log) == phase
