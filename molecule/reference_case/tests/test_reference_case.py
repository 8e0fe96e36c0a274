# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the acts came to, and what is on the hosts after them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

RESULTS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"
TARGET_TOKENS = 200000
HAND_MADE = "sglang-k26-ddtree.service"
HOST_OF = {"found": "k26-a", "stated": "k26-b", "pasted": "k26-b", "kin": "k26-c"}


def came_to(name, act):
    return json.loads((RESULTS / f"{name}.{act}.json").read_text())


def root(host, command):
    done = host.run("sudo sh -c %s", command)
    assert done.rc == 0, done.stderr
    return done.stdout


def proof_of(host):
    return json.loads(root(host, "cat /var/lib/sglang/k26/proof.json"))


def attempts_of(host):
    return [json.loads(line) for line in root(host, "cat /var/lib/sglang/k26/attempts.jsonl").splitlines()]


@pytest.fixture
def name(host):
    return host.backend.get_hostname()


def test_what_was_found_is_told_before_anything_is_changed():
    said = " ".join(came_to("k26-a", "found")["adopted"]["sentences"])
    told = re.search(rf"Found {HAND_MADE}, made by hand, on port 30001: pool ([0-9,]+) tokens", said)
    # 218,000 and the noise of a start: 500 MiB are 6,800 tokens.
    assert abs(int(told[1].replace(",", "")) - 218000) < 6800
    assert "fraction 0.94, chunk 8192" in said
    assert "it cannot keep the promise" in said


def test_the_incident_ends_proven_in_at_most_two_restarts():
    found = came_to("k26-a", "found")
    assert found["outcome"]["verdict"] == "proven", found["outcome"]["message"]
    assert found["starts"] in (1, 2)
    assert found["starts"] == found["outcome"]["attempts"] == len(found["attempts"])
    assert found["outcome"]["pool_tokens"] >= TARGET_TOKENS


def test_a_stated_fraction_that_cannot_work_is_refused_before_the_restart_with_values():
    stated = came_to("k26-b", "stated")
    assert (stated["outcome"]["verdict"], stated["starts"], stated["attempts"]) == ("refused", 0, [])
    message = stated["outcome"]["message"]
    assert "0.94" in message
    assert "sglang_server_mem_fraction_static: 0.9" in message
    assert f"{HAND_MADE} serves on port 30001" in message
    # Nothing was touched: neither files of ours nor the server that serves.
    assert stated["server"]["adopted"]["active"]
    assert not stated["server"]["unit"]["exists"]


def test_exactly_those_values_are_proven_in_one_restart():
    stated, pasted = came_to("k26-b", "stated"), came_to("k26-b", "pasted")
    assert (pasted["outcome"]["verdict"], pasted["starts"]) == ("proven", 1), pasted["outcome"]["message"]
    assert f"sglang_server_mem_fraction_static: {pasted['outcome']['fraction']}" in stated["outcome"]["message"]


def test_a_host_like_one_that_is_proven_needs_one_restart():
    kin = came_to("k26-c", "kin")
    assert (kin["outcome"]["verdict"], kin["starts"]) == ("proven", 1), kin["outcome"]["message"]
    # What it knew before its only start-up was of others.
    assert any("in this play" in line for line in kin["plan"]["remembered"])
    predicted = kin["attempts"][0]["predicted"]
    # Kin tell the weights to the noise of a start: without them the band of this plan is 27,500 tokens. What is free
    # before the load nobody can tell for another host, so it stays wider than after a start of its own (7,500).
    assert predicted["predicted_tokens"] - predicted["predicted_tokens_low"] < 20000


@pytest.mark.parametrize("name", ["k26-a", "k26-b"])
def test_nothing_changed_is_no_restart(name):
    again = came_to(name, "again")
    assert (again["outcome"]["verdict"], again["starts"], again["attempts"]) == ("proven", 0, [])


def test_the_pool_is_the_promise_and_the_long_prompts_were_survived(host):
    proof = proof_of(host)
    assert proof["pool_tokens"] >= TARGET_TOKENS
    assert proof["soaked"] is True
    assert proof["fraction"] == proof["arguments"]["mem-fraction-static"]
    (attempt,) = [one for one in attempts_of(host) if one["invocation_id"] == proof["invocation_id"]]
    assert attempt["verdict"] == "proven"
    prompts = {phase["name"]: phase for phase in attempt["soak"]["phases"]}
    assert prompts["ladder"]["longest_prompt_tokens"] >= 32768
    assert prompts["context"]["longest_prompt_tokens"] >= 0.99 * TARGET_TOKENS
    assert min(proof["least_free_gib"].values()) > proof["min_least_free_gib"]


def test_it_serves_and_starts_at_boot_and_the_hand_made_one_does_not(host, name):
    ours = host.service("sglang-k26.service")
    assert ours.is_running
    assert ours.is_enabled
    # The pool is capped at the promise where the policy was left alone.
    assert ("--max-total-tokens" in root(host, "cat /etc/systemd/system/sglang-k26.service")) == (name != "k26-b")
    assert not host.file("/run/systemd/system/sglang-k26.service.d").exists
    assert not host.service(HAND_MADE).is_running


def test_the_name_of_the_hand_made_one_is_kept_or_freed_by_choice(host, name):
    unit = host.file(f"/etc/systemd/system/{HAND_MADE}")
    if name == "k26-a":
        assert unit.exists
        assert not host.service(HAND_MADE).is_enabled
    else:
        assert not unit.exists
    if name == "k26-b":  # freed; the backup keeps its files for good
        kept = root(host, f"cat /var/lib/sglang/k26/backup/*/*-{HAND_MADE}")
        assert "--mem-fraction-static 0.94" in kept


def test_what_was_remembered_is_forgotten_by_choice(host, name):
    if name != "k26-c":
        pytest.skip("forgotten on one host only")
    forgotten = json.loads(root(host, "cat /var/lib/sglang/k26/forgotten.json"))
    assert sorted(forgotten) == ["measurements"]
    assert attempts_of(host)[-1]["measurement"] is not None
