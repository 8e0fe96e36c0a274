# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: systemd_argument
short_description: Quote one word for ExecStart= of a systemd unit
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the text from which systemd makes exactly this word again, whatever it holds. A line break is refused.
options:
  _input:
    description: The word.
    type: str
    required: true
"""

EXAMPLES = r"""
# "50%% of $$HOME"
text: "{{ '50% of $HOME' | gpufleet.sglang.systemd_argument }}"
"""

RETURN = r"""
_value:
  description: The word in double quotes, escaped.
  type: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"systemd_argument": as_filter(_words.systemd_argument)}
