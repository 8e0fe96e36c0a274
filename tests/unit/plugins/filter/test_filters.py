from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

PACKAGE = "ansible_collections.gpufleet.sglang.plugins.filter."


def load(name):
    return importlib.import_module(PACKAGE + name).FilterModule().filters()[name]


FILTERS = sorted(path.stem for path in Path(__file__).resolve().parents[4].glob("plugins/filter/*.py"))


@pytest.mark.parametrize("name", FILTERS)
def test_the_documentation_is_of_this_filter(name):
    module = importlib.import_module(PACKAGE + name)
    documentation = yaml.safe_load(module.DOCUMENTATION)
    assert documentation["name"] == name
    assert list(module.FilterModule().filters()) == [name]
    assert yaml.safe_load(module.EXAMPLES)
    assert yaml.safe_load(module.RETURN)["_value"]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("server_arguments", ({"tp_size": 8, "enable-metrics": True},), ["--tp-size", "8", "--enable-metrics"]),
        (
            "server_arguments",
            ({"model-path": "/m", "x": False}, {"accepted_arguments": ["x", "no-x"], "flag_arguments": ["x", "no-x"]}),
            ["--model-path", "/m", "--no-x"],
        ),
        ("systemd_argument", ("50% of $HOME",), '"50%% of $$HOME"'),
        ("systemd_assignment", ("50% of $HOME", "PROMPT"), '"PROMPT=50%% of $HOME"'),
        (
            "merged_layers",
            ([{"origin": "all", "values": {"tp": 4}}, {"origin": "host", "values": {"tp_size": 8}}], "arguments"),
            {"merged": {"tp-size": 8}, "origins": {"tp-size": "host"}},
        ),
        ("systemd_environment_line", ("50% of $HOME", "PROMPT"), 'PROMPT="50% of \\$HOME"'),
        ("instance_settings", ({"port": 1}, {"port": 2}), {"port": 2}),
        (
            "drift_since_proof",
            (
                {"proof": {"host": {"driver_version": "580.95.05"}}, "running": {"pid": 1}},
                {},
                {"driver_version": "580.105.08"},
            ),
            [{"what": "driver", "sentence": "driver: proven with 580.95.05, found 580.105.08.", "ends": True}],
        ),
        (
            "chosen_model",
            ({"complete": True, "geometry": {"layers": 1}, "weight_bytes": 5}, {"skipped": True}, {"weight_bytes": 6}),
            {"complete": True, "geometry": {"layers": 1}, "weight_bytes": 5, "unchecked": [], "refused": []},
        ),
        (
            "declared_gpus",
            ([{"name": "cpu-like", "memory_total_mib": 2048, "memory_free_mib": 1024}],),
            {
                "gpus": [
                    {
                        "index": 0,
                        "uuid": None,
                        "name": "cpu-like",
                        "memory_total_mib": 2048,
                        "memory_free_mib": 1024,
                        "memory_used_mib": 1024,
                        "compute_capability": None,
                        "unified_memory": False,
                        "healthy": True,
                        "problem": None,
                        "failure_class": None,
                        "mig": False,
                    }
                ],
                "device": "cuda",
                "problems": [],
            },
        ),
        (
            "load_expectation",
            (
                {"free_before_load_gib": 94.0, "free_after_load_gib": 19.0, "quantity_keys": {"weights": "a"}},
                [{"load_seconds": 450, "keys": {"weights": "a"}}],
            ),
            {"weight_gib": 75.0, "last_seconds": 450.0},
        ),
    ],
)
def test_what_comes_out(name, arguments, result):
    assert load(name)(*arguments) == result


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("server_arguments", ({"served-model-name": "a\nb"},)),
        ("server_arguments", (["--tp"],)),
        ("systemd_argument", ("a\nb",)),
        ("systemd_assignment", ("a\nb", "NAME")),
        ("systemd_assignment", ("a", "NA-ME")),
        ("systemd_environment_line", ("a", "NA ME")),
        ("merged_layers", ([{"origin": "all", "values": {"tp": 4, "tp-size": 8}}], "arguments")),
        ("merged_layers", ([], "labels")),
        ("systemd_environment_line", ("a\nb", "NAME")),
        ("instance_settings", ({"port": 1}, {"prot": 2})),
        ("load_expectation", ("none", [])),
    ],
)
def test_bad_input_is_a_filter_error_and_no_traceback(name, arguments):
    with pytest.raises(AnsibleFilterError, match="Expected"):
        load(name)(*arguments)
