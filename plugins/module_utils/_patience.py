# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: how long a start-up may be silent. What counts as a sign of life, and when silence is a stall.

Private to the gpufleet.sglang collection; may change at any time.

Pure: samples and lines in, a decision out. ``_load_progress`` takes the samples, ``_patience_deadline`` says how long
the whole start may take, ``_patience_left`` how much of it is left.

Silence in the journal is not silence of the processes: a bar is stored when it closes, and a compiler says nothing. So
lines, memory of the boards, memory and bytes of the processes and their CPU time are all signs. CPU time alone is a
weak one (a rank that waits for another one in a collective spins), and has a limit of its own.
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field, fields

MIB = 1048576


@dataclass(frozen=True)
class Patience:
    """What is normal in a phase.

    ``quiet_seconds``: without any sign; ``busy_seconds``: with CPU time as the only sign.
    """

    phase: str
    quiet_seconds: float
    busy_seconds: float
    source: str


PATIENCE = (
    Patience(
        "process",
        180.0,
        900.0,
        "imports: 20 to 40 s for SGLang 0.5.23 from a local disk, CPU time or bytes all the while; a download writes",
    ),
    Patience(
        "init",
        300.0,
        420.0,
        "ranks of one node meet within seconds; a hung collective spins until torch ends it after 600 s "
        "(torch.distributed.constants.default_pg_nccl_timeout, PR pytorch/pytorch#110947)",
    ),
    Patience(
        "weights",
        300.0,
        1800.0,
        "reading and copying are bytes and memory; what is computed afterwards (quantisation, repacking) is CPU time. "
        "878 s were seen for 167 GiB where both stood in one memory",
    ),
    Patience("pool", 180.0, 900.0, "memory that is only taken: seconds in all public start-ups"),
    Patience(
        "graphs",
        600.0,
        1800.0,
        "github.com/sgl-project/sglang/issues/4233: a capture of 1,334 s that succeeded, 590 s of it without a line",
    ),
    Patience(
        "warmup",
        780.0,
        780.0,
        "SGLang 0.5.23 srt/entrypoints/http_server.py: 120 s for its own port and 600 s for its own request, and says "
        "so itself when they are over. An idle scheduler spins",
    ),
    Patience(
        "completion",
        900.0,
        900.0,
        "after the ready line: the warm-up has been answered, and the engine's watchdog ends a batch after 300 s "
        "(--watchdog-timeout). Counted from the ready line, whatever moves",
    ),
)
_BY_PHASE = {row.phase: row for row in PATIENCE}
# Where no journal tells the phase: the longest of all.
ANY_PHASE = Patience("", max(row.quiet_seconds for row in PATIENCE), max(row.busy_seconds for row in PATIENCE), "above")

# Ranks of several nodes wait for each other, and the other hosts' starts are not seen from here.
SEVERAL_NODES = Patience(
    "init", 720.0, 720.0, "torch ends the meeting of the ranks itself after 600 s, and says so (as above)"
)

# While kernels are compiled, whatever the phase.
COMPILING = Patience(
    "compiling",
    900.0,
    5400.0,
    "DeepGEMM says 10 to 20 minutes (SGLang: layers/deep_gemm_wrapper/compile_utils.py); 13 minutes for FlashInfer "
    "(github.com/flashinfer-ai/flashinfer/issues/4110); 45 minutes with torch.compile "
    "(github.com/sgl-project/sglang/issues/6830)",
)


@dataclass(frozen=True)
class Compiler:
    """A process below the server that compiles: its name as /proc tells it (at most 15 characters), what it does."""

    name: str
    what: str
    source: str


COMPILERS = (
    Compiler("nvcc", "compiling CUDA kernels", "CUDA toolkit"),
    Compiler("cicc", "compiling CUDA kernels", "CUDA toolkit, called by nvcc"),
    Compiler("cudafe++", "compiling CUDA kernels", "CUDA toolkit, called by nvcc"),
    Compiler("ptxas", "compiling CUDA kernels", "CUDA toolkit; Triton brings its own (triton/backends/nvidia)"),
    Compiler("ninja", "compiling CUDA kernels", "flashinfer/jit, torch.utils.cpp_extension"),
    Compiler("cc1plus", "compiling C++ code", "GCC, called by torch.utils.cpp_extension and Inductor"),
    Compiler("hipcc", "compiling HIP kernels", "ROCm"),
)
_BY_NAME = {row.name: row for row in COMPILERS}


# ---------------------------------------------------------------------------------------------------------------
# Signs

