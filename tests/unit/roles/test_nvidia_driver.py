# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expressions of the role nvidia_driver that no scenario meets here, and what is written in two places."""

from __future__ import annotations

import re

import jinja2
import jinja2.nativetypes
import pytest
import tree
import yaml
from ansible.plugins.filter import core, mathstuff

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_state, _driver_tables

ROLE = tree.ROOT / "roles" / "nvidia_driver"
TASKS = yaml.safe_load((ROLE / "tasks" / "repository.yml").read_text())


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


def test_what_is_kept_out_is_what_is_looked_for():
    """A module that is looked for and not kept out would make a boot due for ever."""
    kept_out = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["__nvidia_driver_rivals"]
    assert sorted(kept_out) == sorted(_driver_tables.RIVALS)


def initramfs(programs, images, is_rpm):
    """Return (whether it is refused, what is run) on a host with these programs and images in /boot."""
    tasks = {
        task["name"].partition(" | ")[2]: task
        for task in yaml.safe_load((ROLE / "tasks" / "initramfs.yml").read_text())
    }
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters.update(extract=core.extract, bool=bool)
    names = {"__nvidia_driver_is_rpm": is_rpm, "__nvidia_driver_initramfs_images": {"matched": len(images)}}

    def value(text):
        return environment.from_string(text).render(names)

    paths = value(variables["__nvidia_driver_initramfs_paths"])
    results = [{"item": path, "stat": {"exists": path in programs}} for path in paths]
    names["__nvidia_driver_initramfs_programs"] = {"results": results}
    commands = value(variables["__nvidia_driver_initramfs_commands"])
    names["__nvidia_driver_initramfs_commands"] = commands
    refused = all(value("{{ " + one + " }}") for one in tasks["Nobody makes it"]["when"])
    make = tasks["Make it anew"]
    runs = value("{{ " + make["when"] + " }}")
    return refused, value(make["ansible.builtin.command"]["argv"]) if runs else None


UPDATE = ["update-initramfs", "-u", "-k", "all"]
DRACUT = ["dracut", "--force", "--regenerate-all"]
BOTH = ["/usr/bin/dracut", "/usr/sbin/update-initramfs"]


@pytest.mark.parametrize(
    ("programs", "images", "is_rpm", "refused", "run"),
    [
        (["/usr/sbin/update-initramfs"], ["initrd.img-6.1.0-40-amd64"], False, False, UPDATE),
        (BOTH, ["initrd.img-6.14.0-24-generic"], False, False, UPDATE),
        (["/usr/sbin/dracut"], ["initrd.img-6.17.0-5-generic"], False, False, DRACUT),
        (BOTH, ["initramfs-5.14.0-570.el9.x86_64.img"], True, False, DRACUT),
        ([], ["initramfs-linux.img"], False, True, None),
        ([], [], False, False, None),
    ],
    ids=["Debian", "both", "dracut alone", "RHEL", "another program", "no initramfs"],
)
def test_an_initramfs_that_nobody_makes_is_not_called_made(programs, images, is_rpm, refused, run):
    assert initramfs(programs, images, is_rpm) == (refused, run)


def test_an_uninstallation_removes_what_it_knows_only():
    """The folder of what is remembered is a variable: with /var/lib/sglang it held the proofs of every server too."""
    tasks = yaml.safe_load((ROLE / "tasks" / "remove.yml").read_text())
    files = [task["ansible.builtin.file"]["path"] for task in tasks if "ansible.builtin.file" in task]
    assert files == ["{{ item }}"], "a loop over named files"
    loop = next(task["loop"] for task in tasks if "ansible.builtin.file" in task)
    assert "nvidia_driver_state_dir" not in loop
    rmdir = next(task["ansible.builtin.command"]["argv"] for task in tasks if "ansible.builtin.command" in task)
    assert rmdir[:2] == ["rmdir", "--ignore-fail-on-non-empty"]


def planned(name, mig_wanted="enabled", mig_text="0, Disabled, Disabled\n", changes_driver=False, reboot_ok=False):
    """Return what plan.yml says under ``name`` on a host that serves, and that needs no boot for its driver."""
    tasks = yaml.safe_load((ROLE / "tasks" / "plan.yml").read_text())
    facts = next(
        task["ansible.builtin.set_fact"]
        for task in tasks
        if "nvidia_driver_changes" in task.get("ansible.builtin.set_fact", {})
    )
    texts = {
        **facts,
        "asserted": next("{{ " + task["when"] + " }}" for task in tasks if "ansible.builtin.assert" in task),
    }
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters.update(bool=bool)
    looked = mig_text if mig_wanted != "keep" else ""
    names = {
        "__nvidia_driver_plan": {"changes_driver": changes_driver, "reboot": False},
        "__nvidia_driver_mig": _driver_state.mig_modes(looked, mig_wanted),
        "__nvidia_driver_due": False,
        "nvidia_driver_reboot_ok": reboot_ok,
    }
    boots = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["__nvidia_driver_mig_boots"]
    names["__nvidia_driver_mig_boots"] = environment.from_string(boots).render(names)
    return environment.from_string(texts[name]).render(names)


def changes(*arguments, **more):
    return planned("nvidia_driver_changes", *arguments, **more)


def test_a_mig_mode_that_is_wanted_is_a_change_for_which_servers_stop():
    assert changes() is True
    assert changes("disabled") is False
    assert changes("keep") is False
    assert changes("keep", changes_driver=True) is True


