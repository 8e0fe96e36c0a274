# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments from annotated fields, the way SGLang declares them from 0.5.14 on."""

from __future__ import annotations

import argparse
import dataclasses
import re
from decimal import Decimal
from typing import Annotated, Any, Callable, Union, get_args, get_origin, get_type_hints

A = Annotated
MULTIPLIERS = {
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}


@dataclasses.dataclass(frozen=True)
class Arg:
    """What argparse must know beside the type."""

    help: str = ""
    choices: list | None = None
    aliases: list[str] | None = None
    cli_name: str | None = None
    type_parser: Callable | None = None
    no_cli: bool = False


@dataclasses.dataclass(frozen=True)
class NS:
    """The namespace of a field where all stand in one file."""

    path: str


def human_readable_int(value: str) -> int:
    """16384, 16k (16,000) or 16Ki (16,384)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", value.strip())
    if match and not (match[2].endswith("i") and "." in match[1]):
        return int(Decimal(match[1]) * MULTIPLIERS[match[2]])
    try:
        return int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Invalid integer value: '{value}'.") from None


NONE_TYPE = None.__class__


def inner_type(annotation: Any) -> tuple[Any, str | None]:
    """(type of one value, nargs) of X, Optional[X], List[X], Optional[List[X]]."""
    if get_origin(annotation) is Union:
        annotation = next(part for part in get_args(annotation) if part is not NONE_TYPE)
    if get_origin(annotation) is list:
        return get_args(annotation)[0], "+"
    return annotation, None


def add_cli_args_from_dataclass(parser: argparse.ArgumentParser, cls: type) -> None:
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        annotation, *metadata = get_args(hints[field.name])
        meta = next(part for part in metadata if isinstance(part, (str, Arg)))
        meta = Arg(help=meta) if isinstance(meta, str) else meta
        if meta.no_cli:
            continue
        names = [meta.cli_name or "--" + field.name.replace("_", "-"), *(meta.aliases or [])]
        kind, nargs = inner_type(annotation)
        options: dict[str, Any] = {"help": meta.help, "dest": field.name}
        if field.default is dataclasses.MISSING:
            options["required"] = True
        else:
            options["default"] = field.default
        if kind is bool:
            options["action"] = "store_true"
        else:
            options.update(type=meta.type_parser or kind, choices=meta.choices, nargs=nargs)
        parser.add_argument(*names, **options)
