# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, what runs beside the looking.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import threading


class Call(threading.Thread):
    """A call beside the looking: a server can die of its first request. ``result`` is None until it is back."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self._function = function
        self._arguments = arguments
        self.result = None
        self.error = None

    def run(self):
        try:
            self.result = self._function(*self._arguments)
        except Exception as error:  # pylint: disable=broad-except
            # A thread has nobody to raise to; the wait goes on and names it.
            self.error = error