def test_a_mig_mode_that_waits_for_a_boot_is_one_too_when_the_host_may_boot():
    """The run before has switched it: nothing is left to switch, and the boot would come under servers."""
    waits = "0, Disabled, Enabled\n"
    assert changes(mig_text=waits, reboot_ok=True) is True
    assert changes(mig_text=waits) is False, "this run boots nothing"
    assert planned("nvidia_driver_reboot_needed", mig_text=waits) is True
    assert planned("nvidia_driver_reboot_needed") is False
    assert planned("asserted", mig_text=waits, reboot_ok=True) is True
    assert planned("asserted", mig_text=waits) is False


def test_what_mig_was_in_an_earlier_play_does_not_count():
    tasks = yaml.safe_load((ROLE / "tasks" / "look.yml").read_text())
    facts = next(task["ansible.builtin.set_fact"] for task in tasks if "ansible.builtin.set_fact" in task)
    text = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["__nvidia_driver_mig"]
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters["gpufleet.sglang.driver_mig"] = _driver_state.mig_modes
    before = {"__nvidia_driver_mig_now": {"mig": "0, Disabled, Disabled\n"}, "nvidia_driver_mig": "enabled"}
    assert environment.from_string(text).render(before) == {"switch": ["0"], "due": []}
    now = {**before, "__nvidia_driver_mig_now": facts["__nvidia_driver_mig_now"]}
    assert environment.from_string(text).render(now) == {"switch": [], "due": []}


def test_servers_that_a_boot_started_are_stopped_again_before_mig_changes():
    """They are enabled: the boot that brings the driver starts them, while this run has sent their clients away."""
    tasks = yaml.safe_load((ROLE / "tasks" / "mig.yml").read_text())
    names = [task["name"] for task in tasks]
    again = tasks[names.index("MIG | Servers that this run has stopped, and a boot has started")]
    assert names.index(again["name"]) < names.index("MIG | Only on boards that nobody uses")
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters.update(regex_replace=core.regex_replace, intersect=mathstuff.intersect)
    paused = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["__nvidia_driver_paused"]
    paused = environment.from_string(paused).render(sglang_server_paused=["main"])
    assert paused == ["sglang-main.service"]
    now = {"servers": ["sglang-main.service", "sglang-other.service"]}
    loop = again["block"][0]["loop"]
    stopped = environment.from_string(loop).render(__nvidia_driver_now=now, __nvidia_driver_paused=paused)
    assert list(stopped) == ["sglang-main.service"], "another run's server is not"


def unattended(plan, installed):
    """Return the names that unattended upgrades leave on a host."""
    variables = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters.update(bool=bool)
    environment.tests["match"] = lambda value, pattern: re.match(pattern, value) is not None
    names = {
        "__nvidia_driver_plan": {"packages": [{"name": name, "version": None} for name in plan]},
        "__nvidia_driver_info": {"packages": dict.fromkeys(installed, "1")},
        "__nvidia_driver_unattended_parts": variables["__nvidia_driver_unattended_parts"],
    }
    for name in ("__nvidia_driver_prebuilt", "__nvidia_driver_unattended_names"):
        names[name] = environment.from_string(variables[name]).render(names)
    return names["__nvidia_driver_unattended_names"]


def left(name, patterns):
    """unattended-upgrades takes each as a regular expression for the beginning of a name (its README)."""
    return any(re.match(pattern, name) for pattern in patterns)


def test_unattended_upgrades_leave_every_part():
    names = unattended(["libcuda1"], [])
    more = ["firmware-nvidia-gsp", "linux-objects-nvidia-580-server-6.8.0-60-generic", "xserver-xorg-video-nvidia-580"]
    for name in [*_driver_tables.OTHER_NAMES, "libnvidia-ml1", "nvidia-driver-cuda", "cuda-drivers-580", *more]:
        assert left(name, names), name
    assert not left("linux-image-6.1.0-41-amd64", names), "DKMS builds for it"


def test_unattended_upgrades_bring_no_kernel_without_its_prebuilt_module():
    module = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
    for names in (unattended([module], []), unattended([], [module])):
        assert left("linux-image-6.8.0-61-generic", names)
        assert left("linux-modules-6.8.0-61-generic", names)
    changed = unattended(["nvidia-dkms-580-server-open"], [module])
    assert not left("linux-image-6.8.0-61-generic", changed), "DKMS now"


@pytest.mark.parametrize(
    ("managed", "wish", "proven"),
    [(True, "auto", "by its boards"), (True, "true", True), (True, "false", False), (False, "false", "by its boards")],
)
def test_a_fabric_is_proven_as_it_was_wished_also_after_a_way_back(managed, wish, proven):
    """The set of before may have no fabric manager, and boards that are no fabric without one."""
    tasks = yaml.safe_load((ROLE / "tasks" / "ask.yml").read_text())
    text = next(task["gpufleet.sglang.driver_info"] for task in tasks if "gpufleet.sglang.driver_info" in task)
    environment = jinja2.nativetypes.NativeEnvironment()
    environment.filters.update(bool=bool)
    names = {
        "omit": "by its boards",
        "__nvidia_driver_managed": managed,
        "__nvidia_driver_plan": {"fabric_manager": False},  # of a way back without one
        "__nvidia_driver_wanted": {"fabric_manager": wish},
    }
    assert environment.from_string(text["fabric_manager"]).render(names) == proven
