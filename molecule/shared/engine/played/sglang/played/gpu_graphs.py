# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA graphs of a rank: which are captured in which order, what they take, and how a failure is worded."""

from __future__ import annotations

import logging
import sys
import time

from sglang.played import cuda_lines, versions
from sglang.played.memory_pool import MTP, Pool

PIECE_GIB = 128 / 1024


class Graphs:
    """Captures for one rank (gpu_worker.Rank), with its memory, its time and its faults."""

    def __init__(self, rank):
        self.rank = rank

    def off(self, phase: str) -> bool:
        given = vars(self.rank.arguments)
        old = given.get("disable_cuda_graph") or given.get(f"cuda_graph_backend_{phase}") == "disabled"
        if phase == "decode":
            return bool(old)
        if not versions.at_least("0.5.10"):
            return bool(old) or not given.get("enable_piecewise_cuda_graph")
        return bool(old or given.get("disable_piecewise_cuda_graph"))

    def capture(self, pool: Pool, role: str) -> None:
        algorithm = (self.rank.arguments.speculative_algorithm or "").upper()
        tokens = (self.rank.arguments.speculative_num_draft_tokens or 4) if algorithm else 1
        first_prefill = versions.at_least("0.5.14")
        if role == "target" and first_prefill and not self.off("prefill"):
            self.prefill_graph()
        kinds = ["verify" if algorithm else "decode"]
        if role == "draft" and algorithm in MTP:
            kinds = ["decode", "extend"]
        for kind in kinds:
            if not self.off("decode"):
                self.decode_graph(pool, role, kind, tokens)
        if role == "target" and not first_prefill and not self.off("prefill"):
            self.prefill_graph()

    def prefill_graph(self) -> None:
        before, most = self.rank.memory.free_gib, max(self.rank.plan["chunk"], 2048)
        sizes = [4, 8, 16, 32, 64, 128, 256, 512, *range(1024, min(most, 8192) + 1, 1024)]
        logging.info(cuda_lines.prefill_begin(sizes, before))
        elapsed = self.take("prefill", self.rank.knobs.prefill_graph_gib, self.rank.knobs.graphs_seconds / 4, sizes)
        self.rank.seconds["prefill_graph"] += elapsed
        logging.info(cuda_lines.prefill_end(elapsed, before - self.rank.memory.free_gib, self.rank.memory.free_gib))

    def decode_graph(self, pool: Pool, role: str, kind: str, tokens: int) -> None:
        before, name = self.rank.memory.free_gib, cuda_lines.graph_name(role, kind)
        batches = [one for one in self.rank.plan["batches"] if one <= pool.running_requests] or [pool.running_requests]
        share = 1.0 if role == "target" else 0.1
        gib = (self.rank.knobs.graph_base_gib + self.rank.knobs.graph_mib_per_batch * batches[-1] / 1024) * share
        # Those of a draft are told by the first rank only, since 0.5.12.
        told = role == "target" or not versions.at_least("0.5.12") or self.rank.speaks
        if told:
            logging.info(cuda_lines.decode_begin(batches, before, name, tokens))
        if self.rank.speaks and role == "target":
            for line in cuda_lines.batches_line(batches):
                logging.info(line)
        elapsed = self.take(f"{role}_{kind}", gib, self.rank.knobs.graphs_seconds * 0.7 * share, batches[::-1])
        self.rank.seconds["decode_graph"] += elapsed
        if told:
            after = self.rank.memory.free_gib
            logging.info(cuda_lines.decode_end(batches, elapsed, before - after, after, name))

    def take(self, kind: str, gib: float, seconds: float, sizes: list[int]) -> float:
        """Take a graph's memory bit by bit; whatever fails in one of decode is wrapped in the same words."""
        done, began = self.rank.memory.held.get("graphs", 0.0), time.monotonic()

        def step(number: int, steps: int) -> None:
            self.rank.memory.take("graphs", done + gib * number / steps, PIECE_GIB)
            if self.rank.speaks:
                place = min(len(sizes) - 1, number * len(sizes) // steps)
                told = number * len(sizes) // steps, len(sizes), time.monotonic() - began
                free = self.rank.memory.free_gib
                sys.stderr.write(cuda_lines.capture_bar(kind == "prefill", sizes[place], free, *told))
                sys.stderr.flush()

        try:
            elapsed = self.rank.phase("prefill_graph" if kind == "prefill" else "graphs", seconds, 20, step)
        except RuntimeError as error:
            if kind != "prefill":
                raise Exception(cuda_lines.capture_failed(str(error)))  # noqa: B904  as SGLang: two tracebacks
            for line in cuda_lines.piecewise_failed(str(error)):
                logging.error(line)
            raise
        if self.rank.speaks:
            sys.stderr.write("\n")
            sys.stderr.flush()
        else:
            time.sleep(0.02)
        self.rank.graph_gib[kind] = round(gib, 3)
        return elapsed
