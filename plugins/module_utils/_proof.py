# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: what is remembered of an instance on its host: proof, attempts, open change, backups, lease.

Private to the gpufleet.sglang collection; may change at any time.

Layout below the state directory (default ``/var/lib/sglang``)::

    <instance>/proof.json          the last proof
    <instance>/attempts.jsonl      the newest attempts, and older ones that still teach, see ``worth_keeping``; one JSON
                                   object a line, oldest first
    <instance>/forgotten.json      up to when attempts teach nothing any more; absent when nothing was forgotten
    <instance>/change.json         the change that is open; absent when none is
    <instance>/away.json           clients are kept away; absent when they are not
    <instance>/backup/<time>/      what a change replaced: manifest.json and the files

A file is replaced whole (written beside, then renamed), so that an interruption leaves the old one or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time

RUN_DIR = "/run/sglang"

# What attempts teach, and under which name an attempt holds it.
TAUGHT = {"measurements": "measurement", "deaths": "death"}

# Attempts that are told, and that a plan learns from beside older ones that still teach.
MOST_TOLD = 50
# The newest attempts are kept whole, as evidence; a deployment makes a few, and a load on what runs makes one.
MOST_ATTEMPTS = 100
# Of older ones those that still teach: more than an instance has configurations and ways to die.
MOST_TEACHING = 60
# What of a death is a figure: two that differ in nothing else are of one kind.
DEATH_FIGURES = ("reserve_needed_gib", "wanted_gib", "at", "figures", "reason")
# The file is cut when it is longer by this, so that not every attempt writes it anew.
CUT_BEHIND = 40

# Longer than any task of a run takes between two renewals; a run that was killed keeps others waiting no longer than
# this.
LEASE_SECONDS = 180


class Unreadable(ValueError):
    """A file of the store is there and says nothing we understand; the message is one sentence."""


def write_json(path, data, mode=0o600):
    """Replace a JSON file whole."""
    # In the order in which it came: arguments are written to the unit again as they stand here.
    _write_whole(path, json.dumps(data, indent=1) + "\n", mode)


