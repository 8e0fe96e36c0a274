# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import conflicts as page
import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts
from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts_rows as rows

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
ON = "expandable_segments:True"


@pytest.mark.parametrize(
    ("torch", "engine", "name"),
    [
        ("2.9.1", None, OLD),
        ("2.10.0", None, NEW),
        ("2.14.1+cu130", None, NEW),
        ("2.9.1+cpu", "0.5.23", OLD),  # what is installed wins over what is pinned
        (None, "0.5.10", OLD),
        (None, "0.5.11", NEW),
        (None, "0.5.10.post2", OLD),
        (None, "0.4.3", OLD),
        (None, None, NEW),
        ("strange", "0.5.6", OLD),
    ],
)
def test_the_name_follows_torch(torch, engine, name):
    assert conflicts.with_allocator({}, ON, torch, engine) == {name: ON}


@pytest.mark.parametrize("name", [OLD, NEW])
@pytest.mark.parametrize("torch", ["2.9.1", "2.14.1"])
def test_a_name_that_the_user_chose_is_kept(name, torch):
    environment = {name: "max_split_size_mb:64", "A": "b"}
    assert conflicts.with_allocator(environment, "", torch) == environment
    assert conflicts.with_allocator(environment, ON, torch) == {name: ON, "A": "b"}


@pytest.mark.parametrize("environment", [{OLD: ""}, {NEW: ""}, {OLD: "", NEW: " "}])
def test_an_empty_one_is_never_left(environment):
    assert conflicts.with_allocator(dict(environment, A="b"), "") == {"A": "b"}
    assert list(conflicts.with_allocator(environment, ON)) == [next(iter(environment))]


def test_never_both_names():
    # Torch reads the older name where both are set.
    assert conflicts.with_allocator({OLD: "a:1", NEW: "b:2"}, "", "2.14.1") == {OLD: "a:1"}
    assert conflicts.with_allocator({OLD: "", NEW: "b:2"}, "", "2.14.1") == {OLD: "b:2"}


NEWEST = "0.5.23"


def boards(count, nvlink, peers=True, name="NVIDIA H100 80GB HBM3"):
    """Boards as gpu_info returns them, all joined or none; None: nvidia-smi does not tell."""

    def reached(own, joined):
        return None if joined is None else [other for other in range(count) if joined and other != own]

    return tuple(
        {"index": own, "name": name, "nvlinks": reached(own, nvlink), "peers": reached(own, peers)}
        for own in range(count)
    )


def levels(arguments=None, environment=None, *, conf=ON, version=NEWEST, torch=None, gpus=(), multimodal=False):
    """{row: level} of what a setup hits, without the row on pools of graphs, which nearly all hit."""
    setup = conflicts.Setup(arguments or {}, environment or {}, conf, version, torch, tuple(gpus), multimodal)
    return {hit.conflict.row: hit.level for hit in conflicts.look(setup) if hit.conflict.row != "X10"}


# --- X1, X1b: custom all-reduce ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "nvlink", "peers", "version", "found"),
    [
        (1, True, True, "0.5.9", {}),  # one rank has nobody to exchange with
        (8, True, True, "0.5.13", {"X1": rows.REFUSED}),
        (8, True, True, "0.5.14", {"X1": rows.PROOF}),
        (8, True, True, NEWEST, {"X1": rows.PROOF}),
        (2, True, True, NEWEST, {"X1": rows.PROOF}),
        (2, False, True, NEWEST, {"X1b": rows.REFUSED}),
        (2, False, True, "0.5.9", {"X1b": rows.REFUSED}),
        (2, False, False, NEWEST, {}),  # boards that cannot read each other: it leaves itself off
        (2, False, None, NEWEST, {"X1b": rows.PROOF}),  # not known: it may be tried
        (4, False, True, NEWEST, {}),  # more than two without NVLink: it leaves itself off
        (4, False, True, "0.5.9", {}),
        (3, True, True, "0.5.9", {}),  # a number of ranks that it does not take
        (8, None, None, "0.5.13", {"X1": rows.PROOF}),
        (4, None, None, NEWEST, {"X1": rows.PROOF}),
    ],
)
def test_custom_all_reduce_by_version_and_topology(ranks, nvlink, peers, version, found):
    assert levels({"tp-size": ranks}, version=version, gpus=boards(ranks, nvlink, peers)) == found


@pytest.mark.parametrize("switch", ["disable-custom-all-reduce", "disable-cuda-graph"])
def test_without_custom_all_reduce_or_without_graphs_nothing_is_registered(switch):
    for gpus, version in ((boards(2, False), NEWEST), (boards(2, True), "0.5.13")):
        assert levels({"tp-size": 2, switch: True}, version=version, gpus=gpus) == {}
        assert levels({"tp-size": 2, switch: "no"}, version=version, gpus=gpus) != {}


