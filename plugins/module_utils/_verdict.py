# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: judging. Verdict of a start-up and of an attempt, and the next step as data.

Private to the gpufleet.sglang collection; may change at any time.

Everything here is pure: dictionaries in, dictionaries out. Nothing fails for a verdict; the role's last task does.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._failures import MEMORY_KINDS
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import config_hash, request_hash

# Ends of a start-up that say nothing about the configuration: the server is left as it is, neither enabled nor taken
# back. A soak that proved nothing is no such end: what served before was proven.
LEFT_RUNNING_KINDS = ("no_evidence",)

# Ends of a start-up in which device memory ran out; the direction tells which way the fraction has to move.
VERDICT_BY_DIRECTION = {"lower": "unsafe", "raise": "short"}


def judge_ready(startup, failure, target_tokens=None, min_headroom_gib=None):
    """Judge a start-up that is over: ready, or dead.

    :arg startup: start-up record of ``_startup`` as a dictionary (``pool_tokens``, ``headroom_gib`` in GiB, ...).
    :arg failure: failure of ``_failures`` as a dictionary, or None when the server came up and answered.
    :arg target_tokens: promised pool tokens per DP rank, or None when nothing was promised.
    :arg min_headroom_gib: floor of the headroom at ready in GiB, or None for no floor.
    :returns: ``{"verdict": "holds" | "short" | "unsafe" | "failed", "reason": one sentence}``.
    """
    if failure and failure["kind"] in LEFT_RUNNING_KINDS:
        return {"verdict": "failed", "reason": "Nothing is proven: %s" % (failure.get("evidence") or "").strip()}
    if failure:
        return {
            "verdict": "failed",
            "reason": "The server did not come up: %s (%s)."
            % (failure["kind"], (failure.get("evidence") or "").strip()),
        }
    pool = startup.get("pool_tokens")
    if pool is None:
        return {"verdict": "failed", "reason": "No witness told the pool of this start-up, so nothing is proven."}
    if target_tokens is not None and pool < target_tokens:
        return {
            "verdict": "short",
            "reason": "The pool holds %d tokens, %d short of the target of %d."
            % (pool, target_tokens - pool, target_tokens),
        }
    headroom = startup.get("headroom_gib")
    if min_headroom_gib is not None and headroom is None:
        return {
            "verdict": "failed",
            "reason": "The start-up does not tell its headroom, so the floor of %.2f GiB is not proven."
            % min_headroom_gib,
        }
    if min_headroom_gib is not None and headroom < min_headroom_gib:
        return {
            "verdict": "unsafe",
            "reason": "The headroom at ready is %.2f GiB, under the floor of %.2f GiB." % (headroom, min_headroom_gib),
        }
    promise = "" if target_tokens is None else " of the %d promised" % target_tokens
    return {"verdict": "holds", "reason": "The pool holds %d tokens%s." % (pool, promise)}


def judge_attempt(ready, soak):
    """Judge an attempt from the results of ``server_ready`` and ``server_soak``.

    :arg ready: result of ``server_ready``.
    :arg soak: result of ``server_soak``; empty when the soak did not run.
    :returns: ``{"verdict": proven | holds | short | unsafe | failed, "reason": one sentence, "failure": dict | None}``.
        ``holds`` is the end of an attempt only when the soak was switched off.
    """
    failure = ready.get("failure") or (soak or {}).get("failure")
    if failure and failure.get("kind") in MEMORY_KINDS and failure.get("direction") in VERDICT_BY_DIRECTION:
        return {
            "verdict": VERDICT_BY_DIRECTION[failure["direction"]],
            "reason": "Memory ran out in phase %s: %s"
            % (failure.get("phase") or "unknown", (failure.get("evidence") or "").strip()),
            "failure": failure,
        }
    if ready.get("verdict") != "holds":
        return {"verdict": ready.get("verdict") or "failed", "reason": ready.get("reason") or "", "failure": failure}
    if not soak:
        return {
            "verdict": "holds",
            "reason": "%s No load was put on it." % (ready.get("reason") or ""),
            "failure": None,
        }
    return {"verdict": soak.get("verdict") or "failed", "reason": soak.get("reason") or "", "failure": failure}


