# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: conflicts. Which settings bite each other, by version and topology, with the source of each. Private.

Today that is the allocator: expandable segments clear the fragmentation that kills long prefills, but such memory
cannot be exported the way that older collectives, transfer engines and tools need. And the name of its variable, which
depends on the version of torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least

EXPANDABLE_SEGMENTS = "expandable_segments:True"

# --- the name of the variable -----------------------------------------------------------------------------------------

OLD_NAME = "PYTORCH_CUDA_ALLOC_CONF"
NEW_NAME = "PYTORCH_ALLOC_CONF"
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


# --- expandable segments and what they do not go together with --------------------------------------------------------


@dataclass(frozen=True)
class Conflict:
    """A setting that does not go together with expandable segments.

    C(argument) switched on, or with the value C(value); C(multimodal): only models that take images or sound.
    """

    name: str
    source: str
    argument: str | None = None
    value: str | None = None
    unless: tuple = ()  # (argument, value): not a conflict then
    multimodal: bool = False
    since: str = "0.0"


CONFLICTS = (
    Conflict(
        "enable-memory-saver",
        "fzyzcjy/torch_memory_saver pull 25: refuses expandable segments, and overlooks the newer variable name",
        argument="enable-memory-saver",
    ),
    Conflict(
        "enable-symm-mem",
        "pytorch/pytorch issue 147851: the pluggable allocator of symmetric memory is ignored",
        argument="enable-symm-mem",
    ),
    Conflict(
        "moe-a2a-backend deepep",
        "uccl-project/uccl issue 839: registered buffers, Bad address",
        argument="moe-a2a-backend",
        value="deepep",
    ),
    Conflict(
        "disaggregation-mode prefill",
        "kvcache-ai/Mooncake issue 2511, ai-dynamo/nixl issue 1754: cannot register such memory, or is very slow",
        argument="disaggregation-mode",
        value="prefill",
    ),
    Conflict(
        "disaggregation-mode decode",
        "kvcache-ai/Mooncake issue 2511, ai-dynamo/nixl issue 1754: cannot register such memory, or is very slow",
        argument="disaggregation-mode",
        value="decode",
    ),
    Conflict(
        "weight-cache-mode",
        "sgl-project/sglang pull 27139: expandable memory cannot be exported",
        argument="weight-cache-mode",
    ),
    Conflict(
        "mm-feature-transport",
        "sgl-project/sglang pull 30904: features travel by legacy IPC handles (by the mechanism, no report seen)",
        unless=("mm-feature-transport", "cpu"),
        multimodal=True,
        since="0.5.18",
    ),
)

# With several ranks, custom all-reduce exports graph buffers; it knows expandable memory from this version on
# (sgl-project/sglang pull 27593, custom_all_reduce_v2.py), but only where all pairs of boards have NVLink. On two PCIe
# boards the older way is taken, which does not; on more than two, custom all-reduce switches itself off.
COLLECTIVE_SINCE = "0.5.13"
OLD_COLLECTIVE = "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2"
NO_COLLECTIVE = "disable-custom-all-reduce"


OFF = ("", "false", "no", "off", "none", "null", "0")


def is_set(value):
    """Return whether a flag, a mode or a variable is switched on: None, false, off, none and 0 are not."""
    return value not in (None, False, 0) and str(value).strip().lower() not in OFF


def _bites(row, arguments, engine_version, multimodal):
    if not version_at_least(engine_version, row.since):
        return False
    if row.unless and str(arguments.get(row.unless[0])) == row.unless[1]:
        return False
    if row.multimodal and not multimodal:
        return False
    if row.argument is None:
        return True
    value = arguments.get(row.argument)
    return is_set(value) if row.value is None else str(value) == row.value


def expandable_conflict(arguments, environment, engine_version, ranks, nvlink=None, multimodal=False):
    """Return what forbids expandable segments here as text with its source, or "" when nothing known does.

    C(arguments) canonical; C(ranks): tensor-parallel ranks; C(nvlink): whether all pairs of boards have NVLink, None
    when that is not known (the worse case counts then).
    """
    for row in CONFLICTS:
        if _bites(row, arguments, engine_version, multimodal):
            return f"{row.name} ({row.source})"
    if ranks == 1 or is_set(arguments.get(NO_COLLECTIVE)):
        return ""
    if nvlink is False and ranks > 2:
        return ""  # the engine itself switches custom all-reduce off
    old = OLD_COLLECTIVE in environment and not is_set(environment[OLD_COLLECTIVE])
    if old or not version_at_least(engine_version, COLLECTIVE_SINCE) or (ranks == 2 and not nvlink):
        return (
            f"custom all-reduce of {ranks} ranks (set {NO_COLLECTIVE} to allow it; sgl-project/sglang pull 27593,"
            " custom_all_reduce.py)"
        )
    return ""
