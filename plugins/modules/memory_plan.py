# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_plan
short_description: Plan fraction and cap of an SGLang server from memory arithmetic
version_added: 0.1.0
description:
  - Computes which values of SGLang's C(--mem-fraction-static) hold the promised pool tokens at the bad end of the band
    and leave the reserve that graphs, tables and activations need; chooses one, predicts the pool and the headroom, and
    says what to do where none fits.
  - It is arithmetic only. It runs on the controller, needs no connection to the host, changes nothing, and is the same
    in check mode. What cannot be computed from what is given is null and named in RV(missing).
  - A plan that does not fit is a result, RV(feasible=false), and no failure. The task fails only for input that cannot
    be right.
  - Sizes are GiB (2^30 bytes) of one rank, tokens are those of one data-parallel rank. SGLang prints GiB as "GB".
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.action
attributes:
  action:
    support: full
  platform:
    platforms: all
    support: full
options:
  arguments:
    description:
      - Arguments of the server under SGLang's own names, in any spelling (C(tp-size), C(tp_size), C(--tp)).
      - What is stated here is never moved. C(mem-fraction-static), C(chunked-prefill-size), C(context-length) and
        C(max-running-requests) may be stated here or by their options.
    type: dict
    default: {}
  environment:
    description:
      - Environment of the server that the user declared. An allocator configuration found here is left alone.
    type: dict
    default: {}
  gpus:
    description:
      - The GPUs of the host as M(gpufleet.sglang.gpu_info) returns them in RV(gpufleet.sglang.gpu_info#module:gpus).
      - An entry may carry C(memory_own_mib), which is what the running server of this instance holds there. It counts
        as free.
      - E(CUDA_VISIBLE_DEVICES) in O(environment) chooses among them, by index or UUID, in its own order. A GPU that is
        not healthy is refused where it would be used, and so are GPUs whose free memory differs so much that SGLang
        ends the start, and too few of them. Each is RV(refusal) and no failure. GPUs of different kinds are a warning.
    type: list
    elements: dict
    default: []
  geometry:
    description:
      - The shape of the model as M(gpufleet.sglang.model_info) returns it. The keys C(experts_per_token) and
        C(moe_intermediate_size) are used for activations when they are there.
    type: dict
  weight_bytes:
    description:
      - Bytes of the weights of the checkpoint, of all ranks together.
    type: int
  weight_table:
    description:
      - The tensors of the checkpoint by kind, as M(gpufleet.sglang.model_info) returns them. With it, weights are split
        over the ranks as the engine does it, with what is replicated. Without, O(weight_bytes) are divided by the
        ranks.
    type: list
    elements: dict
    default: []
  weights_created:
    description:
      - What the engine makes at load besides the files, C(created) of M(gpufleet.sglang.model_info).
    type: list
    elements: dict
    default: []
  draft_weight_bytes:
    description:
      - Bytes of the weights of a draft model that is given by C(speculative-draft-model-path).
    type: int
  draft_weight_table:
    description:
      - The same as O(weight_table) for the draft model.
    type: list
    elements: dict
    default: []
  draft_weights_created:
    description:
      - The same as O(weights_created) for the draft model.
    type: list
    elements: dict
    default: []
  draft_geometry:
    description:
      - The shape of the draft model.
    type: dict
  engine_version:
    description:
      - Version of SGLang. Not given, the newest rules are used, in the wider band.
    type: str
  torch_version:
    description:
      - Version of torch, as M(gpufleet.sglang.engine_info) returns it. It decides the name of the variable for the
        allocator. Not given, the one that O(engine_version) pins.
    type: str
  target_tokens:
    description:
      - The promise, which is how many tokens the pool must hold on each data-parallel rank.
    type: int
  measurements:
    description:
      - What earlier start-ups showed, oldest first, as M(gpufleet.sglang.server_attempt) records them.
      - Each has C(origin) (V(host), V(play) or V(inventory)), C(keys), C(engine_version), C(fraction), C(cap_tokens),
        C(pool_tokens), C(free_before_load_gib), C(free_after_load_gib), C(weights_gib), C(kv_gib), C(cell_bytes),
        C(headroom_gib), C(least_free_gib), C(chunked_prefill_size), C(graph_gib), C(plan_free_gib) and
        C(load_seconds), as far as known.
      - A quantity is taken over when its own key agrees, or when one side has none. Free before load is only taken from
        the origin V(host).
    type: list
    elements: dict
    default: []
  deaths:
    description:
      - Out-of-memory ends to learn from. C(reserve_needed_gib) is not undercut again unless C(direction) is V(raise) or
        the key of the activation differs.
      - With C(wanted_gib) and C(reserved_unallocated_gib), here or in C(figures), fragmentation is recognised.
    type: list
    elements: dict
    default: []
  free_before_load_gib:
    description:
      - Free memory of the worst rank just before the weights are loaded, when it is known better.
    type: float
  free_after_load_gib:
    description:
      - Free memory of the worst rank just after the weights are loaded, when it is known better.
    type: float
  weights_gib:
    description:
      - What the weights take on the worst rank, when it is known better.
    type: float
  cell_bytes:
    description:
      - KV bytes of one token on one rank, when it is known better or when the layout is not understood.
    type: float
  context_tokens:
    description:
      - The longest request, which sets C(--context-length). With V(auto), the target, but not more than the model can.
    type: raw
  max_context_tokens:
    description:
      - The longest request that the model can take. Not given, C(max_context_tokens) of O(geometry).
    type: int
  pool_policy:
    description:
      - V(promise) caps the pool at the target in whole pages, and what the fraction would give beyond that stays free.
        The fraction is the middle of the interval.
      - V(fill) has no cap and takes the largest fraction that keeps the reserve.
    type: str
    choices: [promise, fill]
    default: promise
  mem_fraction_static:
    description:
      - A number is never moved, only judged, with the settings that the plan would take for the target with V(auto).
      - With V(auto), it is chosen.
    type: raw
  chunked_prefill_size:
    description:
      - A number is never moved; V(-1) is no chunking. With V(auto), SGLang's own default, or a smaller one where the
        plan needs the room.
    type: raw
  allocator_conf:
    description:
      - Configuration of torch's allocator; an empty text sets none. It is set as C(PYTORCH_ALLOC_CONF) from torch 2.10
        on and as C(PYTORCH_CUDA_ALLOC_CONF) below; a name that O(environment) has is kept.
      - With V(auto), it is unset until one of the O(deaths) shows fragmentation and nothing known forbids expandable
        segments.
    type: raw
  min_headroom_gib:
    description:
      - Floor of the free memory when the server is ready, in GiB.
      - With V(auto), what the load surely takes and the floor of least free.
    type: raw
  min_least_free_gib:
    description:
      - Floor of the free memory under load, in GiB.
      - With V(auto), 0.5% of free before load and at least 0.25; on a CPU 10% and at least 2.
    type: raw
  max_running_requests:
    description:
      - Requests at a time. Not given or V(auto), SGLang's own default, whose table is then part of the reserve.
    type: raw
  allow_unproven_plan:
    description:
      - Do not refuse, but give the values that come nearest.
    type: bool
    default: false
  device:
    description:
      - Where the server runs. Not given, it is told from O(arguments) and O(gpus).
    type: str
    choices: [cuda, cpu]
  own_server_running:
    description:
      - Whether the server that a start takes the place of ran when O(gpus) were read, so that what it holds is missing
        in their free memory. Not given, it is told from O(server).
    type: bool
  own_pids:
    description:
      - Processes of the running server that a start takes the place of. What they hold of O(gpus) by its C(processes)
        (C(pid), C(name), C(memory_mib)) counts as free. Others are shown by name, process and size.
    type: list
    elements: int
    default: []
  running_gib:
    description:
      - RAM that the processes of this running server hold together. On a CPU it counts as free, as it
        is once the server was stopped. With GPUs it says nothing; there C(memory_own_mib) of O(gpus) does.
    type: float
    default: 0.0
  other_instances:
    description:
      - Other servers of this host that are planned and may not run yet, each with C(instance) (its name) and C(boards)
        (RV(boards) of its plan). What they do not hold yet counts as taken.
    type: list
    elements: dict
    default: []
  keys:
    description:
      - Keys of the present configuration by quantity (C(weights), C(cell), C(activation)). Not given, they are
        computed.
    type: dict
  server:
    description:
      - Result of M(gpufleet.sglang.server_info). When it is given, RV(step) is returned.
    type: dict
  attempts:
    description:
      - Judged attempts of this run, oldest first.
    type: list
    elements: dict
    default: []
  request:
    description:
      - Everything that the user declared for this instance. A stored proof is valid for one request.
    type: dict
  problems:
    description:
      - Sentences, or problems of M(gpufleet.sglang.engine_info), for which nothing must be started.
    type: list
    elements: raw
    default: []
  show:
    description:
      - Print the plan as a table while the play runs, one line each, under the name of the host.
    type: bool
    default: false
  soak_wanted:
    description:
      - Whether a server that holds but was never put under load has to be proven.
    type: bool
    default: true
  when_not_proven:
    description:
      - The step when nothing could be proven.
    type: str
    choices: [restore, keep, stop]
    default: restore
  look_only:
    description:
      - The step is asked for to be shown, not to be taken.
        What is not known yet, because engine or model are not there, is no refusal then.
    type: bool
    default: false
  max_attempts:
    description:
      - How many configurations may be tried in one run.
    type: int
    default: 3
  origins:
    description:
      - Where the declared arguments and variables of the environment come from, with C(arguments) and C(environment)
        by name. It is shown beside each value.
    type: dict
    default: {}
  unit_text:
    description:
      - The unit as it would be written with the proven configuration. What differs from the unit on the host decides,
        with O(request), whether files, a restart or a soak are needed.
    type: str
  overwrite_drift:
    description: Whether files that were changed by hand since the proof may be overwritten.
    type: bool
    default: false
  restart_pending:
    description: Whether to restart for directives of the unit that wait for the next restart.
    type: bool
    default: false
author:
  - gpufleet.sglang authors (@gpufleet)
seealso:
  - module: gpufleet.sglang.gpu_info
  - module: gpufleet.sglang.model_info
  - module: gpufleet.sglang.server_attempt
"""

EXAMPLES = r"""
- name: What does a token cost
  gpufleet.sglang.memory_plan:
    arguments:
      tp-size: 8
    geometry: "{{ model.geometry }}"
    engine_version: 0.5.23
  register: plan

- name: Plan a promise of 200,000 tokens
  gpufleet.sglang.memory_plan:
    arguments:
      tp-size: 8
      model-path: /models/kimi-k2
    gpus: "{{ gpus.gpus }}"
    geometry: "{{ model.geometry }}"
    weight_bytes: "{{ model.weight_bytes }}"
    engine_version: 0.5.23
    target_tokens: 200000
  register: plan

- name: Show it
  ansible.builtin.debug:
    msg: "{{ plan.table }}"

- name: Judge a fraction that is set by hand, from figures of an earlier start-up
  gpufleet.sglang.memory_plan:
    mem_fraction_static: 0.94
    free_before_load_gib: 94.97
    weights_gib: 75.0
    cell_bytes: 70272
    target_tokens: 200000
    deaths:
      - reserve_needed_gib: 5.71
"""

RETURN = r"""
feasible:
  description:
    - Whether a fraction, or the declared one, holds the target at the bad end of the band and keeps the reserve.
    - Null when not enough is known.
  returned: success
  type: bool
  sample: true
works:
  description: Variables of the role that would work in the place of a declared fraction that does not; else null.
  returned: success
  type: dict
is_open:
  description:
    - Whether the target fits by what is expected and not at the bad end of the bands, while load, weights or free
      before load were never measured on this host. It is no refusal then, and a start tells.
  returned: success
  type: bool
  sample: false
fraction:
  description: The chosen or declared fraction; null when none is feasible.
  returned: success
  type: float
  sample: 0.932
fraction_low:
  description: Smallest fraction whose lower band holds the target, rounded up to three decimals.
  returned: success
  type: float
  sample: 0.929
fraction_high:
  description: Largest fraction whose reserve is enough, rounded down to three decimals.
  returned: success
  type: float
  sample: 0.935
cap_tokens:
  description: Value for C(--max-total-tokens), in whole pages; null for no cap.
  returned: success
  type: int
  sample: 200000
pool_tokens:
  description: Tokens that the pool is expected to hold, after the cap and in whole pages.
  returned: success
  type: int
  sample: 200000
pool_gib:
  description: What the pool takes, the pool of window layers with it.
  returned: success
  type: float
  sample: 13.089
window_tokens:
  description: Tokens in the pool of window layers; null without one.
  returned: success
  type: int
state_slots:
  description: Slots for the states of requests of linear-attention models; null without such layers.
  returned: success
  type: int
state_gib:
  description: What the states take; null without such layers.
  returned: success
  type: float
state_requests:
  description: How many requests the state slots admit at a time; null without such layers.
  returned: success
  type: int
predicted_tokens:
  description: What the fraction gives before the cap, in whole pages.
  returned: success
  type: int
  sample: 206461
predicted_tokens_low:
  description: The same at the low end of the band.
  returned: success
  type: int
  sample: 204933
predicted_tokens_high:
  description: The same at the high end of the band.
  returned: success
  type: int
  sample: 207989
predicted_headroom_gib:
  description: Free memory expected when the server is ready, with the pool after the cap.
  returned: success
  type: float
  sample: 2.66
predicted_least_free_gib:
  description: Least free memory expected under load.
  returned: success
  type: float
  sample: 1.19
predicted_headroom_low_gib:
  description: RV(predicted_headroom_gib) at the low end of its band, the safe one.
  returned: success
  type: float
  sample: 2.56
predicted_headroom_high_gib:
  description: RV(predicted_headroom_gib) at the high end of its band.
  returned: success
  type: float
  sample: 2.76
upgrade:
  description:
    - One sentence for each change between the engine version of the newest measurement of this host and the planned one
      that moves the needed fraction.
  returned: success
  type: list
  elements: str
band_gib:
  description: Half band of the memory that is left for the pool.
  returned: success
  type: float
  sample: 0.1
tokens_that_fit:
  description: Largest target for which some fraction would be feasible with what is declared.
  returned: success
  type: int
  sample: 216542
cell_bytes:
  description: KV bytes of one token on one rank.
  returned: success
  type: float
  sample: 70272
free_before_load_gib:
  description: Free memory of the worst rank before the load.
  returned: success
  type: float
  sample: 94.97
free_after_load_gib:
  description: Free memory of the worst rank when the pool is sized.
  returned: success
  type: float
  sample: 19.97
reserve_gib:
  description: What the fraction leaves outside weights and pool.
  returned: success
  type: float
  sample: 6.458
reserve_needed_gib:
  description: What has to be left there.
  returned: success
  type: float
  sample: 6.161
min_headroom_gib:
  description: Floor of the free memory when the server is ready, declared or computed.
  returned: success
  type: float
  sample: 1.59
min_least_free_gib:
  description: Floor of the free memory under load, declared or computed.
  returned: success
  type: float
  sample: 0.47
engine_default:
  description:
    - C(fraction) that SGLang itself would take, C(tokens) that it gives and C(reserve_gib) that it leaves; null where
      its rule is not known.
  returned: success
  type: dict
  sample: {"fraction": 0.832, "tokens": 61348, "reserve_gib": 15.95}
rows:
  description:
    - The memory of a rank row by row.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: What it is.
      type: str
      returned: success
      sample: request table
    gib:
      description: How much.
      type: float
      returned: success
      sample: 1.53
    source:
      description: C(given), C(measured), C(table) or C(assumed).
      type: str
      returned: success
      sample: table
    note:
      description: How it came about.
      type: str
      returned: success
      sample: 2,048 requests x 200,000 tokens x 4 bytes
    part:
      description:
        - C(board) is how a board becomes free before load, C(before) is there before the load, C(static) is weights and
          pool, C(ready) is taken until the server is ready, C(load) by requests, and C(floor) must still be free then.
        - A row named C(warning) takes nothing and says what to look at. It is a warning of the task too.
      type: str
      returned: success
      sample: ready
levers:
  description:
    - What could be moved and what it buys on its own, smallest change first.
    - Each has C(lever), C(from), C(to), C(gib), C(tokens), C(automatic) (the plan moves it by itself), C(note) and
      C(paste), the line of an inventory that moves it.
  returned: success
  type: list
  elements: dict
explanation:
  description: What was decided and why, in a few sentences.
  returned: success
  type: str
reason:
  description: The choice in one sentence.
  returned: success
  type: str
refusal:
  description:
    - The sentence for which nothing must be restarted, with values that would work. Null when nothing is in the way.
  returned: success
  type: str
missing:
  description: Options that would be needed for the rest of the answer.
  returned: success
  type: list
  elements: str
notes:
  description:
    - What has to be known beside the rows, one sentence each, such as arguments whose memory cannot be counted before a
      first start.
  returned: success
  type: list
  elements: str
boards:
  description:
    - What this server takes of each of its GPUs at the peak of the load, C(gib), and how much of it it does not hold
      yet, C(more_gib), with C(index) and C(uuid). For O(other_instances) of another plan.
  returned: success
  type: list
  elements: dict
table:
  description: The plan as aligned lines, with short sources. The whole of each source is in RV(rows).
  returned: success
  type: list
  elements: str
arguments:
  description: The complete arguments of the server under SGLang's names, the declared ones and the decided ones.
  returned: success
  type: dict
  sample: {"tp-size": 8, "mem-fraction-static": 0.932, "max-total-tokens": 200000}
environment:
  description: The environment of the server, the declared one and the allocator where it was decided.
  returned: success
  type: dict
decided:
  description:
    - The decided values under the names of the options, among them the floors C(min_headroom_gib) and
      C(min_least_free_gib).
  returned: success
  type: dict
quantity_keys:
  description: Keys of the planned configuration by quantity.
  returned: success
  type: dict
engine_version:
  description: As it was given.
  returned: success
  type: str
plan_free_gib:
  description: Free memory of the worst GPU on which the plan stands, before anything of the server is started.
  returned: success
  type: float
remembered:
  description: What O(measurements) and O(deaths) say, what of it counts for this plan, and from where, as lines.
  returned: success
  type: list
  elements: str
settings:
  description: Each argument and variable of the environment with C(name), C(value) and where it comes from.
  returned: success
  type: list
  elements: dict
  sample:
    - {"kind": "argument", "name": "tp-size", "value": 8, "origin": "sglang_server_arguments_group"}
step:
  description:
    - The next step of the instance as data, with C(action), C(values), C(reason), what it costs as C(class), the
      C(changes) behind it and what of them is C(pending).
  returned: when O(server) is given
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils._budget_options import argument_spec


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    module.fail_json(
        msg="Expected memory_plan to run on the controller, found it on a host:"
        " call it as gpufleet.sglang.memory_plan from a collection that has its action plugin."
    )


if __name__ == "__main__":
    main()
