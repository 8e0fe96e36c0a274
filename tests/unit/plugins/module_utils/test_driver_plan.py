# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would change, and why not: _driver_plan, on hosts that are only data."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.tests.unit.plugins.driver_hosts import (
    HOPPER,
    NAMES,
    VERSIONS,
    host,
    installed,
    plan,
    refusal,
)


def test_a_bare_host():
    result = plan(host())
    assert result["action"] == "install"
    assert result["version"] == "580.105.08"
    assert result["packages"] == [{"name": name, "version": "580.105.08-1"} for name in NAMES]
    assert result["changes"][0] == {"name": "libcuda1", "from": None, "to": "580.105.08-1"}
    assert result["lines"] == [
        "driver none -> 580.105.08 (open, dkms, nvidia)",
        "  libcuda1 - -> 580.105.08-1",
        "  nvidia-driver-cuda - -> 580.105.08-1",
        "  nvidia-kernel-open-dkms - -> 580.105.08-1",
        "  nvidia-persistenced - -> 580.105.08-1",
        "hold: every part",
        "reboot: if the module does not load",
    ]


def test_versions_are_asked_for_by_name():
    result = plan(host(available=None, headers=False))
    assert result["action"] == "ask"
    assert result["query"] == sorted([*NAMES, "linux-headers-6.1.0-40-amd64"])


def test_a_rerun_keeps_it_though_there_is_a_newer_one():
    result = plan(installed())
    assert (result["action"], result["changes"]) == ("keep", [])
    assert result["packages"] == [{"name": name, "version": "580.95.05-1"} for name in NAMES]


def test_a_rerun_asks_nobody_which_versions_there_are():
    result = plan(installed(available=None))
    assert (result["action"], result["changes"]) == ("keep", [])
    assert result["packages"] == [{"name": name, "version": "580.95.05-1"} for name in NAMES]
    gone = {name: ["580.105.08-1"] for name in NAMES}
    assert plan(installed(available=gone), version="580.95.05")["action"] == "keep", "it has left the repository"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, {"version": "580.105.08"}),
        ({}, {"version": "570"}),
        ({}, {"extra_packages": ["nvtop"]}),
        ({"headers": False}, {}),
        ({"needs_fabric": True}, {}),
        ({"packages": dict(dict.fromkeys(NAMES, "580.95.05-1"), libcuda1="580.105.08-1")}, {}),
    ],
    ids=["version", "branch", "package", "headers", "fabric", "parts differ"],
)
def test_what_changes_asks(changes, wanted):
    assert plan(installed(available=None, **changes), **wanted)["action"] == "ask"


def test_a_driver_of_the_installer_is_refused():
    there = host(runfile=True, loaded="550.54.14", loaded_flavour="open")
    assert "nvidia-uninstall" in refusal(there)
    newer = dict(there, loaded="580.65.06")
    assert plan(newer)["action"] == "keep", "what is good enough is left as it is"


def test_what_dnf_needs_for_a_hold_comes_with_it():
    rpm = ["kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"]
    rpm += ["nvidia-kmod-common", "nvidia-persistenced"]
    available = {name: ["3:580.95.05-1.el9"] for name in rpm}
    info = host(os={"distribution": "rhel", "major": "9", "architecture": "x86_64"}, available=available)
    lock = {"name": "python3-dnf-plugin-versionlock", "version": None}
    assert lock in plan(info)["packages"]
    assert lock["name"] in plan(dict(info, available=None))["query"]
    assert lock not in plan(info, hold=False)["packages"]


def rhel(**changes):
    """A bare Rocky Linux 9 whose kernel has no headers yet; its repositories have those of two kernels."""
    names = ["kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"]
    available = {name: ["3:580.95.05-1.el9"] for name in [*names, "nvidia-kmod-common", "nvidia-persistenced"]}
    available["kernel-devel"] = ["0:5.14.0-570.17.1.el9_6", "0:5.14.0-570.12.1.el9_6"]
    system = {"distribution": "rhel", "major": "9", "architecture": "x86_64"}
    kernel = "5.14.0-570.12.1.el9_6.x86_64"
    return host(**{"os": system, "kernel": kernel, "headers": False, "available": available, **changes})


