# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failures: what went wrong (private to the collection).

Entries of one invocation in, the cause of its death out: not the last line, but the first one that names a cause, with the
phase in which it happened, the figures that it gives and what to change. The table is in _failure_catalogue.
"""
from __future__ import annotations

import dataclasses
import math
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _unit
from ansible_collections.gpufleet.sglang.plugins.module_utils._failure_catalogue import (
    BY_PHASE,
    COLLECTIVE,
    CONSEQUENCE,
    FRAME_PHASES,
    FRAMES,
    HARMLESS,
    HOST,
    NOTICE,
    PREFERENCE,
    ROWS,
    WRAPPER,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal import KERNEL, SERVICE
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._startup import ECHO_PREFIXES, StartupReader

# The kind of a device memory death, by the phase in which it happened.
KIND_BY_PHASE = {
    "process": "oom_weights",
    "init": "oom_weights",
    "weights": "oom_weights",
    "pool": "oom_pool",
    "graphs": "oom_graph_capture",
    "warmup": "oom_prefill",
    "prefill": "oom_prefill",
    "serving": "oom_prefill",
    "decode": "oom_decode",
}

# Kinds in which memory of the device or of the pool ran out.
MEMORY_KINDS = ("oom_weights", "oom_pool", "oom_graph_capture", "oom_prefill", "oom_decode", "kv_pool_too_small")

EVIDENCE_LENGTH = 400
# A fraction above this leaves less than any start needs: no fraction works.
HIGHEST_FRACTION = 0.985
# A board that is held by others for more than this share is not full because of us.
FOREIGN_SHARE = 0.05
# What is reserved but unallocated counts as fragmentation from this share of what was wanted on.
FRAGMENTED_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class Failure:
    """A named death. ``at``: epoch seconds of the evidence; ``figures``: numbers of the evidence, units in their names."""

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

    def as_dict(self):
        """Return plain JSON types."""
        data = dataclasses.asdict(self)
        data["ranks"] = list(self.ranks)
        return data


@dataclasses.dataclass
class _Hit:
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


class _Block:
    """One traceback of one process, with its chain: the first exception of a chain is the root."""

    def __init__(self, fatal):
        self.fatal = fatal
        self.rank = None
        self.frames = []
        self.exception = None
        self.chained = False
        self.wrapper_phase = None


@dataclasses.dataclass
class _Exception:
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

_BY_NEEDLE = {}
for _entry in ROWS:
    _BY_NEEDLE.setdefault(_entry.needle, []).append(_entry)
_BY_NEEDLE = tuple((needle, tuple(rows)) for needle, rows in _BY_NEEDLE.items())


class _Reader:
    """Walks the entries once and collects hits, exceptions and the state of the start-up at each of them."""

    def __init__(self):
        self.startup = StartupReader()
        self.hits = []
        self.exceptions = []
        self.ready_index = None
        self.stopping_index = None
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
        elif entry.unit_message and text.startswith("Stopping "):
            self.stopping_index = index
        if text.startswith(ECHO_PREFIXES) or text.startswith("server_args="):
            self._open.pop(entry.pid, None)
            return
        headed = len(text) != len(entry.message)
        block = self._follow(index, entry, rank, text, headed)
        self._match(index, entry, rank or (block.rank if block else None), text, block)

    def _follow(self, index, entry, rank, text, headed):
        """Follow tracebacks: per process where the journal tells the process, in the order of lines where it does not."""
        if entry.source != SERVICE:
            return None
        block = self._open.get(entry.pid)
        if _TRACEBACK in text:
            if block is None or headed or (block.exception and not block.chained):
                block = self._open[entry.pid] = _Block("hit an exception" in text or "Initialization failed" in text)
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
            if len(block.frames) < _FRAMES_KEPT:
                block.frames.append(text)
        elif text.startswith(_CHAIN):
            block.chained = True
        elif text[:1] not in (" ", "\t") and _EXCEPTION.match(text) and not text.startswith(_NOT_AN_EXCEPTION):
            if block.exception is None:
                block.exception = text
                self._except(index, entry, block.rank, text, block)
        return block

    def _except(self, index, entry, rank, text, block):
        self.exceptions.append(
            _Exception(index, entry, rank, text, self.startup.phase_of(rank), block, self.startup.ready, self.startup.last_batch)
        )

    def _match(self, index, entry, rank, text, block):
        if text[:1] in (" ", "\t") and (block is not None or _SOURCE_LINE.match(text)):
            # The source code that a traceback quotes holds the words of the error, but not its values.
            return
        lowered = text.lower()
        harmless = None
        for needle, rows in _BY_NEEDLE:
            if needle not in lowered:
                continue
            if harmless is None:
                harmless = any(words in lowered for words in HARMLESS)
            for row in rows:
                if harmless and row.role != HOST and row.kind != "disk_full":
                    continue
                match = row.pattern.search(text)
                if match is None:
                    continue
                if row.role == WRAPPER and block is not None and block.wrapper_phase is None:
                    block.wrapper_phase = row.phase
                self.hits.append(
                    _Hit(row, match, index, entry, rank, text, self.startup.phase_of(rank), self.startup.ready, block,
                         self.startup.last_batch)
                )


def _size_mib(text):
    match = re.match(r"([\d.]+) ?([KMGT]?)i?(B|bytes)", text or "")
    if not match:
        return None
    try:
        number = float(match.group(1))
    except ValueError:
        return None
    return round(number * {"": 1 / 2**20, "K": 1 / 2**10, "M": 1.0, "G": 2**10, "T": 2**20}[match.group(2)], 3)


def _size_gib(text):
    mib = _size_mib(text)
    return round(mib / 1024.0, 3) if mib is not None else None


_SIZE = r"([\d.]+ ?(?:[KMGT]i?B|bytes))"
# Figures of torch's out-of-memory texts: 2.1 and later, before, and those of other devices.
_OOM_FIGURES = (
    ("wanted_mib", re.compile(r"[Tt]ried to allocate " + _SIZE), _size_mib),
    ("board", re.compile(r"\b(?:GPU|NPU|XPU|MUSA) (\d{1,3})\b"), int),
    ("total_gib", re.compile(r"total capacity of " + _SIZE), _size_gib),
    ("total_gib", re.compile(_SIZE + r" total(?: capacity)?[;)]"), _size_gib),
    ("free_mib", re.compile(r"of which " + _SIZE + r" is free"), _size_mib),
    ("free_mib", re.compile(_SIZE + r" free[;)]"), _size_mib),
    ("in_use_gib", re.compile(r"this process has " + _SIZE + r" memory in use"), _size_gib),
    ("allocated_gib", re.compile(r"allocated memory " + _SIZE + r" is allocated by PyTorch"), _size_gib),
    ("allocated_gib", re.compile(_SIZE + r" (?:already )?allocated[;)]"), _size_gib),
    ("reserved_unallocated_gib", re.compile(r"and " + _SIZE + r" is reserved by PyTorch but unallocated"), _size_gib),
    ("reserved_gib", re.compile(_SIZE + r" reserved in total by PyTorch"), _size_gib),
)
_OTHER_PROCESS = re.compile(r"Process (\d{1,10}) has " + _SIZE + r" memory in use")


def parse_out_of_memory(text):
    """Return the figures of a torch out-of-memory text: wanted_mib, free_mib, board, total_gib, in_use_gib, allocated_gib,
    reserved_unallocated_gib, and foreign_gib: what processes other than the dying one hold on the board."""
    figures = {}
    for name, pattern, convert in _OOM_FIGURES:
        match = pattern.search(text)
        if match and name not in figures:
            value = convert(match.group(1))
            if value is not None:
                figures[name] = value
    if "reserved_unallocated_gib" not in figures and "reserved_gib" in figures and "allocated_gib" in figures:
        figures["reserved_unallocated_gib"] = round(max(figures["reserved_gib"] - figures["allocated_gib"], 0.0), 3)
    if "in_use_gib" in figures and "total_gib" in figures and "free_mib" in figures:
        foreign = figures["total_gib"] - figures["in_use_gib"] - figures["free_mib"] / 1024.0
        figures["foreign_gib"] = round(max(foreign, 0.0), 3)
    elif _OTHER_PROCESS.search(text) and "in_use_gib" not in figures:
        # Inside a container torch cannot tell its own process: it lists all of them.
        held = [_size_gib(size) for _pid, size in _OTHER_PROCESS.findall(text)]
        held = [size for size in held if size is not None]
        if held:
            figures["in_use_gib"] = max(held)
            figures["foreign_gib"] = round(sum(held) - max(held), 3)
    return figures


# ---------------------------------------------------------------------------------------------------------------------
# Choosing


def _is_ours(hit, unit, pids):
    """Tell whether a kernel's out-of-memory line is about this unit; other services of the host are killed too."""
    if hit.row.name not in ("kernel_oom_kill", "kernel_out_of_memory") or hit.entry.source != KERNEL:
        return True
    found = hit.match.groupdict()
    pid = int(found["pid"]) if found.get("pid") else None
    if pid is not None and pid in pids:
        return True
    memcg = found.get("memcg") or ""
    if unit is not None and (unit.name or unit.control_group) and memcg:
        return bool(unit.name and "/" + unit.name in memcg) or bool(unit.control_group and memcg.startswith(unit.control_group))
    return re.match(r"sglang|python|pt_|ray", found.get("task") or "") is not None or "sglang" in memcg


