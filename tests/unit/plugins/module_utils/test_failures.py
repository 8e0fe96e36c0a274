# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import collections
import json
import pathlib
import re
import re._parser as regex_parser
import time

import pytest
import troubleshooting
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failure_catalogue,
    _failure_figures,
    _failure_record,
    _failure_unnamed,
    _failures,
    _journal,
    _journal_lines,
    _journal_text,
    _startup,
    _startup_lines,
    _unit,
)

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "journal"
TRIALS = yaml.safe_load((DATA / "trials.yaml").read_text())
WORDINGS = yaml.safe_load((DATA / "wordings.yaml").read_text())
REPORTS = yaml.safe_load((DATA / "reports.yaml").read_text())
GOOD = (DATA / "start_and_ready.jsonl").read_text()
LOOP = (DATA / "crash_loop.jsonl").read_text()
READY = "[2026-05-31 10:15:07] The server is fired up and ready to roll!\n"
OPTIONS = ("target_tokens", "cell_bytes", "silence_seconds", "deadline_seconds")


def classify(text, **options):
    return _failures.classify(_journal.decode(text)[0], **options)


def died(**changes):
    values = {
        "name": "sglang-main.service",
        "active_state": "failed",
        "sub_state": "failed",
        "result": "signal",
        "exec_main_code": _unit.KILLED,
        "exec_main_status": 9,
    }
    values.update(changes)
    return _unit.UnitState(**values)


@pytest.mark.parametrize(
    "trial",
    TRIALS + REPORTS,
    ids=[trial["id"] for trial in TRIALS]
    + ["{0}-{1}".format(number, "/".join(report["source"].split("/")[-4:])) for number, report in enumerate(REPORTS)],
)
def test_a_public_report_is_judged_right(trial):
    entries = _journal.select_invocation(_journal.decode(trial["log"])[0], trial.get("invocation_id"))
    startup = _startup.read_startup(entries)
    failure = _failures.classify(entries, startup, **{name: trial[name] for name in OPTIONS if name in trial})
    expected = trial["expected"]
    if "state" in expected:
        assert failure is None
        assert startup.state == expected["state"]
        assert startup.phase == expected.get("phase", startup.phase)
        if "percent" in expected:
            assert startup.progress["percent"] == expected["percent"]
        return
    assert failure.kind == expected["kind"]
    assert failure.direction == expected.get("direction", failure.direction)
    assert failure.phase == expected.get("phase", failure.phase)
    assert {name: failure.figures[name] for name in expected.get("figures", {})} == expected.get("figures", {})
    assert expected.get("evidence", "") in failure.evidence
    assert expected.get("advice", "") in failure.advice
    assert expected.get("evidence_not", "\0") not in failure.evidence
    assert list(failure.ranks) == expected.get("ranks", list(failure.ranks))
    told = json.dumps(failure.as_dict())
    assert not [secret for secret in expected.get("never", []) if secret in told]


def test_how_many_public_reports_took_part(capsys):
    with capsys.disabled():
        print(
            "\n{0} public reports ({1}), {4} re-built logs, {2} wordings of {3} rows".format(
                len(TRIALS),
                ", ".join(
                    "{1} of group {0}".format(*pair)
                    for pair in sorted(collections.Counter(trial["id"][0] for trial in TRIALS).items())
                ),
                len(WORDINGS),
                len(_failure_catalogue.ROWS),
                len(REPORTS),
            )
        )
    assert len(TRIALS) >= 31
    assert len(REPORTS) >= 220


@pytest.mark.parametrize(
    "case", WORDINGS, ids=["{0}-{1}".format(number, case["expected"]) for number, case in enumerate(WORDINGS)]
)
def test_a_wording_is_known(case):
    entries = _journal_text.decode_text(case["log"])
    failure = _failures.classify(entries)
    assert (failure.kind if failure else _startup.read_startup(entries).state) == case["expected"]


def test_a_good_start_has_no_failure():
    assert classify(GOOD) is None
    assert _failures.notices(_failures.Case(_journal.decode_json_lines(GOOD))) == []


def test_a_start_that_only_loads_has_no_failure():
    lines = GOOD.splitlines()
    for count in range(len(lines)):
        assert classify("\n".join(lines[:count])) is None


def test_the_cause_of_a_real_crash_is_the_traceback_and_not_the_signal():
    entries = _journal.select_invocation(
        _journal.decode_json_lines(LOOP), _journal.invocations(_journal.decode_json_lines(LOOP))[0]
    )
    failure = _failures.classify(entries, unit=died())
    assert failure.kind == "toolchain_missing"
    assert failure.evidence == "ModuleNotFoundError: No module named 'vllm'"
    assert failure.fatal
    assert failure.figures["module"] == "vllm"
    assert failure.at == pytest.approx(1795972152.329963)
    assert failure.consequence_at == pytest.approx(1795972152.329963)
    assert "sglang_engine" in failure.advice


def test_a_death_is_named_before_systemd_knows():
    entries = _journal.select_invocation(
        _journal.decode_json_lines(LOOP), _journal.invocations(_journal.decode_json_lines(LOOP))[0]
    )
    until = next(index for index, entry in enumerate(entries) if "sigquit" in entry.message)
    assert _failures.classify(entries[:until]).fatal


# ---------------------------------------------------------------------------------------------------------------------
# Device memory

REFERENCE = (
    READY + "[2026-05-31 10:20:07 TP0] Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0\n"
    "[2026-05-31 10:20:08 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/scheduler.py", line 900, in event_loop_overlap\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 94.97 "
    "GiB of which "
    "893.38 MiB is free. Including non-PyTorch memory, this process has 94.10 GiB memory in use. Of the allocated "
    "memory 90.10 GiB "
    "is allocated by PyTorch, and 1.40 GiB is reserved by PyTorch but unallocated.\n"
)


