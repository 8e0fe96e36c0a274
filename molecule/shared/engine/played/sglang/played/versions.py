# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which SGLang this stands in for. What differs between versions is asked by ``at_least``."""

from __future__ import annotations

from sglang.version import __version__


def key(version: str) -> tuple[int, ...]:
    """Numbers of a version, for comparing: 0.4.6.post5 is later than 0.4.6."""
    return tuple(int(part.removeprefix("post")) for part in version.split("."))


def at_least(version: str) -> bool:
    return key(__version__) >= key(version)


def kills_itself_after_a_clean_stop() -> bool:
    """kill_process_tree with include_parent=True in sigterm_watchdog (srt/managers/tokenizer_manager.py).

    Read in the wheels: 0.5.2, 0.5.13, 0.5.17 and 0.5.18 kill themselves; 0.5.19 and 0.5.23 do not.
    """
    return not at_least("0.5.19")
