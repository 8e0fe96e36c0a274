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
parser.add_argument("--enable-dp-attention", action=DeprecatedStoreTrueAction, new_flag="--attn-dp-size")
parser.add_argument("--fused", action=argparse.BooleanOptionalAction)
parser.add_argument("--backend", choices=["triton", "fa3"])
parser.add_argument("--api-key", type=str)
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
    assert result["accepted_arguments"] == [
        "api-key",
        "backend",
        "enable-dp-attention",
        "enable-metrics",
        "fused",
        "no-fused",
        "tensor-parallel-size",
        "tp-size",
    ]
    assert result["flag_arguments"] == ["enable-dp-attention", "enable-metrics", "fused", "no-fused"]
    assert result["negatable_arguments"] == ["fused"]
    assert result["deprecated_arguments"] == ["enable-dp-attention"]
    assert result["python_version"] == "3.11"
    assert (result["problems"], result["notes"], result["arguments"]) == ([], [], {})
    assert (result["plugins"], result["reads_config_file"], result["stops_by_sigkill"]) == ([], True, False)


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


def test_names_become_whole_and_values_are_checked(venv):
    arguments = {"--tensor_parallel": 8, "enable_m": "yes", "back": "fa4", "fused": False, "enable-dp-attention": True}
    result = run_module(engine_info, {"venv": str(venv), "arguments": arguments})
    assert list(result["arguments"].items()) == [
        ("tp-size", 8),
        ("enable-metrics", "yes"),
        ("backend", "fa4"),
        ("fused", False),
        ("enable-dp-attention", True),
    ]
    assert [(row["argument"], row["problem"], row["suggestions"]) for row in result["problems"]] == [
        ("enable-m", "value", []),
        ("back", "value", ["fa3"]),
    ]
    assert [note.split(": ")[1] for note in result["notes"]] == ["null leaves it out.", "use --attn-dp-size."]


def test_a_removed_argument_is_judged_by_the_version(venv):
    result = run_module(engine_info, {"venv": str(venv), "arguments": {"torchao-config": "int8wo"}})
    assert [row["problem"] for row in result["problems"]] == ["removed"]


def test_a_plug_in_is_named(venv):
    site = venv / "lib" / "python3.11" / "site-packages"
    (site / "acme-1.0.dist-info").mkdir()
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text("[sglang.srt.plugins]\nacme = acme:register\n")
    (site / "acme.py").write_text("parser.add_argument('--acme')\n")
    result = run_module(engine_info, {"venv": str(venv), "arguments": {"acme": 1, "acmee": 1}})
    assert result["plugins"] == ["acme"]
    assert [row["argument"] for row in result["problems"]] == ["acmee"]
    assert "acme" in result["notes"][0]


def test_no_key_is_returned(venv):
    arguments = {"api_key": "sk-CANARY-0123456789", "enable-metrics": "x", "tp": 1}
    result = run_module(engine_info, {"venv": str(venv), "arguments": arguments})
    assert "CANARY" not in str(result)
    assert result["arguments"]["tp-size"] == 1


def test_a_venv_without_an_engine(tmp_path):
    result = run_module(engine_info, {"venv": str(tmp_path)})
    assert result["failed"]
    assert "Expected SGLang in the virtual environment" in result["msg"]
