# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bench of the loop (make bench-converge), small: it runs, the loop reaches its goals, and a missed one is told."""

from __future__ import annotations

import subprocess
import sys

import bench_converge as bench
import converge_hosts
import pytest
import tree

HOST = converge_hosts.Host("x", "0.5.23", 1, "", {}, {}, {}, 1000, 1)
GOOD = {"host": HOST, "end": "proven", "restarts": 1, "died": None, "feasible": True, "pool_tokens": 1000}


def ran(*words):
    """The bench in a process of its own: the played engine is a package that is called sglang."""
    command = [sys.executable, tree.ROOT / "tools" / "bench_converge.py", "--seed", "7", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_twenty_hosts_reach_their_promise():
    """About 5 seconds on two cores that are idle. Three of the promises are more than a board of 24 GB has."""
    done = ran("--count", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Seed 7.\n20 hosts, 17 promises are feasible by the played engine, 3 are not.\n" in done.stdout
    assert "promises kept, of the feasible ones:  17 of 17\n" in done.stdout
    assert "died within an hour after the proof:  0\n" in done.stdout
    assert done.stdout.endswith("Goals: met.\n")


def test_a_death_under_the_load_is_followed_by_a_proof():
    """The sixteenth of the hosts with a surprise: it loses twice what is usual, 3.3 GiB, to fragmentation."""
    done = ran("--count", "16", "--tight", "--only", "15")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.splitlines()[1:3]
    assert ": unsafe: The server died under load" in first
    assert ": proven: " in second


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"end": "back", "feasible": False}, []),
        ({"restarts": 2}, ["median of 1.5 restarts"]),
        ({"restarts": 3}, ["median of 2 restarts", "1 hosts needed 3 restarts"]),
        ({"died": {"seconds": 10}}, ["1 died after they were proven"]),
        ({"pool_tokens": 999}, ["a pool below its promise was proven"]),
        ({"end": "refused", "restarts": 0}, ["1 of 2 feasible promises refused"]),
        ({"end": "back"}, ["1 feasible promises tried and not kept"]),
    ],
)
def test_each_goal_can_be_missed(changed, told):
    assert bench.missed([GOOD, {**GOOD, **changed}]) == told


def test_one_refusal_in_a_hundred_is_borne_and_two_are_not():
    refused = {**GOOD, "end": "refused", "restarts": 0}
    assert bench.missed([refused] + [GOOD] * 99) == []
    assert bench.missed([refused] * 2 + [GOOD] * 98) == ["2 of 100 feasible promises refused"]


def test_what_a_person_reckons_for_a_token():
    mla = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61}
    assert converge_hosts.cell_bytes(mla, 8) == 70272
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "num_hidden_layers": 32}
    assert converge_hosts.cell_bytes(heads, 1) == 131072
    assert converge_hosts.cell_bytes(heads, 2) == 65536
