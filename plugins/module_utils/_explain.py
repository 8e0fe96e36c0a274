# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_explain: a finished log explained (private to the collection).

Puts _journal, _startup, _failures and _mask together for one log: a file, or the journal of a unit's last invocation.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _failures,
    _follow,
    _journal,
    _journal_ask,
    _journal_stream,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._explain_file import Unreadable
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import KERNEL, split_head
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data, mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup_lines import READY_LINE

# How many of the starts before the wanted one are told.
EARLIER_KEPT = 3

# The kernel's lines that are kept, the newest ones.
KERNEL_ENTRIES = 5000

# Of a death in the middle of a long log: how many words of death are looked at, and how much is read from one on.
DEATHS_LOOKED_FOR = 50
DEATH_ENTRIES = 2000


def read_unit(run, unit, invocation_id=None):
    """Return (entries, UnitState or None) of a unit's invocation, with what the kernel said meanwhile.

    run: callable(argv) -> (rc, stdout, stderr), or a _journal_stream.Runner. The state is None when it is not that of
    the invocation.

    :raises Unreadable: when there is nothing to explain.
    """
    follower = _follow.Follower(run, unit, invocation_id)
    state = follower.look_at_unit()
    if state is None:
        raise Unreadable(follower.unit_error)
    if not follower.invocation_id:
        # systemd has forgotten the unit; the journal has not.
        newest = _read(run, _journal_ask.last_entry_command(unit), 1)
        follower.invocation_id = (_journal.invocations(newest) or [None])[-1]
    if not follower.invocation_id or not follower.read():
        raise Unreadable(
            "Expected a start of {0} in the journal, found none: {1}".format(unit, follower.why_empty())
            if state.load_state != "not-found" or follower.invocation_id
            else "Expected a unit {0}, found none of this name; correct the option unit.".format(unit)
        )
    entries = follower.entries
    if follower.gap and not any(split_head(entry.message)[2].startswith(_follow.STEADY) for entry in follower.end):
        entries = _with_deaths(run, follower, entries)
    same = state.invocation_id == follower.invocation_id and not (
        state.n_restarts and state.sub_state == "running" and not state.main_pid
    )
    return _with_kernel(run, entries), state if same else None


def _read(run, argv, most):
    """Return the first entries that a command gives, at least *most* when it has them; none when it fails."""
    decoder, entries = _journal.Decoder(), []
    try:
        with _journal_stream.lines_of(run, argv) as stream:
            for line in stream:
                entries.extend(decoder.feed(line))
                if len(entries) >= most:
                    break
    except OSError:
        return []
    return entries + decoder.rest()


def _with_deaths(run, follower, entries):
    """Return the entries with the first death that stands in what was left out between start-up and end.

    A launcher can live on for days behind a dead rank, and says so once a second.
    """
    unit, wanted = follower.unit_name, follower.invocation_id
    known = {entry.cursor for entry in entries}
    ask = _journal_ask.journal_command(unit, wanted, grep=_journal_ask.DEATH_WORDS)
    ready = next((entry for entry in entries if READY_LINE in entry.message), entries[0])
    for found in _read(run, ask, DEATHS_LOOKED_FOR):
        if found.cursor in known or not _is_after(found, ready):
            continue
        missing = _read(run, _journal_ask.journal_command(unit, wanted, cursor=found.cursor), DEATH_ENTRIES)
        missing = [entry for entry in missing if entry.cursor not in known]
        cut = next((index for index, entry in enumerate(entries) if _is_after(entry, found)), len(entries))
        return entries[:cut] + missing + entries[cut:]
    return entries


def _is_after(entry, other):
    """Tell whether an entry of the same boot is younger: by the clock that no step disturbs."""
    return (entry.monotonic_seconds or 0.0) > (other.monotonic_seconds or 0.0)


