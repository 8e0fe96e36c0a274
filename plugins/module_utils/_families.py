# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which model families there are and how the engine keeps their KV rows: tables only. Private to the collection.

A family that becomes known moves from the refused tables to a row of its own and gets a layout in _kv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MODEL_CONFIG = "sglang 0.5.23 srt/configs/model_config.py"
_HYBRID_ARCH = "sglang 0.5.23 srt/configs/hybrid_arch.py"


@dataclass(frozen=True)
class Condition:
    """When a row counts: always, or when the key C(key) of the language model is set (C(wanted) True) or not."""

    key: str | None = None
    wanted: bool = True

    def holds(self, text):
        return self.key is None or bool(text.get(self.key)) is self.wanted


ALWAYS = Condition()


@dataclass(frozen=True)
class Family:
    """Architectures (first entry of C(architectures) in config.json) that share a KV layout."""

    architectures: tuple
    reason: str
    source: str
    condition: Condition = ALWAYS

    def applies(self, text):
        return self.condition.holds(text)


# ---------------------------------------------------------------------------
# Multi-head latent attention: one latent row per layer and token
# ---------------------------------------------------------------------------

_MLA_SOURCE = _MODEL_CONFIG + " _derive_model_shapes"
MLA_FAMILIES = (
    Family(
        (
            "BailingMoeV2_5ForCausalLM",
            "BailingMoeV3ForCausalLM",
            "BailingMoeV3VLForConditionalGeneration",
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "DeepseekV32ForCausalLM",
            "DotsVLMForCausalLM",
            "GigaChat35ForCausalLM",
            "Glm4MoeLiteForCausalLM",
            "Glm5NextForConditionalGeneration",
            "GlmMoeDsaForCausalLM",
            "HYV4ForCausalLM",
            "KimiK25ForConditionalGeneration",
            "KimiK3ForConditionalGeneration",
            "KimiK3LinearForCausalLM",
            "KimiLinearForCausalLM",
            "KimiVLForConditionalGeneration",
            "LongcatFlashForCausalLM",
            "MiniCPM3ForCausalLM",
            "MistralLarge3ForCausalLM",
            "SarvamMLAForCausalLM",
        ),
        "latent attention",
        _MLA_SOURCE,
    ),
    Family(
        ("PixtralForConditionalGeneration",),
        "latent attention when kv_lora_rank is set",
        _MLA_SOURCE,
        Condition("kv_lora_rank"),
    ),
    Family(
        ("DeepseekVL2ForCausalLM",), "latent attention when kv_lora_rank is set", _MLA_SOURCE, Condition("kv_lora_rank")
    ),
)

# ---------------------------------------------------------------------------
# Index rows beside the latent rows (DeepSeek sparse attention)
# ---------------------------------------------------------------------------

# Counts when index_topk is set too. A file that states index_head_dim alone is read the same way: releases do not
# state one without the other.
INDEX_FAMILIES = (
    Family(
        (
            "DeepseekV3ForCausalLM",
            "DeepseekV32ForCausalLM",
            "Glm5NextForConditionalGeneration",
            "GlmMoeDsaForCausalLM",
            "HYV4ForCausalLM",
            "LongcatFlashForCausalLM",
            "MistralLarge3ForCausalLM",
            "PixtralForConditionalGeneration",
        ),
        "index rows beside the latent rows",
        _MODEL_CONFIG + " is_deepseek_dsa",
    ),
)

# ---------------------------------------------------------------------------
# A second pool for the layers that attend to a window
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowFamily:
    """Architectures whose window layers have a pool of their own.

    C(layers): how the configuration says which layers they are (a reader in _model_layers). C(since): the first
    version that splits the pool. C(before): what earlier versions did: plain (full rows for all layers) or absent
    (they could not load the model, the oldest rule is taken). C(ratio): window tokens per pool token when
    swa-full-tokens-ratio is not given.
    """

    architectures: tuple
    layers: str
    since: str
    before: str
    source: str
    ratio: float = 0.8


