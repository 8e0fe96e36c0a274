# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages make a driver, and at which version all of them exist: _driver_packages."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver, _driver_packages
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError

DEBIAN = _driver.layout_for("nvidia", "debian", 580)
UBUNTU = _driver.layout_for("nvidia", "ubuntu", 580)
ARCHIVE = _driver.layout_for("distribution", "ubuntu", 580)
NON_FREE = _driver.layout_for("distribution", "debian", 535)


@pytest.mark.parametrize(
    ("name", "version", "part"),
    [
        ("libcuda1", "580.95.05-1", True),
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", True),
        ("cuda-drivers-580", "580.95.05-1", True),
        ("nvidia-fabricmanager", "580.95.05-1", True),
        ("linux-modules-nvidia-580-server-open-6.8.0-79-generic", "6.8.0-79.79+1", True),
        ("nvlsm", "2025.06.11-1", True),
        ("nvidia-container-toolkit", "1.18.1-1", False),
        ("nvidia-cuda-toolkit", "11.8.89~11.8.0-5~deb12u1", False),
        ("cuda-compat-13-0", "580.95.05-1", False),
        ("libc6", "2.36-9", False),
    ],
)
def test_what_is_a_part_of_a_driver(name, version, part):
    assert _driver_packages.belongs(name, version) is part


def test_names_of_the_components():
    kernel = _driver_packages.kernel_package(UBUNTU, 580, "open", "dkms", "6.8.0-79-generic")
    assert _driver_packages.components(UBUNTU, 580, kernel, True, True, True) == [
        "nvidia-dkms-580-open",
        "libnvidia-compute-580",
        "nvidia-utils-580",
        "libnvidia-cfg1-580",
        "nvidia-compute-utils-580",
        "nvidia-fabricmanager",
        "nvlsm",
    ]
    assert _driver_packages.components(DEBIAN, 580, "nvidia-kernel-open-dkms", False, False, False) == [
        "nvidia-kernel-open-dkms",
        "nvidia-driver-cuda",
        "libcuda1",
    ]


def test_prebuilt_modules_are_for_one_kernel():
    name = _driver_packages.kernel_package(ARCHIVE, 580, "open", "prebuilt", "6.8.0-79-generic")
    assert name == "linux-modules-nvidia-580-server-open-6.8.0-79-generic"
    with pytest.raises(DriverError, match="nvidia_driver_kernel_build"):
        _driver_packages.kernel_package(DEBIAN, 580, "open", "prebuilt", "6.1.0-40-amd64")


def test_a_source_without_fabric_manager():
    with pytest.raises(DriverError, match="fabric manager"):
        _driver_packages.components(NON_FREE, 535, "nvidia-kernel-dkms", True, True, False)


EL9 = "5.14.0-570.12.1.el9_6.x86_64"


@pytest.mark.parametrize(
    ("distribution", "release", "name", "spec"),
    [
        ("debian", "6.1.0-40-amd64", "linux-headers-6.1.0-40-amd64", "linux-headers-6.1.0-40-amd64"),
        ("rhel", EL9, "kernel-devel", "kernel-devel-" + EL9),
        (
            "rhel",
            "5.14.0-570.12.1.el9_6.aarch64+64k",
            "kernel-64k-devel",
            "kernel-64k-devel-5.14.0-570.12.1.el9_6.aarch64",
        ),
        ("rhel", EL9 + "+rt", "kernel-rt-devel", "kernel-rt-devel-" + EL9),
        (
            "rhel",
            "5.15.0-310.184.5.2.el9uek.x86_64",
            "kernel-uek-devel",
            "kernel-uek-devel-5.15.0-310.184.5.2.el9uek.x86_64",
        ),
    ],
)
def test_the_package_with_the_headers_of_a_kernel(distribution, release, name, spec):
    assert _driver_packages.headers_of(distribution, release) == (name, spec)


def test_headers_are_those_of_this_kernel():
    """The answer of dnf repoquery on Rocky Linux 9.6: the release of the kernel is the version of its package."""
    there = {"kernel-devel": ["0:5.14.0-570.17.1.el9_6", "0:5.14.0-570.12.1.el9_6"]}
    assert _driver_packages.has_headers("rhel", EL9, "x86_64", there)
    assert not _driver_packages.has_headers("rhel", EL9, "aarch64", there)
    assert not _driver_packages.has_headers("rhel", "5.14.0-570.el9.x86_64", "x86_64", there)
    assert not _driver_packages.has_headers("rhel", EL9 + "+rt", "x86_64", there)
    debian = {"linux-headers-6.1.0-40-amd64": ["6.1.153-1"]}
    assert _driver_packages.has_headers("debian", "6.1.0-40-amd64", "x86_64", debian)
    assert not _driver_packages.has_headers("debian", "6.1.0-41-amd64", "x86_64", debian)


