# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words for argv, units and environment files. The scenario `unit` tries the same on real systemds."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words

NO_CHARACTERS = re.compile("[\ufdd0-\ufdef]")
TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\n\r\0")).filter(
    lambda text: not NO_CHARACTERS.search(text) and all(ord(one) & 0xFFFE != 0xFFFE for one in text)
)

# As engine_info returns it: a flag, a flag with a twin, and arguments that take values, one of them without need.
ENGINE = {
    "accepted_arguments": [
        "config-file",
        "enable-metrics",
        "ep",
        "lora-strict-loading",
        "model-checksum",
        "model-path",
        "no-lora-strict-loading",
        "numa-bind",
        "tp-size",
    ],
    "flag_arguments": ["enable-metrics", "lora-strict-loading", "no-lora-strict-loading"],
}


# ---------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, []),
        ({"tp_size": 8}, ["--tp-size", "8"]),
        ({"--tp": 8}, ["--tp-size", "8"]),
        ({"enable-metrics": True}, ["--enable-metrics"]),
        ({"enable-metrics": False, "revision": None, "lora-paths": []}, []),
        ({"mem-fraction-static": 0.93}, ["--mem-fraction-static", "0.93"]),
        ({"schedule-conservativeness": 0.00001}, ["--schedule-conservativeness", "1e-05"]),
        ({"chunked-prefill-size": -1}, ["--chunked-prefill-size", "-1"]),
        ({"x": -0.5}, ["--x", "-0.5"]),
        ({"x": "-.5"}, ["--x", "-.5"]),
        ({"cuda-graph-bs-decode": [1, 2, 4]}, ["--cuda-graph-bs-decode", "1", "2", "4"]),
        ({"x": [-1, 2]}, ["--x", "-1", "2"]),
        ({"chat-template": "a b.jinja"}, ["--chat-template", "a b.jinja"]),
        ({"served-model-name": "cost-$HOME-${USER}"}, ["--served-model-name", "cost-$HOME-${USER}"]),
        ({"x": ""}, ["--x", ""]),
        # A text is never taken for a boolean.
        ({"enable-metrics": "yes"}, ["--enable-metrics", "yes"]),
        # argparse would take these values for options; an exponent is no negative number to it.
        ({"x": "-a"}, ["--x=-a"]),
        ({"x": "--"}, ["--x=--"]),
        ({"x": "-1 2"}, ["--x=-1 2"]),
        ({"x": -1e-05}, ["--x=-1e-05"]),
        # JSON: compact, in the given order, with the letters as they are.
        ({"json-model-override-args": '{"topk": 4}'}, ["--json-model-override-args", '{"topk": 4}']),
        (
            {"cuda-graph-config": {"decode": {"backend": "full", "bs": [1, 2, 4]}, "prefill": {"backend": "disabled"}}},
            ["--cuda-graph-config", '{"decode":{"backend":"full","bs":[1,2,4]},"prefill":{"backend":"disabled"}}'],
        ),
        ({"x": {"b": None, "a": True, "ä": "\n"}}, ["--x", '{"b":null,"a":true,"ä":"\\n"}']),
        ({"x": {1: 2, "a": 0.5}}, ["--x", '{"1":2,"a":0.5}']),
        ({"x": {None: 1, "d": datetime.date(2026, 1, 2)}}, ["--x", '{"null":1,"d":"2026-01-02"}']),
        ({"forward-hooks": [{"name": "a"}, 1]}, ["--forward-hooks", '[{"name":"a"},1]']),
        ({"x": [{"a": 1}, [2, "b"], False]}, ["--x", '{"a":1}', '[2,"b"]', "false"]),
    ],
)
def test_server_arguments(arguments, words):
    assert _words.server_arguments(arguments) == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"enable-metrics": True}, ["--enable-metrics"]),
        ({"enable-metrics": False}, []),
        ({"enable-metric": True}, ["--enable-metric"]),
        ({"lora-strict-loading": False}, ["--no-lora-strict-loading"]),
        ({"lora_strict": False}, ["--no-lora-strict-loading"]),
        ({"no-lora-strict-loading": True}, ["--no-lora-strict-loading"]),
        ({"numa-bind": True}, ["--numa-bind", "true"]),
        ({"numa-bind": False}, ["--numa-bind", "false"]),
        ({"numa-bind": None}, []),
        ({"model-checksum": True}, ["--model-checksum"]),
        ({"model-checksum": False}, []),
        ({"unknown": True}, ["--unknown"]),
        ({"unknown": False}, []),
        ({"tp": 8}, ["--tp-size", "8"]),
        # This engine has only the other spelling of ep-size.
        ({"expert-parallel-size": 2, "ep": ...}, ["--ep-size", "2"]),
        ({"ep": 2}, ["--ep", "2"]),
    ],
)
def test_an_engine_that_is_known_says_what_a_boolean_is(arguments, words):
    arguments = {name: value for name, value in arguments.items() if value is not ...}
    assert _words.server_arguments(arguments, ENGINE) == words


