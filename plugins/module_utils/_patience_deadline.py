# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: how long a start-up may be silent, the whole of it. A deadline from the model's size, the disk, the last start.

Private to the gpufleet.sglang collection; may change at any time.

A stall is named long before the deadline (``_patience``). So the deadline is the longest time in which a start that
still does something is worth waiting for, and errs on the long side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Imports, the meeting of the ranks, the pool and the warm-up. Public start-ups and real ones: 20 to 120 s; twice that.
FIXED_SECONDS = 300.0
# Graphs, and kernels compiled for the first time: 45 minutes with torch.compile on a large model
# (github.com/sgl-project/sglang/issues/6830), 10 to 20 for DeepGEMM by its own words, 22 for a capture (issue 4233).
FIRST_SECONDS = 2700.0
# The same when this host has started this model before: its kernels are in the cache that the unit keeps.
KNOWN_SECONDS = 900.0
# A start may take so many times the last one: that one may have read its weights from memory.
LAST_FACTOR = 3.0
# When the size of the model is not known: 700 GB of weights took an hour (github.com/sgl-project/sglang/issues/3825).
UNKNOWN_SECONDS = 3600.0 + FIXED_SECONDS + FIRST_SECONDS


@dataclass(frozen=True)
class Disk:
    """A class of disk: the slowest sensible rate at which weights are read from it, in bytes a second."""

    name: str
    words: str
    bytes_per_second: float
    source: str


DISKS = (
    Disk("memory", "memory", 1.0e9, "tmpfs: not slower than the copy to the boards"),
    Disk("nvme", "an NVMe disk", 5.0e8, "a quarter of what drives of 2020 on read; pages are read in the order of use"),
    Disk("ssd", "a solid-state disk", 2.0e8, "SATA ends at 6 Gbit/s = 550 MB/s; a worn or shared drive gives half"),
    Disk("rotational", "a rotating disk", 8.0e7, "150 MB/s in a row on outer tracks, half of it on inner ones"),
    Disk(
        "network",
        "a network folder",
        8.0e7,
        "1 Gbit/s = 118 MB/s at best; by page faults less (github.com/sgl-project/sglang/pull/7469)",
    ),
    Disk("unknown", "a disk of unknown kind", 8.0e7, "as the slowest of the others"),
)
BY_NAME = {row.name: row for row in DISKS}

# File systems that are not on a disk of this host, by the third field of /proc/mounts.
_NETWORK = (
    "nfs nfs4 cifs smb3 smbfs ceph lustre gpfs beegfs glusterfs fuse.glusterfs fuse.sshfs fuse.s3fs fuse.gcsfuse "
    "fuse.juicefs fuse.cephfs fuse.rclone fuse.goofys fuse.mount-s3 9p virtiofs afs pvfs2 wekafs vastnfs"
)
NETWORK_FILE_SYSTEMS = frozenset(_NETWORK.split(" "))
MEMORY_FILE_SYSTEMS = frozenset(("tmpfs", "ramfs"))


def file_system_of(mounts, path):
    """``(device, type)`` of the file system that holds a path, from the text of ``/proc/mounts``; ("", "") if none."""
    best, found = -1, ("", "")
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = _unescaped(words[1]).rstrip("/")
        # Of two mounts on the same point the later one is seen.
        if (path == point or path.startswith(point + "/")) and len(point) >= best:
            best, found = len(point), (_unescaped(words[0]), words[2])
    return found


def _unescaped(text):
    """Blanks, tabs, line ends and backslashes stand as octal numbers in /proc/mounts (proc(5))."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text


def disk_of(kind, rotational, device_names):
    """The class of a disk.

    :arg kind: type of the file system. :arg rotational: of the disks below it, as ``/sys/block/*/queue/rotational`` has
        it (True, False, or None when nobody tells). :arg device_names: their names, such as ``nvme0n1``.
    """
    if kind in MEMORY_FILE_SYSTEMS:
        return BY_NAME["memory"]
    if kind in NETWORK_FILE_SYSTEMS:
        return BY_NAME["network"]
    if rotational:
        return BY_NAME["rotational"]
    if device_names and all(name.startswith("nvme") for name in device_names):
        return BY_NAME["nvme"]
    return BY_NAME["unknown" if rotational is None else "ssd"]


@dataclass(frozen=True)
class Deadline:
    """How long a start may take. ``auto``: computed, and ``why`` says from what."""

    seconds: float
    auto: bool
    why: str

    def as_dict(self):
        return {"seconds": self.seconds, "auto": self.auto, "why": self.why}


def deadline_of(stated_seconds, weight_bytes=None, disk=None, last_load_seconds=None):
    """The deadline of a start.

    :arg stated_seconds: what the user stated, None for auto. :arg weight_bytes: of the files of the model on the disk.
    :arg disk: a row of :data:`DISKS`. :arg last_load_seconds: what the last start of this model took on this host.
    """
    if stated_seconds is not None:
        return Deadline(float(stated_seconds), False, "as stated")
    disk = disk or BY_NAME["unknown"]
    if not weight_bytes:
        seconds, words = UNKNOWN_SECONDS, ["weights of unknown size"]
    else:
        rest = KNOWN_SECONDS if last_load_seconds else FIRST_SECONDS
        seconds = FIXED_SECONDS + weight_bytes / disk.bytes_per_second + rest
        words = [f"{weight_bytes / 1024**3:,.1f} GiB of weights on {disk.words}"]
    if last_load_seconds:
        seconds = max(seconds, LAST_FACTOR * last_load_seconds)
        words.append(f"the last start took {last_load_seconds:.0f} s")
    return Deadline(math.ceil(round(seconds) / 60.0) * 60.0, True, ", ".join(words))


def stated_seconds_of(value):
    """The seconds that an option states: None for ``auto`` and for nothing.

    :raises ValueError: one sentence for anything else than a number above 0.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in ("", "auto")):
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < math.inf or isinstance(value, bool):
        raise ValueError(f"Expected auto or a number of seconds above 0 in timeout_seconds, found {value!r}.")
    return seconds


def expectation(plan, measurements):
    """What a start is expected to load and how long it took last: ``{"weight_gib", "last_seconds"}``, None if unknown.

    :arg plan: result of ``memory_plan``. :arg measurements: as ``server_info`` returns them.
    """
    if not isinstance(plan, dict) or not isinstance(measurements, list):
        raise ValueError("Expected the result of memory_plan and a list of measurements, found something else.")
    before, after = plan.get("free_before_load_gib"), plan.get("free_after_load_gib")
    weight_gib = before - after if before is not None and after is not None and before > after else None
    return {
        "weight_gib": None if weight_gib is None else round(weight_gib, 3),
        "last_seconds": last_load_seconds(measurements, plan.get("quantity_keys")),
    }


def last_load_seconds(measurements, keys):
    """What the newest start of the same model and layout took on this host; None when nothing is remembered.

    :arg measurements: as ``server_info`` returns them, oldest first. :arg keys: ``quantity_keys`` of the plan.
    """
    wanted = (keys or {}).get("weights")
    for one in reversed(measurements or []):
        seconds = one.get("load_seconds")
        if seconds and wanted and (one.get("keys") or {}).get("weights") == wanted:
            return float(seconds)
    return None
