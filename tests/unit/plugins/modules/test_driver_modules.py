# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""driver_info, driver_packages and driver_repository as tasks run them, on a host that is files and played commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _driver_host,
    _driver_kernel,
    _driver_managers,
    _driver_repository,
    _driver_transaction,
    _gpu_host,
)
from ansible_collections.gpufleet.sglang.plugins.modules import driver_info, driver_packages, driver_repository
from ansible_collections.gpufleet.sglang.tests.unit.plugins.run_module import run_module

DATA = Path(__file__).resolve().parents[3] / "data" / "driver"
KEY, FINGERPRINT = (DATA / "key.asc").read_text(), "4681A34F096AC279D257DF27A28EA8BA09EE7F62"
DEBIAN = 'ID=debian\nVERSION_ID="12"\n'
OLD = {"libcuda1": "580.95.05-1", "nvidia-kernel-open-dkms": "580.95.05-1"}


class Host:
    """A host with apt: packages, holds, and every command that was run."""

    def __init__(self, root):
        self.root, self.packages, self.holds, self.argvs = root, {}, [], []
        self.simulation, self.answers = "", {}
        self.next_kernel = None
        self.along = {}  # what comes with each installation
        self.kernels_with_module = []
        self.states = {}  # of dpkg, where they are not "ii "

    def run(self, _module, argv, seconds=None):
        self.argvs.append(list(argv))
        words = " ".join(argv)
        for part, answer in self.answers.items():
            if part in words:
                return answer
        if argv[0] == "dpkg-query":
            return 0, "".join(
                f"{self.states.get(name, 'ii ')}|{name}|{version}\n" for name, version in self.packages.items()
            ), ""
        if argv[:2] == ["apt-mark", "showhold"]:
            return 0, "\n".join(self.holds), ""
        if argv[:2] == ["apt-mark", "hold"]:
            self.holds += argv[2:]
        elif argv[:2] == ["apt-mark", "unhold"]:
            self.holds = [name for name in self.holds if name not in argv[2:]]
        elif argv[0] == "apt-get" and "-s" in argv:
            return 0, self.simulation, ""
        elif argv[0] == "apt-get" and "install" in argv:
            self.packages.update(self.along)
            for word in argv[argv.index("install") + 1 :]:
                name, _equals, version = word.partition("=")
                if word.endswith("-"):
                    self.packages.pop(word[:-1], None)
                else:
                    self.packages[name] = version
                    self.states.pop(name, None)
        return 0, "", ""

    def installations(self):
        return [argv for argv in self.argvs if argv[0] == "apt-get" and "install" in argv and "-s" not in argv]


@pytest.fixture
def host(tmp_path, monkeypatch):
    played = Host(tmp_path)
    files = {"/etc/os-release": DEBIAN}
    real = _driver_host.read_text

    def read(path):
        return files[path] if path in files else real(path) if path.startswith(str(tmp_path)) else ""

    monkeypatch.setattr(_driver_host, "run", played.run)
    monkeypatch.setattr(_gpu_host._witness_tool, "run_limited", lambda argv, seconds: played.run(None, argv))
    monkeypatch.setattr(_driver_host, "read_text", read)
    monkeypatch.setattr(_driver_host.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(_driver_host, "pci_devices", list)
    monkeypatch.setattr(_driver_kernel, "next_release", lambda run: played.next_kernel)
    monkeypatch.setattr(_driver_host, "users", list)
    monkeypatch.setattr(_driver_transaction, "PIN", str(tmp_path / "etc" / "pin"))
    monkeypatch.setattr(_driver_transaction, "PREFERENCES", str(tmp_path / "preferences"))
    monkeypatch.setattr(_driver_repository, "APT_KEY", str(tmp_path / "etc" / "key.asc"))
    monkeypatch.setattr(_driver_repository, "APT_SOURCE", str(tmp_path / "etc" / "nvidia.sources"))
    monkeypatch.setattr(_driver_repository, "APT_PLACES", (str(tmp_path / "etc" / "*.*"),))
    monkeypatch.setattr(_driver_host, "LOCK_PAUSE_SECONDS", 0)
    monkeypatch.setattr(_driver_host, "UNIT_DIRS", (str(tmp_path / "units"),))
    monkeypatch.setattr(_driver_host, "RUNFILE", str(tmp_path / "nvidia-uninstall"))
    monkeypatch.setattr(_driver_host, "CONTAINER", str(tmp_path / "container"))
    monkeypatch.setattr(_driver_kernel, "has_module", lambda release: release in played.kernels_with_module)
    played.files = files
    played.state_dir = str(tmp_path / "state")
    return played


def change(host, **params):
    wanted = [{"name": name, "version": "580.105.08-1"} for name in OLD]
    return run_module(
        driver_packages, {"version": "580.105.08", "packages": wanted, "state_dir": host.state_dir, **params}
    )


UP = "".join(f"Inst {name} [{old}] (580.105.08-1 NVIDIA [all])\n" for name, old in OLD.items())


def record(host):
    return json.loads((Path(host.state_dir) / "record.json").read_text())


def test_an_upgrade_is_one_transaction_held_and_remembered(host):
    host.packages, host.simulation = dict(OLD), UP
    result = change(host)
    assert result["changed"]
    assert len(host.installations()) == 1
    assert host.packages == dict.fromkeys(OLD, "580.105.08-1")
    assert sorted(host.holds) == sorted(OLD)
    assert record(host)["previous"] == {"packages": OLD, "version": "580.95.05", "source": "nvidia"}
    assert record(host)["current"]["version"] == "580.105.08"
    assert "Pin: version 580.105.08-*" in Path(_driver_transaction.PIN).read_text()


def test_a_way_back_is_remembered_as_one_until_the_next_change(host):
    host.packages, host.simulation = dict(OLD), UP
    change(host, back=True)
    assert record(host)["current"]["back"]
    host.simulation = "".join(f"Inst {name} [580.105.08-1] (580.95.05-1 NVIDIA [all])\n" for name in OLD)
    down = [{"name": name, "version": version} for name, version in OLD.items()]
    change(host, version="580.95.05", packages=down)
    assert "back" not in record(host)["current"]


def test_a_second_run_does_nothing(host):
    host.packages, host.simulation = dict(OLD), UP
    change(host)
    host.argvs.clear()
    assert not change(host)["changed"]
    assert host.installations() == []


def test_check_mode_says_it_and_does_nothing(host):
    host.packages, host.simulation = dict(OLD), UP
    result = change(host, _ansible_check_mode=True)
    assert result["changed"]
    assert result["diff"]["before"] == "libcuda1 580.95.05-1\nnvidia-kernel-open-dkms 580.95.05-1\n"
    assert "hold libcuda1\nhold nvidia-kernel-open-dkms\n" in result["diff"]["after"]
    assert host.installations() == []
    assert not Path(host.state_dir).exists()
    assert not Path(_driver_transaction.PIN).exists()


def test_an_interrupted_change_keeps_the_first_way_back(host, monkeypatch):
    host.packages, host.simulation = dict(OLD), UP
    real, fails = host.run, [True]

    def run(module, argv, seconds=None):
        if argv[0] == "apt-get" and "install" in argv and "-s" not in argv and fails:
            fails.clear()
            host.packages["libcuda1"] = "580.105.08-1"  # half of it
            return 100, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)"
        return real(module, argv, seconds)

    monkeypatch.setattr(_driver_host, "run", run)
    result = change(host)
    assert result["failed"]
    assert "dpkg returned an error" in result["msg"]
    assert change(host)["changed"]
    assert record(host)["previous"]["packages"] == OLD
    assert "open" not in record(host)


