# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up. What one look at the host means, and what is done next.

Private to the gpufleet.sglang collection; may change at any time.

Pure: a :class:`Sight` in, a :class:`Move` out. ``_ready_look`` looks, ``_ready_run`` acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.sglang.plugins.module_utils import _witness
from ansible_collections.gpufleet.sglang.plugins.module_utils._ready_end import (
    failure_record,
    port_failure,
    unnamed_end,
    was_stopped,
    without_journal,
)

# A line that names a death is trusted when the rest of its traceback is in the journal: when nothing new came for a
# moment (ranks that die together write within some hundred milliseconds), and after the longer time in any case.
STILL_SECONDS = 0.25
SETTLE_SECONDS = 1.0

# A ready server whose main process lives, and of which no line says that it fell: whatever was read, it is asked. A
# completion that it answers outranks the line; without an answer for so long the line is believed.
DOUBT_SECONDS = 20.0

# How long an ended unit is given for its last lines to reach the journal, likewise.
LAST_LINES_STILL_SECONDS = 0.4
LAST_LINES_SECONDS = 1.0

# Kinds that the last lines may still replace by a better one: they say that something died, and not why.
WEAK_KINDS = ("unknown", "unit_failed", "scheduler_died")

# After so long without a new phase the server is asked whether it is healthy in spite of the journal, ...
QUIET_SECONDS = 30.0
# ... and when it has been so for this time, its ready line was lost.
LOST_LINE_SECONDS = 10.0

# The server listens when all ranks are ready: with its port open while the journal tells of an earlier phase, lines
# were lost, and the server itself is asked much sooner.
BEHIND_PHASES = ("process", "init", "weights", "pool", "graphs")
BEHIND_QUIET_SECONDS = 3.0
BEHIND_LOST_LINE_SECONDS = 2.0

# After the ready line, how long a port that is not (yet) ours is waited for.
PORT_SECONDS = 5.0

# In these phases a slice does not return: the ready line is near, and a new slice would cost a connection. A completion
# that is under way would be lost with it, and is held as long as the run's lease (three minutes) allows.
HELD_PHASES = ("warmup", "ready")
HOLD_SECONDS = 60.0
ANSWER_HOLD_SECONDS = 150.0

# A phase must last so long to be worth a return: what dies for want of memory mostly does so at the beginning of a
# phase, and nobody looks while a slice ends and the next one begins.
PHASE_SETTLE_SECONDS = 2.5


@dataclass(frozen=True)
class Sight:
    """What one look at the host saw.

    ``unit`` is the unit's state as a dictionary (words of ``_unit``), ``ended`` and ``restarted`` what it means for the
    invocation that is waited for, ``invocation_id``; ``stopped``: systemd was asked to stop it. ``startup`` and
    ``failure`` come from the journal of that invocation. ``*_seconds`` tell for how long something has been so,
    ``still_seconds`` since when the journal brought nothing new. ``journal_problem``: why there is no journal, one
    sentence. ``stall`` is the failure that silence names, ``how_far`` the progress in words. ``port`` is ``ours``,
    ``other``, ``hidden`` (something listens, whose it is cannot be read) or ``closed``; None when nobody looked;
    ``address``: what it was looked for at, ``stated``: what the command line says of it. ``witness`` is the start-up
    record by ``/server_info``. ``answering``: a completion is under way; ``answer_*``: one that came back;
    ``answer_error`` the last error.
    """

    unit: dict[str, Any]
    invocation_id: str | None = None
    stopped: bool = False
    ended: bool = False
    restarted: bool = False
    ended_seconds: float = 0.0
    startup: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] | None = None
    failure_seconds: float = 0.0
    still_seconds: float = 0.0
    stall: dict[str, Any] | None = None
    how_far: str = ""
    journal: bool = True
    journal_problem: str | None = None
    phase_seconds: float = 0.0
    port: str | None = None
    port_owner: int | None = None
    address: str = ""
    stated: str = ""
    ready_seconds: float = 0.0
    healthy_seconds: float | None = None
    witness: dict[str, Any] | None = None
    witness_error: str | None = None
    answering: bool = False
    answer_status: int | None = None
    answer_text: str | None = None
    answer_error: str | None = None
    last_line: str = ""
    waited_seconds: float = 0.0
    timeout_seconds: float = 0.0


@dataclass(frozen=True)
class Move:
    """What is done next: ``wait`` and look again, ``ask_health|info|completion``, ``judge`` or ``fail``."""

    action: str
    failure: dict[str, Any] | None = None


# ---------------------------------------------------------------------------------------------------------------
# One look


