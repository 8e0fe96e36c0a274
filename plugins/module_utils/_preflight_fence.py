# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What contradicts itself in the fence of a server. Private to this collection.

Part of the room `_preflight`; pure. A hook that is missing would be found when clients are away already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_host import Host, Instance, instances_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import SERVER, Finding

BEFORE = "fence_before_stop"
HOOKS = (BEFORE, "fence_after_proven", "fence_after_failed")


def check_fence(instance: Instance) -> Iterator[Finding]:
    """Hooks and the kind of fence belong together, and who is kept away is let back."""
    kind, given = instance.get("fence", "none"), [hook for hook in HOOKS if instance.get(hook)]
    if kind == "none" and given:
        yield Finding(
            SERVER + "fence",
            f"{SERVER}{given[0]}{instance.where} is set and {SERVER}fence is none, so it never runs: set {SERVER}fence "
            "to command or tasks.",
        )
    if kind not in ("command", "tasks"):
        return
    if BEFORE not in given:
        yield Finding(
            SERVER + BEFORE,
            f"{SERVER}fence{instance.where} is {kind} and {SERVER}{BEFORE} is empty, so nothing keeps clients away: "
            f"set it, or set {SERVER}fence to none.",
        )
    for hook in HOOKS[1:]:
        if BEFORE in given and hook not in given:
            yield Finding(
                SERVER + hook,
                f"{SERVER}{hook}{instance.where}: expected the hook that lets clients back whom {SERVER}{BEFORE} keeps "
                "away, found none: set it.",
            )


def hook_files(host: Host) -> list[tuple[str, str]]:
    """(label, absolute path) of each file of tasks that a hook names on the controller."""
    found = []
    for instance in instances_of(host):
        if instance.get("fence") == "tasks":
            paths = [(f"{SERVER}{hook}{instance.where}", str(instance.get(hook) or "")) for hook in HOOKS]
            found += [(label, path) for label, path in paths if os.path.isabs(path)]
    return list(dict.fromkeys(found))


def missing_file(label: str, path: str) -> Finding:
    """The finding for a file that is not there."""
    return Finding(
        label.split(" ", 1)[0],
        f"{label}: expected a file of tasks on the controller, found none at {path}: correct the path, or put it "
        "there.",
    )
