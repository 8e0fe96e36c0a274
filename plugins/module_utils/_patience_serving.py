# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: how long a server that works may be silent. What ``/health`` and the watchdog must allow for the longest pass.

Private to the gpufleet.sglang collection; may change at any time.

SGLang 0.5.23 answers ``/health`` after each pass, and its watchdog counts passes (srt/entrypoints/http_server.py,
srt/managers/scheduler.py: maybe_send_health_check_signal, srt/utils/watchdog.py). A pass has at most a chunk of prompt
tokens, of one prompt or of several; without chunks it has the whole prompt.
"""

from __future__ import annotations

import math

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments

HEALTH_NAME = "SGLANG_HEALTH_CHECK_TIMEOUT"
WATCHDOG_NAME = "watchdog-timeout"

# What the engine has when nothing is said, in seconds.
HEALTH_DEFAULT_SECONDS, WATCHDOG_DEFAULT_SECONDS = 20, 300

# --max-prefill-tokens of the engine: what a pass has without chunks when all prompts are short.
UNCHUNKED_TOKENS = 16384

# Prompt tokens per second of a server that is slow and not broken, at the beginning of a prompt. A GPU: a tenth of what
# the largest models reach on one node in public logs. A CPU: 70 to 140 were measured with a model of 135 million.
SLOW_TOKENS_PER_SECOND = {"cuda": 500.0, "cpu": 50.0}

# At this depth of a prompt its attention has made a token about twice as dear.
DEEP_TOKENS = 131072

# A watchdog kills: it gets many times what a health check gets.
WATCHDOG_FACTOR = 5

STEP_SECONDS = 10


def longest_pass_seconds(context_tokens, chunk_tokens, device):
    """How long one pass of a slow server takes at the end of the longest request.

    :arg chunk_tokens: of chunked prefill; None or less than one: the whole prompt is one pass.
    """
    tokens = chunk_tokens if (chunk_tokens or 0) > 0 else max(context_tokens, UNCHUNKED_TOKENS)
    return tokens / SLOW_TOKENS_PER_SECOND.get(device, 50.0) * (1.0 + context_tokens / DEEP_TOKENS)


def serving_patience(context_tokens, chunk_tokens, device, arguments, environment):
    """``(arguments, environment)`` with what the declared context needs. What the user stated is not touched, and what
    the engine's own limits allow is not said.

    >>> serving_patience(131072, -1, "cuda", {}, {})
    ({'watchdog-timeout': 2630}, {'SGLANG_HEALTH_CHECK_TIMEOUT': '530'})
    """
    arguments, environment = dict(arguments), dict(environment)
    if not context_tokens:
        return arguments, environment
    seconds = longest_pass_seconds(context_tokens, chunk_tokens, device)
    health, watchdog = _rounded(seconds), _rounded(seconds * WATCHDOG_FACTOR)
    if health > HEALTH_DEFAULT_SECONDS and HEALTH_NAME not in environment:
        environment[HEALTH_NAME] = str(health)
    if watchdog > WATCHDOG_DEFAULT_SECONDS and WATCHDOG_NAME not in canonical_arguments(arguments):
        arguments[WATCHDOG_NAME] = watchdog
    return arguments, environment


def _rounded(seconds):
    return int(math.ceil(seconds / STEP_SECONDS)) * STEP_SECONDS
