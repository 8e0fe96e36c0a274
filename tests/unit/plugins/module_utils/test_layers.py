# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers of arguments and of the environment: who wins, what is removed, and where each value comes from."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _layers


def layers(*values):
    return [{"origin": origin, "values": one} for origin, one in zip(("all", "group", "host"), values)]


@pytest.mark.parametrize(
    ("values", "merged", "origins"),
    [
        (({}, None, {}), {}, {}),
        (
            ({"tp": 4, "dtype": "auto"}, {}, {"tensor_parallel_size": 8}),
            {"tp-size": 8, "dtype": "auto"},
            {"tp-size": "host", "dtype": "all"},
        ),
        # A value of null removes the name, wherever it stood, and does not hinder a later layer.
        (({"--enable_metrics": True}, {"enable-metrics": None}, {}), {}, {}),
        (({"x": 1, "y": 2}, {"x": None}, {"x": 3}), {"y": 2, "x": 3}, {"y": "all", "x": "host"}),
        (({"x": None}, {}, {}), {}, {}),
        # False, an empty list and an empty text are values.
        (
            ({"x": True, "y": [1], "z": "a"}, {"x": False, "y": [], "z": ""}),
            {"x": False, "y": [], "z": ""},
            {"x": "group", "y": "group", "z": "group"},
        ),
        # Dictionaries are values too: the later one counts, nothing is mixed.
        (({"x": {"a": 1}}, {"x": {"b": 2}}), {"x": {"b": 2}}, {"x": "group"}),
    ],
)
def test_arguments(values, merged, origins):
    result = _layers.merged_layers(layers(*values), "arguments")
    assert result == {"merged": merged, "origins": origins}
    assert list(result["merged"]) == list(merged) == list(result["origins"])


def test_variables_of_the_environment_have_one_spelling():
    result = _layers.merged_layers(layers({"A_B": "1", "a_b": "2"}, {"A-B": "3"}, {"A_B": None}), "environment")
    assert result == {"merged": {"a_b": "2", "A-B": "3"}, "origins": {"a_b": "all", "A-B": "group"}}


def test_what_goes_in_is_not_changed():
    first, second = {"tp": 4, "x": 1}, {"tp_size": 8, "x": None}
    _layers.merged_layers(layers(first, second), "arguments")
    assert (first, second) == ({"tp": 4, "x": 1}, {"tp_size": 8, "x": None})


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (({}, {"tp": 4, "tp_size": None}), "arguments", "group, found 'tp' and 'tp_size', which are both tp-size"),
        (({"enable-metrics": True, "--enable_metrics": True},), "arguments", "once in all, found"),
        ((["--x"],), "arguments", "Expected a dictionary in all, found list"),
        (({},), "labels", "one of arguments, environment as the kind of layers, found 'labels'"),
        (({"-": 1},), "arguments", "Expected the name of a server argument"),
    ],
)
def test_what_cannot_be_merged_is_refused_in_one_sentence(values, kind, expected):
    with pytest.raises(ValueError, match="^Expected .*") as caught:
        _layers.merged_layers(layers(*values), kind)
    assert expected in str(caught.value)
