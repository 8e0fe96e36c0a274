# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of boards beside their table: failures, places on the bus, instances of MIG, and how long it takes."""

from __future__ import annotations

import os
import re
import stat
import time

import pytest

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import plan_of
from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failure_record,
    _gpu,
    _gpu_failures,
    _gpu_host,
    _gpu_mig,
    _gpu_pci,
    _witness_tool,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_choice import order_warning, visible

FIRST, SECOND = "GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"
ONE = f"0, {FIRST}, NVIDIA H100 80GB HBM3, 81559, 4, 81050, 9.0, Disabled\n"


# --- failures -----------------------------------------------------------------------


@pytest.mark.parametrize("row", _gpu_failures.FAILURES, ids=lambda row: row.pattern[:20])
def test_a_failure_is_one_sentence_of_a_known_class(row):
    assert row.kind in _failure_record.KINDS
    _row, sentence = _gpu_failures.failure_of("", status=row.status) or (row, row.sentence)
    assert sentence.endswith(".")
    assert not re.search(r"\. [A-Z]", sentence)
    assert row.source


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (4, "no_gpu", "Insufficient Permissions"),
        (6, "no_gpu", "No devices were found"),
        (8, "no_gpu", "lacks power (status 8)"),
        (9, "no_gpu", "couldn't communicate"),
        (10, "no_gpu", "interrupts of a board do not work (status 10, odd words)"),
        (12, "no_gpu", "libnvidia-ml.so"),
        (15, "gpu_lost", "GPU is lost"),
        (18, "no_gpu", "version mismatch"),
    ],
)
def test_the_status_decides_where_the_words_are_not_known(status, kind, said):
    row, sentence = _gpu_failures.failure_of("odd words\n" if status == 10 else "", status=status)
    assert row.kind == kind
    assert said in sentence


def test_the_words_count_more_than_the_status():
    text = "Unable to determine the device handle for GPU 0000:02:00.0: Unable to communicate with GPU because it is"
    row, _sentence = _gpu_failures.failure_of(f"{text} insufficiently powered.\n", status=15)
    assert "power" in row.pattern
    assert _gpu_failures.failure_of("No such thing", status=255) is None
    assert _gpu_failures.failure_of("No such thing") is None


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("for GPU 0000:0B:00.0: GPU is lost", ["0000:0B:00.0"]),
        ("for GPU0000:0B:00.0: Unknown Error", ["0000:0B:00.0"]),
        ("at gpu 0000000F:01:00.0", ["0000000F:01:00.0"]),
        ("GPU 0000:0B:00.0 and GPU 0000:0C:00.0 and GPU 0000:0B:00.0", ["0000:0B:00.0", "0000:0C:00.0"]),
        ("at 12:30:45.0 nothing", []),
    ],
)
def test_addresses_are_read_from_sentences(text, addresses):
    assert _gpu_failures.addresses_in(text) == addresses


def test_a_tool_that_was_killed_says_by_what():
    assert "was ended by signal 11 (no output)" in _gpu_failures.unknown_failure(-11, "")


def test_other_texts_in_brackets_are_no_names():
    (gpu,) = _gpu.parse_query(ONE.replace("NVIDIA H100 80GB HBM3", "[Timeout]").replace(FIRST, "[Timeout]"))
    assert (gpu["name"], gpu["uuid"], gpu["healthy"]) == (None, None, False)


def test_a_row_that_is_cut_off_is_an_error_and_no_warning():
    with pytest.raises(_gpu_failures.GpuError, match="Expected 8 columns"):
        _gpu.parse_query(ONE + "1, GPU-00000001-11\n")


def test_what_is_used_need_not_be_told():
    (gpu,) = _gpu.parse_query(ONE.replace(" 4,", " [N/A],"))
    assert (gpu["healthy"], gpu["memory_used_mib"], gpu["memory_free_mib"]) == (True, None, 81050)


@pytest.mark.parametrize(
    ("name", "capability", "unified"),
    [
        ("NVIDIA GB10", "12.1", True),
        ("Xavier (nvgpu)", "7.2", True),
        ("A board of tomorrow", "13.0", True),
        ("A board of tomorrow", None, True),
        ("NVIDIA L4", "8.9", False),
        ("NVIDIA GeForce RTX 5090", "12.0", False),
    ],
)
def test_which_boards_without_figures_have_the_memory_of_the_machine(name, capability, unified):
    absent = ("absent", "absent", "absent")
    assert _gpu.is_unified(name, capability, None, absent) is unified


