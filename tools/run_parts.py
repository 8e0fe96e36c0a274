# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the parts of ``make test`` and says what each one cost.

    .venv/bin/python tools/run_parts.py [--long] [--only NAME ...]

Light parts share the processors with the preparation of the test hosts. Parts that measure the real engine run alone,
one after the other, because on a CPU the engine's "free memory" is the machine's RAM, and so do those that bound
seconds. Whole outputs are in .build/log/PART.log.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / ".build" / "log"
TAIL_LINES = 60
HEARTBEAT_SECONDS = 60
WORKERS = 2

# Scenarios that start the real engine, or bound what they see in seconds: they run alone. And those that only
# `make test-long` runs.
ALONE_SCENARIOS = {"default", "soak_real", "startup"}
LONG_SCENARIOS = {"soak_real", "driver_dkms"}
# What a scenario does more of when there is time.
LONG_ENVIRONMENT = {"faults": {"FAULTS": "all"}, "driver_repo": {"DRIVER": "all"}}

# Each ansible-core that must pass, and the Python that it needs: tools/venv.sh makes an environment where one is found.
CORES = {"2.19": "Python 3.11", "2.21": "Python 3.12 or later"}


@dataclass
class Part:
    """One part: what it is called, what it runs, and when it may run."""

    name: str
    command: list[str]
    kind: str = "light"  # light | prepare | played (needs hosts, may share the machine) | alone
    environment: dict[str, str] = field(default_factory=dict)
    result: str = "not run"  # passed | failed | not run | skipped
    seconds: float = 0.0

    @property
    def log(self) -> Path:
        return LOG / f"{self.name}.log"


def virtual_environments() -> list[tuple[str, str]]:
    """Return (ansible-core version, folder) of each virtual environment, the main one first."""
    found = []
    for folder in [ROOT / ".venv", *sorted(ROOT.glob(".venv-core*"))]:
        if (folder / ".stamp").is_file():
            code = "import ansible.release as r; print('.'.join(r.__version__.split('.')[:2]))"
            version = subprocess.run(
                [str(folder / "bin" / "python"), "-c", code], check=True, stdout=subprocess.PIPE, text=True
            ).stdout.strip()
            found.append((version, str(folder)))
    return found


def all_parts(long: bool) -> list[Part]:
    """Return the parts in the order in which they should start."""
    environments = virtual_environments()
    parts = [Part("prepare", ["bash", "tools/prepare.sh", "--engine"], kind="prepare")]
    for core, folder in environments:
        extra = ["-m", "long or not long"] if long else ["-m", "not long"]
        parts.append(Part(f"unit-{core}", ["bash", "tools/unit.sh", *extra], environment={"GPUFLEET_VENV": folder}))
    for core, folder in environments:
        parts.append(Part(f"sanity-{core}", [f"{folder}/bin/python", "tools/sanity.py"]))
    for core in sorted(set(CORES) - {core for core, _folder in environments}):
        parts += [Part(f"{name}-{core}", [], kind="missing", result="skipped") for name in ("unit", "sanity")]
    parts.append(Part("lint", ["bash", "tools/lint.sh"]))
    for path in sorted(ROOT.glob("molecule/*/molecule.yml")):
        scenario = path.parent.name
        if scenario in LONG_SCENARIOS and not long:
            continue
        kind = "alone" if scenario in ALONE_SCENARIOS else "played"
        environment = LONG_ENVIRONMENT.get(scenario, {}) if long else {}
        command = ["bash", "tools/molecule.sh", scenario]
        parts.append(Part(f"molecule-{scenario}", command, kind=kind, environment=environment))
    if long:
        starts = ". tools/env.sh && exec python tools/engine_starts.py"
        parts.append(Part("engine-starts", ["bash", "-c", starts], kind="alone"))
        parts.append(Part("demo", ["bash", "tools/demo.sh"], kind="alone"))
    return parts


