# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the next step, as data. Decided from the plan, from what is on the host and from what was tried.

Private to the gpufleet.sglang collection; may change at any time.

Everything here is pure. Nothing fails for a verdict; the role's last task does.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _classes
from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_explain import missing_text, paste
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import config_hash
from ansible_collections.gpufleet.sglang.plugins.module_utils._outcome import restarted, sentences
from ansible_collections.gpufleet.sglang.plugins.module_utils._verdict import LEFT_RUNNING_KINDS

# What a plan moves, by group of a configuration, as a sentence names it. Nothing else of it is ever told: an argument
# may be a secret.
FRACTION = "fraction"
LEVER_WORDS = {
    "arguments": {
        "mem-fraction-static": FRACTION,
        "max-total-tokens": "cap",
        "chunked-prefill-size": "prefill chunk",
        "cuda-graph-max-bs": "decode graph batch",
        "cuda-graph-max-bs-decode": "decode graph batch",
    },
    "environment": {"PYTORCH_ALLOC_CONF": "allocator", "PYTORCH_CUDA_ALLOC_CONF": "allocator"},
}

# What a configuration is, as a step carries it and a proof keeps it.
VALUES = ("arguments", "environment", "fraction", "cap_tokens", "config_hash")


def step(action, reason, values=None, change=None):
    """A step. ``class`` says what the change costs, see ``_classes``; ``pending`` what waits for the next restart."""
    change = change or _classes.Change()
    return {
        "action": action,
        "values": values or {},
        "reason": reason,
        "class": change.change_class,
        "changes": [item for _found, item in change.items],
        "pending": change.of(_classes.PENDING),
    }


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


def values_of_proof(proof):
    """The configuration that a proof keeps."""
    return {name: proof.get(name) for name in VALUES}


def carried_values(proof, request, engine_version):
    """The proven configuration with what is declared now: what the plan had added to it is kept as it was proven."""
    merged = {}
    for group in ("arguments", "environment"):
        prefix = group + "."
        declared_then = {name[len(prefix) :] for name in proof.get("request_digests") or {} if name.startswith(prefix)}
        planned = {name: value for name, value in (proof.get(group) or {}).items() if name not in declared_then}
        merged[group] = dict(request.get(group) or {}, **planned)
    merged["config_hash"] = config_hash(merged["arguments"], merged["environment"], engine_version)
    return dict(values_of_proof(proof), **merged)


def next_step(plan, server, attempts, settings):
    """The next step of an instance, decided from the plan, from what is there and from what was tried.

    :arg plan: result of ``memory_plan`` (``feasible``, ``is_open``, ``works``, ``refusal``, ``arguments``,
        ``environment``, ...).
    :arg server: result of ``server_info``.
    :arg attempts: judged attempts of this run, oldest first; empty before the first one.
    :arg settings: ``request`` (everything the user declared), ``max_attempts``, ``engine_version``,
        ``problems`` (sentences about arguments that this engine does not accept), ``when_not_proven`` (restore | keep |
        stop), ``soak_wanted``, ``look_only``, ``unit_text`` (the unit as it would be written with the proven
        configuration), ``overwrite_drift``, ``restart_pending``.
    :returns: ``{"action": keep | apply | prove | try | back | refuse | done, "values": {...}, "reason": one sentence,
        "class": see _classes, "changes": [...], "pending": [...]}``.
    """
    if attempts:
        return _step_after(plan, attempts, settings)
    return _first_step(plan, server, settings)


def _first_step(plan, server, settings):
    problems = settings.get("problems") or []
    if problems:
        return step("refuse", " ".join(problems))
    unit = server.get("unit") or {}
    if str(unit.get("unit_file_state")).startswith("masked"):
        return step("refuse", _masked_sentence(unit.get("name")))
    drift = server.get("drift") or []
    if drift and not settings.get("overwrite_drift"):
        return step("refuse", _drift_sentence(drift))
    proof = server.get("proof") or {}
    if proof:
        request = settings.get("request") or {}
        change = _classes.together(
            _classes.request_change(proof.get("request_digests") or {}, _classes.request_digests(request)),
            _classes.unit_change(server.get("unit_text"), settings.get("unit_text")),
            _classes.keys_change(server.get("keys_differ")),
        )
        found = _step_with_proof(proof, server, change, settings)
        return found or _step_of_plan(plan, settings, change, "Changed since the proof: %s. " % _listed(change))
    return _step_of_plan(plan, settings, _classes.change_of([(_classes.RESTART_SOAK, "no proof")]))


