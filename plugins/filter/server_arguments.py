# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: server_arguments
short_description: Turn a dictionary of SGLang arguments into words
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the argument vector that hands every entry to SGLang as it is written.
  - V(true) is a bare flag, V(false), V(null) and an empty list leave it out.
  - With O(engine) known, V(true) and V(false) are the values of an argument that takes one, and V(false) is the twin
    C(no-...) of an argument that has one. Any other value of a flag is refused.
  - A list puts its values behind one flag, a dictionary becomes JSON.
  - A value that begins with C(-) and is no negative number is bound to its flag by C(=), since SGLang would take it
    for an option.
options:
  _input:
    description: Arguments by SGLang's own names, with dashes or underscores.
    type: dict
    required: true
  engine:
    description: What M(gpufleet.sglang.engine_info) returned, or nothing when the engine is not known.
    type: dict
"""

EXAMPLES = r"""
# ["--tp-size", "8", "--enable-metrics"]
words: "{{ {'tp-size': 8, 'enable-metrics': true} | gpufleet.sglang.server_arguments }}"

# ["--model-path", "/srv/models/m", "--no-lora-strict-loading"]
more: "{{ {'model-path': '/srv/models/m', 'lora-strict-loading': false} | gpufleet.sglang.server_arguments(engine) }}"
"""

RETURN = r"""
_value:
  description: The words.
  type: list
  elements: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"server_arguments": as_filter(_words.server_arguments)}
