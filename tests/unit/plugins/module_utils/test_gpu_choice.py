# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boards that a server uses: what CUDA shows it, whether they are healthy, whether the engine takes them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import plan_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_choice import (
    balance_of,
    guard_is_on,
    order_warning,
    visible,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import GpuError


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


def refusal_of(answer):
    """The refusal of a plan: what is wrong with boards is a result of the task and no failure."""
    assert not answer.get("failed"), answer.get("msg")
    assert answer["feasible"] is False
    assert answer["refusal"]
    return answer["refusal"]


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
    text = "CUDA_VISIBLE_DEVICES in sglang_server_environment names 1 of 4 GPUs, too few for tp-size 2"
    assert text in refusal_of(answer)
    assert answer["missing"] == ["weight_bytes", "geometry", "target_tokens"]  # gpus are given, and not enough
    assert answer["explanation"].startswith(answer["refusal"])
    assert "found 4 in gpus" in refusal_of(planned(EVEN, tp=8))
    assert "found '7'" in refusal_of(planned(EVEN, {"CUDA_VISIBLE_DEVICES": "7"}))
    # Nothing that may be unproven helps where there is no board.
    assert planned(EVEN, tp=8, allow_unproven_plan=True)["refusal"]


def test_an_unhealthy_board_is_refused_by_name_where_it_would_be_used():
    lost = dict(board(1, None), healthy=False, problem="GPU 1 (NVIDIA H100 80GB HBM3) answers no number.")
    gpus = [EVEN[0], lost, EVEN[2]]
    text = "The server would use GPU 1 (NVIDIA H100 80GB HBM3), which is not healthy"
    assert text in refusal_of(planned(gpus))
    assert planned(gpus, {"CUDA_VISIBLE_DEVICES": "0,2"})["refusal"] is None
    assert planned(gpus, tp=1)["refusal"] is None


# --- balance ----------------------------------------------------------------


def test_boards_out_of_balance_are_refused_with_their_figures():
    busy = board(1, 55000, processes=[{"pid": 991, "name": "python3", "memory_mib": 26000}])
    answer = planned([EVEN[0], busy])
    text = "GPU 1 (NVIDIA H100 80GB HBM3) has 55,000 MiB free and GPU 0 (NVIDIA H100 80GB HBM3) 81,050 MiB"
    assert text in refusal_of(answer)
    assert "python3 991 with 26000 MiB" in answer["refusal"]
    assert answer["plan_free_gib"] == pytest.approx(55000 / 1024, abs=0.001)  # the figures are there all the same
    assert planned([EVEN[0], busy], tp=1)["refusal"] is None
    assert planned([EVEN[0], board(1, 74000)])["refusal"] is None  # 0.913


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
    assert answer["refusal"] is None
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
    assert "SGLang ends such a start" in refusal_of(planned([EVEN[0], board(1, 55000)], environment, version=version))


def test_a_plan_that_may_be_unproven_warns():
    answer = planned([EVEN[0], board(1, 55000)], allow_unproven_plan=True)
    assert "SGLang ends such a start" in answer["warnings"][0]


def test_replicas_are_compared_within_themselves():
    gpus = [board(0, 81050), board(1, 81050), board(2, 55000), board(3, 55000)]
    answer = plan_of({"gpus": gpus, "arguments": {"tp-size": 2, "dp-size": 2}, "engine_version": "0.5.23"})
    assert answer["refusal"] is None
    assert "SGLang ends such a start" in refusal_of(planned(gpus, tp=4))


def test_beside_the_own_server_balance_is_judged_only_where_all_of_it_is_known():
    gpus = [board(0, 5400, memory_own_mib=75120), board(1, 5400)]
    assert planned(gpus, own_server_running=True)["refusal"] is None


def test_unlike_boards_are_warned_and_the_smallest_counts():
    answer = planned([SMALL, LARGE])
    assert answer["plan_free_gib"] == pytest.approx(32100 / 1024, abs=0.001)
    (warning,) = answer["warnings"]
    assert "GPU 0 (RTX 5090) has 32,100 MiB free and GPU 1 (RTX PRO 6000) 97,200 MiB" in warning
    assert "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK is 0" in warning
    old = balance_of([SMALL, LARGE], [32100, 97200], 0, {}, "0.4.3")[1]
    assert "unless" not in old


FASTEST = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}


def test_the_order_of_unlike_boards_is_warned_where_the_order_of_the_unit_is_undone():
    (warning,) = planned([SMALL, LARGE], FASTEST, tp=1)["warnings"]
    assert "take CUDA_DEVICE_ORDER out of sglang_server_environment" in warning
    # Chosen by index, the unlike board is not among those shown any more.
    (warning,) = planned([SMALL, LARGE], dict(FASTEST, CUDA_VISIBLE_DEVICES="0"), tp=1)["warnings"]
    assert "FASTEST_FIRST" in warning
    assert "warnings" not in planned([SMALL, LARGE], tp=1)  # the unit says PCI_BUS_ID
    assert order_warning([SMALL, LARGE], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) is None
    assert order_warning([SMALL, LARGE], dict(FASTEST, CUDA_VISIBLE_DEVICES="GPU-00000001")) is None
    assert order_warning([SMALL, LARGE], dict(FASTEST, CUDA_VISIBLE_DEVICES="1,0")) is not None
    assert order_warning(EVEN, FASTEST) is None
    assert "warnings" not in planned(EVEN)


