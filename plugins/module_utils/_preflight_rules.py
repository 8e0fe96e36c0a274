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

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_tables import READS_CONFIG_FILE
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text

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
    Range("sglang_server_cell_bytes", 1, None, False, source="bytes of one token, a fraction with a sliding window"),
    Range("sglang_server_weight_bytes", 1, None, True, source="bytes of the weights"),
    Range("sglang_server_port", 1, 65535, True, source="TCP"),
    Range("sglang_server_soak_seconds", 1, None, True, (AUTO,), source="a load test of no length proves nothing"),
    Range("sglang_server_soak_max_requests", 1, None, True, source="a load test of no request proves nothing"),
    Range("sglang_server_soak_max_prompt_tokens", 1, None, True, source="a load test of no token proves nothing"),
    Range("sglang_server_soak_concurrency", 1, None, True, source="requests at once"),
    Range("sglang_server_soak_endurance_requests", 0, None, True, source="0: slow growth is not judged"),
    Range("sglang_server_fence_timeout_seconds", 1, None, True, source="a fence that never ends holds the change up"),
    Range("sglang_server_max_attempts", 1, 20, True, source="every attempt is a restart"),
    Range("sglang_server_timeout_seconds", 30, None, True, (AUTO,), source="no start-up was ever seen below 20 s"),
    Range("sglang_server_patience_factor", 0, 100, False, source="a factor of the table of patience; 0 ends it"),
    Range("sglang_server_drain_seconds", 0, None, True, source="systemd TimeoutStopSec"),
    Range("sglang_server_boards_wait_seconds", 0, 3600, True, source="the kernel gives memory back within minutes"),
    Range("sglang_server_pause_seconds", 0, None, True, source="how long a lease lasts"),
    Range("sglang_server_keep_backups", 1, None, True, source="the way back needs one"),
    Range("sglang_engine_keep_versions", 0, None, True, source="engines beside those that are needed"),
    Range("sglang_model_keep_revisions", 0, None, True, source="weights beside those that are needed"),
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
    Owned("admin-api-key", "sglang_server_admin_api_key", "kept out of the unit and of the list of processes"),
)

