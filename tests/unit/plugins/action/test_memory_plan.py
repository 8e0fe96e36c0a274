# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib
import re
from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.action.memory_plan import ActionModule, plan_of
from ansible_collections.gpufleet.sglang.plugins.module_utils import _budget_records as records
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import argument_spec
from ansible_collections.gpufleet.sglang.plugins.modules import memory_plan as documentation

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "budget"
REFERENCE = {
    "arguments": {"tp_size": 8},
    "geometry": json.loads((DATA / "kimi_k2.json").read_text()),
    "engine_version": "0.5.23",
    "free_before_load_gib": 94.97,
    "weights_gib": 75.0,
    "target_tokens": 200000,
}
# What the issue of this module promises to return.
RETURNED = (
    "feasible",
    "fraction",
    "fraction_low",
    "fraction_high",
    "cap_tokens",
    "predicted_tokens",
    "predicted_tokens_low",
    "predicted_headroom_gib",
    "cell_bytes",
    "reserve_gib",
    "rows",
    "levers",
    "explanation",
    "missing",
)


def reference(**changes):
    return dict(REFERENCE, **changes)


# ---------------------------------------------------------------------------
# The documentation and the options are one
# ---------------------------------------------------------------------------


def test_the_documentation_has_the_options_that_are_checked():
    options = yaml.safe_load(documentation.DOCUMENTATION)["options"]
    spec = argument_spec()
    assert set(options) == set(spec)
    for name, option in spec.items():
        for key in ("type", "elements", "choices", "default", "required"):
            assert options[name].get(key) == option.get(key), (name, key)


def test_the_documentation_names_all_that_is_returned():
    returned = yaml.safe_load(documentation.RETURN)
    answer = plan_of(reference(server={}))
    assert set(returned) == set(answer)
    assert set(RETURNED) <= set(returned)


def test_the_examples_are_right():
    for task in yaml.safe_load(documentation.EXAMPLES):
        args = task.get("gpufleet.sglang.memory_plan")
        if args:
            assert set(args) <= set(argument_spec())


def test_the_module_itself_says_where_it_runs():
    assert "on the controller" in pathlib.Path(documentation.__file__).read_text()


# ---------------------------------------------------------------------------
# The task
# ---------------------------------------------------------------------------


