"""What each fault came to, beside what it should have come to."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent.parent
RESULTS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"
FAULTS = {fault["name"]: fault for fault in yaml.safe_load((HERE / "vars" / "faults.yml").read_text())["faults"]}

specification = importlib.util.spec_from_file_location("table", HERE / "table.py")
table = importlib.util.module_from_spec(specification)
specification.loader.exec_module(table)

WANTED = os.environ.get("FAULTS") or "short"


def is_wanted(name):
    if WANTED in ("all", "short"):
        return WANTED == "all" or FAULTS[name].get("short", False)
    return name in WANTED.split(",")


@pytest.fixture(scope="module")
def results():
    return {result["fault"]["name"]: result for result in table.read(HERE / "vars" / "faults.yml", RESULTS)}


@pytest.mark.parametrize("name", [name for name in FAULTS if is_wanted(name)])
def test_it_ends_proven_or_back_or_cleanly_stopped(results, name):
    assert name in results, "it never ran to its end"
    assert table.wrong(results[name]) == [], results[name]["seen"]


def test_the_table_calls_wrong_what_is_wrong(results):
    """A look that shows another server than the one that was expected, a change that is open, and what was left."""
    result = next(iter(results.values()))
    assert table.wrong(result) == []
    after = dict(result["seen"]["after_next"], by="main", context_tokens=1, open=True, left=["/run/x"])
    problems = table.wrong(dict(result, seen=dict(result["seen"], after_next=after)))
    assert any("context 1 serves" in problem for problem in problems)
    if result["fault"]["expect"]["serves"][1] != "nothing":
        assert "a change is open" in problems
        assert "left behind: ['/run/x']" in problems
