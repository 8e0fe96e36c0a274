# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the model needs, from where it is known: the folder on the host, a hub, or the inventory. Private.

A plan is wanted before the weights are on the host. What it stands on, and what is missing, is said in one sentence.
"""

from __future__ import annotations

BY_REPO = "sglang_model_repo and sglang_model_revision"
GEOMETRY, WEIGHT_BYTES = "sglang_server_geometry", "sglang_server_weight_bytes"
# How model_info begins its sentence where there is no folder: the model may still be brought there.
NO_FOLDER = "Expected a model folder at "
DAMAGED = " is damaged: "  # a file that is there, and wrong


def chosen_model(folder, hub, settings):
    """Return what a plan takes: the result of model_info for the best place, with C(unchecked) and C(refused).

    Both are lists of sentences: what could not be looked at, and what was and can never be started.

    :arg folder: registered result of model_info for the folder on the host; it may have failed.
    :arg hub: the same for the hub; empty or skipped when it was not asked.
    :arg settings: C(geometry), C(weight_bytes) and C(cell_bytes) of the instance, as far as they are declared.
    """
    read = next((dict(one) for one in (folder, hub) if _complete(one)), {})
    if not read and folder.get("geometry"):
        read = dict(folder)  # weights are missing there; the configuration is not
    wanted = {"geometry": settings.get("geometry") or None, "weight_bytes": settings.get("weight_bytes") or None}
    taken = {name: value for name, value in wanted.items() if value is not None and read.get(name) is None}
    known = dict(read, **taken)
    missing = [] if known.get("geometry") or settings.get("cell_bytes") else [GEOMETRY]
    missing += [] if known.get("weight_bytes") else [WEIGHT_BYTES]
    refused = _refused(folder, hub, settings)
    sentence = None if refused else _sentence(folder, hub, read, taken, missing)
    return dict(known, unchecked=[sentence] if sentence else [], refused=[refused] if refused else [])


def _refused(folder, hub, settings):
    """Return why the folder on the host can never be started, None where it can or may still be brought there."""
    if _complete(hub):
        return None  # the role sglang_model brings it
    if folder.get("msg"):
        return None if folder["msg"].startswith(NO_FOLDER) else folder["msg"]
    if folder.get("geometry_problem") and not (settings.get("geometry") or settings.get("cell_bytes")):
        return folder["geometry_problem"]
    return next((one for one in folder.get("problems") or [] if DAMAGED in one), None)


def _first(problems):
    """Return the first sentence, and of how many more files there is one: a model may have hundreds."""
    more = len(problems) - 1
    if not more:
        return problems[0]
    return "{} (and {} more {}).".format(problems[0].rstrip("."), more, "file" if more == 1 else "files")


def _complete(result):
    return bool(result) and result.get("complete") is True


def _sentence(folder, hub, read, taken, missing):
    """Return what of the model is not checked yet, or None when the folder on the host said everything."""
    problem = read.get("geometry_problem") if not read.get("geometry") else None
    if _complete(folder) and (not missing or problem):
        return problem if missing or taken.get("geometry") else None
    asked = bool(hub) and not hub.get("skipped")
    if problem:
        why = problem
    elif _complete(hub):
        why = "The model is not on the host yet"
    else:
        place = hub if asked else folder
        why = place.get("msg") or _first(place.get("problems") or ["The model was not read."])
    why = why.rstrip(".")
    if missing:
        names = " and ".join(missing)
        way = names if asked else f"{BY_REPO}, or {names}"
        return f"{why}; without it a plan needs {way}."
    if taken:
        names = " and ".join({"geometry": GEOMETRY, "weight_bytes": WEIGHT_BYTES}[name] for name in sorted(taken))
        return f"{why}; the plan takes {names}."
    if _complete(hub):
        return f"{why}; the plan takes the {read['source']}, commit {read['commit']}."
    return f"{why}."
