# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What contradicts itself in the variables of one server. Private to this collection.

Part of the room `_preflight`; pure. A host has one server, or those of sglang_server_instances.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, canonical_name
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import (
    ALLOCATOR_NAMES,
    AUTO,
    HUB_TOKENS,
    LAYERS,
    NO_SECRETS,
    OWNED,
    RANGES,
    REFUSED,
    SECRET_NAME,
    SERVER,
    Finding,
    is_number,
    shown,
    wrong_ranges,
    wrong_types,
)


@dataclass(frozen=True)
class Host:
    """What is known of one host: its variables, and what may be said about each of them."""

    variables: dict
    options: dict  # variable -> entry of the argument_specs
    roles: tuple[str, ...]

    def get(self, name: str, default: object = None) -> object:
        return self.variables.get(name, default)


@dataclass(frozen=True)
class Instance:
    """One server of a host: the flat variables with this instance's own laid over them."""

    name: str
    where: str  # '' or ' in sglang_server_instances[1]'
    variables: dict

    def get(self, short: str, default: object = None) -> object:
        return self.variables.get(SERVER + short, default)


def instances_of(host: Host) -> list[Instance]:
    """The servers of a host; the flat one when no list is given. Broken entries are left to `instance_findings`."""
    flat = {name: value for name, value in host.variables.items() if name.startswith(SERVER)}
    entries = host.get(SERVER + "instances")
    if not isinstance(entries, list) or not entries:
        return [Instance(str(flat.get(SERVER + "name", "main")), "", flat)]
    found = []
    for index, entry in enumerate(entries):
        if isinstance(entry, dict):
            own = {SERVER + str(key): value for key, value in entry.items()}
            found.append(
                Instance(str(entry.get("name", "")), f" in instance {entry.get('name', index)}", {**flat, **own})
            )
    return found


def instance_findings(host: Host) -> Iterator[Finding]:
    """Entries of sglang_server_instances: names, unknown keys, types."""
    entries = host.get(SERVER + "instances")
    variable = SERVER + "instances"
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict):
            continue
        if not entry.get("name"):
            yield Finding(variable, f"{variable}[{index}]: expected a name, found none.")
        for key, value in entry.items():
            full = SERVER + str(key)
            if full not in host.options or key == "instances":
                shorts = [name[len(SERVER) :] for name in host.options if name.startswith(SERVER)]
                near = difflib.get_close_matches(str(key), shorts, n=1, cutoff=0.7)
                hint = f"did you mean {near[0]}?" if near else "use a variable of sglang_server without its prefix."
                yield Finding(variable, f"{variable}[{index}]: {key} is no variable of a server: {hint}")
                continue
            yield from wrong_types(full, f"{key} in {variable}[{index}]", value, host.options[full])


def arguments_of(instance: Instance) -> list[tuple[str, dict]]:
    """(variable, its dictionary) for the three layers of arguments."""
    return [(SERVER + "arguments" + layer, instance.get("arguments" + layer) or {}) for layer in LAYERS]


def environment_of(instance: Instance) -> list[tuple[str, dict]]:
    return [(SERVER + "environment" + layer, instance.get("environment" + layer) or {}) for layer in LAYERS]


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


def check_owned_arguments(instance: Instance) -> Iterator[Finding]:
    """An argument that has a variable of its own is set there only."""
    owned = {row.argument: row for row in OWNED}
    for variable, arguments in arguments_of(instance):
        for name in arguments if isinstance(arguments, dict) else ():
            row = owned.get(canonical_name(str(name)))
            if row is not None:
                yield Finding(
                    variable,
                    f"{variable}{instance.where} has {name}, which {row.variable} sets: remove it there and use "
                    f"{row.variable}.",
                )


def check_refused_arguments(instance: Instance) -> Iterator[Finding]:
    """An argument that would undo what the role does, or show a secret. Its value is never shown."""
    refused = {row.argument: row for row in REFUSED}
    for variable, arguments in arguments_of(instance):
        for name in arguments if isinstance(arguments, dict) else ():
            row = refused.get(canonical_name(str(name)))
            if row is not None:
                yield Finding(variable, f"{variable}{instance.where} has {name}: {row.instead}.")


def check_spellings(instance: Instance) -> Iterator[Finding]:
    """One argument, one spelling in each layer; values that can be written on a command line."""
    for variable, arguments in arguments_of(instance):
        if not isinstance(arguments, dict):
            continue
        try:
            canonical_arguments(arguments)
        except ValueError as error:
            yield Finding(variable, f"{variable}{instance.where}: {error}")


