# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the engine makes when it loads a model, besides what the files hold. Private to the collection.

Rotary tables (cosine and sine for every position) are tensors on every rank. They count in the figure that the log
prints for the weights: 64 MiB for a model of 131,072 positions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import is_integer

TABLE_BYTES = 4  # the tables stay float32 (sglang srt/layers/rotary_embedding/base.py)
MAX_POSITIONS = 2**27  # more is no model

_POSITIONS = ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions", "n_ctx")


@dataclass(frozen=True)
class Scaling:
    """How many positions a table has with a kind of rope scaling.

    C(factor): whether the table is longer by the factor. C(original): whether it begins with the original length.
    """

    kinds: tuple
    factor: bool
    original: bool


# sglang srt/layers/rotary_embedding/factory.py get_rope, yarn.py and rope_variant.py _compute_cos_sin_cache
SCALINGS = (
    Scaling(("yarn", "deepseek_yarn"), True, True),
    Scaling(("linear", "dynamic"), True, False),
)


def created_of(text):
    """Return what is made for the language model that the configuration node C(text) states, as facts.

    Nothing is returned for what the node does not tell: the tables are small.
    """
    size = sum(_table_bytes(text, scaling) for scaling in _scalings(text))
    if not size:
        return []
    return [
        {"name": "rotary tables", "bytes": size, "source": "srt/layers/rotary_embedding: positions x width x 4 bytes"}
    ]


def _scalings(text):
    """Return the rope settings that differ: models with windowed layers state one for each kind of layer."""
    value = text.get("rope_parameters") or text.get("rope_scaling")
    if isinstance(value, dict) and value and all(isinstance(one, dict) for one in value.values()):
        return list(value.values())
    if text.get("rope_local_base_freq") is not None:  # Gemma 3: windowed layers turn at a speed of their own
        return [value, None]
    return [value]


def _table_bytes(text, scaling):
    positions = next((text[key] for key in _POSITIONS if is_integer(text.get(key))), None)
    width = _width(text, scaling)
    if positions is None or width is None:
        return 0
    if isinstance(scaling, dict):
        positions = _scaled(positions, scaling)
    return positions * width * TABLE_BYTES if 0 < positions <= MAX_POSITIONS and 0 < width <= 4096 else 0


def _scaled(positions, scaling):
    kind = scaling.get("rope_type") or scaling.get("type")
    row = next((row for row in SCALINGS if kind in row.kinds), None)
    if row is None:
        return positions
    original = scaling.get("original_max_position_embeddings")
    if row.original and is_integer(original):
        positions = original
    factor = scaling.get("factor")
    if row.factor and isinstance(factor, (int, float)) and not isinstance(factor, bool) and 1 <= factor <= 10000:
        positions = int(positions * factor)
    return positions


def _width(text, scaling):
    """Return the numbers of a head that are turned."""
    if is_integer(text.get("qk_rope_head_dim")) and text.get("kv_lora_rank"):
        return text["qk_rope_head_dim"]
    width = text.get("head_dim")
    if not is_integer(width):
        hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
        if not is_integer(hidden) or not is_integer(heads) or heads < 1:
            return None
        width = hidden // heads
    share = text.get("partial_rotary_factor")
    if share is None and isinstance(scaling, dict):
        share = scaling.get("partial_rotary_factor")
    if isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share < 1:
        width = int(width * share)
    return width
