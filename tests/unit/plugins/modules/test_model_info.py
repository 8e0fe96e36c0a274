# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""model_info as a task runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import sys
import threading
from pathlib import Path

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
    geometry = documented["geometry"]["contains"]
    assert {name for name, one in geometry.items() if "returned" not in one} <= set(result["geometry"]) <= set(geometry)
    for name in ("weight_table", "created"):
        assert set(result[name][0]) == set(documented[name]["contains"])


def test_an_unknown_family_fails_by_name(folder):
    unknown = dict(CONFIG, architectures=["NobodysForCausalLM"], kv_lora_rank=512)
    (folder / "config.json").write_text(json.dumps(unknown))
    result = run_module(model_info, {"path": str(folder)})
    assert result["failed"]
    assert "NobodysForCausalLM" in result["msg"]
    result = run_module(model_info, {"path": str(folder), "require_geometry": False})
    assert (result["geometry"], result["weight_bytes"]) == (None, 8)
    assert "NobodysForCausalLM" in result["geometry_problem"]


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


# --- a hub --------------------------------------------------------------------


def load_hub():
    """The test double lies beside the molecule scenarios and is no package."""
    path = Path(__file__).resolve().parents[4] / "molecule" / "shared" / "hub" / "hub.py"
    spec = importlib.util.spec_from_file_location("gpufleet_test_hub_for_info", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


HUB = load_hub()


@pytest.fixture
def hub(folder, tmp_path):
    """A hub whose only model is that of the folder, at the tag v1, with weights of 4 MB."""
    place = tmp_path / "hub" / "org" / "model" / "v1"
    place.mkdir(parents=True)
    (place / "config.json").write_bytes((folder / "config.json").read_bytes())
    header = json.dumps(
        {"model.layers.0.w": {"dtype": "U8", "shape": [4000000], "data_offsets": [0, 4000000]}}
    ).encode()
    (place / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4000000))
    server = HUB.Hub(tmp_path / "hub", HUB.Behaviour())
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()


def ask(hub, **more):
    params = {"repo": "org/model", "revision": "v1", "endpoint": hub.address, "tries": 1, **more}
    return run_module(model_info, params)


def test_a_model_on_a_hub(hub):
    result = ask(hub)
    assert (result["weight_bytes"], result["complete"], result["changed"]) == (4000000, True, False)
    assert (result["source"], len(result["commit"])) == ("hub " + hub.address, 40)
    shards = [text for path, text, _token in hub.behaviour.requests if path.startswith("/cdn/")]
    assert shards == ["bytes=0-131071"]


def test_the_folder_wins_where_it_is(hub, folder, tmp_path):
    assert ask(hub, path=str(folder))["source"] == "model folder"
    assert hub.behaviour.requests == []
    assert ask(hub, path=str(tmp_path / "absent"))["source"] == "hub " + hub.address


def test_a_token_goes_to_the_endpoint_and_not_to_where_it_redirects(hub, tmp_path):
    hub.behaviour.token = "secret"
    hub.behaviour.cdn = hub.address.replace("127.0.0.1", "localhost")
    (tmp_path / "token").write_text("secret\n")
    assert "gated" in ask(hub)["msg"]
    assert ask(hub, token_file=str(tmp_path / "token"))["weight_bytes"] == 4000000
    assert {token for path, _range, token in hub.behaviour.requests if path.startswith("/cdn/")} == {None}
    assert "token file" in ask(hub, token_file=str(tmp_path / "none"))["msg"]


def test_what_the_hub_does_not_have(hub):
    assert "has no model org/other" in ask(hub, repo="org/other")["msg"]
    assert "has no revision v2" in ask(hub, revision="v2")["msg"]
    assert "check the network" in ask(hub, endpoint="http://127.0.0.1:1")["msg"]


def test_a_hub_without_ranges(hub):
    hub.behaviour.ranges = False
    assert ask(hub)["weight_bytes"] == 4000000


def test_a_fleet_asks_once_for_a_model(hub, tmp_path):
    """Other overrides are another question."""
    cache = str(tmp_path / "cache")
    os.mkdir(cache)
    first = ask(hub, cache_dir=cache)
    asked = len(hub.behaviour.requests)
    assert asked > 0
    assert ask(hub, cache_dir=cache) == first
    assert len(hub.behaviour.requests) == asked
    ask(hub, cache_dir=cache, config_overrides={"head_dim": 128})
    assert len(hub.behaviour.requests) == 2 * asked
    ask(hub)
    assert len(hub.behaviour.requests) == 3 * asked


def test_the_collections_own_folder_is_not_for_others(hub, tmp_path):
    ask(hub, cache_dir=str(tmp_path))
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("gpufleet-hub-")]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert len(kept) == 2  # answer and lock


def test_a_refusal_is_an_answer_too(hub, tmp_path):
    said = ask(hub, repo="org/other", cache_dir=str(tmp_path))["msg"]
    asked = len(hub.behaviour.requests)
    assert ask(hub, repo="org/other", cache_dir=str(tmp_path))["msg"] == said
    assert len(hub.behaviour.requests) == asked


def test_nothing_to_read():
    assert "one of the following is required: path, repo" in run_module(model_info, {})["msg"]
