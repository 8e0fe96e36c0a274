# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rerun moves nothing, and what belongs to a driver goes with it: _driver_plan."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.tests.unit.plugins.driver_hosts import (
    ARCHIVE,
    NAMES,
    UBUNTU,
    host,
    installed,
    plan,
    prebuilt,
    refusal,
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


NEWER = {name: ["580.105.08-1"] for name in NAMES}
HEADERS = "linux-headers-6.1.0-41-amd64"
AFTER_AN_UPDATE = {
    "next_kernel": {"release": "6.1.0-41-amd64", "headers": False, "module": False},
    "available": {**NEWER, HEADERS: ["6.1.158-1"]},
}
STAYS = [{"name": name, "version": "580.95.05-1"} for name in NAMES]


@pytest.mark.parametrize("version", ["580", "580.95.05"])
def test_headers_beside_a_driver_that_has_left_the_repository_do_not_move_it(version):
    result = plan(installed(**AFTER_AN_UPDATE), version=version)
    assert (result["action"], result["version"]) == ("install", "580.95.05")
    assert result["changes"] == [{"name": HEADERS, "from": None, "to": None}]
    assert result["packages"] == sorted([*STAYS, {"name": HEADERS, "version": None}], key=lambda one: one["name"])
    asked = plan(dict(installed(**AFTER_AN_UPDATE), available=None), version=version)
    assert (asked["action"], asked["query"]) == ("ask", [HEADERS]), "nobody is asked for what stays"


def test_a_part_that_is_missing_comes_at_the_version_of_the_driver_or_not_at_all():
    info = installed(available={"nvidia-fabricmanager": ["580.105.08-1", "580.95.05-1"]}, needs_fabric=True)
    assert plan(info)["changes"] == [{"name": "nvidia-fabricmanager", "from": None, "to": "580.95.05-1"}]
    later = {"release": "6.1.0-41-amd64", "headers": False, "module": False}
    for other in ({"next_kernel": later}, {"secure_boot": True}):
        daemon = plan(dict(info, **other))
        assert daemon["changes"] == plan(info)["changes"], "no module is built for a daemon"
    vanished = dict(info, available={"nvidia-fabricmanager": ["580.105.08-1"]})
    said = refusal(vanished)
    assert "nvidia-fabricmanager at 580.95.05, found 580.105.08-1: set nvidia_driver_version" in said
    assert plan(dict(info, available=None))["query"] == ["nvidia-fabricmanager"]


def test_what_stands_beside_and_cannot_stay_moves_nothing_either():
    other = {**installed()["packages"], "nvidia-fabricmanager-570": "570.195.03-1"}
    result = plan(installed(packages=other, available={}))
    assert result["changes"] == [{"name": "nvidia-fabricmanager-570", "from": "570.195.03-1", "to": None}]
    assert plan(installed(packages=other, available=None)) == result, "no repository is asked for a removal"


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": dict(installed()["packages"], libcuda1="580.82.07-1")},
        {"record": {}},
        {"record": {"current": {"source": "distribution", "packages": {}}}},
    ],
    ids=["parts differ", "of somebody else", "from elsewhere"],
)
def test_what_is_no_whole_driver_of_the_role_moves(changes):
    info = installed(needs_fabric=True, available={**NEWER, "nvidia-fabricmanager": ["580.105.08-1"]}, **changes)
    assert plan(info, keep_existing=False)["version"] == "580.105.08"


def test_a_mirror_of_the_same_packages_is_no_other_source():
    assert plan(installed(**AFTER_AN_UPDATE), source="local")["version"] == "580.95.05"


RPM = ["kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"]
RPM += ["nvidia-kmod-common", "nvidia-persistenced"]
IMEX = {"extra_packages": ["nvidia-imex", "nvidia-container-toolkit"], "hold": False}


def rhel(installed_at=None, **packages):
    """Rocky Linux 9 with three versions in its repository, of which the newest is another branch."""
    versions = ["3:590.48.01-1.el9", "3:580.105.08-1.el9", "3:580.95.05-1.el9"]
    available = dict.fromkeys([*RPM, "nvidia-imex"], versions)
    available["nvidia-container-toolkit"] = ["0:1.18.1-1"]
    there = dict.fromkeys(RPM, f"3:{installed_at}-1.el9") if installed_at else {}
    system = {"distribution": "rhel", "major": "9", "architecture": "x86_64"}
    info = {"os": system, "available": available, "packages": {**there, **packages}}
    return installed(installed_at, **info) if installed_at else host(**info)


