# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""server_soak as a task: what is printed while the load is on the host, and what comes back."""

from __future__ import annotations

import types

import pytest

from ansible_collections.gpufleet.sglang.plugins.action import server_soak
from ansible_collections.gpufleet.sglang.plugins.plugin_utils import _background

PROVEN = {
    "verdict": "proven",
    "reason": "61 requests were answered.",
    "answered": 61,
    "longest_prompt_tokens": 32752,
    "least_free_gib": {"0": 3.4, "3": 2.13},
    "at": {"board": "3", "seconds": 12.0},
    "seconds": 97.4,
    "changed": False,
}


class Play:
    """The action over a host that plays notes and then its result."""

    def __init__(self, monkeypatch, result, notes=(), check_mode=False, async_val=0, hosts=1, **args):
        self.lines, self.calls, self.read_from = [], [], []
        self.notes, self.result = list(notes), result
        monkeypatch.setattr(server_soak, "Display", lambda: types.SimpleNamespace(display=self.lines.append))
        monkeypatch.setattr(_background.time, "sleep", lambda seconds: None)
        self.task_vars = {"inventory_hostname": "gpu-a", "ansible_play_batch": ["h"] * hosts}
        task = types.SimpleNamespace(args=args, async_val=async_val, check_mode=check_mode, action="x")
        connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp/x"), has_native_async=False)
        self.action = server_soak.ActionModule(
            task=task, connection=connection, play_context=None, loader=None, templar=None, shared_loader_obj=None
        )
        self.action._execute_module = self.execute
        self.action._remove_tmp_path = lambda path: None
        self.action._remote_expand_user = lambda path: path.replace("~", "/root")
        self.action.get_shell_option = lambda name, default=None: default
        self.action.read = self.read
        self.action.boot_id = lambda: "b1"

    def read(self, notes):
        self.read_from.append(notes)
        return self.notes.pop(0) if self.notes else None

    def execute(self, module_name, module_args, task_vars, wrap_async=False):
        self.calls.append((module_name, module_args, wrap_async))
        if module_name != "gpufleet.sglang.server_soak":
            return dict(self.result, finished=True, started=True, ansible_job_id="j1")
        return {"ansible_job_id": "j1"} if wrap_async else dict(self.result)

    def run(self):
        return self.action.run(None, self.task_vars)


def test_progress_and_the_end_are_printed(monkeypatch):
    notes = [("fill", "62 % of 190,000 tokens, least free 2.1 GiB on board 3"), ("context", "0 of 1 requests")]
    play = Play(monkeypatch, PROVEN, notes, port=30001, api_key="secret")
    assert play.run()["verdict"] == "proven"
    assert [line.split(" | ")[1] for line in play.lines] == ["soak load", "soak fill", "soak context", "soak proven"]
    assert play.lines[1].endswith("62 % of 190,000 tokens, least free 2.1 GiB on board 3")
    assert play.lines[-1] == (
        "gpu-a | soak proven | 97 s | 61 requests, the longest prompt 32,752 tokens, least free 2.1 GiB on board 3"
    )
    assert not any("secret" in line for line in play.lines)
    name, arguments, in_background = play.calls[0]
    assert (name, in_background) == ("gpufleet.sglang.server_soak", True)
    assert arguments["progress_file"] == play.read_from[0]
    assert arguments["progress_file"].startswith("/root/.ansible_async/soak-")
    # The job's file on the host holds the result: it goes.
    assert play.calls[-1][1]["mode"] == "cleanup"
    assert "progress_file" not in play.action._task.args


def test_a_death_is_told_with_its_reason(monkeypatch):
    dead = {"verdict": "unsafe", "reason": "The server died under load:\n oom_prefill.", "seconds": 22.0}
    play = Play(monkeypatch, dead)
    assert play.run()["verdict"] == "unsafe"
    assert play.lines[-1] == "gpu-a | soak unsafe | 22 s | The server died under load: oom_prefill."


def test_of_many_hosts_only_the_ends_are_printed(monkeypatch):
    play = Play(monkeypatch, PROVEN, [("fill", "62 %")], hosts=21)
    play.run()
    assert [line.split(" | ")[1] for line in play.lines] == ["soak proven"]


@pytest.mark.parametrize(
    ("changes", "in_background"),
    [({"check_mode": True}, False), ({"profile": "none"}, False), ({"async_val": 60}, True)],
)
def test_what_runs_in_one_go_prints_nothing(monkeypatch, changes, in_background):
    play = Play(monkeypatch, {"verdict": None, "reason": "Nothing was sent."}, **changes)
    play.run()
    assert [call[2] for call in play.calls] == [in_background]
    assert play.lines == []
    assert "progress_file" not in play.calls[0][1]


def test_a_module_that_broke_is_handed_on(monkeypatch):
    play = Play(monkeypatch, {"failed": True, "msg": "No module named requests"})
    assert play.run()["msg"] == "No module named requests"
    assert [line.split(" | ")[1] for line in play.lines] == ["soak load"]
