# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan gives ``/health`` and the watchdog for the declared context."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils._patience_serving import serving_patience

HEALTH, WATCHDOG = "SGLANG_HEALTH_CHECK_TIMEOUT", "watchdog-timeout"


@pytest.mark.parametrize(
    ("context_tokens", "chunk_tokens", "device", "health", "watchdog"),
    [
        # 8192 / 500 = 16.4 s at the beginning: a short context needs nothing.
        (8192, 8192, "cuda", None, None),
        # 8192 / 500 x 2 = 32.8 s at the end of 131,072 tokens; five times that is within 300 s.
        (131072, 8192, "cuda", "40", None),
        # 16384 / 500 x 3 = 98.3 s, and 491.5 s.
        (262144, 16384, "cuda", "100", 500),
        # Without chunks a prompt is one pass: 131072 / 500 x 2 = 524.3 s.
        (131072, -1, "cuda", "530", 2630),
        # Short prompts together fill a pass of 16,384 tokens: 16384 / 500 x 1.03 = 33.8 s.
        (4096, None, "cuda", "40", None),
        # 4096 / 50 x 1.016 = 83.2 s, and 416 s: 27 s for 2,036 tokens were measured.
        (2048, 4096, "cpu", "90", 420),
        (None, 8192, "cuda", None, None),
    ],
)
def test_the_longest_pass_decides(context_tokens, chunk_tokens, device, health, watchdog):
    arguments, environment = serving_patience(context_tokens, chunk_tokens, device, {"tp-size": 8}, {"A": "b"})
    assert (environment.pop(HEALTH, None), arguments.pop(WATCHDOG, None)) == (health, watchdog)
    assert (arguments, environment) == ({"tp-size": 8}, {"A": "b"})


def test_what_is_stated_is_not_moved():
    stated = {"watchdog_timeout": 60}, {HEALTH: "5"}
    assert serving_patience(262144, -1, "cuda", *stated) == stated