# So much has to move to be a sign: idle processes read and write a little, and allocators breathe.
IO_STEP_BYTES = MIB
RESIDENT_STEP_BYTES = 16 * MIB
DEVICE_STEP_MIB = 16
# CPU time is a sign from this rate on (CPU seconds a second, all processes together). Threads of idle processes look
# around: four of an idle SGLang 0.5.23 with --sleep-on-idle took 0.018, so three times that for each process.
BUSY_RATE = 0.05
BUSY_RATE_PER_PROCESS = 0.0135


@dataclass(frozen=True)
class Process:
    """One process of the unit. ``io_bytes`` is what it read and wrote, None where that may not be read."""

    pid: int
    name: str = ""
    state: str = "?"
    cpu_seconds: float = 0.0
    io_bytes: int | None = None
    read_bytes: int | None = None
    resident_bytes: int = 0
    waits_in: str = ""


@dataclass(frozen=True)
class Sample:
    """What the processes of the unit have used at a moment. ``at``: seconds of the clock that never steps.

    ``device_mib``: memory that they hold of the boards, None when nobody told.
    """

    at: float
    processes: tuple = ()
    device_mib: int | None = None

    @property
    def cpu_seconds(self):
        return sum(one.cpu_seconds for one in self.processes)

    @property
    def io_bytes(self):
        return sum(one.io_bytes or 0 for one in self.processes)

    @property
    def read_bytes(self):
        return sum(one.read_bytes or 0 for one in self.processes)

    @property
    def resident_bytes(self):
        return sum(one.resident_bytes for one in self.processes)

    @property
    def compiling(self):
        """What is compiled now, or None."""
        return next((_BY_NAME[one.name].what for one in self.processes if one.name in _BY_NAME), None)


@dataclass(frozen=True)
class Marks:
    """What was there at the last sign, and when it came. Goes from slice to slice as a dictionary.

    ``sign_at``: the last sign of any kind; ``work_at``: the last one that was more than CPU time; ``last``: its kind.
    ``phase_device_mib`` and ``phase_read_bytes``: what was there when ``phase`` began.
    """

    sign_at: float
    work_at: float
    last: str = "the wait began"
    line: int | None = None
    io_bytes: int | None = None
    resident_bytes: int | None = None
    device_mib: int | None = None
    cpu_seconds: float | None = None
    sampled_at: float | None = None
    phase: str | None = None
    phase_device_mib: int | None = None
    phase_read_bytes: int | None = None

    def as_dict(self):
        """Return plain JSON types."""
        return asdict(self)


def marks_from(data, now):
    """The marks of the slice before, or fresh ones. What came from a wait before the last boot is forgotten.

    :arg data: dictionary of :meth:`Marks.as_dict`, or None. :arg now: seconds of the same clock.
    """
    known = {one.name for one in fields(Marks)}
    data = {name: value for name, value in (data or {}).items() if name in known}
    times = [data.get(name) for name in ("sign_at", "work_at")]
    if not all(isinstance(at, (int, float)) and at <= now for at in times):
        return Marks(now, now)
    return Marks(**data)


