# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back on a host whose kernel or boards have changed since: _driver_back, by the plans that come of it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.tests.unit.plugins.driver_hosts import (
    ARCHIVE,
    NAMES,
    installed,
    plan,
    prebuilt,
    refusal,
)

OLD_31 = "linux-modules-nvidia-570-server-open-6.8.0-31-generic"
OLD_60 = "linux-modules-nvidia-570-server-open-6.8.0-60-generic"
OLD_71 = "linux-modules-nvidia-570-server-open-6.8.0-71-generic"
NEW_60 = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
BACK = {"state": "previous", **ARCHIVE}


def after_a_kernel_update(**available):
    """570 served on the kernel -31; 580 serves on the kernel -60. The archive has 570 still, and these modules."""
    before, now = prebuilt("570.195.03", "6.8.0-31-generic"), prebuilt("580.95.05", "6.8.0-60-generic")
    record = {"current": now["record"]["current"], "previous": before["record"]["current"]}
    found = {name: [version] for name, version in before["packages"].items()}
    return dict(now, record=record, available={**found, **available})


def test_the_way_back_brings_the_modules_of_the_kernel_that_runs():
    result = plan(after_a_kernel_update(**{OLD_60: ["6.8.0-60.60+1"]}), **BACK)
    assert (result["action"], result["version"]) == ("install", "570.195.03")
    assert {"name": OLD_60, "from": None, "to": "6.8.0-60.60+1"} in result["changes"]
    assert {"name": NEW_60, "from": "6.8.0-60.60+1", "to": None} in result["changes"]
    assert OLD_31 not in [one["name"] for one in result["packages"]], "that kernel does not run any more"
    asked = plan(dict(after_a_kernel_update(), available=None), **BACK)
    assert OLD_60 in asked["query"]
    assert OLD_31 not in asked["query"]


def test_and_of_the_one_that_boots_next():
    later = {"release": "6.8.0-71-generic", "headers": False, "module": False}
    info = dict(after_a_kernel_update(**{OLD_60: ["6.8.0-60.60+1"]}), next_kernel=later)
    said = refusal(info, **BACK)
    assert f"for the kernel 6.8.0-71-generic, found no package {OLD_71}" in said
    info["available"][OLD_71] = ["6.8.0-71.71+1"]
    assert {"name": OLD_71, "version": "6.8.0-71.71+1"} in plan(info, **BACK)["packages"]


def test_without_modules_of_that_driver_for_the_kernel_nothing_moves():
    assert f"for the kernel 6.8.0-60-generic, found no package {OLD_60}" in refusal(after_a_kernel_update(), **BACK)
    other = after_a_kernel_update(**{OLD_60: ["6.8.0-60.63+2", "6.8.0-60.60+1"]})
    other["module_drivers"] = {OLD_60: {"6.8.0-60.63+2": "570.211.01", "6.8.0-60.60+1": "570.195.03"}}
    assert {"name": OLD_60, "version": "6.8.0-60.60+1"} in plan(other, **BACK)["packages"]
    del other["module_drivers"][OLD_60]["6.8.0-60.60+1"]
    other["available"][OLD_60] = ["6.8.0-60.63+2"]
    said = refusal(other, **BACK)
    assert "modules of the driver 570.195.03" in said
    assert said.endswith("or set nvidia_driver_state to present and nvidia_driver_version to 570.211.01.")


def test_back_once_more_brings_what_a_kernel_update_wants_and_keeps_the_modules_of_the_other():
    done = prebuilt("570.195.03", "6.8.0-60-generic", servers=["sglang-main.service"])
    done["record"] = {"current": dict(done["record"]["current"], back=True)}
    assert plan(done, **BACK)["action"] == "keep", "no repository was asked"
    later = {"release": "6.8.0-71-generic", "headers": False, "module": False}
    result = plan(dict(done, next_kernel=later, available={OLD_71: ["6.8.0-71.71+1"]}), **BACK)
    assert result["changes"] == [{"name": OLD_71, "from": None, "to": "6.8.0-71.71+1"}]
    assert (result["action"], result["changes_driver"]) == ("install", False), "beside a server"
    assert plan(dict(done, next_kernel=later), **BACK)["query"] == [OLD_71], "the other module is there"
    nowhere = plan(dict(done, next_kernel=later, available={}), **BACK)
    assert (nowhere["action"], nowhere["changes"]) == ("keep", [])
    assert f"found no package {OLD_71}" in nowhere["lines"][-1]
    booted = dict(done, kernel="6.8.0-71-generic", available={OLD_71: ["6.8.0-71.71+1"]})
    assert plan(booted, **BACK)["remove"] == []


def test_the_way_back_brings_no_metapackage_that_follows_kernels():
    """ubuntu-drivers installs one; its newest version brings modules of a kernel that this host does not run."""
    meta = "linux-modules-nvidia-570-server-open-generic"
    info = after_a_kernel_update(**{OLD_60: ["6.8.0-60.60+1"], meta: ["6.8.0-71.71+1"]})
    before = info["record"]["previous"]
    info["record"]["previous"] = dict(before, packages={**before["packages"], meta: "6.8.0-31.31+1"})
    result = plan(info, **BACK)
    assert meta not in [one["name"] for one in result["packages"]]
    assert {"name": OLD_60, "version": "6.8.0-60.60+1"} in result["packages"]
    assert result["lines"][-1].startswith(meta + " does not come back")
    there = prebuilt("570.195.03", "6.8.0-60-generic")
    packages = {**there["packages"], meta: "6.8.0-60.60+1"}
    there["record"] = {"current": dict(there["record"]["current"], packages=packages, back=True)}
    rerun = plan(dict(there, packages=packages), **BACK)
    assert (rerun["action"], rerun["notices"]) == ("keep", []), "one that is there stays"


@pytest.mark.parametrize("board", [("10de:2d04", "newer"), ("10de:1db6", "volta")])
def test_boards_that_the_driver_of_before_does_not_know(board):
    device, generation = board
    info = installed(boards=[{"address": "0000:01:00.0", "device": device, "generation": generation}])
    packages = dict.fromkeys(NAMES, "570.195.03-1")
    info["record"]["previous"] = {"version": "570.195.03", "packages": packages, "source": "nvidia"}
    said = refusal(info, state="previous")
    assert f"570.195.03 (open), knows, found {device} at 0000:01:00.0" in said


def test_a_driver_of_before_without_a_version_is_judged_by_its_modules():
    volta = {"address": "0000:01:00.0", "device": "10de:1db6", "generation": "volta"}
    info = installed(boards=[volta])
    info["record"]["previous"] = {"version": None, "packages": {"nvidia-kernel-open-dkms": "1"}, "source": "nvidia"}
    assert "before, no known version (open), knows, found 10de:1db6" in refusal(info, state="previous")
