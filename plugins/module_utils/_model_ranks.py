# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the ranks share the weights: sizes out of the server arguments. Private to the collection."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._kv import model_dtype
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import is_on, ranks, whole_number
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_dtype import capability_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_table import is_tower

# All-to-all backends with which every rank holds the shared experts whole
# (srt/models/deepseek_v2.py _shared_expert_use_tp1).
WHOLE_SHARED_BACKENDS = (
    "deepep",
    "deepep_v2",
    "pplx",
    "mooncake",
    "nixl",
    "mori",
    "ascend_fuseep",
    "flashinfer",
    "megamoe",
    "flashinfer_megamoe",
)


class SplitError(ValueError):
    """The weights of one rank cannot be told. The text is one sentence with the way out."""


@dataclass(frozen=True)
class Layout:
    """How the ranks share the weights."""

    tp: int
    attention_tp: int
    stages: int
    bounds: tuple  # first layer of every stage, and the number of layers
    kv_heads: int | None
    window_rows: tuple | None  # (rows of a key projection in windowed layers, their KV heads) where these differ
    heads: int | None
    head_tp: int
    dense_tp: int
    expert_ways: float
    expert_tp: int  # ranks that share one expert
    shared_whole: bool
    tower_whole: bool
    element_bytes: int
    capability: float | None
    expandable: bool
    device: str


def _size(arguments, name, default, minimum=1):
    value = arguments.get(name)
    return default if value is None else whole_number(value, "the server argument " + name, minimum)


def layout_of(table, geometry, arguments, environment, engine_version, capability, device):
    """Return the Layout. Raises SplitError, or LayoutError of _kv_base for sizes that cannot be."""
    geometry = geometry or {}
    shared = ranks(arguments, engine_version)
    tp = _size(arguments, "tp-size", 1)
    ep = _size(arguments, "ep-size", 1)
    moe_dp = _size(arguments, "moe-dp-size", 1)
    backend = str(arguments.get("moe-a2a-backend") or "").lower()
    layers = _layers(table)
    return Layout(
        tp=tp,
        attention_tp=shared.attention_tp,
        stages=shared.stages,
        bounds=_bounds(layers, shared.stages, environment),
        kv_heads=geometry.get("kv_heads"),
        window_rows=_window_rows(geometry),
        heads=geometry.get("attention_heads"),
        head_tp=shared.attention_tp if is_on(arguments.get("enable-dp-lm-head", False)) else tp,
        dense_tp=_size(arguments, "moe-dense-tp-size", tp),
        expert_ways=_expert_ways(arguments, tp / moe_dp, geometry.get("experts")),
        expert_tp=max(1, tp // (ep * moe_dp)),
        shared_whole=backend in WHOLE_SHARED_BACKENDS or is_on(arguments.get("enable-deepep-moe", False)),
        tower_whole=is_on(arguments.get("mm-enable-dp-encoder", False)),
        element_bytes=model_dtype(geometry, arguments)[1],
        capability=capability_of(capability),
        expandable=any(
            "expandable_segments:true" in str(environment.get(name) or "").lower()
            for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        ),
        device=device,
    )


def _window_rows(geometry):
    heads = geometry.get("window_kv_heads")
    width = geometry.get("window_head_dim") or geometry.get("head_dim")
    return (heads * width, heads) if heads and width else None


def _expert_ways(arguments, ranks_of_experts, experts):
    """Return by what the experts' bytes are divided: copies of experts make it less, experts in host memory more."""
    if not experts:
        return ranks_of_experts
    spare = _size(arguments, "ep-num-redundant-experts", 0, 0)
    here = _size(arguments, "kt-num-gpu-experts", experts, 0)  # KTransformers: the others are computed by the CPU
    return ranks_of_experts * experts / max(here + spare, 1)


def _layers(table):
    """Return the number of layers, from the table: a geometry may be missing."""
    lasts = [
        run[1]
        for row in table
        if not row.get("draft") and not is_tower(row["name"])
        for run in (row.get("layers") or [])[-1:]
    ]
    return max(lasts, default=-1) + 1


def _bounds(layers, stages, environment):
    """Return the first layer of each stage, and the end: the last stages hold the rest (distributed/utils.py)."""
    if stages == 1:
        return (0, layers)
    text = str(environment.get("SGLANG_PP_LAYER_PARTITION") or "")
    if text:
        sizes = [int(one) for one in text.split(",") if one.strip().isdecimal()]
        if len(sizes) != stages or sum(sizes) != layers:
            raise SplitError(
                f"Expected SGLANG_PP_LAYER_PARTITION to name {stages} sizes that add up to {layers} layers, found"
                f" {text[:60]!r}: correct it in the environment of the server."
            )
    else:
        rest = layers % stages
        sizes = [layers // stages + (index >= stages - rest) for index in range(stages)]
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return tuple(bounds)
