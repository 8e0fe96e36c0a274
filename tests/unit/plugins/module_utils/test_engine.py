# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine: versions, names, accepted arguments.

arguments-0.5.23.txt is the list of a real parser, without --help; the other lists were scanned from the wheels that
their names give. What the scan makes of 0.5.23 is compared with the real parser in test_engine_real.py, values are
tried in test_engine_values.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.sglang.plugins.module_utils import _engine, _engine_installed

DATA = Path(__file__).resolve().parents[3] / "data" / "facts"


def names_of(version):
    return (DATA / f"arguments-{version}.txt").read_text().split()


# --- versions ---------------------------------------------------------------

ORDER = [
    "0.4.6.post5",
    "0.5.0.dev1",
    "0.5.0a1",
    "0.5.0rc1",
    "0.5",
    "0.5.0.post1",
    "0.5.9",
    "0.5.10rc0",
    "0.5.10",
    "0.5.10.post2",
    "0.5.23",
    "0.10.0",
    "1.0",
]


def test_versions_sort_as_releases_do():
    shuffled = sorted(ORDER, key=lambda text: text[::-1])
    assert sorted(shuffled, key=_engine.version_key) == ORDER


@pytest.mark.parametrize(
    "same", [("0.5", "0.5.0"), ("0.5.10rc0", "0.5.10.rc0"), ("v0.5.9", "0.5.9"), ("1.0+cu130", "1.0")]
)
def test_spellings_of_a_version_are_equal(same):
    assert _engine.version_key(same[0]) == _engine.version_key(same[1])


VERSIONS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["0.5.10", "0.5", "0.4.6", "0.5.0", "1.0", "0.5.9"]),
    st.sampled_from(["", "a1", "b2", "rc0", "rc1"]),
    st.sampled_from(["", ".post1", ".post5"]),
    st.sampled_from(["", ".dev1"]),
)


@settings(max_examples=60)
@given(VERSIONS)
def test_versions_agree_with_packaging(text):
    packaging = pytest.importorskip("packaging.version")
    for other in ORDER:
        ours = _engine.version_key(text) < _engine.version_key(other)
        assert ours == (packaging.Version(text) < packaging.Version(other)), other


@pytest.mark.parametrize("text", ["", "latest", "0.5.x", None, 5, "0.5.10;rm"])
def test_what_is_no_version_is_said(text):
    with pytest.raises(ValueError, match="Expected an engine version"):
        _engine.version_key(text)


def test_an_unknown_version_counts_as_the_newest():
    assert _engine.version_at_least(None, "99.0")
    assert _engine.version_at_least("0.0.0.dev1+ga4cf2ea12", "0.5.23")
    assert not _engine.version_at_least("0.5.10rc0", "0.5.10")
    assert _engine.version_at_least("0.5.11+nv26.05", "0.5.11")


# --- names ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("--tp_size", "tp-size"),
        ("tensor-parallel-size", "tp-size"),
        ("tp", "tp-size"),
        ("tp_size", "tp-size"),
        ("model", "model-path"),
        ("--mem-fraction-static", "mem-fraction-static"),
        ("speculative_draft_model", "speculative-draft-model-path"),
        ("my-own", "my-own"),
    ],
)
def test_every_spelling_has_one_name(spelling, name):
    assert _engine.canonical_name(spelling) == name


@pytest.mark.parametrize("row", _engine.ALIASES, ids=lambda row: row.alias)
def test_aliases_lead_to_arguments_of_the_real_engine(row):
    known = set(names_of("0.5.23"))
    assert row.name in known
    assert row.alias in known or any(name.startswith(row.alias) for name in known)


@pytest.mark.parametrize("row", _engine.RENAMED, ids=lambda row: row.name)
def test_removed_arguments_are_gone_and_lead_to_living_ones(row):
    known = set(names_of("0.5.23"))
    assert row.name not in known
    assert not row.use or known & set(row.use)
    assert _engine.version_key(row.until) < _engine.version_key("0.5.23")
    assert row.source


@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.14"])
def test_every_argument_that_went_has_a_row(version):
    gone = set(names_of(version)) - set(names_of("0.5.23"))
    assert gone - {row.name for row in _engine.RENAMED} == set()
    assert len(gone) > 20


