# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, the state of a request in mamba, linear-attention and convolution layers. Private.

All families come down to the same few numbers (before they are split over ranks):
C(kind) is mamba2 (convolution over channels and groups, heads of head_dim x state_size), mamba1 (convolution over
channels, a state of state_size each) or kda (three convolutions, heads of head_dim x head_dim); a missing part is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import ModelError, shown
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import is_integer

_LIMIT = 2**31


@dataclass(frozen=True)
class StateKey:
    """A number of the state: spellings in the order in which they count, and the class's own where none is there."""

    name: str
    spellings: tuple
    default: int | None = None


def _read(text, rows, where, used):
    found = {}
    for row in rows:
        value, spelling = row.default, row.spellings[0]
        for one in row.spellings:
            used.add(one)
            if text.get(one) is not None:
                value, spelling = text[one], one
                break
        if value is None:
            raise ModelError(
                f"Expected {row.spellings[0]} in {where}, found nothing: complete the file, or state the cell of the"
                " server as cell_bytes."
            )
        if not is_integer(value) or not 0 <= value <= _LIMIT:
            raise ModelError(f"Expected a whole number for {spelling} in {where}, found {shown(value)}.")
        found[row.name] = value
    return found


def _state(kind, channels, groups, heads, head_dim, state_size, conv_kernel):
    return {
        "kind": kind,
        "channels": channels,
        "groups": groups,
        "heads": heads,
        "head_dim": head_dim,
        "state_size": state_size,
        "conv_kernel": conv_kernel,
    }


# srt/configs/qwen3_next.py: the class's own sizes.
_GATED_DELTA = (
    StateKey("key_heads", ("linear_num_key_heads",), 16),
    StateKey("value_heads", ("linear_num_value_heads",), 32),
    StateKey("key_dim", ("linear_key_head_dim",), 128),
    StateKey("value_dim", ("linear_value_head_dim",), 128),
    StateKey("kernel", ("linear_conv_kernel_dim",), 4),
)


def _gated_delta(text, where, used):
    one = _read(text, _GATED_DELTA, where, used)
    channels = one["value_dim"] * one["value_heads"]
    return _state(
        "mamba2", channels, one["key_heads"], one["value_heads"], one["value_dim"], one["key_dim"], one["kernel"]
    )


_NEMOTRON = (
    StateKey("heads", ("mamba_num_heads",), 128),
    StateKey("head_dim", ("mamba_head_dim",), 64),
    StateKey("groups", ("n_groups", "mamba_n_groups"), 8),
    StateKey("state_size", ("ssm_state_size",), 128),
    StateKey("kernel", ("conv_kernel", "mamba_d_conv"), 4),
)


def _nemotron(text, where, used):
    one = _read(text, _NEMOTRON, where, used)
    used.update(("mamba_expand", "mamba_ssm_cache_dtype", "expand", "chunk_size", "mamba_chunk_size"))
    channels = one["heads"] * one["head_dim"]
    return _state("mamba2", channels, one["groups"], one["heads"], one["head_dim"], one["state_size"], one["kernel"])


_MAMBA2 = (
    StateKey("heads", ("mamba_n_heads",)),
    StateKey("head_dim", ("mamba_d_head",)),
    StateKey("groups", ("mamba_n_groups",), 1),
    StateKey("state_size", ("mamba_d_state",)),
    StateKey("kernel", ("mamba_d_conv",), 4),
)


