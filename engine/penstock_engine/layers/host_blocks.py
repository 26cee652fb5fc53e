"""Host memory for blocks of the paged KV cache."""

from collections.abc import Sequence

import torch

from penstock_engine.kernels.transfer import page_locked

# Alignment of each part of a block, so that it can be viewed as any dtype.
ALIGNMENT_BYTES = 16


class HostBlocks:
    """A page-locked host buffer of slots; each holds the keys and values of one block in all layers.

    All copies are between contiguous memory, so that a device makes them asynchronously.
    """

    def __init__(self, parts: Sequence[torch.Tensor], num_slots: int) -> None:
        """parts: tensors of the caches of all layers, [vectors, blocks, ...] each, on one device."""
        self._parts = parts
        widths = [part[:, 0].nbytes for part in parts]
        padded = [-(-width // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for width in widths]
        slots = page_locked(num_slots * sum(padded), parts[0].device).view(num_slots, -1)
        starts = [sum(padded[:index]) for index in range(len(padded))]
        self._slots = [
            slots[:, start : start + width].view(part.dtype).view(num_slots, *part[:, 0].shape)
            for part, start, width in zip(parts, starts, widths, strict=True)
        ]

    def save(self, block: int, slot: int) -> None:
        """Copy a block of the device to a slot."""
        for part, slots in zip(self._parts, self._slots, strict=True):
            for index in range(len(part)):
                slots[slot, index].copy_(part[index, block], non_blocking=True)

    def restore(self, slot: int, block: int) -> None:
        """Copy a slot to a block of the device."""
        for part, slots in zip(self._parts, self._slots, strict=True):
            for index in range(len(part)):
                part[index, block].copy_(slots[slot, index], non_blocking=True)
