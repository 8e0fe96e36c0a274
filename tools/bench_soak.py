# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the short soak find the configurations that would die within an hour?

    bench_soak.py [--count 100] [--seed 1] [--rows] [--floor 0.475]

Configurations of the played engine are drawn, each with another memory under load. The played engine's own hour of
random traffic says which of them die, and how much was free. Then the soak's own phases, its bounds and its verdict
run on each against the played engine's scheduler and memory, in this process and on a played clock. Beside it: the
one short request of a hand-made loop, and one longest request.

Two readings. The plain one: who dies is to be refused, who lives is to be proven; it is a matter of the load alone,
so the soak has no floor there. The promise: who kept the planner's floor of the least free through its hour is to be
proven with that floor; who lived with less may be refused, that is what a floor is for.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import io
import itertools
import json
import logging
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from array import array
from pathlib import Path

import tree

sys.path.insert(0, str(tree.link().parents[2]))

from ansible_collections.gpufleet.sglang.plugins.module_utils import (  # noqa: E402  # isort: skip
    _soak,
    _soak_job,
    _soak_judge,
    _soak_run,
)

PLAYED = tree.ROOT / "molecule" / "shared" / "engine" / "played"
VERSION = "0.5.23"
FOUND_GOAL, REFUSED_GOAL = 0.95, 0.05
WORKERS, BATCH = 4, 32


