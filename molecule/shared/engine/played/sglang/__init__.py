# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A played engine for SGLang, for tests: it starts, computes its pool, says, answers and ends as SGLang does."""

from sglang.version import __version__  # noqa: F401
