# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds the memory of the boards: the processes that nvidia-smi lists, by board. Private to the collection."""

from __future__ import annotations

import csv

# The query, in the order of its columns (nvidia-smi --query-compute-apps=..., noheader, nounits).
PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")


def parse_processes(text):
    """Return {uuid: [{pid, name, memory_mib}]} of the CSV answer C(text); lines that are no process are left out.

    C(memory_mib) is None where the driver does not tell it (WSL, some containers). nvidia-smi may list a process twice,
    as compute and as graphics: it counts once.
    """
    found = {}
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(cells) < len(PROCESS_FIELDS):
            continue
        # A name may have commas of its own.
        uuid, pid, name, used = cells[0].strip(), cells[1].strip(), ", ".join(cells[2:-1]).strip(), cells[-1].strip()
        if not pid.isdigit() or not uuid.startswith(("GPU-", "MIG-")):
            continue
        number = used.split(" ")[0]
        row = {"pid": int(pid), "name": name, "memory_mib": int(number) if number.isdigit() else None}
        rows = found.setdefault(uuid, [])
        if row["pid"] not in [one["pid"] for one in rows]:
            rows.append(row)
    return found


def with_processes(gpus, text):
    """Return C(gpus) (entries of gpu_info) with C(processes), a list for each board and each of its instances."""
    found = parse_processes(text)
    result = []
    for gpu in gpus:
        gpu = dict(gpu, processes=found.get(gpu.get("uuid"), []))
        if gpu.get("mig_devices"):
            gpu["mig_devices"] = [dict(one, processes=found.get(one.get("uuid"), [])) for one in gpu["mig_devices"]]
        result.append(gpu)
    return result
