# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The played GPU engine: whole starts and deaths on this machine, without root, with boards that are a file."""

from __future__ import annotations

import concurrent.futures
import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error

import pytest
from played_server import PLAYED, Server, smi

pytestmark = pytest.mark.slow

HEAD = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: (?:DP|PP|TP|EP)\d+)*)\] (.*)$")


def said(server, start):
    """The messages that begin so, with the ranks before them."""
    found = [HEAD.match(line) for line in server.lines()]
    return [(match[2].strip(), match[3]) for match in found if match and match[3].startswith(start)]


def test_two_ranks_start_answer_and_show_their_memory(world, models):
    with Server(world(2), "0.5.23", models["gqa-small"], "--tp-size", "2", "--context-length", "8192") as server:
        server.wait_ready()
        assert [ranks for ranks, _text in said(server, "Load weight begin.")] in (["TP0", "TP1"], ["TP1", "TP0"])
        assert len(said(server, "max_total_num_tokens=")) == 1
        # 32 layers x 4 heads x 256 x 2 bytes; 14.96 GiB of weights in two parts (public: 16.06 GB at bf16).
        pool = int(re.search(r"#tokens: (\d+), K size: ([\d.]+)", said(server, "KV Cache")[0][1])[1])
        size = float(re.search(r"K size: ([\d.]+)", said(server, "KV Cache")[0][1])[1])
        assert size == pytest.approx(pool * 65536 / 2**31, abs=0.01)
        assert "mem usage=7.48 GB" in said(server, "Load weight end.")[0][1]
        answer = server.ask("/generate", {"input_ids": [5] * 3000, "sampling_params": {"max_new_tokens": 9}})
        assert answer["meta_info"]["prompt_tokens"] == 3000
        assert answer["meta_info"]["completion_tokens"] == 9
        info = server.ask("/server_info")
        assert info["internal_states"][0]["memory_usage"]["token_capacity"] == pool
        query = "--query-gpu=index,memory.total,memory.used,memory.free"
        text = smi(server.world, query, "--format=csv,noheader,nounits")
        rows = [[int(cell) for cell in row] for row in csv.reader(io.StringIO(text))]
        assert [row[:2] for row in rows] == [[0, 97887], [1, 97887]]
        # 94.97 GiB of torch are 97,249 MiB; the last line before ready tells what is free in GiB.
        ready_gib = info["internal_states"][0]["memory_usage"]["startup_available"]
        assert rows[0][2] + rows[0][3] == pytest.approx(97249, abs=2)
        assert rows[0][3] <= ready_gib * 1024
        apps = smi(server.world, "--query-compute-apps=pid,gpu_uuid,process_name,used_memory", "--format=csv,noheader")
        assert [row[2] for row in csv.reader(io.StringIO(apps), skipinitialspace=True)] == [
            "sglang::scheduler_TP0", "sglang::scheduler_TP1"
        ]
    assert smi(server.world, "--query-compute-apps=pid", "--format=csv,noheader") == ""


@pytest.fixture(scope="module")
def reference(world, models):
    """The reference case: at 0.94, a long request on a clean cache, then prompts until the cache is full, then 32k."""
    knobs = {"PLAYED_MODEL": str(PLAYED / "reference" / "model.json"), "PLAYED_SPEED": "2000"}
    arguments = ("--tp-size", "8", "--mem-fraction-static", "0.94")
    with Server(world(8), "0.5.18", models["reference"], *arguments, **knobs) as server:
        server.wait_ready()
        server.first = server.prompt(60000, 1)
        for number in range(8):
            server.prompt(26000, 10 + number)
        server.last = server.prompt(32768, 100)
        server.wait_end()
    return server


