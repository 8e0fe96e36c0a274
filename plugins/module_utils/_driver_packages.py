# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. Which packages make a driver, and at which version all of them exist. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_state
from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError, branch_of, order, upstream

# Built for one kernel, versioned like that kernel.
_FOR_KERNEL = ("linux-modules-nvidia-", "linux-objects-nvidia-")
_KERNEL_IN_NAME = re.compile(r"-\d+\.\d+\.\d+-\d+(?:-[\w-]+)?$")
_BRANCH_IN_NAME = re.compile(r"-(\d{3})(?=-|$)")
_VERSION_IN_NAME = re.compile(r"-(\d{3}\.\d{2,3}(?:\.\d{2,3})?)(?=-|$)")  # nvidia-firmware-580-580.95.05 of Ubuntu


def belongs(name, version):
    """Return whether an installed package is a part of a driver, by its name and by its version."""
    if name == "nvlsm" or is_for_kernel(name):
        return True
    return has_name_of_part(name) and upstream(version) is not None


def has_name_of_part(name):
    """Return whether a package, of whatever version, may be a part of a driver."""
    return "nvidia" in name or name in tables.OTHER_NAMES or name.startswith("cuda-drivers")


def parts(packages):
    """Return those of ``packages`` (name -> version) that make the driver of this host."""
    return {name: version for name, version in sorted(packages.items()) if belongs(name, version)}


def is_one_of(name, patterns):
    """Return whether a name is one of ``patterns``: names, and beginnings of names, which end in a dash."""
    return any(name.startswith(one) if one.endswith("-") else name == one for one in patterns)


def is_kernel(name):
    """Return whether a package is a kernel, which the next boot may take."""
    return is_one_of(name, tables.KERNEL_NAMES)


def headers_of(distribution, release):
    """Return (name of the package with the headers of a kernel, what the package manager is asked to install).

    Debian and Ubuntu have a package for each kernel. In the RHEL family all have one name, and a kernel's release is
    version, release and architecture of its package; a variant (``+64k``, ``+rt``) has a name of its own.
    Source: headers step of NVIDIA's driver installation guide; kernel.spec of CentOS Stream 9.
    """
    if distribution != "rhel":
        return f"linux-headers-{release}", f"linux-headers-{release}"
    plain, _plus, variant = release.partition("+")
    variant = variant or ("uek" if plain.rpartition(".")[0].endswith("uek") else "")
    name = f"kernel-{variant}-devel" if variant else "kernel-devel"
    return name, f"{name}-{plain}"


def matched_headers(distribution, release):
    """Return (package that binds headers to their kernel, that kernel's package, what dnf is asked for), or None.

    dkms needs one of whatever version (``Requires: (kernel-devel-matched if kernel-core)`` and the same for 64k, none
    for rt; dkms.spec of Fedora and EPEL), and one needs the kernel of its own version (kernel.spec of CentOS Stream 9):
    left to itself, dnf takes the newest, and its kernel along.
    """
    name, spec = headers_of(distribution, release)
    if name not in ("kernel-devel", "kernel-64k-devel"):
        return None
    return name + "-matched", name.replace("devel", "core"), spec.replace(name, name + "-matched", 1)


def has_headers(distribution, release, architecture, available, name=None):
    """Return whether a repository has the headers of a kernel, or another package ``name`` that is versioned like it.

    ``available``: name -> versions of packages.
    """
    versions = available.get(name or headers_of(distribution, release)[0], [])
    if distribution != "rhel":
        return bool(versions)
    plain = release.partition("+")[0]
    return any(f"{version.rpartition(':')[2]}.{architecture}" == plain for version in versions)


def has_own_version(layout, name):
    """Return whether the version of this package is not that of the driver."""
    return is_one_of(name, layout.own)


def kernel_package(layout, branch, flavour, build, kernel):
    """Return the name of the package with the kernel module. Raises DriverError when there is none."""
    name = getattr(layout, f"{flavour}_{build}").format(branch=branch, kernel=kernel)
    if not name:
        raise DriverError(
            f"Expected {build} {flavour} kernel modules from {layout.source} for {layout.distribution}, found"
            " none: set nvidia_driver_kernel_build to dkms."
        )
    return name


