# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_plan
short_description: Decide what happens to the NVIDIA driver of a host
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Compares what M(gpufleet.sglang.driver_info) found with what is wanted. Changes nothing and asks nobody.
  - A refusal is data, RV(_value.action=refuse) with sentences in RV(_value.refusals).
options:
  _input:
    description: The result of M(gpufleet.sglang.driver_info).
    type: dict
    required: true
  wanted:
    description: The variables of the role C(nvidia_driver) without their prefix.
    type: dict
    required: true
"""

EXAMPLES = r"""
plan: "{{ driver | gpufleet.sglang.driver_plan(wanted) }}"
"""

RETURN = r"""
_value:
  description:
    - C(action) is C(skip), C(keep), C(ask), C(install), C(remove) or C(refuse). With C(ask) the versions of C(query)
      are not known yet.
    - Beside it C(packages), C(remove), C(changes), C(lines) for a person, C(refusals).
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_plan
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"driver_plan": as_filter(_driver_plan.plan)}
