# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: which versions of an engine or of a model nothing on the host needs any more.

Private to the gpufleet.sglang collection; may change at any time.

Pure: what was found on the host comes in, which folders stay and why goes out. A version is recognised by the name of
its folder in any text that could need it, wherever that text has its path from: what is kept without need costs disk
space, what is removed in spite of a need costs a server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# File systems that other hosts may use too, from mount(8), filesystems(5) and the documentation of each product.
# Nothing on this host tells what they need.
SHARED_FILE_SYSTEMS = {
    "9p": "Plan 9, virtual machines",
    "afs": "AFS",
    "beegfs": "BeeGFS",
    "ceph": "CephFS",
    "cifs": "SMB",
    "glusterfs": "GlusterFS",
    "gpfs": "IBM Storage Scale",
    "lustre": "Lustre",
    "nfs": "NFS",
    "nfs4": "NFS",
    "smb3": "SMB",
    "virtiofs": "virtual machines",
    "wekafs": "WEKA",
}


@dataclass(frozen=True)
class Version:
    """One version that this collection made; ``made_at`` in seconds since the epoch."""

    path: str
    made_at: float

    @property
    def name(self):
        return self.path.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Text:
    """Something that may name a version: ``where`` for a person, ``at`` in seconds since the epoch (backups only)."""

    where: str
    content: str
    at: float = 0.0


@dataclass(frozen=True)
class Row:
    """What becomes of one version: ``because`` is why it stays, empty when it goes."""

    path: str
    because: str


def names(text, name):
    """Does a text hold this name as a whole word of a path or of JSON?

    ``0.5.2`` is not in ``0.5.23`` or ``0.5.2.post1``.
    """
    return re.search(r"(?<![\w+-])(?<!\w\.)%s(?![\w+-]|\.\w)" % re.escape(name), text) is not None


def shared_file_system(path, mounts):
    """Type of the file system that holds a path, when other hosts may use it too; else None.

    :arg path: absolute, without links. :arg mounts: text of ``/proc/self/mounts``; spaces are ``\\040`` there.
    """
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mounted = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), fields[1]).rstrip("/") + "/"
        # The last one of two on one point hides the other.
        if (path.rstrip("/") + "/").startswith(mounted) and len(mounted) >= len(best):
            best, kind = mounted, fields[2]
    if kind in SHARED_FILE_SYSTEMS:
        return kind
    # A file system in a process may be anything: sshfs, s3fs, a cache of a store.
    return kind if kind and kind.startswith("fuse.") and kind != "fuse.fuse-overlayfs" else None


def decide(versions, keep, needs, backups, refusal=""):
    """What becomes of each version, in the order of their paths.

    :arg versions: of ``Version``.
    :arg keep: how many stay beside those that something needs: those that the newest backups name, then those made
        last.
    :arg needs: of ``Text``: units, proofs, baselines, processes, what is declared. What one of them names stays.
    :arg backups: of ``Text``: what other changes replaced.
    :arg refusal: why nothing may be removed at all.
    """
    because = {}
    for version in versions:
        where = next((text.where for text in needs if names(text.content, version.name)), None)
        if refusal or where:
            because[version.path] = refusal or "named by %s" % where
    others = [version for version in versions if version.path not in because]
    others.sort(key=lambda version: (_last_named(version, backups), version.made_at), reverse=True)
    for number, version in enumerate(others[: max(keep, 0)], 1):
        because[version.path] = "number %d of the %d that are kept beside those in use" % (number, keep)
    return [Row(path, because.get(path, "")) for path in sorted(version.path for version in versions)]


def _last_named(version, backups):
    return max((text.at for text in backups if names(text.content, version.name)), default=0.0)
