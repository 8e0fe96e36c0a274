# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: drift. What on the host is not as it was proven, and what of it waits for the next restart.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import os

from ansible_collections.gpufleet.sglang.plugins.module_utils._snapshot import sha256_of

# Written by the role for a start that is not proven yet; it goes with the proof, and with a reboot.
CANDIDATE_DROP_IN = "10-gpufleet-candidate.conf"

# Where systemd looks for drop-ins of one unit that a person can have made (systemd.unit(5), "Unit File Load Path").
UNIT_DIRS = ("/etc/systemd/system", "/etc/systemd/system.control", "/run/systemd/system", "/run/systemd/system.control")

# A unit is a page of text. What is larger is no unit of ours, and is not to be carried around.
MOST_UNIT_BYTES = 262144


def folder_names(unit):
    """Names of the folders with drop-ins of a unit: its own, and those of its name cut behind each dash.

    ``service.d``, for all services of the host, is the site's own business.
    """
    stem, _dot, kind = unit.rpartition(".")
    cut = [stem[: position + 1] for position, sign in enumerate(stem) if sign == "-"]
    return ["%s.%s.d" % (name, kind) for name in [stem] + cut]


def lying_in(names, unit_dirs=UNIT_DIRS):
    """Paths of the drop-ins in folders of these names, loaded by systemd or not yet."""
    folders = [os.path.join(directory, name) for directory in unit_dirs for name in names]
    there = [folder for folder in folders if os.path.isdir(folder)]
    return {os.path.join(folder, name) for folder in there for name in os.listdir(folder) if name.endswith(".conf")}


def drop_ins(unit, loaded=(), unit_dirs=UNIT_DIRS):
    """Drop-ins of a unit that are not ours, loaded by systemd or only lying there. Sorted paths."""
    names = folder_names(unit)
    found = {path for path in loaded if os.path.basename(os.path.dirname(path)) in names}
    found |= lying_in(names, unit_dirs)
    return sorted(path for path in found if os.path.basename(path) != CANDIDATE_DROP_IN)


def drift(proof, files, foreign_drop_ins):
    """Paths that are not as they were proven; empty without a proof."""
    proven = (proof or {}).get("files") or {}
    changed = [path for path in files if path in proven and sha256_of(path) != proven[path]]
    return sorted(changed + (list(foreign_drop_ins) if proof else []))


def as_left(proof):
    """A proof behind which an unproven server is left to serve on: its files as the role itself left them are no drift.

    The paths are those of the proof; what it says of the configuration that was proven stays.
    """
    return dict(proof, files={path: sha256_of(path) for path in proof.get("files") or ()})


def pending(proof, invocation_id):
    """Directives that were written and wait for the next restart; none once another invocation runs."""
    written = (proof or {}).get("pending") or {}
    return list(written.get("items") or []) if written.get("invocation_id") == invocation_id else []


def text_of(path):
    """Text of a unit file; None when there is none."""
    if not path or not os.path.isfile(path) or os.path.getsize(path) > MOST_UNIT_BYTES:
        return None
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()
