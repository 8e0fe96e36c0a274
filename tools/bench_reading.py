# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What reading the journal costs, on test hosts with a real journald of two versions of systemd.

    bench_reading.py [--lines 300000] [--follow 1000000] [--release bookworm] [--keep]

find:    the start-up record of a unit that has said --lines lines since, beside `journalctl -o cat | grep`
follow:  resident memory while --follow lines come
disturb: each line read once while the journal is rotated and cut, and journald restarted
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile

import tree

HOSTS = ["bash", str(tree.ROOT / "molecule" / "shared" / "hosts" / "hosts.sh")]
RELEASES = ("bookworm", "trixie")
LIBRARY = "ansible_collections/gpufleet/sglang/plugins/module_utils"
START = tree.ROOT / "tests" / "data" / "journal" / "start_and_ready.jsonl"
ON_HOST = "/opt/bench/bench_reading_host.py"
PER_SECOND, DISTURBED_LINES, DISTURBED_PER_SECOND = 8000, 60000, 2000
# More memory than this between a tenth of the lines and all of them is growth.
GROWTH_MIB = 4.0
# journald's own limit must not drop what is counted here, and 0 does not switch it off for one unit:
# https://github.com/systemd/systemd/issues/22034
UNLIMITED = ["-p", "LogRateLimitIntervalSec=1us", "-p", "LogRateLimitBurst=100000000"]


def on(host, *command, data=None):
    """Run a command on a test host; returns what it prints."""
    done = subprocess.run(
        [*HOSTS, "exec", host, *command], input=data, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{host}: {' '.join(command)[:100]}: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout.decode()


def start_lines():
    """The lines of a real start-up as the service printed them."""
    messages = [json.loads(line) for line in START.read_text().splitlines()]
    texts = [one["MESSAGE"] for one in messages if one.get("_TRANSPORT") == "stdout" and one["MESSAGE"]]
    return b"".join((bytes(text) if isinstance(text, list) else text.encode()) + b"\n" for text in texts)


def install(host):
    """Put the reading rooms, the start-up and the talker on a host, and keep enough journal there."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted((tree.ROOT / "plugins" / "module_utils").glob("*.py")):
            archive.add(path, f"opt/bench/lib/{LIBRARY}/{path.name}")
        archive.add(tree.ROOT / "tools" / "bench_reading_host.py", ON_HOST.lstrip("/"))
        member, text = tarfile.TarInfo("opt/bench/start.log"), start_lines()
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
        member, text = tarfile.TarInfo("etc/systemd/journald.conf.d/bench.conf"), b"[Journal]\nSystemMaxUse=2G\n"
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    on(host, "tar", "-C", "/", "-x", "--no-same-owner", data=packed.getvalue())
    on(host, "systemctl", "restart", "systemd-journald")


def talk(host, unit, lines, per_second):
    on(
        host, "systemd-run", "--quiet", f"--unit={unit}", *UNLIMITED,
        "python3", ON_HOST, "talk", "/opt/bench/start.log", str(lines), str(per_second), "3600",
    )  # fmt: skip


def wait_for_line(host, unit, number):
    """Wait until a unit has said its last line."""
    script = f"until journalctl -q -u {unit} -n 1 -o cat | grep -q 'token: {number},'; do sleep 1; done"
    on(host, "timeout", "900", "sh", "-c", script)


def measure(host, what, *arguments):
    return json.loads(on(host, "python3", ON_HOST, what, *map(str, arguments)))


def line(kept, host, text):
    print(f"{'ok  ' if kept else 'MISS'} {host:<10} {text}", flush=True)
    return kept


def bench(host, options):
    """Measure on one host; True when everything is as promised."""
    install(host)
    talk(host, "bench-find", options.lines, 100000)
    wait_for_line(host, "bench-find", options.lines - 1)
    found = measure(host, "find", "bench-find")
    hand, kept = found["by_hand"], True
    for name in ("follower", "startup_info"):
        kept &= line(
            found[name][0] <= hand[0] and found[name][1] <= hand[1],
            host,
            f"start-up before {options.lines:,} lines: {name} {found[name][0]:.3f} s wall, {found[name][1]:.3f} s CPU; "
            f"journalctl | grep {hand[0]:.3f} s, {hand[1]:.3f} s",
        )
    same = found["printed"] == str(found["pool_tokens"]) == str(found["info_pool_tokens"])
    kept &= line(same, host, f"the same pool by all: {found['printed']} {found['pool_tokens']}")
    on(host, "systemctl", "stop", "bench-find")
    talk(host, "bench-disturb", DISTURBED_LINES, DISTURBED_PER_SECOND)
    told = measure(host, "disturb", "bench-disturb", DISTURBED_LINES)
    kept &= line(
        told["twice"] == told["missing"] == 0 and told["in_order"],
        host,
        f"{told['disturbances']} disturbances of the journal: {told['read']:,} lines read, {told['twice']} twice, "
        f"{told['missing']} missing",
    )
    on(host, "systemctl", "stop", "bench-disturb")
    talk(host, "bench-follow", options.follow, PER_SECOND)
    told = measure(host, "follow", "bench-follow", options.follow)
    memory = told["resident_mib"]
    figures = list(memory.values())
    kept &= line(
        told["seen"] >= options.follow and len(figures) == 3 and max(figures) - figures[0] <= GROWTH_MIB,
        host,
        "resident memory "
        + ", ".join(f"{size} MiB at {int(lines):,}" for lines, size in memory.items())
        + f" lines ({told['seen']:,} read); {told['processor_seconds']:.0f} s CPU",
    )
    on(host, "systemctl", "stop", "bench-follow")
    return kept


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--lines", type=int, default=300000)
    parser.add_argument("--follow", type=int, default=1000000)
    parser.add_argument("--release", choices=RELEASES, action="append", help="only this one")
    parser.add_argument("--keep", action="store_true", help="leave the test hosts running")
    options = parser.parse_args(arguments)
    kept = True
    for release in options.release or RELEASES:
        host = f"bench-{release}"
        subprocess.run([*HOSTS, "up", host, "--release", release], check=True)
        try:
            kept &= bench(host, options)
        finally:
            if not options.keep:
                subprocess.run([*HOSTS, "down", host], check=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
