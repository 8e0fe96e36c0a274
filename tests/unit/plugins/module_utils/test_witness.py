from __future__ import annotations

import json
import subprocess
import time
import types

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _follow,
    _http,
    _ready_run,
    _verdict,
    _witness,
    _witness_look,
    _witness_seats,
    _witness_tool,
)
from ansible_collections.gpufleet.sglang.tests.unit.plugins import played_host

READY_AT = 1000.0
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"

# Eight boards of the 96 GiB class with weights of 75 GiB: what the journal tells of each rank when it is ready, GiB.
JOURNAL_GIB = (5.52, 5.50, 5.51, 5.49, 5.50, 5.48, 5.51, 5.50)
# The same by nvidia-smi, MiB, 60 MiB less on every board: TP5 has 5.48 GiB = 5,612 MiB, so GPU 5 shows 5,552.
SMI_MIB = (5592, 5572, 5582, 5562, 5572, 5552, 5582, 5572)


def startup(gib=JOURNAL_GIB, name="TP%d", **changes):
    ranks = [
        {"rank": name % number, "headroom_gib": free, "pool_tokens": 195011 if number == 0 else None}
        for number, free in enumerate(gib)
    ]
    return dict({"ranks": ranks, "ready_at": READY_AT, "pool_tokens": 195011}, **changes)


def process(pid, rank, mib=91000, ours=True, name="python3"):
    return {"pid": pid, "name": name, "memory_mib": mib, "ours": ours, "rank": rank}


def board(number, free_mib, *processes):
    row = {"board": str(number), "uuid": f"GPU-{number}", "name": NAME, "free_mib": free_mib, "shared": False}
    used = any(one["ours"] for one in processes)
    return dict(row, problem=None, used=used, processes=list(processes))


def look(free=SMI_MIB, **changes):
    boards = [board(number, mib, process(500 + number, f"TP{number}")) for number, mib in enumerate(free)]
    told = {"at": READY_AT + 1.0, "device": None, "has_boards": True, "error": None, "boards": boards}
    told.update(machine_free_mib=400000, **changes)
    return told


def info(dp_ranks=((195011, 5.524),), **layout):
    rows = [{"pool_tokens": tokens, "headroom_gib": gib} for tokens, gib in dp_ranks]
    return {"device": "cuda", "dp_ranks": rows, "layout": dict({"tp_size": 8, "dp_size": 1, "nnodes": 1}, **layout)}


# -- eight boards


def test_eight_boards_that_agree():
    answer = _witness.headroom(startup(), look(), info())
    assert list(answer["boards"]) == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert answer["boards"]["5"] == {
        "rank": "TP5",
        "name": NAME,
        "nvidia_smi_free_mib": 5552,
        "journal_free_mib": 5612,
        "server_info_free_mib": None,
        "meminfo_free_mib": None,
        # The 60 MiB less lie in torch's cache.
        "free_mib": 5612,
        "witness": "nvidia-smi",
    }
    assert (answer["boards"]["0"]["journal_free_mib"], answer["boards"]["0"]["server_info_free_mib"]) == (5652, 5657)
    assert (answer["tightest"], answer["free_gib"], answer["fresh"]) == ("5", 5.48, True)
    assert (answer["missing"], answer["disagreements"]) == ([], [])


@pytest.mark.parametrize(("floor", "verdict"), [(5.48, "holds"), (5.49, "unsafe")])
def test_the_floor_is_compared_with_the_tightest_board(floor, verdict):
    found, sentence = _witness.floor_verdict(_witness.headroom(startup(), look(), info()), floor)
    assert found == verdict
    assert "GPU 5 (TP5)" in sentence
    assert "5.48 GiB" in sentence


