# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, the family: which one it is, and what that family keeps beside plain rows. Private.

Nothing is guessed: an architecture or a key that is not understood raises UnknownLayout and is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_layers as layers
from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_state as state
from ansible_collections.gpufleet.sglang.plugins.module_utils._families import (
    COMPRESSED_ARCHITECTURES,
    HARMLESS_KEYS,
    INDEX_FAMILIES,
    LATENT_DEFAULTS,
    LAYER_KINDS,
    MLA_FAMILIES,
    PLAIN_ARCHITECTURES,
    REFUSED_ARCHITECTURES,
    REFUSED_KEYS,
    REPEATED_LAYERS,
    SHARED_ROWS,
    SPARSE_ARCHITECTURES,
    STATE_FAMILIES,
    SUSPICIOUS_KEY,
    UNREAD_KEYS,
    WINDOW_FAMILIES,
    WINDOW_FIRST_ARCHITECTURES,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import UnknownLayout
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import ModelError, shown
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import is_integer

NEUTRAL = (None, False, 0, "", "none", "None")


@dataclass
class Family:
    """What was read: C(attention), C(fields) for the geometry, the keys that were taken into account, notes."""

    attention: str
    fields: dict = field(default_factory=dict)
    used: set = field(default_factory=set)
    notes: list = field(default_factory=list)


def is_neutral(value):
    return value in ([], {}) or any(value is item or (value == item and type(value) is type(item)) for item in NEUTRAL)


def read_family(text, where, architecture):
    """Return the Family of the language model C(text)."""
    try:
        return _read(text, where, architecture)
    except UnknownLayout as error:
        if architecture is None or architecture in str(error):
            raise
        why = f"{error.why}, and the architecture is {architecture}" if error.why else f"architecture {architecture}"
        raise UnknownLayout(error.what, why) from None


def _read(text, where, architecture):
    _refuse_architecture(architecture, text)
    family = Family(_attention(architecture, text), used=set(UNREAD_KEYS.get(architecture, ())))
    for read in (_windows, _states, _index, _compressed, _sparse, _repeated, _shared, _blocks):
        read(family, text, where, architecture)
    _refuse_keys(family, text, where)
    _plain_windows(family, text, where, architecture)
    return family


def _refuse_architecture(architecture, text):
    for row in REFUSED_ARCHITECTURES:
        if architecture in row.architectures and row.applies(text):
            raise UnknownLayout(f"the architecture {architecture}", row.reason)


def _attention(architecture, text):
    """Return mha, mla or compressed. Latent attention counts only where the engine itself runs it as such."""
    if architecture in COMPRESSED_ARCHITECTURES:
        return "compressed"
    row = next((row for row in MLA_FAMILIES if architecture in row.architectures and row.applies(text)), None)
    if row is not None:
        return "mla"
    if text.get("kv_lora_rank"):
        raise UnknownLayout(f"the architecture {architecture}", "it has kv_lora_rank, but is not known to run as MLA")
    return "mha"


# ---------------------------------------------------------------------------
# Families
# ---------------------------------------------------------------------------


def _number(text, spellings, where, default=None):
    for spelling in spellings:
        value = text.get(spelling)
        if value is None:
            continue
        if not is_integer(value) or not 1 <= value <= 2**31:
            raise ModelError(f"Expected a whole number of at least 1 for {spelling} in {where}, found {shown(value)}.")
        return value
    return default


_WINDOW_TOKENS = ("sliding_window_size", "sliding_window", "window_size")
_WINDOW_KEYS = (
    "attention_chunk_size",
    "attention_other_setting",
    "hybrid_block_size",
    "hybrid_layer_pattern",
    "is_hybrid_swa",
    "sliding_window_size",
    "swa_head_dim",
    "swa_num_attention_heads",
    "swa_num_key_value_heads",
    "swa_rope_theta",
    "swa_v_head_dim",
    "window_size",
)


def _windows(family, text, where, architecture):
    row = next((row for row in WINDOW_FAMILIES if architecture in row.architectures), None)
    if row is None:
        return
    pattern, used = layers.WINDOW_READERS[row.layers](text, where)
    family.used |= used
    family.used.update(_WINDOW_KEYS)
    if "w" not in pattern:
        return
    fields = {"layer_pattern": pattern}
    if row.layers == "every_fourth_full":
        fields["window_tokens"] = _number(text, ("attention_chunk_size",), where, 8192)
    else:
        fields["window_tokens"] = _number(text, _WINDOW_TOKENS, where)
    if architecture in WINDOW_FIRST_ARCHITECTURES:
        fields.update(_window_first(family, text, where))
    else:
        other = text.get("attention_other_setting")
        heads = _number(other, ("num_attention_groups",), where) if isinstance(other, dict) else None
        fields["window_kv_heads"] = _number(text, ("swa_num_key_value_heads",), where, heads)
        fields["window_head_dim"] = _number(text, ("swa_head_dim",), where)
        fields["window_v_head_dim"] = _number(text, ("swa_v_head_dim",), where)
    family.fields.update({key: value for key, value in fields.items() if value is not None})


def _window_first(family, text, where):
    """Gemma 4: kv_heads and head_dim of the file are those of the window layers, the full layers have their own."""
    family.used.update(("global_head_dim", "num_global_key_value_heads"))
    fields = {"full_head_dim": _number(text, ("global_head_dim",), where, 512)}
    if text.get("attention_k_eq_v") is not False:  # a stripped file leaves it out, and the full layers keep their heads
        fields["full_kv_heads"] = _number(text, ("num_global_key_value_heads",), where)
    return fields


def _states(family, text, where, architecture):
    row = next((row for row in STATE_FAMILIES if architecture in row.architectures), None)
    row = row or next((row for row in STATE_FAMILIES if text.get("model_type") in row.model_types), None)
    if row is None:
        return
    if row.note:
        family.notes.append(row.note)
    pattern, used = layers.STATE_READERS[row.layers](text, where)
    family.used |= used
    if set(pattern) == {"f"}:
        return
    family.fields["layer_pattern"] = pattern
    if set(pattern) & {"s", "b"}:
        numbers = state.READERS[row.state](text, where, family.used)
        if numbers is not None:
            stated = text.get("mamba_ssm_dtype")
            family.fields["state"] = dict(numbers, dtype=stated if isinstance(stated, str) and stated else None)
    family.used.add("mamba_ssm_dtype")
    family.used.update(key for key in text if key.startswith(("linear_", "mamba_", "ssm_", "conv_", "time_step")))


def _index(family, text, where, architecture):
    """Index rows: the width of a row, how many tokens share one, and which layers reuse those of an earlier one."""
    if family.attention != "mla":
        return
    defaults = LATENT_DEFAULTS.get(text.get("model_type"))
    default = defaults.index_head_dim if defaults else None
    known = any(architecture in row.architectures for row in INDEX_FAMILIES)
    if not known or (text.get("index_topk") is None and text.get("index_head_dim") is None and default is None):
        return
    family.used.update(key for key in text if key.startswith("index_") or key in ("indexer_types", "cli_factor"))
    width = _number(text, ("index_head_dim",), where, default)
    if width is None:
        raise ModelError(
            f"Expected index_head_dim in {where}, found nothing: complete the file, or state the cell of the server as"
            " cell_bytes."
        )
    family.fields["index_head_dim"] = width
    kpool = _number(text, ("index_kpool",), where, 1)
    if kpool > 1:
        family.fields["index_kpool"] = kpool
    count = layers.count_of(text, where)
    if count:
        reused = "".join("-" if _reuses_index(text, one, where) else "i" for one in range(count))
        if "-" in reused:
            family.fields["index_pattern"] = reused


def _reuses_index(text, layer, where):
    """Whether a layer takes the choice of an earlier layer (sglang 0.5.23 dsa_layer_skips_topk)."""
    kinds = text.get("indexer_types")
    if isinstance(kinds, list):
        return layer < len(kinds) and kinds[layer] == "shared"
    factor = _number(text, ("cli_factor",), where, 1)
    if factor > 1:
        return layer % factor != 0
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, (str, list)):
        return layer < len(pattern) and pattern[layer] == "S"
    often = _number(text, ("index_topk_freq",), where, 1)
    offset = _number(text, ("index_skip_topk_offset",), where, 2)
    return max(layer - offset + 1, 0) % often != 0


