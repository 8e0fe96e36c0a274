# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work in the background: asked first, followed by its notes, and its result handed on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.gpufleet.sglang.plugins.plugin_utils import _background

DONE = {
    "changed": True,
    "path": "/opt/e",
    "started": True,
    "finished": True,
    "ansible_job_id": "j1",
    "results_file": "x",
}


class Action(_background.BackgroundAction):
    """The class without Ansible below it: answers come from lists."""

    MODULE = "gpufleet.sglang.engine_venv"
    TARGET = "path"

    def __init__(self, expected, notes=(), states=()):
        self._task = SimpleNamespace(args={"path": "/opt/e/"}, check_mode=False, async_val=0)
        self.expected, self.notes, self.states = expected, list(notes), list(states)
        self.calls = []

    def call(self, task_vars, wrap_async=False, **more):
        self.calls.append((self._task.check_mode, wrap_async, self._task.async_val, more))
        return {"ansible_job_id": "j1", "changed": True} if wrap_async else self.expected

    def read(self, notes):
        if self.notes and isinstance(self.notes[0], Exception):
            raise self.notes.pop(0)
        return self.notes.pop(0) if self.notes else None

    def status(self, job, mode, task_vars):
        self.calls.append(mode)
        return self.states.pop(0) if mode == "status" else {}


@pytest.fixture
def lines(monkeypatch):
    shown = []
    monkeypatch.setattr(_background, "Display", lambda: SimpleNamespace(display=shown.append))
    monkeypatch.setattr(_background.time, "sleep", lambda seconds: None)
    return shown


@pytest.mark.parametrize("answer", [{"changed": False, "path": "/opt/e"}, {"failed": True, "msg": "no Python"}])
def test_when_there_is_nothing_to_do_nothing_runs_in_the_background(answer, lines):
    action = Action(answer)
    assert action.work({"inventory_hostname": "gpu-a"}) == answer
    assert action.calls == [(True, False, 0, {})]
    assert lines == []
    assert action._task.check_mode is False


def test_notes_are_printed_and_the_result_is_the_jobs(lines):
    notes = [("create", ""), ("download", "torch"), ("download", "numpy"), None, ("install", "3 packages")]
    action = Action({"changed": True, "actions": ["install x"]}, notes, [{"finished": False}, DONE])
    assert action.work({"inventory_hostname": "gpu-a"}) == {"changed": True, "path": "/opt/e"}
    assert lines[0] == "gpu-a | to do | - | install x"
    assert [one.split(" | ")[1] for one in lines[1:]] == ["create", "download", "install"]
    assert action.calls[1] == (False, True, _background.LIMIT_SECONDS, {"progress_file": "/opt/.e.progress"})
    assert action.calls[2:] == ["status", "status", "cleanup"]
    assert action._task.async_val == 0


def test_a_failure_of_the_job_is_handed_on(lines):
    state = {"finished": True, "failed": True, "msg": "pip said no", "ansible_job_id": "j1"}
    result = Action({"changed": True}, [], [state]).work({})
    assert result == {"failed": True, "msg": "pip said no"}


def test_a_lost_connection_is_waited_for(lines, monkeypatch):
    now = [0.0]

    def clock():
        now[0] += 10.0
        return now[0]

    monkeypatch.setattr(_background.time, "monotonic", clock)
    lost = AnsibleConnectionFailure("gone")
    assert Action({"changed": True}, [lost, lost, None], [DONE]).work({})["changed"] is True
    with pytest.raises(AnsibleConnectionFailure):
        Action({"changed": True}, [lost] * 20, [DONE]).work({})


def test_the_same_phase_is_printed_every_ten_seconds():
    now, shown = [0.0], []
    printer = _background.Printer(shown.append, "gpu-a", clock=lambda: now[0])
    for now[0] in (0.0, 5.0, 9.9, 10.0, 12.0):
        printer.note("download", f"{now[0]:.1f}")
    assert shown == ["gpu-a | download | 0 s | 0.0", "gpu-a | download | 10 s | 10.0"]
