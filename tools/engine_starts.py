# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts of the real engine on a test host against the planner: three fractions, and five starts with a cap.

    engine_starts.py [--host NAME] [--keep]

For each fraction the plan is made from what is free just before the start (blind), and again from what the engine says
is free before the load; the pool that it prints must lie inside the band. With a cap the pool must be the same to the
token in every start. Ends with status 1 when not. On a CPU the engine's free memory is the RAM of the machine: where
something else moved it meanwhile, the blind prediction is shown and not judged.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time

import tree

DEVTREE = str(tree.link().parents[2])
if DEVTREE not in sys.path:
    sys.path.append(DEVTREE)

from ansible_collections.gpufleet.sglang.plugins.module_utils import _gpu  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget import plan  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import plan_input  # noqa: E402
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_read import read_folder  # noqa: E402

HOSTS = ["bash", str(tree.ROOT / "molecule" / "shared" / "hosts" / "hosts.sh")]
VERSION, MODEL = "0.5.23", "SmolLM2-135M"
FRACTIONS = (0.1, 0.2, 0.3)
CAP_TOKENS, CAP_STARTS = 30000, 5
MEMINFO = "cat /proc/meminfo"
ARGUMENTS = {"device": "cpu", "dtype": "float32", "max-running-requests": 8, "context-length": 512}
START_SECONDS = 600
# The memory of a process that ended comes back over half a minute on some machines.
SETTLE_LOOKS, SETTLE_SECONDS, SETTLE_MIB = 15, 6, 30
FINAL = re.compile(r"max_total_num_tokens=(\d+)")
LOAD_BEGIN = re.compile(r"Load weight begin\. avail mem=([\d.]+) GB")


def on_host(host, command, check=True):
    """Run a shell command as root on the test host and return what it prints."""
    result = subprocess.run(
        [*HOSTS, "exec", host, "bash", "-c", command],
        check=check,
        capture_output=True,
        text=True,
    )
    return result.stdout


def planned(model, meminfo, **options):
    """Return the plan for a start with what is free now."""
    return plan(
        plan_input(
            {
                "arguments": dict(ARGUMENTS),
                "gpus": [_gpu.cpu_entry(meminfo, 1)],
                "device": "cpu",
                "geometry": model["geometry"],
                "weight_bytes": model["weight_bytes"],
                "weight_table": model.get("weight_table") or [],
                "weights_created": model.get("created") or [],
                "engine_version": VERSION,
                **options,
            }
        )
    )


def start(host, number, fraction, cap=None):
    """Start the engine, wait for its pool line, stop it; return (pool tokens, free before load GiB)."""
    unit = f"plan-start-{number}"
    flags = " ".join(f"--{name} {value}" for name, value in ARGUMENTS.items())
    flags += f" --mem-fraction-static {fraction} --port 31007" + ("" if cap is None else f" --max-total-tokens {cap}")
    python = f"/opt/sglang/engines/{VERSION}/bin/python"
    launch = f"{python} -m sglang.launch_server --model-path /srv/models/{MODEL} {flags}"
    on_host(
        host,
        f"systemd-run --quiet --unit {unit} --setenv=PATH=/opt/sglang/engines/{VERSION}/bin:/usr/bin:/bin"
        f" --setenv=HOME=/root {launch}",
    )
    end = time.monotonic() + START_SECONDS
    try:
        while time.monotonic() < end:
            log = on_host(host, f"journalctl -u {unit} -o cat -a --no-pager")
            if FINAL.search(log):
                return int(FINAL.search(log).group(1)), float(LOAD_BEGIN.search(log).group(1))
            if on_host(host, f"systemctl is-failed {unit}", check=False).strip() == "failed":
                break
            time.sleep(2)
    finally:
        on_host(host, f"systemctl kill -s KILL {unit}; systemctl stop {unit}", check=False)
    raise SystemExit("the engine did not come up:\n" + log[-3000:])


def settled(host):
    """Return /proc/meminfo of the host once the processes that ended have given their memory back."""
    last = None
    for _look in range(SETTLE_LOOKS):
        meminfo = on_host(host, MEMINFO)
        free_mib = _gpu.meminfo_mib(meminfo)[1]
        if last is not None and abs(free_mib - last) < SETTLE_MIB:
            break
        last = free_mib
        time.sleep(SETTLE_SECONDS)
    return meminfo


def inside(answer, tokens):
    return answer.predicted_tokens_low <= tokens <= answer.predicted_tokens_high


def words(answer, tokens):
    """Return a prediction beside what came, in words."""
    error = (answer.predicted_tokens - tokens) / tokens
    low, high = answer.predicted_tokens_low, answer.predicted_tokens_high
    return f"{answer.predicted_tokens:,} predicted, {low:,} to {high:,}, {error:+.1%}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--host", default="plan-a")
    parser.add_argument("--keep", action="store_true", help="leave the test host running")
    options = parser.parse_args(arguments)
    subprocess.run([*HOSTS, "up", options.host, "--release", "bookworm"], check=True)
    failed = 0
    try:
        cache = on_host(options.host, f"cat /srv/models/{MODEL}/config.json >/dev/null && echo there")
        assert cache.strip() == "there"
        model = read_folder(str(local_model()))
        for number, fraction in enumerate(FRACTIONS):
            wanted = {"mem_fraction_static": fraction, "pool_policy": "fill"}
            answer = planned(model, settled(options.host), **wanted)
            tokens, before = start(options.host, number, fraction)
            told = planned(model, on_host(options.host, MEMINFO), free_before_load_gib=before, **wanted)
            blind, known = inside(answer, tokens), inside(told, tokens)
            # Whatever else started or ended meanwhile moved the free memory: then only the second way tells.
            quiet = abs(answer.free_before_load_gib - before) <= 0.35
            failed += not known or (quiet and not blind)
            print(f"{'ok  ' if known else 'MISS'} fraction {fraction}: {tokens:,} tokens")
            print(f"       from free before load {before:.2f}: {words(told, tokens)}")
            way = "" if quiet else ", but something else moved the memory of this machine"
            print(f"       blind, from {answer.free_before_load_gib:.2f}{way}: {words(answer, tokens)}", flush=True)
        pools = []
        for number in range(CAP_STARTS):
            # As a promise is kept: the fraction is the plan's, in the middle of what works.
            answer = planned(model, on_host(options.host, MEMINFO), target_tokens=CAP_TOKENS)
            tokens = start(options.host, len(FRACTIONS) + number, answer.fraction, answer.cap_tokens)[0]
            pools.append((tokens, answer.pool_tokens))
        good = set(pools) == {(CAP_TOKENS, CAP_TOKENS)}
        failed += not good
        print(f"{'ok  ' if good else 'MISS'} cap {CAP_TOKENS:,}: {', '.join(f'{one:,}' for one, dummy in pools)}")
    finally:
        if not options.keep:
            subprocess.run([*HOSTS, "down", options.host], check=False)
    return 1 if failed else 0


def local_model():
    """Return the folder of the model on this machine, which the test hosts mount."""
    found = subprocess.run(
        ["bash", "-c", 'echo "${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet-sglang}"'],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return f"{found.stdout.strip()}/models/{MODEL}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
