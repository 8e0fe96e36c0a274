# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine: what is read from the sources of SGLang 0.5.23, against its real parser.

sources-0.5.23.json holds the declarations, parser-0.5.23.json what the real parser made of them; both say where they
come from. The parser is built anew from the second, and every answer about a value is compared with what it does.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _engine, _engine_plugins

DATA = Path(__file__).resolve().parents[3] / "data" / "engine"
SNAPSHOT = json.loads((DATA / "parser-0.5.23.json").read_text())["arguments"]
SOURCES = json.loads((DATA / "sources-0.5.23.json").read_text())["sources"]

# What the engine adds only at a run: the choices of --kv-canary-real-data come from an enumeration of its kernels, and
# token_oracle is there when a variable of the environment is set.
NOT_IN_SOURCES = {"kv-canary-real-data"}
ONLY_SOMETIMES = {"sampling-backend": {"token_oracle"}}

READS = {
    "int": "int",
    "float": "float",
    "str": "str",
    "loads": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json_object",
    "human_readable_int": "int_with_unit",
    "nullable_str": "str",
    "parse_cuda_graph_backend_arg": "str",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sglang")
    for path, lines in SOURCES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def scanned(package):
    return _engine.scan_arguments(str(package))


def real():
    """The arguments of the real parser, without those of plug-ins."""
    return {row["options"][0][2:]: row for row in SNAPSHOT if "plugin" not in row}


def test_every_argument_is_found_and_none_more(scanned):
    assert len(real()) == 531
    assert set(scanned) == set(real())


def test_spellings_are_those_of_the_parser(scanned):
    expected = {option[2:] for row in real().values() for option in row["options"]}
    assert len(expected) == 559
    assert _engine.spellings(scanned) == expected


def test_numbers_of_values_and_types_are_those_of_the_parser(scanned):
    flags = {"StoreTrueAction", "BooleanOptionalAction", "DeprecatedStoreTrueAction"}
    for name, row in real().items():
        nargs = 0 if row.get("action") in flags else row.get("nargs")
        assert scanned[name].nargs == nargs, name
        assert scanned[name].takes_value == (nargs != 0), name
        reads = "lora_path" if row.get("action") == "LoRAPathAction" else READS[row.get("type", "str")]
        assert scanned[name].type == (None if nargs == 0 else reads), name
        assert scanned[name].negatable == (row.get("action") == "BooleanOptionalAction"), name


def test_choices_are_those_of_the_parser(scanned):
    with_choices = {name for name, row in real().items() if "choices" in row}
    assert len(with_choices) == 96
    assert {name for name, row in scanned.items() if row.choices is not None} == with_choices - NOT_IN_SOURCES
    for name in with_choices - NOT_IN_SOURCES:
        expected = set(real()[name]["choices"]) | ONLY_SOMETIMES.get(name, set())
        assert set(scanned[name].choices) == expected, name


def test_deprecated_arguments_are_those_of_the_parser(scanned):
    deprecated = {name for name, row in real().items() if row.get("deprecated")}
    assert {name for name, row in scanned.items() if row.deprecated} == deprecated
    assert scanned["disable-cuda-graph"].instead == "--cuda-graph-backend-{decode,prefill}=disabled"
    assert scanned["enable-dp-attention"].instead == "--attn-dp-size <dp-size>"


def test_a_scan_and_a_check_of_everything_are_fast(package):
    begin = time.process_time()
    accepted = _engine.scan_arguments(str(package))
    everything = {name: True if row.nargs == 0 else "x" for name, row in accepted.items()}
    examined = _engine.examine_arguments(everything, accepted, "0.5.23")
    assert time.process_time() - begin < 0.5
    # A text is wrong for every type but a text and a path, and for every list of choices.
    wrong = {name for name, row in accepted.items() if row.type not in (None, "str") or row.choices is not None}
    assert {row.argument for row in examined.problems} == wrong - {"lora-paths"} | {
        "json-model-override-args",
        "model-loader-extra-config",
    }


# --- against a parser that is built from the snapshot -------------------------


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)