def test_the_older_custom_all_reduce_by_its_variable():
    name, gpus = "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2", boards(8, True)
    assert levels({"tp-size": 8}, {name: "0"}, gpus=gpus) == {"X1": rows.REFUSED}
    assert levels({"tp-size": 8}, {name: "1"}, gpus=gpus) == {"X1": rows.PROOF}


def test_a_group_across_hosts_has_no_custom_all_reduce():
    assert levels({"tp-size": 16, "nnodes": 2}, version="0.5.13", gpus=boards(8, True)) == {}
    # Two stages of 8 ranks, one on each host, do.
    both = {"tp-size": "8", "pp-size": 2, "nnodes": 2}
    assert levels(both, version="0.5.13", gpus=boards(8, True)) == {"X1": rows.REFUSED}


def test_each_group_of_boards_counts():
    # Four boards, joined two by two by bridges: all of four are not, each group of two is.
    links = ([1], [0], [3], [2])
    gpus = [{"index": own, "nvlinks": found, "peers": [1, 2, 3]} for own, found in enumerate(links)]
    assert levels({"tp-size": 4}, version="0.5.13", gpus=gpus) == {}
    assert levels({"tp-size": 2, "pp-size": 2}, version="0.5.13", gpus=gpus) == {"X1": rows.REFUSED}
    # One bridge only: the second group has none.
    gpus[2:] = [dict(gpu, nvlinks=[], peers=[0, 1, 2, 3]) for gpu in gpus[2:]]
    assert levels({"tp-size": 2, "dp-size": 2}, gpus=gpus) == {"X1": rows.PROOF, "X1b": rows.REFUSED}


# --- X3 to X15 --------------------------------------------------------------------------------------------------------

PREFILL = {"disaggregation-mode": "prefill"}
EFA, POOL = {"MOONCAKE_PROTOCOL": "efa"}, {"SGLANG_MOONCAKE_CUSTOM_MEM_POOL": "NVLINK"}


@pytest.mark.parametrize(
    ("arguments", "environment", "found"),
    [
        ({}, {}, {}),
        ({"enable-memory-saver": True}, {}, {"X3": rows.REFUSED}),
        ({"enable-memory-saver": "false"}, {}, {}),
        ({"enable-symm-mem": True}, {}, {}),  # one rank: symmetric memory is not used at all
        ({"enable-symm-mem": True, "tp-size": 16, "nnodes": 2}, {}, {"X4": rows.REFUSED}),
        (PREFILL, POOL, {"X4": rows.REFUSED, "X7": rows.REFUSED}),
        ({}, POOL, {}),
        ({"weight-cache-mode": "daemon"}, {}, {"X5": rows.REFUSED}),
        ({"weight-cache-mode": "client"}, {}, {"X5": rows.PROOF}),
        ({"weight-cache-mode": "off"}, {}, {}),
        (PREFILL, EFA, {"X6": rows.REFUSED}),
        (dict(PREFILL, **{"disaggregation-transfer-backend": "nixl"}), EFA, {"X8": rows.WARNED}),
        ({"disaggregation-mode": "decode"}, {}, {"X7": rows.REFUSED}),
        ({"disaggregation-mode": "decode", "disaggregation-transfer-backend": "mooncake"}, {}, {"X7": rows.REFUSED}),
        (dict(PREFILL, **{"disaggregation-transfer-backend": "mooncake_tcp"}), {}, {}),
        (PREFILL, {"MOONCAKE_PROTOCOL": "tcp"}, {}),
        ({"disaggregation-mode": "null"}, EFA, {}),
        ({"moe-a2a-backend": "deepep"}, {}, {"X15": rows.PROOF}),
        ({"moe-a2a-backend": "none"}, {}, {}),
        ({"elastic-ep-backend": "mooncake"}, {}, {"X15": rows.PROOF}),
    ],
)
def test_settings_beside_expandable_segments(arguments, environment, found):
    assert levels(arguments, environment) == found


def test_without_expandable_segments_hardly_anything_bites():
    everything = dict(PREFILL, **{"enable-memory-saver": True, "enable-symm-mem": True, "tp-size": 8})
    for conf in ("", "expandable_segments:False", "max_split_size_mb:128"):
        assert levels(everything, conf=conf, version="0.5.9", gpus=boards(8, True)) == {}


def test_what_bites_without_them():
    assert levels(PREFILL, dict(EFA, **POOL), conf="") == {"X6": rows.REFUSED}
    fusion = {"flashinfer-allreduce-fusion-backend": "mnnvl", "tp-size": 4}
    assert levels(fusion, conf="") == {"X13": rows.PROOF}
    assert levels(dict(fusion, **{"tp-size": 1}), conf="") == {}


