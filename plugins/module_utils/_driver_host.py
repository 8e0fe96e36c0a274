# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers, the asking half: reads /sys, /proc, packages and the record. Changes nothing.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _driver,
    _driver_kernel,
    _driver_managers,
    _driver_packages,
    _driver_smi,
    _driver_state,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import kernel_module_version
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_host import find_command, read_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._service import ACTIVE_STATES

C_LOCALE = {"LANG": "C", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
# Daemons of the driver itself: they hold its devices and are restarted with it; and its tool, which asks and ends.
# Names as /proc cuts them.
DAEMONS = ("nvidia-persiste", "nv-fabricmanage", "nvidia-smi")
LOG_SECONDS = 60
PAUSE_SECONDS = 1
LOCK_PAUSE_SECONDS = 2
# A command that asks or fetches has this long; one that changes packages is never cut off.
ASK_SECONDS = 900
# Units that the packages of a driver bring, and where units lie; a masked one is a link to nothing.
FABRIC_UNIT = "nvidia-fabricmanager.service"
UNITS = ("nvidia-persistenced.service", FABRIC_UNIT)
UNIT_DIRS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
# Where dnf keeps what is held.
VERSIONLOCK = "/etc/dnf/plugins/versionlock.list"
# Second letter of dpkg's state: installed (also while a trigger waits); half-installed, unpacked, half-configured;
# removed, and its configuration is still there.
COMPLETE = ("i", "W", "t")
UNFINISHED = ("H", "U", "F")
CONFIGURATION = ("c",)
# What the role's repository is called there.
RPM_REPOSITORY = "gpufleet-nvidia"
# What the vendor's .run installer leaves: its files are in no package, and stay under those of packages.
RUNFILE = "/usr/bin/nvidia-uninstall"
# Where NVIDIA's GPU operator mounts the driver of its container: no package of the host, no module in /lib/modules.
CONTAINER = "/run/nvidia/driver"


def run(module, argv, seconds=None):
    """Return (rc, stdout, stderr) in a plain locale; an absent command is status 127."""
    timeout = module.get_bin_path("timeout") if seconds else None
    if timeout:
        argv = [timeout, "-k", "5", str(seconds)] + argv
    try:
        return module.run_command(argv, environ_update=C_LOCALE, errors="replace", handle_exceptions=False)
    except OSError as error:
        return 127, "", str(error)


def run_unlocked(module, argv, lock_seconds, seconds=None):
    """Return what run() does; while another process holds the package manager, again, for up to ``lock_seconds``."""
    until = time.monotonic() + lock_seconds
    while True:
        rc, out, err = run(module, argv, seconds)
        if not _driver_managers.locked(err + "\n" + out, rc) or time.monotonic() > until:
            return rc, out, err
        time.sleep(LOCK_PAUSE_SECONDS)


def os_release(text):
    """Return distribution, major and architecture of the text of /etc/os-release. Raises DriverError for others."""
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    fields = {name: value.strip().strip("\"'") for name, value in pairs.items()}
    ident, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    distribution = ident if ident in ("debian", "ubuntu") else tables.SAME_AS.get(ident)
    architecture = platform.machine()
    if distribution is None or architecture not in tables.ARCHITECTURES:
        raise _driver.DriverError(
            f"Expected Debian, Ubuntu or the RHEL family on x86-64 or arm64, found {ident or 'no os-release'} on"
            f" {architecture}: install the driver yourself on this host."
        )
    major = version if distribution == "ubuntu" else version.split(".")[0]
    return {"distribution": distribution, "major": major, "architecture": architecture}


def packages_of(module, distribution):
    """Return (installed packages name -> version, names that are held)."""
    if distribution == "rhel":
        rc, out, _err = run(module, ["rpm", "-qa", "--qf", "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"])
        lines = [line.split(" ", 1) for line in out.splitlines() if rc == 0 and " " in line]
        held = [line.strip() for line in read_text(VERSIONLOCK).splitlines() if line.strip()]
        return dict(lines), held
    _rc, held, _err = run(module, ["apt-mark", "showhold"])
    return _dpkg_packages(module, COMPLETE), sorted(held.split())


def _dpkg_packages(module, states):
    form = "${db:Status-Abbrev}|${Package}|${Version}\\n"
    _rc, out, _err = run(module, ["dpkg-query", "-W", "-f", form])
    found = [line.split("|") for line in out.splitlines() if line.count("|") == 2]
    return {name: version for state, name, version in found if state[1:2] in states}


def unfinished_of(module, distribution):
    """Return parts of a driver (name -> version) that an interrupted run unpacked and did not configure.

    They are not installed, and still on the host: a removal takes them too. rpm knows no such state.
    """
    return {} if distribution == "rhel" else _driver_packages.parts(_dpkg_packages(module, UNFINISHED))


def leftovers_of(module, distribution):
    """Return parts of a driver (name -> version) of which nothing but configuration is left. rpm leaves none."""
    return {} if distribution == "rhel" else _driver_packages.parts(_dpkg_packages(module, CONFIGURATION))


def _natural(version):
    return [int(part) if part.isdigit() else 0 for part in re.split(r"[^0-9]+", version)]


def _asked(module, argv):
    """Return the answer of a package manager. Raises DriverError: no answer is not "no package"."""
    rc, out, err = run_unlocked(module, argv, module.params["lock_timeout_seconds"], ASK_SECONDS)
    if module.check_mode and "no cache for" in out + err:
        return ""  # Nothing was fetched: what there is nobody knows yet.
    if rc != 0:
        raise _driver.DriverError(_driver_managers.failure(err + "\n" + out, rc))
    return out


def _is_from(place, origin):
    """Return whether a row's place is the wanted one: of apt address and suite, of dnf the name of the repository."""
    words = place.split()[:1]
    return words == [RPM_REPOSITORY] or [one.rstrip("/") for one in words] == [_driver_managers.printed_address(origin)]


def available_of(module, distribution, names, origin=None, anywhere=()):
    """Return name -> versions in the repositories, newest first, as the package manager's cache knows them.

    ``origin``: address of the role's repository, when parts of the driver may come from there only: those of the
    distribution have the same names and fit no others. ``anywhere``: names for which this does not hold.
    Raises DriverError when the package manager cannot tell.
    """
    found = {name: [] for name in names}
    if not names:
        return found
    if distribution == "rhel":
        argv = ["dnf", "-q", "-C", "repoquery", "--showduplicates", "--disableplugin=versionlock"]
        argv += ["--setopt=exit_on_lock=1", "--qf", "%{name}|%{epoch}:%{version}-%{release}|%{reponame}"]
        rows = [line.split("|") for line in _asked(module, argv + list(names)).splitlines() if line.count("|") == 2]
        rows.sort(key=lambda row: _natural(row[1]), reverse=True)
    else:
        out = _asked(module, ["apt-cache", "madison"] + list(names))
        rows = [line.split("|") for line in out.splitlines() if line.count("|") == 2 and "Sources" not in line]
    for name, version, place in rows:
        bound = origin and _driver_packages.has_name_of_part(name.strip()) and name.strip() not in anywhere
        versions = found.setdefault(name.strip(), [])
        if bound and not _is_from(place, origin):
            continue
        if version.strip() not in versions:
            versions.append(version.strip())
    return found


def module_drivers_of(module, distribution, available):
    """Return what _driver_packages.drivers_of_modules() does of the prebuilt modules among ``available``."""
    names = [name for name, versions in available.items() if versions and _driver_state.has_prebuilt([name])]
    if distribution == "rhel" or not names:
        return {}
    return _driver_packages.drivers_of_modules(_asked(module, ["apt-cache", "show", *names]))


def pci_devices(root="/sys/bus/pci/devices"):
    """Return vendor, class, device and address of the devices on the PCI bus.

    A virtual function (SR-IOV) is a slice of the board that its physfn leads to, and no board.
    """
    rows = []
    for folder in sorted(glob.glob(root + "/*")):
        if os.path.lexists(os.path.join(folder, "physfn")):
            continue
        row = {name: read_text(os.path.join(folder, name)) for name in ("vendor", "class", "device")}
        rows.append(dict(row, address=os.path.basename(folder)))
    return rows


def secure_boot():
    for path in glob.glob("/sys/firmware/efi/efivars/SecureBoot-*"):
        try:
            with open(path, "rb") as stream:
                return stream.read()[-1:] == b"\x01"
        except OSError:
            return False
    return False


def mok_enrolled(module):
    """Return whether the firmware knows the key that signs modules built on this host."""
    for path in _driver_kernel.certificates():
        if os.path.exists(path):
            _rc, out, err = run(module, ["mokutil", "--test-key", path])
            if "already enrolled" in out + err:
                return True
    return False


def users():
    """Return the processes that hold a device of the driver, without its own daemons."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        held = False
        for path in glob.glob(os.path.join(folder, "fd", "*")):
            try:
                held = held or os.readlink(path).startswith("/dev/nvidia")
            except OSError:
                continue
        name = read_text(os.path.join(folder, "comm")).strip()
        if held and name not in DAEMONS:
            found.append({"pid": int(os.path.basename(folder)), "name": name})
    return sorted(found, key=lambda one: one["pid"])


def servers(module):
    """Return units of this collection that run, start, or wait for their restart."""
    argv = ["systemctl", "list-units", "--type=service", f"--state={','.join(ACTIVE_STATES)}", "--plain", "--no-legend"]
    _rc, out, _err = run(module, argv + ["sglang-*.service"])
    return sorted(line.split()[0] for line in out.splitlines() if line.strip())


def record_of(state_dir):
    """Return what is remembered of this host's drivers: current, previous, open. Raises DriverError when damaged."""
    path = os.path.join(state_dir, "record.json")
    text = read_text(path)
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise _driver.DriverError(
            f"Expected the record of the driver in {path}, found it damaged ({error}): remove it to begin anew."
        ) from error


def smi_of(module, command, fabric):
    """Return what nvidia-smi says for a proof: boards, text, sentence; and whether the fabric manager runs."""
    path = find_command(module, command)
    if path is None:
        sentence = f"There is no {command} on this host."
        return {"boards": [], "text": "", "fabric_manager": False, "sentence": sentence}
    return dict(_driver_smi.ask(path, fabric), fabric_manager=fabric and fabric_manager_runs(module))


def mig_of(module, command):
    """Return the MIG modes of the boards as nvidia-smi prints them. Raises DriverError."""
    path = find_command(module, command)
    if path is None:
        raise _driver.DriverError(f"Expected {command} on this host, found none: install the driver's tools.")
    return _driver_smi.mig_of(path)


def has_unit(unit):
    return any(os.path.lexists(f"{folder}/{unit}") for folder in UNIT_DIRS)


def fabric_manager_runs(module):
    """Return whether the unit is active (it is once the fabric is made), or without a unit, whether it is a process.

    The driver of a container brings its own fabric manager.
    """
    if has_unit(FABRIC_UNIT):
        return run(module, ["systemctl", "is-active", "-q", FABRIC_UNIT])[0] == 0
    return any(read_text(path).strip() == "nv-fabricmanage" for path in glob.glob("/proc/[0-9]*/comm"))


def machine(read=read_text):
    """Return what tells this machine from another, and this boot from another."""
    return {
        "machine_id": read("/etc/machine-id").strip(),
        "boot_id": read("/proc/sys/kernel/random/boot_id").strip(),
        # Written by systemd in a container (systemd.io, Container Interface), by podman and by Docker.
        "container": any(map(os.path.exists, ("/run/systemd/container", "/run/.containerenv", "/.dockerenv"))),
    }


def _next_kernel(module, kernel):
    """Return release, headers, module of the kernel that boots next; None when it is ``kernel``, or not this host's."""
    release = None if module.params["kernel"] else _driver_kernel.next_release(lambda argv: run(module, argv))
    if release in (None, kernel):
        return None
    return {
        "release": release,
        "headers": _driver_kernel.has_headers(release),
        "module": _driver_kernel.has_module(release),
    }


def read_host(module):
    """Return the result of driver_info. Raises DriverError (one sentence)."""
    params = module.params
    system = os_release(read_text("/etc/os-release"))
    packages, holds = packages_of(module, system["distribution"])
    kernel = params["kernel"] or platform.release()
    boards, switches = _driver.boards_and_switches(pci_devices())
    needs_fabric, needs_nvlsm = _driver.fabric_of(boards, switches)
    text = read_text("/proc/driver/nvidia/version")
    loaded = kernel_module_version(text)
    parts = _driver_packages.parts(packages)
    of_file = None
    if _driver_state.has_prebuilt(parts):
        of_file = _driver_kernel.module_version(lambda argv: run(module, argv), kernel)
    versions = _driver_state.versions_of(parts, of_file)
    rivals = [name for name in tables.RIVALS if os.path.isdir("/sys/module/" + name)]
    pending = os.path.exists(os.path.join(params["state_dir"], "initramfs_pending"))
    flavours = (_driver_state.loaded_flavour(text), _driver_state.installed_flavour(parts))
    runfile = os.path.exists(RUNFILE)
    elsewhere = os.path.isdir(CONTAINER) or _driver_kernel.has_module(platform.release())
    unpackaged = _driver_state.is_unpackaged(runfile, elsewhere, versions)
    reasons = _driver_state.reboot_reasons(loaded, versions, rivals, boards, pending, flavours, unpackaged)
    wanted = params["query"]
    also = [*(wanted or []), *params["also"], tables.HOLD_PACKAGES.get(system["distribution"], "")]
    result = {
        "os": system,
        "machine": machine(),
        "kernel": kernel,
        "headers": _driver_kernel.has_headers(kernel),
        "module": _driver_kernel.has_module(kernel),
        "next_kernel": _next_kernel(module, kernel),
        "boards": boards,
        "nvswitches": switches,
        "needs_fabric": needs_fabric,
        "needs_nvlsm": needs_nvlsm,
        "loaded": loaded,
        "loaded_flavour": _driver_state.loaded_flavour(text),
        "packages": dict(parts, **{name: packages[name] for name in also if name in packages}),
        "unfinished": unfinished_of(module, system["distribution"]),
        "leftovers": leftovers_of(module, system["distribution"]),
        "holds": holds,
        "versions": versions,
        "rivals": rivals,
        "secure_boot": secure_boot(),
        "mok_enrolled": mok_enrolled(module),
        "users": users(),
        "servers": servers(module),
        "record": record_of(params["state_dir"]),
        "runfile": runfile,
        "units": [unit for unit in UNITS if has_unit(unit)],
        "initramfs_pending": pending,
        "reboot_required": bool(reasons),
        "reboot_reasons": reasons,
        "available": None
        if wanted is None
        else available_of(module, system["distribution"], wanted, params["origin"], params["also"]),
        "problems": None,
        "mig": mig_of(module, params["nvidia_smi"]) if params["mig"] else None,
    }
    result["module_drivers"] = module_drivers_of(module, system["distribution"], result["available"] or {})
    if params["prove"]:
        result["problems"] = _problems(module, result)
    return result


def _problems(module, info):
    """Return why the driver is not proven. A fabric takes a while to be complete: asked again until it is.

    What a boot has to bring first, or a host without boards, is asked once.
    """
    # Not by --grep, which not every journalctl can: its failure would read as a log without errors.
    _rc, log, _err = run(module, ["journalctl", "-k", "-b", "-o", "cat", "--no-pager"], LOG_SECONDS)
    wished = module.params["fabric_manager"]
    fabric = info["needs_fabric"] if wished is None else wished
    lines = [line for line in log.splitlines() if "NVRM" in line]
    lasting = _driver_state.fatal_xids(lines)  # no waiting takes them out of the log
    until = time.monotonic() + module.params["wait_seconds"]
    while True:
        problems = _driver_state.proof_problems(
            smi_of(module, module.params["nvidia_smi"], fabric),
            info["loaded"],
            info["versions"],
            info["boards"],
            module.params["expected_gpus"],
            fabric,
            lines,
        )
        settled = all(one in lasting for one in problems) or info["reboot_required"] or not info["boards"]
        if settled or time.monotonic() > until:
            return problems
        time.sleep(PAUSE_SECONDS)
