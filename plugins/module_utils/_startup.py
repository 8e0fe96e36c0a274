# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_startup: what the journal says about a start-up (private to the collection).

Entries of one invocation in, the start-up record out: memory per rank and over all ranks, phases, pool, headroom.
All figures in GiB (SGLang prints "GB" and means GiB). Figures of a draft model are kept apart from those of the model.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._journal import SERVICE, split_head

PHASES = ("process", "init", "weights", "pool", "graphs", "warmup", "ready")
_ORDER = {name: number for number, name in enumerate(PHASES)}

# Every form stands at the beginning of its line; the limit keeps the cost of a log linear in its length.
LINE_LENGTH = 4000

READY_LINE = "The server is fired up and ready to roll!"

_GB = r"(-?\d{1,9}(?:\.\d{1,9})?) ?GB"
_FREE = re.compile(r"avail mem=" + _GB)
_USED = re.compile(r"mem usage=" + _GB)


@dataclasses.dataclass(frozen=True)
class LineForm:
    """One form of line: a literal that it must hold (the cheap test), its pattern, and the phase that it begins."""

    name: str
    needle: str
    pattern: re.Pattern
    phase: str | None
    versions: str
    source: str


def _form(name, needle, pattern, phase, versions, source):
    return LineForm(name, needle, re.compile(pattern), phase, versions, source)


_RUNNER = "srt/model_executor/model_runner.py"
_POOL = "srt/mem_cache/memory_pool.py"

