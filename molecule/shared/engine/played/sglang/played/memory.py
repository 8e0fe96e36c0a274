# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How memory is divided, on a CPU: from the model's files and the machine's available RAM. Figures in GiB."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from sglang.played import versions

GIB = 1024**3
ELEMENT_BYTES = {
    "float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "bf16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1,
}
# Between the line that ends the load and the sizing something is taken: three real starts of 0.5.23 on a CPU.
TAKEN_UNSEEN_GIB = 0.085
# The server that runs holds this much more than weights and pool.
TAKEN_READY_GIB = 0.09


class HFValidationError(ValueError):
    """The name that a path which is no folder gets from the hub's client."""


HFValidationError.__module__ = "huggingface_hub.errors"


def folder_of(path: str) -> str:
    """The path when it is a folder; else what the hub's client raises for a path, or for a model that is not cached."""
    if os.path.isdir(path):
        return path
    if path.count("/") > 1 or path.startswith((".", "/")):
        raise HFValidationError(
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed."
        )
    raise OSError(
        "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached "
        "files.\n"
        f"Check your internet connection or see how to run the library in offline mode: {path} is not a local folder"
    )


@dataclass(frozen=True)
class Model:
    """What the start must know of a model."""

    architecture: str
    model_type: str
    dtype: str
    context_tokens: int
    elements_a_token: int
    weight_gib: float
    shards: int


def read_model(server_args) -> Model:
    folder = folder_of(server_args.model_path)
    path = os.path.join(folder, "config.json")
    if not os.path.exists(path):
        raise OSError(f"{folder} does not appear to have a file named config.json. Checkout the available files.")
    with open(path) as stream:
        config = json.load(stream)
    config.update(json.loads(server_args.json_model_override_args or "{}"))
    text = config.get("text_config") or config
    stored = text.get("dtype") or text.get("torch_dtype") or "bfloat16"
    # "auto" takes float16 for a model that was saved in float32.
    dtype = server_args.dtype if server_args.dtype != "auto" else {"float32": "float16"}.get(stored, stored)
    dtype = {"half": "float16", "float": "float32"}.get(dtype, dtype)
    files = [name for name in os.listdir(folder) if name.endswith(".safetensors")]
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in files)
    return Model(
        architecture=(config.get("architectures") or ["LlamaForCausalLM"])[0],
        model_type=config.get("model_type", "llama"),
        dtype=dtype,
        context_tokens=server_args.context_length or text["max_position_embeddings"],
        elements_a_token=elements_a_token(text, server_args.tp_size),
        weight_gib=size / GIB * ELEMENT_BYTES[dtype] / ELEMENT_BYTES[stored] / server_args.tp_size,
        shards=max(len(files), 1),
    )


def elements_a_token(config: dict, tp_size: int) -> int:
    """Of keys and values, on one rank. A latent cache is stored whole on each rank."""
    layers = config["num_hidden_layers"]
    if config.get("kv_lora_rank"):
        return (config["kv_lora_rank"] + config["qk_rope_head_dim"]) * layers
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return max(heads // tp_size, 1) * 2 * head_dim * layers


def available_gib() -> float:
    with open("/proc/meminfo") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024 / GIB
    raise OSError("MemAvailable not found in /proc/meminfo")


@dataclass(frozen=True)
class Pool:
    """The key-value cache of a rank: tokens before and after the cap, bytes of a token, free GiB around it."""

    profiled_tokens: int
    tokens: int
    cell_bytes: int
    free_after_gib: float
    free_ready_gib: float
    running_requests: int

    @property
    def half_gib(self) -> float:
        """Keys or values."""
        return self.tokens * self.cell_bytes / GIB / 2


def size_pool(server_args, model: Model, before_gib: float, after_gib: float) -> Pool:
    """The pool from what is free before and after the load. Raises RuntimeError when nothing is left."""
    fraction = server_args.mem_fraction_static if server_args.mem_fraction_static is not None else 0.85
    kv_dtype = model.dtype if server_args.kv_cache_dtype == "auto" else server_args.kv_cache_dtype
    cell_bytes = model.elements_a_token * ELEMENT_BYTES.get(kv_dtype, 2)
    rest_gib = after_gib - TAKEN_UNSEEN_GIB - before_gib * (1 - fraction)
    profiled = int(rest_gib * GIB) // cell_bytes
    tokens = min(profiled, server_args.max_total_tokens or profiled)
    page = server_args.page_size or 1
    tokens = tokens // page * page
    if tokens <= 0:
        raise RuntimeError(
            "Not enough memory. Please try to increase --mem-fraction-static."
            f" Current value: mem_fraction_static={fraction}"
        )
    free_after = after_gib - TAKEN_UNSEEN_GIB - (tokens + page) * cell_bytes / GIB
    requests = server_args.max_running_requests
    if requests is None:
        requests = min(max(int(tokens / model.context_tokens * 512), 2048), 4096)
        if versions.at_least("0.5.23"):
            requests = min(requests, tokens // 2)
    return Pool(profiled, tokens, cell_bytes, free_after, free_after - TAKEN_READY_GIB, requests)
