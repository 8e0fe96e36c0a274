# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The list of the scenario that breaks deployments names tasks of the role: one that is renamed would break nothing."""

from __future__ import annotations

import re

import pytest
import tree
import yaml

FAULTS = yaml.safe_load((tree.ROOT / "molecule/faults/vars/faults.yml").read_text())["faults"]
TASKS = [
    name
    for path in sorted((tree.ROOT / "roles/sglang_server/tasks").glob("*.yml"))
    for name in re.findall(r"^ *- name: [\"']?(.*?)[\"']?$", path.read_text(), re.M)
]


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if "killed_at" in fault], ids=lambda fault: fault["name"])
def test_a_controller_is_killed_at_a_task_that_there_is(fault):
    assert [name for name in TASKS if fault["killed_at"] in name]
