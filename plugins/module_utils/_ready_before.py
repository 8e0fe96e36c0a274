# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, before the first wait. Units for which waiting is of no use.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._ready_end import failure_record


@dataclass(frozen=True)
class NotWaitable:
    """A state of the unit in which waiting is of no use. ``{unit}`` is filled in."""

    name: str
    value: str
    expected: str
    advice: str
    source: str


NOT_WAITABLE = (
    NotWaitable(
        "load_state",
        "not-found",
        "a unit named {unit}",
        "Deploy it, or correct the name (systemctl list-unit-files).",
        "LoadState, systemd.unit(5)",
    ),
    NotWaitable("load_state", "masked", "a unit that can start", "Unmask it: systemctl unmask {unit}.", "LoadState"),
    NotWaitable(
        "load_state",
        "bad-setting",
        "a unit that systemd can load",
        "Look into systemd-analyze verify {unit}.",
        "LoadState, systemd 243+",
    ),
    NotWaitable(
        "load_state", "error", "a unit that systemd can load", "Look into systemd-analyze verify {unit}.", "LoadState"
    ),
)


def not_waitable(unit):
    """A failure record when the unit cannot come up by itself, else None.

    :arg unit: state of the unit as a dictionary with ``name``, ``load_state``, ``active_state``, ``invocation_id``.
    """
    name = unit.get("name") or "the unit"
    for row in NOT_WAITABLE:
        if unit.get(row.name) == row.value:
            return failure_record(
                "unit_failed",
                "process",
                f"Expected {row.expected.format(unit=name)}, found it {row.value}.",
                row.advice.format(unit=name),
            )
    if unit.get("active_state") == "inactive" and not unit.get("invocation_id"):
        return failure_record(
            "unit_failed",
            "process",
            f"Expected {name} to be started, found it not started.",
            f"Start it: systemctl start {name}.",
        )
    return None
