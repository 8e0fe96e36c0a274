# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What contradicts itself in the variables of one server. Private to this collection.

Part of the room `_preflight`; pure. Arguments and environment have files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_arguments import ARGUMENT_CHECKS
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_conflicts import check_conflicts
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_environment import ENVIRONMENT_CHECKS
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_fence import check_fence
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_host import Instance, known_version
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import (
    KEYS,
    RANGES,
    SERVER,
    UNIT_OWNED,
    UNIT_SECTIONS,
    Finding,
    is_number,
    path_problem,
    shown,
    version_problem,
    wrong_ranges,
)


def number_of(value: object) -> float | None:
    return float(value) if is_number(value, False) else None


def check_numbers(instance: Instance) -> Iterator[Finding]:
    for rule in RANGES:
        if rule.variable.startswith(SERVER) and rule.variable in instance.variables:
            yield from wrong_ranges(rule.variable + instance.where, instance.variables[rule.variable], rule)


def check_promise(instance: Instance) -> Iterator[Finding]:
    """The promise is given, and no single request may be longer than it."""
    variable = SERVER + "target_tokens"
    target = instance.get("target_tokens")
    if target is None:
        yield Finding(
            variable,
            f"{variable}{instance.where}: expected the number of tokens that the KV cache must hold, found none: "
            f"set it, for example {variable}: 200000.",
        )
        return
    context, promised = number_of(instance.get("context_tokens")), number_of(target)
    if context is not None and promised is not None and context > promised:
        yield Finding(
            SERVER + "context_tokens",
            f"{SERVER}context_tokens{instance.where} is {context:.0f} and {variable} is {promised:.0f}: a request "
            "cannot be longer than the pool, lower the context or raise the target.",
        )


def check_name(instance: Instance) -> Iterator[Finding]:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", instance.name or "main"):
        yield Finding(
            SERVER + "name",
            f"{SERVER}name{instance.where}: expected letters, digits, '_', '.' and '-' (it becomes a unit's name), "
            f"found {shown(instance.name)}.",
        )


# A key is taken out of everything that is returned: a shorter one, or a number, would take figures with it.
LEAST_KEY_LENGTH = 8


def check_keys(instance: Instance) -> Iterator[Finding]:
    """A key reaches the server by a file of YAML and SGLang's own parser, and clients send it in a header.

    It is never shown.
    """
    for row in KEYS:
        key, label = instance.get(row.setting), f"{SERVER}{row.setting}{instance.where}"
        if key is None or key == "" or isinstance(key, (list, dict)):
            continue  # of a list or a dictionary, check_types says it
        if not isinstance(key, str):
            yield Finding(SERVER + row.setting, f"{label}: expected a text, found something else: put it in quotes.")
        elif not re.fullmatch(r"(?!-)(?!\d+\Z)[!-~]{%d,}" % LEAST_KEY_LENGTH, key):
            yield Finding(
                SERVER + row.setting,
                f"{label}: expected at least {LEAST_KEY_LENGTH} signs of printable ASCII without blanks, not only "
                "digits and not beginning with '-', found something else: make another key, for example with openssl "
                "rand -hex 24.",
            )
        elif is_older(instance.engine_version, row.since):
            yield Finding(
                SERVER + row.setting,
                f"{label} needs SGLang {row.since} or later, found {instance.engine_version}: {row.why}; take a "
                "newer engine, or remove the key and protect the server by other means.",
            )


def is_older(version: object, since: str) -> bool:
    """Whether a version is known and older."""
    known = known_version(version)
    return known is not None and not version_at_least(known, since)


def check_server_version(instance: Instance) -> Iterator[Finding]:
    problem = version_problem(instance.get("engine_version"))
    if problem:
        yield Finding(SERVER + "engine_version", f"{SERVER}engine_version{instance.where}: {problem}.")


def check_paths(instance: Instance) -> Iterator[Finding]:
    """Folders that stand in the unit of one server."""
    for setting in ("model_path", "cuda_home"):
        problem = path_problem(SERVER + setting, instance.get(setting))
        if problem:
            yield Finding(SERVER + setting, f"{SERVER}{setting}{instance.where}: {problem}.")


def check_unit_extra(instance: Instance) -> Iterator[Finding]:
    """Further directives: sections and keys that systemd has, on one line each, and none that the unit needs itself."""
    variable = SERVER + "unit_extra"
    extra = instance.get("unit_extra")
    for section, directives in extra.items() if isinstance(extra, dict) else ():
        if section not in UNIT_SECTIONS or not isinstance(directives, dict):
            yield Finding(
                variable,
                f"{variable}{instance.where}: expected a dictionary of directives below one of "
                f"{', '.join(UNIT_SECTIONS)}, found {shown(section)}.",
            )
            continue
        for name, value in directives.items():
            problem = directive_problem(str(name), value)
            if problem:
                yield Finding(variable, f"{variable}{instance.where}: {problem}.")


def directive_problem(name: str, value: object) -> str | None:
    """What is wrong with one directive, as the end of a sentence; its value is not shown."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name):
        return f"expected the name of a directive such as MemoryMax, found {shown(name)}"
    if name in UNIT_OWNED:
        return f"{name} is what the role sets and proves: {UNIT_OWNED[name]}"
    for one in value if isinstance(value, list) else [value]:
        if one is None or isinstance(one, (list, dict)):
            return f"expected a text, a number or a list of these for {name}"
        if mask_text(str(one)) != str(one):
            return f"{name} holds what looks like a secret, and everybody on the host reads the unit: remove it there"
        if re.search(r"[\n\r\0]", str(one)):
            return f"expected {name} on one line, found a line break in it: use a list for several lines"
        if str(one).endswith("\\"):
            return f"expected no '\\' at the end of {name}, which would join it with the next line"
    return None


INSTANCE_CHECKS = (
    check_numbers,
    check_promise,
    check_name,
    *ARGUMENT_CHECKS,
    *ENVIRONMENT_CHECKS,
    check_conflicts,
    check_keys,
    check_server_version,
    check_paths,
    check_unit_extra,
    check_fence,
)
