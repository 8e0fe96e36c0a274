# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers, the changing half: one transaction, the hold, and what is remembered of it.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_host, _driver_managers, _driver_packages
from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_tables as tables
from ansible_collections.gpufleet.sglang.plugins.module_utils._driver import DriverError, upstream

PREFERENCES = "/etc/apt/preferences"
PIN = "/etc/apt/preferences.d/gpufleet-nvidia-driver"
# Around what the role holds in dnf's list; other lines belong to the host's people.
MARK = "# gpufleet.sglang.nvidia_driver"
END = "# end of gpufleet.sglang.nvidia_driver"
PIN_HEAD = (
    "# Keeps the NVIDIA driver together. Written by the role nvidia_driver: change its variables, not this file.\n"
)


def write_text(path, text, mode=0o644):
    """Write a small file as a whole: never half of it, also when the host loses power."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpufleet-")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(name, mode)
    os.rename(name, path)


def _remove_file(path):
    if os.path.exists(path):
        os.unlink(path)
        return True
    return False


class Transaction:
    """What is wanted, on one host. ``packages``: [{name, version or None}], ``remove``: names."""

    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.distribution = _driver_host.os_release(_driver_host.read_text("/etc/os-release"))["distribution"]
        self.packages, self.holds = self.installed()
        self.unfinished = _driver_host.unfinished_of(module, self.distribution)
        self.wanted = [(one["name"], one.get("version")) for one in self.params["packages"]]
        absent = self.params["state"] == "absent"
        self.leftovers = _driver_host.leftovers_of(module, self.distribution) if absent else {}
        self.unneeded = self._unneeded() if absent else []

    def installed(self):
        return _driver_host.packages_of(self.module, self.distribution)

    def pin_text(self):
        version = self.params["version"]
        return PIN_HEAD + _driver_packages.apt_pin(version) if version and self.params["state"] == "present" else ""

    def pin_change(self):
        """Return (text of the pin that is there, text that should be), both empty when nothing is to be done."""
        if self.distribution == "rhel" or not self.pin_text():
            return "", ""
        here = _driver_host.read_text(PIN)
        wanted = self.pin_text() if self.params["hold"] else ""
        return ("", "") if here == wanted else (here, wanted)

    # -- what would happen ------------------------------------------------------------------------------------

    def needed(self):
        """Return (packages to name, names to remove): nothing when all is as wanted."""
        missing = [
            (name, version)
            for name, version in self.wanted
            if (version is None and name not in self.packages) or (version and self.packages.get(name) != version)
        ]
        return missing, [*self._gone(), *self.unneeded, *self.leftovers]

    def _gone(self):
        return [name for name in self.params["remove"] if name in self.packages or name in self.unfinished]

    def _unneeded(self):
        """Return what earlier transactions brought along and nothing needs once the parts of ``remove`` are gone."""
        gone = self._gone()
        brought = set(_driver_host.record_of(self.params["state_dir"]).get("brought", [])) - set(gone)
        if not gone or not brought:
            return []
        if self.distribution == "rhel":
            argv = _driver_managers.dnf_unneeded_argv(gone)
            limit = self.params["lock_timeout_seconds"]
            _rc, out, _err = _driver_host.run_unlocked(self.module, argv, limit, _driver_host.ASK_SECONDS)
            changes = _driver_managers.dnf_changes(out, self.packages)
        else:
            options = ["-s", "-o", "APT::Get::AutomaticRemove=true"]
            _rc, out, _err = _driver_host.run(self.module, _driver_managers.apt_argv([], gone, 0, options))
            changes = _driver_managers.apt_changes(out)
        return sorted(one["name"] for one in changes if one["to"] is None and one["name"] in brought)

    def simulated(self):
        """Return [{name, from, to}] that the package manager would do. Raises DriverError."""
        missing, gone = self.needed()
        if not missing and not gone:
            return []
        changes = self._simulated_rpm(gone) if self.distribution == "rhel" else self._simulated_apt(gone)
        self._refuse_strangers(changes, gone)
        return changes

    @contextlib.contextmanager
    def _pinned(self):
        """Give options with which apt knows the pin of this version instead of an earlier one, which would forbid it.

        The host's own preferences stay in force. Ours comes first: of those that name a package the first counts.
        """
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
            whole = os.path.join(folder, "preferences")
            with open(whole, "w", encoding="utf-8") as stream:
                stream.write(self.pin_text() + "\n" + _driver_host.read_text(PREFERENCES))
            parts = os.path.join(folder, "preferences.d")
            os.mkdir(parts)
            theirs = os.path.dirname(PIN)
            for name in os.listdir(theirs) if os.path.isdir(theirs) else ():
                if name != os.path.basename(PIN):
                    os.symlink(os.path.join(theirs, name), os.path.join(parts, name))
            yield ["-o", f"Dir::Etc::Preferences={whole}", "-o", f"Dir::Etc::PreferencesParts={parts}"]

    def _simulated_apt(self, gone):
        with self._pinned() as pinned:
            rc, out, err = _driver_host.run(
                self.module, _driver_managers.apt_argv(self.wanted, gone, 0, ["-s", *self._purge(), *pinned])
            )
        if rc != 0:
            raise DriverError(_driver_managers.failure(err + out, rc))
        changes = _driver_managers.apt_changes(out)
        # What is unpacked is only configured: apt says no more of it.
        named = {one["name"] for one in changes}
        changes = [dict(one, **{"from": one["from"] or self.leftovers.get(one["name"])}) for one in changes]
        return changes + [
            {"name": name, "from": None, "to": version or self.unfinished[name]}
            for name, version in self.wanted
            if name in self.unfinished and name not in named
        ]

    def _simulated_rpm(self, gone):
        return _driver_managers.dnf_changes(self._dnf("--assumeno", gone, _driver_host.ASK_SECONDS), self.packages)

    def _dnf(self, answer, gone, seconds=None):
        """Run, or simulate, the one transaction of dnf. Returns what it says. Raises DriverError."""
        with tempfile.NamedTemporaryFile("w", suffix=".dnf", encoding="utf-8") as script:
            script.write(_driver_managers.dnf_script(self.wanted, gone))
            script.flush()
            argv = _driver_managers.dnf_argv(self.wanted, gone, answer, script.name)
            limit = self.params["lock_timeout_seconds"]
            rc, out, err = _driver_host.run_unlocked(self.module, argv, limit, seconds)
        if _driver_managers.dnf_failed(err + "\n" + out, rc, "shell" in argv):
            raise DriverError(_driver_managers.failure(err + "\n" + out, rc))
        return out

    def _refuse_strangers(self, changes, gone):
        """Refuse a transaction that removes what is no part of a driver, brings a kernel, or leaves parts behind."""
        lost = [one["name"] for one in changes if one["to"] is None and one["name"] not in gone]
        there = {**self.unfinished, **self.packages}
        lost = [name for name in lost if not _driver_packages.belongs(name, there.get(name))]
        if lost:
            raise DriverError(
                f"Expected to change nothing but the driver, found that {', '.join(lost[:6])} would be removed: remove"
                " them yourself, or choose another nvidia_driver_version."
            )
        asked = {name for name, _version in self.wanted}
        kernels = [one for one in changes if one["to"] and one["name"] not in asked]
        kernels = [f"{one['name']} {one['to']}" for one in kernels if _driver_packages.is_kernel(one["name"])]
        if kernels:
            raise DriverError(
                f"Expected to change nothing but the driver, found that the kernel {', '.join(kernels[:6])} would come"
                " along: install that kernel yourself and boot it, or choose another nvidia_driver_version."
            )
        after = dict(self.packages)
        for one in changes:
            after[one["name"]] = one["to"]
        own = self.params["own_version"]
        version = self.params["version"]
        other = [
            f"{name} {found}"
            for name, found in _driver_packages.parts({name: one for name, one in after.items() if one}).items()
            if version and upstream(found) not in (None, version) and not _driver_packages.is_one_of(name, own)
        ]
        if other and self.params["state"] == "present":
            raise DriverError(
                f"Expected every part of the driver at {version}, found that {', '.join(other[:6])} would stay: choose"
                " a version that all of them have, or remove them."
            )

    def beside(self, changes):
        """Return the changes of packages that are installed and no part of a driver: what it needs moves them."""
        moved = [one for one in changes if one["from"] and one["to"] and not one["name"].startswith(tables.SIGNATURES)]
        return [one for one in moved if not _driver_packages.belongs(one["name"], one["to"])]

    # -- doing it ---------------------------------------------------------------------------------------------

    def execute(self, changes):
        """Do it. The set that is replaced is remembered before the first package moves. Raises DriverError."""
        _missing, gone = self.needed()
        before = set(self.packages)
        self._open_record()
        if self.distribution == "rhel":
            self._dnf("-y", gone)
        else:
            with self._pinned() as pinned:
                seconds = self.params["lock_timeout_seconds"]
                self._run(_driver_managers.apt_argv(self.wanted, gone, seconds, [*self._purge(), *pinned]))
        self.packages, self.holds = self.installed()
        if changes:
            self._close_record(set(self.packages) - before)

    def _purge(self):
        """Return the option with which parts leave together with their configuration: at an uninstallation only.

        apt purges after it has configured what comes instead (tried with apt 2.6): a script of the branch before would
        take the user of the persistence daemon away from the new one. What a change leaves is purged at the end.
        """
        return ["--purge"] if self.params["state"] == "absent" else []

    def _run(self, argv):
        rc, out, err = _driver_host.run(self.module, argv)
        if rc != 0:
            raise DriverError(_driver_managers.failure(err + "\n" + out, rc))

    # -- the hold ---------------------------------------------------------------------------------------------

    def hold_changes(self, changes):
        """Return (names to hold, names to let go) once ``changes`` are done."""
        after = dict(self.packages)
        for one in changes:
            after[one["name"]] = one["to"]
        parts = set(_driver_packages.parts({name: one for name, one in after.items() if one}))
        wanted = parts if self.params["hold"] and self.params["state"] == "present" else set()
        if self.distribution == "rhel":
            lines = _driver_packages.versionlock({name: after[name] for name in wanted})
            here = set(self._our_locks())
            return sorted(set(lines) - here), sorted(here - set(lines))
        ours = {name for name in self.holds if name in parts or name in self.packages and _belongs(self, name)}
        return sorted(wanted - set(self.holds)), sorted(ours - wanted)

    def hold(self, hold, release):
        if self.distribution == "rhel":
            if hold or release:
                self._write_locks(sorted((set(self._our_locks()) - set(release)) | set(hold)))
            return
        for word, names in (("hold", hold), ("unhold", release)):
            if names:
                self._run(["apt-mark", word, *names])
        before, after = self.pin_change()
        if after:
            write_text(PIN, after)
        elif before:
            _remove_file(PIN)

    def hold_again(self, released):
        """Hold what a failed removal left, as before; of what is gone apt may know no name any more."""
        self.packages, self.holds = self.installed()
        left = released if self.distribution == "rhel" else [name for name in released if name in self.packages]
        self.hold(left, [])

    def _locks(self):
        """Return (lines of the list that are ours, all others)."""
        lines = _driver_host.read_text(_driver_host.VERSIONLOCK).splitlines()
        if MARK not in lines:
            return [], lines
        first = lines.index(MARK)
        rest = lines[first + 1 :]
        # Without our end, ours is what comes before the first empty line or comment, with which dnf begins its own.
        last = next((at for at, line in enumerate(rest) if not line.strip() or line.startswith("#")), len(rest))
        last = rest.index(END) if END in rest else last
        return [line for line in rest[:last] if line.strip()], [*lines[:first], *rest[last:]]

    def _our_locks(self):
        return self._locks()[0]

    def _write_locks(self, ours):
        others = [line for line in self._locks()[1] if line != END]
        lines = [*others, *([MARK, *ours, END] if ours else [])]
        write_text(_driver_host.VERSIONLOCK, "".join(line + "\n" for line in lines))

    # -- what is remembered -----------------------------------------------------------------------------------

    def record_path(self):
        return os.path.join(self.params["state_dir"], "record.json")

    def _save(self, record):
        write_text(self.record_path(), json.dumps(record, indent=2, sort_keys=True) + "\n")

    def _set_now(self):
        parts = _driver_packages.parts(self.packages)
        versions = _version_of_most(parts)
        return {"packages": parts, "version": versions, "source": self.params["source"]}

    def _open_record(self):
        record = _driver_host.record_of(self.params["state_dir"])
        # An interrupted run has left what served before it: that is the way back, not the half of the change.
        if not record.get("open"):
            self._save(dict(record, open=self._set_now()))

    def settle(self):
        """Close what an interrupted run left open where nothing is left to change."""
        if _driver_host.record_of(self.params["state_dir"]).get("open"):
            self._close_record(set())

    def _close_record(self, new):
        record = _driver_host.record_of(self.params["state_dir"])
        record["brought"] = sorted((new | set(record.get("brought", []))) & set(self.packages))
        previous = record.pop("open", None)
        now = dict(self._set_now(), **({"back": True} if self.params["back"] else {}))
        if previous and previous["packages"] and previous["packages"] != now["packages"]:
            record["previous"] = previous
        self._save(dict(record, current=now))

    def forget(self):
        """Remove pin and record. Returns whether there was one."""
        found = [_remove_file(path) for path in (PIN, self.record_path())]
        if not self.module.check_mode and os.path.isdir(self.params["state_dir"]):
            _remove_file(os.path.join(self.params["state_dir"], "initramfs_pending"))
            with contextlib.suppress(OSError):
                os.rmdir(self.params["state_dir"])
        return any(found)

    def traces(self):
        """Return files of ours that an uninstallation removes."""
        return [path for path in (PIN, self.record_path()) if os.path.exists(path)]


def _belongs(transaction, name):
    return _driver_packages.belongs(name, transaction.packages[name])


def _version_of_most(parts):
    found = [upstream(version) for version in parts.values() if upstream(version)]
    return max(set(found), key=found.count) if found else None