def test_the_reference_death_is_named_with_its_figures():
    failure = classify(REFERENCE)
    assert (failure.kind, failure.phase, failure.direction, failure.fatal) == ("oom_prefill", "prefill", "lower", True)
    assert failure.figures["wanted_mib"] == 896.0
    assert failure.figures["free_mib"] == 893.38
    assert failure.figures["total_gib"] == 94.97
    assert failure.figures["in_use_gib"] == 94.1
    assert failure.figures["reserved_unallocated_gib"] == 1.4
    assert failure.figures["board"] == 0
    assert failure.figures["shape"] == "fragmentation"
    assert "sglang_server_allocator_conf" in failure.advice
    assert failure.ranks == ("TP0",)


@pytest.mark.parametrize(
    ("kind", "figures", "shape", "direction", "lever"),
    [
        (
            "oom_prefill",
            {"wanted_mib": 896.0, "free_mib": 893.0, "reserved_unallocated_gib": 1.4},
            "fragmentation",
            "lower",
            "allocator_conf",
        ),
        (
            "oom_prefill",
            {"wanted_mib": 896.0, "free_mib": 100.0, "reserved_unallocated_gib": 0.1},
            "spike",
            "lower",
            "chunked_prefill_size",
        ),
        ("oom_prefill", {"wanted_mib": 20.0, "free_mib": 10.0}, "thin_reserve", "lower", "mem_fraction_static"),
        ("oom_prefill", {}, "thin_reserve", "lower", "mem_fraction_static"),
        # 300 MiB lay idle where 294 were missing: less than was wanted as a whole, and yet enough.
        (
            "oom_prefill",
            {"wanted_mib": 970.0, "free_mib": 676.0, "reserved_unallocated_gib": 0.293},
            "fragmentation",
            "lower",
            "allocator_conf",
        ),
        # Nothing but the rounding of the allocator.
        (
            "oom_prefill",
            {"wanted_mib": 32.0, "free_mib": 13.0, "reserved_unallocated_gib": 0.02},
            "thin_reserve",
            "lower",
            "mem_fraction_static",
        ),
        ("oom_prefill", {"total_gib": 80.0, "foreign_gib": 20.0, "board": 3}, "foreign", "keep", "board 3"),
        ("oom_graph_capture", {"wanted_mib": 448.0, "free_mib": 218.5}, "graphs", "lower", "--cuda-graph-max-bs"),
        ("oom_decode", {}, "decode", "lower", "--max-running-requests"),
        ("oom_weights", {"total_gib": 80.0, "foreign_gib": 0.1}, "weights", "infeasible", "--tp-size"),
        ("oom_weights", {"total_gib": 80.0, "foreign_gib": 30.0}, "foreign", "keep", "other processes hold 30.00 GiB"),
    ],
)
def test_the_shape_of_a_memory_death_decides_the_lever(kind, figures, shape, direction, lever):
    found_direction, found_shape, advice = _failure_figures.judge_out_of_memory(kind, figures)
    assert (found_shape, found_direction) == (shape, direction)
    assert lever in advice


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (
            "CUDA out of memory. Tried to allocate 224.00 MiB (GPU 0; 23.65 GiB total capacity; 22.10 GiB already "
            "allocated; 11.06 MiB free; "
            "22.40 GiB reserved in total by PyTorch)",
            {
                "wanted_mib": 224.0,
                "board": 0,
                "total_gib": 23.65,
                "free_mib": 11.06,
                "allocated_gib": 22.1,
                "reserved_unallocated_gib": 0.3,
            },
        ),
        (
            "NPU out of memory. Tried to allocate 296.00 MiB (NPU 10; 61.27 GiB total; 17.36 GiB allocated; 183 "
            "MiB free)",
            {"wanted_mib": 296.0, "board": 10, "total_gib": 61.27, "free_mib": 183.0, "allocated_gib": 17.36},
        ),
        (
            "HIP out of memory. Tried to allocate 16.25 GiB. GPU 0 has a total capacity of 255.98 GiB of which 4.23 "
            "GiB is free.",
            {"wanted_mib": 16640.0, "total_gib": 255.98, "free_mib": 4331.52},
        ),
        (
            "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3 has a total capacity of 79.19 GiB of which 512.00 "
            "MiB is free. "
            "Process 77 has 40.00 GiB memory in use. Process 78 has 38.00 GiB memory in use.",
            {"in_use_gib": 40.0, "foreign_gib": 38.0},
        ),
        (
            "NPU out of memory. Tried to allocate 2.25 GiB (NPU 3; 61.28 GiB total capacity; 57.83 GiB already "
            "allocated; 57.83 GiB current active; 1.20 GiB free; 58.60 GiB reserved in total by PyTorch)",
            {
                "wanted_mib": 2304.0,
                "board": 3,
                "total_gib": 61.28,
                "free_mib": 1228.8,
                "allocated_gib": 57.83,
                "reserved_unallocated_gib": 0.77,
            },
        ),
        (
            "XPU out of memory. Tried to allocate 1.00 GiB (GPU 0; 15.56 GiB total capacity; 990.00 MiB already "
            "allocated; 990.00 MiB reserved in total by PyTorch)",
            {"wanted_mib": 1024.0, "total_gib": 15.56, "allocated_gib": 0.967},
        ),
        # torch 2.1 and 2.2 print "capacty".
        (
            "CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacty of 23.65 GiB of which 38.69 "
            "MiB is free. Including non-PyTorch memory, this process has 17.41 GiB memory in use.",
            {"total_gib": 23.65, "free_mib": 38.69, "in_use_gib": 17.41, "foreign_gib": 6.202},
        ),
        ("Tried to allocate 512 bytes", {"wanted_mib": 0.0}),
        ("nothing here", {}),
    ],
)
def test_the_figures_of_all_torch_texts_are_read(text, figures):
    found = _failure_figures.parse_out_of_memory(text)
    assert {name: found[name] for name in figures} == figures


