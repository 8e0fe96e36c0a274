from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _ready_run
from ansible_collections.gpufleet.sglang.plugins.modules import server_ready
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module


@pytest.fixture
def waits(monkeypatch):
    """Runs the module with a waiter that returns a verdict; gives the settings that it was made with."""
    made = {}

    class Waiter:
        def __init__(self, follower, settings):
            made.update(follower=follower, settings=settings)

        def run(self):
            return dict(made["result"])

    monkeypatch.setattr(_ready_run, "Waiter", Waiter)

    def call(verdict="holds", **params):
        made["result"] = {
            "finished": verdict is not None,
            "verdict": verdict,
            "reason": "Why.",
            "unit": "u.service",
            "failure": None,
        }
        made["returned"] = run_module(server_ready, dict({"unit": "u.service"}, **params))
        return made

    return call


def test_the_verdict_is_returned(waits):
    made = waits(target_tokens=7, min_headroom_gib=1.5)
    assert (made["returned"]["verdict"], made["returned"]["changed"]) == ("holds", False)
    assert (made["settings"].target_tokens, made["settings"].slice_seconds) == (7, None)
    assert made["settings"].address.base_url == "http://127.0.0.1:30000"


@pytest.mark.parametrize("verdict", ["short", "unsafe", "failed"])
def test_other_verdicts_fail_unless_they_are_asked_for(waits, verdict):
    returned = waits(verdict)["returned"]
    assert returned["failed"] is True
    assert returned["verdict"] == verdict
    assert returned["msg"].startswith("u.service was expected")
    assert "failed" not in waits(verdict, fail_on_verdict=False)["returned"]


def test_a_slice_that_is_not_over_never_fails(waits):
    made = waits(None, slice={"phase": "weights", "restarts": 1, "waited_seconds": 9.5, "waiting_since": 3.0})
    assert "failed" not in made["returned"]
    settings = made["settings"]
    assert (settings.slice_seconds, settings.known_phase, settings.waited_seconds) == (10.0, "weights", 9.5)
    assert (settings.known_restarts, settings.waiting_since) == (1, 3.0)


def test_the_invocation_of_the_slice_goes_before_that_of_the_task(waits):
    assert waits(invocation_id="b")["follower"].invocation_id == "b"
    assert waits(invocation_id="b", slice={"invocation_id": "a"})["follower"].invocation_id == "a"


def test_the_key_comes_from_a_file(waits, tmp_path):
    path = tmp_path / "secret.yaml"
    path.write_text("api-key: topsecret\n")
    assert waits(api_key_file=str(path))["settings"].address.api_key == "topsecret"


def test_a_key_file_without_a_key_is_one_sentence(waits, tmp_path):
    returned = waits(api_key_file=str(tmp_path / "none"))["returned"]
    assert returned["failed"] is True
    assert "api_key_file" in returned["msg"]


def test_check_mode_waits_for_nothing():
    with mock.patch.object(_ready_run.Waiter, "run", side_effect=AssertionError):
        returned = run_module(server_ready, {"unit": "u.service", "_ansible_check_mode": True})
    assert returned["verdict"] is None
    assert "Would wait up to 6600 s (weights of unknown size) for u.service" in returned["reason"]
    assert returned["deadline"] == {"seconds": 6600.0, "auto": True, "why": "weights of unknown size"}


def test_check_mode_says_from_what_it_would_wait(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1024)
    returned = run_module(
        server_ready,
        {
            "unit": "u.service",
            "model_path": str(tmp_path),
            "last_load_seconds": 2000,
            "_ansible_check_mode": True,
        },
    )
    assert "Would wait up to 6000 s (0.0 GiB of weights on " in returned["reason"]
    assert "the last start took 2000 s" in returned["reason"]
    returned = run_module(server_ready, {"unit": "u.service", "timeout_seconds": 90, "_ansible_check_mode": True})
    assert "Would wait up to 90 s (as stated)" in returned["reason"]


def test_what_is_no_time_is_one_sentence(waits):
    returned = waits(timeout_seconds="soon")["returned"]
    assert returned["failed"] is True
    assert returned["msg"] == "Expected auto or a number of seconds above 0 in timeout_seconds, found 'soon'."


def test_patience_is_passed_on(waits):
    made = waits(
        timeout_seconds="90", patience_factor=0.5, expected_weight_gib=75, last_load_seconds=450, model_path="/m"
    )
    settings = made["settings"]
    assert (settings.timeout_seconds, settings.patience_factor, settings.model_path) == (90.0, 0.5, "/m")
    assert (settings.expected_weight_gib, settings.last_load_seconds, settings.load) == (75.0, 450.0, None)
    assert waits()["settings"].timeout_seconds is None
    assert waits(slice={"load": {"weight_bytes": 5}})["settings"].load == {"weight_bytes": 5}


def test_where_nvidia_smi_is_can_be_said(waits):
    assert waits()["settings"].nvidia_smi == "nvidia-smi"
    assert waits(nvidia_smi="/opt/nvidia/bin/nvidia-smi")["settings"].nvidia_smi == "/opt/nvidia/bin/nvidia-smi"


def test_the_first_slice_is_one_look(waits):
    assert waits(None, slice={"waited_seconds": 0.0})["settings"].slice_seconds == 0.0
    assert waits(None, slice={"waited_seconds": 0.0, "phase": "init"}, slice_seconds=7)["settings"].slice_seconds == 7.0
    settings = waits(None, slice={"waited_seconds": 4.0, "phase": "init", "boot_id": "b"})["settings"]
    assert settings.boot_id == "b"


def test_check_mode_reads_the_model_of_the_unit_that_runs(waits, tmp_path, monkeypatch):
    with (tmp_path / "model.safetensors").open("wb") as stream:
        stream.truncate(3 * 2**30)
    monkeypatch.setattr(server_ready, "started_path", lambda follower: str(tmp_path))
    assert "3.0 GiB of weights" in waits(_ansible_check_mode=True)["returned"]["reason"]
    monkeypatch.setattr(server_ready, "started_path", lambda follower: None)
    assert "unknown size" in waits(_ansible_check_mode=True)["returned"]["reason"]
