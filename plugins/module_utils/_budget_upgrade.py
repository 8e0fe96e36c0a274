# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what an engine upgrade moves: changes between two versions that shift the needed fraction. Private."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_draft import algorithm_of


@dataclass(frozen=True)
class Move:
    """A change at engine version C(since). C(concerns) names the test below; C(text) goes on after the version."""

    since: str
    concerns: str
    text: str
    source: str


MOVES = (
    Move(
        "0.5.8",
        "unequal",
        "values of another width than keys are charged: the cell and the needed fraction change",
        "model_runner.py, v_head_dim",
    ),
    Move(
        "0.5.9",
        "window",
        "the window pool is split another way: the same fraction holds another number of tokens",
        "model_runner_kv_cache_mixin.py, hybrid SWA",
    ),
    Move(
        "0.5.11",
        "window",
        "window layers are charged at the window's share of tokens: the same fraction holds more tokens",
        "pool_configurator.py, HybridSWAPoolConfigurator",
    ),
    Move(
        "0.5.14",
        "draft",
        "draft weights and the draft's pool move inside the fraction: it has to be higher, the headroom may be smaller",
        "model_runner_kv_cache_mixin.py",
    ),
    Move(
        "0.5.17",
        "sparse_fp8",
        "rows of a sparse fp8 cache are charged at their real width: fewer tokens for the same fraction, more headroom",
        "pool_configurator.py, calculate_mla_kv_cache_dim",
    ),
    Move(
        "0.5.18",
        "multimodal",
        "a multimodal reservation is taken off the pool: 0.1 GiB, and 1 GiB more with a GPU feature transport",
        "kv_cache_configurator.py",
    ),
    Move(
        "0.5.10",
        "default",
        "SGLang's own default fraction falls (prefill graphs are on by default)",
        "server_args.py",
    ),
    Move("0.5.14", "default_draft", "SGLang's own default fraction rises with a draft model", "server_args.py"),
    Move(
        "0.5.20",
        "default_small",
        "SGLang's own default fraction falls by about 0.1 on boards of 20 to 35 GiB (chunk 4,096, graphs up to 48)",
        "memory_hook.py",
    ),
    Move(
        "0.5.20",
        "noise",
        "garbage is collected before the pool is sized: two starts differ by 0.1 GiB at most instead of 0.5",
        "kv_cache_configurator.py, sgl-project/sglang pull 36583",
    ),
)


def _concerns(inp, base):
    """Return {name: whether this configuration is concerned}."""
    geometry, cell = inp.geometry or {}, base.cell
    draft = algorithm_of(inp.arguments) not in (None, "NGRAM")
    own_default = inp.fraction is None and inp.target_tokens is None
    small = base.board_mib is not None and 20 * 1024 <= base.board_mib < 35 * 1024
    value_dim = geometry.get("v_head_dim")
    return {
        "unequal": geometry.get("attention") == "mha" and value_dim not in (None, geometry.get("head_dim")),
        "window": bool(cell is not None and cell.window_bytes),
        "draft": draft,
        "sparse_fp8": bool(
            geometry.get("index_head_dim") and cell is not None and str(cell.kv_dtype).startswith("fp8")
        ),
        "multimodal": known.is_multimodal(inp),
        "default": own_default,
        "default_draft": own_default and draft,
        "default_small": own_default and small,
        "noise": inp.device != "cpu",
    }


def version_before(inp):
    """Return the newest engine version that an earlier start-up of this host had and this plan has not, or None."""
    measured = known.newest(
        inp.measurements,
        lambda one: one.get("engine_version") and one.get("origin", "host") == "host",
    )
    found = measured and str(measured["engine_version"])
    return found if found and inp.engine_version and found != inp.engine_version else None


def lines(inp, base):
    """Return one sentence for each change between the version that ran here and the planned one."""
    old, new = version_before(inp), inp.engine_version
    if old is None:
        return []
    up = version_at_least(new, old)
    low, high = (old, new) if up else (new, old)
    concerns = _concerns(inp, base)
    found = []
    for move in MOVES:
        crossed = version_at_least(high, move.since) and not version_at_least(low, move.since)
        if crossed and concerns[move.concerns]:
            way = f"from {move.since} on" if up else f"goes back over {move.since}, from which on"
            found.append(f"SGLang {old} to {new}: {way} {move.text} ({move.source}).")
    return found
