# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the witnesses of a ready server. What nvidia-smi, the journal and ``/server_info`` say, and what that proves.

Private to the gpufleet.sglang collection; may change at any time. Pure: no clock, no commands.

What the floor of the headroom is compared with, board by board (this is the one place that decides it):

- A board with memory of its own: with what nvidia-smi shows as free when the server is ready. Only nvidia-smi sees
  every board and every process. What torch took since the journal's line, for the warm-up and the completion, stays in
  its cache and counts as used there, although the load gets it from that cache: so what the journal shows more is added
  again, up to ``CACHED_MIB`` and less what foreign processes hold; nothing is, when the difference is unexplained.
- nvidia-smi that was asked later than ``FRESH_SECONDS`` after the ready line: the load since then lies in torch's
  cache, so it shows less than was free at ready. It can prove the floor, but not break it; the journal of the start
  decides where it tells the board.
- Memory that the whole machine shares (a server on the CPU, an integrated GPU): with the journal, because
  ``/proc/meminfo`` moves with whatever else runs.
- Where nvidia-smi does not tell a board: with the journal's line of its rank, else with ``/server_info``, which knows
  the first rank only.
- Where nobody tells a board of the unit, the floor is not proven.

*Free* is the same quantity in all of them (cudaMemGetInfo and NVML both leave out what the driver keeps for itself);
*total* is not (nvidia-smi shows 97,887 MiB of a board on which torch sees 94.97 GiB) and is never compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _witness_seats
from ansible_collections.gpufleet.sglang.plugins.module_utils._witness_seats import MIB_PER_GIB, in_words

NVIDIA_SMI, JOURNAL, SERVER_INFO, MEMINFO = "nvidia-smi", "journal", "server_info", "meminfo"

# Asked so long after the ready line, only the warm-up and one completion have run.
FRESH_SECONDS = 60.0

# A process that is not of the unit is named from here on: a bare CUDA context takes 250 MiB and more, a display server
# or a monitor less than this.
FOREIGN_MIB = 100


@dataclass(frozen=True)
class Allowance:
    """By how much ``first`` may show less or more than ``second`` on one board, in MiB, and why."""

    first: str
    second: str
    less_mib: int
    more_mib: int
    reason: str
    source: str


# What torch may have cached since the journal's line, see CACHED.
CACHED_MIB = 256

ALLOWANCES = (
    Allowance(NVIDIA_SMI, JOURNAL, 6, 6, "GiB with two decimals and whole MiB", "half of 0.01 GiB is 5.1 MiB"),
    Allowance(
        NVIDIA_SMI,
        JOURNAL,
        64,
        64,
        "what the driver keeps for itself is no fixed number",
        "an idle 97,887 MiB board: 97,200 MiB free by nvidia-smi, 94.97 GiB (97,249 MiB) seen by torch",
    ),
    Allowance(
        NVIDIA_SMI,
        JOURNAL,
        CACHED_MIB,
        0,
        "blocks that torch took for the warm-up and the completion, and keeps",
        "assumed; prompts of some ten tokens",
    ),
    Allowance(
        NVIDIA_SMI,
        JOURNAL,
        512,
        0,
        "kernels and communicators that are loaded at the first request",
        "assumed; CUDA_MODULE_LOADING is LAZY since CUDA 12.2, NCCL connects on first use",
    ),
    Allowance(
        NVIDIA_SMI,
        JOURNAL,
        0,
        1024,
        "cached blocks count as used in the journal's line and may have been given back since",
        "SGLang 0.5.23: srt/managers/scheduler.py, empty_cache=False; the size is assumed",
    ),
    Allowance(
        SERVER_INFO,
        JOURNAL,
        11,
        11,
        "one figure printed twice, with two and with three decimals",
        "SGLang 0.5.17-0.5.23: startup_available is the figure of the journal's line",
    ),
    Allowance(
        MEMINFO,
        JOURNAL,
        2048,
        2048,
        "the machine's memory moves with every other process, the page cache and the server's own first request",
        "assumed",
    ),
)


def allowed_mib(first, second):
    """(less, more): by how much ``first`` may show less or more than ``second``."""
    rows = [row for row in ALLOWANCES if (row.first, row.second) == (first, second)]
    return sum(row.less_mib for row in rows), sum(row.more_mib for row in rows)


