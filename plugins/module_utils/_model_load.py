# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What loading makes of the weights: casts, quantisation, copies, the allocator's rounding. Private to the collection.

Paths of sources are inside the package sglang of version 0.5.23.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_parts as parts
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import BITS_OF_TYPE

MIB = 1024**2

# ---------------------------------------------------------------------------
# The caching allocator: what the log prints as used is what torch has reserved
# ---------------------------------------------------------------------------

# torch c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer,
# kRoundLarge.
_BLOCK_BYTES = 512
_SMALL_BYTES = MIB
_SMALL_SEGMENT_BYTES = 2 * MIB
_LARGE_FROM_BYTES = 10 * MIB
_LARGE_SEGMENT_BYTES = 20 * MIB
_ROUND_BYTES = 2 * MIB


def reserved_bytes(sizes, expandable=False):
    """Return the bytes that torch reserves for tensors of these C(sizes) (bytes), allocated in this order, none freed.

    C(expandable): with expandable segments nothing but the last page of each pool is lost.
    """
    small, large = _Pool(0), _Pool(_SMALL_BYTES)
    for size in sizes:
        rounded = -(-max(size, 1) // _BLOCK_BYTES) * _BLOCK_BYTES
        (small if rounded <= _SMALL_BYTES else large).take(rounded)
    if expandable:
        return _round(small.used, _SMALL_SEGMENT_BYTES) + _round(large.used, _LARGE_SEGMENT_BYTES)
    return small.reserved + large.reserved


def _round(size, step):
    return -(-size // step) * step


class _Pool:
    """Blocks of one pool: the smallest free one that fits is taken, its rest stays free when it is large enough."""

    def __init__(self, least_rest):
        self.least_rest = least_rest
        self.free = []
        self.reserved = 0
        self.used = 0

    def take(self, size):
        self.used += size
        index = bisect.bisect_left(self.free, size)
        if index < len(self.free):
            block = self.free.pop(index)
        else:
            block = _segment(size)
            self.reserved += block
        if block - size > self.least_rest:
            bisect.insort(self.free, block - size)


def _segment(size):
    if size <= _SMALL_BYTES:
        return _SMALL_SEGMENT_BYTES
    return _LARGE_SEGMENT_BYTES if size < _LARGE_FROM_BYTES else _round(size, _ROUND_BYTES)


# ---------------------------------------------------------------------------
# Casts
# ---------------------------------------------------------------------------

_FLOATS = ("F64", "F32", "BF16", "F16")
# Parameters that keep their type: scales, and what the models declare as float32 themselves.
_KEPT = re.compile(
    r"scale|zero|e_score|expert_bias|A_log|dt_bias|inv_freq|(?:^|\.)hc_|sinks?$|\.D$|\.ape$|SCB|g_idx"
    r"|weight\.(?:absmax|quant_map|quant_state|nested_)"
)


def is_wide_weight(row):
    """Return whether the tensors of a row are weights in floating point that no quantisation has touched."""
    return row["dtype"] in _FLOATS and not _KEPT.search(row["name"])


def cast_factor(row, element_bytes):
    """Return the bytes in memory of one byte in the file: parameters have the type that the model runs in."""
    if not is_wide_weight(row):
        return 1.0
    return element_bytes * 8 / BITS_OF_TYPE[row["dtype"]]


# ---------------------------------------------------------------------------
# Quantisation at load
# ---------------------------------------------------------------------------

UNQUANTISED = "unquantised"  # all is loaded as it is in the file, then converted module by module
QUANTISED = "quantised"  # converted before the next tensor comes


@dataclass(frozen=True)
class Online:
    """What C(argument)=C(value) makes of a checkpoint that is not quantised.

    C(element_bytes): bytes of a weight with its scales. C(peak): what the load has to hold at most.
    """

    argument: str
    value: str
    element_bytes: float
    peak: str
    experts_only: bool
    source: str


_Q = "quantization"
_T = "torchao-config"
_TORCHAO = "apply_torchao_config_to_model after the load; not in 0.5.23 any more"
ONLINE = (
    Online(_Q, "fp8", 1.0, UNQUANTISED, False, "srt/layers/quantization/fp8.py process_weights_after_loading"),
    Online(_Q, "mxfp8", 1 + 1 / 32, UNQUANTISED, False, "srt/layers/quantization/fp8.py _quantize_mxfp8_weights"),
    Online(_Q, "w8a8_fp8", 1.0, UNQUANTISED, False, "srt/layers/quantization/w8a8_fp8.py"),
    Online(_Q, "bitsandbytes", 0.5 + 4 / 64, QUANTISED, False, "srt/model_loader/loader.py _unquantized_generator"),
    Online(_Q, "nvfp4_online", 0.5 + 1 / 16, QUANTISED, True, "srt/layers/quantization/nvfp4_online.py"),
    Online(_Q, "modelopt_fp4", 0.5 + 1 / 16, QUANTISED, True, "srt/layers/quantization/nvfp4_online.py"),
    Online(_Q, "quark_mxfp4", 0.5 + 1 / 32, QUANTISED, False, "srt/layers/quantization/quark CopyNumelCounter"),
    Online(_Q, "quark_int4fp8_moe", 0.5, QUANTISED, True, "srt/layers/quantization/quark_int4fp8_moe.py"),
    Online(_T, "int8wo", 1.0, UNQUANTISED, False, _TORCHAO),
    Online(_T, "int8dq", 1.0, UNQUANTISED, False, _TORCHAO),
    Online(_T, "fp8wo", 1.0, UNQUANTISED, False, _TORCHAO),
    Online(_T, "fp8dq-per_row", 1.0, UNQUANTISED, False, _TORCHAO),
    Online(_T, "fp8dq-per_tensor", 1.0, UNQUANTISED, False, _TORCHAO),
    Online(_T, "int4wo-32", 0.5 + 4 / 32, UNQUANTISED, False, _TORCHAO),
    Online(_T, "int4wo-64", 0.5 + 4 / 64, UNQUANTISED, False, _TORCHAO),
    Online(_T, "int4wo-128", 0.5 + 4 / 128, UNQUANTISED, False, _TORCHAO),
    Online(_T, "int4wo-256", 0.5 + 4 / 256, UNQUANTISED, False, _TORCHAO),
)

# Loaders that convert a layer before they load the next one (srt/model_loader/loader.py LayeredModelLoader).
LAYERED_FORMATS = ("layered",)

_QUANTISED_TYPES = ("F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "F6_E3M2", "I8", "U8", "I32", "U32")


def is_quantised(table):
    """Return whether the checkpoint is quantised: any of its weights is neither floating point nor a scale."""
    return any(
        row["dtype"] in _QUANTISED_TYPES and (row.get("shape") is None or len(row["shape"]) > 1) for row in table
    )


def online_of(arguments, table):
    """Return the row of ONLINE that applies, or None. A checkpoint that is quantised already is loaded as it is."""
    if is_quantised(table):
        return None
    for row in ONLINE:
        value = arguments.get(row.argument)
        if value is not None and str(value).strip().lower() == row.value:
            return row
    return None


_LINEAR_DIVISIONS = (parts.ATTENTION, parts.KV_HEADS, parts.FUSED_QKV, parts.DENSE, parts.EXPERTS, parts.SHARED)
_REPLICATED_LINEAR = ("latent projections", "indexer")


def quantised_online(row, part, online):
    """Return whether a load with C(online) converts the tensors of a row: linear layers and experts only."""
    if online is None or not is_wide_weight(row) or len(row.get("shape") or ()) < 2:
        return False
    if online.experts_only:
        return part.division == parts.EXPERTS
    return part.division in _LINEAR_DIVISIONS or part.name in _REPLICATED_LINEAR


# ---------------------------------------------------------------------------
# Packed tensors
# ---------------------------------------------------------------------------

# AWQ and GPTQ keep the outputs in the last dimension, AWQ and the zeros of both eight of them in a word
# (srt/layers/quantization/awq/schemes/awq_marlin.py create_weights, gptq.py).
_OUTPUTS_LAST = re.compile(r"\.(?:qweight|qzeros|scales)$")


def outputs_of(row):
    """Return how many outputs the matrix of a row may have: the first dimension, of packed tensors the last one."""
    shape = row.get("shape") or ()
    if not shape:
        return ()
    if not _OUTPUTS_LAST.search(row["name"]):
        return shape[:1]
    return (shape[-1], shape[-1] * _NUMBERS_IN_WORD.get(row["dtype"], 1))


# ---------------------------------------------------------------------------
# What is made besides
# ---------------------------------------------------------------------------

_NUMBERS_IN_WORD = {"I32": 8, "U32": 8, "U8": 2}  # packed 4-bit numbers
ABSORBED_SOURCE = (
    "w_kc and w_vc of latent attention: srt/models/deepseek_common/deepseek_weight_loader.py post_load_weights"
)


def absorbed_bytes(row):
    """Return the bytes of the copies of kv_b_proj that latent attention multiplies with, before the split.

    Weights in blocks of FP8 and packed ones are unpacked to 16 bits, others keep their type.
    """
    if not re.search(r"kv_b_proj\.(?:weight|qweight)$", row["name"]):
        return 0
    numbers = row["bytes"] * 8 // BITS_OF_TYPE.get(row["dtype"], 8) * _NUMBERS_IN_WORD.get(row["dtype"], 1)
    return numbers * 2


@dataclass(frozen=True)
class Leftover:
    """Layers that a model makes and drops: they count as used until Python's collector runs, which is seldom in a load.

    C(until): the first version that collects before the pool is measured. C(error): of their share, as the collector
    may have met some of them.
    """

    until: str
    error: float
    source: str


# The parameters of a dropped layer hold its weight loader, and that the layer: a cycle, which only the collector ends.
# Printed by Devstral Small 2 (24B, AWQ, 0.5.12, two ranks): 12.91 GiB, of which 5.35 came back when the collector ran
# before the graphs; its 40 layers take 5.38 on a rank. On 0.5.18 342,000 tokens instead of 199,000 where the collector
# ran first, at 40,960 bytes: 5.45 GiB (github.com/mattbucci/2x-3090-GA102-300-A1-sglang-inference, patches 062).
BUILT_TWICE = Leftover(
    "0.5.20", 0.05, "srt/models/ministral3.py, and srt/mem_cache/kv_cache_configurator.py gc.collect (pull 36583)"
)


@dataclass(frozen=True)
class Encoder:
    """An image encoder that these C(architectures) make even where the files have no weights for it.

    A layer has C(attention) matrices of hidden x hidden and C(feed_forward) of hidden x intermediate numbers, divided
    among the attention ranks. C(rows) of hidden numbers (positions, patches) and the projection into the language model
    are whole on every rank.
    """

    architectures: tuple
    attention: int
    feed_forward: int
    rows: int
    source: str


# Printed by Gemma 4 31B without encoder in its files (0.5.12, AWQ, two ranks): 11.07 GiB, 10.5 without the encoder.
ENCODERS = (
    Encoder(
        ("Gemma4ForConditionalGeneration",),
        4,
        3,
        2 * 10240 + 3 * 16 * 16,
        "srt/models/gemma4_mm.py Gemma4VisionEncoder, gemma4_vision.py",
    ),
)


def encoder_bytes(geometry, element_bytes, ways):
    """Return (bytes on a rank of the encoder that the engine makes by itself, source), (0, "") where none is known."""
    row = next((row for row in ENCODERS if geometry.get("architecture") in row.architectures), None)
    sizes = [geometry.get(name) for name in ("vision_layers", "vision_hidden_size", "vision_intermediate_size")]
    if row is None or not geometry.get("multimodal") or not all(sizes):
        return 0, ""
    layers, hidden, intermediate = sizes
    divided = layers * hidden * (row.attention * hidden + row.feed_forward * intermediate)
    whole = hidden * (row.rows + (geometry.get("hidden_size") or 0))
    return (divided / ways + whole) * element_bytes, row.source


@dataclass(frozen=True)
class Padding:
    """To what multiples MXFP4 experts are padded from this compute capability on."""

    since: float
    intermediate: int
    hidden: int
    source: str


MXFP4_PADDING = (
    Padding(0.0, 64, 1, "srt/layers/quantization/mxfp4.py triton_kernels_padding_alignment"),
    Padding(10.0, 128, 256, "srt/layers/quantization/mxfp4.py and fused_moe_triton/layer.py with flashinfer_mxfp4"),
)


def mxfp4_factor(intermediate, hidden, ways, capability=None):
    """Return by what MXFP4 experts grow when each of C(ways) ranks pads its share of the intermediate size."""
    row = [one for one in MXFP4_PADDING if (capability or 0.0) >= one.since][-1]
    share = intermediate / ways
    return _round(-(-intermediate // ways), row.intermediate) / share * _round(hidden, row.hidden) / hidden
