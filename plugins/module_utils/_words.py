# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: words. From dictionaries to the words that systemd hands to the process, nothing lost and nothing added.

Private to the gpufleet.sglang collection; may change at any time.

Sources: systemd.service(5) "Command lines", systemd.exec(5) "EnvironmentFile=", systemd.syntax(7) "Quoting"; Python's
argparse for what becomes of a word. No message shows a value: it may be a secret, and its place says enough.
"""

from __future__ import annotations

import difflib
import json
import math
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_name, dashed
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_tables import JSON_LISTS, VALUE_OPTIONAL

# In ExecStart=, "%" starts a specifier and "$" an expansion; each is doubled. In double quotes "\" and '"' are escaped.
_UNIT_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"))
_EXPANSION_ESCAPE = ("$", "$$")

# In an environment file there are neither specifiers nor expansions; in double quotes these four are escaped.
_FILE_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("`", "\\`"), ("$", "\\$"))

_LAST_OF_PLANES = [chr(plane * 0x10000 + end) for plane in range(17) for end in (0xFFFE, 0xFFFF)]
# What no line of a unit can hold. systemd drops the whole line for the last two (utf8.c, unichar_is_valid).
_UNWRITABLE = (
    (re.compile("\n"), "a line break"),
    (re.compile("\r"), "a carriage return"),
    (re.compile("\0"), "a NUL"),
    (re.compile("[\ud800-\udfff]"), "half of a surrogate pair"),
    (re.compile("[\ufdd0-\ufdef%s]" % "".join(_LAST_OF_PLANES)), "a code point that is no character"),
)

# What every argparse takes for a value although it begins with "-"; an exponent is not among it.
_NEGATIVE_NUMBER = re.compile(r"-(\d+(\.\d+)?|\.\d+)", re.ASCII)

_ARGUMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _one_line(text, what):
    """Return *text*, or say what in it no line can hold. :raises ValueError: one sentence without the text."""
    for pattern, name in _UNWRITABLE:
        match = pattern.search(text)
        if match:
            raise ValueError(
                "Expected %s on one line, found %s in it after %d characters: remove it there."
                % (what, name, match.start())
            )
    return text


def _escape(text, escapes):
    for plain, escaped in escapes:
        text = text.replace(plain, escaped)
    return text


# ---------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------


def _plain(value, what):
    """Return *value* in types that JSON has; containers are walked, because those of a template render on access."""
    if isinstance(value, dict):
        plain = {_plain_key(key, what): _plain(one, what) for key, one in value.items()}
        if len(plain) != len(value):
            raise ValueError("Expected no two keys of a dictionary in %s that JSON writes alike: rename one." % what)
        return plain
    if isinstance(value, (list, tuple)):
        return [_plain(one, what) for one in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("Expected a finite number in %s, found %s: JSON and SGLang know none." % (what, value))
        return value
    if isinstance(value, (bytes, bytearray, set, frozenset)):
        raise ValueError(
            "Expected texts, numbers, lists and dictionaries in %s, found %s." % (what, type(value).__name__)
        )
    return str(value)


def _plain_key(key, what):
    """A key as JSON writes it. :raises ValueError: for a number that is none."""
    key = _plain(key, what)
    return key if isinstance(key, str) else json.dumps(key)


def argument_value(value, what="an argument"):
    """One value as the word that SGLang's parser reads back: compact JSON for what has parts, plain text for the rest.

    The order of a dictionary is kept, so that the same inventory gives the same word.

    >>> argument_value({"bs": [1, 2], "backend": "full"})
    '{"bs":[1,2],"backend":"full"}'

    :raises ValueError: one sentence that names *what*, for what cannot be written.
    """
    plain = _plain(value, what)
    if plain is None:
        raise ValueError("Expected a value for %s, found null: leave it out." % what)
    if isinstance(plain, (dict, list)):
        plain = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    elif isinstance(plain, bool):
        plain = "true" if plain else "false"
    return _one_line(str(plain), what)


# ---------------------------------------------------------------------------
# Arguments of the server
# ---------------------------------------------------------------------------


class _Accepted:
    """What an engine says of its arguments; an engine that is not known says nothing."""

    def __init__(self, engine):
        engine = engine if isinstance(engine, dict) else {}
        self.names = frozenset(engine.get("accepted_arguments") or ())
        self.flags = frozenset(engine.get("flag_arguments") or ())

    def spelled(self, name):
        """The spelling to use: the one name of the argument, unless only the other one is known to the engine."""
        canonical, written = canonical_name(name), dashed(name)
        return written if canonical not in self.names and written in self.names else canonical

    def whole(self, name):
        """The argument that argparse takes *name* for: itself, or the only one that begins so. None: not known."""
        if name in self.names:
            return name
        fitting = [known for known in self.names if known.startswith(name)]
        return fitting[0] if len(fitting) == 1 else None

    def takes_value(self, name):
        whole = self.whole(name)
        return whole is not None and whole not in self.flags and whole not in VALUE_OPTIONAL

    def is_flag(self, name):
        return self.whole(name) in self.flags

    def off(self, name):
        """The twin that switches *name* off, or None (argparse.BooleanOptionalAction declares both)."""
        twin = "no-%s" % (self.whole(name) or name)
        return twin if twin in self.names else None


def argument_name(name):
    """Return *name* with dashes, without those in front. :raises ValueError: for what is no name of an argument."""
    spelled = dashed(str(name))
    good = _ARGUMENT_NAME.match(spelled)
    length = good.end() if good else 0
    if length != len(spelled):
        # What follows may be a value, and so a secret.
        raise ValueError(
            "Expected the name of a server argument such as tp-size, found %r with %r behind it: write a value behind "
            "a colon." % (spelled[:length], spelled[length])
        )
    return spelled


def server_arguments(arguments, engine=None):
    """A dictionary of SGLang arguments to argv, in the order of the dictionary.

    None and an empty list leave the argument out; a list gives its values behind one flag. True is a bare flag, False
    leaves it out; for an engine that says so, they are the values true and false, and False is the twin C(no-...).

    >>> server_arguments({"tp_size": 8, "enable-metrics": True, "trust-remote-code": False, "x": "-a"})
    ['--tp-size', '8', '--enable-metrics', '--x=-a']

    :arg engine: what engine_info returned (C(accepted_arguments), C(flag_arguments)); None or empty: not known.
    :raises ValueError: one sentence that names the argument and does not show its value.
    """
    if not isinstance(arguments, dict):
        raise ValueError("Expected the server arguments as a dictionary, found %s." % type(arguments).__name__)
    accepted = _Accepted(engine)
    words, seen = [], {}
    for key, value in arguments.items():
        name = accepted.spelled(argument_name(key))
        if canonical_name(name) in seen:
            raise ValueError(
                "Expected each server argument once, found %r and %r, which are one and the same: keep one of them."
                % (seen[canonical_name(name)], key)
            )
        seen[canonical_name(name)] = key
        words += _argument_words(name, value, accepted)
    return words


def _argument_words(name, value, accepted):
    """The words of one argument."""
    what, flag = "the server argument %s" % name, "--" + name
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return []
    if isinstance(value, bool):
        return _switch_words(name, value, accepted)
    if accepted.is_flag(name):
        raise ValueError("Expected true or false for %s, which takes no value, found another value." % what)
    if isinstance(value, (list, tuple)) and name not in JSON_LISTS:
        return [flag] + [_list_word(one, "%s (value %d)" % (what, place)) for place, one in enumerate(value, 1)]
    word = argument_value(value, what)
    # argparse takes a word that begins with "-" for the next option, unless it is a negative number.
    return ["%s=%s" % (flag, word)] if _looks_like_option(word) else [flag, word]


def _switch_words(name, value, accepted):
    if accepted.takes_value(name):
        return ["--" + name, "true" if value else "false"]
    if value:
        return ["--" + name]
    twin = accepted.off(name)
    return ["--" + twin] if twin else []


def _list_word(value, what):
    word = argument_value(value, what)
    if _looks_like_option(word):
        raise ValueError(
            "Expected no value that begins with '-' in a list, found one in %s: SGLang would take it for an option."
            % what
        )
    return word


def _looks_like_option(word):
    return word.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(word)


# ---------------------------------------------------------------------------
# Text of units and environment files
# ---------------------------------------------------------------------------


def systemd_argument(word):
    """One word of argv as text in ExecStart=."""
    text = _escape(_one_line(str(word), "an argument"), _UNIT_ESCAPES + (_EXPANSION_ESCAPE,))
    return '"%s"' % text


def variable_name(name):
    """Return *name*. :raises ValueError: for what is no name of a variable of the environment."""
    text = str(name)
    good = _VARIABLE_NAME.match(text)
    length = good.end() if good else 0
    if length != len(text) or not text:
        # What follows may be a value, and so a secret.
        raise ValueError(
            "Expected the name of a variable of the environment (letters, digits and '_', no digit first), found %r "
            "with %r behind it: rename it." % (text[:length], text[length : length + 1])
        )
    return text


def systemd_assignment(name, value):
    """One assignment as text in Environment=, which has specifiers and no expansions: "$" stays as it is.

    >>> systemd_assignment("PROMPT", "50% of $HOME")
    '"PROMPT=50%% of $HOME"'
    """
    name = variable_name(name)
    return '"%s=%s"' % (name, _escape(argument_value(value, "the variable %s" % name), _UNIT_ESCAPES))


def environment_file_line(name, value):
    """One ``NAME="value"`` line of an environment file."""
    name = variable_name(name)
    return '%s="%s"' % (name, _escape(argument_value(value, "the variable %s" % name), _FILE_ESCAPES))


# ---------------------------------------------------------------------------
# Settings of an instance
# ---------------------------------------------------------------------------


def instance_settings(defaults, overrides):
    """Settings of one instance: the role's flat variables with the instance's own over them.

    :arg overrides: those of one instance, or a list of them, which gives a list.
    :raises ValueError: an override that is no setting, named with the nearest one.
    """
    if isinstance(overrides, list):
        return [instance_settings(defaults, one) for one in overrides]
    unknown = sorted(set(overrides) - set(defaults))
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(defaults), 1)
        raise ValueError(
            "Expected settings of an instance in sglang_server_instances, found %r; %s."
            % (
                unknown[0],
                "did you mean %r" % near[0]
                if near
                else "see the variables of the role sglang_server without their prefix",
            )
        )
    return dict(defaults, **overrides)
