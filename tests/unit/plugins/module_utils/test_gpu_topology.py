# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""_gpu_topology: the matrices of nvidia-smi topo, from public reports (nvidia_smi_topo.json names each)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu_topology as topology

DATA = Path(__file__).resolve().parents[3] / "data" / "facts" / "nvidia_smi_topo.json"
CASES = {row["name"]: row for row in json.loads(DATA.read_text())}


def boards(count):
    return [{"index": index} for index in range(count)]


@pytest.mark.parametrize(
    ("name", "count", "nvlink", "peers"),
    [
        ("two_a100_nvlink", 2, True, None),
        ("two_5090_without_peers", 2, False, False),
        ("five_over_pcie_with_peers", 5, False, True),
        ("eight_4090", 8, False, None),
        ("five_mixed", 5, False, None),
        ("two_3090", 2, False, False),
    ],
)
def test_hosts_of_public_reports(name, count, nvlink, peers):
    gpus = topology.with_topology(boards(count), CASES[name]["links"], CASES[name]["peers"] or "")
    assert topology.all_pairs(gpus, "nvlinks") is nvlink
    assert topology.all_pairs(gpus, "peers") is peers


def test_each_board_says_whom_it_reaches():
    first, second = topology.with_topology(boards(2), CASES["two_a100_nvlink"]["links"], "")
    assert (first["nvlinks"], second["nvlinks"]) == ([1], [0])
    assert (first["peers"], second["peers"]) == (None, None)
    last = topology.with_topology(boards(5), "", CASES["five_over_pcie_with_peers"]["peers"])[4]
    assert (last["nvlinks"], last["peers"]) == (None, [0, 1, 2, 3])


def test_the_cells_are_those_of_the_boards():
    found = topology.matrix(CASES["five_mixed"]["links"])
    assert found[3] == {0: "SYS", 1: "NODE", 2: "NODE", 4: "PHB"}
    assert topology.matrix(CASES["eight_4090"]["links"])[6] == dict.fromkeys((0, 1, 2, 3, 4, 5, 7), "SYS")


BRIDGES = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n"
    "GPU0\t X \tNV4\tPHB\tPHB\t0-15\n"
    "GPU1\tNV4\t X \tPHB\tPHB\t0-15\n"
    "GPU2\tPHB\tPHB\t X \tNV4\t0-15\n"
    "GPU3\tPHB\tPHB\tNV4\t X \t0-15\n"
)


def test_bridges_join_two_of_four():
    gpus = topology.with_topology(boards(4), BRIDGES, "")
    assert [gpu["nvlinks"] for gpu in gpus] == [[1], [0], [3], [2]]
    assert topology.all_pairs(gpus, "nvlinks") is False
    assert topology.all_pairs(gpus[:2], "nvlinks") is True
    assert topology.all_pairs(gpus[1:3], "nvlinks") is False


def test_the_tool_underlines_its_first_line():
    text = BRIDGES.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1", 1).replace("CPU Affinity", "CPU Affinity\x1b[0m")
    assert topology.nvlinks(text) == topology.nvlinks(BRIDGES) == {0: [1], 1: [0], 2: [3], 3: [2]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "Failed to get topology: Not Supported\n",
        BRIDGES.replace("GPU3\tPHB\tPHB\tNV4\t X \t0-15\n", ""),  # a row is missing
        BRIDGES.replace("\tNV4\t X \t0-15", ""),  # a row is cut
        BRIDGES.partition("\n")[2],  # the first line is missing
        "GPU0\t X \t0-15\n",
    ],
)
def test_what_is_no_whole_matrix_tells_nothing(text):
    assert topology.matrix(text) == {}
    assert topology.all_pairs(topology.with_topology(boards(4), text, text), "nvlinks") is None


def test_a_word_that_is_not_known_is_no_guess():
    text = BRIDGES.replace("NV4", "NEW")
    assert topology.nvlinks(text) == dict.fromkeys(range(4))
    gpus = topology.with_topology(boards(4), text, " \tGPU0\tGPU1\n GPU0\tX\tU\n GPU1\tU\tX\n")
    assert [gpu["peers"] for gpu in gpus] == [None] * 4
    # One pair that is known not to be joined is enough for "not all".
    assert topology.all_pairs([dict(gpus[0], nvlinks=[1]), *gpus[1:]], "nvlinks") is False


def test_a_single_board_has_no_pairs():
    alone = topology.with_topology(boards(1), "", "")
    assert alone == [{"index": 0, "nvlinks": [], "peers": []}]
    assert topology.all_pairs(alone, "nvlinks") is True
    assert topology.all_pairs([{"index": 3}], "nvlinks") is True
    assert topology.all_pairs([], "nvlinks") is None


def test_boards_of_another_program_are_not_known():
    assert topology.all_pairs([{"index": 0}, {"index": 1}], "peers") is None
