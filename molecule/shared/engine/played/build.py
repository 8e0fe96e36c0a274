# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes wheels of the played engine: a package that is called sglang and torch, in any version, without a compiler.

    python build.py FOLDER VERSION...

The declarations of the arguments are written in the form that the version has: calls of add_argument (to 0.5.13),
annotated fields in one file (to 0.5.19), annotated fields in a file a namespace (from 0.5.20 on).
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

import arguments

HERE = Path(__file__).resolve().parent

# First SGLang version -> torch that it pins, and the CUDA that PyPI's torch of that version is made for.
# Source: METADATA of the wheels, torch/version.py.
TORCH = (
    ("0.4.6", "2.6.0", "12.4"),
    ("0.4.9", "2.7.1", "12.6"),
    ("0.5.2", "2.8.0", "12.8"),
    ("0.5.6", "2.9.1", "12.8"),
    ("0.5.11", "2.11.0", "13.0"),
    ("0.5.18", "2.13.0", "13.0"),
    ("0.5.22", "2.14.1", "13.0"),
)
PYTHON = (("0.4.6", ">=3.8"), ("0.5.2", ">=3.10"), ("0.5.22", ">=3.11"))

HEADER = '"""{}"""\n\nfrom __future__ import annotations\n\n'
TYPES = {"str": "str", "int": "int", "float": "float", "bool": "bool", "count": "int", "ints": "List[int]"}


def newest(table: tuple, version: str) -> tuple:
    """The last row of a table that begins at or before the version."""
    return [row for row in table if arguments.key(row[0]) <= arguments.key(version)][-1]


# --- the forms of a declaration


def field_name(row: arguments.Row) -> str:
    return row.name.replace("-", "_")


def choices_text(row: arguments.Row) -> str:
    return row.choices if isinstance(row.choices, str) else repr(list(row.choices))


def required(row: arguments.Row) -> bool:
    return row.name == "model-path"


def add_argument(row: arguments.Row, version: str) -> str:
    """A call of add_argument. To 0.5.13 the long spelling of a size comes first: --tensor-parallel-size, --tp-size."""
    names = [f"--{name}" for name in (row.name, *row.aliases)]
    if row.aliases and row.name.endswith("-size"):
        names = [names[1], names[0], *names[2:]]
    words = [repr(name) for name in names]
    text = row.help
    if arguments.is_deprecated(row, version):
        action = "DeprecatedStoreTrueAction" if row.kind == "bool" else "DeprecatedAliasStoreAction"
        words += [f"action={action}", f"new_flag={row.replaced_by!r}"]
        if row.kind != "bool":
            words.append("dest={!r}".format(row.replaced_by.lstrip("-").replace("-", "_")))
            words.append("default=argparse.SUPPRESS")
        text = f"Deprecated. Use {row.replaced_by} instead."
    elif row.kind == "bool":
        words.append("action='store_true'")
    else:
        words.append("required=True" if required(row) else f"default=ServerArgs.{field_name(row)}")
    if row.kind in ("int", "count", "ints"):
        words.append("type=int")
    elif row.kind != "bool":
        words.append(f"type={row.kind}")
    if row.kind == "ints":
        words.append("nargs='+'")
    if row.choices:
        words.append(f"choices={choices_text(row)}")
    if len(names) > 1 and not arguments.is_deprecated(row, version):
        words.append(f"dest={field_name(row)!r}")
    return "        parser.add_argument({}, help={!r})\n".format(", ".join(words), text)


def annotated(row: arguments.Row, namespace: bool) -> str:
    """A field A[type, "help" | Arg(...)]; with NS(...) where fields of all namespaces stand in one file."""
    kind = TYPES[row.kind]
    if row.default is None and not required(row):
        kind = f"Optional[{kind}]"
    more = []
    if row.choices:
        more.append(f"choices={choices_text(row)}")
    if row.aliases:
        more.append("aliases={!r}".format([f"--{name}" for name in row.aliases]))
    if row.kind == "count":
        more.append("type_parser=human_readable_int")
    meta = "Arg({})".format(", ".join([f"help={row.help!r}", *more])) if more else repr(row.help)
    space = ", NS({!r})".format(row.namespace.rstrip("_")) if namespace else ""
    default = "" if required(row) else f" = {row.default!r}"
    return f"    {field_name(row)}: A[{kind}, {meta}{space}]{default}\n"


def plain_field(row: arguments.Row) -> str:
    kind = TYPES[row.kind]
    if row.default is None and not required(row):
        kind = f"Optional[{kind}]"
    return f"    {field_name(row)}: {kind}" + ("\n" if required(row) else f" = {row.default!r}\n")


def choice_lists() -> str:
    return "".join(f"{name} = {list(values)!r}\n" for name, values in arguments.CHOICES.items())


def config_line(version: str) -> str:
    if arguments.key(version) < (0, 5, 3):
        return ""
    return "        parser.add_argument('--config', type=str, help='Read CLI options from a config file.')\n"


ACTIONS = "from sglang.srt.arg_groups.argparse_actions import DeprecatedAliasStoreAction, DeprecatedStoreTrueAction\n"
TOOLS = "from sglang.srt.arg_groups.arg_utils import NS, A, Arg, add_cli_args_from_dataclass, human_readable_int\n"


def sources_of_calls(version: str) -> dict[str, str]:
    rows = arguments.rows_of(version)
    text = HEADER.format("The arguments of the server.") + "import argparse\nimport dataclasses\n"
    text += "from typing import List, Optional\n\n" + ACTIONS + "\n" + choice_lists()
    text += "\n\n@dataclasses.dataclass\nclass ServerArgs:\n" + "".join(plain_field(row) for row in rows)
    text += "\n    @staticmethod\n    def add_cli_args(parser: argparse.ArgumentParser):\n"
    text += "".join(add_argument(row, version) for row in rows) + config_line(version)
    return {"sglang/srt/server_args.py": text}


