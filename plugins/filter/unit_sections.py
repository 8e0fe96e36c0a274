# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: unit_sections
short_description: Write sections of a systemd unit from a dictionary
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the lines of the sections, with every value as it is. A list gives its directive once for each value.
  - V(null) gives an empty value, which resets a list in systemd.
  - What cannot be one line of a unit is refused.
options:
  _input:
    description: Sections with their directives.
    type: dict
    required: true
"""

EXAMPLES = r"""
# ["[Service]", "Nice=-5", "ReadWritePaths=/srv/logs"]
lines: "{{ {'Service': {'Nice': -5, 'ReadWritePaths': ['/srv/logs']}} | gpufleet.sglang.unit_sections }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unit_file
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"unit_sections": as_filter(_unit_file.unit_sections)}
