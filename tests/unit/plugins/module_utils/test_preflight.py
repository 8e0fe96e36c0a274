# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in an inventory. What variables exist is read from the roles, so that a change there is seen here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.sglang.plugins.module_utils import _engine, _preflight, _preflight_rules

ROLES = Path(__file__).resolve().parents[4] / "roles"
NAMES = ("sglang_engine", "sglang_model", "sglang_server")
SPECS = {name: yaml.safe_load((ROLES / name / "meta" / "argument_specs.yml").read_text()) for name in NAMES}
OPTIONS = _preflight.options_of(SPECS)

GOOD = {"sglang_model_path": "/srv/models/m", "sglang_server_target_tokens": 200000}


def sentences(**change):
    variables = {**GOOD, **change}
    variables = {name: value for name, value in variables.items() if value is not ...}
    return [one.sentence for one in _preflight.findings(variables, SPECS)]


def test_a_good_inventory_has_no_findings():
    assert sentences() == []


def test_an_inventory_with_all_that_is_allowed_has_no_findings():
    assert (
        sentences(
            sglang_server_context_tokens="auto",
            sglang_server_mem_fraction_static=0.93,
            sglang_server_chunked_prefill_size=-1,
            sglang_server_allocator_conf="expandable_segments:True",
            sglang_server_min_headroom_gib="2.5",
            sglang_server_port="30001",
            sglang_server_arguments={
                "tp-size": 8,
                "enable_metrics": True,
                "x": {"a": [1]},
                "y": "-a",
                "z": "cost-$HOME",
            },
            sglang_server_arguments_host={"tp": 4},
            sglang_server_environment={
                "NCCL_DEBUG": "INFO",
                "OMP_NUM_THREADS": 8,
                "A": "has space",
                "NCCL_SOCKET_IFNAME": "eth0 eth1",
                "Q": "it's",
                "EMPTY": "",
                "PROMPT": 'p$ss%w $HOME "~"',
                "PATH": "/opt/rocm/bin:/usr/local/bin:/usr/bin",
                "CUDA_HOME": "/usr/local/cuda",
                "HF_HOME": "/var/lib/hf",
                "LD_LIBRARY_PATH": "/a:/b",
            },
            sglang_server_environment_host={"NCCL_DEBUG": None},
            sglang_server_api_key="p$ss%w\"or'd",
            sglang_server_admin_api_key="k" * 64,
            sglang_server_boards_wait_seconds=0,
            sglang_server_journal_max_use="1.5G",
            sglang_server_journal_persistent=False,
            sglang_server_unit_extra={
                "Service": {"MemoryMax": "900G", "Nice": -5, "ReadWritePaths": ["/a", "/b"]},
                "Unit": {"After": "a.service", "Wants": ""},
            },
            sglang_server_cache_dir="/var/cache/sg_lang-1.0+x@y:z,a=b",
            sglang_server_cuda_home="",
            sglang_server_soak="none",
            sglang_engine_version="0.5.10rc0",
            sglang_hosts="gpu",
            sglang_server_outcomes={},
        )
        == []
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # names
        ({"sglang_server_taget_tokens": 1}, "did you mean sglang_server_target_tokens?"),
        ({"sglang_sever_port": 1}, "did you mean sglang_server_port?"),
        ({"sglang_server_colour_of_rack": 1}, "sglang_preflight_known_names"),
        # types
        ({"sglang_server_allow_unproven_plan": "false"}, """-e '{"sglang_server_allow_unproven_plan": false}'"""),
        ({"sglang_server_defer_failure": "yes"}, "sglang_server_defer_failure: true"),
        ({"sglang_server_defer_failure": 1}, "expected true or false, found 1"),
        ({"sglang_server_target_tokens": "many"}, "expected a whole number, found 'many'"),
        ({"sglang_server_target_tokens": 1.5}, "expected a whole number"),
        ({"sglang_server_target_tokens": True}, "expected a whole number, found True"),
        # digits only: a text such as 128k means two numbers, and 30000.0 is no port to the engine
        ({"sglang_server_target_tokens": "128k"}, "found '128k': write the number with digits only, without a unit"),
        ({"sglang_server_target_tokens": "2e5"}, "found '2e5': write 200000"),
        ({"sglang_server_target_tokens": "200_000"}, "found '200_000': write 200000"),
        ({"sglang_server_port": 30000.0}, "expected a whole number, found 30000.0: write 30000"),
        ({"sglang_server_context_tokens": "1e3"}, "expected auto, or a whole number of at least 1, found '1e3'"),
        ({"sglang_server_target_tokens": float("inf")}, "expected a whole number, found inf"),
        # texts that are no booleans, also with the line break that a block of Jinja leaves
        ({"sglang_server_allow_unproven_plan": "False\n"}, "write sglang_server_allow_unproven_plan: false"),
        ({"sglang_server_defer_failure": "no"}, "write sglang_server_defer_failure: false"),
        ({"sglang_server_overwrite_drift": " True "}, "write sglang_server_overwrite_drift: true"),
        (
            {"sglang_server_restart_pending": "maybe"},
            "write sglang_server_restart_pending: true or sglang_server_restart_pending: false",
        ),
        ({"sglang_server_journal_persistent": "no"}, "write sglang_server_journal_persistent: false"),
        ({"sglang_server_arguments": "--tp 8"}, "expected a dictionary, found '--tp 8'"),
        ({"sglang_engine_extra_packages": "vllm"}, "expected a list"),
        ({"sglang_engine_extra_packages": [{"name": "vllm"}]}, "expected a list of texts"),
        ({"sglang_server_instances": ["a"]}, "expected a list of dictionaries"),
        ({"sglang_server_host": ["a"]}, "expected one text"),
        ({"sglang_server_pool_policy": "fil"}, "expected one of promise, fill (did you mean fill?), found 'fil'"),
        # ranges
        ({"sglang_server_mem_fraction_static": 1.2}, "between 0 and 1 (both excluded), found 1.2"),
        ({"sglang_server_mem_fraction_static": 93}, "between 0 and 1"),
        ({"sglang_server_mem_fraction_static": 0}, "between 0 and 1"),
        ({"sglang_server_mem_fraction_static": "automatic"}, "expected auto, or a number between"),
        ({"sglang_server_chunked_prefill_size": 0}, "expected auto, -1, or a whole number of at least 1, found 0"),
        ({"sglang_server_port": 70000}, "from 1 to 65535, found 70000"),
        ({"sglang_server_target_tokens": 0}, "at least 1, found 0"),
        ({"sglang_server_min_headroom_gib": -1}, "at least 0, found -1"),
        ({"sglang_server_boards_wait_seconds": 3601}, "from 0 to 3600, found 3601"),
        ({"sglang_server_boards_wait_seconds": -1}, "from 0 to 3600, found -1"),
        ({"sglang_server_journal_max_use": "much"}, "expected a size such as 2G, found 'much'"),
        ({"sglang_server_journal_max_use": "0"}, "expected a size such as 2G, found '0'"),
        ({"sglang_server_journal_max_use": "2G\nStorage=none"}, "expected a size such as 2G"),
        ({"sglang_model_workers": 0}, "from 1 to 32"),
        # contradictions
        ({"sglang_server_target_tokens": ...}, "sglang_server_target_tokens: 200000"),
        ({"sglang_server_context_tokens": 200001}, "longer than the pool"),
        ({"sglang_server_arguments": {"mem_fraction_static": 0.9}}, "use sglang_server_mem_fraction_static"),
        ({"sglang_server_arguments_host": {"--max-total-tokens": 5}}, "use sglang_server_target_tokens"),
        ({"sglang_server_arguments_group": {"model": "/x"}}, "use sglang_server_model_path"),
        ({"sglang_server_arguments": {"tp": 4, "tensor-parallel-size": 8}}, "sglang_server_arguments: "),
        # values that cannot be written on a command line
        (
            {"sglang_server_arguments": {"served-model-name": "a\nb"}},
            "served-model-name on one line, found a line break",
        ),
        ({"sglang_server_arguments_host": {"x": [1, None]}}, "sglang_server_arguments_host: Expected a value for"),
        ({"sglang_server_arguments": {"x": ["-a"]}}, "begins with '-' in a list"),
        ({"sglang_server_arguments": {"x": float("nan")}}, "a finite number in the server argument x"),
        ({"sglang_server_arguments": {"tp-size=8": True}}, "'tp-size' with '=' behind it"),
        ({"sglang_server_arguments": {"": True}}, "the name of a server argument"),
        # the environment
        ({"sglang_server_environment": {"A": "line1\nline2"}}, "the variable A on one line, found a line break"),
        ({"sglang_server_environment": {"A-B": "1"}}, "'A' with '-' behind it"),
        ({"sglang_server_environment": {"GPUFLEET_SGLANG_CONFIG": "x"}}, "names that begin so are the unit's own"),
        ({"sglang_server_environment_host": {"INVOCATION_ID": "x"}}, "which systemd itself gives"),
        ({"sglang_server_environment": {"CUDA_HOME": ":/usr/local/cuda-12.8"}}, "no empty folder in CUDA_HOME"),
        ({"sglang_server_environment": {"CUDA_HOME": "cuda"}}, "expected an absolute folder for CUDA_HOME"),
        (
            {"sglang_server_environment": {"CUDA_HOME": "/a"}, "sglang_server_cuda_home": "/b"},
            "has CUDA_HOME, which sglang_server_cuda_home sets",
        ),
        ({"sglang_server_environment": {"PATH": "$PATH:/usr/local/cuda/bin"}}, "or use sglang_server_cuda_home"),
        ({"sglang_server_environment": {"PATH": "/usr/bin:${X}/bin"}}, "nothing expands '$' in a unit"),
        ({"sglang_server_environment": {"PATH": ":/usr/bin"}}, "no empty folder in PATH"),
        ({"sglang_server_environment": {"PATH": "/usr/bin:"}}, "no empty folder in PATH"),
        ({"sglang_server_environment": {"PATH": "/a::/usr/bin"}}, "no empty folder in PATH"),
        ({"sglang_server_environment": {"PATH": "/usr/bin:bin"}}, "expected absolute folders in PATH"),
        ({"sglang_server_environment": {"PATH": "/usr/local/cuda/bin"}}, "expected /usr/bin in PATH"),
        ({"sglang_server_environment": {"PATH": "/usr/bin:~/bin"}}, "nothing expands '~'"),
        ({"sglang_server_environment": {"PATH": ""}}, "expected absolute folders in PATH"),
        ({"sglang_server_environment": {"LD_LIBRARY_PATH": "/a:$LD_LIBRARY_PATH"}}, "write the whole list"),
        ({"sglang_server_environment": {"HF_HOME": "~/hf"}}, "expected an absolute folder for HF_HOME"),
        ({"sglang_server_environment": {"TRITON_CACHE_DIR": "~sglang/t"}}, "folder for TRITON_CACHE_DIR"),
        ({"sglang_server_environment": {"HOME": "$HOME"}}, "nothing expands '$'"),
        ({"sglang_server_environment": {"HF_HUB": "${HOME}/hub"}}, "nothing expands '$'"),
        ({"sglang_server_environment": {"TORCH_EXTENSIONS": "~/t"}}, "nothing expands '~'"),
        ({"sglang_server_environment": {"NCCL_X": True}}, "expected a text for NCCL_X, found True"),
        (
            {
                "sglang_server_environment": {"PYTORCH_ALLOC_CONF": "a:1"},
                "sglang_server_environment_host": {"PYTORCH_CUDA_ALLOC_CONF": "a:1"},
            },
            "are both set",
        ),
        (
            {
                "sglang_server_environment": {"PYTORCH_ALLOC_CONF": "a:1"},
                "sglang_server_allocator_conf": "expandable_segments:True",
            },
            "remove the one in the environment",
        ),
        ({"sglang_server_environment": {"PYTORCH_ALLOC_CONF": ""}}, "allocator in PYTORCH_ALLOC_CONF, found none"),
        ({"sglang_server_environment_host": {"PYTORCH_CUDA_ALLOC_CONF": " "}}, "PYTORCH_CUDA_ALLOC_CONF, found none"),
        ({"sglang_server_environment": {"PYTORCH_ALLOC_CONF": "expandable"}}, "expected key:value pairs"),
        (
            {"sglang_server_environment": {"PYTORCH_ALLOC_CONF": "a:1"}, "sglang_server_allocator_conf": ""},
            "remove the one in the environment",
        ),
        ({"sglang_server_allocator_conf": "expandable_segments:true"}, "expandable_segments:True or"),
        ({"sglang_server_allocator_conf": "expandable"}, "expected key:value pairs"),
        ({"sglang_server_allocator_conf": "expandable_segments:True,max_split_size_mb:64"}, "exclude each other"),
        ({"sglang_server_name": "my server"}, "unit's name"),
        ({"sglang_server_model_path": "models/m"}, "expected an absolute folder"),
        ({"sglang_engine_root": "engines"}, "expected an absolute folder"),
        # folders that stand in the unit
        ({"sglang_model_path": "/srv/my models/m"}, "because it stands in the unit, found '/srv/my models/m'"),
        ({"sglang_server_model_path": "/srv/50%"}, "stands in the unit, found '/srv/50%'"),
        ({"sglang_server_model_path": '/srv/a"b'}, "stands in the unit"),
        ({"sglang_server_cache_dir": "/var/$USER"}, "stands in the unit"),
        ({"sglang_server_state_dir": "/var/lib/x\n"}, "stands in the unit"),
        ({"sglang_server_config_dir": "/etc/über"}, "stands in the unit"),
        ({"sglang_server_cuda_home": ":/usr/local/cuda-12.8"}, "expected an absolute folder"),
        ({"sglang_server_cuda_home": "/usr/local/cuda:/opt"}, "stands in the unit"),
        ({"sglang_server_cuda_home": "/opt/cuda 13"}, "stands in the unit"),
        ({"sglang_server_engine_root": "/opt/a:b"}, "stands in the unit"),
        ({"sglang_server_instances": [{"name": "a", "cuda_home": "cuda"}]}, "cuda_home in instance a: expected an abs"),
        ({"sglang_server_engine_version": "newest"}, "sglang_server_engine_version: expected one exact release"),
        # further directives of the unit
        ({"sglang_server_unit_extra": {"Servce": {}}}, "below one of Unit, Service, Install, found 'Servce'"),
        ({"sglang_server_unit_extra": {"Service": "MemoryMax=1G"}}, "a dictionary of directives below one of"),
        ({"sglang_server_unit_extra": {"Service": {"ExecStart": "/bin/x"}}}, "use sglang_server_arguments"),
        ({"sglang_server_unit_extra": {"Service": {"Environment": "A=1"}}}, "use sglang_server_environment"),
        ({"sglang_server_unit_extra": {"Service": {"LogFilterPatterns": ""}}}, "it keeps keys out of the journal"),
        (
            {"sglang_server_unit_extra": {"Service": {"ExecStartPost": "/bin/x --token=abcdef123"}}},
            "ExecStartPost holds what looks like a secret",
        ),
        ({"sglang_server_unit_extra": {"Service": {"Memory Max": "1G"}}}, "the name of a directive such as MemoryMax"),
        ({"sglang_server_unit_extra": {"Service": {"Nice": "1\nUser=root"}}}, "Nice on one line"),
        ({"sglang_server_unit_extra": {"Service": {"Nice": ["1", None]}}}, "a text, a number or a list of these"),
        ({"sglang_server_unit_extra": {"Unit": {"After": "a.service \\"}}}, "which would join it with the next line"),
        ({"sglang_model_path": ...}, "No model is named"),
        ({"sglang_engine_version": "latest"}, "one exact release"),
        ({"sglang_model_repo": "Qwen/Q"}, "The revision is not given"),
        ({"sglang_model_repo": "Qwen/Q", "sglang_model_revision": 0}, "put the hash in quotes"),
        ({"sglang_engine_version": True}, "one exact release"),
        ({"sglang_model_repo": "Qwen/Q", "sglang_model_revision": "main"}, "'main' is a branch"),
        ({"sglang_model_repo": "https://hub/Qwen/Q", "sglang_model_revision": "v1"}, "expected ORG/NAME"),
        # the fence
        ({"sglang_server_fence_after_failed": "x"}, "sglang_server_fence is none, so it never runs"),
        ({"sglang_server_fence": "command"}, "so nothing keeps clients away"),
        (
            {
                "sglang_server_fence": "tasks",
                "sglang_server_fence_before_stop": "a",
                "sglang_server_fence_after_failed": "b",
            },
            "sglang_server_fence_after_proven: expected the hook that lets clients back",
        ),
        # several servers
        ({"sglang_server_instances": [{"name": "a", "prot": 1}]}, "did you mean port?"),
        ({"sglang_server_instances": [{"port": 1}]}, "expected a name, found none"),
        ({"sglang_server_instances": [{"name": "a", "port": 0}]}, "sglang_server_port in instance a"),
        ({"sglang_server_instances": [{"name": "a", "soak": "long"}]}, "soak in sglang_server_instances[0]"),
        ({"sglang_server_instances": [{"name": "a"}, {"name": "a", "port": 1}]}, "the name a"),
        ({"sglang_server_instances": [{"name": "a"}, {"name": "b"}]}, "port 30000"),
    ],
)
def test_a_mistake_is_found_once_and_said_in_one_line(change, expected):
    found = sentences(**change)
    assert [one for one in found if expected in one], found
    assert len(found) == 1, found
    assert "\n" not in found[0]


