# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pinned model revision from a hub: what it holds, what is missing here, and fetching it. Private to this collection.

The hub speaks as huggingface.co does: GET /api/models/REPO/revision/REV?blobs=true lists the files with sizes and, for
large ones, sha256; GET /REPO/resolve/REV/FILE gives a file, by a redirect to another host for large ones. Mirrors do
the same.

Pure but for `sizes_below`; the transfers are in `_hub_fetch`.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

MANIFEST_NAME = ".gpufleet-model.json"
PART_SUFFIX = ".incomplete"
GIB = 1024**3

# Names that mean another content tomorrow.
MOVING_NAMES = ("main", "master", "HEAD", "latest", "trunk", "dev")


class HubError(Exception):
    """One sentence for the user: what was expected, what was found, what repairs it."""


@dataclass(frozen=True)
class HubFile:
    """One file of a revision; sha256 is given by hubs for large files only."""

    name: str
    size_bytes: int
    sha256: str | None = None

    def as_dict(self) -> dict:
        return {"name": self.name, "size_bytes": self.size_bytes, "sha256": self.sha256}


@dataclass(frozen=True)
class Listing:
    """A revision: the commit that it is, and its files."""

    commit: str
    files: tuple[HubFile, ...]

    @property
    def total_bytes(self) -> int:
        return sum(one.size_bytes for one in self.files)


def is_commit(revision: str) -> bool:
    """True for a full commit hash."""
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def revision_problem(revision: str, branches: tuple[str, ...] = ()) -> str | None:
    """One sentence when `revision` can mean another content tomorrow, else None."""
    if not revision:
        return "The revision is not given: set sglang_model_revision to a commit hash or a tag of the model."
    if is_commit(revision) or (revision not in MOVING_NAMES and revision not in branches):
        return None
    return (
        f"The revision '{revision}' is a branch, whose content changes: set sglang_model_revision to a commit "
        "hash or a tag, so that all hosts "
        "serve the same weights."
    )


def listing_url(endpoint: str, repo: str, revision: str) -> str:
    return "{}/api/models/{}/revision/{}?blobs=true".format(endpoint.rstrip("/"), quote(repo), quote(revision, safe=""))


def refs_url(endpoint: str, repo: str) -> str:
    return "{}/api/models/{}/refs".format(endpoint.rstrip("/"), quote(repo))


def file_url(endpoint: str, repo: str, commit: str, name: str) -> str:
    return "{}/{}/resolve/{}/{}".format(endpoint.rstrip("/"), quote(repo), quote(commit, safe=""), quote(name))


def read_branches(answer: dict) -> tuple[str, ...]:
    """The branch names in the answer of /refs."""
    return tuple(str(one.get("name")) for one in answer.get("branches") or [])


def safe_name(name: str) -> bool:
    """False for a name that would leave the model's folder."""
    parts = name.split("/")
    return bool(name) and not name.startswith("/") and ".." not in parts and "" not in parts and "\\" not in name


def read_listing(answer: dict, revision: str) -> Listing:
    """The API's answer -> Listing; HubError when it is not one, or lacks sizes."""
    siblings = answer.get("siblings")
    commit = answer.get("sha")
    if not isinstance(siblings, list) or not isinstance(commit, str):
        raise HubError(
            "A list of files was expected from the hub and its answer has no 'siblings' or 'sha': check "
            "sglang_model_endpoint."
        )
    if is_commit(revision) and commit != revision:
        raise HubError(
            f"Commit {revision} was asked for and the hub answered with {commit}: check sglang_model_endpoint."
        )
    return Listing(commit, tuple(read_sibling(one) for one in siblings))


def read_sibling(entry: dict) -> HubFile:
    """One entry of 'siblings'; size and sha256 of the content, not of its pointer."""
    name = str(entry.get("rfilename", ""))
    if not safe_name(name):
        raise HubError(f"The hub lists the file name {name!r}, which would leave the model's folder: it is refused.")
    large = entry.get("lfs") or {}
    size = large.get("size", entry.get("size"))
    if not isinstance(size, int):
        raise HubError(
            f"The hub gives no size for {name}, so that it cannot be verified: use a hub that answers blobs=true."
        )
    sha256 = large.get("sha256") or large.get("oid")
    return HubFile(name, size, sha256.replace("sha256:", "") if isinstance(sha256, str) else None)


def choose_files(files: tuple[HubFile, ...], include: list[str], exclude: list[str]) -> tuple[HubFile, ...]:
    """The files that match `include` and not `exclude` (shell patterns over the whole name)."""

    def wanted(name: str) -> bool:
        return any(fnmatch.fnmatch(name, one) for one in include) and not any(
            fnmatch.fnmatch(name, one) for one in exclude
        )

    return tuple(one for one in files if wanted(one.name))


@dataclass(frozen=True)
class Work:
    """What must be fetched, and how many bytes of it are not here yet."""

    files: tuple[HubFile, ...]
    missing_bytes: int


