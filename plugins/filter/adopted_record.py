# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: adopted_record
short_description: Tell what the start-up of a server made by hand teaches, and what it risks
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the start-up of an adopted server as M(gpufleet.sglang.memory_plan) takes it, and sentences for a person.
options:
  _input:
    description: What its main process runs, as M(gpufleet.sglang.server_info) returns it.
    type: dict
    required: true
  unit:
    description: Name of its unit.
    type: str
    required: true
  ready:
    description: Result of M(gpufleet.sglang.server_ready) on its unit.
    type: dict
    required: true
  situation:
    description: Its effective arguments, from P(gpufleet.sglang.adopted_situation#filter).
    type: dict
    required: true
  plan:
    description: Result of M(gpufleet.sglang.memory_plan) for them.
    type: dict
    required: true
  declared:
    description: The server arguments that are declared.
    type: dict
    required: true
"""

EXAMPLES = r"""
adopted: "{{ running | gpufleet.sglang.adopted_record('my-server.service', ready, found, plan, arguments) }}"
"""

RETURN = r"""
_value:
  description: C(measurement), null when it teaches nothing here, and C(sentences).
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _adopted
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"adopted_record": as_filter(_adopted.record)}
