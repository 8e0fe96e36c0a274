from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _keys

GEOMETRY = {"attention": "mha", "layers": 30}


def keys(arguments=None, environment=None, version="0.5.23"):
    return _keys.keys(arguments or {}, environment or {}, GEOMETRY, 100, version)


def changed(left, right):
    return {quantity for quantity in _keys.QUANTITIES if left[quantity] != right[quantity]}


@pytest.mark.parametrize(
    ("arguments", "quantities"),
    [
        ({"port": 30001}, set()),
        ({"served-model-name": "x"}, set()),
        ({"log-level": "debug"}, set()),
        ({"mem-fraction-static": 0.9}, set()),
        ({"max-total-tokens": 1000}, set()),
        ({"kv-cache-dtype": "fp8_e4m3"}, {"cell", "activation"}),
        ({"chunked-prefill-size": 4096}, {"activation"}),
        ({"tp-size": 8}, {"weights", "cell", "activation"}),
        ({"an-argument-of-tomorrow": 1}, {"weights", "cell", "activation"}),
    ],
)
def test_an_argument_changes_the_keys_of_what_it_matters_to(arguments, quantities):
    assert changed(keys(), keys(arguments)) == quantities


def test_the_allocator_matters_to_activation_alone():
    assert changed(keys(), keys(environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})) == {"activation"}


def test_the_settings_of_the_allocator_count_and_not_the_name_of_their_variable():
    one = keys(environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128"})
    assert one == keys(environment={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128, expandable_segments:True"})
    assert changed(one, keys(environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})) == {"activation"}
    assert keys() == keys(environment={"PYTORCH_ALLOC_CONF": ""})


def test_other_environment_matters_to_nothing():
    assert changed(keys(), keys(environment={"NCCL_DEBUG": "INFO"})) == set()


def test_a_patch_release_keeps_activation_but_not_weights():
    assert changed(keys(version="0.5.22"), keys(version="0.5.22.post1")) == {"weights", "cell"}


def test_spelling_is_one():
    assert keys({"tp_size": 8}) == keys({"tensor-parallel-size": "8"})


def test_numbers_and_booleans_are_the_same_in_text():
    assert _keys.digest({"a": 5, "b": True, "c": [0.5]}) == _keys.digest({"a": "5", "b": "True", "c": ["0.5"]})


def test_different_requests_differ():
    assert _keys.request_hash({"target_tokens": 1}) != _keys.request_hash({"target_tokens": 2})


def test_config_hash_sees_argument_environment_and_version():
    base = _keys.config_hash({"tp-size": 8}, {"A": "1"}, "0.5.23")
    assert base == _keys.config_hash({"tp_size": 8}, {"A": "1"}, "0.5.23")
    assert base != _keys.config_hash({"tp-size": 4}, {"A": "1"}, "0.5.23")
    assert base != _keys.config_hash({"tp-size": 8}, {"A": "2"}, "0.5.23")
    assert base != _keys.config_hash({"tp-size": 8}, {"A": "1"}, "0.5.22")
