# mypy: allow-incomplete-defs
"""8-bit quantization of keys and values, with one float32 scale for each token and KV head.

The scale maps the largest magnitude of a head's vector to the largest number of the dtype, so the
error of a value is at most half a step of the dtype: 1/254 of the largest value in int8, 1/16 of the
value itself in float8 (e4m3, the finite variant).
"""

import torch

from penstock_engine.kernels.runtime import IS_INTERPRETED, jit, tl

MAX_VALUE = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
SMALLEST_SCALE = 1e-30  # avoids division by zero for a vector of zeros


def quantize_kv(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize vectors. Returns (values, scales): dtype [..., head_dim] and float32 [...].

    x: [..., head_dim], finite. dtype: int8 or float8_e4m3fn. Rounds half to even.
    """
    x = x.float()
    scales = (x.abs().amax(-1) * (1 / MAX_VALUE[dtype])).clamp_min(SMALLEST_SCALE)
    steps = x / scales[..., None]
    return (steps.round() if dtype == torch.int8 else steps).to(dtype), scales


def loadable_view(pool: torch.Tensor) -> torch.Tensor:
    """View float8 as uint8 if the device has no float8 (before sm_89); return other dtypes unchanged."""
    if pool.dtype == torch.float8_e4m3fn and not has_float8(pool.device):
        return pool.view(torch.uint8)
    return pool


def has_float8(device: torch.device) -> bool:
    """Whether kernels convert from float8 directly. Triton's interpreter can, but very slowly."""
    return not IS_INTERPRETED and torch.cuda.get_device_capability(device) >= (8, 9)


@jit
def to_float(stored, dtype: tl.constexpr):
    """Convert elements of a loadable_view to a floating-point dtype; uint8 are the bits of e4m3."""
    if stored.dtype == tl.uint8:
        # Move exponent and mantissa to their places in a float16, whose exponent bias is larger by 8.
        bits = stored.to(tl.uint16)
        bits = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        return (bits.to(tl.float16, bitcast=True) * 256.0).to(dtype)
    else:
        return stored.to(tl.float32).to(dtype)


@jit
def encode_int8(x):
    """Round float32 to int8, half to even: above 2**23 a float32 has no fraction bits."""
    return ((x + 12582912.0) - 12582912.0).to(tl.int8)


@jit
def encode_e4m3(x):
    """Round float32, at most 448 in magnitude, to e4m3, half to even; returns its bits as uint8."""
    bits = x.to(tl.uint32, bitcast=True)
    sign = (bits >> 24) & 0x80
    magnitude = bits & 0x7FFFFFFF
    # Normal: exponent rebiased from 127 to 7, mantissa rounded from 23 bits to 3.
    normal = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1) - (120 << 23)) >> 20
    # Subnormal, below 2**-6: a multiple of 2**-9, which is the last bit of a float32 near 2**14.
    small = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.uint32, bitcast=True)
    small = small - 0x46800000
    return (tl.where(magnitude < 0x3C800000, small, normal) | sign).to(tl.uint8)
