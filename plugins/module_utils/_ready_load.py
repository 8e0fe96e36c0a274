# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: waiting for a start-up, its patience. The deadline, the silence and the progress of one start.

Private to the gpufleet.sglang collection; may change at any time.

Joins the rooms of patience (pure) with ``_load_progress`` (which looks) for ``_ready_look`` and ``_ready_run``.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _load_progress,
    _patience,
    _patience_deadline,
    _patience_left,
    _witness_tool,
)

MODEL_ARGUMENTS = ("--model-path", "--model")
NODES_ARGUMENTS = ("--nnodes",)

RAISE_PATIENCE = "When it is only slow, raise patience_factor (of the role: sglang_server_patience_factor)."

NO_NVIDIA_SMI = "nvidia-smi does not answer"

# Words of the start-up record's ``waiting_for`` that mean a compiler or a tuner is at work.
_COMPILING_WORDS = ("compiling ", "tuning ")


class StartLoad:
    """Patience with one start.

    :arg settings: ``_ready_run.Settings``; ``load`` is :meth:`state` of the slice before.
    :arg look: a ``_load_progress.LoadLook``, or a double of it. :arg disk_below: replaced by tests.
    """

    def __init__(self, settings, clock, proc_root="/proc", look=None, disk_below=_load_progress.disk_below):
        before = settings.load or {}
        self._settings = settings
        self._clock = clock
        self._proc_root = proc_root
        self._disk_below = disk_below
        self._deadline = None
        self._weight_bytes = before.get("weight_bytes")
        self._several_nodes = bool(before.get("several_nodes"))
        self._compiling = None
        if before.get("deadline"):
            self._deadline = _patience_deadline.Deadline(**before["deadline"])
        self.known = self._deadline is not None
        self.look_at = look or _load_progress.LoadLook(
            clock,
            proc_root,
            before.get("marks"),
            _load_progress.Boards(
                _witness_tool.find_command(settings.nvidia_smi), clock, silent=bool(before.get("nvidia_smi_hangs"))
            ),
        )

    def look(self, main_pid, startup, line):
        """Look once. :arg startup: the record so far. :arg line: the last line of the service that is news."""
        phase = startup.get("phase") or "process"
        words = startup.get("waiting_for") or ""
        self._compiling = words if words.startswith(_COMPILING_WORDS) else None
        self.look_at.look(main_pid, phase, line)
        if main_pid and not self.known:
            self._learn(main_pid)

    def _learn(self, main_pid):
        """What the process was started with tells its model; until there is a process, its size is not known."""
        nodes = _witness_tool.argument_of(main_pid, NODES_ARGUMENTS, self._proc_root) or "1"
        self._several_nodes = nodes.isdigit() and int(nodes) > 1
        path = self._settings.model_path or _witness_tool.argument_of(main_pid, MODEL_ARGUMENTS, self._proc_root)
        self._weight_bytes = _load_progress.weight_files_bytes(path) if path else None
        self._deadline = self._deadline_now(self._disk_below(path) if self._weight_bytes else None)
        self.known = True

    def _deadline_now(self, disk=None):
        settings = self._settings
        return _patience_deadline.deadline_of(
            settings.timeout_seconds, self._weight_bytes, disk, settings.last_load_seconds
        )

    def deadline(self):
        """The deadline of the whole wait: ``_patience_deadline.Deadline``."""
        return self._deadline or self._deadline_now()

    def silence(self, phase):
        """``_patience.Silence`` of now. :arg phase: by the journal, None where there is no journal."""
        return _patience.silence(
            self.look_at.marks,
            self.look_at.sample,
            phase,
            self._clock(),
            self._compiling,
            self._several_nodes,
            self._settings.patience_factor,
        )

    def answer_seconds(self):
        """How long the completion of a ready server is waited for; None without end."""
        return _patience.patience_of("completion").quiet_seconds * self._settings.patience_factor or None

    def progress(self, startup, elapsed_seconds, phase_seconds):
        """How far the start is: ``_patience_left.progress``."""
        phase = startup.get("phase") or "process"
        done = _patience_left.weights_done(
            self.look_at.grown_gib(),
            self._settings.expected_weight_gib,
            self.look_at.boards,
            self.look_at.read_bytes(),
            self._weight_bytes,
            startup.get("progress"),
        )
        found = _patience_left.progress(
            phase, elapsed_seconds, done, phase_seconds, self._settings.last_load_seconds, self.silence(phase)
        )
        if self.nvidia_smi_hangs and phase != "ready":
            found["words"] = ", ".join([found["words"], NO_NVIDIA_SMI] if found["words"] else [NO_NVIDIA_SMI])
        return found

    @property
    def nvidia_smi_hangs(self):
        """Whether nvidia-smi did not answer in this start."""
        return self.look_at.nvidia_smi_hangs

    def state(self):
        """What the next slice has to be told."""
        return {
            "marks": self.look_at.marks.as_dict(),
            "deadline": self._deadline.as_dict() if self.known else None,
            "weight_bytes": self._weight_bytes,
            "several_nodes": self._several_nodes,
            "nvidia_smi_hangs": self.nvidia_smi_hangs,
        }


def with_what_was_seen(failure, silent):
    """A failure that silence names, with what was seen last: in its evidence and in its figures."""
    figures = dict(
        failure.get("figures") or {},
        silence_seconds=round(silent.seconds, 1),
        deadline_seconds=round(silent.limit_seconds, 1),
        last_sign=silent.last,
        last_sign_seconds=round(silent.last_seconds, 1),
        only_cpu=silent.only_cpu,
    )
    return dict(
        failure,
        evidence="{}; {}".format(failure.get("evidence"), _patience.seen_last(silent)),
        advice="{} {}".format(failure.get("advice"), RAISE_PATIENCE),
        figures=figures,
    )
