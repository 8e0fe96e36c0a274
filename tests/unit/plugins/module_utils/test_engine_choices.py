# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine: lists of choices in the forms in which sources of SGLang write them."""

from __future__ import annotations

import ast

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _engine, _engine_choices

# Forms of sglang 0.4.9, 0.5.8, 0.5.14 and 0.5.23.
SOURCE = """
from sglang.srt.lists import LISTED, Backend as Graph, ALL_MODULES
from sglang.srt.package import Passed
from sglang.srt.package import Stars
from .near import NEAR

PLAIN = ["a", "b"]
SUMMED = PLAIN + ["c"]
SPREAD = [*PLAIN, "d"]
SAME = PLAIN  # deprecated alias
PARENTHESES = (
    "a",
    # a comment
    "b",
)
BUILT_IN = frozenset({"x"})
COPY = set(BUILT_IN)
COPY.add("later")
GROWING = ["g"]
add_growing_choices = GROWING.extend
TWICE = ["a"]
TWICE = ["b"]
COMPUTED = [name.lower() for name in PLAIN]
CHOSEN = PLAIN if COMPUTED else SUMMED
TO_ITSELF = TO_ITSELF + ["a"]
NUMBERS = [0, 1]
FIRST = "first"
NAMED = [FIRST, "second"]


class Parsers:
    Map = {"one": object, "two": object}
    FULL = "full"
    ALL = (FULL, "none")


def _choices():
    if PLAIN:
        return computed()
    from sglang.srt.lists import LISTED

    return list(LISTED)
"""
LISTS = """
\"\"\"Text of the module.\"\"\"
import os

OTHER = ["no"]
LISTED = [
    "l1",
    "l2",
] + OTHER
ALL_MODULES = "all"


class Backend:
    ALL = ("full", "disabled")
"""


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "srt" / "package"
    folder.mkdir(parents=True)
    (tmp_path / "srt" / "lists.py").write_text(LISTS)
    (folder / "__init__.py").write_text("from .inner import Passed\nfrom sglang.srt.package.stars import *\n")
    (folder / "inner.py").write_text("Passed = ('p',)\n")
    (folder / "stars.py").write_text("Stars = {'s': 1}\n")
    return _engine_choices.Sources(str(tmp_path))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('["a", 1, 0.5]', ("a", 1, 0.5)),
        ("PLAIN", ("a", "b")),
        ("SUMMED", ("a", "b", "c")),
        ("SPREAD", ("a", "b", "d")),
        ("SAME", ("a", "b")),
        ("PARENTHESES", ("a", "b")),
        ("sorted(PLAIN)", ("a", "b")),
        ("COPY", ("x", "later")),
        ("GROWING", ("g",)),
        ("NUMBERS", (0, 1)),
        ("NAMED", ("first", "second")),
        ("PLAIN + [ALL_MODULES]", ("a", "b", "all")),
        ("list(Parsers.Map.keys())", ("one", "two")),
        ("list(Parsers.Map)", ("one", "two")),
        ("Parsers.ALL", ("full", "none")),
        ("Graph.ALL", ("full", "disabled")),
        ("LISTED", ("l1", "l2", "no")),
        ("Passed", ("p",)),
        ("Stars", ("s",)),
        ('["auto"] + _choices()', ("auto", "l1", "l2", "no")),
        # What must be run to be known.
        ("TWICE", None),
        ("COMPUTED", None),
        ("CHOSEN", None),
        ("TO_ITSELF", None),
        ("NEAR", None),
        ("nowhere", None),
        ("Parsers.nothing", None),
        ("PLAIN + nowhere", None),
        ("list(PLAIN, key=1)", None),
        ("call(1)", None),
        ("unknown()", None),
        ("a.b.c", None),
        ("None", None),
    ],
)
def test_a_list_of_choices(sources, expression, expected):
    scope = _engine_choices.Scope(ast.parse(SOURCE), sources)
    assert _engine_choices.elements(ast.parse(expression, mode="eval").body, scope) == expected


def test_names_of_the_registering_function_count():
    text = """
class Args:
    def add_cli_args(parser):
        chosen = set(PLAIN)
        if envs.ORACLE.get():
            chosen.add("oracle")
        parser.add_argument("--x", choices=chosen)
        parser.add_argument("--y", choices=["auto"] + late())
PLAIN = ["a"]
"""
    found = {argument.name: argument.choices for argument in _engine.arguments_in_source(text)}
    assert found == {"x": ("a", "oracle"), "y": None}


def test_only_statements_about_a_name_are_parsed():
    text = "A = [\n    1,\n]\nB = 2\nif x:\n    A = 3\n\ndef A2():\n    pass\nA.add(4)\nfrom m import (\n    C,\n)\n"
    assert _engine_choices.statements_about("A", text) == "A = [\n    1,\n]\nA.add(4)\nfrom m import (\n    C,\n)\n"


def test_a_module_outside_the_engine_is_not_read(sources):
    assert sources.text("os.path") == ("", False)
    assert sources.text("sglang.srt.absent") == ("", False)
    assert _engine_choices.Sources().text("sglang.srt.lists") == ("", False)
