# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What weight files a model folder holds: safetensors headers, shard index, completeness. Private to the collection.

Only headers are read (8 bytes of length, then JSON), never tensor data, and nothing is ever unpickled. A header is
input from a stranger: every number in it is checked before it is believed.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass, field

MAX_HEADER_BYTES = 100 * 1024 * 1024  # the limit of the safetensors format itself
MAX_JSON_BYTES = 64 * 1024 * 1024  # config.json and the shard index are a few MB at most
MAX_TENSOR_FILE_BYTES = 2**50

INDEX_NAME = "model.safetensors.index.json"
_LFS_POINTER = b"version https://git-lfs"


class WeightsError(ValueError):
    """A weight file or its index cannot be believed, or there is none. The text is one sentence."""


@dataclass(frozen=True)
class Header:
    """What one safetensors file says of itself. C(tensors): name -> (dtype, bytes)."""

    tensors: dict
    tensor_bytes: int
    file_bytes: int  # the size that the file must have


def is_integer(value):
    """Return whether C(value) is a whole number. JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def loads_object(text, what):
    """Return the JSON object in C(text). Raise WeightsError that names C(what) for anything else, however hostile."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WeightsError(
            f"Expected JSON in {what}, it cannot be read ({_short(error)}): fetch the file again."
        ) from None
    if not isinstance(data, dict):
        raise WeightsError(f"Expected a JSON object in {what}, found {type(data).__name__}: fetch the file again.")
    return data


def _short(error):
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."


def read_json(path, what):
    """Return the JSON object in the file C(path), of bounded size."""
    try:
        size_bytes = os.path.getsize(path)
        if size_bytes > MAX_JSON_BYTES:
            raise WeightsError(
                f"Expected at most {MAX_JSON_BYTES} bytes in {what}, found {size_bytes}: this is not the file of"
                " a model."
            )
        with open(path, "rb") as handle:
            content = handle.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise WeightsError(f"Cannot read {what}: {error.strerror or error}.") from None
    if content.startswith(_LFS_POINTER):
        raise WeightsError(
            f"{what} is a Git LFS pointer, not the file itself: fetch it with git lfs pull or download it."
        )
    return loads_object(content.decode("utf-8", "replace"), what)


# ---------------------------------------------------------------------------
# One safetensors header
# ---------------------------------------------------------------------------


def header_length(prefix, file_bytes, what):
    """Return the length of the JSON part from the first 8 bytes. Raises WeightsError when it cannot be right."""
    if prefix.startswith(_LFS_POINTER[:8]):
        raise WeightsError(f"{what} is a Git LFS pointer, not weights: fetch it with git lfs pull or download it.")
    if len(prefix) < 8:
        raise WeightsError(f"{what} has only {len(prefix)} bytes, too few for a safetensors file: fetch it again.")
    length = struct.unpack("<Q", prefix[:8])[0]
    if length > MAX_HEADER_BYTES:
        raise WeightsError(
            f"{what} states a header of {length} bytes, more than safetensors allows ({MAX_HEADER_BYTES}): it is"
            " no safetensors file or damaged."
        )
    if length < 2 or 8 + length > file_bytes:
        raise WeightsError(
            f"{what} states a header of {length} bytes but has {file_bytes} bytes in all: it is cut off, fetch it"
            " again."
        )
    return length


def parse_header(text, what):
    """Return the Header that the JSON C(text) states. C(what) names the file in messages. Pure."""
    data = loads_object(text, "the header of " + what)
    tensors = {}
    end_of_all = 0
    total = 0
    for name, entry in data.items():
        if name == "__metadata__":
            continue
        begin, end, dtype = _tensor_entry(name, entry, what)
        tensors[name] = (dtype, end - begin)
        total += end - begin
        end_of_all = max(end_of_all, end)
    if total != end_of_all:
        raise WeightsError(
            f"The tensors in the header of {what} overlap or leave holes ({total} bytes of tensors in"
            f" {end_of_all}): fetch it again."
        )
    return Header(tensors, total, 8 + len(text.encode("utf-8")) + end_of_all)


