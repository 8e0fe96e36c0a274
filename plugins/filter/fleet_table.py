# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_table
short_description: Show the plans of many hosts as one table
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives lines of text with one line for each host and instance, its memory as a bar, and what hinders it beneath.
  - It reads what the planning of the role C(sglang_server) left behind on each host.
options:
  _input:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: The fleet
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts_all | gpufleet.sglang.fleet_table(hostvars) | join('\n') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from collections.abc import Mapping

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_fleet
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def fleet_table(hosts, hostvars):
    if isinstance(hosts, (str, Mapping)) or not hasattr(hosts, "__iter__"):
        raise ValueError(f"Expected a list of hosts for fleet_table, found {hosts!r}.")
    return _budget_fleet.of_hosts(list(hosts), hostvars)


class FilterModule:
    def filters(self):
        return {"fleet_table": as_filter(fleet_table)}
