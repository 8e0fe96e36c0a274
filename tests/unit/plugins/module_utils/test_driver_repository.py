# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which repositories apt's files name: _driver_repository."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_repository

# The file of the package cuda-keyring 1.1, and lines as Debian's installer and people write them.
LINES = """\
# deb https://commented.example.com/ /
deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://developer.nvidia.com/cuda/debian12/x86_64/ /
deb [ arch=amd64 trusted=yes ] file:/srv/repository /
deb-src http://deb.example.com/debian bookworm main contrib
"""
PARAGRAPHS = """\
# Uris: https://commented.example.com
Types: deb deb-src
URIs: http://deb.example.com/debian/ http://mirror.example.com/debian
Suites: bookworm
  bookworm-updates
Components: main

Types: deb
URIs: https://off.example.com
Suites: /
Enabled: no

Types: deb
URIs: https://off-too.example.com
Suites: /
Enabled: 0

types: deb
uris: file:/srv/repository/
suites: /
"""


def test_entries_of_one_line():
    assert _driver_repository.entries_of("/etc/apt/sources.list", LINES) == {
        ("https://developer.nvidia.com/cuda/debian12/x86_64", "/"),
        ("file:/srv/repository", "/"),
        ("http://deb.example.com/debian", "bookworm"),
    }


def test_entries_of_paragraphs():
    assert _driver_repository.entries_of("/etc/apt/sources.list.d/debian.sources", PARAGRAPHS) == {
        ("http://deb.example.com/debian", "bookworm"),
        ("http://deb.example.com/debian", "bookworm-updates"),
        ("http://mirror.example.com/debian", "bookworm"),
        ("http://mirror.example.com/debian", "bookworm-updates"),
        ("file:/srv/repository", "/"),
    }
