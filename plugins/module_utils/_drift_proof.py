# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: drift since the proof. What of a server and its host is no longer as it was when it was proven.

Private to the gpufleet.sglang collection; may change at any time.

Pure: dictionaries in, dictionaries out. A proof that was stored before something was kept in it says nothing of that.
"""

from __future__ import annotations

import json
from itertools import groupby

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import canonical_arguments
from ansible_collections.gpufleet.sglang.plugins.module_utils._keys import digest
from ansible_collections.gpufleet.sglang.plugins.module_utils._mask import mask_data
from ansible_collections.gpufleet.sglang.plugins.module_utils._words import argument_value

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
    :arg host: ``{"driver_version", "packages", "gpus", "gpu_problem"}`` as it is now. A driver that is None and no
        boards mean that there are none; ``gpu_problem`` says why nobody could tell. Packages that are empty are not
        known, and neither is what has no entry.
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
    changed = _changed_arguments(proof.get("arguments") or {}, running.get("arguments") or {})
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


def _changed_arguments(proven, running):
    """What of a launcher's arguments does not mean what was proven, in words; [] where nobody can read them.

    :arg proven: arguments in any spelling, as values of an inventory.
    :arg running: those of the process by their one name, secrets masked, as texts and numbers of a command line.
    """
    if not proven or not running:
        return []
    try:
        expected = mask_data(canonical_arguments(proven))
    except ValueError:
        return []
    # What was proven as false is not on the command line, or its twin is: the engine decides that.
    twins = {"no-" + name for name, value in expected.items() if value is False}
    before, now = _given(expected), _given(running)
    return [
        _argument_words(name, before, now)
        for name in sorted({*before, *now} - twins)
        if name not in before or name not in now or _meaning(before[name]) != _meaning(now[name])
    ]


def _given(arguments):
    """Without what stands on no command line: null, false and an empty list. 0 is a value."""
    return {
        name: value
        for name, value in arguments.items()
        if not (value is None or value is False or value == "false" or value in ([], ()))
    }


def _meaning(value):
    """A digest of what the engine reads: of JSON what it says, whatever its blanks and the order of its keys; of a
    number its value, however it is spelled. A list of one is that one, and a switch says true.
    """
    value = _parsed(value)
    if isinstance(value, (list, tuple)):
        value = [_parsed(one) for one in value]
        value = value[0] if len(value) == 1 else value
    return digest(value)


def _parsed(value):
    text = value.strip() if isinstance(value, str) else ""
    if text == "true":
        return True
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return value
    return value


def _argument_words(name, before, now):
    if name not in now:
        return "%s is gone" % _shown(name, before[name])
    if name not in before:
        return "%s is new" % _shown(name, now[name])
    old, new = _words(before[name]), _words(now[name])
    return "--%s %s is now %s" % (name, old or "(a switch)", new or "(a switch)")


def _shown(name, value):
    return ("--%s %s" % (name, _words(value))).strip()


def _words(value):
    """A value as on a command line; "" for a switch."""
    if value is True or value == "true":
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(argument_value(one) for one in value)
    return argument_value(value)


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
    return rows + _boards(before, now)


def _boards(before, now):
    """Driver and boards. Where nobody could ask for them, that is the one thing to say."""
    driver, old = before.get("driver_version"), before.get("gpus") or []
    if now.get("gpu_problem") and (driver or old):
        proven = "proven with %s, and nobody can tell it now: %s" % (driver or "boards", now["gpu_problem"])
        return [_row(DRIVER, proven)]
    rows = []
    if driver and "driver_version" in now and driver != now["driver_version"]:
        rows.append(_row(DRIVER, "proven with %s, found %s." % (driver, now["driver_version"] or "none")))
    if old and "gpus" in now and old != list(now["gpus"] or []):
        rows.append(_row(BOARDS, _other_boards(old, list(now["gpus"] or []))))
    return rows


def _other_boards(old, new):
    if len(old) != len(new):
        return "proven on %s, found %s." % (_counted(old), _counted(new))
    pairs = enumerate(zip(old, new))
    return "%s." % ", ".join("GPU %d was %s and is now %s" % (at, *pair) for at, pair in pairs if pair[0] != pair[1])


def _counted(names):
    return " and ".join("%d x %s" % (len(list(same)), name) for name, same in groupby(sorted(names))) or "none"


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