def test_a_part_among_further_packages_comes_at_the_version_of_the_driver():
    first = plan(rhel(), version="580.95.05", **IMEX)["packages"]
    assert {"name": "nvidia-imex", "version": "3:580.95.05-1.el9"} in first
    assert {"name": "nvidia-container-toolkit", "version": None} in first, "no part: any version"
    there = rhel("580.95.05", **{"nvidia-imex": "3:580.95.05-1.el9", "nvidia-container-toolkit": "0:1.17.0-1"})
    up = plan(there, version="580.105.08", **IMEX)
    assert {"name": "nvidia-imex", "from": "3:580.95.05-1.el9", "to": "3:580.105.08-1.el9"} in up["changes"]
    assert plan(there, version="580.95.05", **IMEX)["action"] == "keep"


def test_a_part_that_comes_beside_a_driver_in_use_touches_it_not_and_has_its_version():
    busy = dict(rhel("580.95.05"), servers=["sglang-main.service"])
    result = plan(busy, version="580.95.05", **IMEX)
    assert (result["action"], result["changes_driver"], result["reboot"]) == ("install", False, False)
    assert {"name": "nvidia-imex", "from": None, "to": "3:580.95.05-1.el9"} in result["changes"]
    busy["available"]["nvidia-imex"] = ["3:590.48.01-1.el9"]
    assert "nvidia-imex at 580.95.05, found 3:590.48.01-1.el9" in refusal(busy, version="580.95.05", **IMEX)


OWN = ["nvidia-dkms-570-open", "libnvidia-compute-570", "nvidia-utils-570", "libnvidia-cfg1-570"]
OWN += ["nvidia-compute-utils-570", "nvidia-fabricmanager-570"]
OTHERS = ["libnvidia-nscq-570", "nvidia-imex-570", "libnvidia-decode-570", "nvidia-kernel-common-570"]
OTHERS += ["nvidia-kernel-source-570-open", "nvidia-firmware-570-570.195.03"]


def to_580(**available):
    """Ubuntu with NVSwitch goes from 570 to 580 of NVIDIA's repository; the role installs only ``OWN``."""
    packages = dict.fromkeys([*OWN, *OTHERS], "570.195.03-0ubuntu1")
    versions = dict.fromkeys(["kernel_module", "user_space", "fabric_manager"], "570.195.03")
    there = {name.replace("570", "580"): ["580.95.05-0ubuntu1"] for name in OWN}
    there["nvidia-fabricmanager"] = there.pop("nvidia-fabricmanager-580")
    found = {"os": UBUNTU, "packages": packages, "versions": versions, "needs_fabric": True}
    return installed("570.195.03", available={**there, **available}, **found)


def test_what_leaves_with_its_branch_comes_back_with_the_new_one():
    new = ["580.95.05-0ubuntu1"]
    available = {"libnvidia-nscq-580": new, "libnvidia-nscq": ["570.195.03-0ubuntu1"], "nvidia-imex": new}
    available["libnvidia-decode-580"] = ["580.105.08-0ubuntu1"]
    result = plan(to_580(**available))
    came = {one["name"]: one["to"] for one in result["changes"] if one["from"] is None}
    assert came == {
        "nvidia-dkms-580-open": new[0],
        "libnvidia-compute-580": new[0],
        "nvidia-utils-580": new[0],
        "libnvidia-cfg1-580": new[0],
        "nvidia-compute-utils-580": new[0],
        "nvidia-fabricmanager": new[0],
        "libnvidia-nscq-580": new[0],
        "nvidia-imex": new[0],
    }
    assert set(result["remove"]) == {*OWN, *OTHERS}
    assert "found nothing in the repository for libnvidia-decode-570: what" in result["lines"][-1]
    asked = plan(dict(to_580(), available=None))["query"]
    assert {"libnvidia-nscq-580", "libnvidia-nscq", "nvidia-imex-580", "nvidia-imex"} <= set(asked)
    assert not {"nvidia-kernel-source-580-open", "nvidia-firmware-580-570.195.03"} & set(asked)


