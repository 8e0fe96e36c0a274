from __future__ import annotations

import json
import stat

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _decided, _proof

FIRST = {"run_id": "run", "number": 1, "action": "try", "step": {"reason": "No proof.", "changes": ["no proof"]}}
SECOND = {
    "run_id": "run",
    "number": 2,
    "action": "try",
    "step": {"reason": "Short. Next: fraction 0.94, cap 200000.", "changes": ["fraction"]},
    "values": {"fraction": 0.94, "cap_tokens": 200000, "arguments": {"api-key": "hush"}},
}
BACK = {"action": "back", "reason": "Dead with --api-key s3cr3t-s3cr3t", "values": {"stop": False}}


def store_in(folder):
    return _proof.Store(str(folder.parent), folder.name, str(folder / "run"))


def test_what_was_decided_behind_an_attempt_is_the_step_of_the_next_one_and_of_the_run():
    assert _decided.next_steps([FIRST, SECOND], BACK) == {
        1: {
            "action": "try",
            "reason": "Short. Next: fraction 0.94, cap 200000.",
            "fraction": 0.94,
            "cap_tokens": 200000,
        },
        2: {"action": "back", "reason": "Dead with --api-key ********"},
    }
    assert _decided.next_steps([], BACK) == {}


def test_only_attempts_of_this_run_are_written_and_any_other_line_stays(tmp_path):
    other = json.dumps({"run_id": "other", "number": 1, "z": 1, "a": 2}) + "\n"
    lines = [other, "{half a li\n", "[1]\n", json.dumps(FIRST) + "\n", json.dumps(SECOND) + "\n"]
    path = tmp_path / "attempts.jsonl"
    path.write_text("".join(lines))
    path.chmod(0o600)
    _decided.remember(store_in(tmp_path), "run", [FIRST, SECOND], BACK)
    found = path.read_text().splitlines(keepends=True)
    assert found[:3] == lines[:3]
    assert [json.loads(line)["next"]["action"] for line in found[3:]] == ["try", "back"]
    assert json.loads(found[3])["step"] == FIRST["step"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["attempts.jsonl"]


def test_without_attempts_nothing_is_written(tmp_path):
    _decided.remember(store_in(tmp_path), "run", [FIRST], BACK)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_attempts_as_they_were(tmp_path, monkeypatch):
    path = tmp_path / "attempts.jsonl"
    path.write_text(json.dumps(FIRST) + "\n")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_proof.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        _decided.remember(store_in(tmp_path), "run", [FIRST], BACK)
    assert path.read_text() == json.dumps(FIRST) + "\n"
    assert [one.name for one in tmp_path.iterdir()] == ["attempts.jsonl"]
