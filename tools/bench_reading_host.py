# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bench_reading.py runs on a test host: a unit that talks, and what reading it costs. Results are printed as JSON.

    bench_reading_host.py talk START LINES PER_SECOND SECONDS   the lines of a start-up, then decode lines, then silence
    bench_reading_host.py find UNIT                  the start-up record of a unit that has said much since
    bench_reading_host.py follow UNIT LINES          memory while so many lines come
    bench_reading_host.py disturb UNIT LINES         follow it while the journal is rotated, cut and journald restarted
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time

LINE = (
    "[2026-11-29 17:08:42 TP{0}] Decode batch, #running-req: 1, #token: {1}, token usage: 0.00, cuda graph: True, "
    "gen throughput (token/s): 33.12, #queue-req: 0\n"
)
ROOM = "ansible_collections.gpufleet.sglang.plugins.module_utils."
TIMES = 5
LOOK_SECONDS = 0.5
BEGIN_SECONDS = 10
PATIENCE_SECONDS = 900


def talk(start, lines, per_second, seconds):
    """Print the start-up, and when whoever follows has begun, lines in portions of a tenth of a second."""
    with open(start, encoding="utf-8") as stream:
        sys.stdout.write(stream.read())
    sys.stdout.flush()
    time.sleep(BEGIN_SECONDS)
    portion, began = max(int(float(per_second) / 10), 1), time.monotonic()
    for first in range(0, int(lines), portion):
        last = min(first + portion, int(lines))
        sys.stdout.write("".join(LINE.format(number % 8, number) for number in range(first, last)))
        sys.stdout.flush()
        time.sleep(max(began + last / float(per_second) - time.monotonic(), 0))
    time.sleep(float(seconds))


def whole(argv):
    done = subprocess.run(argv, capture_output=True, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def room(name):
    return importlib.import_module(ROOM + name)


def follower_of(unit):
    follower = room("_follow").Follower(room("_journal_stream").Runner(whole), unit)
    follower.look_at_unit()
    return follower


def processor_seconds():
    """Of this process and of all that it has run."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def measured(function):
    """Medians of wall and processor seconds, and the last result."""
    rows, result = [], None
    for _time in range(TIMES):
        wall, processor = time.monotonic(), processor_seconds()
        result = function()
        rows.append((time.monotonic() - wall, processor_seconds() - processor))
    return [round(statistics.median(column), 3) for column in zip(*rows)], result


def find(unit):
    def by_hand():
        return whole(["sh", "-c", "journalctl -u " + unit + " -o cat | grep max_total_num_tokens"])[1]

    def by_follower():
        follower = follower_of(unit)
        follower.read()
        return room("_startup").read_startup(follower.entries).pool_tokens

    def by_info():
        entries, state = room("_explain").read_unit(room("_journal_stream").Runner(whole), unit)
        return room("_explain").explain(entries, unit=state)["startup"]["pool_tokens"]

    by_hand()
    seconds, printed = measured(by_hand)
    told = {"by_hand": seconds, "printed": printed.partition("max_total_num_tokens=")[2].partition(",")[0]}
    told["follower"], told["pool_tokens"] = measured(by_follower)
    told["startup_info"], told["info_pool_tokens"] = measured(by_info)
    return told


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def numbers(entries):
    return [int(entry.message.split("#token: ")[1].split(",")[0]) for entry in entries if "#token: " in entry.message]


def follow(unit, lines):
    """Resident memory when a tenth, half and all of the lines were read."""
    follower, marks, seen, told = follower_of(unit), [0.1, 0.5, 1.0], 0, {}
    end = time.monotonic() + PATIENCE_SECONDS
    processor = processor_seconds()
    while marks and time.monotonic() < end:
        follower.read()
        seen += len(follower.fresh)
        newest = max(numbers(follower.fresh[-1:]), default=0)
        while marks and newest >= marks[0] * int(lines) - 1:
            told[str(int(marks.pop(0) * int(lines)))] = round(resident_mib(), 1)
        time.sleep(0 if follower.behind else LOOK_SECONDS)
    return {
        "seen": seen, "resident_mib": told, "kept": len(follower.entries),
        "processor_seconds": round(processor_seconds() - processor, 1),
    }


DISTURBANCES = (
    ["journalctl", "--rotate"],
    ["systemctl", "restart", "systemd-journald"],
    ["journalctl", "--rotate"],
    ["journalctl", "--vacuum-files=1"],
    ["systemctl", "kill", "--signal=SIGUSR2", "systemd-journald"],
    ["systemctl", "restart", "systemd-journald"],
    ["journalctl", "--flush"],
)


def disturb(unit, lines):
    """Whether each line is read once, in order, whatever happens to the journal."""
    follower, read, step = follower_of(unit), [], 0
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and (not read or read[-1] < int(lines) - 1):
        follower.read()
        read += numbers(follower.fresh)
        if len(read) > (step + 1) * int(lines) / (len(DISTURBANCES) + 1) and step < len(DISTURBANCES):
            whole(DISTURBANCES[step])
            step += 1
        time.sleep(0.2)
    wanted = list(range(read[0] if read else 0, int(lines)))
    return {
        "disturbances": step, "read": len(read), "twice": len(read) - len(set(read)),
        "missing": len(set(wanted) - set(read)), "in_order": read == sorted(read), "beginnings": follower.beginnings,
    }


if __name__ == "__main__":
    sys.path.insert(0, os.environ.get("BENCH_LIBRARY", "/opt/bench/lib"))
    RESULT = {"talk": talk, "find": find, "follow": follow, "disturb": disturb}[sys.argv[1]](*sys.argv[2:])
    if RESULT is not None:
        print(json.dumps(RESULT))
