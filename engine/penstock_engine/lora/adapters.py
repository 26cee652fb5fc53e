"""LoRA adapters of a served model: linear layers that add the product of each row's adapter.

    y = W x                       for every row
    y[rows] += B (A x[rows])      for the rows of each adapter in the step

W x stays one product over the whole batch, so that sequences with different adapters, or without
one, share a step. A rank that has a part of W has the same part of B A.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import nn

from penstock_engine.checkpoints.tensor_shard import TensorShard
from penstock_engine.checkpoints.weights import PACKED, renamed
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.parallel_linear import RowParallelLinear
from penstock_engine.lora.checkpoint import Adapter, Factors
from penstock_engine.lora.lora_product import (
    KernelRowSelection,
    LoraProduct,
    RowSelection,
    Section,
    TorchRowSelection,
)
from penstock_engine.models.attention import adaptable_projections, weight_shapes
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import Shard

# Projections of dense MLPs. An adapter can change them, and all projections of attention.
MLP_PRODUCTS = ("gate_up_proj", "up_proj", "down_proj")


class LoraLinear(nn.Module):
    """A linear layer plus the LoRA products of the adapters of its rows."""

    def __init__(self, inner: nn.Module, lora: LoraProduct) -> None:
        super().__init__()
        self.inner = inner
        self.lora = lora

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer with adapters. x: [tokens, inputs]. Returns [tokens, outputs]."""
        inner = self.inner
        y: torch.Tensor = inner.partial_sum(x) if isinstance(inner, RowParallelLinear) else inner(x)
        self.lora.add(y, x)
        return inner.all_reduce(y) if isinstance(inner, RowParallelLinear) else y


class Adapters:
    """Manages the adapters of one model: wraps its linear layers, adds and removes adapters by name.

    All added adapters are in host memory. At most max_active of them are on the device: those of the
    current step, and the most recently used others. On the CPU both are the same memory.
    """

    def __init__(
        self, model: nn.Module, shard: Shard, device: str, max_active: int, *, max_rank: int
    ) -> None:
        """shard: the model's part on this rank. max_active: maximum number of adapters on the device,
        and so in one step. max_rank: of an adapter."""
        self._shard = shard
        self._device = device
        self._selection: RowSelection = TorchRowSelection(device)
        if operations(device).has_kernels:
            self._selection = KernelRowSelection(device, max_active, max_rank)
        self._products: list[LoraLinear] = []
        self._added: dict[str, Adapter] = {}
        self._active: OrderedDict[str, int] = OrderedDict()  # slots on the device
        self._free = list(range(max_active))
        self.targets = targets_of(shard.config)
        kinds = (adaptable_projections(layer.attention) for layer in shard.config.layers)
        shapes = (weight_shapes(projections, is_packed=True) for projections in kinds)
        adaptable = {*MLP_PRODUCTS, *(name for each in shapes for name in each)}
        for path, module in list(model.named_modules()):
            for leaf, child in list(module.named_children()):
                if leaf in adaptable and isinstance(child, Linear):
                    sections = self._sections(path, leaf, child)
                    product = LoraLinear(child, self._selection.product(sections))
                    setattr(module, leaf, product)
                    self._products.append(product)

    @property
    def active(self) -> list[str]:
        """Names of the adapters on the device, least recently used first."""
        return list(self._active)

    def select(self, sequences: Sequence[ScheduledSequence]) -> None:
        """Activate the adapters of a step, before its forward pass.

        sequences: with at most max_active different adapters, all of which have been added.
        """
        names = dict.fromkeys(s.adapter for s in sequences if s.adapter)
        for name in names:
            if name not in self._active:
                self._activate(name, keep=names)
            self._active.move_to_end(name)
        self._selection.select(sequences, self._active)

    def add(self, name: str, adapter: Adapter) -> None:
        """Add an adapter in host memory, of which the rank's part is kept.

        adapter: for the whole model.
        """
        factors = {
            target: _split(pair, self._shard.tensor_shard(f"{own}.weight"))
            for target, pair in adapter.factors.items()
            if (own := self._shard.local_name(target)) is not None
        }
        self._added[name] = Adapter(adapter.rank, factors)

    def remove(self, name: str) -> None:
        """Remove an adapter from the host and from the device, if it is there."""
        self._added.pop(name, None)
        self._deactivate(name)

    def _activate(self, name: str, keep: Collection[str]) -> None:
        if not self._free:
            self._deactivate(next(other for other in self._active if other not in keep))
        factors = {
            target: Factors(send(pair.a, self._device), send(pair.b, self._device))
            for target, pair in self._added[name].factors.items()
        }
        slot = self._active[name] = self._free.pop()
        for product in self._products:
            product.lora.put(slot, factors)

    def _deactivate(self, name: str) -> None:
        slot = self._active.pop(name, None)
        if slot is not None:
            for product in self._products:
                product.lora.clear(slot)
            self._free.append(slot)

    def _sections(self, path: str, leaf: str, product: Linear) -> list[Section]:
        shard = self._shard
        parts = (leaf,) if shard.config.family.is_packed else PACKED.get(leaf, (leaf,))
        widths = [product.num_outputs]
        if len(parts) > 1 and (split := shard.tensor_shard(f"{path}.{leaf}.weight")) is not None:
            widths = [len(shard_range) for shard_range in split.ranges]
        sections, first = [], 0
        for part, width in zip(parts, widths, strict=True):
            target = renamed(f"{path}.{part}", shard.config.family.names)
            sections.append(Section(target, first, first + width))
            first += width
        return sections


def targets_of(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Shapes (outputs, inputs) of all projections that can be adapted, by the checkpoint's name."""
    hidden, width = config.hidden_size, config.intermediate_size
    mlp = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    if config.family.mlp == "plain":
        del mlp["gate_proj"]
    if config.family.is_packed:
        mlp = {"gate_up_proj": (2 * width, hidden), "down_proj": (hidden, width)}
    targets = {}
    for index, layer in enumerate(config.layers):
        attention = weight_shapes(
            adaptable_projections(layer.attention), is_packed=config.family.is_packed
        )
        halves = (
            {"self_attn": attention} if layer.has_experts else {"self_attn": attention, "mlp": mlp}
        )
        for half, products in halves.items():
            for product, sizes in products.items():
                name = f"model.layers.{index}.{half}.{product}"
                targets[renamed(name, config.family.names)] = sizes
    return targets


def neutral_adapter(targets: Mapping[str, tuple[int, int]], dtype: torch.dtype) -> Adapter:
    """An adapter of rank 1 that changes nothing. targets: shapes by name (targets_of)."""
    return Adapter(
        1,
        {
            name: Factors(torch.zeros(1, inputs, dtype=dtype), torch.zeros(outputs, 1, dtype=dtype))
            for name, (outputs, inputs) in targets.items()
        },
    )


def _split(factors: Factors, shard: TensorShard | None) -> Factors:
    """A rank's part of the factors: some rows of b, or some columns of a."""
    if shard is None:
        return factors
    if shard.dim == 0:
        parts = shard.split(factors.b)
        return Factors(factors.a, parts[0] if len(parts) == 1 else torch.cat(parts))
    [a] = shard.split(factors.a)
    return Factors(a, factors.b)
