# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options of modules that ask a hub: module_utils/_hub_options.py."""

    DOCUMENTATION = r"""
options:
  endpoint:
    description: The hub, or a mirror that answers like it.
    type: str
    default: https://huggingface.co
  token:
    description: The access token. It is sent to O(endpoint) only, not to hosts that it redirects to.
    type: str
  token_file:
    description: A file, where the module runs, that holds the access token. Not read when O(token) is given.
    type: path
  timeout_seconds:
    description: Seconds without a byte after which a connection counts as broken.
    type: int
    default: 30
  validate_certs:
    description: Whether the hub's certificate is checked.
    type: bool
    default: true
"""