def test_headers_of_the_rhel_family_have_one_name_and_the_release_as_their_version():
    asked = plan(rhel(available=None), hold=False)
    assert "kernel-devel" in asked["query"]
    more = ["kernel-core", "kernel-devel", "kernel-devel-matched"]
    assert [name for name in asked["query"] if name.startswith("kernel")] == more
    there = {"name": "kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "version": None}
    assert there in plan(rhel())["packages"]
    both = plan(rhel(next_kernel={"release": "5.14.0-570.17.1.el9_6.x86_64", "headers": False, "module": False}))
    assert [one["name"] for one in both["packages"] if one["name"].startswith("kernel")] == [
        "kernel-devel-5.14.0-570.12.1.el9_6.x86_64",
        "kernel-devel-5.14.0-570.17.1.el9_6.x86_64",
    ]
    old = rhel(kernel="5.14.0-503.el9.x86_64")
    assert "nor a package kernel-devel-5.14.0-503.el9.x86_64" in refusal(old)


MATCHED = "kernel-devel-matched-5.14.0-570.12.1.el9_6.x86_64"


def kernels_asked_for(info, **wanted):
    return [one["name"] for one in plan(info, **wanted)["packages"] if "matched" in one["name"]]


def test_dkms_of_the_rhel_family_takes_no_newer_kernel_along():
    """EPEL's dkms has "Requires: (kernel-devel-matched if kernel-core)", and dnf takes the newest one it finds."""
    both = ["0:5.14.0-570.58.1.el9_6", "0:5.14.0-570.12.1.el9_6"]
    info = rhel(headers=True, packages={"kernel-core": "0:5.14.0-570.12.1.el9_6"})
    info["available"]["kernel-devel-matched"] = both
    assert kernels_asked_for(info) == [MATCHED], "also where the headers are there"
    assert kernels_asked_for(info, extra_packages=["kernel-devel-matched"]) == [MATCHED], "and no newest one"
    assert kernels_asked_for(info, kernel_modules=False) == []
    later = {"release": "5.14.0-570.58.1.el9_6.x86_64", "headers": True, "module": True}
    assert kernels_asked_for(dict(info, next_kernel=later)) == [MATCHED], "one is enough"
    info["available"]["kernel-devel-matched"] = both[:1]
    assert kernels_asked_for(info) == [], "no newer one is asked for"
    assert kernels_asked_for(dict(info, next_kernel=later)) == [MATCHED.replace("570.12", "570.58")]
    there = {"kernel-core": both[1], "kernel-devel-matched": "0:5.14.0-503.el9"}
    assert kernels_asked_for(dict(info, packages=there)) == [], "dkms has what it needs"
    container = dict(info, packages={})
    container["available"]["kernel-devel-matched"] = both
    assert kernels_asked_for(container) == [], "dkms needs none without a kernel"
    page_size = rhel(kernel="5.14.0-570.12.1.el9_6.x86_64+64k", headers=True, available=None)
    assert {"kernel-64k-core", "kernel-64k-devel-matched"} <= set(plan(page_size)["query"])
    real_time = rhel(kernel="5.14.0-570.12.1.el9_6.x86_64+rt", headers=True, available=None)
    assert not [name for name in plan(real_time)["query"] if name.startswith("kernel")], "rt has none"


def test_up_and_down():
    up = plan(installed(), version="580.105.08")
    assert up["action"] == "install"
    assert up["lines"][0] == "driver 580.95.05 -> 580.105.08 (open, dkms, nvidia)"
    assert up["lines"][-1] == "reboot: due afterwards"
    down = plan(installed(), version="570")
    assert down["version"] == "570.195.03"


def test_up_within_a_branch_where_a_name_holds_the_version():
    names = ["nvidia-dkms-580-open", "libnvidia-compute-580", "nvidia-utils-580", "libnvidia-cfg1-580"]
    names += ["nvidia-compute-utils-580", "nvidia-kernel-common-580"]
    old = dict.fromkeys([*names, "nvidia-firmware-580-580.95.05"], "580.95.05-0ubuntu1")
    info = installed(
        os={"distribution": "ubuntu", "major": "24.04", "architecture": "x86_64"},
        packages=old,
        available={name: ["580.105.08-0ubuntu1", "580.95.05-0ubuntu1"] for name in names},
    )
    result = plan(info, version="580.105.08")
    assert (result["action"], result["remove"]) == ("install", ["nvidia-firmware-580-580.95.05"])
    assert {"name": "nvidia-kernel-common-580", "version": "580.105.08-0ubuntu1"} in result["packages"]
    assert plan(info, version="580.95.05")["action"] == "keep"


def test_what_is_there_counts():
    result = plan(installed(record={}), version="580.105.08")
    assert result["action"] == "keep"
    assert "580.95.05 was there before" in result["reason"]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"record": {}}, {"min_version": "580.105.08"}),
        ({"record": {}}, {"keep_existing": False}),
        ({"record": {}}, {"kernel_module": "proprietary"}),
        ({}, {}),
    ],
    ids=["too old", "not wanted", "other modules", "it is ours"],
)
def test_what_is_there_does_not_count(changes, wanted):
    info = installed(**changes)
    info["available"]["nvidia-kernel-dkms"] = list(VERSIONS)
    assert plan(info, version="580.105.08", **wanted)["action"] == "install"


