# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt and dnf are told, and what their answers say: _driver_managers. The answers are real, cut to a few lines."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_managers

# apt 2.6.1, apt-get -s install nvidia-smi=535.261.03-1 ... over 535.309.01
APT = """\
Reading package lists...
The following packages will be DOWNGRADED:
  libnvidia-ml1 nvidia-smi
Remv nvidia-kernel-dkms [535.309.01-0+deb12u1]
Inst libnvidia-ml1 [535.309.01-0+deb12u1] (535.261.03-1 Debian:12.12/oldstable [amd64])
Inst nvidia-smi [535.309.01-0+deb12u1] (535.261.03-1 Debian:12.12/oldstable [amd64])
Inst nvidia-open-kernel-dkms (535.261.03-1 Debian:12.12/oldstable [amd64])
Inst libcuda1:i386 (535.261.03-1 Debian:12.12/oldstable [i386])
Conf libnvidia-ml1 (535.261.03-1 Debian:12.12/oldstable [amd64])
"""
# dnf 4.14.0, dnf --assumeno install
DNF = """\
Dependencies resolved.
================================================================================
 Package                   Arch     Version                Repository      Size
================================================================================
Installing:
 nvlsm                     noarch   3:2025.06.11-1.el9     gpufleet-nvidia 6 k
Upgrading:
 libnvidia-ml              noarch   3:580.105.08-1.el9     gpufleet-nvidia 6 k
Removing:
 kmod-nvidia-open-dkms     noarch   3:580.95.05-1.el9      @gpufleet       7

Transaction Summary
================================================================================
Operation aborted.
"""


def test_one_transaction():
    argv = _driver_managers.apt_argv(
        [("libcuda1", "580.95.05-1"), ("linux-headers-1", None)], ["nvidia-kernel-dkms"], 60
    )
    assert argv[0] == "apt-get"
    assert argv[-4:] == ["install", "libcuda1=580.95.05-1", "linux-headers-1", "nvidia-kernel-dkms-"]
    assert "DPkg::Lock::Timeout=60" in argv
    assert "--allow-downgrades" in argv


def test_what_apt_would_do():
    assert _driver_managers.apt_changes(APT) == [
        {"name": "nvidia-kernel-dkms", "from": "535.309.01-0+deb12u1", "to": None},
        {"name": "libnvidia-ml1", "from": "535.309.01-0+deb12u1", "to": "535.261.03-1"},
        {"name": "nvidia-smi", "from": "535.309.01-0+deb12u1", "to": "535.261.03-1"},
        {"name": "nvidia-open-kernel-dkms", "from": None, "to": "535.261.03-1"},
        {"name": "libcuda1", "from": None, "to": "535.261.03-1"},
    ]


def test_what_dnf_would_do():
    here = {"libnvidia-ml": "3:580.95.05-1.el9", "kmod-nvidia-open-dkms": "3:580.95.05-1.el9"}
    assert _driver_managers.dnf_changes(DNF, here) == [
        {"name": "nvlsm", "from": None, "to": "3:2025.06.11-1.el9"},
        {"name": "libnvidia-ml", "from": "3:580.95.05-1.el9", "to": "3:580.105.08-1.el9"},
        {"name": "kmod-nvidia-open-dkms", "from": "3:580.95.05-1.el9", "to": None},
    ]


def test_what_another_package_replaces_and_what_is_of_another_architecture_leaves_too():
    """dnf 4 prints what is obsoleted below the row of what obsoletes it (dnf/cli/output.py, list_transaction)."""
    text = """\
Installing:
 nvidia-fabricmanager   x86_64   3:580.95.05-1.el9   gpufleet-nvidia   8 M
     replacing  nvidia-fabric-manager.x86_64 3:570.195.03-1.el9
     replacing  some.stranger.x86_64 1.0-1.el9
Removing:
 libfoo                 i686     1.0-1               @baseos           1 M
"""
    here = {"nvidia-fabric-manager": "3:570.195.03-1.el9", "libfoo": "0:1.0-1"}
    assert _driver_managers.dnf_changes(text, here) == [
        {"name": "nvidia-fabricmanager", "from": None, "to": "3:580.95.05-1.el9"},
        {"name": "nvidia-fabric-manager", "from": "3:570.195.03-1.el9", "to": None},
        {"name": "some.stranger", "from": "1.0-1.el9", "to": None},
        {"name": "libfoo", "from": "0:1.0-1", "to": None},
    ]


