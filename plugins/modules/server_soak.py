# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_soak
short_description: Put the load on an SGLang server that would kill it later
version_added: 0.1.0
author:
  - gpufleet.sglang authors (@gpufleet)
description:
  - Sends unique prompts, which no cache can answer. They fill the cache until the pool is nearly full; nothing is
    flushed, a dirty cache is what a server has after an hour.
  - On the full cache it climbs a ladder of lengths, past the edges of a chunk and 32k, up to the declared context.
  - Short requests one by one show memory that each request keeps for ever. Then a full batch decodes, decodes while one
    more prompt near the context is computed, and the declared number of long requests runs at once.
  - Every DP rank gets the whole load.
  - Samples the free device memory meanwhile, and watches the unit. A death is named from the journal, with the request
    that was being worked on.
  - The verdict V(proven) needs an answer to at least one prompt near the declared context.
  - The load is bounded in seconds, requests and tokens. Which bound ended it is returned.
  - C(/health) is asked meanwhile. It answers 503 when one pass takes longer than E(SGLANG_HEALTH_CHECK_TIMEOUT) (20
    seconds). That is no death, and RV(health) tells of it. The server's watchdog (C(--watchdog-timeout), 300 seconds)
    counts for one pass too, that is for a chunk and not for a whole prompt.
  - When run as a task, progress is printed while it runs, one line for each phase and at most one in ten seconds. With
    C(async) the same load runs in one go and prints nothing.
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
      - Sends nothing in check mode and says what it would send; RV(verdict) is null then.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing on the host, so there is no difference to show.
requirements:
  - requests (Python library). The virtual environment of the engine has it; set C(ansible_python_interpreter) to its
    Python.
options:
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
  admin_api_key:
    description:
      - Admin key of the server, for O(flush). The default is the C(admin-api-key:) line of O(api_key_file), else the
        API key.
    type: str
  flush:
    description: Empty the cache before the load. The load is harder without.
    type: bool
    default: false
  image_file:
    description:
      - A picture on the host. With it one request with this picture ends the load.
      - What an image encoder takes at once only such a request shows.
    type: path
  context_tokens:
    description: The longest request that is promised. The default is what C(/v1/models) tells.
    type: int
  pool_tokens:
    description: Pool of the server in tokens. The default is what C(/server_info) tells.
    type: int
  vocab_size:
    description:
      - Vocabulary of the model. With it prompts are exact lists of token ids.
      - Without it they are random words, and their length is measured.
    type: int
  profile:
    description:
      - V(short) proves the promise. V(full) has more rungs and a longer wave.
      - V(none) sends nothing; RV(verdict) is null then.
    type: str
    choices: [short, full, none]
    default: short
  seconds:
    description:
      - Bound of the whole load, in seconds.
      - The default is computed from the measured prefill speed so that the plan can end, between 60 and 900.
    type: float
  max_requests:
    description: Bound in requests.
    type: int
    default: 2048
  max_prompt_tokens:
    description: Bound in prompt tokens, all requests together. Not bounded by default.
    type: int
  max_tokens:
    description: Tokens that each request of the wave decodes.
    type: int
    default: 32
  concurrency:
    description:
      - The declared number of long requests at once, on one DP rank. They run together in the end, each with its share
        of the pool, and the batch of the wave is not smaller.
      - By default none is declared, and the wave has 32 requests (4 on a CPU), or as many as the server runs at once.
    type: int
  endurance_requests:
    description:
      - So many requests must be survived when each request keeps some memory for ever; less gives the verdict
        V(unsafe). On a CPU this is not judged.
    type: int
    default: 1000
  unit:
    description: Unit of the server, watched for deaths and restarts. Without it only the connections tell of a death.
    type: str
  invocation_id:
    description: The invocation that is proven. The default is the one that runs at the beginning.
    type: str
  min_least_free_gib:
    description: Floor of the free device memory under load, in GiB. Less gives the verdict V(unsafe).
    type: float
  device:
    description:
      - Whose memory is sampled.
      - V(cuda) asks NVIDIA's management library or C(nvidia-smi), V(cpu) reads the available memory of the machine.
    type: str
    choices: [cuda, cpu]
    default: cuda
  boards:
    description: Indices of the boards that the server uses. The default is all.
    type: list
    elements: int
    default: []
  nvidia_smi:
    description: Path of C(nvidia-smi).
    type: str
    default: nvidia-smi
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
  progress_file:
    description:
      - A file in which the module notes how far it is. The action plugin of this module gives it and shows the
        progress.
    type: path
  fail_on_verdict:
    description: Fail for every verdict other than V(proven). With V(false) the verdict is only returned.
    type: bool
    default: true
