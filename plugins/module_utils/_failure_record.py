# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_record: how a death is told (private to the collection).

The record of a named death, and the words and figures that it takes from the line of its cause.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text

EVIDENCE_LENGTH = 400

# Every class of a death. The last two are none of an engine: systemd did not start the unit, or did not wait longer.
KINDS = (
    "oom_weights",
    "oom_graph_capture",
    "oom_prefill",
    "oom_decode",
    "kv_pool_too_small",
    "host_oom_kill",
    "comm_init",
    "comm_timeout",
    "watchdog_hang",
    "model_arch_unsupported",
    "gpu_arch_unsupported",
    "quant_mismatch",
    "toolchain_missing",
    "port_in_use",
    "tokenizer",
    "hf_auth",
    "hf_not_found",
    "disk_full",
    "cuda_illegal_access",
    "gpu_unbalanced",
    "numa_bind",
    "bad_args",
    "gpu_lost",
    "no_gpu",
    "scheduler_died",
    "unknown",
    "unit_failed",
    "timeout",
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A named death. ``at``: epoch seconds of the evidence; ``figures``: its numbers, units in their names.

    ``lines``: the last lines before it, of a death that no row names.
    """

    kind: str
    phase: str | None = None
    fatal: bool = True
    direction: str | None = "keep"
    evidence: str = ""
    advice: str = ""
    figures: dict = dataclasses.field(default_factory=dict)
    transient: bool = False
    at: float | None = None
    consequence_at: float | None = None
    fault: str = "configuration"
    row: str | None = None
    ranks: tuple = ()
    lines: tuple = ()

    def as_dict(self):
        """Return plain JSON types."""
        data = dataclasses.asdict(self)
        data["ranks"], data["lines"] = list(self.ranks), list(self.lines)
        return data


# Alternatives of one pattern need names of their own for the same thing.
_SAME_FIGURE = {
    "listen_port": "port",
    "bind_port": "port",
    "class_name": "architecture",
    "wanted_tool": "tool",
    "missing_tool": "tool",
}


def figures_of(match):
    """Return what the named groups of a row's pattern found; numbers as numbers."""
    figures = {}
    for name, value in match.groupdict().items():
        if value is None or name in ("device", "wanted", "what"):
            continue
        name = _SAME_FIGURE.get(name, name)
        if re.fullmatch(r"-?\d{1,15}", value):
            figures[name] = int(value)
        elif re.fullmatch(r"-?\d{0,10}\.\d{1,10}", value):
            figures[name] = float(value)
        else:
            figures[name] = value.strip(" '\"`")[:200]
    return figures


class _Defaults(dict):
    """Names that an advice uses and a log did not give."""

    WORDS = {
        "above": "",
        "repo": "named in the log",
        "option": "the argument",
        "port": "in question",
        "path": "the place that the log names",
        "needed_mb": "more",
        "free_mb": "fewer",
        "module": "in question",
        "architecture": "this architecture",
        "format": "in its config.json",
        "step": "in question",
    }

    def __missing__(self, key):
        return self.WORDS.get(key, "it")


def advice_with(text, figures):
    """Return an advice with its names in braces filled in."""
    words = _Defaults(figures)
    if "above" in figures:
        words["above"] = " above {0}".format(figures["above"])
    return text.format_map(words)


def evidence_of(hit, secrets):
    """Return the line of a hit: stripped, shortened around what matched, masked."""
    text = hit.text
    match = getattr(hit, "match", None)
    if match is not None and hit.row.name == "architecture":
        text = text[: match.end()]
    if len(text) > EVIDENCE_LENGTH:
        begin = match.start() if match is not None and match.start() > EVIDENCE_LENGTH // 2 else 0
        text = text[begin : begin + EVIDENCE_LENGTH] + " ..."
    return mask_text(text.strip(), secrets)