def measurement(ready, soak, plan, values):
    """What one attempt teaches, in the shape that ``memory_plan`` takes back; None when the pool is not known.

    :arg values: the configuration that ran. A proven one may run while the plan of the day would choose another.
    """
    startup = ready.get("startup") or {}
    if startup.get("pool_tokens") is None:
        return None
    taught = (
        "pool_tokens",
        "free_before_load_gib",
        "free_after_load_gib",
        "weights_gib",
        "kv_gib",
        "headroom_gib",
        "graph_gib",
    )
    result = {name: startup.get(name) for name in taught}
    least = [value for value in ((soak or {}).get("least_free_gib") or {}).values() if value is not None]
    arguments = values.get("arguments") or {}
    result.update(
        origin="host",
        keys=plan.get("quantity_keys") or {},
        engine_version=plan.get("engine_version"),
        fraction=values.get("fraction"),
        cap_tokens=values.get("cap_tokens"),
        cell_bytes=plan.get("cell_bytes"),
        chunked_prefill_size=startup.get("chunked_prefill_size") or arguments.get("chunked-prefill-size"),
        least_free_gib=min(least) if least else None,
        plan_free_gib=plan.get("plan_free_gib"),
    )
    return result


def death(failure, plan, startup):
    """An out-of-memory end as *reserve needed* in GiB, or None when it was no such end or its figures are not known.

    Reserve needed = free before load - weights - pool bytes at the death + what was wanted and not there.
    """
    if not failure or failure.get("direction") != "lower" or failure.get("kind") not in MEMORY_KINDS:
        return None
    figures = failure.get("figures") or {}
    wanted_mib, free_mib = figures.get("wanted_mib"), figures.get("free_mib")
    before = startup.get("free_before_load_gib")
    weights = startup.get("weights_gib")
    pool_gib = startup.get("kv_gib")
    if None in (wanted_mib, before, weights, pool_gib):
        return None
    missing_gib = max(wanted_mib - (free_mib or 0.0), 0.0) / 1024.0
    return {
        "reserve_needed_gib": round(before - weights - pool_gib + missing_gib, 3),
        "kind": failure["kind"],
        "phase": failure.get("phase"),
        "direction": failure["direction"],
        "wanted_gib": round(wanted_mib / 1024.0, 3),
        "at": failure.get("at"),
        "figures": figures,
        "keys": plan.get("quantity_keys") or {},
        "reason": "%s in phase %s wanted %.0f MiB with %.0f MiB free."
        % (failure["kind"], failure.get("phase"), wanted_mib, free_mib or 0.0),
    }


def _step(action, reason, values=None):
    return {"action": action, "values": values or {}, "reason": reason}


def values_of_plan(plan, engine_version):
    """The configuration that a plan proposes, complete with the hash by which a restart is decided."""
    arguments = plan.get("arguments") or {}
    environment = plan.get("environment") or {}
    return {
        "arguments": arguments,
        "environment": environment,
        "fraction": plan.get("fraction"),
        "cap_tokens": plan.get("cap_tokens"),
        "config_hash": config_hash(arguments, environment, engine_version),
    }


def next_step(plan, server, attempts, settings):
    """The next step of an instance, decided from the plan, from what is there and from what was tried.

    :arg plan: result of ``memory_plan`` (``feasible``, ``refusal``, ``arguments``, ``environment``, ...).
    :arg server: result of ``server_info``.
    :arg attempts: judged attempts of this run, oldest first; empty before the first one.
    :arg settings: ``request`` (everything the user declared), ``max_attempts``, ``engine_version``,
        ``problems`` (sentences about arguments that this engine does not accept), ``when_not_proven`` (restore | keep |
        stop), ``soak_wanted``, ``look_only``.
    :returns: ``{"action": keep | prove | try | back | refuse | done, "values": {...}, "reason": one sentence}``.
    """
    if attempts:
        return _step_after(plan, attempts, settings)
    return _first_step(plan, server, settings)


