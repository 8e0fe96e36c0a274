from __future__ import annotations

import importlib

import pytest
from ansible.errors import AnsibleFilterError

PACKAGE = "ansible_collections.gpufleet.sglang.plugins.filter."


def load(name):
    return importlib.import_module(PACKAGE + name).FilterModule().filters()[name]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("server_arguments", ({"tp_size": 8, "enable-metrics": True},), ["--tp-size", "8", "--enable-metrics"]),
        ("systemd_argument", ("50% of $HOME",), '"50%% of $$HOME"'),
        ("systemd_environment_line", ("50% of $HOME", "PROMPT"), 'PROMPT="50% of \\$HOME"'),
        ("instance_settings", ({"port": 1}, {"port": 2}), {"port": 2}),
    ],
)
def test_what_comes_out(name, arguments, result):
    assert load(name)(*arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("server_arguments", ({"served-model-name": "a\nb"},)),
        ("systemd_argument", ("a\nb",)),
        ("systemd_environment_line", ("a\nb", "NAME")),
        ("instance_settings", ({"port": 1}, {"prot": 2})),
    ],
)
def test_bad_input_is_a_filter_error_and_no_traceback(name, arguments):
    with pytest.raises(AnsibleFilterError, match="Expected"):
        load(name)(*arguments)
