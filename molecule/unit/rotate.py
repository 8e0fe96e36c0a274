"""Rotate the API key by a deployment that shows all it can (-vvv, --diff), and search its output for both keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

OLD, NEW = "canary-old-7c1f0e92", "canary-new-3b8d44aa"


def main():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as variables:
        json.dump({"sglang_server_api_key": NEW}, variables)
        variables.flush()
        command = ["ansible-playbook", "gpufleet.sglang.deploy", "-vvv", "--diff", "-e", "@" + variables.name]
        for source in sys.argv[1].split(","):
            command += ["-i", source]
        environment = dict(os.environ, ANSIBLE_DISPLAY_ARGS_TO_STDOUT="true")
        run = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False
        )
    lines = run.stdout.splitlines()
    telling = [line for line in lines if OLD in line or NEW in line]
    print("%d lines of output, %d of them tell a key, exit status %d" % (len(lines), len(telling), run.returncode))
    for line in telling:
        print(line.replace(OLD, "<the old key>").replace(NEW, "<the new key>")[:2000])
    if run.returncode != 0 or len(lines) < 100:
        print("\n".join(line for line in lines[-60:] if line not in telling))
        return 1
    return 1 if telling else 0


if __name__ == "__main__":
    sys.exit(main())
