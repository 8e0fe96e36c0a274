# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real virtual environment and a real pip, with a wheelhouse of two empty packages called sglang and torch."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _venv
from ansible_collections.gpufleet.sglang.plugins.modules import engine_venv

VERSION = "0.5.23"
SGLANG = {"sglang/__init__.py": f"__version__ = '{VERSION}'\n", "sglang/srt/server_args.py": ""}
TORCH = {"torch/__init__.py": "from . import version\n__version__ = '2.14.1'\n", "torch/version.py": "cuda = None\n"}


class Ended(Exception):
    """What fail_json does to a module: it ends."""


class Module:
    """As much of AnsibleModule as the module uses."""

    def __init__(self, params, check_mode=False):
        self.params = params
        self.check_mode = check_mode
        self.commands = []

    def run_command(self, command, environ_update=None, cwd=None, pass_fds=()):
        self.commands.append(command)
        environment = {**os.environ, **(environ_update or {})}
        done = subprocess.run(
            command, env=environment, cwd=cwd, pass_fds=pass_fds, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def get_bin_path(self, name, required=False):
        return None

    def fail_json(self, msg, **more):
        raise Ended(msg)


def write_wheel(folder, name, version, files, requires=()):
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(Path(folder) / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder, "sglang", VERSION, SGLANG, requires=["torch==2.14.1"])
    write_wheel(folder, "torch", "2.14.1", TORCH)
    write_wheel(folder, "extra", "1.0", {"extra.py": ""})
    return folder


@pytest.fixture
def wish(tmp_path, wheelhouse):
    return {
        "path": str(tmp_path / "engines" / VERSION),
        "version": VERSION,
        "python": sys.executable,
        "packages": [],
        "local_packages": [],
        "constraints_file": None,
        "index_url": None,
        "extra_index_urls": [],
        "wheelhouse": str(wheelhouse),
        "environment": {"PIP_CONFIG_FILE": "/dev/null"},
        "user": None,
        "home": str(tmp_path),
        "min_free_gib": 0.01,
        "pending": False,
        "progress_file": None,
    }


def run(wish, check_mode=False):
    module = Module(wish, check_mode)
    return engine_venv.Engine(module).run(), module.commands


def used_pip(commands):
    return any("install" in command for command in commands)


@pytest.mark.slow
def test_the_whole_life_of_an_environment(wish):
    """One test, because a real pip takes its seconds: bare, made, again, refused, more packages, broken."""
    planned, commands = run(wish, check_mode=True)
    assert planned["changed"] is True
    assert "sglang==0.5.23" in planned["actions"][1]
    assert not used_pip(commands)
    assert not os.path.exists(os.path.dirname(wish["path"]))

    made, _commands = run(wish)
    assert made["engine"] == {"sglang": VERSION, "torch": "2.14.1", "cuda": None}
    assert set(made["seconds"]) == {"create", "install", "import"}
    assert f"sglang=={VERSION}" in Path(made["freeze_file"]).read_text()
    assert sorted(os.listdir(os.path.dirname(wish["path"]))) == [f".{VERSION}.lock", VERSION]

    again, commands = run(wish)
    assert (again["changed"], again["actions"], again["seconds"]) == (False, [], {})
    assert again["engine"] == made["engine"]
    assert not used_pip(commands)

    # A package that does not exist is refused before anything is touched, and what was complete stays complete.
    with pytest.raises(Ended, match="does not hold nosuchpackage"):
        run({**wish, "packages": ["nosuchpackage"]})
    assert run(wish)[0]["changed"] is False

    more, _commands = run({**wish, "packages": ["extra"]})
    assert set(more["seconds"]) == {"install", "import"}
    wish["packages"] = ["extra"]
    assert run(wish)[0]["changed"] is False

    # An engine that cannot be imported is named, without pip, until it can be.
    marker = Path(wish["path"]) / _venv.MARKER_NAME
    complete = marker.read_text()
    marker.write_text(complete.replace(_venv.TESTED, _venv.INSTALLED))
    (torch,) = Path(wish["path"]).glob("lib/python3*/site-packages/torch/__init__.py")
    good = torch.read_text()
    torch.write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    module = Module(wish)
    with pytest.raises(Ended, match="libgomp1"):
        engine_venv.Engine(module).run()
    assert not used_pip(module.commands)
    torch.write_text(good)
    assert set(run(wish)[0]["seconds"]) == {"import"}
    assert run(wish)[0]["changed"] is False


def test_an_interrupted_installation_is_removed_and_made_anew(wish, monkeypatch):
    """pip was killed: the marker still says so, and nothing of what lies there is used."""
    Path(wish["path"]).mkdir(parents=True)
    marker = Path(wish["path"]) / _venv.MARKER_NAME
    marker.write_text(_venv.marker_text(_venv.UNFINISHED, {}))
    (Path(wish["path"]) / "leftover").write_text("x")
    monkeypatch.setattr(engine_venv.Engine, "create", lambda self: None)
    monkeypatch.setattr(engine_venv.Engine, "install", lambda self: None)
    monkeypatch.setattr(engine_venv.Engine, "test", lambda self: None)
    result, _commands = run(wish)
    assert "interrupted" in result["actions"][0]
    assert os.listdir(wish["path"]) == [_venv.MARKER_NAME]
    assert _venv.parse_marker(marker.read_text())["state"] == _venv.TESTED
    assert sorted(os.listdir(Path(wish["path"]).parent)) == [f".{VERSION}.lock", VERSION]


def test_an_installation_that_is_killed_leaves_the_unfinished_marker(wish, monkeypatch):
    def killed(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_venv.Engine, "create", lambda self: None)
    monkeypatch.setattr(engine_venv.Engine, "install", killed)
    with pytest.raises(KeyboardInterrupt):
        run(wish)
    marker = _venv.parse_marker((Path(wish["path"]) / _venv.MARKER_NAME).read_text())
    assert marker["state"] == _venv.UNFINISHED


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"wheelhouse": "/nowhere"}, "The wheelhouse /nowhere on the host holds no sglang-0.5.23 wheel"),
        ({"min_free_gib": 1e9}, "sglang_engine_min_free_gib"),
        ({"local_packages": ["/nowhere/x.whl"]}, "/nowhere/x.whl is not on the host"),
        ({"python": "/nowhere/python"}, "sglang_engine_python is /nowhere/python"),
    ],
)
@pytest.mark.parametrize("check_mode", [True, False])
def test_what_is_missing_is_said_before_anything_is_made(wish, change, match, check_mode):
    with pytest.raises(Ended, match=match):
        run({**wish, **change}, check_mode)
    assert not os.path.exists(wish["path"])


