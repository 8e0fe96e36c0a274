# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one variable may be: types, ranges, and the arguments that have a variable of their own. Private.

Part of the room `_preflight`; pure.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

SERVER = "sglang_server_"
AUTO = "auto"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: the variable, and what was expected, what was found, what repairs it in one sentence."""

    variable: str
    sentence: str

    def as_dict(self) -> dict:
        return {"variable": self.variable, "sentence": self.sentence}


@dataclass(frozen=True)
class Range:
    """What a number may be. `words` are texts allowed instead; `also` are numbers outside the range allowed too."""

    variable: str
    low: float
    high: float | None
    whole: bool
    words: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    open_ends: bool = False
    source: str = ""


RANGES = (
    Range("sglang_server_target_tokens", 1, None, True, source="a pool of no tokens serves nothing"),
    Range("sglang_server_context_tokens", 1, None, True, (AUTO,), source="SGLang --context-length"),
    Range(
        "sglang_server_mem_fraction_static", 0, 1, False, (AUTO,), open_ends=True, source="SGLang --mem-fraction-static"
    ),
    Range("sglang_server_chunked_prefill_size", 1, None, True, (AUTO,), (-1,), source="SGLang: -1 switches chunks off"),
    Range("sglang_server_min_headroom_gib", 0, None, False, (AUTO,), source="free memory"),
    Range("sglang_server_min_least_free_gib", 0, None, False, (AUTO,), source="free memory"),
    Range("sglang_server_cell_bytes", 1, None, True, source="bytes of one token"),
    Range("sglang_server_port", 1, 65535, True, source="TCP"),
    Range("sglang_server_soak_seconds", 1, None, True, source="a load test of no length proves nothing"),
    Range("sglang_server_max_attempts", 1, 20, True, source="every attempt is a restart"),
    Range("sglang_server_timeout_seconds", 30, None, True, source="no start-up was ever seen below 20 s"),
    Range("sglang_server_drain_seconds", 0, None, True, source="systemd TimeoutStopSec"),
    Range("sglang_server_keep_backups", 1, None, True, source="the way back needs one"),
    Range("sglang_engine_min_free_gib", 0, None, False, source="disk space"),
    Range("sglang_model_workers", 1, 32, True, source="connections to one hub"),
    Range("sglang_model_tries", 1, 100, True, source="tries of one transfer"),
    Range("sglang_model_timeout_seconds", 1, None, True, source="seconds without a byte"),
)


@dataclass(frozen=True)
class Owned:
    """An argument of SGLang that a variable of its own sets."""

    argument: str
    variable: str
    source: str


OWNED = (
    Owned("mem-fraction-static", "sglang_server_mem_fraction_static", "computed by the plan"),
    Owned("max-total-tokens", "sglang_server_target_tokens", "the cap, computed from the promise and the pool policy"),
    Owned("chunked-prefill-size", "sglang_server_chunked_prefill_size", "a lever of the plan"),
    Owned("context-length", "sglang_server_context_tokens", "the soak's longest prompt"),
    Owned("model-path", "sglang_server_model_path", "its geometry is read by the plan"),
    Owned("host", "sglang_server_host", "where readiness is asked"),
    Owned("port", "sglang_server_port", "where readiness is asked"),
    Owned("api-key", "sglang_server_api_key", "kept out of the unit and of the list of processes"),
)


@dataclass(frozen=True)
class Refused:
    """An argument of SGLang that no variable may carry, and what to do instead (the end of a sentence)."""

    argument: str
    instead: str
    source: str


REFUSED = (
    Refused(
        "config",
        "the role hands the API key over by a configuration file of its own, and this one would take its place and "
        "remove the key: write what stands in your file as single arguments",
        "SGLang takes one --config only (server_args_config_parser)",
    ),
    Refused(
        "admin-api-key",
        "it would stand in the unit, in the list of processes and in diffs: remove it and protect the server with "
        "sglang_server_api_key",
        "systemd.exec, proc(5)",
    ),
    Refused(
        "ssl-keyfile-password",
        "it would stand in the unit, in the list of processes and in diffs: remove it and use a key file without a "
        "password that only the service's user reads",
        "systemd.exec, proc(5)",
    ),
)

# The last words of a variable's name by which its value is a secret; HF_TOKEN_PATH and X_MAX_TOKENS are none.
SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|(SECRET|ACCESS|PRIVATE|ENCRYPTION)_?KEY)$", re.IGNORECASE
)
# They end so too, and hold a switch.
NO_SECRETS = ("HF_HUB_DISABLE_IMPLICIT_TOKEN",)
# The hub's token by its names in huggingface_hub.
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")

ALLOCATOR_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
LAYERS = ("", "_group", "_host")


def shown(value: object) -> str:
    """A value in a message, cut to a readable length."""
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Types

_NUMBERS = {"int": int, "float": float}


def type_problem(value: object, option: dict) -> str | None:
    """What is wrong with a value's type, as the end of a sentence; None when it fits."""
    kind = option.get("type", "str")
    if value is None or kind == "raw":
        return None
    if kind == "bool":
        if isinstance(value, bool):
            return None
        return "expected true or false"
    if kind in _NUMBERS:
        return (
            None if is_number(value, kind == "int") else f"expected {'a whole number' if kind == 'int' else 'a number'}"
        )
    if kind in ("list", "dict"):
        return element_problem(value, option, list if kind == "list" else dict)
    if isinstance(value, (list, dict)):
        return "expected one text"
    choices = option.get("choices")
    if choices and str(value) not in [str(one) for one in choices]:
        near = difflib.get_close_matches(str(value), [str(one) for one in choices], n=1)
        return f"expected one of {', '.join(map(str, choices))}" + (f" (did you mean {near[0]}?)" if near else "")
    return None