def test_the_reference_case_has_its_pool(reference):
    (line,) = said(reference, "max_total_num_tokens=")
    pool = int(re.match(r"max_total_num_tokens=(\d+), chunked_prefill_size=8192,", line[1])[1])
    assert pool == pytest.approx(218000, abs=700)
    assert pool * 70272 / 2**30 == pytest.approx(
        float(re.search(r"KV size: ([\d.]+) GB", said(reference, "KV Cache")[0][1])[1]), abs=0.01
    )


def test_the_reference_case_dies_in_a_prefill_of_32k(reference):
    assert reference.first["meta_info"]["prompt_tokens"] == 60000
    assert reference.last is None
    text = next(line for line in reference.lines() if line.startswith("torch.OutOfMemoryError"))
    figures = re.match(
        r"torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate ([\d.]+) MiB\. GPU (\d) has a total capacity "
        r"of ([\d.]+) GiB of which ([\d.]+) MiB is free\. Including non-PyTorch memory, this process has ([\d.]+) GiB "
        r"memory in use\. .* and ([\d.]+) GiB is reserved by PyTorch but unallocated\.",
        text,
    )
    assert float(figures[1]) == 896.0
    assert figures[3] == "94.97"
    assert float(figures[4]) == pytest.approx(893.38, abs=2.5)
    assert float(figures[5]) == pytest.approx(93.40, abs=0.02)
    assert float(figures[6]) == pytest.approx(1.4, abs=0.03)
    assert reference.returncode == -9
    assert any("SIGQUIT received" in line for line in reference.lines())


# --- deaths. Each with what must be in the log, and how the launcher ends (public reports, and SGLang's own texts)

DEATHS = {
    "oom at load": ("0.5.23", {"at": "weights", "kind": "oom", "rank": "all", "wanted_mib": 448}, (
        r"^torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate 448\.00 MiB\. GPU \d has a total capacity",
        r"^Received sigquit from a child process\.",
    ), -9),
    "nccl at init": ("0.5.9", {"at": "init", "kind": "nccl"}, (
        r"^RuntimeError: NCCL error: unhandled system error", r"^Received sigquit from a child process\.",
    ), -9),
    "nccl in graphs": ("0.5.10", {"at": "graphs", "kind": "nccl", "rank": 1}, (
        r"^RuntimeError: NCCL error: unhandled system error", r"^During handling of the above exception",
        r"^Exception: Capture cuda graph failed: NCCL error", r"^Possible solutions:",
        r"^2\. set --cuda-graph-max-bs to ",
    ), -9),
    "oom in graphs": ("0.5.20", {"at": "graphs", "kind": "oom", "rank": 1}, (
        r"^torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate 896",
        r"^Exception: Capture cuda graph failed: CUDA",
        r"^2\. set --cuda-graph-max-bs-decode to ",
    ), -9),
    "killed while loading": ("0.5.10", {"at": "weights", "kind": "kill_rank", "rank": 1}, (
        r"^RuntimeError: Rank 1 scheduler died during initialization \(exit code: -9\)\.",
    ), 1),
    "killed while loading, old": ("0.5.2", {"at": "weights", "kind": "kill_rank", "rank": 1}, (
        r"^Rank 1 scheduler is dead\.", r"^Exit code: -9", r"^EOFError",
    ), 1),
    "other exit code, same words": ("0.5.14", {"at": "pool", "kind": "exit", "code": 3}, (
        r"^RuntimeError: Rank 0 scheduler died during initialization \(exit code: 3\)\. If exit code is -9",
    ), 1),
    "segmentation fault": ("0.5.23", {"at": "pool", "kind": "sigsegv"}, (
        r"^Fatal Python error: Segmentation fault", r"^RuntimeError: Rank 0 scheduler died .* \(exit code: -11\)",
    ), 1),
    "port taken": ("0.5.23", {"at": "ready", "kind": "port"}, (
        r"^INFO:     Application startup complete\.", r"address already in use$",
    ), 1),
    "silent": ("0.5.23", {"at": "weights", "kind": "silent", "code": 1}, (), 1),
    "warm-up": ("0.5.9", {"at": "warmup", "kind": "exception"}, (r"^Initialization failed\. warmup error: ",), -9),
    "killed while serving": ("0.5.23", {"at": "ready", "kind": "kill_rank", "rank": 1, "after_seconds": 0.3}, (
        r"^Subprocess scheduler_1 \(pid=\d+\) crashed with exit code -9\.", r"^SIGQUIT received\. signum=",
    ), -9),
    "hang while serving": ("0.5.6", {"at": "ready", "kind": "hang", "after_seconds": 0.3}, (
        r"^Watchdog timeout \(self\.watchdog_timeout=1\)", r"^SIGQUIT received\. signum=",
    ), -9),
    "illegal access in prefill": ("0.5.23", {
        "at": "prefill", "kind": "exception",
        "text": "RuntimeError: CUDA error: an illegal memory access was encountered",
    }, (r"^RuntimeError: CUDA error: an illegal memory access was encountered",), -9),
}


