# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read the GPUs of a host and their memory
version_added: 0.1.0
description:
  - Asks C(nvidia-smi) for the boards of a host. Figures are MiB as C(nvidia-smi) prints them, not what torch sees.
  - On a host without NVIDIA tools it returns the figures that the engine itself uses on the CPU, the available memory
    of the machine divided by its NUMA nodes.
  - Boards without memory of their own (unified memory, as GB10 and Jetson) show the memory of the machine, available
    and not free, whatever C(nvidia-smi) prints for them. A board of a kind that has memory of its own never does.
  - A board that is split by MIG shows no memory, its instances in RV(gpus[].mig_devices) show theirs. A vGPU shows its
    slice; nothing is concluded from a name.
  - Says which processes hold memory of a board, as far as the driver tells it, and which boards it reaches by NVLink.
  - The order of the boards is that of C(nvidia-smi), by their place on the bus. CUDA counts boards of different kinds
    by speed, unless E(CUDA_DEVICE_ORDER) is V(PCI_BUS_ID); a UUID means the same board to both.
  - When C(nvidia-smi) fails, the module fails with one sentence that names the cause, and RV(failure_class). So it does
    when C(nvidia-smi) tells of a lost board beside the table of the others. A single board whose figures cannot be
    planned with is returned with nulls and a sentence in RV(problems), and a board that the driver holds without
    C(nvidia-smi) listing it is in RV(missing_boards).
  - Without trouble C(nvidia-smi) is asked three times, five times with several boards, twice more with MIG, in the
    locale C. A call that hangs is killed and not waited for, as nothing ends what hangs in the driver.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
options:
  nvidia_smi:
    description:
      - The command to ask, a name to be found on E(PATH) or a path.
    type: str
    default: nvidia-smi
  device:
    description:
      - V(auto) asks C(nvidia-smi) where there is one and takes the CPU else.
      - V(cuda) fails where there is no C(nvidia-smi). V(cpu) does not ask it.
    type: str
    choices: [auto, cuda, cpu]
    default: auto
  timeout_seconds:
    description:
      - How long C(nvidia-smi) may take for its boards. It hangs on a sick driver, and then the module fails.
      - All other questions have three times as long, together, and after one that hangs none is put. What is not
        answered is not known, and no failure.
    type: int
    default: 30
  tries:
    description:
      - How often to ask when the driver does not answer yet, as it happens right after a boot, 2 seconds apart.
    type: int
    default: 3
author:
  - gpufleet.sglang authors (@gpufleet)
notes:
  - When the libraries of the driver are not those of the loaded module (an update replaced them), the failure names
    both versions. What runs goes on, what is restarted does not come back before the host was rebooted.
  - When no board is usable, the failure says how many boards PCI shows and which driver has them.
  - RV(homogeneous) is V(false) for boards of different kinds. The smallest of them bounds a server over all.
  - A field that C(nvidia-smi) does not know is V(null) in the result, the others stay.
  - Values such as C([N/A]), C(ERR!) or C([Insufficient Permissions]) are V(null), never V(0).
seealso:
  - module: gpufleet.sglang.engine_info
  - module: gpufleet.sglang.model_info
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpufleet.sglang.gpu_info:
  register: gpu

- name: Refuse boards whose figures cannot be planned with
  ansible.builtin.assert:
    that: gpu.problems | length == 0
    fail_msg: "{{ gpu.problems | join(' ') }}"
