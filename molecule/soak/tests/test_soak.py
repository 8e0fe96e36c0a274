"""What the load said of every configuration, beside what it should have said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
WANTED = yaml.safe_load((HERE.parent / "vars" / "cases.yml").read_text())
CASES = {case["name"]: case for case in WANTED["cases"]}
RESULTS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", WANTED["load_hosts"])
def test_a_load_tells_what_a_start_does_not(name, case):
    said = json.loads((RESULTS / f"{name}.{case}.json").read_text())
    failure = said["failure"] or {}
    request = failure.get("request") or {}
    knobs = CASES[case].get("knobs", {})
    found = {
        **{key: failure.get(key) for key in ("kind", "direction")},
        "board": (said["at"] or {}).get("board"),
        "retracted": bool(said["retractions"]),
        "grows": said["growth_mib_per_request"] == pytest.approx(knobs.get("growth_mib_per_request", 0), rel=0.1),
        **said,
    }
    expected = dict(CASES[case]["expect"])
    assert expected.pop("reason_has", "") in said["reason"]
    longer_than = expected.pop("longer_than", None)
    not_before = expected.pop("not_before", 0)
    assert {key: found[key] for key in expected} == expected, said
    if longer_than:
        assert request["prompt_tokens"] > longer_than, said
    assert said["answered"] >= not_before, said
    assert said["memory_samples"] > 0
    assert set(said["least_free_gib"]) == {str(board) for board in range(8)}
