"""How long a start-up may be silent: what is a sign of life, what is a stall, how long the whole start may take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _patience,
    _patience_deadline,
    _patience_left,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._patience import Process, Sample

MIB = 1048576
GIB = 1024**3


def sample(at, cpu=0.0, io_mib=0.0, resident_mib=100, device_mib=None, state="S", name="python3", read_mib=None):
    process = Process(
        100,
        name,
        state,
        cpu,
        int(io_mib * MIB),
        int((io_mib if read_mib is None else read_mib) * MIB),
        resident_mib * MIB,
    )
    return Sample(at, (process,), device_mib)


def play(samples, phase="weights", lines=(), **options):
    """The silence after each sample; lines are (second, text)."""
    marks, results, lines = _patience.Marks(0.0, 0.0), [], list(lines)
    for one in samples:
        text = next((text for at, text in reversed(lines) if at <= one.at), None)
        marks = _patience.after_line(marks, text, one.at)
        marks = _patience.after_sample(marks, one, phase)
        results.append(_patience.silence(marks, one, phase, one.at, **options))
    return results


def seconds_of_stall(results, samples):
    return next((one.at for silent, one in zip(results, samples) if silent.stalled), None)


def every(seconds, until, **growth):
    """A sample every so many seconds; each figure is a function of the time."""
    return [
        sample(at, **{name: value(at) if callable(value) else value for name, value in growth.items()})
        for at in range(0, until, seconds)
    ]


def test_nothing_at_all_is_a_stall_after_the_patience_of_the_phase():
    samples = every(5, 1000)
    assert seconds_of_stall(play(samples), samples) == 300
    assert seconds_of_stall(play(samples, "graphs"), samples) == 600
    assert seconds_of_stall(play(samples, "init"), samples) == 300
    assert seconds_of_stall(play(samples, "init", several_nodes=True), samples) == 720


def test_a_slow_disk_is_no_stall():
    """Two MiB in five seconds, the process always waiting for the disk, and hardly any CPU time."""
    samples = every(5, 7200, io_mib=lambda at: at * 0.4, cpu=lambda at: at * 0.002, state="D")
    assert seconds_of_stall(play(samples), samples) is None


def test_a_disk_that_died_is_a_stall_that_says_so():
    samples = every(5, 2000, io_mib=lambda at: min(at, 600) * 100, state="D")
    results = play(samples)
    assert seconds_of_stall(results, samples) == 900
    words = _patience.seen_last(results[-1])
    assert "bytes read or written" in words
    assert "processes: 1 waiting for a disk or a driver" in words


def test_weights_from_the_page_cache_are_no_stall():
    """No byte is read from the disk and none by a call: mapped pages are resident memory and CPU time."""
    samples = every(5, 1500, resident_mib=lambda at: 100 + at * 20, cpu=lambda at: at * 0.9, read_mib=0)
    assert seconds_of_stall(play(samples), samples) is None


def test_memory_of_the_boards_alone_is_a_sign():
    samples = every(10, 3000, device_mib=lambda at: 500 + at * 10)
    assert seconds_of_stall(play(samples), samples) is None


def test_cpu_time_alone_is_a_sign_but_not_for_ever():
    """A rank that waits in a collective spins; so does one that repacks weights, for less long."""
    samples = every(5, 4000, cpu=lambda at: at * 8.0)
    results = play(samples)
    assert seconds_of_stall(results, samples) == 1800
    assert results[-1].only_cpu is True
    assert "only CPU time since" in _patience.seen_last(results[-1])
    assert seconds_of_stall(play(samples, "init"), samples) == 420


def test_a_long_compilation_is_no_stall():
    """45 minutes of ninja and nvcc without a line, with CPU time only; and what the journal said counts as well."""
    samples = every(5, 2700, cpu=lambda at: at * 12.0, name="ninja")
    results = play(samples, "graphs")
    assert seconds_of_stall(results, samples) is None
    assert results[-1].compiling == "compiling CUDA kernels"
    plain = every(5, 2700, cpu=lambda at: at * 12.0)
    assert seconds_of_stall(play(plain, "graphs"), plain) == 1800
    assert seconds_of_stall(play(plain, "graphs", compiling="compiling DeepGEMM kernels"), plain) is None


def test_the_capture_of_1334_seconds_that_succeeded_is_no_stall():
    samples = every(5, 1340, cpu=lambda at: at * 1.0, device_mib=lambda at: 80000 + at // 60 * 20)
    assert seconds_of_stall(play(samples, "graphs"), samples) is None


def test_idle_processes_are_no_sign():
    """Threads that look around take some CPU time and read some bytes."""
    samples = every(5, 1000, cpu=lambda at: at * 0.04, io_mib=lambda at: at * 0.0005)
    assert seconds_of_stall(play(samples), samples) == 300


def test_twelve_idle_processes_are_no_sign_and_one_that_spins_is():
    """Idle: 0.0045 CPU seconds a second each, as it was measured. Spinning: one more of them at 1.0."""

    def rank(at, spins):
        idle = [Process(pid, cpu_seconds=at * 0.0045) for pid in range(11)]
        return Sample(at, (*idle, Process(99, cpu_seconds=at * (1.0 if spins else 0.0045))))

    for spins, last in ((False, "the wait began"), (True, "CPU time")):
        samples = [rank(at, spins) for at in range(0, 60, 5)]
        assert play(samples)[-1].last == last


def test_a_line_is_a_sign_and_the_same_line_again_is_none():
    samples = every(5, 1000)
    assert seconds_of_stall(play(samples, lines=[(200, "a")]), samples) == 500
    again = [(at, "retry") for at in range(100, 900, 50)]
    assert seconds_of_stall(play(samples, lines=again), samples) == 400
    other = [(at, f"shard {at}") for at in range(100, 900, 50)]
    assert seconds_of_stall(play(samples, lines=other), samples) is None


def test_the_factor():
    samples = every(5, 1000)
    assert seconds_of_stall(play(samples, factor=0.1), samples) == 30
    assert seconds_of_stall(play(samples, factor=0), samples) is None


def test_who_cannot_see_the_processes_never_calls_a_stall():
    marks = _patience.Marks(0.0, 0.0)
    assert _patience.silence(marks, None, "weights", 5000.0).stalled is False
    assert _patience.silence(marks, Sample(5000.0, ()), "weights", 5000.0).stalled is False


def test_without_a_journal_the_longest_patience_counts():
    samples = every(5, 1000)
    assert seconds_of_stall(play(samples, None), samples) == 900


def test_marks_go_from_slice_to_slice():
    marks = _patience.after_sample(_patience.Marks(10.0, 10.0), sample(20.0, io_mib=5), "weights")
    carried = json.loads(json.dumps(marks.as_dict()))
    assert _patience.marks_from(carried, 30.0) == marks
    # From before the last boot, or from somebody else: counted from now on.
    assert _patience.marks_from(carried, 5.0) == _patience.Marks(5.0, 5.0)
    assert _patience.marks_from({"sign_at": None, "other": 1}, 5.0) == _patience.Marks(5.0, 5.0)
    assert _patience.marks_from(None, 5.0) == _patience.Marks(5.0, 5.0)


def test_what_a_phase_began_with():
    marks = _patience.Marks(0.0, 0.0)
    marks = _patience.after_sample(marks, sample(5.0, device_mib=600, io_mib=100), "init")
    marks = _patience.after_sample(marks, sample(10.0, device_mib=900, io_mib=200), "weights")
    assert (marks.phase_device_mib, marks.phase_read_bytes) == (600, 200 * MIB)
    came_later = _patience.after_sample(_patience.Marks(0.0, 0.0), sample(5.0, device_mib=9000, io_mib=900), "weights")
    assert (came_later.phase_device_mib, came_later.phase_read_bytes) == (0, 0)


def test_what_the_processes_do_the_busiest_first():
    rows = _patience.process_rows(
        [Process(7, "a", "S", 1.0), Process(8, "b", "D", 9.0, 5, 2 * GIB, GIB, waits_in="rpc_wait_bit_killable")]
    )
    assert rows[0] == {
        "pid": 8,
        "name": "b",
        "state": "D",
        "doing": "waiting for a disk or a driver",
        "waits_in": "rpc_wait_bit_killable",
        "cpu_seconds": 9.0,
        "read_gib": 2.0,
        "resident_gib": 1.0,
    }
    assert (rows[1]["pid"], rows[1]["read_gib"]) == (7, None)


@pytest.mark.parametrize("row", _patience.PATIENCE, ids=lambda row: row.phase)
def test_every_row_says_where_it_comes_from(row):
    assert 0 < row.quiet_seconds <= row.busy_seconds
    assert row.source


def test_the_page_on_starts_has_the_same_table():
    page = (Path(__file__).resolve().parents[4] / "docs" / "startup.md").read_text()
    rows = re.findall(r"^\| ([a-z ,]+) \| (\d+) s \| (\d+) s \|", page, re.MULTILINE)
    names = {"init, several nodes": _patience.SEVERAL_NODES, "compiling, any phase": _patience.COMPILING}
    known = dict({row.phase: row for row in _patience.PATIENCE}, **names)
    assert {(name, float(quiet), float(busy)) for name, quiet, busy in rows} == {
        (name, row.quiet_seconds, row.busy_seconds) for name, row in known.items()
    }
    fixed, first, known_seconds = (
        f"{seconds:,.0f} s"
        for seconds in (
            _patience_deadline.FIXED_SECONDS,
            _patience_deadline.FIRST_SECONDS,
            _patience_deadline.KNOWN_SECONDS,
        )
    )
    assert f"{fixed} + bytes of the weights / rate of the disk + {first} for graphs" in page
    assert f"the last term is {known_seconds}" in page
    assert f"it is {_patience_deadline.UNKNOWN_SECONDS:,.0f} s" in page


def test_names_of_compilers_are_as_the_kernel_cuts_them():
    assert all(len(row.name) <= 15 and row.source for row in _patience.COMPILERS)


# -- the deadline

DISK = _patience_deadline.BY_NAME


@pytest.mark.parametrize(
    ("stated", "gib", "disk", "last", "seconds"),
    [
        (900, 594, "nvme", 450, 900),
        # 300 + 594 x 2^30 / 5e8 + 2700 = 4275.6, to the next minute.
        (None, 594, "nvme", None, 4320),
        # The last start knows the kernels: 300 + 1275.6 + 900 = 2475.6.
        (None, 594, "nvme", 450, 2520),
        (None, 594, "nvme", 1000, 3000),
        # 300 + 594 x 2^30 / 8e7 + 2700 = 10972.5.
        (None, 594, "rotational", None, 10980),
        (None, 594, "network", None, 10980),
        (None, 0.25, "ssd", None, 3060),
        (None, None, None, None, 6600),
        (None, None, None, 100, 6600),
        (None, None, None, 3000, 9000),
    ],
)
def test_deadline(stated, gib, disk, last, seconds):
    weight_bytes = None if gib is None else int(gib * GIB)
    deadline = _patience_deadline.deadline_of(stated, weight_bytes, DISK.get(disk), last)
    assert deadline.seconds == seconds
    assert deadline.auto is (stated is None)


def test_the_deadline_says_why():
    deadline = _patience_deadline.deadline_of(None, 594 * GIB, DISK["nvme"], 450.0)
    assert deadline.why == "594.0 GiB of weights on an NVMe disk, the last start took 450 s"


@pytest.mark.parametrize(("value", "seconds"), [("auto", None), (None, None), ("", None), ("900", 900.0), (60.5, 60.5)])
def test_stated_seconds(value, seconds):
    assert _patience_deadline.stated_seconds_of(value) == seconds


@pytest.mark.parametrize("value", ["soon", "0", "-5", "inf", "nan", True, [5]])
def test_what_is_no_number_of_seconds_is_one_sentence(value):
    with pytest.raises(ValueError, match="^Expected auto or a number of seconds above 0 in timeout_seconds, found "):
        _patience_deadline.stated_seconds_of(value)


MOUNTS = r"""/dev/vda1 / ext4 rw 0 0
/dev/nvme0n1p1 /srv ext4 rw 0 0
nas:/models /srv/models\040old nfs4 rw 0 0
tmpfs /srv/models tmpfs rw 0 0
/dev/sdb /srv/models xfs rw 0 0
short
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/etc", ("/dev/vda1", "ext4")),
        ("/srv/x", ("/dev/nvme0n1p1", "ext4")),
        ("/srvx", ("/dev/vda1", "ext4")),
        ("/srv/models old/k2", ("nas:/models", "nfs4")),
        # Mounted over: the later one is seen.
        ("/srv/models/k2", ("/dev/sdb", "xfs")),
        ("/srv/models", ("/dev/sdb", "xfs")),
    ],
)
def test_file_system_of(path, found):
    assert _patience_deadline.file_system_of(MOUNTS, path) == found


