# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of server_soak: prints how far the load on the host is, and how it ended."""

from __future__ import annotations

import os
import uuid

from ansible.utils.display import Display

from ansible_collections.gpufleet.sglang.plugins.plugin_utils._background import BackgroundAction, Printer
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._progress import MANY_HOSTS, line, soak_end


class ActionModule(BackgroundAction):
    """Runs the module in the background and prints its notes; in check mode and with ``async`` it runs in one go."""

    MODULE = "gpufleet.sglang.server_soak"

    def work(self, task_vars: dict) -> dict:
        if self._task.args.get("profile") == "none":
            return self.call(task_vars)
        host = task_vars.get("inventory_hostname", "host")
        is_brief = len(task_vars.get("ansible_play_batch") or []) > MANY_HOSTS
        show = Display().display
        printer = SoakPrinter((lambda text: None) if is_brief else show, host)
        printer.note("load", "{} on port {}".format(*self._named()))
        notes = self._notes()
        result = self.follow(self.start(task_vars, notes), notes, printer, task_vars)
        if result.get("verdict"):
            show(line(host, "soak " + result["verdict"], result.get("seconds"), soak_end(result)))
        return result

    def _named(self):
        return self._task.args.get("profile", "short"), self._task.args.get("port", 30000)

    def _notes(self) -> str:
        """A file of our own in the folder of background jobs, which belongs to the user that the module runs as."""
        folder = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        return os.path.join(folder, f"soak-{uuid.uuid4().hex}.progress")


class SoakPrinter(Printer):
    """Notes of the load: ``gpu-a | soak fill | 40 s | 62 % of 190,000 tokens, least free 2.1 GiB on board 3``."""

    def note(self, phase: str, detail: str) -> None:
        super().note("soak " + phase, detail)
