# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One whole start for every age of SGLang, 0.4.3 to 0.5.23, read by _startup and the readers of its lines.

The lines are written here from tables of what each version prints (read in the files of its wheel), and share nothing
with the patterns of the product. The figures are chosen; each stands in one line of the start.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _failures, _journal, _startup, _startup_lines

VERSIONS = ("0.4.3", "0.4.4", "0.4.6", "0.4.7", "0.4.9", "0.4.10") + tuple(
    "0.5.{0}".format(minor) for minor in range(1, 24) if minor != 5
)


def since(version, first):
    """Tell whether *version* is *first* or a later one."""
    return [int(part) for part in version.split(".")] >= [int(part) for part in first.split(".")]


# The order of the names in a head, by the first version that prints it: scheduler.py, run_scheduler_process.
HEADS = (
    ("0.5.10", ("DP", "PP", "ATTN_CP", "MOE_DP", "TP", "EP")),
    ("0.5.6", ("DP", "PP", "TP", "EP")),
    ("0.5.2", ("DP", "TP", "EP", "PP")),
    ("0.4.6", ("DP", "TP", "PP")),
    ("0.4.3", ("DP", "TP")),
)


class Writer:
    """Writes what the processes of one version print."""

    def __init__(self, version, stamp="2026-05-31 10:15:{0:02d}", head="[{stamp}{ranks}] {text}"):
        self.version, self.stamp, self.head = version, stamp, head
        self.lines = []
        self.second = 0

    def ranks(self, **numbers):
        """Return the rank part of a head: only what the version prints, in its order."""
        names = next(names for first, names in HEADS if since(self.version, first))
        if not numbers and not since(self.version, "0.4.6"):
            numbers = {"TP": 0}
        return "".join(" {0}{1}".format(name, numbers[name]) for name in names if name in numbers)

    def say(self, text, ranks=""):
        """Print one line under the head."""
        self.second = min(self.second + 1, 59)
        self.lines.append(self.head.format(stamp=self.stamp.format(self.second), ranks=ranks, text=text))

    def init(self, ranks, used):
        if since(self.version, "0.5.21"):
            self.say("Init parallel begin.", ranks)
            self.say("Init parallel ends. elapsed=1.05 s", ranks)
            self.say("Memory baseline taken. mem usage={0:.2f} GB".format(used), ranks)
            return
        self.say("Init torch distributed begin.", ranks)
        elapsed = "elapsed=1.05 s, " if since(self.version, "0.5.9") else ""
        self.say("Init torch distributed ends. {0}mem usage={1:.2f} GB".format(elapsed, used), ranks)

    def load(self, ranks, free, used, name="DeepseekV3ForCausalLM"):
        self.load_begin(ranks, free)
        self.load_end(ranks, free, used, name)

    def load_begin(self, ranks, free):
        self.say("Load weight begin. avail mem={0:.2f} GB".format(free), ranks)
        printed_bar = "Loading safetensors checkpoint shards: 100% Completed | 11/11 [00:07<00:00,  1.46it/s]"
        # Up to 0.5.7 each step ended its line.
        if since(self.version, "0.5.8"):
            printed_bar = printed_bar.replace("100%", " 45%") + "\r" + printed_bar
        self.lines += ["\r" + printed_bar, ""]

    def load_end(self, ranks, free, used, name="DeepseekV3ForCausalLM"):
        if since(self.version, "0.5.10"):
            what = "elapsed=8.01 s, type={0}, quant=fp8, fmt=e4m3, ".format(name)
        elif since(self.version, "0.5.9"):
            what = "elapsed=8.01 s, type={0}, dtype=torch.bfloat16, ".format(name)
        else:
            what = "type={0}, dtype=torch.bfloat16, ".format(name)
        end = "Load weight end. {0}avail mem={1:.2f} GB, mem usage={2:.2f} GB."
        self.say(end.format(what, free - used, used), ranks)

    def pool(self, ranks, tokens, sizes, kind="is allocated", label=""):
        """*sizes*: one number (KV in one buffer), or two (K and V)."""
        names = ("KV",) if len(sizes) == 1 else ("K", "V")
        dtype = "dtype: torch.bfloat16, " if since(self.version, "0.5.13") else ""
        label = label + " " if label and since(self.version, "0.5.17") else ""
        parts = ", ".join("{0} size: {1:.2f} GB".format(name, size) for name, size in zip(names, sizes))
        if since(self.version, "0.5.4") and not since(self.version, "0.5.14") and not label:
            self.say("Using KV cache dtype: torch.bfloat16", ranks)
        self.say("{0}KV Cache {1}. {2}#tokens: {3}, {4}".format(label, kind, dtype, tokens, parts), ranks)

    def pool_end(self, ranks, free):
        self.say("Memory pool end. avail mem={0:.2f} GB".format(free), ranks)

    def capture(self, ranks, before, used, name="cuda", role="target decode"):
        after = before - used
        if since(self.version, "0.5.14"):
            count = "num_tokens_per_req=1" if since(self.version, "0.5.22") else "num_tokens_per_bs=1, bs=[1, 2]"
            what = "Capture {0} {1} graph".format(role, {"cuda": "CUDA"}.get(name, name))
            self.say("{0} begin. backend=full, {1}, avail mem={2:.2f} GB".format(what, count, before), ranks)
            end = "{0} end. bs=[1, 2], elapsed=2.00 s, mem usage={1:.2f} GB, avail mem={2:.2f} GB."
            self.say(end.format(what, used, after), ranks)
            return
        what = "Capture {0}{1} graph".format("draft " if role.startswith("draft") else "", name)
        self.say("{0} begin. This can take up to several minutes. avail mem={1:.2f} GB".format(what, before), ranks)
        self.lines.append("\rCapturing batches (bs=2 avail_mem=6.00 GB):  50%|##### | 1/2 [00:01<00:01]")
        end = "{0} end. Time elapsed: 2.00 s. mem usage={1:.2f} GB. avail mem={2:.2f} GB."
        if not since(self.version, "0.4.6"):
            end = "{0} end. Time elapsed: 2.00 s. avail mem={2:.2f} GB. mem usage={1:.2f} GB."
        self.say(end.format(what, used, after), ranks)

    def final(self, ranks, tokens, free, device="gpu"):
        text = (
            "max_total_num_tokens={0}, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
            "context_len=131072"
        )
        if since(self.version, "0.4.9"):
            text += ", available_{0}_mem={1:.2f} GB".format(device, free)
        self.say(text.format(tokens), ranks)

    def serve(self):
        if since(self.version, "0.5.17"):
            self.say("Tree cache initialized: source=default impl=RadixCache hybrid_swa=False", "")
            self.say("Engine startup timings (s): load_weight=8.02, kv_cache_allocation=0.40, scheduler_e2e=20.0", "")
        self.say("INFO:     Started server process [4711]")
        self.say("INFO:     Application startup complete.")
        self.say("INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)")
        self.say('INFO:     127.0.0.1:40112 - "GET /get_model_info HTTP/1.1" 200 OK')
        self.say("The server is fired up and ready to roll!")

    def text(self):
        return "\n".join(self.lines) + "\n"


