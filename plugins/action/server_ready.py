# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of server_ready: runs the module slice by slice and prints what each slice brings."""

from __future__ import annotations

import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.sglang.plugins.plugin_utils._progress import Progress

# A host that cannot be reached for so long ends the wait; its server goes on starting.
LOST_SECONDS = 120.0
RETRY_SECONDS = 3.0

# Only for the way from slice to slice.
_INTERNAL = ("slice", "slice_duration_seconds")


class ActionModule(ActionBase):
    """Loops slices; with ``async`` and in check mode the module does it all in one go."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(None, task_vars)
        del tmp
        task_vars = task_vars or {}
        if self._task.async_val:
            return self._in_the_background(result, task_vars)
        try:
            if self._task.check_mode:
                result.update(self._slice(None, task_vars)[0])
            else:
                result.update(self._whole_wait(task_vars))
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return _for_users(result)

    def _in_the_background(self, result, task_vars):
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        result.update(
            self._execute_module(
                module_name="gpufleet.sglang.server_ready",
                module_args=dict(self._task.args),
                task_vars=task_vars,
                wrap_async=wrap_async,
            )
        )
        return result

    def _whole_wait(self, task_vars):
        progress = Progress(
            Display().display,
            task_vars.get("inventory_hostname", "host"),
            len(task_vars.get("ansible_play_batch") or []),
            time.monotonic,
        )
        progress.begin(str(self._task.args.get("unit", "")))
        began = time.monotonic()
        state = {"waited_seconds": 0.0}
        while True:
            result, wall_seconds = self._slice_with_retries(state, task_vars, progress)
            if result.get("finished", True) is not False:
                return self._finish(result, wall_seconds, time.monotonic() - began, progress)
            progress.step(result)
            state = dict(result.get("slice") or {}, waited_seconds=time.monotonic() - began)

    def _slice(self, state, task_vars):
        """One slice; returns its result and how long it took as seen from here, connection included."""
        arguments = dict(self._task.args)
        if state is not None:
            arguments["slice"] = state
        began = time.monotonic()
        result = self._execute_module(
            module_name="gpufleet.sglang.server_ready", module_args=arguments, task_vars=task_vars
        )
        return result, time.monotonic() - began

    def _slice_with_retries(self, state, task_vars, progress):
        """A slice that survives a lost connection: slices share nothing, so the next one just looks again."""
        began, waited_before = time.monotonic(), state["waited_seconds"]
        while True:
            try:
                return self._slice(state, task_vars)
            except AnsibleConnectionFailure as error:
                if time.monotonic() - began >= LOST_SECONDS:
                    raise
                progress.lost(str(error))
                time.sleep(RETRY_SECONDS)
                # All of it, that of the connection too: a host that is up for a shorter time was rebooted.
                state = dict(state, waited_seconds=waited_before + time.monotonic() - began)

    def _finish(self, result, wall_seconds, waited_seconds, progress):
        """Add what the connection cost to the figures of the host: an upper bound without comparing two clocks."""
        if result.get("verdict") is None:
            # The module itself broke: its message is all there is.
            return result
        beside = max(wall_seconds - (result.get("slice_duration_seconds") or 0.0), 0.0)
        for name in ("seconds_after_ready_line", "seconds_after_fatal_line"):
            if result.get(name) is not None:
                result[name] = round(result[name] + beside, 3)
        result["waited_seconds"] = round(waited_seconds, 2)
        progress.end(result)
        return result


def _for_users(result):
    return {name: value for name, value in result.items() if name not in _INTERNAL}
