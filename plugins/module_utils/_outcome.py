# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: the outcome of a run for one instance, in data and in the sentences that a person gets.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._verdict import notices_of, of_ranks

# What a way back ended in, by what its start-up showed. STOPPED: nothing had served before. ASKED: what had served is
# stopped, as sglang_server_when_not_proven: stop asks. Where nothing was replaced there was no way back: None.
RESTORED, DEGRADED, STOPPED, DOWN, ASKED = "restored", "restored_degraded", "stopped", "down", "stopped_as_asked"


def surprise(task, result):
    """What broke, in one sentence: a task that nobody expected to fail, and what its program said.

    :arg task: name of the task. :arg result: its result.
    """
    message = str(result.get("msg") or "failed").strip().rstrip(".")
    said = [line.strip() for line in str(result.get("stderr") or "").splitlines() if line.strip()]
    if said and said[-1] not in message:
        message += " (%s)" % "; ".join(line.rstrip(".") for line in said[-3:])
    return mask_text("%s: %s." % (task, message))


def sentences(*parts):
    """Parts as one text, each of them ending as a sentence does; what is empty is left out."""
    told = [str(part).strip() for part in parts if part and str(part).strip()]
    return " ".join(one if one.endswith((".", "!", "?")) else one + "." for one in told)


def restarted(attempt):
    """Whether an attempt cost a restart; one without an action is of a time before it was kept."""
    return attempt.get("action", "try") == "try"


def way_back_state(back):
    """``restored``, ``restored_degraded``, ``down``, ``stopped`` when nothing had served before, ``stopped_as_asked``
    when what had served was not to, or None when nothing had been replaced.

    :arg back: ``{"unit", "kind", "ready": result of server_ready}``; empty when nothing had served.
        ``{"unit", "asked_to_stop": True}`` of what had served, ``{"untouched": True}`` where no change was open.
    """
    if not back:
        return STOPPED
    if back.get("untouched"):
        return None
    if back.get("asked_to_stop"):
        return ASKED
    ready = back.get("ready") or {}
    if ready.get("verdict") == "holds":
        return RESTORED
    startup = ready.get("startup") or {}
    if startup.get("state") != "ready":
        return DOWN
    # A server made by hand may have a key that we do not know: its own ready line is what it owes.
    return RESTORED if back.get("kind") == "baseline" else DEGRADED


def _serving_sentence(serving, state, back):
    if not serving:
        if state == DOWN:
            why = ((back.get("ready") or {}).get("reason") or "").rstrip(".")
            return "Nothing serves now, and what served before did not come up%s." % (": " + why if why else "")
        if state == ASKED:
            return "Nothing serves now: %s is stopped, as sglang_server_when_not_proven: stop asks." % back["unit"]
        return "Nothing serves now; nothing served before." if state == STOPPED else "Nothing serves now."
    where = "%s serves on port %s" % (serving["unit"], serving["port"])
    if state == DOWN:
        why = ((back.get("ready") or {}).get("reason") or "it did not come up").rstrip(".")
        return "%s, but not as before: %s." % (where, why)
    if state in (RESTORED, DEGRADED):
        ready = back.get("ready") or {}
        pool = (ready.get("startup") or {}).get("pool_tokens")
        held = ", pool %s tokens%s" % (f"{pool:,}", of_ranks(ready.get("pools"))) if pool else ""
        what = {"proof": "the last proven configuration", "baseline": "what served before"}.get(
            back.get("kind"), "what was there before"
        )
        if back.get("kind") == "proof" and back.get("soaked") is False:
            what = "the last configuration that held (it was never put under load)"
        tail = " with less than its record" if state == DEGRADED else ""
        again = " as it did, without a restart" if back.get("kept") else " again"
        return "%s%s: %s%s%s." % (where, again, what, held, tail)
    return where + "."


