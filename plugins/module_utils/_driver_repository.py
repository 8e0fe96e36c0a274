# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. The entry of a repository, its key, and its index.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_host, _driver_key, _driver_managers
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver_managers import printed_address
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver_transaction import write_text

APT_KEY = "/etc/apt/keyrings/gpufleet-nvidia.asc"
APT_SOURCE = "/etc/apt/sources.list.d/gpufleet-nvidia.sources"
RPM_KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia"
RPM_SOURCE = "/etc/yum.repos.d/gpufleet-nvidia.repo"
HEAD = "# Written by the role nvidia_driver: change its variables, not this file.\n"
# What switches an entry off: StringToBool of apt (strutl.cc), and dnf's word for it.
_OFF = ("no", "false", "without", "off", "disable", "0")
_SWITCH = re.compile(r"^enabled\s*[:=]\s*(\S+)", re.MULTILINE | re.IGNORECASE)
# Where apt reads its repositories.
APT_PLACES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources")


def apt_source(url, suite, components):
    """Return an entry in deb822 format."""
    lines = ["Types: deb", f"URIs: {url.rstrip('/')}/", f"Suites: {suite}"]
    if components:
        lines.append(f"Components: {components}")
    lines.append(f"Signed-By: {APT_KEY}")
    return HEAD + "\n".join(lines) + "\n"


def rpm_source(url):
    """Return an entry of dnf."""
    lines = [
        "[gpufleet-nvidia]",
        "name=NVIDIA drivers",
        f"baseurl={url}",
        "enabled=1",
        "gpgcheck=1",
        f"gpgkey=file://{RPM_KEY}",
        # Its streams are branches: with them dnf would see the packages of one branch only. Versions are exact here.
        "module_hotfixes=1",
    ]
    return HEAD + "\n".join(lines) + "\n"


def entry_here(distribution):
    """Return url and fingerprints of the entry that is there, None without one: what a run need not write again.

    One that is switched off, as an upgrade of the distribution does, is none.
    """
    key, source = (RPM_KEY, RPM_SOURCE) if distribution == "rhel" else (APT_KEY, APT_SOURCE)
    texts = [_driver_host.read_text(path) for path in (key, source)]
    found = re.search(r"^(?:URIs: |baseurl=)(\S+)$", texts[1], re.MULTILINE)
    switch = _SWITCH.search(texts[1])
    if not all(texts) or not found or (switch and switch.group(1).lower() in _OFF):
        return None
    fingerprints = _fingerprints_in(texts[0])
    return {"url": found.group(1).rstrip("/"), "fingerprint": " ".join(fingerprints)} if fingerprints else None


def _wanted_files(module, distribution):
    """Return path -> text, or None for a file that must not be there."""
    paths = (RPM_KEY, RPM_SOURCE) if distribution == "rhel" else (APT_KEY, APT_SOURCE)
    params = module.params
    if params["state"] == "absent":
        return dict.fromkeys(paths)
    if not params["url"]:
        return {}
    missing = [name for name in ("key", "fingerprint") if not params[name]]
    if missing:
        raise DriverError(f"Expected url, key and fingerprint of the repository, found no {' and '.join(missing)}.")
    _driver_key.check_key(params["key"], params["fingerprint"])
    if distribution == "rhel":
        entry = rpm_source(params["url"])
    else:
        entry = apt_source(params["url"], params["suite"], params["components"])
    return {paths[0]: params["key"].rstrip("\n") + "\n", paths[1]: entry}


def _one_line_entries(text):
    """Return {(url, suite)} of a file in apt's format of one line an entry (sources.list(5))."""
    found = re.findall(r"^\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)", text, re.MULTILINE)
    return {(printed_address(url), suite) for url, suite in found}


def _deb822_entries(text):
    """Return {(url, suite)} of the enabled entries of a file in deb822 format (sources.list(5))."""
    found = set()
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for paragraph in re.split(r"\n\s*\n", text):
        rows = re.findall(r"^(\S+?):((?:.*)(?:\n[ \t].*)*)", paragraph, re.MULTILINE)
        fields = {name.lower(): value.split() for name, value in rows}
        if fields.get("enabled", ["yes"])[:1] in [[word] for word in _OFF]:
            continue
        found |= {(printed_address(url), suite) for url in fields.get("uris", []) for suite in fields.get("suites", [])}
    return found


def entries_of(path, text):
    """Return {(url, suite)} of one of apt's files."""
    return _deb822_entries(text) if path.endswith(".sources") else _one_line_entries(text)


