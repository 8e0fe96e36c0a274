from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _clients

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
# The form of the kernel: 0100007F is 127.0.0.1, 7530 is port 30000, states: 0A listen, 01 established, 06 time-wait.
ROW = "   0: %s %s %s 00000000:00000000 00:00000000 00000000   998        0 %d 1 0000000000000000 100 0 0 10 0"
LISTENS = ROW % ("00000000:7530", "00000000:0000", "0A", 700)
SERVER = "0500000A:7530"  # 10.0.0.5
CLIENT = "0900000A:D431"  # 10.0.0.9, port 54321


def clients(*rows, own=(700, 701, 702)):
    return _clients.clients_of(_clients.connections_of("\n".join([HEADING, LISTENS, *rows])), 30000, set(own))


def test_addresses_of_the_table():
    assert _clients.address_of("0100007F:7530") == ("127.0.0.1", 30000)
    assert _clients.address_of("00000000000000000000000001000000:0050") == ("::1", 80)
    assert _clients.address_of("0000000000000000FFFF00000900000A:D431") == ("10.0.0.9", 54321)


def test_a_server_that_only_listens_has_no_clients():
    assert clients() == set()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ROW % (SERVER, CLIENT, "01", 701), {("10.0.0.9", 54321)}),
        (ROW % (SERVER, CLIENT, "01", 0), {("10.0.0.9", 54321)}),  # it waits to be accepted
        (ROW % (SERVER, CLIENT, "01", 999), set()),  # of a process that is not the server
        (ROW % ("0500000A:7531", CLIENT, "01", 701), set()),  # at another port of it
        (ROW % (SERVER, CLIENT, "06", 0), {("10.0.0.9", 54321)}),  # gone for less than a minute
        (ROW % (SERVER, "0500000A:D431", "06", 0), set()),  # the same from this host: may have been us
        (ROW % (SERVER, "0500000A:D431", "01", 701), set()),  # from this host, and closed: may have been us
        (ROW % (SERVER, CLIENT, "08", 701), set()),  # closed by the client
    ],
)
def test_who_is_a_client(row, expected):
    assert clients(row) == expected


def test_a_proxy_on_this_host_is_a_client():
    its_own = ROW % ("0500000A:D431", SERVER, "01", 999)
    assert clients(its_own, ROW % (SERVER, "0500000A:D431", "01", 701)) == {("10.0.0.5", 54321)}


def test_a_server_that_asks_itself_is_no_client():
    ours = ROW % ("0100007F:D431", "0100007F:7530", "01", 702)
    assert clients(ours, ROW % ("0100007F:7530", "0100007F:D431", "01", 701)) == set()


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "41" / "fd"
    folder.mkdir(parents=True)
    for number, target in ((0, "/dev/null"), (3, "socket:[700]"), (4, "socket:[701]")):
        os.symlink(target, folder / str(number))
    (tmp_path / "40" / "net").mkdir(parents=True)
    (tmp_path / "40" / "net" / "tcp").write_text("\n".join([HEADING, LISTENS]) + "\n")
    return tmp_path


RUNNING = {"pid": 40, "pids": [40, 41], "port": 30000}


def test_sockets_of_all_processes_of_the_server(proc):
    # 40 has no folder of descriptors here, as a process that just ended.
    assert _clients.socket_inodes([40, 41], str(proc)) == {700, 701}


def test_clients_that_come_while_it_looks(proc):
    passed = [0.0]

    def sleep(seconds):
        passed[0] += seconds
        text = "\n".join(
            [HEADING, LISTENS, ROW % (SERVER, CLIENT, "01", 701), ROW % (SERVER, "0900000A:D432", "01", 701)]
        )
        (proc / "40" / "net" / "tcp").write_text(text)

    assert _clients.seen(RUNNING, 0, str(proc)) == []
    found = _clients.seen(RUNNING, 0.3, str(proc), clock=lambda: passed[0], sleep=sleep)
    assert found == [{"address": "10.0.0.9", "connections": 2}]
    assert passed[0] == pytest.approx(0.3)


def test_nobody_can_tell_what_does_not_run(proc):
    assert _clients.seen({}, 1, str(proc)) is None
    assert _clients.seen(dict(RUNNING, port=None), 1, str(proc)) is None


def test_sentences_name_clients_and_the_way_out():
    rows = _clients.by_address({("10.0.0.%d" % number, 1000) for number in range(5)} | {("10.0.0.4", 1001)})
    assert _clients.named(rows) == (
        "10.0.0.4 (2 connections), 10.0.0.0 (1 connection), 10.0.0.1 (1 connection) and 2 more"
    )
    assert "sglang_server_soak_beside_clients: true" in _clients.refusal("sglang-main.service", rows)
    assert "shared" in _clients.beside(rows)
    assert (_clients.refusal("x", []), _clients.refusal("x", None), _clients.beside([])) == ("", "", "")
