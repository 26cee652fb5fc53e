"""Exponential back-off."""

import pytest

from penstock.core.backoff import backoff_s


@pytest.mark.parametrize(
    ("num_before", "pause_s"), [(0, 0.5), (1, 1.0), (2, 2.0), (3, 3.0), (10_000, 3.0)]
)
def test_each_pause_is_twice_as_long_up_to_the_longest(num_before: int, pause_s: float) -> None:
    assert backoff_s(num_before, 0.5, 3.0) == pause_s
