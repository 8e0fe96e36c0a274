# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of engine_venv: prints how far the work on the host is."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.plugin_utils._background import BackgroundAction


class ActionModule(BackgroundAction):
    """Runs the module in the background; see BackgroundAction."""

    MODULE = "gpufleet.sglang.engine_venv"
    TARGET = "path"
