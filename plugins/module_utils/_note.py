# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a long piece of work on a host is: a small file that the controller reads. Private to this collection."""

from __future__ import annotations

import json
import os
import threading
import time

GIB = 1024**3
MIB = 1024**2


def transfer_text(done_bytes: int, total_bytes: int, seconds: float) -> str:
    """'34.0 of 120.3 GiB, 210 MiB/s, 7 min left'; the rate is the mean since the beginning."""
    text = f"{done_bytes / GIB:.2f} of {total_bytes / GIB:.2f} GiB"
    if seconds < 1 or done_bytes <= 0:
        return text
    rate = done_bytes / seconds
    return f"{text}, {rate / MIB:.0f} MiB/s, {left_text((total_bytes - done_bytes) / rate)} left"


def left_text(seconds: float) -> str:
    return f"{max(seconds, 0):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def read_note(text: str | None) -> tuple[str, str] | None:
    """(phase, detail) of a note, None where there is none."""
    try:
        note = json.loads(text or "")
        return str(note["phase"]), str(note["detail"])
    except (ValueError, KeyError, TypeError):
        return None


class Note:
    """Writes the file at most once a second, in one step, and removes it at the end. Without a path it does nothing."""

    def __init__(self, path: str | None, clock=time.monotonic) -> None:
        self.path = path
        self.clock = clock
        self.begun = clock()
        self.written = None

    def say(self, phase: str, detail: str = "") -> None:
        now = self.clock()
        if not self.path or (self.written is not None and now - self.written < 1):
            return
        self.written = now
        with open(self.path + ".new", "w", encoding="utf-8") as handle:
            json.dump({"phase": phase, "detail": detail}, handle)
        os.replace(self.path + ".new", self.path)

    def transferred(self, phase: str, done_bytes: int, total_bytes: int) -> None:
        self.say(phase, transfer_text(done_bytes, total_bytes, self.clock() - self.begun))

    def end(self) -> None:
        if self.path and os.path.exists(self.path):
            os.unlink(self.path)


class Watcher:
    """Calls `look` every second in a thread, while something that cannot be asked (pip) is running."""

    def __init__(self, look, every_seconds: float = 1.0) -> None:
        self.look = look
        self.every_seconds = every_seconds
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.loop, daemon=True)

    def loop(self) -> None:
        while not self.stop.wait(self.every_seconds):
            self.look()

    def __enter__(self) -> Watcher:
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        self.thread.join()
