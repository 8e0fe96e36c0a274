# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, layer by layer: which layers keep rows, window rows, a state, or nothing. Private.

The result is one letter a layer, so that it can be read, counted and cut into pipeline stages:
C(f) full rows, C(w) rows in the window pool, C(s) a state, C(b) full rows and a state, C(-) nothing.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import UnknownLayout
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import ModelError, shown
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import is_integer

MOST_LAYERS = 10000

# One letter for every name of a layer kind that a configuration uses.
_KINDS = {
    "full_attention": "f",
    "attention": "f",
    "global_attention": "f",
    "deepseek_sparse_attention": "f",
    "sliding_attention": "w",
    "linear_attention": "s",
    "mamba": "s",
    "conv": "s",
    "short_conv": "s",
    "mlp": "-",
    "moe": "-",
    "attn": "f",
    "swa": "f",  # JetNemotron: the engine keeps full rows for these
    "jet": "s",
}
_LETTERS = {"*": "f", "M": "s", "-": "-", "E": "-"}


def _refuse(what, why=""):
    raise UnknownLayout(what, why)


def count_of(text, where):
    """Return num_hidden_layers, or None when the file does not state it."""
    for key in ("num_hidden_layers", "n_layers", "n_layer", "num_layers"):
        value = text.get(key)
        if value is None:
            continue
        if not is_integer(value) or not 1 <= value <= MOST_LAYERS:
            raise ModelError(
                f"Expected a whole number from 1 to {MOST_LAYERS} for {key} in {where}, found {shown(value)}."
            )
        return value
    return None


def _needed_count(text, where):
    count = count_of(text, where)
    if count is None:
        raise ModelError(
            f"Expected num_hidden_layers in {where}, found nothing: complete the file, or state the cell of the server"
            " as cell_bytes."
        )
    return count


def from_kinds(values, key, where, count=None, allowed="fws-"):
    """Return the letters of a list of kinds. More entries than layers are draft layers and do not count."""
    if not isinstance(values, list) or not values or len(values) > MOST_LAYERS:
        _refuse(f"{key} in {where}", f"a list with a kind for every layer was expected, found {shown(values)}")
    if count is not None and len(values) < count:
        raise ModelError(f"Expected {count} entries in {key} of {where}, found {len(values)}.")
    letters = []
    for value in values[:count]:
        letter = _KINDS.get(value) if isinstance(value, str) else None
        if letter is None or letter not in allowed:
            _refuse(f"the layer kind {value!r} in {key} of {where}")
        letters.append(letter)
    return "".join(letters)


def _check_length(pattern, key, text, where):
    count = count_of(text, where)
    if count is not None and len(pattern) != count:
        raise ModelError(
            f"Expected {count} layers in {key} of {where}, as num_hidden_layers states, found {len(pattern)}: complete"
            " the file, or state the cell of the server as cell_bytes."
        )


def from_ids(ids, count, inside, outside, key, where, first=0):
    """Return letters from a list of layer numbers that count from C(first)."""
    if not isinstance(ids, list) or not all(is_integer(one) for one in ids):
        _refuse(f"{key} in {where}", f"a list of layer numbers was expected, found {shown(ids)}")
    chosen = {one - first for one in ids}
    if len(chosen) != len(ids) or any(not 0 <= one < count for one in chosen):
        raise ModelError(f"Expected layer numbers from {first} to {count - 1 + first} in {key} of {where}, once each.")
    return "".join(inside if index in chosen else outside for index in range(count))


# ---------------------------------------------------------------------------
# Windows: C(w) or C(f) a layer
# ---------------------------------------------------------------------------

# Where a file does not list its layers, the class alternates: every n-th layer is full, the last one too for Gemma 4
# (transformers 5 configuration_gpt_oss.py and configuration_gemma4.py).
_PERIODS = {"gpt_oss": (2, False), "gemma4_text": (6, True), "gemma4": (6, True)}


