# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: drift since the proof. What of a server and its host is no longer as it was when it was proven.

Private to the gpufleet.sglang collection; may change at any time.

Pure: dictionaries in, dictionaries out. A proof that was stored before something was kept in it says nothing of that.
"""

from __future__ import annotations

from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_text
from ansible_collections.gpufleet.sglang.plugins.module_utils._words import server_arguments

UNIT, FILES, ARGUMENTS, PACKAGE, DRIVER, BOARDS, POOL, HEADROOM = (
    "unit",
    "files",
    "arguments",
    "package",
    "driver",
    "boards",
    "pool",
    "headroom",
)

# Two looks at one board that has not changed differ by less (the cache of torch, a context of the driver).
NOISE_GIB = 0.25


def _row(what, sentence, ends=True):
    """``ends``: the proof no longer stands for what is there. Otherwise it is worth to know."""
    return {"what": what, "sentence": "%s: %s" % (what, sentence), "ends": ends}


def since_proof(info, ready, host):
    """What drifted since the proof, the gravest first.

    :arg info: result of ``server_info`` (``proof``, ``unit``, ``running``, ``drift``, ``invocation_id``).
    :arg ready: result of ``server_ready`` of now; empty when nothing was asked.
    :arg host: ``{"driver_version", "packages", "gpus"}`` as it is now; what is None or empty is not known.
    :returns: ``[{"what", "sentence", "ends"}]``, see ``_row``; empty without a proof.
    """
    proof = info.get("proof") or {}
    if not proof:
        return []
    return [
        *_configuration(proof, info),
        *_host(proof.get("host") or {}, host or {}),
        *_pool(proof, ready or {}),
        *_headroom(proof, info, ready or {}),
    ]


def _configuration(proof, info):
    rows = []
    running = info.get("running") or {}
    changed = _changed_arguments(proof.get("arguments") or {}, running.get("command_line") or "")
    if not running:
        unit = info.get("unit") or {}
        rows.append(_row(UNIT, "it does not run (%s)." % (unit.get("active_state") or "nobody knows its state")))
    elif changed:
        rows.append(_row(ARGUMENTS, "%s." % ", ".join(changed)))
    elif running.get("config_hash") != proof.get("config_hash"):
        rows.append(_row(ARGUMENTS, "they are the same, and the environment or the version of the engine is another."))
    if info.get("drift"):
        rows.append(_row(FILES, "changed by hand since the proof: %s." % ", ".join(info["drift"])))
    return rows


def _changed_arguments(proven, command_line):
    """What of the command line of a launcher is not as it was proven, in words; [] where it cannot be read."""
    if not proven or "sglang" not in command_line:
        return []
    try:
        expected = _options(mask_text(" ".join(server_arguments(proven))).split())
    except ValueError:
        return []
    found = _options(command_line.split())
    # What was proven as false may be its twin on the command line: the engine decides that.
    twins = {"--no-" + str(name).replace("_", "-") for name, value in proven.items() if value is False}
    return [
        _argument_words(name, expected.get(name), found.get(name))
        for name in sorted({*expected, *found} - twins)
        if expected.get(name) != found.get(name)
    ]


def _options(words):
    """{--name: value} of a command line; a switch has "", and so has one that says true."""
    found, name = {}, None
    for word in words:
        if word.startswith("--"):
            name, _sign, value = word.partition("=")
            found[name] = [value] if value else []
        elif name:
            found[name].append(word)
    told = {name: " ".join(values) for name, values in found.items()}
    return {name: "" if value == "true" else value for name, value in told.items() if value != "false"}


def _argument_words(name, before, now):
    if now is None:
        return "%s is gone" % " ".join([name, before]).strip()
    if before is None:
        return "%s is new" % " ".join([name, now]).strip()
    return "%s %s is now %s" % (name, before or "(a switch)", now or "(a switch)")


def _host(before, now):
    rows = []
    old, new = before.get("packages") or {}, now.get("packages") or {}
    if old and new:
        changed = [
            "%s %s is now %s" % (n, old.get(n, "not there"), new.get(n, "gone"))
            for n in sorted({*old, *new})
            if old.get(n) != new.get(n)
        ]
        if changed:
            rows.append(_row(PACKAGE, "%s." % ", ".join(changed)))
    old, new = before.get("driver_version"), now.get("driver_version")
    if old and new and old != new:
        rows.append(_row(DRIVER, "proven with %s, found %s." % (old, new)))
    old, new = before.get("gpus") or [], now.get("gpus") or []
    if old and new and old != new:
        rows.append(_row(BOARDS, "proven on %d x %s, found %d x %s." % (len(old), old[0], len(new), new[0])))
    return rows


def _pool(proof, ready):
    pool = (ready.get("startup") or {}).get("pool_tokens")
    floor = proof.get("pool_floor_tokens")
    if pool is None or floor is None or pool >= floor:
        return []
    return [_row(POOL, f"proven with {floor:,} tokens or more, found {pool:,}.")]


def _headroom(proof, info, ready):
    """By the start, when it is another than the proven one, and by what is free on each board now."""
    rows = []
    before, now = proof.get("headroom_gib"), (ready.get("startup") or {}).get("headroom_gib")
    another = info.get("invocation_id") != proof.get("invocation_id")
    if another and None not in (before, now) and now < before - NOISE_GIB:
        rows.append(
            _row(HEADROOM, "%.2f GiB at ready, %.2f GiB less than when it was proven." % (now, before - now), False)
        )
    floor = proof.get("min_least_free_gib")
    seen = proof.get("least_free_gib") or {}
    for board, row in sorted(((ready.get("headroom") or {}).get("boards") or {}).items()):
        free_mib = row.get("nvidia_smi_free_mib")
        if free_mib is None:
            continue
        free_gib, least_gib = free_mib / 1024.0, seen.get(board)
        if floor is not None and free_gib < float(floor):
            said = "GPU %s has %.2f GiB free now, under the floor of %.2f GiB." % (board, free_gib, float(floor))
            rows.append(_row(HEADROOM, said))
        elif least_gib is not None and free_gib < least_gib - NOISE_GIB:
            said = "GPU %s has %.2f GiB free now, %.2f GiB less than under the load of the proof."
            rows.append(_row(HEADROOM, said % (board, free_gib, least_gib - free_gib), False))
    return rows
