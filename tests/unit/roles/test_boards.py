# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""boards.py, the wait before a start, against a /proc of files and an nvidia-smi of texts."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest
import tree

SCRIPT = tree.ROOT / "roles" / "sglang_server" / "files" / "boards.py"
_SPEC = importlib.util.spec_from_file_location("boards", SCRIPT)
boards = importlib.util.module_from_spec(_SPEC)
sys.modules["boards"] = boards  # dataclasses look their module up
_SPEC.loader.exec_module(boards)

UNIT = "sglang-main.service"
ME = 900
# The tests of several cores run side by side, and the script kills what another run starts under the same name.
INSTANCE = "t-boards-%d" % os.getpid()

TWO_BOARDS = "0, GPU-aaaa\n1, GPU-bbbb\n"
NO_APPS = ""


class Host:
    """A /proc, an nvidia-smi and a clock that only sleeping moves."""

    def __init__(self, root):
        self.root = root
        self.now = 0.0
        self.lines = []
        self.killed = []
        self.immortal = set()
        self.dead_pids = set()
        self.boards, self.apps = TWO_BOARDS, NO_APPS
        self.tool_calls = 0
        self.happens = []  # (second, what is done then)
        (root / "self" / "ns").mkdir(parents=True)
        self.pid_namespace("pid:[4026531836]")
        self.process(1, "systemd", 0, 1)
        self.process(ME, "python", 1, ME, unit=UNIT, instance="main", invocation="now")

    def pid_namespace(self, name):
        link = self.root / "self" / "ns" / "pid"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(self, pid, comm, parent, group, unit="", instance=None, invocation=None, state="S"):
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text("%d (%s) %s %d %d %d 0\n" % (pid, comm, state, parent, group, group))
        (folder / "cgroup").write_text("0::/%s\n" % ("system.slice/" + unit if unit else "user.slice"))
        environ = {"PATH": "/usr/bin", "GPUFLEET_SGLANG_INSTANCE": instance, "INVOCATION_ID": invocation}
        (folder / "environ").write_text("".join("%s=%s\0" % pair for pair in environ.items() if pair[1]))

    def end(self, pid):
        for path in (self.root / str(pid)).iterdir():
            path.unlink()
        (self.root / str(pid)).rmdir()

    def tool(self, command, seconds=None):
        self.tool_calls += 1
        text = self.boards if "--query-gpu=index,uuid" in command else self.apps
        return ("", text.args[0]) if isinstance(text, Exception) else (text, None)

    def sleep(self, seconds):
        self.now += seconds
        for item in [item for item in self.happens if item[0] <= self.now]:
            self.happens.remove(item)
            item[1]()

    def kill(self, pid, number):
        assert number == signal.SIGKILL
        if pid in self.immortal:
            raise PermissionError(1, "Operation not permitted")
        self.killed.append(pid)
        self.end(pid)

    def wait(self, count=2, seconds=30.0, instance="main", units=(UNIT,)):
        options = argparse.Namespace(boards=count, seconds=seconds, instance=instance, unit=list(units))
        wait = boards.Wait(
            options,
            tool=self.tool,
            proc_root=str(self.root),
            alive=lambda pid: pid not in self.dead_pids,
            say=self.lines.append,
            clock=lambda: self.now,
        )
        wait.sleep, wait.kill, wait.pid, wait.invocation = self.sleep, self.kill, ME, "now"
        return wait


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_boards_that_are_free_are_not_waited_for(host):
    assert host.wait().run() == 0
    assert (host.now, host.lines, host.killed) == (0.0, [], [])


def test_a_host_without_boards_never_asks_the_tool(host):
    host.boards = AssertionError("asked")
    assert host.wait(count=0).run() == 0
    assert host.tool_calls == 0


def test_boards_that_come_late_are_waited_for(host):
    host.boards = "0, GPU-aaaa\n"
    host.happens.append((4.0, lambda: setattr(host, "boards", TWO_BOARDS)))
    assert host.wait().run() == 0
    assert host.now == 4.0
    assert host.lines == ["boards: 0 of 30 s, waiting for 2 boards (nvidia-smi lists 1)"]


