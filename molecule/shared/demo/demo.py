# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job for the eye, on a test host with a real systemd, a real journal and a real SGLang on its CPU.

Every act runs a playbook of the installed release archive as a user would, and is checked by what the host itself says
afterwards. Ends with exit status 1 when an act did not show what it is there to show.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
HOSTS = CHECKOUT / "molecule/shared/hosts/hosts.sh"
HOST = "gpu-a"
UNIT = "sglang-main.service"
STATE = "/var/lib/sglang/main"

# The figures that this demo has to show.
MOST_SECONDS_AFTER_READY_LINE = 2.0
MOST_SECONDS_AFTER_FATAL_LINE = 3.0
MOST_ERROR_BLIND = 0.08
MOST_ERROR_MEASURED = 0.02

# SGLang's processes take about this much RAM before they load; what moved more than this was moved by something else.
PROCESSES_GIB = 2.3
MOVED_GIB = 0.25


def say(text=""):
    print(text, flush=True)


def heading(text):
    say("\n\033[1m%s\033[0m" % text if sys.stdout.isatty() else "\n== %s" % text)


class Play:
    """One run of a playbook of the collection: its exit status, its seconds and what it printed."""

    def __init__(self, name, **variables):
        command = [
            "ansible-playbook",
            "gpufleet.sglang." + name,
            "-i",
            str(CHECKOUT / "inventories/demo"),
            "-i",
            inventory(),
        ]
        if variables:
            command += ["-e", json.dumps(variables)]
        say(
            "$ " + " ".join("'%s'" % word if " " in word else word for word in command).replace(str(CHECKOUT) + "/", "")
        )
        began = time.monotonic()
        lines = []
        with subprocess.Popen(
            command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout:
                lines.append(line)
                say("  " + line.rstrip())
        self.status = process.returncode
        self.seconds = time.monotonic() - began
        self.text = re.sub(r"\s+", " ", "".join(lines))
        say("  (%.0f s, exit status %d)" % (self.seconds, self.status))

    def changed(self):
        return sum(int(number) for number in re.findall(r"changed=(\d+)", self.text))


_INVENTORY = []


def inventory():
    if not _INVENTORY:
        _INVENTORY.append(
            subprocess.run([HOSTS, "inventory"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
        )
    return _INVENTORY[0]


def on_host(command):
    """Output of a command as root on the host."""
    done = subprocess.run([HOSTS, "exec", HOST, "sh", "-c", command], check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout.strip()


def invocation():
    return on_host("systemctl show --property=InvocationID --value " + UNIT)


def attempts():
    return [json.loads(line) for line in on_host("cat %s/attempts.jsonl 2>/dev/null || true" % STATE).splitlines()]


def proof():
    return json.loads(on_host("cat %s/proof.json" % STATE))


def ask(question):
    """The model's own continuation, asked on the host as any client would."""
    request = json.dumps({"text": question, "sampling_params": {"max_new_tokens": 8, "temperature": 0}})
    program = (
        "import urllib.request as u; print(u.urlopen(u.Request('http://127.0.0.1:30000/generate', data=%r.encode(), "
        "headers={'Content-Type': 'application/json'}), timeout=60).read().decode())" % request
    )
    answer = json.loads(on_host("python3 -c \"$(cat <<'END'\n%s\nEND\n)\"" % program))
    return answer["text"].strip().split("\n")[0]


class Checks:
    """What each act had to show, and whether it did."""

    def __init__(self):
        self.rows = []

    def add(self, what, fine, found):
        self.rows.append((what, bool(fine), found))
        say("  %s %s: %s" % ("ok  " if fine else "MISS", what, found))

    def missed(self):
        return [what for what, fine, dummy in self.rows if not fine]


def new_host():
    subprocess.run([HOSTS, "down", HOST], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([HOSTS, "up", HOST], check=True)
    _INVENTORY.clear()


def started(wait_seconds=0):
    """Pool and free memory before the load, in GiB, as SGLang printed them in the start-up that is active."""
    wanted = {"before": r"Load weight begin\. avail mem=([0-9.]+)", "pool": r"max_total_num_tokens=([0-9]+)"}
    end = time.monotonic() + wait_seconds
    while True:
        journal = on_host("journalctl --no-pager -o cat _SYSTEMD_INVOCATION_ID=%s" % invocation())
        found = {name: re.search(pattern, journal) for name, pattern in wanted.items()}
        if all(found.values()) or time.monotonic() > end:
            return {name: float(match.group(1)) for name, match in found.items()}
        time.sleep(2)


def moved(attempt):
    """Did something else take or free memory between the plan and the load, and is that why the plan is off?"""
    measured = attempt.get("measurement") or {}
    if not measured.get("plan_free_gib") or abs(error_of(attempt)) <= MOST_ERROR_BLIND:
        return False
    return abs(measured["plan_free_gib"] - measured["free_before_load_gib"] - PROCESSES_GIB) > MOVED_GIB


def off(predicted, real):
    return abs(predicted - real) / real


def error_of(attempt):
    """How far the prediction was from the real pool, as a share of the real one."""
    real = attempt["startup"]["pool_tokens"]
    return (attempt["predicted"]["predicted_tokens"] - real) / real


def floor_gib():
    """A floor that leaves a pool of a few GiB on any machine: three quarters of what is free now."""
    available_kib = int(on_host("awk '/^MemAvailable/ {print $2}' /proc/meminfo"))
    return round(available_kib / 2**20 * 0.75, 1)


def main():
    checks = Checks()
    began = time.monotonic()
    heading("The host %s: Debian with systemd, no GPU, nothing of SGLang configured" % HOST)
    new_host()
    floor = floor_gib()

    heading("1. The plan: what would be done, and why. Nothing is changed")
    play = Play("plan", sglang_server_min_headroom_gib=floor)
    checks.add("plan changes nothing", play.status == 0 and play.changed() == 0, "changed=%d" % play.changed())

    heading("2. The deployment, to a proven server")
    deploy = Play("deploy", sglang_server_min_headroom_gib=floor)
    tried = attempts()
    if tried and moved(tried[0]):
        say("  The machine's free memory moved for another reason while this ran: once more, on a new host.")
        new_host()
        deploy = Play("deploy", sglang_server_min_headroom_gib=floor)
        tried = attempts()
    checks.add("proven", tried and tried[-1]["verdict"] == "proven", tried[-1]["reason"] if tried else "no attempt")
    if not tried or tried[-1]["verdict"] != "proven":
        return finish(checks, began, [])
    answer = ask("The capital of France is")
    checks.add('"The capital of France is ..."', "Paris" in answer, answer)
    checks.add(
        "predicted blind against real pool (most %.0f%%)" % (MOST_ERROR_BLIND * 100),
        abs(error_of(tried[0])) <= MOST_ERROR_BLIND,
        compare(tried[0]),
    )
    after_ready = tried[-1]["seconds"]["seconds_after_ready_line"]
    checks.add(
        "seconds from SGLang's ready line to the end of server_ready (most %.0f)" % MOST_SECONDS_AFTER_READY_LINE,
        after_ready < MOST_SECONDS_AFTER_READY_LINE,
        after_ready,
    )
    first_before = tried[-1]["startup"]["free_before_load_gib"]
    proven = invocation()

    heading("3. The same again: nothing to do, no restart")
    play = Play("deploy", sglang_server_min_headroom_gib=floor)
    checks.add("changed=0", play.status == 0 and play.changed() == 0, "changed=%d" % play.changed())
    checks.add("no restart", invocation() == proven, "the same invocation serves")

    heading("4. A promise that cannot fit: refused before any restart")
    play = Play("deploy", sglang_server_min_headroom_gib=floor, sglang_server_target_tokens=50000000)
    checks.add(
        "refused, saying what would fit",
        play.status != 0
        and "refused before any restart" in play.text
        and re.search(r"what fits is sglang_server_target_tokens: \d+", play.text),
        "exit status %d" % play.status,
    )
    checks.add("no restart", invocation() == proven, "the same invocation serves")

    heading("5. An argument that this SGLang does not know: refused before any restart")
    play = Play(
        "deploy", sglang_server_min_headroom_gib=floor, sglang_server_arguments_host={"enable-warp-drive": True}
    )
    checks.add(
        "refused, naming it", play.status != 0 and "enable-warp-drive" in play.text, "exit status %d" % play.status
    )
    checks.add("no restart", invocation() == proven, "the same invocation serves")

    heading("6. A value that only the start rejects: named in seconds, and the host goes back")
    play = Play(
        "deploy",
        sglang_server_min_headroom_gib=floor,
        sglang_server_arguments_host={"tokenizer-path": "/srv/models/nowhere"},
    )
    failed = attempts()[-1]
    checks.add(
        "named from the journal", play.status != 0 and failed["failure"]["kind"] != "unknown", failed["failure"]["kind"]
    )
    seconds = failed["seconds"]["seconds_after_fatal_line"]
    checks.add(
        "seconds from the fatal line to its name (most %.0f)" % MOST_SECONDS_AFTER_FATAL_LINE,
        seconds is not None and seconds < MOST_SECONDS_AFTER_FATAL_LINE,
        seconds,
    )
    answer = ask("The capital of France is")
    checks.add("back on what was proven, and answers", invocation() != proven and "Paris" in answer, answer)

    heading("7. What the plan says about that configuration, now that one start is measured")
    restored = started()
    play = Play("plan", sglang_server_min_headroom_gib=floor, sglang_server_mem_fraction_static=proof()["fraction"])
    predicted = int(re.search(r"predicted tokens +([0-9,]+)", play.text).group(1).replace(",", ""))
    real = restored
    if off(predicted, real["pool"]) > MOST_ERROR_MEASURED and abs(real["before"] - first_before) > MOVED_GIB:
        say(
            "  The machine's free memory moved by %.2f GiB for another reason: one more start."
            % (real["before"] - first_before)
        )
        on_host("systemctl restart %s" % UNIT)
        real = started(wait_seconds=180)
    checks.add(
        "predicted after one start against real pool (most %.0f%%)" % (MOST_ERROR_MEASURED * 100),
        off(predicted, real["pool"]) <= MOST_ERROR_MEASURED,
        "%d predicted, %d real, %+.1f%%" % (predicted, real["pool"], 100.0 * (predicted - real["pool"]) / real["pool"]),
    )
    return finish(checks, began, attempts(), deploy.seconds)


def compare(attempt):
    predicted, real = attempt["predicted"]["predicted_tokens"], attempt["startup"]["pool_tokens"]
    return "%d predicted, %d real, %+.1f%%" % (predicted, real, error_of(attempt) * 100)


def finish(checks, began, tried, deploy_seconds=None):
    heading("What was tried on %s" % HOST)
    row = "  %-8s %-9s %-10s %-10s %-9s %s"
    say(row % ("verdict", "fraction", "predicted", "pool", "headroom", "reason"))
    for attempt in tried:
        startup = attempt["startup"]
        say(
            row
            % (
                attempt["verdict"],
                attempt["values"].get("fraction"),
                attempt["predicted"]["predicted_tokens"],
                startup.get("pool_tokens") or "-",
                "%.2f GiB" % startup["headroom_gib"] if startup.get("headroom_gib") else "-",
                attempt["reason"][:90],
            )
        )
    heading("What had to be shown")
    for what, fine, found in checks.rows:
        say("  %s %-75s %s" % ("ok  " if fine else "MISS", what, found))
    missed = checks.missed()
    say(
        "\nDemo: %.0f s in all%s."
        % (time.monotonic() - began, ", first deployment %.0f s" % deploy_seconds if deploy_seconds else "")
    )
    if missed:
        say("Demo failed: %s." % "; ".join(missed))
        return 1
    say("Demo passed. The host %s serves on; 'make clean' removes it." % HOST)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("ANSIBLE_DISPLAY_SKIPPED_HOSTS", "false")
    os.environ.setdefault("ANSIBLE_CALLBACK_RESULT_FORMAT", "yaml")
    os.environ.setdefault("ANSIBLE_INJECT_FACT_VARS", "false")
    if os.environ.get("GPUFLEET_COLLECTIONS"):
        os.environ["ANSIBLE_COLLECTIONS_PATH"] = os.environ["GPUFLEET_COLLECTIONS"]
    sys.exit(main())