# A weak row counts for a reported death when it was read at most so many lines before it.
_NEAR_LINES = 80


def _counts(hit, reader, death):
    """Tell whether a hit can be the cause: not when the server became ready after it, and after that only if it ends a server.

    death: index of the first exception of a reported death; words that are often harmless must stand near it.
    """
    if hit.row.role not in PREFERENCE:
        return False
    if death is not None and not hit.row.decisive and hit.index < death - _NEAR_LINES:
        return False
    if reader.ready_index is not None and hit.index < reader.ready_index:
        return False
    if hit.after_ready:
        return hit.row.anytime or (hit.block is not None and hit.block.fatal)
    return True


def _preference(hit):
    sure = hit.row.decisive or (hit.block is not None and hit.block.fatal)
    return (PREFERENCE[hit.row.role], 0 if sure else 1, hit.index)


_DEATH_ROWS = ("exception", "sigquit", "rank_died", "rank_dead", "child_failed", "subprocess_crashed", "terminated_with", "init_failed", "exit_code")


def _markers(reader, names=None):
    """Return the hits that say that somebody died, later than the ready line, earlier than a stop that was asked for."""
    found = []
    for hit in reader.hits:
        if hit.row.role != CONSEQUENCE or (names and hit.row.name not in names):
            continue
        if reader.ready_index is not None and hit.index < reader.ready_index:
            continue
        if reader.stopping_index is not None and hit.index > reader.stopping_index:
            continue
        found.append(hit)
    return found


