# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the weights take on one rank: the weight table, divided as the engine divides it. Private to the collection.

Pure: a table (model_info), geometry and arguments in, GiB out. What counts is the worst rank, that is the largest
pipeline stage. Which part is divided by what is in _model_parts, what loading adds is in _model_load.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_load as load
from ansible_collections.gpufleet.sglang.plugins.module_utils import _model_parts as parts
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments, version_at_least
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_base import whole_number
from ansible_collections.gpufleet.sglang.plugins.module_utils._kv_draft import algorithm_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_ranks import SplitError, layout_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_table import (
    created_problem,
    is_tower,
    layers_between,
    layers_of,
    numbers_of,
    table_problem,
)

__all__ = ["SplitError", "weights_of"]

GIB = 1024**3
VOCABULARY_PADDING_ROWS = 64  # srt/layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE

# The band of the answer, from the start-ups of tests/data whose checkpoints are known; see docs/memory.md.
ERROR_LEAST_GIB = 0.1
# Expandable segments lose nothing to rounding: three models in eleven starts printed 0.00 to 0.06 GiB over their table.
ERROR_LEAST_EXPANDABLE_GIB = 0.06
ERROR_SHARE = 0.01
ONLINE_ERROR_SHARE = 0.05  # what conversions leave in pieces is not modelled


@dataclass
class _Sum:
    """What one stage holds. C(units): (layer, name, number) -> bytes of one tensor on a rank."""

    units: dict = field(default_factory=dict)
    parts: dict = field(default_factory=dict)
    whole: float = 0.0  # of parts that every rank holds
    layers: float = 0.0  # of what lies in layers

    def add(self, unit, part, ways, size_bytes):
        self.units[unit] = self.units.get(unit, 0.0) + size_bytes
        key = (part.name, part.source, ways)
        self.parts[key] = self.parts.get(key, 0.0) + size_bytes
        if ways == 1:
            self.whole += size_bytes


def weights_of(
    table,
    geometry,
    arguments,
    environment=None,
    engine_version=None,
    created=(),
    draft_table=None,
    draft_geometry=None,
    draft_created=(),
    gpu_capability=None,
    device="cuda",
):
    """Return what weights take on the worst rank, a dictionary of plain data (GiB).

    C(table), C(created): of model_info. C(geometry) may be None. Raises SplitError, or what _kv_base raises for sizes
    that do not divide (ValueError, one sentence each).
    """
    for rows in (table, draft_table or []):
        problem = table_problem(rows)
        if problem:
            raise SplitError(f"Expected weight_table as model_info returns it, {problem}: read the model again.")
    problem = created_problem([*created, *draft_created])
    if problem:
        raise SplitError(f"Expected created as model_info returns it, {problem}: read the model again.")
    arguments = canonical_arguments(arguments)
    environment = environment or {}
    layout = layout_of(table, geometry, arguments, environment, engine_version, gpu_capability, device)
    notes = []
    own = [row for row in table if not row.get("draft")]
    online = load.online_of(arguments, own)
    created = [*created, *_made_encoder(own, geometry, layout)]
    extra = sum(one["bytes"] for one in created)
    stages = [_stage(own, layout, online, stage) for stage in range(layout.stages)]
    sizes = [_reserved(stage, layout) for stage in stages]
    worst = sizes.index(max(sizes))
    weights = (sizes[worst] + extra) / GIB
    peak = weights
    if online is not None:
        peak = max(weights, _peak(own, layout, online, arguments, worst, extra))
        notes.append(f"{online.argument} {online.value} converts at load, {peak:.2f} GiB at most ({online.source})")
    moved = _moved_to_host(arguments, weights, notes)
    draft, told = _draft(
        table, layout, arguments, draft_table, draft_geometry, draft_created, environment, engine_version
    )
    notes += [told] if told else []
    least = ERROR_LEAST_EXPANDABLE_GIB if layout.expandable else ERROR_LEAST_GIB
    error = max(least, weights * (ERROR_SHARE if online is None else ONLINE_ERROR_SHARE))
    left = _left_behind(stages[worst], geometry, layout, engine_version, notes)
    error += left * load.BUILT_TWICE.error
    return {
        "weights_gib": weights - moved + left,
        "draft_gib": None if draft is None else draft / GIB,
        # What may be left behind is no reason to refuse a load.
        "peak_gib": max(peak, weights) - moved,
        "error_gib": error + _unknown(stages[worst], layout, notes) / GIB,
        "parts": _told(stages[worst], created),
        "source": "table",
        "note": _note(layout, stages[worst]),
        "notes": notes,
    }