def test_a_board_with_figures_has_memory_of_its_own():
    assert not _gpu.is_unified("A board of tomorrow", "13.0", 200000, (None, None, None))
    assert not _gpu.is_unified("NVIDIA A100-SXM4-40GB", None, 40536, (None, None, None))
    assert _gpu.is_unified("Orin (nvgpu)", None, 15388, (None, None, None))


# --- the bus ------------------------------------------------------------------------


def test_boards_of_the_bus(tmp_path):
    rows = {
        "0000:17:00.0": ("0x10de\n", "0x030200\n", "nvidia"),
        "0000:65:00.0": ("0x10de\n", "0x030000\n", "vfio-pci"),
        "000f:01:00.0": ("0x10DE\n", "0x030200\n", None),
        "0000:17:00.1": ("0x10de\n", "0x040300\n", "snd_hda_intel"),
        "0000:05:00.0": ("0x10de\n", "0x068000\n", "nvidia-nvswitch"),
        "0000:03:00.0": ("0x1a03\n", "0x030000\n", "ast"),
    }
    for address, (vendor, kind, driver) in rows.items():
        folder = tmp_path / "devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor)
        (folder / "class").write_text(kind)
        if driver:
            (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(tmp_path / "drivers" / driver)
    found = _gpu_pci.boards_of(str(tmp_path / "devices"))
    assert [(board.address, board.driver) for board in found] == [
        ("0000:17:00.0", "nvidia"),
        ("0000:65:00.0", "vfio-pci"),
        ("000f:01:00.0", None),
    ]
    assert _gpu_pci.in_words(found) == (
        "3 NVIDIA boards on PCI, without a driver: 1, bound to nvidia: 1, bound to vfio-pci: 1"
    )
    assert "1 NVIDIA board of this host (000f:01:00.0)" in _gpu_pci.unbound_sentence(found)
    assert _gpu_pci.unbound_sentence(found[:2]) is None
    (tmp_path / "gpus" / "0000:17:00.0").mkdir(parents=True)
    assert _gpu_pci.held_by_driver(str(tmp_path / "gpus")) == ["0000:17:00.0"]
    assert _gpu_pci.held_by_driver(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0000000F:01:00.0", (15, 1, 0, 0)),
        ("000f:01:00.0", (15, 1, 0, 0)),
        ("00010000:BA:1F.7", (65536, 186, 31, 7)),
        ("01:00.0", None),
        ("[N/A]", None),
        (None, None),
    ],
)
def test_a_place_is_one_however_it_is_written(text, place):
    assert _gpu_pci.place(text) == place


def test_places_of_an_answer():
    text = (
        "0, 00000000:17:00.0, Exclusive_Process, 580.95.05\n1, [GPU is lost], [GPU is lost], [GPU is lost]\n"
        "WARNING: infoROM is corrupted\n"
    )
    assert _gpu_pci.parse_places(text) == (
        {
            0: {"pci_bus_id": "00000000:17:00.0", "compute_mode": "Exclusive_Process"},
            1: {"pci_bus_id": None, "compute_mode": None},
        },
        "580.95.05",
    )
    assert _gpu_pci.parse_places('Field "pci.bus_id" is not a valid field to query.\n') == ({}, None)
    assert _gpu_pci.parse_places(ONE) == ({}, None)


def test_a_board_is_missing_only_where_all_places_are_known():
    gpus = _gpu_pci.with_places(
        _gpu.parse_query(ONE), {0: {"pci_bus_id": "00000000:17:00.0", "compute_mode": "Default"}}
    )
    assert _gpu_pci.missing(gpus, ["0000:17:00.0"]) == []
    assert _gpu_pci.missing(gpus, ["0000:17:00.0", "0001:17:00.0"]) == ["0001:17:00.0"]
    assert _gpu_pci.missing(_gpu_pci.with_places(gpus, {}), ["0000:17:00.0", "0000:18:00.0"]) == []


# --- instances of MIG -----------------------------------------------------------------

# https://github.com/hashicorp/nomad-device-nvidia/pull/53
LISTED = """GPU 4: NVIDIA A100-SXM4-40GB (UUID: GPU-b2210207-2f27-05df-a93d-8d060db4eabb)
GPU 5: NVIDIA A100-SXM4-40GB (UUID: GPU-6109dd5c-d378-24ee-f344-79b537574ea6)
  MIG 1g.5gb      Device  0: (UUID: MIG-8c4c5a27-e508-5556-b2ea-7e549465741e)
  MIG 1g.5gb      Device  1: (UUID: MIG-1d89abd8-d10a-5361-bd06-77a807048472)
"""


