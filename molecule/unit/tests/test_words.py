"""What the filters write comes out of a real systemd as it went in: ExecStart=, Environment=, environment files.

Thousands of values per host, drawn by hypothesis and tried in one batch of oneshot units. Compared are systemd's own
view (over the bus) and what a process really got. The units are removed again.
"""

from __future__ import annotations

import base64
import functools
import gzip
import importlib
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FILES = Path(__file__).resolve().parents[1] / "files" / "words"
FOLDER = "/run/gpufleet-words"
UNITS = "/run/systemd/system"
PIECE = 60000  # characters of one command: a single word of a command line has at most 128 KiB

MOST_WORDS = 2000
MOST_VALUES = 700
A_UNIT = 250  # values in one unit

# Every piece that some reader of a unit treats in a way of its own.
SPECIAL = (
    *"\"'\\%$;`#={}[]:-~!@+|&*? \t\x01\x1b\x7f",
    *("%n", "%%", "%h", "$HOME", "${HOME}", "$$", "\\n", "\\x41", "\\\\", '\\"', '{"a": "b c"}'),
    *("ä", "日本", "🙂", "\u00a0", "\u2028", "\u0085", "\ufeff", "e\u0301"),
)

# Whole words that were lost, split or expanded somewhere once.
KNOWN = (
    *("", " ", " a ", "\t", "a\tb", "\\", "a\\", ";", "\\;", "#x", "'", '"', "''", '""', "it's", "=", "a=b"),
    *("%", "%i", "$", "$HOME", "${HOME}", "$$HOME", "cost-$HOME-${USER}", "50% of $HOME", "p$ss%w\"or'd"),
    *("-", "--", "@x", "|", ">", "&&", "*", "~", "~/hf", "1e-05", "eth0 eth1", "\x7f", "ä", "\ufeffa"),
    *("C:\\new\\table", "\\x41", "\\101", "\\s", '{"index_topk_freq": 4}'),
    '{"decode":{"backend":"full","bs":[1,2,4]},"prefill":{"backend":"disabled"}}',
)

LETTERS = st.characters(min_codepoint=32, max_codepoint=126)
ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0")


def writable(text):
    """Code points that are no characters are refused by the filters (a unit test), for systemd drops their line."""
    return not any(0xFDD0 <= ord(one) <= 0xFDEF or ord(one) & 0xFFFE == 0xFFFE for one in text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(LETTERS, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(LETTERS, max_size=6), inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value, ensure_ascii=False))
TEXT = (
    st.lists(st.sampled_from(SPECIAL) | st.text(LETTERS, max_size=4), max_size=8).map("".join)
    | st.text(LETTERS, max_size=30)
    | st.text(ANY, max_size=20)
    | JSON
).filter(writable)


def load(name):
    """A filter of the collection that this scenario tests."""
    for folder in os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(":"):
        if folder and folder not in sys.path:
            sys.path.append(folder)
    module = importlib.import_module("ansible_collections.gpufleet.sglang.plugins.filter." + name)
    return module.FilterModule().filters()[name]


def drawn(strategy, count):
    """*count* examples. Only drawn here: one round trip to the host tries them all, and each is judged alone."""
    found = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(value):
        found.append(value)

    draw()
    return found


@functools.cache
def words_to_try():
    """The same on every host."""
    return [*KNOWN, *drawn(TEXT, MOST_WORDS)]


@functools.cache
def values_to_try():
    return [*KNOWN, *drawn(TEXT, MOST_VALUES)]


def parted(values, size):
    return [values[start : start + size] for start in range(0, len(values), size)]


def try_on(host, files, units):
    """Hand the batch over in pieces, run it, and return what was found by unit."""
    packed = base64.b64encode(gzip.compress(json.dumps({"files": files, "units": units}).encode())).decode()
    with host.sudo():
        host.check_output("rm -rf %s && mkdir -m 700 %s", FOLDER, FOLDER)
        try:
            for name in ("show.py", "batch.py"):
                script = base64.b64encode((FILES / name).read_bytes()).decode()
                host.check_output("printf %%s %s | base64 -d > %s", script, "%s/%s" % (FOLDER, name))
            for piece in parted(packed, PIECE):
                host.check_output("printf %%s %s >> %s/batch", piece, FOLDER)
            return json.loads(host.check_output("/usr/bin/python3 %s/batch.py %s/batch", FOLDER, FOLDER))
        finally:
            host.check_output("rm -rf %s", FOLDER)


