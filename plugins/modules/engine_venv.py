# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_venv
short_description: Make one pinned SGLang engine in its own virtual environment
version_added: 0.1.0
author: ["gpufleet.sglang authors (@gpufleet)"]
description:
  - Makes the virtual environment O(path), installs exactly V(sglang==VERSION) with pip, checks the installed version
    and imports the engine as the service user.
  - A marker file in the environment is completed last. An installation that was interrupted is made anew and never
    used; an environment without a marker is never removed.
  - When the marker says that everything is as wanted, neither pip nor the engine is started.
options:
  path:
    description: Folder of the environment.
    type: path
    required: true
  version:
    description: The SGLang version, exactly.
    type: str
    required: true
  python:
    description: Path of the Python interpreter, or V(auto) for the newest one on the host that this version runs on.
    type: str
    default: auto
  packages:
    description: Further requirement specifications to install in the same call.
    type: list
    elements: str
    default: []
  local_packages:
    description: Wheels or source folders on the host to install in the same call. Their content counts, not their date.
    type: list
    elements: path
    default: []
  constraints_file:
    description: A pip constraints file on the host.
    type: path
  index_url:
    description:
      - The package index instead of pip's own.
      - Given to pip by its environment, so that credentials in it are not seen in the list of processes.
    type: str
  extra_index_urls:
    description: Further package indexes.
    type: list
    elements: str
    default: []
  wheelhouse:
    description: A folder of wheels on the host. When given, no index is asked.
    type: path
  environment:
    description: Further environment variables for pip, for example a proxy.
    type: dict
    default: {}
  user:
    description: The user that imports the engine in the import test. The current user when not given.
    type: str
  home:
    description: The home folder to give to the import test.
    type: path
    default: /tmp
  min_free_gib:
    description: GiB that must be free where the environment is made before pip starts.
    type: float
    default: 16
  pending:
    description:
      - Says that earlier tasks have changes outstanding in check mode, for example the packages that bring Python.
      - Then a missing interpreter or folder is reported as outstanding and not as a failure. Without meaning outside
        check mode.
    type: bool
    default: false
  progress_file:
    description:
      - A file in which the module notes how far it is. The action plugin of this module gives it and shows the
        progress.
    type: path
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
  - gpufleet.sglang.attributes.action
attributes:
  action:
    support: full
    details:
      - Prints what pip is doing. With C(async) it prints nothing.
  check_mode:
    support: full
    details:
      - Says what would be done. Python, glibc, the wheelhouse and the free space are checked all the same.
  diff_mode:
    support: none
    details:
      - The result lists RV(actions) instead; an environment has some fifty thousand files.
"""

EXAMPLES = r"""
- name: One engine, pinned
  gpufleet.sglang.engine_venv:
    path: /opt/sglang/engines/0.5.23
    version: 0.5.23
    user: sglang
    home: /var/lib/sglang
  become: true

- name: The same on a host without internet
  gpufleet.sglang.engine_venv:
    path: /opt/sglang/engines/0.5.23
    version: 0.5.23
    wheelhouse: /srv/wheels
  become: true
"""

RETURN = r"""
path:
  description: Folder of the environment.
  returned: success
  type: str
  sample: /opt/sglang/engines/0.5.23
actions:
  description: What was done, or would be done in check mode.
  returned: success
  type: list
  elements: str
  sample: ["create the environment with /usr/bin/python3.11 (3.11): it does not exist", "install sglang==0.5.23"]
python:
  description:
    - The interpreter that the environment was or would be made with; null when it comes with outstanding packages, and
      when nothing was made.
  returned: success
  type: dict
  sample: {"path": "/usr/bin/python3.11", "version": "3.11", "can_make_venv": true}
engine:
  description: Versions that the import test reported; null when it has not run.
  returned: success
  type: dict
  sample: {"sglang": "0.5.23", "torch": "2.14.1+cu130", "cuda": "13.0"}
seconds:
  description: Seconds per step that ran.
  returned: success
  type: dict
  sample: {"create": 3.1, "install": 182.0, "import": 6.4}
freeze_file:
  description: File with the exact versions of all packages, usable as a constraints file for the next host.
  returned: success
  type: str
  sample: /opt/sglang/engines/0.5.23/freeze.txt