@pytest.mark.parametrize(
    ("before", "kind", "phase"),
    [
        ("[2026-05-31 10:00:00 TP0] Load weight begin. avail mem=94.00 GB\n", "oom_weights", "weights"),
        (
            "[2026-05-31 10:00:00 TP0] Load weight end. avail mem=19.00 GB, mem usage=75.00 GB.\n",
            "oom_graph_capture",
            "pool",
        ),
        ("[2026-05-31 10:00:00 TP0] Capture cuda graph begin. avail mem=5.00 GB\n", "oom_graph_capture", "graphs"),
        (
            "[2026-05-31 10:00:00 TP0] max_total_num_tokens=1, max_prefill_tokens=1, max_running_requests=1, "
            "context_len=1\n",
            "oom_prefill",
            "warmup",
        ),
        (READY, "oom_prefill", "serving"),
        (READY + "[2026-05-31 10:00:00 TP0] Decode batch, #running-req: 1\n", "oom_decode", "decode"),
        (READY + "[2026-05-31 10:00:00 TP0] Prefill batch, #new-seq: 1\n", "oom_prefill", "prefill"),
        ("", "oom_prefill", None),
        # Another rank is further: that of the dying one counts.
        (
            "[2026-05-31 10:00:00 TP1] Capture cuda graph begin. avail mem=5.00 GB\n"
            "[2026-05-31 10:00:00 TP0] Load weight begin. avail mem=94.00 GB\n",
            "oom_weights",
            "weights",
        ),
    ],
)
def test_the_phase_is_what_the_dying_rank_had_reached(before, kind, phase):
    failure = classify(
        before + "[2026-05-31 10:30:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.\n"
    )
    assert (failure.kind, failure.phase) == (kind, phase)


def test_eight_ranks_that_die_at_once_are_one_failure():
    records = []
    for step in (
        "[2026-05-31 10:00:00 TP{0}] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/model_runner.py", line 1, in init_memory_pool',
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ):
        records += [
            {"MESSAGE": step.format(number), "_PID": str(100 + number), "_TRANSPORT": "stdout"} for number in range(8)
        ]
    failure = classify("\n".join(json.dumps(record) for record in records))
    assert failure.kind == "kv_pool_too_small"
    assert failure.ranks == tuple("TP{0}".format(number) for number in range(8))


# ---------------------------------------------------------------------------------------------------------------------
# The pool


@pytest.mark.parametrize(
    ("target", "cell", "direction", "smallest"),
    [(None, None, "raise", 0.7611), (65536, 98304, "raise", 0.8369), (1000000, 98304, "infeasible", 1.9185)],
)
def test_a_pool_without_room_gives_the_smallest_fraction(target, cell, direction, smallest):
    failure = classify(
        "[2026-04-14 10:00:01 TP0] Load weight begin. avail mem=79.10 GB\n"
        "[2026-04-14 10:01:33 TP0] Load weight end. type=X, dtype=torch.bfloat16, avail mem=18.90 GB, mem "
        "usage=60.20 GB.\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n",
        target_tokens=target,
        cell_bytes=cell,
    )
    assert (failure.kind, failure.direction) == ("kv_pool_too_small", direction)
    assert failure.figures["smallest_fraction"] == smallest
    assert "sglang_server_mem_fraction_static" in failure.advice


def test_the_bound_that_sglang_prints_is_given_on():
    failure = classify(
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. "
        "Raise --mem-fraction-static above 0.912 (minimum viable = 1 - available/pre = 0.9112)."
    )
    assert failure.figures["above"] == 0.912
    assert "above 0.912" in failure.advice


def test_a_full_window_pool_has_a_lever_of_its_own():
    failure = classify(
        READY + "[2026-03-10 03:10:43 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\n"
        "Available full: 90000 (full_available_size=90000 + full_evictable_size=0)\n"
        "Available swa: 3840 (swa_available_size=3840 + swa_evictable_size=0)\n"
    )
    assert (failure.kind, failure.direction, failure.figures["pool"]) == ("oom_prefill", "keep", "window")
    assert "--swa-full-tokens-ratio" in failure.advice


# ---------------------------------------------------------------------------------------------------------------------
# Cause, consequence, notice


def test_a_launcher_traceback_is_fatal_once_the_unit_has_ended():
    text = (
        "Traceback (most recent call last):\n  File \"/x/launch_server.py\", line 14, in <module>\nKeyError: 'qwen'\n"
    )
    waiting = classify(text)
    assert (waiting.kind, waiting.fatal) == ("unknown", False)
    over = classify(text, unit=died(result="exit-code", exec_main_code=_unit.EXITED, exec_main_status=1))
    assert (over.kind, over.fatal, over.evidence) == ("unknown", True, "KeyError: 'qwen'")


def test_the_root_of_a_chain_is_the_first_exception():
    failure = classify(
        '[2026-05-31 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File "/x.py", '
        "line 1, in f\n"
        "ValueError: the root\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/x.py", line 2, in g\nRuntimeError: the coat\n'
    )
    assert (failure.kind, failure.evidence) == ("scheduler_died", "ValueError: the root")


def test_a_bare_assertion_is_told_by_the_line_of_the_program():
    text = (
        "[2026-05-31 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/model.py", line 7, in __init__\n    assert {0}\n           ^^^^^^^^\nAssertionError\n'
    )
    unknown = classify(text.format("self.store_dtype == torch.uint8"))
    assert (unknown.kind, unknown.evidence) == (
        "scheduler_died",
        "AssertionError: assert self.store_dtype == torch.uint8",
    )
    known = classify(text.format("self.total_num_heads % tp_size == 0"))
    assert (known.kind, known.row) == ("bad_args", "divisible_tp")


