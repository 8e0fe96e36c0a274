# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of modules that work for minutes or hours: they run in the background and their notes are printed.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import os
import shlex
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.sglang.plugins.module_utils._note import read_note
from ansible_collections.gpufleet.sglang.plugins.plugin_utils._progress import QUIET_SECONDS, line

POLL_SECONDS = 2.0
# A host that cannot be reached for so long ends the wait; the work on it goes on.
LOST_SECONDS = 120.0
# A note is of interest, and the job itself has to be asked now and then: what is killed leaves its last note.
ASK_EVERY = 5
# Tells one start of a host from the next.
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Longest time of one piece of work: a model of a terabyte over a slow line.
LIMIT_SECONDS = 172800


class Printer:
    """Prints a note when its phase is new, else at most every 10 s."""

    def __init__(self, show, host: str, clock=time.monotonic) -> None:
        self.show = show
        self.host = host
        self.clock = clock
        self.begun = clock()
        self.phase = None
        self.printed = None

    def note(self, phase: str, detail: str) -> None:
        now = self.clock()
        if phase == self.phase and self.printed is not None and now - self.printed < QUIET_SECONDS:
            return
        self.phase, self.printed = phase, now
        self.show(line(self.host, phase, now - self.begun, detail))


class BackgroundAction(ActionBase):
    """Asks the module first what it would do, and only when that is something runs it in the background.

    A class below names the module and the option after which the file of notes is called.
    """

    MODULE = ""
    TARGET = ""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(None, task_vars)
        del tmp
        task_vars = task_vars or {}
        try:
            if self._task.async_val:
                result.update(self.call(task_vars, wrap_async=not self._connection.has_native_async))
            elif self._task.check_mode:
                result.update(self.call(task_vars))
            else:
                result.update(self.work(task_vars))
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        return result

    def call(self, task_vars: dict, wrap_async: bool = False, **more: object) -> dict:
        arguments = {**self._task.args, **more}
        return self._execute_module(
            module_name=self.MODULE, module_args=arguments, task_vars=task_vars, wrap_async=wrap_async
        )

    def work(self, task_vars: dict) -> dict:
        expected = self.ask(task_vars)
        if expected.get("failed") or not expected.get("changed"):
            return expected
        printer = Printer(Display().display, task_vars.get("inventory_hostname", "host"))
        for action in expected.get("actions", []):
            printer.show(line(printer.host, "to do", None, action))
        folder, name = os.path.split(str(self._task.args[self.TARGET]).rstrip("/"))
        notes = os.path.join(folder, f".{name}.progress")
        return self.follow(self.start(task_vars, notes), notes, printer, task_vars)

    def ask(self, task_vars: dict) -> dict:
        """What the module would do; also finds what is missing before anything long begins."""
        self._task.check_mode = True
        try:
            return self.call(task_vars)
        finally:
            self._task.check_mode = False

    def start(self, task_vars: dict, notes: str) -> dict:
        self._task.async_val = LIMIT_SECONDS
        try:
            return self.call(task_vars, wrap_async=True, progress_file=notes)
        finally:
            self._task.async_val = 0

    def follow(self, job: dict, notes: str, printer: Printer, task_vars: dict) -> dict:
        """Print notes until the job has ended; its result is the task's.

        A host that does not answer, or does not tell how the job is, for two minutes ends the wait.
        """
        if job.get("failed") or "ansible_job_id" not in job:
            return job
        boot, seen, polls = self.boot_id(), time.monotonic(), 0
        while True:
            time.sleep(POLL_SECONDS)
            polls += 1
            try:
                note = self.read(notes)
                is_asked = not note or polls % ASK_EVERY == 0
                state = self.status(job, "status", task_vars) if is_asked else {}
                if is_asked and not state.get("finished") and self.boot_id() != boot:
                    return {"failed": True, "msg": self.gone()}
            except AnsibleConnectionFailure:
                if time.monotonic() - seen > LOST_SECONDS:
                    raise
                continue
            if state.get("finished"):
                self.status(job, "cleanup", task_vars)
                return {key: value for key, value in state.items() if key not in _OF_THE_JOB}
            if not state.get("failed"):
                seen = time.monotonic()
            elif time.monotonic() - seen > LOST_SECONDS:
                return {"failed": True, "msg": self.untold(state)}
            if note:
                printer.note(*note)

    def gone(self) -> str:
        return f"Expected {self.MODULE} to end, found that the host has restarted meanwhile; run it again."

    def untold(self, state: dict) -> str:
        why = str(state.get("msg") or "no reason").strip().rstrip(".")
        return (
            f"Expected to be told how far {self.MODULE} is, found for {LOST_SECONDS:.0f} s only: {why}; look at the "
            "disk and the memory of the host and run it again."
        )

    def boot_id(self) -> str | None:
        """What tells this start of the host from the next one."""
        answer = self._low_level_execute_command("cat " + BOOT_ID)
        return str(answer.get("stdout", "")).strip() if answer.get("rc") == 0 else None

    def read(self, notes: str) -> tuple[str, str] | None:
        answer = self._low_level_execute_command("cat " + shlex.quote(notes))
        return read_note(answer.get("stdout")) if answer.get("rc") == 0 else None

    def status(self, job: dict, mode: str, task_vars: dict) -> dict:
        folder = self._remote_expand_user(self.get_shell_option("async_dir", default="~/.ansible_async"))
        arguments = {"jid": job["ansible_job_id"], "mode": mode, "_async_dir": folder}
        return self._execute_module(
            module_name="ansible.legacy.async_status", module_args=arguments, task_vars=task_vars
        )


_OF_THE_JOB = ("ansible_job_id", "started", "finished", "results_file", "ansible_async_watchdog_pid", "cmd")