def test_all_findings_come_in_one_report():
    found = sentences(
        sglang_server_target_tokens=..., sglang_server_port=0, sglang_server_soak="long", sglang_server_prt=1
    )
    assert len(found) == 4


def test_a_server_may_promise_for_itself():
    change = {"sglang_server_target_tokens": ..., "sglang_server_instances": [{"name": "a", "target_tokens": 5}]}
    assert sentences(**change) == []


def test_roles_that_are_not_used_are_not_asked_for():
    assert _preflight.findings({}, {"sglang_engine": SPECS["sglang_engine"]}) == []


def test_names_of_ones_own_can_be_listed():
    assert _preflight.findings({**GOOD, "sglang_server_rack": 1}, SPECS, ("sglang_server_rack",)) == []


def test_a_secret_is_not_shown():
    assert "hf_abc" not in sentences(sglang_model_token=["hf_abc"])[0]


LAYERS = ("", "_group", "_host")


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("config", "write what stands in your file as single arguments"),
        ("--config", "take its place and remove the key"),
        ("api-key", "use sglang_server_api_key"),
        ("api_key", "use sglang_server_api_key"),
        ("admin-api-key", "use sglang_server_admin_api_key"),
        ("--admin_api_key", "use sglang_server_admin_api_key"),
        ("ssl-keyfile-password", "end TLS in a proxy"),
        ("ssl_keyfile_password", "in the list of processes"),
    ],
)
def test_an_argument_that_shows_or_removes_a_key_is_refused(layer, name, expected):
    found = sentences(**{"sglang_server_arguments" + layer: {name: "s3cr3t"}})
    assert len(found) == 1, found
    assert found[0].startswith(f"sglang_server_arguments{layer} has {name}")
    assert expected in found[0]
    assert "s3cr3t" not in found[0]


