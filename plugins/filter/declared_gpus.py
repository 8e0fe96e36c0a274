# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: declared_gpus
short_description: Take the GPUs of a host from its inventory
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives what M(gpufleet.sglang.gpu_info) would return for the boards that an inventory declares, for the plan of a
    host that is not there yet.
options:
  _input:
    description:
      - One entry for each kind of board. C(name) and C(memory_total_mib) are required, as C(nvidia-smi) shows them.
      - C(count) is 1 by default, C(memory_free_mib) the total less 700 MiB, the most that a driver was seen to keep.
      - C(compute_capability) and C(unified_memory) may be given too.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
# Eight boards, of which each has 143,071 MiB free.
found: "{{ [{'count': 8, 'name': 'H200', 'memory_total_mib': 143771}] | gpufleet.sglang.declared_gpus }}"
"""

RETURN = r"""
_value:
  description: C(gpus), C(device) and C(problems) as M(gpufleet.sglang.gpu_info) returns them.
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_declared import declared_gpus
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"declared_gpus": as_filter(declared_gpus)}
