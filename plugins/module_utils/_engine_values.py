# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this SGLang version is, the part that judges values of arguments. Private to the collection.

A value is judged as the word that the engine's parser gets: argparse calls the type with the text, then looks it up
among the choices. What is not written in the sources is not judged.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import asdict, dataclass, field

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_tables import JSON_TEXTS
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import LEAST_SECRET_LENGTH, mask_text

_JSON_TEXTS = {name for name, _source in JSON_TEXTS}
# Names whose value nobody may see: api-key, admin-api-key, ssl-keyfile-password; not ssl-keyfile or max-total-tokens.
_SECRET = re.compile(r"(?:^|-)(?:key|token|password|passphrase|secret|credentials?)$")
_LONGEST_SHOWN = 60
_MOST_CHOICES = 12


@dataclass(frozen=True)
class Problem:
    """Why an argument would end the start, or why what it does is not what is written.

    C(problem) is unknown, ambiguous, removed, value or twice; C(sentence) is for people.
    """

    argument: str
    problem: str
    sentence: str
    suggestions: tuple = field(default=())

    def as_dict(self):
        data = asdict(self)
        data["suggestions"] = list(self.suggestions)
        return data


# ---------------------------------------------------------------------------
# Names that may be meant
# ---------------------------------------------------------------------------


def listed(names, last=" and ", most=5):
    """Return the names as a part of a sentence; of more than C(most) only these and how many more there are."""
    names = [str(name) for name in names]
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} more"
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


def _nearest_choices(text, choices):
    """Return up to three choices that C(text) may be meant as; the case of letters and - for _ do not count.

    Numbers are not near each other in this sense.
    """
    folded = {}
    for choice in choices:
        if isinstance(choice, str):
            folded.setdefault(choice.lower().replace("_", "-"), choice)
    meant = text.strip().lower().replace("_", "-")
    names = nearest_names(meant, folded)
    names += [name for name in folded if meant and name.startswith(meant) and name not in names]
    return [folded[name] for name in names[:3]]


# ---------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------


def is_given(value):
    """Return False for what stands for an argument that is left out."""
    return not (value is None or value is False or (isinstance(value, (list, tuple)) and not value))


def text_of(value):
    """Return C(value) as the engine's parser reads it."""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def secret_texts(args):
    """Return the values in C(args) (name -> value) that nobody may see, long enough to be told from other words."""
    texts = {text_of(value) for name, value in args.items() if is_given(value) and _SECRET.search(_dashed(name))}
    return {text for text in texts if len(text) >= LEAST_SECRET_LENGTH}


def _dashed(name):
    return str(name).strip().lstrip("-").replace("_", "-")


def _shown(name, value):
    """Return C(value) as it may stand in a sentence about the argument C(name)."""
    if isinstance(value, dict):
        return "a dictionary"
    if _SECRET.search(name):
        return "another value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = mask_text(text_of(value))
    shown = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
    return repr(shown) if isinstance(value, str) else shown


_UNIT = re.compile(r"\d+(?:\.\d+)?[kMGT]|\d+[KMGT]i", re.ASCII)


def _int_with_unit(text):
    """Read 4096, 1k, 25.6k or 1Ki (sglang 0.5.23 srt/utils/common.py, human_readable_int; there Ki, not ki)."""
    return text.strip() if _UNIT.fullmatch(text.strip()) else int(text)


def _json_object(text):
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("no object")
    return data


def _lora_path(text):
    """Read a path, or JSON in braces (sglang 0.5.23 srt/arg_groups/argparse_actions.py, LoRAPathAction)."""
    if text.strip().startswith("{") and text.strip().endswith("}"):
        data = json.loads(text)
        if not {"lora_name", "lora_path"} <= set(data):
            raise ValueError("a key is missing")
    return text


def _same(text):
    return text


# What argparse calls with the text, by Argument.type, and how a person says it. All raise ValueError as it does.
_READERS = {
    "int": (int, "a whole number"),
    "int_with_unit": (_int_with_unit, "a whole number, also as 1k, 25.6k or 1Ki,"),
    "float": (float, "a number"),
    "json": (json.loads, "JSON"),
    "json_object": (_json_object, "a JSON object"),
    "lora_path": (_lora_path, "a path, or JSON with lora_name and lora_path,"),
    "bool": (_same, "true or false"),
    "str": (_same, "a text"),
}


