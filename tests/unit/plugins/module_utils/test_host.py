from __future__ import annotations

import time

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _host

STAT = "7 (py (x) 3) S 1 7 7 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 1 0 {ticks} 1 1\n"


def test_the_age_of_this_process_grows_with_the_clock():
    before, began = _host.process_age_seconds(), time.monotonic()
    time.sleep(0.05)
    grown = _host.process_age_seconds() - before
    assert before > 0
    assert 0.0 < grown <= time.monotonic() - began + 0.001


def test_the_age_by_a_stat_with_a_strange_name(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").write_text(STAT.format(ticks=500))
    monkeypatch.setattr(_host.time, "clock_gettime", lambda clock: 12.0)
    monkeypatch.setattr(_host.os, "sysconf", lambda name: 100)
    assert _host.process_age_seconds(str(tmp_path)) == pytest.approx(6.99)


@pytest.mark.parametrize("text", [None, "", "7 (x) S 1"])
def test_an_unknown_age_is_none_at_all(tmp_path, text):
    (tmp_path / "self").mkdir()
    if text is not None:
        (tmp_path / "self" / "stat").write_text(text)
    assert _host.process_age_seconds(str(tmp_path)) == 0.0


class Module:
    def __init__(self):
        self.no_log_values = set()


@pytest.mark.parametrize(
    ("text", "key", "masked"),
    [("api-key: abcdefgh", "abcdefgh", {"abcdefgh"}), ("admin-api-key: abcdefgh", None, set())],
)
def test_an_empty_key_is_not_taken_out_of_what_is_returned(tmp_path, text, key, masked):
    """Ansible would take an empty text out of everything: no figure would come back as one."""
    (tmp_path / "keys.yaml").write_text(text + "\n")
    module = Module()
    params = {"api_key": None, "api_key_file": str(tmp_path / "keys.yaml"), "host": "h", "port": 1}
    assert _host.address_of(module, params).api_key == key
    assert module.no_log_values == masked
