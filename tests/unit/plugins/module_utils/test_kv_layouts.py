# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every layout by version: windows, states, index rows, drafts, pipeline stages, and the way from REST to the pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _families,
    _kv,
    _kv_base,
    _kv_dtype,
    _kv_tables,
    _kv_window,
    _model_ranks,
)

GIB = 2**30


def geometry_of(**changes):
    base = {"architecture": "LlamaForCausalLM", "attention": "mha", "layers": 32, "attention_heads": 32, "kv_heads": 8}
    return {**base, "head_dim": 128, "v_head_dim": 128, "dtype": "bfloat16", **changes}


def gpt_oss(**changes):
    """36 layers, every second one with a window of 128: a layer takes 8 x 128 x 2 = 2,048 bytes a token."""
    base = {"architecture": "GptOssForCausalLM", "layers": 36, "attention_heads": 64, "head_dim": 64, "v_head_dim": 64}
    return geometry_of(**{**base, "layer_pattern": "wf" * 18, "window_tokens": 128, **changes})


def qwen_next(**changes):
    """48 layers, 12 with attention. A state: (8192 x 3 x 2 + 32 x 128 x 128 x 4) x 36 layers = 77,266,944 bytes."""
    state = {"kind": "mamba2", "channels": 4096, "groups": 16, "heads": 32, "head_dim": 128, "state_size": 128}
    base = {"architecture": "Qwen3NextForCausalLM", "layers": 48, "attention_heads": 16, "kv_heads": 2, "head_dim": 256}
    base.update(v_head_dim=256, layer_pattern="sssf" * 12, state=dict(state, conv_kernel=4, dtype=None))
    return geometry_of(**{**base, **changes})


SLOT = 77266944


def glm(**changes):
    base = {"architecture": "GlmMoeDsaForCausalLM", "attention": "mla", "layers": 78, "attention_heads": 64}
    return geometry_of(**{**base, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, **changes})


def cell(geometry, arguments=None, version="0.5.23", **more):
    return _kv.cell_bytes(geometry, arguments, version, **more)


# --- windows ----------------------------------------------------------------


def test_window_layers_count_by_the_ratio():
    result = cell(gpt_oss())
    assert (result.full_bytes, result.window_bytes, result.window_ratio) == (36864, 36864, 0.8)
    assert result.bytes == 36864 + 0.8 * 36864
    assert cell(gpt_oss(), {"swa-full-tokens-ratio": 0.25}).bytes == 36864 * 1.25
    assert cell(gpt_oss(), {"tp": 8}).bytes == pytest.approx(1.8 * 36864 / 8)


@pytest.mark.parametrize(
    ("version", "arguments", "apart"),
    [
        ("0.5.4", {}, False),
        ("0.5.6", {}, False),
        ("0.5.8", {}, True),
        ("0.5.8", {"speculative-algorithm": "NGRAM"}, False),
        ("0.5.9", {"speculative-algorithm": "NGRAM"}, True),
        ("0.5.9", {"attention-backend": "trtllm_mha"}, False),
        ("0.5.10", {"attention-backend": "trtllm_mha"}, True),
        ("0.5.23", {"disable-hybrid-swa-memory": True}, False),
    ],
)
def test_when_window_layers_have_their_own_pool(version, arguments, apart):
    result = cell(gpt_oss(), arguments, version)
    assert (result.window_ratio is not None) is apart
    assert result.bytes == (pytest.approx(36864 * 1.8) if apart else 36 * 2048)


def test_an_architecture_older_than_its_window_pool_is_said():
    step = gpt_oss(architecture="Step3p5ForCausalLM")
    assert "known since SGLang 0.5.9" in cell(step, {}, "0.5.4").note
    llama = gpt_oss(architecture="Llama4ForConditionalGeneration")
    assert cell(llama, {}, "0.5.6").bytes == 36 * 2048
    with pytest.raises(_kv.UnknownLayout, match="hybrid-kvcache-ratio"):
        cell(llama, {"hybrid-kvcache-ratio": 0.5}, "0.5.6")


def test_three_rules_for_the_same_rest():
    """10 GiB with a ratio of 0.5: 18 full and 18 window layers of 2,048 bytes."""
    rest, arguments = 10 * GIB, {"swa-full-tokens-ratio": 0.5}
    # 0.5.8: 10 GiB / 73,728 = 145,635; x 36 / (0.5 x 18 + 18) = 194,180
    # 0.5.9: the same split by bytes: 145,635 x 73,728 / (36,864 + 0.5 x 36,864) = 194,180
    # 0.5.11: 10 GiB / 55,296 = 194,180
    for version in ("0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.23"):
        pool = _kv.pool_of(cell(gpt_oss(), arguments, version), rest)
        assert (pool.tokens, pool.window_tokens) == (194180, 97090)


def test_the_cap_acts_before_the_split_up_to_0_5_10():
    arguments = {"swa-full-tokens-ratio": 0.5}
    old = _kv.pool_of(cell(gpt_oss(), arguments, "0.5.10"), 10 * GIB, cap_tokens=90000)
    new = _kv.pool_of(cell(gpt_oss(), arguments, "0.5.11"), 10 * GIB, cap_tokens=90000)
    assert (old.tokens, new.tokens) == (120000, 90000)


