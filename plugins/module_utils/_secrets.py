# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the keys of a server. Where they lie, and whether the journal tells them.

Private to the gpufleet.sglang collection; may change at any time.

SGLang prints its keys in the ``server_args`` line of every start (0.3.6 to 0.5.23). A key is never handed to a program
as an argument here: the list of processes would show it.
"""

from __future__ import annotations

import json
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils import _journal_stream
from ansible_collections.gpufleet.sglang.plugins.module_utils._journal_lines import as_text

_LINE = re.compile(r"^\s*(?P<name>[a-z-]*api-key)\s*:\s*(?P<value>\S.*?)\s*$", re.MULTILINE)
_API_KEY_LINE = re.compile(r"^\s*[\"']?(?:--)?api[-_]key[\"']?\s*[:=]\s*(.+?)\s*$", re.MULTILINE)


def plain_value(text):
    """The value of a scalar in a file for ``--config``: as JSON writes it, in single quotes, or bare."""
    if text.startswith('"'):
        try:
            return json.loads(text)
        except ValueError:
            return text.strip('"')
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def api_key_of_text(text):
    """The API key in a file: an ``api-key:`` line as in a ``--config`` file, or the only line of the file.

    Empty for a file that holds another key only: clients then need none.

    :raises ValueError: when the file holds neither.
    """
    found = _API_KEY_LINE.search(text)
    if found:
        return plain_value(found.group(1))
    if keys_of_text(text):
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) == 1:
        return lines[0]
    raise ValueError("expected an 'api-key:' line or one line with the key, found %d lines" % len(lines))


def keys_of_text(text):
    """``{"api-key": value, ...}`` of a file for ``--config``."""
    return {match.group("name"): plain_value(match.group("value")) for match in _LINE.finditer(text or "")}


def keys_of_file(path):
    """The keys in a file for ``--config`` by name; none when it is not there."""
    try:
        with open(path, encoding="utf-8") as stream:
            return keys_of_text(stream.read())
    except FileNotFoundError:
        return {}


def text_tells(text, keys):
    """Does a text hold one of the keys, as it is or as Python or JSON would print it?"""
    spellings = [form for key in keys for form in (key, repr(key)[1:-1], json.dumps(key)[1:-1]) if form]
    return any(form in text for form in spellings)


def invocation_tells(run, invocation_id, keys):
    """Does the journal of one invocation hold one of the keys?

    Only lines that name a key are read: a server that has run for weeks has millions of others. The key itself is
    searched here, because the list of processes would show what journalctl is asked for.

    :arg run: ``_host.runner_of``, or another ``run(argv) -> (rc, stdout, stderr)``. Read line by line and no further
        than to the first key: nothing of the journal is held.
    """
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat", "--all"]
    selected = "_SYSTEMD_INVOCATION_ID=" + invocation_id
    # The second time for a journalctl without pattern matching.
    for pattern in (["--grep=api.?key"], []):
        with _journal_stream.lines_of(run, [*command, *pattern, selected]) as lines:
            if any(text_tells(as_text(line), keys) for line in lines):
                return True
        if not lines.rc or not lines.err.strip():
            return False
    return False
