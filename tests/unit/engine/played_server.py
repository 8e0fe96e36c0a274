# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the played engine for tests: from a wheel of any version, with its files in a folder of the test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

PLAYED = Path(__file__).resolve().parents[3] / "molecule" / "shared" / "engine" / "played"


def run(script: str, *words: str, environment: dict | None = None) -> str:
    """The output of a script of the played engine, whatever its status."""
    done = subprocess.run(
        [sys.executable, str(PLAYED / script), *map(str, words)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def smi(world: dict, *words: str) -> str:
    return run("nvidia_smi.py", *words, environment=world)


def site(folder: Path, version: str) -> Path:
    """A folder to import sglang of this version from, as the wheel has it."""
    target = folder / version
    if not target.exists():
        run("build.py", folder / "wheels", version)
        (wheel,) = (folder / "wheels").glob(f"sglang-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    return target


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One start. ``world``: the environment that names the files; keywords: more of the environment."""

    SITES: Path

    def __init__(self, world: dict, version: str, model: Path, *arguments: str, **environment: str):
        self.world, self.port = world, free_port()
        self._log = Path(world["PLAYED_RUN"]).parent / f"log-{self.port}"
        self._arguments = ["--model-path", str(model), "--port", str(self.port), *arguments]
        self._environment = {
            **os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(site(self.SITES, version)),
            "PLAYED_SPEED": "1000", **world, **environment,
        }

    def __enter__(self):
        with self._log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sglang.launch_server", *self._arguments], stdout=stream,
                stderr=subprocess.STDOUT, env=self._environment,
            )
        return self

    def __exit__(self, *_error):
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
        self.returncode = self.process.wait()

    def text(self) -> str:
        return self._log.read_bytes().decode("utf-8", "replace")

    def lines(self) -> list[str]:
        return [part for line in self.text().split("\n") for part in re.split(r"\r|(?<=it/s\])(?=\[)", line)]

    def wait(self, wanted: str, seconds: float = 60.0) -> str:
        until = time.monotonic() + seconds
        while wanted not in self.text():
            assert time.monotonic() < until, f"{wanted!r} did not come:\n{self.text()[-3000:]}"
            assert self.process.poll() is None or wanted in self.text(), self.text()[-3000:]
            time.sleep(0.02)
        return self.text()

    def wait_ready(self) -> None:
        self.wait("The server is fired up and ready to roll!")

    def wait_end(self, seconds: float = 30.0) -> int:
        self.returncode = self.process.wait(seconds)
        return self.returncode

    def ask(self, path: str, data: dict | None = None, key: str | None = None, seconds: float = 60.0):
        """The answer, as JSON where it is; raises urllib's error for a status that is not 200."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=seconds) as response:
            text = response.read().decode()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def prompt(self, tokens: int, seed: int, answer: int = 2):
        """The answer to a prompt of its own of so many tokens; None when the server is gone."""
        ids = [(seed * 7919 + place * 31) % 100000 for place in range(tokens)]
        data = {"input_ids": ids, "sampling_params": {"max_new_tokens": answer, "ignore_eos": True}}
        try:
            return self.ask("/generate", data)
        except (urllib.error.URLError, OSError):
            return None
