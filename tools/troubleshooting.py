# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the tables of docs/troubleshooting.md from the catalogue of failures, so that the two cannot differ.

    .venv/bin/python tools/troubleshooting.py            write the page
    .venv/bin/python tools/troubleshooting.py --check    write nothing; exit 1 when the page is not fresh

The page gets the tables between its lines ``<!-- begin failures -->`` and ``<!-- end failures -->``.
"""

from __future__ import annotations

import re
import re._parser as regex_parser
import sys

from generated_page import Page, catalogues, cell

GAP = "…"
MOST_TEXTS = 6

# What each kind means. Those of device memory are told apart by the phase, not by the words.
KINDS = {
    "by_phase": "`oom_weights`, `oom_graph_capture`, `oom_prefill`, `oom_decode`: the board was full",
    "kv_pool_too_small": "`kv_pool_too_small`: no room for the token pool, or a pool that is too small",
    "oom_prefill": "`oom_prefill`: the token pool was full in a prefill",
    "oom_decode": "`oom_decode`: the token pool was full in a decode",
    "gpu_unbalanced": "`gpu_unbalanced`: the boards are not alike",
    "host_oom_kill": "`host_oom_kill`: the host's memory, not the board's",
    "gpu_lost": "`gpu_lost`: a board is broken or gone",
    "no_gpu": "`no_gpu`: no board, or no driver that fits",
    "cuda_illegal_access": "`cuda_illegal_access`: a kernel broke",
    "gpu_arch_unsupported": "`gpu_arch_unsupported`: the engine has no kernels for this board",
    "model_arch_unsupported": "`model_arch_unsupported`: the engine does not know the model",
    "quant_mismatch": "`quant_mismatch`: weights, quantisation and engine do not belong together",
    "tokenizer": "`tokenizer`: the tokenizer cannot be loaded",
    "hf_auth": "`hf_auth`: the hub refuses the token",
    "hf_not_found": "`hf_not_found`: the model, or a part of it, is missing",
    "disk_full": "`disk_full`: no room for files",
    "bad_args": "`bad_args`: the engine does not take an argument",
    "port_in_use": "`port_in_use`: somebody else listens",
    "toolchain_missing": "`toolchain_missing`: a compiler, a header or a package is missing",
    "numa_bind": "`numa_bind`: memory cannot be bound to a node",
    "comm_init": "`comm_init`: the ranks cannot reach each other",
    "comm_timeout": "`comm_timeout`: a rank did not take part in time",
    "watchdog_hang": "`watchdog_hang`: nothing moved for too long",
    "timeout": "`timeout`: systemd did not wait longer",
    "scheduler_died": "`scheduler_died`: a process ended, and no line says why",
    "unit_failed": "`unit_failed`: systemd did not start it",
    "unknown": "`unknown`: what is known is told, a cause is not named",
}


def texts_of(tokens, depth=0):
    """Return the wordings of a parsed pattern: literals, and a gap for what varies. Inner choices take the first."""
    texts = [""]
    for operation, value in tokens:
        name = str(operation)
        if name == "LITERAL":
            parts = [chr(value)]
        elif name in ("IN", "ANY", "NOT_LITERAL"):
            kinds = {str(kind) for kind, _content in value} if name == "IN" else {"ANY"}
            # A choice of two letters is one word in two spellings.
            parts = [chr(value[0][1])] if kinds == {"LITERAL"} else [GAP]
        elif name == "BRANCH":
            branches = value[1] if depth < 3 else value[1][:1]
            parts = [text for branch in branches for text in texts_of(branch, depth + 1)]
        elif name == "ASSERT":
            # What must follow is a wording, unless the pattern goes on to read it.
            parts = texts_of(value[1], depth) if value[0] > 0 else [""]
        elif name == "SUBPATTERN":
            parts = texts_of(value[-1], depth + (value[0] is None))
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            varies = value[1] != value[0] and not all(str(kind) == "SUBPATTERN" for kind, _content in value[2])
            if (value[0] == 0 and not varies) or (varies and value[1] == 1):
                parts = [""]
            else:
                parts = [GAP] if varies else [text * value[0] for text in texts_of(value[2], depth + 1)[:1]]
        else:
            parts = [""]
        texts = [text + part for text in texts for part in parts][:40]
    return texts


def wordings(row):
    """Return the wordings of a row as they stand in a log, at most some."""
    found = []
    for text in texts_of(regex_parser.parse(row.pattern.pattern)):
        text = re.sub(GAP + r"(?:[ ,]*" + GAP + ")+", GAP, " ".join(text.split())).strip(" " + GAP + ":;,|")
        if len(text) > 2 and text not in found:
            found.append(text)
    return found[:MOST_TEXTS]


def code(text):
    """Return a text as Markdown code, also when it holds a backtick."""
    return "`` {0} ``".format(text) if "`" in text else "`{0}`".format(text)


def rows_of(catalogue, record, rows):
    """Return the lines of a table: what the log holds, and what to do."""
    lines = ["| in the log | versions | source | what to do |", "| --- | --- | --- | --- |"]
    for row in rows:
        words = "<br>".join(code(text) for text in wordings(row))
        advice = record.advice_with(row.advice, {})
        if row.direction in ("raise", "lower") and row.kind != catalogue.BY_PHASE:
            advice += " The fraction: {0}.".format(row.direction)
        versions = row.versions or "not known"
        lines.append("| {0} | {1} | {2} | {3} |".format(cell(words), versions, cell(row.source), cell(advice)))
    return [*lines, ""]


def tables():
    """Return the lines between the markers of the page."""
    catalogue, figures, record = catalogues("_failure_catalogue", "_failure_figures", "_failure_record")
    causes = [row for row in catalogue.ROWS if row.role in catalogue.PREFERENCE]
    lines = []
    for kind, title in KINDS.items():
        rows = [row for row in causes if row.kind == kind]
        if not rows:
            continue
        lines += ["### " + title, "", *rows_of(catalogue, record, rows)]
        if kind == catalogue.BY_PHASE:
            lines += ["What the figures of such a death say:", ""]
            lines += ["| shape | fraction | what to do |", "| --- | --- | --- |"]
            words = {"board": "the board", "short": "", "foreign_gib": 0.0, "wanted_mib": 0.0, "unallocated_mib": 0.0}
            for shape, (direction, advice) in figures.SHAPES.items():
                text = re.sub(r"\{(?:foreign_gib|wanted_mib|unallocated_mib)[^}]*\}", GAP, advice).format(**words)
                lines.append("| `{0}` | {1} | {2} |".format(shape, direction, cell(text)))
            lines.append("")
    consequences = [row for row in catalogue.ROWS if row.role == catalogue.CONSEQUENCE]
    lines += ["### Consequences: somebody died, the cause stands elsewhere", ""]
    lines += ["<br>".join(code(text) for row in consequences for text in wordings(row)), ""]
    notices = [row for row in catalogue.ROWS if row.role == catalogue.NOTICE and row.advice]
    lines += ["### What ends nothing", "", *rows_of(catalogue, record, notices)]
    return lines


PAGE = Page("troubleshooting", "failures", tables)

if __name__ == "__main__":
    sys.exit(PAGE.main(sys.argv[1:]))
