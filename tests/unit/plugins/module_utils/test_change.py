from __future__ import annotations

import time

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils._change import Instance, Refused
from ansible_collections.gpufleet.sglang.plugins.module_utils._step import values_of_plan
from ansible_collections.gpufleet.sglang.tests.unit.plugins.fake_host import FakeHost

UNIT = "sglang-main.service"
PLAN = {
    "arguments": {"tp-size": 8},
    "environment": {},
    "fraction": 0.93,
    "engine_version": "0.5.23",
    "quantity_keys": {},
}
STEP = {"action": "try", "values": values_of_plan(PLAN, "0.5.23")}
READY = {
    "verdict": "holds",
    "reason": "Holds.",
    "invocation_id": "b" * 32,
    "startup": {"pool_tokens": 200000, "headroom_gib": 5.0},
}
SOAK = {"verdict": "proven", "reason": "Survived.", "least_free_gib": {"0": 3.0}}
LAUNCHER = ["python", "-m", "sglang.launch_server", "--host", "10.0.0.5", "--port", "30001"]
REQUEST = {"target_tokens": 200000}


class World:
    def __init__(self, tmp_path):
        self.host = FakeHost(tmp_path)
        self.unit_file = tmp_path / "sglang-main.service"
        self.env_file = tmp_path / "main.env"
        self.files = [str(self.unit_file), str(self.env_file)]
        self.root = tmp_path

    def instance(self, adopt_unit=None):
        return Instance(
            self.host.run_command,
            "main",
            UNIT,
            str(self.root / "state"),
            adopt_unit,
            str(self.root / "run"),
            str(self.host.proc),
            str(self.root / "wants"),
            [str(self.root / "etc"), str(self.root / "run")],
        )

    def serve(self, pid=100, config_hash=None, invocation="a" * 32, unit=UNIT):
        self.host.units[unit] = {
            "state": "active",
            "enabled": "enabled",
            "pid": pid,
            "invocation": invocation,
            "fragment": str(self.unit_file),
        }
        environ = ["GPUFLEET_SGLANG_CONFIG=%s" % config_hash] if config_hash else []
        self.host.process(pid, LAUNCHER, environ)

    def judge(self, instance, ready=None, soak=None, run_id="run"):
        return instance.judge(
            run_id, 1, STEP, PLAN, ready or READY, SOAK if soak is None else soak, REQUEST, self.files
        )


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_an_empty_host(world):
    found = world.instance().inform(world.files)
    assert (found["proof"], found["open_change"], found["serving"], found["active"]) == (None, None, None, False)


def test_a_first_change_on_an_empty_host_goes_back_to_nothing(world):
    instance = world.instance()
    assert instance.take_snapshot("run", world.files)["kind"] == "empty"
    world.unit_file.write_text("[Unit]\n")
    world.serve(config_hash="candidate")
    manifest = instance.find_backup("change")
    (step,) = instance.plan_back(manifest)
    assert (step["active"], step["stop"], step["exists"]) == (False, True, False)
    assert instance.put_back(manifest) == [str(world.unit_file)]
    assert not world.unit_file.exists()


def test_a_hand_made_unit_is_the_baseline_and_is_started_again(world):
    world.unit_file.write_text("by hand\n")
    world.serve()
    instance = world.instance()
    assert instance.take_snapshot("run", world.files)["kind"] == "baseline"
    world.unit_file.write_text("ours\n")
    world.serve(pid=200, config_hash="candidate", invocation="b" * 32)
    manifest = instance.find_backup("change")
    (step,) = instance.plan_back(manifest)
    assert (step["active"], step["enabled"], step["host"], step["port"]) == (True, True, "10.0.0.5", 30001)
    instance.put_back(manifest)
    assert world.unit_file.read_text() == "by hand\n"


def test_killed_between_files_and_restart_nothing_is_restarted(world):
    world.unit_file.write_text("by hand\n")
    world.serve()
    instance = world.instance()
    instance.take_snapshot("run", world.files)
    world.unit_file.write_text("ours\n")
    (step,) = instance.plan_back(instance.find_backup("change"))
    assert step["stop"] is False


