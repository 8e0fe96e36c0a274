# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. What a plan asks before it moves anything: may it, and what must be there beside it. Pure.

``info``: of driver_info; ``wanted``: the variables of the role without their prefix. Sentences are for people.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver, _driver_packages, _driver_state
from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError, order


def in_use(info, wanted, moves, boots):
    """Return why the driver must not be replaced, or the host not be booted, now; None when it may."""
    if not (moves or boots) or wanted["allow_in_use"] or not (info["users"] or info["servers"]):
        return None
    held = [f"{one['name']} ({one['pid']})" for one in info["users"][:4]] + info["servers"]
    what = "a driver that nobody uses" if moves else "nobody on a host that is to boot again"
    way_out = "stop it" if moves else "stop it, set nvidia_driver_reboot_ok to false"
    return (
        f"Expected {what}, found {', '.join(held)}: {way_out}, or set nvidia_driver_allow_in_use, with"
        " which the playbook gpufleet.sglang.driver stops the servers and proves them afterwards."
    )


def _fits(flavour, info, wanted):
    """Return whether a flavour is one that may serve here: the wanted one, or any that knows the boards."""
    if wanted["kernel_module"] not in ("auto", flavour):
        return False
    try:
        _driver.flavour_for(info["boards"], flavour)
    except DriverError:
        return False
    return True


def open_change(info):
    """Return the set of packages before a change that was interrupted half way, None without one.

    A change that ended before its first package moved is none.
    """
    before = info["record"].get("open")
    moved = before and (before["packages"] != _driver_packages.parts(info["packages"]) or info["unfinished"])
    return before if moved else None


def managed(info):
    """Return whether the driver that is there came from here, also when that run did not end."""
    return bool(info["record"].get("current") or open_change(info))


def other_source(info, wanted):
    """Return whether the role's driver came from packages of another kind; a mirror of NVIDIA's has the same ones."""
    kinds = [
        "nvidia" if one == "local" else one
        for one in ((info["record"].get("current") or {}).get("source", wanted["source"]), wanted["source"])
    ]
    return kinds[0] != kinds[1]


def _now_and_after_a_boot(info, wanted):
    """Return (versions, flavours) of the driver that is loaded and of the installed one, those that are known.

    Packages beside a driver of the .run installer do not tell what a boot loads, and libraries alone, which lie beside
    a driver of a container, do not either.
    """
    versions, flavours = [info["loaded"]], [info["loaded_flavour"]]
    libraries = wanted["kernel_modules"] and not info["versions"]["kernel_module"]
    if not (info["loaded"] and (info["runfile"] or libraries)):
        versions += [info["versions"]["kernel_module"], info["versions"]["user_space"]]
        flavours.append(_driver_state.installed_flavour(_driver_packages.parts(info["packages"])))
    return [one for one in versions if one], [one for one in flavours if one]


def existing(info, wanted):
    """Return what serves already and may stay as it is: a sentence, or None.

    Libraries that some tool brought along drive no board: a kernel module belongs to it. What the next boot brings
    counts as what is loaded does.
    """
    version = info["loaded"] or info["versions"]["user_space"]
    if not wanted["keep_existing"] or managed(info) or not version:
        return None
    if wanted["kernel_modules"] and not (info["loaded"] or info["versions"]["kernel_module"]):
        return None
    branch, exact = _driver.wanted_version(wanted["min_version"], "nvidia_driver_min_version")
    versions, flavours = _now_and_after_a_boot(info, wanted)
    if any(order(one) < order(exact or str(branch)) for one in versions):
        return None
    if not all(_fits(one, info, wanted) for one in flavours):
        return None
    return f"The driver {version} was there before, is at least {wanted['min_version']}, and is left as it is."


def secure_boot(info, wanted):
    """Return why Secure Boot would not load the modules, with ways out that this distribution has; None when it would.

    The key does not exist before something is built or it is made: on a bare host it is made first.
    """
    built_here = wanted["kernel_modules"] and wanted["kernel_build"] == "dkms"
    if not info["secure_boot"] or info["mok_enrolled"] or not built_here:
        return None
    distribution = info["os"]["distribution"]
    key = next(row for row in tables.SIGNING_KEYS if row.distribution == distribution)
    ways = [
        f"make one and enrol it (install dkms, {key.command}, mokutil --import {key.path}, then a person at the"
        " console)"
    ]
    if any(row.distribution == distribution and row.open_prebuilt for row in tables.LAYOUTS):
        ways.append(
            "use signed prebuilt modules (nvidia_driver_source: distribution, nvidia_driver_kernel_build: prebuilt)"
        )
    return (
        "Expected modules that Secure Boot accepts, found it on and no enrolled key for modules built on the host:"
        f" {', '.join(ways)}, or switch it off in the firmware."
    )


