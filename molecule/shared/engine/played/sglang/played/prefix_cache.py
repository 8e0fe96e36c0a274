# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prefix cache of a DP group: which prompts are still in the pool, and which go first when room is needed."""

from __future__ import annotations

from array import array
from collections import OrderedDict


def common(left, right) -> int:
    """How many tokens at the beginning are the same. Halves are compared whole, so that long prompts cost little."""
    most = min(len(left), len(right))
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class PrefixCache:
    """Prompts that have ended, oldest first. A prompt counts without what it shares with the one it came after."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self._kept: OrderedDict[int, tuple[array, int]] = OrderedDict()  # number -> ids, tokens of its own
        self._number = 0
        self.tokens = 0

    def match(self, ids: array) -> int:
        """Tokens of the longest common prefix; the match becomes the youngest."""
        best, place = 0, None
        for number, (kept, _own) in self._kept.items():
            if kept[:1] == ids[:1]:
                same = common(kept, ids)
                if same > best:
                    best, place = same, number
        if place is not None:
            self._kept.move_to_end(place)
        return min(best, max(len(ids) - 1, 0))

    def add(self, ids: array, own_tokens: int) -> None:
        if self.enabled and own_tokens > 0:
            self._number += 1
            self._kept[self._number] = (ids, own_tokens)
            self.tokens += own_tokens

    def evict(self, tokens: int) -> None:
        """Give back at least so many tokens, oldest prompts first."""
        while tokens > 0 and self._kept:
            _number, (_ids, own) = self._kept.popitem(last=False)
            self.tokens -= own
            tokens -= own

    def flush(self) -> None:
        self._kept.clear()
        self.tokens = 0
