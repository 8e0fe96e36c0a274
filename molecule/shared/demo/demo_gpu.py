# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The incident that this collection answers, for the eye: eight played boards, a server that dies, and the way out.

The host, its variables and the server made by hand are those of the scenario molecule/reference_case. Every act runs a
playbook of the installed release archive as a user would. Ends with exit status 1 when an act did not show what it is
there to show.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

import demo
import yaml

SCENARIO = demo.CHECKOUT / "molecule/reference_case"
BUILD = demo.CHECKOUT / ".build/demo-gpu"
HOST = "k26"
HAND_MADE = "sglang-k26-ddtree.service"
OURS = "sglang-k26.service"
PORT = 30001
STATE = "/var/lib/sglang/k26"

# 60,000 tokens on a clean cache, then 32,768 on one that fills.
PROMPTS = [60000, *[32768] * 9]

# What stands in the inventory of who copies the flags of the server made by hand.
AS_FOUND = {
    "sglang_server_mem_fraction_static": 0.94,
    "sglang_server_pool_policy": "fill",
    "sglang_server_chunked_prefill_size": 8192,
}
SHOWN = re.compile(
    r"^k26 \| (?!--|PLAYED|argument)|^ +(- |msg:)|proven|refused|fatal:|made by hand|PLAY RECAP|^k26 +:|promise"
)

# Sent on the host: prompts of so many tokens that no other prompt begins with, one after the other.
ASK = """
import json, sys, urllib.request
for number, tokens in enumerate(json.loads(sys.argv[1])):
    body = {"input_ids": [1000 + number] * tokens, "sampling_params": {"max_new_tokens": 4, "temperature": 0}}
    request = urllib.request.Request("http://127.0.0.1:%d/generate" % int(sys.argv[2]), json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        json.load(urllib.request.urlopen(request, timeout=60))
        print(tokens, "answered", flush=True)
    except OSError as error:
        print(tokens, "not answered:", error, flush=True)
        break
"""


def scenario_variables():
    """Variables of the group and of the host that is found serving, as the scenario has them."""
    inventory = yaml.safe_load((SCENARIO / "molecule.yml").read_text())["provisioner"]["inventory"]
    return {**inventory["group_vars"]["sglang"], **inventory["host_vars"]["k26-a"]}


def write_inventory():
    BUILD.mkdir(parents=True, exist_ok=True)
    group = {"hosts": {HOST: None}, "vars": scenario_variables()}
    (BUILD / "hosts.yml").write_text(yaml.safe_dump({"sglang": group}, sort_keys=False))


def arguments(variables):
    found = ["-i", str(BUILD / "hosts.yml"), "-i", demo.inventory()]
    return found + (["-e", json.dumps(variables)] if variables else [])


