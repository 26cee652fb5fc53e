"""Work that exceeded each headroom, and the smallest headroom that loses little enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.by_objectives.forecast_errors import (
    HEADROOMS,
    ForecastErrors,
    normal_excess,
    smallest,
)


def test_what_came_over_a_headroom_is_counted_by_its_excess() -> None:
    """The load is at its level of 2 half of the time, and 1.5 times that otherwise."""
    seen = ForecastErrors()
    for now in range(0, 1000, 20):
        came = 2.0 if now % 40 else 3.0
        seen = seen.with_observation(float(now), 20.0, 2.0, came)
    assert seen.came == pytest.approx(2.5)
    by_headroom = dict(zip(HEADROOMS, seen.beyond, strict=True))
    assert by_headroom[1.0] == pytest.approx(0.5)
    assert by_headroom[1.2] == pytest.approx(0.3)
    assert by_headroom[1.6] == pytest.approx(0.0)


def test_a_horizon_is_looked_at_ten_times_while_it_passes() -> None:
    seen = ForecastErrors().with_observation(100.0, 2.0, 1.0, 1.0)
    assert seen.is_due(102.0, 5.0)
    assert not seen.is_due(102.0, 160.0)
    assert seen.is_due(116.0, 160.0)


@given(st.lists(st.floats(0, 1), min_size=len(HEADROOMS), max_size=len(HEADROOMS)), st.floats(0, 1))
def test_the_smallest_headroom_is_where_the_share_falls_below(
    shares: list[float], loss: float
) -> None:
    falling = sorted(shares, reverse=True)
    found = smallest(lambda index: falling[index], loss)
    for headroom, share in zip(HEADROOMS, falling, strict=True):
        if share > loss:
            assert found >= headroom or found == HEADROOMS[-1]
        else:
            assert found <= headroom
            break


def test_normal_loads_lose_what_theory_says() -> None:
    assert normal_excess(1.0, 0.5) == pytest.approx(0.5 * 0.3989, rel=1e-3)  # spread / sqrt(2 pi)
    assert normal_excess(2.0, 0.1) < 1e-9
