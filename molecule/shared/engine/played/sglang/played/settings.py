# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The knobs of the played GPU engine, with their defaults. A file of JSON, and PLAYED_SET=JSON over it.

Figures are GiB, MiB, bytes or seconds as their names say. "assumed" marks a figure without a source.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, fields

FILE = "/etc/played/model.json"


@dataclass(frozen=True)
class Settings:
    """One start's knobs."""

    # --- memory before the load
    context_gib: float = 0.45  # of a CUDA process: 400 to 600 MiB by public nvidia-smi outputs
    nccl_gib: float = -1.0  # -1: 1.3 with NVLink (public start-ups: 1.77 on 8 boards), 0.25 without (assumed)
    unseen_gib: float = 0.0  # gone on a board that is in use and counted to nobody (the reference case: 0.70)
    # --- weights
    weights_gib: float = -1.0  # on a rank; -1: from the headers of the model's files
    draft_weights_gib: float = -1.0
    load_overhead_gib: float = 0.0  # beside the tensors: buffers that a loader leaves
    taken_before_sizing_gib: float = 0.0  # gone between the line that ends the load and the sizing
    noise_mib: float = 0.0  # start-to-start: up to so much more is gone before the sizing (loader temporaries)
    rank_noise_mib: float = 0.0  # and so much more, drawn for each rank
    # --- after the pool
    workspace_gib: float = 0.25  # attention workspaces, assumed
    graph_base_gib: float = 0.35  # assumed; real captures: 0.1 to 6 GiB
    graph_mib_per_batch: float = 1.6
    prefill_graph_gib: float = 0.6
    # --- under load
    wanted_bytes_per_token: float = -1.0  # largest tensor of a chunk, a token; -1: top-k x hidden x 2 of the model
    chunk_ratio: float = 1.3  # all tensors of a chunk, as a multiple of the largest
    context_bytes_per_token: float = 5120.0  # of the longest request of the batch, assumed
    both_bytes: float = 0.5  # for each token of the chunk and each of the context, assumed
    decode_bytes_per_request: float = 0.0  # beyond the graphs' own
    fragmentation_gib: float = 1.4  # reserved and not usable in the end (the reference case)
    fragmentation_clean_gib: float = 0.1
    fragmentation_prefills: float = 6.0  # prefills on a full cache after which it is two thirds there
    expandable_share: float = 0.15  # what is left of it with expandable segments, assumed
    growth_mib_per_request: float = 0.0  # never given back
    # --- time, at speed 1. The defaults add up to the 450 s of the reference case
    init_seconds: float = 25.0
    weights_seconds: float = 290.0
    pool_seconds: float = 5.0
    graphs_seconds: float = 100.0
    warmup_seconds: float = 30.0
    shutdown_seconds: float = 0.0
    prefill_tokens_per_second: float = 8000.0
    decode_step_seconds: float = 0.03
    # --- how it answers
    admission_share: float = 0.4  # of the wanted answer that must fit when a request is admitted (new_token_ratio)


def _file() -> dict:
    try:
        with open(os.environ.get("PLAYED_MODEL") or FILE, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return {}


def read() -> Settings:
    """The knobs of this start. Raises ValueError for a knob that does not exist."""
    given = {**_file(), **json.loads(os.environ.get("PLAYED_SET") or "{}")}
    for name, knob in (("PLAYED_NOISE_MIB", "noise_mib"), ("PLAYED_RANK_NOISE_MIB", "rank_noise_mib")):
        if os.environ.get(name):
            given[knob] = float(os.environ[name])
    given = {name: value for name, value in given.items() if not name.startswith("#")}
    unknown = sorted(set(given) - {field.name for field in fields(Settings)})
    if unknown:
        raise ValueError(f"Expected knobs of the played engine, found {', '.join(unknown)}: see settings.py.")
    return Settings(**given)


def speed() -> float:
    """How many times faster than real."""
    return float(os.environ.get("PLAYED_SPEED") or 1.0)


def noise(settings: Settings, start: int, rank: int | None) -> float:
    """GiB that this start (and, with a rank, this rank) loses. The same seed and start number give the same."""
    seed = os.environ.get("PLAYED_SEED")
    drawn = random.Random(None if seed is None else f"{seed}:{start}:{rank}").random()
    return drawn * (settings.noise_mib if rank is None else settings.rank_noise_mib) / 1024
