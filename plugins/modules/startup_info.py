# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: startup_info
short_description: Explain a start-up of an SGLang server from its log
version_added: 0.1.0
description:
  - Reads a finished log of an SGLang server and returns what it says about the start-up (pool, memory of every rank,
    phases) and, when the server died, the cause with its figures and what to change.
  - The log is a file on the host or the journal of a unit's last invocation.
  - A file may be SGLang's own output, any output mode of C(journalctl) with the whole line in it (C(short) and its
    relatives, C(cat), C(json), C(export)), a file of syslog, what C(docker logs) or C(kubectl logs) print, with or
    without times, a log of docker's json-file driver or of a CRI runtime. It may be packed by gzip, bzip2 or xz.
  - Of a file with several starts the last one is explained; how those before it ended is told too.
  - Secrets are masked in everything that is returned.
author:
  - gpufleet.sglang authors (@gpufleet)
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
options:
  file:
    description:
      - Path of a log file on the host.
      - Exactly one of O(file) and O(unit) is needed.
    type: path
  unit:
    description:
      - Name of a systemd unit whose last invocation is read from the journal.
      - Reading the journal needs root or membership in the group C(systemd-journal).
    type: str
  invocation_id:
    description:
      - The invocation to read instead of the last one, 32 hexadecimal digits.
      - With O(file) it selects among the invocations in a log of C(journalctl -o json).
    type: str
  target_tokens:
    description:
      - Pool tokens that were wanted.
      - With O(cell_bytes), a pool that found no room is judged for good, that is, whether any fraction could hold them.
    type: int
  cell_bytes:
    description: KV-cache bytes of one token on one rank, as M(gpufleet.sglang.memory_plan) computes them.
    type: int
  secrets:
    description:
      - Values that must not be returned, in addition to what is recognised as a secret by name or shape.
    type: list
    elements: str
    default: []
seealso:
  - module: gpufleet.sglang.server_ready
"""

EXAMPLES = r"""
- name: Explain a crash from a log file
  gpufleet.sglang.startup_info:
    file: /tmp/sglang.log
  register: explained

- name: Show the cause
  ansible.builtin.debug:
    msg: "{{ explained.failure.kind }}: {{ explained.failure.evidence }} -> {{ explained.failure.advice }}"
  when: explained.failure is not none

- name: Read the last start of a unit from the journal
  gpufleet.sglang.startup_info:
    unit: sglang-main.service
  become: true
"""

RETURN = r"""
startup:
  description: What the log says about the start-up. Memory in GiB; over all ranks the tightest one counts.
  returned: always
  type: dict
  contains:
    state:
      description: V(ready) when the ready line was read, else V(loading).
      type: str
    phase:
      description: The phase reached, one of V(process), V(init), V(weights), V(pool), V(graphs), V(warmup), V(ready).
      type: str
    pool_tokens:
      description: Tokens of the KV-cache pool, per DP rank; the smallest pool where they differ.
      type: int
    total_pool_tokens:
      description: Tokens of the pools of all DP ranks together.
      type: int
    free_before_load_gib:
      description: Device memory free just before the weights were loaded.
      type: float
    free_after_load_gib:
      description: Device memory free just after the weights were loaded.
      type: float
    weights_gib:
      description: Memory of the weights on one rank.
      type: float
    kv_gib:
      description: Memory of the pool on one rank.
      type: float
    pool_end_free_gib:
      description: Memory free after the pools were made.
      type: float
    headroom_gib:
      description: Memory free when the server was ready.
      type: float
    tightest_rank:
      description: The rank with the least headroom.
      type: str
    load_seconds:
      description: Seconds from the first entry to the ready line.
      type: float
    ready_at:
      description: Time of the ready line, in seconds since the epoch. A plain log has no time zone and is read as UTC.
      type: float
    graph_gib:
      description: Memory taken by the graphs on one rank.
      type: float
    draft_weights_gib:
      description: Weights of the draft model, where there is one.
      type: float
    draft_kv_gib:
      description: Pool of the draft model, where there is one.
      type: float
    state_gib:
      description: State cache of a hybrid model, where there is one.
      type: float
    sizing_free_gib:
      description: What the engine says that its sizing started from, where it prints it.
      type: float
    swa_tokens:
      description: Tokens of the sliding-window pool, where there is one.
      type: int
    va_upper_bound_tokens:
      description: Reserved addresses of a pool that is sized after graph capture. This is not the pool.
      type: int
    first_at:
      description: Time of the first entry, in seconds since the epoch.
      type: float
    context_tokens:
      description: Longest request.
      type: int
    chunked_prefill_size:
      description: Chunk of the prefill in tokens, V(-1) when it is off.
      type: int
    max_running_requests:
      description: Requests that may run at once.
      type: int
    kv_dtype:
      description: Data type of the pool.
      type: str
    mem_fraction_static:
      description: The fraction, where the log tells it.
      type: float
    model_class:
      description: Class of the model.
      type: str
    progress:
      description: The last step of a progress bar while loading.
      type: dict
    waiting_for:
      description: What a long silence is about, where the log says it.
      type: str
    suppressed_lines:
      description: Lines that the journal says it dropped.
      type: int
    evidence:
      description: V(journal) when the log tells the pool, else null.
      type: str
    engine_version:
      description: Version of SGLang, where paths in the log tell it.
      type: str
    ranks:
      description: The same figures for every rank.
      type: list
      elements: dict
    phases:
      description: The phases with their begin (epoch) and length in seconds.
      type: list
      elements: dict
