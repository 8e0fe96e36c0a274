# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pure part of the model download. The transfers are tried against a hub in modules/test_model_download.py."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.doc_fragments import hub
from ansible_collections.gpufleet.sglang.plugins.module_utils import _hub, _hub_once, _hub_options

COMMIT = "12fd25f77366fa6b3b4b768ec3050bf629380bac"
GIB = 1024**3

# The shape of a real answer of the hub, shortened.
ANSWER = {
    "id": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "sha": COMMIT,
    "siblings": [
        {"rfilename": ".gitattributes", "size": 1519, "blobId": "a6344aac8c09253b3b630fb776ae94478aa0275b"},
        {"rfilename": "config.json", "size": 861, "blobId": "51e5b2e9a5b2f1c0b0b6d6f9f3a0e7d2a6c7e3f1"},
        {
            "rfilename": "model.safetensors",
            "size": 269060552,
            "blobId": "d25c8d70eb8a9e4fa5a1f6d0b6a2a5b9d2a9d6c4",
            "lfs": {"sha256": "5af571cbf074e6d2", "size": 269060552, "pointerSize": 134},
        },
        {
            "rfilename": "onnx/model.onnx",
            "size": 540000000,
            "lfs": {"sha256": "aa", "size": 540000000, "pointerSize": 134},
        },
    ],
}


def test_a_listing_has_sizes_of_contents_and_sha256_of_large_files():
    listing = _hub.read_listing(ANSWER, COMMIT)
    assert listing.commit == COMMIT
    assert listing.files[1] == _hub.HubFile("config.json", 861, None)
    assert listing.files[2] == _hub.HubFile("model.safetensors", 269060552, "5af571cbf074e6d2")
    assert listing.total_bytes == 1519 + 861 + 269060552 + 540000000


@pytest.mark.parametrize("name", ["../etc/passwd", "/etc/passwd", "a/../../b", "a//b", "", "a\\..\\b"])
def test_a_name_that_leaves_the_folder_is_refused(name):
    answer = {"sha": COMMIT, "siblings": [{"rfilename": name, "size": 1}]}
    with pytest.raises(_hub.HubError, match="leave the model's folder"):
        _hub.read_listing(answer, COMMIT)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ({"error": "x"}, "siblings"),
        ({"sha": COMMIT, "siblings": [{"rfilename": "config.json"}]}, "no size for config.json"),
        ({"sha": "0" * 40, "siblings": []}, "answered with 0000"),
    ],
)
def test_answers_that_cannot_be_verified_are_refused(answer, match):
    with pytest.raises(_hub.HubError, match=match):
        _hub.read_listing(answer, COMMIT)


@pytest.mark.parametrize(
    ("revision", "branches", "refused"),
    [
        (COMMIT, ("main",), False),
        ("v1.0", ("main",), False),
        ("main", (), True),
        ("latest", (), True),
        ("refs-test", ("main", "refs-test"), True),
        ("", (), True),
    ],
)
def test_a_revision_that_moves_is_refused(revision, branches, refused):
    problem = _hub.revision_problem(revision, branches)
    assert (problem is not None) is refused
    assert problem is None or "sglang_model_revision" in problem


def test_files_are_chosen_by_patterns_over_the_whole_name():
    files = _hub.read_listing(ANSWER, COMMIT).files
    chosen = _hub.choose_files(files, ["*"], ["*.onnx", ".gitattributes"])
    assert [one.name for one in chosen] == ["config.json", "model.safetensors"]
    assert _hub.choose_files(files, ["*.gguf"], []) == ()


def test_work_counts_what_is_not_here_yet():
    files = (_hub.HubFile("a", 100), _hub.HubFile("b", 50), _hub.HubFile("c", 10), _hub.HubFile("d", 7))
    work = _hub.plan_work(files, here={"a": 100, "b": 49}, parts={"c": 4, "d": 900})
    assert [one.name for one in work.files] == ["b", "c", "d"]
    assert work.missing_bytes == 50 + 6 + 0


@pytest.mark.parametrize(
    ("missing", "free", "fits"), [(10 * GIB, 11 * GIB, True), (10 * GIB, 11 * GIB - 1, False), (0, 0, True)]
)
def test_space_needs_a_margin_of_a_tenth(missing, free, fits):
    problem = _hub.space_problem(missing, free, "/srv/models")
    assert (problem is None) is fits
    assert fits or ("11.00 GiB are needed" in problem and "sglang_model_root" in problem)


def test_a_manifest_survives_and_describes_its_wish():
    files = (_hub.HubFile("a", 1, "00"), _hub.HubFile("b", 2))
    manifest = _hub.Manifest("org/m", "v1", COMMIT, files, ("*", "!x"))
    again = _hub.read_manifest(_hub.manifest_text(manifest))
    assert again == manifest
    assert again.describes("org/m", "v1", ("*", "!x"))
    assert again.describes("org/m", COMMIT, ("*", "!x"))
    assert not again.describes("org/m", "v2", ("*", "!x"))
    assert not again.describes("org/m", "v1", ("*",))


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"repo": 1}'])
def test_a_damaged_manifest_is_none(text):
    assert _hub.read_manifest(text) is None


