# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_info
short_description: Tell what an instance of SGLang is, runs and remembers on a host
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Looks at the unit, at the process behind it, and at what was remembered of the instance
    (proof, attempts, open change, backups).
  - Which configuration the running invocation has is read from the environment of its process, not from files.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  unit:
    description: Unit of the instance. The default is C(sglang-INSTANCE.service).
    type: str
  adopt_unit:
    description: A unit made by hand that serves in the place of this instance.
    type: str
  files:
    description: Files of the instance that are compared with the proof.
    type: list
    elements: path
    default: []
  keys_file:
    description:
      - The file with the keys of the server.
    type: path
  keys:
    description:
      - Keys that the server is to have, by their names in O(keys_file). They are compared with those in the file.
    type: dict
  search_journal:
    description: Whether to search the journal of the invocation that runs for the keys of O(keys_file).
    type: bool
    default: false
  clients_seconds:
    description:
      - How long to look for clients at the port of the server, in seconds. V(0) looks once.
      - Without it nobody looks.
    type: float
  state_dir:
    description: Where instances keep what they remember.
    type: path
    default: /var/lib/sglang
"""

EXAMPLES = r"""
- name: Look at the instance
  gpufleet.sglang.server_info:
    instance: main
  become: true
  register: info
"""

RETURN = r"""
unit:
  description: The unit as systemd sees it, and the process behind it.
  returned: success
  type: dict
adopted:
  description:
    - The same for O(adopt_unit), with RV(ignore:own_files), the files that are this unit's alone,
      RV(ignore:name_refusal), one sentence on why its name cannot be freed, and RV(ignore:refusal), one on why it
      cannot be adopted. Both are empty when it can.
  returned: success
  type: dict
active:
  description: Whether the instance's own unit is active.
  returned: success
  type: bool
enabled:
  description: Whether the instance's own unit starts at boot.
  returned: success
  type: bool
invocation_id:
  description: The invocation that is active.
  returned: success
  type: str
running:
  description: What the main process runs, empty when none does.
  returned: success
  type: dict
  contains:
    pid:
      description: The main process.
      type: int
      sample: 4200
    pids:
      description: It and all processes below it. What they hold of the boards comes free when the unit stops.
      type: list
      elements: int
      sample: [4200, 4242]
    config_hash:
      description: The configuration that it was started with, V(null) for a process that was started by hand.
      type: str
    command_line:
      description: Its command line, secrets masked.
      type: str
    container:
      description:
        - The program that runs it in a container, such as V(docker). Nothing is told then of what runs in it.
          V(null) when it is a process of the host.
      type: str
    host:
      description: Address that it was told to listen on, V(null) when that cannot be told.
      type: str
    port:
      description: Port, likewise.
      type: int
      sample: 30000
    memory_gib:
      description: RAM in GiB that comes free when all of them end.
      type: float
    arguments:
      description: Arguments of SGLang's launcher by their one name, secrets masked.
      type: dict
    environment:
      description: What of its environment matters to SGLang, secrets masked.
      type: dict
    venv:
      description: Virtual environment of its Python, V(null) when that cannot be told.
      type: str
serving:
  description: Unit and port that serve now, null when none does.
  returned: success
  type: dict
proof:
  description: The last proof, null when there is none.
  returned: success
  type: dict
attempts:
  description: The newest attempts, oldest first.
  returned: success
  type: list
  elements: dict
measurements:
  description:
    - What the newest attempts measured, and of older ones what no newer one did, as
      M(gpufleet.sglang.memory_plan) takes it.
  returned: success
  type: list
  elements: dict
deaths:
  description:
    - Deaths remembered as reserve needed, as M(gpufleet.sglang.memory_plan) takes them. Only the playbook
      C(gpufleet.sglang.forget) puts them out of mind.
  returned: success
  type: list
  elements: dict
remembered:
  description: RV(measurements) and RV(deaths) as lines for a person, empty when nothing is remembered.
  returned: success
  type: list
  elements: str
open_change:
  description: A change that was opened and not closed, null when there is none.
  returned: success
  type: dict
