# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotary embedding that SGLang takes from vllm._custom_ops when it runs on a CPU without AMX, in plain torch."""

from __future__ import annotations

import torch


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    """Rotate query and key in place.

    positions: [tokens]; query and key: [tokens, heads * head_size] or [tokens, heads, head_size];
    cos_sin_cache: [max_position, rotary_dim], cosines in the first half and sines in the second.
    """
    tokens = positions.flatten()
    cos, sin = cos_sin_cache.index_select(0, tokens).chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    rotary_dim = cos_sin_cache.shape[-1]
    for tensor in (query, key):
        if tensor is None:
            continue
        heads = tensor.view(tokens.shape[0], -1, head_size)[..., :rotary_dim]
        if is_neox:
            first, second = heads.chunk(2, dim=-1)
        else:
            first, second = heads[..., 0::2], heads[..., 1::2]
        rotated_first = first * cos - second * sin
        rotated_second = second * cos + first * sin
        first.copy_(rotated_first)
        second.copy_(rotated_second)
