# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A question to the hub that many hosts of one run have: the first asks, the others wait for its answer. Private.

A fleet of 200 hosts with one model would ask for the headers of its shards 200 times, all from the controller. The
answers lie in a folder that ends with the run, so that nothing grows old.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os

from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import HubError


def answered_once(folder, question, ask):
    """Return what C(ask) returns, a dictionary of plain data; it is called once for all with the same C(question).

    C(folder): where the answers are kept, None to ask in any case. C(question): plain data. A refusal (HubError, or
    ValueError of what is not understood) is an answer too, a HubError then: a hub that is down is waited for once.
    """
    if not folder:
        return ask()
    name = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    path = os.path.join(folder, "gpufleet-hub-" + name)
    with open(os.open(path + ".lock", os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until the answer is there
        answer = _read(path)
        if answer is None:
            answer = _asked(ask)
            _write(path, answer)
    if "refused" in answer:
        raise HubError(answer["refused"])
    return answer["result"]


def _asked(ask):
    try:
        return {"result": ask()}
    except (HubError, ValueError) as error:
        return {"refused": str(error)}


def _read(path):
    try:
        with open(path, encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError):
        return None


def _write(path, answer):
    with open(os.open(path + ".new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as handle:
        json.dump(answer, handle)
    os.replace(path + ".new", path)
