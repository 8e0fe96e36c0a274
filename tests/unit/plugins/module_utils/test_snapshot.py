from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _snapshot
from ansible_collections.gpufleet.sglang.plugins.module_utils._proof import read_json


@pytest.fixture
def taken(tmp_path):
    kept, absent = tmp_path / "etc" / "kept.env", tmp_path / "etc" / "absent.env"
    kept.parent.mkdir()
    kept.write_text("A=1\n")
    kept.chmod(0o640)
    directory = str(tmp_path / "backup")
    _snapshot.take(directory, {"name": "x"}, [str(kept), str(absent)])
    return kept, absent, directory, read_json(os.path.join(directory, "manifest.json"))


def test_nothing_changed_nothing_is_put_back(taken):
    assert _snapshot.put_back(taken[2], taken[3]) == []


def test_content_mode_and_absence_come_back(taken):
    kept, absent, directory, manifest = taken
    kept.write_text("A=2\n")
    kept.chmod(0o600)
    absent.write_text("new\n")
    assert _snapshot.differences(manifest) == [str(kept), str(absent)]
    assert _snapshot.put_back(directory, manifest) == [str(kept), str(absent)]
    assert kept.read_text() == "A=1\n"
    assert kept.stat().st_mode & 0o777 == 0o640
    assert not absent.exists()


def test_a_file_that_was_removed_comes_back(taken):
    kept, dummy, directory, manifest = taken
    kept.unlink()
    kept.parent.rmdir()
    _snapshot.put_back(directory, manifest)
    assert kept.read_text() == "A=1\n"


def test_copies_are_readable_by_root_alone(taken):
    modes = {os.stat(os.path.join(taken[2], name)).st_mode & 0o777 for name in os.listdir(taken[2])}
    assert modes == {0o600}


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ({"active": True, "config_hash": "a"}, {"active": True, "config_hash": "a"}, True),
        ({"active": True, "config_hash": "a"}, {"active": True, "config_hash": "b"}, False),
        ({"active": True, "config_hash": "a"}, {"active": False}, False),
        ({"active": True, "config_hash": None}, {"active": True, "config_hash": None}, True),
        ({"active": True, "config_hash": None}, {"active": True, "config_hash": "b"}, False),
        ({"active": False}, {"active": False}, False),
    ],
)
def test_a_server_that_runs_what_it_ran_is_not_restarted(before, now, same):
    assert _snapshot.unit_still_runs(before, now) is same


@pytest.mark.parametrize(
    ("before", "now", "changed", "same"),
    [
        ("a", "a", ["/etc/sglang/main.secret.yaml"], True),
        ("a", "b", ["/etc/sglang/main.secret.yaml"], False),
        ("a", "b", [], True),
    ],
)
def test_another_start_with_other_files_runs_something_else(before, now, changed, same):
    state = {"active": True, "config_hash": "x"}
    then, here = dict(state, invocation_id=before), dict(state, invocation_id=now)
    assert _snapshot.unit_still_runs(then, here, changed) is same


PROVEN = {
    "name": "20261130T061234Z",
    "kind": "proof",
    "soaked": True,
    "engine_version": "0.5.23",
    "pool_tokens": 200000,
    "fraction": 0.93,
    "serving": ["sglang-main.service"],
}


@pytest.mark.parametrize(
    ("summary", "is_as_now", "text"),
    [
        (
            PROVEN,
            True,
            "20261130T061234Z, proven, engine 0.5.23, pool 200,000 tokens, fraction 0.93, sglang-main.service served "
            "(as it is now)",
        ),
        (
            dict(PROVEN, soaked=False),
            False,
            "20261130T061234Z, holds, proven by no load, engine 0.5.23, pool 200,000 tokens, fraction 0.93, "
            "sglang-main.service served",
        ),
        (
            dict(PROVEN, kind="baseline", serving=["hand.service"]),
            False,
            "20261130T061234Z, not proven, hand.service served",
        ),
        (dict(PROVEN, kind="empty", serving=[]), False, "20261130T061234Z, nothing, nothing served"),
        (
            dict(PROVEN, pool_tokens=None, serving=[]),
            False,
            "20261130T061234Z, proven, engine 0.5.23, pool unknown tokens, fraction 0.93, nothing served",
        ),
    ],
)
def test_a_backup_is_one_line(summary, is_as_now, text):
    assert _snapshot.line(summary, is_as_now) == text


def test_what_a_stored_unit_starts_and_is_no_longer_there_is_told(tmp_path):
    engine, model = tmp_path / "0.5.10" / "bin" / "python", tmp_path / "models" / "4f1a"
    engine.parent.mkdir(parents=True)
    model.mkdir(parents=True)
    engine.touch()
    unit = tmp_path / "x.service"
    unit.write_text(
        f"[Service]\nExecStartPre=/nowhere/helper\nExecStart=-{engine} -m x \\\n  --model-path {model} --port 1\n"
    )
    environment = tmp_path / "x.env"
    environment.write_text("ExecStart=/nowhere/env\n")
    directory = str(tmp_path / "backup")
    _snapshot.take(directory, {"name": "x"}, [str(unit), str(environment), str(tmp_path / "absent.service")])
    manifest = read_json(os.path.join(directory, "manifest.json"))
    unit.unlink()
    assert _snapshot.gone(directory, manifest) == []
    model.rmdir()
    assert _snapshot.gone(directory, manifest) == [str(model)]
    engine.unlink()
    assert _snapshot.gone(directory, manifest) == [str(engine), str(model)]


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('ExecStart="/nowhere/python" -m x "--model-path" "/nowhere/m"\n', ["/nowhere/m", "/nowhere/python"]),
        ("ExecStart=/bin/sh -c 'exec x --model=/nowhere/m'\n", ["/nowhere/m"]),
        ("ExecStart=/bin/sh -c 'exec x --model-path org/name'\n", []),
        ('ExecStart=/bin/sh "--model-path" "/no where/m"\n', ["/no where/m"]),
        ("ExecStart=%h/bin/python --model-path /nowhere/%i\n", []),
    ],
)
def test_the_program_and_the_model_of_a_unit_are_read_as_people_write_them(tmp_path, text, gone):
    (tmp_path / "x.service").write_text(text)
    directory = str(tmp_path / "backup")
    _snapshot.take(directory, {"name": "x"}, [str(tmp_path / "x.service")])
    assert _snapshot.gone(directory, read_json(os.path.join(directory, "manifest.json"))) == gone


def full(*dummy, **more):
    raise OSError(28, "No space left")


def test_a_disk_that_is_full_leaves_nothing_of_a_backup(tmp_path, monkeypatch):
    """A copy may hold a key, and without a manifest nobody would ever look at it again."""
    (tmp_path / "main.secret.yaml").write_text("api-key: canary\n")
    monkeypatch.setattr(_snapshot, "write_json", full)
    with pytest.raises(OSError, match="No space left"):
        _snapshot.take(str(tmp_path / "backup"), {"name": "x"}, [str(tmp_path / "main.secret.yaml")])
    assert not (tmp_path / "backup").exists()


def test_a_disk_that_is_full_leaves_no_second_copy_beside_a_file(taken, monkeypatch):
    kept, dummy, directory, manifest = taken
    kept.write_text("A=2\n")
    monkeypatch.setattr(_snapshot.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        _snapshot.put_back(directory, manifest)
    assert [path.name for path in kept.parent.iterdir()] == ["kept.env"]
    assert kept.read_text() == "A=2\n"