def test_unequal_window_layers_are_mispriced_in_0_5_8():
    """MiMo-V2-Flash with tensor parallelism 4: 640 bytes a full layer, 1,280 a window layer, 9 and 39 of them."""
    pattern = "f" + "w" * 39 + "f" * 8
    mimo = gpt_oss(
        architecture="MiMoV2FlashForCausalLM",
        layers=48,
        kv_heads=4,
        head_dim=192,
        v_head_dim=128,
        layer_pattern=pattern,
    )
    mimo.update(window_kv_heads=8, window_head_dim=192, window_v_head_dim=128)
    arguments = {"tp": 4, "swa-full-tokens-ratio": 0.8}
    old, new = cell(mimo, arguments, "0.5.8"), cell(mimo, arguments, "0.5.11")
    assert new.bytes == 9 * 640 + 0.8 * 39 * 1280
    # All 48 layers as full ones, and the window layers once more: 30,720 + 49,920; then x 48 / (0.8 x 39 + 9).
    assert old.bytes == pytest.approx((30720 + 49920) * (0.8 * 39 + 9) / 48)
    assert old.stored_bytes == new.bytes


def test_a_window_pool_that_holds_no_request_is_named():
    arguments = {"swa-full-tokens-ratio": 0.01}
    pool = _kv.pool_of(cell(gpt_oss(), arguments), 12000 * 37300)
    assert pool.window_tokens <= 129
    assert "window pool of more than 129 tokens" in pool.problem
    assert _kv.pool_of(cell(gpt_oss(), arguments, "0.5.14"), 12000 * 37300).problem is None


def test_the_window_pool_of_running_requests():
    """Radix cache off, 64 requests: 64 x (128 + 128 + 1 + 1) + 2 x 8,192 + 1 window tokens, the rest for full ones."""
    arguments = {"disable-radix-cache": True, "max-running-requests": 64, "chunked-prefill-size": 8192}
    result = cell(gpt_oss(), arguments)
    window = 64 * 258 + 2 * 8192 + 1
    assert (result.window_fixed_tokens, result.window_ratio, result.bytes) == (window, None, 36864)
    pool = _kv.pool_of(result, 10 * GIB)
    assert pool.tokens == (10 * GIB - window * 36864) // 36864
    assert cell(gpt_oss(), dict(arguments, **{"disable-overlap-schedule": True})).window_fixed_tokens == window - 8192
    assert cell(gpt_oss(), arguments, "0.5.11").window_fixed_tokens is None
    assert cell(gpt_oss(), dict(arguments, **{"chunked-prefill-size": -1})).window_fixed_tokens is None
    two = cell(gpt_oss(), dict(arguments, tp=2, dp=2, **{"enable-dp-attention": True}))
    assert two.window_fixed_tokens == 32 * 258 + 2 * 8192 + 1
    drafts = {"speculative-algorithm": "EAGLE", "speculative-num-steps": 3, "speculative-eagle-topk": 1}
    drafts = cell(gpt_oss(draft_layers=1), dict(arguments, **drafts))
    # 4 draft tokens: 128 + 4 x 128 + 1 behind, and 2 x 4 ahead
    assert drafts.window_fixed_tokens == 64 * (128 + 512 + 1 + 8) + 2 * 8192 + 1


def test_only_window_layers():
    result = cell(gpt_oss(architecture="UnlimitedOCRForCausalLM", layer_pattern="w" * 36))
    assert (result.bytes, result.window_ratio) == (36 * 2048, 1.0)


@pytest.mark.parametrize("ratio", [0, -1, 1.5, "much", float("nan"), True])
def test_ratios_that_cannot_be_right(ratio):
    with pytest.raises(_kv.LayoutError, match="swa-full-tokens-ratio"):
        cell(gpt_oss(), {"swa-full-tokens-ratio": ratio})
    if ratio != 1.5:
        with pytest.raises(_kv.LayoutError, match="mamba-full-memory-ratio"):
            cell(qwen_next(), {"mamba-full-memory-ratio": ratio})


# --- states -----------------------------------------------------------------


def test_state_bytes_follow_the_ranks():
    assert cell(qwen_next()).state.slot_bytes == SLOT
    assert cell(qwen_next(), {"tp": 4}).state.slot_bytes == 19316736
    # 16 groups on 32 ranks are repeated: every rank has one (channels 128 + 2 x 128), and one head.
    wide = cell(qwen_next(attention_heads=32), {"tp": 32}).state.slot_bytes
    assert wide == (384 * 3 * 2 + 128 * 128 * 4) * 36
    assert cell(qwen_next(), {"mamba-ssm-dtype": "bfloat16"}).state.slot_bytes == (8192 * 6 + 32 * 16384 * 2) * 36
    half = cell(qwen_next(), environment={"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"})
    assert half.state.slot_bytes == (8192 * 6 + 32 * 16384 * 2) * 36


