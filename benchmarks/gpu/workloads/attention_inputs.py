"""Inputs of paged attention: a large KV cache of random numbers, and batches with pages all over it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.kernels.paged_batch import PagedBatch
from penstock_engine.models.step_cost import num_attended

BLOCK_SIZE = 16
# Launches in a row read this much memory before they read the same again: several times the device's
# cache, which has 60 MB on an H200.
ROTATED_BYTES, MAX_COPIES = 512 * 2**20, 64
CHECKED_SEQUENCES, CHECKED_QUERIES = 4, 32
# Upper bound on lengths, as a CUDA graph of decode steps knows it: the longest context of the model.
GRAPH_LENGTH = 40_960


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of a layer: num_kv_heads, each read by `group` query heads."""

    num_kv_heads: int
    group: int
    head_dim: int

    @property
    def num_heads(self) -> int:
        return self.num_kv_heads * self.group


LARGE, SMALL = Heads(8, 4, 128), Heads(2, 4, 16)


@dataclass(frozen=True, slots=True)
class Case:
    """A launch of paged attention. lengths: of the sequences, new tokens included; num_queries: new
    tokens of each. cache: same as the queries' type (bfloat16), int8 or float8_e4m3fn."""

    name: str
    lengths: tuple[int, ...]
    num_queries: int = 1
    cache: str = "same"

    @property
    def num_blocks(self) -> int:
        return sum(-(-length // BLOCK_SIZE) for length in self.lengths)

    def flops(self, heads: Heads) -> float:
        """FLOPs of the products of queries with keys, and of weights with values, of visible keys."""
        attended = sum(
            num_attended(length - self.num_queries, length, None) for length in self.lengths
        )
        return 4.0 * heads.num_heads * heads.head_dim * attended

    def kv_bytes(self, heads: Heads) -> int:
        """Bytes of keys and values, with their scales."""
        vector_bytes = 2 * heads.head_dim if self.cache == "same" else heads.head_dim + 4
        return 2 * sum(self.lengths) * heads.num_kv_heads * vector_bytes

    def moved_bytes(self, heads: Heads) -> int:
        """Bytes that must be read or written: keys, values, block tables, queries and outputs."""
        num_rows = len(self.lengths) * self.num_queries * heads.num_heads
        return self.kv_bytes(heads) + 4 * self.num_blocks + 2 * 2 * num_rows * heads.head_dim


@dataclass(frozen=True, slots=True)
class Pool:
    """A KV cache. numbers: [2, blocks, BLOCK_SIZE, kv_heads, head_dim]. scales: of 8-bit numbers."""

    numbers: torch.Tensor
    scales: torch.Tensor | None

    @property
    def num_blocks(self) -> int:
        return self.numbers.shape[1]

    @classmethod
    def random(cls, num_blocks: int, heads: Heads, cache: str, device: str) -> "Pool":
        shape = (2, num_blocks, BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
        numbers = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_()
        if cache == "same":
            return cls(numbers, None)
        return cls(*quantize_kv(numbers, getattr(torch, cache)))


class PoolStore:
    """Makes a pool when it is needed, and keeps the one that was used last."""

    def __init__(self, num_blocks: dict[str, int], heads: Heads, device: str) -> None:
        """num_blocks: of the pool of each kind of cache."""
        self._num_blocks = num_blocks
        self._heads = heads
        self._device = device
        self._kept: tuple[str, Pool] | None = None

    def get(self, cache: str) -> Pool:
        if self._kept is None or self._kept[0] != cache:
            self._kept = None
            pool = Pool.random(self._num_blocks[cache], self._heads, cache, self._device)
            self._kept = cache, pool
        return self._kept[1]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a case. query: [tokens, heads, head_dim]. batches: over pages that differ."""

    case: Case
    heads: Heads
    pool: Pool
    query: torch.Tensor
    batches: Sequence[PagedBatch]


def make_inputs(case: Case, heads: Heads, pool: Pool, *, max_copies: int = MAX_COPIES) -> Inputs:
    """Make queries, and as many batches as there are pages for, up to ROTATED_BYTES."""
    device = pool.numbers.device
    num_tokens = len(case.lengths) * case.num_queries
    query = torch.randn(num_tokens, heads.num_heads, heads.head_dim, device=device).bfloat16()
    wanted = -(-ROTATED_BYTES // case.kv_bytes(heads))
    num_copies = max(1, min(wanted, max_copies, pool.num_blocks // case.num_blocks))
    blocks = np.random.default_rng(0).permutation(pool.num_blocks).astype(np.int32)
    parts = [blocks[i * case.num_blocks : (i + 1) * case.num_blocks] for i in range(num_copies)]
    return Inputs(case, heads, pool, query, [_batch(case, part, device) for part in parts])


def placeholder_inputs(case: Case, heads: Heads) -> Inputs:
    """Inputs on the CPU of the shapes and types of a case, for launches that only compile."""
    pool = Pool.random(1, heads, case.cache, "cpu")
    query = torch.empty(
        len(case.lengths) * case.num_queries, heads.num_heads, heads.head_dim, dtype=torch.bfloat16
    )
    pages = np.zeros(case.num_blocks, dtype=np.int32)
    return Inputs(case, heads, pool, query, [_batch(case, pages, query.device)])


def _batch(case: Case, blocks: "np.ndarray[tuple[int], np.dtype[np.int32]]",
           device: torch.device) -> PagedBatch:  # fmt: skip
    widths = [-(-length // BLOCK_SIZE) for length in case.lengths]
    tables = np.zeros((len(widths), max(widths)), dtype=np.int32)
    rows = np.split(blocks, np.cumsum(widths)[:-1])
    for table, row in zip(tables, rows, strict=True):
        table[: len(row)] = row
    is_decode = case.num_queries == 1
    starts = torch.arange(len(widths) + 1, dtype=torch.int32, device=device) * case.num_queries
    return PagedBatch(
        torch.from_numpy(tables).to(device), None if is_decode else starts,
        torch.tensor(case.lengths, dtype=torch.int32, device=device), case.num_queries,
        max(GRAPH_LENGTH, *case.lengths) if is_decode else max(case.lengths),
    )  # fmt: skip


def relative_error(output: torch.Tensor, inputs: Inputs, batch: PagedBatch) -> float:
    """Largest difference from attention in float32, relative to its result, of some sequences.

    output: of inputs.query over a batch. Of each sequence, its first and last queries are compared.
    """
    case, heads = inputs.case, inputs.heads
    longest = max(range(len(case.lengths)), key=case.lengths.__getitem__)
    spread = np.linspace(0, len(case.lengths) - 1, CHECKED_SEQUENCES - 1).astype(int).tolist()
    errors = [0.0]
    for index in sorted({longest, *spread}):
        length = case.lengths[index]
        rows = sorted({
            *range(min(CHECKED_QUERIES, case.num_queries)),
            *range(max(0, case.num_queries - CHECKED_QUERIES), case.num_queries),
        })  # fmt: skip
        tokens = torch.tensor(rows, device=output.device)
        pages = batch.block_tables[index, : -(-length // BLOCK_SIZE)].long()
        keys, values = (_floats(inputs.pool, kind, pages)[:length] for kind in (0, 1))
        query = inputs.query[index * case.num_queries + tokens].float()
        positions = length - case.num_queries + tokens
        expected = _attend(query, keys, values, positions, heads)
        actual = output[index * case.num_queries + tokens].float()
        errors.append(float((actual - expected).norm() / expected.norm()))
    return max(errors, key=lambda error: (error != error, error))  # NaN is the largest


def _floats(pool: Pool, kind: int, pages: torch.Tensor) -> torch.Tensor:
    numbers = pool.numbers[kind, pages].float()
    if pool.scales is not None:
        numbers *= pool.scales[kind, pages][..., None]
    return numbers.flatten(0, 1)


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor,
    heads: Heads,
) -> torch.Tensor:  # fmt: skip
    """Causal attention. query: [n, heads, dim]; keys, values: [length, kv_heads, dim]; positions: [n]."""
    grouped = query.view(len(query), heads.num_kv_heads, heads.group, heads.head_dim)
    scores = torch.einsum("nhgd,lhd->nhgl", grouped, keys) * heads.head_dim**-0.5
    is_later = torch.arange(len(keys), device=keys.device) > positions[:, None]
    weights = scores.masked_fill_(is_later[:, None, None], -torch.inf).softmax(-1)
    return torch.einsum("nhgl,lhd->nhgd", weights, values).flatten(1, 2)
