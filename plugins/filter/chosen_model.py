# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: chosen_model
short_description: Take the figures of a model from the best place that knows them
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the result of M(gpufleet.sglang.model_info) for the folder on the host, else for the hub, completed by what
    the inventory declares, and says what could not be checked.
options:
  _input:
    description: Registered result for the folder on the host. It may have failed.
    type: dict
    required: true
  hub:
    description: The same for the hub, empty or skipped when the hub was not asked.
    type: dict
    required: true
  settings:
    description: Settings of the instance, of which C(geometry), C(weight_bytes) and C(cell_bytes) are used.
    type: dict
    required: true
"""

EXAMPLES = r"""
model: "{{ folder | gpufleet.sglang.chosen_model(hub, {'weight_bytes': 269030016}) }}"
"""

RETURN = r"""
_value:
  description:
    - The result with C(unchecked), a list of sentences, empty when the folder on the host said everything, and
      C(refused), a list of sentences on why the folder on the host can never be started.
  type: dict
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_choice


class FilterModule:
    def filters(self):
        return {"chosen_model": _model_choice.chosen_model}
