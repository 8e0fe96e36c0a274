# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_attempt
short_description: Judge an attempt, remember it, and close the change it belongs to
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - With O(state=judged) it passes the verdict on one configuration that was tried, appends it
    to the attempts of the instance, and stores the proof when it is one.
  - With O(state=applied) it remembers files that were written under the proof that is there, without a restart.
  - With O(state=loaded) it remembers a load on a configuration that runs and has a proof. The proof is renewed by it,
    or no longer counts as put under load. What was declared stays as it was.
  - With O(state=closed) it closes the change, so that the next run finds nothing to finish or to undo,
    says what the run came to, and writes beside each attempt of the run what was decided after it (C(next)).
  - With O(state=forgotten) it forgets what attempts taught. They stay as evidence, and so does the proof.
  - It never fails for a verdict. The verdict is data.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
attributes:
  check_mode:
    support: full
  diff_mode:
    support: partial
    details:
      - Only for O(state=forgotten). What it writes else is memory, not configuration.
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  unit:
    description: Unit of the instance. The default is C(sglang-INSTANCE.service).
    type: str
  state:
    description:
      - Whether to judge an attempt, to remember files that needed no restart, to remember a load on what runs, to
        close the change, or to forget.
    type: str
    choices: [judged, applied, loaded, closed, forgotten]
    required: true
  adopt_unit:
    description: A unit made by hand that serves in the place of this instance.
    type: str
  back:
    description:
      - What the way back started, empty when nothing had served before. C(asked_to_stop) with C(unit) tells that it
        was to stay stopped, C(untouched) that nothing had been replaced.
    type: dict
    default: {}
  attempts:
    description: The attempts of this run, oldest first.
    type: list
    elements: dict
    default: []
  number:
    description: Number of the attempt in this run.
    type: int
    default: 1
  step:
    description: The step that was carried out, as M(gpufleet.sglang.memory_plan) returned it.
    type: dict
    default: {}
  plan:
    description: The plan behind it, as M(gpufleet.sglang.memory_plan) returned it.
    type: dict
    default: {}
  ready:
    description: Result of M(gpufleet.sglang.server_ready).
    type: dict
    default: {}
  soak:
    description: Result of M(gpufleet.sglang.server_soak), empty when there was no soak.
    type: dict
    default: {}
  clients:
    description:
      - Who was connected to the server while the load ran, as M(gpufleet.sglang.server_info) returned it. The speeds
        that were measured beside clients are marked C(shared).
    type: list
    elements: dict
    default: []
  host:
    description: What the proof rests on beside the configuration (C(driver_version), C(packages), C(gpus)).
    type: dict
    default: {}
  request:
    description: Everything that was declared for the instance. A proof is valid for exactly one request.
    type: dict
    default: {}
  files:
    description: Files of the configuration, kept by their sums in the proof.
    type: list
    elements: path
    default: []
  forget:
    description: What is forgotten with O(state=forgotten).
    type: str
    choices: [deaths, measurements, all]
    default: all
  keep_backups:
    description: How many backups stay when a change is closed.
    type: int
    default: 5
  run_id:
    description: Names this run.
    type: str
    required: true
  state_dir:
    description: Where instances keep what they remember.
    type: path
    default: /var/lib/sglang
"""

EXAMPLES = r"""
- name: Judge the attempt
  gpufleet.sglang.server_attempt:
    instance: main
    state: judged
    step: "{{ plan.step }}"
    plan: "{{ plan }}"
    ready: "{{ ready }}"
    soak: "{{ soak }}"
    run_id: 5f2c9a
  become: true
  register: attempt
"""

RETURN = r"""
attempt:
  description:
    - The attempt as it is remembered (RV(ignore:verdict), RV(ignore:reason) in one sentence, RV(ignore:failure),
      RV(ignore:action), RV(ignore:step) with the reason for which it was tried, RV(ignore:values) and
      RV(ignore:request), RV(ignore:measurement), RV(ignore:death), RV(ignore:startup), RV(ignore:headroom) of every
      board, RV(ignore:pools) of every DP rank, RV(ignore:notices), RV(ignore:soak)).
  returned: O(state=judged) and O(state=loaded)
  type: dict
soaked:
  description: Whether the proof counted as put under load (RV(ignore:before)) and does so (RV(ignore:now)).
  returned: O(state=loaded)
  type: dict
  sample: {"before": true, "now": false}
pending:
  description: Directives of the unit that were written and wait for the next restart.
  returned: O(state=applied)
  type: list
  elements: str
forgotten:
  description: How many RV(ignore:measurements) and RV(ignore:deaths) are forgotten.
  returned: O(state=forgotten)
  type: dict
