# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_ready
short_description: Wait until one start of an SGLang server holds its promise, or name why it does not
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Waits for one invocation of a unit. A server of an earlier invocation, or another process on the port, is never
    taken for it.
  - The verdict V(holds) needs three witnesses of this invocation, namely its pool, its ready line, and a completion
    that is answered by a process of the unit.
  - Pool and ready line come from the journal. Where there is no journal, or where its lines were lost,
    the C(/server_info) of the process takes their place and RV(evidence) says so.
  - A death is named from the journal as soon as its line is there. There is no fixed time to wait.
  - The server is never stopped or changed.
  - When run as a task, progress is printed while it waits, one line for each phase and at most one in ten seconds.
    With C(async) the same wait runs in one go and prints nothing; RV(timeline) tells afterwards what happened when.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.linux
  - gpufleet.sglang.attributes.action
attributes:
  action:
    support: full
  check_mode:
    support: full
    details:
      - Waits for nothing in check mode and says what it would wait for; RV(verdict) is null then.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing, so there is no difference to show.
options:
  unit:
    description: Name of the unit, such as V(sglang-main.service).
    type: str
    required: true
  invocation_id:
    description:
      - The invocation of the unit to wait for, as C(systemctl show --property=InvocationID) prints it.
      - The default is the one that runs when the wait begins.
    type: str
  host:
    description: Address that the server listens on. For an any-address (V(0.0.0.0), V(::)) the loopback is asked.
    type: str
    default: 127.0.0.1
  port:
    description: Port that the server listens on.
    type: int
    default: 30000
  api_key:
    description: API key of the server.
    type: str
  api_key_file:
    description: File on the host with the API key, alone or in an C(api-key:) line as in a file for C(--config).
    type: path
  target_tokens:
    description: Pool tokens that are promised per DP rank. A smaller pool gives the verdict V(short).
    type: int
  expected_pool_tokens:
    description:
      - Pool tokens of an earlier record.
      - RV(pool_as_expected) tells whether they were reached; the verdict does not depend on it.
    type: int
  min_headroom_gib:
    description: Least headroom in GiB at ready. Less gives the verdict V(unsafe).
    type: float
  prompt:
    description: What the model is asked to complete.
    type: str
    default: The capital of France is
  answer_tokens:
    description: Most tokens of the answer.
    type: int
    default: 8
  timeout_seconds:
    description:
      - How long to wait at most, in seconds. After that the verdict is V(failed) and its kind V(timeout).
      - V(auto) computes it from the bytes of the model's weights, the kind of disk that they lie on, and
        O(last_load_seconds). RV(deadline) says what it came to, and why. A stall is named long before it.
    type: str
    default: auto
  model_path:
    description:
      - Folder of the model on the host, for O(timeout_seconds=auto) and for the progress.
      - The default is the C(--model-path) that the process was started with.
    type: path
  expected_weight_gib:
    description: What the weights are expected to take on one board in GiB, for the progress.
    type: float
  last_load_seconds:
    description:
      - Seconds that the last start of this model took on this host, for O(timeout_seconds=auto) and for the progress.
    type: float
  patience_factor:
    description:
      - A start-up that shows no sign of life for longer than its phase may be silent is a stall, with the verdict
        V(failed) and the kind V(watchdog_hang). Signs of life are lines of the service, memory of the boards, bytes and
        memory of the processes, and their CPU time.
      - This multiplies the patience of every phase. With V(0) only O(timeout_seconds) ends the wait.
    type: float
    default: 1
  nvidia_smi:
    description:
      - The command to ask for memory of the boards, a name to be found on E(PATH) or a path.
    type: str
    default: nvidia-smi
  poll_seconds:
    description: How often to look at the host, in seconds.
    type: float
    default: 0.5
  slice_seconds:
    description: When run as a task, how long one look at the host lasts before progress is printed, in seconds.
    type: float
    default: 10
  journal:
    description:
      - V(auto) reads the journal and asks the server only where the journal lacks something.
      - V(none) only asks the server.
    type: str
    choices: [auto, none]
    default: auto
  lease:
    description:
      - The lease that this run holds on an instance, renewed while the task goes on.
    type: dict
    suboptions:
      instance:
        description: Name of the instance.
        type: str
        required: true
      run_id:
        description: Names the run.
        type: str
        required: true
  fail_on_verdict:
    description: Fail for every verdict other than V(holds). With V(false) the verdict is only returned.
    type: bool
    default: true
  slice:
    description: Filled in by the action of this module to go on where the slice before ended. Leave it out.
    type: dict
    suboptions:
      invocation_id:
        description: The invocation that is waited for.
        type: str
      boot_id:
        description: The boot of the host in which the wait began.
        type: str
      phase:
        description: The phase that was returned last.
        type: str
      restarts:
        description: Restarts of the unit when the wait began.
        type: int
      waiting_since:
        description: When the wait began by the host's clock, in seconds since the epoch.
        type: float
      waited_seconds:
        description: How long the wait has lasted, in seconds.
        type: float
        default: 0
      load:
        description: Signs of life and deadline.
        type: dict
