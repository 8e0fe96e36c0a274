# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is: versions, argument names, what an engine accepts. Private to the collection.

Nothing here imports the engine or torch: the real parser needs seconds and sometimes CUDA libraries.
"""

from __future__ import annotations

import functools
import re
from dataclasses import asdict, dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_scan import (
    Argument,
    arguments_in_source,
    scan_arguments,
)

__all__ = [
    "Alias",
    "Argument",
    "Problem",
    "Renamed",
    "arguments_in_source",
    "canonical_arguments",
    "canonical_name",
    "check_arguments",
    "dashed",
    "nearest_names",
    "scan_arguments",
    "spellings",
    "version_at_least",
    "version_key",
]

# ---------------------------------------------------------------------------
# Versions
# ---------------------------------------------------------------------------

# PEP 440 as far as releases of the engine use it: release numbers, aN/bN/rcN, .postN, .devN, +local.
_VERSION_PATTERN = re.compile(
    r"^\s*v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"(?:[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*$",
    re.IGNORECASE,
)
_PRE_ORDER = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}


def version_key(text):
    """Return a tuple that sorts like the version that C(text) names.

    "0.5.10rc0" < "0.5.10" < "0.5.10.post2" < "0.5.23".

    Own small subset of PEP 440, because hosts have no C(packaging) and because keys of two origins must compare.
    Raises ValueError (one sentence) for a text that is not a version.
    """
    match = _VERSION_PATTERN.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"Expected an engine version such as 0.5.23, found {text!r}.")
    release = [int(part) for part in match.group("release").split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    pre, post, dev = match.group("pre"), match.group("post"), match.group("dev")
    post_key = int(match.group("post_number") or 0) if post else -1
    dev_key = (0, int(match.group("dev_number") or 0)) if dev else (1, 0)
    if pre:
        pre_key = (_PRE_ORDER[pre.lower()], int(match.group("pre_number") or 0))
    elif dev and not post:
        pre_key = (-1, 0)  # 0.5.0.dev1 comes before 0.5.0a1
    else:
        pre_key = (3, 0)  # a final release comes after its candidates
    return (tuple(release), pre_key, post_key, dev_key)


def version_at_least(version, since):
    """Return True when C(version) is C(since) or later.

    An unknown version (None) counts as the newest, and so does a build from a source tree (0.0.0.dev1+g...).
    """
    if version is None:
        return True
    key = version_key(version)
    return key[0] == (0,) or key >= version_key(since)


# ---------------------------------------------------------------------------
# Names of arguments
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Alias:
    """Another spelling of an argument that means the same in every version that has it."""

    alias: str
    name: str
    source: str


_SOURCE_FIELDS = "sglang 0.5.23 srt/arg_groups/fields (Arg.aliases)"
_SOURCE_ABBREVIATION = "argparse abbreviation, unique or meant so in 0.3.6-0.5.23"

ALIASES = (
    Alias("model", "model-path", _SOURCE_FIELDS),
    Alias("tp", "tp-size", _SOURCE_ABBREVIATION),
    Alias("tensor-parallel-size", "tp-size", _SOURCE_FIELDS),
    Alias("dp", "dp-size", _SOURCE_ABBREVIATION),
    Alias("data-parallel-size", "dp-size", _SOURCE_FIELDS),
    Alias("pp", "pp-size", _SOURCE_ABBREVIATION),
    Alias("pipeline-parallel-size", "pp-size", _SOURCE_FIELDS),
    Alias("ep", "ep-size", "sglang 0.4.10 srt/server_args.py (--ep)"),
    Alias("expert-parallel-size", "ep-size", _SOURCE_FIELDS),
    Alias("attention-data-parallel-size", "attn-dp-size", _SOURCE_FIELDS),
    Alias("attention-context-parallel-size", "attn-cp-size", _SOURCE_FIELDS),
    Alias("decode-context-parallel-size", "dcp-size", _SOURCE_FIELDS),
    Alias("moe-data-parallel-size", "moe-dp-size", _SOURCE_FIELDS),
    Alias("nccl-init-addr", "dist-init-addr", _SOURCE_FIELDS),
    Alias("speculative-draft-model", "speculative-draft-model-path", _SOURCE_FIELDS),
    Alias("speculative-algo", "speculative-algorithm", _SOURCE_ABBREVIATION),
    Alias("enable-hicache", "enable-hierarchical-cache", _SOURCE_FIELDS),
    Alias("mem-fraction", "mem-fraction-static", _SOURCE_ABBREVIATION),
)
_NAME_OF_ALIAS = {row.alias: row.name for row in ALIASES}


@dataclass(frozen=True)
class Renamed:
    """An argument that newer versions no longer have, and what to write there instead."""

    name: str
    until: str  # the last version known to accept it
    use: tuple  # names that replace it, best first; empty: simply drop it
    source: str
    how: str = ""  # what the value becomes, when it is not carried over as it is


_SOURCE_COMPARED = "compared between sglang wheels"

RENAMED = (
    Renamed("cuda-graph-max-bs", "0.5.19", ("cuda-graph-max-bs-decode",), "run on sglang 0.5.23: exit 2, ambiguous"),
    Renamed("cuda-graph-bs", "0.5.19", ("cuda-graph-bs-decode",), _SOURCE_COMPARED),
    Renamed(
        "disable-piecewise-cuda-graph",
        "0.5.19",
        ("cuda-graph-backend-prefill",),
        _SOURCE_COMPARED,
        "with the value disabled",
    ),
    Renamed("enable-piecewise-cuda-graph", "0.5.13", ("cuda-graph-backend-prefill",), _SOURCE_COMPARED),
    Renamed("piecewise-cuda-graph-max-tokens", "0.5.19", ("cuda-graph-max-bs-prefill",), _SOURCE_COMPARED),
    Renamed("piecewise-cuda-graph-tokens", "0.5.19", ("cuda-graph-bs-prefill",), _SOURCE_COMPARED),
    Renamed("nsa-prefill-backend", "0.5.19", ("dsa-prefill-backend",), _SOURCE_COMPARED),
    Renamed("nsa-decode-backend", "0.5.19", ("dsa-decode-backend",), _SOURCE_COMPARED),
    Renamed("nsa-prefill", "0.5.3", ("nsa-prefill-backend", "dsa-prefill-backend"), _SOURCE_COMPARED),
    Renamed("nsa-decode", "0.5.3", ("nsa-decode-backend", "dsa-decode-backend"), _SOURCE_COMPARED),
    Renamed("enable-ep-moe", "0.5.4", ("ep-size", "moe-runner-backend"), _SOURCE_COMPARED, "set to the tp-size"),
    Renamed("enable-deepep-moe", "0.5.4", ("moe-a2a-backend",), _SOURCE_COMPARED, "with the value deepep"),
    Renamed(
        "enable-flashinfer-mla", "0.4.6.post5", ("attention-backend",), _SOURCE_COMPARED, "with the value flashinfer"
    ),
    Renamed("enable-flashmla", "0.4.6.post5", ("attention-backend",), _SOURCE_COMPARED, "with the value flashmla"),
    Renamed("disable-flashinfer", "0.4.0", ("attention-backend",), _SOURCE_COMPARED, "with the value triton"),
    Renamed("disable-flashinfer-sampling", "0.4.0", ("sampling-backend",), _SOURCE_COMPARED, "with the value pytorch"),
    Renamed("max-micro-batch-size", "0.5.3", ("pp-max-micro-batch-size",), _SOURCE_COMPARED),
    Renamed("hybrid-kvcache-ratio", "0.5.13", ("swa-full-tokens-ratio",), _SOURCE_COMPARED),
    Renamed("disable-mla", "0.4.3.post4", (), _SOURCE_COMPARED),
    Renamed("disable-jump-forward", "0.4.0", (), _SOURCE_COMPARED),
    Renamed("disable-nan-detection", "0.4.0", (), _SOURCE_COMPARED),
    Renamed("disable-disk-cache", "0.4.0", (), _SOURCE_COMPARED),
    Renamed("enable-overlap-schedule", "0.4.0", (), _SOURCE_COMPARED),
    Renamed("enable-nan-detection", "0.5.11", (), _SOURCE_COMPARED),
    Renamed("enable-double-sparsity", "0.5.10", (), _SOURCE_COMPARED),
    Renamed("torchao-config", "0.5.17", ("quantization",), _SOURCE_COMPARED),
)
_RENAMED_BY_NAME = {row.name: row for row in RENAMED}


def dashed(name):
    """Return the spelling of C(name) that a command line has: no leading dashes, dashes for underscores."""
    if not isinstance(name, str) or not name.strip().lstrip("-"):
        raise ValueError(f"Expected the name of a server argument such as tp-size, found {name!r}.")
    return name.strip().lstrip("-").replace("_", "-")


def canonical_name(name):
    """Return the one name of an argument: C(--tp_size), C(tensor-parallel-size) and C(tp) are all C(tp-size)."""
    spelled = dashed(name)
    return _NAME_OF_ALIAS.get(spelled, spelled)


def canonical_arguments(args):
    """Return C(args) with every key replaced by its one name. Two spellings of one argument raise ValueError."""
    if args is None:
        return {}
    if not isinstance(args, dict):
        raise ValueError(f"Expected the server arguments as a dictionary, found {type(args).__name__}.")
    result = {}
    spelled_as = {}
    for key, value in args.items():
        name = canonical_name(key)
        if name in result:
            raise ValueError(
                f"The server arguments {spelled_as[name]!r} and {key!r} are one and the same argument, {name}:"
                " keep one of them."
            )
        result[name] = value
        spelled_as[name] = key
    return result


# ---------------------------------------------------------------------------
# Checking arguments before a start
# ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Why an argument would end the start: C(problem) is unknown, ambiguous or removed; C(sentence) for people."""

    argument: str
    problem: str
    sentence: str
    suggestions: tuple = field(default=())

    def as_dict(self):
        data = asdict(self)
        data["suggestions"] = list(self.suggestions)
        return data


