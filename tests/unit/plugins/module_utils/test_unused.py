# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stays and what goes is decided by _unused; _unused_host looks."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _proof, _unused, _unused_host
from ansible_collections.gpufleet.sglang.plugins.module_utils._unused import Text, Version

UNIT = "ExecStart=/opt/sglang/engines/0.5.23/bin/python -m x --model-path /srv/models/Qwen--Qwen3/4f1a\n"


def engines(*names):
    """Versions that were made in this order."""
    return [Version(f"/opt/sglang/engines/{name}", number) for number, name in enumerate(names)]


def gone(rows):
    return [row.path.rpartition("/")[2] for row in rows if not row.because]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (UNIT, "0.5.23", True),
        (UNIT, "0.5.2", False),
        (UNIT, "5.23", False),
        ('{"engine_version": "0.5.23"}', "0.5.23", True),
        ("/opt/sglang/engines/0.5.2.post1/bin", "0.5.2", False),
        ("/opt/sglang/engines/0.5.10rc0/bin", "0.5.10", False),
        ("It served with 0.5.2.", "0.5.2", True),
        ("--model-path /mnt/x/4f1a", "4f1a", True),
        ("--model-path /mnt/x/4f1ab", "4f1a", False),
        ("0x5y23", "0.5.23", False),
    ],
)
def test_a_version_is_named_by_whole_words(text, name, expected):
    assert _unused.names(text, name) is expected


def test_what_something_needs_stays_and_the_rest_by_count():
    versions = engines("0.5.10", "0.5.19", "0.5.21", "0.5.22", "0.5.23")
    rows = _unused.decide(versions, 2, [Text("the unit sglang-main.service", UNIT)], [])
    assert gone(rows) == ["0.5.10", "0.5.19"]
    assert rows[-1].because == "named by the unit sglang-main.service"
    assert rows[-2].because == "number 1 of the 2 that are kept beside those in use"


def test_the_count_is_filled_from_the_newest_backups_first():
    """0.5.22 was made last and never served: what a rollback would ask for counts more."""
    versions = engines("0.5.10", "0.5.19", "0.5.21", "0.5.22")
    backups = [Text("b", "/opt/sglang/engines/0.5.10/bin", 200.0), Text("a", "/opt/sglang/engines/0.5.21/bin", 100.0)]
    assert gone(_unused.decide(versions, 1, [], backups)) == ["0.5.19", "0.5.21", "0.5.22"]
    assert gone(_unused.decide(versions, 2, [], backups)) == ["0.5.19", "0.5.22"]
    assert gone(_unused.decide(versions, 3, [], backups)) == ["0.5.19"]


def test_without_a_count_only_what_is_needed_stays():
    versions = engines("0.5.22", "0.5.23")
    assert gone(_unused.decide(versions, 0, [Text("the unit", UNIT)], [])) == ["0.5.22"]
    assert gone(_unused.decide(versions, -1, [Text("the unit", UNIT)], [])) == ["0.5.22"]


def test_a_refusal_keeps_all():
    rows = _unused.decide(engines("0.5.22", "0.5.23"), 0, [], [], "a run holds it")
    assert [row.because for row in rows] == ["a run holds it", "a run holds it"]


