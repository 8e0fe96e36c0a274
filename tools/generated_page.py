# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page of docs/ whose tables come from a catalogue of the collection, so that the two cannot differ.

A tool of one page is run without arguments to write it, and with --check to write nothing and exit 1 when it is stale.
The page gets its tables between its lines ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import tree


def catalogues(*names):
    """Import rooms of module_utils from the checkout and return them."""
    sys.path.insert(0, str(tree.link().parents[2]))
    return [
        importlib.import_module("ansible_collections.gpufleet.sglang.plugins.module_utils." + name) for name in names
    ]


def cell(text):
    """Return a text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


@dataclass(frozen=True)
class Page:
    """docs/TOOL.md. C(tool): the name of the tool that writes it; C(tables): its lines between the markers."""

    tool: str
    marker: str
    tables: Callable[[], list[str]]

    @property
    def path(self):
        return tree.ROOT / "docs" / f"{self.tool}.md"

    def fresh(self) -> str:
        """Return the page with fresh tables."""
        block = re.compile(f"(<!-- begin {self.marker} -->\n).*?(<!-- end {self.marker} -->)", re.DOTALL)
        body = "\n".join(self.tables())
        return block.sub(lambda found: found[1] + "\n" + body + found[2], self.path.read_text())

    def stale(self) -> bool:
        """Tell whether the page does not hold what it should."""
        return self.path.read_text() != self.fresh()

    def main(self, arguments: list[str]) -> int:
        """Write the page where it is stale, or say so with --check; return the exit status."""
        if not self.stale():
            return 0
        if "--check" in arguments:
            print(f"{self.tool}: docs/{self.tool}.md is not fresh: run tools/{self.tool}.py")
            return 1
        self.path.write_text(self.fresh())
        print(f"{self.tool}: wrote docs/{self.tool}.md")
        return 0