def test_an_adopted_unit_with_another_name_comes_back(world):
    world.unit_file.write_text("by hand\n")
    world.serve(unit="hand.service")
    instance = world.instance(adopt_unit="hand.service")
    assert instance.inform()["serving"] == {"unit": "hand.service", "port": 30001}
    instance.take_snapshot("run", [])
    world.host.units["hand.service"].update(state="inactive", pid=0)
    world.serve(pid=200, config_hash="candidate")
    own, adopted = instance.plan_back(instance.find_backup("change"))
    assert (own["stop"], own["active"]) == (True, False)
    assert (adopted["stop"], adopted["active"]) == (False, True)


def test_a_proven_attempt_stores_its_proof(world):
    world.unit_file.write_text("ours\n")
    instance = world.instance()
    assert world.judge(instance)["verdict"] == "proven"
    proof = instance.store.proof()
    assert (proof["pool_tokens"], proof["soaked"], proof["invocation_id"]) == (200000, True, "b" * 32)
    assert proof["pool_floor_tokens"] == 200000
    world.unit_file.write_text("edited by hand\n")
    assert instance.inform(world.files)["drift"] == [str(world.unit_file)]


def test_a_proof_keeps_the_headroom_that_was_judged_and_the_total_of_the_dp_ranks(world):
    boards = {name: {"rank": "TP%s" % name, "free_mib": 1024, "witness": "nvidia-smi"} for name in ("0", "3")}
    ready = dict(
        READY,
        headroom={
            "boards": boards,
            "tightest": "3",
            "free_gib": 4.75,
            "fresh": True,
            "disagreements": ["They differ."],
        },
        pools={"dp_size": 2, "total_tokens": 400022, "least": "DP1", "server_info": [200000, 200022]},
        notices=["GPU 3: held."],
    )
    instance = world.instance()
    attempt = world.judge(instance, ready)
    assert attempt["headroom"] == {"gib": 4.75, "where": "GPU 3 (TP3)", "witness": "nvidia-smi"}
    assert attempt["notices"] == ["GPU 3: held.", "They differ."]
    assert instance.store.attempts()[0]["pools"] == {"dp_size": 2, "total_tokens": 400022, "least": "DP1"}
    proof = instance.store.proof()
    assert (proof["headroom_gib"], proof["headroom_where"]) == (4.75, "GPU 3 (TP3)")
    assert proof["pools"]["total_tokens"] == 400022
    assert proof["measurement"]["headroom_gib"] == 4.75


def test_where_no_other_witness_was_asked_the_proof_keeps_the_headroom_of_the_journal(world):
    instance = world.instance()
    world.judge(instance)
    assert (instance.store.proof()["headroom_gib"], instance.store.proof()["headroom_where"]) == (5.0, None)


def test_arguments_keep_their_order_so_that_the_unit_is_written_alike(world):
    values = dict(STEP["values"], arguments={"tp-size": 8, "model-path": "/m", "host": "h"})
    instance = world.instance()
    instance.judge("run", 1, dict(STEP, values=values), PLAN, READY, SOAK, REQUEST, world.files)
    assert list(instance.store.proof()["arguments"]) == ["tp-size", "model-path", "host"]


def test_without_a_soak_the_record_says_so(world):
    instance = world.instance()
    assert world.judge(instance, soak={})["verdict"] == "holds"
    assert instance.store.proof()["soaked"] is False


def test_a_short_attempt_is_remembered_and_proves_nothing(world):
    instance = world.instance()
    short = dict(READY, verdict="short", startup={"pool_tokens": 195011})
    assert world.judge(instance, ready=short, soak={})["verdict"] == "short"
    found = instance.inform()
    assert found["proof"] is None
    assert [measured["pool_tokens"] for measured in found["measurements"]] == [195011]


def test_a_change_that_reached_its_proof_needs_only_its_close(world):
    instance = world.instance()
    instance.take_snapshot("run", world.files)
    world.judge(instance)
    world.serve(config_hash=STEP["values"]["config_hash"])
    assert instance.inform()["open_change_is_proven"] is True
    assert instance.close("run", keep=5) is True
    assert instance.inform()["open_change_is_proven"] is False


def test_an_old_proof_does_not_close_a_new_change(world):
    instance = world.instance()
    world.judge(instance, run_id="old")
    instance.take_snapshot("new", world.files)
    world.serve(config_hash=STEP["values"]["config_hash"])
    assert instance.inform()["open_change_is_proven"] is False