def test_headers_of_another_kernel_come_beside_those_that_are_there():
    text = "Installing:\n kernel-devel   x86_64   5.14.0-570.12.1.el9_6   gpufleet-nvidia   21 M\n"
    assert _driver_managers.dnf_changes(text, {"kernel-devel": "0:5.14.0-503.el9"}) == [
        {"name": "kernel-devel", "from": None, "to": "0:5.14.0-570.12.1.el9_6"}
    ]
    assert "--setopt=installonly_limit=0" in _driver_managers.DNF


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242 (unattended-upgr)",
            "held by unattended-upgr (process 4242)",
        ),
        (
            "W: GPG error: file:/srv/repository  InRelease: The following signatures couldn't be verified because the"
            " public key is not available: NO_PUBKEY 55049F54065D99DB",
            "one signed by 55049F54065D99DB",
        ),
        ("E: The repository 'file:/srv/repository  InRelease' is not signed.", "a signed repository"),
        (
            "E: Failed to fetch https://mirror/nvidia-smi_535.261.03-1_amd64.deb  404  Not Found",
            "the file https://mirror/nvidia-smi_535.261.03-1_amd64.deb",
        ),
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "dpkg --configure -a"),
        (
            "Error! Bad return status for module build on kernel: 6.1.0-40-amd64 (x86_64)",
            "DKMS failed for 6.1.0-40-amd64",
        ),
        (
            "Error: \n Problem: conflicting requests\n  - nothing provides dkms needed by kmod-nvidia-open-dkms",
            "nothing provides dkms",
        ),
        (
            "Error: \n Problem: conflicting requests\n  - nothing provides dkms needed by kmod-nvidia-open-dkms",
            "dnf install epel-release",
        ),
        ("Error: Cache-only enabled but no cache for 'epel'", "none of epel: run dnf makecache"),
        (
            "metadata already locked by 2037\n  The application with PID 2037 is: python3\n    Memory :  49 M RSS",
            "held by python3 (process 2037)",
        ),
        ("Error: RPMDB already locked by 4242", "held by another process"),
        (
            "W: GPG error: https://unrelated.example stable InRelease: The following signatures couldn't be verified"
            " because the public key is not available: NO_PUBKEY 1234ABCD",
            "index of https://unrelated.example signed by a key that this host trusts for it, found one signed by"
            " 1234ABCD",
        ),
        (
            "Warning: OpenPGP signature verification failed: https://apt.vulns.xyz stable InRelease: Sub-process"
            " /usr/bin/sqv returned an error code (1), error message is: Missing key"
            " 33EBB8A8E1C5653645B1232A45A650E2638C536D, which is needed to verify signature.\n"
            "Error: The repository 'https://apt.vulns.xyz stable InRelease' is not signed.",
            "of https://apt.vulns.xyz signed by a key that this host trusts for it, found one signed by"
            " 33EBB8A8E1C5653645",
        ),
        (
            "Warning: OpenPGP signature verification failed: http://a.example/x ./ InRelease: Sub-process /usr/bin/sqv"
            " returned an error code (1), error message is: Signing key on BF2ADE6B is not bound:  No binding"
            " signature",
            "that this host accepts, found Signing key on BF2ADE6B is not bound: No binding signature:",
        ),
        ("E: Failed to fetch https://h/InRelease  407  Proxy Authentication Required [IP: 10.0.0.1 3128]", "(407)"),
        (
            " - Curl error (56): Failure when receiving data from the peer for https://h/repodata/repomd.xml [Received"
            " HTTP"
            " code 407 from proxy after CONNECT]",
            "(407)",
        ),
        (
            "E: Failed to fetch http://no-such-host.invalid/x/./InRelease  Could not resolve 'no-such-host.invalid'\nE:"
            " Some index files failed to download.",
            "an answer of http://no-such-host.invalid/x/./InRelease, found Could not resolve 'no-such-host.invalid':"
            " see",
        ),
        (
            "Error: Failed to fetch http://h/InRelease  Could not connect to h:80 (10.0.0.1), connection timed out",
            "found Could not connect to h:80 (10.0.0.1), connection timed out: see",
        ),
        ("E: Failed to fetch https://h/a.deb  Hash Sum mismatch\n   Hashes of expected file:", "found another file"),
        (
            " - Curl error (6): Couldn't resolve host name for http://base.svc/repodata/repomd.xml [Could not resolve]",
            "an answer of http://base.svc/repodata/repomd.xml, found Couldn't resolve host name (curl 6)",
        ),
        ("  - Status code: 404 for https://h/x.xml (IP: 10.0.0.1)", "the file https://h/x.xml, found none"),
        (
            "E: Failed to fetch file:/srv/a.deb  File not found - /srv/a.deb (2: No such file)",
            "file:/srv/a.deb, found none",
        ),
        (
            "E: Release file for http://h/InRelease is not valid yet (invalid for another 3h 2min 1s). Updates for"
            " this",
            "found that of http://h/InRelease not valid yet (invalid for another 3h 2min 1s)",
        ),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "too little in /var/cache/apt/archives/:"),
        ("Disk Requirements:\n   At least 20MB more space needed on the / filesystem.", "20MB too little on /:"),
        (
            "E: Unable to correct problems, you have held broken packages.\n\nThe following packages have unmet"
            " dependencies:\n nvidia-y : Depends: libz-none (>= 2) but it is not installable\n            Depends:"
            " somelib (>= 5) but it is not going to be installed\nrest",
            "found nvidia-y : Depends: libz-none (>= 2) but it is not installable Depends: somelib (>= 5) but it is not"
            " going to be installed: bring",
        ),
        (
            "Errors were encountered while processing:\n nvidia-persistenced\nE: Sub-process /usr/bin/dpkg returned an"
            " error"
            " code (1)",
            "dpkg could not do it for nvidia-persistenced: see",
        ),
        (
            "Error! Bad return status for module build on kernel: 6.1.0-40-amd64 (x86_64)\nErrors were encountered"
            " while"
            " processing:\n nvidia-kernel-open-dkms\n",
            "DKMS failed for 6.1.0-40-amd64",
        ),
        ("something new", "status 100: something new."),
        ("", "no output"),
    ],
)
def test_why_it_failed_in_one_sentence(text, said):
    sentence = _driver_managers.failure(text, 100)
    assert said in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