seealso:
  - module: gpufleet.sglang.server_ready
"""

EXAMPLES = r"""
- name: Prove that the server survives its promise
  gpufleet.sglang.server_soak:
    unit: sglang-main.service
    port: 30000
    context_tokens: 32768
    pool_tokens: 200000
    vocab_size: 163840
    min_least_free_gib: 1
  become: true
  vars:
    ansible_python_interpreter: /opt/sglang/engines/0.5.23/bin/python
  register: soak
"""

RETURN = r"""
verdict:
  description:
    - V(proven); V(unsafe) (device memory ran out, or its floor was passed); V(short) (the pool was too small for the
      load); V(failed) (any other end, also when nothing could be proven within the bounds).
    - Null in check mode and for the profile V(none); only RV(reason) comes with it then.
  returned: always
  type: str
  sample: proven
reason:
  description: One sentence on why.
  returned: always
  type: str
failure:
  description:
    - Null, or a failure record as M(gpufleet.sglang.server_ready) returns it.
    - That of a death has the C(request) that caused it, with its C(phase), C(prompt_tokens) and the C(concurrency).
  returned: when something was sent
  type: dict
least_free_gib:
  description:
    - The least free memory in GiB that was seen on each board.
    - The key is the index of the board, or V(cpu).
  returned: when something was sent
  type: dict
  sample: {"0": 5.52, "1": 5.61}
at:
  description: When the least free was seen, in seconds since the load began, and on which board.
  returned: when something was sent
  type: dict
  sample: {"board": "0", "seconds": 12.4}
prefill_tokens_per_second:
  description: Prompt tokens per second until the first token, of requests that were sent alone.
  returned: when something was sent
  type: float
decode_tokens_per_second:
  description: Tokens per second of the whole server while a full batch decodes and nothing else runs.
  returned: when something was sent
  type: float
ttft_seconds:
  description: Time to the first token of the longest prompt.
  returned: when something was sent
  type: float
longest_prompt_tokens:
  description: Length of the longest prompt that was answered.
  returned: when something was sent
  type: int
requests:
  description: How many requests were sent.
  returned: when something was sent
  type: int
answered:
  description: How many were answered.
  returned: when something was sent
  type: int
failures:
  description: How many failed or were refused.
  returned: when something was sent
  type: int
cut:
  description: How many were under way when a bound ended the load.
  returned: when something was sent
  type: int
prompt_tokens:
  description: Prompt tokens of all answered requests.
  returned: when something was sent
  type: int
retractions:
  description:
    - How often the server had to take requests back because its pool was full.
    - Null when the journal was not watched.
  returned: when something was sent
  type: int
bound:
  description:
    - Null, or the bound that ended the load before its plan was through.
    - It is V(seconds), V(requests) or V(prompt_tokens).
  returned: when something was sent
  type: str
filled_share:
  description:
    - The share of the pool that unique prompts had filled before the prompt near the context was sent, at most 1.
    - Null when the pool is not known.
  returned: when something was sent
  type: float
clients:
  description: Who else was connected to the port meanwhile, by address. Null when no unit was watched.
  returned: when something was sent
  type: list
  elements: dict
  sample: [{"address": "10.0.0.5", "connections": 3}]
memory_samples:
  description: How many samples of the free memory were taken.
  returned: when something was sent
  type: int
phases:
  description: What each phase of the load did.
  returned: when something was sent
  type: list
  elements: dict
bound_seconds:
  description: The bound in seconds that was used.
  returned: when something was sent
  type: float
longest_prefill_seconds:
  description: The longest time to a first token, of any request.
  returned: when something was sent
  type: float
health:
  description:
    - What C(/health) said meanwhile, asked every five seconds, as RV(ignore:asked) (how often), RV(ignore:refused) (how
      often it was not 200) and RV(ignore:longest_seconds).
    - It does not change the verdict. What asks it to decide where clients go would have taken the server out.
  returned: when something was sent
  type: dict
  sample: {"asked": 12, "refused": 0, "longest_seconds": 4.01}
