# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_download
short_description: Load a pinned model revision from a hub, complete and verified
version_added: 0.1.0
author: ["gpufleet.sglang authors (@gpufleet)"]
description:
  - Loads the files of one revision of a model into O(dest). The space is checked first, broken transfers are taken up
    where they ended, and sizes are verified, with sha256 where the hub gives it.
  - The folder O(dest) appears in one step when all is there. Until then the files are in O(dest) with C(.partial)
    added.
  - A folder that was loaded by this module and is complete is left alone, and the hub is not asked.
options:
  repo:
    description: The model's name on the hub, for example V(Qwen/Qwen3-32B).
    type: str
    required: true
  revision:
    description: A commit hash or a tag. A branch such as V(main) is refused, because its content changes.
    type: str
    required: true
  dest:
    description: The folder of this revision.
    type: path
    required: true
  include:
    description: Shell patterns of the files to load.
    type: list
    elements: str
    default: ["*"]
  exclude:
    description: Shell patterns of files to leave out.
    type: list
    elements: str
    default: []
  workers:
    description: Files that are loaded at the same time.
    type: int
    default: 4
  tries:
    description: How often a transfer is tried that brings nothing. One that brings something is always taken up again.
    type: int
    default: 5
  progress_file:
    description:
      - A file in which the module notes how far it is. The action plugin of this module gives it and shows the
        progress.
    type: path
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
  - gpufleet.sglang.attributes.action
  - gpufleet.sglang.hub
attributes:
  action:
    support: full
    details:
      - Prints how far the download is. With C(async) it prints nothing.
  check_mode:
    support: full
    details:
      - Asks the hub and says which files and how many bytes would be loaded, and whether they fit.
  diff_mode:
    support: none
    details:
      - The result lists RV(actions) instead; weights cannot be shown as text.
"""

EXAMPLES = r"""
- name: The weights, pinned by commit
  gpufleet.sglang.model_download:
    repo: HuggingFaceTB/SmolLM2-135M-Instruct
    revision: 12fd25f77366fa6b3b4b768ec3050bf629380bac
    dest: /srv/models/HuggingFaceTB--SmolLM2-135M-Instruct/12fd25f77366fa6b3b4b768ec3050bf629380bac
    exclude: ["*.gguf", "onnx/*"]
  become: true
"""

RETURN = r"""
path:
  description: The folder of the model.
  returned: success
  type: str
  sample: /srv/models/HuggingFaceTB--SmolLM2-135M-Instruct/12fd25f77366fa6b3b4b768ec3050bf629380bac
commit:
  description: The commit that the revision is.
  returned: success
  type: str
  sample: 12fd25f77366fa6b3b4b768ec3050bf629380bac
total_bytes:
  description: Bytes of all files of the model's folder.
  returned: success
  type: int
  sample: 272000000
loaded_bytes:
  description: Bytes that were loaded, or would be in check mode.
  returned: success
  type: int
  sample: 272000000
files:
  description: Names of the files that were loaded, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [config.json, model.safetensors]
actions:
  description: What was done, or would be done in check mode.
  returned: success
  type: list
  elements: str
  sample: ["load 7 files, 0.25 GiB, of HuggingFaceTB/SmolLM2-135M-Instruct"]
