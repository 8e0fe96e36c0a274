# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: the declared arguments, and a configuration file that is merged before them."""

from __future__ import annotations

import argparse
import json
import logging
import os

from sglang.played import versions
from sglang.srt.server_args import ServerArgs


def prepare_server_args(argv: list[str]) -> argparse.Namespace:
    """The parsed arguments. Ends with status 2 as argparse does, or with an exception for the configuration file."""
    parser = argparse.ArgumentParser(prog="sglang serve" if versions.at_least("0.5.22") else "launch_server.py")
    ServerArgs.add_cli_args(parser)
    # Exactly these two words: --config=FILE is accepted by the parser and not read.
    if "--config" in argv and versions.at_least("0.5.3"):
        argv = merged(parser, argv)
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        level=getattr(logging, arguments.log_level.upper()),
        format="[%(asctime)s] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
    return arguments


def merged(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """The file's words before those of the command line, so that the command line wins."""
    if argv.count("--config") > 1:
        raise ValueError("Multiple config files specified! Only one allowed.")
    place = argv.index("--config")
    if place == len(argv) - 1:
        raise ValueError("No config file specified after --config flag!")
    return words_of(parser, content(argv[place + 1])) + argv[:place] + argv[place + 2 :]


def content(path: str) -> dict:
    import yaml  # only those who use a file pay for it

    suffix = os.path.splitext(path)[1]
    if suffix.lower() not in (".yaml", ".yml"):
        raise ValueError(f"Config file must be YAML format, got: {suffix}")
    if not os.path.exists(path):
        raise ValueError(f"Config file not found: {path}")
    with open(path) as stream:
        data = yaml.safe_load(stream)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ValueError("Config file must contain a dictionary at root level")
    return data


def words_of(parser: argparse.ArgumentParser, data: dict) -> list[str]:
    words = []
    for name, value in data.items():
        action = next((one for one in parser._actions if name.replace("-", "_") == one.dest), None)
        flag = action is not None and isinstance(action, argparse._StoreTrueAction)
        if versions.at_least("0.5.8") and action is not None and action.nargs == 0 and not flag:
            raise ValueError(
                f"Unsupported config option '{action.dest}' with action '{type(action).__name__}'"
            )
        if isinstance(value, bool):
            if flag or not versions.at_least("0.5.8"):
                words += [f"--{name}"] if value else []
            else:
                words += [f"--{name}", str(value).lower()]
        elif isinstance(value, list):
            words += [f"--{name}", *(str(one) for one in value)] if value else []
        elif isinstance(value, dict) and versions.at_least("0.5.23"):
            words += [f"--{name}", json.dumps(value)]
        else:
            words += [f"--{name}", str(value)]
    return words