NEW = dict.fromkeys(OLD, "580.105.08-1")


def test_what_was_unpacked_only_is_configured(host):
    host.packages, host.states = dict(NEW), {"nvidia-kernel-open-dkms": "iF "}
    host.simulation = "Conf nvidia-kernel-open-dkms (580.105.08-1 NVIDIA [all])\n"
    info = run_module(driver_info, {"state_dir": host.state_dir})
    assert info["unfinished"] == {"nvidia-kernel-open-dkms": "580.105.08-1"}
    assert "nvidia-kernel-open-dkms" not in info["packages"]
    result = change(host)
    assert result["changes"] == [{"name": "nvidia-kernel-open-dkms", "from": None, "to": "580.105.08-1"}]
    assert len(host.installations()) == 1
    assert not change(host)["changed"]


def test_configuration_that_was_left_is_told_apart(host):
    host.packages, host.states = {"libcuda1": "580.95.05-1", "less": "590-2"}, {"libcuda1": "rc ", "less": "rc "}
    info = run_module(driver_info, {"state_dir": host.state_dir})
    assert (info["packages"], info["unfinished"], info["leftovers"]) == ({}, {}, {"libcuda1": "580.95.05-1"})


def test_what_waits_for_a_trigger_is_installed(host):
    host.packages, host.states = dict(NEW), {"libcuda1": "iW "}
    info = run_module(driver_info, {"state_dir": host.state_dir})
    assert (info["packages"], info["unfinished"]) == (NEW, {})


def test_what_was_unpacked_only_is_removed(host):
    host.packages, host.states = dict(NEW), {"nvidia-kernel-open-dkms": "iU "}
    host.simulation = "".join(f"Purg {name} [580.105.08-1]\n" for name in NEW)
    params = {"state": "absent", "remove": sorted(NEW), "state_dir": host.state_dir}
    assert run_module(driver_packages, params)["changed"]
    assert host.packages == {}


def test_configuration_that_a_removal_left_goes_with_an_uninstallation(host):
    """A branch change or a person left it. The lines are of apt 2.6.1."""
    host.packages = dict(NEW, **{"nvidia-fabricmanager-570": "570.195.03-1", "vim": "9.0-1"})
    host.states = {"nvidia-fabricmanager-570": "rc ", "vim": "rc "}
    host.simulation = "".join(f"Purg {name} [580.105.08-1]\n" for name in NEW) + "Purg nvidia-fabricmanager-570\n"
    params = {"state": "absent", "remove": sorted(NEW), "state_dir": host.state_dir}
    result = run_module(driver_packages, params)
    assert {"name": "nvidia-fabricmanager-570", "from": "570.195.03-1", "to": None} in result["changes"]
    assert "nvidia-fabricmanager-570 570.195.03-1\n" in result["diff"]["before"]
    assert host.packages == {"vim": "9.0-1"}
    assert not run_module(driver_packages, params)["changed"]


def test_a_branch_change_purges_nothing(host):
    """apt purges last: scripts of the old branch would then undo what those of the new one have just made."""
    host.packages = dict(OLD, **{"nvidia-fabricmanager-570": "570.195.03-1"})
    host.simulation = UP + "Remv nvidia-fabricmanager-570 [570.195.03-1]\n"
    assert not change(host, remove=["nvidia-fabricmanager-570"]).get("failed")
    assert not any("--purge" in argv for argv in host.argvs)


def test_a_change_that_died_after_its_last_package_is_closed(host):
    host.packages, host.holds = dict(NEW), sorted(NEW)
    Path(host.state_dir).mkdir()
    before = {"packages": OLD, "version": "580.95.05", "source": "nvidia"}
    (Path(host.state_dir) / "record.json").write_text(json.dumps({"open": before}))
    # No package moves; the pin, which follows the packages, was still to be written.
    assert change(host)["changes"] == []
    assert host.installations() == []
    assert "Pin: version 580.105.08-*" in Path(_driver_transaction.PIN).read_text()
    assert record(host)["previous"] == before
    assert (record(host)["current"]["version"], "open" in record(host)) == ("580.105.08", False)


def test_what_is_no_driver_is_not_removed(host):
    host.packages, host.simulation = dict(OLD, firefox="1"), UP + "Remv firefox [1]\n"
    result = change(host)
    assert "firefox would be removed" in result["msg"]
    assert host.installations() == []


def preferences_of(argv):
    """Return (the file of preferences, name -> text of the others) that a command of apt is given."""
    given = dict(word[len("Dir::Etc::") :].split("=", 1) for word in argv if word.startswith("Dir::Etc::Preferences"))
    others = {path.name: path.read_text() for path in Path(given["PreferencesParts"]).iterdir()}
    return Path(given["Preferences"]).read_text(), others


