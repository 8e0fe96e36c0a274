# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: talking to the server, from a module. The parts of options that ``server_ready`` and ``server_soak`` share.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import os
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import _http, _journal_stream, _secrets


def runner_of(module):
    """A ``_journal_stream.Runner``: ``run(argv) -> (rc, stdout, stderr)`` in a plain locale, or line by line.

    Raises OSError for a command that does not exist.
    """

    def run(argv):
        return module.run_command(
            argv,
            environ_update=_journal_stream.ENVIRONMENT,
            errors="replace",
            expand_user_and_vars=False,
            handle_exceptions=False,
        )

    return _journal_stream.Runner(run)


def address_of(module, params):
    """The server's address with its key; the key is masked in everything that the module returns."""
    api_key = params["api_key"]
    if params["api_key_file"]:
        try:
            with open(params["api_key_file"], encoding="utf-8") as stream:
                api_key = _secrets.api_key_of_text(stream.read())
        except (OSError, ValueError) as error:
            module.fail_json(
                msg="Expected the API key in api_key_file {}, found: {}; correct the path, or set api_key.".format(
                    params["api_key_file"], error
                )
            )
        if api_key:
            # Ansible takes an empty text out of everything: letters and figures alike.
            module.no_log_values.add(api_key)
    return _http.Address(params["host"], params["port"], api_key or None)


def process_age_seconds(proc_root="/proc"):
    """How long this process exists, start of the interpreter included; at most what it really is. 0 when not known."""
    try:
        with open(os.path.join(proc_root, "self", "stat"), encoding="utf-8", errors="replace") as stream:
            started_ticks = int(stream.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    tick_seconds = 1.0 / os.sysconf("SC_CLK_TCK")
    # The kernel rounds the start down to a tick.
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - (started_ticks + 1) * tick_seconds, 0.0)