def test_the_words_of_device_memory_where_host_memory_is_pinned_are_about_the_host():
    text = (
        "[2026-05-31 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/srt/mem_cache/{0}.py", line 7, in init_kv_buffer\nRuntimeError: CUDA error: out of memory\n'
    )
    host = classify(text.format("memory_pool_host"))
    assert (host.kind, host.direction, host.fault) == ("host_oom_kill", "keep", "host")
    assert "--hicache-size" in host.advice
    board = classify(text.format("memory_pool"))
    assert (board.kind, board.phase, board.direction, board.figures["shape"]) == (
        "oom_graph_capture",
        "pool",
        "lower",
        "pool",
    )


def test_the_same_words_outside_the_load_are_no_wrong_weights():
    text = (
        "[2026-05-31 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/srt/{0}", line 7, in {1}\n'
        "RuntimeError: The size of tensor a (2048) must match the size of tensor b (4096)\n"
    )
    assert classify(text.format("model_loader/loader.py", "load_weights")).kind == "quant_mismatch"
    assert classify(READY + text.format("managers/scheduler.py", "run_batch")).kind == "scheduler_died"


@pytest.mark.parametrize("crash", ["Segmentation fault", "Aborted", "Illegal instruction"])
def test_a_crash_of_native_code_is_a_death(crash):
    failure = classify(READY + "Fatal Python error: {0}\n\nThread 0x00007f (most recent call first):\n".format(crash))
    assert (failure.kind, failure.row, failure.fatal) == ("scheduler_died", "native_crash", True)
    assert "crashed outside Python" in failure.advice
    code = "Rank 0 scheduler died during initialization (exit code: {0}).\n"
    assert "crashed outside Python" in classify(code.format(-11)).advice
    assert "crashed outside Python" not in classify(code.format(1)).advice


def test_an_unnamed_death_keeps_its_last_lines_masked():
    text = (
        "[2026-05-31 10:00:00 TP0] first\n[2026-05-31 10:00:01 TP0] using api_key='sk-secret-canary'\n"
        "[2026-05-31 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x.py", line 1, in f\n    boom()\n    ^^^^^^\nValueError: something new\n\n'
        "[2026-05-31 10:00:03] Received sigquit from a child process. It usually means the child failed.\n"
    )
    failure = classify(text)
    assert failure.lines == (
        "[2026-05-31 10:00:01 TP0] using api_key='********'",
        "[2026-05-31 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        'File "/x.py", line 1, in f',
        "boom()",
        "ValueError: something new",
    )
    assert failure.as_dict()["lines"] == list(failure.lines)
    last = classify("[2026-05-31 10:00:00] one\n[2026-05-31 10:00:00] two\n", unit=died())
    assert (last.kind, last.lines) == ("unknown", ("[2026-05-31 10:00:00] one", "[2026-05-31 10:00:00] two"))
    named = classify(REFERENCE)
    assert named.lines == ()


def test_a_key_in_the_evidence_is_masked():
    text = (
        'Traceback (most recent call last):\n  File "/x.py", line 1, in f\n'
        "RuntimeError: bad api_key='sk-secret-canary' and cAnArY99\n"
    )
    failure = classify(text, unit=died(), secrets=["cAnArY99"])
    assert "canary" not in json.dumps(failure.as_dict()).lower()


def test_the_source_code_in_a_traceback_is_no_evidence():
    failure = classify(
        "[2026-05-31 10:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x.py", line 1, in f\n    raise RuntimeError(f"NCCL error: {error}")\nRuntimeError: NCCL error: '
        "unhandled system error\n"
    )
    assert failure.evidence == "RuntimeError: NCCL error: unhandled system error"