def test_other_kinds_of_state():
    """Kimi K3 on 8 ranks, printed: 257 slots and one more, 0.46 + 13.04 GiB."""
    state = {"kind": "kda", "channels": 12288, "groups": 0, "heads": 96, "head_dim": 128, "state_size": 0}
    geometry = qwen_next(attention_heads=96, state=dict(state, conv_kernel=4, dtype=None))
    one = cell(geometry, {"tp": 8}).state
    assert one.slot_bytes == 36 * (3 * 3 * 1536 * 2 + 12 * 128 * 128 * 4)
    state = {"kind": "mamba1", "channels": 8192, "groups": 0, "heads": 0, "head_dim": 0, "state_size": 16}
    one = cell(qwen_next(state=dict(state, conv_kernel=4, dtype=None)), {"tp": 2}).state
    assert one.slot_bytes == 36 * (4096 * 3 * 2 + 4096 * 16 * 4)
    with pytest.raises(_kv.UnknownLayout, match="the state rwkv"):
        cell(qwen_next(state=dict(state, kind="rwkv", conv_kernel=4)))
    with pytest.raises(_kv.LayoutError, match="multiple of the 16 attention ranks"):
        cell(qwen_next(state=dict(qwen_next()["state"], heads=24, channels=4000)), {"tp": 16})


@pytest.mark.parametrize(
    ("version", "arguments", "slots", "left"),
    [
        # 20 GiB: 0.9/1.9 of it is 10,172,290,964 bytes for slots of 77,266,944.
        ("0.5.11", {}, 131, 20 * GIB - 131 * SLOT),
        ("0.5.23", {}, 130, 20 * GIB - 131 * SLOT),
        ("0.5.23", {"mamba-full-memory-ratio": 0.1}, 24, 20 * GIB - 25 * SLOT),
        ("0.5.23", {"max-mamba-cache-size": 40}, 40, 20 * GIB - 41 * SLOT),
        ("0.5.23", {"disable-radix-cache": True, "max-running-requests": 32}, 32, 20 * GIB - 33 * SLOT),
        ("0.5.11", {"disable-radix-cache": True, "max-running-requests": 32}, 32, 20 * GIB - 32 * SLOT),
        ("0.5.8", {"disable-radix-cache": True}, 512, 0),
        # Up to 0.5.6 a stated number counts only without the radix cache.
        ("0.5.6", {"max-mamba-cache-size": 40}, 131, 20 * GIB - 131 * SLOT),
        ("0.5.6", {"max-mamba-cache-size": 40, "disable-radix-cache": True}, 40, 20 * GIB - 40 * SLOT),
    ],
)
def test_slots_by_version(version, arguments, slots, left):
    result = cell(qwen_next(), arguments, version)
    pool = _kv.pool_of(result, 20 * GIB)
    assert pool.tokens == left // 24576
    if left:
        assert pool.state_slots == slots
    else:
        assert "Expected room" in pool.problem


@pytest.mark.parametrize(
    ("version", "slots", "scratch_states"),
    [
        # Four draft tokens, 16 requests, 40 GiB, of which 0.9/1.9 is 20,344,581,928 bytes.
        ("0.5.6", 52, 52 * 4),  # 20,344,581,928 // 77,266,944 // 5
        ("0.5.11", 232, 16 * 4),  # the copies come off first: (40 GiB - 64 states) x 0.9/1.9 // 77,266,944
        ("0.5.14", 146, 16 * 4),  # // (77,266,944 x 1.8), five slots a request
        ("0.5.23", 143, 17 * 4),  # (- 5 states) // (77,266,944 x 1.8), one copy more
    ],
)
def test_states_and_drafts_by_version(version, slots, scratch_states):
    arguments = {"speculative-algorithm": "NEXTN", "speculative-num-draft-tokens": 4, "max-running-requests": 16}
    pool = _kv.pool_of(cell(qwen_next(), arguments, version), 40 * GIB)
    assert (pool.state_slots, pool.scratch_bytes) == (slots, scratch_states * SLOT)


def test_slots_of_a_request():
    def slots(arguments, version="0.5.23", architecture="Qwen3NextForCausalLM"):
        return cell(qwen_next(architecture=architecture), arguments, version).state.slots_per_request

    assert slots({}) == 5
    assert slots({}, "0.5.11") == 3
    assert slots({"disable-overlap-schedule": True}) == 3
    assert slots({"mamba-radix-cache-strategy": "extra_buffer_lazy"}) == 4
    assert slots({"mamba-scheduler-strategy": "extra_buffer"}, "0.5.11") == 5
    assert slots({"mamba-scheduler-strategy": "extra_buffer", "disable-overlap-schedule": True}, "0.5.11") == 4
    assert slots({"disable-radix-cache": True}) == 1
    assert slots({}, architecture="Lfm2ForCausalLM") == 3


def test_states_that_leave_no_request_are_named():
    pool = _kv.pool_of(cell(qwen_next(), {}, "0.5.23"), 4 * SLOT)
    assert pool.max_running_requests == 0
    assert "Expected at least 5 state slots, found 0" in pool.problem
    assert _kv.pool_of(cell(qwen_next()), -5).tokens == 0


