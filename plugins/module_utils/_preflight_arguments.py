# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the arguments of one server may be. Private to this collection.

Part of the room `_preflight`; pure. No finding shows a value: any argument may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, canonical_name
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_host import Instance, layers_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import (
    OWNED,
    REFUSED,
    WHOLE_NAMES,
    Finding,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._words import argument_name, server_arguments


def check_arguments(instance: Instance) -> Iterator[Finding]:
    """Every argument: its name, who sets it, and whether its value can be written on a command line."""
    for variable, arguments in layers_of(instance, "arguments"):
        label = f"{variable}{instance.where}"
        for name, value in arguments.items():
            problem = name_problem(name, label) or value_problem(name, value, label)
            if problem:
                yield Finding(variable, problem)


def name_problem(name: object, label: str) -> str | None:
    """Why an argument may not stand in the variable *label*, as a sentence; None when it may."""
    try:
        argument_name(name)
    except ValueError as error:
        return f"{label}: {error}"
    canonical = canonical_name(str(name))
    for row in REFUSED:
        if canonical == row.argument:
            return f"{label} has {name}: {row.instead}."
        if is_short_for(canonical, row.argument):
            return f"{label} has {name}, which SGLang can take for {row.argument}: {row.instead}."
    for row in OWNED:
        if canonical == row.argument:
            return f"{label} has {name}, which {row.variable} sets: remove it there and use {row.variable}."
        if is_short_for(canonical, row.argument):
            return (
                f"{label} has {name}, which is short for {row.argument}, and {row.variable} sets that: remove it there "
                f"and use {row.variable}."
            )
    return None


def is_short_for(name: str, argument: str) -> bool:
    """argparse takes the beginning of a name for the whole, and of two equal arguments the last one counts."""
    return name != argument and argument.startswith(name) and name not in WHOLE_NAMES


def value_problem(name: object, value: object, label: str) -> str | None:
    try:
        server_arguments({name: value})
    except ValueError as error:
        return f"{label}: {error}"
    return None


def check_spellings(instance: Instance) -> Iterator[Finding]:
    """One argument, one spelling in each layer."""
    for variable, arguments in layers_of(instance, "arguments"):
        try:
            canonical_arguments({name: None for name in arguments if name_problem(name, "") is None})
        except ValueError as error:
            yield Finding(variable, f"{variable}{instance.where}: {error}")


ARGUMENT_CHECKS = (check_arguments, check_spellings)
