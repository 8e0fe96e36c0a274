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

# The query, in the order of its columns. The short form is for drivers that do not know the later fields.
FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "memory.free", "compute_cap", "mig.mode.current")
SHORT_FIELDS = FIELDS[:6]


class GpuError(ValueError):
    """nvidia-smi answered something that cannot be used. The text is one sentence."""


@dataclass(frozen=True)
class Failure:
    """How nvidia-smi fails as a whole. C(kind) as in the failure classes; C(transient): worth asking again."""

    pattern: str
    kind: str
    transient: bool
    sentence: str
    source: str


_RUN_AGAIN = "then run the play again"
FAILURES = (
    Failure(
        r"Driver/library version mismatch",
        "toolchain_missing",
        False,
        "nvidia-smi reports a driver/library version mismatch (library {library}, loaded kernel module"
        " {module}): an update"
        " replaced the driver under the running one, so reboot the host or reload the module and hold the driver"
        " packages;"
        " until then a running server must not be restarted.",
        "public reports, nvidia-smi exit status 18",
    ),
    Failure(
        r"couldn.t communicate with the NVIDIA driver",
        "no_gpu",
        True,
        "nvidia-smi couldn't communicate with the NVIDIA driver: load the kernel module (modprobe nvidia) or"
        " install the"
        " driver for the running kernel, " + _RUN_AGAIN + ".",
        "public reports, nvidia-smi exit status 9",
    ),
    Failure(
        r"GPU is lost|Unable to determine the device handle",
        "gpu_lost",
        False,
        "nvidia-smi reports a lost board ({evidence}): GPU is lost until the host was rebooted, a restart of the"
        " server or"
        " an older configuration cannot help.",
        "public reports, nvidia-smi exit status 15",
    ),
    Failure(
        r"No supported GPUs were found",
        "no_gpu",
        False,
        "nvidia-smi says No supported GPUs were found: the boards are unsupported by this driver or bound to"
        " another one"
        " (vfio-pci, nouveau), see lspci -nnk.",
        "public reports, nvidia-smi exit status 255",
    ),
    Failure(
        r"No devices were found",
        "no_gpu",
        True,
        "nvidia-smi says No devices were found: the driver is loaded but holds no board, see the lines with NVRM in the"
        " kernel log (newest boards need the open kernel module).",
        "public reports",
    ),
    Failure(
        r"Insufficient Permissions",
        "no_gpu",
        False,
        "nvidia-smi says Insufficient Permissions: run the task with become, or give the user access to /dev/nvidia*.",
        "public reports",
    ),
    Failure(
        r"libnvidia-ml\.so|NVML library (?:not found|couldn.t be found)",
        "toolchain_missing",
        False,
        "nvidia-smi does not find the library libnvidia-ml.so: install the user-space packages of the loaded driver.",
        "nvidia-smi",
    ),
    Failure(
        r"GPU requires reset",
        "gpu_lost",
        False,
        "nvidia-smi says that a board requires a reset ({evidence}): reboot the host, a restart of the server"
        " cannot help.",
        "public reports",
    ),
)
_INVALID_FIELD = re.compile(r'Field "?([\w.]+)"? is not a valid field to query')


def failure_of(output, module_version=None):
    """Return (Failure, sentence) for the output of a failed nvidia-smi, or None when the table has no row for it."""
    for row in FAILURES:
        match = re.search(row.pattern, output)
        if match:
            library = re.search(r"NVML library version:\s*([\d.]+)", output)
            line = next((line.strip() for line in output.splitlines() if re.search(row.pattern, line)), "")
            sentence = row.sentence.format(
                library=library.group(1) if library else "unknown",
                module=module_version or "unknown",
                evidence=line.rstrip("."),
            )
            return row, sentence
    return None


def invalid_field(output):
    """Return the field that this driver does not know, or None."""
    match = _INVALID_FIELD.search(output)
    return match.group(1) if match else None


