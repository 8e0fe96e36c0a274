# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of the house that no linter knows: what is written in two places is equal, and nothing is forgotten."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
import readme
import tree
import yaml

ROOT = tree.ROOT
CONTENT = tree.content()
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
MODULES = sorted(path.stem for path in ROOT.glob("plugins/modules/*.py"))
UTILITIES = sorted(path.stem for path in ROOT.glob("plugins/module_utils/*.py") if path.stem != "__init__")
TEST_TEXTS = {path: path.read_text() for path in sorted(ROOT.glob("tests/unit/plugins/**/test_*.py"))}

MOST_LINES = 400
# Files that are one table of data each: they may be as long as their table.
TABLES = {"_budget_tables", "_conflicts", "_failure_catalogue", "_families", "_kv_tables"}

# Nothing in the tree may name the place where it was written; [x] keeps this file from naming it.
WORKPLACE = re.compile(
    r"(?<![\w.-])/w[o]rk/|/tmp/[w]/|/opt/p[y]pi|/root/[.]pyenv"
    r"|\bp[y]pi\.org|python[h]osted|deb\.d[e]bian\.org"
    r"|\barchitectur[e]\.md|\btest-host[s]\.md|\bsglang-fact[s]\b"
    r"|(?i:\bissue #?\d{1,2}\b)"
)


def by_name(path: Path) -> str:
    return path.name


def load(path: Path):
    return yaml.safe_load(path.read_text()) if path.is_file() else None


def options_of(role: Path) -> dict:
    """Return all options of a role; an option of several entry points must be the same in each."""
    merged = {}
    for entry in load(role / "meta" / "argument_specs.yml")["argument_specs"].values():
        for name, option in entry.get("options", {}).items():
            assert merged.setdefault(name, option) == option, f"{name} differs between entry points"
    return merged


@pytest.mark.parametrize("role", ROLES, ids=by_name)
def test_defaults_and_specs_are_equal(role):
    """A default of null stands for a variable without a safe default: the specification then has none."""
    defaults = load(role / "defaults" / "main.yml") or {}
    specified = {name: option["default"] for name, option in options_of(role).items() if "default" in option}
    assert specified == {name: value for name, value in defaults.items() if value is not None}
    assert set(defaults) - set(options_of(role)) == set()


@pytest.mark.parametrize("role", ROLES, ids=by_name)
def test_every_variable_has_the_role_as_prefix_and_a_description(role):
    for name, option in options_of(role).items():
        assert name.startswith(role.name + "_"), name
        assert option.get("description"), name
        assert option.get("type"), name


@pytest.mark.parametrize("role", ROLES, ids=by_name)
def test_a_role_uses_no_public_variable_that_is_not_specified(role):
    """A public fact that the role sets is named in a description."""
    name = re.compile(rf"(?<![\w./-]){role.name}_[a-z0-9_]+")
    known = set(name.findall((role / "meta" / "argument_specs.yml").read_text()))
    kinds = ("tasks", "templates", "handlers", "vars")
    texts = [path.read_text() for kind in kinds for path in (role / kind).rglob("*") if path.is_file()]
    tags = {tag for text in texts for line in re.findall(r"tags:.*", text) for tag in name.findall(line)}
    assert {found for text in texts for found in name.findall(text)} - known - tags == set()


def texts_of(role: Path, *kinds: str) -> list[str]:
    """Return the files of a role without the lines that are comments: naming a variable there does not use it."""
    files = [path for kind in kinds for path in sorted((role / kind).rglob("*")) if path.is_file()]
    return [re.sub(r"(?m)^\s*#.*$", "", path.read_text()) for path in files]


@pytest.mark.parametrize("role", ROLES, ids=by_name)
def test_every_default_is_used(role):
    """The specification does not count: it describes every variable, also one that nothing reads."""
    defaults = load(role / "defaults" / "main.yml") or {}
    texts = [*texts_of(role, "tasks", "templates", "handlers", "vars"), (role / "meta" / "main.yml").read_text()]
    words = set(re.findall(r"\w+", "\n".join([*texts, *map(str, defaults.values())])))
    assert sorted(set(defaults) - words) == []


