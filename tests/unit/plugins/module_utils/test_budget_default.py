# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's own default fraction. Expected values were worked out from the rule of each version apart from the code."""

from __future__ import annotations

import json
import pathlib

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import PlanInput, plan

KIMI = json.loads((pathlib.Path(__file__).resolve().parents[3] / "data" / "budget" / "kimi_k2.json").read_text())
GQA = {
    "architecture": "LlamaForCausalLM",
    "attention": "mha",
    "layers": 32,
    "attention_heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "dtype": "bfloat16",
}
T4, A10, RTX5090, A100_40, H100, H20, H200, B200 = 15360, 23028, 32607, 40960, 81559, 97871, 143771, 183359


def default(board_mib, version, tp=1, geometry=None, **arguments):
    entry = {"name": "board", "memory_total_mib": board_mib, "memory_free_mib": board_mib - 500}
    answer = plan(
        PlanInput(
            gpus=(entry,) * tp,
            geometry=GQA if geometry is None else geometry,
            weight_bytes=2 * 2**30 * tp,
            engine_version=version,
            arguments=dict({"tp-size": tp}, **arguments),
            pool_policy="fill",
        )
    )
    return answer.engine_default["fraction"]


@pytest.mark.parametrize(
    ("board_mib", "version", "expected"),
    [
        (T4, "0.4.4", (0.88, 0.85, 0.81)),
        (H200, "0.4.4", (0.88, 0.85, 0.81)),
        (H20, "0.4.6", (0.88, 0.88, 0.88)),
        (H200, "0.4.6", (0.872, 0.872, 0.872)),
        (T4, "0.4.9", (0.807, 0.787, 0.76)),
        (A10, "0.4.9", (0.871, 0.858, 0.84)),
        (RTX5090, "0.4.9", (0.909, 0.90, 0.887)),
        (A100_40, "0.4.9", (0.75, 0.713, 0.662)),
        (H100, "0.4.9", (0.874, 0.856, 0.831)),
        (H20, "0.4.9", (0.869, 0.854, 0.833)),
        (H200, "0.5.2", (0.911, 0.90, 0.886)),
        (B200, "0.5.2", (0.821, 0.821, 0.821)),
        (T4, "0.5.3", (0.757, 0.732, 0.699)),
        (A10, "0.5.3", (0.837, 0.815, 0.793)),
        (A100_40, "0.5.6", (0.833, 0.817, 0.805)),
        (H100, "0.5.6", (0.835, 0.824, 0.818)),
        (H20, "0.5.6", (0.863, 0.854, 0.848)),
        (H200, "0.5.9", (0.907, 0.90, 0.897)),
        (B200, "0.5.9", (0.857, 0.855, 0.852)),
        (T4, "0.5.12", (0.735, 0.71, 0.677)),
        (A10, "0.5.12", (0.822, 0.801, 0.778)),
        (A10, "0.5.20", (0.684, 0.657, 0.635)),
        (RTX5090, "0.5.12", (0.874, 0.859, 0.843)),
        (RTX5090, "0.5.23", (0.777, 0.758, 0.742)),
        (A100_40, "0.5.12", (0.823, 0.807, 0.795)),
        (H100, "0.5.16", (0.83, 0.819, 0.812)),
        (H20, "0.5.16", (0.858, 0.849, 0.844)),
        (H200, "0.5.23", (0.903, 0.897, 0.893)),
        (B200, "0.5.23", (0.854, 0.852, 0.849)),
    ],
)
def test_the_default_of_the_engine_by_board_and_version(board_mib, version, expected):
    found = tuple(default(board_mib, version, tp) for tp in (1, 4, 8))
    # Rounded once by the engine; three decimals.
    assert found == pytest.approx(expected, abs=0.0011)


@pytest.mark.parametrize(
    ("board_mib", "expected"),
    [
        (T4, (0.657, 0.632, 0.599)),
        (H100, (0.816, 0.805, 0.799)),
        (H20, (0.847, 0.838, 0.833)),
        (H200, (0.896, 0.89, 0.886)),
    ],
)
def test_latent_attention_keeps_more_for_prefill_graphs(board_mib, expected):
    found = tuple(default(board_mib, "0.5.12", tp, KIMI) for tp in (1, 4, 8))
    assert found == pytest.approx(expected, abs=0.0011)


def test_a_draft_lowers_the_default_until_it_is_charged_to_the_pool():
    def with_draft(version):
        return default(H200, version, 1, dict(GQA, draft_layers=1), **{"speculative-algorithm": "EAGLE"})

    assert with_draft("0.5.9") == pytest.approx(default(H200, "0.5.9") - 2048 / H200, abs=0.0011)
    assert with_draft("0.5.12") == pytest.approx(default(H200, "0.5.12") - 4096 / H200, abs=0.0011)
    assert with_draft("0.5.14") == default(H200, "0.5.14")


def test_images_lower_the_default():
    # 0.95 for an encoder as large as ViT-L/14, less for a larger one.
    assert default(H100, "0.5.12", 1, dict(GQA, multimodal=True)) == pytest.approx(0.95 * 0.83, abs=0.0011)
    large = dict(GQA, multimodal=True, vision_layers=27, vision_hidden_size=1152)
    # 27 x 1152^2 is 1.424 times 24 x 1024^2
    assert default(H100, "0.5.12", 1, large) == pytest.approx(0.83 * 0.95 * (1 - 0.1 * 0.4238), abs=0.0011)


def test_large_batches_and_exchange_buffers_count():
    plain = default(H200, "0.5.16", 8)
    deepep = default(H200, "0.5.16", 8, **{"moe-a2a-backend": "deepep"})
    assert deepep == pytest.approx(plain - 2048 / H200, abs=0.0011)
    # 0.5.22 and later: no graphs beyond --max-running-requests.
    few = default(H200, "0.5.23", 8, **{"max-running-requests": 16, "chunked-prefill-size": 2048})
    assert few >= plain


@pytest.mark.parametrize(
    ("board_mib", "version", "geometry", "arguments", "printed"),
    # Real starts without a fraction, and the one that they printed (ids of tests/data/startups.yaml).
    [
        (24576, "0.4.2", GQA, {}, 0.88),  # r1-distill-qwen7b-3090
        (H100, "0.4.1", GQA, {}, 0.88),  # docs-llama31-8b-2025-01-23
        (RTX5090, "0.5.22", GQA, {"cuda-graph-max-bs-decode": 32}, 0.778),  # g4poc-gemma4-26b-5090-r00
        # qwen3vl-8b-h200-profiler: an encoder 1,152 wide; its configuration does not name its layers as the engine asks
        (
            H200,
            "0.5.9",
            dict(GQA, multimodal=True, vision_hidden_size=1152),
            {"disable-piecewise-cuda-graph": True},
            0.8388,
        ),
    ],
)
def test_defaults_that_real_starts_printed(board_mib, version, geometry, arguments, printed):
    assert default(board_mib, version, 1, geometry, **arguments) == pytest.approx(printed, abs=0.0006)
