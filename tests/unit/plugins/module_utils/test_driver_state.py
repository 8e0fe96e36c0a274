# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a reboot due, and is the driver proven: _driver_state."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_state

BOARDS = [{"address": "0000:01:00.0", "device": "10de:2330", "generation": "hopper"}]
OPEN_TEXT = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3)\n"
CLOSED_TEXT = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu Dec 28 15:37:48 UTC 2023\n"


def versions(kernel_module="580.95.05", user_space="580.95.05", fabric_manager=None):
    return {"kernel_module": kernel_module, "user_space": user_space, "fabric_manager": fabric_manager}


def test_versions_of_packages():
    packages = {
        "nvidia-kernel-common": "570.195.03-1",
        "nvidia-kernel-open-dkms": "580.95.05-1",
        "libcuda1": "580.95.05-1",
        "nvidia-fabricmanager": "580.95.05-1",
    }
    assert _driver_state.versions_of(packages) == versions(fabric_manager="580.95.05")
    ubuntu = {"nvidia-dkms-580-open": "580.95.05-0ubuntu1", "libnvidia-compute-580": "580.95.05-0ubuntu1"}
    assert _driver_state.versions_of(ubuntu) == versions()
    rpm = {"kmod-nvidia-open-dkms": "3:580.95.05-1.el9", "nvidia-driver-cuda-libs": "3:580.95.05-1.el9"}
    assert _driver_state.versions_of(rpm) == versions()
    assert _driver_state.versions_of({}) == versions(None, None)


def test_the_flavour_that_is_loaded():
    assert _driver_state.loaded_flavour(OPEN_TEXT) == "open"
    assert _driver_state.loaded_flavour(CLOSED_TEXT) == "proprietary"
    assert _driver_state.loaded_flavour("") is None


@pytest.mark.parametrize(
    ("loaded", "installed", "rivals", "pending", "said"),
    [
        ("580.95.05", versions(), [], False, None),
        ("570.195.03", versions(), [], False, "The kernel runs the driver 570.195.03, installed is 580.95.05."),
        ("580.95.05", versions(None, "580.105.08"), [], False, "NVML refuses that"),
        ("580.95.05", versions(None, None), [], False, "still runs the driver 580.95.05"),
        (None, versions(), ["nouveau"], False, "nouveau holds the boards"),
        (None, versions(), [], False, "not loaded"),
        ("580.95.05", versions(), [], True, "initramfs"),
        (None, versions(None, None), ["nouveau"], True, None),
    ],
)
def test_why_a_reboot_is_due(loaded, installed, rivals, pending, said):
    reasons = _driver_state.reboot_reasons(loaded, installed, rivals, BOARDS, pending)
    if said is None:
        assert reasons == []
    else:
        assert len(reasons) == 1
        assert said in reasons[0]


@pytest.mark.parametrize(
    ("flavours", "due"),
    [(("open", "proprietary"), True), (("open", "open"), False), ((None, "open"), False), (("open", None), False)],
)
def test_another_flavour_of_the_same_version_needs_a_boot(flavours, due):
    reasons = _driver_state.reboot_reasons("580.95.05", versions(), [], BOARDS, False, flavours)
    assert bool(reasons) is due
    assert not due or "runs the open module, installed is the proprietary one" in reasons[0]


def test_the_flavour_that_is_installed():
    assert _driver_state.installed_flavour({"nvidia-kernel-open-dkms": "1", "nvidia-kernel-common": "1"}) == "open"
    closed = {"nvidia-kernel-dkms": "1", "nvidia-open-kernel-support": "1"}
    assert _driver_state.installed_flavour(closed) == "proprietary"
    assert _driver_state.installed_flavour({"kmod-nvidia-latest-dkms": "1"}) == "proprietary"
    assert _driver_state.installed_flavour({"libcuda1": "1"}) is None


def test_without_boards_nothing_has_to_be_loaded():
    assert _driver_state.reboot_reasons(None, versions(), [], [], False) == []


def smi(boards=("580.95.05",), text="", sentence=None, fabric_manager=True):
    return {"boards": list(boards), "text": text, "sentence": sentence, "fabric_manager": fabric_manager}