@pytest.mark.parametrize(
    ("shown", "foreign_mib", "counted"),
    [
        # Journal: 5,632 MiB. Up to 256 MiB less count as torch's cache ...
        (5632, 0, 5632),
        (5376, 0, 5632),
        (5276, 0, 5532),
        # ... but not what a foreign process took, ...
        (5376, 200, 5432),
        (5376, 900, 5376),
        # ... and what nvidia-smi shows more is there.
        (5900, 0, 5900),
        # Unexplained: more than 838 MiB less.
        (4794, 0, 5050),
        (4793, 0, 4793),
    ],
)
def test_what_torch_cached_since_the_journals_line_is_no_loss(shown, foreign_mib, counted):
    others = [process(4711, None, foreign_mib, ours=False)] if foreign_mib else []
    told = look(boards=[board(0, shown, process(500, ""), *others)])
    answer = _witness.headroom(startup([5.5], "TP%d"), told, None)
    assert answer["boards"]["0"]["free_mib"] == counted


# nvidia-smi may show 6 + 64 + 256 + 512 = 838 MiB less than the journal, and 6 + 64 + 1,024 = 1,094 MiB more.
@pytest.mark.parametrize(
    ("shown", "unexplained"), [(5632 - 838, None), (5632 - 839, "1 MiB"), (5632 + 1094, None), (5632 + 1100, "6 MiB")]
)
def test_a_difference_is_said_when_it_is_more_than_is_explained(shown, unexplained):
    answer = _witness.headroom(startup([5.5]), look(boards=[board(0, shown, process(500, "TP0"))]), None)
    assert len(answer["disagreements"]) == (1 if unexplained else 0)
    if unexplained:
        assert answer["disagreements"][0].startswith("GPU 0 (TP0): nvidia-smi shows")
        assert f"{unexplained} more than is explained" in answer["disagreements"][0]


def test_what_a_foreign_process_holds_explains_a_difference_and_is_named():
    told = look(boards=[board(0, 2632, process(500, "TP0"), process(4711, None, 3000, ours=False, name="train.py"))])
    answer = _witness.headroom(startup([5.5]), told, None)
    assert answer["disagreements"] == []
    assert answer["boards"]["0"]["free_mib"] == 2632
    assert _witness.floor_verdict(answer, 3.0)[0] == "unsafe"
    (notice,) = _witness.notices(told)
    assert "GPU 0: process 4711 (train.py)" in notice
    assert "3,000 MiB" in notice


@pytest.mark.parametrize(
    ("foreign", "named"),
    [
        (process(1, None, 99, ours=False), False),
        (process(1, None, 100, ours=False), True),
        (process(1, None, None, ours=False), True),
        # Not shown by this view of /proc: whose it is cannot be said.
        (process(1, None, 5000, ours=None), False),
    ],
)
def test_which_foreign_processes_are_named(foreign, named):
    assert len(_witness.notices(look(boards=[board(0, 1, process(500, "TP0"), foreign)]))) == named


def test_what_runs_on_boards_of_others_is_not_named():
    told = look(boards=[board(0, 1, process(500, "TP0")), board(1, 1, process(9, None, 50000, ours=False))])
    assert _witness.notices(told) == []
    assert list(_witness.headroom(startup([5.5]), told, None)["boards"]) == ["0"]


def test_server_info_and_journal_print_one_figure():
    answer = _witness.headroom(startup(), look(), info([(195011, 5.6)]))
    (sentence,) = answer["disagreements"]
    assert "server_info shows 5,734 MiB" in sentence
    assert "journal 5,652 MiB" in sentence


# -- who sits where


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler", ""),
        ("sglang::scheduler_TP3", "TP3"),
        ("sglang::scheduler_DP1_PP0_ATTN_CP0_MOE_DP2_TP3_EP3", "DP1 PP0 ATTN_CP0 MOE_DP2 TP3 EP3"),
        ("sglang::detokenizer", None),
        ("python3", None),
        ("", None),
    ],
)
def test_the_rank_in_a_title(title, rank):
    assert _witness_seats.rank_of_title(title) == rank


def test_parts_of_a_rank():
    assert _witness_seats.parts_of("MOE_DP2 ATTN_CP1 TP11") == {"MOE_DP": 2, "ATTN_CP": 1, "TP": 11}
    assert _witness_seats.parts_of(None) == {}


def test_boards_in_another_order_than_the_ranks():
    boards = [board(0, 100, process(501, "TP1")), board(1, 200, process(500, "TP0"))]
    answer = _witness.headroom(startup([0.2, 0.1]), look(boards=boards), None)
    assert (answer["boards"]["0"]["rank"], answer["boards"]["1"]["rank"]) == ("TP1", "TP0")


