from __future__ import annotations

import os
import threading

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _proof


@pytest.fixture
def store(tmp_path):
    return _proof.Store(str(tmp_path / "state"), "main", str(tmp_path / "run"))


def test_an_empty_store_remembers_nothing(store):
    assert (store.proof(), store.attempts(), store.change(), store.backups(), store.lease()) == (
        None,
        [],
        None,
        [],
        None,
    )


def test_a_proof_is_read_back_and_readable_by_root_alone(store):
    store.write_proof({"pool_tokens": 200000})
    assert store.proof() == {"pool_tokens": 200000}
    assert os.stat(os.path.join(store.directory, "proof.json")).st_mode & 0o777 == 0o600


def test_a_proof_can_be_taken_away(store):
    store.write_proof({"pool_tokens": 1})
    store.write_proof(None)
    store.write_proof(None)
    assert store.proof() is None


def test_attempts_keep_their_order_and_survive_a_half_line(store):
    for number in (1, 2, 3):
        store.append_attempt({"number": number})
    with open(os.path.join(store.directory, "attempts.jsonl"), "a", encoding="utf-8") as stream:
        stream.write('{"number": 4, "ver')
    assert [attempt["number"] for attempt in store.attempts()] == [1, 2, 3]
    assert [attempt["number"] for attempt in store.attempts(most=3)] == [2, 3]


def test_a_broken_proof_is_named_with_the_way_out(store):
    os.makedirs(store.directory)
    with open(os.path.join(store.directory, "proof.json"), "w", encoding="utf-8") as stream:
        stream.write("{half")
    with pytest.raises(_proof.Unreadable, match="move the file away"):
        store.proof()


def test_a_write_that_fails_leaves_the_old_file(store):
    store.write_proof({"pool_tokens": 1})
    with pytest.raises(TypeError):
        store.write_proof({"pool_tokens": object()})
    assert store.proof() == {"pool_tokens": 1}
    assert [name for name in os.listdir(store.directory) if name.startswith(".new-")] == []


def test_a_change_is_open_until_it_is_closed(store):
    store.open_change({"run_id": "a"})
    assert store.change() == {"run_id": "a"}
    assert store.close_change() is True
    assert store.close_change() is False


def test_a_lease_keeps_a_second_run_away_and_expires(store):
    assert store.take_lease("a", "ann") is None
    assert store.take_lease("a", "ann") is None
    assert store.take_lease("b", "bob")["who"] == "ann"
    assert store.lease(now=_proof.time.time() + _proof.LEASE_SECONDS + 1) is None
    store.release_lease("b")
    assert store.take_lease("b", "bob") is not None
    store.release_lease("a")
    assert store.take_lease("b", "bob") is None


def test_a_run_that_goes_on_keeps_its_lease_and_no_other(store, tmp_path):
    run_dir = str(tmp_path / "run")
    _proof.renew_lease({"instance": "main", "run_id": "a"}, 0, run_dir)
    assert store.lease() is None
    store.take_lease("a", "ann", seconds=1)
    _proof.renew_lease({"instance": "main", "run_id": "b"}, 1000, run_dir)
    _proof.renew_lease(None, 1000, run_dir)
    assert store.lease()["expires_at"] < _proof.time.time() + 2
    _proof.renew_lease({"instance": "main", "run_id": "a"}, 1000, run_dir)
    assert store.lease()["expires_at"] > _proof.time.time() + 1000


def test_the_sentence_for_a_second_run_tells_who_and_the_way_out(store):
    store.take_lease("a", "ann on box")
    sentence = _proof.lease_refusal("main", store.take_lease("b", "bob"))
    assert "ann on box" in sentence
    assert "/run/sglang/main.lease" in sentence


def test_old_backups_go_and_protected_ones_stay(store):
    for name in ("1", "2", "3", "4"):
        _proof.write_json(os.path.join(store.backup_directory, name, "manifest.json"), {"name": name})
    assert store.prune_backups(1, protected=("1",)) == ["2", "3"]
    assert [manifest["name"] for manifest in store.backups()] == ["1", "4"]


def test_an_attempt_behind_half_a_line_is_not_lost_with_it(store):
    store.append_attempt({"number": 1})
    with open(os.path.join(store.directory, "attempts.jsonl"), "a", encoding="utf-8") as stream:
        stream.write('{"number": 2, "ver')
    store.append_attempt({"number": 3})
    store.append_attempt({"number": 4})
    assert [attempt["number"] for attempt in store.attempts()] == [1, 3, 4]
    with open(os.path.join(store.directory, "attempts.jsonl"), encoding="utf-8") as stream:
        assert len(stream.read().splitlines()) == 4


