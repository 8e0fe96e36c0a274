from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _service
from ansible_collections.gpufleet.sglang.tests.unit.plugins.fake_host import FakeHost


@pytest.fixture
def host(tmp_path):
    return FakeHost(
        tmp_path, {"sglang-main.service": {"state": "active", "enabled": "enabled", "pid": 100, "invocation": "a" * 32}}
    )


def test_a_unit_and_its_process(host):
    host.process(
        100, ["python", "-m", "sglang.launch_server", "--port", "30001"], ["GPUFLEET_SGLANG_CONFIG=abc"], kib=1048576
    )
    host.process(101, ["sglang::scheduler"], [], parent=100, kib=524288)
    host.process(102, ["bash"], [], parent=1, kib=99999999)
    found = _service.describe(host.run_command, "sglang-main.service", str(host.proc))
    assert (found["exists"], found["active"], found["enabled"], found["invocation_id"]) == (True, True, True, "a" * 32)
    assert found["running"]["config_hash"] == "abc"
    assert found["running"]["port"] == 30001
    assert found["running"]["memory_gib"] == 1.5
    assert found["running"]["pids"] == [100, 101]


def test_a_process_made_by_hand_has_no_hash_and_perhaps_no_port(host):
    host.process(100, ["python", "-m", "sglang.launch_server", "--api-key", "canary-key"], ["PATH=/bin"])
    running = _service.describe(host.run_command, "sglang-main.service", str(host.proc))["running"]
    assert running["config_hash"] is None
    assert running["port"] == 30000
    assert "canary-key" not in str(running)


def test_the_launcher_is_found_behind_a_shell(host):
    host.process(100, ["/bin/bash", "/usr/local/bin/serve-by-hand"], [])
    host.process(101, ["python", "-m", "sglang.launch_server", "--host=0.0.0.0", "--port=31000"], [], parent=100)
    running = _service.describe(host.run_command, "sglang-main.service", str(host.proc))["running"]
    assert (running["host"], running["port"]) == ("0.0.0.0", 31000)


@pytest.mark.parametrize(
    "argv", [["bash", "-c", "sglang serve --port $PORT"], ["python", "-m", "sglang.launch_server", "--port", "$P"]]
)
def test_a_port_that_cannot_be_told_is_not_guessed(host, argv):
    host.process(100, argv, [])
    assert _service.describe(host.run_command, "sglang-main.service", str(host.proc))["running"]["port"] is None


CONTAINED = ["docker", "run", "--port", "1", "image", "python", "-m", "sglang.launch_server", "--tp", "8"]


def test_a_server_in_a_container_is_no_process_of_the_unit(host):
    host.process(100, ["/bin/sh", "/usr/local/bin/serve-by-hand"], [])
    host.process(101, CONTAINED, ["SGLANG_X=1"], parent=100)
    # What crun and apptainer start is a process of the unit, with the paths of its container.
    host.process(102, ["python", "-m", "sglang.launch_server", "--port", "31000"], [], parent=101)
    running = _service.describe(host.run_command, "sglang-main.service", str(host.proc))["running"]
    told = {name: running[name] for name in ("container", "port", "host", "arguments", "environment", "venv")}
    assert told == {
        "container": "docker", "port": None, "host": None, "arguments": {}, "environment": {}, "venv": None
    }  # fmt: skip
    assert running["pids"] == [100, 101, 102]


def test_a_container_beside_the_launcher_is_not_the_server(host):
    host.process(100, ["/bin/sh", "/usr/local/bin/serve-by-hand"], [])
    host.process(101, ["docker", "run", "exporter"], [], parent=100)
    host.process(102, ["/srv/venv/bin/python", "-m", "sglang.launch_server", "--tp", "8"], [], parent=100)
    running = _service.describe(host.run_command, "sglang-main.service", str(host.proc))["running"]
    assert (running["container"], running["arguments"], running["venv"]) == (None, {"tp-size": 8}, "/srv/venv")


def test_a_unit_that_does_not_exist(host):
    found = _service.describe(host.run_command, "other.service", str(host.proc))
    assert (found["exists"], found["active"], found["running"]) == (False, False, {})


def test_no_systemd_is_one_sentence(host):
    with pytest.raises(OSError, match="must be booted with systemd"):
        _service.describe(lambda *args, **kwargs: (1, "", "System has not been booted"), "x.service", str(host.proc))


def test_the_version_of_systemd(host):
    assert _service.systemd_version(host.run_command) == 252
    assert _service.systemd_version(lambda command, **dummy: (1, "", "no")) == 0