def test_a_host_without_boards():
    assert plan(host(boards=[]))["action"] == "skip"
    assert plan(host(boards=[]), without_gpu=True)["action"] == "install"


def test_secure_boot_is_refused_before_anything_is_asked():
    assert "Secure Boot" in refusal(host(secure_boot=True, available=None))
    assert plan(host(secure_boot=True, mok_enrolled=True))["action"] == "install"
    assert plan(host(secure_boot=True), kernel_modules=False)["action"] == "install", "user space needs no signature"


def test_the_ways_out_of_secure_boot_are_those_of_the_distribution():
    debian = refusal(host(secure_boot=True, available=None))
    assert "dkms generate_mok, mokutil --import /var/lib/dkms/mok.pub" in debian
    assert "prebuilt" not in debian, "Debian has none"
    system = {"distribution": "ubuntu", "major": "24.04", "architecture": "x86_64"}
    ubuntu = host(secure_boot=True, available=None, os=system)
    said = refusal(ubuntu)
    assert "update-secureboot-policy --new-key, mokutil --import /var/lib/shim-signed/mok/MOK.der" in said
    assert "nvidia_driver_source: distribution, nvidia_driver_kernel_build: prebuilt" in said


def test_signed_modules_of_the_distribution_pass_secure_boot():
    name = "linux-modules-nvidia-580-server-open-6.8.0-79-generic"
    user = ["libnvidia-cfg1-580-server", "libnvidia-compute-580-server", "nvidia-compute-utils-580-server"]
    available = {one: ["580.95.05-0ubuntu1"] for one in [*user, "nvidia-utils-580-server"]}
    available[name] = ["6.8.0-79.79+1"]
    info = host(
        os={"distribution": "ubuntu", "major": "24.04", "architecture": "x86_64"},
        kernel="6.8.0-79-generic",
        secure_boot=True,
        headers=False,
        available=available,
    )
    result = plan(info, source="distribution", kernel_build="prebuilt")
    assert result["action"] == "install"
    assert {"name": name, "version": "6.8.0-79.79+1"} in result["packages"]
    own = ["linux-modules-nvidia-", "linux-objects-nvidia-", "nvidia-modprobe", "nvidia-settings", "nvidia-xconfig"]
    assert result["own_version"] == own