def test_going_back_brings_the_old_proof_too(world):
    instance = world.instance()
    world.judge(instance, run_id="old")
    old = instance.store.proof()
    instance.take_snapshot("new", world.files)
    world.judge(instance, run_id="new", ready=dict(READY, invocation_id="c" * 32))
    assert instance.store.proof() != old
    assert instance.put_back(instance.find_backup("change")) == [instance.store.directory + "/proof.json"]
    assert instance.store.proof() == old


def test_two_snapshots_in_one_second_do_not_meet(world):
    instance = world.instance()
    first = instance.take_snapshot("run", world.files)
    second = instance.take_snapshot("run", world.files)
    assert first["name"] < second["name"]
    assert instance.find_backup("previous")["name"] == second["name"]


def test_without_an_open_change_nothing_was_replaced(world):
    assert world.instance().find_backup("change") is None


@pytest.mark.parametrize("wanted", ["previous", "20200101T000000Z"])
def test_no_such_backup_is_one_sentence(world, wanted):
    with pytest.raises(Refused, match="sglang_server_rollback_to"):
        world.instance().find_backup(wanted)


def test_a_second_run_is_refused_with_the_name_of_the_first(world):
    world.instance().take_lease("a", "ann")
    with pytest.raises(Refused, match="ann"):
        world.instance().take_lease("b", "bob")


def test_no_key_reaches_the_attempts(world):
    instance = world.instance()
    ready = dict(
        READY, verdict="failed", failure={"kind": "unknown", "evidence": "server_args=ServerArgs(api_key='canary-key')"}
    )
    attempt = world.judge(instance, ready=ready, soak={})
    assert "canary-key" not in str(attempt)


def test_previous_is_the_newest_backup_that_was_something_else(world):
    instance = world.instance()
    assert instance.inform()["previous"] is None
    first = instance.take_snapshot("a", world.files)["name"]
    world.serve(config_hash="proven")
    assert instance.inform()["previous"] == first
    # A change that ended where it began leaves a backup that is no way back to anything else.
    second = instance.take_snapshot("b", world.files)["name"]
    assert instance.inform()["previous"] == first
    # A file that is another one now makes it one, whatever the hash of the configuration says: a key is in none.
    world.env_file.write_text("changed\n")
    assert instance.inform()["previous"] == second


def test_a_unit_that_goes_leaves_no_link_by_which_it_would_start_at_boot(world):
    instance = world.instance()
    instance.take_snapshot("run", world.files)
    (world.root / "wants").mkdir()
    link = world.root / "wants" / UNIT
    link.symlink_to("/nowhere")
    instance.put_back(instance.find_backup("change"))
    assert not link.is_symlink()


def test_the_first_baseline_is_never_pruned(world):
    world.unit_file.write_text("by hand\n")
    world.serve()
    instance = world.instance()
    names = [instance.take_snapshot("run", world.files)["name"] for dummy in range(3)]
    instance.close("run", keep=1)
    assert [backup["name"] for backup in instance.inform()["backups"]] == [names[0], names[2]]


def test_a_proof_that_does_not_run_is_no_proof_to_go_back_to(world):
    instance = world.instance()
    world.judge(instance)
    world.serve(config_hash="something else")
    assert instance.take_snapshot("run", world.files)["kind"] == "baseline"


def test_a_proven_configuration_that_runs_again_is_measured_as_it_ran(world):
    instance = world.instance()
    plan = dict(PLAN, fraction=0.99, predicted_tokens=999)
    attempt = instance.judge("run", 1, STEP, plan, READY, SOAK, REQUEST, world.files)
    assert attempt["measurement"]["fraction"] == 0.93
    assert attempt["predicted"]["predicted_tokens"] is None


def test_the_values_for_an_unchanged_second_start_are_not_masked(world):
    step = {"values": {"environment": {"HF_TOKEN": "canary-token"}, "config_hash": "x"}}
    instance = world.instance()
    attempt = instance.judge("run", 1, step, PLAN, dict(READY, verdict="failed"), {}, REQUEST, world.files)
    assert attempt["values"] == step["values"]
    assert "canary-token" not in str(instance.store.attempts())


ROTATION = dict(STEP, **{"class": "restart_ready"})


