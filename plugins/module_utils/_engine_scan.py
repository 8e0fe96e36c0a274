# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is, the scanning half: accepted arguments from installed sources. Private to the collection.

The sources are read as text by C(ast). The result was compared with the real parser (see the unit tests).
"""

from __future__ import annotations

import ast
import os
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Argument:
    """One argument of an installed engine. C(name) and C(aliases) without leading dashes.

    C(choices) is None when there are none or when they are computed while the engine runs. C(takes_value) is False
    for a flag.
    """

    name: str
    aliases: tuple = ()
    deprecated: bool = False
    choices: tuple | None = None
    takes_value: bool = True

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
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as handle:
            for argument in arguments_in_source(handle.read(), path):
                found.setdefault(argument.name, argument)
    if not found:
        raise ValueError(
            f"Found no server argument in {paths[0]}: this version of SGLang declares them in a way that is not"
            " known here."
        )
    return found


def arguments_in_source(text, path="<text>"):
    """Return the Arguments that the Python source C(text) declares, in their order (pure; C(path) is for messages)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ValueError(f"Cannot read the server arguments in {path}: {error}.") from None
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.append(_from_add_argument(node))
        elif isinstance(node, ast.ClassDef):
            found.extend(_from_annotation(item) for item in node.body if isinstance(item, ast.AnnAssign))
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


# Actions that take no value; any other action, and no action, takes one.
_FLAG_ACTIONS = ("store_true", "store_false", "store_const", "BooleanOptionalAction", "DeprecatedStoreTrueAction")


def _build(names, action, help_text, choices, is_bool=False):
    """Make an Argument from what both declaration forms state."""
    plain = [name[2:] for name in names if name.startswith("--")]
    if not plain:
        return None  # a positional argument
    if action == "BooleanOptionalAction":
        plain += ["no-" + name for name in list(plain)]
    deprecated = action.startswith("Deprecated") or (help_text or "").lstrip(" ([").startswith("Deprecated")
    flag = action in _FLAG_ACTIONS or (is_bool and not action)
    return Argument(plain[0], tuple(plain[1:]), deprecated, choices, not flag)


def _from_add_argument(node):
    """Read C(parser.add_argument("--x", "--y", ...)); None for any other call."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
        return None
    names = [_text(argument) for argument in node.args]
    names = [name for name in names if name]
    keywords = {item.arg: item.value for item in node.keywords if item.arg}
    action = _action_name(keywords.get("action"))
    return _build(names, action, _text(keywords.get("help")), _texts(keywords.get("choices")))


def _subscript_parts(annotation, name_test):
    """Return the elements of C(X[a, b]) when X passes C(name_test), else None (Python 3.8 wraps them in Index)."""
    if not isinstance(annotation, ast.Subscript):
        return None
    base = annotation.value
    base_name = base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
    if not name_test(base_name):
        return None
    inner = (
        getattr(annotation.slice, "value", annotation.slice)
        if type(annotation.slice).__name__ == "Index"
        else annotation.slice
    )
    return list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]


def _from_annotation(node):
    """Read C(name: A[type, "help" | Arg(...)] = default), the form of 0.5.14 and later; None for other fields."""
    if not isinstance(node.target, ast.Name):
        return None
    parts = _subscript_parts(node.annotation, lambda name: name in ("A", "Annotated"))
    if not parts or len(parts) < 2:
        return None
    metadata = next((part for part in parts[1:] if _text(part) is not None or _is_arg_call(part)), None)
    if metadata is None:
        return None
    names, action, help_text, choices = ["--" + node.target.id.replace("_", "-")], "", _text(metadata), None
    if _is_arg_call(metadata):
        keywords = {item.arg: item.value for item in metadata.keywords if item.arg}
        if _is_true(keywords.get("no_cli")):
            return None
        names = [_text(keywords.get("cli_name")) or names[0]] + list(_texts(keywords.get("aliases")) or ())
        action = _action_name(keywords.get("action"))
        help_text = _text(keywords.get("help")) or (_text(metadata.args[0]) if metadata.args else None)
        choices = _texts(keywords.get("choices"))
    if choices is None:
        choices = _literal_choices(parts[0])
    return _build(names, action, help_text, choices, is_bool=_is_bool(parts[0]))


def _is_arg_call(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Arg"


def _without_optional(annotation):
    """Return X of C(Optional[X]), else the annotation itself."""
    parts = _subscript_parts(annotation, lambda name: name == "Optional")
    return parts[0] if parts and len(parts) == 1 else annotation


def _is_bool(annotation):
    inner = _without_optional(annotation)
    return isinstance(inner, ast.Name) and inner.id == "bool"


def _literal_choices(annotation):
    parts = _subscript_parts(_without_optional(annotation), lambda name: name == "Literal")
    if not parts:
        return None
    values = [_text(part) for part in parts]
    return None if any(value is None for value in values) else tuple(values)
