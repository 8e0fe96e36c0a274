"""Runs the role for each case of vars/cases.yml, the hosts side by side, and compares output and host with what is expected."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent.parent
CASES = yaml.safe_load((HERE / "vars" / "cases.yml").read_text())["cases"]
RESULTS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"
ONLY = os.environ.get("DRIVER_CASES", "")  # a regular expression, for work on one case


def ansible(*arguments):
    """Return (status, output). The configuration is molecule's, so that it is what a user of the collection has."""
    command = [*arguments, "-i", os.environ["MOLECULE_INVENTORY_FILE"]]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def run_case(case):
    """Return what came of a case: status, output, number of changed tasks, and what the host is afterwards."""
    if "before" in case:
        status, output = ansible("ansible", case["host"], "-b", "-m", "ansible.builtin.shell", "-a", case["before"])
        assert status == 0, output
    extra = ["-e", json.dumps(case.get("extra", {}))]
    playbook = str(HERE / case.get("playbook", "converge.yml"))
    status, output = ansible("ansible-playbook", playbook, "--limit", case["host"], *extra, *case.get("options", []))
    recap = re.search(rf"^{case['host']} .*changed=(\d+)", output, re.MULTILINE)
    probe = str(HERE / "files" / "probe.sh")
    _status, said = ansible("ansible", case["host"], "-b", "-m", "ansible.builtin.script", "-a", probe)
    found = re.findall(r"^\s*(?:- )?['\"]?(\w+)=([^'\"\n]*)['\"]?$", said, re.MULTILINE)
    return {"status": status, "output": output, "changed": int(recap.group(1)) if recap else None, "probe": dict(found)}


@pytest.fixture(scope="session")
def results():
    """What came of every case; each host has its own list, in order."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    found, problems = {}, []

    def work(host):
        for case in CASES:
            if case["host"] != host or not re.search(ONLY, case["name"]):
                continue
            try:
                found[case["name"]] = run_case(case)
                (RESULTS / f"{case['name']}.txt").write_text(found[case["name"]]["output"])
            except AssertionError as error:
                problems.append(f"{case['name']}: {error}")
                return

    threads = [threading.Thread(target=work, args=(host,)) for host in sorted({case["host"] for case in CASES})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    return found


@pytest.mark.parametrize(
    "case", [case for case in CASES if re.search(ONLY, case["name"])], ids=lambda case: case["name"]
)
def test_a_run_does_what_it_should(results, case):
    came, expect = results[case["name"]], case["expect"]
    output = " ".join(came["output"].split())
    assert (came["status"] == 0) is expect["ok"], came["output"]
    for text in expect.get("says", []):
        assert text in output, came["output"]
    for text in expect.get("hides", []):
        assert text not in output, came["output"]
    wanted = expect.get("changed")
    assert wanted is None or (came["changed"] > 0 if wanted == "some" else came["changed"] == wanted), came["output"]
    assert {word: came["probe"].get(word) for word in expect.get("probe", {})} == expect.get("probe", {})