def read(text):
    return _startup.read_startup(_journal.decode(text)[0])


def two_ranks(writer):
    """A start on two boards: rank 1 has less free before the load, and less in the end."""
    # The free memory before the load, what the weights take, what is free after the pool and what the graphs take.
    figures = {0: (94.10, 75.10, 6.24, 0.66), 1: (93.80, 75.00, 5.90, 0.36)}
    heads = {number: writer.ranks(TP=number) for number in figures}
    for number in figures:
        writer.init(heads[number], 0.87)
    for number, (free, _weights, _pool, _graph) in figures.items():
        writer.load_begin(heads[number], free)
    for number, (free, weights, _pool, _graph) in figures.items():
        writer.load_end(heads[number], free, weights)
    for number, (_free, _weights, pool, graph) in figures.items():
        writer.pool(heads[number], 195011, (6.38, 6.38))
        writer.pool_end(heads[number], pool)
        writer.capture(heads[number], pool, graph)
    for number in figures:
        # Every rank printed it once; since 0.4.6 the first one does.
        if number == 0 or not since(writer.version, "0.4.6"):
            writer.final(heads[number], 195011, 5.50)
    writer.serve()
    return writer.text()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_start_on_two_boards(version):
    text = two_ranks(Writer(version))
    startup = read(text)
    assert startup.state == "ready"
    assert tuple(row["name"] for row in startup.phases) == _startup_lines.PHASES
    assert startup.pool_tokens == startup.total_pool_tokens == 195011
    assert startup.free_before_load_gib == 93.80
    assert startup.free_after_load_gib == 18.80
    assert startup.weights_gib == 75.10
    assert startup.kv_gib == 12.76
    assert startup.pool_end_free_gib == 5.90
    assert startup.graph_gib == 0.66
    assert startup.draft_weights_gib is None
    assert startup.draft_kv_gib is None
    assert startup.model_class == "DeepseekV3ForCausalLM"
    assert startup.context_tokens == 131072
    assert startup.chunked_prefill_size == 8192
    assert startup.max_running_requests == 48
    assert startup.evidence == "journal"
    # Rank 0 tells what is free in the end (0.4.9 and later), the other one what its last capture left: 5.90 - 0.36.
    tightest = ("TP0", 5.50) if since(version, "0.4.9") else ("TP1", 5.54)
    assert (startup.tightest_rank, startup.headroom_gib) == tightest
    records = {record["rank"]: record for record in startup.ranks}
    assert sorted(records) == ["TP0", "TP1"]
    assert records["TP1"]["free_before_load_gib"] == 93.80
    assert records["TP1"]["headroom_gib"] == 5.54
    assert [record["init_gib"] for record in records.values()] == [0.87, 0.87]
    assert _failures.classify(_journal.decode(text)[0]) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_start_without_parallelism_with_a_draft(version):
    """Before 0.5.14 the draft is loaded after the pool of the model, from then on before it."""
    writer = Writer(version)
    head = writer.ranks()
    writer.init(head, 0.87)
    writer.load(head, 94.00, 75.00)
    if not since(version, "0.5.14"):
        writer.pool(head, 200000, (13.00,))
        writer.pool_end(head, 5.90)
        writer.load(head, 5.90, 1.50, "DeepseekV3ForCausalLMNextN")
        writer.pool(head, 200000, (0.22,))
        writer.pool_end(head, 4.10)
    else:
        writer.load(head, 19.00, 1.50, "DeepseekV3ForCausalLMNextN")
        writer.pool(head, 200000, (13.00,))
        writer.pool_end(head, 4.40)
        writer.pool(head, 200000, (0.22,), label="draft")
        writer.pool_end(head, 4.10)
    writer.capture(head, 4.10, 1.00, role="target verify")
    writer.capture(head, 3.10, 0.25, role="draft decode")
    writer.final(head, 200000, 2.80)
    writer.serve()
    startup = read(writer.text())
    assert startup.free_before_load_gib == 94.00
    assert startup.free_after_load_gib == 19.00
    assert (startup.weights_gib, startup.draft_weights_gib) == (75.00, 1.50)
    assert (startup.kv_gib, startup.draft_kv_gib) == (13.00, 0.22)
    assert startup.pool_end_free_gib == 4.10
    assert startup.graph_gib == 1.25
    assert startup.headroom_gib == (2.80 if since(version, "0.4.9") else 2.85)
    assert startup.pool_tokens == 200000
    assert startup.model_class == "DeepseekV3ForCausalLM"
    assert len(startup.ranks) == 1


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.4.6")])
def test_a_start_with_two_pools_of_its_own(version):
    """Attention in two data-parallel ranks: the smaller pool is what a request can count on, the sum is the total."""
    writer = Writer(version)
    for number, (tokens, free) in enumerate(((66295, 5.10), (64000, 4.90))):
        head = writer.ranks(DP=number, TP=number, EP=number, ATTN_CP=0, MOE_DP=0, PP=0)
        writer.init(head, 0.87)
        writer.load(head, 137.29, 82.29)
        writer.pool(head, tokens, (4.34,))
        writer.pool_end(head, free + 1)
        writer.capture(head, free + 1, 1.00)
        writer.final(head, tokens, free)
    writer.serve()
    startup = read(writer.text())
    assert startup.pool_tokens == 64000
    assert startup.total_pool_tokens == 130295
    assert startup.headroom_gib == 4.90
    assert startup.tightest_rank.startswith("DP1 ")
    assert len(startup.ranks) == 2


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.4.6")])
def test_the_stages_of_a_pipeline_share_one_pool(version):
    writer = Writer(version)
    for number, free in enumerate((3.00, 2.50)):
        head = writer.ranks(PP=number, TP=0)
        writer.init(head, 0.87)
        writer.load(head, 61.00, 53.58 - 2 * number)
        writer.pool(head, 100000, (2.00,))
        writer.pool_end(head, free)
        writer.final(head, 100000, free)
    writer.serve()
    startup = read(writer.text())
    assert startup.pool_tokens == startup.total_pool_tokens == 100000
    assert startup.weights_gib == 53.58
    assert startup.free_after_load_gib == 7.42
    assert startup.headroom_gib == 2.50
    assert "PP1" in startup.tightest_rank


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.4.6")])
def test_a_node_of_a_higher_rank_is_ready_without_a_server(version):
    """It prints global ranks, no final line and no ready line; its dummy server says that its ranks are up."""
    writer = Writer(version)
    for number in (8, 9):
        head = writer.ranks(TP=number)
        writer.init(head, 0.87)
        writer.load(head, 78.00, 66.00)
        writer.pool(head, 387968, (5.92, 5.92))
        writer.pool_end(head, 0.10 * number)
    loading = read(writer.text())
    assert (loading.state, loading.pool_tokens) == ("loading", 387968)
    if since(version, "0.5.6"):
        writer.say("Dummy health check server started in background thread at 192.0.2.7:30000")
    else:
        writer.say("Starting dummy health check server at 192.0.2.7:30000")
    startup = read(writer.text())
    assert (startup.state, startup.phase) == ("ready", "ready")
    assert startup.pool_tokens == startup.total_pool_tokens == 387968
    assert (startup.tightest_rank, startup.headroom_gib) == ("TP8", 0.80)
    assert startup.evidence == "journal"
    failed = writer.text().replace("started in background thread", "failed to start").replace("Starting", "No")
    assert read(failed).state == "loading"


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.5.2")])
def test_a_start_on_a_cpu(version):
    """Free memory is that of the host, and grows while pages are given back: weights may be less than nothing."""
    writer = Writer(version)
    writer.init("", 0.00)
    writer.load("", 20.88, -0.01)
    writer.pool("", 55458, (1.01, 1.01))
    writer.pool_end("", 18.76)
    writer.capture("", 18.76, 0.05, name="cpu")
    writer.final("", 55458, 18.67, device="cpu")
    writer.serve()
    startup = read(writer.text())
    assert startup.weights_gib == -0.01
    assert startup.kv_gib == 2.02
    assert startup.headroom_gib == 18.67
    assert startup.graph_gib == 0.05
    assert "graphs" in [row["name"] for row in startup.phases]


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.4.10")])
def test_a_window_pool(version):
    writer = Writer(version)
    writer.load("", 22.91, 5.42)
    word = "sliding" if since(version, "0.5.4") else "Sliding"
    writer.say("Use {0} window memory pool. full_layer_tokens=102094, swa_layer_tokens=81675".format(word))
    writer.pool("", 81675, (6.23, 6.23))
    writer.pool("", 102094, (0.78, 0.78))
    if since(version, "0.5.4"):
        more = "" if since(version, "0.5.8") else "34512"
        writer.say("SWAKVPool mem usage: 14.02{0} GB, swa size: 81675, full size: 102094".format(more))
    writer.pool_end("", 3.43)
    writer.final("", 102094, 3.42)
    writer.serve()
    startup = read(writer.text())
    assert startup.pool_tokens == 102094
    assert startup.swa_tokens == 81675
    assert startup.kv_gib == pytest.approx(14.02, abs=0.01)
    assert startup.draft_kv_gib is None


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.5.2")])
def test_a_state_cache(version):
    writer = Writer(version)
    writer.load("", 94.00, 51.86)
    writer.say(
        "Mamba Cache is allocated. max_mamba_cache_size: 64, conv_state size: 0.07GB, ssm_state size: 3.05GB "
        "intermediate_ssm_state_cache size: 8.75GB intermediate_conv_window_cache size: 0.43GB "
    )
    writer.pool("", 295950, (4.52, 4.52))
    writer.pool_end("", 21.57)
    startup = read(writer.text())
    assert startup.state_gib == 12.30
    assert (startup.kv_gib, startup.pool_tokens) == (9.04, 295950)


