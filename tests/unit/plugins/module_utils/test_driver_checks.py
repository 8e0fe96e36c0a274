# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan asks before it moves anything: _driver_checks, by the plans that come of it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.tests.unit.plugins.driver_hosts import host, installed, plan, refusal


@pytest.mark.parametrize("there", [host, installed], ids=["nothing else", "packages too"])
def test_a_driver_of_the_installer_is_not_removed_with_a_word_only(there):
    info = there(runfile=True, loaded="580.95.05", loaded_flavour="open")
    assert "run nvidia-uninstall --silent on the host" in refusal(info, state="absent")


def there_before(version="580.95.05", **changes):
    """A driver that serves, and that the role did not bring."""
    return installed(version, record={}, **changes)


NO_MODULE = {"kernel_module": None, "user_space": "580.95.05", "fabric_manager": None}


def test_libraries_alone_are_no_driver():
    libraries = host(packages={"libcuda1": "580.95.05-1"}, versions=NO_MODULE)
    result = plan(libraries)
    assert (result["action"], result["managed"]) == ("install", True)
    assert {"name": "nvidia-kernel-open-dkms", "from": None, "to": "580.95.05-1"} in result["changes"]
    # User space is all that is wanted where another machine's kernel has the module.
    assert plan(libraries, kernel_modules=False)["action"] == "keep"
    module = dict(NO_MODULE, kernel_module="580.95.05")
    assert plan(there_before(loaded=None, loaded_flavour=None, versions=module))["action"] == "keep"


def test_a_driver_of_before_is_judged_by_what_the_next_boot_brings_too():
    down = {"kernel_module": "550.163.01", "user_space": "550.163.01", "fabric_manager": None}
    packages = dict.fromkeys(["libcuda1", "nvidia-kernel-open-dkms"], "550.163.01-1")
    boot_pending = there_before(packages=packages, versions=down, reboot_required=True, reboot_reasons=["x"])
    result = plan(boot_pending, reboot_ok=True)
    assert (result["action"], result["version"]) == ("install", "580.105.08")
    assert plan(boot_pending, min_version="550")["action"] == "keep"
    # Packages of a library beside the installer's driver say nothing of what the boot loads.
    assert plan(dict(boot_pending, runfile=True))["action"] == "keep"


def test_the_modules_that_the_next_boot_brings_must_know_the_boards():
    blackwell = {"address": "0000:01:00.0", "device": "10de:2901", "generation": "blackwell"}
    packages = {"nvidia-kernel-dkms": "580.95.05-1", "libcuda1": "580.95.05-1", "nvidia-driver-cuda": "580.95.05-1"}
    proprietary = there_before(boards=[blackwell], packages=packages)
    result = plan(proprietary)
    assert (result["action"], result["remove"]) == ("install", ["nvidia-kernel-dkms"])


NOT_LOADED = {
    "loaded": None,
    "loaded_flavour": None,
    "reboot_required": True,
    "reboot_reasons": ["The driver 580.95.05 is installed, and not loaded."],
}


@pytest.mark.parametrize("driver", [installed, there_before], ids=["of the role", "there before"])
def test_secure_boot_that_came_later_is_told_and_no_host_is_booted_for_nothing(driver):
    info = driver(secure_boot=True, **NOT_LOADED)
    said = "found it on and no enrolled key"
    result = plan(info)
    assert result["action"] == "keep"
    assert said in result["lines"][-1]
    assert said in refusal(info, reboot_ok=True)
    assert plan(dict(info, mok_enrolled=True), reboot_ok=True)["action"] == "keep"
    loads = driver(secure_boot=True)
    assert not any(said in line for line in plan(loads)["lines"]), "it is loaded: somebody signed it"


def test_an_old_library_beside_the_driver_of_a_container_brings_no_driver():
    """The GPU operator loads it and no package of the host has it; installing one would put two beside each other."""
    versions = dict(NO_MODULE, user_space="535.247.01")
    loaded = {"loaded": "580.95.05", "loaded_flavour": "open", "versions": versions, "available": None}
    assert plan(host(packages={"libnvidia-compute-535": "535.247.01-0ubuntu1"}, **loaded))["action"] == "keep"
    # Where user space is all that is wanted, it is what counts.
    assert plan(host(packages={"libcuda1": "535.247.01-1"}, **loaded), kernel_modules=False)["action"] == "ask"


def test_modules_that_were_built_and_signed_elsewhere_need_no_key_of_this_host():
    name = "kmod-nvidia-open-580.95.05-5.14.0-570.12.1"
    packages = {name: "3:580.95.05-1.el9", "nvidia-driver-cuda": "3:580.95.05-1.el9"}
    system = {"distribution": "rhel", "major": "9", "architecture": "x86_64"}
    info = there_before(os=system, packages=packages, secure_boot=True, rivals=["nouveau"], **NOT_LOADED)
    result = plan(info, reboot_ok=True)
    assert (result["action"], len(result["notices"])) == ("keep", 1), "that it is not held"
