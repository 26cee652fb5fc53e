"""Rotary embeddings of a model's layers."""

from collections.abc import Sequence

import torch

from penstock_engine.layers.rotary import CosSin, Rotary
from penstock_engine.models.rope import RopeConfig


class Rotaries:
    """Tables of cos and sin of several layers; layers with equal parameters share one."""

    def __init__(
        self, ropes: Sequence[RopeConfig], *, max_positions: int, dtype: torch.dtype, device: str
    ) -> None:
        """ropes: parameters of each layer. max_positions: size of the tables."""
        distinct = [rope for index, rope in enumerate(ropes) if rope not in ropes[:index]]
        self._table_of = [distinct.index(rope) for rope in ropes]
        self._tables = [
            Rotary(
                rope.rope_type,
                rope.parameters,
                rotary_dim=rope.rotary_dim,
                theta=rope.theta,
                max_positions=max_positions,
                dtype=dtype,
                device=device,
            )
            for rope in distinct
        ]

    def __call__(self, positions: torch.Tensor) -> list[CosSin]:
        """cos and sin of tokens, for each layer. positions: int64 [tokens]."""
        cos_sin = [table(positions) for table in self._tables]
        return [cos_sin[index] for index in self._table_of]