def _mamba2(text, where, used):
    """Falcon H1 and Granite 4: the channels are stated, or the hidden size times a factor."""
    if text.get("mamba_d_head") == "auto":
        heads, hidden, expand = (text.get(key) for key in ("mamba_n_heads", "hidden_size", "mamba_expand"))
        if all(is_integer(one) and one > 0 for one in (heads, hidden, expand)):
            text = dict(text, mamba_d_head=expand * hidden // heads)
    one = _read(text, _MAMBA2, where, used)
    used.update(("mamba_d_ssm", "mamba_expand", "mamba_chunk_size"))
    channels = text.get("mamba_d_ssm")
    if not is_integer(channels) or not 0 < channels <= _LIMIT:
        channels = one["heads"] * one["head_dim"]  # the class demands that both agree
    return _state("mamba2", channels, one["groups"], one["heads"], one["head_dim"], one["state_size"], one["kernel"])


_KDA = (
    StateKey("heads", ("num_heads",)),
    StateKey("head_dim", ("head_dim",)),
    StateKey("kernel", ("short_conv_kernel_size",), 4),
)


def _kda(text, where, used):
    node = text.get("linear_attn_config")
    used.add("linear_attn_config")
    if not isinstance(node, dict):
        return None
    one = _read(node, _KDA, f"linear_attn_config of {where}", set())
    return _state("kda", one["heads"] * one["head_dim"], 0, one["heads"], one["head_dim"], 0, one["kernel"])


_SHORT_CONV = (StateKey("hidden", ("hidden_size",)), StateKey("kernel", ("conv_L_cache",), 3))


def _short_conv(text, where, used):
    """A convolution over the hidden state and nothing else. C(block_*) are sizes and starts of the feed forward."""
    one = _read(text, _SHORT_CONV, where, used)
    used.update(("conv_bias", "conv_dim", "conv_dim_out", "conv_use_xavier_init"))
    used.update(key for key in text if key.startswith("block_"))
    return _state("mamba2", one["hidden"], 1, 0, 0, 0, one["kernel"])


_BAILING = (StateKey("heads", ("num_attention_heads",)), StateKey("head_dim", ("head_dim",)))


def _bailing(text, where, used):
    """With a short convolution it is KDA, without one lightning attention, which has no convolution."""
    one = _read(text, _BAILING, where, set())
    used.update(("short_conv_kernel_size", "linear_silu", "linear_rope", "linear_backend", "group_norm_size"))
    kernel = text.get("short_conv_kernel_size")
    if kernel is None:
        return _state("mamba2", 0, 0, one["heads"], one["head_dim"], one["head_dim"], 1)
    if not is_integer(kernel) or kernel < 1:
        raise ModelError(f"Expected a whole number for short_conv_kernel_size in {where}, found {shown(kernel)}.")
    return _state("kda", one["heads"] * one["head_dim"], 0, one["heads"], one["head_dim"], 0, kernel)


_JET = (
    StateKey("heads", ("num_heads",)),
    StateKey("head_dim", ("head_dim",)),
    StateKey("kernel", ("conv_size",)),
)


def _jet(text, where, used):
    used.add("efficient_attention_config")
    node = text.get("efficient_attention_config")
    node = node.get("jet") if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ModelError(f"Expected efficient_attention_config with the block jet in {where}, found nothing.")
    one = _read(node, _JET, f"efficient_attention_config of {where}", set())
    expand = node.get("expand_v", 1)
    if not isinstance(expand, (int, float)) or isinstance(expand, bool) or not 0 < expand < 1000:
        raise ModelError(f"Expected a number for expand_v in efficient_attention_config of {where}.")
    value_dim = int(one["head_dim"] * expand)
    channels = one["heads"] * value_dim
    return _state("mamba2", channels, one["heads"], one["heads"], value_dim, one["head_dim"], one["kernel"])


_MAMBA1 = (
    StateKey("hidden", ("hidden_size",)),
    StateKey("expand", ("mamba_expand",), 2),
    StateKey("state_size", ("mamba_d_state",), 16),
    StateKey("kernel", ("mamba_d_conv",), 4),
)


def _mamba1(text, where, used):
    one = _read(text, _MAMBA1, where, used)
    used.add("expert_layer_offset")
    return _state("mamba1", one["expand"] * one["hidden"], 0, 0, 0, one["state_size"], one["kernel"])


READERS = {
    "mamba1": _mamba1,
    "gated_delta": _gated_delta,
    "nemotron": _nemotron,
    "mamba2": _mamba2,
    "kda": _kda,
    "short_conv": _short_conv,
    "bailing": _bailing,
    "jet": _jet,
}
