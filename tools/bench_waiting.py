# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon a start-up is told: server_ready with the played engine, beside a loop as it is written by hand.

    bench_waiting.py [--rounds 20] [--keep]

The clock is that of the host: from the time of the engine's line in the journal to the end of the module, with what the
connection costs beside it. About 13 minutes: the loop by hand waits twelve for a server that is dead.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import tree

# What a reader may expect: seconds (median, worst).
READY_SECONDS = (0.5, 1.5)
DEATH_SECONDS = (1.0, 5.0)
KINDS = ("oom_weights", "oom_graph_capture", "comm_init", "oom_prefill")
EPHEMERAL = tree.ROOT / ".build" / "molecule" / "startup"


def molecule(command):
    """Run a command of molecule on the scenario startup."""
    environment = {**os.environ, "MOLECULE_COMMAND": command}
    subprocess.run(["bash", "tools/molecule.sh", "startup"], cwd=tree.ROOT, env=environment, check=True)


def results(what, rounds):
    """Return what server_ready said in each round."""
    return [json.loads((EPHEMERAL / "bench" / f"startup-b.{what}-{one}.json").read_text()) for one in range(rounds)]


def seconds_after_ready(result):
    """Seconds from the ready line to the end, without the completion itself."""
    completion = next(row["seconds"] for row in result["timeline"] if row["phase"] == "completion")
    return result["seconds_after_ready_line"] - completion


def row(name, seconds, bounds):
    """Print median and worst beside their bounds; True when both are kept."""
    median, worst = statistics.median(seconds), max(seconds)
    kept = median <= bounds[0] and worst <= bounds[1]
    print(f"{'ok  ' if kept else 'MISS'} {name:<46} median {median:6.2f} s   worst {worst:6.2f} s   of {len(seconds)}")
    return kept


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="leave the test hosts running")
    options = parser.parse_args(arguments)
    environment = {
        **os.environ,
        "BENCH_ROUNDS": str(options.rounds),
        "MOLECULE_EPHEMERAL_DIRECTORY": str(EPHEMERAL),
        # As molecule itself runs its plays.
        "ANSIBLE_CONFIG": str(EPHEMERAL / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(tree.ROOT / ".build" / "collections" / "startup"),
    }
    try:
        molecule("converge")
        play = ["ansible-playbook", "-i", str(EPHEMERAL / "inventory"), "molecule/startup/bench.yml"]
        subprocess.run(play, cwd=tree.ROOT, env=environment, check=True, stdin=subprocess.DEVNULL)
        good, dead = results("ready", options.rounds), results("death", options.rounds)
        hand = json.loads((EPHEMERAL / "bench" / "hand.json").read_text())
    finally:
        if not options.keep:
            # This removes the results too.
            molecule("destroy")
    after_ready = [seconds_after_ready(one) for one in good]
    kept = row("ready line to the end, beside the completion", after_ready, READY_SECONDS)
    kept &= row("fatal line to its name", [one["seconds_after_fatal_line"] for one in dead], DEATH_SECONDS)
    wrong = [one["failure"] for number, one in enumerate(dead) if one["failure"]["kind"] != KINDS[number % len(KINDS)]]
    print(f"{'MISS' if wrong else 'ok  '} {len(dead) - len(wrong)} of {len(dead)} deaths with the right cause")
    for what, text in hand.items():
        words = dict(re.findall(r"(\w+)=(\S+)", text))
        print(
            f"     by hand, {what:<6} answered {words['answered']}, pool {words['pool']}, "
            f"{float(words['seconds_after_line']):.0f} s after the line"
        )
    return 0 if kept and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
