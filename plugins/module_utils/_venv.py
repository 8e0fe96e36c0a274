# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's virtual environment: what it needs, what must be done to it, what pip said. Private to this collection.

Everything here is pure: texts and dictionaries in, decisions out. The module engine_venv does the work.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import version_key

MARKER_NAME = ".gpufleet-engine.json"
FREEZE_NAME = "freeze.txt"

# States of the marker. Only `installed` and `tested` say that pip came to its end.
UNFINISHED, INSTALLED, TESTED = "unfinished", "installed", "tested"


@dataclass(frozen=True)
class Requirement:
    """What an engine version asks of the host, from `since` on until the next row."""

    since: str
    python_low: tuple[int, int]
    python_high: tuple[int, int]
    glibc: tuple[int, int]
    source: str


REQUIREMENTS = (
    Requirement(
        "0.5.0", (3, 10), (3, 13), (2, 28), "Requires-Python of the sdist; torch 2.9 wheels are manylinux_2_28"
    ),
    Requirement("0.5.11", (3, 10), (3, 13), (2, 34), "wheels are cp310-cp313, manylinux_2_34 from 0.5.11 on"),
    Requirement("0.5.22", (3, 11), (3, 13), (2, 34), "Requires-Python >=3.11, wheels cp311-cp313, manylinux_2_34"),
)


def requirement_of(version: str) -> Requirement:
    """The row of the table that holds for `version`; the oldest row for anything older."""
    wanted = version_key(version)
    rows = [row for row in REQUIREMENTS if wanted >= version_key(row.since)]
    return rows[-1] if rows else REQUIREMENTS[0]


def dotted(pair: tuple[int, ...]) -> str:
    """(3, 11) -> '3.11'."""
    return ".".join(str(part) for part in pair)