def line_mark(text):
    """A number for a line: the same line said again is no sign."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def after_line(marks, text, now):
    """The marks after the newest line of the service (its text without time and rank; None when there is none)."""
    if not text or line_mark(text) == marks.line:
        return marks
    return _replaced(marks, sign_at=now, work_at=now, last="a line", line=line_mark(text))


def after_sample(marks, sample, phase):
    """The marks after a sample of the processes."""
    changes = {"cpu_seconds": sample.cpu_seconds, "sampled_at": sample.at}
    if phase != marks.phase:
        # Who comes in the middle of a phase counts from nothing: contexts and libraries are small beside weights.
        came_later = marks.phase is None
        changes.update(
            phase=phase,
            phase_device_mib=marks.device_mib or 0,
            phase_read_bytes=0 if came_later else sample.read_bytes,
        )
    for name, step, words in (
        ("io_bytes", IO_STEP_BYTES, "bytes read or written"),
        ("resident_bytes", RESIDENT_STEP_BYTES, "memory of the processes"),
        ("device_mib", DEVICE_STEP_MIB, "memory of the boards"),
    ):
        then, now = getattr(marks, name), getattr(sample, name)
        if now is None or (then is not None and abs(now - then) < step):
            continue
        changes[name] = now
        if then is not None:
            changes.update(sign_at=sample.at, work_at=sample.at, last=words)
    if "sign_at" not in changes and is_busy(marks, sample):
        changes.update(sign_at=sample.at, last="CPU time")
    return _replaced(marks, **changes)


def is_busy(marks, sample):
    """Whether the processes computed since the sample before. An end of some of them is no less than that."""
    if marks.cpu_seconds is None or marks.sampled_at is None or sample.at <= marks.sampled_at:
        return False
    rate = abs(sample.cpu_seconds - marks.cpu_seconds) / (sample.at - marks.sampled_at)
    return rate >= BUSY_RATE + BUSY_RATE_PER_PROCESS * len(sample.processes)


def _replaced(marks, **changes):
    return Marks(**dict(asdict(marks), **changes))


# ---------------------------------------------------------------------------------------------------------------
# The decision


@dataclass(frozen=True)
class Silence:
    """How silent a start-up is. ``limit_seconds``: the patience that it is measured by; ``stalled``: it is over."""

    seconds: float = 0.0
    limit_seconds: float = 0.0
    stalled: bool = False
    only_cpu: bool = False
    compiling: str | None = None
    last: str = ""
    last_seconds: float = 0.0
    processes: tuple = field(default_factory=tuple)


def patience_of(phase, compiling=False, several_nodes=False):
    """The row of the table that counts. A phase that the table does not know (no journal) has the longest patience."""
    row = _BY_PHASE.get(phase, ANY_PHASE)
    if several_nodes and phase == "init":
        row = SEVERAL_NODES
    if compiling:
        return Patience(
            row.phase,
            max(row.quiet_seconds, COMPILING.quiet_seconds),
            max(row.busy_seconds, COMPILING.busy_seconds),
            COMPILING.source,
        )
    return row


def silence(marks, sample, phase, now, compiling=None, several_nodes=False, factor=1.0):
    """How silent the start-up is now.

    :arg sample: the last :class:`Sample`, None when the processes could not be read: then nothing is ever a stall.
    :arg compiling: what is compiled by what the journal says. :arg factor: of the patience; 0 never names a stall.
    """
    compiling = (sample.compiling if sample else None) or compiling
    row = patience_of(phase, bool(compiling), several_nodes)
    quiet, busy = max(now - marks.sign_at, 0.0), max(now - marks.work_at, 0.0)
    quiet_limit, busy_limit = row.quiet_seconds * factor, row.busy_seconds * factor
    judged = sample is not None and bool(sample.processes) and factor > 0
    only_cpu = quiet < quiet_limit and busy >= busy_limit
    return Silence(
        seconds=busy if only_cpu else quiet,
        limit_seconds=busy_limit if only_cpu else quiet_limit,
        stalled=judged and (only_cpu or quiet >= quiet_limit),
        only_cpu=only_cpu,
        compiling=compiling,
        last=marks.last,
        last_seconds=quiet,
        processes=sample.processes if sample else (),
    )


# A process state of /proc/PID/stat in words (proc(5)).
STATES = {"R": "running", "S": "sleeping", "D": "waiting for a disk or a driver", "T": "stopped", "Z": "ended"}
MOST_PROCESSES = 12


def process_rows(processes):
    """What the processes do, as data for people: the busiest first."""
    rows = sorted(processes, key=lambda one: (-one.cpu_seconds, one.pid))[:MOST_PROCESSES]
    return [
        {
            "pid": one.pid,
            "name": one.name,
            "state": one.state,
            "doing": STATES.get(one.state, one.state),
            "waits_in": one.waits_in,
            "cpu_seconds": round(one.cpu_seconds, 1),
            "read_gib": None if one.read_bytes is None else round(one.read_bytes / 1024**3, 2),
            "resident_gib": round(one.resident_bytes / 1024**3, 2),
        }
        for one in rows
    ]


def seen_last(silent):
    """What was seen last, as the end of a sentence that names a stall."""
    counts = {}
    for one in silent.processes:
        counts[one.state] = counts.get(one.state, 0) + 1
    waits = sorted({one.waits_in for one in silent.processes if one.state == "D" and one.waits_in})
    doing = []
    for state, count in sorted(counts.items()):
        where = f" ({', '.join(waits)})" if state == "D" and waits else ""
        doing.append(f"{count} {STATES.get(state, state)}{where}")
    return "last sign of life: {} {:.0f} s ago{}; processes: {}".format(
        silent.last,
        silent.last_seconds if not silent.only_cpu else silent.seconds,
        ", only CPU time since" if silent.only_cpu else "",
        ", ".join(doing) or "none is left",
    )