@pytest.mark.parametrize("name", ["ssl-certfile", "ssl_keyfile"])
def test_a_server_that_would_speak_https_is_refused_before_its_start(name):
    (sentence,) = sentences(sglang_server_arguments={name: "/etc/ssl/x.pem"})
    assert sentence == (
        "sglang_server_arguments has %s: then the server speaks https only, and what waits for it, loads it and "
        "verifies it asks over http: remove it there and end TLS in a proxy in front of the server." % name
    )


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mem-frac", "short for mem-fraction-static, and sglang_server_mem_fraction_static sets that"),
        ("max-total", "short for max-total-tokens, and sglang_server_target_tokens sets that"),
        ("chunked_prefill", "short for chunked-prefill-size"),
        ("context-len", "short for context-length"),
        ("por", "short for port"),
        ("hos", "short for host"),
        ("model-pat", "short for model-path"),
        ("api", "short for api-key, and sglang_server_api_key sets that"),
        ("--admin_api", "short for admin-api-key, and sglang_server_admin_api_key sets that"),
        ("conf", "can take for config: "),
        ("ssl-keyfile-pass", "can take for ssl-keyfile-password: "),
        ("ssl-cert", "can take for ssl-certfile: "),
    ],
)
def test_the_beginning_of_such_an_argument_is_refused_too(layer, name, expected):
    found = sentences(**{"sglang_server_arguments" + layer: {name: "s3cr3t"}})
    assert len(found) == 1, found
    assert found[0].startswith(f"sglang_server_arguments{layer} has {name}, which ")
    assert expected in found[0]
    assert "s3cr3t" not in found[0]


