# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what the READMEs repeat: roles/*/README.md from the argument specs, and the tables of the top README.md.

    .venv/bin/python tools/readme.py            write them
    .venv/bin/python tools/readme.py --check    write nothing; exit 1 and name the files that are not fresh

An example of a role is the ``examples`` text of its entry point. The top README gets a table between the lines
``<!-- begin roles -->`` and ``<!-- end roles -->``; ``modules`` and ``playbooks`` in the same way.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "gpufleet.sglang"
MADE = "<!-- Made by `make readme` from meta/argument_specs.yml: change that file, not this one. -->"

# Ansible's markup for documentation -> Markdown.
MARKUP = (
    (re.compile(r"\bL\(([^,()]+), *([^()]+)\)"), r"[\1](\2)"),
    (re.compile(r"\bU\(([^()]+)\)"), r"<\1>"),
    (re.compile(r"\bB\(((?:[^()\\]|\\.)*)\)"), r"**\1**"),
    (re.compile(r"\bI\(((?:[^()\\]|\\.)*)\)"), r"*\1*"),
    (re.compile(r"\b(?:O|V|C|M|E|RV|P|R)\(((?:[^()\\]|\\.|\([^()]*\))*)\)"), r"`\1`"),
)


def markdown(text: str) -> str:
    """Turn a sentence with Ansible's markup into Markdown on one line."""
    text = " ".join(text.split())
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    return text.replace("\\)", ")").replace("\\(", "(")


def sentences(description: str | list[str]) -> list[str]:
    """Return a description as a list of Markdown sentences."""
    return [markdown(text) for text in ([description] if isinstance(description, str) else description or [])]


def literal(value: Any) -> str:
    """Return a default as it would stand in a YAML file, on one line."""
    if isinstance(value, bool) or value is None:
        text = {True: "true", False: "false", None: "null"}[value]
    elif value in ("", [], {}):
        text = {str: '""', list: "[]", dict: "{}"}[type(value)]
    elif isinstance(value, (list, dict)):
        text = yaml.safe_dump(value, default_flow_style=True, width=10000, sort_keys=False).strip()
    else:
        text = str(value)
    return f"`{text}`"


def option_type(option: dict[str, Any]) -> str:
    """Return the type of an option in words."""
    kind = option.get("type", "str")
    return f"list of {option['elements']}" if kind == "list" and "elements" in option else kind


def default_of(option: dict[str, Any]) -> str:
    """Return what the table shows as the default of an option."""
    if option.get("required"):
        return "**required**"
    return literal(option["default"]) if "default" in option else ""


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(" --- " for _head in heads) + "|"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def option_rows(options: dict[str, dict[str, Any]], prefix: str = "") -> list[list[str]]:
    """Return one row per option; options of dictionaries follow theirs as ``name.key``."""
    rows = []
    for name, option in options.items():
        meaning = sentences(option["description"])
        choices = [literal(choice) for choice in option.get("choices", [])]
        if not all(choice in " ".join(meaning) for choice in choices):
            meaning.append("One of " + ", ".join(choices) + ".")
        default = default_of(option)
        rows.append([f"`{prefix}{name}`", option_type(option), default, " ".join(meaning)])
        rows += option_rows(option.get("options", {}), f"{prefix}{name}.")
    return rows


def same_options(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return set(one) == set(other) and bool(one)


def variables(entry: dict[str, Any], main: dict[str, Any]) -> list[str]:
    """Return the section about the variables of an entry point."""
    options = entry.get("options", {})
    if not options:
        return ["It takes no variables.", ""]
    if entry is not main and same_options(options, main.get("options", {})):
        return ["It takes the variables of `main`.", ""]
    return [*table(["Variable", "Type", "Default", "Meaning"], option_rows(options)), ""]


def load_specs(role: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]


def role_readme(role: Path) -> str:
    """Return the README of a role."""
    specs = load_specs(role)
    main = specs.get("main") or next(iter(specs.values()))
    lines = [f"# Role {COLLECTION}.{role.name}", "", MADE, ""]
    for name, entry in specs.items():
        if len(specs) > 1:
            lines += [f"## Entry point `{name}`", ""]
        lines += [markdown(entry["short_description"]).rstrip(".") + ".", ""]
        for sentence in sentences(entry.get("description", [])):
            lines += [sentence, ""]
        if entry.get("examples"):
            lines += ["```yaml", entry["examples"].strip("\n"), "```", ""]
        lines += variables(entry, main)
    return "\n".join(lines).rstrip("\n") + "\n"


def module_documentation(module: Path) -> dict[str, Any]:
    """Return the DOCUMENTATION of a plugin file, without importing it."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "DOCUMENTATION":
            return yaml.safe_load(ast.literal_eval(node.value))
    raise SystemExit(f"{module} has no DOCUMENTATION")


def roles() -> list[Path]:
    return sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))


def roles_table() -> list[str]:
    rows = []
    for role in roles():
        specs = load_specs(role)
        main = specs.get("main") or next(iter(specs.values()))
        rows.append([f"[`{role.name}`](roles/{role.name}/README.md)", markdown(main["short_description"]).rstrip(".")])
    return table(["Role", "What it does"], rows)


def modules_table() -> list[str]:
    rows = []
    for module in sorted(ROOT.glob("plugins/modules/*.py")):
        short = module_documentation(module)["short_description"]
        rows.append([f"`{module.stem}`", markdown(short).rstrip(".")])
    return table(["Module", "What it does"], rows)


def playbooks_table() -> list[str]:
    """Return one row per playbook: the comment lines at its head say what it does."""
    rows = []
    for playbook in sorted(ROOT.glob("playbooks/*.yml")):
        comment = [line for line in playbook.read_text().splitlines()[:12] if line.startswith("# ")]
        text = " ".join(line[2:] for line in comment)
        rows.append([f"`{COLLECTION}.{playbook.stem}`", re.split(r"(?<=\.) ", text)[0].rstrip(".")])
    return table(["Playbook", "What it does"], rows)


def top_readme(text: str) -> str:
    """Return the top README with fresh tables between their markers."""
    for name, make in (("roles", roles_table), ("modules", modules_table), ("playbooks", playbooks_table)):
        block = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if block.search(text):
            body = "\n".join(make()) + "\n"
            text = block.sub(lambda found, body=body: found[1] + body + found[2], text)
    return text


def fresh() -> dict[Path, str]:
    """Return each README that is made here, with what it should hold."""
    wanted = {role / "README.md": role_readme(role) for role in roles()}
    top = ROOT / "README.md"
    if top.is_file():
        wanted[top] = top_readme(top.read_text())
    return wanted


def stale() -> list[Path]:
    """Return the READMEs that do not hold what they should."""
    return [path for path, text in fresh().items() if not path.is_file() or path.read_text() != text]


def main(arguments: list[str]) -> int:
    wanted = fresh()
    old = stale()
    for path in old:
        name = path.relative_to(ROOT)
        if "--check" in arguments:
            print(f"readme: {name} is not fresh: run `make readme`")
        else:
            path.write_text(wanted[path])
            print(f"readme: wrote {name}")
    return 1 if old and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
