# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How nvidia-smi fails as a whole: its words and exit status to one sentence that keeps the cause. Private.

The tool prints its errors on stdout, some versions with status 0 and some beside a table of the boards that are left.
The words decide; the status (return values in the manual page of nvidia-smi) where they are not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LOST = "gpu_lost"
# The tool warns beside a table that is whole: "infoROM is corrupted". Return value 14 of its manual page.
WARNS = 14


class GpuError(ValueError):
    """What nvidia-smi answered cannot be used. The text is one sentence.

    C(failure_class): as in the failure classes, None where the cause is not known. C(gpu_count): 0 where the answer was
    that there is no board, None where the boards could not be counted. C(pci_addresses): the boards that it is about.
    """

    def __init__(self, sentence, failure_class=None, gpu_count=None, pci_addresses=()):
        super().__init__(sentence)
        self.failure_class = failure_class
        self.gpu_count = gpu_count
        self.pci_addresses = list(pci_addresses)


@dataclass(frozen=True)
class Failure:
    """A way to fail.

    C(kind): as in the failure classes; C(transient): worth asking again; C(status): exit status, which decides where no
    pattern does; C(counted): whether it says that there are no boards.
    """

    pattern: str
    kind: str
    sentence: str
    source: str
    transient: bool = False
    status: int | None = None
    counted: bool = False


_MANUAL = "manual page of nvidia-smi, return values"
FAILURES = (
    Failure(
        r"Driver/library version mismatch",
        "no_gpu",
        "nvidia-smi reports a driver/library version mismatch (library {library}, loaded kernel module {module}): an"
        " update replaced the driver under the running one, so reboot the host or reload the module and hold the driver"
        " packages; until then a running server must not be restarted.",
        "public reports, nvidia-smi exit status 18",
        status=18,
    ),
    Failure(
        r"couldn.t communicate with the NVIDIA driver|Driver Not Loaded",
        "no_gpu",
        "nvidia-smi couldn't communicate with the NVIDIA driver ({pci}): load the kernel module (modprobe nvidia) or"
        " install the driver for the running kernel, then run the play again.",
        _MANUAL + "; public reports",
        transient=True,
        status=9,
    ),
    Failure(
        r"insufficient(?:ly)? (?:external )?power|power cables",
        "no_gpu",
        "nvidia-smi says that a board lacks power ({evidence}): look at its external power cables.",
        _MANUAL,
        status=8,
    ),
    Failure(
        r"interrupts? (?:request )?issue|issue with (?:GPU )?interrupts",
        "no_gpu",
        "nvidia-smi says that the interrupts of a board do not work ({evidence}): see the lines with NVRM in the kernel"
        " log, and the settings of the firmware.",
        _MANUAL,
        status=10,
    ),
    Failure(
        r"GPU is lost|Unable to (?:determine|detect) the device handle",
        LOST,
        "nvidia-smi reports a lost board ({evidence}): GPU is lost until the host was rebooted, a restart of the server"
        " or an older configuration cannot help.",
        _MANUAL + "; public reports",
        status=15,
    ),
    Failure(
        r"GPU requires reset",
        LOST,
        "nvidia-smi says that a board requires a reset ({evidence}): reboot the host, a restart of the server"
        " cannot help.",
        "public reports",
    ),
    Failure(
        r"No supported GPUs were found",
        "no_gpu",
        "nvidia-smi says No supported GPUs were found ({pci}): boards that there are are unsupported by this driver or"
        " bound to another one (vfio-pci, nouveau), see lspci -nnk.",
        "public reports, nvidia-smi exit status 255",
        counted=True,
    ),
    Failure(
        r"No devices (?:were )?found",
        "no_gpu",
        "nvidia-smi says No devices were found ({pci}): the driver is loaded but holds no board, see the lines with"
        " NVRM in the kernel log (newest boards need the open kernel module).",
        _MANUAL + "; public reports",
        transient=True,
        status=6,
        counted=True,
    ),
    Failure(
        r"Insufficient Permissions|do not have permission",
        "no_gpu",
        "nvidia-smi says Insufficient Permissions: run the task with become, or give the user access to /dev/nvidia*.",
        _MANUAL + "; public reports",
        status=4,
    ),
    Failure(
        r"libnvidia-ml\.so|NVML (?:shared )?library (?:not found|couldn.t be found)",
        "no_gpu",
        "nvidia-smi does not find the library libnvidia-ml.so ({evidence}): install the user-space packages of the"
        " loaded driver.",
        _MANUAL,
        status=12,
    ),
    Failure(
        r"Failed to initialize NVML",
        "no_gpu",
        "nvidia-smi cannot open the driver's library ({evidence}; {pci}): see the lines with NVRM in the kernel log,"
        " and in a container whether it may use /dev/nvidia*.",
        "public reports, nvidia-smi exit status 255",
    ),
)
_INVALID_FIELD = re.compile(r'Field "?([\w.]+)"? is not a valid field to query')
# A line of a table begins with the number of a board, or has at least the columns of the shortest query of boards.
_ROW = re.compile(r"^\s*\d+\s*,")
_LEAST_COMMAS = 5
# "GPU 0000:0B:00.0", "GPU0000:0B:00.0", "gpu 00000000:0B:00.0"
_PLACE = r"[0-9A-F]{3,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]"
_ADDRESS = re.compile(rf"(?<![0-9A-Za-z:])(?:GPU)?\s*({_PLACE})(?![0-9A-F])", re.IGNORECASE)


def is_row(line):
    """Return whether a line is one of a table, which may hold the words of a failure."""
    return _ROW.match(line) is not None or line.count(",") >= _LEAST_COMMAS


def sentences_in(text):
    """Return the lines that are no rows of a table and not empty."""
    return [line.strip() for line in text.splitlines() if line.strip() and not is_row(line)]


def addresses_in(text):
    """Return the PCI addresses that a text names, as it names them."""
    return list(dict.fromkeys(_ADDRESS.findall(text)))


def failure_row(text, status=None):
    """Return the row of the table for the words of a failed call, else for its exit status, else None."""
    for row in FAILURES:
        if re.search(row.pattern, text, re.IGNORECASE):
            return row
    return next((row for row in FAILURES if row.status == status and status is not None), None)


def failure_of(output, module_version=None, status=None, library_version=None, pci="nobody looked at PCI"):
    """Return (Failure, sentence) for the output of a failed nvidia-smi, or None when the table has no row for it."""
    row = failure_row(output, status)
    if row is None:
        return None
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    line = next((line for line in lines if re.search(row.pattern, line, re.IGNORECASE)), None)
    evidence = line or "status {}{}".format(status, ", " + lines[0] if lines else "")
    library = re.search(r"NVML library version:\s*([\d.]+)", output)
    return row, row.sentence.format(
        library=library.group(1) if library else library_version or "unknown",
        module=module_version or "unknown",
        evidence=evidence[:200].rstrip("."),
        pci=pci,
    )


def unknown_failure(status, output):
    """Return the sentence for a failure that the table has no row for."""
    line = next((line.strip() for line in output.splitlines() if line.strip()), "no output")
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"nvidia-smi {how} ({line[:200].rstrip('.')}): run it by hand on the host, and see the kernel log."


def invalid_field(output):
    """Return the field that this driver does not know, or None."""
    match = _INVALID_FIELD.search(output)
    return match.group(1) if match else None


def kernel_module_version(text):
    """Return the version in the text of /proc/driver/nvidia/version, or None."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)*)", text or "")
    return match.group(1) if match else None
