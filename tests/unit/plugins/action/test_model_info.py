# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller side of model_info: who shares the answer of a hub."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.sglang.plugins.action import model_info


@pytest.fixture
def given(monkeypatch):
    """Call the action and return the arguments that the module got."""

    def call(args, transport="local", become=False):
        action = model_info.ActionModule.__new__(model_info.ActionModule)
        action._task = SimpleNamespace(args=args, async_val=0)
        action._connection = SimpleNamespace(
            transport=transport, has_native_async=False, _shell=SimpleNamespace(tmpdir=None)
        )
        action._play_context = SimpleNamespace(become=become)
        got = {}

        def execute(module_name, module_args, task_vars, wrap_async):
            assert module_name == "gpufleet.sglang.model_info"
            got.update(module_args)
            return {"changed": False}

        monkeypatch.setattr(action, "_execute_module", execute, raising=False)
        monkeypatch.setattr(action, "_remove_tmp_path", lambda path: None, raising=False)
        monkeypatch.setattr(model_info.ActionBase, "run", lambda self, tmp, task_vars: {})
        assert action.run(task_vars={}) == {"changed": False}
        return got

    return call


def test_hosts_that_ask_from_the_controller_share_a_folder_of_this_run(given, monkeypatch):
    monkeypatch.setattr(model_info.constants, "DEFAULT_LOCAL_TMP", "/tmp/this-run")
    assert given({"repo": "org/model"}) == {"repo": "org/model", "cache_dir": "/tmp/this-run"}


@pytest.mark.parametrize(
    ("args", "how"),
    [
        ({"path": "/srv/models/one"}, {}),
        ({"repo": "org/model"}, {"transport": "ssh"}),
        ({"repo": "org/model"}, {"become": True}),
        ({"repo": "org/model", "cache_dir": "/mine"}, {}),
    ],
)
def test_others_keep_what_they_were_given(given, args, how):
    assert given(args, **how) == args
