# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: from REST to the pool, and from a wanted pool back to REST. Private to the collection.

REST is what the fraction leaves on the worst rank, in bytes. Everything that the engine does between REST and
C(max_total_num_tokens) is here: states, the window pool, whole pages, the cap.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_linear as linear
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import LayoutError, whole_number
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_window import TwoStep


@dataclass(frozen=True)
class Cell:
    """The cell and how it came about, for one rank of the worst pipeline stage.

    C(bytes): what the engine charges REST for one pool token; C(parts) sum to it. C(stored_bytes): what the pools
    inside the fraction really take for it. C(outside_bytes): what it takes outside the fraction (a draft's rows before
    0.5.14). Both differences come out of the headroom.
    """

    bytes: int | float
    parts: list
    kv_dtype: str
    tp: int  # ranks that share the attention heads
    note: str
    layers: int  # attention layers of the worst stage
    layout: str
    stored_bytes: int | float = 0
    outside_bytes: int | float = 0
    full_bytes: int | float = 0  # a token of the full pool, all its layers
    window_bytes: int | float = 0  # a token of the window pool, all its layers
    window_ratio: float | None = None  # window tokens a pool token
    window_fixed_tokens: int | None = None  # window tokens when they follow from the running requests
    window_floor_tokens: int | None = None  # the engine refuses a window pool of this many tokens or fewer
    state: linear.State | None = None
    enlarged_tokens: int = 0  # added to the pool after it was sized (up to 0.5.6, speculation)
    page_tokens: int = 1
    two_step: TwoStep | None = None
    fixed_bytes: int = 0  # charged before the first token, whatever the pool (states of compressed attention)

    def as_dict(self):
        return asdict(self)


@dataclass(frozen=True)
class Pool:
    """What the engine makes of REST. Bytes of one rank; C(tokens) is max_total_num_tokens."""

    tokens: int
    window_tokens: int | None = None
    state_slots: int | None = None
    state_bytes: int = 0
    scratch_bytes: int = 0
    stored_bytes: int = 0  # all that the pools inside the fraction take on the board
    outside_bytes: int = 0
    max_running_requests: int | None = None
    problem: str | None = None


def whole(number):
    """Return C(number) as int when it is one: ratios make cells that are not."""
    return int(number) if float(number).is_integer() else float(number)


def plain_cell(size_bytes, page_tokens=1):
    """Return a Cell for a cell that the user states or that was measured."""
    return Cell(
        bytes=size_bytes,
        parts=[{"name": "cell", "bytes": size_bytes, "source": "cell_bytes"}],
        kv_dtype="",
        tp=1,
        note="",
        layers=0,
        layout="given",
        stored_bytes=size_bytes,
        full_bytes=size_bytes,
        page_tokens=whole_number(page_tokens, "page_tokens"),
    )


def fixed_bytes(cell):
    """Return what is charged before the first token, whatever the pool."""
    return cell.fixed_bytes + math.ceil((cell.window_fixed_tokens or 0) * cell.window_bytes)


def _pages(tokens, page_tokens):
    return int(tokens) // page_tokens * page_tokens


def _tokens(cell, left_bytes, cap_tokens):
    """Return the pool tokens for what is left after the states."""
    page = cell.page_tokens
    if cell.two_step is not None:
        first = left_bytes // cell.two_step.cell + cell.enlarged_tokens
        if cap_tokens is not None:
            first = min(first, cap_tokens)
        first = _pages(first, page)
        return _pages(first * cell.two_step.numerator / cell.two_step.denominator, page)
    tokens = (left_bytes - fixed_bytes(cell)) // cell.bytes + cell.enlarged_tokens
    if cap_tokens is not None:
        tokens = min(tokens, cap_tokens)
    return _pages(tokens, page)


