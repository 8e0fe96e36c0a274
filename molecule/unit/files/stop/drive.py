"""Stop and kill units on a host, and print what systemd says of each as JSON: {name of the instance: what was seen}.

files.json: {path: text} of what the units need, and of the units themselves, which are gone afterwards. The unit of an
instance is sglang-NAME.service; the part of NAME before the dash tells what is done to it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

SHOWN = "ActiveState,SubState,Result,NRestarts,ExecMainCode,ExecMainStatus,ControlGroup"
SECONDS = 60
BEGAN = time.time()


def systemctl(*words):
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)


def show(unit):
    lines = systemctl("show", "--property=" + SHOWN, unit).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def journal(unit):
    command = ["journalctl", "--no-pager", "--output=cat", "--unit=" + unit, "--since=@%d" % BEGAN]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def wait_for(unit, **wanted):
    """Wait until the unit shows what is wanted, and return all that it shows."""
    until = time.monotonic() + SECONDS
    while True:
        found = show(unit)
        if all(found[name] == value for name, value in wanted.items()):
            return found
        if time.monotonic() > until:
            return {**found, "waited_for": wanted}
        time.sleep(0.1)


def kill_main(unit):
    systemctl("kill", "--kill-whom=main", "--signal=KILL", unit)


def start(unit):
    systemctl("start", unit)
    found = wait_for(unit, ActiveState="active", SubState="running")
    until = time.monotonic() + SECONDS
    while "serving" not in journal(unit) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def clean(unit):
    group = start(unit)["ControlGroup"]
    systemctl("stop", unit)
    try:
        with open("/sys/fs/cgroup" + group + "/cgroup.procs") as stream:
            left = stream.read().split()
    except OSError:
        left = []
    return {**show(unit), "left": left}


def dies(unit):
    """Kill it until it is not restarted any more."""
    start(unit)
    for restarts in ("1", "2"):
        kill_main(unit)
        wait_for(unit, ActiveState="active", SubState="running", NRestarts=restarts)
    kill_main(unit)
    return wait_for(unit, ActiveState="failed")


def candidate(unit):
    """Kill it once, and give a restart the time to come."""
    start(unit)
    kill_main(unit)
    wait_for(unit, ActiveState="failed")
    time.sleep(1)
    return show(unit)


def left(unit):
    """Kill it while another process of the instance, and one of another instance, live elsewhere on the host."""
    start(unit)
    name = unit[len("sglang-") : -len(".service")]
    for mark in (name, name + "-2"):
        command = ["systemd-run", "--quiet", "--uid=sglang", "--unit=left-of-" + mark]
        subprocess.run([*command, "--setenv=GPUFLEET_SGLANG_INSTANCE=" + mark, "sleep", "600"], check=True)
    kill_main(unit)
    found = wait_for(unit, ActiveState="active", SubState="running", NRestarts="1")
    for mark in (name, name + "-2"):
        found[mark] = systemctl("is-active", "left-of-" + mark).stdout.strip()
        systemctl("stop", "left-of-" + mark)
        systemctl("reset-failed", "left-of-" + mark)
    return found


def missing(unit):
    """Start it on a host that lacks its boards."""
    systemctl("start", unit)
    return wait_for(unit, ActiveState="failed")


def key(unit):
    start(unit)
    return show(unit)


def drive(name):
    unit = "sglang-" + name + ".service"
    seen = {"clean": clean, "dies": dies, "candidate": candidate, "left": left, "missing": missing, "key": key}
    found = seen[name.partition("-")[0]](unit)
    systemctl("stop", unit)
    systemctl("reset-failed", unit)
    return {**found, "journal": journal(unit)}


def write(files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(text)
        os.chmod(path, 0o755 if text.startswith("#!") else 0o644)
    systemctl("daemon-reload")


def remove_units(files):
    for path in files:
        folder = os.path.dirname(path)
        if path.endswith(".service"):
            os.unlink(path)
        elif folder.endswith(".service.d"):
            shutil.rmtree(folder)
    systemctl("daemon-reload")


def main(names):
    with open("files.json") as stream:
        files = json.load(stream)
    write(files)
    try:
        with ThreadPoolExecutor(4) as pool:
            print(json.dumps(dict(zip(names, pool.map(drive, names)))))
    finally:
        remove_units(files)


if __name__ == "__main__":
    main(sys.argv[1:])
