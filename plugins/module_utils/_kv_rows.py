# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: the rows that one token takes in the layers of one rank. Private to the collection.

Each function returns a list of parts {name, bytes, source}, with the engine's own integer divisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least, version_key
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    UnknownLayout,
    field_of,
    kv_heads_per_rank,
    optional_field,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_dtype import BLACKWELL, capability_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import (
    FP4_FORMS,
    FP4_NAMES,
    INDEX_SHARED_SINCE,
    POOL_SOURCE,
    RAW_SPARSE_BACKENDS,
    SPARSE_TRTLLM_SINCE,
    SPARSE_WIDTH_CHARGED_SINCE,
)

INDEX_BLOCK = 128  # numbers of an index row that share one fp32 scale


@dataclass(frozen=True)
class Request:
    """Checked input. C(layers) are those of the stage that keep full rows, C(index_layers) those with index rows."""

    geometry: dict
    layers: int
    attention_tp: int
    dtype: str
    element_bytes: int
    engine_version: str | None
    arguments: dict
    gpu_capability: str | None = None
    index_layers: int = 0
    sparse_pattern: str = ""


def part(name, size_bytes, source):
    return {"name": name, "bytes": size_bytes, "source": source}


def total(parts):
    return sum(one["bytes"] for one in parts)


# ---------------------------------------------------------------------------
# Multi-head and grouped-query attention
# ---------------------------------------------------------------------------


