# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: change classes. What has to be done on the host for a difference between what is proven and what is declared.

Private to the gpufleet.sglang collection; may change at any time.

A start of a large model takes minutes, so every difference costs only what it must: a line of the unit that systemd
takes over with a daemon-reload costs nothing, one that cannot matter to device memory waits for the next restart, an
argument that cannot matter to it is restarted without a soak. What is not listed here matters.
"""

from __future__ import annotations

import dataclasses
import re
import shlex

from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import ARGUMENT_MATTERS_TO, QUANTITIES, digest

NOTHING = "nothing"
DAEMON_RELOAD = "daemon_reload"
PENDING = "pending"
RESTART_READY = "restart_ready"
RESTART_SOAK = "restart_soak"

# From the cheapest to the dearest: the class of several differences is the dearest of theirs.
CLASSES = (NOTHING, DAEMON_RELOAD, PENDING, RESTART_READY, RESTART_SOAK)

# What the loop moves is in no key of a measurement, and decides over memory all the same.
MOVED_ARGUMENTS = ("mem-fraction-static", "max-total-tokens")

# Members of a request that hold several items; the names of all others are items themselves.
GROUPS = ("arguments", "environment")


@dataclasses.dataclass(frozen=True)
class Row:
    """What a difference in one thing costs. ``name`` is a regular expression that fits the whole name."""

    name: str
    change_class: str
    why: str


# What is declared beside arguments and environment, and is more than a line of the unit.
ITEMS = (
    Row("user|group|folders", RESTART_READY, "who runs it and where caches lie; the same kernels are compiled again"),
    Row("hardening", RESTART_READY, "what the process may do, not what it computes; that it comes up has to be seen"),
)

# What a person reads for an item that is no name of a variable, an argument or a directive.
KEYS = "keys"
LABELS = {
    KEYS: "a key (sglang_server_api_key, sglang_server_admin_api_key)",
    "arguments.config": "whether there is a key",
    "folders": "folders of the server",
    "gpus": "the boards of the host",
    "weight_bytes": "the weights on the host",
}

# Names of the environment that cannot matter to device memory (SGLang 0.4.3 to 0.5.23 environ.py; systemd.exec(5)).
ENVIRONMENT = (
    Row("SGLANG_LOG_.*|SGLANG_LOGGING_.*|NCCL_DEBUG(_.*)?|GLOG_.*|PYTHONWARNINGS", RESTART_READY, "logs"),
    Row("(?i:https?|no|all|ftp)_(?i:proxy)|SSL_CERT_.*|REQUESTS_CA_BUNDLE", RESTART_READY, "network access"),
    Row("TZ|LANG|LANGUAGE|LC_.*|TERM|NO_COLOR", RESTART_READY, "how text looks"),
    Row("HF_.*|TRANSFORMERS_OFFLINE|TRANSFORMERS_CACHE", RESTART_READY, "where files come from, not what they are"),
    Row("SGLANG_HEALTH_CHECK_TIMEOUT|SGLANG_(WARMUP|WAIT_WEIGHTS_READY)_TIMEOUT", RESTART_READY, "patience"),
    Row("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION|OTEL_.*", RESTART_READY, "how it is watched"),
)

# Directives of the unit. Tried on systemd 252 and 257: those of the first rows act on a unit that runs.
DIRECTIVES = (
    Row(r"Unit\..*|Install\..*", DAEMON_RELOAD, "dependencies, limits of starts, description"),
    Row(
        r"Service\.(Restart\w*|SuccessExitStatus|Timeout\w+|KillMode|KillSignal|SendSIG\w+|FinalKillSignal)",
        DAEMON_RELOAD,
        "read when the service ends or is ended",
    ),
    Row(r"Service\.(ExecStartPre|ExecStartPost|ExecStop|ExecStopPost|ExecCondition)", DAEMON_RELOAD, "read when run"),
    Row(r"Service\.Environment\.(PATH|CUDA_HOME)", RESTART_SOAK, "which compiler makes the kernels"),
    Row(
        r"Service\.Environment\.(GPUFLEET_\w+|PYTHONUNBUFFERED|NO_COLOR|TERM|HF_\w+|TRANSFORMERS_\w+|HOME|\w*CACHE\w*"
        r"|FLASHINFER_WORKSPACE_BASE)",
        PENDING,
        "logs, and where files lie",
    ),
    Row(r"Service\.LimitMEMLOCK", RESTART_SOAK, "memory that ranks pin for the boards"),
    Row(r"Service\.(Limit\w+|TasksMax|UMask|WorkingDirectory|EnvironmentFile)", PENDING, "set at the start"),
    Row(r"Service\.(Log\w+|Standard\w+|Syslog\w+)", PENDING, "handed to the journal at the start"),
    Row(
        r"Service\.(Protect\w+|Private\w+|Restrict\w+|ReadWritePaths|ReadOnlyPaths|InaccessiblePaths|NoNewPrivileges"
        r"|CapabilityBoundingSet|AmbientCapabilities|SystemCall\w+|LockPersonality|KeyringMode|Device\w+|ProcSubset"
        r"|MemoryDenyWriteExecute|RemoveIPC)",
        PENDING,
        "the sandbox is made at the start",
    ),
    Row(r"Service\.(OOMPolicy|OOMScoreAdjust|Type|User|Group)", PENDING, "set at the start"),
)


@dataclasses.dataclass(frozen=True)
class Change:
    """The dearest class of some differences, and what differs, by class."""

    change_class: str = NOTHING
    items: tuple = ()  # (class, item), in the order of the items

    def of(self, change_class):
        """The items of one class."""
        return [item for found, item in self.items if found == change_class]


def _fitting(rows, name, otherwise):
    return next((row.change_class for row in rows if re.fullmatch(row.name, name)), otherwise)


def label(item):
    """An item as a person reads it."""
    group, _dot, name = item.partition(".")
    if item in LABELS:
        return LABELS[item]
    if group in GROUPS:
        return ("the argument %s" if group == "arguments" else "the variable %s") % name
    if name:
        return "%s of the unit" % name
    return "sglang_server_" + item


def keys_change(differ):
    """The change of keys: they are read at the start and never reach device memory."""
    return change_of([(RESTART_READY, KEYS)] if differ else [])


def argument_class(name):
    """The class of another value of an argument of SGLang."""
    matters = name in MOVED_ARGUMENTS or bool(ARGUMENT_MATTERS_TO.get(name, QUANTITIES))
    return RESTART_SOAK if matters else RESTART_READY


def item_class(item):
    """The class of one item of a request.

    :arg item: ``arguments.NAME``, ``environment.NAME``, or a name of its own.
    """
    group, _dot, name = item.partition(".")
    if group == "arguments":
        return argument_class(name)
    if group == "environment":
        return _fitting(ENVIRONMENT, name, RESTART_SOAK)
    return _fitting(ITEMS, item, RESTART_SOAK)


def change_of(classes):
    """``Change`` of (class, item) pairs."""
    items = tuple(classes)
    dearest = max((CLASSES.index(found) for found, _item in items), default=0)
    return Change(CLASSES[dearest], items)


def together(*changes):
    """One change of several."""
    return change_of(pair for change in changes for pair in change.items)


# --- what is declared -------------------------------------------------------------------------------------------------


def flat(request):
    """A request as items, see ``item_class`` for their names."""
    items = {}
    for name, value in (request or {}).items():
        if name in GROUPS:
            items.update({"%s.%s" % (name, key): member for key, member in (value or {}).items()})
        else:
            items[name] = value
    return items


def request_digests(request):
    """``{item: digest}`` of everything that the user declared, so that a later run can tell what changed.

    Digests and not values: nothing has to be masked, and what was masked could not be compared.
    """
    return {name: digest(value) for name, value in flat(request).items()}


def request_change(proven, wanted):
    """What differs between two requests, given as ``{item: digest}``."""
    names = sorted(set(proven) | set(wanted))
    return change_of((item_class(name), name) for name in names if proven.get(name) != wanted.get(name))


# --- what the unit says -----------------------------------------------------------------------------------------------


def directives(text):
    """``{"Section.Directive": [values]}`` of a unit's text; comments and the shape of continued lines do not count.

    Variables of the environment are ``Service.Environment.NAME``.
    """
    found, section = {}, ""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*[#;].*\n?", "", text or ""))
    for line in joined.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line:
            name, _equals, value = line.partition("=")
            for member, plain in _members(name.strip(), " ".join(value.split())):
                found.setdefault("%s.%s" % (section, member), []).append(plain)
    return found


def _members(name, value):
    """A directive with its value; each variable of an ``Environment=`` line by itself."""
    if name != "Environment" or not value:
        return [(name, value)]
    try:
        words = shlex.split(value)
    except ValueError:
        # Written by hand; systemd has its own idea of it.
        return [(name, value)]
    return [("%s.%s" % (name, word.partition("=")[0]), word.partition("=")[2]) for word in words]


def unit_change(proven_text, wanted_text):
    """What differs between two texts of one unit."""
    before, after = directives(proven_text), directives(wanted_text)
    names = sorted(name for name in set(before) | set(after) if before.get(name) != after.get(name))
    return change_of((_fitting(DIRECTIVES, name, RESTART_SOAK), name) for name in names)