def unit_text(unit, words=(), assignments=(), environment_file=None):
    lines = ["[Service]", "Type=oneshot"]
    lines += ["Environment=" + one for one in assignments]
    if environment_file:
        lines.append("EnvironmentFile=" + environment_file)
    command = "ExecStart=/usr/bin/python3 %s/show.py -- %s/%s.json" % (FOLDER, FOLDER, unit)
    lines.append(" \\\n    ".join([command, *words]))
    return "\n".join(lines) + "\n"


def differing(wanted, found):
    """(place, wanted, found) of everything that is not equal, also of what is missing or too much."""
    length = max(len(wanted), len(found))
    pairs = zip(wanted + [None] * (length - len(wanted)), found + [None] * (length - len(found)))
    return [(place, one, other) for place, (one, other) in enumerate(pairs) if one != other][:5]


@pytest.fixture(scope="module")
def tried(host):
    """(what was wanted by unit, what was found by unit) of one batch with everything."""
    argument, assignment, line = load("systemd_argument"), load("systemd_assignment"), load("systemd_environment_line")
    files, wanted = {}, {}
    for number, words in enumerate(parted(words_to_try(), A_UNIT)):
        unit = "words-%d.service" % number
        wanted[unit] = words
        files["%s/%s" % (UNITS, unit)] = unit_text(unit, [argument(word) for word in words])
    for number, values in enumerate(parted(values_to_try(), A_UNIT)):
        values = {"V%d" % place: value for place, value in enumerate(values)}
        for kind in ("assignments", "file"):
            unit = "environment-%s-%d.service" % (kind, number)
            wanted[unit] = values
            path = "%s/%s.env" % (FOLDER, unit)
            if kind == "file":
                files[path] = "".join(line(value, name) + "\n" for name, value in values.items())
                text = unit_text(unit, environment_file=path)
            else:
                text = unit_text(unit, assignments=[assignment(value, name) for name, value in values.items()])
            files["%s/%s" % (UNITS, unit)] = text
    found = try_on(host, files, sorted(wanted))
    assert {unit: one["started"] for unit, one in found.items()} == dict.fromkeys(wanted, "")
    return wanted, found


def of_kind(wanted, kind):
    return {unit: values for unit, values in wanted.items() if unit.startswith(kind)}


def test_the_process_gets_every_word(tried, capsys):
    wanted, found = tried
    words = of_kind(wanted, "words-")
    for unit, expected in words.items():
        assert differing(expected, found[unit]["process"]["words"]) == [], unit
    count = sum(map(len, words.values()))
    with capsys.disabled():
        print(" %d words of ExecStart=" % count, end="")
    assert count >= 1500


def test_systemd_itself_reads_every_word(tried):
    """Expansions are made at the start, so that "$$" is still seen here; quotes and specifiers are resolved."""
    wanted, found = tried
    for unit, expected in of_kind(wanted, "words-").items():
        (command,) = found[unit]["exec_start"]
        read = command[1][4:]  # interpreter, script, --, file
        assert differing([word.replace("$", "$$") for word in expected], read) == [], unit


@pytest.mark.parametrize("kind", ["assignments", "file"])
def test_the_process_gets_every_value_of_the_environment(tried, kind, capsys):
    wanted, found = tried
    values = of_kind(wanted, "environment-%s-" % kind)
    for unit, expected in values.items():
        got = found[unit]["process"]["environment"]
        assert {name: got.get(name) for name in expected} == expected, unit
        assert [name for name in got if name.startswith("V") and name not in expected] == []
    count = sum(map(len, values.values()))
    with capsys.disabled():
        print(" %d values by %s" % (count, "Environment=" if kind == "assignments" else "environment file"), end="")
    assert count >= 500


def test_systemd_itself_reads_every_assignment(tried):
    wanted, found = tried
    for unit, expected in of_kind(wanted, "environment-assignments-").items():
        assert sorted(found[unit]["environment"]) == sorted("%s=%s" % pair for pair in expected.items()), unit
