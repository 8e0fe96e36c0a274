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
import signal
import subprocess
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu, _gpu_choice, _gpu_host, _http, _witness_seats
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_processes import PROCESS_FIELDS, with_processes

# For both questions together. With eight boards and persistence mode they take about half a second.
LIMIT_SECONDS = 5.0

_MORE_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/usr/lib/nvidia/bin")
_BY_HAND = "run nvidia-smi by hand on the host, and see the lines with NVRM in the kernel log"


def run_limited(argv, seconds):
    """(status, stdout, stderr) of a command; raises OSError, or subprocess.TimeoutExpired after ``seconds``."""
    command = subprocess.Popen(  # pylint: disable=consider-using-with
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LANG="C", LC_ALL="C"),
        start_new_session=True,
    )
    try:
        out, err = command.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # Its children too (it may be a script). Not waited for: a process that hangs in the driver does not end.
        os.killpg(command.pid, signal.SIGKILL)
        raise
    return command.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def find(command):
    """The path of nvidia-smi, or None."""
    if os.path.sep in command:
        return command if os.access(command, os.X_OK) else None
    folders = os.environ.get("PATH", "").split(os.pathsep)
    paths = [os.path.join(folder, command) for folder in (*folders, *_MORE_FOLDERS) if folder]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def look(main_pid, http=_http, proc_root="/proc", nvidia_smi="nvidia-smi", run=run_limited, clock=time.monotonic):
    """What nvidia-smi and ``/proc`` tell now. Never raises for what they say.

    :arg main_pid: main process of the unit. :arg http: the module ``_http`` or a double of it.
    :returns: ``{at, device, has_boards, error, boards, machine_free_mib}``. ``device`` is what the command line of the
        unit says, or None; ``error`` one sentence where nvidia-smi is missing; ``boards`` the visible ones:
        ``{board, uuid, name, free_mib, shared, problem, used, processes: [{pid, name, memory_mib, ours, rank}]}``.
    """
    device = device_of_words(_words(main_pid, "cmdline", proc_root))
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
    path = find(nvidia_smi)
    if path is None:
        found["has_boards"] = os.path.exists(os.path.join(proc_root, "driver", "nvidia", "version"))
        if found["has_boards"] or device:
            found["error"] = "Expected nvidia-smi on this host, found none: install the tools of the NVIDIA driver"
        return found
    found["has_boards"] = True
    gpus, error = _ask(path, run, clock() + LIMIT_SECONDS, clock)
    if error:
        return dict(found, error=error)
    try:
        gpus = list(_gpu_choice.visible(gpus, _environment(main_pid, proc_root)))
        if not gpus:
            return dict(found, error="The unit sees an instance of MIG, whose memory nvidia-smi does not list")
        gpus = _gpu.with_machine_memory(gpus, _gpu_host.read_text(os.path.join(proc_root, "meminfo")))
    except _gpu.GpuError as problem:
        return dict(found, error=str(problem))
    return dict(found, boards=[_board(gpu, number, main_pid, http, proc_root) for number, gpu in enumerate(gpus)])


def _ask(path, run, until, clock):
    """(entries of gpu_info with processes, None), or ([], one sentence)."""
    fields = _gpu.FIELDS
    status, out, err, error = _query(path, "gpu", fields, run, until - clock())
    if status and _gpu.invalid_field(out + err):
        fields = _gpu.SHORT_FIELDS
        status, out, err, error = _query(path, "gpu", fields, run, until - clock())
    if error:
        return [], error
    known = _gpu.failure_of(out + "\n" + err) if status else None
    if known:
        return [], known[1]
    if status:
        line = next((line.strip() for line in (out + "\n" + err).splitlines() if line.strip()), "no output")
        return [], f"nvidia-smi ended with status {status} ({line[:200]}): {_BY_HAND}"
    try:
        gpus = _gpu.parse_query(out, fields)
    except _gpu.GpuError as problem:
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
        return -1, "", "", f"nvidia-smi did not answer within {LIMIT_SECONDS:.0f} s: {_BY_HAND}"
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
    """The words of a file of /proc/PID that are ended by NUL; empty when it cannot be read."""
    if not pid:
        return []
    text = _gpu_host.read_text(os.path.join(proc_root, str(pid), name))
    return [word for word in text.split("\0") if word]


def device_of_words(words):
    """The value of ``--device`` on a command line, or None."""
    for word, following in zip(words, [*words[1:], None]):
        if word == "--device":
            return following
        if word.startswith("--device="):
            return word.partition("=")[2] or None
    return None


def _environment(pid, proc_root):
    """Of the environment of the unit's process only which boards it may see: nothing else leaves this function."""
    pairs = (word.partition("=") for word in _words(pid, "environ", proc_root))
    return {name: value for name, _sign, value in pairs if name == _gpu_choice.VISIBLE}


def machine_free_mib(proc_root="/proc"):
    """Available memory of the machine as the engine counts it on a CPU: a rank's share is that of its NUMA node."""
    try:
        _total, available = _gpu.meminfo_mib(_gpu_host.read_text(os.path.join(proc_root, "meminfo")))
    except _gpu.GpuError:
        return None
    return available // _gpu_host.numa_nodes()


def ask_info(http, address):
    """(record by ``/server_info`` or None, why not). Never raises for what the server says."""
    answer = http.server_info(address)
    if answer.good and isinstance(answer.data, dict):
        return http.startup_of_server_info(answer.data), None
    return None, answer.error or f"/server_info answered with status {answer.status}"


class Asking:
    """All witnesses, asked beside the completion. Nothing is waited for before :meth:`heard`.

    :arg call: ``_ready_run.Call`` or a double of it.
    """

    def __init__(self, call, main_pid, http, address, proc_root="/proc", nvidia_smi="nvidia-smi", looking=look):
        self._calls = (call(looking, main_pid, http, proc_root, nvidia_smi), call(ask_info, http, address))
        self._until = time.monotonic() + LIMIT_SECONDS + 0.5
        for one in self._calls:
            one.start()

    def heard(self):
        """(look or None, info or None, why no info): waits for the rest of the time limit and no longer."""
        for one in self._calls:
            one.join(max(self._until - time.monotonic(), 0.0))
        looked, asked = self._calls
        info, why = asked.result or (None, f"no answer ({asked.error or 'time limit'})")
        return looked.result, info, why
