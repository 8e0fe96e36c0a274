# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: a server made by hand that is adopted: what it runs, what its start-up teaches, and what it risks.

Private to the gpufleet.sglang collection; may change at any time. Pure.

Its arguments are told and compared, never taken over in silence: they go with its process, and an inventory that does
not say them would come to another server in the next run.
"""

from __future__ import annotations

import json
import os
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _verdict
from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts import ALLOCATOR_NAMES
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_name
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data

# What the plan decides, or what a variable of its own says: no difference to tell.
PLANNED = ("mem-fraction-static", "max-total-tokens", "chunked-prefill-size", "context-length")
OWN_VARIABLES = ("model-path", "host", "port", "api-key", "admin-api-key", "config")
# Of its environment: what decides about memory, and what only SGLang reads.
ENVIRONMENT_NAMES = (*ALLOCATOR_NAMES, "CUDA_VISIBLE_DEVICES")
ENVIRONMENT_PREFIXES = ("SGLANG_", "SGL_")
# Where SGLang listens when nobody says it (SGLang 0.5.23: srt/server_args.py).
LISTENS = {"host": "127.0.0.1", "port": 30000}

# Programs that start a container, by the name of the file: what runs in it is no process of the unit, or sees other
# paths than the host. Each by its own manual; conmon is what stays of podman(1) run --detach, and of a Quadlet unit.
CONTAINER_PROGRAMS = (
    "docker",
    "docker-compose",
    "podman",
    "podman-compose",
    "conmon",
    "nerdctl",
    "ctr",
    "crictl",
    "crun",
    "runc",
    "apptainer",
    "singularity",
    "enroot",
    "systemd-nspawn",
)
# An interpreter in front of a script is not the program that a person named.
INTERPRETER = re.compile(r"(?:python[\d.]*|bash|sh|dash|env|sudo)$")


def launcher_words(argv):
    """The words behind SGLang's launcher, which are its own; None for another program.

    What stands before belongs to something else: an interpreter, numactl, the client of a container.
    """
    for place, word in enumerate(argv):
        base = os.path.basename(word)
        if word == "sglang.launch_server" or (base == "launch_server.py" and "sglang" in word):
            return argv[place + 1 :]
        if base == "sglang" and argv[place + 1 : place + 2] == ["serve"]:
            return argv[place + 2 :]
    return None


def container_program(argv):
    """Name of the program that starts a container, when this process is one; else None."""
    for word in argv[:2]:
        base = os.path.basename(word)
        if base in CONTAINER_PROGRAMS:
            return base
        if not INTERPRETER.match(base):
            return None
    return None


def refusal(unit, running):
    """Why a unit cannot be adopted, in one sentence; "" when it can.

    :arg running: what its main process runs, see ``_service.read_process``.
    """
    if not running.get("container"):
        return ""
    return (
        "Expected %s to run SGLang's launcher as a process of this host, found a container that %s runs, so it is not "
        "adopted: stop and disable it by hand, and leave sglang_server_adopt_unit empty." % (unit, running["container"])
    )


def arguments_of(argv):
    """SGLang's arguments of a command line by their one name, secrets masked; of one given twice the last counts.

    :arg argv: words of the launcher's process.
    :returns: ``{name: True | text | number | list of texts}``; empty for a program that is not the launcher.
    """
    found, name = {}, None
    for word in launcher_words(argv) or ():
        if word.startswith("--") and len(word) > 2:
            spelled, equals, value = word.partition("=")
            name = canonical_name(spelled)
            found[name] = _number(value) if equals else True
        elif name is not None:
            held = found[name]
            found[name] = _number(word) if held is True else [*(held if isinstance(held, list) else [held]), word]
    return mask_data(found)


def _number(text):
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d+\.\d+", text) else text


def environment_of(environ):
    """What of the environment of a process matters to SGLang, secrets masked.

    :arg environ: bytes of ``/proc/PID/environ``.
    """
    found = {}
    for word in environ.split(b"\0"):
        name, equals, value = word.decode("utf-8", "replace").partition("=")
        if equals and (name in ENVIRONMENT_NAMES or name.startswith(ENVIRONMENT_PREFIXES)):
            found[name] = value
    return mask_data(found)


def venv_of(argv):
    """The virtual environment whose Python (or console script) runs the launcher; None when that cannot be told."""
    place = argv[0] if argv else ""
    folder, binaries = os.path.split(os.path.dirname(place))
    return folder if os.path.isabs(place) and binaries == "bin" else None


def situation(running, ready, engine_version=None):
    """What a plan of the adopted server is computed from: as it was told, and as it says itself that it runs.

    :arg running: what its main process runs, as ``server_info`` returns it.
    :arg ready: result of ``server_ready`` on its unit.
    :arg engine_version: version of SGLang in its virtual environment, when it could be asked.
    :returns: ``{"arguments", "environment", "mem_fraction_static", "chunked_prefill_size", "context_tokens",
        "allocator_conf", "engine_version", "cap_tokens"}``; what nobody says is ``auto``, of the last two None.
    """
    startup = ready.get("startup") or {}
    arguments = dict(running.get("arguments") or {})
    environment = dict(running.get("environment") or {})
    cap_tokens = arguments.get("max-total-tokens")
    stated = {name: arguments.pop(name, None) for name in PLANNED if name != "max-total-tokens"}
    allocator = [environment.pop(name, None) for name in ALLOCATOR_NAMES]
    return {
        "arguments": arguments,
        "environment": environment,
        "mem_fraction_static": _first(startup.get("mem_fraction_static"), stated["mem-fraction-static"], "auto"),
        "chunked_prefill_size": _first(startup.get("chunked_prefill_size"), stated["chunked-prefill-size"], "auto"),
        "context_tokens": _first(startup.get("context_tokens"), stated["context-length"], "auto"),
        "allocator_conf": _first(*allocator, ""),
        "engine_version": _first(engine_version, startup.get("engine_version"), None),
        "cap_tokens": cap_tokens,
    }


def _first(*values):
    return next((value for value in values[:-1] if value is not None), values[-1])


def record(running, unit, ready, situated, plan, declared):
    """What is known of the adopted server: the start-up that teaches the plan, and the sentences for a person.

    :arg unit: its name. :arg situated: see ``situation``.
    :arg plan: result of ``memory_plan`` for it, held against the declared promise; empty when there is none.
    :arg declared: the server arguments that are declared, to tell what the server has and nobody declared.
    :returns: ``{"measurement": dict | None, "sentences": [...]}``.
    """
    startup = ready.get("startup") or {}
    same_model = not other_model(running, declared)
    values = {"fraction": situated["mem_fraction_static"], "cap_tokens": situated["cap_tokens"]}
    known = same_model and situated["engine_version"] and plan.get("quantity_keys")
    measured = _verdict.measurement(ready, {}, plan, values) if known else None
    if measured is not None:
        measured["from"] = unit
        if values["fraction"] == "auto":
            measured["fraction"] = None
    sentences = [_found(unit, running, startup, ready, situated)]
    if not same_model:
        sentences.append("It serves another model than the declared one, so its start-up teaches nothing here.")
    elif plan.get("refusal") or (plan.get("feasible") is False and not plan.get("is_open")):
        sentences.append("As it is, it cannot keep the promise: %s" % _risk(plan))
    sentences += _elsewhere(running.get("arguments") or {}, declared)
    undeclared = undeclared_arguments(running.get("arguments") or {}, declared)
    if undeclared:
        sentences.append(
            "It has what nobody declared; what is to stay has to be declared: sglang_server_arguments: %s"
            % json.dumps(undeclared)
        )
    return {"measurement": measured, "sentences": sentences}


def _found(unit, running, startup, ready, situated):
    parts = ["fraction %s" % situated["mem_fraction_static"], "chunk %s" % situated["chunked_prefill_size"]]
    if startup.get("pool_tokens") is not None:
        parts.insert(0, f"pool {startup['pool_tokens']:,} tokens")
    headroom_gib = _verdict.headroom_of(ready)["gib"]
    if headroom_gib is not None:
        parts.append("%.2f GiB of headroom" % headroom_gib)
    return "Found %s, made by hand, on port %s: %s." % (unit, running.get("port"), ", ".join(parts))


def _risk(plan):
    """Why it cannot. What would work is left to the plan of the declared server: two offers side by side differ."""
    why = str(plan.get("refusal") or plan.get("reason")).replace("The declared fraction", "Its fraction")
    return re.split(r"; (?:what works is|what fits is|levers, |no target fits)", why)[0].rstrip(".") + "."


def _elsewhere(theirs, declared):
    """Its clients find nothing any more where the declared server listens elsewhere."""
    differ = [name for name in LISTENS if _listens(theirs, name) != _listens(declared, name)]
    if not differ:
        return []
    return [
        "It listens on %s:%s, the declared server on %s:%s; for the same clients declare %s."
        % (
            *(_listens(side, name) for side in (theirs, declared) for name in LISTENS),
            ", ".join("sglang_server_%s: %s" % (name, _listens(theirs, name)) for name in differ),
        )
    ]


def _listens(arguments, name):
    return str(arguments.get(name) or LISTENS[name])


def other_model(running, declared):
    """Does the adopted server load other files than the declared one? A path that nobody tells is no other one."""
    theirs = running.get("arguments") or {}
    for name in ("model-path", "speculative-draft-model-path"):
        ours = declared.get(name)
        if _folder(theirs.get(name)) != _folder(ours) and (
            name != "model-path" or None not in (theirs.get(name), ours)
        ):
            return True
    return False


def _folder(path):
    return str(path).rstrip("/") if path else None


def undeclared_arguments(theirs, declared):
    """Arguments of the adopted server that are not declared, or declared otherwise."""
    ours = {canonical_name(name): value for name, value in (declared or {}).items()}
    passed = (*PLANNED, *OWN_VARIABLES)
    return {name: value for name, value in theirs.items() if name not in passed and str(ours.get(name)) != str(value)}
