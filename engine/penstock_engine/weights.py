"""Safetensors checkpoints: one file or many with an index, mapped into memory, never unpickled.

torch is imported only when tensors are read, so that a preflight can look at files without it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from safetensors import SafetensorError, safe_open

from penstock_engine.core.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import nn

# What safetensors itself accepts as the largest header.
MAX_HEADER_BYTES = 100_000_000

# Products that read the same input are one in the model; most checkpoints keep them apart.
PACKED: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Portion:
    """What is kept of `whole` things."""

    kept: range
    whole: int

    def __len__(self) -> int:
        return len(self.kept)

    def times(self, size: int) -> Portion:
        """The same, counted in things of which each of these has `size`."""
        return Portion(range(self.kept.start * size, self.kept.stop * size), self.whole * size)


@dataclass(frozen=True, slots=True)
class Cut:
    """What a model has of a matrix: portions of the parts that lie one after another in it.

    dim: along which they lie, 0 outputs, 1 inputs.
    """

    dim: int
    portions: tuple[Portion, ...]

    @property
    def num_kept(self) -> int:
        return sum(map(len, self.portions))

    @property
    def num_whole(self) -> int:
        return sum(portion.whole for portion in self.portions)

    def axis(self, shape: Sequence[int]) -> int:
        """Of a vector of outputs, a matrix, or a stack of matrices."""
        return self.dim + max(0, len(shape) - 2)

    def whole_shape(self, shape: Sequence[int]) -> list[int]:
        """Of the tensor from which this cuts one of `shape`."""
        sizes = list(shape)
        sizes[self.axis(shape)] = self.num_whole
        return sizes

    def of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Views of the portions."""
        axis = self.axis(tensor.shape)
        parts = tensor.split_with_sizes([portion.whole for portion in self.portions], axis)
        return [
            part.narrow(axis, portion.kept.start, len(portion))
            for part, portion in zip(parts, self.portions, strict=True)
        ]


class Holding(Protocol):
    """What a model has of its checkpoint."""

    @property
    def experts(self) -> Portion: ...

    def cut(self, name: str) -> Cut | None:
        """Of the tensor of a parameter, by its name. None: all of it."""
        ...


class Loadable(Protocol):
    @property
    def shard(self) -> Holding: ...

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...


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

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

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
    model: Loadable,
    model_dir: Path,
    names: Mapping[str, str],
    dtype: torch.dtype,
    device: str,
) -> None:
    """Gives every parameter of a model built on the meta device its values. Raises ModelError.

    names: parts of parameter names that the checkpoint spells otherwise than the model does.
    Of what the model's shard leaves to others no page is read, but for those it shares with what
    it has. A tensor that is a parameter as it stands, or some rows of it, remains a view of its
    mapped file, unless it has to be converted. What is copied is read through mappings of their
    own, which end here: their pages would else stay resident beside the copy for as long as any
    view of the file lives.
    """
    import torch
    from torch import nn

    shard = model.shard

    def kept(file: Checkpoint, name: str, shape: Sequence[int]) -> list[torch.Tensor]:
        return _kept(file, name, names, shape, shard.cut(name), shard.experts)

    def copied(name: str, target: torch.Tensor) -> None:
        parts = [part.to(device, dtype) for part in kept(passing, name, target.shape)]
        torch.cat(parts, dim=max(0, target.dim() - 2), out=target)

    with Checkpoint(model_dir) as lasting, Checkpoint(model_dir) as passing:
        for module_name, module in model.named_modules():
            for leaf, parameter in module.named_parameters(recurse=False):
                name = f"{module_name}.{leaf}"
                is_whole = renamed(name, names) in lasting
                views = kept(lasting, name, parameter.shape) if is_whole else []
                if len(views) == 1 and views[0].is_contiguous():
                    tensor = views[0].to(device, dtype)
                else:
                    tensor = torch.empty(parameter.shape, dtype=dtype, device=device)
                    if parameter.dim() == 3 and not is_whole:
                        for expert, target in zip(shard.experts.kept, tensor, strict=True):
                            copied(f"{module_name}.{expert}.{leaf}.weight", target)
                    else:
                        copied(name, tensor)
                setattr(module, leaf, nn.Parameter(tensor, requires_grad=False))


def _kept(
    file: Checkpoint,
    name: str,
    names: Mapping[str, str],
    shape: Sequence[int],
    cut: Cut | None,
    experts: Portion,
) -> list[torch.Tensor]:
    """Views of what, row after row, is a parameter of this shape. Raises ModelError."""
    if (whole := renamed(name, names)) in file or cut is None:
        tensor = file.get(whole)
        expected = [*shape] if cut is None else cut.whole_shape(shape)
        if len(shape) == 3:
            expected[0] = experts.whole
        _check_shape(whole, tensor.shape, expected)
        if len(shape) == 3:
            tensor = tensor[experts.kept.start : experts.kept.stop]
        return [tensor] if cut is None or cut.num_kept == cut.num_whole else cut.of(tensor)
    views: list[torch.Tensor] = []
    for part, portion in zip(parts_of(name, names), cut.portions, strict=True):
        part_cut = Cut(cut.dim, (portion,))
        tensor = file.get(part)
        _check_shape(part, tensor.shape, part_cut.whole_shape(shape))
        views += part_cut.of(tensor)
    return views


def parts_of(name: str, names: Mapping[str, str]) -> list[str]:
    """The tensors of a checkpoint whose rows, one after another, are a parameter of the model."""
    for packed, parts in PACKED.items():
        if f".{packed}." in name:
            return [renamed(name.replace(packed, part), names) for part in parts]
    return [renamed(name, names)]


def renamed(name: str, names: Mapping[str, str]) -> str:
    return ".".join(names.get(part, part) for part in name.split("."))


def _check_shape(name: str, actual: Sequence[int], expected: Sequence[int]) -> None:
    if list(actual) != list(expected):
        raise ModelError(
            "BadWeights",
            f"{name} has shape {list(actual)} in the checkpoint, "
            f"but the config says {list(expected)}",
        )
