# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_environment_line
short_description: Write one line of a systemd environment file
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the line from which systemd makes exactly this value again, whatever it holds. A line break is refused.
  - The rules differ from those of C(Environment=) in a unit.
  - An environment file knows neither specifiers nor expansions.
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
# PROMPT="50% of \$HOME"
line: "{{ '50% of $HOME' | gpufleet.sglang.systemd_environment_line('PROMPT') }}"
"""

RETURN = r"""
_value:
  description: The line.
  type: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


def systemd_environment_line(value, name):
    return _words.environment_file_line(name, value)


class FilterModule:
    def filters(self):
        return {"systemd_environment_line": as_filter(systemd_environment_line)}
