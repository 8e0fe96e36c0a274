from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _drift, _drift_proof

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
    assert drifted(ready={}, host={"driver_version": None, "packages": {}}) == []


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
            STARTS + "8 --enable-metrics --x-list a --api-key ***",
            ["arguments: --api-key *** is new, --x-list a b is now a."],
        ),
        # A shell or a title of its own: nothing can be read there.
        ("/bin/sh /opt/start.sh", []),
    ],
)
def test_arguments_are_named(line, sentences):
    info = dict(INFO, proof=dict(PROOF, arguments=PROVEN), running={"config_hash": "abc", "command_line": line})
    assert [row["sentence"] for row in _drift_proof.since_proof(info, READY, {})] == sentences


def test_another_environment_is_told_where_the_arguments_are_the_same():
    running = {"config_hash": "other", "command_line": STARTS + "8 --enable-metrics --x-list a b"}
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


def test_a_smaller_pool():
    assert drifted(ready=dict(READY, startup={"pool_tokens": 199999})) == [("pool", True)]


def test_less_headroom_in_another_start_is_worth_to_know():
    ready = dict(READY, startup={"pool_tokens": 200000, "headroom_gib": 4.0})
    assert drifted({"invocation_id": "second"}, ready) == [("headroom", False)]
    assert drifted({"invocation_id": "first"}, ready) == []


def test_memory_that_grew_and_a_floor_that_was_passed():
    boards = {"0": {"nvidia_smi_free_mib": 2048}, "1": {"nvidia_smi_free_mib": 512}, "2": {}}
    assert drifted(ready=dict(READY, headroom={"boards": boards})) == [("headroom", False), ("headroom", True)]
