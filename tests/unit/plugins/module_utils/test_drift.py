from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _drift

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
