# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import json
import pathlib

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _explain, _explain_file, _follow

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "journal"
LOOP = (DATA / "crash_loop.jsonl").read_text().splitlines()
GOOD = (DATA / "start_and_ready.jsonl").read_text()
SHOW = (
    "Id=sgl-bad.service\nLoadState={1}\nActiveState=failed\nSubState=failed\nInvocationID={0}\nMainPID=0\nNRestarts=3\n"
    "Result=signal\nExecMainStatus=9\nExecMainCode=2\n"
)
RUNS = "LoadState=loaded\nActiveState=active\nSubState=running\nInvocationID=i1\nMainPID=42\n"
BOOT = "b" * 32


def invocation_of(line):
    return json.loads(line).get("_SYSTEMD_INVOCATION_ID")


FIRST = next(filter(None, map(invocation_of, LOOP)))
JOURNAL = "\n".join(line for line in LOOP if FIRST in line)


def host(show, journal, kernel="", empty=(1, "", "No journal files were found.\n"), systemctl=(0, "")):
    """A host that answers systemctl and journalctl from texts; ``journal`` may be a function of the arguments."""
    asked = []

    def run(argv):
        asked.append(argv)
        if argv[0] == "systemctl":
            return systemctl[0], show, systemctl[1]
        if "_TRANSPORT=kernel" in argv:
            return 0, kernel, ""
        if "--system" in argv:
            return empty
        return 0, journal(argv) if callable(journal) else journal, ""

    run.asked = asked
    return run


def row(number, message, **fields):
    base = {
        "__CURSOR": f"s=aa;i={number:x};b={BOOT};m={number:x};t=0;x=0",
        "__REALTIME_TIMESTAMP": str((1_790_000_000 + number) * 1_000_000),
        "__MONOTONIC_TIMESTAMP": str(number * 1_000_000),
        "_TRANSPORT": "stdout",
        "_PID": "42",
        "_SYSTEMD_INVOCATION_ID": "i1",
        "MESSAGE": message,
    }
    return json.dumps(dict(base, **fields))


def test_a_unit_is_read_with_its_last_invocation():
    run = host(SHOW.format(FIRST, "loaded"), JOURNAL)
    entries, state = _explain.read_unit(run, "sgl-bad.service")
    assert state.n_restarts == 3
    assert "_SYSTEMD_INVOCATION_ID=" + FIRST in run.asked[1]
    assert _explain.explain(entries, unit=state)["failure"]["kind"] == "toolchain_missing"


def test_the_kernels_lines_are_put_where_they_belong_by_the_clock_that_no_step_disturbs():
    """The wall clock went back by a day between the start and the loss of the board."""
    lines = [
        row(1, "[2026-11-29 17:08:30 TP0] Load weight begin. avail mem=90.00 GB"),
        row(5, "[2026-11-28 17:08:40 TP0] Scheduler hit an exception: Traceback (most recent call last):"),
        row(6, "RuntimeError: CUDA error: unspecified launch failure"),
    ]
    xid = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."
    kernel = [
        row(0, "before the start", _TRANSPORT="kernel"),
        row(3, xid, _TRANSPORT="kernel", __REALTIME_TIMESTAMP=str(1_789_900_000 * 1_000_000)),
        row(9, "NVRM: later", _TRANSPORT="kernel"),
    ]
    run = host(RUNS, "\n".join(lines), "\n".join(kernel))
    entries, state = _explain.read_unit(run, "u.service")
    assert [entry.monotonic_seconds for entry in entries] == [1.0, 3.0, 5.0, 6.0, 9.0]
    assert [word for word in run.asked[-1] if word.startswith("_BOOT_ID=")] == ["_BOOT_ID=" + BOOT]
    assert _explain.explain(entries, unit=state)["failure"]["kind"] == "gpu_lost"


def test_a_unit_that_was_unloaded_is_found_by_its_newest_entry():
    run = host(SHOW.format("", "not-found"), GOOD)
    entries, state = _explain.read_unit(run, "sgl-cpu.service")
    assert state is None
    assert "--lines=1" in run.asked[1]
    assert len(entries) == 54