def test_instances_are_listed_by_board():
    assert _gpu_mig.listed(LISTED) == {
        "GPU-b2210207-2f27-05df-a93d-8d060db4eabb": {},
        "GPU-6109dd5c-d378-24ee-f344-79b537574ea6": {
            0: {"uuid": "MIG-8c4c5a27-e508-5556-b2ea-7e549465741e", "profile": "1g.5gb"},
            1: {"uuid": "MIG-1d89abd8-d10a-5361-bd06-77a807048472", "profile": "1g.5gb"},
        },
    }
    # Drivers before 470 named an instance by its board.
    old = "  MIG 3g.20gb Device 0: (UUID: MIG-GPU-2e4159a0-dab5-1747-e7b7-b3396fab58b4/7/0)"
    head = "GPU 0: A100-SXM4-40GB (UUID: GPU-2e4159a0-dab5-1747-e7b7-b3396fab58b4)"
    assert _gpu_mig.listed(f"{head}\n{old}\n") == {
        "GPU-2e4159a0-dab5-1747-e7b7-b3396fab58b4": {
            0: {"uuid": "MIG-GPU-2e4159a0-dab5-1747-e7b7-b3396fab58b4/7/0", "profile": "3g.20gb"}
        }
    }
    assert _gpu_mig.listed("No devices found.\n") == {}


@pytest.mark.parametrize("text", ["", "No devices were found\n", "<nvidia_smi_log><gpu>", None])
def test_what_is_no_document_tells_no_instances(text):
    assert _gpu_mig.detailed(text) == []


def test_a_board_that_is_not_split_says_none():
    """https://github.com/NVIDIA/k8s-device-plugin prints None there."""
    text = "<nvidia_smi_log><gpu><mig_devices>None</mig_devices><uuid>GPU-1</uuid></gpu></nvidia_smi_log>"
    assert _gpu_mig.detailed(text) == [("GPU-1", {})]


def test_boards_without_a_uuid_in_the_document_are_found_by_their_place_only_when_all_are_there():
    device = "<mig_device><index>0</index><fb_memory_usage><total>4864 MiB</total></fb_memory_usage></mig_device>"
    text = f"<l><gpu/><gpu><mig_devices>{device}</mig_devices></gpu></l>"
    gpus = [{"uuid": FIRST, "mig": False}, {"uuid": SECOND, "mig": True}]
    first, second = _gpu_mig.with_instances(gpus, "", text)
    assert first["mig_devices"] == []
    assert [one["memory_total_mib"] for one in second["mig_devices"]] == [4864]
    assert _gpu_mig.with_instances(gpus[1:], "", text)[0]["mig_devices"] == []
    other = text.replace("<gpu><mig", "<gpu><uuid>GPU-other</uuid><mig")
    assert _gpu_mig.with_instances(gpus, "", other)[1]["mig_devices"] == []


def split_board():
    (gpu,) = _gpu.parse_query(ONE.replace("Disabled", "Enabled"))
    instances = [
        {"index": 0, "uuid": "MIG-0929581a", "profile": "3g.40gb", "gpu_instance_id": 1, "compute_instance_id": 0},
        {"index": 1, "uuid": "MIG-3adbed3a", "profile": "3g.40gb", "gpu_instance_id": 2, "compute_instance_id": 0},
    ]
    instances[0].update(memory_total_mib=40448, memory_free_mib=40151, memory_used_mib=298, processes=[])
    return dict(gpu, mig_devices=instances, processes=[])


@pytest.mark.parametrize("stated", ["MIG-0929581a", "MIG-0929", f"MIG-{FIRST}/1/0"])
def test_a_server_on_an_instance_has_the_memory_of_the_instance(stated):
    (entry,) = visible([split_board()], {"CUDA_VISIBLE_DEVICES": stated})
    assert (entry["memory_total_mib"], entry["memory_free_mib"], entry["healthy"]) == (40448, 40151, True)
    assert (entry["name"], entry["compute_capability"]) == ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "9.0")
    assert (entry["uuid"], entry["index"], entry["problem"]) == ("MIG-0929581a", 0, None)


def planned(board, environment, **more):
    given = {"gpus": [board], "environment": environment, "arguments": {"tp-size": 1}, "engine_version": "0.5.23"}
    return plan_of({**given, **more})


