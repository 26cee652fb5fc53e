"""Device, dtype, CPU threads and memory of the machine.

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

# CPU flags of native bfloat16 products. A CPU with none of them is faster in float32.
NATIVE_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


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
    """State of one GPU. utilization: 0 to 1; None where NVML cannot be read."""

    used_bytes: int
    total_bytes: int
    utilization: float | None


def gpu_readings(num_gpus: int) -> list[GpuReading]:
    """Reads the first GPUs; only the memory of the first one where NVML cannot be read.

    NVML takes the package nvidia-ml-py and the driver's library, and does not read MIG devices. Without it,
    memory of a further GPU would take a CUDA context on it in this process, which is memory itself.
    """
    if not num_gpus:
        return []
    import torch

    try:
        return [_nvml_reading(index) for index in range(num_gpus)]
    except _nvml_errors():
        free_bytes, total_bytes = torch.cuda.mem_get_info(0)
        return [GpuReading(total_bytes - free_bytes, total_bytes, None)]


def _nvml_reading(index: int) -> GpuReading:
    import torch

    total_bytes = torch.cuda.get_device_properties(index).total_memory
    utilization = torch.cuda.utilization(index) / 100
    return GpuReading(torch.cuda.device_memory_used(index), total_bytes, utilization)


def _nvml_errors() -> tuple[type[Exception], ...]:
    """Errors of torch's reads of NVML. torch raises the first two where it finds no package or device."""
    if find_spec("pynvml") is None:
        return (ModuleNotFoundError, RuntimeError)
    from pynvml import NVMLError

    return (ModuleNotFoundError, RuntimeError, NVMLError)


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


def _physical_memory_bytes(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise OSError("the kernel does not say how much memory there is")
