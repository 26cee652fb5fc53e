"""Reads the metadata and tensor headers of a GGUF file. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock_engine.core.errors import ModelError

# Exceptions that the reader raises for truncated or damaged files.
READ_ERRORS = (ValueError, LookupError, OverflowError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """The header of one tensor.

    type_name: such as F32 or Q4_1. shape: after dequantization, rows first. stored_shape,
    stored_dtype: of the array in the file, of bytes or numbers, rows first. offset: of its first byte
    in the file.
    """

    type_name: str
    shape: tuple[int, ...]
    stored_shape: tuple[int, ...]
    stored_dtype: str
    offset: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata and tensor headers of a GGUF file. metadata: by key. tensors: by their GGUF names."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def value(self, key: str) -> Any:
        """The value of an architecture-specific key, such as block_count; None if it is missing."""
        return self.metadata.get(f"{self.architecture}.{key}")


def find_gguf(model: Path) -> Path | None:
    """Find the GGUF file of a model: `model` itself, or the only one in the directory `model`.

    Returns None for a directory with safetensors files or without GGUF files, and if there is no
    directory. Raises ModelError for another kind of file, and for a directory with several GGUF files.
    """
    if model.is_file():
        if model.suffix != ".gguf":
            raise ModelError("ModelNotFound", f"{model.name} is neither a folder nor a .gguf file")
        return model
    found = sorted(model.glob("*.gguf"))
    if not found or any(model.glob("*.safetensors")):
        return None
    if len(found) > 1:
        raise ModelError(
            "NotAModel",
            f"the folder holds {len(found)} GGUF files ({', '.join(p.name for p in found)}): name "
            f"one of them, or leave one in the folder",
        )
    return found[0]


def read_gguf(path: Path) -> GgufFile:
    """Read the headers of a GGUF file. Raises ModelError, and OSError if it cannot be read.

    The result is cached while the file's size and modification time do not change.
    """
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _read(path: Path, _mtime_ns: int, _num_bytes: int) -> GgufFile:
    from penstock_engine.checkpoints.gguf import reader

    try:
        file, unknown = _parse(path)
    except reader.HeaderTooLargeError as error:
        raise ModelError(
            "BadWeights",
            f"the header of {path.name} needs more than {reader.MAX_HEADER_MEMORY_BYTES >> 20} MiB of memory "
            "to be read: it is damaged",
        ) from error
    except READ_ERRORS as error:
        raise ModelError("BadWeights", f"{path.name} is not a complete GGUF file") from error
    if unknown:
        raise ModelError(
            "UnsupportedQuantization",
            f"{path.name} has tensors of type {', '.join(unknown)}, which cannot be dequantized",
        )
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise ModelError(
            "BadWeights",
            f"{path.name} is one of {file.metadata['split.count']} parts: merge them into one file",
        )
    return file


def _parse(path: Path) -> tuple[GgufFile, list[str]]:
    """The headers of a file, and the types of its tensors that cannot be dequantized. Raises READ_ERRORS."""
    from penstock_engine.checkpoints.gguf.reader import CheckedReader, can_dequantize

    reader = CheckedReader(path)
    metadata = {name: reader.contents_of(field) for name, field in reader.fields.items()}
    tensors = {
        tensor.name: GgufTensor(
            tensor.tensor_type.name,
            tuple(reversed(tensor.shape.tolist())),
            tensor.data.shape,
            tensor.data.dtype.str,
            int(tensor.data_offset),
        )
        for tensor in reader.tensors
    }
    types = {tensor.tensor_type for tensor in reader.tensors}
    unknown = sorted(kind.name for kind in types if not can_dequantize(kind))
    return GgufFile(path, metadata, tensors), unknown
