# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deprecated argument does: it warns and goes on."""

from __future__ import annotations

import argparse
import logging

logger = logging.getLogger(__name__)


def print_deprecated_warning(message: str) -> None:
    logger.warning("\033[1;33m%s\033[0m", message)


class DeprecatedStoreTrueAction(argparse.Action):
    """An old flag that still stores True."""

    def __init__(self, option_strings, dest, new_flag=None, nargs=0, const=True, default=False, **kwargs):
        self.new_flag = new_flag
        super().__init__(option_strings, dest, nargs=nargs, const=const, default=default, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        print_deprecated_warning(
            f"'{option_string}' is deprecated and will be removed in a future release. Use '{self.new_flag}' instead."
        )
        setattr(namespace, self.dest, True)


class DeprecatedAliasStoreAction(argparse.Action):
    """An old flag with a value: the value goes to the new name."""

    def __init__(self, option_strings, dest, new_flag=None, **kwargs):
        self.new_flag = new_flag
        super().__init__(option_strings, dest, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        print_deprecated_warning(
            f"'{option_string}' is deprecated and will be removed in a future release. Use '{self.new_flag}' instead."
        )
        setattr(namespace, self.dest, values)
