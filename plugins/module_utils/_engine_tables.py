# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is, the tables: other spellings, removed arguments, types, behaviour by version.

Private to the collection. Every row says where it was read. Versions between two that were read are not known, so a
removal stands with the last version that was seen to accept the argument.
"""

from __future__ import annotations

from dataclasses import dataclass

# ---------------------------------------------------------------------------
# Other spellings
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Alias:
    """Another spelling of an argument that means the same in every version that has it."""

    alias: str
    name: str
    source: str


_FIELDS = "sglang 0.5.23 srt/arg_groups/fields (Arg.aliases)"
_ABBREVIATION = "argparse abbreviation, unique or meant so in 0.3.6-0.5.23"

ALIASES = (
    Alias("model", "model-path", _FIELDS),
    Alias("tp", "tp-size", _ABBREVIATION),
    Alias("tensor-parallel-size", "tp-size", _FIELDS),
    Alias("dp", "dp-size", _ABBREVIATION),
    Alias("data-parallel-size", "dp-size", _FIELDS),
    Alias("pp", "pp-size", _ABBREVIATION),
    Alias("pipeline-parallel-size", "pp-size", _FIELDS),
    Alias("ep", "ep-size", "sglang 0.4.10 srt/server_args.py (--ep)"),
    Alias("expert-parallel-size", "ep-size", _FIELDS),
    Alias("attention-data-parallel-size", "attn-dp-size", _FIELDS),
    Alias("attention-context-parallel-size", "attn-cp-size", _FIELDS),
    Alias("decode-context-parallel-size", "dcp-size", _FIELDS),
    Alias("moe-data-parallel-size", "moe-dp-size", _FIELDS),
    Alias("nccl-init-addr", "dist-init-addr", _FIELDS),
    Alias("speculative-draft-model", "speculative-draft-model-path", _FIELDS),
    Alias("speculative-algo", "speculative-algorithm", _ABBREVIATION),
    Alias("enable-hicache", "enable-hierarchical-cache", _FIELDS),
    Alias("mem-fraction", "mem-fraction-static", _ABBREVIATION),
)

# ---------------------------------------------------------------------------
# Removed arguments
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Renamed:
    """An argument that newer versions no longer have, and what to write there instead."""

    name: str
    until: str  # the last version known to accept it
    use: tuple  # names that replace it, best first; empty: simply drop it
    source: str
    how: str = ""  # what the value becomes, when it is not carried over as it is; without a name: what to do


def _compared(last, first):
    return f"srt/server_args.py and srt/arg_groups of sglang {last} and {first} compared"


def _said(last, first):
    return _compared(last, first) + f"; new name: {last} (new_flag or help)"


_AT_043 = _compared("0.4.0", "0.4.3.post4")
_AT_043_SAID = _said("0.4.0", "0.4.3.post4")
_AT_046 = _compared("0.4.3.post4", "0.4.6.post5")
_AT_049 = _compared("0.4.6.post5", "0.4.9")
_AT_049_SAID = _said("0.4.6.post5", "0.4.9")
_AT_0410 = _compared("0.4.9", "0.4.10")
_AT_052 = _compared("0.4.10", "0.5.2")
_AT_054 = _compared("0.5.3", "0.5.4")
_AT_056 = _compared("0.5.4", "0.5.6")
_AT_056_SAID = _said("0.5.4", "0.5.6")
_AT_058 = _compared("0.5.6", "0.5.8")
_AT_0510 = _compared("0.5.8", "0.5.10")
_AT_0511 = _compared("0.5.10", "0.5.11")
_AT_0513 = _compared("0.5.11", "0.5.13")
_AT_0513_SAID = _said("0.5.11", "0.5.13")
_AT_0514 = _compared("0.5.13", "0.5.14")
_AT_0514_SAID = _said("0.5.13", "0.5.14")
_AT_0516 = _compared("0.5.14", "0.5.16")
_AT_0518 = _compared("0.5.17", "0.5.18")
_AT_0520 = _compared("0.5.19", "0.5.20")
_AT_0520_SAID = _said("0.5.19", "0.5.20")
_AT_0521_SAID = _said("0.5.20", "0.5.21")
_AT_0522 = _compared("0.5.21", "0.5.22")
_AT_0523 = _compared("0.5.22", "0.5.23")

_PREFILL_GRAPH = ("cuda-graph-backend-prefill",)
_MOE_RUNNER = ("moe-runner-backend",)

RENAMED = (
    Renamed("disable-flashinfer", "0.4.0", ("attention-backend",), _AT_043_SAID, "with the value triton"),
    Renamed("disable-flashinfer-sampling", "0.4.0", ("sampling-backend",), _AT_043_SAID, "with the value pytorch"),
    Renamed("disable-disk-cache", "0.4.0", ("disable-outlines-disk-cache",), _AT_043_SAID),
    Renamed("enable-overlap-schedule", "0.4.0", (), _AT_043_SAID, "remove it, it is the default"),
    Renamed("disable-jump-forward", "0.4.0", (), _AT_043),
    Renamed("disable-nan-detection", "0.4.0", (), _AT_043),
    Renamed("file-storage-pth", "0.4.0", (), _AT_043),
    Renamed("disable-mla", "0.4.3.post4", (), _AT_046),
    Renamed("enable-flashinfer-mla", "0.4.6.post5", ("attention-backend",), _AT_049_SAID, "with the value flashinfer"),
    Renamed("enable-flashmla", "0.4.6.post5", ("attention-backend",), _AT_049_SAID, "with the value flashmla"),
    Renamed("n-share-experts-fusion", "0.4.6.post5", (), _AT_049),
    Renamed("disable-overlap-cg-plan", "0.4.9", (), _AT_0410),
    Renamed("enable-flashinfer-moe", "0.4.9", _MOE_RUNNER, _AT_0410, "with the value flashinfer_cutlass"),
    Renamed("impl", "0.4.9", ("model-impl",), _AT_0410),
    Renamed("pdlb-url", "0.4.10", (), _AT_052),
    Renamed("debug-tensor-dump-prefill-only", "0.5.3", (), _AT_054),
    Renamed("max-micro-batch-size", "0.5.3", ("pp-max-micro-batch-size",), _AT_054),
    Renamed("nsa-prefill", "0.5.3", ("nsa-prefill-backend", "dsa-prefill-backend"), _AT_054),
    Renamed("nsa-decode", "0.5.3", ("nsa-decode-backend", "dsa-decode-backend"), _AT_054),
    Renamed("enable-beta-spec", "0.5.4", (), _AT_056),
    Renamed("enable-ep-moe", "0.5.4", ("ep-size", "moe-runner-backend"), _AT_056_SAID, "set to the tp-size"),
    Renamed("enable-deepep-moe", "0.5.4", ("moe-a2a-backend",), _AT_056_SAID, "with the value deepep"),
    Renamed("enable-flashinfer-cutedsl-moe", "0.5.4", _MOE_RUNNER, _AT_056_SAID, "with the value flashinfer_cutedsl"),
    Renamed("enable-flashinfer-cutlass-moe", "0.5.4", _MOE_RUNNER, _AT_056_SAID, "with the value flashinfer_cutlass"),
    Renamed("enable-flashinfer-mxfp4-moe", "0.5.4", _MOE_RUNNER, _AT_056_SAID, "with the value flashinfer_mxfp4"),
    Renamed("enable-flashinfer-trtllm-moe", "0.5.4", _MOE_RUNNER, _AT_056_SAID, "with the value flashinfer_trtllm"),
    Renamed("enable-triton-kernel-moe", "0.5.4", _MOE_RUNNER, _AT_056_SAID, "with the value triton_kernel"),
    Renamed("kt-amx-method", "0.5.4", ("kt-method",), _AT_056),
    Renamed("kt-amx-weight-path", "0.5.4", ("kt-weight-path",), _AT_056),
    Renamed("oltp-traces-endpoint", "0.5.4", ("otlp-traces-endpoint",), _AT_056),
    Renamed("dllm-block-size", "0.5.6", (), _AT_058),
    Renamed("enable-flashinfer-autotune", "0.5.6", (), _AT_058, "remove it, it is the default"),
    Renamed("load-watch-interval", "0.5.6", (), _AT_058),
    Renamed("disable-hicache-numa-detect", "0.5.8", (), _AT_0510),
    Renamed("disaggregation-decode-dp", "0.5.8", (), _AT_0510),
    Renamed("disaggregation-decode-enable-fake-auto", "0.5.8", (), _AT_0510),
    Renamed("disaggregation-decode-tp", "0.5.8", (), _AT_0510),
    Renamed("disaggregation-prefill-pp", "0.5.8", (), _AT_0510),
    Renamed("mm-max-concurrent-calls", "0.5.8", (), _AT_0510),
    Renamed("mm-per-request-timeout", "0.5.8", (), _AT_0510),
    Renamed("speculative-ngram-branch-length", "0.5.8", (), _AT_0510),
    Renamed("speculative-ngram-max-match-window-size", "0.5.8", (), _AT_0510),
    Renamed("speculative-ngram-min-match-window-size", "0.5.8", (), _AT_0510),
    Renamed("enable-double-sparsity", "0.5.10", (), _AT_0511),
    Renamed("ds-channel-config-path", "0.5.10", (), _AT_0511),
    Renamed("ds-heavy-channel-num", "0.5.10", (), _AT_0511),
    Renamed("ds-heavy-channel-type", "0.5.10", (), _AT_0511),
    Renamed("ds-heavy-token-num", "0.5.10", (), _AT_0511),
    Renamed("ds-sparse-decode-threshold", "0.5.10", (), _AT_0511),
    Renamed("multi-item-scoring-delimiter", "0.5.10", (), _AT_0511),
    Renamed(
        "enable-nan-detection",
        "0.5.11",
        (),
        _AT_0513_SAID,
        "set SGLANG_SPEC_NAN_DETECTION=1 and SGLANG_SPEC_OOB_DETECTION=1 in the server's environment",
    ),
    Renamed("record-nolora-graph", "0.5.11", (), _AT_0513),
    Renamed("no-record-nolora-graph", "0.5.11", (), _AT_0513),
    Renamed("custom-sigquit-handler", "0.5.13", (), _AT_0514),
    Renamed("debug-tensor-dump-inject", "0.5.13", (), _AT_0514),
    Renamed("enable-piecewise-cuda-graph", "0.5.13", _PREFILL_GRAPH, _AT_0514, "or remove it, it was the default"),
    Renamed("hybrid-kvcache-ratio", "0.5.13", ("swa-full-tokens-ratio",), _AT_0514_SAID),
    Renamed("enable-deepep-waterfill", "0.5.14", ("enable-waterfill",), _AT_0516),
    Renamed("optimistic-prefill-retries", "0.5.14", ("optimistic-prefill-attempts",), _AT_0516),
    Renamed("torchao-config", "0.5.17", ("quantization",), _AT_0518, "with a method of its own"),
    # The 23 that went with 0.5.20.
    Renamed("collect-tokens-histogram", "0.5.19", (), _AT_0520_SAID, "remove it, enable-metrics collects them"),
    Renamed("cuda-graph-bs", "0.5.19", ("cuda-graph-bs-decode",), _AT_0520_SAID),
    Renamed(
        "cuda-graph-max-bs", "0.5.19", ("cuda-graph-max-bs-decode",), _AT_0520_SAID + "; run on 0.5.23: exit status 2"
    ),
    Renamed("disable-piecewise-cuda-graph", "0.5.19", _PREFILL_GRAPH, _AT_0520_SAID, "with the value disabled"),
    Renamed("dsa-prefill-cp-mode", "0.5.19", ("cp-strategy",), _AT_0520_SAID, "with the value zigzag or interleave"),
    Renamed("enable-breakable-cuda-graph", "0.5.19", _PREFILL_GRAPH, _AT_0520_SAID, "with the value breakable"),
    Renamed("enable-dsa-prefill-context-parallel", "0.5.19", ("enable-prefill-cp",), _AT_0520_SAID),
    Renamed("enable-expert-distribution-metrics", "0.5.19", ("expert-balancedness-report-mode",), _AT_0520_SAID),
    Renamed("enable-gdn-replayssm-spec", "0.5.19", ("enable-linear-replayssm-spec",), _AT_0520_SAID),
    Renamed("enable-nsa-prefill-context-parallel", "0.5.19", ("enable-prefill-cp",), _AT_0520_SAID),
    Renamed("enable-prefill-context-parallel", "0.5.19", ("enable-prefill-cp",), _AT_0520_SAID),
    Renamed(
        "enforce-piecewise-cuda-graph", "0.5.19", _PREFILL_GRAPH, _AT_0520_SAID, "with the value breakable or full"
    ),
    Renamed("mamba-scheduler-strategy", "0.5.19", ("mamba-radix-cache-strategy",), _AT_0520_SAID),
    Renamed("nsa-decode-backend", "0.5.19", ("dsa-decode-backend",), _AT_0520_SAID),
    Renamed("nsa-prefill-backend", "0.5.19", ("dsa-prefill-backend",), _AT_0520_SAID),
    Renamed("nsa-prefill-cp-mode", "0.5.19", ("cp-strategy",), _AT_0520_SAID, "with the value zigzag or interleave"),
    Renamed(
        "piecewise-cuda-graph-compiler",
        "0.5.19",
        (),
        _AT_0520_SAID,
        "remove it, cuda-graph-tc-compiler took its place up to 0.5.21",
    ),
    Renamed("piecewise-cuda-graph-max-tokens", "0.5.19", ("cuda-graph-max-bs-prefill",), _AT_0520_SAID),
    Renamed("piecewise-cuda-graph-tokens", "0.5.19", ("cuda-graph-bs-prefill",), _AT_0520_SAID),
    Renamed("prefill-cp-mode", "0.5.19", ("cp-strategy",), _AT_0520_SAID, "with the value zigzag"),
    Renamed("prefill-round-robin-balance", "0.5.19", (), _AT_0520),
    Renamed("speculative-dflash-draft-window-size", "0.5.19", ("speculative-draft-window-size",), _AT_0520_SAID),
    Renamed("stream-output", "0.5.19", ("incremental-streaming-output",), _AT_0520_SAID),
    Renamed("elastic-ep-rejoin", "0.5.20", ("elastic-ep-join-mode",), _AT_0521_SAID, "with the value recover"),
    Renamed("keep-mm-feature-on-device", "0.5.20", ("mm-feature-transport",), _AT_0521_SAID, "with the value cuda_ipc"),
    Renamed("cuda-graph-tc-compiler", "0.5.21", (), _AT_0522),
    Renamed("speculative-skip-dp-mlp-sync", "0.5.22", (), _AT_0523),
)

# ---------------------------------------------------------------------------
# Types of values
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueType:
    """What a function that the engine's parser gives as C(type) reads, or an action of its own; see Argument.type."""

    function: str
    reads: str
    source: str


