# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of the start-up: what reading the journal costs, and how soon a start-up is told.

    bench_startup.py [reading | waiting] [options of that part]     without a part: both
"""

from __future__ import annotations

import sys

import bench_reading
import bench_waiting

PARTS = {"reading": bench_reading.main, "waiting": bench_waiting.main}


def main(arguments):
    if arguments and arguments[0] in PARTS:
        return PARTS[arguments[0]](arguments[1:])
    return max(part(arguments) for part in PARTS.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
