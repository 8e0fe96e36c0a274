# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which the driver's tasks ask, refuse and change: nothing is stopped or booted unasked."""

from __future__ import annotations

import tree
import yaml


def names(path):
    """Return the names of all tasks of a file, those of blocks too, in order."""

    def walk(tasks):
        for task in tasks:
            yield task.get("name", "")
            for part in ("tasks", "block", "rescue", "always"):
                yield from walk(task.get(part, []))

    return list(walk(yaml.safe_load((tree.ROOT / path).read_text())))


def in_order(path, *wanted):
    found = names(path)
    places = [found.index(name) for name in wanted]
    assert places == sorted(places), wanted


def test_servers_that_nobody_would_prove_are_met_before_any_is_stopped():
    in_order(
        "playbooks/driver.yml",
        "Look whether anything changes",
        "Every server of the host is one that the inventory names",
        "Hold the servers, keep clients away and stop them",
        "Change the driver",
    )


def test_whether_a_boot_is_due_is_known_on_every_host_that_was_looked_at():
    """Also where nothing follows, because no board is there."""
    tasks = yaml.safe_load((tree.ROOT / "roles/nvidia_driver/tasks/look.yml").read_text())
    facts = [task["ansible.builtin.set_fact"] for task in tasks if "ansible.builtin.set_fact" in task]
    assert any({"nvidia_driver_reboot_required", "nvidia_driver_reboot_reasons"} <= set(one) for one in facts)


def test_a_host_is_booted_last():
    in_order(
        "roles/nvidia_driver/tasks/reboot.yml",
        "Reboot | Never the controller",
        "Reboot | Never under somebody who uses the host",
        "Reboot | Never into a kernel that has no module",
        "Reboot | Boot the host again",
    )