def test_pins_of_the_host_stay_in_force(host, monkeypatch):
    """Of pins that name a package apt takes the first (tried with apt 2.6): ours is, the old one is not there."""
    theirs = "Package: *\nPin: release a=bookworm-backports\nPin-Priority: 100\n"
    site = "Package: dkms\nPin: release a=unwanted\nPin-Priority: -1\n"
    (host.root / "etc").mkdir()
    (host.root / "etc" / "site").write_text(site)
    (host.root / "etc" / "pin").write_text("Package: *nvidia*\nPin: version 580.95.05-*\nPin-Priority: 1001\n")
    (host.root / "preferences").write_text(theirs)
    host.packages, host.simulation, seen = dict(OLD), UP, []
    played = _driver_host.run

    def run(module, argv, seconds=None):
        if argv[0] == "apt-get" and "install" in argv:
            seen.append(preferences_of(argv))
        return played(module, argv, seconds)

    monkeypatch.setattr(_driver_host, "run", run)
    assert not change(host).get("failed")
    assert len(seen) == 2, "the simulation and the change"
    assert seen[0] == seen[1]
    text, others = seen[0]
    assert others == {"site": site}
    assert text.index("Pin: version 580.105.08-*") < text.index("a=bookworm-backports")
    assert "\n\nPackage: *\n" in text, "a stanza of its own"


def test_what_moves_beside_the_driver_is_told_and_a_kernel_is_refused(host, monkeypatch):
    warnings = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda self, text: warnings.append(text))
    signatures = "linux-signatures-nvidia-6.8.0-60-generic"
    host.packages = dict(OLD, **{"libc6": "2.36-9", signatures: "6.8.0-60.60"})
    host.simulation = UP + "Inst libc6 [2.36-9] (2.41-1 Debian:13 [amd64])\nInst dkms (3.0.10-8 Debian:12 [all])\n"
    host.simulation += f"Inst {signatures} [6.8.0-60.60] (6.8.0-60.63 Ubuntu:24.04 [amd64])\n"
    assert change(host, _ansible_check_mode=True)["changed"]
    # dkms is new, and moves nothing; signatures are of the modules.
    assert warnings == ["What the driver needs moves other packages of this host too: libc6 2.36-9 -> 2.41-1."]
    host.simulation = UP + "Inst linux-image-6.12.0-1-amd64 (6.12-1 Debian:13 [amd64])\n"
    assert "the kernel linux-image-6.12.0-1-amd64 6.12-1 would come along" in change(host)["msg"]
    assert host.installations() == []


def test_a_part_that_would_stay_behind_is_refused(host):
    host.packages, host.simulation = dict(OLD, **{"nvidia-settings": "580.95.05-1"}), UP
    result = change(host)
    assert "nvidia-settings 580.95.05-1 would stay" in result["msg"]
    assert host.installations() == []


@pytest.mark.parametrize(
    ("own", "refused"), [(["nvidia-persistenced"], False), (["nvidia-"], False), (["nvidia-persist"], True)]
)
def test_a_part_with_a_version_of_its_own_may_stay(host, own, refused):
    """A name, or its beginning up to a dash."""
    host.packages, host.simulation = dict(OLD, **{"nvidia-persistenced": "535.171.04-1"}), UP
    assert change(host, own_version=own).get("failed", False) is refused


def test_a_part_that_comes_along_may_have_a_version_of_its_own(host):
    """As nvidia-modprobe of Debian 12 does, whose security updates are of a later driver."""
    host.packages = dict(OLD)
    host.simulation = UP + "Inst nvidia-modprobe (535.309.01-0+deb12u1 Debian-Security:12 [amd64])\n"
    assert "nvidia-modprobe 535.309.01-0+deb12u1 would stay" in change(host)["msg"]
    assert not change(host, own_version=["nvidia-modprobe"]).get("failed")


def test_what_is_not_held_has_no_pin(host):
    host.packages, host.simulation = dict(OLD), UP
    change(host, hold=False)
    assert host.holds == []
    assert not Path(_driver_transaction.PIN).exists()
    assert any("Dir::Etc::Preferences=" in word for word in host.installations()[0]), "pinned for the transaction"
    assert change(host)["changed"]
    assert Path(_driver_transaction.PIN).exists()
    freed = change(host, hold=False)
    assert freed["changed"]
    assert "Pin: version 580.105.08-*" in freed["diff"]["before"]
    assert (host.holds, Path(_driver_transaction.PIN).exists()) == ([], False)
    assert not change(host, hold=False)["changed"]


def test_a_failed_change_moves_no_pin(host):
    host.packages, host.simulation = dict(OLD), ""
    down = [{"name": name, "version": version} for name, version in OLD.items()]
    change(host, version="580.95.05", packages=down)
    host.simulation = UP
    # The simulation waits for no lock.
    host.answers = {"DPkg::Lock::Timeout=600": (100, "", "E: no space left")}
    assert change(host)["failed"]
    assert "Pin: version 580.95.05-*" in Path(_driver_transaction.PIN).read_text()
    assert sorted(host.holds) == sorted(OLD)


def test_a_removal_that_fails_half_way_holds_what_it_left_and_says_why(host, monkeypatch):
    host.packages, host.simulation = dict(OLD), ""
    down = [{"name": name, "version": version} for name, version in OLD.items()]
    change(host, version="580.95.05", packages=down)
    assert sorted(host.holds) == sorted(OLD)
    host.simulation = "".join(f"Remv {name} [580.95.05-1]\n" for name in OLD)
    played = _driver_host.run

    def run(module, argv, seconds=None):
        if "--purge" in argv and "-s" not in argv:
            del host.packages["libcuda1"]
            return 100, "", "E: the script of nvidia-kernel-open-dkms ended with 1"
        if argv[:2] == ["apt-mark", "hold"] and "libcuda1" in argv:
            return 100, "", "E: Unable to locate package libcuda1"
        return played(module, argv, seconds)

    monkeypatch.setattr(_driver_host, "run", run)
    params = {"state": "absent", "remove": sorted(OLD), "state_dir": host.state_dir}
    assert "the script of nvidia-kernel-open-dkms ended with 1" in run_module(driver_packages, params)["msg"]
    assert host.holds == ["nvidia-kernel-open-dkms"]
    assert record(host)["open"]["packages"] == OLD


