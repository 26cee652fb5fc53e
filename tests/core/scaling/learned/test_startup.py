"""Start-up times of pods that found their model, and of those that fetched it."""

import pytest

from penstock.core.scaling.learned.startup import COLD_FETCH_S, REMEMBERED, StartUp
from penstock.core.scaling.signals import PodView

FRESH = StartUp(120.0)


def pods(*starts: tuple[float, float], first: int = 0) -> tuple[PodView, ...]:
    """Ready pods, one after the other. starts: how long each took, and the fetch in it, in seconds."""
    return tuple(
        PodView(f"p{first + i}", "Ready", 1000.0 * i, 1000.0 * i + took_s, None, fetch_s=fetch_s)
        for i, (took_s, fetch_s) in enumerate(starts)
    )


@pytest.mark.parametrize(
    ("starts", "expected_s"),
    [
        ((), 120.0),
        (((40, 0),), 40.0),
        (((310, 270),), 310.0),
        # The next pod is expected to be like the last one.
        (((310, 270), (42, 0.3), (40, 0.2)), 42.0),
        (((42, 0.3), (310, 270)), 310.0),
        # A pod that waited for the fetch of another one started cold too.
        (((310, COLD_FETCH_S),), 310.0),
    ],
)
def test_the_next_start_is_like_the_last(
    starts: tuple[tuple[float, float], ...], expected_s: float
) -> None:
    assert FRESH.updated(pods(*starts)).expected_s == expected_s


def test_cold_and_warm_starts_are_kept_apart() -> None:
    state = FRESH.updated(pods((310, 270), (42, 0.3), (300, 260), (40, 0)))
    assert (state.times_s, state.cold_times_s, state.is_cold) == ((42, 40), (310, 300), False)
    assert state.updated(pods((310, 270), (42, 0.3), (300, 260), (40, 0))) == state


def test_each_kind_is_remembered_by_itself() -> None:
    state = FRESH.updated(pods((310, 270)))
    for number in range(REMEMBERED + 5):
        state = state.updated(pods((40 + number, 0), first=1 + number))
    assert len(state.times_s) == REMEMBERED
    assert state.cold_times_s == (310,)
    assert state.is_measured
    assert not FRESH.is_measured
