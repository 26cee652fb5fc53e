"""Products to which the adapter of each row's sequence adds its own.

    y = W x                       for every row
    y[rows] += B (A x[rows])      for the rows of each adapter in the step

The plain product stays one product over the whole batch, so sequences of many adapters, and of
none, share a step. A rank that has a part of W takes the same part of B A.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

import torch
from torch import nn

from penstock_engine.core.step import ScheduledSequence
from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.transfer import send
from penstock_engine.layers.linear import Linear
from penstock_engine.layers.parallel_linear import RowParallelLinear
from penstock_engine.lora.added import Added, GroupedTokens, RowsOfSlots, Section, Selection
from penstock_engine.lora.checkpoint import Adapter, Factors
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import Shard
from penstock_engine.tensor_shard import TensorShard
from penstock_engine.weights import PACKED, renamed

# What an adapter can change: the products of attention and of a dense MLP.
ADAPTABLE = ("qkv_proj", "o_proj", "gate_up_proj", "up_proj", "down_proj")


class AdaptedLinear(nn.Module):
    """A product, and what the adapters add to it."""

    def __init__(self, inner: nn.Module, added: Added) -> None:
        super().__init__()
        self.inner = inner
        self.added = added

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [tokens, inputs]. Returns [tokens, outputs]."""
        inner = self.inner
        y: torch.Tensor = inner.partial_sum(x) if isinstance(inner, RowParallelLinear) else inner(x)
        self.added.add(y, x)
        return inner.all_reduce(y) if isinstance(inner, RowParallelLinear) else y


class Adapters:
    """The adapters of one model: its products wrapped once, adapters added and removed by name.

    All that were added are in the host's memory. Those of the step at hand are on the device, and
    as many others as have been there last. On the CPU both are the same memory.
    """

    def __init__(self, model: nn.Module, shard: Shard, device: str, max_active: int) -> None:
        """shard: what the model is of a whole. max_active: on the device at once, and so in one
        step."""
        self._shard = shard
        self._device = device
        self._selection: Selection = RowsOfSlots(device)
        if operations(device).has_kernels:
            self._selection = GroupedTokens(device, max_active)
        self._products: list[AdaptedLinear] = []
        self._added: dict[str, Adapter] = {}
        self._active: OrderedDict[str, int] = OrderedDict()  # slots on the device
        self._free = list(range(max_active))
        self.targets = targets_of(shard.config)
        for path, module in list(model.named_modules()):
            for leaf, child in list(module.named_children()):
                if leaf in ADAPTABLE and isinstance(child, Linear):
                    sections = self._sections(path, leaf, child)
                    product = AdaptedLinear(child, self._selection.product(sections))
                    setattr(module, leaf, product)
                    self._products.append(product)

    @property
    def active(self) -> list[str]:
        """On the device, the least recently used first."""
        return list(self._active)

    def select(self, sequences: Sequence[ScheduledSequence]) -> None:
        """Before a step: at most max_active adapters, all of them added."""
        names = dict.fromkeys(s.adapter for s in sequences if s.adapter)
        for name in names:
            if name not in self._active:
                self._activate(name, keep=names)
            self._active.move_to_end(name)
        self._selection.select(sequences, self._active)

    def add(self, name: str, adapter: Adapter) -> None:
        """adapter: of the whole model, in the host's memory."""
        factors = {
            target: _cut(pair, self._shard.tensor_shard(f"{own}.weight"))
            for target, pair in adapter.factors.items()
            if (own := self._shard.local_name(target)) is not None
        }
        self._added[name] = Adapter(adapter.rank, factors)

    def remove(self, name: str) -> None:
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
            product.added.put(slot, factors)

    def _deactivate(self, name: str) -> None:
        slot = self._active.pop(name, None)
        if slot is not None:
            for product in self._products:
                product.added.clear(slot)
            self._free.append(slot)

    def _sections(self, path: str, leaf: str, product: Linear) -> list[Section]:
        parts = PACKED.get(leaf, (leaf,))
        shard = self._shard
        if leaf == "qkv_proj":
            heads = (len(shard.heads), len(shard.kv_heads), len(shard.kv_heads))
            widths = [count * shard.config.head_dim for count in heads]
        else:
            widths = [product.num_outputs // len(parts)] * len(parts)
        sections, first = [], 0
        for part, width in zip(parts, widths, strict=True):
            target = renamed(f"{path}.{part}", shard.config.family.names)
            sections.append(Section(target, first, first + width))
            first += width
        return sections


def targets_of(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of each product of a model that can be adapted, by the checkpoint's name."""
    hidden, width = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = {
        "q_proj": (heads, hidden), "k_proj": (kv_heads, hidden), "v_proj": (kv_heads, hidden),
        "o_proj": (hidden, heads),
    }  # fmt: skip
    mlp = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    if config.family.mlp == "plain":
        del mlp["gate_proj"]
    targets = {}
    for index, layer in enumerate(config.layers):
        halves = (
            {"self_attn": attention} if layer.has_experts else {"self_attn": attention, "mlp": mlp}
        )
        for half, products in halves.items():
            for product, sizes in products.items():
                name = f"model.layers.{index}.{half}.{product}"
                targets[renamed(name, config.family.names)] = sizes
    return targets


def _cut(factors: Factors, cut: TensorShard | None) -> Factors:
    """Views of what belongs to some outputs, or some inputs, of a product."""
    if cut is None:
        return factors
    if cut.dim == 0:
        [b] = cut.split(factors.b)
        return Factors(factors.a, b)
    [a] = cut.split(factors.a)
    return Factors(a, factors.b)