def headroom(startup, look, info, info_error=None):
    """What three witnesses say of the memory that is free when a server is ready.

    :arg startup: start-up record of the journal as a dictionary (``ranks``, ``ready_at``).
    :arg look: what ``_witness_look.look`` returned, or None when it did not come back.
    :arg info: what ``_http.startup_of_server_info`` made of ``/server_info``, or None. :arg info_error: why not.
    :returns: dictionary with ``device`` (cuda, cpu, ...), ``boards`` (``{board: {rank, name, nvidia_smi_free_mib,
        journal_free_mib, server_info_free_mib, meminfo_free_mib, free_mib, witness}}``: ``free_mib`` is what the floor
        is compared with, None when nobody tells it), ``tightest`` (a board or None), ``free_gib`` (of it), ``fresh``
        (nvidia-smi was asked at ready), ``missing`` and ``disagreements`` (sentences).
    """
    look = look or {"error": "nvidia-smi did not come back in time", "has_boards": True}
    at, ready_at = look.get("at"), startup.get("ready_at")
    # Both ways: a clock that was set back meanwhile tells nothing.
    fresh = at is not None and ready_at is not None and abs(at - ready_at) <= FRESH_SECONDS
    device = _witness_seats.device_of(look, info)
    seats = _witness_seats.seats(startup, look, info)
    boards = {seat.board: _row(seat, fresh) for seat in seats}
    told = {board: row["free_mib"] for board, row in boards.items() if row["free_mib"] is not None}
    tightest = min(told, key=told.get) if told else None
    return {
        "device": device,
        "boards": boards,
        "tightest": tightest,
        "free_gib": None if tightest is None else round(told[tightest] / MIB_PER_GIB, 3),
        "fresh": fresh,
        "missing": _missing(seats, {} if device in _witness_seats.SHARED_DEVICES else look, info_error, fresh),
        "disagreements": [text for seat in seats for text in _seat_disagreements(seat, fresh)],
    }


def _row(seat, fresh):
    free_mib, witness = _judged(seat, fresh)
    return {
        "rank": seat.rank,
        "name": seat.name,
        "nvidia_smi_free_mib": seat.nvidia_smi_mib,
        "journal_free_mib": seat.journal_mib,
        "server_info_free_mib": seat.server_info_mib,
        "meminfo_free_mib": seat.meminfo_mib,
        "free_mib": free_mib,
        "witness": witness,
    }


def _judged(seat, fresh):
    """(MiB, witness) that the floor is compared with: the rules of this module's docstring."""
    engine_mib, engine = _engine_figure(seat)
    shown = seat.nvidia_smi_mib
    if shown is not None and fresh:
        return shown + _cached_mib(seat, engine_mib), NVIDIA_SMI
    if engine_mib is not None:
        return engine_mib, engine
    if shown is not None:
        return shown, NVIDIA_SMI
    return (seat.meminfo_mib, MEMINFO) if seat.meminfo_mib is not None else (None, None)


def _engine_figure(seat):
    """(MiB, witness) of what the engine itself said: each rank in the journal, the first one in ``/server_info``."""
    if seat.journal_mib is not None:
        return seat.journal_mib, JOURNAL
    return seat.server_info_mib, SERVER_INFO if seat.server_info_mib is not None else None


def _cached_mib(seat, engine_mib):
    """What torch holds in its cache since the journal's line, so that the load gets it all the same."""
    if engine_mib is None:
        return 0
    gone = engine_mib - seat.nvidia_smi_mib - seat.foreign_mib
    if gone > allowed_mib(NVIDIA_SMI, JOURNAL)[0]:
        # Something took memory that nobody can name: nothing is counted in its favour.
        return 0
    return min(max(gone, 0), CACHED_MIB)


# ---------------------------------------------------------------------------------------------------------------
# What they say of each other


def _seat_disagreements(seat, fresh):
    found = []
    engine_mib, engine = _engine_figure(seat)
    if fresh and engine_mib is not None:
        for name, shown in ((NVIDIA_SMI, seat.nvidia_smi_mib), (MEMINFO, seat.meminfo_mib)):
            if shown is not None:
                found.append(_disagreement(seat, (name, shown), (engine, engine_mib), JOURNAL, seat.foreign_mib))
    if seat.journal_mib is not None and seat.server_info_mib is not None:
        pair = (SERVER_INFO, seat.server_info_mib), (JOURNAL, seat.journal_mib)
        found.append(_disagreement(seat, pair[0], pair[1], JOURNAL, 0))
    return [text for text in found if text]


def _disagreement(seat, first, second, row_of_second, foreign_mib):
    """One sentence when two figures differ by more than is explained, else None."""
    less, more = allowed_mib(first[0], row_of_second)
    less += foreign_mib
    difference = first[1] - second[1]
    if -less <= difference <= more:
        return None
    explained = less if difference < 0 else more
    return (
        f"{in_words(seat)}: {first[0]} shows {first[1]:,} MiB free and {second[0]} {second[1]:,} MiB, which is"
        f" {abs(difference) - explained:,} MiB more than is explained"
        + (
            ": another process, or memory that the engine does not count, takes it."
            if difference < 0
            else ": memory was given back after the journal's line, or the figures are of different boards."
        )
    )


def _missing(seats, look, info_error, fresh):
    """One sentence for each witness that is missing where it was to be expected."""
    found = []
    if look.get("error"):
        found.append(str(look["error"]).rstrip(".") + ".")
    elif look.get("boards") and not fresh:
        found.append(
            f"nvidia-smi was asked more than {FRESH_SECONDS:.0f} s after the ready line, or that line is lost: it shows"
            " what is free now, not what was free at ready."
        )
    for seat in seats:
        if seat.problem:
            found.append(seat.problem)
    silent = [in_words(seat) for seat in seats if seat.journal_mib is None]
    if silent:
        found.append("The journal of this start does not tell what was free for {}.".format(", ".join(silent)))
    if info_error:
        found.append("/server_info: " + str(info_error).strip().rstrip(".") + ".")
    return found


