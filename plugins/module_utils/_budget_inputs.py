# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what a plan is made from, and small readers of it. Private."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least, version_key
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import argument_number

GIB = 2**30


class BadInput(ValueError):
    """An input that cannot be right. The text is one sentence that names the option and the way out."""


class TooFewGpus(BadInput):
    """The host has fewer GPUs than the arguments need."""


@dataclass(frozen=True)
class PlanInput:
    """What a plan is made from. C(arguments) are canonical; None means "not known" or, for what is decided, "auto".

    Sizes in GiB (2^30 bytes) of one rank; C(target_tokens) per data-parallel rank.
    """

    arguments: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    gpus: tuple = ()
    geometry: dict | None = None
    draft_geometry: dict | None = None
    weight_bytes: int | None = None
    weight_table: tuple = ()
    weights_created: tuple = ()
    draft_weight_bytes: int | None = None
    draft_weight_table: tuple = ()
    draft_weights_created: tuple = ()
    engine_version: str | None = None
    target_tokens: int | None = None
    measurements: tuple = ()
    deaths: tuple = ()
    free_before_load_gib: float | None = None
    free_after_load_gib: float | None = None
    weights_gib: float | None = None
    cell_bytes: float | None = None
    context_tokens: int | None = None
    max_context_tokens: int | None = None
    pool_policy: str = "promise"
    fraction: float | None = None
    chunk_tokens: int | None = None
    allocator_conf: str | None = None
    min_headroom_gib: float | None = None
    min_least_free_gib: float | None = None
    max_running_requests: int | None = None
    allow_unproven_plan: bool = False
    device: str = "cuda"
    keys: dict | None = None
    own_server_running: bool = False
    own_pids: tuple = ()
    running_gib: float = 0.0
    torch_version: str | None = None
    board_warnings: tuple = ()
    board_refusal: str | None = None
    other_instances: tuple = ()


@dataclass(frozen=True)
class Figure:
    """A quantity in GiB with its half band and where it comes from: given, measured, table or assumed."""

    gib: float
    error_gib: float
    source: str
    note: str
    name: str = ""


def whole_pages(tokens, page_size, up=False):
    """Return C(tokens) rounded to whole pages, down as the engine does, or up for a promise."""
    pages = -(-tokens // page_size) if up else tokens // page_size
    return int(pages * page_size)


def page_tokens(inp):
    """Return the tokens of a page: as stated, or what the attention backend or the layout forces."""
    return _kv.page_tokens_of(inp.geometry, inp.arguments)


def size(inp, name):
    """Return a size among the arguments, such as tp-size; 1 when it is not given."""
    return argument_number(inp.arguments, name, 1)


def model_ranks(inp):
    """Return the ranks among which the weights of one replica are split: TP x PP."""
    return size(inp, "tp-size") * size(inp, "pp-size")


def draft_by_path(inp):
    """Return whether a draft model of its own is loaded beside the target."""
    return bool(inp.arguments.get("speculative-draft-model-path"))


def is_multimodal(inp):
    """Return whether the model takes images or sound here; --language-only and its like switch that off.

    Where the geometry does not say, the name of the architecture does; also for a model that takes them only with
    --enable-multimodal.
    """
    geometry = inp.geometry or {}
    said = geometry.get("multimodal")
    if said is None or _kv.is_on(inp.arguments.get("enable-multimodal") or False):
        said = said or str(geometry.get("architecture") or "").endswith("ForConditionalGeneration")
    if not said:
        return False
    return not any(_kv.is_on(inp.arguments.get(name) or False) for name in ("language-only", "language-model-only"))


def is_source_tree(engine_version):
    """Return whether a version names a build from a source tree (0.0.0.dev1+g...), which counts as the newest."""
    return engine_version is not None and version_key(engine_version)[0] == (0,)


def is_newer(engine_version):
    """Return whether a version is, or may be, newer than those that were read; a later build of the newest is not."""
    if engine_version is None:
        return False
    release = version_key(engine_version)[0]
    return is_source_tree(engine_version) or release > version_key(tables.NEWEST_READ)[0]


def is_older(engine_version):
    """Return whether a version is older than those that were read. A build from a source tree counts as the newest."""
    return engine_version is not None and not version_at_least(engine_version, tables.OLDEST_READ)


# ---------------------------------------------------------------------------
# GPUs
# ---------------------------------------------------------------------------


def _gpus_of_all(inp):
    """Return the GPUs of all nodes together. Replicas have GPUs of their own, groups of attention have not."""
    together = _kv.is_on(inp.arguments.get("enable-dp-attention", False)) or inp.arguments.get("attn-dp-size")
    return model_ranks(inp) * (1 if together else size(inp, "dp-size"))


def gpu_range(inp):
    """Return (first, last, step) of the places of the GPUs that the server takes on this host, counted from 0."""
    wanted = max(1, _gpus_of_all(inp) // size(inp, "nnodes"))
    first = argument_number(inp.arguments, "base-gpu-id", 0, minimum=0)
    step = size(inp, "gpu-id-step")
    return first, first + (wanted - 1) * step, step


def local_gpus(inp):
    """Return the entries of C(gpus) that the server uses on this host, all of them when that cannot be told.

    Raises TooFewGpus when the host has fewer GPUs than the arguments need.
    """
    if inp.device == "cpu" or not inp.gpus:
        return list(inp.gpus)
    first, last, step = gpu_range(inp)
    if last >= len(inp.gpus):
        raise TooFewGpus(
            f"Expected at least {last + 1} GPUs for tp-size x pp-size x dp-size = {_gpus_of_all(inp)} in the"
            f" server arguments, found {len(inp.gpus)} in gpus:"
            " lower tp-size, or give the entries of all GPUs."
        )
    return [inp.gpus[index] for index in range(first, last + 1, step)]


def mib(entry, name):
    """Return a size of a GPU entry in MiB, or None."""
    value = entry.get(name)
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise BadInput(
            f"Expected {name} of a GPU as MiB of at least 0, found {value!r}: give gpus as gpu_info returns it."
        )
    return number


def is_unified(inp):
    """Return whether the boards have no memory of their own and use that of the machine."""
    return inp.device != "cpu" and any(entry.get("unified_memory") for entry in inp.gpus)


def compute_capability(inp):
    """Return the compute capability of the boards as text, or None."""
    found = [entry.get("compute_capability") for entry in inp.gpus]
    return str(found[0]) if found and found[0] else None


def board_mib(inp):
    """Return the size of the smallest board in MiB, or None."""
    totals = [mib(entry, "memory_total_mib") for entry in local_gpus(inp)]
    if not totals or None in totals:
        given = inp.free_before_load_gib
        return None if given is None or inp.device == "cpu" else given * 1024.0
    return min(totals)


# ---------------------------------------------------------------------------
# Measurements
# ---------------------------------------------------------------------------


def teaches(record, quantity, keys):
    """Return whether a measurement or death speaks about C(quantity) of the current keys. No keys: it always does."""
    theirs = (record.get("keys") or {}).get(quantity)
    ours = (keys or {}).get(quantity)
    return theirs is None or ours is None or theirs == ours


def newest(measurements, wanted):
    """Return the newest measurement (the last of the list) for which C(wanted) holds."""
    return next((one for one in reversed(measurements) if wanted(one)), None)
