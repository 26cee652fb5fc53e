"""Loads a model's parameters from a checkpoint: sharded, stacked, quantized, or as views of the file."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from penstock_engine.checkpoints.tensor_shard import ShardRange, TensorShard
from penstock_engine.checkpoints.weights import LOOKED_UP, open_checkpoints, parts_of, renamed
from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.linear_weight import Matrix, make_linear_weight
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.scheme import Scheme, Tensors

logger = logging.getLogger(__name__)

HEAD = "lm_head.weight"
# Rows by which a head is compared with the embeddings. A trained head differs in every row, and reading all
# of them would delay the start.
COMPARED_ROWS = 64


class WeightShards(Protocol):
    """Says which part of the checkpoint's weights this rank holds."""

    @property
    def experts(self) -> ShardRange: ...

    def tensor_shard(self, name: str) -> TensorShard | None:
        """The rank's part of the named parameter; None: the rank holds all of it."""
        ...


class ShardedModel(Protocol):
    """A model whose modules are built, so that weights can be loaded into them."""

    @property
    def shard(self) -> WeightShards: ...

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]: ...


def load_weights(
    model: ShardedModel,
    model_dir: Path,
    names: Mapping[str, str],
    dtype: torch.dtype,
    device: str,
    scheme: Scheme | None = None,
    dense: Container[str] = LOOKED_UP,
) -> None:
    """Load all parameters of a model that was built on the meta device. Raises ModelError.

    names: parts of parameter names that differ in the checkpoint. scheme: of quantized weights; None:
    no weight is quantized. A quantized weight replaces its parameter: a LinearWeight, or a list with
    one for each expert. It is read completely and then sharded; of other tensors only the rank's part
    is read. dense: last parts of the checkpoint's names of modules that are dequantized.

    A tensor that needs no conversion, or some rows of it, remains a view of its mapped file. Tensors
    that are copied are read through separate mappings, which end with this call: otherwise their
    pages would stay resident in addition to the copy while any view of the file exists.
    """
    with open_checkpoints(model_dir) as (persistent, temporary):
        loader = _Loader(temporary, persistent, names, dtype, device, scheme, dense, model.shard)
        for module_name, module in list(model.named_modules()):
            for leaf, parameter in list(module.named_parameters(recurse=False)):
                value = loader.value(f"{module_name}.{leaf}", parameter.shape)
                delattr(module, leaf)
                if isinstance(value, torch.Tensor):
                    value = nn.Parameter(value, requires_grad=False)
                setattr(module, leaf, value)


