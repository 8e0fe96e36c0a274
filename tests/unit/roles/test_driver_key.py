# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the role nvidia_driver takes the key of its repository from: an address is no file of the controller."""

from __future__ import annotations

import jinja2
import pytest
import tree
import yaml

TASKS = yaml.safe_load((tree.ROOT / "roles" / "nvidia_driver" / "tasks" / "repository.yml").read_text())


def key_of(place, fetched):
    """Return what the module is given. A file that is not there fails as it does in ansible-core 2.18."""
    tasks = [task for block in TASKS for task in block.get("block", [])]
    text = next(
        task["gpufleet.sglang.driver_repository"]["key"]
        for task in tasks
        if "gpufleet.sglang.driver_repository" in task
    )

    def lookup(_plugin, path):
        if "://" in path:
            raise FileNotFoundError(f"The 'file' lookup had an issue accessing the file '{path}'.")
        return "key of " + path

    names = {"__nvidia_driver_key": place, "__nvidia_driver_fetched": fetched, "lookup": lookup}
    return jinja2.Template(text).render(names)


@pytest.mark.parametrize(
    ("place", "fetched", "key"),
    [
        ("https://mirror.example.com/key.pub", {"content": "key that was fetched"}, "key that was fetched"),
        ("/srv/key.asc", {"skipped": True}, "key of /srv/key.asc"),
    ],
)
def test_the_key(place, fetched, key):
    assert key_of(place, fetched) == key