_ARGPARSE = "argparse: the type is called with the text"

# Any other function is C(other): its values are not checked.
VALUE_TYPES = (
    ValueType("int", "int", _ARGPARSE),
    ValueType("float", "float", _ARGPARSE),
    ValueType("str", "str", _ARGPARSE),
    ValueType("bool", "bool", _ARGPARSE),
    ValueType("loads", "json", "json.loads in sglang 0.5.6-0.5.23"),
    ValueType("json_list_type", "json", "sglang 0.5.23 srt/utils/common.py: orjson.loads, any JSON passes"),
    ValueType("parse_cuda_graph_config_arg", "json_object", "sglang 0.5.23 srt/model_executor/cuda_graph_config.py"),
    ValueType("human_readable_int", "int_with_unit", "sglang 0.5.10-0.5.23 srt/utils/common.py: 1k, 25.6k, 1Ki"),
    ValueType("nullable_str", "str", "sglang 0.5.23 srt/utils/common.py: empty and None are nothing"),
    ValueType("parse_cuda_graph_backend_arg", "str", "sglang 0.5.23 srt/model_executor/cuda_graph_config.py"),
    ValueType("LoRAPathAction", "lora_path", "sglang 0.5.2-0.5.23: a path, name=path, or JSON with both"),
)

# Texts for the parser that the launcher reads as JSON before anything else is done.
JSON_TEXTS = (
    ("json-model-override-args", "sglang 0.4.0-0.5.23 json.loads in the launcher: exit status 1"),
    ("model-loader-extra-config", "sglang 0.4.0-0.5.23 srt/configs/load_config.py (orjson.loads of any text)"),
)

