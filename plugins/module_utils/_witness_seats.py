# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the witnesses of a ready server, who sits where. Which board a rank has, and what each witness says of it.

Private to the gpufleet.sglang collection; may change at any time. Pure. A *seat* is a board of the unit and its rank.

A board belongs to a rank by the process that nvidia-smi lists on it and whose title names the rank. Where no title
tells it, ranks and boards are counted off in order, as the engine does: board = base_gpu_id + rank x gpu_id_step, in
the order of CUDA_VISIBLE_DEVICES (SGLang 0.5.23: srt/entrypoints/engine.py, data_parallel_controller.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MIB_PER_GIB = 1024.0

# Devices that share the memory of the machine: there is no board that nvidia-smi could show.
SHARED_DEVICES = ("cpu",)

_PART = re.compile(r"(?:^|[ _])(ATTN_CP|MOE_DP|DP|PP|TP|EP)(\d{1,5})(?![^ _])")
_TITLE = re.compile(r"^sglang::scheduler(?P<ranks>(?:_(?:ATTN_CP|MOE_DP|DP|PP|TP|EP)\d{1,5})*)$")


@dataclass(frozen=True)
class Seat:
    """One board of the unit. ``board``: index of nvidia-smi, or ``cpu``, or the rank where the board is not known."""

    board: str
    rank: str | None = None
    name: str | None = None
    nvidia_smi_mib: int | None = None
    journal_mib: int | None = None
    server_info_mib: int | None = None
    meminfo_mib: int | None = None
    foreign_mib: int = 0
    problem: str | None = None


def in_words(seat):
    """A seat as people call it: GPU 3 (TP3)."""
    board = f"GPU {seat.board}" if seat.board.isdigit() else seat.board
    return board + (f" ({seat.rank})" if seat.rank and seat.rank != seat.board else "")


def parts_of(rank):
    """``{"DP": 0, "TP": 3}`` of a printed rank; empty for a server of one rank."""
    return {name: int(number) for name, number in _PART.findall(rank or "")}


def rank_of_title(title):
    """The rank in the title of a scheduler process, as the journal prints it; '' of the only one; None of another."""
    match = _TITLE.match((title or "").strip())
    if match is None:
        return None
    return " ".join(name + number for name, number in _PART.findall(match.group("ranks")))


def order_of(rank):
    """Sort key: the order in which the engine gives out boards."""
    parts = parts_of(rank)
    # With DP attention the number behind TP is the global rank, so DP never contradicts it.
    return parts.get("DP", 0), parts.get("PP", 0), parts.get("TP", 0)


def device_of(look, info):
    """The device of the server: as it says itself, else as its command line does, else by what the host has."""
    told = (info or {}).get("device") or look.get("device")
    if told:
        return str(told)
    return "cuda" if look.get("boards") or look.get("has_boards") else "cpu"


def tokens_by_dp_rank(startup):
    """``{"DP0": tokens}`` by the journal, the least of the ranks that tell it.

    The final line is printed by TP rank 0 only, so with DP attention the pools of the others come from their KV lines.
    """
    final, pool = {}, {}
    for record in startup.get("ranks") or ():
        name = "DP{}".format(parts_of(record.get("rank")).get("DP", 0))
        for found, value in ((final, record.get("pool_tokens")), (pool, record.get("kv_tokens"))):
            if value:
                found[name] = min(value, found.get(name, value))
    merged = dict(pool, **final)
    return {name: merged[name] for name in sorted(merged, key=lambda name: int(name[2:]))}


def seats(startup, look, info):
    """All seats of the unit on this host, in the order of the boards.

    :arg startup: start-up record. :arg look: of ``_witness_look.look``. :arg info: of ``/server_info``, or None.
    """
    free = _journal_mib(startup)
    first_mib = _server_info_mib(info)
    device = device_of(look, info)
    if device in SHARED_DEVICES:
        names = sorted(free, key=order_of) or ["TP0"]
        return [
            Seat(
                board="cpu" if len(names) == 1 else f"cpu {name}",
                rank=name,
                journal_mib=free.get(name),
                server_info_mib=first_mib if number == 0 else None,
                meminfo_mib=look.get("machine_free_mib"),
            )
            for number, name in enumerate(names)
        ]
    return _board_seats(free, first_mib, look, info)


def _journal_mib(startup):
    """``{rank: MiB or None}`` of every rank that spoke in the journal."""
    return {
        record["rank"]: _mib(record.get("headroom_gib"))
        for record in startup.get("ranks") or ()
        if record.get("rank") is not None
    }


def _server_info_mib(info):
    """MiB of the first rank; None when several DP ranks tell theirs, because the list is in the order of arrival."""
    rows = (info or {}).get("dp_ranks") or ()
    return _mib(rows[0].get("headroom_gib")) if len(rows) == 1 else None


def _mib(gib):
    return None if gib is None else int(round(gib * MIB_PER_GIB))


# ---------------------------------------------------------------------------------------------------------------
# Boards and ranks


def _board_seats(free, first_mib, look, info):
    names = sorted(free, key=order_of)
    boards = used_boards(look, len(names) or local_ranks(info), info)
    by_board = _ranks_of(boards, names)
    first = names[0] if names else None
    found = []
    for board in boards:
        rank = by_board.get(board["board"])
        own = board["free_mib"] if not board.get("shared") else None
        found.append(
            Seat(
                board=board["board"],
                rank=rank,
                name=board.get("name"),
                nvidia_smi_mib=own,
                journal_mib=free.get(rank),
                server_info_mib=first_mib if rank is not None and rank == first else None,
                meminfo_mib=board["free_mib"] if board.get("shared") else None,
                foreign_mib=_foreign_mib(board),
                problem=board.get("problem"),
            )
        )
    seated = set(by_board.values())
    # A rank whose board nobody knows still has to be proven.
    for name in names:
        if name not in seated:
            found.append(
                Seat(
                    board=name,
                    rank=name,
                    journal_mib=free[name],
                    server_info_mib=first_mib if name == first else None,
                )
            )
    expected = local_ranks(info)
    for number in range(len(found), expected or 0):
        found.append(Seat(board=f"rank {number} of {expected}"))
    return found


def _foreign_mib(board):
    return sum(one.get("memory_mib") or 0 for one in board.get("processes") or () if one.get("ours") is False)


def local_ranks(info):
    """How many ranks run on this host by the arguments in ``/server_info``, or None."""
    layout = (info or {}).get("layout") or {}
    if not layout.get("tp_size"):
        return None
    ranks = layout["tp_size"] * (layout.get("pp_size") or 1)
    if not layout.get("dp_attention"):
        ranks *= layout.get("dp_size") or 1
    return max(ranks // (layout.get("nnodes") or 1), 1)


def used_boards(look, count, info):
    """The boards of the unit: those that its processes use, else those that the engine counts off."""
    boards = list(look.get("boards") or ())
    used = [board for board in boards if any(one.get("ours") for one in board.get("processes") or ())]
    if used:
        titled = [board for board in used if any(one.get("rank") is not None for one in board["processes"])]
        return titled or used
    if not boards:
        return []
    layout = (info or {}).get("layout") or {}
    first, step = layout.get("base_gpu_id") or 0, layout.get("gpu_id_step") or 1
    if count is None:
        return boards[first::step]
    return boards[first::step][:count]


def _ranks_of(boards, names):
    """``{board: rank}``: by the titles of the processes; by order where they tell nothing."""
    found, largest = {}, {}
    for board in boards:
        for one in board.get("processes") or ():
            rank = one.get("rank")
            if rank is None or not one.get("ours"):
                continue
            # A scheduler of one rank has no number in its title; the journal's reader calls it TP0.
            rank = rank or (names[0] if len(names) == 1 else "TP0")
            held = one.get("memory_mib") or 0
            # A rank may have a small context on another board: where it holds most is its own.
            if rank not in largest or held > largest[rank][0]:
                largest[rank] = (held, board["board"])
    for rank, (_held, board) in largest.items():
        found[board] = rank
    if found and (not names or set(largest) <= set(names)):
        return found
    # No titles, or titles that name less than the lines do.
    return dict(zip([board["board"] for board in boards], names)) if len(names) == len(boards) else found
