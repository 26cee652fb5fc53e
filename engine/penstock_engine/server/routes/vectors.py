"""Scales embeddings and encodes them in base64."""

import base64
from collections.abc import Sequence
from typing import Literal

import torch

EmbedDtype = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness = Literal["native", "big", "little"]

# Number format, and an integer type of the same size, whose bytes numpy can reorder.
DTYPES: dict[EmbedDtype, tuple[torch.dtype, torch.dtype]] = {
    "float32": (torch.float32, torch.int32),
    "float16": (torch.float16, torch.int16),
    "bfloat16": (torch.bfloat16, torch.int16),
    "fp8_e4m3": (torch.float8_e4m3fn, torch.uint8),
    "fp8_e5m2": (torch.float8_e5m2, torch.uint8),
}


def normalized(vector: Sequence[float]) -> tuple[float, ...]:
    """Returns the vector scaled to length 1, in float32."""
    scaled = torch.nn.functional.normalize(torch.tensor(vector, dtype=torch.float32), dim=-1)
    return tuple(scaled.tolist())


def as_base64(vector: Sequence[float], dtype: EmbedDtype, endianness: Endianness) -> str:
    """Encodes the numbers' bytes in base64, in a number format and byte order."""
    stored, same_size = DTYPES[dtype]
    bits = torch.tensor(vector, dtype=torch.float32).to(stored).view(same_size).numpy()
    ordered = bits.astype(bits.dtype.newbyteorder(endianness))
    return base64.b64encode(ordered.tobytes()).decode()