SIGNED = "linux-modules-nvidia-580-server-open-6.8.0-79-generic"
SIGNED_NEXT = "linux-modules-nvidia-580-server-open-6.8.0-101-generic"
SIGNED_USER = [
    "libnvidia-cfg1-580-server",
    "libnvidia-compute-580-server",
    "nvidia-compute-utils-580-server",
    "nvidia-utils-580-server",
]


def signed(there, **packages):
    """Ubuntu with prebuilt modules that serve; another kernel boots next. ``there``: whether it has modules, too."""
    found = {**dict.fromkeys(SIGNED_USER, "580.95.05-0ubuntu1"), SIGNED: "6.8.0-79.79+1", **packages}
    return installed(
        os={"distribution": "ubuntu", "major": "24.04", "architecture": "x86_64"},
        kernel="6.8.0-79-generic",
        next_kernel={"release": "6.8.0-101-generic", "headers": False, "module": False},
        packages=found,
        available={**{name: [version] for name, version in found.items()}, SIGNED_NEXT: ["6.8.0-101.101+1"] * there},
    )


def test_the_kernel_that_boots_next_gets_its_prebuilt_module():
    prebuilt = {"source": "distribution", "kernel_build": "prebuilt"}
    result = plan(signed(there=True), **prebuilt)
    assert result["changes"] == [{"name": SIGNED_NEXT, "from": None, "to": "6.8.0-101.101+1"}]
    assert result["remove"] == []
    both = signed(True, **{SIGNED_NEXT: "6.8.0-101.101+1"})
    assert plan(both, **prebuilt)["action"] == "keep"
    missing = plan(signed(there=False), **prebuilt)
    assert missing["action"] == "keep"
    assert SIGNED_NEXT in missing["lines"][-1]


def test_headers():
    there = host(headers=False)
    there["available"]["linux-headers-6.1.0-40-amd64"] = ["6.1.153-1"]
    assert {"name": "linux-headers-6.1.0-40-amd64", "version": None} in plan(there)["packages"]
    assert "headers of the running kernel 6.1.0-40-amd64" in refusal(host(headers=False))
    assert plan(host(headers=False), kernel_modules=False)["action"] == "install"


def test_another_flavour_of_the_same_version_needs_a_boot():
    packages = {**installed()["packages"], "nvidia-kernel-dkms": "580.95.05-1"}
    del packages["nvidia-kernel-open-dkms"]
    info = installed(packages=packages, loaded_flavour="proprietary")
    result = plan(info, version="580.95.05")
    assert [one["name"] for one in result["changes"]] == ["nvidia-kernel-open-dkms", "nvidia-kernel-dkms"]
    assert result["reboot"] is True
    assert result["lines"][-1] == "reboot: due afterwards"


NEXT = "linux-headers-6.1.0-41-amd64"


def after_a_kernel_update(headers, there=True):
    """The driver of the role serves, and another kernel boots next."""
    info = installed(next_kernel={"release": "6.1.0-41-amd64", "headers": headers, "module": headers})
    info["available"] = {**info["available"], NEXT: ["6.1.158-1"] if there else []}
    return info


def test_the_kernel_that_boots_next_gets_its_headers_beside_a_server():
    info = dict(after_a_kernel_update(headers=False), servers=["sglang-main.service"])
    result = plan(info, version="580.95.05")
    assert result["changes"] == [{"name": NEXT, "from": None, "to": None}]
    assert (result["action"], result["changes_driver"], result["reboot"]) == ("install", False, False)
    assert f"  {NEXT} - -> newest" in result["lines"]


def test_a_kernel_that_has_its_headers_changes_nothing():
    assert plan(after_a_kernel_update(headers=True), version="580.95.05")["action"] == "keep"


