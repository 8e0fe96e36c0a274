# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, arguments that move memory beside weights and pool: what is counted, and what cannot be. Private.

What cannot be counted before the first start is a line of the plan: the figures of that start have it in them.
Paths of sources are inside the package sglang of version 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_activation as activation
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import (
    GIB,
    Figure,
    is_multimodal,
    is_newer,
    is_older,
    is_source_tree,
    model_ranks,
    size,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts import is_set
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import argument_number, kv_heads_per_rank

# ---------------------------------------------------------------------------
# Buffers of LoRA adapters: allocated after the load and before the pool is sized
# ---------------------------------------------------------------------------

LORA_SOURCE = "srt/lora/mem_pool.py LoRAMemoryPool.init_buffers: zeros for every slot, layer and module"
LORA_SLOTS = 8  # max-loras-per-batch, srt/arg_groups/fields/lora.py
# What adapters call the modules, and the modules of the engine (srt/lora/utils.py get_normalized_target_modules).
LORA_MODULES = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "qkv_proj": "qkv_proj",
    "o_proj": "o_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "gate_up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}


def lora_on(arguments):
    """Return whether adapters can be served: stated, or because lora-paths names some (srt/arg_groups/lora_hook.py)."""
    stated = arguments.get("enable-lora")
    return bool(arguments.get("lora-paths")) if stated is None else _kv.is_on(stated)


def _lora_modules(arguments):
    """Return the modules of the engine that adapters change, or None where that is not stated or not counted here."""
    stated = arguments.get("lora-target-modules")
    names = stated.replace(",", " ").split() if isinstance(stated, str) else stated
    if not isinstance(names, (list, tuple)) or not names or any(name not in LORA_MODULES for name in names):
        return None
    return sorted({LORA_MODULES[name] for name in names})