def test_a_death_on_one_rank_beats_the_lost_connection_of_the_others():
    failure = classify(
        READY + "[2026-05-31 10:20:07 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [198.51.100.12]:41522\n"
        "[2026-05-31 10:20:08 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    assert failure.kind == "oom_prefill"
    assert failure.ranks == ("TP0",)


def test_a_warning_from_long_before_is_not_the_cause():
    noise = "".join("[2026-05-31 10:00:00] line {0}\n".format(number) for number in range(200))
    failure = classify(
        "libcuda.so.1: cannot open shared object file: No such file or directory\n"
        + noise
        + "[2026-05-31 10:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\nValueError: "
        "something new\n"
    )
    assert (failure.kind, failure.evidence) == ("scheduler_died", "ValueError: something new")


def test_what_happened_before_the_ready_line_did_not_end_the_server():
    assert classify("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" + READY) is None


def test_a_failed_request_does_not_end_the_server():
    text = (
        READY
        + "[2026-05-31 10:20:00] ERROR:    Exception in ASGI application\nTraceback (most recent call last):\n  File "
        '"/x.py", line 1, '
        "in f\nrequests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://images.example/a.png\n"
    )
    assert classify(text) is None


def test_what_a_user_wrote_is_no_death():
    text = (
        READY + "[2026-05-31 10:20:00] Receive: obj=GenerateReqInput(text='torch.OutOfMemoryError: CUDA out of memory. "
        "Tried to "
        "allocate 1.00 GiB.')\n[2026-05-31 10:20:00] server_args={'x': 'Not enough memory. Please try to increase "
        "--mem-fraction-static'}\n"
    )
    assert classify(text) is None


def test_notices_end_nothing_and_are_told():
    text = READY + 3 * "[2026-05-31 10:20:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1\n"
    assert classify(text) is None
    notices = _failures.notices(_failures.Case(_journal_text.decode_text(text)))
    assert [(notice["name"], notice["count"]) for notice in notices] == [("pool_full", 3)]


@pytest.mark.parametrize(
    "line",
    [
        # As C++ and as Python print it: dmlc/dgl issues/7778 and other public logs.
        "[W905 11:02:33.123456789 CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform"
        " (function operator())",
        "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:134: UserWarning: expandable_segments not"
        " supported on this platform (Triggered internally at /pytorch/c10/hip/HIPAllocatorConfig.h:40.)",
    ],
)
def test_a_torch_that_ignores_the_allocator_says_so_once(line):
    text = (line + "\n") * 8 + READY
    assert classify(text) is None
    (notice,) = _failures.notices(_failures.Case(_journal_text.decode_text(text)))
    assert (notice["name"], notice["count"]) == ("segments_ignored", 8)
    assert "sglang_server_allocator_conf to ''" in notice["advice"]


@pytest.mark.parametrize(
    "line",
    [
        # flashinfer/autotuner/autotuner.py of 0.7.2, and the texts before it.
        "2026-07-06 23:18:23,723 - WARNING - autotuner.py:1315 - flashinfer.jit: [Autotuner]: OOM detected, falling"
        " back to default tactic",
        "2026-03-13 12:01:42,816 - WARNING - autotuner.py:490 - flashinfer.jit: [Autotuner]: Skipping tactic <Runner>"
        " [32, 15], due to failure while profiling: CUDA out of memory. Tried to allocate 1.00 GiB.",
        "[2026-05-31 10:14:00 TP0] autotune: CUDA out of memory. Tried to allocate 1.00 GiB., skipping config",
    ],
)
def test_a_kernel_that_is_tried_in_vain_is_no_death(line):
    begun = "[2026-05-31 10:13:00 TP0] Running FlashInfer autotune with cache: /var/cache/x.json\n"
    assert classify(begun + line + "\n") is None
    assert classify(begun + line + "\n" + READY) is None


def test_a_stop_that_was_asked_for_is_no_death():
    text = (
        READY + "systemd[1]: Stopping sglang-main.service - SGLang...\n"
        "[2026-05-31 10:20:00] kill_process_tree called: parent_pid=409\n"
        "systemd[1]: sglang-main.service: Main process exited, code=killed, status=9/KILL\n"
        "systemd[1]: sglang-main.service: Failed with result 'signal'.\n"
    )
    assert classify(text) is None
    assert classify(text, unit=died()) is None


# ---------------------------------------------------------------------------------------------------------------------
# The host and systemd


def test_the_exit_code_counts_and_not_the_hint_beside_it():
    hint = (
        "Rank 0 scheduler died during initialization (exit code: {0}). If exit code is -9 (SIGKILL), a common cause is "
        "the OS OOM killer.\n"
    )
    assert classify(hint.format(-9)).kind == "host_oom_kill"
    for code in (-3, -11, 1, 255):
        failure = classify(hint.format(code))
        assert (failure.kind, failure.figures["exit_code"]) == ("scheduler_died", code)
    # systemd counts kills of the kernel: it would say so.
    assert classify(hint.format(-9), unit=died(result="exit-code")).kind == "scheduler_died"


def test_the_launchers_own_kill_is_no_kill_of_the_kernel():
    failure = classify(
        "[2026-05-31 10:00:00] Received sigquit from a child process. It usually means the child failed.\n"
        "Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common cause "
        "is the OS OOM killer.\n"
    )
    assert failure.kind == "scheduler_died"


KERNEL = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={0},task_memcg={0},"
    "task={1},pid={2},uid=9"
)


@pytest.mark.parametrize(
    ("memcg", "task", "pid", "ours"),
    [
        ("/system.slice/sglang-main.service", "sglang::schedul", 7, True),
        ("/system.slice/postgresql.service", "postgres", 8, False),
        ("/system.slice/other.service", "python3", 8, False),
        ("/system.slice/other.service", "python3", 42, True),
    ],
)
def test_only_a_kill_of_our_own_process_is_our_death(memcg, task, pid, ours):
    entries = [
        _journal_lines.Entry("[2026-05-31 10:00:00 TP0] Load weight begin. avail mem=94.00 GB", pid=42),
        _journal_lines.Entry(KERNEL.format(memcg, task, pid), source="kernel"),
    ]
    failure = _failures.classify(entries, unit=died(active_state="active", sub_state="running", main_pid=42))
    assert (failure.kind if failure else None) == ("host_oom_kill" if ours else None)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"result": "oom-kill"}, "host_oom_kill", "oom-kill"),
        ({"result": "start-limit-hit"}, "unit_failed", "start-limit-hit"),
        ({"result": "timeout"}, "timeout", "timeout"),
        ({"result": "exit-code", "exec_main_code": 1, "exec_main_status": 203}, "bad_args", "EXEC"),
        ({"result": "exit-code", "exec_main_code": 1, "exec_main_status": 2}, "bad_args", "exit status 2"),
        ({"result": "signal"}, "unknown", "killed by SIGKILL"),
        (
            {"result": "success", "active_state": "inactive", "exec_main_code": 1, "exec_main_status": 0},
            "unknown",
            "exit status 0",
        ),
    ],
)
def test_without_a_line_systemds_facts_name_the_end(changes, kind, words):
    failure = classify("[2026-05-31 10:00:00] last words\n", unit=died(**changes))
    assert (failure.kind, failure.fatal) == (kind, True)
    assert words in failure.evidence
    if kind == "unknown":
        assert "last words" in failure.evidence


def test_a_unit_that_runs_has_not_died():
    assert (
        classify("[2026-05-31 10:00:00] some line\n", unit=died(active_state="active", sub_state="running", main_pid=7))
        is None
    )


def test_silence_is_named_with_its_phase_and_only_after_the_deadline():
    text = "[2025-03-14 07:50:56 TP4] Capture cuda graph begin. avail mem=10.21 GB\n"
    assert classify(text, silence_seconds=100, deadline_seconds=3600) is None
    failure = classify(text, silence_seconds=5400, deadline_seconds=3600)
    assert (failure.kind, failure.phase, failure.transient) == ("watchdog_hang", "graphs", True)
    assert "5400 s" in failure.evidence
    assert classify(READY, silence_seconds=5400, deadline_seconds=3600) is None


