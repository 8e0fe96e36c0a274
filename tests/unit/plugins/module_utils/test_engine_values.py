# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine: sentences about values, names that are given twice, notes, secrets."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _engine, _engine_plugins, _engine_values

Argument = _engine.Argument
BACKENDS = ("triton", "fa3", "fa4", "flashinfer", "trtllm_mla")
ACCEPTED = (
    Argument("tp-size", ("tensor-parallel-size",), type="int"),
    Argument("mem-fraction-static", type="float"),
    Argument("context-length", type="int_with_unit"),
    Argument("attention-backend", choices=BACKENDS, type="str"),
    Argument("log-requests-level", choices=(0, 1, 2, 3), type="int"),
    Argument("kv-cache-dtype", choices=("auto", "fp8_e5m2", "fp8_e4m3"), type="str"),
    Argument("enable-metrics", takes_value=False, nargs=0),
    Argument("fused", ("no-fused",), takes_value=False, nargs=0, negatable=True),
    Argument("cuda-graph-bs-decode", type="int", nargs="+"),
    Argument("lora-paths", type="lora_path", nargs="*"),
    Argument("forward-hooks", type="json"),
    Argument("cuda-graph-config", type="json_object"),
    Argument("json-model-override-args", type="str"),
    Argument("served-model-name", type="str"),
    Argument("strange", type="other", choices=("A",)),
    Argument("said", type="bool"),
    Argument("api-key", type="str"),
    Argument("ssl-keyfile-password", type="str"),
    Argument("old", deprecated=True, instead="--new", takes_value=False, nargs=0),
    Argument("older", deprecated=True, takes_value=False, nargs=0),
    Argument("oldest", deprecated=True, takes_value=False, nargs=0, refusal="--oldest is gone. Use --new."),
)


def examined(arguments, plugins=()):
    return _engine.examine_arguments(arguments, ACCEPTED, "0.5.23", plugins)


def sentence(**arguments):
    (problem,) = examined(arguments).problems
    assert problem.problem == "value"
    return problem.sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tp_size", 8),
        ("tp_size", "8"),
        ("tp_size", [8]),
        ("mem_fraction_static", 1e-05),
        ("mem_fraction_static", 1),
        ("context_length", "128k"),
        ("context_length", "25.6k"),
        ("context_length", "128Ki"),
        ("context_length", 131072),
        ("attention_backend", "fa3"),
        ("log_requests_level", 3),
        ("log_requests_level", "3"),
        ("enable_metrics", True),
        ("enable_metrics", False),
        ("cuda_graph_bs_decode", [1, 2, 4]),
        ("cuda_graph_bs_decode", 4),
        ("lora_paths", ["a", {"lora_name": "b", "lora_path": "c"}]),
        ("forward_hooks", {"a": [1]}),
        ("forward_hooks", "[1]"),
        ("json_model_override_args", {"index_topk_freq": 4}),
        ("json_model_override_args", '{"index_topk_freq": 4}'),
        ("strange", "anything"),
        ("said", True),
    ],
)
def test_what_the_parser_takes_is_no_problem(name, value):
    result = examined({name: value})
    assert (result.problems, result.notes) == ((), ())


