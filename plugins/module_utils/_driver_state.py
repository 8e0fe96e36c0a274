# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. What state a host is in: does everything agree, is a reboot due, is the driver proven. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import upstream

# Prebuilt modules (Ubuntu) have the version of their kernel.
_PREBUILT = re.compile(r"^linux-modules-nvidia-\d{3}")
_KERNEL_PACKAGE = re.compile(r"dkms|kmod-nvidia|kernel-open|" + _PREBUILT.pattern)
_COMMON = re.compile(r"common|support|source")
_USER_PACKAGE = re.compile(r"^(libcuda1|libnvidia-ml1?|libnvidia-compute.*|nvidia-driver-cuda(-libs)?)$")
_FABRIC_PACKAGE = re.compile(r"^nvidia-fabric-?manager(-\d{3})?$")


def _version_of(packages, pattern, never=None):
    found = [
        upstream(version)
        for name, version in sorted(packages.items())
        if pattern.search(name) and not (never and never.search(name))
    ]
    return next((one for one in found if one), None)


def has_prebuilt(packages):
    """Return whether the kernel module came prebuilt, so that its package does not tell the driver's version."""
    return any(_PREBUILT.match(name) for name in packages)


def versions_of(packages, module=None):
    """Return driver versions of the installed kernel module, user space and fabric manager; None where none is.

    ``module``: what the file of a prebuilt module says; where it says nothing, it is taken to be that of user space.
    """
    user = _version_of(packages, _USER_PACKAGE)
    prebuilt = (module or user) if has_prebuilt(packages) else None
    return {
        "kernel_module": _version_of(packages, _KERNEL_PACKAGE, _COMMON) or prebuilt,
        "user_space": user,
        "fabric_manager": _version_of(packages, _FABRIC_PACKAGE),
    }


def loaded_flavour(text):
    """Return open, proprietary, or None for the text of /proc/driver/nvidia/version."""
    if "Kernel Module" not in (text or ""):
        return None
    return "open" if "Open Kernel Module" in text else "proprietary"


def installed_flavour(packages):
    """Return open or proprietary for the kernel module that is installed, None where none is."""
    names = [name for name in packages if _KERNEL_PACKAGE.search(name) and not _COMMON.search(name)]
    return ("open" if any("open" in name for name in names) else "proprietary") if names else None


def is_unpackaged(runfile, elsewhere, versions):
    """Return whether no package brought the driver that is loaded. Libraries beside it brought none.

    ``runfile``: of the .run installer; ``elsewhere``: a container's, or a module that lies in /lib/modules. Of a driver
    that packages brought no module is left there once they are removed: the loaded one goes with the boot.
    """
    return runfile or (elsewhere and versions["kernel_module"] is None)


def reboot_reasons(loaded, versions, rivals, boards, initramfs_pending, flavours=(None, None), unpackaged=False):
    """Return why the host must boot again before the installed driver serves, as sentences; empty when it need not.

    ``flavours``: of the loaded and of the installed kernel module. ``unpackaged``: the loaded driver is no package's
    (the .run installer's, a container's): packages do not tell what the next boot loads.
    Read from the host, never from what a run changed: a reboot that was put off stays due.
    """
    if loaded and unpackaged:
        return []
    reasons = []
    installed, user = versions["kernel_module"], versions["user_space"]
    if loaded and installed and loaded != installed:
        reasons.append(f"The kernel runs the driver {loaded}, installed is {installed}.")
    elif loaded and installed and None not in flavours and flavours[0] != flavours[1]:
        reasons.append(f"The kernel runs the {flavours[0]} module, installed is the {flavours[1]} one.")
    if loaded and user and user not in (loaded, installed):
        reasons.append(f"The libraries are {user}, the loaded driver is {loaded}: NVML refuses that.")
    if loaded and not installed and not user:
        reasons.append(f"The kernel still runs the driver {loaded}, no driver is installed.")
    if rivals and installed and not loaded:
        reasons.append(f"{', '.join(rivals)} holds the boards, and is kept out from the next boot on.")
    elif installed and boards and not loaded:
        reasons.append(f"The driver {installed} is installed, and not loaded.")
    if initramfs_pending and installed:
        reasons.append("The initramfs was not made anew since modules were kept out of it.")
    return list(dict.fromkeys(reasons))


# With MIG the place is followed by the instance: (PCI:0000:01:00 GPU-I:05) (open-gpu-kernel-modules, kernel_rc.c).
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)(.*)")
_PLACE = re.compile(r"GPU (?:at PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})")
_LOST = 79
_RECOVERY = 154  # "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": what is needed now
_NONE_NEEDED = re.compile(r"\bto 0x0\b")
_FATAL_LINK = re.compile(r"(?<![-\w])Fatal\b", re.IGNORECASE)  # not Nonfatal, not Non-Fatal


def _meaning(number, rest):
    """Return what an Xid means when a board is not fit to serve after it, else None."""
    if number in tables.NVLINK_XIDS:
        fatal = _FATAL_LINK.search(rest)
        return f"fatal NVLink error, {tables.NVLINK_XIDS[number]}" if fatal else None
    if number == _RECOVERY and _NONE_NEEDED.search(rest):
        return None
    return tables.FATAL_XIDS.get(number)