# Only layers that keep one row for 4 tokens choose among them by an index of such rows.
# Source: get_num_indexer_layers in srt/configs/model_config.py of sglang 0.5.23.
_INDEXED_RATIO = 4


def _compressed(family, text, where, architecture):
    """DeepSeek-V4: what every layer compresses to, and the widths of its rows."""
    if family.attention != "compressed":
        return
    ratios, count = text.get("compress_ratios"), layers.count_of(text, where)
    if not isinstance(ratios, list) or not all(is_integer(one) for one in ratios) or len(ratios) < (count or 1):
        raise UnknownLayout(
            f"compress_ratios in {where}", f"a number for every layer was expected, found {shown(ratios)}"
        )
    if text.get("kv_source_layer_ids"):
        raise UnknownLayout(f"kv_source_layer_ids in {where}", "its layers share compressed rows")
    family.used.update(key for key in text if key.startswith(("index_", "compress")))
    family.used.update(("kv_source_layer_ids", "window_size", "sliding_window"))
    family.fields["compress_ratios"] = ratios
    if _INDEXED_RATIO in ratios:
        family.fields["index_compress"] = _INDEXED_RATIO
    widths = (("index_head_dim", ("index_head_dim",)), ("qk_rope_head_dim", ("qk_rope_head_dim",)))
    for name, spellings in (*widths, ("window_tokens", ("sliding_window", "window_size"))):
        family.fields[name] = _number(text, spellings, where)
        if family.fields[name] is None:
            raise ModelError(
                f"Expected {spellings[0]} in {where}, found nothing: complete the file, or state the cell of the server"
                " as cell_bytes."
            )


