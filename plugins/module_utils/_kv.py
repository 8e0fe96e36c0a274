# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a token costs: geometry, layout and version to the cell. Private to the collection.

The cell is the KV bytes of one token on one rank. The pool of an engine is C(rest of the static part // cell), so the
cell must be the one that the engine itself uses. Whatever is not understood raises UnknownLayout and names it: a wrong
cell is worse than none, because the user can measure it once and state it as C(cell_bytes).
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_architectures as architectures
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_compressed as compressed
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_draft as draft
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_linear as linear
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_rows as rows
from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv_window as window
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import (
    canonical_arguments,
    version_at_least,
    version_key,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_arguments import (
    page_tokens_of,
    refuse_latent_stages,
    refuse_layout_arguments,
    without_latents,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import (
    LayoutError,
    Ranks,
    UnknownLayout,
    check_heads,
    field_of,
    is_on,
    optional_field,
    ranks,
    stage_ranges,
    whole_number,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_dtype import kv_dtype, model_dtype
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_pool import (
    Cell,
    Notes,
    Pool,
    check_cell,
    fixed_bytes,
    plain_cell,
    pool_of,
    rest_for,
    whole,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_rows import LAYOUTS, Layout, Request
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_tables import TABLE_FORMS

__all__ = [
    "Cell",
    "LAYOUTS",
    "Layout",
    "LayoutError",
    "Pool",
    "Ranks",
    "Request",
    "UnknownLayout",
    "cell_bytes",
    "default_max_running_requests",
    "fixed_bytes",
    "is_on",
    "kv_dtype",
    "model_dtype",
    "page_tokens_of",
    "plain_cell",
    "pool_of",
    "ranks",
    "request_table_bytes",
    "rest_for",
    "whole_number",
]


# ---------------------------------------------------------------------------
# The cell
# ---------------------------------------------------------------------------


def cell_bytes(geometry, arguments=None, engine_version=None, environment=None, gpu_capability=None, page_tokens=None):
    """Return the Cell: KV bytes of one token on one rank, exactly as the engine computes it.

    C(geometry): dictionary as read_geometry gives it, plus C(draft_layers) or C(draft_geometry) when a draft model is
    given by path. C(arguments): server arguments in any spelling. C(engine_version): None counts as the newest known.
    C(environment): the server's environment. C(gpu_capability): compute capability of the boards. C(page_tokens): page
    size, where more is known than the arguments say.
    Raises UnknownLayout for what is not understood and LayoutError for inputs that cannot be right.
    """
    if not isinstance(geometry, dict):
        raise LayoutError(f"Expected the geometry as a dictionary, found {type(geometry).__name__}.")
    if engine_version is not None:
        version_key(engine_version)
    arguments, environment = canonical_arguments(arguments), dict(environment or {})
    notes = Notes()
    geometry = without_latents(geometry, arguments, engine_version, notes)
    layout = rows.LAYOUT_BY_ATTENTION.get(geometry.get("attention"))
    if layout is None and geometry.get("attention") != compressed.LAYOUT:
        known = ", ".join([*rows.LAYOUT_BY_ATTENTION, compressed.LAYOUT])
        raise UnknownLayout("attention {}".format(geometry.get("attention")), "known are " + known)
    refuse_layout_arguments(arguments)
    shared = ranks(arguments, engine_version)
    check_heads(geometry, shared.attention_tp)
    refuse_latent_stages(geometry, shared.stages, engine_version)
    name, element_bytes = kv_dtype(geometry, arguments, engine_version, gpu_capability, notes)
    pages = whole_number(page_tokens, "page_tokens") if page_tokens is not None else page_tokens_of(geometry, arguments)
    plan = _Plan(geometry, arguments, engine_version, environment, gpu_capability, pages, shared, name, element_bytes)
    cell = plan.cell(layout, notes)
    return check_cell(cell)


@dataclass(frozen=True)
class _Plan:
    """Checked input of one cell."""

    geometry: dict
    arguments: dict
    version: str | None
    environment: dict
    capability: str | None
    pages: int
    shared: Ranks
    dtype: str
    element_bytes: int

    def cell(self, layout, notes):
        geometry, version = self.geometry, self.version
        count = field_of(geometry, "layers")
        ranges = stage_ranges(count, self.shared.stages, version, self.environment.get("SGLANG_PP_LAYER_PARTITION"))
        if layout is None:
            stages = [compressed.stage_facts(self, one, notes) for one in ranges]
            worst = max(stages, key=lambda cell: cell["bytes"])
            self._note(worst, notes)
            shape = {"kv_dtype": self.dtype, "tp": self.shared.attention_tp, "layout": compressed.LAYOUT}
            return Cell(note=notes.text(), page_tokens=compressed.PAGE_TOKENS, **shape, **worst)
        pattern = self._pattern(count)
        speculation = draft.draft_of(geometry, self.arguments, version)
        _note_draft(speculation, notes)
        apart = window.pools_apart(geometry, self.arguments, version, notes)
        stages = [
            self._stage(layout, pattern, one, apart, speculation, notes) for one in self._charged_ranges(ranges, apart)
        ]
        worst = max(stages, key=lambda cell: cell["bytes"])
        self._note(worst, notes)
        state = linear.state_of(geometry, self.arguments, version, self.shared, ranges, self.environment, notes)
        suffix = ("+index" if geometry.get("index_head_dim") else "") + ("+window" if apart else "")
        return Cell(
            kv_dtype=self.dtype,
            tp=self.shared.attention_tp,
            note=notes.text(),
            layout=layout.attention + suffix + ("+state" if state else ""),
            state=state,
            enlarged_tokens=draft.enlarged_tokens(geometry, self.arguments, version, self.shared.pools),
            page_tokens=self.pages,
            **worst,
        )

    def _note(self, worst, notes):
        notes.append(architectures.note_of(self.geometry))
        if self.version is None:
            notes.append("the engine version is unknown, the newest known rules are used")
        if self.shared.stages > 1:
            notes.append(f"the largest of {self.shared.stages} pipeline stages holds {worst['layers']} layers")

    def _pattern(self, count):
        """One letter a layer. A geometry without a pattern has full rows everywhere."""
        pattern = self.geometry.get("layer_pattern")
        if pattern is None:
            return "f" * count
        if not isinstance(pattern, str) or len(pattern) != count or set(pattern) - set("fwsb-"):
            raise LayoutError(
                f"Expected layer_pattern of the geometry with one of f, w, s, b and - for each of {count} layers, found"
                f" {str(pattern)[:60]!r}."
            )
        return pattern

    def _charged_ranges(self, ranges, apart):
        """Older versions charge hybrid models as if every stage held all layers."""
        hybrid_state = isinstance(self.geometry.get("state"), dict)
        whole_model = (apart and not version_at_least(self.version, "0.5.22")) or (
            hybrid_state and not version_at_least(self.version, "0.5.8")
        )
        return [(0, ranges[-1][1])] if whole_model else ranges

    def _stage(self, layout, pattern, stage, apart, speculation, notes):
        """Return the parts of the Cell that one pipeline stage decides, as a dictionary."""
        first, end = stage
        letters = pattern[first:end] if apart else pattern[first:end].replace("w", "f")
        times = optional_field(self.geometry, "rows_per_layer", 1)
        full, windows = sum(letters.count(one) for one in "fb") * times, letters.count("w")
        request = Request(
            geometry=self.geometry,
            layers=full,
            attention_tp=self.shared.attention_tp,
            dtype=self.dtype,
            element_bytes=self.element_bytes,
            engine_version=self.version,
            arguments=self.arguments,
            gpu_capability=self.capability,
            index_layers=rows.index_layers_of(self.geometry, letters, first, self.version) * times,
            sparse_pattern=str(self.geometry.get("sparse_pattern") or "")[first:end],
        )
        full_parts = layout.parts(request) if full else []
        stored = layout.stored(request) if full else 0
        facts = {"layers": full + windows, "full_bytes": rows.total(full_parts), "parts": full_parts}
        if apart:
            return self._with_windows(request, facts, stored, windows, speculation, notes)
        charged, outside = self._draft_parts(request, rows.total(full_parts), full, speculation)
        more, outside = self._uncharged_draft(rows.total(charged), outside, speculation)
        facts["parts"] = full_parts + charged
        facts["bytes"] = whole(rows.total(facts["parts"]))
        facts["stored_bytes"] = whole(stored + rows.total(charged) + more)
        facts["outside_bytes"] = outside
        return facts

    # -- drafts ---------------------------------------------------------

    def _draft_parts(self, request, target_bytes, layers, speculation):
        """Return (parts that the draft adds to the cell, bytes outside the fraction)."""
        if speculation is None or speculation.effect == "none" or not layers:
            return [], 0
        per_layer = target_bytes / layers
        own = draft.own_cell_bytes(self.geometry, self.shared.attention_tp, self.element_bytes)
        outside = own if own is not None and speculation.effect == "outside" else per_layer * speculation.outside_layers
        number = speculation.charged_layers
        if not number:
            return [], whole(outside)
        source = f"{number} draft layers of the size of a target layer, {speculation.source}"
        if speculation.effect == "own" and own is not None:
            return [rows.part("draft", own, f"the draft's own rows, {speculation.source}")], 0
        if speculation.effect in ("own", "scaled"):
            size = -(-target_bytes * (layers + number) // layers) - target_bytes
        else:
            size = self._eagle_bytes(request, target_bytes, layers, number)
        return [rows.part("draft", size, source)], whole(outside)

    def _uncharged_draft(self, charged, outside, speculation):
        """Return (bytes that the draft's pool takes beyond what is charged for it, bytes outside the fraction).

        From 0.5.14 on the draft's pool lies inside, and the engine takes its rows for as wide as the target's. A draft
        with wider ones (KV heads of its own beside a target with latents), or layers that this version does not charge,
        takes the rest from the reserve.
        """
        if speculation is None or not version_at_least(self.version, draft.CHARGED_SINCE):
            return 0, outside
        own = draft.own_cell_bytes(self.geometry, self.shared.attention_tp, self.element_bytes)
        if speculation.effect != "layers" or own is None:
            return outside, 0
        return max(own - charged, 0), 0

    def _eagle_bytes(self, request, target_bytes, layers, number):
        """The engine's own rounding, which changed twice."""
        if request.geometry.get("index_head_dim") and version_at_least(self.version, "0.5.18"):
            index = rows.index_bytes(request, request.index_layers)
            return int((target_bytes - index) * number / layers) + rows.index_bytes(request, number)
        if version_at_least(self.version, "0.5.21"):
            return int(target_bytes * number / layers)
        return int(target_bytes * (1 + number / layers)) - target_bytes

    # -- windows --------------------------------------------------------

    def _with_windows(self, request, facts, stored, windows, speculation, notes):
        geometry, arguments, version = self.geometry, self.arguments, self.version
        size, full = rows.window_bytes(request, windows), request.layers
        ratio = window.ratio_of(geometry, arguments)
        rule = window.rule_of(version)
        fixed = window.fixed_tokens(
            geometry, arguments, version, self.pages, self.shared.pools, self.environment, notes
        )
        if not full:
            ratio, fixed = 1.0, None  # no full pool to relate to: the pool is the window pool
        parts = list(facts["parts"])
        if fixed is None:
            source = f"{windows} window layers, {ratio} window tokens a pool token"
            parts.append(rows.part("window rows", whole(ratio * size), source))
        extra, outside = self._window_draft(request, facts["full_bytes"], size, full, windows, ratio, speculation)
        more, outside = self._uncharged_draft(rows.total(extra), outside, speculation)
        parts = parts + extra
        charged = rows.total(parts)
        facts.update(
            parts=parts,
            bytes=whole(charged),
            stored_bytes=whole(stored + (ratio * size if fixed is None else 0) + rows.total(extra) + more),
            outside_bytes=outside,
            window_bytes=size,
            window_ratio=ratio if fixed is None else None,
            window_fixed_tokens=fixed,
            window_floor_tokens=window.floor_tokens(geometry, version, self.pages) if fixed is None else None,
        )
        if rule.two_step and full:
            facts.update(self._two_step(request, facts, size, full, windows, ratio, rule))
        return facts

    def _two_step(self, request, facts, size, full, windows, ratio, rule):
        """Versions up to 0.5.10: sized as if all layers were full, then split again."""
        every, one = full + windows, facts["full_bytes"] // full
        if rule.unequal:
            first = facts["full_bytes"] + size
            step = window.TwoStep(first, first, facts["full_bytes"] + ratio * size)
        else:
            first = one * every
            if request.geometry.get("architecture") == "MiMoV2FlashForCausalLM":
                first += size  # this version adds the window rows on top
            step = window.TwoStep(first, every, ratio * windows + full)
        charged = step.cell * step.denominator / step.numerator
        source = f"as if all {every} layers were full, then split by {ratio}, {rule.source}"
        return {"bytes": whole(charged), "two_step": step, "parts": [rows.part("rows", whole(charged), source)]}

    def _window_draft(self, request, full_bytes, size, full, windows, ratio, speculation):
        """Return (parts, outside bytes) of a draft beside a window pool. Charged since 0.5.16 only."""
        if speculation is None or speculation.effect == "none":
            return [], 0
        per_full = full_bytes // full if full else size // max(windows, 1)
        number = speculation.charged_layers
        if not version_at_least(self.version, "0.5.16"):
            return [], per_full * (number + speculation.outside_layers)
        if not number:
            return [], per_full * speculation.outside_layers
        own = draft.own_cell_bytes(self.geometry, self.shared.attention_tp, self.element_bytes)
        if speculation.effect in ("own", "scaled"):
            if own is None:
                raise UnknownLayout(f"speculative-algorithm {speculation.algorithm}", "draft_geometry is not given")
            return [rows.part("draft", own, f"the draft's own rows, {speculation.source}")], 0
        by_path = self.arguments.get("speculative-draft-model-path")
        in_window = min(windows, number) if version_at_least(self.version, "0.5.21") and not by_path else 0
        bytes_ = per_full * (number - in_window) + ratio * in_window * (size // max(windows, 1))
        return [rows.part("draft", whole(bytes_), f"{number} draft layers, {speculation.source}")], 0


def _note_draft(speculation, notes):
    if speculation is None:
        return
    if speculation.effect in ("none", "outside"):
        notes.append(f"the cell of the draft model is not in the pool's cell ({speculation.source})")
    elif speculation.outside_layers:
        notes.append(
            f"{speculation.outside_layers} draft layers inside the checkpoint are not charged by this version: their"
            " rows come out of the headroom"
        )


# ---------------------------------------------------------------------------
# The request table
# ---------------------------------------------------------------------------


def request_table_bytes(max_running_requests, context_tokens, engine_version=None, draft_tokens=0):
    """Return the bytes of the req_to_token table of one rank.

    C(max_running_requests) per data-parallel rank, C(context_tokens) the longest request. The engine allocates the
    table after the pool was sized, so it comes out of the reserve: 4 bytes for every position of every request.
    """
    requests = whole_number(max_running_requests, "max_running_requests")
    context = whole_number(context_tokens, "context_tokens")
    draft = whole_number(draft_tokens or 0, "draft_tokens", minimum=0)
    form = [row for row in TABLE_FORMS if version_at_least(engine_version, row.since)][-1]
    columns = context + 4 + (draft if form.draft_columns else 0)
    return (requests + form.spare_rows) * columns * 4


def default_max_running_requests(pool_tokens, context_tokens, engine_version=None):
    """Return the requests per data-parallel rank that the engine admits when --max-running-requests is not given."""
    pool = whole_number(pool_tokens, "pool_tokens")
    context = whole_number(context_tokens, "context_tokens")
    requests = min(max(int(pool / context * 512), 2048), 4096)
    if version_at_least(engine_version, "0.5.23"):
        requests = min(requests, max(1, pool // 2))
    return requests
