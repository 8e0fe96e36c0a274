# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is, the part about installed packages that extend it. Private to the collection.

The launcher runs them before it reads its arguments (sglang 0.5.11-0.5.23 srt/plugins/__init__.py). They may add
arguments and choices that stand in no source of the engine: an installation of 0.5.23 brings smg-grpc-servicer, which
adds --servicer-impl, --metrics-port and --metrics-host. What they add is only guessed from their texts, so it makes a
problem a note and never the other way round.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

_GENERAL_GROUP = "sglang.srt.plugins"
_PLATFORM_GROUP = "sglang.srt.platforms"
# How a package adds to a list of choices: the functions of srt/arg_groups/choices.py, or the registries of parsers.
_ADDS_CHOICES = re.compile(r"\badd_[a-z0-9_]+_choices\b|[A-Z]_BACKEND_CHOICES\b|DetectorMap|ToolCallParserEnum")
_CHOICE_WORDS = ("_choices", "_CHOICES", "DetectorMap", "ToolCallParserEnum")
_FLAG_TEXT = re.compile(r"[\"']--([a-z0-9][a-z0-9-]*)[\"']")
_MOST_FILES = 500


@dataclass(frozen=True)
class Plugin:
    """An installed package that the engine runs before it reads its arguments.

    C(arguments): names, without leading dashes, that stand as flags somewhere in its sources. C(adds_choices): it may
    add to the lists of choices.
    """

    name: str
    arguments: frozenset = frozenset()
    adds_choices: bool = False


def entry_points(text):
    """Return {group: [dotted module, ...]} from the text of an entry_points.txt."""
    groups, group = {}, None
    for line in text.splitlines():
        head = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
        value = re.match(r"\s*[^=#;\[]+=\s*([\w.]+)", line)
        if head:
            group = groups.setdefault(head.group(1), [])
        elif value and group is not None:
            group.append(value.group(1))
    return groups


def read_plugins(site):
    """Return the Plugins in the package folder C(site), sorted by name."""
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(site), "*.dist-info", "entry_points.txt"))):
        groups = entry_points(_read(path))
        modules = groups.get(_GENERAL_GROUP, []) + groups.get(_PLATFORM_GROUP, [])
        if modules:
            name = os.path.basename(os.path.dirname(path))[: -len(".dist-info")].rsplit("-", 1)[0]
            found.append(_plugin(name.replace("_", "-").lower(), modules, _PLATFORM_GROUP in groups, site))
    return tuple(found)


def _plugin(name, modules, is_platform, site):
    texts = [text for top in sorted({module.split(".")[0] for module in modules}) for text in _texts(site, top)]
    # A package whose sources lie elsewhere (an editable installation) may do anything.
    adds = is_platform or not texts or any(_adds_choices(text) for text in texts)
    return Plugin(name, frozenset(flag for text in texts for flag in _FLAG_TEXT.findall(text)), adds)


def _adds_choices(text):
    # Plain words first: the pattern alone needs 0.1 s for a large package.
    return any(word in text for word in _CHOICE_WORDS) and _ADDS_CHOICES.search(text) is not None


def _texts(site, top):
    """Return the texts of the Python files of the top-level module or package C(top)."""
    paths = glob.glob(os.path.join(glob.escape(site), glob.escape(top), "**", "*.py"), recursive=True)
    paths = sorted(paths)[:_MOST_FILES] or [os.path.join(site, top + ".py")]
    return [text for text in map(_read, paths) if text]


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read()
    except OSError:
        return ""
