# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What weights a model has: which files the engine loads, completeness, the sum. Private to the collection.

Headers and JSON are read by _model_headers, from a folder here or from a hub in _hub_headers: the rules are the same.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import (
    MAX_JSON_BYTES,
    Header,
    WeightsError,
    header_length,
    is_integer,
    parse_header,
    read_header,
    read_json,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_table import Table, alike

__all__ = [
    "MAX_JSON_BYTES",
    "Folder",
    "Header",
    "WeightsError",
    "add_up",
    "header_length",
    "is_integer",
    "list_names",
    "parse_header",
    "read_header",
    "read_json",
    "select_files",
    "weights_in",
]

INDEX_NAME = "model.safetensors.index.json"


# ---------------------------------------------------------------------------
# Which files are the weights
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """The safetensors files that the engine would load.

    C(placed): tensor -> file as the index promises, C(promised): file -> how many tensors; empty without an index.
    """

    files: tuple
    placed: dict
    promised: dict
    from_index: bool


@dataclass(frozen=True)
class Refusal:
    """A kind of folder that holds no safetensors. The first row whose pattern fits a file names the reason."""

    pattern: str
    reason: str


REFUSALS = (
    Refusal(
        r"(^|/)adapter_(model|config)\.",
        "an adapter (LoRA) and no model: point to the base model and give the adapter to the server by lora-paths",
    ),
    Refusal(r"\.gguf$", "GGUF files only, whose contents are not read here: use the safetensors release of the model"),
    Refusal(
        r"\.(bin|pt|pth|ckpt)$",
        "pickled weights only, which cannot be read without running them: convert them to safetensors",
    ),
    Refusal(
        r"\.(h5|msgpack|onnx|tflite|npz)$",
        "weights of another framework only: use the safetensors release of the model",
    ),
    Refusal(r"\.(incomplete|aria2|part|tmp)$", "unfinished downloads only: run the download again"),
)

_SHARD_PATTERN = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.safetensors$")
MOST_SHARDS = 2000  # a numbering that promises more is a file name and no promise
# The same weights once more, in the layout of the publisher: loaded only with a load format that asks for it.
_DUPLICATE_PATTERN = re.compile(r"^consolidated.*\.safetensors$")


def select_files(names, index=None):
    """Return the Selection among the file names C(names) of a folder and its parsed shard C(index) (or None). Pure.

    Only files in the folder itself are loaded by the engine, and of these only those that the index names.
    Raises WeightsError when there are no weights, with the reason.
    """
    if index is not None:
        return _select_by_index(index)
    plain = sorted(name for name in names if name.endswith(".safetensors") and "/" not in name)
    adapters = [name for name in plain if name.startswith("adapter_")]
    plain = [name for name in plain if name not in adapters]
    unique = [name for name in plain if not _DUPLICATE_PATTERN.match(name)] or plain
    if not unique:
        raise WeightsError(_no_weights(names))
    return Selection(tuple(_with_missing_shards(unique)), {}, {}, False)


def _no_weights(names):
    for row in REFUSALS:
        if any(re.search(row.pattern, name) for name in names):
            return f"Expected safetensors files in the model folder, found {row.reason}."
    return "Expected safetensors files in the model folder, found none: check the path, or download the model again."


def _select_by_index(index):
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"Expected a weight_map in {INDEX_NAME}, found none: fetch the file again.")
    try:
        promised = Counter(weight_map.values())  # at once: a model has up to some hundred thousand tensors
    except TypeError:  # a list or an object instead of a name
        promised = {}
    if not promised or not all(map(_is_file, promised)):
        tensor, name = next((tensor, name) for tensor, name in weight_map.items() if not _is_file(name))
        raise WeightsError(
            f"{INDEX_NAME} places the tensor {tensor[:80]!r} in {str(name)[:80]!r}, which is no file of the model"
            " folder: fetch the index again."
        )
    return Selection(tuple(sorted(promised)), weight_map, promised, True)


def _is_file(name):
    return isinstance(name, str) and name == os.path.basename(name) and name not in ("", ".", "..")


def _with_missing_shards(names):
    """Return C(names) plus the shards that the numbering of the others promises (a folder that lost its index)."""
    result = set(names)
    numbered = [match for match in map(_SHARD_PATTERN.match, names) if match]
    for stem, total in {(match.group("stem"), match.group("total")) for match in numbered}:
        if int(total) <= MOST_SHARDS:
            result.update(f"{stem}-{number:05d}-of-{total}.safetensors" for number in range(1, int(total) + 1))
    return sorted(result)


# ---------------------------------------------------------------------------
# Adding up
# ---------------------------------------------------------------------------


@dataclass
class Weights:
    """The sum over the files. C(weight_bytes) is None while a file is missing or damaged."""

    weight_bytes: int | None = 0
    files: list = field(default_factory=list)
    missing_files: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    bytes_by_dtype: dict = field(default_factory=dict)
    tied_head_bytes: int = 0
    draft_layer_bytes: int = 0
    table: list = field(default_factory=list)
    index_total_bytes: int | None = None
    notes: list = field(default_factory=list)

    @property
    def complete(self):
        return not self.missing_files


