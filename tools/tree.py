# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lays the checkout out where Ansible's tools expect a collection.

    tree.py link   .build/devtree/ansible_collections/gpufleet/sglang -> the checkout (imports of the unit tests)
    tree.py copy DIR
                   DIR/ansible_collections/gpufleet/sglang = a real copy of what git tracks or would add
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".build"
INSIDE = Path("ansible_collections", "gpufleet", "sglang")


def content() -> list[str]:
    """Paths below the checkout that belong to the collection: tracked, or untracked and not ignored."""
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    ).stdout.decode()
    return sorted({path for path in listing.split("\0") if path and (ROOT / path).is_file()})


def link() -> Path:
    """Link the checkout into a collections folder, for imports without an installation."""
    place = BUILD / "devtree" / INSIDE
    place.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(ROOT, place.parent)
    if not (place.is_symlink() and os.readlink(place) == target):
        place.unlink(missing_ok=True)
        place.symlink_to(target)
    return place


def copy(folder: Path) -> Path:
    """Make ``folder`` hold a fresh copy; files that did not change keep their times, so that caches stay good."""
    place = folder / INSIDE
    wanted = content()
    keep = set(wanted)
    for old in sorted(place.rglob("*"), reverse=True) if place.is_dir() else ():
        if ".git" in old.relative_to(place).parts:
            continue
        if old.is_dir() and not old.is_symlink():
            if not any(old.iterdir()):
                old.rmdir()
        elif str(old.relative_to(place)) not in keep:
            old.unlink()
    for path in wanted:
        destination = place / path
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, destination)
    return place


def main(arguments: list[str]) -> int:
    if arguments == ["link"]:
        print(link())
    elif len(arguments) == 2 and arguments[0] == "copy":
        print(copy(Path(arguments[1]).resolve()))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
