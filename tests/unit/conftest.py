# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of all unit tests: imports by the collection's name without an installation, and steady properties."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import tree  # noqa: E402

devtree = str(tree.link().parents[2])
if devtree not in sys.path:
    sys.path.append(devtree)

# The same examples on every machine and in every run, and no folder for what was found.
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")
