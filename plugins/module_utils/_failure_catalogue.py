# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""_failure_catalogue: the table of all known deaths of an SGLang server (private to the collection).

Data only; _failures reads it. One row is one wording of one cause. "SGLang" as a source means the text was read in the
wheels 0.3.6 - 0.5.23; texts of torch, CUDA, NCCL, transformers, huggingface_hub and the kernel are theirs.
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
    """One wording. ``needle``: a lower-case literal of every line that can match (the cheap test).

    ``decisive`` rows are fatal as soon as they are read; others only when the unit ended or a process was reported dead,
    because the same words also appear in harmless warnings. ``anytime`` rows count after the ready line too.
    """

    name: str
    needle: str
    pattern: re.Pattern
    kind: str | None
    role: str = CAUSE
    phase: str | None = None
    direction: str | None = "keep"
    transient: bool = False
    fault: str = "configuration"
    decisive: bool = True
    anytime: bool = False
    advice: str = ""
    versions: str = "all"
    source: str = "SGLang"


def _row(name, needle, pattern, kind, **more):
    return Row(name=name, needle=needle.lower(), pattern=re.compile(pattern), kind=kind, **more)


# ---------------------------------------------------------------------------------------------------------------------
# Advice that several rows share

_MODEL_PATH = "Check the model path of the instance: the folder must hold config.json, the tokenizer and every weight file of its index."
_TOKEN = (
    "Give the service user a token that may read the model ({repo}), or load it beforehand with the role sglang_model."
)
_NETWORK = (
    "Set NCCL_DEBUG=INFO in sglang_server_environment and start again; check NCCL_SOCKET_IFNAME, the size of /dev/shm and "
    "LimitMEMLOCK of the unit."
)
_DRIVER = "Install a driver that the engine's CUDA version accepts (role nvidia_driver), or an older engine (sglang_engine_version)."
_TOOLCHAIN = "Install the CUDA toolkit, gcc, ninja and the Python headers (role cuda), and set CUDA_HOME and PATH in sglang_server_environment."
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
_GRAPHS = (
    "Lower sglang_server_mem_fraction_static, or the batch of the decode graphs (--cuda-graph-max-bs-decode, before 0.5.14 "
    "--cuda-graph-max-bs, in sglang_server_arguments)."
)

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
    _row("systemd_oom_kill", "oom",
         r"(?:killed by the OOM killer|Failed with result 'oom-kill'|killed .* due to memory (?:pressure|used))",
         "host_oom_kill", role=HOST, fault="host", anytime=True, advice=_HOST_MEMORY, source="systemd, systemd-oomd"),
    _row("xid_lost", "xid",
         r"NVRM: Xid \([^)]*\): (?P<xid>79|119|120|140|143|154(?=.*(?: to 0x[1-9]|[Rr]eset|[Rr]eboot)))\b",
         "gpu_lost", role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="NVIDIA Xid catalogue"),
    _row("xid_error", "xid", r"NVRM: Xid \([^)]*\): (?P<xid>48|61|62|63|64|74|94|95|109|110|121)\b", "gpu_lost",
         role=HOST, fault="host", anytime=True, decisive=False, advice=_OTHER_GPU, source="NVIDIA Xid catalogue"),
    _row("fallen_off_the_bus", "fallen off the bus", r"[Ff]allen off the bus", "gpu_lost", role=HOST, fault="host",
         anytime=True, advice=_OTHER_GPU, source="kernel"),
    _row("rm_init_adapter", "rminitadapter failed", r"RmInitAdapter failed", "gpu_lost", role=HOST, fault="host",
         advice=_OTHER_GPU, source="kernel"),
    _row("gpu_is_lost", "is lost", r"(?:GPU is lost|Unable to determine the device handle for (?:GPU|gpu))",
         "gpu_lost", role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="NVML"),
    _row("device_handle", "unable to determine the device handle", r"Unable to determine the device handle for",
         "gpu_lost", role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="NVML"),
    _row("gpu_reset_required", "reset",
         r"(?i)GPU (?:requires|needs) (?:a )?reset|GPU Reset Required|cudaErrorDeviceNeedsReset", "gpu_lost",
         role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="NVML, kernel"),
    _row("ecc", "ecc",
         r"(?i)uncorrectable (?:NVLink|ECC) error|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable", "gpu_lost",
         role=HOST, fault="host", anytime=True, advice=_OTHER_GPU, source="CUDA"),
    _row("nova_core", "already bound to novacore", r"already bound to NovaCore", "no_gpu", role=HOST, fault="host",
         advice="Blacklist nova_core and nova_drm (role nvidia_driver) and reboot.", source="kernel"),
    # -----------------------------------------------------------------------------------------------------------------
    # GPU memory: lower the fraction
    _row("device_out_of_memory", "out of memory. tried to allocate",
         r"(?P<device>CUDA|HIP|NPU|XPU|MUSA|GPU|MLU|Torch)? ?out of memory\. Tried to allocate (?P<wanted>[\d.]+ ?(?:[KMGT]i?B|bytes))",
         BY_PHASE, direction="lower", anytime=True, advice=_LOWER, source="torch"),
    _row("cuda_error_out_of_memory", "out of memory",
         r"(?i:CUDA(?: runtime| driver)? error:? ?(?:\(?2\)?:? ?)?[^\n]{0,40}\bout of memory|Triton Error \[(?:CUDA|HIP)\]: out of memory"
         r"|Cuda failure (?:2 )?'out of memory'|hipErrorOutOfMemory|HIP error: out of memory|NCCL[^\n]{0,60}out of memory)"
         r"|torch\.(?:cuda\.)?OutOfMemoryError|tvm\.error\.InternalError: .{0,80}out of memory", BY_PHASE,
         direction="lower", anytime=True, advice=_LOWER, source="torch, CUDA, NCCL"),
    _row("out_of_memory_error", "outofmemoryerror", r"\b(?:torch\.(?:cuda\.)?)?OutOfMemoryError\b", BY_PHASE,
         direction="lower", anytime=True, advice=_LOWER, source="torch"),
    _row("cuda_error_memory_allocation", "memoryallocation", r"cudaErrorMemoryAllocation", BY_PHASE,
         direction="lower", anytime=True, advice=_LOWER, source="CUDA"),
    _row("cuda_driver_out_of_memory", "error_out_of_memory", r"CUDA_ERROR_OUT_OF_MEMORY", BY_PHASE, direction="lower",
         anytime=True, advice=_LOWER, source="CUDA"),
    _row("cublas_alloc", "alloc_failed", r"CU(?:BLAS|SPARSE|SOLVER|DNN)_STATUS_ALLOC_FAILED", BY_PHASE,
         direction="lower", anytime=True, advice=_LOWER, source="cuBLAS"),
    _row("workspace", "workspace buffer overflow",
         r"Buffer overflow when allocating memory for|workspace buffer overflow", BY_PHASE, direction="lower",
         advice="Enlarge SGLANG_FLASHINFER_WORKSPACE_SIZE in sglang_server_environment.", source="FlashInfer"),
    # -----------------------------------------------------------------------------------------------------------------
    # The pool: raise the fraction
    _row("not_enough_memory", "not enough memory. please try to increase",
         r"Not enough memory\. Please try to increase --mem-fraction-static", "kv_pool_too_small", phase="pool",
         direction="raise", advice=_RAISE),
    _row("weights_leave_no_memory", "leave no gpu memory for the kv cache",
         r"Loaded weights leave no GPU memory for the KV cache(?: under --mem-fraction-static=(?P<fraction>\d*\.\d+))?"
         r"(?:\. Raise --mem-fraction-static above (?P<above>\d*\.\d+))?", "kv_pool_too_small", phase="pool",
         direction="raise", advice=_RAISE, versions="0.5.14+"),
    _row("minimum_viable", "minimum viable", r"\(?minimum viable = 1 - available/pre = (?P<above>\d{0,3}\.\d{1,9})",
         "kv_pool_too_small", phase="pool", direction="raise", advice=_RAISE, versions="0.5.14+"),
    _row("profiled_negative", "is larger than the profiled value",
         r"is larger than the profiled value (?P<tokens>-\d+)", "kv_pool_too_small", phase="pool", direction="raise",
         advice=_RAISE),
    _row("rest_memory_negative", "rest_memory", r"(?:total_)?rest_memory=(?P<rest>-\d+(?:\.\d+)?) ?GB",
         "kv_pool_too_small", phase="pool", direction="raise", decisive=False, advice=_RAISE),
    _row("state_cache_no_memory", "not enough gpu memory for hybrid", r"Not enough GPU memory for hybrid \(mamba",
         "kv_pool_too_small", phase="pool", direction="raise", versions="0.5.14+",
         advice="Raise sglang_server_mem_fraction_static, or lower --max-running-requests in sglang_server_arguments."),
    _row("state_cache_small", "state cache is too small",
         r"Hybrid \(mamba/linear-attention\) state cache is too small", "kv_pool_too_small", phase="pool",
         direction="raise", versions="0.5.14+",
         advice="Raise sglang_server_mem_fraction_static, or lower --max-running-requests in sglang_server_arguments."),
    _row("swa_pool_small", "cannot hold even one request",
         r"SWA pool \((?P<tokens>\d{1,12}) tokens\) cannot hold even one request", "kv_pool_too_small", phase="pool",
         direction="raise", versions="0.5.16+",
         advice="Raise --swa-full-tokens-ratio in sglang_server_arguments, or sglang_server_mem_fraction_static."),
    _row("retract_failed", "failed to retract any request",
         r"Failed to retract any request\. No space left for only one request", "kv_pool_too_small", phase="decode",
         direction="raise", anytime=True, versions="0.4.9-0.5.6",
         advice="Raise sglang_server_mem_fraction_static: the pool is smaller than one request; or lower --context-length."),
    _row("request_slots", "alloc_req_slots runs out of memory", r"alloc_req_slots runs out of memory",
         "kv_pool_too_small", phase="prefill", direction="keep", anytime=True,
         advice="Lower --max-running-requests in sglang_server_arguments."),
    _row("request_slots", "please set a smaller number for",
         r"Please set a smaller number for .?--max-running-requests", "kv_pool_too_small", direction="keep",
         anytime=True, advice="Lower --max-running-requests in sglang_server_arguments."),
    _row("prefill_tokens", "prefill out of memory", r"Prefill out of memory\.", "oom_prefill", phase="prefill",
         direction="raise", anytime=True,
         advice="Raise sglang_server_mem_fraction_static (the token pool is full, not the board), or lower --max-running-requests."),
    _row("decode_tokens", "decode out of memory", r"Decode out of memory\. (?:Try|Please)", "oom_decode",
         phase="decode", direction="raise", anytime=True,
         advice="Raise sglang_server_mem_fraction_static (the token pool is full, not the board), or lower --max-running-requests."),
    _row("tokens", "out of memory. try to lower your batch size", r"\bOut of memory\. Try to lower your batch size",
         BY_PHASE, direction="raise", anytime=True,
         advice="Raise sglang_server_mem_fraction_static (the token pool is full, not the board), or lower --max-running-requests."),
    _row("unbalanced", "memory capacity is unbalanced",
         r"The memory capacity is unbalanced\. Some GPUs may be occupied", "gpu_unbalanced", phase="init",
         direction="keep", fault="host",
         advice="Free the busy GPU or use equal boards: the least free one decides, and it is more than 10 % below this one."),
    # -----------------------------------------------------------------------------------------------------------------
    # Host memory and shared memory
    _row("shared_memory_file", "no space left on device",
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
    _row("pinned", "host memory",
         r"(?:Not enough host memory available|Requesting [\d.]+ ?GB but only have [\d.]+ ?GB free)", "host_oom_kill",
         fault="host", advice=_HOST_MEMORY, source="SGLang, hierarchical cache"),
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
         source="argparse"),
    _row("json_argument", "must be json", r"(?P<option>--[\w-]+) must be JSON", "bad_args", phase="process",
         advice="Correct {option} in sglang_server_arguments: its value must be valid JSON when it reaches the engine (quotes are easily lost)."),
    _row("config_option", "unsupported config option", r"Unsupported config option '(?P<option>[\w-]+)'", "bad_args",
         phase="process", advice="Move {option} from the configuration file to sglang_server_arguments.",
         versions="0.5.3+"),
    _row("config_file", "config file", r"Config file (?:must be YAML format|not found: )", "bad_args",
         phase="process", advice="Deploy again: the file given with --config is missing or is not YAML.",
         versions="0.5.3+"),
    _row("context_length", "context_length",
         r"[Uu]ser-specified context_length \((?P<context>\d{1,12})\) is greater than the derived", "bad_args",
         decisive=False, advice="Lower sglang_server_context_tokens to what the model was made for."),
    _row("memory_saver", "torchmemorysaver is disabled", r"TorchMemorySaver is disabled", "bad_args",
         advice="Remove --enable-memory-saver, or set sglang_server_allocator_conf to '': the two exclude each other.",
         source="torch_memory_saver"),
    _row("trust_remote_code", "trust_remote_code=true",
         r"(?:requires you to execute|contains custom code which must be executed)"
         r".*trust_remote_code=True|Please pass the argument `trust_remote_code=True`", "bad_args", decisive=False,
         advice="Set trust-remote-code in sglang_server_arguments when you trust the code of this model.",
         source="transformers"),
    _row("trust_remote_code", "requires you to execute",
         r"requires you to execute the (?:configuration|modeling) file", "bad_args", decisive=False,
         advice="Set trust-remote-code in sglang_server_arguments when you trust the code of this model.",
         source="transformers"),
    _row("divisible_tp", "divisible by",
         r"(?:must be|is not) divisible by (?:tp_size|tensor parallel|the number of|num_)|assert .{0,60}% ?tp_size"
         r"|divisible by tensor parallel size", "bad_args", decisive=False, advice=_TP),
    _row("divide_assert", "is not divisible by", r"AssertionError: \d+ is not divisible by \d+", "bad_args",
         decisive=False, advice=_TP),
    _row("exec_failed", "failed to execute",
         r"(?:Failed to (?:locate executable|execute)|Failed at step (?P<step>[A-Z_]+) spawning) ?(?P<path>[^:]*)",
         "bad_args", phase="process", fault="configuration",
         advice="Deploy again: systemd could not start the program of the unit ({path}).", source="systemd"),
    _row("exec_step", "failed at step", r"Failed at step (?P<step>[A-Z_]+) spawning (?P<path>[^:]*)", "bad_args",
         phase="process",
         advice="Deploy again: systemd could not start the program of the unit ({path}, step {step}).",
         source="systemd"),
    _row("no_module_sglang", "no module named 'sglang", r"No module named '?sglang(?:\.launch_server)?'?\s*$",
         "bad_args", phase="process",
         advice="Deploy the engine again (role sglang_engine): the interpreter of the unit is not one of a virtual environment that holds SGLang.",
         source="Python", decisive=False),
    _row("bind_address", "error while attempting to bind", r"\[[Ee]rrno (?:99|13)\][^\n]*attempting to bind",
         "bad_args",
         advice="Set host and port in sglang_server_arguments to an address of this host that the service user may use.",
         source="asyncio"),
    # -----------------------------------------------------------------------------------------------------------------
    # Ports
    _row("port_in_use", "address already in use",
         r"(?:attempting to bind on address \('[^']{0,80}', (?P<port>\d{1,6})\)[^\n]{0,60})?(?i:address already in use)",
         "port_in_use",
         advice="Free port {port} or set another one: the process that holds it would answer in place of this server.",
         source="asyncio, torch"),
    _row("port_in_use", "eaddrinuse", r"EADDRINUSE", "port_in_use", phase="init",
         advice="Free port {port} or set another one in sglang_server_arguments (--nccl-port, --dist-init-addr).",
         source="torch"),
    _row("dist_port_in_use", "port is already in use",
         r"[Pp]ort is already in use\. ?(?:dist_init_port=(?P<port>\d{1,6}))?", "port_in_use", phase="init",
         advice="Free port {port} or set another --dist-init-addr in sglang_server_arguments.", versions="0.5.6+"),
    _row("port_waiting", "is in use. waiting for", r"port (?P<port>\d{1,6}) is in use\. Waiting for", None,
         role=NOTICE, versions="0.4.9+"),
    # -----------------------------------------------------------------------------------------------------------------
    # CUDA programs
    _row("illegal_access", "illegal memory access",
         r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS", "cuda_illegal_access",
         fault="engine", anytime=True,
         advice="Go back to the version or configuration that served last, and look for Xid lines in the kernel's log; it can be a badly "
         "reported lack of memory.", source="CUDA"),
    _row("illegal_address", "illegal_address", r"CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress",
         "cuda_illegal_access", fault="engine", anytime=True,
         advice="Go back to the version or configuration that served last, and look for Xid lines in the kernel's log.",
         source="CUDA"),
    _row("device_assert", "cuda error",
         r"CUDA error: (?:device-side assert triggered|misaligned address|unspecified launch failure"
         r"|an illegal instruction was encountered|invalid program counter)", "cuda_illegal_access", fault="engine",
         anytime=True,
         advice="Go back to the version or configuration that served last, and look for Xid lines in the kernel's log.",
         source="CUDA"),
    _row("xid_program", "xid", r"NVRM: Xid \([^)]*\): (?P<xid>13|31|43|45)\b", "cuda_illegal_access", role=PEER,
         fault="engine", anytime=True,
         advice="Go back to the version or configuration that served last: a kernel of the engine broke.",
         source="NVIDIA Xid catalogue"),
    _row("no_kernel_image", "no kernel image", r"no kernel image is available", "gpu_arch_unsupported",
         advice="Install an engine that was built for this GPU (sglang_engine_version): its kernels do not hold this compute capability.",
         source="CUDA"),
    _row("sm75", "only supports sm75", r"SGLang only supports sm75 and above", "gpu_arch_unsupported",
         advice="Use a GPU of compute capability 7.5 or above."),
    _row("not_compatible", "is not compatible with the current pytorch",
         r"with CUDA capability (?P<capability>sm_\d+) is not compatible with the current", "gpu_arch_unsupported",
         decisive=False, advice="Install an engine whose torch knows this GPU (sglang_engine_version).",
         source="torch"),
    _row("minimum_capability", "minimum capability",
         r"is not supported for the current GPU\. Minimum capability: (?P<minimum>\d+)\. Current "
         r"capability: (?P<capability>\d+)", "gpu_arch_unsupported",
         advice="Use another quantisation or a newer GPU: this one lacks the format."),
    _row("needs_newer_gpu", "only supports",
         r"(?:FlashAttention|Flash Attention|FA3|FP8|fp8|Marlin|DeepGEMM)[^\n]{0,60}(?:only supports?|requires?|is only supported on)"
         r" [^\n]{0,40}(?:Ampere|Hopper|Blackwell|SM\d+|sm_?\d+|compute capability)", "gpu_arch_unsupported",
         decisive=False,
         advice="Choose another --attention-backend or quantisation in sglang_server_arguments: this GPU lacks what was chosen.",
         source="flash-attention, SGLang"),
    _row("unsupported_sm", "unsupported",
         r"(?i:unsupported (?:gpu )?(?:architecture|compute capability|sm version)|arch(?:itecture)? sm_?\d+ (?:is )?not supported)",
         "gpu_arch_unsupported", decisive=False,
         advice="Install an engine that was built for this GPU (sglang_engine_version).", source="CUDA, Triton"),
    # -----------------------------------------------------------------------------------------------------------------
    # No GPU, wrong driver
    _row("no_gpus", "no cuda gpus are available", r"No CUDA GPUs are available", "no_gpu", fault="host",
         advice="Check that the driver is loaded (nvidia-smi) and that CUDA_VISIBLE_DEVICES names boards of this host.",
         source="torch"),
    _row("no_driver", "found no nvidia driver", r"Found no NVIDIA driver", "no_gpu", fault="host",
         advice="Install the driver (role nvidia_driver).", source="torch"),
    _row("no_accelerator", "no accelerator", r"No accelerator|no supported (?:device|accelerator)", "no_gpu",
         fault="host", decisive=False, advice="Check that the driver is loaded (nvidia-smi)."),
    _row("no_cuda_device", "no cuda-capable device", r"no CUDA-capable device is detected", "no_gpu", fault="host",
         advice="Check that the driver is loaded (nvidia-smi).", source="CUDA"),
    _row("libcuda", "libcuda.so", r"libcuda\.so(?:\.1)?: cannot open shared object file", "no_gpu", fault="host",
         decisive=False, advice="Install the driver (role nvidia_driver).", source="loader"),
    _row("nvidia_smi", "nvidia-smi", r"nvidia-smi not found\. Ensure|nvidia-smi error|NVIDIA-SMI has failed",
         "no_gpu", fault="host", decisive=False,
         advice="Install the driver (role nvidia_driver) and keep nvidia-smi in the PATH of the unit."),
    _row("driver_mismatch", "driver/library version mismatch", r"Driver/library version mismatch", "no_gpu",
         fault="host",
         advice="Reboot the host: the loaded driver is older than its libraries; then hold the packages (role nvidia_driver).",
         source="NVML"),
    _row("driver_too_old", "driver on your system is too old",
         r"The NVIDIA driver on your system is too old(?: \(found version (?P<driver>\d+)\))?", "no_gpu",
         fault="host", decisive=False, advice=_DRIVER, source="torch"),
    _row("driver_insufficient", "driver version is insufficient", r"CUDA driver version is insufficient", "no_gpu",
         fault="host", advice=_DRIVER, source="CUDA"),
    _row("ptx", "unsupported toolchain", r"PTX was compiled with an unsupported toolchain", "no_gpu", fault="host",
         advice=_DRIVER, source="CUDA"),
    _row("fabric_manager", "system not yet initialized", r"[Ss]ystem not yet initialized|error 802", "no_gpu",
         fault="host", advice="Start nvidia-fabricmanager in exactly the driver's version (role nvidia_driver).",
         source="CUDA"),
    _row("forward_compatibility", "forward compatibility was attempted",
         r"forward compatibility was attempted on non supported", "no_gpu", fault="host",
         advice="Take the CUDA compat folder out of LD_LIBRARY_PATH.", source="CUDA"),
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
    _row("architecture", "are not supported for now",
         r"Model architectures? \[(?P<architecture>[^\]]{0,200})\] are not supported for now\.",
         "model_arch_unsupported",
         advice='Install an engine that knows {architecture} (sglang_engine_version); look for "Ignore import error" lines above when it should.'),
    _row("architecture", "has no sglang implementation", r"(?P<architecture>\w+) has no SGLang implementation",
         "model_arch_unsupported", advice="Install an engine that knows {architecture} (sglang_engine_version)."),
    _row("model_type", "does not recognize this architecture",
         r"(?:model type `?(?P<architecture>[\w.-]+)`? but Transformers )?does not recognize this architecture",
         "model_arch_unsupported",
         advice="Install an engine whose transformers knows {architecture} (sglang_engine_version).",
         source="transformers"),
    _row("unrecognized_model", "unrecognized model in", r"Unrecognized model in (?P<path>\S+)",
         "model_arch_unsupported", advice=_MODEL_PATH, source="transformers"),
    _row("unsupported_architecture", "unsupported architecture",
         r"[Uu]nsupported (?:model )?architectures?:? ?(?P<architecture>\w+(?:For\w+))", "model_arch_unsupported",
         advice="Install an engine that knows {architecture} (sglang_engine_version)."),
    _row("quant_mismatch", "does not match the quantization method",
         r"Quantization method specified in the model config \((?P<format>[\w.-]+)\) does not match",
         "quant_mismatch",
         advice="Remove quantization from sglang_server_arguments: the model's own ({format}) counts."),
    _row("quant_unknown", "quantization",
         r"(?:Unknown|Invalid|[Uu]nsupported) quantization (?:method|scheme)|[Qq]uantization scheme is not supported"
         r"|Cannot find (?:the config file for|any of) .{0,80}quantization|No compressed-tensors compatible scheme",
         "quant_mismatch",
         advice="Choose a quantisation that this engine and the model's files share (quantization in sglang_server_arguments)."),
    _row("quant_block", "divisible by weight quantization block",
         r"is not divisible by weight quantization block_[nk]", "quant_mismatch", advice=_TP),
    _row("quant_block", "input_size_per_partition", r"input_size_per_partition .{0,80}(?:not divisible|divisible by)",
         "quant_mismatch", advice=_TP),
    _row("weight_shape", "size of tensor", r"AssertionError: (?:Tried|Attempted) to load weight \(torch\.Size",
         "quant_mismatch", decisive=False,
         advice="Check that model, quantisation and engine version belong together: a weight has another shape than the engine expects."),
    _row("weight_shape", "to load weight", r"(?:Tried|Attempted) to load weight \(torch\.Size", "quant_mismatch",
         decisive=False,
         advice="Check that model, quantisation and engine version belong together: a weight has another shape than the engine expects."),
    _row("tokenizer", "tokenizer",
         r"Can't load tokenizer|Tokenizer class \S+ does not exist|Couldn't instantiate the backend tokenizer"
         r"|[Ff]ailed to load the tokenizer|Unable to load (?:vocabulary|tokenizer)|Converting from (?:Tiktoken|SentencePiece) failed",
         "tokenizer",
         advice="Check the tokenizer files of the model (tokenizer.json, tokenizer_config.json), or set tokenizer-path in sglang_server_arguments.",
         source="transformers"),
    _row("tokenizer_variant", "untagged enum", r"data did not match any variant of untagged enum", "tokenizer",
         advice="The engine's tokenizers package is too old for this tokenizer.json; use a newer engine (sglang_engine_version).",
         source="tokenizers"),
    _row("tokenizer_module", "sentencepiece",
         r"requires the (?:SentencePiece|tiktoken|protobuf) library|install (?:sentencepiece|tiktoken|protobuf)",
         "tokenizer", decisive=False, advice=_VENV, source="transformers"),
    _row("tokenizer_module", "tiktoken", r"`?tiktoken`? is required to read|requires the tiktoken library",
         "tokenizer", decisive=False, advice=_VENV, source="transformers"),
    _row("repository_not_found", "repositorynotfounderror", r"RepositoryNotFoundError", "hf_not_found",
         decisive=False,
         advice="Check the model's name; a private model looks missing without a token that may read it.",
         source="huggingface_hub"),
    _row("repository_not_found", "repository not found for url", r"Repository Not Found for url: (?P<repo>\S+)",
         "hf_not_found", decisive=False,
         advice="Check the model's name; a private model looks missing without a token that may read it.",
         source="huggingface_hub"),
    _row("gated", "gatedrepoerror", r"GatedRepoError(?:: (?P<status>40[13]) Client Error)?", "hf_auth",
         decisive=False, advice=_TOKEN, source="huggingface_hub"),
    _row("http_401", "client error", r"\b(?P<status>401) Client Error", "hf_auth", decisive=False, advice=_TOKEN,
         source="huggingface_hub"),
    _row("http_403", "client error", r"\b(?P<status>403) Client Error", "hf_auth", decisive=False,
         advice="Have access to the model ({repo}) granted to the account of the token: it is logged in, and not on the list.",
         source="huggingface_hub"),
    _row("restricted", "is restricted", r"Access to model (?P<repo>\S+) is restricted", "hf_auth", decisive=False,
         advice=_TOKEN, source="huggingface_hub"),
    _row("gated", "gated repo", r"(?:trying to access a gated repo|Cannot access gated repo)", "hf_auth",
         decisive=False, advice=_TOKEN, source="transformers"),
    _row("bad_token", "invalid user token", r"Invalid user token|Invalid credentials in Authorization header",
         "hf_auth", decisive=False, advice=_TOKEN, source="huggingface_hub"),
    _row("http_404", "client error", r"\b(?P<status>404) Client Error", "hf_not_found", decisive=False,
         advice="Check the model's name and revision.", source="huggingface_hub"),
    _row("entry_not_found", "notfounderror", r"(?:Remote|Local)?EntryNotFoundError|RevisionNotFoundError",
         "hf_not_found", decisive=False, advice=_MODEL_PATH, source="huggingface_hub"),
    _row("offline", "offline mode is enabled", r"offline mode is enabled", "hf_not_found", decisive=False,
         advice=_MODEL_PATH, source="huggingface_hub"),
    _row("hub_unreachable", "couldn't connect to", r"We couldn't connect to '(?P<url>[^']{0,200})'", "hf_not_found",
         decisive=False, transient=True,
         advice="Load the model beforehand (role sglang_model): the hub could not be reached from this host.",
         source="transformers"),
    _row("hub_unreachable", "max retries exceeded with url",
         r"HTTPS?ConnectionPool\(host='(?P<host>[^']{0,200})'[^\n]*Max retries exceeded", "hf_not_found",
         decisive=False, transient=True,
         advice="Load the model beforehand (role sglang_model): the hub could not be reached from this host.",
         source="requests"),
    _row("not_a_folder", "is not a local folder", r"is not a local folder and is not a valid model identifier",
         "hf_not_found", decisive=False, advice=_MODEL_PATH, source="transformers"),
    _row("no_file_named", "does not appear to have",
         r"does not appear to have (?:a file named|files named) (?P<file>\S+)", "hf_not_found", decisive=False,
         advice=_MODEL_PATH, source="transformers"),
    _row("no_config", "no such file or directory",
         r"No such file or directory: '?(?P<file>[^']{0,300}(?:config\.json|\.safetensors|\.bin|\.gguf|index\.json))",
         "hf_not_found", decisive=False, advice=_MODEL_PATH, source="Python"),
    _row("repo_id", "repo id must", r"Repo id must (?:be in the form|use alphanumeric)", "hf_not_found",
         decisive=False, advice=_MODEL_PATH, source="huggingface_hub"),
    _row("no_weights", "cannot find any model weights",
         r"Cannot find any (?:of the )?model weights|No (?:safetensors|weight) files? found", "hf_not_found",
         advice=_MODEL_PATH),
    _row("broken_weights", "safetensor",
         r"SafetensorError: .{0,80}(?:HeaderTooLarge|InvalidHeader|MetadataIncompleteBuffer|header too (?:large|small)"
         r"|incomplete metadata)|Error while deserializing header", "hf_not_found",
         advice="Load the model again (role sglang_model): a weight file is cut off or is only a pointer.",
         source="safetensors"),
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
    _row("numactl", "numactl",
         r"numactl: (?:.{0,80}(?:not found|invalid|out of range|Operation not permitted|command not found))|No such file or directory: 'numactl'",
         "numa_bind", advice="Install numactl, or turn NUMA binding off in sglang_server_arguments.",
         source="numactl"),
    _row("libnuma", "libnuma", r"libnuma: Error|libnuma\.so[.\d]*: cannot open shared object", "numa_bind",
         advice="Install libnuma1, or turn NUMA binding off in sglang_server_arguments.", source="libnuma"),
    _row("numa_migrate", "numa",
         r"(?:sched_setaffinity|numa_bind|numa_set_membind|numa_migrate_pages|NUMA (?:bind|affinity))[^\n]{0,60}"
         r"(?:Invalid argument|Operation not permitted|failed)", "numa_bind", decisive=False,
         advice="Turn NUMA binding off in sglang_server_arguments, or widen the CPUs and memory nodes of the unit.",
         source="libnuma"),
    # -----------------------------------------------------------------------------------------------------------------
    # Toolchain and virtual environment
    _row("nvcc", "nvcc",
         r"Could not find nvcc|No such file or directory: '(?:[^']{0,200}/)?(?P<tool>nvcc)'|(?P<missing>nvcc)(?:: command)? not found",
         "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="FlashInfer, torch"),
    _row("cuda_home", "cuda_home",
         r"CUDA_HOME environment variable is not set|Could not find CUDA installation|CUDA_HOME does not exist"
         r"|cuda_home=\S+ doesn't exist", "toolchain_missing", decisive=False, advice=_TOOLCHAIN,
         source="torch, DeepGEMM"),
    _row("ninja", "ninja",
         r"Ninja is required to load C\+\+ extensions|No such file or directory: '(?P<tool>ninja)'|Ninja build failed"
         r"|Command '\['ninja'", "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="torch"),
    _row("jit_build", "failed to build jit module", r"Failed to build JIT module", "toolchain_missing",
         advice=_TOOLCHAIN, versions="0.5.18+"),
    _row("jit_build", "error building extension", r"Error building extension", "toolchain_missing", decisive=False,
         advice=_TOOLCHAIN, source="torch"),
    _row("header", "fatal error: ",
         r"fatal error: '?(?P<tool>[\w./-]+\.(?:h|hpp|cuh))'?(?:: No such file| file not found)", "toolchain_missing",
         decisive=False, advice=_TOOLCHAIN, source="gcc, nvcc"),
    _row("c_compiler", "compiler",
         r"Failed to find C compiler|No such file or directory: '(?:[^']{0,200}/)?(?P<tool>gcc|g\+\+|c\+\+|cc|clang)'"
         r"|[Nn]o working C compiler", "toolchain_missing", decisive=False, advice=_TOOLCHAIN, source="Triton"),
    _row("c_compiler", "no such file or directory: '",
         r"No such file or directory: '(?:[^']{0,200}/)?(?P<tool>gcc|g\+\+|c\+\+|cc|clang|ptxas|cuobjdump)'",
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
    _row("sgl_kernel", "sgl_kernel", r"ImportError:[^\n]{0,200}(?:sgl_kernel|common_ops)", "toolchain_missing",
         decisive=False, advice=_VENV),
    _row("kernel_version", "less than the minimum required",
         r"is installed with version \S+,? which is less than the minimum required", "toolchain_missing",
         decisive=False, advice=_VENV),
    _row("module_missing", "no module named", r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
         "toolchain_missing", decisive=False,
         advice="Install the engine again (role sglang_engine): its virtual environment lacks the module {module}.",
         source="Python"),
    _row("import_error", "cannot import name", r"ImportError: cannot import name '(?P<module>\w+)'",
         "toolchain_missing", decisive=False, advice=_VENV, source="Python"),
    # -----------------------------------------------------------------------------------------------------------------
    # Collectives. Less preferred than a named cause: one dead rank gives every other rank one of these.
    _row("collective_timeout", "collective operation timeout", r"Watchdog caught collective operation timeout",
         "comm_timeout", role=COLLECTIVE, transient=True, anytime=True,
         advice="Look at the other ranks first: one of them did not take part; then " + _NETWORK[0].lower()
         + _NETWORK[1:], source="torch"),
    _row("ranks_not_loaded", "finish the model loading",
         r"TP rank (?P<rank>\d{1,5}) could finish the model loading, but there are other ranks", "comm_timeout",
         role=COLLECTIVE, phase="weights", transient=True,
         advice="Look at the ranks that did not finish: they ran out of memory or read from a slow disk.",
         versions="0.4.6+"),
    _row("barrier_timeout", "monitoredbarrier",
         r"monitoredBarrier|[Tt]imed out (?:after|waiting) [^\n]{0,40}(?:barrier|ranks)", "comm_timeout",
         role=COLLECTIVE, transient=True, advice="Look at the other ranks first: one of them did not take part.",
         source="torch"),
    _row("barrier_timeout", "timed out",
         r"(?:barrier|Gloo|gloo|allreduce|broadcast|[Rr]ecv)[^\n]{0,80}(?:[Tt]imed out|timeout)|Timed out waiting \d+ms for",
         "comm_timeout", role=COLLECTIVE, transient=True,
         advice="Look at the other ranks first: one of them did not take part.", source="gloo"),
    _row("nccl_error", "nccl",
         r"NCCL error|nccl(?:Internal|System|UnhandledCuda|Remote|InvalidUsage|InvalidArgument)Error|DistBackendError"
         r"|NCCL WARN .{0,80}(?:failed|error)", "comm_init", role=COLLECTIVE, transient=True, advice=_NETWORK,
         source="NCCL"),
    _row("custom_all_reduce", "custom_all_reduce", r"custom_all_reduce\.cuh:\d+ '?(?P<error>[\w ]+)'?", "comm_init",
         role=CAUSE,
         advice="Set sglang_server_allocator_conf to '' or disable-custom-all-reduce in sglang_server_arguments: expandable segments break it.",
         source="vLLM, SGLang before June 2026"),
    _row("memory_registration", "register",
         r"register memory failed|ibv_reg_mr[^\n]*(?:Cannot allocate|failed)|MR registration failed", "comm_init",
         role=CAUSE, advice="Set LimitMEMLOCK=infinity in the unit, and sglang_server_allocator_conf to ''.",
         source="Mooncake, verbs"),
    _row("p2p", "peer access", r"peer access is not supported between", "comm_init", role=CAUSE,
         advice="Remove enable-p2p-check or set NCCL_P2P_DISABLE=1 in sglang_server_environment.", source="CUDA"),
    _row("dist_network", "distnetworkerror", r"DistNetworkError", "comm_init", role=COLLECTIVE, phase="init",
         transient=True, advice="Check --dist-init-addr, the firewall between the nodes and that node 0 is up.",
         source="torch"),
    _row("client_socket", "client socket has", r"client socket has (?:timed out|failed to connect)", "comm_init",
         role=COLLECTIVE, phase="init", transient=True,
         advice="Check --dist-init-addr, the firewall between the nodes and that node 0 is up.", source="torch"),
    _row("tcp_store", "tcpstore",
         r"DistStoreError|TCPStore[^\n]{0,120}(?:timeout|timed out|failed|[Bb]roken pipe)|failed to recv, got 0 bytes",
         "comm_init", role=COLLECTIVE, transient=True,
         advice="Check --dist-init-addr, the firewall between the nodes and that node 0 is up.", source="torch"),
    _row("gloo_connect", "gloo",
         r"Gloo connectFullMesh failed|gloo[^\n]{0,200}(?:no address|unable to find (?:address|interface)|Unable to resolve hostname)"
         r"|Unable to find (?:address|interface) for", "comm_init", role=CAUSE, phase="init",
         advice="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME in sglang_server_environment to the interface between the nodes.",
         source="gloo"),
    _row("peer_closed", "by peer", r"Connection (?:closed|reset) by (?:remote )?peer", "scheduler_died", role=PEER,
         anytime=True, transient=True,
         advice="Look at the other ranks: one of them ended without a word; when memory is shared with the host, suspect host memory and lower "
         "sglang_server_chunked_prefill_size.", source="gloo"),
    _row("peer_refused", "connection refused", r"Connection refused", "comm_init", role=PEER, decisive=False,
         transient=True, advice="Check --dist-init-addr and that all nodes are up.", source="torch"),
    _row("broken_pipe", "heartbeat monitor", r"heartbeat monitor|Broken pipe[^\n]{0,80}(?:TCPStore|NCCL)",
         "comm_timeout", role=PEER, transient=True, anytime=True, decisive=False,
         advice="Look at the other ranks: one of them ended without a word.", source="torch"),
    # -----------------------------------------------------------------------------------------------------------------
    # Hangs
    _row("watchdog", "watchdog timeout", r"[Ww]atchdog timeout \((?!.*self\.soft=True)", "watchdog_hang",
         anytime=True, transient=True,
         advice="Raise --watchdog-timeout in sglang_server_arguments when kernels were being compiled; otherwise look at the collectives."),
    _row("systemd_timeout", "timed out",
         r"(?:start operation timed out|Failed with result 'timeout'|State 'stop-sigterm' timed out)", "timeout",
         role=PEER, advice="Raise TimeoutStartSec of the unit: SGLang loads for minutes.", source="systemd"),
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
    _row("capture_failed", "graph failed", r"Capture (?:[\w ]{0,40} )?(?:cuda|CUDA|cpu|npu) graph failed", None,
         role=WRAPPER, phase="graphs"),
    _row("prefill_runner", "for prefill runner", r"Fail when using backend: .* for prefill runner", None,
         role=WRAPPER, phase="graphs", versions="0.5.14+"),
    _row("warmup_error", "warmup error", r"Initialization failed\. warmup error", None, role=WRAPPER, phase="warmup"),
    _row("init_attention", "init_attention_backends", r"hit an exception in init_attention_backends", None,
         role=WRAPPER, phase="pool"),
    # -----------------------------------------------------------------------------------------------------------------
    # Consequences: somebody died; the cause stands elsewhere
    _row("exception", "hit an exception",
         r"(?P<who>Scheduler|DataParallelController|DetokenizerManager|TokenizerManager|TpModelWorkerClient|\w+) hit an exception",
         "scheduler_died", role=CONSEQUENCE),
    _row("sigquit", "sigquit",
         r"Received sigquit from a child process|SIGQUIT received\. signum=|Triggering SIGQUIT for cleanup",
         "scheduler_died", role=CONSEQUENCE, versions="0.4.6+"),
    _row("rank_died", "scheduler died during initialization",
         r"Rank (?P<rank>\d{1,5}) scheduler died during initialization \(exit code: (?P<exit_code>-?\d{1,5})\)",
         "scheduler_died", role=CONSEQUENCE, versions="0.5.10+"),
    _row("rank_dead", "scheduler is dead", r"Rank (?P<rank>\d{1,5}) scheduler is dead", "scheduler_died",
         role=CONSEQUENCE, versions="0.4.6-0.5.9"),
    _row("exit_code", "exit code: ", r"^Exit code: (?P<exit_code>-?\d{1,5})", "scheduler_died", role=CONSEQUENCE,
         versions="0.4.6-0.5.9"),
    _row("child_failed", "child process unexpectedly failed",
         r"Child process unexpectedly failed with(?:.*?exit ?code[=: ]+(?P<exit_code>-?\d{1,5}))?", "scheduler_died",
         role=CONSEQUENCE, versions="0.4.6-0.4.9"),
    _row("subprocess_crashed", "crashed with exit code",
         r"Subprocess (?P<who>\S+) \(pid=\d{1,10}\) crashed with exit code (?P<exit_code>-?\d{1,5})",
         "scheduler_died", role=CONSEQUENCE, versions="0.5.10+"),
    _row("terminated_with", "terminated with",
         r"Scheduler or DataParallelController \d{1,10} terminated with (?P<exit_code>-?\d{1,5})", "scheduler_died",
         role=CONSEQUENCE),
    _row("init_failed", "initialization failed", r"Initialization failed\. Please see the error messages above",
         "scheduler_died", role=CONSEQUENCE),
    _row("kill_tree", "kill_process_tree called", r"kill_process_tree called", None, role=CONSEQUENCE),
    _row("main_exited", "main process exited", r"Main process exited, code=(?P<code>\w+), status=(?P<status>\d{1,5})",
         None, role=CONSEQUENCE, source="systemd"),
    _row("failed_with", "failed with result", r"Failed with result '(?P<result>[\w-]+)'", None, role=CONSEQUENCE,
         source="systemd"),
    # -----------------------------------------------------------------------------------------------------------------
    # Notices: they end nothing
    _row("pool_full", "kv cache pool is full", r"KV cache pool is full\. Retract requests", None, role=NOTICE,
         advice="Once a minute is fine; more often means that the pool is small for the load."),
    _row("pool_full", "decode out of memory happened", r"Decode out of memory happened", None, role=NOTICE,
         versions="0.4.0-0.4.6",
         advice="Once a minute is fine; more often means that the pool is small for the load."),
    _row("health_failed", "health check failed", r"Health check failed\. Server couldn't get a response", None,
         role=NOTICE, advice="A busy server misses health checks; raise SGLANG_HEALTH_CHECK_TIMEOUT."),
    _row("cap_ineffective", "is larger than the profiled value",
         r"max_total_tokens=(?P<cap>\d{1,15}) is larger than the profiled value (?P<tokens>\d{1,15})", None,
         role=NOTICE, advice="The cap is above what the fraction gives, so it does nothing."),
    _row("pool_under_context", "fewer than --context-length",
         r"KV pool holds (?P<tokens>\d{1,15}) tokens, fewer than --context-length (?P<context>\d{1,15})", None,
         role=NOTICE, advice="One request of full length does not fit into the pool.", versions="0.5.23"),
    _row("requests_reduced", "max_running_requests",
         r"max_running_requests (?:was reduced from the requested|is capped to)", None, role=NOTICE,
         advice="The memory for states allows fewer requests at once than asked for."),
)

# Generic exceptions by the file in which they were raised, when no row knows their text.
FRAMES = (
    (
        "bad_args",
        re.compile(
            r"server_args\.py\"?, line \d+, in (?:__post_init__|check_server_args|_handle_\w+|from_cli_args|_parse|add_cli_args|validate)"
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
)
