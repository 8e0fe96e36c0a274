# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetching the files of a model from a hub: redirects, tries, resume, verification. Private to this collection.

Part of the room `_hub`. `Fetcher` gets its `open`, `sleep` and `report` from outside.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import dataclass
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin

from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import (
    PART_SUFFIX,
    TRANSIENT_CODES,
    HubError,
    HubFile,
    Listing,
    file_url,
    listing_url,
    read_branches,
    read_listing,
    refs_url,
    same_origin,
    status_sentence,
)

BLOCK_BYTES = 1 << 20


class Interrupted(Exception):
    """A transfer ended early; it can be taken up where it broke off."""


@dataclass(frozen=True)
class Source:
    """Where a model comes from. The token goes to this endpoint only."""

    endpoint: str
    repo: str
    revision: str
    token: str | None = None


class Fetcher:
    """Transfers with resume and retries.

    open(url, headers) -> response (read, status, headers), following no redirect and raising HTTPError for >= 300;
    sleep(seconds); report(bytes_added) is called as bytes arrive, from several threads.
    """

    def __init__(self, source: Source, open, sleep, report=lambda count: None, tries: int = 5) -> None:
        self.source = source
        self.open = open
        self.sleep = sleep
        self.report = report
        self.tries = tries

    def request(self, url: str, offset_bytes: int = 0):
        """Open `url`, following redirects; the token is left out as soon as another host answers."""
        for _hop in range(6):
            headers = {"Range": f"bytes={offset_bytes}-"} if offset_bytes else {}
            if self.source.token and same_origin(self.source.endpoint, url):
                headers["Authorization"] = "Bearer " + self.source.token
            try:
                return self.open(url, headers)
            except HTTPError as error:
                target = error.headers.get("Location") if error.code in (301, 302, 303, 307, 308) else None
                if not target:
                    raise
                url = urljoin(url, target)
        raise HubError(f"The hub redirects {url} in circles: check sglang_model_endpoint.")

    def patiently(self, what: str, step, kept: str = ""):
        """Run `step` until it ends; a broken transfer that brought something does not use up a try.

        :arg kept: what becomes of a transfer that is given up, for the message.
        """
        failures = 0
        while True:
            try:
                return step()
            except HTTPError as error:
                if error.code not in TRANSIENT_CODES:
                    raise HubError(self.sentence(error, what)) from error
                reason, progress = f"HTTP status {error.code}", False
            except Interrupted as error:
                reason, progress = "the connection broke off", bool(error.args and error.args[0])
            except (URLError, OSError) as error:
                if error.errno == errno.ENOSPC:
                    raise HubError(
                        f"The disk is full while {what} is loaded: free space or set sglang_model_root; what "
                        "was loaded is kept."
                    ) from error
                reason, progress = str(getattr(error, "reason", error)), False
            failures = 1 if progress else failures + 1
            if failures >= self.tries:
                raise HubError(
                    f"Expected {what} from {self.source.endpoint}, and after {failures} tries the last answer was: "
                    f"{reason}; check the network, a proxy and sglang_model_endpoint{kept}."
                )
            self.sleep(min(2.0**failures, 30.0))

    def sentence(self, error: HTTPError, what: str) -> str:
        one = self.source
        code = error.headers.get("X-Error-Code", "") if error.headers else ""
        return status_sentence(error.code, code, one.repo, one.revision, one.endpoint, what, bool(one.token))

    def json(self, url: str, what: str) -> dict:
        text = self.patiently(what, lambda: self.request(url).read())
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise HubError(f"{what} was expected from {url} as JSON and it is none: check sglang_model_endpoint.")
        return answer

    def branches(self) -> tuple[str, ...]:
        """The branches of the repository; none where a mirror does not tell."""
        try:
            return read_branches(self.json(refs_url(self.source.endpoint, self.source.repo), "the list of branches"))
        except HubError:
            return ()

    def listing(self) -> Listing:
        one = self.source
        url = listing_url(one.endpoint, one.repo, one.revision)
        return read_listing(self.json(url, f"the list of files of {one.repo} at {one.revision}"), one.revision)

    def fetch(self, wanted: HubFile, commit: str, target: str) -> None:
        """Bring one file to `target`, resuming `target`.incomplete, and verify size and sha256."""
        part = target + PART_SUFFIX
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        kept = ", what was loaded is kept and taken up by the next run"
        self.patiently(wanted.name, lambda: self.continue_part(wanted, commit, part), kept)
        found = digest_of(part) if wanted.sha256 else None
        if found != wanted.sha256:
            os.unlink(part)
            raise HubError(
                f"{wanted.name} was expected with sha256 {wanted.sha256} and {found} was loaded: it was "
                "removed, run again; if it stays so, the hub or a proxy is "
                "at fault."
            )
        os.chmod(part, 0o644)
        os.replace(part, target)

    def continue_part(self, wanted: HubFile, commit: str, part: str) -> None:
        """Append to the begun file what is missing. Raises Interrupted(bytes added) when the transfer ends early."""
        offset = os.path.getsize(part) if os.path.exists(part) else 0
        if offset > wanted.size_bytes:
            os.unlink(part)
            offset = 0
        if offset == wanted.size_bytes and os.path.exists(part):
            return
        response = self.request(file_url(self.source.endpoint, self.source.repo, commit, wanted.name), offset)
        if offset and response.getcode() != 206:
            offset = 0  # this server knows no ranges and sends the file from its beginning
        offered = offered_bytes(response.headers, offset)
        if offered is not None and offered != wanted.size_bytes:
            raise HubError(size_sentence(wanted, f"{offered} bytes"))
        added = self.receive(response, part, offset, wanted.size_bytes)
        size = offset + added
        if size > wanted.size_bytes:
            os.unlink(part)
            raise HubError(size_sentence(wanted, "more"))
        if size < wanted.size_bytes:
            raise Interrupted(added)

    def receive(self, response, part: str, offset: int, limit_bytes: int) -> int:
        """Write what the response brings behind `offset`; returns the bytes added, also when the connection breaks."""
        added = 0
        with open(part, "r+b" if os.path.exists(part) else "w+b") as handle:
            handle.truncate(offset)
            handle.seek(offset)
            while offset + added <= limit_bytes:
                try:
                    block = response.read(BLOCK_BYTES)
                except Exception:  # http.client and ssl raise many kinds; all mean that the connection broke
                    break
                if not block:
                    break
                handle.write(block)
                added += len(block)
                self.report(len(block))
        return added


def offered_bytes(headers, offset: int) -> int | None:
    """The whole size of the file that a response promises, None where it does not tell."""
    length = headers.get("Content-Length") if headers else None
    return offset + int(length) if length and length.isdigit() else None


def size_sentence(wanted: HubFile, found: str) -> str:
    return (
        f"{wanted.name} was expected with {wanted.size_bytes} bytes, as the hub lists it, and the hub sends {found}: "
        "check sglang_model_endpoint."
    )


def digest_of(path: str) -> str:
    """sha256 of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        for block in iter(lambda: handle.read(BLOCK_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()
