# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An hour of random traffic without processes and without waiting: does a configuration live, and what kills it?

    python -m sglang.played.traffic [--hours 1] [--seed 1] [--per-second 0.5] -- SERVER ARGUMENTS

The same memory model as the ranks have, from the same files and knobs. Prompts are drawn log-uniform from 16 tokens to
the whole context, answers from 1 to 1,024; nothing is flushed. One line of JSON comes out:
{"died": null | {"seconds", "request", "prompt_tokens", "text"}, "requests", "least_free_gib", "ready_gib",
"pool_tokens"}.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import sys
from dataclasses import asdict

from sglang.played import command, gpu_launcher, gpu_worker, ledger, memory_pool, memory_rank, ranks

SHORTEST_PROMPT, LONGEST_ANSWER = 16, 1024


def plan_of(arguments) -> tuple[dict, list[float]]:
    """The plan of a start, and GiB of the weights by stage, as the launcher makes them."""
    made = gpu_launcher.GpuLauncher(arguments)
    made.sizes, made.speed, made.faults = ranks.sizes_of(arguments), 1.0, []
    plan = made.plan(arguments.model_path, ledger.read_boards(), count=False)
    return plan, made.stage_weights(arguments.model_path)


class Alone(gpu_worker.Rank):
    """A rank without a process: nobody is told, nothing is written down, and no time passes."""

    speaks = False

    def tell(self, data):
        """Nobody listens."""

    def least(self, name, value):
        return value

    def note(self, kind, gib):
        """Nothing is written down."""

    def phase(self, name, seconds, steps=1, step=None):
        if step:
            step(1, 1)
        return 0.0


def at_ready(plan: dict, weights: list[float], board: dict) -> tuple[memory_rank.RankMemory, memory_pool.Pool]:
    """The memory of a rank on this board when the server is ready, and its pool. Raises what kills the start."""
    rank = ranks.Rank(number=0, tp=0, pp=0, dp=None, ep=0, world=0, board=board["index"], first=False)
    told = {**plan, "board": board, "weights_gib": weights[0], "rank": asdict(rank), "faults": []}
    alone = Alone(told, -1)
    pool = alone.start()
    return alone.memory, pool


def draw(source: random.Random, low: int, high: int) -> int:
    return int(math.exp(source.uniform(math.log(low), math.log(max(high, low + 1)))))


def play(memory, pool: memory_pool.Pool, plan: dict, hours: float, per_second: float, seed: int) -> dict:
    """Let the hour pass on one rank. Requests that run at once share their passes."""
    source = random.Random(seed)
    context_tokens = plan["geometry"]["context_tokens"]
    knobs = memory.settings
    now, requests, cached, died = 0.0, 0, 0, None
    chunk = plan["chunk"] if plan["chunk"] > 0 else 10**9
    while now < hours * 3600 and died is None:
        now += source.expovariate(per_second)
        answer = draw(source, 1, min(LONGEST_ANSWER, context_tokens // 4))
        prompt = draw(source, SHORTEST_PROMPT, min(context_tokens, pool.tokens) - answer - 16)
        requests += 1
        running = min(draw(source, 1, 32), pool.running_requests)
        done = 0
        try:
            while done < prompt:
                part = min(chunk, prompt - done)
                done += part
                fill = min((cached + done) / pool.tokens, 1.0)
                memory.forward(memory_rank.Load(chunk=part, context=done, requests=running, fill=fill))
                now += part / knobs.prefill_tokens_per_second
            memory.forward(memory_rank.Load(chunk=0, context=prompt + answer, requests=running, fill=1.0))
            memory.finished()
        except memory_rank.OutOfMemoryError as error:
            died = {"seconds": round(now), "request": requests, "prompt_tokens": prompt, "text": str(error)}
        cached = min(cached + prompt + answer, pool.tokens)
    return {"died": died, "requests": requests, "least_free_gib": round(memory.least_free_gib, 3)}


def main() -> None:
    words = sys.argv[1:]
    place = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-second", type=float, default=0.5)
    given = parser.parse_args(words[:place])
    arguments = command.prepare_server_args(words[place + 1 :])
    plan, weights = plan_of(arguments)
    boards = ledger.read_boards()["boards"]
    tightest = min(boards[: arguments.tp_size], key=lambda board: ledger.free_mib(board, []))
    logging.disable(logging.CRITICAL)
    memory, pool = at_ready(plan, weights, tightest)
    ready = memory.free_gib
    told = play(memory, pool, plan, given.hours, given.per_second, given.seed)
    sys.stdout.write(json.dumps({**told, "ready_gib": round(ready, 3), "pool_tokens": pool.tokens}) + "\n")


if __name__ == "__main__":
    main()
