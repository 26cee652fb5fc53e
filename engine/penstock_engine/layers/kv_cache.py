"""Paged KV cache of one layer."""

from dataclasses import dataclass

import torch

from penstock_engine.kernels.transfer import host_zeros
from penstock_engine.quantization.float8 import FLOAT16_FACTOR, float8_to_float16

# Numbers that are dequantized at once, so that intermediate results stay in the CPU's cache.
DECODE_NUMBERS = 1 << 18


@dataclass(frozen=True, slots=True)
class KVCache:
    """Vectors of one layer's tokens, in blocks: keys at index 0 and values at index 1.

    numbers: [vectors, blocks, block_size, heads, head_dim], of the model's dtype, int8 or
    float8_e4m3fn. scales: float32 [vectors, blocks, block_size, heads], which multiply int8 and float8
    numbers; None for the model's dtype.
    """

    numbers: torch.Tensor
    scales: torch.Tensor | None

    @classmethod
    def zeros(
        cls, shape: tuple[int, ...], dtype: torch.dtype, *, is_scaled: bool, device: str
    ) -> "KVCache":
        """Create a cache of zeros, because padding reads blocks that are never written. shape: of numbers.

        On the CPU, blocks become resident memory when they are first written.
        """

        def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            if torch.device(device).type == "cpu":
                return host_zeros(shape, dtype)
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(zeros(shape, dtype), zeros(shape[:-1], torch.float32) if is_scaled else None)

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """All tensors of the cache; the second dimension of each is blocks."""
        return (self.numbers,) if self.scales is None else (self.numbers, self.scales)

    def gather(self, blocks: torch.Tensor, gathered: torch.Tensor) -> None:
        """Copy blocks into `gathered`, dequantized.

        blocks: int64 [n]. gathered: [vectors, n, block_size, heads, head_dim] of the model's dtype.
        """
        for index, (pool, target) in enumerate(zip(self.numbers, gathered, strict=True)):
            if self.scales is None:
                torch.index_select(pool.flatten(1), 0, blocks, out=target.view(len(blocks), -1))
                continue
            num_blocks = max(1, DECODE_NUMBERS // pool[0].numel())
            pieces = (torch.split(of, num_blocks) for of in (blocks, target))
            for piece, values in zip(*pieces, strict=True):
                codes = pool.view(torch.int8).index_select(0, piece)
                scales = self.scales[index].index_select(0, piece)
                if pool.dtype == torch.float8_e4m3fn:
                    numbers = (
                        float8_to_float16(codes).float().mul_((scales * FLOAT16_FACTOR)[..., None])
                    )
                else:
                    numbers = codes.float().mul_(scales[..., None])
                values.copy_(numbers.view(values.shape))