@pytest.mark.parametrize("engine", [None, {}, {"failed": True, "msg": "no engine"}, {"accepted_arguments": []}])
def test_an_engine_that_is_not_known_changes_nothing(engine):
    assert _words.server_arguments({"numa-bind": True, "lora-strict-loading": False}, engine) == ["--numa-bind"]


@pytest.mark.parametrize("value", ["yes", "False", 1, ["a"], {"a": 1}])
def test_a_flag_of_a_known_engine_takes_no_value(value):
    with pytest.raises(ValueError, match="true or false for the server argument enable-metrics, which takes no value"):
        _words.server_arguments({"enable_metrics": value}, ENGINE)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"api-key": "s3cr3t\nx"}, "the server argument api-key on one line, found a line break in it after 6 char"),
        ({"served-model-name": "s3cr3t\r"}, "a carriage return"),
        ({"served-model-name": ["a", "s3cr3t\0"]}, r"served-model-name \(value 2\) on one line, found a NUL"),
        ({"served-model-name": "s3cr3t\ud800"}, "half of a surrogate pair"),
        ({"x": {"s3cr3t\udfff": 1}}, "half of a surrogate pair"),
        ({"x": "s3cr3t\uffff"}, "no character"),
        ({"x": "s3cr3t\ufdd0"}, "no character"),
        ({"x": "s3cr3t\U0010fffe"}, "no character"),
        ({"x": ["s3cr3t", None]}, r"a value for the server argument x \(value 2\), found null"),
        ({"x": ["a", "-s3cr3t"]}, r"begins with '-' in a list, found one in the server argument x \(value 2\)"),
        ({"x": float("nan")}, "a finite number in the server argument x"),
        ({"x": {"s3cr3t": [1, float("-inf")]}}, "a finite number in the server argument x"),
        ({"x": [float("inf")]}, "a finite number"),
        ({"x": {1: "s3cr3t", "1": 2}}, "two keys of a dictionary in the server argument x"),
        ({"x": b"s3cr3t"}, "found bytes"),
        ({"x": {"a": {"s3cr3t"}}}, "found set"),
        ({"api-key=s3cr3t": True}, "'api-key' with '=' behind it"),
        ({"x y": "s3cr3t"}, "'x' with ' ' behind it"),
        ({"x\n": "s3cr3t", "y": 1}, None),
        ({"": 1}, "the name of a server argument"),
        ({"--": 1}, "the name of a server argument"),
        ({"tp": 4, "tensor_parallel_size": 8}, "'tp' and 'tensor_parallel_size', which are one and the same"),
        (["--x"], "as a dictionary, found list"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_sentence_without_the_value(arguments, expected):
    if expected is None:  # blanks around a name are no part of it
        assert _words.server_arguments(arguments) == ["--x", "s3cr3t", "--y", "1"]
        return
    with pytest.raises(ValueError, match=expected) as caught:
        _words.server_arguments(arguments)
    assert str(caught.value).startswith("Expected ")
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


def parser():
    """A parser with the kinds of arguments that SGLang has."""
    made = argparse.ArgumentParser(exit_on_error=False)
    made.add_argument("--text")
    made.add_argument("--number", type=int)
    made.add_argument("--real", type=float)
    made.add_argument("--json", type=json.loads)
    made.add_argument("--texts", nargs="+")
    made.add_argument("--numbers", nargs="*", type=int)
    made.add_argument("--flag", action="store_true")
    made.add_argument("--other-flag", action="store_true")
    made.add_argument("--twin", action=argparse.BooleanOptionalAction, default=None)
    made.add_argument("--spelled-switch", type=lambda text: {"true": True, "false": False}[text])
    return made


PARSED = {
    "accepted_arguments": [
        *("text", "number", "real", "json", "texts", "numbers", "flag", "other-flag", "twin", "no-twin"),
        "spelled-switch",
    ],
    "flag_arguments": ["flag", "other-flag", "twin", "no-twin"],
}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "text": TEXT,
            "number": st.integers(),
            "real": st.floats(allow_nan=False, allow_infinity=False),
            "json": st.dictionaries(TEXT, JSON_VALUES),
            "texts": st.lists(TEXT.filter(lambda text: not text.startswith("-")), min_size=1),
            "numbers": st.lists(st.integers(), min_size=1),
            "flag": st.booleans(),
            "other_flag": st.booleans(),
            "twin": st.booleans(),
            "spelled_switch": st.booleans(),
        },
    )
)
def test_a_real_parser_reads_back_what_was_declared(declared):
    read = parser().parse_args(_words.server_arguments(declared, PARSED))
    assert {name: getattr(read, name) for name in declared} == declared