def test_a_kernel_that_boots_next_without_headers_anywhere_is_refused_before_a_change_and_told_without_one():
    info = after_a_kernel_update(headers=False, there=False)
    sentence = "the kernel 6.1.0-41-amd64, which boots next"
    assert sentence in refusal(info, version="580.105.08")
    serves = plan(info, version="580.95.05")
    assert serves["action"] == "keep"
    assert sentence in serves["lines"][-1]
    assert plan(info, version="580.95.05", kernel_modules=False)["notices"] == []


def test_in_use():
    busy = installed(users=[{"pid": 42, "name": "python"}], servers=["sglang-main.service"])
    reason = refusal(busy, version="580.105.08")
    assert "python (42), sglang-main.service" in reason
    assert plan(busy, version="580.105.08", allow_in_use=True)["action"] == "install"
    assert plan(busy)["action"] == "keep", "what does not change may be in use"
    assert refusal(busy, state="absent")
    # A server on the CPU of a host that never had a driver loses nothing.
    assert plan(host(servers=["sglang-main.service"]))["action"] == "install"


def test_a_branch_that_does_not_know_the_boards():
    assert "hopper boards" not in plan(host())["reason"]
    volta = dict(HOPPER, generation="volta")
    assert "volta boards" in refusal(host(boards=[volta]), version="590")


def test_an_unknown_version_says_what_there_is():
    assert "580.105.08, 580.95.05, 570.195.03" in refusal(host(), version="580.65.06")


def test_fabric_manager_and_nvlsm():
    available = {name: list(VERSIONS) for name in [*NAMES, "nvidia-fabricmanager"]}
    available["nvlsm"] = ["2025.10.11-1", "2025.06.11-1"]
    result = plan(host(needs_fabric=True, needs_nvlsm=True, available=available))
    assert {"name": "nvidia-fabricmanager", "version": "580.105.08-1"} in result["packages"]
    assert {"name": "nvlsm", "version": "2025.10.11-1"} in result["packages"]
    assert (result["fabric_manager"], result["nvlsm"]) == (True, True)
    off = plan(host(needs_fabric=True, available=available), fabric_manager="false")
    assert "nvidia-fabricmanager" not in [one["name"] for one in off["packages"]]


def test_a_part_with_its_own_version_is_not_moved_by_a_rerun():
    info = installed(needs_fabric=True, needs_nvlsm=True)
    info["packages"].update({"nvidia-fabricmanager": "580.95.05-1", "nvlsm": "2025.06.11-1"})
    info["available"].update({"nvidia-fabricmanager": list(VERSIONS), "nvlsm": ["2025.10.11-1", "2025.06.11-1"]})
    assert plan(info)["action"] == "keep"


def test_open_instead_of_proprietary_modules_is_one_change():
    info = installed()
    info["available"]["nvidia-kernel-dkms"] = list(VERSIONS)
    result = plan(info, kernel_module="proprietary")
    assert result["remove"] == ["nvidia-kernel-open-dkms"]
    assert {"name": "nvidia-kernel-open-dkms", "from": "580.95.05-1", "to": None} in result["changes"]


PREVIOUS = {"version": "570.195.03", "packages": dict.fromkeys(NAMES, "570.195.03-1"), "source": "nvidia"}


def test_back():
    info = installed()
    info["record"]["previous"] = PREVIOUS
    info["packages"]["nvidia-fabricmanager"] = "580.95.05-1"
    assert plan(dict(info, available=None), state="previous")["query"] == NAMES
    result = plan(info, state="previous")
    assert result["version"] == "570.195.03"
    assert result["packages"] == [{"name": name, "version": "570.195.03-1"} for name in NAMES]
    assert result["remove"] == ["nvidia-fabricmanager"]


def test_back_once_more_leads_nowhere():
    info = installed(available=None)
    info["record"]["previous"] = PREVIOUS
    info["record"]["current"]["back"] = True
    result = plan(info, state="previous")
    assert (result["action"], result["version"], result["changes"]) == ("keep", "580.95.05", [])


