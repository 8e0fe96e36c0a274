# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_mask: what nobody may see (private to the collection).

SGLang prints its API keys in the ``server_args=`` line and returns them from ``/server_info``. Everything that a module
returns from a log passes through here: secrets are recognised by the name that stands before them, by their shape
(``hf_...``, ``sk-...``), and by value when the caller knows them.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote

MASK = "********"

# A secret that the caller names is looked for by value. Shorter ones than this would blank half of every line.
LEAST_SECRET_LENGTH = 4

_NAME = (
    r"(?:admin[_-]?|openai[_-]?|x[_-]|[a-z0-9]{1,20}_)?(?:api[_-]?key"
    r"|(?:hf|hub|huggingface|access|auth|api|bearer|refresh|secret|session|security|id)[_-]?token"
    r"|password|passwd|passphrase|secret(?:[_-]?(?:key|access[_-]?key))?|private[_-]?key|credentials?)"
)
# The value: a quoted text (with escapes), or everything up to the next delimiter. An opened quote that never closes is
# a line that was cut: the rest of it is the secret.
_QUOTED = r"'(?:[^'\\]|\\.)*(?:'|\\?$)|\"(?:[^\"\\]|\\.)*(?:\"|\\?$)"
_BARE = r"[^\s'\",;)}\]&]+"

_NAMED = re.compile(
    # 'api_key': 'x'   "api_key": "x"   api_key='x'   API_KEY=x   api-key: x
    r"(?<![a-z0-9])(?P<name>"
    + _NAME
    + r")(?P<sep>\\?['\"]?\s{0,4}[:=]\s{0,4}\\?)(?P<value>"
    + _QUOTED
    + "|"
    + _BARE
    + ")",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION = re.compile(
    # --api-key x   --api-key=x   '--api-key', 'x'
    r"(?P<name>--(?:[a-z0-9-]{1,30}-)?(?:api-key|token|password|secret)\b)(?P<sep>['\"]?\s{0,4}[=,]?\s{0,4})"
    r"(?P<value>" + _QUOTED + "|" + _BARE + ")",
    re.IGNORECASE | re.MULTILINE,
)
_HEADER = re.compile(r"(?P<name>\b(?:bearer|basic))(?P<sep>\s{1,4})(?P<value>[A-Za-z0-9._~+/=:-]{4,})", re.IGNORECASE)
_URL = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]{0,20}://)(?P<sep>)(?P<value>[^\s/@'\"]{1,300}(?=@))", re.IGNORECASE)
_SHAPE = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|nvapi-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,})"
)

# Cheap tests: SGLang's own lines count tokens all day long, and few of them hold one that opens a door.
_TOKEN = re.compile(
    r"--[a-z0-9-]{0,31}token|(?:hf|hub|huggingface|access|auth|api|bearer|refresh|secret|session|security|id)[_-]?token"
)
_SHAPES = ("hf_", "sk-", "nvapi-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_")

# Values that say "nothing is set": worth keeping, because they tell the reader that no key is in use.
_NOTHING = frozenset(("none", "null", "true", "false", "''", '""', MASK))

_SECRET_KEY = re.compile(r"^(?:" + _NAME + r"|authorization|x-api-key)$", re.IGNORECASE)


def _replace(match):
    value = match.group("value")
    if value.lower() in _NOTHING or MASK in value:
        return match.group(0)
    quote_sign = value[0] if value[0] in "'\"" else ""
    return match.group("name") + match.group("sep") + quote_sign + MASK + quote_sign


def _spellings(secret):
    """All spellings in which a secret may stand in a log: plain, in a Python repr, in JSON, in a URL."""
    forms = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    forms.update((quote(secret, safe=""), quote(secret)))
    escaped = secret.encode("unicode_escape").decode("ascii")
    forms.add(escaped)
    forms.add(secret.replace("\\", "\\\\").replace("'", "\\'"))
    # A log reader cuts lines at these signs; the parts must not survive alone either.
    for part in re.split(r"[\r\n\x00]+", secret):
        if len(part) >= LEAST_SECRET_LENGTH:
            forms.add(part)
    return forms


def _known(secrets):
    forms = set()
    for secret in secrets or ():
        text = str(secret)
        if len(text) >= LEAST_SECRET_LENGTH and text.strip():
            forms.update(_spellings(text))
    # The longest first: a key that contains another key must not leave its tail behind.
    return sorted((form for form in forms if len(form) >= LEAST_SECRET_LENGTH), key=len, reverse=True)


def mask_text(text, secrets=()):
    """Return *text* without the given *secrets* and without anything that is recognisably a secret.

    text: str (anything else is turned into one); secrets: iterable of str.
    """
    result = text if isinstance(text, str) else str(text)
    for form in _known(secrets):
        result = result.replace(form, MASK)
    lowered = result.lower()
    if (
        "key" in lowered
        or "pass" in lowered
        or "secret" in lowered
        or "credential" in lowered
        or ("token" in lowered and _TOKEN.search(lowered))
    ):
        result = _NAMED.sub(_replace, result)
        result = _OPTION.sub(_replace, result)
    if "bearer" in lowered or "basic" in lowered:
        result = _HEADER.sub(_replace, result)
    if "://" in result and "@" in result:
        result = _URL.sub(_replace, result)
    if any(sign in result for sign in _SHAPES):
        result = _SHAPE.sub(MASK, result)
    return result


def mask_data(data, secrets=()):
    """Return a copy of *data* (dict, list, tuple, str, numbers) with every secret masked, by key name and by value."""
    if isinstance(data, dict):
        return {
            mask_text(key, secrets) if isinstance(key, str) else key: _mask_member(key, value, secrets)
            for key, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [mask_data(item, secrets) for item in data]
    if isinstance(data, str):
        return mask_text(data, secrets)
    return data


def _mask_member(key, value, secrets):
    if isinstance(key, str) and _SECRET_KEY.match(key.strip()) and value not in (None, "", False, True):
        return MASK
    return mask_data(value, secrets)
