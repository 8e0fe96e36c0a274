# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong on demand on GPUs: a list of faults, from PLAYED_FAULTS (JSON) or /etc/played/faults.json.

A fault is {"at": phase, "kind": ..., "rank": 0 | [0, 3] | "all", "after_seconds": 0, "text": ..., "times": N, ...}.
Phases: init, weights, pool, prefill_graph, graphs, warmup, ready, prefill, decode. Kinds are the keys of KINDS. With
``times`` it strikes in the first so many starts since the fault was written down; without, in every start.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time

from sglang.played import cuda_lines, ledger

FILE = "/etc/played/faults.json"
KINDS = {
    "oom": "torch.OutOfMemoryError with the figures of now; wanted_mib, or text",
    "exception": "an exception whose last line is text",
    "nccl": "a failure of NCCL; in graphs it is wrapped as every failure of a capture is",
    "hang": "silence; while serving, the watchdog ends it after --watchdog-timeout",
    "kill_rank": "SIGKILL of the rank",
    "sigsegv": "SIGSEGV of the rank, with the lines of faulthandler",
    "abort": "SIGABRT of the rank after the words of a C++ library; text",
    "exit": "the rank ends without a word; code",
    "silent": "the launcher ends without a word; code",
    "port": "the port is taken when uvicorn binds it",
    "slow": "the phase takes so many seconds more; seconds",
    "burst": "so many lines at once; lines",
    "error_line": "a line in the log and nothing else; text",
}
LAUNCHER = ("port",)
NCCL_TEXT = "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"


def _given() -> list[dict]:
    text = os.environ.get("PLAYED_FAULTS")
    if text:
        return json.loads(text)
    try:
        with open(os.environ.get("PLAYED_FAULTS_FILE", FILE), encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return []


def starts(port: int) -> int:
    """The number of this start of the server on this port: the first is 1."""
    return ledger.count(f"starts-{port}")


def armed() -> list[dict]:
    """The faults of this start. Raises ValueError for a kind that does not exist."""
    found = []
    for fault in _given():
        if fault.get("kind") not in KINDS:
            raise ValueError(f"Expected a kind of fault of {', '.join(KINDS)}, found {fault.get('kind')}.")
        if "times" in fault:
            mark = hashlib.sha256(json.dumps(fault, sort_keys=True).encode()).hexdigest()[:12]
            if ledger.count(f"fault-{mark}") > fault["times"]:
                continue
        found.append(fault)
    return found


class Told(Exception):
    """An exception whose traceback ends in the line that was asked for."""


def exception(line: str) -> Exception:
    """ "torch.OutOfMemoryError: words" -> an exception that Python prints as this line."""
    name, colon, text = line.partition(": ")
    if not colon:
        name, text = "RuntimeError", line
    module, _dot, name = name.rpartition(".")
    base = RuntimeError if name in ("RuntimeError", "OutOfMemoryError") else Told
    return type(name, (base,), {"__module__": module or "builtins"})(text)


class Striker:
    """The faults of one rank. ``check`` is asked again and again, with the seconds since the phase began."""

    def __init__(self, faults: list[dict], number: int, memory, talk, watchdog_seconds: float, say):
        self._left = [fault for fault in faults if fault["kind"] not in LAUNCHER and _is_meant(fault, number)]
        self._memory, self._talk, self._say = memory, talk, say
        self._watchdog_seconds = watchdog_seconds

    def check(self, phase: str, seconds: float) -> None:
        for fault in [one for one in self._left if one["at"] == phase]:
            if seconds >= float(fault.get("after_seconds", 0)):
                self._left.remove(fault)
                getattr(self, "_" + fault["kind"])(fault, phase)

    def timers(self, fail) -> None:
        """Begin to wait for the faults of a server that is ready. fail: what to do with an exception."""
        for fault in [one for one in self._left if one["at"] == "ready"]:
            def strike(fault=fault):
                time.sleep(float(fault.get("after_seconds", 0)))
                try:
                    getattr(self, "_" + fault["kind"])(fault, "ready")
                except Exception:
                    fail()
                    os._exit(1)
            threading.Thread(target=strike, daemon=True).start()

    def _oom(self, fault, _phase):
        if fault.get("text"):
            raise exception("torch.OutOfMemoryError: " + fault["text"].removeprefix("torch.OutOfMemoryError: "))
        raise self._memory.exhausted(float(fault.get("wanted_mib", 896)) / 1024)

    def _exception(self, fault, _phase):
        raise exception(fault.get("text") or "RuntimeError: the played engine was told to fail")

    def _nccl(self, fault, _phase):
        raise RuntimeError(fault.get("text") or NCCL_TEXT)

    def _hang(self, _fault, phase):
        if phase in ("ready", "prefill", "decode") and self._watchdog_seconds:
            threading.Thread(target=self._watch, daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            while True:
                signal.pause()

    def _watch(self):
        time.sleep(self._watchdog_seconds)
        self._say(cuda_lines.watchdog(self._watchdog_seconds))
        sys.stderr.write("\n")
        sys.stderr.flush()
        time.sleep(min(5.0, self._watchdog_seconds))
        os.kill(os.getppid(), signal.SIGQUIT)

    def _kill_rank(self, _fault, _phase):
        os.kill(os.getpid(), signal.SIGKILL)

    def _sigsegv(self, _fault, _phase):
        os.kill(os.getpid(), signal.SIGSEGV)

    def _abort(self, fault, _phase):
        sys.stderr.write(fault.get("text") or "terminate called after throwing an instance of 'c10::DistBackendError'")
        sys.stderr.write("\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)

    def _exit(self, fault, _phase):
        os._exit(int(fault.get("code", 1)))

    def _silent(self, fault, _phase):
        self._talk({"silent": int(fault.get("code", 1))})
        signal.pause()

    def _slow(self, fault, _phase):
        time.sleep(float(fault.get("seconds", 5)))

    def _burst(self, fault, _phase):
        for number in range(int(fault.get("lines", 2000))):
            self._say(f"Using default MoE kernel config. Performance might be sub-optimal! Not found: config {number}")

    def _error_line(self, fault, _phase):
        self._say(fault.get("text", "an error line"))


def _is_meant(fault: dict, number: int) -> bool:
    rank = fault.get("rank", 0)
    return rank == "all" or number == rank or (isinstance(rank, list) and number in rank)
