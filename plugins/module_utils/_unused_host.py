# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: versions that nothing needs, the part that looks at the host: folders, units, memory, processes.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import glob
import json
import os
import shutil

from ansible_collections.gpufleet.sglang.plugins.module_utils import _hub, _proof, _venv
from ansible_collections.gpufleet.sglang.plugins.module_utils._unused import Text, Version

UNIT_DIRS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
# No unit and no script that starts a server is larger.
MOST_BYTES = 262_144
# A folder that is on its way out: renamed first, so that nothing half removed looks like a version.
REMOVED_PREFIX = ".gpufleet-removed-"


def _read(path):
    """Text of a file; empty for one that is gone, too large or none of ours to read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(MOST_BYTES)
    except OSError:
        return ""


def folders(root):
    """Paths below ``root`` that are folders and no links."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def engines(root):
    """Engines that this collection made. One without its marker was made by somebody else and is not seen here."""
    return _marked(root, _venv.MARKER_NAME, lambda text: _venv.parse_marker(text) is not None)


def models(root, repo):
    """Revisions of one repository that this collection loaded."""

    def is_of_repo(text):
        manifest = _hub.read_manifest(text)
        return manifest is not None and manifest.repo == repo

    return _marked(root, _hub.MANIFEST_NAME, is_of_repo)


def _marked(root, marker_name, is_ours):
    found = []
    for path in folders(root):
        marker = os.path.join(path, marker_name)
        if not os.path.basename(path).startswith(".") and os.path.isfile(marker) and is_ours(_read_whole(marker)):
            found.append(Version(path, os.stat(marker).st_mtime))
    return found


def _read_whole(path):
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def left_over(root):
    """Folders that an interrupted removal left."""
    return [path for path in folders(root) if os.path.basename(path).startswith(REMOVED_PREFIX)]


def needs_and_backups(state_dir, unit_dirs=UNIT_DIRS, proc_root="/proc"):
    """Texts that name what is needed, and texts of the other backups; see ``_unused.decide``.

    Raises ValueError (``_proof.Unreadable``) for a memory that cannot be read: it may need anything.
    """
    needs = [Text("the unit %s" % path, _read(path)) for folder in unit_dirs for path in _unit_files(folder)]
    needs += [Text("a process", content) for content in _command_lines(proc_root)]
    backups = []
    for path in folders(state_dir):
        store = _proof.Store(state_dir, os.path.basename(path))
        needs.append(Text("the proof of %s" % os.path.basename(path), json.dumps(store.proof() or {})))
        replaced = (store.change() or {}).get("backup")
        for manifest in store.backups():
            content = json.dumps(manifest) + "".join(
                _read(os.path.join(store.backup_directory, manifest["name"], entry["stored"]))
                for entry in manifest["files"]
                if entry["stored"]
            )
            if manifest["kind"] == "baseline" or manifest["name"] == replaced:
                needs.append(Text("the backup %s of %s" % (manifest["name"], os.path.basename(path)), content))
            else:
                backups.append(Text("the backup %s" % manifest["name"], content, manifest["at"]))
    return needs, backups


def held_by(state_dir, run_dir=_proof.RUN_DIR):
    """Who holds an instance of this host at present, in words; empty when nobody does."""
    for path in folders(state_dir):
        lease = _proof.Store(state_dir, os.path.basename(path), run_dir).lease()
        if lease:
            return "the instance %s is leased by %s" % (os.path.basename(path), lease.get("who"))
    return ""


def _unit_files(folder):
    return sorted(
        glob.glob(os.path.join(folder, "*.service")) + glob.glob(os.path.join(folder, "*.service.d", "*.conf"))
    )


def _command_lines(proc_root):
    found = []
    for path in glob.glob(os.path.join(proc_root, "[0-9]*", "cmdline")):
        found.append(_read(path).replace("\0", " "))
    return [line for line in found if line]


def remove(path):
    """Remove a version whole. Interrupted, it leaves a folder that no longer looks like one; see ``left_over``."""
    folder, name = os.path.split(path.rstrip("/"))
    if not name.startswith(REMOVED_PREFIX):
        target = os.path.join(folder, REMOVED_PREFIX + name)
        if os.path.lexists(target):
            shutil.rmtree(target)
        os.rename(path, target)
        path = target
    shutil.rmtree(path)