_SWA_SOURCE = "is_hybrid_swa_model and get_hybrid_layer_ids of srt/configs/model_config.py in sglang {}"
WINDOW_FAMILIES = (
    WindowFamily(
        ("Llama4ForConditionalGeneration",), "every_fourth_full", "0.5.8", "plain", _SWA_SOURCE.format("0.5.8")
    ),
    WindowFamily(("GptOssForCausalLM",), "layer_types", "0.5.8", "plain", _SWA_SOURCE.format("0.5.8")),
    WindowFamily(
        ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"),
        "hybrid_layer_pattern",
        "0.5.8",
        "absent",
        _SWA_SOURCE.format("0.5.8"),
    ),
    WindowFamily(("Step3p5ForCausalLM",), "layer_types", "0.5.9", "absent", _SWA_SOURCE.format("0.5.9")),
    WindowFamily(("Step3p7ForConditionalGeneration",), "layer_types", "0.5.14", "absent", _SWA_SOURCE.format("0.5.14")),
    WindowFamily(
        ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"),
        "layer_types",
        "0.5.11",
        "absent",
        _SWA_SOURCE.format("0.5.11"),
    ),
    WindowFamily(
        ("Gemma4UnifiedForConditionalGeneration", "LagunaForCausalLM"),
        "layer_types",
        "0.5.14",
        "absent",
        _SWA_SOURCE.format("0.5.14"),
    ),
    WindowFamily(("MellumForCausalLM",), "layer_types", "0.5.16", "absent", _SWA_SOURCE.format("0.5.16")),
    WindowFamily(("UnlimitedOCRForCausalLM",), "all_window", "0.5.16", "absent", _SWA_SOURCE.format("0.5.16")),
    WindowFamily(
        ("MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration"),
        "layer_types",
        "0.5.18",
        "absent",
        _SWA_SOURCE.format("0.5.18"),
    ),
    WindowFamily(("DiffusionGemmaForBlockDiffusion",), "layer_types", "0.5.22", "absent", _SWA_SOURCE.format("0.5.22")),
    WindowFamily(
        (
            "BeamForCausalLM",
            "GraniteMoeSWAForCausalLM",
            "GraniteSWAForCausalLM",
            "IQuestQ1ForCausalLM",
            "MuseSparkForConditionalGeneration",
        ),
        "layer_types",
        "0.5.23",
        "absent",
        _SWA_SOURCE.format("0.5.23"),
    ),
)

# Gemma 4 states the sizes of its window layers first and those of the full layers apart
# (sglang 0.5.23 srt/utils/hf_transformers/config.py _apply_gemma4_attention_overrides).
WINDOW_FIRST_ARCHITECTURES = frozenset(
    (
        "DiffusionGemmaForBlockDiffusion",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
    )
)

# ---------------------------------------------------------------------------
# Layers that keep a state per request instead of rows per token
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class StateFamily:
    """Architectures with state layers. C(layers): how the configuration says which (a reader in _model_layers);
    C(state): which keys give the size of a state (a reader in _model_state); C(model_types): types of the language
    model that make a model one of the family whatever its architecture is called."""

    architectures: tuple
    layers: str
    state: str
    source: str
    model_types: tuple = ()
    note: str = ""


