"""Rotary position embedding: inverse frequencies by rope type, and a table of cos and sin.

The formulas are those of transformers, so that greedy outputs agree token for token.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

# cos and sin of each token of a batch.
CosSin = tuple[torch.Tensor, torch.Tensor]


class Rotary(nn.Module):
    """Table of cos and sin for every position below max_positions, [positions, 1, rotary_dim]."""

    def __init__(
        self,
        rope_type: str,
        parameters: Mapping[str, Any],
        *,
        rotary_dim: int,
        theta: float,
        max_positions: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        super().__init__()
        frequencies, scale = inverse_frequencies(
            rope_type, parameters, rotary_dim, theta, max_positions
        )
        positions = torch.arange(max_positions, dtype=torch.float32, device="cpu")
        angles = positions[:, None] * frequencies
        cos, sin = angles.cos() * scale, angles.sin() * scale
        self._cos = torch.cat((cos, cos), -1)[:, None].to(device=device, dtype=dtype)
        self._sin = torch.cat((-sin, sin), -1)[:, None].to(device=device, dtype=dtype)

    def forward(self, positions: torch.Tensor) -> CosSin:
        """cos and sin of tokens for torch_ops.rotate. positions: int64 [tokens]."""
        return self._cos[positions], self._sin[positions]


def inverse_frequencies(
    rope_type: str,
    parameters: Mapping[str, Any],
    rotary_dim: int,
    theta: float,
    max_positions: int,
) -> tuple[torch.Tensor, float]:
    """Inverse frequencies, float32 [rotary_dim / 2], and a factor for cos and sin.

    Raises ValueError if rope_type is not supported.
    """
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device="cpu") / rotary_dim
    frequencies = 1.0 / theta**exponents
    match rope_type:
        case "default" | "dynamic":
            return frequencies, 1.0
        case "linear":
            return frequencies / parameters["factor"], 1.0
        case "llama3":
            return _llama3(frequencies, parameters), 1.0
        case "yarn":
            return _yarn(frequencies, parameters, rotary_dim, theta)
        case "longrope":
            return _longrope(frequencies, parameters, max_positions)
        case _:
            raise ValueError(f"rope type {rope_type!r} is not supported")


def _llama3(frequencies: torch.Tensor, parameters: Mapping[str, Any]) -> torch.Tensor:
    """Llama 3: stretch long wavelengths by factor, keep short ones, interpolate between them."""
    factor = parameters["factor"]
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    original = parameters["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / frequencies
    stretched = torch.where(wavelengths > original / low, frequencies / factor, frequencies)
    smooth = (original / wavelengths - low) / (high - low)
    smoothed = (1 - smooth) * stretched / factor + smooth * stretched
    is_between = (wavelengths >= original / high) & (wavelengths <= original / low)
    return torch.where(is_between, smoothed, stretched)


def _yarn(
    frequencies: torch.Tensor, parameters: Mapping[str, Any], rotary_dim: int, theta: float
) -> tuple[torch.Tensor, float]:
    """YaRN: interpolate slow rotations, keep fast ones, and ramp between the two."""
    factor = parameters["factor"]
    original = parameters["original_max_position_embeddings"]

    def dimension_of(num_rotations: float) -> float:
        return (
            rotary_dim * math.log(original / (num_rotations * 2 * math.pi)) / (2 * math.log(theta))
        )

    low = dimension_of(parameters.get("beta_fast") or 32)
    high = dimension_of(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    if low == high:
        high += 0.001  # a ramp of no width would divide by zero
    dimensions = torch.arange(rotary_dim // 2, dtype=torch.float32, device="cpu")
    keep = 1 - ((dimensions - low) / (high - low)).clamp(0, 1)
    scaled = frequencies / factor * (1 - keep) + frequencies * keep
    return scaled, _yarn_attention_factor(factor, parameters)


def _yarn_attention_factor(factor: float, parameters: Mapping[str, Any]) -> float:
    given = parameters.get("attention_factor")
    if given is not None:
        return float(given)

    def mscale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    numerator, denominator = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if numerator and denominator:
        return mscale(numerator) / mscale(denominator)
    return mscale(1.0)


def _longrope(
    frequencies: torch.Tensor, parameters: Mapping[str, Any], max_positions: int
) -> tuple[torch.Tensor, float]:
    """LongRoPE: each frequency has its own divisor, one for short and one for long texts.

    A key in the cache is rotated once and may be shared, so max_positions decides for all sequences.
    transformers decides by the length of each text, and recomputes all its keys when the text
    outgrows the short divisors.
    """
    original, factor = parameters["original_max_position_embeddings"], parameters["factor"]
    divisors = parameters["long_factor" if max_positions > original else "short_factor"]
    given = parameters.get("attention_factor")
    if given is not None:
        scale = float(given)
    else:
        scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return frequencies / torch.tensor(divisors, dtype=torch.float32, device="cpu"), scale
