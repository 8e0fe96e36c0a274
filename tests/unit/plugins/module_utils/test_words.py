from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _words

TEXT = st.text(alphabet=st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r\0"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tp_size": 8}, ["--tp-size", "8"]),
        ({"enable-metrics": True}, ["--enable-metrics"]),
        ({"enable-metrics": False, "revision": None, "lora-paths": []}, []),
        ({"mem-fraction-static": 0.93}, ["--mem-fraction-static", "0.93"]),
        ({"chunked-prefill-size": -1}, ["--chunked-prefill-size", "-1"]),
        ({"cuda-graph-bs-decode": [1, 2, 4]}, ["--cuda-graph-bs-decode", "1", "2", "4"]),
        ({"chat-template": "a b.jinja"}, ["--chat-template", "a b.jinja"]),
    ],
)
def test_server_arguments(arguments, words):
    assert _words.server_arguments(arguments) == words


def test_a_dictionary_becomes_json():
    words = _words.server_arguments({"json-model-override-args": {"rope": {"factor": 4.0}, "name": "ä"}})
    assert json.loads(words[1]) == {"rope": {"factor": 4.0}, "name": "ä"}


@pytest.mark.parametrize("character", ["\n", "\r", "\0"])
def test_line_breaks_are_refused_in_one_sentence(character):
    with pytest.raises(ValueError, match="on one line"):
        _words.server_arguments({"served-model-name": "a%sb" % character})
    with pytest.raises(ValueError, match="on one line"):
        _words.environment_file_line("NAME", "a%sb" % character)


def systemd_reads(text):
    """What systemd makes of one quoted word of ExecStart=: unquote, then specifiers, then expansions."""
    assert text[0] == text[-1] == '"'
    word, position = "", 1
    while position < len(text) - 1:
        if text[position] == "\\":
            position += 1
        word += text[position]
        position += 1
    assert "%" not in word.replace("%%", "")
    assert "$" not in word.replace("$$", "")
    return word.replace("%%", "%").replace("$$", "$")


@given(TEXT)
def test_what_goes_into_a_unit_comes_out(word):
    assert systemd_reads(_words.systemd_argument(word)) == word


@given(TEXT)
def test_what_goes_into_an_environment_file_comes_out(value):
    # A shell reads a double-quoted assignment without expansions by the same rules as systemd reads its file.
    line = _words.environment_file_line("NAME", value)
    name, quoted = line.split("=", 1)
    assert name == "NAME"
    read = shlex.split(quoted.replace("\\`", "`").replace("\\$", "$"))
    assert read == [value]


def test_instance_settings_lay_the_instance_over_the_role():
    assert _words.instance_settings({"name": "main", "port": 1}, {"port": 2}) == {"name": "main", "port": 2}


def test_an_unknown_setting_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="'prot'; did you mean 'port'"):
        _words.instance_settings({"name": "main", "port": 1}, {"prot": 2})
