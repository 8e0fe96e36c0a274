# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: budget, in words. The plan as sentences, as rows and as a small table for people. Private to the collection."""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils import _kv

GIB = float(2**30)
# The variables of the role that a refusal offers values for.
PREFIX = "sglang_server_"


def number(value):
    """Return a count with thousands separators."""
    return f"{value:,}"


def cell_text(base):
    """Return the bytes of a token; a window's share can make a fraction of one."""
    value = base.cell.bytes
    return f"{value:,}" if value == int(value) else f"{value:,.1f}"


def fraction_text(value):
    """Return a fraction with three decimals, as it is handed to the engine."""
    return f"{value:.3f}"


# ---------------------------------------------------------------------------
# Rows
# ---------------------------------------------------------------------------


def _figure_row(name, figure, part):
    return {
        "name": name,
        "gib": round(figure.gib, 4),
        "source": figure.source,
        "note": figure.note,
        "part": part,
        "error_gib": round(figure.error_gib, 4),
    }


def rows(base, chosen, result):
    """Return the whole of a rank's memory as rows: {name, gib, source, note, part}.

    C(part): C(before) for what is there, C(static) for weights and pool; C(ready), C(load), C(floor) for the reserve.
    """
    found = []
    if base.before:
        found.append(_figure_row("free before load", base.before, "before"))
    if base.used:
        found += [_figure_row(one.name or "weights", one, "static") for one in base.used.rows]
    if base.cell and result.pool_tokens is not None:
        note = f"{number(result.pool_tokens)} tokens x {cell_text(base)} bytes: {base.cell_note}"
        if result.window_tokens is not None:
            note += f"; {number(result.window_tokens)} tokens in the pool of the window layers"
        row = {"name": "pool", "gib": result.pool_gib, "source": base.cell_source, "note": note, "part": "static"}
        found.append(row)
        if result.state_gib:
            state = base.cell.state
            note = f"{number(result.state_slots)} slots of {state.slot_bytes:,} bytes: {state.rule.source}"
            found.append(dict(row, name="request states", gib=result.state_gib, note=note))
    found += [row.as_dict() for row in chosen.rows]
    learned = chosen.needed_gib - sum(row.gib for row in chosen.rows)
    if (chosen.learned_floor_gib or chosen.learned_extra_gib) and learned > 0:
        note = "an out-of-memory end needed more than the rows above"
        found.append(
            {
                "name": "learned from a death",
                "gib": round(learned, 4),
                "source": "measured",
                "note": note,
                "part": "load",
            }
        )
    return found


# ---------------------------------------------------------------------------
# Sentences
# ---------------------------------------------------------------------------


def interval(result):
    """Return the interval in words, or that there is none."""
    low, high = result.fraction_low, result.fraction_high
    if low is not None and high is not None and low <= high:
        return f"fractions {fraction_text(low)} to {fraction_text(high)}"
    return "no fraction"


def moved(inp, chosen):
    """Return which levers the plan moved, in words; empty when none."""
    words = []
    if chosen.chunk_moved and inp.chunk_tokens is None:
        words.append(f"prefill in chunks of {number(chosen.chunk_tokens)}")
    if chosen.batch_moved:
        words.append(f"decode graphs up to a batch of {chosen.decode_batch}")
    return " and ".join(words)


def reason(inp, result):
    """Return the choice in one sentence."""
    if result.feasible is None and result.fraction is None:
        return "Not enough is known for a plan; missing: {}.".format(missing_text(result.missing) or "nothing")
    if result.fraction is None and result.reserve_needed_gib is None:
        return result.refusal
    if result.fraction is None:
        needed = result.reserve_needed_gib
        return f"No fraction holds {number(inp.target_tokens or 0)} tokens and keeps {needed:.2f} GiB in reserve."
    if result.predicted_tokens is None:
        return f"Fraction {fraction_text(result.fraction)} as declared; what it gives is not known."
    pool = f"pool of {number(result.pool_tokens)} tokens, headroom about {result.predicted_headroom_gib:.2f} GiB"
    how = (
        "as declared"
        if inp.fraction is not None
        else "of {} to {}".format(
            "-" if result.fraction_low is None else fraction_text(result.fraction_low),
            "-" if result.fraction_high is None else fraction_text(result.fraction_high),
        )
    )
    if result.is_open:
        return (
            f"{number(inp.target_tokens)} tokens fit by what is expected, and not at the bad end of the bands: a start"
            f" tells. Fraction {fraction_text(result.fraction)}: {pool}."
        )
    return f"Fraction {fraction_text(result.fraction)} ({how}): {pool}."