def test_every_setting_of_a_server_is_used():
    role = ROOT / "roles" / "sglang_server"
    text = "\n".join(texts_of(role, "tasks", "templates", "handlers", "vars"))
    used = {name for pair in re.findall(r"\b__sglang_server(?:\.(\w+)|\['(\w+)'\])", text) for name in pair}
    assert sorted(set(load(role / "vars" / "main.yml")["__sglang_server_defaults"]) - used) == []


@pytest.mark.parametrize("folder", ["roles", "playbooks", "molecule"])
def test_no_key_is_asked_for_by_the_name_of_a_method(folder):
    """``x.values`` is the method of every dictionary: the key of this name is ``x['values']``."""
    method = re.compile(r"(?<=[\w\])])\.(?:values|keys|items)\b(?!\s*\()")
    found = []
    for path in CONTENT:
        if path.startswith(folder + "/") and path.endswith((".yml", ".yaml", ".j2")):
            lines = enumerate((ROOT / path).read_text().splitlines(), 1)
            found += [f"{path}:{number}" for number, line in lines if method.search(line)]
    assert found == []


def test_every_role_is_specified():
    assert [path.name for path in sorted(ROOT.glob("roles/*")) if path.is_dir()] == [role.name for role in ROLES]


def test_readmes_are_fresh():
    assert [str(path.relative_to(ROOT)) for path in readme.stale()] == [], "run `make readme`"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_unit_test(module):
    named = re.compile(rf"\b{module}\b")
    assert any(named.search(text) for path, text in TEST_TEXTS.items() if path.parent.name in ("modules", "action"))


@pytest.mark.parametrize("utility", UTILITIES)
def test_every_module_utility_has_a_unit_test(utility):
    room = "_" + utility.split("_")[1]  # _budget for _budget_solve: parts of a room are tested through it
    named = re.compile(rf"(?<!\w)({utility}|{room}s?)\b")
    assert any(named.search(text) for text in TEST_TEXTS.values())


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_in_the_readme(module):
    assert f"`{module}`" in (ROOT / "README.md").read_text()


def test_the_action_group_holds_every_module():
    assert sorted(load(ROOT / "meta" / "runtime.yml")["action_groups"]["all"]) == MODULES


@pytest.mark.parametrize("utility", sorted(set(UTILITIES) - TABLES))
def test_a_room_is_not_too_large(utility):
    lines = (ROOT / "plugins" / "module_utils" / f"{utility}.py").read_text().count("\n")
    assert lines <= MOST_LINES


def test_nothing_names_the_workplace():
    found = []
    for path in CONTENT:
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path}: {match.group(0)}" for match in WORKPLACE.finditer(text)]
    assert found == []


def test_every_part_of_the_plugins_says_its_licence():
    files = [path for path in CONTENT if path.startswith("plugins/") and path.endswith(".py")]
    licence = "SPDX-License-Identifier: GPL-3.0-or-later"
    missing = [path for path in files if licence not in (ROOT / path).read_text()[:400]]
    assert missing == []


def imports_of(path: Path) -> set[str]:
    """Return the top-level packages that a Python file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("utility", UTILITIES)
def test_what_runs_on_hosts_needs_the_standard_library_only(utility):
    """``requests`` comes with the engine, ``packaging`` with ansible-core: both only where the code can do without."""
    allowed = {"requests", "packaging", "ansible", "ansible_collections", *sys.stdlib_module_names}
    assert imports_of(ROOT / "plugins" / "module_utils" / f"{utility}.py") - allowed == set()


@pytest.mark.parametrize("path", sorted(ROOT.glob("changelogs/fragments/*.yml")), ids=lambda path: path.name)
def test_a_fragment_of_the_changelog_is_lists_of_sentences(path):
    assert all(isinstance(entry, str) for entries in load(path).values() for entry in entries)