def test_no_answer_in_time_is_said():
    assert "none in time" in _driver_managers.failure("", 124)


@pytest.mark.parametrize(
    ("text", "rc", "shell", "failed"),
    [
        ("Error: Operation aborted.", 0, True, False),
        ("Operation aborted.", 1, False, False),
        ("Complete!", 0, True, False),
        ("No match for argument: nvlsm\nComplete!", 0, True, True),
        ("Error: RPMDB already locked by 4242\nComplete!", 0, True, True),
        (" Problem: package a requires b", 0, True, True),
        ("Error: Unable to find a match: nvlsm", 1, False, True),
    ],
)
def test_whether_a_transaction_of_dnf_failed(text, rc, shell, failed):
    """dnf 4.14.0: its shell ends with 0 whatever happened."""
    assert _driver_managers.dnf_failed(text, rc, shell) is failed


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("file:///srv/repository/", "file:/srv/repository"),
        ("file:/srv/repository", "file:/srv/repository"),
        ("https://user:pa%40ss@mirror.example.com/debian12/", "https://mirror.example.com/debian12"),
        ("https://mirror.example.com/a@b", "https://mirror.example.com/a@b"),
    ],
)
def test_an_address_as_apt_prints_it(url, printed):
    """apt-cache madison of apt 2.6.1."""
    assert _driver_managers.printed_address(url) == printed
