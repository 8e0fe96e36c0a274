# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory alone can tell to be wrong: names, types, ranges, contradictions. Private to this collection.

Pure: the evaluated variables of one host and the roles' argument_specs go in, findings come out. What a variable may be
is read from the argument_specs; only what they cannot say (ranges, auto, what contradicts what) is a table here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, canonical_name
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import revision_problem

SERVER = "sglang_server_"
AUTO = "auto"

# Facts that the roles set; they are no variables to set and no typing errors either.
OUTPUTS = ("sglang_server_outcomes",)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the variable, and what was expected, what was found, what repairs it in one sentence."""

    variable: str
    sentence: str

    def as_dict(self) -> dict:
        return {"variable": self.variable, "sentence": self.sentence}


@dataclass(frozen=True)
class Range:
    """What a number may be. `words` are texts allowed instead; `also` are numbers outside the range allowed too."""

    variable: str
    low: float
    high: float | None
    whole: bool
    words: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    open_ends: bool = False
    source: str = ""


RANGES = (
    Range("sglang_server_target_tokens", 1, None, True, source="a pool of no tokens serves nothing"),
    Range("sglang_server_context_tokens", 1, None, True, (AUTO,), source="SGLang --context-length"),
    Range(
        "sglang_server_mem_fraction_static", 0, 1, False, (AUTO,), open_ends=True, source="SGLang --mem-fraction-static"
    ),
    Range("sglang_server_chunked_prefill_size", 1, None, True, (AUTO,), (-1,), source="SGLang: -1 switches chunks off"),
    Range("sglang_server_min_headroom_gib", 0, None, False, (AUTO,), source="free memory"),
    Range("sglang_server_min_least_free_gib", 0, None, False, (AUTO,), source="free memory"),
    Range("sglang_server_cell_bytes", 1, None, True, source="bytes of one token"),
    Range("sglang_server_port", 1, 65535, True, source="TCP"),
    Range("sglang_server_soak_seconds", 1, None, True, source="a load test of no length proves nothing"),
    Range("sglang_server_max_attempts", 1, 20, True, source="every attempt is a restart"),
    Range("sglang_server_timeout_seconds", 30, None, True, source="no start-up was ever seen below 20 s"),
    Range("sglang_server_drain_seconds", 0, None, True, source="systemd TimeoutStopSec"),
    Range("sglang_server_keep_backups", 1, None, True, source="the way back needs one"),
    Range("sglang_engine_min_free_gib", 0, None, False, source="disk space"),
    Range("sglang_model_workers", 1, 32, True, source="connections to one hub"),
    Range("sglang_model_tries", 1, 100, True, source="tries of one transfer"),
    Range("sglang_model_timeout_seconds", 1, None, True, source="seconds without a byte"),
)


@dataclass(frozen=True)
class Owned:
    """An argument of SGLang that a variable of its own sets."""

    argument: str
    variable: str
    source: str


OWNED = (
    Owned("mem-fraction-static", "sglang_server_mem_fraction_static", "computed by the plan"),
    Owned("max-total-tokens", "sglang_server_target_tokens", "the cap, computed from the promise and the pool policy"),
    Owned("chunked-prefill-size", "sglang_server_chunked_prefill_size", "a lever of the plan"),
    Owned("context-length", "sglang_server_context_tokens", "the soak's longest prompt"),
    Owned("model-path", "sglang_server_model_path", "its geometry is read by the plan"),
    Owned("host", "sglang_server_host", "where readiness is asked"),
    Owned("port", "sglang_server_port", "where readiness is asked"),
    Owned("api-key", "sglang_server_api_key", "kept out of the unit and of the list of processes"),
)

ALLOCATOR_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
LAYERS = ("", "_group", "_host")


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


def shown(value: object) -> str:
    """A value in a message, cut to a readable length."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


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


# Types

_NUMBERS = {"int": int, "float": float}


def type_problem(value: object, option: dict) -> str | None:
    """What is wrong with a value's type, as the end of a sentence; None when it fits."""
    kind = option.get("type", "str")
    if value is None or kind == "raw":
        return None
    if kind == "bool":
        if isinstance(value, bool):
            return None
        return "expected true or false"
    if kind in _NUMBERS:
        return (
            None if is_number(value, kind == "int") else f"expected {'a whole number' if kind == 'int' else 'a number'}"
        )
    if kind in ("list", "dict"):
        return element_problem(value, option, list if kind == "list" else dict)
    if isinstance(value, (list, dict)):
        return "expected one text"
    choices = option.get("choices")
    if choices and str(value) not in [str(one) for one in choices]:
        near = difflib.get_close_matches(str(value), [str(one) for one in choices], n=1)
        return f"expected one of {', '.join(map(str, choices))}" + (f" (did you mean {near[0]}?)" if near else "")
    return None


def element_problem(value: object, option: dict, kind: type) -> str | None:
    if not isinstance(value, kind):
        return "expected a list" if kind is list else "expected a dictionary"
    wanted = option.get("elements")
    if kind is list and wanted in ("dict", "str"):
        for one in value:
            if isinstance(one, dict) is not (wanted == "dict"):
                return f"expected a list of {'dictionaries' if wanted == 'dict' else 'texts'}, and {shown(one)} is none"
    return None