@pytest.mark.parametrize(
    ("kind", "rotational", "names", "name"),
    [
        ("tmpfs", None, [], "memory"),
        ("nfs4", None, [], "network"),
        ("fuse.juicefs", None, [], "network"),
        ("ext4", True, ["sda"], "rotational"),
        ("ext4", False, ["sda"], "ssd"),
        ("xfs", False, ["nvme0n1", "nvme1n1"], "nvme"),
        # A stripe with one part that rotates is as slow as that one.
        ("xfs", True, ["nvme0n1", "sda"], "rotational"),
        ("zfs", None, [], "unknown"),
    ],
)
def test_disk_of(kind, rotational, names, name):
    assert _patience_deadline.disk_of(kind, rotational, names).name == name


def test_last_load_seconds_is_of_the_same_model_and_layout():
    measurements = [
        {"load_seconds": 400.0, "keys": {"weights": "a"}},
        {"load_seconds": 450.0, "keys": {"weights": "a"}},
        {"load_seconds": 30.0, "keys": {"weights": "b"}},
        {"load_seconds": None, "keys": {"weights": "a"}},
        {"load_seconds": 9.0},
    ]
    last = _patience_deadline.last_load_seconds
    assert last(measurements, {"weights": "a"}) == 450.0
    assert last(measurements, {"weights": "c"}) is None
    assert last(measurements, {}) is None
    assert last([], {"weights": "a"}) is None
    assert last(None, None) is None


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            {"free_before_load_gib": 94.0, "free_after_load_gib": 19.0, "quantity_keys": {"weights": "a"}},
            {"weight_gib": 75.0, "last_seconds": 450.0},
        ),
        ({"free_before_load_gib": 94.0, "quantity_keys": {"weights": "b"}}, {"weight_gib": None, "last_seconds": None}),
        ({}, {"weight_gib": None, "last_seconds": None}),
    ],
)
def test_expectation(plan, expected):
    measurements = [{"load_seconds": 450.0, "keys": {"weights": "a"}}]
    assert _patience_deadline.expectation(plan, measurements) == expected


