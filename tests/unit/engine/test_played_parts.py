# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the played GPU engine that need no process: arithmetic, line forms, models, nvidia-smi."""

from __future__ import annotations

import importlib
import json
import re
import sys

import pytest
from played_server import run, smi

GIB = 2**30


@pytest.fixture(scope="module")
def played(sites):
    """played(name): a module of the engine; ``played.at(version)`` changes which SGLang it stands in for."""
    folder = str(sites("0.5.23"))
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "sglang"}
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, folder)

    class Played:
        def __call__(self, name):
            return importlib.import_module(f"sglang.played.{name}")

        def at(self, version):
            self("versions").__version__ = version

    yield Played()
    sys.path.remove(folder)
    for name in [one for one in sys.modules if one.partition(".")[0] == "sglang"]:
        del sys.modules[name]
    sys.modules.update(before)


# --- the pool. Expected values were computed by hand from config.json and the formula, and stand in public logs.


def shape(played, config, tmp_path, **more):
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 1000, "hidden_size": 4096, **config, **more}))
    return played("geometry").read(str(tmp_path))


KIMI = {
    "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61, "num_attention_heads": 64, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "max_position_embeddings": 131072,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "max_position_embeddings": 131072,
}
QWEN = {**LLAMA, "num_hidden_layers": 94, "num_key_value_heads": 4}


@pytest.mark.parametrize(
    ("config", "tp", "pre", "weights", "fraction", "dtype", "cell", "tokens"),
    [
        (KIMI, 8, 94.97, 75.0, 0.94, "auto", 70272, 218070),
        (KIMI, 8, 94.97, 75.0, 0.93, "auto", 70272, 203558),
        (KIMI, 8, 94.97, 70.0, 0.94, "fp8_e4m3", 35136, 588938),
        (LLAMA, 4, 78.5, 33.0, 0.85, "auto", 81920, 442040),
        (QWEN, 8, 138.5, 54.75, 0.872, "auto", 48128, 1472959),  # four heads on eight ranks are stored twice
    ],
)
def test_the_pool_is_what_the_formula_says(played, tmp_path, config, tp, pre, weights, fraction, dtype, cell, tokens):
    played.at("0.5.10")
    pools = played("memory_pool")
    geometry = shape(played, config, tmp_path)
    wishes = pools.Wishes(fraction=fraction, kv_dtype=dtype)
    pool = pools.size(geometry, wishes, pools.Split(attn_tp=tp), pre, pre - weights)
    assert pool.cell_bytes == cell
    assert pool.tokens == pytest.approx(tokens, abs=1)


def test_page_and_cap_round_the_pool_down(played, tmp_path):
    played.at("0.5.10")
    pools = played("memory_pool")
    geometry = shape(played, KIMI, tmp_path)
    wishes = pools.Wishes(fraction=0.94, page=64, cap=200001)
    assert pools.size(geometry, wishes, pools.Split(attn_tp=8), 94.97, 19.97).tokens == 200000


def test_a_draft_makes_a_token_dearer_since_0_5_14(played, tmp_path):
    pools = played("memory_pool")
    geometry = shape(played, KIMI, tmp_path)
    (tmp_path / "draft").mkdir()
    draft = shape(played, {**KIMI, "num_hidden_layers": 1}, tmp_path / "draft")
    wishes = pools.Wishes(fraction=0.94, algorithm="EAGLE")
    for version, cell in (("0.5.13", 70272), ("0.5.14", 71424)):
        played.at(version)
        assert pools.size(geometry, wishes, pools.Split(attn_tp=8), 94.97, 19.97, draft).cell_bytes == cell


def test_the_window_takes_its_part(played, tmp_path):
    """gpt-oss on one board: 18 full layers and 0.8 x 18 sliding ones at 2,048 bytes, 66,355.2 bytes a token."""
    played.at("0.5.20")
    pools = played("memory_pool")
    config = {
        "architectures": ["GptOssForCausalLM"], "num_hidden_layers": 36, "num_attention_heads": 64,
        "sliding_window": 128, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    }
    geometry = shape(played, config, tmp_path)
    pool = pools.size(geometry, pools.Wishes(fraction=0.9), pools.Split(), 78.0, 15.0)
    assert pool.tokens == int((15.0 - 7.8) * GIB / 66355.2)
    assert pool.sliding_tokens == int(0.8 * pool.tokens)


