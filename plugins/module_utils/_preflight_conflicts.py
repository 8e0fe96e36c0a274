# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings of one server do not go together, as far as the inventory alone tells. Private to this collection.

Part of the room `_preflight`; pure. What depends on the boards, the model or torch is said by the plan on the host.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts as conflicts
from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts_rows import REFUSED
from ansible_collections.gpufleet.sglang.plugins.module_utils._layers import merged_layers
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_host import (
    Instance,
    known_version,
    layers_of,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import AUTO, SERVER, Finding


def check_conflicts(instance: Instance) -> Iterator[Finding]:
    """What is refused whatever the host is. Names and spellings of the allocator have checks of their own."""
    arguments, environment = merged(instance, "arguments"), merged(instance, "environment")
    if arguments is None or environment is None or instance.get("allow_unproven_plan") is True:
        return
    own = instance.get("allocator_conf")
    is_own = isinstance(own, str) and own not in ("", AUTO)
    name = next((one for one in conflicts.ALLOCATOR_NAMES if environment.get(one)), None)
    setup = conflicts.Setup(
        arguments=arguments,
        environment=environment,
        allocator_conf=own if is_own else conflicts.allocator_value(environment),
        engine_version=known_version(instance.engine_version),
    )
    variable = SERVER + ("allocator_conf" if is_own or name is None else "environment")
    where = variable + instance.where if is_own or name is None else f"{name} in {variable}{instance.where}"
    for hit in conflicts.look(setup):
        if hit.level == REFUSED and not hit.conflict.told and not any(when.torch_before for when in hit.conflict.when):
            yield Finding(variable, conflicts.sentence(hit, where))


def merged(instance: Instance, what: str) -> dict | None:
    """All layers as one; None where they cannot be merged, which other checks say."""
    layers = [{"origin": variable, "values": values} for variable, values in layers_of(instance, what)]
    try:
        return merged_layers(layers, what)["merged"]
    except ValueError:
        return None
