"""How exposed the three levels of sglang_server_hardening are, by systemd's own measure on each release."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from on_host import FOLDER, put, run

LEVELS = ("none", "safe", "strict")


@pytest.fixture(scope="module")
def units(render):
    """The texts of the three units, as for a host with two boards."""
    return render({level: {"hardening": level, "boards": 2} for level in LEVELS})


@pytest.fixture(scope="module")
def scores(host, units):
    for level, text in units.items():
        put(host, "%s/%s.service" % (FOLDER, level), text)
    command = (
        "for level in %s; do systemd-analyze security --no-pager --offline=true %s/$level.service | tail -n 1; done"
    )
    lines = run(host, command % (" ".join(LEVELS), FOLDER)).stdout.splitlines()
    return {level: Decimal(re.search(r": ([0-9.]+) ", line).group(1)) for level, line in zip(LEVELS, lines)}


def test_each_level_is_less_exposed_than_the_one_before(scores, systemd_version, capsys):
    with capsys.disabled():
        levels = ", ".join("%s %s" % (level, scores[level]) for level in LEVELS)
        print("\nsystemd-analyze security, systemd %d: %s" % (systemd_version, levels))
    assert scores["strict"] < scores["safe"] < scores["none"]
    # Measured: 9.2, 5.4, 2.3 on systemd 252 and 9.0, 5.2, 2.1 on 257.
    assert scores["safe"] <= Decimal("5.6")
    assert scores["strict"] <= Decimal("2.6")


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_board_needs_is_left_open(units, level):
    """No directive hides boards, forbids compiled kernels, or removes the memory of another server of the user."""
    text = units[level]
    directives = set(re.findall(r"(?m)^(\w+)=", text))
    forbidden = {"PrivateDevices", "MemoryDenyWriteExecute", "RemoveIPC", "PrivateIPC", "PrivateUsers", "ProcSubset"}
    assert directives & forbidden == set()
    if level == "safe":
        assert directives & {"DevicePolicy", "DeviceAllow", "ProtectClock", "SystemCallFilter"} == set()
    if level == "strict":
        assert "DeviceAllow=char-nvidia* rwm\n" in text
        assert re.search(r"(?m)^RestrictAddressFamilies=.*\bAF_NETLINK\b", text)
        assert re.search(r"(?m)^SystemCallFilter=.*\bpidfd_getfd\b", text)
    # Under NoNewPrivileges the driver's setuid helper cannot work: then root runs it first.
    assert ("NoNewPrivileges" in directives) is (level != "none")
    assert ("nvidia-modprobe -u -c=0 -c=1'" in text) is (level != "none")