outcome:
  description:
    - What the run came to (RV(ignore:success), RV(ignore:verdict), RV(ignore:message) for a person,
      RV(ignore:serving) now, RV(ignore:way_back) (V(restored), V(restored_degraded), V(down), V(stopped) where nothing
      had served, V(stopped_as_asked) by C(sglang_server_when_not_proven), null where there was none), number of
      RV(ignore:attempts), RV(ignore:pool_tokens), RV(ignore:fraction), what is RV(ignore:pending), whether an unproven
      server is RV(ignore:left_running) with the files of this run, and RV(ignore:notices), such as processes that
      nobody expected on the boards).
  returned: O(state=closed)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _decided
from ansible_collections.gpufleet.sglang.plugins.module_utils._change import Instance, Refused
from ansible_collections.gpufleet.sglang.plugins.module_utils._drift import as_left


def judged(module, instance):
    params = module.params
    attempt = instance.judge(
        params["run_id"],
        params["number"],
        params["step"],
        params["plan"],
        params["ready"],
        params["soak"],
        params["request"],
        params["files"],
        params["clients"],
        params["host"],
    )
    return {"changed": True, "attempt": attempt}


def loaded(module, instance):
    params = module.params
    before = instance.store.proof() or {}
    attempt = instance.measure(params["run_id"], params["ready"], params["soak"], params["clients"], params["host"])
    counts = {"before": bool(before.get("soaked")), "now": bool(instance.store.proof()["soaked"])}
    return {"changed": True, "attempt": attempt, "soaked": counts}


def applied(module, instance):
    params = module.params
    pending = instance.apply(params["run_id"], params["step"], params["request"], params["files"])
    return {"changed": True, "pending": pending}


def closed(module, instance):
    params = module.params
    outcome = instance.outcome(params["step"], params["attempts"], params["back"])
    if outcome["success"] and outcome["verdict"] == "holds":
        module.warn(outcome["message"])
    if module.check_mode:
        return {"changed": not instance.snapshot_needed(), "outcome": outcome}
    try:
        _decided.remember(instance.store, params["run_id"], params["attempts"], params["step"])
    except OSError as error:
        # A full disk is no reason to leave the change open.
        module.warn("Expected to write what was decided beside the attempts, found: %s; make room on the host." % error)
    if outcome["way_back"] == "down":
        # What served before does not serve: the next run has to find that open and try again.
        instance.store.release_lease(params["run_id"])
        return {"changed": False, "outcome": outcome}
    proof = instance.store.proof()
    if outcome["left_running"] and proof:
        instance.store.write_proof(as_left(proof))
    return {"changed": instance.close(params["run_id"], params["keep_backups"]), "outcome": outcome}


def forgotten(module, instance):
    told = instance.forget(module.params["forget"], module.check_mode)
    result = {"changed": any(told["forgotten"].values()), "forgotten": told["forgotten"]}
    result["diff"] = {name: "".join(line + "\n" for line in told[name]) for name in ("before", "after")}
    return result


STATES = {"judged": judged, "applied": applied, "loaded": loaded, "closed": closed, "forgotten": forgotten}


def main():
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "unit": {"type": "str"},
            "state": {"type": "str", "choices": list(STATES), "required": True},
            "adopt_unit": {"type": "str"},
            "back": {"type": "dict", "default": {}},
            "attempts": {"type": "list", "elements": "dict", "default": []},
            "number": {"type": "int", "default": 1},
            "step": {"type": "dict", "default": {}},
            "plan": {"type": "dict", "default": {}},
            "ready": {"type": "dict", "default": {}},
            "soak": {"type": "dict", "default": {}},
            "clients": {"type": "list", "elements": "dict", "default": []},
            "host": {"type": "dict", "default": {}},
            "request": {"type": "dict", "default": {}},
            "files": {"type": "list", "elements": "path", "default": []},
            "forget": {"type": "str", "choices": ["deaths", "measurements", "all"], "default": "all"},
            "keep_backups": {"type": "int", "default": 5},
            "run_id": {"type": "str", "required": True},
            "state_dir": {"type": "path", "default": "/var/lib/sglang"},
        },
        supports_check_mode=True,
    )
    params = module.params
    unit = params["unit"] or "sglang-%s.service" % params["instance"]
    instance = Instance(module.run_command, params["instance"], unit, params["state_dir"], params["adopt_unit"])
    if module.check_mode and params["state"] not in ("closed", "forgotten"):
        module.exit_json(changed=True, attempt=None, pending=[])
    try:
        if not module.check_mode:
            instance.check_lease(params["run_id"])
        result = STATES[params["state"]](module, instance)
    except (OSError, ValueError, Refused) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
