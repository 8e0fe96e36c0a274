# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, its samples. How much memory is free while it runs: NVML, nvidia-smi or /proc/meminfo.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import importlib


def meminfo_free_gib(text):
    """``{"cpu": GiB}``: the memory that is available, as SGLang on a CPU counts it, from ``/proc/meminfo``."""
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return {"cpu": int(line.split()[1]) / 1048576.0}
    return {}


def nvidia_smi_free_gib(text):
    """``{index: GiB}`` from ``nvidia-smi --query-gpu=index,memory.free --format=csv,noheader,nounits`` (MiB)."""
    free = {}
    for line in text.splitlines():
        index, dummy, mib = (part.strip() for part in line.partition(","))
        try:
            free[str(int(index))] = float(mib) / 1024.0
        except ValueError:
            continue
    return free


class NvmlSampler:
    """Free memory through NVIDIA's management library: microseconds a sample, nvidia-smi takes tens of milliseconds.

    :raises Exception: whatever the library raises when there is no driver.
    """

    def __init__(self, library, boards):
        self._library = library
        library.nvmlInit()
        numbers = boards or range(library.nvmlDeviceGetCount())
        self._handles = {str(number): library.nvmlDeviceGetHandleByIndex(number) for number in numbers}

    def __call__(self):
        memory = self._library.nvmlDeviceGetMemoryInfo
        return {board: memory(handle).free / 1073741824.0 for board, handle in self._handles.items()}


class SmiSampler:
    """Free memory through ``nvidia-smi``; an empty sample when it does not answer."""

    def __init__(self, run_command, nvidia_smi, boards):
        self._run_command = run_command
        self._argv = [nvidia_smi, "--query-gpu=index,memory.free", "--format=csv,noheader,nounits"]
        self._boards = {str(board) for board in boards}

    def __call__(self):
        try:
            status, out, dummy = self._run_command(self._argv)
        except OSError:
            return {}
        free = nvidia_smi_free_gib(out) if status == 0 else {}
        return {board: gib for board, gib in free.items() if not self._boards or board in self._boards}


def meminfo_sampler(path="/proc/meminfo"):
    """A sampler of the machine's available memory."""

    def sample():
        try:
            with open(path, encoding="ascii", errors="replace") as stream:
                return meminfo_free_gib(stream.read())
        except OSError:
            return {}

    return sample


def sampler_of(options, run_command):
    """The best sampler that works here: NVML of the engine's venv, else nvidia-smi; the available memory on a CPU."""
    if options["device"] == "cpu":
        return meminfo_sampler()
    if options["nvidia_smi"] == "nvidia-smi":
        try:
            return NvmlSampler(importlib.import_module("pynvml"), options["boards"])
        except Exception:  # pylint: disable=broad-except
            # Not installed, or no driver: nvidia-smi tells the rest.
            pass
    return SmiSampler(run_command, options["nvidia_smi"], options["boards"])