@pytest.mark.parametrize(
    ("code", "error_code", "token", "expected"),
    [
        (404, "RevisionNotFound", False, "no revision v9: check sglang_model_revision"),
        (401, "RepoNotFound", False, "set sglang_model_token or sglang_model_token_file"),
        (403, "GatedRepo", True, "accept its terms on the hub and the token"),
        (401, "", True, "refuses this token"),
        (418, "", False, "HTTP status 418"),
    ],
)
def test_statuses_become_sentences(code, error_code, token, expected):
    sentence = _hub.status_sentence(code, error_code, "org/m", "v9", "https://hub", "the list", token)
    assert expected in sentence
    assert sentence.endswith(".")


def test_addresses_are_quoted():
    assert _hub.file_url("https://h/", "o/m", "abc", "a b/c#.txt") == "https://h/o/m/resolve/abc/a%20b/c%23.txt"
    assert (
        _hub.listing_url("https://h", "o/m", "refs/pr/1")
        == "https://h/api/models/o/m/revision/refs%2Fpr%2F1?blobs=true"
    )


@pytest.mark.parametrize(
    ("other", "same"),
    [("https://hub/x", True), ("http://hub/x", False), ("https://cdn.hub/x", False), ("https://hub:444/x", False)],
)
def test_a_token_stays_with_its_origin(other, same):
    assert _hub.same_origin("https://hub", other) is same


# --- asked once for a run -------------------------------------------------------


def test_those_who_come_meanwhile_wait_for_the_answer(tmp_path):
    asked = []

    def slow():
        asked.append(1)
        time.sleep(0.2)
        return {"layers": 30}

    with ThreadPoolExecutor(max_workers=10) as pool:
        answers = list(pool.map(lambda number: _hub_once.answered_once(str(tmp_path), ["a"], slow), range(10)))
    assert answers == [{"layers": 30}] * 10
    assert asked == [1]


def test_another_question_is_asked_and_without_a_folder_every_one(tmp_path):
    asked = []
    for folder, question in ((str(tmp_path), "a"), (str(tmp_path), "b"), (None, "a"), (None, "a")):
        _hub_once.answered_once(folder, [question], lambda: asked.append(1) or {})
    assert len(asked) == 4


@pytest.mark.parametrize("error", [_hub.HubError("The hub is down."), ValueError("The hub is down.")])
def test_a_hub_that_is_down_is_waited_for_once(tmp_path, error):
    asked = []

    def refused():
        asked.append(1)
        raise error

    for _host in range(3):
        with pytest.raises(_hub.HubError, match="The hub is down"):
            _hub_once.answered_once(str(tmp_path), ["a"], refused)
    assert asked == [1]


def test_a_surprise_is_no_answer(tmp_path):
    with pytest.raises(OSError, match="disk"):
        _hub_once.answered_once(str(tmp_path), ["a"], lambda: (dummy for dummy in ()).throw(OSError("disk")))
    assert _hub_once.answered_once(str(tmp_path), ["a"], lambda: {"layers": 30}) == {"layers": 30}


@pytest.mark.parametrize("damaged", ["", "{", "\0"])
def test_a_damaged_answer_is_asked_again(tmp_path, damaged):
    _hub_once.answered_once(str(tmp_path), ["a"], lambda: {"layers": 1})
    (kept,) = (path for path in tmp_path.iterdir() if path.suffix != ".lock")
    kept.write_text(damaged)
    assert _hub_once.answered_once(str(tmp_path), ["a"], lambda: {"layers": 2}) == {"layers": 2}


# --- options --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "text", "expected"), [("one", "two", "one"), (None, " two\n", "two"), ("", "", None)]
)
def test_the_token_itself_counts_before_its_file(tmp_path, token, text, expected):
    (tmp_path / "token").write_text(text)
    params = {"token": token, "token_file": str(tmp_path / "token") if text else None}
    assert _hub_options.token_of(params) == expected


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_token_file_without_a_token_is_named(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(_hub.HubError, match="token file .*token.* correct sglang_model_token_file"):
        _hub_options.token_of({"token": None, "token_file": str(path)})


def test_the_options_are_those_of_the_fragment():
    documented = yaml.safe_load(hub.ModuleDocFragment.DOCUMENTATION)["options"]
    assert set(documented) == set(_hub_options.HUB_ARGUMENTS)
    for name, option in _hub_options.HUB_ARGUMENTS.items():
        assert (documented[name]["type"], documented[name].get("default")) == (option["type"], option.get("default"))
