# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs, by version: tables only. Private to the collection."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least


@dataclass(frozen=True)
class KvDtype:
    """An accepted value of --kv-cache-dtype.

    C(element_bytes) of one stored number; C(since): the first version seen with it.
    """

    name: str
    element_bytes: int
    since: str
    source: str


KV_DTYPES = (
    KvDtype("bf16", 2, "0.3.6", "srt/mem_cache/kv_cache_dtype.py"),
    KvDtype("bfloat16", 2, "0.3.6", "srt/mem_cache/kv_cache_dtype.py"),
    KvDtype("fp8_e5m2", 1, "0.3.6", "srt/model_executor/model_runner.py"),
    KvDtype("fp8_e4m3", 1, "0.4.3", "srt/model_executor/model_runner.py"),
    KvDtype("fp4_e2m1", 1, "0.5.6", "srt/model_executor/model_runner.py"),
    KvDtype("nvfp4", 1, "0.5.20", "srt/mem_cache/kv_cache_dtype.py"),
    KvDtype("fp4_mx_block16", 1, "0.5.20", "srt/mem_cache/kv_cache_dtype.py"),
    KvDtype("mxfp8", 1, "0.5.17", "srt/model_executor/pool_configurator.py"),
)
KV_DTYPE_BY_NAME = {row.name: row for row in KV_DTYPES}
FP4_NAMES = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")

# Element bytes of a model's own type, for --kv-cache-dtype auto.
MODEL_DTYPES = {
    "bfloat16": ("bf16", 2),
    "bf16": ("bf16", 2),
    "float16": ("fp16", 2),
    "half": ("fp16", 2),
    "fp16": ("fp16", 2),
    "float32": ("fp32", 4),
    "float": ("fp32", 4),
    "fp32": ("fp32", 4),
}


@dataclass(frozen=True)
class Fp4Form:
    """How fp4 keys and values of MHA are charged in the versions C(since) <= v < C(before)."""

    since: str
    before: str
    workspace: bool  # one dequantisation workspace, shared by all layers, is charged too
    source: str


# 0.5.15 lies between two versions that were read and may be either; 0.5.22 asks an object that depends on backends.
FP4_FORMS = (
    Fp4Form("0.5.6", "0.5.15", False, "sglang 0.5.6 srt/model_executor/model_runner.py, 0.5.14 pool_configurator.py"),
    Fp4Form("0.5.16", "0.5.21", True, "sglang 0.5.16 and 0.5.20 srt/model_executor/pool_configurator.py"),
)


@dataclass(frozen=True)
class Fp8ByArchitecture:
    """An architecture for which kv-cache-dtype auto is fp8_e4m3."""

    architecture: str
    since: str
    source: str


FP8_BY_ARCHITECTURE = (
    Fp8ByArchitecture(
        "MuseSparkForConditionalGeneration", "0.5.23", "srt/arg_groups/overrides.py _muse_spark_overrides"
    ),
    Fp8ByArchitecture("DeepseekV4ForCausalLM", "0.5.12", "srt/arg_groups/overrides.py _deepseek_v4_kv_cache_dtype"),
)


@dataclass(frozen=True)
class RawSparseBackend:
    """A backend of sparse attention that keeps fp8 latent rows without scales.

    C(phases): prefill and decode that have to name it, of the two.
    """

    backend: str
    phases: int
    since: str
    source: str


