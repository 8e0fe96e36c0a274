# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory alone can tell to be wrong: names, types, ranges, contradictions. Private to this collection.

Pure: the evaluated variables of one host and the roles' argument_specs go in, findings come out. What a variable may be
is read from the argument_specs; only what they cannot say (ranges, auto, what contradicts what) is a table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import revision_problem
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_fence import hook_files
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_host import (
    Host,
    instance_findings,
    instances_of,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import (
    RANGES,
    SERVER,
    Finding,
    path_problem,
    shown,
    version_problem,
    wrong_ranges,
    wrong_types,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_server import INSTANCE_CHECKS

# Facts that the roles set; they are no variables to set and no typing errors either.
OUTPUTS = ("sglang_server_outcomes", "sglang_server_plans", "sglang_server_remembered")


def options_of(specs: dict[str, dict]) -> dict:
    """{role: content of argument_specs.yml} -> {variable: its options}; all entry points together."""
    options: dict = {}
    for content in specs.values():
        for entry in (content.get("argument_specs") or {}).values():
            for name, option in (entry.get("options") or {}).items():
                options.setdefault(name, option)
    return options


# Names


def unknown_names(host: Host, known_more: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Names that begin like a variable of this collection, or nearly so, and are none."""
    known = set(host.options) | set(OUTPUTS) | set(known_more)
    prefixes = tuple(sorted({"_".join(name.split("_")[:2]) + "_" for name in host.options}))
    for name in sorted(host.variables):
        if name in known or not name.startswith("sglang_"):
            continue
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
        if near:
            yield Finding(name, f"{name} is no variable of this collection: did you mean {near[0]}?")
        elif name.startswith(prefixes):
            yield Finding(
                name,
                f"{name} is no variable of this collection: remove it, or list it in sglang_preflight_known_names "
                "when it is your own.",
            )


# One host


def check_types(host: Host) -> Iterator[Finding]:
    for name in sorted(host.variables):
        if name in host.options:
            yield from wrong_types(name, name, host.variables[name], host.options[name])


def check_host_numbers(host: Host) -> Iterator[Finding]:
    for rule in RANGES:
        if not rule.variable.startswith(SERVER) and rule.variable in host.variables:
            yield from wrong_ranges(rule.variable, host.variables[rule.variable], rule)


def check_servers(host: Host) -> Iterator[Finding]:
    if "sglang_server" not in host.roles:
        return
    yield from instance_findings(host)
    for instance in instances_of(host):
        for check in INSTANCE_CHECKS:
            yield from check(instance)


def check_between_servers(host: Host) -> Iterator[Finding]:
    """No two servers of a host have one name or one address."""
    seen: set = set()
    for instance in instances_of(host) if "sglang_server" in host.roles else ():
        address = f"port {instance.get('port', 30000)}"
        for what, value in (("name", instance.name), ("port", address)):
            key = (what, value)
            if key in seen:
                yield Finding(
                    SERVER + "instances",
                    f"Two servers of {SERVER}instances have {value if what == 'port' else 'the name ' + value}: "
                    "give each its own.",
                )
            seen.add(key)


def check_engine_version(host: Host) -> Iterator[Finding]:
    problem = version_problem(host.get("sglang_engine_version"))
    if problem:
        yield Finding("sglang_engine_version", f"sglang_engine_version: {problem}.")


def check_model_source(host: Host) -> Iterator[Finding]:
    """A repository needs a pinned revision; without one a folder must be named."""
    repo, revision = host.get("sglang_model_repo"), host.get("sglang_model_revision")
    if repo:
        problem = revision_problem(str(revision or ""))
        if revision is not None and not isinstance(revision, str):
            # A commit hash of digits only, or one such as 12e4..., is a number to YAML.
            problem = f"sglang_model_revision is the number {shown(revision)} to YAML: put the hash in quotes."
        if problem:
            yield Finding("sglang_model_revision", problem)
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(repo)):
            yield Finding("sglang_model_repo", f"sglang_model_repo: expected ORG/NAME, found {shown(repo)}.")
    elif "sglang_server" in host.roles and not (
        host.get("sglang_model_path") or all(one.get("model_path") for one in instances_of(host))
    ):
        yield Finding(
            "sglang_model_path",
            "No model is named: set sglang_model_path to a folder on the host, or sglang_model_repo and "
            "sglang_model_revision.",
        )


def check_folders(host: Host) -> Iterator[Finding]:
    """Every folder is absolute, and what stands in the unit needs no quoting there."""
    for name, option in sorted(host.options.items()):
        # Every server's model folder is looked at by check_paths.
        value = None if name == SERVER + "model_path" else host.variables.get(name)
        folder = option.get("type") == "path" and name.endswith(("_root", "_dir", "_home", "_path"))
        problem = path_problem(name, value) if folder else None
        if problem:
            yield Finding(name, f"{name}: {problem}.")


def check_journal(host: Host) -> Iterator[Finding]:
    """A size as journald.conf(5) takes it."""
    name = SERVER + "journal_max_use"
    size = host.get(name)
    if name not in host.options or size is None or isinstance(size, (list, dict)):
        return
    if not re.fullmatch(r"[0-9]*[1-9][0-9]*(\.[0-9]+)?[KMGTPE]?", str(size)):
        yield Finding(name, f"{name}: expected a size such as 2G, found {shown(size)}.")


HOST_CHECKS = (
    check_types,
    check_host_numbers,
    check_engine_version,
    check_model_source,
    check_folders,
    check_journal,
    check_servers,
    check_between_servers,
)


def files_wanted(variables: dict, specs: dict[str, dict]) -> list[tuple[str, str]]:
    """(label, absolute path) of each file that must be on the controller."""
    return hook_files(Host(variables, options_of(specs), tuple(specs)))


def findings(variables: dict, specs: dict[str, dict], known_names: tuple[str, ...] = ()) -> list[Finding]:
    """All findings of one host, each sentence once.

    :arg variables: evaluated C(sglang_*) variables. :arg specs: content of argument_specs.yml by role, of the roles
    that are checked. :arg known_names: further names that are no mistakes.
    """
    host = Host(variables, options_of(specs), tuple(specs))
    every = list(unknown_names(host, known_names))
    for check in HOST_CHECKS:
        every += check(host)
    return list(dict.fromkeys(every))
