# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How modules are told of a hub, and how they open it: the options of the fragment hub. Private to the collection."""

from __future__ import annotations

from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import HubError
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_fetch import Source

HUB_ARGUMENTS = {
    "endpoint": {"type": "str", "default": "https://huggingface.co"},
    "token": {"type": "str", "no_log": True},
    "token_file": {"type": "path", "no_log": False},
    "timeout_seconds": {"type": "int", "default": 30},
    "validate_certs": {"type": "bool", "default": True},
}


def source_of(params):
    """Return the Source that the options of a module name."""
    return Source(params["endpoint"], params["repo"], params["revision"], token_of(params))


def token_of(params):
    """Return the access token, None without one. A file that is named must hold one."""
    if params["token"] or not params["token_file"]:
        return params["token"] or None
    try:
        with open(params["token_file"], encoding="utf-8") as handle:
            text = handle.read().strip()
    except (OSError, ValueError):
        text = ""
    if not text:
        raise HubError(
            "Expected an access token in the token file {}, which is not there, cannot be read or is empty: correct"
            " sglang_model_token_file.".format(params["token_file"])
        )
    return text


def opener_of(params):
    """Return open(url, headers) as Fetcher takes it: no redirect is followed, because a token must not go along."""

    def opened(url, headers):
        return open_url(
            url,
            headers=headers,
            timeout=params["timeout_seconds"],
            follow_redirects="none",
            validate_certs=params["validate_certs"],
            http_agent="gpufleet.sglang",
            decompress=False,
        )

    return opened