"""

import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _venv
from ansible_collections.gpufleet.sglang.plugins.module_utils._note import Note, Watcher

GIB = 1024**3
PROBE = (
    "import json, sys, importlib.util as u; print(json.dumps({'version': list(sys.version_info[:2]), "
    "'venv': all(u.find_spec(m) for m in ('venv', 'ensurepip'))}))"
)


def read_text(path: str) -> str | None:
    """The file's text, or None where there is no such file."""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def bytes_below(folder: str) -> int:
    """Bytes on the disk below a folder, while others change it."""
    total = 0
    for base, _folders, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_blocks * 512
            except OSError:
                continue
    return total


def read_tail(path: str, limit_bytes: int = 200000) -> str:
    """The end of a log; '' where there is none."""
    try:
        with open(path, "rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(handle.tell() - limit_bytes, 0))
            return handle.read().decode(errors="replace")
    except OSError:
        return ""


def digest_of(path: str) -> str:
    """sha256 over names and contents below `path` (file or folder), build leftovers excluded; '' when absent."""
    if not os.path.exists(path):
        return ""
    digest = hashlib.sha256()
    names = [path]
    if os.path.isdir(path):
        names = [name for name in glob.glob(os.path.join(path, "**"), recursive=True) if os.path.isfile(name)]
    for name in sorted(name for name in names if "__pycache__" not in name):
        digest.update(os.path.relpath(name, path).encode())
        with open(name, "rb") as handle:
            for block in iter(lambda handle=handle: handle.read(1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()


def glibc_text() -> str | None:
    """The host's C library as os.confstr prints it; None where that name is unknown."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None


def command_lines() -> dict[int, str]:
    """Command lines of the host's processes by pid."""
    lines = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        text = None
        try:
            text = read_text(f"/proc/{pid}/cmdline")
        except OSError:
            continue
        if text:
            lines[int(pid)] = text.replace("\0", " ")
    return lines


class Engine:
    """Reads what is there, lets the pure part decide, and does it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.params = module.params
        self.path = self.params["path"].rstrip("/")
        self.version = self.params["version"]
        self.actions: list[str] = []
        self.seconds: dict[str, float] = {}
        self.report: dict | None = None
        self.python: _venv.Python | None = None
        self.note = Note(self.params["progress_file"])
        self.said = ("install", "")
        self.lock_handle: int | None = None
        self.old_marker: str | None = None

    # What is there

    def probe(self, path: str) -> _venv.Python | None:
        """Ask one interpreter for its version; None when it does not run."""
        code, out, _err = self.module.run_command([path, "-I", "-c", PROBE], environ_update={"LANG": "C"})
        if code != 0:
            return None
        answer = json.loads(out)
        return _venv.Python(path, tuple(answer["version"]), answer["venv"])

    def candidates(self) -> list[_venv.Python]:
        """The interpreters of the host, or the one that the user named."""
        if self.params["python"] != "auto":
            given = self.params["python"]
            paths = [given] if os.path.isabs(given) else [self.module.get_bin_path(given)]
        else:
            paths = [self.module.get_bin_path(name) for name in _venv.python_names(self.version)]
        found = {}
        for path in filter(None, paths):
            python = self.probe(path) if os.access(path, os.X_OK) else None
            if python is not None:
                found.setdefault(os.path.realpath(path), python)
        return list(found.values())

    def installed_version(self) -> str | None:
        """The SGLang version whose metadata lies in the environment."""
        folders = glob.glob(os.path.join(self.path, "lib", "python3*", "site-packages", "sglang-*.dist-info"))
        match = re.search(r"sglang-([^/]+)\.dist-info$", folders[0]) if len(folders) == 1 else None
        return match.group(1) if match else None

    def found(self) -> _venv.Found:
        if not os.path.isdir(self.path) or not os.listdir(self.path):
            return _venv.Found(exists=False)
        inner = os.path.join(self.path, "bin", "python")
        python = self.probe(inner) if os.access(inner, os.X_OK) else None
        return _venv.Found(
            exists=True,
            is_venv=os.path.exists(os.path.join(self.path, "pyvenv.cfg")),
            marker=_venv.parse_marker(read_text(os.path.join(self.path, _venv.MARKER_NAME))),
            python_version=python.version if python else None,
            installed_version=self.installed_version(),
        )

    def inputs(self) -> dict:
        constraints = read_text(self.params["constraints_file"]) if self.params["constraints_file"] else ""
        digests = {os.path.basename(path): digest_of(path) for path in self.params["local_packages"]}
        return _venv.wanted_inputs(self.version, self.params["packages"], constraints or "", digests)

    # What must hold before anything is done

    def check_host(self, task: _venv.Task) -> None:
        """Python, C library, wheelhouse and space; the first that is missing ends the module with its sentence."""
        pending = self.module.check_mode and self.params["pending"]
        problem = _venv.glibc_problem(self.version, _venv.parse_glibc(glibc_text()))
        if problem:
            self.module.fail_json(msg=problem)
        if task.action in ("create", "rebuild"):
            choice = _venv.choose_python(self.version, self.candidates(), self.params["python"])
            if choice.problem and not pending:
                self.module.fail_json(msg=choice.problem)
            self.python = choice.python
            self.check_space()
        if task.action == "rebuild":
            self.check_unused()
        if self.params["wheelhouse"] and not pending:
            self.check_wheelhouse(self.params["wheelhouse"])
        missing = [path for path in self.params["local_packages"] if not os.path.exists(path)]
        if missing and not pending:
            self.module.fail_json(
                msg=f"The package {missing[0]} is not on the host: check sglang_engine_extra_packages."
            )

    def check_unused(self) -> None:
        pid = _venv.in_use_by(self.path, command_lines())
        if pid is not None:
            self.module.fail_json(
                msg=f"The environment {self.path} must be made anew, but process {pid} runs from it: stop that service "
                "first, or set sglang_engine_path to a new folder."
            )

    def check_space(self) -> None:
        folder = self.path
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        stat = os.statvfs(folder)
        free = stat.f_bavail * stat.f_frsize / GIB
        if free < self.params["min_free_gib"]:
            self.module.fail_json(
                msg="Installing SGLang {} takes up to {:.0f} GiB (packages and their downloads) and {} has "
                "{:.1f} GiB free: free "
                "some, set sglang_engine_root to a larger disk, or lower sglang_engine_min_free_gib.".format(
                    self.version, self.params["min_free_gib"], folder, free
                )
            )

    def check_wheelhouse(self, folder: str) -> None:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        if not _venv.has_wheel(names, self.version):
            self.module.fail_json(
                msg=f"The wheelhouse {folder} on the host holds no sglang-{self.version} wheel "
                f"({len(names)} files seen): fill it with "
                f"'pip download sglang=={self.version} -d DIR' or correct sglang_engine_wheelhouse."
            )

    # Doing it

    def run(self) -> dict:
        try:
            self.lock()
            return self.do()
        finally:
            self.note.end()
            if self.lock_handle is not None:
                os.close(self.lock_handle)

    def do(self) -> dict:
        found = self.found()
        inputs = self.inputs()
        explicit = None
        if self.params["python"] != "auto" and found.exists:
            named = self.candidates()
            explicit = named[0].version if named else None
        task = _venv.decide(found, self.path, self.version, _venv.fingerprint(inputs), explicit)
        if task.action == "refuse":
            self.module.fail_json(msg=task.reason)
        if task.action == "nothing":
            return self.result(changed=False, marker=found.marker)
        if task.action != "test":
            self.check_host(task)
        self.announce(task)
        if not self.module.check_mode:
            self.apply(task, inputs)
        return self.result(changed=True, marker=None)

    def announce(self, task: _venv.Task) -> None:
        """Fill `actions`, which is the whole answer in check mode."""
        if task.action in ("create", "rebuild"):
            python = f"{self.python.path} ({_venv.dotted(self.python.version)})" if self.python else "a Python to come"
            verb = {"create": "create the environment", "rebuild": "remove the environment and create it anew"}[
                task.action
            ]
            self.actions.append(f"{verb} with {python}: {task.reason}")
        if task.action != "test":
            specs = [f"sglang=={self.version}"] + self.params["packages"]
            specs += [os.path.basename(path) for path in self.params["local_packages"]]
            source = " from {}".format(self.params["wheelhouse"]) if self.params["wheelhouse"] else ""
            why = "" if task.action in ("create", "rebuild") else ": " + task.reason
            self.actions.append("install {}{}{}".format(" ".join(specs), source, why))
        self.actions.append("import the engine as %s" % (self.params["user"] or "the current user"))

    def apply(self, task: _venv.Task, inputs: dict) -> None:
        os.umask(0o022)  # the service user must be able to read what root installs
        if task.action == "rebuild":
            self.remove()
        if task.action != "test":
            self.old_marker = read_text(os.path.join(self.path, _venv.MARKER_NAME))
            os.makedirs(self.path, mode=0o755, exist_ok=True)
            self.mark(_venv.UNFINISHED, inputs)
        if task.action in ("create", "rebuild"):
            self.timed("create", self.create)
        if task.action != "test":
            self.timed("install", self.install)
            self.mark(_venv.INSTALLED, inputs)
        self.timed("import", self.test)
        self.mark(_venv.TESTED, inputs, engine=self.report)

    def remove(self) -> None:
        """Away with it in one step: half an environment without its marker would look like one made by hand."""
        folder, name = os.path.split(self.path)
        old = tempfile.mkdtemp(prefix=f".removed-{name}-", dir=folder)
        os.rename(self.path, os.path.join(old, name))
        for left in glob.glob(os.path.join(glob.escape(folder), ".removed-*")):
            shutil.rmtree(left, ignore_errors=True)

    def lock(self) -> None:
        """One run at a time; a run whose connection broke goes on in the background."""
        folder, name = os.path.split(self.path)
        if self.module.check_mode and not os.path.isdir(folder):
            return
        os.makedirs(folder, mode=0o755, exist_ok=True)
        self.lock_handle = os.open(os.path.join(folder, f".{name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self.lock_handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.module.fail_json(msg=f"Another run is installing into {self.path}: wait for its end, then run again.")

    def timed(self, name: str, step) -> None:
        begin = time.monotonic()
        self.note.say(name)
        step()
        self.seconds[name] = round(time.monotonic() - begin, 1)

    def mark(self, state: str, inputs: dict, **more: object) -> None:
        self.write_marker(_venv.marker_text(state, inputs, **more))

    def write_marker(self, text: str) -> None:
        """In one step, so that a power cut leaves the old or the new one."""
        target = os.path.join(self.path, _venv.MARKER_NAME)
        with open(target + ".new", "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(target + ".new", 0o644)
        os.replace(target + ".new", target)

    def create(self) -> None:
        code, out, err = self.module.run_command(
            [self.python.path, "-m", "venv", self.path], environ_update={"LANG": "C"}
        )
        if code != 0:
            self.fail(f"{self.python.path} -m venv makes the environment {self.path}", out + err, _venv.PIP_SAYINGS)

    def install(self) -> None:
        # pip unpacks gigabytes in its temporary folder, and /tmp is often a small memory disk.
        work = tempfile.mkdtemp(prefix=".pip-", dir=os.path.dirname(self.path))
        try:
            self.pip(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def pip(self, work: str) -> None:
        pip = [os.path.join(self.path, "bin", "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        command = pip + ["install", "--progress-bar", "off", f"sglang=={self.version}"] + self.params["packages"]
        command += [self.own_copy(path, work) for path in self.params["local_packages"]]
        if self.params["constraints_file"]:
            command += ["--constraint", self.params["constraints_file"]]
        environment = self.pip_environment(work)
        # pip holds the lock too: should only this module be killed, nobody works beside a pip that lives on.
        with Watcher(lambda: self.look(work), every_seconds=4):
            code, out, err = self.module.run_command(
                command, environ_update=environment, cwd=work, pass_fds=[self.lock_handle]
            )
        if code != 0:
            if not _venv.has_begun_installing(out) and self.old_marker is not None:
                self.write_marker(self.old_marker)
            self.fail(f"pip installs sglang=={self.version} into {self.path}", out + "\n" + err, _venv.PIP_SAYINGS)
        if self.installed_version() != self.version:
            self.module.fail_json(
                msg=f"After pip came to its end SGLang {self.version} was expected in {self.path} and "
                f"{self.installed_version()} was found: check "
                "sglang_engine_extra_packages and sglang_engine_constraints_file."
            )
        code, out, _err = self.module.run_command(pip + ["list", "--format", "freeze"], environ_update={"LANG": "C"})
        with open(os.path.join(self.path, _venv.FREEZE_NAME), "w", encoding="utf-8") as handle:
            handle.write(out)

    def look(self, work: str) -> None:
        """Note what pip is doing, and how much lies in its temporary folder and in the environment."""
        self.said = _venv.pip_phase(read_tail(os.path.join(work, "pip.log"))) or self.said
        phase, detail = self.said
        written = (bytes_below(work) + bytes_below(self.path)) / GIB
        self.note.say(phase, f"{detail}, {written:.1f} GiB" if detail else f"{written:.1f} GiB")

    def own_copy(self, path: str, work: str) -> str:
        """A source folder is built from a copy, because a build leaves files in it that would change its digest."""
        if not os.path.isdir(path):
            return path
        return shutil.copytree(path, os.path.join(work, "source-" + os.path.basename(path)))

    def pip_environment(self, work: str) -> dict[str, str]:
        environment = {"LANG": "C", "TMPDIR": work, "PIP_ROOT_USER_ACTION": "ignore"}
        environment["PIP_LOG"] = os.path.join(work, "pip.log")
        if self.params["wheelhouse"]:
            environment.update({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.params["wheelhouse"]})
        if self.params["index_url"]:
            environment["PIP_INDEX_URL"] = self.params["index_url"]
        if self.params["extra_index_urls"]:
            environment["PIP_EXTRA_INDEX_URL"] = " ".join(self.params["extra_index_urls"])
        environment.update({key: str(value) for key, value in self.params["environment"].items()})
        return environment

    def test(self) -> None:
        """Import the engine as the user who will run it."""
        gpu = os.path.exists("/dev/nvidiactl")
        command = [os.path.join(self.path, "bin", "python"), "-c", _venv.import_script(gpu)]
        who = "the current user"
        if self.params["user"] and os.geteuid() == 0:
            who = self.params["user"]
            command = [self.module.get_bin_path("runuser", required=True), "-u", who, "--"] + command
        environment = {"LANG": "C", "HOME": self.params["home"], "PYTHONDONTWRITEBYTECODE": "1", "TQDM_DISABLE": "1"}
        code, out, err = self.module.run_command(command, environ_update=environment, cwd="/")
        self.report = _venv.read_report(out) if code == 0 else None
        if self.report is None:
            self.fail(f"The engine in {self.path} is imported by {who}", err or out, _venv.IMPORT_SAYINGS)
        if self.report["sglang"] != self.version:
            self.module.fail_json(
                msg="SGLang {} was expected to be imported from {} and {} was found: another copy is in the way, for "
                "example by PYTHONPATH.".format(self.version, self.path, self.report["sglang"])
            )

    def fail(self, expected: str, text: str, sayings: tuple) -> None:
        tail = "\n".join(text.splitlines()[-20:])
        self.module.fail_json(
            msg=_venv.failure_sentence(expected, text, sayings),
            output_tail=tail,
            actions=self.actions,
            seconds=self.seconds,
        )

    def result(self, changed: bool, marker: dict | None) -> dict:
        report = self.report or (marker or {}).get("engine")
        return {
            "changed": changed,
            "path": self.path,
            "actions": self.actions,
            "python": self.python.as_dict() if self.python else None,
            "engine": report,
            "seconds": self.seconds,
            "freeze_file": os.path.join(self.path, _venv.FREEZE_NAME),
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "python": {"type": "str", "default": "auto"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "local_packages": {"type": "list", "elements": "path", "default": []},
            "constraints_file": {"type": "path"},
            "index_url": {"type": "str", "no_log": True},
            "extra_index_urls": {"type": "list", "elements": "str", "default": [], "no_log": True},
            "wheelhouse": {"type": "path"},
            "environment": {"type": "dict", "default": {}},
            "user": {"type": "str"},
            "home": {"type": "path", "default": "/tmp"},
            "min_free_gib": {"type": "float", "default": 16},
            "pending": {"type": "bool", "default": False},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    module.exit_json(**Engine(module).run())


if __name__ == "__main__":
    main()
