# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a host as root: writes a batch of units, starts them, and prints what systemd and the processes say of them.

Its one argument is a file with {"files": {path: text}, "units": [name]}, packed by gzip and base64. Everything that it
wrote is removed again.
"""

import base64
import gzip
import json
import os
import subprocess
import sys

SYSTEMD = "org.freedesktop.systemd1"


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode("utf-8", "surrogateescape")


def bus_path(unit):
    """The object of a unit: every sign but letters and digits as _xx (sd_bus_path_encode)."""
    label = "".join(sign if sign.isalnum() else "_%02x" % ord(sign) for sign in unit)
    return "/org/freedesktop/systemd1/unit/" + label


def service_property(unit, name):
    text = run("busctl", "--json=short", "get-property", SYSTEMD, bus_path(unit), SYSTEMD + ".Service", name)
    return json.loads(text)["data"]


def look(unit):
    output = "/run/gpufleet-words/%s.json" % unit
    found = {"started": run("systemctl", "start", unit)}
    found["exec_start"] = service_property(unit, "ExecStart")
    found["environment"] = service_property(unit, "Environment")
    if os.path.exists(output):
        with open(output, encoding="ascii") as handle:
            found["process"] = json.load(handle)
    return found


def main():
    with open(sys.argv[1], encoding="ascii") as handle:
        batch = json.loads(gzip.decompress(base64.b64decode(handle.read())).decode())
    try:
        for path, text in batch["files"].items():
            with open(path, "w", encoding="utf-8") as handle:
                handle.write(text)
        run("systemctl", "daemon-reload")
        print(json.dumps({unit: look(unit) for unit in batch["units"]}))
    finally:
        for path in batch["files"]:
            os.unlink(path)
        run("systemctl", "daemon-reload")


main()