def messages(server):
    found = []
    for line in server.lines():
        match = HEAD.match(line)
        found.append(match[3] if match else re.sub(r"^\[[^]]*\] ", "", line))
    return found


@pytest.mark.parametrize("name", DEATHS)
def test_a_death(name, world, models):
    version, fault, wanted, status = DEATHS[name]
    words = ("--tp-size", "2", "--watchdog-timeout", "1", "--context-length", "8192")
    faults = json.dumps([fault])
    with Server(world(2), version, models["gqa-small"], *words, PLAYED_FAULTS=faults, PLAYED_SPEED="3000") as server:
        assert server.wait_end() == status
    texts = iter(messages(server))
    for pattern in wanted:
        assert any(re.search(pattern, text) for text in texts), f"{pattern} not found, or not in this order"
    if not wanted:
        assert "Traceback" not in server.text()


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.5.2", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
        ("0.5.10", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                   "mem_fraction_static=0.05"),
        ("0.5.23", "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.05. "
                   "Raise --mem-fraction-static above 0.080 (minimum viable = 1 - available/pre = 0.079"),
    ],
)
def test_a_pool_that_is_too_small(version, text, world, models):
    words = ("--tp-size", "2", "--mem-fraction-static", "0.05")
    with Server(world(2), version, models["gqa-small"], *words, PLAYED_SPEED="3000") as server:
        assert server.wait_end() == -9
    assert any(line.startswith(text) for line in server.lines())


@pytest.mark.parametrize(
    ("host", "text"),
    [
        # 192.0.2.0/24 is nobody's (RFC 5737); the words are those of asyncio and of the C library.
        ("192.0.2.1", "[Errno 99] error while attempting to bind on address ('192.0.2.1', {}): "
                      "cannot assign requested address"),
        ("2001:db8::1", "[Errno 99] error while attempting to bind on address ('2001:db8::1', {}, 0, 0): "
                        "cannot assign requested address"),
    ],
)
def test_an_address_that_cannot_be_bound_is_called_what_it_is(host, text, world, models):
    with Server(world(1), "0.5.23", models["gqa-small"], "--host", host, PLAYED_SPEED="3000") as server:
        assert server.wait_end() == 1
    assert "ERROR:    " + text.format(server.port) in server.text()
    assert "already in use" not in server.text()


def test_a_server_listens_by_ipv6(world, models):
    with Server(world(1), "0.5.23", models["gqa-small"], "--host", "::1", PLAYED_SPEED="3000") as server:
        server.wait_ready()
        with socket.create_connection(("::1", server.port), timeout=5):
            assert f"Uvicorn running on http://[::1]:{server.port} (" in server.text()


def test_a_fault_at_ready_strikes_after_the_ready_line(world, models):
    fault = json.dumps([{"at": "ready", "kind": "error_line", "text": "words of a request"}])
    with Server(world(1), "0.5.23", models["gqa-small"], PLAYED_FAULTS=fault, PLAYED_SPEED="3000") as server:
        text = server.wait("words of a request")
    assert text.index("ready to roll") < text.index("words of a request")