failure:
  description: The cause of death, null when nothing died.
  returned: always
  type: dict
  contains:
    kind:
      description: The class of the cause, for example V(oom_prefill), V(kv_pool_too_small), V(port_in_use), V(unknown).
      type: str
    phase:
      description: The phase in which it happened.
      type: str
    fatal:
      description: Whether it ends the server.
      type: bool
    direction:
      description: Which way the fraction must move, one of V(raise), V(lower), V(keep), V(infeasible).
      type: str
    evidence:
      description: The line that names the cause, masked.
      type: str
    advice:
      description: What to change, in one sentence.
      type: str
    figures:
      description: Figures of the evidence, with their units in their names.
      type: dict
    transient:
      description: Whether an unchanged second try may succeed.
      type: bool
    at:
      description: Time of the evidence, in seconds since the epoch.
      type: float
    consequence_at:
      description: Time of the first line that only says that somebody died.
      type: float
    fault:
      description: Whether V(configuration), V(host) or V(engine) is to blame.
      type: str
    row:
      description: Name of the wording that was recognised, null when none was.
      type: str
    lines:
      description: The last lines before a death that nothing names, masked. Empty when the cause is known.
      type: list
      elements: str
    ranks:
      description: Ranks that printed the evidence.
      type: list
      elements: str
notices:
  description: Lines that end nothing and are worth knowing, for example a full pool.
  returned: always
  type: list
  elements: dict
entries_read:
  description:
    - Number of lines read of the invocation. Of a server that is up for long, its start-up and its end are read, and a
      death between them is searched.
  returned: always
  type: int
invocation_id:
  description: The invocation that was read, null for a plain log.
  returned: always
  type: str
earlier:
  description: How the last starts before this one ended, as far as the log holds them. Several are a crash loop.
  returned: always
  type: list
  elements: dict
  contains:
    invocation_id:
      description: The invocation, null for a plain log.
      type: str
    state:
      description: Whether it became V(ready) or was still V(loading) when it ended.
      type: str
    kind:
      description: The class of the cause of its end, null when none was found.
      type: str
    evidence:
      description: The line that names the cause, masked.
      type: str
masked:
  description: Whether something in the log was recognised as a secret and masked, had it been returned.
  returned: always
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils import _explain, _explain_file, _host


def main():
    module = AnsibleModule(
        argument_spec={
            "file": {"type": "path"},
            "unit": {"type": "str"},
            "invocation_id": {"type": "str"},
            "target_tokens": {"type": "int", "no_log": False},
            "cell_bytes": {"type": "int"},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
        },
        required_one_of=[("file", "unit")],
        mutually_exclusive=[("file", "unit")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        if params["file"]:
            log, unit = _explain_file.read_file(params["file"]), None
        else:
            log, unit = _explain.read_unit(_host.runner_of(module), params["unit"], params["invocation_id"])
        explained = _explain.explain(
            log,
            unit=unit,
            invocation_id=params["invocation_id"],
            target_tokens=params["target_tokens"],
            cell_bytes=params["cell_bytes"],
            secrets=params["secrets"],
        )
    except _explain_file.Unreadable as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **explained)


if __name__ == "__main__":
    main()