def spellings(accepted):
    """Return the set of all accepted spellings.

    C(accepted): names, Arguments, dictionaries of these, or a dictionary name -> Argument.
    """
    items = accepted.values() if isinstance(accepted, dict) else accepted
    result = set()
    for item in items:
        if isinstance(item, str):
            result.add(item.lstrip("-"))
        elif isinstance(item, dict):
            result.add(item["name"])
            result.update(item.get("aliases") or ())
        else:
            result.update(item.spellings)
    return result


def check_arguments(args, accepted):
    """Return the Problems of C(args) (name -> value) against what the engine accepts, in the order of C(args).

    argparse also takes a prefix that fits one argument only; a prefix of several is refused as the engine would.
    """
    known = spellings(accepted)
    problems = [_check_name(dashed(name), known) for name in (args or {})]
    return [problem for problem in problems if problem is not None]


def _check_name(name, known):
    if name in known:
        return None
    renamed = _RENAMED_BY_NAME.get(name)
    if renamed is not None and (not renamed.use or any(use in known for use in renamed.use)):
        return _removed(renamed, known)
    fitting = sorted(spelling for spelling in known if spelling.startswith(name))
    if len(fitting) == 1:
        return None
    if fitting:
        return Problem(
            name,
            "ambiguous",
            f"The server argument {name} is ambiguous, this engine has {_listed(fitting)}: write the whole name.",
            tuple(fitting[:5]),
        )
    near = nearest_names(name, known)
    hint = "did you mean {}?".format(_listed(near, last=" or ")) if near else "see the help of sglang.launch_server."
    return Problem(
        name,
        "unknown",
        f"The server argument {name} is not known to this engine: {hint}",
        tuple(near),
    )