@pytest.mark.parametrize("name", ["tp-size", "enable-metrics", "attention-backend", "forward-hooks", "nowhere"])
@pytest.mark.parametrize("value", [None, []])
def test_null_and_an_empty_list_leave_an_argument_out(name, value):
    assert examined({name: value}).problems == ()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tp": 8.0}, "Expected a whole number for the server argument tp-size, found 8.0: write 8."),
        (
            {"tp": "8 GPUs"},
            "Expected a whole number for the server argument tp-size, found '8 GPUs': correct it, or leave it out with"
            " null.",
        ),
        (
            {"mem-fraction-static": "0,9"},
            "Expected a number for the server argument mem-fraction-static, found '0,9': correct it, or leave it out"
            " with null.",
        ),
        (
            {"context-length": "128K"},
            "Expected a whole number, also as 1k, 25.6k or 1Ki, for the server argument context-length, found '128K':"
            " correct it, or leave it out with null.",
        ),
        (
            {"attention-backend": "flashinfr"},
            "Expected one of triton, fa3, fa4, flashinfer, trtllm_mla for the server argument attention-backend, found"
            " 'flashinfr': did you mean flashinfer?",
        ),
        (
            {"attention-backend": "Trtllm-MLA"},
            "Expected one of triton, fa3, fa4, flashinfer, trtllm_mla for the server argument attention-backend, found"
            " 'Trtllm-MLA': did you mean trtllm_mla?",
        ),
        (
            {"kv-cache-dtype": "fp8"},
            "Expected one of auto, fp8_e5m2, fp8_e4m3 for the server argument kv-cache-dtype, found 'fp8': did you mean"
            " fp8_e5m2 or fp8_e4m3?",
        ),
        (
            {"log-requests-level": 4},
            "Expected one of 0, 1, 2 or 3 for the server argument log-requests-level, found 4: write one of them.",
        ),
        (
            {"enable-metrics": "yes"},
            "Expected true or false for the server argument enable-metrics, which takes no value, found 'yes': write"
            " true without quotes, or leave it out.",
        ),
        (
            {"enable-metrics": "False\n"},
            "Expected true or false for the server argument enable-metrics, which takes no value, found 'False\\n':"
            " write true without quotes, or leave it out.",
        ),
        (
            {"served-model-name": True},
            "Expected a value for the server argument served-model-name, found true: write the value, or leave it out"
            " with null.",
        ),
        (
            {"served-model-name": ["a", "b"]},
            "Expected one value for the server argument served-model-name, found a list of 2: keep one of them.",
        ),
        (
            {"cuda-graph-bs-decode": [1, "x"]},
            "Expected a whole number for the server argument cuda-graph-bs-decode, found 'x': correct it, or leave it"
            " out with null.",
        ),
        (
            {"forward-hooks": [{"a": 1}]},
            "Expected JSON as one text for the server argument forward-hooks, found a list: put the list in quotes.",
        ),
        (
            {"forward-hooks": "{'a': 1}"},
            "Expected JSON for the server argument forward-hooks, found a text that is none (Expecting property name"
            " enclosed in double quotes at character 2): correct it, or write a dictionary.",
        ),
        (
            {"cuda-graph-config": "[1]"},
            "Expected a JSON object for the server argument cuda-graph-config, found a text that is none: correct it,"
            " or write a dictionary.",
        ),
        (
            {"cuda-graph-config": 4},
            "Expected a JSON object for the server argument cuda-graph-config, found 4: correct it, or write a"
            " dictionary.",
        ),
        (
            {"lora-paths": ["a", {"lora_name": "b"}]},
            "Expected a path, or JSON with lora_name and lora_path, for the server argument lora-paths, found a"
            " dictionary: correct it.",
        ),
        (
            {"tp-size": {"a": 1}},
            "Expected a whole number for the server argument tp-size, found a dictionary: correct it, or leave it out"
            " with null.",
        ),
        (
            {"tp-size": False},
            "Expected a whole number for the server argument tp-size, found false: correct it, or leave it out with"
            " null.",
        ),
    ],
)
def test_a_wrong_value_is_one_sentence_with_a_way_out(given, text):
    assert sentence(**given) == text


def test_json_that_the_launcher_reads_later_is_checked_too():
    assert "found a text that is none" in sentence(**{"json-model-override-args": "{index_topk_freq: 4}"})


def test_suggestions_are_values_for_a_wrong_value():
    (problem,) = examined({"attention_backend": "fa5"}).problems
    assert problem.as_dict() == {
        "argument": "attention-backend",
        "problem": "value",
        "sentence": problem.sentence,
        "suggestions": ["fa3", "fa4"],
    }


def test_many_choices_are_counted_where_a_near_one_is_known():
    many = (Argument("quantization", choices=tuple(f"w{number}a8" for number in range(20)), type="str"),)
    (problem,) = _engine.check_arguments({"quantization": "w3a8x"}, many)
    assert problem.sentence.startswith("Expected one of 20 choices for the server argument quantization, found")


@pytest.mark.parametrize(
    ("given", "before", "name"),
    [
        ({"tp": 8, "tensor_parallel_size": 8}, "tp", "tensor-parallel-size"),
        ({"tp-size": 8, "tp-si": 8}, "tp-size", "tp-si"),
        ({"fused": True, "no-fused": True}, "fused", "no-fused"),
        ({"no-fus": True, "fused": False}, "no-fus", "fused"),
    ],
)
def test_one_argument_given_twice(given, before, name):
    (problem,) = examined(given).problems
    assert (problem.problem, problem.argument) == ("twice", name)
    assert f"The server arguments {before} and {name} are one and the same argument" in problem.sentence


def test_what_is_left_out_is_not_given_twice():
    result = examined({"tp": 8, "tensor-parallel-size": None})
    assert (result.problems, result.arguments) == ((), {"tp-size": 8})
    assert examined({"tensor-parallel-size": None, "tp": 8}).arguments == {"tp-size": 8}


def test_names_become_whole_and_keep_their_order():
    given = {"--mem_fraction": 0.9, "no-fu": True, "tp": 8, "enable_m": True, "bogus": 1}
    assert list(examined(given).arguments) == ["mem-fraction-static", "no-fused", "tp-size", "enable-metrics", "bogus"]


def test_the_name_is_the_one_that_everything_else_uses():
    old = (Argument("tensor-parallel-size", ("tp-size",), type="int"), Argument("model-impl", type="str"))
    assert list(_engine.examine_arguments({"tensor-par": 8, "model-i": "auto"}, old).arguments) == [
        "tp-size",
        "model-impl",
    ]


