# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_startup: what the journal says about a start-up (private to the collection).

Entries of one invocation in, the start-up record out: memory per rank and over all ranks, phases, pool, headroom.
All figures in GiB (SGLang prints "GB" and means GiB). Figures of a draft model are kept apart from those of the model.
The forms of line are in _startup_lines, what is kept of each rank in _startup_rank.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import SERVICE, split_head
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup_lines import (
    ECHO_PREFIXES,
    LINE_FORMS,
    LINE_LENGTH,
    LOGGER_HEAD,
    ORDER,
    PHASES,
    SLOW,
    read_server_args,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup_rank import Rank, plain_dtype


@dataclasses.dataclass(frozen=True)
class Startup:
    """The record of one start-up. Of memory the tightest rank counts: least of what is free, most of what is used."""

    state: str = "loading"
    phase: str = "process"
    pool_tokens: int | None = None
    total_pool_tokens: int | None = None
    free_before_load_gib: float | None = None
    free_after_load_gib: float | None = None
    weights_gib: float | None = None
    kv_gib: float | None = None
    pool_end_free_gib: float | None = None
    headroom_gib: float | None = None
    tightest_rank: str | None = None
    graph_gib: float | None = None
    draft_weights_gib: float | None = None
    draft_kv_gib: float | None = None
    state_gib: float | None = None
    sizing_free_gib: float | None = None
    swa_tokens: int | None = None
    va_upper_bound_tokens: int | None = None
    ranks: tuple = ()
    phases: tuple = ()
    first_at: float | None = None
    load_seconds: float | None = None
    ready_at: float | None = None
    context_tokens: int | None = None
    chunked_prefill_size: int | None = None
    max_running_requests: int | None = None
    kv_dtype: str | None = None
    mem_fraction_static: float | None = None
    model_class: str | None = None
    progress: dict | None = None
    waiting_for: str | None = None
    suppressed_lines: int = 0
    evidence: str | None = None
    engine_version: str | None = None

    def as_dict(self):
        """Return plain JSON types."""
        data = dataclasses.asdict(self)
        data["ranks"], data["phases"] = list(data["ranks"]), list(data["phases"])
        return data


class StartupReader:
    """Reads entries one by one; ``result()`` gives the record so far. Memory does not grow with the lines."""

    def __init__(self):
        self._ranks = {}
        self._phase_times = {}
        self._phase = "process"
        self._first = None
        self._ready = None
        self._facts = {}
        self._progress = None
        self._slow = None
        self._suppressed = 0
        self._arguments = {}
        self._unnamed = {}
        self._bound = True
        self.last_batch = None

    # -- state that the failure catalogue asks for while it reads along

    @property
    def ready(self):
        """True once the ready line was read."""
        return self._ready is not None

    @property
    def phase(self):
        """The phase that the start-up has reached."""
        return self._phase

    def phase_of(self, rank):
        """Return the phase that *rank* has reached; that of the start-up when the rank never spoke."""
        if self._phase in ("warmup", "ready"):
            return self._phase
        known = self._ranks.get(rank or self._only_rank())
        return known.record.phase if known and known.record.phase != "process" else self._phase

    def _only_rank(self):
        return next(iter(self._ranks)) if len(self._ranks) == 1 else "TP0"

    # -- reading

    def feed(self, entry):
        """Read one entry; returns (rank, text): the line without its head."""
        if self._first is None:
            self._first = entry
            self._phase_times["process"] = entry
        _stamp, rank, text = split_head(entry.message)
        if _stamp is None and rank is None:
            head = LOGGER_HEAD.match(text)
            text = text[head.end() :] if head else text
        if entry.source == SERVICE:
            self._read(entry, rank, text)
        elif text.startswith("Suppressed "):
            match = re.match(r"Suppressed (\d{1,15}) messages", text)
            self._suppressed += int(match.group(1)) if match else 0
        return rank, text

    def _read(self, entry, rank, text):
        if text.startswith(ECHO_PREFIXES):
            if text.startswith(("Prefill batch", "Decode batch")):
                self.last_batch = "prefill" if text[0] == "P" else "decode"
            elif "Uvicorn running on " in text:
                self._enter("warmup", entry)
            return
        if self._ready is not None:
            return
        if text.startswith("server_args="):
            self._arguments = read_server_args(text)
            return
        text = text[:LINE_LENGTH]
        for form in LINE_FORMS:
            if form.needle in text:
                match = form.pattern.search(text)
                if match:
                    self._apply(form, match, entry, rank, text)
        for words, sentence in SLOW:
            if words in text:
                self._slow = (self._phase, sentence)

    def _apply(self, form, match, entry, rank, text):
        if form.phase == "ready" and not self._bound:
            return
        if form.per_rank:
            speaker = self._rank(rank, entry)
            getattr(speaker, "on_" + form.name)(match, text)
            if form.phase:
                speaker.enter(form.phase)
        else:
            getattr(self, "_on_" + form.name)(match, text)
        if form.phase:
            self._enter(form.phase, entry)
        if form.phase == "ready":
            self._ready = entry

    def _rank(self, name, entry):
        """Return the Rank that printed a line; without a printed rank, every process is one."""
        named = name is not None or entry.pid is not None
        if name is None and entry.pid is not None:
            name = self._unnamed.get(entry.pid)
            if name is None:
                name = self._unnamed[entry.pid] = "pid {0}".format(entry.pid) if self._unnamed else self._only_rank()
        name = name or self._only_rank()
        if name not in self._ranks:
            self._ranks[name] = Rank(name, self._facts, named)
        return self._ranks[name]

    def _enter(self, phase, entry):
        if ORDER[phase] > ORDER[self._phase]:
            self._phase = phase
            self._phase_times[phase] = entry

    # -- one method per line form of the whole start-up

    def _on_kv_dtype(self, match, _text):
        self._facts.setdefault("kv_dtype", plain_dtype(match.group(1).rstrip(".,")))

    def _on_current_value(self, match, _text):
        self._facts.setdefault("mem_fraction_static", float(match.group(1)))

    _on_minimum_viable = _on_current_value

    def _on_listening(self, _match, _text):
        pass

    _on_ready = _on_node_ready = _on_listening

    def _on_not_bound(self, _match, _text):
        self._bound = False

    def _on_bar(self, match, _text):
        self._progress = {
            "what": match.group("what"),
            "done": int(match.group("done")),
            "total": int(match.group("total")),
            "percent": int(match.group("percent")),
        }

    def _on_capture_bar(self, _match, text):
        percent = re.search(r"(\d{1,3})%\|", text)
        steps = re.search(r"\| (\d{1,9})/(\d{1,9}) \[", text)
        self._progress = {
            "what": "Capturing graphs",
            "done": int(steps.group(1)) if steps else None,
            "total": int(steps.group(2)) if steps else None,
            "percent": int(percent.group(1)) if percent else None,
        }

    def _on_restart_path(self, match, _text):
        self._facts.setdefault("engine_version", match.group(1))

    # -- the record

    def result(self):
        """Return the Startup that the entries read so far give."""
        complete = self.ready or any(rank.record.pool_tokens is not None for rank in self._ranks.values())
        records = [rank.finish(complete) for rank in self._ranks.values()]
        headrooms = [(record.headroom_gib, record.rank) for record in records if record.headroom_gib is not None]
        pool = _least([record.pool_tokens for record in records])
        if pool is None:
            pool = _least([record.kv_tokens for record in records])
        total = _total_pool(records)
        arguments = self._arguments
        facts = self._facts
        return Startup(
            state="ready" if self._ready is not None else "loading",
            phase=self._phase,
            pool_tokens=pool,
            total_pool_tokens=total,
            free_before_load_gib=_least([record.free_before_load_gib for record in records]),
            free_after_load_gib=_least([record.free_after_load_gib for record in records]),
            weights_gib=_most([record.weights_gib for record in records]),
            kv_gib=_most([record.kv_gib for record in records]),
            pool_end_free_gib=_least([record.pool_end_free_gib for record in records]),
            headroom_gib=min(headrooms)[0] if headrooms else None,
            tightest_rank=min(headrooms)[1] if headrooms else None,
            graph_gib=_most([record.graph_gib for record in records]),
            draft_weights_gib=_most([record.draft_weights_gib for record in records]),
            draft_kv_gib=_most([record.draft_kv_gib for record in records]),
            state_gib=_most([record.state_gib for record in records]),
            sizing_free_gib=facts.get("sizing_free_gib"),
            swa_tokens=facts.get("swa_tokens"),
            va_upper_bound_tokens=facts.get("va_upper_bound_tokens"),
            ranks=tuple(record.as_dict() for record in records),
            phases=self._timeline(),
            first_at=self._first.realtime_seconds if self._first else None,
            load_seconds=_between(self._first, self._ready),
            ready_at=self._ready.realtime_seconds if self._ready else None,
            context_tokens=facts.get("context_tokens", arguments.get("context_length")),
            chunked_prefill_size=facts.get("chunked_prefill_size", arguments.get("chunked_prefill_size")),
            max_running_requests=facts.get("max_running_requests", arguments.get("max_running_requests")),
            kv_dtype=facts.get("kv_dtype"),
            mem_fraction_static=arguments.get("mem_fraction_static", facts.get("mem_fraction_static")),
            model_class=facts.get("model_class"),
            progress=self._progress if self._ready is None else None,
            waiting_for=self._slow[1] if self._slow and self._slow[0] == self._phase and self._ready is None else None,
            suppressed_lines=self._suppressed,
            evidence="journal" if pool is not None else None,
            engine_version=facts.get("engine_version"),
        )

    def _timeline(self):
        names = [name for name in PHASES if name in self._phase_times]
        rows = []
        for name, following in zip(names, names[1:] + [None]):
            begin = self._phase_times[name]
            rows.append(
                {
                    "name": name,
                    "began_at": begin.realtime_seconds,
                    "seconds": _between(begin, self._phase_times[following]) if following else None,
                }
            )
        return tuple(rows)


def _total_pool(records):
    """Return the tokens of the pools of all DP ranks together; the ranks of one DP rank hold the same tokens."""
    pools = {}
    for record in records:
        tokens = record.pool_tokens if record.pool_tokens is not None else record.kv_tokens
        if tokens is not None:
            pools.setdefault(record.rank.partition(" ")[0] if record.rank.startswith("DP") else "", []).append(tokens)
    return sum(min(tokens) for tokens in pools.values()) if pools else None


def _least(values):
    values = [value for value in values if value is not None]
    return min(values) if values else None


def _most(values):
    values = [value for value in values if value is not None]
    return max(values) if values else None


def _between(first, last):
    """Seconds between two entries: by the monotonic clock, which no clock step disturbs, else by the other."""
    if first is None or last is None:
        return None
    for name in ("monotonic_seconds", "realtime_seconds"):
        begin, end = getattr(first, name), getattr(last, name)
        if begin is not None and end is not None and end >= begin:
            return round(end - begin, 3)
    return None


def read_startup(entries):
    """Read the entries of one invocation into a Startup. Never raises for what a log may hold."""
    reader = StartupReader()
    for entry in entries:
        reader.feed(entry)
    return reader.result()