def notices(look):
    """Sentences about processes that are not of the unit and hold memory of its boards."""
    found = []
    for board in (look or {}).get("boards") or ():
        if not board.get("used"):
            continue
        for one in board.get("processes") or ():
            held = one.get("memory_mib")
            if one.get("ours") is not False or (held is not None and held < FOREIGN_MIB):
                continue
            amount = "memory that the driver does not tell" if held is None else f"{held:,} MiB"
            found.append(
                "GPU {}: process {} ({}) is not of this unit and holds {}, which is missing in the headroom: stop it,"
                " or give the server other boards.".format(
                    board["board"], one["pid"], str(one.get("name") or "unnamed").strip()[:120], amount
                )
            )
    return found


# ---------------------------------------------------------------------------------------------------------------
# The floor


def floor_verdict(answer, min_headroom_gib):
    """``(holds | unsafe | failed, sentence)``: whether the answer of :func:`headroom` proves the floor in GiB."""
    boards = answer["boards"]
    later = {board for board, row in boards.items() if row["witness"] == NVIDIA_SMI and not answer["fresh"]}
    low = {
        board: row["free_mib"]
        for board, row in boards.items()
        if row["free_mib"] is not None and row["free_mib"] < min_headroom_gib * MIB_PER_GIB
    }
    under = [board for board in low if board not in later]
    if under:
        board = min(under, key=low.get)
        return "unsafe", "The headroom at ready is {:.2f} GiB on {} by {}, under the floor of {:.2f} GiB.".format(
            low[board] / MIB_PER_GIB, named(board, boards[board]), boards[board]["witness"], min_headroom_gib
        )
    unknown = [board for board, row in boards.items() if row["free_mib"] is None or board in low]
    if unknown or not boards:
        where = ", ".join(named(board, boards[board]) for board in unknown) or "any board"
        return "failed", (
            f"No witness proves the floor of {min_headroom_gib:.2f} GiB for {where}: "
            + (" ".join(answer["missing"]) or "none of them was heard.")
        )
    return "holds", "The headroom at ready is {:.2f} GiB on {}.".format(
        answer["free_gib"], named(answer["tightest"], boards[answer["tightest"]])
    )


def named(board, row):
    """A board for people, by a row of :func:`headroom`: ``GPU 3 (TP3)``."""
    rank = row["rank"] if row["rank"] != board else None
    return (f"GPU {board}" if board.isdigit() else board) + (f" ({rank})" if rank else "")


NO_EVIDENCE_ADVICE = (
    "Make nvidia-smi answer on the host, set LogRateLimitIntervalSec=1us in the unit so that no line of the start is"
    " lost and start it again, or set api_key so that /server_info answers; the server is left running."
)


# ---------------------------------------------------------------------------------------------------------------
# The pool of each DP rank


def pools(startup, info):
    """The pool of each DP rank: by the journal, and by ``/server_info`` in the order of its list.

    :returns: ``{"dp_size", "per_dp_rank": {"DP0": tokens}, "server_info": [tokens], "least_tokens", "least",
        "total_tokens", "untold", "disagreements"}``. ``total_tokens`` is None while a DP rank is not told; ``untold``
        names those of this host that the journal keeps silent about and ``/server_info`` cannot stand in for.
    """
    told = _witness_seats.tokens_by_dp_rank(startup)
    listed = sorted(row["pool_tokens"] for row in (info or {}).get("dp_ranks") or () if row.get("pool_tokens"))
    layout = (info or {}).get("layout") or {}
    size = layout.get("dp_size") or max(len(told), len(listed), 1)
    complete = sorted(told.values()) if len(told) >= size else listed if len(listed) >= size else None
    known = sorted(told.values()) + listed
    least = known and min(known)
    return {
        "dp_size": size,
        "per_dp_rank": told,
        "server_info": listed,
        "least_tokens": least or None,
        "least": next((name for name, tokens in told.items() if tokens == least), None),
        "total_tokens": sum(complete) if complete else None,
        "untold": [] if complete or (layout.get("nnodes") or 1) > 1 else _untold(told, size),
        "disagreements": _pool_disagreements(told, listed),
    }


def with_least_pool(startup, found):
    """The record with the smallest pool that :func:`pools` found: each DP rank has to hold the promise."""
    pool, least = startup.get("pool_tokens"), found["least_tokens"]
    if pool is None or least is None or least >= pool or found["dp_size"] < 2:
        return startup
    return dict(startup, pool_tokens=least)


def _untold(told, size):
    return [f"DP{number}" for number in range(size) if f"DP{number}" not in told]


def _pool_disagreements(told, listed):
    if not told or not listed or min(told.values()) == listed[0]:
        return []
    least = min(told, key=told.get)
    return [
        f"The journal tells a pool of {told[least]:,} tokens ({least}) and /server_info of {listed[0]:,}: the smaller"
        " one counts."
    ]
