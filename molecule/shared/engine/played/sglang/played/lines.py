# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a start, in the wording of each version. Source: a start of 0.5.23 on a CPU, and the wheels."""

from __future__ import annotations

from sglang.played import versions


def server_args(arguments) -> str:
    """With the keys in clear, as every version prints them. A record up to 0.5.18, a dictionary since."""
    fields = {name: value for name, value in vars(arguments).items() if name != "config"}
    if versions.at_least("0.5.19"):
        return f"server_args={fields}"
    return "server_args=ServerArgs({})".format(", ".join(f"{name}={value!r}" for name, value in fields.items()))


def distributed() -> list[str]:
    if versions.at_least("0.5.21"):
        ends = "Init parallel ends. elapsed=0.03 s"
        return ["Init parallel begin.", ends, "Memory baseline taken. mem usage=0.00 GB"]
    elapsed = "elapsed=0.03 s, " if versions.at_least("0.5.9") else ""
    return ["Init torch distributed begin.", f"Init torch distributed ends. {elapsed}mem usage=0.00 GB"]


def load_begin(free_gib: float) -> str:
    return f"Load weight begin. avail mem={free_gib:.2f} GB"


def progress(shards: int) -> str:
    """The bar as it is written: one entry a shard up to 0.5.7, all in one line since."""
    many = versions.at_least("0.5.10")
    end = "" if versions.at_least("0.5.8") else "\n"
    what = "Multi-thread loading shards" if many else "Loading safetensors checkpoint shards"
    text = f"\r{what}:   0% Completed | 0/{shards} [00:00<?, ?it/s]{end}"
    for number in range(1, shards + 1):
        percent = number * 100 // shards
        text += f"\r{what}: {percent:3d}% Completed | {number}/{shards} [00:00<00:00, 486.01it/s]{end}"
    return text + "\n"


def load_end(model, free_gib: float, elapsed: float) -> str:
    seconds = f"elapsed={elapsed:.2f} s, " if versions.at_least("0.5.9") else ""
    dtype = "" if versions.at_least("0.5.10") else f"dtype=torch.{model.dtype}, "
    return (
        f"Load weight end. {seconds}type={model.architecture}, {dtype}avail mem={free_gib:.2f} GB, "
        f"mem usage={model.weight_gib:.2f} GB."
    )


def kv_dtype(model) -> list[str]:
    told = versions.at_least("0.5.4") and not versions.at_least("0.5.14")
    return [f"Using KV cache dtype: torch.{model.dtype}"] if told else []


def pool_lines(pool, model, cap: int | None) -> list[str]:
    lines = []
    if cap and cap > pool.profiled_tokens:
        lines.append(
            f"max_total_tokens={cap} is larger than the profiled value {pool.profiled_tokens}. "
            "Use the profiled value instead."
        )
    dtype = f"dtype: torch.{model.dtype}, " if versions.at_least("0.5.13") else ""
    lines.append(
        f"KV Cache is allocated. {dtype}#tokens: {pool.tokens}, "
        f"K size: {pool.half_gib:.2f} GB, V size: {pool.half_gib:.2f} GB"
    )
    lines.append(f"Memory pool end. avail mem={pool.free_after_gib:.2f} GB")
    if versions.at_least("0.5.23") and pool.tokens < model.context_tokens:
        lines.append(
            f"KV pool holds {pool.tokens} tokens, fewer than --context-length {model.context_tokens}. One full-length "
            "request cannot fit, so long requests will be refused or truncated at serving time. Lower "
            "--context-length, raise --mem-fraction-static, or free memory taken before the pool is sized."
        )
    return lines


def summary(pool, model, arguments) -> str:
    kind = "cpu" if arguments.device == "cpu" else "gpu"
    chunk = 4096 if arguments.chunked_prefill_size is None else arguments.chunked_prefill_size
    return (
        f"max_total_num_tokens={pool.tokens}, chunked_prefill_size={chunk}, "
        f"max_prefill_tokens={arguments.max_prefill_tokens}, max_running_requests={pool.running_requests}, "
        f"context_len={model.context_tokens}, available_{kind}_mem={pool.free_ready_gib:.2f} GB"
    )


def after_summary() -> list[str]:
    if not versions.at_least("0.5.17"):
        return []
    hybrid = "hybrid_swa=False hybrid_ssm=False hicache_attached=False"
    return [f"Tree cache initialized: source=default impl=UnifiedRadixCache {hybrid}"]


def timings(load_seconds: float) -> list[str]:
    if not versions.at_least("0.5.17"):
        return []
    return [
        f"Engine startup timings (s): load_weight={load_seconds:.2f}, kv_cache_allocation=0.01, scheduler_e2e=0.20, "
        "cuda_graph={prefill=0.00, decode=0.00}, tokenizer_e2e=0.50"
    ]


def prefill(new_tokens: int, cached_tokens: int, usage: float, running: int, queued: int) -> str:
    comma = "," if versions.at_least("0.5.0") else "."
    return (
        f"Prefill batch{comma} #new-seq: 1, #new-token: {new_tokens}, #cached-token: {cached_tokens}, "
        f"token usage: {usage:.2f}, #running-req: {running}, #queue-req: {queued}, "
    )


def decode(running: int, tokens: int, usage: float, speed: float, queued: int) -> str:
    return (
        f"Decode batch, #running-req: {running}, #token: {tokens}, token usage: {usage:.2f}, cpu graph: False, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: {queued}, "
    )


def kill_tree(pid: int, include_parent: bool) -> list[str]:
    if not versions.at_least("0.5.13"):
        return []
    return [f"kill_process_tree called: parent_pid={pid}, include_parent={include_parent}, pid={pid}"]