# Every known line of a start-up. The order does not matter; a line may serve several forms. Source: the files named,
# read in the wheels of the versions named, and public start-ups.
LINE_FORMS = (
    _form(
        "init_begin", "begin", r"^Init (?:torch distributed|parallel) begin", "init", "all; parallel 0.5.21+", _RUNNER
    ),
    _form("init_end", "ends.", r"^Init torch distributed ends\..*?mem usage=" + _GB, None, "0.4.3-0.5.20", _RUNNER),
    _form(
        "init_end",
        "Memory baseline taken",
        r"^Memory baseline taken\. mem usage=" + _GB,
        None,
        "0.5.21+",
        "srt/distributed/bootstrap.py",
    ),
    _form(
        "load_begin",
        "Load weight begin",
        r"(?:^|\s)Load weight begin\.(?:.*?avail mem=" + _GB + ")?",
        "weights",
        "all",
        _RUNNER,
    ),
    _form("load_end", "Load weight end", r"(?:^|\s)Load weight end\.(?! Committed)", "pool", "all", _RUNNER),
    _form("kv_dtype", "Using KV cache dtype", r"^Using KV cache dtype: (\S+)", None, "0.5.4-0.5.13", _RUNNER),
    _form(
        "profile",
        "Memory profiling",
        r"^Memory profiling: available_gpu_memory="
        + _GB
        + r", total_gpu_memory="
        + _GB
        + r", mem_fraction_static=(\d*\.?\d{1,15})",
        None,
        "DeepSeek-V4 builds",
        "public start-ups",
    ),
    _form(
        "full_tokens",
        "full_token=",
        r"^DS[Vv]4 memory calculation: .*?\bfull_token=(\d{1,15})\b",
        None,
        "0.5.12+",
        "pool_configurator.py",
    ),
    _form(
        "swa",
        "SWAKVPool",
        r"^SWAKVPool (?P<kind>mem usage|VA upper bound): (?P<gib>\d{1,9}(?:\.\d{1,20})?) ?GB, "
        r"swa size: (?P<swa>\d{1,15}), full size: "
        r"(?P<full>\d{1,15})",
        None,
        "0.5.4+",
        "srt/mem_cache/swa_memory_pool.py",
    ),
    _form(
        "swa_tokens",
        "liding window memory pool",
        r"^Use [Ss]liding window memory pool.*?full_layer_tokens=(?P<full>\d{1,15})",
        None,
        "0.4.10+",
        "pool_configurator.py",
    ),
    _form("state", "Mamba Cache is allocated", r"Mamba Cache is allocated\.", None, "0.5.2+", _POOL),
    _form("pool", "KV Cache ", r"(?:^|\s)KV Cache (?P<kind>is allocated|VA upper bound)\.", None, "0.4.1+", _POOL),
    _form("pool_end", "Memory pool end", r"(?:^|\s)Memory pool end\. avail mem=" + _GB, None, "all", _RUNNER),
    _form(
        "post_capture",
        "Post-capture KV sizing",
        r"^Post-capture KV sizing: (?P<draft>draft )?(?:KV cache allocated\.|max_total_num_tokens=(?P<total>\d{1,15})"
        r"|full_layer_tokens=(?P<full>\d{1,15}))",
        None,
        "0.5.16+",
        "srt/mem_cache/kv_pool_runtime.py",
    ),
    _form(
        "graph_begin",
        " begin.",
        r"^Capture (?P<what>[\w ]{1,60}?) (?:begin)\.",
        "graphs",
        "all",
        "cuda_graph_runner.py",
    ),
    _form("graph_end", " end.", r"^Capture (?P<what>[\w ]{1,60}?) (?:end)\.", "graphs", "all", "cuda_graph_runner.py"),
    _form(
        "final",
        "max_total_num_tokens=",
        r"(?:^|\s)max_total_num_tokens=(\d{1,15})\b",
        "warmup",
        "0.4.0+",
        "srt/managers/scheduler.py",
    ),
    _form(
        "current_value",
        "mem_fraction_static=",
        r"Current value: .{0,40}?mem_fraction_static=(\d*\.?\d{1,15})",
        None,
        "0.5.6+",
        "pool_configurator.py",
    ),
    _form(
        "minimum_viable",
        "--mem-fraction-static=",
        r"under --mem-fraction-static=(\d*\.\d{1,15})",
        None,
        "0.5.14+",
        "kv_cache_configurator.py",
    ),
    _form("listening", "Uvicorn running on", r"Uvicorn running on ", "warmup", "all", "uvicorn"),
    _form(
        "ready",
        "fired up and ready",
        r"^" + re.escape(READY_LINE) + r"?\s*$",
        "ready",
        "all",
        "srt/entrypoints/http_server.py",
    ),
    _form(
        "bar",
        "% Completed | ",
        r"(?P<what>(?:Multi-thread l|L)oading [^:]{1,80}): +(?P<percent>\d{1,15})% Completed \| "
        r"(?P<done>\d{1,15})/(?P<total>\d{1,15})",
        None,
        "all",
        "srt/model_loader/weight_utils.py",
    ),
    _form(
        "capture_bar",
        "Capturing ",
        r"^Capturing (?P<what>batches|num tokens|prefill shape)\b",
        None,
        "0.4.6+",
        "cuda_graph_runner.py",
    ),
    _form(
        "restart_path",
        "/lib/python3",
        r"/(?:engines|venvs)/(\d+\.\d+[\w.+-]*)/lib/python3",
        None,
        "all",
        "paths of a virtual environment",
    ),
)

# What takes long and says so. Source: sglang-0.5.23 and earlier wheels, layers/deep_gemm_wrapper, model_runner.
_SLOW = (
    ("DeepGEMM JIT Pre-Compile", "compiling DeepGEMM kernels (10 to 20 minutes without a cache)"),
    ("Try DeepGEMM JIT Compiling", "compiling DeepGEMM kernels (10 to 20 minutes without a cache)"),
    ("PP-parallel DeepGEMM warmup start", "compiling DeepGEMM kernels (10 to 20 minutes without a cache)"),
    ("Running FlashInfer autotune", "tuning FlashInfer kernels"),
    ("Compiling a graph for", "compiling graphs with torch.compile"),
    ("NCCL/RCCL warmup", "warming up the collectives"),
)

# Lines that never belong to a start-up: request logs echo what users wrote, and the steady state is long.
ECHO_PREFIXES = (
    "Receive: ",
    "Finish: ",
    "Receive openai",
    "Finish openai",
    "Request ",
    "Prefill batch",
    "Decode batch",
    "INFO: ",
)


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