KEYS = ("sglang_server_api_key", "sglang_server_admin_api_key")


@pytest.mark.parametrize("variable", KEYS)
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("s3cr3t with blanks", "printable ASCII without blanks"),
        ("s3cr3t\n", "printable ASCII without blanks"),
        ("s3cr3tä", "printable ASCII without blanks"),
        ("-s3cr3t", "not beginning with '-'"),
        ("s3cr3t7", "at least 8 signs"),
        ("3330333033", "not only digits"),
        (3330, "put it in quotes"),
        (True, "put it in quotes"),
        (["s3cr3t"], "expected one text, found a secret"),
    ],
)
def test_a_key_that_cannot_be_handed_over_is_refused_and_not_shown(variable, key, expected):
    found = sentences(**{variable: key})
    assert len(found) == 1, found
    assert found[0].startswith(variable)
    assert expected in found[0]
    assert not re.search("s3c|3330|True", found[0])


@pytest.mark.parametrize(
    ("variable", "version", "refused"),
    [
        ("sglang_server_api_key", "0.5.2", True),
        ("sglang_server_api_key", "0.5.3rc1", True),
        ("sglang_server_api_key", "0.5.3", False),
        ("sglang_server_api_key", "0.5.23", False),
        ("sglang_server_admin_api_key", "0.5.7", True),
        ("sglang_server_admin_api_key", "0.5.8", False),
    ],
)
@pytest.mark.parametrize("where", ["sglang_engine_version", "sglang_server_engine_version"])
def test_a_key_needs_an_engine_that_takes_it_from_a_file(variable, version, refused, where):
    found = sentences(**{variable: "s3cr3t-key", where: version})
    assert len(found) == int(refused), found
    if refused:
        assert f"or later, found {version}: older engines have no --" in found[0]
        assert "s3cr3t-key" not in found[0]


