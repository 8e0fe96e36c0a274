# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is, the scanning half: accepted arguments from installed sources. Private to the collection.

The sources are read as text by C(ast): 0.3.6-0.5.13 declare every argument by C(add_argument), later ones most of them
by annotated fields. The result was compared with the real parser (see the unit tests).
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import asdict, dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_choices import Scope, Sources, elements
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_tables import VALUE_TYPES

_READS = {row.function: row.reads for row in VALUE_TYPES}


@dataclass(frozen=True)
class Argument:
    """One argument of an installed engine. C(name) and C(aliases) without leading dashes.

    C(choices) is None when there are none or when they are computed while the engine runs. C(takes_value) is False
    for a flag. C(type) is what its text is read as: int, int_with_unit (1k, 1Ki), float, str, bool, json, json_object,
    lora_path (a path, or JSON) or other (a function that is not known here); None for a flag. C(nargs) is that of
    argparse: None for one value, 0 for a flag, "?", "*" or "+". C(negatable): it has a twin C(no-NAME), which is among
    the aliases. C(instead) is what the source names as the successor; C(refusal) what the engine says when it ends at
    this argument.
    """

    name: str
    aliases: tuple = ()
    deprecated: bool = False
    choices: tuple | None = None
    takes_value: bool = True
    type: str | None = None
    nargs: str | int | None = None
    negatable: bool = False
    instead: str | None = None
    refusal: str | None = None

    @property
    def spellings(self):
        return (self.name,) + tuple(self.aliases)

    def as_dict(self):
        data = asdict(self)
        data["aliases"] = list(self.aliases)
        data["choices"] = None if self.choices is None else list(self.choices)
        return data


def argument_sources(sglang_dir):
    """Return the source files below the package folder C(sglang_dir) that declare arguments, in a fixed order."""
    paths = [os.path.join(sglang_dir, "srt", "server_args.py")]
    fields_dir = os.path.join(sglang_dir, "srt", "arg_groups", "fields")
    if os.path.isdir(fields_dir):
        paths += [os.path.join(fields_dir, name) for name in sorted(os.listdir(fields_dir)) if name.endswith(".py")]
    return [path for path in paths if os.path.isfile(path)]


def scan_arguments(sglang_dir):
    """Read the arguments that the engine in the package folder C(sglang_dir) accepts: name -> Argument.

    Raises ValueError (one sentence) when the folder holds no engine, or a source that cannot be read.
    """
    paths = argument_sources(sglang_dir)
    if not paths:
        raise ValueError(
            f"Expected the sources of SGLang in {sglang_dir}, found no srt/server_args.py there: install the"
            " engine again."
        )
    found = {}
    sources = Sources(sglang_dir)
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as handle:
            for argument in arguments_in_source(handle.read(), path, sources):
                found.setdefault(argument.name, argument)
    if not found:
        raise ValueError(
            f"Found no server argument in {paths[0]}: this version of SGLang declares them in a way that is not"
            " known here."
        )
    return found


def arguments_in_source(text, path="<text>", sources=None):
    """Return the Arguments that the Python source C(text) declares, in their order.

    C(path) is for messages; lists of choices that other files hold are looked for in C(sources).
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"Cannot read the server arguments in {path}: {error}.") from None
    nodes = list(ast.walk(tree))
    registering = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args"]
    scope = Scope(tree, sources or Sources(), local=registering, nodes=nodes)
    found = []
    for node in nodes:
        if isinstance(node, ast.Call):
            found.append(_from_add_argument(node, scope))
        elif isinstance(node, ast.ClassDef):
            found.extend(_from_annotation(item, scope) for item in node.body if isinstance(item, ast.AnnAssign))
    return [argument for argument in found if argument is not None]


def _text(node):
    """Return the value of a string literal (also of parts joined by nothing or +), else None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return None if left is None or right is None else left + right
    return None


def _texts(node):
    """Return the strings of a literal list or tuple, else None (a list that is computed cannot be known here)."""
    if not isinstance(node, (ast.List, ast.Tuple)):
        return None
    values = [_text(item) for item in node.elts]
    return None if any(value is None for value in values) else tuple(values)


def _is_true(node):
    return isinstance(node, ast.Constant) and node.value is True


def _action_name(node):
    """Return the name of an argparse action: the string, or the last part of a class name."""
    if node is None:
        return ""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return _text(node) or ""


# Actions that take no value unless nargs says otherwise; any other action, and no action, takes one.
_FLAG_ACTIONS = (
    "store_true",
    "store_false",
    "store_const",
    "BooleanOptionalAction",
    "DeprecatedAction",
    "DeprecatedStoreTrueAction",
    "DeprecatedStoreConstAction",
)
_INSTEAD = re.compile(r"\b[Uu]se (--[a-z0-9][a-z0-9=_-]*[a-z0-9])")


def _build(names, keywords, scope, help_text, choices, value_type):
    """Make an Argument from what both declaration forms state. C(keywords): name -> node, those of add_argument."""
    plain = [name[2:] for name in names if name.startswith("--")]
    if not plain:
        return None  # a positional argument
    action = _action_name(keywords.get("action"))
    negatable = action == "BooleanOptionalAction"
    if negatable:
        plain += ["no-" + name for name in list(plain)]
    deprecated = action.startswith("Deprecated") or (help_text or "").lstrip(" ([").startswith("Deprecated")
    nargs = _nargs(keywords["nargs"]) if "nargs" in keywords else (0 if action in _FLAG_ACTIONS else None)
    instead = _text(keywords.get("new_flag")) or _successor(help_text)
    return Argument(
        plain[0],
        tuple(plain[1:]),
        deprecated,
        choices,
        takes_value=nargs != 0,
        type=None if nargs == 0 else _READS.get(action, value_type),
        nargs=nargs,
        negatable=negatable,
        instead=instead if deprecated else None,
        refusal=_text(keywords.get("error_message")),
    )