STATE_FAMILIES = (
    StateFamily(("Qwen3NextForCausalLM",), "interval", "gated_delta", "srt/configs/qwen3_next.py", ("qwen3_next",)),
    StateFamily(
        (
            "InternS2PreviewForConditionalGeneration",
            "Qwen3_5ForCausalLM",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5MoeForConditionalGeneration",
        ),
        "interval",
        "gated_delta",
        "srt/configs/qwen3_5.py",
        ("qwen3_5_text", "qwen3_5_moe_text"),
    ),
    StateFamily(
        ("NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"), "letters", "nemotron", "srt/configs/nemotron_h.py"
    ),
    StateFamily(
        ("NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2", "NemotronH_Omni_Reasoning_V3"),
        "letters",
        "nemotron",
        "srt/configs/nemotron_h.py",
        ("nemotron_h",),
    ),
    StateFamily(
        ("JambaForCausalLM",),
        "period",
        "mamba1",
        "transformers 5 configuration_jamba.py",
        note="the engine has no class for this architecture, the cell is that of the layers with attention",
    ),
    StateFamily(("FalconH1ForCausalLM",), "both", "mamba2", "srt/configs/falcon_h1.py"),
    StateFamily(("GraniteMoeHybridForCausalLM",), "mamba_types", "mamba2", "srt/configs/granitemoehybrid.py"),
    StateFamily(
        ("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration", "KimiK3LinearForCausalLM"),
        "kda_lists",
        "kda",
        "srt/configs/kimi_linear.py",
    ),
    StateFamily(("Glm5NextForConditionalGeneration",), "kda_lists", "kda", "srt/configs/glm5_next.py"),
    StateFamily(
        ("Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm2VlForConditionalGeneration"),
        "conv_types",
        "short_conv",
        "srt/configs/lfm2.py",
    ),
    StateFamily(
        ("BailingMoeV2_5ForCausalLM", "BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"),
        "layer_group",
        "bailing",
        "srt/configs/bailing_hybrid.py",
    ),
    StateFamily(
        ("JetNemotronForCausalLM", "JetVLMForConditionalGeneration"), "jet", "jet", "srt/configs/jet_nemotron.py"
    ),
    StateFamily(("GigaChat35ForCausalLM",), "linear_types", "gated_delta", "srt/configs/gigachat35.py"),
)

# ---------------------------------------------------------------------------
# More or fewer attention layers than hidden layers
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RepeatedLayers:
    """Architectures that keep rows more than once per layer: C(times), or as often as the key C(key) says."""

    architecture: str
    times: int
    key: str | None
    source: str


_ATTENTION_LAYERS = _MODEL_CONFIG + " num_attention_layers"
REPEATED_LAYERS = (
    RepeatedLayers("LongcatFlashForCausalLM", 2, None, _ATTENTION_LAYERS),
    RepeatedLayers("IQuestLoopCoderForCausalLM", 1, "loop_num", _ATTENTION_LAYERS),
    RepeatedLayers("NanbeigeForCausalLM", 1, "num_loops", _ATTENTION_LAYERS),
)

# Compressed attention: whole rows in a window, one row for 4 or for 128 tokens beside it
# (sglang 0.5.23 srt/configs/model_config.py is_deepseek_v4).
COMPRESSED_ARCHITECTURES = frozenset(("DeepseekV4ForCausalLM",))

# ---------------------------------------------------------------------------
# Not understood yet: named, never guessed
# ---------------------------------------------------------------------------

_WINDOWS = "the engine keeps its sliding-window layers in a second pool"
_STATE = "it mixes attention with mamba or linear-attention layers, which keep a state per request"
_SPARSE = "it keeps index rows beside the KV rows"

REFUSED_ARCHITECTURES = (
    Family(
        ("InklingForConditionalGeneration",),
        "it mixes window layers, convolution states and draft layers of its own sizes",
        "sglang 0.5.23 srt/configs/inkling.py",
    ),
    Family(
        ("Step3p7FlashForCausalLM",),
        "the engine has no class of this name and so no layout for it",
        _MODEL_CONFIG + " is_hybrid_swa_model (Step3p7ForConditionalGeneration)",
    ),
    Family(
        (
            "FalconMambaForCausalLM",
            "Mamba2ForCausalLM",
            "MambaForCausalLM",
        ),
        "it has no attention and no pool of tokens",
        _HYBRID_ARCH,
    ),
    Family(("MiniCPMSALAForCausalLM", "ZayaForCausalLM"), _STATE, _HYBRID_ARCH),
    Family(
        ("Qwen4ExpForConditionalGeneration",),
        "its compressed index rows depend on the attention backend",
        "sglang 0.5.23 srt/mem_cache/qsa_kv_pool.py",
    ),
    Family(
        ("MiniMaxM3ForCausalLM",),
        "the engine knows this model as MiniMaxM3SparseForConditionalGeneration only",
        _MODEL_CONFIG + " is_minimax_sparse",
    ),
    Family(
        ("Dots3NoteForCausalLM",),
        "its window layers have latent rows of another width",
        "sglang 0.5.23 srt/configs/dots3.py",
    ),
    Family(
        ("MllamaForConditionalGeneration", "MossVLForConditionalGeneration", "WhisperForConditionalGeneration"),
        "it attends across to an encoder",
        _MODEL_CONFIG + " is_encoder_decoder_model",
    ),
)