def test_nothing_to_go_back_to():
    assert "none remembered" in refusal(installed(), state="previous")
    info = installed(available={name: ["580.95.05-1"] for name in NAMES})
    info["record"]["previous"] = PREVIOUS
    assert "libcuda1 570.195.03-1" in refusal(info, state="previous")


def test_removal():
    result = plan(installed(), state="absent")
    assert (result["action"], result["remove"]) == ("remove", NAMES)
    assert plan(host(), state="absent")["changes"] == []


def interrupted(version="580.105.08", before="580.95.05", **record):
    """An upgrade that died half way: the user space is there, the kernel module is unpacked."""
    names = ["libcuda1", "nvidia-driver-cuda", "nvidia-persistenced"]
    packages = dict.fromkeys(NAMES, before + "-1") if before else {}
    return installed(
        version,
        packages=dict.fromkeys(names, version + "-1"),
        unfinished={"nvidia-kernel-open-dkms": version + "-1"},
        versions={"kernel_module": None, "user_space": version, "fabric_manager": None},
        loaded=before,
        record={"open": {"version": before, "packages": packages, "source": "nvidia"}, **record},
    )


def test_a_first_installation_that_was_interrupted_is_finished():
    info = interrupted(before=None)
    result = plan(info)
    assert (result["action"], result["managed"], result["version"]) == ("install", True, "580.105.08")
    assert result["changes"] == [{"name": "nvidia-kernel-open-dkms", "from": None, "to": "580.105.08-1"}]
    # The last package came, the record did not: nothing to change, and it is ours all the same.
    there = dict(installed("580.105.08"), record=info["record"])
    assert (plan(there)["action"], plan(there)["managed"]) == ("keep", True)


def test_a_run_that_ended_before_its_first_package_makes_no_driver_ours():
    there = installed()
    record = {"open": {"version": "580.95.05", "packages": there["packages"], "source": "nvidia"}}
    result = plan(dict(there, record=record))
    assert (result["action"], result["managed"]) == ("keep", False)
    assert "was there before" in result["reason"]


def test_the_removal_takes_what_was_never_configured():
    result = plan(interrupted(before=None), state="absent")
    assert result["remove"] == NAMES
    assert {"name": "nvidia-kernel-open-dkms", "from": "580.105.08-1", "to": None} in result["changes"]


def test_the_way_back_of_an_interrupted_upgrade_is_what_it_began_to_replace():
    serving = {"version": "580.95.05", "packages": dict.fromkeys(NAMES, "580.95.05-1")}
    info = interrupted(current=serving, previous=PREVIOUS)
    result = plan(info, state="previous")
    assert (result["action"], result["version"]) == ("install", "580.95.05")
    assert result["packages"] == [{"name": name, "version": "580.95.05-1"} for name in NAMES]
    # That way back is done, and remembered as one: asked for again it leads no further.
    done = installed(record={"current": dict(serving, back=True), "previous": PREVIOUS})
    assert plan(done, state="previous")["version"] == "580.95.05"
    assert plan(done, state="previous")["action"] == "keep"


def test_an_interrupted_first_installation_has_no_way_back():
    assert "none remembered" in refusal(interrupted(before=None), state="previous")


DUE = {"reboot_required": True, "reboot_reasons": ["The kernel runs the driver 580.95.05, installed is 580.105.08."]}


@pytest.mark.parametrize("ours", [True, False], ids=["of the role", "there before"])
def test_a_host_that_is_used_is_not_booted(ours):
    info = installed("580.105.08", loaded="580.95.05", servers=["sglang-main.service"], **DUE)
    info["record"] = info["record"] if ours else {}
    reason = refusal(info, reboot_ok=True)
    assert "nobody on a host that is to boot again, found sglang-main.service" in reason
    assert "nvidia_driver_reboot_ok to false" in reason
    assert plan(info, reboot_ok=True, allow_in_use=True)["action"] == "keep"
    assert plan(info)["action"] == "keep", "without leave nothing boots"
    assert plan(dict(info, servers=[]), reboot_ok=True)["action"] == "keep"


