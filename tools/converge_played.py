# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start of the played engine and a load on it, in this process, as the product's modules would report them.

For bench_converge.py. What is read is what a host has: the lines of the journal go through the product's own reader, a
death through its own catalogue. Of a server's ranks the one on the tightest board is played.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import bench_soak

from ansible_collections.gpufleet.sglang.plugins.module_utils import (  # isort: skip
    _failures,
    _soak,
    _soak_job,
    _soak_run,
    _startup,
    _verdict,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import Entry  # isort: skip

READY_LINE = "The server is fired up and ready to roll!"
# The parser is that of the newest version; before 0.5.14 the argument had this name.
RENAMED = {"cuda-graph-max-bs": "cuda-graph-max-bs-decode"}
STAMP = "2026-01-01 00:00:00"


@dataclass
class Begun:
    """A start that is over. C(memory), C(pool), C(plan) are the played engine's own; None when it died."""

    startup: _startup.Startup
    failure: dict | None = None
    memory: object | None = None
    pool: object | None = None
    plan: dict | None = None

    @property
    def parts(self):
        return self.memory, self.pool, self.plan


@functools.cache
def _parser():
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


@functools.cache
def _alone():
    """A rank of the played engine on boards that nobody else uses: the folder of other processes is not read."""
    from sglang.played import ledger, traffic

    class Alone(traffic.Alone):
        @functools.cached_property
        def _room_gib(self):
            return ledger.free_mib(self._board, []) / 1024

        def room_gib(self):
            return self._room_gib

    return Alone


def _words(arguments: dict) -> list[str]:
    """Server arguments as words of a command line."""
    words = []
    for name, value in sorted(arguments.items()):
        name = RENAMED.get(name, name)
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words += [f"--{name}", str(value)]
    return words


class Lines(logging.Handler):
    """What a rank says, as the journal would hold it."""

    def __init__(self, prefix: str):
        super().__init__()
        self.prefix, self.lines = prefix, []

    def emit(self, record):
        self.say(record.getMessage())

    def say(self, text: str) -> None:
        self.lines.append(f"[{STAMP}{self.prefix}] {text}")

    def entries(self) -> list[Entry]:
        """The lines as entries, one a second."""
        texts = [one for line in self.lines for one in line.split("\n")]
        return [Entry(text, realtime_seconds=float(at), monotonic_seconds=float(at)) for at, text in enumerate(texts)]


def start(host, arguments: dict, environment: dict, number: int) -> Begun:
    """One start of C(host) with these server arguments. The same number has the same noise."""
    from sglang.played import gpu_launcher, ledger, lines, ranks, versions

    versions.__version__ = host.version
    Path(os.environ["PLAYED_BOARDS"]).write_text(json.dumps({"boards": [host.board] * host.ranks}))
    os.environ["PLAYED_SET"] = json.dumps(host.knobs)
    os.environ["PLAYED_SEED"] = str(host.seed)
    os.environ["PYTORCH_ALLOC_CONF"] = environment.get("PYTORCH_ALLOC_CONF", "")
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    given = _parser().parse_args(_words({"model-path": host.folder, **arguments}))
    made = gpu_launcher.GpuLauncher(given)
    made.sizes, made.speed, made.faults = ranks.sizes_of(given), 1.0, []
    plan = dict(made.plan(host.folder, ledger.read_boards(), count=False), start=number)
    given.mem_fraction_static, given.chunked_prefill_size = plan["fraction"], plan["chunk"]
    rank = ranks.Rank(number=0, tp=0, pp=0, dp=None, ep=0, world=0, board=0, first=True)
    said = Lines(ranks.prefix(rank, made.sizes))
    said.say(lines.server_args(given))
    root = logging.getLogger()
    root.addHandler(said)
    level = root.level
    root.setLevel(logging.INFO)
    try:
        weights = made.stage_weights(host.folder)[0]
        told = {**plan, "board": ledger.read_boards()["boards"][0], "weights_gib": weights, "rank": asdict(rank)}
        alone = _alone()(told, -1)
        pool = alone.start()
    except Exception:
        said.say("Scheduler hit an exception: " + traceback.format_exc())
        entries = said.entries()
        startup = _startup.read_startup(entries)
        return Begun(startup, _failures.classify(entries, startup).as_dict())
    finally:
        root.removeHandler(said)
        root.setLevel(level)
    said.say(READY_LINE)
    return Begun(_startup.read_startup(said.entries()), None, alone.memory, pool, plan)


def ready_of(begun: Begun, target_tokens: int, min_headroom_gib: float | None) -> dict:
    """What server_ready returns."""
    judged = _verdict.judge_ready(begun.startup.as_dict(), begun.failure, target_tokens, min_headroom_gib)
    return {**judged, "startup": begun.startup.as_dict(), "failure": begun.failure, "invocation_id": "played"}


class Server(bench_soak.Server):
    """The played scheduler; its end is named by the catalogue, as from the journal."""

    def watch(self):
        if not self.died:
            return None
        said = Lines(" TP0")
        said.say(READY_LINE)
        said.say(
            "Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "/x/sglang/srt/model_executor/model_runner.py", line 1, in forward_extend\n'
            "    ret = self.model.forward(\n"
            f"torch.OutOfMemoryError: {self.died}"
        )
        return _failures.classify(said.entries()).as_dict()


def soaked(begun: Begun, floor_gib: float | None) -> dict:
    """What server_soak returns for the short load: verdict, reason, failure and the least free of the board."""
    memory, pool, plan = begun.parts
    server = Server(memory, pool, plan)
    context = plan["geometry"]["context_tokens"]
    served = _soak.Served(context, pool.tokens, plan["chunk"], pool.running_requests)
    limits = _soak.Limits()
    phases = _soak.plan_phases("short", served, limits)
    soak = _soak_run.Soak(
        phases, limits, server.answer, server.free, server.watch, clock=server.clock.monotonic, settle_seconds=1.0
    )
    soak.run()
    # The sampler wakes by this machine's clock and the load runs on a played one: how long nobody looked says nothing.
    soak.samples.longest_gap_seconds = 0.0
    judged = _soak_job.judge(soak, served, floor_gib, [0])
    growth = _soak_job.growth_of(soak, served)
    return {
        **judged,
        "least_free_gib": dict(soak.samples.least_free_gib),
        "requests": len(soak.outcomes),
        "growth_mib_per_request": growth.mib_per_request if growth else None,
        "endurance_requests": soak.limits.endurance_requests,
    }


def hour(begun: Begun, seed: int) -> dict:
    """An hour of the engine's own random traffic on what is there now: C(died), C(least_free_gib)."""
    from sglang.played import traffic

    begun.memory.least_free_gib = begun.memory.free_gib
    return traffic.play(*begun.parts, 1.0, 0.5, seed)
