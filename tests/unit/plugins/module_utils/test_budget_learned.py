# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What deaths and start-ups teach (_budget_learned), and promises that only a start can decide (_budget_solve)."""

from __future__ import annotations

import types

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_base as bases
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_learned as learned
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_solve as solve
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_situation import row

GPU = {"index": 0, "name": "x", "memory_total_mib": 81559, "memory_free_mib": 81050, "compute_capability": "9.0"}
# Llama 8B: 32 layers x 8 heads x (128 + 128) x 2 bytes = 131,072 bytes a token.
HOST = {
    "geometry": {
        "attention": "mha",
        "layers": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "hidden_size": 4096,
        "attention_heads": 32,
        "intermediate_size": 14336,
        "experts": 0,
        "max_context_tokens": 131072,
    },
    "gpus": [GPU],
    "weight_bytes": 16060522496,
    "engine_version": "0.5.23",
}
ROWS = (
    row("runtime", 1.0, "table", "", "ready"),
    row("activations", 2.0, "table", "", "load"),
    row("least free", 0.4, "table", "", "floor"),
)


def planned(tokens, **more):
    return plan(plan_input({**HOST, "target_tokens": tokens, **more}))


@pytest.mark.parametrize(
    ("phase", "needed"),
    [
        (None, 5.0),  # stated by a person: taken as it is
        ("prefill", 5.4),  # and the floor
        ("decode", 5.4),
        ("graphs", 7.4),  # before any request: what the load takes comes on top
        ("weights", 7.4),
    ],
)
def test_what_comes_after_a_death_is_on_top_of_what_it_needed(phase, needed):
    assert learned.needed_gib({"reserve_needed_gib": 5.0, "phase": phase}, ROWS) == pytest.approx(needed)


@pytest.mark.parametrize(
    ("figures", "regained"),
    [
        ({"wanted_mib": 896.0, "reserved_unallocated_gib": 1.4}, 0.7),
        ({"wanted_mib": 2048.0, "reserved_unallocated_gib": 1.4}, 0.0),  # it would not have been enough
        ({"wanted_mib": 128.0, "reserved_unallocated_gib": 0.4}, 0.0),  # that is no fragmentation
        ({}, 0.0),
    ],
)
def test_half_of_what_was_reserved_in_vain_comes_back_with_expandable_segments(figures, regained):
    assert learned.regained_gib({"figures": figures}) == pytest.approx(regained)


def died(first, **more):
    death = {"kind": "oom_prefill", "direction": "lower", "keys": first.quantity_keys, "phase": "prefill"}
    return {**death, **more}


def test_a_death_of_the_graphs_moves_their_batch_and_keeps_the_chunk():
    """460,000 tokens leave 6.6 GiB as the reserve, 5.58 are needed: 1.2 more do not fit with the engine's levers."""
    first = planned(460000)
    assert (first.decided["chunked_prefill_size"], first.decided["decode_graph_batch"]) == (8192, 256)
    ready_gib = sum(one["gib"] for one in first.rows if one["part"] == "ready")
    load_gib = sum(one["gib"] for one in first.rows if one["part"] == "load")
    graphs = died(first, reserve_needed_gib=ready_gib + 1.2, kind="oom_graph_capture", phase="graphs")
    after = planned(460000, deaths=[graphs])
    assert after.feasible
    assert after.decided["chunked_prefill_size"] == 8192
    assert after.decided["decode_graph_batch"] < 256
    spike = planned(460000, deaths=[died(first, reserve_needed_gib=ready_gib + load_gib + 1.2)])
    assert spike.feasible
    assert spike.decided["chunked_prefill_size"] < 8192
    assert spike.decided["decode_graph_batch"] == 256


