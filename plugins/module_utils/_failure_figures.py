# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_figures: the figures of a death (private to the collection).

What a text about memory says in numbers, and what follows from them: which way the fraction must move, and which lever
helps. Units stand in the names: _mib, _gib, _tokens.
"""

from __future__ import annotations

import math
import re

# A fraction above this leaves less than any start needs: no fraction works.
HIGHEST_FRACTION = 0.985
# A board that is held by others for more than this share is not full because of us.
FOREIGN_SHARE = 0.05
# What is reserved but unallocated counts as fragmentation when it would have been enough, and when it is more than the
# rounding of the allocator (blocks of 20 MiB and 2 MiB for each of some streams).
FRAGMENTED_LEAST_MIB = 128
# A single allocation of this size is a spike, which a smaller chunk makes smaller.
SPIKE_MIB = 256


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
    # torch 2.1 and 2.2 print "capacty".
    ("total_gib", re.compile(r"total capaci?ty of " + _SIZE), _size_gib),
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
    """Return the figures of a torch out-of-memory text: wanted_mib, free_mib, board, total_gib, in_use_gib and others.

    Also allocated_gib, reserved_unallocated_gib, and foreign_gib: what other processes hold on the board.
    """
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


# What helps, by the shape of the death. {board}, {foreign_gib}, {wanted_mib}, {unallocated_mib}, {short} are filled in.
SHAPES = {
    "foreign": (
        "keep",
        "Free {board}: other processes hold {foreign_gib:.2f} GiB of it; no sglang_server_mem_fraction_static helps.",
    ),
    # Before the first weight nothing of ours is on the board: whoever filled it is another, often a process of an
    # earlier start that did not end.
    "occupied": (
        "keep",
        "Free {board}: nothing was loaded yet, so another process holds its memory, often one left over of an "
        "earlier start (look at nvidia-smi); no sglang_server_mem_fraction_static helps.",
    ),
    "weights": (
        "infeasible",
        "Spread the weights over more boards (--tp-size in sglang_server_arguments) or use a smaller quantisation: "
        "they do not fit, and sglang_server_mem_fraction_static has no part in loading.",
    ),
    "fragmentation": (
        "lower",
        "Set sglang_server_allocator_conf to expandable_segments:True (or auto), or lower "
        "sglang_server_chunked_prefill_size: {wanted_mib:.0f} MiB were wanted while {unallocated_mib:.0f} MiB lay "
        "reserved but unallocated.",
    ),
    "graphs": (
        "lower",
        "Lower sglang_server_mem_fraction_static, or the batch of the decode graphs (--cuda-graph-max-bs-decode, "
        "before 0.5.14 --cuda-graph-max-bs, in sglang_server_arguments){short}.",
    ),
    "decode": (
        "lower",
        "Lower sglang_server_mem_fraction_static, or --max-running-requests in sglang_server_arguments{short}.",
    ),
    "pool": (
        "lower",
        "Lower sglang_server_mem_fraction_static: the pool or its workspaces found less than was free before{short}.",
    ),
    "spike": ("lower", "Lower sglang_server_chunked_prefill_size, or sglang_server_mem_fraction_static{short}."),
    "thin_reserve": ("lower", "Lower sglang_server_mem_fraction_static, or sglang_server_chunked_prefill_size{short}."),
}
_SHAPE_BY_KIND = {"oom_graph_capture": "graphs", "oom_decode": "decode"}
# Phases before the first weight.
_BEFORE_LOAD = ("process", "init")


def shape_of(kind, figures, phase=None):
    """Return the shape (a key of SHAPES) of a device memory death: what its figures and phase say of the reason."""
    total, foreign = figures.get("total_gib"), figures.get("foreign_gib", 0.0)
    wanted = figures.get("wanted_mib")
    missing = (wanted or 0.0) - figures.get("free_mib", 0.0)
    unallocated_mib = figures.get("reserved_unallocated_gib", 0.0) * 1024.0
    if total and foreign > FOREIGN_SHARE * total:
        return "foreign"
    if kind == "oom_weights":
        return "occupied" if phase in _BEFORE_LOAD else "weights"
    if wanted and unallocated_mib >= max(missing, FRAGMENTED_LEAST_MIB):
        return "fragmentation"
    if phase == "pool":
        return "pool"
    if kind in _SHAPE_BY_KIND:
        return _SHAPE_BY_KIND[kind]
    return "spike" if wanted and wanted >= SPIKE_MIB else "thin_reserve"


def judge_out_of_memory(kind, figures, phase=None):
    """Return (direction, shape, advice) of a device memory death."""
    shape = shape_of(kind, figures, phase)
    direction, advice = SHAPES[shape]
    wanted, free = figures.get("wanted_mib"), figures.get("free_mib")
    short = (
        ": {0:.0f} MiB were wanted and {1:.0f} MiB were free".format(wanted, free)
        if wanted and free is not None
        else ""
    )
    return (
        direction,
        shape,
        advice.format(
            board="board {0}".format(figures["board"]) if "board" in figures else "the board",
            foreign_gib=figures.get("foreign_gib", 0.0),
            wanted_mib=wanted or 0.0,
            unallocated_mib=figures.get("reserved_unallocated_gib", 0.0) * 1024.0,
            short=short,
        ),
    )


INFEASIBLE = (
    "Use more boards (--tp-size), a smaller quantisation, a smaller KV dtype or a lower target: no "
    "sglang_server_mem_fraction_static leaves enough for the pool beside the weights."
)


def _free_around_load(startup):
    """Return what was free before and after the load; the first is a sum where it was not printed."""
    before, after = startup.sizing_free_gib or startup.free_before_load_gib, startup.free_after_load_gib
    if before is None:
        sums = [
            rank["free_after_load_gib"] + rank["weights_gib"]
            for rank in startup.ranks
            if rank["free_after_load_gib"] is not None and rank["weights_gib"] is not None
        ]
        before = round(min(sums), 2) if sums else None
    return before, after


def judge_pool(startup, figures, direction, target_tokens, cell_bytes):
    """Return (direction, figures) of a pool that found no room: the smallest fraction for the target, or none."""
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


_TOKENS_WANTED = re.compile(r"Try to allocate (\d{1,15}) tokens")
# "Avaliable" is an older spelling.
_TOKENS_LEFT = re.compile(r"Ava\w{2,12} tokens: (\d{1,15})")
_WINDOW_LEFT = re.compile(r"Available swa: (\d{1,15})|swa_available_size=(\d{1,15})")
_FULL_LEFT = re.compile(r"Available full: (\d{1,15})|full_available_size=(\d{1,15})")


def _first_number(pattern, text):
    match = pattern.search(text)
    return next((int(group) for group in match.groups() if group), 0) if match else None


def judge_tokens(text, figures, advice):
    """Judge a full token pool: the window pool of a hybrid model has a lever of its own."""
    figures["pool"] = "tokens"
    for name, pattern in (
        ("wanted_tokens", _TOKENS_WANTED),
        ("free_tokens", _TOKENS_LEFT),
        ("free_window_tokens", _WINDOW_LEFT),
        ("free_full_tokens", _FULL_LEFT),
    ):
        number = _first_number(pattern, text)
        if number is not None:
            figures[name] = number
    window, full, wanted = (
        figures.get("free_window_tokens"),
        figures.get("free_full_tokens"),
        figures.get("wanted_tokens"),
    )
    exhausted = (
        window is not None and (full is None or full >= window) and (wanted is None or window < wanted or full is None)
    )
    if exhausted:
        figures["pool"] = "window"
        return (
            "keep",
            "Raise --swa-full-tokens-ratio in sglang_server_arguments: the window pool is full and the other is not.",
        )
    return "raise", advice


_MIN_MEMORY = re.compile(r"(?:min_per_gpu_memory|pre_model_load_memory)=(\d+(?:\.\d+)?)")
_LOCAL_MEMORY = re.compile(r"local_gpu_memory=(\d+(?:\.\d+)?)")


def unbalanced_figures(text):
    figures = {}
    least, local = _MIN_MEMORY.search(text), _LOCAL_MEMORY.search(text)
    if least:
        figures["min_gib"] = round(float(least.group(1)), 3)
    if local:
        figures["local_gib"] = round(float(local.group(1)), 3)
    return figures


_REPOSITORY = re.compile(
    r"(?:Access to model |huggingface\.co/|/api/models/)([\w.-]{1,96}/[\w.-]{1,96}?)(?= is restricted|[/.\s]|$)"
)


def repository_figures(text):
    """Return the model that the hub refused, and the status, from the lines around the evidence."""
    figures = {}
    match = _REPOSITORY.search(text)
    if match:
        figures["repo"] = match.group(1).rstrip(".")
    status = re.search(r"\b(40[134]) Client Error", text)
    if status:
        figures["status"] = int(status.group(1))
    return figures
