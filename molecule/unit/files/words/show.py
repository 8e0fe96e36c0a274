# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs as the process of a unit: writes the arguments and the environment that it really got to a file, as JSON.

The first argument is the file. What the kernel keeps is read, not what the interpreter made of it.
"""

import json


def parts(path):
    with open(path, "rb") as handle:
        return handle.read().split(b"\0")[:-1]


def text(raw):
    return raw.decode("utf-8", "surrogateescape")


words = [text(raw) for raw in parts("/proc/self/cmdline")]
place = words.index("--") + 1  # interpreter, this file, --, the file, then the words
environment = dict(text(raw).split("=", 1) for raw in parts("/proc/self/environ"))
with open(words[place], "w", encoding="ascii") as handle:
    json.dump({"words": words[place + 1 :], "environment": environment}, handle)
