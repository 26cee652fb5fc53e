"""Answers to clients whose requests are no longer held."""

import pytest

from penstock.core.routing.hold import retry_after_s


@pytest.mark.parametrize(
    ("startup_s", "held_s", "expected"),
    [(42.0, 0.0, 42), (41.2, 0.0, 42), (42.0, 40.5, 2), (42.0, 42.0, 1), (42.0, 300.0, 1)],
)
def test_retry_after_is_the_rest_of_the_start_up(
    startup_s: float, held_s: float, expected: int
) -> None:
    assert retry_after_s(startup_s, held_s) == expected