def test_a_small_context_on_another_board_is_not_the_place_of_a_rank():
    boards = [
        board(0, 100, process(500, "TP0"), process(501, "TP1", 400)),
        board(1, 200, process(501, "TP1")),
    ]
    answer = _witness.headroom(startup([0.1, 0.2]), look(boards=boards), None)
    assert (answer["boards"]["0"]["rank"], answer["boards"]["1"]["rank"]) == ("TP0", "TP1")


def test_titles_that_name_less_than_the_lines_do():
    boards = [board(number, 100, process(500 + number, f"TP{number % 2}")) for number in range(4)]
    ranks = [{"rank": rank, "headroom_gib": 0.1} for rank in ("TP0 PP0", "TP0 PP1", "TP1 PP0", "TP1 PP1")]
    answer = _witness.headroom({"ranks": ranks, "ready_at": READY_AT}, look(boards=boards), None)
    assert [row["rank"] for row in answer["boards"].values()] == ["TP0 PP0", "TP1 PP0", "TP0 PP1", "TP1 PP1"]


@pytest.mark.parametrize(
    ("layout", "boards"),
    [
        ({"tp_size": 2}, ["0", "1"]),
        ({"tp_size": 2, "base_gpu_id": 4}, ["4", "5"]),
        ({"tp_size": 2, "base_gpu_id": 1, "gpu_id_step": 2}, ["1", "3"]),
    ],
)
def test_boards_are_counted_off_where_no_process_is_shown(layout, boards):
    """In a container nvidia-smi lists no process."""
    hidden = [board(number, 5000 + number) for number in range(8)]
    answer = _witness.headroom(startup([5.0, 5.0]), look(boards=hidden), info(**layout))
    assert list(answer["boards"]) == boards
    assert [row["rank"] for row in answer["boards"].values()] == ["TP0", "TP1"]


@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        ({"tp_size": 8}, 8),
        ({"tp_size": 4, "pp_size": 2}, 8),
        ({"tp_size": 2, "dp_size": 4}, 8),
        ({"tp_size": 8, "dp_size": 8, "dp_attention": True}, 8),
        ({"tp_size": 16, "nnodes": 2}, 8),
        ({"tp_size": None}, None),
    ],
)
def test_ranks_on_this_host(layout, ranks):
    assert _witness_seats.local_ranks(info(**layout)) == ranks


def test_pipeline_stages_sit_behind_each_other():
    names = ["PP1 TP1", "PP0 TP1", "PP1 TP0", "PP0 TP0"]
    assert sorted(names, key=_witness_seats.order_of) == ["PP0 TP0", "PP0 TP1", "PP1 TP0", "PP1 TP1"]


# -- missing witnesses


HANG = "nvidia-smi did not answer in time: run it"


def test_without_nvidia_smi_the_journal_tells_every_rank():
    answer = _witness.headroom(startup(), look(boards=[], error=HANG), info())
    assert (answer["tightest"], answer["free_gib"]) == ("TP5", 5.48)
    assert {row["witness"] for row in answer["boards"].values()} == {"journal"}
    assert HANG + "." in answer["missing"]
    assert _witness.floor_verdict(answer, 5.0)[0] == "holds"
    assert _witness.floor_verdict(answer, 5.6)[0] == "unsafe"


def test_a_rank_that_no_witness_tells_is_not_proven():
    lost = startup([5.5] * 7 + [None])
    answer = _witness.headroom(lost, look(boards=[], error=HANG), info())
    verdict, sentence = _witness.floor_verdict(answer, 2.0)
    assert verdict == "failed"
    for words in ("TP7", "2.00 GiB", "did not answer in time", "journal of this start does not tell"):
        assert words in sentence


def test_ranks_that_never_spoke_are_not_proven_either():
    answer = _witness.headroom(startup([5.5] * 3), look(boards=[], error=HANG), info())
    verdict, sentence = _witness.floor_verdict(answer, 2.0)
    assert verdict == "failed"
    assert "rank 7 of 8" in sentence


