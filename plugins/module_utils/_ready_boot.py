# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, the boot of the host. A wait that goes on after a lost connection has to know it.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import os


def _text(proc_root, *parts):
    try:
        with open(os.path.join(proc_root, *parts), encoding="ascii", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def boot_id(proc_root="/proc"):
    """The id of this boot of the host, or None."""
    return _text(proc_root, "sys", "kernel", "random", "boot_id") or None


def up_seconds(proc_root="/proc"):
    """For how long the host has been up, or None."""
    try:
        return float(_text(proc_root, "uptime").split()[0])
    except (ValueError, IndexError):
        return None


def is_rebooted(known_boot_id, waited_seconds, proc_root="/proc"):
    """Whether the host was booted anew since a wait began: by its boot, or by its uptime before that is known."""
    now = boot_id(proc_root)
    if known_boot_id and now:
        return known_boot_id != now
    up = up_seconds(proc_root)
    return up is not None and waited_seconds > up
