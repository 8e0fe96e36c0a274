# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: clean_exit_statuses
short_description: Name the exit statuses of a clean stop for an SGLang version
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Gives the statuses, besides 0, by which the launcher of this version ends after a stop that was asked for.
  - A crash ends by the same ones, so they belong into C(SuccessExitStatus=) and C(RestartForceExitStatus=) alike.
options:
  _input:
    description: Version of SGLang. None counts as the newest.
    type: str
    required: true
"""

EXAMPLES = r"""
# ["SIGKILL"]
statuses: "{{ '0.5.19' | gpufleet.sglang.clean_exit_statuses }}"
"""

RETURN = r"""
_value:
  description: Names of signals as systemd knows them, or nothing.
  type: list
  elements: str
"""

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unit_file
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._sentence import as_filter


class FilterModule:
    def filters(self):
        return {"clean_exit_statuses": as_filter(_unit_file.clean_exit_statuses)}