# --- notes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"old": True}, "The server argument old is deprecated in this engine: use --new."),
        ({"older": True}, "The server argument older is deprecated in this engine: a later version will not have it."),
        ({"fused": False}, "The server argument fused is false, so this engine gets no-fused: null leaves it out."),
        (
            {"served-model-name": False},
            "The server argument served-model-name takes a value, so false is handed over as one: null leaves it out.",
        ),
        ({"nowhere": False}, "The server argument nowhere is not one of this engine: its value leaves it out."),
    ],
)
def test_what_does_not_end_the_start_is_a_note(given, note):
    result = examined(given)
    assert (result.problems, result.notes) == ((), (note,))


def test_a_deprecated_argument_that_is_left_out_is_no_note():
    assert examined({"old": False, "no-fused": False}).notes == ()


def test_an_argument_that_ends_the_start_by_itself_counts_as_removed():
    (problem,) = examined({"oldest": True}).problems
    assert problem.problem == "removed"
    assert problem.sentence == (
        "The server argument oldest ends the start of this engine: --oldest is gone. Use --new."
    )
    assert examined({"oldest": False}).problems == ()


# --- secrets ----------------------------------------------------------------

CANARY = "sk-CANARY-0123456789"


@pytest.mark.parametrize(
    "given",
    [
        {"api-key": [CANARY, CANARY]},
        {"api_key": {CANARY: CANARY}},
        {"ssl-keyfile-password": [CANARY, "b"]},
        {f"api-key={CANARY}": True},
        {f"api-key {CANARY}": 1},
        {"forward-hooks": '{"api_key": "%s"' % CANARY},
        {"enable-metrics": CANARY},
        {"tp": f"--api-key={CANARY}"},
    ],
)
def test_no_sentence_shows_a_secret(given):
    result = examined(given)
    said = [problem.as_dict() for problem in result.problems] + list(result.notes)
    if given != {"api_key": {CANARY: CANARY}}:
        assert said
    assert "CANARY" not in repr(said)
    assert not any("CANARY" in name for name in result.arguments)


def test_secrets_are_found_by_the_name_of_the_argument():
    given = {"api_key": CANARY, "--admin-api-key": "1234", "ssl-keyfile": "/etc/key", "max-total-tokens": 4096}
    assert _engine_values.secret_texts({**given, "ssl-keyfile-password": None, "api-key": "abc"}) == {CANARY, "1234"}


# --- plug-ins ---------------------------------------------------------------


def test_choices_that_a_plug_in_may_add_to_are_a_note():
    plugin = _engine_plugins.Plugin("acme-platform", adds_choices=True)
    result = examined({"attention-backend": "acme", "tp": "x"}, (plugin,))
    assert [problem.argument for problem in result.problems] == ["tp"]
    assert result.notes[0].endswith("write one of them. It was not refused, since acme-platform may add choices.")
    assert len(examined({"attention-backend": "acme"}, (_engine_plugins.Plugin("quiet"),)).problems) == 1


ENTRY_POINTS = """\
[console_scripts]
acme = acme.cli:main

[sglang.srt.plugins]
# more of them
acme = acme.plugin:register [extra]
more=acme_more:register
"""


def install(site, name, entry_points, **files):
    (site / f"{name}-1.0.dist-info").mkdir(parents=True)
    (site / f"{name}-1.0.dist-info" / "entry_points.txt").write_text(entry_points)
    for path, text in files.items():
        target = site / (path.replace("__", "/") + ".py")
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)


def test_plug_ins_are_read_from_what_is_installed(tmp_path):
    assert _engine_plugins.read_plugins(str(tmp_path)) == ()
    install(tmp_path, "Acme_Tools", ENTRY_POINTS, acme__plugin='FLAG = "--acme-flag"\n', acme_more='x("--more")\n')
    install(tmp_path, "other", "[console_scripts]\nother = other:main\n", other="add_attention_backend_choices\n")
    install(tmp_path, "chooser", "[sglang.srt.plugins]\nc = chooser:f\n", chooser="add_attention_backend_choices(1)\n")
    install(tmp_path, "board", "[sglang.srt.platforms]\nb = board:f\n", board="pass\n")
    install(tmp_path, "elsewhere", "[sglang.srt.plugins]\ne = elsewhere:f\n")
    assert _engine_plugins.read_plugins(str(tmp_path)) == (
        _engine_plugins.Plugin("acme-tools", frozenset({"acme-flag", "more"})),
        _engine_plugins.Plugin("board", adds_choices=True),
        _engine_plugins.Plugin("chooser", adds_choices=True),
        _engine_plugins.Plugin("elsewhere", adds_choices=True),
    )


def test_entry_points_are_read_by_group():
    assert _engine_plugins.entry_points(ENTRY_POINTS) == {
        "console_scripts": ["acme.cli"],
        "sglang.srt.plugins": ["acme.plugin", "acme_more"],
    }
