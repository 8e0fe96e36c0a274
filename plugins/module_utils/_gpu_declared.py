# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs a host will have, as its inventory says: for the plan of a host that nobody can look at yet. Private."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu import Gpu

VARIABLE = "sglang_server_gpus"
# What a driver keeps of a board with nothing on it, MiB: 331 to 687 in public answers of nvidia-smi (RTX 3090 to
# RTX PRO 6000 with 96 GB).
KEPT_MIB = 700
MOST_BOARDS = 64
KEYS = ("name", "count", "memory_total_mib", "memory_free_mib", "compute_capability", "unified_memory")
EXAMPLE = "{count: 8, name: H200, memory_total_mib: 143771}"


def declared_gpus(entries):
    """Return {gpus, device, problems} as gpu_info returns them, for the boards C(entries) of a host.

    An entry is {name, memory_total_mib} and, where it differs, C(count) (1), C(memory_free_mib) (the total less what a
    driver keeps), C(compute_capability), C(unified_memory). Raises ValueError (one sentence) for anything else.
    """
    if not isinstance(entries, (list, tuple)) or not entries:
        raise ValueError(f"Expected a list such as [{EXAMPLE}] in {VARIABLE}, found {type(entries).__name__}.")
    gpus = []
    for entry in entries:
        board = _board(entry)
        gpus += [dict(board, index=len(gpus) + number) for number in range(_count(entry))]
    return {"gpus": gpus, "device": "cuda", "problems": []}


def _count(entry):
    return _whole(entry, "count", 1, 1, MOST_BOARDS)


def _board(entry):
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise ValueError(f"Expected entries with a name such as {EXAMPLE} in {VARIABLE}, found {str(entry)[:80]}.")
    strange = sorted(str(key) for key in entry if key not in KEYS)
    if strange:
        raise ValueError(f"Expected {', '.join(KEYS)} in {VARIABLE}, found {strange[0][:80]}: remove or correct it.")
    total = _whole(entry, "memory_total_mib", None, KEPT_MIB + 1, 2**30)
    free = _whole(entry, "memory_free_mib", total - KEPT_MIB, 1, total)
    capability = entry.get("compute_capability")
    return Gpu(
        index=0,
        uuid=None,
        name=entry["name"].strip(),
        memory_total_mib=total,
        memory_free_mib=free,
        memory_used_mib=total - free,
        compute_capability=None if capability is None else str(capability),
        unified_memory=entry.get("unified_memory") is True,
        healthy=True,
        problem=None,
    ).as_dict()


def _whole(entry, key, default, low, high):
    """Return a whole number of an entry. A template gives it as text."""
    value = entry.get(key, default)
    try:
        number = None if isinstance(value, bool) else int(str(value))
    except ValueError:
        number = None
    if number is None or not low <= number <= high:
        raise ValueError(
            f"Expected a whole number from {low} to {high} for {key} of {str(entry['name'])[:40]} in {VARIABLE}, found"
            f" {value!r}: state it as nvidia-smi shows it."
        )
    return number
