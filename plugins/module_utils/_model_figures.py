# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, figure by figure: spellings, defaults, checks. Private to the collection."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._families import LATENT_DEFAULTS
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import GEOMETRY_LIMIT, GEOMETRY_LIMITS
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import is_integer


class ModelError(ValueError):
    """The model folder or its config.json cannot be right or leaves something out. The text is one sentence."""


@dataclass(frozen=True)
class Key:
    """The spellings under which configurations state one figure, in the order in which they count."""

    name: str
    spellings: tuple
    source: str


_MAPS = "transformers attribute_map and sglang srt/configs/model_config.py"
KEYS = (
    Key("layers", ("num_hidden_layers", "n_layers", "n_layer", "num_layers"), _MAPS),
    Key("hidden_size", ("hidden_size", "n_embd", "d_model", "dim"), _MAPS),
    Key("attention_heads", ("num_attention_heads", "n_heads", "n_head", "num_heads"), _MAPS),
    Key(
        "kv_heads",
        ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups"),
        "sglang srt/configs/model_config.py get_total_num_kv_heads",
    ),
    Key("head_dim", ("head_dim", "attention_head_dim", "kv_channels"), _MAPS),
    Key("v_head_dim", ("v_head_dim",), _MAPS),
    Key("kv_lora_rank", ("kv_lora_rank",), _MAPS),
    Key("qk_rope_head_dim", ("qk_rope_head_dim",), _MAPS),
    Key("vocab_size", ("vocab_size", "padded_vocab_size", "n_vocab"), _MAPS),
    Key("intermediate_size", ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"), _MAPS),
    Key("experts", ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), _MAPS),
    Key(
        "experts_per_token",
        (
            "num_experts_per_tok",
            "num_experts_per_token",
            "experts_per_token",
            "moe_topk",
            "moe_top_k",
            "moe_k",
            "top_k_experts",
        ),
        "top_k in sglang 0.5.23 srt/models (Hunyuan and LongCat: moe_topk, Ernie: moe_k, Gemma 4: top_k_experts)",
    ),
    Key(
        "moe_intermediate_size",
        ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_hidden_size"),
        "intermediate_size of the experts in sglang 0.5.23 srt/models (LongCat: expert_ffn_hidden_size)",
    ),
    Key("nextn_layers", ("num_nextn_predict_layers",), "sglang srt/configs/model_config.py"),
    Key("mtp_layers", ("mtp_num_hidden_layers", "num_mtp_layers"), "sglang srt/models/qwen3_5_mtp.py"),
)
_KEY_BY_NAME = {row.name: row for row in KEYS}

# The order in which the engine looks for the longest context; the last ones are old names of max_position_embeddings.
CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
)


def word(value):
    return value if isinstance(value, str) and value else None


def stated(text, name):
    """Return (spelling, value) of the figure C(name), or (None, None). A null counts as not stated."""
    for spelling in _KEY_BY_NAME[name].spellings:
        if text.get(spelling) is not None:
            return spelling, text[spelling]
    return None, None


def _number(text, name, where, minimum=1):
    spelling, value = stated(text, name)
    if spelling is None:
        return None
    limit = GEOMETRY_LIMITS.get(name, GEOMETRY_LIMIT)
    if not is_integer(value) or not minimum <= value <= limit:
        raise ModelError(
            f"Expected a whole number from {minimum} to {limit} for {spelling} in {where}, found {shown(value)}."
        )
    return value


# DBRX states its feed-forward layers in a block: our spelling -> that of ffn_config (srt/models/dbrx.py).
_FEED_FORWARD_BLOCK = {
    "ffn_hidden_size": "ffn_hidden_size",
    "moe_num_experts": "moe_num_experts",
    "moe_top_k": "moe_top_k",
}


def _feed_forward(text, where):
    """Return intermediate_size, experts, experts_per_token and moe_intermediate_size, each None where not stated.

    Where a list states a figure for every layer (Gemma 3n, Hunyuan), or for text and for images (ERNIE 4.5 VL), the
    largest counts: memory is held for the largest layer. Mixtral, gpt-oss, MiniMax-M2, Llama 4 and others name the
    inner width of their experts intermediate_size.
    """
    block = text.get("ffn_config")
    if isinstance(block, dict):
        text = {**text, **{ours: block[theirs] for ours, theirs in _FEED_FORWARD_BLOCK.items() if theirs in block}}
    figures = {name: _largest(text, name, where, 0) for name in ("intermediate_size", "experts")}
    for name in ("experts_per_token", "moe_intermediate_size"):
        figures[name] = _largest(text, name, where, 1) if figures["experts"] else None
    if figures["experts"] and figures["moe_intermediate_size"] is None:
        figures["moe_intermediate_size"] = figures["intermediate_size"]
    return figures