def next_move(sight):
    """Decide from one look. The order of the questions is the order of certainty: dead, answered, ready, healthy."""
    dead = death(sight)
    if dead is not None:
        return dead
    if sight.answer_status is not None:
        answered = _answered(sight)
        if answered is None and names_death(sight):
            answered = Move("fail", _with_answer_error(sight.failure, sight))
        if answered is not None:
            return answered
    if sight.waited_seconds >= sight.timeout_seconds:
        return Move("fail", _timeout(sight))
    if sight.stall is not None and sight.healthy_seconds is None:
        return Move("fail", _with_answer_error(sight.stall, sight))
    if sight.answering:
        return Move("wait")
    if sight.startup.get("state") == "ready":
        return _ready(sight)
    return _not_ready(sight)


def _with_answer_error(failure, sight):
    if not sight.answer_error:
        return failure
    return dict(failure, evidence=f"{failure['evidence']}; the last completion: {sight.answer_error}")


def names_death(sight):
    """Whether a line of the journal names a death."""
    return bool(sight.failure and sight.failure.get("fatal"))


def _in_doubt(sight):
    """Whether a line names a death that has not followed: words of a request that failed look the same."""
    return (
        sight.startup.get("state") == "ready"
        and sight.failure.get("consequence_at") is None
        and sight.failure_seconds < DOUBT_SECONDS
    )


def death(sight):
    """A move when the start-up is over by a death, or about to be."""
    failure = sight.failure
    over = sight.ended or sight.restarted
    fatal = names_death(sight)
    if over and fatal and failure.get("kind") not in WEAK_KINDS:
        return Move("fail", failure)
    if over:
        settled = _is_settled(sight.ended_seconds, sight.still_seconds, LAST_LINES_STILL_SECONDS, LAST_LINES_SECONDS)
        if failure is None or failure.get("kind") == "unknown" and was_stopped(sight):
            failure = unnamed_end(sight)
        return Move("fail", without_journal(failure, sight)) if settled else Move("wait")
    if fatal and not _in_doubt(sight):
        settled = _is_settled(sight.failure_seconds, sight.still_seconds, STILL_SECONDS, SETTLE_SECONDS)
        return Move("fail", failure) if settled else Move("wait")
    return None


def _is_settled(seconds, still_seconds, least_seconds, most_seconds):
    """Whether what was seen so long ago is complete: nothing came after it for a moment, or for long enough."""
    return seconds >= most_seconds or min(seconds, still_seconds) >= least_seconds


def _answered(sight):
    """A move when the completion came back; None when it is worth another try."""
    if sight.answer_status == 200 and sight.answer_text is not None:
        return Move("judge")
    if sight.answer_status in (401, 403):
        return Move(
            "fail",
            failure_record(
                "no_evidence",
                "completion",
                f"The server refused the completion (status {sight.answer_status}).",
                "Set api_key or api_key_file to the key that the server was started with.",
                fatal=False,
            ),
        )
    if 400 <= sight.answer_status < 500 and sight.answer_status not in (408, 429):
        return Move(
            "fail",
            failure_record(
                "no_evidence",
                "completion",
                f"The completion was not accepted: {sight.answer_error}",
                "Set prompt to one that this model takes.",
                fatal=False,
            ),
        )
    return None


def _timeout(sight):
    phase = sight.startup.get("phase") or "process"
    seen = []
    if sight.answer_error:
        seen.append(f"the completion: {sight.answer_error}")
    if sight.witness_error:
        seen.append(sight.witness_error)
    if sight.how_far:
        seen.append(sight.how_far)
    if sight.journal_problem:
        seen.append(sight.journal_problem)
    if sight.last_line:
        seen.append(f"last line: {sight.last_line}")
    return failure_record(
        "timeout",
        phase,
        f"Not ready after {sight.waited_seconds:.0f} s in phase {phase}" + ("; " + "; ".join(seen) if seen else "."),
        "Raise timeout_seconds when the start just takes longer; else look into journalctl -u {}.".format(
            sight.unit.get("name")
        ),
        fatal=False,
    )


def _ready(sight):
    """The ready line was seen (or its substitute): the pool, then the port, then the completion."""
    if sight.startup.get("pool_tokens") is None and sight.witness is None and sight.witness_error is None:
        return Move("ask_info") if sight.port == "ours" else _foreign_port(sight)
    if sight.startup.get("pool_tokens") is None and not (sight.witness or {}).get("pool_tokens"):
        return Move("fail", no_pool(sight))
    if sight.port != "ours":
        return _foreign_port(sight)
    return Move("ask_completion")


def _foreign_port(sight):
    if sight.ready_seconds < PORT_SECONDS:
        return Move("wait")
    return Move("fail", sight.failure if names_death(sight) else port_failure(sight))