RHEL = 'ID="rocky"\nVERSION_ID="9.6"\n'
RPMS = {"nvidia-driver-cuda": "3:570.195.03-1.el9", "nvidia-fabric-manager": "3:570.195.03-1.el9"}
LOCKED = "\n".join(
    ["bash-0:5.1-1.*", _driver_transaction.MARK, "nvidia-driver-cuda-3:570.195.03-1.el9.*"]
    + ["nvidia-fabric-manager-3:570.195.03-1.el9.*"]
)
# dnf 4.14.0, dnf --assumeno shell
SHELL = """\
Installing:
 nvidia-fabricmanager
                    noarch 3:580.95.05-1.el9   gpufleet-nvidia 6.3 k
Upgrading:
 nvidia-driver-cuda noarch 3:580.95.05-1.el9   gpufleet-nvidia 6.3 k
Removing:
 nvidia-fabric-manager noarch 3:570.195.03-1.el9   @gpufleet-nvidia 123
"""


@pytest.fixture
def rhel(host, monkeypatch):
    """The same with dnf: a transaction does what the simulation says, and the list of locks is a file."""
    monkeypatch.setattr(_driver_host, "VERSIONLOCK", str(host.root / "versionlock.list"))
    host.files["/etc/os-release"] = RHEL
    host.packages, host.simulation, host.scripts = dict(RPMS), SHELL, []
    host.said = {"--assumeno": (0, SHELL, "Error: Operation aborted.\n"), "-y": (0, "Complete!", "")}

    def run(_module, argv, seconds=None):
        host.argvs.append(list(argv))
        if argv[0] == "rpm":
            return 0, "".join(f"{name} {version}\n" for name, version in host.packages.items()), ""
        if "shell" in argv:
            host.scripts.append(Path(argv[-1]).read_text())
        answer = next(word for word in ("--assumeno", "-y") if word in argv)
        said = host.said[answer]
        if answer == "-y" and said[0] == 0 and "Error:" not in said[2]:
            for one in _driver_managers.dnf_changes(host.simulation, host.packages):
                host.packages.pop(one["name"], None)
                host.packages.update({one["name"]: one["to"]} if one["to"] else {})
        return said

    monkeypatch.setattr(_driver_host, "run", run)
    return host


def up_rpm(host, **params):
    names = ("nvidia-driver-cuda", "nvidia-fabricmanager")
    wanted = [{"name": name, "version": "3:580.95.05-1.el9"} for name in names]
    wanted = {"version": "580.95.05", "packages": wanted, "remove": ["nvidia-fabric-manager"], **params}
    return run_module(driver_packages, {"state_dir": host.state_dir, **wanted})


def dnfs(host):
    return [argv for argv in host.argvs if argv[0] == "dnf"]


def test_what_comes_and_what_leaves_is_one_simulated_transaction_of_dnf(rhel):
    result = up_rpm(rhel)
    assert [(one["name"], one["to"]) for one in result["changes"]] == [
        ("nvidia-fabricmanager", "3:580.95.05-1.el9"),
        ("nvidia-driver-cuda", "3:580.95.05-1.el9"),
        ("nvidia-fabric-manager", None),
    ]
    script = (
        "install nvidia-driver-cuda-3:580.95.05-1.el9 nvidia-fabricmanager-3:580.95.05-1.el9\n"
        "remove nvidia-fabric-manager\nrun\n"
    )
    assert rhel.scripts == [script, script]
    assert [[word for word in argv if word in ("--assumeno", "-y")] for argv in dnfs(rhel)] == [["--assumeno"], ["-y"]]


def test_a_removal_by_dnf_that_takes_more_is_refused(rhel):
    table = "Removing:\n nvidia-driver-cuda noarch 3:570.195.03-1.el9 @x 1\n"
    more = "Removing dependent packages:\n needs-fabric  noarch  1-1  @System  0\n"
    rhel.said["--assumeno"] = (1, table + more, "Operation aborted.\n")
    rhel.packages["needs-fabric"] = "0:1-1"
    params = {"state": "absent", "remove": sorted(RPMS), "state_dir": rhel.state_dir}
    assert "needs-fabric would be removed" in run_module(driver_packages, params)["msg"]
    assert [argv[-3:] for argv in dnfs(rhel)] == [["remove", *sorted(RPMS)]]


def test_the_shell_of_dnf_fails_without_a_status(rhel):
    rhel.said["--assumeno"] = (0, SHELL, "No match for argument: nvlsm\nError: Unable to find a match: nvlsm\n")
    assert "Unable to find a match: nvlsm" in up_rpm(rhel)["msg"]
    assert len(dnfs(rhel)) == 1


def test_dnf_is_waited_for_no_longer_than_allowed(rhel):
    rhel.said["--assumeno"] = (
        200,
        "",
        "metadata already locked by 42\n  The application with PID 42 is: dnf-automatic\n",
    )
    said = up_rpm(rhel, lock_timeout_seconds=0)["msg"]
    assert "held by dnf-automatic (process 42)" in said
    assert all("--setopt=exit_on_lock=1" in argv for argv in dnfs(rhel))


def test_parts_come_from_the_repository_of_the_role_also_by_dnf(rhel, monkeypatch):
    text = "libnvidia-ml|3:580.105.08-1.el9|other\nlibnvidia-ml|3:580.95.05-1.el9|gpufleet-nvidia\n"
    monkeypatch.setattr(_driver_host, "run", lambda *_all: (0, text, ""))
    monkeypatch.setattr(_driver_host, "packages_of", lambda *_all: ({}, []))
    monkeypatch.setattr(_driver_host, "mok_enrolled", lambda _module: False)
    params = {"query": ["libnvidia-ml"], "state_dir": rhel.state_dir}
    assert run_module(driver_info, {**params, "origin": "https://mirror.example.com/rhel9"})["available"] == {
        "libnvidia-ml": ["3:580.95.05-1.el9"]
    }
    assert len(run_module(driver_info, params)["available"]["libnvidia-ml"]) == 2


