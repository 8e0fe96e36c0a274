"""What tests of units do on a host."""

from __future__ import annotations

import base64
from pathlib import Path

ROLE = Path(__file__).resolve().parents[3] / "roles" / "sglang_server"
FOLDER = "/opt/gpufleet-unit-test"


def run(host, command, *words):
    """Run a command as root."""
    with host.sudo():
        return host.run(command, *words)


def put(host, path, text, mode="0644"):
    """Write a file."""
    content = base64.b64encode(text.encode()).decode()
    command = "mkdir -p $(dirname %s) && echo %s | base64 -d >%s && chmod %s %s"
    done = run(host, command, path, content, path, mode, path)
    assert done.rc == 0, done.stderr
