"""Search for the smallest number that attains."""

import pytest
from benchmarks.simulator.panel.best_fixed import smallest


@pytest.mark.parametrize("least", [1, 2, 3, 7, 8, 40, 99, 100])
@pytest.mark.parametrize("guess", [0, 1, 3, 8, 60, 200])
def test_the_smallest_number_is_found_from_any_guess(least: int, guess: int) -> None:
    tried = []

    def attains(number: int) -> bool:
        tried.append(number)
        return number >= least

    assert smallest(attains, guess, most=100) == least
    assert len(tried) == len(set(tried))
    assert len(tried) <= 18


def test_there_is_none_if_the_largest_number_does_not_attain() -> None:
    assert smallest(lambda number: False, 5, most=100) is None
