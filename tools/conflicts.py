# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the tables of docs/conflicts.md from the catalogue of conflicts, so that the two cannot differ.

    .venv/bin/python tools/conflicts.py            write the page
    .venv/bin/python tools/conflicts.py --check    write nothing; exit 1 when the page is not fresh

The page gets the tables between its lines ``<!-- begin conflicts -->`` and ``<!-- end conflicts -->``.
"""

from __future__ import annotations

import re
import sys

from generated_page import Page, catalogues, cell

HEAD = "| | what | when | verdict | what happens | what to do | source |"
WORDS = {"<on>": "on", "<off>": "off", "<stated>": "stated", "<absent>": "not stated", "<empty>": "empty"}


def condition(when):
    """Return what a row asks for beside expandable segments, as text of a cell."""
    parts = []
    for name, values in when.arguments + when.variables + when.settings:
        parts.append("`{0}` {1}".format(name, " or ".join(value_text(value) for value in values)))
    if when.ranks:
        parts.append("ranks of a group on one host: " + ", ".join(map(str, when.ranks)))
    elif when.least_ranks > 1:
        parts.append("{0} ranks or more".format(when.least_ranks))
    for wanted, words in ((when.nvlink, "NVLink between all boards"), (when.peers, "boards read each other")):
        if wanted is not None:
            parts.append(words if wanted else "no " + words)
    if when.multimodal:
        parts.append("images or sound")
    if when.board:
        parts.append("boards named " + ", ".join(re.findall(r"[A-Z]\w+", when.board)))
    if when.since:
        parts.append("SGLang {0} and later".format(when.since))
    if when.before:
        parts.append("SGLang before {0}".format(when.before))
    if when.torch_before:
        parts.append("torch before {0}.{1}".format(*when.torch_before))
    if when.unless:
        parts.append("not " + " nor ".join("`{0}`".format(name) for name in when.unless))
    return ", ".join(parts) or "any"


def value_text(value):
    """Return a value that a row asks for; patterns as they are."""
    return WORDS.get(value) or "`{0}`".format(value.lstrip("~"))


def tables():
    """Return the lines between the markers of the page."""
    conflicts, rows = catalogues("_conflicts", "_conflicts_rows")
    lines = []
    for title, expandable in (("With expandable segments", True), ("With any allocator", False)):
        lines += ["### " + title, "", HEAD, "| --- " * 7 + "|"]
        for row in rows.CONFLICTS:
            if any(when.expandable for when in row.when) is not expandable:
                continue
            when = "; or ".join(condition(one) for one in row.when)
            verdict = row.level + (", the plan may choose them" if expandable and row.lever else "")
            texts = (row.row, row.name, when, verdict, row.happens, row.repair, row.source)
            lines.append("| " + " | ".join(cell(text) for text in texts) + " |")
        lines.append("")
    lines += ["### Known, and not asked for", "", "| | what | why | source |", "| --- " * 4 + "|"]
    for row in conflicts.ELSEWHERE:
        lines.append("| " + " | ".join(cell(text) for text in (row.row, row.name, row.why, row.source)) + " |")
    return [*lines, "", ""]


PAGE = Page("conflicts", "conflicts", tables)

if __name__ == "__main__":
    sys.exit(PAGE.main(sys.argv[1:]))