def sources_of_one_file(version: str) -> dict[str, str]:
    rows = arguments.rows_of(version)
    plain = [row for row in rows if not arguments.is_deprecated(row, version)]
    old = [row for row in rows if arguments.is_deprecated(row, version)]
    text = HEADER.format("The arguments of the server.") + "import argparse\nimport dataclasses\n"
    text += "from typing import List, Optional\n\n" + TOOLS + ACTIONS + "\n" + choice_lists()
    text += "\n\n@dataclasses.dataclass\nclass ServerArgs:\n" + "".join(annotated(row, True) for row in plain)
    text += "".join(f"    {field_name(row)}: bool = False\n" for row in old if row.kind == "bool")
    text += "\n    @staticmethod\n    def add_cli_args(parser: argparse.ArgumentParser):\n"
    text += "        add_cli_args_from_dataclass(parser, ServerArgs)\n"
    text += "".join(add_argument(row, version) for row in old) + config_line(version)
    return {"sglang/srt/server_args.py": text}


def sources_of_many_files(version: str) -> dict[str, str]:
    rows = arguments.rows_of(version)
    old = [row for row in rows if arguments.is_deprecated(row, version)]
    sources = {
        "sglang/srt/arg_groups/choices.py": '"""Lists of choices that plugins may extend."""\n\n' + choice_lists(),
        "sglang/srt/arg_groups/fields/__init__.py": "",
    }
    imports = ""
    for namespace, name in arguments.NAMESPACES.items():
        fields = [row for row in rows if row.namespace == namespace and row not in old]
        text = HEADER.format(f"Config fields of the ``{namespace}`` namespace.") + "import dataclasses\n"
        text += "from typing import List, Optional\n\n"
        text += "from sglang.srt.arg_groups.arg_utils import A, Arg, human_readable_int\n"
        text += "from sglang.srt.arg_groups.choices import {}\n".format(", ".join(arguments.CHOICES))
        text += f"\n\n@dataclasses.dataclass(kw_only=True)\nclass {name}:\n"
        text += "".join(annotated(row, False) for row in fields)
        sources[f"sglang/srt/arg_groups/fields/{namespace}.py"] = text
        imports += f"from sglang.srt.arg_groups.fields.{namespace} import {name}\n"
    text = HEADER.format("The arguments of the server.") + "import argparse\nimport dataclasses\n\n"
    text += TOOLS + ACTIONS + imports + "\n\n@dataclasses.dataclass(kw_only=True)\n"
    text += "class ServerArgs({}):\n".format(", ".join(arguments.NAMESPACES.values()))
    text += "".join(f"    {field_name(row)}: bool = False\n" for row in old if row.kind == "bool")
    text += "\n    @staticmethod\n    def add_cli_args(parser: argparse.ArgumentParser):\n"
    text += "        add_cli_args_from_dataclass(parser, ServerArgs)\n"
    text += "".join(add_argument(row, version) for row in old) + config_line(version)
    return {**sources, "sglang/srt/server_args.py": text}


def generated(version: str) -> dict[str, str]:
    if arguments.key(version) < (0, 5, 14):
        return sources_of_calls(version)
    return sources_of_one_file(version) if arguments.key(version) < (0, 5, 20) else sources_of_many_files(version)


# --- wheels


def write_wheel(
    folder: Path, name: str, version: str, files: dict[str, str], metadata: list[str], scripts: str = ""
) -> None:
    """A wheel is an archive with its own list of contents; the same sources give the same bytes."""
    info = f"{name}-{version}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Summary: a played engine", *metadata]
    files = {
        **files,
        f"{info}/METADATA": "\n".join(head) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: played\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        files[f"{info}/entry_points.txt"] = scripts
    record = []
    path = folder / f"{name}-{version}-py3-none-any.whl"
    part = path.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, text in sorted(files.items()):
            data = text.encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{inner},sha256={digest},{len(data)}")
            archive.writestr(zipfile.ZipInfo(inner, (2026, 1, 1, 0, 0, 0)), data)
        record += [f"{info}/RECORD,,", ""]
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2026, 1, 1, 0, 0, 0)), "\n".join(record))
    part.replace(path)


def sglang_wheel(folder: Path, version: str) -> None:
    files = {str(path.relative_to(HERE)): path.read_text() for path in sorted((HERE / "sglang").rglob("*.py"))}
    files["sglang/version.py"] = f'__version__ = "{version}"\n'
    files.update(generated(version))
    torch = newest(TORCH, version)[1]
    metadata = [f"Requires-Python: {newest(PYTHON, version)[1]}"]
    metadata += [f"Requires-Dist: {spec}" for spec in ("requests", "pyyaml", f"torch=={torch}")]
    scripts = "[console_scripts]\nsglang = sglang.cli.main:main\n" if arguments.key(version) >= (0, 5, 4) else ""
    write_wheel(folder, "sglang", version, files, metadata, scripts)


def torch_wheel(folder: Path, version: str, cuda: str) -> None:
    local = version + "+cu" + cuda.replace(".", "")
    files = {
        "torch/__init__.py": '"""Says its version."""\n\nfrom torch.version import __version__ as __version__\n',
        "torch/version.py": f"from typing import Optional\n\n__version__ = '{local}'\ndebug = False\n"
        f"cuda: Optional[str] = '{cuda}'\nhip: Optional[str] = None\n",
    }
    write_wheel(folder, "torch", version, files, [])


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for version in sys.argv[2:]:
        sglang_wheel(folder, version)
        torch_wheel(folder, *newest(TORCH, version)[1:])


if __name__ == "__main__":
    main()