def unsigned(info, wanted):
    """Return why modules that are installed and not loaded load after no boot either, None when nothing says so.

    Secure Boot may be switched on, or the key lost, long after the modules came.
    """
    if info["loaded"] or not info["versions"]["kernel_module"]:
        return None
    parts = _driver_packages.parts(info["packages"])
    # What was built elsewhere (Ubuntu's prebuilt modules, a precompiled kmod-nvidia-open) was signed elsewhere.
    if _driver_state.has_prebuilt(parts) or not any("dkms" in name for name in parts):
        return None
    return secure_boot(info, dict(wanted, kernel_build="dkms"))


def runfile(info):
    """Return why a driver of the .run installer is in the way, None without one."""
    if not info["runfile"]:
        return None
    return (
        "Expected a driver that packages brought or none, found one of NVIDIA's .run installer, whose files would stay"
        " under those of packages: stop what uses it and run nvidia-uninstall --silent on the host."
    )


def hold_package(info, wanted):
    name = tables.HOLD_PACKAGES.get(info["os"]["distribution"])
    return [name] if name and wanted["hold"] else []


def headers(info, wanted):
    """Return ({what is installed: its package's name} for the headers that the modules need, why some are missing)."""
    packages, missing = {}, []
    if wanted["kernel_build"] == "prebuilt" or not wanted["kernel_modules"]:
        return packages, missing
    distribution, architecture = info["os"]["distribution"], info["os"]["architecture"]
    later = info["next_kernel"] or {"release": None, "headers": True}
    for release, there, which, way_out in (
        (info["kernel"], info["headers"], "the running kernel {0}", "boot a kernel whose headers the distribution has"),
        (later["release"], later["headers"], "the kernel {0}, which boots next", "remove it, or boot it"),
    ):
        if there:
            continue
        name, spec = _driver_packages.headers_of(distribution, release)
        available = info["available"]
        if available is None or _driver_packages.has_headers(distribution, release, architecture, available):
            packages[spec] = name
        else:
            missing.append(
                f"Expected the headers of {which.format(release)}, found neither them nor a package {spec}: {way_out},"
                " then run again."
            )
    return packages, missing


def matched_headers(info, wanted):
    """Return (names to ask about, {what is installed: its name}) so that DKMS takes no kernel along that nobody runs.

    One is enough, of the kernel that runs or that boots next; where one is installed, DKMS has what it needs.
    """
    system, releases = info["os"], [info["kernel"], *([info["next_kernel"]["release"]] if info["next_kernel"] else [])]
    rows = {one: _driver_packages.matched_headers(system["distribution"], one) for one in releases}
    rows = {release: row for release, row in rows.items() if row}
    if wanted["kernel_build"] == "prebuilt" or not wanted["kernel_modules"]:
        rows = {}
    names = sorted({name for row in rows.values() for name in row[:2]})
    for release, (name, kernel, spec) in rows.items() if info["available"] is not None else ():
        there = kernel in info["packages"] and name not in info["packages"]
        architecture, available = system["architecture"], info["available"]
        if there and _driver_packages.has_headers("rhel", release, architecture, available, name):
            return names, {spec: name}
    return names, {}


def prebuilt_for_next(info, wanted, layout, branch, flavour, version=None):
    """Return (prebuilt modules of the kernel that boots next, why they are missing). ``version``: one that stays."""
    later = info["next_kernel"]
    if wanted["kernel_build"] != "prebuilt" or not wanted["kernel_modules"] or not later:
        return [], []
    name = _driver_packages.kernel_package(layout, branch, flavour, "prebuilt", later["release"])
    if name in info["packages"] or info["available"] is None:
        return [name], []
    found, built = info["available"].get(name, []), info["module_drivers"]
    if any(version is None or _driver_packages.serves(layout, name, one, version, built) for one in found):
        return [name], []
    what, way_out = f"no package {name}", "or boot it"
    if found:
        newest = _driver_packages.newest_driver(found, built.get(name, {}))
        what, way_out = f"{what} of the driver {version}", f"or set nvidia_driver_version to {newest}"
    return [], [
        f"Expected modules for the kernel {later['release']}, which boots next, found {what}: remove that kernel,"
        f" {way_out}, then run again."
    ]