def test_a_start_that_changed_nothing_in_memory_keeps_the_load_it_survived(world):
    instance = world.instance()
    world.judge(instance)
    ready = dict(READY, invocation_id="c" * 32)
    attempt = instance.judge("run", 1, ROTATION, PLAN, ready, {}, REQUEST, world.files)
    proof = instance.store.proof()
    assert attempt["verdict"] == "proven"
    assert (proof["soaked"], proof["invocation_id"], proof["soaked_invocation_id"]) == (True, "c" * 32, "b" * 32)
    assert proof["least_free_gib"] == {"0": 3.0}


def test_without_a_load_there_is_none_to_keep(world):
    instance = world.instance()
    world.judge(instance, soak={})
    assert instance.judge("run", 1, ROTATION, PLAN, READY, {}, REQUEST, world.files)["verdict"] == "holds"


def test_files_that_need_no_restart_are_remembered(world):
    world.unit_file.write_text("proven\n")
    instance = world.instance()
    world.judge(instance)
    world.serve(config_hash=STEP["values"]["config_hash"], invocation="b" * 32)
    world.unit_file.write_text("another limit\n")
    assert instance.inform(world.files)["drift"] == [str(world.unit_file)]
    step = {"pending": ["Service.LimitNOFILE"]}
    assert instance.apply("later", step, REQUEST, world.files) == ["Service.LimitNOFILE"]
    found = instance.inform(world.files)
    assert (found["drift"], found["pending"]) == ([], ["Service.LimitNOFILE"])
    # The next start has them.
    world.host.units[UNIT]["invocation"] = "d" * 32
    assert instance.inform(world.files)["pending"] == []


def test_nothing_is_applied_without_a_proof(world):
    with pytest.raises(Refused, match="deploy it first"):
        world.instance().apply("run", {}, REQUEST, world.files)


def test_a_drop_in_made_by_hand_is_drift_and_comes_back_with_a_backup(world):
    instance = world.instance()
    world.judge(instance)
    folder = world.root / "etc" / (UNIT + ".d")
    folder.mkdir(parents=True)
    (folder / "a.conf").write_text("[Service]\nNice=5\n")
    (folder / "10-gpufleet-candidate.conf").write_text("[Service]\nRestart=no\n")
    found = instance.inform(world.files)
    assert found["drift"] == found["drop_ins"] == [str(folder / "a.conf")]
    instance.take_snapshot("run", world.files)
    (folder / "a.conf").unlink()
    instance.put_back(instance.find_backup("change"))
    assert (folder / "a.conf").read_text() == "[Service]\nNice=5\n"


def test_a_key_that_was_rotated_needs_a_restart_on_the_way_back(world):
    """The configuration's hash holds no key: the process with the new one must not stay beside the old file."""
    world.env_file.write_text("api-key: old\n")
    world.serve(config_hash="same")
    instance = world.instance()
    instance.take_snapshot("run", world.files)
    world.env_file.write_text("api-key: new\n")
    world.host.units[UNIT]["invocation"] = "c" * 32
    (step,) = instance.plan_back(instance.find_backup("change"))
    assert step["stop"] is True


CLIENTS = [{"address": "10.0.0.9", "connections": 2}]
HOLDS = dict(READY, invocation_id="b" * 32)


def unsoaked(world):
    world.unit_file.write_text("ours\n")
    instance = world.instance()
    assert world.judge(instance, soak={})["verdict"] == "holds"
    return instance


def test_without_a_load_a_record_is_stored_that_proves_nothing(world):
    proof = unsoaked(world).store.proof()
    assert (proof["soaked"], proof["soaked_invocation_id"], proof["pool_tokens"]) == (False, None, 200000)


def test_a_load_on_what_runs_renews_the_record_and_leaves_what_was_declared(world):
    instance = unsoaked(world)
    before = instance.store.proof()
    attempt = instance.measure("later", HOLDS, SOAK, CLIENTS, {"driver_version": "580.95.05"})
    proof = instance.store.proof()
    assert (attempt["verdict"], attempt["soak"]["shared"], attempt["clients"]) == ("proven", True, CLIENTS)
    assert "10.0.0.9 (2 connections)" in attempt["notices"][-1]
    assert (proof["soaked"], proof["shared"], proof["least_free_gib"]) == (True, True, {"0": 3.0})
    assert proof["host"] == {"driver_version": "580.95.05"}
    kept = ("request_digests", "request_hash", "files", "config_hash", "arguments", "target_tokens")
    assert {name: proof[name] for name in kept} == {name: before[name] for name in kept}
    assert attempt["measurement"]["keys"] == PLAN["quantity_keys"]


