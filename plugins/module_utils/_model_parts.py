# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which part of the model a tensor is, and among which ranks the engine divides it. Private to the collection.

The part follows from the name alone: the first row of PARTS whose pattern is found in it. Paths of sources are inside
the package sglang of version 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_table import is_tower

# How a part is divided; _model_split says by how many ranks.
REPLICATED = "replicated"  # every rank holds it whole
ATTENTION = "attention"  # over the attention ranks: tp-size / attention groups
KV_HEADS = "kv_heads"  # over the attention ranks, but never below one KV head
FUSED_QKV = "fused_qkv"  # queries as ATTENTION, keys and values as KV_HEADS
VOCABULARY = "vocabulary"  # rows over the attention ranks, padded
HEAD = "head"  # rows over tp-size (over the attention ranks with enable-dp-lm-head), padded
DENSE = "dense"  # over tp-size (over moe-dense-tp-size where that is given)
EXPERTS = "experts"  # over tp-size, whether by whole experts (ep-size) or through each of them
SHARED = "shared"  # over tp-size; whole on every rank with an all-to-all backend
TOWER = "tower"  # over the attention ranks; whole with mm-enable-dp-encoder
NOTHING = "nothing"  # in the file, but not loaded
UNKNOWN = "unknown"  # divided over tp-size until somebody knows better


@dataclass(frozen=True)
class Part:
    """One row: C(name) of the part, C(pattern) searched in the name of a tensor, C(division), C(source)."""

    name: str
    pattern: re.Pattern
    division: str
    source: str


def _part(name, pattern, division, source):
    return Part(name, re.compile(pattern), division, source)


_VOCABULARY = "srt/layers/vocab_parallel_embedding.py VocabParallelEmbedding, padded to 64 rows a rank"
_LINEAR = "srt/layers/linear.py"
_MLA = "srt/models/deepseek_v2.py DeepseekV2AttentionMLA"

TOWER_PARTS = (
    _part("tower", r"(?:attn|attention|mlp|fc1|fc2|qkv|merger|feed_forward)", TOWER, "srt/layers/attention/vision.py"),
    _part("tower", r"", REPLICATED, "srt/models/*_vl.py: patch embedding, positions, norms"),
)

