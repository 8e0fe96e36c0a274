# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what deaths and start-ups taught about the reserve, also under other settings of the levers. Private.

The cause of a death decides by its figures what it teaches: which part of the reserve was too low, whether another
allocator would have had the room, and which lever is moved first.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_reserve as reserve
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables

# Phases of a start before any request: what requests take comes on top of what such a death needed.
BEFORE_REQUESTS = ("process", "init", "weights", "pool", "graphs")
GRAPH_KIND = "oom_graph_capture"
# The origin of what another host of the play remembers.
KIN = "play"


def counts(death):
    """Return whether a death says how much has to be left outside weights and pool."""
    return death.get("reserve_needed_gib") is not None and death.get("direction") in (None, "lower")


def graphs_died(inp):
    """Return whether the newest death was one of the graphs: then their batch is the lever, and not the chunk."""
    lower = [one for one in inp.deaths if counts(one)]
    return bool(lower) and lower[-1].get("kind") == GRAPH_KIND


def _mib(death, name):
    return float((death.get("figures") or {}).get(name) or 0.0)


def regained_gib(death):
    """Return what a death with fragmentation would have needed less with expandable segments.

    It was reserved and of no use: of that, a part comes back, and what was wanted is then no longer missing.
    """
    figures = death.get("figures") or death
    lost = float(figures.get("reserved_unallocated_gib") or 0.0)
    wanted = death.get("wanted_gib") or _mib(death, "wanted_mib") / tables.MIB_PER_GIB
    if lost < tables.FRAGMENTED_FROM_GIB or lost < wanted:
        return 0.0
    return lost * (1 - tables.FRAGMENTED_STAYS_SHARE)


def needed_gib(death, rows):
    """Return the reserve with which this death does not come again and the floor under load is kept.

    A reserve that a person states is taken as it is. One that a start told was needed at the moment of the death: what
    comes after it, and the floor, are on top.
    """
    needed = float(death["reserve_needed_gib"])
    phase = death.get("phase")
    if phase is None:
        return needed
    later = reserve.load_gib(rows) if phase in BEFORE_REQUESTS else 0.0
    return needed + later + reserve.least_free_floor_gib(rows)


def other_chunk(death, candidate):
    """Return whether kin died with another chunk than this candidate has: boards differ in what the engine chooses.

    The default of an argument is not in the keys. A death of this host counts in any case: its boards are the same.
    """
    chunk = death.get("chunked_prefill_size")
    return death.get("origin") == KIN and chunk not in (None, candidate.chunk_tokens)


def lessons(inp, candidate, built):
    """Return (floor, extra) in GiB: the least that this candidate needs, and what it needs beyond its rows.

    A death of the same keys counts as it is. One that happened under another candidate counts here by as much as that
    one's rows were too low, and so does a start-up under another candidate. One without keys, or when the caller gives
    the keys, counts everywhere.

    C(built): [(Candidate, its keys without the allocator that the plan adds)].
    """
    floor = extra = 0.0
    for death in inp.deaths:
        if not counts(death):
            continue
        everywhere = inp.keys or not (death.get("keys") or {}).get("activation")
        for other, plain_keys in built:
            same = known.teaches(death, "activation", other.keys)
            # The allocator that a death brings in is not in the keys of that death.
            if not (same or known.teaches(death, "activation", plain_keys)) or other_chunk(death, other):
                continue
            learned = needed_gib(death, other.rows) - (0.0 if same else regained_gib(death))
            if everywhere or other is candidate:
                floor = max(floor, learned)
            else:
                extra = max(extra, learned - other.needed_gib)
    if candidate.table_gib is None:  # it was not measured itself
        for other, dummy in built:
            if other.table_gib is not None:
                extra = max(extra, other.needed_gib - other.table_gib)
    return floor, extra