def test_the_engine_of_a_server_counts_for_its_key():
    entries = [
        {"name": "a", "engine_version": "0.5.2", "api_key": "s3cr3t-key"},
        {"name": "b", "port": 1, "api_key": "s3cr3t-key"},
    ]
    found = sentences(sglang_engine_version="0.5.23", sglang_server_instances=entries)
    assert [one.partition(" needs ")[0] for one in found] == ["sglang_server_api_key in instance a"]


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
@pytest.mark.parametrize("own", [{}, {"sglang_server_allocator_conf": "auto"}])
def test_a_name_of_the_allocator_may_be_chosen(name, own):
    assert sentences(sglang_server_environment={name: "expandable_segments:True"}, **own) == []


def test_a_name_of_the_allocator_that_a_host_removes_is_not_set():
    change = {
        "sglang_server_environment": {"PYTORCH_CUDA_ALLOC_CONF": "a:1"},
        "sglang_server_environment_host": {"PYTORCH_CUDA_ALLOC_CONF": None, "PYTORCH_ALLOC_CONF": "a:1"},
    }
    assert sentences(**change) == []


def test_numbers_that_templates_and_the_command_line_made_texts_are_numbers():
    change = {
        "sglang_server_target_tokens": "131072",
        "sglang_server_mem_fraction_static": "0.85",
        "sglang_server_port": " 30000 ",
        "sglang_server_arguments": {"tp-size": "8", "schedule-conservativeness": 0.00001},
    }
    assert sentences(**change) == []


