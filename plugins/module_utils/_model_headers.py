# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one safetensors file says of itself, and JSON files of bounded size. Private to the collection.

Only headers are read (8 bytes of length, then JSON), never tensor data, and nothing is ever unpickled. A header is
input from a stranger: every number in it is checked before it is believed.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from dataclasses import dataclass
from operator import itemgetter, sub

MAX_HEADER_BYTES = 100 * 1000 * 1000  # the limit of the safetensors format itself
MAX_JSON_BYTES = 64 * 1024 * 1024  # config.json and the shard index are a few MB at most
MAX_TENSOR_FILE_BYTES = 2**50
MAX_DIMENSIONS = 32

_LFS_POINTER = b"version https://git-lfs"

# Bits of one number, by the names of the safetensors format (safetensors/src/tensor.rs). A type that is not here is
# believed by its offsets alone: tables of types go stale.
BITS_OF_TYPE = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
}


class WeightsError(ValueError):
    """A weight file or its index cannot be believed, or there is none. The text is one sentence."""


@dataclass(frozen=True)
class Header:
    """What one safetensors file says of itself. C(tensors): name -> form, (dtype, bytes, shape or None)."""

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


def json_of_bytes(content, what):
    """Return the JSON object in the bytes of a whole file, which may be a pointer instead."""
    if len(content) > MAX_JSON_BYTES:
        raise WeightsError(_too_large(what, len(content)))
    if content.startswith(_LFS_POINTER):
        raise WeightsError(
            f"{what} is a Git LFS pointer, not the file itself: fetch it with git lfs pull or download it."
        )
    return loads_object(content.decode("utf-8", "replace"), what)


def _too_large(what, size_bytes):
    return f"Expected at most {MAX_JSON_BYTES} bytes in {what}, found {size_bytes}: this is not the file of a model."


def read_json(path, what):
    """Return the JSON object in the file C(path), of bounded size."""
    try:
        size_bytes = os.path.getsize(path)
        if size_bytes > MAX_JSON_BYTES:
            raise WeightsError(_too_large(what, size_bytes))
        with open(path, "rb") as handle:
            content = handle.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise WeightsError(f"Cannot read {what}: {error.strerror or error}.") from None
    return json_of_bytes(content, what)


# ---------------------------------------------------------------------------
# The header
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
            " no safetensors file or damaged, fetch it again."
        )
    if length < 2 or 8 + length > file_bytes:
        raise WeightsError(
            f"{what} states a header of {length} bytes but has {file_bytes} bytes in all: it is cut off, fetch it"
            " again."
        )
    return length


