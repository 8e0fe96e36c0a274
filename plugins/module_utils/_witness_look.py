# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the witnesses of a ready server, the asking. nvidia-smi, ``/proc`` and ``/server_info``, beside the completion.

Private to the gpufleet.sglang collection; may change at any time.

nvidia-smi is asked once, with a time limit, because it hangs with a sick driver: then it is a witness that is missing,
and the wait goes on.
"""

from __future__ import annotations

import os
import subprocess
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _gpu,
    _gpu_choice,
    _gpu_failures,
    _gpu_host,
    _http,
    _witness_seats,
    _witness_tool,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_processes import PROCESS_FIELDS, with_processes

# For both questions together. With eight boards and persistence mode they take about half a second.
LIMIT_SECONDS = 5.0

# The same when it did not answer while the server loaded: nobody waits for a driver that hangs, and one that was only
# slow has been woken by the ranks meanwhile.
HUNG_LIMIT_SECONDS = 1.0

NO_ANSWER = "nvidia-smi did not answer"
_BY_HAND = "run nvidia-smi by hand on the host, and see the lines with NVRM in the kernel log"


def look(
    main_pid,
    http=_http,
    proc_root="/proc",
    nvidia_smi="nvidia-smi",
    limit_seconds=LIMIT_SECONDS,
    run=_witness_tool.run_limited,
    clock=time.monotonic,
):
    """What nvidia-smi and ``/proc`` tell now. Never raises for what they say.

    :arg main_pid: main process of the unit. :arg http: the module ``_http`` or a double of it.
    :arg limit_seconds: for all questions to nvidia-smi together.
    :returns: ``{at, device, has_boards, error, boards, machine_free_mib}``. ``device`` is what the command line of the
        unit says, or None; ``error`` one sentence where nvidia-smi is missing; ``boards`` the visible ones:
        ``{board, uuid, name, free_mib, shared, problem, used, processes: [{pid, name, memory_mib, ours, rank}]}``.
    """
    device = _witness_tool.argument_of(main_pid, ("--device",), proc_root)
    found = {
        "at": time.time(),
        "device": device,
        "has_boards": False,
        "error": None,
        "boards": [],
        "machine_free_mib": machine_free_mib(proc_root),
    }
    if device in _witness_seats.SHARED_DEVICES:
        return found
    path = _witness_tool.find_command(nvidia_smi)
    if path is None:
        found["has_boards"] = os.path.exists(os.path.join(proc_root, "driver", "nvidia", "version"))
        if found["has_boards"] or device:
            found["error"] = "Expected nvidia-smi on this host, found none: install the tools of the NVIDIA driver"
        return found
    found["has_boards"] = True
    gpus, error = _ask(path, run, limit_seconds, clock)
    if error:
        return dict(found, error=error)
    try:
        gpus = list(_gpu_choice.visible(gpus, _environment(main_pid, proc_root)))
        if not gpus:
            return dict(found, error="The unit sees an instance of MIG, whose memory nvidia-smi does not list")
        gpus = _gpu.with_machine_memory(gpus, _gpu_host.read_text(os.path.join(proc_root, "meminfo")))
    except _gpu_failures.GpuError as problem:
        return dict(found, error=str(problem))
    return dict(found, boards=[_board(gpu, number, main_pid, http, proc_root) for number, gpu in enumerate(gpus)])


def _ask(path, run, limit_seconds, clock):
    """(entries of gpu_info with processes, None), or ([], one sentence)."""
    until = clock() + limit_seconds
    fields = _gpu.FIELDS
    status, out, err, error = _query(path, "gpu", fields, run, until - clock())
    if status and _gpu_failures.invalid_field(out + err):
        fields = _gpu.SHORT_FIELDS
        status, out, err, error = _query(path, "gpu", fields, run, until - clock())
    if error:
        return [], error
    # Beside a warning the table is whole.
    status = 0 if status == _gpu_failures.WARNS else status
    known = _gpu_failures.failure_of(out + "\n" + err, status=status) if status else None
    if known:
        return [], known[1]
    if status:
        line = next((line.strip() for line in (out + "\n" + err).splitlines() if line.strip()), "no output")
        return [], f"nvidia-smi ended with status {status} ({line[:200]}): {_BY_HAND}"
    try:
        gpus = _gpu.parse_query(out, fields)
    except _gpu_failures.GpuError as problem:
        return [], str(problem)
    if not gpus:
        return [], f"nvidia-smi lists no board: {_BY_HAND}"
    # Who holds the memory is worth less than the memory: without an answer the boards are counted off in order.
    status, out, _err, _error = _query(path, "compute-apps", PROCESS_FIELDS, run, until - clock())
    return with_processes(gpus, "" if status else out), None


def _query(path, what, fields, run, seconds):
    """(status, stdout, stderr, None) of one question, or the status -1 and a sentence."""
    argv = [path, f"--query-{what}=" + ",".join(fields), "--format=csv,noheader,nounits"]
    try:
        return (*run(argv, max(seconds, 0.1)), None)
    except subprocess.TimeoutExpired:
        return -1, "", "", f"{NO_ANSWER} in time: {_BY_HAND}"
    except OSError as problem:
        return -1, "", "", f"nvidia-smi could not be run ({problem}): {_BY_HAND}"


def _board(gpu, number, main_pid, http, proc_root):
    processes = [_process(one, main_pid, http, proc_root) for one in gpu.get("processes") or ()]
    return {
        "board": str(number if gpu.get("index") is None else gpu["index"]),
        "uuid": gpu.get("uuid"),
        "name": gpu.get("name"),
        "free_mib": gpu.get("memory_free_mib"),
        "shared": bool(gpu.get("unified_memory")),
        "problem": gpu.get("problem"),
        "used": any(one["ours"] for one in processes),
        "processes": processes,
    }


def _process(one, main_pid, http, proc_root):
    """``ours`` is None for a process that this view of /proc does not show, as in a container."""
    pid = one["pid"]
    words = _words(pid, "cmdline", proc_root)
    ours = http.descends_from(pid, main_pid, proc_root) if http.process_exists(pid, proc_root) else None
    return dict(one, ours=ours, rank=_witness_seats.rank_of_title(words[0]) if ours and words else None)


def _words(pid, name, proc_root):
    """The words of a file of /proc/PID, without empty ones; none when it cannot be read."""
    return [word for word in _witness_tool.words_of(pid, name, proc_root) if word] if pid else []


def _environment(pid, proc_root):
    """Of the environment of the unit's process only which boards it may see: nothing else leaves this function."""
    pairs = (word.partition("=") for word in _words(pid, "environ", proc_root))
    return {name: value for name, _sign, value in pairs if name == _gpu_choice.VISIBLE}