def _made_encoder(table, geometry, layout):
    """Return the encoder that the engine makes although no tensor is of one, as a row of what is created, in a list."""
    if any(is_tower(row["name"]) for row in table):
        return []
    ways = 1 if layout.tower_whole else layout.attention_tp
    size, source = load.encoder_bytes(geometry or {}, layout.element_bytes, ways)
    return [{"name": "image encoder", "bytes": size, "source": source}] if size else []


def _left_behind(total, geometry, layout, engine_version, notes):
    """Return the GiB of layers that were made twice and count as used although nobody needs the first ones."""
    if not (geometry or {}).get("layers_built_twice") or layout.device == "cpu":
        return 0.0
    left = total.layers / GIB
    if version_at_least(engine_version, load.BUILT_TWICE.until):
        notes.append(f"the engine makes the layers of this model twice: the load holds {left:.2f} GiB more for a while")
        return 0.0
    total.parts[("layers built twice", load.BUILT_TWICE.source, layout.tp)] = left * GIB
    notes.append(
        f"before {load.BUILT_TWICE.until} {left:.2f} GiB of layers that were built twice stay in memory after the load"
    )
    return left


def _reserved(total, layout):
    if layout.device == "cpu":
        return sum(_sizes(total))
    return load.reserved_bytes(_sizes(total), layout.expandable)


def _peak(table, layout, online, arguments, stage, extra):
    """Return the GiB that the load holds at most. All is loaded in the file's type before it shrinks."""
    if online.peak != load.UNQUANTISED or str(arguments.get("load-format")) in load.LAYERED_FORMATS:
        return 0.0
    return (_reserved(_stage(table, layout, None, stage), layout) + extra) / GIB


# ---------------------------------------------------------------------------
# One stage
# ---------------------------------------------------------------------------


def _stage(table, layout, online, stage):
    """Return the _Sum of what a rank of the pipeline stage C(stage) holds."""
    total = _Sum()
    copied = _without_values(table) if layout.keys_copied else frozenset()
    for row in table:
        part = parts.part_of(row)
        if part.division == parts.NOTHING or row.get("tied"):
            continue
        if row.get("layers") and not is_tower(row["name"]):
            layers = layers_between(row, layout.bounds[stage], layout.bounds[stage + 1])
        else:
            layers = numbers_of(row) or [None] if _holds(part, layout, stage, table) else []
        _add_row(total, row, part, layers, layout, online)
        if copied and _KEYS.search(row["name"]):
            _add_row(total, row, part, [layer for layer in layers if layer in copied], layout, online)
    return total


_KEYS = re.compile(r"self_attn\.k_proj\.")
_VALUES = re.compile(r"self_attn\.v_proj\.")


def _without_values(table):
    """Return the layers that have keys and no values of their own: the engine loads the keys twice."""
    keys, values = (
        {layer for row in table if pattern.search(row["name"]) for layer in numbers_of(row)}
        for pattern in (_KEYS, _VALUES)
    )
    return frozenset(keys - values)


def _holds(part, layout, stage, table):
    """Return whether a stage holds a part outside the layers: embeddings the first, the head and norms the last."""
    if layout.stages == 1 or part in parts.TOWER_PARTS:
        return True
    last = stage == layout.stages - 1
    if part.division == parts.VOCABULARY:
        has_head = any(parts.part_of(row).division == parts.HEAD and not row.get("tied") for row in table)
        return stage == 0 or (last and not has_head)  # a tied head is a tensor of its own on the last stage
    return last


