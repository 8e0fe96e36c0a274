# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine's environment needs, what must be done to it, and what pip and Python said."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _venv

PATH = "/opt/sglang/engines/0.5.23"
OTHER = "11" * 32


def python(minor, venv=True):
    return _venv.Python(f"/usr/bin/python3.{minor}", (3, minor), venv)


@pytest.mark.parametrize(
    ("version", "low", "glibc"),
    [
        ("0.4.9", (3, 10), (2, 28)),
        ("0.5.10.post1", (3, 10), (2, 28)),
        ("0.5.11", (3, 10), (2, 34)),
        ("0.5.21", (3, 10), (2, 34)),
        ("0.5.22", (3, 11), (2, 34)),
        ("0.5.23", (3, 11), (2, 34)),
        ("0.6.0", (3, 11), (2, 34)),
    ],
)
def test_requirements_follow_the_version(version, low, glibc):
    row = _venv.requirement_of(version)
    assert (row.python_low, row.glibc) == (low, glibc)


@pytest.mark.parametrize(
    ("text", "refused"),
    [("glibc 2.36", False), ("glibc 2.34", False), ("glibc 2.31", True), ("", True), (None, True), ("musl 1.2", True)],
)
def test_an_old_c_library_is_refused_in_one_sentence(text, refused):
    problem = _venv.glibc_problem("0.5.23", _venv.parse_glibc(text))
    assert (problem is not None) is refused
    assert not refused or ("glibc 2.34 or newer" in problem and "sglang_engine_version" in problem)


def test_the_newest_fitting_python_that_can_make_an_environment_is_taken():
    found = [python(14), python(13, venv=False), python(12), python(11), python(9)]
    assert _venv.choose_python("0.5.23", found).python == python(12)


@pytest.mark.parametrize(
    ("candidates", "wanted", "expected"),
    [
        ([python(10)], "auto", "needs Python 3.11 to 3.13 and this host has /usr/bin/python3.10 (3.10)"),
        ([python(14)], "auto", "this host has /usr/bin/python3.14 (3.14)"),
        ([], "auto", "this host has none"),
        ([python(11, venv=False)], "auto", "install python3.11-venv"),
        ([], "/opt/py", "sglang_engine_python is /opt/py"),
    ],
)
def test_no_fitting_python_is_one_sentence(candidates, wanted, expected):
    choice = _venv.choose_python("0.5.23", candidates, wanted)
    assert choice.python is None
    assert expected in choice.problem


def test_names_are_looked_for_newest_first():
    assert _venv.python_names("0.5.23") == ["python3.13", "python3.12", "python3.11", "python3"]


INPUTS = _venv.wanted_inputs("0.5.23", ["x==1"], "", {})
MARK = _venv.fingerprint(INPUTS)


def found(state=_venv.TESTED, fingerprint=MARK, **change):
    marker = {"state": state, "fingerprint": fingerprint} if state else None
    values = {
        "exists": True,
        "is_venv": True,
        "marker": marker,
        "python_version": (3, 11),
        "installed_version": "0.5.23",
    }
    return _venv.Found(**{**values, **change})


@pytest.mark.parametrize(
    ("state", "minor", "action"),
    [
        (_venv.Found(exists=False), None, "create"),
        (found(), None, "nothing"),
        (found(), (3, 11), "nothing"),
        (found(), (3, 12), "rebuild"),
        (found(state=_venv.UNFINISHED), None, "rebuild"),
        (found(state=_venv.UNFINISHED, installed_version=None, is_venv=False), None, "rebuild"),
        (found(python_version=None), None, "rebuild"),
        (found(installed_version="0.5.22"), None, "update"),
        (found(installed_version=None), None, "update"),
        (found(fingerprint=OTHER), None, "update"),
        (found(state=_venv.INSTALLED), None, "test"),
        (found(state=None), None, "update"),
        (found(state=None, is_venv=False), None, "refuse"),
        (found(state=None, python_version=None), None, "update"),
    ],
)
def test_what_is_there_decides_what_is_done(state, minor, action):
    assert _venv.decide(state, PATH, "0.5.23", MARK, minor).action == action


def test_only_an_environment_that_was_begun_here_is_ever_removed():
    for change in ({}, {"python_version": None}, {"installed_version": None}, {"is_venv": False}):
        assert _venv.decide(found(state=None, **change), PATH, "0.5.23", MARK, (3, 12)).action != "rebuild"


