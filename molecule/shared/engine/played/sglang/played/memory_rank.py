# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of one rank under load: what is taken, what torch keeps, and the end when a tensor does not fit.

Pure but for the ledger that it is given; a test or a benchmark can drive it without a process. Figures in GiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sglang.played import versions
from sglang.played.settings import Settings

GIB = 1024**3
STEP_GIB = 2 / 1024  # torch rounds what it asks of the driver up to 2 MiB
STATIC = ("weights", "draft", "state", "pool", "draft_pool", "table", "workspace", "growth", "left")


class OutOfMemoryError(RuntimeError):
    """torch's; its text says the figures."""


OutOfMemoryError.__module__ = "torch"


def size_text(gib: float) -> str:
    """As c10::cuda::CUDACachingAllocator prints a size."""
    size = gib * GIB
    if size <= 1024:
        return f"{int(size)} bytes"
    for unit, bytes_ in (("KiB", 1024), ("MiB", 1024**2)):
        if size <= bytes_ * 1024:
            return f"{size / bytes_:.2f} {unit}"
    return f"{size / GIB:.2f} GiB"


@dataclass(frozen=True)
class Load:
    """One forward pass: tokens of the chunk, of the longest context, requests of the batch, how full the cache is."""

    chunk: int = 0
    context: int = 0
    requests: int = 0
    fill: float = 0.0


class RankMemory:
    """What this rank holds on its board, by kind. ``free`` is asked for every time: others are on the board too."""

    def __init__(self, settings: Settings, board: int, total_gib: float, free, told=None, expandable: bool = False):
        """free: function, the board's free GiB without this rank. told: function(kind, GiB) for the ledger."""
        self.settings, self.board, self.total_gib = settings, board, total_gib
        self._free, self._told = free, told
        self.expandable = expandable
        self.held: dict[str, float] = {}
        self.dirty = 0.0  # prefills on a full cache
        self.wanted_bytes = 0.0  # largest tensor of a chunk, a token
        self.least_free_gib = math.inf

    # --- figures

    @property
    def in_use_gib(self) -> float:
        return sum(self.held.values())

    @property
    def free_gib(self) -> float:
        return max(self._free() - self.in_use_gib, 0.0)

    @property
    def fragmented_gib(self) -> float:
        """Reserved, and of no use: it grows with prefills that run while the cache is full."""
        knobs = self.settings
        most = max(knobs.fragmentation_gib - knobs.fragmentation_clean_gib, 0.0)
        share = 1 - math.exp(-self.dirty / max(knobs.fragmentation_prefills, 0.01))
        now = knobs.fragmentation_clean_gib + most * share
        return now * (knobs.expandable_share if self.expandable else 1.0)

    # --- taking

    def put(self, kind: str, gib: float) -> None:
        """Hold so much of a kind from now on, whether it is there or not."""
        self.held[kind] = gib
        self.least_free_gib = min(self.least_free_gib, self.free_gib)
        if self._told:
            self._told(kind, gib)

    def take(self, kind: str, gib: float, wanted_gib: float | None = None) -> None:
        """Hold so much of a kind. Raises OutOfMemoryError; wanted_gib: the piece by which it is asked for."""
        more = gib - self.held.get(kind, 0.0)
        room = self.free_gib
        if more > room:
            piece = min(wanted_gib or more, more)
            pieces = int(room / piece) if piece else 0
            self.put(kind, self.held.get(kind, 0.0) + pieces * piece)
            raise self.out_of_memory(piece)
        self.put(kind, gib)

    def out_of_memory(self, wanted_gib: float) -> OutOfMemoryError:
        """The exception with the figures of now."""
        graphs = self.held.get("graphs", 0.0)
        torch_gib = sum(self.held.get(kind, 0.0) for kind in STATIC) + graphs + self.held.get("live", 0.0)
        wasted = self.held.get("cache", 0.0)
        private = f", with {size_text(graphs)} allocated in private pools (e.g., CUDA Graphs)" if graphs else ""
        page = "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
        if versions.at_least("0.5.11"):  # torch 2.11
            page = (
                "https://docs.pytorch.org/docs/stable/notes/cuda.html"
                "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
            )
        wanted = math.ceil(wanted_gib / STEP_GIB - 1e-6) * STEP_GIB
        return OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {size_text(wanted)}. GPU {self.board} has a total capacity of "
            f"{size_text(self.total_gib)} of which {size_text(self.free_gib)} is free. Including non-PyTorch memory, "
            f"this process has {size_text(self.in_use_gib - self.held.get('unseen', 0.0))} memory in use. Of the "
            f"allocated memory {size_text(torch_gib)} is allocated by PyTorch{private}, and {size_text(wasted)} is "
            "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
            f"Management  ({page})"
        )

    def exhausted(self, wanted_gib: float) -> OutOfMemoryError:
        """The exception of a board on which somewhat less is left than is wanted: the rest is taken first."""
        left = max(wanted_gib - 2.62 / 1024, 0.0)
        if self.free_gib > left:
            self.put("live", self.held.get("live", 0.0) + self.free_gib - left)
        return self.out_of_memory(wanted_gib)

    # --- under load

    def parts(self, load: Load) -> list[float]:
        """The tensors of a forward pass, in the order in which they are asked for: a chunk's largest comes last."""
        knobs = self.settings
        context = knobs.context_bytes_per_token * load.context + knobs.both_bytes * load.chunk * load.context
        chunk = self.wanted_bytes * load.chunk
        decode = knobs.decode_bytes_per_request * load.requests
        return [size / GIB for size in (context, chunk * (knobs.chunk_ratio - 1), chunk, decode) if size > 0]

    def forward(self, load: Load) -> None:
        """Run a pass: torch's cache grows to what it needed and stays. Raises OutOfMemoryError."""
        if load.chunk:
            self.dirty += max(load.fill - 0.5, 0.0) * 2
        wasted = self.fragmented_gib
        room = self.free_gib + self.held.get("cache", 0.0) - wasted
        live = 0.0
        for part in self.parts(load):
            if live + part > room:
                # torch gives back what is whole before it gives up; what is left of the cache is of no use.
                self.put("cache", wasted)
                self.put("live", live)
                raise self.out_of_memory(part)
            live += part
        self.put("cache", max(self.held.get("cache", 0.0), live + wasted))

    def finished(self, requests: int = 1) -> None:
        """Requests have ended: slow growth."""
        if self.settings.growth_mib_per_request:
            self.put("growth", self.held.get("growth", 0.0) + requests * self.settings.growth_mib_per_request / 1024)
