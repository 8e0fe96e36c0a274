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


def test_what_was_replaced_is_disabled_before_its_successor_is_enabled():
    """A host that restarts between the two must not start both on the same boards."""
    enabled = [(one["ansible.builtin.systemd_service"]["name"], one["ansible.builtin.systemd_service"]["enabled"])
               for one in tasks_of("settle.yml") if "ansible.builtin.systemd_service" in one]  # fmt: skip
    assert enabled == [("{{ __sglang_server.adopt_unit }}", False), ("{{ __sglang_server_unit }}", True)]


def test_a_name_that_cannot_be_freed_is_refused_in_the_look():
    """Behind restart and load the change would stay open, and every later run would fail at it."""
    tasks = tasks_of("look.yml")
    refusal = task(tasks, "The name that is to be free can be freed")
    assert "ansible.builtin.assert" in refusal
    assert tasks.index(refusal) > tasks.index(task(tasks, "What is remembered, and what runs"))
    assert not [one for one in tasks_of("adopted_name.yml") if "ansible.builtin.assert" in one]
    # What an interrupted run left is settled or undone before anything is refused.
    assert "__sglang_server_info.open_change | default(none) is none" in refusal["when"]
    freed = task(tasks_of("settle.yml"), "The name of the unit that was replaced is free")
    assert "__sglang_server_info.adopted.name_refusal | length == 0" in freed["when"]


def test_what_cannot_be_adopted_is_refused_in_the_look():
    tasks = tasks_of("look.yml")
    refusal = task(tasks, "What is adopted can be adopted")
    assert refusal["ansible.builtin.assert"]["that"] == "__sglang_server_info.adopted.refusal | length == 0"
    assert tasks.index(refusal) < tasks.index(task(tasks, "What the server that is adopted runs, and teaches"))


def test_a_rollback_that_breaks_lets_go_of_the_instance():
    """Whether clients were sent away or not, and before the play fails."""
    rescue = task(tasks_of("rollback_instance.yml"), "Go there")["rescue"]
    released = task(rescue, "The instance is nobody's")
    assert released["gpufleet.sglang.server_snapshot"]["state"] == "released"
    assert "when" not in released
    assert rescue.index(released) < rescue.index(task(rescue, "It failed"))
    # This one ends with a failure of its own, and has released it by then.
    assert rescue[0]["ansible.builtin.include_tasks"] == "unheld.yml"
    unheld = tasks_of("unheld.yml")
    let_go = task(unheld, "Let go of it")
    assert let_go["ansible.builtin.include_tasks"] == "let_go.yml"
    assert "when" not in let_go
    assert unheld.index(let_go) < unheld.index(task(unheld, "Say why the run ends here"))
    released = task(tasks_of("let_go.yml"), "The instance is nobody's")
    assert released["gpufleet.sglang.server_snapshot"]["state"] == "released"
