# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong on demand, from the environment of the unit.

    PLAYED_PRELOAD_SECONDS     the load takes so much longer
    PLAYED_DIE_AFTER_SECONDS   a scheduler fails so long after its process began (0: before the load)
    PLAYED_DIE_TEXT            last line of its traceback, for example "torch.OutOfMemoryError: CUDA out of memory."
    PLAYED_LEAVE_CHILD=1       a scheduler survives the launcher in a session of its own
    PLAYED_TOKEN_SECONDS       time for each token of an answer (0.002), so that requests can be made long
"""

from __future__ import annotations

import os


def seconds(name: str, default: float | None) -> float | None:
    text = os.environ.get(name, "")
    return float(text) if text else default


def preload_seconds() -> float:
    return seconds("PLAYED_PRELOAD_SECONDS", 0.0)


def die_after_seconds() -> float | None:
    return seconds("PLAYED_DIE_AFTER_SECONDS", None)


def die_text() -> str:
    return os.environ.get("PLAYED_DIE_TEXT") or "RuntimeError: the played engine was told to fail"


def leaves_child() -> bool:
    return os.environ.get("PLAYED_LEAVE_CHILD", "") == "1"


def token_seconds() -> float:
    return seconds("PLAYED_TOKEN_SECONDS", 0.002)
