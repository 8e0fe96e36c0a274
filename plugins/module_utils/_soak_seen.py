# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, what was seen beside it. The least free memory, slow growth, and what /health said.

Private to the gpufleet.sglang collection; may change at any time.

Pure: no clock, no network.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Samples:
    """The least free memory per board, kept while the samples come in: constant in size."""

    least_free_gib: dict[str, float] = field(default_factory=dict)
    least_at: dict[str, float] = field(default_factory=dict)
    count: int = 0
    last_at: float = 0.0
    longest_gap_seconds: float = 0.0

    def add(self, at, free_gib):
        """:arg at: seconds since the soak began. :arg free_gib: ``{board: GiB}`` of one sample, empty for none."""
        self.longest_gap_seconds = max(self.longest_gap_seconds, at - self.last_at)
        self.last_at = at if free_gib else self.last_at
        for board, gib in free_gib.items():
            if board not in self.least_free_gib or gib < self.least_free_gib[board]:
                self.least_free_gib[board] = gib
                self.least_at[board] = at
        self.count += 1 if free_gib else 0

    def tightest(self):
        """``(board, GiB, seconds since the soak began)`` of the least free, or None without a sample."""
        if not self.least_free_gib:
            return None
        board = min(self.least_free_gib, key=lambda name: (self.least_free_gib[name], name))
        return board, self.least_free_gib[board], self.least_at[board]


@dataclass
class Health:
    """What ``/health`` said under load: how often it was asked, how often it did not answer 200, the longest answer.

    It says nothing about the verdict. A load balancer that asks it would take the server out.
    """

    asked: int = 0
    refused: int = 0
    longest_seconds: float = 0.0

    def add(self, good, seconds):
        self.asked += 1
        self.refused += 0 if good else 1
        self.longest_seconds = max(self.longest_seconds, round(seconds, 2))

    def sentence(self):
        """What there is to be done about it, or an empty text."""
        if not self.refused:
            return ""
        return (
            f" Of {self.asked} looks at /health {self.refused} got no 200 (the longest took"
            f" {self.longest_seconds:.0f} s): what asks it would take the server out, so raise"
            " SGLANG_HEALTH_CHECK_TIMEOUT in sglang_server_environment."
        )


@dataclass(frozen=True)
class Growth:
    """Memory that a request keeps for ever. ``lasts_requests``: until the least free of this board is used up."""

    board: str
    mib_per_request: float
    lasts_requests: int

    def sentence(self, endurance_requests):
        return (
            f"Board {self.board} loses {self.mib_per_request:.2f} MiB with each request, so what is free under load "
            f"lasts for {self.lasts_requests} requests; endurance_requests is {endurance_requests}."
        )


# A loss that the clocks of a driver, or one block of the allocator, could make is none.
GROWTH_LEAST_MIB = 4.0


def growth_of(marks, samples, ranks=1):
    """Slow growth of the board that it ends first, or None.

    Equal short requests on a warm server take nothing for ever. A board that lost memory in the first half of them and
    about as much in the second loses it with each request.

    :arg marks: ``[(requests until then, {board: GiB free})]``. :arg samples: :class:`Samples` of the whole soak.
    """
    if len(marks) < 3:
        return None
    found = [_growth_of_board(board, marks, samples, ranks) for board in marks[0][1]]
    found = [growth for growth in found if growth]
    return min(found, key=lambda growth: growth.lasts_requests) if found else None


def _growth_of_board(board, marks, samples, ranks):
    known = [(count / float(ranks), free[board]) for count, free in marks if board in free]
    if len(known) < 3:
        return None
    middle = min(known, key=lambda mark: abs(mark[0] - (known[0][0] + known[-1][0]) / 2.0))
    first, second = (known[0][1] - middle[1]) * 1024.0, (middle[1] - known[-1][1]) * 1024.0
    lost = first + second
    if lost < GROWTH_LEAST_MIB or min(first, second) < 0.3 * lost:
        return None
    each = lost / (known[-1][0] - known[0][0])
    return Growth(board, each, int(samples.least_free_gib.get(board, known[-1][1]) * 1024.0 / each))