def action(args, check_mode=False):
    """The action as ansible-core builds it, with a connection that must not be used."""
    task = SimpleNamespace(
        args=args, async_val=0, check_mode=check_mode, action="gpufleet.sglang.memory_plan", diff=False
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return ActionModule(task, connection, SimpleNamespace(check_mode=check_mode), None, None, None)


@pytest.mark.parametrize("check_mode", [False, True])
def test_it_runs_without_a_connection_and_the_same_in_check_mode(check_mode):
    module = action(reference(), check_mode)
    assert module._requires_connection is False
    assert module._supports_check_mode is True
    result = module.run(task_vars={})
    assert result["changed"] is False
    assert not result.get("failed")
    assert result["feasible"] is True
    assert result["arguments"]["tp-size"] == 8
    json.dumps(result)


def test_what_does_not_fit_is_no_failure():
    result = action(reference(target_tokens=5000000)).run(task_vars={})
    assert not result.get("failed")
    assert result["feasible"] is False
    assert result["refusal"]


def test_nothing_at_all_is_no_failure_either():
    result = plan_of({})
    assert not result.get("failed")
    assert result["feasible"] is None
    assert result["missing"] == ["gpus", "weight_bytes", "geometry", "target_tokens"]


@pytest.mark.parametrize("spelling", ["tp-size", "tp_size", "--tp-size", "tensor-parallel-size", "tp"])
def test_arguments_in_any_spelling(spelling):
    assert plan_of(reference(arguments={spelling: 8}))["arguments"]["tp-size"] == 8


@pytest.mark.parametrize(
    ("option", "argument", "value"),
    [
        ("mem_fraction_static", "mem-fraction-static", 0.931),
        ("chunked_prefill_size", "chunked-prefill-size", 4096),
        ("context_tokens", "context_length", 100000),
        ("max_running_requests", "max_running_requests", 48),
    ],
)
def test_a_value_may_stand_in_the_option_or_in_the_arguments(option, argument, value):
    by_option = plan_of(reference(**{option: value}))
    by_argument = plan_of(reference(arguments={"tp-size": 8, argument: value}))
    twice = plan_of(reference(arguments={"tp-size": 8, argument: value}, **{option: str(value)}))
    auto = plan_of(reference(arguments={"tp-size": 8, argument: value}, **{option: "auto"}))
    assert by_option["arguments"] == by_argument["arguments"] == twice["arguments"] == auto["arguments"]
    other = plan_of(reference(arguments={"tp-size": 8, argument: value}, **{option: value * 0.5}))
    assert other["failed"]
    assert option in other["msg"]


@pytest.mark.parametrize("text", ["200000", 200000, 200000.0])
def test_numbers_that_a_template_turned_to_text_are_numbers(text):
    result = plan_of(reference(target_tokens=text, mem_fraction_static="0.94", measurements=[{"pool_tokens": "5"}]))
    assert result["cap_tokens"] == 200000
    assert result["fraction"] == 0.94


@pytest.mark.parametrize("value", ["auto", None])
@pytest.mark.parametrize(
    "option",
    [
        "mem_fraction_static",
        "chunked_prefill_size",
        "context_tokens",
        "allocator_conf",
        "min_headroom_gib",
        "min_least_free_gib",
        "max_running_requests",
    ],
)
def test_auto_is_the_same_as_nothing(option, value):
    assert plan_of(reference(**{option: value})) == plan_of(reference())


NAN, INFINITE = float("nan"), float("inf")
HUGE = 10**30
NO_NUMBER = [-1, True, "much", "0.9x", "", NAN, INFINITE, -INFINITE, [], {}, HUGE]
NO_COUNT = [*NO_NUMBER, 0, 1.5]
NO_RECORDS = [-1, 0, "x", NAN, True, [1], ["x"], [[]]]
NO_DICTIONARY = [-1, 0, "wide", NAN, True, [1]]
NO_SWITCH = [-1, 2, "maybe", NAN, [], {}]

# For every option, what cannot be right. Texts may be any, so that only other kinds are wrong for them.
BAD = {
    "arguments": NO_DICTIONARY,
    "environment": NO_DICTIONARY,
    "gpus": [*NO_RECORDS, [{"memory_free_mib": -5}], [{"memory_free_mib": NAN}], [{"memory_free_mib": "x"}]],
    "geometry": [*NO_DICTIONARY, {"hidden_size": -1}, {"hidden_size": NAN}, {"hidden_size": HUGE}],
    "weight_bytes": NO_COUNT,
    "weight_table": NO_RECORDS,
    "weights_created": NO_RECORDS,
    "draft_weight_bytes": NO_COUNT,
    "draft_weight_table": NO_RECORDS,
    "draft_weights_created": NO_RECORDS,
    "draft_geometry": [*NO_DICTIONARY, {"layers": -1}, {"hidden_size": "x"}],
    "engine_version": ["newest", "-1", "0.9x", NAN, True],
    "torch_version": [],
    "target_tokens": NO_COUNT,
    "measurements": [*NO_RECORDS, [{"pool_tokens": "x"}], [{"fraction": NAN}], [{"fraction": 1.2}], [{"kv_gib": -1}]],
    "deaths": [*NO_RECORDS, [{"reserve_needed_gib": "x"}], [{"wanted_gib": INFINITE}], [{"wanted_mib": -1}]],
    "free_before_load_gib": [*NO_NUMBER, 0],
    "free_after_load_gib": [*NO_NUMBER, 0],
    "weights_gib": [*NO_NUMBER, 0],
    "cell_bytes": [*NO_NUMBER, 0],
    "context_tokens": NO_COUNT,
    "max_context_tokens": NO_COUNT,
    "pool_policy": ["all", "", -1, True, [], {}],
    "mem_fraction_static": [*NO_NUMBER, -0.1, 0, 1, 1.0, 1.5, 94],
    "chunked_prefill_size": [value for value in NO_COUNT if value != -1] + [-2],
    "allocator_conf": [1, 0, 1.5, True, NAN, [], {}],
    "min_headroom_gib": NO_NUMBER,
    "min_least_free_gib": NO_NUMBER,
    "max_running_requests": NO_COUNT,
    "allow_unproven_plan": NO_SWITCH,
    "device": ["tpu", "", 0, True, [], {}],
    "own_server_running": NO_SWITCH,
    "own_pids": [[-1], [0], ["x"], [1.5], [NAN], [INFINITE], {}],
    "running_gib": NO_NUMBER,
    "other_instances": [*NO_RECORDS, [{"boards": "all"}], [{"boards": [{"more_gib": -1}]}], [{"boards": [{}]}]],
    "keys": NO_DICTIONARY,
    "server": NO_DICTIONARY,
    "attempts": NO_RECORDS,
    "request": NO_DICTIONARY,
    "problems": [{"a": 1}],
    "show": NO_SWITCH,
    "soak_wanted": NO_SWITCH,
    "when_not_proven": ["pray", "", 0, True, [], {}],
    "look_only": NO_SWITCH,
    "max_attempts": NO_COUNT,
    "origins": NO_DICTIONARY,
    "unit_text": [],
    "overwrite_drift": NO_SWITCH,
    "restart_pending": NO_SWITCH,
}
WAYS_OUT = ("leave the option out", "as model_info returns it", "as gpu_info returns it", "give that", "correct it")


def test_every_option_has_its_bad_input():
    assert set(BAD) == set(argument_spec())


@pytest.mark.parametrize("option", sorted(BAD))
def test_bad_input_is_one_sentence_that_names_the_option_and_the_way_out(option):
    for value in BAD[option]:
        result = plan_of(reference(**{option: value}))
        assert result.get("failed"), value
        named = re.search(
            rf"\b({option}|{'|'.join(value) if isinstance(value, dict) and value else option})\b", result["msg"]
        )
        assert named, result["msg"]
        assert any(way in result["msg"] for way in WAYS_OUT), result["msg"]
        assert "\n" not in result["msg"]
        assert result["msg"].endswith(".")
        assert not result["msg"].endswith("..")


WHOLE = [name for _least, names in records.WHOLE_ARGUMENTS for name in names]


@pytest.mark.parametrize("name", [*WHOLE, *records.REAL_ARGUMENTS])
def test_bad_numbers_among_the_arguments_are_one_sentence(name):
    for value in [-3, True, "x", "0.9x", "", NAN, INFINITE, "nan", HUGE, [], {}, *([1.5] if name in WHOLE else [0])]:
        result = plan_of(reference(arguments={"tp-size": 8, name: value}))
        assert result.get("failed"), value
        assert f"the server argument {name}, found" in result["msg"]
        assert result["msg"].endswith("state such a value, or leave the option out.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tp-size": 7}, "64 attention heads"),
        ({"tp": 8, "tp-size": 8}, "tp-size"),
        ({"tp-size": 8, "ep-size": 3}, "ep-size"),
        ({"tp-size": 8, "enable-dp-attention": True, "dp-size": 3}, "dp-size"),
        ({"mem-fraction-static": 1.2}, "mem_fraction_static"),
        ({"context-length": 0}, "context_tokens"),
        ({"cuda-graph-bs": []}, "cuda-graph-bs"),
        ({"cuda-graph-bs": "1 two"}, "cuda-graph-bs"),
        ({"chunked-prefill-size": "0.9x"}, "chunked_prefill_size"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, words):
    result = plan_of(reference(arguments=arguments))
    assert result["failed"]
    assert words in result["msg"]
    assert "\n" not in result["msg"]


