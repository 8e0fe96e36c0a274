# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_repository
short_description: Add, refresh or remove the repository of NVIDIA drivers
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Writes the key, after its fingerprint was compared, and an entry of apt (deb822) or dnf that trusts this key only.
  - Needs no gpg on the host.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  state:
    description: Whether the repository is there.
    type: str
    choices: [present, absent]
    default: present
  url:
    description: Address of the repository. Needed for O(state=present).
    type: str
  suite:
    description: Suite of apt, V(/) for a flat repository.
    type: str
    default: /
  components:
    description: Components of apt, for a repository that is not flat.
    type: str
    default: ''
  key:
    description: The key as armoured text. Needed for O(state=present).
    type: str
  fingerprint:
    description: Fingerprint that the key must have. Needed for O(state=present).
    type: str
  refresh:
    description: When to fetch the index anew. V(changed) is when the entry was not there, or was another one.
    type: str
    choices: [never, changed, always]
    default: never
  all_sources:
    description: Whether to fetch the index of every repository of the host, as for packages of the distribution.
    type: bool
    default: false
  lock_timeout_seconds:
    description: How long to wait for another package manager.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Add the repository
  gpufleet.sglang.driver_repository:
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64
    key: "{{ lookup('ansible.builtin.file', '3bf863cc.pub') }}"
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
    refresh: changed
  become: true
"""

RETURN = r"""
files:
  description: Files that were written or removed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_repository
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "url": {"type": "str"},
            "suite": {"type": "str", "default": "/"},
            "components": {"type": "str", "default": ""},
            "key": {"type": "str", "no_log": False},
            "fingerprint": {"type": "str"},
            "refresh": {"type": "str", "choices": ["never", "changed", "always"], "default": "never"},
            "all_sources": {"type": "bool", "default": False},
            "lock_timeout_seconds": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    try:
        result = _driver_repository.apply(module)
    except (DriverError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