def test_a_value_that_is_recognisably_a_secret_is_not_shown():
    found = sentences(sglang_server_environment={"HF_HOME": "~/hf_Abcdefghijklmnop", "X": ["http://me:s3cr3t@proxy"]})
    assert len(found) == 2, found
    assert not re.search("Abcdef|s3cr3t", "".join(found))


def test_a_secret_in_the_place_of_a_name_is_not_shown():
    found = sentences(
        sglang_server_arguments={"api-key=s3cr3t": True}, sglang_server_environment={"HF_TOKEN=s3cr3t": "1"}
    )
    assert len(found) == 2, found
    assert "s3cr3t" not in "".join(found)


@pytest.mark.parametrize("name", ["config-format", "file-storage-path", "tokenizer-path"])
def test_an_argument_with_a_name_like_these_is_allowed(name):
    assert sentences(sglang_server_arguments={name: "x"}) == []


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("value", ["s3cr3t", ["s3cr3t"]])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HF_TOKEN", "the hub's token belongs to sglang_model_token"),
        ("HUGGING_FACE_HUB_TOKEN", "the hub's token belongs to sglang_model_token"),
        ("OPENAI_API_KEY", "a key of the server belongs to sglang_server_api_key"),
        ("API_KEY", "shown in diffs"),
        ("SGLANG_DIFFUSION_SLACK_TOKEN", "shown in diffs"),
        ("AWS_SECRET_ACCESS_KEY", "shown in diffs"),
        ("REDIS_PASSWORD", "shown in diffs"),
        ("OAUTH_CLIENT_SECRET", "shown in diffs"),
        ("my_token", "shown in diffs"),
    ],
)
def test_a_secret_in_the_environment_is_refused_and_not_shown(layer, value, name, expected):
    found = sentences(**{"sglang_server_environment" + layer: {name: value}})
    assert len(found) == 1, found
    assert found[0].startswith(f"sglang_server_environment{layer} has {name}, ")
    assert expected in found[0]
    assert "s3cr3t" not in found[0]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN_PATH",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
        "SGLANG_MAX_THINK_TOKENS",
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
        "SGLANG_INIT_NEW_TOKEN_RATIO",
        "SGLANG_LOG_DECODE_GRAPH_KEY",
        "TOKENIZERS_PARALLELISM",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AWS_SHARED_CREDENTIALS_FILE",
    ],
)
def test_a_variable_with_a_name_like_a_secret_is_allowed(name):
    assert sentences(sglang_server_environment={name: "1"}) == []