def _phase_of_frames(frames):
    """Return the phase in which a traceback was raised, or None. A serving loop among the frames decides first."""
    joined = "\n".join(frames)
    patterns = dict(FRAME_PHASES)
    order = ("prefill", "decode", "serving") if patterns["serving"].search(joined) else ("graphs", "pool", "weights", "init", "prefill", "decode")
    for name in order:
        if patterns[name].search(joined):
            return name
    return None


def _phase(hit, wrapper_phases):
    """Return the phase of a hit: its row's, the chain's, the traceback's, and last what the start-up had reached."""
    row_phase = getattr(hit, "row", None) and hit.row.phase
    if row_phase:
        return row_phase
    block = hit.block
    if block is not None and block.wrapper_phase:
        return block.wrapper_phase
    if hit.index in wrapper_phases:
        return wrapper_phases[hit.index]
    from_frames = _phase_of_frames(block.frames) if block is not None and block.frames else None
    if from_frames and from_frames != "serving":
        return from_frames
    if hit.batch is not None or hit.after_ready or from_frames == "serving":
        return hit.batch or "serving"
    return hit.phase


def _figures(match):
    figures = {}
    for name, value in match.groupdict().items():
        if value is None or name in ("device", "wanted", "what"):
            continue
        number = None
        if re.fullmatch(r"-?\d{1,15}", value):
            number = int(value)
        elif re.fullmatch(r"-?\d{0,10}\.\d{1,10}", value):
            number = float(value)
        figures[name] = number if number is not None else value.strip(" '\"`")[:200]
    return figures


class _Defaults(dict):
    """Names that an advice uses and a log did not give."""

    WORDS = {
        "above": "", "repo": "the model", "option": "the argument", "port": "in question", "path": "the target folder", "module": "in question",
        "architecture": "this architecture", "format": "in its config.json", "step": "in question",
    }

    def __missing__(self, key):
        return self.WORDS.get(key, "it")


def _advice(text, figures):
    words = _Defaults(figures)
    if "above" in figures:
        words["above"] = " above {0}".format(figures["above"])
    return text.format_map(words)