def test_the_23_that_went_with_0_5_20_are_all_there():
    assert len([row for row in _engine.RENAMED if row.until == "0.5.19"]) == 23


@pytest.mark.parametrize(
    ("version", "reads", "sigkill"),
    [
        ("0.5.2", False, True),
        ("0.5.3rc1", False, True),
        ("0.5.3", True, True),
        ("0.5.19", True, True),
        ("0.5.19.post1", True, True),
        ("0.5.20", True, False),
        ("0.5.23", True, False),
        (None, True, False),
        ("0.0.0.dev1+gabc", True, False),
    ],
)
def test_what_an_engine_does_depends_on_its_version(version, reads, sigkill):
    assert _engine.reads_config_file(version) is reads
    assert _engine.stops_by_sigkill(version) is sigkill


@pytest.mark.parametrize("name", ["", "--", "  ", None, 3])
def test_what_is_no_name_is_said(name):
    with pytest.raises(ValueError, match="name of a server argument"):
        _engine.canonical_name(name)


def test_arguments_keep_their_values_and_order():
    given_arguments = {"--tp": 8, "mem_fraction_static": 0.9, "enable-metrics": True, "lora-paths": None}
    expected = [("tp-size", 8), ("mem-fraction-static", 0.9), ("enable-metrics", True), ("lora-paths", None)]
    assert list(_engine.canonical_arguments(given_arguments).items()) == expected


def test_two_spellings_of_one_argument_are_refused():
    with pytest.raises(ValueError, match=r"'tp' and '--tensor-parallel-size'.*tp-size.*keep one"):
        _engine.canonical_arguments({"tp": 8, "--tensor-parallel-size": 8})


def test_arguments_must_be_a_dictionary():
    with pytest.raises(ValueError, match="as a dictionary, found list"):
        _engine.canonical_arguments(["tp"])
    assert _engine.canonical_arguments(None) == {}


# --- scan -------------------------------------------------------------------

OLD_FORM = """
MORE = ["half", "float"]

class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, help="The size.")
        parser.add_argument("--trust-remote-code", action="store_true", help="Whether.")
        parser.add_argument("--dtype", choices=["auto", "half"], help="Deprecated. " "Do not use.")
        parser.add_argument("--computed", choices=["auto"] + BACKENDS)
        parser.add_argument("--fused", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--old", action=DeprecatedStoreTrueAction, new_flag="--new")
        parser.add_argument("--older", action=DeprecatedAction, help="NOTE: deprecated. Use --new.")
        parser.add_argument("--oldest", action=DeprecatedAction, error_message=("--oldest is gone. " "Use --new."))
        parser.add_argument("--alias", type=int, nargs="+", action=DeprecatedAliasStoreAction, new_flag="--new")
        parser.add_argument("--const", action=DeprecatedStoreConstAction, nargs=None, choices=["amd"], const_value=True)
        parser.add_argument("--summed", choices=["auto"] + MORE)
        parser.add_argument("--level", type=int, choices=[0, 1])
        parser.add_argument("--ratio", type=float, nargs="*")
        parser.add_argument("--config-text", type=json.loads)
        parser.add_argument("--strange", type=lambda text: text.upper())
        parser.add_argument("model", nargs="?")
        parser.add_argument(*names, **kwargs)
        other.add_argument_group("--not-one")
"""

NEW_FORM = """
class Parallel(msgspec.Struct):
    _NS_PATH = "parallel"
    tp_size: A[int, Arg(help="The size.", aliases=["--tensor-parallel-size"])] = 1
    nnodes: A[int, "The number of nodes."] = 1
    trust_remote_code: A[bool, "Whether."] = False
    backend: A[Optional[Literal["a", "b"]], "One of two."] = None
    named: A[str, Arg(cli_name="--other-name", help="(Deprecated: use --backend)")] = ""
    hidden: A[str, Arg(no_cli=True, help="Not on the command line.")] = ""
    plain: int = 0
    derived: A[int, Derived(doc="no input")] = 0
    fused: A[bool, Arg(help="x", action=argparse.BooleanOptionalAction)] = True
    listed: A[List[str], Arg(help="x", nargs="*", choices=CHOICES)] = None
    sizes: A[Optional[List[int]], "Sizes."] = None
    json_sizes: A[Optional[List[int]], Arg(help="x", type_parser=json_list_type)] = None
    mode: A[Literal[1, 2], "One of two numbers."] = 1
    either: A[Literal[None, "a"], Arg(help="x", choices=["none", "a"])] = None
    newer: A[int | None, Arg(help="x")] = None
    share: A[float, "Share."] = 0.5
    tokens: A[Optional[int], Arg(help="x", type_parser=human_readable_int)] = None
    maybe: A[Optional[str], Arg(help="x", nargs="?", const="")] = None
    paths: A[Any, Arg(help="x", action=PathAction, action_kwargs={"type": str, "nargs": "*"})] = None
"""


