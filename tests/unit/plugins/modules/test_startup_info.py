# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pathlib
import runpy

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _host
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


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_log_is_read(tmp_path, pack):
    log = tmp_path / "sglang.log.1"
    log.write_bytes(pack((DATA / "start_and_ready.jsonl").read_bytes()))
    assert run_module(startup_info, {"file": str(log)})["startup"]["pool_tokens"] == 2125713


def test_text_of_something_else_is_refused_in_one_sentence(tmp_path):
    log = tmp_path / "letter.txt"
    log.write_text("Dear reader,\nnothing of this is about a server.\n")
    result = run_module(startup_info, {"file": str(log)})
    assert result["failed"] is True
    assert result["msg"] == "Expected a log of SGLang, found other text (Dear reader,); correct the option file."


def test_an_invocation_that_is_not_in_the_log_is_refused_with_those_that_are():
    result = run_module(startup_info, {"file": str(DATA / "crash_loop.jsonl"), "invocation_id": "f" * 32})
    assert result["failed"] is True
    assert ids("crash_loop.jsonl")[-1] in result["msg"]


def test_a_unit_is_asked_through_the_host(monkeypatch):
    journal = (DATA / "start_and_ready.jsonl").read_bytes()
    run = played(SHOW.format(ids("start_and_ready.jsonl")[0]), journal)
    monkeypatch.setattr(_host, "runner_of", lambda module: run)
    result = run_module(startup_info, {"unit": "sgl-cpu.service"})
    assert (result["startup"]["state"], result["entries_read"]) == ("ready", 54)


def played(show, journal):
    def run(argv):
        if argv[0] == "systemctl":
            return 0, show, ""
        return 0, "" if "_TRANSPORT=kernel" in argv else journal, ""

    return run


def test_the_options_exclude_each_other():
    assert "mutually exclusive" in run_module(startup_info, {"file": "/x", "unit": "y"})["msg"]
    assert "required" in run_module(startup_info, {})["msg"]
