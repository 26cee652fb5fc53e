"""Reads the tensors of a GGUF file as a checkpoint, and dequantizes them one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock_engine.checkpoints.gguf.file import GgufTensor, read_gguf
from penstock_engine.checkpoints.gguf.names import tensors_by_name
from penstock_engine.core.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import torch


class GgufCheckpoint:
    """A GGUF file's tensors by their names in safetensors checkpoints. Keeps no file open.

    Each tensor has its own memory mapping. Floating-point tensors remain views of it; for quantized
    ones it is released after dequantization.
    """

    def __init__(self, path: Path) -> None:
        """path: of a GGUF file. Raises ModelError."""
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
            return tensor - 1  # llama.cpp stores the weight, the model its difference from 1
        return tensor

    def _read(self, own: str, stored: GgufTensor) -> np.ndarray:
        import numpy as np
        from gguf import GGMLQuantizationType, dequantize

        # Mapped copy-on-write, because torch warns about arrays that are not writable.
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
    """Undo llama.cpp's reordering of Llama's query and key rows. rows: [heads * head_dim, inputs].

    llama.cpp's rotary embedding pairs consecutive rows. In the returned order, that of checkpoints,
    it pairs a row of the first half of a head with one of the second half.
    """
    import numpy as np

    pairs = rows.reshape(num_heads, len(rows) // num_heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
