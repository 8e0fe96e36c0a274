# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which boards a server uses, and whether they go together: CUDA's own choice, health, balance. Private.

Pure: entries as gpu_info returns them and the environment of the server go in. What must not happen raises GpuError
(one sentence).
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import GpuError
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_mig import as_board

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
WHERE = "sglang_server_environment"

# The engine compares what is free before the load on every rank of a server with tensor parallelism.
# Source: srt/model_executor/model_runner.py, since 0.5.21 srt/distributed/bootstrap.py _check_tp_memory_balance.
BALANCE_SHARE = 0.9
# (since, variable, the value that makes the check a warning); before the first row nothing does.
BALANCE_SWITCHES = (
    ("0.5.10", "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", False),
    ("0.4.6", "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK", True),
)
_YES, _NO = ("true", "1", "yes", "y", "on"), ("false", "0", "no", "n", "off")


def board_name(entry, position):
    """Return how people call a board: its index, and its name where that is known."""
    index = entry.get("index")
    name = entry.get("name")
    return "GPU {}{}".format(position if index is None else index, f" ({name})" if name else "")


# ---------------------------------------------------------------------------
# The boards that CUDA shows
# ---------------------------------------------------------------------------


def visible(gpus, environment):
    """Return the entries that CUDA shows the server, in its order: by index, UUID, or the begin of a UUID.

    All of them without CUDA_VISIBLE_DEVICES. An instance of MIG is the only entry, as CUDA shows no second one; none
    where C(gpus) does not list it.
    CUDA itself silently drops a name that it does not know and all behind it, which would be another plan: refused.
    """
    if VISIBLE not in environment or environment[VISIBLE] is None or not gpus:
        return tuple(gpus)
    stated = str(environment[VISIBLE])
    names = [name.strip() for name in stated.split(",")]
    chosen = []
    if names[0].upper().startswith("MIG-"):
        return _instance(names, gpus, stated)
    for name in names:
        position = _position(name, gpus)
        if position is None:
            raise GpuError(
                f"Expected {VISIBLE} in {WHERE} to name GPUs of this host ({_choices(gpus)}), found {stated!r}:"
                " correct it, or take it out for all GPUs."
            )
        if position in chosen:
            raise GpuError(
                f"Expected {VISIBLE} in {WHERE} to name every GPU once, found {stated!r}: name"
                f" {board_name(gpus[position], position)} once."
            )
        chosen.append(position)
    return tuple(gpus[position] for position in chosen)


def _instance(names, gpus, stated):
    """Return the entry of an instance, by the whole or the begin of its UUID or as MIG-(UUID of the board)/(ids)."""
    if len(names) > 1:
        raise GpuError(
            f"Expected {VISIBLE} in {WHERE} to name one instance of MIG, found {stated!r}: CUDA uses the first alone,"
            " so name that."
        )
    found = [
        as_board(gpu, one)
        for gpu in gpus
        for one in gpu.get("mig_devices") or ()
        if names[0] == _by_ids(gpu, one) or (len(names[0]) > 4 and str(one.get("uuid")).startswith(names[0]))
    ]
    return tuple(found) if len(found) == 1 else ()


def _by_ids(gpu, one):
    """Return the name that drivers before 470 gave an instance, and all take."""
    return "MIG-{}/{}/{}".format(gpu.get("uuid"), one.get("gpu_instance_id"), one.get("compute_instance_id"))


def _position(name, gpus):
    if name.isascii() and name.isdigit():
        found = [place for place, one in enumerate(gpus) if str(one.get("index", place)) == str(int(name))]
    else:
        found = [place for place, one in enumerate(gpus) if len(name) > 4 and str(one.get("uuid")).startswith(name)]
    return found[0] if len(found) == 1 else None


def _choices(gpus):
    return "{}, or a UUID".format(", ".join(str(one.get("index", place)) for place, one in enumerate(gpus)))