def _evidence(hit, secrets):
    text = hit.text
    match = getattr(hit, "match", None)
    if match is not None and hit.row.name == "architecture":
        text = text[: match.end()]
    if len(text) > EVIDENCE_LENGTH:
        begin = match.start() if match is not None and match.start() > EVIDENCE_LENGTH // 2 else 0
        text = text[begin: begin + EVIDENCE_LENGTH] + " ..."
    return mask_text(text.strip(), secrets)


def _ranks(hit, reader):
    found = {other.rank for other in reader.hits if other.row.name == hit.row.name and other.rank}
    return tuple(sorted(found, key=lambda rank: [int(number) for number in re.findall(r"\d+", rank)]))


# ---------------------------------------------------------------------------------------------------------------------
# Device memory


def _following(reader_entries, hit, lines=6):
    """Return the evidence with the lines behind it: some texts continue on the next ones."""
    texts = [hit.text]
    for entry in reader_entries[hit.index + 1: hit.index + 1 + lines]:
        if entry.pid == hit.entry.pid and entry.source == SERVICE and not entry.message.startswith("["):
            texts.append(entry.message)
    return "\n".join(texts)


def _judge_out_of_memory(kind, phase, figures):
    """Return (direction, shape, advice) of a device memory death from its figures."""
    board = "board {0}".format(figures["board"]) if "board" in figures else "the board"
    foreign, total = figures.get("foreign_gib", 0.0), figures.get("total_gib")
    wanted, free = figures.get("wanted_mib"), figures.get("free_mib")
    unallocated = figures.get("reserved_unallocated_gib", 0.0) * 1024.0
    if total and foreign > FOREIGN_SHARE * total:
        return "keep", "foreign", (
            "Free {0}: other processes hold {1:.2f} GiB of it; the fraction sglang_server_mem_fraction_static is not the cause.".format(board, foreign)
        )
    if kind == "oom_weights":
        return "infeasible", "weights", (
            "Spread the weights over more boards (--tp-size in sglang_server_arguments) or use a smaller quantisation: they do not fit, and "
            "sglang_server_mem_fraction_static has no part in loading."
        )
    if wanted and unallocated >= FRAGMENTED_SHARE * wanted:
        return "lower", "fragmentation", (
            "Set sglang_server_allocator_conf to expandable_segments:True (or auto), or lower sglang_server_chunked_prefill_size: {0:.0f} MiB were "
            "wanted, and {1:.0f} MiB lay reserved but unallocated.".format(wanted, unallocated)
        )
    if kind == "oom_graph_capture":
        return "lower", "thin_reserve", (
            "Lower sglang_server_mem_fraction_static, or the batch of the decode graphs (--cuda-graph-max-bs-decode, before 0.5.14 "
            "--cuda-graph-max-bs, in sglang_server_arguments){0}.".format(_short(wanted, free))
        )
    if kind == "oom_decode":
        return "lower", "thin_reserve", (
            "Lower sglang_server_mem_fraction_static, or --max-running-requests in sglang_server_arguments{0}.".format(_short(wanted, free))
        )
    if kind == "oom_pool":
        return "lower", "thin_reserve", (
            "Lower sglang_server_mem_fraction_static: the pool or its workspaces found less than what was free before load{0}.".format(
                _short(wanted, free))
        )
    shape = "spike" if wanted and wanted >= 256 else "thin_reserve"
    return "lower", shape, (
        "Lower sglang_server_chunked_prefill_size or sglang_server_mem_fraction_static{0}.".format(_short(wanted, free))
    )


def _short(wanted, free):
    if wanted is None or free is None:
        return ""
    return ": {0:.0f} MiB were wanted and {1:.0f} MiB were free".format(wanted, free)


def _free_around_load(startup):
    """Return what was free before and after the load; the sum of what is left and used where the first was not printed."""
    before, after = startup.sizing_free_gib or startup.free_before_load_gib, startup.free_after_load_gib
    if before is None:
        sums = [
            rank["free_after_load_gib"] + rank["weights_gib"]
            for rank in startup.ranks
            if rank["free_after_load_gib"] is not None and rank["weights_gib"] is not None
        ]
        before = round(min(sums), 2) if sums else None
    return before, after


