# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs: config.json to geometry. Private to the collection.

The figures go into a memory plan, so nothing is guessed: a configuration that is not understood, or that leaves out a
number, raises ModelError or UnknownLayout and names the key.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._families import (
    CLASS_DEFAULTS,
    NESTED_DEFAULTS,
    NESTED_TYPES,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import UnknownLayout
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_created import BUILT_TWICE_TYPES
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_family import read_family
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import (
    ModelError,
    context_tokens,
    dtype_of,
    figures_of,
    word,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_quant import note_quantization, quantization_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_vision import vision_of

__all__ = ["ModelError", "UnknownLayout", "first_architecture", "merged", "read_geometry", "text_node"]

# Where multimodal configurations keep the language model, in the order in which the engine looks
# (sglang srt/utils/hf_transformers/common.py get_hf_text_config).
TEXT_NODES = ("thinker_config", "llm_config", "language_config", "text_config")


def read_geometry(config):
    """Return the geometry (dictionary of the documented keys) of the parsed config.json C(config).

    Raises UnknownLayout for a family that is not understood, ModelError for a figure that is missing or impossible.
    """
    if not isinstance(config, dict):
        raise ModelError(f"Expected a JSON object in config.json, found {type(config).__name__}.")
    architecture = first_architecture(config)
    text, where = text_node(config, architecture)
    text, filled = _filled(config, text, where)
    family = read_family(text, where, architecture)
    notes = family.notes + filled
    defaults = _class_defaults(config, text)
    geometry = {
        "architecture": architecture,
        "model_type": word(config.get("model_type")) or word(text.get("model_type")),
        "attention": family.attention,
    }
    geometry.update(figures_of(config, text, where, family, defaults, notes))
    geometry["max_context_tokens"] = context_tokens(text)
    geometry["dtype"] = dtype_of(text) or dtype_of(config)
    note_quantization(geometry, quantization_of(config, text))
    geometry.update(vision_of(config, text, architecture))
    if text.get("model_type") in BUILT_TWICE_TYPES:
        geometry["layers_built_twice"] = True
    geometry["notes"] = notes
    return geometry


def first_architecture(config):
    """Return the architecture that the engine takes, or None."""
    names = config.get("architectures")
    return word(names[0]) if isinstance(names, list) and names else None


def text_node(config, architecture=None):
    """Return (node, place) of the language model inside C(config): at most two levels down, levels are never mixed."""
    node, where = config, "config.json"
    if architecture and architecture.startswith("Llava") and architecture.endswith("ForCausalLM"):
        return node, where  # their text_config is an unused default
    for _level in range(2):
        name = next((name for name in TEXT_NODES if isinstance(node.get(name), dict)), None)
        if name is None:
            break
        node, where = node[name], f"{name} of {where}"
    return node, where


def _filled(config, text, where):
    """Return (text, notes): a nested language model with what its class fills in for keys that are not there."""
    if text is config:
        return text, []
    outer = word(config.get("model_type"))
    kind = text["model_type"] if "model_type" in text else NESTED_TYPES.get(outer)
    defaults = NESTED_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
    added = {key: value for key, value in defaults.items() if key not in text}
    notes = [f"{key} is not in {where}, {value} is the default of the class {kind}" for key, value in added.items()]
    if kind is not None:
        added["model_type"] = kind
    return dict(text, **added), notes


def _class_defaults(config, text):
    """Return the defaults of the language model's class, or None. A nested model without a type has its parent's."""
    outer = word(config.get("model_type")) or ""
    names = (word(text.get("model_type")), outer + "_text" if text is not config else None, outer)
    return next((CLASS_DEFAULTS[name] for name in names if name in CLASS_DEFAULTS), None)


def merged(config, overrides):
    """Return C(config) with C(overrides) over it, dictionaries merged key by key."""
    result = dict(config)
    for key, value in overrides.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result
