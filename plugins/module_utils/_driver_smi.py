# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. What nvidia-smi says to the questions of a proof, bounded in time. Changes nothing.

How it fails is read as gpu_info reads it: by its words, by its status, and by what PCI shows.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver, _gpu_host
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu import lost_beside
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import (
    WARNS,
    GpuError,
    failure_row,
    is_row,
)

SMI_SECONDS = 60
_CSV = "--format=csv,noheader"
VERSIONS = ("--query-gpu=driver_version", _CSV)
MIG = ("--query-gpu=index,mig.mode.current,mig.mode.pending", _CSV)


def _is_version(line):
    return _driver.upstream(line.strip()) is not None


def answer(path, words, is_answer):
    """Return (stdout, why it is no answer in one sentence or None).

    ``is_answer``: takes a line, returns whether it is of a board. A warning beside them (status 14) is no failure;
    words of one are, whatever the status.
    """
    try:
        status, out, err = _gpu_host.Tool(path, SMI_SECONDS).run(list(words))
    except GpuError as error:
        return "", str(error)
    rows = any(is_answer(line) for line in out.splitlines())
    wrong = bool(lost_beside(out, err)) or (not rows and failure_row(out + "\n" + err) is not None)
    if (status == 0 or (status == WARNS and rows)) and not wrong:
        return out, None
    return out, str(_gpu_host.failure_in(status, out, err)[1])


def ask(path, fabric):
    """Return boards (their driver's version, one for each), text (of ``-q``, with ``fabric`` only) and sentence.

    sentence: why nvidia-smi did not answer, None when it did.
    """
    out, sentence = answer(path, VERSIONS, _is_version)
    boards = [line.strip() for line in out.splitlines() if _is_version(line)]
    text = ""
    if fabric and sentence is None:
        text, sentence = answer(path, ["-q"], bool)
    return {"boards": boards, "text": text, "sentence": sentence}


def mig_of(path):
    """Return the rows ``index, current mode, pending mode`` of the boards. Raises DriverError."""
    out, sentence = answer(path, MIG, is_row)
    if sentence:
        raise _driver.DriverError(sentence)
    return "".join(line + "\n" for line in out.splitlines() if is_row(line))