def components(layout, branch, kernel_module, persistence, fabric, nvlsm):
    """Return the names of the packages that are asked for; what they depend on follows them.

    ``kernel_module``: name from kernel_package(). Raises DriverError for a part that the source does not have.
    """
    names = [kernel_module, *layout.user]
    for wanted, template, what in (
        (persistence, layout.persistence, "persistence daemon"),
        (fabric, layout.fabric, "fabric manager"),
        (nvlsm, layout.nvlsm, "NVLSM"),
    ):
        if wanted and not template:
            raise DriverError(
                f"Expected a {what} for the NVSwitch of this host, found none in nvidia_driver_source {layout.source}:"
                " set it to nvidia."
            )
        if wanted:
            names.append(template)
    return [name.format(branch=branch) for name in names]


_STANZA = re.compile(r"\n[ \t]*\n")
_BUILT_FOR = re.compile(r"nvidia-kernel-common\S* \([<>]?= ?([^\s)]+)\)")


def drivers_of_modules(text):
    """Return name -> {version of the package: driver version that it is built for} of prebuilt modules.

    ``text``: of ``apt-cache show``. A package of Ubuntu is versioned like its kernel, and depends on the user space of
    the one driver version that it was built for: nvidia-kernel-common-470 (<= 470.86-1), (>= 470.86)
    (linuxmint/mintdrivers#71). What does not say it is left out.
    """
    found = {}
    for stanza in _STANZA.split(text):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and not line.startswith(" "))
        drivers = {upstream(one) for one in _BUILT_FOR.findall(fields.get("Depends", ""))} - {None}
        if len(drivers) == 1 and "Package" in fields:
            found.setdefault(fields["Package"], {})[fields.get("Version")] = drivers.pop()
    return found


def serves(layout, name, found, version, built):
    """Return whether a package at its version ``found`` goes with the driver ``version``.

    ``built``: of drivers_of_modules(). What it does not know may serve, the package manager refuses what does not.
    """
    if has_own_version(layout, name):
        return is_built_for(version, found, built.get(name, {}))
    return upstream(found) == version


def is_built_for(version, found, drivers):
    """Return whether the build ``found`` of a prebuilt module may be for a driver. ``drivers``: build -> driver."""
    return drivers.get(found, version) == version


def newest_driver(found, drivers):
    """Return the newest driver that builds of a prebuilt module are for, None where nobody knows.

    ``found``: versions of its package; ``drivers``: version of the package -> driver.
    """
    return max((drivers[one] for one in found if one in drivers), key=order, default=None)


def _shared_versions(layout, names, available, built):
    """Return driver versions at which every package of ``names`` exists, newest first."""
    bound = [name for name in names if not has_own_version(layout, name)]
    sets = [{upstream(one) for one in available.get(name, [])} - {None} for name in bound]
    versions = sorted(set.intersection(*sets), key=order, reverse=True) if sets else []
    modules = [name for name in names if name in built and available.get(name)]
    return [
        version
        for version in versions
        if all(any(serves(layout, name, one, version, built) for one in available[name]) for name in modules)
    ]


def choose_version(layout, names, available, built, branch, exact=None, installed=None):
    """Return the version at which every package exists: the exact one, the installed one, or the newest of the branch.

    ``available``: name -> versions of packages. ``built``: of drivers_of_modules(). ``installed``: the driver's version
    now, kept when it is of the branch. Raises DriverError that says what is there.
    """
    versions = _shared_versions(layout, names, available, built)
    of_branch = [one for one in versions if branch_of(one) == branch]
    if exact in versions or (exact is None and of_branch):
        return exact or (installed if installed in of_branch else of_branch[0])
    wanted, way_out = exact or f"branch {branch}", "set nvidia_driver_version to one that is there"
    missing = [name for name in names if not available.get(name)]
    if missing and not versions:
        found = f"no package {', '.join(missing)} in the repository"
    elif versions:
        found = f"only {', '.join(versions[:8])}"
    else:
        drivers = {
            name: {built.get(name, {}).get(one) or upstream(one) or one for one in available[name]}
            for name in names
            if available.get(name) and (name in built or not has_own_version(layout, name))
        }
        each = (f"{name}: {', '.join(sorted(found, reverse=True)[:4])}" for name, found in drivers.items())
        found = "no version that all of them have (" + "; ".join(each) + ")"
        if _shared_versions(layout, names, available, {}):  # but for the modules of an older kernel
            way_out = "boot the newest kernel, whose modules are for the newest driver"
    raise DriverError(f"Expected {', '.join(names)} at {wanted}, found {found}: {way_out}.")


