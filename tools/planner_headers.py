# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of 200 shards, headers only, and the processor time in which they are read. For bench_planner.py."""

from __future__ import annotations

import json
import struct
import tempfile
import time
from pathlib import Path

# An expert of DeepSeek-V3: FP8 with a scale for each block of 128 x 128.
EXPERT = (
    ("gate_proj.weight", "F8_E4M3", [2048, 7168], 2048 * 7168),
    ("gate_proj.weight_scale_inv", "F32", [16, 56], 16 * 56 * 4),
    ("up_proj.weight", "F8_E4M3", [2048, 7168], 2048 * 7168),
    ("up_proj.weight_scale_inv", "F32", [16, 56], 16 * 56 * 4),
    ("down_proj.weight", "F8_E4M3", [7168, 2048], 2048 * 7168),
    ("down_proj.weight_scale_inv", "F32", [56, 16], 16 * 56 * 4),
)
SHARDS = 200
# Experts of a shard: 93,600 tensors as DeepSeek-V3 has, 230,400 as Kimi K2 has in four bits.
EXPERTS_OF_SHARD = (78, 192)
# A folder of 200 shards is read in under a second, up to the tensors of DeepSeek-V3.
MOST_SECONDS, MOST_TENSORS = 1.0, 100_000
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
}


def write(folder, experts_of_shard, shards=SHARDS):
    """Write a model of sparse files into the Path C(folder), experts of two layers; return the number of tensors."""
    weight_map = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        header, end = {}, 0
        for one in range(shard * experts_of_shard, (shard + 1) * experts_of_shard):
            for kind, dtype, shape, size in EXPERT:
                tensor = f"model.layers.{shard % 2}.mlp.experts.{one}.{kind}"
                header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
                weight_map[tensor] = name
                end += size
        text = json.dumps(header, separators=(",", ":")).encode()
        with open(folder / name, "wb") as handle:
            handle.write(struct.pack("<Q", len(text)) + text)
            handle.truncate(8 + len(text) + end)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return len(weight_map)


def read(read_folder, folder, turns=3):
    """Return (what C(read_folder) returns, the least seconds of processor time: others share caches and cores)."""
    seconds = []
    for _turn in range(turns):
        begin = time.process_time()
        result = read_folder(str(folder))
        seconds.append(time.process_time() - begin)
    return result, min(seconds)


def bound(tensors):
    """Return the most seconds for a folder of so many tensors; None: printed only."""
    return MOST_SECONDS if tensors <= MOST_TENSORS else None


def measured(read_folder):
    """Return [(tensors, seconds)] for each size of folder."""
    found = []
    for experts_of_shard in EXPERTS_OF_SHARD:
        with tempfile.TemporaryDirectory() as place:
            tensors = write(Path(place), experts_of_shard)
            found.append((tensors, read(read_folder, place)[1]))
    return found


def lines(found):
    """Yield a line for each size of folder."""
    for tensors, seconds in found:
        most = bound(tensors)
        asked = "" if most is None else f", at most {most:.0f}"
        yield f"{SHARDS} shards, {tensors:,} tensors: {seconds:.2f} s of processor time{asked}"


def missed(found):
    """Return the bounds that are missed, as sentences."""
    slow = [(tensors, seconds) for tensors, seconds in found if bound(tensors) and seconds > bound(tensors)]
    return [f"headers of {SHARDS} shards with {tensors:,} tensors in {seconds:.2f} s" for tensors, seconds in slow]