def scanned(text):
    return {argument.name: argument for argument in _engine.arguments_in_source(text)}


def test_the_scan_reads_calls():
    found = scanned(OLD_FORM)
    assert " ".join(sorted(found)) == (
        "alias computed config-text const dtype fused level old older oldest ratio strange summed tp-size"
        " trust-remote-code"
    )
    assert found["tp-size"].aliases == ("tensor-parallel-size",)
    assert found["dtype"].choices == ("auto", "half")
    assert found["dtype"].deprecated
    assert found["computed"].choices is None
    assert found["fused"].aliases == ("no-fused",)
    assert [name for name, row in found.items() if not row.takes_value] == [
        "trust-remote-code",
        "fused",
        "old",
        "older",
        "oldest",
    ]
    assert [name for name, row in found.items() if row.negatable] == ["fused"]
    assert (found["old"].deprecated, found["old"].instead) == (True, "--new")
    assert (found["older"].deprecated, found["older"].instead) == (True, "--new")
    assert found["oldest"].refusal == "--oldest is gone. Use --new."
    assert (found["alias"].nargs, found["alias"].type, found["alias"].instead) == ("+", "int", "--new")
    assert (found["const"].nargs, found["const"].choices) == (None, ("amd",))
    assert found["summed"].choices == ("auto", "half", "float")
    assert (found["level"].type, found["level"].choices) == ("int", (0, 1))
    assert (found["ratio"].type, found["ratio"].nargs) == ("float", "*")
    assert (found["config-text"].type, found["strange"].type, found["dtype"].type) == ("json", "other", "str")
    assert found["trust-remote-code"].type is None


def test_the_scan_reads_annotated_fields():
    found = scanned(NEW_FORM)
    assert " ".join(sorted(found)) == (
        "backend either fused json-sizes listed maybe mode newer nnodes other-name paths share sizes tokens tp-size"
        " trust-remote-code"
    )
    kinds = {name: (row.type, row.nargs, row.choices) for name, row in found.items()}
    assert kinds["backend"] == ("str", None, ("a", "b"))
    assert kinds["listed"] == ("str", "*", None)
    assert kinds["sizes"] == ("int", "+", None)
    assert kinds["json-sizes"] == ("json", None, None)
    assert kinds["mode"] == ("int", None, (1, 2))
    assert kinds["either"] == ("str", None, ("none", "a"))
    assert kinds["newer"] == ("int", None, None)
    assert kinds["share"] == ("float", None, None)
    assert kinds["tokens"] == ("int_with_unit", None, None)
    assert kinds["maybe"] == ("str", "?", None)
    assert kinds["paths"] == ("str", "*", None)
    assert kinds["trust-remote-code"] == (None, 0, None)
    assert found["other-name"].instead == "--backend"
    assert found["tp-size"].aliases == ("tensor-parallel-size",)
    assert found["backend"].choices == ("a", "b")
    assert found["backend"].takes_value
    assert not found["trust-remote-code"].takes_value
    assert found["other-name"].deprecated
    assert found["listed"].choices is None
    assert found["fused"].aliases == ("no-fused",)


