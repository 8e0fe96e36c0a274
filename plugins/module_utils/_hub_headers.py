# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model on a hub as a source of headers: config.json and safetensors headers, without the weights. Private.

A range request brings the beginning of each file, mostly one for a file: a model of 200 shards costs some 20 MB. A hub
that knows no ranges sends the file from its beginning, and the connection is closed behind the header.

It runs where the module runs. A host that has no route to the hub leaves it to the controller (delegate_to).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import HubError, file_url
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_fetch import Fetcher, Interrupted
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_headers import (
    MAX_JSON_BYTES,
    WeightsError,
    header_length,
    header_of_bytes,
    json_of_bytes,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_weights import checked_size

FIRST_BYTES = 128 * 1024  # holds the header of most shards
BLOCK_BYTES = 1024 * 1024
WORKERS = 8


class Hub:
    """A revision on a hub; _model_weights.Folder is the other source.

    C(source): _hub_fetch.Source. C(open), C(sleep): as of Fetcher. Raises HubError (one sentence) when the hub or the
    revision cannot be reached.
    """

    def __init__(self, source, open, sleep, tries=5):
        self.source = source
        self.label = "hub " + source.endpoint
        self._open = open
        self._sleep = sleep
        self._tries = tries
        listing = Fetcher(source, open, sleep, tries=tries).listing()
        self.commit = listing.commit
        self._sizes = {one.name: one.size_bytes for one in listing.files}

    def names(self):
        return sorted(self._sizes)

    def json(self, name):
        """Return the JSON object in a file, None where there is no such file."""
        size_bytes = self._sizes.get(name)
        if size_bytes is None:
            return None
        return json_of_bytes(self._beginning(name, min(size_bytes, MAX_JSON_BYTES + 1)), name)

    def headers(self, names):
        """Return {name: Header, or what is wrong with the file}. Files that the hub does not list are left out."""
        here = [name for name in names if name in self._sizes]
        with ThreadPoolExecutor(max_workers=WORKERS) as pool:
            return dict(zip(here, pool.map(self._header, here)))

    def _header(self, name):
        size_bytes = self._sizes[name]
        try:
            content = self._beginning(name, min(size_bytes, FIRST_BYTES))
            end = 8 + header_length(content[:8], size_bytes, name)
            if end > len(content):
                content = self._beginning(name, end)
            return checked_size(header_of_bytes(content[8:end], name), size_bytes)
        except WeightsError as error:
            return "is damaged: " + str(error)

    def _beginning(self, name, count):
        """Return the first C(count) bytes of a file."""
        if count == 0:
            return b""

        def open_range(url, headers):
            return self._open(url, {**headers, "Range": f"bytes=0-{count - 1}"})

        fetcher = Fetcher(self.source, open_range, self._sleep, tries=self._tries)
        url = file_url(self.source.endpoint, self.source.repo, self.commit, name)
        return fetcher.patiently(name, lambda: self._read(fetcher.request(url), count))

    @staticmethod
    def _read(response, count):
        """Read C(count) bytes and close: what a hub without ranges would send behind them is not wanted."""
        content = b""
        try:
            while len(content) < count:
                block = response.read(min(BLOCK_BYTES, count - len(content)))
                if not block:
                    break
                content += block
        except Exception as error:  # http.client and ssl raise many kinds; all mean that the connection broke
            raise Interrupted(0) from error
        finally:
            response.close()
        if len(content) < count:
            raise Interrupted(0)
        return content


__all__ = ["Hub", "HubError"]
