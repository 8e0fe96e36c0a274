# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs are there, the asking half: runs nvidia-smi, reads /proc and /sys. Private to the collection."""

from __future__ import annotations

import glob
import re
import subprocess
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu_failures, _gpu_mig, _gpu_pci, _witness_tool
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu import (
    FIELDS,
    SHORT_FIELDS,
    cpu_result,
    gpu_result,
    lost_beside,
    nodes_with_cpus,
    parse_query,
    refuse_none,
    warnings_in,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import GpuError
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_processes import PROCESS_FIELDS, with_processes
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_topology import (
    LINKS,
    PEERS,
    all_pairs,
    with_topology,
)

PAUSE_SECONDS = 2  # between two tries while the driver does not answer yet
# Exit statuses of a query that may have failed for one of its fields; with others the short one has the same answer.
_OF_A_FIELD = (2, 3, 13, 255)
_LIBRARIES = ("/usr/lib/*/libnvidia-ml.so.*.*", "/usr/lib64/libnvidia-ml.so.*.*", "/usr/lib/libnvidia-ml.so.*.*")


def read_text(path):
    """Return the text of a small file, empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read(1024 * 1024)
    except OSError:
        return ""


def _each(pattern):
    return [read_text(path) for path in sorted(glob.glob(pattern))]


def numa_nodes():
    """Return the number of NUMA nodes that have CPUs, at least 1: on a CPU the engine gives each rank one of them."""
    return nodes_with_cpus(_each("/sys/devices/system/node/node[0-9]*/cpulist"))


def _machine_memory():
    return read_text("/proc/meminfo"), numa_nodes()


def pci_boards():
    """Return the NVIDIA boards of the PCI bus."""
    return _gpu_pci.boards_of()


def held_addresses():
    """Return the addresses of the boards that the loaded driver holds."""
    return _gpu_pci.held_by_driver()


def library_version():
    """Return the version of the management library that is installed, by its file's name, or None."""
    for pattern in _LIBRARIES:
        for path in sorted(glob.glob(pattern)):
            match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", path)
            if match:
                return match.group(1)
    return None


def read_host(module):
    """Return (result of gpu_info, warnings). C(module): an AnsibleModule. Raises GpuError (one sentence)."""
    for name in ("timeout_seconds", "tries"):
        if module.params[name] < 1:
            raise GpuError(f"Expected at least 1 for the option {name}, found {module.params[name]}.")
    device = module.params["device"]
    command = module.params["nvidia_smi"]
    path = None if device == "cpu" else find_command(module, command)
    if path is None and (device == "cuda" or (device == "auto" and "/" in command)):
        raise GpuError(
            f"Expected {command} on this host, found nothing: install the NVIDIA driver's tools, or correct the"
            " option nvidia_smi."
        )
    if path is None:
        return _without_tool(device)
    tool = Tool(path, module.params["timeout_seconds"])
    boards, warnings = _ask(tool, module.params["tries"])
    return _with_all(tool, boards, warnings)


def _without_tool(device):
    meminfo, nodes = _machine_memory()
    boards = pci_boards() if device == "auto" else []
    warnings = []
    if boards:
        warnings.append(
            f"This host has {len(boards)} NVIDIA boards but no nvidia-smi, its figures are those of the CPU:"
            " install the driver."
        )
    result = cpu_result(meminfo, nodes)
    gpus = _gpu_mig.with_instances(_gpu_pci.with_places(with_processes(result["gpus"], ""), {}), "", "")
    return _connected(dict(result, gpus=gpus)), warnings


def _with_all(tool, boards, warnings):
    """Return (result, warnings) with all that the tool and the bus tell of the boards that it lists."""
    refuse_none(boards)
    apps = tool.told([f"--query-compute-apps={','.join(PROCESS_FIELDS)}", *_CSV])
    places, version = _gpu_pci.parse_places(tool.told([f"--query-gpu={','.join(_gpu_pci.PLACE_FIELDS)}", *_CSV]))
    split = any(gpu["mig"] for gpu in boards)
    instances = [tool.told(words) if split else "" for words in (_gpu_mig.LIST, _gpu_mig.DETAILS)]
    gpus = with_processes(_gpu_mig.with_instances(_gpu_pci.with_places(boards, places), *instances), apps)
    loaded = _gpu_failures.kernel_module_version(read_text("/proc/driver/nvidia/version"))
    result = gpu_result(gpus, loaded or version, read_text("/proc/meminfo"))
    missing = _gpu_pci.missing(result["gpus"], held_addresses())
    problems = result["problems"] + ([_gpu_pci.missing_sentence(missing)] if missing else [])
    unbound = _gpu_pci.unbound_sentence(pci_boards())
    matrices = [tool.told(words) for words in (LINKS, PEERS)] if len(gpus) > 1 else []
    result = _connected(dict(result, missing_boards=missing, problems=problems), *matrices)
    return result, warnings + problems + ([unbound] if unbound else [])


def _connected(result, links_text="", peers_text=""):
    """Return a result of gpu_info with what the boards reach of each other."""
    gpus = with_topology(result["gpus"], links_text, peers_text)
    return dict(result, gpus=gpus, full_nvlink=all_pairs(gpus, "nvlinks"))


def find_command(module, command):
    """Return the path of the command, or None."""
    if "/" in command:
        return _witness_tool.find_command(command)
    return module.get_bin_path(command, opt_dirs=["/usr/lib/wsl/lib", "/usr/lib/nvidia/bin"])


_CSV = ("--format=csv,noheader,nounits",)


class Tool:
    """nvidia-smi, which hangs on a sick driver: no call is waited for longer than C(seconds).

    What is asked beside the boards has three times as long, all of it together, and who has waited for one hanging
    call does not wait for the next.
    """

    BESIDE = 3

    def __init__(self, path, seconds, clock=time.monotonic):
        self.path = path
        self.seconds = seconds
        self.clock = clock
        self.left = float(seconds) * self.BESIDE

    def run(self, words, seconds=None):
        """Return (status, stdout, stderr). Raises GpuError when there is no answer in time."""
        try:
            return _witness_tool.run_limited([self.path, *words], self.seconds if seconds is None else seconds)
        except subprocess.TimeoutExpired as error:
            raise GpuError(
                f"nvidia-smi did not answer within {self.seconds} s: the driver hangs, see the lines with NVRM in the"
                " kernel log and reboot the host."
            ) from error
        except OSError as error:
            raise GpuError(
                f"{self.path} cannot be run ({error.strerror or error}): reinstall the driver's tools, or correct the"
                " option nvidia_smi."
            ) from error

    def query(self, fields):
        return self.run([f"--query-gpu={','.join(fields)}", *_CSV])

    def told(self, words):
        """Return what the tool says to a question that a plan goes on without, empty where it does not answer."""
        if self.left <= 0:
            return ""
        begun = self.clock()
        try:
            status, out, _err = self.run(words, min(self.left, self.seconds))
        except GpuError:
            self.left = 0
            return ""
        self.left -= self.clock() - begun
        return out if status in (0, _gpu_failures.WARNS) else ""


def _ask(tool, tries):
    """Return (boards, warnings of the tool).

    A driver that does not answer yet is asked again; one that does not know a field is asked for the others.
    """
    fields = FIELDS
    tries_left = tries
    while True:
        status, out, err = tool.query(fields)
        answered = _boards_in(status, out, err, fields)
        if answered is not None:
            return answered
        shorter = _fewer(fields, status, out + "\n" + err)
        if shorter:
            fields = shorter
            continue
        row, error = failure_in(status, out, err)
        tries_left -= 1
        if row is None or not row.transient or tries_left < 1:
            raise error
        time.sleep(PAUSE_SECONDS)


def _boards_in(status, out, err, fields):
    """Return (boards, warnings) of an answer that is a table, None where it is none."""
    if status not in (0, _gpu_failures.WARNS) or lost_beside(out, err):
        return None
    tables = any(_gpu_failures.is_row(line) for line in out.splitlines())
    if not tables and (status or _gpu_failures.failure_row(out + "\n" + err)):
        return None
    return parse_query(out, fields), warnings_in(out)


def _fewer(fields, status, output):
    """Return the fields without what this tool does not know, or None where that is not what it says."""
    unknown = _gpu_failures.invalid_field(output)
    if unknown in fields[len(SHORT_FIELDS) :]:
        return tuple(field for field in fields if field != unknown)
    if unknown is None and (status not in _OF_A_FIELD or _gpu_failures.failure_row(output)):
        return None
    return SHORT_FIELDS if fields != SHORT_FIELDS else None


def failure_in(status, out, err):
    """Return (row of the table or None, GpuError) for an answer that is no table."""
    output = out + "\n" + err
    boards = pci_boards()
    known = _gpu_failures.failure_of(
        output,
        _gpu_failures.kernel_module_version(read_text("/proc/driver/nvidia/version")),
        status=status,
        library_version=library_version(),
        pci=_gpu_pci.in_words(boards),
    )
    if known is None:
        return None, GpuError(_gpu_failures.unknown_failure(status, output))
    row, sentence = known
    addresses = _gpu_failures.addresses_in(output)
    if row.counted:
        addresses = [board.address for board in boards]
    return row, GpuError(sentence, row.kind, 0 if row.counted else None, addresses)
