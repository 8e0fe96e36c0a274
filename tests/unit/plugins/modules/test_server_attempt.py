from __future__ import annotations

import json
from unittest import mock

from ansible_collections.gpufleet.sglang.plugins.modules import server_attempt, server_info, server_snapshot


def test_an_attempt_is_judged_and_its_change_closed(instance_host):
    instance_host(server_snapshot, run_id="run")
    judged = instance_host(
        server_attempt,
        state="judged",
        run_id="run",
        step={"action": "try", "values": {"config_hash": "abc", "fraction": 0.93}},
        plan={"engine_version": "0.5.23"},
        ready={"verdict": "holds", "reason": "Holds.", "startup": {"pool_tokens": 200000}},
        soak={"verdict": "proven", "reason": "Survived."},
        request={"target_tokens": 200000},
    )
    assert judged["attempt"]["verdict"] == "proven"
    closed = instance_host(
        server_attempt, state="closed", run_id="run", step={"action": "done"}, attempts=[judged["attempt"]]
    )
    assert closed["changed"] is True
    assert closed["outcome"]["success"] is True
    found = instance_host(server_info)
    assert (found["open_change"], found["lease"], found["proof"]["pool_tokens"]) == (None, None, 200000)
    assert json.loads((instance_host.path / "state" / "main" / "attempts.jsonl").read_text())["verdict"] == "proven"


def test_check_mode_judges_nothing(instance_host):
    found = instance_host(server_attempt, state="judged", run_id="run", _ansible_check_mode=True)
    assert found["attempt"] is None
    assert instance_host(server_info)["attempts"] == []


def test_a_way_back_that_failed_stays_open(instance_host):
    instance_host(server_snapshot, run_id="run")
    back = {"unit": "sglang-main.service", "kind": "baseline", "ready": {"verdict": "failed"}}
    closed = instance_host(server_attempt, state="closed", run_id="run", step={"action": "back"}, back=back)
    assert (closed["changed"], closed["outcome"]["way_back"]) == (False, "down")
    found = instance_host(server_info)
    assert found["open_change"] is not None
    assert found["lease"] is None


def test_a_load_on_what_runs_is_remembered(instance_host):
    ready = {"verdict": "holds", "reason": "Holds.", "startup": {"pool_tokens": 200000}}
    judged = instance_host(server_attempt, state="judged", run_id="run", ready=ready, step={"action": "try"})
    assert judged["attempt"]["verdict"] == "holds"
    with mock.patch.object(server_attempt.AnsibleModule, "warn") as warn:
        closed = instance_host(
            server_attempt, state="closed", run_id="run", step={"action": "done"}, attempts=[judged["attempt"]]
        )
    assert closed["outcome"]["success"] is True
    assert "sglang_server_soak: none" in warn.call_args[0][0]
    soak = {"verdict": "proven", "reason": "Survived."}
    clients = [{"address": "10.0.0.9", "connections": 1}]
    loaded = instance_host(server_attempt, state="loaded", run_id="two", ready=ready, soak=soak, clients=clients)
    assert (loaded["attempt"]["verdict"], loaded["attempt"]["soak"]["shared"]) == ("proven", True)
    assert loaded["soaked"] == {"before": False, "now": True}
    assert instance_host(server_info)["proof"]["soaked"] is True
    refused = {"verdict": "failed", "reason": "Refused.", "failure": {"kind": "unknown", "fatal": False}}
    for what, counts in ((refused, True), ({}, True), ({"verdict": "unsafe", "reason": "Under the floor."}, False)):
        loaded = instance_host(server_attempt, state="loaded", run_id="two", ready=ready, soak=what)
        assert loaded["soaked"] == {"before": True, "now": counts}


def test_what_is_not_remembered_cannot_be_loaded(instance_host):
    found = instance_host(server_attempt, state="loaded", run_id="run")
    assert "deploy it first" in found["msg"]


def test_the_files_of_a_server_that_is_left_running_under_an_older_proof_are_no_drift(instance_host):
    path = instance_host.path / "main.env"
    ready = {"verdict": "holds", "reason": "Holds.", "startup": {"pool_tokens": 200000}}
    step = {"action": "try", "values": {"config_hash": "proven"}}
    path.write_text("PROVEN=1\n")
    instance_host(server_attempt, state="judged", run_id="one", ready=ready, step=step, files=[str(path)])
    path.write_text("KEPT=1\n")
    assert instance_host(server_info, files=[str(path)])["drift"] == [str(path)]
    for name, attempt, drift in (
        # Nothing was written: the file was changed by hand.
        ("loaded", {"verdict": "failed", "action": "prove"}, [str(path)]),
        ("kept", {"verdict": "short", "action": "try"}, []),
    ):
        closed = instance_host(
            server_attempt, state="closed", run_id=name, step={"action": "done", "reason": "x."}, attempts=[attempt]
        )
        assert (closed["outcome"]["success"], closed["outcome"]["left_running"]) == (False, not drift)
        found = instance_host(server_info, files=[str(path)])
        assert (found["drift"], found["proof"]["config_hash"]) == (drift, "proven")
    path.write_text("BY_HAND=1\n")
    assert instance_host(server_info, files=[str(path)])["drift"] == [str(path)]


