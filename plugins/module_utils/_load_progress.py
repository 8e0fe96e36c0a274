# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: signs of life while a server loads, the looking. Processes, memory of the boards, the model's files and disk.

Private to the gpufleet.sglang collection; may change at any time.

What the figures mean is decided in ``_patience``. Nothing here raises for what a host does: what cannot be read is not
told.
"""

from __future__ import annotations

import os
import subprocess
import threading

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _gpu_processes,
    _patience,
    _patience_deadline,
    _witness_tool,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._patience import Process, Sample

# A look at all processes costs some milliseconds; nvidia-smi some hundred of the machine's, and seconds without its
# daemon.
SAMPLE_SECONDS = 5.0
BOARDS_SECONDS = 10.0
# nvidia-smi hangs on a sick driver: then the boards are not told, and it is not asked again.
BOARDS_TIMEOUT_SECONDS = 5.0
BOARDS_SLOW_SECONDS = 2.0

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".msgpack")

_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _text(*parts):
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


# ---------------------------------------------------------------------------------------------------------------
# Processes


def stat_of(text):
    """``(name, state, parent, CPU seconds)`` of the text of ``/proc/PID/stat``; None when it is none.

    CPU time is that of the process and of its children that have ended, so a compiler's is not lost (proc(5)).
    """
    head, sep, rest = text.rpartition(")")
    fields = rest.split()
    if not sep or len(fields) < 15:
        return None
    try:
        ticks = sum(int(fields[position]) for position in (11, 12, 13, 14))
        return head.partition("(")[2], fields[0], int(fields[1]), ticks * _TICK_SECONDS
    except ValueError:
        return None


def io_of(text):
    """``(bytes read and written by any call, bytes read from a disk)`` of ``/proc/PID/io``, or ``(None, None)``.

    Pages of mapped files are in neither of the first two: they are only read from the disk (proc(5)).
    """
    found = {}
    for line in text.splitlines():
        name, dummy, value = line.partition(":")
        if value.strip().isdigit():
            found[name] = int(value)
    if "rchar" not in found:
        return None, None
    moved = found["rchar"] + found.get("wchar", 0) + found.get("read_bytes", 0)
    return moved, found.get("read_bytes", 0)


def tree(main_pid, proc_root="/proc"):
    """The main process of a unit and all below it, as :class:`_patience.Process`, lowest number first."""
    stats, children = {}, {}
    try:
        names = [name for name in os.listdir(proc_root) if name.isdigit()]
    except OSError:
        return ()
    for name in names:
        stat = stat_of(_text(proc_root, name, "stat"))
        if stat is not None:
            stats[int(name)] = stat
            children.setdefault(stat[2], []).append(int(name))
    found, waiting = set(), [main_pid]
    while waiting:
        pid = waiting.pop()
        if pid in stats and pid not in found:
            found.add(pid)
            waiting.extend(children.get(pid, ()))
    return tuple(_process(pid, stats[pid], proc_root) for pid in sorted(found))


def _process(pid, stat, proc_root):
    folder = os.path.join(proc_root, str(pid))
    moved, read = io_of(_text(folder, "io"))
    pages = _text(folder, "statm").split()
    waits = _text(folder, "wchan").strip() if stat[1] == "D" else ""
    return Process(
        pid=pid,
        name=stat[0],
        state=stat[1],
        cpu_seconds=stat[3],
        io_bytes=moved,
        read_bytes=read,
        resident_bytes=int(pages[1]) * _PAGE_BYTES if len(pages) > 1 and pages[1].isdigit() else 0,
        waits_in="" if waits == "0" else waits,
    )


# ---------------------------------------------------------------------------------------------------------------
# Boards


def held_mib(text, pids):
    """What some processes hold of the boards: ``(MiB, number of boards)``; ``(None, 0)`` when nobody tells.

    :arg text: of ``nvidia-smi --query-compute-apps`` with the fields of ``_gpu_processes``.
    """
    total, boards, told = 0, set(), False
    for board, rows in _gpu_processes.parse_processes(text).items():
        for row in rows:
            if row["pid"] in pids and row["memory_mib"] is not None:
                total, told = total + row["memory_mib"], True
                boards.add(board)
    return (total, len(boards)) if told else (None, 0)


class Boards:
    """Asks nvidia-smi beside the looking, because it may take its time or hang.

    ``mib``: what the unit's processes hold, None when nobody tells; ``count``: on how many boards.

    :arg run: ``run(argv, timeout_seconds) -> (status, stdout, stderr)``; raises as ``_witness_tool.run_limited`` does.
    :arg silent: it did not answer in a slice before, and is not asked again.
    """

    def __init__(self, path, clock, run=_witness_tool.run_limited, silent=False):
        self._path = path
        self._clock = clock
        self._run = run
        self._thread = None
        self._asked_at = None
        self._silent = silent
        self.mib = None
        self.count = 0

    @property
    def hangs(self):
        """Whether nvidia-smi did not answer, or has been asked for long."""
        pending = self._thread is not None and self._thread.is_alive()
        return self._silent or pending and self._clock() - self._asked_at >= BOARDS_SLOW_SECONDS

    def look(self, pids):
        """Take the last answer, and ask again when it is time."""
        if self._path is None or self._silent or (self._thread is not None and self._thread.is_alive()):
            return
        if self._asked_at is not None and self._clock() - self._asked_at < BOARDS_SECONDS:
            return
        self._asked_at = self._clock()
        self._thread = threading.Thread(target=self._ask, args=(frozenset(pids),), daemon=True)
        self._thread.start()

    def _ask(self, pids):
        argv = [
            self._path,
            "--query-compute-apps=" + ",".join(_gpu_processes.PROCESS_FIELDS),
            "--format=csv,noheader,nounits",
        ]
        try:
            status, out, _err = self._run(argv, BOARDS_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._silent = True
            return
        except OSError:
            status, out = -1, ""
        self.mib, self.count = held_mib("" if status else out, pids)


# ---------------------------------------------------------------------------------------------------------------
# The model's files


def weight_files_bytes(path):
    """Bytes of the weights in a folder of a model, or None when there are none (a name of a hub, for example)."""
    try:
        with os.scandir(path) as entries:
            sizes = [entry.stat().st_size for entry in entries if entry.name.endswith(WEIGHT_FILES) and entry.is_file()]
    except (OSError, ValueError, TypeError):
        return None
    return sum(sizes) or None


def disk_below(path, proc_root="/proc", sys_root="/sys"):
    """The class of disk that a folder lies on: a row of ``_patience_deadline.DISKS``."""
    path = os.path.realpath(path)
    dummy, kind = _patience_deadline.file_system_of(_text(proc_root, "mounts"), path)
    try:
        number = os.stat(path).st_dev
        device = os.path.join(sys_root, "dev", "block", f"{os.major(number)}:{os.minor(number)}")
    except OSError:
        device = ""
    names = sorted(_disks_of(device)) if device else []
    told = [_text(sys_root, "block", name, "queue", "rotational").strip() for name in names]
    rotational = None if not told or "" in told else "1" in told
    return _patience_deadline.disk_of(kind, rotational, names)


def _disks_of(device, depth=0):
    """Names of the whole disks below a block device: of a partition its disk, of a mapped or striped one its parts."""
    real = os.path.realpath(device)
    if depth > 8 or not os.path.isdir(real):
        return set()
    try:
        parts = os.listdir(os.path.join(real, "slaves"))
    except OSError:
        parts = []
    if parts:
        return {name for part in parts for name in _disks_of(os.path.join(real, "slaves", part), depth + 1)}
    if os.path.exists(os.path.join(real, "partition")):
        return {os.path.basename(os.path.dirname(real))}
    return {os.path.basename(real)}


# ---------------------------------------------------------------------------------------------------------------
# All of it


class LoadLook:
    """Looks at the processes of one unit again and again, and keeps what the last sign of life was.

    ``marks`` go from slice to slice. ``sample`` is the last one, None before the first.

    :arg marks: of the slice before, as a dictionary. :arg boards: a :class:`Boards` or a double of it, None for none.
    """

    def __init__(self, clock, proc_root="/proc", marks=None, boards=None, read_tree=tree):
        self._clock = clock
        self._proc_root = proc_root
        self._read_tree = read_tree
        self._boards = boards or Boards(None, clock)
        self.marks = _patience.marks_from(marks, clock())
        self.sample = None

    @property
    def boards(self):
        """On how many boards the unit's processes hold memory."""
        return self._boards.count

    @property
    def nvidia_smi_hangs(self):
        """Whether nvidia-smi did not answer in this start."""
        return self._boards.hangs

    def look(self, main_pid, phase, line):
        """Take the newest line into account, and the processes when it is time.

        :arg line: the last line that the service printed. :arg phase: by the journal.
        """
        now = self._clock()
        self.marks = _patience.after_line(self.marks, line, now)
        if self.sample is not None and now - self.sample.at < SAMPLE_SECONDS:
            return
        processes = self._read_tree(main_pid, self._proc_root) if main_pid else ()
        self._boards.look([one.pid for one in processes])
        self.sample = Sample(now, processes, self._boards.mib)
        self.marks = _patience.after_sample(self.marks, self.sample, phase)

    def grown_gib(self):
        """What the boards hold more than when the phase began, in GiB; None when nobody tells."""
        if self.sample is None or self.sample.device_mib is None or self.marks.phase_device_mib is None:
            return None
        return (self.sample.device_mib - self.marks.phase_device_mib) / 1024.0

    def read_bytes(self):
        """What was read from disks since the phase began."""
        if self.sample is None or self.marks.phase_read_bytes is None:
            return None
        return self.sample.read_bytes - self.marks.phase_read_bytes
