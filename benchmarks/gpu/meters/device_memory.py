"""Memory of the device that this process uses; nothing of it is measured on the CPU."""

import torch
from benchmarks.gpu.context import Context


def total_bytes(context: Context) -> int:
    """The device's memory: by the step `machine`, or if that failed, by the driver. 0 on the CPU."""
    if "memory_bytes" in context.machine:
        return int(context.machine["memory_bytes"])
    return torch.cuda.get_device_properties(0).total_memory if context.device == "cuda" else 0


class MemoryMeter:
    """Bytes of the device's memory, by torch's allocator and by the driver."""

    def __init__(self, device: str) -> None:
        self._is_cuda = device == "cuda"
        self._last_bytes = self.used()

    def used(self) -> int:
        """Bytes in use by all programs, without what torch keeps for later."""
        if not self._is_cuda:
            return 0
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return total_bytes - free_bytes

    def added(self) -> int:
        """Bytes by which `used` has grown since the last call."""
        before_bytes, self._last_bytes = self._last_bytes, self.used()
        return self._last_bytes - before_bytes

    def allocated(self) -> int:
        """Bytes of tensors."""
        return torch.cuda.memory_allocated() if self._is_cuda else 0

    def start_peak(self) -> None:
        """Forget the peak."""
        if self._is_cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        """The most bytes of tensors since start_peak."""
        return torch.cuda.max_memory_allocated() if self._is_cuda else 0
