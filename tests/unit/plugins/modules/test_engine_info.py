# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""engine_info as a task runs it."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.modules import engine_info
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module

SOURCE = """
parser.add_argument("--tp-size", "--tensor-parallel-size", type=int)
parser.add_argument("--enable-metrics", action="store_true")
parser.add_argument("--enable-dp-attention", action=DeprecatedStoreTrueAction)
"""


@pytest.fixture
def venv(tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "sglang" / "srt").mkdir(parents=True)
    (site / "sglang" / "srt" / "server_args.py").write_text(SOURCE)
    (site / "sglang-0.5.23.dist-info").mkdir()
    (site / "sglang-0.5.23.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.5.23\n")
    return tmp_path


def test_an_engine(venv):
    result = run_module(engine_info, {"venv": str(venv), "_ansible_check_mode": True})
    assert (result["version"], result["torch_version"], result["changed"]) == ("0.5.23", None, False)
    assert result["accepted_arguments"] == ["enable-dp-attention", "enable-metrics", "tensor-parallel-size", "tp-size"]
    assert result["flag_arguments"] == ["enable-dp-attention", "enable-metrics"]
    assert result["deprecated_arguments"] == ["enable-dp-attention"]
    assert result["python_version"] == "3.11"
    assert result["problems"] == []


def test_everything_that_is_returned_is_documented(venv):
    result = run_module(engine_info, {"venv": str(venv)})
    documented = yaml.safe_load(engine_info.RETURN)
    assert set(result) - {"changed", "invocation", "warnings", "deprecations"} == set(documented)


def test_arguments_that_would_end_the_start(venv):
    result = run_module(engine_info, {"venv": str(venv), "arguments": {"tp": 8, "enable": True, "bogus": 1}})
    assert [(row["argument"], row["problem"]) for row in result["problems"]] == [
        ("enable", "ambiguous"),
        ("bogus", "unknown"),
    ]
    assert not result.get("failed")


def test_a_venv_without_an_engine(tmp_path):
    result = run_module(engine_info, {"venv": str(tmp_path)})
    assert result["failed"]
    assert "Expected SGLang in the virtual environment" in result["msg"]
