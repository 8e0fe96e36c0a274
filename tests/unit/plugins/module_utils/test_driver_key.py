# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprints without gpg. The keys were made with gpg, which printed the fingerprints that stand here."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_key
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError

DATA = Path(__file__).resolve().parents[3] / "data" / "driver"
ONE = (DATA / "key.asc").read_text()
TWO = (DATA / "two_keys.asc").read_text()
FIRST = "4681A34F096AC279D257DF27A28EA8BA09EE7F62"
SECOND = "DEBC31DF9FB1AF91DB440085B28A33755130617B"


def test_the_fingerprint_of_the_primary_key_not_of_its_subkey():
    assert _driver_key.fingerprints(ONE) == [FIRST]


def test_every_primary_key_of_a_file():
    assert _driver_key.fingerprints(TWO) == [FIRST, SECOND]


def test_line_ends_of_windows():
    assert _driver_key.fingerprints(ONE.replace("\n", "\r\n")) == [FIRST]


def test_the_wanted_key():
    spaced = "4681 A34F 096A C279 D257  DF27 A28E A8BA 09EE 7F62".lower()
    assert _driver_key.check_key(ONE, spaced) == FIRST


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(ONE, SECOND), (TWO, FIRST), (TWO, SECOND)],
    ids=["another key", "one more", "one before"],
)
def test_another_key_is_refused(text, wanted):
    with pytest.raises(DriverError, match="nvidia_driver_repository_fingerprint"):
        _driver_key.check_key(text, wanted)


def test_a_key_of_another_version_beside_the_wanted_one_is_refused():
    import base64

    # A packet of a primary key (new format, tag 6) of version 6 behind the wanted one.
    extra = base64.b64encode(bytes([0xC0 | 6, 3, 6, 0, 0])).decode()
    block = f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{extra}\n-----END PGP PUBLIC KEY BLOCK-----\n"
    with pytest.raises(DriverError, match="version 6"):
        _driver_key.check_key(ONE + block, FIRST)


@pytest.mark.parametrize(
    "text",
    ["<html>404</html>", "", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----"],
)
def test_what_is_no_key(text):
    with pytest.raises(DriverError, match="armoured OpenPGP key"):
        _driver_key.check_key(text, FIRST)


def test_a_key_that_is_cut_off():
    lines = ONE.splitlines()
    begin, end = lines.index(""), next(n for n, line in enumerate(lines) if line.startswith("="))
    cut = "\n".join(lines[: begin + 2] + lines[end:])
    with pytest.raises(DriverError):
        _driver_key.fingerprints(cut)
