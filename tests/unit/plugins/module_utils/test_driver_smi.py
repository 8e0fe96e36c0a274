# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says for a proof: _driver_smi, with a tool that is played. Its words are those of real reports."""

from __future__ import annotations

import time

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_smi, _gpu_host
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_pci import PciBoard


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """Two boards that the driver holds, and the library 580.105.08 beside the loaded module 580.95.05."""
    monkeypatch.setattr(_gpu_host, "pci_boards", lambda: [PciBoard(f"0000:0{one}:00.0", "nvidia") for one in (1, 2)])
    monkeypatch.setattr(_gpu_host, "library_version", lambda: "580.105.08")
    loaded = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    monkeypatch.setattr(_gpu_host, "read_text", lambda path: loaded)


def tool(tmp_path, body):
    path = tmp_path / "nvidia-smi"
    path.write_text("#!/bin/sh\n" + body + "\n")
    path.chmod(0o755)
    return str(path)


TWO = "echo 580.95.05; echo 580.95.05; "


@pytest.mark.parametrize(
    ("body", "boards", "said"),
    [
        (TWO, 2, None),
        (TWO + "echo 'WARNING: infoROM is corrupted at gpu 0000:65:00.0'; exit 14", 2, None),
        (
            "echo 580.95.05; echo 'Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.'",
            1,
            "reports a lost board (Unable to determine the device handle for GPU 0000:0B:00.0",
        ),
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'",
            0,
            "(library 580.105.08, loaded kernel module 580.95.05)",
        ),
        ("echo 'No devices were found'; exit 6", 0, "(2 NVIDIA boards on PCI, bound to nvidia: 2)"),
        ("exit 12", 0, "does not find the library libnvidia-ml.so (status 12)"),
        ("echo what; exit 42", 0, "ended with status 42 (what)"),
        ("exit 14", 0, "ended with status 14 (no output)"),
        ("true", 0, None),
    ],
)
def test_what_it_says(tmp_path, body, boards, said):
    found = _driver_smi.ask(tool(tmp_path, body), False)
    assert (len(found["boards"]), found["text"]) == (boards, "")
    assert found["sentence"] is None if said is None else said in found["sentence"]


def test_one_that_hangs_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(_driver_smi, "SMI_SECONDS", 0.2)
    began = time.monotonic()
    found = _driver_smi.ask(tool(tmp_path, "sleep 30"), True)
    assert "did not answer within 0.2 s" in found["sentence"]
    assert time.monotonic() - began < 10


def test_the_fabric_is_asked_for_where_one_is_to_be_proven(tmp_path):
    body = 'if [ "$1" = -q ]; then echo "    Fabric"; else ' + TWO + "fi"
    assert _driver_smi.ask(tool(tmp_path, body), True)["text"] == "    Fabric\n"
    assert _driver_smi.ask(tool(tmp_path, body), False)["text"] == ""


def test_mig_modes_beside_a_warning(tmp_path):
    warning = "echo 'WARNING: infoROM is corrupted at gpu 0000:65:00.0'"
    rows = f"echo '0, Enabled, Enabled'; {warning}; echo '1, [N/A], [N/A]'"
    assert _driver_smi.mig_of(tool(tmp_path, rows + "; exit 14")) == "0, Enabled, Enabled\n1, [N/A], [N/A]\n"
    with pytest.raises(DriverError, match="couldn't communicate"):
        _driver_smi.mig_of(tool(tmp_path, "exit 9"))