open_change_is_proven:
  description: Whether the open change had reached its proof and only its close is missing.
  returned: success
  type: bool
backups:
  description:
    - What there is to go back to, oldest first. RV(ignore:soaked) is whether what ran survived a load.
    - RV(ignore:gone) are the program and the folder of the model that it
      needs and that are no longer on the host.
  returned: success
  type: list
  elements: dict
previous:
  description: Name of the newest backup in which the unit was something else than it is now, null when there is none.
  returned: success
  type: str
last_proof:
  description: The same, among backups in which a configuration ran that a load proved.
  returned: success
  type: str
ways_back:
  description: What there is to go back to in one line a backup, the newest first.
  returned: success
  type: list
  elements: str
lease:
  description: The run that holds the instance, null when none does.
  returned: success
  type: dict
clients_away:
  description:
    - Since when clients are kept away (RV(ignore:at), seconds since the epoch) and by which run (RV(ignore:run_id)).
      Null when they are not.
  returned: success
  type: dict
drift:
  description:
    - Those of O(files) that are not as the proof has them, and drop-ins of the unit that were made by hand.
    - Empty without a proof.
  returned: success
  type: list
  elements: str
drop_ins:
  description: Drop-ins of the unit that were made by hand.
  returned: success
  type: list
  elements: str
unit_text:
  description: The unit file as it lies on the host, null when there is none.
  returned: success
  type: str
pending:
  description: Directives of the unit that were written and wait for the next restart.
  returned: success
  type: list
  elements: str
systemd_version:
  description: Version of systemd on the host, 0 when it does not say.
  returned: success
  type: int
keys_differ:
  description: Whether O(keys) are others than those in O(keys_file). Null without O(keys).
  returned: success
  type: bool
clients:
  description:
    - Who is connected to the port of the server (from another host, also who was so within the last minute), those with
      most connections first.
    - Null when it was not looked for, and when nothing runs or its port cannot be told.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: Address of the client.
      type: str
      sample: 10.0.0.9
    connections:
      description: Its connections.
      type: int
      sample: 3
clients_refusal:
  description: One sentence on why no load is put on a server with these RV(clients). Empty without any.
  returned: success
  type: str
keys_in_journal:
  description:
    - Whether a key of O(keys_file) stands in the journal of the invocation that runs. Null when it was not looked for.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _clients, _host
from ansible_collections.gpufleet.sglang.plugins.module_utils._change import Instance
from ansible_collections.gpufleet.sglang.plugins.module_utils._secrets import invocation_tells, keys_of_file


def keys_differ(keys, keys_file):
    if keys is None or not keys_file:
        return None
    return {name: key for name, key in keys.items() if key} != keys_of_file(keys_file)


def keys_in_journal(run, found, keys_file):
    keys = sorted(set(keys_of_file(keys_file).values())) if keys_file else []
    if not keys or not found["invocation_id"]:
        return None
    return invocation_tells(run, found["invocation_id"], keys)


def main():
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "adopt_unit": {"type": "str"},
            "files": {"type": "list", "elements": "path", "default": []},
            "keys_file": {"type": "path"},
            "keys": {"type": "dict", "no_log": True},
            "search_journal": {"type": "bool", "default": False},
            "clients_seconds": {"type": "float"},
            "state_dir": {"type": "path", "default": "/var/lib/sglang"},
        },
        supports_check_mode=True,
    )
    params = module.params
    unit = params["unit"] or "sglang-%s.service" % params["instance"]
    instance = Instance(module.run_command, params["instance"], unit, params["state_dir"], params["adopt_unit"])
    try:
        found = instance.inform(params["files"])
        found["keys_differ"] = keys_differ(params["keys"], params["keys_file"])
        found["keys_in_journal"] = None
        found["clients"] = None
        if params["clients_seconds"] is not None:
            found["clients"] = _clients.seen(found["running"], params["clients_seconds"], instance.proc_root)
        found["clients_refusal"] = _clients.refusal(unit, found["clients"])
        if params["search_journal"]:
            found["keys_in_journal"] = keys_in_journal(_host.runner_of(module), found, params["keys_file"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
