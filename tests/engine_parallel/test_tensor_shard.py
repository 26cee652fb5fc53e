"""Tests of cutting tensors and quantized matrices for tensor parallel ranks."""

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.checkpoints.tensor_shard import ShardRange, TensorShard
from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.matrix import QuantizedMatrix


@st.composite
def portions(draw: st.DrawFn) -> ShardRange:
    whole = draw(st.integers(1, 40))
    first = draw(st.integers(0, whole - 1))
    return ShardRange(range(first, draw(st.integers(first + 1, whole))), whole)


@given(st.lists(portions(), min_size=1, max_size=4), st.sampled_from([0, 1]))
def test_a_cut_takes_each_portion_from_its_part(parts: list[ShardRange], dim: int) -> None:
    cut = TensorShard(dim, tuple(parts))
    shape = [3, 3]
    shape[dim] = cut.num_local
    full_shape = cut.full_shape(shape)
    whole = torch.arange(full_shape[0] * full_shape[1]).view(full_shape)
    firsts = accumulate((part.total for part in parts[:-1]), initial=0)
    wanted = [
        first + thing for first, part in zip(firsts, parts, strict=True) for thing in part.local
    ]
    assert torch.equal(
        torch.cat(cut.split(whole), dim), whole.index_select(dim, torch.tensor(wanted))
    )


def test_the_same_cut_fits_vectors_of_outputs_and_stacks() -> None:
    cut = TensorShard(0, (ShardRange(range(1, 3), 4),))
    assert cut.split(torch.arange(4))[0].tolist() == [1, 2]
    assert cut.split(torch.arange(24).view(2, 4, 3))[0].shape == (2, 2, 3)
    assert cut.full_shape([2]) == [4]
    assert cut.full_shape([5, 2, 3]) == [5, 4, 3]


@st.composite
def quantized(draw: st.DrawFn) -> QuantizedMatrix:
    num_outputs, num_inputs = draw(st.integers(1, 9)), draw(st.integers(1, 70))
    size = draw(st.sampled_from([num_inputs, 1, 4, 16, 48]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    groups = (num_outputs, -(-num_inputs // size))
    zeros = torch.randint(-8, 8, groups, generator=generator, dtype=torch.int16)
    return QuantizedMatrix(
        torch.randint(-8, 8, (num_outputs, num_inputs), generator=generator, dtype=torch.int8),
        torch.rand(groups, generator=generator),
        bits=4,
        group_size=size,
        zeros=draw(st.sampled_from([None, zeros])),
    )


@given(quantized(), st.sampled_from([0, 1]), st.data())
def test_what_is_held_in_few_bits_is_cut_exactly(
    matrix: QuantizedMatrix, dim: int, data: st.DataObject
) -> None:
    """A shard equals its part of the whole, even if its boundary is within a group."""
    start = data.draw(st.integers(0, matrix.shape[dim] - 1))
    length = data.draw(st.integers(1, matrix.shape[dim] - start))
    cut = matrix.narrow(dim, start, length)
    assert torch.equal(cut.dequantized(), matrix.dequantized().narrow(dim, start, length))


def test_inputs_in_another_order_cannot_be_cut() -> None:
    matrix = QuantizedMatrix(
        torch.zeros(2, 4, dtype=torch.int8),
        torch.ones(2, 2),
        4,
        2,
        order=torch.tensor([3, 1, 0, 2]),
    )
    assert matrix.narrow(0, 1, 1).shape == (1, 4)
    with pytest.raises(ModelError, match="without desc_act"):
        matrix.narrow(1, 0, 2)