def header_of_bytes(content, what):
    """Return the Header in C(content), the bytes of the JSON part alone."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise WeightsError(
            f"The header of {what} is not text: it is no safetensors file or damaged, fetch it again."
        ) from None
    return parse_header(text, what)


def parse_header(text, what):
    """Return the Header that the JSON C(text) states. C(what) names the file in messages. Pure."""
    try:
        names, begins, ends, forms = _scanned(text, what)
    except (ValueError, RecursionError):  # not as the writer of the format writes it: other JSON, or none
        data = loads_object(text, "the header of " + what)
        data.pop("__metadata__", None)
        names = tuple(data)
        begins, ends, forms = _parsed(data, what)
    reached = _joined(begins, ends, what)
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8"))
    return Header(dict(zip(names, forms)), reached, 8 + size_bytes + reached)


# An entry as the writer of the format writes it (safetensors/src/tensor.rs): "name":{"dtype":"F32","shape":[2,3],
# "data_offsets":[0,24]}, without spaces. What is the same in all of them becomes the end of a line, and a mark that
# tells which of them it was: a name, the middle with its mark, the offsets with theirs.
_MARKS = (('":{"dtype":"', "\n\x01"), ('],"data_offsets":[', "\n\x02"), (']},"', "\n"))
_MIDDLE = re.compile(r"\x01([A-Z0-9_]{1,12})\",\"shape\":(\[(?:[0-9]{1,16}(?:,[0-9]{1,16}){0,31})?)")
_METADATA = '{"__metadata__":'


def _scanned(text, what):
    """Return (names, begins, ends, forms) of a header in the usual form; raise ValueError for any other.

    Nothing is passed over: every line of every entry is looked at. Twice as fast as JSON, and a model has up to some
    hundred thousand entries.
    """
    begin = 1
    if text.startswith(_METADATA):
        begin = json.JSONDecoder().raw_decode(text, len(_METADATA))[1] + 1
    body = text[begin:].rstrip(" ")
    if text[:1] != "{" or (begin > 1 and text[begin - 1] != ",") or body[:1] != '"' or body[-3:] != "]}}":
        raise ValueError(what)
    body = body[1:-3]
    for words, mark in _MARKS:
        body = body.replace(words, mark)
    lines = body.split("\n")
    names, count = lines[::3], len(lines) // 3
    if len(lines) != 3 * count or len(set(names)) != count:  # of two of a name the later counts
        raise ValueError(what)
    joined = "".join(names)
    if not joined.isprintable() or '"' in joined or "\\" in joined or "__metadata__" in names:
        raise ValueError(what)  # a mark that is another line's, or a name that only JSON can read
    begins, ends = _offsets("".join(lines[2::3]), count, what)
    forms = list(zip(lines[1::3], map(sub, ends, begins)))
    known = {form: _form(*form, what) for form in set(forms)}
    return names, begins, ends, [known[form] for form in forms]


def _offsets(text, count, what):
    """Return (begins, ends) of C(count) lines such as "0,24" with their marks, joined."""
    if text.encode().translate(None, b"0123456789") != b"\x02," * count:
        raise ValueError(what)
    if text.count("\x020") != text.count("\x020,") or text.count(",0") != (text + "\x02").count(",0\x02"):
        raise ValueError(what)  # 007 is no number of JSON
    numbers = text[1:].replace("\x02", ",").split(",")
    ends = tuple(map(int, numbers[1::2]))
    if numbers[2::2] == numbers[1:-1:2]:  # mostly each begins where the one before ends
        begins = (int(numbers[0]), *ends[:-1])
    else:
        begins = tuple(map(int, numbers[::2]))
    if max(ends) > MAX_TENSOR_FILE_BYTES:
        raise ValueError(what)
    return begins, ends


def _form(middle, size_bytes, what):
    """Return (dtype, bytes, shape) of the middle of an entry."""
    match = _MIDDLE.fullmatch(middle)
    if match is None or size_bytes < 0:
        raise ValueError(what)
    dtype, shape = match.groups()
    return dtype, size_bytes, _shape("", json.loads(shape + "]"), dtype, size_bytes, what)


def _parsed(data, what):
    """Return (begins, ends, forms) of the entries C(data): name -> entry."""
    try:
        return _columns(data, what)
    except (AttributeError, KeyError, TypeError, ValueError):  # something is odd: which tensor, and may it be so
        return tuple(zip(*(_entry(name, entry, what) for name, entry in data.items())))


def _columns(data, what):
    """Return (begins, ends, forms) of all tensors at once: a model has up to some hundred thousand in a dozen forms.

    Raises an error of any text for whatever is not written as usual, _entry says then what it is.
    """
    if not data:
        return (), (), ()
    entries = data.values()
    offsets = list(map(itemgetter("data_offsets"), entries))
    if set(map(len, offsets)) != {2}:
        raise ValueError(what)
    begins, ends = zip(*offsets)
    if not set(map(type, begins)) | set(map(type, ends)) <= {int}:  # true and 8.0 are equal to whole numbers
        raise ValueError(what)
    if min(begins) < 0 or max(ends) > MAX_TENSOR_FILE_BYTES:
        raise ValueError(what)
    shapes = map(tuple, map(itemgetter("shape"), entries))
    forms = list(zip(map(itemgetter("dtype"), entries), map(sub, ends, begins), shapes))
    different = {}
    forms = list(map(different.setdefault, forms, forms))  # equal ones become the same
    for dtype, size_bytes, shape in different:
        if not isinstance(dtype, str) or size_bytes < 0:
            raise ValueError(what)
        _shape("", list(shape), dtype, size_bytes, what)
    return begins, ends, forms


def _joined(begins, ends, what):
    """Return where the last tensor ends. Raises WeightsError when they overlap or leave holes."""
    if begins[1:] != ends[:-1]:  # mostly they are written in their order
        begins, ends = zip(*sorted(zip(begins, ends)))
    for begin, reached in zip(begins, (0, *ends)):
        if begin != reached:
            raise WeightsError(
                f"The tensors in the header of {what} overlap or leave holes (one begins at byte {begin}, the one"
                f" before ends at {reached}): fetch it again."
            )
    return ends[-1] if ends else 0


def _entry(name, entry, what):
    """Return (begin, end, form) of one tensor. Bytes come from the offsets, which the shape must not deny."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(is_integer(offset) for offset in offsets)
        or not 0 <= offsets[0] <= offsets[1] <= MAX_TENSOR_FILE_BYTES
    ):
        raise WeightsError(
            f"The header of {what} states no usable data_offsets for the tensor {name[:80]!r}: fetch the file again."
        )
    begin, end = offsets
    dtype = entry.get("dtype")
    if not isinstance(dtype, str):
        dtype = "unknown"
    shape = entry.get("shape")
    return begin, end, (dtype, end - begin, None if shape is None else _shape(name, shape, dtype, end - begin, what))


def _shape(name, shape, dtype, size_bytes, what):
    """Return the shape as a tuple. Raises WeightsError when it cannot be one of C(size_bytes) bytes."""
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise WeightsError(_bad_shape(name, what, "its shape is no list of sizes"))
    for size in shape:
        if not is_integer(size) or not 0 <= size <= MAX_TENSOR_FILE_BYTES:
            raise WeightsError(_bad_shape(name, what, f"its shape holds {str(size)[:40]}"))
    bits = BITS_OF_TYPE.get(dtype)
    if bits is not None and math.prod(shape) * bits != size_bytes * 8:
        raise WeightsError(_bad_shape(name, what, f"{size_bytes} bytes are not the shape {str(shape)[:60]} of {dtype}"))
    return tuple(shape)


def _bad_shape(name, what, problem):
    return f"The header of {what} contradicts itself for the tensor {name[:80]!r} ({problem}): fetch the file again."


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
    return header_of_bytes(content, what)
