# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boards as the PCI bus shows them, beside those that nvidia-smi lists. Private to the collection.

nvidia-smi counts boards by their place on the bus. Domains have up to eight digits and are not always zero; the kernel
writes four and small letters, the tool eight and capitals.
"""

from __future__ import annotations

import csv
import glob
import os
import re
from dataclasses import dataclass

# The query, in the order of its columns (nvidia-smi --query-gpu=..., noheader, nounits).
PLACE_FIELDS = ("index", "pci.bus_id", "compute_mode", "driver_version")
# The compute mode in which no process may use a board (nvidia-smi -c 2), as some guests with a vGPU have it.
_PROHIBITED = "Prohibited"
_VENDOR = "0x10de"
# Display controllers: VGA (consumer boards) and 3D (data centre boards).
_CLASSES = ("0x0300", "0x0302")
_ADDRESS = re.compile(r"^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])$", re.IGNORECASE)
_MODE = re.compile(r"^(?:Default|Exclusive_(?:Process|Thread)|Prohibited)$")
_VERSION = re.compile(r"^\d+(\.\d+)+$")


@dataclass(frozen=True)
class PciBoard:
    """An NVIDIA board of the bus. C(driver): the kernel driver that has it, None where none has."""

    address: str
    driver: str | None


def is_board(vendor, kind):
    """Return whether the texts of sysfs C(vendor) and C(class) are those of an NVIDIA display controller."""
    return vendor.strip().lower() == _VENDOR and kind.strip().lower()[:6] in _CLASSES


def boards_of(root="/sys/bus/pci/devices"):
    """Return the NVIDIA boards of the bus, in the order of their addresses."""
    found = []
    for folder in sorted(glob.glob(os.path.join(root, "*"))):
        if is_board(_text(folder, "vendor"), _text(folder, "class")):
            link = os.path.join(folder, "driver")
            driver = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else None
            found.append(PciBoard(os.path.basename(folder), driver))
    return found


def _text(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as handle:
            return handle.read(64)
    except OSError:
        return ""


def held_by_driver(root="/proc/driver/nvidia/gpus"):
    """Return the addresses of the boards that the loaded driver holds, also where one no longer answers.

    A container sees those that it was given.
    """
    return sorted(os.path.basename(folder) for folder in glob.glob(os.path.join(root, "*")))


def place(address):
    """Return (domain, bus, device, function) of an address however it is written, or None."""
    match = _ADDRESS.match(str(address or "").strip())
    return tuple(int(part, 16) for part in match.groups()) if match else None


def parse_places(text):
    """Return ({index: what is told of it}, driver version or None) of the CSV answer C(text).

    Other lines are passed over, and values that are none.
    """
    places, version = {}, None
    for cells in csv.reader((text or "").splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in cells]
        if len(cells) != len(PLACE_FIELDS) or not cells[0].isdigit():
            continue
        places[int(cells[0])] = {
            "pci_bus_id": cells[1] if place(cells[1]) else None,
            "compute_mode": cells[2] if _MODE.match(cells[2]) else None,
        }
        if version is None and _VERSION.match(cells[3]):
            version = cells[3]
    return places, version


def with_places(gpus, places):
    """Return the entries of gpu_info with C(pci_bus_id) and C(compute_mode) as nvidia-smi writes them.

    None where they are not known. A board that no process may use is not healthy.
    """
    unknown = {"pci_bus_id": None, "compute_mode": None}
    found = []
    for gpu in gpus:
        gpu = dict(gpu, **places.get(gpu["index"], unknown))
        if gpu["compute_mode"] == _PROHIBITED and gpu["problem"] is None:
            name = "GPU {} ({})".format(gpu["index"], gpu["name"])
            gpu["healthy"] = False
            gpu["problem"] = (
                f"{name} is in the compute mode Prohibited, in which no server can use it: nvidia-smi -c 0."
            )
        found.append(gpu)
    return found


def missing(gpus, held):
    """Return the addresses C(held) by the loaded driver that no entry has. Empty where a place is not known."""
    listed = {place(gpu.get("pci_bus_id")) for gpu in gpus}
    if None in listed:
        return []
    return [address for address in held if place(address) and place(address) not in listed]


def missing_sentence(addresses):
    """Return why a board that the driver holds and nvidia-smi does not list is trouble, in one sentence."""
    return (
        f"nvidia-smi does not list {len(addresses)} board{'s' * (len(addresses) > 1)} that the loaded driver holds"
        f" ({', '.join(addresses)}): see the lines with NVRM in the kernel log, and reboot the host."
    )


def unbound_sentence(boards):
    """Return a sentence about boards that no driver has, or None."""
    alone = [board.address for board in boards if board.driver is None]
    if not alone:
        return None
    return (
        f"No driver has {len(alone)} NVIDIA board{'s' * (len(alone) > 1)} of this host ({', '.join(alone)}): see the"
        " lines with NVRM in the kernel log."
    )


def in_words(boards):
    """Return what PCI shows, for a sentence."""
    if not boards:
        return "no NVIDIA board on PCI"
    drivers = [board.driver for board in boards]
    counts = ", ".join(
        "{}: {}".format(f"bound to {name}" if name else "without a driver", drivers.count(name))
        for name in sorted(set(drivers), key=str)
    )
    return f"{len(boards)} NVIDIA board{'s' * (len(boards) > 1)} on PCI, {counts}"
