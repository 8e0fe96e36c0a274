# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, what the solver stands on: free before load, what is gone after it, the cell, the noise. Private."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_before as before_load
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_used as after_load
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_inputs import (
    BadInput,
    Figure,
    board_mib,
    compute_capability,
    draft_by_path,
    model_ranks,
    newest,
    page_tokens,
    size,
    teaches,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts import is_set
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import keys as keys_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import argument_number


@dataclass(frozen=True)
class Base:
    """What the solver stands on. Any of the figures may be None; C(missing) then names the input that would give it.

    C(cell): a Cell of the room kv, or None.
    """

    before: Figure | None
    used: after_load.Used | None
    cell: object | None
    cell_source: str
    cell_note: str
    noise: tables.Amount
    board_mib: float | None
    free: before_load.Free | None
    missing: tuple

    @property
    def complete(self):
        return self.before is not None and self.used is not None and self.cell is not None

    @property
    def plan_free_gib(self):
        return None if self.free is None else self.free.gib

    @property
    def after_gib(self):
        return self.before.gib - self.used.total.gib


def _plain(value):
    """The cell is a whole number in most layouts, and is shown as one then."""
    return int(value) if value == int(value) else value


def _with_options(inp):
    """Return the arguments with what options state that layouts look at (requests: states and window pools)."""
    stated = {"max-running-requests": inp.max_running_requests, "context-length": inp.context_tokens}
    return dict(inp.arguments, **{name: value for name, value in stated.items() if value is not None})


def _with_draft(inp):
    """Return the geometry with that of a draft model of its own, whose rows the pool has too."""
    draft = inp.draft_geometry
    return dict(inp.geometry, draft_geometry=draft) if draft and draft_by_path(inp) else inp.geometry


def cell_of(inp, keys):
    """Return (Cell or None, source, note)."""
    pages = page_tokens(inp)
    if inp.cell_bytes is not None:
        return _kv.plain_cell(_plain(inp.cell_bytes), pages), "given", "cell_bytes"
    note = "geometry is not given"
    if inp.geometry:
        try:
            cell = _kv.cell_bytes(
                _with_draft(inp),
                _with_options(inp),
                inp.engine_version,
                environment=inp.environment,
                gpu_capability=compute_capability(inp),
            )
            return cell, "table", "; ".join(part["source"] for part in cell.parts)
        except _kv.UnknownLayout as error:
            note = str(error)
    measured = newest(inp.measurements, lambda one: one.get("cell_bytes") and teaches(one, "cell", keys))
    if measured is not None:
        return _kv.plain_cell(_plain(measured["cell_bytes"]), pages), "measured", "from the pool of an earlier start-up"
    return None, "", note


def _check_division(inp):
    """Raise what _kv raises when tensor parallelism does not divide the heads, also where the cell itself is given."""
    shared = _kv.ranks(inp.arguments, inp.engine_version)
    heads = (inp.geometry or {}).get("attention_heads")
    if heads is not None and _kv.whole_number(heads, "attention_heads of the geometry") % shared.attention_tp:
        raise BadInput(
            f"Expected the {heads} attention heads to be a multiple of the attention ranks, found"
            f" {shared.attention_tp} ranks: change tp-size in the server arguments."
        )
    _check_nodes(inp)
    _check_experts(inp)


def _check_nodes(inp):
    """Source: srt/arg_groups/validation_hook.py, sglang 0.5.23; server_args.py before."""
    ranks, nodes = model_ranks(inp), size(inp, "nnodes")
    if ranks % nodes:
        raise BadInput(
            f"Expected tp-size x pp-size to be a multiple of nnodes, found {ranks} and {nodes}: change one of them in"
            " the server arguments."
        )


def _check_chunk(inp):
    """A prompt is cut at whole pages. Source: srt/arg_groups/validation_hook.py, sglang 0.5.6 server_args.py."""
    if inp.chunk_tokens is None or inp.chunk_tokens < 1:
        return
    page = page_tokens(inp)
    if inp.chunk_tokens % page:
        nearest = max(inp.chunk_tokens // page, 1) * page
        raise BadInput(
            f"Expected chunked_prefill_size to be whole pages of {page} tokens, found {inp.chunk_tokens}: set"
            f" sglang_server_chunked_prefill_size: {nearest}."
        )


def _check_experts(inp):
    """The ranks are shared out among expert groups, and the experts among the ranks of one.

    Source: srt/distributed/parallel_state.py, srt/layers/moe/fused_moe_triton/layer.py (storage_ep_size).
    """
    tp, ep, groups = (size(inp, name) for name in ("tp-size", "ep-size", "moe-dp-size"))
    if tp % (ep * groups):
        raise BadInput(
            f"Expected tp-size to be a multiple of ep-size x moe-dp-size, found {tp} and {ep} x {groups}: change"
            " ep-size in the server arguments."
        )
    experts = (inp.geometry or {}).get("experts")
    if ep == 1 or not experts:
        return
    spare = argument_number(inp.arguments, "ep-num-redundant-experts", 0, minimum=0)
    if (_kv.whole_number(experts, "experts of the geometry") + spare) % ep:
        more = f" and {spare} redundant ones" if spare else ""
        raise BadInput(
            f"Expected the {experts} experts{more} to be a multiple of ep-size, found {ep}: change ep-size in the"
            " server arguments."
        )


def _check_sizing(inp):
    """Sizing after the graphs were captured is another rule, off by default in every version."""
    if inp.device == "cpu" or not is_set(inp.environment.get(tables.POST_CAPTURE_NAME)):
        return
    if version_at_least(inp.engine_version, tables.POST_CAPTURE_SINCE):
        raise BadInput(
            f"Expected {tables.POST_CAPTURE_NAME} to be off, found it on in the environment: the pool is then sized"
            " after graph capture, which a plan cannot predict, so take it out of sglang_server_environment."
        )


def keys_for(inp, arguments, environment):
    return keys_of(arguments, environment, inp.geometry, inp.weight_bytes, inp.engine_version)


def base_of(inp):
    """Gather what the solver needs, and name what is missing."""
    _check_division(inp)
    _check_sizing(inp)
    _check_chunk(inp)
    keys = inp.keys or keys_for(inp, inp.arguments, inp.environment)
    free = before_load.free_now(inp)
    before = before_load.free_before_load(inp, free)
    cell, cell_source, cell_note = cell_of(inp, keys)
    used = after_load.used_after_load(inp, before, cell, keys)
    missing = []
    if before is None and not inp.board_refusal:
        missing.append("gpus" if not inp.gpus else "free_before_load_gib")
    if used is None:
        draft = inp.weight_bytes is not None and draft_by_path(inp)
        missing.append("draft_weight_bytes" if draft else "weight_bytes")
    if cell is None:
        missing.append("cell_bytes" if inp.geometry else "geometry")
    if inp.target_tokens is None and inp.pool_policy == "promise":
        missing.append("target_tokens")
    noise = after_load.noise_row(inp, used)
    return Base(before, used, cell, cell_source, cell_note, noise, board_mib(inp), free, tuple(missing))
