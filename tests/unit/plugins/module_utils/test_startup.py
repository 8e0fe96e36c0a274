# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _journal,
    _journal_lines,
    _journal_text,
    _startup,
    _startup_lines,
    _startup_rank,
)

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "journal"
STARTS = yaml.safe_load((DATA / "startups.yaml").read_text())


def read(text):
    return _startup.read_startup(_journal.decode(text)[0])


def rank(startup, name):
    return next(record for record in startup.ranks if record["rank"] == name)


def test_a_real_start_is_read_from_its_journal():
    startup = read((DATA / "start_and_ready.jsonl").read_text())
    assert startup.state == "ready"
    assert startup.phase == "ready"
    assert startup.pool_tokens == 2125713
    assert startup.free_before_load_gib == 20.88
    assert startup.free_after_load_gib == 20.89
    assert startup.weights_gib == -0.01
    assert startup.kv_gib == 2.02
    assert startup.pool_end_free_gib == 18.76
    assert startup.headroom_gib == 18.67
    assert startup.kv_dtype == "bfloat16"
    assert startup.context_tokens == 4096
    assert startup.chunked_prefill_size == 4096
    assert startup.max_running_requests == 4096
    assert startup.engine_version == "0.5.23"
    assert startup.model_class == "LlamaForCausalLM"
    assert startup.evidence == "journal"
    assert startup.ready_at == pytest.approx(1795972122.641815)
    assert startup.load_seconds == pytest.approx(28.802)
    assert [(row["name"], row["seconds"]) for row in startup.phases] == [
        ("process", 20.568),
        ("init", 2.009),
        ("weights", 0.041),
        ("pool", 3.942),
        ("warmup", 2.242),
        ("ready", None),
    ]
    json.dumps(startup.as_dict())


@pytest.mark.parametrize("start", STARTS, ids=[start["id"] for start in STARTS])
def test_every_printed_figure_of_a_public_start_is_read(start):
    entries = _journal_text.decode_text("\n".join(start["lines"]))
    startup = _startup.read_startup(entries).as_dict()
    assert {name: startup[name] for name in start["figures"]} == start["figures"]
    failure = _failures.classify(entries)
    assert ({"kind": failure.kind, "direction": failure.direction} if failure else None) == start.get(
        "failure", None
    ) or (
        # A bare out-of-memory line tells neither phase nor kind; that it is one, and its direction, must be said.
        "failure" not in start
        and failure.kind in _failures.MEMORY_KINDS
        and failure.direction == "lower"
        and failure.phase is None
    )


def test_how_many_public_starts_took_part(capsys):
    figures = sum(len(start["figures"]) for start in STARTS)
    with capsys.disabled():
        print("\n{0} public start-ups, {1} printed figures".format(len(STARTS), figures))
    assert len(STARTS) >= 70
    assert figures >= 300