# --- index rows -------------------------------------------------------------

TILELANG = {"dsa-prefill-backend": "tilelang", "dsa-decode-backend": "tilelang"}


@pytest.mark.parametrize(
    ("arguments", "version", "capability", "charged", "stored"),
    [
        ({}, "0.5.23", None, 1152 + 132, 1152 + 132),
        ({}, "0.5.23", "9.0", 1152 + 132, 1152 + 132),
        ({"kv-cache-dtype": "fp8_e4m3"}, "0.5.16", "9.0", 576 + 132, 656 + 132),
        ({"kv-cache-dtype": "fp8_e4m3"}, "0.5.17", "9.0", 656 + 132, 656 + 132),
        ({"kv-cache-dtype": "fp8_e4m3"}, "0.5.23", None, 656 + 132, 656 + 132),
        # Blackwell: fp8 by itself, in raw rows with the backend that the engine takes there.
        ({}, "0.5.23", "10.0", 576 + 132, 576 + 132),
        ({}, "0.5.23", "12.0", 656 + 132, 656 + 132),  # GLM on 12.x has another backend
        ({}, "0.5.9", "10.0", 576 + 132, 656 + 132),
        ({"dsa-prefill-backend": "flashmla_kv", "dsa-decode-backend": "flashmla_kv"}, "0.5.23", "10.0", 788, 788),
        ({"kv-cache-dtype": "fp8_e4m3", "nsa-decode-backend": "trtllm"}, "0.5.11", "9.0", 708, 708),
        ({"kv-cache-dtype": "fp8_e4m3", "nsa-decode-backend": "trtllm"}, "0.5.8", "9.0", 708, 788),
        # tilelang keeps raw rows from 0.5.23 on, and only when both phases name it.
        ({"kv-cache-dtype": "fp8_e4m3", **TILELANG}, "0.5.23", "9.0", 708, 708),
        ({"kv-cache-dtype": "fp8_e4m3", **TILELANG}, "0.5.22", "9.0", 788, 788),
        ({"kv-cache-dtype": "fp8_e4m3", "dsa-decode-backend": "tilelang"}, "0.5.23", "9.0", 788, 788),
    ],
)
def test_index_rows_by_version_and_board(arguments, version, capability, charged, stored):
    result = cell(glm(), arguments, version, gpu_capability=capability)
    assert (result.bytes, result.stored_bytes) == (78 * charged, 78 * stored)
    assert ("taken as bf16" in result.note) is (capability is None and "kv-cache-dtype" not in arguments)
    assert result.page_tokens == 64


def test_layers_that_reuse_an_index_keep_no_rows_since_0_5_18():
    shared = glm(index_pattern="i--" * 26)
    assert cell(shared, {}, "0.5.17").bytes == 78 * 1284
    assert cell(shared, {}, "0.5.18").bytes == 78 * 1152 + 26 * 132
    assert cell(glm(index_kpool=4), {}, "0.5.22").bytes == 78 * (1152 + 33)
    assert cell(glm(index_kpool=4), {}, "0.5.22").page_tokens == 256
    draft = {"speculative-algorithm": "EAGLE"}
    assert cell(glm(index_pattern="i--" * 26, nextn_layers=1), draft).bytes == 78 * 1152 + 26 * 132 + 1152 + 132


def test_sparse_layers_of_minimax():
    """4 KV heads of 128 in 60 layers, 57 with an index key of 128, 3 of these with a value too."""
    geometry = geometry_of(
        architecture="MiniMaxM3SparseForCausalLM", layers=60, kv_heads=4, sparse_pattern="ddd" + "v" * 3 + "k" * 54
    )
    geometry["sparse_index_dim"] = 128
    assert cell(geometry).bytes == 60 * 4 * 256 * 2 + (57 + 3) * 128 * 2
    assert cell(geometry, {"kv-cache-dtype": "fp8_e4m3"}, gpu_capability="9.0").bytes == 60 * 4 * 256 + 60 * 128
    with pytest.raises(_kv.UnknownLayout, match="compute capability is not given"):
        cell(geometry, {"kv-cache-dtype": "fp8_e4m3"})