@dataclass(frozen=True)
class RefusedKey:
    """A key of the language model that changes the KV layout unless it is null, false, 0 or C(neutral)."""

    key: str
    reason: str
    source: str
    condition: Condition = ALWAYS
    neutral: int | None = None

    def applies(self, text):
        return self.condition.holds(text)


REFUSED_KEYS = (
    RefusedKey("is_hybrid_swa", _WINDOWS, _MODEL_CONFIG + " is_hybrid_swa_model"),
    RefusedKey("hybrid_layer_pattern", _WINDOWS, _MODEL_CONFIG + " get_hybrid_layer_ids"),
    RefusedKey("global_head_dim", "full and window layers differ in head size", "Gemma 4"),
    RefusedKey("num_global_key_value_heads", "full and window layers differ in KV heads", "Gemma 4"),
    RefusedKey("swa_num_key_value_heads", "full and window layers differ in KV heads", "MiMo-V2"),
    RefusedKey("swa_head_dim", "full and window layers differ in head size", "MiMo-V2"),
    RefusedKey("attention_chunk_size", "its layers attend in chunks", "Llama 4"),
    RefusedKey("hybrid_override_pattern", _STATE, "Nemotron-H"),
    RefusedKey("layers_block_type", _STATE, "Jamba, Zamba, Nemotron-H"),
    RefusedKey("attn_layer_period", _STATE, "Jamba", neutral=1),
    RefusedKey("full_attention_interval", _STATE, "Qwen3-Next", neutral=1),
    RefusedKey("linear_attn_config", _STATE, "Kimi-Linear"),
    RefusedKey("mamba_d_state", _STATE, "Jamba, Falcon-H1, Bamba"),
    RefusedKey("ssm_state_size", _STATE, "Nemotron-H"),
    RefusedKey("full_attn_idxs", _STATE, "LFM2"),
    RefusedKey("index_topk", _SPARSE, _MODEL_CONFIG + " is_deepseek_dsa"),
    RefusedKey("index_head_dim", _SPARSE, _MODEL_CONFIG + " is_deepseek_dsa"),
    RefusedKey("sparse_attention_config", _SPARSE, _MODEL_CONFIG + " is_minimax_sparse"),
    RefusedKey("compress_ratios", "it keeps compressed rows beside the KV rows", "DeepSeek-V4"),
    RefusedKey("num_kv_shared_layers", "its last layers share the KV rows of earlier ones", "Gemma 3n"),
    RefusedKey("use_cla", "its layers share KV rows", "Hunyuan-Large"),
    RefusedKey("cla_share_factor", "its layers share KV rows", "Hunyuan-Large", Condition("use_cla"), 1),
    RefusedKey("block_configs", "its layers differ in KV heads", "DeciLM"),
    RefusedKey("num_attention_heads_per_layer", "its layers differ in heads", _MODEL_CONFIG),
    RefusedKey("loop_num", "its layers run more than once", _MODEL_CONFIG, neutral=1),
    RefusedKey("num_loops", "its layers run more than once", _MODEL_CONFIG, neutral=1),
    RefusedKey("cross_attention_layers", "some layers attend across to an encoder", "Llama 3.2 Vision"),
    RefusedKey("is_encoder_decoder", "it attends across to an encoder", "Whisper, T5"),
    RefusedKey("add_cross_attention", "it attends across to an encoder", "transformers"),
    RefusedKey("attention_other_setting", "full and window layers differ in KV heads", "Step-3.5"),
)

# Index keys and values beside the rows of multi-head attention.
SPARSE_ARCHITECTURES = frozenset(("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"))