def played_engine(folder: Path) -> None:
    """Make the engine importable and its files findable, as an installed wheel on a host with eight boards."""
    wheels, site = folder / "wheels", folder / "site"
    subprocess.run([sys.executable, PLAYED / "build.py", wheels, VERSION], check=True, stdout=subprocess.DEVNULL)
    for wheel in wheels.glob(f"sglang-{VERSION}-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    kind = ("--kind", "kimi-k2", "--experts", "400")
    subprocess.run(
        [sys.executable, PLAYED / "make_model.py", folder / "model", *kind], check=True, stdout=subprocess.DEVNULL
    )
    (folder / "run").mkdir()
    os.environ.update(
        PLAYED_BOARDS=str(PLAYED / "reference" / "boards.json"),
        PLAYED_MODEL=str(PLAYED / "reference" / "model.json"),
        PLAYED_RUN=str(folder / "run"),
        PLAYED_FAULTS_FILE=str(folder / "none.json"),
    )
    sys.path.insert(0, str(site))


# ----------------------------------------------------------------------------------------------------------------
# What is drawn


def drawn(source: random.Random) -> dict:
    """A configuration: arguments as an operator would try them, and how the model behaves under load."""
    context = source.choice((16384, 32768, 65536, 131072, 262144))
    knobs = {
        "fragmentation_gib": source.uniform(0.2, 2.5),
        "fragmentation_prefills": source.uniform(2, 20),
        "context_bytes_per_token": source.uniform(1000, 12000),
        "both_bytes": source.uniform(0.1, 1.5),
        "chunk_ratio": source.uniform(1.05, 1.8),
        "decode_bytes_per_request": source.choice((0.0, source.uniform(0, 20e6))),
        "growth_mib_per_request": source.choice((0.0, 0.0, 0.0, source.uniform(0.3, 6.0))),
        "prefill_tokens_per_second": source.uniform(3000, 20000),
        "decode_step_seconds": source.uniform(0.01, 0.05),
        "admission_share": source.uniform(0.2, 0.7),
    }
    arguments = {
        "--mem-fraction-static": f"{source.uniform(0.925, 0.96):.3f}",
        "--chunked-prefill-size": str(source.choice((2048, 4096, 8192, 16384))),
        "--context-length": str(context),
    }
    if source.random() < 0.5:
        arguments["--max-total-tokens"] = str(source.choice((context, 100000, 200000)))
    return {
        "arguments": arguments,
        "knobs": knobs,
        "expandable": source.random() < 0.3,
        "seed": source.randrange(10**6),
    }


def started(configuration: dict, model: str):
    """(memory, pool, plan) of a fresh start on one board, or None where the start itself fails."""
    from sglang.played import command, ledger, traffic

    os.environ["PLAYED_SET"] = json.dumps(configuration["knobs"])
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True" if configuration["expandable"] else ""
    words = ["--model-path", model, "--tp-size", "8"]
    for name, value in configuration["arguments"].items():
        words += [name, value]
    with contextlib.redirect_stderr(io.StringIO()):
        arguments = command.prepare_server_args(words)
    plan, weights = traffic.plan_of(arguments)
    try:
        memory, pool = traffic.at_ready(plan, weights, ledger.read_boards()["boards"][0])
    except RuntimeError:
        return None
    return memory, pool, plan


# ----------------------------------------------------------------------------------------------------------------
# A server in this process


class Clock:
    """Time that passes when the engine sleeps. It stands in for the module ``time`` of the engine's scheduler."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        # Clients are threads: they get their turn.
        time.sleep(0.0002)


class Server:
    """The played engine's scheduler over one rank's memory. A pass takes what runs at that time, as the hour does."""

    def __init__(self, memory, pool, plan):
        from sglang.played import group, memory_rank

        self.clock = Clock()
        group.time = self.clock
        self.memory, self.died = memory, None
        self._load, self._error = memory_rank.Load, memory_rank.OutOfMemoryError
        figures = {"tokens": pool.tokens, "running_requests": pool.running_requests}
        self._job = group.Job
        self.group = group.Group(figures, memory.settings, 1.0, plan["chunk"], True, 40, self._send)
        self._end = threading.Event()

    def _send(self, command, _line, _level):
        if "forward" in command:
            running = len(self.group.running)
            try:
                self.memory.forward(self._load(**{**command["forward"], "requests": running}))
            except self._error as error:
                self.died = str(error)
                self._end.set()
                raise OSError("the rank is gone") from error
        self.memory.finished(command.get("finished", 0))

    def answer(self, ask, clock, _deadline, on_first=None):
        """One request of the soak, as its client would see it."""
        seen = {"number": ask.number, "phase": ask.phase, "wanted_tokens": ask.tokens, "began": clock()}
        job = self.group.submit(self._job(array("l", [ask.number + 1]) * ask.tokens, ask.answer_tokens))
        made = 0
        while True:
            try:
                made = job.events.get(timeout=0.2)
            except Exception:
                if self._end.is_set():
                    return _soak_judge.Outcome(status="failed", error="the connection broke", ended=clock(), **seen)
                continue
            if made is None:
                break
            if "first_token_at" not in seen:
                seen.update(first_token_at=clock(), prompt_tokens=ask.tokens)
                if on_first:
                    on_first()
            seen["answer_tokens"] = made
        if job.aborted:
            return _soak_judge.Outcome(status="failed", error=job.aborted, ended=clock(), **seen)
        return _soak_judge.Outcome(status="answered", ended=clock(), **seen)

    def free(self):
        return {"0": self.memory.free_gib}

    def watch(self):
        """What the journal would tell."""
        if not self._end.is_set():
            return None
        return {"kind": "oom_prefill", "direction": "lower", "evidence": self.died, "fatal": True}


def soaked(begun, floor_gib: float) -> dict:
    """The verdict of the short soak, and what it cost on the played clock."""
    memory, pool, plan = begun
    server = Server(memory, pool, plan)
    context = plan["geometry"]["context_tokens"]
    served = _soak.Served(context, pool.tokens, plan["chunk"], pool.running_requests)
    limits = _soak.Limits()
    phases = _soak.plan_phases("short", served, limits)
    soak = _soak_run.Soak(phases, limits, server.answer, server.free, server.watch, clock=server.clock.monotonic)
    soak.run()
    # The sampler wakes by the real clock, and what it sees it dates by the played one.
    soak.samples.longest_gap_seconds = 0.0
    judged = _soak_job.judge(soak, served, floor_gib, [0])
    tightest = soak.samples.tightest()
    request = (soak.failure or {}).get("request") or {}
    why = (
        "slow growth"
        if "endurance_requests" in judged["reason"]
        else "floor"
        if judged["verdict"] == "unsafe"
        else "other"
    )
    return {
        "verdict": judged["verdict"],
        "verdict_without_floor": _soak_job.judge(soak, served, None, [0])["verdict"],
        "soak_least_free_gib": tightest[1] if tightest else None,
        "reason": judged["reason"],
        "phase": request.get("phase"),
        "why": why,
        "seconds": soak.clock(),
        "requests": len(soak.outcomes),
        "retractions": server.group.retractions,
    }


def one_request(begun, tokens: int) -> bool:
    """Whether a fresh server answers one request of so many tokens. This is all that a check by hand sends."""
    from sglang.played import memory_rank

    memory, pool, plan = begun
    tokens = min(tokens, pool.tokens - 16, plan["geometry"]["context_tokens"] - 16)
    done = 0
    try:
        while done < tokens:
            part = min(plan["chunk"], tokens - done)
            done += part
            memory.forward(memory_rank.Load(chunk=part, context=done, requests=1, fill=done / pool.tokens))
    except memory_rank.OutOfMemoryError:
        return False
    return True


def measure(configuration: dict, model: str) -> dict | None:
    from sglang.played import traffic

    begun = started(configuration, model)
    if begun is None:
        return None
    hour = traffic.play(*begun, 1.0, 0.5, configuration["seed"])
    return {
        **configuration,
        "died": hour["died"],
        "hour_least_free_gib": hour["least_free_gib"],
        "holds_context": begun[1].tokens >= int(configuration["arguments"]["--context-length"]),
    }


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--floor", type=float, default=0.475, help="floor of the least free, GiB")
    parser.add_argument("--rows", action="store_true", help="print each configuration on which soak and hour disagree")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        played_engine(Path(folder))
        return report(given, str(Path(folder) / "model"))


def report(given, model: str) -> int:
    """Draw until every kind is full. Workers share the draws: a soak waits most of the time for its client threads."""
    source = random.Random(given.seed)
    kinds = {"dies": [], "lives": [], "good": []}
    draws = no_start = no_promise = 0
    with concurrent.futures.ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as workers:
        while min(len(rows) for rows in kinds.values()) < given.count:
            batch = [drawn(source) for _draw in range(BATCH)]
            draws += len(batch)
            rows = list(workers.map(measure, batch, itertools.repeat(model)))
            no_start += sum(row is None for row in rows)
            rows = [row for row in rows if row is not None]
            # A plan refuses these, and the load says at once that the longest request does not fit.
            no_promise += sum(not row["holds_context"] for row in rows)
            wanted = [row for row in rows if row["holds_context"] and still_wanted(row, kinds, given)]
            for row in workers.map(tried, wanted, itertools.repeat(model), itertools.repeat(given.floor)):
                for kind in still_wanted(row, kinds, given):
                    kinds[kind].append(row)
            progress = ", ".join(f"{kind} {len(rows)}/{given.count}" for kind, rows in kinds.items())
            print(f"{draws} drawn: {progress}", file=sys.stderr, flush=True)
    print(
        f"{draws} configurations drawn (seed {given.seed}): {no_start} do not start, {no_promise} hold no request of "
        "the declared context and are left out."
    )
    return told(kinds, given)


def still_wanted(row: dict, kinds: dict, given) -> list[str]:
    """The kinds that this configuration is of and that are not full yet."""
    good = not row["died"] and row["hour_least_free_gib"] >= given.floor
    of = ["dies"] if row["died"] else ["lives", "good"] if good else ["lives"]
    return [kind for kind in of if len(kinds[kind]) < given.count]


def tried(row: dict, model: str, floor_gib: float) -> dict:
    """The configuration with what the soak and the two requests by hand say of it."""
    return {
        **row,
        **soaked(started(row, model), floor_gib),
        "short_request": one_request(started(row, model), 64),
        "long_request": one_request(started(row, model), 10**9),
    }


def refused(rows, field: str = "verdict") -> int:
    return sum(row[field] != "proven" for row in rows)


def told(kinds, given) -> int:
    dies, lives, good = kinds["dies"], kinds["lives"], kinds["good"]
    everyone = dies + lives + [row for row in good if row not in lives]
    seconds = sorted(row["seconds"] for row in everyone if row["verdict"] == "proven")
    causes = collections.Counter(
        row["phase"] or "no death, " + row["why"] for row in dies if row["verdict"] != "proven"
    )
    print("An hour of the engine's own random traffic decides.")
    print(f"{'':42}{'dies':>8}{'lives':>8}{'lives and keeps the floor':>28}")
    lines = {
        "configurations": len,
        "refused by one short request": lambda rows: sum(not row["short_request"] for row in rows),
        "refused by one longest request": lambda rows: sum(not row["long_request"] for row in rows),
        "refused by the short soak without a floor": lambda rows: refused(rows, "verdict_without_floor"),
        f"refused by the short soak, floor {given.floor:g} GiB": refused,
    }
    for text, count in lines.items():
        print(f"{text:42}{count(dies):>8}{count(lives):>8}{count(good):>28}")
    print("found in: " + ", ".join(f"{name} {count}" for name, count in causes.most_common()))
    left = sorted(row["hour_least_free_gib"] for row in lives if row["verdict"] != "proven")
    print("refused though they live, with so much left of their hour (GiB): " + " ".join(f"{gib:.2f}" for gib in left))
    if seconds:
        print(f"A soak that proves takes {seconds[len(seconds) // 2]:.0f} s (median), {seconds[-1]:.0f} s (longest).")
    if given.rows:
        for row in everyone:
            if (row["verdict"] == "proven") != (row["died"] is None):
                print(json.dumps(row))
    plain = is_met(refused(dies, "verdict_without_floor"), dies, refused(lives, "verdict_without_floor"), lives)
    promise = is_met(refused(dies), dies, refused(good), good)
    print(f"goal: {FOUND_GOAL:.0%} found, at most {REFUSED_GOAL:.0%} refused.", end=" ")
    print(f"Plain reading: {WORDS[plain]}. Promise of the floor: {WORDS[promise]}.")
    return 0 if plain and promise else 1


WORDS = {True: "met", False: "MISSED"}


def is_met(found: int, dies, wrong: int, lives) -> bool:
    return found >= FOUND_GOAL * len(dies) and wrong <= REFUSED_GOAL * len(lives)


if __name__ == "__main__":
    sys.exit(main())
