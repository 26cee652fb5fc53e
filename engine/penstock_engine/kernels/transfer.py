"""Asynchronous copies between host and device.

Work submitted to the device after `send` reads the sent data, which is fastest from `host_buffer`.
Fetched data may be read once a CompletionEvent that was recorded after `fetch` has occurred. On the CPU
nothing is copied.
"""

import logging
import math
import weakref
from collections.abc import Sequence

import numpy as np
import torch

logger = logging.getLogger(__name__)

# Alignment of host memory, as torch's own: a cache line, and the widest vector register.
ALIGNMENT_BYTES = 64


def host_buffer(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    """Uninitialized host tensor to fill and `send`, page-locked for a CUDA device.

    torch reuses the memory of a dropped tensor once the copies from it have finished. So a step gets a
    buffer of its own while the copies of earlier steps are still pending.
    """
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=torch.device(device).type == "cuda")


def send(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy a host tensor to the device without waiting.

    A tensor that is not a host_buffer is first copied to page-locked memory, and may be overwritten as
    soon as this returns. On the CPU the argument itself is returned.
    """
    if torch.device(device).type == "cpu":
        return tensor
    # torch copies a tensor that is not contiguous through pageable memory, and waits for it.
    return tensor.contiguous().pin_memory().to(device, non_blocking=True)


def fetch(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a device tensor to host memory without waiting. Read it after a CompletionEvent."""
    if tensor.device.type == "cpu":
        return tensor
    fetched = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return fetched.copy_(tensor, non_blocking=True)


def host_zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of zeros in host memory; a page becomes resident when it is first written.

    torch.zeros writes every page at once, whatever its size; numpy.zeros leaves that to the kernel.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = torch.from_numpy(np.zeros(num_bytes + ALIGNMENT_BYTES, dtype=np.uint8))
    start = -memory.data_ptr() % ALIGNMENT_BYTES
    return memory[start : start + num_bytes].view(dtype).view(*shape)


def page_locked(num_bytes: int, device: torch.device) -> torch.Tensor:
    """Page-locked host memory of uint8 zeros, for asynchronous copies from and to a CUDA device.

    On the CPU it is host_zeros. torch's own allocator of such memory rounds up to a power of two, to
    twice as much at worst.
    """
    tensor = host_zeros((num_bytes,), torch.uint8)
    if device.type == "cuda" and num_bytes:
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        address = tensor.data_ptr()
        error = cudart.cudaHostRegister(address, num_bytes, 0)
        if int(error) == 0:
            storage = tensor.untyped_storage()  # lives as long as any view of it
            weakref.finalize(storage, cudart.cudaHostUnregister, address).atexit = False
        else:
            logger.warning("host memory could not be page-locked (CUDA error %s)", int(error))
    return tensor


class CompletionEvent:
    """Event that occurs when the device has done all work submitted before the event was created."""

    def __init__(self, device: torch.device | str) -> None:
        self._event: torch.cuda.Event | None = None
        if torch.device(device).type == "cuda":
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def wait(self) -> None:
        """Block the host until the event occurs. Returns at once on the CPU."""
        if self._event is not None:
            self._event.synchronize()