NAMES = ["nvidia-kernel-open-dkms", "nvidia-driver-cuda"]
AVAILABLE = {
    "nvidia-kernel-open-dkms": ["580.105.08-1", "580.95.05-1", "570.195.03-1"],
    "nvidia-driver-cuda": ["590.48.01-1", "580.105.08-1", "580.95.05-1", "570.195.03-1"],
}


def test_the_newest_version_that_all_have():
    assert _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 580) == "580.105.08"
    assert _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 570) == "570.195.03"


def test_a_rerun_never_moves_the_driver():
    assert _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 580, None, "580.95.05") == "580.95.05"
    # Another branch is a wish, not a rerun.
    assert _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 580, None, "570.195.03") == "580.105.08"


def test_an_exact_version():
    assert _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 580, "580.95.05", "580.105.08") == "580.95.05"


def test_what_is_not_there_is_refused_with_what_is():
    with pytest.raises(DriverError, match=r"only 580\.105\.08, 580\.95\.05, 570\.195\.03"):
        _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 580, "580.65.06")
    with pytest.raises(DriverError, match="branch 590"):
        _driver_packages.choose_version(DEBIAN, NAMES, AVAILABLE, {}, 590)
    with pytest.raises(DriverError, match="no package nvidia-kernel-open-dkms"):
        _driver_packages.choose_version(DEBIAN, NAMES, {"nvidia-driver-cuda": ["580.95.05-1"]}, {}, 580)


def test_parts_that_never_agree():
    """Debian 12 in 2026: the open module stays behind the security updates of the rest, until all meet again."""
    available = {
        "nvidia-open-kernel-dkms": ["535.261.03-1"],
        "nvidia-smi": ["535.309.01-0+deb12u1", "535.261.03-1"],
        "libcuda1": ["535.309.01-0+deb12u1", "535.261.03-1"],
        "nvidia-persistenced": ["535.171.04-1~deb12u1"],
    }
    names = list(available)
    assert _driver_packages.choose_version(NON_FREE, names, available, {}, 535) == "535.261.03"
    assert _driver_packages.exact_packages(NON_FREE, names, available, {}, "535.261.03") == {
        "nvidia-open-kernel-dkms": "535.261.03-1",
        "nvidia-smi": "535.261.03-1",
        "libcuda1": "535.261.03-1",
        "nvidia-persistenced": "535.171.04-1~deb12u1",
    }
    apart = dict(available, libcuda1=["535.309.01-0+deb12u1"])
    with pytest.raises(DriverError, match=r"no version that all of them have .*nvidia-open-kernel-dkms: 535\.261\.03"):
        _driver_packages.choose_version(NON_FREE, names, apart, {}, 535)


def test_what_depends_follows():
    installed = {"libnvidia-ml1": "580.95.05-1", "nvidia-driver-cuda": "580.95.05-1", "nvidia-settings": "580.95.05-1"}
    available = dict(AVAILABLE, **{"libnvidia-ml1": ["580.105.08-1", "580.95.05-1"], "nvidia-settings": []})
    found = _driver_packages.followers(DEBIAN, installed, NAMES, available, "580.105.08", [])
    assert found == {"libnvidia-ml1": "580.105.08-1"}


def test_what_cannot_stay():
    installed = ["nvidia-kernel-dkms", "nvidia-driver-cuda", "libcuda1"]
    assert _driver_packages.leaving(installed, NAMES, 580) == ["nvidia-kernel-dkms"]
    old = ["nvidia-dkms-570-open", "libnvidia-compute-570", "nvidia-utils-580", "nvidia-container-toolkit"]
    assert _driver_packages.leaving(old, ["nvidia-dkms-580-open"], 580) == [
        "libnvidia-compute-570",
        "nvidia-dkms-570-open",
    ]


def test_a_name_with_another_version_leaves():
    """Ubuntu: the firmware of a version is a package, and comes with nvidia-kernel-common of that version."""
    installed = ["nvidia-firmware-580-580.95.05", "nvidia-kernel-common-580", "nvidia-dkms-580-open"]
    assert _driver_packages.leaving(installed, ["nvidia-dkms-580-open"], 580, "580.105.08") == [
        "nvidia-firmware-580-580.95.05"
    ]
    assert _driver_packages.leaving(installed, ["nvidia-dkms-580-open"], 580, "580.95.05") == []
    assert _driver_packages.leaving(installed, ["nvidia-dkms-580-open"], 580) == []
    server = ["nvidia-firmware-580-server-580.95.05"]
    assert _driver_packages.leaving(server, [], 580, "580.105.08") == server


def test_one_fabric_manager_at_a_time():
    """Its name has the branch before 580 and has none from then on, so the new one does not replace the old one."""
    assert _driver_packages.leaving(["nvidia-fabricmanager"], ["nvidia-fabricmanager-570"], 570) == [
        "nvidia-fabricmanager"
    ]
    assert _driver_packages.leaving(["nvidia-fabricmanager-570"], ["nvidia-fabricmanager"], 580) == [
        "nvidia-fabricmanager-570"
    ]
    assert _driver_packages.leaving(["nvidia-fabricmanager"], NAMES, 580) == []


