# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. Versions, and which boards stand on the PCI bus. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import re
from collections import Counter

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_tables as tables

NVIDIA = 0x10DE
# PCI classes: VGA and 3D controllers are boards, "other bridge" of NVIDIA is an NVSwitch.
BOARD_CLASSES = (0x0300, 0x0302)
BRIDGE_CLASS = 0x0680
_VERSION = re.compile(r"^(?:\d+:)?(\d{3}\.\d{2,3}(?:\.\d{2,3})?)(?![\d.])")
_WANTED = re.compile(r"\d{3}(?:\.\d{2,3}(?:\.\d{2,3})?)?")


class DriverError(ValueError):
    """Something that cannot be decided. The text is one sentence."""


def upstream(version):
    """Return the driver version in that of a package (``3:580.95.05-1.el9`` -> ``580.95.05``), None when it is none."""
    match = _VERSION.match(version or "")
    return match.group(1) if match else None


def order(version):
    """Return what versions of drivers are sorted by."""
    return tuple(int(part) for part in version.split("."))


def branch_of(version):
    """Return the branch of a driver version as a number."""
    return int(version.split(".")[0])


def wanted_version(text, variable="nvidia_driver_version"):
    """Return (branch, exact version or None). Raises DriverError for what is neither a branch nor a version."""
    text = str(text)
    if not _WANTED.fullmatch(text):
        raise DriverError(
            f"Expected a branch such as 580 or an exact version such as 580.95.05 in {variable}, found {text!r}."
        )
    return branch_of(text), text if "." in text else None


def generation_of(device):
    """Return the generation of a PCI device id, None for one that no table knows."""
    for row in tables.RANGES:
        if row.first <= device <= row.last:
            return row.generation
    return "newer" if device >= tables.NEWER_FROM else None


def _number(text):
    try:
        return int(text.strip(), 16)
    except ValueError:
        return -1


def boards_and_switches(devices):
    """Return (boards, number of NVSwitches).

    ``devices``: one dictionary for each PCI device with address, vendor, class and device as /sys prints them. A board
    is a dictionary with address, device (``10de:2330``) and generation.
    """
    boards, switches = [], 0
    for one in devices:
        kind, device = _number(one["class"]) >> 8, _number(one["device"])
        if _number(one["vendor"]) != NVIDIA:
            continue
        if kind in BOARD_CLASSES:
            boards.append(
                {"address": one["address"], "device": f"10de:{device:04x}", "generation": generation_of(device)}
            )
        elif kind == BRIDGE_CLASS:
            switches += 1
    return boards, switches


def fabric_of(boards, switches):
    """Return whether the host needs (fabric manager, NVLSM)."""
    baseboard = [board for board in boards if int(board["device"][5:], 16) in tables.BLACKWELL_BASEBOARD]
    needs_nvlsm = len(baseboard) > 1
    return switches > 0 or needs_nvlsm, needs_nvlsm


def _served(row):
    return row.open or row.proprietary


def flavour_for(boards, wanted="auto"):
    """Return open or proprietary for these boards.

    Open is taken where both do, and where no board is seen. Raises DriverError when no flavour serves every board, or
    the wanted one does not.
    """
    rows = {row.generation: row for row in tables.FLAVOURS}
    lost = [one for one in boards if one["generation"] in rows and not _served(rows[one["generation"]])]
    if lost:
        found = ", ".join(f"{one['device']} at {one['address']}" for one in lost[:4])
        raise DriverError(
            f"Expected boards that a driver of today serves, found {found}, older than Kepler: take it out of the host."
        )
    known = [board for board in boards if board["generation"] in rows]
    fits = {name: all(getattr(rows[board["generation"]], name) for board in known) for name in ("open", "proprietary")}
    shown = _shown(known)
    if wanted != "auto":
        if not fits[wanted]:
            raise DriverError(
                f"Expected kernel modules that know every board, found {wanted} ones wanted for {shown}: set"
                " nvidia_driver_kernel_module to auto."
            )
        return wanted
    if fits["open"]:
        return "open"
    if fits["proprietary"]:
        return "proprietary"
    raise DriverError(
        f"Expected boards that one driver serves, found {shown}: the older ones need proprietary kernel modules and the"
        " newer ones open ones, so take one kind out of the host."
    )


def _shown(boards):
    counts = Counter(board["generation"] for board in boards)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "no board"


def branch_problem(branch, boards):
    """Return why a branch does not serve the boards, in one sentence, or None. Unknown branches are tried."""
    row = next((row for row in tables.BRANCHES if row.number == branch), None)
    if row is None:
        return None
    place = tables.GENERATIONS.index
    for board in boards:
        if board["generation"] is None:
            continue
        here = place(board["generation"])
        if not place(row.oldest) <= here <= place(row.newest):
            return (
                f"Expected a branch that knows {board['generation']} boards, found nvidia_driver_version {branch}"
                f" ({row.oldest} to {row.newest}) for {board['device']} at {board['address']}: choose another branch."
            )
    return None


def same_machine(host, controller):
    """Return whether both are one machine, so that a boot of the host would end the run that asks for it.

    Each is ``machine`` of driver_info: ids of the machine and of its boot, and whether it is a container. Machines that
    were cloned share the first, a container shares the second with the machine that it runs on.
    """
    same = {name: bool(host[name]) and host[name] == controller[name] for name in ("machine_id", "boot_id")}
    # A controller in a container of this very host has another machine id, and dies with the host all the same.
    return same["boot_id"] and (same["machine_id"] or not host["container"])


def repository_for(distribution, major):
    """Return NVIDIA's repository of a distribution. Raises DriverError when there is none."""
    for row in tables.REPOSITORIES:
        if (row.distribution, row.major) == (distribution, major):
            return row
    known = ", ".join(f"{row.distribution} {row.major}" for row in tables.REPOSITORIES)
    raise DriverError(
        f"Expected one of {known}, found {distribution} {major}: set nvidia_driver_source or"
        " nvidia_driver_repository_url, or install a driver yourself: nvidia_driver_keep_existing leaves it as it is."
    )


def vendor_repository(system):
    """Return url, key and fingerprint for the ``os`` of driver_info. Raises DriverError."""
    row = repository_for(system["distribution"], system["major"])
    url = "/".join([tables.BASE_URL, row.folder, tables.ARCHITECTURES[system["architecture"]]])
    return {"url": url, "key": url + "/" + row.key, "fingerprint": row.fingerprint}


def layout_for(source, distribution, branch):
    """Return the names of the packages. Raises DriverError where the source has no such driver."""
    source = "nvidia" if source == "local" else source
    for row in tables.LAYOUTS:
        if (row.source, row.distribution) == (source, distribution) and row.first_branch <= branch <= row.last_branch:
            return row
    raise DriverError(
        f"Expected a source with branch {branch} for {distribution}, found none in nvidia_driver_source {source}:"
        " choose another branch or source."
    )
