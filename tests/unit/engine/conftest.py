# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models, wheels and boards for the tests of the played engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import played_server  # noqa: E402

KINDS = {
    "gqa-small": ("--kind", "gqa-small"),
    "qwen3-next": ("--kind", "qwen3-next", "--layers", "8", "--experts", "64"),
    "gpt-oss": ("--kind", "gpt-oss"),
    "draft": ("--kind", "draft"),
    "reference": ("--kind", "kimi-k2", "--experts", "400"),
}


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders of models, made when the first test asks for any."""
    folder = tmp_path_factory.mktemp("models")

    class Models(dict):
        def __missing__(self, kind):
            played_server.run("make_model.py", folder / kind, *KINDS[kind])
            self[kind] = folder / kind
            return self[kind]

    return Models()


@pytest.fixture(scope="session")
def sites(tmp_path_factory):
    """Where wheels of any version are unpacked: sites(version)."""
    folder = tmp_path_factory.mktemp("sites")
    played_server.Server.SITES = folder
    return lambda version: played_server.site(folder, version)


@pytest.fixture(scope="session")
def world(sites, tmp_path_factory):
    """world(boards, **more): the environment that names a machine's files; each call is a machine of its own."""

    def make(boards, **more):
        folder = tmp_path_factory.mktemp("world")
        listed = [{"index": place} for place in range(boards)] if isinstance(boards, int) else boards
        (folder / "boards.json").write_text(json.dumps({"driver": "580.95.05", "boards": listed, **more}))
        (folder / "run").mkdir()
        return {
            "PLAYED_BOARDS": str(folder / "boards.json"), "PLAYED_RUN": str(folder / "run"),
            "PLAYED_MODEL": str(folder / "no-model.json"), "PLAYED_FAULTS_FILE": str(folder / "faults.json"),
        }

    return make
