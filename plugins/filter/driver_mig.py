# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_mig
short_description: Tell which boards are to switch MIG, and which wait for a reset or a boot
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Reads the rows C(index, mig.mode.current, mig.mode.pending) of C(nvidia-smi). Boards without MIG are left out.
options:
  _input:
    description: What C(nvidia-smi) printed.
    type: str
    required: true
  wanted:
    description: The mode that every board is to have.
    type: str
    choices: [enabled, disabled]
    required: true
"""

EXAMPLES = r"""
boards: "{{ '0, Disabled, Disabled' | gpufleet.sglang.driver_mig('enabled') }}"
"""

RETURN = r"""
_value:
  description: Indices of boards, C(switch) and C(due).
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_state
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"driver_mig": as_filter(_driver_state.mig_modes)}
