# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: remembered
short_description: Gather what a plan is to know of earlier start-ups, and from where
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives start-ups and deaths in the order in which M(gpufleet.sglang.memory_plan) believes them, which is the last
    one that speaks about a quantity. What the inventory states comes first, then what other hosts of the play
    remember, then what this host remembers.
options:
  _input:
    description:
      - C(measurements) and C(deaths) of the instance on its host, as M(gpufleet.sglang.server_info) returns them.
    type: dict
    required: true
  hostvars:
    description: The variables of all hosts.
    type: dict
    required: true
  hosts:
    description: Names of the hosts of the play. At most 32 others are asked, the nearest ones first.
    type: list
    elements: str
    required: true
  host:
    description: Name of the host at hand.
    type: str
    required: true
  stated:
    description: What the inventory states, C(sglang_server_measurements).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
remembered: >-
  {{ info | gpufleet.sglang.remembered(hostvars, ansible_play_hosts_all, inventory_hostname, stated) }}
"""

RETURN = r"""
_value:
  description: C(measurements) and C(deaths), each with its C(origin) (V(host), V(play) or V(inventory)).
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _remembered
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def remembered(own, hostvars, hosts, host, stated):
    return _remembered.gathered(own, _remembered.of_play(hosts, hostvars, host), stated)


class FilterModule:
    def filters(self):
        return {"remembered": as_filter(remembered)}
