from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.plugin_utils import _progress


class Printed:
    def __init__(self, hosts=1):
        self.lines = []
        self.now = 0.0
        self.progress = _progress.Progress(self.lines.append, "gpu-a", hosts, lambda: self.now)


def result(phase, seconds, timeline=(), **startup):
    rows = [{"phase": name, "at": 100.0 + at, "seconds": None} for name, at in timeline]
    return {"phase": phase, "elapsed_seconds": seconds, "startup": startup, "timeline": rows}


def test_line():
    text = _progress.line("gpu-a", "weights", 12.3, "20.7 GiB free before load")
    assert text == "gpu-a | weights | 12 s | 20.7 GiB free before load"


@pytest.mark.parametrize(
    ("phase", "startup", "text"),
    [
        ("weights", {"free_before_load_gib": 20.74}, "20.7 GiB free before load"),
        ("pool", {"free_after_load_gib": 20.5, "weights_gib": 0.22}, "20.5 GiB free after load, weights 0.2 GiB"),
        ("warmup", {"pool_tokens": 81946, "headroom_gib": 18.7}, "pool 81,946 tokens, headroom 18.7 GiB"),
        ("graphs", {"waiting_for": "tuning FlashInfer kernels"}, "tuning FlashInfer kernels"),
        ("weights", {"progress": {"what": "x", "done": 5, "total": 11, "percent": 45}}, "5 of 11 parts"),
        ("pool", {"progress": {"what": "x", "done": 11, "total": 11, "percent": 100}}, ""),
        ("process", {}, ""),
    ],
)
def test_detail(phase, startup, text):
    assert _progress.detail(startup, phase) == text


def test_a_phase_change_is_printed_at_once_and_the_same_phase_once_in_ten_seconds():
    printed = Printed()
    printed.progress.begin("sglang-main.service")
    for now, phase in (
        (2, "process"),
        (4, "process"),
        (6, "weights"),
        (9, "weights"),
        (16, "weights"),
        (20, "weights"),
    ):
        printed.now = now
        printed.progress.step(result(phase, now))
    assert printed.lines == [
        "gpu-a | waiting | 0 s | sglang-main.service",
        "gpu-a | process | 2 s",
        "gpu-a | weights | 6 s",
        "gpu-a | weights | 16 s",
    ]


def test_phases_that_went_by_between_two_slices_are_printed_once():
    printed = Printed()
    timeline = [("process", 0), ("init", 20), ("weights", 22), ("pool", 23)]
    printed.progress.step(result("process", 10, timeline[:1]))
    printed.progress.step(result("pool", 24, timeline))
    printed.progress.end(
        dict(
            result(
                "ready",
                28,
                [*timeline, ("warmup", 26), ("ready", 28), ("completion", 28.1)],
                pool_tokens=1000,
                headroom_gib=2.0,
            ),
            verdict="holds",
            failure=None,
        )
    )
    assert printed.lines == [
        "gpu-a | process | 10 s",
        "gpu-a | init | 20 s",
        "gpu-a | weights | 22 s",
        "gpu-a | pool | 23 s",
        "gpu-a | warmup | 26 s | pool 1,000 tokens, headroom 2.0 GiB",
        "gpu-a | ready | 28 s | pool 1,000 tokens, headroom 2.0 GiB",
    ]


def test_a_server_that_is_up_for_long_has_one_line():
    printed = Printed()
    rows = [("process", 0), ("weights", 22), ("ready", 28), ("completion", 5000)]
    printed.progress.end(
        dict(result("ready", 5000, rows), verdict="holds", failure=None, slice={"waiting_since": 5099.0})
    )
    assert printed.lines == ["gpu-a | ready | 5000 s"]


def test_a_failure_is_named_in_one_line():
    printed = Printed()
    failure = {"kind": "oom_prefill", "evidence": "CUDA out of\nmemory " + "x" * 500}
    printed.progress.end(dict(result("warmup", 31), verdict="failed", failure=failure))
    assert printed.lines[0].startswith("gpu-a | failed | 31 s | oom_prefill: CUDA out of memory x")
    assert len(printed.lines[0]) < 230


def test_short_says_by_how_much():
    printed = Printed()
    printed.progress.end(dict(result("ready", 31, pool_tokens=5), verdict="short", reason="4,989 short", failure=None))
    assert printed.lines == ["gpu-a | ready | 31 s | short: 4,989 short"]


def test_in_large_batches_only_the_ends_are_printed():
    printed = Printed(hosts=21)
    printed.progress.begin("u")
    printed.progress.step(result("weights", 5))
    printed.progress.lost("gone")
    assert printed.lines == []
    printed.progress.end(dict(result("ready", 31, pool_tokens=5), verdict="holds", failure=None))
    assert len(printed.lines) == 1


# -- patience