# ---------------------------------------------------------------------------------------------------------------------
# What a server survives, and what only systemd or a shell tells

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 600.38 MiB is free.\n"
)
SERVED = (
    '[2026-05-31 11:00:01] INFO:     10.0.0.4:51720 - "POST /generate HTTP/1.1" 400 Bad Request\n'
    "[2026-05-31 11:01:04 TP0] Decode batch, #running-req: 3, #token: 4100, token usage: 0.02\n"
)
SURVIVED = {
    "picture": "[2026-05-31 11:00:00] [http_server] Error: Traceback (most recent call last):\n"
    '  File "/x/srt/multimodal/processors/base_processor.py", line 280, in process_mm_data\n' + OOM,
    "adapter": "[2026-05-31 11:00:00] Failed to load LoRA adapter x: " + OOM,
    "weights": "[2026-05-31 11:00:00 TP0] Failed to update weights: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    "nvml": "[2026-05-31 11:00:00 TP0] Failed to get power usage: NVML: GPU is lost\n",
}


@pytest.mark.parametrize("line", SURVIVED.values(), ids=SURVIVED)
@pytest.mark.parametrize("after", ["", SERVED], ids=["at_once", "later"])
def test_words_that_a_ready_server_survives_are_a_notice(line, after):
    text = READY + line + after
    assert classify(text) is None
    (notice,) = _failures.notices(_failures.Case(_journal_text.decode_text(text)))
    assert "lived on" in notice["advice"]


def test_a_death_right_behind_the_same_words_makes_them_the_cause():
    quit_line = "[2026-05-31 11:00:02] SIGQUIT received. signum=None, frame=None.\n"
    failure = classify(READY + SURVIVED["picture"] + quit_line)
    assert (failure.kind, failure.fatal) == ("oom_prefill", True)
    # Hours of work between the two: the end has another cause.
    assert classify(READY + SURVIVED["picture"] + SERVED * 100 + quit_line).kind == "scheduler_died"


def test_a_scheduler_that_dies_of_memory_is_named_with_its_last_line():
    text = READY + "[2026-05-31 11:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):\n" + OOM
    assert (classify(text).kind, classify(text).fatal) == ("oom_prefill", True)


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        ("pid=99, name=trainer", None),
        ("pid=99, name=sglang::schedul", "cuda_illegal_access"),
        ("name=python3", "cuda_illegal_access"),
    ],
)
def test_an_xid_of_another_process_is_not_ours(process, kind):
    text = READY + "kernel: NVRM: Xid (PCI:0000:4b:00): 31, {0}, Ch 00000008, intr 00000000. MMU Fault\n".format(
        process
    )
    assert (classify(text) or _failure_record.Failure(kind=None)).kind == kind
    assert classify(text + SERVED) is None


LOADS = "[2026-05-31 10:10:01 TP0] Load weight begin. avail mem=78.20 GB\n"


@pytest.mark.parametrize("start", [LOADS, READY], ids=["loading", "serving"])
@pytest.mark.parametrize(
    ("how", "result", "kind"),
    [
        ("killed, status=9/KILL", "signal", "unknown"),
        ("exited, status=1/FAILURE", "exit-code", "unknown"),
        ("dumped, status=6/ABRT", "core-dump", "scheduler_died"),
        ("killed, status=15/TERM", "signal", None),
        ("exited, status=143/n/a", "exit-code", None),
        ("exited, status=0/SUCCESS", "success", None),
    ],
)
def test_a_death_that_only_systemd_tells_of(start, how, result, kind):
    end = (
        "systemd[1]: sglang-main.service: Main process exited, code={0}\n"
        "systemd[1]: sglang-main.service: Failed with result '{1}'.\n".format(how, result)
    )
    failure = classify(start + end)
    assert (failure and failure.kind) == kind
    if kind:
        assert failure.fatal
        assert "Main process exited" in failure.evidence
        assert failure.lines
    assert classify(start + "systemd[1]: Stopping sglang-main.service - SGLang...\n" + end) is None
    assert classify(start + "[2026-05-31 11:00:00] SIGTERM received. signum=15 frame=None.\n" + end) is None


@pytest.mark.parametrize(
    "line",
    [
        "/entrypoint.sh: line 28:     7 Killed                  python3 -m sglang.launch_server",
        "zsh: killed     python3 -m sglang",
        "Killed",
    ],
)
def test_a_kill_that_only_the_shell_tells_of(line):
    failure = classify(LOADS + line + "\n")
    assert (failure.kind, failure.phase, failure.figures["exit_code"]) == ("host_oom_kill", "weights", -9)
    signal_line = "[2026-05-31 10:12:00] Received sigquit from a child process. It usually means the child failed.\n"
    assert classify(LOADS + signal_line + line).kind == "scheduler_died"
    # Engines before 0.5.20 end a clean stop so.
    assert classify(READY + "[2026-05-31 11:00:00] SIGTERM received. signum=15 frame=None.\n" + line) is None


def test_exit_status_2_without_a_line_is_the_argument_parser():
    unit = _unit.UnitState(active_state="failed", result="exit-code", exec_main_code=_unit.EXITED, exec_main_status=2)
    failure = _failures.classify([], unit=unit)
    assert (failure.kind, failure.phase) == ("bad_args", "process")


@pytest.mark.parametrize(
    "words", ["torch.AcceleratorError: CUDA error: out of memory", "Cuda failure 2 'out of memory'", OOM.strip()]
)
def test_a_board_that_is_full_before_the_load_is_held_by_another(words):
    text = (
        "[2026-05-31 10:10:01 TP5] Init torch distributed begin.\n"
        "[2026-05-31 10:10:02 TP5] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/srt/distributed/bootstrap.py", line 40, in init_torch_distributed\n' + words + "\n"
    )
    failure = classify(text)
    assert (failure.kind, failure.phase, failure.direction) == ("oom_weights", "init", "keep")
    assert failure.figures["shape"] == "occupied"
    assert "another process" in failure.advice


