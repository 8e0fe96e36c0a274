# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: the type of the KV cache, and what C(auto) stands for. Private to the collection."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import UnknownLayout
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import (
    FP8_BY_ARCHITECTURE,
    KV_DTYPE_BY_NAME,
    MODEL_DTYPES,
)

BLACKWELL = 10.0  # compute capability from which a sparse-attention model gets an fp8 cache


def capability_of(text):
    """Return the compute capability C(text) ("9.0", "sm_100", 12.1) as a number, or None."""
    match = re.search(r"(\d{1,2})\.(\d)", str(text)) if text is not None else None
    if match:
        return float(match.group(0))
    match = re.search(r"sm_?(\d{2,3})", str(text)) if text is not None else None
    return int(match.group(1)) / 10 if match else None


def kv_dtype(geometry, arguments, engine_version=None, gpu_capability=None, notes=None):
    """Return (name, element bytes) of the KV cache. C(arguments) must be canonical; C(notes) takes what was assumed.

    C(auto) is the type the model runs in; fp8 where the checkpoint asks for it (kv_cache_quant_algo, since 0.5.4), for
    sparse-attention models on Blackwell, and for the architectures of a table. Weights of 8 or 4 bits alone do not make
    the cache smaller.
    """
    wanted = arguments.get("kv-cache-dtype")
    wanted = "auto" if wanted is None else str(wanted).strip().lower()
    if wanted != "auto":
        row = KV_DTYPE_BY_NAME.get(wanted)
        if row is None:
            if wanted in ("float16", "fp16", "half"):
                return "fp16", 2  # not an engine value, but planners name the type so
            raise UnknownLayout(f"kv-cache-dtype {wanted}", "known are auto, " + ", ".join(KV_DTYPE_BY_NAME))
        return row.name, row.element_bytes
    architecture = geometry.get("architecture")
    if geometry.get("index_head_dim") and not geometry.get("compress_ratios"):
        return _sparse_auto(gpu_capability, notes)
    row = next((row for row in FP8_BY_ARCHITECTURE if row.architecture == architecture), None)
    if row is not None and version_at_least(engine_version, row.since):
        return "fp8_e4m3", 1
    hint = geometry.get("kv_cache_quant_algo")
    if isinstance(hint, str) and hint.upper() == "FP8" and version_at_least(engine_version, "0.5.3"):
        if not version_at_least(engine_version, "0.5.4"):
            raise UnknownLayout(
                "kv_cache_quant_algo FP8 with SGLang 0.5.3", "it depends on the quantisation method there"
            )
        return "fp8_e4m3", 1
    return model_dtype(geometry, arguments)


def _sparse_auto(gpu_capability, notes):
    """DeepSeek sparse attention: fp8 from compute capability 10.0 on, else bf16, whatever the checkpoint says."""
    capability = capability_of(gpu_capability)
    if capability is None and notes is not None:
        notes.append(
            "kv-cache-dtype auto is taken as bf16, the engine takes fp8_e4m3 on boards of compute capability 10.0 and"
            " later"
        )
    return ("fp8_e4m3", 1) if capability is not None and capability >= BLACKWELL else ("bf16", 2)


def model_dtype(geometry, arguments):
    """Return (name, element bytes) of the type the model runs in: --dtype, else what the checkpoint states."""
    chosen = arguments.get("dtype")
    chosen = "auto" if chosen is None else str(chosen).strip().lower()
    if chosen == "auto":
        # The engine runs float32 checkpoints, and those that do not say, in 16 bits
        # (srt/configs/model_config.py _get_and_verify_dtype).
        declared = str(geometry.get("dtype") or "float32").lower().replace("torch.", "")
        if declared in ("float32", "float", "fp32"):
            gemma = str(geometry.get("model_type") or "").startswith("gemma")
            declared = "bfloat16" if gemma else "float16"
        chosen = declared
    if chosen not in MODEL_DTYPES:
        raise UnknownLayout(f"dtype {chosen}", "known are auto, " + ", ".join(MODEL_DTYPES))
    return MODEL_DTYPES[chosen]
