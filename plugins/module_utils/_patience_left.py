# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: how long a start-up may be silent, the words. How far it is, how much is left, and since when nothing moved.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

GIB = 1024**3

# Below this part of the weights the rest cannot be told from the rate.
LEAST_PART = 0.05
# Silence is worth a word from here on.
WORTH_SECONDS = 30.0


def weights_done(device_gib=None, expected_gib=None, boards=1, read_bytes=None, weight_bytes=None, steps=None):
    """How much of the weights is loaded: ``(part from 0 to 1, words)``, or ``(None, "")``.

    Memory of the boards first: it is what is really there. Then the bar, where the version lets it be seen. Then the
    bytes that the processes read from the disk: none when the files were in memory already.

    :arg device_gib: what the boards hold more than when the load began, all together. :arg expected_gib: of one board.
    :arg steps: ``progress`` of the start-up record.
    """
    if device_gib is not None and expected_gib and device_gib > 0:
        whole = expected_gib * max(boards, 1)
        return min(device_gib / whole, 1.0), f"{min(device_gib, whole):.1f} of {whole:.1f} GiB on the boards"
    if steps and steps.get("total") and steps.get("done") is not None:
        return min(steps["done"] / steps["total"], 1.0), "{done} of {total} parts".format(**steps)
    if read_bytes and weight_bytes:
        done = min(read_bytes, weight_bytes)
        return done / weight_bytes, f"{done / GIB:.1f} of {weight_bytes / GIB:.1f} GiB read"
    return None, ""


def weights_left_seconds(part, phase_seconds):
    """Seconds until the weights are loaded, by the rate so far; None when it is too early to tell."""
    if part is None or part < LEAST_PART or not phase_seconds or phase_seconds <= 0:
        return None
    return phase_seconds * (1.0 - part) / part


def progress(phase, elapsed_seconds, done=(None, ""), phase_seconds=None, last_load_seconds=None, silent=None):
    """How far a start-up is: ``{"part", "seconds_left", "weights_left_seconds", "words"}``.

    :arg done: of :func:`weights_done`. :arg silent: ``_patience.Silence``.
    """
    part, words = done if phase == "weights" else (None, "")
    weights_left = weights_left_seconds(part, phase_seconds) if phase == "weights" else None
    said = [words] if words else []
    if weights_left is not None:
        said.append(f"about {weights_left:.0f} s left for the weights")
    left = None
    if last_load_seconds and phase != "ready":
        left = max(last_load_seconds - elapsed_seconds, weights_left or 0.0)
        if left > 0:
            said.append(f"about {left:.0f} s left as the last start took {last_load_seconds:.0f} s")
        else:
            said.append(f"longer than the last start ({last_load_seconds:.0f} s)")
            left = None
    if silent is not None and silent.compiling:
        said.append(silent.compiling)
    if silent is not None and silent.seconds >= WORTH_SECONDS and phase != "ready":
        said.append(f"no sign of life for {silent.seconds:.0f} s, patience {silent.limit_seconds:.0f} s")
    return {
        "part": None if part is None else round(part, 3),
        "seconds_left": None if left is None else round(left, 1),
        "weights_left_seconds": None if weights_left is None else round(weights_left, 1),
        "words": ", ".join(said),
    }
