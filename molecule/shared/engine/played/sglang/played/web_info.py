# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server tells of itself: the body of /server_info and the metrics, as each version has them."""

from __future__ import annotations

import logging
import os
import time

from sglang.played import cuda_lines, versions


def memory_usage(usage: dict) -> dict | None:
    """memory_usage of one DP rank. None before 0.4.9; graphs are one number up to 0.5.16, by phase since."""
    if not versions.at_least("0.4.9"):
        return None
    pool, graphs = usage["pool"], usage["graphs"]
    if not versions.at_least("0.5.17"):
        name = "graph" if versions.at_least("0.5.2") else "cuda_graph"
        told = {"weight": round(usage["weight_gib"], 2), "kvcache": round(pool["kv_gib"], 2),
                "token_capacity": pool["tokens"], name: round(sum(graphs.values()), 2)}
        return told if versions.at_least("0.5.2") else {**told, "load": 0}
    return {
        "weight": round(usage["weight_gib"], 3), "kvcache": round(pool["kv_gib"], 3), "token_capacity": pool["tokens"],
        "graph": {phase: round(gib, 3) for phase, gib in graphs.items()},
        "startup_available": round(pool["free_ready_gib"], 3),
        "token_capacity_swa": pool.get("sliding_tokens") or None,
    }


def server_info(state) -> dict:
    """The arguments, the pool, and one state for each DP rank."""
    pool = state.pool
    states = []
    for place, usage in enumerate(state.usages):
        groups = getattr(state.generator, "groups", None)
        told = {"last_gen_throughput": groups[place].gen_throughput if groups else 0.0}
        figures = memory_usage(usage)
        if figures is not None:
            told["memory_usage"] = figures
        if versions.at_least("0.5.10"):
            told["effective_max_running_requests_per_dp"] = usage["pool"]["running_requests"]
        states.append(told)
    return {
        **{name: value for name, value in vars(state.arguments).items() if name != "config"},
        "max_total_num_tokens": pool["tokens"],
        "max_req_input_len": min(state.model["context_tokens"], pool["tokens"]) - 6,
        "internal_states": states,
        "version": versions.__version__,
    }


def metrics(state) -> str:
    """Prometheus text: a series for each DP rank on GPUs, one on a CPU."""
    made = state.generator
    groups = getattr(made, "groups", None)
    rows = []
    if groups is None:
        held = made.open.values()
        rows.append(({}, {
            "num_running_reqs": sum(1 for one in held if one), "num_queue_reqs": sum(1 for one in held if not one),
            "num_used_tokens": sum(held), "token_usage": made.usage(), "max_total_num_tokens": made.pool_tokens,
        }))
    for place, one in enumerate(groups or []):
        label = {"dp_rank": str(place)} if len(groups) > 1 else {}
        rows.append((label, {
            "num_running_reqs": len(one.running), "num_queue_reqs": len(one.waiting),
            "num_used_tokens": one.used_tokens, "token_usage": one.usage, "gen_throughput": one.gen_throughput,
            "max_total_num_tokens": one.pool_tokens, "num_retracted_reqs": one.retractions,
        }))
    rows.append(({}, {
        "prompt_tokens_total": made.prompt_tokens, "generation_tokens_total": made.generation_tokens,
        "num_requests_total": made.requests,
    }))
    text, typed = "", set()
    for label, figures in rows:
        all_labels = {"engine_type": "unified", "model_name": state.name, "pp_rank": "0", "tp_rank": "0", **label}
        inner = ",".join(f'{name}="{value}"' for name, value in all_labels.items())
        for name, value in figures.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            if name not in typed:
                typed.add(name)
                text += f"# TYPE sglang:{name} {kind}\n"
            text += f"sglang:{name}{{{inner}}} {float(value)}\n"
    return text


def is_well(state, generates: bool) -> bool:
    """The answer of /health and /health_generate, with its line when it is bad."""
    if state.draining:
        logging.info("Health check request received during shutdown. Returning 503.")
        return False
    if state.status == "starting" and (versions.at_least("0.5.1") or not hasattr(state.generator, "is_healthy")):
        return False
    if not hasattr(state.generator, "is_healthy") or not (generates or versions.at_least("0.4.10")):
        return True
    off = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower() in ("0", "false")
    if not generates and off and versions.at_least("0.5.6"):
        return True
    seconds = int(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT") or 20)
    began = time.strftime("%H:%M:%S")
    if state.generator.is_healthy(seconds):
        return True
    heard = time.strftime("%H:%M:%S", time.localtime(state.generator.groups[0].heard))
    logging.error(cuda_lines.unhealthy(seconds, began, heard))
    return False