@dataclasses.dataclass(frozen=True)
class Startup:
    """The record of one start-up. Of memory the tightest rank counts: least of what is free, most of what is used."""

    state: str = "loading"
    phase: str = "process"
    pool_tokens: int | None = None
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


def _gib(text):
    return float(text) if text is not None else None


def _pairs(text):
    """Return the name=value pairs of a line such as the final one."""
    return dict(re.findall(r"(\w{1,40})=(-?[\w.]+)", text))


def _whole(text):
    return int(text) if text and re.fullmatch(r"-?\d{1,15}", text) else None


def _plain_dtype(text):
    return text[len("torch.") :] if text and text.startswith("torch.") else text


class _Pool:
    """The KV lines of one model on one rank, until its "Memory pool end"."""

    def __init__(self):
        self.sizes = []
        self.tokens = []
        self.total_gib = None
        self.full_tokens = None

    def gib(self):
        if self.total_gib is not None:
            return self.total_gib
        sizes = [size for size in self.sizes if size is not None]
        return round(sum(sizes), 2) if sizes else None

    def count(self):
        return self.full_tokens or (max(self.tokens) if self.tokens else None)


class _Rank:
    """What is known of one rank while its lines are read."""

    def __init__(self, name):
        self.record = RankRecord(rank=name)
        self.loads_begun = 0
        self.loads_ended = 0
        self.pools = [_Pool()]
        self.last_free_gib = None

    def enter(self, phase):
        if _ORDER[phase] > _ORDER[self.record.phase]:
            self.record.phase = phase


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
        for words, sentence in _SLOW:
            if words in text:
                self._slow = (self._phase, sentence)

    def _apply(self, form, match, entry, rank, text):
        reader = getattr(self, "_on_" + form.name)
        if form.name in _RANKED:
            reader(self._rank(rank), match, text)
        else:
            reader(match, text)
        if form.phase:
            if form.name in _RANKED:
                self._rank(rank).enter(form.phase)
            self._enter(form.phase, entry)
        if form.name == "ready":
            self._ready = entry

    def _rank(self, name):
        name = name or self._only_rank()
        if name not in self._ranks:
            self._ranks[name] = _Rank(name)
        return self._ranks[name]

    def _enter(self, phase, entry):
        if _ORDER[phase] > _ORDER[self._phase]:
            self._phase = phase
            self._phase_times[phase] = entry

    # -- one method per line form

    def _on_init_begin(self, rank, _match, _text):
        pass

    def _on_init_end(self, rank, match, _text):
        if rank.record.init_gib is None:
            rank.record.init_gib = _gib(match.group(1))

    def _on_load_begin(self, rank, match, _text):
        rank.loads_begun += 1
        free = _gib(match.group(1))
        if rank.loads_begun == 1 and rank.loads_ended == 0:
            rank.record.free_before_load_gib = free
        elif (
            rank.loads_ended == 1
            and rank.record.free_after_load_gib is None
            and len(rank.pools) == 1
            and not rank.pools[0].tokens
        ):
            # A shortened log: what is free before the draft is what the model left.
            rank.record.free_after_load_gib = free
            rank.record.derived.append("free_after_load_gib")

    def _on_load_end(self, rank, _match, text):
        rank.loads_ended += 1
        free, used = _FREE.search(text), _USED.search(text)
        record = rank.record
        if rank.loads_ended == 1:
            record.free_after_load_gib = _gib(free.group(1)) if free else None
            record.weights_gib = _gib(used.group(1)) if used else None
            model = re.search(r"\btype=(\w+)", text)
            self._facts.setdefault("model_class", model.group(1) if model else None)
        elif used:
            record.draft_weights_gib = _gib(used.group(1))

    def _on_kv_dtype(self, match, _text):
        self._facts.setdefault("kv_dtype", _plain_dtype(match.group(1).rstrip(".,")))

    def _on_profile(self, rank, match, _text):
        record = rank.record
        if record.free_after_load_gib is None:
            record.free_after_load_gib = _gib(match.group(1))
        self._facts.setdefault("sizing_free_gib", _gib(match.group(2)))
        self._facts.setdefault("mem_fraction_static", float(match.group(3)))

    def _on_full_tokens(self, rank, match, _text):
        rank.pools[-1].full_tokens = int(match.group(1))

    def _on_swa(self, rank, match, _text):
        pool = rank.pools[-1]
        if match.group("kind") == "VA upper bound":
            self._facts.setdefault("va_upper_bound_tokens", int(match.group("full")))
            return
        pool.total_gib = _gib(match.group("gib"))
        pool.full_tokens = int(match.group("full"))
        if len(rank.pools) == 1:
            self._facts.setdefault("swa_tokens", int(match.group("swa")))

    def _on_swa_tokens(self, rank, match, _text):
        rank.pools[-1].full_tokens = int(match.group("full"))

    def _on_state(self, rank, _match, text):
        sizes = re.findall(r"\bsize: (\d{1,9}(?:\.\d{1,20})?) ?GB", text)
        rank.record.state_gib = round(sum(float(size) for size in sizes), 2) if sizes else None

    def _on_pool(self, rank, match, text):
        tokens = re.search(r"#tokens: (\d{1,15})", text)
        tokens = int(tokens.group(1)) if tokens else None
        if match.group("kind") == "VA upper bound":
            if tokens is not None and not text.startswith("draft"):
                self._facts.setdefault("va_upper_bound_tokens", tokens)
            return
        dtype = re.search(r"\bdtype: ([\w.]+)", text)
        if dtype and len(rank.pools) == 1:
            self._facts.setdefault("kv_dtype", _plain_dtype(dtype.group(1)))
        parts = re.findall(r"\b(?:K|V|KV) size: (\d{1,9}(?:\.\d{1,20})?) ?GB", text)
        pool = rank.pools[-1]
        twice = tokens is not None and tokens in pool.tokens and pool.full_tokens is None and pool.total_gib is None
        if text.lower().startswith("draft") or (twice and len(rank.pools) == 1 and rank.loads_ended > 1):
            pool = _Pool()
            rank.pools.append(pool)
        pool.sizes.append(round(sum(float(part) for part in parts), 2) if parts else None)
        if tokens is not None:
            pool.tokens.append(tokens)

    def _on_pool_end(self, rank, match, _text):
        # The draft's pool ends last; what is free then is what graphs and activations have.
        rank.record.pool_end_free_gib = rank.last_free_gib = _gib(match.group(1))
        rank.pools.append(_Pool())

    def _on_post_capture(self, rank, match, text):
        free = re.search(r"(?:avail mem|free memory)=" + _GB, text)
        if free:
            rank.last_free_gib = _gib(free.group(1))
        if match.group("draft"):
            return
        tokens = match.group("total") or match.group("full")
        allocated = re.search(r"#tokens: (\d{1,15})(?:, KV size: (\d{1,9}(?:\.\d{1,9})?) GB)?", text)
        if allocated:
            tokens = tokens or allocated.group(1)
            rank.record.kv_gib = _gib(allocated.group(2)) if allocated.group(2) else rank.record.kv_gib
            dtype = re.search(r"\bdtype: ([\w.]+)", text)
            if dtype:
                self._facts["kv_dtype"] = _plain_dtype(dtype.group(1))
        if tokens:
            rank.record.kv_tokens = int(tokens)

    def _on_graph_begin(self, rank, _match, text):
        free = _FREE.search(text)
        if free:
            rank.last_free_gib = _gib(free.group(1))
            if rank.record.graph_begin_free_gib is None:
                rank.record.graph_begin_free_gib = rank.last_free_gib

    def _on_graph_end(self, rank, _match, text):
        free, used = _FREE.search(text), _USED.search(text)
        if free:
            rank.last_free_gib = rank.record.graph_end_free_gib = _gib(free.group(1))
        if used:
            rank.record.graph_gib = round((rank.record.graph_gib or 0.0) + float(used.group(1)), 2)

    def _on_final(self, rank, match, text):
        pairs = _pairs(text)
        rank.record.pool_tokens = int(match.group(1))
        free = re.search(r"available_[a-z]pu_mem=" + _GB, text)
        if free:
            rank.record.available_gib = rank.last_free_gib = _gib(free.group(1))
        for name, key in (
            ("context_tokens", "context_len"),
            ("chunked_prefill_size", "chunked_prefill_size"),
            ("max_running_requests", "max_running_requests"),
        ):
            if _whole(pairs.get(key)) is not None:
                self._facts.setdefault(name, _whole(pairs[key]))

    def _on_current_value(self, match, _text):
        self._facts.setdefault("mem_fraction_static", float(match.group(1)))

    _on_minimum_viable = _on_current_value

    def _on_listening(self, _match, _text):
        pass

    _on_ready = _on_listening

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
        complete = self._ready is not None or any(rank.record.pool_tokens is not None for rank in self._ranks.values())
        records = [self._finish(rank, complete) for rank in self._ranks.values()]
        headrooms = [(record.headroom_gib, record.rank) for record in records if record.headroom_gib is not None]
        pool = _least([record.pool_tokens for record in records])
        if pool is None:
            pool = _least([record.kv_tokens for record in records])
        arguments = self._arguments
        facts = self._facts
        return Startup(
            state="ready" if self._ready is not None else "loading",
            phase=self._phase,
            pool_tokens=pool,
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

    def _finish(self, rank, complete):
        """Return a copy of the rank's record with the figures that follow from several lines."""
        record = dataclasses.replace(rank.record, derived=list(rank.record.derived))
        own, drafts = rank.pools[0], rank.pools[1:]
        if record.kv_gib is None:
            record.kv_gib = own.gib()
        if record.kv_tokens is None:
            record.kv_tokens = own.count()
        sizes = [pool.gib() for pool in drafts if pool.gib() is not None]
        record.draft_kv_gib = round(sum(sizes), 2) if sizes else None
        _derive(record)
        if complete or record.graph_end_free_gib is not None:
            record.headroom_gib = record.available_gib if record.available_gib is not None else rank.last_free_gib
        return record

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


_RANKED = frozenset(
    (
        "init_begin",
        "init_end",
        "load_begin",
        "load_end",
        "profile",
        "full_tokens",
        "swa",
        "swa_tokens",
        "state",
        "pool",
        "pool_end",
        "post_capture",
        "graph_begin",
        "graph_end",
        "final",
    )
)


def _derive(record):
    """Compute the weights where only what was free around the load is printed (0.4.0): the difference is exact."""
    if (
        record.weights_gib is None
        and record.free_before_load_gib is not None
        and record.free_after_load_gib is not None
    ):
        record.weights_gib = round(record.free_before_load_gib - record.free_after_load_gib, 2)
        record.derived.append("weights_gib")


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


_ARGUMENTS = {
    "mem_fraction_static": float,
    "context_length": int,
    "chunked_prefill_size": int,
    "max_running_requests": int,
    "max_total_tokens": int,
    "tp_size": int,
    "dp_size": int,
    "pp_size": int,
    "page_size": int,
}
_ARGUMENT = re.compile(
    r"(?<![\w-])'?(?P<name>" + "|".join(_ARGUMENTS) + r")'?\s?[=:]\s?(?P<value>-?\d{1,15}(?:\.\d{1,15})?)\b"
)


def read_server_args(text):
    """Return the numbers of a ``server_args=`` line that matter here: ServerArgs(...) or, from 0.5.23, a dictionary."""
    found = {}
    for match in _ARGUMENT.finditer(text):
        try:
            found.setdefault(match.group("name"), _ARGUMENTS[match.group("name")](match.group("value")))
        except ValueError:
            continue
    return found


def read_startup(entries):
    """Read the entries of one invocation into a Startup. Never raises for what a log may hold."""
    reader = StartupReader()
    for entry in entries:
        reader.feed(entry)
    return reader.result()
