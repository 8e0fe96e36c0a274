# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs ansible-test sanity, without ignores, with the ansible-core of the interpreter that runs this script.

    .venv/bin/python tools/sanity.py [ansible-test arguments]

ansible-test works only in a real copy below ansible_collections/, keeps its environments in the home folder, and
fetches the script that starts pip from a host of its own. Here the copy and that home folder are below .build/, and
the script is one of ours that lends the pip of the virtual environment.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import tree

BOOTSTRAP = '''\
"""Lends an empty environment the pip of the environment that runs ansible-test."""
import pathlib
import sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "lent_pip.pth").write_text({folder!r} + "\\n")
'''


SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
OLDEST_HOST_PYTHON = "3.9"


def core_version() -> str:
    """Return MAJOR.MINOR of this interpreter's ansible-core."""
    from ansible.release import __version__

    return ".".join(__version__.split(".")[:2])


def bootstrap_names() -> set[str]:
    """Return the names under which this ansible-test looks for its pip script in its cache."""
    from ansible_test._internal import python_requirements
    from ansible_test._internal.host_configs import NativePythonConfig

    version = "%d.%d" % sys.version_info[:2]
    packages = python_requirements.get_venv_packages(NativePythonConfig(version=version, path=sys.executable))
    return {"get_pip_%s.py" % packages["pip"].replace(".", "_")}


def pip_settings() -> dict[str, str]:
    """Return the user's own pip settings: ansible-test passes neither the environment nor the home folder on."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    settings = {}
    for line in listing.splitlines():
        name, _separator, value = line.partition("=")
        scope, _dot, key = name.strip().rpartition(".")
        if scope in ("global", "install", ":env:") and key.strip("."):
            settings[key.strip(".")] = value.strip().strip("'").replace("%", "%%")
    settings.setdefault("cache-dir", str(Path.home() / ".cache" / "pip"))
    settings["quiet"] = "2"
    return settings


def lend_pip(folder: Path) -> Path:
    """Copy this environment's pip, alone, to a folder that others can put on their path; return the folder."""
    import pip

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Path(pip.__file__).parent, folder / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def prepare_home(home: Path) -> None:
    """Make the home folder that ansible-test sees."""
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for name in bootstrap_names():
        (cache / name).write_text(BOOTSTRAP.format(folder=str(lend_pip(home / "pip"))))
    settings = configparser.ConfigParser()
    settings["global"] = pip_settings()
    (home / ".config" / "pip").mkdir(parents=True, exist_ok=True)
    with (home / ".config" / "pip" / "pip.conf").open("w") as stream:
        settings.write(stream)


def real_path(*more: Path) -> str:
    """Return a PATH on which this interpreter and the one behind it come first, and no shim of a version manager."""
    real = Path(sys.executable).resolve().parent
    return os.pathsep.join([str(Path(sys.executable).parent), str(real), *map(str, more), *SYSTEM_FOLDERS])


def oldest_host_python() -> Path | None:
    """Return a Python of the oldest version that hosts may have, if this machine has one that really runs."""
    name = f"python{OLDEST_HOST_PYTHON}"
    folders = [Path(folder) for folder in SYSTEM_FOLDERS]
    folders += sorted(Path.home().glob(f".pyenv/versions/{OLDEST_HOST_PYTHON}.*/bin"))
    for folder in folders:
        if (folder / name).exists() and subprocess.call([str(folder / name), "-c", "import venv"]) == 0:
            return folder / name
    return None


class Sanity:
    """One ansible-test in one copy of the collection."""

    def __init__(self, version: str) -> None:
        home = tree.BUILD / "sanity" / version / "home"
        prepare_home(home)
        self.version = version
        self.place = tree.copy(tree.BUILD / "sanity" / version)
        # A repository of its own: in the checkout's, everything below .build/ is ignored, and ansible-test asks git.
        subprocess.run(["git", "init", "-q", "."], cwd=self.place, check=True)
        self.environment = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}
        for name in ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "ANSIBLE_HOME", "PYTHONPATH"):
            self.environment.pop(name, None)

    def run(self, python: str, path: str, *arguments: str) -> bool:
        """Run the tests that concern this Python; say what came out, and how long it took."""
        began = time.monotonic()
        command = [str(Path(sys.executable).parent / "ansible-test"), "sanity", "--python", python, "--color", "no"]
        environment = {**self.environment, "PATH": path}
        status = subprocess.call([*command, *arguments], cwd=self.place, env=environment, stdin=subprocess.DEVNULL)
        outcome = "passed" if status == 0 else "failed"
        seconds = time.monotonic() - began
        print(f"sanity: ansible-core {self.version}, Python {python}: {outcome} after {seconds:.0f} s", flush=True)
        return status == 0


def main(arguments: list[str]) -> int:
    sanity = Sanity(core_version())
    good = sanity.run("%d.%d" % sys.version_info[:2], real_path(), *arguments)
    main_environment = Path(sys.prefix).name == ".venv"
    if main_environment and not arguments:
        old = oldest_host_python()
        if old is None:
            print(f"sanity: no Python {OLDEST_HOST_PYTHON} here: what hosts run is not compiled and imported with it")
        else:
            only = ("--test", "compile", "--test", "import")
            good = sanity.run(OLDEST_HOST_PYTHON, real_path(old.parent), *only) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
