# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: keys. What a measurement, a proof and a running configuration depend on, as short digests.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import hashlib
import json

from ansible_collections.gpufleet.sglang.plugins.module_utils._conflicts import allocator_value
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments

QUANTITIES = ("weights", "cell", "activation")

# Which quantities an argument of SGLang can change. An argument that is not listed matters to all of them.
# Source: SGLang 0.4.3 to 0.5.23, model_runner, pool_configurator, server_args: what enters weights, cell and rest.
ARGUMENT_MATTERS_TO = {
    # identity and access: nothing of it reaches device memory
    "host": (),
    "port": (),
    "served-model-name": (),
    "api-key": (),
    "admin-api-key": (),
    "config": (),
    "chat-template": (),
    "reasoning-parser": (),
    "tool-call-parser": (),
    "fastapi-root-path": (),
    "file-storage-path": (),
    "ssl-keyfile": (),
    "ssl-certfile": (),
    "ssl-ca-certs": (),
    # logs and metrics
    "log-level": (),
    "log-level-http": (),
    "log-requests": (),
    "log-requests-level": (),
    "decode-log-interval": (),
    "enable-metrics": (),
    "show-time-cost": (),
    "uvicorn-access-log-exclude-prefixes": (),
    # patience
    "watchdog-timeout": (),
    "soft-watchdog-timeout": (),
    "dist-timeout": (),
    "warmups": (),
    "skip-server-warmup": (),
    # what the loop moves: the measurement is carried over to other values of these
    "mem-fraction-static": (),
    "max-total-tokens": (),
    # the model itself is part of the keys by its geometry, bytes and revision
    "model-path": ("weights",),
    "tokenizer-path": (),
    "revision": ("weights",),
    "trust-remote-code": (),
    "quantization": ("weights", "activation"),
    "load-format": ("weights",),
    "dtype": ("weights", "cell", "activation"),
    "tp-size": ("weights", "cell", "activation"),
    "pp-size": ("weights", "cell", "activation"),
    "dp-size": ("weights", "cell", "activation"),
    "ep-size": ("weights", "activation"),
    "kv-cache-dtype": ("cell", "activation"),
    "page-size": ("cell",),
    "chunked-prefill-size": ("activation",),
    "max-prefill-tokens": ("activation",),
    "context-length": ("activation",),
    "max-running-requests": ("activation",),
    "cuda-graph-max-bs": ("activation",),
    "cuda-graph-max-bs-decode": ("activation",),
    "disable-cuda-graph": ("activation",),
    "attention-backend": ("activation",),
    "sampling-backend": ("activation",),
    "schedule-policy": (),
    "random-seed": (),
    "stream-interval": (),
}


def _plain(data):
    """Numbers and booleans lose the spelling of a template: controllers differ in whether "{{ 5 }}" is text."""
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    if isinstance(data, str):
        if data in ("True", "False"):
            return data == "True"
        try:
            return _plain(float(data))
        except ValueError:
            return data
    if isinstance(data, float) and data.is_integer():
        return int(data)
    return data


def digest(data):
    """The first 16 hex digits of SHA-256 over canonical JSON: short enough to read aloud, long enough to tell apart."""
    text = json.dumps(_plain(data), sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _minor(engine_version):
    return ".".join(str(engine_version or "").split(".")[:3])


def keys(arguments, environment, geometry, weight_bytes, engine_version):
    """The keys of each quantity.

    :arg arguments: SGLang's arguments in any spelling.
    :arg environment: environment of the process.
    :arg geometry: geometry of ``model_info``.
    :arg weight_bytes: bytes of the weights on disk.
    :arg engine_version: version text of SGLang.
    :returns: ``{"weights": digest, "cell": digest, "activation": digest}``. Free before load has no keys: it is
        this host's alone.
    """
    arguments = canonical_arguments(arguments or {})
    # Of the environment only the settings of the allocator change what memory is needed: in any order, and whatever the
    # name of their variable, which is another one from torch 2.10 on.
    settings = allocator_value(environment or {}).split(",")
    allocator = sorted({setting.strip() for setting in settings if setting.strip()})
    beside = {
        "weights": {"bytes": weight_bytes, "geometry": geometry, "version": engine_version},
        "cell": {"geometry": geometry, "version": engine_version},
        "activation": {"geometry": geometry, "version": _minor(engine_version), "allocator": allocator},
    }
    return {
        quantity: digest(
            {
                "arguments": {
                    name: value
                    for name, value in arguments.items()
                    if quantity in ARGUMENT_MATTERS_TO.get(name, QUANTITIES)
                },
                "beside": beside[quantity],
            }
        )
        for quantity in QUANTITIES
    }


def request_hash(request):
    """Digest of everything that the user declared for an instance."""
    return digest(request)


def config_hash(arguments, environment, engine_version):
    """Digest of what a start hands to the process. It stands in the process' own environment, so that the running
    invocation itself tells which configuration it runs."""
    return digest(
        {"arguments": canonical_arguments(arguments or {}), "environment": environment or {}, "version": engine_version}
    )