def test_compressed_attention():
    """DeepSeek-V4-Flash, 43 layers: 21 keep a row of 584 bytes for 4 tokens and an index row of 132, 20 one for 128."""
    geometry = geometry_of(architecture="DeepseekV4ForCausalLM", attention="compressed", layers=43, kv_heads=1)
    geometry.update(head_dim=512, qk_rope_head_dim=64, index_head_dim=128, window_tokens=128)
    geometry["compress_ratios"] = [0, 0] + [4, 128] * 20 + [4]
    arguments = {"max-running-requests": 64, "swa-full-tokens-ratio": 0.1}
    old = cell(geometry, arguments, "0.5.18")
    window = 584 * 43 + 8 / 128 * 4 * (512 + 128) * 4 * 21
    assert old.bytes == pytest.approx(21 * (584 + 132) / 4 + 20 * 584 / 128 + 0.1 * window)
    assert old.fixed_bytes == (65 * 128 + 128 + 128) * 2 * 512 * 4 * 20
    # 0.5.22 pads pages of 256 tokens to 576 bytes: 585, 585 and 864 bytes a row.
    new = cell(geometry, arguments)
    assert new.bytes == pytest.approx(21 * (585 + 132) / 4 + 20 * 864 / 128 + 0.1 * (585 * 43 + 320 * 21))
    assert new.page_tokens == 256
    assert "no public start-up" in new.note
    # Start-ups of DeepSeek-V4-Flash in May 2026 printed 15955.85: the draft layer at the end counted as a window layer,
    # and the states for 128 tokens were a part of the window rows. 45.78 GiB gave 3,080,960 tokens.
    may = cell(dict(geometry, compress_ratios=[*geometry["compress_ratios"], 0]), {}, "0.5.12")
    assert may.bytes == pytest.approx(15955.85, abs=0.005)
    assert _kv.pool_of(may, (57.01 - 93.58 * 0.12) * GIB).tokens == pytest.approx(3080960, rel=0.0002)
    # By running requests: 64 x (128 + 128 + 256 + 256) + 2 x 8,192 + 256, and 4 x 64 prefixes of 128 + 256.
    capped = cell(geometry, {"max-running-requests": 64, "chunked-prefill-size": 8192})
    assert capped.window_fixed_tokens == 64 * 768 + 2 * 8192 + 256 + 4 * 64 * 384
    with pytest.raises(_kv.UnknownLayout, match="max-running-requests"):
        cell(geometry, {})
    with pytest.raises(_kv.UnknownLayout, match="compression ratio 2"):
        cell(dict(geometry, compress_ratios=[2] * 43), arguments)
    with pytest.raises(_kv.UnknownLayout, match="SGLANG_OPT_USE_ONLINE_COMPRESS"):
        cell(geometry, arguments, environment={"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"})


# --- drafts -----------------------------------------------------------------

EAGLE = {"speculative-algorithm": "EAGLE"}


@pytest.mark.parametrize(
    ("architecture", "changes", "path", "version", "charged", "uncharged"),
    [
        ("DeepseekV3ForCausalLM", {"nextn_layers": 1}, None, "0.5.13", 0, 1),
        ("DeepseekV3ForCausalLM", {"nextn_layers": 1}, None, "0.5.14", 1, 0),
        ("DeepseekV3ForCausalLM", {}, None, "0.5.23", 1, 0),
        # A draft layer that the configuration does not speak of is charged only when its path is stated.
        ("Qwen3_5ForCausalLM", {"mtp_layers": 1}, None, "0.5.23", 0, 1),
        ("Qwen3_5ForCausalLM", {"mtp_layers": 1}, "/srv/model", "0.5.23", 1, 0),
        ("NemotronHForCausalLM", {"nextn_layers": 1}, None, "0.5.18", 0, 1),
        ("NemotronHForCausalLM", {"nextn_layers": 1}, None, "0.5.20", 1, 0),
        ("LlamaForCausalLM", {"draft_layers": 2}, "/srv/draft", "0.5.23", 2, 0),
        ("LlamaForCausalLM", {"draft_layers": 2}, "/srv/draft", "0.5.13", 0, 2),
        ("LlamaForCausalLM", {"draft_layers": 0}, "/srv/draft", "0.5.23", 0, 0),
    ],
)
def test_who_pays_for_draft_layers(architecture, changes, path, version, charged, uncharged):
    """What is not charged lies outside the fraction before 0.5.14, and takes from the reserve after it."""
    arguments = dict(EAGLE, **{"model-path": "/srv/model"})
    if path:
        arguments["speculative-draft-model-path"] = path
    result = cell(geometry_of(architecture=architecture, **changes), arguments, version)
    assert result.bytes == 131072 + charged * 4096
    assert result.outside_bytes == (uncharged * 4096 if version == "0.5.13" else 0)
    assert result.stored_bytes == result.bytes + (0 if version == "0.5.13" else uncharged * 4096)