def _first_step(plan, server, settings):
    problems = settings.get("problems") or []
    if problems:
        return _step("refuse", " ".join(problems))
    engine_version = settings.get("engine_version")
    proof = server.get("proof") or {}
    if proof and proof.get("request_hash") == request_hash(settings.get("request") or {}):
        return _step_with_proof(proof, server, settings)
    if plan.get("refusal"):
        return _step("refuse", plan["refusal"])
    if plan.get("feasible") is None and settings.get("look_only"):
        needed = ", ".join(plan.get("missing") or ["more than it was given"])
        return _step(
            "try",
            "No proof for what is declared; the plan still needs %s." % needed,
            values_of_plan(plan, engine_version),
        )
    if plan.get("feasible") is None and not settings.get("allow_unproven_plan"):
        return _step(
            "refuse",
            "The plan needs %s, which is not known; give it as a variable, "
            "or set sglang_server_allow_unproven_plan: true."
            % ", ".join(plan.get("missing") or ["more than it was given"]),
            values_of_plan(plan, engine_version),
        )
    return _step("try", plan.get("reason") or "No proof for what is declared.", values_of_plan(plan, engine_version))


def _step_with_proof(proof, server, settings):
    values = {name: proof.get(name) for name in ("arguments", "environment", "fraction", "cap_tokens", "config_hash")}
    running = server.get("running") or {}
    if not server.get("active") or running.get("config_hash") != proof.get("config_hash"):
        return _step("try", "The proven configuration is not the one that runs.", values)
    if server.get("invocation_id") != proof.get("invocation_id"):
        return _step("prove", "The proven configuration runs, in a start-up that was not proven yet.", values)
    if settings.get("soak_wanted") and not proof.get("soaked"):
        return _step("prove", "The configuration runs and holds; it was never put under load.", values)
    return _step("keep", "The proven configuration runs in the start-up that was proven.", values)


def _back(reason, last, settings):
    """The way back, or what the user wants in its place when nothing could be proven."""
    wanted = settings.get("when_not_proven") or "restore"
    if wanted == "keep" and last["verdict"] == "short":
        return _step("done", "%s It serves on, as sglang_server_when_not_proven: keep asks." % reason)
    return _step("back", reason, {"stop": wanted == "stop"})


def _step_after(plan, attempts, settings):
    last = attempts[-1]
    verdict = last["verdict"]
    failure = last.get("failure") or {}
    if verdict in ("proven", "holds"):
        return _step("done", last.get("reason") or verdict)
    if failure.get("kind") in LEFT_RUNNING_KINDS and not last.get("soak"):
        return _step("done", last.get("reason") or "Nothing told the pool of this start-up.")
    limit = settings.get("max_attempts") or 3
    if len(attempts) >= limit:
        return _back("All %d attempts are used up; the last one: %s" % (limit, last.get("reason")), last, settings)
    if verdict == "failed":
        return _step_after_failure(last, failure, attempts, settings)
    if plan.get("refusal") or not plan.get("feasible"):
        why = plan.get("refusal") or "No other fraction can hold it."
        return _back("%s %s" % (last.get("reason"), why), last, settings)
    values = values_of_plan(plan, settings.get("engine_version"))
    if values["config_hash"] in [attempt.get("config_hash") for attempt in attempts]:
        return _back("%s The plan has no other values to offer." % last.get("reason"), last, settings)
    return _step("try", "%s Next: fraction %s." % (last.get("reason"), values["fraction"]), values)


def _step_after_failure(last, failure, attempts, settings):
    retried = len(attempts) > 1 and attempts[-2].get("config_hash") == last.get("config_hash")
    if failure.get("transient") and not retried:
        return _step(
            "try", "%s This can pass: one more start, unchanged." % last.get("reason"), last.get("values") or {}
        )
    return _back(last.get("reason") or "The server did not come up.", last, settings)
