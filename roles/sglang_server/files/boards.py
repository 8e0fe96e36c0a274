# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait, before an SGLang server starts, until the boards of the host are there and nothing of an earlier start is left.

    python -I boards.py --instance NAME --boards N --seconds S --unit UNIT [--unit UNIT ...]

The unit runs this as ExecStartPre=, as the service user: after a boot, when the driver still brings boards up, and
before an automatic restart, when processes of the dead server may still hold memory. Whatever is left of this instance
when the time is over gets SIGKILL. Processes of others are never touched. Exit status 0: start; 1: one sentence says
why not. Standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time

MARK = "GPUFLEET_SGLANG_INSTANCE"
INVOCATION = "INVOCATION_ID"

REPORT_SECONDS = 10.0  # between two lines about the same wait
LOOK_SECONDS = 0.5
END_SECONDS = 10.0  # what was killed may take so long to end, and its memory so long to come back
TOOL_SECONDS = 20.0  # nvidia-smi: 1 to 3 s where no persistence daemon holds the driver, forever where a board hangs

# The kernel's first pid namespace (PROC_PID_INIT_INO): anywhere else the pids that the driver tells are not ours.
HOST_PID_NAMESPACE = "pid:[4026531836]"

BOARDS = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
APPS = ("nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader")


@dataclasses.dataclass(frozen=True)
class Process:
    """One process as /proc shows it; marks are None where its environment cannot be read."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    cgroup: str = ""
    instance: str | None = None
    invocation: str | None = None


@dataclasses.dataclass(frozen=True)
class Sight:
    """One look at everything that is waited for."""

    missing: str = ""  # what nvidia-smi lacks, in words
    left_over: tuple = ()  # Process
    taken: tuple = ()  # (pid, board) of compute applications that are dead or left over

    @property
    def is_free(self):
        return not (self.missing or self.left_over or self.taken)


# -- processes ---------------------------------------------------------------------------------------------------------


def _read(path):
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _process(proc_root, pid):
    """Read one process, or None when it has ended meanwhile."""
    folder = os.path.join(proc_root, str(pid))
    # The name in parentheses may hold blanks and parentheses: "4711 (sglang::sched) S 1 4711 ..."
    head, _paren, tail = _read(os.path.join(folder, "stat")).rpartition(")")
    fields = tail.split()
    if len(fields) < 3:
        return None
    environ = dict(pair.partition("=")[::2] for pair in _read(os.path.join(folder, "environ")).split("\0") if pair)
    return Process(
        pid=pid,
        name=head.partition("(")[2],
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        cgroup=_read(os.path.join(folder, "cgroup")),
        instance=environ.get(MARK),
        invocation=environ.get(INVOCATION),
    )


def read_processes(proc_root="/proc"):
    """Return all living processes by pid. A zombie holds nothing and cannot be killed: it is left out."""
    found = {}
    for entry in os.listdir(proc_root):
        process = _process(proc_root, int(entry)) if entry.isdigit() else None
        if process is not None and process.state not in ("Z", "X"):
            found[process.pid] = process
    return found


def own_pids(processes, pid):
    """Return the process itself, all above it and all below it."""
    above, below = {pid}, {pid}
    current = processes.get(pid)
    while current is not None and current.parent and current.parent not in above:
        above.add(current.parent)
        current = processes.get(current.parent)
    grew = True
    while grew:
        children = {process.pid for process in processes.values() if process.parent in below} - below
        below |= children
        grew = bool(children)
    return above | below


def _is_in(cgroup, units):
    """Whether a line of /proc/PID/cgroup ("0::/system.slice/sglang-main.service") is of one of the units, or below."""
    return any(unit in line.rpartition(":")[2].split("/") for line in cgroup.splitlines() for unit in units)


def left_overs(processes, pid, instance, units, invocation):
    """Return what an earlier start of this instance has left: by its mark, or because it is in a control group of ours.

    pid: this process; what belongs to its own invocation is none.
    """
    own = own_pids(processes, pid)
    return tuple(
        process
        for process in processes.values()
        if process.pid not in own
        and not (invocation and process.invocation == invocation)
        and (process.instance == instance or _is_in(process.cgroup, units))
    )


def with_groups(processes, victims, pid, instance):
    """Return the victims with the other members of their process groups, but nothing that another instance marked."""
    own = own_pids(processes, pid)
    groups = {victim.group for victim in victims if victim.group > 1}
    mates = [
        process
        for process in processes.values()
        if process.group in groups and process.pid not in own and process.instance in (None, instance)
    ]
    return sorted({process.pid: process for process in [*victims, *mates]}.values(), key=lambda process: process.pid)


# -- boards ------------------------------------------------------------------------------------------------------------


def run_tool(command, seconds=TOOL_SECONDS):
    """Return (output, None), or ("", why there is none). A tool that hangs in the driver is left behind."""
    try:
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        return "", "nvidia-smi cannot be run ({0})".format(error.strerror or error)
    try:
        output, _none = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return "", "nvidia-smi does not answer within {0:.0f} s".format(seconds)
    if child.returncode != 0:
        lines = output.strip().splitlines()
        return "", "nvidia-smi says: {0}".format(lines[-1].strip() if lines else "exit status %d" % child.returncode)
    return output, None


def _rows(text):
    return [[field.strip() for field in line.split(",")] for line in text.splitlines() if line.strip()]


def parse_boards(text):
    """Return {UUID: index} of the boards. MIG lines, notes and fields that say N/A are no boards."""
    return {row[1]: row[0] for row in _rows(text) if len(row) == 2 and row[0].isdigit() and row[1].startswith("GPU-")}


def parse_apps(text):
    """Return [(pid, UUID)] of the compute applications. A pid that is hidden ("[N/A]") tells nothing."""
    return [(int(row[0]), row[1]) for row in _rows(text) if len(row) == 2 and row[0].isdigit() and int(row[0]) > 0]


def is_alive(pid):
    """Whether a process is there, also when /proc hides it: then a signal is refused."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


