# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of model_info: hosts that ask a hub from the controller share the answer."""

from __future__ import annotations

from ansible import constants
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Gives the module a folder for answers that all hosts of this run see, and that is removed behind it."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(None, task_vars)
        del tmp
        arguments = dict(self._task.args)
        # Another machine or another user cannot read the controller's own folder.
        here = self._connection.transport == "local" and not self._play_context.become
        if here and arguments.get("repo"):
            arguments.setdefault("cache_dir", constants.DEFAULT_LOCAL_TMP)
        try:
            result.update(
                self._execute_module(
                    module_name="gpufleet.sglang.model_info",
                    module_args=arguments,
                    task_vars=task_vars,
                    wrap_async=self._task.async_val and not self._connection.has_native_async,
                )
            )
        finally:
            if not self._task.async_val:
                self._remove_tmp_path(self._connection._shell.tmpdir)
        return result