def test_states_come_off_first(played, tmp_path):
    """Qwen3-Next on one board: a slot has 36 layers x (3 x 8,192 x 2 + 32 x 128 x 128 x 4) bytes = 73.7 MiB."""
    played.at("0.5.10")
    pools = played("memory_pool")
    config = {
        "architectures": ["Qwen3NextForCausalLM"], "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
    }
    geometry = shape(played, config, tmp_path)
    pool = pools.size(geometry, pools.Wishes(fraction=0.9, state_slots=100), pools.Split(), 140.0, 40.0)
    state = 101 * 36 * (49152 + 2097152) / GIB
    assert pool.conv_gib + pool.ssm_gib == pytest.approx(state, abs=1e-6)
    assert pool.tokens == int((40.0 - 14.0 - state) * GIB / (12 * 2 * 512 * 2))  # 12 full layers
    assert pool.running_requests == 33


@pytest.mark.parametrize(
    ("version", "mib", "tp", "fraction"),
    [
        ("0.4.6.post5", 143771, 1, 0.872), ("0.5.2", 81559, 4, 0.856), ("0.5.3", 23028, 8, 0.793),
        ("0.5.10", 97871, 8, 0.844), ("0.5.20", 23028, 1, 0.684),
    ],
)
def test_the_fraction_of_a_version_when_none_is_given(played, version, mib, tp, fraction):
    played.at(version)
    defaults = played("defaults")
    chunk, batch = defaults.chunk_and_batch(mib, tp)
    assert defaults.fraction(mib, tp, chunk, batch, latent=False) == fraction


# --- memory under load


def rank_memory(played, free_gib, **knobs):
    memory = played("memory_rank")
    made = memory.RankMemory(played("settings").Settings(**knobs), 3, 94.97, lambda: free_gib)
    made.wanted_bytes = 8 * 7168 * 2  # eight experts a token
    return made, memory


def test_a_spike_grows_with_chunk_and_context_and_stays(played):
    memory, parts = rank_memory(played, 10.0, fragmentation_clean_gib=0.0)
    memory.forward(parts.Load(chunk=8192, context=32768))
    # 1.3 x 896 MiB, 5,120 bytes x 32,768, half a byte x 8,192 x 32,768
    assert memory.free_gib == pytest.approx(10.0 - 1.3 * 0.875 - 0.15625 - 0.125)
    memory.forward(parts.Load(chunk=4096, context=4096))
    assert memory.free_gib == pytest.approx(10.0 - 1.3 * 0.875 - 0.15625 - 0.125)


@pytest.mark.parametrize(("expandable", "dies"), [(False, True), (True, False)])
def test_what_passes_on_a_clean_cache_dies_on_a_full_one(played, expandable, dies):
    memory, parts = rank_memory(played, 2.0)
    memory.expandable = expandable
    load = {"chunk": 8192, "context": 32768}
    memory.forward(parts.Load(**load, fill=0.1))
    for _time in range(30):
        memory.dirty += 1
    if dies:
        with pytest.raises(parts.OutOfMemoryError, match=r"Tried to allocate 896\.00 MiB\. GPU 3 .* is free"):
            memory.forward(parts.Load(**load, fill=1.0))
    else:
        memory.forward(parts.Load(**load, fill=1.0))


@pytest.mark.parametrize(
    ("gib", "text"),
    [(0, "0 bytes"), (1 / 1024, "1024.00 KiB"), (0.875, "896.00 MiB"), (1.0, "1024.00 MiB"), (1.4, "1.40 GiB")],
)
def test_sizes_are_printed_as_torch_does(played, gib, text):
    assert played("memory_rank").size_text(gib) == text


