# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: judging. Verdict of a start-up and of an attempt.

Private to the gpufleet.sglang collection; may change at any time.

Everything here is pure: dictionaries in, dictionaries out. Nothing fails for a verdict; the role's last task does.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _witness
from ansible_collections.gpufleet.sglang.plugins.module_utils._failures import MEMORY_KINDS

# Ends of a start-up that say nothing about the configuration: the server is left as it is, neither enabled nor taken
# back. A soak that proved nothing is no such end: what served before was proven.
LEFT_RUNNING_KINDS = ("no_evidence",)

# Ends of a start-up in which device memory ran out; the direction tells which way the fraction has to move.
VERDICT_BY_DIRECTION = {"lower": "unsafe", "raise": "short"}


def judge_ready(startup, failure, target_tokens=None, min_headroom_gib=None, headroom=None, pools=None):
    """Judge a start-up that is over: ready, or dead.

    :arg startup: start-up record of ``_startup`` as a dictionary (``pool_tokens``, ``headroom_gib`` in GiB, ...).
    :arg failure: failure of ``_failures`` as a dictionary, or None when the server came up and answered.
    :arg target_tokens: promised pool tokens per DP rank, or None when nothing was promised.
    :arg min_headroom_gib: floor of the headroom at ready in GiB, or None for no floor.
    :arg headroom: answer of ``_witness.headroom``, which names the board that counts; without it the record does.
    :arg pools: answer of ``_witness.pools``, which names the DP rank that counts.
    :returns: ``{"verdict": "holds" | "short" | "unsafe" | "failed", "reason": one sentence}``.
    """
    if failure and failure["kind"] in LEFT_RUNNING_KINDS:
        return {"verdict": "failed", "reason": "Nothing is proven: %s" % (failure.get("evidence") or "").strip()}
    if failure:
        return {
            "verdict": "failed",
            "reason": "The server did not come up: %s (%s)."
            % (failure["kind"], (failure.get("evidence") or "").strip().rstrip(".")),
        }
    pool = startup.get("pool_tokens")
    if pool is None:
        return {"verdict": "failed", "reason": "No witness told the pool of this start-up, so nothing is proven."}
    if target_tokens is not None and pool < target_tokens:
        return {
            "verdict": "short",
            "reason": f"The pool holds {pool:,} tokens{of_ranks(pools, tightest=True)},"
            f" {target_tokens - pool:,} short of the target of {target_tokens:,}.",
        }
    if target_tokens is not None and (pools or {}).get("untold"):
        return {
            "verdict": "failed",
            "reason": "No witness tells the pool of {}, so the target of {:,} tokens per DP rank is not proven.".format(
                ", ".join(pools["untold"]), target_tokens
            ),
        }
    if min_headroom_gib is not None:
        verdict, reason = _judge_headroom(startup, headroom, min_headroom_gib)
        if verdict != "holds":
            return {"verdict": verdict, "reason": reason}
    promise = "" if target_tokens is None else f" of the {target_tokens:,} promised"
    return {"verdict": "holds", "reason": f"The pool holds {pool:,} tokens{promise}{of_ranks(pools)}."}


def _judge_headroom(startup, headroom, min_headroom_gib):
    """(verdict, sentence) of the floor: by all witnesses, or by the record alone where nobody else was asked."""
    if headroom is not None:
        return _witness.floor_verdict(headroom, min_headroom_gib)
    told = startup.get("headroom_gib")
    if told is None:
        return "failed", "The start-up does not tell its headroom, so the floor of %.2f GiB is not proven." % (
            min_headroom_gib
        )
    if told < min_headroom_gib:
        return "unsafe", "The headroom at ready is %.2f GiB, under the floor of %.2f GiB." % (told, min_headroom_gib)
    return "holds", ""