_WIDTH_SOURCE = "calculate_mla_kv_cache_dim"
RAW_SPARSE_BACKENDS = (
    RawSparseBackend(
        "trtllm", 1, "0.5.9", f"sglang 0.5.9 srt/model_executor/model_runner_kv_cache_mixin.py {_WIDTH_SOURCE}"
    ),
    RawSparseBackend("tilelang", 2, "0.5.23", f"sglang 0.5.23 srt/mem_cache/kv_cache_configurator.py {_WIDTH_SOURCE}"),
)
# From here on trtllm is what a sparse-attention model with an fp8 cache gets on Blackwell (srt/server_args.py 0.5.10).
SPARSE_TRTLLM_SINCE = "0.5.10"
# The pool has had the wide rows since 0.5.4, the profile charges them from here on (pool_configurator.py 0.5.17).
SPARSE_WIDTH_CHARGED_SINCE = "0.5.17"
# Layers that reuse the choice of an earlier one keep no index rows (pool_configurator.py 0.5.18, not in 0.5.17).
INDEX_SHARED_SINCE = "0.5.18"


@dataclass(frozen=True)
class LayoutArgument:
    """An argument that changes the cell in a way that is not computed here. C(neutral): values that change nothing."""

    name: str
    neutral: tuple
    source: str


LAYOUT_ARGUMENTS = (
    LayoutArgument("enable-hisparse", (False,), "srt/model_executor/pool_configurator.py"),
    LayoutArgument("enable-double-sparsity", (False,), "srt/model_executor/model_runner.py up to 0.5.10"),
    LayoutArgument("enable-unified-memory", (False,), "srt/model_executor/pool_configurator.py"),
    LayoutArgument("enable-kv-cache-sharding", (False,), "srt/mem_cache/page_interleave.py"),
    LayoutArgument("prefill-only-disable-kv-cache", (False,), "srt/mem_cache/kv_cache_configurator.py"),
    LayoutArgument("dcp-size", (1,), "srt/configs/model_config.py get_num_kv_heads"),
    LayoutArgument("dwdp-size", (1,), "srt/arg_groups/parallel_hook.py forces attn_dp_size"),
)


@dataclass(frozen=True)
class DraftRule:
    """How speculation changes the cell from version C(since) on.

    C(effect): none; outside (the draft's rows come out of the headroom); layers (the cell grows by draft layers of the
    size of a target layer); scaled (the same, rounded as a whole); own (the cell grows by the draft's own rows).
    """

    algorithm: str
    since: str
    effect: str
    source: str