def _judge_pool(startup, figures, direction, target_tokens, cell_bytes):
    """Return (direction, figures) of a pool that found no room: the smallest fraction that holds the target, or none."""
    before, after = _free_around_load(startup)
    if before is None or after is None or before <= 0:
        above = figures.get("above")
        if isinstance(above, float) and above > HIGHEST_FRACTION:
            return "infeasible", figures
        return direction, figures
    need = target_tokens * cell_bytes / 2.0**30 if target_tokens and cell_bytes else 0.0
    smallest = 1.0 - (after - need) / before
    figures = dict(figures)
    figures["minimum_fraction"] = round(1.0 - after / before, 4)
    figures["smallest_fraction"] = round(smallest, 4)
    figures["needed_gib"] = round(need, 3)
    if after <= 0 or need > after or smallest > HIGHEST_FRACTION:
        return "infeasible", figures
    figures["propose_fraction"] = math.ceil(round(smallest * 100, 6)) / 100.0
    figures.setdefault("above", round(smallest, 4))
    return direction, figures


_INFEASIBLE = (
    "Use more boards (--tp-size), a smaller quantisation, a smaller KV dtype or a lower target: no sglang_server_mem_fraction_static leaves "
    "enough for the pool beside the weights."
)


# ---------------------------------------------------------------------------------------------------------------------
# The answer


def classify(entries, startup=None, unit=None, target_tokens=None, cell_bytes=None, silence_seconds=None, deadline_seconds=None, secrets=()):
    """Name the cause of death of one invocation, or return None when nothing died.

    entries: list of _journal.Entry of one invocation (kernel lines may be among them); startup: its _startup.Startup (read
    here when not given); unit: _unit.UnitState read after the entries, which confirms that the unit ended; target_tokens and
    cell_bytes (bytes of one token on one rank) let a pool that is too small be judged for good; silence_seconds and
    deadline_seconds name a hang that no line tells; secrets: texts that must not be returned.
    """
    entries = list(entries)
    reader = _Reader()
    for index, entry in enumerate(entries):
        reader.feed(index, entry)
    if startup is None:
        startup = reader.startup.result()
    over = unit is not None and _unit.ended(unit)
    death = next((item.index for item in reader.exceptions if item.block is not None and item.block.fatal), None)
    hits = [hit for hit in reader.hits if _counts(hit, reader, death) and _is_ours(hit, unit, reader.pids)]
    markers = _markers(reader)
    consequence_at = markers[0].entry.realtime_seconds if markers else None
    failure = None
    if hits:
        failure = _from_hit(min(hits, key=_preference), reader, entries, startup, over or bool(markers), target_tokens, cell_bytes, secrets)
    if unit is not None and over and unit.result == "oom-kill" and (failure is None or failure.kind != "host_oom_kill"):
        failure = _from_unit(unit, reader, secrets)
    if failure is None:
        failure = _from_exceptions(reader, markers, over, secrets)
    if failure is None:
        failure = _from_markers(reader, markers, unit, over, secrets)
    if failure is None and over and not _asked_to_stop(reader, unit):
        failure = _from_unit(unit, reader, secrets)
    if failure is None and silence_seconds is not None and deadline_seconds is not None and silence_seconds >= deadline_seconds:
        failure = stalled(startup, silence_seconds, deadline_seconds, _last_text(reader), secrets)
    if failure is None:
        return None
    return dataclasses.replace(failure, consequence_at=consequence_at)


def _asked_to_stop(reader, unit):
    return reader.stopping_index is not None or (unit.result == "success" and _unit.clean_exit(unit) and reader.ready_index is not None)


