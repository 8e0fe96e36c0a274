# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_startup_lines: the lines that a start-up prints (private to the collection).

Data: every form of line that is read, what takes long and says so, and what never belongs to a start-up. The readers of
these forms are in _startup and _startup_rank.
"""

from __future__ import annotations

import dataclasses
import re

PHASES = ("process", "init", "weights", "pool", "graphs", "warmup", "ready")
ORDER = {name: number for number, name in enumerate(PHASES)}

# Every form stands at the beginning of its line; the limit keeps the cost of a log linear in its length.
LINE_LENGTH = 4000

READY_LINE = "The server is fired up and ready to roll!"

# SGLang prints "GB" and means GiB.
GB = r"(-?\d{1,9}(?:\.\d{1,9})?) ?GB"


@dataclasses.dataclass(frozen=True)
class LineForm:
    """One form of line: a literal that it must hold (the cheap test), its pattern, and the phase that it begins.

    ``per_rank``: the line tells something of the rank that printed it; others tell something of the whole start-up.
    """

    name: str
    needle: str
    pattern: re.Pattern
    phase: str | None
    versions: str
    source: str
    per_rank: bool


def _form(name, needle, pattern, phase, versions, source):
    return LineForm(name, needle, re.compile(pattern), phase, versions, source, per_rank=False)


def _rank_form(name, needle, pattern, phase, versions, source):
    return LineForm(name, needle, re.compile(pattern), phase, versions, source, per_rank=True)


_RUNNER = "srt/model_executor/model_runner.py"
_POOL = "srt/mem_cache/memory_pool.py"

# Every known line of a start-up. The order does not matter; a line may serve several forms. Source: the files named,
# read in the wheels of the versions named, and public start-ups.
LINE_FORMS = (
    _rank_form(
        "init_begin", "begin", r"^Init (?:torch distributed|parallel) begin", "init", "all; parallel 0.5.21+", _RUNNER
    ),
    _rank_form("init_end", "ends.", r"^Init torch distributed ends\..*?mem usage=" + GB, None, "0.4.3-0.5.20", _RUNNER),
    _rank_form(
        "init_end",
        "Memory baseline taken",
        r"^Memory baseline taken\. mem usage=" + GB,
        None,
        "0.5.21+",
        "srt/distributed/bootstrap.py",
    ),
    _rank_form(
        "load_begin",
        "Load weight begin",
        r"(?:^|\s)Load weight begin\.(?:.*?avail mem=" + GB + ")?",
        "weights",
        "all",
        _RUNNER,
    ),
    _rank_form("load_end", "Load weight end", r"(?:^|\s)Load weight end\.(?! Committed)", "pool", "all", _RUNNER),
    _form("kv_dtype", "Using KV cache dtype", r"^Using KV cache dtype: (\S+)", None, "0.5.4-0.5.13", _RUNNER),
    _rank_form(
        "profile",
        "Memory profiling",
        r"^Memory profiling: available_gpu_memory="
        + GB
        + r", total_gpu_memory="
        + GB
        + r", mem_fraction_static=(\d*\.?\d{1,15})",
        None,
        "DeepSeek-V4 builds",
        "public start-ups",
    ),
    _rank_form(
        "full_tokens",
        "full_token=",
        r"^DS[Vv]4 memory calculation: .*?\bfull_token=(\d{1,15})\b",
        None,
        "0.5.12+",
        "pool_configurator.py",
    ),
    _rank_form(
        "swa",
        "SWAKVPool",
        r"^SWAKVPool (?P<kind>mem usage|VA upper bound): (?P<gib>\d{1,9}(?:\.\d{1,20})?) ?GB, "
        r"swa size: (?P<swa>\d{1,15}), full size: "
        r"(?P<full>\d{1,15})",
        None,
        "0.5.4+",
        "srt/mem_cache/swa_memory_pool.py",
    ),
    _rank_form(
        "swa_tokens",
        "liding window memory pool",
        r"^Use [Ss]liding window memory pool.{0,20}?(?:full_layer_tokens=(?P<full>\d{1,15}), )?"
        r"swa_layer_tokens=(?P<swa>\d{1,15})",
        None,
        "0.4.10+",
        "pool_configurator.py",
    ),
    _rank_form("state", "Mamba Cache is allocated", r"Mamba Cache is allocated\.", None, "0.5.2+", _POOL),
    _rank_form("pool", "KV Cache ", r"(?:^|\s)KV Cache (?P<kind>is allocated|VA upper bound)\.", None, "0.4.1+", _POOL),
    _rank_form("pool_end", "Memory pool end", r"(?:^|\s)Memory pool end\. avail mem=" + GB, None, "all", _RUNNER),
    _rank_form(
        "post_capture",
        "Post-capture KV sizing",
        r"^Post-capture KV sizing: (?P<draft>draft )?(?:KV cache allocated\.|max_total_num_tokens=(?P<total>\d{1,15})"
        r"|full_layer_tokens=(?P<full>\d{1,15})(?:, swa_layer_tokens=(?P<swa>\d{1,15}))?)",
        None,
        "0.5.16+",
        "srt/mem_cache/kv_pool_runtime.py",
    ),
    _rank_form(
        "graph_begin",
        " begin.",
        r"^Capture (?P<what>[\w -]{1,60}?) begin\.",
        "graphs",
        "all",
        "cuda_graph_runner.py",
    ),
    _rank_form(
        "graph_end", " end.", r"^Capture (?P<what>[\w -]{1,60}?) end\.", "graphs", "all", "cuda_graph_runner.py"
    ),
    _rank_form(
        "final",
        "max_total_num_tokens=",
        r"(?:^|\s)max_total_num_tokens=(\d{1,15})\b",
        "warmup",
        "0.4.0+",
        "srt/managers/scheduler.py",
    ),
    _form(
        "current_value",
        "mem_fraction_static=",
        r"Current value: .{0,40}?mem_fraction_static=(\d*\.?\d{1,15})",
        None,
        "0.5.6+",
        "pool_configurator.py",
    ),
    _form(
        "minimum_viable",
        "--mem-fraction-static=",
        r"under --mem-fraction-static=(\d*\.\d{1,15})",
        None,
        "0.5.14+",
        "kv_cache_configurator.py",
    ),
    _form("listening", "Uvicorn running on", r"Uvicorn running on ", "warmup", "all", "uvicorn"),
    _form(
        "ready",
        "fired up and ready",
        r"^" + re.escape(READY_LINE) + r"?\s*$",
        "ready",
        "all",
        "srt/entrypoints/http_server.py",
    ),
    # The launcher's warm-up is then answered by whoever holds the port, and the ready line is printed all the same.
    _form(
        "not_bound",
        "attempting to bind on address",
        r"\[[Ee]rrno \d{1,3}\][^\n]{0,40}attempting to bind on address",
        None,
        "all",
        "asyncio",
    ),
    # A node of a higher rank serves no requests: this line says that its ranks are up.
    _form(
        "node_ready",
        "ummy health check server",
        r"^(?:Starting dummy health check server"
        r"|Dummy health check server (?:started in background thread|scheduled on existing loop))",
        "ready",
        "0.4.6+",
        "srt/utils/common.py",
    ),
    _form(
        "bar",
        "% Completed | ",
        r"(?P<what>(?:Multi-thread l|L)oading [^:]{1,80}): +(?P<percent>\d{1,15})% Completed \| "
        r"(?P<done>\d{1,15})/(?P<total>\d{1,15})",
        "weights",
        "all",
        "srt/model_loader/weight_utils.py",
    ),
    _form(
        "capture_bar",
        "Capturing ",
        r"^Capturing (?P<what>batches|num tokens|prefill shape)\b",
        "graphs",
        "0.4.6+",
        "cuda_graph_runner.py",
    ),
    _form(
        "restart_path",
        "/lib/python3",
        r"/(?:engines|venvs)/(\d+\.\d+[\w.+-]*)/lib/python3",
        None,
        "all",
        "paths of a virtual environment",
    ),
)

# What takes long and says so. Source: sglang-0.5.23 and earlier wheels, layers/deep_gemm_wrapper, model_runner.
SLOW = (
    ("DeepGEMM JIT Pre-Compile", "compiling DeepGEMM kernels (10 to 20 minutes without a cache)"),
    ("Try DeepGEMM JIT Compiling", "compiling DeepGEMM kernels (10 to 20 minutes without a cache)"),
    ("PP-parallel DeepGEMM warmup start", "compiling DeepGEMM kernels (10 to 20 minutes without a cache)"),
    ("Running FlashInfer autotune", "tuning FlashInfer kernels"),
    ("Compiling a graph for", "compiling graphs with torch.compile"),
    ("NCCL/RCCL warmup", "warming up the collectives"),
)

# A logging configuration of one's own (SGLANG_LOGGING_CONFIG_PATH, 0.4.6+) prints another head, or none: a date or a
# level, then levels, numbers and dotted names between blanks and signs, then the message of a start-up.
LOGGER_HEAD = re.compile(
    r"(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?|\[?(?:INFO|WARNING|ERROR|DEBUG)\]?)"
    r"(?:[ :|\[\]()-]{1,4}(?:INFO|WARNING|ERROR|DEBUG|root|sglang|MainThread|MainProcess|\d{1,9}"
    r"|\w{1,40}(?:\.\w{1,40}){1,6})){0,5}[ :|\[\]()-]{1,4}"
    r"(?=(?:Init |Load weight |Memory |Capture |KV Cache |draft KV Cache |Mamba Cache |SWAKVPool |Use [Ss]liding "
    r"|Post-capture |Using KV |DS[Vv]4 |max_total_num_tokens=|server_args=|Scheduler hit |The server is fired "
    r"|Starting dummy |Dummy health ))"
)

# Lines that never belong to a start-up: request logs echo what users wrote, and the steady state is long.
ECHO_PREFIXES = (
    "Receive: ",
    "Finish: ",
    "Receive openai",
    "Finish openai",
    "Request ",
    "Prefill batch",
    "Decode batch",
    "INFO: ",
)


_ARGUMENTS = {
    "mem_fraction_static": float,
    "context_length": int,
    "chunked_prefill_size": int,
    "max_running_requests": int,
    "max_total_tokens": int,
    "tp_size": int,
    "dp_size": int,
    "pp_size": int,
    "page_size": int,
}
_ARGUMENT = re.compile(
    r"(?<![\w-])'?(?P<name>" + "|".join(_ARGUMENTS) + r")'?\s?[=:]\s?(?P<value>-?\d{1,15}(?:\.\d{1,15})?)\b"
)


def read_server_args(text):
    """Return the numbers of a ``server_args=`` line that matter here: ServerArgs(...) or, from 0.5.23, a dictionary."""
    found = {}
    for match in _ARGUMENT.finditer(text):
        try:
            found.setdefault(match.group("name"), _ARGUMENTS[match.group("name")](match.group("value")))
        except ValueError:
            continue
    return found
