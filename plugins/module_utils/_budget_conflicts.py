# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what the room of conflicts says of a plan on its host: a refusal, or lines. Private."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_explain import PREFIX


def setup_of(inp, environment):
    """Return what the conflicts of a plan are looked up by. C(environment): as it will be, with the allocator in it."""
    return conflicts.Setup(
        arguments=inp.arguments,
        environment=environment,
        allocator_conf=conflicts.allocator_value(environment),
        engine_version=inp.engine_version,
        torch_version=inp.torch_version,
        gpus=tuple(known.local_gpus(inp)),
        multimodal=known.is_multimodal(inp),
    )


def told(inp, environment):
    """Return (the sentence for which these settings must not be started here or None, lines of the plan).

    The lines: what has to prove itself, what no start shows, what is tried although it is refused.
    """
    if inp.device == "cpu":
        return None, []
    hits = conflicts.look(setup_of(inp, environment))
    refusal, lines = conflicts.refusal(hits, _set_by(inp)), conflicts.notes(hits)
    if refusal and inp.allow_unproven_plan:
        return None, [*lines, f"{refusal[:-1]}: tried all the same for {PREFIX}allow_unproven_plan"]
    return refusal, lines


def _set_by(inp):
    """Return which variable sets the allocator, for people."""
    if inp.allocator_conf:
        return f"{PREFIX}allocator_conf"
    name = next((one for one in conflicts.ALLOCATOR_NAMES if inp.environment.get(one)), "")
    return f"{name} in {PREFIX}environment" if name else ""
