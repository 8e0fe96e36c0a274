"""Runs the role for each case of vars/cases.yml, and compares output and host with what is expected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCENARIO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCENARIO.parent / "shared" / "driver"))

import driver_cases  # noqa: E402


@pytest.fixture(scope="session")
def results():
    return driver_cases.run_cases(SCENARIO)


@pytest.mark.parametrize("case", driver_cases.cases_of(SCENARIO), ids=lambda case: case["name"])
def test_a_run_does_what_it_should(results, case):
    driver_cases.compare(case, results[case["name"]])