@pytest.mark.parametrize("version", [version for version in VERSIONS if since(version, "0.5.17")])
@pytest.mark.parametrize("window", [False, True])
def test_a_pool_that_is_sized_after_the_capture(version, window):
    writer = Writer(version)
    writer.load("", 94.00, 33.00)
    if window:
        writer.say("Use sliding window memory pool. full_layer_tokens=900000, swa_layer_tokens=720000")
    writer.pool("", 900000, (30.00, 30.00), kind="VA upper bound")
    if window:
        writer.say("SWAKVPool VA upper bound: 60.00 GB, swa size: 720000, full size: 900000")
    writer.pool_end("", 60.00)
    writer.capture("", 60.00, 1.00)
    reserved = read(writer.text())
    assert (reserved.pool_tokens, reserved.total_pool_tokens, reserved.kv_gib) == (None, None, None)
    assert reserved.evidence is None
    assert reserved.va_upper_bound_tokens == 900000
    writer.say("Post-capture KV sizing: full_layer_tokens=640000, swa_layer_tokens={0}".format(512000 if window else 0))
    writer.say(
        "Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 640000, KV size: 40.00 GB, "
        "avail mem=7.50 GB"
    )
    sized = read(writer.text())
    assert (sized.pool_tokens, sized.kv_gib, sized.evidence) == (640000, 40.00, "journal")
    assert sized.swa_tokens == (512000 if window else None)
    writer.final("", 640000, 7.40)
    writer.serve()
    startup = read(writer.text())
    assert (startup.pool_tokens, startup.headroom_gib, startup.state) == (640000, 7.40, "ready")