@pytest.mark.parametrize(
    "other",
    [
        _venv.wanted_inputs("0.5.22", ["x==1"], "", {}),
        _venv.wanted_inputs("0.5.23", ["x==2"], "", {}),
        _venv.wanted_inputs("0.5.23", ["x==1"], "torch==2\n", {}),
        _venv.wanted_inputs("0.5.23", ["x==1"], "", {"vllm": "ab"}),
    ],
)
def test_whatever_changes_the_content_changes_the_fingerprint(other):
    assert _venv.fingerprint(other) != MARK


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}'])
def test_a_damaged_marker_counts_as_unfinished(text):
    assert _venv.parse_marker(text) == {"state": _venv.UNFINISHED}


def test_a_marker_survives():
    assert _venv.parse_marker(None) is None
    marker = _venv.parse_marker(_venv.marker_text(_venv.TESTED, INPUTS, engine={"torch": "2.14.1"}))
    assert (marker["state"], marker["fingerprint"], marker["engine"]) == (_venv.TESTED, MARK, {"torch": "2.14.1"})


# Lines that pip really prints.
@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        (
            "ERROR: Could not find a version that satisfies the requirement sglang==0.5.99 (from versions: "
            "0.5.22, 0.5.23)\nERROR: No matching distribution found for sglang==0.5.99",
            "Could not find a version",
            "does not hold sglang==0.5.99",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "Errno 28",
            "sglang_engine_root",
        ),
        (
            "WARNING: Retrying (Retry(total=4)) after connection broken by "
            "'NewConnectionError(\"<pip._vendor.urllib3.connection."
            "HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno 111] Connection refused\")'",
            "Connection refused",
            "sglang_engine_wheelhouse",
        ),
        ("ERROR: ResolutionImpossible: for help visit", "ResolutionImpossible", "sglang_engine_constraints_file"),
        ("ERROR: something new", "something new", ""),
        ("", "no output", ""),
    ],
)
def test_pip_is_explained(text, line, advice):
    sentence = _venv.failure_sentence("pip installs sglang", text, _venv.PIP_SAYINGS)
    assert line in sentence
    assert advice in sentence
    assert sentence.startswith("pip installs sglang, and this was found instead: ")


def test_credentials_of_an_index_are_not_repeated():
    text = "ERROR: 401 Client Error: Unauthorized for url: https://me:secret@index.example/simple/"
    sentence = _venv.failure_sentence("pip", text, _venv.PIP_SAYINGS)
    assert "secret" not in sentence
    assert "credentials" in sentence


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("ImportError: libnuma.so.1: cannot open shared object file: No such file or directory", "libnuma1"),
        ("ImportError: /x/common_ops.so: undefined symbol: _ZN3c104cuda9SetDeviceEa", "built for another torch"),
        ("ModuleNotFoundError: No module named 'torch'", "module torch is missing"),
        ("OSError: libcudart.so.13: cannot open shared object file", "two CUDA majors"),
    ],
)
def test_a_failed_import_is_explained(text, advice):
    assert advice in _venv.failure_sentence("It is imported", "Traceback\n" + text, _venv.IMPORT_SAYINGS)


@pytest.mark.parametrize(
    ("names", "there"),
    [
        (["sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl"], True),
        (["sglang-0.5.23.tar.gz"], True),
        (["sglang-0.5.22-py3-none-any.whl", "sglang_kernel-0.5.23-py3-none-any.whl"], False),
        ([], False),
    ],
)
def test_a_wheelhouse_must_hold_the_version(names, there):
    assert _venv.has_wheel(names, "0.5.23") is there


def test_a_process_that_runs_from_the_environment_is_seen():
    lines = {7: "/opt/sglang/engines/0.5.22/bin/python -m sglang", 9: PATH + "/bin/python -m sglang.launch_server"}
    assert _venv.in_use_by(PATH + "/", lines) == 9
    assert _venv.in_use_by("/opt/sglang/engines/0.5", lines) is None


@pytest.mark.parametrize(
    ("out", "report"),
    [('noise\n{"sglang": "0.5.23"}\n', {"sglang": "0.5.23"}), ("noise", None), ("{broken", None)],
)
def test_the_report_of_the_import_test(out, report):
    assert _venv.read_report(out) == report


def test_the_kernels_are_imported_only_with_a_gpu():
    assert "sgl_kernel" in _venv.import_script(True)
    assert "sgl_kernel" not in _venv.import_script(False)
