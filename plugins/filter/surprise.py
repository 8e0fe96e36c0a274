# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: surprise
short_description: Say in one sentence which task broke, and what its program said
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the sentence for a task that nobody expected to fail, with the last lines of what its program said.
  - What is recognisably a secret is masked.
options:
  _input:
    description: C(ansible_failed_result) of a rescue.
    type: dict
    required: true
  task:
    description: Name of the task, C(ansible_failed_task.name).
    type: str
    required: true
"""

EXAMPLES = r"""
# "Write the unit: failed to validate (Unknown key 'LimitNOFILES' in section [Service])."
reason: "{{ ansible_failed_result | gpufleet.sglang.surprise(ansible_failed_task.name) }}"
"""

RETURN = r"""
_value:
  description: The sentence.
  type: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _outcome
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def surprise(result, task):
    return _outcome.surprise(task, result)


class FilterModule:
    def filters(self):
        return {"surprise": as_filter(surprise)}