def _tensor_entry(name, entry, what):
    """Return (begin, end, dtype) of one tensor. Sizes come from data_offsets: tables of types go stale."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    numbers = isinstance(offsets, list) and len(offsets) == 2 and all(is_integer(item) for item in offsets)
    if not numbers or not 0 <= offsets[0] <= offsets[1] <= MAX_TENSOR_FILE_BYTES:
        raise WeightsError(
            f"The header of {what} states no usable data_offsets for the tensor {name[:80]!r}: fetch the file again."
        )
    dtype = entry.get("dtype")
    return offsets[0], offsets[1], dtype if isinstance(dtype, str) else "unknown"


def read_header(path, what=None):
    """Return the Header of the safetensors file C(path), reading the header only."""
    what = what or os.path.basename(path)
    try:
        file_bytes = os.path.getsize(path)
        with open(path, "rb") as handle:
            length = header_length(handle.read(8), file_bytes, what)
            content = handle.read(length)
    except OSError as error:
        raise WeightsError(f"Cannot read {what}: {error.strerror or error}.") from None
    if len(content) != length:
        raise WeightsError(f"{what} ended inside its header: fetch it again.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise WeightsError(f"The header of {what} is not text: it is no safetensors file or damaged.") from None
    return parse_header(text, what)


# ---------------------------------------------------------------------------
# Which files are the weights
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """The safetensors files that the engine would load. C(tensors_of): file -> tensor names that the index promises."""

    files: tuple
    tensors_of: dict
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
    return Selection(tuple(_with_missing_shards(unique)), {}, False)


def _no_weights(names):
    for row in REFUSALS:
        if any(re.search(row.pattern, name) for name in names):
            return f"Expected safetensors files in the model folder, found {row.reason}."
    return "Expected safetensors files in the model folder, found none: check the path, or download the model again."


def _select_by_index(index):
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"Expected a weight_map in {INDEX_NAME}, found none: fetch the file again.")
    tensors_of = {}
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
            raise WeightsError(
                f"{INDEX_NAME} places the tensor {tensor[:80]!r} in {name!r}, which is no file of the model"
                " folder: fetch the index again."
            )
        tensors_of.setdefault(name, []).append(tensor)
    return Selection(tuple(sorted(tensors_of)), tensors_of, True)


def _with_missing_shards(names):
    """Return C(names) plus the shards that the numbering of the others promises (a folder that lost its index)."""
    result = list(names)
    for name in names:
        match = _SHARD_PATTERN.match(name)
        if match and int(match.group("total")) <= 2000:
            for number in range(1, int(match.group("total")) + 1):
                shard = "{}-{:05d}-of-{}.safetensors".format(match.group("stem"), number, match.group("total"))
                if shard not in result:
                    result.append(shard)
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

    @property
    def complete(self):
        return not self.missing_files


_LAYER_PATTERN = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


def add_up(selection, headers, layers=None, tied=False):
    """Return the Weights of C(selection). C(headers): file -> Header, or a str that says what is wrong with it.

    C(layers): layers of the model; tensors of later layers belong to a built-in draft. C(tied): the output head is not
    loaded when the file holds one all the same. Pure.
    """
    weights = Weights(files=list(selection.files))
    for name in selection.files:
        header = headers.get(name, "is missing")
        problem = header if isinstance(header, str) else _lacking(selection, name, header)
        if problem:
            weights.missing_files.append(name)
            where = " named in " + INDEX_NAME if selection.from_index else ""
            weights.problems.append("{}{} {}.".format(name, where, problem.rstrip(".")))
            continue
        _add_file(weights, header, layers, tied)
    if weights.missing_files:
        weights.weight_bytes = None
    return weights


def _lacking(selection, name, header):
    lacking = [tensor for tensor in selection.tensors_of.get(name, ()) if tensor not in header.tensors]
    if not lacking:
        return None
    return f"lacks {len(lacking)} tensors that the index places there, the first is {sorted(lacking)[0][:80]!r}"


def _add_file(weights, header, layers, tied):
    weights.weight_bytes += header.tensor_bytes
    for name, (dtype, size_bytes) in header.tensors.items():
        weights.bytes_by_dtype[dtype] = weights.bytes_by_dtype.get(dtype, 0) + size_bytes
        if tied and name.endswith("lm_head.weight"):
            weights.tied_head_bytes += size_bytes
        layer = _LAYER_PATTERN.search(name)
        if (
            layers is not None
            and layer
            and int(layer.group(1)) >= layers
            and "visual" not in name
            and "vision" not in name
        ):
            weights.draft_layer_bytes += size_bytes


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


def read_weights(path, layers=None, tied=False):
    """Return the Weights of the model folder C(path). Raises WeightsError when it holds none that can be read."""
    index_path = os.path.join(path, INDEX_NAME)
    index = read_json(index_path, INDEX_NAME) if os.path.lexists(index_path) else None
    selection = select_files(list_names(path), index)
    headers = {}
    for name in selection.files:
        full = os.path.join(path, name)
        if not os.path.isfile(full):
            continue
        try:
            header = read_header(full, name)
        except WeightsError as error:
            headers[name] = "is damaged: " + str(error)
            continue
        actual = os.path.getsize(full)
        headers[name] = header
        if actual != header.file_bytes:
            headers[name] = f"has {actual} bytes where its header implies {header.file_bytes}: fetch it again"
    return add_up(selection, headers, layers, tied)
