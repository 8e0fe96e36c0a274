from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.modules import server_info


def test_server_info_of_an_empty_host(instance_host):
    found = instance_host(server_info)
    assert (found["changed"], found["proof"], found["unit"]["exists"]) == (False, None, False)


def test_a_broken_memory_is_one_sentence(instance_host):
    (instance_host.path / "state" / "main").mkdir(parents=True)
    (instance_host.path / "state" / "main" / "proof.json").write_text("{half")
    found = instance_host(server_info)
    assert found["failed"] is True
    assert "move the file away" in found["msg"]


def test_clients_of_what_does_not_run_are_not_known(instance_host):
    assert instance_host(server_info)["clients"] is None
    found = instance_host(server_info, clients_seconds=0)
    assert (found["clients"], found["clients_refusal"]) == (None, "")
