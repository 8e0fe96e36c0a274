# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of a host as the inventory describes them. Private to this collection.

Part of the room `_preflight`; pure. A host has one server, or those of sglang_server_instances.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_key
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import (
    LAYERS,
    SERVER,
    Finding,
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
    host_engine: object = None  # sglang_engine_version, which counts where the server names no other

    @property
    def engine_version(self) -> object:
        return self.get("engine_version") or self.host_engine

    def get(self, short: str, default: object = None) -> object:
        return self.variables.get(SERVER + short, default)


def instances_of(host: Host) -> list[Instance]:
    """The servers of a host; the flat one when no list is given. Broken entries are left to `instance_findings`."""
    flat = {name: value for name, value in host.variables.items() if name.startswith(SERVER)}
    entries, engine = host.get(SERVER + "instances"), host.get("sglang_engine_version")
    if not isinstance(entries, list) or not entries:
        return [Instance(str(flat.get(SERVER + "name", "main")), "", flat, engine)]
    found = []
    for index, entry in enumerate(entries):
        if isinstance(entry, dict):
            own = {SERVER + str(key): value for key, value in entry.items()}
            found.append(
                Instance(
                    str(entry.get("name", "")), f" in instance {entry.get('name', index)}", {**flat, **own}, engine
                )
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


def layers_of(instance: Instance, what: str) -> list[tuple[str, dict]]:
    """(variable, its dictionary) for the three layers of `arguments` or `environment`; what is none is left out."""
    layers = [(SERVER + what + layer, instance.get(what + layer) or {}) for layer in LAYERS]
    return [(variable, values) for variable, values in layers if isinstance(values, dict)]


def known_version(version: object) -> str | None:
    """The version, None for what is none: check_engine_version says that."""
    try:
        version_key(version)
    except ValueError:
        return None
    return str(version)
