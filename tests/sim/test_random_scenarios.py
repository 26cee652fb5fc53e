"""Fixed seeds of benchmarks/simulator/random_scenarios.py."""

import pytest
from benchmarks.simulator import random_scenarios


# 1 is kept at the maximum, 3 loses half of its metrics, 118 scales to zero and back.
@pytest.mark.parametrize("seed", [1, 3, 118])
def test_bounds_zero_and_replay_in_random_worlds(seed: int) -> None:
    hours, decisions = random_scenarios.check(seed)
    assert hours > 0.25
    assert decisions == pytest.approx(hours * 3600 / 2, abs=2)
