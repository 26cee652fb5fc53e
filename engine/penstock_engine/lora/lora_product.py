"""LoRA products of the adapters on the device, in torch and with Triton kernels.

y[rows] += B (A x[rows])      for the rows of each adapter in the step
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.kernels.group_rows import Groups, group_rows
from penstock_engine.kernels.grouped_linear import choose_block_rows, grouped_linear
from penstock_engine.kernels.transfer import send
from penstock_engine.lora.checkpoint import Factors

Rows = slice | torch.Tensor


@dataclass(frozen=True, slots=True)
class Section:
    """Projection of the checkpoint: columns [first, last) of a packed projection's output."""

    name: str
    first: int
    last: int


class TorchRowSelection:
    """Row selection in torch: the rows of each adapter, as a slice or an index tensor."""

    def __init__(self, device: str) -> None:
        self.parts: list[tuple[int, Rows]] = []
        self._device = device

    def select(self, sequences: Sequence[ScheduledSequence], slots: Mapping[str, int]) -> None:
        """Set the rows of the current step.

        sequences: in the order of their rows. slots: the device slot of each adapter they name.
        """
        rows: dict[int, list[range]] = {}
        end = 0
        for sequence in sequences:
            first, end = end, end + sequence.num_tokens
            if sequence.adapter:
                rows.setdefault(slots[sequence.adapter], []).append(range(first, end))
        self.parts = [(slot, _as_index(ranges, self._device)) for slot, ranges in rows.items()]

    def product(self, sections: Sequence[Section]) -> "TorchLoraProduct":
        """Create the LoRA product of one linear layer, without adapters yet."""
        return TorchLoraProduct(sections, self)


class TorchLoraProduct:
    """LoRA product in torch, one adapter after another."""

    def __init__(self, sections: Sequence[Section], selection: TorchRowSelection) -> None:
        self._sections = sections
        self._selection = selection
        self._pairs: dict[int, list[tuple[Section, Factors]]] = {}

    def put(self, slot: int, factors: Mapping[str, Factors]) -> None:
        """Store an adapter in a slot. factors: by the names of sections; other names are ignored."""
        self._pairs[slot] = [(s, factors[s.name]) for s in self._sections if s.name in factors]

    def clear(self, slot: int) -> None:
        self._pairs.pop(slot, None)

    def add(self, y: torch.Tensor, x: torch.Tensor) -> None:
        """Add the products of the current step's adapters to y in place.

        x: [tokens, inputs]. y: [tokens, outputs].
        """
        for slot, rows in self._selection.parts:
            for section, factors in self._pairs[slot]:
                y[rows, section.first : section.last] += (x[rows] @ factors.a.T) @ factors.b.T


class KernelRowSelection:
    """Row selection for Triton kernels: the tokens are grouped by adapter, once per step.

    groups: None if no sequence has an adapter.
    """

    def __init__(self, device: str, num_slots: int, max_rank: int) -> None:
        """num_slots, max_rank: maximum number of adapters on the device, and their maximum rank."""
        self.groups: Groups | None = None
        self.num_slots = num_slots
        self.max_rank = max_rank
        self._device = device

    def select(self, sequences: Sequence[ScheduledSequence], slots: Mapping[str, int]) -> None:
        self.groups = None
        if any(sequence.adapter for sequence in sequences):
            own = [slots.get(sequence.adapter, -1) for sequence in sequences]
            tokens = np.repeat(np.array(own, np.int32), [s.num_tokens for s in sequences])
            own_slots = send(torch.from_numpy(tokens), self._device)
            block_rows = choose_block_rows(len(tokens), self.num_slots)
            self.groups = group_rows(own_slots, self.num_slots, block_rows)

    def product(self, sections: Sequence[Section]) -> "KernelLoraProduct":
        return KernelLoraProduct(sections, self)


class KernelLoraProduct:
    """LoRA product with Triton kernels, of all adapters at once.

    The sections have the same input, so their A factors are stacked into one product. Shapes: A
    [slots, sections * rank, inputs]; B of each section [slots, outputs, rank]. rank is the maximum rank,
    to which factors are padded with zeros: for each rank the kernels would have to be compiled again.
    """

    def __init__(self, sections: Sequence[Section], selection: KernelRowSelection) -> None:
        self._sections = sections
        self._selection = selection
        self._rank = selection.max_rank
        # Allocated with the first adapter that changes this layer
        self._a: torch.Tensor | None = None
        self._b: list[torch.Tensor] = []
        self._slots: set[int] = set()  # of adapters that change this layer

    def put(self, slot: int, factors: Mapping[str, Factors]) -> None:
        mine = [(i, factors[s.name]) for i, s in enumerate(self._sections) if s.name in factors]
        self.clear(slot)
        for index, pair in mine:
            a = self._a
            if a is None:
                a = self._a = self._allocate(pair.a)
            rank, first = len(pair.a), index * self._rank
            a[slot, first : first + rank] = pair.a
            self._b[index][slot, :, :rank] = pair.b
            self._slots.add(slot)

    def clear(self, slot: int) -> None:
        if self._a is not None and slot in self._slots:
            for stack in (self._a, *self._b):
                stack[slot] = 0
        self._slots.discard(slot)

    def add(self, y: torch.Tensor, x: torch.Tensor) -> None:
        groups = self._selection.groups
        if groups is None or self._a is None or not self._slots:
            return
        shrunk = grouped_linear(x, self._a, groups, out_dtype=torch.float32)
        for index, (section, b) in enumerate(zip(self._sections, self._b, strict=True)):
            part = shrunk[:, index * self._rank : (index + 1) * self._rank]
            grouped_linear(part, b, groups, out=y[:, section.first : section.last])

    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        """Allocate the factors of all slots. Returns those of A. like: A of an adapter."""
        num_slots = self._selection.num_slots
        self._b = [like.new_zeros(num_slots, s.last - s.first, self._rank) for s in self._sections]
        return like.new_zeros(num_slots, len(self._sections) * self._rank, like.shape[1])


# Rows of the current step by adapter, which all linear layers of a model share.
RowSelection = TorchRowSelection | KernelRowSelection
# LoRA factors of one linear layer, for all adapters on the device.
LoraProduct = TorchLoraProduct | KernelLoraProduct


def _as_index(ranges: list[range], device: str) -> Rows:
    """A slice if the ranges are contiguous, which costs no copy, otherwise an index tensor."""
    if all(one.stop == other.start for one, other in pairwise(ranges)):
        return slice(ranges[0].start, ranges[-1].stop)
    return torch.tensor([row for one in ranges for row in one], device=device)