def _with_kernel(run, entries):
    """Return the entries with the kernel's among them. Both are of one boot: the monotonic clock orders them."""
    first = entries[0]
    boot = re.search(r"(?:^|;)b=([0-9a-f]{32})(?:;|$)", first.cursor or "")
    if not boot or first.monotonic_seconds is None:
        return entries
    argv = _journal_ask.kernel_command(first.cursor, boot.group(1))
    kernel = [entry for entry in _read(run, argv, KERNEL_ENTRIES) if _is_after(entry, first) and entry.source == KERNEL]
    merged, at = [], 0
    for entry in entries:
        while at < len(kernel) and _is_after(entry, kernel[at]):
            merged.append(kernel[at])
            at += 1
        merged.append(entry)
    return merged + kernel[at:]


def explain(log, unit=None, invocation_id=None, target_tokens=None, cell_bytes=None, secrets=()):
    """Return the whole answer for one log (str, bytes, or entries), masked: startup, failure, notices, what was read.

    unit: UnitState of the invocation, read after the log.

    :raises Unreadable: when the log has no such invocation, or is not of SGLang at all.
    """
    entries = log if isinstance(log, list) else _journal.decode(log)[0]
    known = _journal.invocations(entries)
    if invocation_id and invocation_id not in known:
        raise Unreadable(
            "Expected the invocation {0} in the log, found {1}; correct the option invocation_id.".format(
                invocation_id, ", ".join(known[-EARLIER_KEPT:]) if known else "a log without invocations"
            )
        )
    starts = [] if known else _journal.starts(entries)
    chosen = starts[-1] if starts else _journal.select_invocation(entries, invocation_id)
    case = _failures.Case(chosen, None, unit, secrets)
    startup = case.startup
    failure = _failures.classify(chosen, target_tokens=target_tokens, cell_bytes=cell_bytes, case=case)
    notices = _failures.notices(case)
    if not isinstance(log, list) and not (failure or notices or _is_of_sglang(entries, startup)):
        raise Unreadable(
            "Expected a log of SGLang, found other text ({0}); correct the option file.".format(
                mask_text(entries[0].message[:80], secrets) if entries else "no line of it can be read"
            )
        )
    wanted = (invocation_id or known[-1]) if known else None
    return {
        "startup": mask_data(startup.as_dict(), secrets),
        "failure": mask_data(failure.as_dict(), secrets) if failure else None,
        "notices": mask_data(notices, secrets),
        "earlier": mask_data(_earlier(entries, known, wanted, starts[:-1], secrets), secrets),
        "entries_read": len(chosen),
        "invocation_id": wanted,
        "masked": any(_holds_secret(entry.message, secrets) for entry in chosen),
    }


def _holds_secret(message, secrets):
    """Tell whether something of a line would be masked. The engine's own counts, most of a long log, hold nothing."""
    if not secrets and " batch, #" in message and message.startswith("["):
        return False
    return mask_text(message, secrets) != message


def _is_of_sglang(entries, startup):
    """Tell whether a log is of SGLang, or the journal of a unit."""
    if startup.ranks or startup.pool_tokens is not None or startup.phase != "process" or _journal.invocations(entries):
        return True
    return any("sgl" in entry.message.lower() or split_head(entry.message)[0] is not None for entry in entries)


def _earlier(entries, known, wanted, starts, secrets):
    """Return how the starts before the wanted one ended, the last ones only: a crash loop repeats itself."""
    if known:
        before = known[: known.index(wanted)][-EARLIER_KEPT:]
        logs = [(invocation, _journal.select_invocation(entries, invocation)) for invocation in before]
    else:
        logs = [(None, log) for log in starts[-EARLIER_KEPT:]]
    ends = []
    for invocation, chosen in logs:
        case = _failures.Case(chosen, None, None, secrets)
        failure = _failures.classify(chosen, case=case)
        ends.append(
            {
                "invocation_id": invocation,
                "state": case.startup.state,
                "kind": failure.kind if failure else None,
                "evidence": failure.evidence if failure else None,
            }
        )
    return ends