def problems(answer=None, loaded="580.95.05", installed=None, expected=None, fabric=False, log=(), boards=None):
    return _driver_state.proof_problems(
        answer or smi(), loaded, installed or versions(), boards or BOARDS, expected, fabric, list(log)
    )


def test_a_driver_that_serves():
    assert problems() == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (problems(smi((), sentence="nvidia-smi reports a driver/library version mismatch.")), "version mismatch"),
        (problems(loaded=None), "No driver is loaded."),
        (problems(loaded="570.195.03"), "loaded 570.195.03, installed 580.95.05"),
        (problems(installed=versions(user_space="580.105.08")), "user space 580.105.08"),
        (problems(smi(boards=())), "lists 0 boards, expected are 1 on the PCI bus"),
        (problems(expected=2), "expected are 2 in nvidia_driver_expected_gpus"),
        (problems(log=["NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."]), "Xid 79 of 0000:01:00"),
    ],
)
def test_why_it_is_not_proven(found, said):
    assert any(said in one for one in found), found


def test_an_xid_of_a_program_is_no_fault_of_the_board():
    assert problems(log=["NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=python, MMU Fault"]) == []


def test_what_the_kernel_says_explains_boards_that_are_not_there():
    """The lines are of open-gpu-kernel-modules#862 and #872. A board that came up in the end needs no explanation."""
    log = ["NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)"]
    assert "Above 4G decoding" in problems(smi(boards=()), log=log)[-1]
    assert problems(log=log) == []
    flavour = "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
    found = problems(smi(boards=()), log=[flavour, *log])
    assert len(found) == 2
    assert "wants the open kernel modules" in found[1]


FABRIC = "GPU 00000000:0{0}:00.0\n    Fabric\n        State                             : {1}\n        Status{2}\n"
STATUS = "                            : {0}\n        CliqueId                          : 0"


def fabric(*boards, generation="hopper", fabric_manager=True):
    """What is wrong with a fabric of as many boards as there are (state, status)."""
    text = "".join(FABRIC.format(place, state, STATUS.format(status)) for place, (state, status) in enumerate(boards))
    answer = smi(boards=["580.95.05"] * len(boards), text=text, fabric_manager=fabric_manager)
    found = [dict(BOARDS[0], generation=generation) for _board in boards]
    installed = versions(fabric_manager="580.95.05")
    return problems(answer, installed=installed, fabric=True, boards=found)


COMPLETE = ("Completed", "Success")


def test_the_fabric_is_complete():
    assert fabric(COMPLETE, COMPLETE) == []
    assert fabric(COMPLETE, COMPLETE, generation="blackwell") == []


@pytest.mark.parametrize(
    ("board", "said"),
    [
        (("In Progress", "N/A"), "(1 of 2 boards; In Progress)"),
        (("N/A", "N/A"), "(1 of 2 boards; N/A)"),
        (("Completed", "Insufficient Resources"), "(1 of 2 boards; Completed: Insufficient Resources)"),
    ],
)
def test_one_board_that_is_not_in_the_fabric(board, said):
    assert said in fabric(COMPLETE, board)[0]


def test_a_fabric_of_which_nothing_is_told():
    installed = versions(fabric_manager="580.95.05")
    assert "(0 of 1 boards; no state)" in problems(installed=installed, fabric=True)[0]


def test_boards_before_hopper_tell_no_state_and_their_fabric_manager_counts():
    nothing = ("N/A", "N/A")
    assert fabric(nothing, nothing, generation="ampere") == []
    found = fabric(nothing, nothing, generation="ampere", fabric_manager=False)
    assert found == ["The fabric manager does not run: see journalctl -u nvidia-fabricmanager."]


def test_a_fabric_manager_of_another_version():
    found = problems(installed=versions(fabric_manager="580.105.08"), fabric=True)
    assert "fabric manager 580.105.08" in found[0]


def test_packages_do_not_tell_what_a_driver_of_the_installer_does_at_the_next_boot():
    """Otherwise each run would boot the host, and no boot would help."""
    for found in (versions(None, None), versions(None, "570.195.03")):
        assert _driver_state.reboot_reasons("580.95.05", found, [], BOARDS, False, unpackaged=True) == []
    left = _driver_state.reboot_reasons(None, versions(), ["nouveau"], BOARDS, False, unpackaged=True)
    assert "nouveau holds the boards" in left[0], "nothing is loaded: the packages count"


