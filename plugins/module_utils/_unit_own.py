# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: unit, which of its files are its own, so that they can be replaced, put back and removed with it.

Private to the gpufleet.sglang collection; may change at any time.

systemd also reads for a unit what others read too: the template of all its instances, drop-ins of all services
(``service.d``) or of all names that begin alike (``sglang-.service.d``), and what a package brings
(systemd.unit(5), "Unit File Load Path"). Nothing of that is ours to touch.
"""

from __future__ import annotations

import os

from ansible_collections.gpufleet.sglang.plugins.module_utils._drift import UNIT_DIRS, lying_in


def own_fragment(record, unit_dirs=UNIT_DIRS):
    """The unit file when it is this unit's alone and the site's; None for a template, a package's or an alias.

    Below /usr a unit belongs to a package, below /run/systemd/transient to a command.

    :arg record: a unit as ``_service.describe`` returns it.
    """
    folder, name = os.path.split(record["fragment_path"] or "")
    return record["fragment_path"] if folder in unit_dirs and name == record["name"] else None


def own_files(record, unit_dirs=UNIT_DIRS):
    """The unit file and the drop-ins that are this unit's alone. Sorted paths."""
    found = {own_fragment(record, unit_dirs)} - {None}
    return sorted(found | lying_in([record["name"] + ".d"], unit_dirs))


def read_files(record, drop_ins=(), unit_dirs=UNIT_DIRS):
    """What tells what the unit starts, and is not its own: kept to be read, never put back. Sorted paths.

    :arg drop_ins: those that are put back with it all the same.
    """
    loaded = [record["fragment_path"], *record["drop_in_paths"]]
    return sorted(set(filter(None, loaded)) - set(own_files(record, unit_dirs)) - set(drop_ins))


def name_refusal(record, unit_dirs=UNIT_DIRS):
    """Why the name of this unit cannot be freed, in one sentence; "" when it can, and when there is no such unit."""
    path = record["fragment_path"]
    if not path or own_fragment(record, unit_dirs):
        return ""
    if os.path.basename(path) != record["name"]:
        why = "which other units are made from too"
    else:
        why = "which is not the site's to remove"
    return (
        "Expected the unit %s to have a file of its own below %s, found %s, %s; set sglang_server_adopted_name: keep."
        % (record["name"], unit_dirs[0], path, why)
    )
