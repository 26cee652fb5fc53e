"""Device, dtype, CPU threads and memory of the machine, and estimates of the memory that is needed.

torch is imported only to query CUDA devices, so that a preflight runs without it.
"""

import ctypes
import gc
import math
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from penstock_engine.core.errors import ModelError
from penstock_engine.machine import cgroup

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "float8_e4m3fn": 1}

# KV cache dtypes by vLLM's names. fp8 is e4m3, the float8 with hardware support.
KV_DTYPES = {"int8": "int8", "fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn"}
# The float32 scale of each token and head in a quantized KV cache.
KV_SCALE_BYTES = 4

# Logits that are sampled at once, by device: 8 and 64 MiB of float32. Bounds the sampler's memory.
LOGITS_AT_ONCE = {"cpu": 1 << 21, "cuda": 1 << 24}
# Bytes of one reported log-probability, by device: value and token id in the step's buffer and in the
# result of top-k. On a CPU also the Python objects that they become.
REPORTED_LOGPROB_BYTES = {"cpu": 24 + 136, "cuda": 24}

# Peak memory of the sampler for each logit that is sampled at once, by benchmarks/engine/sampling_cost.py.
SAMPLING_BYTES_PER_LOGIT = 44

# Bytes of keys and values of decoding sequences that a CPU gathers at once, unless a single one has more.
GATHERED_AT_ONCE_BYTES = 32 * 2**20
# Entries of the attention mask of the chunk rows that are computed at once; each takes a bool and a
# float32.
MASK_NUMBERS = 1 << 21

# CPU flags of native bfloat16 products. A CPU with none of them is faster in float32.
NATIVE_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})

# Upper bounds on the KV cache in memory that other programs use too, unless the user sets a size.
MAX_SHARED_KV_BYTES = 4 * 2**30
SHARED_KV_FRACTION = 0.25  # of memory_limit_bytes


def choose_device(name: str) -> str:
    """Resolve `auto` to cuda if there is a CUDA device, otherwise to cpu.

    Raises ModelError if name is cuda and there is no CUDA device.
    """
    if name == "cpu":
        return name
    import torch

    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ModelError("NoDevice", "device cuda was asked for, but this machine has none")
    return "cuda" if has_cuda else "cpu"