def _from_hit(hit, reader, entries, startup, confirmed, target_tokens, cell_bytes, secrets):
    """Make the failure of the row that matched."""
    row = hit.row
    wrapper_phases = {other.index: other.row.phase for other in reader.hits if other.row.role == WRAPPER}
    phase = _phase(hit, wrapper_phases)
    figures, kind, direction, advice = _figures(hit.match), row.kind, row.direction, row.advice
    if kind == BY_PHASE:
        # A line without any context: most of these deaths happen in a prefill, and nothing says in which phase this one did.
        phase = None if phase == "process" else phase
        kind = KIND_BY_PHASE.get(phase, "oom_prefill")
    if row.kind == BY_PHASE and row.direction == "lower":
        figures.update(_richest_figures(hit, reader, entries))
        direction, shape, judged = _judge_out_of_memory(kind, phase, figures)
        figures["shape"] = shape
        advice = judged if row.name != "workspace" else advice
    elif row.name in ("prefill_tokens", "decode_tokens", "tokens"):
        direction, advice = _judge_tokens(hit, entries, figures, advice)
    elif kind == "kv_pool_too_small" and direction == "raise":
        direction, figures = _judge_pool(startup, figures, direction, target_tokens, cell_bytes)
        advice = _INFEASIBLE if direction == "infeasible" else advice
    elif row.name == "unbalanced":
        figures.update(_unbalanced_figures(hit.text))
    elif row.name == "peer_closed" and hit.batch == "prefill" and hit.after_ready:
        # Nobody said why the peer ended. In the middle of a prefill, memory is the likely reason.
        direction = "lower"
    if row.role == COLLECTIVE and row.kind == "comm_init" and hit.after_ready:
        kind = "comm_timeout"
    if row.name in ("gated", "http_401", "http_403", "restricted", "repository_not_found"):
        figures.update(_repository(hit, entries))
    exit_code = _exit_code(reader)
    if exit_code is not None:
        figures.setdefault("exit_code", exit_code)
    sure = row.decisive or confirmed or (hit.block is not None and hit.block.fatal)
    return Failure(
        kind=kind, phase=phase, fatal=sure, direction=direction, evidence=_evidence(hit, secrets),
        advice=mask_text(_advice(advice, figures), secrets),
        figures=figures, transient=row.transient, at=hit.entry.realtime_seconds, fault=row.fault, row=row.name, ranks=_ranks(hit, reader),
    )


def _richest_figures(hit, reader, entries):
    """Return the figures of the text of this death that tells most: chained texts often repeat a shorter form."""
    best = parse_out_of_memory(_following(entries, hit))
    for other in reader.hits:
        if other.row.kind == BY_PHASE and other.row.direction == "lower" and other.rank == hit.rank and other.index >= hit.index:
            figures = parse_out_of_memory(_following(entries, other))
            if len(figures) > len(best) and figures.get("wanted_mib") == best.get("wanted_mib", figures.get("wanted_mib")):
                best = figures
    return best


_TOKENS_WANTED = re.compile(r"Try to allocate (\d{1,15}) tokens")
_TOKENS_LEFT = re.compile(r"Avail(?:a|i)(?:b|a)?(?:ia)?ble tokens: (\d{1,15})|Ava\w+ tokens: (\d{1,15})")
_WINDOW_LEFT = re.compile(r"Available swa: (\d{1,15})|swa_available_size=(\d{1,15})")
_FULL_LEFT = re.compile(r"Available full: (\d{1,15})|full_available_size=(\d{1,15})")


def _first_number(pattern, text):
    match = pattern.search(text)
    return next((int(group) for group in match.groups() if group), 0) if match else None


def _judge_tokens(hit, entries, figures, advice):
    """Judge a full token pool: the window pool of a hybrid model has a lever of its own."""
    text = _following(entries, hit)
    figures["pool"] = "tokens"
    for name, pattern in (("wanted_tokens", _TOKENS_WANTED), ("free_tokens", _TOKENS_LEFT), ("free_window_tokens", _WINDOW_LEFT),
                          ("free_full_tokens", _FULL_LEFT)):
        number = _first_number(pattern, text)
        if number is not None:
            figures[name] = number
    window, full, wanted = figures.get("free_window_tokens"), figures.get("free_full_tokens"), figures.get("wanted_tokens")
    exhausted = window is not None and (full is None or full >= window) and (wanted is None or window < wanted or full is None)
    if exhausted:
        figures["pool"] = "window"
        return "keep", "Raise --swa-full-tokens-ratio in sglang_server_arguments: the window pool is full while the other has room."
    return "raise", advice


_MIN_MEMORY = re.compile(r"(?:min_per_gpu_memory|pre_model_load_memory)=(\d+(?:\.\d+)?)")
_LOCAL_MEMORY = re.compile(r"local_gpu_memory=(\d+(?:\.\d+)?)")


def _unbalanced_figures(text):
    figures = {}
    least, local = _MIN_MEMORY.search(text), _LOCAL_MEMORY.search(text)
    if least:
        figures["min_gib"] = round(float(least.group(1)), 3)
    if local:
        figures["local_gib"] = round(float(local.group(1)), 3)
    return figures