def test_a_plan_on_an_instance_has_the_memory_of_the_instance():
    one = {"CUDA_VISIBLE_DEVICES": "MIG-0929581a"}
    assert planned(split_board(), one)["plan_free_gib"] == pytest.approx(40151 / 1024, abs=0.001)
    # What our server holds of the instance comes back.
    board = split_board()
    board["mig_devices"][0].update(memory_free_mib=151, processes=[{"pid": 7, "name": "a", "memory_mib": 40000}])
    again = planned(board, one, own_pids=[7], own_server_running=True)
    assert again["plan_free_gib"] == pytest.approx(40151 / 1024, abs=0.001)


def test_a_plan_on_a_board_that_is_split_is_refused():
    answer = planned(split_board(), {})
    assert answer["feasible"] is False
    assert "is split by MIG" in answer["refusal"]


def test_an_instance_whose_memory_is_not_told_is_not_healthy():
    (entry,) = visible([split_board()], {"CUDA_VISIBLE_DEVICES": "MIG-3adbed3a"})
    assert (entry["memory_total_mib"], entry["healthy"]) == (None, False)
    assert "does not tell the memory of NVIDIA H100 80GB HBM3 MIG 3g.40gb" in entry["problem"]


@pytest.mark.parametrize("stated", ["MIG-", "MIG-ffff", f"MIG-{FIRST}/7/0"])
def test_an_instance_that_is_not_listed_is_not_known(stated):
    assert visible([split_board()], {"CUDA_VISIBLE_DEVICES": stated}) == ()


def test_two_instances_are_refused_because_cuda_uses_one():
    with pytest.raises(_gpu_failures.GpuError, match="one instance of MIG"):
        visible([split_board()], {"CUDA_VISIBLE_DEVICES": "MIG-0929581a,MIG-3adbed3a"})


# --- the order of the boards ------------------------------------------------------------


def test_boards_of_different_kinds_are_counted_by_speed_unless_told_otherwise():
    gpus = [{"name": "RTX 5090", "memory_total_mib": 32607}, {"name": "RTX PRO 6000", "memory_total_mib": 97887}]
    assert "CUDA counts by speed" in order_warning(gpus, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert order_warning(gpus, {}) is None
    by_uuid = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": FIRST}
    assert order_warning(gpus, by_uuid) is None


# --- how long it takes --------------------------------------------------------------------


def script(folder, text):
    path = folder / "nvidia-smi"
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_who_waited_for_one_hanging_question_does_not_wait_for_the_next(tmp_path):
    asked = tmp_path / "asked"
    tool = _gpu_host.Tool(script(tmp_path, f'echo "$1" >> {asked}; sleep 60'), 1)
    begun = time.monotonic()
    assert [tool.told(["a"]), tool.told(["b"]), tool.told(["c"])] == ["", "", ""]
    assert time.monotonic() - begun < 10
    assert asked.read_text().split() == ["a"]


def test_what_is_asked_beside_the_boards_has_one_time_together(tmp_path):
    now = iter(range(0, 1000, 16))
    tool = _gpu_host.Tool(script(tmp_path, "echo said; exit 14"), 10, clock=lambda: next(now))
    # Each takes 16 of 3 x 10 seconds by this clock.
    assert [tool.told(["a"]), tool.told(["b"]), tool.told(["c"])] == ["said\n", "said\n", ""]


def test_no_question_beside_the_boards_has_longer_than_they(monkeypatch):
    given = []
    monkeypatch.setattr(_witness_tool, "run_limited", lambda argv, seconds: (given.append(seconds), (0, "", ""))[1])
    now = iter([0, 25, 25, 25])
    tool = _gpu_host.Tool("nvidia-smi", 10, clock=lambda: next(now))
    tool.told(["a"])
    tool.told(["b"])
    assert given == [10, 5]


def test_a_tool_that_cannot_be_ended_is_left_behind(tmp_path, monkeypatch):
    """In uninterruptible sleep not even SIGKILL ends it: https://github.com/leptonai/gpud/pull/117."""
    monkeypatch.setattr(_witness_tool, "_kill", lambda command: None)
    path = script(tmp_path, f"echo $$ > {tmp_path / 'pid'}; exec sleep 30")
    begun = time.monotonic()
    with pytest.raises(_gpu_failures.GpuError, match="did not answer within 1 s"):
        _gpu_host.Tool(path, 1).query(_gpu.FIELDS)
    assert time.monotonic() - begun < 10
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_tool_that_cannot_be_run_is_one_sentence(tmp_path):
    path = script(tmp_path, "")
    (tmp_path / "nvidia-smi").write_text("#!/nowhere/sh\n")
    with pytest.raises(_gpu_failures.GpuError, match=r"nvidia-smi cannot be run \(No such file or directory\)"):
        _gpu_host.Tool(path, 1).query(_gpu.FIELDS)
