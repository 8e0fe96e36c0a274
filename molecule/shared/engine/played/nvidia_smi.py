# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi as far as a provisioning tool asks it: queries as CSV, -L, topo -m, a part of -q, failures of a driver.

It needs ledger.py (sglang/played/ledger.py), in its own folder or there, and no engine. Formats: the manual page of
nvidia-smi and public outputs of it. ``smi`` in the boards' file plays a driver that fails: {"rc": 9, "stdout": "..."},
{"hang_seconds": 60}, {"slow_seconds": 2}; ``times``: only the first so many calls.
"""

from __future__ import annotations

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "sglang", "played")]

import ledger  # noqa: E402

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)
NO_VALUE = "[N/A]"
UNITS = {"memory": "MiB", "used_memory": "MiB", "utilization": "%", "power": "W", "clocks": "MHz"}


class Machine:
    """Boards, and who holds them."""

    def __init__(self, data: dict):
        self.data = data
        lost = set(data.get("missing", []))
        self.boards = [board for board in data["boards"] if board["index"] not in lost]
        self.held = ledger.holders(float(data.get("release_seconds", 0)))

    def figures(self, board: dict) -> dict[str, str]:
        """Every field of --query-gpu that is known here, without units."""
        used = ledger.used_mib(board, self.held)
        free = ledger.free_mib(board, self.held)
        total = board["total_mib"]
        busy = any(str(board["index"]) in entry["boards"] for entry in self.held)
        told = {
            "index": str(board["index"]), "uuid": board["uuid"], "gpu_uuid": board["uuid"], "name": board["name"],
            "gpu_name": board["name"], "pci.bus_id": board["bus_id"], "gpu_bus_id": board["bus_id"],
            "driver_version": str(self.data.get("driver", "580.95.05")), "count": str(len(self.boards)),
            "memory.total": str(total), "memory.used": str(round(used)), "memory.free": str(int(free)),
            "memory.reserved": str(max(round(total - used - free), 0)), "compute_cap": board["compute_cap"],
            "mig.mode.current": board.get("mig", NO_VALUE), "mig.mode.pending": board.get("mig", NO_VALUE),
            "persistence_mode": "Enabled", "compute_mode": "Default", "display_active": "Disabled",
            "utilization.gpu": "0", "utilization.memory": "0", "temperature.gpu": "38" if busy else "31",
            "power.draw": "92.41" if busy else "31.20", "power.limit": "600.00", "pstate": "P0" if busy else "P8",
            "ecc.mode.current": "Disabled", "pcie.link.gen.current": "5", "pcie.link.width.current": "16",
            "serial": NO_VALUE, "vbios_version": "98.02.52.00.02", "fan.speed": NO_VALUE,
            "clocks.sm": "180", "clocks.mem": "405", "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
            "fabric.state": "N/A", "fabric.status": "N/A",
        }
        return {**told, **{name: str(value) for name, value in board.get("fields", {}).items()}}

    def apps(self) -> list[dict[str, str]]:
        """One row for each process and board."""
        rows = []
        for board in self.boards:
            for entry in self.held:
                kinds = entry["boards"].get(str(board["index"]))
                if kinds is None:
                    continue
                mib = round(sum(kinds.values()))
                rows.append({
                    "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"), "gpu_name": board["name"],
                    "gpu_bus_id": board["bus_id"], "gpu_uuid": board["uuid"], "pid": str(entry["pid"]),
                    "process_name": entry["name"], "name": entry["name"], "used_gpu_memory": str(mib),
                    "used_memory": str(mib),
                })
        return rows


def with_unit(field: str, value: str) -> str:
    unit = UNITS.get(field) or UNITS.get(field.partition(".")[0]) or ("MiB" if field == "used_gpu_memory" else None)
    return f"{value} {unit}" if unit and value[:1].isdigit() else value


def csv(fields: list[str], rows: list[dict[str, str]], form: list[str]) -> str:
    """The table. Header fields have their unit in brackets, values too unless nounits."""
    lines = []
    if "noheader" not in form:
        names = [with_unit(field, "0").replace("0", field, 1) for field in fields]
        lines.append(", ".join(n.replace(" MiB", " [MiB]").replace(" %", " [%]").replace(" W", " [W]") for n in names))
    for row in rows:
        values = [row[field] if "nounits" in form else with_unit(field, row[field]) for field in fields]
        lines.append(", ".join(values))
    return "".join(line + "\n" for line in lines)


def chosen(machine: Machine, wanted: str | None) -> list[dict]:
    """The boards that -i names, by index, UUID or bus; all without it."""
    if wanted is None:
        return machine.boards
    names = [name.strip() for name in wanted.split(",")]
    found = [b for b in machine.boards if {str(b["index"]), b["uuid"], b["bus_id"]} & set(names)]
    if not found:
        sys.stdout.write("No devices were found\n")
        sys.exit(6)
    return found


def query(machine: Machine, kind: str, fields: list[str], form: list[str], wanted: str | None) -> str:
    if not form or form[0] != "csv":
        sys.stdout.write('"--format=" switch is missing, only csv is supported.\n')
        sys.exit(2)
    boards = chosen(machine, wanted)
    if kind == "gpu":
        rows = [machine.figures(board) for board in boards]
        known = machine.figures(machine.boards[0]) if machine.boards else {}
        if not machine.boards:
            return "No devices were found\n"
    else:
        uuids = {board["uuid"] for board in boards}
        rows = [row for row in machine.apps() if row["gpu_uuid"] in uuids]
        known = dict.fromkeys(("timestamp", "gpu_name", "gpu_bus_id", "gpu_uuid", "pid", "process_name", "name",
                               "used_gpu_memory", "used_memory"))
    hidden = set(machine.data.get("unknown_fields", []))
    for field in fields:
        if field not in known or field in hidden:
            sys.stdout.write(f'Field "{field}" is not a valid field to query.\n\n')
            sys.exit(2)
    return csv(fields, rows, form)


def listing(machine: Machine) -> str:
    if not machine.boards:
        return "No devices found.\n"
    return "".join(f"GPU {board['index']}: {board['name']} (UUID: {board['uuid']})\n" for board in machine.boards)


def topology(machine: Machine) -> str:
    """topo -m: NV18 between all boards with NVLink; else NODE within the halves and SYS between them."""
    boards = machine.boards
    names = [f"GPU{board['index']}" for board in boards]
    half = (len(boards) + 1) // 2
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(boards)):
            near = (row < half) == (column < half)
            link = "NV18" if machine.data.get("nvlink") else "NODE" if near else "SYS"
            cells.append(" X " if row == column else link)
        numa = 0 if row < half else 1
        lines.append("\t".join([name, *cells, f"{numa * 32}-{numa * 32 + 31}", str(numa), "N/A"]))
    lines += [
        "", "Legend:", "", "  X    = Self",
        "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
        "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
    ]
    return "\n".join(lines) + "\n"


def details(machine: Machine, wanted: str | None) -> str:
    """The part of -q that tells of memory and processes."""
    lines = ["", "==============NVSMI LOG==============", "",
             f"Timestamp                                 : {time.strftime('%a %b %d %H:%M:%S %Y')}",
             f"Driver Version                            : {machine.data.get('driver', '580.95.05')}",
             f"CUDA Version                              : {machine.data.get('cuda', '13.0')}", "",
             f"Attached GPUs                             : {len(machine.boards)}"]
    for board in chosen(machine, wanted):
        told = machine.figures(board)
        lines += [f"GPU {board['bus_id']}", f"    Product Name                          : {board['name']}",
                  f"    GPU UUID                              : {board['uuid']}", "    FB Memory Usage",
                  f"        Total                             : {told['memory.total']} MiB",
                  f"        Reserved                          : {told['memory.reserved']} MiB",
                  f"        Used                              : {told['memory.used']} MiB",
                  f"        Free                              : {told['memory.free']} MiB"]
        apps = [row for row in machine.apps() if row["gpu_uuid"] == board["uuid"]]
        lines.append("    Processes" + ("" if apps else "                             : None"))
        for row in apps:
            lines += [f"        Process ID                        : {row['pid']}",
                      "            Type                          : C",
                      f"            Name                          : {row['name']}",
                      f"            Used GPU Memory               : {row['used_memory']} MiB"]
    return "\n".join(lines) + "\n"


def summary(machine: Machine) -> str:
    driver, cuda = machine.data.get("driver", "580.95.05"), machine.data.get("cuda", "13.0")
    line = "+" + "-" * 89 + "+\n"
    text = time.strftime("%a %b %e %H:%M:%S %Y") + "       \n" + line
    text += f"| NVIDIA-SMI {driver:<25}Driver Version: {driver:<15}CUDA Version: {cuda:<9}|\n" + line
    for board in machine.boards:
        told = machine.figures(board)
        memory = f"{told['memory.used']:>7}MiB / {told['memory.total']:>6}MiB"
        text += f"| {board['index']:>3}  {board['name'][:40]:<40} {memory} |\n"
    return text + line


def plays_failure(data: dict) -> None:
    """End or wait as a driver that is not well."""
    failure = data.get("smi") or {}
    times = failure.get("times")
    if times is not None and ledger.count("smi-calls") > times:
        return
    time.sleep(float(failure.get("hang_seconds", 0)) + float(failure.get("slow_seconds", 0)))
    if "rc" in failure:
        sys.stdout.write(failure.get("stdout", NO_DRIVER))
        sys.exit(int(failure["rc"]))


def main(words: list[str]) -> None:
    data = ledger.read_boards()
    if data is None:
        sys.stdout.write(NO_DRIVER)
        sys.exit(9)
    plays_failure(data)
    machine = Machine(data)
    options, plain, place = {}, [], 0
    while place < len(words):
        name, equals, value = words[place].partition("=")
        if not equals and name in ("-i", "--id", "-d", "-l", "--format") and place + 1 < len(words):
            place += 1
            value = words[place]
        (options.__setitem__(name, value) if name.startswith("-") else plain.append(name))
        place += 1
    wanted = options.get("-i", options.get("--id"))
    form = [part.strip() for part in options.get("--format", "").split(",")]
    for switch, kind in (("--query-gpu", "gpu"), ("--query-compute-apps", "apps")):
        if switch in options:
            fields = [field.strip() for field in options[switch].split(",")]
            sys.stdout.write(query(machine, kind, fields, form, wanted))
            return
    if "-L" in options or "--list-gpus" in options:
        sys.stdout.write(listing(machine))
    elif plain[:1] == ["topo"]:
        sys.stdout.write(topology(machine))
    elif "-q" in options or "--query" in options:
        sys.stdout.write(details(machine, wanted))
    elif plain or set(options) - {"-i", "--id"}:
        sys.stdout.write("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n")
        sys.exit(2)
    else:
        sys.stdout.write(summary(machine))


if __name__ == "__main__":
    main(sys.argv[1:])