# Sharing of KV rows between layers that the engine does not use: it keeps rows for all layers all the same.
SHARED_ROWS = (
    Family(
        ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
        "num_kv_shared_layers",
        "sglang 0.5.23 srt/models/gemma3n_causal.py (the pool holds every layer)",
    ),
    Family(
        tuple(sorted(WINDOW_FIRST_ARCHITECTURES)),
        "num_kv_shared_layers",
        _MODEL_CONFIG + " get_hybrid_layer_ids (every layer is counted)",
    ),
    Family(("HunYuanForCausalLM",), "use_cla", "no class of the engine shares rows between layers"),
)

# Lists that give a kind to every layer, and the kinds whose KV rows are plain.
LAYER_KINDS = {
    "layer_types": (
        "full_attention",
        "sliding_attention",
        "attention",
        "global_attention",
        "deepseek_sparse_attention",
        "indexed_attention",
    ),
    "mlp_layer_types": ("dense", "sparse", "moe"),
}

# ---------------------------------------------------------------------------
# Keys that are not known
# ---------------------------------------------------------------------------

# What a key looks like that may change the KV rows. Whole words between underscores.
SUSPICIOUS_KEY = re.compile(
    r"(?:^|_)(?:block|blocks|chunk|chunks|cla|compress|compressed|conv|conv1d|cross|delta|dilated|gated|global|hash|"
    r"hybrid|hyper|idxs|indexer|interval|kda|kv|latent|lightning|linear|loop|loops|lora|lsh|mamba|mamba2|memory|"
    r"pattern|period|pool|recurrent|retention|rwkv|shared|sharing|sliding|sparse|ssm|state|swa|window|windows|yoco)(?:_|$)"
    r"|^index_|^local_(?:attention|layer)|full_att|attn_(?:layer|type|mode|kind)"
)

# Keys that look like it and do not: seen in configurations whose KV rows are plain, or read by the engine's classes
# for something else (srt/models and srt/configs of sglang 0.5.23).
HARMLESS_KEYS = frozenset(
    (
        "_sliding_window_pattern",
        "activation_situ_linear_beta",
        "activation_sparsity_pattern",
        "add_bias_linear",
        "add_full_attention_sink_bias",
        "add_swa_attention_sink_bias",
        "audio_chunk_length",
        "audio_pool_step",
        "block_size",
        "blocksparse_block_size",
        "blocksparse_homo_head_pattern",
        "blocksparse_num_local_blocks",
        "blocksparse_triton_kernel_block_size",
        "chunk_input",
        "chunk_size_feed_forward",
        "decoder_sparse_step",
        "dual_chunk_attention_config",
        "enable_moe_block",
        "full_attention_type",
        "gated_attention",
        "gated_attention_proj_granularity_type",
        "global_attn_every_n_layers",
        "indexer_rope_interleave",
        "interleaved_sliding_window",
        "interval",
        "kda_lower_bound",
        "kda_safe_gate",
        "kv_channels",
        "kv_lora_rank",
        "kv_n_heads",
        "latent_moe_use_norm",
        "layer_types",
        "lora_config",
        "max_window_layers",
        "mla_scale_kv_lora",
        "mla_scale_q_lora",
        "mlp_layer_types",
        "mm_spatial_pool_stride",
        "moe_latent_size",
        "moe_layer_interval",
        "moe_num_shared_experts",
        "moe_router_enable_shared_expert",
        "moe_shared_expert_gate",
        "moe_shared_expert_intermediate_size",
        "moe_shared_expert_overlap",
        "multi_query_group_num",
        "n_head_kv",
        "n_shared_experts",
        "no_kda_lora",
        "no_rope_layer_interval",
        "num_hash_layers",
        "num_kv_heads",
        "num_shared_expert",
        "num_shared_experts",
        "o_lora_rank",
        "prefix_dense_sliding_window_pattern",
        "q_lora_rank",
        "share_expert_dim",
        "shared_expert_combination_strategy",
        "shared_expert_gate",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "sliding_window",
        "sliding_window_pattern",
        "spatial_conv_size",
        "speech_lora",
        "streaming_audio_chunk_size",
        "streaming_text_chunk_size",
        "swa_partial_rotary_factor",
        "swa_rope_scaling",
        "swiglu_limits_shared",
        "temporal_conv_size",
        "use_block_attn",
        "use_conv_bias",
        "use_llm_hidden_state",
        "use_mamba_kernels",
        "use_shared_expert_gate",
        "use_shared_expert_sigmoid",
        "use_sliding_window",
        "use_temporal_conv",
        "use_unified_vision_chunk",
        "video_attn_type",
        "vision_lora",
    )
)

