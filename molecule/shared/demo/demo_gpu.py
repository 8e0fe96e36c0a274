# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The incident that this collection answers, for the eye: eight played boards, a server that dies, and the way out.

The host, its variables and the server made by hand are those of the scenario molecule/reference_case. Every act runs a
playbook of the installed release archive as a user would; what the roles say to a person is shown, the list of tasks is
in .build/demo-gpu/*.log. Ends with exit status 1 when an act did not show what it is there to show.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
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
COLUMNS = 118

# 60,000 tokens on a clean cache, then 32,768 on one that fills.
PROMPTS = [60000, *[32768] * 9]

# What stands in the inventory of who copies the flags of the server made by hand.
AS_FOUND = {
    "sglang_server_mem_fraction_static": 0.94,
    "sglang_server_pool_policy": "fill",
    "sglang_server_chunked_prefill_size": 8192,
}

# Of the lines that modules print while they run: what a start-up and the load come to, and the figures that decide the
# plan. The whole plan is in the log.
PROGRESS = re.compile(
    r"k26 \| (weights|pool|graphs|ready|failed|soak (fill|ladder|context|wave|proven|unsafe|failed)) \|"
)
FIGURES = re.compile(
    r"k26 \| (target|free before load|weights|pool|reserve needed|fraction|predicted tokens|headroom at ready"
    r"|least free under load) {2,}"
)
REMEMBERED = re.compile(r"k26 \| (remembered|start-up|death)  ")

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


def tell(text, mark="  "):
    """A sentence, wrapped behind its mark."""
    demo.say(textwrap.fill(text, COLUMNS, initial_indent=mark, subsequent_indent=" " * len(mark)))


def sentences(result):
    """What a task that ended says to a person: the message of a debug or of a failure."""
    said = json.loads(result).get("msg", "")
    return [str(one) for one in said] if isinstance(said, list) else [str(said)]


class Play:
    """One playbook: exit status, seconds, what it said. What is for a person is shown, all of it is in a log."""

    def __init__(self, name, quiet=False, figures=True, **variables):
        command = ["ansible-playbook", name, "-i", str(BUILD / "hosts.yml"), "-i", demo.inventory()]
        # The engine and the model are there since the host was made.
        given = [] if quiet else ["--tags", "server"]
        given += ["-e", json.dumps(variables)] if variables else []
        self.said, self.lines, self._quiet, self._figures = [], [], quiet, figures
        if not quiet:
            tell(" ".join("'%s'" % word if " " in word else word for word in [*command[:2], *given]), "$ ")
        began = time.monotonic()
        with subprocess.Popen(
            [*command, *given], cwd=demo.CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            self._read(process.stdout)
        self.status = process.returncode
        self.seconds = time.monotonic() - began
        number = len(list(BUILD.glob("*.log"))) + 1
        (BUILD / ("%02d-%s.log" % (number, name.split("/")[-1]))).write_text("".join(self.lines))
        if not quiet:
            demo.say("  (%.0f s, exit status %d)" % (self.seconds, self.status))

    def _read(self, stream):
        result = None
        for line in stream:
            self.lines.append(line)
            opened = re.match(r"(ok|fatal): \[%s\].*=> (\{.*)$" % HOST, line)
            if opened:
                result = [opened.group(2)]
            elif result is not None:
                result.append(line)
            if result is not None and (line.startswith("}") or result[0].endswith("}")):
                self._say("".join(result))
                result = None
            elif result is None and line.startswith(HOST + " |"):
                self._progress(line.rstrip())

    def _say(self, result):
        for one in sentences(result):
            if one and one not in self.said:
                self.said.append(one)
                # That the plan refuses is told with what serves at the end.
                if not self._quiet and not one.startswith("refuse: "):
                    # What is ready to paste has a line of keys and figures; it is whole in the log.
                    tell(re.sub(r"\[\{.{200,}\}\]", "[...]", one), "  - ")

    def _progress(self, line):
        if self._quiet:
            return
        if PROGRESS.match(line) or (self._figures and (FIGURES.match(line) or REMEMBERED.match(line))):
            demo.say("  " + line[len(HOST) + 3 :])

    @property
    def text(self):
        return " ".join(self.said)


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
    said = on_host("python3 /run/ask.py '%s' %d" % (json.dumps(prompts), PORT)).splitlines()
    for line in dict.fromkeys(said):
        tokens, what = line.split(" ", 1)
        times = said.count(line)
        demo.say("  %s prompt%s of %s tokens: %s" % (times, "s" * (times > 1), f"{int(tokens):,}", what))
    return said


def death():
    """The line of the newest death in the journal of the server made by hand."""
    return on_host("journalctl --no-pager -o cat -u %s | grep -o 'torch.OutOfMemoryError.*' | tail -n 1" % HAND_MADE)


def found_pool():
    """Pool of the server made by hand in its newest start-up, in tokens."""
    pools = on_host(
        "journalctl --no-pager -o cat -u %s | grep -o 'max_total_num_tokens=[0-9]*' | tail -n 1" % HAND_MADE
    )
    return int(pools.partition("=")[2] or 0)


def wait_for_hand_made():
    """Until systemd has brought it back (Restart=always)."""
    end = time.monotonic() + 60
    probe = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:%d/health\", timeout=2)' 2>/dev/null"
    while time.monotonic() < end:
        if on_host(probe % PORT + " && echo up") == "up":
            return True
        time.sleep(1)
    return False


def rows_of(attempts):
    """The lines of the table: restart, fraction, chunk, pool, least free, verdict, reason."""
    rows = []
    for number, attempt in enumerate(attempts, 1):
        values = attempt["values"]
        least = (attempt.get("measurement") or {}).get("least_free_gib")
        rows.append(
            (
                number,
                values.get("fraction"),
                values.get("arguments", {}).get("chunked-prefill-size", "-"),
                f"{attempt['startup']['pool_tokens']:,}" if attempt["startup"].get("pool_tokens") else "-",
                "-" if least is None else "%.2f GiB" % least,
                attempt["verdict"],
                attempt["reason"],
            )
        )
    return rows


def table(rows):
    form = "  %-8s %-9s %-6s %-8s %-11s %-8s "
    titles = ("restart", "fraction", "chunk", "pool", "least free", "verdict", "reason")
    for *cells, reason in [titles, *rows]:
        tell(reason, form % tuple(cells))


def main():
    checks = demo.Checks()
    demo.heading("The host %s: eight boards of 94.97 GiB, Kimi K2.6 with a draft model, a server made by hand" % HOST)
    subprocess.run([demo.HOSTS, "up", HOST], check=True)
    write_inventory()
    for log in BUILD.glob("*.log"):
        log.unlink()
    if not on_host("systemctl cat %s 2>/dev/null" % HAND_MADE) or read("proof.json"):
        on_host("systemctl disable --now %s %s 2>/dev/null; rm -rf %s" % (OURS, HAND_MADE, STATE))
        on_host("rm -rf /etc/systemd/system/%s /run/systemd/system/%s.d; systemctl daemon-reload" % (OURS, OURS))
        made = Play(str(SCENARIO / "demo.yml"), quiet=True)
        if made.status:
            demo.say("".join(made.lines[-30:]))
            return 1
    began = time.monotonic()

    demo.heading("1. The incident: fraction 0.94 serves, answers 60,000 tokens, and dies in 32,768 on a full cache")
    wait_for_hand_made()
    pool = found_pool()
    demo.say("  %s holds %s tokens." % (HAND_MADE, f"{pool:,}"))
    said = ask(PROMPTS)
    found = death()
    tell("In its journal: " + found.partition(" If reserved")[0][:600])
    checks.add("60,000 tokens are answered at first", said[0] == "60000 answered", said[0])
    checks.add("a later prompt kills it", "OutOfMemoryError" in found, re.split(r"[.:] ", found + ". ")[1])
    wait_for_hand_made()

    demo.heading("2. What was found is stated: refused before any restart, with values to paste")
    before = starts()
    stated = Play("gpufleet.sglang.deploy", **AS_FOUND)
    offer = re.search(r"what works is (sglang_server_[a-z_]+: [0-9a-z.]*[0-9a-z])", stated.text)
    checks.add("refused", stated.status != 0 and "refused before any restart" in stated.text, "before any restart")
    checks.add("values to paste", offer, offer.group(1) if offer else "none")
    checks.add("restarts", starts() == before, starts() - before)

    demo.heading("3. Everything is left to the plan: 200,000 tokens, proven under load")
    before = starts()
    proven = Play("gpufleet.sglang.deploy")
    proof = json.loads(read("proof.json") or "{}")
    needed = starts() - before
    checks.add("proven", proven.status == 0 and proof.get("soaked"), "exit status %d" % proven.status)
    checks.add("pool (at least 200,000)", (proof.get("pool_tokens") or 0) >= 200000, proof.get("pool_tokens"))
    checks.add("restarts (most 2)", needed in (1, 2), needed)

    demo.heading("4. The same prompts that killed the server made by hand, and one of 199,000 tokens")
    said = ask([*PROMPTS, 199000])
    answered = len([line for line in said if line.endswith(" answered")])
    checks.add("all are answered", answered == len(PROMPTS) + 1, "%d of %d" % (answered, len(PROMPTS) + 1))

    demo.heading("5. The same again: nothing to do")
    before = starts()
    again = Play("gpufleet.sglang.deploy", figures=False)
    checks.add("no restart", again.status == 0 and starts() == before, starts() - before)

    demo.heading("What had to be shown")
    for what, fine, shown in checks.rows:
        demo.say("  %s %-40s %s" % ("ok  " if fine else "MISS", what, shown))

    demo.heading("What was tried on %s" % HOST)
    by_hand = ("by hand", 0.94, 8192, f"{pool:,}", "-", "died", "Answered 60,000 tokens, died in a prompt of 32,768.")
    refused = ("none", 0.94, 8192, "-", "-", "refused", "Refused before any restart, with values to paste.")
    table([by_hand, refused, *rows_of([json.loads(line) for line in read("attempts.jsonl").splitlines()])])
    demo.say(
        "\nDemo: %.0f s. What Ansible printed is in %s." % (time.monotonic() - began, BUILD.relative_to(demo.CHECKOUT))
    )
    if checks.missed():
        demo.say("Demo failed: %s." % "; ".join(checks.missed()))
        return 1
    demo.say("Demo passed. The host %s serves on; 'make clean' removes it." % HOST)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ANSIBLE_DISPLAY_SKIPPED_HOSTS", "false")
    # What a task says is read as data.
    os.environ["ANSIBLE_CALLBACK_RESULT_FORMAT"] = "json"
    os.environ.setdefault("ANSIBLE_INJECT_FACT_VARS", "false")
    if os.environ.get("GPUFLEET_COLLECTIONS"):
        os.environ["ANSIBLE_COLLECTIONS_PATH"] = os.environ["GPUFLEET_COLLECTIONS"]
    sys.exit(main())