def test_a_board_under_the_floor_is_unsafe_even_when_another_is_not_told():
    lost = startup([5.5, 1.0, None])
    answer = _witness.headroom(lost, look(boards=[], error=HANG), None)
    assert _witness.floor_verdict(answer, 2.0)[0] == "unsafe"


def test_nvidia_smi_alone_proves_the_floor():
    answer = _witness.headroom({"ranks": [], "ready_at": READY_AT}, look(), None, "status 401")
    assert _witness.floor_verdict(answer, 5.4)[0] == "holds"
    assert "/server_info: status 401." in answer["missing"]


def test_nobody_is_heard():
    answer = _witness.headroom({"ranks": [], "ready_at": None}, None, None, "status 401")
    assert _witness.floor_verdict(answer, 1.0)[0] == "failed"
    assert (answer["device"], answer["tightest"], answer["free_gib"]) == ("cuda", None, None)


def test_a_board_without_figures_is_told_by_the_journal():
    split = dict(board(0, None, process(500, "TP0")), problem="GPU 0 is split by MIG.")
    answer = _witness.headroom(startup([5.5]), look(boards=[split]), None)
    assert (answer["boards"]["0"]["free_mib"], answer["boards"]["0"]["witness"]) == (5632, "journal")
    assert "GPU 0 is split by MIG." in answer["missing"]


@pytest.mark.parametrize("apart_seconds", [61.0, -61.0])
def test_a_clock_that_was_set_makes_nothing_fresh(apart_seconds):
    answer = _witness.headroom(startup(), look(at=READY_AT + apart_seconds), None)
    assert answer["fresh"] is False
    assert "is free now" in answer["missing"][0]


@pytest.mark.parametrize(("at", "taught"), [(READY_AT + 1, 4.938), (READY_AT + 600, 5.5)])
def test_a_plan_learns_the_headroom_that_was_judged(at, taught):
    """4,801 MiB, and 256 MiB in torch's cache, are 4.938 GiB."""
    answer = _witness.headroom(startup([5.5]), look(boards=[board(0, 4801, process(500, "TP0"))], at=at), None)
    ready = {"startup": {"pool_tokens": 1, "headroom_gib": 5.5}, "headroom": answer}
    assert _verdict.measurement(ready, {}, {}, {})["headroom_gib"] == taught


def test_a_plan_does_not_learn_from_a_board_that_served_a_load():
    old = look(boards=[board(0, 4801, process(500, "TP0"))], at=READY_AT + 600)
    ready = {"startup": {"pool_tokens": 1}, "headroom": _witness.headroom(startup([None]), old, None)}
    assert ready["headroom"]["free_gib"] == 4.688
    assert _verdict.measurement(ready, {}, {}, {})["headroom_gib"] is None


# -- a server that is up for long


@pytest.mark.parametrize(
    ("gib", "shown", "verdict"),
    [
        # The load lies in torch's cache by now: the start's own journal decides.
        (5.5, 1000, "holds"),
        (1.5, 5000, "unsafe"),
        # Without it, nvidia-smi proves the floor, or nothing.
        (None, 5000, "holds"),
        (None, 1000, "failed"),
    ],
)
def test_nvidia_smi_long_after_ready_can_only_prove(gib, shown, verdict):
    old = look(boards=[board(0, shown, process(500, "TP0"))], at=READY_AT + 86400.0)
    answer = _witness.headroom(startup([gib]), old, None)
    assert answer["fresh"] is False
    assert answer["disagreements"] == []
    assert _witness.floor_verdict(answer, 2.0)[0] == verdict


# -- the CPU


def cpu_look(**changes):
    return dict({"at": READY_AT + 1, "device": "cpu", "has_boards": False, "error": None, "boards": []}, **changes)


def test_a_server_on_the_cpu_is_judged_by_its_journal():
    answer = _witness.headroom(startup([17.7]), cpu_look(machine_free_mib=17500), {"device": "cpu", "dp_ranks": []})
    assert answer["boards"] == {
        "cpu": {
            "rank": "TP0",
            "name": None,
            "nvidia_smi_free_mib": None,
            "journal_free_mib": 18125,
            "server_info_free_mib": None,
            "meminfo_free_mib": 17500,
            "free_mib": 18125,
            "witness": "journal",
        }
    }
    assert (answer["free_gib"], answer["missing"], answer["disagreements"]) == (17.7, [], [])