def of_ranks(pools, tightest=False):
    """What a sentence about the pool adds for a server with several DP ranks; "" for any other.

    :arg pools: answer of ``_witness.pools``. :arg tightest: name the DP rank that counts, where it is known.
    """
    pools = pools or {}
    size, total = pools.get("dp_size") or 1, pools.get("total_tokens")
    if size < 2:
        return ""
    where = f" on {pools['least']}" if tightest and pools.get("least") else f" on each of {size} DP ranks"
    return where + ("" if total is None else f" ({total:,} in all)")


def headroom_of(ready):
    """The headroom that is shown and stored: what the floor is compared with, else what the record of the start tells.

    :arg ready: result of ``server_ready``.
    :returns: ``{"gib", "where", "witness"}``. ``gib`` is None where nobody tells it; ``where`` names the tightest of
        several boards, and is None for a single one; ``witness`` is one of ``_witness``, None where none was asked.
    """
    told = ready.get("headroom") or {}
    boards, tightest = told.get("boards") or {}, told.get("tightest")
    if told.get("free_gib") is None or tightest not in boards:
        return {"gib": (ready.get("startup") or {}).get("headroom_gib"), "where": None, "witness": None}
    where = _witness.named(tightest, boards[tightest]) if len(boards) > 1 else None
    return {"gib": told["free_gib"], "where": where, "witness": boards[tightest].get("witness")}


def notices_of(ready):
    """One sentence for each foreign process on the boards, and for each pair of witnesses that disagree."""
    found = list(ready.get("notices") or ())
    for name in ("headroom", "pools"):
        found += (ready.get(name) or {}).get("disagreements") or ()
    return found


def judge_attempt(ready, soak, carried=False):
    """Judge an attempt from the results of ``server_ready`` and ``server_soak``.

    :arg ready: result of ``server_ready``.
    :arg soak: result of ``server_soak``; empty when the soak did not run.
    :arg carried: nothing that matters to memory changed since a load was survived: that load counts for this start-up.
    :returns: ``{"verdict": proven | holds | short | unsafe | failed, "reason": one sentence, "failure": dict | None}``.
        ``holds`` is the end of an attempt only when the soak was switched off.
    """
    failure = ready.get("failure") or (soak or {}).get("failure")
    if failure and failure.get("kind") in MEMORY_KINDS and failure.get("direction") in VERDICT_BY_DIRECTION:
        # The load names the request that it died of.
        told = None if ready.get("failure") else (soak or {}).get("reason")
        return {
            "verdict": VERDICT_BY_DIRECTION[failure["direction"]],
            "reason": told
            or "Memory ran out in phase %s: %s"
            % (failure.get("phase") or "unknown", (failure.get("evidence") or "").strip()),
            "failure": failure,
        }
    if ready.get("verdict") != "holds":
        return {"verdict": ready.get("verdict") or "failed", "reason": ready.get("reason") or "", "failure": failure}
    if not soak and carried:
        return {
            "verdict": "proven",
            "reason": "%s Nothing changed that matters to memory since the last load." % (ready.get("reason") or ""),
            "failure": None,
        }
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
        "load_seconds",
    )
    result = {name: startup.get(name) for name in taught}
    boards = ready.get("headroom") or {}
    if boards.get("fresh") and boards.get("free_gib") is not None:
        # What the floor was compared with: a plan from another figure would come to the same configuration again.
        result["headroom_gib"] = boards["free_gib"]
    # What was free before a death is not what the load takes.
    seen = {} if (soak or {}).get("failure") else (soak or {}).get("least_free_gib") or {}
    least = [value for value in seen.values() if value is not None]
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
        # What the engine chose by its boards is in no key of what was declared.
        "chunked_prefill_size": startup.get("chunked_prefill_size"),
        "keys": plan.get("quantity_keys") or {},
        "reason": "%s in phase %s wanted %.0f MiB with %.0f MiB free."
        % (failure["kind"], failure.get("phase"), wanted_mib, free_mib or 0.0),
    }