def test_a_line_is_said_at_once_and_then_every_ten_seconds(host):
    host.boards = "0, GPU-aaaa\n"
    assert host.wait(seconds=25.0).run() == 1
    assert [line.split(" s,")[0] for line in host.lines[:-1]] == [
        "boards: 0 of 25",
        "boards: 10 of 25",
        "boards: 20 of 25",
    ]
    assert host.lines[-1] == (
        "Expected 2 boards within 25 s, found less: nvidia-smi lists 1; look at `nvidia-smi` and `journalctl -k`, or "
        "correct sglang_server_boards_wait_seconds."
    )
    assert host.now == 25.0


def test_a_tool_that_is_missing_is_named(host):
    host.boards = OSError("nvidia-smi cannot be run (No such file or directory)")
    assert host.wait(seconds=5.0).run() == 1
    assert "nvidia-smi cannot be run (No such file or directory)" in host.lines[-1]


def test_a_left_over_that_ends_in_time_is_not_killed(host):
    host.process(500, "sglang::sched", 1, 500, instance="main", invocation="before")
    host.happens.append((3.0, lambda: host.end(500)))
    assert host.wait().run() == 0
    assert host.killed == []
    assert host.lines == ["boards: 0 of 30 s, waiting for left-over processes of main to end: 500 (sglang::sched)"]


def test_a_left_over_is_killed_with_its_group_when_the_time_is_over(host):
    host.process(500, "sglang::sched", 1, 500, instance="main", invocation="before")
    host.process(501, "sglang::detok (x)", 500, 500)  # its environment cannot be read
    host.process(502, "python", 1, 500, instance="other")  # another instance, in the same group all the same
    host.process(503, "python", 1, 503, instance="other")
    host.apps = "500, GPU-bbbb\n503, GPU-aaaa\n"
    host.happens.append((30.0, lambda: setattr(host, "apps", "503, GPU-aaaa\n")))
    assert host.wait().run() == 0
    assert host.killed == [500, 501]
    assert host.lines[-2:] == [
        "boards: killed left-over process 500 (sglang::sched)",
        "boards: killed left-over process 501 (sglang::detok (x))",
    ]
    assert 30.0 <= host.now <= 31.0


@pytest.mark.parametrize(
    ("changes", "is_left"),
    [
        ({"instance": "main", "invocation": "before"}, True),
        ({"instance": "main"}, True),
        ({"unit": UNIT}, True),
        ({"unit": UNIT + "/.control"}, True),
        ({"unit": "hand.service"}, True),
        ({"unit": "hand.service.d"}, False),
        ({"instance": "main", "invocation": "now"}, False),  # another command of this very start
        ({"instance": "main", "parent": ME}, False),  # nvidia-smi
        ({"instance": "main", "state": "Z"}, False),
        ({"instance": "main2"}, False),
        ({"unit": "sglang-main2.service"}, False),
        ({}, False),
    ],
)
def test_what_is_left_over(host, changes, is_left):
    host.process(500, "x", changes.pop("parent", 1), 500, **changes)
    left = host.wait(units=[UNIT, "hand.service"]).look().left_over
    assert [process.pid for process in left] == ([500] if is_left else [])


def test_the_processes_above_are_not_left_over(host):
    host.process(800, "sh", 1, 800, instance="main", invocation="before")
    host.process(ME, "python", 800, ME)
    assert host.wait().look().left_over == ()


def test_a_left_over_that_does_not_end_is_named_with_its_board(host):
    host.process(500, "sglang::sched", 1, 500, instance="main", invocation="before", state="D")
    host.apps = "500, GPU-bbbb\n"
    host.immortal.add(500)
    assert host.wait().run() == 1
    assert host.lines[-1] == (
        "Expected no process of an earlier start of main, found 500 (sglang::sched, state D), which holds board 1, "
        "after SIGKILL; end it as root, or reboot the host when it cannot end."
    )
    assert "boards: cannot kill left-over process 500 (sglang::sched): Operation not permitted" in host.lines
    assert host.now <= 30.0 + 2 * boards.END_SECONDS + 2