def _window_layer_types(text, where):
    count = _needed_count(text, where)
    if text.get("layer_types") is not None:
        return from_kinds(text["layer_types"], "layer_types", where, count, "fw"), {"layer_types"}
    if text.get("full_attention_layer_ids") is not None:
        ids = text["full_attention_layer_ids"]
        return from_ids(ids, count, "f", "w", "full_attention_layer_ids", where), {"full_attention_layer_ids"}
    period, last = _PERIODS.get(text.get("model_type"), (None, None))
    if period is None:
        _refuse(f"layer_types in {where}", "it is missing, and with it which layers attend to a window")
    letters = ["f" if (index + 1) % period == 0 else "w" for index in range(count)]
    if last:
        letters[-1] = "f"
    return "".join(letters), set()


def _every_fourth_full(text, where):
    count = _needed_count(text, where)
    letters = "".join("f" if (index + 1) % 4 == 0 else "w" for index in range(count))
    return letters, {"no_rope_layers", "layer_types", "attention_chunk_size", "no_rope_layer_interval"}


def _hybrid_layer_pattern(text, where):
    """1 is a window layer, 0 a full one."""
    count = _needed_count(text, where)
    values = text.get("hybrid_layer_pattern")
    if values is None and text.get("full_attention_layer_ids") is not None:
        return _window_layer_types(text, where)
    if not isinstance(values, list) or len(values) < count or any(one not in (0, 1) for one in values):
        _refuse(
            f"hybrid_layer_pattern in {where}", f"a list of 0 and 1 for every layer was expected, found {shown(values)}"
        )
    return "".join("w" if one == 1 else "f" for one in values[:count]), {"hybrid_layer_pattern"}


def _all_window(text, where):
    return "w" * _needed_count(text, where), set()


# ---------------------------------------------------------------------------
# States: C(s), C(f), C(b) or C(-) a layer
# ---------------------------------------------------------------------------


def _interval(text, where):
    """Every n-th layer has attention; a list of kinds says the same."""
    count = _needed_count(text, where)
    interval = text.get("full_attention_interval")
    if interval is None and text.get("layer_types") is None and text.get("full_attention_layer_ids") is None:
        interval = 4  # the class's own (srt/configs/qwen3_next.py)
    if interval is not None:
        if not is_integer(interval) or interval < 1:
            raise ModelError(
                f"Expected a whole number of at least 1 for full_attention_interval in {where}, found {shown(interval)}"
                "."
            )
        letters = "".join("f" if (index + 1) % interval == 0 else "s" for index in range(count))
        return letters, {"full_attention_interval", "layer_types", "full_attention_layer_ids"}
    return _linear_types(text, where)


def _linear_types(text, where):
    count = _needed_count(text, where)
    if text.get("layer_types") is not None:
        return from_kinds(text["layer_types"], "layer_types", where, count, "fs"), {"layer_types"}
    for key in ("full_attention_layers", "full_attention_layer_ids", "full_attn_idxs"):
        if text.get(key) is not None:
            return from_ids(text[key], count, "f", "s", key, where), {key}
    return _refuse(f"layer_types in {where}", "it is missing, and with it which layers have attention")


def _letters(text, where):
    """One letter a layer, or a list of words.

    Where num_hidden_layers is stated too, it must agree: engines differ in which of the two they believe (0.5.23 the
    pattern, with a warning; earlier ones end the start).
    """
    pattern = text.get("hybrid_override_pattern")
    if pattern is None and text.get("layers_block_type") is not None:
        letters = from_kinds(text["layers_block_type"], "layers_block_type", where)
        _check_length(letters, "layers_block_type", text, where)
        return letters, {"layers_block_type", "mtp_layers_block_type"}
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MOST_LAYERS:
        _refuse(f"hybrid_override_pattern in {where}", f"one letter a layer was expected, found {shown(pattern)}")
    unknown = sorted(set(pattern) - set(_LETTERS))
    if unknown:
        _refuse(f"the letter {unknown[0]!r} in hybrid_override_pattern of {where}", "known are M, *, - and E")
    _check_length(pattern, "hybrid_override_pattern", text, where)
    return "".join(_LETTERS[one] for one in pattern), {
        "hybrid_override_pattern",
        "mtp_hybrid_override_pattern",
        "full_attention_layer_ids",
        "layers_block_type",
        "mtp_layers_block_type",
    }


