# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for bench_converge.py: a board and a model of public start-ups, and how the model behaves under load.

A public start-up gives a model with its weights, or a board; where it names the board and the ranks too, these stay
together. What no public start-up tells (spike of a chunk, growth, fragmentation) is drawn around the reference case.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import planner_starts
import yaml

from ansible_collections.gpufleet.sglang.plugins.module_utils._model import read_geometry  # isort: skip

GIB = 2**30
# The played engine has one head size a model, no compressed layouts and no states in these rows.
NOT_PLAYED = ("Gemma4", "DeepseekV4", "KimiK3", "Lfm2", "Qwen3_5")
# The reference case beside the public rows: eight boards, 75 GiB of weights on each (docs/memory.md).
REFERENCE = {"name": "moonshotai/Kimi-K2-Instruct", "bytes": 75 * 8 * GIB, "ranks": 8, "board": "rtxpro6000"}
# Versions for rows of one that the played engine has no rules for. Before 0.5.20 two starts differ by loader
# temporaries.
VERSIONS = ("0.5.9", "0.5.12", "0.5.14", "0.5.19", "0.5.20", "0.5.22", "0.5.23")
# What the public figures leave out: width of the feed-forward layers, by the models' config.json.
WIDTHS = {
    "meta-llama/Llama-3.1-8B-Instruct": 14336,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": 18944,
    "Qwen/Qwen2.5-1.5B-Instruct": 8960,
    "Qwen/Qwen2.5-0.5B-Instruct": 4864,
}
OLDEST_VERSION = (0, 5, 6)
LEAST_POOL_GIB = 2.0
# Fractions of public start-ups from here on: those below serve several models on a board.
LEAST_FRACTION = 0.7
# Share of the hosts with one figure that lies far from all public ones.
SURPRISES = 0.3


@dataclass(frozen=True)
class Model:
    """A model of a public start-up. C(board), C(ranks): those of that start-up, None where it does not say."""

    name: str
    config: dict
    weight_bytes: int
    board: str | None = None
    ranks: int | None = None
    version: str | None = None


@dataclass(frozen=True)
class Host:
    """A host with its promise. C(board), C(knobs): of the played engine, what the product cannot know. C(known): what
    the product is given, options of memory_plan. C(target_tokens): what somebody promised."""

    name: str
    version: str
    ranks: int
    folder: str
    board: dict
    knobs: dict
    known: dict
    target_tokens: int
    seed: int


def models(starts: list, checkpoints: dict) -> list[Model]:
    """The models of the public start-ups whose weights are printed or whose files are known."""
    shapes, more = planner_starts.load("geometry"), planner_starts.load("bench")["shapes"]
    found = {}
    for start in starts:
        name = start.more.get("geometry")
        weights = _weight_bytes(start, checkpoints)
        if start.geometry is None or weights is None or start.row["speculative"]:
            continue
        config = _config({"intermediate_size": WIDTHS.get(name), **shapes[name]}, more.get(name, {}).get("keys", {}))
        if config is None:
            continue
        board = start.more.get("board")
        found.setdefault((name, board), Model(name, config, weights, board, board and start.row["tp"], start.version))
    kimi = _config(shapes[REFERENCE["name"]], {})
    reference = Model(REFERENCE["name"], kimi, REFERENCE["bytes"], REFERENCE["board"], REFERENCE["ranks"])
    return [*found.values(), reference]


def _weight_bytes(start, checkpoints: dict) -> int | None:
    known = checkpoints.get(start.more.get("checkpoint") or start.more.get("geometry"))
    if known and not start.more.get("partial_weights"):
        return known["bytes"]
    return None if start.weights_gib is None else int(start.weights_gib * (start.row["tp"] or 1) * GIB)


