# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, the ends that no line names: stopped, started again, rebooted, elsewhere.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unit


def failure_record(kind, phase, evidence, advice, at=None, fatal=True, direction="keep", transient=False):
    """A failure in the shape of the failure catalogue, for ends that no line of the journal names."""
    return {
        "kind": kind,
        "phase": phase,
        "fatal": fatal,
        "direction": direction,
        "evidence": evidence,
        "advice": advice,
        "figures": {},
        "transient": transient,
        "at": at,
        "consequence_at": None,
    }


def unnamed_end(sight):
    """The failure of an end for which the journal has no cause. :arg sight: a ``_ready.Sight``."""
    unit = sight.unit
    name, other = unit.get("name"), unit.get("invocation_id")
    if sight.restarted and other and other != sight.invocation_id:
        return changed_invocation(sight.invocation_id, unit)
    state = _unit.UnitState(**unit)
    how = _unit.exit_sentence(state) or "result {}".format(state.result or "unknown")
    last = f"; last line: {sight.last_line}" if sight.last_line else ""
    if was_stopped(sight):
        return failure_record(
            "unit_failed",
            sight.startup.get("phase") or "process",
            f"somebody stopped {name} during the wait ({how}){last}",
            f"Start it again: systemctl start {name}.",
        )
    again = ", restarts: {}".format(state.n_restarts) if sight.restarted else ""
    return failure_record(
        "unit_failed",
        sight.startup.get("phase") or "process",
        f"{name} ended ({how}{again}){last}",
        f"Look into journalctl -u {name}.",
    )


def was_stopped(sight):
    """Whether somebody asked for the end: by the journal, or by what such a stop leaves behind."""
    unit = sight.unit
    left = (unit.get("active_state"), unit.get("result"), unit.get("exec_main_code"))
    return sight.ended and (sight.stopped or left == ("inactive", "success", _unit.KILLED))


def without_journal(failure, sight):
    """The failure of an end that no journal explains: it says why there is none, and what gives one."""
    if sight.journal or not sight.journal_problem or failure["advice"] == sight.journal_problem:
        return failure
    advice = failure["advice"] if failure["advice"].startswith("Start it again") else ""
    return dict(
        failure,
        evidence="{}; there is no journal of this start".format(failure["evidence"].rstrip(".")),
        advice=" ".join(one for one in (advice, sight.journal_problem) if one),
    )


def changed_invocation(expected, unit):
    """A failure record for an invocation that is not the one to wait for."""
    restarts = unit.get("n_restarts") or 0
    by = f"by systemd, {restarts} restarts" if restarts else "by somebody"
    return failure_record(
        "unit_failed",
        "process",
        "Expected invocation {} of {}, found {}".format(
            expected,
            unit.get("name"),
            "that it was started again as invocation {} ({})".format(unit["invocation_id"], by)
            if unit.get("invocation_id")
            else "none",
        ),
        f"Wait for the new one by running this again; look into journalctl _SYSTEMD_INVOCATION_ID={expected}.",
    )


def rebooted(unit):
    """The failure of a wait whose host was booted anew in between. :arg unit: name of the unit."""
    return failure_record(
        "unit_failed",
        "process",
        f"Expected the host to stay up while {unit} starts, found that it was rebooted during the wait",
        f"Look why it was rebooted, start the unit when it is not up (systemctl start {unit}), and run this again.",
    )


def port_failure(sight):
    """The failure of a server whose port is not held by it."""
    found = {
        "other": f"it belongs to process {sight.port_owner}, which is not of this unit",
        "hidden": "whose it is cannot be read without root (become: true)",
    }.get(sight.port, "nothing of this unit listens there")
    stated = f"; the command line of the unit says {sight.stated}" if sight.stated and sight.port != "hidden" else ""
    return failure_record(
        "no_evidence",
        "completion",
        f"Expected {sight.unit.get('name')} to listen on {sight.address or 'the port'}, found: {found}{stated}.",
        "Run this as root (become: true)."
        if sight.port == "hidden"
        else "Set host and port to what the server was started with.",
        fatal=False,
    )