@pytest.mark.parametrize(
    ("soak", "soaked"),
    [
        ({"verdict": "unsafe", "reason": "Under the floor."}, False),
        ({"verdict": "short", "reason": "A request was given up."}, False),
        ({"verdict": "failed", "failure": {"kind": "scheduler_died", "fatal": True}}, False),
        ({"verdict": "failed", "failure": {"kind": "no_evidence", "fatal": False}}, True),
        # Requests were refused, and the server lives.
        ({"verdict": "failed", "failure": {"kind": "unknown", "fatal": False}}, True),
    ],
)
def test_a_proof_that_does_not_survive_a_load_counts_no_longer(world, soak, soaked):
    world.unit_file.write_text("ours\n")
    instance = world.instance()
    world.judge(instance)
    assert instance.measure("later", HOLDS, soak)["verdict"] == soak["verdict"]
    assert instance.store.proof()["soaked"] is soaked


def test_a_start_that_holds_less_leaves_the_word_of_the_load(world):
    world.unit_file.write_text("ours\n")
    instance = world.instance()
    world.judge(instance)
    assert instance.measure("later", dict(READY, verdict="short"), {})["verdict"] == "short"
    assert instance.store.proof()["soaked"] is True


def test_what_is_not_remembered_cannot_be_measured(world):
    with pytest.raises(Refused, match="deploy it first"):
        world.instance().measure("run", HOLDS, SOAK)


def test_a_proof_keeps_the_floors_that_its_load_was_held_against(world):
    world.unit_file.write_text("ours\n")
    instance = world.instance()
    plan = dict(PLAN, min_headroom_gib=2.0, min_least_free_gib=1.0)
    instance.judge("run", 1, STEP, plan, READY, SOAK, REQUEST, world.files, CLIENTS, {"gpus": ["H200"]})
    proof = instance.store.proof()
    assert (proof["min_headroom_gib"], proof["min_least_free_gib"]) == (2.0, 1.0)
    assert (proof["shared"], proof["host"]) == (True, {"gpus": ["H200"]})


def test_a_host_that_was_restarted_behind_the_proof_has_only_to_start_it(world):
    instance = world.instance()
    instance.take_snapshot("run", world.files)
    world.judge(instance)
    assert instance.inform()["open_change_is_proven"] is True
    # Something else that runs was started by somebody.
    world.serve(config_hash="something else")
    assert instance.inform()["open_change_is_proven"] is False


def test_a_way_back_that_is_interrupted_leaves_nothing_that_counts_as_proven(world, monkeypatch):
    instance = world.instance()
    instance.take_snapshot("run", world.files)
    world.judge(instance)
    world.unit_file.write_text("candidate\n")

    def full(path):
        raise OSError(28, "No space left", path)

    monkeypatch.setattr("os.unlink", full)
    with pytest.raises(OSError, match="No space left"):
        instance.put_back(instance.find_backup("change"))
    monkeypatch.undo()
    instance.put_back(instance.find_backup("change"))
    assert instance.inform()["open_change_is_proven"] is False
    assert not world.unit_file.exists()


def test_a_run_whose_lease_was_taken_over_writes_nothing_more(world):
    instance = world.instance()
    instance.take_lease("a", "ann")
    instance.check_lease("a")
    with pytest.raises(Refused, match="ann"):
        instance.check_lease("b")
    instance.store.release_lease("a")
    instance.check_lease("b")


def test_a_lease_lasts_as_long_as_the_run_is_busy(world):
    instance = world.instance()
    instance.take_lease("a", "ann", busy_seconds=1000)
    assert instance.store.lease(now=time.time() + 1100) is not None
    assert instance.store.lease(now=time.time() + 1200) is None