def _removed(row, known):
    use = next((name for name in row.use if name in known), None)
    advice = "use {}{}".format(use, " " + row.how if row.how else "") if use else "remove it"
    sentence = f"The server argument {row.name} was removed after SGLang {row.until}: {advice}."
    return Problem(row.name, "removed", sentence, (use,) if use else ())


def _listed(names, last=" and "):
    names = list(names)
    if len(names) > 5:
        return ", ".join(names[:5]) + f" and {len(names) - 5} more"
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + last + names[-1]


@functools.lru_cache(maxsize=4096)
def _distance(left, right):
    """Return the edit distance of two names where a swap of neighbours counts as one edit."""
    previous, current = None, list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        before, previous, current = previous, current, [row] + [0] * len(right)
        for column, other in enumerate(right, 1):
            cost = 0 if letter == other else 1
            current[column] = min(previous[column] + 1, current[column - 1] + 1, previous[column - 1] + cost)
            swapped = row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other
            if swapped:
                current[column] = min(current[column], before[column - 2] + 1)
    return current[-1]


def nearest_names(name, known, limit=3):
    """Return up to C(limit) known names that a person who wrote C(name) may have meant, best first."""
    allowed = max(1, len(name) // 4)
    near = []
    for spelling in known:
        if abs(len(spelling) - len(name)) <= allowed:
            distance = _distance(name, spelling)
            if distance <= allowed:
                near.append((distance, spelling))
    if near:
        return [spelling for _unused, spelling in sorted(near)[:limit]]
    words = set(name.split("-"))
    shared = [(-len(words & set(spelling.split("-"))), len(spelling), spelling) for spelling in known]
    # A name that shares all but one of its words is worth showing, an accidental common word is not.
    return [row[2] for row in sorted(shared) if -row[0] >= max(2, len(words) - 1)][:limit]
