# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs: config.json to geometry, the folder to weight bytes. Private to the collection.

The figures go into a memory plan, so nothing is guessed: a configuration that is not understood, or that leaves out a
number, raises ModelError or UnknownLayout and names the key.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._families import CLASS_DEFAULTS
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import UnknownLayout
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_family import read_family
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import (
    ModelError,
    context_tokens,
    dtype_of,
    figures_of,
    word,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_quant import quantization_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import (
    WeightsError,
    read_json,
    read_weights,
)

__all__ = ["ModelError", "UnknownLayout", "WeightsError", "merged", "read_config", "read_folder", "read_geometry"]

# Where multimodal configurations keep the language model, in the order in which the engine looks
# (sglang srt/utils/hf_transformers/common.py get_hf_text_config).
TEXT_NODES = ("thinker_config", "llm_config", "language_config", "text_config")


# ---------------------------------------------------------------------------
# config.json -> geometry
# ---------------------------------------------------------------------------


def read_geometry(config):
    """Return the geometry (dictionary of the documented keys) of the parsed config.json C(config).

    Raises UnknownLayout for a family that is not understood, ModelError for a figure that is missing or impossible.
    """
    if not isinstance(config, dict):
        raise ModelError(f"Expected a JSON object in config.json, found {type(config).__name__}.")
    architecture = _architecture(config)
    text, where = text_node(config, architecture)
    family = read_family(text, where, architecture)
    notes = family.notes
    defaults = _class_defaults(config, text)
    geometry = {
        "architecture": architecture,
        "model_type": word(config.get("model_type")) or word(text.get("model_type")),
        "attention": family.attention,
    }
    geometry.update(figures_of(config, text, where, family, defaults, notes))
    geometry["max_context_tokens"] = context_tokens(text)
    geometry["dtype"] = dtype_of(text) or dtype_of(config)
    _note_quantization(geometry, quantization_of(config, text))
    geometry["notes"] = notes
    return geometry


def _note_quantization(geometry, quantization):
    """What of the quantisation decides memory: the KV type it asks for, and that weights keep their own types."""
    geometry["kv_cache_quant_algo"] = (quantization or {}).get("kv_cache_quant_algo")
    geometry["quantized"] = quantization is not None


def _architecture(config):
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    return None


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


def _class_defaults(config, text):
    """Return the defaults of the language model's class, or None. A nested model without a type has its parent's."""
    outer = word(config.get("model_type")) or ""
    names = (word(text.get("model_type")), outer + "_text" if text is not config else None, outer)
    return next((CLASS_DEFAULTS[name] for name in names if name in CLASS_DEFAULTS), None)


# ---------------------------------------------------------------------------
# The folder
# ---------------------------------------------------------------------------


def read_config(path):
    """Return the parsed config.json of the model folder C(path)."""
    if not os.path.isdir(path):
        found = "a file" if os.path.isfile(path) else "nothing"
        raise ModelError(f"Expected a model folder at {path}, found {found}: check the path of the model.")
    full = os.path.join(path, "config.json")
    if not os.path.isfile(full):
        raise ModelError(_no_config(path))
    return read_json(full, "config.json")


@dataclass(frozen=True)
class Wrong:
    """What a folder without config.json is, by a name that lies in it."""

    pattern: str
    found: str


_WRONG_FOLDERS = (
    Wrong(r"^adapter_", "an adapter (LoRA) only: point to the base model"),
    Wrong(r"\.gguf$", "GGUF files only: use the safetensors release of the model"),
    Wrong(r"^params\.json$", "params.json, another loader's layout: use the release in Hugging Face layout"),
    Wrong(r"^snapshots$", "a hub cache: point to the folder of one revision below snapshots"),
    Wrong(r"^model_index\.json$", "a diffusion pipeline, which holds no language model"),
    Wrong(r"", "none: check the path of the model"),
)


def _no_config(path):
    names = os.listdir(path) + [""]
    row = next(row for row in _WRONG_FOLDERS if any(re.search(row.pattern, name) for name in names))
    return f"Expected config.json in the model folder {path}, found {row.found}."


def read_folder(path, overrides=None, require_geometry=True):
    """Return what model_info returns for the model folder C(path).

    C(overrides): keys that replace those of config.json. Raises ModelError, UnknownLayout or WeightsError (all
    ValueError, one sentence each); without C(require_geometry) an unknown geometry becomes C(geometry_problem).
    """
    config = merged(read_config(path), overrides or {})
    geometry, problem = None, None
    try:
        geometry = read_geometry(config)
    except (ModelError, UnknownLayout) as error:
        if require_geometry:
            raise
        problem = str(error)
    text = text_node(config, _architecture(config))[0]
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings")) is True
    weights = read_weights(path, geometry["layers"] if geometry else None, tied)
    quantization = quantization_of(config, text, _hf_quant_config(path))
    if geometry:
        _note_quantization(geometry, quantization)
    return {
        "geometry": geometry,
        "geometry_problem": problem,
        "weight_bytes": weights.weight_bytes,
        "bytes_by_dtype": weights.bytes_by_dtype,
        "tied_head_bytes": weights.tied_head_bytes,
        "draft_layer_bytes": weights.draft_layer_bytes,
        "dtype": dtype_of(text) or dtype_of(config),
        "quantization": quantization,
        "max_context_tokens": context_tokens(text),
        "complete": weights.complete,
        "files": weights.files,
        "missing_files": weights.missing_files,
        "problems": weights.problems,
    }


def _hf_quant_config(path):
    full = os.path.join(path, "hf_quant_config.json")
    return read_json(full, "hf_quant_config.json") if os.path.isfile(full) else None


def merged(config, overrides):
    """Return C(config) with C(overrides) over it, dictionaries merged key by key."""
    result = dict(config)
    for key, value in overrides.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result