def _write_whole(path, text, mode=0o600):
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def read_json(path):
    """A JSON file as data; None when it is not there; Unreadable when it is broken."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Unreadable(
            "Expected JSON in %s, found something else (%s); move the file away to go on without what it remembers."
            % (path, error)
        ) from error


def worth_keeping(attempts, newest, forgotten_at=None):
    """The newest attempts, and of older ones those that teach what no newer one does. In the order in which they came.

    Of start-ups with the same keys and the same figures the newest teaches all. Of deaths that differ in their figures
    alone the newest and the one that needed most count.

    :arg attempts: oldest first. :arg newest: how many of them stay whatever they teach.
    :arg forgotten_at: of ``TAUGHT``, up to when they teach nothing, seconds since the epoch.
    """
    measured, died, needed_most = {}, {}, {}
    for place, attempt in enumerate(attempts):
        measurement, death = (_teaches(attempt, what, forgotten_at or {}) for what in ("measurements", "deaths"))
        if measurement:
            figures = sorted(name for name in measurement if measurement[name] is not None)
            measured[json.dumps([measurement.get("keys"), figures], sort_keys=True)] = place
        if death:
            alike = json.dumps({name: death[name] for name in death if name not in DEATH_FIGURES}, sort_keys=True)
            died[alike] = place
            needed = float(death.get("reserve_needed_gib") or 0)
            if alike not in needed_most or needed >= needed_most[alike][0]:
                needed_most[alike] = (needed, place)
    cut = max(len(attempts) - newest, 0)
    deaths = {*died.values(), *(place for _needed, place in needed_most.values())}
    older = sorted(place for place in {*measured.values(), *deaths} if place < cut)
    # Beyond the bound a death is worth more than a start-up, which the next start tells again.
    kept = sorted(older, key=lambda place: (place in deaths, place))[-MOST_TEACHING:]
    return [attempt for place, attempt in enumerate(attempts) if place >= cut or place in kept]


def _teaches(attempt, what, forgotten_at):
    return attempt.get(TAUGHT[what]) if attempt.get("at", 0) > forgotten_at.get(what, 0) else None


def _ends_in_half_a_line(path):
    try:
        with open(path, "rb") as stream:
            if not stream.seek(0, os.SEEK_END):
                return False
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) != b"\n"
    except FileNotFoundError:
        return False


class Store:
    """What one instance remembers on its host."""

    def __init__(self, state_dir, instance, run_dir=RUN_DIR):
        self.directory = os.path.join(state_dir, instance)
        self.backup_directory = os.path.join(self.directory, "backup")
        self._proof = os.path.join(self.directory, "proof.json")
        self._attempts = os.path.join(self.directory, "attempts.jsonl")
        self._forgotten = os.path.join(self.directory, "forgotten.json")
        self._change = os.path.join(self.directory, "change.json")
        self._away = os.path.join(self.directory, "away.json")
        self._lease = os.path.join(run_dir, "%s.lease" % instance)
        self._lock = os.path.join(run_dir, "%s.lock" % instance)

    # proof

    def proof(self):
        return read_json(self._proof)

    def write_proof(self, proof):
        if proof is None:
            if os.path.exists(self._proof):
                os.unlink(self._proof)
            return
        write_json(self._proof, proof)

    # attempts

    def attempts(self, most=MOST_TOLD):
        """The newest attempts, oldest first. A half line at the end (power loss) is passed over.

        :arg most: None for all that are kept.
        """
        try:
            with open(self._attempts, encoding="utf-8") as stream:
                lines = stream.readlines()
        except FileNotFoundError:
            return []
        if most is not None:
            lines = lines[-most:]
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def append_attempt(self, attempt):
        os.makedirs(self.directory, mode=0o755, exist_ok=True)
        # Behind half a line (a full disk, a power loss) this one would be lost with it.
        begin = "\n" if _ends_in_half_a_line(self._attempts) else ""
        handle = os.open(self._attempts, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(begin + json.dumps(attempt, sort_keys=True) + "\n")
        self._cut_attempts()

    def edit_attempts(self, edit):
        """Replace the lines of the attempts by what ``edit`` makes of them; nothing where none are, or all stay.

        :raises OSError: for a full disk; the attempts are as they were then.
        """
        try:
            with open(self._attempts, encoding="utf-8") as stream:
                lines = stream.readlines()
        except FileNotFoundError:
            return
        edited = edit(lines)
        if edited != lines:
            _write_whole(self._attempts, "".join(edited))

    def _cut_attempts(self):
        attempts = self.attempts(most=None)
        if len(attempts) <= MOST_ATTEMPTS + MOST_TEACHING + CUT_BEHIND:
            return
        kept = worth_keeping(attempts, MOST_ATTEMPTS, read_json(self._forgotten))
        # The attempt is remembered already: what is cut today or with the next one is no reason to fail.
        with contextlib.suppress(OSError):
            _write_whole(self._attempts, "".join(json.dumps(one, sort_keys=True) + "\n" for one in kept))

    def taught(self, what):
        """What attempts taught and nobody forgot, oldest first.

        :arg what: ``measurements`` or ``deaths``.
        """
        forgotten_at = read_json(self._forgotten) or {}
        attempts = worth_keeping(self.attempts(most=None), MOST_TOLD, forgotten_at)
        return [one for one in (_teaches(attempt, what, forgotten_at) for attempt in attempts) if one]

    def forget(self, names, now=None):
        """Forget what attempts taught up to now. The attempts themselves stay: they are evidence.

        :arg names: of ``TAUGHT``. :arg now: seconds since the epoch.
        """
        forgotten = read_json(self._forgotten) or {}
        forgotten.update({name: time.time() if now is None else now for name in names})
        write_json(self._forgotten, forgotten)

    # change

    def change(self):
        return read_json(self._change)

    def open_change(self, change):
        write_json(self._change, change)

    def own_change(self, run_id):
        """The change that is open is this run's from now on: what it proves closes it."""
        change = self.change()
        if change and change.get("run_id") != run_id:
            write_json(self._change, dict(change, run_id=run_id))

    def close_change(self):
        """True when a change was open."""
        if not os.path.exists(self._change):
            return False
        os.unlink(self._change)
        return True

    # clients

    def away(self):
        """Since when clients are kept away, and by which run; None when they are not.

        A balancer or a firewall forgets nothing when this host is booted, so it does not lie beside the lease.
        """
        return read_json(self._away)

    def send_away(self, run_id, now=None):
        """To be called before the hook that keeps them away: a run that dies in it may have sent them away.

        What an earlier run began stays what it is, and is this run's to end. :arg now: seconds since the epoch.
        """
        since = (self.away() or {}).get("at", time.time() if now is None else now)
        write_json(self._away, {"run_id": run_id, "at": since})

    def own_away(self, run_id):
        """Clients that a run which died had sent away are this run's to let back. True when there are any."""
        if self.away() is None:
            return False
        self.send_away(run_id)
        return True

    def let_back(self, run_id):
        """The hook that lets clients back has ended well. Those that another run has sent away since stay away."""
        if (self.away() or {}).get("run_id") == run_id:
            os.unlink(self._away)

    # backups

    def backups(self):
        """Manifests of all backups, oldest first."""
        if not os.path.isdir(self.backup_directory):
            return []
        found = []
        for name in sorted(os.listdir(self.backup_directory)):
            manifest = read_json(os.path.join(self.backup_directory, name, "manifest.json"))
            if manifest:
                found.append(manifest)
        return found

    def prune_backups(self, keep, protected=()):
        """Remove the oldest backups beyond ``keep``; names in ``protected`` stay. Returns the names removed."""
        names = [manifest["name"] for manifest in self.backups() if manifest["name"] not in protected]
        removed = names[: max(len(names) - keep, 0)]
        for name in removed:
            shutil.rmtree(os.path.join(self.backup_directory, name))
        return removed

    def remove_half_made_backups(self):
        """Remove what a run left that was killed while it copied: no manifest, perhaps a key. Returns the names.

        To be called by the run that holds the lease, when it is not making one.
        """
        if not os.path.isdir(self.backup_directory):
            return []
        folders = [os.path.join(self.backup_directory, name) for name in sorted(os.listdir(self.backup_directory))]
        half_made = [path for path in folders if not os.path.exists(os.path.join(path, "manifest.json"))]
        for path in half_made:
            shutil.rmtree(path)
        return [os.path.basename(path) for path in half_made]

    # lease

    def lease(self, now=None):
        """The lease that is held, or None; an expired one counts as none."""
        lease = read_json(self._lease)
        if lease and lease.get("expires_at", 0) > (time.time() if now is None else now):
            return lease
        return None

    @contextlib.contextmanager
    def _lease_alone(self):
        """Nobody else looks at the lease to change it: of two runs that find it free in one moment one takes it.

        The lock is a file of its own that stays: the lease is replaced whole, and a lock goes with its file. It ends
        with the process that has it.
        """
        os.makedirs(os.path.dirname(self._lock), mode=0o755, exist_ok=True)
        handle = os.open(self._lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def take_lease(self, run_id, who, seconds=LEASE_SECONDS):
        """Take or renew the lease. Returns None, or the lease of the run that holds it."""
        with self._lease_alone():
            held = self.lease()
            if held and held.get("run_id") != run_id:
                return held
            write_json(self._lease, {"run_id": run_id, "who": who, "expires_at": time.time() + seconds})
            return None

    def release_lease(self, run_id):
        with self._lease_alone():
            held = read_json(self._lease)
            if held and held.get("run_id") == run_id:
                os.unlink(self._lease)


def renew_lease(lease, seconds=0.0, run_dir=RUN_DIR):
    """Keep the lease of a run that goes on; another run's lease, or none, is left as it is.

    Its own lease that expired meanwhile (a drain that took long) is renewed too, as long as nobody else took it.

    :arg lease: ``{"instance", "run_id"}``, or None when the caller holds none.
    :arg seconds: how long the caller will be busy before the next renewal.
    """
    if not lease:
        return
    store = Store("", lease["instance"], run_dir)
    held = store.lease(now=0)
    if held and held["run_id"] == lease["run_id"]:
        store.take_lease(lease["run_id"], held["who"], seconds + LEASE_SECONDS)


def lease_refusal(instance, held):
    """The one sentence for a second controller."""
    return (
        "Expected the instance %s to be free, found it leased by %s for another %d s; wait for that run, or remove "
        "/run/sglang/%s.lease when it is gone."
        % (instance, held.get("who"), held["expires_at"] - time.time(), instance)
    )