# --- other servers of the host ----------------------------------------------


def instance(gpus, name="main", tokens=100000, others=(), **more):
    """A plan of an 8B model on one board: 32 layers x 8 heads x 2 x 128 x 2 bytes = 131,072 bytes a token."""
    llama = {"attention": "mha", "layers": 32, "hidden_size": 4096, "attention_heads": 32, "kv_heads": 8}
    llama.update(head_dim=128, v_head_dim=128, intermediate_size=14336, dtype="bfloat16")
    arguments = {"tp-size": 1, "max-running-requests": 16, "chunked-prefill-size": 2048}
    return plan_of(
        {
            "gpus": gpus,
            "geometry": llama,
            "weight_bytes": 16060522496,
            "engine_version": "0.5.23",
            "arguments": arguments,
            "target_tokens": tokens,
            "max_context_tokens": 8192,
            "other_instances": list(others),
            **more,
        }
    )


def test_what_another_server_of_the_host_will_take_is_not_free():
    gpus = [board(0, 81050), board(1, 81050)]
    first = instance(gpus)
    (taken,) = first["boards"]
    # Weights 14.96 and 0.1, pool 12.2, the process itself 0.6, and what graphs and requests take.
    assert 28 < taken["gib"] == taken["more_gib"] < 32
    assert taken["uuid"] == gpus[0]["uuid"]
    others = [{"instance": "main", "boards": first["boards"]}]
    second = instance(gpus, others=others)
    assert second["plan_free_gib"] == pytest.approx(81050 / 1024 - taken["more_gib"], abs=0.001)
    (row,) = [one for one in second["rows"] if one["name"] == "instance main"]
    assert row["gib"] == pytest.approx(-taken["more_gib"], abs=0.001)
    elsewhere = instance(gpus, others=others, environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert elsewhere["plan_free_gib"] == pytest.approx(81050 / 1024, abs=0.001)


def test_on_a_cpu_the_memory_of_the_machine_is_one():
    gpus = [{"name": "cpu", "memory_total_mib": 64 * 1024, "memory_free_mib": 60 * 1024}]
    first = instance(gpus, tokens=20000)
    (taken,) = first["boards"]
    # Weights 14.96, pool 2.4, the processes 2.35, activations of a chunk 0.38
    assert taken["more_gib"] == pytest.approx(20.2, abs=0.5)
    second = instance(gpus, tokens=20000, others=[{"instance": "main", "boards": first["boards"]}])
    assert second["plan_free_gib"] == pytest.approx(60 - taken["more_gib"], abs=0.001)
    assert [row["gib"] for row in second["rows"] if row["name"] == "instance main"] == [-taken["more_gib"]]


def test_two_servers_that_exceed_the_board_together_are_refused():
    gpus = [board(0, 81050)]
    first, alone = instance(gpus, tokens=250000), instance(gpus, tokens=300000)
    assert first["feasible"] is alone["feasible"] is True
    second = instance(gpus, tokens=300000, others=[{"instance": "main", "boards": first["boards"]}])
    assert second["feasible"] is False
    gib = first["boards"][0]["more_gib"]
    assert f"the server main of this host will take {gib:.2f} GiB of the same memory" in second["refusal"]
    fits = second["tokens_that_fit"]
    assert fits < 300000
    assert instance(gpus, tokens=fits, others=[{"instance": "main", "boards": first["boards"]}])["feasible"] is True


def test_a_server_that_runs_takes_only_what_it_does_not_hold_yet():
    gpus = [board(0, 61050, processes=[{"pid": 7, "name": "sglang", "memory_mib": 20000}])]
    runs = {"own_server_running": True, "own_pids": [7]}
    (taken,) = instance(gpus, **runs)["boards"]
    assert taken["more_gib"] == pytest.approx(taken["gib"] - 20000 / 1024, abs=0.001)
    # Not known what it holds: it is a process among others then.
    (taken,) = instance(gpus, own_server_running=True)["boards"] or [{"more_gib": 0.0}]
    assert taken["more_gib"] == 0.0


def test_a_server_that_is_not_started_takes_nothing_more():
    gpus = [board(0, 81050)]
    (taken,) = instance(gpus, server={"active": False})["boards"]
    assert taken["more_gib"] == taken["gib"] > 28
    answer = instance(gpus, server={"active": False}, mem_fraction_static=0.3)
    assert answer["step"]["action"] == "refuse"
    assert [one["more_gib"] for one in answer["boards"]] == [0.0]


@pytest.mark.parametrize(
    "boards", ["all", [1], [{}], [{"more_gib": -1}], [{"more_gib": "x"}], [{"more_gib": float("nan")}]]
)
def test_other_instances_that_cannot_be_right_are_one_sentence(boards):
    answer = instance(EVEN, others=[{"instance": "main", "boards": boards}])
    assert answer["failed"]
    assert "entry 1 of other_instances" in answer["msg"]
