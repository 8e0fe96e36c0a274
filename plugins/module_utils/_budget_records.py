# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, records of earlier start-ups and deaths, and what their figures can be. Private."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import BadInput
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_key

WAY_OUT = "state such a value, or leave the option out"


def refuse(name, expected, value):
    """Raise the one sentence for a value that cannot be right."""
    raise BadInput(f"Expected {expected} for {name}, found {value!r}: {WAY_OUT}.")


def number(name, value, expected):
    """Return a number from a number or its text; booleans, NaN and other texts are refused."""
    if isinstance(value, bool):
        refuse(name, expected, value)
    if isinstance(value, str):
        try:
            value = float(value.strip())
        except ValueError:
            refuse(name, expected, value)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        refuse(name, expected, value)
    return value


# Server arguments that are whole numbers of at least C(minimum), those that a plan counts with.
WHOLE_ARGUMENTS = (
    (1, ("tp-size", "pp-size", "dp-size", "ep-size", "nnodes", "gpu-id-step", "attn-cp-size", "attn-dp-size")),
    (1, ("moe-dp-size", "moe-dense-tp-size", "dcp-size", "page-size", "max-total-tokens", "max-prefill-tokens")),
    (1, ("cuda-graph-max-bs", "cuda-graph-max-bs-decode", "max-mamba-cache-size", "max-lora-rank")),
    (1, ("max-loras-per-batch",)),
    (0, ("base-gpu-id", "cpu-offload-gb", "hicache-size", "swa-prefix-tails", "ep-num-redundant-experts")),
    (0, ("kt-num-gpu-experts", "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")),
)
# And those that are numbers above 0.
REAL_ARGUMENTS = ("swa-full-tokens-ratio", "mamba-full-memory-ratio", "hicache-ratio")
LARGEST_ARGUMENT = 10**12


def check_arguments(arguments):
    """Raise BadInput for a server argument that cannot be right, also one that this model has no use for."""
    for minimum, names in WHOLE_ARGUMENTS:
        for name in names:
            if arguments.get(name) is not None:
                _argument(arguments, name, f"a whole number of at least {minimum}", minimum, int)
    for name in REAL_ARGUMENTS:
        if arguments.get(name) is not None:
            _argument(arguments, name, "a number above 0", 0, float)


def _argument(arguments, name, expected, least, kind):
    value = arguments[name]
    found = number(f"the server argument {name}", value, expected)
    too_small = found < least or (kind is float and found == 0)
    if too_small or found > LARGEST_ARGUMENT or (kind is int and found != int(found)):
        refuse(f"the server argument {name}", expected, value)


@dataclass(frozen=True)
class Bounds:
    """What a figure can be: from C(least) to C(most), both included unless C(between)."""

    expected: str
    least: float
    most: float
    between: bool = False

    def holds(self, value):
        return self.least < value < self.most if self.between else self.least <= value <= self.most


# More than any machine has: a figure above is a slip of the units.
FRACTION = Bounds("a fraction between 0 and 1", 0, 1, between=True)
TOKENS = Bounds("a count of tokens from 0 to 10^12", 0, 10**12)
GIB = Bounds("a size in GiB from 0 to 10^6", 0, 10**6)
MIB = Bounds("a size in MiB from 0 to 10^9", 0, 10**9)
BYTES = Bounds("bytes from 0 to 10^12", 0, 10**12)

MEASURED = {
    "fraction": FRACTION,
    "cap_tokens": TOKENS,
    "pool_tokens": TOKENS,
    "free_before_load_gib": GIB,
    "free_after_load_gib": GIB,
    "weights_gib": GIB,
    "kv_gib": GIB,
    "cell_bytes": BYTES,
    "headroom_gib": GIB,
    "least_free_gib": GIB,
    "graph_gib": GIB,
    "plan_free_gib": GIB,
}
DEATH = {
    "reserve_needed_gib": GIB,
    "wanted_gib": GIB,
    "wanted_mib": MIB,
    "reserved_unallocated_gib": GIB,
}


def records(params, name, figures):
    """Return the records of an option after a look at the C(figures) that the arithmetic uses, as {name: Bounds}."""
    found = tuple(params.get(name) or ())
    for index, record in enumerate(found):
        where = f"entry {index + 1} of {name}"
        for key in ("keys", "figures"):
            if record.get(key) is not None and not isinstance(record[key], dict):
                refuse(f"{key} of {where}", "a dictionary", record[key])
        _check_words(record, where)
        _check(record, figures, where)
        _check(record.get("figures") or {}, figures, where)
        _check_load(record, where)
    return tuple({key: _plain(value) for key, value in record.items()} for record in found)


ORIGINS = ("host", "play", "inventory")  # the start-up was of this host, of a host of this play, or somebody stated it


def _check_words(record, where):
    if record.get("origin") not in (None, *ORIGINS):
        refuse(f"origin of {where}", "one of " + ", ".join(ORIGINS), record["origin"])
    version = record.get("engine_version")
    if version in (None, ""):
        return
    try:
        version_key(version)
    except ValueError:
        refuse(f"engine_version of {where}", "a version such as 0.5.23", version)


def _check_load(record, where):
    before, after = (record.get(name) for name in ("free_before_load_gib", "free_after_load_gib"))
    if None not in (before, after) and float(after) > float(before):
        refuse(f"free_after_load_gib of {where}", f"at most its free_before_load_gib of {before}", after)


def _check(record, figures, where):
    for key, bounds in figures.items():
        value = record.get(key)
        if key == "graph_gib" and record.get("headroom_gib") is not None:
            continue  # not used beside a printed headroom; graphs may have given memory back, and it is below 0 then
        if value is not None and not bounds.holds(number(f"{key} of {where}", value, bounds.expected)):
            refuse(f"{key} of {where}", bounds.expected, value)


def _plain(value):
    """Numbers that a template turned to text become numbers again, also those of a dictionary in the record."""
    if isinstance(value, dict):
        return {key: _plain(one) if key in DEATH else one for key, one in value.items()}
    if isinstance(value, str):
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            return value
    return value
