# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_startup_rank: what one rank says of its memory while it starts (private to the collection).

One method for each form of line that a rank prints, and the figures that follow from several lines. All figures in GiB.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._startup_lines import GB, ORDER

_FREE = re.compile(r"avail mem=" + GB)
_FREE_AFTER_CAPTURE = re.compile(r"(?:avail mem|free memory)=" + GB)
_FREE_IN_THE_END = re.compile(r"available_[a-z]pu_mem=" + GB)
_USED = re.compile(r"mem usage=" + GB)


@dataclasses.dataclass
class RankRecord:
    """The figures of one rank, GiB and tokens. ``derived`` names those that were computed from two printed ones."""

    rank: str
    phase: str = "process"
    init_gib: float | None = None
    free_before_load_gib: float | None = None
    free_after_load_gib: float | None = None
    weights_gib: float | None = None
    draft_weights_gib: float | None = None
    kv_gib: float | None = None
    kv_tokens: int | None = None
    draft_kv_gib: float | None = None
    state_gib: float | None = None
    pool_tokens: int | None = None
    pool_end_free_gib: float | None = None
    graph_gib: float | None = None
    graph_begin_free_gib: float | None = None
    graph_end_free_gib: float | None = None
    available_gib: float | None = None
    headroom_gib: float | None = None
    derived: list = dataclasses.field(default_factory=list)

    def as_dict(self):
        """Return plain JSON types."""
        return dataclasses.asdict(self)


def _gib(text):
    return float(text) if text is not None else None


def _pairs(text):
    """Return the name=value pairs of a line such as the final one."""
    return dict(re.findall(r"(\w{1,40})=(-?[\w.]+)", text))


def _whole(text):
    return int(text) if text and re.fullmatch(r"-?\d{1,15}", text) else None


def plain_dtype(text):
    """Return the name of a data type without the module that torch prints before it."""
    return text[len("torch.") :] if text.startswith("torch.") else text


def _dtype(text):
    match = re.search(r"\bdtype: ([\w.]+)", text)
    return plain_dtype(match.group(1)) if match else None


def _figure(pattern, text):
    """Return the GiB that *pattern* finds in a line, or None."""
    match = pattern.search(text)
    return float(match.group(1)) if match else None


def _least(first, second):
    """Return the smaller of two figures, each of which may be None."""
    return min(first, second) if first is not None and second is not None else second if first is None else first


def _sum(sizes):
    """Return the sum of sizes in GiB (texts or numbers), or None when there are none."""
    return round(sum(float(size) for size in sizes), 2) if sizes else None


class Pool:
    """The KV lines of one model on one rank, until its "Memory pool end"."""

    def __init__(self):
        self.sizes = []
        self.tokens = []
        self.total_gib = None
        self.full_tokens = None
        self.virtual = False

    def gib(self):
        """Return the size of the pool in GiB, or None."""
        if self.total_gib is not None:
            return self.total_gib
        return _sum([size for size in self.sizes if size is not None])

    def count(self):
        """Return the tokens that the pool holds, or None; reserved addresses hold none yet."""
        return None if self.virtual else self.full_tokens or (max(self.tokens) if self.tokens else None)


