# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is, the part that reads lists of choices in its sources. Private to the collection.

Sources write C(choices=) as a list, as the name of a list in the same file or in another one, as the keys of a
dictionary, or as a sum of these. Nothing is run: what needs running is None here and is not checked.
"""

from __future__ import annotations

import ast
import os
import re

# Calls that give the elements of their only argument, and methods that give the keys of a dictionary.
_SAME_ELEMENTS = ("list", "tuple", "set", "frozenset", "sorted")
_ADDING = ("add", "append", "extend", "update")
# A name may lead to a name in another file and so on; more than this is no list that people keep by hand.
_DEEPEST = 8


class Sources:
    """The modules of an installed engine by their dotted name; without a folder there are none."""

    def __init__(self, sglang_dir=None):
        self._dir = sglang_dir
        self._texts = {}
        self._scopes = {}

    def text(self, module):
        """Return (text of the module, whether it is a package); an unknown module has an empty text."""
        if module not in self._texts:
            self._texts[module] = self._read(module)
        return self._texts[module]

    def _read(self, module):
        parts = module.split(".")
        if self._dir is None or parts[0] != "sglang":
            return "", False
        base = os.path.join(self._dir, *parts[1:])
        for path, is_package in ((base + ".py", False), (os.path.join(base, "__init__.py"), True)):
            try:
                with open(path, encoding="utf-8", errors="replace") as handle:
                    return handle.read(), is_package
            except OSError:
                continue
        return "", False

    def scope(self, module, name):
        """Return the Scope of what C(module) says about C(name)."""
        key = (module, name)
        if key not in self._scopes:
            text, is_package = self.text(module)
            try:
                tree = ast.parse(statements_about(name, text))
            except (SyntaxError, ValueError, RecursionError):
                tree = ast.parse("")
            package = module if is_package else module.rpartition(".")[0]
            self._scopes[key] = Scope(tree, self, package, module=module)
        return self._scopes[key]


def statements_about(name, text):
    """Return the top-level statements of C(text) that define, import or extend C(name), and all star imports.

    A module with thousands of lines is not parsed for the sake of one list (0.5.23 srt/utils/common.py: 0.2 s).
    """
    starts = re.compile(rf"(?:class|def)\s+{re.escape(name)}\b|{re.escape(name)}\s*[:=.]|from\s+\S+\s+import\b")
    found, block = [], []
    for line in text.splitlines(keepends=True):
        # A statement goes on with an indented line, an empty one, a comment or a closing bracket.
        if line[0] not in " \t#)]}\r\n":
            found += block
            block = []
            if not starts.match(line):
                continue
            block = [line]
        elif block:
            block.append(line)
    return "".join(found + block)


class Scope:
    """What names mean in one file, or in the part of it that is about one name.

    C(package) is the dotted name that relative imports start from, C(module) where the rest of the file is found,
    C(local) functions whose own names count too, and C(nodes) all nodes of C(tree) where they are known already.
    """

    def __init__(self, tree, sources, package="", module="", local=(), nodes=None):
        self.sources = sources
        self.module = module
        self.defined = {}  # name -> the node that gives its value, or None when there are several
        self.imported = {}  # name -> (module, name there)
        self.stars = []
        self.added = {}  # name -> values that are added to the list later on
        for node in tree.body:
            self._define(node)
        for function in local:
            for node in ast.walk(function):
                self._define(node)
        for node in ast.walk(tree) if nodes is None else nodes:
            if isinstance(node, ast.ImportFrom):
                self._import(node, package)
            elif isinstance(node, ast.Call):
                self._add(node)

    def _define(self, node):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            self.defined[node.name] = node
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            self.defined[name] = None if name in self.defined else node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self.defined[node.target.id] = node.value

    def _import(self, node, package):
        module = node.module or ""
        if node.level:
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            module = base + "." + module if module else base
        for row in node.names:
            if row.name == "*":
                self.stars.append(module)
            else:
                self.imported[row.asname or row.name] = (module, row.name)

    def _add(self, node):
        """Remember C(NAME.add("x")): the list may have this value too."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING and isinstance(node.func.value, ast.Name):
            for argument in node.args:
                values = (argument.value,) if isinstance(argument, ast.Constant) else _plain_elements(argument)
                self.added.setdefault(node.func.value.id, []).extend(values or ())

    def find(self, name, depth):
        """Return (node, scope) of what C(name) is, or (None, None)."""
        if depth > _DEEPEST:
            return None, None
        if name in self.defined:
            return self.defined[name], self
        if name in self.imported:
            module, there = self.imported[name]
            return self.sources.scope(module, there).find(there, depth + 1)
        same_file = [self.module] if self.module else []
        for module in same_file + self.stars:
            other = self.sources.scope(module, name)
            if other is not self:
                node, scope = other.find(name, depth + 1)
                if node is not None:
                    return node, scope
        return None, None


