# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server arguments that the played engine accepts: a part of SGLang's own, as data.

Source of every row: ``srt/server_args.py`` and ``srt/arg_groups/fields/*.py`` of the wheels 0.4.6.post5 to 0.5.23.
``first`` and ``last`` are versions that have the argument; None is "all that the played engine is made for".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One argument. ``kind``: str, int, float, bool, ints (a list) or count (an int that may be written 16k).

    ``namespace`` is the file below arg_groups/fields that declares it from 0.5.20 on. ``choices`` is a tuple, or the
    name of a list of CHOICES (SGLang states those by name, so that plugins can extend them). ``replaced_by`` with
    ``deprecated``: from that version on it is declared as a deprecated spelling of another argument.
    """

    name: str
    kind: str
    default: object
    namespace: str
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[str | int, ...] | str | None = None
    first: str | None = None
    last: str | None = None
    deprecated: str | None = None
    replaced_by: str | None = None


# Lists of choices that SGLang gives a name.
CHOICES = {
    "ATTENTION_BACKEND_CHOICES": (
        "triton", "torch_native", "fa3", "flashinfer", "flashmla", "trtllm_mla", "trtllm_mha", "aiter", "wave",
        "intel_amx", "ascend",
    ),
    "GRAMMAR_BACKEND_CHOICES": ("xgrammar", "outlines", "llguidance", "none"),
    "LOAD_FORMAT_CHOICES": (
        "auto", "pt", "safetensors", "npcache", "dummy", "sharded_state", "gguf", "bitsandbytes", "layered", "remote",
    ),
    "QUANTIZATION_CHOICES": (
        "awq", "fp8", "gptq", "gptq_marlin", "awq_marlin", "bitsandbytes", "gguf", "modelopt", "modelopt_fp4",
        "petit_nvfp4", "w8a8_int8", "w8a8_fp8", "moe_wna16", "w4afp8", "mxfp4",
    ),
}

_DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
_OLD_KV_DTYPES = ("auto", "fp8_e5m2", "fp8_e4m3")
_POLICIES = ("lpm", "random", "fcfs", "dfs-weight", "lof")
_BACKENDS = ("full", "breakable", "disabled")

ROWS = (
    Row("model-path", "str", None, "model", "The path of the model weights.", ("model",)),
    Row("tokenizer-path", "str", None, "serving", "The path of the tokenizer."),
    Row("tokenizer-mode", "str", "auto", "serving", "Tokenizer mode.", choices=("auto", "slow")),
    Row("host", "str", "127.0.0.1", "serving", "The host of the HTTP server."),
    Row("port", "int", 30000, "serving", "The port of the HTTP server."),
    Row("skip-server-warmup", "bool", False, "serving", "If set, skip warmup.", first="0.4.9"),
    Row("fastapi-root-path", "str", "", "serving", "App is behind a path based routing proxy.", first="0.5.6"),
    Row("served-model-name", "str", None, "serving", "Override the model name returned by the v1/models endpoint."),
    Row("chat-template", "str", None, "serving", "The builtin chat template name or the path of its file."),
    Row("api-key", "str", None, "serving", "Set API key of the server."),
    Row("admin-api-key", "str", None, "serving", "Set admin API key for management endpoints.", first="0.5.8"),
    Row("stream-interval", "int", 1, "serving", "The interval for streaming in terms of the token length."),
    Row("file-storage-path", "str", "sglang_storage", "serving", "The path of the file storage in backend."),
    Row("tokenizer-worker-num", "int", 1, "serving", "The worker num of the tokenizer manager.", first="0.5.2"),
    Row("trust-remote-code", "bool", False, "model", "Whether or not to allow for custom models."),
    Row("context-length", "count", None, "model", "The model's maximum context length."),
    Row("dtype", "str", "auto", "model", "Data type for model weights and activations.", choices=_DTYPES),
    Row("quantization", "str", None, "model", "The quantization method.", choices="QUANTIZATION_CHOICES"),
    Row("load-format", "str", "auto", "model", "The format of the model weights.", choices="LOAD_FORMAT_CHOICES"),
    Row("revision", "str", None, "model", "The specific model version to use."),
    Row(
        "kv-cache-dtype", "str", "auto", "model", "Data type for kv cache storage.",
        choices=_OLD_KV_DTYPES, last="0.5.5",
    ),
    Row(
        "kv-cache-dtype", "str", "auto", "model", "Data type for kv cache storage.",
        choices=(*_OLD_KV_DTYPES, "bf16", "bfloat16"), first="0.5.6",
    ),
    Row("json-model-override-args", "str", "{}", "model", "Overrides of the model configuration, as JSON."),
    Row("mem-fraction-static", "float", None, "schedule", "The fraction of the memory used for static allocation."),
    Row("max-running-requests", "int", None, "schedule", "The maximum number of running requests."),
    Row(
        "max-queued-requests", "int", None, "schedule", "The maximum number of queued requests.",
        first="0.4.10",
    ),
    Row("max-total-tokens", "count", None, "schedule", "The maximum number of tokens in the memory pool."),
    Row("chunked-prefill-size", "int", None, "schedule", "The maximum number of tokens in a chunk; -1 disables it."),
    Row("max-prefill-tokens", "count", 16384, "schedule", "The maximum number of tokens in a prefill batch."),
    Row("schedule-policy", "str", "fcfs", "schedule", "The scheduling policy.", choices=_POLICIES),
    Row("schedule-conservativeness", "float", 1.0, "schedule", "How conservative the schedule policy is."),
    Row("page-size", "int", None, "schedule", "The number of tokens in a page."),
    Row("enable-mixed-chunk", "bool", False, "schedule", "Enabling mixing prefill and decode in a batch."),
    Row("disable-overlap-schedule", "bool", False, "schedule", "Disable the overlap scheduler."),
    Row("disable-radix-cache", "bool", False, "memory", "Disable RadixAttention for prefix caching."),
    Row("tp-size", "int", 1, "parallel", "The tensor parallelism size.", ("tensor-parallel-size",)),
    Row("pp-size", "int", 1, "parallel", "The pipeline parallelism size.", ("pipeline-parallel-size",)),
    Row("dp-size", "int", 1, "parallel", "The data parallelism size.", ("data-parallel-size",)),
    Row("ep-size", "int", 1, "parallel", "The expert parallelism size.", ("expert-parallel-size", "ep")),
    Row(
        "enable-dp-attention", "bool", False, "parallel", "Enabling data parallelism for attention.",
        deprecated="0.5.22", replaced_by="--attn-dp-size <dp-size>",
    ),
    Row(
        "attn-dp-size", "int", 1, "parallel", "The attention data parallelism size.", ("attention-data-parallel-size",),
        first="0.5.22",
    ),
    Row("nnodes", "int", 1, "parallel", "The number of nodes."),
    Row("node-rank", "int", 0, "parallel", "The node rank."),
    Row("dist-init-addr", "str", None, "parallel", "The host address for initializing distributed backend."),
    Row("dist-timeout", "int", None, "parallel", "Set timeout for torch.distributed initialization."),
    Row("enable-p2p-check", "bool", False, "parallel", "Enable P2P check for GPU access."),
    Row("device", "str", None, "device", "The device to use. Defaults to auto-detection if not specified."),
    Row("base-gpu-id", "int", 0, "device", "The base GPU ID to start allocating GPUs from."),
    Row("random-seed", "int", None, "device", "The random seed."),
    Row("watchdog-timeout", "float", 300, "device", "Set watchdog timeout in seconds."),
    Row("soft-watchdog-timeout", "float", None, "device", "Set soft watchdog timeout in seconds.", first="0.5.8"),
    Row("sleep-on-idle", "bool", False, "device", "Reduce CPU usage when sglang is idle.", first="0.4.9"),
    Row("numa-node", "ints", None, "device", "Sets the numa node for the subprocesses.", first="0.5.2"),
    Row("log-level", "str", "info", "observability", "The logging level of all loggers."),
    Row("log-level-http", "str", None, "observability", "The logging level of HTTP server."),
    Row("log-requests", "bool", False, "observability", "Log metadata, inputs, outputs of all requests."),
    Row("log-requests-level", "int", 2, "observability", "How much of a request is logged.", choices=(0, 1, 2, 3)),
    Row("enable-metrics", "bool", False, "observability", "Enable log prometheus metrics."),
    Row("decode-log-interval", "int", 40, "observability", "The log interval of decode batch."),
    Row(
        "attention-backend", "str", None, "exec_", "Choose the kernels for attention layers.",
        choices="ATTENTION_BACKEND_CHOICES",
    ),
    Row(
        "grammar-backend", "str", None, "exec_", "Choose the backend for grammar-guided decoding.",
        choices="GRAMMAR_BACKEND_CHOICES",
    ),
    Row(
        "cuda-graph-max-bs", "int", None, "exec_", "Set the maximum batch size for cuda graph.", last="0.5.19",
        deprecated="0.5.14", replaced_by="--cuda-graph-max-bs-decode",
    ),
    Row(
        "cuda-graph-bs", "ints", None, "exec_", "Set the list of batch sizes for cuda graph.", last="0.5.19",
        deprecated="0.5.14", replaced_by="--cuda-graph-bs-decode",
    ),
    Row("cuda-graph-max-bs-decode", "int", None, "exec_", "Maximum batch size for the decode graph.", first="0.5.14"),
    Row("cuda-graph-max-bs-prefill", "int", None, "exec_", "Maximum batch size for the prefill graph.", first="0.5.14"),
    Row("cuda-graph-bs-decode", "ints", None, "exec_", "Batch sizes of the decode graph.", first="0.5.14"),
    Row("cuda-graph-bs-prefill", "ints", None, "exec_", "Batch sizes of the prefill graph.", first="0.5.14"),
    Row(
        "cuda-graph-backend-decode", "str", None, "exec_", "Backend for the decode phase.", choices=_BACKENDS,
        first="0.5.14",
    ),
    Row(
        "cuda-graph-backend-prefill", "str", None, "exec_", "Backend for the prefill phase.", choices=_BACKENDS,
        first="0.5.14",
    ),
    Row(
        "disable-cuda-graph", "bool", False, "exec_", "Disable cuda graph.",
        deprecated="0.5.14", replaced_by="--cuda-graph-backend-{decode,prefill}=disabled",
    ),
    Row("reasoning-parser", "str", None, "serving", "The parser for reasoning models."),
    Row("tool-call-parser", "str", None, "serving", "The parser of tool calls."),
    Row("enable-cache-report", "bool", False, "serving", "Return number of cached tokens in usage."),
    Row("download-dir", "str", None, "model", "Model download directory for huggingface."),
    Row("nccl-port", "int", None, "parallel", "The port for NCCL distributed environment setup.", first="0.4.9"),
    Row("gpu-id-step", "int", 1, "device", "The delta between consecutive GPU IDs that are used."),
    Row("crash-dump-folder", "str", None, "observability", "Folder to dump requests before a crash.", first="0.4.9"),
    Row(
        "swa-full-tokens-ratio", "float", 0.8, "schedule", "The ratio of SWA layer KV tokens to full layer KV tokens.",
        first="0.4.10", last="0.5.19",
    ),
    Row(
        "swa-full-tokens-ratio", "float", None, "schedule", "The ratio of SWA layer KV tokens to full layer KV tokens.",
        first="0.5.20",
    ),
    Row("max-mamba-cache-size", "int", None, "schedule", "The maximum size of the mamba cache.", first="0.5.2"),
    Row(
        "mamba-full-memory-ratio", "float", 0.9, "schedule", "The ratio of mamba state memory to full kv cache memory.",
        first="0.5.4", last="0.5.19",
    ),
    Row(
        "mamba-full-memory-ratio", "float", None, "schedule", "The ratio of mamba state memory to kv cache memory.",
        first="0.5.20",
    ),
    Row("enable-symm-mem", "bool", False, "exec_", "Enable NCCL symmetric memory.", first="0.4.10"),
    Row(
        "enable-piecewise-cuda-graph", "bool", False, "exec_", "Optimize the prefill with piecewise cuda graph.",
        first="0.5.4", last="0.5.13",
    ),
    Row(
        "disable-piecewise-cuda-graph", "bool", False, "exec_", "Disable piecewise cuda graph.", first="0.5.10",
        last="0.5.19",
    ),
    Row("enable-torch-compile", "bool", False, "exec_", "Optimize the model with torch.compile."),
    Row("disable-custom-all-reduce", "bool", False, "exec_", "Disable the custom all-reduce kernel."),
    Row("enable-memory-saver", "bool", False, "exec_", "Allow saving memory using release_memory_occupation."),
    Row("cpu-offload-gb", "int", 0, "exec_", "How many GBs of RAM to reserve for CPU offloading."),
    Row("enable-deterministic-inference", "bool", False, "exec_", "Enable deterministic inference.", first="0.5.4"),
    Row("speculative-algorithm", "str", None, "spec", "Speculative algorithm."),
    Row(
        "speculative-draft-model-path", "str", None, "spec", "The path of the draft model weights.",
        ("speculative-draft-model",),
    ),
    Row("speculative-num-steps", "int", None, "spec", "The number of steps sampled from draft model."),
    Row("speculative-eagle-topk", "int", None, "spec", "The number of tokens sampled from the draft model."),
    Row("speculative-num-draft-tokens", "int", None, "spec", "The number of tokens sampled from the draft model."),
)

# Class that declares a namespace from 0.5.20 on.
NAMESPACES = {
    "device": "Device", "exec_": "ExecKernel", "memory": "Memory", "model": "Model", "observability": "Observability",
    "parallel": "Parallel", "schedule": "Schedule", "serving": "Serving", "spec": "Spec",
}


def key(version: str) -> tuple[int, ...]:
    """Numbers of a version, for comparing: 0.4.6.post5 is later than 0.4.6."""
    return tuple(int(part.removeprefix("post")) for part in version.split("."))


def rows_of(version: str) -> list[Row]:
    """The rows that this version of SGLang has."""
    wanted = key(version)
    return [
        row for row in ROWS
        if (row.first is None or key(row.first) <= wanted) and (row.last is None or wanted <= key(row.last))
    ]


def is_deprecated(row: Row, version: str) -> bool:
    """Whether this version declares the row as a deprecated spelling."""
    return row.deprecated is not None and key(row.deprecated) <= key(version)
