# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in use on the boards: a file a process in one folder, and the boards themselves in another file.

Alone in what it needs (the standard library): ranks write it, the played nvidia-smi reads it without the engine.
Figures are MiB, as the driver counts. Memory of a process that has died counts no longer, at once or after
release_seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

BOARDS = "/etc/played/boards.json"
# Not /run: a unit with ProtectSystem=strict may write below /dev, and not there.
RUN = "/dev/shm/played"
MIB_PER_GIB = 1024


def boards_path() -> str:
    return os.environ.get("PLAYED_BOARDS") or BOARDS


def run_folder() -> str:
    """The folder, made when it is missing, writable for every user as /tmp is."""
    folder = os.environ.get("PLAYED_RUN") or RUN
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(OSError):  # someone else was faster
            os.chmod(folder, 0o1777)
    return folder


def read_boards() -> dict | None:
    """The description of the machine's boards; None where there is none. Raises ValueError for a broken file."""
    try:
        with open(boards_path(), encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        return None
    for place, board in enumerate(data.get("boards", [])):
        board.setdefault("index", place)
        board.setdefault("uuid", f"GPU-{place:08x}-1111-2222-3333-444444444444")
        board.setdefault("name", "NVIDIA RTX PRO 6000 Blackwell Server Edition")
        board.setdefault("total_mib", 97887)
        board.setdefault("torch_total_gib", 94.97)
        board.setdefault("bus_id", f"00000000:{place + 1:02X}:00.0")
        board.setdefault("compute_cap", "12.0")
        board.setdefault("driver_mib", 4)
    return data


def count(name: str) -> int:
    """One more of this name; how many there are now. Any user may count: the file is made once, then only opened."""
    path = os.path.join(run_folder(), name)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        os.fchmod(descriptor, 0o666)
        os.close(descriptor)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


# --- processes


def start_of(pid: int) -> str | None:
    """When the process began, in ticks, which tells it from a later one of the same number; None: dead or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Entry:
    """What one process holds: MiB by board and kind, told to all by ``write``."""

    def __init__(self, name: str, pid: int | None = None):
        self.pid = pid or os.getpid()
        self.name = name
        self.start = start_of(self.pid)
        self.boards: dict[str, dict[str, float]] = {}
        self.path = os.path.join(run_folder(), f"{self.pid}.json")

    def set(self, board: int, kind: str, mib: float) -> None:
        self.boards.setdefault(str(board), {})[kind] = round(mib, 3)

    def held_mib(self, board: int) -> float:
        return sum(self.boards.get(str(board), {}).values())

    def write(self) -> None:
        data = {"pid": self.pid, "start": self.start, "name": self.name, "boards": self.boards}
        part = f"{self.path}.{os.getpid()}.part"
        with open(part, "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        os.chmod(part, 0o644)
        os.replace(part, self.path)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def _still_counts(path: str, data: dict, release_seconds: float) -> bool:
    """Whether the memory of a process counts: while it lives, and a while after its death was seen."""
    if start_of(data["pid"]) == data["start"]:
        return True
    died = path + ".died"
    if release_seconds and not os.path.exists(died):
        try:
            with open(died, "w", encoding="utf-8"):
                pass
        except OSError:
            return False  # not allowed to remember it
    try:
        if release_seconds and time.time() - os.path.getmtime(died) < release_seconds:
            return True
        os.unlink(path)
        os.unlink(died)
    except OSError:
        pass  # another user's, or gone
    return False


def holders(release_seconds: float = 0.0) -> list[dict]:
    """The entries of all processes that hold memory."""
    found = []
    folder = run_folder()
    for name in sorted(os.listdir(folder)):
        if not (name.endswith(".json") and name[:-5].isdigit()):
            continue
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as stream:
                data = json.load(stream)
        except (OSError, ValueError):
            continue
        if _still_counts(path, data, release_seconds):
            found.append(data)
    return found


def used_mib(board: dict, held: list[dict]) -> float:
    """MiB in use on a board: of processes, and what the driver has for itself."""
    own = sum(sum(entry["boards"].get(str(board["index"]), {}).values()) for entry in held)
    return board["driver_mib"] + own


def free_mib(board: dict, held: list[dict]) -> float:
    """MiB free on a board, the same for torch and for nvidia-smi; what lies between their totals is nobody's."""
    return max(board["torch_total_gib"] * MIB_PER_GIB - used_mib(board, held), 0.0)