def test_a_secret_in_the_wrong_place_is_not_shown():
    for option in ("arguments", "environment"):
        assert "topsecret" not in plan_of(reference(**{option: "--api-key topsecret"}))["msg"]


def test_an_unknown_option_is_named():
    assert "target_token." in plan_of(reference(target_token=5))["msg"]


# ---------------------------------------------------------------------------
# The step
# ---------------------------------------------------------------------------


def test_without_a_server_there_is_no_step():
    assert "step" not in plan_of(reference())


def test_a_plan_that_holds_is_to_be_tried():
    step = plan_of(reference(server={"active": False}))["step"]
    assert step["action"] == "try"
    assert step["values"]["arguments"]["max-total-tokens"] == 200000


@pytest.mark.parametrize("changes", [{"target_tokens": 5000000}, {"mem_fraction_static": 0.92}])
def test_a_refusal_is_the_step(changes):
    result = plan_of(reference(server={}, **changes))
    assert result["step"]["action"] == "refuse"
    assert result["refusal"] in result["step"]["reason"]


@pytest.mark.parametrize("problem", ["No such argument: x.", {"argument": "x", "sentence": "No such argument: x."}])
def test_problems_of_the_arguments_are_refused(problem):
    step = plan_of(reference(server={}, problems=[problem]))["step"]
    assert step["action"] == "refuse"
    assert "No such argument: x." in step["reason"]


def test_what_the_running_server_holds_of_the_ram_counts_as_free():
    gpus = [{"name": "cpu", "memory_total_mib": 24105, "memory_free_mib": 18000}]
    plain = plan_of({"gpus": gpus})
    beside = plan_of({"gpus": gpus, "running_gib": "4.5", "server": {"active": True}})
    assert beside["plan_free_gib"] == pytest.approx(plain["plan_free_gib"] + 4.5, abs=0.001)
    assert beside["free_before_load_gib"] == pytest.approx(plain["free_before_load_gib"] + 4.5, abs=0.001)


def test_a_running_server_hides_the_free_memory():
    gpus = [{"name": "B", "memory_total_mib": 97887, "memory_free_mib": 3000}] * 8
    args = reference(gpus=gpus, target_tokens=None, pool_policy="fill")
    args.pop("free_before_load_gib")
    assert plan_of(dict(args, server={"active": True}))["free_before_load_gib"] > 90
    assert plan_of(dict(args, server={"active": False}))["free_before_load_gib"] < 3


# ---------------------------------------------------------------------------
# What a long pass needs beside memory
# ---------------------------------------------------------------------------


def test_health_and_watchdog_wait_for_the_longest_pass():
    """200,000 tokens: in chunks of 8,192 8192 / 500 x 2.53 = 41.4 s; of 16,384 82.8 s, and five times that is 414 s."""
    answer = plan_of(reference(context_tokens=200000, chunked_prefill_size=8192, server={}, allow_unproven_plan=True))
    assert answer["environment"]["SGLANG_HEALTH_CHECK_TIMEOUT"] == "50"
    assert answer["step"]["action"] == "try", answer["step"]["reason"]
    assert answer["step"]["values"]["environment"] == answer["environment"]
    larger = plan_of(reference(context_tokens=200000, chunked_prefill_size=16384))
    assert larger["environment"]["SGLANG_HEALTH_CHECK_TIMEOUT"] == "90"
    shown = {row["name"]: row["origin"] for row in larger["settings"]}
    assert (shown["watchdog-timeout"], larger["arguments"]["watchdog-timeout"]) == ("plan", 420)
