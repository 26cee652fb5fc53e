"""Tests of the sampling noise: a seed must sample the same tokens in every version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.core.noise import POSITION_STRIDE, uniform

# The first outputs of splitmix64 from the state 1234567, computed by its authors' C program.
SPLITMIX64 = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431)


def mixed(state: int) -> int:
    """Reference: splitmix64's output function with unbounded integers, without the last 12 bits."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state // 2**shift) * factor % 2**64
    return (state ^ state // 2**31) // 2**12 * 2**12


def test_the_reference_here_is_splitmix64() -> None:
    """The n-th output is the mixed state after n increments."""
    states = [(1234567 + n * 0x9E3779B97F4A7C15) % 2**64 for n in range(1, 5)]
    assert [mixed(state) for state in states] == [out // 2**12 * 2**12 for out in SPLITMIX64]


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**20))
def test_noise_is_splitmix64_of_seed_and_position(seed: int, position: int) -> None:
    state = (mixed(seed % 2**64) + position * POSITION_STRIDE) % 2**64
    assert uniform(seed, position) == mixed(state) / 2**64


@pytest.mark.parametrize(
    ("seed", "position", "expected"),
    [(0, 1, 0.8833108082136425), (1, 0, 0.6339158093419062), (7, 100, 0.5483225648016548)],
)
def test_recorded_values_do_not_change(seed: int, position: int, expected: float) -> None:
    assert uniform(seed, position) == expected
