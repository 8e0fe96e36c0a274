# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: words. From dictionaries to the words that systemd hands to the process, nothing lost and nothing added.

Private to the gpufleet.sglang collection; may change at any time.

Sources: systemd.service(5) "Command lines", systemd.exec(5) "EnvironmentFile=", systemd.syntax(7) "Quoting".
"""

from __future__ import annotations

import difflib
import json

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_name

# In ExecStart=, "%" starts a specifier and "$" an expansion; each is doubled. In double quotes "\" and '"' are escaped.
_UNIT_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"))
_EXPANSION_ESCAPE = ("$", "$$")

# In an environment file there are neither specifiers nor expansions; in double quotes these four are escaped.
_FILE_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("`", "\\`"), ("$", "\\$"))


def _one_line(text, what):
    for character, name in (("\n", "a line break"), ("\r", "a carriage return"), ("\0", "a NUL")):
        if character in text:
            raise ValueError(
                "Expected %s on one line, found %s in it; remove it from the value %r." % (what, name, text)
            )
    return text


def _escape(text, escapes):
    for plain, escaped in escapes:
        text = text.replace(plain, escaped)
    return text


def argument_value(value):
    """One value as the word that SGLang's parser reads back: JSON for dictionaries, plain text for everything else."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def server_arguments(arguments):
    """A dictionary of SGLang arguments to argv, in the order of the dictionary.

    True is a bare flag; False and None leave the flag out; a list gives its values behind one flag.

    >>> server_arguments({"tp_size": 8, "enable-metrics": True, "trust-remote-code": False})
    ['--tp-size', '8', '--enable-metrics']
    """
    words = []
    for name, value in arguments.items():
        flag = "--" + canonical_name(str(name))
        if value is None or value is False or value == []:
            continue
        words.append(flag)
        if value is True:
            continue
        words.extend(argument_value(item) for item in (value if isinstance(value, (list, tuple)) else [value]))
    return [_one_line(word, "an argument") for word in words]


def systemd_argument(word):
    """One word of argv as text in ExecStart=."""
    text = _escape(_one_line(str(word), "an argument"), _UNIT_ESCAPES + (_EXPANSION_ESCAPE,))
    return '"%s"' % text


def environment_file_line(name, value):
    """One ``NAME="value"`` line of an environment file."""
    text = _escape(_one_line(argument_value(value), "a value of the environment"), _FILE_ESCAPES)
    return '%s="%s"' % (name, text)


def instance_settings(defaults, overrides):
    """Settings of one instance: the role's flat variables with the instance's own over them.

    :raises ValueError: an override that is no setting, named with the nearest one.
    """
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