PREBUILT = {
    "linux-modules-nvidia-580-server-open-6.8.0-79-generic": "6.8.0-79.79+1",
    "libnvidia-compute-580-server": "580.95.05-0ubuntu1",
}


def test_a_prebuilt_module_has_the_version_of_its_file_or_of_user_space():
    assert _driver_state.versions_of(PREBUILT) == versions()
    assert _driver_state.versions_of(PREBUILT, "580.105.08") == versions("580.105.08")
    assert _driver_state.installed_flavour(PREBUILT) == "open"
    reasons = _driver_state.reboot_reasons(None, _driver_state.versions_of(PREBUILT), ["nouveau"], BOARDS, True)
    assert len(reasons) == 2
    storage = {"linux-modules-nvidia-fs-6.8.0-79-generic": "6.8.0-79.79+1"}
    assert _driver_state.has_prebuilt(storage) is False, "GPUDirect storage is no driver"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 95, pid=7062, Uncontained: LTC TAG", "Xid 95 of 0000:01:00"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 119, pid=9, name=a, Timeout", "Xid 119 of 0000:3b:00"),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6)", "fatal NVLink error"),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226)", None),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Non-Fatal XC0 i0 Link 09 (0x025525c6)", None),
        (
            "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "Xid 154 of 0000:41:00 since this boot (recovery action required)",
        ),
        (
            "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
            None,
        ),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9)", None),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "0000:01:00 fell off the bus"),
    ],
)
def test_what_the_kernel_log_says_of_boards_in_other_forms(line, said):
    found = _driver_state.fatal_xids([line])
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_the_newest_recovery_action_of_a_board_counts():
    """The form is of public logs, the way back of its own words: no log of one was found."""
    needed = "NVRM: Xid (PCI:0000:{}:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    over = "NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert _driver_state.fatal_xids([needed.format(41), over]) == []
    assert len(_driver_state.fatal_xids([needed.format(41), over, needed.format(41)])) == 1
    assert len(_driver_state.fatal_xids([needed.format(42), over])) == 1, "another board"


def test_a_board_that_fell_off_the_bus_without_an_xid():
    """The lines are of NVSentinel#155; with an Xid the same is told once."""
    lines = [
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    ]
    assert _driver_state.fatal_xids(lines) == ["The kernel log says that 0000:b3:00 fell off the bus since this boot."]
    both = [
        "NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.",
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
    ]
    assert len(_driver_state.fatal_xids(both)) == 1


@pytest.mark.parametrize(
    ("text", "wanted", "switch", "due"),
    [
        ("0, Disabled, Disabled\n1, Enabled, Enabled\n", "enabled", ["0"], []),
        ("0, Disabled, Disabled\n1, Enabled, Enabled\n", "disabled", ["1"], []),
        ("0, Disabled, Enabled\n", "enabled", [], ["0"]),  # asked for, and waits for a reset
        ("0, Disabled, Enabled\n", "disabled", ["0"], []),  # somebody asked for another
        ("0, [N/A], [N/A]\n", "enabled", [], []),
        ("0, Enabled, [N/A]\n", "enabled", [], []),
        ("", "enabled", [], []),
        ("0, Disabled, Disabled\n1, Enabled, Enabled\n2, Disabled, Enabled\n", "keep", [], []),
    ],
)
def test_mig_by_board(text, wanted, switch, due):
    assert _driver_state.mig_modes(text, wanted) == {"switch": switch, "due": due}


@pytest.mark.parametrize(
    ("runfile", "elsewhere", "kernel_module", "unpackaged"),
    [
        (True, False, None, True),
        (False, True, None, True),
        (False, True, "580.95.05", False),
        (False, False, None, False),
    ],
    ids=[".run", "a container's, beside old libraries", "DKMS", "removed"],
)
def test_libraries_alone_bring_no_driver(runfile, elsewhere, kernel_module, unpackaged):
    versions = {"kernel_module": kernel_module, "user_space": "535.247.01", "fabric_manager": None}
    assert _driver_state.is_unpackaged(runfile, elsewhere, versions) is unpackaged
