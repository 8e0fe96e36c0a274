# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs, the ground of it: errors, checks of numbers, sharing by ranks. Private to the collection."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, version_at_least

WAY_OUT = "state the cell as sglang_server_cell_bytes (the pool line of a start-up gives it)"


class UnknownLayout(ValueError):
    """The KV layout cannot be computed. C(what) names the thing that is not understood."""

    def __init__(self, what, why=""):
        self.what = what
        self.why = why
        text = "The KV cell of this configuration is not known because of {}{}: {}.".format(
            what, f" ({why})" if why else "", WAY_OUT
        )
        super().__init__(text)


class LayoutError(ValueError):
    """An input cannot be right: a size that is no positive whole number, or heads that do not divide."""


# ---------------------------------------------------------------------------
# Input checks
# ---------------------------------------------------------------------------


def whole_number(value, name, minimum=1):
    """Return C(value) as int. Raise LayoutError (names C(name)) for anything that is no whole number."""
    number = value
    if isinstance(value, str):
        text = value.strip()
        number = int(text) if text.isascii() and text.lstrip("+").isdigit() else None
    elif isinstance(value, float):
        number = int(value) if math.isfinite(value) and value == int(value) else None
    elif isinstance(value, bool) or not isinstance(value, int):
        number = None
    if number is None or number < minimum:
        raise LayoutError(f"Expected a whole number of at least {minimum} for {name}, found {value!r}.")
    return number


def is_on(value):
    """Return whether a flag is set. Inventories write flags as booleans or as words."""
    if isinstance(value, str):
        return value.strip().lower() in ("true", "yes", "on", "1")
    return bool(value)


def argument_number(arguments, name, default=None, minimum=1):
    """Return the whole number that the server argument C(name) states, C(default) where it is not there."""
    value = arguments.get(name)
    return default if value is None else whole_number(value, "the server argument " + name, minimum)


# The largest figures that a model may have, the same in a file and in a geometry that is stated by hand: what is larger
# is a typing error, and the arithmetic goes layer by layer.
GEOMETRY_LIMITS = {
    "layers": 10000,
    "draft_layers": 10000,
    "nextn_layers": 10000,
    "mtp_layers": 10000,
    "rows_per_layer": 10000,
    "attention_heads": 100000,
    "kv_heads": 100000,
    "window_kv_heads": 100000,
    "head_dim": 65536,
    "v_head_dim": 65536,
    "window_head_dim": 65536,
    "window_v_head_dim": 65536,
    "index_head_dim": 65536,
    "sparse_index_dim": 65536,
    "kv_lora_rank": 65536,
    "qk_rope_head_dim": 65536,
}
GEOMETRY_LIMIT = 2**40


def geometry_number(value, key, minimum=1, where="the geometry"):
    """Return the figure C(key) of a geometry as int. Raise LayoutError for one that no model has."""
    number = whole_number(value, f"{key} of {where}", minimum)
    limit = GEOMETRY_LIMITS.get(key, GEOMETRY_LIMIT)
    if number > limit:
        raise LayoutError(
            f"Expected at most {limit} for {key} of {where}, found {str(value)[:40]}: correct it, read it with"
            f" model_info, or {WAY_OUT}."
        )
    return number


def field_of(geometry, key, minimum=1):
    value = geometry.get(key)
    if value is None:
        raise LayoutError(f"Expected {key} in the geometry, found nothing: read it with model_info, or {WAY_OUT}.")
    return geometry_number(value, key, minimum)


def optional_field(geometry, key, default):
    return default if geometry.get(key) is None else field_of(geometry, key)


# ---------------------------------------------------------------------------
# Parallelism
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranks:
    """How the ranks share the model. C(attention_tp) ranks share the heads, C(stages) the layers."""

    attention_tp: int
    stages: int
    data_parallel: int  # request groups that have a pool each
    pools: int = 1  # request groups inside one server process group (data-parallel attention): they share its limits


def ranks(arguments, engine_version=None):
    """Return the Ranks that C(arguments) (any spelling) give. Raises LayoutError when the sizes do not divide."""
    arguments = canonical_arguments(arguments)
    tp = argument_number(arguments, "tp-size", 1)
    dp = argument_number(arguments, "dp-size", 1)
    context_parallel = argument_number(arguments, "attn-cp-size", 1)
    attention_dp = argument_number(arguments, "attn-dp-size", 1)
    attention_replicas = attention_dp
    if is_on(arguments.get("enable-dp-attention", False)) and attention_dp == 1:
        # Before 0.4.3 the heads were divided by the whole tp size even so (srt/model_executor/model_runner.py).
        attention_replicas = dp if version_at_least(engine_version, "0.4.3") else 1
    divisor = attention_replicas * context_parallel
    if tp % divisor:
        raise LayoutError(
            f"Expected tp-size to be a multiple of the {divisor} attention groups (dp-size or attn-dp-size, times"
            " attn-cp-size),"
            f" found tp-size {tp}: change one of them in the server arguments."
        )
    return Ranks(tp // divisor, argument_number(arguments, "pp-size", 1), max(dp, attention_dp), attention_replicas)


def layers_of_largest_stage(layers, stages):
    """Return the layers that the largest pipeline stage holds: the pool is the minimum over stages."""
    if stages > layers:
        raise LayoutError(
            f"Expected pp-size to be at most the {layers} layers of the model, found {stages}: lower pp-size in"
            " the server arguments."
        )
    return -(-layers // stages)


def stage_ranges(layers, stages, engine_version=None, partition=None):
    """Return [(first layer, layer after the last)] of the pipeline stages, as the engine cuts them.

    C(partition): the value of SGLANG_PP_LAYER_PARTITION, or None. The remainder goes to the last stages, one layer
    each; before 0.5.6 all of it to the last one (srt/distributed/utils.py get_pp_indices).
    """
    layers_of_largest_stage(layers, stages)
    if partition and stages > 1:
        sizes = [whole_number(one, "SGLANG_PP_LAYER_PARTITION in the environment") for one in str(partition).split(",")]
        if len(sizes) != stages or sum(sizes) != layers:
            raise LayoutError(
                f"Expected SGLANG_PP_LAYER_PARTITION to name {stages} sizes that add up to {layers} layers, found"
                f" {str(partition)[:60]!r}: correct it in the environment of the server."
            )
    else:
        base, rest = divmod(layers, stages)
        if version_at_least(engine_version, "0.5.6"):
            sizes = [base + (1 if index >= stages - rest else 0) for index in range(stages)]
        else:
            sizes = [base] * (stages - 1) + [base + rest]
    ends = [sum(sizes[: index + 1]) for index in range(stages)]
    return [(end - size, end) for size, end in zip(sizes, ends)]


def kv_heads_per_rank(kv_heads, attention_tp):
    """Return the KV heads that one rank stores. Fewer heads than ranks are replicated, not split."""
    fits = kv_heads % attention_tp == 0 if kv_heads >= attention_tp else attention_tp % kv_heads == 0
    if not fits:
        raise LayoutError(
            f"Expected the {kv_heads} KV heads and {attention_tp} attention ranks to divide each other, they do not:"
            " change tp-size (or dp-size with data-parallel attention) in the server arguments."
        )
    return max(1, kv_heads // attention_tp)


def check_heads(geometry, attention_tp):
    heads = geometry.get("attention_heads")
    if heads is not None and field_of(geometry, "attention_heads") % attention_tp:
        raise LayoutError(
            f"Expected the {heads} attention heads to be a multiple of the attention ranks, found {attention_tp} ranks:"
            " change tp-size in the server arguments."
        )