def test_one_server_of_several_is_named_with_its_secret():
    entries = [
        {"name": "a", "environment": {"HF_TOKEN": "s3cr3t"}},
        {"name": "b", "port": 1, "arguments_host": {"config": "/etc/x.yaml"}},
    ]
    found = sentences(sglang_server_instances=entries)
    assert [one.partition(" has ")[0] for one in found] == [
        "sglang_server_environment in instance a",
        "sglang_server_arguments_host in instance b",
    ]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"name": "a", "model_path": "/m/a"}, {"name": "b", "port": 1, "model_path": "/m/b"}], 0),
        ([{"name": "a", "model_path": "/m/a"}, {"name": "b", "port": 1}], 1),
        ([{"name": "a"}], 1),
    ],
)
def test_no_model_is_needed_where_every_server_has_its_own(entries, expected):
    found = sentences(sglang_model_path=..., sglang_server_instances=entries)
    assert len(found) == expected
    assert all("No model is named" in one for one in found)


# Drift: the tables here against the roles' own specifications.


@pytest.mark.parametrize("rule", _preflight_rules.RANGES, ids=lambda rule: rule.variable)
def test_every_range_is_about_a_variable_that_exists(rule):
    assert rule.variable in OPTIONS
    kind = OPTIONS[rule.variable]["type"]
    assert kind == ("str" if rule.words or rule.also else "int" if rule.whole else "float")
    default = OPTIONS[rule.variable].get("default")
    assert list(_preflight_rules.wrong_ranges("x", default, rule)) == []


@pytest.mark.parametrize("row", _preflight_rules.OWNED, ids=lambda row: row.argument)
def test_every_owned_argument_has_a_variable_and_a_canonical_name(row):
    assert row.variable in OPTIONS
    assert _engine.canonical_name(row.argument) == row.argument


