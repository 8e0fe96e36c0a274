# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, the boards of a plan: which the server uses, what other servers of the host will take of them. Private.

What is wrong with the boards of a host is no bad input: it is the refusal of the plan, so that the plans of a fleet
show it beside the others.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_inputs as known
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_records as checked
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_choice import (
    VISIBLE,
    WHERE,
    order_warning,
    refuse_unhealthy,
    visible,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._gpu_failures import GpuError

MIB_PER_GIB = 1024.0


# ---------------------------------------------------------------------------
# Those that the server uses
# ---------------------------------------------------------------------------


def chosen(inp):
    """Return a PlanInput with the boards that CUDA shows the server, or with none and why they cannot be used."""
    if inp.device == "cpu":
        return inp
    if not inp.gpus:
        return _unlisted(inp)
    warning = order_warning(inp.gpus, inp.environment)
    inp = replace(inp, board_warnings=(warning,) if warning else ())
    try:
        shown = replace(inp, gpus=visible(inp.gpus, inp.environment))
    except GpuError as error:
        return _without(inp, str(error))
    try:
        refuse_unhealthy(known.local_gpus(shown))
    except GpuError as error:
        return _without(inp, str(error))
    except known.TooFewGpus as error:
        return _without(inp, _too_few(inp, shown) if len(shown.gpus) < len(inp.gpus) else str(error))
    return shown


def _unlisted(inp):
    """The GPUs are not known yet; how many of them CUDA shows the server, its environment says."""
    stated = inp.environment.get(VISIBLE)
    names = [] if stated is None else [name for name in str(stated).split(",") if name.strip()]
    wanted = known.gpu_range(inp)[1] + 1
    if stated is None or len(names) >= wanted:
        return inp
    return _without(
        inp,
        f"{VISIBLE} in {WHERE} names {len(names)} GPUs, and tp-size, pp-size and dp-size take {wanted}: name more GPUs"
        " there, or lower tp-size in the server arguments.",
    )


def _without(inp, refusal):
    return replace(inp, gpus=(), board_refusal=refusal)


def _too_few(inp, shown):
    sizes = " x ".join(f"{name} {known.size(inp, name)}" for name in ("tp-size", "pp-size", "dp-size"))
    return (
        f"{VISIBLE} in {WHERE} names {len(shown.gpus)} of {len(inp.gpus)} GPUs, too few for {sizes}: name more GPUs"
        " there, or lower tp-size in the server arguments."
    )


# ---------------------------------------------------------------------------
# What other servers of this host will take
# ---------------------------------------------------------------------------


def other_instances(params):
    """Return the option C(other_instances) after a look at it. Raises BadInput."""
    found = []
    for index, one in enumerate(params.get("other_instances") or ()):
        where = f"entry {index + 1} of other_instances"
        boards = one.get("boards") or []
        if not isinstance(boards, (list, tuple)) or not all(isinstance(board, dict) for board in boards):
            checked.refuse(f"boards of {where}", "a list of dictionaries as memory_plan returns it", boards)
        for board in boards:
            name, bounds = f"more_gib of {where}", checked.GIB
            if not bounds.holds(checked.number(name, board.get("more_gib"), bounds.expected)):
                checked.refuse(name, bounds.expected, board.get("more_gib"))
        found.append({"instance": str(one.get("instance") or "another"), "boards": list(boards)})
    return tuple(found)


def _same(entry, board, cpu):
    """Return whether both are one board: by UUID, where one has none by index. The memory of a CPU is one."""
    if cpu:
        return True
    uuids = entry.get("uuid"), board.get("uuid")
    if None not in uuids:
        return uuids[0] == uuids[1]
    return entry.get("index") is not None and entry.get("index") == board.get("index")


def claims(inp, entry):
    """Return [(instance, GiB)] of what other servers of this host will take of a board more than they hold now."""
    found = []
    for one in inp.other_instances:
        mine = [board for board in one["boards"] if _same(entry, board, inp.device == "cpu")]
        gib = max((float(board["more_gib"]) for board in mine), default=0.0)
        if gib > 0:
            found.append((one["instance"], gib))
    return found


def taken(inp, takes_gib, held_mib):
    """Return what this server will take of each of its boards, as the plan of another server of the host wants it.

    C(takes_gib): at the peak of the load; C(held_mib): what it holds now of each board, None where that is not known:
    then it is in the free memory that the other plan sees, as a process of somebody.
    """
    result = []
    for entry, held in zip(known.local_gpus(inp), held_mib):
        more = 0.0 if held is None else max(0.0, takes_gib - held / MIB_PER_GIB)
        result.append(
            {
                "index": entry.get("index"),
                "uuid": entry.get("uuid"),
                "gib": round(takes_gib, 3),
                "more_gib": round(more, 3),
            }
        )
    return result
