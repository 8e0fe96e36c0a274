# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: conflicts. Which settings bite each other, by version and topology, with the source of each. Private.

Most of it is the allocator: expandable segments clear the fragmentation that kills long prefills, but such memory
cannot be exported the way that older collectives, transfer engines and tools need. The catalogue is _conflicts_rows.
What a setup hits is looked up here: look() gives all of it, expandable_conflict() what keeps a plan from choosing
expandable segments by itself. And the name of the allocator's variable, which depends on the version of torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _conflicts_rows as rows
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_topology import all_pairs

EXPANDABLE_SEGMENTS = "expandable_segments:True"

# --- the name of the variable -----------------------------------------------------------------------------------------

OLD_NAME, NEW_NAME = rows.OLD_NAME, rows.NEW_NAME
# Where both are there, torch reads the old one, even when it is empty (huggingface/trl pull 5794).
ALLOCATOR_NAMES = (OLD_NAME, NEW_NAME)
NEW_NAME_FROM_TORCH = (2, 10)


@dataclass(frozen=True)
class TorchPin:
    """The torch that SGLang pins from engine version C(since) on. C(source): package metadata of SGLang."""

    since: str
    torch: str
    source: str


TORCH_PINS = (
    TorchPin("0.0", "2.5.1", "sglang 0.4.3 and before"),
    TorchPin("0.4.6", "2.6.0", "sglang 0.4.6"),
    TorchPin("0.4.9", "2.7.1", "sglang 0.4.9 and 0.4.10"),
    TorchPin("0.5.2", "2.8.0", "sglang 0.5.2 to 0.5.4"),
    TorchPin("0.5.6", "2.9.1", "sglang 0.5.6 to 0.5.10"),
    TorchPin("0.5.11", "2.11.0", "sglang 0.5.11 to 0.5.16"),
    TorchPin("0.5.18", "2.13.0", "sglang 0.5.18 to 0.5.20"),
    TorchPin("0.5.22", "2.14.1", "sglang 0.5.22 and 0.5.23"),
)


def torch_of(engine_version):
    """Return the version of torch that an engine pins; of the newest row when the version is not known."""
    return [row for row in TORCH_PINS if version_at_least(engine_version, row.since)][-1].torch


def _major_minor(torch_version):
    found = re.match(r"(\d+)\.(\d+)", str(torch_version or ""))
    return (int(found.group(1)), int(found.group(2))) if found else None


def allocator_name(environment, torch_version=None, engine_version=None):
    """Return the variable that carries the allocator configuration: one that the user chose is kept.

    C(torch_version): as engine_info gives it; not given (or not a version), the pin of the engine counts.
    """
    for name in ALLOCATOR_NAMES:
        if name in environment:
            return name
    torch = _major_minor(torch_version) or _major_minor(torch_of(engine_version))
    return NEW_NAME if torch >= NEW_NAME_FROM_TORCH else OLD_NAME


def with_allocator(environment, conf, torch_version=None, engine_version=None):
    """Return the environment with the allocator configuration under one name: never two of them, never an empty one.

    C(conf) empty: what the user set stays.
    """
    name = allocator_name(environment, torch_version, engine_version)
    kept = {key: value for key, value in environment.items() if key not in ALLOCATOR_NAMES}
    value = conf or allocator_value(environment)
    return dict(kept, **{name: value}) if value else kept


def allocator_value(environment):
    """Return what the environment sets for the allocator, as torch reads it; "" for nothing."""
    found = [str(environment[name]).strip() for name in ALLOCATOR_NAMES if name in environment]
    return next((value for value in found if value), "")


OFF_WORDS = ("", "false", "no", "off", "none", "null", "0")


def is_set(value):
    """Return whether a flag, a mode or a variable is switched on: None, false, off, none and 0 are not."""
    return value not in (None, False, 0) and str(value).strip().lower() not in OFF_WORDS


