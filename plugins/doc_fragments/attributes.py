# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The attributes that the modules of this collection state.

    A module extends C(gpufleet.sglang.attributes) for the descriptions and then gives C(support) and C(details)
    under its own C(attributes) key. The variants below give C(support) too where all modules of a kind agree.
    """

    # The descriptions only: every module says itself how far it supports them.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status prediction without modifying target.
  diff_mode:
    description: Will return details on what has changed (or possibly needs changing in check mode), when in diff mode.
  platform:
    description: Target OS/families that can be operated against.
"""

    # A module that only reads: check mode is complete, there is never a difference to show.
    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module changes nothing, so it returns the same in check mode.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing, so there is no difference to show.
"""

    # A module that runs on the managed hosts.
    LINUX = r"""
options: {}
attributes:
  platform:
    platforms: linux
    support: full
"""

    # An action that runs on the controller only and needs no connection to the host.
    ACTION = r"""
options: {}
attributes:
  action:
    description: Has a corresponding action plugin, so that parts of the options can be executed on the controller.
"""
