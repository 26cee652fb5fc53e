"""Tests of the sampling kernel: Philox numbers and draws from the softmax."""

import pytest
import torch
from tests.support.engine.kernel_references import gumbel_argmax_reference, philox

from penstock_engine.kernels.gumbel_argmax import gumbel_argmax


@pytest.mark.parametrize(
    ("seed", "counter", "position", "word"),
    [(0, 0, 0, 0x6627E8D5), (-1, 2**32 - 1, 2**32 - 1, None)],
)
def test_philox_known_answers(seed: int, counter: int, position: int, word: int | None) -> None:
    """Random123's test vector for zeros; for all bits set, each word stays in 32 bits."""
    arguments = [torch.tensor([value]) for value in (seed, counter, position)]
    words = [int(w) for w in philox(*arguments)]
    assert word is None or words == [word, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert all(0 <= w < 2**32 for w in words)


@pytest.mark.parametrize("vocab_size", [1, 3, 4, 5, 4096, 5003])
def test_equals_the_reference(vocab_size: int, device: str) -> None:
    """Equality also holds with excluded tokens, equal logits, and the smallest and largest seeds."""
    torch.manual_seed(vocab_size)
    logits = 3 * torch.randn(6, vocab_size, device=device)
    logits[1, 1 + vocab_size // 2 :] = -torch.inf
    logits[2:5] = torch.tensor([0.0, 1.0, 2.0], device=device)[:, None]
    is_drawn = torch.tensor([True, True, True, True, False, False], device=device)
    seeds = torch.tensor([0, -5, 2**62 + 12345, 1, 1, 7], device=device)
    positions = torch.tensor([0, 1, 2**32 - 1, 3, 4, 5], device=device)
    expected = gumbel_argmax_reference(logits, is_drawn, seeds, positions)
    actual = gumbel_argmax(logits, is_drawn, seeds, positions)
    assert actual.tolist() == expected.tolist()
    assert actual[4:].tolist() == logits[4:].argmax(-1).tolist()


def test_a_row_draws_the_same_in_any_batch(device: str) -> None:
    torch.manual_seed(0)
    logits = torch.randn(8, 700, device=device)
    is_drawn = torch.ones(8, dtype=torch.bool, device=device)
    seeds = torch.arange(8, device=device) * 10**10
    positions = torch.arange(8, device=device)
    together = gumbel_argmax(logits, is_drawn, seeds, positions)
    alone = [
        gumbel_argmax(
            logits[i : i + 1], is_drawn[:1], seeds[i : i + 1], positions[i : i + 1]
        ).item()
        for i in range(8)
    ]
    assert together.tolist() == alone


def test_draws_follow_the_softmax() -> None:
    """Chi-square over positions of one seed and over seeds; 27.9 is passed once in 1000 times."""
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, -4.0, 2.5, 0.5, -torch.inf, 1.5, 0.2])
    num_draws = 40_000
    probabilities = logits.softmax(-1)
    rows = logits.expand(num_draws, -1)
    is_drawn = torch.ones(num_draws, dtype=torch.bool)
    index, same = torch.arange(num_draws), torch.full((num_draws,), 77)
    for seeds, positions in ((same, index), (index, same)):
        tokens = gumbel_argmax_reference(rows, is_drawn, seeds, positions)
        counts = tokens.bincount(minlength=10)
        assert counts[7] == 0
        expected = num_draws * probabilities
        is_possible = expected > 0
        chi_square = ((counts - expected) ** 2 / expected)[is_possible].sum()
        assert chi_square < 27.9
