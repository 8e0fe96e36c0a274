# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, its tables. What the arithmetic cannot derive from a model: constants with their source. Private.

Every number that a plan takes from experience or from the engine's own heuristics stands here and nowhere else. All
GiB are 2^30 bytes. "Public start-ups" are start-up logs printed in public reports of the engine's users.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least

MIB_PER_GIB = 1024.0


@dataclass(frozen=True)
class BoardClass:
    """The engine's defaults by size of the board: classes up to C(below_mib), from engine version C(since) on.

    C(chunk_tokens): --chunked-prefill-size. C(decode_batch), C(decode_batch_wide): largest batch of the decode graphs
    with fewer than 4 and with 4 or more tensor-parallel ranks.
    """

    below_mib: float
    chunk_tokens: int
    decode_batch: int
    decode_batch_wide: int
    since: str
    source: str
    epoch: str = "0.5.3"


_CLASSES = "sglang 0.5.3-0.5.23, class table of the memory defaults (server_args.py, from 0.5.19 memory_hook.py)"
_CLASSES_0_4_9 = "sglang 0.4.9-0.5.2 server_args.py"
_CLASSES_0_4 = "sglang 0.4.0-0.4.4 server_args.py"
# The newest row of a size counts; a size that a newer set of rows does not know is gone (C(epoch)).
BOARD_CLASSES = (
    BoardClass(25000, 2048, 8, 8, "0.0", _CLASSES_0_4, "0.4.0"),
    BoardClass(float("inf"), 8192, 160, 160, "0.0", _CLASSES_0_4, "0.4.0"),
    BoardClass(35 * 1024, 2048, 8, 80, "0.4.9", _CLASSES_0_4_9, "0.4.9"),
    BoardClass(160 * 1024, 8192, 160, 256, "0.4.9", _CLASSES_0_4_9, "0.4.9"),
    BoardClass(float("inf"), 16384, 160, 256, "0.4.9", _CLASSES_0_4_9, "0.4.9"),
    BoardClass(20 * 1024, 2048, 8, 8, "0.5.3", _CLASSES, "0.5.3"),
    BoardClass(35 * 1024, 2048, 16, 80, "0.5.3", _CLASSES, "0.5.3"),
    BoardClass(35 * 1024, 2048, 24, 80, "0.5.5", _CLASSES, "0.5.3"),
    BoardClass(35 * 1024, 4096, 48, 160, "0.5.20", _CLASSES, "0.5.3"),
    BoardClass(60 * 1024, 4096, 32, 160, "0.5.3", _CLASSES, "0.5.3"),
    BoardClass(160 * 1024, 8192, 256, 512, "0.5.3", _CLASSES, "0.5.3"),
    BoardClass(float("inf"), 16384, 512, 512, "0.5.3", _CLASSES, "0.5.3"),
)
# The CPU is in the class of its RAM only by name; the engine takes these values there.
CPU_CLASS = BoardClass(
    float("inf"), 4096, 32, 32, "0.0", "sglang 0.5.23 on a CPU with 24 GiB, server_args line of a start-up"
)

# The lever "chunk" stops here: below it the engine's own activation rule does not fall any more, and speed falls fast.
SMALLEST_CHUNK_TOKENS = 2048
# The lever "decode-graph batch" stops here.
SMALLEST_DECODE_BATCH = 32


def board_class(board_mib, engine_version):
    """Return the BoardClass of a board of C(board_mib) MiB; None (size unknown) gives the engine's own fallback."""
    if board_mib is None:
        return BoardClass(float("inf"), 4096, 160, 160, "0.0", "sglang 0.5.3-0.5.23, size of the board unknown")
    known = [row for row in BOARD_CLASSES if version_at_least(engine_version, row.since)]
    rows = [row for row in known if row.epoch == known[-1].epoch and board_mib < row.below_mib]
    smallest = min(row.below_mib for row in rows)
    return [row for row in rows if row.below_mib == smallest][-1]


@dataclass(frozen=True)
class Amount:
    """C(gib) with a half band of C(error_gib), valid from C(ranks) ranks or from version C(since) on."""

    gib: float
    error_gib: float
    source: str
    ranks: int = 1
    since: str = "0.0"


