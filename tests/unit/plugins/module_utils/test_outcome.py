from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils._outcome import (
    outcome,
    sentences,
    surprise,
    way_back_state,
)

SERVING = {"unit": "sglang-main.service", "port": 30000}
PROOF = {"pool_tokens": 200000, "fraction": 0.93, "soaked": True}
BACK = {"kind": "proof", "ready": {"verdict": "holds", "startup": {"state": "ready", "pool_tokens": 200000}}}
FAILED = {"verdict": "failed", "failure": {"kind": "bad_args", "advice": "remove --x from sglang_server_arguments."}}


@pytest.mark.parametrize(
    ("back", "state"),
    [
        ({}, "stopped"),
        (BACK, "restored"),
        ({"ready": {"verdict": "short", "startup": {"state": "ready"}}}, "restored_degraded"),
        ({"ready": {"verdict": "failed", "startup": {"state": "loading"}}}, "down"),
        ({"unit": "sglang-main.service", "asked_to_stop": True}, "stopped_as_asked"),
        ({"untouched": True}, None),
    ],
)
def test_way_back_state(back, state):
    assert way_back_state(back) == state


def test_kept():
    found = outcome("main", {"action": "keep", "reason": "Same."}, [], {}, SERVING, PROOF)
    assert (found["success"], found["verdict"], found["pool_tokens"]) == (True, "proven", 200000)


def test_proven():
    found = outcome("main", {"action": "done", "reason": "x"}, [{"verdict": "proven"}], {}, SERVING, PROOF)
    assert found["message"] == "main: proven, pool 200,000 tokens at fraction 0.93."


def test_holds_is_a_success_that_warns():
    found = outcome("main", {"action": "done"}, [{"verdict": "holds"}], {}, SERVING, PROOF)
    assert found["success"]
    assert "not proven" in found["message"]


def test_no_evidence_is_no_success():
    assert not outcome("main", {"action": "done"}, [{"verdict": "failed"}], {}, SERVING, None)["success"]


def test_refused_says_that_nothing_was_restarted_and_what_serves():
    found = outcome("main", {"action": "refuse", "reason": "It cannot fit."}, [], {}, SERVING, PROOF)
    assert not found["success"]
    assert found["verdict"] == "refused"
    assert found["message"] == (
        "main: refused before any restart. It cannot fit. sglang-main.service serves on port 30000."
    )


def test_a_way_back_names_cause_way_out_and_what_serves():
    found = outcome("main", {"action": "back", "reason": "bad_args: error."}, [FAILED], BACK, SERVING, PROOF)
    assert found["way_back"] == "restored"
    for part in ("bad_args", "Way out: remove --x", "again: the last proven configuration, pool 200,000 tokens"):
        assert part in found["message"]


def test_a_failed_first_deployment_says_that_nothing_served_before():
    found = outcome("main", {"action": "back", "reason": "x"}, [FAILED], {}, None, None)
    assert "Nothing serves now; nothing served before." in found["message"]


def test_a_server_that_was_to_be_stopped_is_not_told_as_if_nothing_had_served():
    back = {"unit": "sglang-main.service", "kind": "proof", "asked_to_stop": True}
    found = outcome("main", {"action": "back", "reason": "x."}, [FAILED], back, None, PROOF)
    assert (found["success"], found["way_back"]) == (False, "stopped_as_asked")
    assert found["message"].endswith(
        "Nothing serves now: sglang-main.service is stopped, as sglang_server_when_not_proven: stop asks."
    )


def test_where_nothing_was_replaced_there_was_no_way_back():
    back = {"untouched": True}
    found = outcome("main", {"action": "back", "reason": "No space left."}, [], back, SERVING, PROOF)
    assert (found["success"], found["way_back"]) == (False, None)
    assert found["message"] == "main: not proven. No space left. sglang-main.service serves on port 30000."
    assert outcome("main", {"action": "back"}, [], back, None, None)["message"].endswith("Nothing serves now.")


def test_a_baseline_that_does_not_start_is_said():
    back = {"ready": {"verdict": "failed", "reason": "Address in use."}}
    found = outcome("main", {"action": "back", "reason": "x"}, [FAILED], back, None, None)
    assert found["way_back"] == "down"
    assert found["message"].endswith("Nothing serves now, and what served before did not come up: Address in use.")
    found = outcome("main", {"action": "back", "reason": "x"}, [FAILED], back, SERVING, None)
    assert found["message"].endswith("serves on port 30000, but not as before: Address in use.")


def test_a_server_that_was_never_stopped_is_not_said_to_serve_again():
    found = outcome("main", {"action": "back", "reason": "x"}, [], dict(BACK, kept=True), SERVING, PROOF)
    assert "serves on port 30000 as it did, without a restart: the last proven configuration" in found["message"]


def test_a_rollback_says_what_serves():
    found = outcome("main", {"action": "back", "reason": "Rolled back to x."}, [], BACK, SERVING, PROOF)
    assert found["rollback_message"].startswith(
        "main: Rolled back to x. sglang-main.service serves on port 30000 again"
    )