# Keys that play no part in the KV rows of an architecture: left over from an earlier release of the same family, or
# read for queries only.
UNREAD_KEYS = {
    # Query heads differ from layer to layer, KV heads do not (sglang 0.5.23 srt/models/laguna.py LagunaAttention).
    "LagunaForCausalLM": ("num_attention_heads_per_layer",),
    "MiniMaxM2ForCausalLM": (
        # MiniMax-Text-01 had linear layers; M2 has attention in every layer (sglang 0.5.23 srt/models/minimax_m2.py).
        "attn_type_list",
        "layernorm_full_attention_alpha",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_alpha",
        "layernorm_linear_attention_beta",
        "shared_moe_mode",
    ),
}

# ---------------------------------------------------------------------------
# Plain families with windows
# ---------------------------------------------------------------------------

# The engine knows these and keeps full rows for all their layers, also where the configuration names a window:
# they are not on its list of hybrid-window architectures, or are taken off it (disable_hybrid_swa_memory), in any
# version read (0.4.9 to 0.5.23).
PLAIN_ARCHITECTURES = frozenset(
    (
        "AfmoeForCausalLM",
        "ApertusForCausalLM",
        "ArceeForCausalLM",
        "Cohere2ForCausalLM",
        "Cohere2MoeForCausalLM",
        "Cohere2VisionForConditionalGeneration",
        "Ernie4_5_ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneMoEForCausalLM",
        "ExaoneMoeForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "InternLM3ForCausalLM",
        "Llama4ForCausalLM",
        "LlamaForCausalLM",
        "MiMoForCausalLM",
        "MiniMaxM2ForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Olmo2ForCausalLM",
        "Olmo3ForCausalLM",
        "OlmoForCausalLM",
        "OlmoeForCausalLM",
        "Phi3ForCausalLM",
        "Phi3SmallForCausalLM",
        "Phi4MMForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "SmolLM3ForCausalLM",
        "Starcoder2ForCausalLM",
        "XverseMoeForCausalLM",
    )
)

# ---------------------------------------------------------------------------
# What a model class assumes where its configuration says nothing
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassDefaults:
    """Defaults of a configuration class. None: derived (KV heads as attention heads, head size by division)."""

    model_type: str
    attention_heads: int | None
    kv_heads: int | None
    head_dim: int | None


