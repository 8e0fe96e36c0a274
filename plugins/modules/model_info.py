# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_info
short_description: Read geometry, weight bytes and completeness of a model folder
version_added: 0.1.0
description:
  - Reads C(config.json) and the headers of the safetensors files in a model folder. Tensor data is never read, nothing
    is unpickled, no code of the model is run.
  - Returns the geometry that decides what a token costs in the KV cache, the bytes of the weights, and whether every
    file of the model is there.
  - Multi-head, grouped-query, multi-query and multi-head latent attention are understood. For anything else, and for a
    figure that the configuration leaves out, the module fails and names it, because a guessed cell makes a plan that
    does not hold.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
options:
  path:
    description:
      - The model folder, with C(config.json) and the safetensors files in it.
    type: path
    required: true
  config_overrides:
    description:
      - Keys that replace those of C(config.json) before it is read, as the server argument C(json-model-override-args)
        does, or that complete a configuration which leaves a figure out.
    type: dict
    default: {}
  require_geometry:
    description:
      - Whether a geometry that is not understood fails the module.
      - When V(false), RV(geometry) is V(null) then and RV(geometry_problem) says why. Use it where the cell of the
        server is stated in the inventory.
    type: bool
    default: true
author:
  - gpufleet.sglang authors (@gpufleet)
seealso:
  - module: gpufleet.sglang.engine_info
  - module: gpufleet.sglang.gpu_info
"""

EXAMPLES = r"""
- name: Read the model
  gpufleet.sglang.model_info:
    path: /srv/models/SmolLM2-135M-Instruct
  register: model

- name: Show the files that are not there
  ansible.builtin.debug:
    var: model.missing_files

- name: Read weights and completeness of a model whose layout is stated by hand
  gpufleet.sglang.model_info:
    path: /srv/models/a-hybrid-model
    require_geometry: false
  register: model
"""

RETURN = r"""
geometry:
  description: What decides the cell, V(null) only with O(require_geometry=false).
  returned: success
  type: dict
  contains:
    architecture:
      description: First entry of C(architectures).
      type: str
      sample: LlamaForCausalLM
    model_type:
      description: The model type that the file states.
      type: str
      sample: llama
    attention:
      description: V(mha) (multi-head, grouped-query and multi-query) or V(mla) (multi-head latent attention).
      type: str
      sample: mha
    layers:
      description: Layers with attention.
      type: int
      sample: 30
    hidden_size:
      description: Width of the model.
      type: int
      sample: 576
    attention_heads:
      description: Query heads.
      type: int
      sample: 9
    kv_heads:
      description: Key and value heads. Without a part in MLA.
      type: int
      sample: 3
    head_dim:
      description: Numbers in a key head, V(null) for MLA where the file does not state it.
      type: int
      sample: 64
    v_head_dim:
      description: Numbers in a value head.
      type: int
      sample: 64
    kv_lora_rank:
      description: Width of the latent row of MLA, else V(null).
      type: int
      sample: 512
    qk_rope_head_dim:
      description: Width of the position row of MLA, else V(null).
      type: int
      sample: 64
    vocab_size:
      description: Tokens in the vocabulary.
      type: int
      sample: 49152
    intermediate_size:
      description: Width of the dense feed-forward layers.
      type: int
      sample: 1536
    experts:
      description: Experts of a mixture-of-experts model, else V(null).
      type: int
    nextn_layers:
      description: Built-in draft layers (multi-token prediction), else V(null).
      type: int
    max_context_tokens:
      description: Longest context that the engine derives from the file, V(null) when the file does not say.
      type: int
      sample: 8192
    dtype:
      description: Type that the file states for the weights.
      type: str
      sample: bfloat16
    kv_cache_quant_algo:
      description: Type of the KV cache that the checkpoint asks for, V(null) when it does not.
      type: str
      sample: FP8
    quantized:
      description: Whether the weights are quantised. Those that are not are cast to the type that the engine runs in.
      type: bool
      sample: false
    notes:
      description: Sentences on figures that are defaults of the model's class and on windowed layers.
      type: list
      elements: str
geometry_problem:
  description: Why there is no geometry, V(null) when there is one.
  returned: success
  type: str
weight_bytes:
  description:
    - Sum of the tensor bytes of all files that the engine loads. V(null) while a file is missing or damaged.
    - Copies in another layout (C(consolidated*.safetensors)) and files in sub-folders do not count.
  returned: success
  type: int
  sample: 269030016
bytes_by_dtype:
  description: The same by type of tensor, as the headers name the types.
  returned: success
  type: dict
  sample: {"BF16": 269030016}
tied_head_bytes:
  description: Bytes among them of an output head that is not loaded, because it is tied to the embeddings.
  returned: success
  type: int
  sample: 0
draft_layer_bytes:
  description: Bytes among them of built-in draft layers, which are not loaded without speculation.
  returned: success
  type: int
  sample: 0
dtype:
  description: Type that C(config.json) states for the weights. The files may hold others.
  returned: success
  type: str
  sample: bfloat16
quantization:
  description: What the model states of its quantisation, V(null) for a model without any.
  returned: success
  type: dict
  contains:
    method:
      description: Name of the method.
      type: str
      sample: fp8
    algo:
      description: Algorithm that ModelOpt states.
      type: str
      sample: MIXED_PRECISION
    kv_cache_quant_algo:
      description: Type of the KV cache that the checkpoint asks for.
      type: str
      sample: FP8
    source:
      description: The file and key that were read.
      type: str
      sample: quantization_config of config.json
max_context_tokens:
  description: As in RV(geometry.max_context_tokens).
  returned: success
  type: int
  sample: 8192
complete:
  description: Whether every file is there with the size that its header implies.
  returned: success
  type: bool
files:
  description: The safetensors files that the engine loads, also those that are missing.
  returned: success
  type: list
  elements: str
  sample: ["model.safetensors"]
missing_files:
  description: Those among them that are missing or damaged.
  returned: success
  type: list
  elements: str
problems:
  description: One sentence for each of them.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils._model import read_folder


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "config_overrides": {"type": "dict", "default": {}},
            "require_geometry": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    try:
        result = read_folder(
            module.params["path"], module.params["config_overrides"], module.params["require_geometry"]
        )
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