DESKTOP = ["nvidia-driver-{}", "nvidia-dkms-{}", "nvidia-utils-{}", "libnvidia-compute-{}", "libnvidia-cfg1-{}"]
DESKTOP += ["nvidia-compute-utils-{}", "libnvidia-gl-{}", "nvidia-kernel-common-{}", "nvidia-kernel-source-{}"]
SERVER = ["nvidia-dkms-{}-server-open", "libnvidia-compute-{}-server", "nvidia-utils-{}-server"]
SERVER += ["libnvidia-cfg1-{}-server", "nvidia-compute-utils-{}-server"]
NEW, OLD = "580.95.05-0ubuntu1", "570.195.03-0ubuntu1"


def of_another_series(before, there, *more, **wanted):
    """Ubuntu leaves ``before`` at 570 for what ``there`` is of 580. Returns (what came, last line of the plan)."""
    versions = {"kernel_module": "570.195.03", "user_space": "570.195.03", "fabric_manager": None}
    found = {"loaded": "570.195.03", "loaded_flavour": "proprietary", "versions": versions, "os": UBUNTU}
    packages = {name.format(570): OLD for name in before}
    available = dict.fromkeys([*(name.format(580) for name in there), *more], [NEW])
    result = plan(host(packages=packages, available=available, **found), **wanted)
    return {one["name"] for one in result["changes"] if one["from"] is None}, result["lines"][-1]


def test_no_part_comes_twice_where_the_series_changes():
    """Two of a kind conflict: libnvidia-extra-470 "Conflicts: libnvidia-extra" (pop-os/shop#333)."""
    own = {name.format(580) for name in SERVER}
    came, last = of_another_series(DESKTOP, DESKTOP + SERVER, source="distribution")
    assert came == own
    assert "found nothing in the repository for libnvidia-gl-570: what uses it" in last
    came, _last = of_another_series(DESKTOP, DESKTOP + SERVER, "libnvidia-gl-580-server", source="distribution")
    assert came == {*own, "libnvidia-gl-580-server"}


def test_metapackages_do_not_bring_the_other_flavour():
    """nvidia-driver-N depends on nvidia-dkms-N (david-xinyuwei/david-share#3), the role brings nvidia-dkms-N-open."""
    before = [*DESKTOP, "cuda-drivers-{}", "nvidia-headless-{}"]
    came, last = of_another_series(before, before, "nvidia-dkms-580-open")
    parts = ["nvidia-utils-580", "libnvidia-compute-580", "libnvidia-cfg1-580", "nvidia-compute-utils-580"]
    assert came == {"nvidia-dkms-580-open", *parts, "libnvidia-gl-580"}
    assert last.startswith("reboot: "), "nothing is lost"


def test_what_the_new_driver_has_under_another_name_is_not_called_lost():
    more = ["nvidia-dkms-580-open", "libnvidia-gl-580"]
    came, last = of_another_series([*SERVER, "libnvidia-gl-{}-server"], DESKTOP, *more)
    assert "libnvidia-gl-580" in came
    assert last.startswith("reboot: ")
    tesla = ["driver", "kernel-dkms", "smi", "vdpau-driver"]
    packages = dict.fromkeys([f"nvidia-tesla-535-{one}" for one in tesla], "535.247.01-1~deb12u1")
    packages["libnvidia-tesla-535-cuda1"] = "535.247.01-1~deb12u1"
    versions = {"kernel_module": "535.247.01", "user_space": None, "fabric_manager": None}
    available = dict.fromkeys(["nvidia-open-kernel-dkms", "nvidia-smi", "libcuda1"], ["580.95.05-1"])
    available["nvidia-persistenced"] = ["580.95.05-1"]
    result = plan(host(packages=packages, versions=versions, available=available), source="distribution")
    assert "found nothing in the repository for nvidia-tesla-535-vdpau-driver: what" in result["lines"][-1]