def test_a_fault_strikes_as_often_as_it_should(world, models):
    fault = json.dumps([{"at": "init", "kind": "exception", "text": "RuntimeError: told", "times": 1}])
    machine = world(1)
    with Server(machine, "0.5.23", models["gqa-small"], PLAYED_FAULTS=fault, PLAYED_SPEED="3000") as server:
        assert server.wait_end() == -9
    with Server(machine, "0.5.23", models["gqa-small"], PLAYED_FAULTS=fault, PLAYED_SPEED="3000") as server:
        server.wait_ready()


def test_a_foreign_process_unbalances_the_boards(world, models, sites):
    machine = world(2)
    environment = {**machine, "PYTHONPATH": str(sites("0.5.23"))}
    command = [sys.executable, "-m", "sglang.played.occupy", "1", "20000", "python3"]
    with subprocess.Popen(command, env={**os.environ, **environment}) as foreign:
        try:
            with Server(machine, "0.5.23", models["gqa-small"], "--tp-size", "2", PLAYED_SPEED="3000") as server:
                assert server.wait_end() == -9
            apps = smi(machine, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
            assert apps == f"{foreign.pid}, 20000\n"
        finally:
            foreign.terminate()
    assert any(line.startswith("RuntimeError: The memory capacity is unbalanced.") for line in server.lines())


# --- line forms of the versions. Patterns of public start-ups and of SGLang's sources

FORMS = {
    "0.4.6.post5": (
        r"Init torch distributed ends\. mem usage=[\d.]+ GB$",
        r"Load weight end\. type=\w+, dtype=torch\.bfloat16, avail mem",
        r"KV Cache is allocated\. #tokens: \d+, K size: [\d.]+ GB, V size: [\d.]+ GB$",
        r"Capture cuda graph bs \[1, 2, 4, 8",
        r"Capture cuda graph end\. Time elapsed: [\d.]+ s\. mem usage=[\d.]+ GB\. avail",
        r"Capture draft cuda graph begin\.", r"Capture draft extend cuda graph end\. Time",
        r"max_total_num_tokens=\d+, chunked_prefill_size=8192, .*context_len=131072$",
    ),
    "0.5.2": (
        r"Use Sliding window memory pool\. full_layer_tokens=\d+, swa_layer_tokens=\d+$",
        r"max_total_num_tokens=\d+, .*, available_gpu_mem=[\d.]+ GB$",
    ),
    "0.5.6": (
        r"Using KV cache dtype: torch\.bfloat16$", r"Use sliding window memory pool\.",
        r"SWAKVPool mem usage: [\d.]+ GB, swa size: \d+, full size: \d+$",
    ),
    "0.5.9": (r"Load weight end\. elapsed=[\d.]+ s, type=GptOssForCausalLM, dtype=torch\.bfloat16, avail mem",),
    "0.5.10": (
        r"Load weight end\. elapsed=[\d.]+ s, type=GptOssForCausalLM, quant=mxfp4, avail mem",
        r"Capture piecewise CUDA graph end\. Time elapsed:",
    ),
    "0.5.14": (
        r"Load weight begin\.", r"Load weight end\. .*type=LlamaForCausalLMEagle3",
        r"KV Cache is allocated\. dtype: torch\.bfloat16, #tokens: \d+, K size",
        r"Capture target verify CUDA graph begin\. backend=full, num_tokens_per_req=4, bs=\[1, 2, 4",
        r"Capture draft decode CUDA graph end\. elapsed=", r"Capture draft extend CUDA graph end\. elapsed=",
    ),
    "0.5.18": (
        r"SWA KV Cache is allocated\. dtype: torch\.bfloat16", r"Full KV Cache is allocated\. dtype",
        r"Tree cache initialized: ",
        r"Engine startup timings \(s\): load_weight=[\d.]+, kv_cache_allocation=[\d.]+, scheduler_e2e=",
    ),
    "0.5.23": (
        r"Init parallel begin\.$", r"Init parallel ends\. elapsed=[\d.]+ s$",
        r"Memory baseline taken\. mem usage=[\d.]+ GB$",
        r"Capture target verify CUDA graph begin\. backend=full, num_tokens_per_req=4, avail mem=",
        r"Capture target verify CUDA graph end\. bs=\[1, 2, 4, ",
    ),
}


@pytest.mark.parametrize("version", FORMS)
def test_the_words_of_a_version(version, world, models):
    draft = ("--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", str(models["draft"]))
    words = ("--tp-size", "2", *draft)
    with Server(world(2), version, models["gpt-oss"], *words, PLAYED_SPEED="3000") as server:
        server.wait_ready()
    texts = iter(messages(server))
    for pattern in FORMS[version]:
        assert any(re.match(pattern, text) for text in texts), f"{pattern} not found, or not in this order"


def test_a_bar_is_one_growing_line_since_0_5_8(world, models):
    for version, entries in (("0.5.6", 3), ("0.5.9", 1)):
        with Server(world(1), version, models["gqa-small"], PLAYED_SPEED="3000") as server:
            server.wait_ready()
        lines = [line for line in server.text().split("\n") if "Loading safetensors checkpoint shards" in line]
        assert len(lines) == entries


def test_states_of_a_hybrid_model_are_told(world, models):
    with Server(world(2), "0.5.10", models["qwen3-next"], "--tp-size", "2", PLAYED_SPEED="3000") as server:
        server.wait_ready()
    assert len(said(server, "Mamba Cache is allocated. max_mamba_cache_size: ")) == 2


# --- serving


def test_attention_data_parallelism_has_a_pool_for_each_dp_rank(world, models):
    words = ("--tp-size", "4", "--dp-size", "2", "--enable-dp-attention", "--enable-metrics")
    with Server(world(4), "0.5.10", models["gqa-small"], *words) as server:
        server.wait_ready()
        assert sorted(ranks for ranks, _text in said(server, "Load weight begin.")) == [
            "DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3"
        ]
        assert sorted(ranks for ranks, _text in said(server, "max_total_num_tokens")) == ["DP0 TP0", "DP1 TP2"]
        assert len(server.ask("/server_info")["internal_states"]) == 2
        for seed in range(2):
            server.prompt(500, seed, answer=3)
        server.wait("DP1 TP2] Prefill batch")
        assert 'dp_rank="1"' in server.ask("/metrics")


def test_keys_health_and_flush(world, models):
    words = ("--api-key", "secret", "--admin-api-key", "root")
    with Server(world(1), "0.5.23", models["gqa-small"], *words) as server:
        server.wait_ready()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            server.ask("/server_info")
        assert server.ask("/health") == ""
        assert server.ask("/health_generate") == ""
        assert server.ask("/server_info", key="secret")["version"] == "0.5.23"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            server.ask("/flush_cache", {}, key="secret")
        assert server.ask("/flush_cache", {}, key="root") == "Cache flushed.\n"


def test_a_hung_rank_makes_health_fail(world, models):
    fault = json.dumps([{"at": "prefill", "kind": "hang", "after_seconds": 1}])
    more = {"PLAYED_FAULTS": fault, "SGLANG_HEALTH_CHECK_TIMEOUT": "1", "PLAYED_SPEED": "3000"}
    with Server(world(1), "0.5.23", models["gqa-small"], "--watchdog-timeout", "0", **more) as server:
        server.wait_ready()
        time.sleep(1.0)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            server.ask("/health")
        server.wait("Health check failed. Server couldn't get a response from detokenizer for last 1 seconds.")
        server.process.kill()


def test_a_pool_that_is_full_retracts(world, models):
    """Two answers of 900 tokens in a pool of 1,500: admitted in hope, one is taken back, both are answered."""
    words = ("--max-total-tokens", "1500", "--context-length", "4096", "--disable-radix-cache")
    # Steps so slow that the second request comes long before the first is answered.
    more = {"PLAYED_SPEED": "20000", "PLAYED_SET": json.dumps({"decode_step_seconds": 20})}
    with Server(world(1), "0.5.23", models["gqa-small"], *words, **more) as server:
        server.wait_ready()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda seed: server.prompt(200, seed, answer=900), (1, 2)))
        assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [900, 900]
        server.wait("KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: ")


