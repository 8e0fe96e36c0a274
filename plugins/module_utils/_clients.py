# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: clients. Who is connected to the port of a server, by /proc/net/tcp and the sockets of its processes.

Private to the gpufleet.sglang collection; may change at any time.

Fields of the table and numbers of its states: Linux ``Documentation/networking/proc_net_tcp.rst`` and
``include/net/tcp_states.h``. A client that opens a connection for each request is seldom seen with one open; the side
that closes first keeps the connection in TIME_WAIT for 60 s (``TCP_TIMEWAIT_LEN``), and for a connection that was idle
for five seconds that side is SGLang's HTTP server. So both states are looked at, for a while.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils._service import descendants

ESTABLISHED, TIME_WAIT = "01", "06"
TABLES = ("net/tcp", "net/tcp6")
PAUSE_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Connection:
    """One row of the table; ``inode`` is 0 for a connection that no process holds (not accepted yet, or closed)."""

    local: tuple  # (address, port)
    remote: tuple
    state: str
    inode: int


def address_of(text):
    """(address, port) of the table's form ``0100007F:7530``: words of 32 bits in the byte order of the machine."""
    digits, _colon, port = text.partition(":")
    words = [digits[start : start + 8] for start in range(0, len(digits), 8)]
    raw = b"".join(bytes.fromhex(word)[::-1] for word in words)
    address = ipaddress.ip_address(raw)
    # A server that listens on all addresses has IPv4 clients in the table of IPv6.
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(port, 16)


def connections_of(text):
    """Connections of one table; its heading and lines that are none are passed over."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 9 and re.fullmatch(r"[0-9A-F]+:[0-9A-F]{4}", fields[1]):
            found.append(Connection(address_of(fields[1]), address_of(fields[2]), fields[3], int(fields[9])))
    return found


def clients_of(connections, port, own_inodes):
    """Connections of others to the port of a server: ``{(address, port) of the client}``.

    :arg own_inodes: sockets of the server's processes; a connection that the server made to itself is no client.
    """
    mine = {connection.local for connection in connections if connection.inode in own_inodes}
    # A client on this host has a row of its own. One that was closed just now has none, and may have been us.
    here = {connection.local for connection in connections if connection.state == ESTABLISHED and connection.inode}
    found = set()
    for connection in connections:
        if connection.local[1] != port or connection.remote in mine:
            continue
        if connection.remote[0] == connection.local[0] and connection.remote not in here:
            continue
        if connection.state == ESTABLISHED and (connection.inode in own_inodes or connection.inode == 0):
            found.add(connection.remote)
        if connection.state == TIME_WAIT:
            found.add(connection.remote)
    return found


def socket_inodes(pids, proc_root="/proc"):
    """Sockets that processes hold, by their inodes; processes that are gone, or not ours to see, hold none."""
    found = set()
    for pid in pids:
        folder = os.path.join(proc_root, str(pid), "fd")
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(os.path.join(folder, name)))
            except OSError:
                continue
            if match:
                found.add(int(match.group(1)))
    return found


def _tables(pid, proc_root):
    """Text of the tables of the network that the process lives in."""
    text = ""
    for table in TABLES:
        try:
            with open(os.path.join(proc_root, str(pid), table), encoding="ascii", errors="replace") as stream:
                text += stream.read()
        except OSError:
            continue
    return text


def seen(running, seconds, proc_root="/proc", clock=time.monotonic, sleep=time.sleep):
    """Clients that are connected to a server, by address, those with most connections first.

    :arg running: ``{"pid", "pids", "port"}``, what a unit's main process runs.
    :arg seconds: how long to look.
    :returns: ``[{"address", "connections"}]``; None when nobody can tell (nothing runs, its port is not known).
    """
    if not running.get("pid") or not running.get("port"):
        return None
    found, until = set(), clock() + seconds
    while True:
        found |= now(running["pid"], running["pids"], running["port"], proc_root)
        if clock() >= until:
            return by_address(found)
        sleep(PAUSE_SECONDS)


def now(pid, own_pids, port, proc_root="/proc"):
    """Who is connected at this moment: ``{(address, port) of the client}``.

    :arg pid: a process in the network of the server. :arg own_pids: processes whose connections are no client's.
    """
    # Before and after the tables: what one of these processes opens or closes meanwhile would be a client's.
    before = socket_inodes(own_pids, proc_root)
    connections = connections_of(_tables(pid, proc_root))
    return clients_of(connections, port, before | socket_inodes(own_pids, proc_root))


def looker(pid, port, proc_root="/proc"):
    """A function that tells who is connected to a server beside this process; None for a server without one."""
    if not pid:
        return None
    return lambda: now(pid, [*descendants(pid, proc_root), os.getpid()], port, proc_root)


def by_address(clients):
    """``[{"address", "connections"}]`` of (address, port) pairs."""
    counted = {}
    for address, dummy in clients:
        counted[address] = counted.get(address, 0) + 1
    rows = [{"address": address, "connections": count} for address, count in counted.items()]
    return sorted(rows, key=lambda row: (-row["connections"], row["address"]))


def named(clients, most=3):
    """Clients in words: ``10.0.0.5 (3 connections), 10.0.0.6 (1 connection) and 2 more``; "" without any."""
    words = [
        "%s (%d connection%s)" % (row["address"], row["connections"], "" if row["connections"] == 1 else "s")
        for row in clients or ()
    ]
    more = len(words) - most
    return ", ".join(words[:most]) + (" and %d more" % more if more > 0 else "")


def refusal(unit, clients):
    """The one sentence for a load that nobody asked for beside clients; "" without any."""
    if not clients:
        return ""
    return (
        "Expected no clients at %s before a load is put on it, found %s; keep them away with sglang_server_fence, or "
        "set sglang_server_soak_beside_clients: true. It serves on as it is." % (unit, named(clients))
    )


def beside(clients):
    """The sentence for a load that went on beside clients; "" without any."""
    if not clients:
        return ""
    return "The load ran beside clients (%s), so its speeds are marked shared." % named(clients)
