"""Runs the role nvidia_driver case by case; compares output and host with vars/cases.yml of a scenario."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from pathlib import Path

import yaml

PROBE = Path(__file__).resolve().parent / "probe.sh"
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


def run_case(scenario, case):
    """Return what came of a case: status, output, number of changed tasks, and what the host is afterwards."""
    if "before" in case:
        status, output = ansible("ansible", case["host"], "-b", "-m", "ansible.builtin.shell", "-a", case["before"])
        assert status == 0, output
    extra = ["-e", json.dumps(case.get("extra", {}))]
    playbook = str(scenario / case.get("playbook", "../shared/driver/converge.yml"))
    status, output = ansible("ansible-playbook", playbook, "--limit", case["host"], *extra, *case.get("options", []))
    recap = re.search(rf"^{case['host']} .*changed=(\d+)", output, re.MULTILINE)
    _status, said = ansible("ansible", case["host"], "-b", "-m", "ansible.builtin.script", "-a", str(PROBE))
    found = re.findall(r"^\s*(?:- )?['\"]?(\w+)=([^'\"\n]*)['\"]?$", said, re.MULTILINE)
    return {"status": status, "output": output, "changed": int(recap.group(1)) if recap else None, "probe": dict(found)}


def cases_of(scenario):
    """Return the cases of a scenario, those that DRIVER_CASES names."""
    cases = yaml.safe_load((scenario / "vars" / "cases.yml").read_text())["cases"]
    return [case for case in cases if re.search(ONLY, case["name"])]


def run_cases(scenario):
    """Run all cases, the hosts side by side, each with its own list in order. Return name -> what came of it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    cases, found, problems = cases_of(scenario), {}, []

    def work(host):
        for case in cases:
            if case["host"] != host:
                continue
            try:
                found[case["name"]] = run_case(scenario, case)
                (RESULTS / f"{case['name']}.txt").write_text(found[case["name"]]["output"])
            except AssertionError as error:
                problems.append(f"{case['name']}: {error}")
                return

    threads = [threading.Thread(target=work, args=(host,)) for host in sorted({case["host"] for case in cases})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    return found


def compare(case, came):
    """Assert that a case did what its expectations say."""
    expect, output = case["expect"], " ".join(came["output"].split())
    assert (came["status"] == 0) is expect["ok"], came["output"]
    for text in expect.get("says", []):
        assert text in output, came["output"]
    for text in expect.get("hides", []):
        assert text not in output, came["output"]
    wanted = expect.get("changed")
    assert wanted is None or (came["changed"] > 0 if wanted == "some" else came["changed"] == wanted), came["output"]
    assert {word: came["probe"].get(word) for word in expect.get("probe", {})} == expect.get("probe", {})