def kernel_module_version(text):
    """Return the version in the text of /proc/driver/nvidia/version, or None."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)*)", text or "")
    return match.group(1) if match else None


# ---------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class NoValue:
    """A text that stands for "no number". C(meaning): absent (the field does not exist there), denied or broken."""

    text: str
    meaning: str


NO_VALUES = (
    NoValue("n/a", "absent"),
    NoValue("not supported", "absent"),
    NoValue("not available", "absent"),
    NoValue("not found", "absent"),
    NoValue("insufficient permissions", "denied"),
    NoValue("no permission", "denied"),
    NoValue("unknown error", "broken"),
    NoValue("err!", "broken"),
    NoValue("error", "broken"),
    NoValue("gpu requires reset", "broken"),
    NoValue("gpu is lost", "broken"),
    NoValue("reset required", "broken"),
    NoValue("", "broken"),
)
_MEANING = {row.text: row.meaning for row in NO_VALUES}


def meaning_of(text):
    """Return None for a real value, else absent, denied or broken."""
    return _MEANING.get(text.strip().strip("[]").strip().lower())


def _mib(text):
    """Return (MiB or None, meaning) of a memory column. A unit that an old tool adds is dropped."""
    meaning = meaning_of(text)
    if meaning is not None:
        return None, meaning
    match = re.match(r"^(\d+)(?:\.\d+)?(?:\s*MiB)?$", text.strip())
    return (int(match.group(1)), None) if match else (None, "broken")


@dataclass(frozen=True)
class Gpu:
    """One board as nvidia-smi shows it. C(problem) is a sentence when its figures must not be planned with."""

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

    def as_dict(self):
        return asdict(self)


_WARNING = re.compile(r"^\s*WARNING\b", re.IGNORECASE)  # "WARNING: infoROM is corrupted at gpu 0000:65:00.0"


def warnings_in(text):
    """Return the lines of an answer by which the tool warns beside its table, each as a sentence."""
    found = [line.strip() for line in text.splitlines() if _WARNING.match(line)]
    return ["nvidia-smi says {}: see nvidia-smi -q.".format(line.rstrip(".")[:200]) for line in dict.fromkeys(found)]


def parse_query(text, fields=FIELDS):
    """Return one dictionary for each board in the CSV answer C(text) to a query of C(fields) (noheader, nounits).

    Warnings of the tool between the lines are passed over, warnings_in() tells them. Raises GpuError (one sentence) for
    an answer that is no such table.
    """
    lines = [line for line in text.splitlines() if not _WARNING.match(line)]
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
    unified = meanings == ("absent", "absent", "absent") and name is not None
    mig = values.get("mig.mode.current", "").strip("[]").lower() == "enabled"
    problem = _problem(index, name, meanings, values, mig)
    if problem is None and None not in (total, free) and free > total:
        problem = f"{_board(index, name)} says that more is free than it has ({free} of {total}): see nvidia-smi -q."
    if mig:
        total, used, free = None, None, None  # those of the whole board, not of an instance
    return Gpu(
        index=index,
        uuid=None if meaning_of(values["uuid"]) else values["uuid"],
        name=name,
        memory_total_mib=total,
        memory_free_mib=free,
        memory_used_mib=used,
        compute_capability=_capability(values.get("compute_cap", "")),
        unified_memory=unified and problem is None,
        healthy=problem is None,
        problem=problem,
    )


def _board(index, name):
    return "GPU {}{}".format("?" if index is None else index, f" ({name})" if name else "")


def _capability(text):
    return text if re.match(r"^\d+\.\d+$", text) else None


def _problem(index, name, meanings, values, mig):
    """Return why the figures of a row cannot be planned with, or None."""
    board = _board(index, name)
    shown = ", ".join("{} {}".format(field, values[field] or "(empty)") for field in FIELDS[3:6])
    if name is None:
        return f"{board} has no name, the driver does not serve it properly: see the lines with NVRM in the kernel log."
    if "denied" in meanings:
        return (
            f"{board} does not show its memory (Insufficient Permissions): run the task with become,"
            " or with MIG read the instances (nvidia-smi -q -x)."
        )
    if mig:
        return (
            f"{board} is split by MIG, its own memory says nothing about an instance: switch MIG off, or state the"
            " memory of the instance for a plan as memory_total_mib and memory_free_mib in sglang_server_gpus."
        )
    if index is None or "broken" in meanings:
        return f"{board} answers no number ({shown}): the board or its driver is not healthy, see nvidia-smi -q."
    if "absent" in meanings and meanings != ("absent", "absent", "absent"):
        return f"{board} shows only a part of its memory figures ({shown}): see nvidia-smi -q."
    return None


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


def gpu_result(gpus, driver_version, meminfo_text):
    """Return the result of gpu_info for boards that nvidia-smi lists. Raises GpuError when it lists none."""
    if not gpus:
        raise GpuError("nvidia-smi lists no board and says no reason: see nvidia-smi -q and the kernel log.")
    gpus = with_machine_memory(gpus, meminfo_text)
    return {
        "device": "cuda",
        "gpus": gpus,
        "gpu_count": len(gpus),
        "driver_version": driver_version,
        "unified_memory": any(gpu["unified_memory"] for gpu in gpus),
        "homogeneous": len({(gpu["name"], gpu["memory_total_mib"]) for gpu in gpus}) == 1,
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
        "problems": [],
    }


def nvidia_devices(pci_devices):
    """Return how many NVIDIA display or 3D controllers there are. C(pci_devices): (vendor, class) texts of sysfs."""
    return sum(
        1
        for vendor, kind in pci_devices
        if vendor.strip().lower() == "0x10de" and kind.strip().lower()[:6] in ("0x0300", "0x0302")
    )