def refuse_unhealthy(gpus):
    """Raise GpuError for the first of C(gpus), the boards that will be used, whose figures mean nothing."""
    for position, entry in enumerate(gpus):
        if entry.get("healthy") is False:
            problem = str(entry.get("problem") or "nvidia-smi shows no usable figures").rstrip(".")
            raise GpuError(
                f"The server would use {board_name(entry, position)}, which is not healthy ({problem}): repair it, or"
                f" choose other GPUs by {VISIBLE} in {WHERE}."
            )


# ---------------------------------------------------------------------------
# Do they go together
# ---------------------------------------------------------------------------


def switch_of(engine_version):
    """Return (variable, value that switches the engine's check off), or None where nothing does."""
    rows = (row for row in BALANCE_SWITCHES if version_at_least(engine_version, row[0]))
    return next(((name, value) for _since, name, value in rows), None)


def guard_is_on(environment, engine_version):
    """Return whether the engine ends a start with boards out of balance, instead of warning."""
    switch = switch_of(engine_version)
    if switch is None:
        return True
    stated = str(environment.get(switch[0], "")).strip().lower()
    return stated not in (_YES if switch[1] else _NO)


def unlike(entries):
    """Return whether the entries are boards of different kinds, as far as they tell."""
    return any(
        len({one.get(key) for one in entries if one.get(key) is not None}) > 1 for key in ("name", "memory_total_mib")
    )


def balance_of(entries, free_mib, taken_mib, environment, engine_version):
    """Return (refusal, warning) for the boards of one server, a sentence or None each.

    C(free_mib): free on each of C(entries) now; C(taken_mib): what the process takes of each before the check.
    """
    low = min(range(len(entries)), key=free_mib.__getitem__)
    high = max(range(len(entries)), key=free_mib.__getitem__)
    short = free_mib[low] - taken_mib < BALANCE_SHARE * (free_mib[high] - taken_mib)
    different = unlike(entries)
    if not short and not different:
        return None, None
    found = (
        f"{board_name(entries[low], low)} has {free_mib[low]:,.0f} MiB free and {board_name(entries[high], high)}"
        f" {free_mib[high]:,.0f} MiB"
    )
    guard = guard_is_on(environment, engine_version)
    if short and guard and not different:
        return (
            f"{found}: SGLang ends such a start, because the smallest is below 0.9 of the largest (memory capacity is"
            f" unbalanced), so stop what holds the memory{_held(entries[low])}, or choose other GPUs by {VISIBLE} in"
            f" {WHERE}."
        ), None
    text = f"{found}: the smallest bounds every rank"
    if short and guard:
        switch = switch_of(engine_version)
        text += ", and SGLang ends a start whose smallest is below 0.9 of the largest"
        if switch:
            text += f" unless {switch[0]} is {'1' if switch[1] else '0'} in {WHERE}"
    return None, f"{text}; choose GPUs that are alike by {VISIBLE}."


def _held(entry):
    """Return in words which processes hold memory of a board; empty where none is listed."""
    listed = [one for one in entry.get("processes") or () if one.get("memory_mib")]
    words = ", ".join(
        "{} {} with {} MiB".format(one.get("name") or "process", one.get("pid", "?"), one["memory_mib"])
        for one in listed[:3]
    )
    return f" ({words})" if words else ""


def order_warning(gpus, environment):
    """Return a sentence where an index means another board to CUDA than to nvidia-smi, or None.

    CUDA counts boards of different kinds by speed unless it is told to count them by bus, as nvidia-smi does. The unit
    of the role sglang_server tells it so; only the environment that the user declares can undo that. C(gpus): all of
    the host, also those that CUDA does not show the server.
    """
    order = str(environment.get(ORDER) or "PCI_BUS_ID").strip()
    stated = str(environment.get(VISIBLE) or "")
    by_uuid = bool(stated) and all(not name.strip().isdigit() for name in stated.split(","))
    if order.upper() == "PCI_BUS_ID" or by_uuid or not unlike(gpus):
        return None
    return (
        f"This host has GPUs of different kinds, which CUDA counts by speed with {ORDER} {order} and nvidia-smi by bus:"
        f" take {ORDER} out of {WHERE}, or name the GPUs by UUID in {VISIBLE} there."
    )
