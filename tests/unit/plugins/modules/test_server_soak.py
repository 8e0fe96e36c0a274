from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _soak_job
from ansible_collections.gpufleet.sglang.plugins.modules import server_soak
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module


@pytest.fixture
def soaks(monkeypatch):
    made = {}

    def run(job, session, errors):
        made.update(job=job, session=session)
        return dict({"reason": "Why.", "failure": None}, verdict=made["verdict"])

    monkeypatch.setattr(_soak_job.Job, "run", run)

    def call(verdict="proven", **params):
        made["verdict"] = verdict
        made["returned"] = run_module(server_soak, params)
        return made

    return call


def test_the_verdict_is_returned(soaks):
    made = soaks(seconds=20, max_requests=8, max_tokens=0, concurrency=0)
    assert (made["returned"]["verdict"], made["returned"]["changed"]) == ("proven", False)
    limits = made["job"]._limits
    assert (limits.seconds, limits.requests, limits.answer_tokens, limits.concurrency) == (20.0, 8, 1, None)


@pytest.mark.parametrize("verdict", ["short", "unsafe", "failed"])
def test_other_verdicts_fail_unless_they_are_asked_for(soaks, verdict):
    returned = soaks(verdict, unit="u.service")["returned"]
    assert returned["failed"] is True
    assert returned["msg"].startswith("u.service was expected to survive")
    assert "failed" not in soaks(verdict, fail_on_verdict=False)["returned"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"profile": "none"}, "profile none"),
        ({"_ansible_check_mode": True, "context_tokens": 9}, "Would send unique prompts up to 9"),
    ],
)
def test_nothing_is_sent(soaks, params, words):
    made = soaks(**params)
    assert made["returned"]["verdict"] is None
    assert words in made["returned"]["reason"]
    assert "job" not in made


def test_a_python_without_requests_is_one_sentence(soaks, monkeypatch):
    monkeypatch.setattr(server_soak, "REQUESTS_ERROR", "ImportError: requests")
    returned = soaks()["returned"]
    assert returned["failed"] is True
    assert "requests" in returned["msg"]


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"flush": True}, "the-admins"),
        ({"flush": True, "admin_api_key": "another"}, "another"),
        ({"flush": False}, None),
    ],
)
def test_the_admin_key_is_in_the_file_of_the_api_key(soaks, tmp_path, params, key):
    path = tmp_path / "main.secret.yaml"
    path.write_text('api-key: "the-clients"\nadmin-api-key: "the-admins"\n')
    made = soaks(api_key_file=str(path), **params)
    assert made["job"]._options["admin_api_key"] == key
    assert made["job"]._address.api_key == "the-clients"