def outcome(instance, step, attempts, back, serving, proof, pending=()):
    """What a run came to.

    :arg step: the last step.
    :arg attempts: judged attempts of this run.
    :arg back: what the way back started, see ``way_back_state``.
    :arg serving: ``{"unit", "port"}`` of what is active now, or None.
    :arg proof: the proof that is valid now, or None.
    :arg pending: directives that are written and wait for the next restart.
    :returns: ``{"success", "verdict", "message", "serving", "way_back", "left_running", "attempts", "pool_tokens",
        "fraction", "pending", "notices"}``; ``left_running``: the candidate serves on with its own files, not proven;
        ``notices`` are sentences about processes that hold memory of its boards, and about
        witnesses that disagree.
    """
    action = step.get("action")
    last = attempts[-1] if attempts else {}
    verdict = last.get("verdict")
    if action in ("keep", "apply"):
        verdict = "proven" if (proof or {}).get("soaked") else "holds"
    elif action == "planned":
        verdict = "planned"
    success = action in ("keep", "apply", "planned") or (action == "done" and verdict in ("proven", "holds"))
    state = way_back_state(back) if action == "back" else None
    noticed = [*(last.get("notices") or ()), *notices_of((back or {}).get("ready") or {})]
    result = {
        "success": success,
        # What is refused beside clients serves on, and holds.
        "verdict": verdict or step.get("verdict") or ("refused" if action == "refuse" else "failed"),
        "way_back": state,
        "left_running": action == "done" and not success and restarted(last),
        "serving": serving,
        "attempts": len(attempts),
        "pool_tokens": (proof or {}).get("pool_tokens") if success else None,
        "fraction": (proof or {}).get("fraction") if success else None,
        "pending": list(pending),
        "notices": list(dict.fromkeys(noticed)),
    }
    result["message"] = _message(instance, step, last, result, back, proof)
    result["rollback_message"] = "%s: %s" % (
        instance,
        sentences(step.get("reason"), _serving_sentence(serving, state, back)),
    )
    return result


def pending_sentences(pending):
    """What a person has to know of directives that wait for the next restart."""
    if not pending:
        return []
    return [
        "Written, and in force from the next restart on: %s (sglang_server_restart_pending: true restarts for it)."
        % ", ".join(pending)
    ]


def _proven_words(proof):
    """Pool, fraction and headroom of a proof, in words."""
    pool, headroom_gib = proof.get("pool_tokens"), proof.get("headroom_gib")
    words = "pool %s tokens%s at fraction %s" % (
        "unknown" if pool is None else f"{pool:,}",
        of_ranks(proof.get("pools")),
        proof.get("fraction"),
    )
    if headroom_gib is None:
        return words
    where = proof.get("headroom_where")
    return "%s, headroom %.2f GiB%s" % (words, headroom_gib, " on %s" % where if where else "")


def _message(instance, step, last, result, back, proof):
    action, reason = step.get("action"), (step.get("reason") or "").strip()
    if action == "planned":
        return "%s: %s" % (instance, reason)
    if result["success"]:
        text = "%s: %s, %s." % (instance, result["verdict"], _proven_words(proof or {}))
        if result["verdict"] == "holds":
            text += " It was not put under load (sglang_server_soak: none), so it is not proven."
        if action == "apply":
            text += " %s" % reason
        return " ".join([text] + pending_sentences(result["pending"]))
    refused = "refused before any restart." if result["verdict"] == "refused" else "%s, not proven." % result["verdict"]
    parts = ["%s: %s" % (instance, refused if action == "refuse" else "not proven.")]
    parts.append(reason)
    advice = (last.get("failure") or {}).get("advice")
    if advice and action != "refuse":
        parts.append("Way out: %s" % advice)
    # What else holds memory of the boards may be all that is wrong.
    parts += result["notices"]
    parts.append(_serving_sentence(result["serving"], result["way_back"], back))
    if result["left_running"]:
        parts.append("It is not enabled, and systemd does not start it again when it dies.")
    return sentences(*parts)
