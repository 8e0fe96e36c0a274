# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_snapshot
short_description: Keep what an instance is before a change, and put it back
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - With O(state=taken) it copies the files of the instance and the state of its units, and opens a change.
    A change that is open already keeps its first snapshot, so that several attempts have one way back.
  - With O(state=restored) it puts files and proof back as they were and says which units have to be stopped
    and started for it.
    It starts and stops nothing itself.
  - With O(state=leased) it only holds the instance for this run, which is about to look at it and changes no file.
  - With O(state=released) it holds it no longer, because the run ends here.
  - With O(state=away) it remembers that clients are about to be kept away, so that a run after one that died lets them
    back. With O(state=back) it remembers that they are back.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details:
      - Names the files that would be put back, not their content, because they may hold secrets.
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
  state:
    description:
      - Whether to keep what is there, to put it back, to hold the instance for this run and no more, or no longer, or
        to remember where its clients are.
    type: str
    choices: [taken, restored, leased, released, away, back]
    default: taken
  files:
    description: Files that the change will write. Fragments and drop-ins of the units are kept beside them.
    type: list
    elements: path
    default: []
  backup:
    description:
      - What to put back. V(change) is what the open change replaced, V(previous) the newest backup,
        anything else a backup's name.
    type: str
    default: change
  run_id:
    description: Names this run. A second run that has another one is refused while the lease of the first lasts.
    type: str
    required: true
  who:
    description: Who runs, for the sentence that a second run gets.
    type: str
    default: another run
  busy_seconds:
    description:
      - How long the run may be busy with something that does not renew its lease, such as the drain of a server. The
        lease lasts three minutes longer.
    type: int
    default: 0
  state_dir:
    description: Where instances keep what they remember.
    type: path
    default: /var/lib/sglang
"""

EXAMPLES = r"""
- name: Keep what is there
  gpufleet.sglang.server_snapshot:
    instance: main
    files:
      - /etc/systemd/system/sglang-main.service
      - /etc/sglang/main.env
    run_id: 5f2c9a
  become: true

- name: Put back what the open change replaced
  gpufleet.sglang.server_snapshot:
    instance: main
    state: restored
    run_id: 5f2c9a
  become: true
  register: back
"""

RETURN = r"""
backup:
  description: The backup that was taken or put back, in one line.
  returned: success
  type: dict
open_change:
  description: Whether a run that died left a change open.
  returned: O(state=leased)
  type: bool
clients_away:
  description: Whether a run that died left clients away. They are this run's to let back.
  returned: O(state=leased)
  type: bool
changed_files:
  description: Files that were put back.
  returned: O(state=restored)
  type: list
  elements: str
units:
  description:
    - What the way back means for each unit (RV(ignore:name), whether it is to be RV(ignore:active)
      and RV(ignore:enabled),
      whether it has to RV(ignore:stop) for it or is RV(ignore:kept) as it runs,
      its RV(ignore:host) and RV(ignore:port)).
  returned: O(state=restored)
  type: list
  elements: dict
proof:
  description: The proof that is valid again, null when there was none.
  returned: O(state=restored)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _snapshot
from ansible_collections.gpufleet.sglang.plugins.module_utils._change import Instance, Refused, told


def taken(module, instance):
    params = module.params
    if not instance.snapshot_needed():
        if not module.check_mode:
            # A run that finds what served before down goes on with the way back that an earlier one had kept.
            instance.store.own_change(params["run_id"])
        return {"changed": False, "backup": None}
    if module.check_mode:
        return {"changed": True, "backup": None}
    return {"changed": True, "backup": instance.take_snapshot(params["run_id"], params["files"])}


def restored(module, instance):
    manifest = instance.find_backup(module.params["backup"])
    if manifest is None:
        return {"changed": False, "backup": None, "changed_files": [], "units": [], "proof": None}
    units = instance.plan_back(manifest)
    if module.check_mode:
        changed_files = _snapshot.differences(manifest)
    else:
        changed_files = instance.put_back(manifest)
    lines = "".join("%s\n" % path for path in changed_files)
    return {
        "changed": bool(changed_files),
        "backup": {"name": manifest["name"], "kind": manifest["kind"]},
        "changed_files": changed_files,
        "units": units,
        "proof": told(manifest["proof"]),
        "diff": {"prepared": "from the backup %s:\n%s" % (manifest["name"], lines) if lines else ""},
    }


def leased(module, instance):
    if module.check_mode:
        left = instance.store.away() is not None
    else:
        left = instance.store.own_away(module.params["run_id"])
    return {
        "changed": False,
        "backup": None,
        "open_change": instance.store.change() is not None,
        "clients_away": left,
    }


def away(module, instance):
    if not module.check_mode:
        instance.store.send_away(module.params["run_id"])
    return {"changed": False, "backup": None}


def back(module, instance):
    if not module.check_mode:
        instance.store.let_back(module.params["run_id"])
    return {"changed": False, "backup": None}


def released(module, instance):
    if not module.check_mode:
        instance.store.release_lease(module.params["run_id"])
    return {"changed": False, "backup": None}


STATES = {
    "taken": taken,
    "restored": restored,
    "leased": leased,
    "released": released,
    "away": away,
    "back": back,
}
# They hold nothing: the run ends, or has let go of the instance already.
UNHELD = ("released", "back")


def main():
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "adopt_unit": {"type": "str"},
            "state": {"type": "str", "choices": list(STATES), "default": "taken"},
            "files": {"type": "list", "elements": "path", "default": []},
            "backup": {"type": "str", "default": "change"},
            "run_id": {"type": "str", "required": True},
            "who": {"type": "str", "default": "another run"},
            "busy_seconds": {"type": "int", "default": 0},
            "state_dir": {"type": "path", "default": "/var/lib/sglang"},
        },
        supports_check_mode=True,
    )
    params = module.params
    unit = params["unit"] or "sglang-%s.service" % params["instance"]
    instance = Instance(module.run_command, params["instance"], unit, params["state_dir"], params["adopt_unit"])
    try:
        if not module.check_mode and params["state"] not in UNHELD:
            instance.take_lease(params["run_id"], params["who"], params["busy_seconds"])
        result = STATES[params["state"]](module, instance)
    except (OSError, ValueError, Refused) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
