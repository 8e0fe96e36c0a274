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
        self.boots = ["b1"]
        self.calls = []

    def call(self, task_vars, wrap_async=False, **more):
        self.calls.append((self._task.check_mode, wrap_async, self._task.async_val, more))
        return {"ansible_job_id": "j1", "changed": True} if wrap_async else self.expected

    def read(self, notes):
        if self.notes and isinstance(self.notes[0], Exception):
            raise self.notes.pop(0)
        return self.notes.pop(0) if self.notes else None

    def boot_id(self):
        return self.boots.pop(0) if len(self.boots) > 1 else self.boots[0]

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
    states = [{"finished": False}, {"finished": False}, DONE]
    action = Action({"changed": True, "actions": ["install x"]}, notes, states)
    assert action.work({"inventory_hostname": "gpu-a"}) == {"changed": True, "path": "/opt/e"}
    assert lines[0] == "gpu-a | to do | - | install x"
    assert [one.split(" | ")[1] for one in lines[1:]] == ["create", "download", "install"]
    assert action.calls[1] == (False, True, _background.LIMIT_SECONDS, {"progress_file": "/opt/.e.progress"})
    assert action.calls[2:] == ["status", "status", "status", "cleanup"]
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


def test_a_note_that_a_killed_job_left_does_not_hide_its_end(lines):
    killed = {"finished": True, "failed": True, "msg": "killed", "ansible_job_id": "j1"}
    action = Action({"changed": True}, [("fill", "1 %")] * 100, [killed])
    assert action.work({}) == {"failed": True, "msg": "killed"}
    assert len(action.notes) == 95


def test_a_host_that_restarted_ends_the_wait(lines):
    action = Action({"changed": True}, [], [{"finished": False}] * 100)
    action.boots = ["b1", "b1", "b2"]
    result = action.work({})
    assert result["failed"]
    assert "gpufleet.sglang.engine_venv to end, found that the host has restarted" in result["msg"]


def test_a_job_of_which_nothing_can_be_told_ends_the_wait(lines, monkeypatch):
    now = [0.0]

    def clock():
        now[0] += 10.0
        return now[0]

    monkeypatch.setattr(_background.time, "monotonic", clock)
    full = {"failed": True, "msg": "No space left on device."}
    result = Action({"changed": True}, [], [full] * 100).work({})
    assert result["failed"]
    assert "only: No space left on device; look at the disk" in result["msg"]
    # For a moment it is no reason.
    assert Action({"changed": True}, [], [full, full, DONE]).work({})["changed"] is True


def test_the_same_phase_is_printed_every_ten_seconds():
    now, shown = [0.0], []
    printer = _background.Printer(shown.append, "gpu-a", clock=lambda: now[0])
    for now[0] in (0.0, 5.0, 9.9, 10.0, 12.0):
        printer.note("download", f"{now[0]:.1f}")
    assert shown == ["gpu-a | download | 0 s | 0.0", "gpu-a | download | 10 s | 10.0"]