MOUNTS = """\
overlay / overlay rw 0 0
/dev/sdb /srv ext4 rw 0 0
store:/models /srv/models nfs4 rw 0 0
/dev/sdc /srv/models\\040local xfs rw 0 0
user@far: /home/far fuse.sshfs rw 0 0
/dev/sdd /srv/models/own ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/opt/sglang/engines", None),
        ("/srv/models/Qwen--Qwen3", "nfs4"),
        ("/srv/models", "nfs4"),
        ("/srv/models local/x", None),
        ("/srv/modelsother", None),
        ("/srv/models/own/x", None),
        ("/home/far/x", "fuse.sshfs"),
    ],
)
def test_what_other_hosts_may_use_is_told_by_the_mount(path, expected):
    assert _unused.shared_file_system(path, MOUNTS) == expected


def test_the_last_of_two_mounts_on_one_point_counts():
    assert _unused.shared_file_system("/srv/x", "a /srv nfs rw 0 0\nb /srv ext4 rw 0 0\n") is None
    assert _unused.shared_file_system("/srv/x", "b /srv ext4 rw 0 0\na /srv nfs rw 0 0\n") == "nfs"


# the host


def make_engine(root, name, marker='{"state": "tested"}'):
    (root / name / "bin").mkdir(parents=True)
    if marker is not None:
        (root / name / ".gpufleet-engine.json").write_text(marker)


def make_model(root, name, repo="Qwen/Qwen3"):
    (root / name).mkdir(parents=True)
    manifest = {"repo": repo, "revision": name, "commit": name, "patterns": [], "files": []}
    (root / name / ".gpufleet-model.json").write_text(json.dumps(manifest))


def test_only_what_this_collection_made_is_seen(tmp_path):
    make_engine(tmp_path, "0.5.22")
    make_engine(tmp_path, "0.5.21", marker="half a li")
    make_engine(tmp_path, "by-hand", marker=None)
    (tmp_path / "link").symlink_to(tmp_path / "0.5.22")
    (tmp_path / "file").write_text("")
    assert [version.name for version in _unused_host.engines(str(tmp_path))] == ["0.5.21", "0.5.22"]
    assert _unused_host.engines(str(tmp_path / "absent")) == []


def test_only_revisions_of_the_repository_are_seen(tmp_path):
    make_model(tmp_path, "4f1a")
    make_model(tmp_path, "other", repo="meta-llama/Llama-3")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / ".gpufleet-model.json").write_text("{")
    assert [version.name for version in _unused_host.models(str(tmp_path), "Qwen/Qwen3")] == ["4f1a"]


def make_backup(state, instance, name, kind, content, at):
    folder = state / instance / "backup" / name
    folder.mkdir(parents=True)
    manifest = {
        "name": name,
        "kind": kind,
        "at": at,
        "files": [{"path": "/x", "stored": "00-x"}, {"path": "/y", "stored": None}],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "00-x").write_text(content)


def test_units_proofs_baselines_open_changes_and_processes_are_needs(tmp_path):
    state, units, proc = tmp_path / "state", tmp_path / "units", tmp_path / "proc"
    (units / "hand.service.d").mkdir(parents=True)
    (units / "hand.service").write_text("unit-names\n")
    (units / "hand.service.d" / "10.conf").write_text("drop-in-names\n")
    (units / "note.txt").write_text("nobody-names\n")
    (proc / "17").mkdir(parents=True)
    (proc / "17" / "cmdline").write_text("/process-names/bin/python\0-m\0x\0")
    _proof.Store(str(state), "main").write_proof({"engine_version": "proof-names"})
    make_backup(state, "main", "1", "baseline", "baseline-names", 1.0)
    make_backup(state, "main", "2", "proof", "older-names", 2.0)
    make_backup(state, "main", "3", "proof", "open-names", 3.0)
    _proof.Store(str(state), "main").open_change({"backup": "3"})
    needs, backups = _unused_host.needs_and_backups(str(state), (str(units),), str(proc))
    needed = " ".join(text.content for text in needs)
    for word in ("unit-names", "drop-in-names", "process-names", "proof-names", "baseline-names", "open-names"):
        assert word in needed, word
    assert "nobody-names" not in needed
    assert "older-names" not in needed
    assert [(text.at, "older-names" in text.content) for text in backups] == [(2.0, True)]


def test_a_memory_that_cannot_be_read_may_need_anything(tmp_path):
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "proof.json").write_text("{")
    with pytest.raises(_proof.Unreadable):
        _unused_host.needs_and_backups(str(tmp_path), (), str(tmp_path))


def test_a_lease_holds_all(tmp_path):
    state, run = tmp_path / "state", tmp_path / "run"
    (state / "second").mkdir(parents=True)
    assert _unused_host.held_by(str(state), str(run)) == ""
    _proof.Store(str(state), "second", str(run)).take_lease("r", "eve on control")
    assert _unused_host.held_by(str(state), str(run)) == "the instance second is leased by eve on control"


def test_what_an_interrupted_removal_left_looks_like_no_version_and_is_found(tmp_path):
    make_engine(tmp_path, ".gpufleet-removed-0.5.10")
    assert _unused_host.engines(str(tmp_path)) == []
    left = _unused_host.left_over(str(tmp_path))
    assert left == [str(tmp_path / ".gpufleet-removed-0.5.10")]
    _unused_host.remove(left[0])
    assert list(tmp_path.iterdir()) == []


def test_a_version_is_removed_whole_also_behind_an_earlier_try(tmp_path):
    make_engine(tmp_path, "0.5.10")
    make_engine(tmp_path, ".gpufleet-removed-0.5.10")
    _unused_host.remove(str(tmp_path / "0.5.10"))
    assert list(tmp_path.iterdir()) == []
