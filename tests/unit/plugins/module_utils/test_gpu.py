# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boards: answers of nvidia-smi from public reports (nvidia_smi.json), memory of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu, _gpu_declared, _gpu_failures

CASES = {
    row["name"]: row
    for row in json.loads((Path(__file__).resolve().parents[3] / "data" / "facts" / "nvidia_smi.json").read_text())
}
MEMINFO = "MemTotal:       24689764 kB\nMemFree:        20000000 kB\nMemAvailable:   21724160 kB\n"


def result_of(name):
    case = CASES[name]
    return _gpu.gpu_result(_gpu.parse_query(case["stdout"]), "580.95.05", case["meminfo"] or MEMINFO)


def test_a_plain_host():
    result = result_of("c16")
    assert result["gpu_count"] == 2
    assert result["device"] == "cuda"
    assert result["homogeneous"]
    assert result["problems"] == []
    assert result["gpus"][1] == {
        "index": 1,
        "uuid": "GPU-00000001-1111-2222-3333-444444444444",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total_mib": 81559,
        "memory_free_mib": 81050,
        "memory_used_mib": 4,
        "compute_capability": "9.0",
        "unified_memory": False,
        "healthy": True,
        "problem": None,
        "failure_class": None,
        "mig": False,
    }


def test_a_board_without_memory_of_its_own_shows_the_machine():
    result = result_of("c01")
    gpu = result["gpus"][0]
    assert (result["gpu_count"], result["unified_memory"]) == (1, True)
    assert (gpu["memory_total_mib"], gpu["memory_free_mib"]) == (124610, 115787)
    assert gpu["healthy"]


def test_a_board_without_identity():
    gpu = result_of("c03")["gpus"][0]
    assert (gpu["uuid"], gpu["compute_capability"], gpu["memory_total_mib"]) == (None, None, 15388)
    assert (gpu["name"], gpu["unified_memory"]) == ("Orin (nvgpu)", True)


def test_one_bad_field_marks_its_board_only():
    sick, well = result_of("c10")["gpus"]
    assert (sick["memory_total_mib"], sick["memory_used_mib"], sick["memory_free_mib"]) == (23034, None, None)
    assert not sick["healthy"]
    assert "GPU 0 (NVIDIA L4) answers no number" in sick["problem"]
    assert (well["memory_free_mib"], well["healthy"]) == (22560, True)


def test_a_missing_right_is_not_a_missing_memory():
    result = result_of("c12")
    gpu = result["gpus"][0]
    assert (gpu["memory_total_mib"], gpu["memory_free_mib"], gpu["unified_memory"]) == (None, None, False)
    assert "Insufficient Permissions" in result["problems"][0]
    assert "become" in result["problems"][0]


def test_mig_hides_the_memory_of_the_board():
    (gpu,) = _gpu.parse_query("0, GPU-1, NVIDIA H100, 81559, 10, 81000, 9.0, Enabled\n")
    assert (gpu["memory_total_mib"], gpu["memory_free_mib"], gpu["healthy"]) == (None, None, False)
    assert "split by MIG" in gpu["problem"]


def test_mixed_boards_are_said():
    result = result_of("c13")
    assert not result["homogeneous"]
    assert [gpu["memory_free_mib"] for gpu in result["gpus"]] == [32100, 97200]


def test_names_are_kept_and_say_nothing_about_memory():
    gpus = result_of("c15")["gpus"]
    assert [gpu["name"] for gpu in gpus] == ["GRID A100D-20C", "NVIDIA A10-12Q"]
    assert [gpu["memory_total_mib"] for gpu in gpus] == [20480, 12288]
    assert all(gpu["healthy"] for gpu in gpus)


def test_a_board_without_a_name_is_unhealthy():
    (gpu,) = _gpu.parse_query("0, GPU-1, , 81559, 10, 81000, 9.0, Disabled\n")
    assert (gpu["name"], gpu["healthy"]) == (None, False)
    assert "has no name" in gpu["problem"]


def test_some_figures_missing_is_no_unified_memory():
    (gpu,) = _gpu.parse_query("0, GPU-1, NVIDIA X, 81559, [N/A], [N/A], 9.0, Disabled\n")
    assert not gpu["unified_memory"]
    assert "only a part" in gpu["problem"]