@pytest.mark.parametrize("row", _preflight_rules.REFUSED, ids=lambda row: row.argument)
def test_every_refused_argument_has_its_canonical_name_and_names_variables_that_exist(row):
    assert _engine.canonical_name(row.argument) == row.argument
    assert set(re.findall(r"sglang_[a-z]+_[a-z_]+", row.instead)) - set(OPTIONS) == set()


def test_every_number_of_the_roles_has_a_range():
    numbers = {name for name, option in OPTIONS.items() if option.get("type") in ("int", "float")}
    numbers |= {
        name for name, option in OPTIONS.items() if option.get("type") == "str" and option.get("default") == "auto"
    }
    texts = {"sglang_engine_python", "sglang_server_allocator_conf"}
    assert numbers - texts == {rule.variable for rule in _preflight_rules.RANGES}


def test_the_defaults_of_the_roles_have_no_findings():
    variables = dict(GOOD)
    for name in NAMES:
        defaults = yaml.safe_load((ROLES / name / "defaults" / "main.yml").read_text())
        variables.update((key, value) for key, value in defaults.items() if "{{" not in str(value))
    assert [one.sentence for one in _preflight.findings({**variables, **GOOD}, SPECS)] == []


# --- settings that do not go together ---------------------------------------------------------------------------------

EXPANDABLE = {"sglang_server_allocator_conf": "expandable_segments:True"}
SAVER = {"sglang_server_arguments": {"enable-memory-saver": True}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({**EXPANDABLE, **SAVER}, "(sglang_server_allocator_conf) with torch_memory_saver"),
        (
            {"sglang_server_environment": {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, **SAVER},
            "(PYTORCH_ALLOC_CONF in sglang_server_environment) with torch_memory_saver",
        ),
        (
            {
                **EXPANDABLE,
                "sglang_server_arguments": {"tp": 2},
                "sglang_server_arguments_host": {"enable_symm_mem": True},
            },
            "remove enable-symm-mem",
        ),
        (
            {
                **EXPANDABLE,
                "sglang_server_arguments": {"disaggregation-mode": "decode"},
                "sglang_server_environment": {"MOONCAKE_PROTOCOL": "efa"},
            },
            "Mooncake over EFA",
        ),
        ({**EXPANDABLE, "sglang_server_arguments": {"weight-cache-mode": "daemon"}}, "a daemon for weights"),
    ],
)
def test_what_no_host_makes_good_is_refused(change, said):
    (found,) = sentences(**change)
    assert said in found
    assert sentences(**change, sglang_server_allow_unproven_plan=True) == []


@pytest.mark.parametrize(
    "change",
    [
        SAVER,
        {**SAVER, "sglang_server_allocator_conf": "auto"},
        {**SAVER, "sglang_server_allocator_conf": "expandable_segments:False"},
        # One rank uses no symmetric memory.
        {**EXPANDABLE, "sglang_server_arguments": {"enable-symm-mem": True}},
        # These depend on the boards, on torch or on the model, or may be tried.
        {**EXPANDABLE, "sglang_server_arguments": {"tp-size": 2}, "sglang_engine_version": "0.5.9"},
        {"sglang_server_environment": {"PYTORCH_ALLOC_CONF": "a:1"}, "sglang_engine_version": "0.5.2"},
        {**EXPANDABLE, "sglang_server_arguments": {"mm-feature-transport": "cuda_ipc", "moe-a2a-backend": "deepep"}},
    ],
)
def test_what_a_host_decides_is_left_to_its_plan(change):
    assert sentences(**change) == []


def test_a_conflict_names_its_instance():
    instances = [{"name": "a"}, {"name": "b", "port": 30001, "arguments": {"enable-memory-saver": True}}]
    (found,) = sentences(**EXPANDABLE, sglang_server_instances=instances)
    assert "sglang_server_allocator_conf in instance b" in found


def test_what_cannot_be_merged_is_said_once():
    (found,) = sentences(**EXPANDABLE, sglang_server_arguments={"tp": 2, "tp-size": 2, "enable-memory-saver": True})
    assert "tp" in found
    assert "torch_memory_saver" not in found