def element_problem(value: object, option: dict, kind: type) -> str | None:
    if not isinstance(value, kind):
        return "expected a list" if kind is list else "expected a dictionary"
    wanted = option.get("elements")
    if kind is list and wanted in ("dict", "str"):
        for one in value:
            if isinstance(one, dict) is not (wanted == "dict"):
                return f"expected a list of {'dictionaries' if wanted == 'dict' else 'texts'}, and {shown(one)} is none"
    return None


def is_number(value: object, whole: bool) -> bool:
    """True for numbers and for texts that are one (extra variables given as key=value are texts)."""
    if isinstance(value, bool):
        return False
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    return math.isfinite(number) and (not whole or number == int(number))


def wrong_types(name: str, label: str, value: object, option: dict) -> Iterator[Finding]:
    problem = type_problem(value, option)
    if problem is None:
        return
    found = "a secret" if option.get("no_log") else shown(value)
    repair = ""
    if option.get("type") == "bool" and isinstance(value, str):
        right = "false" if value.strip().lower() in ("false", "no", "off", "0", "n", "f", "") else "true"
        found = f"the text {shown(value)}, which counts as true in a condition"
        repair = f": write {name}: {right}, or on the command line -e '{{\"{name}\": {right}}}'"
    yield Finding(name, f"{label}: {problem}, found {found}{repair}.")


# Ranges


def wrong_ranges(label: str, value: object, rule: Range) -> Iterator[Finding]:
    if value is None or (isinstance(value, str) and value in rule.words):
        return
    number = is_number(value, rule.whole)
    if number and in_range(float(value), rule):
        return
    if not number and not rule.words:
        return  # the type is wrong, which check_types says
    yield Finding(rule.variable, f"{label}: expected {range_words(rule)}, found {shown(value)}.")


def in_range(number: float, rule: Range) -> bool:
    if number in rule.also:
        return True
    if rule.open_ends:
        return rule.low < number < (rule.high if rule.high is not None else float("inf"))
    return rule.low <= number and (rule.high is None or number <= rule.high)


def range_words(rule: Range) -> str:
    """'auto, -1, or a whole number of at least 1'."""
    kind = "a whole number" if rule.whole else "a number"
    if rule.open_ends:
        span = f"{kind} between {rule.low:g} and {rule.high:g} (both excluded)"
    elif rule.high is None:
        span = f"{kind} of at least {rule.low:g}"
    else:
        span = f"{kind} from {rule.low:g} to {rule.high:g}"
    return ", ".join([*rule.words, *map(str, rule.also), ""]) + ("or " if rule.words or rule.also else "") + span