def test_a_first_driver_that_needs_a_boot_is_no_reason_to_kill_a_server_on_the_cpu():
    info = host(rivals=["nouveau"], servers=["sglang-main.service"])
    assert "found sglang-main.service" in refusal(info, reboot_ok=True)
    assert plan(info)["action"] == "install"


@pytest.mark.parametrize(
    ("version", "other"), [("580", False), ("580.95.05", False), ("590", True), ("580.105.08", True)]
)
def test_a_kept_driver_says_what_it_is_not(version, other):
    result = plan(installed(record={}), version=version)
    assert result["lines"][:2] == [result["reason"], "Its packages are not held: whoever installed it moves it."]
    assert any(f"not the wanted {version}" in line for line in result["lines"]) is other


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"secure_boot": True}, "Secure Boot"),
        ({"runfile": True}, "nvidia-uninstall"),
        ({"headers": False}, "headers of"),
    ],
)
def test_a_way_back_is_refused_for_what_a_new_driver_is(changes, said):
    info = installed(**changes)
    info["record"]["previous"] = PREVIOUS
    assert said in refusal(info, state="previous")
    # Back already: nothing is built.
    info["record"]["current"]["back"] = True
    assert plan(info, state="previous")["action"] == "keep"


def test_a_way_back_brings_the_headers():
    info = installed(headers=False)
    info["record"]["previous"] = PREVIOUS
    info["available"]["linux-headers-6.1.0-40-amd64"] = ["6.1.153-1"]
    assert {"name": "linux-headers-6.1.0-40-amd64", "version": None} in plan(info, state="previous")["packages"]


def test_a_way_back_asks_for_the_headers_of_the_rhel_family_by_their_name():
    packages = {"kmod-nvidia-open-dkms": "3:570.195.03-1.el9", "nvidia-driver-cuda": "3:570.195.03-1.el9"}
    previous = {"packages": packages, "version": "570.195.03", "source": "nvidia"}
    info = rhel(record={"previous": previous}, available=None)
    assert plan(info, state="previous", hold=False)["query"] == ["kernel-devel", *packages]
    found = {name: [version] for name, version in packages.items()}
    info["available"] = {**found, "kernel-devel": ["0:5.14.0-570.12.1.el9_6"]}
    there = {"name": "kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "version": None}
    assert there in plan(info, state="previous")["packages"]


def test_what_is_unpacked_and_holds_another_version_in_its_name_leaves():
    old = "nvidia-firmware-580-580.95.05"
    result = plan(installed(unfinished={old: "580.95.05-0ubuntu1"}), version="580.105.08")
    assert result["remove"] == [old]


def test_what_is_as_wanted_says_so_and_whether_a_boot_is_still_due():
    assert plan(installed())["lines"] == ["The driver is 580.95.05, as wanted."]
    due = installed("580.105.08", loaded="580.95.05", **DUE)
    assert plan(due)["lines"] == ["The driver is 580.105.08, as wanted.", "reboot: due", *DUE["reboot_reasons"]]
    # Something comes beside it: what was due stays due.
    beside = plan(dict(due, available={**due["available"], "nvtop": ["3.0"]}), extra_packages=["nvtop"])
    assert beside["lines"][-1] == "reboot: due"


def test_a_least_version_that_is_none_is_refused_in_one_sentence():
    assert "nvidia_driver_min_version, found 'latest'" in refusal(installed(record={}), min_version="latest")
    assert plan(installed(record={}), min_version="580")["action"] == "keep"
    assert plan(installed(record={}), min_version="590", version="580.105.08")["action"] == "install"