seealso:
  - module: gpufleet.sglang.server_soak
"""

EXAMPLES = r"""
- name: Wait for the server that was just started
  gpufleet.sglang.server_ready:
    unit: sglang-main.service
    port: 30000
    target_tokens: 200000
    min_headroom_gib: 2
  become: true
  register: ready

- name: Decide by the verdict instead of failing
  gpufleet.sglang.server_ready:
    unit: sglang-main.service
    target_tokens: 200000
    timeout_seconds: 900
    fail_on_verdict: false
  become: true
  register: ready
"""

RETURN = r"""
verdict:
  description:
    - V(holds), V(short) (pool under the target), V(unsafe) (headroom under the floor) or V(failed).
    - In check mode it is null, and only RV(reason) and RV(unit) come with it.
  returned: always
  type: str
  sample: holds
reason:
  description: One sentence on why.
  returned: always
  type: str
unit:
  description: The unit that was waited for.
  returned: always
  type: str
invocation_id:
  description: The invocation that was waited for.
  returned: always
  type: str
startup:
  description:
    - The start-up record. C(pool_tokens), C(free_before_load_gib), C(free_after_load_gib), C(weights_gib), C(kv_gib),
      C(pool_end_free_gib), C(headroom_gib), C(ranks), C(phases), C(load_seconds) and more.
    - Figures that nobody told are null.
  returned: always
  type: dict
failure:
  description: Null, or why it failed (C(kind), C(phase), C(fatal), C(direction), C(evidence), C(advice), C(figures)).
  returned: always
  type: dict
evidence:
  description:
    - The witness of the pool, V(journal) or V(server_info). The smallest pool that one of them tells is the pool.
  returned: always
  type: str
headroom:
  description:
    - What is free on each board of the unit, by nvidia-smi, by the journal and by C(/server_info). Null before the
      server is ready.
    - O(min_headroom_gib) is compared with what nvidia-smi shows as free on each board when the server is ready. What
      torch keeps in its cache since the journal's line (the warm-up and the completion) counts as used there, although
      the load gets it, so up to 256 MiB that the journal shows more are added again, less what foreign processes hold.
    - Where nvidia-smi does not tell a board, the journal's line of its rank counts, else C(/server_info), which knows
      the first rank only. Where nobody tells a board, the floor is not proven (RV(verdict) V(failed), RV(failure) of
      kind C(no_evidence)).
    - When the ready line is older than 60 seconds, nvidia-smi shows what is free now. That can prove the floor, but not
      break it; the journal of the start decides.
    - On a CPU and on a GPU that shares the memory of the machine the journal counts.
  returned: when something was looked at
  type: dict
  contains:
    device:
      description: Device of the server, such as V(cuda) or V(cpu).
      type: str
    boards:
      description:
        - By the index that nvidia-smi gives a board (V(cpu) without boards; the rank where its board is not known), the
          figures C(nvidia_smi_free_mib), C(journal_free_mib), C(server_info_free_mib) and C(meminfo_free_mib), null
          where they are not told, with C(rank), C(name), C(free_mib) (compared with the floor) and C(witness) (whose
          it is).
      type: dict
    tightest:
      description: The board with the least C(free_mib).
      type: str
    free_gib:
      description: What is free on it, in GiB.
      type: float
    fresh:
      description: Whether nvidia-smi was asked within 60 seconds of the ready line.
      type: bool
    missing:
      description: One sentence for each witness that is missing.
      type: list
      elements: str
    disagreements:
      description: One sentence for each pair of figures that differ by more than is explained.
      type: list
      elements: str
