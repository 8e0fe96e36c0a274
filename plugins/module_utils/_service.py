# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: what runs. A unit as systemd sees it and the process behind it as the kernel sees it.

Private to the gpufleet.sglang collection; may change at any time.

``run_command`` is ``AnsibleModule.run_command``; ``/proc`` is read directly.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _adopted
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._unit import (
    config_hash_of_environ,
    parse_show,
    show_command,
)

ACTIVE_STATES = ("active", "activating", "reloading")
ENABLED_STATES = ("enabled", "enabled-runtime")
# What SGLang takes when it is not told (server_args.py, all versions).
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 30000


def read_unit(run_command, name):
    """State of a unit; a unit that systemd does not know has ``load_state`` ``not-found``.

    :returns: ``_unit.UnitState``.
    :raises OSError: when systemctl cannot be asked; the message is one sentence.
    """
    code, out, err = run_command(show_command(name), environ_update={"LC_ALL": "C"})
    if code != 0:
        raise OSError(
            "Expected systemctl to show %s, found exit status %d (%s); the host must be booted with systemd."
            % (name, code, err.strip() or out.strip())
        )
    return parse_show(out)


def systemd_version(run_command):
    """Version of systemd as a number; 0 when it does not say."""
    code, out, _err = run_command(["systemctl", "--version"], environ_update={"LC_ALL": "C"})
    match = re.match(r"systemd (\d+)", out or "") if code == 0 else None
    return int(match.group(1)) if match else 0


def _read_bytes(path):
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def _argv(pid, proc_root):
    words = _read_bytes(os.path.join(proc_root, str(pid), "cmdline")).split(b"\0")
    return [word.decode("utf-8", "replace") for word in words if word]


def _launcher(pids, proc_root):
    """(pid, words, None) of SGLang's launcher: a unit made by hand may start it from a shell or a script of its own.

    (None, [], name of the program) when there is only one in a container.
    """
    contained, program = set(), None
    for pid in pids:
        argv = _argv(pid, proc_root)
        name = _adopted.container_program(argv)
        if name:
            program = program or name
            contained.update(descendants(pid, proc_root))
        if pid not in contained and _adopted.launcher_words(argv) is not None:
            return pid, argv, None
    return None, [], program


def _argument(argv, name, default):
    """Value of ``--name`` of the launcher in argv, the last one as SGLang reads it."""
    found = default
    argv = _adopted.launcher_words(argv) or []
    for position, word in enumerate(argv):
        if word.startswith(name + "="):
            found = word[len(name) + 1 :]
        elif word == name and position + 1 < len(argv):
            found = argv[position + 1]
    return found


def _port_of(argv):
    """Port that the launcher was started with; None when that cannot be told."""
    text = _argument(argv, "--port", str(DEFAULT_PORT)) if argv else ""
    return int(text) if text.isdigit() else None


def descendants(pid, proc_root="/proc"):
    """The process and all below it, by parent pids of /proc/PID/stat."""
    children = {}
    for entry in os.listdir(proc_root):
        if not entry.isdigit():
            continue
        status = _read_bytes(os.path.join(proc_root, entry, "stat"))
        # The name in parentheses may hold blanks and parentheses; the parent is the second field after it.
        fields = status.rpartition(b")")[2].split()
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting.extend(children.get(current, []))
    return found


def _own_kib(pid, proc_root):
    """RAM that comes free when the process ends: pages of files (libraries) count as available all along."""
    wanted = (b"Pss_Anon:", b"Pss_Shmem:")
    lines = _read_bytes(os.path.join(proc_root, str(pid), "smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(wanted))


def read_process(pid, proc_root="/proc"):
    """What a unit's main process runs.

    :returns: ``{"pid", "pids" (it and all below it), "config_hash" (None for a process that we did not configure),
        "command_line" (secrets masked), "container" (the program that runs it in one, else None),
        "host" and "port" (None when the launcher is not found), "memory_gib" (RAM that
        comes free when all of them end), "arguments", "environment" and "venv" of the launcher, see ``_adopted``}``;
        empty when there is none.
    """
    argv = _argv(pid, proc_root) if pid else []
    if not argv:
        return {}
    tree = descendants(pid, proc_root)
    launcher_pid, launcher, container = _launcher(tree, proc_root)
    memory_kib = sum(_own_kib(process, proc_root) for process in tree)
    return {
        "pid": pid,
        "pids": sorted(tree),
        "config_hash": config_hash_of_environ(_read_bytes(os.path.join(proc_root, str(pid), "environ"))),
        "command_line": mask_text(" ".join(argv)),
        "container": container,
        "host": _argument(launcher, "--host", DEFAULT_HOST) if launcher else None,
        "port": _port_of(launcher),
        "memory_gib": round(memory_kib / 1024.0 / 1024.0, 3),
        "arguments": _adopted.arguments_of(launcher),
        "environment": _adopted.environment_of(_read_bytes(os.path.join(proc_root, str(launcher_pid), "environ"))),
        "venv": _adopted.venv_of(launcher),
    }


def describe(run_command, name, proc_root="/proc"):
    """A unit and its process in one record, as ``server_info`` returns it."""
    state = read_unit(run_command, name)
    active = state.active_state in ACTIVE_STATES
    return {
        "name": name,
        "exists": state.load_state not in (None, "", "not-found"),
        "active": active,
        "active_state": state.active_state,
        "enabled": state.unit_file_state in ENABLED_STATES,
        "unit_file_state": state.unit_file_state,
        "invocation_id": state.invocation_id if active else None,
        "n_restarts": state.n_restarts,
        "fragment_path": state.fragment_path,
        "drop_in_paths": list(state.drop_in_paths or ()),
        "running": read_process(state.main_pid, proc_root) if active else {},
    }
