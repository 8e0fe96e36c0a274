# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes on the boards, and what a plan makes of them. Answers of nvidia-smi re-built from public reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu, _gpu_processes
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import PlanInput, plan

CASES = {
    row["name"]: row
    for row in json.loads((Path(__file__).resolve().parents[3] / "data" / "facts" / "nvidia_smi.json").read_text())
}
FIRST, SECOND = "GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"
TWO = f"{FIRST}, 4242, sglang::scheduler_TP0, 75120\n{FIRST}, 991, /usr/bin/python3, 512\n"


def test_processes_by_board():
    assert _gpu_processes.parse_processes(TWO) == {
        FIRST: [
            {"pid": 4242, "name": "sglang::scheduler_TP0", "memory_mib": 75120},
            {"pid": 991, "name": "/usr/bin/python3", "memory_mib": 512},
        ]
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{FIRST}, 114687, /usr/local/bin/python, 19135", 19135),
        (f"{FIRST}, 1, python, 512 MiB", 512),
        (f"{FIRST}, 1, python, [N/A]", None),
        (f"{FIRST}, 1, python, [Not Supported]", None),
    ],
)
def test_the_memory_of_a_process_may_not_be_told(line, expected):
    (process,) = _gpu_processes.parse_processes(line)[FIRST]
    assert process["memory_mib"] == expected


@pytest.mark.parametrize("text", ["", "No running processes found\n", "[N/A], [N/A], [N/A], [N/A]\n", f"{FIRST}, x\n"])
def test_what_is_no_process_is_left_out(text):
    assert _gpu_processes.parse_processes(text) == {}


def test_names_with_commas_and_processes_that_are_listed_twice():
    text = f"{FIRST}, 7, /opt/a, b/python, 10\n{FIRST}, 7, /opt/a, b/python, 10\n"
    assert _gpu_processes.parse_processes(text) == {FIRST: [{"pid": 7, "name": "/opt/a, b/python", "memory_mib": 10}]}


def test_our_own_server_is_free_after_the_restart_and_a_foreign_process_stays():
    gpus = _gpu_processes.with_processes(_gpu.parse_query(CASES["c16"]["stdout"]), TWO)
    assert gpus[1]["processes"] == []
    answer = plan(PlanInput(gpus=tuple(gpus), own_pids=(4242,), own_server_running=True))
    # 5,400 MiB are free and 75,120 come back; the 512 MiB of the other process do not.
    assert answer.plan_free_gib == pytest.approx(80520 / 1024, abs=0.001)
    foreign = plan(PlanInput(gpus=tuple(gpus)))
    assert foreign.plan_free_gib == pytest.approx(5400 / 1024, abs=0.001)


def test_a_board_that_shares_the_memory_of_the_machine():
    case = CASES["c01"]
    gpus = _gpu.gpu_result(_gpu.parse_query(case["stdout"]), "580.95.05", case["meminfo"])["gpus"]
    answer = plan(PlanInput(gpus=tuple(gpus)))
    assert answer.plan_free_gib == pytest.approx(115787 / 1024, abs=0.001)
    assert answer.rows[0]["part"] == "board"


def test_figures_that_are_missing_are_named_as_missing():
    for name in ("c10", "c12"):
        gpus = _gpu.parse_query(CASES[name]["stdout"])
        assert "free_before_load_gib" in plan(PlanInput(gpus=tuple(gpus[:1]))).missing