def test_a_machine_whose_memory_went_elsewhere_is_said():
    answer = _witness.headroom(startup([17.7]), cpu_look(machine_free_mib=9000), None)
    (sentence,) = answer["disagreements"]
    assert sentence.startswith("cpu (TP0): meminfo shows 9,000 MiB free and journal 18,125 MiB")


def test_an_integrated_gpu_is_judged_by_its_journal():
    shared = dict(board(0, 110000, process(500, "")), name="NVIDIA GB10", shared=True)
    answer = _witness.headroom(startup([100.0]), look(boards=[shared]), None)
    row = answer["boards"]["0"]
    assert (row["nvidia_smi_free_mib"], row["meminfo_free_mib"], row["free_mib"]) == (None, 110000, 102400)


# -- pools


def dp_startup(*rows):
    ranks = [{"rank": rank, "pool_tokens": pool, "kv_tokens": kv, "headroom_gib": 5.0} for rank, pool, kv in rows]
    return {"ranks": ranks, "ready_at": READY_AT}


def test_the_pool_of_each_dp_rank_and_of_all():
    found = _witness.pools(
        dp_startup(("DP0 TP0", 1000, 1000), ("DP0 TP1", None, 1000), ("DP1 TP0", 900, 900), ("DP1 TP1", None, 900)),
        info([(900, 5.0), (1000, 5.0)], tp_size=2, dp_size=2),
    )
    assert found["per_dp_rank"] == {"DP0": 1000, "DP1": 900}
    assert (found["least"], found["least_tokens"], found["total_tokens"], found["dp_size"]) == ("DP1", 900, 1900, 2)
    assert (found["untold"], found["disagreements"]) == ([], [])


def test_with_dp_attention_only_the_first_rank_prints_the_final_line():
    found = _witness.pools(dp_startup(("DP0 TP0", 1000, 1016), ("DP1 TP1", None, 990)), None)
    assert (found["per_dp_rank"], found["total_tokens"]) == ({"DP0": 1000, "DP1": 990}, 1990)


@pytest.mark.parametrize(("ranks", "pool"), [((("DP0 TP0", 1000, 1000), ("DP1 TP1", None, 990)), 990), ((), 1000)])
def test_the_smallest_pool_of_the_dp_ranks_is_the_pool(ranks, pool):
    record = dict(dp_startup(*ranks), pool_tokens=1000)
    assert _witness.with_least_pool(record, _witness.pools(record, None))["pool_tokens"] == pool


def test_pipeline_stages_hold_one_pool():
    found = _witness.pools(dp_startup(("PP0 TP0", 1000, 1000), ("PP1 TP0", 950, 950)), None)
    assert (found["per_dp_rank"], found["total_tokens"]) == ({"DP0": 950}, 950)


def test_a_dp_rank_that_the_journal_lost_is_told_by_server_info():
    told = dp_startup(("DP0 TP0", 1000, 1000))
    found = _witness.pools(told, info([(800, 5.0), (1000, 5.0)], tp_size=1, dp_size=2))
    assert (found["least_tokens"], found["least"], found["total_tokens"], found["untold"]) == (800, None, 1800, [])
    assert "800" in found["disagreements"][0]


def test_a_dp_rank_that_nobody_tells_is_not_proven():
    told = dp_startup(("DP0 TP0", 1000, 1000))
    found = _witness.pools(told, info([], tp_size=1, dp_size=2))
    assert (found["untold"], found["total_tokens"]) == (["DP1"], None)
    judged = _verdict.judge_ready({"pool_tokens": 1000}, None, 900, None, None, found)
    assert judged["verdict"] == "failed"
    assert "DP1" in judged["reason"]
    # Nothing was promised, so nothing has to be proven.
    assert _verdict.judge_ready({"pool_tokens": 1000}, None, None, None, None, found)["verdict"] == "holds"


