# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the load, its samples. How much memory is free while it runs: NVML, nvidia-smi or /proc/meminfo.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import importlib
import subprocess
import threading
import time


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

    :arg fallback: a sampler that is asked when the library does not answer.
    :raises Exception: whatever the library raises when there is no driver.
    """

    def __init__(self, library, boards, fallback):
        self._library = library
        self._fallback = fallback
        library.nvmlInit()
        numbers = boards or range(library.nvmlDeviceGetCount())
        self._handles = {str(number): library.nvmlDeviceGetHandleByIndex(number) for number in numbers}

    def __call__(self):
        memory = self._library.nvmlDeviceGetMemoryInfo
        try:
            return {board: memory(handle).free / 1073741824.0 for board, handle in self._handles.items()}
        except Exception:  # pylint: disable=broad-except
            # A board that is lost raises an error of the library's own.
            return self._fallback()


# nvidia-smi as a loop: it costs its start once, and a sample some milliseconds.
LOOP_MILLISECONDS = 100
# A loop that is silent for so long hangs.
SILENT_SECONDS = 2.0


class SmiLoop:
    """Free memory from one ``nvidia-smi -lms`` that runs as long as the load; ``fallback`` when it does not.

    A call returns the least since the last one, so that nothing is lost between two.
    """

    def __init__(self, nvidia_smi, boards, fallback, clock=time.monotonic):
        self._clock = clock
        self._heard = clock()
        self._boards = {str(board) for board in boards}
        self._fallback = fallback
        self._lock = threading.Lock()
        self._least = {}
        self._last = {}
        argv = [nvidia_smi, "--query-gpu=index,memory.free", "--format=csv,noheader,nounits"]
        try:
            self._process = subprocess.Popen(  # pylint: disable=consider-using-with,ansible-bad-function
                argv + ["-lms", str(LOOP_MILLISECONDS)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                universal_newlines=True,
            )
        except OSError:
            self._process = None
            return
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            for board, gib in nvidia_smi_free_gib(line).items():
                if not self._boards or board in self._boards:
                    with self._lock:
                        self._heard = self._clock()
                        self._last[board] = gib
                        self._least[board] = min(self._least.get(board, gib), gib)

    def __call__(self):
        ended = self._process is None or self._process.poll() is not None
        if ended or self._clock() - self._heard > SILENT_SECONDS:
            return self._fallback()
        with self._lock:
            told, self._least = self._least or dict(self._last), {}
        return told or self._fallback()

    def close(self):
        """End the loop."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


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
    """The best sampler that works here: NVML of the engine's venv, else a loop of nvidia-smi; on a CPU its memory."""
    if options["device"] == "cpu":
        return meminfo_sampler()
    once = SmiSampler(run_command, options["nvidia_smi"], options["boards"])
    if options["nvidia_smi"] == "nvidia-smi":
        try:
            return NvmlSampler(importlib.import_module("pynvml"), options["boards"], once)
        except Exception:  # pylint: disable=broad-except
            # Not installed, or no driver: nvidia-smi tells the rest.
            pass
    return SmiLoop(options["nvidia_smi"], options["boards"], once)
