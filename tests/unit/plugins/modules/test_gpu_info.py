# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_info as a task runs it, against a played nvidia-smi that answers what public reports show."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu_host, _gpu_pci
from ansible_collections.gpufleet.sglang.plugins.modules import gpu_info
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module

DATA = Path(__file__).resolve().parents[3] / "data" / "facts"
CASES = {row["name"]: row for row in json.loads((DATA / "nvidia_smi.json").read_text())}
FILES = {
    "/proc/meminfo": "MemTotal:       24689764 kB\nMemAvailable:   21724160 kB\n",
    "/sys/devices/system/node/node0/cpulist": "0-1\n",
}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host whose /proc and /sys are dictionaries; C(host.files) may be changed. Returns a caller of the module."""
    files = dict(FILES)
    monkeypatch.setattr(_gpu_host, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(_gpu_host, "read_text", lambda path: files.get(path, ""))
    monkeypatch.setattr(_gpu_host, "_machine_memory", lambda: (files["/proc/meminfo"], 1))
    monkeypatch.setattr(_gpu_host, "pci_boards", list)
    monkeypatch.setattr(_gpu_host, "held_addresses", list)
    monkeypatch.setattr(_gpu_host, "find_command", lambda module, name: name if "/" in name else None)

    def call(**params):
        return run_module(gpu_info, params)

    def play(script):
        """Write a played nvidia-smi from shell lines; it counts its calls in the file C(calls)."""
        path = tmp_path / "nvidia-smi"
        path.write_text(f'echo "$@" >> {shlex.quote(str(tmp_path / "calls"))}\n{script}\n')
        path.chmod(0o755)
        path.write_text("#!/bin/sh\n" + path.read_text())
        call.path = str(path)
        return call.path

    call.files = files
    call.play = play
    call.calls = lambda: (tmp_path / "calls").read_text().splitlines()
    return call


def answer(name):
    case = CASES[name]
    return f"printf %s {shlex.quote(case['stdout'])}; printf %s {shlex.quote(case['stderr'])} >&2; exit {case['rc']}"


def test_boards(host):
    result = host(nvidia_smi=host.play(answer("c16")))
    assert (result["device"], result["gpu_count"], result["changed"]) == ("cuda", 2, False)
    assert [gpu["memory_free_mib"] for gpu in result["gpus"]] == [5400, 81050]
    assert "--format=csv,noheader,nounits" in host.calls()[0]


def test_the_driver_is_that_of_the_loaded_module(host):
    host.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu\n"
    assert host(nvidia_smi=host.play(answer("c16")))["driver_version"] == "535.154.05"


def test_else_the_tool_is_asked_for_the_driver(host):
    rows = "echo 0, 00000000:17:00.0, Default, 580.95.05; echo 1, 00000000:65:00.0, Default, 580.95.05; exit 0"
    script = f'case "$*" in *driver_version*) {rows};; esac; {answer("c16")}'
    assert host(nvidia_smi=host.play(script))["driver_version"] == "580.95.05"
    assert host(nvidia_smi=host.play(answer("c16")))["driver_version"] is None


def test_unified_memory(host):
    host.files["/proc/meminfo"] = CASES["c01"]["meminfo"]
    result = host(nvidia_smi=host.play(answer("c01")))
    assert result["unified_memory"]
    assert result["gpus"][0]["memory_free_mib"] == 115787


@pytest.mark.parametrize("name", ["c10", "c12"])
def test_a_board_that_cannot_be_planned_with_is_a_warning(host, name):
    result = host(nvidia_smi=host.play(answer(name)))
    assert not result.get("failed")
    assert len(result["problems"]) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("c06", "version mismatch"),
        ("c07", "couldn't communicate"),
        ("c09", "GPU is lost"),
        ("c18", "No supported GPUs"),
        ("c04", "8 columns"),
    ],
)
def test_a_failing_tool_is_one_sentence(host, name, said):
    if name == "c06":
        host.files["/proc/driver/nvidia/version"] = CASES[name]["module"]
    result = host(nvidia_smi=host.play(answer(name)))
    assert result["failed"]
    assert said in result["msg"]
    assert "\n" not in result["msg"]


def test_an_unknown_failure_keeps_status_and_text(host):
    result = host(nvidia_smi=host.play("echo 'something new happened' >&2; exit 42"))
    assert "status 42 (something new happened)" in result["msg"]


def test_a_driver_that_is_late_is_asked_again(host, tmp_path):
    flag = shlex.quote(str(tmp_path / "flag"))
    script = f"if [ -e {flag} ]; then {answer('c16')}; fi; touch {flag}; {answer('c07')}"
    assert host(nvidia_smi=host.play(script))["gpu_count"] == 2
    # The failed one, the boards, their processes, the driver, and how the two are connected.
    assert [line.split()[0] for line in host.calls()[2:]] == [
        "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
        "--query-gpu=index,pci.bus_id,compute_mode,driver_version",
        "topo",
        "topo",
    ]


def test_it_is_asked_as_often_as_wanted(host):
    assert host(nvidia_smi=host.play(answer("c07")), tries=2)["failed"]
    assert len(host.calls()) == 2


def test_a_permanent_failure_is_asked_once(host):
    assert host(nvidia_smi=host.play(answer("c09")))["failed"]
    assert len(host.calls()) == 1


def test_a_hanging_tool_is_ended(host):
    result = host(nvidia_smi=host.play("exec sleep 60"), timeout_seconds=1)
    assert "did not answer within 1 s" in result["msg"]


def test_a_field_that_an_old_driver_does_not_know(host):
    row = "0, GPU-1, NVIDIA K80, 11441, 0, 11441"
    said = 'Field "compute_cap" is not a valid field to query.'
    script = f"""case "$*" in *compute_cap*) echo '{said}'; exit 2;; esac; echo '{row}, [N/A]'"""
    result = host(nvidia_smi=host.play(script))
    assert result["gpus"][0]["memory_total_mib"] == 11441
    assert result["gpus"][0]["compute_capability"] is None


FIRST, SECOND = "GPU-00000000-1111-2222-3333-444444444444", "GPU-00000001-1111-2222-3333-444444444444"


def with_apps(boards, apps):
    """A tool that answers with C(boards), and to the question for processes by the shell line C(apps)."""
    return f'case "$*" in *--query-compute-apps=gpu_uuid,pid,process_name,used_memory*) {apps};; esac; {answer(boards)}'


def test_the_processes_on_the_boards(host):
    lines = f"{FIRST}, 4242, sglang::scheduler_TP0, 75120\\n{FIRST}, 991, /opt/a b/python, [N/A]\\n"
    first, second = host(nvidia_smi=host.play(with_apps("c16", f"printf '{lines}'; exit 0")))["gpus"]
    assert (first["uuid"], second["uuid"]) == (FIRST, SECOND)
    assert first["processes"] == [
        {"pid": 4242, "name": "sglang::scheduler_TP0", "memory_mib": 75120},
        {"pid": 991, "name": "/opt/a b/python", "memory_mib": None},
    ]
    assert second["processes"] == []


@pytest.mark.parametrize(
    "apps",
    [
        "echo 'Field \"used_memory\" is not a valid field to query.'; exit 2",
        "echo '[N/A], [N/A], [N/A], [N/A]'; exit 0",
        "echo '[Not Supported]'; exit 0",
        "echo 'No running processes found'; exit 0",
        "exit 0",
        "exec sleep 60",
    ],
)
def test_processes_that_the_tool_does_not_tell_are_no_failure(host, apps):
    result = host(nvidia_smi=host.play(with_apps("c16", apps)), timeout_seconds=1)
    assert not result.get("failed")
    assert [gpu["processes"] for gpu in result["gpus"]] == [[], []]
    assert [gpu["memory_free_mib"] for gpu in result["gpus"]] == [5400, 81050]


def test_without_tools_the_cpu_is_taken(host):
    result = host(_ansible_check_mode=True)
    assert (result["device"], result["gpu_count"], result["changed"]) == ("cpu", 0, False)
    assert result["gpus"][0]["name"] == "cpu"
    assert result["gpus"][0]["memory_free_mib"] == 21724160 // 1024
    assert result["gpus"][0]["processes"] == []


def test_the_cpu_can_be_wanted(host):
    result = host(nvidia_smi=host.play(answer("c16")), device="cpu")
    assert result["device"] == "cpu"


@pytest.mark.parametrize("params", [{"device": "cuda"}, {"nvidia_smi": "/absent/nvidia-smi"}])
def test_a_tool_that_must_be_there(host, monkeypatch, params):
    monkeypatch.setattr(_gpu_host, "find_command", lambda module, name: None)
    result = host(**params)
    assert "found nothing: install the NVIDIA driver's tools" in result["msg"]


def test_boards_without_tools_are_a_warning(host, monkeypatch):
    boards = [_gpu_pci.PciBoard("0000:17:00.0", None)]
    monkeypatch.setattr(_gpu_host, "pci_boards", lambda: boards)
    assert host()["device"] == "cpu"


@pytest.mark.parametrize("params", [{"timeout_seconds": 0}, {"tries": -1}])
def test_options_that_cannot_be_right(host, params):
    assert "Expected at least 1 for the option" in host(**params)["msg"]


TOPOLOGY = {row["name"]: row for row in json.loads((DATA / "nvidia_smi_topo.json").read_text())}


def with_matrices(boards, name):
    """A tool that answers with C(boards), and to topo with the matrices of a public report."""
    links, peers = (shlex.quote(TOPOLOGY[name][key] or "") for key in ("links", "peers"))
    return f"""case "$*" in "topo -m") printf %s {links}; exit 0;; "topo -p2p r") printf %s {peers}; exit 0;; esac
{answer(boards)}"""


def test_which_boards_are_connected(host):
    result = host(nvidia_smi=host.play(with_matrices("c16", "two_5090_without_peers")))
    assert [gpu["nvlinks"] for gpu in result["gpus"]] == [[], []]
    assert [gpu["peers"] for gpu in result["gpus"]] == [[], []]
    assert result["full_nvlink"] is False
    result = host(nvidia_smi=host.play(with_matrices("c16", "two_a100_nvlink")))
    assert [gpu["nvlinks"] for gpu in result["gpus"]] == [[1], [0]]
    assert [gpu["peers"] for gpu in result["gpus"]] == [None, None]
    assert result["full_nvlink"] is True


def test_a_tool_that_does_not_tell_how_they_are_connected(host):
    script = f"""case "$1" in topo) echo 'Not Supported'; exit 3;; esac
{answer("c16")}"""
    result = host(nvidia_smi=host.play(script))
    assert result["full_nvlink"] is None
    assert not result.get("failed")


def test_a_hanging_topology_is_no_failure(host):
    script = f"""case "$1" in topo) exec sleep 60;; esac
{answer("c16")}"""
    result = host(nvidia_smi=host.play(script), timeout_seconds=1)
    assert (result["gpu_count"], result["full_nvlink"]) == (2, None)


def test_one_board_is_not_asked_whom_it_reaches(host):
    result = host(nvidia_smi=host.play(answer("c01")))
    assert result["full_nvlink"] is True
    assert not any("topo" in line for line in host.calls())
