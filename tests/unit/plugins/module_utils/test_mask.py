# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import MASK, mask_data, mask_text

LINES = [
    "[2026-09-01 10:00:00] server_args=ServerArgs(model_path='/models/m', port=30000, api_key='{0}', tp_size=1)",
    "server_args=ServerArgs(admin_api_key='{0}', api_key=None)",
    "server_args={{'model_path': '/models/m', 'api_key': '{0}', 'tp_size': 1}}",
    "server_args={{'ssl_keyfile_password': '{0}'}}",
    '{{"api_key": "{0}", "port": 1}}',
    "'launch_command': 'python -m sglang.launch_server --api-key {0}'",
    "python -m sglang.launch_server --api-key={0} --port 1",
    "argv: ['--api-key', '{0}', '--port', '1']",
    "python -m sglang.launch_server --admin-api-key {0}",
    "Authorization: Bearer {0}",
    "curl -H 'Authorization: Bearer {0}' http://h",
    "Environment=HF_TOKEN={0} PATH=/usr/bin",
    "HUGGING_FACE_HUB_TOKEN={0}",
    "GET https://user:{0}@mirror.example/simple failed",
    "https://{0}@mirror.example/simple",
    "password: {0}",
    "server_args=ServerArgs(model_path='/models/m', api_key='{0}",
]


@pytest.mark.parametrize("line", LINES)
def test_a_secret_is_masked_by_what_stands_before_it(line):
    canary = "cAnArY0123456789"
    masked = mask_text(line.format(canary))
    assert canary not in masked
    assert MASK in masked


@pytest.mark.parametrize("token", ["hf_AbCdEfGhIjKlMnOp", "sk-0123456789abcdef", "nvapi-0123456789abcdef"])
def test_a_token_is_masked_by_its_shape(token):
    assert mask_text("found " + token + " here") == "found " + MASK + " here"


@pytest.mark.parametrize(
    "line",
    [
        "[2026-05-31 10:15:07 TP0] max_total_num_tokens=195011, chunked_prefill_size=4096",
        "KV Cache is allocated. #tokens: 195011, K size: 1.00 GB, V size: 1.00 GB",
        "Decode batch, #running-req: 1, #token: 83, token usage: 0.00",
        "server_args=ServerArgs(tokenizer_path='/models/m', api_key=None, admin_api_key=None, tokenizer_mode='auto')",
        "api_key: null",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB.",
        "http://127.0.0.1:30000/v1/models",
        "Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:01<00:00,  1.90it/s]",
    ],
)
def test_what_is_no_secret_stays(line):
    assert mask_text(line) == line


def test_the_rest_of_the_line_stays():
    line = "ServerArgs(port=30000, api_key='k e y', tp_size=8)"
    assert mask_text(line) == "ServerArgs(port=30000, api_key='" + MASK + "', tp_size=8)"


def test_a_known_secret_is_masked_in_every_spelling():
    secret = "pa'ss\\wö/rd"
    for text in (secret, repr(secret), "x=pa%27ss%5Cw%C3%B6%2Frd", '"pa\'ss\\\\w\\u00f6/rd"'):
        assert "rd" not in mask_text(text, [secret]), text


def test_the_longer_of_two_secrets_leaves_no_tail():
    assert mask_text("abcdef-tail", ["abcdef", "abcdef-tail"]) == MASK


def test_short_words_are_no_secrets():
    assert mask_text("a b c", ["a", "", " "]) == "a b c"


def test_data_is_masked_by_key_and_by_value():
    data = {
        "api_key": "x1y2",
        "nested": [{"HF_TOKEN": 12345, "note": "key is topsecret"}],
        "count": 3,
        "none": None,
        "token_usage": 0.5,
        "password": None,
        "topsecret": ("a", True),
    }
    assert mask_data(data, ["topsecret"]) == {
        "api_key": MASK,
        "nested": [{"HF_TOKEN": MASK, "note": "key is " + MASK}],
        "count": 3,
        "none": None,
        "token_usage": 0.5,
        "password": None,
        MASK: ["a", True],
    }
    assert data["api_key"] == "x1y2"


def test_masking_twice_changes_nothing():
    for line in LINES:
        once = mask_text(line.format("cAnArY0123456789"))
        assert mask_text(once) == once


SECRET = st.text(alphabet=string.ascii_letters + string.digits + "-._~+/=", min_size=8, max_size=60)


@given(SECRET, st.sampled_from(LINES), st.text(max_size=40))
def test_a_canary_never_survives_where_a_secret_stands(secret, line, noise):
    # A URL ends its credentials at a slash; a key that holds one is not a valid part of it.
    assume("mirror.example" not in line or "/" not in secret)
    # What a sentence or an option could be is not told from a value.
    assume(secret[0].isalnum() and secret[-1].isalnum())
    assume(secret not in line and secret not in noise and secret.lower() not in ("none", "null", "true", "false"))
    assert secret not in mask_text(noise + "\n" + line.format(secret))


@given(st.text(min_size=4, max_size=60), st.text(), st.text())
def test_a_canary_that_is_known_never_survives(secret, before, after):
    assume(secret.strip())
    assume(secret not in MASK)
    masked = mask_text(before + secret + after, [secret])
    # The mask itself and its neighbours may by chance spell a secret made of asterisks.
    assert secret not in masked.replace(MASK, "\0") or "*" in secret


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
        max_leaves=20,
    ),
    st.text(min_size=4),
)
def test_no_data_makes_masking_raise(data, secret):
    mask_data(data, [secret])