def test_memory_of_a_dead_process_is_waited_for_and_named(host):
    host.apps, host.dead_pids = "4711, GPU-bbbb\n", {4711}
    assert host.wait(seconds=5.0).run() == 1
    assert host.lines[0] == "boards: 0 of 5 s, waiting for memory of dead process 4711 on board 1"
    assert host.lines[-1] == (
        "Expected board 1 to be free, found memory of process 4711, which is dead; see what holds it with `fuser -v "
        "/dev/nvidia*`, else reset the board (`nvidia-smi --gpu-reset -i 1`) or reboot the host."
    )
    host.apps = NO_APPS
    assert host.wait(seconds=5.0).run() == 0


def test_a_zombie_on_a_board_is_dead(host):
    host.process(500, "python", 1, 500, state="Z")
    host.apps = "500, GPU-aaaa\n"
    assert host.wait().look().taken == ((500, "0"),)


def test_boards_that_others_use_are_no_matter_of_ours(host):
    host.process(600, "python", 1, 600)
    host.apps = "600, GPU-aaaa\n"
    assert host.wait().run() == 0


def test_where_pids_are_hidden_nobody_is_called_dead(host):
    host.pid_namespace("pid:[4026532000]")
    host.apps, host.dead_pids = "4711, GPU-bbbb\n", {4711}
    assert host.wait().run() == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (TWO_BOARDS, 2),
        ("0, GPU-aaaa\n  MIG 1g.10gb Device 0, MIG-cccc\n", 1),
        ("0, GPU-aaaa\n[N/A], [N/A]\n", 1),
        ("No devices were found\n", 0),
        ("", 0),
    ],
)
def test_what_counts_as_a_board(text, count):
    assert len(boards.parse_boards(text)) == count


def test_what_counts_as_an_application():
    text = "4711, GPU-aaaa\n[N/A], GPU-aaaa\n4712, [N/A]\n[Insufficient Permissions], GPU-a\n0, GPU-a\nno\n"
    assert boards.parse_apps(text) == [(4711, "GPU-aaaa"), (4712, "[N/A]")]


def test_a_tool_that_hangs_is_left_behind():
    began = time.monotonic()
    assert boards.run_tool([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.5) == (
        "",
        "nvidia-smi does not answer within 0 s",
    )
    assert time.monotonic() - began < 5


def test_a_tool_that_fails_is_quoted():
    words = [sys.executable, "-c", "print('Failed to initialize NVML: Driver/library version mismatch'); exit(18)"]
    assert boards.run_tool(words) == ("", "nvidia-smi says: Failed to initialize NVML: Driver/library version mismatch")
    assert boards.run_tool(["/nowhere/nvidia-smi"]) == ("", "nvidia-smi cannot be run (No such file or directory)")


def test_a_living_and_a_dead_pid():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert boards.is_alive(os.getpid())
    assert boards.is_alive(1)
    assert not boards.is_alive(child.pid)


def _start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-I", str(SCRIPT), "--instance", INSTANCE, "--unit", INSTANCE + ".service", *words],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_real_left_over_is_killed():
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={"GPUFLEET_SGLANG_INSTANCE": INSTANCE},
        start_new_session=True,
    )
    try:
        with _start("--boards", "0", "--seconds", "1") as script:
            deadline = time.monotonic() + 20
            while sleeper.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)  # reaps the sleeper, which init does on a host
            output = script.communicate(timeout=20)[0]
        assert sleeper.returncode == -signal.SIGKILL
        assert script.returncode == 0
        assert "killed left-over process %d" % sleeper.pid in output
    finally:
        sleeper.kill()


def test_a_stop_during_the_wait_is_no_failure(tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho No devices were found; exit 6\n")
    tool.chmod(0o755)
    with _start("--boards", "1", "--seconds", "60", env={"PATH": "%s:/usr/bin:/bin" % tmp_path}) as script:
        assert "waiting for 1 boards (nvidia-smi says: No devices were found)" in script.stdout.readline()
        script.terminate()
        assert script.wait(timeout=20) == 0
