from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.modules import server_info, server_snapshot


def snapshot(instance_host, **params):
    return instance_host(server_snapshot, run_id="run", files=[str(instance_host.path / "main.env")], **params)


def test_a_snapshot_is_taken_once_a_change(instance_host):
    assert snapshot(instance_host)["changed"] is True
    assert snapshot(instance_host)["changed"] is False


def test_check_mode_takes_none(instance_host):
    assert snapshot(instance_host, _ansible_check_mode=True)["changed"] is True
    assert instance_host(server_info)["open_change"] is None


def test_a_snapshot_is_put_back(instance_host):
    snapshot(instance_host)
    (instance_host.path / "main.env").write_text("new\n")
    would = snapshot(instance_host, state="restored", _ansible_check_mode=True)
    assert (would["changed"], would["changed_files"]) == (True, [str(instance_host.path / "main.env")])
    assert (instance_host.path / "main.env").exists()
    assert snapshot(instance_host, state="restored")["changed"] is True
    assert not (instance_host.path / "main.env").exists()
    assert snapshot(instance_host, state="restored")["changed"] is False


def test_nothing_to_put_back_is_one_sentence(instance_host):
    assert snapshot(instance_host, state="restored")["changed"] is False
    found = snapshot(instance_host, state="restored", backup="previous")
    assert found["failed"] is True
    assert "sglang_server_rollback_to" in found["msg"]


def test_a_second_run_is_refused(instance_host):
    snapshot(instance_host)
    found = instance_host(server_snapshot, run_id="second")
    assert found["failed"] is True
    assert "leased by another run" in found["msg"]


def test_a_run_that_ends_early_holds_the_instance_no_longer(instance_host):
    instance_host(server_snapshot, run_id="run", state="leased")
    assert instance_host(server_info)["lease"]["run_id"] == "run"
    instance_host(server_snapshot, run_id="second", state="released")
    assert instance_host(server_info)["lease"]["run_id"] == "run"
    assert instance_host(server_snapshot, run_id="run", state="released")["changed"] is False
    assert instance_host(server_info)["lease"] is None


def test_who_holds_it_learns_of_a_change_that_a_run_left_open(instance_host):
    assert instance_host(server_snapshot, run_id="run", state="leased")["open_change"] is False
    snapshot(instance_host)
    instance_host(server_snapshot, run_id="run", state="released")
    assert instance_host(server_snapshot, run_id="next", state="leased")["open_change"] is True


def test_a_run_that_goes_on_with_an_open_change_makes_it_its_own(instance_host):
    snapshot(instance_host)
    instance_host(server_snapshot, run_id="run", state="released")
    backup = instance_host(server_info)["open_change"]["backup"]
    assert instance_host(server_snapshot, run_id="later")["changed"] is False
    found = instance_host(server_info)["open_change"]
    assert (found["run_id"], found["backup"]) == ("later", backup)


def away_of(instance_host):
    return instance_host(server_info)["clients_away"]


def test_clients_that_a_run_which_died_sent_away_are_the_next_ones_to_let_back(instance_host):
    assert away_of(instance_host) is None
    instance_host(server_snapshot, run_id="dead", state="away", busy_seconds=600)
    since = away_of(instance_host)["at"]
    assert instance_host(server_info)["lease"]["expires_at"] > since + 600
    instance_host(server_snapshot, run_id="dead", state="released")
    assert away_of(instance_host)["run_id"] == "dead"
    looked = instance_host(server_snapshot, run_id="look", state="leased", _ansible_check_mode=True)
    assert (looked["clients_away"], away_of(instance_host)["run_id"]) == (True, "dead")
    assert instance_host(server_snapshot, run_id="next", state="leased")["clients_away"] is True
    assert away_of(instance_host) == {"run_id": "next", "at": since}
    # The first one was not dead, only slow: those of the second stay away.
    instance_host(server_snapshot, run_id="dead", state="back")
    assert away_of(instance_host)["run_id"] == "next"
    instance_host(server_snapshot, run_id="next", state="back")
    assert away_of(instance_host) is None
    instance_host(server_snapshot, run_id="next", state="released")
    assert instance_host(server_snapshot, run_id="last", state="leased")["clients_away"] is False


def test_who_does_not_hold_the_instance_sends_nobody_away(instance_host):
    instance_host(server_snapshot, run_id="one", state="leased")
    found = instance_host(server_snapshot, run_id="two", state="away")
    assert "leased by" in found["msg"]
    assert away_of(instance_host) is None


def test_check_mode_sends_nobody_away(instance_host):
    instance_host(server_snapshot, run_id="run", state="away", _ansible_check_mode=True)
    assert away_of(instance_host) is None
    instance_host(server_snapshot, run_id="run", state="away")
    instance_host(server_snapshot, run_id="run", state="back", _ansible_check_mode=True)
    assert away_of(instance_host)["run_id"] == "run"
