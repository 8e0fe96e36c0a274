# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boards, which flavour, which branch, which repository: _driver and its tables."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver, _driver_tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.95.05-1", "580.95.05"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("580.178.04-0ubuntu1", "580.178.04"),
        ("535.309.01-0+deb12u1", "535.309.01"),
        ("590.48.01", "590.48.01"),
        ("580.142-1", "580.142"),
        ("1.18.1-1", None),  # nvidia-container-toolkit
        ("11.8.89~11.8.0-5~deb12u1", None),  # nvidia-cuda-toolkit
        ("2025.06.11-1", None),  # nvlsm
        ("20220217+3~deb12u1", None),  # nvidia-support
        ("", None),
        (None, None),
    ],
)
def test_the_driver_in_the_version_of_a_package(version, expected):
    assert _driver.upstream(version) == expected


def test_versions_are_sorted_as_numbers():
    assert sorted(["580.105.08", "580.95.05", "570.195.03"], key=_driver.order) == [
        "570.195.03",
        "580.95.05",
        "580.105.08",
    ]


def test_a_branch_or_an_exact_version():
    assert _driver.wanted_version("580") == (580, None)
    assert _driver.wanted_version(580) == (580, None)
    assert _driver.wanted_version("580.95.05") == (580, "580.95.05")


@pytest.mark.parametrize("text", ["latest", "58", "580.", "580.95.05-1", ">=580", "5800", "580.95.05\n"])
def test_anything_else_is_refused(text):
    with pytest.raises(DriverError, match="nvidia_driver_min_version"):
        _driver.wanted_version(text, "nvidia_driver_min_version")
    with pytest.raises(DriverError, match="nvidia_driver_version"):
        _driver.wanted_version(text)


# Ids of boards that people have, from pci.ids; generations from NVIDIA's lists of CUDA GPUs.
KNOWN = [
    (0x102D, "kepler"),  # K80
    (0x13F2, "maxwell"),  # M60
    (0x15F8, "pascal"),  # P100 PCIe
    (0x1B38, "pascal"),  # P40
    (0x1DB6, "volta"),  # V100 PCIe 32 GB
    (0x1EB8, "turing"),  # T4
    (0x2182, "turing"),  # GTX 1660 Ti
    (0x20B2, "ampere"),  # A100 SXM4 80 GB
    (0x2204, "ampere"),  # RTX 3090
    (0x2235, "ampere"),  # A40
    (0x2330, "hopper"),  # H100 SXM5
    (0x2335, "hopper"),  # H200 SXM
    (0x2342, "hopper"),  # GH200
    (0x2684, "ada"),  # RTX 4090
    (0x26B9, "ada"),  # L40S
    (0x27B8, "ada"),  # L4
    (0x2901, "blackwell"),  # B200
    (0x2941, "blackwell"),  # GB200
    (0x2B85, "blackwell"),  # RTX 5090
    (0x2BB1, "blackwell"),  # RTX PRO 6000
    (0x2E12, "blackwell"),  # GB10
    (0x3182, "blackwell"),  # B300
    (0x3500, "newer"),
    (0x1091, "older"),  # Tesla M2090, Fermi
    (0x06D1, "older"),  # Tesla C2050, Fermi
    (0x1201, "older"),  # GTX 560, Fermi
    (0x12FF, None),
]


@pytest.mark.parametrize(("device", "generation"), KNOWN)
def test_generation_by_pci_id(device, generation):
    assert _driver.generation_of(device) == generation


def test_ranges_do_not_overlap():
    rows = sorted(_driver_tables.RANGES, key=lambda row: row.first)
    assert all(one.first <= one.last < other.first for one, other in zip(rows, rows[1:]))


def test_every_row_of_a_table_has_a_source_and_a_known_generation():
    for row in (
        *_driver_tables.RANGES,
        *_driver_tables.FLAVOURS,
        *_driver_tables.BRANCHES,
        *_driver_tables.REPOSITORIES,
    ):
        assert row.source
    assert {row.generation for row in _driver_tables.RANGES} <= set(_driver_tables.GENERATIONS)
    assert [row.generation for row in _driver_tables.FLAVOURS] == list(_driver_tables.GENERATIONS)
    assert all(row.oldest in _driver_tables.GENERATIONS for row in _driver_tables.BRANCHES)


def test_a_key_has_a_whole_fingerprint_that_ends_as_its_file_is_called():
    """NVIDIA calls the file of a key after the last eight digits of its fingerprint."""
    for row in _driver_tables.REPOSITORIES:
        assert re.fullmatch(r"[0-9A-F]{40}", row.fingerprint), row
        assert row.key.upper() == row.fingerprint[-8:] + ".PUB", row


def pci(device, kind="0x030200", vendor="0x10de", address="0000:01:00.0"):
    return {"address": address, "vendor": vendor + "\n", "class": kind + "\n", "device": device + "\n"}


def test_boards_and_switches_of_a_baseboard():
    boards, switches = _driver.boards_and_switches(
        [
            pci("0x2330"),
            pci("0x22a3", "0x068000"),  # NVSwitch of an H100 baseboard
            pci("0x1533", "0x020000", "0x8086"),  # another vendor
            pci("0x10f9", "0x040300"),  # the sound device of a graphics board
        ]
    )
    assert boards == [{"address": "0000:01:00.0", "device": "10de:2330", "generation": "hopper"}]
    assert switches == 1
    assert _driver.fabric_of(boards, switches) == (True, False)


