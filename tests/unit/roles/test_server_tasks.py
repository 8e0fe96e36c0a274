"""Tasks of the role whose order, or whose condition, keeps a host from harm when a run ends in the middle."""

from __future__ import annotations

import jinja2
import pytest
import tree
import yaml

TASKS = tree.ROOT / "roles" / "sglang_server" / "tasks"


def tasks_of(name: str) -> list[dict]:
    return yaml.safe_load((TASKS / name).read_text())


def task(tasks: list[dict], name: str) -> dict:
    (found,) = [one for one in tasks if one["name"].endswith("| " + name)]
    return found


def rendered(text: str, **variables) -> str:
    return jinja2.Environment(autoescape=False).from_string(text).render(**variables)  # noqa: S701 (no page for a browser)


@pytest.mark.parametrize(("drain_seconds", "boards_wait_seconds", "seconds"), [(30, 60, 240), ("600", 0, 750)])
def test_the_lease_lasts_over_the_stop_and_the_start_of_a_way_back(drain_seconds, boards_wait_seconds, seconds):
    busy = task(tasks_of("way_back.yml"), "Put the files back")["gpufleet.sglang.server_snapshot"]["busy_seconds"]
    settings = {"drain_seconds": drain_seconds, "boards_wait_seconds": boards_wait_seconds}
    assert rendered(busy, __sglang_server=settings) == str(seconds)