# Arguments that are the beginning of one above and exist on their own (sglang 0.3.6-0.5.23).
WHOLE_NAMES = ("ssl-keyfile",)


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
        "ssl-keyfile-password",
        "it would stand in the unit, in the list of processes and in diffs: remove it and end TLS in a proxy in front "
        "of the server",
        "systemd.exec, proc(5)",
    ),
    *(
        Refused(
            name,
            "then the server speaks https only, and what waits for it, loads it and verifies it asks over http: remove "
            "it there and end TLS in a proxy in front of the server",
            "SGLang 0.5.23: srt/server_args.py (url)",
        )
        for name in ("ssl-certfile", "ssl-keyfile")
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


def is_secret_name(name: str) -> bool:
    """Whether a variable holds a secret, by its name."""
    return SECRET_NAME.search(name) is not None and name.upper() not in NO_SECRETS


@dataclass(frozen=True)
class Key:
    """A key of the server: its setting, and the first version of SGLang that takes it from a file."""

    setting: str
    since: str
    why: str
    source: str


KEYS = (
    Key(
        "api_key",
        READS_CONFIG_FILE.version,
        "older engines have no --config and take a key on the command line only, where everybody on the host reads it",
        "compared between sglang wheels: srt/server_args_config_parser.py",
    ),
    Key("admin_api_key", "0.5.8", "older engines have no --admin-api-key", "compared between sglang wheels"),
)


@dataclass(frozen=True)
class OwnedVariable:
    """Variables of the environment that nobody else may set, and why (the end of a sentence)."""

    pattern: str
    instead: str
    source: str


OWNED_VARIABLES = (
    OwnedVariable(
        "GPUFLEET_.*",
        "by which the running process tells its configuration: remove it there, names that begin so are the unit's own",
        "the unit's template",
    ),
    OwnedVariable(
        "INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|MAINPID|LISTEN_.*|CREDENTIALS_DIRECTORY",
        "which systemd itself gives to the process: remove it there",
        "systemd.exec(5)",
    ),
)

UNIT_SECTIONS = ("Unit", "Service", "Install")
# Directives of the unit that a proof depends on, and what to use instead (the end of a sentence).
UNIT_OWNED = {
    "ExecStart": "use sglang_server_arguments",
    "Type": "remove it, SGLang sends no readiness message",
    "EnvironmentFile": "use sglang_server_environment",
    "Environment": "use sglang_server_environment",
    "PassEnvironment": "use sglang_server_environment",
    "SetCredential": "a secret in a unit is read by everybody on the host",
    "ExecStartPre": "use ExecCondition or ExecStartPost, or a unit of your own that this one comes after",
    "KillMode": "remove it, no other one stops the server clean",
    "SuccessExitStatus": "remove it, it depends on the engine's version",
    "RestartForceExitStatus": "remove it, it depends on the engine's version",
    "LogFilterPatterns": "remove it, it keeps keys out of the journal",
    "User": "use sglang_server_user",
    "Group": "use sglang_server_group",
}

LAYERS = ("", "_group", "_host")


def shown(value: object) -> str:
    """A value in a message, without what is recognisably a secret, cut to a readable length."""
    text = mask_text(repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= 60 else text[:57] + "..."


# Paths

# Folders that are parts of PATH, where ":" ends a part.
_IN_SEARCH_PATH = ("sglang_server_cuda_home", "sglang_server_engine_root", "sglang_engine_root")


def path_problem(name: str, value: object) -> str | None:
    """Why a folder cannot stand in a unit, as the end of a sentence; None for a good one and for none at all."""
    if value is None or value == "" or isinstance(value, (list, dict)):
        return None
    if not str(value).startswith("/"):
        return f"expected an absolute folder on the host, found {shown(value)}"
    signs = "/ _ . + @ , - =" if name in _IN_SEARCH_PATH else "/ _ . + @ : , - ="
    if not re.fullmatch(rf"[A-Za-z0-9{re.escape(signs.replace(' ', ''))}]+", str(value)):
        return (
            f"expected a folder of letters, digits and {signs} only, because it stands in the unit, found "
            f"{shown(value)}: rename it, or name it by a symbolic link"
        )
    return None


def version_problem(version: object) -> str | None:
    """Why a text is no release of SGLang, as the end of a sentence; None for one and for none at all."""
    if version is None or isinstance(version, (list, dict)):
        return None
    if re.fullmatch(r"\d+(\.\d+)+((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", str(version)):
        return None
    return f"expected one exact release such as 0.5.23, found {shown(version)}"


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
    """True for numbers and for texts that are one (extra variables given as key=value are texts).

    A whole number has digits only: 30000.0 would reach the engine as it is written.
    """
    if isinstance(value, bool):
        return False
    if whole:
        return isinstance(value, int) or (
            isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value.strip()) is not None
        )
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def wrong_types(name: str, label: str, value: object, option: dict) -> Iterator[Finding]:
    problem = type_problem(value, option)
    if problem is None:
        return
    found = "a secret" if option.get("no_log") or is_secret_name(name) else shown(value)
    repair = ""
    if option.get("type") == "bool" and isinstance(value, str):
        found = f"the text {shown(value)}, which counts as true in a condition"
        repair = switch_repair(name, value)
    elif option.get("type") == "int":
        repair = whole_number_repair(value)
    yield Finding(name, f"{label}: {problem}, found {found}{repair}.")


_TRUE_TEXTS = ("true", "yes", "on", "1", "y", "t")
_FALSE_TEXTS = ("false", "no", "off", "0", "n", "f", "")


def switch_repair(name: str, value: str) -> str:
    """How to write the boolean that a text means; both of them for a text that means neither."""
    text = value.strip().lower()
    if text not in _TRUE_TEXTS + _FALSE_TEXTS:
        return f": write {name}: true or {name}: false"
    right = "true" if text in _TRUE_TEXTS else "false"
    return f": write {name}: {right}, or on the command line -e '{{\"{name}\": {right}}}'"


def whole_number_repair(value: object) -> str:
    """How to write the whole number that was meant, where it can be told."""
    if is_number(value, False) and float(value) == int(float(value)):
        return f": write {int(float(value))}"
    if isinstance(value, str) and re.match(r"\s*[0-9]", value):
        return ": write the number with digits only, without a unit"
    return ""


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