def _not_ready(sight):
    """No ready line. Without a journal, or when the line seems lost, the server itself is asked."""
    if not sight.journal and sight.port == "hidden":
        # An ordinary user reads neither the journal nor whose the port is: waiting would never end.
        return Move("fail", port_failure(sight))
    if sight.port != "ours":
        return Move("wait")
    quiet, patience = _lost_line_seconds(sight)
    if sight.phase_seconds < quiet:
        return Move("wait")
    if sight.healthy_seconds is None or sight.healthy_seconds < patience:
        return Move("ask_health")
    if sight.witness is None and sight.witness_error is None:
        return Move("ask_info")
    if not (sight.witness or {}).get("pool_tokens") and sight.startup.get("pool_tokens") is None:
        return Move("fail", no_pool(sight))
    return Move("ask_completion")


def _lost_line_seconds(sight):
    """(quiet, patience): for how long no phase began, and how long the server is healthy, before its line was lost."""
    if not sight.journal:
        return 0.0, 0.0
    if sight.startup.get("phase", "process") in BEHIND_PHASES:
        return BEHIND_QUIET_SECONDS, BEHIND_LOST_LINE_SECONDS
    return QUIET_SECONDS, LOST_LINE_SECONDS


def wants_port(sight):
    """Whether this look needs to know who listens: nobody has to know in every look."""
    return sight.startup.get("state") == "ready" or sight.phase_seconds >= _lost_line_seconds(sight)[0]


def no_pool(sight):
    """The failure when neither the journal nor the server tells the pool. The server is left running."""
    return failure_record(
        "no_evidence",
        "ready",
        "The server is up, but no witness tells its pool: %s, and %s."
        % (
            (sight.journal_problem or "the journal of this invocation does not").rstrip("."),
            (sight.witness_error or "/server_info does not").rstrip("."),
        ),
        "Set LogRateLimitIntervalSec=1us in the unit so that no line is lost, or api_key so that /server_info answers; "
        "the server is left running.",
        fatal=False,
    )


def not_told(judged):
    """The failure of a server that answers while a part of its promise has no witness. It is left running."""
    return failure_record("no_evidence", "ready", judged["reason"], _witness.NO_EVIDENCE_ADVICE, fatal=False)


# ---------------------------------------------------------------------------------------------------------------
# The record


def merged_startup(startup, witness):
    """The start-up record with what only ``/server_info`` knew, and the name of the witness of the pool.

    The smallest pool that a witness tells is the pool. Memory is not mixed: a headroom that the journal does not tell
    stays unknown in a record of the journal; :mod:`_witness` puts the witnesses side by side.

    :returns: ``(startup, evidence)``; evidence is ``journal``, ``server_info`` or None.
    """
    told, shown = startup.get("pool_tokens"), (witness or {}).get("pool_tokens")
    if told is not None and shown is not None and shown < told:
        # A DP rank whose lines were lost: the smallest pool is the promise.
        return dict(startup, pool_tokens=shown, evidence="server_info"), "server_info"
    if told is not None:
        return dict(startup, evidence="journal"), "journal"
    if not witness:
        return dict(startup, evidence=None), None
    merged = dict(witness)
    merged.update({name: value for name, value in startup.items() if value not in (None, [], {})})
    merged.update(state="ready", phase="ready", evidence="server_info")
    return merged, "server_info"


def phase_beginnings(startup) -> list[float]:
    """When the phases of a start-up record began (epoch seconds), in their order."""
    return [phase["began_at"] for phase in startup.get("phases") or [] if phase.get("began_at")]


def timeline(startup, completion=None) -> list[dict[str, Any]]:
    """``[{phase, at, seconds}]`` from the phases of the start-up record, with the completion as the last one."""
    rows = [
        {"phase": phase.get("name"), "at": phase.get("began_at"), "seconds": phase.get("seconds")}
        for phase in startup.get("phases") or []
    ]
    if completion:
        rows.append({"phase": "completion", "at": completion[0], "seconds": completion[1]})
    return rows


def slice_is_over(phase, known_phase, phase_seconds, slice_elapsed_seconds, slice_seconds):
    """Whether a slice returns to its caller although nothing is decided."""
    if phase == "completion":
        return slice_elapsed_seconds >= max(slice_seconds, ANSWER_HOLD_SECONDS)
    if phase in HELD_PHASES:
        return slice_elapsed_seconds >= max(slice_seconds, HOLD_SECONDS)
    if known_phase is not None and phase != known_phase and phase_seconds >= PHASE_SETTLE_SECONDS:
        return True
    return slice_elapsed_seconds >= slice_seconds