def agree(layout, installed, branch, exact, current):
    """Return whether the installed parts are what is wanted, all at one version: then no repository is asked for them.

    ``current``: the driver's version now.
    """
    if current is None or (current != exact if exact else branch_of(current) != branch):
        return False
    return all(upstream(one) == current for name, one in installed.items() if not has_own_version(layout, name))


def exact_packages(layout, names, available, built, version):
    """Return name -> full version of each package: at the driver's version, or the newest for those with their own.

    Raises DriverError for a package that does not exist.
    """
    chosen = {}
    for name in names:
        fitting = [one for one in available.get(name, []) if serves(layout, name, one, version, built)]
        if not fitting:
            drivers = built.get(name, {})
            there = [f"{one} for {drivers[one]}" if one in drivers else one for one in available.get(name, [])[:4]]
            raise DriverError(
                f"Expected the package {name} at {version}, found {', '.join(there) or 'none'}: set"
                f" nvidia_driver_version to {newest_driver(available.get(name, []), drivers) or 'one that is there'}."
            )
        chosen[name] = fitting[0]
    return chosen


def beside(layout, names, available, version):
    """Return name -> version, None for any, of what comes beside the driver. A part among it comes at its version.

    Raises DriverError for a part that does not exist at this version.
    """
    bound = [
        name
        for name in names
        if not has_own_version(layout, name) and any(belongs(name, one) for one in available.get(name, []))
    ]
    return {**dict.fromkeys(names), **exact_packages(layout, bound, available, {}, version)}


def followers(layout, installed, names, available, version, leaving):
    """Return name -> full version of parts that are installed besides ``names``: they go to the same version."""
    found = {}
    for name in installed:
        if name in names or name in leaving or has_own_version(layout, name) or is_for_kernel(name):
            continue
        fitting = [one for one in available.get(name, []) if upstream(one) == version]
        if fitting:
            found[name] = fitting[0]
    return found


def is_for_kernel(name):
    """Return whether a package is for one kernel, and versioned like it."""
    return name.startswith(_FOR_KERNEL)


def follows_kernels(name):
    """Return whether a package brings modules of the newest kernel (Ubuntu: linux-modules-nvidia-580-open-generic)."""
    return is_for_kernel(name) and not _KERNEL_IN_NAME.search(name)


def modules_for(packages, kernels):
    """Return {name: kernel} of prebuilt modules of the same kind as those among ``packages``, for other kernels.

    What they are linked from (linux-objects-nvidia) comes with them.
    """
    named = (name for name in packages if _driver_state.has_prebuilt([name]) and not follows_kernels(name))
    kinds = {_without_kernel(name) for name in named}
    return {kind.format(kernel=kernel): kernel for kind in sorted(kinds) for kernel in kernels}


def _without_kernel(name):
    return _KERNEL_IN_NAME.sub("-{kernel}", name) if is_for_kernel(name) else name


def _kind(name):
    """Return a name without its branch and its kernel: modules of one kind for two kernels stand side by side."""
    return _BRANCH_IN_NAME.sub("-000", _without_kernel(name).replace("linux-objects-", "linux-modules-", 1))


def _groups():
    """Return sets of kinds, ``000`` for a branch, of which a host has one at a time."""
    rows = tables.LAYOUTS
    kernel = {
        template
        for row in rows
        for template in (row.open_dkms, row.proprietary_dkms, row.open_prebuilt, row.proprietary_prebuilt)
        if template
    }
    fabric = {row.fabric for row in rows if row.fabric}
    return [{template.replace("{branch}", "000") for template in group} for group in (kernel, fabric)]


