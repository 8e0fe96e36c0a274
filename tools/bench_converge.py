# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the loop reach the promise, in how many restarts, and does what it calls proven live?

    bench_converge.py [--count 200] [--seed 7] [--rows] [--only NUMBER] [--tight]

Hosts are drawn from public start-ups (converge_hosts.py). On each the product's own functions plan, judge and decide,
against the memory of the played engine: memory_plan, server_ready's verdict, the short load, server_attempt, the next
step. What is proven then has an hour of the played engine's random traffic.

Feasible is a promise that the played engine itself holds: its start with the largest noise, with the levers at their
leanest and the pool capped at the promise, has the pool and lives through the hour with the floor of least free that
the product promises (docs/memory.md). The product has no part in that.

With --tight each host has one figure that no table knows, and a promise near the largest that it can hold: no goal, but
the loop has something to do there.

Beside it, on the same hosts: SGLang's default fraction, and its tuning page's steps of 0.01 from there, with one
longest request after each start as the test.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import functools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import bench_soak
import converge_hosts
import converge_played as played

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import plan_of  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils import _change_proof  # isort: skip
from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts  # isort: skip

MOST_ATTEMPTS = 3
# Goals: restarts (median, worst), share of feasible promises that are refused. None is tried and taken back.
MEDIAN_GOAL, WORST_GOAL, REFUSED_GOAL = 1, 2, 0.02
# The floor of least free that docs/memory.md states.
FLOOR_SHARE, FLOOR_LEAST_GIB = 0.005, 0.25
LEANEST = {"chunked-prefill-size": 2048}
LEANEST_BATCH = 32
MOST_HUNTS = 12
# With --tight: this share of what the played engine can hold at most.
TIGHT_SHARE = 0.95


# ----------------------------------------------------------------------------------------------------------------
# The product


def planned(host, attempts: list[dict], measurements: list[dict], deaths: list[dict]) -> dict:
    """The result of memory_plan for this host, with the next step."""
    result = plan_of(
        {
            **host.known,
            "target_tokens": host.target_tokens,
            "measurements": measurements,
            "deaths": deaths,
            "server": {},
            "attempts": attempts,
            "request": {"target_tokens": host.target_tokens},
            "max_attempts": MOST_ATTEMPTS,
        }
    )
    if result.get("failed"):
        raise ValueError(f"{host.name}: {result['msg']}")
    return result


def converged(host) -> dict:
    """What the role would do on this host: its C(end), C(attempts), C(reason), and C(begun) where it is proven."""
    attempts, measurements, deaths = [], [], []
    while True:
        plan = planned(host, attempts, measurements, deaths)
        step = plan["step"]
        if step["action"] != "try":
            return {"end": _end(step, attempts), "attempts": attempts, "reason": step["reason"], "begun": None}
        values = step["values"]
        begun = played.start(host, values["arguments"], values["environment"], len(attempts) + 1)
        ready = played.ready_of(begun, host.target_tokens, plan["min_headroom_gib"])
        soak = played.soaked(begun, plan["min_least_free_gib"]) if ready["verdict"] == "holds" else {}
        attempt = _change_proof.attempt_of(0.0, "bench", len(attempts) + 1, step, plan, ready, soak, {})
        attempts.append(dict(attempt, values=values))
        if attempt["verdict"] == "proven":
            return {"end": "proven", "attempts": attempts, "reason": attempt["reason"], "begun": begun}
        measurements += [attempt["measurement"]] if attempt["measurement"] else []
        deaths += [attempt["death"]] if attempt["death"] else []


def _end(step: dict, attempts: list[dict]) -> str:
    return "refused" if step["action"] == "refuse" else "back" if attempts else step["action"]


# ----------------------------------------------------------------------------------------------------------------
# What is possible, by the played engine alone


def floor_gib(host) -> float:
    knobs = host.knobs
    before_gib = host.board["torch_total_gib"] - knobs["context_gib"] - knobs["nccl_gib"]
    return max(FLOOR_SHARE * before_gib, FLOOR_LEAST_GIB)


def base_arguments(host) -> dict:
    context = host.known.get("context_tokens") or min(host.target_tokens, host.known["max_context_tokens"] or 10**9)
    return {**host.known["arguments"], "context-length": context}


