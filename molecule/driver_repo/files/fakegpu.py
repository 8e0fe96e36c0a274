"""Boards, a kernel's modules, an initramfs and an nvidia-smi for a test host: each computed from what is installed.

fakegpu.py boot              a boot: mounts, the boards of /etc/fakegpu/boards.json, what the initramfs lets
fakegpu.py modprobe NAME     loads the module that is installed
fakegpu.py update-initramfs  keeps what /etc/modprobe.d keeps out
fakegpu.py smi ARGUMENTS     nvidia-smi of the installed user space
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

BOARDS = pathlib.Path("/etc/fakegpu/boards.json")
VERSION = pathlib.Path("/proc/driver/nvidia/version")
MODULES = pathlib.Path("/sys/module")
INITRAMFS = pathlib.Path("/var/lib/fakegpu/initramfs")
MIG = pathlib.Path("/var/lib/fakegpu/mig")  # a folder with a file for each board that can: Enabled or Disabled
MIG_PENDING = pathlib.Path("/var/lib/fakegpu/mig-pending")  # the same, what was asked for
MIG_WAITS = pathlib.Path("/var/lib/fakegpu/mig-waits")  # a mode that was asked for waits for a boot
COUNT = pathlib.Path("/var/lib/fakegpu/initramfs-runs")
BROKEN = pathlib.Path("/var/lib/fakegpu/broken")  # a module that does not load
PCI = pathlib.Path("/sys/bus/pci/devices")
USER_SPACE = pathlib.Path("/usr/share/fakegpu/user-space")  # the version of the library, a file of its package


def mount(path):
    if not os.path.ismount(path):
        subprocess.run(["mount", "-t", "tmpfs", "none", path], check=True)


def installed_module():
    """Return (version, whether open) of the module for this kernel, as DKMS would have built it, or None."""
    for name in ("open", "closed"):
        path = pathlib.Path("/usr/share/fakegpu") / name
        if path.exists():
            return path.read_text().strip(), name == "open"
    return None


def load(name):
    if name == "nvidia":
        if BROKEN.exists():
            sys.exit("modprobe: ERROR: could not insert 'nvidia': No such device")
        module = installed_module()
        if module is None:
            sys.exit("modprobe: FATAL: Module nvidia not found in directory /lib/modules/" + os.uname().release)
        if VERSION.exists():
            return
        (VERSION.parent).mkdir(exist_ok=True)
        kind = "Open Kernel Module for x86_64" if module[1] else "x86_64 Kernel Module"
        VERSION.write_text(f"NVRM version: NVIDIA UNIX {kind}  {module[0]}  Release Build  (root@host)\n")
    (MODULES / name).mkdir(exist_ok=True)


def boot():
    mount("/proc/driver")
    mount(PCI)
    mount(MODULES)
    state = json.loads(BOARDS.read_text()) if BOARDS.exists() else {}
    for number, (device, kind) in enumerate(state.get("devices", [])):
        folder = PCI / f"0000:{number + 1:02x}:00.0"
        folder.mkdir(exist_ok=True)
        for name, text in (("vendor", "0x10de"), ("device", device), ("class", kind)):
            (folder / name).write_text(text + "\n")
    for asked in MIG_PENDING.glob("*"):
        (MIG / asked.name).write_text(asked.read_text())
    kept_out = INITRAMFS.read_text().split() if INITRAMFS.exists() else []
    rivals = [name for name in state.get("rivals", []) if name not in kept_out]
    for name in rivals:
        load(name)
    if not rivals and state.get("devices") and installed_module() and not BROKEN.exists():
        load("nvidia")


def update_initramfs():
    texts = [path.read_text() for path in pathlib.Path("/etc/modprobe.d").glob("*.conf")]
    INITRAMFS.parent.mkdir(parents=True, exist_ok=True)
    INITRAMFS.write_text("\n".join(re.findall(r"^blacklist (\S+)", "\n".join(texts), re.MULTILINE)))
    COUNT.write_text(str(int(COUNT.read_text() if COUNT.exists() else 0) + 1))


def fabric_state(loaded):
    active = subprocess.run(["systemctl", "is-active", "-q", "nvidia-fabricmanager"], check=False).returncode == 0
    version = pathlib.Path("/usr/share/fakegpu/fabric-manager")
    same = version.exists() and version.read_text().strip() == loaded
    return "Completed" if active and same else "In Progress"


def mig_mode(path, otherwise):
    return path.read_text().strip() if path.exists() else otherwise


def smi(arguments):
    library = USER_SPACE.read_text().strip()
    if not VERSION.exists():
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest"
            " NVIDIA driver is installed and running.\n"
        )
        sys.exit(9)
    loaded = re.search(r"(\d{3}\.[\d.]+)", VERSION.read_text()).group(1)
    if loaded != library:
        print(
            "Failed to initialize NVML: Driver/library version mismatch\n"
            f"NVML library version: {library.rpartition('.')[0]}"
        )
        sys.exit(18)
    if "-mig" in arguments:
        board, mode = arguments[arguments.index("-i") + 1], arguments[arguments.index("-mig") + 1]
        for folder in [MIG_PENDING] + [MIG] * (not MIG_WAITS.exists()):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / board).write_text("Enabled\n" if mode == "1" else "Disabled\n")
        return
    boards = [path for path in sorted(PCI.iterdir()) if (path / "class").read_text().startswith("0x0302")]
    for number, _board in enumerate(boards):
        if "--query-gpu=driver_version" in arguments:
            print(loaded)
        elif "--query-gpu=index,mig.mode.current,mig.mode.pending" in arguments:
            current = mig_mode(MIG / str(number), "[N/A]")
            print(f"{number}, {current}, {mig_mode(MIG_PENDING / str(number), current)}")
        elif arguments[:1] == ["-q"]:
            print(
                f"GPU 0000000{number + 1}:00.0\n    Fabric\n"
                f"        State                             : {fabric_state(loaded)}\n"
                "        Status                            : Success"
            )


if __name__ == "__main__":
    command, rest = sys.argv[1], sys.argv[2:]
    if command == "boot":
        boot()
    elif command == "modprobe":
        load(rest[-1])
    elif command == "update-initramfs":
        update_initramfs()
    else:
        smi(rest)
