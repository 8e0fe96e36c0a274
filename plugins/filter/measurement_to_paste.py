# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: measurement_to_paste
short_description: Show what a start-up measured as a line of an inventory
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the line that tells other hosts of the same kind what this one measured. It saves them attempts.
options:
  _input:
    description:
      - A measurement, as M(gpufleet.sglang.server_attempt) returns it with an attempt. Null gives an empty text.
    type: dict
    required: true
"""

EXAMPLES = r"""
# sglang_server_measurements: [{"engine_version": "0.5.23", "fraction": 0.93, ...}]
line: "{{ judged.attempt.measurement | gpufleet.sglang.measurement_to_paste }}"
"""

RETURN = r"""
_value:
  description: The line.
  type: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _remembered
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"measurement_to_paste": as_filter(_remembered.pasted)}