def _masked_sentence(unit):
    return (
        "Expected %s to be a unit that may start, found it masked by somebody; run systemctl unmask %s on the host "
        "when it is to serve again." % (unit, unit)
    )


def _drift_sentence(drift):
    return (
        "Expected the files as they were proven, found changes made by hand in %s; put them into variables (directives "
        "of the unit into sglang_server_unit_extra) and set sglang_server_overwrite_drift: true for one run, which "
        "writes the declared files and keeps a backup of these." % ", ".join(drift)
    )


def _step_of_plan(plan, settings, change, why=""):
    engine_version = settings.get("engine_version")
    if plan.get("refusal"):
        return step("refuse", plan["refusal"])
    missing = plan.get("missing") or ["more than it was given"]
    if plan.get("feasible") is None and settings.get("look_only") and "cell_bytes" not in missing:
        return step(
            "try",
            why + "No proof for what is declared; the plan still needs %s." % missing_text(missing),
            values_of_plan(plan, engine_version),
            change,
        )
    if plan.get("feasible") is None and not settings.get("allow_unproven_plan"):
        if "cell_bytes" in missing:  # the layout was looked at, nothing that comes later makes it known
            return step("refuse", plan.get("explanation") or plan.get("reason"), values_of_plan(plan, engine_version))
        return step(
            "refuse",
            "The plan needs %s, which is not known; give it as a variable, "
            "or set sglang_server_allow_unproven_plan: true." % missing_text(missing),
            values_of_plan(plan, engine_version),
        )
    reason = plan.get("reason") or "No proof for what is declared."
    return step("try", why + reason, values_of_plan(plan, engine_version), change)


def _step_with_proof(proof, server, change, settings):
    """The step of an instance that has a proof; None when what is declared asks for a new plan."""
    if change.change_class == _classes.RESTART_SOAK:
        return None
    if change.change_class == _classes.RESTART_READY and settings.get("soak_wanted") and not proof.get("soaked"):
        # There is no load that could be carried over.
        change = _classes.together(change, _classes.change_of([(_classes.RESTART_SOAK, "never put under load")]))
    if change.change_class in (_classes.RESTART_READY, _classes.RESTART_SOAK):
        values = carried_values(proof, settings.get("request") or {}, settings.get("engine_version"))
        return step("try", "Changed: %s. That cannot matter to memory." % _listed(change), values, change)
    values = values_of_proof(proof)
    running = server.get("running") or {}
    if not server.get("active") or running.get("config_hash") != proof.get("config_hash"):
        return step("try", "The proven configuration is not the one that runs.", values, change)
    same_start = server.get("invocation_id") == proof.get("invocation_id")
    if server.get("drift") and not same_start:
        reason = "Files were changed by hand, and what runs is another start than the one that was proven."
        return step("try", reason, values, change)
    if not same_start:
        return step("prove", "The proven configuration runs, in a start-up that was not proven yet.", values, change)
    if settings.get("soak_wanted") and not proof.get("soaked"):
        return step("prove", "The configuration runs and holds; it was never put under load.", values, change)
    return _step_that_runs(server, change, settings, values)


def _step_that_runs(server, change, settings, values):
    """The proven start-up runs: at most files have to be written."""
    waiting = sorted(set(server.get("pending") or []) | set(change.of(_classes.PENDING)))
    if waiting and settings.get("restart_pending"):
        forced = _classes.change_of([(_classes.RESTART_READY, item) for item in waiting])
        named = ", ".join(_classes.label(item) for item in waiting)
        reason = "Restarted for %s, as sglang_server_restart_pending: true asks." % named
        return step("try", reason, values, forced)
    if server.get("drift"):
        return step("apply", "Changed by hand and overwritten: %s." % ", ".join(server["drift"]), values, change)
    if change.change_class == _classes.NOTHING:
        return step("keep", "The proven configuration runs in the start-up that was proven.", values, change)
    return step("apply", "Changed: %s. No restart is needed for it." % _listed(change), values, change)


def _listed(change):
    return ", ".join(_classes.label(item) for _found, item in change.items)


def _back(reason, last, settings):
    """The way back, or what the user wants in its place when nothing could be proven."""
    wanted = settings.get("when_not_proven") or "restore"
    if wanted == "keep" and _serves_short(last):
        return step("done", sentences(reason, "It serves on, as sglang_server_when_not_proven: keep asks."))
    return step("back", reason, {"stop": wanted == "stop"})