"""

import fcntl
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _hub, _hub_fetch
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_options import HUB_ARGUMENTS, opener_of, source_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._note import Note


class Progress:
    """Counts the bytes of all workers and notes them."""

    def __init__(self, note: Note, total_bytes: int) -> None:
        self.note = note
        self.total_bytes = total_bytes
        self.done_bytes = 0
        self.lock = threading.Lock()

    def add(self, count: int) -> None:
        with self.lock:
            self.done_bytes += count
            self.note.transferred("download", self.done_bytes, self.total_bytes)


def read_text(path: str) -> str | None:
    """The file's text, or None where there is no such file."""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def free_bytes(path: str) -> tuple[int, str]:
    """(bytes free, existing folder) for a path that may not exist yet."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize, path


class Download:
    """One model folder: reads what is there, plans, loads, verifies."""

    def __init__(self, params: dict, check_mode: bool, sleep=time.sleep) -> None:
        self.params = params
        self.check_mode = check_mode
        self.dest = params["dest"].rstrip("/")
        self.partial = self.dest + ".partial"
        self.patterns = _hub.patterns_of(params["include"], params["exclude"])
        self.fetcher = _hub_fetch.Fetcher(source_of(params), opener_of(params), sleep, tries=params["tries"])
        self.actions: list[str] = []

    def run(self) -> dict:
        manifest = _hub.read_manifest(read_text(os.path.join(self.dest, _hub.MANIFEST_NAME)))
        here = _hub.sizes_below(self.dest)
        if manifest and self.is_complete(manifest, here):
            return self.result(manifest, (), 0)
        wanted = self.ask_hub()
        work = self.plan(wanted, manifest, here)
        if not self.check_mode:
            self.load(wanted, work)
        return self.result(wanted, work.files, work.missing_bytes)

    def is_complete(self, manifest: _hub.Manifest, here: dict[str, int]) -> bool:
        """True when the folder was loaded for this wish and nothing of it is missing: the hub need not be asked."""
        known = manifest.describes(self.params["repo"], self.params["revision"], self.patterns)
        return known and not _hub.plan_work(manifest.files, here, {}).files

    def ask_hub(self) -> _hub.Manifest:
        """What the folder must hold, from the hub's list. A branch is refused."""
        revision = self.params["revision"]
        problem = _hub.revision_problem(revision)
        if problem is None and not _hub.is_commit(revision):
            problem = _hub.revision_problem(revision, self.fetcher.branches())
        if problem:
            raise _hub.HubError(problem)
        listing = self.fetcher.listing()
        files = _hub.choose_files(listing.files, self.params["include"], self.params["exclude"])
        if not files:
            raise _hub.HubError(
                f"None of the {len(listing.files)} files of {self.params['repo']} is wanted: check "
                "sglang_model_include and sglang_model_exclude."
            )
        return _hub.Manifest(self.params["repo"], revision, listing.commit, files, self.patterns)

    def plan(self, wanted: _hub.Manifest, manifest: _hub.Manifest | None, here: dict[str, int]) -> _hub.Work:
        """Which files to load. A folder that holds other things is not touched."""
        begun = _hub.sizes_below(self.partial)
        done = {**begun, **here}
        work = _hub.plan_work(wanted.files, done, self.parts(begun))
        if here and manifest is None and work.files:
            raise _hub.HubError(
                f"{self.dest} exists, was not loaded by this module, and its {work.files[0].name} is missing "
                "or has another size: remove the folder or set "
                "sglang_model_root."
            )
        if manifest is not None and manifest.commit != wanted.commit:
            raise _hub.HubError(
                f"{self.dest} holds commit {manifest.commit} and {wanted.revision} is commit {wanted.commit} "
                "now: a tag was moved; set sglang_model_revision to the commit hash."
            )
        free, folder = free_bytes(self.dest)
        problem = _hub.space_problem(work.missing_bytes, free, folder)
        if problem:
            raise _hub.HubError(problem)
        self.announce(wanted, work)
        return work

    @staticmethod
    def parts(begun: dict[str, int]) -> dict[str, int]:
        end = len(_hub.PART_SUFFIX)
        return {name[:-end]: size for name, size in begun.items() if name.endswith(_hub.PART_SUFFIX)}

    def announce(self, wanted: _hub.Manifest, work: _hub.Work) -> None:
        if work.files:
            count, gib = len(work.files), work.missing_bytes / _hub.GIB
            self.actions.append(f"load {count} files, {gib:.2f} GiB, of {wanted.repo} at {wanted.commit}")
        else:
            self.actions.append(f"note that {self.dest} is {wanted.repo} at {wanted.commit}")

    def load(self, wanted: _hub.Manifest, work: _hub.Work) -> None:
        os.umask(0o022)  # the service user must be able to read what root loads
        os.makedirs(self.partial, mode=0o755, exist_ok=True)
        with open(os.path.join(self.partial, ".lock"), "w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise _hub.HubError(f"Another run is loading into {self.partial}: wait for its end.") from error
            self.load_all(wanted, work)
        self.finish(wanted)

    def load_all(self, wanted: _hub.Manifest, work: _hub.Work) -> None:
        """Load with several workers; the first problem ends it, begun files are kept."""
        progress = Progress(Note(self.params["progress_file"]), work.missing_bytes)
        self.fetcher.report = progress.add
        # The largest first, so that no worker is left alone with it at the end.
        files = sorted(work.files, key=lambda one: one.size_bytes, reverse=True)
        with ThreadPoolExecutor(max_workers=max(1, self.params["workers"])) as pool:
            jobs = [
                pool.submit(self.fetcher.fetch, one, wanted.commit, os.path.join(self.partial, one.name))
                for one in files
            ]
            try:
                for job in jobs:
                    job.result()
            finally:
                for job in jobs:
                    job.cancel()
                progress.note.end()

    def finish(self, wanted: _hub.Manifest) -> None:
        """Verify all sizes once more, then let the folder appear (or put the repaired files into it)."""
        names = {one.name for one in wanted.files}
        for name in _hub.sizes_below(self.partial):
            if name not in names:
                os.unlink(os.path.join(self.partial, name))
        manifest = os.path.join(self.partial, _hub.MANIFEST_NAME)
        with open(manifest, "w", encoding="utf-8") as handle:
            handle.write(_hub.manifest_text(wanted))
        os.chmod(manifest, 0o644)
        if os.path.isdir(self.dest) and os.listdir(self.dest):
            self.merge()
        else:
            os.replace(self.partial, self.dest)
        left = _hub.plan_work(wanted.files, _hub.sizes_below(self.dest), {}).files
        if left:
            raise _hub.HubError(f"{self.dest} is not complete after loading: {left[0].name} is missing; run again.")

    def merge(self) -> None:
        """Move the loaded files into the existing folder, the manifest last."""
        for name in sorted(_hub.sizes_below(self.partial), key=lambda one: one == _hub.MANIFEST_NAME):
            target = os.path.join(self.dest, name)
            os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
            os.replace(os.path.join(self.partial, name), target)
        for base, _folders, _names in os.walk(self.partial, topdown=False):
            os.rmdir(base)

    def result(self, manifest: _hub.Manifest, files: tuple, loaded_bytes: int) -> dict:
        return {
            "changed": bool(self.actions),
            "path": self.dest,
            "commit": manifest.commit,
            "total_bytes": sum(one.size_bytes for one in manifest.files),
            "loaded_bytes": loaded_bytes,
            "files": [one.name for one in files],
            "actions": self.actions,
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "repo": {"type": "str", "required": True},
            "revision": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "include": {"type": "list", "elements": "str", "default": ["*"]},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "workers": {"type": "int", "default": 4},
            "tries": {"type": "int", "default": 5},
            "progress_file": {"type": "path"},
            **HUB_ARGUMENTS,
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**Download(module.params, module.check_mode).run())
    except _hub.HubError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
