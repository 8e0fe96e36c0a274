# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. The entry of a repository, its key, and its index.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import os
import re
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_host, _driver_key, _driver_managers
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver_transaction import write_text

APT_KEY = "/etc/apt/keyrings/gpufleet-nvidia.asc"
APT_SOURCE = "/etc/apt/sources.list.d/gpufleet-nvidia.sources"
RPM_KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia"
RPM_SOURCE = "/etc/yum.repos.d/gpufleet-nvidia.repo"
HEAD = "# Written by the role nvidia_driver: change its variables, not this file.\n"
PAUSE_SECONDS = 2


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
    """Return url and fingerprints of the entry that is there, None without one: what a run need not write again."""
    key, source = (RPM_KEY, RPM_SOURCE) if distribution == "rhel" else (APT_KEY, APT_SOURCE)
    texts = [_driver_host.read_text(path) for path in (key, source)]
    found = re.search(r"^(?:URIs: |baseurl=)(\S+)$", texts[1], re.MULTILINE)
    if not all(texts) or not found:
        return None
    try:
        fingerprints = _driver_key.fingerprints(texts[0])
    except DriverError:
        return None
    return {"url": found.group(1).rstrip("/"), "fingerprint": " ".join(fingerprints)}


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


def _refresh(module, distribution):
    """Fetch the index; wait while another package manager holds the lock. Raises DriverError."""
    only = ["-o", f"Dir::Etc::SourceList={APT_SOURCE}", "-o", "Dir::Etc::SourceParts=-"]
    only += ["-o", "APT::Get::List-Cleanup=0"]
    if distribution == "rhel":
        argv = ["dnf", "-q", "-y", "makecache", "--refresh"]
        argv += [] if module.params["all_sources"] else ["--disablerepo=*", "--enablerepo=gpufleet-nvidia"]
    else:
        argv = ["apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any"]
        argv += [] if module.params["all_sources"] else only
    until = time.monotonic() + module.params["lock_timeout_seconds"]
    while True:
        rc, out, err = _driver_host.run(module, argv)
        if rc == 0:
            return
        if "Could not get lock" not in out + err or time.monotonic() > until:
            raise DriverError(_driver_managers.failure(err + "\n" + out, rc))
        time.sleep(PAUSE_SECONDS)


def apply(module):
    """Write or remove the files, fetch the index. Returns the result of the module. Raises DriverError, OSError."""
    distribution = _driver_host.os_release(_driver_host.read_text("/etc/os-release"))["distribution"]
    changed, diff = [], []
    for path, text in _wanted_files(module, distribution).items():
        here = _driver_host.read_text(path) if os.path.exists(path) else None
        if here == text:
            continue
        changed.append(path)
        diff.append({"before_header": path, "after_header": path, "before": here or "", "after": text or ""})
        if module.check_mode:
            continue
        if text is None:
            os.unlink(path)
        else:
            write_text(path, text)
    refresh = module.params["refresh"]
    if not module.check_mode and (refresh == "always" or (refresh == "changed" and changed)):
        _refresh(module, distribution)
    return {"changed": bool(changed), "files": changed, "diff": diff}