def test_the_key_that_dnf_imported_leaves_with_the_file(rhel, monkeypatch):
    """rpm's name of a key is the end of its fingerprint: 09ee7f62 is that of FINGERPRINT, the other is EPEL's."""
    monkeypatch.setattr(_driver_repository, "RPM_SOURCE", str(rhel.root / "nvidia.repo"))
    monkeypatch.setattr(_driver_repository, "RPM_KEY", str(rhel.root / "key"))
    ran = []

    def run(_module, argv, seconds=None):
        ran.append(argv)
        return 0, "3228467c 613798eb\n09ee7f62 68a1b2c3\n" if argv[:3] == ["rpm", "-q", "gpg-pubkey"] else "", ""

    monkeypatch.setattr(_driver_host, "run", run)
    repository()
    assert ran == [], "another key than before is forgotten, and there was none"
    repository(url="https://elsewhere.example.com")
    assert ran == [], "the same key"
    assert repository(state="absent")["changed"]
    assert ran[1:] == [["rpm", "-e", "--allmatches", "gpg-pubkey-09ee7f62-68a1b2c3"]]


def test_the_index_of_every_repository_is_there_before_dnf_is_asked(rhel, monkeypatch):
    """dnf -C answers nothing when one of them, as EPEL, was never fetched."""
    monkeypatch.setattr(_driver_repository, "RPM_SOURCE", str(rhel.root / "nvidia.repo"))
    monkeypatch.setattr(_driver_repository, "RPM_KEY", str(rhel.root / "key"))
    assert repository(refresh="changed")["changed"]
    base = ["dnf", "-q", "-y", "--setopt=exit_on_lock=1", "makecache"]
    assert dnfs(rhel) == [[*base, "--refresh", "--disablerepo=*", "--enablerepo=gpufleet-nvidia"], base]


def test_a_plan_on_a_host_that_fetched_nothing_yet(rhel, monkeypatch):
    answer = (1, "", "Error: Cache-only enabled but no cache for 'baseos'")
    monkeypatch.setattr(_driver_host, "run", lambda *_all: answer)
    params = {"query": ["libnvidia-ml"], "state_dir": rhel.state_dir}
    assert run_module(driver_info, {**params, "_ansible_check_mode": True})["available"] == {"libnvidia-ml": []}
    assert "run dnf makecache" in run_module(driver_info, params)["msg"]


def locks(host):
    return (host.root / "versionlock.list").read_text().splitlines()


@pytest.mark.parametrize("end", [[_driver_transaction.END], []], ids=["our end", "no end"])
def test_locks_of_people_stay(rhel, end):
    """dnf versionlock add appends an empty line, a comment and the lock."""
    theirs = ["", "# Added lock on Mon Nov 30 12:00:00 2026", "nginx-1:1.20.1-22.el9.*"]
    (rhel.root / "versionlock.list").write_text("\n".join([LOCKED, *end, *theirs]) + "\n")
    up_rpm(rhel)
    ours = ["nvidia-driver-cuda-3:580.95.05-1.el9.*", "nvidia-fabricmanager-3:580.95.05-1.el9.*"]
    block = [_driver_transaction.MARK, *ours, _driver_transaction.END]
    assert locks(rhel) == ["bash-0:5.1-1.*", *theirs, *block]
    up_rpm(rhel, hold=False)
    assert locks(rhel) == ["bash-0:5.1-1.*", *theirs]


def test_a_failed_change_of_dnf_leaves_what_is_held(rhel):
    (rhel.root / "versionlock.list").write_text(LOCKED + "\n")
    rhel.said["-y"] = (1, "", "Error: Transaction test error: no space left")
    assert "no space left" in up_rpm(rhel)["msg"]
    assert locks(rhel) == LOCKED.splitlines()


def test_uninstall_by_dnf_takes_what_came_along_and_nothing_needs_any_more(rhel, monkeypatch):
    """egl-wayland came with the driver; vim was there before and nothing needs it either."""
    rhel.packages.update({"egl-wayland": "0:1.1.13-1.el9", "vim": "2:8.2-1.el9"})
    Path(rhel.state_dir).mkdir()
    (Path(rhel.state_dir) / "record.json").write_text(json.dumps({"brought": ["egl-wayland"]}))
    parts = "".join(f" {name} noarch {version} @x 1\n" for name, version in RPMS.items())
    unused = "Removing unused dependencies:\n egl-wayland noarch 1.1.13-1.el9 @x 1\n vim x86_64 2:8.2-1.el9 @x 1\n"
    rhel.said["--assumeno"] = (1, "Removing:\n" + parts + unused, "Operation aborted.\n")
    asked = []
    played = _driver_host.run

    def run(module, argv, seconds=None):
        if "--assumeno" in argv and "--noautoremove" in argv:
            asked.append(argv[argv.index("remove") + 1 :])
            rhel.simulation = "Removing:\n" + parts + " egl-wayland noarch 1.1.13-1.el9 @x 1\n"
            return 1, rhel.simulation, "Operation aborted.\n"
        return played(module, argv, seconds)

    monkeypatch.setattr(_driver_host, "run", run)
    result = run_module(driver_packages, {"state": "absent", "remove": sorted(RPMS), "state_dir": rhel.state_dir})
    assert asked == [[*sorted(RPMS), "egl-wayland"]]
    assert "egl-wayland 0:1.1.13-1.el9" in result["diff"]["before"]
    assert rhel.packages == {"vim": "2:8.2-1.el9"}


def test_uninstall_leaves_nothing(host):
    host.packages, host.simulation = dict(OLD), UP
    change(host)
    host.simulation = "".join(f"Remv {name} [580.105.08-1]\n" for name in OLD)
    params = {"state": "absent", "remove": sorted(OLD), "state_dir": host.state_dir}
    assert run_module(driver_packages, params)["changed"]
    assert (host.packages, host.holds) == ({}, [])
    assert "--purge" in host.installations()[-1]
    assert not Path(_driver_transaction.PIN).exists()
    assert not Path(host.state_dir).exists()
    assert not run_module(driver_packages, params)["changed"]


