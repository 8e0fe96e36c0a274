# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs, by version: tables only. Private to the collection."""

from __future__ import annotations

from dataclasses import dataclass


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


FP4_FORMS = (
    Fp4Form("0.5.6", "0.5.15", False, "sglang 0.5.6 srt/model_executor/model_runner.py, 0.5.14 pool_configurator.py"),
    Fp4Form("0.5.17", "0.5.18", True, "sglang 0.5.17 srt/model_executor/pool_configurator.py"),
)


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
    """How speculation changes the cell from version C(since) on. C(effect): none, layers (cell grows by draft layers)
    or unknown."""

    algorithm: str
    since: str
    effect: str
    source: str


POOL_SOURCE = "srt/model_executor/pool_configurator.py"
# The last row of an algorithm whose version has come counts.
DRAFT_RULES = (
    DraftRule("NGRAM", "0.0", "none", "no draft model"),
    DraftRule("EAGLE", "0.0", "none", "the draft lies outside the fraction before 0.5.14"),
    DraftRule("EAGLE", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("EAGLE3", "0.0", "none", "the draft lies outside the fraction before 0.5.14"),
    DraftRule("EAGLE3", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("NEXTN", "0.0", "none", "the draft lies outside the fraction before 0.5.14"),
    DraftRule("NEXTN", "0.5.14", "layers", POOL_SOURCE),
    DraftRule("STANDALONE", "0.0", "none", "the draft lies outside the fraction before 0.5.14"),
    DraftRule("STANDALONE", "0.5.14", "layers", POOL_SOURCE),
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
