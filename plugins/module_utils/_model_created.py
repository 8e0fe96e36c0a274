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


# Models that build their layers twice, and the length that the second ones turn by where nothing scales it
# (sglang srt/models/ministral3.py: LlamaModel makes its own layers, Ministral3Model makes them anew).
BUILT_TWICE_TYPES = ("ministral3",)
SECOND_POSITIONS = 16384
# Rope settings of a class that states two kinds of layers, where the file states none (transformers Gemma4TextConfig).
TWO_KINDS = {"full_attention": {"rope_type": "proportional"}, "sliding_attention": {"rope_type": "default"}}


def created_of(text):
    """Return what is made for the language model that the configuration node C(text) states, as facts.

    Nothing is returned for what the node does not tell: the tables are small.
    """
    size = sum(_table_bytes(text, kind, scaling) for kind, scaling in _scalings(text))
    if text.get("model_type") in BUILT_TWICE_TYPES:
        second = dict(text, max_position_embeddings=text.get("original_max_position_embeddings", SECOND_POSITIONS))
        size += sum(_table_bytes(second, kind, scaling) for kind, scaling in _scalings(text))
    if not size:
        return []
    return [
        {"name": "rotary tables", "bytes": size, "source": "srt/layers/rotary_embedding: positions x width x 4 bytes"}
    ]


def _scalings(text):
    """Return (kind of layer or None, rope settings) that differ: windowed layers may have settings of their own."""
    value = text.get("rope_parameters") or text.get("rope_scaling")
    kinds = value if isinstance(value, dict) else {}
    if not kinds and is_integer(text.get("global_head_dim")):
        kinds = TWO_KINDS
    settings = [(kind, one) for kind, one in kinds.items() if isinstance(one, dict)]
    if settings:
        return settings
    if text.get("rope_local_base_freq") is not None:  # Gemma 3: windowed layers turn at a speed of their own
        return [(None, value), (None, None)]
    return [(None, value)]


def _table_bytes(text, kind, scaling):
    positions = next((text[key] for key in _POSITIONS if is_integer(text.get(key))), None)
    width = _width(text, kind, scaling)
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


def _width(text, kind, scaling):
    """Return the numbers of a head that the table has a column for."""
    if is_integer(text.get("qk_rope_head_dim")) and text.get("kv_lora_rank"):
        return text["qk_rope_head_dim"]
    width = text.get("head_dim")
    if kind == "full_attention" and is_integer(text.get("global_head_dim")):
        width = text["global_head_dim"]
    if not is_integer(width):
        hidden, heads = text.get("hidden_size"), text.get("num_attention_heads")
        if not is_integer(hidden) or not is_integer(heads) or heads < 1:
            return None
        width = hidden // heads
    if isinstance(scaling, dict) and scaling.get("rope_type") == "proportional":
        return width  # what is not turned has columns too (rope_variant.py Gemma4RotaryEmbedding)
    share = text.get("partial_rotary_factor")
    if share is None and isinstance(scaling, dict):
        share = scaling.get("partial_rotary_factor")
    if isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share < 1:
        width = int(width * share)
    return width