def test_the_scan_reads_both_places(tmp_path):
    fields = tmp_path / "srt" / "arg_groups" / "fields"
    fields.mkdir(parents=True)
    (tmp_path / "srt" / "server_args.py").write_text(OLD_FORM)
    (fields / "parallel.py").write_text(NEW_FORM)
    found = _engine.scan_arguments(str(tmp_path))
    assert {"dtype", "nnodes"} <= set(found)
    assert found["tp-size"].as_dict() == {
        "name": "tp-size",
        "aliases": ["tensor-parallel-size"],
        "deprecated": False,
        "choices": None,
        "takes_value": True,
        "type": "int",
        "nargs": None,
        "negatable": False,
        "instead": None,
        "refusal": None,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "found no srt/server_args.py"),
        ("x = 1", "Found no server argument"),
        ("def (", "Cannot read the server arguments"),
    ],
)
def test_the_scan_says_what_it_cannot_read(tmp_path, text, message):
    (tmp_path / "srt").mkdir()
    if text is not None:
        (tmp_path / "srt" / "server_args.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        _engine.scan_arguments(str(tmp_path))


# --- checks -----------------------------------------------------------------


def problems(arguments, version="0.5.23"):
    return [(row.argument, row.problem) for row in _engine.check_arguments(arguments, names_of(version))]


def test_arguments_of_the_real_engine_pass():
    arguments = {"tp": 8, "--model-path": "m", "mem_fraction_static": 0.9, "cuda-graph-max-bs-decode": 64, "dp": 2}
    assert problems(arguments) == []
    assert problems(None) == []


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("pp", "ambiguous"),
        ("cuda-graph-max-bs", "removed"),
        ("cuda_graph_bs", "removed"),
        ("enable-ep-moe", "removed"),
        ("torchao-config", "removed"),
        ("mem-fraction-statik", "unknown"),
        ("bogus", "unknown"),
        ("speculative-draft", "ambiguous"),
    ],
)
def test_what_would_end_the_start_is_found(argument, problem):
    assert problems({argument: 1}) == [(argument.replace("_", "-"), problem)]


def test_an_old_engine_takes_its_own_arguments():
    arguments = {"cuda-graph-max-bs": 64, "pp": 2, "enable-ep-moe": True}
    assert problems(arguments, "0.4.6.post5") == []
    assert problems({"cuda-graph-max-bs": 64}, "0.5.14") == []
    assert problems({"attn-dp-size": 2}, "0.5.14") == [("attn-dp-size", "unknown")]


def test_sentences_name_the_way_out():
    known = names_of("0.5.23")
    (removed,) = _engine.check_arguments({"cuda-graph-max-bs": 1}, known)
    assert removed.sentence == (
        "The server argument cuda-graph-max-bs was removed after SGLang 0.5.19: use cuda-graph-max-bs-decode."
    )
    assert removed.suggestions == ("cuda-graph-max-bs-decode",)
    (typo,) = _engine.check_arguments({"chunked-prefil-size": 1}, known)
    assert "did you mean chunked-prefill-size" in typo.sentence
    (swapped,) = _engine.check_arguments({"context-lenght": 1}, known)
    assert "did you mean context-length" in swapped.sentence
    (piecewise,) = _engine.check_arguments({"disable-piecewise-cuda-graph": True}, known)
    assert "use cuda-graph-backend-prefill with the value disabled" in piecewise.sentence
    (many,) = _engine.check_arguments({"enable": True}, known)
    assert "and" in many.sentence
    assert len(many.as_dict()["suggestions"]) == 5


def test_a_version_keeps_what_is_not_there_yet_from_being_called_removed():
    known = names_of("0.4.6.post5")
    (problem,) = _engine.check_arguments({"cuda-graph-tc-compiler": "eager"}, known, version="0.4.6.post5")
    assert problem.problem == "unknown"
    (problem,) = _engine.check_arguments({"impl": "auto"}, names_of("0.5.23"), version="0.5.23")
    assert problem.sentence == "The server argument impl was removed after SGLang 0.4.9: use model-impl."


def test_advice_without_a_new_name():
    (problem,) = _engine.check_arguments({"enable-nan-detection": True}, names_of("0.5.23"), "0.5.23")
    assert problem.sentence.endswith("SGLANG_SPEC_OOB_DETECTION=1 in the server's environment.")
    (problem,) = _engine.check_arguments({"disable-mla": True}, names_of("0.5.23"), "0.5.23")
    assert problem.sentence.endswith("0.4.3.post4: remove it.")


def test_a_spelling_of_other_versions_is_written_as_this_engine_has_it():
    examined = _engine.examine_arguments({"enable-hicache": True}, names_of("0.5.14"))
    assert examined.problems == ()
    assert examined.arguments == {"enable-hierarchical-cache": True}


