# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: what a plan remembers, and from where: this host, kin in the play, the inventory.

Private to the gpufleet.sglang collection; may change at any time. Pure.

A plan believes the last record of a list that speaks about a quantity. So the order is the precedence: what somebody
stated in the inventory first, then kin, then this host.
"""

from __future__ import annotations

import json

from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import QUANTITIES

HOST, PLAY, INVENTORY = "host", "play", "inventory"
# The fact in which a host leaves for others of its play what it remembers: {instance: {"measurements", "deaths"}}.
FACT = "sglang_server_remembered"
# Hosts of one play that are asked: each of them costs a look at all its variables.
MOST_KIN = 32
# Of one instance of kin: start-ups of different keys, and deaths. Start-ups of the same keys teach the same.
MOST_MEASUREMENTS, MOST_DEATHS = 3, 5

# What is pasted into an inventory: what depends on the keys, and the figures of that start-up which belong together.
PASTED = (
    "engine_version",
    "keys",
    "fraction",
    "cap_tokens",
    "pool_tokens",
    "cell_bytes",
    "kv_gib",
    "weights_gib",
    "free_before_load_gib",
    "free_after_load_gib",
    "headroom_gib",
    "least_free_gib",
    "graph_gib",
    "chunked_prefill_size",
)


def nearest_first(hosts, own):
    """The other hosts of a play, at most ``MOST_KIN``: those that came just before this one, then those after it.

    Of a rolling deployment the hosts before this one have been proven already.
    """
    hosts = list(hosts)
    position = hosts.index(own) if own in hosts else len(hosts)
    return (hosts[:position][::-1] + [host for host in hosts[position:] if host != own])[:MOST_KIN]


def of_play(hosts, hostvars, own):
    """What the other hosts of a play remember: ``{host: {instance: {"measurements", "deaths"}}}``, nearest first."""
    found = {}
    for host in nearest_first(hosts, own):
        told = hostvars[host].get(FACT) if host in hostvars else None
        if told:
            found[host] = told
    return found


def gathered(own, kin, stated):
    """What a plan is to know, in the order in which it believes it: the last record that speaks counts.

    :arg own: ``{"measurements", "deaths"}`` of this instance on this host, oldest first.
    :arg kin: what other hosts of the play remember, see ``of_play``. A record of theirs without keys is nobody's kin.
    :arg stated: ``sglang_server_measurements`` of the inventory.
    :returns: ``{"measurements": [...], "deaths": [...]}``. Each record has an ``origin`` (host, play, inventory) and,
        when it is kin's, ``from`` with the name of that host.
    """
    measurements = [dict(one, origin=one.get("origin") or INVENTORY) for one in stated or ()]
    deaths = []
    # The nearest host comes last, so that it counts most among kin.
    for host, instances in reversed(list((kin or {}).items())):
        for dummy, told in sorted(instances.items()):
            marked = {"origin": PLAY, "from": host}
            measurements += [dict(one, **marked) for one in _newest_of_each_keys(told.get("measurements") or ())]
            keyed = [one for one in told.get("deaths") or () if one.get("keys")]
            deaths += [dict(one, **marked) for one in keyed[-MOST_DEATHS:]]
    measurements += [dict(one, origin=one.get("origin") or HOST) for one in own.get("measurements") or ()]
    deaths += [dict(one, origin=one.get("origin") or HOST) for one in own.get("deaths") or ()]
    return {"measurements": measurements, "deaths": deaths}


def _newest_of_each_keys(records):
    newest = {}
    for one in records:
        if one.get("keys"):
            newest.pop(_keys_text(one), None)  # so that the newest is the last
            newest[_keys_text(one)] = one
    return list(newest.values())[-MOST_MEASUREMENTS:]


def _keys_text(record):
    return json.dumps(record["keys"], sort_keys=True)


# --- for a person


def lines(measurements, deaths, keys=None):
    """What is remembered and from where, as aligned lines with a heading; none when nothing is.

    :arg keys: ``quantity_keys`` of the plan: a record counts for the quantities whose keys are these. Without them
        nothing is said of what counts.
    """
    rows = [("start-up", _pool_text(one), *_tail(one, keys, QUANTITIES)) for one in measurements]
    rows += [("death", _death_text(one), *_tail(one, keys, ("activation",))) for one in deaths]
    if not rows:
        return []
    rows = [("remembered", "figures", "counts for", "from"), *rows]
    if keys is None:
        rows = [(row[0], row[1], row[3]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def lines_left(told, measurements, deaths):
    """Of the lines that were told those whose records are left, as they were: a diff shows what goes and no more."""
    kept = [word for word, records in (("start-up", measurements), ("death", deaths)) if records]
    rows = [line for line in told[1:] if line.split(" ")[0] in kept]
    return [*told[:1], *rows] if rows else []


def _tail(record, keys, quantities):
    theirs = record.get("keys") or {}
    same = [one for one in quantities if theirs.get(one) is None or theirs[one] == (keys or theirs).get(one)]
    return ", ".join(same) or "nothing here", origin_text(record)


def origin_text(record):
    """Where a record is from, in words."""
    if record.get("origin") == PLAY:
        return "%s in this play" % record.get("from", "another host")
    if record.get("origin") == INVENTORY:
        return "inventory"
    return "this host, %s" % record["from"] if record.get("from") else "this host"


def _pool_text(measured):
    pool = measured.get("pool_tokens")
    parts = ["pool unknown" if pool is None else f"pool {int(pool):,}"]
    parts += ["fraction %s" % measured["fraction"]] if measured.get("fraction") is not None else []
    parts += ["chunk %s" % measured["chunked_prefill_size"]] if measured.get("chunked_prefill_size") else []
    for name, title in (("headroom_gib", "headroom"), ("least_free_gib", "least free")):
        parts += ["%s %.2f GiB" % (title, float(measured[name]))] if measured.get(name) is not None else []
    return ", ".join(parts)


def _death_text(death):
    needed = death.get("reserve_needed_gib")
    text = "reserve needed %s" % ("unknown" if needed is None else "%.2f GiB" % float(needed))
    where = ", ".join(str(death[name]) for name in ("kind", "phase") if death.get(name))
    return "%s (%s)" % (text, where) if where else text


def pasted(measurement):
    """A measurement as the line of an inventory that tells it to other hosts of this kind; "" without one."""
    kept = {name: measurement[name] for name in PASTED if (measurement or {}).get(name) is not None}
    if not kept:
        return ""
    return "sglang_server_measurements: [%s]" % json.dumps(kept)