def explanation(inp, base, chosen, result):
    """Return a few sentences that tell what was decided and why."""
    if not base.complete:
        named = missing_text(result.missing)
        missing = f"The plan is not complete. Missing: {named}." if named else ""
        text = " ".join(one for one in (result.refusal, missing) if one)
        if base.cell is None:
            text += " The cell is not known: {}.".format(base.cell_note.rstrip("."))
        else:
            text += f" A token costs {cell_text(base)} bytes on a rank."
        return text
    after_gib = base.after_gib
    parts = [
        f"{base.before.gib:.2f} GiB are free on the worst rank before the load ({base.before.source}) and about"
        f" {after_gib:.2f} GiB after it; a token costs {cell_text(base)} bytes."
    ]
    parts.append(_needs(chosen, result))
    parts.append(_promise(inp, result))
    words = moved(inp, chosen)
    if words and result.fraction is not None and (result.feasible is not False or result.is_open):
        parts.append(f"To make room the plan takes {words}.")
    if result.fraction is not None and result.predicted_tokens is not None:
        parts.append(_prediction(inp, result))
    if result.engine_default and inp.target_tokens:
        default = result.engine_default
        parts.append(
            "SGLang's own default would be about {}, a pool of {} tokens.".format(
                fraction_text(default["fraction"]), number(default["tokens"])
            )
        )
    if result.feasible is False and not result.is_open:
        parts.append(_advice(result))
    return " ".join(part for part in parts if part)


def _needs(chosen, result):
    largest = sorted(chosen.rows, key=lambda row: -row.gib)[:3]
    text = "Outside weights and pool {:.2f} GiB are needed, most of it for {}".format(
        result.reserve_needed_gib, ", ".join(f"{row.name} ({row.gib:.2f})" for row in largest)
    )
    if chosen.learned_floor_gib or chosen.learned_extra_gib:
        text += "; an earlier death for want of memory set this figure"
    return text + "."


def _promise(inp, result):
    if "target_tokens" in result.missing:
        return "No target is given, so nothing is promised."
    target = number(inp.target_tokens or 0)
    low, high = result.fraction_low, result.fraction_high
    if low is not None and high is not None and low <= high:
        text = f"Even at the bad end of the band, {interval(result)} hold {target} tokens and keep a safe reserve"
        if result.feasible is False and inp.fraction is None:
            return f"{text}, but: {result.refusal or 'the engine would not start'}"
        if result.feasible is False:
            return f"{text}; the declared {fraction_text(inp.fraction)} is not among them."
        return text + "."
    most = "the reserve allows none" if high is None else f"the reserve allows at most {fraction_text(high)}"
    if low is None:
        return f"No fraction holds {target} tokens, and {most}."
    text = f"To hold {target} tokens at the bad end of the band takes {fraction_text(low)}, but {most}"
    return text + (". By what is expected they fit, so a start has to tell." if result.is_open else ".")


def _prediction(inp, result):
    band = f"{number(result.predicted_tokens_low)} to {number(result.predicted_tokens_high)}"
    tokens = number(result.predicted_tokens)
    text = f"Fraction {fraction_text(result.fraction)} gives {tokens} tokens ({band}) before the cap"
    if result.cap_tokens is not None and result.predicted_tokens > result.pool_tokens:
        text += f"; the pool is capped at {number(result.cap_tokens)}, what is over stays free"
    return (
        f"{text}. Expect about {result.predicted_headroom_gib:.2f} GiB of headroom when the server is ready"
        f" and {result.predicted_least_free_gib:.2f} GiB least free under load."
    )


def lever_text(lever):
    """Return one lever in words, first what is ready to paste into an inventory."""
    now = "" if lever["from"] in (None, "", False) else f" (now {lever['from']})"
    return "{}{}: {:+.2f} GiB, {} tokens".format(lever["paste"], now, lever["gib"], number(lever["tokens"]))


# What a plan may lack, by the variables that would give it.
MISSING = {
    "gpus": f"the GPUs of the host ({PREFIX}gpus)",
    "free_before_load_gib": "what is free on the GPUs before the load",
    "weight_bytes": f"{PREFIX}weight_bytes",
    "draft_weight_bytes": "draft_weight_bytes, those of the draft model",
    "cell_bytes": f"{PREFIX}cell_bytes",
    "geometry": f"{PREFIX}geometry",
    "target_tokens": f"{PREFIX}target_tokens",
}


