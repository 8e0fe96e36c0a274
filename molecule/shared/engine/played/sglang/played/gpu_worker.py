# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank of a GPU server: ``python -m sglang.played.gpu_worker scheduler NUMBER STATUS_FD``, started by the launcher.

Its plan comes in the first line of standard input, then one command a line; it answers on the status pipe. It holds no
memory of a board, it writes down what it would hold. There is no handler for SIGTERM; it dies with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import json
import logging
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict

from sglang.played import cuda_lines, fault_list, ledger, lines, memory_pool, memory_rank, ranks, settings, versions
from sglang.played.geometry import Geometry
from sglang.played.gpu_graphs import Graphs

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
PIECE_GIB = 448 / 1024  # a tensor of the load
LEAST_STEP_SECONDS = 0.02


def geometry_of(data: dict | None) -> Geometry | None:
    if data is None:
        return None
    return Geometry(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


class Rank:
    """One scheduler process from its start to its end."""

    def __init__(self, plan: dict, status: int):
        self.plan, self._status = plan, status
        self.arguments = argparse.Namespace(**plan["arguments"])
        self.rank, self.sizes = ranks.Rank(**plan["rank"]), ranks.Sizes(**plan["sizes"])
        self.knobs = settings.Settings(**plan["settings"])
        self.geometry, self.draft = geometry_of(plan["geometry"]), geometry_of(plan["draft"])
        self.speed = settings.speed()
        board = plan["board"]
        self._board = board
        self._entry = ledger.Entry(self.rank.title)
        text = os.environ.get("PYTORCH_ALLOC_CONF", "") + os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        self.memory = memory_rank.RankMemory(
            self.knobs, board["index"], board["torch_total_gib"], self.room_gib, self.note,
            expandable="expandable_segments:true" in text.lower().replace(" ", ""),
        )
        wanted = self.knobs.wanted_bytes_per_token
        self.memory.wanted_bytes = wanted if wanted >= 0 else max(self.geometry.topk, 4) * self.geometry.hidden * 2
        self.faults = fault_list.Striker(
            plan["faults"], self.rank.number, self.memory, self.tell, self.arguments.watchdog_timeout, logging.info
        )
        self.seconds = {"load": 0.0, "pool": 0.0, "prefill_graph": 0.0, "decode_graph": 0.0}
        self.graph_gib = {}
        self.ready_at = 0.0

    # --- around

    def setup(self) -> None:
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_NAME, self.rank.title.encode()[:15], 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        faulthandler.enable()
        milliseconds = versions.at_least("0.5.6") and os.environ.get("SGLANG_LOG_MS", "") in ("1", "true")
        stamp = "%(asctime)s.%(msecs)03d" if milliseconds else "%(asctime)s"
        logging.basicConfig(
            level=getattr(logging, self.arguments.log_level.upper()),
            format=f"[{stamp}{ranks.prefix(self.rank, self.sizes)}] %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
        )

    def tell(self, data: dict) -> None:
        os.write(self._status, (json.dumps(data) + "\n").encode())

    def least(self, name: str, value: float) -> float:
        """The least over all ranks of this world: a collective, through the launcher."""
        self.tell({"least": name, "value": value})
        line = sys.stdin.readline()
        if not line:
            sys.exit(1)
        return json.loads(line)["least"]

    def room_gib(self) -> float:
        """Free on the board without what this rank holds."""
        held = [entry for entry in ledger.holders(self.plan["release_seconds"]) if entry["pid"] != os.getpid()]
        return ledger.free_mib(self._board, held) / 1024

    def note(self, kind: str, gib: float) -> None:
        self._entry.set(self._board["index"], kind, gib * 1024)
        self._entry.write()

    def phase(self, name: str, seconds: float, steps: int = 1, step=None) -> float:
        """Let a phase take its time, in steps. Returns the seconds of it."""
        began = time.monotonic()
        whole = seconds / self.speed
        steps = max(1, min(steps, int(whole / LEAST_STEP_SECONDS) or 1))
        self.faults.check(name, 0.0)
        for number in range(1, steps + 1):
            time.sleep(whole / steps)
            self.faults.check(name, time.monotonic() - began)
            if step:
                step(number, steps)
        return time.monotonic() - began

    @property
    def speaks(self) -> bool:
        """Whether this rank draws the bars: the first of its world."""
        return self.rank.tp == 0 and self.rank.pp == 0 and self.rank.world == 0

    # --- phases

    def start(self) -> memory_pool.Pool:
        began = time.monotonic()
        pre = self.init()
        weights = self.plan["weights_gib"] + self.knobs.load_overhead_gib
        self.load("weights", self.geometry, weights, self.knobs.weights_seconds)
        graphs = Graphs(self)
        early = self.draft is not None and versions.at_least("0.5.14")
        if early:
            self.load("draft", self.draft, self.plan["draft_gib"], self.knobs.weights_seconds / 20)
        pool = self.pool(pre)
        if early:
            self.draft_pool(pool)
        graphs.capture(pool, "target")
        if self.draft is not None:
            if not early:
                self.load("draft", self.draft, self.plan["draft_gib"], self.knobs.weights_seconds / 20)
                self.draft_pool(pool)
            graphs.capture(pool, "draft")
        self.seconds["all"] = time.monotonic() - began
        if self.rank.first:
            logging.info(cuda_lines.final(
                pool, self.geometry.context_tokens, self.plan["chunk"], self.arguments.max_prefill_tokens,
                self.memory.free_gib,
            ))
        for line in cuda_lines.short_pool(pool, self.geometry.context_tokens):
            logging.info(line)
        radix = not self.arguments.disable_radix_cache
        for line in cuda_lines.tree_cache(radix, bool(pool.sliding_tokens), bool(pool.slots)):
            logging.info(line)
        return pool

    def init(self) -> float:
        """Context and NCCL; returns the least that is free in this world before the load."""
        logging.info(cuda_lines.init_begin())
        self.memory.take("context", self.knobs.context_gib)
        if self.knobs.unseen_gib:
            self.memory.put("unseen", self.knobs.unseen_gib)
        elapsed = self.phase("init", self.knobs.init_seconds, 10)
        nccl = self.plan["nccl_gib"]
        self.memory.take("nccl", nccl)
        for line in cuda_lines.baseline(elapsed, nccl):
            logging.info(line)
        local = self.memory.free_gib
        pre = self.least("pre", local)
        if self.sizes.tp > 1 and pre < 0.9 * local:
            text = cuda_lines.unbalanced(pre, local)
            if os.environ.get("SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", "").lower() in ("1", "true") or os.environ.get(
                "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", ""
            ).lower() in ("0", "false"):
                logging.warning(text)
            else:
                raise (RuntimeError if versions.at_least("0.5.10") else ValueError)(text)
        return pre

    def load(self, kind: str, geometry: Geometry, gib: float, seconds: float) -> None:
        before = self.memory.free_gib
        logging.info(lines.load_begin(before))
        name, shards = cuda_lines.weights_bar_name(geometry.shards), geometry.shards
        began, drawn = time.monotonic(), [0]

        def step(number: int, steps: int) -> None:
            self.memory.take(kind, gib * number / steps, PIECE_GIB)
            while self.speaks and drawn[0] < number * shards // steps:
                drawn[0] += 1
                elapsed = (time.monotonic() - began) * self.speed
                sys.stderr.write(cuda_lines.weights_bar(name, drawn[0], shards, elapsed))
                sys.stderr.flush()

        if self.speaks:
            sys.stderr.write(cuda_lines.weights_bar(name, 0, shards, 0.0))
            sys.stderr.flush()
        # The bar of the first rank closes before the others are done.
        elapsed = self.phase("weights", seconds * (1.0 if self.speaks else 1.03), 40, step)
        if self.speaks:
            sys.stderr.write("\n")
            sys.stderr.flush()
        else:
            time.sleep(0.02)
        after = self.memory.free_gib
        self.seconds["load"] += elapsed
        logging.info(cuda_lines.load_end(geometry, after, before - after, elapsed))
        if not self.least("loaded " + kind, 1.0):
            raise RuntimeError("a rank did not load")

    def wishes(self, cap: int | None) -> memory_pool.Wishes:
        given = self.arguments
        return memory_pool.Wishes(
            fraction=self.plan["fraction"], page=given.page_size or 1, cap=cap, kv_dtype=given.kv_cache_dtype,
            requests=given.max_running_requests, swa_ratio=getattr(given, "swa_full_tokens_ratio", None) or 0.8,
            state_ratio=getattr(given, "mamba_full_memory_ratio", None) or 0.9,
            state_slots=getattr(given, "max_mamba_cache_size", None), radix=not given.disable_radix_cache,
            algorithm=given.speculative_algorithm or "", draft_tokens=given.speculative_num_draft_tokens or 0,
        )

    def pool(self, pre: float) -> memory_pool.Pool:
        left = self.knobs.taken_before_sizing_gib + settings.noise(self.knobs, self.plan["start"], None)
        left += settings.noise(self.knobs, self.plan["start"], self.rank.number)
        if left:
            self.memory.put("left", left)
        split = memory_pool.Split(self.sizes.attn_tp, self.rank.pp, self.sizes.pp, self.sizes.dp)
        cap = self.arguments.max_total_tokens
        elapsed = self.phase("pool", self.knobs.pool_seconds, 5)
        post = self.least("post", self.memory.free_gib)
        pool = memory_pool.size(self.geometry, self.wishes(cap), split, pre, post, self.draft)
        least = int(self.least("tokens", pool.tokens))
        if least < pool.tokens:  # another stage has less
            pool = memory_pool.size(self.geometry, self.wishes(least), split, pre, post, self.draft)
        if self.speaks:
            for line in cuda_lines.kv_dtype(pool):
                logging.info(line)
        self.memory.take("table", memory_pool.table_gib(pool, self.geometry))
        if pool.slots:
            self.memory.take("state", pool.conv_gib + pool.ssm_gib)
        self.memory.take("pool", pool.kv_gib)
        for line in cuda_lines.pools(pool, pool.full_bytes / memory_pool.GIB, cap):
            logging.info(line)
        logging.info(cuda_lines.pool_end(self.memory.free_gib))
        self.memory.take("workspace", self.knobs.workspace_gib)
        self.seconds["pool"] = elapsed
        return pool

    def draft_pool(self, pool: memory_pool.Pool) -> None:
        self.memory.take("draft_pool", pool.draft_bytes / memory_pool.GIB)
        for line in cuda_lines.pools(pool, pool.draft_bytes / memory_pool.GIB, None, draft=True):
            logging.info(line)
        logging.info(cuda_lines.pool_end(self.memory.free_gib))

    # --- serving

    def serve(self) -> None:
        self.ready_at = time.monotonic()
        for line in sys.stdin:
            command = json.loads(line)
            if "quit" in command:
                break
            if command.get("say"):
                logging.log(command.get("level", logging.INFO), command["say"])
            if "fired_up" in command:
                self.faults.timers(fail)
            if "forward" in command:
                load = memory_rank.Load(**command["forward"])
                (self.forward_extend if load.chunk else self.forward_decode)(load)
            if "finished" in command:
                self.memory.finished(command["finished"])
            if "id" in command:
                self.tell({"done": command["id"], "least_free_gib": self.memory.least_free_gib})
        time.sleep(self.knobs.shutdown_seconds / self.speed)
        self._entry.remove()

    # Named as in SGLang: a traceback tells by these names where a pass ended.
    def forward_extend(self, load: memory_rank.Load) -> None:
        self.faults.check("prefill", time.monotonic() - self.ready_at)
        self.memory.forward(load)

    def forward_decode(self, load: memory_rank.Load) -> None:
        self.faults.check("decode", time.monotonic() - self.ready_at)
        self.memory.forward(load)

    def run(self) -> None:
        pool = self.start()
        self.tell({"ready": {
            "pool": {**asdict(pool), "kv_gib": pool.kv_gib, "free_ready_gib": self.memory.free_gib},
            "seconds": self.seconds, "weights_gib": self.memory.held.get("weights", 0.0), "graphs": self.graph_gib,
        }})
        self.serve()


def fail() -> None:
    """What run_scheduler_process does with an exception: say it, and tell the parent, which kills us."""
    logging.error("Scheduler hit an exception: %s", traceback.format_exc())
    os.kill(os.getppid(), signal.SIGQUIT)


def main() -> None:
    rank = Rank(json.loads(sys.stdin.readline()), int(sys.argv[3]))
    rank.setup()
    try:
        rank.run()
    except Exception:
        fail()
        sys.exit(1)


if __name__ == "__main__":
    main()