"""

RETURN = r"""
gpus:
  description: The boards in the order of C(nvidia-smi), on a host without one a single entry named C(cpu).
  returned: success
  type: list
  elements: dict
  contains:
    index:
      description: Number of the board, V(0) for the CPU.
      type: int
      sample: 0
    uuid:
      description: Identity of the board, V(null) for the CPU and for boards that have none.
      type: str
      sample: GPU-00000000-1111-2222-3333-444444444444
    name:
      description: Product name.
      type: str
      sample: NVIDIA H100 80GB HBM3
    memory_total_mib:
      description: Memory in MiB, V(null) when it cannot be planned with.
      type: int
      sample: 81559
    memory_free_mib:
      description: Free memory in MiB. Total minus used is more, the driver reserves a part.
      type: int
      sample: 81050
    memory_used_mib:
      description: Used memory in MiB.
      type: int
      sample: 4
    compute_capability:
      description: Compute capability, V(null) where it is not known.
      type: str
      sample: "9.0"
    unified_memory:
      description: Whether the board has no memory of its own and uses that of the machine.
      type: bool
    healthy:
      description: Whether its figures can be planned with.
      type: bool
    problem:
      description: Why they cannot, in one sentence, else V(null).
      type: str
    failure_class:
      description: V(gpu_lost) for a board that is lost or requires a reset, else V(null).
      type: str
    pci_bus_id:
      description: Its place on the bus as C(nvidia-smi) writes it, V(null) where it is not known.
      type: str
      sample: "00000000:0B:00.0"
    compute_mode:
      description:
        - V(Default), V(Exclusive_Process) or V(Prohibited), V(null) where it is not known.
        - A board that is V(Prohibited) is not healthy, as no server can use it.
      type: str
      sample: Default
    mig:
      description: Whether it is split by MIG.
      type: bool
    mig_devices:
      description:
        - Its instances. Empty where it is not split, has none, or they are not told.
      type: list
      elements: dict
      contains:
        index:
          description: Number of the instance within its board.
          type: int
          sample: 0
        uuid:
          description: What names it in E(CUDA_VISIBLE_DEVICES), V(null) where it is not known.
          type: str
          sample: MIG-0929581a-2be6-5dec-bf34-0954c6c529a6
        profile:
          description: Its profile, V(null) where it is not known.
          type: str
          sample: 3g.40gb
        gpu_instance_id:
          description: Number of its GPU instance.
          type: int
          sample: 1
        compute_instance_id:
          description: Number of its compute instance.
          type: int
          sample: 0
        memory_total_mib:
          description: Its memory in MiB, V(null) where it is not told.
          type: int
          sample: 40448
        memory_free_mib:
          description: Its free memory in MiB.
          type: int
          sample: 40151
        memory_used_mib:
          description: Its used memory in MiB.
          type: int
          sample: 298
        processes:
          description: The processes that hold memory of it, as those of a board.
          type: list
          elements: dict
    processes:
      description:
        - The processes that hold memory of the board. Empty where C(nvidia-smi) does not tell them, as in containers of
          their own, and on the CPU.
      type: list
      elements: dict
      contains:
        pid:
          description: Process on the host.
          type: int
          sample: 4242
        name:
          description: Its name, as C(nvidia-smi) prints it.
          type: str
          sample: sglang::scheduler_TP0
        memory_mib:
          description: What it holds of the board in MiB, V(null) where the driver does not tell.
          type: int
          sample: 75120
    nvlinks:
      description:
        - The other boards, by number, that it reaches by NVLink, as C(nvidia-smi topo -m) says.
        - Empty for a single board, V(null) where it is not known.
      type: list
      elements: int
      sample: [1, 2, 3]
    peers:
      description:
        - The other boards, by number, whose memory it may read, as C(nvidia-smi topo -p2p r) says.
        - Empty for a single board, V(null) where it is not known.
      type: list
      elements: int
      sample: [1, 2, 3]
full_nvlink:
  description:
    - Whether every pair of boards has NVLink, V(null) where it is not known. A single board has no pairs, V(true).
  returned: success
  type: bool
gpu_count:
  description:
    - Number of boards, V(0) on the CPU.
    - On failure V(0) where the answer was that there are none, V(null) where nobody could count them.
  returned: always
  type: int
  sample: 8
driver_version:
  description: Version of the NVIDIA driver, V(null) where it is not known.
  returned: success
  type: str
  sample: 580.95.05
unified_memory:
  description: Whether a board uses the memory of the machine.
  returned: success
  type: bool
device:
  description: V(cuda) or V(cpu).
  returned: success
  type: str
  sample: cuda
homogeneous:
  description: Whether all boards have the same name and memory.
  returned: success
  type: bool
failure_class:
  description:
    - What the failure is, V(no_gpu) or V(gpu_lost), as M(gpufleet.sglang.startup_info) names failures.
    - V(null) where that is not known, as of a C(nvidia-smi) that hangs.
  returned: failure
  type: str
  sample: gpu_lost
pci_addresses:
  description: The boards that the failure is about, by their place on the bus, where that is known.
  returned: failure
  type: list
  elements: str
  sample: ["0000:0B:00.0"]
missing_boards:
  description: The boards that the loaded driver holds and C(nvidia-smi) does not list, by their place on the bus.
  returned: success
  type: list
  elements: str
  sample: []
problems:
  description: One sentence for each board whose figures cannot be planned with, and one for those that are missing.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import GpuError
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_host import read_host


def main():
    module = AnsibleModule(
        argument_spec={
            "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
            "device": {"type": "str", "choices": ["auto", "cuda", "cpu"], "default": "auto"},
            "timeout_seconds": {"type": "int", "default": 30},
            "tries": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )
    try:
        result, warnings = read_host(module)
    except GpuError as error:
        module.fail_json(
            msg=str(error),
            failure_class=error.failure_class,
            gpu_count=error.gpu_count,
            pci_addresses=error.pci_addresses,
        )
    for warning in warnings:
        module.warn(warning)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