def is_secret_name(name: str) -> bool:
    """Whether a variable of the environment holds a secret, by its name."""
    return SECRET_NAME.search(name) is not None and name.upper() not in NO_SECRETS


def check_secrets(instance: Instance) -> Iterator[Finding]:
    """The file of the environment is shown in diffs. The value is never shown."""
    for variable, environment in environment_of(instance):
        for name in environment if isinstance(environment, dict) else ():
            if not is_secret_name(str(name)):
                continue
            place = (
                "the hub's token belongs to sglang_model_token"
                if str(name).upper() in HUB_TOKENS
                else "a key of the server belongs to sglang_server_api_key, a token of the hub to sglang_model_token"
            )
            yield Finding(
                variable,
                f"{variable}{instance.where} has {name}, and the file of the environment is shown in diffs: remove it "
                f"there, {place}.",
            )


def check_environment(instance: Instance) -> Iterator[Finding]:
    """Values are texts or numbers: YAML turns yes, no and on into booleans, and readers differ on those."""
    for variable, environment in environment_of(instance):
        for name, value in environment.items() if isinstance(environment, dict) else ():
            if is_secret_name(str(name)):
                continue  # refused whatever it holds, and not to be shown
            if isinstance(value, (bool, list, dict)) or value is None:
                yield Finding(
                    variable,
                    f"{variable}{instance.where}: expected a text for {name}, found {shown(value)}: put it in "
                    "quotes as you want it to be read.",
                )


def check_allocator(instance: Instance) -> Iterator[Finding]:
    """Torch reads two names, in an order that surprises; settings that exclude each other (pitfalls known to torch)."""
    places = [
        (f"{name} of {variable}", str(environment[name]))
        for variable, environment in environment_of(instance)
        for name in ALLOCATOR_NAMES
        if isinstance(environment, dict) and name in environment
    ]
    own = instance.get("allocator_conf")
    names = {place.split(" ")[0] for place, _value in places}
    variable = SERVER + "allocator_conf"
    if len(names) > 1:
        yield Finding(
            SERVER + "environment",
            f"{ALLOCATOR_NAMES[0]} and {ALLOCATOR_NAMES[1]} are both set{instance.where}: torch and other "
            f"libraries disagree on which of them counts, use {variable} instead of both.",
        )
    elif places and own not in (None, AUTO):
        yield Finding(
            variable,
            f"{variable}{instance.where} is {shown(own)} and {places[0][0]} is set too: remove the one in the "
            "environment.",
        )
    elif places:
        yield Finding(
            SERVER + "environment",
            f"{places[0][0]} is set{instance.where}: write {variable}: '{places[0][1]}' instead, so that the plan "
            "knows it.",
        )
    if isinstance(own, str) and own not in ("", AUTO):
        yield from check_allocator_value(variable + instance.where, own)


def check_allocator_value(label: str, value: str) -> Iterator[Finding]:
    pairs = dict(part.partition(":")[::2] for part in value.split(","))
    if not all(re.fullmatch(r"[a-z0-9_]+", key) and text for key, text in pairs.items()):
        yield Finding(
            SERVER + "allocator_conf",
            f"{label}: expected key:value pairs such as expandable_segments:True, found {shown(value)}.",
        )
        return
    expandable = pairs.get("expandable_segments")
    if expandable is not None and expandable not in ("True", "False"):
        yield Finding(
            SERVER + "allocator_conf",
            f"{label}: expected expandable_segments:True or expandable_segments:False, found {shown(expandable)}: "
            "readers of this setting differ on other spellings.",
        )
    if expandable == "True" and "max_split_size_mb" in pairs:
        yield Finding(
            SERVER + "allocator_conf",
            f"{label}: expandable_segments and max_split_size_mb exclude each other in torch: remove "
            "max_split_size_mb.",
        )


def check_model(instance: Instance) -> Iterator[Finding]:
    path = instance.get("model_path")
    if path is not None and not str(path).startswith("/"):
        yield Finding(
            SERVER + "model_path",
            f"{SERVER}model_path{instance.where}: expected an absolute folder on the host, found {shown(path)}.",
        )


INSTANCE_CHECKS = (
    check_numbers,
    check_promise,
    check_name,
    check_owned_arguments,
    check_refused_arguments,
    check_spellings,
    check_secrets,
    check_environment,
    check_allocator,
    check_model,
)
