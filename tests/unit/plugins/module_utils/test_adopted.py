# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_adopted: a server made by hand, what it runs and what it teaches."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _adopted

ARGV = [
    "/srv/venv/bin/python", "-m", "sglang.launch_server", "--model-path", "/srv/models/kimi", "--tp", "8",
    "--port=30001",
    "--mem-fraction-static", "0.94", "--trust-remote-code", "--chunked-prefill-size", "-1",
    "--cuda-graph-bs", "1", "2", "4", "--api-key", "s3cr3t-0123",
]  # fmt: skip
READY = {
    "verdict": "holds",
    "startup": {
        "pool_tokens": 218000,
        "mem_fraction_static": 0.94,
        "chunked_prefill_size": 8192,
        "context_tokens": 262144,
        "free_before_load_gib": 93.0,
        "headroom_gib": 5.6,
    },
}
PLAN = {"quantity_keys": {"weights": "w"}, "cell_bytes": 77184, "engine_version": "0.5.14", "feasible": True}


def running(**more):
    return dict({"port": 30001, "arguments": _adopted.arguments_of(ARGV), "environment": {}}, **more)


def record(declared, plan=None, version="0.5.14", **more):
    runs = running(**more)
    situated = _adopted.situation(runs, READY, version)
    return _adopted.record(runs, "hand.service", READY, situated, PLAN if plan is None else plan, declared)


def test_a_command_line_is_read_by_its_one_names_and_without_its_key():
    found = _adopted.arguments_of(ARGV)
    assert found.pop("api-key") not in (None, "s3cr3t-0123")
    assert found == {
        "model-path": "/srv/models/kimi",
        "tp-size": 8,
        "port": 30001,
        "mem-fraction-static": 0.94,
        "trust-remote-code": True,
        "chunked-prefill-size": -1,
        "cuda-graph-bs": [1, "2", "4"],
    }


def test_of_an_argument_given_twice_the_last_one_counts():
    assert _adopted.arguments_of(["sglang", "serve", "--tp", "4", "--tensor-parallel-size", "8"]) == {"tp-size": 8}
    assert _adopted.arguments_of(["/bin/sleep", "7"]) == _adopted.arguments_of([]) == {}


DOCKER = [
    "/usr/bin/docker", "run", "--rm", "--gpus", "all", "--port", "1", "-v", "/m:/m", "lmsysorg/sglang:v0.5.9",
    "python3", "-m", "sglang.launch_server", "--model-path", "/m/kimi", "--tp", "8",
]  # fmt: skip


@pytest.mark.parametrize(
    "argv",
    [
        DOCKER,
        ["numactl", "--cpunodebind=0", "python", "-m", "sglang.launch_server", "--model-path", "/m/kimi", "--tp=8"],
        ["/srv/venv/bin/python", "-X", "dev", "/srv/venv/bin/sglang", "serve", "--model-path", "/m/kimi", "--tp", "8"],
        ["python", "/srv/sglang/python/sglang/launch_server.py", "--model-path", "/m/kimi", "--tp", "8"],
    ],
)
def test_arguments_begin_behind_the_launcher(argv):
    assert _adopted.arguments_of(argv) == {"model-path": "/m/kimi", "tp-size": 8}


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (DOCKER, "docker"),
        (["podman", "run", "image"], "podman"),
        (["/usr/bin/python3", "/usr/bin/docker-compose", "up"], "docker-compose"),
        (["sudo", "docker", "run", "image"], "docker"),
        (["/usr/bin/conmon", "--api-version", "1"], "conmon"),
        (["/bin/bash", "/usr/local/bin/serve", "docker"], None),
        (["python", "-m", "sglang.launch_server", "--served-model-name", "docker"], None),
        ([], None),
    ],
)
def test_a_program_that_starts_containers_is_known_by_its_name(argv, name):
    assert _adopted.container_program(argv) == name


def test_a_server_in_a_container_is_not_adopted():
    assert _adopted.refusal("hand.service", {"container": None}) == _adopted.refusal("hand.service", {}) == ""
    said = _adopted.refusal("hand.service", {"container": "docker"})
    assert said == (
        "Expected hand.service to run SGLang's launcher as a process of this host, found a container that docker runs, "
        "so it is not adopted: stop and disable it by hand, and leave sglang_server_adopt_unit empty."
    )


def test_of_the_environment_only_what_matters_is_read():
    environ = b"HOME=/root\0PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\0SGLANG_API_KEY=s3cr3t-0123\0SGL_X=1\0"
    found = _adopted.environment_of(environ)
    assert found.pop("SGLANG_API_KEY") != "s3cr3t-0123"
    assert found == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "SGL_X": "1"}
    assert _adopted.environment_of(b"") == {}


