# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters are pure functions of module_utils; what is wrong with their input is one sentence, not a traceback.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import functools

from ansible.errors import AnsibleFilterError


def as_filter(function):
    """Return *function* with its ValueError as the error that Ansible prints for a filter."""

    @functools.wraps(function)
    def filtered(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            raise AnsibleFilterError(str(error)) from error

    return filtered
