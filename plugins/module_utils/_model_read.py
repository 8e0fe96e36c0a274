# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model, read: geometry, weights, quantisation, from a folder here or from a hub. Private to the collection."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import UnknownLayout
from ansible_collections.gpufleet.sglang.plugins.module_utils._model import (
    first_architecture,
    merged,
    read_geometry,
    text_node,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_created import created_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import (
    ModelError,
    context_tokens,
    dtype_of,
    stated,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import is_integer
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_quant import note_quantization, quantization_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import Folder, weights_in

__all__ = ["read_folder", "read_model"]

CONFIG = "config.json"
QUANT_CONFIG = "hf_quant_config.json"


@dataclass(frozen=True)
class Wrong:
    """What a place without config.json is, by a name that lies in it."""

    pattern: str
    found: str


WRONG_PLACES = (
    Wrong(r"^adapter_", "an adapter (LoRA) only: point to the base model"),
    Wrong(r"\.gguf$", "GGUF files only: use the safetensors release of the model"),
    Wrong(r"^params\.json$", "params.json, another loader's layout: use the release in Hugging Face layout"),
    Wrong(r"^snapshots(/|$)", "a hub cache: point to the folder of one revision below snapshots"),
    Wrong(r"^model_index\.json$", "a diffusion pipeline, which holds no language model"),
    Wrong(r"", "none: check the path or the name of the model"),
)


def read_folder(path, overrides=None, require_geometry=True):
    """Return what model_info returns for the model folder C(path)."""
    if not os.path.isdir(path):
        found = "a file" if os.path.isfile(path) else "nothing"
        raise ModelError(f"Expected a model folder at {path}, found {found}: check the path of the model.")
    return read_model(Folder(path), f"the model folder {path}", overrides, require_geometry)


def read_config(source, place):
    """Return the parsed config.json of a C(source). C(place) names it in messages."""
    names = source.names()
    config = source.json(CONFIG) if CONFIG in names else None
    if config is None:
        row = next(row for row in WRONG_PLACES if any(re.search(row.pattern, name) for name in [*names, ""]))
        raise ModelError(f"Expected {CONFIG} in {place}, found {row.found}.")
    return config


def read_model(source, place, overrides=None, require_geometry=True):
    """Return what model_info returns for a model. C(source) gives names, JSON files and headers (Folder, Hub).

    C(place) names the source in messages. C(overrides): keys that replace those of config.json. Raises ModelError,
    UnknownLayout or WeightsError (all ValueError, one sentence each); without C(require_geometry) an unknown geometry
    becomes C(geometry_problem).
    """
    config = merged(read_config(source, place), overrides or {})
    geometry, problem = None, None
    try:
        geometry = read_geometry(config)
    except (ModelError, UnknownLayout) as error:
        if require_geometry:
            raise
        problem = str(error)
    architecture = first_architecture(config)
    text = text_node(config, architecture)[0]
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings")) is True
    weights = weights_in(source, layers_of(text, geometry), tied, architecture)
    quantization = quantization_of(config, text, source.json(QUANT_CONFIG))
    if geometry:
        note_quantization(geometry, quantization)
    return {
        "geometry": geometry,
        "geometry_problem": problem,
        "weight_bytes": weights.weight_bytes,
        "bytes_by_dtype": weights.bytes_by_dtype,
        "tied_head_bytes": weights.tied_head_bytes,
        "draft_layer_bytes": weights.draft_layer_bytes,
        "weight_table": weights.table if weights.complete else [],
        "created": created_of(text),
        "index_total_bytes": weights.index_total_bytes,
        "notes": weights.notes,
        "dtype": dtype_of(text) or dtype_of(config),
        "quantization": quantization,
        "max_context_tokens": context_tokens(text),
        "complete": weights.complete,
        "files": weights.files,
        "missing_files": weights.missing_files,
        "problems": weights.problems,
        "source": source.label,
        "commit": source.commit,
    }


def layers_of(text, geometry):
    """Return the number of all layers: tensors behind them are a draft. A geometry may be missing."""
    value = stated(text, "layers")[1]
    if is_integer(value) and value > 0:
        return value
    return geometry.get("layers") if geometry else None
