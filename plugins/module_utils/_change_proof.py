# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: a change of an instance, what is written down of it: the attempt, the proof, and a load on what runs already.

Private to the gpufleet.sglang collection; may change at any time.

Pure: dictionaries in, dictionaries out.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _classes, _clients, _verdict
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import request_hash
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data

# What of a plan a proof keeps by itself, so that a later load is held against the same floors.
FLOORS = ("min_headroom_gib", "min_least_free_gib")


def attempt_of(at, run_id, number, step, plan, ready, soak, request, carried=False, clients=()):
    """One configuration that was tried, with its verdict; ``values`` are masked like everything else.

    ``step`` is why it was tried and what had changed, ``request`` what was declared. What was decided behind it is
    added when its run is closed, see ``_decided``.

    :arg at: seconds since the epoch.
    :arg carried: nothing that matters to memory changed since a load was survived, see ``_verdict.judge_attempt``.
    :arg clients: who was connected while the load ran, see ``_clients.seen``.
    """
    judged = _verdict.judge_attempt(ready, soak, carried)
    startup = ready.get("startup") or {}
    pools = ready.get("pools") or {}
    values = step.get("values") or {}
    beside = [_clients.beside(clients)] if soak and clients else []
    return mask_data(
        {
            "at": at,
            "run_id": run_id,
            "number": number,
            "verdict": judged["verdict"],
            "reason": judged["reason"],
            "failure": judged["failure"],
            "values": values,
            "action": step.get("action"),
            "step": {"reason": step.get("reason"), "changes": list(step.get("changes") or ())},
            "class": step.get("class"),
            "config_hash": values.get("config_hash"),
            "request_hash": request_hash(request) if request else None,
            "request": request,
            "predicted": _predicted(plan, values),
            "startup": startup,
            "headroom": _verdict.headroom_of(ready),
            "pools": {name: pools.get(name) for name in ("dp_size", "total_tokens", "least")},
            "notices": _verdict.notices_of(ready) + beside,
            "soak": dict(soak, shared=bool(clients)) if soak else soak,
            "clients": list(clients or ()),
            "invocation_id": ready.get("invocation_id"),
            "seconds": {
                name: ready.get(name)
                for name in ("waited_seconds", "seconds_after_ready_line", "seconds_after_fatal_line")
            },
            "measurement": _verdict.measurement(ready, soak, plan, values),
            "death": _verdict.death(judged["failure"], plan, startup),
        }
    )


def proof_of(instance, unit, attempt, values, request, plan, load, host=None):
    """The proof of an attempt that is one, without the sums of its files.

    ``soaked`` is false for one that was never put under load: it serves as a way back and proves nothing for others.

    :arg values: the configuration, not masked.
    :arg load: the soak of the attempt, the proof whose load is carried on, or empty.
    :arg host: ``{"driver_version", "packages", "gpus"}`` of the host as it was then.
    """
    proof = {
        "at": attempt["at"],
        "run_id": attempt["run_id"],
        "instance": instance,
        "unit": unit,
        "soaked": bool(load),
        "soaked_invocation_id": load.get("soaked_invocation_id") or (attempt["invocation_id"] if load else None),
        "shared": bool(load.get("shared")),
        "invocation_id": attempt["invocation_id"],
        "config_hash": attempt["config_hash"],
        "request_hash": attempt["request_hash"],
        "request_digests": _classes.request_digests(request),
        "request": mask_data(request),
        "arguments": values.get("arguments"),
        "environment": values.get("environment"),
        "fraction": values.get("fraction"),
        "cap_tokens": values.get("cap_tokens"),
        "target_tokens": request.get("target_tokens"),
        "engine_version": plan.get("engine_version"),
        "host": host or {},
    }
    proof.update({name: plan.get(name) for name in FLOORS})
    return dict(proof, **_measured(attempt, load, request.get("target_tokens")))


def _measured(attempt, load, target_tokens):
    startup = attempt["startup"]
    return {
        "pool_tokens": startup.get("pool_tokens"),
        "pool_floor_tokens": _pool_floor_tokens(startup.get("pool_tokens"), target_tokens),
        "pools": attempt["pools"],
        "headroom_gib": attempt["headroom"]["gib"],
        "headroom_where": attempt["headroom"]["where"],
        "least_free_gib": load.get("least_free_gib"),
        "filled_share": load.get("filled_share"),
        "load_seconds": startup.get("load_seconds"),
        "measurement": attempt["measurement"],
    }


def plan_of_proof(proof):
    """What a proof knows of its plan, for a load on what it proved: keys and figures of the measurement, floors."""
    measured = proof.get("measurement") or {}
    plan = {name: measured.get(name) for name in ("cell_bytes", "plan_free_gib")}
    plan.update({name: proof.get(name) for name in FLOORS})
    return dict(plan, engine_version=proof.get("engine_version"), quantity_keys=measured.get("keys") or {})


def loaded_proof(proof, attempt, host=None):
    """A proof after one more load on the configuration that it proves; what was declared then stays.

    A load that it did not survive takes the word of the former one back. One that showed nothing changes nothing, and
    so does one that failed on a server that lives: a request that was refused is no death.
    """
    soak = attempt["soak"] or {}
    if attempt["verdict"] == "proven":
        proof = dict(proof, **_measured(attempt, soak, proof.get("target_tokens")))
        return dict(
            proof,
            at=attempt["at"],
            run_id=attempt["run_id"],
            soaked=True,
            soaked_invocation_id=attempt["invocation_id"],
            invocation_id=attempt["invocation_id"],
            shared=bool(soak.get("shared")),
            host=host or proof.get("host") or {},
        )
    showed_nothing = attempt["verdict"] == "failed" and not (attempt["failure"] or {}).get("fatal")
    if not soak or showed_nothing or attempt["verdict"] == "holds":
        return proof
    return dict(proof, soaked=False)


def _pool_floor_tokens(pool_tokens, target_tokens):
    """Pool from which a later start-up of the same configuration is accepted as the same: its promise. Without one
    it is 2% under what was measured, because two starts of one configuration differ by their noise."""
    if pool_tokens is None:
        return None
    return min(pool_tokens, int(target_tokens)) if target_tokens else int(pool_tokens * 0.98)


def _predicted(plan, values):
    """What the plan said of the configuration that ran; nothing when a proof ran and the plan chose another."""
    names = ("predicted_tokens", "predicted_tokens_low", "predicted_headroom_gib")
    same = plan.get("fraction") == values.get("fraction")
    return {name: plan.get(name) if same else None for name in names}
