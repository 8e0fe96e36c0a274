"""The order in which the driver's tasks ask, refuse and change: nothing is stopped or booted before it was asked for."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]


def names(path):
    """Return the names of all tasks of a file, those of blocks too, in order."""

    def walk(tasks):
        for task in tasks:
            yield task.get("name", "")
            for part in ("tasks", "block", "rescue", "always"):
                yield from walk(task.get(part, []))

    return list(walk(yaml.safe_load((ROOT / path).read_text())))


def in_order(path, *wanted):
    found = names(path)
    places = [found.index(name) for name in wanted]
    assert places == sorted(places), wanted


def test_servers_that_nobody_would_prove_are_met_before_any_is_stopped():
    in_order(
        "playbooks/driver.yml",
        "Look whether anything changes",
        "Every server of the host is one that the inventory names",
        "Hold the servers, keep clients away and stop them",
        "Change the driver",
    )
