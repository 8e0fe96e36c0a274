from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _adopted, _drift, _drift_proof

UNIT = "sglang-main.service"


def test_drop_ins_that_are_loaded_or_only_lie_there(tmp_path):
    folder = tmp_path / (UNIT + ".d")
    folder.mkdir()
    (folder / "later.conf").write_text("")
    (folder / "notes.txt").write_text("")
    loaded = ["/usr/lib/systemd/system/%s.d/x.conf" % UNIT, "/etc/systemd/system/service.d/site.conf"]
    assert _drift.drop_ins(UNIT, loaded, [str(tmp_path)]) == sorted([loaded[0], str(folder / "later.conf")])


def test_a_drop_in_for_all_units_of_ours_is_one_too(tmp_path):
    folder = tmp_path / "sglang-.service.d"
    folder.mkdir()
    (folder / "x.conf").write_text("")
    assert _drift.drop_ins(UNIT, [], [str(tmp_path)]) == [str(folder / "x.conf")]
    assert _drift.folder_names("sglang-a-b.service") == [
        "sglang-a-b.service.d",
        "sglang-.service.d",
        "sglang-a-.service.d",
    ]


def test_our_own_drop_in_is_none(tmp_path):
    folder = tmp_path / (UNIT + ".d")
    folder.mkdir()
    (folder / _drift.CANDIDATE_DROP_IN).write_text("")
    assert _drift.drop_ins(UNIT, [], [str(tmp_path)]) == []


def test_without_a_proof_nothing_drifts():
    assert _drift.drift(None, ["/etc/sglang/main.env"], ["/x.conf"]) == []


def test_a_file_that_is_gone_drifts(tmp_path):
    path = str(tmp_path / "main.env")
    assert _drift.drift({"files": {path: "0" * 64}}, [path, "/never/proven"], []) == [path]


def test_files_that_the_role_left_itself_do_not_drift_and_later_changes_do(tmp_path):
    path, never = tmp_path / "main.env", str(tmp_path / "other.env")
    path.write_text("KEPT=1")
    proof = {"files": {str(path): "0" * 64}, "config_hash": "abc"}
    left = _drift.as_left(proof)
    assert left["config_hash"] == "abc"
    assert proof["files"] == {str(path): "0" * 64}
    assert _drift.drift(left, [str(path), never], []) == []
    path.write_text("BY_HAND=1")
    assert _drift.drift(left, [str(path), never], []) == [str(path)]


def test_a_unit_that_is_no_text_of_ours_is_not_carried_around(tmp_path):
    large = tmp_path / "large.service"
    large.write_text("#" * 300000)
    assert _drift.text_of(str(large)) is None
    assert _drift.text_of(None) is None
    assert _drift.text_of(str(tmp_path / "none")) is None


PROOF = {
    "config_hash": "abc",
    "invocation_id": "first",
    "pool_floor_tokens": 200000,
    "headroom_gib": 5.0,
    "least_free_gib": {"0": 3.0, "1": 2.0},
    "min_least_free_gib": 1.0,
    "host": {"driver_version": "580.95.05", "packages": {"torch": "2.14.1", "flashinfer": "0.5"}, "gpus": ["H200"] * 8},
}
INFO = {"proof": PROOF, "running": {"config_hash": "abc"}, "drift": [], "invocation_id": "first"}
READY = {
    "startup": {"pool_tokens": 200000, "headroom_gib": 5.0},
    "headroom": {"boards": {"0": {"nvidia_smi_free_mib": 3072}, "1": {"nvidia_smi_free_mib": 2048}}},
}


def drifted(info=(), ready=None, host=None):
    rows = _drift_proof.since_proof(dict(INFO, **dict(info)), READY if ready is None else ready, host or PROOF["host"])
    return [(row["what"], row["ends"]) for row in rows]


def test_nothing_drifted_since_the_proof():
    assert drifted() == []
    assert drifted({"proof": None}) == []


def test_a_proof_without_what_is_kept_today_says_nothing_of_it():
    old = {"config_hash": "abc", "invocation_id": "first"}
    assert drifted({"proof": old}) == []
    assert drifted(ready={}, host={"packages": {}}) == []


def test_files_and_arguments():
    assert drifted({"drift": ["/etc/x"], "running": {"config_hash": "other"}}) == [("arguments", True), ("files", True)]
    rows = _drift_proof.since_proof(dict(INFO, running={}, unit={"active_state": "failed"}), READY, {})
    assert [row["sentence"] for row in rows] == ["unit: it does not run (failed)."]


PROVEN = {
    "model_path": "/srv/m",
    "tp-size": 8,
    "enable-metrics": True,
    "lora-strict-loading": False,
    "x-list": ["a", "b"],
}
STARTS = "/opt/e/bin/python -m sglang.launch_server --model-path /srv/m --tp-size "


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        (STARTS + "8 --enable-metrics --x-list a b", []),
        # How an engine spells a switch is its own business.
        (STARTS + "8 --enable-metrics true --no-lora-strict-loading --x-list a b", []),
        (STARTS + "4 --enable-metrics --x-list a b", ["arguments: --tp-size 8 is now 4."]),
        (
            STARTS + "8 --x-list a b --trust-remote-code",
            ["arguments: --enable-metrics is gone, --trust-remote-code is new."],
        ),
        (
            STARTS + "8 --enable-metrics --x-list a --api-key s3cr3t-s3cr3t",
            ["arguments: --api-key ******** is new, --x-list a b is now a."],
        ),
        # A shell or a title of its own: nothing can be read there.
        ("/bin/sh /opt/start.sh", []),
    ],
)
def test_arguments_are_named(line, sentences):
    assert of_arguments(PROVEN, line.split()) == sentences


