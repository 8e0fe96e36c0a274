# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, its options. One specification for documentation and action, and the checks of values. Private."""

from __future__ import annotations

import difflib
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_boards as boards
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_records as checked
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import (
    BadInput,
    PlanInput,
    mib,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, version_key
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import GEOMETRY_LIMITS

AUTO = "auto"
POLICIES = ("promise", "fill")
# What torch takes: name:value, parted by commas, lists in brackets (c10/core/AllocatorConfig.h).
ALLOCATOR = re.compile(r"[a-z0-9_]+:[^,\s]+(,[a-z0-9_]+:[^,\s]+|,[^:,\s]+(:[^,\s]+)?)*")
WAY_OUT = checked.WAY_OUT
# By the end of an option's name. Bytes of weights are those of all ranks, of a cell those of one token.
LARGEST = (
    ("weight_bytes", checked.Bounds("bytes", 0, 10**16)),
    ("cell_bytes", checked.BYTES),
    ("_tokens", checked.TOKENS),
    ("_gib", checked.GIB),
)
LARGEST_COUNT = 10**9


def argument_spec():
    """Return the specification of the options of memory_plan."""
    return {
        "arguments": {"type": "dict", "default": {}},
        "environment": {"type": "dict", "default": {}},
        "gpus": {"type": "list", "elements": "dict", "default": []},
        "geometry": {"type": "dict"},
        "weight_bytes": {"type": "int"},
        "weight_table": {"type": "list", "elements": "dict", "default": []},
        "weights_created": {"type": "list", "elements": "dict", "default": []},
        "draft_weight_bytes": {"type": "int"},
        "draft_weight_table": {"type": "list", "elements": "dict", "default": []},
        "draft_weights_created": {"type": "list", "elements": "dict", "default": []},
        "draft_geometry": {"type": "dict"},
        "engine_version": {"type": "str"},
        "torch_version": {"type": "str"},
        "target_tokens": {"type": "int", "no_log": False},
        "measurements": {"type": "list", "elements": "dict", "default": []},
        "deaths": {"type": "list", "elements": "dict", "default": []},
        "free_before_load_gib": {"type": "float"},
        "free_after_load_gib": {"type": "float"},
        "weights_gib": {"type": "float"},
        "cell_bytes": {"type": "float"},
        "context_tokens": {"type": "raw", "no_log": False},
        "max_context_tokens": {"type": "int", "no_log": False},
        "pool_policy": {"type": "str", "choices": list(POLICIES), "default": "promise"},
        "mem_fraction_static": {"type": "raw"},
        "chunked_prefill_size": {"type": "raw"},
        "allocator_conf": {"type": "raw"},
        "min_headroom_gib": {"type": "raw"},
        "min_least_free_gib": {"type": "raw"},
        "max_running_requests": {"type": "raw"},
        "allow_unproven_plan": {"type": "bool", "default": False},
        "device": {"type": "str", "choices": ["cuda", "cpu"]},
        "own_server_running": {"type": "bool"},
        "own_pids": {"type": "list", "elements": "int", "default": []},
        "running_gib": {"type": "float", "default": 0.0},
        "other_instances": {"type": "list", "elements": "dict", "default": []},
        "keys": {"type": "dict", "no_log": False},
        "server": {"type": "dict"},
        "attempts": {"type": "list", "elements": "dict", "default": []},
        "request": {"type": "dict"},
        "problems": {"type": "list", "elements": "raw", "default": []},
        "show": {"type": "bool", "default": False},
        "soak_wanted": {"type": "bool", "default": True},
        "when_not_proven": {"type": "str", "choices": ["restore", "keep", "stop"], "default": "restore"},
        "look_only": {"type": "bool", "default": False},
        "max_attempts": {"type": "int", "default": 3},
        "origins": {"type": "dict", "default": {}},
        "unit_text": {"type": "str"},
        "overwrite_drift": {"type": "bool", "default": False},
        "restart_pending": {"type": "bool", "default": False},
    }


# ---------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------


def _most(name):
    """Return the largest figure that an option can have: what is larger is a slip of the units."""
    return next((bound.most for end, bound in LARGEST if name.endswith(end)), LARGEST_COUNT)


def real(params, name, above=None, at_least=None):
    """Return a real number above or at least a bound, or None when the option is not given or auto."""
    value = params.get(name)
    if value is None or (isinstance(value, str) and value.strip() == AUTO):
        return None
    bound = f"above {above}" if above is not None else f"of at least {at_least}"
    expected = f"a number {bound}"
    value = float(checked.number(name, value, expected))
    if (above is not None and value <= above) or (at_least is not None and value < at_least):
        checked.refuse(name, expected, value)
    if value > _most(name):
        checked.refuse(name, f"a number up to {_most(name):,}", value)
    return value


def whole(params, name, at_least=1):
    """Return a whole number, or None when the option is not given or auto."""
    value = params.get(name)
    if value is None or (isinstance(value, str) and value.strip() == AUTO):
        return None
    expected = f"a whole number of at least {at_least}"
    count = checked.number(name, value, expected)
    if count != int(count) or count < at_least:
        checked.refuse(name, expected, value)
    if count > _most(name):
        checked.refuse(name, f"a whole number up to {_most(name):,}", value)
    return int(count)


def _fraction(params):
    value = params.get("mem_fraction_static")
    if value is None or (isinstance(value, str) and value.strip() == AUTO):
        return None
    expected = "a fraction between 0 and 1, such as 0.93, or auto"
    number = float(checked.number("mem_fraction_static", value, expected))
    if not 0 < number < 1:
        checked.refuse("mem_fraction_static", expected, value)
    return without_noise(number)


def without_noise(fraction):
    """Return a fraction of three decimals that arithmetic spoilt (0.1 + 0.2) as it was meant; any other as it is."""
    meant = round(fraction, 3)
    return meant if abs(fraction - meant) < 1e-9 else fraction


def _policy(params):
    value = params.get("pool_policy") or POLICIES[0]
    if value not in POLICIES:
        checked.refuse("pool_policy", " or ".join(POLICIES), value)
    return value


def _chunk(params):
    """-1 switches chunking off; 0 means nothing to the engine."""
    value = params.get("chunked_prefill_size")
    if isinstance(value, str) and value.strip() == AUTO:
        return None
    if value is not None and str(value).strip() == "-1":
        return -1
    return whole(params, "chunked_prefill_size")


def _allocator(params):
    value = params.get("allocator_conf")
    if value is None or (isinstance(value, str) and value.strip() == AUTO):
        return None
    text = "".join(value.split()) if isinstance(value, str) else None
    if text is None or (text and not ALLOCATOR.fullmatch(text)):
        raise BadInput(
            f"Expected a text such as expandable_segments:True for allocator_conf, found {value!r}:"
            " give that, an empty text for none, or auto."
        )
    return value.strip()


# Options that are also arguments of the engine: (option, argument). Stated twice, they must agree.
STATED_TWICE = (
    ("mem_fraction_static", "mem-fraction-static"),
    ("chunked_prefill_size", "chunked-prefill-size"),
    ("context_tokens", "context-length"),
    ("max_running_requests", "max-running-requests"),
)


def _merged(params, arguments):
    """Return the options with what the server arguments state under the engine's own names."""
    merged = dict(params)
    for option, argument in STATED_TWICE:
        stated = arguments.get(argument)
        if stated is None:
            continue
        value = merged.get(option)
        given = value is not None and str(value).strip() != AUTO
        if given and str(value) != str(stated) and _differ(value, stated):
            raise BadInput(
                f"{option} is {value} and the server argument {argument} is {stated}:"
                " state it once, best by the option."
            )
        merged[option] = stated
    return merged


def _differ(left, right):
    try:
        return float(left) != float(right)
    except (TypeError, ValueError):
        return True


def _device(params, arguments, gpus):
    if params.get("device"):
        return params["device"]
    if arguments.get("device"):
        return "cpu" if str(arguments["device"]) == "cpu" else "cuda"
    return "cpu" if gpus and all(entry.get("name") == "cpu" for entry in gpus) else "cuda"


def _version(value):
    if value in (None, ""):
        return None
    try:
        version_key(value)
    except ValueError:
        checked.refuse("engine_version", "a version such as 0.5.23", value)
    return value


# Figures of a geometry that the reserve uses beside those that the cell is made from.
GEOMETRY_NUMBERS = (
    "layers",
    "kv_heads",
    "hidden_size",
    "attention_heads",
    "head_dim",
    "v_head_dim",
    "intermediate_size",
    "experts",
    "experts_per_token",
    "moe_intermediate_size",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "index_head_dim",
    "index_compress",
    "max_context_tokens",
    "vision_layers",
    "vision_hidden_size",
    "vision_intermediate_size",
)


# And the keys that are no numbers, or that only a cell is made from.
GEOMETRY_KEYS = frozenset(GEOMETRY_NUMBERS + tuple(GEOMETRY_LIMITS)) | {
    "architecture",
    "attention",
    "compress_ratios",
    "draft_geometry",
    "dtype",
    "index_kpool",
    "index_pattern",
    "kv_cache_quant_algo",
    "layer_pattern",
    "layers_built_twice",
    "model_type",
    "multimodal",
    "notes",
    "quantized",
    "sparse_pattern",
    "state",
    "vocab_size",
    "window_tokens",
}


def _refuse_slips(given, name):
    """Raise BadInput for a key that is none and looks like one: nothing would read it."""
    for key in given:
        close = [] if key in GEOMETRY_KEYS else difflib.get_close_matches(str(key), sorted(GEOMETRY_KEYS), 1, 0.8)
        if close:
            raise BadInput(
                f"Expected keys of a model's shape in {name}, found {str(key)[:40]}: it looks like {close[0]}, so spell"
                " it so, or take it out."
            )


def _geometry(params, name):
    """Return a geometry with its figures as numbers, also where a template turned them to text; None when not given."""
    given = params.get(name)
    if not given:
        return None
    _refuse_slips(given, name)
    numbers = {key: whole(given, key, at_least=0) for key in GEOMETRY_NUMBERS if given.get(key) is not None}
    return dict(given, **numbers)


def _gpus(params):
    for index, entry in enumerate(params.get("gpus") or ()):
        processes = entry.get("processes") or []
        if not isinstance(processes, (list, tuple)) or not all(isinstance(one, dict) for one in processes):
            raise BadInput(
                f"Expected the processes of entry {index + 1} of gpus as a list of dictionaries, found {processes!r}:"
                " give gpus as gpu_info returns it."
            )
        free, total = mib(entry, "memory_free_mib"), mib(entry, "memory_total_mib")
        if None not in (free, total) and free > total:
            raise BadInput(
                f"Expected memory_free_mib of entry {index + 1} of gpus to be at most its memory_total_mib of"
                f" {total:g}, found {free:g}: give gpus as gpu_info returns it."
            )
    return tuple(params.get("gpus") or ())


def _pids(params):
    found = tuple(params.get("own_pids") or ())
    if any(pid < 1 for pid in found):
        checked.refuse("own_pids", "process numbers of at least 1", list(found))
    return found


def _own_server_running(params):
    """The caller says so, or server_info does."""
    if params.get("own_server_running") is not None:
        return params["own_server_running"]
    return bool((params.get("server") or {}).get("active"))


def plan_input(params):
    """Return the PlanInput of validated options. Raises BadInput or ValueError (one sentence that names the option)."""
    arguments = canonical_arguments(params.get("arguments") or {})
    checked.check_arguments(arguments)
    merged = _merged(params, arguments)
    whole(params, "max_attempts")
    gpus = _gpus(params)
    geometry = _geometry(params, "geometry")
    context_limit = whole(params, "max_context_tokens")
    if context_limit is None and geometry:
        context_limit = geometry.get("max_context_tokens")
    inp = PlanInput(
        arguments=arguments,
        environment=dict(params.get("environment") or {}),
        gpus=gpus,
        geometry=geometry,
        weight_bytes=whole(params, "weight_bytes"),
        weight_table=tuple(params.get("weight_table") or ()),
        weights_created=tuple(params.get("weights_created") or ()),
        draft_weight_bytes=whole(params, "draft_weight_bytes"),
        draft_weight_table=tuple(params.get("draft_weight_table") or ()),
        draft_weights_created=tuple(params.get("draft_weights_created") or ()),
        draft_geometry=_geometry(params, "draft_geometry"),
        engine_version=_version(params.get("engine_version")),
        torch_version=params.get("torch_version") or None,
        target_tokens=whole(params, "target_tokens"),
        measurements=checked.records(params, "measurements", checked.MEASURED),
        deaths=checked.records(params, "deaths", checked.DEATH),
        free_before_load_gib=real(params, "free_before_load_gib", above=0),
        free_after_load_gib=real(params, "free_after_load_gib", above=0),
        weights_gib=real(params, "weights_gib", above=0),
        cell_bytes=_cell(params),
        context_tokens=whole(merged, "context_tokens"),
        max_context_tokens=context_limit,
        pool_policy=_policy(params),
        fraction=_fraction(merged),
        chunk_tokens=_chunk(merged),
        allocator_conf=_allocator(params),
        min_headroom_gib=real(params, "min_headroom_gib", at_least=0),
        min_least_free_gib=real(params, "min_least_free_gib", at_least=0),
        max_running_requests=whole(merged, "max_running_requests"),
        allow_unproven_plan=bool(params.get("allow_unproven_plan")),
        device=_device(params, arguments, gpus),
        keys=params.get("keys") or None,
        own_server_running=_own_server_running(params),
        own_pids=_pids(params),
        running_gib=real(params, "running_gib", at_least=0) or 0.0,
        other_instances=boards.other_instances(params),
    )
    return boards.chosen(inp)


def _cell(params):
    """The cell is a whole number in most layouts, and is shown as one then."""
    value = real(params, "cell_bytes", above=0)
    return int(value) if value is not None and value == int(value) else value