def test_a_second_run_without_a_soak_still_only_holds():
    found = outcome("main", {"action": "keep"}, [], {}, SERVING, dict(PROOF, soaked=False))
    assert (found["success"], found["verdict"]) == (True, "holds")


def test_check_mode_is_planned():
    found = outcome("main", {"action": "planned", "reason": "Would try."}, [], {}, None, None)
    assert (found["success"], found["verdict"], found["message"]) == (True, "planned", "main: Would try.")


def test_a_hand_made_server_with_a_key_of_its_own_is_restored_by_its_ready_line():
    assert (
        way_back_state({"kind": "baseline", "ready": {"verdict": "failed", "startup": {"state": "ready"}}})
        == "restored"
    )


def test_what_is_left_running_says_what_it_lacks():
    candidate = [{"verdict": "failed", "action": "try"}]
    found = outcome("main", {"action": "done", "reason": "No witness."}, candidate, {}, SERVING, None)
    assert found["message"].endswith("It is not enabled, and systemd does not start it again when it dies.")


def test_a_unit_that_was_not_restarted_is_enabled_as_it_was():
    loaded = [{"verdict": "failed", "action": "prove"}]
    found = outcome("main", {"action": "done", "reason": "No witness."}, loaded, {}, SERVING, PROOF)
    assert found["message"] == "main: not proven. No witness. sglang-main.service serves on port 30000."


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"msg": "failed to validate", "stderr": "Unknown key 'A'\n"}, "T: failed to validate (Unknown key 'A')."),
        ({"msg": "No space left."}, "T: No space left."),
        ({}, "T: failed."),
        ({"msg": "no", "stderr": "token=hf_abcdefgh12345678"}, "T: no (token=********)."),
    ],
)
def test_a_surprise_is_one_sentence(result, sentence):
    assert surprise("T", result) == sentence


def test_a_proof_is_said_with_its_headroom_and_its_total():
    proof = dict(PROOF, headroom_gib=5.469, headroom_where="GPU 3 (TP3)")
    proof["pools"] = {"dp_size": 2, "total_tokens": 400022, "least": "DP0"}
    found = outcome("main", {"action": "done"}, [{"verdict": "proven"}], {}, SERVING, proof)
    assert found["message"] == (
        "main: proven, pool 200,000 tokens on each of 2 DP ranks (400,022 in all) at fraction 0.93,"
        " headroom 5.47 GiB on GPU 3 (TP3)."
    )


FOREIGN = "GPU 3: process 77 (python) is not of this unit and holds 4,000 MiB."


def test_what_was_noticed_at_ready_stands_beside_a_success_and_in_the_message_of_a_failure():
    attempt = {"verdict": "proven", "notices": [FOREIGN]}
    found = outcome("main", {"action": "done"}, [attempt], {}, SERVING, PROOF)
    assert found["notices"] == [FOREIGN]
    assert FOREIGN not in found["message"]
    back = dict(BACK, ready=dict(BACK["ready"], notices=[FOREIGN], pools={"disagreements": ["Two pools."]}))
    found = outcome("main", {"action": "back", "reason": "x"}, [dict(FAILED, notices=[FOREIGN])], back, SERVING, PROOF)
    assert found["notices"] == [FOREIGN, "Two pools."]
    assert found["message"].count(FOREIGN) == 1


def test_nothing_noticed_is_nothing_said():
    assert outcome("main", {"action": "keep"}, [], {}, SERVING, PROOF)["notices"] == []
    assert outcome("main", {"action": "back"}, [FAILED], BACK, SERVING, PROOF)["notices"] == []


def test_a_load_that_was_not_allowed_leaves_a_server_that_holds():
    step = {"action": "refuse", "verdict": "holds", "reason": "Expected no clients."}
    found = outcome("main", step, [], {}, SERVING, dict(PROOF, soaked=False))
    assert (found["success"], found["verdict"]) == (False, "holds")
    assert found["message"] == (
        "main: holds, not proven. Expected no clients. sglang-main.service serves on port 30000."
    )


def test_a_way_back_to_what_was_never_put_under_load_is_not_called_proven():
    found = outcome("main", {"action": "back", "reason": "x."}, [FAILED], dict(BACK, soaked=False), SERVING, PROOF)
    assert "again: the last configuration that held (it was never put under load), pool 200,000" in found["message"]


def test_sentences_end_as_sentences():
    assert sentences("They do not fit", "", None, "It serves on.", " Does it? ") == (
        "They do not fit. It serves on. Does it?"
    )
    found = outcome("main", {"action": "refuse", "reason": "They do not fit"}, [], {}, SERVING, PROOF)
    assert found["message"].endswith("They do not fit. sglang-main.service serves on port 30000.")
    assert found["rollback_message"] == "main: They do not fit. sglang-main.service serves on port 30000."
