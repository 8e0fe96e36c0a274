# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failures: what went wrong (private to the collection).

Entries of one invocation in, the cause of its death out: not the last line, but the first one that names a cause, with
the phase in which it happened, the figures that it gives and what to change. The table is in _failure_catalogue, the
reading in _failure_walk, the arithmetic in _failure_figures.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unit
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import (
    BY_PHASE,
    COLLECTIVE,
    CONSEQUENCE,
    FRAME_PHASES,
    FRAMES,
    NOTICE,
    PREFERENCE,
    WRAPPER,
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
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_walk import Walk
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal import KERNEL, SERVICE
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text

# The kind of a device memory death, by the phase in which it happened.
KIND_BY_PHASE = {
    "process": "oom_weights",
    "init": "oom_weights",
    "weights": "oom_weights",
    "pool": "oom_pool",
    "graphs": "oom_graph_capture",
    "warmup": "oom_prefill",
    "prefill": "oom_prefill",
    "serving": "oom_prefill",
    "decode": "oom_decode",
}

# Kinds in which memory of the device or of the pool ran out.
MEMORY_KINDS = ("oom_weights", "oom_pool", "oom_graph_capture", "oom_prefill", "oom_decode", "kv_pool_too_small")

EVIDENCE_LENGTH = 400


@dataclasses.dataclass(frozen=True)
class Failure:
    """A named death. ``at``: epoch seconds of the evidence; ``figures``: its numbers, units in their names."""

    kind: str
    phase: str | None = None
    fatal: bool = True
    direction: str | None = "keep"
    evidence: str = ""
    advice: str = ""
    figures: dict = dataclasses.field(default_factory=dict)
    transient: bool = False
    at: float | None = None
    consequence_at: float | None = None
    fault: str = "configuration"
    row: str | None = None
    ranks: tuple = ()

    def as_dict(self):
        """Return plain JSON types."""
        data = dataclasses.asdict(self)
        data["ranks"] = list(self.ranks)
        return data


# ---------------------------------------------------------------------------------------------------------------------
# Choosing


def _is_ours(hit, unit, pids):
    """Tell whether a kernel's out-of-memory line is about this unit; other services of the host are killed too."""
    if hit.row.name not in ("kernel_oom_kill", "kernel_out_of_memory") or hit.entry.source != KERNEL:
        return True
    found = hit.match.groupdict()
    pid = int(found["pid"]) if found.get("pid") else None
    if pid is not None and pid in pids:
        return True
    memcg = found.get("memcg") or ""
    if unit is not None and (unit.name or unit.control_group) and memcg:
        return bool(unit.name and "/" + unit.name in memcg) or bool(
            unit.control_group and memcg.startswith(unit.control_group)
        )
    return re.match(r"sglang|python|pt_|ray", found.get("task") or "") is not None or "sglang" in memcg


# A weak row counts for a reported death when it was read at most so many lines before it.
_NEAR_LINES = 80


def _counts(hit, reader, death):
    """Tell whether a hit can be the cause: not when the server became ready after it, and then only what ends a server.

    death: index of the first exception of a reported death; words that are often harmless must stand near it.
    """
    if hit.row.role not in PREFERENCE:
        return False
    if death is not None and not hit.row.decisive and hit.index < death - _NEAR_LINES:
        return False
    if reader.ready_index is not None and hit.index < reader.ready_index:
        return False
    if hit.after_ready:
        return hit.row.anytime or (hit.block is not None and hit.block.fatal)
    return True


def _preference(hit):
    sure = hit.row.decisive or (hit.block is not None and hit.block.fatal)
    return (PREFERENCE[hit.row.role], 0 if sure else 1, hit.index)


_DEATH_ROWS = (
    "exception",
    "sigquit",
    "rank_died",
    "rank_dead",
    "child_failed",
    "subprocess_crashed",
    "terminated_with",
    "init_failed",
    "exit_code",
)


def _markers(reader, names=None):
    """Return the hits that say that somebody died: after the ready line, before a stop that was asked for."""
    found = []
    for hit in reader.hits:
        if hit.row.role != CONSEQUENCE or (names and hit.row.name not in names):
            continue
        if reader.ready_index is not None and hit.index < reader.ready_index:
            continue
        if reader.stopping_index is not None and hit.index > reader.stopping_index:
            continue
        found.append(hit)
    return found


def _phase_of_frames(frames):
    """Return the phase in which a traceback was raised, or None. A serving loop among the frames decides first."""
    joined = "\n".join(frames)
    patterns = dict(FRAME_PHASES)
    order = (
        ("prefill", "decode", "serving")
        if patterns["serving"].search(joined)
        else ("graphs", "pool", "weights", "init", "prefill", "decode")
    )
    for name in order:
        if patterns[name].search(joined):
            return name
    return None


def _phase(hit, wrapper_phases):
    """Return the phase of a hit: its row's, the chain's, the traceback's, and last what the start-up had reached."""
    row_phase = getattr(hit, "row", None) and hit.row.phase
    if row_phase:
        return row_phase
    block = hit.block
    if block is not None and block.wrapper_phase:
        return block.wrapper_phase
    if hit.index in wrapper_phases:
        return wrapper_phases[hit.index]
    from_frames = _phase_of_frames(block.frames) if block is not None and block.frames else None
    if from_frames and from_frames != "serving":
        return from_frames
    if hit.batch is not None or hit.after_ready or from_frames == "serving":
        return hit.batch or "serving"
    return hit.phase


def _figures(match):
    figures = {}
    for name, value in match.groupdict().items():
        if value is None or name in ("device", "wanted", "what"):
            continue
        number = None
        if re.fullmatch(r"-?\d{1,15}", value):
            number = int(value)
        elif re.fullmatch(r"-?\d{0,10}\.\d{1,10}", value):
            number = float(value)
        figures[name] = number if number is not None else value.strip(" '\"`")[:200]
    return figures


class _Defaults(dict):
    """Names that an advice uses and a log did not give."""

    WORDS = {
        "above": "",
        "repo": "the model",
        "option": "the argument",
        "port": "in question",
        "path": "the target folder",
        "module": "in question",
        "architecture": "this architecture",
        "format": "in its config.json",
        "step": "in question",
    }

    def __missing__(self, key):
        return self.WORDS.get(key, "it")


def _advice(text, figures):
    words = _Defaults(figures)
    if "above" in figures:
        words["above"] = " above {0}".format(figures["above"])
    return text.format_map(words)


def _evidence(hit, secrets):
    text = hit.text
    match = getattr(hit, "match", None)
    if match is not None and hit.row.name == "architecture":
        text = text[: match.end()]
    if len(text) > EVIDENCE_LENGTH:
        begin = match.start() if match is not None and match.start() > EVIDENCE_LENGTH // 2 else 0
        text = text[begin : begin + EVIDENCE_LENGTH] + " ..."
    return mask_text(text.strip(), secrets)


def _ranks(hit, reader):
    found = {other.rank for other in reader.hits if other.row.name == hit.row.name and other.rank}
    return tuple(sorted(found, key=lambda rank: [int(number) for number in re.findall(r"\d+", rank)]))


# ---------------------------------------------------------------------------------------------------------------------
# Device memory


def _following(reader_entries, hit, lines=6):
    """Return the evidence with the lines behind it: some texts continue on the next ones."""
    texts = [hit.text]
    for entry in reader_entries[hit.index + 1 : hit.index + 1 + lines]:
        if entry.pid == hit.entry.pid and entry.source == SERVICE and not entry.message.startswith("["):
            texts.append(entry.message)
    return "\n".join(texts)


# ---------------------------------------------------------------------------------------------------------------------
# The answer


def classify(
    entries,
    startup=None,
    unit=None,
    target_tokens=None,
    cell_bytes=None,
    silence_seconds=None,
    deadline_seconds=None,
    secrets=(),
):
    """Name the cause of death of one invocation, or return None when nothing died.

    entries: list of _journal.Entry of one invocation (kernel lines may be among them); startup: its _startup.Startup
    (read here when not given); unit: _unit.UnitState read after the entries, which confirms the end; target_tokens and
    cell_bytes (bytes of one token on one rank) let a pool that is too small be judged for good; silence_seconds and
    deadline_seconds name a hang that no line tells; secrets: texts that must not be returned.
    """
    entries = list(entries)
    reader = Walk()
    for index, entry in enumerate(entries):
        reader.feed(index, entry)
    if startup is None:
        startup = reader.startup.result()
    over = unit is not None and _unit.ended(unit)
    death = next((item.index for item in reader.exceptions if item.block is not None and item.block.fatal), None)
    hits = [hit for hit in reader.hits if _counts(hit, reader, death) and _is_ours(hit, unit, reader.pids)]
    markers = _markers(reader)
    consequence_at = markers[0].entry.realtime_seconds if markers else None
    failure = None
    if hits:
        failure = _from_hit(
            min(hits, key=_preference),
            reader,
            entries,
            startup,
            over or bool(markers),
            target_tokens,
            cell_bytes,
            secrets,
        )
    if unit is not None and over and unit.result == "oom-kill" and (failure is None or failure.kind != "host_oom_kill"):
        failure = _from_unit(unit, reader, secrets)
    if failure is None:
        failure = _from_exceptions(reader, markers, over, secrets)
    if failure is None:
        failure = _from_markers(reader, markers, unit, over, secrets)
    if failure is None and over and not _asked_to_stop(reader, unit):
        failure = _from_unit(unit, reader, secrets)
    if (
        failure is None
        and startup.state == "loading"
        and silence_seconds is not None
        and deadline_seconds is not None
        and silence_seconds >= deadline_seconds
    ):
        failure = stalled(startup, silence_seconds, deadline_seconds, _last_text(reader), secrets)
    if failure is None:
        return None
    return dataclasses.replace(failure, consequence_at=consequence_at)


def _asked_to_stop(reader, unit):
    return reader.stopping_index is not None or (
        unit.result == "success" and _unit.clean_exit(unit) and reader.ready_index is not None
    )


def _from_hit(hit, reader, entries, startup, confirmed, target_tokens, cell_bytes, secrets):
    """Make the failure of the row that matched."""
    row = hit.row
    wrapper_phases = {other.index: other.row.phase for other in reader.hits if other.row.role == WRAPPER}
    phase = _phase(hit, wrapper_phases)
    figures, kind, direction, advice = _figures(hit.match), row.kind, row.direction, row.advice
    if kind == BY_PHASE:
        # A line without any context: most of these deaths happen in a prefill, and nothing says where this one did.
        phase = None if phase == "process" else phase
        kind = KIND_BY_PHASE.get(phase, "oom_prefill")
    if row.kind == BY_PHASE and row.direction == "lower":
        figures.update(_richest_figures(hit, reader, entries))
        direction, shape, judged = judge_out_of_memory(kind, figures)
        figures["shape"] = shape
        advice = judged if row.name != "workspace" else advice
    elif row.name in ("prefill_tokens", "decode_tokens", "tokens"):
        direction, advice = judge_tokens(_following(entries, hit), figures, advice)
    elif kind == "kv_pool_too_small" and direction == "raise":
        direction, figures = judge_pool(startup, figures, direction, target_tokens, cell_bytes)
        advice = INFEASIBLE if direction == "infeasible" else advice
    elif row.name == "unbalanced":
        figures.update(unbalanced_figures(hit.text))
    elif row.name == "peer_closed" and hit.batch == "prefill" and hit.after_ready:
        # Nobody said why the peer ended. In the middle of a prefill, memory is the likely reason.
        direction = "lower"
    if row.role == COLLECTIVE and row.kind == "comm_init" and hit.after_ready:
        kind = "comm_timeout"
    if row.name in ("gated", "http_401", "http_403", "restricted", "repository_not_found"):
        figures.update(repository_figures(_following(entries, hit, 10)))
    exit_code = _exit_code(reader)
    if exit_code is not None:
        figures.setdefault("exit_code", exit_code)
    sure = row.decisive or confirmed or (hit.block is not None and hit.block.fatal)
    return Failure(
        kind=kind,
        phase=phase,
        fatal=sure,
        direction=direction,
        evidence=_evidence(hit, secrets),
        advice=mask_text(_advice(advice, figures), secrets),
        figures=figures,
        transient=row.transient,
        at=hit.entry.realtime_seconds,
        fault=row.fault,
        row=row.name,
        ranks=_ranks(hit, reader),
    )


def _richest_figures(hit, reader, entries):
    """Return the figures of the text of this death that tells most: chained texts often repeat a shorter form."""
    best = parse_out_of_memory(_following(entries, hit))
    for other in reader.hits:
        if (
            other.row.kind == BY_PHASE
            and other.row.direction == "lower"
            and other.rank == hit.rank
            and other.index >= hit.index
        ):
            figures = parse_out_of_memory(_following(entries, other))
            if len(figures) > len(best) and figures.get("wanted_mib") == best.get(
                "wanted_mib", figures.get("wanted_mib")
            ):
                best = figures
    return best


def _exit_code(reader):
    for hit in reader.hits:
        if hit.row.role == CONSEQUENCE:
            code = hit.match.groupdict().get("exit_code")
            if code is not None:
                return int(code)
    return None


def _from_exceptions(reader, markers, over, secrets):
    """Make a failure of an exception that no row knows: by the file that raised it, else by who died."""
    named = {hit.index for hit in reader.hits if hit.row.role in (CONSEQUENCE, NOTICE)}
    found = [
        item
        for item in reader.exceptions
        if item.index not in named
        and not (reader.ready_index is not None and item.index < reader.ready_index)
        and not (item.after_ready and not (item.block is not None and item.block.fatal) and not over)
        and not (reader.stopping_index is not None and item.index > reader.stopping_index)
    ]
    if not found:
        return None
    fatal = [item for item in found if item.block is not None and item.block.fatal]
    # Outside a reported death the last traceback before the end is the one that ended it.
    chosen = fatal[0] if fatal else found[-1]
    scheduler = bool(fatal) or any(hit.row.name in _DEATH_ROWS for hit in markers)
    kind, advice, fault = "unknown", "Read the lines above this one in the journal of the unit.", "engine"
    if scheduler:
        kind = "scheduler_died"
        advice = "Read the lines above this one; when an earlier version or configuration served, go back to it."
    for frame_kind, pattern, frame_advice in FRAMES:
        if chosen.block is not None and any(pattern.search(frame) for frame in chosen.block.frames):
            kind, advice, fault = frame_kind, frame_advice, "configuration"
            break
    figures = {}
    exit_code = _exit_code(reader)
    if exit_code is not None:
        figures["exit_code"] = exit_code
    wrapper_phases = {other.index: other.row.phase for other in reader.hits if other.row.role == WRAPPER}
    return Failure(
        kind=kind,
        phase=_phase(chosen, wrapper_phases),
        fatal=bool(fatal) or over or bool(markers),
        direction="keep",
        evidence=_evidence(chosen, secrets),
        advice=advice,
        figures=figures,
        at=chosen.entry.realtime_seconds,
        fault=fault,
        ranks=(chosen.rank,) if chosen.rank else (),
    )


def _from_markers(reader, markers, unit, over, secrets):
    """Make a failure of the bare fact that a process died."""
    deaths = [hit for hit in markers if hit.row.name in _DEATH_ROWS]
    if not deaths:
        return None
    first = next((hit for hit in deaths if hit.match.groupdict().get("exit_code") is not None), deaths[0])
    code = _exit_code(reader)
    figures = {"exit_code": code} if code is not None else {}
    if first.match.groupdict().get("rank"):
        figures["rank"] = int(first.match.group("rank"))
    kind, advice, fault = (
        "scheduler_died",
        "Read the lines above this one; no line of the journal tells why the process ended.",
        "engine",
    )
    silent = not any(hit.row.name in ("sigquit", "exception") for hit in deaths)
    if silent and code in (-9, 137) and not (over and unit.result != "oom-kill"):
        # SIGKILL from outside, and nobody reported anything before: nearly always the kernel, for want of host memory.
        kind, fault = "host_oom_kill", "host"
        advice = (
            "Look for oom-kill in journalctl -k and give the unit more host memory (MemoryMax, --hicache-size, loader "
            "threads): a rank was killed by SIGKILL without a word."
        )
    elif silent and code in (-7, 135):
        kind, fault, advice = "host_oom_kill", "host", "Enlarge shared memory (/dev/shm): a rank ended by SIGBUS."
    return Failure(
        kind=kind,
        phase=_phase(first, {}),
        fatal=True,
        direction="keep",
        evidence=_evidence(first, secrets),
        advice=advice,
        figures=figures,
        at=first.entry.realtime_seconds,
        fault=fault,
        row=first.row.name,
        ranks=_ranks(first, reader),
    )


# What systemd's own result says when no line explains the end: (result, kind, advice).
_RESULTS = (
    (
        "oom-kill",
        "host_oom_kill",
        "Give the unit more host memory: look at MemoryMax and at --hicache-size in sglang_server_arguments.",
    ),
    (
        "start-limit-hit",
        "unit_failed",
        "Read the failure of the first start, repair it, and run systemctl reset-failed.",
    ),
    ("timeout", "timeout", "Raise TimeoutStartSec of the unit: SGLang loads for minutes."),
    ("watchdog", "watchdog_hang", "Remove WatchdogSec from the unit: SGLang does not serve systemd's watchdog."),
    ("resources", "unit_failed", "Read journalctl -u of the unit: systemd could not give it what it asks for."),
    ("exec-condition", "unit_failed", "Read the ExecCondition of the unit: it refused the start."),
)


def _from_unit(unit, reader, secrets):
    """Make a failure of systemd's facts alone."""
    result = unit.result or "unknown"
    how = _unit.exit_sentence(unit)
    kind, advice = "unknown", "Read the last lines in the journal of the unit; none of them names a cause."
    for name, known_kind, known_advice in _RESULTS:
        if result == name:
            kind, advice = known_kind, known_advice
            break
    else:
        if unit.exec_main_code == _unit.EXITED and unit.exec_main_status in _unit.SYSTEMD_EXIT_STATUSES:
            kind, advice = "bad_args", "Deploy again: systemd could not start the program of the unit."
        elif unit.exec_main_code == _unit.EXITED and unit.exec_main_status == 2 and reader.startup.phase == "process":
            kind, advice = (
                "bad_args",
                "Correct sglang_server_arguments: the engine's argument parser ended the start (exit status 2).",
            )
    evidence = "systemd: result {0}{1}".format(result, ", " + how if how else "")
    at = None
    for hit in reader.hits:
        if hit.entry.unit_message and hit.row.name in ("systemd_oom_kill", "main_exited"):
            evidence, at = hit.entry.message, hit.entry.realtime_seconds
            break
    last = _last_text(reader)
    if kind == "unknown" and last:
        evidence = "{0}; last line: {1}".format(evidence, last)
    return Failure(
        kind=kind,
        phase=reader.startup.phase if not reader.startup.ready else "serving",
        fatal=True,
        direction="keep",
        evidence=mask_text(evidence[: 2 * EVIDENCE_LENGTH], secrets),
        advice=advice,
        figures={
            "exit_status": unit.exec_main_status,
            "exit_code_class": unit.exec_main_code,
            "restarts": unit.n_restarts,
        },
        at=at,
        fault="host" if kind == "host_oom_kill" else "engine",
    )


def _last_text(reader):
    return reader.last_service[2].strip() if reader.last_service else ""


def stalled(startup, silence_seconds, deadline_seconds, last_line="", secrets=()):
    """Name a start-up that says nothing any more: no line tells it, only the phase and the clock do."""
    advice = {
        "graphs": "Try once without graphs (disable-cuda-graph in sglang_server_arguments); look at the other nodes.",
        "init": "Check NCCL_SOCKET_IFNAME, peer access of the boards and, with several nodes, that the others are up.",
        "weights": "Check the disk or network folder that holds the model, and the other ranks.",
    }.get(startup.phase, "Look at the processes of the unit: none of them said anything.")
    return Failure(
        kind="watchdog_hang",
        phase=startup.phase,
        fatal=True,
        direction="keep",
        evidence=mask_text(
            "nothing was logged for {0:.0f} s in phase {1}; last line: {2}".format(
                silence_seconds, startup.phase, last_line[:EVIDENCE_LENGTH]
            ),
            secrets,
        ),
        advice=advice,
        figures={"silence_seconds": silence_seconds, "deadline_seconds": deadline_seconds},
        transient=True,
        fault="engine",
    )


def notices(entries, secrets=()):
    """Return what is worth knowing and ends nothing: [{name, evidence, advice, count, at}], first seen first."""
    found = {}
    reader = Walk()
    for index, entry in enumerate(entries):
        reader.feed(index, entry)
    for hit in reader.hits:
        if hit.row.role == NOTICE and hit.row.advice:
            notice = found.setdefault(
                hit.row.name,
                {
                    "name": hit.row.name,
                    "evidence": _evidence(hit, secrets),
                    "advice": hit.row.advice,
                    "count": 0,
                    "at": hit.entry.realtime_seconds,
                },
            )
            notice["count"] += 1
    return list(found.values())
