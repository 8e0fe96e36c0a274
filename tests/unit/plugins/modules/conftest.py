from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _change
from ansible_collections.gpufleet.sglang.tests.unit.plugins.fake_host import FakeHost
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module


@pytest.fixture
def instance_host(tmp_path):
    """A host that is only files; returns a function that calls a module of an instance on it."""
    fake = FakeHost(tmp_path)
    real = _change.Instance.__init__

    def init(self, run_command, name, unit, state_dir, adopt_unit=None):
        real(self, fake.run_command, name, unit, state_dir, adopt_unit, str(tmp_path / "run"), str(fake.proc))

    def call(module, **params):
        return run_module(module, dict(params, instance="main", state_dir=str(tmp_path / "state")))

    with mock.patch.object(_change.Instance, "__init__", init):
        call.path = tmp_path
        yield call
