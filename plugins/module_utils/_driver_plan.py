# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. What would change on a host, and why not: the plan, as data. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _driver,
    _driver_back,
    _driver_packages,
    _driver_state,
    _driver_tables,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_checks as checks
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError


def _empty(action, reason):
    return {
        "action": action,  # skip | keep | ask | install | remove | refuse
        "reason": reason,
        "refusals": [],
        "version": None,
        "kernel_module": None,
        "packages": [],
        "remove": [],
        "query": [],
        "own_version": [],
        "changes": [],
        "changes_driver": False,  # and not only what may come beside a driver that is in use
        "reboot": False,  # whether one is due once the changes are done
        "fabric_manager": False,
        "nvlsm": False,
        "managed": False,  # whether the driver is one of this role, or becomes one
        "notices": [],  # what will bite later
        "lines": [],
    }


@dataclass(frozen=True)
class _Wish:
    """What is wanted of a driver here, and what of it is there.

    ``names``: its packages; ``modules``: those for the kernel that boots next; ``beside``: what comes beside a driver
    that stays, the modules among it, name -> name in the repository; ``installed``: parts that are there; ``staying``:
    those that can stay; ``gone``: the others, also unfinished ones; ``lacking``: those of ``names`` that are not there;
    ``current``: the driver's version now, None without one; ``stays``: whether it is kept; ``brings_module``: whether a
    kernel module comes; ``also_asked``: what the repository is asked about for it; ``missing``: sentences on what
    nobody has for a kernel.
    """

    layout: _driver_tables.Layout
    branch: int
    exact: str | None
    flavour: str
    fabric: bool
    names: tuple
    modules: tuple
    beside: dict
    installed: dict
    staying: dict
    gone: tuple
    lacking: tuple
    current: str | None
    stays: bool
    brings_module: bool
    also_asked: tuple
    missing: tuple


def _parts_wanted(info, wanted):
    """Return (layout, branch, exact, flavour, names, fabric manager or not). Raises DriverError."""
    branch, exact = _driver.wanted_version(wanted["version"])
    flavour = _driver.flavour_for(info["boards"], wanted["kernel_module"])
    problem = _driver.branch_problem(branch, info["boards"])
    if problem:
        raise DriverError(problem)
    layout = _driver.layout_for(wanted["source"], info["os"]["distribution"], branch)
    build = wanted["kernel_build"]
    kernel_module = _driver_packages.kernel_package(layout, branch, flavour, build, info["kernel"])
    fabric = info["needs_fabric"] if wanted["fabric_manager"] == "auto" else wanted["fabric_manager"] == "true"
    names = _driver_packages.components(
        layout, branch, kernel_module, wanted["persistence"], fabric, fabric and info["needs_nvlsm"]
    )
    if not wanted["kernel_modules"]:
        names.remove(kernel_module)
    return layout, branch, exact, flavour, names, fabric


def _wish(info, wanted):
    """Return the _Wish of a host. Raises DriverError."""
    layout, branch, exact, flavour, names, fabric = _parts_wanted(info, wanted)
    installed = _driver_packages.parts(info["packages"])
    current = info["versions"]["kernel_module"] or info["versions"]["user_space"]
    gone = _driver_packages.leaving({**info["unfinished"], **installed}, names, branch, current)
    staying = {name: version for name, version in installed.items() if name not in gone}
    lacking = tuple(name for name in names if name not in staying)
    # A change that died half way has no version to keep yet, and somebody else's driver none that the role promised.
    ours = checks.managed(info) and not checks.open_change(info) and not checks.other_source(info, wanted)
    stays = _driver_packages.agree(layout, staying, branch, exact, current) and (ours or not lacking)
    headers, missing = checks.headers(info, wanted)
    version = current if stays else None
    modules, no_modules = checks.prebuilt_for_next(info, wanted, layout, branch, flavour, version)
    # The kernel module is the first of the names.
    brings_module = wanted["kernel_modules"] and (not stays or names[0] in lacking)
    also_asked, matched = checks.matched_headers(info, wanted) if brings_module else ((), {})
    headers = {**headers, **matched}
    # Of one that is also a further package the version is known: dnf would take the newest, and its kernel.
    extra = [name for name in wanted["extra_packages"] if name not in matched.values()]
    others = [*extra, *checks.hold_package(info, wanted), *headers, *modules]
    return _Wish(
        layout=layout,
        branch=branch,
        exact=exact,
        flavour=flavour,
        fabric=fabric,
        names=tuple(names),
        modules=tuple(modules),
        beside={name: headers.get(name, name) for name in others},
        installed=installed,
        staying=staying,
        gone=tuple(gone),
        lacking=lacking,
        current=current,
        stays=stays,
        brings_module=brings_module,
        also_asked=tuple(also_asked),
        missing=(*missing, *no_modules),
    )


