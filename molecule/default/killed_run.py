"""Start a deployment with another context length; kill it when its files are written and nothing is restarted yet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

AFTER_THE_FILES = "Start | Make the folder of the candidate's drop-in"


def main():
    command = ["ansible-playbook", "gpufleet.sglang.deploy", "-e", "sglang_server_context_tokens=256"]
    for source in sys.argv[1].split(","):
        command += ["-i", source]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        for line in process.stdout:
            print(line, end="")
            if AFTER_THE_FILES in line:
                os.killpg(process.pid, signal.SIGKILL)
                print("killed")
                return 0
    print("expected the deployment to reach %r, found its end" % AFTER_THE_FILES)
    return 1


if __name__ == "__main__":
    sys.exit(main())