def test_dp_ranks_of_other_hosts_are_not_asked_for():
    told = dp_startup(("DP0 TP0", 1000, 1000))
    assert _witness.pools(told, info([], tp_size=16, dp_size=2, nnodes=2))["untold"] == []


def test_the_sentence_names_the_short_dp_rank_and_the_total():
    found = _witness.pools(dp_startup(("DP0 TP0", 1000, 1000), ("DP1 TP0", 900, 900)), None)
    judged = _verdict.judge_ready({"pool_tokens": 900}, None, 1000, None, None, found)
    assert judged == {
        "verdict": "short",
        "reason": "The pool holds 900 tokens on DP1 (1,900 in all), 100 short of the target of 1,000.",
    }
    judged = _verdict.judge_ready({"pool_tokens": 900}, None, 900, None, None, found)
    assert judged["reason"] == "The pool holds 900 tokens of the 900 promised on each of 2 DP ranks (1,900 in all)."


# -- asking


GPU_TABLE = (
    f"0, GPU-aaaa-0, {NAME}, 97887, 92000, 5215, 12.0, [N/A]\n1, GPU-aaaa-1, {NAME}, 97887, 91900, 5315, 12.0, [N/A]\n"
)
PROCESS_TABLE = "GPU-aaaa-0, 401, sglang::scheduler_TP0, 91990\nGPU-aaaa-1, 402, sglang::scheduler_TP1, 91890\n"