def _lora_numbers(module, geometry, tp, attention_tp):
    """Return (numbers of A, numbers of B) for one of the ranks of an adapter, of one layer, on one rank."""
    hidden, heads, head_dim = (geometry[name] for name in ("hidden_size", "attention_heads", "head_dim"))
    value_dim = geometry.get("v_head_dim") or head_dim
    inner = geometry.get("intermediate_size") or 0
    keys_and_values = 2 * kv_heads_per_rank(geometry["kv_heads"], attention_tp) * head_dim
    return {
        "qkv_proj": (3 * hidden, heads // attention_tp * head_dim + keys_and_values),
        "o_proj": (heads * value_dim // attention_tp, hidden),
        "gate_up_proj": (2 * hidden, 2 * inner // tp),
        "down_proj": (inner // tp, hidden),
    }[module]


def lora_row(inp):
    """Return the Figure of the buffers of adapters, or None where there are none or their size cannot be told."""
    if not lora_on(inp.arguments) or not _lora_countable(inp):
        return None
    geometry, rank = inp.geometry, argument_number(inp.arguments, "max-lora-rank")
    shared = _kv.ranks(inp.arguments, inp.engine_version)
    modules = _lora_modules(inp.arguments)
    numbers = sum(sum(_lora_numbers(one, geometry, size(inp, "tp-size"), shared.attention_tp)) for one in modules)
    slots = argument_number(inp.arguments, "max-loras-per-batch", LORA_SLOTS)
    gib = slots * rank * numbers * geometry["layers"] * _kv.model_dtype(geometry, inp.arguments)[1] / GIB
    note = f"{slots} adapters of rank {rank} in {', '.join(modules)}: {LORA_SOURCE}"
    return Figure(gib, 0.02 * gib, "table", note, "adapter buffers")


def _lora_countable(inp):
    geometry = inp.geometry or {}
    needed = ("hidden_size", "attention_heads", "head_dim", "kv_heads", "intermediate_size", "layers")
    plain = geometry.get("attention") == "mha" and not geometry.get("experts") and not geometry.get("state")
    stated = inp.arguments.get("max-lora-rank") is not None and _lora_modules(inp.arguments)
    return bool(plain and stated and all(geometry.get(name) for name in needed))


# ---------------------------------------------------------------------------
# Lines of the plan
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Uncounted:
    """An argument whose memory no rule here counts. C(values): only these switch it on; empty: any that is set."""

    argument: str
    values: tuple
    what: str
    source: str


UNCOUNTED = (
    Uncounted(
        "enable-memory-saver", (), "weights, pool and graphs lie in allocations of their own", "torch_memory_saver"
    ),
    Uncounted("offload-group-size", (), "groups of layers are fetched from host memory", "srt/utils/offloader.py"),
    Uncounted("enable-two-batch-overlap", (), "two batches are held at once", "srt/batch_overlap"),
    Uncounted("enable-torch-compile", (), "compiled kernels and their buffers", "srt/arg_groups/fields/exec_.py"),
    Uncounted("enable-eplb", (), "experts are moved while it serves", "srt/eplb"),
    Uncounted("elastic-ep-backend", (), "a second copy of experts is held ready", "srt/elastic_ep"),
    Uncounted("disaggregation-mode", ("prefill", "decode"), "buffers of the transfer", "srt/disaggregation"),
    Uncounted("weight-cache-mode", (), "weights that another process holds", "srt/model_loader/loader.py"),
    Uncounted(
        "load-format",
        ("sharded_state", "presharded", "expert_pack", "bitsandbytes", "flash_rl", "remote", "remote_instance"),
        "weights that are not loaded as they stand in the safetensors",
        "srt/model_loader/loader.py",
    ),
    Uncounted("kt-method", (), "experts are computed by the CPU", "srt/arg_groups/fields/exec_.py"),
    Uncounted(
        "enable-return-hidden-states", (), "hidden states are kept for answers", "srt/arg_groups/fields/exec_.py"
    ),
)
WITH_FIRST_START = "cannot be counted before a first start"


def _uncounted(arguments):
    found = []
    for row in UNCOUNTED:
        value = arguments.get(row.argument)
        if value is None or not (str(value).strip().lower() in row.values if row.values else is_set(value)):
            continue
        shown = row.argument if not row.values else f"{row.argument} {value}"
        found.append(f"{shown}: {row.what}, which {WITH_FIRST_START} ({row.source})")
    return found


HICACHE_RATIO = 2.0  # srt/arg_groups/fields/memory.py, cache mode


def _hicache(inp, pool_gib):
    """The host's cache adds nothing to the pool, and takes RAM for every rank on this host."""
    arguments = inp.arguments
    if not _kv.is_on(arguments.get("enable-hierarchical-cache") or False):
        return []
    here = max(1, model_ranks(inp) // size(inp, "nnodes"))
    fixed = arguments.get("hicache-size")
    if fixed is not None and argument_number(arguments, "hicache-size", minimum=0):
        each_gib, how = float(fixed) * 1e9 / GIB, f"hicache-size {fixed}"
    else:
        ratio = float(arguments.get("hicache-ratio") or HICACHE_RATIO)
        each_gib, how = None if pool_gib is None else ratio * pool_gib, f"hicache-ratio {ratio:g}"
    ram = "RAM of this host" if each_gib is None else f"about {each_gib * here:.1f} GiB of this host's RAM"
    return [f"enable-hierarchical-cache adds nothing to the pool and takes {ram} ({how}, {here} ranks here)"]


def _lora(inp):
    if not lora_on(inp.arguments) or _lora_countable(inp):
        return []
    way = "state max-lora-rank and lora-target-modules in the server arguments"
    if (inp.geometry or {}).get("experts") or (inp.geometry or {}).get("attention") != "mha":
        way = "its adapters of experts or latents are not counted here"
    return [f"enable-lora: buffers for its adapters come off the pool, which {WITH_FIRST_START} ({way})"]


def _version(inp):
    version = inp.engine_version
    if is_source_tree(version):
        return [f"SGLang {version} is a build from a source tree: those of {tables.NEWEST_READ} count, in a wide band"]
    if is_newer(version):
        return [
            f"SGLang {version} is newer than {tables.NEWEST_READ}, the newest whose rules are known: those count, in"
            " the wide band of an unknown version"
        ]
    if is_older(version):
        return [
            f"SGLang {version} is older than {tables.OLDEST_READ}, from which on every version was read: the nearest"
            " rules count"
        ]
    return []


def _shape(inp):
    missing = activation.missing_shape(inp.geometry or {})
    if not missing or inp.device == "cpu":
        return []
    return [
        "{} of the geometry not stated: the activations are reckoned high, so state what the model has (experts: 0"
        " where it has none)".format(" and ".join(missing))
    ]


def _context(inp):
    """A request can be as long as the model allows, unless the plan or the user says less."""
    if inp.context_tokens is not None or inp.max_context_tokens is not None or not inp.geometry:
        return []
    target = "the target" if inp.target_tokens else "the pool"
    return [
        f"the longest request of the model is not known, so no context-length is set and the request table is reckoned"
        f" with {target}: state sglang_server_context_tokens, or max_context_tokens in the geometry"
    ]


def lines(inp, base, pool_gib):
    """Return what the reader of a plan has to know beside its rows, one sentence without a full stop each."""
    found = _version(inp) + (list(base.used.notes) if base.used else [])
    found += _shape(inp) + _context(inp)
    if base.cell is not None and base.cell.note:
        found += base.cell.note.split("; ")
    found += _lora(inp) + _uncounted(inp.arguments) + _hicache(inp, pool_gib)
    if is_multimodal(inp) and inp.device != "cpu":
        found.append("images and sound: what an encoder takes at once is not known, only a soak shows it")
    return found


# ---------------------------------------------------------------------------
# What makes the weights another thing than their files
# ---------------------------------------------------------------------------


def is_gguf(arguments):
    """Return whether the engine would load one GGUF file: by its load format, its quantisation or the name."""
    named = [str(arguments.get(name) or "").strip().lower() for name in ("load-format", "quantization")]
    return "gguf" in named or str(arguments.get("model-path") or "").lower().endswith(".gguf")


GGUF = (
    "The server would load a GGUF file, whose weights are not read here and are others than those of the safetensors"
    " in its folder: take gguf out of the server arguments load-format, quantization or model-path and use the"
    " safetensors release of the model."
)