def test_a_draft_that_is_wider_than_the_target_takes_what_is_not_charged():
    """EAGLE3 beside latents: 70,272 x 62 // 61 is charged; the draft keeps 64 / 8 heads x (128 + 128) x 2 = 4,096."""
    latents = {"attention": "mla", "layers": 61, "attention_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    target = geometry_of(architecture="DeepseekV3ForCausalLM", **latents)
    wide = dict(target, draft_geometry={"layers": 1, "kv_heads": 64, "head_dim": 128, "v_head_dim": 128})
    arguments = {"tp-size": 8, "speculative-algorithm": "EAGLE3", "speculative-draft-model-path": "/srv/draft"}
    now = cell(wide, arguments, "0.5.14")
    assert (now.bytes, now.stored_bytes, now.outside_bytes) == (71424, 70272 + 4096, 0)
    before = cell(wide, arguments, "0.5.13")
    assert (before.bytes, before.stored_bytes, before.outside_bytes) == (70272, 70272, 4096)
    # 8 / 8 heads x (64 + 64) x 2 = 256 bytes: less than what is charged, and no more is taken.
    narrow = dict(target, draft_geometry={"layers": 1, "kv_heads": 8, "head_dim": 64})
    assert cell(narrow, arguments, "0.5.14").stored_bytes == 71424
    # Beside a window pool: a layer of the target takes 2,048 bytes, the draft 8 x (128 + 128) x 2 = 4,096.
    beside = gpt_oss(draft_geometry={"layers": 1, "kv_heads": 8, "head_dim": 128})
    arguments = dict(arguments, **{"tp-size": 1})
    assert cell(beside, arguments, "0.5.18").stored_bytes == pytest.approx(cell(beside, {}).stored_bytes + 4096)


def test_a_draft_beside_windows():
    """One layer takes 2,048 bytes; charged from 0.5.16 on; as a window layer only from 0.5.21 on and without path."""
    plain = cell(gpt_oss(), {}).bytes
    path = {"speculative-draft-model-path": "/srv/draft"}
    one = gpt_oss(draft_layers=1)
    assert cell(one, dict(EAGLE, **path), "0.5.14").bytes == pytest.approx(plain)
    assert cell(one, dict(EAGLE, **path), "0.5.13").outside_bytes == 2048
    assert cell(one, dict(EAGLE, **path), "0.5.14").stored_bytes == pytest.approx(plain + 2048)
    assert cell(one, dict(EAGLE, **path), "0.5.18").bytes == pytest.approx(plain + 2048)
    assert cell(one, dict(EAGLE, **path), "0.5.23").bytes == pytest.approx(plain + 2048)
    mimo = gpt_oss(architecture="MiMoV2FlashForCausalLM", nextn_layers=1)
    assert cell(mimo, EAGLE, "0.5.23").bytes == pytest.approx(plain + 0.8 * 2048)


def test_block_drafts_are_scaled_and_later_have_their_own_size():
    """DFlash for a hybrid of 16 attention layers, 65,536 bytes: 5 draft layers of 8 KV heads of 128 are 20,480."""
    draft = {"layers": 5, "kv_heads": 8, "head_dim": 128}
    geometry = geometry_of(layers=16, kv_heads=4, head_dim=256, v_head_dim=256, draft_geometry=draft)
    arguments = {"speculative-algorithm": "DFLASH", "speculative-draft-model-path": "/srv/draft"}
    assert cell(geometry, arguments, "0.5.14").bytes == 65536 * 21 // 16
    assert cell(geometry, arguments, "0.5.18").bytes == 65536 + 20480
    with pytest.raises(_kv.UnknownLayout, match="speculative-algorithm DFLASH"):
        cell(geometry, arguments, "0.5.9")


def test_the_pool_grows_after_sizing_up_to_0_5_6():
    """48 requests, 5 steps of width 4 and 8 draft tokens: 48 x 20 + 48 x 8 + 100 tokens more than REST pays for."""
    arguments = dict(EAGLE, **{"speculative-draft-model-path": "/srv/draft"})
    result = cell(geometry_of(draft_layers=1), arguments, "0.5.6")
    pool = _kv.pool_of(result, 131072 * 10000)
    assert pool.tokens == 10000 + 48 * 20 + 48 * 8 + 100
    assert pool.stored_bytes == (pool.tokens + 1) * 131072
    assert pool.outside_bytes == (pool.tokens + 1) * 4096
    assert cell(geometry_of(draft_layers=1), arguments, "0.5.8").enlarged_tokens == 0


def test_draft_tokens_that_are_not_given_are_named():
    arguments = {"speculative-algorithm": "NGRAM"}
    with pytest.raises(_kv.UnknownLayout, match="speculative-num-draft-tokens"):
        cell(qwen_next(), arguments)


# --- pipeline stages and pages ----------------------------------------------


def test_stages_are_cut_as_the_engine_does():
    assert _kv_base.stage_ranges(10, 4) == [(0, 2), (2, 4), (4, 7), (7, 10)]
    assert _kv_base.stage_ranges(10, 4, "0.5.4") == [(0, 2), (2, 4), (4, 6), (6, 10)]
    assert _kv_base.stage_ranges(10, 2, None, "7,3") == [(0, 7), (7, 10)]
    for wrong in ("7,2", "7", "5,5,0", "x,y"):
        with pytest.raises(_kv.LayoutError, match="SGLANG_PP_LAYER_PARTITION"):
            _kv_base.stage_ranges(10, 2, None, wrong)


@pytest.mark.parametrize(("version", "bounds"), [("0.5.4", (0, 2, 4, 6, 10)), ("0.5.6", (0, 2, 4, 7, 10))])
def test_weights_are_cut_where_the_rows_are(version, bounds):
    """Up to 0.5.5 the last stage gets all of the remainder: the same function has to tell both."""
    table = [{"name": "model.layers.*.mlp.down_proj.weight", "layers": [[0, 9]]}]
    layout = _model_ranks.layout_of(table, {}, {"pp-size": 4}, {}, version, None, "cuda")
    assert layout.bounds == bounds
    assert list(zip(bounds, bounds[1:])) == _kv_base.stage_ranges(10, 4, version)
    with pytest.raises(_model_ranks.SplitError, match="at most the 10 layers"):
        _model_ranks.layout_of(table, {}, {"pp-size": 11}, {}, version, None, "cuda")
    assert _model_ranks.layout_of([], {}, {"pp-size": 2}, {}, version, None, "cuda").bounds == (0, 0, 0)


def test_the_worst_stage_of_a_hybrid_counts():
    # 13 layers on two stages: 6 and 7. The second one has the attention layers 7, 11 and 12.
    uneven = qwen_next(layers=13, layer_pattern="sssf" * 3 + "f")
    result = cell(uneven, {"pp-size": 2})
    assert (result.layers, result.bytes) == (3, 3 * 2048)
    assert result.state.layers == 5
    assert cell(uneven, {"pp-size": 2}, "0.5.16").state.layers == 9
    assert cell(uneven, {"pp-size": 2}, "0.5.6").layers == 4
    # Windows: whole model before 0.5.22.
    assert cell(gpt_oss(), {"pp-size": 2}).full_bytes == 9 * 2048
    assert cell(gpt_oss(), {"pp-size": 2}, "0.5.20").full_bytes == 18 * 2048
    chosen = cell(geometry_of(), {"pp-size": 2}, environment={"SGLANG_PP_LAYER_PARTITION": "20,12"})
    assert chosen.bytes == 20 * 4096


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        ({}, 1),
        ({"page-size": 16}, 16),
        ({"attention-backend": "flashmla"}, 64),
        ({"attention-backend": "trtllm_mla", "page-size": 32}, 32),
        ({"decode-attention-backend": "trtllm_mla"}, 64),
        ({"attention-backend": "cutlass_mla"}, 128),
        ({"prefill-attention-backend": "trtllm_mha", "page-size": 8}, 64),
        ({"attention-backend": "fa3"}, 1),
    ],
)
def test_page_sizes_that_backends_force(arguments, tokens):
    assert _kv.page_tokens_of(geometry_of(), arguments) == tokens
    pool = _kv.pool_of(cell(geometry_of(), arguments), 131072 * 1000)
    assert pool.tokens == 1000 // tokens * tokens