# --- ranks


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.4.6.post5", " DP1 TP5 PP1"), ("0.5.2", " DP1 TP5 EP5 PP1"), ("0.5.6", " DP1 PP1 TP5 EP5"),
        ("0.5.23", " DP1 PP1 TP5 EP5"),
    ],
)
def test_the_order_of_the_prefix(played, version, text):
    played.at(version)
    ranks = played("ranks")
    sizes = ranks.Sizes(tp=8, pp=2, dp=2, ep=8, attention=True)
    rank = next(one for one in ranks.local(sizes, list(range(16))) if one.tp == 5 and one.pp == 1)
    assert ranks.prefix(rank, sizes) == text
    assert ranks.prefix(ranks.local(ranks.Sizes(), [0])[0], ranks.Sizes()) == ""


def test_a_second_node_has_the_later_ranks_on_its_own_boards(played):
    ranks = played("ranks")
    found = ranks.local(ranks.Sizes(tp=16, nodes=2, node=1), list(range(8)))
    assert [(one.tp, one.board) for one in found] == [(8 + place, place) for place in range(8)]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        ranks.local(ranks.Sizes(tp=8), [0, 1])


# --- models


def test_a_model_of_half_a_terabyte_costs_no_disk(models):
    files = sorted(models["reference"].glob("*.safetensors"))
    size = sum(path.stat().st_size for path in files)
    blocks = sum(path.stat().st_blocks * 512 for path in files)
    assert size > 550 * GIB
    assert blocks < GIB / 8
    index = json.loads((models["reference"] / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == len(files)
    # 60 layers x 400 experts x 3 projections x 7,168 x 2,048 x (half a byte + 2 bytes for each 32)
    experts = 60 * 400 * 3 * 7168 * 2048 * 0.5625
    assert index["metadata"]["total_size"] == pytest.approx(experts, rel=0.05)


def test_the_reader_of_the_collection_reads_it(models):
    """The product's own reader: the folder must be one that it believes."""
    from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_headers

    for kind in ("reference", "gpt-oss", "qwen3-next"):
        path = sorted(models[kind].glob("*.safetensors"))[0]
        assert _model_headers.read_header(str(path)).file_bytes == path.stat().st_size


# --- nvidia-smi


def test_nvidia_smi_lists_boards_and_topology(world):
    machine = world(2, nvlink=True)
    assert re.fullmatch(r"(GPU \d: NVIDIA RTX PRO 6000 [\w ]+ \(UUID: GPU-[\w-]{36}\)\n){2}", smi(machine, "-L"))
    assert "GPU0\t X \tNV18" in smi(machine, "topo", "-m")
    head, *rows = smi(machine, "--query-gpu=index,memory.total", "--format=csv").splitlines()
    assert head == "index, memory.total [MiB]"
    assert rows == ["0, 97887 MiB", "1, 97887 MiB"]
    assert smi(machine, "--query-gpu=index", "--format=csv,noheader", "-i", "1") == "1\n"


def test_nvidia_smi_refuses_what_an_old_driver_does_not_know(world):
    machine = world(1, unknown_fields=["mig.mode.current"])
    text = smi(machine, "--query-gpu=index,mig.mode.current", "--format=csv,noheader")
    assert text.startswith('Field "mig.mode.current" is not a valid field to query.')


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ({"rc": 9}, "couldn't communicate with the NVIDIA driver"),
        ({"rc": 18, "stdout": "Failed to initialize NVML: Driver/library version mismatch\n"}, "version mismatch"),
    ],
)
def test_nvidia_smi_plays_a_driver_that_fails(world, failure, text):
    assert text in smi(world(1, smi=failure), "-L")


def test_a_lost_board_is_not_listed(world):
    assert smi(world(3, missing=[1]), "--query-gpu=index", "--format=csv,noheader") == "0\n2\n"


def test_without_a_file_of_boards_there_is_no_driver(tmp_path):
    nothing = {"PLAYED_BOARDS": str(tmp_path / "none"), "PLAYED_RUN": str(tmp_path)}
    text = run("nvidia_smi.py", "-L", environment=nothing)
    assert "couldn't communicate with the NVIDIA driver" in text
