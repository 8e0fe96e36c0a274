# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test double of a model hub: serves a folder in the URL shapes of huggingface.co, with the standard library only.

    python3 hub.py --root DIR --port 8090 [--token SECRET] [--break-after BYTES] [--no-ranges]

DIR/ORG/NAME/REVISION/... holds the files; REVISION is a branch (main), a tag, or a commit hash. The commit hash of a
revision is the folder's own name when it is one, else a hash of its file names and sizes. Files ending in .safetensors
are "large": their sha256 is listed and they are given by a redirect to /cdn/..., as the real hub does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

BRANCHES = ("main", "dev")


@dataclass
class Behaviour:
    """What the hub does wrong on purpose, and what it has seen."""

    token: str | None = None
    break_after_bytes: int | None = None  # a file transfer ends there, each time
    breaks_left: int = 10**9
    ranges: bool = True
    wrong_sizes: dict = field(default_factory=dict)  # name -> size to list
    wrong_sha256: dict = field(default_factory=dict)
    busy_left: int = 0  # answers 503 that many times
    cdn: str | None = None  # address of another hub.py that gives large files
    requests: list = field(default_factory=list)  # (path, Range, Authorization)


def commit_of(folder: Path) -> str:
    if re.fullmatch(r"[0-9a-f]{40}", folder.name):
        return folder.name
    names = sorted((str(one.relative_to(folder)), one.stat().st_size) for one in folder.rglob("*") if one.is_file())
    return hashlib.sha1(json.dumps(names).encode()).hexdigest()


def is_large(name: str) -> bool:
    return name.endswith(".safetensors")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args) -> None:
        if self.server.verbose:
            super().log_message(*args)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        behaviour = self.server.behaviour
        behaviour.requests.append((path, self.headers.get("Range"), self.headers.get("Authorization")))
        if behaviour.busy_left > 0:
            behaviour.busy_left -= 1
            self.answer(503, b"busy")
            return
        if path.startswith("/cdn/"):
            self.give(self.server.root / path[len("/cdn/") :])
            return
        if behaviour.token and self.headers.get("Authorization") != "Bearer " + behaviour.token:
            self.answer(401, b"no access", {"X-Error-Code": "GatedRepo"})
            return
        for pattern, step in (
            (r"/api/models/([^/]+/[^/]+)/refs", self.refs),
            (r"/api/models/([^/]+/[^/]+)/revision/(.+)", self.listing),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.resolve),
        ):
            match = re.fullmatch(pattern, path)
            if match:
                step(*match.groups())
                return
        self.answer(404, b"not found")

    def folder(self, repo: str, revision: str) -> Path | None:
        """The folder of a revision, which may be given by the commit hash that was listed."""
        base = self.server.root / repo
        if not base.is_dir():
            self.answer(404, b"no such model", {"X-Error-Code": "RepoNotFound"})
            return None
        for one in base.iterdir():
            if revision in (one.name, commit_of(one)):
                return one
        self.answer(404, b"no such revision", {"X-Error-Code": "RevisionNotFound"})
        return None

    def refs(self, repo: str) -> None:
        base = self.server.root / repo
        names = [one.name for one in base.iterdir()] if base.is_dir() else []
        branches = [{"name": one, "ref": "refs/heads/" + one} for one in names if one in BRANCHES]
        tags = [{"name": one, "ref": "refs/tags/" + one} for one in names if one not in BRANCHES]
        self.answer_json({"branches": branches, "tags": tags, "converts": []})

    def listing(self, repo: str, revision: str) -> None:
        folder = self.folder(repo, revision)
        if folder is not None:
            files = sorted(one for one in folder.rglob("*") if one.is_file())
            self.answer_json(
                {"id": repo, "sha": commit_of(folder), "siblings": [self.entry(folder, one) for one in files]}
            )

    def entry(self, folder: Path, path: Path) -> dict:
        name = str(path.relative_to(folder))
        behaviour = self.server.behaviour
        size = behaviour.wrong_sizes.get(name, path.stat().st_size)
        entry = {"rfilename": name, "size": size, "blobId": hashlib.sha1(name.encode()).hexdigest()}
        if is_large(name):
            digest = behaviour.wrong_sha256.get(name) or hashlib.sha256(path.read_bytes()).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": size, "pointerSize": 133}
        return entry

    def resolve(self, repo: str, revision: str, name: str) -> None:
        folder = self.folder(repo, revision)
        if folder is None:
            return
        if not (folder / name).is_file():
            self.answer(404, b"no such file", {"X-Error-Code": "EntryNotFound"})
        elif is_large(name):
            base = self.server.behaviour.cdn or ""
            self.answer(302, b"", {"Location": f"{base}/cdn/{(folder / name).relative_to(self.server.root)}"})
        else:
            self.give(folder / name)

    def give(self, path: Path) -> None:
        """Send a file or, with a Range header, that part of it; break off where the behaviour says so."""
        behaviour = self.server.behaviour
        if not path.is_file():
            self.answer(404, b"not found")
            return
        content = path.read_bytes()
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        ranged = match is not None and behaviour.ranges
        offset = int(match.group(1)) if ranged else 0
        end = min(int(match.group(2)) + 1, len(content)) if ranged and match.group(2) else len(content)
        if offset >= len(content) > 0 and offset:
            self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        body = content[offset:end]
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(len(body)))
        if ranged:
            self.send_header("Content-Range", f"bytes {offset}-{end - 1}/{len(content)}")
        self.end_headers()
        limit = behaviour.break_after_bytes
        if limit is not None and limit < len(body) and behaviour.breaks_left > 0:
            behaviour.breaks_left -= 1
            self.wfile.write(body[:limit])
            self.close_connection = True
            return
        self.wfile.write(body)

    def answer_json(self, content: dict) -> None:
        self.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def answer(self, code: int, body: bytes, headers: dict | None = None) -> None:
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Hub(ThreadingHTTPServer):
    """A running hub; `address` is what a client needs."""

    daemon_threads = True

    def __init__(
        self, root: Path, behaviour: Behaviour, port: int = 0, host: str = "127.0.0.1", verbose: bool = False
    ) -> None:
        super().__init__((host, port), Handler)
        self.root = Path(root)
        self.behaviour = behaviour
        self.verbose = verbose

    @property
    def address(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A test double of a model hub.")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--token")
    parser.add_argument("--break-after", type=int, help="bytes after which a transfer breaks off")
    parser.add_argument("--breaks", type=int, default=10**9, help="how many transfers break off")
    parser.add_argument("--no-ranges", action="store_true")
    given = parser.parse_args()
    behaviour = Behaviour(given.token, given.break_after, given.breaks, not given.no_ranges)
    hub = Hub(given.root, behaviour, given.port, given.host, verbose=True)
    print(f"hub: {hub.address} serves {given.root}", flush=True)
    hub.serve_forever()


if __name__ == "__main__":
    main()