def parse_glibc(text: str | None) -> tuple[int, int] | None:
    """'glibc 2.36' (as os.confstr prints it) -> (2, 36); None where it is no glibc."""
    match = re.match(r"glibc (\d+)\.(\d+)", text or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


def glibc_problem(version: str, found: tuple[int, int] | None) -> str | None:
    """One sentence when the C library is too old for this engine version, else None."""
    needed = requirement_of(version).glibc
    if found is not None and found >= needed:
        return None
    has = f"the host has glibc {dotted(found)}" if found else "the host has none"
    return (
        f"SGLang {version} needs glibc {dotted(needed)} or newer and {has}: use a newer distribution (Ubuntu "
        "22.04, Debian 12, RHEL 9 or later)"
        " or set sglang_engine_version to an older release."
    )


@dataclass(frozen=True)
class Python:
    """One interpreter found on the host."""

    path: str
    version: tuple[int, int]
    can_make_venv: bool

    def as_dict(self) -> dict:
        return {"path": self.path, "version": dotted(self.version), "can_make_venv": self.can_make_venv}


@dataclass(frozen=True)
class Choice:
    """The interpreter to use, or the sentence that says why there is none."""

    python: Python | None
    problem: str | None


def python_names(version: str) -> list[str]:
    """The interpreter names to look for, newest first: ['python3.13', ..., 'python3']."""
    row = requirement_of(version)
    minors = range(row.python_high[1], row.python_low[1] - 1, -1)
    return [f"python3.{minor}" for minor in minors] + ["python3"]


def choose_python(version: str, candidates: list[Python], wanted: str = "auto") -> Choice:
    """Choose the newest interpreter that this engine version runs on and that can make a virtual environment."""
    row = requirement_of(version)
    span = f"Python {dotted(row.python_low)} to {dotted(row.python_high)}"
    fitting = [one for one in candidates if row.python_low <= one.version <= row.python_high]
    usable = sorted((one for one in fitting if one.can_make_venv), key=lambda one: one.version, reverse=True)
    if usable:
        return Choice(usable[0], None)
    if fitting:
        first = fitting[0]
        return Choice(
            None,
            f"{first.path} (Python {dotted(first.version)}) cannot make a virtual environment because its venv "
            "or ensurepip module is missing: install "
            f"python{dotted(first.version)}-venv or set sglang_engine_manage_packages to true.",
        )
    if wanted != "auto" and not candidates:
        return Choice(None, f"sglang_engine_python is {wanted} and that is no Python interpreter on this host.")
    found = ", ".join(f"{one.path} ({dotted(one.version)})" for one in candidates) or "none"
    return Choice(
        None,
        f"SGLang {version} needs {span} and this host has {found}: install one of them (a distribution "
        "package, or uv python install) and "
        "give its path as sglang_engine_python.",
    )


def wanted_inputs(version: str, packages: list[str], constraints: str, digests: dict[str, str]) -> dict:
    """What decides the content of the environment. An index or a wheelhouse is where it comes from, not what it is."""
    return {
        "version": version,
        "packages": list(packages),
        "constraints": hashlib.sha256(constraints.encode()).hexdigest() if constraints else "",
        "digests": dict(digests),
    }


def fingerprint(inputs: dict) -> str:
    """A stable hash of `wanted_inputs`."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def parse_marker(text: str | None) -> dict | None:
    """The marker's content; a damaged one counts as unfinished, none as None."""
    if text is None:
        return None
    try:
        marker = json.loads(text)
    except ValueError:
        return {"state": UNFINISHED}
    return marker if isinstance(marker, dict) and "state" in marker else {"state": UNFINISHED}


@dataclass(frozen=True)
class Found:
    """What is at the environment's path now."""

    exists: bool
    is_venv: bool = False
    marker: dict | None = None
    python_version: tuple[int, int] | None = None
    installed_version: str | None = None


@dataclass(frozen=True)
class Task:
    """What must be done: nothing | test | update | create | rebuild | refuse, and why."""

    action: str
    reason: str


def decide(found: Found, path: str, version: str, wanted: str, python_minor: tuple[int, int] | None = None) -> Task:
    """Compare what is there with what is wanted.

    `wanted` is the fingerprint; `python_minor` is given only when the user named an interpreter. Only an environment
    that this collection began (marker present) is ever removed.
    """
    if not found.exists:
        return Task("create", f"{path} does not exist")
    if found.marker is None:
        if not found.is_venv:
            return Task("refuse", f"{path} exists and is no virtual environment: remove it or set sglang_engine_path.")
        return Task("update", "the environment was not made by this role: it is brought to the wanted state in place")
    if found.marker.get("state") == UNFINISHED:
        return Task("rebuild", "an earlier installation was interrupted")
    if found.python_version is None:
        return Task("rebuild", "its Python interpreter does not run any more")
    if python_minor is not None and python_minor != found.python_version:
        return Task("rebuild", f"it has Python {dotted(found.python_version)} and {dotted(python_minor)} is wanted")
    if found.installed_version != version:
        return Task("update", f"it holds SGLang {found.installed_version} instead of {version}")
    if found.marker.get("fingerprint") != wanted:
        return Task("update", "packages or constraints have changed")
    if found.marker.get("state") != TESTED:
        return Task("test", "the import test has not passed yet")
    return Task("nothing", "complete")


def marker_text(state: str, inputs: dict, **more: object) -> str:
    """The marker file's content."""
    content = {"state": state, "fingerprint": fingerprint(inputs), "inputs": inputs}
    content.update(more)
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True)
class Saying:
    """A line of pip or of a traceback, and what it means for the user."""

    pattern: str
    advice: str
    source: str


PIP_SAYINGS = (
    Saying(
        r"No space left on device",
        "the disk is full: free space under sglang_engine_root (about 16 GiB are needed while installing)",
        "errno 28",
    ),
    Saying(
        r"Could not find a version that satisfies the requirement (?P<what>\S+)",
        "the package index or wheelhouse does not hold {what} for this Python: check sglang_engine_version, "
        "sglang_engine_index_url, sglang_engine_extra_index_urls and sglang_engine_wheelhouse",
        "pip 20-26",
    ),
    Saying(
        r"No matching distribution found for (?P<what>\S+)",
        "the package index or wheelhouse does not hold {what}: check sglang_engine_version and the index variables",
        "pip 20-26",
    ),
    Saying(
        r"ResolutionImpossible|conflicting dependencies",
        "the wanted packages contradict each other: compare sglang_engine_extra_packages and "
        "sglang_engine_constraints_file with the requirements of this SGLang version",
        "pip 20-26",
    ),
    Saying(
        r"(?:401|403) (?:Client )?Error|401 Unauthorized|403 Forbidden",
        "the package index refused the credentials: check those in sglang_engine_index_url",
        "pip, HTTP status",
    ),
    Saying(
        r"NameResolutionError|Temporary failure in name resolution|Name or service not known|Failed to establish a new "
        r"connection|Connection refused|ConnectTimeoutError|Read timed out|Network is unreachable",
        "the package index cannot be reached from this host: set sglang_engine_index_url, a proxy in "
        "sglang_engine_environment, or sglang_engine_wheelhouse for hosts without internet",
        "urllib3 through pip",
    ),
    Saying(
        r"CERTIFICATE_VERIFY_FAILED",
        "the package index's certificate is not trusted: set PIP_CERT in sglang_engine_environment",
        "ssl",
    ),
    Saying(
        r"Python\.h: No such file",
        "a package must be compiled and Python's headers are missing: install python3-dev of the same version",
        "gcc",
    ),
)

