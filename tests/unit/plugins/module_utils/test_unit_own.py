from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unit_own


def unit(name, fragment, drop_ins=()):
    return {"name": name, "fragment_path": str(fragment), "drop_in_paths": [str(path) for path in drop_ins]}


@pytest.fixture
def etc(tmp_path):
    folder = tmp_path / "etc"
    for name in ("hand-made.service.d", "service.d", "hand-.service.d", "sglang@.service.d", "sglang@k26.service.d"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.conf").write_text("[Service]\n")
    return folder


def test_what_other_units_read_too_is_not_a_units_own(etc):
    shared = [etc / "service.d" / "a.conf", etc / "hand-.service.d" / "a.conf"]
    drop_in = etc / "hand-made.service.d" / "a.conf"
    record = unit("hand-made.service", etc / "hand-made.service", [*shared, drop_in])
    own = [str(etc / "hand-made.service"), str(drop_in)]
    assert _unit_own.own_files(record, [str(etc)]) == own
    assert _unit_own.read_files(record, [], [str(etc)]) == sorted(map(str, shared))
    assert _unit_own.name_refusal(record, [str(etc)]) == ""


def test_the_template_of_other_instances_is_nobodys_own(etc):
    record = unit("sglang@k26.service", etc / "sglang@.service", [etc / "sglang@.service.d" / "a.conf"])
    assert _unit_own.own_files(record, [str(etc)]) == [str(etc / "sglang@k26.service.d" / "a.conf")]
    said = _unit_own.name_refusal(record, [str(etc)])
    assert f"found {etc}/sglang@.service, which other units are made from too" in said
    assert said.endswith("set sglang_server_adopted_name: keep.")
    # An instance that has a file of its own.
    assert _unit_own.name_refusal(unit("sglang@k26.service", etc / "sglang@k26.service"), [str(etc)]) == ""


def test_the_unit_of_a_package_is_not_the_sites(etc):
    record = unit("hand.service", "/usr/lib/systemd/system/hand.service")
    assert _unit_own.own_files(record, [str(etc)]) == []
    assert _unit_own.read_files(record, [], [str(etc)]) == ["/usr/lib/systemd/system/hand.service"]
    assert "found /usr/lib/systemd/system/hand.service, which is not the site's" in _unit_own.name_refusal(record)


def test_a_unit_that_is_not_there_stands_in_nobodys_way():
    assert _unit_own.name_refusal({"name": "x.service", "fragment_path": None, "drop_in_paths": []}) == ""
    assert _unit_own.own_files({"name": "x.service", "fragment_path": "", "drop_in_paths": []}, []) == []
