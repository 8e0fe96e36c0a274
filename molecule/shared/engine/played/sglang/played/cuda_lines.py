# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a start on GPUs, in the wording of each version.

Sources: the wheels 0.4.6 to 0.5.23 (srt/model_executor, srt/mem_cache, srt/distributed/bootstrap.py) and public logs.
"""

from __future__ import annotations

from sglang.played import versions


def baseline(elapsed: float, usage_gib: float) -> list[str]:
    """The end of the distributed initialisation."""
    if versions.at_least("0.5.21"):
        return [f"Init parallel ends. elapsed={elapsed:.2f} s", f"Memory baseline taken. mem usage={usage_gib:.2f} GB"]
    told = f"elapsed={elapsed:.2f} s, " if versions.at_least("0.5.9") else ""
    return [f"Init torch distributed ends. {told}mem usage={usage_gib:.2f} GB"]


def init_begin() -> str:
    return "Init parallel begin." if versions.at_least("0.5.21") else "Init torch distributed begin."


QUANTIZATIONS = {
    "fp8": "quant=fp8, fmt=e4m3, ", "mxfp4": "quant=mxfp4, ", "compressed-tensors": "quant=compressed-tensors, ",
    "awq": "quant=awq, bits=4, ",
}


def load_end(model, free_gib: float, usage_gib: float, elapsed: float) -> str:
    seconds = f"elapsed={elapsed:.2f} s, " if versions.at_least("0.5.9") else ""
    dtype = f"dtype=torch.{model.dtype}, "
    if versions.at_least("0.5.10"):
        dtype = QUANTIZATIONS.get(model.quantization, f"quant={model.quantization}, " if model.quantization else "")
    return (
        f"Load weight end. {seconds}type={model.architecture}, {dtype}avail mem={free_gib:.2f} GB, "
        f"mem usage={usage_gib:.2f} GB."
    )


def unbalanced(pre_gib: float, local_gib: float) -> str:
    """Why a start is refused whose boards differ (bootstrap._check_tp_memory_balance)."""
    text = "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
    names = ("pre_model_load_memory", "local_gpu_memory") if versions.at_least("0.5.10") else (
        "min_per_gpu_memory", "local_gpu_memory")
    return text + f"{names[0]}={pre_gib}, {names[1]}={local_gib}, {names[1]} * 0.9={local_gib * 0.9}"


# --- pool


def kv_dtype(pool) -> list[str]:
    told = versions.at_least("0.5.4") and not versions.at_least("0.5.14")
    return [f"Using KV cache dtype: torch.{pool.dtype}"] if told else []


def allocated(tokens: int, gib: float, pool, label: str = "") -> str:
    dtype = f"dtype: torch.{pool.dtype}, " if versions.at_least("0.5.13") else ""
    head = f"{label} KV Cache" if label and versions.at_least("0.5.17") else "KV Cache"
    if not pool.halves:
        return f"{head} is allocated. {dtype}#tokens: {tokens}, KV size: {gib:.2f} GB"
    return f"{head} is allocated. {dtype}#tokens: {tokens}, K size: {gib / 2:.2f} GB, V size: {gib / 2:.2f} GB"


def pools(pool, gib: float, cap: int | None, draft: bool = False) -> list[str]:
    """The lines of the pools of a runner. gib: of its full layers."""
    found = []
    if cap and cap > pool.profiled_tokens and not draft:
        found.append(
            f"max_total_tokens={cap} is larger than the profiled value {pool.profiled_tokens}. "
            "Use the profiled value instead."
        )
    if pool.slots and not draft and versions.at_least("0.5.2"):
        # A size that ends in a blank, as it is printed.
        found.append(
            f"Mamba Cache is allocated. max_mamba_cache_size: {pool.slots}, conv_state size: {pool.conv_gib:.2f}GB, "
            f"ssm_state size: {pool.ssm_gib:.2f}GB "
        )
    if not pool.sliding_tokens or draft:
        return [*found, allocated(pool.tokens, gib, pool)]
    word = "sliding" if versions.at_least("0.5.5") else "Sliding"
    found.append(
        f"Use {word} window memory pool. full_layer_tokens={pool.tokens}, swa_layer_tokens={pool.sliding_tokens}"
    )
    sliding_gib = pool.sliding_bytes / 1024**3
    found += [allocated(pool.sliding_tokens, sliding_gib, pool, "SWA"), allocated(pool.tokens, gib, pool, "Full")]
    if versions.at_least("0.5.4"):
        both = f"{gib + sliding_gib:.2f}" if versions.at_least("0.5.8") else str(gib + sliding_gib)
        found.append(f"SWAKVPool mem usage: {both} GB, swa size: {pool.sliding_tokens}, full size: {pool.tokens}")
    return found


def pool_end(free_gib: float) -> str:
    return f"Memory pool end. avail mem={free_gib:.2f} GB"


def short_pool(pool, context_tokens: int) -> list[str]:
    if not versions.at_least("0.5.23") or pool.tokens >= context_tokens:
        return []
    return [
        f"KV pool holds {pool.tokens} tokens, fewer than --context-length {context_tokens}. One full-length request "
        "cannot fit, so long requests will be refused or truncated at serving time. Lower --context-length, raise "
        "--mem-fraction-static, or free memory taken before the pool is sized."
    ]


# --- graphs


def graph_name(role: str, kind: str) -> str:
    """What is captured. role: target or draft; kind: decode, verify or extend."""
    if versions.at_least("0.5.14"):
        return f"{role} {kind} CUDA graph"
    if role == "target":
        return "cuda graph"
    return "draft extend cuda graph" if kind == "extend" else "draft cuda graph"


def decode_begin(batches: list[int], free_gib: float, name: str, tokens: int) -> str:
    """The line before the decode graphs. tokens: of a request in a pass (1, or more with a draft)."""
    if not versions.at_least("0.5.14"):
        return f"Capture {name} begin. This can take up to several minutes. avail mem={free_gib:.2f} GB"
    sizes = "" if versions.at_least("0.5.22") and name.startswith("target") else f"bs={batches}, "
    unit = "num_tokens_per_req" if versions.at_least("0.5.18") or tokens > 1 else "num_tokens_per_bs"
    return f"Capture {name} begin. backend=full, {unit}={tokens}, {sizes}avail mem={free_gib:.2f} GB"


def batches_line(batches: list[int]) -> list[str]:
    return [] if versions.at_least("0.5.14") else [f"Capture cuda graph bs {batches}"]


def decode_end(batches: list[int], elapsed: float, usage: float, free: float, name: str) -> str:
    if not versions.at_least("0.5.14"):
        return f"Capture {name} end. Time elapsed: {elapsed:.2f} s. mem usage={usage:.2f} GB. avail mem={free:.2f} GB."
    sizes = f"bs={batches}, " if versions.at_least("0.5.22") and name.startswith("target") else ""
    return f"Capture {name} end. {sizes}elapsed={elapsed:.2f} s, mem usage={usage:.2f} GB, avail mem={free:.2f} GB."


def prefill_begin(sizes: list[int], free: float) -> str:
    if not versions.at_least("0.5.14"):
        return f"Capture piecewise CUDA graph begin. avail mem={free:.2f} GB"
    return f"Capture target prefill CUDA graph begin. backend=breakable, num_tokens={sizes}, avail mem={free:.2f} GB"


def prefill_end(elapsed: float, usage: float, free: float) -> str:
    if not versions.at_least("0.5.14"):
        return (
            f"Capture piecewise CUDA graph end. Time elapsed: {elapsed:.2f} s. mem usage={usage:.2f} GB. "
            f"avail mem={free:.2f} GB."
        )
    return (
        f"Capture target prefill CUDA graph end. elapsed={elapsed:.2f} s, mem usage={usage:.2f} GB, "
        f"avail mem={free:.2f} GB."
    )


def capture_failed(text: str) -> str:
    """The exception that wraps a failure of a capture, whatever its cause (runner_backend_utils, cuda_graph_runner)."""
    lines = ["1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)"]
    if versions.at_least("0.5.14"):
        lines.append("2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)")
        lines.append("3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. "
                     "(Not recommended. Huge performance loss)")
    else:
        lines.append("2. set --cuda-graph-max-bs to a smaller value (e.g., 16)")
        lines.append("3. disable torch compile by not using --enable-torch-compile")
        lines.append("4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)")
    lines.append("Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n")
    return f"Capture cuda graph failed: {text}\nPossible solutions:\n" + "\n".join(lines)


def piecewise_failed(text: str) -> list[str]:
    """What is said before the exception of a prefill graph; nothing since the backends of 0.5.14."""
    if versions.at_least("0.5.14"):
        return []
    return [
        f"Piecewise CUDA Graph failed with error: {text}\nPiecewise CUDA Graph is enabled by default as an "
        "experimental feature.\nTo work around this error, add --disable-piecewise-cuda-graph to your launch command.\n"
        "Please report this issue at https://github.com/sgl-project/sglang/issues/new/choose"
    ]


# --- ready and running


def final(pool, context: int, chunk: int, max_prefill: int, free_gib: float) -> str:
    told = f", available_gpu_mem={free_gib:.2f} GB" if versions.at_least("0.4.9") else ""
    return (
        f"max_total_num_tokens={pool.tokens}, chunked_prefill_size={chunk}, max_prefill_tokens={max_prefill}, "
        f"max_running_requests={pool.running_requests}, context_len={context}{told}"
    )


def tree_cache(radix: bool, window: bool, state: bool) -> list[str]:
    if not versions.at_least("0.5.17"):
        return []
    kind = "ChunkCache" if not radix else "UnifiedRadixCache" if versions.at_least("0.5.23") else "RadixCache"
    return [f"Tree cache initialized: source=default impl={kind} hybrid_swa={window} hybrid_ssm={state} "
            "hicache_attached=False"]


def timings(load: float, pool: float, total: float, prefill: float, decode: float) -> list[str]:
    if not versions.at_least("0.5.17"):
        return []
    return [
        f"Engine startup timings (s): load_weight={load:.2f}, kv_cache_allocation={pool:.2f}, "
        f"scheduler_e2e={total:.2f}, cuda_graph={{prefill={prefill:.2f}, decode={decode:.2f}}}, "
        f"tokenizer_e2e={total + 0.5:.2f}"
    ]


def usage_text(usage: float, window: bool, state: bool) -> str:
    """How full the pools are; those of hybrid models apart, since 0.5.10."""
    if not versions.at_least("0.5.10") or not (window or state):
        return f"token usage: {usage:.2f}"
    more = f", swa token usage: {usage:.2f}" if window else f", mamba usage: {usage:.2f}"
    return f"full token usage: {usage:.2f}{more}"


def prefill_batch(sequences, new, cached, usage, running, queued, pending, speed) -> str:
    """usage: a text. A full stop after the first words up to 0.5.4 (public logs of 0.5.2, 0.5.3.post3 and 0.5.5)."""
    comma = "," if versions.at_least("0.5.5") else "."
    tail = ""
    if versions.at_least("0.5.12"):
        tail = f"#pending-token: {pending}, cuda graph: False, input throughput (token/s): {speed:.2f}"
    return (
        f"Prefill batch{comma} #new-seq: {sequences}, #new-token: {new}, #cached-token: {cached}, "
        f"{usage}, #running-req: {running}, #queue-req: {queued}, {tail}"
    )


def decode_batch(running, tokens, usage, speed, queued) -> str:
    comma = "," if versions.at_least("0.5.5") else "."
    unit = "#full token" if usage.startswith("full") else "#token"
    return (
        f"Decode batch{comma} #running-req: {running}, {unit}: {tokens}, {usage}, cuda graph: True, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: {queued}, "
    )


def retracted(requests: int, gained: int, before: float, after: float) -> str:
    if not versions.at_least("0.4.9"):
        ratios = f"#new_token_ratio: {before:.4f} -> {after:.4f}"
        return f"Decode out of memory happened. #retracted_reqs: {requests}, {ratios}"
    return (
        f"KV cache pool is full. Retract requests. #retracted_reqs: {requests}, #new_tokens_gained: {gained}, "
        f"#new_token_ratio: {before:.4f} -> {after:.4f}"
    )


def watchdog(seconds: float) -> str:
    if not versions.at_least("0.5.8"):
        return f"Watchdog timeout (self.watchdog_timeout={seconds:g})"
    return f"Scheduler watchdog timeout (self.watchdog_timeout={seconds:g}, self.soft=False)"


def unhealthy(seconds: int, began: str, heard: str) -> str:
    return (
        f"Health check failed. Server couldn't get a response from detokenizer for last {seconds} seconds. "
        f"tic start time: {began}. last_heartbeat time: {heard}"
    )


def dummy_health(host: str, port: int) -> str:
    if versions.at_least("0.5.6"):
        return f"Dummy health check server started in background thread at {host}:{port}"
    return f"Dummy health check server scheduled on existing loop at {host}:{port}"


# --- bars, written to standard error without the log's prefix


def weights_bar(what: str, number: int, total: int, elapsed: float) -> str:
    """One update of a bar of weights: an entry of its own up to 0.5.7, one growing line since."""
    end = "" if versions.at_least("0.5.8") else "\n"
    rate = number / elapsed if elapsed > 0 and number else 0.0
    left = (total - number) / rate if rate else 0.0
    times = f"{_clock(elapsed)}<{_clock(left) if number else '?'}, {f'{rate:5.2f}' if number else '?'}it/s"
    return f"\r{what}: {number * 100 // total:3d}% Completed | {number}/{total} [{times}]{end}"


def weights_bar_name(shards: int) -> str:
    return "Multi-thread loading shards" if versions.at_least("0.5.10") else "Loading safetensors checkpoint shards"


def capture_bar(prefill: bool, one: int, free_gib: float, number: int, total: int, elapsed: float) -> str:
    """An update of the bar of a capture; a bar of prefill tells tokens, in other words since 0.5.23."""
    name, size = "Capturing batches", f"bs={one} " if versions.at_least("0.4.9") else ""
    if prefill:
        name = "Capturing prefill shape" if versions.at_least("0.5.23") else "Capturing num tokens"
        size = f"num_tokens={one} "
    told = f"({size}avail_mem={free_gib:.2f} GB)"
    percent = number * 100 // total
    fill = "#" * (number * 10 // total)
    rate = f"{number / elapsed:5.2f}it/s" if number and elapsed > 0 else "?it/s"
    return f"\r{name} {told}: {percent:3d}%|{fill:<10}| {number}/{total} [{_clock(elapsed)}<00:00, {rate}]"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
