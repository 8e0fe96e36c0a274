"""What the host itself says after the deployment."""

from __future__ import annotations

import json
import re

import pytest

UNIT = "sglang-main.service"
STATE = "/var/lib/sglang/main"
TARGET_TOKENS = 20000
# Written so that no command line, which sudo and Ansible log, holds it.
KEY = "canary-real-[0-9a-f]{8}"


@pytest.fixture(scope="module")
def properties(host):
    names = (
        "ActiveState,UnitFileState,InvocationID,MainPID,KillMode,Type,Restart,NRestarts,LimitNOFILE,User,DropInPaths"
    )
    with host.sudo():
        text = host.check_output("systemctl show %s --property=%s" % (UNIT, names))
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture(scope="module")
def proof(host):
    with host.sudo():
        return json.loads(host.file(STATE + "/proof.json").content_string)


def test_the_unit_as_systemd_sees_it(properties):
    wanted = {
        "ActiveState": "active",
        "UnitFileState": "enabled",
        "Type": "exec",
        "KillMode": "mixed",
        "Restart": "on-failure",
        "NRestarts": "0",
        "LimitNOFILE": "1048576",
        "User": "sglang",
        "DropInPaths": "",
    }
    assert {name: properties[name] for name in wanted} == wanted


def test_the_proof_is_of_the_invocation_that_runs(properties, proof):
    assert proof["invocation_id"] == properties["InvocationID"]
    assert proof["soaked"] is True


def test_the_process_runs_what_was_proven(host, properties, proof):
    with host.sudo():
        environment = host.file("/proc/%s/environ" % properties["MainPID"]).content_string.split("\0")
        arguments = host.file("/proc/%s/cmdline" % properties["MainPID"]).content_string.split("\0")
    assert "GPUFLEET_SGLANG_CONFIG=" + proof["config_hash"] in environment
    assert arguments[arguments.index("--mem-fraction-static") + 1] == str(proof["fraction"])
    assert arguments[arguments.index("--max-total-tokens") + 1] == str(TARGET_TOKENS)


def test_the_journal_of_this_invocation_tells_the_promised_pool(host, properties):
    with host.sudo():
        journal = host.check_output(
            "journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID=%s" % properties["InvocationID"]
        )
    assert "max_total_num_tokens=%d," % TARGET_TOKENS in journal
    assert "The server is fired up and ready to roll!" in journal


def test_it_answers(host):
    # The server listens on the host's loopback alone, so the question is asked there, by the requests of its own venv.
    program = (
        "import re, requests; "
        "key = re.search('canary-[a-z0-9-]+', open('/etc/sglang/main.secret.yaml').read()).group(0); "
        "ask = lambda **more: requests.post('http://127.0.0.1:30000/generate', timeout=60, json={"
        "'text': 'The capital of France is', 'sampling_params': {'max_new_tokens': 8, 'temperature': 0}}, **more); "
        "print(ask().status_code, ask(headers={'Authorization': 'Bearer ' + key}).json()['text'])"
    )
    with host.sudo():
        answer = host.check_output("/opt/sglang/engines/0.5.23/bin/python -c %s", program)
    assert answer.startswith("401 ")
    assert "Paris" in answer


def test_the_key_of_the_real_engine_is_where_it_has_to_be(host):
    """Debian 12 has systemd 252, which cannot keep a line out of the journal: there it is, and nowhere else."""
    with host.sudo():
        folders = "/etc /home /root /run /tmp /var"
        files = host.run("grep -rlaE --exclude-dir=journal '%s' %s 2>/dev/null" % (KEY, folders)).stdout.split()
        lines = host.check_output("journalctl --no-pager --all -o cat | grep -aE '%s'" % KEY).splitlines()
        shown = host.check_output("ps -eo args; systemctl show %s; systemctl cat %s" % (UNIT, UNIT))
    allowed = ("/etc/sglang/main.secret.yaml", "/var/lib/sglang/main/backup/")
    assert [path for path in files if not path.startswith(allowed)] == []
    assert [line for line in lines if "server_args=" not in line] == []
    assert not re.search(KEY, shown)


@pytest.mark.parametrize(
    ("path", "mode", "user"),
    [
        ("/etc/sglang/main.env", 0o600, "root"),
        ("/etc/sglang/main.secret.yaml", 0o400, "sglang"),
        ("/etc/systemd/system/" + UNIT, 0o644, "root"),
        (STATE + "/proof.json", 0o600, "root"),
        (STATE + "/attempts.jsonl", 0o600, "root"),
        (STATE + "/backup", 0o755, "root"),
    ],
)
def test_modes(host, path, mode, user):
    with host.sudo():
        found = host.file(path)
        assert (found.mode, found.user) == (mode, user)


def test_nothing_is_left_open(host):
    with host.sudo():
        assert not host.file(STATE + "/change.json").exists
        assert not host.file("/run/sglang/main.lease").exists
        assert not host.file("/run/systemd/system/%s.d" % UNIT).exists


def test_every_attempt_is_remembered_with_its_reason(host):
    with host.sudo():
        lines = host.file(STATE + "/attempts.jsonl").content_string.splitlines()
    attempts = [json.loads(line) for line in lines]
    assert attempts[-1]["verdict"] == "proven"
    assert all(attempt["reason"] for attempt in attempts)


def test_the_unit_that_was_replaced_does_not_come_back(host):
    assert host.check_output("systemctl show hand.service --property=ActiveState,UnitFileState --value").split() == [
        "inactive",
        "disabled",
    ]
