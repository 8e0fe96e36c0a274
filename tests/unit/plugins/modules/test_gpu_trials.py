# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Public reports about nvidia-smi (tests/data/gpu/trials.yaml): gpu_info as a task runs it, value by value."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from ansible.module_utils import basic

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu_host, _gpu_pci
from ansible_collections.gpufleet.sglang.plugins.modules import gpu_info
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module

DATA = Path(__file__).resolve().parents[3] / "data" / "gpu" / "trials.yaml"
TRIALS = {row["id"]: row for row in yaml.safe_load(DATA.read_text())}
MEMINFO = "MemTotal:       24689764 kB\nMemAvailable:   21724160 kB\n"
KEYS = {"result", "gpus", "problems", "warnings", "fails", "says", "says_not"}


def played(folder, calls):
    """Write an nvidia-smi that answers C(calls) and counts them; what it is not told, it does not know."""
    lines = ["#!/bin/sh", f'echo "$LC_ALL $*" >> {shlex.quote(str(folder / "asked"))}', 'case "$*" in']
    for call in calls:
        out, err = (shlex.quote(call.get(stream, "")) for stream in ("stdout", "stderr"))
        done = "sleep 60" if call.get("hangs") else f"printf %s {out}; printf %s {err} >&2; exit {call.get('rc', 0)}"
        lines.append(f'*"{call["asks"]}"*) {done};;')
    lines += ["esac", "echo 'Invalid combination of input arguments.'", "exit 2"]
    path = folder / "nvidia-smi"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


def tried(trial, folder, monkeypatch):
    """(result of the module, what the tool was asked) for a report."""
    host = trial.get("host", {})
    files = {
        "/proc/meminfo": host.get("meminfo", MEMINFO),
        "/proc/driver/nvidia/version": host.get("driver_module", ""),
    }
    boards = [_gpu_pci.PciBoard(one["address"], one["driver"]) for one in host.get("pci", [])]
    monkeypatch.setattr(_gpu_host, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(_gpu_host, "read_text", lambda path: files.get(path, ""))
    monkeypatch.setattr(_gpu_host, "pci_boards", lambda: boards)
    monkeypatch.setattr(_gpu_host, "held_addresses", lambda: host.get("held", []))
    monkeypatch.setattr(_gpu_host, "library_version", lambda: host.get("library"))
    # Ansible keeps warnings for the whole process.
    warnings = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda module, text: warnings.append(text))
    hangs = any(call.get("hangs") for call in trial["calls"])
    result = run_module(gpu_info, {"nvidia_smi": played(folder, trial["calls"]), "timeout_seconds": 1 if hangs else 20})
    return dict(result, warnings=warnings), (folder / "asked").read_text().splitlines()


def part_of(wanted, found):
    return {key: found.get(key, "(no such key)") for key in wanted}


def assert_sentences(found, parts):
    assert len(found) == len(parts), found
    for sentence, part in zip(found, parts):
        assert part in sentence


@pytest.mark.parametrize("name", TRIALS)
def test_a_report(name, tmp_path, monkeypatch):
    trial = TRIALS[name]
    expected = trial["expected"]
    result, asked = tried(trial, tmp_path, monkeypatch)
    assert bool(result.get("failed")) is ("fails" in expected), result
    assert all(line.startswith("C ") for line in asked)
    if "asked" in trial:
        assert len([line for line in asked if trial["calls"][0]["asks"] in line]) == trial["asked"]
    for key in ("result", "fails"):
        assert part_of(expected.get(key, {}), result) == expected.get(key, {})
    for part in expected.get("says", []):
        assert part in result["msg"]
    for part in expected.get("says_not", []):
        assert part not in result["msg"]
    if "fails" in expected:
        assert "\n" not in result["msg"]
        return
    if "gpus" in expected:
        found = [part_of(wanted, gpu) for wanted, gpu in zip(expected["gpus"], result["gpus"])]
        assert (found, len(result["gpus"])) == (expected["gpus"], len(expected["gpus"]))
    if "problems" in expected:
        assert_sentences(result["problems"], expected["problems"])
    for part in expected.get("warnings", []):
        assert any(part in sentence for sentence in result["warnings"]), result["warnings"]


@pytest.mark.parametrize("name", TRIALS)
def test_a_report_is_well_formed(name):
    """A key that is misspelt would expect nothing."""
    trial = TRIALS[name]
    assert trial["source"].startswith("https://github.com/")
    assert set(trial) - {"host", "asked"} == {"id", "source", "what", "calls", "expected"}
    assert set(trial["expected"]) - KEYS == set()
    assert set(trial.get("host", {})) - {"meminfo", "driver_module", "library", "pci", "held"} == set()
    assert {key for call in trial["calls"] for key in call} - {"asks", "rc", "stdout", "stderr", "hangs"} == set()


def test_a_reading_without_trouble_is_few_questions(tmp_path, monkeypatch):
    """Each takes 1 to 3 seconds where no persistence daemon holds the driver."""
    assert len(tried(TRIALS["c01"], tmp_path, monkeypatch)[1]) == 3