def test_an_old_c_library_is_refused(wish, monkeypatch):
    monkeypatch.setattr(engine_venv, "glibc_text", lambda: "glibc 2.31")
    with pytest.raises(Ended, match=r"needs glibc 2.34 or newer and the host has glibc 2.31"):
        run(wish)


def test_what_comes_with_outstanding_packages_is_no_failure_in_check_mode(wish):
    wish.update({"python": "/nowhere/python", "wheelhouse": "/nowhere", "pending": True})
    result, _commands = run(wish, check_mode=True)
    assert "a Python to come" in result["actions"][0]
    with pytest.raises(Ended):
        run(wish)


def test_a_folder_that_is_no_environment_is_not_touched(wish):
    Path(wish["path"]).mkdir(parents=True)
    (Path(wish["path"]) / "thesis.txt").write_text("mine")
    with pytest.raises(Ended, match="is no virtual environment"):
        run(wish)
    assert os.listdir(wish["path"]) == ["thesis.txt"]


def test_an_environment_in_use_is_not_removed(wish, monkeypatch):
    Path(wish["path"]).mkdir(parents=True)
    (Path(wish["path"]) / _venv.MARKER_NAME).write_text('{"state": "unfinished"}')
    monkeypatch.setattr(
        engine_venv, "command_lines", lambda: {77: wish["path"] + "/bin/python -m sglang.launch_server"}
    )
    with pytest.raises(Ended, match="process 77 runs from it"):
        run(wish)


def test_two_runs_do_not_install_at_once(wish):
    import fcntl

    folder = Path(wish["path"]).parent
    folder.mkdir(parents=True)
    with open(folder / f".{VERSION}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Ended, match="Another run is installing"):
            run(wish)


def test_a_digest_follows_the_content_and_not_the_date(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("1")
    before = engine_venv.digest_of(str(source))
    os.utime(source / "a.py", (1, 1))
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "a.pyc").write_text("x")
    assert engine_venv.digest_of(str(source)) == before
    (source / "a.py").write_text("2")
    assert engine_venv.digest_of(str(source)) != before
    assert engine_venv.digest_of(str(tmp_path / "none")) == ""
