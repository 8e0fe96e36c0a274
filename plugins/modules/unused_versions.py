# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: unused_versions
short_description: Remove engines, or revisions of a model, that nothing on the host needs any more
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Looks at the folders below O(root) that M(gpufleet.sglang.engine_venv) or M(gpufleet.sglang.model_download) made.
    What somebody else put there is never seen and never removed.
  - What a unit of the host, a proof, a baseline, an open change, a process or O(wanted) names stays, and O(keep)
    more beside them, those that the newest backups name first.
  - Nothing is removed while a run holds an instance of the host, nor from a file system that other hosts may use too.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details:
      - Names the folders before and after, not the files in them.
options:
  root:
    description: Folder that holds the versions, each in a folder of its own.
    type: path
    required: true
  repo:
    description: Repository whose revisions are looked at. Without one it is engines.
    type: str
  keep:
    description: How many stay beside those that something needs.
    type: int
    default: 2
  wanted:
    description: Folders that stay in any case, because they are declared.
    type: list
    elements: path
    default: []
  state_dir:
    description: Where instances keep what they remember.
    type: path
    default: /var/lib/sglang
"""

EXAMPLES = r"""
- name: Keep two engines beside those in use
  gpufleet.sglang.unused_versions:
    root: /opt/sglang/engines
    wanted: [/opt/sglang/engines/0.5.23]
  become: true

- name: Keep one earlier revision of a model
  gpufleet.sglang.unused_versions:
    root: /srv/models/Qwen--Qwen3-32B
    repo: Qwen/Qwen3-32B
    keep: 1
  become: true
"""

RETURN = r"""
removed:
  description: Folders that were removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: ["/opt/sglang/engines/0.5.10"]
kept:
  description: Versions that stay (RV(ignore:path)) and why (RV(ignore:because)).
  returned: success
  type: list
  elements: dict
  sample: [{"path": "/opt/sglang/engines/0.5.23", "because": "named by the proof of main"}]
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unused, _unused_host


def refusal(params):
    """Why nothing may be removed; empty when it may."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as stream:
        shared = _unused.shared_file_system(os.path.realpath(params["root"]), stream.read())
    if shared:
        return "its file system (%s) may be used by other hosts" % shared
    return _unused_host.held_by(params["state_dir"])


def run(module):
    params = module.params
    root = params["root"]
    versions = _unused_host.models(root, params["repo"]) if params["repo"] else _unused_host.engines(root)
    why_not = refusal(params)
    needs, backups = _unused_host.needs_and_backups(params["state_dir"])
    declared = [_unused.Text("the inventory", path) for path in params["wanted"]]
    rows = _unused.decide(versions, params["keep"], declared + needs, backups, why_not)
    removed = [row.path for row in rows if not row.because]
    gone = removed + ([] if why_not else _unused_host.left_over(root))
    if not module.check_mode:
        for path in gone:
            _unused_host.remove(path)
    kept = [{"path": row.path, "because": row.because} for row in rows if row.because]
    return {
        "changed": bool(gone),
        "removed": removed,
        "kept": kept,
        "diff": {
            "before": "".join("%s\n" % row.path for row in rows),
            "after": "".join("%s\n" % row["path"] for row in kept),
        },
    }


def main():
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "repo": {"type": "str"},
            "keep": {"type": "int", "default": 2},
            "wanted": {"type": "list", "elements": "path", "default": []},
            "state_dir": {"type": "path", "default": "/var/lib/sglang"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except (OSError, ValueError) as error:
        module.fail_json(
            msg="Expected to read %s and what the instances of this host remember, found: %s; nothing more is removed."
            % (module.params["root"], error)
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
