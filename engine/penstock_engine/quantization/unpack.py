"""Small numbers out of 32-bit words."""

from collections.abc import Sequence

import torch


def unpack(words: torch.Tensor, bits: int, *, dim: int, places: Sequence[int] = ()) -> torch.Tensor:
    """words: int32, of which each holds 32 / bits numbers that stand one after another in dim.

    places: where in a word each of them is, counted from its lowest bits; default: 0, 1, 2, ...
    Returns int16 of 0 to 2**bits - 1.
    """
    shifts = [bits * place for place in places or range(32 // bits)]
    numbers = [words.bitwise_right_shift(shift).bitwise_and_(2**bits - 1) for shift in shifts]
    return torch.stack([n.to(torch.int16) for n in numbers], dim + 1).flatten(dim, dim + 1)