@pytest.mark.parametrize(
    ("argv", "venv"),
    [
        (["/srv/venv/bin/python", "-m", "x"], "/srv/venv"),
        (["/srv/venv/bin/sglang", "serve"], "/srv/venv"),
        (["python3", "-m", "x"], None),
        (["/srv/run.sh"], None),
        ([], None),
    ],
)
def test_the_virtual_environment_is_told_by_its_python(argv, venv):
    assert _adopted.venv_of(argv) == venv


def test_what_the_start_up_says_counts_more_than_what_it_was_told():
    found = _adopted.situation(running(environment={"PYTORCH_CUDA_ALLOC_CONF": "x:1", "SGL_X": "1"}), READY, None)
    assert (found["mem_fraction_static"], found["chunked_prefill_size"], found["context_tokens"]) == (
        0.94,
        8192,
        262144,
    )
    assert (found["allocator_conf"], found["environment"], found["engine_version"]) == ("x:1", {"SGL_X": "1"}, None)
    assert "mem-fraction-static" not in found["arguments"]
    silent = _adopted.situation(running(), {"startup": None})
    assert (silent["mem_fraction_static"], silent["chunked_prefill_size"]) == (0.94, -1)
    assert _adopted.situation({}, {})["mem_fraction_static"] == "auto"


def test_its_start_up_teaches_this_host():
    measured = record({"model-path": "/srv/models/kimi/"})["measurement"]
    expected = {
        "pool_tokens": 218000,
        "fraction": 0.94,
        "cap_tokens": None,
        "cell_bytes": 77184,
        "headroom_gib": 5.6,
        "keys": {"weights": "w"},
        "origin": "host",
        "from": "hand.service",
    }
    assert {name: measured[name] for name in expected} == expected


def test_another_model_or_an_unknown_version_teaches_nothing():
    other = record({"model-path": "/srv/models/other"})
    assert other["measurement"] is None
    assert "another model" in " ".join(other["sentences"])
    drafted = {"model-path": "/srv/models/kimi", "speculative-draft-model-path": "/srv/models/draft"}
    assert record(drafted)["measurement"] is None
    assert record({"model-path": "/srv/models/kimi"}, version=None)["measurement"] is None
    assert record({"model-path": "/srv/models/kimi"}, plan={"failed": True})["measurement"] is None


def test_a_person_is_told_what_it_runs_risks_and_has_beside_what_is_declared():
    declared = {"model-path": "/srv/models/kimi", "tp_size": "8", "port": 30001}
    said = record(declared, dict(PLAN, feasible=False, refusal="Fraction 0.94 leaves too little."))["sentences"]
    assert said == [
        "Found hand.service, made by hand, on port 30001: pool 218,000 tokens, fraction 0.94, chunk 8192, 5.60 GiB of"
        " headroom.",
        "As it is, it cannot keep the promise: Fraction 0.94 leaves too little.",
        "It has what nobody declared; what is to stay has to be declared: sglang_server_arguments: "
        '{"trust-remote-code": true, "cuda-graph-bs": [1, "2", "4"]}',
    ]


@pytest.mark.parametrize(
    ("theirs", "declared", "said"),
    [
        (
            {"host": "0.0.0.0", "port": 30001},
            {"host": "127.0.0.1", "port": "30001"},
            "It listens on 0.0.0.0:30001, the declared server on 127.0.0.1:30001; for the same clients declare "
            "sglang_server_host: 0.0.0.0.",
        ),
        (
            {"host": "0.0.0.0"},
            {"port": 30001},
            "It listens on 0.0.0.0:30000, the declared server on 127.0.0.1:30001; for the same clients declare "
            "sglang_server_host: 0.0.0.0, sglang_server_port: 30000.",
        ),
        ({"host": "127.0.0.1"}, {"port": 30000}, None),
    ],
)
def test_a_person_is_told_when_its_clients_would_find_nothing(theirs, declared, said):
    runs = {"port": theirs.get("port"), "arguments": theirs, "environment": {}}
    found = _adopted.record(runs, "hand.service", READY, _adopted.situation(runs, READY), PLAN, declared)["sentences"]
    assert [one for one in found if one.startswith("It listens")] == ([said] if said else [])


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            "The declared fraction 0.940 leaves 5.60 GiB outside weights and pool, and 6.47 GiB are needed; what works"
            " is sglang_server_mem_fraction_static: 0.929.",
            "Its fraction 0.940 leaves 5.60 GiB outside weights and pool, and 6.47 GiB are needed.",
        ),
        ("It does not fit; levers, smallest change first: x; what fits is y: 1.", "It does not fit."),
        ("It does not fit; no target fits, take a smaller model or more GPUs.", "It does not fit."),
    ],
)
def test_what_it_risks_is_told_without_a_second_offer(refusal, said):
    told = record({"model-path": "/srv/models/kimi"}, dict(PLAN, refusal=refusal))["sentences"]
    assert "As it is, it cannot keep the promise: " + said in told
