# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what comes with requests: activations of a chunk, of a long context, of both together. Private."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_situation import (
    ASSUMED,
    GIB,
    LOAD,
    TABLE,
    activation_tokens,
    attention_groups,
    row,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least

ELEMENT_BYTES = 2


def missing_shape(geometry):
    """Return the keys of the feed-forward layers that a geometry should have and has not."""
    if not geometry.get("hidden_size"):
        return ["hidden_size"] if geometry else []
    if geometry.get("experts"):
        names = ("experts_per_token", "moe_intermediate_size")
        inner = geometry.get("moe_intermediate_size") or geometry.get("intermediate_size")
        return [name for name in names if not (geometry.get(name) or (name == names[1] and inner))]
    if geometry.get("intermediate_size"):
        return []
    # Without either nobody can tell a dense model from one with experts; what a configuration says has the key.
    return ["intermediate_size"] if "experts" in geometry else ["intermediate_size", "experts"]


def _attention_numbers(geometry, attention_tp):
    heads = (geometry.get("attention_heads") or 0) / attention_tp
    head_dim = geometry.get("head_dim") or tables.MLA_NOPE_HEAD_DIM
    value_dim = geometry.get("v_head_dim") or head_dim
    return heads * (2 * head_dim + 2 * value_dim)


def _forward_numbers(geometry, ranks):
    """The feed-forward layer of one token on one rank. What is not stated is taken for the larger: experts, wide."""
    hidden, ranks = geometry["hidden_size"], max(ranks, 1)
    inner = geometry.get("intermediate_size") or 0
    if not geometry.get("experts") and (inner or "experts" in geometry):
        return 3 * (inner or hidden * tables.DENSE_WIDTH_UNKNOWN) / ranks
    chosen = geometry.get("experts_per_token") or tables.EXPERTS_PER_TOKEN_UNKNOWN
    expert = geometry.get("moe_intermediate_size") or inner or hidden * tables.EXPERT_WIDTH_UNKNOWN
    return max(3 * inner / ranks, chosen * (hidden + 3 * expert / ranks))


def activation_bytes_per_token(geometry, attention_tp, ranks):
    """Return the bytes that the largest layer holds for one token of the chunk, or None when the shape is not known.

    Four times the hidden size (residual, norm, input and output of the layer), and the larger of attention and
    feed-forward. Experts first write their outputs apart: experts per token x hidden size (intermediate_cache3 of the
    fused kernel; 8 x 7168 x 2 bytes x 8192 tokens are the 896 MiB of the reference case).
    """
    hidden = geometry.get("hidden_size")
    if not hidden:
        return None
    larger = max(_attention_numbers(geometry, attention_tp), _forward_numbers(geometry, ranks))
    return ELEMENT_BYTES * (4 * hidden + larger)


def gathered_bytes_per_token(geometry, ranks):
    """Return the bytes of one token that is gathered from all groups of data-parallel attention, or None.

    Its hidden state goes in and out of the feed-forward layer, which the ranks of all groups share.
    """
    if not geometry.get("hidden_size"):
        return None
    return ELEMENT_BYTES * (2 * geometry["hidden_size"] + _forward_numbers(geometry, ranks))


def chunk(situation):
    """Return the row of one prefill step. With data-parallel attention each group computes its share of the chunk,
    and experts see the shares of all groups at once."""
    geometry, groups = situation.geometry, attention_groups(situation)
    tokens = activation_tokens(situation)
    share = max(1, tokens // groups)
    per_token = activation_bytes_per_token(geometry, situation.attention_tp, situation.ranks)
    if per_token is None:
        gib = tokens * tables.ACTIVATION_UNKNOWN_MIB_PER_TOKEN / tables.MIB_PER_GIB
        note = f"{tokens:,} tokens: {tables.ACTIVATION_UNKNOWN_SOURCE}"
    elif groups == 1:
        gib = tokens * per_token * tables.ACTIVATION_WASTE / GIB
        note = f"{tokens:,} tokens x {per_token:,.0f} bytes, {tables.ACTIVATION_SOURCE}"
    else:
        own = ELEMENT_BYTES * (4 * geometry["hidden_size"] + _attention_numbers(geometry, situation.attention_tp))
        together = gathered_bytes_per_token(geometry, situation.ranks)
        both_bytes = max(share * own, share * 4 * ELEMENT_BYTES * geometry["hidden_size"] + tokens * together)
        gib = both_bytes * tables.ACTIVATION_WASTE / GIB
        note = (
            f"{share:,} tokens a group, {tokens:,} gathered from {groups} groups x {together:,.0f} bytes,"
            f" {tables.ACTIVATION_SOURCE}"
        )
    return [row("activations of a chunk", gib, ASSUMED, note, LOAD, gib / tables.ACTIVATION_WASTE, "chunk")]


def context(situation):
    geometry = situation.geometry
    if geometry.get("attention") != "mla":
        return []
    tokens = min(situation.context_tokens, tables.MLA_PREFIX_TOKENS)
    heads = (geometry.get("attention_heads") or 0) / situation.attention_tp
    rope = geometry.get("qk_rope_head_dim") or 0
    latent = (geometry.get("kv_lora_rank") or 0) + rope
    value_dim = geometry.get("v_head_dim") or tables.MLA_NOPE_HEAD_DIM
    gib = tokens * (heads * (tables.MLA_NOPE_HEAD_DIM + rope + value_dim) + latent) * 2 / GIB
    return [row("long context", gib, TABLE, tables.MLA_PREFIX_SOURCE, LOAD, grows="context")]


def both(situation, others_gib=0.0):
    """Return the row that grows with chunk and context together: the logits of a sparse attention index.

    C(others_gib): the other rows. From the version on that cuts the matrix by rows, it keeps within a share of what the
    fraction leaves free, so within that share of all rows together.
    """
    geometry = situation.geometry
    if not geometry.get("index_head_dim"):
        return []
    columns = situation.context_tokens // max(1, int(geometry.get("index_compress") or 1))
    gib = max(1, activation_tokens(situation) // attention_groups(situation)) * columns * 4 / GIB
    note = tables.SPARSE_INDEX_SOURCE
    share = tables.SPARSE_INDEX_SHARE
    if version_at_least(situation.engine_version, tables.SPARSE_INDEX_CUT_SINCE) and others_gib:
        most = others_gib * share / (1 - share)
        if gib > most:
            gib, note = most, tables.SPARSE_INDEX_CUT_SOURCE
    return [row("sparse index", gib, TABLE, note, LOAD, grows="both")]


def vision(situation):
    """Return the row for the encoder of images: nothing of the engine reserves for what it holds at once."""
    if not situation.multimodal or situation.device == "cpu":
        return []
    return [row("image encoder", tables.ENCODER_GIB, ASSUMED, tables.ENCODER_SOURCE, LOAD, 0.0)]
