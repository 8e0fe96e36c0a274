# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import pathlib
import runpy

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _explain
from ansible_collections.gpufleet.sglang.plugins.modules import startup_info

DATA = pathlib.Path(__file__).resolve().parents[3] / "data" / "journal"
run_module = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[1] / "run_module.py"))["run_module"]
SHOW = (
    "Id=sgl-bad.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\nInvocationID={0}\nMainPID=0\nNRestarts=3\n"
    "Result=signal\nExecMainStatus=9\nExecMainCode=2\n"
)


def ids(name):
    lines = (DATA / name).read_text().splitlines()
    return list(
        dict.fromkeys(
            record["_SYSTEMD_INVOCATION_ID"]
            for record in map(json.loads, lines)
            if record.get("_SYSTEMD_INVOCATION_ID")
        )
    )


def test_a_json_log_is_explained():
    result = run_module(startup_info, {"file": str(DATA / "start_and_ready.jsonl")})
    assert result["changed"] is False
    assert result["failure"] is None
    assert result["startup"]["state"] == "ready"
    assert result["startup"]["pool_tokens"] == 2125713
    assert result["entries_read"] == 54
    assert result["earlier"] == []
    assert result["invocation_id"] == "d5d0fb51bfec4da5981535bb37e14781"


def test_a_crash_loop_is_seen():
    result = run_module(startup_info, {"file": str(DATA / "crash_loop.jsonl")})
    assert result["startup"]["state"] == "loading"
    assert [end["kind"] for end in result["earlier"]] == ["toolchain_missing", "toolchain_missing"]


def test_one_invocation_of_a_log_is_chosen():
    first = ids("crash_loop.jsonl")[0]
    result = run_module(startup_info, {"file": str(DATA / "crash_loop.jsonl"), "invocation_id": first})
    assert result["invocation_id"] == first
    assert result["failure"]["kind"] == "toolchain_missing"
    assert result["failure"]["fatal"] is True


def test_a_plain_log_is_explained_and_no_key_leaks(tmp_path):
    log = tmp_path / "sglang.log"
    log.write_text(
        "[2026-09-01 10:00:00] server_args=ServerArgs(model_path='/m', api_key='sk-TRIAL-0000', "
        "mem_fraction_static=0.9)\n"
        "[2026-09-01 10:00:01 TP0] Load weight begin. avail mem=79.10 GB\n"
        "[2026-09-01 10:00:02 TP0] Load weight end. type=X, avail mem=18.90 GB, mem usage=60.20 GB.\n"
        "[2026-09-01 10:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. (key sk-TRIAL-0000, "
        "caller's w0rd)\n"
    )
    result = run_module(
        startup_info,
        {
            "file": str(log),
            "target_tokens": 65536,
            "cell_bytes": 98304,
            "secrets": ["w0rd"],
        },
    )
    assert result["failure"]["kind"] == "kv_pool_too_small"
    assert result["failure"]["direction"] == "raise"
    assert result["failure"]["figures"]["smallest_fraction"] == pytest.approx(0.8369)
    assert result["masked"] is True
    assert result["invocation_id"] is None
    assert result["startup"]["mem_fraction_static"] == 0.9
    told = json.dumps({name: value for name, value in result.items() if name != "invocation"})
    assert "sk-TRIAL-0000" not in told
    assert "w0rd" not in told.replace(json.dumps(result.get("invocation", "")), "")


@pytest.mark.parametrize("content", [None, ""])
def test_a_log_that_is_not_there_is_refused_in_one_sentence(tmp_path, content):
    log = tmp_path / "sglang.log"
    if content is not None:
        log.write_text(content)
    result = run_module(startup_info, {"file": str(log)})
    assert result["failed"] is True
    assert str(log) in result["msg"]
    assert "correct the option file" in result["msg"]


def host(show, journal, kernel="", rc=0, err=""):
    """A host that answers systemctl and journalctl from texts."""
    asked = []

    def run(argv):
        asked.append(argv)
        if argv[0] == "systemctl":
            return rc, show, err
        if "--dmesg" in argv:
            return 0, kernel, ""
        return (0, journal, "") if journal else (1, "", "No journal files were found.\n")

    run.asked = asked
    return run


def test_a_unit_is_read_with_its_last_invocation_and_the_kernel():
    first = ids("crash_loop.jsonl")[0]
    journal = "\n".join(line for line in (DATA / "crash_loop.jsonl").read_text().splitlines() if first in line)
    xid = json.dumps(
        {
            "MESSAGE": "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",
            "_TRANSPORT": "kernel",
            "__REALTIME_TIMESTAMP": "1795972152000000",
        }
    )
    run = host(SHOW.format(first), journal, xid)
    entries, state = _explain.read_unit(run, "sgl-bad.service")
    assert state.n_restarts == 3
    assert ["_SYSTEMD_INVOCATION_ID=" + first, "+", "INVOCATION_ID=" + first] == run.asked[1][-3:]
    times = [entry.realtime_seconds for entry in entries]
    assert times == sorted(times)
    assert _explain.explain(entries, unit=state)["failure"]["kind"] == "gpu_lost"
    entries, state = _explain.read_unit(host(SHOW.format(first), journal), "sgl-bad.service")
    assert _explain.explain(entries, unit=state)["failure"]["kind"] == "toolchain_missing"


def test_a_unit_that_was_unloaded_is_found_by_its_newest_entry():
    journal = (DATA / "start_and_ready.jsonl").read_text()
    run = host(SHOW.format(""), journal)
    entries, state = _explain.read_unit(run, "sgl-cpu.service")
    assert state is None
    assert "--lines=1" in run.asked[1]
    assert len(entries) == 54


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (host("", "", rc=127), "needs a host running systemd"),
        (
            host("", "", rc=1, err="System has not been booted with systemd as init system"),
            "needs a host running systemd",
        ),
        (host(SHOW.format("a"), ""), "keeps no journal"),
        (lambda argv: (0, SHOW.format("a") if argv[0] == "systemctl" else "", ""), "found none"),
    ],
)
def test_a_host_that_cannot_answer_is_refused_in_one_sentence(run, words):
    with pytest.raises(_explain.Unreadable, match=words):
        _explain.read_unit(run, "sgl.service")


def test_a_very_large_log_is_read_from_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(_explain, "MAX_FILE_BYTES", 100)
    log = tmp_path / "sglang.log"
    log.write_text("first line\n" + "filler line\n" * 100 + "last line\n")
    data = _explain.read_file(str(log))
    assert data.startswith(b"first line\n")
    assert data.endswith(b"\nlast line\n")
    assert len(data) <= 200


def test_the_options_exclude_each_other():
    assert "mutually exclusive" in run_module(startup_info, {"file": "/x", "unit": "y"})["msg"]
    assert "required" in run_module(startup_info, {})["msg"]
