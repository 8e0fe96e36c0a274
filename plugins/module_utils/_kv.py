# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: geometry, layout and version to the cell. Private to the collection.

The cell is the KV bytes of one token on one rank. The pool of an engine is C(rest of the static part // cell), so the
cell must be the one that the engine itself uses. Whatever is not understood raises UnknownLayout and names it: a wrong
cell is worse than none, because the user can measure it once and state it as C(cell_bytes).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import (
    canonical_arguments,
    version_at_least,
    version_key,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    Ranks,
    UnknownLayout,
    check_heads,
    field_of,
    is_on,
    kv_heads_per_rank,
    layers_of_largest_stage,
    optional_field,
    ranks,
    whole_number,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import (
    DRAFT_RULES,
    FP4_FORMS,
    FP4_NAMES,
    KV_DTYPE_BY_NAME,
    LAYOUT_ARGUMENTS,
    MODEL_DTYPES,
    POOL_SOURCE,
    TABLE_FORMS,
)

__all__ = [
    "Cell",
    "LAYOUTS",
    "Layout",
    "LayoutError",
    "Ranks",
    "Request",
    "UnknownLayout",
    "cell_bytes",
    "default_max_running_requests",
    "is_on",
    "kv_dtype",
    "ranks",
    "request_table_bytes",
    "whole_number",
]


@dataclass(frozen=True)
class Cell:
    """The cell and how it came about. C(parts): list of {name, bytes, source}; they sum to C(bytes)."""

    bytes: int
    parts: list
    kv_dtype: str
    tp: int  # ranks that share the attention heads
    note: str
    layers: int  # attention layers of the largest stage
    layout: str

    def as_dict(self):
        return asdict(self)


# ---------------------------------------------------------------------------
# KV type
# ---------------------------------------------------------------------------


def kv_dtype(geometry, arguments, engine_version=None):
    """Return (name, element bytes) of the KV cache. C(arguments) must be canonical.

    C(auto) is the type the model runs in, and fp8 where the checkpoint asks for it (kv_cache_quant_algo, since 0.5.4).
    Weights of 8 or 4 bits alone do not make the cache smaller.
    """
    wanted = arguments.get("kv-cache-dtype")
    wanted = "auto" if wanted is None else str(wanted).strip().lower()
    if wanted != "auto":
        row = KV_DTYPE_BY_NAME.get(wanted)
        if row is None:
            if wanted in ("float16", "fp16", "half"):
                return "fp16", 2  # not an engine value, but planners name the type so
            raise UnknownLayout(f"kv-cache-dtype {wanted}", "known are auto, " + ", ".join(KV_DTYPE_BY_NAME))
        return row.name, row.element_bytes
    hint = geometry.get("kv_cache_quant_algo")
    if isinstance(hint, str) and hint.upper() == "FP8" and version_at_least(engine_version, "0.5.3"):
        if not version_at_least(engine_version, "0.5.4"):
            raise UnknownLayout(
                "kv_cache_quant_algo FP8 with SGLang 0.5.3", "it depends on the quantisation method there"
            )
        return "fp8_e4m3", 1
    return model_dtype(geometry, arguments)


def model_dtype(geometry, arguments):
    """Return (name, element bytes) of the type the model runs in: --dtype, else what the checkpoint states."""
    chosen = arguments.get("dtype")
    chosen = "auto" if chosen is None else str(chosen).strip().lower()
    if chosen == "auto":
        # The engine runs float32 checkpoints, and those that do not say, in 16 bits
        # (srt/configs/model_config.py _get_and_verify_dtype).
        declared = str(geometry.get("dtype") or "float32").lower().replace("torch.", "")
        if declared in ("float32", "float", "fp32"):
            gemma = str(geometry.get("model_type") or "").startswith("gemma")
            declared = "bfloat16" if gemma else "float16"
        chosen = declared
    if chosen not in MODEL_DTYPES:
        raise UnknownLayout(f"dtype {chosen}", "known are auto, " + ", ".join(MODEL_DTYPES))
    return MODEL_DTYPES[chosen]


# ---------------------------------------------------------------------------
# The layouts. A further family is one more function and one more row in LAYOUTS.
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What a layout function gets: checked input. C(layers) are those of the largest stage."""

    geometry: dict
    layers: int
    attention_tp: int
    dtype: str
    element_bytes: int
    engine_version: str | None


def _part(name, size_bytes, source):
    return {"name": name, "bytes": size_bytes, "source": source}


def _mha_parts(request):
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
        return _fp4_mha_parts(request, heads, head_dim, numbers)
    parts = [_part("keys and values", numbers * request.element_bytes, source)]
    if request.dtype == "mxfp8":
        parts.append(_part("scales", numbers // 32, "one byte for 32 numbers"))
    return parts


def _fp4_mha_parts(request, heads, head_dim, numbers):
    version = request.engine_version
    form = None
    if version is not None:
        key = version_key(version)
        form = next((row for row in FP4_FORMS if version_key(row.since) <= key < version_key(row.before)), None)
    if form is None or request.dtype != "fp4_e2m1":
        raise UnknownLayout(
            "kv-cache-dtype {} with SGLang {}".format(request.dtype, version or "of unknown version"),
            "its scales and workspace depend on the attention backends",
        )
    parts = [
        _part("keys and values", numbers // 2, "half a byte a number"),
        _part("scales", heads * head_dim * request.layers * 2 // 16, form.source),
    ]
    if form.workspace:
        parts.append(_part("dequantisation workspace", heads * head_dim * 2, form.source))
    return parts


def _mla_parts(request):
    """MLA: one latent and one rope row per layer and token, the whole of it on every rank."""
    geometry = request.geometry
    rank = field_of(geometry, "kv_lora_rank")
    rope = field_of(geometry, "qk_rope_head_dim", minimum=0)
    numbers = (rank + rope) * request.layers
    source = f"({rank} + {rope}) x {request.layers} layers x {request.element_bytes} bytes, the same on every rank"
    if request.dtype == "mxfp8":
        raise UnknownLayout("kv-cache-dtype mxfp8 with multi-head latent attention")
    if request.dtype in FP4_NAMES:
        return [
            _part("latent rows", numbers // 2, "half a byte a number"),
            _part("scales", (rank + rope) // 16 * request.layers, POOL_SOURCE),
        ]
    return [_part("latent rows", numbers * request.element_bytes, source)]


@dataclass(frozen=True)
class Layout:
    """A family of KV layouts: C(parts) makes the list of parts from a Request."""

    attention: str
    parts: object
    source: str


LAYOUTS = (
    Layout("mha", _mha_parts, "pool_configurator.py DefaultPoolConfigurator, use_mla_backend false"),
    Layout("mla", _mla_parts, "pool_configurator.py DefaultPoolConfigurator, use_mla_backend true"),
)
_LAYOUT_BY_ATTENTION = {row.attention: row for row in LAYOUTS}


# ---------------------------------------------------------------------------
# The cell
# ---------------------------------------------------------------------------


def cell_bytes(geometry, arguments=None, engine_version=None):
    """Return the Cell: KV bytes of one token on one rank, exactly as the engine computes it.

    C(geometry): dictionary as read_geometry gives it (plus C(draft_layers) when a draft model is given by path).
    C(arguments): server arguments in any spelling. C(engine_version): None counts as the newest known.
    Raises UnknownLayout for what is not understood and LayoutError for inputs that cannot be right.
    """
    if not isinstance(geometry, dict):
        raise LayoutError(f"Expected the geometry as a dictionary, found {type(geometry).__name__}.")
    if engine_version is not None:
        version_key(engine_version)
    arguments = canonical_arguments(arguments)
    layout = _LAYOUT_BY_ATTENTION.get(geometry.get("attention"))
    if layout is None:
        raise UnknownLayout(
            "attention {}".format(geometry.get("attention")), "known are " + ", ".join(_LAYOUT_BY_ATTENTION)
        )
    _refuse_layout_arguments(arguments)
    shared = ranks(arguments, engine_version)
    check_heads(geometry, shared.attention_tp)
    layers = layers_of_largest_stage(field_of(geometry, "layers"), shared.stages)
    name, element_bytes = kv_dtype(geometry, arguments, engine_version)
    parts = layout.parts(Request(geometry, layers, shared.attention_tp, name, element_bytes, engine_version))
    draft, notes = _draft_part(geometry, arguments, engine_version, layers, sum(part["bytes"] for part in parts))
    if draft:
        parts = parts + [draft]
    if engine_version is None:
        notes.append("the engine version is unknown, the newest known rules are used")
    if shared.stages > 1:
        notes.append(f"the largest of {shared.stages} pipeline stages holds {layers} layers")
    total = sum(part["bytes"] for part in parts)
    return Cell(total, parts, name, shared.attention_tp, "; ".join(notes), layers, layout.attention)


def _refuse_layout_arguments(arguments):
    for row in LAYOUT_ARGUMENTS:
        value = arguments.get(row.name)
        if value is None or value in row.neutral or str(value).lower() in ("false", "no", "off"):
            continue
        if str(value) in [str(neutral) for neutral in row.neutral]:
            continue
        raise UnknownLayout(f"the server argument {row.name} {value}")
    _refuse_overrides(arguments.get("json-model-override-args"))


# Keys of a model configuration that cannot move the cell.
_HARMLESS_OVERRIDES = ("rope_scaling", "rope_theta", "rope_parameters", "max_position_embeddings")


def _refuse_overrides(value):
    """--json-model-override-args replaces keys of config.json: only those that cannot move the cell are let through."""
    if value in (None, "", "{}"):
        return
    try:
        overrides = json.loads(value) if isinstance(value, str) else dict(value)
        unknown = sorted(key for key in overrides if key not in _HARMLESS_OVERRIDES)
    except (TypeError, ValueError, AttributeError):
        raise LayoutError(
            f"Expected a JSON object for the server argument json-model-override-args, found {value!r}."
        ) from None
    if unknown:
        raise UnknownLayout("json-model-override-args with " + ", ".join(unknown))


def _draft_part(geometry, arguments, engine_version, layers, target_bytes):
    """Return (part or None, notes) for speculation."""
    algorithm = arguments.get("speculative-algorithm")
    if algorithm is None or str(algorithm).strip().lower() in ("", "none"):
        return None, []
    algorithm = str(algorithm).strip().upper()
    rows = [row for row in DRAFT_RULES if row.algorithm == algorithm and version_at_least(engine_version, row.since)]
    if not rows:
        raise UnknownLayout(f"speculative-algorithm {algorithm}")
    if rows[-1].effect == "none":
        note = f"the cell of the draft model is not in the pool's cell ({rows[-1].source})"
        return None, [note]
    draft_layers = geometry.get("draft_layers")
    if draft_layers is None and not arguments.get("speculative-draft-model-path"):
        draft_layers = geometry.get("nextn_layers")
    if draft_layers is None:
        raise UnknownLayout(
            f"speculative-algorithm {algorithm}", "the number of layers of the draft model is not given"
        )
    draft_layers = whole_number(draft_layers, "draft_layers of the geometry", minimum=0)
    size_bytes = target_bytes * draft_layers // layers
    source = f"{draft_layers} draft layers of the size of a target layer, {rows[-1].source}"
    return _part("draft", size_bytes, source), []


# ---------------------------------------------------------------------------
# The request table
# ---------------------------------------------------------------------------


def request_table_bytes(max_running_requests, context_tokens, engine_version=None, draft_tokens=0):
    """Return the bytes of the req_to_token table of one rank.

    C(max_running_requests) per data-parallel rank, C(context_tokens) the longest request. The engine allocates the
    table after the pool was sized, so it comes out of the reserve: 4 bytes for every position of every request.
    """
    requests = whole_number(max_running_requests, "max_running_requests")
    context = whole_number(context_tokens, "context_tokens")
    draft = whole_number(draft_tokens or 0, "draft_tokens", minimum=0)
    form = [row for row in TABLE_FORMS if version_at_least(engine_version, row.since)][-1]
    columns = context + 4 + (draft if form.draft_columns else 0)
    return (requests + form.spare_rows) * columns * 4


def default_max_running_requests(pool_tokens, context_tokens, engine_version=None):
    """Return the requests per data-parallel rank that the engine admits when --max-running-requests is not given."""
    pool = whole_number(pool_tokens, "pool_tokens")
    context = whole_number(context_tokens, "context_tokens")
    requests = min(max(int(pool / context * 512), 2048), 4096)
    if version_at_least(engine_version, "0.5.23"):
        requests = min(requests, max(1, pool // 2))
    return requests