def plan(info, wanted):
    """Return what is to be done. ``info``: of driver_info; ``wanted``: the variables of the role without their prefix.

    A refusal is data: action refuse and the sentences. Action ask: the versions of ``query`` must be known first.
    """
    try:
        if wanted["state"] == "absent":
            return _finished(_removal(info), info, wanted)
        if wanted["state"] == "previous":
            return _finished(dict(_empty("ask", ""), **_driver_back.back(info, wanted)), info, wanted)
        if not info["boards"] and not wanted["without_gpu"]:
            return _empty("skip", "No NVIDIA board is on the PCI bus: nothing to do (nvidia_driver_without_gpu).")
        existing = checks.existing(info, wanted)
        if existing:
            return _kept(existing, info, wanted)
        return _finished(_installation(info, wanted), info, wanted)
    except DriverError as error:
        return dict(_empty("refuse", str(error)), refusals=[str(error)])


def _kept(reason, info, wanted):
    """The driver that was there before stays; a reboot that is due for it is guarded as any other."""
    boots = wanted["reboot_ok"] and info["reboot_required"]
    unsigned = checks.unsigned(info, wanted)
    refusal = checks.in_use(info, wanted, False, boots) or (unsigned if boots else None)
    if refusal:
        return dict(_empty("refuse", refusal), refusals=[refusal])
    version = info["loaded"] or info["versions"]["user_space"]
    branch, exact = _driver.wanted_version(wanted["version"])
    notices = ["Its packages are not held: whoever installed it moves it.", *filter(None, [unsigned])]
    if version != exact if exact else _driver.branch_of(version) != branch:
        notices.append(f"It is not the wanted {wanted['version']}, which nvidia_driver_keep_existing: false brings.")
    return dict(_empty("keep", reason), notices=notices, lines=[reason, *notices])


def _installation(info, wanted):
    """What is to be installed. The driver of the role stays at its version, whatever the repository has by now."""
    wish = _wish(info, wanted)
    result = _empty("ask", "")
    result.update(
        kernel_module=wish.flavour,
        fabric_manager=wish.fabric,
        nvlsm=wish.fabric and info["needs_nvlsm"],
        own_version=sorted(wish.layout.own),  # also of what comes along with the parts
    )
    return (_addition if wish.stays else _move)(result, info, wanted, wish)


def _refused(result, refusals):
    return dict(result, action="refuse", reason=refusals[0], refusals=refusals)


def _addition(result, info, wanted, wish):
    """The driver stays as it is. What is not there comes at its version; nobody is asked for the rest."""
    absent = [name for name in wish.beside if name not in info["packages"]]
    result["version"] = wish.current
    target = {**dict.fromkeys(wish.beside), **wish.staying}
    unsigned = checks.unsigned(info, wanted)
    if unsigned and wanted["reboot_ok"] and info["reboot_required"]:
        raise DriverError(unsigned)
    result["notices"] = [*wish.missing, *filter(None, [unsigned])]
    if not (wish.lacking or absent or wish.gone):
        return dict(result, action="install", target=target)
    for_new = [checks.secure_boot(info, wanted), *wish.missing] if wish.brings_module else []
    refusals = [one for one in (checks.runfile(info), *for_new) if one]
    if refusals:
        return _refused(result, refusals)
    asked = {*wish.lacking, *wish.also_asked, *(wish.beside[name] for name in absent)}
    if info["available"] is None and asked:
        return dict(result, query=sorted(asked))
    layout, available, built = wish.layout, info["available"] or {}, info["module_drivers"]
    new = [*wish.lacking, *(name for name in wish.modules if name in absent)]
    target.update(_driver_packages.beside(layout, absent, available, wish.current))
    target.update(_driver_packages.exact_packages(layout, new, available, built, wish.current))
    return dict(result, action="install", target=target, remove=list(wish.gone), beside=wish.beside)


def _without_heirs(names, version):
    return (
        f"Expected what leaves with its branch to come back at {version}, found nothing in the repository for"
        f" {', '.join(names[:6])}: what uses it is left without, unless you choose another nvidia_driver_version."
    )


