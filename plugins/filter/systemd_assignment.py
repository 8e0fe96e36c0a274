# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_assignment
short_description: Quote one assignment for Environment= of a systemd unit
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the text from which systemd makes exactly this value again, whatever it holds. A line break is refused.
  - The rules differ from those of an environment file and of C(ExecStart=).
  - C(Environment=) knows specifiers and no expansions.
options:
  _input:
    description: The value.
    type: raw
    required: true
  name:
    description: Name of the variable.
    type: str
    required: true
"""

EXAMPLES = r"""
# "PROMPT=50%% of $HOME"
text: "{{ '50% of $HOME' | gpufleet.sglang.systemd_assignment('PROMPT') }}"
"""

RETURN = r"""
_value:
  description: The assignment in double quotes, escaped.
  type: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def systemd_assignment(value, name):
    return _words.systemd_assignment(name, value)


class FilterModule:
    def filters(self):
        return {"systemd_assignment": as_filter(systemd_assignment)}
