# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_catalogue: the table of all known deaths of an SGLang server (private to the collection).

Data only; _failures reads it. One row is one cause, with all its wordings. ``source`` is required: a file of SGLang means the text
was read there (its place in 0.5.23, or in the last version that has it); texts of torch, CUDA, NCCL, transformers, huggingface_hub
and the kernel are theirs. ``versions`` are those of SGLang that print or pass on the text: "all" where none from 0.3.6 to
0.5.23 is known to lack it (SGLang's own texts were read in its wheels, those of others were not), None where it is not known.
"""

from __future__ import annotations

import dataclasses
import re

# What a row is. The order is the order of preference when several rows match one log: what the kernel says about the host
# beats what a program says; a named cause beats a lost connection, which beats the bare fact that somebody died.
HOST, CAUSE, COLLECTIVE, PEER = "host", "cause", "collective", "peer"
# These name no cause: a wrapper says in which step it happened, a consequence that it happened, a notice ends nothing.
WRAPPER, CONSEQUENCE, NOTICE = "wrapper", "consequence", "notice"
PREFERENCE = {HOST: 0, CAUSE: 1, COLLECTIVE: 2, PEER: 3}

# Kinds that are no class of their own word: the phase decides (see KIND_BY_PHASE in _failures).
BY_PHASE = "by_phase"


@dataclasses.dataclass(frozen=True)
class Row:
    """One cause in the wordings that programs gave it. ``needles``: every line that can match holds one of these
    lower-case literals (the cheap test).

    ``decisive`` rows are fatal as soon as they are read; others only when the unit ended or a process was reported dead,
    because the same words also appear in harmless warnings. ``anytime`` rows count after the ready line too; those with
    ``only_in`` count in these phases only, because elsewhere the same words have another cause. ``survivable``: of a ready
    server the words end a request or a command; only with a death behind them they are its cause.
    """

    name: str
    needles: tuple
    pattern: re.Pattern
    kind: str | None
    source: str
    role: str = CAUSE
    phase: str | None = None
    direction: str | None = "keep"
    transient: bool = False
    fault: str = "configuration"
    decisive: bool = True
    anytime: bool = False
    only_in: tuple = ()
    survivable: bool = False
    advice: str = ""
    versions: str | None = None


def _row(name, needles, pattern, kind, *, source, **more):
    needles = (needles,) if isinstance(needles, str) else needles
    return Row(name=name, needles=tuple(needle.lower() for needle in needles), pattern=re.compile(pattern), kind=kind,
               source=source, **more)


# ---------------------------------------------------------------------------------------------------------------------
# Advice that several rows share

_KERNEL_BROKE = (
    "Go back to the version or configuration that served last, and look for Xid lines in the kernel's log; it can be a "
    "badly reported lack of memory."
)
_OTHER_KERNEL = (
    "Choose another --attention-backend, --moe-runner-backend or quantisation in sglang_server_arguments, or another "
    "engine (sglang_engine_version): a kernel does not fit this GPU."
)
_TOKEN_POOL = (
    "Raise sglang_server_mem_fraction_static (the token pool is full, not the board), or lower --max-running-requests."
)
_PEERS = "Look at the other ranks first: one of them did not take part."
_NODE_0 = "Check --dist-init-addr, the firewall between the nodes and that node 0 is up."
_SHAPES = (
    "Check that model, quantisation and engine version belong together: the weights are not those that the engine expects."
)
_HUB = "Load the model beforehand (role sglang_model): the hub could not be reached from this host."
_FEWER_REQUESTS = "Lower --max-running-requests in sglang_server_arguments."
_STATES = "Raise sglang_server_mem_fraction_static, or lower --max-running-requests in sglang_server_arguments."

_MODEL_PATH = "Check the model path of the instance: the folder must hold config.json, the tokenizer and every weight file of its index."
_TOKEN = (
    "Give the service user a token that may read the model ({repo}), or load it beforehand with the role sglang_model."
)
_NETWORK = (
    "Set NCCL_DEBUG=INFO in sglang_server_environment and start again; check NCCL_SOCKET_IFNAME, the size of /dev/shm and "
    "LimitMEMLOCK of the unit."
)
_DRIVER = "Install a driver that the engine's CUDA version accepts, or an older engine (sglang_engine_version)."
_TOOLCHAIN = "Install the CUDA toolkit, gcc, ninja and the Python headers, and set CUDA_HOME and PATH in sglang_server_environment."
_VENV = "Install the engine again (role sglang_engine): packages of its virtual environment do not fit together."
_OTHER_GPU = (
    "Take the host out of service; it needs a GPU reset or a reboot, and no configuration starts on it before that."
)
_LOWER = "Lower sglang_server_mem_fraction_static, or sglang_server_chunked_prefill_size, or let both be auto."
_RAISE = "Raise sglang_server_mem_fraction_static{above}; lowering it makes this worse."
_TP = "Choose a --tp-size in sglang_server_arguments that divides the heads and the quantisation blocks of the model."
_HOST_MEMORY = (
    "Give the unit more host memory: look at MemoryMax, --hicache-size and the loader threads in sglang_server_arguments; GPU "
    "settings do not help."
)
_SHM = "Enlarge shared memory (/dev/shm) and look at MemoryMax and TasksMax of the unit; the model's disk is not the cause."

# The process that the driver names behind the number of an Xid; either may be missing.
_XID_PROCESS = r"(?:,? pid='?(?P<pid>\d{1,10})'?)?(?:,? name=(?P<name>[^,\s]{1,64}))?"

ROWS = (
    # -----------------------------------------------------------------------------------------------------------------
    # The host, by its kernel
    _row("kernel_oom_kill", "oom-kill:",
         r"oom-kill:constraint=(?P<constraint>\w+)(?:.*?,task_memcg=(?P<memcg>[^,\s]*))?.*?,task=(?P<task>[^,]+)"
         r"(?:,pid=(?P<pid>\d{1,10}))?", "host_oom_kill", role=HOST, fault="host", anytime=True, advice=_HOST_MEMORY,
         source="kernel"),
    _row("kernel_out_of_memory", "out of memory: killed process",
         r"[Oo]ut of memory: Killed process (?P<pid>\d{1,10}) \((?P<task>[^)]*)\)", "host_oom_kill", role=HOST,
         fault="host", anytime=True, advice=_HOST_MEMORY, source="kernel"),
    _row("systemd_oom_kill", ("oom", "due to memory"),
         r"(?:killed by the OOM killer|Failed with result 'oom-kill'|killed .* due to memory (?:pressure|used))",
         "host_oom_kill", role=HOST, fault="host", anytime=True, advice=_HOST_MEMORY, source="systemd, systemd-oomd"),
    _row("xid_lost", "xid",
         r"NVRM: Xid \([^)]*\): (?P<xid>79|119|120|140|143|154(?=.*(?: to 0x[1-9]|[Rr]eset|[Rr]eboot)))\b",
         "gpu_lost", role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="NVIDIA Xid catalogue"),
    _row("xid_error", "xid", r"NVRM: Xid \([^)]*\): (?P<xid>48|61|62|63|64|74|94|95|109|110|121|14[4-9](?!.*[Nn]onfatal)|150(?!.*[Nn]onfatal))\b"
         + _XID_PROCESS, "gpu_lost",
         role=HOST, fault="host", anytime=True, decisive=False, advice=_OTHER_GPU, source="NVIDIA Xid catalogue"),
    _row("fallen_off_the_bus", "fallen off the bus", r"[Ff]allen off the bus", "gpu_lost", role=HOST, fault="host",
         anytime=True, advice=_OTHER_GPU, source="kernel"),
    _row("rm_init_adapter", "rminitadapter failed", r"RmInitAdapter failed", "gpu_lost", role=HOST, fault="host",
         advice=_OTHER_GPU, source="kernel"),
    _row("gpu_is_lost", ("gpu is lost", "unable to determine the device handle"),
         r"GPU is lost|Unable to determine the device handle for (?:GPU|gpu)", "gpu_lost", role=HOST, fault="host",
         anytime=True, survivable=True, advice=_OTHER_GPU, source="NVML"),
    _row("gpu_reset_required", ("reset", "cudaerrordeviceneedsreset"),
         r"(?i)GPU (?:requires|needs) (?:a )?reset|GPU Reset Required|cudaErrorDeviceNeedsReset", "gpu_lost",
         role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="NVML, kernel"),
    _row("ecc", ("uncorrectable", "nvlink", "ur_result_error_device_lost", "error_contained"),
         r"(?i)uncorrectable (?:NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable|CUDA_ERROR_CONTAINED"
         r"|Invalid access of peer GPU memory over nvlink|UR_RESULT_ERROR_DEVICE_LOST", "gpu_lost",
         role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="CUDA"),
    _row("amd_gpu_reset", ("amdgpu", "hw exception by gpu node"),
         r"HW Exception by GPU node-\d+ .{0,80}reason ?:\s?GPU Hang|amdgpu: (?:GPU reset begin|.{0,40}GPU reset\(\d+\) failed)",
         "gpu_lost", role=HOST, fault="host", anytime=True, decisive=False, advice=_OTHER_GPU, source="ROCm, amdgpu"),
    # -----------------------------------------------------------------------------------------------------------------
    # GPU memory: lower the fraction
    # First, because these lines may hold the words of the board's memory too.
    _row("pinned",
         ("not enough host memory", "gb but only have", "hostregister failed", "hiphostmalloc", "pinned host memory allocation",
          "size hicache host memory", "host memory is left for hicache", "memfabric host memory exhausted"),
         r"(?:hipHostMalloc of .{0,60}failed|Pinned host memory allocation of .{0,80}returned a null|memfabric host memory exhausted"
         r"|Cannot automatically size HiCache host memory|No host memory is left for HiCache"
         r"|Not enough host memory (?:available|for)|Requesting [\d.]+ ?GB but only have [\d.]+ ?GB free|(?:cuda|hip)HostRegister failed)", "host_oom_kill",
         fault="host", advice=_HOST_MEMORY, source="SGLang: srt/mem_cache/memory_pool_host.py, hierarchical cache"),
    _row("device_out_of_memory", "out of memory. tried to allocate",
         r"(?P<device>CUDA|HIP|NPU|XPU|MUSA|GPU|MLU|Torch)? ?out of memory\. Tried to allocate (?P<wanted>[\d.]+ ?(?:[KMGT]i?B|bytes))",
         BY_PHASE, direction="lower", anytime=True, survivable=True, advice=_LOWER, source="torch",
         versions="all"),
    _row("cuda_error_out_of_memory",
         ("out of memory", "outofmemory", "memoryallocation", "error_out_of_memory", "alloc_failed",
          "hsa_status_error_out_of_resources", "memory allocation error", "ur_result_error_out_of", "el0004"),
         r"(?i:CUDA(?: runtime| driver)? error:? ?(?:\(?2\)?:? ?)?[^\n]{0,40}\bout of memory|Triton Error \[(?:CUDA|HIP)\]: out of memory"
         r"|Cuda failure (?:2 )?'out of memory'|HIP error: out of memory|NCCL[^\n]{0,60}out of memory)"
         r"|\b(?:torch\.(?:cuda\.)?)?OutOfMemoryError\b|tvm\.error\.InternalError: .{0,80}out of memory|hipErrorOutOfMemory"
         r"|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CU(?:BLAS|SPARSE|SOLVER|DNN)_STATUS_ALLOC_FAILED"
         r"|HSA_STATUS_ERROR_OUT_OF_RESOURCES|UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)"
         r"|EL0004: .{0,80}[Mm]emory|[Mm]emory allocation error, .{0,80}(?:207001|device)",
         BY_PHASE, direction="lower", anytime=True, survivable=True, advice=_LOWER,
         source="torch, CUDA, cuBLAS, NCCL, ROCm, CANN, Level Zero"),
    _row("workspace", ("buffer overflow when allocating", "workspace buffer overflow"),
         r"Buffer overflow when allocating memory for|workspace buffer overflow", BY_PHASE, direction="lower",
         advice="Enlarge SGLANG_FLASHINFER_WORKSPACE_SIZE in sglang_server_environment.", source="FlashInfer"),
    # -----------------------------------------------------------------------------------------------------------------
    # The pool: raise the fraction
    _row("not_enough_memory", ("not enough memory. please try to increase", "not enough memory to allocate kv cache"),
         r"Not enough memory(?:\. Please try to increase --mem-fraction-static| to allocate KV cache)", "kv_pool_too_small",
         phase="pool", direction="raise", advice=_RAISE,
         versions="all", source="SGLang: srt/model_executor/pool_configurator.py"),
    _row("weights_leave_no_memory", "leave no gpu memory for the kv cache",
         r"Loaded weights leave no GPU memory for the KV cache(?: under --mem-fraction-static=(?P<fraction>\d*\.\d+))?"
         r"(?:\. Raise --mem-fraction-static above (?P<above>\d*\.\d+))?", "kv_pool_too_small", phase="pool",
         direction="raise", advice=_RAISE, versions="0.5.14+",
         source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("minimum_viable", "minimum viable", r"\(?minimum viable = 1 - available/pre = (?P<above>\d{0,3}\.\d{1,9})",
         "kv_pool_too_small", phase="pool", direction="raise", advice=_RAISE, versions="0.5.14+",
         source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("profiled_negative", "is larger than the profiled value",
         r"is larger than the profiled value (?P<tokens>-\d+)", "kv_pool_too_small", phase="pool", direction="raise",
         advice=_RAISE,
         versions="all", source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("rest_memory_negative", "rest_memory", r"(?:total_)?rest_memory=(?P<rest>-\d+(?:\.\d+)?) ?GB",
         "kv_pool_too_small", phase="pool", direction="raise", decisive=False, advice=_RAISE,
         source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("state_cache", ("not enough gpu memory for hybrid", "state cache is too small"),
         r"Not enough GPU memory for hybrid \(mamba|Hybrid \(mamba/linear-attention\) state cache is too small",
         "kv_pool_too_small", phase="pool", direction="raise", versions="0.5.14+", advice=_STATES,
         source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("swa_pool_small", "cannot hold even one request",
         r"SWA pool \((?P<tokens>\d{1,12}) tokens\) cannot hold even one request", "kv_pool_too_small", phase="pool",
         direction="raise", versions="0.5.16+",
         advice="Raise --swa-full-tokens-ratio in sglang_server_arguments, or sglang_server_mem_fraction_static.",
         source="SGLang: srt/model_executor/pool_configurator.py"),
    _row("swa_pool_cap", "leaves no room for the full kv pool",
         r"SWA pool cap \((?P<tokens>\d{1,12}) tokens.{0,80}leaves no room for the full KV pool", "kv_pool_too_small", phase="pool",
         direction="raise", versions="0.5.22+", advice=_STATES,
         source="SGLang: srt/model_executor/pool_configurator.py"),
    _row("pool_under_a_request", ("cannot fit one worst-case request", "memory pool size is too small"),
         r"cannot fit ONE worst-case request|AssertionError: Memory pool size is too small", "kv_pool_too_small", phase="pool",
         direction="raise", advice="Raise sglang_server_mem_fraction_static: the pool holds less than one request of full length; or lower "
         "sglang_server_context_tokens.",
         source="SGLang: public reports"),
    _row("state_slots", "not enough space for mamba",
         r"Not enough space for mamba (?:cache|ping pong idx)", "kv_pool_too_small", phase="prefill", direction="keep", anytime=True,
         advice="Raise --mamba-full-memory-ratio or --max-mamba-cache-size in sglang_server_arguments, or lower --max-running-requests.",
         versions="0.5.2+",
         source="SGLang: srt/mem_cache/memory_pool.py"),
    _row("pool_estimate", "bug in memory estimation",
         r"(?:KV cache is full! B|req_pool_indices is full! There is a b)ug in memory estimation", "kv_pool_too_small", phase="decode",
         direction="keep", anytime=True, advice=_FEWER_REQUESTS, source="SGLang: srt/disaggregation/decode.py"),
    _row("retract_failed", "failed to retract any request",
         r"Failed to retract any request\. No space left for only one request", "kv_pool_too_small", phase="decode",
         direction="raise", anytime=True, versions="0.4.9-0.5.6",
         advice="Raise sglang_server_mem_fraction_static: the pool is smaller than one request; or lower --context-length.",
         source="SGLang: srt/managers/schedule_batch.py"),
    _row("request_slots", ("alloc_req_slots runs out of memory", "please set a smaller number for"),
         r"alloc_req_slots runs out of memory|Please set a smaller number for .?--max-running-requests",
         "kv_pool_too_small", phase="prefill", direction="keep", anytime=True, advice=_FEWER_REQUESTS,
         versions="all", source="SGLang: srt/mem_cache/allocation.py"),
    _row("prefill_tokens", "prefill out of memory", r"Prefill out of memory\.", "oom_prefill", phase="prefill",
         direction="raise", anytime=True,
         advice=_TOKEN_POOL,
         versions="all", source="SGLang: srt/mem_cache/allocation.py"),
    _row("decode_tokens", "decode out of memory", r"Decode out of memory\. (?:Try|Please)", "oom_decode",
         phase="decode", direction="raise", anytime=True,
         advice=_TOKEN_POOL,
         versions="all", source="SGLang: srt/mem_cache/allocation.py"),
    _row("tokens", "out of memory. try to lower your batch size", r"\bOut of memory\. Try to lower your batch size",
         BY_PHASE, direction="raise", anytime=True,
         advice=_TOKEN_POOL,
         versions="all", source="SGLang: srt/mem_cache/allocation.py"),
    _row("unbalanced", "memory capacity is unbalanced",
         r"The memory capacity is unbalanced\. Some GPUs may be occupied", "gpu_unbalanced", phase="init",
         direction="keep", fault="host",
         advice="Free the busy GPU or use equal boards: the least free one decides, and it is more than 10 % below this one.",
         versions="all", source="SGLang: srt/distributed/bootstrap.py"),
    # -----------------------------------------------------------------------------------------------------------------
    # Host memory and shared memory
    _row("shared_memory_file", ("no space left on device", "no space left"),
         r"(?:unable to write to file </torch_|/dev/shm/(?!nccl)|shm_open)[^\n]*No space left", "host_oom_kill",
         fault="host", advice=_SHM, source="torch"),
    _row("nccl_shm", "shared memory segment", r"(?:creating|attach to|open) shared memory segment /dev/shm/nccl",
         "comm_init", fault="host", advice="Enlarge /dev/shm: NCCL found no room in it.", source="NCCL"),
    _row("cannot_allocate", "cannot allocate memory",
         r"(?:\[Errno 12\]|OSError|fork|BlockingIOError)[^\n]*Cannot allocate memory", "host_oom_kill", fault="host",
         advice=_SHM, source="Python"),
    _row("cpu_allocator", "defaultcpuallocator", r"DefaultCPUAllocator: (?:can't|not enough) ", "host_oom_kill",
         fault="host", advice=_HOST_MEMORY, source="torch"),
    _row("bad_alloc", "bad_alloc", r"std::bad_alloc", "host_oom_kill", fault="host", advice=_HOST_MEMORY,
         source="C++"),
    _row("memory_error", "memoryerror", r"^(?:\S*\.)?(?:_Array)?MemoryError\b", "host_oom_kill", fault="host",
         advice=_HOST_MEMORY, source="Python"),
    _row("bus_error", "bus error", r"(?:Fatal Python error: |^|\s)Bus error", "host_oom_kill", fault="host",
         advice=_SHM, source="kernel, torch"),
    _row("threads", "can't start new thread", r"can't start new thread", "host_oom_kill", fault="host",
         advice="Raise TasksMax and LimitNPROC of the unit.", source="Python"),
    # -----------------------------------------------------------------------------------------------------------------
    # Arguments
    _row("argparse", "error: ",
         r"(?:^|\s)(?:[\w./-]{1,80}: )?error: (?=unrecognized arguments|ambiguous option|argument |the following arguments"
         r"|one of the arguments|expected )(?:(?P<what>unrecognized arguments|ambiguous option|argument)[: ]+)?(?P<option>--?[\w-]+)?",
         "bad_args", phase="process",
         advice="Correct {option} in sglang_server_arguments: this version of the engine does not take it so.",
         source="argparse",
         versions="all"),
    _row("json_argument", "must be json", r"(?P<option>--[\w-]+) must be JSON", "bad_args", phase="process",
         advice="Correct {option} in sglang_server_arguments: its value must be valid JSON when it reaches the engine (quotes are easily lost).",
         source="SGLang: srt/model_executor/cuda_graph_config.py"),
    _row("config_option", "unsupported config option", r"Unsupported config option '(?P<option>[\w-]+)'", "bad_args",
         phase="process", advice="Move {option} from the configuration file to sglang_server_arguments.",
         versions="0.5.3+",
         source="SGLang: srt/utils/server_args_config_parser.py"),
    _row("config_file", "config file", r"Config file (?:must be YAML format|not found: )", "bad_args",
         phase="process", advice="Deploy again: the file given with --config is missing or is not YAML.",
         versions="0.5.3+",
         source="SGLang: srt/utils/server_args_config_parser.py"),
    _row("context_length", "context_length",
         r"[Uu]ser-specified context_length \((?P<context>\d{1,12})\) is greater than the derived", "bad_args",
         decisive=False, advice="Lower sglang_server_context_tokens to what the model was made for.",
         source="SGLang: srt/configs/model_config.py"),
    _row("segments", ("incompatible with mooncake_protocol", "incompatible with cuda ipc"),
         r"is incompatible with (?:MOONCAKE_PROTOCOL=efa|CUDA IPC weight sharing)", "bad_args",
         advice="Set sglang_server_allocator_conf to '': memory of expandable segments cannot be given to another process or device.",
         source="SGLang: srt/weight_cache/daemon.py"),
    _row("memory_saver", "torchmemorysaver is disabled", r"TorchMemorySaver is disabled", "bad_args",
         advice="Remove --enable-memory-saver, or set sglang_server_allocator_conf to '': the two exclude each other.",
         source="torch_memory_saver"),
    _row("trust_remote_code", ("trust_remote_code=true", "requires you to execute"),
         r"(?:requires you to execute|contains custom code which must be executed)"
         r".*trust_remote_code=True|Please pass the argument `trust_remote_code=True`"
         r"|requires you to execute the (?:configuration|modeling) file", "bad_args", decisive=False,
         advice="Set trust-remote-code in sglang_server_arguments when you trust the code of this model.",
         source="transformers",
         versions="all"),
    _row("unexpected_argument", "got an unexpected keyword argument",
         r"ServerArgs\.__init__\(\) got an unexpected keyword argument '(?P<option>\w+)'", "bad_args", phase="process",
         advice="Correct {option} in sglang_server_arguments: this version of the engine does not take it so.", source="Python"),
    _row("divisible_tp", ("divisible by", "tp_size"),
         r"(?:must be|is not|not) divisible by (?:\(?tp_size|tensor parallel|TP\b|the number of|num_|attn_tp|decode_tp_size|ep_size|dcp_size)"
         r"|assert .{0,60}% ?(?:self\.)?(?:attn_)?tp_size|divisible by tensor parallel size|AssertionError: \d+ is not divisible by \d+",
         "bad_args", decisive=False, advice=_TP,
         versions="all", source="SGLang: srt/distributed/utils.py"),
    _row("exec_failed", ("failed to execute", "failed to locate executable", "failed at step"),
         r"(?:Failed to (?:locate executable|execute(?: command:?)?)(?= /|:)|Failed at step (?P<step>[A-Z_]+) spawning) ?(?P<path>[^:]*)",
         "bad_args", phase="process",
         advice="Deploy again: systemd could not start the program of the unit ({path}).", source="systemd"),
    _row("no_module_sglang", "no module named", r"No module named '?sglang(?:\.launch_server)?'?\)?\s*$",
         "bad_args", phase="process",
         advice="Deploy the engine again (role sglang_engine): the interpreter of the unit is not one of a virtual environment that holds SGLang.",
         source="Python", decisive=False),
    _row("bind_address", "attempting to bind", r"\[[Ee]rrno (?:99|13)\][^\n]*attempting to bind",
         "bad_args",
         advice="Set host and port in sglang_server_arguments to an address of this host that the service user may use.",
         source="asyncio"),
    # -----------------------------------------------------------------------------------------------------------------
    # Ports
    _row("http_port_in_use", "attempting to bind on address",
         r"attempting to bind on address \('[^']{0,80}', (?P<port>\d{1,6})[^\n]{0,80}(?i:address already in use)", "port_in_use",
         advice="Free the port {port} or set another one: the process that holds it would answer in place of this server.",
         source="asyncio",
         versions="all"),
    _row("port_in_use", ("address already in use", "eaddrinuse"),
         r"(?:\bport: (?P<listen_port>\d{1,6})[^\n]{0,80}|\]?:(?P<bind_port>\d{1,6}) \(errno: 98 - )?(?:(?i:address already in use)|EADDRINUSE)",
         "port_in_use",
         advice="Free the port {port}, or set another one in sglang_server_arguments (--port, --nccl-port, --dist-init-addr).",
         source="torch, asyncio"),
    _row("dist_port_in_use", ("port is already in use", "could not bind port"),
         r"[Pp]ort is already in use\. ?(?:dist_init_port=(?P<port>\d{1,6}))?|Could not bind port (?P<bind_port>\d{1,6}) on any",
         "port_in_use", phase="init",
         advice="Free the port {port} or set another --dist-init-addr in sglang_server_arguments.", versions="0.5.6+",
         source="SGLang: srt/server_args.py"),
    _row("port_waiting", "is in use. waiting for", r"port (?P<port>\d{1,6}) is in use\. Waiting for", None,
         role=NOTICE, versions="0.4.9+",
         source="SGLang: srt/utils/network.py"),
    # -----------------------------------------------------------------------------------------------------------------
    # CUDA programs
    _row("illegal_access",
         ("illegal memory access", "illegal_address", "illegaladdress", "700", "memory access fault by gpu",
          "hsa_status_error", "address access is invalid", "core exception", "vector exception", "aivec", "aicore"),
         r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress|hipErrorIllegalAddress"
         r"|(?i:(?:encode tensor map|CUDA(?: runtime| driver)? error(?: code)?|HIP error(?: code)?|error code)[\s:=(]{1,3}700)\b"
         r"|Memory access fault by GPU node-\d+|HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_APERTURE_VIOLATION|MEMORY_FAULT)"
         r"|MPU address access is invalid|(?:vector|aicore|aivec) (?:core )?exception|exception of (?:aivec|aicore) error",
         "cuda_illegal_access", fault="engine", anytime=True, advice=_KERNEL_BROKE, source="CUDA, ROCm, CANN"),
    _row("device_assert", ("cuda error", "hip error"),
         r"(?:CUDA|HIP) error: (?:device-side assert triggered|misaligned address|unspecified launch failure"
         r"|an illegal instruction was encountered|invalid program counter|the launch timed out and was terminated)",
         "cuda_illegal_access", fault="engine", anytime=True, advice=_KERNEL_BROKE, source="CUDA, ROCm"),
    _row("xid_program", "xid", r"NVRM: Xid \([^)]*\): (?P<xid>13|31|43|45)\b" + _XID_PROCESS, "cuda_illegal_access", role=PEER,
         fault="engine", anytime=True,
         advice="Go back to the version or configuration that served last: a kernel of the engine broke.",
         source="NVIDIA Xid catalogue"),
    _row("no_kernel_image", ("no kernel image", "hiperrornobinaryforgpu"), r"no kernel image is available|hipErrorNoBinaryForGpu",
         "gpu_arch_unsupported",
         advice="Install an engine that was built for this GPU (sglang_engine_version): its kernels do not hold this compute capability.",
         source="CUDA",
         versions="all"),
    _row("sm75", "only supports sm75", r"SGLang only supports sm75 and above", "gpu_arch_unsupported",
         advice="Use a GPU of compute capability 7.5 or above.",
         versions="all", source="SGLang: srt/model_executor/model_runner_components/load_model_utils.py"),
    _row("not_compatible", "is not compatible with the current",
         r"with CUDA capability (?P<capability>sm_\d+) is not compatible with the current", "gpu_arch_unsupported",
         decisive=False, advice="Install an engine whose torch knows this GPU (sglang_engine_version).",
         source="torch"),
    _row("minimum_capability", "minimum capability",
         r"is not supported for the current GPU\. Minimum capability: (?P<minimum>\d+)\. Current "
         r"capability: (?P<capability>\d+)", "gpu_arch_unsupported",
         advice="Use another quantisation or a newer GPU: this one lacks the format.",
         versions="all", source="SGLang: srt/model_loader/loader.py"),
    _row("needs_newer_gpu",
         ("only support", "require", "is not supported on", "not supported for", "needs a", "not supported in this architecture",
          "is not supported", "platform does not support"),
         r"(?:FlashAttention|Flash Attention|FA[34]|FP8|fp8|FP4|NVFP4|MXFP[48]|Marlin|DeepGEMM|FlashInfer|flashinfer|TRTLLM|trtllm|CUTLASS|[Bb]ackend"
         r"|[Kk]ernels?|GEMM|MoE|scheme)[^\n]{0,100}(?:only supports?|requires?|needs a|(?:is |are )?only supported on|is not supported on)"
         r" [^\n]{0,60}(?:Ampere|Hopper|Blackwell|SM\d+|sm_?\d+|[Cc]ompute [Cc]apability)"
         r"|not supported in this architecture|\bSM\d{2,3} .{0,40}is not supported"
         r"|scheme is not supported for the current GPU\. Min capability|[Cc]urrent platform does not support \w+ quantization",
         "gpu_arch_unsupported", decisive=False,
         advice="Choose another --attention-backend, --moe-runner-backend or quantisation in sglang_server_arguments: this GPU lacks what was "
         "chosen.",
         source="flash-attention, FlashInfer, Triton, SGLang: srt/layers"),
    _row("kernel_resources", "out of resource",
         r"[Oo]ut of resource(?:s)?: shared memory, Required: (?P<required_bytes>\d{1,12}), Hardware limit: (?P<limit_bytes>\d{1,12})",
         "gpu_arch_unsupported", fault="engine", anytime=True, decisive=False, advice=_OTHER_KERNEL, source="Triton"),
    _row("unsupported_sm", ("unsupported", "not supported"),
         r"(?i:unsupported (?:gpu )?(?:architecture|compute capability|sm version)\b(?!s?:? ?\w*For)"
         r"|arch(?:itecture)? sm_?\d+ (?:is )?not supported)",
         "gpu_arch_unsupported", decisive=False,
         advice="Install an engine that was built for this GPU (sglang_engine_version).", source="CUDA, Triton"),
    # -----------------------------------------------------------------------------------------------------------------
    # No GPU, wrong driver
    _row("no_gpus", "no cuda gpus are available", r"No CUDA GPUs are available", "no_gpu", fault="host",
         advice="Check that the driver is loaded (nvidia-smi) and that CUDA_VISIBLE_DEVICES names boards of this host.",
         source="torch",
         versions="all"),
    _row("no_driver", "found no nvidia driver", r"Found no NVIDIA driver", "no_gpu", fault="host",
         advice="Install the driver.", source="torch",
         versions="all"),
    _row("no_accelerator", ("no accelerator", "no supported", "not compiled with cuda enabled", "no cuda devices found", "no gpu memory values found",
                            "no hip gpus are available"),
         r"No accelerator|[Nn]o supported (?:device|accelerator)|Torch not compiled with CUDA enabled|No CUDA devices found"
         r"|No GPU memory values found|No HIP GPUs are available",
         "no_gpu", fault="host", decisive=False,
         advice="Check that the driver is loaded (nvidia-smi) and that the engine was built for this device; a host without one needs device: cpu.",
         versions="all", source="SGLang: srt/utils/common.py"),
    _row("no_cuda_device", "no cuda-capable device", r"no CUDA-capable device is detected", "no_gpu", fault="host",
         advice="Check that the driver is loaded (nvidia-smi).", source="CUDA"),
    _row("libcuda", "libcuda.so", r"libcuda\.so(?:\.1)?: cannot open shared object file", "no_gpu", fault="host",
         decisive=False, advice="Install the driver.", source="loader",
         versions="all"),
    _row("nvidia_smi", ("nvidia-smi", "rocm-smi not found"),
         r"nvidia-smi not found\. Ensure|nvidia-smi error|NVIDIA-SMI has failed|rocm-smi not found\. Ensure",
         "no_gpu", fault="host", decisive=False,
         advice="Install the driver and keep nvidia-smi in the PATH of the unit.",
         source="SGLang: srt/utils/common.py"),
    _row("driver_mismatch", "driver/library version mismatch", r"Driver/library version mismatch", "no_gpu",
         fault="host",
         advice="Reboot the host: the loaded driver is older than its libraries; then hold the packages.",
         source="NVML"),
    _row("driver_too_old", "driver on your system is too old",
         r"The NVIDIA driver on your system is too old(?: \(found version (?P<driver>\d+)\))?", "no_gpu",
         fault="host", decisive=False, advice=_DRIVER, source="torch",
         versions="all"),
    _row("driver_insufficient", "driver version is insufficient", r"CUDA driver version is insufficient", "no_gpu",
         fault="host", advice=_DRIVER, source="CUDA",
         versions="all"),
    _row("ptx", "unsupported toolchain", r"PTX was compiled with an unsupported toolchain", "no_gpu", fault="host",
         advice=_DRIVER, source="CUDA"),
    _row("fabric_manager", ("system not yet initialized", "error 802"), r"[Ss]ystem not yet initialized|error 802", "no_gpu",
         fault="host", advice="Start nvidia-fabricmanager in exactly the driver's version.",
         source="CUDA"),
    _row("forward_compatibility", "forward compatibility was attempted",
         r"forward compatibility was attempted on non supported", "no_gpu", fault="host",
         advice="Take the CUDA compat folder out of LD_LIBRARY_PATH.", source="CUDA",
         versions="all"),
    _row("invalid_ordinal", "invalid device ordinal", r"invalid device ordinal", "no_gpu", fault="configuration",
         advice="Lower --tp-size in sglang_server_arguments, or correct CUDA_VISIBLE_DEVICES: there are fewer boards than ranks.",
         source="CUDA"),
    _row("device_busy", "busy or unavailable", r"CUDA-capable device\(s\) is/are busy or unavailable", "no_gpu",
         fault="host", transient=True,
         advice="Check the compute mode and MIG of the board and which process holds it (nvidia-smi).", source="CUDA"),
    _row("unknown_cuda", "cuda unknown error", r"CUDA unknown error", "no_gpu", fault="host", decisive=False,
         advice="Reload the nvidia_uvm module or reboot the host.", source="torch"),
    # -----------------------------------------------------------------------------------------------------------------
    # The model
    _row("architecture", ("are not supported for now", "has no sglang implementation"),
         r"Model architectures? \[(?P<architecture>[^\]]{0,200})\] are not supported for now\."
         r"|\b(?P<class_name>\w{1,100}) has no (?i:SGLang) implementation",
         "model_arch_unsupported",
         advice='Install an engine that knows {architecture} (sglang_engine_version); look for "Ignore import error" lines above when it should.',
         source="SGLang: srt/model_loader/utils.py"),
    _row("model_type", "does not recognize this architecture",
         r"(?:model type `?(?P<architecture>[\w.-]+)`? but Transformers )?does not recognize this architecture",
         "model_arch_unsupported",
         advice="Install an engine whose transformers knows {architecture} (sglang_engine_version).",
         decisive=False, source="transformers"),
    _row("unrecognized_model", "unrecognized model in", r"Unrecognized model in (?P<path>\S+)",
         "model_arch_unsupported", advice=_MODEL_PATH, decisive=False, source="transformers",
         versions="all"),
    _row("unsupported_architecture", "unsupported",
         r"[Uu]nsupported (?:model )?architectures?:? ?(?P<architecture>\w+(?:For\w+))", "model_arch_unsupported",
         advice="Install an engine that knows {architecture} (sglang_engine_version).", decisive=False,
         source="SGLang: srt/configs/internvl.py"),
    _row("quant_mismatch", "quantization method specified",
         r"Quantization method specified in the model config \((?P<format>[\w.-]+)\) does not match",
         "quant_mismatch",
         advice="Remove quantization from sglang_server_arguments: the model's own ({format}) counts.",
         versions="all", source="SGLang: srt/configs/model_config.py"),
    _row("quant_unknown", ("quantization", "compatible scheme", "quant_config", "modelopt", "unsupported model when in", "serialized checkpoint"),
         r"(?:Unknown|Invalid|[Uu]nsupported) quantization (?:method|scheme|choice)|[Qq]uantization scheme is not supported(?! for the current)"
         r"|Cannot find (?:the config file for|any of) .{0,80}(?:quantization|modelopt)|No (?:compressed-tensors|quark) compatible scheme|Invalid quant_config"
         r"|(?:is not supported|does not support|not yet supported) (?:for |by )?\w{0,30} ?quantization|is not supported for quantization method"
         r"|quantization is currently not supported|Unsupported model when in \S{1,40}|only support(?:s)? \w{0,20}-?serialized checkpoint",
         "quant_mismatch", decisive=False,
         advice="Choose a quantisation that this engine and the model's files share (quantization in sglang_server_arguments).",
         source="SGLang: srt/layers/quantization/__init__.py"),
    _row("quant_kernel", ("does not support weight_bits", "quantized weight shape", "min_thread_", "is not divisible by group_size"),
         r"does not support weight_bits|(?:input|output) size is not aligned with the quantized weight shape"
         r"|is not divisible by +(?:min_thread_[nk]|group_size)\b",
         "quant_mismatch", decisive=False, advice=_TP, source="SGLang: srt/layers/quantization, vLLM"),
    _row("quant_tensor", "keyerror",
         r"^KeyError: '(?P<tensor>[\w.]{1,200}\.\w*(?:scale(?:_inv|_2)?|scales|qweight|qzeros|g_idx|zero_point|weight_packed|absmax|quant_map))'",
         "quant_mismatch", decisive=False, advice=_SHAPES, source="Python"),
    _row("quant_block", ("divisible by weight quantization block", "input_size_per_partition"),
         r"is not divisible by weight quantization block_[nk]|input_size_per_partition .{0,80}(?:not divisible|divisible by)",
         "quant_mismatch", advice=_TP,
         versions="all", source="SGLang: srt/layers/quantization/fp8_utils.py"),
    _row("weight_shape", ("to load weight", "shape mismatch", "shape"),
         r"(?:Tried|Attempted) to load weight \(?(?:torch\.Size|of size)|[Pp]resharded tensor shape mismatch"
         r"|^AssertionError: .{0,40}(?:param|loaded_weight)\S{0,20}shape",
         "quant_mismatch", decisive=False, advice=_SHAPES,
         source="SGLang: srt/model_loader/weight_utils.py"),
    _row("tensor_size", ("must match the size of tensor", "size mismatch", "start ("),
         r"The size of tensor a \(\d+\) must match the size of tensor b|size mismatch, got|^RuntimeError: start \(\d+\) \+ length \(\d+\) exceeds",
         "quant_mismatch", decisive=False, only_in=("weights",), advice=_SHAPES, source="torch"),
    _row("parameter_name", "keyerror", r"^KeyError: '(?P<tensor>(?:model|layers|language_model|lm_head|transformer)\.[\w.]{1,200})'",
         "model_arch_unsupported", decisive=False, only_in=("weights",),
         advice="Install an engine that knows this model's files (sglang_engine_version): it has no parameter of the name {tensor}.",
         source="Python"),
    _row("tokenizer", ("tokenizer", "converting from", "vocabulary", "use_fast"),
         r"Can't load tokenizer|Tokenizer class \S+ does not exist|Couldn't instantiate the backend tokenizer"
         r"|[Ff]ailed to load (?:the )?tokenizer|Unable to load (?:vocabulary|tokenizer)|Converting from (?:Tiktoken|SentencePiece) failed"
         r"|Cannot use the fast tokenizer in slow tokenizer mode|Retry with use_fast=False for .{1,200} also failed",
         "tokenizer",
         advice="Check the tokenizer files of the model (tokenizer.json, tokenizer_config.json), or set tokenizer-path in sglang_server_arguments.",
         decisive=False, source="transformers"),
    _row("tokenizer_variant", "untagged enum", r"data did not match any variant of untagged enum", "tokenizer",
         advice="The engine's tokenizers package is too old for this tokenizer.json; use a newer engine (sglang_engine_version).",
         source="tokenizers"),
    _row("tokenizer_module", ("sentencepiece", "tiktoken", "protobuf"),
         r"requires the (?:SentencePiece|tiktoken|protobuf) library|[Ii]nstall (?:sentencepiece|tiktoken|protobuf)"
         r"|`?tiktoken`? is required to read", "tokenizer", decisive=False, advice=_VENV, source="transformers"),
    _row("repository_not_found", ("repositorynotfounderror", "repository not found for url"),
         r"RepositoryNotFoundError|Repository Not Found for url: (?P<repo>\S+)", "hf_not_found", decisive=False,
         advice="Check the model's name; a private model looks missing without a token that may read it.",
         source="huggingface_hub",
         versions="all"),
    _row("gated", ("gatedrepoerror", "gated repo", "invalid user token", "invalid credentials in authorization"),
         r"GatedRepoError(?:: (?P<status>40[13]) Client Error)?|(?:trying to access a gated repo|Cannot access gated repo)"
         r"|Invalid user token|Invalid credentials in Authorization header",
         "hf_auth", decisive=False, advice=_TOKEN, source="huggingface_hub, transformers",
         versions="all"),
    _row("http_401", "client error", r"\b(?P<status>401) Client Error", "hf_auth", decisive=False, advice=_TOKEN,
         source="huggingface_hub",
         versions="all"),
    _row("http_403", "client error", r"\b(?P<status>403) Client Error", "hf_auth", decisive=False,
         advice="Have access to the model ({repo}) granted to the account of the token: it is logged in, and not on the list.",
         source="huggingface_hub",
         versions="all"),
    _row("restricted", "is restricted", r"Access to model (?P<repo>\S+) is restricted", "hf_auth", decisive=False,
         advice=_TOKEN, source="huggingface_hub",
         versions="all"),
    _row("http_404", "client error", r"\b(?P<status>404) Client Error", "hf_not_found", decisive=False,
         advice="Check the model's name and revision.", source="huggingface_hub"),
    _row("entry_not_found", ("notfounderror", "cannot find an appropriate cached snapshot", "offline mode is enabled"),
         r"(?:Remote|Local)?EntryNotFoundError|RevisionNotFoundError|Cannot find an appropriate cached snapshot|offline mode is enabled",
         "hf_not_found", decisive=False, advice=_MODEL_PATH, source="huggingface_hub",
         versions="all"),
    _row("hub_unreachable", ("couldn't connect to", "max retries exceeded with url"),
         r"We couldn't connect to '(?P<url>[^']{0,200})'"
         r"|HTTPS?ConnectionPool\(host='(?!127\.|localhost|0\.0\.0\.0|::1|\[)(?P<host>[^']{0,200})'[^\n]*Max retries exceeded with url: "
         r"(?!/(?:get_)?model_info|/generate|/health)",
         "hf_not_found", decisive=False, transient=True, advice=_HUB, source="transformers, requests"),
    _row("not_a_folder", ("is not a local folder", "repo id must"),
         r"is not a local folder and is not a valid model identifier|Repo id must (?:be in the form|use alphanumeric)",
         "hf_not_found", decisive=False, advice=_MODEL_PATH, source="transformers, huggingface_hub",
         versions="all"),
    _row("no_file_named", "does not appear to have",
         r"does not appear to have (?:a file named|files named) (?P<file>\S+)", "hf_not_found", decisive=False,
         advice=_MODEL_PATH, source="transformers",
         versions="all"),
    _row("no_config", "no such file or directory",
         r"No such file or directory: '?(?P<file>[^']{0,300}(?:config\.json|\.safetensors|\.bin|\.gguf|index\.json))",
         "hf_not_found", decisive=False, advice=_MODEL_PATH, source="Python"),
    _row("no_weights", ("model weights", "weight file", "weights file", "safetensors file", "shard file"),
         r"Cannot find any (?:of the )?model weights|No (?:model weights|safetensors files?|weights? files?) found"
         r"|references \d+ shard file\(s\) missing from",
         "hf_not_found", advice=_MODEL_PATH,
         source="SGLang: srt/model_loader/loader.py"),
    _row("broken_weights", ("safetensor", "error while deserializing header", "pytorchstreamreader", "files are still corrupted"),
         r"SafetensorError: .{0,80}(?:HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer|header too (?:large|small)"
         r"|incomplete metadata)|Error while deserializing header|PytorchStreamReader failed|model files are still corrupted", "hf_not_found",
         advice="Load the model again (role sglang_model): a weight file is cut off or is only a pointer.",
         source="safetensors, torch"),
    # -----------------------------------------------------------------------------------------------------------------
    # Disk
    _row("disk_full_warning", "not enough free disk space",
         r"Not enough free disk space to download the file\. The expected file size is: "
         r"(?P<needed_mb>[\d.]+) MB\. The target location (?P<path>\S+) only has (?P<free_mb>[\d.]+) MB", "disk_full",
         decisive=False, fault="host",
         advice="Free room at {path}: a file needs {needed_mb} MB and {free_mb} MB are left.",
         source="huggingface_hub"),
    _row("disk_full", "no space left on device",
         r"^(?!.*/dev/shm).*No space left on device(?:: '(?P<path>[^']{0,300})')?", "disk_full", fault="host",
         anytime=True, decisive=False, advice="Free room at {path}.", source="Python"),
    _row("pack_space", ("insufficient space for", "insufficient free space"), r"[Ii]nsufficient (?:space for .{0,40}Pack|free space): ",
         "disk_full", fault="host", decisive=False, advice="Free room where the prepared weights go.", versions="0.5.22+",
         source="SGLang: srt/model_loader/expert_pack/build.py"),
    _row("quota", "quota exceeded", r"Disk quota exceeded(?:: '(?P<path>[^']{0,300})')?", "disk_full", fault="host",
         advice="Raise the quota of the service user at {path}.", source="Python"),
    # -----------------------------------------------------------------------------------------------------------------
    # NUMA
    _row("mempolicy", "set_mempolicy", r"set_mempolicy: (?P<error>[\w ]+)", "numa_bind", fault="configuration",
         transient=False,
         advice="Turn NUMA binding off in sglang_server_arguments, or widen AllowedMemoryNodes and SystemCallFilter of the unit.",
         source="numactl"),
    _row("membind", "membind", r"setting membind: (?P<error>[\w ]+)", "numa_bind",
         advice="Turn NUMA binding off in sglang_server_arguments, or widen AllowedMemoryNodes of the unit.",
         source="numactl"),
    _row("numactl", ("numactl", "is out of range for"),
         r"numactl: (?:.{0,80}(?:not found|invalid|out of range|Operation not permitted|command not found))|No such file or directory: 'numactl'"
         r"|NUMA index \d+ .{0,80}is out of range for \d+ numa nodes",
         "numa_bind", advice="Install numactl, or turn NUMA binding off in sglang_server_arguments.",
         source="numactl, SGLang: srt/utils/numa_utils.py"),
    _row("libnuma", "libnuma", r"libnuma: Error|OSError: libnuma\.so[.\d]*: cannot open shared object", "numa_bind",
         advice="Install libnuma1, or turn NUMA binding off in sglang_server_arguments.", source="libnuma"),
    _row("libnuma_missing", "libnuma", r"ImportError: libnuma\.so[.\d]*: cannot open shared object", "toolchain_missing",
         decisive=False, advice="Install libnuma1: the kernels of the engine are linked against it.", source="loader"),
    # -----------------------------------------------------------------------------------------------------------------
    # Toolchain and virtual environment
    _row("nvcc", "nvcc",
         r"Could not find (?P<wanted_tool>nvcc)|No such file or directory: '(?:[^']{0,200}/)?(?P<tool>nvcc)'|(?P<missing_tool>nvcc)(?:: command)? not found",
         "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="FlashInfer, torch",
         versions="all"),
    _row("cuda_home", ("cuda_home", "could not find cuda installation"),
         r"CUDA_HOME environment variable is not set|Could not find CUDA installation|CUDA_HOME does not exist"
         r"|cuda_home=\S+ doesn't exist", "toolchain_missing", decisive=False, advice=_TOOLCHAIN,
         source="torch, DeepGEMM",
         versions="all"),
    _row("ninja", "ninja",
         r"Ninja is required to load C\+\+ extensions|No such file or directory: '(?P<tool>ninja)'|Ninja build failed"
         r"|Command '\['ninja'", "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="torch",
         versions="all"),
    _row("jit_build", ("failed to build jit module", "error building extension", "unsupported gnu version", "nvcc fatal", "hipcc"),
         r"Failed to build JIT module|Error building extension|error -- unsupported GNU version|nvcc fatal +: |hipcc: (?:command )?not found"
         r"|No such file or directory: '(?:[^']{0,200}/)?(?P<tool>hipcc)'",
         "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="SGLang 0.5.18+, torch, nvcc",
         versions="0.5.18+ (JIT module); others not known"),
    _row("header", "fatal error: ",
         r"fatal error: '?(?P<tool>[\w./-]+\.(?:h|hpp|cuh))'?(?:: No such file| file not found)", "toolchain_missing",
         decisive=False, advice=_TOOLCHAIN, source="gcc, nvcc"),
    _row("c_compiler", ("compiler", "no such file or directory: '"),
         r"Failed to find C compiler|[Nn]o working C compiler"
         r"|No such file or directory: '(?:[^']{0,200}/)?(?P<tool>gcc|g\+\+|c\+\+|cc|clang|ptxas|cuobjdump)'",
         "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="Triton"),
    _row("ptxas", "ptxas", r"ptxas (?:fatal|failed|error)|PTXASError|Cannot find ptxas", "toolchain_missing",
         decisive=False, advice=_TOOLCHAIN, source="Triton"),
    _row("python_header", "python.h", r"Python\.h: No such file", "toolchain_missing", decisive=False,
         advice=_TOOLCHAIN, source="gcc"),
    _row("undefined_symbol", "undefined symbol", r"undefined symbol: (?P<symbol>\S+)", "toolchain_missing",
         decisive=False, advice=_VENV, source="loader"),
    _row("glibcxx", "glibc", r"version `(?P<symbol>GLIBC(?:XX)?_[\d.]+)' not found", "toolchain_missing",
         decisive=False, advice=_VENV, source="loader"),
    _row("shared_object", "cannot open shared object file",
         r"(?P<library>lib[\w+.-]+\.so[\w.]*): cannot open shared object file", "toolchain_missing", decisive=False,
         advice=_VENV, source="loader"),
    _row("sgl_kernel", ("sgl_kernel", "common_ops"),
         r"ImportError:[^\n]{0,200}(?:sgl_kernel|common_ops)|\[sgl_kernel\] CRITICAL: Could not load", "toolchain_missing",
         decisive=False, advice=_VENV,
         versions="0.5+", source="SGLang: sgl_kernel, public reports"),
    _row("kernel_version", "less than the minimum required",
         r"is installed with version \S+,? which is less than the minimum required", "toolchain_missing",
         decisive=False, advice=_VENV,
         source="SGLang: srt/utils/common.py"),
    _row("config_registered", "is already used by a transformers", r"is already used by a Transformers (?:model|config)",
         "toolchain_missing", decisive=False, advice=_VENV, source="transformers"),
    _row("module_missing", "no module named", r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
         "toolchain_missing", decisive=False,
         advice="Install the engine again (role sglang_engine): its virtual environment lacks the module {module}.",
         source="Python"),
    _row("import_error", "cannot import name", r"ImportError: cannot import name '(?P<module>\w+)'",
         "toolchain_missing", decisive=False, advice=_VENV, source="Python"),
    # -----------------------------------------------------------------------------------------------------------------
    # Collectives. Less preferred than a named cause: one dead rank gives every other rank one of these.
    _row("collective_timeout", ("collective operation timeout", "detected by watchdog at work", "timeout at nccl work"),
         r"Watchdog caught collective operation timeout|Exception \(either an error or timeout\) detected by watchdog at work"
         r"|Timeout at NCCL work", "comm_timeout", role=COLLECTIVE, transient=True, anytime=True,
         advice="Look at the other ranks first: one of them did not take part; then " + _NETWORK[0].lower()
         + _NETWORK[1:], source="torch",
         versions="all"),
    _row("ranks_not_loaded", "finish the model loading",
         r"TP rank (?P<rank>\d{1,5}) could finish the model loading, but there are other ranks", "comm_timeout",
         role=COLLECTIVE, phase="weights", transient=True,
         advice="Look at the ranks that did not finish: they ran out of memory or read from a slow disk.",
         versions="0.4.6+",
         source="SGLang: srt/model_executor/model_runner_components/load_model_utils.py"),
    _row("barrier_timeout", ("monitoredbarrier", "timed out", "timeout", "ei000"),
         r"monitoredBarrier|[Tt]imed out (?:after|waiting) [^\n]{0,40}(?:barrier|ranks)"
         r"|(?:barrier|Gloo|gloo|allreduce|broadcast|[Rr]ecv)[^\n]{0,80}(?:[Tt]imed out|timeout)|Timed out waiting \d+ms for"
         r"|EI000[26]: ",
         "comm_timeout", role=COLLECTIVE, transient=True, advice=_PEERS, decisive=False, source="torch, gloo, HCCL"),
    _row("nccl_error", ("nccl", "rccl", "hccl", "distbackenderror"),
         r"[NR]CCL error|HCCL (?:function )?error|\bnccl(?:Internal|System|UnhandledCuda|Remote|InvalidUsage|InvalidArgument)Error|DistBackendError"
         r"|NCCL WARN .{0,80}(?:failed|error)", "comm_init", role=COLLECTIVE, transient=True, advice=_NETWORK,
         source="NCCL, RCCL, HCCL",
         versions="all"),
    _row("nvshmem", ("nvshmem", "ibv_modify_qp failed"),
         r"nvshmem (?:initialization|setup connections|detect topo) failed|NVSHMEM API called before NVSHMEM initialization|ibv_modify_qp failed",
         "comm_init", role=COLLECTIVE, transient=True,
         advice="Check the InfiniBand devices that the service may use, IBGDA of the driver (nvidia_peermem), and LimitMEMLOCK of the unit; or "
         "leave --moe-a2a-backend out.", source="NVSHMEM, DeepEP"),
    _row("custom_all_reduce", "custom_all_reduce", r"custom_all_reduce\.cuh:\d+ '?(?P<error>[\w ]+)'?", "comm_init",
         role=CAUSE,
         advice="Set sglang_server_allocator_conf to '' or disable-custom-all-reduce in sglang_server_arguments: expandable segments break it.",
         source="vLLM, SGLang before June 2026"),
    _row("memory_registration", ("register memory", "memory registration", "mr registration", "ibv_reg_mr"),
         r"(?:[Ff]ailed to )?register memory (?:failed|0x)|ibv_reg_mr[^\n]*(?:Cannot allocate|failed)|MR registration failed"
         r"|[Mm]emory registration failed", "comm_init", role=CAUSE,
         advice="Set LimitMEMLOCK=infinity in the unit, and sglang_server_allocator_conf to ''.",
         source="Mooncake, NIXL, verbs"),
    _row("p2p", "peer access", r"peer access is not supported between", "comm_init", role=CAUSE,
         advice="Remove enable-p2p-check or set NCCL_P2P_DISABLE=1 in sglang_server_environment.", source="CUDA"),
    _row("dist_network", ("distnetworkerror", "client socket has", "diststoreerror", "tcpstore", "failed to recv, got 0 bytes"),
         r"DistNetworkError|client socket has (?:timed out|failed to connect)|DistStoreError"
         r"|TCPStore[^\n]{0,120}(?:timeout|timed out|failed|[Bb]roken pipe)|failed to recv, got 0 bytes",
         "comm_init", role=COLLECTIVE, transient=True, advice=_NODE_0, source="torch",
         versions="all"),
    _row("gloo_connect", ("gloo", "unable to find address", "unable to find interface"),
         r"Gloo connectFullMesh failed|gloo[^\n]{0,200}(?:no address|unable to find (?:address|interface)|Unable to resolve hostname)"
         r"|Unable to find (?:address|interface) for", "comm_init", role=CAUSE, phase="init",
         advice="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME in sglang_server_environment to the interface between the nodes.",
         source="gloo"),
    _row("peer_closed", ("by peer", "by remote peer"), r"Connection (?:closed|reset) by (?:remote )?peer", "scheduler_died", role=PEER,
         decisive=False, transient=True,
         advice="Look at the other ranks: one of them ended without a word; when memory is shared with the host, suspect host memory and lower "
         "sglang_server_chunked_prefill_size.", source="gloo"),
    _row("peer_refused", "connection refused", r"Connection refused", "comm_init", role=PEER, decisive=False,
         transient=True, advice=_NODE_0, source="torch"),
    _row("broken_pipe", ("heartbeat monitor", "broken pipe"), r"[Hh]eartbeat monitor|Broken pipe[^\n]{0,80}(?:TCPStore|NCCL)",
         "comm_timeout", role=PEER, transient=True, anytime=True, decisive=False,
         advice="Look at the other ranks: one of them ended without a word.", source="torch"),
    # -----------------------------------------------------------------------------------------------------------------
    # The engine's own checks
    _row("pool_leak", ("memory leak detected", "mem leak detected"), r"(?:memory|Mem) [Ll]eak [Dd]etected!", "scheduler_died",
         fault="engine", anytime=True, decisive=False,
         advice="Go back to the engine's version that served last (sglang_engine_version): its own check found tokens of the pool lost, which no "
         "fraction repairs.",
         source="SGLang: srt/managers/scheduler_components/invariant_checker.py"),
    # -----------------------------------------------------------------------------------------------------------------
    # Hangs
    _row("watchdog", "watchdog timeout", r"[Ww]atchdog timeout \((?!.*self\.soft=True)", "watchdog_hang",
         anytime=True, transient=True,
         advice="Raise --watchdog-timeout in sglang_server_arguments when kernels were being compiled; otherwise look at the collectives.",
         versions="all", source="SGLang: srt/utils/watchdog.py"),
    _row("systemd_timeout", ("timed out", "failed with result 'timeout'"),
         r"(?:start operation timed out|Failed with result 'timeout'|State 'stop-sigterm' timed out)", "timeout",
         role=PEER, advice="Raise TimeoutStartSec of the unit: SGLang loads for minutes.", source="systemd"),
    _row("warmup_timeout", "read timed out",
         r"(?:ReadTimeout|HTTPS?ConnectionPool)[^\n]{0,200}Read timed out\. \(read timeout=(?P<timeout_seconds>\d{1,6})", "watchdog_hang",
         decisive=False, phase="warmup", transient=True,
         advice="Raise SGLANG_WARMUP_TIMEOUT in sglang_server_environment when kernels were being compiled; otherwise look at the collectives.",
         source="requests"),
    _row("warmup_answer", ("response [", "max retries exceeded with url"),
         r"^AssertionError: res=<Response \[(?P<status>[45]\d\d)\]>"
         r"|HTTPS?ConnectionPool\(host='[^']{0,200}'[^\n]{0,80}Max retries exceeded with url: /(?:(?:get_)?model_info|generate|health)",
         "unknown", decisive=False, phase="warmup",
         advice="Take http_proxy and https_proxy out of the unit's environment, or give NO_PROXY this host, and look at --host: the server could "
         "not reach itself for its warm-up.", source="SGLang: srt/entrypoints/http_server.py, requests"),
    _row("boards_missing", "boards within", r"^Expected \d+ boards within \d+ s, found less: ", "no_gpu", fault="host",
         transient=True, advice="Look at nvidia-smi and journalctl -k on the host, or raise sglang_server_boards_wait_seconds.",
         source="the wait for the boards before a start"),
    _row("boards_left_over", "of an earlier start of", r"^Expected no process of an earlier start of ", "unit_failed",
         fault="host", advice="End that process as root, or reboot the host when it cannot end.",
         source="the wait for the boards before a start"),
    _row("boards_taken", "to be free, found memory of", r"^Expected board \S+ to be free, found memory of process",
         "unit_failed", fault="host",
         advice="Find what holds it (fuser -v /dev/nvidia*), reset the board (nvidia-smi --gpu-reset), or reboot the host.",
         source="the wait for the boards before a start"),
    _row("start_limit", "start request repeated too quickly", r"Start request repeated too quickly", "unit_failed",
         role=PEER, advice="Read the first start's failure, repair it, and run systemctl reset-failed.",
         source="systemd"),
    # -----------------------------------------------------------------------------------------------------------------
    # Wrappers: in which step it happened
    _row("capture_failed", "graph failed", r"Capture (?:[\w -]{0,40} )?(?:cuda|CUDA|cpu|CPU|npu|NPU) graph failed", None,
         role=WRAPPER, phase="graphs",
         versions="all", source="SGLang: srt/model_executor/runner/decode_cuda_graph_runner.py"),
    _row("prefill_runner", "for prefill runner", r"Fail when using backend: .* for prefill runner", None,
         role=WRAPPER, phase="graphs", versions="0.5.14+",
         source="SGLang: srt/model_executor/runner_backend_utils/__init__.py"),
    _row("warmup_error", "warmup error", r"Initialization failed\. warmup error", None, role=WRAPPER, phase="warmup",
         versions="all", source="SGLang: srt/entrypoints/http_server.py"),
    _row("init_attention", "init_attention_backends", r"hit an exception in init_attention_backends", None,
         role=WRAPPER, phase="pool",
         source="SGLang: public reports"),
    # -----------------------------------------------------------------------------------------------------------------
    # Consequences: somebody died; the cause stands elsewhere
    _row("exception", "hit an exception",
         r"(?P<who>Scheduler|DataParallelController|DetokenizerManager|TokenizerManager|TpModelWorkerClient|\b\w{1,60}) hit an exception",
         "scheduler_died", role=CONSEQUENCE,
         versions="all", source="SGLang: srt/managers/scheduler.py"),
    _row("sigquit", "sigquit",
         r"Received sigquit from a child proces|SIGQUIT received\. signum=|Triggering SIGQUIT for cleanup",
         "scheduler_died", role=CONSEQUENCE, versions="0.4.3+",
         source="SGLang: srt/entrypoints/engine.py"),
    _row("native_crash", ("fatal python error", "terminate called after throwing"),
         r"Fatal Python error: (?P<signal_name>Segmentation fault|Aborted|Illegal instruction|Floating[ -]point exception)"
         r"|terminate called after throwing an instance of", "scheduler_died", role=CONSEQUENCE, source="Python, C++"),
    _row("pipe_closed", "eoferror", r"^EOFError\s*$", "scheduler_died", role=CONSEQUENCE, source="Python"),
    _row("rank_died", "scheduler died during initialization",
         r"Rank (?P<rank>\d{1,5}) scheduler died during initialization \(exit code: (?P<exit_code>-?\d{1,5})\)",
         "scheduler_died", role=CONSEQUENCE, versions="0.5.10+",
         source="SGLang: srt/entrypoints/engine.py"),
    _row("rank_dead", "scheduler is dead", r"Rank (?P<rank>\d{1,5}) scheduler is dead", "scheduler_died",
         role=CONSEQUENCE, versions="0.4.6-0.5.9",
         source="SGLang: srt/entrypoints/engine.py"),
    _row("exit_code", "exit code: ", r"(?:^|\] )Exit code: (?P<exit_code>-?\d{1,5})", "scheduler_died", role=CONSEQUENCE,
         versions="0.4.6-0.5.9",
         source="SGLang: srt/entrypoints/engine.py"),
    _row("child_failed", "child process unexpectedly failed",
         r"Child process unexpectedly failed with(?:.*?exit ?code[=: ]+(?P<exit_code>-?\d{1,5}))?", "scheduler_died",
         role=CONSEQUENCE, versions="0.4.6-0.4.9",
         source="SGLang: srt/managers/tokenizer_manager.py"),
    _row("subprocess_crashed", "crashed with exit code",
         r"Subprocess (?P<who>\S+) \(pid=\d{1,10}\) crashed with exit code (?P<exit_code>-?\d{1,5})",
         "scheduler_died", role=CONSEQUENCE, versions="0.5.10+",
         source="SGLang: srt/utils/watchdog.py"),
    _row("terminated_with", "terminated with",
         r"Scheduler or DataParallelController \d{1,10} terminated with (?P<exit_code>-?\d{1,5})", "scheduler_died",
         role=CONSEQUENCE,
         source="SGLang: srt/entrypoints/engine.py"),
    _row("init_failed", "initialization failed", r"Initialization failed\. Please see the error messages above",
         "scheduler_died", role=CONSEQUENCE,
         versions="all", source="SGLang: srt/entrypoints/engine.py"),
    # bash: "./run.sh: line 22: 103525 Killed   python -m ..."; zsh: "zsh: killed     python3 ..."; dash: "Killed".
    _row("shell_killed", "killed", r"^(?:\S{1,200}: line \d{1,6}: +\d{1,10} Killed(?:\s|$)|zsh: killed |Killed\s*$)",
         "scheduler_died", role=CONSEQUENCE, source="bash, dash, zsh"),
    _row("kill_tree", "kill_process_tree called", r"kill_process_tree called", None, role=CONSEQUENCE,
         source="SGLang: srt/utils/common.py"),
    _row("main_exited", "main process exited", r"Main process exited, code=(?P<code>\w+), status=(?P<status>\d{1,5})",
         None, role=CONSEQUENCE, source="systemd"),
    _row("failed_with", "failed with result", r"Failed with result '(?P<result>[\w-]+)'", None, role=CONSEQUENCE,
         source="systemd"),
    # -----------------------------------------------------------------------------------------------------------------
    # Notices: they end nothing
    _row("pool_full", ("kv cache pool is full", "decode out of memory happened"),
         r"KV cache pool is full\. Retract requests|Decode out of memory happened", None, role=NOTICE,
         advice="Once a minute is fine; more often means that the pool is small for the load.",
         versions="all", source="SGLang: srt/managers/scheduler.py"),
    _row("health_failed", "health check failed", r"Health check failed\. Server couldn't get a response", None,
         role=NOTICE, advice="A busy server misses health checks; raise SGLANG_HEALTH_CHECK_TIMEOUT.",
         versions="0.4.3+", source="SGLang: srt/entrypoints/http_server.py"),
    _row("cap_ineffective", "is larger than the profiled value",
         r"max_total_tokens=(?P<cap>\d{1,15}) is larger than the profiled value (?P<tokens>\d{1,15})", None,
         role=NOTICE, advice="The cap is above what the fraction gives, so it does nothing.",
         versions="all", source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("pool_under_context", "fewer than --context-length",
         r"KV pool holds (?P<tokens>\d{1,15}) tokens, fewer than --context-length (?P<context>\d{1,15})", None,
         role=NOTICE, advice="One request of full length does not fit into the pool.", versions="0.5.23",
         source="SGLang: srt/managers/tp_worker.py"),
    _row("requests_reduced", "max_running_requests",
         r"max_running_requests (?:was reduced from the requested|is capped to)", None, role=NOTICE,
         advice="The memory for states allows fewer requests at once than asked for.",
         versions="0.5+", source="SGLang: srt/mem_cache/kv_cache_configurator.py"),
    _row("segments_ignored", "expandable_segments not supported", r"expandable_segments not supported on this platform", None,
         role=NOTICE,
         advice="This torch has no expandable segments and goes on without: set sglang_server_allocator_conf to '', it does nothing.",
         versions="all", source="torch: c10/cuda/CUDAAllocatorConfig.h"),
)

# Generic exceptions by the file in which they were raised, when no row knows their text.
FRAMES = (
    (
        "numa_bind",
        re.compile(r"in (?:(?:set_)?gpu_proc_affinity|init_threads_binding|cpu_affinity(?:_set)?)\b"),
        "Take SGLANG_SET_CPU_AFFINITY out of sglang_server_environment, or widen AllowedCPUs of the unit: it may not use the "
        "processors that the engine wants to bind to.",
    ),
    (
        "bad_args",
        re.compile(
            r"server_args\.py\"?, line \d+, in (?:__post_init__|check_server_args|_handle_\w+|from_cli_args|_parse|add_cli_args|validate)"
            r"|arg_groups/\w+(?:/\w+)?\.py\"?, line \d+, in"
        ),
        "Correct sglang_server_arguments: the engine refuses this combination.",
    ),
    (
        "tokenizer",
        re.compile(
            r"(?:tokenization_\w+|hf_transformers_utils|tokenizer\w*|tiktoken_\w+)\.py\"?, line \d+, "
            r"in (?:get_tokenizer|_?from_pretrained|__init__|get_fast\w*)"
        ),
        "Check the tokenizer files of the model, or set tokenizer-path in sglang_server_arguments.",
    ),
)

# Where host memory is taken for the hierarchical cache: srt/mem_cache/memory_pool_host.py and pool_host/.
HOST_MEMORY = _HOST_MEMORY
HOST_MEMORY_FRAME = re.compile(r"memory_pool_host\.py|pool_host/|in (?:alloc_with_pin_memory|alloc_with_host_register)")

# In which phase a traceback was raised, by its frames; the deepest that matches counts. Prefill and decode are phases of serving.
FRAME_PHASES = (
    (
        "graphs",
        re.compile(
            r"cuda_graph_runner|graph_runner|capture_one_batch|init_(?:cuda|device)_graphs?|kernel_warmup|in capture\b|init_decode_cuda_graph"
        ),
    ),
    (
        "pool",
        re.compile(
            r"in init_memory_pool|memory_pool|in _create_buffers|pool_configurator|kv_cache_configurator|in alloc_memory_pool|in profile_max_num_token"
            r"|init_attention_backend|in init_kv_cache"
        ),
    ),
    (
        "weights",
        re.compile(
            r"in load_model\b|weight_utils|in load_weights|process_weights_after_loading|in create_weights"
            r"|_initialize_model|model_loader|in initialize_model"
        ),
    ),
    (
        "init",
        re.compile(
            r"in init_torch_distributed|init_distributed_environment|in init_process_group|initialize_model_parallel"
        ),
    ),
    (
        "prefill",
        re.compile(
            r"in forward_extend|in forward_split_prefill|in get_new_batch_prefill|in alloc_\w*extend|in prepare_for_extend|in alloc_for_extend"
        ),
    ),
    (
        "decode",
        re.compile(
            r"in forward_decode|in prepare_for_decode|in alloc_\w*decode|in update_running_batch|in alloc_for_decode"
        ),
    ),
    ("serving", re.compile(r"in event_loop\w*|in run_batch|in forward_batch_generation|in process_batch_result")),
)

# A traceback that went through one of these happened while the model was run; through one of the others, between passes.
PASS = re.compile(r"\b(?:run_batch|forward_batch_generation|process_batch_result\w*)\b")
OUTSIDE_A_PASS = re.compile(
    r"\b(?:on_idle|self_check_during_idle|check_memory|process_input_requests|recv_requests|_check_\w{1,40})\b"
)
# What happens in a pass, whatever frames were printed.
PASS_KINDS = (BY_PHASE, "oom_prefill", "oom_decode", "kv_pool_too_small", "cuda_illegal_access")

# A line with one of these is a warning of something that was survived.
HARMLESS = (
    "ignore import error",
    "warning:",
    "warnings.warn",
    "will fall back",
    "fallback to",
    "falling back",
    "retrying",
    "fail to import",
    "disabling",
    # What a search for the fastest kernel tries in vain, and a download that is tried again.
    "ignoring this choice",
    "skipping tactic",
    "skipping config",
    "thrown while requesting",
)

# Warnings of C++ libraries (torch, glog, NCCL): they are survived more often than not, and count for a reported death only.
WARNED = re.compile(r"^(?:\[rank\d{1,5}\]:)?\[W\d{0,8} |^W\d{4} | NCCL WARN ")