def _move(result, info, wanted, wish):
    """Another version, or a first one: every part goes there."""
    layout, names, installed = wish.layout, wish.names, wish.installed
    available, built, all_names = info["available"], info["module_drivers"], [*wish.names, *wish.modules]
    refusals = [one for one in (checks.runfile(info), checks.secure_boot(info, wanted), *wish.missing) if one]
    if refusals:
        return _refused(result, refusals)
    leaving = [name for name in wish.gone if name in installed]
    following = _driver_packages.heirs(leaving, names, wish.branch)
    if available is None:
        heirs = [name for after in following.values() for name in after]
        asked = {*names, *installed, *wish.beside.values(), *wish.also_asked, *heirs}
        return dict(result, query=sorted(asked))
    version = _driver_packages.choose_version(
        layout, all_names, available, built, wish.branch, wish.exact, wish.current
    )
    gone = _driver_packages.leaving({**info["unfinished"], **installed}, names, wish.branch, version)
    target = _driver_packages.exact_packages(layout, all_names, available, built, version)
    for name in all_names:
        own, here = _driver_packages.has_own_version(layout, name), installed.get(name)
        if own and here in available[name] and _driver_packages.serves(layout, name, here, version, built):
            target[name] = here
    target.update(_driver_packages.followers(layout, installed, names, available, version, gone))
    heirs, lost = _driver_packages.inherited(layout, following, available, version)
    target = {**_driver_packages.beside(layout, wish.beside, available, version), **heirs, **target}
    notices = [_without_heirs(lost, version)] if lost else []
    return dict(
        result,
        action="install",
        version=version,
        target=target,
        remove=gone,
        beside=wish.beside,
        notices=notices,
    )


def _removal(info):
    unpackaged = checks.runfile(info)
    if unpackaged:
        raise DriverError(unpackaged)
    installed = _driver_packages.parts(info["packages"])
    return dict(_empty("remove", ""), target={}, remove=sorted({*installed, *info["unfinished"]}))


def _finished(result, info, wanted):
    """Return the plan with what changes, the guard, and the lines that a person reads."""
    target, beside = result.pop("target", None), result.pop("beside", ())
    if target is None or result["action"] == "refuse":
        return result
    before = info["packages"]
    changes = [
        {"name": name, "from": before.get(name), "to": to}
        for name, to in sorted(target.items())
        if (to is not None and before.get(name) != to) or (to is None and name not in before)
    ]
    there = {**info["unfinished"], **before}
    changes += [{"name": name, "from": there[name], "to": None} for name in result["remove"] if name in there]
    serves = bool(_driver_packages.parts(before)) or bool(info["loaded"])
    # Headers, and what else comes beside it, touch no driver that is in use.
    moves = any(one["from"] or (one["to"] and one["name"] not in beside) for one in changes)
    if result["action"] == "remove":  # purged, which touches no driver that is in use
        changes += [{"name": name, "from": one, "to": None} for name, one in sorted(info["leftovers"].items())]
    result["managed"] = result["action"] == "install" or checks.managed(info)
    result["reboot"] = moves and (_not_what_is_loaded(info, result, target) or bool(info["rivals"]))
    boots = wanted["reboot_ok"] and (result["reboot"] or info["reboot_required"])
    guarded = checks.in_use(info, wanted, moves and serves, boots)
    result["packages"] = [{"name": name, "version": version} for name, version in sorted(target.items())]
    result.update(
        changes=changes,
        changes_driver=moves,
        lines=_lines(result, info, changes, wanted),
    )
    if guarded:
        return dict(result, action="refuse", reason=guarded, refusals=[guarded])
    if not changes and result["action"] == "install":
        reason = f"The driver is {result['version']}, as wanted."
        due = ["reboot: due", *info["reboot_reasons"]] if info["reboot_required"] else []
        return dict(result, action="keep", reason=reason, lines=[reason, *due, *result["notices"]])
    return dict(result, reason=result["lines"][0])


def _not_what_is_loaded(info, result, target):
    """Return whether the kernel runs another driver than the one that is to be installed, or another flavour of it."""
    flavours = (info["loaded_flavour"], _driver_state.installed_flavour(target))
    other_flavour = None not in flavours and flavours[0] != flavours[1]
    return bool(info["loaded"]) and (info["loaded"] != result["version"] or other_flavour)


def _lines(result, info, changes, wanted):
    old = info["versions"]["kernel_module"] or info["versions"]["user_space"] or info["loaded"] or "none"
    new = result["version"] or "none"
    what = ", ".join(one for one in (result["kernel_module"], wanted["kernel_build"], wanted["source"]) if one)
    lines = [f"driver {old} -> {new}" + (f" ({what})" if result["action"] == "install" else "")]
    for one in changes:
        to = one["to"] or ("newest" if one["from"] is None else "-")
        lines.append(f"  {one['name']} {one['from'] or '-'} -> {to}")
    if result["action"] == "install":
        lines.append("hold: " + ("every part" if wanted["hold"] else "nothing"))
        if _driver_state.has_prebuilt(one["name"] for one in result["packages"]) and not wanted["allow_unattended"]:
            lines.append("kernels: not by unattended upgrades, which know no prebuilt modules: run the role for them")
    if result["reboot"] or info["reboot_required"]:
        boot = "due afterwards" if result["reboot"] else "due"
    else:
        boot = "not needed" if info["loaded"] or result["action"] == "remove" else "if the module does not load"
    lines.append("reboot: " + boot)
    return lines + result["notices"]
