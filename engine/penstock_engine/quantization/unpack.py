"""Unpacks 4-bit and 8-bit integers from 32-bit words."""

from collections.abc import Sequence

import torch

from penstock_engine.core.errors import ModelError


def unpack(
    words: torch.Tensor, bits: int, *, dim: int, length: int, places: Sequence[int] = ()
) -> torch.Tensor:
    """Unpack integers from int32 words, each of which holds 32 / bits consecutive elements of dim.

    length: numbers in dim; the last word may be filled only in part. places: position of each number
    in a word, from its lowest bits; default: 0, 1, 2, ... Returns int16 of 0 to 2**bits - 1. Raises
    ModelError if the number of words does not match.
    """
    per_word = 32 // bits
    num_words = -(-length // per_word)
    if words.dtype != torch.int32 or words.dim() != 2 or words.shape[dim] != num_words:
        raise ModelError(
            "BadWeights",
            f"{length} numbers of {bits} bits need {num_words} words of int32, but the checkpoint "
            f"has {words.dtype} {list(words.shape)} for them",
        )
    shifts = [bits * place for place in places or range(per_word)]
    numbers = [words.bitwise_right_shift(shift).bitwise_and_(2**bits - 1) for shift in shifts]
    unpacked = torch.stack([n.to(torch.int16) for n in numbers], dim + 1).flatten(dim, dim + 1)
    return unpacked.narrow(dim, 0, length)
