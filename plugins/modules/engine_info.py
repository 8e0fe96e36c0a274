# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_info
short_description: Read what an installed SGLang engine is and accepts
version_added: 0.1.0
description:
  - Reads the version of SGLang in a virtual environment, the versions of torch and CUDA that it brings, and the server
    arguments that it accepts.
  - Nothing of the environment is run or imported. The arguments are read from the installed sources, which takes a
    fraction of a second where the engine's own help needs several and sometimes a working CUDA.
  - Server arguments that are given in O(arguments) are checked, so that one which would end the start is found before
    anything is stopped. Names are resolved as the engine's own parser does it. Types, numbers of values and choices are
    checked where the sources state them; what is computed while the engine starts is not checked.
  - Values of keys and passwords are in nothing that is returned.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
options:
  venv:
    description:
      - The virtual environment of the engine.
    type: path
    required: true
  arguments:
    description:
      - Server arguments to check, by name, with or without leading dashes, with dashes or underscores.
      - V(null) and an empty list leave an argument out, and so does V(false) for a flag. V(false) is the twin C(no-...)
        for a flag that has one, and a value for an argument that takes one.
    type: dict
    default: {}
author:
  - gpufleet.sglang authors (@gpufleet)
seealso:
  - module: gpufleet.sglang.model_info
  - module: gpufleet.sglang.gpu_info
"""

EXAMPLES = r"""
- name: Read the engine
  gpufleet.sglang.engine_info:
    venv: /opt/sglang/engines/0.5.23
  register: engine

- name: Refuse arguments that this engine does not take
  gpufleet.sglang.engine_info:
    venv: /opt/sglang/engines/0.5.23
    arguments:
      tp-size: 8
      cuda-graph-max-bs: 64
  register: engine
  failed_when: engine.problems | length > 0
"""

RETURN = r"""
version:
  description: Version of SGLang.
  returned: success
  type: str
  sample: 0.5.23
torch_version:
  description: Version of torch with its local part, V(null) when there is no torch.
  returned: success
  type: str
  sample: 2.14.1+cu130
cuda_version:
  description: Version of CUDA that torch was built for, V(null) for a build without CUDA.
  returned: success
  type: str
  sample: "13.0"
hip_version:
  description: Version of HIP that torch was built for, V(null) for other builds.
  returned: success
  type: str
python_version:
  description: Version of Python of the environment.
  returned: success
  type: str
  sample: 3.11.7
python:
  description: Path of the environment's interpreter, V(null) when it is missing.
  returned: success
  type: str
  sample: /opt/sglang/engines/0.5.23/bin/python
requires_python:
  description: The versions of Python that this SGLang states as its own requirement.
  returned: success
  type: str
  sample: ">=3.11"
console_script:
  description: Path of the command C(sglang) of the environment, V(null) for versions that have none.
  returned: success
  type: str
  sample: /opt/sglang/engines/0.5.23/bin/sglang
package_dir:
  description: Folder of the package C(sglang) whose sources were read.
  returned: success
  type: str
  sample: /opt/sglang/engines/0.5.23/lib/python3.11/site-packages/sglang
packages:
  description: Versions of packages that decide how the engine behaves, by name.
  returned: success
  type: dict
  sample: {"torch": "2.14.1", "transformers": "5.3.0"}
plugins:
  description:
    - Installed packages that the engine runs before it reads its arguments. They may add arguments and choices, so what
      seems to be theirs is a note instead of a problem.
  returned: success
  type: list
  elements: str
  sample: ["smg-grpc-servicer"]
accepted_arguments:
  description: All spellings of server arguments that are accepted, sorted, without leading dashes.
  returned: success
  type: list
  elements: str
  sample: ["api-key", "attention-backend", "tensor-parallel-size", "tp-size"]
deprecated_arguments:
  description: Arguments among them that the engine itself calls deprecated.
  returned: success
  type: list
  elements: str
  sample: ["enable-dp-attention"]
flag_arguments:
  description: Arguments among them that take no value.
  returned: success
  type: list
  elements: str
  sample: ["trust-remote-code"]
negatable_arguments:
  description: Flags among them that have a twin C(no-...), which switches them off.
  returned: success
  type: list
  elements: str
  sample: ["lora-strict-loading"]
reads_config_file:
  description: Whether this engine reads C(--config FILE.yaml), which is so from 0.5.3 on.
  returned: success
  type: bool
stops_by_sigkill:
  description:
    - Whether a clean stop of this engine ends in SIGKILL, which it sends to itself, so that it looks like a crash. This
      is so up to 0.5.18, and taken to be so below 0.5.20.
  returned: success
  type: bool
arguments:
  description:
    - O(arguments) in the same order with every name resolved to its one whole name. Other spellings, unique
      abbreviations and underscores are gone. A name that cannot be resolved stays and is among RV(problems).
  returned: success
  type: dict
  sample: {"tp-size": 8, "mem-fraction-static": 0.85}
notes:
  description:
    - What is worth knowing about O(arguments) and does not end the start, one sentence each. Deprecated arguments with
      their successor, V(false) where it is more than leaving out, and what was not checked because of RV(plugins).
  returned: success
  type: list
  elements: str
  sample: ["The server argument disable-cuda-graph is deprecated in this engine: use --cuda-graph-backend-decode."]
problems:
  description: What is wrong with O(arguments), empty when nothing is.
  returned: success
  type: list
  elements: dict
  contains:
    argument:
      description: The argument as it was given, with dashes.
      type: str
      sample: cuda-graph-max-bs
    problem:
      description:
        - V(unknown), V(ambiguous) (a prefix of several arguments), V(removed) (older versions had it, or this one ends
          at it), V(value) (the engine would not take it) or V(twice) (another spelling of it is given too).
      type: str
      sample: removed
    sentence:
      description: The problem in one sentence, with the way out where there is one.
      type: str
    suggestions:
      description: Names or values that may be meant, best first.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import (
    examine_arguments,
    reads_config_file,
    spellings,
    stops_by_sigkill,
)
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_installed import read_engine
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_values import secret_texts


def main():
    module = AnsibleModule(
        argument_spec={
            "venv": {"type": "path", "required": True},
            "arguments": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    module.no_log_values.update(secret_texts(module.params["arguments"]))
    try:
        engine = read_engine(module.params["venv"])
        accepted = engine.pop("arguments")
        plugins = engine.pop("plugins")
        version = engine["version"]
        examined = examine_arguments(module.params["arguments"], accepted, version, plugins)
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    result = dict(engine)
    result.update(
        changed=False,
        accepted_arguments=sorted(spellings(accepted)),
        deprecated_arguments=sorted(name for name, argument in accepted.items() if argument.deprecated),
        flag_arguments=sorted(
            name for argument in accepted.values() if not argument.takes_value for name in argument.spellings
        ),
        negatable_arguments=sorted(name for name, argument in accepted.items() if argument.negatable),
        plugins=[plugin.name for plugin in plugins],
        reads_config_file=reads_config_file(version),
        stops_by_sigkill=stops_by_sigkill(version),
        arguments=examined.arguments,
        notes=list(examined.notes),
        problems=[problem.as_dict() for problem in examined.problems],
    )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
