# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs are there: text of nvidia-smi, /proc/meminfo and /sys to records. Private to the collection.

"No value" has several meanings: a board without memory of its own, a right that is missing, a broken board. They are
kept apart by a table, because each needs another answer.
"""

from __future__ import annotations

import csv
import re
from dataclasses import asdict, dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import (
    LOST,
    GpuError,
    addresses_in,
    failure_of,
    failure_row,
    is_row,
    sentences_in,
)

# The query, in the order of its columns. The short form is for drivers that do not know the later fields.
FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "memory.free", "compute_cap", "mig.mode.current")
SHORT_FIELDS = FIELDS[:6]


# ---------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class NoValue:
    """A text that stands for "no number".

    C(meaning): absent (the field does not exist there), denied, lost or reset (the board is gone, or will not work
    before it was reset), broken.
    """

    text: str
    meaning: str


NO_VALUES = (
    NoValue("n/a", "absent"),
    NoValue("not supported", "absent"),
    NoValue("not available", "absent"),
    NoValue("not found", "absent"),
    NoValue("insufficient permissions", "denied"),
    NoValue("no permission", "denied"),
    NoValue("gpu is lost", "lost"),
    NoValue("gpu requires reset", "reset"),
    NoValue("reset required", "reset"),
    NoValue("unknown error", "broken"),
    NoValue("err!", "broken"),
    NoValue("error", "broken"),
    NoValue("", "broken"),
)
_MEANING = {row.text: row.meaning for row in NO_VALUES}


def meaning_of(text):
    """Return None for a real value, else absent, denied, lost, reset or broken (so is any other [text in brackets])."""
    text = text.strip()
    bare = text.strip("[]").strip().lower()
    return _MEANING.get(bare, "broken" if text.startswith("[") and text.endswith("]") else None)


def _mib(text):
    """Return (MiB or None, meaning) of a memory column. A unit that an old tool adds is dropped."""
    meaning = meaning_of(text)
    if meaning is not None:
        return None, meaning
    match = re.match(r"^(\d+)(?:\.\d+)?(?:\s*MiB)?$", text.strip())
    return (int(match.group(1)), None) if match else (None, "broken")


@dataclass(frozen=True)
class Gpu:
    """One board as nvidia-smi shows it.

    C(problem) is a sentence when its figures must not be planned with, C(failure_class) what it is where that is known.
    """

    index: int | None
    uuid: str | None
    name: str | None
    memory_total_mib: int | None
    memory_free_mib: int | None
    memory_used_mib: int | None
    compute_capability: str | None
    unified_memory: bool
    healthy: bool
    problem: str | None
    failure_class: str | None = None
    mig: bool = False

    def as_dict(self):
        return asdict(self)


def warnings_in(text):
    """Return the lines of an answer that the tool prints beside its table, each as a sentence.

    "WARNING: infoROM is corrupted at gpu 0000:65:00.0", or a line of a library that stands between.
    """
    found = ["nvidia-smi says {}: see nvidia-smi -q.".format(line.rstrip(".")[:200]) for line in sentences_in(text)]
    return list(dict.fromkeys(found))


def lost_beside(out, err):
    """Return the sentence of a lost board that stands beside the table of the others, or None."""
    for line in sentences_in(out) + sentences_in(err):
        row = failure_row(line)
        if row is not None and row.kind == LOST:
            return line
    return None


def parse_query(text, fields=FIELDS):
    """Return one dictionary for each board in the CSV answer C(text) to a query of C(fields) (noheader, nounits).

    Lines between those of boards are passed over, warnings_in() tells them. Raises GpuError (one sentence) for an
    answer that is no such table, and for a lost board that it tells of.
    """
    lost = lost_beside(text, "")
    if lost:
        raise GpuError(failure_of(lost)[1], LOST, pci_addresses=addresses_in(lost))
    lines = text.splitlines()
    if any(is_row(line) for line in lines):
        lines = [line for line in lines if is_row(line)]
    rows = [row for row in csv.reader(lines, skipinitialspace=True) if any(cell.strip() for cell in row)]
    return _told_apart([_row(row, fields).as_dict() for row in rows])


def _told_apart(gpus):
    """Return C(gpus) where two that have one UUID are not healthy: which of them a process holds is not known."""
    seen = [gpu["uuid"] for gpu in gpus if gpu["uuid"] is not None]
    found = []
    for gpu in gpus:
        if gpu["problem"] is None and seen.count(gpu["uuid"]) > 1:
            problem = "{} has the UUID of another GPU ({}): see nvidia-smi -L.".format(
                _board(gpu["index"], gpu["name"]), gpu["uuid"]
            )
            gpu = dict(gpu, healthy=False, problem=problem)
        found.append(gpu)
    return found


def _row(cells, fields):
    if len(cells) != len(fields):
        raise GpuError(
            "Expected {} columns from nvidia-smi ({}), found the line {!r}: check that the nvidia-smi option names the"
            " tool of the NVIDIA driver.".format(len(fields), ", ".join(fields), ", ".join(cells)[:120])
        )
    values = {field: cell.strip() for field, cell in zip(fields, cells)}
    total, total_meaning = _mib(values["memory.total"])
    used, used_meaning = _mib(values["memory.used"])
    free, free_meaning = _mib(values["memory.free"])
    meanings = (total_meaning, used_meaning, free_meaning)
    name = None if meaning_of(values["name"]) else values["name"]
    index = int(values["index"]) if values["index"].isdigit() else None
    capability = _capability(values.get("compute_cap", ""))
    mig = values.get("mig.mode.current", "").strip("[]").lower() == "enabled"
    problem, failure_class = _problem(index, name, meanings, values, mig)
    unified = problem is None and is_unified(name, capability, total, meanings)
    if problem is None and not unified:
        problem = _memory_problem(_board(index, name), (total, free), meanings, values)
    if mig or (total == 0 and not unified):
        total, used, free = None, None, None  # those of the whole board, not of an instance; or none at all
    return Gpu(
        index=index,
        uuid=None if meaning_of(values["uuid"]) else values["uuid"],
        name=name,
        memory_total_mib=total,
        memory_free_mib=free,
        memory_used_mib=used,
        compute_capability=capability,
        unified_memory=unified,
        healthy=problem is None,
        problem=problem,
        failure_class=failure_class,
        mig=mig,
    )


def _board(index, name):
    return "GPU {}{}".format("?" if index is None else index, f" ({name})" if name else "")


def _capability(text):
    return text if re.match(r"^\d+\.\d+$", text) else None


# ---------------------------------------------------------------------------
# Boards that use the memory of the machine
# ---------------------------------------------------------------------------

# By compute capability, (whose, source). They print no memory, all of the machine's, or a part that is set aside,
# differently by version: the machine's counts for all of them.
UNIFIED_CAPABILITIES = {
    "5.3": ("Tegra X1", "NVIDIA, CUDA GPU compute capability"),
    "6.2": ("Tegra X2", "NVIDIA, CUDA GPU compute capability"),
    "7.2": ("Xavier", "NVIDIA, CUDA GPU compute capability"),
    "8.7": ("Orin", "NVIDIA, CUDA GPU compute capability"),
    "10.1": ("Thor before CUDA 13", "flashinfer-ai/flashinfer pulls/3003"),
    "11.0": ("Thor", "sgl-project/sglang pulls/18787"),
    "12.1": ("GB10, N1X", "unslothai/unsloth pulls/11208"),
}
_UNIFIED_NAME = re.compile(r"\(nvgpu\)|\bGB10\b|\bN1X\b|\bThor\b|\bOrin\b|\bXavier\b|\bTegra\b")
# Every other board of these major numbers has memory of its own. One that shows none is not well: RAM is no substitute.
# Source: NVIDIA, CUDA GPU compute capability.
OWN_MEMORY_MAJORS = ("3", "5", "6", "7", "8", "9", "10", "12")


def is_unified(name, capability, total, meanings):
    """Return whether a board that is well uses the memory of the machine.

    C(total): its memory in MiB or None; C(meanings): of its three figures, as meaning_of() returns them.
    """
    if capability in UNIFIED_CAPABILITIES or (capability is None and _UNIFIED_NAME.search(name or "")):
        return True
    shows_none = total == 0 or meanings == ("absent", "absent", "absent")
    return shows_none and (capability or "").partition(".")[0] not in OWN_MEMORY_MAJORS


# ---------------------------------------------------------------------------
# What is wrong with a board
# ---------------------------------------------------------------------------


def _problem(index, name, meanings, values, mig):
    """Return (why nothing of a row can be planned with, its failure class), (None, None) where it can."""
    board = _board(index, name)
    every = [meaning_of(value) for value in values.values()]
    if "lost" in every:
        return f"{board} is lost: reboot the host, a restart of the server cannot help.", LOST
    if "reset" in every:
        return f"{board} requires a reset: reboot the host, a restart of the server cannot help.", LOST
    if name is None:
        return (
            f"{board} has no name, the driver does not serve it properly: see the lines with NVRM in the kernel log."
        ), None
    if "denied" in meanings:
        return (
            f"{board} does not show its memory (Insufficient Permissions): run the task with become,"
            " or with MIG read the instances (nvidia-smi -q -x)."
        ), None
    if mig:
        return (
            f"{board} is split by MIG, its own memory says nothing about an instance: name one by its UUID (nvidia-smi"
            " -L) in CUDA_VISIBLE_DEVICES in sglang_server_environment, switch MIG off, or state the memory of the"
            " instance for a plan as memory_total_mib and memory_free_mib in sglang_server_gpus."
        ), None
    if index is None or "broken" in meanings:
        shown = _shown(values)
        return f"{board} answers no number ({shown}): the board or its driver is not healthy, see nvidia-smi -q.", None
    return None, None


def _memory_problem(board, figures, meanings, values):
    """Return what is wrong with the memory of a board that has its own, or None. What is used need not be told."""
    total, free = figures
    if total == 0 or meanings == ("absent", "absent", "absent"):
        return f"{board} shows no memory ({_shown(values)}), and boards of its kind have some: see nvidia-smi -q."
    if None in figures:
        return f"{board} shows only a part of its memory figures ({_shown(values)}): see nvidia-smi -q."
    if free > total:
        return f"{board} says that more is free than it has ({free} of {total}): see nvidia-smi -q."
    return None


def _shown(values):
    return ", ".join("{} {}".format(field, values[field] or "(empty)") for field in FIELDS[3:6])


# ---------------------------------------------------------------------------
# Memory of the machine
# ---------------------------------------------------------------------------


def meminfo_mib(text):
    """Return (total, available) MiB of /proc/meminfo. Raises GpuError when a line is missing (kernels before 3.14)."""
    figures = {}
    for key in ("MemTotal", "MemAvailable"):
        match = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
        if match is None:
            raise GpuError(f"Expected {key} in /proc/meminfo, found nothing: the memory of this machine is not known.")
        figures[key] = int(match.group(1))
    return figures["MemTotal"] // 1024, figures["MemAvailable"] // 1024


def nodes_with_cpus(cpulists):
    """Return the number of NUMA nodes that have CPUs (at least 1). C(cpulists): texts of node*/cpulist."""
    return max(1, sum(1 for text in cpulists if text.strip()))


def cpu_entry(meminfo_text, numa_nodes=1):
    """Return the entry of a machine without a GPU, with the figures that the engine uses on the CPU.

    That is the available RAM, divided by the NUMA nodes since 0.5.2 (srt/utils/common.py get_available_gpu_memory);
    the total likewise, so that both describe the share of one rank.
    """
    if not isinstance(numa_nodes, int) or numa_nodes < 1:
        raise GpuError(f"Expected at least one NUMA node, found {numa_nodes!r}.")
    total, available = meminfo_mib(meminfo_text)
    total, available = total // numa_nodes, available // numa_nodes
    return Gpu(0, None, "cpu", total, available, total - available, None, False, True, None).as_dict()


def with_machine_memory(gpus, meminfo_text):
    """Return C(gpus) where boards without memory of their own show the machine's RAM, as the engine counts it."""
    if not any(gpu["unified_memory"] for gpu in gpus):
        return gpus
    total, available = meminfo_mib(meminfo_text)
    shared = {"memory_total_mib": total, "memory_free_mib": available, "memory_used_mib": total - available}
    return [dict(gpu, **shared) if gpu["unified_memory"] else gpu for gpu in gpus]


