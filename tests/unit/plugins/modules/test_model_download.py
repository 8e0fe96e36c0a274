# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The download against a hub on 127.0.0.1 that breaks off, lies and refuses."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _hub
from ansible_collections.gpufleet.sglang.plugins.modules import model_download

REPO = "org/small"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB
FILES = {"config.json": b'{"a": 1}', "model.safetensors": WEIGHTS, "sub/tokenizer.json": b"x" * 5000}


def load_hub():
    """The test double lies beside the molecule scenarios and is no package."""
    path = Path(__file__).resolve().parents[4] / "molecule" / "shared" / "hub" / "hub.py"
    spec = importlib.util.spec_from_file_location("gpufleet_test_hub", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


hub_module = load_hub()


@pytest.fixture
def hub(tmp_path):
    root = tmp_path / "hub"
    for revision in (COMMIT, "v1", "main"):
        for name, content in FILES.items():
            path = root / REPO / revision / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    server = hub_module.Hub(root, hub_module.Behaviour())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def wish(hub, tmp_path):
    """Parameters of the module; a test changes what it is about."""
    return {
        "repo": REPO,
        "revision": COMMIT,
        "endpoint": hub.address,
        "dest": str(tmp_path / "models" / "small" / COMMIT),
        "token": None,
        "token_file": None,
        "include": ["*"],
        "exclude": [],
        "workers": 3,
        "tries": 3,
        "timeout_seconds": 5,
        "validate_certs": True,
        "progress_file": str(tmp_path / "progress"),
    }


def run(wish, check_mode=False):
    return model_download.Download(wish, check_mode, sleep=lambda seconds: None).run()


def contents(folder):
    found = {name: (Path(folder) / name).read_bytes() for name in _hub.sizes_below(folder)}
    found.pop(_hub.MANIFEST_NAME, None)
    return found


def requested(hub, part):
    return [one for one in hub.behaviour.requests if part in one[0]]


def test_a_folder_appears_complete_and_a_second_run_asks_nobody(wish, hub):
    first = run(wish)
    assert first["changed"] is True
    assert first["commit"] == COMMIT
    assert first["loaded_bytes"] == first["total_bytes"] == sum(map(len, FILES.values()))
    assert contents(wish["dest"]) == FILES
    assert not os.path.exists(wish["dest"] + ".partial")
    hub.behaviour.requests.clear()
    second = run(wish)
    assert second["changed"] is False
    assert second["loaded_bytes"] == 0
    assert hub.behaviour.requests == []


def test_check_mode_says_what_and_how_much_and_writes_nothing(wish):
    result = run(wish, check_mode=True)
    assert result["changed"] is True
    assert result["loaded_bytes"] == sum(map(len, FILES.values()))
    assert sorted(result["files"]) == sorted(FILES)
    assert not os.path.exists(os.path.dirname(wish["dest"]))


def test_a_broken_transfer_is_taken_up_where_it_ended(wish, hub):
    hub.behaviour.break_after_bytes = 300_000
    result = run(wish)
    assert contents(wish["dest"]) == FILES
    offsets = [ranges for _path, ranges, _token in requested(hub, "/cdn/")]
    assert offsets == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert result["changed"] is True


def test_a_new_run_takes_up_what_the_last_one_left(wish, hub):
    part = Path(wish["dest"] + ".partial") / ("model.safetensors" + _hub.PART_SUFFIX)
    part.parent.mkdir(parents=True)
    part.write_bytes(WEIGHTS[:700_000])
    result = run(wish)
    assert result["loaded_bytes"] == sum(map(len, FILES.values())) - 700_000
    assert [one[1] for one in requested(hub, "/cdn/")] == ["bytes=700000-"]
    assert contents(wish["dest"]) == FILES


def test_a_server_without_ranges_sends_from_the_beginning(wish, hub):
    hub.behaviour.ranges = False
    hub.behaviour.break_after_bytes = 300_000
    hub.behaviour.breaks_left = 2
    run(wish)
    assert contents(wish["dest"]) == FILES


def test_a_hub_that_always_breaks_at_the_start_ends_with_a_sentence_and_keeps_the_rest(wish, hub):
    hub.behaviour.break_after_bytes = 0
    with pytest.raises(_hub.HubError, match="after 3 tries .*: the connection broke off.*what was loaded is kept"):
        run(wish)
    assert not os.path.exists(wish["dest"])


def test_a_busy_hub_is_asked_again(wish, hub):
    hub.behaviour.busy_left = 2
    assert run(wish)["changed"] is True


@pytest.mark.parametrize("listed", [len(WEIGHTS) - 1, len(WEIGHTS) + 7])
def test_a_wrong_size_is_named(wish, hub, listed):
    hub.behaviour.wrong_sizes["model.safetensors"] = listed
    with pytest.raises(
        _hub.HubError, match=rf"model.safetensors was expected with {listed} bytes.*{len(WEIGHTS)} bytes"
    ):
        run(wish)
    assert not os.path.exists(wish["dest"])


def test_a_wrong_digest_is_named_and_the_file_removed(wish, hub):
    hub.behaviour.wrong_sha256["model.safetensors"] = "00" * 32
    with pytest.raises(_hub.HubError, match="was expected with sha256 0000"):
        run(wish)
    assert not list(Path(wish["dest"] + ".partial").glob("model.safetensors*"))


def test_no_space_is_said_before_anything_is_loaded(wish, hub, monkeypatch):
    monkeypatch.setattr(model_download, "free_bytes", lambda path: (1000, "/srv"))
    with pytest.raises(_hub.HubError, match="/srv has 0.00 GiB free.*sglang_model_root"):
        run(wish)
    assert requested(hub, "/resolve/") == []


def test_a_missing_token_is_named(wish, hub):
    hub.behaviour.token = "hf_secret"
    with pytest.raises(_hub.HubError, match="gated.*request without a token.*sglang_model_token"):
        run(wish)


def test_a_token_is_sent_to_the_hub_and_not_to_where_it_redirects(wish, hub):
    cdn = hub_module.Hub(hub.root, hub_module.Behaviour())
    threading.Thread(target=cdn.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    hub.behaviour.token, hub.behaviour.cdn = "hf_secret", cdn.address
    Path(wish["dest"]).parent.mkdir(parents=True)
    token_file = Path(wish["dest"]).parent / "token"
    token_file.write_text("hf_secret\n")
    wish["token_file"] = str(token_file)
    try:
        run(wish)
    finally:
        cdn.shutdown()
        cdn.server_close()
    assert {one[2] for one in hub.behaviour.requests} == {"Bearer hf_secret"}
    assert {one[2] for one in cdn.behaviour.requests} == {None}
    assert contents(wish["dest"]) == FILES


def test_a_token_file_that_is_not_there_is_named(wish):
    wish["token_file"] = "/nowhere/token"
    with pytest.raises(_hub.HubError, match="sglang_model_token_file"):
        run(wish)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"revision": "v9"}, "no revision v9"),
        ({"revision": "f" * 40}, "no revision ffff"),
        ({"repo": "org/none"}, "no model org/none"),
        ({"revision": "main"}, "is a branch"),
        ({"include": ["*.gguf"]}, "sglang_model_include"),
    ],
)
def test_wrong_wishes_are_refused_in_one_sentence(wish, change, match):
    wish.update(change)
    with pytest.raises(_hub.HubError, match=match) as caught:
        run(wish)
    assert str(caught.value).count(". ") == 0