def test_the_names_of_what_is_lost_are_cut():
    before = [*SERVER, *(f"libnvidia-{letter}-{{}}-server" for letter in "abcdefgh")]
    _came, last = of_another_series(before, DESKTOP, "nvidia-dkms-580-open")
    assert "libnvidia-f-570-server: what" in last
    assert "libnvidia-g-570" not in last


MODULE_60 = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
MODULE_71 = "linux-modules-nvidia-580-server-open-6.8.0-71-generic"


def test_a_prebuilt_module_comes_that_was_built_for_the_driver_that_is_wanted():
    """One kernel, two builds of its modules: for the driver of before and for that of now."""
    user = [name for name in prebuilt()["packages"] if name != MODULE_60]
    available = {name: ["580.105.08-0ubuntu1", "580.95.05-0ubuntu1"] for name in user}
    available[MODULE_60] = ["6.8.0-60.63+2", "6.8.0-60.60+1"]
    built = {MODULE_60: {"6.8.0-60.63+2": "580.105.08", "6.8.0-60.60+1": "580.95.05"}}
    info = prebuilt(available=available, module_drivers=built)
    first = dict(info, packages={}, record={}, loaded=None, versions=host()["versions"])
    old = plan(first, version="580.95.05", **ARCHIVE)["packages"]
    assert {"name": MODULE_60, "version": "6.8.0-60.60+1"} in old
    told = "kernels: not by unattended upgrades, which know no prebuilt modules: run the role for them"
    assert told in plan(first, **ARCHIVE)["lines"]
    assert told not in plan(first, allow_unattended=True, **ARCHIVE)["lines"]
    assert told not in plan(host())["lines"], "DKMS builds for them"
    up = plan(info, version="580.105.08", **ARCHIVE)["changes"]
    assert {"name": MODULE_60, "from": "6.8.0-60.60+1", "to": "6.8.0-60.63+2"} in up


def test_a_kernel_that_boots_next_with_modules_of_another_driver_only_is_told():
    later = {"release": "6.8.0-71-generic", "headers": False, "module": False}
    build = "6.8.0-71.71+1"
    found = {"available": {MODULE_71: [build]}, "module_drivers": {MODULE_71: {build: "580.105.08"}}}
    result = plan(prebuilt(next_kernel=later, **found), **ARCHIVE)
    assert (result["action"], result["changes"]) == ("keep", [])
    way_out = "remove that kernel, or set nvidia_driver_version to 580.105.08"
    assert f"no package {MODULE_71} of the driver 580.95.05: {way_out}" in result["lines"][-1]
    booted = prebuilt(kernel="6.8.0-71-generic", loaded=None, packages=prebuilt()["packages"], **found)
    assert f"found {build} for 580.105.08: set nvidia_driver_version to 580.105.08." in refusal(booted, **ARCHIVE)
    found["module_drivers"] = {MODULE_71: {build: "580.95.05"}}
    result = plan(prebuilt(next_kernel=later, **found), **ARCHIVE)
    assert result["changes"] == [{"name": MODULE_71, "from": None, "to": build}]
    assert result["changes_driver"] is False


def test_modules_of_an_older_kernel_are_for_an_older_driver_only():
    user = [name for name in prebuilt()["packages"] if name != MODULE_60]
    available = {**dict.fromkeys(user, ["580.105.08-0ubuntu1"]), MODULE_60: ["6.8.0-60.60+1"]}
    built = {MODULE_60: {"6.8.0-60.60+1": "580.95.05"}}
    bare = host(os=UBUNTU, kernel="6.8.0-60-generic", available=available, module_drivers=built)
    assert refusal(bare, **ARCHIVE).endswith("): boot the newest kernel, whose modules are for the newest driver.")


def test_the_plan_of_an_uninstallation_names_what_is_purged():
    only = plan(host(leftovers={"nvidia-fabricmanager-570": "570.195.03-1"}), state="absent")
    assert only["changes"] == [{"name": "nvidia-fabricmanager-570", "from": "570.195.03-1", "to": None}]
    assert (only["changes_driver"], only["remove"]) == (False, []), "no server is stopped for that"
    assert only["lines"][-1] == "reboot: not needed"
    assert plan(installed(leftovers={"nvidia-fabricmanager-570": "570.195.03-1"}))["changes"] == []