VERSIONS = {
    # The final line of each age (sglang 0.4.0 - 0.5.23), and what precedes it.
    "0.4.0": (
        "[2024-12-01 10:00:00 TP0] Init torch distributed begin.\n"
        "[2024-12-01 10:00:01 TP0] Load weight begin. avail mem=22.39 GB\n"
        "[2024-12-01 10:00:09 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=7.37 GB\n"
        "[2024-12-01 10:00:09 TP0] Memory pool end. avail mem=1.46 GB\n"
        "[2024-12-01 10:00:09 TP0] Capture cuda graph begin. This can take up to several minutes.\n"
        "[2024-12-01 10:00:19 TP0] Capture cuda graph end. Time elapsed: 10.02 s\n"
        "[2024-12-01 10:00:19 TP0] max_total_num_tokens=38141, max_prefill_tokens=16384, max_running_requests=2049, "
        "context_len=8192\n"
        "[2024-12-01 10:00:20] The server is fired up and ready to roll!\n",
        {
            "pool_tokens": 38141,
            "weights_gib": 15.02,
            "headroom_gib": 1.46,
            "context_tokens": 8192,
            "state": "ready",
            "load_seconds": 20.0,
            "chunked_prefill_size": None,
        },
    ),
    "0.4.3": (
        "[2025-02-20 10:00:01 TP0] Init torch distributed ends. mem usage=1.96 GB\n"
        "[2025-02-20 10:00:01 TP0] Load weight begin. avail mem=22.39 GB\n"
        "[2025-02-20 10:00:09 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=7.37 GB, "
        "mem usage=15.02 GB.\n"
        "[2025-02-20 10:00:09 TP0] KV Cache is allocated. K size: 2.33 GB, V size: 2.33 GB.\n"
        "[2025-02-20 10:00:09 TP0] Memory pool end. avail mem=1.46 GB\n"
        "[2025-02-20 10:00:09 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=0.93 GB\n"
        "[2025-02-20 10:00:19 TP0] Capture cuda graph end. Time elapsed: 18.07 s. avail mem=0.83 GB. mem "
        "usage=0.11 GB.\n"
        "[2025-02-20 10:00:19 TP0] max_total_num_tokens=38141, chunked_prefill_size=2048, max_prefill_tokens=16384, "
        "max_running_requests=2049, context_len=131072\n",
        {
            "pool_tokens": 38141,
            "weights_gib": 15.02,
            "kv_gib": 4.66,
            "headroom_gib": 0.83,
            "graph_gib": 0.11,
            "phase": "warmup",
            "chunked_prefill_size": 2048,
            "state": "loading",
        },
    ),
    "0.5.2 EP": (
        "[2025-09-20 10:00:01 DP0 TP1 EP1 PP0] Load weight begin. avail mem=137.29 GB\n"
        "[2025-09-20 10:00:09 DP0 TP1 EP1 PP0] Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, "
        "avail mem=55.00 GB, "
        "mem usage=82.29 GB.\n"
        "[2025-09-20 10:00:09 DP0 TP1 EP1 PP0] KV Cache is allocated. #tokens: 274934, KV size: 17.99 GB\n"
        "[2025-09-20 10:00:09 DP0 TP1 EP1 PP0] Memory pool end. avail mem=36.00 GB\n"
        "[2025-09-20 10:00:19 DP0 TP0 EP0 PP0] max_total_num_tokens=274934, chunked_prefill_size=-1, "
        "max_prefill_tokens=16384, "
        "max_running_requests=2049, context_len=131072, available_gpu_mem=30.00 GB\n",
        {
            "pool_tokens": 274934,
            "kv_gib": 17.99,
            "headroom_gib": 30.0,
            "chunked_prefill_size": -1,
            "tightest_rank": "DP0 TP0 EP0 PP0",
        },
    ),
    "0.5.14": (
        "[2026-06-20 10:00:01 TP0] Load weight begin. avail mem=94.10 GB\n"
        "[2026-06-20 10:00:09 TP0] Load weight end. elapsed=8.01 s, type=X, quant=fp8, fmt=e4m3, avail mem=20.00 GB, "
        "mem usage=74.10 GB.\n"
        "[2026-06-20 10:00:09 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 195011, KV size: "
        "6.38 GB\n"
        "[2026-06-20 10:00:09 TP0] Memory pool end. avail mem=13.50 GB\n"
        "[2026-06-20 10:00:10 TP0] Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[1, 2], "
        "avail mem=13.40 GB\n"
        "[2026-06-20 10:00:12 TP0] Capture target prefill CUDA graph end. elapsed=2.00 s, mem usage=1.00 GB, avail "
        "mem=12.40 GB.\n"
        "[2026-06-20 10:00:12 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, "
        "2], avail mem=12.40 GB\n"
        "[2026-06-20 10:00:14 TP0] Capture target decode CUDA graph end. bs=[1, 2], elapsed=2.00 s, mem usage=0.50 "
        "GB, avail mem=11.90 GB.\n"
        "[2026-06-20 10:00:15 TP0] max_total_num_tokens=195011, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=48, context_len=262144, available_gpu_mem=11.85 GB\n",
        {
            "pool_tokens": 195011,
            "graph_gib": 1.5,
            "headroom_gib": 11.85,
            "kv_dtype": "float8_e4m3fn",
            "pool_end_free_gib": 13.5,
        },
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_line_forms_of_the_ages(version):
    text, figures = VERSIONS[version]
    startup = read(text).as_dict()
    assert {name: startup[name] for name in figures} == figures


def test_the_tightest_rank_counts_and_is_named():
    lines = []
    for number, (free, end) in enumerate(((94.1, 6.0), (93.8, 5.54), (94.0, 5.9))):
        head = "[2026-06-20 10:00:01 TP{0}] ".format(number)
        lines += [
            head + "Load weight begin. avail mem={0:.2f} GB".format(free),
            head
            + "Load weight end. elapsed=1.00 s, type=X, avail mem={0:.2f} GB, mem usage=75.00 GB.".format(free - 75),
            head + "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 195011, KV size: 12.76 GB",
            head + "Memory pool end. avail mem={0:.2f} GB".format(end),
        ]
    lines.append(
        "[2026-06-20 10:00:02 TP0] max_total_num_tokens=195011, chunked_prefill_size=4096, max_prefill_tokens=16384, "
        "max_running_requests=48, context_len=262144, available_gpu_mem=5.80 GB"
    )
    startup = read("\n".join(lines))
    assert startup.free_before_load_gib == 93.8
    assert startup.free_after_load_gib == 18.8
    assert startup.pool_end_free_gib == 5.54
    assert startup.headroom_gib == 5.54
    assert startup.tightest_rank == "TP1"
    assert rank(startup, "TP0")["headroom_gib"] == 5.8
    assert len(startup.ranks) == 3


def test_the_draft_is_kept_apart():
    startup = read(
        "[2026-02-01 10:00:01 TP0] Load weight begin. avail mem=94.00 GB\n"
        "[2026-02-01 10:00:02 TP0] Load weight end. elapsed=1.00 s, type=X, avail mem=19.00 GB, mem usage=75.00 GB.\n"
        "[2026-02-01 10:00:03 TP0] KV Cache is allocated. #tokens: 200000, KV size: 13.00 GB\n"
        "[2026-02-01 10:00:03 TP0] Memory pool end. avail mem=6.00 GB\n"
        "[2026-02-01 10:00:04 TP0] Load weight begin. avail mem=5.90 GB\n"
        "[2026-02-01 10:00:05 TP0] Load weight end. elapsed=1.00 s, type=XDraft, avail mem=4.40 GB, mem "
        "usage=1.50 GB.\n"
        "[2026-02-01 10:00:05 TP0] KV Cache is allocated. #tokens: 200000, KV size: 0.22 GB\n"
        "[2026-02-01 10:00:05 TP0] Memory pool end. avail mem=4.10 GB\n"
    )
    assert startup.free_before_load_gib == 94.0
    assert startup.free_after_load_gib == 19.0
    assert startup.weights_gib == 75.0
    assert startup.draft_weights_gib == 1.5
    assert startup.kv_gib == 13.0
    assert startup.draft_kv_gib == 0.22
    assert startup.pool_end_free_gib == 4.1
    assert startup.pool_tokens == 200000
    assert startup.model_class == "X"


def test_a_draft_that_is_loaded_before_the_pools_is_kept_apart_too():
    startup = read(
        "[2026-08-01 10:00:01 TP0] Load weight begin. avail mem=94.00 GB\n"
        "[2026-08-01 10:00:02 TP0] Load weight end. elapsed=1.00 s, type=X, avail mem=19.00 GB, mem usage=75.00 GB.\n"
        "[2026-08-01 10:00:04 TP0] Load weight begin. avail mem=19.00 GB\n"
        "[2026-08-01 10:00:05 TP0] Load weight end. elapsed=1.00 s, type=XDraft, avail mem=17.50 GB, mem "
        "usage=1.50 GB.\n"
        "[2026-08-01 10:00:05 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, KV size: 11.00 GB\n"
        "[2026-08-01 10:00:05 TP0] Memory pool end. avail mem=6.40 GB\n"
        "[2026-08-01 10:00:05 TP0] draft KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, KV size: "
        "0.30 GB\n"
        "[2026-08-01 10:00:05 TP0] Memory pool end. avail mem=6.10 GB\n"
    )
    assert (startup.free_after_load_gib, startup.weights_gib, startup.draft_weights_gib) == (19.0, 75.0, 1.5)
    assert (startup.kv_gib, startup.draft_kv_gib, startup.pool_end_free_gib) == (11.0, 0.3, 6.1)


def test_an_upper_bound_of_addresses_is_not_the_pool():
    text = (
        "[2026-08-01 10:00:05 TP0] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900000, K size: 30.00 "
        "GB, V size: 30.00 GB\n"
        "[2026-08-01 10:00:05 TP0] Memory pool end. avail mem=60.00 GB\n"
    )
    startup = read(text)
    assert startup.pool_tokens is None
    assert startup.kv_gib is None
    assert startup.evidence is None
    assert startup.va_upper_bound_tokens == 900000
    sized = read(
        text
        + "[2026-08-01 10:00:25 TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: "
          "640000, "
        "KV size: 40.00 GB, avail mem=7.50 GB\n"
    )
    assert (sized.pool_tokens, sized.kv_gib, sized.evidence) == (640000, 40.0, "journal")
    early = read(
        text + "[2026-08-01 10:00:25 TP0] Post-capture KV sizing: max_total_num_tokens=640000, free memory=7.50 GB\n"
    )
    assert early.pool_tokens == 640000


def test_window_and_state_pools():
    startup = read(
        "[2026-05-01 10:00:05 TP0] Use sliding window memory pool. full_layer_tokens=102094, swa_layer_tokens=81675\n"
        "[2026-05-01 10:00:05 TP0] Mamba Cache is allocated. max_mamba_cache_size: 257, conv_state size: 0.46GB, "
        "ssm_state size: 13.04GB\n"
        "[2026-05-01 10:00:05 TP0] KV Cache is allocated. #tokens: 81675, K size: 6.23 GB, V size: 6.23 GB\n"
        "[2026-05-01 10:00:05 TP0] KV Cache is allocated. #tokens: 102094, K size: 0.78 GB, V size: 0.78 GB\n"
        "[2026-05-01 10:00:05 TP0] SWAKVPool mem usage: 14.02 GB, swa size: 81675, full size: 102094\n"
        "[2026-05-01 10:00:05 TP0] Memory pool end. avail mem=3.43 GB\n"
    )
    assert startup.pool_tokens == 102094
    assert startup.swa_tokens == 81675
    assert startup.kv_gib == 14.02
    assert startup.state_gib == 13.5


def test_the_least_pool_of_the_dp_ranks_counts():
    startup = read(
        "[2026-05-01 10:00:05 DP0 TP0] max_total_num_tokens=200000, max_prefill_tokens=1, max_running_requests=2, "
        "context_len=3\n"
        "[2026-05-01 10:00:05 DP1 TP0] max_total_num_tokens=190000, max_prefill_tokens=1, max_running_requests=2, "
        "context_len=3\n"
    )
    assert startup.pool_tokens == 190000
    assert rank(startup, "DP0 TP0")["pool_tokens"] == 200000


def test_a_node_without_tp_rank_0_tells_its_pool_by_the_allocation():
    startup = read(
        "[2026-05-01 10:00:05 TP8] KV Cache is allocated. #tokens: 387968, K size: 5.92 GB, V size: 5.92 GB\n"
        "[2026-05-01 10:00:05 TP9] KV Cache is allocated. #tokens: 387968, K size: 5.92 GB, V size: 5.92 GB\n"
    )
    assert startup.pool_tokens == 387968


@pytest.mark.parametrize(
    "line",
    [
        "[2026-09-01 10:00:00] server_args=ServerArgs(model_path='/m', context_length=262144, "
        "mem_fraction_static=0.93, "
        "max_running_requests=48, chunked_prefill_size=4096, api_key='sk-x')",
        "[2026-09-01 10:00:00] server_args={'model_path': '/m', 'context_length': 262144, 'mem_fraction_static': 0.93, "
        "'max_running_requests': 48, 'chunked_prefill_size': 4096, 'api_key': 'sk-x'}",
    ],
)
def test_the_arguments_are_read_and_no_key(line):
    startup = read(line)
    assert startup.mem_fraction_static == 0.93
    assert startup.context_tokens == 262144
    assert startup.chunked_prefill_size == 4096
    assert startup.max_running_requests == 48
    assert "sk-x" not in json.dumps(startup.as_dict())


def test_a_bar_is_progress_and_a_silent_compilation_is_said():
    entries = _journal_text.decode_text(
        "[2026-05-31 10:15:07 TP0] Load weight begin. avail mem=94.00 GB\n"
        "\rLoading safetensors checkpoint shards:   0% Completed | 0/11 [00:00<?, ?it/s]"
        "\rLoading safetensors checkpoint shards:  45% Completed | 5/11 [00:02<00:03,  1.90it/s]\n"
        "[2026-05-31 10:15:17 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically "
        "10-20 mins)\n"
    )
    startup = _startup.read_startup(entries)
    assert startup.phase == "weights"
    assert startup.progress == {"what": "Loading safetensors checkpoint shards", "done": 5, "total": 11, "percent": 45}
    assert "DeepGEMM" in startup.waiting_for


def test_what_a_user_wrote_is_not_the_ready_line():
    text = (
        "[2026-05-31 10:15:07] Receive: obj=GenerateReqInput(text='The server is fired up and ready to roll!')\n"
        "[2026-05-31 10:15:07] note: The server is fired up and ready to roll!\n"
    )
    assert read(text).state == "loading"


@pytest.mark.parametrize(
    "line", ["[15:57:49] The server is fired up and ready to roll!", "The server is fired up and ready to roll!"]
)
def test_a_ready_line_without_date_and_rank_is_valid(line):
    assert read(line).state == "ready"


def test_the_ready_line_of_a_server_that_has_no_port_is_not_its_own():
    """Whoever holds the port answered the warm-up."""
    startup = read(
        "[2026-05-31 10:15:01] INFO:     Application startup complete.\n"
        "[2026-05-31 10:15:01] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): "
        "address already in use\n[2026-05-31 10:15:02] The server is fired up and ready to roll!\n"
    )
    assert startup.state == "loading"


def test_a_clock_step_changes_no_length():
    entries = [
        _journal_lines.Entry("[2026-05-31 10:15:07 TP0] Load weight begin. avail mem=94.00 GB", 1790003600.0, 100.0),
        _journal_lines.Entry("The server is fired up and ready to roll!", 1790000060.0, 160.0),
    ]
    startup = _startup.read_startup(entries)
    assert startup.load_seconds == 60.0
    assert startup.ready_at == 1790000060.0


def test_suppressed_messages_are_counted():
    entries = [_journal_lines.Entry("Suppressed 1234 messages from u.service", source="journald")]
    assert _startup.read_startup(entries).suppressed_lines == 1234


def test_nothing_gives_an_empty_record():
    startup = _startup.read_startup([])
    assert (startup.state, startup.phase, startup.pool_tokens, startup.ranks) == ("loading", "process", None, ())
    json.dumps(startup.as_dict())


PIECES = st.sampled_from(
    [form.needle for form in _startup_lines.LINE_FORMS]
    + [
        "[2026-05-31 10:15:07 TP0] ",
        "avail mem=",
        "1.00 GB",
        "9" * 30,
        "#tokens: ",
        "mem usage=-",
        "\r",
        "\n",
        "end.",
        "begin.",
        ", ",
        "=",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=60))
def test_no_log_makes_the_reader_raise(pieces):
    json.dumps(read("".join(pieces)).as_dict())


@pytest.mark.parametrize("form", _startup_lines.LINE_FORMS, ids=lambda form: form.name)
def test_every_form_has_a_reader_and_a_source(form):
    if form.per_rank:
        assert hasattr(_startup_rank.Rank, "on_" + form.name)
    else:
        assert hasattr(_startup.StartupReader, "_on_" + form.name)
    assert form.source
    assert form.versions
