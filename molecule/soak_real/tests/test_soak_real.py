"""The load of the real engine, held against the lines that SGLang itself wrote meanwhile."""

from __future__ import annotations

import json
import re

import pytest

UNIT = "sglang-main.service"
CONTEXT_TOKENS = 2048
PREFILL = re.compile(
    r"Prefill batch, .*#new-token: (\d+), .*#running-req: (\d+), .*input throughput \(token/s\): ([\d.]+)"
)
DECODE = re.compile(r"Decode batch, .*#running-req: (\d+), .*gen throughput \(token/s\): ([\d.]+)")


@pytest.fixture(scope="module")
def attempt(host):
    with host.sudo():
        return json.loads(host.file("/var/lib/sglang/main/attempts.jsonl").content_string.splitlines()[-1])


@pytest.fixture(scope="module")
def journal(host, attempt):
    with host.sudo():
        return host.check_output(
            "journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID=%s" % attempt["invocation_id"]
        ).splitlines()


def phases(attempt):
    return {phase["name"]: phase for phase in attempt["soak"]["phases"]}


def test_the_declared_context_is_proven(attempt):
    assert attempt["verdict"] == "proven"
    assert attempt["soak"]["context_tokens"] == CONTEXT_TOKENS
    assert 0.9 * CONTEXT_TOKENS <= attempt["soak"]["longest_prompt_tokens"] < CONTEXT_TOKENS
    assert attempt["soak"]["bound"] is None
    assert all(phase["requests"] == phase["planned"] for phase in attempt["soak"]["phases"])


def test_the_ladder_climbs_to_it(attempt, journal):
    computed = [int(found.group(1)) for found in map(PREFILL.search, journal) if found]
    longest = attempt["soak"]["longest_prompt_tokens"]
    for tokens in (longest // 8, longest // 4, longest // 2, longest):
        assert tokens in computed, tokens


def test_the_prefill_speed_is_the_one_that_the_engine_tells(attempt, journal):
    """The prompt near the context is sent alone and is one pass: its time to the first token is that of its line."""
    row = phases(attempt)["context"]
    told = [
        float(found.group(3))
        for found in map(PREFILL.search, journal)
        if found and found.group(2) == "0" and int(found.group(1)) == row["longest_prompt_tokens"]
    ]
    ours = row["longest_prompt_tokens"] / row["ttft_seconds"]
    # The engine counts from the line before, so what else happened in between is in its figure.
    assert any(ours == pytest.approx(one, rel=0.25) for one in told), (ours, told)


def test_the_prefill_speed_of_the_result_is_that_of_its_long_prompts(attempt, journal):
    longest = attempt["soak"]["longest_prompt_tokens"]
    told = [
        float(found.group(3))
        for found in map(PREFILL.search, journal)
        if found and found.group(2) == "0" and int(found.group(1)) >= longest // 4
    ]
    assert min(told) * 0.75 <= attempt["soak"]["prefill_tokens_per_second"] <= max(told) * 1.25, told


def test_the_decode_speed_is_the_one_that_the_engine_tells(attempt, journal):
    """Of all lines with as many requests at once as the batch has; those in which a prefill fell are slower."""
    row = phases(attempt)["decode"]
    told = [
        float(found.group(2))
        for found in map(DECODE.search, journal)
        if found and int(found.group(1)) == row["requests"]
    ]
    ours = attempt["soak"]["decode_tokens_per_second"]
    assert any(ours == pytest.approx(one, rel=0.25) for one in told), (ours, told)
    assert ours <= 1.25 * max(told)


def test_what_a_slow_pass_needs_is_in_the_unit(host):
    with host.sudo():
        assert 'SGLANG_HEALTH_CHECK_TIMEOUT="90"' in host.file("/etc/sglang/main.env").content_string
        assert "--watchdog-timeout" in host.check_output("systemctl cat %s" % UNIT)


def test_health_was_asked_and_answered_meanwhile(attempt):
    """Two prompts of 2,048 tokens in one pass take longer than the 20 s that the engine gives itself."""
    assert attempt["soak"]["health"]["asked"] > 0
    assert attempt["soak"]["health"]["refused"] == 0


def test_no_note_is_left(host):
    with host.sudo():
        assert host.run("ls /root/.ansible_async/*.progress").rc != 0
