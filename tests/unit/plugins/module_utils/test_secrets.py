from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _secrets

# What SGLang 0.5.23 prints of its arguments at every start, shortened.
SERVER_ARGS = "[2026-11-21 10:00:00] server_args=ServerArgs(model_path='/m', api_key='%s', admin_api_key=None)"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("sk-1\n", "sk-1"),
        ("# comment\n\nsk-1\n", "sk-1"),
        ("admin-api-key: b\napi-key: 'a b'\n", "a b"),
        ('"api_key": "x"\n', "x"),
        ("port: 3\napi-key: z\n", "z"),
        ("admin-api-key: b\n", ""),
    ],
)
def test_api_key_of_a_file(text, key):
    assert _secrets.api_key_of_text(text) == key


@pytest.mark.parametrize("text", ["", "a: b\nc: d\n"])
def test_a_file_without_a_key_is_refused(text):
    with pytest.raises(ValueError, match="api-key"):
        _secrets.api_key_of_text(text)


@pytest.mark.parametrize("key", ["sk-1", 'with"quote', "back\\slash", "it's", "a:b#c"])
def test_a_key_comes_back_from_what_the_role_writes(key):
    text = "# Ansible managed\napi-key: %s\nadmin-api-key: %s\n" % (json.dumps(key), json.dumps("admin" + key))
    assert _secrets.api_key_of_text(text) == key
    assert _secrets.keys_of_text(text) == {"api-key": key, "admin-api-key": "admin" + key}


def test_a_file_that_is_not_there_has_no_keys(tmp_path):
    assert _secrets.keys_of_file(str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("text", "tell"),
    [
        (SERVER_ARGS % "sk-canary", True),
        (SERVER_ARGS % "********", False),
        ("up\n" * 5 + SERVER_ARGS % "sk-canary", True),
        ("", False),
    ],
)
def test_a_journal_that_tells_a_key(text, tell):
    asked = []

    def run_command(command, **dummy):
        asked.append(command)
        return 0 if text else 1, text, ""

    assert _secrets.invocation_tells(run_command, "a" * 32, ["sk-canary"]) is tell
    assert len(asked) == 1
    assert "sk-canary" not in str(asked)


def test_a_journalctl_without_patterns_is_asked_for_everything():
    def run_command(command, **dummy):
        if any(word.startswith("--grep") for word in command):
            return 1, "", "Compiled without pattern matching support"
        return 0, SERVER_ARGS % "sk-canary", ""

    assert _secrets.invocation_tells(run_command, "a" * 32, ["sk-canary"])


def test_a_key_in_the_spelling_of_python_is_found():
    key = "it's\\x"
    assert _secrets.text_tells("api_key=%r" % key, [key])