def is_feasible(host) -> bool:
    """Whether the promise can be held at all: see the head of this file."""
    arguments = {
        **base_arguments(host),
        **LEANEST,
        "mem-fraction-static": 0.995,
        "max-total-tokens": host.target_tokens,
    }
    arguments["cuda-graph-max-bs"] = LEANEST_BATCH
    environment = {} if _allocator_is_forbidden(host) else {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    noisy = {**host.knobs, "noise_mib": 0.0}
    noisy["taken_before_sizing_gib"] += host.knobs["noise_mib"] / 1024
    begun = played.start(replace(host, knobs=noisy), arguments, environment, 1)
    if begun.failure or begun.pool.tokens < host.target_tokens:
        return False
    told = played.hour(begun, host.seed)
    return told["died"] is None and told["least_free_gib"] >= floor_gib(host)


def _allocator_is_forbidden(host) -> bool:
    """By the catalogue of settings that bite each other: that is no matter of memory."""
    return bool(_conflicts.expandable_conflict(host.known["arguments"], {}, host.version, gpus=host.known["gpus"]))


# ----------------------------------------------------------------------------------------------------------------
# What people do


def by_default(host) -> dict:
    """SGLang's own fraction: one start."""
    return _lived(host, played.start(host, base_arguments(host), {}, 1), 1)


def by_hunting(host) -> dict:
    """SGLang's tuning page: up by 0.01 while the pool is too small, down by 0.01 when it runs out of memory."""
    begun = played.start(host, base_arguments(host), {}, 1)
    fraction, starts, most = begun.plan["fraction"] if begun.plan else 0.9, 1, 1.0
    while True:
        dies = begun.failure is not None or not bench_soak.one_request(begun.parts, 10**9)
        kind = (begun.failure or {}).get("direction")
        if dies and kind != "raise":
            most, fraction = min(most, fraction), fraction - 0.01
        elif begun.failure or begun.pool.tokens < host.target_tokens:
            fraction += 0.01
        else:
            return _lived(host, begun, starts)
        fraction = round(fraction, 3)
        if starts == MOST_HUNTS or not 0.05 < fraction < most - 0.001:
            return {"starts": starts, "holds": False, "died": False}
        starts += 1
        begun = played.start(host, {**base_arguments(host), "mem-fraction-static": fraction}, {}, starts)


def _lived(host, begun, starts: int) -> dict:
    holds = begun.failure is None and begun.pool.tokens >= host.target_tokens
    died = holds and played.hour(begun, host.seed)["died"] is not None
    return {"starts": starts, "holds": holds and not died, "died": died}


# ----------------------------------------------------------------------------------------------------------------
# Report


def tightened(host):
    """The host with TIGHT_SHARE of the largest promise that the played engine can hold, by seven halvings."""
    low, high = 0, 2 * host.target_tokens
    for _step in range(7):
        middle = (low + high) // 2000 * 1000
        low, high = (middle, high) if is_feasible(replace(host, target_tokens=max(middle, 1000))) else (low, middle)
    return replace(host, target_tokens=max(int(low * TIGHT_SHARE), 1000))


def measured(host, tight: bool = False) -> dict:
    """One row: what the product did, what was possible, what others reach."""
    host = tightened(host) if tight else host
    found = converged(host)
    begun = found.pop("begun")
    row = {**found, "host": host, "died": None, "restarts": len(found["attempts"])}
    if begun is not None:
        row["died"] = played.hour(begun, host.seed)["died"]
        row["pool_tokens"] = begun.pool.tokens
    row["feasible"] = is_feasible(host)
    row["default"], row["hunting"] = by_default(host), by_hunting(host)
    return row


def drawn(count: int, seed: int, folder: Path, tight: bool = False) -> list:
    drawer = converge_hosts.Drawer(folder / "models", seed, 1.0 if tight else converge_hosts.SURPRISES)
    return [drawer.draw() for _number in range(count)]


def rows_of(hosts: list, folder: Path, workers: int, tight: bool = False):
    """The rows of the hosts in their order, measured side by side: a load waits more than it computes."""
    with concurrent.futures.ProcessPoolExecutor(workers, initializer=prepared, initargs=(folder,)) as pool:
        yield from pool.map(functools.partial(measured, tight=tight), hosts)


def missed(rows: list[dict]) -> list[str]:
    """The goals that are missed, as sentences."""
    proven = [row for row in rows if row["end"] == "proven"]
    feasible = [row for row in rows if row["feasible"]]
    lost = [row for row in feasible if row["end"] != "proven"]
    refused = [row for row in lost if row["end"] == "refused"]
    restarts = [row["restarts"] for row in proven]
    found = []
    if restarts and statistics.median(restarts) > MEDIAN_GOAL:
        found.append(f"median of {statistics.median(restarts):g} restarts")
    if restarts and max(restarts) > WORST_GOAL:
        found.append(f"{sum(one > WORST_GOAL for one in restarts)} hosts needed {max(restarts)} restarts")
    if any(row["died"] for row in proven):
        found.append(f"{sum(bool(row['died']) for row in proven)} died after they were proven")
    if any(row["pool_tokens"] < row["host"].target_tokens for row in proven):
        found.append("a pool below its promise was proven")
    if len(refused) >= REFUSED_GOAL * len(feasible) > 0:
        found.append(f"{len(refused)} of {len(feasible)} feasible promises refused")
    if len(lost) > len(refused):
        found.append(f"{len(lost) - len(refused)} feasible promises tried and not kept")
    return found


def told(rows: list[dict], seconds: float) -> list[str]:
    """The report, as lines."""
    feasible = [row for row in rows if row["feasible"]]
    rest = [row for row in rows if not row["feasible"]]
    proven = [row for row in rows if row["end"] == "proven"]
    restarts = collections.Counter(row["restarts"] for row in proven)
    refused = sum(row["end"] == "refused" for row in feasible)
    lines = [
        f"{len(rows)} hosts, {len(feasible)} promises are feasible by the played engine, {len(rest)} are not.",
        "promises kept, of the feasible ones:  "
        f"{sum(row['end'] == 'proven' and not row['died'] for row in feasible)} of {len(feasible)}",
        f"refused before any restart, of these: {refused}",
        f"tried and taken back, of these:       {sum(row['end'] == 'back' for row in feasible)}",
        "not feasible: " + ", ".join(f"{end} {count}" for end, count in _ends(rest)),
        "restarts to the proof:                "
        + ", ".join(f"{one} ({restarts[one]} hosts)" for one in sorted(restarts)),
        f"died within an hour after the proof:  {sum(bool(row['died']) for row in proven)}",
        "",
        f"{'the feasible promises':34}{'kept':>8}{'starts: median':>18}{'most':>8}{'died in the hour':>20}",
    ]
    ways = {
        "this collection": [
            {"holds": row["end"] == "proven" and not row["died"], "starts": row["restarts"], "died": bool(row["died"])}
            for row in feasible
        ],
        "SGLang's default fraction": [row["default"] for row in feasible],
        "its tuning page, steps of 0.01": [row["hunting"] for row in feasible],
    }
    for name, ends in ways.items():
        starts = [one["starts"] for one in ends if one["starts"]] or [0]
        figures = f"{sum(one['holds'] for one in ends):>8}{statistics.median(starts):>18g}{max(starts):>8}"
        lines.append(f"{name:34}{figures}{sum(one['died'] for one in ends):>20}")
    return [*lines, "", f"{seconds:.0f} seconds."]


def _ends(rows):
    return collections.Counter(row["end"] for row in rows).most_common()


def row_lines(row: dict) -> list[str]:
    """One host in full."""
    host = row["host"]
    mark = "" if row["end"] == "proven" or not row["feasible"] else "  MISS"
    lines = [f"{row['number']:>4} {host.name}, {host.target_tokens:,} tokens: {row['end']}{mark}"]
    for attempt in row["attempts"]:
        lines.append(f"     {attempt['values']['fraction']}: {attempt['verdict']}: {attempt['reason']}")
    lines += [f"     {row['reason']}"] if row["end"] != "proven" else []
    return lines + ([f"     died: {json.dumps(row['died'])}"] if row["died"] else [])


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rows", action="store_true", help="print each host that took more than one start")
    parser.add_argument("--only", type=int, help="one of the hosts, in full")
    parser.add_argument("--tight", action="store_true", help="every host has a surprise and a promise at its limit")
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1))
    given = parser.parse_args(arguments)
    began = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_soak.played_engine(folder)
        hosts = drawn(given.count, given.seed, folder, given.tight)
        if given.only is not None:
            hosts = hosts[given.only : given.only + 1]
        for number, row in enumerate(rows_of(hosts, folder, given.workers, given.tight), given.only or 0):
            rows.append(dict(row, number=number))
            plain = row["end"] == "proven" and row["restarts"] == 1 and not row["died"]
            if given.only is not None or (given.rows and not plain):
                print("\n".join(row_lines(rows[-1])), flush=True)
    if given.only is not None:
        print(converge_hosts.described(rows[0]["host"]))
        return 0
    print(f"Seed {given.seed}.")
    print("\n".join(told(rows, time.monotonic() - began)))
    wrong = missed(rows)
    if given.tight:
        return 0
    print("Goals: " + ("met." if not wrong else "MISSED: " + "; ".join(wrong) + "."))
    return 1 if wrong else 0


def prepared(folder: Path) -> None:
    """Make this process a machine with boards of its own: each start writes them down anew."""
    logging.disable(logging.NOTSET)
    os.environ["PLAYED_BOARDS"] = str(folder / f"boards-{os.getpid()}.json")
    os.environ["PLAYED_MODEL"] = str(folder / "none.json")


if __name__ == "__main__":
    sys.exit(main())