PARTS = (
    _part("not loaded", r"rotary_emb\.inv_freq|\.masked_bias$|position_ids$", NOTHING, "load_weights of srt/models"),
    _part(
        "head",
        r"(?:^|\.)(?:lm_head|embed_out)\.|shared_head\.head\.|^(?:output|head)\.weight$",
        HEAD,
        "srt/layers/vocab_parallel_embedding.py ParallelLMHead",
    ),
    _part("embeddings", r"position_embeddings|embed_positions|\bwpe\.", REPLICATED, "srt/models/gpt2.py"),
    _part(
        "embeddings",
        r"embed_tokens|word_embeddings|tok_embeddings|\bwte\.|(?:^|\.)embed\.weight$|embeddings\.weight$",
        VOCABULARY,
        _VOCABULARY,
    ),
    _part("indexer", r"\bindexer\.", REPLICATED, "srt/layers/attention/dsa/dsa_indexer.py ReplicatedLinear"),
    _part("compressor", r"\bcompressor\.", REPLICATED, "srt/layers/attention/dsv4/compressor.py ReplicatedLinear"),
    _part("norms", r"norm|\bln_|layer_norm|(?:^|\.)hc_|hyper_connection", REPLICATED, "srt/layers/layernorm.py"),
    _part(
        "shared experts",
        r"shared_experts?\.|shared_mlp\.|shared_expert_mlp",
        SHARED,
        "srt/models/deepseek_v2.py DeepseekV2MoE shared_experts",
    ),
    _part(
        "router",
        r"(?:^|\.)(?:gate|router|classifier|shared_expert_gate|gate\.wg)\.(?:weight|bias|e_score|expert_bias|tid2eid)"
        r"|e_score_correction_bias|expert_bias|router",
        REPLICATED,
        _LINEAR + " ReplicatedLinear of the gate",
    ),
    _part(
        "experts",
        r"(?:^|\.)experts?(?:\.|$)|block_sparse_moe\.|experts_",
        EXPERTS,
        "srt/layers/moe/fused_moe_triton/layer.py FusedMoE",
    ),
    _part("experts' way in", r"_latent_proj", REPLICATED, "srt/models/nemotron_h.py ReplicatedLinear"),
    _part(
        "latent projections",
        r"q_a_proj|kv_a_proj|fused_qkv_a|\bwq_a\.|\bwkv\.|\bwqkv_a\.|\b[fg]_a_proj",
        REPLICATED,
        _MLA + " fused_qkv_a_proj_with_mqa, ReplicatedLinear",
    ),
    _part(
        "latent attention",
        r"q_b_proj|kv_b_proj|\bwq_b\.|\bwo_[ab]\.|\b[fg]_b_proj",
        ATTENTION,
        _MLA + " ColumnParallelLinear, RowParallelLinear",
    ),
    _part(
        "linear attention",
        r"linear_attn\.|mamba\.|\bA_log|dt_bias|conv1d|mixer\.(?:in_proj|out_proj|D\b)|\bconv\.|\bssm\.",
        ATTENTION,
        "srt/models/qwen3_next.py, srt/layers/attention/mamba",
    ),
    _part(
        "attention",
        r"qkv_proj|query_key_value|\bc_attn\.|\bWqkv\.|\bW_pack\.|\bqkv\.",
        FUSED_QKV,
        _LINEAR + " QKVParallelLinear",
    ),
    _part(
        "attention",
        r"(?:\bk_proj|\bv_proj|attention\.(?:key|value)|\bwk|\bwv)\b",
        KV_HEADS,
        _LINEAR + " QKVParallelLinear, KV heads are replicated",
    ),
    _part(
        "feed forward",
        r"(?:gate|up|down|gate_up)_proj|fc1|fc2|\bc_fc|\bc_proj|dense_|\bmlp\.|\bffn\.|feed_forward\.|\bw[123]\.",
        DENSE,
        _LINEAR + " MergedColumnParallelLinear, RowParallelLinear",
    ),
    _part(
        "attention",
        r"\bq_proj|\bo_proj|\bout_proj|\bg_proj|\bwo\.|\bwq\.|attn\.|attention\.|\bsinks\b|mixer\.",
        ATTENTION,
        _LINEAR + " ColumnParallelLinear, RowParallelLinear",
    ),
    _part(
        "draft's way in",
        r"eh_proj|(?:^|\.)fc\.|input_proj",
        REPLICATED,
        "srt/models/deepseek_nextn.py, llama_eagle3.py",
    ),
)
UNKNOWN_PART = Part("other", re.compile(""), UNKNOWN, "no row of the table knows the name")
_VECTOR = Part("other vectors", re.compile(""), REPLICATED, "tensors of one dimension")

# What a rank holds as one tensor although the file has several: the sum counts for the allocator's rounding.
# (packed_modules_mapping and stacked_params_mapping of srt/models)
FUSED = (
    (re.compile(r"experts\.\*\.(?:gate_proj|up_proj|w1|w3)\."), "experts.w13."),
    (re.compile(r"experts\.\*\.(?:down_proj|w2)\."), "experts.w2."),
    (re.compile(r"\b(?:q_proj|k_proj|v_proj)\b"), "qkv_proj"),
    (re.compile(r"\b(?:gate_proj|up_proj|w1|w3)\b"), "gate_up_proj"),
    (re.compile(r"\b(?:q_a_proj|kv_a_proj_with_mqa)\b"), "fused_qkv_a_proj_with_mqa"),
)


def part_of(row):
    """Return the Part of a row of the weight table."""
    name = row["name"]
    rows = TOWER_PARTS if is_tower(name) else PARTS
    found = next((part for part in rows if part.pattern.search(name)), None)
    if found is not None:
        return found
    shape = row.get("shape")
    return _VECTOR if shape is not None and len(shape) <= 1 else UNKNOWN_PART


def unit_of(name):
    """Return the name of the tensor that a rank holds for the tensors of this kind."""
    for pattern, fused in FUSED:
        found = pattern.search(name)
        if found:
            return name[: found.start()] + fused + name[found.end() :]
    return name