def test_units_of_an_old_tool_are_dropped():
    (gpu,) = _gpu.parse_query("0, GPU-1, NVIDIA X, 81559 MiB, 9 MiB, 81000 MiB, 9.0, N/A\n")
    assert gpu["memory_total_mib"] == 81559


def test_fewer_fields_leave_nulls():
    (gpu,) = _gpu.parse_query("0, GPU-1, NVIDIA K80, 11441, 0, 11441\n", _gpu.SHORT_FIELDS)
    assert (gpu["compute_capability"], gpu["memory_free_mib"], gpu["healthy"]) == (None, 11441, True)


def test_what_is_no_table_is_said():
    with pytest.raises(_gpu_failures.GpuError, match="Expected 8 columns from nvidia-smi"):
        _gpu.parse_query(CASES["c04"]["stdout"])
    with pytest.raises(_gpu_failures.GpuError, match="lists no board"):
        _gpu.gpu_result([], None, MEMINFO)


@pytest.mark.parametrize(
    ("name", "kind", "transient", "parts"),
    [
        (
            "c06",
            "no_gpu",
            False,
            ("version mismatch", "535.161", "535.154.05", "reboot", "must not be restarted"),
        ),
        ("c07", "no_gpu", True, ("couldn't communicate with the NVIDIA driver",)),
        ("c09", "gpu_lost", False, ("GPU is lost", "0000:0B:00.0")),
        ("c18", "no_gpu", False, ("No supported GPUs", "vfio-pci")),
    ],
)
def test_failures_keep_their_cause(name, kind, transient, parts):
    case = CASES[name]
    module = _gpu_failures.kernel_module_version(case["module"])
    row, sentence = _gpu_failures.failure_of(case["stdout"] + case["stderr"], module)
    assert (row.kind, row.transient) == (kind, transient)
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No devices were found", "no_gpu"),
        ("Failed to initialize NVML: Insufficient Permissions", "no_gpu"),
        ("Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error", "gpu_lost"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "no_gpu"),
    ],
)
def test_further_failures(text, kind):
    assert _gpu_failures.failure_of(text)[0].kind == kind


def test_an_unknown_failure_is_not_named_wrongly():
    assert _gpu_failures.failure_of("Segmentation fault") is None


def test_the_field_that_a_driver_does_not_know():
    assert _gpu_failures.invalid_field('Field "compute_cap" is not a valid field to query.\n') == "compute_cap"
    assert _gpu_failures.invalid_field("0, GPU-1") is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu Dec 28 15:37:48 UTC 2023\n", "535.154.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n", "580.95.05"),
        ("", None),
        (None, None),
    ],
)
def test_the_version_of_the_loaded_module(text, version):
    assert _gpu_failures.kernel_module_version(text) == version


# --- the CPU ----------------------------------------------------------------


def test_the_cpu_has_what_the_engine_uses():
    entry = _gpu.cpu_entry(MEMINFO, 2)
    assert (entry["name"], entry["uuid"], entry["index"]) == ("cpu", None, 0)
    assert (entry["memory_total_mib"], entry["memory_free_mib"]) == (24689764 // 1024 // 2, 21724160 // 1024 // 2)
    assert entry["memory_used_mib"] == entry["memory_total_mib"] - entry["memory_free_mib"]
    result = _gpu.cpu_result(MEMINFO, 1)
    assert (result["device"], result["gpu_count"], len(result["gpus"]), result["unified_memory"]) == (
        "cpu",
        0,
        1,
        False,
    )


def test_memory_that_is_not_known_is_said():
    with pytest.raises(_gpu_failures.GpuError, match="Expected MemAvailable"):
        _gpu.cpu_entry("MemTotal: 1 kB\n", 1)
    with pytest.raises(_gpu_failures.GpuError, match="at least one NUMA node"):
        _gpu.cpu_entry(MEMINFO, 0)


def test_nodes_without_cpus_do_not_count():
    assert _gpu.nodes_with_cpus(["0-15\n", "16-31\n", "\n"]) == 2
    assert _gpu.nodes_with_cpus([]) == 1


# --- properties -------------------------------------------------------------

WORDS = st.sampled_from(
    ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "ERR!", "[GPU requires reset]", "81559", "0", "", "x"]
)


