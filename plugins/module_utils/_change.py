# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: a change of an instance, from the snapshot to its close.

Private to the gpufleet.sglang collection; may change at any time.

One change holds all attempts of a run. It is opened by the snapshot of what was there, and closed when the outcome is
on the host. A change that is found open was interrupted: the next run puts the snapshot back, or finds it proven.
"""

from __future__ import annotations

import os
import time

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _adopted,
    _change_proof,
    _classes,
    _drift,
    _remembered,
    _snapshot,
    _unit_own,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import request_hash
from ansible_collections.gpufleet.sglang.plugins.module_utils._outcome import outcome
from ansible_collections.gpufleet.sglang.plugins.module_utils._proof import (
    LEASE_SECONDS,
    RUN_DIR,
    TAUGHT,
    Store,
    lease_refusal,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._service import describe, systemd_version
from ansible_collections.gpufleet.sglang.plugins.module_utils._step import values_of_proof

# Where the [Install] section of our unit puts its link.
WANTS_DIR = "/etc/systemd/system/multi-user.target.wants"


class Refused(Exception):
    """Something that must not be done; the message is one sentence with the way out."""


class Instance:
    """One instance on its host: its units, its files and what is remembered of it."""

    def __init__(
        self,
        run_command,
        name,
        unit,
        state_dir,
        adopt_unit=None,
        run_dir=RUN_DIR,
        proc_root="/proc",
        wants_dir=WANTS_DIR,
        unit_dirs=_drift.UNIT_DIRS,
    ):
        self.run_command = run_command
        self.name = name
        self.unit = unit
        self.adopt_unit = adopt_unit if adopt_unit != unit else None
        self.proc_root = proc_root
        self.wants_dir = wants_dir
        self.unit_dirs = unit_dirs
        self.store = Store(state_dir, name, run_dir)

    # looking

    def describe(self, unit):
        return describe(self.run_command, unit, self.proc_root)

    def inform(self, files=()):
        """Everything that ``server_info`` returns."""
        own = self.describe(self.unit)
        adopted = self.describe(self.adopt_unit) if self.adopt_unit else None
        if adopted:
            adopted["own_files"] = _unit_own.own_files(adopted, self.unit_dirs)
            adopted["refusal"] = _adopted.refusal(self.adopt_unit, adopted["running"])
            adopted["name_refusal"] = _unit_own.name_refusal(adopted, self.unit_dirs)
        proof = self.store.proof()
        attempts = self.store.attempts()
        drop_ins = _drift.drop_ins(self.unit, own["drop_in_paths"], self.unit_dirs)
        return {
            "instance": self.name,
            "unit": own,
            "adopted": adopted,
            "active": own["active"],
            "enabled": own["enabled"],
            "invocation_id": own["invocation_id"],
            "running": own["running"],
            "serving": self._serving(own, adopted),
            "proof": told(proof),
            "attempts": attempts,
            "measurements": self.store.taught("measurements"),
            "deaths": self.store.taught("deaths"),
            "remembered": self.remembered(),
            "open_change": self.store.change(),
            "open_change_is_proven": self._open_change_is_proven(proof, own),
            "backups": [self._backup(manifest) for manifest in self.store.backups()],
            "previous": self._previous(own),
            "last_proof": self._previous(own, proven=True),
            "ways_back": self._ways_back(own),
            "lease": self.store.lease(),
            "clients_away": self.store.away(),
            "drift": _drift.drift(proof, files, drop_ins),
            "drop_ins": drop_ins,
            "unit_text": _drift.text_of(own["fragment_path"]),
            "pending": _drift.pending(proof, own["invocation_id"]),
            "systemd_version": systemd_version(self.run_command),
        }

    def remembered(self):
        """What is remembered here, as lines for a person."""
        return _remembered.lines(self.store.taught("measurements"), self.store.taught("deaths"))

    def forget(self, what, check_mode=False):
        """Forget ``deaths``, ``measurements`` or ``all``. Raises Refused while a run holds the instance.

        :returns: ``{"forgotten": {"measurements": count, "deaths": count}, "before": [lines], "after": [lines]}``.
        """
        held = self.store.lease()
        if held:
            raise Refused(lease_refusal(self.name, held))
        names = sorted(TAUGHT) if what == "all" else [what]
        taught = {name: self.store.taught(name) for name in sorted(TAUGHT)}
        left = {name: [] if name in names else taught[name] for name in taught}
        forgotten = {name: len(taught[name]) - len(left[name]) for name in taught}
        if any(forgotten.values()) and not check_mode:
            self.store.forget(names)
        before = _remembered.lines(taught["measurements"], taught["deaths"])
        return {"forgotten": forgotten, "before": before, "after": _remembered.lines_left(before, **left)}

    def _serving(self, own, adopted):
        for record in (own, adopted):
            if record and record["active"]:
                return {"unit": record["name"], "port": record["running"].get("port")}
        return None

    def _previous(self, own, proven=False):
        """Name of the newest backup (of what was proven) in which this unit was something else than now, or None."""
        for manifest in reversed(self.store.backups()):
            if (_summary(manifest)["soaked"] or not proven) and not _is_as_now(manifest, own):
                return manifest["name"]
        return None

    def _backup(self, manifest):
        directory = os.path.join(self.store.backup_directory, manifest["name"])
        return dict(_summary(manifest), gone=_snapshot.gone(directory, manifest))

    def _ways_back(self, own):
        """What there is to go back to, one line a backup, the newest first."""
        found = reversed(self.store.backups())
        return [_snapshot.line(self._backup(manifest), _is_as_now(manifest, own)) for manifest in found]

    def _open_change_is_proven(self, proof, own):
        """The run that opened it stored its proof, and nothing else runs since. A host that was restarted before the
        proven unit was enabled runs nothing: what is proven has only to be started."""
        change = self.store.change()
        if not (change and proof and change.get("run_id") == proof.get("run_id")):
            return False
        return not own["active"] or own["running"].get("config_hash") == proof.get("config_hash")

    # the lease

    def take_lease(self, run_id, who, busy_seconds=0):
        """Raises Refused when another run holds the instance.

        :arg busy_seconds: how long the run may be busy with something that renews no lease.
        """
        held = self.store.take_lease(run_id, who, LEASE_SECONDS + busy_seconds)
        if held:
            raise Refused(lease_refusal(self.name, held))

    def check_lease(self, run_id):
        """Raises Refused when another run took the instance over: this one's lease expired meanwhile."""
        held = self.store.lease()
        if held and held.get("run_id") != run_id:
            raise Refused(lease_refusal(self.name, held))

    # opening a change

    def snapshot_needed(self):
        return self.store.change() is None

    def take_snapshot(self, run_id, files):
        """Keep what is there and open the change. Returns the manifest's summary."""
        now = time.time()
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        while os.path.exists(os.path.join(self.store.backup_directory, name)):
            name += "b"
        units = [self.describe(unit) for unit in (self.unit, self.adopt_unit) if unit]
        # Drop-ins of our own unit that were made by hand go with a change, also those of all names that begin alike.
        paths = set(files) | set(_drift.drop_ins(self.unit, units[0]["drop_in_paths"], self.unit_dirs))
        for record in units:
            paths.update(_unit_own.own_files(record, self.unit_dirs))
        only_read = {path for record in units for path in _unit_own.read_files(record, paths, self.unit_dirs)}
        # A candidate's drop-in is no part of what was there before.
        kept, read = ([path for path in sorted(group) if not _is_candidates(path)] for group in (paths, only_read))
        proof = self.store.proof()
        manifest = {
            "name": name,
            "at": now,
            "instance": self.name,
            "kind": _kind(units, proof),
            "units": [_unit_entry(record) for record in units],
            "proof": proof,
        }
        _snapshot.take(os.path.join(self.store.backup_directory, name), manifest, kept, read)
        self.store.open_change({"run_id": run_id, "at": now, "backup": name})
        return _summary(manifest)

    # the way back

    def find_backup(self, wanted):
        """The manifest that a way back leads to; None for the open change when none is open: nothing was replaced.

        :arg wanted: ``change`` (what the open change replaced), ``previous`` (the newest backup) or a backup's name.
        """
        manifests = {manifest["name"]: manifest for manifest in self.store.backups()}
        names = sorted(manifests)
        if wanted == "change":
            change = self.store.change()
            if change is None:
                return None
            wanted = change.get("backup")
        elif wanted == "previous":
            wanted = names[-1] if names else None
        if wanted not in manifests:
            raise Refused(
                "Expected a backup of the instance %s to go back to, found %s; "
                "choose one with sglang_server_rollback_to."
                % (self.name, "these: " + ", ".join(names) if names else "none")
            )
        return manifests[wanted]

    def plan_back(self, manifest):
        """What putting a backup back means for each unit: what it was (``exists``, ``active``, ``enabled``, ``host``,
        ``port``), whether it has to ``stop``, and whether it is ``kept`` as it runs."""
        steps = []
        changed = _snapshot.differences(manifest)
        for before in manifest["units"]:
            now = self.describe(before["name"])
            state = dict(now["running"], active=now["active"], invocation_id=now["invocation_id"])
            same = _snapshot.unit_still_runs(before, state, changed)
            steps.append(
                {
                    "name": before["name"],
                    "exists": bool(before["fragment_path"]),
                    "active": before["active"],
                    "enabled": before["enabled"],
                    "host": before.get("host"),
                    "port": before.get("port"),
                    "stop": now["active"] and not same,
                    "kept": same,
                }
            )
        return steps

    def put_back(self, manifest):
        """Files and proof as they were. Returns the paths that changed.

        The proof goes first: interrupted behind it, the change is still open and not proven, so it is gone back again.
        """
        changed = []
        if self.store.proof() != manifest["proof"]:
            self.store.write_proof(manifest["proof"])
            changed.append(os.path.join(self.store.directory, "proof.json"))
        self._forget_enablement(manifest)
        return _snapshot.put_back(os.path.join(self.store.backup_directory, manifest["name"]), manifest) + changed

    def _forget_enablement(self, manifest):
        """A unit whose file goes would leave the link behind by which it starts at boot."""
        for before in manifest["units"]:
            link = os.path.join(self.wants_dir, before["name"])
            if not before["fragment_path"] and os.path.islink(link):
                os.unlink(link)

    # judging and closing

    def judge(self, run_id, number, step, plan, ready, soak, request, files, clients=(), host=None):
        """Judge one attempt, append it to the memory, and store the proof when it is one. Returns the attempt."""
        proof = self.store.proof() or {}
        values = step.get("values") or {}
        carried = step.get("class") == _classes.RESTART_READY and bool(proof.get("soaked"))
        attempt = _change_proof.attempt_of(
            time.time(), run_id, number, step, plan, ready, soak, request, carried, clients
        )
        self.store.append_attempt(attempt)
        # Only what is kept is masked: an unchanged second start needs the values as they are.
        attempt = dict(attempt, values=values)
        if attempt["verdict"] in ("proven", "holds"):
            load = proof if carried and not soak else (attempt["soak"] or {})
            new = _change_proof.proof_of(self.name, self.unit, attempt, values, request, plan, load, host)
            self.store.write_proof(dict(new, files=_sums(files)))
        return attempt

    def measure(self, run_id, ready, soak, clients=(), host=None):
        """Remember a load on what runs and has a proof; what was declared then stays. Returns the attempt."""
        proof = self.store.proof()
        if not proof:
            raise Refused("Expected a record of the instance %s, found none; deploy it first." % self.name)
        step = {"action": "prove", "values": values_of_proof(proof), "class": _classes.NOTHING}
        plan = _change_proof.plan_of_proof(proof)
        attempt = _change_proof.attempt_of(time.time(), run_id, 1, step, plan, ready, soak, {}, clients=clients)
        attempt["request_hash"] = proof.get("request_hash")
        self.store.append_attempt(attempt)
        self.store.write_proof(_change_proof.loaded_proof(proof, attempt, host))
        return attempt

    def apply(self, run_id, step, request, files):
        """Remember files that were written beside the proof that is there, without a restart. Returns what waits."""
        proof = self.store.proof()
        if not proof:
            raise Refused("Expected a proof of the instance %s, found none; deploy it first." % self.name)
        own = self.describe(self.unit)
        waiting = sorted(set(_drift.pending(proof, own["invocation_id"])) | set(step.get("pending") or []))
        proof.update(
            run_id=run_id,
            request_hash=request_hash(request),
            request_digests=_classes.request_digests(request),
            files=_sums(files),
            pending={"invocation_id": own["invocation_id"], "items": waiting},
        )
        self.store.write_proof(proof)
        return waiting

    def outcome(self, step, attempts, back):
        """What the run came to; see ``_outcome.outcome``."""
        own = self.describe(self.unit)
        adopted = self.describe(self.adopt_unit) if self.adopt_unit else None
        proof = self.store.proof()
        waiting = _drift.pending(proof, own["invocation_id"])
        return outcome(self.name, step, attempts, back, self._serving(own, adopted), proof, waiting)

    def close(self, run_id, keep):
        """Close the change, drop old backups, and those that were only begun, free the lease. True when it was open."""
        closed = self.store.close_change()
        if closed:
            # The first baseline is what a person made: it can be made by nobody else again.
            baselines = [manifest["name"] for manifest in self.store.backups() if manifest["kind"] == "baseline"]
            self.store.prune_backups(keep, protected=baselines[:1])
        self.store.remove_half_made_backups()
        self.store.release_lease(run_id)
        return closed


