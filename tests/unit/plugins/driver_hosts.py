# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are only data, and what the role was asked to do on them: for the tests of the driver's plan."""

from __future__ import annotations

import copy

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_plan

WANTED = {
    "state": "present",
    "version": "580",
    "keep_existing": True,
    "min_version": "580.65.06",
    "without_gpu": False,
    "source": "nvidia",
    "kernel_module": "auto",
    "kernel_build": "dkms",
    "kernel_modules": True,
    "extra_packages": [],
    "hold": True,
    "fabric_manager": "auto",
    "persistence": True,
    "allow_in_use": False,
    "allow_unattended": False,
    "reboot_ok": False,
}
HOPPER = {"address": "0000:01:00.0", "device": "10de:2330", "generation": "hopper"}
NAMES = ["libcuda1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"]
VERSIONS = ["580.105.08-1", "580.95.05-1", "570.195.03-1"]


def host(**changes):
    """A bare Debian 12 with one H100 and the headers of its kernel."""
    info = {
        "os": {"distribution": "debian", "major": "12", "architecture": "x86_64"},
        "kernel": "6.1.0-40-amd64",
        "headers": True,
        "next_kernel": None,
        "boards": [HOPPER],
        "needs_fabric": False,
        "needs_nvlsm": False,
        "loaded": None,
        "loaded_flavour": None,
        "packages": {},
        "unfinished": {},
        "leftovers": {},
        "holds": [],
        "versions": {"kernel_module": None, "user_space": None, "fabric_manager": None},
        "rivals": [],
        "runfile": False,
        "secure_boot": False,
        "mok_enrolled": False,
        "users": [],
        "servers": [],
        "reboot_required": False,
        "reboot_reasons": [],
        "record": {},
        "available": {name: list(VERSIONS) for name in NAMES},
        "module_drivers": {},
    }
    info.update(changes)
    return info


def installed(version="580.95.05", **changes):
    """The same with a driver of the role that serves."""
    packages = dict.fromkeys(NAMES, version + "-1")
    found = {"kernel_module": version, "user_space": version, "fabric_manager": None}
    record = {"current": {"version": version, "packages": packages, "source": "nvidia"}}
    return host(
        **{
            "packages": packages,
            "versions": found,
            "loaded": version,
            "loaded_flavour": "open",
            "record": record,
            **changes,
        }
    )


def plan(info, **changes):
    before = copy.deepcopy(info)
    result = _driver_plan.plan(info, dict(WANTED, **changes))
    assert info == before, "what was found is not changed"
    return result


def refusal(info, **changes):
    result = plan(info, **changes)
    assert result["action"] == "refuse"
    assert result["packages"] == [] or "found sglang" in result["reason"] or "uses" in result["reason"]
    return result["reason"]


UBUNTU = {"distribution": "ubuntu", "major": "24.04", "architecture": "x86_64"}
ARCHIVE = {"source": "distribution", "kernel_build": "prebuilt"}


def prebuilt(version="580.95.05", kernel="6.8.0-60-generic", flavour="open", **changes):
    """Ubuntu's own driver with signed modules for one kernel; its archive keeps the newest version only."""
    branch, word = version[:3], "-open" if flavour == "open" else ""
    user = [f"{name}-{branch}-server" for name in ("libnvidia-cfg1", "libnvidia-compute", "nvidia-compute-utils")]
    packages = dict.fromkeys([*user, f"nvidia-utils-{branch}-server"], version + "-0ubuntu1")
    packages[f"linux-modules-nvidia-{branch}-server{word}-{kernel}"] = kernel[:8] + ".60+1"
    if flavour == "proprietary":
        packages[f"linux-objects-nvidia-{branch}-server-{kernel}"] = kernel[:8] + ".60+1"
    found = {"os": UBUNTU, "kernel": kernel, "packages": packages, "loaded_flavour": flavour, "available": None}
    record = {"current": {"version": version, "packages": packages, "source": "distribution"}}
    return installed(version, **{**found, "record": record, **changes})