def _largest(text, name, where, minimum):
    """Return the number, or the largest of a list of whole numbers."""
    spelling, value = stated(text, name)
    if isinstance(value, list) and value and all(is_integer(one) for one in value):
        text = {spelling: max(value)}
    return _number(text, name, where, minimum)


def shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def figures_of(config, text, where, family, defaults, notes):
    """Return the numbers of the geometry. Missing ones come from the defaults of the model's class, with a note.

    C(family): what was read of the layers (_model_family.Family). Its fields are added; what it knows better counts.
    """
    attention, extra = family.attention, dict(family.fields)
    figures = {"vocab_size": _number(text, "vocab_size", where, minimum=0), **_feed_forward(text, where)}
    figures["nextn_layers"] = _number(text, "nextn_layers", where, minimum=0)
    pattern = extra.get("layer_pattern")
    layers = len(pattern) if pattern else _number(text, "layers", where)
    hidden = _number(text, "hidden_size", where)
    heads, kv_heads = _heads(config, text, where, attention, defaults, notes, extra.pop("full_kv_heads", None))
    missing = [name for name, value in (("layers", layers), ("attention_heads", heads)) if value is None]
    if missing:
        _raise_missing(missing, text, where, defaults)
    figures.update({"layers": layers, "hidden_size": hidden, "attention_heads": heads, "kv_heads": kv_heads})
    rank, rope = _latent(text, where, attention, notes)
    if attention == "mla":
        missing = [name for name, value in (("kv_lora_rank", rank), ("qk_rope_head_dim", rope)) if value is None]
        if missing:
            _raise_missing(missing, text, where, defaults)
    figures.update({"kv_lora_rank": rank, "qk_rope_head_dim": rope})
    figures["head_dim"] = _head_dim(text, where, hidden, heads, attention, defaults, notes)
    v_head_dim = _number(text, "v_head_dim", where, minimum=0)
    figures["v_head_dim"] = v_head_dim or figures["head_dim"]
    if "full_head_dim" in extra:
        _swap_windows(figures, extra, text, where, defaults, notes)
    mtp = _number(text, "mtp_layers", where, minimum=0)
    if mtp is not None:
        extra["mtp_layers"] = mtp
    figures.update(extra)
    return figures


def _latent(text, where, attention, notes):
    """Return the widths of the latent and of the position row, from the file or its class."""
    if attention != "mla":
        return None, None
    defaults = LATENT_DEFAULTS.get(text.get("model_type"))
    rank = _number(text, "kv_lora_rank", where)
    rope = 0 if text.get("use_mla_nope") is True else _number(text, "qk_rope_head_dim", where, minimum=0)
    if defaults is not None and rank is None:
        rank = defaults.kv_lora_rank
        notes.append(_default_note("kv_lora_rank", rank, where, defaults))
    if defaults is not None and rope is None:
        rope = defaults.qk_rope_head_dim
        notes.append(_default_note("qk_rope_head_dim", rope, where, defaults))
    return rank, rope


def _swap_windows(figures, extra, text, where, defaults, notes):
    """Gemma 4 states its window layers first: the geometry has the full layers there, and window_* beside them."""
    window_heads = _number(text, "kv_heads", where)
    if window_heads is None and defaults is not None:
        window_heads = defaults.kv_heads
    extra["window_kv_heads"] = window_heads
    extra["window_head_dim"] = extra["window_v_head_dim"] = figures["head_dim"]
    figures["head_dim"] = figures["v_head_dim"] = extra.pop("full_head_dim")


def _raise_missing(names, text, where, defaults=None):
    spellings = [_KEY_BY_NAME[name].spellings[0] for name in names]
    if defaults is None and stated(text, "kv_heads")[0] is None and "kv_heads" not in names:
        spellings += [_KEY_BY_NAME["kv_heads"].spellings[2], "head_dim"] if "attention_heads" in names else []
    raise ModelError(
        "Expected {} in {}, found nothing: complete the file, or state the cell of the server as cell_bytes.".format(
            " and ".join(spellings), where
        )
    )