# -- the wait ----------------------------------------------------------------------------------------------------------


class Wait:
    """Looks, waits, kills; everything that it touches can be given another one by a test."""

    def __init__(self, options, tool=run_tool, proc_root="/proc", alive=is_alive, say=print, clock=time.monotonic):
        """options: instance, boards, seconds, unit (a list)."""
        self.options = options
        self.tool = tool
        self.proc_root = proc_root
        self.alive = alive
        self.say = say
        self.clock = clock
        self.sleep = time.sleep
        self.kill = os.kill
        self.pid = os.getpid()
        self.invocation = os.environ.get(INVOCATION)

    def _sees_all_pids(self):
        try:
            return os.readlink(os.path.join(self.proc_root, "self", "ns", "pid")) == HOST_PID_NAMESPACE
        except OSError:
            return False

    def look(self):
        """Return the Sight of now."""
        processes = read_processes(self.proc_root)
        left = left_overs(processes, self.pid, self.options.instance, self.options.unit, self.invocation)
        if not self.options.boards:
            return Sight(left_over=left)
        text, why = self.tool(BOARDS)
        boards = parse_boards(text)
        if len(boards) < self.options.boards:
            return Sight(missing=why or "nvidia-smi lists {0}".format(len(boards)), left_over=left)
        # Who cannot be asked holds no start up: the list of boards was just answered.
        text, _why = self.tool(APPS)
        left_pids = {process.pid for process in left}
        judges = self._sees_all_pids()
        taken = [
            (pid, boards.get(uuid, uuid))
            for pid, uuid in parse_apps(text)
            if pid in left_pids or (judges and (not self.alive(pid) or self._is_zombie(pid)))
        ]
        return Sight(left_over=left, taken=tuple(taken))

    def _is_zombie(self, pid):
        process = _process(self.proc_root, pid)
        return process is not None and process.state == "Z"

    def words(self, sight):
        """Say in words what is waited for."""
        parts = []
        if sight.missing:
            parts.append("{0} boards ({1})".format(self.options.boards, sight.missing))
        if sight.left_over:
            named = ", ".join("{0.pid} ({0.name})".format(process) for process in sight.left_over[:8])
            more = ", and {0} more".format(len(sight.left_over) - 8) if len(sight.left_over) > 8 else ""
            parts.append("left-over processes of {0} to end: {1}{2}".format(self.options.instance, named, more))
        dead = sorted({item for item in sight.taken if not self._is_left(sight, item[0])})
        if dead:
            parts.append("memory of " + ", ".join("dead process {0} on board {1}".format(*item) for item in dead))
        return "; ".join(parts)

    @staticmethod
    def _is_left(sight, pid):
        return any(process.pid == pid for process in sight.left_over)

    def wait(self, seconds):
        """Look until all is free or the time is over. Returns the last Sight."""
        began = self.clock()
        said = None
        while True:
            sight = self.look()
            passed = self.clock() - began
            if sight.is_free or passed >= seconds:
                return sight
            if said is None or passed - said >= REPORT_SECONDS:
                said = passed
                self.say("boards: {0:.0f} of {1:.0f} s, waiting for {2}".format(passed, seconds, self.words(sight)))
            self.sleep(min(LOOK_SECONDS, max(0.0, seconds - passed)))

    def kill_left_overs(self):
        """Kill what is left and wait for its end. New ones that were just forked are met by the next round."""
        named = set()
        until = self.clock() + END_SECONDS
        while True:
            processes = read_processes(self.proc_root)
            left = left_overs(processes, self.pid, self.options.instance, self.options.unit, self.invocation)
            if not left or self.clock() >= until:
                return
            for process in with_groups(processes, left, self.pid, self.options.instance):
                self._kill_one(process, named)
            self.sleep(LOOK_SECONDS)

    def _kill_one(self, process, named):
        try:
            self.kill(process.pid, signal.SIGKILL)
            result = "killed left-over process {0.pid} ({0.name})".format(process)
        except ProcessLookupError:
            return
        except OSError as error:
            result = "cannot kill left-over process {0.pid} ({0.name}): {1}".format(process, error.strerror)
        if process.pid not in named:
            named.add(process.pid)
            self.say("boards: " + result)

    def run(self):
        """Return the exit status."""
        sight = self.wait(self.options.seconds)
        if sight.left_over:
            self.kill_left_overs()
            sight = self.wait(END_SECONDS)
        if sight.is_free:
            return 0
        self.say(self.refusal(sight))
        return 1

    def refusal(self, sight):
        """Return the one sentence for what is still not free."""
        if sight.missing:
            return (
                "Expected {0} boards within {1:.0f} s, found less: {2}; look at `nvidia-smi` and `journalctl -k`, or "
                "correct sglang_server_boards_wait_seconds.".format(
                    self.options.boards, self.options.seconds, sight.missing
                )
            )
        if sight.left_over:
            process = sight.left_over[0]
            boards = sorted(board for pid, board in sight.taken if pid == process.pid)
            holds = ", which holds board {0},".format(", ".join(boards)) if boards else ""
            return (
                "Expected no process of an earlier start of {0}, found {1} ({2}, state {3}){4} after SIGKILL; end it "
                "as root, or reboot the host when it cannot end.".format(
                    self.options.instance, process.pid, process.name, process.state, holds
                )
            )
        pid, board = sight.taken[0]
        return (
            "Expected board {0} to be free, found memory of process {1}, which is dead; see what holds it with "
            "`fuser -v /dev/nvidia*`, else reset the board (`nvidia-smi --gpu-reset -i {0}`) or reboot the "
            "host.".format(board, pid)
        )


def name(text):
    """Return the name of an instance; its mark is compared as it is."""
    if not re.match(r"[A-Za-z0-9_.-]+\Z", text):
        raise argparse.ArgumentTypeError("a name has letters, digits, '_', '.' and '-'")
    return text


def parse_options(words):
    parser = argparse.ArgumentParser(description="Wait until the boards are there and free.")
    parser.add_argument("--instance", required=True, type=name)
    parser.add_argument("--boards", required=True, type=int, help="how many nvidia-smi must list; 0: it is not asked")
    parser.add_argument("--seconds", required=True, type=float)
    parser.add_argument("--unit", required=True, action="append", help="whose control group is ours")
    return parser.parse_args(words)


def main(words):
    # A stop that is asked for during the wait is no failure of the unit: systemd takes only exit status 0 for one.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # A line is in the journal when it is said.
    sys.stdout.reconfigure(line_buffering=True)
    return Wait(parse_options(words)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