def _plain_elements(node):
    """Return the constants of a literal list, else None."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return None
    return [item.value for item in node.elts if isinstance(item, ast.Constant)]


def elements(node, scope, depth=0):
    """Return the tuple of constants that the expression C(node) lists, or None when it must be run to be known."""
    if node is None or depth > _DEEPEST:
        return None
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _listed_elements(node.elts, scope, depth)
    if isinstance(node, ast.Dict):
        return _listed_elements(node.keys, scope, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = elements(node.left, scope, depth + 1), elements(node.right, scope, depth + 1)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.Call):
        return _called_elements(node, scope, depth)
    if isinstance(node, (ast.Name, ast.Attribute)):
        found, where = _resolved(node, scope, depth)
        values = elements(found, where, depth + 1) if found is not None else None
        if values is not None and isinstance(node, ast.Name):
            more = where.added.get(node.id, []) + (scope.added.get(node.id, []) if scope is not where else [])
            values += tuple(value for value in more if value not in values)
        return values
    return None


def _listed_elements(nodes, scope, depth):
    values = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            part = elements(node.value, scope, depth + 1)
        else:
            part = _constant(node, scope, depth)
        if part is None:
            return None
        values.extend(part)
    return tuple(values)


def _constant(node, scope, depth):
    """Return (value,) of a constant or of a name that stands for one, else None."""
    if isinstance(node, ast.Constant):
        return (node.value,)
    if isinstance(node, (ast.Name, ast.Attribute)):
        found, _where = _resolved(node, scope, depth)
        return (found.value,) if isinstance(found, ast.Constant) else None
    return None


def _called_elements(node, scope, depth):
    if node.keywords:
        return None
    if isinstance(node.func, ast.Name) and node.func.id in _SAME_ELEMENTS and len(node.args) == 1:
        return elements(node.args[0], scope, depth + 1)
    if node.args:
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
        return elements(node.func.value, scope, depth + 1)
    if isinstance(node.func, ast.Name):
        function, where = scope.find(node.func.id, depth)
        # What a function gives when nothing was imported before: its last return (0.5.23 _tool_call_parser_choices).
        last = function.body[-1] if isinstance(function, ast.FunctionDef) else None
        return elements(last.value, where, depth + 1) if isinstance(last, ast.Return) else None
    return None


def _resolved(node, scope, depth):
    """Return (node, scope) of what a name, or an attribute of a class, stands for."""
    if isinstance(node, ast.Name):
        found, where = scope.find(node.id, depth)
        # A name for another name (0.5.14: NSA_CHOICES = DSA_CHOICES).
        if isinstance(found, (ast.Name, ast.Attribute)) and depth < _DEEPEST:
            return _resolved(found, where, depth + 1)
        return found, where
    if not isinstance(node.value, ast.Name):
        return None, None
    owner, where = _resolved(node.value, scope, depth + 1) if depth < _DEEPEST else (None, None)
    if not isinstance(owner, ast.ClassDef):
        return None, None
    # The body of a class sees its own names first and those of its file after them.
    inside = Scope(ast.Module(body=owner.body, type_ignores=[]), where.sources)
    inside.imported, inside.stars = where.imported, where.stars
    inside.defined = dict(where.defined, **inside.defined)
    return inside.defined.get(node.attr) if node.attr in _names_in(owner) else None, inside


def _names_in(owner):
    """Return the names that the body of a class gives values to."""
    names = set()
    for node in owner.body:
        if isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names