def test_switches_of_blackwell_baseboards_are_no_pci_devices():
    boards, switches = _driver.boards_and_switches([pci("0x2901"), pci("0x2901", address="0000:02:00.0")])
    assert switches == 0
    assert _driver.fabric_of(boards, switches) == (True, True)
    # One board passed through to a virtual machine has no fabric.
    assert _driver.fabric_of(boards[:1], 0) == (False, False)


def test_boards_without_a_switch_need_no_fabric_manager():
    boards, switches = _driver.boards_and_switches([pci("0x26b9"), pci("0x26b9", address="0000:02:00.0")])
    assert _driver.fabric_of(boards, switches) == (False, False)


def boards_of(*generations):
    return [
        {"address": f"0000:0{number}:00.0", "device": "10de:2330", "generation": one}
        for number, one in enumerate(generations)
    ]


@pytest.mark.parametrize(
    ("generations", "flavour"),
    [
        (["hopper"] * 8, "open"),
        (["turing", "ada"], "open"),
        (["blackwell"], "open"),
        (["newer"], "open"),
        (["volta"], "proprietary"),
        (["volta", "ampere"], "proprietary"),
        ([], "open"),
        ([None], "open"),
    ],
)
def test_flavour_by_generation(generations, flavour):
    assert _driver.flavour_for(boards_of(*generations)) == flavour


def test_a_flavour_that_does_not_know_the_boards_is_refused():
    with pytest.raises(DriverError, match="2 x blackwell"):
        _driver.flavour_for(boards_of("blackwell", "blackwell"), "proprietary")
    with pytest.raises(DriverError, match="1 x volta"):
        _driver.flavour_for(boards_of("volta"), "open")
    assert _driver.flavour_for(boards_of("ampere"), "proprietary") == "proprietary"


def test_a_board_that_no_driver_of_today_serves_gets_no_modules():
    for wanted in ("auto", "open", "proprietary"):
        with pytest.raises(DriverError, match="10de:2330 at 0000:01:00.0, older than Kepler"):
            _driver.flavour_for(boards_of("hopper", "older"), wanted)


def test_boards_that_no_flavour_serves_together():
    with pytest.raises(DriverError, match="1 x blackwell, 1 x volta"):
        _driver.flavour_for(boards_of("volta", "blackwell"))


@pytest.mark.parametrize(
    ("branch", "generation", "fits"),
    [
        (580, "volta", True),
        (590, "volta", False),
        (595, "pascal", False),
        (550, "blackwell", False),
        (570, "blackwell", True),
        (580, "hopper", True),
        (999, "volta", True),  # nobody knows it: tried
        (580, None, True),
    ],
)
def test_branch_and_boards(branch, generation, fits):
    problem = _driver.branch_problem(branch, boards_of(generation))
    assert (problem is None) is fits


def test_the_repository_of_a_distribution():
    assert _driver.vendor_repository({"distribution": "debian", "major": "12", "architecture": "x86_64"}) == {
        "url": "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64",
        "key": "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub",
        "fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
    }
    arm = _driver.vendor_repository({"distribution": "ubuntu", "major": "24.04", "architecture": "aarch64"})
    assert arm["url"].endswith("/ubuntu2404/sbsa")
    with pytest.raises(DriverError, match="debian 11"):
        _driver.repository_for("debian", "11")


def test_names_of_packages_by_branch():
    assert _driver.layout_for("local", "ubuntu", 580).open_dkms == "nvidia-dkms-{branch}-open"
    assert _driver.layout_for("nvidia", "ubuntu", 590).open_dkms == "nvidia-dkms-open"
    assert _driver.layout_for("nvidia", "debian", 570).fabric == "nvidia-fabricmanager-{branch}"
    assert _driver.layout_for("nvidia", "debian", 580).fabric == "nvidia-fabricmanager"
    with pytest.raises(DriverError, match="branch 535"):
        _driver.layout_for("nvidia", "debian", 535)


def test_layouts_do_not_overlap():
    seen = {}
    for row in _driver_tables.LAYOUTS:
        for branch in range(row.first_branch, min(row.last_branch, 999) + 1):
            assert (row.source, row.distribution, branch) not in seen
            seen[row.source, row.distribution, branch] = row


HERE = {"machine_id": "3d1219c7", "boot_id": "aaaa", "container": False}


@pytest.mark.parametrize(
    ("host", "same"),
    [
        (HERE, True),
        (dict(HERE, boot_id="bbbb"), False),  # a clone
        (dict(HERE, machine_id="0fe2"), True),  # the controller is a container of this host
        (dict(HERE, machine_id="0fe2", container=True), False),  # the host is a container beside the controller
        (dict(HERE, container=True), True),  # the play runs in the container that it is to boot
        ({"machine_id": "", "boot_id": "", "container": False}, False),
    ],
)
def test_a_host_that_is_the_controller(host, same):
    assert _driver.same_machine(host, HERE) is same


def test_nothing_known_of_either_is_no_sameness():
    nothing = {"machine_id": "", "boot_id": "", "container": False}
    assert _driver.same_machine(nothing, nothing) is False
