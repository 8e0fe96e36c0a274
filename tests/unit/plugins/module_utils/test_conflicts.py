# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts

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


@pytest.mark.parametrize(
    ("arguments", "ranks", "nvlink", "version", "word"),
    [
        ({}, 1, None, "0.5.23", ""),
        ({}, 8, None, "0.5.23", ""),
        ({}, 8, None, "0.5.12", "custom all-reduce of 8 ranks"),
        ({}, 8, False, "0.5.12", ""),  # more than two PCIe boards: the engine switches it off
        ({}, 2, None, "0.5.23", "custom all-reduce of 2 ranks"),
        ({}, 2, False, "0.5.23", "custom all-reduce of 2 ranks"),
        ({}, 2, True, "0.5.23", ""),
        ({"disable-custom-all-reduce": True}, 2, False, "0.5.9", ""),
        ({"disable-custom-all-reduce": "no"}, 2, False, "0.5.9", "custom all-reduce"),
        ({"enable-memory-saver": True}, 1, None, "0.5.23", "torch_memory_saver"),
        ({"enable-memory-saver": "false"}, 1, None, "0.5.23", ""),
        ({"enable-symm-mem": True}, 8, True, "0.5.23", "147851"),
        ({"moe-a2a-backend": "deepep"}, 8, True, "0.5.23", "839"),
        ({"moe-a2a-backend": "none"}, 8, True, "0.5.23", ""),
        ({"disaggregation-mode": "decode"}, 1, None, "0.5.23", "Mooncake"),
        ({"disaggregation-mode": "null"}, 1, None, "0.5.23", ""),
        ({"weight-cache-mode": "ipc"}, 1, None, "0.5.23", "27139"),
    ],
)
def test_what_forbids_expandable_segments(arguments, ranks, nvlink, version, word):
    found = conflicts.expandable_conflict(arguments, {}, version, ranks, nvlink=nvlink)
    assert (word in found) if word else found == ""


def test_the_old_collective_by_its_variable():
    name = "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2"
    assert "custom all-reduce" in conflicts.expandable_conflict({}, {name: "0"}, "0.5.23", 8, nvlink=True)
    assert conflicts.expandable_conflict({}, {name: "1"}, "0.5.23", 8, nvlink=True) == ""


def test_features_of_images_travel_by_handles_since_0_5_18():
    def found(arguments, version):
        return conflicts.expandable_conflict(arguments, {}, version, 1, multimodal=True)

    assert "mm-feature-transport" in found({}, "0.5.18")
    assert found({}, "0.5.17") == ""
    assert found({"mm-feature-transport": "cpu"}, "0.5.18") == ""
    assert conflicts.expandable_conflict({}, {}, "0.5.18", 1) == ""


def test_every_row_has_a_source():
    for row in conflicts.CONFLICTS + conflicts.TORCH_PINS:
        assert row.source