def test_a_named_invocation_is_read_without_the_state_of_another():
    entries, state = _explain.read_unit(host(SHOW.format("other", "loaded"), JOURNAL), "sgl-bad.service", FIRST)
    assert state is None
    assert entries


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (host("", "", systemctl=(127, "")), "needs a host running systemd"),
        (
            host("", "", systemctl=(1, "System has not been booted with systemd as init system")),
            "needs a host running systemd",
        ),
        (host(SHOW.format("a", "loaded"), ""), "keeps no journal"),
        (host(SHOW.format("a", "loaded"), "", empty=(0, "", "")), "keeps no journal"),
        (host(SHOW.format("a", "loaded"), "", empty=(0, '{"MESSAGE":"x"}', "")), "nothing of this start of sgl"),
        (
            host(SHOW.format("a", "loaded"), "", empty=(1, "", "No files were opened due to insufficient permissions")),
            "found none: Reading the journal was refused; use become",
        ),
        (host(SHOW.format("", "not-found"), ""), "found none of this name; correct the option unit"),
    ],
)
def test_a_host_that_cannot_answer_is_refused_in_one_sentence(run, words):
    with pytest.raises(_explain_file.Unreadable, match=words):
        _explain.read_unit(run, "sgl.service")


def answering(lines):
    """A journalctl that knows --lines, --cursor and --grep (for a death)."""

    def journal(argv):
        options = dict(word.split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        rows = lines
        if "--grep" in options:
            rows = [line for line in rows if "Traceback" in line or "sigquit" in line]
        if "--cursor" in options:
            at = next(index for index, line in enumerate(rows) if options["--cursor"] in line)
            rows = rows[at:]
        return "\n".join(rows[-int(options["--lines"]) :] if "--lines" in options else rows)

    return journal


def long_log(steady):
    """A death in the middle of a log; the launcher lives on and is asked for its health, or serves on."""
    texts = ["[2026-11-29 17:08:42] The server is fired up and ready to roll!"]
    texts += ["[2026-11-29 17:09:00] INFO:     10.0.0.1:1 - \"GET /health HTTP/1.1\" 200 OK"] * 3000
    texts += [
        "[2026-11-29 18:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB.",
    ]
    texts += [steady] * 5000
    return [row(number, text) for number, text in enumerate(texts, 1)]


def test_a_death_in_the_middle_of_a_log_of_weeks_is_found():
    """The launcher lives on behind its dead rank, as engines without a watchdog do, and says so for hours."""
    lines = long_log('[2026-11-29 19:00:00] INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable')
    run = host(RUNS, answering(lines))
    entries, state = _explain.read_unit(run, "u.service")
    failure = _explain.explain(entries, unit=state)["failure"]
    assert failure["ranks"] == ["TP1"]
    assert failure["kind"].startswith("oom_")
    assert [entry.monotonic_seconds for entry in entries] == sorted(entry.monotonic_seconds for entry in entries)
    assert len(entries) < 5200


def test_a_server_that_serves_is_not_searched():
    lines = long_log("[2026-11-29 19:00:00 TP0] Decode batch, #running-req: 1")
    run = host(RUNS, answering(lines))
    _explain.read_unit(run, "u.service")
    assert not [argv for argv in run.asked if any(word.startswith("--grep") for word in argv)]


def test_several_starts_of_a_plain_log_are_told():
    start = (
        "[2026-05-31 10:15:07] server_args=ServerArgs()\r\n"
        "[2026-05-31 10:15:08 TP0] Load weight begin. avail mem=70.00 GB\r\n"
    )
    dead = (
        "[2026-05-31 10:15:09 TP0] Scheduler hit an exception: Traceback (most recent call last):\r\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\r\n"
    )
    ready = "[2026-05-31 10:16:09] The server is fired up and ready to roll!\r\n"
    told = _explain.explain(start + dead + start + ready + start)
    assert [(end["state"], end["kind"], end["invocation_id"]) for end in told["earlier"]] == [
        ("loading", "oom_weights", None),
        ("ready", None, None),
    ]
    assert (told["startup"]["state"], told["startup"]["phase"], told["failure"]) == ("loading", "weights", None)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("[2026-05-31 10:15:07 TP0] something new\n", True),
        ("/usr/bin/python3: No module named sglang\n", True),
        ("systemd[1]: sglang-main.service: Main process exited, code=exited, status=1/FAILURE\n", True),
        ("hello\n", False),
        ("\x00\x01\x02", False),
    ],
)
def test_a_log_of_sglang_is_told_from_other_text(text, known):
    if known:
        assert _explain.explain(text)["entries_read"] == 1
        return
    with pytest.raises(_explain_file.Unreadable, match="Expected a log of SGLang"):
        _explain.explain(text)


def test_no_secret_stands_in_a_refusal():
    with pytest.raises(_explain_file.Unreadable) as error:
        _explain.explain("my key is w0rd-and-more\n", secrets=["w0rd-and-more"])
    assert "w0rd" not in str(error.value)


# -- files


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(_explain_file, "MAX_FILE_BYTES", 100)


