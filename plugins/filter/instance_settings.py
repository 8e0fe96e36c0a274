# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: instance_settings
short_description: Lay the settings of one instance over the variables of the role
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the role's flat variables with what the instance itself sets over them. An unknown setting is refused.
options:
  _input:
    description: The role's variables without their prefix.
    type: dict
    required: true
  overrides:
    description: An entry of C(sglang_server_instances), or all of them for a list of settings.
    type: raw
    required: true
"""

EXAMPLES = r"""
settings: "{{ defaults | gpufleet.sglang.instance_settings({'name': 'small', 'port': 30001}) }}"
"""

RETURN = r"""
_value:
  description: The settings of the instance.
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"instance_settings": as_filter(_words.instance_settings)}
