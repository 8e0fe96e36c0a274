# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: merged_layers
short_description: Lay dictionaries over each other and keep the origin of each value
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - A later layer wins. A value of V(null) removes the name.
  - All spellings of a server argument are one name across layers, which is what plain combining gets wrong.
  - Two spellings within one layer are refused.
options:
  _input:
    description: The layers, the weakest first. Each has C(origin), a text for people, and C(values), a dictionary.
    type: list
    elements: dict
    required: true
  kind:
    description: What the names are.
    type: str
    choices: [arguments, environment]
    required: true
"""

EXAMPLES = r"""
# {"merged": {"tp-size": 8}, "origins": {"tp-size": "this host"}}
layers: >-
  {{ [{'origin': 'all hosts', 'values': {'tp': 4}}, {'origin': 'this host', 'values': {'tp_size': 8}}]
     | gpufleet.sglang.merged_layers('arguments') }}
"""

RETURN = r"""
_value:
  description: C(merged) has the values by name, C(origins) the origin of each of them.
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _layers
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"merged_layers": as_filter(_layers.merged_layers)}
