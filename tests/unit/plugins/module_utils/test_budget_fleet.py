# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_fleet as fleet
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import PlanInput, plan

MLA = {
    "architecture": "DeepseekV3ForCausalLM",
    "attention": "mla",
    "layers": 61,
    "hidden_size": 7168,
    "attention_heads": 64,
    "kv_heads": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "dtype": "bfloat16",
}
BOARDS = [{"name": "RTX PRO 6000"}] * 8


def row(host="gpu-1", action="try", serving=True, **changes):
    inputs = {
        "arguments": {"tp-size": 8},
        "geometry": MLA,
        "engine_version": "0.5.23",
        "free_before_load_gib": 94.97,
        "weights_gib": 75.0,
        "target_tokens": 200000,
    }
    inputs.update(changes)
    return {
        "host": host,
        "instance": "main",
        "gpus": BOARDS,
        "model": "Kimi-K2",
        "plan": dict(plan(PlanInput(**inputs)).as_dict(), step={"action": action}),
        "serving": serving,
    }


def test_a_host_is_one_line_with_a_bar():
    lines = fleet.lines([row()])
    assert lines[0].split()[:3] == ["host", "GPUs", "model"]
    assert "gpu-1" in lines[1]
    assert "8 of 8 RTX PRO 6000" in lines[1]
    assert "  200,000  200,000  " in lines[1]  # the cap, and a pool of which both ends of the band hold it
    assert lines[2].strip().startswith("|WWW")


def test_the_bar_is_as_long_as_it_says_and_shares_add_up():
    plan_of = row()["plan"]
    drawn = fleet.memory_bar(plan_of, columns=40).split("|")[1]
    assert len(drawn) == 40
    # weights are 75.00 of 94.97 GiB: 31.6 of 40 columns
    assert drawn.count("W") == 32
    assert sum(gib for dummy, gib in fleet.shares_of(plan_of)) == pytest.approx(94.97, abs=0.01)
    free = fleet.shares_of(plan_of)[-1][1]
    assert free == pytest.approx(plan_of["predicted_least_free_gib"], abs=0.01)


def test_a_host_that_cannot_keep_its_promise_says_why_and_what_would_help():
    lines = fleet.lines([row(), row("gpu-2", target_tokens=400000)])
    text = " ".join(" ".join(lines).split())
    assert "refused: 400,000 tokens do not fit" in text
    assert "sglang_server_arguments: {kv-cache-dtype: fp8_e4m3} (now bf16)" in text
    assert "lever: sglang_server_chunked_prefill_size: 4096 (now 8192)" in text
    assert fleet.memory_bar(row(target_tokens=400000)["plan"]) == ""


def test_columns_are_aligned_and_hosts_with_several_servers_are_told_apart():
    other = dict(row("gpu-2"), instance="small")
    lines = [line for line in fleet.lines([row(), other]) if not line.startswith("  ")]
    assert "gpu-2/small" in lines[2]
    start = lines[0].index("model")
    assert [line[start:].split()[0] for line in lines] == ["model", "Kimi-K2", "Kimi-K2"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"action": "keep"}, (0, "no restart")),
        ({"serving": False}, (450, "a guess")),
        ({}, (450, "a guess")),
    ],
)
def test_the_outage_of_a_step(changes, expected):
    # 60 s and 5.2 s for each of 75 GiB: a start of the reference case took about 450 s
    assert fleet.outage_seconds(row(**changes)) == expected


def test_where_nothing_serves_a_start_still_takes_its_time():
    assert fleet.lines([row(serving=False)])[1].endswith("none, start 450 s")
    assert fleet.lines([row(serving=False, action="keep")])[1].endswith("no restart")


LONG = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (LONG, "RTX PRO 6000"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("NVIDIA", "NVIDIA"),
        ("A board with a very long name of its own", "A board with a very…"),
    ],
)
def test_the_name_of_a_board_is_short(name, shown):
    assert fleet.short_name(name) == shown


def test_a_table_is_as_wide_as_a_terminal():
    eight = [{"name": LONG, "index": index} for index in range(8)]
    refused = dict(row("gpu-2", target_tokens=400000), gpus=eight, unchecked=["An engine at /opt/engine. " * 20])
    lines = fleet.lines([dict(row(), gpus=eight), refused])
    assert max(map(len, lines)) <= 120
    assert all(line.startswith("  ") for line in lines[3:] if not line.startswith("gpu-"))


def test_the_boards_of_a_server_are_counted_and_not_those_of_the_host():
    one = row(arguments={"tp-size": 1}, weights_gib=15.0, target_tokens=1000)
    assert "1 of 8 RTX PRO 6000" in fleet.lines([one])[1]


def test_a_lever_is_named_once():
    refused = row(target_tokens=400000)
    text = " ".join(" ".join(fleet.lines([refused])).split())
    for lever in refused["plan"]["levers"]:
        assert text.count(fleet.explain.lever_text(lever)) <= 1