class Runner:
    """Runs parts and reports on one line when each begins and ends."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.began = time.monotonic()
        self.stopped = False

    def say(self, text: str) -> None:
        elapsed = int(time.monotonic() - self.began)
        with self.lock:
            print(f"[{elapsed // 60:2d}:{elapsed % 60:02d}] {text}", flush=True)

    def run(self, part: Part) -> Part:
        if self.stopped:
            return part
        began = time.monotonic()
        self.say(f"{part.name} ...")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **part.environment}
        with part.log.open("wb") as log:
            process = subprocess.Popen(
                part.command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.running[part.name] = process
            status = self.wait(part, process, began)
            self.running.pop(part.name, None)
        part.seconds = time.monotonic() - began
        part.result = "passed" if status == 0 else "failed"
        self.say(f"{part.name}: {part.result} after {part.seconds:.0f} s{summary_of(part)}")
        if status != 0:
            self.show_tail(part)
        return part

    def wait(self, part: Part, process: subprocess.Popen[bytes], began: float) -> int:
        """Wait for the process; show its last line now and then, so that long parts are seen to live."""
        while True:
            try:
                return process.wait(timeout=HEARTBEAT_SECONDS)
            except subprocess.TimeoutExpired:
                last = last_line(part.log)
                self.say(f"{part.name} runs since {time.monotonic() - began:.0f} s: {last[:120]}")

    def show_tail(self, part: Part) -> None:
        lines = part.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        with self.lock:
            print(f"--- the last lines of {part.log.relative_to(ROOT)}", *lines, "---", sep="\n", flush=True)

    def stop(self, *_signal: object) -> None:
        """End what runs, and start nothing more."""
        self.stopped = True
        for process in list(self.running.values()):
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def summary_of(part: Part) -> str:
    """Return the counts that pytest printed last in a part's log, if any."""
    found = re.findall(r"^\d+ (?:passed|failed)[^\n]* in [\d.]+s", part.log.read_text(errors="replace"), re.MULTILINE)
    return f" ({found[-1]})" if found else ""


def run_all(runner: Runner, parts: list[Part]) -> None:
    """Run the parts in their order of need."""
    prepared = threading.Event()
    preparation = [part for part in parts if part.kind == "prepare"]

    def prepare() -> None:
        for part in preparation:
            runner.run(part)
        prepared.set()

    def ready() -> bool:
        prepared.wait()
        return all(part.result == "passed" for part in preparation)

    def played(part: Part) -> None:
        if ready():
            runner.run(part)

    with ThreadPoolExecutor(1) as side, ThreadPoolExecutor(WORKERS) as pool:
        jobs = [side.submit(prepare)]
        jobs += [pool.submit(runner.run, part) for part in parts if part.kind == "light"]
        jobs += [pool.submit(played, part) for part in parts if part.kind == "played"]
        for job in jobs:
            job.result()
    for part in parts:
        if part.kind == "alone" and ready():
            runner.run(part)


def remove_hosts(parts: list[Part]) -> None:
    """Leave no test host running; images and caches stay for the next run."""
    if any(part.kind in ("played", "alone") and part.result != "not run" for part in parts):
        with (LOG / "hosts-down.log").open("wb") as log:
            command = ["bash", "molecule/shared/hosts/hosts.sh", "down", "--all"]
            subprocess.call(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def report(parts: list[Part], seconds: float) -> int:
    """Print the table and the closing line; return the exit status."""
    width = max(len(part.name) for part in parts)
    print()
    print(f"{'part':<{width}}  {'result':<8} minutes")
    for part in parts:
        print(f"{part.name:<{width}}  {part.result:<8} {part.seconds / 60:7.1f}")
    print(f"{'all, side by side':<{width}}  {'':<8} {seconds / 60:7.1f}")
    failed = [part.name for part in parts if part.result in ("failed", "not run")]
    skipped = [part.name for part in parts if part.result == "skipped"]
    print()
    for core in sorted({name.partition("-")[2] for name in skipped}):
        print(f"Not run with ansible-core {core}: no {CORES[core]} on this machine.")
    if failed:
        print(f"FAILED: {', '.join(failed)} (whole outputs: .build/log/)")
    else:
        print("Every part passed.")
    passed = len(parts) - len(failed) - len(skipped)
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""), flush=True)
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Runs the parts of make test.")
    parser.add_argument("--long", action="store_true", help="with the parts that take long")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these parts")
    options = parser.parse_args(arguments)
    LOG.mkdir(parents=True, exist_ok=True)
    parts = all_parts(options.long)
    if options.only:
        unknown = set(options.only) - {part.name for part in parts}
        if unknown:
            parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in parts)}")
        parts = [part for part in parts if part.name in options.only]
    runner = Runner()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop)
    run_all(runner, parts)
    remove_hosts(parts)
    return report(parts, time.monotonic() - runner.began)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