def stalled():
    failure = {
        "kind": "watchdog_hang",
        "evidence": "nothing was logged for 300 s",
        "figures": {"silence_seconds": 300.0},
    }
    return dict(result("weights", 390), verdict="failed", failure=failure)


def test_a_stall_is_said_as_one():
    printed = Printed()
    printed.progress.end(stalled())
    assert printed.lines == ["gpu-a | stalled | 390 s | watchdog_hang: nothing was logged for 300 s"]


@pytest.mark.parametrize(
    ("ending", "word"),
    [
        (stalled(), "stalled"),
        ({"verdict": "failed", "failure": {"kind": "watchdog_hang", "figures": {}}}, "failed"),
        ({"verdict": "failed", "failure": {"kind": "timeout"}}, "failed"),
        ({"verdict": "holds", "failure": None}, "ready"),
        ({"verdict": "short", "failure": None}, "ready"),
    ],
)
def test_end_word(ending, word):
    assert _progress.end_word(ending) == word


def test_in_large_batches_only_the_ends_are_said():
    printed = Printed(hosts=21)
    printed.progress.begin("sglang-main.service")
    printed.progress.step(dict(result("weights", 6), deadline={"seconds": 900.0, "auto": True, "why": "x"}))
    printed.progress.lost("gone")
    assert printed.lines == []
    printed.progress.end(stalled())
    assert len(printed.lines) == 1


def test_how_far_it_is_and_how_long_it_may_take():
    printed = Printed()
    deadline = {"seconds": 4320.0, "auto": True, "why": "594.0 GiB of weights on an NVMe disk"}
    words = "5 of 11 parts, about 40 s left for the weights"
    parts = {"done": 5, "total": 11}
    for now in (2, 12):
        printed.now = now
        told = result("weights", now, progress=parts)
        printed.progress.step(dict(told, deadline=deadline, progress={"words": words}))
    assert printed.lines == [
        "gpu-a | waiting | 0 s | at most 4320 s: 594.0 GiB of weights on an NVMe disk",
        "gpu-a | weights | 2 s | 5 of 11 parts, about 40 s left for the weights",
        "gpu-a | weights | 12 s | 5 of 11 parts, about 40 s left for the weights",
    ]


def test_a_deadline_that_was_stated_is_no_news():
    printed = Printed()
    printed.progress.step(dict(result("weights", 2), deadline={"seconds": 900.0, "auto": False, "why": "as stated"}))
    assert printed.lines == ["gpu-a | weights | 2 s"]


def test_a_new_phase_is_said_with_the_time_at_which_it_began():
    """The slice came back three seconds later; the next line is of the moment."""
    printed = Printed()
    printed.progress.step(result("weights", 34, [("process", 0), ("init", 29), ("weights", 31)]))
    printed.now = 10
    printed.progress.step(result("weights", 44, [("process", 0), ("init", 29), ("weights", 31)]))
    assert [line.split(" | ")[1:3] for line in printed.lines] == [
        ["process", "0 s"],
        ["init", "29 s"],
        ["weights", "31 s"],
        ["weights", "44 s"],
    ]


def held(free_gib=5.3, **result_of):
    boards = {name: {"rank": f"TP{name}", "free_mib": 5427, "witness": "nvidia-smi"} for name in ("0", "3")}
    found = result("ready", 31, pool_tokens=195011, headroom_gib=5.5)
    return dict(
        found,
        verdict="holds",
        failure=None,
        headroom={"boards": boards, "tightest": "3", "free_gib": free_gib},
        **result_of,
    )


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (held(), "pool 195,011 tokens, headroom 5.3 GiB on GPU 3 (TP3)"),
        (
            held(pools={"dp_size": 2, "total_tokens": 390030, "least": "DP0"}),
            "pool 195,011 tokens on each of 2 DP ranks (390,030 in all), headroom 5.3 GiB on GPU 3 (TP3)",
        ),
        (held(free_gib=None), "pool 195,011 tokens, headroom 5.5 GiB"),
    ],
)
def test_the_last_line_says_what_is_held_by_all_witnesses(ending, text):
    printed = Printed()
    printed.progress.end(ending)
    assert printed.lines == [f"gpu-a | ready | 31 s | {text}"]


def test_a_server_that_was_up_before_is_said_to_be_so_and_the_seconds_are_those_of_the_wait():
    printed = Printed()
    over = dict(
        result("ready", 238.0, [("process", 0), ("ready", 38)], ready_at=138.0, pool_tokens=200000),
        verdict="holds",
        waited_seconds=1.4,
        slice={"waiting_since": 336.6},
    )
    printed.progress.end(over)
    assert printed.lines == ["gpu-a | ready | 1 s | pool 200,000 tokens, up for 200 s"]
    # One that became ready in the wait: the seconds are those of its start.
    printed.progress.end(dict(over, slice={"waiting_since": 101.0}))
    assert printed.lines[-1] == "gpu-a | ready | 238 s | pool 200,000 tokens"