def test_boards_that_no_plan_takes_are_a_lever():
    boards = [dict(one, index=index) for index, one in enumerate(BOARDS)]
    first = dict(row(arguments={"tp-size": 1}), gpus=boards, instance="a")
    first["plan"] = dict(first["plan"], boards=[{"index": 0, "uuid": None, "more_gib": 90.0}])
    second = dict(row(arguments={"tp-size": 1}, target_tokens=10**7), gpus=boards, instance="b")
    text = " ".join(" ".join(fleet.lines([first, second])).split())
    assert 'lever: environment: {CUDA_VISIBLE_DEVICES: "1"} in its entry of sglang_server_instances: 7 of 8' in text
    assert "CUDA_VISIBLE_DEVICES" not in " ".join(fleet.lines([second]))
    assert "CUDA_VISIBLE_DEVICES" not in " ".join(fleet.lines([first, dict(second, host="gpu-9")]))
    nobody = dict(first, plan=dict(first["plan"], boards=[]))
    assert "CUDA_VISIBLE_DEVICES" not in " ".join(fleet.lines([nobody, second]))


def test_a_step_that_refuses_says_why_although_the_plan_does_not():
    refused = row(geometry=None)
    refused["plan"]["step"] = {"action": "refuse", "reason": "Expected safetensors files, found pickled weights only."}
    text = "\n".join(fleet.lines([refused]))
    assert "  refused: Expected safetensors files, found pickled weights only." in text
    assert "not known yet" not in text


WAITS = {"seconds": 2520.0, "auto": True, "why": "594.0 GiB of weights on an NVMe disk, the last start took 450 s"}


def test_how_long_a_start_would_be_waited_for():
    lines = fleet.lines([dict(row(), deadline=WAITS)])
    assert "  waits up to 42 min for a start: 594.0 GiB of weights on an NVMe disk, the last start took 450 s" in lines
    stated = {"seconds": 90.0, "auto": False, "why": "as stated"}
    assert fleet.deadline_text(dict(row(), deadline=stated)) == "waits up to 90 s for a start: as stated"


@pytest.mark.parametrize("changes", [{"action": "keep"}, {"action": "refuse"}])
def test_a_step_that_starts_nothing_waits_for_nothing(changes):
    assert fleet.deadline_text(dict(row(**changes), deadline=WAITS)) == ""
    assert fleet.deadline_text(row()) == ""


def test_a_start_that_was_seen_tells_the_outage():
    seen = dict(row(), measurements=[{"load_seconds": 300.2}, {"load_seconds": 412.6}, {"load_seconds": None}])
    assert fleet.outage_seconds(seen) == (413, "as the last start")


def test_what_is_not_known_yet_is_one_line():
    unknown = dict(row(geometry=None, free_before_load_gib=None), unchecked=["The engine is not installed yet."])
    text = "\n".join(fleet.lines([unknown]))
    assert "not known yet: the GPUs of the host (sglang_server_gpus), sglang_server_geometry" in text
    assert "not checked yet: The engine is not installed yet." in text
    assert "None" not in text


def test_an_upgrade_is_a_line():
    seen = {"origin": "host", "engine_version": "0.5.12", "free_before_load_gib": 94.97, "weights_gib": 75.0}
    text = "\n".join(fleet.lines([row(weights_gib=None, measurements=(seen,))]))
    assert "upgrade: SGLang 0.5.12 to 0.5.23: from 0.5.20 on" in text


def test_rows_come_from_what_planning_left_on_each_host():
    planned = row()["plan"]
    hostvars = {
        "gpu-1": {
            "sglang_server_plans": [
                {
                    "plan": planned,
                    "instance": "main",
                    "model": "/srv/models/Kimi-K2/",
                    "gpus": BOARDS,
                    "deadline": WAITS,
                    # A server that is adopted is stopped too.
                    "server": {"serving": {"unit": "hand.service"}, "measurements": [{"load_seconds": 300}]},
                }
            ],
        },
        "gpu-2": {
            "sglang_server_plans": [
                {"plan": planned, "instance": "main", "model": "/m/a"},
                {"plan": planned, "instance": "small", "model": "/m/b"},
            ],
        },
        "gpu-3": {"sglang_server_plans": [], "__sglang_server_plan": planned},
    }
    lines = fleet.of_hosts(["gpu-1", "gpu-2", "gpu-3", "gpu-4"], hostvars)
    hosts = [line.split()[0] for line in lines if not line.startswith("  ")]
    assert hosts == ["host", "gpu-1", "gpu-2", "gpu-2/small", "gpu-3:", "gpu-4:"]
    assert "Kimi-K2" in lines[1]
    assert "300 s, as the last start" in lines[1]
    assert [line.strip()[:19] for line in lines if "waits" in line] == ["waits up to 42 min "]
    assert fleet.of_hosts([], {}) == []
