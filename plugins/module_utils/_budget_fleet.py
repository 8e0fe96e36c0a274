# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the fleet: plans of many hosts as one table, and a memory bar for each. Private.

A row is {host, instance, gpus, model, plan, serving, measurements, unchecked, deadline}: C(gpus) as gpu_info returns
them, C(plan) as memory_plan returns it (with C(step)), C(serving): whether a server answers there now, which a restart
would interrupt, C(deadline) as server_ready returns it.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_explain as explain
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import newest, teaches

BAR_COLUMNS = 50
COLUMNS = 120  # of a terminal
NAME_COLUMNS = 20
# Steps that start a server.
STARTS = ("try", "back")
# A first guess of how long a start takes, until one was seen: 450 s were reported for 75 GiB a rank, 60 s for 3 GiB.
OUTAGE_LEAST_SECONDS, OUTAGE_SECONDS_PER_GIB = 60.0, 5.2


@dataclass(frozen=True)
class Share:
    """A part of the bar: rows of the plan by their C(parts), and the letter that draws them."""

    letter: str
    name: str
    parts: tuple


SHARES = (
    Share("W", "weights", ("static",)),
    Share("P", "pool", ("pool",)),
    Share("g", "until ready", ("ready",)),
    Share("l", "load", ("load",)),
    Share(".", "free", ()),
)


def shares_of(plan):
    """Return [(Share, GiB)] of free before load, or [] when the plan is not complete."""
    before = plan.get("free_before_load_gib")
    if before is None or plan.get("pool_tokens") is None:
        return []
    pools = ("pool", "request states")
    rows = [dict(row, part="pool" if row["name"] in pools else row["part"]) for row in plan["rows"]]
    found = [(share, sum(row["gib"] for row in rows if row["part"] in share.parts)) for share in SHARES[:-1]]
    return found + [(SHARES[-1], max(0.0, before - sum(gib for dummy, gib in found)))]


def memory_bar(plan, columns=BAR_COLUMNS):
    """Return one line that draws the memory of a rank, with a legend in GiB; "" when the plan is not complete."""
    shares = shares_of(plan)
    if not shares:
        return ""
    total = max(sum(gib for dummy, gib in shares), 1e-9)
    ends, sum_gib = [], 0.0
    for dummy, gib in shares:
        sum_gib += gib
        ends.append(round(columns * sum_gib / total))
    drawn = "".join(share.letter * (end - start) for (share, dummy), start, end in zip(shares, [0] + ends[:-1], ends))
    legend = ", ".join(f"{share.letter} {share.name} {gib:.2f}" for share, gib in shares if gib >= 0.005)
    return f"|{drawn}| {plan['free_before_load_gib']:.2f} GiB: {legend}"


def outage_seconds(row):
    """Return (seconds without an answer that the step would cost, how that is known).

    Where nothing serves now it is how long the start takes.
    """
    step = (row["plan"].get("step") or {}).get("action")
    if step not in STARTS:
        return 0, "no restart"
    # Another model, or the same one split another way, loads in another time.
    keys = row["plan"].get("quantity_keys")
    measured = newest(
        row.get("measurements") or (), lambda one: one.get("load_seconds") and teaches(one, "weights", keys)
    )
    if measured is not None:
        return round(measured["load_seconds"]), "as the last start"
    weights = next((one["gib"] for one in row["plan"]["rows"] if one["part"] == "static"), None)
    if weights is None:
        return None, "not known"
    return round(OUTAGE_LEAST_SECONDS + OUTAGE_SECONDS_PER_GIB * weights), "a guess"


def deadline_text(row):
    """Return how long a start would be waited for at most, and why; "" when the step starts nothing."""
    deadline = row.get("deadline") or {}
    if (row["plan"].get("step") or {}).get("action") not in STARTS or not deadline.get("seconds"):
        return ""
    minutes, rest = divmod(deadline["seconds"], 60)
    amount = f"{deadline['seconds']:.0f} s" if rest else f"{minutes:.0f} min"
    return f"waits up to {amount} for a start: {deadline['why']}"


HEADINGS = ("host", "GPUs", "model", "fraction", "interval", "cap", "pool (band)", "headroom GiB", "outage")
# What of the name of a board tells nothing, and of a long one all the same.
_SAID = re.compile(r"\b(NVIDIA|GeForce|Workstation|Server|Edition|Blackwell|Generation)\b")


def short_name(name):
    """Return the name of a board for a narrow column."""
    short = " ".join(_SAID.sub(" ", str(name)).split()) or str(name)
    return short if len(short) <= NAME_COLUMNS else short[: NAME_COLUMNS - 1].rstrip() + "…"