def test_loops_keep_rows_more_than_once():
    assert cell(geometry_of(rows_per_layer=2)).bytes == 2 * 131072


def test_a_pattern_that_cannot_be_right():
    for wrong in ("f" * 31, "x" * 32, 7):
        with pytest.raises(_kv.LayoutError, match="layer_pattern"):
            cell(geometry_of(layer_pattern=wrong))
    with pytest.raises(_kv.LayoutError, match="layers with attention"):
        cell(geometry_of(layer_pattern="-" * 32))


# --- from REST to the pool and back -----------------------------------------


def test_a_plain_pool():
    pool = _kv.pool_of(_kv.plain_cell(70272), 14.272 * GIB, cap_tokens=200000)
    assert (pool.tokens, pool.stored_bytes) == (200000, 200001 * 70272)
    assert _kv.pool_of(_kv.plain_cell(70272), int(14.272 * GIB)).tokens == 218073
    assert _kv.rest_for(_kv.plain_cell(70272, 64), 200000) == 200000 // 64 * 64 * 70272
    assert _kv.pool_of(_kv.plain_cell(70272), 70271).problem.startswith("Expected room for at least one page")


CELLS = st.sampled_from(
    [
        (geometry_of(), {"page-size": 64}, "0.5.23"),
        (gpt_oss(), {"swa-full-tokens-ratio": 0.3}, "0.5.8"),
        (gpt_oss(), {"swa-full-tokens-ratio": 0.3, "page-size": 16}, "0.5.10"),
        (gpt_oss(), {"swa-full-tokens-ratio": 0.07}, "0.5.23"),
        (gpt_oss(), {"disable-radix-cache": True, "max-running-requests": 8}, "0.5.23"),
        (qwen_next(), {}, "0.5.11"),
        (qwen_next(), {"page-size": 64}, "0.5.23"),
        (qwen_next(), {"max-mamba-cache-size": 30}, "0.5.23"),
        (qwen_next(), {**EAGLE, "speculative-num-draft-tokens": 4, "speculative-num-steps": 3}, "0.5.6"),
        (qwen_next(), {**EAGLE, "speculative-num-draft-tokens": 4, "speculative-num-steps": 3}, "0.5.11"),
        (qwen_next(), {**EAGLE, "speculative-num-draft-tokens": 4, "speculative-num-steps": 3}, "0.5.16"),
        (qwen_next(), {**EAGLE, "speculative-num-draft-tokens": 4, "speculative-num-steps": 3}, "0.5.23"),
        (glm(), {}, "0.5.23"),
    ]
)