def test_a_node_that_is_not_the_first_only_says_that_it_is_well(world, models):
    words = ("--tp-size", "4", "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "127.0.0.1:1")
    with Server(world(2), "0.5.23", models["gqa-small"], *words, PLAYED_SPEED="3000") as server:
        server.wait("Dummy health check server started in background thread at 127.0.0.1:")
        assert server.ask("/health") == ""
        assert sorted(ranks for ranks, _text in said(server, "Load weight begin.")) == ["TP2", "TP3"]
        assert "fired up" not in server.text()
        assert "max_total_num_tokens" not in server.text()


def test_the_same_seed_gives_the_same_noise(world, models):
    pools = []
    for seed in ("1", "1", "2"):
        more = {"PLAYED_SEED": seed, "PLAYED_NOISE_MIB": "500", "PLAYED_SPEED": "3000"}
        with Server(world(1), "0.5.18", models["gqa-small"], **more) as server:
            server.wait_ready()
        pools.append(said(server, "max_total_num_tokens")[0][1].split(",")[0])
    assert pools[0] == pools[1] != pools[2]


def test_on_a_cpu_it_plays_as_before(world, models, tmp_path):
    machine = {**world(1), "PLAYED_BOARDS": str(tmp_path / "none")}
    words = ("--mem-fraction-static", "0.2", "--max-total-tokens", "5000", "--context-length", "512")
    knobs = {"PLAYED_MODEL": str(tmp_path / "none")}
    (tmp_path / "small").mkdir()
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}
    (tmp_path / "small" / "config.json").write_text(json.dumps(config))
    with Server(machine, "0.5.23", tmp_path / "small", "--device", "cpu", *words, **knobs) as server:
        server.wait_ready()
        assert "available_cpu_mem=" in server.text()
        assert server.ask("/generate", {"text": "The capital of France is"})["text"] == " Paris."


