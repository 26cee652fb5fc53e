"""Reads the tensors of a GGUF file as a checkpoint and dequantises them one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock_engine.core.errors import ModelError
from penstock_engine.gguf_file.file import GgufTensor, read_gguf
from penstock_engine.gguf_file.names import tensors_by_name

if TYPE_CHECKING:
    import numpy as np
    import torch


class GgufCheckpoint:
    """A GGUF file's tensors by the names of safetensors checkpoints. Keeps no file open.

    Each tensor is mapped by itself. Floating-point ones remain views of their mapping; of others,
    the mapping ends when they are dequantised.
    """

    def __init__(self, path: Path) -> None:
        """Raises ModelError."""
        self._file = read_gguf(path)
        self._tensors = tensors_by_name(self._file)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def get(self, name: str) -> torch.Tensor:
        """The tensor in float32, or in the file's floating-point type. Raises ModelError."""
        import torch

        if name not in self._tensors:
            raise ModelError("BadWeights", f"the checkpoint has no tensor {name}")
        own, stored = self._tensors[name]
        tensor = torch.from_numpy(self._read(own, stored))
        if self._file.architecture.startswith("gemma") and "norm" in own:
            return tensor - 1  # llama.cpp stores the factor, the model its difference from 1
        return tensor

    def _read(self, own: str, stored: GgufTensor) -> np.ndarray:
        import numpy as np
        from gguf import GGMLQuantizationType, dequantize

        # Copy on write: torch warns of arrays that cannot be written.
        mapped = np.memmap(
            self._file.path, stored.stored_dtype, "c", stored.offset, stored.stored_shape
        )
        numbers: np.ndarray = np.asarray(mapped)
        if stored.type_name not in ("F64", "F32", "F16"):
            numbers = dequantize(numbers, GGMLQuantizationType[stored.type_name])
        if self._file.architecture == "llama" and own.endswith(("attn_q.weight", "attn_k.weight")):
            heads = self._file.value("attention.head_count")
            if "attn_k" in own:
                heads = self._file.value("attention.head_count_kv") or heads
            numbers = halves_of_heads(numbers, heads)
        return numbers


def halves_of_heads(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Undoes llama.cpp's reordering of Llama's query and key rows. rows: [heads * head_dim, inputs].

    llama.cpp rotates neighbouring rows together. In the returned order of checkpoints, the first half
    of a head is rotated with its second half.
    """
    import numpy as np

    pairs = rows.reshape(num_heads, len(rows) // num_heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
