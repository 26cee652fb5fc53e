"""Safetensors checkpoints: one file or many with an index, mapped into memory, never unpickled.

torch is imported only when tensors are read, so that a preflight can look at files without it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from penstock_engine.core.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import nn

# What safetensors itself accepts as the largest header.
MAX_HEADER_BYTES = 100_000_000

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


class Checkpoint:
    """The tensors of a model directory by name; a context manager that holds its files open.

    Tensors are views of the mapped files: they cost memory only as they are read, and the pages
    are shared by all processes that map the same file.
    """

    def __init__(self, model_dir: Path) -> None:
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}
        for path in checkpoint_files(model_dir):
            try:
                file = self._stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            except (OSError, SafetensorError) as error:
                self._stack.close()
                raise ModelError("BadWeights", f"{path.name} is damaged or incomplete") from error
            self._file_of |= dict.fromkeys(file.keys(), file)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> torch.Tensor:
        if name not in self._file_of:
            raise ModelError("BadWeights", f"the checkpoint has no tensor {name}")
        tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        return tensor


def checkpoint_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model. Raises ModelError when any of them is missing."""
    index_path = model_dir / INDEX_NAME
    if index_path.is_file():
        try:
            names = sorted(set(json.loads(index_path.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError("BadWeights", f"{INDEX_NAME} cannot be read") from error
    elif (model_dir / SINGLE_NAME).is_file():
        names = [SINGLE_NAME]
    else:
        raise ModelError("NoSafetensors", f"there is neither {SINGLE_NAME} nor {INDEX_NAME}")
    for name in names:
        # A name in the index is a file beside it, never a path to somewhere else.
        is_name = isinstance(name, str) and Path(name).name == name
        if not is_name or not (model_dir / name).is_file():
            raise ModelError("BadWeights", f"{INDEX_NAME} names a file that is not there")
    return [model_dir / name for name in names]


def num_parameters(model_dir: Path) -> int:
    """Numbers in all tensors of the checkpoint, from the headers of its files alone."""
    return sum(_num_parameters(path) for path in checkpoint_files(model_dir))


def _num_parameters(path: Path) -> int:
    try:
        with path.open("rb") as file:
            num_header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(num_header_bytes, MAX_HEADER_BYTES)))
        shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
        return sum(math.prod(shape) for shape in shapes)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError("BadWeights", f"{path.name} is damaged or incomplete") from error


def load_weights(
    model: nn.Module,
    model_dir: Path,
    packed: Mapping[str, tuple[str, ...]],
    dtype: torch.dtype,
    device: str,
) -> None:
    """Gives every parameter of a model built on the meta device its values.

    packed: parameters named X in the model are the rows of the checkpoint's Y, Z, ... stacked.
    A tensor that needs neither stacking nor conversion stays a view of its mapped file. Those
    that are stacked are read through mappings of their own, which end here: their pages would
    else stay resident beside the copy for as long as any view of the file lives.
    """
    import torch
    from torch import nn

    with Checkpoint(model_dir) as lasting, Checkpoint(model_dir) as passing:
        for module_name, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                full_name = f"{module_name}.{name}"
                sources = _sources(full_name, packed)
                if len(sources) == 1:
                    tensor = lasting.get(full_name)
                else:
                    tensor = torch.cat([passing.get(source) for source in sources])
                if tensor.shape != parameter.shape:
                    raise ModelError(
                        "BadWeights",
                        f"{full_name} has shape {list(tensor.shape)} in the checkpoint, "
                        f"but the config says {list(parameter.shape)}",
                    )
                tensor = tensor.to(device=device, dtype=dtype)
                setattr(module, name, nn.Parameter(tensor, requires_grad=False))


def _sources(full_name: str, packed: Mapping[str, tuple[str, ...]]) -> list[str]:
    for packed_name, parts in packed.items():
        if f".{packed_name}." in full_name:
            return [full_name.replace(packed_name, part) for part in parts]
    return [full_name]
