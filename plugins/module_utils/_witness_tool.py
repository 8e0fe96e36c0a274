# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the witnesses of a server, the tools. nvidia-smi is found and asked with a limit; a command line is read.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess

_MORE_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/lib/wsl/lib", "/usr/lib/nvidia/bin")

# Commands that run now: what this module's process leaves behind at its end would pile up with each slice.
_RUNNING = set()


def find_command(name="nvidia-smi"):
    """The path of nvidia-smi, or None."""
    if os.path.sep in name:
        return name if os.access(name, os.X_OK) else None
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [os.path.join(folder, name) for folder in (*folders, *_MORE_FOLDERS) if folder]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def run_limited(argv, seconds):
    """(status, stdout, stderr) of a command; raises OSError, or subprocess.TimeoutExpired after ``seconds``."""
    # run_command has no time limit, and would not end the children of a script.
    command = subprocess.Popen(  # pylint: disable=consider-using-with,ansible-bad-function
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, LANG="C", LC_ALL="C"),
        start_new_session=True,
    )
    _RUNNING.add(command)
    try:
        out, err = command.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(command)
        raise
    finally:
        _RUNNING.discard(command)
    return command.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _kill(command):
    """End a command and its children (it may be a script). Not waited for: what hangs in the driver does not end."""
    try:
        os.killpg(command.pid, signal.SIGKILL)
    except OSError:
        # It has just ended.
        return


def end_all():
    """End what still runs; called when the process ends."""
    for command in list(_RUNNING):
        _kill(command)


atexit.register(end_all)


def words_of(pid, name, proc_root="/proc"):
    """The words of a file of /proc/PID that are ended by NUL, empty words too; none when it cannot be read."""
    try:
        with open(os.path.join(proc_root, str(pid), name), encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except OSError:
        return []
    return text.split("\0")[:-1] if text.endswith("\0") else text.split("\0")


def argument_in(words, names):
    """The value of the first of some arguments in a command line (the last one given counts), or None."""
    for name in names:
        found = None
        for position, word in enumerate(words):
            if word.startswith(name + "="):
                found = word[len(name) + 1 :]
            elif word == name and position + 1 < len(words):
                found = words[position + 1]
        if found:
            return found
    return None


def argument_of(pid, names, proc_root="/proc"):
    """:func:`argument_in` for the command line of a process."""
    return argument_in(words_of(pid, "cmdline", proc_root), names) if pid else None