def of_arguments(proven, argv):
    """Sentences for a process with these words; the launcher is found as ``server_info`` finds it."""
    told = _adopted.arguments_of(argv if "sglang.launch_server" in argv else [])
    info = dict(INFO, proof=dict(PROOF, arguments=proven), running={"config_hash": "abc", "arguments": told})
    return [row["sentence"] for row in _drift_proof.since_proof(info, READY, {})]


LAUNCH = ["python", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("proven", "words", "sentences"),
    [
        # One argument by any of its names.
        ({"tp-size": 8}, ["--tp", "8"], []),
        ({"tensor_parallel_size": "8"}, ["--tp-size=8"], []),
        # JSON with other blanks and another order; numbers in another spelling.
        ({"x": {"b": 1, "a": [1, 2]}}, ["--x", '{"a": [1, 2], "b": 1}'], []),
        ({"x": '{"a":1}'}, ["--x", '{ "a" : 1.0 }'], []),
        ({"x": ["one"]}, ["--x", '["one"]'], []),
        ({"y": 0.5, "z": 0}, ["--y", "0.50", "--z", "0"], []),
        # What means something else is told.
        ({"tp-size": 8}, ["--tp", "4"], ["arguments: --tp-size 8 is now 4."]),
        ({"x": {"a": 1}}, ["--x", '{"a": 2}'], ['arguments: --x {"a":1} is now {"a": 2}.']),
        ({"z": 0, "y": 1}, ["--y", "1"], ["arguments: --z 0 is gone."]),
        ({"y": 1}, ["--y", "1", "--x", "{broken"], ["arguments: --x {broken is new."]),
    ],
)
def test_arguments_drift_by_what_they_mean(proven, words, sentences):
    assert of_arguments(proven, LAUNCH + words) == sentences


def test_another_environment_is_told_where_the_arguments_are_the_same():
    told = _adopted.arguments_of((STARTS + "8 --enable-metrics --x-list a b").split())
    running = {"config_hash": "other", "arguments": told}
    rows = _drift_proof.since_proof(dict(INFO, proof=dict(PROOF, arguments=PROVEN), running=running), READY, {})
    assert [row["what"] for row in rows] == ["arguments"]
    assert "the environment or the version" in rows[0]["sentence"]


def test_packages_driver_and_boards():
    host = {"driver_version": "590.1", "packages": {"torch": "2.15.0", "xgrammar": "1"}, "gpus": ["H200"] * 7}
    rows = _drift_proof.since_proof(INFO, READY, host)
    assert [row["sentence"] for row in rows] == [
        "package: flashinfer 0.5 is now gone, torch 2.14.1 is now 2.15.0, xgrammar not there is now 1.",
        "driver: proven with 580.95.05, found 590.1.",
        "boards: proven on 8 x H200, found 7 x H200.",
    ]


@pytest.mark.parametrize(
    ("host", "sentences"),
    [
        # nvidia-smi finds nothing any more.
        (
            {"driver_version": None, "gpus": []},
            ["driver: proven with 580.95.05, found none.", "boards: proven on 8 x H200, found none."],
        ),
        # It does not even answer: that is the one thing to say.
        (
            {"driver_version": None, "gpus": [], "gpu_problem": "Driver/library version mismatch"},
            ["driver: proven with 580.95.05, and nobody can tell it now: Driver/library version mismatch"],
        ),
        (
            {"driver_version": "580.95.05", "gpus": ["H200"] * 6 + ["H100"] + ["H200"]},
            ["boards: GPU 6 was H200 and is now H100."],
        ),
        (
            {"driver_version": "580.95.05", "gpus": ["H200"] * 4 + ["H100"] * 2},
            ["boards: proven on 8 x H200, found 2 x H100 and 4 x H200."],
        ),
        # Nobody looked.
        ({}, []),
    ],
)
def test_boards_that_are_gone_or_exchanged(host, sentences):
    rows = _drift_proof.since_proof(INFO, READY, host)
    assert [row["sentence"] for row in rows] == sentences
    assert all(row["ends"] for row in rows)


def test_a_proof_on_a_cpu_misses_no_boards():
    info = dict(INFO, proof=dict(PROOF, host={"driver_version": None, "gpus": []}))
    assert _drift_proof.since_proof(info, READY, {"driver_version": None, "gpus": [], "gpu_problem": "none"}) == []


def test_a_smaller_pool():
    assert drifted(ready=dict(READY, startup={"pool_tokens": 199999})) == [("pool", True)]


def test_less_headroom_in_another_start_is_worth_to_know():
    ready = dict(READY, startup={"pool_tokens": 200000, "headroom_gib": 4.0})
    assert drifted({"invocation_id": "second"}, ready) == [("headroom", False)]
    assert drifted({"invocation_id": "first"}, ready) == []


def test_memory_that_grew_and_a_floor_that_was_passed():
    boards = {"0": {"nvidia_smi_free_mib": 2048}, "1": {"nvidia_smi_free_mib": 512}, "2": {}}
    assert drifted(ready=dict(READY, headroom={"boards": boards})) == [("headroom", False), ("headroom", True)]