pools:
  description:
    - The pool of each DP rank. Null before the server is ready.
    - With a target, a DP rank of this host whose pool nobody tells is not proven.
  returned: when something was looked at
  type: dict
  contains:
    dp_size:
      description: How many DP ranks there are.
      type: int
    per_dp_rank:
      description: Tokens by DP rank (V(DP0), ...), by the journal.
      type: dict
    server_info:
      description: Tokens of all DP ranks by C(/server_info), which does not name them, smallest first.
      type: list
      elements: int
    least_tokens:
      description: Tokens of the smallest pool.
      type: int
    least:
      description: The DP rank that has it.
      type: str
    total_tokens:
      description: Tokens of all DP ranks. Null when one of them is not told.
      type: int
    untold:
      description: DP ranks of this host whose pool nobody tells.
      type: list
      elements: str
    disagreements:
      description: One sentence when journal and C(/server_info) tell different pools.
      type: list
      elements: str
notices:
  description:
    - One sentence for each process that is not of the unit and holds 100 MiB or more of one of its boards at ready, and
      one where torch says that it ignores expandable segments.
  returned: when something was looked at
  type: list
  elements: str
answer:
  description: Text of the completion.
  returned: always
  type: str
answered_by_pid:
  description: The process of the unit that answered.
  returned: always
  type: int
pool_as_expected:
  description: Whether the pool reached O(expected_pool_tokens). Null without it.
  returned: always
  type: bool
seconds_after_ready_line:
  description:
    - Seconds from the server's ready line to the end of this module.
    - As a task it is an upper bound that includes the connection.
    - Null when the line was older than the wait, or when there was none.
  returned: always
  type: float
seconds_after_fatal_line:
  description: The same from the line that named the death.
  returned: always
  type: float
timeline:
  description: The phases of the start-up.
  returned: always
  type: list
  elements: dict
  contains:
    phase:
      description: Name of the phase.
      type: str
    at:
      description: When it began, in seconds since the epoch.
      type: float
    seconds:
      description: How long it took, null for the last one.
      type: float
phase:
  description: The phase that was seen last.
  returned: always
  type: str
elapsed_seconds:
  description: Seconds since the start-up began.
  returned: always
  type: float
waited_seconds:
  description: How long this module waited.
  returned: always
  type: float
deadline:
  description: How long the whole wait may take.
  returned: always
  type: dict
  contains:
    seconds:
      description: Seconds from the beginning of the wait.
      type: float
      sample: 4320
    auto:
      description: Whether it was computed.
      type: bool
    why:
      description: From what.
      type: str
      sample: 594.0 GiB of weights on an NVMe disk, the last start took 450 s
progress:
  description: How far the start-up was when it was looked at last.
  returned: always
  type: dict
  contains:
    part:
      description: Part of the weights that is loaded, from 0 to 1. Null in other phases and when nobody tells.
      type: float
    seconds_left:
      description: Seconds left as the last start took O(last_load_seconds). Null without it.
      type: float
    weights_left_seconds:
      description: Seconds until the weights are loaded by the rate so far. Null when it cannot be told.
      type: float
    words:
      description: The same in words, with what is compiled and with the silence.
      type: str
processes:
  description:
    - What the processes of the unit did when they were last looked at, the busiest first, when the verdict is
      V(failed). C(pid), C(name), C(state), C(doing), C(waits_in), C(cpu_seconds), C(read_gib) and C(resident_gib).
  returned: when something was looked at
  type: list
  elements: dict
last_line:
  description: The last line of the service, when the verdict is V(failed).
  returned: when something was looked at
  type: str
finished:
  description: Whether the wait is over. V(false) is returned to the action only.
  returned: always
  type: bool
slice:
  description: For the action, to go on with.
  returned: always
  type: dict
slice_duration_seconds:
  description: For the action, how long the process of this module ran.
  returned: always
  type: float
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _follow,
    _host,
    _load_progress,
    _patience_deadline,
    _proof,
    _ready_load,
    _ready_run,
    _witness_tool,
)

SLICE_OPTIONS = {
    "invocation_id": {"type": "str"},
    "phase": {"type": "str"},
    "restarts": {"type": "int"},
    "waiting_since": {"type": "float"},
    "boot_id": {"type": "str"},
    "waited_seconds": {"type": "float", "default": 0},
    "load": {"type": "dict"},
}

