# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_vendor_repository
short_description: Name NVIDIA's repository for a distribution
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives address, key and fingerprint of NVIDIA's network repository for a distribution and an architecture.
options:
  _input:
    description: RV(gpufleet.sglang.driver_info#module:os) of the host.
    type: dict
    required: true
"""

EXAMPLES = r"""
repository: "{{ driver.os | gpufleet.sglang.driver_vendor_repository }}"
"""

RETURN = r"""
_value:
  description: C(url), C(key) and C(fingerprint).
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"driver_vendor_repository": as_filter(_driver.vendor_repository)}