def _ranks(plan):
    """Return how many boards the arguments ask for on one host."""
    arguments = plan.get("arguments") or {}
    sizes = [arguments.get(name) or 1 for name in ("tp-size", "pp-size", "nnodes")]
    return max(1, sizes[0] * sizes[1] // sizes[2])


def _idle_boards(row, rows):
    """Return the lever for a server without room where boards of its host are taken by no plan, or None."""
    mine = [one for one in rows if one["host"] == row["host"]]
    if row["plan"].get("feasible") is not False or len(mine) < 2:
        return None
    taken = {board.get("index") for one in mine for board in one["plan"].get("boards") or ()}
    idle = [one["index"] for one in row.get("gpus") or () if one.get("index") is not None and one["index"] not in taken]
    wanted = _ranks(row["plan"])
    if not taken or len(idle) < wanted:  # it would be given the first boards anyway
        return None
    names = ",".join(str(index) for index in idle[:wanted])
    return (
        f'lever: environment: {{CUDA_VISIBLE_DEVICES: "{names}"}} in its entry of sglang_server_instances: {len(idle)}'
        f" of {len(row['gpus'])} boards are taken by no plan of this host"
    )


def _gpus(row):
    """Return the boards that the server takes, of those that are there."""
    gpus = row.get("gpus") or []
    if not gpus:
        return "-"
    names = sorted({short_name(one.get("name")) for one in gpus})
    used = min(len(row["plan"].get("boards") or ()) or _ranks(row["plan"]), len(gpus))
    return "{} of {} {}".format(used, len(gpus), names[0] if len(names) == 1 else "several kinds")


def _cells(row):
    plan = row["plan"]
    number = explain.number
    fraction = "-" if plan.get("fraction") is None else explain.fraction_text(plan["fraction"])
    low, high = plan.get("fraction_low"), plan.get("fraction_high")
    interval = "none"
    if low is not None and high is not None and low <= high:
        interval = f"{explain.fraction_text(low)}-{explain.fraction_text(high)}"
    cap = "-" if plan.get("cap_tokens") is None else number(plan["cap_tokens"])
    pool = headroom = "-"
    if plan.get("pool_tokens") is not None:
        low_end = min(plan["pool_tokens"], plan["predicted_tokens_low"])
        high_end = plan["predicted_tokens_high"]
        high_end = high_end if plan.get("cap_tokens") is None else min(high_end, plan["cap_tokens"])
        pool = number(plan["pool_tokens"])
        if (low_end, high_end) != (plan["pool_tokens"], plan["pool_tokens"]):  # a cap that both ends of the band hold
            pool += f" ({number(low_end)}-{number(high_end)})"
        headroom = "{:.1f} ({:.1f}-{:.1f})".format(
            plan["predicted_headroom_gib"], plan["predicted_headroom_low_gib"], plan["predicted_headroom_high_gib"]
        )
    seconds, how = outage_seconds(row)
    outage = "-" if seconds is None else f"{seconds} s, {how}" if seconds else how
    if seconds and not row.get("serving"):
        outage = f"none, start {seconds} s"
    host = row["host"] if row.get("instance") in (None, "", "main") else f"{row['host']}/{row['instance']}"
    return (host, _gpus(row), str(row.get("model") or "-"), fraction, interval, cap, pool, headroom, outage)


def lines(rows):
    """Return the table of a fleet as aligned lines, with a bar and what hinders each host beneath."""
    table = [HEADINGS] + [_cells(row) for row in rows]
    widths = [max(len(cells[index]) for cells in table) for index in range(len(HEADINGS))]
    found = ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip() for cells in table]
    result = found[:1]
    for row, line in zip(rows, found[1:]):
        plan = row["plan"]
        result.append(line)
        for one in (memory_bar(plan), deadline_text(row), *_said(row, _idle_boards(row, rows))):
            result += textwrap.wrap(one, COLUMNS, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return result


def _said(row, idle=None):
    """Return what hinders a server, what would help, and what is to be known, one sentence each."""
    plan, found = row["plan"], []
    step = plan.get("step") or {}
    refusal = plan.get("refusal") or (step.get("reason") if step.get("action") == "refuse" else None)
    if refusal:
        found.append("refused: " + refusal)
    if plan.get("feasible") is False:
        levers = [explain.lever_text(one) for one in plan.get("levers") or ()]
        found += ["lever: " + one for one in levers if one not in (refusal or "")]
    if idle:
        found.append(idle)
    if plan.get("missing") and not refusal:
        found.append("not known yet: " + explain.missing_text(plan["missing"]))
    found += ["note: " + one for one in plan.get("notes") or ()]
    found += ["upgrade: " + one for one in plan.get("upgrade") or ()]
    return found + ["not checked yet: " + one for one in row.get("unchecked") or ()]


# ---------------------------------------------------------------------------
# From the variables of hosts
# ---------------------------------------------------------------------------


def rows_of_host(host, variables):
    """Return the rows of one host from what its planning left behind in C(sglang_server_plans), one for each server."""
    found = []
    for one in variables.get("sglang_server_plans") or ():
        server = one.get("server") or {}
        found.append(
            {
                "host": host,
                "instance": one.get("instance"),
                "gpus": one.get("gpus") or [],
                "model": _short(one.get("model")),
                "plan": one["plan"],
                "serving": bool(server.get("serving")),
                "measurements": server.get("measurements") or [],
                "unchecked": one.get("unchecked") or [],
                "deadline": one.get("deadline"),
            }
        )
    return found


def _short(path):
    """A model by the last part of its path: tables are narrow."""
    return str(path).rstrip("/").rsplit("/", 1)[-1] if path else None


def of_hosts(hosts, hostvars):
    """Return the lines for C(hosts); a host without a plan is named at the end."""
    rows, without = [], []
    for host in hosts:
        found = rows_of_host(host, hostvars[host]) if host in hostvars else []
        rows += found
        if not found:
            without.append(host)
    result = lines(rows) if rows else []
    return result + [f"{host}: no plan, see the messages of this host above" for host in without]
