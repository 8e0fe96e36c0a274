# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The budget room against real start-ups of public reports: the bounds that make bench-planner prints."""

from __future__ import annotations

import statistics

import bench_planner as bench
import planner_ends as ends
import planner_groups as groups
import planner_starts
import pytest

STARTS, BOARDS, CHECKPOINTS = planner_starts.starts()
BY_ID = {start.id: start for start in STARTS}


def names(results):
    return [one.id for one in results]


def test_every_row_takes_part_or_is_left_out_with_a_reason():
    complete, near, out = groups.measured(STARTS)
    assert sorted(names(complete) + names(near) + [name for name, why in out if why]) == sorted(BY_ID)
    found, out = groups.cells(STARTS)
    assert sorted(names(found) + [name for name, why in out if why]) == sorted(BY_ID)
    found, told, out = groups.blind(STARTS, BOARDS, CHECKPOINTS)
    assert sorted(names(found) + names(told) + [name for name, why in out if why]) == sorted(BY_ID)
    found, out = ends.dead(STARTS)
    dead = [start.id for start in STARTS if start.row["outcome"] != "ready"]
    assert sorted(names(found) + [name for name, why in out if why]) == sorted(dead)


def test_measured_budgets_keep_the_bound_in_nine_of_ten_complete_rows():
    complete, dummy, dummy = groups.measured(STARTS)
    assert len(complete) >= 20
    assert sum(one.good for one in complete) >= 0.9 * len(complete)


def test_cells_are_within_print_rounding():
    found, dummy = groups.cells(STARTS)
    assert len(found) >= 28
    assert [one.id for one in found if not one.good] == []
    assert len({one.family for one in found}) >= 6


def test_blind_plans_keep_the_promise_at_the_bad_end_of_the_band():
    found, told, dummy = groups.blind(STARTS, BOARDS, CHECKPOINTS)
    assert len(found) >= 15
    assert [one.id for one in found + told if not one.good] == []
    assert statistics.median(abs(one.error_gib) / one.board_gib for one in found) < 0.01
    assert statistics.median(one.band_gib / one.board_gib for one in found) <= 0.025


def test_every_refusal_to_increase_is_called_infeasible():
    found, dummy = ends.dead(STARTS)
    raised = [one for one in found if one.family == "raise"]
    assert len(raised) >= 9
    assert [one.id for one in raised if not one.good] == []


def test_the_printed_headroom_is_inside_the_band():
    found, dummy = ends.headroom(STARTS)
    from_board, dummy = ends.headroom(STARTS, BOARDS, CHECKPOINTS)
    assert len(found) >= 20
    assert len(from_board) >= 12
    assert sum(one.good for one in found) >= 0.9 * len(found)
    assert ends.headroom_missed(found, from_board, ends.noise()) == []


def test_the_incident_of_the_documentation_is_refused_with_values():
    assert [one.id for one in ends.incidents() if not one.good] == []


@pytest.mark.parametrize(
    ("name", "value", "group"),
    [
        ("RUNTIME_GIB", -3.0, "(e)"),
        ("RUNTIME_GIB", 3.0, "(e)"),
        ("RUNTIME_LEAST_GIB", 0.5, "(e)"),
        ("PREFILL_GRAPH_MOST_MIB_PER_SIZE", 8.0, "(e)"),
        ("UNIFIED_RUNTIME_GIB", 0.0, "(e)"),
        ("NOISE_SHARE", 0.0, "(e)"),
        ("RUNTIME_GIB", -3.0, "(d)"),
    ],
)
def test_a_wrong_constant_misses_a_bound(monkeypatch, capsys, name, value, group):
    monkeypatch.setattr(ends.tables, name, value)
    assert group in " ".join(bench.report())


def test_weights_of_blind_rows_are_told_apart():
    found = groups.blind(STARTS, BOARDS, CHECKPOINTS)[0]
    split = dict(bench.by_weights(found))
    assert sorted(split) == ["checkpoint bytes", "weights printed by the same start"]
    assert sum(len(rows) for rows in split.values()) == len(found)


def test_packed_checkpoints_keep_the_promise_from_the_bytes_of_their_folders():
    """Without what the load leaves behind each of them would be under the band."""
    found = groups.packed(STARTS, BOARDS, CHECKPOINTS)
    assert len(found) == 12
    assert [one.id for one in found if not one.good] == []
    assert not any("above the band" in one.note for one in found)


def test_more_blind_rows_stand_on_checkpoint_bytes_than_before():
    split = dict(bench.by_weights(groups.blind(STARTS, BOARDS, CHECKPOINTS)[0]))
    assert len(split["checkpoint bytes"]) >= 5


def test_measured_budgets_are_those_of_the_product(monkeypatch):
    start = BY_ID["docs-llama31-8b-2025-01-23"]
    rest = groups.solve.rest_gib
    monkeypatch.setattr(groups.solve, "rest_gib", lambda base, fraction: rest(base, fraction) + 1)
    assert groups.measured([start])[0][0].error_gib == pytest.approx(1.0028, abs=0.0006)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "--swa-full-tokens-ratio 0.3 --disable-radix-cache",
            {"swa-full-tokens-ratio": "0.3", "disable-radix-cache": True},
        ),
        ("page_size=1, swa_full_tokens_ratio=0.8, disable_radix_cache=False", {"swa-full-tokens-ratio": "0.8"}),
        ("disable_radix_cache=True, x=1", {"disable-radix-cache": True}),
        ("--disable-radix-cache --port 1", {"disable-radix-cache": True}),
        ("no arguments", {}),
    ],
)
def test_arguments_are_read_from_command_lines_and_printed_lists(text, expected):
    assert dict(planner_starts.printed_arguments(text)) == expected


def test_the_figures_of_a_row_by_hand():
    # 63.72 - 78.81 x 0.12 = 54.2628 GiB; 444,500 tokens x 131,072 bytes = 54.260 GiB
    complete, dummy, dummy = groups.measured([BY_ID["docs-llama31-8b-2025-01-23"]])
    assert complete[0].error_gib == pytest.approx(0.0028, abs=0.0006)
    assert bench.percentile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.9) == 10


def test_the_table_of_the_documentation_is_fresh():
    text = bench.DOCS.read_text()
    assert bench.written(text) == text, "run `make bench-planner ARGS=--write`"