# ---------------------------------------------------------------------------
# Units and environment files
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\ud800", "\ufdd0", "\ufffe"])
def test_what_no_line_can_hold_is_refused_everywhere(character):
    value = "s3cr3t%sb" % character
    for write in (
        lambda: _words.systemd_argument(value),
        lambda: _words.systemd_assignment("NAME", value),
        lambda: _words.environment_file_line("NAME", value),
    ):
        with pytest.raises(ValueError, match="on one line, found .* after 6 characters") as caught:
            write()
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "argument", "assignment", "line"),
    [
        ("", '""', '"N="', 'N=""'),
        ("has space", '"has space"', '"N=has space"', 'N="has space"'),
        ("it's", '"it\'s"', '"N=it\'s"', 'N="it\'s"'),
        ("p$ss%w", '"p$$ss%%w"', '"N=p$ss%%w"', 'N="p\\$ss%w"'),
        ("${HOME}", '"$${HOME}"', '"N=${HOME}"', 'N="\\${HOME}"'),
        ("a\\", '"a\\\\"', '"N=a\\\\"', 'N="a\\\\"'),
        ('{"a": 1}', '"{\\"a\\": 1}"', '"N={\\"a\\": 1}"', 'N="{\\"a\\": 1}"'),
        ("`x`", '"`x`"', '"N=`x`"', 'N="\\`x\\`"'),
        (";", '";"', '"N=;"', 'N=";"'),
    ],
)
def test_each_place_has_rules_of_its_own(value, argument, assignment, line):
    assert _words.systemd_argument(value) == argument
    assert _words.systemd_assignment("N", value) == assignment
    assert _words.environment_file_line("N", value) == line


@pytest.mark.parametrize(("value", "text"), [(8, "8"), (0.5, "0.5"), (True, "true"), (1e-05, "1e-05")])
def test_values_that_are_no_texts(value, text):
    assert _words.environment_file_line("N", value) == 'N="%s"' % text
    assert _words.systemd_assignment("N", value) == '"N=%s"' % text


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "Ä", "A=s3cr3t", "A\n", "A.B"])
def test_a_name_that_is_none_is_refused(name):
    for write in (_words.systemd_assignment, _words.environment_file_line):
        with pytest.raises(ValueError, match="the name of a variable of the environment") as caught:
            write(name, "x")
        assert "s3cr3t" not in str(caught.value)


def test_no_value_is_not_the_text_none():
    with pytest.raises(ValueError, match="a value for the variable N, found null"):
        _words.environment_file_line("N", None)


def systemd_reads(text, expansions=True):
    """What systemd makes of one quoted word of a unit: unquote, then specifiers, then (ExecStart= only) expansions."""
    assert text[0] == text[-1] == '"'
    word, position = "", 1
    while position < len(text) - 1:
        assert text[position] != '"'
        if text[position] == "\\":
            position += 1
            assert text[position] in '"\\'
        word += text[position]
        position += 1
    assert "%" not in word.replace("%%", "")
    word = word.replace("%%", "%")
    if not expansions:
        return word
    assert "$" not in word.replace("$$", "")
    return word.replace("$$", "$")


@given(TEXT)
def test_what_goes_into_a_unit_comes_out(word):
    assert systemd_reads(_words.systemd_argument(word)) == word
    assert systemd_reads(_words.systemd_assignment("A_1", word), expansions=False) == "A_1=" + word


@given(TEXT)
def test_what_goes_into_an_environment_file_comes_out(value):
    # A shell reads a double-quoted assignment without expansions by the same rules as systemd reads its file.
    line = _words.environment_file_line("NAME", value)
    name, quoted = line.split("=", 1)
    assert name == "NAME"
    read = shlex.split(quoted.replace("\\`", "`").replace("\\$", "$"))
    assert read == [value]


# ---------------------------------------------------------------------------
# Settings of an instance
# ---------------------------------------------------------------------------


def test_instance_settings_lay_the_instance_over_the_role():
    assert _words.instance_settings({"name": "main", "port": 1}, {"port": 2}) == {"name": "main", "port": 2}


def test_several_instances_have_settings_of_their_own():
    assert _words.instance_settings({"port": 1}, [{}, {"port": 2}]) == [{"port": 1}, {"port": 2}]


def test_an_unknown_setting_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="'prot'; did you mean 'port'"):
        _words.instance_settings({"name": "main", "port": 1}, {"prot": 2})
