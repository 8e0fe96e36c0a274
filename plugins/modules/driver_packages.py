# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_packages
short_description: Install, hold or remove the packages of an NVIDIA driver in one transaction
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Brings every part of a driver to one version in one transaction of apt or dnf, up or down, and holds them there.
  - The transaction is simulated first. One that would remove something else, or leave a part at another version, is
    refused before anything is touched.
  - Remembers the set that is replaced, before the first package moves, so that there is a way back.
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
    description: V(absent) also removes hold, pin and what is remembered.
    type: str
    choices: [present, absent]
    default: present
  packages:
    description: Packages with their full versions.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the package.
        type: str
        required: true
      version:
        description: Full version. Without it any version does.
        type: str
  remove:
    description: Parts that leave in the same transaction.
    type: list
    elements: str
    default: []
  version:
    description: Version of the driver, which every part must have.
    type: str
  own_version:
    description: Parts that may have another version. One that ends in a dash is the beginning of their names.
    type: list
    elements: str
    default: []
  hold:
    description: Whether nothing else may move the parts (C(apt-mark hold), C(dnf versionlock)).
    type: bool
    default: true
  back:
    description: Whether this is a way back. Asked for again, it leads nowhere else.
    type: bool
    default: false
  source:
    description: Where the packages come from, for the record.
    type: str
    default: nvidia
  lock_timeout_seconds:
    description: How long to wait for another package manager.
    type: int
    default: 600
  state_dir:
    description: Where the record is kept.
    type: path
    default: /var/lib/gpufleet-driver
seealso:
  - module: gpufleet.sglang.driver_info
"""

EXAMPLES = r"""
- name: Bring the driver to one version
  gpufleet.sglang.driver_packages:
    version: 580.95.05
    packages:
      - {name: nvidia-kernel-open-dkms, version: 580.95.05-1}
      - {name: nvidia-driver-cuda, version: 580.95.05-1}
  become: true
"""

RETURN = r"""
changes:
  description: What changed, or would in check mode. RV(ignore:from) is null for what is new, RV(ignore:to) for what
    leaves.
  returned: success
  type: list
  elements: dict
held:
  description: Parts that were held, or would be.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver_transaction import Transaction


def shown(changes, hold, release, traces, pin):
    """Return the difference that a person reads."""
    before = ["%s %s" % (one["name"], one["from"]) for one in changes if one["from"]]
    after = ["%s %s" % (one["name"], one["to"]) for one in changes if one["to"]]
    before += ["hold %s" % name for name in release] + list(traces)
    after += ["hold %s" % name for name in hold]
    for lines, text in zip((before, after), pin):
        lines += [line for line in text.splitlines() if line.startswith("Pin: ")]
    return {
        "before_header": "driver",
        "after_header": "driver",
        "before": "".join(line + "\n" for line in sorted(before)),
        "after": "".join(line + "\n" for line in sorted(after)),
    }


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "packages": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"name": {"type": "str", "required": True}, "version": {"type": "str"}},
            },
            "remove": {"type": "list", "elements": "str", "default": []},
            "version": {"type": "str"},
            "own_version": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "bool", "default": True},
            "back": {"type": "bool", "default": False},
            "source": {"type": "str", "default": "nvidia"},
            "lock_timeout_seconds": {"type": "int", "default": 600},
            "state_dir": {"type": "path", "default": "/var/lib/gpufleet-driver"},
        },
        supports_check_mode=True,
    )
    absent = module.params["state"] == "absent"
    try:
        transaction = Transaction(module)
        changes = transaction.simulated()
        hold, release = transaction.hold_changes(changes)
        traces = transaction.traces() if absent else []
        pin = transaction.pin_change()
        result = {
            "changed": bool(changes or hold or release or traces or any(pin)),
            "changes": changes,
            "held": hold,
            "diff": shown(changes, hold, release, traces, pin),
        }
        beside = transaction.beside(changes)
        if beside:
            moved = ", ".join("%s %s -> %s" % (one["name"], one["from"], one["to"]) for one in beside)
            module.warn("What the driver needs moves other packages of this host too: %s." % moved)
        if not module.check_mode:
            if absent and changes:
                transaction.hold([], release)
            try:
                if changes:
                    transaction.execute(changes)
                elif not absent:
                    transaction.settle()
            except DriverError:
                if absent:
                    transaction.hold_again(release)
                raise
            hold, release = transaction.hold_changes([])
            transaction.hold(hold, release)
            if absent:
                transaction.forget()
    except (DriverError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