def _add_row(total, row, part, layers, layout, online):
    """Add a row's tensors in C(layers) (numbers; [None] outside of layers) as the units that a rank allocates."""
    size, ways = _on_rank(row, part, layout)
    factor = load.cast_factor(row, layout.element_bytes)
    if load.quantised_online(row, part, online):
        factor *= online.element_bytes / layout.element_bytes
    all_layers = layers_of(row) or 1
    size *= factor / all_layers
    # Experts, and what parts.FUSED joins, are one tensor a layer, all others one for each in the file.
    if row.get("layers") and not is_tower(row["name"]):
        total.layers += size * len(layers)
    copies = 1 if part.division == parts.EXPERTS else max(1, round(row["tensors"] / all_layers))
    name = parts.unit_of(row["name"])
    absorbed = load.absorbed_bytes(row) / all_layers / layout.attention_tp / 2
    for layer in layers:
        for copy in range(copies):
            total.add((layer, name, copy), part, ways, size / copies)
        for half in ("w_kc", "w_vc") if absorbed else ():
            total.add((layer, half, 0), _ABSORBED, layout.attention_tp, absorbed)


_ABSORBED = parts.Part("latent attention, absorbed", parts.UNKNOWN_PART.pattern, parts.ATTENTION, load.ABSORBED_SOURCE)


def _on_rank(row, part, layout):
    """Return (bytes of a row on one rank, ranks that it is divided among)."""
    size, division = row["bytes"], part.division
    if division == parts.VOCABULARY and layout.embeddings_whole:
        return size, 1
    if division in (parts.VOCABULARY, parts.HEAD):
        ways = layout.attention_tp if division == parts.VOCABULARY else layout.head_tp
        return _padded(row, ways), ways
    if division == parts.FUSED_QKV:
        return _fused_qkv(row, layout), layout.attention_tp
    if division == parts.EXPERTS:
        ways = layout.expert_ways
        return size / ways * _mxfp4(row, layout), round(ways, 3) if ways % 1 else int(ways)
    ways = {
        parts.REPLICATED: 1,
        parts.ATTENTION: layout.attention_tp,
        parts.KV_HEADS: _kv_ways(row, layout),
        parts.DENSE: layout.dense_tp,
        parts.SHARED: 1 if layout.shared_whole else layout.tp,
        parts.TOWER: 1 if layout.tower_whole else layout.attention_tp,
        parts.UNKNOWN: layout.tp,
    }[division]
    if len(row.get("shape") or (0, 0)) <= 1 and division in (parts.TOWER, parts.UNKNOWN):
        ways = 1
    return size / ways, ways


def _kv_ways(row, layout):
    """Return among how many ranks keys or values are divided: a KV head is never cut, but copied."""
    heads = layout.kv_heads
    if layout.window_rows and layout.window_rows[0] in load.outputs_of(row):
        heads = layout.window_rows[1]
    return min(layout.attention_tp, heads) if heads else layout.attention_tp


def _fused_qkv(row, layout):
    size = row["bytes"]
    if not layout.kv_heads or not layout.heads:
        return size / layout.attention_tp
    keys_and_values = size * 2 * layout.kv_heads / (layout.heads + 2 * layout.kv_heads)
    return (size - keys_and_values) / layout.attention_tp + keys_and_values / _kv_ways({}, layout)


