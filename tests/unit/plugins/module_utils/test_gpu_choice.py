# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boards that a server uses: what CUDA shows it, whether they are healthy, whether the engine takes them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import plan_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu import GpuError
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_choice import (
    balance_of,
    guard_is_on,
    order_warning,
    visible,
)


def board(index, free_mib, total_mib=81559, name="NVIDIA H100 80GB HBM3", **more):
    return {
        "index": index,
        "uuid": f"GPU-0000000{index}-1111-2222-3333-444444444444",
        "name": name,
        "memory_total_mib": total_mib,
        "memory_free_mib": free_mib,
        "healthy": True,
        "processes": [],
        **more,
    }


EVEN = [board(0, 81050), board(1, 81000), board(2, 80900), board(3, 80800)]
SMALL, LARGE = board(0, 32100, 32607, "RTX 5090"), board(1, 97200, 97887, "RTX PRO 6000")


def planned(gpus, environment=None, tp=2, version="0.5.23", **more):
    arguments = {"tp-size": tp}
    return plan_of(
        {"gpus": gpus, "environment": environment or {}, "arguments": arguments, "engine_version": version, **more}
    )


# --- CUDA_VISIBLE_DEVICES ---------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "indexes"),
    [
        ("0,1", [0, 1]),
        ("3, 1", [3, 1]),
        (2, [2]),
        ("GPU-00000002-1111-2222-3333-444444444444,0", [2, 0]),
        ("GPU-00000001", [1]),
    ],
)
def test_boards_are_chosen_by_index_and_uuid_in_the_order_stated(stated, indexes):
    assert [one["index"] for one in visible(EVEN, {"CUDA_VISIBLE_DEVICES": stated})] == indexes


def test_all_boards_without_a_choice_and_none_for_an_instance_that_is_not_listed():
    assert visible(EVEN, {}) == tuple(EVEN)
    assert visible(EVEN, {"CUDA_VISIBLE_DEVICES": "MIG-aaaa"}) == ()


@pytest.mark.parametrize("stated", ["", "-1", "4", "0,,1", "GPU-9", "GPU-0000000", "all", "0;1", "²"])
def test_a_name_that_cuda_does_not_know_is_refused(stated):
    with pytest.raises(GpuError, match="CUDA_VISIBLE_DEVICES in sglang_server_environment to name GPUs of this host"):
        visible(EVEN, {"CUDA_VISIBLE_DEVICES": stated})


def test_a_board_named_twice_is_refused():
    with pytest.raises(GpuError, match="every GPU once"):
        visible(EVEN, {"CUDA_VISIBLE_DEVICES": "1,GPU-00000001"})


def test_the_plan_takes_the_boards_that_cuda_shows():
    gpus = [board(0, 20000), board(1, 81050), board(2, 80900), board(3, 60000)]
    answer = planned(gpus, {"CUDA_VISIBLE_DEVICES": "2,1"})
    assert answer["plan_free_gib"] == pytest.approx(80900 / 1024, abs=0.001)
    # One rank takes the first board that is named.
    answer = planned(gpus, {"CUDA_VISIBLE_DEVICES": "1,3"}, tp=1)
    assert answer["plan_free_gib"] == pytest.approx(81050 / 1024, abs=0.001)


def test_fewer_boards_than_ranks_are_refused():
    answer = planned(EVEN, {"CUDA_VISIBLE_DEVICES": "1"})
    assert answer["failed"]
    assert "CUDA_VISIBLE_DEVICES in sglang_server_environment names 1 of 4 GPUs, too few for tp-size 2" in answer["msg"]


def test_an_unhealthy_board_is_refused_by_name_where_it_would_be_used():
    lost = dict(board(1, None), healthy=False, problem="GPU 1 (NVIDIA H100 80GB HBM3) answers no number.")
    gpus = [EVEN[0], lost, EVEN[2]]
    answer = planned(gpus)
    assert answer["failed"]
    assert "The server would use GPU 1 (NVIDIA H100 80GB HBM3), which is not healthy" in answer["msg"]
    assert not planned(gpus, {"CUDA_VISIBLE_DEVICES": "0,2"}).get("failed")
    assert not planned(gpus, tp=1).get("failed")


