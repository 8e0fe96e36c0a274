# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: decisions, written beside the attempts after which they were made.

Private to the gpufleet.sglang collection; may change at any time.

An attempt is remembered when it is judged, and what comes next is decided behind that. So an attempt keeps the step
that led to it from the beginning, and the step that it led to once its run is closed. A run that was killed tells only
what it had begun.
"""

from __future__ import annotations

import json

from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data


def next_steps(attempts, step):
    """What was decided after each attempt of a run: ``{number: {"action", "reason", "fraction", "cap_tokens"}}``.

    :arg attempts: the attempts of the run, oldest first. :arg step: the step behind the last one.
    """
    following = [_told(one, (one.get("step") or {}).get("reason")) for one in attempts[1:]]
    following.append(_told(step, step.get("reason")))
    return {one["number"]: then for one, then in zip(attempts, following) if "number" in one}


def _told(taken, reason):
    """A step, or the attempt that carried it out: what it does, why, and the levers where it has values."""
    values = taken.get("values") or {}
    levers = {name: values[name] for name in ("fraction", "cap_tokens") if values.get(name) is not None}
    return mask_data(dict(levers, action=taken.get("action"), reason=reason))


def with_next(lines, run_id, steps):
    """Lines of the attempts with what was decided after those of this run; any other line stays as it is.

    :arg steps: see ``next_steps``.
    """
    return [_line_with_next(line, run_id, steps) for line in lines]


def _line_with_next(line, run_id, steps):
    try:
        attempt = json.loads(line)
    except ValueError:  # half a line of a full disk or a power loss
        return line
    if not isinstance(attempt, dict) or attempt.get("run_id") != run_id or attempt.get("number") not in steps:
        return line
    return json.dumps(dict(attempt, next=steps[attempt["number"]]), sort_keys=True) + "\n"


def remember(store, run_id, attempts, step):
    """Write what was decided beside the attempts of this run; the caller holds the lease. Nothing where none is kept.

    :arg store: what the instance keeps, see ``_proof.Store``.
    :raises OSError: for a full disk; the attempts are as they were then.
    """
    steps = next_steps(attempts, step)
    if steps:
        store.edit_attempts(lambda lines: with_next(lines, run_id, steps))