@pytest.mark.parametrize(
    ("stamp", "head"),
    [
        # SGLANG_LOG_MS=1 (0.5.6+).
        ("2026-05-31 10:15:{0:02d}.123", "[{stamp}{ranks}] {text}"),
        # Logging configurations of one's own: the ranks are lost.
        ("2026-05-31 10:15:{0:02d},123", "{stamp} - sglang.srt.managers.scheduler - INFO - {text}"),
        ("2026-05-31T10:15:{0:02d}.123Z", "{stamp} INFO [sglang.srt.utils] {text}"),
        ("", "INFO:sglang.srt.managers.scheduler:{text}"),
        ("", "{text}"),
        # What a container runtime, a collector or the journal puts before the head.
        ("2026-05-31 10:15:{0:02d}", "sglang-1  | [{stamp}{ranks}] {text}"),
        ("2026-05-31 10:15:{0:02d}", "2026-05-31T10:15:00.123456789Z stderr F [{stamp}{ranks}] {text}"),
        ("2026-05-31 10:15:{0:02d}", "May 31 10:15:00 gpu-1 python3[4711]: [{stamp}{ranks}] {text}"),
    ],
)
def test_any_head(stamp, head):
    startup = read(two_ranks(Writer("0.5.23", stamp, head)))
    assert startup.state == "ready"
    assert startup.pool_tokens == 195011
    assert startup.free_before_load_gib == 93.80
    assert startup.free_after_load_gib == 18.80
    assert startup.weights_gib == 75.10
    assert startup.kv_gib == 12.76
    assert startup.pool_end_free_gib == 5.90
    assert startup.graph_gib == 0.66
    assert startup.headroom_gib == 5.50
    assert (startup.draft_weights_gib, startup.draft_kv_gib) == (None, None)


