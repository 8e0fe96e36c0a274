# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""_hub_headers with a connection that is played; against a hub on 127.0.0.1 in modules/test_model_info.py."""

from __future__ import annotations

import io
import json
import struct
from urllib.error import HTTPError

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _hub_headers, _model_read
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import HubError
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_fetch import Source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def shard(tensors=1, bytes_each=8):
    header = {
        f"model.layers.0.w{number}": {
            "dtype": "U8",
            "shape": [bytes_each],
            "data_offsets": [number * bytes_each, (number + 1) * bytes_each],
        }
        for number in range(tensors)
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(tensors * bytes_each)


class Response(io.BytesIO):
    """What a hub answers, in pieces of at most 1,000 bytes."""

    def read(self, size=-1):
        return super().read(size if size < 0 else min(size, 1000))

    def getcode(self):
        return 206


class Hub:
    """C(files): name -> content. Counts the bytes that a range gave out, per file."""

    def __init__(self, files, ranges=True, breaks=0):
        self.files = files
        self.ranges = ranges
        self.breaks = breaks
        self.ranges_asked = []
        self.sizes = {}

    def open(self, url, headers):
        if "/api/models/" in url:
            siblings = [
                {"rfilename": name, "size": self.sizes.get(name, len(text))} for name, text in self.files.items()
            ]
            return Whole(json.dumps({"sha": COMMIT, "siblings": siblings}).encode())
        name = url.partition(f"/resolve/{COMMIT}/")[2]
        content = self.files[name]
        if self.breaks:
            self.breaks -= 1
            return Response(content[:5])
        self.ranges_asked.append((name, headers.get("Range")))
        if self.ranges:
            content = content[: int(headers["Range"].partition("-")[2]) + 1]
        return Response(content)


class Whole(io.BytesIO):
    pass


def read(hub, **more):
    source = _hub_headers.Hub(Source("https://hub.test", "org/model", "main"), hub.open, lambda seconds: None, tries=3)
    return _model_read.read_model(source, "org/model on https://hub.test", **more)


def files(**more):
    base = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": shard()}
    return {**base, **{name.replace("__", "."): text for name, text in more.items()}}


def test_a_model_without_its_weights():
    hub = Hub(files())
    result = read(hub)
    assert (result["weight_bytes"], result["complete"], result["geometry"]["layers"]) == (8, True, 2)
    assert (result["source"], result["commit"]) == ("hub https://hub.test", COMMIT)


def test_only_the_beginning_of_a_shard_is_asked_for():
    weights = 10_000_000
    hub = Hub(files(model__safetensors=shard(1, weights)))
    assert read(hub)["weight_bytes"] == weights
    assert ("model.safetensors", f"bytes=0-{_hub_headers.FIRST_BYTES - 1}") in hub.ranges_asked


def test_a_long_header_takes_a_second_request():
    hub = Hub(files(model__safetensors=shard(5000)))
    assert read(hub)["weight_bytes"] == 40000
    asked = [text for name, text in hub.ranges_asked if name == "model.safetensors"]
    length = struct.unpack("<Q", shard(5000)[:8])[0]
    assert length > _hub_headers.FIRST_BYTES
    assert asked == [f"bytes=0-{_hub_headers.FIRST_BYTES - 1}", f"bytes=0-{8 + length - 1}"]


def test_a_hub_without_ranges_is_closed_behind_the_header():
    assert read(Hub(files(), ranges=False))["weight_bytes"] == 8


def test_a_connection_that_breaks_is_taken_up_again():
    assert read(Hub(files(), breaks=2))["weight_bytes"] == 8
    with pytest.raises(HubError, match="after 3 tries"):
        read(Hub(files(), breaks=100))


def test_shards_by_the_index():
    index = {"metadata": {}, "weight_map": {"model.layers.0.w0": "a.safetensors", "x": "b.safetensors"}}
    hub = Hub(
        {
            "config.json": json.dumps(CONFIG).encode(),
            "model.safetensors.index.json": json.dumps(index).encode(),
            "a.safetensors": shard(),
        }
    )
    result = read(hub)
    assert (result["complete"], result["missing_files"], result["weight_bytes"]) == (False, ["b.safetensors"], None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (struct.pack("<Q", 2**63) + b"{}", "more than safetensors allows"),
        (shard()[:-1], "bytes where its header implies"),
        (b"", "only 0 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
)
def test_hostile_shards_end_in_one_sentence(content, said):
    result = read(Hub(files(model__safetensors=content)))
    assert not result["complete"]
    assert said in result["problems"][0]
    assert "model.safetensors" in result["problems"][0]


def test_a_size_that_the_hub_lists_wrongly_is_no_weight():
    hub = Hub(files())
    hub.sizes["model.safetensors"] = 10**9
    with pytest.raises(HubError, match=r"Expected model\.safetensors from .*sglang_model_endpoint\.$"):
        read(hub)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"model-q4.gguf": b"x"}, "GGUF files only"),
        ({"adapter_config.json": b"{}"}, "an adapter"),
        ({"README.md": b"x"}, "none: check the path or the name of the model"),
    ],
)
def test_a_repository_without_a_model_is_refused_with_the_reason(names, said):
    with pytest.raises(ValueError, match=f"^Expected config.json in org/model on https://hub.test, found {said}"):
        read(Hub(names))


def test_a_model_that_is_not_there():
    def refuse(url, headers):
        raise HTTPError(url, 404, "no", {"X-Error-Code": "RepoNotFound"}, None)

    hub = Hub({})
    hub.open = refuse
    with pytest.raises(HubError, match="has no model org/model"):
        read(hub)
