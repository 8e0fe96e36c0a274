# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_info
short_description: Read geometry, weights and completeness of a model, in a folder or on a hub
version_added: 0.1.0
description:
  - Reads C(config.json) and the headers of the safetensors files of a model. Tensor data is never read, nothing is
    unpickled, no code of the model is run.
  - The model is in a folder, or on a hub from which the headers come by range requests, some megabytes of hundreds of
    gigabytes. The hub is asked from where the module runs; C(delegate_to=localhost) asks it from the controller when
    the hosts have no route to it.
  - Returns the geometry that decides what a token costs in the KV cache, the bytes of the weights, and whether every
    file of the model is there.
  - Multi-head, grouped-query, multi-query and multi-head latent attention are understood, also sparse indices, sliding
    windows and layers that keep a state (linear attention, Mamba). For anything else, and for a figure that the
    configuration leaves out, the module fails and names it, because a guessed cell makes a plan that does not hold.
extends_documentation_fragment:
  - gpufleet.sglang.attributes
  - gpufleet.sglang.attributes.info_module
  - gpufleet.sglang.attributes.linux
  - gpufleet.sglang.attributes.action
  - gpufleet.sglang.hub
attributes:
  action:
    support: full
    details:
      - Hosts that ask a hub from the controller share the answer, so that a fleet asks once for each model.
options:
  path:
    description:
      - The model folder, with C(config.json) and the safetensors files in it.
      - With O(repo) too, the folder is read where it exists, else the hub is asked.
    type: path
  repo:
    description: The model's name on the hub, for example V(Qwen/Qwen3-32B).
    type: str
  revision:
    description: A commit hash, a tag or a branch. Nothing is loaded, so a branch is not refused; see RV(commit).
    type: str
    default: main
  tries:
    description: How often a request to the hub is tried.
    type: int
    default: 3
  cache_dir:
    description:
      - A folder in which the answer of the hub is kept for other hosts of the same run. The action plugin of this
        module gives it where the module runs on the controller.
    type: path
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

- name: Read a model that is not on the host yet, from the controller
  gpufleet.sglang.model_info:
    repo: HuggingFaceTB/SmolLM2-135M-Instruct
    revision: 12fd25f77366fa6b3b4b768ec3050bf629380bac
  delegate_to: localhost
  register: model

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
      description:
        - V(mha) (multi-head, grouped-query and multi-query), V(mla) (multi-head latent attention) or V(compressed)
          (latents of several tokens in one row, DeepSeek V4).
      type: str
      sample: mha
    layers:
      description: All layers of the language model.
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
    experts_per_token:
      description: Experts that one token is sent to, V(null) without experts or where the file does not say.
      type: int
    moe_intermediate_size:
      description: Width of one expert, V(null) without experts or where the file does not say.
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
    multimodal:
      description:
        - Whether the engine takes images or sound with this model when no argument says otherwise. It then keeps room
          for them.
      type: bool
      sample: false
    vision_layers:
      description: Layers of the image encoder, from which the engine takes its own default fraction.
      returned: when the model states it
      type: int
    vision_hidden_size:
      description: Width of the image encoder, likewise.
      returned: when the model states it
      type: int
    vision_intermediate_size:
      description: Width of the feed-forward layers of the image encoder.
      returned: when the model states it
      type: int
    layers_built_twice:
      description:
        - Whether the engine makes the layers of this model twice when it loads them.
      returned: when it does
      type: bool
    layer_pattern:
      description:
        - One letter for each layer, V(f) full attention, V(w) a sliding window, V(s) a state, V(b) both, V(-) none.
      returned: when layers differ
      type: str
      sample: wwwwwf
    window_tokens:
      description: Tokens of the sliding window.
      returned: for models with windowed layers
      type: int
    window_kv_heads:
      description: Key and value heads of windowed layers.
      returned: for models with windowed layers
      type: int
    window_head_dim:
      description: Numbers in a key head of windowed layers.
      returned: for models with windowed layers
      type: int
    window_v_head_dim:
      description: Numbers in a value head of windowed layers.
      returned: for models with windowed layers
      type: int
    state:
      description: Sizes of the state that linear-attention or Mamba layers keep for a request.
      returned: for models with such layers
      type: dict
    index_head_dim:
      description: Numbers in the index key of sparse attention.
      returned: for models with a sparse index
      type: int
    index_kpool:
      description: Tokens that share an index key.
      returned: when it is not 1
      type: int
    index_pattern:
      description: Which layers keep an index of their own.
      returned: when some reuse that of another layer
      type: str
    rows_per_layer:
      description: KV rows that a layer keeps for a token.
      returned: when it is not 1
      type: int
    mtp_layers:
      description: Built-in draft layers under their other name.
      returned: when the model states it
      type: int
    compress_ratios:
      description: By how much each layer compresses its KV rows.
      returned: for models that compress them
      type: list
      elements: int
    index_compress:
      description: Tokens behind one row of the index of compressed attention.
      returned: for models with such an index
      type: int
    sparse_pattern:
      description: Which layers attend sparsely, one letter each.
      returned: for models with such layers
      type: str
    sparse_index_dim:
      description: Numbers in the index key of such layers.
      returned: for models with such layers
      type: int
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
weight_table:
  description:
    - The tensors of all files, those that differ in numbers only as one row. From it a plan divides the weights over
      the ranks. Empty while a file is missing or damaged.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name with V(*) for every number.
      type: str
      sample: model.layers.*.self_attn.q_proj.weight
    dtype:
      description: Type, as the headers name it.
      type: str
      sample: BF16
    shape:
      description: Shape of each, V(null) where the header does not say.
      type: list
      elements: int
      sample: [576, 576]
    tensors:
      description: How many there are.
      type: int
      sample: 30
    bytes:
      description: Bytes of all of them.
      type: int
      sample: 19906560
    layers:
      description: The layers that they lie in, as runs from the first to the last, empty for those outside of layers.
      type: list
      elements: list
      sample: [[0, 29]]
    draft:
      description: Whether they belong to a built-in draft, which is not loaded without speculation.
      type: bool
      sample: false
    tied:
      description: Whether they are an output head that is not loaded, because it is tied to the embeddings.
      type: bool
      sample: false