# --- what a setup hits ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What is asked about. C(arguments) canonical and C(environment): those of one server, all layers merged.

    C(allocator_conf): what its allocator will be set to, "" for torch's own. C(gpus): the boards of its ranks on this
    host in their order, as gpu_info returns them; empty where no host was looked at. C(multimodal): None: not known.
    """

    arguments: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)
    allocator_conf: str = ""
    engine_version: str | None = None
    torch_version: str | None = None
    gpus: tuple = ()
    multimodal: bool | None = None


@dataclass(frozen=True)
class Hit:
    """A row of the catalogue that applies. C(certain): all that it asks for is known; else a part of it is not."""

    conflict: rows.Conflict
    certain: bool

    @property
    def level(self):
        """The level; what would be refused and is not known to apply may be tried, and has to prove itself."""
        return rows.PROOF if self.conflict.level == rows.REFUSED and not self.certain else self.conflict.level


def look(setup):
    """Return the Hits of a setup in the order of the catalogue. What only a journal can tell is not among them."""
    found, groups = [], [replace(setup, gpus=boards) for boards in _groups(setup)]
    for conflict in rows.CONFLICTS:
        holds = [_holds(when, group) for when in conflict.when for group in groups]
        if conflict.level != rows.NOTICED and any(one is not False for one in holds):
            found.append(Hit(conflict, True in holds))
    return found


def expandable_conflict(arguments, environment, engine_version, gpus=(), multimodal=None, torch_version=None):
    """Return what keeps a plan from choosing expandable segments by itself, as text with its source, or "".

    What is not known counts as the worse case. C(gpus): the boards of the server, as gpu_info returns them.
    """
    setup = Setup(arguments, environment, EXPANDABLE_SEGMENTS, engine_version, torch_version, tuple(gpus), multimodal)
    for hit in look(setup):
        if not hit.conflict.lever:
            return f"{hit.conflict.name}: {hit.conflict.happens}; {hit.conflict.repair} ({hit.conflict.source})"
    return ""


def _groups(setup):
    """Return the boards of each tensor-parallel group on this host: a server may have several, of boards in a row."""
    size = ranks_of(setup.arguments)[1]
    if size == 1 or len(setup.gpus) <= size:
        return [setup.gpus]
    return [setup.gpus[first : first + size] for first in range(0, len(setup.gpus) - size + 1, size)]


def is_expandable(conf):
    """Return whether a configuration of the allocator has expandable segments, in any spelling of True."""
    return _settings(conf).get("expandable_segments", "").lower() == "true"


def _settings(conf):
    pairs = (part.partition(":")[::2] for part in str(conf or "").split(","))
    return {name.strip(): value.strip() for name, value in pairs}


def ranks_of(arguments):
    """Return (tensor-parallel ranks, ranks of such a group on one host); 1 for a group that spans hosts.

    A size that is no whole number counts as 1: other checks say what is wrong with it.
    """
    tp, pp, hosts = (_whole(arguments.get(name)) for name in ("tp-size", "pp-size", "nnodes"))
    return tp, tp if tp * pp // hosts >= tp else 1


def _whole(value):
    try:
        return max(1, int(str(value).strip()))
    except ValueError:
        return 1


def _holds(when, setup):
    """Return whether all of C(when) holds: True, False, or None where something is not known and nothing is False."""
    known = True
    for told in _conditions(when, setup):
        if told is False:
            return False
        known = known and told is not None
    return True if known else None


def _conditions(when, setup):
    """Yield True, False or None for each thing that a row asks for, what costs least first."""
    yield not when.expandable or is_expandable(setup.allocator_conf)
    for values, pairs in (
        (setup.arguments, when.arguments),
        (setup.environment, when.variables),
        (_settings(setup.allocator_conf), when.settings),
    ):
        for name, wanted in pairs:
            yield any(_is(values.get(name), one) for one in wanted)
    yield not any(is_set(setup.arguments.get(name)) for name in when.unless)
    ranks, group = ranks_of(setup.arguments)
    yield ranks >= when.least_ranks
    yield not when.ranks or group in when.ranks
    yield not when.since or version_at_least(setup.engine_version, when.since)
    yield not when.before or not version_at_least(setup.engine_version, when.before)
    if when.torch_before:
        yield (_major_minor(setup.torch_version) or _major_minor(torch_of(setup.engine_version))) < when.torch_before
    yield from _of_boards(when, setup)
    yield when.multimodal is None or (None if setup.multimodal is None else setup.multimodal is when.multimodal)


def _of_boards(when, setup):
    for wanted, key in ((when.nvlink, "nvlinks"), (when.peers, "peers")):
        if wanted is not None:
            found = all_pairs(setup.gpus, key)
            yield None if found is None else found is wanted
    if when.board:
        yield any(re.search(when.board, str(gpu.get("name") or "")) for gpu in setup.gpus)


def _is(value, wanted):
    """Return whether a value is what a row asks for; see the top of the catalogue."""
    text = "" if value is None else str(value).strip()
    if wanted == rows.ABSENT:
        return value is None
    if wanted.startswith("~"):
        return re.search(wanted[1:], text) is not None
    known = {
        rows.STATED: value is not None,
        rows.EMPTY: value is not None and not text,
        rows.ON: is_set(value),
        rows.OFF: value is not None and not is_set(value),
    }
    return known[wanted] if wanted in known else text.lower() == wanted


# --- for people -------------------------------------------------------------------------------------------------------


def sentence(hit, where=""):
    """Return a Hit as one sentence: what was found, what happens, what repairs it, and the source.

    C(where): the variable by which expandable segments are set.
    """
    row = hit.conflict
    subject = row.name[0].upper() + row.name[1:]
    if any(when.expandable for when in row.when):
        subject = "Expandable segments{} with {}".format(f" ({where})" if where else "", row.name)
    doubt = "" if hit.certain else "not known to apply here, and if so "
    return f"{subject}: {doubt}{row.happens}; {row.repair} ({row.source})."


# What is said behind a line of the plan, by its level.
SAID = {
    rows.PROOF: "allowed, and kept only when start-up and soak prove it",
    rows.WARNED: "allowed, and no start-up shows it",
}


def notes(hits):
    """Return the lines of a plan, without a full stop: what has to prove itself, and what no start-up will show."""
    return [f"{sentence(hit)[:-1]}: {SAID[hit.level]}" for hit in hits if hit.level in SAID]


def refusal(hits, where=""):
    """Return the sentence for which a setup must not be started, or None. C(where): what sets the allocator."""
    return next((sentence(hit, where) for hit in hits if hit.level == rows.REFUSED), None)


# --- known, and not asked for ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elsewhere:
    """What is known to bite with expandable segments, and why no row of this catalogue asks for it."""

    row: str
    name: str
    why: str
    source: str


ELSEWHERE = (
    Elsewhere(
        "X2",
        "custom all-reduce of vLLM",
        "another engine; its line (custom_all_reduce.cuh, invalid argument) is known to the catalogue of failures",
        "vllm-project/vllm issues/42609, pulls 56193 and 43923",
    ),
    Elsewhere("X12", "sleep mode of vLLM", "another engine", "vllm-project/vllm pulls 11743 and 40812"),
    Elsewhere(
        "X14",
        "receivers of handles of such memory",
        "a server imports none by torch's own handles but image features (X9)",
        "pytorch/pytorch issues/186213 and issues/198305",
    ),
    Elsewhere(
        "-",
        "all-reduce of FlashInfer over PCIe (SGLANG_ENABLE_PCIE_IPC_ALLREDUCE)",
        "its buffers come from cudaMalloc, not from torch",
        "flashinfer 0.7.2 comm/pcie_ipc_ar.py, sglang 0.5.21 and later",
    ),
    Elsewhere(
        "-",
        "custom all-reduce of more than two boards without NVLink, or of a group across hosts",
        "it switches itself off",
        f"{rows.LEGACY} and custom_all_reduce_utils.py of sglang 0.5.23",
    ),
    Elsewhere(
        "-",
        "one rank (tp-size 1)",
        "nothing of custom all-reduce and symmetric memory (X1, X1b, X4) applies; X3 and X5 to X17 do",
        "use_symmetric_memory in pynccl_allocator.py of sglang 0.5.12 to 0.5.23",
    ),
)
