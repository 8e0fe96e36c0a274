# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console script: ``sglang serve`` is the launcher, ``sglang version`` says the version."""

from __future__ import annotations

import sys

import sglang
from sglang import launch_server


def main() -> None:
    if sys.argv[1:2] == ["version"]:
        print(f"sglang version: {sglang.__version__}")
    elif sys.argv[1:2] == ["serve"]:
        launch_server.main(sys.argv[2:])
    else:
        sys.exit("usage: sglang {serve,version} ...")