def test_the_info(host):
    host.packages = dict(OLD, libc6="2.36-9")
    host.files["/proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.195.03  Thu\n"
    host.answers = {"apt-cache madison": (0, " libcuda1 | 580.105.08-1 | file:/srv Packages\n", "")}
    result = run_module(driver_info, {"query": ["libcuda1"], "state_dir": host.state_dir})
    assert result["packages"] == OLD
    assert result["available"] == {"libcuda1": ["580.105.08-1"]}
    assert (result["loaded"], result["loaded_flavour"]) == ("570.195.03", "proprietary")
    assert result["reboot_required"]
    assert result["problems"] is None


def test_whether_the_running_kernel_has_a_module(host):
    info = {"state_dir": host.state_dir}
    assert run_module(driver_info, info)["module"] is False
    host.kernels_with_module = [_driver_host.platform.release()]
    assert run_module(driver_info, info)["module"] is True
    assert run_module(driver_info, {**info, "kernel": "6.1.0-40-amd64"})["module"] is False


def test_the_kernel_that_boots_next_when_it_is_another_one(host):
    info = {"state_dir": host.state_dir}
    host.next_kernel = "99.0.0-nobody"
    there = {"release": "99.0.0-nobody", "headers": False, "module": False}
    assert run_module(driver_info, info)["next_kernel"] == there
    assert run_module(driver_info, {**info, "kernel": "6.1.0-40-amd64"})["next_kernel"] is None
    host.next_kernel = _driver_host.platform.release()
    assert run_module(driver_info, info)["next_kernel"] is None


def test_uninstall_takes_what_came_along_and_nothing_needs_any_more(host):
    """Two came with the driver, and something of the host needs pciutils since; vim was there before."""
    host.packages, host.simulation = dict(OLD, vim="9.0-1"), UP
    host.along = {"nvidia-support": "20220217+3", "pciutils": "1:3.9.0-4"}
    change(host)
    host.along = {}
    assert record(host)["brought"] == ["nvidia-support", "pciutils"]
    host.simulation = "".join(f"Remv {name} [580.105.08-1]\n" for name in OLD)
    host.simulation += "Remv nvidia-support [20220217+3]\nRemv vim [9.0-1]\n"
    params = {"state": "absent", "remove": sorted(OLD), "state_dir": host.state_dir}
    host.answers = {"AutomaticRemove=true": (0, host.simulation, "")}
    host.simulation = host.simulation.replace("Remv vim [9.0-1]\n", "")
    assert "nvidia-support 20220217+3" in run_module(driver_packages, params)["diff"]["before"]
    assert host.packages == {"pciutils": "1:3.9.0-4", "vim": "9.0-1"}


PCI_DEVICES = _driver_host.pci_devices  # before a test plays other ones
H100 = {"address": "0000:01:00.0", "vendor": "0x10de", "class": "0x030200", "device": "0x2330"}


@pytest.mark.parametrize(("devices", "pauses"), [([], 0), ([H100], 3)])
def test_a_proof_waits_for_boards_that_are_there_only(host, monkeypatch, devices, pauses):
    """The clock goes by a second with each pause."""
    clock = [0.0]
    monkeypatch.setattr(_driver_host, "pci_devices", lambda: devices)
    monkeypatch.setattr(_driver_host, "find_command", lambda module, name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(_driver_host.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_driver_host.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    host.answers = {"nvidia-smi": (9, "NVIDIA-SMI has failed", "")}
    result = run_module(driver_info, {"prove": True, "wait_seconds": 2, "state_dir": host.state_dir})
    assert clock[0] == pauses
    assert "No driver is loaded." in result["problems"]


def test_what_the_kernel_log_says_is_not_waited_for(host, monkeypatch):
    monkeypatch.setattr(_driver_host, "pci_devices", lambda: [H100])
    monkeypatch.setattr(_driver_host, "find_command", lambda module, name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(_driver_host.time, "sleep", lambda seconds: pytest.fail("waited"))
    host.packages = dict(OLD)
    host.files["/proc/driver/nvidia/version"] = LOADED
    log = "NVRM: Xid (PCI:0000:01:00): 95, pid=7062, Uncontained: LTC TAG\n"
    host.answers = {"--query-gpu": (0, "580.95.05\n", ""), "journalctl": (0, log, "")}
    result = run_module(driver_info, {"prove": True, "wait_seconds": 60, "state_dir": host.state_dir})
    assert ["Xid 95" in one for one in result["problems"]] == [True]


@pytest.mark.parametrize("active", [True, False])
def test_a_fabric_of_boards_that_tell_no_state_is_its_unit(host, monkeypatch, active):
    """A100, whose NVSwitches are devices on the bus."""
    a100 = dict(H100, device="0x20b2")
    switch = dict(H100, device="0x1af1", address="0000:02:00.0", **{"class": "0x068000"})
    monkeypatch.setattr(_driver_host, "pci_devices", lambda: [a100, switch])
    monkeypatch.setattr(_driver_host, "find_command", lambda module, name: "/usr/bin/nvidia-smi")
    (host.root / "units").mkdir()
    (host.root / "units" / "nvidia-fabricmanager.service").write_text("")
    host.packages = dict(OLD, **{"nvidia-fabricmanager": "580.95.05-1"})
    host.files["/proc/driver/nvidia/version"] = LOADED
    host.answers = {
        "--query-gpu": (0, "580.95.05\n", ""),
        "nvidia-smi -q": (0, "    Fabric\n        State                             : N/A\n", ""),
        "is-active": (0 if active else 3, "", ""),
    }
    info = {"prove": True, "state_dir": host.state_dir}
    problems = run_module(driver_info, info)["problems"]
    assert problems == ([] if active else ["The fabric manager does not run: see journalctl -u nvidia-fabricmanager."])
    assert run_module(driver_info, {**info, "fabric_manager": False})["problems"] == [], "nobody wants one"


def test_a_fabric_manager_that_is_wanted_is_proven_where_no_switch_is_seen(host, monkeypatch):
    monkeypatch.setattr(_driver_host, "pci_devices", lambda: [H100])
    monkeypatch.setattr(_driver_host, "find_command", lambda module, name: "/usr/bin/nvidia-smi")
    host.packages = dict(OLD)
    host.files["/proc/driver/nvidia/version"] = LOADED
    host.answers = {"--query-gpu": (0, "580.95.05\n", "")}
    info = {"prove": True, "state_dir": host.state_dir}
    assert run_module(driver_info, info)["problems"] == []
    problems = run_module(driver_info, {**info, "fabric_manager": True})["problems"]
    assert problems == ["The fabric is not complete (0 of 1 boards; no state): see journalctl -u nvidia-fabricmanager."]


def test_what_the_kernel_log_says_needs_no_search_of_journalctl(host, monkeypatch):
    """A journalctl without PCRE refuses --grep; read as an empty log that would be a proof."""
    monkeypatch.setattr(_driver_host, "pci_devices", lambda: [H100])
    log = "usb 1-1: Xid (PCI:0000:09:00): 79, no driver\nNVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off\n"
    host.answers = {"--grep": (1, "", "Compiled without pattern matching support"), "journalctl": (0, log, "")}
    problems = run_module(driver_info, {"prove": True, "state_dir": host.state_dir})["problems"]
    assert [one for one in problems if "Xid 79" in one] == [
        "The kernel log has Xid 79 of 0000:01:00 since this boot (fallen off the bus)."
    ]


def test_mig_modes_are_told_or_why_not(host, monkeypatch):
    monkeypatch.setattr(_driver_host, "find_command", lambda module, name: "/usr/bin/nvidia-smi")
    info = {"mig": True, "state_dir": host.state_dir}
    host.answers = {"mig.mode.current": (0, "0, Enabled, Enabled\n", "")}
    assert run_module(driver_info, info)["mig"] == "0, Enabled, Enabled\n"
    host.answers = {"mig.mode.current": (9, "", "")}
    assert "couldn't communicate with the NVIDIA driver" in run_module(driver_info, info)["msg"]
    assert run_module(driver_info, {"state_dir": host.state_dir})["mig"] is None


def test_a_server_that_starts_or_waits_for_its_restart_counts(host):
    """systemd calls both activating; for list-units --state=running they are not there."""
    said = "sglang-main.service loaded activating auto-restart SGLang main\n"
    host.answers = {"--state=active,activating,reloading": (0, said, "")}
    assert run_module(driver_info, {"state_dir": host.state_dir})["servers"] == ["sglang-main.service"]


def test_a_virtual_function_is_no_board(tmp_path):
    for name in ("0000:01:00.0", "0000:01:00.4"):
        (tmp_path / name).mkdir()
        for word in ("vendor", "class", "device"):
            (tmp_path / name / word).write_text(H100[word] + "\n")
    (tmp_path / "0000:01:00.4" / "physfn").symlink_to("../0000:01:00.0")
    assert [one["address"] for one in PCI_DEVICES(str(tmp_path))] == ["0000:01:00.0"]


def test_a_distribution_that_nobody_knows(host):
    host.files["/etc/os-release"] = "ID=sles\n"
    assert "found sles" in run_module(driver_info, {"state_dir": host.state_dir})["msg"]


def test_a_damaged_record_is_one_sentence(host):
    Path(host.state_dir).mkdir()
    (Path(host.state_dir) / "record.json").write_text("{")
    assert "damaged" in run_module(driver_info, {"state_dir": host.state_dir})["msg"]


def repository(**params):
    return run_module(
        driver_repository,
        {"url": "https://mirror.example.com/debian12", "key": KEY, "fingerprint": FINGERPRINT, **params},
    )


def test_a_repository_that_trusts_one_key(host):
    assert repository()["changed"]
    assert Path(_driver_repository.APT_SOURCE).read_text().splitlines()[1:] == [
        "Types: deb",
        "URIs: https://mirror.example.com/debian12/",
        "Suites: /",
        f"Signed-By: {_driver_repository.APT_KEY}",
    ]
    assert not repository()["changed"]
    assert repository(state="absent")["changed"]
    assert not Path(_driver_repository.APT_SOURCE).exists()
    assert not Path(_driver_repository.APT_KEY).exists()


def test_the_entry_that_is_there_is_told(host):
    info = {"state_dir": host.state_dir}
    assert run_module(driver_info, info)["repository"] is None
    repository()
    there = {"url": "https://mirror.example.com/debian12", "fingerprint": FINGERPRINT}
    assert run_module(driver_info, info)["repository"] == there
    source = Path(_driver_repository.APT_SOURCE)
    text = source.read_text()
    source.write_text(text.replace("Types: deb\n", "Types: deb\nEnabled: no\n"))
    assert run_module(driver_info, info)["repository"] is None, "switched off by an upgrade of the distribution"
    assert repository()["changed"]
    assert source.read_text() == text
    Path(_driver_repository.APT_KEY).write_text("no key")
    assert run_module(driver_info, info)["repository"] is None


def test_an_entry_of_dnf_that_is_switched_off_is_none(rhel, monkeypatch):
    monkeypatch.setattr(_driver_repository, "RPM_SOURCE", str(rhel.root / "nvidia.repo"))
    monkeypatch.setattr(_driver_repository, "RPM_KEY", str(rhel.root / "key"))
    repository()
    assert _driver_repository.entry_here("rhel")["fingerprint"] == FINGERPRINT
    path = Path(_driver_repository.RPM_SOURCE)
    path.write_text(path.read_text().replace("enabled=1", "enabled=0"))
    assert _driver_repository.entry_here("rhel") is None


def test_the_index_of_a_new_entry_is_fetched_once(host):
    repository(refresh="changed")
    repository(refresh="changed")
    assert [argv[:3] for argv in host.argvs] == [["apt-get", "-q", "update"], ["apt-cache", "policy"]]


KEYRING = "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://mirror.example.com/debian12/ /\n"


def test_an_entry_beside_ours_is_refused_before_anything_is_written(host):
    """What the package cuda-keyring brings: with ours beside it apt reads no sources any more."""
    (host.root / "etc").mkdir()
    (host.root / "etc" / "cuda-debian12-x86_64.list").write_text(KEYRING)
    result = repository(refresh="changed")
    assert "cuda-debian12-x86_64.list" in result["msg"]
    assert "apt-get purge cuda-keyring" in result["msg"]
    assert sorted(path.name for path in (host.root / "etc").iterdir()) == ["cuda-debian12-x86_64.list"]
    assert host.argvs == []
    (host.root / "etc" / "cuda-debian12-x86_64.list").write_text("# " + KEYRING)
    assert repository(refresh="changed")["changed"]


@pytest.mark.parametrize("fails", ["update", "policy"])
def test_a_repository_that_cannot_be_read_is_taken_back(host, fails):
    said = "E: Conflicting values set for option Signed-By regarding source https://mirror.example.com/debian12/ /: "
    host.answers = {fails: (100, "", said + "/a != /b")}
    assert "another one with another key" in repository(refresh="changed")["msg"]
    assert not Path(_driver_repository.APT_SOURCE).exists()
    assert not Path(_driver_repository.APT_KEY).exists()
    host.answers = {}
    repository(refresh="changed")
    before = Path(_driver_repository.APT_SOURCE).read_text()
    host.answers = {fails: (100, "", "E: nothing there")}
    assert repository(refresh="changed", url="https://elsewhere.example.com")["failed"]
    assert Path(_driver_repository.APT_SOURCE).read_text() == before


MADISON = """\
 libcuda1 | 580.95.05-1 | https://mirror.example.com/debian12  Packages
 libcuda1 | 535.309.01-0+deb12u1 | http://deb.example.com/debian bookworm/non-free amd64 Packages
nvidia-container-toolkit | 1.18.1-1 | https://other.example.com/stable  Packages
linux-headers-6.1.0-40-amd64 | 6.1.153-1 | http://deb.example.com/debian bookworm/main amd64 Packages
"""


def test_parts_come_from_the_repository_that_is_wanted(host):
    host.answers = {"apt-cache madison": (0, MADISON, "")}
    names = ["libcuda1", "nvidia-container-toolkit", "linux-headers-6.1.0-40-amd64"]
    params = {"query": names, "also": ["nvidia-container-toolkit"], "state_dir": host.state_dir}
    everywhere = run_module(driver_info, params)["available"]
    assert everywhere["libcuda1"] == ["580.95.05-1", "535.309.01-0+deb12u1"]
    one = run_module(driver_info, {**params, "origin": "https://mirror.example.com/debian12/"})["available"]
    assert one == {
        "libcuda1": ["580.95.05-1"],
        "nvidia-container-toolkit": ["1.18.1-1"],
        "linux-headers-6.1.0-40-amd64": ["6.1.153-1"],
    }


@pytest.mark.parametrize(
    ("origin", "place"),
    [
        ("file:///srv/repository", "file:/srv/repository  Packages"),
        ("https://user:secret@mirror.example.com/debian12/", "https://mirror.example.com/debian12  Packages"),
    ],
)
def test_a_repository_is_known_by_what_apt_prints_of_its_address(host, origin, place):
    host.answers = {"apt-cache madison": (0, f" libcuda1 | 580.95.05-1 | {place}\n", "")}
    params = {"query": ["libcuda1"], "origin": origin, "state_dir": host.state_dir}
    assert run_module(driver_info, params)["available"] == {"libcuda1": ["580.95.05-1"]}


def test_a_password_of_the_address_is_in_no_difference(host):
    result = repository(url="https://user:secret@mirror.example.com/debian12")
    assert "URIs: https://***@mirror.example.com/debian12/" in str(result["diff"])
    assert "secret" not in str(result["diff"])
    assert "user:secret@" in Path(_driver_repository.APT_SOURCE).read_text()


def test_no_answer_is_not_no_package(host):
    host.answers = {"apt-cache madison": (100, "", "E: Conflicting values set for option Signed-By regarding source x")}
    result = run_module(driver_info, {"query": ["libcuda1"], "state_dir": host.state_dir})
    assert "another one with another key" in result["msg"]


def test_streams_of_dnf_hide_no_branch():
    assert "module_hotfixes=1" in _driver_repository.rpm_source("https://mirror.example.com/rhel9").splitlines()


def test_units_that_are_there_also_masked_ones(host):
    (host.root / "units").mkdir()
    (host.root / "units" / "nvidia-persistenced.service").symlink_to("/dev/null-that-is-not-there")
    result = run_module(driver_info, {"state_dir": host.state_dir})
    assert (result["units"], result["runfile"]) == (["nvidia-persistenced.service"], False)


def test_a_driver_of_the_installer_is_seen(host):
    (host.root / "nvidia-uninstall").write_text("")
    assert run_module(driver_info, {"state_dir": host.state_dir})["runfile"]


LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)\n"


@pytest.mark.parametrize("how", ["installer", "container", "module built by hand"])
def test_a_loaded_driver_that_no_package_brought_needs_no_boot(host, how):
    host.files["/proc/driver/nvidia/version"] = LOADED
    info = {"state_dir": host.state_dir}
    assert run_module(driver_info, info)["reboot_required"], "the packages were removed, the module is still loaded"
    if how == "installer":
        (host.root / "nvidia-uninstall").write_text("")
    elif how == "container":
        (host.root / "container").mkdir()
    else:
        host.kernels_with_module = [_driver_host.platform.release()]
    assert not run_module(driver_info, info)["reboot_required"]


def test_what_prebuilt_modules_were_built_for_is_asked_of_them_only(host):
    name = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
    row = f"{name} | 6.8.0-60.63+1 | http://archive.example.com/ubuntu noble/restricted amd64 Packages\n"
    said = f"Package: {name}\nVersion: 6.8.0-60.63+1\nDepends: nvidia-kernel-common-580-server (>= 580.95.05)\n"
    host.answers = {"apt-cache madison": (0, MADISON + row, ""), "apt-cache show " + name: (0, said, "")}
    params = {"query": ["libcuda1", name], "state_dir": host.state_dir}
    assert run_module(driver_info, params)["module_drivers"] == {name: {"6.8.0-60.63+1": "580.95.05"}}
    assert ["apt-cache", "show", name] in host.argvs
    host.answers["apt-cache madison"] = (0, MADISON, "")
    assert run_module(driver_info, dict(params, query=["libcuda1"]))["module_drivers"] == {}


def test_packages_that_are_asked_for_by_name(host):
    host.packages = dict(OLD, nvtop="3.0.1-1", vim="9.0-1")
    result = run_module(driver_info, {"also": ["nvtop"], "state_dir": host.state_dir})
    assert result["packages"] == dict(OLD, nvtop="3.0.1-1")


def test_another_key_is_never_written(host):
    result = repository(fingerprint="EB693B3035CD5710E231E123A4B469963BF863CC")
    assert FINGERPRINT in result["msg"]
    assert not Path(_driver_repository.APT_KEY).exists()


def test_the_index_is_fetched_again_while_its_lock_is_held(host, monkeypatch):
    left = [1, 1]

    def run(_module, argv, seconds=None):
        host.argvs.append(argv)
        return (100, "", "E: Could not get lock /var/lib/apt/lists/lock") if left and left.pop() else (0, "", "")

    monkeypatch.setattr(_driver_host, "run", run)
    assert not repository(refresh="always").get("failed")
    assert [argv[0] for argv in host.argvs] == ["apt-get", "apt-get", "apt-get", "apt-cache"]
