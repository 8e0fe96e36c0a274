# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SGLang computes when an argument is absent: fraction, chunk, largest batch of the decode graphs.

By version from srt/server_args.py and srt/arg_groups/memory_hook.py, for language models. Board sizes are MiB as
nvidia-smi prints them. Left out: multimodal factors, PD disaggregation, DeepEP, post-capture sizing.
"""

from __future__ import annotations

from sglang.played import versions

# Up to MiB -> (chunk, largest batch below four ranks, from four on).
CLASSES = (
    (20 * 1024, 2048, 8, 8), (35 * 1024, 2048, 24, 80), (60 * 1024, 4096, 32, 160), (90 * 1024, 8192, 256, 512),
    (160 * 1024, 8192, 256, 512), (float("inf"), 16384, 512, 512),
)


def chunk_and_batch(board_mib: float, tp_size: int) -> tuple[int, int]:
    """(chunked_prefill_size, largest batch of the decode graphs)."""
    if not versions.at_least("0.5.3"):
        chunk = 2048 if board_mib < 35 * 1024 else 8192 if board_mib < 160 * 1024 else 16384
        return chunk, (8 if tp_size < 4 else 80) if board_mib < 35 * 1024 else 160 if tp_size < 4 else 256
    _limit, chunk, few, many = next(row for row in CLASSES if board_mib < row[0])
    if versions.at_least("0.5.20") and 20 * 1024 <= board_mib < 35 * 1024:
        chunk, few, many = 4096, 48, 160
    return chunk, few if tp_size < 4 else many


def capture_batches(most: int) -> list[int]:
    """The batches whose decode graphs are captured: 1, 2, 4, 8, then every 8, every 16 and every 32."""
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16), *range(544, most + 1, 32)]
    return [one for one in sizes if one < most] + [most]


def prefill_sizes(most: int) -> int:
    """How many sizes the prefill graph has: 42, 50, 58 or 74."""
    return {2048: 42, 4096: 50, 8192: 58}.get(most, 74 if most > 8192 else 42)


def _by_ranks(ranks: int) -> float:
    return next(value for limit, value in ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88)) if ranks >= limit)


def fraction(
    board_mib: float, ranks: int, chunk: int, batch: int, latent: bool, algorithm: str = "", dp_attention: int = 0
) -> float:
    """mem_fraction_static when it is absent."""
    speculative = bool(algorithm)
    standalone = algorithm.upper() == "STANDALONE"
    if not versions.at_least("0.4.9"):
        share = _by_ranks(ranks) if board_mib <= 81920 else 0.88
        if board_mib > 96 * 1024:
            share = min(share + 48 * 1024 * (1 - share) / board_mib, (board_mib - 18 * 1024) / board_mib)
        return round(share, 3)
    if not versions.at_least("0.5.3"):
        rows = ((35, 2.8 + ranks / 10), (90, 9.5 + ranks / 2), (160, 12 + ranks / 2), (float("inf"), 32))
        reserve = next(gib for limit, gib in rows if board_mib < limit * 1024) * 1024
        reserve += 6 * 1024 if standalone else 2 * 1024 if speculative else 0
        return round((board_mib - reserve - (4 * 1024 if dp_attention else 0)) / board_mib, 3)
    reserve = 512 + 1.5 * max(chunk, 2048) + 2 * batch + ranks / 8 * 1024
    if dp_attention:
        reserve += 3 * batch * dp_attention + (1.5 * batch * dp_attention if batch > 300 else 0)
    if versions.at_least("0.5.10"):
        reserve += 1536 if latent else 8 * prefill_sizes(chunk)
    reserve = max(reserve, 10240) if board_mib > 60 * 1024 else reserve
    if speculative and not versions.at_least("0.5.14") and algorithm.upper() != "NGRAM":
        reserve += 1024 * (6 if standalone else 4 if versions.at_least("0.5.10") else 2)
    return round((board_mib - reserve) / board_mib, 3)
