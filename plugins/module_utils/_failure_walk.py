# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_walk: reading a log for what went wrong (private to the collection).

Walks the entries of one invocation once: every line that matches a row of _failure_catalogue, every exception, and the
state that the start-up had reached at each of them. _failure_case chooses among them.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import (
    HARMLESS,
    HOST,
    NOTICE,
    ROWS,
    WARNED,
    WRAPPER,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import SERVICE
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup import StartupReader
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup_lines import ECHO_PREFIXES, LINE_LENGTH


@dataclasses.dataclass
class Hit:
    """One line that matched a row, and what was known when it was read."""

    row: object
    match: object
    index: int
    entry: object
    rank: str | None
    text: str
    phase: str
    after_ready: bool
    block: object
    batch: str | None
    warned: bool = False


class Block:
    """One traceback of one process, with its chain: the first exception of a chain is the root."""

    def __init__(self, fatal):
        self.fatal = fatal
        self.rank = None
        self.frames = []
        self.source = ""
        self.exception = None
        self.chained = False
        self.wrapper_phase = None


@dataclasses.dataclass
class Raised:
    """The line that names an exception no row knows."""

    index: int
    entry: object
    rank: str | None
    text: str
    phase: str
    block: object
    after_ready: bool
    batch: str | None


_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?::|\s*$)")
_LOOSE_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit)(?::|\s*$)")
_NOT_AN_EXCEPTION = ("INFO", "ERROR", "WARNING", "DEBUG", "CRITICAL", "Possible solutions", "Warning")
_FRAME = re.compile(r'^\s+File "[^"]*", line \d+, in ')
_SOURCE_LINE = re.compile(r"\s+(?:raise|return|if|with|from|import|assert|self\.|logger\.)\b")
_TRACEBACK = "Traceback (most recent call last)"
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_FRAMES_KEPT = 400
# Lines that echo what users or operators wrote.
_NEVER_A_CAUSE = (*ECHO_PREFIXES, "server_args=")

# What only a server that works prints.
_PASSES = ("Decode batch", "Prefill batch")
_ANSWERED = re.compile(r"^INFO: {1,10}\S{1,200} - \"POST /[^\"]{0,300}\" 200\b")

_BY_NEEDLE = {}
for _entry in ROWS:
    for _needle in _entry.needles:
        _BY_NEEDLE.setdefault(_needle, []).append(_entry)
_BY_NEEDLE = tuple((needle, tuple(rows)) for needle, rows in _BY_NEEDLE.items())


def _shows_life(text):
    """Tell whether a line shows that a ready server works: a pass of the model, or a request that was answered."""
    return text.startswith(_PASSES) or _ANSWERED.search(text, 0, LINE_LENGTH) is not None


def _names_exception(text):
    return bool(_EXCEPTION.match(text)) and not text.startswith(_NOT_AN_EXCEPTION)


class Walk:
    """Walks the entries once and collects hits, exceptions and the state of the start-up at each of them."""

    def __init__(self):
        self.startup = StartupReader()
        self.hits = []
        self.exceptions = []
        self.ready_index = None
        self.stopping_index = None
        self.sigterm_index = None
        self.alive_index = None
        self.pids = set()
        self.last_service = None
        self._open = {}

    def feed(self, index, entry):
        """Read one entry."""
        rank, text = self.startup.feed(entry)
        if self.startup.ready and self.ready_index is None:
            self.ready_index = index
        if entry.source == SERVICE:
            self.pids.add(entry.pid)
            self.last_service = (index, entry, text)
            if self.ready_index is not None and _shows_life(text):
                self.alive_index = index
            elif text.startswith("SIGTERM received"):
                self.sigterm_index = index
        elif entry.unit_message and text.startswith("Stopping "):
            self.stopping_index = index
        if text.startswith(_NEVER_A_CAUSE):
            self._open.pop(entry.pid, None)
            return
        headed = len(text) != len(entry.message)
        block = self._follow(index, entry, rank, text, headed)
        if block is not None and text.rstrip(": ") == "AssertionError" and block.source.startswith("assert "):
            # A bare assertion says what failed in the line of the program only.
            text = "AssertionError: " + block.source[:LINE_LENGTH]
            if self.exceptions and self.exceptions[-1].index == index:
                self.exceptions[-1].text = text
        self._match(index, entry, rank or (block.rank if block else None), text, block)

    def _follow(self, index, entry, rank, text, headed):
        """Follow tracebacks: per process where the journal tells it, in the order of lines where it does not."""
        if entry.source != SERVICE:
            return None
        block = self._open.get(entry.pid)
        if _TRACEBACK in text:
            if block is None or headed or (block.exception and not block.chained):
                block = self._open[entry.pid] = Block("hit an exception" in text or "Initialization failed" in text)
            block.rank = rank or block.rank
            block.chained = False
            return block
        if block is not None and headed:
            # A new log record: the traceback is over.
            del self._open[entry.pid]
            block = None
        if block is None:
            if _LOOSE_EXCEPTION.match(text):
                self._except(index, entry, rank, text, None)
            return None
        if _FRAME.match(text):
            block.source = ""
            if len(block.frames) < _FRAMES_KEPT:
                block.frames.append(text)
        elif text[:1] == " " and block.exception is None:
            # The line of the program; marks below it are no words.
            block.source = text.strip() if text.strip(" ^~") else block.source
        elif text.startswith(_CHAIN):
            block.chained = True
        elif block.exception is None and _names_exception(text):
            block.exception = text
            self._except(index, entry, block.rank, text, block)
        return block

    def _except(self, index, entry, rank, text, block):
        self.exceptions.append(
            Raised(
                index,
                entry,
                rank,
                text,
                self.startup.phase_of(rank),
                block,
                self.startup.ready,
                self.startup.last_batch,
            )
        )

    def _match(self, index, entry, rank, text, block):
        if text[:1] in (" ", "\t") and (block is not None or _SOURCE_LINE.match(text)):
            # The source code that a traceback quotes holds the words of the error, but not its values.
            return
        # What names a cause stands at the beginning of a line.
        text = text[:LINE_LENGTH]
        lowered = text.lower()
        harmless, tried = None, set()
        for needle, rows in _BY_NEEDLE:
            if needle not in lowered:
                continue
            if harmless is None:
                # An exception that was raised is no warning, whatever its text says.
                raised = block is not None and block.exception is not None and block.exception == text
                harmless = not raised and any(words in lowered for words in HARMLESS)
            for row in rows:
                if row.name in tried or (harmless and row.role not in (HOST, NOTICE) and row.kind != "disk_full"):
                    continue
                tried.add(row.name)
                match = row.pattern.search(text)
                if match is None:
                    continue
                if row.role == WRAPPER and block is not None and block.wrapper_phase is None:
                    block.wrapper_phase = row.phase
                self.hits.append(
                    Hit(
                        row,
                        match,
                        index,
                        entry,
                        rank,
                        text,
                        self.startup.phase_of(rank),
                        self.startup.ready,
                        block,
                        self.startup.last_batch,
                        WARNED.search(text) is not None,
                    )
                )


def walk(entries):
    """Return the Walk over all entries of one invocation."""
    walked = Walk()
    for index, entry in enumerate(entries):
        walked.feed(index, entry)
    return walked