def test_the_pin_of_apt():
    lines = _driver_packages.apt_pin("580.95.05").splitlines()
    assert lines[0].split()[:3] == ["Package:", "*nvidia*", "libcuda1"]
    assert lines[1:] == ["Pin: version 580.95.05-*", "Pin-Priority: 1001"]
    assert "nvlsm" not in lines[0]


def test_the_lock_of_dnf():
    packages = {"nvidia-driver-cuda": "3:580.95.05-1.el9", "nvlsm": "2025.06.11-1"}
    assert _driver_packages.versionlock(packages) == [
        "nvidia-driver-cuda-3:580.95.05-1.el9.*",
        "nvlsm-0:2025.06.11-1.*",
    ]


def test_modules_of_one_kind_stand_side_by_side_and_of_two_kinds_do_not():
    """A host keeps the modules of the kernels that it may still boot."""
    first, later = "6.8.0-79-generic", "6.8.0-101-generic"
    names = [f"linux-modules-nvidia-580-server-open-{later}"]
    same = [f"linux-modules-nvidia-580-server-open-{first}", f"linux-objects-nvidia-580-server-open-{first}"]
    others = [
        f"linux-modules-nvidia-570-server-open-{first}",
        f"linux-modules-nvidia-580-server-{first}",
        f"linux-objects-nvidia-580-server-{first}",
        "nvidia-dkms-580-server-open",
    ]
    storage = f"linux-modules-nvidia-fs-{later}"
    assert _driver_packages.leaving([*same, *others, storage], names, 580) == sorted(others)
    built = ["nvidia-dkms-580-server-open"]
    assert _driver_packages.leaving([*names, *same, *built], built, 580) == sorted([*names, *same])


MODULES = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
SHOWN = f"""\
Package: {MODULES}
Architecture: amd64
Version: 6.8.0-60.63+2
Depends: linux-image-6.8.0-60-generic | linux-image-unsigned-6.8.0-60-generic, linux-signatures-nvidia-6.8.0-60-generic\
 (= 6.8.0-60.63+2), nvidia-kernel-common-580-server (<= 580.105.08-1), nvidia-kernel-common-580-server (>= 580.105.08)
Description: Linux kernel nvidia modules for version 6.8.0-60
 Depends: on what a person wants to read

Package: {MODULES}
Version: 6.8.0-60.63
Depends: nvidia-kernel-common-580-server (<= 580.95.05-1), nvidia-kernel-common-580-server (>= 580.95.05)

Package: linux-modules-nvidia-fs-6.8.0-60-generic
Version: 6.8.0-60.63
Depends: linux-image-6.8.0-60-generic
"""
BUILT = {MODULES: {"6.8.0-60.63+2": "580.105.08", "6.8.0-60.63": "580.95.05"}}


def test_the_driver_that_a_prebuilt_module_was_built_for():
    """The form of the dependency is that of linux-modules-nvidia-470 in linuxmint/mintdrivers#71."""
    assert _driver_packages.drivers_of_modules(SHOWN) == BUILT
    assert _driver_packages.drivers_of_modules("") == {}


def test_prebuilt_modules_decide_with_the_others():
    user = "libnvidia-compute-580-server"
    names = [MODULES, user]
    available = {user: ["580.105.08-0ubuntu1", "580.95.05-0ubuntu1"], MODULES: ["6.8.0-60.63"]}
    assert _driver_packages.choose_version(ARCHIVE, names, available, BUILT, 580) == "580.95.05"
    both = dict(available, **{MODULES: ["6.8.0-60.63+2", "6.8.0-60.63"]})
    assert _driver_packages.choose_version(ARCHIVE, names, both, BUILT, 580) == "580.105.08"
    exact = _driver_packages.exact_packages(ARCHIVE, names, both, BUILT, "580.95.05")
    assert exact == {MODULES: "6.8.0-60.63", user: "580.95.05-0ubuntu1"}
    newer = dict(available, **{MODULES: ["6.8.0-60.63+2"]})
    with pytest.raises(DriverError, match=r"at 580\.95\.05, found only 580\.105\.08"):
        _driver_packages.choose_version(ARCHIVE, names, newer, BUILT, 580, "580.95.05")
    apart = dict(newer, **{user: ["580.95.05-0ubuntu1"]})
    with pytest.raises(DriverError, match=r"no version that all of them have .*open-6\.8\.0-60-generic: 580\.105\.08"):
        _driver_packages.choose_version(ARCHIVE, names, apart, BUILT, 580)
    unknown = _driver_packages.choose_version(ARCHIVE, names, newer, {}, 580, "580.95.05")
    assert unknown == "580.95.05", "a module that does not say it is left to apt"