def _serves_short(attempt):
    """Whether the server of an attempt is up, with a pool under the promise. A death of memory may be short too."""
    ready = (attempt.get("startup") or {}).get("state") == "ready"
    return attempt["verdict"] == "short" and ready and not attempt.get("failure")


def _step_after(plan, attempts, settings):
    last = attempts[-1]
    verdict = last["verdict"]
    failure = last.get("failure") or {}
    if verdict in ("proven", "holds"):
        return step("done", last.get("reason") or verdict)
    if failure.get("kind") in LEFT_RUNNING_KINDS and not last.get("soak"):
        return step("done", last.get("reason") or "Nothing told the pool of this start-up.")
    limit = settings.get("max_attempts") or 3
    # What was proven as it ran cost no restart.
    used_up = len([attempt for attempt in attempts if restarted(attempt)]) >= limit
    if verdict == "failed":
        if used_up:
            return _back(_used_up(limit, last), last, settings)
        return _step_after_failure(last, failure, attempts, settings)
    values = values_of_plan(plan, settings.get("engine_version"))
    dead_end = _dead_end(plan, last, attempts, values)
    if used_up:
        more = dead_end or "The next run begins with %s." % _named(last, values)
        return _back(sentences(_used_up(limit, last), more), last, settings)
    if dead_end:
        return _back(sentences(last.get("reason"), dead_end), last, settings)
    change = _classes.change_of([(_classes.RESTART_SOAK, "fraction")])
    return step("try", sentences(last.get("reason"), "Next: %s." % _named(last, values)), values, change)


def _used_up(limit, last):
    """That no attempt is left, and what the last one came to."""
    if limit == 1:
        return "The one attempt is used up: %s" % last.get("reason")
    return "All %d attempts are used up; the last one: %s" % (limit, last.get("reason"))


def _named(last, values):
    """The next configuration by what it moves, in words."""
    moved = moved_levers(last.get("values") or {}, values)
    return ", ".join("%s %s" % pair for pair in moved.items()) or "fraction %s" % values["fraction"]


def _dead_end(plan, last, attempts, values):
    """Why no other configuration is tried, with values that work or what fits, where that is known; None when one is.

    :arg last: the last attempt, ``short`` or ``unsafe``. :arg values: those of the plan that was made behind it.
    """
    if plan.get("refusal"):
        return plan["refusal"]
    if not (plan.get("feasible") or plan.get("is_open")):
        if plan.get("works"):
            return "What is declared is not moved; what works is %s." % paste(plan["works"])
        return "No other fraction can hold it."
    if values["config_hash"] in [attempt.get("config_hash") for attempt in attempts]:
        return "The plan has no other values to offer."
    moved = moved_levers(last.get("values") or {}, values)
    if last["verdict"] == "unsafe" and list(moved) == [FRACTION] and _was_capped(last, values):
        return "The cap held the pool at %s tokens already, so another fraction alone changes nothing." % (
            f"{values['cap_tokens']:,}"
        )
    return None


def moved_levers(before, after):
    """The levers that differ between two configurations, as {lever in words: its new value}, the fraction first.

    :arg before: ``values`` of the attempt that was judged; empty when they are not known, then nothing is told.
    :arg after: ``values`` of the next one.
    """
    moved = {}
    for group, words in LEVER_WORDS.items() if before else ():
        old, new = before.get(group) or {}, after.get(group) or {}
        for name, word in words.items():
            if old.get(name) != new.get(name):
                moved[word] = "left to the engine" if new.get(name) is None else new[name]
    return moved


def _was_capped(last, values):
    """Whether the pool of the last attempt stood at the cap that the next one has too."""
    pool, cap = (last.get("startup") or {}).get("pool_tokens"), values.get("cap_tokens")
    return bool(cap) and pool == cap == (last.get("values") or {}).get("cap_tokens")


def _step_after_failure(last, failure, attempts, settings):
    retried = len(attempts) > 1 and attempts[-2].get("config_hash") == last.get("config_hash")
    if failure.get("transient") and not retried:
        change = _classes.change_of([(last.get("class") or _classes.RESTART_SOAK, "a failure that can pass")])
        reason = sentences(last.get("reason"), "This can pass: one more start, unchanged.")
        return step("try", reason, last.get("values") or {}, change)
    return _back(last.get("reason") or "The server did not come up.", last, settings)