@pytest.fixture
def host(tmp_path):
    """A /proc with the unit's process 324 and two schedulers, and an nvidia-smi that answers by query."""

    def add(pid, parent, *words, environ=""):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (python3) S {parent} 0 0")
        (folder / "cmdline").write_text("\0".join(words) + "\0")
        (folder / "environ").write_text(environ)

    add(324, 1, "python3", "-m", "sglang.launch_server", environ="HF_TOKEN=hf_secret\0CUDA_VISIBLE_DEVICES=0,1\0")
    add(401, 324, "sglang::scheduler_TP0", "", "")
    add(402, 324, "sglang::scheduler_TP1")
    (tmp_path / "meminfo").write_text("MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("")
    tool.chmod(0o755)
    answers = {"gpu": (0, GPU_TABLE, ""), "compute-apps": (0, PROCESS_TABLE, "")}
    asked = []

    def run(argv, seconds):
        asked.append((argv, seconds))
        answer = answers[argv[1].partition("=")[0].replace("--query-", "")]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask():
        return _witness_look.look(324, _http, str(tmp_path), str(tool), run=run)

    return types.SimpleNamespace(add=add, answers=answers, asked=asked, ask=ask, tool=tool, root=tmp_path)


def test_a_look_knows_boards_ranks_and_owners(host):
    host.add(4711, 1, "python3", "train.py")
    host.answers["compute-apps"] = (0, PROCESS_TABLE + "GPU-aaaa-1, 4711, python3, 700\n", "")
    found = host.ask()
    assert [(row["board"], row["free_mib"], row["used"]) for row in found["boards"]] == [
        ("0", 5215, True),
        ("1", 5315, True),
    ]
    assert [(one["pid"], one["ours"], one["rank"]) for row in found["boards"] for one in row["processes"]] == [
        (401, True, "TP0"),
        (402, True, "TP1"),
        (4711, False, None),
    ]
    assert (found["error"], found["device"], len(host.asked)) == (None, None, 2)
    assert "hf_secret" not in json.dumps(found)
    assert len(_witness.notices(found)) == 1


def test_only_the_boards_that_the_unit_may_see(host):
    (host.root / "324" / "environ").write_text("CUDA_VISIBLE_DEVICES=1\0")
    assert [row["board"] for row in host.ask()["boards"]] == ["1"]


def test_nothing_else_of_the_environment_is_read(host):
    assert _witness_look._environment(324, str(host.root)) == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_processes_that_this_proc_does_not_show(host):
    host.answers["compute-apps"] = (0, "GPU-aaaa-0, 99901, python3, 700\n", "")
    (one,) = host.ask()["boards"][0]["processes"]
    assert (one["ours"], one["rank"]) == (None, None)


def test_an_answer_without_processes_is_still_an_answer(host):
    host.answers["compute-apps"] = subprocess.TimeoutExpired("nvidia-smi", 5)
    found = host.ask()
    assert (found["error"], [row["free_mib"] for row in found["boards"]]) == (None, [5215, 5315])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (subprocess.TimeoutExpired("nvidia-smi", 5), "did not answer in time"),
        (PermissionError("not permitted"), "could not be run"),
        ((9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", ""), "modprobe"),
        ((3, "", "strange"), "status 3 (strange)"),
        ((0, "", ""), "lists no board"),
        ((0, "what is this\n", ""), "columns"),
    ],
)
def test_an_nvidia_smi_that_fails_is_a_missing_witness(host, answer, words):
    host.answers["gpu"] = answer
    found = host.ask()
    assert found["boards"] == []
    assert words in found["error"]
    assert _witness_seats.device_of(found, None) == "cuda"


def test_an_old_driver_is_asked_for_fewer_fields(host):
    short = f"0, GPU-aaaa-0, {NAME}, 97887, 92000, 5215\n"
    answers = [(2, 'Field "compute_cap" is not a valid field to query.\n', ""), (0, short, ""), (0, "", "")]
    boards, error = _witness_look._ask(str(host.tool), lambda argv, seconds: answers.pop(0), 1e9, lambda: 0.0)
    assert (boards[0]["memory_free_mib"], error) == (5215, None)


def test_an_instance_of_mig_is_not_told_by_nvidia_smi(host):
    (host.root / "324" / "environ").write_text("CUDA_VISIBLE_DEVICES=MIG-1234\0")
    assert "MIG" in host.ask()["error"]


@pytest.mark.parametrize("words", [["--device", "cpu"], ["--device=cpu"]])
def test_a_server_on_the_cpu_does_not_ask_nvidia_smi(host, words):
    (host.root / "324" / "cmdline").write_text("\0".join(["python3", *words]))
    found = host.ask()
    assert (found["device"], found["error"], host.asked) == ("cpu", None, [])


@pytest.mark.parametrize(("driver", "missing"), [(True, True), (False, False)])
def test_no_nvidia_smi_is_missing_where_there_is_a_driver(host, driver, missing):
    host.tool.unlink()
    if driver:
        (host.root / "driver" / "nvidia").mkdir(parents=True)
        (host.root / "driver" / "nvidia" / "version").write_text("NVRM")
    found = host.ask()
    assert bool(found["error"]) is missing
    assert _witness_seats.device_of(found, None) == ("cuda" if driver else "cpu")


@pytest.mark.parametrize("script", ["exec sleep 30", "sleep 30; true"])
def test_a_command_that_hangs_is_ended(script):
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        _witness_tool.run_limited(["sh", "-c", script], 0.2)
    assert time.monotonic() - began < 5.0


def test_a_command_is_heard():
    assert _witness_tool.run_limited(["sh", "-c", "echo out; echo err >&2; exit 3"], 10) == (3, "out\n", "err\n")


def test_what_server_info_tells_of_boards():
    body = {
        "device": "cuda",
        "tp_size": 4,
        "dp_size": 2,
        "enable_dp_attention": True,
        "max_total_num_tokens": 1000,
        "internal_states": [
            {"memory_usage": {"token_capacity": 1000, "startup_available": 5.524}},
            {"memory_usage": {"token_capacity": 990, "startup_available": 5.5}},
            {"memory_usage": None},
        ],
    }
    told = _http.startup_of_server_info(body)
    assert told["dp_ranks"] == [
        {"pool_tokens": 1000, "headroom_gib": 5.524},
        {"pool_tokens": 990, "headroom_gib": 5.5},
        {"pool_tokens": None, "headroom_gib": None},
    ]
    assert (told["device"], told["pool_tokens"]) == ("cuda", 990)
    assert told["layout"] == {
        "tp_size": 4,
        "pp_size": None,
        "dp_size": 2,
        "nnodes": None,
        "node_rank": None,
        "base_gpu_id": None,
        "gpu_id_step": None,
        "dp_attention": True,
    }


# -- in motion


class CallAtOnce(_ready_run.Call):
    start = _ready_run.Call.run

    def join(self, timeout=None):
        pass


def wait(look_at_boards, late=0.0, without=(), **settings):
    """The recorded start of a server of one rank, whose journal tells a headroom of 18.5 GiB or so."""
    rows = played_host.records(played_host.START)
    rows = [row for row in rows if not any(text in str(row["MESSAGE"]) for text in without)]
    played = played_host.PlayedHost(rows, late=late, http_from=26.7)
    follower = _follow.Follower(played.run_command, "sgl-cpu.service", None, True)
    waiter = _ready_run.Waiter(
        follower,
        _ready_run.Settings(address=_http.Address("127.0.0.1", 30001), timeout_seconds=120.0, **settings),
        http=played.http,
        clock=played.clock,
        wall=played.clock,
        sleep=played.sleep,
        call=CallAtOnce,
        look_at_boards=lambda *arguments: look_at_boards(played),
    )
    result = waiter.run()
    json.dumps(result)
    return result


def test_a_wait_returns_what_the_witnesses_say():
    asked = []

    def boards(played):
        asked.append(played.now)
        return look(boards=[board(0, 9000, process(500, ""), process(7, None, 800, ours=False))], at=played.now)

    result = wait(boards)
    assert (result["verdict"], result["failure"], len(asked)) == ("holds", None, 1)
    assert (result["headroom"]["tightest"], result["headroom"]["boards"]["0"]["free_mib"]) == ("0", 9000)
    assert len(result["headroom"]["disagreements"]) == 1
    assert "process 7" in result["notices"][0]
    assert result["pools"]["total_tokens"] == 2125713


@pytest.mark.parametrize(("floor", "verdict"), [(8.7, "holds"), (8.8, "unsafe")])
def test_a_wait_compares_the_floor_with_the_board(floor, verdict):
    result = wait(lambda played: look(boards=[board(0, 9000, process(500, ""))], at=played.now), min_headroom_gib=floor)
    assert (result["verdict"], result["failure"]) == (verdict, None)


def test_a_wait_without_any_witness_of_the_board_is_no_evidence():
    lost = ["avail", "Memory pool end", "Capture"]
    result = wait(
        lambda played: look(boards=[], error=HANG, at=played.now),
        without=lost,
        min_headroom_gib=1.0,
        target_tokens=1000,
    )
    assert (result["verdict"], result["failure"]["kind"]) == ("failed", "no_evidence")
    assert (result["failure"]["phase"], result["failure"]["fatal"]) == ("ready", False)
    assert "did not answer in time" in result["failure"]["evidence"]
    assert "LogRateLimitIntervalSec=1us" in result["failure"]["advice"]


def test_a_witness_that_breaks_is_missing_and_nothing_more():
    def broken(played):
        raise RuntimeError("no")

    result = wait(broken)
    assert result["verdict"] == "holds"
    assert "nvidia-smi did not come back in time." in result["headroom"]["missing"]


def test_an_nvidia_smi_that_was_not_heard_is_said(host):
    assert _witness_look.missing(host.ask()) == []
    (said,) = _witness_look.missing(None)
    assert said.startswith("nvidia-smi did not answer in time: ")
    host.answers["gpu"] = subprocess.TimeoutExpired("nvidia-smi", 5)
    assert _witness_look.missing(host.ask()) == [said]


@pytest.mark.parametrize(("hangs", "limit_seconds"), [(False, 5.0), (True, 1.0)])
def test_a_tool_that_hung_before_is_given_a_second(hangs, limit_seconds):
    made = []

    class Call:
        result = error = None

        def __init__(self, function, *arguments):
            made.append(arguments)

        def start(self):
            pass

        def join(self, seconds):
            made.append(seconds)

    asking = _witness_look.Asking(Call, 1, _http, None, looking=lambda *words: None, hangs=hangs)
    asking.heard()
    assert made[0][-1] == limit_seconds
    assert made[2] == pytest.approx(limit_seconds + 0.5, abs=0.1)
    assert made[3] == pytest.approx(5.5, abs=0.1)
