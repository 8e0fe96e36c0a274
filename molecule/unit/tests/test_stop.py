"""Stops, deaths and restarts of the unit as systemd carries them out, with a program that ends as each version does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from on_host import FOLDER, ROLE, put, run

FILES = Path(__file__).resolve().parents[1] / "files" / "stop"
UNITS = "/run/systemd/system"
VERSIONS = {"old": "0.5.19", "new": "0.5.23"}
RESET = "[Service]\nRestart=no\nSuccessExitStatus=\nRestartForceExitStatus=\n"

BOTH = ("clean", "dies", "candidate")
INSTANCES = {
    **{"%s-%s" % (what, age): {"engine_version": version} for what in BOTH for age, version in VERSIONS.items()},
    "left-new": {},
    "missing-new": {"boards": 2},
    "key-new": {"api_key": "canary-5d20", "hardening": "strict"},
}


@pytest.fixture(scope="module")
def texts(render):
    quick = {"unit_extra": {"Service": {"RestartSec": "300ms"}}}
    return render({name: {**settings, **quick} for name, settings in INSTANCES.items()})


@pytest.fixture(scope="module")
def seen(host, texts):
    """What systemd said of each instance after it was stopped or killed."""
    files = {FOLDER + "/boards.py": (ROLE / "files" / "boards.py").read_text()}
    launcher = (FILES / "launcher.py").read_text()
    for version in VERSIONS.values():
        files["%s/engines/%s/bin/python" % (FOLDER, version)] = "#!/usr/bin/python3\n" + launcher
    for name, text in texts.items():
        files["%s/sglang-%s.service" % (UNITS, name)] = text
        files["%s/%s.env" % (FOLDER, name)] = ""
        if name.startswith("candidate"):
            files["%s/sglang-%s.service.d/10-gpufleet-candidate.conf" % (UNITS, name)] = RESET
    put(host, FOLDER + "/files.json", json.dumps(files))
    put(host, FOLDER + "/drive.py", (FILES / "drive.py").read_text())
    caches = " ".join("%s/cache/%s" % (FOLDER, version) for version in VERSIONS.values())
    done = run(
        host, "install -d -o sglang -g sglang %s && cd %s && python3 drive.py %s" % (caches, FOLDER, " ".join(texts))
    )
    assert done.rc == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("age", VERSIONS)
def test_a_clean_stop_is_no_failure_and_leaves_nothing(seen, age):
    found = seen["clean-" + age]
    assert (found["ActiveState"], found["Result"], found["NRestarts"]) == ("inactive", "success", "0")
    assert found["left"] == []
    assert "drained" in found["journal"]
    # SIGTERM is the launcher's alone; the rank ends by SIGKILL.
    assert "the rank was told to end" not in found["journal"]


@pytest.mark.parametrize("age", VERSIONS)
def test_a_death_is_restarted_until_the_limit_trips(seen, age):
    found = seen["dies-" + age]
    assert (found["ActiveState"], found["NRestarts"]) == ("failed", "3")
    # What a death is told by, whatever Result says.
    assert (found["ExecMainCode"], found["ExecMainStatus"]) == ("2", "9")
    assert found["journal"].count("Started sglang-") == 3
    assert "Start request repeated too quickly" in found["journal"]


@pytest.mark.parametrize("age", VERSIONS)
def test_the_death_of_a_candidate_is_final(seen, age):
    found = seen["candidate-" + age]
    assert (found["ActiveState"], found["Result"], found["NRestarts"]) == ("failed", "signal", "0")


def test_a_left_over_of_the_instance_is_killed_before_a_restart(seen):
    found = seen["left-new"]
    assert (found["ActiveState"], found["NRestarts"]) == ("active", "1")
    assert re.search(r"boards: 0 of 1 s, waiting for left-over processes of left-new to end: \d+ \(", found["journal"])
    assert re.search(r"boards: killed left-over process \d+ \(sleep\)", found["journal"])
    assert (found["left-new"], found["left-new-2"]) == ("failed", "active")


def test_boards_that_are_not_there_refuse_the_start(seen):
    found = seen["missing-new"]
    assert "Expected 2 boards within 1 s, found less: " in found["journal"]
    assert "serving" not in found["journal"]


def test_a_line_with_a_key_stays_out_of_the_journal(seen, systemd_version):
    lines = seen["key-new"]["journal"]
    assert ("canary-5d20" in lines) is (systemd_version < 253)
    assert "server_args=ServerArgs(api_key=None, admin_api_key=None)" in lines


def test_systemd_knows_every_line_and_what_it_does_not_know_fails(host, seen, texts):
    """As the role asks it: a temporary file without a suffix, and other units of the host do not count."""
    verify = "systemd-analyze verify --recursive-errors=no %s:sglang-key-new.service"
    put(host, FOLDER + "/good.tmp", texts["key-new"])
    put(host, FOLDER + "/bad.tmp", texts["key-new"] + "LimitNOFILES=5\n")
    good = run(host, verify, FOLDER + "/good.tmp")
    assert (good.rc, good.stdout + good.stderr) == (0, "")
    bad = run(host, verify, FOLDER + "/bad.tmp")
    assert bad.rc != 0
    assert "LimitNOFILES" in bad.stderr