# --- the hour without waiting


def hour(sites, machine, model, *arguments, version="0.5.18", **more):
    environment = {**os.environ, **machine, "PYTHONPATH": str(sites(version)), "PYTHONDONTWRITEBYTECODE": "1", **more}
    words = ["--model-path", str(model), *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "sglang.played.traffic", "--seed", "3", "--", *words], env=environment,
        capture_output=True, text=True, check=True,
    )
    return json.loads(done.stdout)


def test_the_hour_kills_the_reference_case_and_not_a_careful_one(reference, sites, world, models):
    machine = {**world(8), "PLAYED_MODEL": str(PLAYED / "reference" / "model.json")}
    told = hour(sites, machine, models["reference"], "--tp-size", "8", "--mem-fraction-static", "0.94")
    (line,) = said(reference, "max_total_num_tokens=")
    assert told["pool_tokens"] == int(line[1].split(",")[0].partition("=")[2])
    assert told["ready_gib"] == pytest.approx(float(line[1].partition("available_gpu_mem=")[2].split()[0]), abs=0.01)
    assert "Tried to allocate" in told["died"]["text"]
    careful = ("--tp-size", "8", "--mem-fraction-static", "0.91", "--chunked-prefill-size", "2048")
    assert hour(sites, machine, models["reference"], *careful)["died"] is None
