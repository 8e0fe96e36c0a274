# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. Kernels of a host: which one boots next, and what it has. Changes nothing.

A kernel that was updated while the host ran is met at the next boot: without headers nothing was built for it, and the
host comes back without a driver.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import upstream
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_host import read_text

MODULES = "/lib/modules"
BOOT = "/boot"
# Where a site names a key of its own for modules that DKMS builds, and where DKMS and Ubuntu put one that they made.
DKMS_SETTINGS = ("/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d/*.conf")
CERTIFICATES = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
_CERTIFICATE = re.compile(r"^\s*mok_certificate=[\"']?([^\"'\s]+)", re.MULTILINE)
_IMAGE = re.compile(r"^(?:.*/)?vmlinuz-(\d\S*)$")
# Debian gives its own module another name (nvidia-current, nvidia-tesla-535); nvidiafb and nvidia-cspmu are others.
_MODULE = re.compile(r"^nvidia(?:-current|-tesla)?(?:-\d+)*\.ko(?:\.(?:gz|xz|zst))?$")


def release_of(path):
    """Return the release of the kernel in the path of its image, None for a rescue image and for anything else."""
    match = _IMAGE.match(path.strip())
    return match.group(1) if match and "rescue" not in path else None


def order(release):
    """Return what releases are sorted by, as rpm does: part by part, a number is newer than a word or nothing.

    So 5.14.0-570.1.1.el9 is newer than 5.14.0-570.el9. A tilde is older than nothing (rpm, rpmvercmp; dpkg too).
    """
    ranks = []
    for part in re.findall(r"\d+|[A-Za-z]+|~", release):
        ranks.append((-1, 0, "") if part == "~" else (2, int(part), "") if part.isdigit() else (1, 0, part))
    return [*ranks, (0, 0, "")]


def newest(paths, modules=MODULES):
    """Return the newest release of images, which GRUB boots unless it was told otherwise; None without any.

    A name counts when modules lie under it: copies have none of their own (``.old`` of installkernel, ``.efi.signed``).
    """
    releases = [release for release in map(release_of, paths) if release]
    return max((one for one in releases if os.path.isdir(os.path.join(modules, one))), key=order, default=None)


def next_release(run, boot=BOOT, modules=MODULES):
    """Return the release of the kernel that boots next, None where nobody can tell.

    ``run``: takes a command, returns (rc, stdout, stderr). The RHEL family has grubby to ask.
    """
    rc, out, _err = run(["grubby", "--default-kernel"])
    asked = release_of(out) if rc == 0 else None
    return asked or (newest(sorted(os.listdir(boot)), modules) if os.path.isdir(boot) else None)


def module_version(run, release):
    """Return the driver version that the file of the module says for a kernel, None where there is none."""
    rc, out, _err = run(["modinfo", "-k", release, "-F", "version", "nvidia"])
    return upstream(out.strip()) if rc == 0 else None


def has_headers(release, root=MODULES):
    return os.path.exists(os.path.join(root, release, "build"))


def has_module(release, root=MODULES):
    """Return whether a module of NVIDIA's driver is there for a kernel, wherever its package or DKMS put it."""
    for _folder, _folders, names in os.walk(os.path.join(root, release)):
        if any(_MODULE.match(name) for name in names):
            return True
    return False


def certificates(settings=DKMS_SETTINGS):
    """Return paths of the keys that modules built on this host may be signed with: the site's own, or the usual ones.

    Source: dkms_framework.conf of DKMS, which the shell reads: the last line counts. What the shell would fill in
    ($dkms_tree/mok.pub) names no file here: then the usual ones are tried.
    """
    texts = [read_text(path) for pattern in settings for path in sorted(glob.glob(pattern))]
    own = _CERTIFICATE.findall("\n".join(texts))[-1:]
    return tuple(one for one in own if "$" not in one) or CERTIFICATES
