# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_unit_file: what a unit file needs beyond its template (private to the collection).

How each engine version ends when it is stopped, and the sections that a site adds to the unit.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import stops_by_sigkill


def clean_exit_statuses(version):
    """Return the statuses by which this engine version also ends after a clean stop; an empty list for exit status 0.

    A crash ends by the same signal in these versions (a rank's death makes the launcher kill itself), so what is made
    a success must also be named in RestartForceExitStatus=. Tried on systemd 252 and 257 with both directives:

    - a clean ``systemctl stop`` leaves the unit inactive, not failed, and is not restarted;
    - a crash by SIGKILL is restarted, its Result is "success" and systemd logs neither "Main process exited" nor
      "Failed with result": only ExecMainCode and ExecMainStatus tell it from a clean end;
    - StartLimit* still trips, then with Result=start-limit-hit;
    - Restart=no alone does not keep such a crash from being restarted. A candidate therefore resets all three:
      ``SuccessExitStatus=``, ``RestartForceExitStatus=``, ``Restart=no``; its crash is then final, Result=signal.

    An unknown version (None) counts as the newest. Raises ValueError for a text that is not a version.
    """
    return ["SIGKILL"] if stops_by_sigkill(version) else []


# Sections and directives that a site may add. systemd itself says what it does not know of (systemd-analyze verify).
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\Z")
_VARIABLE = "sglang_server_unit_extra"


def _value_text(name, value):
    """Return a value as systemd reads it: yes/no, numbers and texts as they are, nothing for null (a reset)."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float, str)):
        raise ValueError(
            "Expected a text, a number, true, false or a list of these for {0}, found {1}; correct {2}.".format(
                name, type(value).__name__, _VARIABLE
            )
        )
    text = str(value)
    # A backslash at the end would join the next line to this one, for systemd.
    if re.search(r"[\r\n\0]", text) or text.endswith("\\"):
        raise ValueError(
            "Expected one line for {0}, found {1!r}; correct {2}, a list gives a directive several times.".format(
                name, text, _VARIABLE
            )
        )
    return text


def _directive_lines(section, name, value):
    if not _NAME.match(str(name)):
        raise ValueError(
            "Expected the name of a directive in section {0}, found {1!r}; correct {2}.".format(
                section, name, _VARIABLE
            )
        )
    values = value if isinstance(value, (list, tuple)) else [value]
    return ["{0}={1}".format(name, _value_text("{0}.{1}".format(section, name), item)) for item in values]


def unit_sections(extra):
    """Return the lines of the sections that a site adds to a unit.

    extra: section name -> {directive: value or list of values}; the values are taken as unit text, specifiers and all.
    systemd reads a section that comes twice as one, and lets the last value win, so these lines stand at the end.
    Raises ValueError (one sentence) for what cannot be one line of a unit.
    """
    lines = []
    for section, directives in (extra or {}).items():
        if not _NAME.match(str(section)) or not hasattr(directives, "items"):
            raise ValueError(
                "Expected a section such as Service with its directives, found {0!r}: {1!r}; correct {2}.".format(
                    section, directives, _VARIABLE
                )
            )
        lines.append("[{0}]".format(section))
        for name, value in directives.items():
            lines.extend(_directive_lines(section, name, value))
    return lines
