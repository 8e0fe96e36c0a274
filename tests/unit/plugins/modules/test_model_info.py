# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""model_info as a task runs it."""

from __future__ import annotations

import json
import struct

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.modules import model_info
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return tmp_path


def test_a_model(folder):
    result = run_module(model_info, {"path": str(folder), "_ansible_check_mode": True})
    assert (result["weight_bytes"], result["complete"], result["changed"]) == (8, True, False)
    assert result["geometry"]["kv_heads"] == 3


def test_everything_that_is_returned_is_documented(folder):
    result = run_module(model_info, {"path": str(folder)})
    documented = yaml.safe_load(model_info.RETURN)
    assert set(result) - {"changed", "invocation", "warnings", "deprecations"} == set(documented)
    assert set(result["geometry"]) == set(documented["geometry"]["contains"])


def test_an_unknown_family_fails_by_name(folder):
    (folder / "config.json").write_text(json.dumps(dict(CONFIG, architectures=["GptOssForCausalLM"])))
    result = run_module(model_info, {"path": str(folder)})
    assert result["failed"]
    assert "GptOssForCausalLM" in result["msg"]
    result = run_module(model_info, {"path": str(folder), "require_geometry": False})
    assert (result["geometry"], result["weight_bytes"]) == (None, 8)
    assert "GptOssForCausalLM" in result["geometry_problem"]


def test_overrides(folder):
    result = run_module(model_info, {"path": str(folder), "config_overrides": {"head_dim": 128}})
    assert result["geometry"]["head_dim"] == 128


def test_an_incomplete_folder_is_no_failure(folder):
    (folder / "model.safetensors").write_bytes(b"")
    result = run_module(model_info, {"path": str(folder)})
    assert not result.get("failed")
    assert (result["complete"], result["missing_files"]) == (False, ["model.safetensors"])


def test_a_path_that_is_nothing(tmp_path):
    result = run_module(model_info, {"path": str(tmp_path / "absent")})
    assert "Expected a model folder" in result["msg"]
