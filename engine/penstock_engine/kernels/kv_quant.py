# mypy: allow-incomplete-defs
"""Keys and values in eight bits, with one float32 scale for each token and KV head.

The scale maps the largest magnitude of a head's vector to the largest number of the type, so each
value is off by at most half a step of the type: 1/254 of the largest in int8, 1/16 of itself in
float8 (e4m3, the finite variant).
"""

import torch

from penstock_engine.kernels.runtime import IS_INTERPRETED, jit, tl

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
SMALLEST_SCALE = 1e-30  # of a vector of zeros, which stays one


def quantize_kv(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x: [..., head_dim] -> dtype (int8 or float8_e4m3fn) of the same shape, float32 [...].

    Rounds half to even. x must be finite.
    """
    x = x.float()
    scales = (x.abs().amax(-1) * (1 / LARGEST[dtype])).clamp_min(SMALLEST_SCALE)
    steps = x / scales[..., None]
    return (steps.round() if dtype == torch.int8 else steps).to(dtype), scales


def dequantize_kv(
    values: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """values: int8 or float8_e4m3fn [..., head_dim]; scales: float32 [...]."""
    return (values.float() * scales[..., None]).to(dtype)


def as_loadable(pool: torch.Tensor) -> torch.Tensor:
    """float8 as bytes where the device has no such type (before sm_89), anything else as it is."""
    if pool.dtype == torch.float8_e4m3fn and not has_float8(pool.device):
        return pool.view(torch.uint8)
    return pool


def has_float8(device: torch.device) -> bool:
    """Whether kernels may convert from float8. The interpreter would, but at a snail's pace."""
    return not IS_INTERPRETED and torch.cuda.get_device_capability(device) >= (8, 9)


@jit
def decode(stored, dtype: tl.constexpr):
    """What was loaded as_loadable, in a floating-point type; bytes are the bits of e4m3 numbers."""
    if stored.dtype == tl.uint8:
        # Exponent and mantissa at their places in a float16, whose exponent is biased by 8 more.
        bits = stored.to(tl.uint16)
        bits = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        return (bits.to(tl.float16, bitcast=True) * 256.0).to(dtype)
    else:
        return stored.to(tl.float32).to(dtype)


@jit
def encode_int8(x):
    """Rounds half to even: beyond 2**23, adding leaves float32 no fraction."""
    return ((x + 12582912.0) - 12582912.0).to(tl.int8)


@jit
def encode_e4m3(x):
    """The bits of float32 x, at most 448 in magnitude, rounded half to even, as uint8."""
    bits = x.to(tl.uint32, bitcast=True)
    sign = (bits >> 24) & 0x80
    magnitude = bits & 0x7FFFFFFF
    # Normal: exponent rebiased from 127 to 7, mantissa rounded from 23 bits to 3.
    normal = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1) - (120 << 23)) >> 20
    # Below 2**-6: a multiple of 2**-9, which is the last bit of a float32 near 2**14.
    small = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.uint32, bitcast=True)
    small = small - 0x46800000
    return (tl.where(magnitude < 0x3C800000, small, normal) | sign).to(tl.uint8)