ARGUMENT_SPEC = {
    "unit": {"type": "str", "required": True},
    "invocation_id": {"type": "str"},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 30000},
    "api_key": {"type": "str", "no_log": True},
    "api_key_file": {"type": "path"},
    "target_tokens": {"type": "int", "no_log": False},
    "expected_pool_tokens": {"type": "int", "no_log": False},
    "min_headroom_gib": {"type": "float"},
    "prompt": {"type": "str", "default": "The capital of France is"},
    "answer_tokens": {"type": "int", "default": 8, "no_log": False},
    "timeout_seconds": {"type": "str", "default": "auto"},
    "model_path": {"type": "path"},
    "expected_weight_gib": {"type": "float"},
    "last_load_seconds": {"type": "float"},
    "patience_factor": {"type": "float", "default": 1},
    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    "poll_seconds": {"type": "float", "default": 0.5},
    "slice_seconds": {"type": "float", "default": 10},
    "journal": {"type": "str", "choices": ["auto", "none"], "default": "auto"},
    "lease": {
        "type": "dict",
        "options": {"instance": {"type": "str", "required": True}, "run_id": {"type": "str", "required": True}},
    },
    "fail_on_verdict": {"type": "bool", "default": True},
    "slice": {"type": "dict", "options": SLICE_OPTIONS},
}


def slice_seconds_of(params, part):
    """How long this call lasts. The first slice is one look: who loses the connection then knows what to wait for."""
    if not part:
        return None
    return params["slice_seconds"] if part.get("phase") else 0.0


def settings_of(params, address):
    """The settings of a wait, and of the slice of it that the action asks for."""
    part = params["slice"] or {}
    return _ready_run.Settings(
        address=address,
        target_tokens=params["target_tokens"],
        min_headroom_gib=params["min_headroom_gib"],
        expected_pool_tokens=params["expected_pool_tokens"],
        prompt=params["prompt"],
        answer_tokens=params["answer_tokens"],
        timeout_seconds=_patience_deadline.stated_seconds_of(params["timeout_seconds"]),
        model_path=params["model_path"],
        expected_weight_gib=params["expected_weight_gib"],
        last_load_seconds=params["last_load_seconds"],
        patience_factor=max(params["patience_factor"], 0.0),
        nvidia_smi=params["nvidia_smi"],
        poll_seconds=max(params["poll_seconds"], 0.05),
        slice_seconds=slice_seconds_of(params, part),
        known_phase=part.get("phase"),
        known_restarts=part.get("restarts"),
        waited_seconds=part.get("waited_seconds") or 0.0,
        waiting_since=part.get("waiting_since"),
        boot_id=part.get("boot_id"),
        load=part.get("load"),
    )


def started_path(follower):
    """The model of the process that runs now by its command line, or None."""
    state = follower.look_at_unit()
    return _witness_tool.argument_of(state.main_pid, _ready_load.MODEL_ARGUMENTS) if state else None


def deadline_of(params, path):
    """The deadline as far as it is known without a look at the process: ``_patience_deadline.Deadline``."""
    weight_bytes = _load_progress.weight_files_bytes(path) if path else None
    return _patience_deadline.deadline_of(
        _patience_deadline.stated_seconds_of(params["timeout_seconds"]),
        weight_bytes,
        _load_progress.disk_below(path) if weight_bytes else None,
        params["last_load_seconds"],
    )


def main():
    began = time.monotonic()
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC, mutually_exclusive=[["api_key", "api_key_file"]], supports_check_mode=True
    )
    params = module.params
    try:
        deadline = deadline_of(params, params["model_path"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    part = params["slice"] or {}
    follower = _follow.Follower(
        _host.runner_of(module),
        params["unit"],
        part.get("invocation_id") or params["invocation_id"],
        params["journal"] != "none",
    )
    if module.check_mode:
        if not params["model_path"]:
            deadline = deadline_of(params, started_path(follower))
        module.exit_json(
            changed=False,
            finished=True,
            verdict=None,
            unit=params["unit"],
            deadline=deadline.as_dict(),
            reason="Would wait up to {seconds:.0f} s ({why}) for {unit}: its pool, its ready line, and a completion on "
            "{host} port {port}.".format(seconds=deadline.seconds, why=deadline.why, **params),
        )
    # The action comes back for each slice; without it this one call is the whole wait.
    _proof.renew_lease(params["lease"], 0.0 if params["slice"] else deadline.seconds)
    address = _host.address_of(module, params)
    result = _ready_run.Waiter(follower, settings_of(params, address)).run()
    result["slice_duration_seconds"] = round(max(_host.process_age_seconds(), time.monotonic() - began), 3)
    if result["finished"] and result["verdict"] != "holds" and params["fail_on_verdict"]:
        module.fail_json(msg=_ready_run.failing_sentence(result), changed=False, **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