def _padded(row, ways):
    """Return the bytes of a vocabulary on one of C(ways) ranks, rows rounded up as the engine does."""
    rows = (row.get("shape") or [0])[0]
    if not rows:
        return row["bytes"] / ways
    padding = VOCABULARY_PADDING_ROWS
    if -(-rows // padding) * padding % ways:
        padding *= ways
    return row["bytes"] / rows * (-(-rows // padding) * padding) / ways


def _mxfp4(row, layout):
    """Return what padding adds to MXFP4 experts, whose tensors are [experts, rows, blocks, bytes] of 32 numbers."""
    shape = row.get("shape") or []
    if not row["name"].endswith("_blocks") or len(shape) != 4:
        return 1.0
    inputs = shape[2] * 32
    into = "gate_up" in row["name"]
    intermediate, hidden = (shape[1] // 2, inputs) if into else (inputs, shape[1])
    return load.mxfp4_factor(intermediate, hidden, layout.expert_tp, layout.capability)


def _sizes(total):
    """Return the sizes of the tensors in the order in which a model is built: what is outside of layers first."""
    ordered = sorted(total.units.items(), key=lambda item: -1 if item[0][0] is None else item[0][0])
    return [max(1, round(size)) for _unit, size in ordered]


# ---------------------------------------------------------------------------
# The draft
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sharing:
    """What the draft of an algorithm takes from the target instead of its own copy."""

    algorithms: tuple
    divisions: tuple
    source: str


SHARING = (
    Sharing(
        ("EAGLE3",), (parts.VOCABULARY,), "srt/models/llama_eagle3.py: embeddings of the target, a head of its own"
    ),
    Sharing(("STANDALONE",), (), "srt/speculative/standalone_worker.py"),
    Sharing(
        (), (parts.VOCABULARY, parts.HEAD), "srt/models/deepseek_v2.py set_embed_and_head"
    ),  # EAGLE, NEXTN, MTP ...
)


def _draft(table, layout, arguments, draft_table, draft_geometry, draft_created, environment, engine_version):
    """Return (bytes of the draft on a rank, 0 without speculation, None when they cannot be told; note or None)."""
    algorithm = algorithm_of(arguments)
    if algorithm in (None, "NGRAM"):
        return 0.0, None
    rows = draft_table or [row for row in table if row.get("draft")]
    if not rows:
        return None, "the weights of the draft are not known: read its folder with model_info too"
    if draft_table:
        one_stage = {name: value for name, value in arguments.items() if name != "pp-size"}
        layout = layout_of(
            draft_table, draft_geometry, one_stage, environment, engine_version, layout.capability, layout.device
        )
    sharing = next(row for row in SHARING if algorithm in row.algorithms or not row.algorithms)
    total = _Sum()
    for row in rows:
        part = parts.part_of(row)
        if part.division in (parts.NOTHING, *sharing.divisions) or row.get("tied"):
            continue
        _add_row(total, row, part, numbers_of(row) or [None], layout, None)
    size = _reserved(total, layout) + sum(one["bytes"] for one in draft_created)
    where = "its own folder" if draft_table else "the layers behind those of the model"
    return size, f"the draft is {where}, less what it shares with the model ({sharing.source})"


# ---------------------------------------------------------------------------
# Words
# ---------------------------------------------------------------------------


def _moved_to_host(arguments, weights_gib, notes):
    """Return the GiB that stay in host memory (srt/utils/offloader.py moves parameters up to cpu-offload-gb)."""
    offload = arguments.get("cpu-offload-gb")
    moved = min(float(whole_number(offload, "the server argument cpu-offload-gb", 0)), weights_gib) if offload else 0.0
    if moved:
        notes.append(f"cpu-offload-gb keeps {moved:.2f} GiB of the weights in host memory")
    return moved


def _unknown(total, layout, notes):
    """Return by how many bytes names that no row knows widen the band: they may be whole on every rank."""
    if layout.kv_heads is None and layout.attention_tp > 1 and "attention" in {part[0] for part in total.parts}:
        notes.append("the KV heads are not known, keys and values count as divided by all attention ranks")
    unknown = sum(size for (name, _source, _ways), size in total.parts.items() if name == parts.UNKNOWN_PART.name)
    if not unknown or layout.tp == 1:
        return 0.0
    notes.append(f"{unknown / GIB:.2f} GiB are of tensors with unknown names and count as divided by tp-size")
    return unknown * (layout.tp - 1) / 2


def _told(total, created):
    rows = [
        {"part": name, "gib": size / GIB, "ways": ways, "source": source}
        for (name, source, ways), size in sorted(total.parts.items(), key=lambda item: -item[1])
    ]
    return rows + [
        {"part": one["name"], "gib": one["bytes"] / GIB, "ways": 1, "source": one.get("source", "given")}
        for one in created
    ]


def _note(layout, total):
    text = f"safetensors headers on {layout.tp * layout.stages} ranks" if layout.tp * layout.stages > 1 else ""
    if not text:
        return "safetensors headers"
    if layout.stages > 1:
        text += f", the largest of {layout.stages} stages"
    if layout.tp > 1:
        text += f", {total.whole / GIB:.2f} GiB of it whole on every rank"
    return text
