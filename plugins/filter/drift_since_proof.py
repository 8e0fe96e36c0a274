# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: drift_since_proof
short_description: Say what of a server and its host is no longer as it was proven
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Compares the proof of an instance with what runs now, in files, arguments, packages, driver, boards, pool and
    headroom.
options:
  _input:
    description: Result of M(gpufleet.sglang.server_info).
    type: dict
    required: true
  ready:
    description: Result of M(gpufleet.sglang.server_ready) of now.
    type: dict
    required: true
  host:
    description:
      - The host as it is now, with C(driver_version), C(packages) and the names of its boards, C(gpus). C(gpu_problem)
        says why nobody could tell driver and boards.
    type: dict
    required: true
"""

EXAMPLES = r"""
# [{"what": "driver", "sentence": "driver: proven with 580.95.05, found 580.105.08.", "ends": true}]
drifted: "{{ info | gpufleet.sglang.drift_since_proof(ready, {'driver_version': gpus.driver_version}) }}"
"""

RETURN = r"""
_value:
  description:
    - One entry for each thing that drifted, with C(what) it is, a C(sentence), and whether it C(ends) the proof or is
      only worth to know.
  type: list
  elements: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _drift_proof
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def drift_since_proof(info, ready, host):
    return _drift_proof.since_proof(info, ready, host)


class FilterModule:
    def filters(self):
        return {"drift_since_proof": as_filter(drift_since_proof)}