def test_a_run_that_was_busy_for_too_long_takes_its_lease_up_again_where_nobody_took_it(store, tmp_path):
    run_dir = str(tmp_path / "run")
    store.take_lease("a", "ann", seconds=-1)
    assert store.lease() is None
    _proof.renew_lease({"instance": "main", "run_id": "a"}, 0, run_dir)
    assert store.lease()["who"] == "ann"
    store.take_lease("a", "ann", seconds=-1)
    store.take_lease("b", "bob")
    _proof.renew_lease({"instance": "main", "run_id": "a"}, 0, run_dir)
    assert store.lease()["who"] == "bob"


def test_a_change_can_be_taken_over(store):
    store.own_change("b")
    assert store.change() is None
    store.open_change({"run_id": "a", "backup": "x"})
    store.own_change("b")
    assert store.change() == {"run_id": "b", "backup": "x"}


def take_together(folder, name, start, refused):
    """Take the lease when all others do too, and note who was found to hold it."""
    store = _proof.Store(str(folder / "state"), "main", str(folder / "run"))
    start.wait()
    refused.append(store.take_lease(name, name))


def test_of_runs_that_find_the_lease_free_in_one_moment_one_takes_it(store, tmp_path):
    for turn in range(40):
        start, refused = threading.Barrier(4), []
        # One that expired is as good as none.
        store.take_lease("dead", "dead", seconds=-1)
        names = ["%d-%d" % (turn, number) for number in range(4)]
        threads = [threading.Thread(target=take_together, args=(tmp_path, name, start, refused)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winner = store.lease()["run_id"]
        assert sorted("" if held is None else held["run_id"] for held in refused) == ["", winner, winner, winner]
        store.release_lease(winner)
        assert store.lease() is None


def attempt(at, death_gib=None, keys="a", phase="wave", **measured):
    measurement = dict(measured, keys={"weights": keys}) if measured else None
    death = {"reserve_needed_gib": death_gib, "at": at, "keys": {"activation": keys}, "phase": phase}
    return {"at": at, "measurement": measurement, "death": death if death_gib else None}


def needed_of(store):
    return [death["reserve_needed_gib"] for death in store.taught("deaths")]


def test_a_death_is_remembered_however_many_loads_came_behind_it(store):
    store.append_attempt(attempt(1, 6.5))
    store.append_attempt(attempt(2, pool_tokens=7, least_free_gib=3.0))
    for at in range(3, 303):
        store.append_attempt(attempt(at, pool_tokens=at, least_free_gib=None))
    assert needed_of(store) == [6.5]
    told = store.taught("measurements")
    # Of an older one a figure that no newer one has counts.
    assert (told[0]["least_free_gib"], len(told)) == (3.0, 51)
    assert (told[1]["pool_tokens"], told[-1]["pool_tokens"]) == (253, 302)
    assert len(store.attempts()) == 50
    with open(os.path.join(store.directory, "attempts.jsonl"), encoding="utf-8") as stream:
        assert len(stream.read().splitlines()) <= 200


def test_of_old_deaths_of_one_kind_the_newest_and_the_one_that_needed_most_are_kept():
    deaths = [attempt(1, 5.0), attempt(2, 9.0), attempt(3, 7.0), attempt(4, 6.0), attempt(5, 1.0, keys="b")]
    deaths += [attempt(6, 2.0, phase="graphs")]
    later = [attempt(at) for at in range(7, 10)]
    kept = _proof.worth_keeping(deaths + later, newest=3)
    assert [one["at"] for one in kept] == [2, 4, 5, 6, 7, 8, 9]
    # What was forgotten is no reason to keep an attempt.
    assert [one["at"] for one in _proof.worth_keeping(deaths + later, 3, {"deaths": 4})] == [5, 6, 7, 8, 9]


def test_of_too_many_old_attempts_deaths_stay_first(monkeypatch):
    monkeypatch.setattr(_proof, "MOST_TEACHING", 2)
    old = [attempt(1, 5.0), attempt(2, pool_tokens=1, keys="b"), attempt(3, pool_tokens=1, keys="c")]
    assert [one["at"] for one in _proof.worth_keeping([*old, attempt(4)], newest=1)] == [1, 3, 4]


def test_an_attempt_is_remembered_where_the_file_cannot_be_cut(store, monkeypatch):
    for name in ("MOST_ATTEMPTS", "MOST_TEACHING", "CUT_BEHIND"):
        monkeypatch.setattr(_proof, name, 1)
    for number in range(3):
        store.append_attempt({"number": number})

    def full(*dummy, **more):
        raise OSError(28, "No space left")

    monkeypatch.setattr(_proof.tempfile, "mkstemp", full)
    store.append_attempt({"number": 3})
    monkeypatch.undo()
    assert [one["number"] for one in store.attempts()] == [0, 1, 2, 3]