def test_a_branch_with_another_name_is_refused_by_the_hubs_own_list(wish, hub):
    other = hub.root / REPO / "dev"
    other.mkdir()
    (other / "config.json").write_bytes(b"{}")
    wish["revision"] = "dev"
    with pytest.raises(_hub.HubError, match="'dev' is a branch"):
        run(wish)


def test_a_tag_is_loaded_by_the_commit_that_it_was_when_listed(wish, hub):
    wish["revision"] = "v1"
    result = run(wish)
    assert len(result["commit"]) == 40
    assert all(result["commit"] in one[0] for one in requested(hub, "/resolve/"))


def test_a_lost_file_is_loaded_again_and_nothing_else(wish, hub):
    run(wish)
    os.unlink(os.path.join(wish["dest"], "sub/tokenizer.json"))
    hub.behaviour.requests.clear()
    result = run(wish)
    assert result["files"] == ["sub/tokenizer.json"]
    assert requested(hub, "/cdn/") == []
    assert contents(wish["dest"]) == FILES
    assert not os.path.exists(wish["dest"] + ".partial")


def test_a_foreign_complete_folder_is_adopted_without_loading(wish, hub):
    for name, content in FILES.items():
        path = Path(wish["dest"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    result = run(wish)
    assert (result["changed"], result["files"]) == (True, [])
    assert requested(hub, "/resolve/") == []
    assert run(wish)["changed"] is False


def test_a_foreign_folder_with_other_content_is_not_touched(wish):
    path = Path(wish["dest"]) / "config.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine, and longer")
    with pytest.raises(_hub.HubError, match="was not loaded by this module"):
        run(wish)
    assert contents(wish["dest"]) == {"config.json": b"mine, and longer"}


def test_two_runs_do_not_write_at_once(wish):
    import fcntl

    partial = Path(wish["dest"] + ".partial")
    partial.mkdir(parents=True)
    with open(partial / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(_hub.HubError, match="Another run is loading"):
            run(wish)


def test_modes_do_not_depend_on_the_umask(wish):
    old = os.umask(0o077)
    try:
        run(wish)
    finally:
        os.umask(old)
    modes = {oct(path.stat().st_mode & 0o777) for path in Path(wish["dest"]).rglob("*") if path.is_file()}
    assert modes == {"0o644"}
    folders = {oct(path.stat().st_mode & 0o777) for path in [Path(wish["dest"]), Path(wish["dest"]) / "sub"]}
    assert folders == {"0o755"}


def test_an_unreachable_hub_is_named(wish):
    wish["endpoint"] = "http://127.0.0.1:9"
    with pytest.raises(_hub.HubError, match=r"http://127.0.0.1:9, and after 3 tries.*refused.*_endpoint\.$"):
        run(wish)