@given(CELLS, st.integers(1, 3_000_000), st.integers(0, 5 * GIB))
def test_what_is_asked_for_is_there_from_that_rest_on(one, tokens, more):
    geometry, arguments, version = one
    result = cell(geometry, arguments, version)
    rest = _kv.rest_for(result, tokens)
    assert _kv.pool_of(result, rest + more).tokens >= tokens
    # And it is not asked for more than one page, one slot and one page of the first step too much.
    if result.state and tokens * result.bytes < 20 * result.state.slot_bytes:
        return  # REST is then what the slots of one request need
    spare = 2 * result.page_tokens * result.bytes * (1 + (result.state.ratio if result.state else 0)) + 4
    spare += 3 * (result.state.slot_bytes * (1 + result.state.draft_tokens) if result.state else 0)
    if result.enlarged_tokens == 0 and not (result.state and result.state.draft_tokens):
        assert _kv.pool_of(result, max(rest - spare, 0)).tokens <= tokens + result.page_tokens


@given(CELLS, st.integers(1, 200 * GIB))
def test_the_pools_take_what_they_were_given(one, rest):
    geometry, arguments, version = one
    result = cell(geometry, arguments, version)
    pool = _kv.pool_of(result, rest)
    if pool.tokens and result.stored_bytes == pytest.approx(result.bytes) and not result.enlarged_tokens:
        page = result.page_tokens * (result.full_bytes + result.window_bytes) + 8
        assert pool.stored_bytes <= rest + page + (result.state.slot_bytes if result.state else 0)


# --- types and tables -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"), [("9.0", 9.0), ("10.0", 10.0), (12.1, 12.1), ("sm_90", 9.0), ("sm_120", 12.0), (None, None)]
)
def test_compute_capability(text, number):
    assert _kv_dtype.capability_of(text) == number


def test_architectures_with_an_fp8_cache_of_their_own():
    muse = geometry_of(architecture="MuseSparkForConditionalGeneration")
    assert cell(muse, {}, "0.5.23").kv_dtype == "fp8_e4m3"
    assert cell(muse, {"kv-cache-dtype": "bf16"}, "0.5.23").kv_dtype == "bf16"


def test_the_tables_of_layouts_have_sources_and_do_not_contradict_each_other():
    tables = (
        _kv_tables.FP8_BY_ARCHITECTURE,
        _kv_tables.RAW_SPARSE_BACKENDS,
        _kv_tables.SPECULATION_DEFAULTS,
        _kv_tables.STATE_RULES,
        _kv_tables.WINDOW_OFF,
        _kv_tables.PAGE_RULES,
        _kv_window.WINDOW_RULES,
        _families.WINDOW_FAMILIES,
        _families.STATE_FAMILIES,
        _families.INDEX_FAMILIES,
        _families.REPEATED_LAYERS,
        _families.SHARED_ROWS,
    )
    assert all(row.source for table in tables for row in table)
    windows = [name for row in _families.WINDOW_FAMILIES for name in row.architectures]
    states = [name for row in _families.STATE_FAMILIES for name in row.architectures]
    refused = {name for row in _families.REFUSED_ARCHITECTURES for name in row.architectures}
    assert len(windows) == len(set(windows))
    assert len(states) == len(set(states))
    assert not (set(windows) | set(states)) & (refused | _families.PLAIN_ARCHITECTURES)
    assert not set(windows) & set(states)


# --- latents by version -----------------------------------------------------


def test_latents_can_be_switched_off_before_0_4_6():
    """sglang 0.4.4: get_num_kv_heads x head_dim x layers x 2 x 2 bytes, with the head_dim 256 of model_config.py."""
    target = glm(architecture="DeepseekV3ForCausalLM", index_head_dim=None, layers=61, attention_heads=128)
    off = {"tp-size": 8, "disable-mla": True}
    assert cell(target, off, "0.4.4").bytes == 128 // 8 * 256 * 61 * 2 * 2
    assert cell(target, {"tp-size": 8}, "0.4.4").bytes == 576 * 61 * 2
    assert cell(target, off, "0.4.6").bytes == 576 * 61 * 2  # the argument is gone


def test_latents_in_stages_end_a_start_before_0_5_0():
    target = glm(architecture="DeepseekV3ForCausalLM", index_head_dim=None, layers=61)
    stages = {"tp-size": 8, "pp-size": 2}
    with pytest.raises(_kv.LayoutError, match="pp-size"):
        cell(target, stages, "0.4.9")
    assert cell(target, stages, "0.5.2").bytes == 576 * 31 * 2  # 30 layers and 31
    assert cell(geometry_of(), {"pp-size": 2}, "0.4.9").layers == 16


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"architecture": "FooForCausalLM"}, "the architecture FooForCausalLM is none that SGLang 0.5.23 has"),
        ({"architecture": None}, "config.json names no architecture"),
    ],
)
def test_an_unknown_architecture_is_said(changes, said):
    note = cell(geometry_of(**changes), {}, "0.5.23").note
    assert said in note
    assert bool(said) == bool(note)
    stated = geometry_of()
    del stated["architecture"]
    assert cell(stated, {}, "0.5.23").note == ""