def test_a_binding_to_processors_that_fails():
    text = LOADS + (
        "[2026-05-31 10:10:02 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/srt/utils/common.py", line 2011, in gpu_proc_affinity\n'
        '  File "/x/psutil/_pslinux.py", line 2040, in cpu_affinity_set\n'
        "OSError: [Errno 22] Invalid argument\n"
    )
    failure = classify(text)
    assert (failure.kind, failure.direction) == ("numa_bind", "keep")
    assert "SGLANG_SET_CPU_AFFINITY" in failure.advice


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (
            '  File "/x/scheduler.py", line 1, in event_loop_overlap\n    self.on_idle()\n'
            "ValueError: pool memory leak detected! [full] total=9116160, available=768\n",
            "scheduler_died",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited\n",
            "comm_timeout",
        ),
    ],
)
def test_what_happens_between_passes_is_of_serving(lines, kind):
    text = READY + (
        "[2026-05-31 11:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 6\n"
        "[2026-05-31 11:00:01 TP0] Scheduler hit an exception: Traceback (most recent call last):\n" + lines
    )
    assert (classify(text).kind, classify(text).phase) == (kind, "serving")


# ---------------------------------------------------------------------------------------------------------------------
# The table

KINDS = {
    "oom_weights",
    "oom_graph_capture",
    "oom_prefill",
    "oom_decode",
    "kv_pool_too_small",
    "host_oom_kill",
    "comm_init",
    "comm_timeout",
    "watchdog_hang",
    "model_arch_unsupported",
    "gpu_arch_unsupported",
    "quant_mismatch",
    "toolchain_missing",
    "port_in_use",
    "tokenizer",
    "hf_auth",
    "hf_not_found",
    "disk_full",
    "cuda_illegal_access",
    "gpu_unbalanced",
    "numa_bind",
    "bad_args",
    "gpu_lost",
    "no_gpu",
    "scheduler_died",
    "unknown",
    "unit_failed",
    "timeout",
}


def test_no_other_kinds_are_told():
    told = {row.kind for row in _failure_catalogue.ROWS if row.kind} - {_failure_catalogue.BY_PHASE}
    told |= {*_failures.KIND_BY_PHASE.values(), *_failures.MEMORY_KINDS}
    told |= {kind for kind, _pattern, _advice in _failure_catalogue.FRAMES}
    told |= {kind for _result, kind, _advice in _failure_unnamed._RESULTS}
    assert told <= KINDS
    assert set(_failure_record.KINDS) == KINDS
    assert len(_failure_record.KINDS) == len(KINDS)


def test_every_row_has_a_line_of_a_program():
    """No row stands in the table that no log, report or source has a line for."""
    logs = [case["log"] for case in [*WORDINGS, *REPORTS, *TRIALS]] + [(DATA / "crash_loop.jsonl").read_text()]
    found = {hit.row.name for log in logs for hit in _failures.Case(_journal.decode(log)[0]).walk.hits}
    assert {row.name for row in _failure_catalogue.ROWS} - found == set()


def test_a_cause_has_one_row():
    names = collections.Counter(row.name for row in _failure_catalogue.ROWS)
    assert [name for name, count in names.items() if count > 1] == []


def shortest(tokens):
    """Return the shortest texts of every branch of a parsed pattern (re's own parser); at most some hundred."""
    texts = [""]
    for operation, value in tokens:
        name = str(operation)
        if name == "LITERAL":
            parts = [chr(value)]
        elif name == "IN":
            kind, content = str(value[0][0]), value[0][1]
            category = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(content), "a")
            parts = {"LITERAL": [content], "RANGE": content, "NEGATE": ["~"]}.get(kind, [category])[:1]
            parts = [chr(part) if isinstance(part, int) else part for part in parts]
        elif name in ("ANY", "NOT_LITERAL"):
            parts = ["~"]
        elif name == "BRANCH":
            parts = [text for branch in value[1] for text in shortest(branch)]
        elif name == "SUBPATTERN":
            parts = shortest(value[-1])
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            once = shortest(value[2])
            parts = ([""] + once) if value[0] == 0 else [text * value[0] for text in once]
        else:
            parts = [""]
        texts = [text + part for text in texts for part in parts][:600]
    return texts


@pytest.mark.parametrize("row", _failure_catalogue.ROWS, ids=lambda row: row.name)
def test_every_line_that_a_row_matches_holds_one_of_its_needles(row):
    """No alternative of a pattern is out of reach of the cheap test."""
    made = [text for text in shortest(regex_parser.parse(row.pattern.pattern)) if row.pattern.search(text)]
    assert made
    assert [text for text in made if not any(needle in text.lower() for needle in row.needles)] == []


@pytest.mark.parametrize("row", _failure_catalogue.ROWS, ids=lambda row: row.name)
def test_a_row_is_complete(row):
    assert row.kind is None or row.kind in KINDS | {_failure_catalogue.BY_PHASE}
    assert row.direction in ("raise", "lower", "keep", "infeasible")
    # A file of SGLang, or whose words they are; versions are given where they are known.
    assert row.source
    assert "SGLang" not in row.source.split(", ")
    assert row.versions is None or row.versions
    assert row.needles
    assert set(row.only_in) <= {*_startup_lines.PHASES, "prefill", "decode", "serving"}
    assert all(needle == needle.lower() for needle in row.needles)
    if row.role in _failure_catalogue.PREFERENCE:
        assert row.kind is not None
        assert row.advice.endswith(".")
        # One sentence, with what to change; every name in braces can be filled in.
        assert "\n" not in row.advice
        assert "{" not in _failure_record.advice_with(row.advice, {})
    assert row.phase in (None, "process", "init", "weights", "pool", "graphs", "warmup", "prefill", "decode")


