# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_remembered: what a plan remembers, from where, and in which order it is believed."""

from __future__ import annotations

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.sglang.plugins.module_utils import _remembered
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import argument_spec, plan_input

KEYS = {"weights": "w1", "cell": "c1", "activation": "a1"}


def measured(pool=200000, **more):
    return {"pool_tokens": pool, "fraction": 0.93, "keys": KEYS, **more}


def names(records):
    return [(one["origin"], one.get("from"), one["pool_tokens"]) for one in records]


def test_this_host_counts_more_than_kin_and_kin_more_than_the_inventory():
    kin = {"gpu-2": {"main": {"measurements": [measured(2, origin="host")], "deaths": []}}}
    found = _remembered.gathered({"measurements": [measured(3)], "deaths": []}, kin, [measured(1)])
    assert names(found["measurements"]) == [("inventory", None, 1), ("play", "gpu-2", 2), ("host", None, 3)]


def test_the_nearest_of_kin_counts_most():
    told = {"main": {"measurements": [measured()], "deaths": [{"keys": KEYS, "reserve_needed_gib": 5.0}]}}
    found = _remembered.gathered({}, {"near": told, "far": told}, [])
    assert [one["from"] for one in found["measurements"]] == ["far", "near"]
    assert [(one["origin"], one["from"]) for one in found["deaths"]] == [("play", "far"), ("play", "near")]


def test_a_record_without_keys_is_nobodys_kin():
    told = {"main": {"measurements": [measured(keys={})], "deaths": [{"reserve_needed_gib": 5.0}]}}
    assert _remembered.gathered({}, {"gpu-2": told}, []) == {"measurements": [], "deaths": []}
    # On its own host, and where somebody stated it, it counts as before.
    own = _remembered.gathered({"measurements": [measured(keys={})], "deaths": []}, {}, [measured(keys=None)])
    assert [one["origin"] for one in own["measurements"]] == ["inventory", "host"]


def test_of_kin_the_newest_start_up_of_each_keys_is_told():
    other = dict(KEYS, activation="a2")
    told = [measured(1), measured(2, keys=other), measured(3)]
    kin = {"gpu-2": {"main": {"measurements": told, "deaths": []}}}
    assert [one["pool_tokens"] for one in _remembered.gathered({}, kin, [])["measurements"]] == [2, 3]
    many = [measured(number, keys=dict(KEYS, activation=str(number))) for number in range(9)]
    kin = {"gpu-2": {"main": {"measurements": many, "deaths": []}}}
    assert [one["pool_tokens"] for one in _remembered.gathered({}, kin, [])["measurements"]] == [6, 7, 8]


def test_the_hosts_before_this_one_are_asked_first():
    hosts = ["a", "b", "c", "d"]
    assert _remembered.nearest_first(hosts, "c") == ["b", "a", "d"]
    assert _remembered.nearest_first(hosts, "elsewhere") == ["d", "c", "b", "a"]
    many = [str(number) for number in range(100)]
    assert _remembered.nearest_first(many, "99") == [str(number) for number in range(98, 66, -1)]


def test_a_host_that_told_nothing_is_passed_over():
    hostvars = {"a": {"sglang_server_remembered": {"main": {"measurements": [], "deaths": []}}}, "b": {}}
    assert list(_remembered.of_play(["a", "b", "c", "here"], hostvars, "here")) == ["a"]
    assert _remembered.of_play(["here"], {"here": hostvars["a"]}, "here") == {}


def test_what_is_remembered_is_shown_with_what_of_it_counts():
    start_ups = [
        measured(1000, origin="inventory", keys=None, fraction=None),
        measured(origin="play", **{"from": "gpu-2"}, headroom_gib=6.9, least_free_gib=4.08, chunked_prefill_size=2048),
    ]
    death = {"reserve_needed_gib": 5.25, "kind": "oom_prefill", "phase": "soak", "keys": KEYS, "origin": "host"}
    found = _remembered.lines(start_ups, [death], {"weights": "w1", "cell": "c1", "activation": "another"})
    assert [line.split("  ")[0] for line in found] == ["remembered", "start-up", "start-up", "death"]
    columns = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in found]
    assert columns[0] == ["remembered", "figures", "counts for", "from"]
    assert columns[1] == ["start-up", "pool 1,000", "weights, cell, activation", "inventory"]
    figures = "pool 200,000, fraction 0.93, chunk 2048, headroom 6.90 GiB, least free 4.08 GiB"
    assert columns[2] == ["start-up", figures, "weights, cell", "gpu-2 in this play"]
    assert columns[3] == ["death", "reserve needed 5.25 GiB (oom_prefill, soak)", "nothing here", "this host"]
    assert len({line.index(column[3]) for line, column in zip(found, columns)}) == 1


def test_nothing_remembered_is_no_table():
    assert _remembered.lines([], []) == []


def test_without_a_plan_nothing_is_said_of_what_counts():
    death = {"reserve_needed_gib": 5.25, "origin": "host"}
    assert _remembered.lines([measured(1000, origin="host")], [death]) == [
        "remembered  figures                    from",
        "start-up    pool 1,000, fraction 0.93  this host",
        "death       reserve needed 5.25 GiB    this host",
    ]


def test_what_is_left_is_shown_as_it_was():
    told = ["remembered  figures", "start-up    pool 1,000", "death       reserve needed 5.25 GiB"]
    assert _remembered.lines_left(told, [{}], []) == told[:2]
    assert _remembered.lines_left(told, [], [{}]) == [told[0], told[2]]
    assert _remembered.lines_left(told, [], []) == _remembered.lines_left([], [], []) == []


def test_a_pasted_line_is_yaml_and_holds_no_figure_of_this_host_alone():
    line = _remembered.pasted(measured(origin="host", plan_free_gib=93.2, load_seconds=8.7, graph_gib=None))
    assert yaml.safe_load(line) == {
        "sglang_server_measurements": [{"keys": KEYS, "fraction": 0.93, "pool_tokens": 200000}]
    }
    assert _remembered.pasted({}) == _remembered.pasted(None) == ""


@pytest.mark.parametrize(("origin", "source"), [("host", "measured"), ("play", "table"), ("inventory", "table")])
def test_free_before_load_is_never_a_kins(origin, source):
    """Twins differ by up to 2 GiB; weights are the same bytes on all of them."""
    figures = {"free_before_load_gib": 90.0, "free_after_load_gib": 20.0, "fraction": 0.9, "engine_version": "0.5.14"}
    own = {"measurements": [measured(150000, cell_bytes=72000, **figures)], "deaths": []}
    kin = {"gpu-2": {"main": own}}
    found = {
        "host": _remembered.gathered(own, {}, []),
        "play": _remembered.gathered({}, kin, []),
        "inventory": _remembered.gathered({}, {}, own["measurements"]),
    }[origin]
    args = {
        "arguments": {"model-path": "/m"},
        "gpus": [{"index": 0, "memory_total_mib": 97887, "memory_free_mib": 97000}],
        "engine_version": "0.5.14",
        "cell_bytes": 72000,
        "target_tokens": 100000,
        "measurements": [dict(one, keys=None) for one in found["measurements"]],
    }
    result = plan(plan_input(ArgumentSpecValidator(argument_spec()).validate(args).validated_parameters)).as_dict()
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["free before load"]["source"] == source, rows
