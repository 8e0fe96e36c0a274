# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the allocator as a lever: when it is moved, and what forbids it. Private."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts


def allocator_of(inp):
    """Return the allocator configuration to set, or "" for none.

    auto: expandable segments after a death that shows fragmentation, where nothing is known to forbid them.
    """
    if inp.allocator_conf is not None:
        return inp.allocator_conf
    if conflicts.allocator_value(inp.environment) or inp.device == "cpu":
        return ""
    return conflicts.EXPANDABLE_SEGMENTS if fragmented_gib(inp) and not allocator_conflict(inp) else ""


def fragmented_gib(inp):
    """Return the largest "reserved but unallocated" of the deaths that would have been enough, or 0."""
    found = 0.0
    for death in inp.deaths:
        figures = death.get("figures") or death
        lost = figures.get("reserved_unallocated_gib") or 0.0
        wanted = death.get("wanted_gib") or (figures.get("wanted_mib") or 0.0) / tables.MIB_PER_GIB
        if lost >= tables.FRAGMENTED_FROM_GIB and lost >= wanted:
            found = max(found, float(lost))
    return found


def allocator_conflict(inp):
    """Return what forbids expandable segments here, or ""."""
    return conflicts.expandable_conflict(
        inp.arguments,
        inp.environment,
        inp.engine_version,
        gpus=known.local_gpus(inp),
        multimodal=known.is_multimodal(inp),
        torch_version=inp.torch_version,
    )
