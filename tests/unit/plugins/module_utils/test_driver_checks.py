# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan asks before it moves anything: _driver_checks, by the plans that come of it."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.tests.unit.plugins.driver_hosts import host, installed, plan, refusal


@pytest.mark.parametrize("there", [host, installed], ids=["nothing else", "packages too"])
def test_a_driver_of_the_installer_is_not_removed_with_a_word_only(there):
    info = there(runfile=True, loaded="580.95.05", loaded_flavour="open")
    assert "run nvidia-uninstall --silent on the host" in refusal(info, state="absent")