_REPOSITORY = re.compile(r"(?:Access to model |huggingface\.co/|/api/models/)([\w.-]{1,96}/[\w.-]{1,96}?)(?= is restricted|[/.\s]|$)")


def _repository(hit, entries):
    """Return the model that the hub refused, and the status, from the lines around the evidence."""
    figures = {}
    text = _following(entries, hit, 10)
    match = _REPOSITORY.search(text)
    if match:
        figures["repo"] = match.group(1).rstrip(".")
    status = re.search(r"\b(40[134]) Client Error", text)
    if status:
        figures["status"] = int(status.group(1))
    return figures


def _exit_code(reader):
    for hit in reader.hits:
        if hit.row.role == CONSEQUENCE:
            code = hit.match.groupdict().get("exit_code")
            if code is not None:
                return int(code)
    return None


def _from_exceptions(reader, markers, over, secrets):
    """Make a failure of an exception that no row knows: by the file that raised it, else by who died."""
    named = {hit.index for hit in reader.hits if hit.row.role in (CONSEQUENCE, NOTICE)}
    found = [
        item for item in reader.exceptions
        if item.index not in named
        and not (reader.ready_index is not None and item.index < reader.ready_index)
        and not (item.after_ready and not (item.block is not None and item.block.fatal) and not over)
        and not (reader.stopping_index is not None and item.index > reader.stopping_index)
    ]
    if not found:
        return None
    fatal = [item for item in found if item.block is not None and item.block.fatal]
    # Outside a reported death the last traceback before the end is the one that ended it.
    chosen = fatal[0] if fatal else found[-1]
    scheduler = bool(fatal) or any(hit.row.name in _DEATH_ROWS for hit in markers)
    kind, advice, fault = "unknown", "Read the lines above this one in the journal of the unit.", "engine"
    if scheduler:
        kind = "scheduler_died"
        advice = "Read the lines above this one; when an earlier version or configuration served, go back to it."
    for frame_kind, pattern, frame_advice in FRAMES:
        if chosen.block is not None and any(pattern.search(frame) for frame in chosen.block.frames):
            kind, advice, fault = frame_kind, frame_advice, "configuration"
            break
    figures = {}
    exit_code = _exit_code(reader)
    if exit_code is not None:
        figures["exit_code"] = exit_code
    wrapper_phases = {other.index: other.row.phase for other in reader.hits if other.row.role == WRAPPER}
    return Failure(
        kind=kind, phase=_phase(chosen, wrapper_phases), fatal=bool(fatal) or over or bool(markers), direction="keep",
        evidence=_evidence(chosen, secrets), advice=advice, figures=figures, at=chosen.entry.realtime_seconds, fault=fault,
        ranks=(chosen.rank,) if chosen.rank else (),
    )


def _from_markers(reader, markers, unit, over, secrets):
    """Make a failure of the bare fact that a process died."""
    deaths = [hit for hit in markers if hit.row.name in _DEATH_ROWS]
    if not deaths:
        return None
    first = next((hit for hit in deaths if hit.match.groupdict().get("exit_code") is not None), deaths[0])
    code = _exit_code(reader)
    figures = {"exit_code": code} if code is not None else {}
    if first.match.groupdict().get("rank"):
        figures["rank"] = int(first.match.group("rank"))
    kind, advice, fault = "scheduler_died", "Read the lines above this one; no line of the journal tells why the process ended.", "engine"
    silent = not any(hit.row.name in ("sigquit", "exception") for hit in deaths)
    if silent and code in (-9, 137) and not (over and unit.result != "oom-kill"):
        # SIGKILL from outside, and nobody reported anything before: nearly always the kernel, for want of host memory.
        kind, fault = "host_oom_kill", "host"
        advice = (
            "Look for oom-kill in journalctl -k and give the unit more host memory (MemoryMax, --hicache-size, loader threads): a rank was "
            "killed by SIGKILL without a word."
        )
    elif silent and code in (-7, 135):
        kind, fault, advice = "host_oom_kill", "host", "Enlarge shared memory (/dev/shm): a rank ended by SIGBUS."
    return Failure(
        kind=kind, phase=_phase(first, {}), fatal=True, direction="keep", evidence=_evidence(first, secrets), advice=advice,
        figures=figures, at=first.entry.realtime_seconds, fault=fault, row=first.row.name, ranks=_ranks(first, reader),
    )


