# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _proof
from ansible_collections.gpufleet.sglang.plugins.modules import unused_versions
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module

# Names that no unit and no process of the machine holds that runs the test.
NAMES = ("0.991.1", "0.991.2", "0.991.3", "0.991.4")


@pytest.fixture
def host(tmp_path):
    for number, name in enumerate(NAMES):
        folder = tmp_path / "engines" / name
        folder.mkdir(parents=True)
        (folder / ".gpufleet-engine.json").write_text('{"state": "tested"}')
        os.utime(folder / ".gpufleet-engine.json", (number, number))
    _proof.Store(str(tmp_path / "state"), "main").write_proof({"engine_version": "0.991.2"})

    def call(**params):
        fixed = {"root": str(tmp_path / "engines"), "state_dir": str(tmp_path / "state")}
        return run_module(unused_versions, dict(fixed, **params))

    call.left = lambda: sorted(path.name for path in (tmp_path / "engines").iterdir())
    call.state = tmp_path / "state"
    return call


def test_what_a_proof_needs_stays_and_the_newest_beside_it(host):
    would = host(keep=1, _ansible_check_mode=True)
    assert host.left() == list(NAMES)
    done = host(keep=1)
    assert host.left() == ["0.991.2", "0.991.4"]
    assert would == done
    assert [os.path.basename(path) for path in done["removed"]] == ["0.991.1", "0.991.3"]
    assert done["diff"]["before"].count("\n") == 4
    assert [os.path.basename(line) for line in done["diff"]["after"].split()] == ["0.991.2", "0.991.4"]
    assert host(keep=1)["changed"] is False


def test_what_is_declared_stays(host):
    host(keep=0, wanted=["/elsewhere/0.991.1"])
    assert host.left() == ["0.991.1", "0.991.2"]


def test_two_stay_unless_somebody_says_otherwise(host):
    assert host()["changed"] is True
    assert host.left() == ["0.991.2", "0.991.3", "0.991.4"]


def test_engines_are_no_revisions(host):
    assert host(keep=0, repo="Qwen/Qwen3") | {"invocation": None} == {
        "changed": False,
        "removed": [],
        "kept": [],
        "diff": {"before": "", "after": ""},
        "invocation": None,
    }


def test_an_unreadable_memory_is_one_sentence_and_nothing_goes(host):
    (host.state / "main" / "proof.json").write_text("{")
    found = host(keep=0)
    assert found["failed"] is True
    assert "nothing more is removed" in found["msg"]
    assert host.left() == list(NAMES)