# What an engine's process takes of a GPU before its weights are loaded, beyond what nvidia-smi calls free while it is
# not running. Idle boards by nvidia-smi: 81,050 of 81,559 MiB, 97,200 of 97,887, 32,100 of 32,607, 143,150 of 143,771.
GPU_CONTEXT = (
    Amount(
        0.45, 0.25, "CUDA context and libraries; sglang 0.4.1 begins 0.34 GiB under the free memory of an idle H100"
    ),
    Amount(
        0.6,
        0.25,
        "CUDA context and libraries; public start-ups on one GPU begin the load 0.53 to 0.72 GiB under the free memory"
        " of an idle board: H100 78.4-78.5, RTX 5090 30.68, A100-40 38.87 GiB",
        since="0.5.0",
    ),
)
# Communication buffers (NCCL, custom all-reduce). The highest row whose number of ranks is reached counts.
GPU_COLLECTIVES = (
    Amount(0.2, 0.2, "public start-ups on two GPUs: RTX 3090 22.91 and 23.06, RTX PRO 6000 93.6 GiB", ranks=2),
    Amount(0.5, 0.4, "between the rows for two and eight ranks", ranks=4),
    Amount(1.1, 0.5, "public start-ups on eight: H100 77.43, H20 93.61, H200 137.3-137.9, H800 77.8 GiB", ranks=8),
)

# The same on the CPU: the processes of the engine (launcher, scheduler, detokenizer) stand in the RAM before the load.
CPU_BEFORE_LOAD = Amount(
    2.35, 0.35, "sglang 0.5.23 on a CPU with 24 GiB: 22.93 GiB available at the start, 20.59 GiB at the load-begin line"
)
# And on boards that use the memory of the machine: both of it.
UNIFIED_BEFORE_LOAD = Amount(
    3.0, 1.5, "the processes as on a CPU and the context; DGX Spark begins the load with 111.3-113.9 of 121.7 GiB"
)

# Without free memory (the server of this instance is running): share of the board that an idle one shows as free.
IDLE_SHARE_OF_TOTAL = Amount(0.993, 0.4, "nvidia-smi on idle boards: 97,200 of 97,887 MiB, 81,050 of 81,559 MiB")

# Taken between the load-end line and the sizing of the pool. Not added where the caller states figures himself.
GPU_AFTER_LOAD_EXCESS = (
    Amount(0.0, 0.03, "sglang 0.4 and before, two complete public start-ups: 0.00 GiB"),
    Amount(0.045, 0.045, "sglang 0.5.11 and 0.5.12, 17 complete public start-ups: 0.01-0.08 GiB", since="0.5.0"),
    Amount(0.0, 0.03, "garbage is collected first from 0.5.20 on, three public start-ups: -0.01 GiB", since="0.5.20"),
)
GPU_AFTER_LOAD_EXCESS_UNKNOWN = Amount(0.04, 0.05, "version unknown: public start-ups of all versions, 0.00-0.08 GiB")
CPU_AFTER_LOAD_EXCESS = Amount(0.085, 0.03, "sglang 0.5.23 on a CPU, three starts: 0.08-0.09 GiB")

# Weights from checkpoint bytes alone: replicated layers, padding and the allocator's rounding.
WEIGHTS_ERROR_SHARE = 0.015
WEIGHTS_ERROR_LEAST_GIB = 0.02
# What a load takes beyond the bytes of the files: kernels and workspaces that come with the first layers.
GPU_LOAD_EXTRA = Amount(0.1, 0.08, "seven public start-ups of plain 16-bit checkpoints: 0.06-0.20 GiB over the files")
UNIFIED_LOAD_EXTRA = Amount(0.3, 0.25, "five starts on a DGX Spark: 0.14-0.40 GiB over 2.88 GiB of files")

# The versions whose rules were read one by one. Outside them the nearest rules count; after them in the band of an
# unknown version.
OLDEST_READ, NEWEST_READ = "0.5.4", "0.5.23"

# Start-to-start noise of free after load: the same configuration, started twice. C(error_gib) is the most.
NOISE = (
    Amount(0.5, 0.5, "before 0.5.20 loader temporaries count as used: up to 500 MiB between two starts"),
    Amount(0.1, 0.1, "from 0.5.20 garbage is collected before measuring", since="0.5.20"),
)
NOISE_VERSION_UNKNOWN = Amount(0.5, 0.5, "version unknown: the wider row")
# Temporaries grow with the weights of a rank (500 MiB were seen at 75 GiB; 12 starts with 5 to 13 GiB a rank on two
# RTX 3090 agree to 0.01 GiB), so the most above is not taken for small ones: this, and a share of the weights.
NOISE_LEAST_GIB = 0.05
NOISE_SHARE = 0.008
NOISE_UNIFIED = Amount(
    0.25, 0.25, "memory of the machine: five starts of one model on a DGX Spark took 3.01 to 3.27 GiB for its weights"
)
NOISE_CPU_GIB = 0.03