def _nargs(node):
    return node.value if isinstance(node, ast.Constant) else None


def _successor(help_text):
    """Return the argument that a text names as the one to use, with its dashes, or None."""
    match = _INSTEAD.search(help_text or "")
    return match.group(1) if match else None


def _type_name(node):
    """Return what the function C(node) reads (see Argument.type); without a function argparse keeps the text."""
    if node is None:
        return "str"
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return _READS.get(name, "other")


def _from_add_argument(node, scope):
    """Read C(parser.add_argument("--x", "--y", ...)); None for any other call."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
        return None
    names = [_text(argument) for argument in node.args]
    names = [name for name in names if name]
    keywords = {item.arg: item.value for item in node.keywords if item.arg}
    choices = elements(keywords.get("choices"), scope)
    return _build(names, keywords, scope, _text(keywords.get("help")), choices, _type_name(keywords.get("type")))


def _subscript_parts(annotation, names):
    """Return the elements of C(X[a, b]) when X is one of C(names), else None."""
    if not isinstance(annotation, ast.Subscript):
        return None
    base = annotation.value
    base_name = base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
    if base_name not in names:
        return None
    inner = annotation.slice
    return list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]


def _from_annotation(node, scope):
    """Read C(name: A[type, "help" | Arg(...)] = default), the form of 0.5.14 and later; None for other fields."""
    if not isinstance(node.target, ast.Name):
        return None
    parts = _subscript_parts(node.annotation, ("A", "Annotated"))
    if not parts or len(parts) < 2:
        return None
    metadata = next((part for part in parts[1:] if _text(part) is not None or _is_arg_call(part)), None)
    if metadata is None:
        return None
    names, help_text, keywords = ["--" + node.target.id.replace("_", "-")], _text(metadata), {}
    if _is_arg_call(metadata):
        keywords = {item.arg: item.value for item in metadata.keywords if item.arg}
        if _is_true(keywords.get("no_cli")):
            return None
        names = [_text(keywords.get("cli_name")) or names[0]] + list(_texts(keywords.get("aliases")) or ())
        help_text = _text(keywords.get("help")) or (_text(metadata.args[0]) if metadata.args else None)
    if keywords.get("action") is not None:
        return _from_custom_action(names, keywords, scope, help_text)
    return _from_field_type(names, keywords, scope, help_text, _without_optional(parts[0]))


def _from_custom_action(names, keywords, scope, help_text):
    """With an action of its own, add_cli_args_from_dataclass hands on action_kwargs and nothing of the type."""
    handed = {"action": keywords["action"]}
    given = keywords.get("action_kwargs")
    if isinstance(given, ast.Dict):
        handed.update({_text(key): value for key, value in zip(given.keys, given.values) if _text(key)})
    choices = elements(handed.get("choices"), scope)
    return _build(names, handed, scope, help_text, choices, _type_name(handed.get("type")))


def _from_field_type(names, keywords, scope, help_text, inner):
    """The rules of add_cli_args_from_dataclass (0.5.14-0.5.23 srt/arg_groups/arg_utils.py) for the type of a field."""
    choices = elements(keywords.get("choices"), scope)
    parser = keywords.get("type_parser")
    literals = _subscript_parts(inner, ("Literal",))
    listed = _subscript_parts(inner, ("List", "list"))
    passed = {}
    if literals is not None:
        values = tuple(part.value for part in literals if isinstance(part, ast.Constant))
        value_type = _type_name(parser) if parser is not None else _type_of(values[:1])
        choices = choices or (values if len(values) == len(literals) else None)
    elif parser is None and (listed is not None or (isinstance(inner, ast.Name) and inner.id in ("List", "list"))):
        passed["nargs"] = keywords.get("nargs") or ast.Constant(value="+")
        value_type = _scalar_type(listed[0]) if listed else "str"
    elif isinstance(inner, ast.Name) and inner.id == "bool":
        passed["action"] = ast.Constant(value="store_true")
        value_type = None
        choices = None
    else:
        value_type = _type_name(parser) if parser is not None else _scalar_type(inner)
        if keywords.get("nargs") is not None:
            passed["nargs"] = keywords["nargs"]
    return _build(names, passed, scope, help_text, choices, value_type)


def _type_of(values):
    """Return the type that a Literal is read as: that of its first value."""
    return type(values[0]).__name__ if values and type(values[0]) in (int, float) else "str"


def _scalar_type(annotation):
    """Return int or float for these; argparse keeps the text of everything else."""
    name = annotation.id if isinstance(annotation, ast.Name) else ""
    return name if name in ("int", "float") else "str"


def _is_arg_call(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Arg"


def _without_optional(annotation):
    """Return X of C(Optional[X]) and C(X | None), else the annotation itself."""
    parts = _subscript_parts(annotation, ("Optional",))
    if parts and len(parts) == 1:
        return parts[0]
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr) and _is_none(annotation.right):
        return annotation.left
    return annotation


def _is_none(node):
    return isinstance(node, ast.Constant) and node.value is None
