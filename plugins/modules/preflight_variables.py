# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_variables
short_description: Find mistakes in the inventory before a host is touched
version_added: 0.1.0
author: ["gpufleet.sglang authors (@gpufleet)"]
description:
  - Looks at the C(sglang_*) variables of a host, without a connection to it. It finds names that do not exist (with the
    name that was probably meant), wrong types, values out of range, and variables that contradict each other.
  - What a variable may be is read from the argument specifications of the roles.
  - It never fails for a finding; it returns all of them.
options:
  roles:
    description: The roles whose variables are checked.
    type: list
    elements: str
    default: [sglang_engine, sglang_model, sglang_server]
  known_names:
    description: Names of variables that begin like those of this collection and are no mistakes.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.action
attributes:
  action:
    support: full
    details:
      - Runs on the controller only.
  platform:
    platforms: all
    support: full
"""

EXAMPLES = r"""
- name: Look at the inventory
  gpufleet.sglang.preflight_variables:
  register: preflight

- name: Show what is wrong
  ansible.builtin.debug:
    msg: "{{ preflight.findings | map(attribute='sentence') }}"
"""

RETURN = r"""
findings:
  description: All that is wrong, in the order of the checks.
  returned: success
  type: list
  elements: dict
  sample:
    - variable: sglang_server_prt
      sentence: "sglang_server_prt is no variable of this collection: did you mean sglang_server_port?"
checked:
  description: How many variables were evaluated.
  returned: success
  type: int
  sample: 14
not_evaluated:
  description: Variables that refer to facts of the host and cannot be looked at without a connection.
  returned: success
  type: list
  elements: str
  sample: []
"""
