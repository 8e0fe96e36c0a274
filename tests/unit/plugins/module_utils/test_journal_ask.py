# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _journal_ask

BOOT = "a300f27e8868490a95ba2913b61c5265"


def test_the_command_selects_by_invocation_and_never_by_time():
    command = _journal_ask.journal_command("u.service", "abc", cursor="s=1", lines=7, grep="x")
    assert command[0] == "journalctl"
    assert command[-5:] == [
        "_SYSTEMD_INVOCATION_ID=abc", "+", "INVOCATION_ID=abc", "+", "OBJECT_SYSTEMD_INVOCATION_ID=abc",
    ]
    assert {"--cursor=s=1", "--lines=7", "--grep=x", "--output=json", "--all", "--quiet"} <= set(command)
    assert _journal_ask.journal_command("u.service", None)[-1] == "--unit=u.service"
    assert "--lines=1" in _journal_ask.last_entry_command("u.service")
    kernel = _journal_ask.kernel_command("s=1", BOOT)
    assert kernel[-3:] == ["--cursor=s=1", "_TRANSPORT=kernel", "_BOOT_ID=" + BOOT]
    for words in (command, kernel):
        assert not [word for word in words if word.startswith(("--since", "--until", "--after-cursor", "--dmesg"))]


def test_only_what_is_read_is_asked_for():
    (fields,) = [word for word in _journal_ask.last_entry_command("u") if word.startswith("--output-fields=")]
    assert {"MESSAGE", "_LINE_BREAK", "_STREAM_ID", "UNIT"} <= set(fields.partition("=")[2].split(","))
    assert "_CMDLINE" not in fields


@pytest.mark.parametrize(
    ("rc", "stdout", "stderr", "kind", "retry"),
    [
        (1, "", "No journal files were found.\n", "no_journal", False),
        (1, "", "No journal files were opened due to insufficient permissions.\n", "no_permission", False),
        (0, "-- No entries --\n", "", "no_journal", False),
        (1, "", "System has not been booted with systemd as init system (PID 1). Can't operate.", "no_systemd", False),
        (1, "", "Failed to connect to bus: No such file or directory", "no_systemd", False),
        (1, "", "Failed to connect to system scope bus via local transport: Host is down", "no_systemd", False),
        (127, "", "", "missing_program", False),
        (1, "", "Failed to iterate through journal: Bad message", "broken", True),
        (1, "", "Failed to seek to cursor: Invalid argument\n", "broken", True),
        (1, "", "Failed to open journal: Permission denied", "no_permission", False),
        (1, "", "something new", "broken", True),
        (1, "", "", "broken", True),
    ],
)
def test_the_reader_says_why_it_cannot_read(rc, stdout, stderr, kind, retry):
    problem = _journal_ask.reader_problem(rc, stdout, stderr)
    assert (problem.kind, problem.retry) == (kind, retry)
    assert problem.sentence
    assert problem.as_dict()["kind"] == kind
    if kind in ("no_systemd", "missing_program"):
        assert "needs a host running systemd" in problem.sentence


def test_a_good_answer_is_no_problem():
    assert _journal_ask.reader_problem(0, '{"MESSAGE":"x"}', "") is None


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((1, "", "No journal files were opened due to insufficient permissions.\n"), "no_permission", "become"),
        ((1, "", "No journal files were found.\n"), "no_journal", "Storage=persistent"),
        ((0, "", ""), "no_journal", "Storage=persistent"),
        ((0, '{"MESSAGE":"x"}\n', ""), "no_entries", "nothing of this start of u.service"),
        ((127, "", ""), "missing_program", "journalctl"),
    ],
)
def test_an_empty_answer_has_a_reason(answer, kind, words):
    asked = []

    def run(argv):
        asked.append(argv)
        return answer

    problem = _journal_ask.why_empty(run, "u.service")
    assert problem.kind == kind
    assert words in problem.sentence
    # A user who may read nothing but an own journal would get an empty answer without an error.
    assert "--system" in asked[0]