def _period(text, where):
    """Jamba: one layer of every period has attention."""
    count = _needed_count(text, where)
    period, offset = text.get("attn_layer_period", 8), text.get("attn_layer_offset", 4)
    if not is_integer(period) or not is_integer(offset) or not 0 <= offset < period:
        raise ModelError(
            f"Expected attn_layer_offset below attn_layer_period in {where}, found {shown((offset, period))}."
        )
    letters = "".join("f" if index % period == offset else "s" for index in range(count))
    return letters, {"attn_layer_period", "attn_layer_offset", "layers_block_type", "expert_layer_period"}


def _both(text, where):
    return "b" * _needed_count(text, where), set()


def _mamba_types(text, where):
    for key in ("layer_types", "layers_block_type"):
        if text.get(key) is not None:
            return from_kinds(text[key], key, where, count_of(text, where), "fs"), {key}
    return _refuse(f"layer_types in {where}", "it is missing, and with it which layers have attention")


def _conv_types(text, where):
    if text.get("layer_types") is None and text.get("full_attn_idxs") is not None:
        count = _needed_count(text, where)
        return from_ids(text["full_attn_idxs"], count, "f", "s", "full_attn_idxs", where), {"full_attn_idxs"}
    letters, used = _linear_types(text, where)
    return letters, used | {"full_attn_idxs"}


def _kda_lists(text, where):
    """Kimi counts its layers from 1, GLM 5 Next from 0. Both lists are checked where both are there."""
    count = _needed_count(text, where)
    node = text.get("linear_attn_config")
    used = {"linear_attn_config", "full_attention_layer_ids"}
    if not isinstance(node, dict) or not node.get("kda_layers"):
        return "f" * count, used
    first = 0 if str(text.get("model_type") or "").startswith("glm5_next") else 1
    place = f"linear_attn_config of {where}"
    kda = [one for one in node["kda_layers"] if not is_integer(one) or one - first < count]  # the rest is draft layers
    letters = from_ids(kda, count, "s", "f", "kda_layers", place, first)
    full = node.get("full_attn_layers")
    if full is not None:
        full = [one for one in full if not is_integer(one) or one - first < count]
        if from_ids(full, count, "f", "s", "full_attn_layers", place, first) != letters:
            raise ModelError(f"Expected every layer either in kda_layers or in full_attn_layers of {place}.")
    return letters, used | {"layer_types"}  # transformers 5 writes the kinds once more; the engine reads the lists


def _layer_group(text, where):
    """Every n-th layer has attention, or a list with 1 for a linear layer."""
    count = _needed_count(text, where)
    group = text.get("layer_group_size")
    used = {"layer_group_size", "full_attention_layer_ids"}
    if isinstance(group, list):
        if len(group) != count:
            raise ModelError(f"Expected {count} entries in layer_group_size of {where}, found {len(group)}.")
        return "".join("s" if one == 1 else "f" for one in group), used
    if not is_integer(group) or group < 1:
        _refuse(f"layer_group_size in {where}", f"a whole number was expected, found {shown(group)}")
    return "".join("f" if (index + 1) % group == 0 else "s" for index in range(count)), used


def _jet(text, where):
    return from_kinds(text.get("layer_types"), "layer_types", where, count_of(text, where), "fs"), {"layer_types"}


WINDOW_READERS = {
    "layer_types": _window_layer_types,
    "every_fourth_full": _every_fourth_full,
    "hybrid_layer_pattern": _hybrid_layer_pattern,
    "all_window": _all_window,
}
STATE_READERS = {
    "interval": _interval,
    "linear_types": _linear_types,
    "letters": _letters,
    "period": _period,
    "both": _both,
    "mamba_types": _mamba_types,
    "conv_types": _conv_types,
    "kda_lists": _kda_lists,
    "layer_group": _layer_group,
    "jet": _jet,
}