# ---------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------


def refuse_none(gpus):
    """Raise GpuError where nvidia-smi lists no board."""
    if not gpus:
        sentence = "nvidia-smi lists no board and says no reason: see nvidia-smi -q and the kernel log."
        raise GpuError(sentence, "no_gpu", 0)


def gpu_result(gpus, driver_version, meminfo_text):
    """Return the result of gpu_info for boards that nvidia-smi lists. Raises GpuError when it lists none."""
    refuse_none(gpus)
    gpus = with_machine_memory(gpus, meminfo_text)
    return {
        "device": "cuda",
        "gpus": gpus,
        "gpu_count": len(gpus),
        "driver_version": driver_version,
        "unified_memory": any(gpu["unified_memory"] for gpu in gpus),
        "homogeneous": len({(gpu["name"], gpu["memory_total_mib"]) for gpu in gpus}) == 1,
        "missing_boards": [],
        "problems": [gpu["problem"] for gpu in gpus if gpu["problem"]],
    }


def cpu_result(meminfo_text, numa_nodes):
    """Return the result of gpu_info for a machine without NVIDIA tools."""
    return {
        "device": "cpu",
        "gpus": [cpu_entry(meminfo_text, numa_nodes)],
        "gpu_count": 0,
        "driver_version": None,
        "unified_memory": False,
        "homogeneous": True,
        "missing_boards": [],
        "problems": [],
    }
