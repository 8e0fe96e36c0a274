# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: the architectures that SGLang has a class for. Private to the collection.

Source: EntryClass of every file in srt/models of sglang 0.5.23, and those that the tables of the families name. The
configuration decides what a token costs; one that is not here is reckoned by it alone, and the plan says so.
"""

from __future__ import annotations

NAMES = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM BaichuanForCausalLM
    BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration BailingMoEForCausalLM
    BailingMoeForCausalLM BailingMoeForCausalLMNextN BailingMoeV2ForCausalLM BailingMoeV2_5ForCausalLM
    BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration BeamForCausalLM BertForSequenceClassification
    BertModel CLIPModel ChatGLMModel Cohere2ForCausalLM Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration
    CohereForCausalLM Contriever Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration
    DFlash2BeamDraftModel DFlash2DraftModel DFlashDraftModel DFlashLagunaForCausalLM DSparkDraftModel
    DSparkMiniMaxDraftModel DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekOCRForCausalLM
    DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV3ForCausalLMNextN
    DeepseekV4ForCausalLM DeepseekV4ForCausalLMDSpark DeepseekV4ForCausalLMNextN DeepseekVL2ForCausalLM
    DiffusionGemmaForBlockDiffusion Dots3NoteForCausalLM Dots3NoteForCausalLMNextN DotsOCRForCausalLM
    DotsVLMForCausalLM Eagle3DeepseekV2ForCausalLM EmbeddingGemma2Model EmbeddingGemmaModel Ernie4_5_ForCausalLM
    Ernie4_5_MoeForCausalLM Ernie4_5_MoeForCausalLMMTP Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM
    ExaoneForCausalLM ExaoneMoEForCausalLM ExaoneMoEForCausalLMMTP ExaoneMoeForCausalLM FalconH1ForCausalLM
    FalconMambaForCausalLM GPT2LMHeadModel GPTBigCodeForCausalLM GPTJForCausalLM Gemma2ForCausalLM
    Gemma2ForSequenceClassification Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma3nForCausalLM
    Gemma3nForConditionalGeneration Gemma4AssistantForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForConditionalGeneration GemmaForCausalLM GigaChat35ForCausalLM
    GigaChat35ForCausalLMNextN Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeForCausalLMNextN Glm4MoeLiteForCausalLM
    Glm4MoeLiteForCausalLMNextN Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    Glm5NextForConditionalGeneration Glm5NextForConditionalGenerationNextN GlmAsrForConditionalGeneration
    GlmImageForConditionalGeneration GlmMoeDsaForCausalLM GlmMoeDsaForCausalLMNextN GlmOcrForConditionalGeneration
    GlmOcrForConditionalGenerationNextN GptOssForCausalLM GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSWAForCausalLM
    Grok1ForCausalLM Grok1ModelForCausalLM HYV3ForCausalLM HYV3ForCausalLMNextN HYV4ForCausalLM HYV4ForCausalLMNextN
    HrmTextForCausalLM HunYuanDenseV1ForCausalLM HunYuanForCausalLM HunYuanMoEV1ForCausalLM IQuestCoderForCausalLM
    IQuestLoopCoderForCausalLM IQuestQ1ForCausalLM IQuestQ1MTP InklingForConditionalGeneration
    InklingForConditionalGenerationMTP InternLM2ForCausalLM InternLM2ForRewardModel InternLM3ForCausalLM
    InternS1ForConditionalGeneration InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration InternVLChatModel JambaForCausalLM JetNemotronForCausalLM
    JetVLMForConditionalGeneration K2HorizonForCausalLM KimiK25ForConditionalGeneration
    KimiK3ForConditionalGeneration KimiK3LinearForCausalLM KimiLinearForCausalLM KimiVLForConditionalGeneration
    LLaDA2MoeModelLM LagunaForCausalLM Lfm2BidirectionalModel Lfm2DSparkDraftModel Lfm2ForCausalLM
    Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration LiLiCorrDraftModel LightOnOCRForConditionalGeneration
    LingDSparkModel Llama4ForCausalLM Llama4ForConditionalGeneration LlamaEmbeddingModel LlamaForCausalLM
    LlamaForCausalLMEagle LlamaForCausalLMEagle3 LlamaForClassification LlamaForSequenceClassification
    LlamaForSequenceClassificationWithNormal_Weights LlavaForConditionalGeneration LlavaLlamaForCausalLM
    LlavaMistralForCausalLM LlavaQwenForCausalLM LlavaVidForCausalLM LocateAnythingForConditionalGeneration
    LongcatFlashForCausalLM LongcatFlashForCausalLMNextN Mamba2ForCausalLM MambaForCausalLM MellumForCausalLM
    MiDashengLMModel MiMoForCausalLM MiMoMTP MiMoV2ASRForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2MTP
    MindSporeForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniCPMO MiniCPMSALAForCausalLM MiniCPMV
    MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration MiniMaxDFlash2DraftModel
    MiniMaxM2ForCausalLM MiniMaxM3ForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration
    Ministral3ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM MistralForCausalLMEagle
    MistralLarge3ForCausalLM MistralLarge3ForCausalLMEagle MistralModel MixtralForCausalLM
    MllamaForConditionalGeneration MossVLForConditionalGeneration MultiModalityCausalLM MuseGlimmerAssistantModel
    MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration MuseSparkForConditionalGeneration
    NVILAForConditionalGeneration NVILALiteForConditionalGeneration NanbeigeForCausalLM
    NanbeigeForSequenceClassification NemotronHForCausalLM NemotronHForCausalLMMTP NemotronHPuzzleForCausalLM
    NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 OPTForCausalLM
    Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoeForCausalLM OrionForCausalLM POINTSV15ChatModel
    PaddleOCRVLForConditionalGeneration PersimmonForCausalLM Phi3ForCausalLM Phi3SmallForCausalLM Phi4MMForCausalLM
    PhiForCausalLM PhiMoEForCausalLM PixtralForConditionalGeneration PixtralVisionModel QWenLMHeadModel
    QuantMixtralForCausalLM Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2ForCausalLMEagle
    Qwen2ForRewardModel Qwen2ForSequenceClassification Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration
    Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration Qwen3DSparkModel Qwen3ForCausalLM
    Qwen3ForRewardModel Qwen3ForSequenceClassification Qwen3Model Qwen3MoeForCausalLM Qwen3MoeForCausalLMMTP
    Qwen3NextForCausalLM Qwen3NextForCausalLMMTP Qwen3OmniMoeForConditionalGeneration
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForCausalLMMTP
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration Qwen4ExpForCausalLMMTP
    Qwen4ExpForConditionalGeneration SDARForCausalLM SDARMoeForCausalLM Sarashina2VisionForCausalLM
    SarvamMLAForCausalLM SarvamMoEForCausalLM SmolLM3ForCausalLM SolarForCausalLM Spark2_5ForCausalLM
    StableLmForCausalLM Starcoder2ForCausalLM Step3VLForConditionalGeneration Step3p5ForCausalLM Step3p5MTP
    Step3p7FlashForCausalLM Step3p7ForConditionalGeneration StepVLForConditionalGeneration TeleFLMForCausalLM
    TorchNativeLlamaForCausalLM TorchNativePhi3ForCausalLM TransformersEmbeddingModel TransformersForCausalLM
    TransformersForSequenceClassification TransformersMoEEmbeddingModel TransformersMoEForCausalLM
    TransformersMoEForSequenceClassification TransformersMultiModalEmbeddingModel TransformersMultiModalForCausalLM
    TransformersMultiModalForSequenceClassification TransformersMultiModalMoEEmbeddingModel
    TransformersMultiModalMoEForCausalLM TransformersMultiModalMoEForSequenceClassification UnlimitedOCRForCausalLM
    VoxtralForConditionalGeneration WhisperForConditionalGeneration XLMRobertaForSequenceClassification
    XLMRobertaModel XllmForCausalLM XverseForCausalLM XverseMoeForCausalLM YiVLForCausalLM ZayaForCausalLM
"""
ARCHITECTURES = frozenset(NAMES.split())


def note_of(geometry):
    """Return the sentence for a geometry whose architecture SGLang has no class for; "" for one that it has.

    A geometry that somebody stated need not name its architecture.
    """
    if "architecture" not in geometry:
        return ""
    architecture = geometry["architecture"]
    if architecture in ARCHITECTURES:
        return ""
    what = f"the architecture {architecture} is none that SGLang 0.5.23 has a class for"
    if not architecture:
        what = "config.json names no architecture"
    return f"{what}, so a token is reckoned by the other keys of the configuration alone ({geometry.get('attention')})"