def missing_text(names):
    """Return what is missing as an operator can give it."""
    return ", ".join(MISSING.get(name, name) for name in names)


def _advice(result):
    text = f"{number(result.tokens_that_fit or 0)} tokens would fit."
    advised = [lever_text(one) for one in result.levers if not one["automatic"]]
    if advised:
        text += " What would buy more: {}.".format("; ".join(advised))
    return text


# ---------------------------------------------------------------------------
# Refusals: one sentence each, with values that are ready to paste
# ---------------------------------------------------------------------------


def paste(values):
    """Return values as lines of an inventory, in one sentence."""
    return ", ".join(f"{PREFIX}{name}: {value}" for name, value in values.items())


def refuse_peak(peak_gib, before_gib):
    return (
        f"The load takes up to {peak_gib:.2f} GiB on a rank (online quantisation loads the unquantised weights first),"
        f" and {before_gib:.2f} GiB are free before it: take a checkpoint that is quantised already, or more ranks by"
        " tp-size in the server arguments."
    )


def refuse_context(context_tokens, limit):
    return "The declared context of {} tokens is more than the {} that the model can take: set {}.".format(
        number(context_tokens), number(limit), paste({"context_tokens": limit})
    )


def refuse_cap(cap_tokens, target_tokens):
    return (
        "The declared max-total-tokens of {} caps the pool under the target of {}:"
        " take it out of the server arguments, or set {}.".format(
            number(cap_tokens), number(target_tokens), paste({"target_tokens": cap_tokens})
        )
    )


def refuse_target(inp, base, chosen, result):
    """No fraction at all."""
    target = number(inp.target_tokens or 0)
    static = base.used.total.gib + _kv.rest_for(base.cell, inp.target_tokens or 0) / GIB
    band_gib = base.noise.error_gib + base.used.total.error_gib + base.before.error_gib
    text = (
        f"{target} tokens do not fit: weights and pool take {static:.2f} GiB and {chosen.needed_gib:.2f} GiB are needed"
        f" outside them, of {base.before.gib:.2f} GiB free before load (band {band_gib:.2f} GiB)"
    )
    text += "".join(
        f"; the server {name} of this host will take {gib:.2f} GiB of the same memory"
        for name, gib in (base.free.claims if base.free else ())
    )
    advised = [one for one in result.levers if not one["automatic"]]
    if result.tokens_that_fit:
        short = (inp.target_tokens or 0) - result.tokens_that_fit
        told = [lever_text(one) + (", enough by itself" if one["tokens"] >= short else "") for one in advised]
        levers = "; levers, smallest change first: " + "; ".join(told) if told else ""
        return "{}{}; what fits is {}.".format(text, levers, paste({"target_tokens": result.tokens_that_fit}))
    told = "; ".join(lever_text(one) for one in advised)
    way = f"what would buy room: {told}" if told else "take a smaller model or more GPUs"
    return f"{text}; no target fits, {way}."


def refuse_fraction_short(inp, result, offer):
    most = result.predicted_tokens_high
    return (
        f"The declared fraction {fraction_text(result.fraction)} gives at most {number(most)} tokens,"
        f" {number(inp.target_tokens - most)} short of the target of {number(inp.target_tokens)};"
        f" what works is {paste(offer)}."
    )


def refuse_fraction_unsafe(base, chosen, result, offer):
    """Less than is beyond doubt, or less than is needed by more than the band.

    A cap keeps more free than the fraction: then the risk is the start without it, whose pool grows to the fraction.
    """
    learned = chosen.learned_floor_gib or chosen.learned_extra_gib
    why = "an earlier death for want of memory showed that " if learned else ""
    digits = 2 if round(chosen.needed_gib, 2) > round(result.reserve_gib, 2) else 3
    needed = f"{why}{chosen.needed_gib:.{digits}f} GiB are needed"
    left = f"{result.reserve_gib:.{digits}f} GiB"
    leaves = f"The declared fraction {fraction_text(result.fraction)} leaves {left} outside weights"
    works = f"what works is {paste(offer)}."
    if result.cap_tokens is None or result.predicted_tokens <= result.pool_tokens:
        return f"{leaves} and pool, and {needed}; {works}"
    kept_gib = base.after_gib - (result.pool_gib or 0.0) - (result.state_gib or 0.0)
    return (
        f"{leaves} and a pool that grows to it ({number(result.predicted_tokens)} tokens), and {needed}: only the cap"
        f" of {number(result.cap_tokens)} tokens keeps {kept_gib:.2f} GiB free, and a start without it is the risk;"
        f" {works}"
    )
