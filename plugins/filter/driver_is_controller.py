# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_is_controller
short_description: Tell whether a host is the machine that runs Ansible
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Compares the machine that M(gpufleet.sglang.driver_info) found with the one that this filter runs on, whatever the
    host is called in the inventory and however it is reached. A boot of it would end the run.
options:
  _input:
    description: RV(gpufleet.sglang.driver_info#module:machine) of a host.
    type: dict
    required: true
"""

EXAMPLES = r"""
same: "{{ driver.machine | gpufleet.sglang.driver_is_controller }}"
"""

RETURN = r"""
_value:
  description: Whether both are one machine.
  type: bool
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver, _driver_host
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def is_controller(machine):
    return _driver.same_machine(machine, _driver_host.machine())


class FilterModule:
    def filters(self):
        return {"driver_is_controller": as_filter(is_controller)}