# From 0.5.18 on the engine takes this off the pool for what images and sound need later.
MULTIMODAL_SINCE = "0.5.18"
MULTIMODAL_CACHE_NAME, MULTIMODAL_CACHE_MIB = "SGLANG_VLM_CACHE_SIZE_MB", 100
MULTIMODAL_FEATURE_NAME, MULTIMODAL_FEATURE_MIB = "SGLANG_MM_FEATURE_CACHE_MB", 1024
MULTIMODAL_GPU_TRANSPORTS = ("cuda_ipc", "cuda_vmm")
MULTIMODAL_SOURCE = "embedding cache (and feature pool of a GPU transport), sglang 0.5.18+ kv_cache_configurator.py"

# Draft weights and the draft's pool are inside the fraction from this version on.
DRAFT_INSIDE_SINCE = "0.5.14"
# Sizing the pool after graph capture: another rule, off by default in every version.
POST_CAPTURE_NAME, POST_CAPTURE_SINCE = "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "0.5.16"

# --- what the reserve has to hold -------------------------------------------------------------------------------------

# Each is the most that was seen or that the engine reckons with; the LEAST beside it is the good end of the band of the
# headroom: what was taken at least.
RUNTIME_GIB, RUNTIME_LEAST_GIB = 0.5, 0.0
RUNTIME_SOURCE = "512 MiB for metadata and attention workspaces, sglang 0.5.3-0.5.23 memory defaults"
UNIFIED_RUNTIME_GIB, UNIFIED_RUNTIME_LEAST_GIB = 3.8, 1.7
UNIFIED_RUNTIME_SOURCE = (
    "memory of the machine: the engine's processes grow as well, 1.7-3.8 GiB between pool and ready on a DGX Spark"
)
DECODE_GRAPH_MIB_PER_REQUEST = 2.0
DECODE_GRAPH_SOURCE = "2 MiB a request of the largest batch, sglang 0.5.3-0.5.23 memory defaults"
PREFILL_GRAPH_SINCE = "0.5.10"
PREFILL_GRAPH_MLA_GIB, PREFILL_GRAPH_MLA_LEAST_GIB = 1.5, 0.75
# The engine reckons with 8 MiB a graph. Two public starts took more: 1.0 GiB for 50 sizes (0.5.22, RTX 5090) and 1.3
# for 58 (0.5.20, DGX Spark).
PREFILL_GRAPH_MIB_PER_SIZE, PREFILL_GRAPH_MOST_MIB_PER_SIZE = 8.0, 22.0
# The sizes of prefill graphs up to 4,096 tokens, as ranges; above, every 512 (cuda_graph_hook.py).
PREFILL_GRAPH_STEPS = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
PREFILL_GRAPH_SOURCE = (
    "8 MiB a graph by sglang memory defaults, of which public starts took up to 22; on by default from 0.5.10"
)
# A backend that keeps no index and graphs that share their buffers take less than the table says.
DECODE_GRAPH_LEAST_SHARE, PREFILL_GRAPH_LEAST_SHARE = 0.5, 0.5
INDEX_SOURCE = (
    "4 bytes for each position of each request of the batch (cuda_graph_kv_indices of the attention backends)"
)

# SGLang also adds (tensor x pipeline ranks) / 8 GiB. It counts against the whole board; here the communication buffers
# are taken off before the fraction is applied (GPU_COLLECTIVES), so this term would count them twice.


@dataclass(frozen=True)
class SpeculationReserve:
    """Draft weights and pool lie outside the fraction from C(since) until C(until) (excluded)."""

    since: str
    until: str
    gib: float
    standalone_gib: float
    source: str


SPECULATION = (
    SpeculationReserve("0.0", "0.5.10", 2.0, 6.0, "sglang 0.5.3-0.5.9 memory defaults"),
    SpeculationReserve("0.5.10", "0.5.14", 4.0, 6.0, "sglang 0.5.10-0.5.13 memory defaults"),
)
MOST_PREFILL_TOKENS = 16384  # max-prefill-tokens, sglang 0.3.6-0.5.23
SPECULATIVE_MAX_RUNNING_REQUESTS = 48  # sglang 0.4.9+: default with a speculative algorithm


@dataclass(frozen=True)
class Extra:
    """An argument that takes memory outside the static part. C(value): the value that switches it on (None: a flag).

    C(variable): the variable of the environment that states another size in GiB.
    """

    argument: str
    value: str | None
    gib: float
    since: str
    source: str
    variable: str | None = None