# --- balance ----------------------------------------------------------------


def test_boards_out_of_balance_are_refused_with_their_figures():
    busy = board(1, 55000, processes=[{"pid": 991, "name": "python3", "memory_mib": 26000}])
    answer = planned([EVEN[0], busy])
    assert answer["failed"]
    assert "GPU 1 (NVIDIA H100 80GB HBM3) has 55,000 MiB free and GPU 0 (NVIDIA H100 80GB HBM3) 81,050 MiB" in (
        answer["msg"]
    )
    assert "python3 991 with 26000 MiB" in answer["msg"]
    assert not planned([EVEN[0], busy], tp=1).get("failed")
    assert not planned([EVEN[0], board(1, 74000)]).get("failed")  # 0.913


@pytest.mark.parametrize(
    ("version", "name", "value"),
    [
        ("0.5.23", "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "0"),
        ("0.5.10", "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", False),
        ("0.5.9", "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", "1"),
        ("0.4.6", "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", "true"),
    ],
)
def test_with_the_check_off_the_plan_warns(version, name, value):
    answer = planned([EVEN[0], board(1, 55000)], {name: value}, version=version)
    assert not answer.get("failed")
    assert len(answer["warnings"]) == 1
    assert "has 55,000 MiB free" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("version", "environment"),
    [
        ("0.5.23", {"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"}),
        ("0.5.9", {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}),
        ("0.4.5", {"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"}),
        ("0.5.23", {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "true"}),
    ],
)
def test_a_switch_of_another_version_changes_nothing(version, environment):
    assert guard_is_on(environment, version)
    assert planned([EVEN[0], board(1, 55000)], environment, version=version)["failed"]


def test_a_plan_that_may_be_unproven_warns():
    answer = planned([EVEN[0], board(1, 55000)], allow_unproven_plan=True)
    assert "SGLang ends such a start" in answer["warnings"][0]


def test_replicas_are_compared_within_themselves():
    gpus = [board(0, 81050), board(1, 81050), board(2, 55000), board(3, 55000)]
    answer = plan_of({"gpus": gpus, "arguments": {"tp-size": 2, "dp-size": 2}, "engine_version": "0.5.23"})
    assert not answer.get("failed")
    assert planned(gpus, tp=4)["failed"]


def test_beside_the_own_server_balance_is_judged_only_where_all_of_it_is_known():
    gpus = [board(0, 5400, memory_own_mib=75120), board(1, 5400)]
    assert not planned(gpus, own_server_running=True).get("failed")


def test_unlike_boards_are_warned_and_the_smallest_counts():
    answer = planned([SMALL, LARGE], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert answer["plan_free_gib"] == pytest.approx(32100 / 1024, abs=0.001)
    (warning,) = answer["warnings"]
    assert "GPU 0 (RTX 5090) has 32,100 MiB free and GPU 1 (RTX PRO 6000) 97,200 MiB" in warning
    assert "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK is 0" in warning
    old = balance_of([SMALL, LARGE], [32100, 97200], 0, {}, "0.4.3")[1]
    assert "unless" not in old


def test_the_order_of_unlike_boards_is_warned():
    assert "CUDA_DEVICE_ORDER to PCI_BUS_ID" in planned([SMALL, LARGE], tp=1)["warnings"][0]
    assert order_warning([SMALL, LARGE], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) is None
    assert order_warning([SMALL, LARGE], {"CUDA_VISIBLE_DEVICES": "GPU-00000001"}) is None
    assert order_warning([SMALL, LARGE], {"CUDA_VISIBLE_DEVICES": "1,0"}) is not None
    assert order_warning(EVEN, {}) is None
    assert "warnings" not in planned(EVEN)
