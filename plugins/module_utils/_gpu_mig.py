# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The instances of boards that are split by MIG: who they are (nvidia-smi -L) and their memory (-q -x). Private.

A query of --query-gpu tells the board's own memory or nothing, never that of an instance. The XML has no UUID of an
instance in most versions, the list has no memory: both number instances within their board, which joins them.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

LIST = ("-L",)
DETAILS = ("-q", "-x")

_LISTED_BOARD = re.compile(r"^GPU\s+(\d+):.*\(UUID:\s*(GPU-[^)\s]+)\)")
_LISTED = re.compile(r"^\s+MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID:\s*(MIG-[^)\s]+)\)")
_ABSENT = {
    "uuid": None,
    "profile": None,
    "gpu_instance_id": None,
    "compute_instance_id": None,
    "memory_total_mib": None,
    "memory_free_mib": None,
    "memory_used_mib": None,
}


def listed(text):
    """Return {UUID of a board: {index of an instance: {uuid, profile}}} of C(nvidia-smi -L)."""
    found, board = {}, None
    for line in (text or "").splitlines():
        head, instance = _LISTED_BOARD.match(line), _LISTED.match(line)
        if head:
            board = found.setdefault(head.group(2), {})
        elif instance and board is not None:
            board[int(instance.group(2))] = {"uuid": instance.group(3), "profile": instance.group(1)}
    return found


def detailed(text):
    """Return [(UUID of a board or None, {index of an instance: its ids and memory})] of C(nvidia-smi -q -x).

    In the order of the boards; empty for a text that is no such document.
    """
    try:
        root = ElementTree.fromstring((text or "").strip())
    except ElementTree.ParseError:
        return []
    found = []
    for board in root.iter("gpu"):
        instances = {}
        for element in board.iter("mig_device"):
            index = _number(element.findtext("index"))
            if index is not None:
                instances[index] = _instance(element)
        found.append(((board.findtext("uuid") or "").strip() or None, instances))
    return found


def _instance(element):
    uuid = (element.findtext("uuid") or "").strip()
    values = {
        "gpu_instance_id": _number(element.findtext("gpu_instance_id")),
        "compute_instance_id": _number(element.findtext("compute_instance_id")),
        "memory_total_mib": _number(element.findtext("fb_memory_usage/total")),
        "memory_free_mib": _number(element.findtext("fb_memory_usage/free")),
        "memory_used_mib": _number(element.findtext("fb_memory_usage/used")),
    }
    return dict(values, uuid=uuid) if uuid.startswith("MIG-") else values


def _number(text):
    """Return the whole number that a text begins with (MiB may follow), or None."""
    match = re.match(r"^\s*(\d+)(?:\s*MiB)?\s*$", text or "")
    return int(match.group(1)) if match else None


def with_instances(gpus, list_text, details_text):
    """Return the entries of gpu_info with C(mig_devices), a list for each board; empty where it is not split.

    Boards are found by UUID; where the XML names none, by their place when it has as many boards as C(gpus).
    """
    names, details = listed(list_text), detailed(details_text)
    by_uuid = {uuid: instances for uuid, instances in details if uuid}
    same = len(details) == len(gpus)
    result = []
    for position, gpu in enumerate(gpus):
        instances = []
        if gpu.get("mig"):
            told = by_uuid.get(gpu["uuid"], details[position][1] if same and details[position][0] is None else {})
            known = names.get(gpu["uuid"], {})
            for index in sorted(set(told) | set(known)):
                instances.append({**_ABSENT, "index": index, **told.get(index, {}), **known.get(index, {})})
        result.append(dict(gpu, mig_devices=instances))
    return result


def as_board(gpu, instance):
    """Return an instance as CUDA shows it to a process that may see no other: a board of its own."""
    total, free = instance.get("memory_total_mib"), instance.get("memory_free_mib")
    name = "{} MIG {}".format(gpu.get("name"), instance.get("profile") or instance.get("index"))
    told = total is not None and free is not None
    return dict(
        gpu,
        uuid=instance.get("uuid"),
        name=name,
        memory_total_mib=total,
        memory_free_mib=free,
        memory_used_mib=instance.get("memory_used_mib"),
        processes=list(instance.get("processes") or ()),
        healthy=told,
        problem=None if told else f"nvidia-smi -q -x does not tell the memory of {name}: run the task with become.",
        failure_class=None,
        mig=False,
        mig_devices=[],
        nvlinks=[],
        peers=[],
    )