class Play:
    """One playbook: exit status, seconds, what it printed; the lines that matter are shown."""

    def __init__(self, name, shown=SHOWN, **variables):
        command = ["ansible-playbook", name, *arguments(variables)]
        short = ["ansible-playbook", name, *(["-e", json.dumps(variables)] if variables else [])]
        demo.say("$ " + " ".join("'%s'" % word if " " in word else word for word in short))
        began = time.monotonic()
        lines = []
        with subprocess.Popen(
            command, cwd=demo.CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout:
                lines.append(line)
                if shown.search(line):
                    demo.say("  " + line.rstrip()[:150])
        self.status = process.returncode
        self.seconds = time.monotonic() - began
        self.text = re.sub(r"\s+", " ", "".join(lines))
        demo.say("  (%.0f s, exit status %d)" % (self.seconds, self.status))


def on_host(command):
    done = subprocess.run(
        [demo.HOSTS, "exec", HOST, "sh", "-c", command], check=False, text=True, stdout=subprocess.PIPE
    )
    return done.stdout.strip()


def starts():
    """How often systemd started our unit."""
    wanted = "journalctl --no-pager -o cat _PID=1 UNIT=%s JOB_TYPE=start JOB_RESULT=done | wc -l" % OURS
    return int(on_host(wanted) or 0)


def read(path):
    return on_host("cat %s/%s 2>/dev/null" % (STATE, path))


def ask(prompts):
    on_host("cat >/run/ask.py <<'END'\n%s\nEND" % ASK)
    said = on_host("python3 /run/ask.py '%s' %d" % (json.dumps(prompts), PORT))
    for line in said.splitlines():
        demo.say("  a prompt of %s" % line)
    return said


def death():
    """The line of the newest death in the journal of the server made by hand."""
    found = on_host("journalctl --no-pager -o cat -u %s | grep -o 'torch.OutOfMemoryError.*' | tail -n 1" % HAND_MADE)
    return found[:400]


def wait_for_hand_made():
    """Until systemd has brought it back (Restart=always)."""
    end = time.monotonic() + 60
    probe = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:%d/health\", timeout=2)' 2>/dev/null"
    while time.monotonic() < end:
        if on_host(probe % PORT + " && echo up") == "up":
            return True
        time.sleep(1)
    return False


def table(attempts):
    row = "  %-8s %-9s %-6s %-8s %-11s %-9s %s"
    demo.say(row % ("restart", "fraction", "chunk", "pool", "least free", "verdict", "reason"))
    for number, attempt in enumerate(attempts, 1):
        values = attempt["values"]
        least = (attempt.get("measurement") or {}).get("least_free_gib")
        demo.say(
            row
            % (
                number,
                values.get("fraction"),
                values.get("arguments", {}).get("chunked-prefill-size", "-"),
                attempt["startup"].get("pool_tokens") or "-",
                "-" if least is None else "%.2f GiB" % least,
                attempt["verdict"],
                attempt["reason"],
            )
        )


def main():
    checks = demo.Checks()
    demo.heading("The host %s: eight boards of 94.97 GiB, Kimi K2.6 with a draft model, a server made by hand" % HOST)
    subprocess.run([demo.HOSTS, "up", HOST], check=True)
    write_inventory()
    if not on_host("systemctl cat %s 2>/dev/null" % HAND_MADE) or read("proof.json"):
        on_host("systemctl disable --now %s %s; rm -rf %s" % (OURS, HAND_MADE, STATE))
        on_host("rm -rf /etc/systemd/system/%s /run/systemd/system/%s.d; systemctl daemon-reload" % (OURS, OURS))
        Play(str(SCENARIO / "demo.yml"), shown=re.compile(r"^k26 \| ready|^k26 +:|fatal"))
    began = time.monotonic()

    demo.heading("1. The incident: fraction 0.94 serves, answers 60,000 tokens, and dies in 32,768 on a full cache")
    wait_for_hand_made()
    said = ask(PROMPTS)
    found = death()
    demo.say("  " + found[:220])
    checks.add("60,000 tokens are answered at first", said.startswith("60000 answered"), said.split("\n")[0])
    checks.add("a later prompt kills it", "OutOfMemoryError" in found, found[:90])
    wait_for_hand_made()

    demo.heading("2. What was found is stated: refused before any restart, with values to paste")
    before = starts()
    stated = Play("gpufleet.sglang.deploy", **AS_FOUND)
    offer = re.search(r"what works is (sglang_server_[a-z_]+: [0-9a-z.]*[0-9a-z])", stated.text)
    checks.add("refused", stated.status != 0 and "refused before any restart" in stated.text, "no restart")
    checks.add("values to paste", offer, offer.group(1) if offer else "none")
    checks.add("restarts", starts() == before, starts() - before)

    demo.heading("3. Everything is left to the plan: 200,000 tokens, proven under load")
    before = starts()
    proven = Play("gpufleet.sglang.deploy")
    proof = json.loads(read("proof.json") or "{}")
    needed = starts() - before
    checks.add("proven", proven.status == 0 and proof.get("soaked"), "exit status %d" % proven.status)
    checks.add("pool", (proof.get("pool_tokens") or 0) >= 200000, proof.get("pool_tokens"))
    checks.add("restarts (most 2)", needed in (1, 2), needed)

    demo.heading("4. The same prompts that killed the server made by hand")
    said = ask([*PROMPTS, 199000])
    answered = len(re.findall(r"\d answered", said))
    checks.add("all are answered", answered == len(PROMPTS) + 1, "%d of %d" % (answered, len(PROMPTS) + 1))

    demo.heading("5. The same again: nothing to do")
    before = starts()
    again = Play("gpufleet.sglang.deploy")
    checks.add("no restart", again.status == 0 and starts() == before, starts() - before)

    demo.heading("What was tried on %s" % HOST)
    table([json.loads(line) for line in read("attempts.jsonl").splitlines()])
    demo.heading("What had to be shown")
    for what, fine, found in checks.rows:
        demo.say("  %s %-40s %s" % ("ok  " if fine else "MISS", what, found))
    demo.say("\nDemo: %.0f s." % (time.monotonic() - began))
    if checks.missed():
        demo.say("Demo failed: %s." % "; ".join(checks.missed()))
        return 1
    demo.say("Demo passed. The host %s serves on; 'make clean' removes it." % HOST)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ANSIBLE_DISPLAY_SKIPPED_HOSTS", "false")
    os.environ.setdefault("ANSIBLE_CALLBACK_RESULT_FORMAT", "yaml")
    os.environ.setdefault("ANSIBLE_INJECT_FACT_VARS", "false")
    if os.environ.get("GPUFLEET_COLLECTIONS"):
        os.environ["ANSIBLE_COLLECTIONS_PATH"] = os.environ["GPUFLEET_COLLECTIONS"]
    sys.exit(main())