def human_readable_int(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", text.strip())
    if not match:
        return int(text)
    number, unit = match.groups()
    if unit.endswith("i"):
        return int(number) << {"K": 10, "M": 20, "G": 30, "T": 40}[unit[0]]
    return int(Decimal(number) * {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}[unit])


def json_object(text):
    if not isinstance(json.loads(text), dict):
        raise argparse.ArgumentTypeError("must be a JSON object")


def lora_path(text):
    if text.strip().startswith("{") and text.strip().endswith("}"):
        data = json.loads(text.strip())
        if not ("lora_path" in data and "lora_name" in data):
            raise argparse.ArgumentTypeError("looks like a JSON str")


TYPES = {"int": int, "float": float, "human_readable_int": human_readable_int}
TYPES.update(loads=json.loads, json_list_type=json.loads, parse_cuda_graph_config_arg=json_object)
ACTIONS = {
    "StoreTrueAction": "store_true",
    "DeprecatedStoreTrueAction": "store_true",
    "BooleanOptionalAction": argparse.BooleanOptionalAction,
}


def build_parser():
    parser = Parser(add_help=False)
    for row in real().values():
        keywords = {}
        options = row["options"]
        if row.get("action") in ACTIONS:
            keywords["action"] = ACTIONS[row["action"]]
        else:
            keywords["type"] = lora_path if row.get("action") == "LoRAPathAction" else TYPES.get(row.get("type"), str)
            keywords.update({key: row[key] for key in ("nargs", "choices") if key in row})
        if row.get("action") == "BooleanOptionalAction":
            options = [option for option in options if not option.startswith("--no-")]
        parser.add_argument(*options, **keywords)
    return parser


PARSER = build_parser()


def plain(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else str(value)


def words(name, value, row):
    """How an argument stands on the command line."""
    flag = "--" + name
    if row.nargs == 0:
        if value is True:
            return [flag]
        if value is False:
            return ["--no-" + name] if row.negatable else []
        return [flag, *map(plain, value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        return [flag, *map(plain, value)]
    return [flag + "=" + plain(value)]


def takes(argv):
    try:
        PARSER.parse_args(argv)
    except Refused:
        return False
    return True


TEXTS = st.sampled_from(
    ["", "0", "8", " 8", "8.0", "1e3", "0.5", "nan", "1_000", "128k", "1.5M", "1.5Ki", "2Gi", "2K", "auto", "none", "x"]
    + ["true", "False", "False\n", "yes", "{}", '{"a": 1}', "{'a': 1}", "[1]", "a b", "fp8", "triton", "-1", "1,2"]
)
SCALARS = st.one_of(
    TEXTS,
    st.integers(-5, 200),
    st.sampled_from([8.0, 0.5, 1e-05, 1e22, 131072.0]),
    st.sampled_from([{}, {"a": [1, None]}]),
)
VALUES = st.one_of(
    SCALARS, st.booleans(), st.lists(SCALARS.filter(lambda value: value != "-1"), min_size=1, max_size=3)
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(real())), st.one_of(VALUES, st.just("CHOICE")))
@example("tp-size", 8.0)
@example("max-lora-chunk-size", "16")
@example("uvicorn-access-log-exclude-prefixes", ["a", "b"])
def test_an_answer_about_a_value_is_that_of_the_parser(scanned, name, value):
    row = scanned[name]
    if value == "CHOICE" and row.choices:
        value = sorted(map(str, row.choices))[-1]
    if row.takes_value and value is True:
        return  # refused by rule: nobody means the text true
    if row.type in ("json", "json_object") and isinstance(value, list):
        return  # refused by rule: two words, of which each must be JSON
    if name in ("json-model-override-args", "model-loader-extra-config", *NOT_IN_SOURCES, *ONLY_SOMETIMES):
        return
    examined = _engine.examine_arguments({name: value}, scanned, "0.5.23")
    problems = [problem.sentence for problem in examined.problems]
    assert (problems == []) == takes(words(name, value, row)), (words(name, value, row), problems)
    assert all(problem.problem == "value" for problem in examined.problems)


SPELLED = sorted({option[2:] for row in real().values() for option in row["options"]})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SPELLED), st.integers(1, 60))
def test_an_abbreviation_is_resolved_as_the_parser_does(scanned, spelled, length):
    short = spelled[:length].rstrip("-")
    value = True
    examined = _engine.examine_arguments({short: value}, scanned)
    names = [problem.problem for problem in examined.problems if problem.problem in ("unknown", "ambiguous", "removed")]
    try:
        PARSER.parse_args(["--" + short])
        message = ""
    except Refused as error:
        message = str(error)
    if names == ["removed"]:
        return  # for the parser a prefix of newer arguments, for people the old name
    assert bool(names) == ("ambiguous option" in message or "unrecognized" in message), (short, message, names)
    if not names:
        (full,) = examined.arguments
        # The name is one of the parser's own, and it is the same argument: argparse says its spellings in an error.
        said = re.search(r"argument (\S+): ", message)
        assert not said or "--" + full in said.group(1).split("/")


# --- plug-ins that every installation of 0.5.23 has ---------------------------


def test_what_a_plug_in_adds_is_a_note(scanned):
    added = [row["options"][0][2:] for row in SNAPSHOT if row.get("plugin") == "smg-grpc-servicer"]
    assert added == ["servicer-impl", "metrics-port", "metrics-host"]
    plugin = _engine_plugins.Plugin("smg-grpc-servicer", frozenset(added))
    given_arguments = dict.fromkeys(added, "x")
    examined = _engine.examine_arguments(given_arguments, scanned, "0.5.23", (plugin,))
    assert examined.problems == ()
    assert len(examined.notes) == 3
    assert examined.notes[0] == (
        "The server argument servicer-impl is not one of SGLang, but of smg-grpc-servicer: it was not checked."
    )
    assert len(_engine.check_arguments(given_arguments, scanned, "0.5.23")) == 3
