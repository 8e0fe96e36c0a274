# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, images and sound: whether the engine serves it so, and how large its encoder is. Private.

The engine takes a reservation off the pool for such a model, and its own default fraction is lower.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import is_integer

# Architectures with a language model that is not nested in the configuration, and those that are by their names.
# Source: multimodal_model_archs in srt/configs/model_config.py of sglang 0.5.23.
MULTIMODAL_ARCHITECTURES = frozenset(
    (
        "BailingMM2NativeForConditionalGeneration",
        "BailingMMNativeForConditionalGeneration",
        "BailingMoeV3VLForConditionalGeneration",
        "CLIPModel",
        "Cohere2VisionForConditionalGeneration",
        "Cosmos3EdgeForConditionalGeneration",
        "DeepseekOCRForCausalLM",
        "DeepseekVL2ForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "Dots3NoteForCausalLM",
        "DotsOCRForCausalLM",
        "DotsVLMForCausalLM",
        "EmbeddingGemma2Model",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "GlmAsrForConditionalGeneration",
        "GlmImageForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
        "Grok1AForCausalLM",
        "Grok1VForCausalLM",
        "InternS1ForConditionalGeneration",
        "InternS1ProForConditionalGeneration",
        "InternS2MobiusForConditionalGeneration",
        "InternS2PreviewForConditionalGeneration",
        "InternVLChatModel",
        "JetVLMForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "Lfm2VlForConditionalGeneration",
        "LightOnOCRForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "LlavaLlamaForCausalLM",
        "LlavaMistralForCausalLM",
        "LlavaQwenForCausalLM",
        "LlavaVidForCausalLM",
        "LocateAnythingForConditionalGeneration",
        "MiDashengLMModel",
        "MiMoV2ASRForCausalLM",
        "MiMoV2ForCausalLM",
        "MiniCPMO",
        "MiniCPMV",
        "MiniMaxM3SparseForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
        "MllamaForConditionalGeneration",
        "MossVLForConditionalGeneration",
        "MultiModalityCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "MuseSparkForConditionalGeneration",
        "NVILAForConditionalGeneration",
        "NVILALiteForConditionalGeneration",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Omni_Reasoning_V3",
        "POINTSV15ChatModel",
        "PaddleOCRVLForConditionalGeneration",
        "Phi4MMForCausalLM",
        "PixtralForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
        "Sarashina2VisionForCausalLM",
        "Step3VLForConditionalGeneration",
        "Step3p7ForConditionalGeneration",
        "StepVLForConditionalGeneration",
        "UnlimitedOCRForCausalLM",
        "VoxtralForConditionalGeneration",
        "WhisperForConditionalGeneration",
    )
)
# Served as language models until --enable-multimodal is given. Source: mm_disabled_models, the same file.
SWITCHED_OFF_ARCHITECTURES = frozenset(
    (
        "Gemma3ForConditionalGeneration",
        "InklingForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "Step3VLForConditionalGeneration",
    )
)
# Some releases of these have no encoders. Source: MIMO_V2_MULTIMODAL_ARCHS, the same file.
WITH_BOTH_ENCODERS = frozenset(("MiMoV2ForCausalLM",))


def vision_of(config, text, architecture):
    """Return C(multimodal), and the sizes of the image encoder (C(vision_layers) and so on) that C(config) states.

    C(multimodal): whether the engine takes images or sound when no argument says otherwise. C(text): the language
    model inside C(config). The sizes are those that the engine reads for its own default fraction
    (srt/arg_groups/memory_hook.py), whatever they mean in that encoder.
    """
    found = {"multimodal": _is_multimodal(config, text, architecture)}
    encoder = config.get("vision_config")
    sizes = (
        ("vision_layers", "num_hidden_layers"),
        ("vision_hidden_size", "hidden_size"),
        ("vision_intermediate_size", "intermediate_size"),
    )
    for name, key in sizes if isinstance(encoder, dict) else ():
        if is_integer(encoder.get(key)) and 0 < encoder[key] < 2**31:
            found[name] = encoder[key]
    return found


def _is_multimodal(config, text, architecture):
    if architecture in SWITCHED_OFF_ARCHITECTURES:
        return False
    if architecture in WITH_BOTH_ENCODERS:
        return bool(config.get("vision_config")) and bool(config.get("audio_config"))
    return architecture in MULTIMODAL_ARCHITECTURES or text is not config or bool(config.get("vision_n_layers"))