def machine_free_mib(proc_root="/proc"):
    """Available memory of the machine as the engine counts it on a CPU: a rank's share is that of its NUMA node."""
    try:
        _total, available = _gpu.meminfo_mib(_gpu_host.read_text(os.path.join(proc_root, "meminfo")))
    except _gpu_failures.GpuError:
        return None
    return available // _gpu_host.numa_nodes()


def missing(looked):
    """One sentence when nvidia-smi, the best witness, was not heard. :arg looked: of :func:`look`, or None."""
    if looked is None:
        return [f"{NO_ANSWER} in time: {_BY_HAND}."]
    return [looked["error"].rstrip(".") + "."] if looked.get("error") else []


def ask_info(http, address):
    """(record by ``/server_info`` or None, why not). Never raises for what the server says."""
    answer = http.server_info(address)
    if answer.good and isinstance(answer.data, dict):
        return http.startup_of_server_info(answer.data), None
    return None, answer.error or f"/server_info answered with status {answer.status}"


class Asking:
    """All witnesses, asked beside the completion. Nothing is waited for before :meth:`heard`.

    :arg call: ``_ready_run.Call`` or a double of it. :arg hangs: nvidia-smi did not answer before.
    """

    def __init__(
        self, call, main_pid, http, address, proc_root="/proc", nvidia_smi="nvidia-smi", looking=look, hangs=False
    ):
        limit_seconds = HUNG_LIMIT_SECONDS if hangs else LIMIT_SECONDS
        self._looked = call(looking, main_pid, http, proc_root, nvidia_smi, limit_seconds)
        self._asked = call(ask_info, http, address)
        began = time.monotonic()
        self._untils = (began + limit_seconds + 0.5, began + LIMIT_SECONDS + 0.5)
        for one in (self._looked, self._asked):
            one.start()

    def heard(self):
        """(look or None, info or None, why no info): waits for the rest of the time limits and no longer."""
        for one, until in zip((self._looked, self._asked), self._untils):
            one.join(max(until - time.monotonic(), 0.0))
        info, why = self._asked.result or (None, f"no answer ({self._asked.error or 'time limit'})")
        return self._looked.result, info, why