def test_the_last_proof_is_another_one_than_what_runs(world):
    world.unit_file.write_text("by hand\n")
    world.serve()
    instance = world.instance()
    hand = instance.take_snapshot("a", world.files)["name"]
    world.judge(instance)
    world.unit_file.write_text("proven\n")
    world.serve(pid=200, config_hash=STEP["values"]["config_hash"])
    assert instance.inform()["last_proof"] is None
    proven = instance.take_snapshot("b", world.files)["name"]
    assert instance.inform()["last_proof"] is None
    world.unit_file.write_text("newer\n")
    world.serve(pid=300, config_hash="newer")
    found = instance.inform()
    assert (found["last_proof"], found["previous"]) == (proven, proven)
    assert [line.split(",")[:2] for line in found["ways_back"]] == [[proven, " proven"], [hand, " not proven"]]


def test_a_backup_tells_that_its_engine_is_gone(world):
    world.unit_file.write_text("[Service]\nExecStart=/nowhere/0.5.10/bin/python -m x\n")
    world.serve()
    instance = world.instance()
    instance.take_snapshot("a", world.files)
    found = instance.inform()
    assert found["backups"][0]["gone"] == ["/nowhere/0.5.10/bin/python"]
    assert "no longer on the host: /nowhere/0.5.10/bin/python" in found["ways_back"][0]


def test_what_other_units_read_too_is_in_no_way_back(world):
    """Site-wide drop-ins, a template and a package's unit are kept to be read: a way back does not overwrite them."""
    site = world.root / "etc" / "service.d" / "limits.conf"
    template = world.root / "etc" / "sglang@.service"
    site.parent.mkdir(parents=True)
    site.write_text("[Service]\nLimitNOFILE=1\n")
    template.write_text("[Service]\nExecStart=/nowhere/python\n")
    world.serve(unit="sglang@k26.service")
    world.host.units["sglang@k26.service"].update(fragment=str(template), drop_ins=[str(site)])
    instance = world.instance(adopt_unit="sglang@k26.service")
    adopted = instance.inform()["adopted"]
    assert (adopted["own_files"], "which other units are made from" in adopted["name_refusal"]) == ([], True)
    instance.take_snapshot("run", world.files)
    site.write_text("[Service]\nLimitNOFILE=2\n")
    template.write_text("[Service]\nExecStart=/nowhere/other\n")
    world.host.units["sglang@k26.service"]["invocation"] = "e" * 32
    manifest = instance.find_backup("change")
    assert [step["stop"] for step in instance.plan_back(manifest)] == [False, False]
    assert instance.put_back(manifest) == []
    assert (site.read_text()[-2:], template.read_text()[-6:]) == ("2\n", "other\n")
    assert instance.inform()["backups"][0]["gone"] == ["/nowhere/python"]


def test_a_server_in_a_container_is_told_as_what_is_not_adopted(world):
    world.serve(unit="hand.service")
    assert world.instance(adopt_unit="hand.service").inform()["adopted"]["refusal"] == ""
    (world.host.proc / "100" / "cmdline").write_bytes(b"docker\0run\0image\0python\0-m\0sglang.launch_server\0")
    refusal = world.instance(adopt_unit="hand.service").inform()["adopted"]["refusal"]
    assert refusal.startswith("Expected hand.service to run SGLang's launcher as a process of this host")


def test_what_no_load_proved_is_no_last_proof(world):
    """A record of sglang_server_soak: none, or of one that a later load took the word back from, only holds."""
    instance = unsoaked(world)
    world.serve(config_hash=STEP["values"]["config_hash"])
    held = instance.take_snapshot("a", world.files)
    assert (held["kind"], held["soaked"]) == ("proof", False)
    world.unit_file.write_text("newer\n")
    found = instance.inform()
    assert (found["last_proof"], found["previous"]) == (None, held["name"])
    assert "holds, proven by no load" in found["ways_back"][0]


def test_what_a_killed_run_left_of_a_backup_goes_with_the_next_close(world):
    instance = world.instance()
    name = instance.take_snapshot("run", world.files)["name"]
    half = world.root / "state" / "main" / "backup" / "20200101T000000Z"
    half.mkdir()
    (half / "00-main.secret.yaml").write_text("api-key: canary\n")
    assert instance.close("run", keep=5) is True
    assert [path.name for path in half.parent.iterdir()] == [name]
    half.mkdir()
    assert instance.close("run", keep=5) is False
    assert not half.exists()
