"""Makes the tensors of kernel checks: random ones on a device, or empty ones to compile for."""

from collections.abc import Sequence

import torch

# How rows lie in memory: alone; or within wider rows, whose other elements are NaN, from an element at
# which vectors of 16 bytes begin, or from an odd one. Triton compiles a variant for each.
DENSE, ALIGNED, ODD = "dense", "aligned", "odd"
PADDINGS = (DENSE, ALIGNED, ODD)
MARGIN = {DENSE: (0, 0), ALIGNED: (64, 64), ODD: (3, 10)}  # elements before and after a row


class Inputs:
    """Makes the tensors of one case.

    is_empty: on the CPU, without values; only shapes, types and alignment are those of the real ones.
    """

    def __init__(self, device: str, seed: int, *, is_empty: bool = False) -> None:
        self.device = "cpu" if is_empty else device
        self.is_empty = is_empty
        self._generator = torch.Generator(self.device).manual_seed(seed)
        self._padded: list[tuple[torch.Tensor, int, int]] = []

    def normal(
        self, *shape: int, dtype: torch.dtype = torch.float32, std: float = 1.0,
        padding: str = DENSE,
    ) -> torch.Tensor:  # fmt: skip
        """Normally distributed numbers. padding: how the rows, [shape[0], the product of the others], lie."""
        view = self._rows(shape, dtype, padding)
        if not self.is_empty:
            view.copy_(torch.randn(shape, generator=self._generator, device=self.device) * std)
        return view

    def uniform(
        self, *shape: int, dtype: torch.dtype = torch.float32, below: float = 1.0
    ) -> torch.Tensor:
        """Numbers from 0 to `below`, contiguous."""
        numbers = torch.empty(shape, device=self.device)
        if not self.is_empty:
            numbers.uniform_(0, below, generator=self._generator)
        return numbers.to(dtype)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Integers from low to high - 1, contiguous."""
        numbers = torch.empty(shape, dtype=dtype, device=self.device)
        return numbers if self.is_empty else numbers.random_(low, high, generator=self._generator)

    def constant(
        self, values: Sequence[float] | Sequence[bool], dtype: torch.dtype
    ) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def zeros(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        make = torch.empty if self.is_empty else torch.zeros
        return make(shape, dtype=dtype, device=self.device)

    def spilled(self) -> bool:
        """Whether anything was written beside the padded rows."""
        for wide, before, width in self._padded:
            beside = (wide[:, :before], wide[:, before + width :])
            if not all(bool(part.isnan().all()) for part in beside):
                return True
        return False

    def _rows(self, shape: tuple[int, ...], dtype: torch.dtype, padding: str) -> torch.Tensor:
        before, after = MARGIN[padding]
        if not before:
            return torch.empty(shape, dtype=dtype, device=self.device)
        width = torch.Size(shape[1:]).numel()
        wide = torch.empty(shape[0], before + width + after, dtype=dtype, device=self.device)
        if not self.is_empty:
            wide.fill_(torch.nan)
            self._padded.append((wide, before, width))
        return wide[:, before : before + width].view(shape)
