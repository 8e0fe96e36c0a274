# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the way back. Copies of files with a manifest, and putting them back to the letter.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil

from ansible_collections.gpufleet.sglang.plugins.module_utils._proof import write_json


def sha256_of(path):
    """SHA-256 of a file in hex; None when it is not there."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except FileNotFoundError:
        return None


def take(directory, manifest, paths, only_read=()):
    """Copy the files to ``directory`` and write the manifest last: a backup without one is none.

    A disk that is full leaves nothing of it, because a copy may hold a key. What a run leaves that is killed in it is
    removed by the next close, see ``Store.remove_half_made_backups``.

    :arg paths: absolute paths; one that does not exist is recorded as absent, so that putting back removes it.
    :arg only_read: of files that others use too: kept to tell what was started, never compared and never put back.
    """
    os.makedirs(directory, mode=0o700)
    try:
        files = _copied(directory, paths, only_read)
        write_json(os.path.join(directory, "manifest.json"), dict(manifest, files=files))
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _copied(directory, paths, only_read):
    files = []
    for number, path in enumerate([*paths, *only_read]):
        digest = sha256_of(path)
        entry = {"path": path, "sha256": digest, "stored": None, "only_read": path in only_read}
        if digest is not None:
            entry["stored"] = "%02d-%s" % (number, os.path.basename(path))
            status = os.stat(path)
            entry.update(mode=status.st_mode & 0o7777, uid=status.st_uid, gid=status.st_gid)
            shutil.copyfile(path, os.path.join(directory, entry["stored"]))
            os.chmod(os.path.join(directory, entry["stored"]), 0o600)
        files.append(entry)
    return files


def differences(manifest):
    """Paths on the host that are not as the manifest has them."""
    owned = [entry for entry in manifest["files"] if not entry.get("only_read")]
    return [entry["path"] for entry in owned if sha256_of(entry["path"]) != entry["sha256"]]


def put_back(directory, manifest):
    """Make every file of the manifest what it was. Returns the paths that changed."""
    changed = differences(manifest)
    for entry in manifest["files"]:
        if entry["path"] not in changed:
            continue
        if entry["stored"] is None:
            os.unlink(entry["path"])
            continue
        os.makedirs(os.path.dirname(entry["path"]), exist_ok=True)
        _replace(os.path.join(directory, entry["stored"]), entry)
    return changed


# The program of a unit and the folder of its model, as a word or quoted. A path with "%" in it is systemd's to read.
PATH = r"(?:\"(/[^\"]+)\"|(/[^\s\"';]+))"
NEEDED = (re.compile(r"(?m)^ExecStart=[-@:+!]*" + PATH), re.compile(r"--model(?:-path)?\"?[\s=]+" + PATH))


def gone(directory, manifest):
    """Paths that a stored unit needs and that are no longer on the host: its program, or its model in a folder."""
    texts = []
    for entry in manifest["files"]:
        if entry["stored"] and entry["path"].endswith((".service", ".conf")):
            with open(os.path.join(directory, entry["stored"]), encoding="utf-8", errors="replace") as stream:
                texts.append(stream.read())
    needed = [path for text in texts for pattern in NEEDED for pair in pattern.findall(text) for path in pair if path]
    return sorted({path for path in needed if "%" not in path and not os.path.exists(path)})


def line(summary, is_as_now=False):
    """A backup in one line, for the person who chooses one.

    :arg summary: ``{"name", "kind", "soaked", "engine_version", "pool_tokens", "fraction", "serving", "gone"}``, see
        ``_change``.
    :arg is_as_now: what it holds is what runs.
    """
    # Without a load that it survived a configuration holds, and is not proven.
    recorded = "proven" if summary["soaked"] else "holds, proven by no load"
    parts = [summary["name"], {"proof": recorded, "baseline": "not proven", "empty": "nothing"}[summary["kind"]]]
    if summary["kind"] == "proof":
        pool = summary.get("pool_tokens")
        parts.append("engine %s" % summary.get("engine_version"))
        parts.append("pool %s tokens" % ("unknown" if pool is None else f"{pool:,}"))
        parts.append("fraction %s" % summary.get("fraction"))
    parts.append("%s served" % ", ".join(summary["serving"]) if summary["serving"] else "nothing served")
    if summary.get("gone"):
        parts.append("no longer on the host: %s" % ", ".join(summary["gone"]))
    return ", ".join(parts) + (" (as it is now)" if is_as_now else "")


def _replace(source, entry):
    """Put one stored file in place; root's alone until owner and mode are what they were (it may hold a key)."""
    temporary = entry["path"] + ".way-back"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "wb") as target, open(source, "rb") as stored:
            shutil.copyfileobj(stored, target)
        os.chown(temporary, entry["uid"], entry["gid"])
        os.chmod(temporary, entry["mode"])
        os.replace(temporary, entry["path"])
    except BaseException:
        os.unlink(temporary)
        raise


def unit_still_runs(before, now, changed_files=()):
    """Does the unit run what it ran when the manifest was written, so that no restart is needed?

    The same invocation does. Another one does when it has the same configuration and read the same keys: a process
    that we configured carries its hash, a hand-made one carries none, before and after.

    :arg before: the unit's entry of the manifest (``active``, ``config_hash``, ``invocation_id``).
    :arg now: the same fields as they are now.
    :arg changed_files: files of the manifest that are not as they were.
    """
    if not (before.get("active") and now.get("active")):
        return False
    if before.get("invocation_id") and before["invocation_id"] == now.get("invocation_id"):
        return True
    return before.get("config_hash") == now.get("config_hash") and not changed_files
