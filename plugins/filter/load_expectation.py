# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: load_expectation
short_description: Tell what a start of a planned server is expected to load, and how long it took last
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives what M(gpufleet.sglang.server_ready) takes as O(gpufleet.sglang.server_ready#module:expected_weight_gib) and
    O(gpufleet.sglang.server_ready#module:last_load_seconds).
options:
  _input:
    description: Result of M(gpufleet.sglang.memory_plan).
    type: dict
    required: true
  measurements:
    description: What earlier starts on this host measured, oldest first, as M(gpufleet.sglang.server_info) returns it.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
# {"weight_gib": 75.0, "last_seconds": 450.0}
expected: "{{ plan | gpufleet.sglang.load_expectation(info.measurements) }}"
"""

RETURN = r"""
_value:
  description:
    - C(weight_gib), what the weights are expected to take on the worst board, and C(last_seconds), what the last start
      of the same model in the same layout took. Each is null when it is not known.
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _patience_deadline
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"load_expectation": as_filter(_patience_deadline.expectation)}
