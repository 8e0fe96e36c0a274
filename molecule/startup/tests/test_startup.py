"""What server_ready said of every start, beside what it should have said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
CASES = {case["name"]: case for case in yaml.safe_load((HERE.parent / "vars" / "cases.yml").read_text())["cases"]}
RESULTS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"


@pytest.fixture
def name(host):
    """Name of the host, as molecule knows it."""
    return host.backend.get_pytest_id().rpartition("/")[2]


@pytest.mark.parametrize("case", CASES)
def test_a_start_is_told_as_it_was(name, case):
    wanted = CASES[case]
    if name not in wanted["hosts"]:
        pytest.skip("a case of the other host")
    said = json.loads((RESULTS / f"{name}.{case}.json").read_text())
    failure = said["failure"] or {}
    assert said["invocation_id"] == said["started"], said
    found = {**{key: failure.get(key) for key in ("kind", "phase", "direction")}, **said}
    expected = dict(wanted["expect"])
    within_seconds = expected.pop("within_seconds", None)
    for words in expected.pop("says", []):
        assert words in f"{failure.get('evidence')} {failure.get('advice')} {said['notices']}", said
    ready_within_seconds = expected.pop("ready_within_seconds", None)
    if ready_within_seconds is not None:
        assert said["seconds_after_ready_line"] <= ready_within_seconds, said
    assert {key: found[key] for key in expected} == expected, said
    if within_seconds is not None:
        assert said["seconds_after_fatal_line"] <= within_seconds, said
    if failure:
        assert failure["evidence"], said
        assert failure["advice"], said
        assert failure["kind"] in said["reason"] or said["reason"].startswith("Nothing is proven: "), said
    else:
        assert said["answer"], said