def _sparse(family, text, where, architecture):
    """MiniMax M3: dense layers, and sparse ones with index keys, some of them with index values too."""
    if architecture not in SPARSE_ARCHITECTURES:
        return
    family.used.add("sparse_attention_config")
    node = text.get("sparse_attention_config")
    place = f"sparse_attention_config of {where}"
    if not isinstance(node, dict) or not isinstance(node.get("sparse_attention_freq"), list):
        raise UnknownLayout(f"the architecture {architecture}", f"it needs sparse_attention_freq in {place}")
    often = node["sparse_attention_freq"]
    flags = node.get("sparse_disable_index_value") or [0] * len(often)
    count = layers.count_of(text, where)
    if len(often) != count or not isinstance(flags, list) or len(flags) != count:
        raise ModelError(f"Expected {count} entries in the lists of {place}, found {len(often)}.")
    letters = ["d" if not one else ("k" if flags[index] else "v") for index, one in enumerate(often)]
    family.fields["sparse_pattern"] = "".join(letters)
    family.fields["sparse_index_dim"] = _number(node, ("sparse_index_dim",), place)
    if family.fields["sparse_index_dim"] is None:
        raise ModelError(f"Expected sparse_index_dim in {place}, found nothing.")


def _repeated(family, text, where, architecture):
    row = next((row for row in REPEATED_LAYERS if row.architecture == architecture), None)
    if row is None:
        return
    times = row.times if row.key is None else _number(text, (row.key,), where, 1)
    if row.key:
        family.used.add(row.key)
    if times > 1:
        family.fields["rows_per_layer"] = times


def _shared(family, text, where, architecture):
    """Layers that reuse rows of others: the engine keeps rows for all, so nothing is saved."""
    row = next((row for row in SHARED_ROWS if architecture in row.architectures), None)
    if row is None or is_neutral(text.get(row.reason)):
        return
    family.used.update((row.reason, "cla_share_factor"))
    family.notes.append(
        f"some layers share KV rows ({row.reason} in {where}), the engine keeps rows for all layers of {architecture}"
        " all the same: the cell is an upper bound"
    )


def _blocks(family, text, where, architecture):
    """Nemotron-NAS: KV heads as a share of the attention heads, the same in every block that has attention."""
    if text.get("model_type") != "nemotron-nas" and architecture not in ("DeciLMForCausalLM", "NemotronNASForCausalLM"):
        return
    blocks = text.get("block_configs")
    if not isinstance(blocks, list) or not blocks:
        raise UnknownLayout(f"the architecture {architecture}", f"it needs block_configs in {where}")
    shares = set()
    for block in blocks:
        attention = block.get("attention") if isinstance(block, dict) else None
        if isinstance(attention, dict) and not attention.get("no_op"):
            shares.add(_number(attention, ("n_heads_in_group",), f"block_configs of {where}"))
    heads = text.get("num_attention_heads")
    share = shares.pop() if len(shares) == 1 else None
    if share is None or not is_integer(heads) or heads % share:
        raise UnknownLayout(f"block_configs in {where}", "its layers differ in KV heads")
    family.used.add("block_configs")
    family.fields["full_kv_heads"] = heads // share


# ---------------------------------------------------------------------------
# What is left over
# ---------------------------------------------------------------------------


def _refuse_keys(family, text, where):
    """Refuse keys that change the KV layout: those known to, and those that look like it and are not known at all."""
    for row in REFUSED_KEYS:
        if row.key in family.used or row.key not in text:
            continue
        if not is_neutral(text[row.key]) and text[row.key] != row.neutral and row.applies(text):
            raise UnknownLayout(f"{row.key} in {where}", row.reason)
    for key, kinds in LAYER_KINDS.items():
        if isinstance(text.get(key), list) and key not in family.used:
            count = layers.count_of(text, where)
            if count is not None and len(text[key]) < count:
                raise ModelError(
                    f"Expected {count} entries in {key} of {where}, found {len(text[key])}: complete the file, or state"
                    " the cell of the server as cell_bytes."
                )
            for value in text[key]:
                if value not in kinds:
                    raise UnknownLayout(f"the layer kind {value!r} in {key} of {where}")
    known = HARMLESS_KEYS.union(row.key for row in REFUSED_KEYS) | family.used
    for key in sorted(text):
        if key not in known and SUSPICIOUS_KEY.search(key) and not is_neutral(text[key]):
            raise UnknownLayout(f"{key} in {where}", "an unknown key that may change the KV layout")


def _plain_windows(family, text, where, architecture):
    """Note windowed attention with full rows: so the engine does unless the architecture is on its list."""
    if any(architecture in row.architectures for row in WINDOW_FAMILIES) or family.attention == "compressed":
        return
    if family.fields.get("state"):
        return
    kinds = text.get("layer_types")
    windowed = isinstance(kinds, list) and "sliding_attention" in kinds
    windowed = windowed or (not is_neutral(text.get("sliding_window")) and text.get("use_sliding_window") is not False)
    if not windowed:
        return
    if architecture not in PLAIN_ARCHITECTURES:
        raise UnknownLayout(
            f"sliding_window in {where}",
            f"it is not known whether the engine keeps full rows for {architecture}",
        )
    family.notes.append(
        f"some layers attend to a window only, the engine keeps full rows for {architecture} all the same"
    )
