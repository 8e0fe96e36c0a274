# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop from plan to verdict to next step (_budget, _verdict, _step), on the figures of the reference case.

Eight boards of 96 GB, an MLA model of 61 layers: a token costs 576 x 61 x 2 = 70,272 bytes. 200,000 of them take 13.089
GiB. 93.61 GiB are free before the load, as such boards begin.
"""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import plan_of
from ansible_collections.gpufleet.sglang.plugins.module_utils import _change_proof, _verdict

ARGUMENTS = {"tp-size": 8, "max-running-requests": 256}
HOST = {
    "arguments": ARGUMENTS,
    "geometry": {
        "attention": "mla",
        "layers": 61,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "hidden_size": 7168,
        "attention_heads": 64,
        "v_head_dim": 128,
        "experts": 384,
        "experts_per_token": 8,
        "moe_intermediate_size": 2048,
        "intermediate_size": 18432,
        "max_context_tokens": 262144,
    },
    "engine_version": "0.5.14",
    "weight_bytes": 620 * 10**9,
    "target_tokens": 200000,
    "gpus": [
        {"index": index, "name": "x", "memory_total_mib": 97887, "memory_free_mib": 97200, "compute_capability": "12.0"}
        for index in range(8)
    ],
    "request": {"target_tokens": 200000},
    "server": {},
}
# What the start at 0.93 printed: 195,011 tokens are 12.763 GiB, and the reserve of 93.61 x 0.07 = 6.553 is outside.
SHORT = {
    "pool_tokens": 195011,
    "free_before_load_gib": 93.61,
    "free_after_load_gib": 19.32,
    "weights_gib": 74.29,
    "kv_gib": 12.76,
    "headroom_gib": 3.55,
    "chunked_prefill_size": 4096,
}
# The death at 0.94: 218,000 tokens, the words of torch.
DIED = {
    "kind": "oom_prefill",
    "phase": "prefill",
    "direction": "lower",
    "evidence": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB.",
    "figures": {"wanted_mib": 896.0, "free_mib": 893.38, "reserved_unallocated_gib": 1.4},
}


def attempt_of(plan, ready, soak=None, fraction=None):
    """The attempt as server_attempt judges it. A fraction: of a configuration that the plan would not have chosen."""
    step = plan["step"]
    values = dict(step["values"])
    if fraction:
        values.update(fraction=fraction, arguments=dict(values["arguments"], **{"mem-fraction-static": fraction}))
    judged = _change_proof.attempt_of(0.0, "run", 1, dict(step, values=values), plan, ready, soak or {}, {})
    return dict(judged, values=values)


def replanned(attempt, **more):
    measurements = [attempt["measurement"]] if attempt["measurement"] else []
    deaths = [attempt["death"]] if attempt["death"] else []
    return plan_of({**HOST, "measurements": measurements, "deaths": deaths, "attempts": [attempt], **more})


def ready_of(startup, failure=None):
    judged = _verdict.judge_ready(startup, failure, 200000, 1.0)
    return {**judged, "startup": startup, "failure": failure, "invocation_id": "one"}


def test_195011_tokens_are_short_by_4989_and_the_next_fraction_comes_from_what_was_measured():
    first = plan_of(HOST)
    short = attempt_of(first, ready_of(SHORT), fraction=0.93)
    assert (short["verdict"], short["reason"]) == (
        "short",
        "The pool holds 195,011 tokens, 4,989 short of the target of 200,000.",
    )
    after = replanned(short)
    step = after["step"]
    # Gone when the pool was sized: 93.61 - 12.763 - 6.553 = 74.294. With 13.089 for the promise and 0.52 to 0.68 GiB
    # of band, so much of 93.61 is 0.939 to 0.941.
    assert 0.939 <= after["fraction_low"] <= 0.941
    assert step["action"] == "try"
    assert step["values"]["fraction"] >= after["fraction_low"]
    assert step["values"]["arguments"]["max-total-tokens"] == 200000
    assert after["predicted_tokens_low"] >= 200000
    assert "4,989 short" in step["reason"]
    assert "Next: fraction %s" % step["values"]["fraction"] in step["reason"]


def test_the_next_fraction_leaves_what_the_load_showed_to_be_needed_and_no_less():
    """Until ready 19.32 - 12.76 - 3.55 = 3.01 were taken, by the load 3.55 - 1.90 = 1.65; 0.468 stay as the floor."""
    measured = dict(SHORT, origin="host", engine_version="0.5.14", fraction=0.93, least_free_gib=1.90)
    after = plan_of({**HOST, "measurements": [measured], "chunked_prefill_size": 4096})
    assert after["reserve_needed_gib"] == pytest.approx(3.01 + 1.65 + 0.468, abs=0.01)
    # 1 - 5.128 / 93.61 is 0.9452, and less by what free before load may move.
    assert after["fraction_high"] in (0.944, 0.945)
    assert after["fraction_low"] <= after["fraction"] <= after["fraction_high"]


def test_the_death_at_094_is_unsafe_and_remembered_as_the_reserve_that_it_needed():
    first = plan_of(HOST)
    startup = dict(SHORT, pool_tokens=218000, kv_gib=14.267)
    soak = {"verdict": "unsafe", "failure": DIED, "reason": "The server died under load.", "least_free_gib": {"0": 0.9}}
    dead = attempt_of(first, ready_of(startup), soak, fraction=0.94)
    assert dead["verdict"] == "unsafe"
    # 93.61 - 74.29 - 14.267 = 5.053, and 896 - 893.38 MiB were missing.
    assert dead["death"]["reserve_needed_gib"] == pytest.approx(5.053 + 2.62 / 1024, abs=0.001)
    # What was free before the spike says nothing of what the load takes.
    assert dead["measurement"]["least_free_gib"] is None
    after = replanned(dead)
    # Not undercut again: the floor of 0.468 is kept on top of it.
    assert after["reserve_needed_gib"] >= 5.05 + 0.468 - 0.7
    # 1.4 GiB were reserved and of no use, more than was wanted: the allocator is moved, nothing forbids it here.
    assert "expandable_segments:True" in after["environment"].values()


def test_without_the_allocator_the_whole_reserve_of_the_death_is_kept():
    first = plan_of({**HOST, "allocator_conf": ""})
    startup = dict(SHORT, pool_tokens=218000, kv_gib=14.267)
    dead = attempt_of(first, ready_of(startup), {"verdict": "unsafe", "failure": DIED, "reason": "x"}, fraction=0.94)
    after = replanned(dead, allocator_conf="", chunked_prefill_size=first["decided"]["chunked_prefill_size"])
    assert after["reserve_needed_gib"] >= 5.055 + 0.468


def test_a_declared_fraction_that_was_tried_is_not_moved_and_the_way_back_names_values_that_work():
    first = plan_of({**HOST, "mem_fraction_static": 0.93, "allow_unproven_plan": True})
    short = attempt_of(first, ready_of(SHORT))
    step = replanned(short, mem_fraction_static=0.93)["step"]
    assert step["action"] == "back"
    assert "4,989 short" in step["reason"]
    assert "what works is sglang_server_mem_fraction_static: 0.9" in step["reason"]


def test_a_declared_chunk_stays_and_a_start_tells_when_only_the_bad_end_stands_against_it():
    short = attempt_of(plan_of(HOST), ready_of(SHORT), fraction=0.93)
    after = replanned(short, chunked_prefill_size=4096, arguments={"tp-size": 8, "max-running-requests": 2048})
    assert (after["feasible"], after["is_open"], after["step"]["action"]) == (False, True, "try")
    assert after["step"]["values"]["arguments"]["chunked-prefill-size"] == 4096