# What systemd's own result says when no line explains the end: (result, kind, advice).
_RESULTS = (
    ("oom-kill", "host_oom_kill",
     "Give the unit more host memory: look at MemoryMax, --hicache-size and the loader threads in sglang_server_arguments."),
    ("start-limit-hit", "unit_failed", "Read the failure of the first start, repair it, and run systemctl reset-failed."),
    ("timeout", "timeout", "Raise TimeoutStartSec of the unit: SGLang loads for minutes."),
    ("watchdog", "watchdog_hang", "Remove WatchdogSec from the unit: SGLang does not serve systemd's watchdog."),
    ("resources", "unit_failed", "Read journalctl -u of the unit: systemd could not give it what it asks for."),
    ("exec-condition", "unit_failed", "Read the ExecCondition of the unit: it refused the start."),
)


def _from_unit(unit, reader, secrets):
    """Make a failure of systemd's facts alone."""
    result = unit.result or "unknown"
    how = _unit.exit_sentence(unit)
    kind, advice = "unknown", "Read the last lines in the journal of the unit; none of them names a cause."
    for name, known_kind, known_advice in _RESULTS:
        if result == name:
            kind, advice = known_kind, known_advice
            break
    else:
        if unit.exec_main_code == _unit.EXITED and unit.exec_main_status in _unit.SYSTEMD_EXIT_STATUSES:
            kind, advice = "bad_args", "Deploy again: systemd could not start the program of the unit."
        elif unit.exec_main_code == _unit.EXITED and unit.exec_main_status == 2 and reader.startup.phase == "process":
            kind, advice = "bad_args", "Correct sglang_server_arguments: the engine's argument parser ended the start (exit status 2)."
    evidence = "systemd: result {0}{1}".format(result, ", " + how if how else "")
    at = None
    for hit in reader.hits:
        if hit.entry.unit_message and hit.row.name in ("systemd_oom_kill", "main_exited"):
            evidence, at = hit.entry.message, hit.entry.realtime_seconds
            break
    last = _last_text(reader)
    if kind == "unknown" and last:
        evidence = "{0}; last line: {1}".format(evidence, last)
    return Failure(
        kind=kind, phase=reader.startup.phase if not reader.startup.ready else "serving", fatal=True, direction="keep",
        evidence=mask_text(evidence[: 2 * EVIDENCE_LENGTH], secrets), advice=advice,
        figures={"exit_status": unit.exec_main_status, "exit_code_class": unit.exec_main_code, "restarts": unit.n_restarts},
        at=at, fault="host" if kind == "host_oom_kill" else "engine",
    )


def _last_text(reader):
    return reader.last_service[2].strip() if reader.last_service else ""


def stalled(startup, silence_seconds, deadline_seconds, last_line="", secrets=()):
    """Name a start-up that says nothing any more: no line tells it, only the phase and the clock do."""
    advice = {
        "graphs": "Try once without graphs (disable-cuda-graph in sglang_server_arguments); with several nodes look at the other node first.",
        "init": "Check NCCL_SOCKET_IFNAME, peer access of the boards and, with several nodes, that the others are up.",
        "weights": "Check the disk or network folder that holds the model, and the other ranks.",
    }.get(startup.phase, "Look at the processes of the unit: none of them said anything.")
    return Failure(
        kind="watchdog_hang", phase=startup.phase, fatal=True, direction="keep",
        evidence=mask_text("nothing was logged for {0:.0f} s in phase {1}; last line: {2}".format(silence_seconds, startup.phase, last_line[:EVIDENCE_LENGTH]),
                           secrets),
        advice=advice, figures={"silence_seconds": silence_seconds, "deadline_seconds": deadline_seconds}, transient=True, fault="engine",
    )


def notices(entries, secrets=()):
    """Return what is worth knowing and ends nothing: [{name, evidence, advice, count, at}] in the order of first sight."""
    found = {}
    reader = _Reader()
    for index, entry in enumerate(entries):
        reader.feed(index, entry)
    for hit in reader.hits:
        if hit.row.role == NOTICE and hit.row.advice:
            notice = found.setdefault(
                hit.row.name,
                {"name": hit.row.name, "evidence": _evidence(hit, secrets), "advice": hit.row.advice, "count": 0, "at": hit.entry.realtime_seconds},
            )
            notice["count"] += 1
    return list(found.values())
