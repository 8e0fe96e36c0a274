# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The weight table of a model: its tensors, those that differ in numbers only as one row. Private to the collection.

A model has up to a hundred thousand tensors and a few dozen kinds of them. The kinds are what a plan needs to split the
weights over ranks, and they are small enough to travel as facts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import is_integer

MAX_ROWS = 2000  # what is beyond, in a file that no model has, is one row
OTHERS = "(others)"
MOST_LAYERS = 10000

# Words before the number of a layer, as configurations of models name their lists of layers.
LAYER_WORDS = ("layers", "layer", "h", "blocks", "block", "mtp_layers")

# Towers beside the language model: their layers are numbered on their own.
TOWER = re.compile(r"visual|vision|audio|image|multi_modal|mm_projector|\bvit\b|resampler|speech|talker|code2wav")

# Built-in draft layers that are not numbered behind the others
# (sglang srt/models/qwen3_next.py and mimo.py skip names with mtp in them unless the draft itself is loaded).
MTP = re.compile(r"(?:^|\.)mtp(?:_layers|_block|\.|$)")


_NUMBER = re.compile(r"\.([0-9]{1,6})(?=\.|$)")


def kind_of(name):
    """Return (name with * for every number, the numbers as text)."""
    parts = _NUMBER.split(name)
    return ".*".join(parts[::2]), parts[1::2]


_EXPERT = re.compile(r"experts\.[0-9]{1,6}(?=\.|$)", re.MULTILINE)


def alike(tensors):
    """Return ((name, form), how many) for C(tensors), name -> form: those that differ in their expert only as one.

    All names at once: a model of experts has hundreds of thousands, and they are all but a few of its tensors.
    """
    names = _EXPERT.sub("experts.0", "\n".join(tensors)).split("\n")
    if len(names) != len(tensors):  # a name with a line break, which no model has
        names = tensors
    return Counter(zip(names, tensors.values())).items()


def place_of_layer(kind):
    """Return which number of a kind is that of its layer, None for a kind outside the layers."""
    words = kind.split(".*")[:-1]
    return next((index for index, text in enumerate(words) if text.rpartition(".")[2] in LAYER_WORDS), None)


def is_tower(name):
    """Return whether a tensor belongs to a tower beside the language model (vision, audio)."""
    return TOWER.search(name) is not None


@dataclass
class Row:
    """One kind of tensor while the files are read."""

    tensors: int = 0
    size_bytes: int = 0
    layers: set = field(default_factory=set)


class Table:
    """Collects tensors. C(layers): layers of the model without its built-in draft, None when not known."""

    def __init__(self, layers=None):
        self.layers = layers
        self.rows = {}
        self._kinds = {}  # kind -> (place of the layer's number, draft whatever its number, tower)

    def add(self, name, dtype, size_bytes, shape, tied=False, tensors=1):
        """Add C(tensors) of C(size_bytes) in all and return whether they belong to a built-in draft.

        C(tied): a head that is not loaded. C(shape): of each.
        """
        kind, numbers = kind_of(name)
        traits = self._kinds.get(kind)
        if traits is None:
            traits = self._kinds[kind] = (place_of_layer(kind), MTP.search(kind) is not None, is_tower(kind))
        place, draft, tower = traits
        layer = int(numbers[place]) if place is not None and place < len(numbers) else None
        if layer is not None and layer >= MOST_LAYERS:
            layer = None
        if layer is not None and self.layers is not None and layer >= self.layers and not tower:
            draft = True
        key = (kind, dtype, shape, draft, tied)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MAX_ROWS:
                key = (OTHERS, dtype, None, draft, tied)
            row = self.rows.setdefault(key, Row())
        row.tensors += tensors
        row.size_bytes += size_bytes
        if layer is not None:
            row.layers.add(layer)
        return draft

    def as_list(self):
        """Return the rows as facts; the layers are told as [first, last] runs."""
        return [
            {
                "name": kind,
                "dtype": dtype,
                "shape": None if shape is None else list(shape),
                "tensors": row.tensors,
                "bytes": row.size_bytes,
                "layers": _runs(row.layers),
                "draft": draft,
                "tied": tied,
            }
            for (kind, dtype, shape, draft, tied), row in self.rows.items()
        ]


def _runs(layers):
    runs = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return runs


def layers_of(row):
    """Return the number of layers that a row of the table lies in."""
    return sum(last - first + 1 for first, last in row.get("layers") or [])


def numbers_of(row):
    """Return the numbers of the layers that a row lies in."""
    return [number for first, last in row.get("layers") or [] for number in range(first, last + 1)]


def layers_between(row, begin, end):
    """Return the numbers of a row's layers in the stage from C(begin) up to, not with, C(end)."""
    return [number for number in numbers_of(row) if begin <= number < end]


def table_problem(table):
    """Return what makes a table that came back as facts unusable, None when it is one of model_info."""
    if not isinstance(table, (list, tuple)):
        return f"found {type(table).__name__}"
    for row in table:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not isinstance(row.get("dtype"), str):
            return "a row has no name or dtype"
        if not _is_count(row.get("bytes")) or not _is_count(row.get("tensors")):
            return f"bytes or tensors of {row['name'][:80]!r} are no whole numbers of at least 0"
        shape = row.get("shape")
        if shape is not None and not (isinstance(shape, (list, tuple)) and all(_is_count(size) for size in shape)):
            return f"the shape of {row['name'][:80]!r} is no list of sizes"
        if not all(_is_run(run) for run in row.get("layers") or []):
            return f"the layers of {row['name'][:80]!r} are no runs from a first to a last"
    return None


def created_problem(created):
    """Return what makes the list of what is made at load unusable, None when it is one of model_info."""
    for one in created:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not _is_count(one.get("bytes")):
            return "an entry has no name or bytes"
    return None


def _is_count(value):
    return is_integer(value) and value >= 0


def _is_run(run):
    pair = isinstance(run, (list, tuple)) and len(run) == 2 and all(_is_count(number) for number in run)
    return pair and run[0] <= run[1] < MOST_LAYERS
