# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the boards of a host are connected: text of nvidia-smi topo to what each board reaches. Private.

Two matrices are read. C(topo -m) names the way between two boards, NV# for NVLink; C(topo -p2p r) tells whether the
driver lets one read the other's memory. What cannot be read for certain is None, never a guess.
"""

from __future__ import annotations

import re

LINKS = ("topo", "-m")
PEERS = ("topo", "-p2p", "r")

# The tool underlines the first line, also into a pipe.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_BOARD = re.compile(r"GPU(\d+)")
# NV1 to NV18: bonded NVLinks; the others name ways over PCIe (legend of nvidia-smi topo -m).
_NVLINK = re.compile(r"NV\d+")
_WAYS = ("SYS", "NODE", "PHB", "PXB", "PIX", "PIXB", "SOC", "PSB")
# Legend of nvidia-smi topo -p2p: OK, or a reason why not. Unknown (U) is neither.
_REFUSED = ("CNS", "GNS", "TNS", "NS", "DR")


def matrix(text):
    """Return {board: {other board: word}} by index, {} for a text that is no such matrix.

    Columns behind those of the boards (network cards, affinities) are passed over: their names may hold blanks.
    """
    rows = [line.split() for line in _ESCAPES.sub("", text or "").splitlines()]
    head = next((cells for cells in rows if cells and _BOARD.fullmatch(cells[0]) and len(cells) > 1), None)
    if head is None or not _is_head(head):
        return {}
    columns = _leading(head)
    found = {}
    for cells in rows[rows.index(head) + 1 :]:
        name = _BOARD.fullmatch(cells[0]) if cells else None
        if name is None:
            continue
        if len(cells) <= len(columns):
            return {}
        own = int(name.group(1))
        found[own] = {other: word for other, word in zip(columns, cells[1:]) if other != own}
    return found if sorted(found) == sorted(columns) else {}


def _is_head(cells):
    """Return whether the first line with a board is one of names: a host of one board has no other in it."""
    return cells[1] != "X"


def _leading(cells):
    columns = []
    for cell in cells:
        name = _BOARD.fullmatch(cell)
        if name is None:
            break
        columns.append(int(name.group(1)))
    return columns


def reached(text, yes, no):
    """Return {board: [boards that it reaches]}; None for a board with a word that is neither yes nor no."""
    found = {}
    for board, others in matrix(text).items():
        known = all(yes(word) or no(word) for word in others.values())
        found[board] = sorted(other for other, word in others.items() if yes(word)) if known else None
    return found


def nvlinks(text):
    """Return {board: [boards that NVLink reaches in one step]} of C(topo -m)."""
    return reached(text, lambda word: _NVLINK.fullmatch(word) is not None, lambda word: word in _WAYS)


def peers(text):
    """Return {board: [boards whose memory it may read]} of C(topo -p2p r)."""
    return reached(text, lambda word: word == "OK", lambda word: word in _REFUSED)


def with_topology(gpus, links_text, peers_text):
    """Return the entries of gpu_info with C(nvlinks) and C(peers): indexes of boards, None where it is not known."""
    links, readable = nvlinks(links_text), peers(peers_text)
    alone = [] if len(gpus) == 1 else None
    return [dict(gpu, nvlinks=links.get(gpu["index"], alone), peers=readable.get(gpu["index"], alone)) for gpu in gpus]


def all_pairs(gpus, key):
    """Return whether every pair of C(gpus) reaches each other by C(key): nvlinks or peers.

    None where that is not known: no boards are, or one of them has no such entry. A single board has no pairs: True.
    """
    if not gpus:
        return None
    indexes = {gpu.get("index") for gpu in gpus}
    if any(gpu.get(key) is not None and indexes - {gpu.get("index"), *gpu[key]} for gpu in gpus):
        return False
    return None if any(gpu.get(key) is None for gpu in gpus) and len(gpus) > 1 else True