# Read from transformers 5 (models/*/configuration_*.py). C(attention_heads) only where releases rely on it.
_DEFAULT_ROWS = (
    ("afmoe", None, None, 128),
    ("apertus", None, None, None),
    ("arcee", None, None, None),
    ("cohere", None, None, None),
    ("cohere2", None, None, None),
    ("cohere2_moe", None, None, 128),
    ("deepseek", None, None, None),
    ("dbrx", None, 1, None),
    ("diffusion_gemma_text", 8, 4, 256),
    ("dots1", None, 32, None),
    ("ernie4_5", None, 2, 128),
    ("ernie4_5_moe", None, 4, None),
    ("ernie4_5_vl_moe_text", None, 4, None),
    ("exaone", None, None, None),
    ("exaone4", None, 32, None),
    ("exaone_moe", None, 32, None),
    ("gemma", None, 16, 256),
    ("gemma2", None, 4, 256),
    ("falcon_h1", None, 8, None),
    ("gemma3_text", 8, 4, 256),
    ("gemma3n_text", 8, 2, 256),
    ("gemma4_text", 8, 4, 256),
    ("gemma4_unified_text", 8, 4, 256),
    ("glm", None, 2, 128),
    ("glm4", None, 2, 128),
    ("glm4_moe", None, 8, None),
    ("glm4v_moe_text", None, 8, None),
    ("glm4v_text", None, 2, None),
    ("glm_ocr_text", None, 8, None),
    ("granite", None, None, None),
    ("granite_swa", None, 4, None),
    ("granitemoe", None, None, None),
    ("granitemoe_swa", None, None, None),
    ("gpt_oss", 64, 8, 64),
    ("granitemoehybrid", None, None, None),
    ("granitemoeshared", None, None, None),
    ("hunyuan_v1_dense", None, None, None),
    ("hunyuan_v1_moe", None, None, None),
    ("hy_v3", None, 8, 128),
    ("internlm2", None, None, None),
    ("laguna", None, 8, 128),
    ("lfm2", None, 8, None),
    ("lfm2_moe", None, 8, None),
    ("llama", None, None, None),
    ("llama4_text", None, 8, 128),
    ("mellum", None, 4, 128),
    ("minimax_m2", None, 8, 128),
    ("ministral3", None, 8, 128),
    ("mistral", None, 8, None),
    ("mixtral", None, 8, None),
    ("nemotron", None, None, None),
    ("nemotron_h", 32, 8, 128),
    ("olmo", None, None, None),
    ("olmo2", None, None, None),
    ("olmo3", None, None, None),
    ("olmoe", None, None, None),
    ("paddleocr_vl_text", None, 2, 128),
    ("phi", None, None, None),
    ("phi3", None, None, None),
    ("phimoe", None, 8, None),
    ("qwen2", None, 32, None),
    ("qwen2_5_vl_text", None, 8, None),
    ("qwen2_moe", None, 16, None),
    ("qwen2_vl_text", None, 8, None),
    ("qwen3", None, 32, 128),
    ("qwen3_5_moe_text", None, 2, 256),
    ("qwen3_5_text", None, 4, 256),
    ("qwen3_moe", None, 4, None),
    ("qwen3_next", None, 2, 256),
    ("qwen3_omni_moe_text", None, 4, None),
    ("qwen3_vl_moe_text", None, 16, None),
    ("qwen3_vl_text", None, 32, 128),
    ("seed_oss", None, 8, 128),
    ("smollm3", None, 4, None),
    ("solar", None, None, None),
    ("stablelm", None, 32, None),
    ("starcoder2", None, 2, None),
)
CLASS_DEFAULTS = {row[0]: ClassDefaults(*row) for row in _DEFAULT_ROWS}


# Models for images or sound whose text_config may leave out its type, and the type that the class then takes.
# Read from transformers 5 (models/*/configuration_*.py, text_config.get("model_type", ...)).
NESTED_TYPES = {
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "deepseek_vl": "llama",
    "got_ocr2": "qwen2",
    "idefics2": "mistral",
    "idefics3": "llama",
    "internvl": "qwen2",
    "lfm2_vl": "lfm2",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "ovis2": "qwen2",
    "paligemma": "gemma",
    "qwen2_audio": "qwen2",
    "smolvlm": "llama",
    "video_llava": "llama",
    "vipllava": "llama",
}

# What releases rely on inside a text_config (LLaVA 1.5 states no layers, Pixtral no heads). At the top of config.json
# the same gap is a damaged file. Read from transformers 5 (models/*/configuration_*.py).
NESTED_DEFAULTS = {
    "llama": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
    },
    "qwen2": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 22016,
        "max_position_embeddings": 32768,
    },
}


@dataclass(frozen=True)
class LatentDefaults:
    """Latent rows of a configuration class that its file may leave out."""

    model_type: str
    kv_lora_rank: int
    qk_rope_head_dim: int
    index_head_dim: int | None


# Read from transformers 5 (models/*/configuration_*.py).
_LATENT_ROWS = (
    ("deepseek_v2", 512, 64, None),
    ("deepseek_v3", 512, 64, None),
    ("deepseek_v32", 512, 64, 128),
    ("glm4_moe_lite", 512, 64, None),
    ("glm_moe_dsa", 512, 64, 128),
    ("longcat_flash", 512, 64, None),
    ("minicpm3", 256, 32, None),
)
LATENT_DEFAULTS = {row[0]: LatentDefaults(*row) for row in _LATENT_ROWS}
