"""Where a key of the server can be found on a host, and where it cannot."""

from __future__ import annotations

import re

import pytest
from on_host import run

# Both keys of the scenario. Written so that no command line, which sudo and Ansible log, holds one.
KEY = "canary-(old|new)-[0-9a-f]{8}"
UNIT = "sglang-main.service"
LEAST_VERSION_THAT_FILTERS = 253

# The file that the server reads, and root's copies of earlier ones.
ALLOWED = ("/etc/sglang/main.secret.yaml", "/var/lib/sglang/main/backup/")
SEARCHED = ("/etc", "/home", "/opt/sglang", "/root", "/run", "/srv", "/tmp", "/usr/local", "/var")


def test_no_file_has_a_key_but_the_servers_own(host):
    # The journal's files are asked below, by the line.
    search = "grep -rlaE --exclude-dir=journal --exclude-dir=engines '%s' %s 2>/dev/null"
    found = run(host, search % (KEY, " ".join(SEARCHED))).stdout.splitlines()
    assert [path for path in found if not path.startswith(ALLOWED)] == []
    assert "/etc/sglang/main.secret.yaml" in found


def test_the_copies_are_roots_alone(host):
    with host.sudo():
        names = host.check_output("ls /var/lib/sglang/main/backup").split()
        for name in names:
            folder = host.file("/var/lib/sglang/main/backup/" + name)
            assert (folder.mode, folder.user) == (0o700, "root")
        own = host.file("/etc/sglang/main.secret.yaml")
        assert (own.mode, own.user) == (0o400, "sglang")


@pytest.mark.parametrize(
    "command",
    [
        "ps -eo args",
        "systemctl show %s" % UNIT,
        "systemctl cat %s" % UNIT,
        "systemctl status --no-pager --lines=0 %s" % UNIT,
        "cat /proc/$(systemctl show --property=MainPID --value %s)/environ" % UNIT,
    ],
)
def test_nothing_that_lists_processes_or_units_tells_a_key(host, command):
    listing = run(host, command).stdout
    assert listing
    assert not re.search(KEY, listing)


def test_the_journal_tells_no_key_where_systemd_can_keep_a_line_out(host, systemd_version, capsys):
    lines = run(host, "journalctl --no-pager --all -o cat | grep -aE '%s'" % KEY).stdout.splitlines()
    with capsys.disabled():
        print("\nsystemd %d: %d lines of the journal tell a key" % (systemd_version, len(lines)))
    if systemd_version >= LEAST_VERSION_THAT_FILTERS:
        assert lines == []
    else:
        assert lines
        assert [line for line in lines if "server_args=" not in line] == []


def test_the_server_itself_wants_the_key(host):
    """Or everything above would search for a key that nobody uses."""
    program = (
        "import re, urllib.request, urllib.error\n"
        "key = re.search('canary-[a-z0-9-]+', open('/etc/sglang/main.secret.yaml').read()).group(0)\n"
        "def ask(key):\n"
        "    request = urllib.request.Request('http://127.0.0.1:30000/v1/models')\n"
        "    key and request.add_header('Authorization', 'Bearer ' + key)\n"
        "    try:\n"
        "        return urllib.request.urlopen(request, timeout=10).status\n"
        "    except urllib.error.HTTPError as error:\n"
        "        return error.code\n"
        "print(ask(''), ask(key))"
    )
    with host.sudo():
        assert host.check_output("python3 -c %s", program) == "401 200"
