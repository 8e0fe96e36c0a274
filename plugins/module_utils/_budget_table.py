# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the plan as a small table for people: short sources, lines that fit a terminal. Private.

The whole of each source is in the rows of the plan.
"""

from __future__ import annotations

import re
import textwrap

from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_explain import (
    fraction_text,
    interval,
    lever_text,
    missing_text,
    number,
)

COLUMNS = 116
NAME, VALUE = 26, 14
INDENT = NAME + 1 + VALUE + 2


def short(note, columns=COLUMNS - INDENT):
    """Return as many clauses of a source as fit, at least the first, which is cut at a word where it does not fit."""
    # A parenthesis behind a multiplication is a factor, and no remark.
    clauses = re.split(r"(?=; |, |: )|(?<! x)(?= \()", note)
    text = clauses[0]
    for one in clauses[1:]:
        closed = (text + one).count("(") == (text + one).count(")")
        if len(text + one) <= columns and closed:
            text += one
        elif closed:
            break
        else:
            return text if len(text) <= columns else textwrap.shorten(text, columns, placeholder=" ...")
    return text if len(text) <= columns else textwrap.shorten(text, columns, placeholder=" ...")


def _line(name, value, note=""):
    return f"{name:<{NAME}} {value:>{VALUE}}  {note}".rstrip()


def _sentence(name, text):
    """Return a sentence as lines beneath each other."""
    first, *others = textwrap.wrap(text, COLUMNS - INDENT, break_long_words=False, break_on_hyphens=False) or [""]
    return [_line(name, "", first)] + [" " * INDENT + one for one in others]


def _row(name, row):
    source = row["source"] + ": "
    return _line(name, _gib(row["gib"]), source + short(row["note"], COLUMNS - INDENT - len(source)))


def _gib(value):
    return "-" if value is None else f"{value:.2f} GiB"


def table(inp, result):
    """Return the plan as aligned lines for people."""
    lines = [_line("target", "-" if inp.target_tokens is None else number(inp.target_tokens), "tokens")]
    for row in result.rows:
        if row["part"] in ("before", "static"):
            lines.append(_row(row["name"], row))
    lines.append(_line("reserve needed", _gib(result.reserve_needed_gib)))
    for row in result.rows:
        if row["part"] in ("ready", "load", "floor"):
            lines.append(_row("  " + row["name"], row))
    lines.append(
        _line("fraction", "-" if result.fraction is None else fraction_text(result.fraction), interval(result))
    )
    if result.predicted_tokens is not None:
        band = f"{number(result.predicted_tokens_low)} to {number(result.predicted_tokens_high)}, before the cap"
        lines.append(_line("predicted tokens", number(result.predicted_tokens), band))
        cap = "no cap" if result.cap_tokens is None else f"capped at {number(result.cap_tokens)}"
        lines.append(_line("pool", number(result.pool_tokens), "tokens, " + cap))
        lines.append(
            _line(
                "headroom at ready",
                _gib(result.predicted_headroom_gib),
                "floor " + _gib(result.decided["min_headroom_gib"]),
            )
        )
        lines.append(
            _line(
                "least free under load",
                _gib(result.predicted_least_free_gib),
                "floor " + _gib(result.decided["min_least_free_gib"]),
            )
        )
    feasible = "a start tells" if result.is_open else {None: "not known", True: "yes", False: "no"}[result.feasible]
    lines.append(_line("feasible", feasible))
    said = [("refused", result.refusal)] if result.refusal else []
    if result.feasible is False and not result.is_open:
        said += [("  lever", lever_text(one)) for one in result.levers]
    said += [("note", one) for one in result.notes] + [("upgrade", one) for one in result.upgrade]
    if result.missing:
        said.append(("missing", missing_text(result.missing)))
    return lines + [line for name, text in said for line in _sentence(name, text)]