@pytest.mark.parametrize(
    ("value", "arguments", "found"),
    [
        ("GPU-8a3f,GPU-77b1", {"tp-size": 2}, {"C1": rows.WARNED}),
        ("MIG-8a3f", {"tp-size": 1}, {}),
        ("0,1", {"tp-size": 2}, {}),
        ("GPU-8a3f,GPU-77b1", {"tp-size": 2, "disable-custom-all-reduce": True}, {}),
    ],
)
def test_boards_named_by_uuid(value, arguments, found):
    assert levels(arguments, {"CUDA_VISIBLE_DEVICES": value}, conf="") == found


@pytest.mark.parametrize(
    ("version", "arguments", "environment", "hit"),
    [
        ("0.5.16", {}, {}, False),
        ("0.5.17", {}, {}, True),  # the only one that chose it by itself
        ("0.5.17", {"mm-feature-transport": "cpu"}, {}, False),
        ("0.5.17", {"disaggregation-mode": "null"}, {}, True),
        ("0.5.17", {"nnodes": 2}, {}, False),
        ("0.5.17", {}, {"SGLANG_USE_CUDA_IPC_TRANSPORT": "0"}, False),
        ("0.5.18", {}, {}, False),
        (NEWEST, {}, {}, False),
        (NEWEST, {"mm-feature-transport": "cuda_ipc"}, {}, True),
        (NEWEST, {"mm-feature-transport": "cuda_vmm"}, {}, False),
        (NEWEST, {}, {"SGLANG_USE_CUDA_IPC_TRANSPORT": "1"}, True),
        (NEWEST, {"mm-feature-transport": "cpu"}, {"SGLANG_USE_CUDA_IPC_TRANSPORT": "1"}, False),
        ("0.5.18", {"keep-mm-feature-on-device": True}, {}, True),
    ],
)
def test_features_of_images_by_handles(version, arguments, environment, hit):
    found = {"X9": rows.WARNED} if hit else {}
    assert levels(arguments, environment, version=version, multimodal=True) == found
    assert levels(arguments, environment, version=version, multimodal=False) == {}
    assert levels(arguments, environment, version=version, multimodal=None) == found


def test_pools_of_graphs_have_to_prove_themselves():
    with_graphs, without = conflicts.Setup({}, {}, ON, NEWEST), conflicts.Setup({"disable-cuda-graph": True}, {}, ON)
    assert [(hit.conflict.row, hit.level) for hit in conflicts.look(with_graphs)] == [("X10", rows.PROOF)]
    assert conflicts.look(without) == []


def test_tegra():
    assert levels(gpus=boards(1, None, None, "NVIDIA Thor")) == {"T1": rows.REFUSED}
    assert levels(gpus=boards(1, None, None, "Orin (nvgpu)")) == {"T1": rows.REFUSED}
    assert levels(gpus=boards(1, None, None, "NVIDIA GB10")) == {}


# --- X11, X17: value and name of the variable -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "conf", "torch", "found"),
    [
        ({OLD: ON}, ON, "2.14.1", {}),
        ({NEW: ON}, ON, "2.14.1", {}),
        ({NEW: ON}, ON, "2.9.1", {}),
        ({NEW: ON}, ON, "2.8.0+cu128", {"X17": rows.REFUSED}),  # torch 2.8 does not read it
        ({NEW: "a:1"}, "a:1", "2.8.0", {"X17": rows.REFUSED}),
        ({OLD: ON, NEW: ON}, ON, "2.14.1", {"X17": rows.REFUSED}),
        ({OLD: ""}, "", "2.14.1", {"X17": rows.REFUSED}),
        ({}, "expandable_segments:true", None, {"X17": rows.REFUSED}),
        ({}, "expandable_segments:True,max_split_size_mb:128", None, {"X11": rows.REFUSED}),
    ],
)
def test_value_and_name(environment, conf, torch, found):
    assert levels({}, environment, conf=conf, torch=torch) == found


def test_the_pin_counts_where_torch_is_not_known():
    assert levels({}, {NEW: ON}, version="0.5.4") == {"X17": rows.REFUSED}  # torch 2.8
    assert levels({}, {NEW: ON}, version="0.5.6") == {}  # torch 2.9


