# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. The way back: the set of packages that the newest change replaced, on this host of today. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver, _driver_packages, _driver_state
from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_checks as checks
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError


def _remembered(info):
    """Return the set of packages to go back to. Raises DriverError when there is none.

    When the way back was done, run again it leads nowhere else. A change that was interrupted is the newest: what
    served before it is its way back.
    """
    current = info["record"].get("current") or {}
    found = checks.open_change(info) or (current if current.get("back") else info["record"].get("previous")) or {}
    if not found.get("packages"):
        raise DriverError(
            "Expected a driver that was replaced on this host, found none remembered: nvidia_driver_state absent"
            " removes the driver, nvidia_driver_version installs another."
        )
    return found


def _boards_refuse(info, version, flavour):
    """Return why this driver does not serve the boards of today, None when it does: boards are exchanged, too."""
    knows = not version or _driver.branch_problem(_driver.branch_of(version), info["boards"]) is None
    try:
        _driver.flavour_for(info["boards"], flavour or "auto")
    except DriverError:
        knows = False
    if knows:
        return None
    what = ", ".join(sorted({f"{one['device']} at {one['address']}" for one in info["boards"]})[:4])
    driver = f"{version or 'no known version'} ({flavour or 'no kernel modules'})"
    return (
        f"Expected boards that the driver of before, {driver}, knows, found {what}:"
        " set nvidia_driver_version to a branch that does."
    )


def _forward(version=None):
    """Return how to get another driver than that of before, which no nvidia_driver_version chooses."""
    return f"set nvidia_driver_state to present and nvidia_driver_version to {version or 'one that is there'}"


def _modules(info, previous):
    """Return (name -> version of prebuilt modules that the kernels of today need, why some are missing).

    The set of before has those of the kernel that ran then. A version that is None is not known yet.
    """
    kernels = [info["kernel"], *([info["next_kernel"]["release"]] if info["next_kernel"] else [])]
    found, missing = {}, []
    for name, kernel in _driver_packages.modules_for(previous["packages"], kernels).items():
        served, here = previous["packages"].get(name), info["packages"].get(name)
        if here and here == served:
            found[name] = here
        elif info["available"] is None:
            found[name] = None
        else:
            built, version = info["module_drivers"].get(name, {}), previous["version"]
            there = info["available"].get(name, [])
            fitting = [one for one in there if _driver_packages.is_built_for(version, one, built)]
            found[name] = served if served in fitting else next(iter(fitting), None)
            if not fitting:
                missing.append(
                    f"Expected modules of the driver {version} for the kernel {kernel}, found no package {name} with"
                    f" them: boot a kernel that has them, or {_forward(_driver_packages.newest_driver(there, built))}."
                )
    return found, missing


def _left_out(previous, kept):
    """Return a notice on metapackages of before, which would bring modules of the newest kernel: one or none."""
    names = sorted(name for name in previous["packages"] if _driver_packages.follows_kernels(name) and name not in kept)
    if not names:
        return []
    return [
        f"{', '.join(names[:6])} does not come back: it brings modules of the newest kernel. Those of the kernels of"
        " this host come by themselves, and those of another one by another run."
    ]


def _lost(info, packages):
    """Return parts that are neither on the host nor in a repository any more."""
    return [
        f"{name} {version}"
        for name, version in sorted(packages.items())
        if info["packages"].get(name) != version and version not in info["available"].get(name, [])
    ]


def _ask_or_refuse(result, info, wanted, previous, packages):
    """Return (a plan that ends here or None, headers that come along). Raises DriverError."""
    # What was built on the host is built once more, with the same needs.
    flavour = _driver_state.installed_flavour(previous["packages"])
    build = "prebuilt" if _driver_state.has_prebuilt(previous["packages"]) else "dkms"
    needs = dict(wanted, kernel_modules=flavour is not None, kernel_build=build)
    headers, missing = checks.headers(info, needs)
    boards = _boards_refuse(info, previous["version"], flavour)
    found = [checks.runfile(info), boards, checks.secure_boot(info, needs), *missing]
    refusals = [one for one in [*found, *result["notices"]] if one]
    if refusals:
        return dict(result, action="refuse", reason=refusals[0], refusals=refusals, notices=[]), {}
    if info["available"] is None:
        return dict(result, action="ask", query=sorted({*packages, *headers.values()})), {}
    lost = _lost(info, {name: one for name, one in packages.items() if not _driver_packages.is_for_kernel(name)})
    if lost:
        raise DriverError(
            f"Expected the packages that served before, found no {', '.join(lost[:6])} in the repository any more:"
            f" {_forward()}."
        )
    return None, headers


def back(info, wanted):
    """Return what a plan for the way back has that an empty one has not. Raises DriverError.

    Where the way back was done, nothing but the modules of another kernel is still to come.
    """
    previous = _remembered(info)
    installed = _driver_packages.parts(info["packages"])
    stable = {name: one for name, one in previous["packages"].items() if not _driver_packages.is_for_kernel(name)}
    modules, missing = _modules(info, previous)
    # Modules of before for kernels that may still be booted.
    kept = {name: one for name, one in previous["packages"].items() if installed.get(name) == one}
    packages, headers = {**kept, **stable, **modules}, {}
    gone = sorted({*installed, *info["unfinished"]} - set(packages))
    flavour = _driver_state.installed_flavour(previous["packages"])
    result = {"version": previous["version"], "kernel_module": flavour, "notices": missing}
    if gone or any(installed.get(name) != version for name, version in stable.items()):
        ends, headers = _ask_or_refuse(result, info, wanted, previous, packages)
        if ends:
            return ends
    elif info["available"] is None and None in modules.values():
        return dict(result, action="ask", query=sorted(name for name, version in modules.items() if version is None))
    own = [name for name, version in previous["packages"].items() if _driver.upstream(version) != previous["version"]]
    there = {name: version for name, version in packages.items() if version is not None}
    return dict(
        result,
        action="install",
        target=dict(there, **dict.fromkeys(headers)),
        remove=gone,
        own_version=sorted(own),
        fabric_manager=any("fabric" in name for name in previous["packages"]),
        notices=[*missing, *_left_out(previous, kept)],
        beside=modules,
    )