def _heads(config, text, where, attention, defaults, notes, known=None):
    """Return (attention heads, KV heads) as the engine counts them. C(known): KV heads that the layout gives."""
    nested = text.get("attn_config") if isinstance(text.get("attn_config"), dict) else {}
    heads = _number(text, "attention_heads", where)
    if heads is None and defaults is not None and defaults.attention_heads is not None:
        heads = defaults.attention_heads
        notes.append(_default_note("num_attention_heads", heads, where, defaults))
    if attention == "mla":
        return heads, _number(text, "kv_heads", where)  # stated in files, plays no part
    model_type = text.get("model_type") or config.get("model_type")
    new_falcon = (
        model_type in ("falcon", "RefinedWeb", "RefinedWebModel") and text.get("new_decoder_architecture") is True
    )
    if text.get("multi_query") is True and not new_falcon:
        return heads, 1
    if nested.get("kv_n_heads") is not None:
        value = nested["kv_n_heads"]
        if not is_integer(value) or value < 1:
            raise ModelError(f"Expected a whole number for kv_n_heads in attn_config of {where}, found {shown(value)}.")
        return heads, value
    kv_heads = known if known is not None else _number(text, "kv_heads", where)
    if kv_heads is None:
        kv_heads = _kv_heads_not_stated(text, where, heads, defaults, notes)
    if heads is not None and kv_heads is not None and heads % kv_heads:
        raise ModelError(
            f"Expected the attention heads in {where} to be a multiple of the KV heads, found {heads} and {kv_heads}."
        )
    return heads, kv_heads


def _default_note(key, value, where, defaults):
    return f"{key} is not in {where}, {value} is the default of the class {defaults.model_type}"


# Old multi-head models whose classes know no other KV heads than the attention heads.
_NO_GROUPS = (
    "gpt2",
    "gptj",
    "gpt_neo",
    "gpt_neox",
    "bloom",
    "opt",
    "codegen",
    "mpt",
    "phi",
    "baichuan",
    "gpt_bigcode",
    "falcon",
    "persimmon",
    "qwen",
)


def _kv_heads_not_stated(text, where, heads, defaults, notes):
    """KV heads when no spelling states them. An explicit null means as many as attention heads."""
    null = any(spelling in text for spelling in _KEY_BY_NAME["kv_heads"].spellings)
    if null or text.get("model_type") in _NO_GROUPS:
        return heads
    if defaults is None:
        raise ModelError(
            "Expected num_key_value_heads in {}, found nothing, and the defaults of the model type {} are not"
            " known here:"
            " state the cell of the server as cell_bytes.".format(where, text.get("model_type"))
        )
    if defaults.kv_heads is None:
        return heads
    notes.append(_default_note("num_key_value_heads", defaults.kv_heads, where, defaults))
    return defaults.kv_heads


def _head_dim(text, where, hidden, heads, attention, defaults, notes):
    """The head size. The file wins; hidden size divided by heads counts only where the model's class says so."""
    value = _number(text, "head_dim", where)
    if value is not None or attention == "mla":
        return value
    null = any(spelling in text for spelling in _KEY_BY_NAME["head_dim"].spellings)
    if not null and defaults is not None and defaults.head_dim is not None:
        notes.append(_default_note("head_dim", defaults.head_dim, where, defaults))
        return defaults.head_dim
    if hidden is None:
        _raise_missing(["head_dim", "hidden_size"], text, where)
    if hidden % heads:
        raise ModelError(
            f"Expected head_dim in {where}, found nothing, and hidden_size {hidden} is no multiple of {heads}"
            " attention heads."
        )
    return hidden // heads


def context_tokens(text):
    """Return the longest context that the engine derives (tokens), or None when the file does not say.

    Follows sglang get_context_length: the first key that is set, times the factor of an old-style rope scaling.
    """
    value = next((text[key] for key in CONTEXT_KEYS if is_integer(text.get(key)) and text[key] > 0), None)
    if value is None:
        return None
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    factor = 1
    if isinstance(scaling, dict):
        kind = scaling.get("rope_type") or scaling.get("type")
        if "original_max_position_embeddings" not in scaling and kind != "llama3":
            factor = scaling.get("factor") or 1
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0 < factor < 1e6:
        return value
    return int(factor * value)


def dtype_of(node):
    value = node.get("dtype") or node.get("torch_dtype")
    return value.replace("torch.", "") if isinstance(value, str) else None
