"""The limits of a batch with their defaults."""

import pytest

from penstock.core.spec.settings import MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS, batch_limits


@pytest.mark.parametrize(
    ("sequences", "tokens", "expected"),
    [
        (None, None, (64, 512)),
        (8, None, (8, 512)),
        (1024, None, (1024, 1024)),
        (None, 32, (32, 32)),
        (None, 8192, (64, 8192)),
        (100, 64, (100, 64)),  # refused by the API
    ],
)
def test_each_limit_leaves_the_default_of_the_other_valid(
    sequences: int | None, tokens: int | None, expected: tuple[int, int]
) -> None:
    settings = {MAX_NUM_SEQS: sequences, MAX_NUM_BATCHED_TOKENS: tokens}
    assert batch_limits(settings) == expected
