# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller side of preflight_variables: which variables are looked at, and with what values."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleUndefinedVariable

from ansible_collections.gpufleet.sglang.plugins.action import preflight_variables


class Templar:
    """Answers as Ansible's does: values, or an error for what is undefined."""

    def template(self, value):
        if isinstance(value, str) and "{{" in value:
            raise AnsibleUndefinedVariable(f"{value.strip('{} ')} is undefined")
        return value


@pytest.fixture
def action():
    one = preflight_variables.ActionModule.__new__(preflight_variables.ActionModule)
    one._templar = Templar()
    return one


def test_only_variables_of_this_collection_are_evaluated(action):
    values, broken, later = action.evaluate(
        {"sglang_server_port": 1, "other": 2, "__sglang_x": 3, "sglang_x": [1, {"a": None}]}
    )
    assert values == {"sglang_server_port": 1, "sglang_x": [1, {"a": None}]}
    assert (broken, later) == ([], [])


def test_what_needs_facts_is_left_for_later_and_what_is_undefined_is_found(action):
    _values, broken, later = action.evaluate(
        {"sglang_server_host": "{{ ansible_facts.default_ipv4 }}", "sglang_server_port": "{{ prot }}"}
    )
    assert later == ["sglang_server_host"]
    assert [one.sentence for one in broken] == ["sglang_server_port cannot be evaluated: prot is undefined"]


def test_values_lose_ansibles_own_types(action):
    class Tagged(str):
        __slots__ = ()

    class Number(int):
        pass

    plain = preflight_variables.plain({Tagged("a"): [Tagged("b"), Number(3), True, None]})
    assert plain == {"a": ["b", 3, True, None]}
    assert [type(one) for one in plain["a"]] == [str, int, bool, type(None)]


def test_every_role_has_specifications_that_are_known(action):
    specs = preflight_variables.read_specs(preflight_variables.all_roles())
    assert {"sglang_engine", "sglang_model", "sglang_preflight", "sglang_server"} <= set(specs)
    assert preflight_variables.read_specs(["no_such_role"]) == {}


def test_a_file_of_tasks_must_be_on_the_controller(tmp_path):
    specs = preflight_variables.read_specs(["sglang_server"])
    (tmp_path / "away.yml").write_text("---\n[]\n")
    hooks = {"before_stop": "away.yml", "after_proven": "back.yml", "after_failed": "away.yml"}
    variables = {f"sglang_server_fence_{hook}": str(tmp_path / name) for hook, name in hooks.items()}
    wanted = preflight_variables._preflight.files_wanted(dict(variables, sglang_server_fence="tasks"), specs)
    assert [path for dummy, path in wanted] == [str(tmp_path / name) for name in hooks.values()]
    assert [one.sentence for one in preflight_variables.missing(wanted)] == [
        "sglang_server_fence_after_proven: expected a file of tasks on the controller, found none at "
        f"{tmp_path}/back.yml: correct the path, or put it there."
    ]
    # A command is none, and a path below the playbook is found by Ansible.
    assert preflight_variables._preflight.files_wanted(dict(variables, sglang_server_fence="command"), specs) == []
    beside = {"sglang_server_fence": "tasks", "sglang_server_fence_before_stop": "tasks/away.yml"}
    assert preflight_variables._preflight.files_wanted(beside, specs) == []