POOL_SOURCE = "srt/model_executor/pool_configurator.py"
_OUTSIDE = "the draft lies outside the fraction before 0.5.14"
# The last row of an algorithm whose version has come counts.
DRAFT_RULES = (
    DraftRule("NGRAM", "0.0", "none", "no draft model"),
    DraftRule("EAGLE", "0.0", "outside", _OUTSIDE),
    DraftRule("EAGLE", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("EAGLE3", "0.0", "outside", _OUTSIDE),
    DraftRule("EAGLE3", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("NEXTN", "0.0", "outside", _OUTSIDE),
    DraftRule("NEXTN", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("STANDALONE", "0.0", "outside", _OUTSIDE),
    DraftRule("STANDALONE", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("DFLASH", "0.5.11", "scaled", "sglang 0.5.11 " + POOL_SOURCE),
    DraftRule("DFLASH", "0.5.18", "own", "sglang 0.5.18 " + POOL_SOURCE),
    DraftRule("DSPARK", "0.5.16", "scaled", "sglang 0.5.16 " + POOL_SOURCE),
    DraftRule("DSPARK", "0.5.18", "own", "sglang 0.5.18 " + POOL_SOURCE),
)

# Architectures whose checkpoint holds a draft layer of which the configuration may not speak
# (num_nextn_predict_layers): sglang 0.5.23 srt/configs/model_config.py _config_draft_model.
BUILT_IN_DRAFTS = frozenset(
    (
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "ExaoneMoEForCausalLM",
        "ExaoneMoeForCausalLM",
        "GigaChat35ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiMoForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
    )
)
# Architectures for which the engine itself takes the model's own path as draft path when none is given:
# sglang 0.5.20 and 0.5.23 srt/arg_groups/speculative_hook.py _handle_eagle_family.
DRAFT_PATH_IS_MODEL = frozenset(
    (
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "HYV3ForCausalLM",
        "HYV4ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
    )
)


@dataclass(frozen=True)
class SpeculationDefault:
    """Steps, width of the tree and draft tokens that the engine chooses when none of the three is given."""

    architecture: str | None
    algorithm: str | None
    since: str
    steps: int
    topk: int
    draft_tokens: int
    source: str


_CHOOSE = "auto_choose_speculative_params"
# The last row that fits counts.
SPECULATION_DEFAULTS = (
    SpeculationDefault(None, None, "0.0", 5, 4, 8, f"sglang 0.5.4 and 0.5.6 srt/server_args.py {_CHOOSE}"),
    SpeculationDefault(None, None, "0.5.8", 3, 1, 4, f"sglang 0.5.8 srt/server_args.py {_CHOOSE}"),
    *(
        SpeculationDefault(name, None, "0.0", 3, 1, 4, f"sglang 0.5.4 srt/server_args.py {_CHOOSE}")
        for name in (
            "BailingMoeForCausalLM",
            "BailingMoeV2ForCausalLM",
            "DeepseekV2ForCausalLM",
            "DeepseekV32ForCausalLM",
            "DeepseekV3ForCausalLM",
            "Glm4MoeForCausalLM",
            "GptOssForCausalLM",
        )
    ),
    SpeculationDefault("LlamaForCausalLM", None, "0.0", 5, 4, 8, f"sglang 0.5.4 to 0.5.23 {_CHOOSE}"),
    SpeculationDefault("Grok1ForCausalLM", None, "0.0", 5, 4, 8, f"sglang 0.5.4 to 0.5.23 {_CHOOSE}"),
    SpeculationDefault(None, "STANDALONE", "0.0", 3, 1, 4, f"sglang 0.5.4 to 0.5.23 {_CHOOSE}"),
)


@dataclass(frozen=True)
class WindowOff:
    """An argument that makes the engine keep full rows for window layers. C(value) None: any that is set."""

    architectures: tuple
    argument: str
    value: str | None
    before: str | None
    source: str

    def applies(self, arguments, engine_version):
        stated = arguments.get(self.argument)
        if stated is None or str(stated).strip().lower() in ("", "none", "false", "no", "off"):
            return False
        if self.value is not None and str(stated) != self.value:
            return False
        return self.before is None or not version_at_least(engine_version, self.before)


_GPT_OSS = ("GptOssForCausalLM",)
_WITH_HICACHE = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM", "Step3p5ForCausalLM", "Step3p7ForConditionalGeneration")
WINDOW_OFF = (
    WindowOff(_GPT_OSS, "speculative-algorithm", None, "0.5.9", "sglang 0.5.8 srt/server_args.py"),
    WindowOff(_GPT_OSS, "attention-backend", "trtllm_mha", "0.5.10", "sglang 0.5.9 srt/server_args.py"),
    WindowOff(_GPT_OSS, "prefill-attention-backend", "trtllm_mha", "0.5.10", "sglang 0.5.9 srt/server_args.py"),
    WindowOff(_GPT_OSS, "decode-attention-backend", "trtllm_mha", "0.5.10", "sglang 0.5.9 srt/server_args.py"),
    WindowOff(_WITH_HICACHE[:2], "enable-hierarchical-cache", None, "0.5.14", "sglang 0.5.11 srt/server_args.py"),
    WindowOff(
        _WITH_HICACHE[2:],
        "enable-hierarchical-cache",
        None,
        None,
        "sglang 0.5.9 srt/server_args.py, 0.5.23 srt/arg_groups/overrides.py _step3p_overrides",
    ),
)


@dataclass(frozen=True)
class PageRule:
    """A page size that an argument or a layout forces. C(tokens) holds unless the stated page size is in C(allowed)."""

    arguments: tuple
    value: str
    tokens: int
    allowed: tuple
    source: str


_PAGE_SOURCE = "srt/arg_groups/overrides.py _mla_backend_page_constraints"
_DECODE = ("attention-backend", "decode-attention-backend")
_ALL = (*_DECODE, "prefill-attention-backend")
PAGE_RULES = (
    PageRule(_DECODE, "flashmla", 64, (64,), _PAGE_SOURCE),
    PageRule(_DECODE, "trtllm_mla", 64, (32, 64), _PAGE_SOURCE),
    PageRule(_DECODE, "cutlass_mla", 128, (128,), "sglang 0.5.4 srt/server_args.py"),
    PageRule(_ALL, "cutedsl_mla", 64, (32, 64), _PAGE_SOURCE),
    PageRule(_ALL, "trtllm_mha", 64, (16, 32, 64, 128), _PAGE_SOURCE),
    PageRule(_ALL, "hpc_ops", 64, (64,), _PAGE_SOURCE),
)
SPARSE_PAGE_TOKENS = 64  # sglang 0.5.4 to 0.5.23 on CUDA boards, times index_kpool


@dataclass(frozen=True)
class StateRule:
    """How the engine takes the states of requests out of REST, from version C(since) on.

    C(scratch_first): the copies of speculation are taken off before the share is made, by max-running-requests.
    C(share_with_drafts): the share counts 1 + draft tokens states a slot and nothing is taken off apart.
    C(joint): slots and copies are solved together. C(padding): slots that are kept beside them.
    C(radix_only): an explicit number of slots counts only without the radix cache.
    C(stage_share): pipeline stages charge the largest share of a stage, else the whole model.
    """

    since: str
    scratch_first: bool
    share_with_drafts: bool
    joint: bool
    padding: int
    radix_only: bool
    stage_share: bool
    source: str


_MIXIN = "srt/model_executor/model_runner_kv_cache_mixin.py handle_max_mamba_cache"
STATE_RULES = (
    StateRule("0.0", False, True, False, 0, True, False, "sglang 0.5.4 and 0.5.6 srt/model_executor/model_runner.py"),
    StateRule("0.5.8", True, False, False, 0, False, False, "sglang 0.5.8 to 0.5.11 " + _MIXIN),
    StateRule("0.5.14", False, False, True, 0, False, False, "sglang 0.5.14 " + _MIXIN),
    StateRule(
        "0.5.17", False, False, True, 1, False, True, "sglang 0.5.17 to 0.5.23 srt/mem_cache/kv_cache_configurator.py"
    ),
)
STATE_RATIO = 0.9  # mamba-full-memory-ratio
EXTRA_BUFFER_SINCE = "0.5.14"  # from here on auto means extra_buffer where the architecture has it
# sglang 0.5.14 srt/server_args.py to 0.5.23 srt/arg_groups/overrides.py _MAMBA_EXTRA_BUFFER_ARCHS
EXTRA_BUFFER_ARCHITECTURES = frozenset(
    (
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "BailingMoeV3VLForConditionalGeneration",
        "FalconH1ForCausalLM",
        "Glm5NextForConditionalGeneration",
        "GraniteMoeHybridForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
    )
)


@dataclass(frozen=True)
class TableForm:
    """The size of req_to_token from version C(since) on: C(spare_rows) more rows than requests, draft tokens or not."""

    since: str
    spare_rows: int
    draft_columns: bool
    source: str


TABLE_FORMS = (
    TableForm("0.0", 1, False, "sglang 0.4.6 srt/model_executor/model_runner.py (max_num_reqs + 1)"),
    TableForm("0.4.9", 0, False, "sglang 0.4.9 srt/model_executor/model_runner.py"),
    TableForm("0.5.2", 0, True, "sglang 0.5.2 srt/model_executor/model_runner.py (extra_max_context_len)"),
    TableForm("0.5.11", 1, True, "sglang 0.5.11 srt/mem_cache/memory_pool.py (size + 1 rows)"),
)
