# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_unnamed: deaths that no line of the catalogue names (private to the collection).

Named by what is left: the file that raised an unknown exception, the bare fact that a process died, what systemd says
of the unit, and silence.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_case import is_fatal, phase_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import CONSEQUENCE, FRAMES, NOTICE
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_record import (
    EVIDENCE_LENGTH,
    Failure,
    evidence_of,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._unit import (
    DUMPED,
    EXITED,
    KILLED,
    SYSTEMD_EXIT_STATUSES,
    exit_sentence,
)

# SIGILL, SIGABRT, SIGFPE, SIGSEGV, as Python and as a shell print them.
NATIVE_EXIT_CODES = (-4, -6, -8, -11, 132, 134, 136, 139)
NATIVE_ADVICE = (
    "Go back to the version or configuration that served last, and look for Xid lines in the kernel's log: the process "
    "crashed outside Python."
)


def from_exceptions(case):
    """Make a failure of an exception that no row knows: by the file that raised it, else by who died."""
    named = {hit.index for hit in case.walk.hits if hit.row.role in (CONSEQUENCE, NOTICE)}
    found = [
        item
        for item in case.walk.exceptions
        if item.index not in named
        and not case.before_ready(item.index)
        and (is_fatal(item) or case.over or not item.after_ready)
        and not case.after_stopping(item.index)
    ]
    if not found:
        return None
    fatal = [item for item in found if is_fatal(item)]
    # Outside a reported death the last traceback before the end is the one that ended it.
    chosen = fatal[0] if fatal else found[-1]
    kind, advice, fault = "unknown", "Read the lines above this one in the journal of the unit.", "engine"
    if fatal or case.deaths():
        kind = "scheduler_died"
        advice = "Read the lines above this one; when an earlier version or configuration served, go back to it."
    for frame_kind, pattern, frame_advice in FRAMES:
        if chosen.block is not None and any(pattern.search(frame) for frame in chosen.block.frames):
            kind, advice, fault = frame_kind, frame_advice, "configuration"
            break
    code = case.exit_code()
    return Failure(
        kind=kind,
        phase=phase_of(chosen, case.wrapper_phases),
        fatal=bool(fatal or case.over or case.markers),
        direction="keep",
        evidence=evidence_of(chosen, case.secrets),
        advice=advice,
        figures={} if code is None else {"exit_code": code},
        at=chosen.entry.realtime_seconds,
        fault=fault,
        ranks=(chosen.rank,) if chosen.rank else (),
        lines=case.last_lines(chosen.index),
    )


def from_markers(case):
    """Make a failure of the bare fact that a process died."""
    deaths = case.deaths()
    if not deaths:
        return None
    first = next((hit for hit in deaths if hit.match.groupdict().get("exit_code") is not None), deaths[0])
    code = case.exit_code()
    figures = {"exit_code": code} if code is not None else {}
    if first.match.groupdict().get("rank"):
        figures["rank"] = int(first.match.group("rank"))
    kind, advice, fault = (
        "scheduler_died",
        "Read the lines above this one; no line of the journal tells why the process ended.",
        "engine",
    )
    silent = not any(hit.row.name in ("sigquit", "exception", "native_crash") for hit in deaths)
    if silent and code in (-9, 137) and not (case.over and case.unit.result != "oom-kill"):
        # SIGKILL from outside, and nobody reported anything before: nearly always the kernel, for want of host memory.
        kind, fault = "host_oom_kill", "host"
        advice = (
            "Look for oom-kill in journalctl -k and give the unit more host memory (MemoryMax, --hicache-size, loader "
            "threads): a rank was killed by SIGKILL without a word."
        )
    elif silent and code in (-7, 135):
        kind, fault, advice = "host_oom_kill", "host", "Enlarge shared memory (/dev/shm): a rank ended by SIGBUS."
    elif code in NATIVE_EXIT_CODES or any(hit.row.name == "native_crash" for hit in deaths):
        advice = NATIVE_ADVICE
    return Failure(
        kind=kind,
        phase=phase_of(first, {}),
        fatal=True,
        direction="keep",
        evidence=evidence_of(first, case.secrets),
        advice=advice,
        figures=figures,
        at=first.entry.realtime_seconds,
        fault=fault,
        row=first.row.name,
        ranks=case.ranks(first),
        lines=case.last_lines(),
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


def from_unit(case):
    """Make a failure of systemd's facts alone."""
    unit, startup = case.unit, case.walk.startup
    result = unit.result or "unknown"
    how = exit_sentence(unit)
    kind, advice = "unknown", "Read the last lines in the journal of the unit; none of them names a cause."
    for name, known_kind, known_advice in _RESULTS:
        if result == name:
            kind, advice = known_kind, known_advice
            break
    else:
        if unit.exec_main_code == DUMPED or (
            unit.exec_main_code == KILLED and -(unit.exec_main_status or 0) in NATIVE_EXIT_CODES
        ):
            kind, advice = "scheduler_died", NATIVE_ADVICE
        elif unit.exec_main_code == EXITED and unit.exec_main_status in SYSTEMD_EXIT_STATUSES:
            kind, advice = "bad_args", "Deploy again: systemd could not start the program of the unit."
        elif unit.exec_main_code == EXITED and unit.exec_main_status == 2 and startup.phase == "process":
            kind, advice = (
                "bad_args",
                "Correct sglang_server_arguments: the engine's argument parser ended the start (exit status 2).",
            )
    evidence = "systemd: result {0}{1}".format(result, ", " + how if how else "")
    at = None
    for hit in case.walk.hits:
        if hit.entry.unit_message and hit.row.name in ("systemd_oom_kill", "main_exited"):
            evidence, at = hit.entry.message, hit.entry.realtime_seconds
            break
    last = case.last_text()
    if kind in ("unknown", "scheduler_died") and last:
        evidence = "{0}; last line: {1}".format(evidence, last)
    return Failure(
        kind=kind,
        phase=startup.phase if not startup.ready else "serving",
        fatal=True,
        direction="keep",
        evidence=mask_text(evidence[: 2 * EVIDENCE_LENGTH], case.secrets),
        advice=advice,
        figures={
            "exit_status": unit.exec_main_status,
            "exit_code_class": unit.exec_main_code,
            "restarts": unit.n_restarts,
        },
        at=at,
        fault="host" if kind == "host_oom_kill" else "engine",
        lines=case.last_lines() if kind in ("unknown", "scheduler_died") else (),
    )


def stalled(case, silence_seconds, deadline_seconds):
    """Name a start-up that says nothing any more: no line tells it, only the phase and the clock do."""
    advice = {
        "graphs": "Try once without graphs (disable-cuda-graph in sglang_server_arguments); look at the other nodes.",
        "init": "Check NCCL_SOCKET_IFNAME, peer access of the boards and, with several nodes, that the others are up.",
        "weights": "Check the disk or network folder that holds the model, and the other ranks.",
    }.get(case.startup.phase, "Look at the processes of the unit: none of them said anything.")
    return Failure(
        kind="watchdog_hang",
        phase=case.startup.phase,
        fatal=True,
        direction="keep",
        evidence=mask_text(
            "nothing was logged for {0:.0f} s in phase {1}; last line: {2}".format(
                silence_seconds, case.startup.phase, case.last_text()[:EVIDENCE_LENGTH]
            ),
            case.secrets,
        ),
        advice=advice,
        figures={"silence_seconds": silence_seconds, "deadline_seconds": deadline_seconds},
        transient=True,
        fault="engine",
    )