growth_mib_per_request:
  description: Memory that each request keeps for ever, in MiB. Null when there was none to be seen.
  returned: when something was sent
  type: float
dp_ranks:
  description: The DP ranks that computed a prompt. Null when neither the journal nor the server tells.
  returned: when something was sent
  type: list
  elements: int
context_tokens:
  description: The declared context that was used.
  returned: when something was sent
  type: int
pool_tokens:
  description: The pool that was used.
  returned: when something was sent
  type: int
seconds:
  description: How long the load took.
  returned: when something was sent
  type: float
"""

import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.gpufleet.sglang.plugins.module_utils import (
    _host,
    _proof,
    _secrets,
    _soak,
    _soak_job,
)

try:
    import requests

    REQUESTS_ERROR = None
except ImportError:
    REQUESTS_ERROR = traceback.format_exc()

ARGUMENT_SPEC = {
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 30000},
    "api_key": {"type": "str", "no_log": True},
    "api_key_file": {"type": "path"},
    "admin_api_key": {"type": "str", "no_log": True},
    "flush": {"type": "bool", "default": False},
    "image_file": {"type": "path"},
    "context_tokens": {"type": "int", "no_log": False},
    "pool_tokens": {"type": "int", "no_log": False},
    "vocab_size": {"type": "int"},
    "profile": {"type": "str", "choices": ["short", "full", "none"], "default": "short"},
    "seconds": {"type": "float"},
    "max_requests": {"type": "int", "default": 2048},
    "max_prompt_tokens": {"type": "int", "no_log": False},
    "max_tokens": {"type": "int", "default": 32, "no_log": False},
    "concurrency": {"type": "int"},
    "endurance_requests": {"type": "int", "default": 1000},
    "unit": {"type": "str"},
    "invocation_id": {"type": "str"},
    "min_least_free_gib": {"type": "float"},
    "device": {"type": "str", "choices": ["cuda", "cpu"], "default": "cuda"},
    "boards": {"type": "list", "elements": "int", "default": []},
    "nvidia_smi": {"type": "str", "default": "nvidia-smi"},
    "lease": {
        "type": "dict",
        "options": {"instance": {"type": "str", "required": True}, "run_id": {"type": "str", "required": True}},
    },
    "progress_file": {"type": "path"},
    "fail_on_verdict": {"type": "bool", "default": True},
}


def limits_of(params):
    """The bounds and the shape of the load."""
    return _soak.Limits(
        seconds=params["seconds"],
        requests=params["max_requests"],
        prompt_tokens=params["max_prompt_tokens"],
        answer_tokens=max(params["max_tokens"], 1),
        concurrency=params["concurrency"] or None,
        endurance_requests=params["endurance_requests"],
    )


def with_admin_key(module, params):
    """The options with the admin key of a file for ``--config``, where none was given; masked as the others are."""
    if params["admin_api_key"] or not params["flush"] or not params["api_key_file"]:
        return params
    key = _secrets.keys_of_file(params["api_key_file"]).get("admin-api-key")
    if key:
        module.no_log_values.add(key)
    return dict(params, admin_api_key=key)


def main():
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC, mutually_exclusive=[["api_key", "api_key_file"]], supports_check_mode=True
    )
    params = module.params
    if params["profile"] == "none":
        module.exit_json(changed=False, verdict=None, reason="No load was asked for (profile none).")
    if module.check_mode:
        reason = "Would send unique prompts up to {} tokens to {} port {} for at most {:g} s.".format(
            params["context_tokens"] or "the server's context",
            params["host"],
            params["port"],
            params["seconds"] or _soak.AUTO_MOST_SECONDS,
        )
        module.exit_json(changed=False, verdict=None, reason=reason)
    if REQUESTS_ERROR:
        module.fail_json(msg=missing_required_lib("requests"), exception=REQUESTS_ERROR)
    _proof.renew_lease(params["lease"])
    job = _soak_job.Job(
        address=_host.address_of(module, params),
        run_command=_host.runner_of(module),
        limits=limits_of(params),
        options=with_admin_key(module, params),
    )
    with requests.Session() as session:
        result = job.run(session, requests.RequestException)
    if result["verdict"] != "proven" and params["fail_on_verdict"]:
        module.fail_json(msg=_soak_job.failing_sentence(result, params), changed=False, **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