# -- how much is left


@pytest.mark.parametrize(
    ("known", "part", "words"),
    [
        ({"device_gib": 240.0, "expected_gib": 75.0, "boards": 8}, 0.4, "240.0 of 600.0 GiB on the boards"),
        ({"device_gib": 90.0, "expected_gib": 75.0}, 1.0, "75.0 of 75.0 GiB on the boards"),
        ({"steps": {"done": 5, "total": 20}, "read_bytes": GIB, "weight_bytes": 2 * GIB}, 0.25, "5 of 20 parts"),
        ({"read_bytes": GIB, "weight_bytes": 4 * GIB}, 0.25, "1.0 of 4.0 GiB read"),
        # Nothing was read: they may be in memory, or it has not begun.
        ({"read_bytes": 0, "weight_bytes": 4 * GIB}, None, ""),
        ({"device_gib": None, "expected_gib": 75.0}, None, ""),
        ({}, None, ""),
    ],
)
def test_weights_done(known, part, words):
    assert _patience_left.weights_done(**known) == (part, words)


@pytest.mark.parametrize(
    ("part", "seconds", "left"), [(0.25, 100.0, 300.0), (1.0, 80.0, 0.0), (0.01, 10.0, None), (None, 10.0, None)]
)
def test_weights_left(part, seconds, left):
    assert _patience_left.weights_left_seconds(part, seconds) == left


def test_progress_in_words():
    done = (0.4, "240.0 of 600.0 GiB on the boards")
    found = _patience_left.progress("weights", 150.0, done, 120.0, 450.0)
    assert found == {
        "part": 0.4,
        "seconds_left": 300.0,
        "weights_left_seconds": 180.0,
        "words": "240.0 of 600.0 GiB on the boards, about 180 s left for the weights, "
        "about 300 s left as the last start took 450 s",
    }
    found = _patience_left.progress("graphs", 500.0, done, 20.0, 450.0)
    assert (found["part"], found["seconds_left"]) == (None, None)
    assert found["words"] == "longer than the last start (450 s)"


def test_silence_is_said_before_it_is_a_stall():
    silent = _patience.Silence(45.2, 300.0, compiling="compiling CUDA kernels")
    assert _patience_left.progress("graphs", 90.0, silent=silent)["words"] == (
        "compiling CUDA kernels, no sign of life for 45 s, patience 300 s"
    )
    assert _patience_left.progress("graphs", 90.0, silent=_patience.Silence(12.0, 300.0))["words"] == ""
