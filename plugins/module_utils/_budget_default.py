# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the fraction that the engine itself takes when none is given, by version: for comparison. Private.

It is made from the size of the board as nvidia-smi prints it, although the engine then multiplies it with the memory
that is free before load. All sizes here are MiB, as in the engine.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_reserve as reserve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_situation import (
    activation_tokens,
    algorithm,
    data_parallel_mib,
    disabled,
    draft_reserve,
    on,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import argument_number

GIB_MIB = 1024.0


def _by_ranks(situation, ranks):
    """0.3.6 to 0.4.4, and small boards of 0.4.6: a table by tensor-parallel ranks."""
    eight = 0.81 if version_at_least(situation.engine_version, "0.4.0") else 0.82
    table = ((16, 0.79), (8, eight), (4, 0.85), (2, 0.87), (1, 0.88))
    return next(fraction for least, fraction in table if ranks >= least)


def _of_0_4_6(situation, board_mib):
    """0.4.6 to 0.4.8: the table up to 80 GiB, more on larger boards."""
    since_0_4_7 = version_at_least(situation.engine_version, "0.4.7")
    speculating = bool(algorithm(situation))
    if since_0_4_7 and board_mib > 180 * 1000:
        return 0.79
    fraction = _by_ranks(situation, situation.ranks) if board_mib <= 81920 else 0.88
    if board_mib > 96 * GIB_MIB:
        kept = 20 if since_0_4_7 and speculating else 18
        more = fraction + 48 * GIB_MIB * (1 - fraction) / board_mib
        return min(more, (board_mib - kept * GIB_MIB) / board_mib)
    return fraction * 0.95 if since_0_4_7 and speculating else fraction


def _of_0_4_9(situation, board_mib):
    """0.4.9 to 0.5.2: a reserve by size of the board."""
    ranks = situation.ranks
    if board_mib < 35 * GIB_MIB:
        reserved = (2.8 + ranks / 10) * GIB_MIB
    elif board_mib < 90 * GIB_MIB:
        reserved = (9.5 + ranks / 2) * GIB_MIB
    elif board_mib < 160 * GIB_MIB:
        reserved = (12 + ranks / 2) * GIB_MIB
    else:
        reserved = 32 * GIB_MIB
    name = algorithm(situation)
    if name:
        reserved += (6 if name == "STANDALONE" and version_at_least(situation.engine_version, "0.5.2") else 2) * GIB_MIB
    if on(situation, "enable-dp-attention"):
        reserved += 4 * GIB_MIB
    return round((board_mib - reserved) / board_mib, 3)


def _of_0_5_3(situation, board_mib):
    """0.5.3 and later: activations, graphs, parallelism, with a floor of 10 GiB on large boards."""
    version, batch = situation.engine_version, situation.decode_batch
    reserved = tables.RUNTIME_GIB * GIB_MIB + tables.DEFAULT_ACTIVATION_MIB_PER_TOKEN * _tokens(situation)
    reserved += situation.ranks / 8.0 * GIB_MIB
    counts_phases = version_at_least(version, "0.5.15")
    mode = str(situation.arguments.get("disaggregation-mode")) if counts_phases else ""
    if mode != "prefill" and not (counts_phases and disabled(situation, "decode")):
        reserved += batch * tables.DECODE_GRAPH_MIB_PER_REQUEST
    if mode != "prefill":
        reserved += data_parallel_mib(situation)
    if mode != "decode":
        reserved += reserve.prefill_graph_gib(situation) * GIB_MIB
    if board_mib > tables.DEFAULT_FLOOR_ABOVE_MIB:
        reserved = max(reserved, tables.DEFAULT_FLOOR_MIB)
    # Up to 0.5.13 the engine keeps room for the draft model here; later it charges the draft to the pool.
    reserved += (draft_reserve(situation) or (0.0,))[0] * GIB_MIB
    deepep = situation.arguments.get("moe-a2a-backend") == "deepep" and not disabled(situation, "decode")
    if counts_phases and deepep and mode != "prefill":
        reserved += 2 * GIB_MIB
    return round((board_mib - reserved) / board_mib, 3)


def _tokens(situation):
    arguments = situation.arguments
    if version_at_least(situation.engine_version, "0.5.15") and arguments.get("disaggregation-mode") == "decode":
        requests = situation.max_running_requests or situation.decode_batch or 1
        return max(requests * argument_number(arguments, "speculative-num-draft-tokens", 1), 2048)
    if situation.chunk_tokens and situation.chunk_tokens < 0:
        return max(argument_number(arguments, "max-prefill-tokens", tables.MOST_PREFILL_TOKENS), 2048)
    return max(activation_tokens(situation), 2048)


def _of_vision(situation):
    """The factor for models with an image encoder: larger encoders take more off."""
    version = situation.engine_version
    if not situation.multimodal:
        return 1.0
    if not version_at_least(version, "0.4.10"):
        return 0.90 if version_at_least(version, "0.4.6") else 0.95
    layers = situation.geometry.get("vision_layers") or 24
    hidden = situation.geometry.get("vision_hidden_size") or 1024
    larger = layers * hidden**2 / (24 * 1024**2) - 1
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * larger))


def default_fraction(situation, board_mib):
    """Return the fraction that the engine takes by itself on a board of C(board_mib) MiB, or None."""
    version = situation.engine_version
    if version is not None and not version_at_least(version, "0.4.6"):
        fraction = _by_ranks(situation, situation.ranks)
    elif version is not None and not version_at_least(version, "0.4.9"):
        fraction = _of_0_4_6(situation, board_mib)
    elif version is not None and not version_at_least(version, "0.5.3"):
        fraction = _of_0_4_9(situation, board_mib)
    else:
        fraction = _of_0_5_3(situation, board_mib)
    fraction *= _of_vision(situation)
    return fraction if 0 < fraction < 1 else None
