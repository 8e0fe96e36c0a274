"""Runs the role nvidia_driver case by case; compares output and host with vars/cases.yml of a scenario.

DRIVER=all runs every case, otherwise those that are not marked `long`. DRIVER_CASES is a regular expression of names,
for work on one case.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
HOSTS = HERE.parent / "hosts" / "hosts.sh"
RESULTS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results"
ONLY = os.environ.get("DRIVER_CASES", "")
ALL = os.environ.get("DRIVER", "") == "all" or bool(ONLY)


def run(command, **environment):
    """Return (status, output)."""
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def probe(host):
    """Return what a host is now, as probe.sh sees it, asked without Ansible."""
    _status, said = run(["bash", str(HOSTS), "exec", host, "sh", "-c", (HERE / "probe.sh").read_text()])
    return dict(line.split("=", 1) for line in said.splitlines() if re.match(r"\w+=", line))


def run_case(scenario, case):
    """Return what came of a case: status, output, number of changed tasks, what the hosts are afterwards, seconds."""
    began = time.monotonic()
    if "before" in case:
        status, output = run(["bash", str(HOSTS), "exec", case["host"], "sh", "-c", case["before"]])
        assert status == 0, output
    # The configuration is molecule's, so that it is what a user of the collection has.
    command = ["ansible-playbook", str(scenario / case.get("playbook", "../shared/driver/converge.yml"))]
    command += ["-i", os.environ["MOLECULE_INVENTORY_FILE"], "-e", json.dumps(case.get("extra", {}))]
    command += ["--limit", ",".join([case["host"], *case.get("beside", [])]), *case.get("options", [])]
    status, output = run(command, ANSIBLE_NOCOLOR="1", ANSIBLE_FORCE_COLOR="0")
    recap = re.search(rf"^{case['host']} .*changed=(\d+)", output, re.MULTILINE)
    return {
        "status": status,
        "output": output,
        "changed": int(recap.group(1)) if recap else None,
        "probe": probe(case["host"]),
        "beside": {host: probe(host) for host in case.get("beside", [])},
        "seconds": round(time.monotonic() - began),
    }


def cases_of(scenario):
    """Return the cases of a scenario that are wanted, in order."""
    cases = yaml.safe_load((scenario / "vars" / "cases.yml").read_text())["cases"]
    return [case for case in cases if re.search(ONLY, case["name"]) and (ALL or not case.get("long"))]


def run_cases(scenario):
    """Run the cases: hosts side by side, each its own in order; then those of several hosts. Return name -> result."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    found, problems, began = {}, [], time.monotonic()
    times = (RESULTS / "seconds.txt").open("w", buffering=1)

    def work(cases):
        for case in cases:
            try:
                came = run_case(scenario, case)
            except AssertionError as error:
                problems.append(f"{case['name']}: {error}")
                return
            found[case["name"]] = came
            (RESULTS / f"{case['name']}.txt").write_text(came["output"])
            times.write(f"{time.monotonic() - began:4.0f} {case['host']} {case['name']} {came['seconds']} s\n")

    cases = cases_of(scenario)
    alone = [case for case in cases if "beside" not in case]
    lists = [[case for case in alone if case["host"] == host] for host in sorted({case["host"] for case in alone})]
    threads = [threading.Thread(target=work, args=(one,)) for one in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work([case for case in cases if "beside" in case])
    assert problems == []
    return found


def compare(case, came):
    """Assert that a case did what its expectations say."""
    expect, output = case["expect"], " ".join(came["output"].split())
    assert (came["status"] == 0) is expect["ok"], came["output"]
    at = 0
    for text in expect.get("says", []):
        assert text in output, came["output"]
    for text in expect.get("in_order", []):
        assert text in output[at:], f"no {text!r} after what is before it:\n{came['output']}"
        at = output.index(text, at)
    for text in expect.get("hides", []):
        assert text not in output, came["output"]
    wanted = expect.get("changed")
    assert wanted is None or (came["changed"] > 0 if wanted == "some" else came["changed"] == wanted), came["output"]
    compare_probe(expect.get("probe", {}), came["probe"])
    for host, words in expect.get("beside", {}).items():
        compare_probe(words, came["beside"][host])


def compare_probe(wanted, found):
    assert {word: found.get(word) for word in wanted} == wanted