@pytest.mark.parametrize("lines", [0, 5, 9, 12, 15, 100, 1000])
@pytest.mark.parametrize("pack", [None, gzip.compress])
def test_a_very_large_log_is_read_from_both_ends(tmp_path, small_parts, lines, pack):
    log = tmp_path / "sglang.log"
    text = b"first line\n" + b"filler line\n" * lines + b"last line\n"
    log.write_bytes(pack(text) if pack else text)
    data = _explain_file.read_file(str(log))
    if len(text) <= 200:
        assert data == text
    assert data.startswith(b"first line\n")
    assert data.endswith(b"\nlast line\n")
    assert len(data) <= 200
    assert set(data.split(b"\n")) <= {b"first line", b"filler line", b"last line", b""}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_files_of_windows_are_read(tmp_path, encoding):
    log = tmp_path / "sglang.log"
    log.write_bytes("[2026-05-31 10:15:07] Ä\r\n".encode(encoding))
    assert _explain_file.read_file(str(log)) == "[2026-05-31 10:15:07] Ä\r\n".encode()


def test_what_can_be_unpacked_of_a_damaged_file_is_read(tmp_path):
    whole = gzip.compress(b"".join(b"line %d\n" % number for number in range(200000)))
    log = tmp_path / "sglang.log.gz"
    log.write_bytes(whole[: len(whole) // 2])
    data = _explain_file.read_file(str(log))
    assert data.startswith(b"line 0\n")
    assert len(data) > 2**19
    log.write_bytes(whole[:12])
    with pytest.raises(_explain_file.Unreadable, match="correct the option file"):
        _explain_file.read_file(str(log))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x28\xb5\x2f\xfd rest", "unpack it with zstd"),
        (b"LPKSHHRH rest", "journalctl --output=json --file"),
        (b"PK\x03\x04 rest", "unpack it"),
        (b"\n \r\n\0", "an empty file"),
        (b"", "an empty file"),
    ],
)
def test_what_is_no_log_is_refused_with_the_way_out(tmp_path, content, words):
    log = tmp_path / "sglang.log"
    log.write_bytes(content)
    with pytest.raises(_explain_file.Unreadable, match=words):
        _explain_file.read_file(str(log))


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(_explain_file.Unreadable, match="correct the option file"):
            _explain_file.read_file(str(path))


def test_as_many_entries_are_kept_as_the_follower_does():
    assert _explain.KERNEL_ENTRIES <= _follow.LAST_ENTRIES


SERVED = (
    "[2026-05-31 10:10:01] server_args=ServerArgs(model_path='/m')\n"
    "[2026-05-31 10:10:02 TP0] Init torch distributed begin.\n"
    "[2026-05-31 10:12:07 TP0] max_total_num_tokens=218000, max_running_requests=48, context_len=262144\n"
    "[2026-05-31 10:15:07] The server is fired up and ready to roll!\n"
)
USAGE = "usage: launch_server.py [-h]\nlaunch_server.py: error: unrecognized arguments: --cuda-graph-max-bs 16\n"


@pytest.mark.parametrize(
    "end",
    [
        "[2026-05-31 11:00:00] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n",
        "[2026-05-31 11:00:00] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...\n",
    ],
)
def test_a_start_behind_the_end_of_another_is_the_last_one(end):
    explained = _explain.explain((SERVED + end + USAGE).encode())
    assert (explained["failure"]["kind"], explained["failure"]["phase"]) == ("bad_args", "process")
    assert explained["startup"]["pool_tokens"] is None
    assert [start["state"] for start in explained["earlier"]] == ["ready"]
    # The second start of a log that lacks its arguments, and one that speaks twice of its ranks.
    again = SERVED.partition("\n")[2]
    assert _explain.explain((SERVED + end + again).encode())["failure"] is None
    assert len(_explain.explain((SERVED + again).encode())["earlier"]) == 0


@pytest.mark.parametrize("prefix", ["[default0]:", "[1,0]<stderr>:"])
def test_the_lines_of_launchers_are_read(prefix):
    text = "".join(prefix + line + "\n" for line in SERVED.splitlines())
    assert _explain.explain(text.encode())["startup"]["state"] == "ready"
    rows = [row(number, line) for number, line in enumerate(text.splitlines(), 1)]
    assert _explain.explain("\n".join(rows).encode())["startup"]["pool_tokens"] == 218000


def test_a_long_log_is_walked_once(monkeypatch):
    walked = []
    real = _explain._failures.Case
    monkeypatch.setattr(_explain._failures, "Case", lambda *given: walked.append(1) or real(*given))
    _explain.explain(SERVED.encode())
    assert len(walked) == 1
    monkeypatch.undo()
    assert not hasattr(_explain, "_startup"), "the walk reads the start-up too"