def test_the_page_about_crashes_is_made_from_the_table():
    assert not troubleshooting.PAGE.stale(), "run tools/troubleshooting.py"
    causes = [row for row in _failure_catalogue.ROWS if row.role in _failure_catalogue.PREFERENCE]
    assert {row.kind for row in causes} <= set(troubleshooting.KINDS)
    told = troubleshooting.PAGE.path.read_text()
    for row in causes:
        assert any(words.replace("|", "\\|") in told for words in troubleshooting.wordings(row)), row.name


def test_advice_names_variables_that_the_role_has():
    names = set(re.findall(r"sglang_server_\w+", (pathlib.Path(_failure_catalogue.__file__)).read_text()))
    names |= set(re.findall(r"sglang_server_\w+", (pathlib.Path(_failure_figures.__file__)).read_text()))
    names |= set(re.findall(r"sglang_server_\w+", (pathlib.Path(_failure_unnamed.__file__)).read_text()))
    assert names <= {
        "sglang_server_arguments",
        "sglang_server_boards_wait_seconds",
        "sglang_server_environment",
        "sglang_server_mem_fraction_static",
        "sglang_server_chunked_prefill_size",
        "sglang_server_context_tokens",
        "sglang_server_allocator_conf",
    }


# ---------------------------------------------------------------------------------------------------------------------
# Anything at all

WORDS = sorted({needle for row in _failure_catalogue.ROWS for needle in row.needles}) + [
    "[2026-05-31 10:15:07 TP0] ",
    "[2026-05-31 10:15:07] ",
    "Traceback (most recent call last):",
    '  File "x.py", line 1, in f',
    "\n",
    "\n",
    "\n",
    "ValueError: x",
    "Tried to allocate 1.00 GiB",
    "9" * 20,
    "1.5",
    "-9",
    "systemd[1]: ",
    "kernel: ",
    READY,
    "(",
    ")",
    "'",
    "=",
]


# Real lines, in which every number may be anything: what is read from them must not be believed.
REAL_LINES = [
    _journal_lines.split_head(line)[2] for report in REPORTS + TRIALS for line in report["log"].splitlines() if line
]
POOL_LINES = [
    "Load weight begin. avail mem=79.10 GB",
    "Load weight end. type=X, dtype=torch.bfloat16, avail mem=18.90 GB, mem usage=60.20 GB.",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
]
NUMBERS = st.sampled_from(["0", "0.00", "-1", "9" * 40, "1.2.3", "1.", ".5", "nan", "None", "", "1e5", "7"])


@st.composite
def mangled(draw):
    """Some real lines with other numbers, shuffled or cut."""
    lines = draw(st.one_of(st.just(POOL_LINES), st.lists(st.sampled_from(REAL_LINES), max_size=6)))
    number = draw(NUMBERS)
    made = []
    for line in lines:
        line = re.sub(r"\d+(?:\.\d+)?", lambda _found: draw(NUMBERS) if draw(st.booleans()) else number, line)
        made.append("[2026-05-31 10:00:00 TP0] " + line[: draw(st.sampled_from([20, 200, 5000]))])
    return "\n".join(made)


@settings(max_examples=400)
@given(mangled(), st.booleans())
def test_no_number_makes_the_catalogue_raise(text, over):
    failure = classify(text, unit=died() if over else None, target_tokens=1000, cell_bytes=1000)
    if failure:
        json.dumps(failure.as_dict())
        assert failure.advice


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=4)), max_size=50), st.booleans())
def test_no_log_makes_the_catalogue_raise(pieces, over):
    failure = classify("".join(pieces), unit=died() if over else None, target_tokens=1000, cell_bytes=1000)
    if failure:
        json.dumps(failure.as_dict())
        assert failure.advice
        assert failure.evidence.strip() or failure.kind == "watchdog_hang"


@pytest.mark.parametrize("row", _failure_catalogue.ROWS, ids=lambda row: row.name)
def test_no_line_costs_more_than_its_length(row):
    """A line of nothing but the words of a row, at its full length: far from a power of it."""
    words = row.needles[0]
    lines = [(words + " " + tail * 4000)[:4000] for tail in ("a", "a ", "1", words + " ", "(' ", words)]
    began = time.process_time()
    for line in lines:
        row.pattern.search(line)
    assert time.process_time() - began < 0.5


def test_the_time_grows_with_the_lines_and_no_faster():
    entries = _journal_text.decode_text("".join(report["log"] for report in REPORTS))

    def seconds(count):
        began = time.process_time()
        _failures.classify(entries * count)
        return time.process_time() - began

    few = min(seconds(2) for _time in range(3))
    assert seconds(16) < 8 * 3 * few + 0.2


@given(st.lists(NUMBERS, min_size=7, max_size=7), st.sampled_from(["GiB", "MiB", "bytes", "B", "XiB", ""]))
def test_no_number_makes_the_figures_raise(numbers, unit):
    text = (
        "CUDA out of memory. Tried to allocate {0} {7}. GPU {1} has a total capacity of {2} {7} of which {3} {7} "
        "is free. Including non-PyTorch memory, this process has {4} {7} memory in use. Of the allocated memory {5} "
        "{7} is allocated by PyTorch, and {6} {7} is reserved by PyTorch but unallocated. Process 7 has {4} "
        "{7} memory in use."
    ).format(*numbers, unit)
    figures = _failure_figures.parse_out_of_memory(text)
    for kind in ("oom_weights", "oom_graph_capture", "oom_prefill", "oom_decode"):
        _failure_figures.judge_out_of_memory(kind, figures)


@given(st.text(alphabet="[]0123456789.GMKiB TPenrytocapf;():,", max_size=300))
def test_no_text_makes_the_figures_raise(text):
    _failure_figures.parse_out_of_memory(text)
    _failure_figures.judge_tokens(text, {}, "advice")
    _failure_figures.unbalanced_figures(text)
    _failure_figures.repository_figures(text)