IMPORT_SAYINGS = (
    Saying(r"libnuma\.so", "install libnuma1 (Debian, Ubuntu) or numactl-libs (RHEL)", "sgl_kernel is linked to it"),
    Saying(r"libgomp\.so", "install libgomp1 (Debian, Ubuntu) or libgomp (RHEL)", "torch is linked to it"),
    Saying(
        r"libcudart\.so|libnvrtc\.so|libcublas\.so",
        "wheels for two CUDA majors are mixed: remove the environment and let the role make it anew",
        "sgl-project/sglang issues 18203, 16052",
    ),
    Saying(
        r"undefined symbol: .*c10",
        "the kernel package was built for another torch: do not pin torch alone in sglang_engine_extra_packages",
        "sgl-project/sglang pull 30562",
    ),
    Saying(r"libcuda\.so\.1", "the NVIDIA driver's user part is missing: install the driver first", "dlopen"),
    Saying(
        r"Permission denied",
        "the service user cannot read the environment: check the modes of the folders above it",
        "errno 13",
    ),
    Saying(r"No module named '(?P<what>[^']+)'", "the package of module {what} is missing", "Python"),
)


def explain(text: str, sayings: tuple[Saying, ...]) -> tuple[str, str]:
    """(the line that says it, advice) of the first row that occurs; else the last error line and no advice."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for saying in sayings:
        for line in lines:
            match = re.search(saying.pattern, line)
            if match:
                return line, saying.advice.format(**match.groupdict())
    errors = [line for line in lines if line.startswith("ERROR") or re.match(r"\w*(Error|Exception)\b", line)]
    return (errors or lines or ["no output"])[-1], ""


def failure_sentence(expected: str, text: str, sayings: tuple[Saying, ...], limit: int = 300) -> str:
    """One sentence: what was expected, the line that was found, what repairs it."""
    line, advice = explain(text, sayings)
    line = re.sub(r"(https?://)[^/@\s]+@", r"\1", line)
    return "{}, and this was found instead: {}{}.".format(
        expected, line[:limit].rstrip("."), "; " + advice if advice else ""
    )


# What pip's log says it is doing. Collecting and downloading alternate, so they are one phase.
PIP_PHASES = (
    (r"Installing collected packages: (?P<what>.+)", "install", "{count} packages"),
    (r"Building wheel for (?P<what>\S+)", "build", "{what}"),
    (r"(?:Downloading|Using cached) (?:\S*/)?(?P<what>[\w.]+-[\w.+]+)", "download", "{what}"),
    (r"Collecting (?P<what>[\w.\[\]-]+)", "download", "{what}"),
)


def pip_phase(log: str) -> tuple[str, str] | None:
    """(phase, detail) of the last line of pip's log that says something; None when no line does."""
    for line in reversed(log.splitlines()):
        for pattern, phase, detail in PIP_PHASES:
            match = re.search(pattern, line)
            if match:
                what = match.group("what")
                return phase, detail.format(what=what, count=what.count(",") + 1)
    return None


def has_begun_installing(output: str) -> bool:
    """Before this line pip has changed nothing in the environment."""
    return "Installing collected packages" in output


def has_wheel(names: list[str], version: str) -> bool:
    """True when a folder's file names hold a wheel or source archive of this SGLang version."""
    wanted = version_key(version)
    for name in names:
        match = re.match(r"sglang-([0-9][^-]*?)(?:-.+\.whl|\.tar\.gz)$", name)
        if match and version_key(match.group(1)) == wanted:
            return True
    return False


def import_script(with_gpu: bool) -> str:
    """The import test: what the server itself imports first, and the kernels where a GPU is present."""
    kernels = "import sgl_kernel; " if with_gpu else ""
    return (
        "import json, torch, sglang, sglang.srt.server_args; " + kernels + "print(json.dumps({'sglang': "
        "sglang.__version__, 'torch': torch.__version__, 'cuda': torch.version.cuda}))"
    )


def read_report(stdout: str) -> dict | None:
    """The JSON line that the import test prints last."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                return None
    return None


def in_use_by(path: str, command_lines: dict[int, str]) -> int | None:
    """The pid of a process that runs from the environment at `path`, if there is one."""
    prefix = path.rstrip("/") + "/bin/"
    for pid in sorted(command_lines):
        if command_lines[pid].startswith(prefix):
            return pid
    return None
