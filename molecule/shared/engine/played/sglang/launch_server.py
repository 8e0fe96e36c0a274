# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m sglang.launch_server``: arguments, launcher, HTTP server."""

from __future__ import annotations

import sys
import warnings

from sglang.played import command, gpu_launcher, launcher, versions


def main(argv: list[str]) -> None:
    server_args = command.prepare_server_args(argv)
    kind = gpu_launcher.GpuLauncher if gpu_launcher.wanted(server_args) else launcher.Launcher
    kind(server_args).run()


if __name__ == "__main__":
    if versions.at_least("0.5.10"):
        warnings.warn(
            "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
            "  Example: sglang serve --model-path <model> [options]",
            UserWarning,
            stacklevel=1,
        )
    main(sys.argv[1:])