def _refuse_second_entry(url, suite):
    """Refuse a repository that another file names too: apt then reads no sources at all, for one key differs."""
    paths = sorted({path for place in APT_PLACES for path in glob.glob(place)} - {APT_SOURCE})
    url = printed_address(url)
    there = [path for path in paths if (url, suite) in entries_of(path, _driver_host.read_text(path))]
    if there:
        raise DriverError(
            f"Expected no other entry for {url}, found one in {', '.join(there)}, and apt reads nothing when two"
            " entries for it name different keys: remove that file (of NVIDIA's package: apt-get purge cuda-keyring;"
            " the role's entry serves the same packages), or set nvidia_driver_source to distribution."
        )


def _fetch(module, argv):
    rc, out, err = _driver_host.run_unlocked(
        module, argv, module.params["lock_timeout_seconds"], _driver_host.ASK_SECONDS
    )
    if rc != 0:
        raise DriverError(_driver_managers.failure(err + "\n" + out, rc))


def _refresh(module, distribution):
    """Fetch the index; wait while another package manager holds the lock. Raises DriverError."""
    if distribution == "rhel":
        argv = ["dnf", "-q", "-y", "--setopt=exit_on_lock=1", "makecache"]
        only = ["--refresh", "--disablerepo=*", "--enablerepo=gpufleet-nvidia"]
        if not module.params["all_sources"]:
            _fetch(module, argv + only)
        # Also what is in no cache yet: with one index missing dnf answers no question from its cache.
        _fetch(module, argv + (["--refresh"] if module.params["all_sources"] else []))
        return
    only = ["-o", f"Dir::Etc::SourceList={APT_SOURCE}", "-o", "Dir::Etc::SourceParts=-"]
    only += ["-o", "APT::Get::List-Cleanup=0"]
    argv = ["apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any"]
    _fetch(module, argv + ([] if module.params["all_sources"] else only))
    # The entry beside all others: what apt cannot read stops every other use of it on this host.
    _fetch(module, ["apt-cache", "policy"])


def _forget_keys(module, before, after):
    """Take keys out of rpm's database that the role's key file had and has no more: dnf put them there.

    rpm names a key by the end of its fingerprint (version of the package gpg-pubkey). Another entry that trusts the
    same key brings it again by its own gpgkey. Raises DriverError.
    """
    gone = set(_fingerprints_in(before)) - set(_fingerprints_in(after))
    if not gone:
        return
    argv = ["rpm", "-q", "gpg-pubkey", "--qf", "%{VERSION} %{RELEASE}\\n"]
    _rc, out, _err = _driver_host.run(module, argv)
    for line in out.splitlines():
        version, _space, release = line.partition(" ")
        if re.fullmatch("[0-9a-fA-F]{8,40}", version) and any(one.endswith(version.upper()) for one in gone):
            argv = ["rpm", "-e", "--allmatches", f"gpg-pubkey-{version}-{release}"]
            rc, said, err = _driver_host.run(module, argv)
            if rc != 0:
                raise DriverError(_driver_managers.failure(err + "\n" + said, rc))


def _fingerprints_in(text):
    """Return the fingerprints of a key file, none where it is none."""
    try:
        return _driver_key.fingerprints(text) if text else []
    except DriverError:
        return []


def _put(path, text):
    """Write a file, or remove it when there is to be none."""
    if text is not None:
        write_text(path, text)
    elif os.path.exists(path):
        os.unlink(path)


def _shown(text):
    """Return what a person sees of a file: no password of an address."""
    return re.sub(r"(://)[^/@\s]*@", r"\1***@", text or "")


def apply(module):
    """Write or remove the files, fetch the index. Returns the result of the module. Raises DriverError, OSError.

    Files whose index cannot be fetched are put back as they were.
    """
    distribution = _driver_host.os_release(_driver_host.read_text("/etc/os-release"))["distribution"]
    wanted = _wanted_files(module, distribution)
    here = {path: _driver_host.read_text(path) if os.path.exists(path) else None for path in wanted}
    changed = [path for path in wanted if here[path] != wanted[path]]
    if changed and module.params["state"] == "present" and distribution != "rhel":
        _refuse_second_entry(module.params["url"], module.params["suite"])
    diff = [
        {"before_header": path, "after_header": path, "before": _shown(here[path]), "after": _shown(wanted[path])}
        for path in changed
    ]
    refresh = module.params["refresh"]
    absent = module.params["state"] == "absent"
    if not module.check_mode:
        if absent and RPM_KEY in changed:
            _forget_keys(module, here[RPM_KEY], None)  # while the file still says which
        for path in changed:
            _put(path, wanted[path])
        if refresh == "always" or (refresh == "changed" and changed):
            try:
                _refresh(module, distribution)
            except DriverError:
                for path in changed:
                    _put(path, here[path])
                raise
        if RPM_KEY in changed and not absent:
            _forget_keys(module, here[RPM_KEY], wanted[RPM_KEY])
    return {"changed": bool(changed), "files": changed, "diff": diff}