def add_up(selection, headers, layers=None, tied=False, index=None):
    """Return the Weights of C(selection). C(headers): file -> Header, or a str that says what is wrong with it.

    C(layers): layers of the model; tensors of later layers belong to a built-in draft. C(tied): the output head is not
    loaded when the file holds one all the same. C(index): the parsed shard index, whose total is compared only. Pure.
    """
    weights = Weights(files=list(selection.files))
    table = Table(layers)
    seen = set()
    for name in selection.files:
        header = headers.get(name, "is missing: download the model again")
        problem = header if isinstance(header, str) else _lacking(selection, name, header)
        if problem:
            weights.missing_files.append(name)
            where = " named in " + INDEX_NAME if selection.from_index and name in selection.promised else ""
            weights.problems.append("{}{} {}.".format(name, where, problem.rstrip(".")))
            continue
        _add_file(weights, table, header, tied, seen, name)
    weights.table = table.as_list()
    if weights.missing_files:
        weights.weight_bytes = None
    _compare_with_index(weights, index)
    return weights


def _lacking(selection, name, header):
    here = list(map(selection.placed.get, header.tensors)).count(name)
    if here == selection.promised.get(name, 0):
        return None
    lacking = [tensor for tensor, file in selection.placed.items() if file == name and tensor not in header.tensors]
    return f"lacks {len(lacking)} tensors that the index places there, the first is {sorted(lacking)[0][:80]!r}"


def _add_file(weights, table, header, tied, seen, file):
    """Add a file. A tensor that another file held already is loaded over it and counts once. C(seen): those names."""
    tensors = header.tensors
    if not seen.isdisjoint(tensors):
        tensors = {name: form for name, form in tensors.items() if name not in seen}
        twice = len(header.tensors) - len(tensors)
        weights.notes.append(f"{twice} tensors of {file} are in another file too and count once")
    seen.update(tensors)
    for (name, (dtype, size_bytes, shape)), count in alike(tensors):
        size_bytes *= count
        weights.weight_bytes += size_bytes
        weights.bytes_by_dtype[dtype] = weights.bytes_by_dtype.get(dtype, 0) + size_bytes
        head = tied and name.endswith("lm_head.weight")
        if head:
            weights.tied_head_bytes += size_bytes
        if table.add(name, dtype, size_bytes, shape, head, count):
            weights.draft_layer_bytes += size_bytes


def _compare_with_index(weights, index):
    metadata = (index or {}).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not is_integer(total) or total < 0:
        return
    weights.index_total_bytes = total
    if weights.weight_bytes is not None and total != weights.weight_bytes:
        weights.notes.append(
            f"{INDEX_NAME} states {total} bytes in all, the headers hold {weights.weight_bytes}: the headers count"
        )


# ---------------------------------------------------------------------------
# A folder
# ---------------------------------------------------------------------------


def list_names(path):
    """Return the names of the files below the folder C(path), one level deep, with / between folder and file."""
    names = []
    for entry in sorted(os.listdir(path)):
        full = os.path.join(path, entry)
        if os.path.isdir(full):
            try:
                names += [entry + "/" + name for name in sorted(os.listdir(full))[:1000]]
            except OSError:
                continue
        else:
            names.append(entry)
    return names


class Folder:
    """A model folder of this host as a source of headers; _hub_headers.Hub is the other one."""

    commit = None

    def __init__(self, path):
        self.path = path
        self.label = "model folder"

    def names(self):
        return list_names(self.path)

    def json(self, name):
        """Return the JSON object in a file, None where there is no such file."""
        full = os.path.join(self.path, name)
        return read_json(full, name) if os.path.lexists(full) else None

    def headers(self, names):
        """Return {name: Header, or what is wrong with the file}. Files that are not there are left out."""
        return {name: self._header(name) for name in names if os.path.isfile(os.path.join(self.path, name))}

    def _header(self, name):
        full = os.path.join(self.path, name)
        try:
            return checked_size(read_header(full, name), os.path.getsize(full))
        except WeightsError as error:
            return "is damaged: " + str(error)


def checked_size(header, actual_bytes):
    """Return C(header), or what is wrong when the file has another size than it implies."""
    if actual_bytes != header.file_bytes:
        return f"has {actual_bytes} bytes where its header implies {header.file_bytes}: fetch it again"
    return header


# The engine loads this file although the index of some releases forgets it
# (sglang srt/model_loader/weight_utils.py maybe_add_mtp_safetensors).
FORGOTTEN_DRAFT = "mtp.safetensors"
FORGETFUL_ARCHITECTURES = ("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM")


@contextmanager
def _collector_paused():
    """Python looks for cycles each time that many objects were made: headers have none, and are hundreds of thousands.

    Looking takes a fifth of the time in which a large model is read.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collector_paused()
def weights_in(source, layers=None, tied=False, architecture=None):
    """Return the Weights of a C(source) (Folder, or Hub). Raises WeightsError when it holds none that can be read."""
    names = source.names()
    index = source.json(INDEX_NAME) if INDEX_NAME in names else None
    selection = select_files(names, index)
    forgotten = FORGOTTEN_DRAFT in names and FORGOTTEN_DRAFT not in selection.files
    if forgotten and architecture in FORGETFUL_ARCHITECTURES:
        selection = replace(selection, files=(*selection.files, FORGOTTEN_DRAFT))
    return add_up(selection, source.headers(selection.files), layers, tied, index)
