# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: adopted_situation
short_description: Tell what a server made by hand runs, as a plan takes it
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the effective arguments of a server that is adopted, from its command line and from what its start-up says.
options:
  _input:
    description: What its main process runs, as M(gpufleet.sglang.server_info) returns it.
    type: dict
    required: true
  ready:
    description: Result of M(gpufleet.sglang.server_ready) on its unit.
    type: dict
    required: true
  engine_version:
    description: Version of SGLang that it runs.
    type: str
"""

EXAMPLES = r"""
found: "{{ info.adopted.running | gpufleet.sglang.adopted_situation(ready, engine.version) }}"
"""

RETURN = r"""
_value:
  description:
    - C(arguments), C(environment), C(mem_fraction_static), C(chunked_prefill_size), C(context_tokens),
      C(allocator_conf), C(engine_version) and C(cap_tokens).
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _adopted
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"adopted_situation": as_filter(_adopted.situation)}