def test_a_start_that_took_more_than_its_rows_counts_under_other_levers_too():
    """Measured with a chunk of 8,192: 2 GiB more until ready than the table says. A chunk of 4,096 needs them too."""
    first = planned(300000)
    ready = sum(one["gib"] for one in first.rows if one["part"] == "ready")
    measured = {
        "keys": first.quantity_keys,
        "chunked_prefill_size": 8192,
        "free_after_load_gib": 62.0,
        "kv_gib": 36.0,
        "headroom_gib": 62.0 - 36.0 - ready - 2.0,
        "engine_version": "0.5.23",
    }
    arguments = {"chunked_prefill_size": 4096}
    plain = planned(300000, **arguments).reserve_needed_gib
    inp = plan_input({**HOST, "target_tokens": 300000, "measurements": [measured]})
    found = {one.chunk_tokens: one for one in solve.candidates(inp, bases.base_of(inp), 300000)}
    assert found[8192].needed_gib == pytest.approx(first.reserve_needed_gib + 2.0, abs=0.01)
    assert found[4096].needed_gib == pytest.approx(plain + 2.0, abs=0.05)


# ---------------------------------------------------------------------------
# A start tells
# ---------------------------------------------------------------------------


def boundary(is_wanted):
    """The largest target in thousands for which C(is_wanted) of the plan holds."""
    low, high = 100, 700
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_wanted(planned(middle * 1000)) else (low, middle - 1)
    return low


def test_between_what_is_sure_and_what_is_impossible_a_start_tells():
    sure = boundary(lambda one: one.feasible)
    possible = boundary(lambda one: one.feasible or one.is_open)
    assert sure < possible
    between = planned((sure + possible) // 2 * 1000)
    assert (between.feasible, between.is_open, between.refusal) == (False, True, None)
    assert between.cap_tokens == (sure + possible) // 2 * 1000
    assert between.predicted_tokens >= between.cap_tokens
    assert "a start tells" in between.reason
    beyond = planned((possible + 1) * 1000)
    assert (beyond.is_open, beyond.fraction) == (False, None)
    assert "do not fit" in beyond.refusal


def test_where_the_load_and_its_weights_were_measured_nothing_is_open():
    possible = boundary(lambda one: one.feasible or one.is_open)
    first = planned(possible * 1000)
    assert first.is_open
    # A start of it, after which everything is known; the load needs so much that it does not fit.
    measured = {
        "origin": "host",
        "keys": first.quantity_keys,
        "engine_version": "0.5.23",
        "fraction": first.fraction,
        "cap_tokens": first.cap_tokens,
        "pool_tokens": first.pool_tokens,
        "free_before_load_gib": first.free_before_load_gib,
        "free_after_load_gib": first.free_after_load_gib,
        "weights_gib": first.free_before_load_gib - first.free_after_load_gib,
        "kv_gib": first.pool_gib,
        "headroom_gib": 1.0,
        "least_free_gib": 0.1,
        "chunked_prefill_size": first.decided["chunked_prefill_size"],
    }
    after = planned(possible * 1000, measurements=[measured])
    assert (after.feasible, after.is_open) == (False, False)
    assert after.refusal


def test_who_states_the_figures_of_the_load_is_refused():
    stated = {"free_before_load_gib": 78.5, "weights_gib": 15.1, "gpus": []}
    tokens = boundary(lambda one: one.feasible or one.is_open) * 1000
    low = planned(tokens, **stated)
    assert not low.is_open
    assert low.feasible or low.refusal


def test_a_declared_fraction_is_never_open():
    tokens = boundary(lambda one: one.feasible or one.is_open) * 1000
    assert planned(tokens, mem_fraction_static=0.9).is_open is False


@pytest.mark.parametrize(
    ("death", "floor_gib"),
    [
        ({"origin": "play", "chunked_prefill_size": 16384}, 0.0),  # kin, on boards with another default
        ({"origin": "play", "chunked_prefill_size": 8192}, 9.0),
        ({"origin": "play"}, 9.0),  # of a time before it was kept
        ({"origin": "host", "chunked_prefill_size": 16384}, 9.0),
    ],
)
def test_a_death_of_kin_with_another_chunk_teaches_nothing_here(death, floor_gib):
    died = dict(death, reserve_needed_gib=9.0, keys={"activation": "a"})
    candidate = types.SimpleNamespace(keys={"activation": "a"}, chunk_tokens=8192, rows=(), table_gib=None)
    inp = types.SimpleNamespace(deaths=[died], keys=None)
    assert learned.lessons(inp, candidate, [(candidate, candidate.keys)]) == (floor_gib, 0.0)