created:
  description: What the engine makes on every rank when it loads the model, besides what the files hold.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: What it is.
      type: str
      sample: rotary tables
    bytes:
      description: Bytes on each rank.
      type: int
      sample: 2097152
    source:
      description: Where the engine makes it.
      type: str
index_total_bytes:
  description: What the shard index states as the sum, V(null) when it does not. The headers count, not the index.
  returned: success
  type: int
  sample: 269030016
notes:
  description: Sentences on what was found odd and did no harm, for example a wrong sum in the shard index.
  returned: success
  type: list
  elements: str
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
source:
  description: Where the model was read, V(model folder) or V(hub) and the endpoint.
  returned: success
  type: str
  sample: model folder
commit:
  description: The commit on the hub that was read, V(null) for a folder.
  returned: success
  type: str
  sample: 12fd25f77366fa6b3b4b768ec3050bf629380bac
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.sglang.plugins.module_utils._hub import HubError
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_headers import Hub
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_once import answered_once
from ansible_collections.gpufleet.sglang.plugins.module_utils._hub_options import HUB_ARGUMENTS, opener_of, source_of
from ansible_collections.gpufleet.sglang.plugins.module_utils._model_read import read_folder, read_model

# What an answer of the hub depends on.
QUESTION = ("repo", "revision", "endpoint", "config_overrides", "require_geometry")


def read_hub(params, sleep=time.sleep):
    """Return the facts of the model's revision on the hub."""
    hub = Hub(source_of(params), opener_of(params), sleep, params["tries"])
    place = f"{params['repo']} on {params['endpoint']}"
    return read_model(hub, place, params["config_overrides"], params["require_geometry"])


def read(params):
    """Return the facts of the model, from the folder where it exists, else from the hub."""
    path = params["path"]
    if params["repo"] and not (path and os.path.isdir(path)):
        question = [params[name] for name in QUESTION] + [bool(params["token"] or params["token_file"])]
        return answered_once(params["cache_dir"], question, lambda: read_hub(params))
    return read_folder(path, params["config_overrides"], params["require_geometry"])


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "repo": {"type": "str"},
            "revision": {"type": "str", "default": "main"},
            "tries": {"type": "int", "default": 3},
            "cache_dir": {"type": "path"},
            "config_overrides": {"type": "dict", "default": {}},
            "require_geometry": {"type": "bool", "default": True},
            **HUB_ARGUMENTS,
        },
        required_one_of=[("path", "repo")],
        supports_check_mode=True,
    )
    try:
        result = read(module.params)
    except (HubError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