def choose_dtype(name: str, device: str) -> str:
    """Resolve `auto` to bfloat16 if the hardware supports it, otherwise to float32 (cuda: float16)."""
    if name != "auto":
        return name
    if device == "cpu":
        return "bfloat16" if cpu_flags() & NATIVE_BF16_FLAGS else "float32"
    import torch

    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction-set flags of the first core, in the kernel's spelling; empty if unknown."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def release_memory(device: str) -> None:
    """Return memory that this process has freed to the operating system and the device."""
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()
    elif sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def num_threads(env: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Number of whole cores that this process may use, at least 1.

    It is the smallest of the pod's CPU limit, the quotas of its cgroups and its CPU affinity.
    """
    limits: list[float] = [len(os.sched_getaffinity(0)), *cgroup.cpu_quotas(root)]
    if pod_limit := env.get("PENSTOCK_CPU_LIMIT"):
        limits.append(float(pod_limit))
    return max(1, math.floor(min(limits)))


def memory_limit_bytes(env: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Memory limit in bytes: the smallest of the pod's limit, the cgroups' limits and physical memory."""
    pod_limit = env.get("PENSTOCK_MEMORY_LIMIT_BYTES")
    pod_limits = [int(pod_limit)] if pod_limit else []
    return min(
        *pod_limits, *cgroup.memory_limits_bytes(root), _physical_memory_bytes(root), sys.maxsize
    )


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """Resident memory of this process, in bytes."""
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class GpuReading(NamedTuple):
    """State of one GPU. utilization: 0 to 1; None without NVML."""

    used_bytes: int
    total_bytes: int
    utilization: float | None


def gpu_readings(num_gpus: int) -> list[GpuReading]:
    """Reads the first GPUs; without NVML (the package nvidia-ml-py) only the first one.

    Memory of a further GPU would take a CUDA context on it in this process, which is memory itself.
    """
    if not num_gpus:
        return []
    import torch

    has_nvml = find_spec("pynvml") is not None
    found = []
    for index in range(num_gpus if has_nvml else 1):
        if has_nvml:
            total_bytes = torch.cuda.get_device_properties(index).total_memory
            used_bytes = torch.cuda.device_memory_used(index)
            utilization = torch.cuda.utilization(index) / 100
            found.append(GpuReading(used_bytes, total_bytes, utilization))
        else:
            free_bytes, total_bytes = torch.cuda.mem_get_info(index)
            found.append(GpuReading(total_bytes - free_bytes, total_bytes, None))
    return found


def activation_bytes(*, num_tokens: int, hidden_size: int, intermediate_size: int) -> int:
    """Upper estimate of one forward pass's memory, without weights, KV cache and attention.

    Assumes twelve hidden-sized and four MLP-sized float32 tensors at a time.
    """
    return 4 * num_tokens * (12 * hidden_size + 4 * intermediate_size)


def gathered_bytes(*, max_num_seqs: int, num_visible_tokens: int, token_bytes: int) -> int:
    """Upper estimate of attention's memory on a CPU, where it gathers keys and values.

    num_visible_tokens: maximum that one token attends to. token_bytes: keys and values of one token
    in one layer, in the model's number type.
    """
    longest_bytes = num_visible_tokens * token_bytes
    gathered = max(longest_bytes, min(GATHERED_AT_ONCE_BYTES, 2 * max_num_seqs * longest_bytes))
    return gathered + MASK_NUMBERS * (1 + 4)


def sampling_bytes(
    *,
    max_num_seqs: int,
    rows_per_sequence: int,
    vocab_size: int,
    item_bytes: int,
    device: str,
    max_logprobs: int = 0,
    max_num_batched_tokens: int = 0,
) -> int:
    """Upper estimate of the sampler's memory in one step, with any sampling parameters.

    Counts the model's logits of all rows, of item_bytes each; float32 copies and sort orders of those
    that are sampled at once; one byte per sequence and token of the vocabulary for state that is
    kept between steps; and the reported log-probabilities, max_logprobs of each row and of each
    prompt token of a step.
    """
    num_rows = max_num_seqs * rows_per_sequence
    at_once = min(num_rows, rows_at_once(vocab_size, device))
    kept_bytes = max_num_seqs * vocab_size
    reported_bytes = (
        (num_rows + max_num_batched_tokens) * max_logprobs * REPORTED_LOGPROB_BYTES[device]
    )
    logit_bytes = vocab_size * (num_rows * item_bytes + at_once * SAMPLING_BYTES_PER_LOGIT)
    return logit_bytes + kept_bytes + reported_bytes


def rows_at_once(vocab_size: int, device: str) -> int:
    """Rows of logits that are sampled at once. More take more memory, but fewer kernel launches."""
    return max(1, LOGITS_AT_ONCE[device] // vocab_size)


class DeviceMemory(NamedTuple):
    """Memory of the CPU's processes or of one GPU, in bytes. used_bytes: by other programs."""

    total_bytes: int
    used_bytes: int = 0

    def usable_bytes(self, utilization: float) -> int:
        """Memory for weights, working memory and KV cache. utilization: fraction of all memory."""
        return int(self.total_bytes * utilization) - self.used_bytes


def device_memory(device: str, *, utilization: float, num_devices: int = 1) -> DeviceMemory:
    """Memory of the CPU, or on cuda that of the GPU with the least usable memory of num_devices.

    Raises ModelError if there are fewer than num_devices devices.
    """
    if device == "cpu":
        return DeviceMemory(memory_limit_bytes())
    import torch

    if num_devices > torch.cuda.device_count():
        raise ModelError(
            "NoDevice",
            f"{num_devices} devices are needed, but there are {torch.cuda.device_count()}",
        )
    memories = [torch.cuda.mem_get_info(index) for index in range(num_devices)]
    found = [DeviceMemory(total, total - free) for free, total in memories]
    return min(found, key=lambda memory: memory.usable_bytes(utilization))


def shared_kv_bytes(memory_limit_bytes: int) -> int:
    """Maximum size of the KV cache in memory that is shared with other programs."""
    return min(MAX_SHARED_KV_BYTES, int(memory_limit_bytes * SHARED_KV_FRACTION))


def num_kv_blocks(
    *, kv_bytes: int, kv_bytes_per_token: int, block_size: int, max_model_len: int
) -> int:
    """Number of blocks that fit in kv_bytes. Raises ModelError if a sequence of max_model_len does not."""
    num_blocks = max(0, kv_bytes) // (kv_bytes_per_token * block_size)
    if num_blocks * block_size < max_model_len:
        needed_mib = -(-kv_bytes_per_token * max_model_len // 2**20)
        raise ModelError(
            "KVCacheTooSmall",
            f"the KV cache has room for {num_blocks * block_size} tokens, but one sequence may "
            f"have {max_model_len}: give it {needed_mib} MiB or lower the maximum model length",
        )
    return num_blocks


def _physical_memory_bytes(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not say how much memory there is")