def warn_of_unused_head(model_dir: Path, embedding: torch.Tensor) -> None:
    """Warn if a checkpoint with tied embeddings has a head of its own, which is not loaded.

    embedding: the loaded matrix. transformers uses such a head, so answers differ.
    """
    with open_checkpoints(model_dir) as (_, temporary):
        if HEAD not in temporary:
            return
        head = temporary.get(HEAD)
        rows = torch.linspace(0, min(len(head), len(embedding)) - 1, COMPARED_ROWS).long()
        if not torch.equal(head[rows].to(embedding), embedding[rows]):
            logger.warning(
                "%s differs from the embeddings and is not used, because config.json says "
                "tie_word_embeddings", HEAD,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Loader:
    _temporary: Tensors  # checkpoint whose mappings end when everything is loaded
    _persistent: Tensors  # checkpoint whose mappings live as long as a view of them
    _names: Mapping[str, str]
    _dtype: torch.dtype
    _device: str
    _scheme: Scheme | None
    _dense: Container[str]
    _shard: WeightShards

    def value(self, name: str, shape: torch.Size) -> torch.Tensor | nn.Module:
        """Load one parameter of the model. name, shape: of the parameter."""
        whole = renamed(name, self._names)
        is_here = whole in self._temporary
        if len(shape) == 3 and not is_here:
            return self._stack(name, shape)
        matrices = self._local_slices(self._temporary, name, shape)
        if whole.split(".")[-2] in self._dense:
            matrices = [m.dequantized() if isinstance(m, QuantizedMatrix) else m for m in matrices]
        if _is_quantized(matrices):
            return make_linear_weight(matrices, self._dtype, self._device)
        if is_here and (view := self._view(name, shape, matrices)) is not None:
            return view.to(self._device, self._dtype)
        return self._join(matrices, torch.empty(shape, dtype=self._dtype, device=self._device))

    def _view(
        self, name: str, shape: torch.Size, matrices: Sequence[Matrix]
    ) -> torch.Tensor | None:
        """The parameter as a view of the checkpoint. matrices: read from the temporary checkpoint.

        None if it consists of several pieces, or if the view would keep the rest of a dequantized
        matrix in memory.
        """
        is_read_once = self._persistent is self._temporary
        views = matrices if is_read_once else self._local_slices(self._persistent, name, shape)
        view = views[0]
        if len(views) > 1 or not isinstance(view, torch.Tensor) or not view.is_contiguous():
            return None
        return None if is_read_once and view.untyped_storage().nbytes() > view.nbytes else view

    def _stack(self, name: str, shape: torch.Size) -> torch.Tensor | nn.Module:
        """Load a stack of experts that are separate tensors in the checkpoint."""
        module, _, leaf = name.rpartition(".")
        experts = [
            self._local_slices(self._temporary, f"{module}.{expert}.{leaf}.weight", shape[1:])
            for expert in self._shard.experts.local
        ]
        if any(map(_is_quantized, experts)):
            return nn.ModuleList(
                make_linear_weight(parts, self._dtype, self._device) for parts in experts
            )
        stack = torch.empty(shape, dtype=self._dtype, device=self._device)
        for parts, target in zip(experts, stack, strict=True):
            self._join(parts, target)
        return stack

    def _join(self, parts: Sequence[Any], target: torch.Tensor) -> torch.Tensor:
        tensors = [part.to(self._device, self._dtype) for part in parts]
        return torch.cat(tensors, dim=max(0, target.dim() - 2), out=target)

    def _local_slices(self, file: Tensors, name: str, shape: Sequence[int]) -> list[Matrix]:
        """The rank's slices of the matrices whose concatenated rows are a parameter of this shape."""
        shard = self._shard.tensor_shard(name)
        whole = renamed(name, self._names)
        matrix = self._find(file, whole)
        if shard is None or matrix is not None:
            matrix = file.get(whole) if matrix is None else matrix
            expected = [*shape] if shard is None else shard.full_shape(shape)
            if len(shape) == 3:
                expected[0] = self._shard.experts.total
            _check_shape(whole, matrix.shape, expected)
            if len(shape) == 3:
                experts = self._shard.experts.local
                matrix = matrix.narrow(0, experts.start, len(experts))
            return [matrix] if shard is None else shard.split(matrix)
        slices: list[Matrix] = []
        for part, shard_range in zip(parts_of(name, self._names), shard.ranges, strict=True):
            part_shard = TensorShard(shard.dim, (shard_range,))
            matrix = self._find(file, part)
            matrix = file.get(part) if matrix is None else matrix
            _check_shape(part, matrix.shape, part_shard.full_shape(shape))
            slices += part_shard.split(matrix)
        return slices

    def _find(self, file: Tensors, name: str) -> Matrix | None:
        """Read a tensor before it is sharded, quantized if the scheme says so; None if it is missing."""
        module, _, leaf = name.rpartition(".")
        quantized = None
        if self._scheme is not None and leaf == "weight":
            quantized = self._scheme.read(file, module)
        return file.get(name) if quantized is None and name in file else quantized


def _is_quantized(matrices: Sequence[Matrix]) -> bool:
    return any(isinstance(matrix, QuantizedMatrix) for matrix in matrices)


def _check_shape(name: str, actual: Sequence[int], expected: Sequence[int]) -> None:
    if list(actual) != list(expected):
        raise ModelError(
            "BadWeights",
            f"{name} has shape {list(actual)} in the checkpoint, "
            f"but the config says {list(expected)}",
        )
