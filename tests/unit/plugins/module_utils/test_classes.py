from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _classes

REQUEST = {
    "arguments": {"tp-size": 8, "served-model-name": "kimi", "port": 30000},
    "environment": {"NCCL_DEBUG": "WARN", "SGLANG_ENABLE_JIT_DEEPGEMM": "1"},
    "target_tokens": 200000,
    "hardening": "safe",
}

UNIT = """# Ansible managed
[Unit]
Description=SGLang server main
[Service]
# why
Environment=A=1
Environment="PATH=/x y/bin" TERM=dumb
ExecStart=/x/python -m sglang.launch_server \\
    "--port" \\
    "30000"
TimeoutStopSec=60
LimitNOFILE=1048576
[Install]
WantedBy=multi-user.target
"""


def change(**changed):
    digests = _classes.request_digests
    return _classes.request_change(digests(REQUEST), digests(dict(REQUEST, **changed)))


@pytest.mark.parametrize(
    ("changed", "change_class", "items"),
    [
        ({}, "nothing", []),
        ({"hardening": "strict"}, "restart_ready", ["hardening"]),
        ({"target_tokens": 190000}, "restart_soak", ["target_tokens"]),
        ({"arguments": dict(REQUEST["arguments"], port=30001)}, "restart_ready", ["arguments.port"]),
        ({"arguments": dict(REQUEST["arguments"], **{"tp-size": 4})}, "restart_soak", ["arguments.tp-size"]),
        # An argument that nobody classified matters, and so does one that is taken away.
        ({"arguments": dict(REQUEST["arguments"], **{"new-thing": 1})}, "restart_soak", ["arguments.new-thing"]),
        ({"arguments": {"tp-size": 8, "port": 30000}}, "restart_ready", ["arguments.served-model-name"]),
        ({"environment": dict(REQUEST["environment"], NCCL_DEBUG="I")}, "restart_ready", ["environment.NCCL_DEBUG"]),
        ({"environment": {"NCCL_DEBUG": "WARN"}}, "restart_soak", ["environment.SGLANG_ENABLE_JIT_DEEPGEMM"]),
        ({"hardening": "none", "user": "x"}, "restart_ready", ["hardening", "user"]),
    ],
)
def test_what_a_declared_difference_costs(changed, change_class, items):
    found = change(**changed)
    assert (found.change_class, [item for _class, item in found.items]) == (change_class, items)


def test_the_spelling_of_a_number_is_no_difference():
    assert change(target_tokens="200000.0").change_class == "nothing"


@pytest.mark.parametrize("name", ["mem-fraction-static", "max-total-tokens"])
def test_what_the_loop_moves_matters_when_it_is_declared(name):
    assert _classes.argument_class(name) == "restart_soak"


@pytest.mark.parametrize(
    ("before", "after", "change_class", "items"),
    [
        ("Description=SGLang server main", "Description=A server", "daemon_reload", ["Unit.Description"]),
        ("TimeoutStopSec=60", "TimeoutStopSec=90", "daemon_reload", ["Service.TimeoutStopSec"]),
        ("LimitNOFILE=1048576", "LimitNOFILE=65536", "pending", ["Service.LimitNOFILE"]),
        ("LimitNOFILE=1048576", "LimitNOFILE=1048576\nPrivateTmp=yes", "pending", ["Service.PrivateTmp"]),
        ("Environment=A=1\n", "", "restart_soak", ["Service.Environment.A"]),
        ("TERM=dumb", "TERM=linux", "pending", ["Service.Environment.TERM"]),
        ("PATH=/x y/bin", "PATH=/z", "restart_soak", ["Service.Environment.PATH"]),
        ("LimitNOFILE=1048576", "LimitNOFILE=1048576\nMemoryMax=1G", "restart_soak", ["Service.MemoryMax"]),
        ('"30000"', '"30001"', "restart_soak", ["Service.ExecStart"]),
        ("# why", "# another reason", "nothing", []),
        (' \\\n    "--port" \\\n    "30000"', ' "--port" "30000"', "nothing", []),
        ("multi-user", "graphical", "daemon_reload", ["Install.WantedBy"]),
    ],
)
def test_what_another_unit_costs(before, after, change_class, items):
    assert before in UNIT
    found = _classes.unit_change(UNIT, UNIT.replace(before, after))
    assert (found.change_class, [item for _class, item in found.items]) == (change_class, items)


def test_a_line_that_no_shell_would_read_is_a_difference_and_no_error():
    assert _classes.unit_change(UNIT, UNIT + "[Service]\nEnvironment=A=it's\n").change_class == "restart_soak"


def test_keys_that_are_the_same_are_no_change():
    assert _classes.keys_change(False) == _classes.keys_change(None) == _classes.Change()


@pytest.mark.parametrize(
    ("item", "label"),
    [
        ("keys", "a key (sglang_server_api_key, sglang_server_admin_api_key)"),
        ("arguments.tp-size", "the argument tp-size"),
        ("environment.TZ", "the variable TZ"),
        ("Service.LimitNOFILE", "LimitNOFILE of the unit"),
        ("Service.Environment.TERM", "Environment.TERM of the unit"),
        ("target_tokens", "sglang_server_target_tokens"),
    ],
)
def test_what_a_person_reads(item, label):
    assert _classes.label(item) == label


def test_the_order_of_several_lines_of_one_directive_counts():
    both = UNIT.replace("LimitNOFILE=1048576\n", "LimitNOFILE=1\nLimitNOFILE=2\n")
    swapped = UNIT.replace("LimitNOFILE=1048576\n", "LimitNOFILE=2\nLimitNOFILE=1\n")
    assert _classes.unit_change(both, swapped).of("pending") == ["Service.LimitNOFILE"]
    elsewhere = UNIT.replace("Environment=A=1\n", "") + "[Service]\nEnvironment=A=1\n"
    assert _classes.unit_change(UNIT, elsewhere).items == ()


def test_several_changes_cost_what_the_dearest_costs():
    both = _classes.together(_classes.keys_change(True), _classes.unit_change(UNIT, UNIT.replace("=1048576", "=5")))
    assert both.change_class == "restart_ready"
    assert both.items == (("restart_ready", "keys"), ("pending", "Service.LimitNOFILE"))


def test_every_row_has_a_known_class_and_a_reason():
    for row in _classes.ITEMS + _classes.ENVIRONMENT + _classes.DIRECTIVES:
        assert row.change_class in _classes.CLASSES
        assert row.why
