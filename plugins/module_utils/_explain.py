# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_explain: a finished log explained (private to the collection).

Puts _journal, _startup, _failures and _mask together for one log: a file, or the journal of a unit's last invocation.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _failures, _journal, _startup, _unit
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data, mask_text

# More than any start-up needs; a log of weeks is read up to here from both ends.
MAX_FILE_BYTES = 64 * 2**20

# How many of the invocations before the wanted one are told.
EARLIER_KEPT = 3


class Unreadable(Exception):
    """There is no log to explain; the text is one sentence with the way out."""


def read_file(path):
    """Return the bytes of a log file; of a very large one its first and its last part."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_FILE_BYTES)
            rest = stream.read(1)
            if rest:
                stream.seek(-MAX_FILE_BYTES, 2)
                data = data[: data.rfind(b"\n") + 1] + stream.read(MAX_FILE_BYTES).partition(b"\n")[2]
    except OSError as error:
        raise Unreadable(
            "Expected a readable log file at {0}, found: {1}; correct the option file.".format(path, error.strerror)
        ) from error
    if not data.strip():
        raise Unreadable("Expected a log at {0}, found an empty file; correct the option file.".format(path))
    return data


def read_unit(run, unit, invocation_id=None):
    """Return (entries, UnitState or None) of a unit's invocation, with what the kernel said meanwhile.

    run: callable(argv) -> (rc, stdout, stderr). The state is None when it is not that of the invocation.
    """
    rc, out, err = run(_unit.show_command(unit))
    problem = _journal.reader_problem(rc, out, err)
    if problem:
        raise Unreadable(problem.sentence)
    state = _unit.parse_show(out)
    wanted = invocation_id or state.invocation_id
    if not wanted:
        rc, out, err = run(_journal.last_entry_command(unit))
        found = _journal.invocations(_journal.decode_json_lines(out)) if rc == 0 else []
        wanted = found[-1] if found else None
    rc, out, err = run(_journal.journal_command(unit, wanted))
    entries = _journal.decode_json_lines(out)
    if not entries:
        problem = _journal.reader_problem(rc, out, err)
        raise Unreadable(
            problem.sentence
            if problem
            else "Expected entries of {0} in the journal, found none; correct the option unit, or use become.".format(
                unit
            )
        )
    same = state.invocation_id == wanted and not (
        state.n_restarts and state.sub_state == "running" and not state.main_pid
    )
    return _with_kernel(run, entries), state if same else None


def _with_kernel(run, entries):
    """Return the entries with the kernel's among them, in the order of time."""
    begin = entries[0].realtime_seconds
    if begin is None:
        return entries
    rc, out, _err = run(_journal.kernel_command(begin))
    kernel = _journal.decode_json_lines(out) if rc == 0 else []
    if not kernel:
        return entries
    return sorted(entries + kernel, key=lambda entry: entry.realtime_seconds or begin)


def explain(log, unit=None, invocation_id=None, target_tokens=None, cell_bytes=None, secrets=()):
    """Return the whole answer for one log (str, bytes, or entries), masked: startup, failure, notices, what was read.

    unit: UnitState of the invocation, read after the log.
    """
    entries = log if isinstance(log, list) else _journal.decode(log)[0]
    known = _journal.invocations(entries)
    chosen = _journal.select_invocation(entries, invocation_id)
    startup = _startup.read_startup(chosen)
    failure = _failures.classify(
        chosen, startup=startup, unit=unit, target_tokens=target_tokens, cell_bytes=cell_bytes, secrets=secrets
    )
    wanted = (invocation_id or known[-1]) if known else None
    return {
        "startup": mask_data(startup.as_dict(), secrets),
        "failure": mask_data(failure.as_dict(), secrets) if failure else None,
        "notices": mask_data(_failures.notices(chosen, secrets), secrets),
        "earlier": mask_data(_earlier(entries, known, wanted, secrets), secrets),
        "entries_read": len(chosen),
        "invocation_id": wanted,
        "masked": any(mask_text(entry.message, secrets) != entry.message for entry in chosen),
    }


def _earlier(entries, known, wanted, secrets):
    """Return how the invocations before the wanted one ended, the last ones only: a crash loop repeats itself."""
    before = known[: known.index(wanted)] if wanted in known else []
    ends = []
    for invocation in before[-EARLIER_KEPT:]:
        chosen = _journal.select_invocation(entries, invocation)
        failure = _failures.classify(chosen, secrets=secrets)
        ends.append(
            {
                "invocation_id": invocation,
                "state": _startup.read_startup(chosen).state,
                "kind": failure.kind if failure else None,
                "evidence": failure.evidence if failure else None,
            }
        )
    return ends
