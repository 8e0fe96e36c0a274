# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, its quantisation: what configurations state of it. Private to the collection."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_figures import word

_QUANT_KEYS = ("bits", "group_size", "version", "zero_point", "fmt", "weight_block_size", "sym", "desc_act")


def quantization_of(config, text, hf_quant_config=None):
    """Return the quantisation facts of a model, or None: {method, algo, kv_cache_quant_algo, source, ...}.

    Facts only: no single bit width describes a mixed file, weight bytes come from the tensors.
    """
    for node, source in (
        (config.get("quantization_config"), "quantization_config of config.json"),
        (config.get("compression_config"), "compression_config of config.json"),
        (hf_quant_config, "hf_quant_config.json"),
    ):
        if isinstance(node, dict) and node:
            return _quantization(node, source)
    node = text.get("quantization_config") if text is not config else None
    return _quantization(node, "quantization_config of the language model") if isinstance(node, dict) and node else None


def _quantization(node, source):
    inner = node.get("quantization") if isinstance(node.get("quantization"), dict) else {}
    producer = node.get("producer") if isinstance(node.get("producer"), dict) else {}

    def value(key):
        return node.get(key) if node.get(key) is not None else inner.get(key)

    facts = {
        "method": word(value("quant_method")) or word(producer.get("name")),
        "algo": word(value("quant_algo")),
        "kv_cache_quant_algo": _kv_algo(value),
        "source": source,
    }
    facts.update({key: value(key) for key in _QUANT_KEYS if value(key) is not None})
    return facts


def _kv_algo(value):
    """The KV type that a ModelOpt checkpoint asks for; the engine ignores kv_cache_scheme of other producers."""
    scheme = value("kv_cache_scheme")
    method = str(value("quant_method") or "modelopt").lower()
    if isinstance(scheme, dict) and "modelopt" in method:
        eight_bit_float = scheme.get("type") == "float" and scheme.get("num_bits") == 8
        return "FP8" if eight_bit_float else None
    return word(value("kv_cache_quant_algo"))


def note_quantization(geometry, quantization):
    """Note in the geometry what decides memory: the KV type that is asked for, and that weights keep their types."""
    geometry["kv_cache_quant_algo"] = (quantization or {}).get("kv_cache_quant_algo")
    geometry["quantized"] = quantization is not None
