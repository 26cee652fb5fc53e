"""Log-probabilities equal those of a simple reference, even if computed and read in parts."""

import math
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from penstock_engine.core.step import TokenLogprobs
from penstock_engine.sampling.logprobs import LogprobBuffer

LOGITS = [[2.0, 1.0, 0.5, 1.5], [0.0, 3.0, -1.0, 0.5], [1.0, 1.5, 2.5, 2.0], [9.0, 0.0, 1.0, 5.0]]
CHOSEN = [3, 2, 2, 1]


def reference_logprobs(logits: Sequence[float], token_id: int, top: int) -> TokenLogprobs:
    total = math.log(sum(math.exp(value) for value in logits))
    logprobs = [value - total for value in logits]
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    best = tuple((token, logprobs[token]) for token in order[:top])
    return TokenLogprobs(token_id, logprobs[token_id], order.index(token_id) + 1, best)


def rounded(logprobs: Sequence[TokenLogprobs]) -> list[object]:
    return [
        (
            t.token_id,
            round(t.logprob, 5),
            t.rank,
            [(token, round(value, 5)) for token, value in t.top],
        )
        for t in logprobs
    ]


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_any_range_of_rows_can_be_read(split: int, top: int, first: int, end: int) -> None:
    buffer = LogprobBuffer(4, top, "cpu")
    logits, chosen = torch.tensor(LOGITS), torch.tensor(CHOSEN)
    buffer.fill(logits[:split], chosen[:split])
    buffer.fill(logits[split:], chosen[split:])
    buffer.fetch()
    expected = [reference_logprobs(*row, top) for row in zip(LOGITS, CHOSEN, strict=True)]
    assert rounded(buffer.all()) == rounded(expected)
    fewer = [reference_logprobs(*row, top // 2) for row in zip(LOGITS, CHOSEN, strict=True)]
    assert rounded(buffer.rows(first, end, top // 2)) == rounded(fewer[first:end])


@pytest.mark.parametrize(("token_id", "rank"), [(0, 2), (1, 2), (2, 1), (3, 4)])
def test_equally_probable_tokens_share_the_better_rank(token_id: int, rank: int) -> None:
    buffer = LogprobBuffer(1, 0, "cpu")
    buffer.fill(torch.tensor([[1.0, 1.0, 2.0, 0.0]]), torch.tensor([token_id]))
    assert buffer.all()[0].rank == rank


def test_half_precision_logits_are_summed_in_single() -> None:
    """A sum in half precision would be wrong for a large vocabulary."""
    buffer = LogprobBuffer(1, 1, "cpu")
    buffer.fill(torch.zeros(1, 3000, dtype=torch.bfloat16), torch.tensor([7]))
    assert buffer.all()[0].logprob == pytest.approx(-math.log(3000), abs=1e-5)