@given(st.lists(WORDS, min_size=8, max_size=8))
def test_every_row_gives_typed_values_or_a_problem(cells):
    text = ", ".join(cells)
    if not any(cell.strip() for cell in cells):
        return
    (gpu,) = _gpu.parse_query(text + "\n")
    for name in ("memory_total_mib", "memory_free_mib", "memory_used_mib"):
        assert gpu[name] is None or isinstance(gpu[name], int)
    if gpu["healthy"] and not gpu["unified_memory"]:
        assert None not in (gpu["index"], gpu["name"], gpu["memory_total_mib"], gpu["memory_free_mib"])
    assert gpu["healthy"] == (gpu["problem"] is None)


# --- what a tool says beside its table, and tables that cannot be right -----------

ONE = "0, GPU-0, A, 81559, 4, 81050, 9.0, Disabled\n"
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:65:00.0\n"


def test_a_warning_of_the_tool_is_passed_over_and_said():
    text = INFOROM + ONE + INFOROM
    (gpu,) = _gpu.parse_query(text)
    assert (gpu["memory_free_mib"], gpu["healthy"]) == (81050, True)
    said = "nvidia-smi says WARNING: infoROM is corrupted at gpu 0000:65:00.0: see nvidia-smi -q."
    assert _gpu.warnings_in(text) == [said]
    assert _gpu.warnings_in(ONE) == []


def test_two_boards_of_one_uuid_cannot_be_told_apart():
    first, second = _gpu.parse_query(ONE + ONE.replace("0,", "1,", 1))
    assert (first["healthy"], second["healthy"]) == (False, False)
    assert second["problem"] == "GPU 1 (A) has the UUID of another GPU (GPU-0): see nvidia-smi -L."
    nameless = _gpu.parse_query(ONE.replace("GPU-0", "[N/A]") + ONE.replace("GPU-0", "[N/A]").replace("0,", "1,", 1))
    assert all(gpu["healthy"] for gpu in nameless)


def test_no_board_has_more_free_than_it_has():
    (gpu,) = _gpu.parse_query(ONE.replace("81050", "99999"))
    assert not gpu["healthy"]
    assert "says that more is free than it has (99999 of 81559)" in gpu["problem"]


def test_mig_names_a_variable_that_there_is():
    (gpu,) = _gpu.parse_query(ONE.replace("Disabled", "Enabled"))
    assert "memory_total_mib and memory_free_mib in sglang_server_gpus" in gpu["problem"]


# --- as an inventory declares them -------------------------------------------------


def test_boards_of_an_inventory_are_counted_out():
    entries = [{"count": "2", "name": "H200", "memory_total_mib": 143771}, {"name": "L4", "memory_total_mib": 23034}]
    gpus = _gpu_declared.declared_gpus(entries)["gpus"]
    assert [(gpu["index"], gpu["name"], gpu["memory_free_mib"]) for gpu in gpus] == [
        (0, "H200", 143071),
        (1, "H200", 143071),
        (2, "L4", 22334),
    ]
    assert set(gpus[0]) == set(_gpu.parse_query(ONE)[0])
    (told,) = _gpu_declared.declared_gpus([dict(entries[1], memory_free_mib=20000, compute_capability=8.9)])["gpus"]
    assert (told["memory_free_mib"], told["memory_used_mib"], told["compute_capability"]) == (20000, 3034, "8.9")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("8 x H200", "a list such as"),
        ([], "a list such as"),
        (["H200"], "entries with a name"),
        ([{"memory_total_mib": 1}], "entries with a name"),
        ([{"name": "A"}], "memory_total_mib of A"),
        ([{"name": "A", "memory_total_mib": -1}], "found -1"),
        ([{"name": "A", "memory_total_mib": True}], "found True"),
        ([{"name": "A", "memory_total_mib": float("nan")}], "found nan"),
        ([{"name": "A", "memory_total_mib": 80000, "memory_free_mib": 80001}], "from 1 to 80000 for memory_free_mib"),
        ([{"name": "A", "memory_total_mib": 80000, "count": 0}], "from 1 to 64 for count"),
        ([{"name": "A", "memory_total_mib": 80000, "memory_mib": 5}], "found memory_mib"),
    ],
)
def test_boards_that_cannot_be_are_one_sentence(entries, said):
    with pytest.raises(ValueError, match="in sglang_server_gpus") as caught:
        _gpu_declared.declared_gpus(entries)
    assert said in str(caught.value)
    assert str(caught.value).count(". ") == 0