EXTRAS = (
    Extra(
        "enable-symm-mem",
        None,
        4.0,
        "0.5.9",
        "allocated with the graphs: SGLANG_SYMM_MEM_PREALLOC_GB_SIZE, 4 by default, sglang 0.5.9-0.5.23 memory_hook.py",
        "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE",
    ),
    Extra("moe-a2a-backend", "deepep", 2.0, "0.5.15", "sglang 0.5.15+ memory defaults"),
)
# Data-parallel attention: MiB for each request of the largest batch and each group, and more above 300 requests. The
# engine's own default fraction keeps so much (18 GiB for 8 groups of 512); recipes run with less outside (0.846 on
# boards of 80 GB, batch 256, 8 groups a node: sgl-project/sglang issue 6017). So it is only the upper bound here.
DP_ATTENTION_MIB = 3.0
DP_ATTENTION_LARGE_MIB = 1.5
DP_ATTENTION_LARGE_BATCH = 300
# What is gathered from all groups in one decode step: rows of the feed-forward layers, and logits in 16 bits.
DP_ATTENTION_SOURCE = "gathered rows and logits of one decode step, times 2 for cached blocks"
VOCABULARY_UNKNOWN = 163840

# Activations of one prefill chunk. The shape gives what a layer holds at once; torch keeps about as much again in
# cached blocks (a death of the 96 GiB class had 1.4 GiB "reserved but unallocated" beside about 1.5 GiB in use).
ACTIVATION_WASTE = 2.0
ACTIVATION_SOURCE = "largest layer of the geometry, times 2 for the allocator's cached blocks"
ACTIVATION_UNKNOWN_MIB_PER_TOKEN = 0.5
ACTIVATION_UNKNOWN_SOURCE = "geometry not known: 0.5 MiB a token of the chunk (SGLang's own default reserves 1.5)"
# A geometry that does not state its feed-forward layers: 8 experts a token, as wide as the hidden state, or a dense
# layer of 8 hidden sizes. Public models have 4 to 10 experts a token of 0.25 to 1 hidden sizes, dense ones 3.5 to 8.
EXPERTS_PER_TOKEN_UNKNOWN, EXPERT_WIDTH_UNKNOWN, DENSE_WIDTH_UNKNOWN = 8, 1, 8

# MLA expands the latents of the prefix to keys and values, at most this many tokens at once.
MLA_PREFIX_TOKENS = 131072
MLA_NOPE_HEAD_DIM = 128
MLA_PREFIX_SOURCE = "keys and values of the prefix expanded from latents, SGLANG_MAX_KV_CHUNK_CAPACITY = 128 Ki tokens"
SPARSE_INDEX_SOURCE = (
    "one float32 for each row of the chunk and each token of the context (sparse attention index), outside every"
    " reserve of the engine: sgl-project/sglang issue 35201, 8 GiB at 8,192 rows and 1M tokens compressed by 4"
)
# SGLANG_DSA_MQA_LOGITS_FREE_MEM_FRACTION: the matrix is cut so that it stays within this share of what is not static.
SPARSE_INDEX_CUT_SINCE, SPARSE_INDEX_SHARE = "0.5.23", 0.2
SPARSE_INDEX_CUT_SOURCE = "sparse attention index, cut to a fifth of the reserve (sglang 0.5.23 mqa_logits_utils.py)"
# Image encoders: activations of the largest image, of which no public figure is known.
ENCODER_GIB = 0.5
ENCODER_SOURCE = "image encoder at work: no reserve of the engine, a guess; stated by min_headroom_gib"

# What must still be free under load (the floor of least free), as share of free before load, and at least.
MARGIN_SHARE = 0.005
MARGIN_LEAST_GIB = 0.25
MARGIN_SOURCE = "floor of least free: 0.5% of free before load, at least 0.25 GiB"
CPU_MARGIN_SHARE = 0.10
CPU_MARGIN_LEAST_GIB = 2.0
CPU_MARGIN_SOURCE = "floor of least free on a CPU: 10% of free before load, at least 2 GiB, for the rest of the machine"

# --- the engine's own default fraction, for comparison (_budget_default) ----------------------------------------------

DEFAULT_ACTIVATION_MIB_PER_TOKEN = 1.5
DEFAULT_FLOOR_MIB = 10240.0
DEFAULT_FLOOR_ABOVE_MIB = 60 * 1024

# --- the allocator (its conflicts stand in _conflicts) ---------------------------------------------------------------

# Less than this "reserved but unallocated" is not called fragmentation.
FRAGMENTED_FROM_GIB = 0.5
# Of what was reserved and of no use, so much stays so with expandable segments: assumed, no public figure is known.
FRAGMENTED_STAYS_SHARE = 0.5