def test_processes_without_a_head_are_ranks_of_their_own():
    """Where the journal names the process, every rank stays apart, although none of them says its name."""
    records = []
    for pid, free, pool in ((101, 94.10, 6.24), (102, 93.80, 5.54)):
        writer = Writer("0.5.23", "", "{text}")
        writer.load("", free, 75.00)
        writer.pool("", 195011, (6.38, 6.38))
        writer.pool_end("", pool)
        records += [{"MESSAGE": line, "_PID": str(pid), "_TRANSPORT": "stdout"} for line in writer.lines if line]
    startup = read("\n".join(json.dumps(record) for record in records))
    free = {record["rank"]: record["free_before_load_gib"] for record in startup.ranks}
    assert free == {"TP0": 94.10, "pid 102": 93.80}
    assert startup.free_before_load_gib == 93.80
    assert startup.pool_end_free_gib == 5.54
    assert (startup.draft_weights_gib, startup.draft_kv_gib) == (None, None)


WHOLE = two_ranks(Writer("0.5.23")).splitlines()
NUMBERS = st.sampled_from(["0", "0.00", "-1", "9" * 40, "1.2.3", "1.", ".5", "nan", "None", "", "1e5", "7"])


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WHOLE), max_size=8), st.data())
def test_no_number_makes_the_reader_raise(lines, data):
    """Real lines in any order, in which every number may be anything."""
    made = [re.sub(r"(?<==)\d+(?:\.\d+)?", lambda _found: data.draw(NUMBERS), line) for line in lines]
    json.dumps(read("\n".join(made)).as_dict())


def test_a_sentence_of_a_start_inside_a_request_is_none():
    for line in (
        "[2026-05-31 10:15:07] Receive: obj=GenerateReqInput(text='INFO: The server is fired up and ready to roll!')",
        "2026-05-31 10:15:07,123 - app - INFO - he said: The server is fired up and ready to roll!",
        "INFO:     127.0.0.1:40112 - \"GET /Dummy health check server started in background thread HTTP/1.1\" 200 OK",
    ):
        assert read(line).state == "loading"