def leaving(installed, names, branch, version=None):
    """Return installed parts that cannot stay beside ``names``: another one of a kind, and names of another branch.

    ``version``: when it is known, also names that hold another one; what they are for brings its own with it.
    """
    wanted = {_kind(name) for name in names}
    replaced = set()
    for group in _groups():
        if wanted & group:
            replaced |= {name for name in installed if _kind(name) in group - wanted}
    gone = []
    for name in sorted(installed):
        found = _BRANCH_IN_NAME.search(_without_kernel(name))
        other_branch = found is not None and int(found.group(1)) != branch
        held = _VERSION_IN_NAME.search(name)
        other_version = None not in (version, held) and held.group(1) != version
        if name not in names and (other_branch or other_version or name in replaced):
            gone.append(name)
    return gone


# What a package with the module brings by itself, in its own flavour: nvidia-kernel-common, nvidia-kernel-source.
_WITH_MODULE = "nvidia-kernel-"
# Metapackages bind kernel modules of one flavour (nvidia-driver-580 the proprietary ones), which the role decides.
_METAPACKAGES = ("nvidia-driver-", "nvidia-headless-", "cuda-drivers-")
_SERVER = re.compile(r"-server(?=-|$)")  # Ubuntu has each branch twice: of the two series one of a kind can stand
_SERIES = re.compile(r"-server(?=-|$)|-tesla(?=-)|-open$")


def _part(name):
    """Return which part of a driver a package is: its name without branch, series and flavour.

    ``nvidia-`` too: libnvidia-tesla-535-cuda1 of Debian is what libcuda1 is.
    """
    return _SERIES.sub("", _BRANCH_IN_NAME.sub("", name)).replace("nvidia-", "", 1)


def _in_series(name, gone, names):
    """Return the name of a part in the series of ``names``, where ``gone`` is of another one; with its old branch."""
    name = name.replace("-tesla", "", 1)
    if not any(map(_SERVER.search, names)):
        return _SERVER.sub("", name)
    return name if any(map(_SERVER.search, gone)) else _BRANCH_IN_NAME.sub(r"\g<0>-server", name)


def heirs(gone, names, branch):
    """Return {name that leaves for its branch: names that may follow it at ``branch``}.

    The branch may be in the name, or be in none any more (Ubuntu from 590 on). Left out is what the role decides
    itself (kernel modules, fabric manager, and every part that one of ``names`` is, in whatever series) or another part
    brings: what holds a version or a kernel.
    """
    decided, parts_of_names = set().union(*_groups()), {_part(name) for name in names}
    found = {}
    for name in gone:
        match = _BRANCH_IN_NAME.search(name)
        if not match or int(match.group(1)) == branch or _VERSION_IN_NAME.search(name):
            continue
        after = _in_series(name, gone, names)
        bare = _BRANCH_IN_NAME.sub("", after)
        metapackage = bare == "nvidia-driver" or after.startswith(_METAPACKAGES)
        with_module = is_for_kernel(name) or name.startswith(_WITH_MODULE)
        if not (metapackage or with_module or {_kind(name), bare} & decided or _part(name) in parts_of_names):
            found[name] = [_BRANCH_IN_NAME.sub(f"-{branch}", after), bare]
    return found


def inherited(layout, following, available, version):
    """Return (name -> full version of what follows, names of those that nothing follows)."""
    found, lost = {}, []
    for name, after in following.items():
        there = [one for one in after if any(upstream(each) == version for each in available.get(one, []))]
        found.update(exact_packages(layout, there[:1], available, {}, version))
        if not there:
            lost.append(name)
    return found, lost


def apt_pin(version):
    """Return the apt preferences that keep every part at one version, also those that packages depend on."""
    names = " ".join(["*nvidia*", *(name for name in tables.OTHER_NAMES if name != "nvlsm"), "cuda-drivers*"])
    return f"Package: {names}\nPin: version {version}-*\nPin-Priority: 1001\n"


def versionlock(packages):
    """Return the lines of dnf's versionlock list for name -> epoch:version-release."""
    lines = []
    for name, version in sorted(packages.items()):
        epoch, _colon, rest = version.rpartition(":")
        lines.append(f"{name}-{epoch or '0'}:{rest}.*")
    return lines