def fatal_xids(lines):
    """Return a sentence for each line of the kernel log after which a board is not fit to serve.

    A board that has fallen off the bus may be told without an Xid, in lines of which an earlier one has its place
    (NVIDIA/NVSentinel#155).
    """
    found, place = {}, "a board"
    for line in lines:
        match = _XID.search(line)
        meaning = match and _meaning(int(match.group(2)), match.group(3))
        if match and int(match.group(2)) == _RECOVERY:
            found.pop((match.group(1), _RECOVERY), None)  # the newest one counts
        if meaning:
            where, number = match.group(1), int(match.group(2))
            found[where, number] = f"The kernel log has Xid {number} of {where} since this boot ({meaning})."
        named = _PLACE.search(line)
        place = named.group(1) if named else place
        if not match and "fallen off the bus" in line:
            found.setdefault((place, _LOST), f"The kernel log says that {place} fell off the bus since this boot.")
    return list(found.values())


def kernel_signs(lines):
    """Return what explains boards that are not there: one sentence or none."""
    found = (sentence for sign, sentence, _source in tables.KERNEL_SIGNS if any(sign in line for line in lines))
    return list(found)[:1]


_FABRIC = re.compile(r"^ +Fabric *\n +State +: +(.+?) *$(?:\n +Status +: +(.+?) *$)?", re.MULTILINE)


def fabric_states(text):
    """Return (state, status) of the fabric for each board in the answer of ``nvidia-smi -q``.

    The status of a state that is not complete says nothing (NVML API reference, nvmlGpuFabricInfo_t).
    """
    found = [(match.group(1), match.group(2) or "Success") for match in _FABRIC.finditer(text)]
    return [(state, status if state == "Completed" else "") for state, status in found]


def fabric_problem(smi, boards):
    """Return why the boards are not one fabric, in one sentence, or None.

    ``smi``: text (of ``nvidia-smi -q``), boards and fabric_manager (whether it runs) of smi_of().
    """
    telling = [board for board in boards if board["generation"] in tables.FABRIC_STATE]
    if not telling:
        stopped = "The fabric manager does not run: see journalctl -u nvidia-fabricmanager."
        return None if smi["fabric_manager"] else stopped
    states = fabric_states(smi["text"])
    wanted = min(len(telling), len(smi["boards"]))
    complete = states.count(("Completed", "Success"))
    if complete >= wanted:
        return None
    others = sorted({": ".join(filter(None, one)) for one in states if one != ("Completed", "Success")})
    return (
        f"The fabric is not complete ({complete} of {wanted} boards; {', '.join(others) or 'no state'}): see"
        " journalctl -u nvidia-fabricmanager."
    )


def proof_problems(smi, loaded, versions, boards, expected_gpus, needs_fabric, kernel_lines):
    """Return why the driver is not proven, as sentences; empty when it is.

    ``smi``: boards (driver versions that it printed, one for each), sentence (of a failure, or None), text (of ``-q``)
    and whether the fabric manager runs. ``needs_fabric``: whether a fabric is to be proven.
    """
    answered = smi["sentence"] is None
    problems = [] if answered else [smi["sentence"]]
    seen = {
        "loaded": loaded,
        "installed": versions["kernel_module"],
        "user space": versions["user_space"],
        "nvidia-smi": smi["boards"][0] if smi["boards"] else None,
    }
    if needs_fabric:
        seen["fabric manager"] = versions["fabric_manager"]
    known = {name: version for name, version in seen.items() if version}
    if not loaded:
        problems.append("No driver is loaded.")
    if len(set(known.values())) > 1:
        problems.append("The versions differ: " + ", ".join(f"{name} {one}" for name, one in known.items()) + ".")
    wanted = len(boards) if expected_gpus is None else expected_gpus
    if answered and len(smi["boards"]) != wanted:
        where = "on the PCI bus" if expected_gpus is None else "in nvidia_driver_expected_gpus"
        problems.append(f"nvidia-smi lists {len(smi['boards'])} boards, expected are {wanted} {where}.")
    if needs_fabric and answered:
        problems += filter(None, [fabric_problem(smi, boards)])
    return problems + (kernel_signs(kernel_lines) if problems else []) + fatal_xids(kernel_lines)


_MIG_MODES = ("enabled", "disabled")


def mig_modes(text, wanted):
    """Return the boards whose MIG mode is to be switched, and those that wait for a reset or a boot, as indices.

    ``text``: rows ``index, mig.mode.current, mig.mode.pending`` of nvidia-smi; a board without MIG says [N/A].
    ``wanted``: enabled or disabled; with any other mode no board is to change.
    """
    switch, due = [], []
    for line in text.splitlines():
        index, _comma, rest = line.partition(",")
        current, pending = [*(word.strip().lower() for word in rest.split(",")), "", ""][:2]
        if current not in _MIG_MODES or wanted not in _MIG_MODES:
            continue
        pending = pending if pending in _MIG_MODES else current
        if pending != wanted:
            switch.append(index.strip())
        elif current != wanted:
            due.append(index.strip())
    return {"switch": switch, "due": due}