class Rank:
    """What is known of one rank while its lines are read. There is one ``on_`` method for each line form of a rank."""

    def __init__(self, name, facts, named=True):
        """Begin a rank. facts: dictionary of the whole start-up, to which the lines of every rank add.

        named: whether its lines say which rank printed them; those of several ranks may run together otherwise.
        """
        self.record = RankRecord(rank=name)
        self._facts = facts
        self._named = named
        self.loads_begun = 0
        self.loads_ended = 0
        # Ranks that speak without names and without processes: how many began before the first load ended.
        self.speakers = 1
        self.inits_begun = 0
        self.pool_ends = 0
        self.graphs = {}
        self.pools = [Pool()]
        self.last_free_gib = None

    def enter(self, phase):
        """Note that a line of this rank began *phase*."""
        if ORDER[phase] > ORDER[self.record.phase]:
            self.record.phase = phase

    def on_init_begin(self, _match, _text):
        self.inits_begun += 1
        self._count_speakers(self.inits_begun)

    def _count_speakers(self, begun):
        if self.loads_ended == 0 and not self._named:
            self.speakers = max(self.speakers, begun)

    def on_init_end(self, match, _text):
        if self.record.init_gib is None:
            self.record.init_gib = _gib(match.group(1))

    def on_load_begin(self, match, _text):
        self.loads_begun += 1
        free = _gib(match.group(1))
        self._count_speakers(self.loads_begun)
        if self.loads_ended == 0:
            self.record.free_before_load_gib = _least(self.record.free_before_load_gib, free)
        elif (
            self.loads_ended == 1
            and self.record.free_after_load_gib is None
            and len(self.pools) == 1
            and not self.pools[0].tokens
        ):
            # A shortened log: what is free before the draft is what the model left.
            self.record.free_after_load_gib = free
            self.record.derived.append("free_after_load_gib")

    def on_load_end(self, _match, text):
        self.loads_ended += 1
        used = _figure(_USED, text)
        record = self.record
        if self.loads_ended <= self.speakers:
            record.free_after_load_gib = _least(record.free_after_load_gib, _figure(_FREE, text))
            record.weights_gib = used if record.weights_gib is None or used is None else max(used, record.weights_gib)
            model = re.search(r"\btype=(\w+)", text)
            self._facts.setdefault("model_class", model.group(1) if model else None)
        elif used is not None:
            record.draft_weights_gib = used

    def on_profile(self, match, _text):
        record = self.record
        if record.free_after_load_gib is None:
            record.free_after_load_gib = _gib(match.group(1))
        if record.free_before_load_gib is None:
            # A shortened log: what the sizing starts from is the least free before the load.
            record.free_before_load_gib = _gib(match.group(2))
            record.derived.append("free_before_load_gib")
        self._facts.setdefault("sizing_free_gib", _gib(match.group(2)))
        self._facts.setdefault("mem_fraction_static", float(match.group(3)))

    def on_full_tokens(self, match, _text):
        self.pools[-1].full_tokens = int(match.group(1))

    def on_swa(self, match, _text):
        pool = self.pools[-1]
        if match.group("kind") == "VA upper bound":
            self._facts.setdefault("va_upper_bound_tokens", int(match.group("full")))
            pool.virtual = True
            return
        pool.total_gib = _gib(match.group("gib"))
        pool.full_tokens = int(match.group("full"))
        if len(self.pools) == 1:
            self._facts.setdefault("swa_tokens", int(match.group("swa")))

    def on_swa_tokens(self, match, _text):
        if match.group("full"):
            self.pools[-1].full_tokens = int(match.group("full"))
        if len(self.pools) == 1:
            self._facts.setdefault("swa_tokens", int(match.group("swa")))

    def on_state(self, _match, text):
        sizes = re.findall(r"\bsize: (\d{1,9}(?:\.\d{1,20})?) ?GB", text)
        self.record.state_gib = _sum(sizes)

    def on_pool(self, match, text):
        tokens = re.search(r"#tokens: (\d{1,15})", text)
        tokens = int(tokens.group(1)) if tokens else None
        if match.group("kind") == "VA upper bound":
            if tokens is not None and not text.startswith("draft"):
                self._facts.setdefault("va_upper_bound_tokens", tokens)
                self.pools[-1].virtual = True
            return
        dtype = _dtype(text)
        if dtype and len(self.pools) == 1:
            self._facts.setdefault("kv_dtype", dtype)
        parts = re.findall(r"\b(?:K|V|KV) size: (\d{1,9}(?:\.\d{1,20})?) ?GB", text)
        pool = self.pools[-1]
        twice = tokens is not None and tokens in pool.tokens and pool.full_tokens is None and pool.total_gib is None
        if text.lower().startswith("draft") or (twice and len(self.pools) == 1 and self.loads_ended > self.speakers):
            pool = Pool()
            self.pools.append(pool)
        elif twice and self.speakers > 1:
            # The same pool of another rank.
            return
        pool.sizes.append(_sum(parts))
        if tokens is not None:
            pool.tokens.append(tokens)

    def on_pool_end(self, match, _text):
        # The draft's pool ends last; what is free then is what graphs and activations have.
        free = _gib(match.group(1))
        self.pool_ends += 1
        # The first of the ranks begins a new round: that of the model, then that of its draft.
        begins = self.pool_ends % self.speakers == 1 % self.speakers
        self.last_free_gib = free if begins else _least(self.record.pool_end_free_gib, free)
        self.record.pool_end_free_gib = self.last_free_gib
        if self.pool_ends % self.speakers == 0:
            self.pools.append(Pool())

    def on_post_capture(self, match, text):
        free = _figure(_FREE_AFTER_CAPTURE, text)
        if free is not None:
            self.last_free_gib = free
        if match.group("draft"):
            return
        tokens = match.group("total") or match.group("full")
        if match.group("swa") and int(match.group("swa")):
            self._facts["swa_tokens"] = int(match.group("swa"))
        allocated = re.search(r"#tokens: (\d{1,15})(?:, KV size: (\d{1,9}(?:\.\d{1,9})?) GB)?", text)
        if allocated:
            tokens = tokens or allocated.group(1)
            self.record.kv_gib = _gib(allocated.group(2)) if allocated.group(2) else self.record.kv_gib
            dtype = _dtype(text)
            if dtype:
                self._facts["kv_dtype"] = dtype
        if tokens:
            self.record.kv_tokens = int(tokens)

    def on_graph_begin(self, _match, text):
        free = _figure(_FREE, text)
        if free is not None:
            self.last_free_gib = free
            if self.record.graph_begin_free_gib is None:
                self.record.graph_begin_free_gib = free

    def on_graph_end(self, match, text):
        free, used = _figure(_FREE, text), _figure(_USED, text)
        if free is not None:
            if self.speakers > 1:
                free = _least(free, self.record.graph_end_free_gib)
            self.last_free_gib = self.record.graph_end_free_gib = free
        if used is not None:
            before = self.graphs.get(match.group("what"), 0.0)
            self.graphs[match.group("what")] = max(before, used) if self.speakers > 1 else before + used
            self.record.graph_gib = _sum(list(self.graphs.values()))

    def on_final(self, match, text):
        pairs = _pairs(text)
        self.record.pool_tokens = int(match.group(1))
        free = _figure(_FREE_IN_THE_END, text)
        if free is not None:
            self.record.available_gib = self.last_free_gib = free
        for name, key in (
            ("context_tokens", "context_len"),
            ("chunked_prefill_size", "chunked_prefill_size"),
            ("max_running_requests", "max_running_requests"),
        ):
            number = _whole(pairs.get(key))
            if number is not None:
                self._facts.setdefault(name, number)

    def finish(self, complete):
        """Return a copy of the record with the figures that follow from several lines."""
        record = dataclasses.replace(self.record, derived=list(self.record.derived))
        own, drafts = self.pools[0], self.pools[1:]
        if record.kv_gib is None:
            record.kv_gib = own.gib()
        if record.kv_tokens is None:
            record.kv_tokens = own.count()
        record.draft_kv_gib = _sum([pool.gib() for pool in drafts if pool.gib() is not None])
        _derive(record)
        if complete or record.graph_end_free_gib is not None:
            record.headroom_gib = record.available_gib if record.available_gib is not None else self.last_free_gib
        return record


def _derive(record):
    """Compute the weights where only what was free around the load is printed (0.4.0): the difference is exact."""
    if (
        record.weights_gib is None
        and record.free_before_load_gib is not None
        and record.free_after_load_gib is not None
    ):
        record.weights_gib = round(record.free_before_load_gib - record.free_after_load_gib, 2)
        record.derived.append("weights_gib")