def _config(shape: dict, keys: dict) -> dict | None:
    """A config.json that both sides read, None where the public figures are too few for the played engine."""
    whole = {key: value for key, value in {**shape, **keys}.items() if value is not None and key != "how_known"}
    config = whole.get("text_config") or whole
    architecture = str((whole.get("architectures") or config.get("architectures") or ["LlamaForCausalLM"])[0])
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    if architecture.startswith(NOT_PLAYED) or not all(config.get(name) for name in needed):
        return None
    config = {key: value for key, value in config.items() if key not in ("vision_config", "text_config")}
    config.setdefault("max_position_embeddings", 131072)
    config.setdefault("vocab_size", 131072)
    plain = architecture.replace("VLForConditionalGeneration", "ForCausalLM")
    return {**config, "architectures": [plain], "torch_dtype": "bfloat16"}


# ----------------------------------------------------------------------------------------------------------------
# What is drawn


class Drawer:
    """Draws hosts; the models' folders are made once."""

    def __init__(self, folder: Path, seed: int, surprises: float):
        """C(surprises): share of the hosts with a figure that no table of a planner knows."""
        self.surprises = surprises
        self.source = random.Random(seed)
        self.folder = folder
        starts, self.boards, checkpoints = planner_starts.starts()
        self.models = models(starts, checkpoints)
        told = sorted(start.fraction for start in starts if start.fraction)
        self.fractions = [one for one in told if one >= LEAST_FRACTION]

    def draw(self) -> Host:
        """A host with a model that leaves at least so much for a pool that somebody would promise one."""
        while True:
            model = self.source.choice(self.models)
            board = model.board or self.source.choice(sorted(self.boards))
            ranks = model.ranks or self.source.choice((1, 2, 4, 8))
            free_gib = self.boards[board]["free"] / 1024
            weights_gib = model.weight_bytes / ranks / GIB
            fits = 0.9 * free_gib - weights_gib > LEAST_POOL_GIB and model.config["num_attention_heads"] % ranks == 0
            if fits and (model.board or weights_gib > 0.1 * free_gib):
                return self._host(model, board, ranks)

    def _host(self, model: Model, board: str, ranks: int) -> Host:
        source, found = self.source, self.boards[board]
        version = model.version
        if version is None or tuple(int(part) for part in version.split(".")) < OLDEST_VERSION:
            version = source.choice(VERSIONS)
        new = tuple(int(part) for part in version.split(".")) >= (0, 5, 20)
        weights_gib = model.weight_bytes / ranks / GIB
        knobs = self._knobs(weights_gib, ranks, new, found["total"] / 1024, model.config)
        pre_gib = found["free"] / 1024 - knobs["context_gib"] - knobs["nccl_gib"]
        # Images are another subject: the text side alone.
        geometry = dict(read_geometry(model.config), multimodal=False)
        known = {
            "arguments": {"tp-size": ranks},
            "geometry": geometry,
            "max_context_tokens": geometry.get("max_context_tokens"),
            "weight_bytes": model.weight_bytes,
            "engine_version": version,
            "gpus": [
                {
                    "index": index,
                    "name": board,
                    "memory_total_mib": found["total"],
                    "memory_free_mib": found["free"],
                    "compute_capability": found["capability"],
                }
                for index in range(ranks)
            ],
        }
        # So many tokens as a person would reckon: up to what a fraction of a public start-up leaves.
        rest_gib = max(source.choice(self.fractions) * pre_gib - weights_gib, LEAST_POOL_GIB)
        tokens = int(source.uniform(0.6, 1.0) * rest_gib * GIB / cell_bytes(model.config, ranks))
        tokens = max(tokens // 1000 * 1000, 4000)
        if source.random() < 0.5:
            limits = (source.choice((8192, 32768, 65536)), known["max_context_tokens"], tokens)
            known["context_tokens"] = min(limit for limit in limits if limit)
        return Host(
            name=f"{model.name} on {ranks} x {board}, {version}",
            version=version,
            ranks=ranks,
            folder=self._folder_of(model),
            board={
                "index": 0,
                "total_mib": found["total"],
                "torch_total_gib": found["free"] / 1024,
                "driver_mib": 0,
            },
            knobs=knobs,
            known=known,
            target_tokens=tokens,
            seed=source.randrange(10**6),
        )

    def _knobs(self, weights_gib: float, ranks: int, new: bool, board_gib: float, config: dict) -> dict:
        """Public figures: context and collectives before the load, what a load takes beside its files, graphs; noise of
        500 MiB at 75 GiB of weights and of 10 MiB at 5 to 13. The rest is assumed, around the reference case."""
        source = self.source
        collectives = {1: (0.0, 0.0), 2: (0.05, 0.35), 4: (0.2, 0.8), 8: (0.7, 1.5)}[ranks]
        size = min(board_gib / 95, 1.0)
        found = {
            "context_gib": source.uniform(0.45, 0.75),
            "nccl_gib": source.uniform(*collectives),
            "weights_gib": weights_gib * source.uniform(1.0, 1.01 if ranks > 1 else 1.001),
            "load_overhead_gib": source.uniform(0.06, 0.18),
            "taken_before_sizing_gib": 0.0 if new else source.uniform(0.01, 0.08),
            "noise_mib": source.uniform(0, 20) if new else 10 + source.uniform(0, 490) * min(weights_gib / 75, 1.0),
            "workspace_gib": source.uniform(0.05, 0.45),
            "graph_base_gib": source.uniform(0.03, 0.3),
            "graph_mib_per_batch": source.uniform(0.3, 1.9),
            "prefill_graph_gib": source.uniform(0.3, 1.3) * (1.0 if board_gib > 40 else 0.5),
            "chunk_ratio": source.uniform(1.05, 1.8),
            "context_bytes_per_token": source.uniform(1000, 6000) * max(config["hidden_size"], 2048) / 7168,
            "both_bytes": source.choice((0.0, 0.0, source.uniform(0.1, 0.8))),
            "decode_bytes_per_request": source.choice((0.0, source.uniform(0, 10e6))),
            "fragmentation_gib": source.uniform(0.2, 1.6) * size,
            "fragmentation_clean_gib": 0.05,
            "fragmentation_prefills": source.uniform(2, 20),
            "growth_mib_per_request": source.choice((0.0, 0.0, 0.0, source.uniform(0.05, 0.5))),
            "prefill_tokens_per_second": source.uniform(3000, 20000),
            "decode_step_seconds": source.uniform(0.01, 0.05),
            "admission_share": source.uniform(0.2, 0.7),
        }
        if source.random() < self.surprises:
            found.update(self._surprise(size))
        return found

    def _surprise(self, size: float) -> dict:
        """What no table of a planner knows: one figure far from the usual ones. C(size): the board's, 1 for 95 GiB."""
        source = self.source
        return source.choice(
            (
                {"chunk_ratio": source.uniform(2.0, 5.0)},
                {"both_bytes": source.uniform(0.8, 3.0)},
                {"workspace_gib": source.uniform(0.5, 3.0) * size},
                {"graph_base_gib": source.uniform(0.5, 3.5) * size},
                {"load_overhead_gib": source.uniform(0.3, 2.5) * size},
                {"fragmentation_gib": source.uniform(1.5, 4.0) * size},
                {"decode_bytes_per_request": source.uniform(10e6, 60e6) * size},
            )
        )

    def _folder_of(self, model: Model) -> str:
        folder = self.folder / model.name.replace("/", "--")
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(json.dumps(model.config))
        return str(folder)


def cell_bytes(config: dict, ranks: int) -> float:
    """Bytes of a token on a rank in 16 bits, as a person reckons them: latents, or heads and layers."""
    if config.get("kv_lora_rank"):
        return (config["kv_lora_rank"] + config["qk_rope_head_dim"]) * config["num_hidden_layers"] * 2
    heads = max((config.get("num_key_value_heads") or config["num_attention_heads"]) / ranks, 1)
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return heads * 2 * head_dim * config["num_hidden_layers"] * 2


def described(host: Host) -> str:
    """A host as text that a person can run again."""
    return yaml.safe_dump({"name": host.name, "target": host.target_tokens, "knobs": host.knobs}, sort_keys=False)
