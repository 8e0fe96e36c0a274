# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""_budget_conflicts: what a plan on a host says of settings that bite each other, by the boards of that host."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import PlanInput

ON = "expandable_segments:True"
FRAGMENTED = {"figures": {"wanted_mib": 1600.0, "reserved_unallocated_gib": 4.9}, "reserve_needed_gib": 3.0}


def boards(count, nvlink, peers):
    others = [[other for other in range(count) if other != own] for own in range(count)]
    return tuple(
        {
            "index": own,
            "name": "NVIDIA H100 80GB HBM3",
            "memory_total_mib": 81559,
            "memory_free_mib": 81050,
            "nvlinks": others[own] if nvlink else [],
            "peers": others[own] if peers else [],
        }
        for own in range(count)
    )


BRIDGED, APART, CLOSED = boards(2, True, True), boards(2, False, True), boards(2, False, False)


def planned(gpus, arguments=None, **more):
    known = {
        "free_before_load_gib": 78.0,
        "free_after_load_gib": 60.0,
        "cell_bytes": 65536,
        "target_tokens": 200000,
        "engine_version": "0.5.23",
        "geometry": {"multimodal": False},
    }
    return plan(PlanInput(gpus=gpus, arguments=dict({"tp-size": 2}, **(arguments or {})), **{**known, **more}))


def test_two_boards_without_nvlink_are_refused_by_what_was_stated():
    result = planned(APART, allocator_conf=ON)
    assert result.feasible is False
    assert "(sglang_server_allocator_conf) with custom all-reduce of two boards" in result.refusal
    assert "set disable-custom-all-reduce" in result.refusal
    result = planned(APART, environment={"PYTORCH_ALLOC_CONF": ON})
    assert "(PYTORCH_ALLOC_CONF in sglang_server_environment) with custom all-reduce" in result.refusal


@pytest.mark.parametrize(
    ("gpus", "arguments"), [(BRIDGED, {}), (CLOSED, {}), (APART, {"disable-custom-all-reduce": True})]
)
def test_what_works_is_not_refused(gpus, arguments):
    result = planned(gpus, arguments, allocator_conf=ON)
    assert (result.refusal, result.feasible) == (None, True)


def test_what_has_to_prove_itself_is_a_line():
    notes = planned(BRIDGED, allocator_conf=ON).notes
    (line,) = [note for note in notes if "custom all-reduce over NVLink" in note]
    assert line.endswith("kept only when start-up and soak prove it")
    assert not [note for note in planned(BRIDGED).notes if "xpandable" in note]


def test_a_refused_one_may_be_tried():
    result = planned(APART, allocator_conf=ON, allow_unproven_plan=True)
    assert (result.refusal, result.feasible) == (None, True)
    assert any(note.endswith("tried all the same for sglang_server_allow_unproven_plan") for note in result.notes)


@pytest.mark.parametrize(("gpus", "chosen"), [(BRIDGED, ON), (CLOSED, ON), (APART, "")])
def test_the_plan_chooses_them_after_fragmentation_where_the_boards_allow_it(gpus, chosen):
    result = planned(gpus, deaths=(FRAGMENTED,))
    assert result.decided["allocator_conf"] == chosen
    assert result.refusal is None


def test_a_cpu_has_no_such_allocator():
    cpu = ({"index": 0, "name": "cpu", "memory_total_mib": 64000, "memory_free_mib": 60000},)
    result = planned(cpu, {"tp-size": 1, "enable-memory-saver": True}, allocator_conf=ON, device="cpu")
    assert "torch_memory_saver" not in str(result.refusal)