def mha_parts(request):
    """MHA and GQA: (head_dim + v_head_dim) numbers per KV head, layer and token."""
    geometry = request.geometry
    heads = kv_heads_per_rank(field_of(geometry, "kv_heads"), request.attention_tp)
    head_dim = field_of(geometry, "head_dim")
    v_head_dim = optional_field(geometry, "v_head_dim", head_dim)
    if not version_at_least(request.engine_version, "0.5.7"):
        v_head_dim = head_dim  # up to 0.5.6 the engine charged 2 * head_dim
    numbers = heads * (head_dim + v_head_dim) * request.layers
    source = f"{heads} KV heads x ({head_dim} + {v_head_dim}) x {request.layers} layers x {request.element_bytes} bytes"
    if request.dtype in FP4_NAMES:
        parts = _fp4_mha_parts(request, heads, head_dim, numbers)
    else:
        parts = [part("keys and values", numbers * request.element_bytes, source)]
        if request.dtype == "mxfp8":
            parts.append(part("scales", numbers // 32, "one byte for 32 numbers"))
    return parts + _sparse_parts(request)


def _fp4_mha_parts(request, heads, head_dim, numbers):
    version = request.engine_version
    form = None
    if version is not None:
        key = version_key(version)
        form = next((row for row in FP4_FORMS if version_key(row.since) <= key < version_key(row.before)), None)
    if form is None:
        raise UnknownLayout(
            "kv-cache-dtype {} with SGLang {}".format(request.dtype, version or "of unknown version"),
            "its scales and workspace depend on the attention backends",
        )
    parts = [
        part("keys and values", numbers // 2, "half a byte a number"),
        part("scales", heads * head_dim * request.layers * 2 // 16, form.source),
    ]
    if form.workspace:
        parts.append(part("dequantisation workspace", heads * head_dim * 2, form.source))
    return parts


def _sparse_parts(request):
    """MiniMax M3: one index key a sparse layer, and an index value where it is not switched off."""
    keys = sum(request.sparse_pattern.count(letter) for letter in "kv")
    if not keys:
        return []
    if request.dtype in FP4_NAMES or request.dtype == "mxfp8":
        raise UnknownLayout(f"kv-cache-dtype {request.dtype} with sparse index rows")
    capability = capability_of(request.gpu_capability)
    if request.element_bytes == 1 and capability is None:
        raise UnknownLayout(
            f"kv-cache-dtype {request.dtype} with sparse index rows",
            "their type depends on the board, and its compute capability is not given",
        )
    if request.element_bytes == 1 and int(capability) != 9:
        raise UnknownLayout(
            f"kv-cache-dtype {request.dtype} with sparse index rows", "their type depends on the attention backend"
        )
    width = field_of(request.geometry, "sparse_index_dim")
    rows = keys + request.sparse_pattern.count("v")
    size = rows * width * (1 if request.element_bytes == 1 else 2)
    return [part("index rows", size, f"{rows} index keys and values x {width}, {POOL_SOURCE}")]


def window_bytes(request, layers):
    """Return the bytes of one token in C(layers) layers of the window pool."""
    geometry = request.geometry
    if geometry.get("attention") == "mla":
        raise UnknownLayout("window layers with latent rows")
    if request.dtype in FP4_NAMES:
        raise UnknownLayout(f"kv-cache-dtype {request.dtype} with a window pool")
    kv_heads = optional_field(geometry, "window_kv_heads", field_of(geometry, "kv_heads"))
    heads = kv_heads_per_rank(kv_heads, request.attention_tp)
    head_dim = optional_field(geometry, "window_head_dim", field_of(geometry, "head_dim"))
    if geometry.get("window_head_dim") is None and geometry.get("window_v_head_dim") is None:
        # As the engine: window values are as wide as window keys unless the file says otherwise.
        v_head_dim = head_dim
    else:
        v_head_dim = optional_field(geometry, "window_v_head_dim", head_dim)
    numbers = heads * (head_dim + v_head_dim)
    size = numbers * request.element_bytes
    if request.dtype == "mxfp8":
        size += numbers // 32
    return size * layers


# ---------------------------------------------------------------------------
# Latent attention
# ---------------------------------------------------------------------------


def mla_parts(request):
    """MLA: one latent and one rope row per layer and token, the whole of it on every rank. As the engine charges it."""
    width = _charged_width(request)
    return _latent_parts(request, width) + _index_parts(request)


def mla_stored_bytes(request):
    """Return what the rows really take: scaled fp8 rows of sparse attention are wider than older versions charge."""
    return total(_latent_parts(request, _stored_width(request)) + _index_parts(request))


def _plain_width(geometry):
    rank = field_of(geometry, "kv_lora_rank")
    return rank, field_of(geometry, "qk_rope_head_dim", minimum=0)


def _charged_width(request):
    rank, rope = _plain_width(request.geometry)
    if version_at_least(request.engine_version, SPARSE_WIDTH_CHARGED_SINCE):
        return _stored_width(request)
    return rank + rope


def _stored_width(request):
    """Sparse attention with an fp8 cache: fp8 latent, a scale for 128 of them, position rows in 16 bits; but raw rows
    with the backends of a table."""
    rank, rope = _plain_width(request.geometry)
    if not request.geometry.get("index_head_dim") or request.dtype != "fp8_e4m3" or _raw_rows(request):
        return rank + rope
    if rank % INDEX_BLOCK:
        raise LayoutError(f"Expected kv_lora_rank to be a multiple of {INDEX_BLOCK}, found {rank}.")
    return rank + rank // INDEX_BLOCK * 4 + rope * 2


def _raw_rows(request):
    names = ("prefill", "decode")
    chosen = [request.arguments.get(f"{family}-{name}-backend") for name in names for family in ("dsa", "nsa")]
    stated = [str(one) for one in chosen if one is not None]
    for row in RAW_SPARSE_BACKENDS:
        if stated.count(row.backend) >= row.phases and version_at_least(request.engine_version, row.since):
            return True
    if len(stated) == 2:
        return False
    capability = capability_of(request.gpu_capability)
    if capability is None or capability < BLACKWELL:
        return False
    glm_12 = request.geometry.get("architecture") == "GlmMoeDsaForCausalLM" and int(capability) == 12
    return version_at_least(request.engine_version, SPARSE_TRTLLM_SINCE) and not glm_12


def _latent_parts(request, width):
    numbers = width * request.layers
    if request.dtype == "mxfp8":
        raise UnknownLayout("kv-cache-dtype mxfp8 with multi-head latent attention")
    if request.dtype in FP4_NAMES:
        if request.geometry.get("index_head_dim"):
            raise UnknownLayout(f"kv-cache-dtype {request.dtype} with sparse attention")
        return [
            part("latent rows", numbers // 2, "half a byte a number"),
            part("scales", width // 16 * request.layers, POOL_SOURCE),
        ]
    rank, rope = _plain_width(request.geometry)
    shape = f"({rank} + {rope})" if width == rank + rope else f"{width}"
    source = f"{shape} x {request.layers} layers x {request.element_bytes} bytes, the same on every rank"
    return [part("latent rows", numbers * request.element_bytes, source)]


def index_bytes(request, layers):
    """Return the bytes of the index rows of one token in C(layers) layers: fp8 numbers and an fp32 scale for 128."""
    width = field_of(request.geometry, "index_head_dim")
    row = width + width // INDEX_BLOCK * 4
    if version_at_least(request.engine_version, "0.5.22"):
        row = -(-row // optional_field(request.geometry, "index_kpool", 1))
    return row * layers


def _index_parts(request):
    if not request.geometry.get("index_head_dim"):
        return []
    width = request.geometry["index_head_dim"]
    source = f"{width} numbers and their scales x {request.index_layers} layers, {POOL_SOURCE}"
    return [part("index rows", index_bytes(request, request.index_layers), source)]


def index_layers_of(geometry, letters, first, engine_version):
    """Return how many of the stage's layers (C(letters), from layer C(first) on) keep index rows."""
    keeps = [index for index, letter in enumerate(letters, first) if letter in "fb"]
    pattern = geometry.get("index_pattern")
    if not pattern or not version_at_least(engine_version, INDEX_SHARED_SINCE):
        return len(keeps)
    return sum(1 for index in keeps if index >= len(pattern) or pattern[index] == "i")


@dataclass(frozen=True)
class Layout:
    """A family of rows: C(parts) makes the list of parts from a Request, C(stored) what they really take."""

    attention: str
    parts: object
    stored: object
    source: str


LAYOUTS = (
    Layout(
        "mha",
        mha_parts,
        lambda request: total(mha_parts(request)),
        "pool_configurator.py DefaultPoolConfigurator, use_mla_backend false",
    ),
    Layout("mla", mla_parts, mla_stored_bytes, "pool_configurator.py DefaultPoolConfigurator, use_mla_backend true"),
)
LAYOUT_BY_ATTENTION = {row.attention: row for row in LAYOUTS}
