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
        raise Unreadable("Expected a readable log file at {0}, found: {1}; correct the option file.".format(path, error.strerror)) from error
    if not data.strip():
        raise Unreadable("Expected a log at {0}, found an empty file; correct the option file.".format(path))
    return data


def read_unit(run, unit, invocation_id=None):
    """Return (journal lines, UnitState) of a unit's invocation.

    run: callable(argv) -> (rc, stdout, stderr).
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
        if problem:
            raise Unreadable(problem.sentence)
        raise Unreadable(
            "Expected entries of {0} in the journal, found none; correct the option unit, or use become to read the journal.".format(unit)
        )
    begin = entries[0].realtime_seconds
    if begin is not None:
        rc, kernel, _err = run(_journal.kernel_command(begin))
        out += "\n" + (kernel if rc == 0 else "")
    return out, state if not invocation_id or invocation_id == state.invocation_id else None


def explain(log, unit=None, invocation_id=None, target_tokens=None, cell_bytes=None, secrets=()):
    """Return the whole answer for one log (str or bytes): startup, failure, notices and what was read, all masked."""
    entries, _kind = _journal.decode(log)
    known = _journal.invocations(entries)
    chosen = _journal.select_invocation(entries, invocation_id)
    startup = _startup.read_startup(chosen)
    failure = _failures.classify(
        chosen, startup=startup, unit=unit, target_tokens=target_tokens, cell_bytes=cell_bytes, secrets=secrets
    )
    return {
        "startup": mask_data(startup.as_dict(), secrets),
        "failure": mask_data(failure.as_dict(), secrets) if failure else None,
        "notices": mask_data(_failures.notices(chosen, secrets), secrets),
        "entries_read": len(chosen),
        "invocation_id": (invocation_id or known[-1]) if known else None,
        "invocations": len(known),
        "masked": any(mask_text(entry.message, secrets) != entry.message for entry in chosen),
    }
