from __future__ import annotations

import types

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _follow, _follow_unit
from ansible_collections.gpufleet.sglang.tests.unit.plugins import played_host


def look_at(host, alive=True):
    http = types.SimpleNamespace(process_exists=lambda pid, proc_root: alive)
    follower = _follow.Follower(host.run_command, "u.service")
    return _follow_unit.UnitLook(follower, http, "/proc", host.clock)


@pytest.fixture
def host():
    return played_host.PlayedHost(played_host.records(played_host.START))


@pytest.mark.parametrize(
    ("seconds", "told", "alive", "main_pid", "due"),
    [
        (1.0, False, True, 324, False),
        (1.0, True, True, 324, True),
        (1.0, False, False, 324, True),
        (1.0, False, True, 0, True),
        (_follow_unit.UNIT_SECONDS, False, True, 324, True),
    ],
)
def test_the_unit_is_looked_at_when_it_may_have_changed(host, seconds, told, alive, main_pid, due):
    host.units = [(0.0, {"MainPID": main_pid})]
    unit = look_at(host, alive)
    unit.look()
    host.sleep(seconds)
    assert unit.is_due(told) is due


def test_an_unanswered_look_keeps_the_last_state(host):
    unit = look_at(host)
    state = unit.look()
    unit._follower.look_at_unit = lambda: None
    assert unit.look() is None
    assert unit.state is state


def test_how_long_a_condition_lasts(host):
    lasting = _follow_unit.Lasting(host.clock)
    assert lasting.seconds("ready") is None
    assert lasting.note("ready", True) == 0.0
    host.sleep(2.0)
    assert lasting.note("ready", True) == lasting.seconds("ready") == 2.0
    assert lasting.note("ready", False) == 0.0
    assert lasting.seconds("ready") is None
    host.sleep(1.0)
    assert lasting.note("ready", True) == 0.0