def is_number(value: object, whole: bool) -> bool:
    """True for numbers and for texts that are one (extra variables given as key=value are texts)."""
    if isinstance(value, bool):
        return False
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    return number == number and abs(number) != float("inf") and (not whole or number == int(number))


def wrong_types(name: str, label: str, value: object, option: dict) -> Iterator[Finding]:
    problem = type_problem(value, option)
    if problem is None:
        return
    found = "a secret" if option.get("no_log") else shown(value)
    repair = ""
    if option.get("type") == "bool" and isinstance(value, str):
        right = "false" if value.strip().lower() in ("false", "no", "off", "0", "n", "f", "") else "true"
        found = f"the text {shown(value)}, which counts as true in a condition"
        repair = f": write {name}: {right}, or on the command line -e '{{\"{name}\": {right}}}'"
    yield Finding(name, f"{label}: {problem}, found {found}{repair}.")


# Ranges


def wrong_ranges(label: str, value: object, rule: Range) -> Iterator[Finding]:
    if value is None or (isinstance(value, str) and value in rule.words):
        return
    number = is_number(value, rule.whole)
    if number and in_range(float(value), rule):
        return
    if not number and not rule.words:
        return  # the type is wrong, which check_types says
    yield Finding(rule.variable, f"{label}: expected {range_words(rule)}, found {shown(value)}.")


def in_range(number: float, rule: Range) -> bool:
    if number in rule.also:
        return True
    if rule.open_ends:
        return rule.low < number < (rule.high if rule.high is not None else float("inf"))
    return rule.low <= number and (rule.high is None or number <= rule.high)


def range_words(rule: Range) -> str:
    """'auto, -1, or a whole number of at least 1'."""
    kind = "a whole number" if rule.whole else "a number"
    if rule.open_ends:
        span = f"{kind} between {rule.low:g} and {rule.high:g} (both excluded)"
    elif rule.high is None:
        span = f"{kind} of at least {rule.low:g}"
    else:
        span = f"{kind} from {rule.low:g} to {rule.high:g}"
    return ", ".join([*rule.words, *map(str, rule.also), ""]) + ("or " if rule.words or rule.also else "") + span


# One server


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


def check_spellings(instance: Instance) -> Iterator[Finding]:
    """One argument, one spelling in each layer; values that can be written on a command line."""
    for variable, arguments in arguments_of(instance):
        if not isinstance(arguments, dict):
            continue
        try:
            canonical_arguments(arguments)
        except ValueError as error:
            yield Finding(variable, f"{variable}{instance.where}: {error}")


def check_environment(instance: Instance) -> Iterator[Finding]:
    """Values are texts or numbers: YAML turns yes, no and on into booleans, and readers differ on those."""
    for variable, environment in environment_of(instance):
        for name, value in environment.items() if isinstance(environment, dict) else ():
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
    check_spellings,
    check_environment,
    check_allocator,
    check_model,
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
    seen: dict = {}
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
            seen[key] = instance.name


def check_engine_version(host: Host) -> Iterator[Finding]:
    version = host.get("sglang_engine_version")
    if version is None or not isinstance(version, (str, int, float)):
        return
    if not re.fullmatch(r"\d+(\.\d+)+((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", str(version)):
        yield Finding(
            "sglang_engine_version",
            f"sglang_engine_version: expected one exact release such as 0.5.23, found {shown(version)}.",
        )


def check_model_source(host: Host) -> Iterator[Finding]:
    """A repository needs a pinned revision; without one a folder must be named."""
    repo = host.get("sglang_model_repo")
    if repo:
        problem = revision_problem(str(host.get("sglang_model_revision") or ""))
        if problem:
            yield Finding("sglang_model_revision", problem)
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(repo)):
            yield Finding("sglang_model_repo", f"sglang_model_repo: expected ORG/NAME, found {shown(repo)}.")
    elif "sglang_server" in host.roles:
        paths = [host.get("sglang_model_path")] + [one.get("model_path") for one in instances_of(host)]
        if not any(paths):
            yield Finding(
                "sglang_model_path",
                "No model is named: set sglang_model_path to a folder on the host, or sglang_model_repo and "
                "sglang_model_revision.",
            )


def check_absolute_folders(host: Host) -> Iterator[Finding]:
    for name, option in sorted(host.options.items()):
        # Every server's model folder is looked at by check_model.
        value = None if name == SERVER + "model_path" else host.variables.get(name)
        folder = option.get("type") == "path" and name.endswith(("_root", "_dir", "_home", "_path"))
        if folder and isinstance(value, str) and value and not value.startswith("/"):
            yield Finding(name, f"{name}: expected an absolute folder on the host, found {shown(value)}.")


HOST_CHECKS = (
    check_types,
    check_host_numbers,
    check_engine_version,
    check_model_source,
    check_absolute_folders,
    check_servers,
    check_between_servers,
)


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