# Arguments that take a value and do without, so that true is a bare flag (sglang 0.5.23 srt/arg_groups, nargs="?").
VALUE_OPTIONAL = frozenset(("model-checksum",))

# Arguments that take a list as one word of JSON, where all others take word by word (sglang 0.5.23, json_list_type).
JSON_LISTS = frozenset(
    (
        "decoupled-spec-connect-endpoints",
        "forward-hooks",
        "remote-instance-weight-loader-send-weights-group-ports",
        "sidecar-args",
    )
)

# ---------------------------------------------------------------------------
# Behaviour by version
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Since:
    """What an engine does from this version on."""

    what: str
    version: str
    source: str


READS_CONFIG_FILE = Since(
    "--config FILE.yaml is read", "0.5.3", "sglang 0.5.2 and 0.5.3 srt/server_args.py (prepare_server_args) compared"
)
STOPS_BY_ITSELF = Since(
    "a clean stop ends with exit status 0 instead of SIGKILL of the launcher by itself",
    "0.5.20",
    # The source of 0.5.19 already reads like a clean exit. What is set for an engine that kills itself does no harm to
    # one that does not, so the bound is the later one.
    "srt/managers/tokenizer_manager.py (sigterm_watchdog): 0.4.0-0.5.18 kill_process_tree(include_parent=True), 0.5.20"
    " a stop hook of the HTTP server",
)
