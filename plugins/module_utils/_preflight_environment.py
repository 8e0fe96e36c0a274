# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the environment of one server may be. Private to this collection.

Part of the room `_preflight`; pure. Nothing expands a value on its way to the process: neither systemd nor a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts import ALLOCATOR_NAMES
from ansible_collections.gpufleet.sglang.plugins.module_utils._layers import merged_layers
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_host import Instance, layers_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._preflight_rules import (
    AUTO,
    HUB_TOKENS,
    OWNED_VARIABLES,
    SERVER,
    Finding,
    is_secret_name,
    shown,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._words import environment_file_line, variable_name

# Names by which a value is a folder or a file, and those by which it is a list of folders.
FOLDER_NAME = re.compile(r"(^|_)(HOME|PATH|DIR|ROOT|BASE|CACHE|PREFIX|FOLDER|FILE)$", re.IGNORECASE)
FOLDER_LIST = re.compile(
    r"(^|_)(LIBRARY_|PYTHON|MAN|INCLUDE_|CPLUS_INCLUDE_|C_INCLUDE_|XDG_DATA_)?PATH$", re.IGNORECASE
)
EXPANSION = re.compile(r"\$(\w|\{|\()")
EXPANDED_PATH = re.compile(r"\$(\w+|\{\w+\})/")


def check_environment(instance: Instance) -> Iterator[Finding]:
    """Every variable: its name, whether its value can be written, and whether somebody would have to expand it."""
    for variable, environment in layers_of(instance, "environment"):
        for name, value in environment.items():
            label = f"{variable}{instance.where}"
            problem = variable_problem(str(name), value, label, instance)
            if problem:
                yield Finding(variable, problem)


def variable_problem(name: str, value: object, label: str, instance: Instance) -> str | None:
    """What is wrong with one variable, as a sentence; the first thing only. None removes the name in a later layer."""
    if is_secret_name(name):
        return secret_problem(name, label)
    try:
        variable_name(name)
    except ValueError as error:
        return f"{label}: {error}"
    for row in OWNED_VARIABLES:
        if re.fullmatch(row.pattern, name):
            return f"{label} has {name}, {row.instead}."
    if value is None:
        return None
    if isinstance(value, (bool, list, dict)):
        return f"{label}: expected a text for {name}, found {shown(value)}: put it in quotes as you want it to be read."
    try:
        environment_file_line(name, value)
    except ValueError as error:
        return f"{label}: {error}"
    problem = folder_problem(name, str(value))
    if problem:
        return f"{label}: {problem}"
    if name == "CUDA_HOME" and instance.get("cuda_home"):
        return f"{label} has CUDA_HOME, which {SERVER}cuda_home sets: remove one of them."
    return None


def secret_problem(name: str, label: str) -> str:
    """The file of the environment is shown in diffs. The value is never shown."""
    place = (
        "the hub's token belongs to sglang_model_token"
        if name.upper() in HUB_TOKENS
        else "a key of the server belongs to sglang_server_api_key, a token of the hub to sglang_model_token"
    )
    return f"{label} has {name}, and the file of the environment is shown in diffs: remove it there, {place}."


def folder_problem(name: str, value: str) -> str | None:
    """Why a value that names folders would not be found; None for values that name none."""
    found, is_folder, is_list = f"found {shown(value)}", FOLDER_NAME.search(name), FOLDER_LIST.search(name)
    if value == "~" or value.startswith("~/") or (is_folder and re.search(r"^~|:~", value)):
        return f"expected an absolute folder for {name}, {found}: nothing expands '~' in a unit, write the whole path."
    if EXPANDED_PATH.match(value) or (is_folder and EXPANSION.search(value)):
        way_out = f", or use {SERVER}cuda_home for the toolkit" if name == "PATH" else ""
        return (
            f"expected folders written out for {name}, {found}: nothing expands '$' in a unit, write the whole "
            f"{'list' if is_list else 'path'}{way_out}."
        )
    if not is_folder:
        return None
    if value.startswith(":") or (is_list and (value.endswith(":") or "::" in value)):
        return f"expected no empty folder in {name}, {found}: remove the ':' that has nothing beside it."
    if name in ("CUDA_HOME", "CUDA_PATH", "HOME") and not value.startswith("/"):
        return f"expected an absolute folder for {name}, {found}."
    return search_path_problem(value) if name == "PATH" else None


def search_path_problem(value: str) -> str | None:
    """PATH takes the place of the unit's own, so it has to be a whole one."""
    folders = value.split(":")
    if not all(folder.startswith("/") for folder in folders):
        return f"expected absolute folders in PATH, found {shown(value)}."
    if "/usr/bin" not in folders:
        return (
            f"expected /usr/bin in PATH, where compilers and nvidia-smi are, found {shown(value)}: write the whole "
            f"list, or use {SERVER}cuda_home for the toolkit."
        )
    return None


# The allocator


def check_allocator(instance: Instance) -> Iterator[Finding]:
    """Torch reads two names, in an order that surprises: never both, never empty. One that the user chose is kept."""
    layers = [
        {"origin": variable, "values": {str(name): value for name, value in environment.items()}}
        for variable, environment in layers_of(instance, "environment")
    ]
    merged = merged_layers(layers, "environment")
    chosen = {name: merged["merged"][name] for name in ALLOCATOR_NAMES if name in merged["merged"]}
    own, variable = instance.get("allocator_conf"), SERVER + "allocator_conf"
    if len(chosen) > 1:
        yield Finding(
            SERVER + "environment",
            f"{ALLOCATOR_NAMES[0]} and {ALLOCATOR_NAMES[1]} are both set{instance.where}: torch and other "
            f"libraries disagree on which of them counts, use {variable} instead of both.",
        )
    elif chosen and own not in (None, AUTO):
        yield Finding(
            variable,
            f"{variable}{instance.where} is {shown(own)} and {min(chosen)} is set too: remove the one in the "
            "environment.",
        )
    else:
        for name, value in chosen.items():
            yield from check_allocator_name(merged["origins"][name], name, value, instance)
    if isinstance(own, str) and own not in ("", AUTO):
        yield from check_allocator_value(variable, variable + instance.where, own)


def check_allocator_name(variable: str, name: str, value: object, instance: Instance) -> Iterator[Finding]:
    label = f"{variable}{instance.where}"
    if isinstance(value, (bool, list, dict)):
        return  # the type is wrong, which check_environment says
    if not str(value).strip():
        yield Finding(
            variable,
            f"{label}: expected settings of torch's allocator in {name}, found none: remove the name, an empty one is "
            "read in different ways.",
        )
    else:
        yield from check_allocator_value(variable, f"{name} of {label}", str(value))


def check_allocator_value(variable: str, label: str, value: str) -> Iterator[Finding]:
    pairs = dict(part.partition(":")[::2] for part in value.split(","))
    if not all(re.fullmatch(r"[a-z0-9_]+", key) and text for key, text in pairs.items()):
        yield Finding(
            variable,
            f"{label}: expected key:value pairs such as expandable_segments:True, found {shown(value)}.",
        )
        return
    expandable = pairs.get("expandable_segments")
    if expandable is not None and expandable not in ("True", "False"):
        yield Finding(
            variable,
            f"{label}: expected expandable_segments:True or expandable_segments:False, found {shown(expandable)}: "
            "readers of this setting differ on other spellings.",
        )
    if expandable == "True" and "max_split_size_mb" in pairs:
        yield Finding(
            variable,
            f"{label}: expandable_segments and max_split_size_mb exclude each other in torch: remove "
            "max_split_size_mb.",
        )


ENVIRONMENT_CHECKS = (check_environment, check_allocator)
