# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Room: conflicts, the catalogue. Which settings bite each other, what happens, and where that was read. Private.

Data only; _conflicts reads it. C(expandable) stands for expandable segments of torch's allocator: such memory is
mapped by cuMemCreate and cuMemMap, and cannot be exported by cudaIpcGetMemHandle, the older way. Versions were compared
between the wheels of sglang 0.5.12 to 0.5.23; paths of sources are inside the package sglang.
"""

from __future__ import annotations

from dataclasses import dataclass

# Known to fail, to do nothing or to be silently wrong: nothing is started.
REFUSED = "refused"
# May work: it is started, and kept only when start-up, answer and soak show it.
PROOF = "allowed with proof"
# Starts, and what may be wrong no start-up shows: said in the plan.
WARNED = "warned"
# Cannot be known before: looked for in the journal of the start-up.
NOTICED = "noticed"
LEVELS = (REFUSED, PROOF, WARNED, NOTICED)

# The legacy custom all-reduce runs in groups of these sizes; others leave it off (custom_all_reduce.py).
COLLECTIVE_RANKS = (2, 4, 6, 8)
# CustomAllReduceV2 sees memory of cuMemMap and exchanges it from this version on (first wheel that has it).
COLLECTIVE_SINCE = "0.5.14"
OLD_COLLECTIVE = "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2"
NO_COLLECTIVE = "disable-custom-all-reduce"
NO_GRAPHS = "disable-cuda-graph"

# How a value is asked for, beside texts (compared in lower case) and "~PATTERN".
ON, OFF, STATED, ABSENT, EMPTY = "<on>", "<off>", "<stated>", "<absent>", "<empty>"

OLD_NAME = "PYTORCH_CUDA_ALLOC_CONF"
NEW_NAME = "PYTORCH_ALLOC_CONF"


@dataclass(frozen=True)
class When:
    """What must hold for a row, all of it. Left empty, a field does not matter.

    C(expandable): with expandable segments. C(arguments), C(variables), C(settings): pairs of a name and the values of
    which one must be there, of the server, of the environment and of the allocator. C(unless): none of these switches
    is on. C(since), C(before): versions of the engine; C(torch_before): (major, minor). C(least_ranks):
    tensor-parallel ranks; C(ranks): such groups on one host. C(nvlink), C(peers): whether all pairs of boards have
    NVLink, may read each other. C(multimodal): the model takes images or sound. C(board): a pattern in the name of
    a board.
    """

    expandable: bool = True
    arguments: tuple = ()
    variables: tuple = ()
    settings: tuple = ()
    unless: tuple = ()
    since: str = ""
    before: str = ""
    torch_before: tuple = ()
    least_ranks: int = 1
    ranks: tuple = ()
    nvlink: bool | None = None
    peers: bool | None = None
    multimodal: bool | None = None
    board: str = ""


@dataclass(frozen=True)
class Conflict:
    """A combination that bites: one of C(when) holds. C(happens) and C(repair) are parts of a sentence.

    C(lever): the plan may choose expandable segments by itself all the same. Else it does not, although a user may.
    C(told): the checks of the inventory say it in words of their own.
    """

    row: str
    name: str
    level: str
    when: tuple
    happens: str
    repair: str
    source: str
    lever: bool = False
    told: bool = False


# Custom all-reduce registers the inputs of captured graphs; without graphs, or switched off, nothing is registered.
_UNLESS = (NO_COLLECTIVE, NO_GRAPHS)
_OVER_NVLINK = {"ranks": COLLECTIVE_RANKS, "unless": _UNLESS, "nvlink": True}
_DISAGGREGATED = ("disaggregation-mode", ("prefill", "decode"))
_BY_MOONCAKE = ("disaggregation-transfer-backend", (ABSENT, "mooncake"))
_PROTOCOL = "MOONCAKE_PROTOCOL"
_POOL = "SGLANG_MOONCAKE_CUSTOM_MEM_POOL"
_TRANSPORT = "mm-feature-transport"
_OLD_TRANSPORT = "SGLANG_USE_CUDA_IPC_TRANSPORT"
_NONE = "set sglang_server_allocator_conf to ''"
_VMM = "srt/distributed/device_communicators/custom_all_reduce_v2.py"
LEGACY = "srt/distributed/device_communicators/custom_all_reduce.py"
_MOONCAKE = "srt/disaggregation/mooncake/utils.py"
_IMAGES = {
    "happens": "features of images and sound travel by handles that such memory may not have",
    "repair": f"set {_TRANSPORT} to cpu, or try a request with an image",
}

CONFLICTS = (
    Conflict(
        "X1",
        "custom all-reduce over NVLink before it knew such memory",
        REFUSED,
        (When(**_OVER_NVLINK, before=COLLECTIVE_SINCE),),
        "the inputs of captured graphs cannot be registered and a rank aborts",
        f"take SGLang {COLLECTIVE_SINCE} or later, set {NO_COLLECTIVE}, or {_NONE}",
        f"sgl-project/sglang pull 27593; {_VMM} of sglang 0.5.13 (without) and 0.5.14 (with)",
    ),
    Conflict(
        "X1",
        f"the older custom all-reduce over NVLink, chosen by {OLD_COLLECTIVE}",
        REFUSED,
        (When(**_OVER_NVLINK, variables=((OLD_COLLECTIVE, (OFF,)),), since=COLLECTIVE_SINCE),),
        "it has no branch for such memory",
        f"remove {OLD_COLLECTIVE}, set {NO_COLLECTIVE}, or {_NONE}",
        f"{LEGACY} of sglang 0.5.23, dispatch_custom_allreduce",
    ),
    Conflict(
        "X1",
        "custom all-reduce over NVLink",
        PROOF,
        (When(**_OVER_NVLINK, variables=((OLD_COLLECTIVE, (ABSENT, ON)),), since=COLLECTIVE_SINCE),),
        "the ranks exchange such memory by handles of the fabric, or by sockets in the folder for temporary files",
        f"set {NO_COLLECTIVE} if a start shows that they cannot",
        f"{_VMM} of sglang 0.5.23",
        lever=True,
    ),
    Conflict(
        "X1b",
        "custom all-reduce of two boards that have no NVLink and read each other's memory",
        REFUSED,
        (When(ranks=(2,), unless=_UNLESS, nvlink=False, peers=True),),
        "the older one is taken there, which has no branch for such memory",
        f"set {NO_COLLECTIVE}, or {_NONE}",
        f"{LEGACY} of sglang 0.5.23, by the mechanism: no report seen",
    ),
    Conflict(
        "X3",
        "torch_memory_saver",
        REFUSED,
        (When(arguments=(("enable-memory-saver", (ON,)),)),),
        "it does not work with such memory: it stops the start, or overlooks it under the newer name of the variable",
        f"remove enable-memory-saver, or {_NONE}",
        "fzyzcjy/torch_memory_saver pull 25; entrypoint.py of torch_memory_saver 0.0.10",
    ),
    Conflict(
        "X4",
        "symmetric memory of NCCL",
        REFUSED,
        (When(arguments=(("enable-symm-mem", (ON,)),), least_ranks=2),),
        "torch then ignores the allocator of symmetric memory, and its registration breaks",
        f"remove enable-symm-mem, or {_NONE}",
        "pytorch/pytorch issues/147851; sglang 0.5.23 has no guard (pynccl_allocator.py)",
    ),
    Conflict(
        "X4",
        "a memory pool of Mooncake",
        REFUSED,
        (When(arguments=(_DISAGGREGATED,), variables=((_POOL, ("true", "nvlink", "barex", "intra_node_nvlink")),)),),
        "torch then ignores the allocator of the pool",
        f"remove {_POOL}, or {_NONE}",
        f"pytorch/pytorch issues/147851; {_MOONCAKE} of sglang 0.5.23",
    ),
    Conflict(
        "X5",
        "a daemon for weights that the engine starts",
        REFUSED,
        (When(arguments=(("weight-cache-mode", ("daemon",)),)),),
        "the daemon inherits the environment and stops, because such memory cannot be exported",
        f"run the daemon as a unit with an environment of its own and set weight-cache-mode to client, or {_NONE}",
        "sgl-project/sglang pull 27139; srt/weight_cache/daemon.py of sglang 0.5.23",
    ),
    Conflict(
        "X5",
        "a daemon for weights that runs on its own",
        PROOF,
        (When(arguments=(("weight-cache-mode", ("client",)),)),),
        "the engine may have such memory, the daemon may not",
        "keep the setting out of the environment of the daemon's unit",
        "sgl-project/sglang pull 27139; srt/weight_cache/daemon.py of sglang 0.5.23",
        lever=True,
    ),
    Conflict(
        "X6",
        "Mooncake over EFA",
        REFUSED,
        (When(arguments=(_DISAGGREGATED, _BY_MOONCAKE), variables=((_PROTOCOL, ("efa",)),)),),
        "EFA cannot transfer such memory; SGLang says so at the start from 0.5.21 on",
        _NONE,
        f"{_MOONCAKE} of sglang 0.5.21",
    ),
    Conflict(
        "X6",
        "a memory pool of Mooncake over EFA",
        REFUSED,
        (
            When(
                expandable=False,
                arguments=(_DISAGGREGATED, _BY_MOONCAKE),
                variables=((_PROTOCOL, ("efa",)), (_POOL, ("true", "nvlink", "barex"))),
            ),
        ),
        "EFA cannot transfer the memory of this pool, which is mapped as that of expandable segments",
        f"remove {_POOL}",
        f"{_MOONCAKE} of sglang 0.5.21",
        lever=True,
    ),
    Conflict(
        "X7",
        "Mooncake over RDMA",
        REFUSED,
        (When(arguments=(_DISAGGREGATED, _BY_MOONCAKE), variables=((_PROTOCOL, (ABSENT, EMPTY, "rdma")),)),),
        "such memory cannot be registered (register memory failed)",
        f"{_NONE}, or set sglang_server_allow_unproven_plan where a transfer between such hosts was seen to work",
        "kvcache-ai/Mooncake issues/2511 and issues/351",
    ),
    Conflict(
        "X8",
        "NIXL with UCX before 1.22",
        WARNED,
        (When(arguments=(_DISAGGREGATED, ("disaggregation-transfer-backend", ("nixl",)))),),
        "transfers fall from about 200 GB/s to 0.3 GB/s and the data stay right, so no start shows it",
        f"measure a transfer, take UCX 1.22 or later, or {_NONE}",
        "ai-dynamo/nixl issues/1754; openucx/ucx pulls 11183 and 11653",
    ),
    Conflict(
        "X9",
        "image features by handles of CUDA, chosen by the engine itself",
        WARNED,
        (
            When(
                arguments=(
                    (_TRANSPORT, (ABSENT,)),
                    ("disaggregation-mode", (ABSENT, "null")),
                    ("nnodes", (ABSENT, "1")),
                ),
                variables=((_OLD_TRANSPORT, (ABSENT, ON)),),
                since="0.5.17",
                before="0.5.18",
                multimodal=True,
            ),
        ),
        **_IMAGES,
        source="sgl-project/sglang pull 30904; automatic in sglang 0.5.17 only, by the mechanism: no report seen",
    ),
    Conflict(
        "X9",
        "image features by handles of CUDA",
        WARNED,
        (
            When(arguments=((_TRANSPORT, ("cuda_ipc",)),), multimodal=True),
            When(arguments=((_TRANSPORT, (ABSENT,)),), variables=((_OLD_TRANSPORT, (ON,)),), multimodal=True),
            When(arguments=(("keep-mm-feature-on-device", (ON,)),), since="0.5.16", before="0.5.21", multimodal=True),
        ),
        **_IMAGES,
        source="sgl-project/sglang pulls 30904 and 33653, by the mechanism: no report seen",
    ),
    Conflict(
        "X10",
        "graphs in pools of their own",
        PROOF,
        (When(unless=(NO_GRAPHS,)),),
        "torch may keep the pools of graphs out of such memory, so that less is gained than hoped for",
        "believe the headroom of the start-up, not the setting",
        "pytorch/pytorch pulls 128068 and 194767; a capture that stalls: pytorch/torchtitan issues/3306",
        lever=True,
    ),
    Conflict(
        "X11",
        "max_split_size_mb in the same value",
        REFUSED,
        (When(settings=(("max_split_size_mb", (STATED,)),)),),
        "torch ignores one of them, or stops at an assertion",
        "remove max_split_size_mb",
        "pytorch/pytorch issues/119452",
        told=True,
    ),
    Conflict(
        "X13",
        "all-reduce of FlashInfer over mnnvl",
        PROOF,
        (When(expandable=False, arguments=(("flashinfer-allreduce-fusion-backend", ("mnnvl",)),), least_ranks=2),),
        "its ranks take file descriptors from each other, which kernel.yama.ptrace_scope 1 or more can forbid",
        "choose another flashinfer-allreduce-fusion-backend if a start shows Operation not permitted",
        "flashinfer-ai/flashinfer pull 4089; pytorch/pytorch pull 130890",
        lever=True,
    ),
    Conflict(
        "X15",
        "buffers that experts exchange by RDMA",
        PROOF,
        (
            When(arguments=(("moe-a2a-backend", ("deepep", "deepep_v2", "mooncake", "nixl", "pplx", "mori")),)),
            When(arguments=(("elastic-ep-backend", ("mooncake", "nixl")),)),
        ),
        "their registration can fail (MR registration failed: Bad address)",
        f"{_NONE} if a start shows it",
        "uccl-project/uccl issues/839",
    ),
    Conflict(
        "X16",
        "a torch that was built without it",
        NOTICED,
        (When(),),
        "torch warns once (expandable_segments not supported on this platform) and goes on without",
        f"{_NONE}: it does nothing",
        "c10/cuda/CUDAAllocatorConfig.h of torch; pytorch/pytorch issues/122057; sgl-project/sglang issues/9290",
        lever=True,
    ),
    Conflict(
        "X17",
        "both names of the variable",
        REFUSED,
        (When(expandable=False, variables=((OLD_NAME, (STATED,)), (NEW_NAME, (STATED,)))),),
        "torch and other libraries disagree on which of them counts",
        "use sglang_server_allocator_conf instead of both",
        "huggingface/trl pull 5794; torch 2.10 and later",
        lever=True,
        told=True,
    ),
    Conflict(
        "X17",
        "an empty name of the variable",
        REFUSED,
        (
            When(expandable=False, variables=((OLD_NAME, (EMPTY,)),)),
            When(expandable=False, variables=((NEW_NAME, (EMPTY,)),)),
        ),
        "an empty older name still wins over the newer one",
        "remove the name",
        "huggingface/trl pull 5794",
        lever=True,
        told=True,
    ),
    Conflict(
        "X17",
        "another spelling of True",
        REFUSED,
        (When(expandable=False, settings=(("expandable_segments", ("~^(?:true|TRUE|1|yes|on)$",)),)),),
        "readers of the setting differ on it",
        "write expandable_segments:True",
        "torch takes True and False; torch_memory_saver 0.0.10 looks for True, sglang 0.5.23 for any spelling of true",
        lever=True,
        told=True,
    ),
    Conflict(
        "X17",
        "the newer name of the variable before torch 2.9",
        REFUSED,
        (When(expandable=False, variables=((NEW_NAME, (STATED,)), (OLD_NAME, (ABSENT,))), torch_before=(2, 9)),),
        f"this torch reads {OLD_NAME} only, so the setting does nothing",
        "use sglang_server_allocator_conf, which takes the right name",
        "c10/cuda/CUDAAllocatorConfig.h of torch 2.8",
        lever=True,
    ),
    Conflict(
        "T1",
        "boards of Tegra",
        REFUSED,
        (When(board=r"(?i)\b(?:Thor|Orin|Tegra)\b"),),
        "the first allocation ends with CUDA driver error: out of memory, whatever is free",
        _NONE,
        "unslothai/unsloth-zoo pull 1235",
    ),
    Conflict(
        "C1",
        "custom all-reduce with boards named by UUID",
        WARNED,
        (
            When(
                expandable=False,
                variables=(("CUDA_VISIBLE_DEVICES", ("~(?i)^(?:GPU|MIG)-",)),),
                ranks=COLLECTIVE_RANKS,
                unless=(NO_COLLECTIVE,),
                since="0.4.3",
            ),
        ),
        "it wants numbers there, leaves itself off with a warning in the journal, and NCCL takes its place",
        f"name the boards by number, or set {NO_COLLECTIVE} to keep it as it is",
        "srt/distributed/device_communicators/custom_all_reduce_utils.py of sglang 0.5.23",
        lever=True,
    ),
)