def plan_work(files: tuple[HubFile, ...], here: dict[str, int], parts: dict[str, int]) -> Work:
    """`here` and `parts`: sizes of complete and of begun files by name."""
    wanted = tuple(one for one in files if here.get(one.name) != one.size_bytes)
    left = sum(one.size_bytes - min(parts.get(one.name, 0), one.size_bytes) for one in wanted)
    return Work(wanted, left)


def space_problem(missing_bytes: int, free_bytes: int, folder: str, factor: float = 1.1) -> str | None:
    """One sentence when the missing bytes (with a margin) do not fit, else None."""
    needed = missing_bytes * factor
    if needed <= free_bytes:
        return None
    return (
        f"{needed / GIB:.2f} GiB are needed for the download ({missing_bytes / GIB:.2f} GiB and a margin) and "
        f"{folder} has {free_bytes / GIB:.2f} GiB free: free some or set sglang_model_root."
    )


@dataclass(frozen=True)
class Manifest:
    """What a folder was downloaded as."""

    repo: str
    revision: str
    commit: str
    files: tuple[HubFile, ...]
    patterns: tuple[str, ...] = ()

    def describes(self, repo: str, revision: str, patterns: tuple[str, ...]) -> bool:
        """True when the folder was loaded for this wish, so that the hub need not be asked."""
        return self.repo == repo and revision in (self.revision, self.commit) and self.patterns == patterns


def patterns_of(include: list[str], exclude: list[str]) -> tuple[str, ...]:
    """Both lists as one, to compare."""
    return tuple(include) + tuple("!" + one for one in exclude)


def manifest_text(manifest: Manifest) -> str:
    content = {
        "repo": manifest.repo,
        "revision": manifest.revision,
        "commit": manifest.commit,
        "patterns": list(manifest.patterns),
        "files": [one.as_dict() for one in manifest.files],
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def read_manifest(text: str | None) -> Manifest | None:
    """The manifest of a folder; None where there is none or it is damaged."""
    try:
        content = json.loads(text or "")
        files = tuple(HubFile(one["name"], one["size_bytes"], one.get("sha256")) for one in content["files"])
        patterns = tuple(content.get("patterns", ()))
        return Manifest(content["repo"], content["revision"], content["commit"], files, patterns)
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Status:
    """An HTTP status of the hub and what it means here."""

    code: int
    error_code: str
    sentence: str
    source: str


# The hub names the case in the header X-Error-Code; a hub hides private repositories behind 401.
STATUSES = (
    Status(
        404, "RevisionNotFound", "The model {repo} has no revision {revision}: check sglang_model_revision.", "hub API"
    ),
    Status(404, "RepoNotFound", "The hub {endpoint} has no model {repo}: check sglang_model_repo.", "hub API"),
    Status(
        401,
        "RepoNotFound",
        "The hub {endpoint} has no model {repo} for {who}: check sglang_model_repo{token}.",
        "hub API",
    ),
    Status(
        403,
        "GatedRepo",
        "The model {repo} is gated and {who} has no access: accept its terms on the hub{token}.",
        "hub API",
    ),
    Status(
        401,
        "GatedRepo",
        "The model {repo} is gated and {who} has no access: accept its terms on the hub{token}.",
        "hub API",
    ),
    Status(401, "", "The hub {endpoint} refuses {who} for {repo}: check the name{token}.", "RFC 9110"),
    Status(403, "", "The hub {endpoint} refuses {who} for {repo}: check the rights{token}.", "RFC 9110"),
    Status(
        404,
        "",
        "The hub {endpoint} does not hold {what}: check sglang_model_repo and sglang_model_revision.",
        "RFC 9110",
    ),
)
# Worth another try: the hub or a proxy is busy.
TRANSIENT_CODES = (408, 425, 429, 500, 502, 503, 504)


def status_sentence(code: int, error_code: str, repo: str, revision: str, endpoint: str, what: str, token: bool) -> str:
    """One sentence for an HTTP status that ends the download."""
    who = "this token" if token else "a request without a token"
    hint = " and the token" if token else " and set sglang_model_token or sglang_model_token_file"
    for row in STATUSES:
        if row.code == code and row.error_code in ("", error_code):
            return row.sentence.format(repo=repo, revision=revision, endpoint=endpoint, what=what, who=who, token=hint)
    return f"The hub {endpoint} answered {what} with HTTP status {code}: check sglang_model_endpoint."


def same_origin(one: str, other: str) -> bool:
    """True when a token that is meant for `one` may be sent to `other`."""
    first, second = urlsplit(one), urlsplit(other)
    return (first.scheme, first.netloc) == (second.scheme, second.netloc)


def sizes_below(folder: str) -> dict[str, int]:
    """Sizes of the files below `folder` by relative name; {} when it does not exist."""
    sizes = {}
    for base, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if os.path.isfile(path):
                sizes[os.path.relpath(path, folder)] = os.path.getsize(path)
    return sizes
