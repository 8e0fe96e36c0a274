# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rerun moves nothing, and what belongs to a driver goes with it: _driver_plan."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.tests.unit.plugins.driver_hosts import (
    ARCHIVE,
    UBUNTU,
    installed,
    plan,
    prebuilt,
)


def test_proprietary_modules_of_ubuntu_have_objects_that_are_versioned_like_the_kernel():
    result = plan(prebuilt(flavour="proprietary"), kernel_module="proprietary", **ARCHIVE)
    assert (result["action"], result["changes"]) == ("keep", []), "no repository was asked"


def test_tools_of_ubuntu_have_versions_of_their_own():
    parts = ("nvidia-dkms-{}-server-open", "libnvidia-compute-{}-server", "nvidia-utils-{}-server")
    parts += ("libnvidia-cfg1-{}-server", "nvidia-compute-utils-{}-server")
    packages = dict.fromkeys((one.format(580) for one in parts), "580.95.05-0ubuntu1")
    packages["nvidia-settings"] = "510.47.03-0ubuntu4"
    there = installed(os=UBUNTU, packages=packages, available=None)
    assert plan(there, source="distribution")["action"] == "keep", "no repository was asked"
    old = {one.format(570): "570.195.03-0ubuntu1" for one in parts}
    versions = {"kernel_module": "570.195.03", "user_space": "570.195.03", "fabric_manager": None}
    before = dict(there, packages={**old, "nvidia-settings": "510.47.03-0ubuntu4"}, versions=versions)
    result = plan(dict(before, available={name: [one] for name, one in packages.items()}), source="distribution")
    assert (result["action"], result["version"]) == ("install", "580.95.05")
    assert "nvidia-settings" not in [one["name"] for one in result["changes"]]
    assert "nvidia-settings" in result["own_version"], "so that the transaction does not take it for one that stayed"
