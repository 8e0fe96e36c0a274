# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failures: what went wrong (private to the collection).

Entries of one invocation in, the cause of its death out: not the last line, but the first one that names a cause, with
the phase in which it happened, the figures that it gives and what to change. The table is in _failure_catalogue, the
reading in _failure_walk, the choice of the line in _failure_case, the arithmetic in _failure_figures, the telling in
_failure_record, and what no line names in _failure_unnamed.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_case import Case, is_fatal, is_sure, phase_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import (
    BY_PHASE,
    COLLECTIVE,
    HOST_MEMORY,
    HOST_MEMORY_FRAME,
    NOTICE,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_figures import (
    INFEASIBLE,
    judge_out_of_memory,
    judge_pool,
    judge_tokens,
    parse_out_of_memory,
    repository_figures,
    unbalanced_figures,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_record import (
    Failure,
    advice_with,
    evidence_of,
    figures_of,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_unnamed import (
    from_exceptions,
    from_markers,
    from_unit,
    stalled,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text

# The kind of a device memory death, by the phase in which it happened.
KIND_BY_PHASE = {
    "process": "oom_weights",
    "init": "oom_weights",
    "weights": "oom_weights",
    # Between the weights and the graphs the same lever helps as at the graphs: the fraction was too high for what was
    # free. The phase and the shape (see _failure_figures) tell the two apart.
    "pool": "oom_graph_capture",
    "graphs": "oom_graph_capture",
    "warmup": "oom_prefill",
    "prefill": "oom_prefill",
    "serving": "oom_prefill",
    "decode": "oom_decode",
}

# Words that end a server were read, and it works on.
SURVIVED = "The server lived on, and a request or a command ended by it: look at what was asked when it comes again."

# Kinds in which memory of the device or of the pool ran out.
MEMORY_KINDS = ("oom_weights", "oom_graph_capture", "oom_prefill", "oom_decode", "kv_pool_too_small")


def classify(
    entries,
    startup=None,
    unit=None,
    target_tokens=None,
    cell_bytes=None,
    silence_seconds=None,
    deadline_seconds=None,
    secrets=(),
    case=None,
):
    """Name the cause of death of one invocation, or return None when nothing died.

    entries: list of _journal_lines.Entry of one invocation (kernel lines may be among them); startup: its
    _startup.Startup (read here when not given); unit: _unit.UnitState read after the entries, which confirms the end;
    target_tokens and cell_bytes (bytes of one token on one rank) let a pool that is too small be judged for good;
    silence_seconds and deadline_seconds name a hang that no line tells; secrets: texts that must not be returned; case:
    the Case of these entries where it was read already.
    """
    case = case or Case(entries, startup, unit, secrets)
    cause = case.cause()
    failure = _from_hit(cause, case, target_tokens, cell_bytes) if cause else None
    if case.over and case.unit.result == "oom-kill" and (failure is None or failure.kind != "host_oom_kill"):
        failure = from_unit(case)
    failure = failure or from_exceptions(case) or from_markers(case)
    if failure is None and case.over and not case.asked_to_stop():
        failure = from_unit(case)
    if (
        failure is None
        and case.startup.state == "loading"
        and silence_seconds is not None
        and deadline_seconds is not None
        and silence_seconds >= deadline_seconds
    ):
        failure = stalled(case, silence_seconds, deadline_seconds)
    if failure is None:
        return None
    consequence_at = case.markers[0].entry.realtime_seconds if case.markers else None
    return dataclasses.replace(failure, consequence_at=consequence_at)


def _from_hit(hit, case, target_tokens, cell_bytes):
    """Make the failure of the row that matched."""
    row = hit.row
    kind, phase = row.kind, phase_of(hit, case.wrapper_phases)
    if kind == BY_PHASE:
        # A line without any context: most of these deaths happen in a prefill, and nothing says where this one did.
        phase = None if phase == "process" else phase
        kind = KIND_BY_PHASE.get(phase, "oom_prefill")
    direction, advice, figures = _judge(hit, case, kind, phase, target_tokens, cell_bytes)
    fault = row.fault
    if _is_memory(row) and _is_host_memory(hit):
        # The CUDA call that pins host memory uses the words of the board's memory.
        kind, direction, advice, fault = "host_oom_kill", "keep", HOST_MEMORY, "host"
    if row.role == COLLECTIVE and kind == "comm_init" and hit.after_ready:
        kind = "comm_timeout"
    exit_code = case.exit_code()
    if exit_code is not None:
        figures.setdefault("exit_code", exit_code)
    dead_rank = case.dead_rank()
    if dead_rank is not None:
        figures.setdefault("rank", dead_rank)
    return Failure(
        kind=kind,
        phase=phase,
        fatal=is_sure(hit) or case.over or bool(case.markers) or is_fatal(hit),
        direction=direction,
        evidence=evidence_of(hit, case.secrets),
        advice=mask_text(advice_with(advice, figures), case.secrets),
        figures=figures,
        transient=row.transient,
        at=hit.entry.realtime_seconds,
        fault=fault,
        row=row.name,
        ranks=case.ranks(hit),
    )


def _judge(hit, case, kind, phase, target_tokens, cell_bytes):
    """Return (direction, advice, figures) of a hit: those of its row, sharpened by what the log gives in numbers."""
    row, direction, advice, figures = hit.row, hit.row.direction, hit.row.advice, figures_of(hit.match)
    if _is_memory(row):
        figures.update(_richest_figures(hit, case))
        direction, figures["shape"], judged = judge_out_of_memory(kind, figures, phase)
        advice = judged if row.name != "workspace" else advice
    elif row.name in ("prefill_tokens", "decode_tokens", "tokens"):
        direction, advice = judge_tokens(case.following(hit), figures, advice)
    elif kind == "kv_pool_too_small" and direction == "raise":
        direction, figures = judge_pool(case.startup, figures, direction, target_tokens, cell_bytes)
        advice = INFEASIBLE if direction == "infeasible" else advice
    elif row.name == "unbalanced":
        figures.update(unbalanced_figures(hit.text))
    elif row.name in ("gated", "http_401", "http_403", "restricted", "repository_not_found"):
        figures.update(repository_figures(case.following(hit, 10)))
    elif row.name == "peer_closed" and hit.batch == "prefill" and hit.after_ready:
        # Nobody said why the peer ended. In the middle of a prefill, memory is the likely reason.
        direction = "lower"
    return direction, advice, figures


def _is_host_memory(hit):
    """Tell whether a memory error was raised where host memory is taken for the hierarchical cache."""
    frames = hit.block.frames if hit.block is not None else []
    return not parse_out_of_memory(hit.text) and any(HOST_MEMORY_FRAME.search(frame) for frame in frames[-4:])


def _is_memory(row):
    return row.kind == BY_PHASE and row.direction == "lower"


def _richest_figures(hit, case):
    """Return the figures of the text of this death that tells most: chained texts often repeat a shorter form."""
    best = parse_out_of_memory(case.following(hit))
    for other in case.walk.hits:
        if _is_memory(other.row) and other.rank == hit.rank and other.index >= hit.index:
            figures = parse_out_of_memory(case.following(other))
            same = figures.get("wanted_mib") == best.get("wanted_mib", figures.get("wanted_mib"))
            if len(figures) > len(best) and same:
                best = figures
    return best


def notices(case):
    """Return what is worth knowing and ended nothing: [{name, evidence, advice, count, at}], first seen first.

    case: the Case of an invocation.
    """
    found, seen = {}, set()
    told = [hit for hit in case.walk.hits if hit.row.role == NOTICE and hit.row.advice]
    for hit in sorted(told + case.survived(), key=lambda hit: hit.index):
        if hit.row.role != NOTICE and hit.index in seen:
            continue
        seen.add(hit.index)
        advice = hit.row.advice if hit.row.role == NOTICE else SURVIVED
        notice = found.setdefault(
            hit.row.name,
            {
                "name": hit.row.name,
                "evidence": evidence_of(hit, case.secrets),
                "advice": advice,
                "count": 0,
                "at": hit.entry.realtime_seconds,
            },
        )
        notice["count"] += 1
    return list(found.values())