# --- what a plan may choose by itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "version", "gpus", "word"),
    [
        ({}, NEWEST, (), ""),
        ({"tp-size": 8}, NEWEST, boards(8, True), ""),
        ({"tp-size": 8}, NEWEST, (), ""),  # over NVLink it works, and without it leaves itself off
        ({"tp-size": 8}, "0.5.13", (), "pull 27593"),
        ({"tp-size": 8}, "0.5.13", boards(8, False), ""),
        ({"tp-size": 2}, NEWEST, (), "set disable-custom-all-reduce"),
        ({"tp-size": 2}, NEWEST, boards(2, False), "set disable-custom-all-reduce"),
        ({"tp-size": 2}, NEWEST, boards(2, False, None), "set disable-custom-all-reduce"),
        ({"tp-size": 2}, NEWEST, boards(2, False, False), ""),
        ({"tp-size": 2}, NEWEST, boards(2, True), ""),
        ({"tp-size": 2, "disable-custom-all-reduce": True}, "0.5.9", (), ""),
        ({"enable-memory-saver": True}, NEWEST, (), "torch_memory_saver"),
        ({"enable-symm-mem": True, "tp-size": 8}, NEWEST, boards(8, True), "147851"),
        # A user may try these; a plan does not by itself: the first is slow and nothing shows it.
        (dict(PREFILL, **{"disaggregation-transfer-backend": "nixl"}), NEWEST, (), "1754"),
        ({"moe-a2a-backend": "deepep", "tp-size": 8}, NEWEST, boards(8, True), "839"),
        # What bites with any allocator is no reason against this one.
        ({"flashinfer-allreduce-fusion-backend": "mnnvl", "tp-size": 8}, NEWEST, boards(8, True), ""),
    ],
)
def test_whether_a_plan_may_choose_them(arguments, version, gpus, word):
    found = conflicts.expandable_conflict(arguments, {}, version, gpus)
    assert (word in found) if word else found == ""


def test_a_plan_does_not_choose_them_where_the_model_may_take_images():
    by_handles = {"mm-feature-transport": "cuda_ipc"}
    assert conflicts.expandable_conflict(by_handles, {}, NEWEST, multimodal=False) == ""
    for multimodal in (True, None):
        assert "30904" in conflicts.expandable_conflict(by_handles, {}, NEWEST, multimodal=multimodal)


# --- for people -------------------------------------------------------------------------------------------------------


def test_a_refusal_names_what_was_found_and_what_repairs_it():
    setup = conflicts.Setup({"enable-memory-saver": True}, {}, ON, NEWEST)
    assert conflicts.refusal(conflicts.look(setup), "sglang_server_allocator_conf") == (
        "Expandable segments (sglang_server_allocator_conf) with torch_memory_saver: it does not work with such memory"
        ": it stops the start, or overlooks it under the newer name of the variable; remove enable-memory-saver, or set"
        " sglang_server_allocator_conf to '' (fzyzcjy/torch_memory_saver pull 25; entrypoint.py of torch_memory_saver "
        "0.0.10)."
    )
    assert conflicts.refusal(conflicts.look(conflicts.Setup({}, {}, ON, NEWEST))) is None


def test_notes_say_how_far_it_is_allowed():
    setup = conflicts.Setup({"tp-size": 2}, {}, ON, NEWEST, gpus=boards(2, False, None))
    first, second = conflicts.notes(conflicts.look(setup))
    assert first.startswith("Expandable segments with custom all-reduce of two boards that have no NVLink")
    assert "not known to apply here, and if so the older one is taken there" in first
    assert first.endswith("allowed, and kept only when start-up and soak prove it")
    assert "graphs in pools of their own" in second
    nixl = dict(PREFILL, **{"disaggregation-transfer-backend": "nixl", "disable-cuda-graph": True})
    slow = conflicts.look(conflicts.Setup(nixl, {}, ON))
    assert conflicts.notes(slow)[0].endswith("allowed, and no start-up shows it")
    refused = conflicts.Setup({"enable-memory-saver": True, "disable-cuda-graph": True}, {}, ON)
    assert conflicts.notes(conflicts.look(refused)) == []


@pytest.mark.parametrize("size", ["", "x", None, 0, "-3", 2.5])
def test_a_size_that_is_none_is_left_to_other_checks(size):
    assert conflicts.ranks_of({"tp-size": size, "nnodes": size}) == (1, 1)


def test_the_catalogue_is_complete():
    known = {row.row for row in rows.CONFLICTS} | {row.row for row in conflicts.ELSEWHERE}
    assert {f"X{number}" for number in range(1, 18)} | {"X1b"} <= known
    for row in rows.CONFLICTS + conflicts.ELSEWHERE + conflicts.TORCH_PINS:
        assert row.source
    for row in rows.CONFLICTS:
        assert row.level in rows.LEVELS
        assert row.when
        for text in (row.happens, row.repair):
            assert text
            assert not text.endswith(".")
        # What no start-up shows is nothing that a plan would choose, unless the allocator has no part in it.
        assert not (row.lever and row.level == rows.WARNED and any(when.expandable for when in row.when)), row.name


def test_only_the_journal_tells_of_a_torch_without_them():
    assert [row.row for row in rows.CONFLICTS if row.level == rows.NOTICED] == ["X16"]
    assert "X16" not in levels()


def test_the_page_is_fresh():
    assert not page.PAGE.stale(), "run `make readme`"
