"""Deploy to one host, and when a task begins kill the controller with all of its workers, or cut its connection.

python killed_run.py kill|cut INVENTORIES HOST TASK SECONDS_LATER EXTRA_VARIABLES
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def descendants(parent: int) -> list[int]:
    """Return a process and all below it: workers of Ansible have sessions of their own."""
    found = [parent]
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in task.read_text().split():
            found += descendants(int(child))
    return found


def kill(process: subprocess.Popen[str]) -> None:
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def cut(host: str) -> None:
    """Every connection of the host breaks, and it takes none for a while."""
    script = "systemctl stop ssh; pkill -KILL sshd; systemd-run --quiet --collect sh -c 'sleep 15; systemctl start ssh'"
    hosts = Path(__file__).resolve().parent.parent / "shared" / "hosts" / "hosts.sh"
    subprocess.run(["bash", str(hosts), "exec", host, "sh", "-c", script], check=True)


def main() -> int:
    how, inventories, host, task, seconds_later, variables = sys.argv[1:]
    playbook = str(Path(__file__).resolve().parent / "serve.yml")
    command = ["ansible-playbook", playbook, "--limit", host, "--extra-vars", variables]
    for source in inventories.split(","):
        command += ["-i", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            print(line, end="")
            if line.startswith("TASK [") and task in line:
                time.sleep(float(seconds_later))
                if how == "kill":
                    kill(process)
                    print(f"killed at '{task}'" + (f" after {seconds_later} s" if float(seconds_later) else ""))
                    return 0
                cut(host)
                found = "UNREACHABLE" in process.stdout.read()
                time.sleep(20)
                print(f"cut off at '{task}' after {seconds_later} s" + ("" if found else ", and nobody noticed"))
                return 0 if found else 1
    print(f"expected the run to reach '{task}', found its end")
    return 1


if __name__ == "__main__":
    sys.exit(main())
