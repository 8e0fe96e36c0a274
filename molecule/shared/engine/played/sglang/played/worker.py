# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process below the launcher: ``python -m sglang.played.worker KIND RANK STATUS_FD``.

A scheduler loads, sizes its pool and tells the launcher; a detokenizer only is there. The arguments come through
standard input, so that no command line shows a key. There is no handler for SIGTERM, as in SGLang; a worker dies
with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import asdict

from sglang.played import faults, lines, memory

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
STEP_SECONDS = 0.05


def setup(kind: str, rank: int, arguments: argparse.Namespace, stays: bool) -> None:
    libc = ctypes.CDLL(None)
    title = f"sglang::{kind}" if kind == "detokenizer" else f"sglang::scheduler_TP{rank}"
    libc.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)
    if stays:
        os.setsid()
    else:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prefix = f" TP{rank}" if arguments.tp_size > 1 and kind == "scheduler" else ""
    logging.basicConfig(
        level=getattr(logging, arguments.log_level.upper()),
        format=f"[%(asctime)s{prefix}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )


def say(*texts: str) -> None:
    for text in texts:
        logging.info(text)


def load(arguments: argparse.Namespace, rank: int) -> dict:
    """Print what a load prints; the figures that the launcher needs."""
    say(*lines.distributed())
    time.sleep(STEP_SECONDS)
    model = memory.read_model(arguments)
    before_gib = memory.available_gib()
    say(lines.load_begin(before_gib))
    began = time.monotonic()
    time.sleep(STEP_SECONDS + faults.preload_seconds())
    if rank == 0:
        sys.stderr.write(lines.progress(model.shards))
        sys.stderr.flush()
    load_seconds = time.monotonic() - began
    # The played engine does not take the memory that it speaks of.
    after_gib = before_gib - model.weight_gib
    say(lines.load_end(model, after_gib, load_seconds), *lines.kv_dtype(model))
    time.sleep(STEP_SECONDS)
    pool = memory.size_pool(arguments, model, before_gib, after_gib)
    say(*lines.pool_lines(pool, model, arguments.max_total_tokens))
    if rank == 0:
        say(lines.summary(pool, model, arguments))
    say(*lines.after_summary())
    return {"pool": {**asdict(pool), "kv_gib": 2 * pool.half_gib}, "model": asdict(model), "load_seconds": load_seconds}


def fail() -> None:
    """What run_scheduler_process does with an exception: say it, tell the parent, and end when it kills us."""
    logging.error("Scheduler hit an exception: %s", traceback.format_exc())
    os.kill(os.getppid(), signal.SIGQUIT)


class Told(Exception):
    """An exception whose traceback ends in the line that was asked for."""


def die() -> None:
    name, _colon, text = faults.die_text().partition(": ")
    module, _dot, name = name.rpartition(".")
    kind = type(name, (Told,), {"__module__": module or "builtins"})
    raise kind(text)


def serve(began: float) -> None:
    """Wait without using the processor: for a word of the launcher, or for the time to fail."""
    after = faults.die_after_seconds()
    left = None if after is None else max(after - (time.monotonic() - began), 0.0)
    if select.select([sys.stdin], [], [], left)[0]:
        sys.stdin.readline()  # "shutdown", or the end of the launcher
        return
    die()


def main() -> None:
    began = time.monotonic()
    kind, rank, status = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    arguments = argparse.Namespace(**json.loads(sys.stdin.readline()))
    stays = kind == "scheduler" and rank == 0 and faults.leaves_child()
    setup(kind, rank, arguments, stays)
    try:
        if kind == "scheduler" and rank == 0 and faults.die_after_seconds() == 0:
            die()
        figures = load(arguments, rank) if kind == "scheduler" else {}
        os.write(status, (json.dumps(figures) + "\n").encode())
        os.close(status)
        if kind == "scheduler" and rank == 0:
            serve(began)
        else:
            sys.stdin.readline()
    except Exception:
        fail()
        if not stays:
            sys.exit(1)
    while stays:
        signal.pause()


if __name__ == "__main__":
    main()