@dataclass(frozen=True)
class WrongValue:
    """What is wrong with a value. C(by_choice): only the list of choices refuses it, to which a plug-in may add."""

    sentence: str
    suggestions: tuple = ()
    by_choice: bool = False


def wrong_value(name, value, argument):
    """Return the WrongValue of an argument of the engine, or None when its parser takes C(value).

    C(name) is for the sentence, C(argument) what the sources say. None and an empty list are no value. False is the
    text false for an argument that takes a value, and so it is handed over.
    """
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return None
    if not argument.takes_value:
        return _wrong_flag(name, value)
    if value is True and argument.nargs != "?" and argument.type != "bool" and "true" not in (argument.choices or ()):
        return WrongValue(
            f"Expected a value for the server argument {name}, found true: write the value, or leave it out with null."
        )
    if isinstance(value, (list, tuple)):
        return _wrong_list(name, value, argument)
    return _wrong_text(name, value, argument)


def _wrong_flag(name, value):
    if isinstance(value, bool):
        return None
    return WrongValue(
        f"Expected true or false for the server argument {name}, which takes no value, found {_shown(name, value)}:"
        " write true without quotes, or leave it out."
    )


def _wrong_list(name, value, argument):
    several = argument.nargs not in (None, "?")
    if not several and argument.type in ("json", "json_object"):
        return WrongValue(
            f"Expected JSON as one text for the server argument {name}, found a list: put the list in quotes."
        )
    if not several and len(value) != 1:
        return WrongValue(
            f"Expected one value for the server argument {name}, found a list of {len(value)}: keep one of them."
        )
    for item in value:
        wrong = None if item is None else _wrong_text(name, item, argument)
        if wrong is not None:
            return wrong
    return None


def _wrong_text(name, value, argument):
    """Judge one word: its type, then the choices, as argparse does."""
    reader, said = _READERS.get(argument.type, (None, None))
    if reader is None:
        return None  # a function that is not known here, or nothing is known of the type
    text = text_of(value)
    try:
        read = reader(text)
    except (ValueError, RecursionError) as error:
        return _wrong_type(name, value, said, error)
    if name in _JSON_TEXTS and isinstance(value, str) and value.strip():
        try:
            json.loads(value)
        except (ValueError, RecursionError) as error:
            return _wrong_type(name, value, "JSON", error)
    if argument.choices is not None and read not in argument.choices:
        return _wrong_choice(name, value, argument.choices)
    return None


def _wrong_type(name, value, said, error):
    if "JSON" in said:
        # The text may be long and hold keys: where it breaks is enough.
        where = f" ({error.msg} at character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        found = f"a text that is none{where}" if isinstance(value, str) else _shown(name, value)
        advice = "correct it" if isinstance(value, dict) else "correct it, or write a dictionary"
        return WrongValue(f"Expected {said} for the server argument {name}, found {found}: {advice}.")
    whole = isinstance(value, float) and value.is_integer()
    advice = f"write {int(value)}" if whole else "correct it, or leave it out with null"
    return WrongValue(
        f"Expected {said} for the server argument {name}, found {_shown(name, value)}: {advice}.",
        (str(int(value)),) if whole else (),
    )


def _wrong_choice(name, value, choices):
    near = _nearest_choices(text_of(value), choices)
    ordered = [str(choice) for choice in choices if choice is not None]
    found = f"for the server argument {name}, found {_shown(name, value)}"
    if near:
        many = f"one of {len(ordered)} choices" if len(ordered) > _MOST_CHOICES else f"one of {', '.join(ordered)}"
        sentence = f"Expected {many} {found}: did you mean {listed(near, last=' or ')}?"
    else:
        sentence = f"Expected one of {listed(ordered, ' or ', 40)} {found}: write one of them."
    return WrongValue(sentence, tuple(near), by_choice=True)
