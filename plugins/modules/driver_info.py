# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_info
short_description: Read boards, kernel and NVIDIA driver of a host
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Reads which NVIDIA boards and NVSwitches are on the PCI bus, before any driver exists, which driver is loaded and
    installed, who uses it, and whether the host must boot again before the installed one serves.
  - Everything is read from the host on each call. A reboot that was put off stays due.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
options:
  query:
    description: Names of packages whose versions in the repositories are wanted. Without it none is asked for.
    type: list
    elements: str
  also:
    description: Names of further packages that RV(packages) tells when they are installed.
    type: list
    elements: str
    default: []
  origin:
    description: Address of the repository that parts of the driver may come from; those of O(also) come from anywhere.
      Without it all do.
    type: str
  kernel:
    description: Release of the kernel that the modules are for. The default is the one that runs.
    type: str
  prove:
    description: Whether to ask C(nvidia-smi), and the kernel log, and say in RV(problems) what is wrong.
    type: bool
    default: false
  wait_seconds:
    description: How long O(prove) asks again while something is wrong. A fabric takes a while to be complete.
    type: int
    default: 0
  expected_gpus:
    description: Number of boards that C(nvidia-smi) must list. The default is what the PCI bus has.
    type: int
  fabric_manager:
    description: Whether O(prove) wants a fabric of the boards. The default is whether PCI shows that they need one.
    type: bool
  mig:
    description: Whether to ask C(nvidia-smi) for the MIG modes of the boards.
    type: bool
    default: false
  nvidia_smi:
    description: The command to ask, a name to be found on E(PATH) or a path.
    type: str
    default: nvidia-smi
  lock_timeout_seconds:
    description: How long O(query) waits for another package manager.
    type: int
    default: 600
  state_dir:
    description: Where the role C(nvidia_driver) keeps what it remembers.
    type: path
    default: /var/lib/gpufleet-driver
seealso:
  - plugin: gpufleet.sglang.driver_plan
    plugin_type: filter
  - module: gpufleet.sglang.driver_packages
"""

EXAMPLES = r"""
- name: Look at the driver
  gpufleet.sglang.driver_info:
    prove: true
  become: true
  register: driver

- name: Say whether a reboot is due
  ansible.builtin.debug:
    msg: "{{ driver.reboot_reasons }}"
"""

RETURN = r"""
boards:
  description: NVIDIA boards on the PCI bus, each with RV(ignore:address), RV(ignore:device), RV(ignore:generation).
  returned: success
  type: list
  elements: dict
kernel:
  description: Release of the kernel that the modules are for, the one that runs or O(kernel).
  returned: success
  type: str
headers:
  description: Whether its headers are there.
  returned: success
  type: bool
module:
  description: Whether a module of the driver is there for it.
  returned: success
  type: bool
machine:
  description: RV(ignore:machine_id), RV(ignore:boot_id), and whether it is a RV(ignore:container).
  returned: success
  type: dict
next_kernel:
  description: The kernel that boots next, RV(ignore:release), RV(ignore:headers), RV(ignore:module); null when it is
    the one that runs, when nobody can tell, or with O(kernel).
  returned: success
  type: dict
loaded:
  description: Version of the driver that the kernel runs, null when none is loaded.
  returned: success
  type: str
  sample: 580.95.05
versions:
  description: Driver versions of the installed RV(ignore:kernel_module), RV(ignore:user_space),
    RV(ignore:fabric_manager).
  returned: success
  type: dict
packages:
  description: Installed parts of the driver with their versions.
  returned: success
  type: dict
unfinished:
  description: Parts of a driver that an interrupted run unpacked and did not configure, with their versions (apt).
  returned: success
  type: dict
leftovers:
  description: Parts of a driver of which nothing but configuration is left, with their versions (apt).
  returned: success
  type: dict
available:
  description: Versions of O(query) in the repositories, newest first; null when nothing was asked for.
  returned: success
  type: dict
module_drivers:
  description: Of prebuilt modules among RV(available), for each version of the package the driver that it was built for
    (apt).
  returned: success
  type: dict
users:
  description: Processes that hold a device of the driver.
  returned: success
  type: list
  elements: dict
servers:
  description: Running units of this collection.
  returned: success
  type: list
  elements: str
repository:
  description: RV(ignore:url) and RV(ignore:fingerprint) of the entry of the role, null when there is none.
  returned: success
  type: dict
units:
  description: Units of the driver that the host has, also masked ones.
  returned: success
  type: list
  elements: str
runfile:
  description: Whether NVIDIA's .run installer put a driver here, whose files are in no package.
  returned: success
  type: bool
initramfs_pending:
  description: Whether the initramfs is older than what the role keeps out of it.
  returned: success
  type: bool
reboot_required:
  description: Whether the host must boot again.
  returned: success
  type: bool
reboot_reasons:
  description: Why, in sentences.
  returned: success
  type: list
  elements: str
problems:
  description: Why the driver is not proven, in sentences. Null without O(prove).
  returned: success
  type: list
  elements: str
mig:
  description: Rows of C(index, current mode, pending mode) of the boards. Null without O(mig).
  returned: success
  type: str
record:
  description: What is remembered of the driver, RV(ignore:current) and RV(ignore:previous).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_host, _driver_repository
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError


def main():
    module = AnsibleModule(
        argument_spec={
            "query": {"type": "list", "elements": "str"},
            "also": {"type": "list", "elements": "str", "default": []},
            "origin": {"type": "str"},
            "kernel": {"type": "str"},
            "prove": {"type": "bool", "default": False},
            "wait_seconds": {"type": "int", "default": 0},
            "expected_gpus": {"type": "int"},
            "fabric_manager": {"type": "bool"},
            "mig": {"type": "bool", "default": False},
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "lock_timeout_seconds": {"type": "int", "default": 600},
            "state_dir": {"type": "path", "default": "/var/lib/gpufleet-driver"},
        },
        supports_check_mode=True,
    )
    try:
        result = _driver_host.read_host(module)
        result["repository"] = _driver_repository.entry_here(result["os"]["distribution"])
    except (DriverError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
