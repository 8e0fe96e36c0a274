# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ranks a server has: processes of this node, their numbers, boards and prefixes in the log."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sglang.played import versions


@dataclass(frozen=True)
class Rank:
    """One scheduler process. ``dp`` is None where there is no data parallelism; ``world``: whose memory is compared."""

    number: int  # on this node
    tp: int
    pp: int
    dp: int | None
    ep: int
    world: int
    board: int
    first: bool  # tp_rank 0 of its DP group and stage: it prints what one rank of a group prints

    @property
    def title(self) -> str:
        parts = [f"DP{self.dp}" if self.dp is not None else "", f"PP{self.pp}" if self.pp else "", f"TP{self.tp}"]
        return "sglang::scheduler_" + "_".join(part for part in parts if part)


@dataclass(frozen=True)
class Sizes:
    """Of the whole server, all nodes."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    attention: bool = False  # data parallelism inside of the TP group
    nodes: int = 1
    node: int = 0

    @property
    def attn_tp(self) -> int:
        return self.tp // self.dp if self.attention else self.tp


def sizes_of(arguments) -> Sizes:
    attn_dp = getattr(arguments, "attn_dp_size", 1) or 1
    old = bool(getattr(arguments, "enable_dp_attention", False))
    dp = max(arguments.dp_size, attn_dp)
    return Sizes(
        tp=arguments.tp_size, pp=arguments.pp_size, dp=dp, ep=arguments.ep_size,
        attention=attn_dp > 1 or (old and arguments.dp_size > 1), nodes=arguments.nnodes, node=arguments.node_rank,
    )


def visible(boards: list[dict]) -> list[int]:
    """The boards in the order in which CUDA counts them: CUDA_VISIBLE_DEVICES by index or UUID."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None or not text.strip():
        return [board["index"] for board in boards]
    known = {str(board["index"]): board["index"] for board in boards}
    known.update({board["uuid"]: board["index"] for board in boards})
    return [known[word.strip()] for word in text.split(",") if word.strip() in known]


def local(sizes: Sizes, boards: list[int], base: int = 0) -> list[Rank]:
    """The ranks of this node. Raises RuntimeError when there are fewer boards than ranks, as torch does."""
    copies = 1 if sizes.attention else sizes.dp
    found = []
    for copy in range(copies):
        for pp in range(sizes.pp):
            for tp in range(sizes.tp):
                place = pp * sizes.tp + tp
                per_node = sizes.tp * sizes.pp // sizes.nodes
                if place // per_node != sizes.node:
                    continue
                dp = tp // sizes.attn_tp if sizes.attention else copy if sizes.dp > 1 else None
                number = len(found)
                gpu = base + copy * per_node + place % per_node
                if gpu >= len(boards):
                    raise RuntimeError(
                        "CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at "
                        "some other API call, so the stacktrace below might be incorrect."
                    )
                found.append(Rank(
                    number=number, tp=tp, pp=pp, dp=dp, ep=tp * sizes.ep // sizes.tp, world=copy, board=boards[gpu],
                    first=tp % sizes.attn_tp == 0,
                ))
    return found


def prefix(rank: Rank, sizes: Sizes) -> str:
    """What stands behind the time in a line of this rank (srt/managers/scheduler.py configure_scheduler_process)."""
    dp = f" DP{rank.dp}" if rank.dp is not None else ""
    if not versions.at_least("0.4.4"):
        return f"{dp} TP{rank.tp}"
    tp = f" TP{rank.tp}" if sizes.tp > 1 else ""
    pp = f" PP{rank.pp}" if sizes.pp > 1 else ""
    ep = f" EP{rank.ep}" if sizes.ep > 1 else ""
    if not versions.at_least("0.5.2"):
        return dp + tp + pp
    if not versions.at_least("0.5.6"):
        return dp + tp + ep + pp
    return dp + pp + tp + ep
