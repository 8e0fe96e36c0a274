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
  - V(true) is a bare flag, V(false) and V(null) leave it out.
  - A list puts its values behind one flag, a dictionary becomes JSON.
options:
  _input:
    description: Arguments by SGLang's own names, with dashes or underscores.
    type: dict
    required: true
"""

EXAMPLES = r"""
# ["--tp-size", "8", "--enable-metrics"]
words: "{{ {'tp-size': 8, 'enable-metrics': true} | gpufleet.sglang.server_arguments }}"
"""

RETURN = r"""
_value:
  description: The words.
  type: list
  elements: str
"""

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words


def server_arguments(arguments):
    try:
        return _words.server_arguments(arguments)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self):
        return {"server_arguments": server_arguments}