def told(proof):
    """A proof as it is returned: its files without their sums. One of them holds keys, and a sum confirms a guess."""
    return dict(proof, files=sorted(proof.get("files") or ())) if proof else None


def _is_as_now(manifest, own):
    """Was this unit what it is now? A key, or a line of the unit, is in no hash of a configuration."""
    before = manifest["units"][0]
    now = (own["active"], own["running"].get("config_hash"))
    return (before["active"], before.get("config_hash")) == now and not _snapshot.differences(manifest)


def _is_candidates(path):
    return os.path.basename(path) == _drift.CANDIDATE_DROP_IN


def _sums(files):
    return {path: _snapshot.sha256_of(path) for path in files}


def _kind(units, proof):
    if proof and units[0]["running"].get("config_hash") == proof.get("config_hash"):
        return "proof"
    return "baseline" if any(record["exists"] for record in units) else "empty"


def _unit_entry(record):
    entry = {name: record[name] for name in ("name", "active", "enabled", "invocation_id", "fragment_path")}
    entry.update({name: record["running"].get(name) for name in ("config_hash", "host", "port")})
    return entry


def _summary(manifest):
    """A backup in one line: what a person needs to choose it."""
    proof = manifest.get("proof") or {}
    return {
        "name": manifest["name"],
        "kind": manifest["kind"],
        "soaked": manifest["kind"] == "proof" and bool(proof.get("soaked")),
        "fraction": proof.get("fraction"),
        "pool_tokens": proof.get("pool_tokens"),
        "engine_version": proof.get("engine_version"),
        "serving": [unit["name"] for unit in manifest["units"] if unit["active"]],
    }
