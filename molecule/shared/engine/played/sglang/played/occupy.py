# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A foreign process on a board: ``python -m sglang.played.occupy BOARD MIB [NAME]``; it holds its memory to its end."""

from __future__ import annotations

import signal
import sys

from sglang.played import ledger


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    board, mib = int(sys.argv[1]), float(sys.argv[2])
    entry = ledger.Entry(sys.argv[3] if len(sys.argv) > 3 else "python3")
    entry.set(board, "foreign", mib)
    entry.write()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    try:
        signal.pause()
    finally:
        entry.remove()


if __name__ == "__main__":
    main()
