# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of preflight_variables: evaluates the host's variables and lets the pure part judge them."""

from __future__ import annotations

import os

import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.sglang.plugins.module_utils import _preflight, _preflight_fence

ROLES_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "roles")
# What an inventory may refer to and what is only there after a connection.
NEEDS_HOST = ("ansible_facts", "ansible_local", "hostvars")


def read_specs(roles: list[str]) -> dict[str, dict]:
    """The argument_specs of the roles that are checked; a role that is not there is left out."""
    specs = {}
    for role in roles:
        path = os.path.join(ROLES_FOLDER, role, "meta", "argument_specs.yml")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                specs[role] = yaml.safe_load(handle)
    return specs


def all_roles() -> list[str]:
    """Every role of the collection: their variables are known names, whichever roles are checked."""
    return sorted(name for name in os.listdir(ROLES_FOLDER) if os.path.isdir(os.path.join(ROLES_FOLDER, name)))


def missing(wanted: list[tuple[str, str]]) -> list:
    """Findings for the files (label, path) that are not on the controller."""
    return [_preflight_fence.missing_file(label, path) for label, path in wanted if not os.path.isfile(path)]


def plain(value):
    """Plain Python types, without Ansible's tags."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None if value is None else str(value)


class ActionModule(ActionBase):
    """Needs no connection and changes nothing."""

    _supports_check_mode = True
    _requires_connection = False
    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(
            argument_spec={
                "roles": {
                    "type": "list",
                    "elements": "str",
                    "default": ["sglang_engine", "sglang_model", "sglang_server"],
                },
                "known_names": {"type": "list", "elements": "str", "default": []},
            }
        )
        variables, broken, later = self.evaluate(task_vars or {})
        known = [*options["known_names"], *_preflight.options_of(read_specs(all_roles()))]
        specs = read_specs(options["roles"])
        found = broken + _preflight.findings(variables, specs, tuple(known))
        found += missing(_preflight.files_wanted(variables, specs))
        result.update(
            changed=False,
            findings=[one.as_dict() for one in found],
            checked=len(variables),
            not_evaluated=later,
        )
        return result

    def evaluate(self, task_vars: dict) -> tuple[dict, list, list]:
        """(values by name, findings for what cannot be evaluated, names that need facts of the host)."""
        values, broken, later = {}, [], []
        for name in sorted(one for one in task_vars if isinstance(one, str) and one.startswith("sglang_")):
            try:
                values[name] = plain(self._templar.template(task_vars[name]))
            except AnsibleError as error:
                if any(word in str(task_vars[name]) or word in str(error) for word in NEEDS_HOST):
                    later.append(name)
                else:
                    sentence = f"{name} cannot be evaluated: {' '.join(str(error).split())}"
                    broken.append(_preflight.Finding(name, sentence))
        return values, broken, later
