"""Reads the tensors of a small safetensors file, after its header was checked."""

import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch

from penstock_engine.checkpoints.weights import ITEM_BYTES
from penstock_engine.core.errors import ModelError
from penstock_engine.files.json_reader import parse_json
from penstock_engine.lora.adapter_files import WEIGHTS_NAME, read_bytes

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
}  # fmt: skip
PREFIX_BYTES = 8  # with the size of the header
METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Position and type of a tensor in the file. dtype: as in the header, such as BF16."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int


def read_header(file: BinaryIO, max_header_bytes: int) -> dict[str, StoredTensor]:
    """Read where each tensor is. Raises ModelError (WeightsDamaged, WeightsTruncated, WeightsTooLarge)."""
    num_file_bytes = os.fstat(file.fileno()).st_size
    prefix = read_bytes(file, WEIGHTS_NAME, 0, PREFIX_BYTES)
    num_header_bytes = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES:
        raise ModelError("WeightsTruncated", f"{WEIGHTS_NAME} has only {num_file_bytes} bytes")
    if num_header_bytes > max_header_bytes:
        raise _damaged()
    content = read_bytes(file, WEIGHTS_NAME, PREFIX_BYTES, num_header_bytes)
    if len(content) < num_header_bytes:
        raise ModelError("WeightsTruncated", f"{WEIGHTS_NAME} ends within its header")
    try:
        entries = parse_json(content)
        tensors = {
            name: _tensor(entry, PREFIX_BYTES + num_header_bytes)
            for name, entry in entries.items()
            if name != METADATA
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged() from error
    _check_layout(tensors, PREFIX_BYTES + num_header_bytes, num_file_bytes)
    return tensors


def read_tensor(file: BinaryIO, tensor: StoredTensor) -> torch.Tensor:
    """Read a tensor of a floating-point type. Raises ModelError (WeightsTruncated)."""
    content = bytearray(read_bytes(file, WEIGHTS_NAME, tensor.start, tensor.num_bytes))
    if len(content) < tensor.num_bytes:
        raise ModelError("WeightsTruncated", f"{WEIGHTS_NAME} was cut short while it was read")
    return torch.frombuffer(content, dtype=DTYPES[tensor.dtype]).reshape(tensor.shape)


def _tensor(entry: Any, data_start: int) -> StoredTensor:
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    start, stop = entry["data_offsets"]
    numbers = (*shape, start, stop)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise ValueError("a size is not a whole number from 0")
    # Types that this engine does not know are refused later, with the tensor's name.
    if dtype in ITEM_BYTES and stop - start != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError("a tensor is not as long as its shape says")
    return StoredTensor(str(dtype), shape, data_start + start, stop - start)


def _check_layout(tensors: dict[str, StoredTensor], data_start: int, num_file_bytes: int) -> None:
    """Raise ModelError unless the tensors follow each other without gaps to the end of the file."""
    end = data_start
    for tensor in sorted(tensors.values(), key=lambda each: (each.start, each.num_bytes)):
        if tensor.start != end:
            raise _damaged()
        end += tensor.num_bytes
    if num_file_bytes < end:
        raise ModelError("WeightsTruncated", f"{WEIGHTS_NAME} has {num_file_bytes} of {end} bytes")
    if num_file_bytes > end:
        raise ModelError(
            "WeightsTooLarge",
            f"{WEIGHTS_NAME} has {num_file_bytes} bytes, but its tensors need only {end}",
        )


def _damaged() -> ModelError:
    return ModelError("WeightsDamaged", f"{WEIGHTS_NAME} is not a safetensors file")