def test_an_attempt_tells_what_was_declared_why_it_was_tried_and_what_was_decided_behind_it(instance_host):
    given = {
        "run_id": "run",
        "ready": {"verdict": "short", "reason": "4,989 short.", "startup": {"pool_tokens": 195011, "state": "ready"}},
        "step": {"action": "try", "reason": "No proof.", "changes": ["no proof"], "values": {"fraction": 0.93}},
        "request": {"target_tokens": 200000, "arguments": {"api-key": "s3cr3t-s3cr3t"}},
    }
    judged = instance_host(server_attempt, state="judged", **given)["attempt"]
    assert judged["step"] == {"reason": "No proof.", "changes": ["no proof"]}
    step = {"action": "back", "reason": "All 3 attempts are used up."}
    closed = {"state": "closed", "run_id": "run", "step": step, "attempts": [judged]}
    path = instance_host.path / "state" / "main" / "attempts.jsonl"
    instance_host(server_attempt, _ansible_check_mode=True, **closed)
    assert "next" not in json.loads(path.read_text())
    full = mock.patch.object(server_attempt._decided, "remember", side_effect=OSError("No space left on device"))
    with full, mock.patch.object(server_attempt.AnsibleModule, "warn") as warn:
        assert instance_host(server_attempt, **closed)["outcome"]["success"] is False
    assert "No space left on device" in warn.call_args[0][0]
    instance_host(server_attempt, **closed)
    kept = json.loads(path.read_text())
    assert (kept["action"], kept["step"]["reason"], kept["next"]) == ("try", "No proof.", step)
    assert kept["request"]["target_tokens"] == 200000
    assert "s3cr3t" not in path.read_text()


def test_an_instance_is_held_without_a_change(instance_host):
    assert instance_host(server_snapshot, run_id="run", state="leased")["changed"] is False
    found = instance_host(server_info)
    assert (found["lease"]["run_id"], found["open_change"], found["backups"]) == ("run", None, [])
    assert "leased by" in instance_host(server_snapshot, run_id="other", state="leased")["msg"]


def test_what_attempts_taught_is_forgotten_by_command_and_the_attempts_stay(instance_host):
    ready = {"verdict": "holds", "reason": "Holds.", "startup": {"pool_tokens": 200000}}
    instance_host(server_attempt, state="judged", run_id="run", ready=ready, step={"action": "try"})
    figures = {"wanted_mib": 896.0, "free_mib": 384.0}
    died = {"kind": "oom_prefill", "direction": "lower", "phase": "prefill", "figures": figures}
    startup = {"free_before_load_gib": 93.0, "weights_gib": 72.0, "kv_gib": 15.5}
    dead = {"verdict": "failed", "failure": died, "startup": startup}
    instance_host(server_attempt, state="judged", run_id="run", ready=dead, step={"action": "try"})
    before = instance_host(server_info)
    # 93.0 - 72.0 - 15.5 + (896 - 384) / 1024
    assert [one["reserve_needed_gib"] for one in before["deaths"]] == [6.0]
    assert len(before["measurements"]) == 1
    assert len(before["remembered"]) == 3

    looked = instance_host(server_attempt, state="forgotten", forget="deaths", run_id="x", _ansible_check_mode=True)
    assert (looked["changed"], looked["forgotten"]) == (True, {"measurements": 0, "deaths": 1})
    assert "reserve needed 6.00 GiB" in looked["diff"]["before"]
    assert "reserve needed" not in looked["diff"]["after"]
    assert instance_host(server_info)["deaths"] == before["deaths"]

    done = instance_host(server_attempt, state="forgotten", forget="deaths", run_id="x")
    assert done["forgotten"] == looked["forgotten"]
    after = instance_host(server_info)
    assert (after["deaths"], after["measurements"], len(after["attempts"])) == ([], before["measurements"], 2)
    again = instance_host(server_attempt, state="forgotten", forget="deaths", run_id="x")
    assert (again["changed"], again["diff"]["before"]) == (False, again["diff"]["after"])
    assert instance_host(server_attempt, state="forgotten", run_id="x")["forgotten"] == {"measurements": 1, "deaths": 0}
    assert instance_host(server_info)["remembered"] == []

    # What is taught from now on is remembered again.
    instance_host(server_attempt, state="judged", run_id="run", ready=ready, step={"action": "try"})
    assert len(instance_host(server_info)["measurements"]) == 1


def test_nothing_is_forgotten_while_a_run_holds_the_instance(instance_host):
    instance_host(server_snapshot, run_id="run", state="leased")
    assert "leased by" in instance_host(server_attempt, state="forgotten", run_id="x")["msg"]


def test_a_run_whose_lease_another_one_took_closes_nothing(instance_host):
    instance_host(server_snapshot, run_id="second")
    found = instance_host(server_attempt, state="closed", run_id="first", step={"action": "keep"})
    assert found["failed"] is True
    assert "leased by another run" in found["msg"]
    assert instance_host(server_info)["open_change"]["run_id"] == "second"
