# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: origins. Where each argument and each variable of the environment of a server comes from.

Private to the gpufleet.sglang collection; may change at any time. Pure.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts import ALLOCATOR_NAMES
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data

PLAN = "plan"
PROOF = "proof"
AUTO = "auto"

# Options of a plan that set an argument or a variable when they are declared, by its name.
DECLARED = {
    "mem-fraction-static": "mem_fraction_static",
    "chunked-prefill-size": "chunked_prefill_size",
    "context-length": "context_tokens",
    **dict.fromkeys(ALLOCATOR_NAMES, "allocator_conf"),
}
VARIABLE_PREFIX = "sglang_server_"

HEADINGS = ("argument or variable", "value", "from")


def settings(values, origins, options, kept=False):
    """Each argument and variable of a configuration with its value and its origin, in the order of the configuration.

    :arg values: ``{"arguments": {...}, "environment": {...}}``.
    :arg origins: ``{"arguments": {name: origin}, "environment": {...}}`` of what the inventory's layers declare.
    :arg options: options of ``memory_plan``; those that are not ``auto`` are the user's.
    :arg kept: the configuration is that of a proof, so what nobody declared was planned then.
    :returns: list of ``{"kind": "argument" | "environment", "name", "value", "origin"}``; secrets are masked.
    """
    found = []
    for kind, group in (("argument", "arguments"), ("environment", "environment")):
        declared = (origins or {}).get(group) or {}
        for name, value in mask_data((values or {}).get(group) or {}).items():
            origin = declared.get(name) or _variable_of(name, options) or (PROOF if kept else PLAN)
            found.append({"kind": kind, "name": name, "value": value, "origin": origin})
    return found


def _variable_of(name, options):
    option = DECLARED.get(name)
    declared = options.get(option) if option else None
    return VARIABLE_PREFIX + option if declared not in (None, "", AUTO) else None


def table(rows):
    """The settings as aligned lines, without a line break inside a row."""
    if not rows:
        return []
    cells = [HEADINGS] + [
        (("--" if row["kind"] == "argument" else "") + row["name"], " ".join(str(row["value"]).split()), row["origin"])
        for row in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(2)]
    return ["  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]), row[2]]) for row in cells]