def test_accepted_may_come_in_any_form():
    row = _engine.Argument("tp-size", ("tensor-parallel-size",))
    for accepted in ([row], {"tp-size": row}, [row.as_dict()], ["tp-size", "--tensor-parallel-size"]):
        assert _engine.spellings(accepted) == {"tp-size", "tensor-parallel-size"}


@given(st.sampled_from(names_of("0.5.23")))
def test_every_real_name_passes(name):
    assert problems({name: 1}) == []


@settings(max_examples=40)
@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz-_", min_size=1, max_size=30))
def test_a_check_agrees_with_argparse(name):
    """The rule of argparse: exact, or the prefix of exactly one spelling. Anything else must be a problem."""
    if not name.strip("-_ "):
        return
    spelled = name.strip().lstrip("-").replace("_", "-")
    known = set(names_of("0.5.23"))
    fits = spelled in known or sum(other.startswith(spelled) for other in known) == 1
    assert (problems({name: 1}) == []) == fits or not spelled


# --- the installed engine ---------------------------------------------------

TORCH = """from typing import Optional
__version__ = '2.14.1+cu130'
debug = False
cuda: Optional[str] = '13.0'
hip: Optional[str] = None
"""


@pytest.fixture
def venv(tmp_path):
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    package = site / "sglang" / "srt"
    package.mkdir(parents=True)
    (package / "server_args.py").write_text(OLD_FORM)
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text(TORCH)
    for name, version in (
        ("sglang", "0.5.23"),
        ("torch", "2.14.1"),
        ("sglang_kernel", "0.4.10"),
        ("sglang_router", "0.3.2"),
    ):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.11\n\nVersion: 9.9\n"
        (info / "METADATA").write_text(text)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    return tmp_path


def test_an_engine_is_read_from_its_files(venv):
    engine = _engine_installed.read_engine(str(venv))
    assert engine["version"] == "0.5.23"
    assert (engine["torch_version"], engine["cuda_version"], engine["hip_version"]) == ("2.14.1+cu130", "13.0", None)
    assert engine["python_version"] == "3.11.7"
    assert engine["requires_python"] == ">=3.11"
    assert engine["packages"] == {"torch": "2.14.1", "sglang-kernel": "0.4.10"}
    assert "tp-size" in engine["arguments"]
    assert engine["python"] is None


def test_an_editable_engine_is_found_by_its_pth_file(venv):
    site = venv / "lib" / "python3.11" / "site-packages"
    (venv / "src").mkdir()
    (site / "sglang").rename(venv / "src" / "sglang")
    (site / "__editable__.sglang.pth").write_text(f"{venv}/src\n")
    engine = _engine_installed.read_engine(str(venv))
    assert engine["package_dir"] == str(venv / "src" / "sglang")


def test_an_engine_without_torch_has_no_cuda(venv):
    site = venv / "lib" / "python3.11" / "site-packages"
    (site / "torch" / "version.py").unlink()
    (site / "torch-2.14.1.dist-info" / "METADATA").unlink()
    engine = _engine_installed.read_engine(str(venv))
    assert (engine["torch_version"], engine["cuda_version"]) == (None, None)


def test_a_cut_off_update_is_named(venv):
    info = venv / "lib" / "python3.11" / "site-packages" / "sglang-0.5.22.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: sglang\nVersion: 0.5.22\n")
    with pytest.raises(_engine_installed.EngineError, match=r"one version of sglang.*0\.5\.22 and 0\.5\.23"):
        _engine_installed.read_engine(str(venv))


def test_what_is_no_engine_is_named(venv, tmp_path):
    with pytest.raises(ValueError, match="found nothing"):
        _engine_installed.read_engine(str(venv / "absent"))
    with pytest.raises(ValueError, match="found a file"):
        _engine_installed.read_engine(str(venv / "pyvenv.cfg"))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="no package folder"):
        _engine_installed.read_engine(str(empty))
    (empty / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    with pytest.raises(ValueError, match="no package sglang"):
        _engine_installed.read_engine(str(empty))
    (venv / "lib" / "python3.11" / "site-packages" / "sglang" / "srt" / "server_args.py").unlink()
    with pytest.raises(ValueError, match="install the engine again"):
        _engine_installed.read_engine(str(venv))
