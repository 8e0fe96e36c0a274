# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is: versions, argument names, what an engine accepts. Private to the collection.

Nothing here imports the engine or torch: the real parser needs seconds and sometimes CUDA libraries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_scan import (
    Argument,
    arguments_in_source,
    scan_arguments,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_tables import (
    ALIASES,
    READS_CONFIG_FILE,
    RENAMED,
    STOPS_BY_ITSELF,
    Alias,
    Renamed,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_values import (
    Problem,
    is_given,
    listed,
    nearest_names,
    wrong_value,
)

__all__ = [
    "ALIASES",
    "RENAMED",
    "Alias",
    "Argument",
    "Examined",
    "Problem",
    "Renamed",
    "arguments_in_source",
    "canonical_arguments",
    "canonical_name",
    "check_arguments",
    "dashed",
    "examine_arguments",
    "nearest_names",
    "reads_config_file",
    "scan_arguments",
    "spellings",
    "stops_by_sigkill",
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
    key = _parsed_key(text) if isinstance(text, str) else None
    if key is None:
        raise ValueError(f"Expected an engine version such as 0.5.23, found {text!r}.")
    return key


@lru_cache(maxsize=256)  # a plan asks for a handful of versions some thousand times
def _parsed_key(text):
    match = _VERSION_PATTERN.match(text)
    if match is None:
        return None
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


def reads_config_file(version):
    """Return True when the engine takes C(--config FILE.yaml); None counts as the newest version."""
    return version_at_least(version, READS_CONFIG_FILE.version)


def stops_by_sigkill(version):
    """Return True when a clean stop ends in SIGKILL, which the launcher sends to itself, and so looks like a crash."""
    return not version_at_least(version, STOPS_BY_ITSELF.version)


# ---------------------------------------------------------------------------
# Names of arguments
# ---------------------------------------------------------------------------


_NO_NAME = re.compile(r"[^A-Za-z0-9.-]")
_NAME_OF_ALIAS = {row.alias: row.name for row in ALIASES}
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


def _known(accepted):
    """Return spelling -> Argument, or None as the Argument where only the name is known. C(accepted): see spellings."""
    items = accepted.values() if isinstance(accepted, dict) else accepted
    result = {}
    for item in items:
        if isinstance(item, str):
            result[item.lstrip("-")] = None
            continue
        argument = _argument(item) if isinstance(item, dict) else item
        result.update(dict.fromkeys(argument.spellings, argument))
    return result


def _argument(data):
    """Return the Argument that C(as_dict) made C(data) from."""
    choices = data.get("choices")
    return Argument(
        **dict(data, aliases=tuple(data.get("aliases") or ()), choices=None if choices is None else tuple(choices))
    )


def spellings(accepted):
    """Return the set of all accepted spellings.

    C(accepted): names, Arguments, dictionaries of these, or a dictionary name -> Argument.
    """
    return set(_known(accepted))


@dataclass(frozen=True)
class Examined:
    """What was found out about arguments for an engine.

    C(problems): tuple of Problem; C(notes): sentences about what does not end the start; C(arguments): the arguments
    by their one whole name, in their order.
    """

    problems: tuple
    notes: tuple
    arguments: dict


def check_arguments(args, accepted, version=None, plugins=()):
    """Return the Problems of C(args) (name -> value), in their order; see examine_arguments."""
    return list(examine_arguments(args, accepted, version, plugins).problems)


def examine_arguments(args, accepted, version=None, plugins=()):
    """Return what the engine that takes C(accepted) would make of C(args) (name -> value), as Examined.

    argparse also takes a prefix that fits one spelling only; a prefix of several is refused as the engine would.
    Values are judged where C(accepted) has Arguments. C(version) keeps an argument that is not there yet from being
    called removed. C(plugins), tuple of Plugin, may add arguments and choices: these problems become notes. Raises
    ValueError (one sentence) for names that are none.
    """
    known = _known(accepted)
    problems, notes, arguments, first = [], [], {}, {}
    for key, value in (args or {}).items():
        name, spelled, problem = _spelling(dashed(key), known, version)
        if problem is not None:
            problem = _unless_harmless(problem, value, plugins, notes)
        argument = known.get(spelled)
        full = _whole_name(spelled, argument, known) if spelled else _NAME_OF_ALIAS.get(name, name)
        if spelled and argument is not None:
            problem = _judged(name, spelled, full, value, argument, plugins, notes)
        if problem is None and spelled and _reaches(value, spelled, argument):
            problem = _second(name, full, _is_twin(spelled, argument), first)
        if problem is not None:
            problems.append(problem)
        if full not in arguments or is_given(value):
            arguments[full] = value
    return Examined(tuple(problems), tuple(notes), arguments)


def _spelling(name, known, version):
    """Return (name, the spelling of the engine that it is taken for, None), or (name, None, Problem)."""
    if name in known:
        return name, name, None
    strange = _NO_NAME.search(name)
    if strange:
        # What follows may be a value, and so a secret: it is cut off here.
        begin, sign = name[: strange.start()], strange.group()
        sentence = (
            f"Expected the name of a server argument such as tp-size, found {begin!r} with {sign!r} behind it: write"
            " the value behind a colon."
        )
        return begin, None, Problem(begin, "unknown", sentence)
    renamed = _RENAMED_BY_NAME.get(name)
    if renamed is not None and _is_gone(renamed, known, version):
        return name, None, _removed(renamed, known)
    fitting = sorted(spelling for spelling in known if spelling.startswith(name))
    if len(fitting) == 1:
        return name, fitting[0], None
    if fitting:
        sentence = f"The server argument {name} is ambiguous, this engine has {listed(fitting)}: write the whole name."
        return name, None, Problem(name, "ambiguous", sentence, tuple(fitting[:5]))
    if canonical_name(name) in known:
        return name, canonical_name(name), None  # a spelling of other versions, written as this engine has it
    near = nearest_names(name, known)
    hint = "did you mean {}?".format(listed(near, last=" or ")) if near else "see the help of sglang.launch_server."
    sentence = f"The server argument {name} is not known to this engine: {hint}"
    return name, None, Problem(name, "unknown", sentence, tuple(near))


def _unless_harmless(problem, value, plugins, notes):
    """Return the Problem of a name, or None and a note where it does not end the start."""
    name = problem.argument
    if not is_given(value):
        notes.append(f"The server argument {name} is not one of this engine: its value leaves it out.")
        return None
    adding = sorted(plugin.name for plugin in plugins if name in plugin.arguments)
    if adding and problem.problem == "unknown":
        notes.append(f"The server argument {name} is not one of SGLang, but of {listed(adding)}: it was not checked.")
        return None
    return problem


def _is_gone(row, known, version):
    if version is not None:
        return version_at_least(version, row.until) and version_key(version) != version_key(row.until)
    return not row.use or any(use in known for use in row.use)


def _removed(row, known):
    use = next((name for name in row.use if name in known), None)
    if use is None:
        advice = row.how if row.how and not row.use else "remove it"
    else:
        advice = "use {}{}".format(use, " " + row.how if row.how else "")
    sentence = f"The server argument {row.name} was removed after SGLang {row.until}: {advice}."
    return Problem(row.name, "removed", sentence, (use,) if use else ())


def _is_twin(spelled, argument):
    """Return True when C(spelled) is the C(no-...) that switches an argument off."""
    return argument is not None and argument.negatable and spelled[:3] == "no-" and spelled[3:] in argument.spellings


def _whole_name(spelled, argument, known):
    """Return the one name of the argument that has the spelling C(spelled); a twin keeps its C(no-).

    That is the name of ALIASES where the engine has it: 0.4.0 declares --tensor-parallel-size before --tp-size.
    """
    name = spelled if argument is None else argument.name
    whole = canonical_name(name) if canonical_name(name) in known else name
    return "no-" + whole if _is_twin(spelled, argument) else whole


def _reaches(value, spelled, argument):
    """Return True when the value makes the argument stand on the command line."""
    off = value is False and argument is not None and argument.negatable and not _is_twin(spelled, argument)
    return off or is_given(value)


def _second(name, full, is_twin, first):
    """Return the Problem of an argument that was given before, remembering it in C(first): one name -> spelling."""
    one = full[3:] if is_twin else full
    before = first.setdefault(one, name)
    if before == name:
        return None
    sentence = f"The server arguments {before} and {name} are one and the same argument, {one}: keep one of them."
    return Problem(name, "twice", sentence, (one,))


def _judged(name, spelled, full, value, argument, plugins, notes):
    """Return the Problem of the value of an argument that the engine has, or None; add what is worth knowing."""
    if argument.refusal and is_given(value):
        return Problem(name, "removed", f"The server argument {full} ends the start of this engine: {argument.refusal}")
    wrong = wrong_value(full, value, argument)
    adding = sorted(plugin.name for plugin in plugins if plugin.adds_choices)
    if wrong is not None and wrong.by_choice and adding:
        notes.append(f"{wrong.sentence} It was not refused, since {listed(adding)} may add choices.")
        wrong = None
    if wrong is not None:
        return Problem(name, "value", wrong.sentence, wrong.suggestions)
    notes.extend(_notes(spelled, full, value, argument))
    return None


def _notes(spelled, full, value, argument):
    """Return the sentences about an argument that does not end the start."""
    notes = []
    if argument.deprecated and is_given(value):
        use = f"use {argument.instead}" if argument.instead else "a later version will not have it"
        notes.append(f"The server argument {full} is deprecated in this engine: {use}.")
    if value is False and argument.negatable and not _is_twin(spelled, argument):
        notes.append(f"The server argument {full} is false, so this engine gets no-{full}: null leaves it out.")
    if value is False and argument.takes_value and argument.nargs != "?":
        notes.append(f"The server argument {full} takes a value, so false is handed over as one: null leaves it out.")
    return notes
