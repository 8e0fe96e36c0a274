# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs are there, the asking half: runs nvidia-smi, reads /proc and /sys. Private to the collection."""

from __future__ import annotations

import glob
import os
import re
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu import (
    FIELDS,
    SHORT_FIELDS,
    GpuError,
    cpu_result,
    failure_of,
    gpu_result,
    invalid_field,
    kernel_module_version,
    nodes_with_cpus,
    nvidia_devices,
    parse_query,
    warnings_in,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_processes import PROCESS_FIELDS, with_processes
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_topology import (
    LINKS,
    PEERS,
    all_pairs,
    with_topology,
)

PAUSE_SECONDS = 2  # between two tries while the driver does not answer yet
TIMED_OUT = (124, 137)  # exit status of timeout(1), and of a process that it had to kill


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


def _pci_devices():
    pairs = []
    for folder in sorted(glob.glob("/sys/bus/pci/devices/*")):
        pairs.append((read_text(os.path.join(folder, "vendor")), read_text(os.path.join(folder, "class"))))
    return pairs


def read_host(module):
    """Return (result of gpu_info, warnings). C(module): an AnsibleModule. Raises GpuError (one sentence)."""
    for name in ("timeout_seconds", "tries"):
        if module.params[name] < 1:
            raise GpuError(f"Expected at least 1 for the option {name}, found {module.params[name]}.")
    device = module.params["device"]
    command = module.params["nvidia_smi"]
    path = None if device == "cpu" else find_command(module, command)
    if path is None and (device == "cuda" or (device == "auto" and os.path.sep in command)):
        raise GpuError(
            f"Expected {command} on this host, found nothing: install the NVIDIA driver's tools, or correct the"
            " option nvidia_smi."
        )
    if path is None:
        meminfo, nodes = _machine_memory()
        boards = nvidia_devices(_pci_devices()) if device == "auto" else 0
        warnings = []
        if boards:
            warnings.append(
                f"This host has {boards} NVIDIA boards but no nvidia-smi, its figures are those of the CPU:"
                " install the driver."
            )
        result = cpu_result(meminfo, nodes)
        return _connected(dict(result, gpus=with_processes(result["gpus"], ""))), warnings
    boards, warnings = _ask(module, path)
    gpus = with_processes(boards, _process_text(module, path))
    result = gpu_result(gpus, _driver_version(module, path), read_text("/proc/meminfo"))
    matrices = [_topology_text(module, path, words) for words in (LINKS, PEERS)] if len(gpus) > 1 else []
    return _connected(result, *matrices), warnings + list(result["problems"])


def _connected(result, links_text="", peers_text=""):
    """Return a result of gpu_info with what the boards reach of each other."""
    gpus = with_topology(result["gpus"], links_text, peers_text)
    return dict(result, gpus=gpus, full_nvlink=all_pairs(gpus, "nvlinks"))


def find_command(module, command):
    """Return the path of the command, or None."""
    if os.path.sep in command:
        return command if os.access(command, os.X_OK) and os.path.isfile(command) else None
    return module.get_bin_path(command, opt_dirs=["/usr/lib/wsl/lib", "/usr/lib/nvidia/bin"])


def _run(module, path, fields, what="gpu"):
    """Return (rc, stdout, stderr) of one query. timeout(1) ends a call that hangs on a sick driver."""
    return _run_words(module, path, [f"--query-{what}=" + ",".join(fields), "--format=csv,noheader,nounits"])


def _run_words(module, path, words):
    argv = [path] + list(words)
    timeout = module.get_bin_path("timeout")
    seconds = module.params["timeout_seconds"]
    if timeout:
        argv = [timeout, "-k", "5", str(seconds)] + argv
    rc, out, err = module.run_command(
        argv, environ_update={"LANG": "C", "LC_ALL": "C"}, errors="surrogate_then_replace"
    )
    if timeout and rc in TIMED_OUT:
        raise GpuError(
            f"nvidia-smi did not answer within {seconds} s: the driver hangs, see the lines with NVRM in the"
            " kernel log and reboot the host."
        )
    return rc, out, err


def _ask(module, path):
    """Return (boards, warnings of the tool).

    A driver that does not answer yet is asked again; an old one is asked for fewer fields.
    """
    fields = FIELDS
    tries_left = module.params["tries"]
    while True:
        rc, out, err = _run(module, path, fields)
        if rc != 0 and invalid_field(out + err) and fields is FIELDS:
            fields = SHORT_FIELDS
            continue
        if rc == 0 and (failure_of(out) is None or not _is_message(out)):
            return parse_query(out, fields), warnings_in(out)
        known = failure_of(out + "\n" + err, kernel_module_version(read_text("/proc/driver/nvidia/version")))
        if known is None:
            raise GpuError(_unknown_failure(rc, out, err))
        row, sentence = known
        tries_left -= 1
        if not row.transient or tries_left < 1:
            raise GpuError(sentence)
        time.sleep(PAUSE_SECONDS)


def _process_text(module, path):
    """Return what the tool says of the processes on the boards, empty where it does not: a plan goes on without."""
    try:
        rc, out, _err = _run(module, path, PROCESS_FIELDS, "compute-apps")
    except GpuError:
        return ""
    return out if rc == 0 else ""


def _topology_text(module, path, words):
    """Return a matrix of nvidia-smi topo, empty where the tool does not tell it: nothing depends on it for sure."""
    try:
        rc, out, _err = _run_words(module, path, words)
    except GpuError:
        return ""
    return out if rc == 0 else ""


def _is_message(text):
    """Return whether the answer is a sentence and no table. A table may hold words such as Insufficient Permissions."""
    return not re.search(r"^\s*\d+\s*,", text, re.MULTILINE)


def _unknown_failure(rc, out, err):
    line = next((line.strip() for line in (out + "\n" + err).splitlines() if line.strip()), "no output")
    return "nvidia-smi ended with status {} ({}): run it by hand on the host, and see the kernel log.".format(
        rc, line[:200].rstrip(".")
    )


def _driver_version(module, path):
    """Return the version of the driver: of the loaded module, else as nvidia-smi says."""
    loaded = kernel_module_version(read_text("/proc/driver/nvidia/version"))
    if loaded:
        return loaded
    rc, out, _err = _run(module, path, ("driver_version",))
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    return lines[0] if rc == 0 and lines and re.match(r"^\d+(\.\d+)+$", lines[0]) else None