def pool_of(cell, rest_bytes, cap_tokens=None):
    """Return the Pool that C(rest_bytes) give, with C(cap_tokens) (max-total-tokens) where it is set."""
    left, taken = int(rest_bytes), None
    if cell.state is not None:
        taken = linear.charge(cell.state, rest_bytes)
        left = taken.left_bytes
    if rest_bytes <= 0 or left <= 0:
        return Pool(0, problem=_no_room(taken))
    tokens = _tokens(cell, left, cap_tokens)
    if tokens <= 0:
        return Pool(0, problem="Expected room for at least one page of tokens, found none: raise the fraction.")
    window = _window_tokens(cell, tokens)
    return Pool(
        tokens=tokens,
        window_tokens=window,
        state_slots=taken.slots if taken else None,
        state_bytes=taken.state_bytes if taken else 0,
        scratch_bytes=taken.scratch_bytes if taken else 0,
        stored_bytes=_stored_bytes(cell, tokens, window, taken),
        outside_bytes=int((tokens + cell.page_tokens) * cell.outside_bytes),
        max_running_requests=taken.requests if taken else None,
        problem=_problem(cell, window, taken),
    )


def _window_tokens(cell, tokens):
    if cell.window_fixed_tokens is not None:
        return cell.window_fixed_tokens
    if cell.window_ratio is None:
        return None
    return _pages(int(tokens * cell.window_ratio), cell.page_tokens)


def _stored_bytes(cell, tokens, window, taken):
    """Every pool has one page more than it hands out."""
    stored = (tokens + cell.page_tokens) * (
        cell.stored_bytes if window is None else cell.stored_bytes - (cell.window_ratio or 0) * cell.window_bytes
    )
    if window is not None:
        stored += (window + cell.page_tokens) * cell.window_bytes
    if taken is not None:
        stored += taken.state_bytes + taken.scratch_bytes
    return int(stored + cell.fixed_bytes)


def _no_room(taken):
    if taken is not None and taken.slots <= 0:
        return (
            "Expected room for the state of one request, found none: raise the fraction, or lower max-running-requests"
            " in the server arguments."
        )
    return "Expected room for the pool, found none: raise the fraction."


def _problem(cell, window, taken):
    if taken is not None and taken.requests <= 0:
        return (
            f"Expected at least {cell.state.slots_per_request} state slots, found {taken.slots}: raise the fraction or"
            " mamba-full-memory-ratio in the server arguments."
        )
    if window is not None and cell.window_floor_tokens is not None and window <= cell.window_floor_tokens:
        return (
            f"Expected a window pool of more than {cell.window_floor_tokens} tokens, found {window}: raise the fraction"
            " or swa-full-tokens-ratio in the server arguments."
        )
    return None


def rest_for(cell, tokens):
    """Return the REST in bytes from which on the pool holds C(tokens), in whole pages.

    With states in a share of REST the pool moves up and down by one slot as REST grows: the answer is where it does not
    fall below C(tokens) any more.
    """
    wanted = whole_number(tokens, "the wanted tokens", minimum=0)
    page = cell.page_tokens
    wanted = -(-wanted // page) * page
    if cell.two_step is not None:
        first = math.ceil(wanted * cell.two_step.denominator / cell.two_step.numerator)
        while _pages(_pages(first, page) * cell.two_step.numerator / cell.two_step.denominator, page) < wanted:
            first += 1
        left = max(-(-first // page) * page - cell.enlarged_tokens, 0) * cell.two_step.cell
    else:
        left = math.ceil(max(wanted - cell.enlarged_tokens, 0) * cell.bytes) + fixed_bytes(cell)
    if cell.state is None:
        return left
    return linear.rest_for_left(cell.state, left)


def check_cell(cell):
    """Raise LayoutError for a cell of no bytes: a stage without attention, or a model without any."""
    if not cell.bytes or cell.bytes <= 0 or not math.isfinite(cell.bytes):
        raise LayoutError(
            "Expected layers with attention in the geometry, found none: state the cell as sglang_server_cell_bytes."
        )
    return cell


@dataclass
class Notes:
    """Sentences on what was assumed, each once and in order."""

    lines: list = field(default_factory=list)

    def append(self, text):
        if text and text not in self.lines:
            self.lines.append(text)

    def text(self):
        return "; ".join(self.lines)
